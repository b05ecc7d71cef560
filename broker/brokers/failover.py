"""Several brokers in one process: brokers stop and return, leaders and coordinators are moved.

The effects of a change of leaders, in this order:

1. the moved partitions begin a leader epoch, durably (KIP-101); it is also the coordinator epoch
   in markers of transactions;
2. requests that wait for a coordinator that has moved are refused with NOT_COORDINATOR, as in
   Apache Kafka; their work continues, as if only the response had been lost;
3. waiting fetches are tried again, since a broker that no longer leads refuses them;
4. the connections of a stopped broker are closed.

All brokers share the coordinators' state, so nothing is loaded, and open transactions and groups
continue without a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.broker.brokers.cluster import NO_LEADER, Cluster
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.requests.pending_requests import Requests
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.protocol.errors import Code
from barnabas.protocol.topic_partition import TopicPartition

COORDINATORS = {"group": OFFSETS_TOPIC, "transaction": TRANSACTIONS_TOPIC}


class Failover:
    """The inputs that stop and restart brokers and move leaders. Each raises ValueError with an
    explanation if the change is impossible.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: TopicRegistry,
        connections: Mapping[int, ConnectionState],
        requests: Requests,
        progress: LogProgress,
    ) -> None:
        self._cluster, self._topics = cluster, topics
        self._connections, self._requests, self._progress = connections, requests, progress

    def take_away(self, node_id: int, now_ms: int) -> None:
        """Stop a broker. Other in-sync replicas become the leaders of its partitions, and its
        connections are closed.
        """
        self._check_several()
        if not self._cluster.node(node_id).is_there:
            return
        self._follow(self._cluster.take_away(node_id), now_ms)
        for connection in list(self._connections.values()):
            if connection.node_id == node_id:
                self._requests.close(connection.connection_id, f"broker {node_id} is taken away")

    def give_back(self, node_id: int, now_ms: int) -> None:
        """Start a stopped broker again. It becomes the leader of the partitions that have no leader
        and for which it has an eligible replica. No other leader changes.
        """
        self._check_several()
        if not self._cluster.node(node_id).is_there:
            self._follow(self._cluster.give_back(node_id), now_ms)

    def move_leader(self, topic: str, index: int, node_id: int, now_ms: int) -> None:
        """Make a broker the leader of a partition. The broker has to be an in-sync replica."""
        self._check_several()
        self._follow(self._cluster.move(TopicPartition(topic, index), node_id), now_ms)

    def move_coordinator(self, kind: str, key: str, node_id: int, now_ms: int) -> None:
        """Make a broker the coordinator of a "group" or a "transaction".

        The broker becomes the leader of a partition of the internal topic, and so the coordinator
        of all groups or transactions in that partition.
        """
        self._check_several()
        topic = COORDINATORS.get(kind)
        if topic is None:
            raise ValueError(f"{kind!r} has no coordinator: a group or a transaction has one")
        self._topics.ensure_internal_topic(topic, now_ms)
        self._follow(
            self._cluster.move(self._cluster.coordinator_partition(topic, key), node_id), now_ms
        )

    def set_controller(self, node_id: int) -> None:
        """Make a broker the controller that Metadata responses name.

        Each broker accepts requests for the controller, as in Apache Kafka (KIP-590).
        """
        self._check_several()
        if not self._cluster.node(node_id).is_there:
            raise ValueError(f"broker {node_id} is taken away: give it back first")
        self._cluster.controller_id = node_id

    def elect(
        self, partition: TopicPartition, *, is_unclean: bool, now_ms: int
    ) -> tuple[Code, str | None]:
        """Hold the election that an ElectLeaders request asks for. Gives: the error code and
        message.
        """
        name, index = partition
        leadership = self._cluster.leadership(name, index)
        if leadership is None:
            return (
                Code.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {index} of a topic '{name}'.",
            )
        leader, replicas, _ = leadership
        # An unclean election is needed only if there is no leader. A preferred election is needed
        # only if the leader is not the first replica.
        if leader == (leader if is_unclean and leader != NO_LEADER else replicas[0]):
            return (
                Code.ELECTION_NOT_NEEDED,
                f"Broker {leader} leads partition {index} of '{name}' already.",
            )
        if is_unclean:
            moved = self._cluster.elect_any(partition)
            self._follow(moved, now_ms)
            if moved:
                return Code.NONE, None
            return (
                Code.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"No replica of partition {index} of '{name}' is available.",
            )
        try:
            self._follow(self._cluster.move(partition, replicas[0]), now_ms)
        except ValueError as error:
            return Code.PREFERRED_LEADER_NOT_AVAILABLE, f"{error}."
        return Code.NONE, None

    def reassign(self, partition: TopicPartition, replicas: tuple[int, ...], now_ms: int) -> None:
        """Set the replicas of a partition, which are given as broker ids."""
        leaderships = self._cluster.leaderships(partition.topic)
        lists = [one.replicas for one in leaderships]
        lists[partition.partition] = replicas
        self._topics.metadata.set_topic_replicas(partition.topic, tuple(lists))
        self._follow(self._cluster.reassign(partition, replicas), now_ms)

    # --- effects ---------------------------------------------------------------------------------

    def _check_several(self) -> None:
        if self._cluster.is_one:
            raise ValueError("there is one broker: start several with --brokers N")

    def _follow(self, moved: Sequence[TopicPartition], now_ms: int) -> None:
        """Complete a change of leaders: begin a new leader epoch, answer the waiting requests whose
        coordinator has moved, and retry waiting fetches.
        """
        if not moved:
            return
        logs = self._topics.begin_leader_epoch(moved)
        for connection in list(self._connections.values()):
            wait = connection.waits_for_coordinator
            if wait is None or wait.ticket != connection.parked_ticket:
                continue
            if not all(
                self._cluster.leads(connection.node_id, wait.topic, index)
                for index in wait.partitions
            ):
                self._requests.reply(wait.ticket, wait.refusal())
        self._progress.try_fetches(logs, now_ms)
