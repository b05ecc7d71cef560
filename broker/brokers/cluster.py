"""The brokers of this process, which share one log directory: which of them run, and which
partitions each leads.

`Cluster` only holds state. The inputs in `broker/brokers/failover.py` change it, and requests read
it. Only `Cluster.leads` decides whether a broker leads a partition. A
coordinator is the leader of the partition of the internal topic that stores its group or
transactional id.

All brokers have the same log, so each replica is in sync as soon as its broker runs. In-sync lists
and leaders follow the rules of Apache Kafka's controller:

| event | in-sync list of a partition | leader of the partition |
|---|---|---|
| a topic is created | its replicas on running brokers | the first of them, else none |
| a broker stops | without it, unless it is the only one | the first running broker of the list |
| a broker returns, there is a leader | with it | unchanged |
| ..., no leader, it is in the list | its replicas on running brokers | the returned broker |
| ..., no leader, it is not in the list | unchanged | none |
| ..., the same with unclean elections | its replicas on running brokers | the returned broker |
| a leader is moved | unchanged | a running broker of the list |

With one broker (`is_one`) none of this is used. If a broker shares a lease with another node, the
cluster also lists that node (`standby`): both nodes have all partitions, and this one leads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.logs.metadata import Topic
from barnabas.broker.logs.topics import TopicRegistry, check_leader_epoch
from barnabas.broker.outbox import Ids
from barnabas.broker.requests.fetch_sessions import FetchSessions
from barnabas.broker.settings.config import BrokerConfig
from barnabas.coordinator.internal_topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from barnabas.coordinator.result import partition_for
from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.hot_responses import CurrentLeader
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log

NO_LEADER = -1
INTERNAL_FACTORS = {
    OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTIONS_TOPIC: "transaction.state.log.replication.factor",
    SHARE_STATE_TOPIC: "share.coordinator.state.topic.replication.factor",
}


class Leadership(NamedTuple):
    """The leader of a partition (or NO_LEADER), its replicas, and its in-sync replicas."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Standby(NamedTuple):
    """The other node of a pair, as it appears in Metadata (docs/STANDBY.md).

    addresses: host and port, by the listener's name. is_there: whether the other node follows this
    one. is_in_sync: whether it has all acknowledged data and may therefore take over.
    """

    node_id: int
    addresses: Mapping[str, tuple[str, int]]
    is_there: bool
    is_in_sync: bool


class ClusterNode:
    """One broker: whether it runs, the ports of its listeners, and the state that it does not share
    with the other brokers.
    """

    __slots__ = ("fetch_sessions", "is_there", "node_id", "ports", "producer_ids")

    def __init__(self, node_id: int, fetch_sessions: FetchSessions) -> None:
        self.node_id = node_id
        self.fetch_sessions = fetch_sessions
        self.ports: dict[str, int] = {}
        self.is_there = True
        self.producer_ids: Iterator[int] = iter(())


class Cluster:
    """All brokers of the process, and the leaders of all partitions.

    readable_version: rises when a leader or an ACL changes or a topic is deleted; waiting
    fetches then check again. node_id: the id of the first broker. controller_id: the controller in
    Metadata. standby: the other node of a pair, set by the rim.
    """

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, ids: Ids) -> None:
        self._config, self._topics = config, topics
        self.node_id: int = config.node_id
        slots = config.max_incremental_fetch_session_cache_slots
        count = config.barnabas_brokers
        self.is_one = count == 1
        self.nodes = {
            node_id: ClusterNode(node_id, FetchSessions(slots, ids))
            for node_id in range(config.node_id, config.node_id + count)
        }
        self.controller_id: int = config.node_id
        self.standby: Standby | None = None
        self.readable_version = 0
        self._leaderships: dict[str, tuple[Topic, list[Leadership]]] = {}
        self._views = {
            (node_id, is_acks_all): view(topics, self, node_id)
            for node_id in self.nodes
            for is_acks_all, view in ((False, NodeTopics), (True, NodeTopicsInSync))
        }

    # --- brokers ---------------------------------------------------------------------------------

    def nodes_there(self) -> list[ClusterNode]:
        """The running brokers, in the order of their ids."""
        return [node for node in self.nodes.values() if node.is_there]

    @property
    def node_ids(self) -> list[int]:
        """The ids of all brokers and of the other node of a pair, sorted."""
        standby = self.standby
        return sorted(self.nodes) if standby is None else sorted((*self.nodes, standby.node_id))

    def node(self, node_id: int) -> ClusterNode:
        """The broker with an id. Raises: ValueError if there is no such broker."""
        node = self.nodes.get(node_id)
        if node is None:
            named = ", ".join(map(str, self.nodes))
            raise ValueError(f"there is no broker {node_id}: the brokers are {named}")
        return node

    def topics_of(self, node_id: int, *, acks_all: bool = False) -> NodeTopics:
        """The topics as one of several brokers serves them.

        Takes: acks_all, whether they are for a Produce with acks=all, which needs
        min.insync.replicas.
        """
        return self._views[node_id, acks_all]

    # --- the view of the broker that received a request ------------------------------------------

    def topics_here(self, context: RequestContext) -> TopicRegistry | NodeTopics:
        """The topics as the broker that received the request serves them, with only the logs that
        this broker leads.
        """
        return self._topics if self.is_one else self._views[context.node_id, False]

    def sessions_here(self, context: RequestContext) -> FetchSessions:
        """The fetch sessions of the broker that received the request."""
        return self.nodes[self.node_id if self.is_one else context.node_id].fetch_sessions

    def node_id_here(self, context: RequestContext) -> int:
        """The id of the broker that received the request."""
        return self.node_id if self.is_one else context.node_id

    # --- leaders ---------------------------------------------------------------------------------

    def hint(self, topic: str, index: int, code: int) -> CurrentLeader | None:
        """The current leader of a partition, for the response to a client that sent its request to
        another broker (KIP-951). None for other error codes.
        """
        if self.is_one or code not in (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH):
            return None
        leadership = self.leadership(topic, index)
        if leadership is None:
            return None
        return CurrentLeader(leadership.leader, self._topics.leader_epoch(topic, index))

    def leads(self, node_id: int, topic: str, index: int) -> bool:
        """Whether a broker leads a partition. No other code decides this."""
        leadership = self.leadership(topic, index)
        return leadership is not None and leadership.leader == node_id

    def leadership(self, topic: str, index: int) -> Leadership | None:
        """The leadership of a partition; None if the partition does not exist."""
        leaderships = self.leaderships(topic)
        return leaderships[index] if 0 <= index < len(leaderships) else None

    def leaderships(self, name: str) -> list[Leadership]:
        """The leaderships of the partitions of a topic, by index; empty if the topic does not
        exist.
        """
        topic = self._topics.metadata.topic(name)
        if topic is None:
            self._leaderships.pop(name, None)
            return []
        of_topic, leaderships = self._leaderships.get(name, (None, []))
        # the topic was deleted and created again under the same name
        if of_topic is not topic:
            leaderships = []
            self._leaderships[name] = (topic, leaderships)
        while len(leaderships) < topic.partition_count:
            replicas = self._replicas(topic, len(leaderships))
            in_sync = tuple(one for one in replicas if self.nodes[one].is_there)
            leader = in_sync[0] if in_sync else NO_LEADER
            leaderships.append(Leadership(leader, replicas, in_sync or replicas[:1]))
        return leaderships

    def has_enough_in_sync(self, topic: str, index: int) -> bool:
        """Whether a partition has a leader, and enough in-sync replicas for acks=all."""
        leadership = self.leadership(topic, index)
        assert leadership is not None, f"{topic}-{index} is led"
        return len(leadership.in_sync) >= self._topics.min_in_sync_replicas(topic)

    def may_coordinate(self, topic: str, key: str) -> bool:
        """Whether decisions about a group or transactional id can be written. They can if it has a
        coordinator and enough replicas are in sync.
        """
        if self.is_one:
            return True
        topic, index = self.coordinator_partition(topic, key)
        leadership = self.leadership(topic, index)
        return (
            leadership is not None
            and leadership.leader != NO_LEADER
            and self.has_enough_in_sync(topic, index)
        )

    def coordinator_partition(self, topic: str, key: str) -> TopicPartition:
        """The partition of an internal topic that stores a group or a transactional id."""
        return TopicPartition(
            topic, partition_for(key, self._topics.internal_partition_count(topic))
        )

    # --- replicas --------------------------------------------------------------------------------

    def place(self, name: str, first: int, count: int, factor: int) -> list[tuple[int, ...]]:
        """Choose replicas for partitions of a topic, round robin over all brokers.

        Takes: first, the index of the first of these partitions. The topic's name decides the first
               broker, so topics of one partition are spread over the brokers, and each start
               computes the same replicas.
        """
        nodes = list(self.nodes)
        start = sum(name.encode())
        return [
            tuple(nodes[(start + index + at) % len(nodes)] for at in range(factor))
            for index in range(first, first + count)
        ]

    def default_factor(self, name: str) -> int:
        """The default number of replicas of a topic."""
        setting = INTERNAL_FACTORS.get(name, "default.replication.factor")
        factor: int = self._config[setting]
        return min(factor, len(self.nodes))

    def check_factor(self, factor: int) -> None:
        """Raise KafkaError INVALID_REPLICATION_FACTOR if the factor is not positive, or higher than
        the number of running brokers.
        """
        if factor <= 0:
            raise KafkaError(
                Code.INVALID_REPLICATION_FACTOR,
                f"The replication factor {factor} is not possible: give a number from 1 on, or "
                "-1 for the default.",
            )
        there = len(self.nodes_there())
        if factor > there:
            raise KafkaError(
                Code.INVALID_REPLICATION_FACTOR,
                f"The replication factor {factor} is not possible: there are {there} brokers.",
            )

    def check_replicas(self, index: int, replicas: Sequence[int]) -> None:
        """Raise KafkaError INVALID_REPLICA_ASSIGNMENT if the given brokers cannot be the
        replicas.
        """
        refusal = None
        if not replicas:
            refusal = "is not assigned to a broker"
        elif len(set(replicas)) < len(replicas):
            refusal = f"is assigned to {list(replicas)}, which names a broker twice"
        elif unknown := [one for one in replicas if one not in self.nodes]:
            refusal = (
                f"cannot be on broker {unknown[0]}, which is unknown: the brokers are "
                f"{list(self.nodes)}"
            )
        if refusal:
            raise KafkaError(Code.INVALID_REPLICA_ASSIGNMENT, f"Partition {index} {refusal}.")

    def _replicas(self, topic: Topic, index: int) -> tuple[int, ...]:
        """The replicas of a partition that the journal records, without brokers that do not exist
        in this run. If none is left, replicas are assigned again.
        """
        if index < len(topic.replicas):
            known = tuple(one for one in topic.replicas[index] if one in self.nodes)
            if known:
                return known
        factor = len(topic.replicas[0]) if topic.replicas else self.default_factor(topic.name)
        return self.place(topic.name, index, 1, min(factor, len(self.nodes)))[0]

    # --- changes ---------------------------------------------------------------------------------

    def take_away(self, node_id: int) -> list[TopicPartition]:
        """Stop a broker. Gives: the partitions that it led."""
        self._decide_leaders()
        self.node(node_id).is_there = False
        self.node(node_id).fetch_sessions.clear()
        if self.controller_id == node_id:
            self.controller_id = next((node.node_id for node in self.nodes_there()), node_id)

        def without_node(_: str, before: Leadership) -> Leadership:
            # the last in-sync replica stays in the list, as in Apache Kafka: only it has all
            # records
            in_sync = tuple(one for one in before.in_sync if one != node_id) or before.in_sync
            leader = before.leader if before.leader != node_id else self._first_available(before)
            return Leadership(leader, before.replicas, in_sync)

        return self._change(without_node)

    def give_back(self, node_id: int) -> list[TopicPartition]:
        """Start a stopped broker again. Gives: the partitions that have a leader again."""
        self._decide_leaders()
        self.node(node_id).is_there = True
        if not self.nodes[self.controller_id].is_there:
            self.controller_id = node_id

        def with_node(name: str, before: Leadership) -> Leadership:
            leader, replicas, in_sync = before
            if leader == NO_LEADER and node_id in replicas:
                if node_id in in_sync:
                    leader = node_id
                # an unclean election: the broker is not in sync, and records that it lacks are lost
                elif self._may_lose(name):
                    leader, in_sync = node_id, (node_id,)
            return Leadership(leader, replicas, self._in_sync(leader, replicas, in_sync))

        return self._change(with_node)

    def move(self, partition: TopicPartition, node_id: int) -> list[TopicPartition]:
        """Make a broker the leader of a partition.

        Gives:  the partition, unless the broker led it already.
        Raises: ValueError if the partition does not exist, or the broker is stopped or not in sync.
        """
        name, index = partition
        before = self.leadership(name, index)
        if before is None:
            raise ValueError(f"the partition {name}-{index} does not exist")
        if not self.node(node_id).is_there or node_id not in before.in_sync:
            raise ValueError(
                f"broker {node_id} cannot lead {name}-{index}: its replicas are "
                f"{list(before.replicas)}, of which {self._in_sync_there(before)} are available "
                "and in sync"
            )
        return self._set(partition, before._replace(leader=node_id))

    def reassign(
        self, partition: TopicPartition, replicas: tuple[int, ...]
    ) -> list[TopicPartition]:
        """Set the replicas of a partition. Gives: the partition, if its leader changes."""
        before = self.leadership(*partition)
        assert before is not None, f"{partition} is not there"
        there = tuple(one for one in replicas if self.nodes[one].is_there)
        leader = before.leader if before.leader in there else (there[0] if there else NO_LEADER)
        return self._set(partition, Leadership(leader, replicas, there or replicas[:1]))

    def elect_any(self, partition: TopicPartition) -> list[TopicPartition]:
        """Hold an unclean election, in which the first running replica becomes the leader.

        Gives: the partition, if it had no leader and has one now.
        """
        before = self.leadership(*partition)
        assert before is not None, f"{partition} is not there"
        there = [one for one in before.replicas if self.nodes[one].is_there]
        if before.leader != NO_LEADER or not there:
            return []
        return self._set(partition, Leadership(there[0], before.replicas, tuple(there)))

    def _decide_leaders(self) -> None:
        """Compute the leaders that no request has needed so far. Called before a broker stops or
        returns, since the result depends on the running brokers.
        """
        for name in self._topics.metadata.topics:
            self.leaderships(name)

    def _change(self, change: Callable[[str, Leadership], Leadership]) -> list[TopicPartition]:
        """Replace the leadership of every partition by the result of `change`. Gives: the
        partitions whose leader has changed.
        """
        moved = []
        for name in self._topics.metadata.topics:
            for index, before in enumerate(list(self.leaderships(name))):
                moved += self._set(TopicPartition(name, index), change(name, before))
        return moved

    def _set(self, partition: TopicPartition, after: Leadership) -> list[TopicPartition]:
        """Store the leadership of a partition. Gives: the partition, if its leader has changed."""
        name, index = partition
        leaderships = self.leaderships(name)
        before, leaderships[index] = leaderships[index], after
        if before.leader == after.leader:
            return []
        self.readable_version += 1
        return [partition]

    def _first_available(self, leadership: Leadership) -> int:
        return next(iter(self._in_sync_there(leadership)), NO_LEADER)

    def _in_sync_there(self, leadership: Leadership) -> list[int]:
        """The replicas of a partition that are in sync and whose brokers run, in the order of the
        replicas.
        """
        return [
            one
            for one in leadership.replicas
            if one in leadership.in_sync and self.nodes[one].is_there
        ]

    def _in_sync(
        self, leader: int, replicas: tuple[int, ...], in_sync: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The in-sync replicas of a partition. If it has a leader, these are all running replicas;
        otherwise the list is unchanged.
        """
        if leader == NO_LEADER:
            return in_sync
        return tuple(one for one in replicas if self.nodes[one].is_there)

    def _may_lose(self, name: str) -> bool:
        return self._topics.has_unclean_election(name)


class NodeTopics:
    """The topics as one of several brokers serves them, with only the logs that the broker leads.

    It has those methods of `TopicRegistry` that requests about one partition's log use.
    """

    def __init__(self, topics: TopicRegistry, cluster: Cluster, node_id: int) -> None:
        self._topics, self._cluster, self._node_id = topics, cluster, node_id

    def partition(self, topic: str, index: int) -> Log | None:
        """The log of a partition; None if this broker does not lead the partition, or if the log is
        offline.
        """
        log = self._topics.partition(topic, index)
        return log if log is not None and self._leads(topic, index) else None

    def is_later(self, topic: str, context: RequestContext) -> bool:
        """Whether the topic was created after a request arrived; see `TopicRegistry.is_later`."""
        return self._topics.is_later(topic, context)

    def partitions_of(self, topic: str) -> list[Log | None]:
        """The logs of a topic by index; None for each partition that this broker does not lead."""
        return [
            log if log is not None and self._leads(topic, index) else None
            for index, log in enumerate(self._topics.partitions_of(topic))
        ]

    def require_partition(self, topic: str, index: int) -> Log:
        """The log of a partition. Raises: KafkaError, with `missing_code`, if this broker cannot
        serve it.
        """
        log = self.partition(topic, index)
        if log is None:
            raise KafkaError(self.missing_code(topic, index))
        return log

    def fenced_partition(self, topic: str, index: int, current_leader_epoch: int) -> Log:
        """The log of a partition; see `TopicRegistry.fenced_partition`.

        Raises: KafkaError, also NOT_LEADER_OR_FOLLOWER.
        """
        log = self.require_partition(topic, index)
        check_leader_epoch(log, current_leader_epoch)
        return log

    def missing_code(self, topic: str, index: int) -> Code:
        """The error code for a partition whose log `partition` did not return: another broker leads
        the partition, the partition does not exist, or its log is damaged.
        """
        if self._topics.partition_exists(topic, index) and not self._leads(topic, index):
            return Code.NOT_LEADER_OR_FOLLOWER
        return self._topics.missing_code(topic, index)

    def _leads(self, topic: str, index: int) -> bool:
        return self._cluster.leads(self._node_id, topic, index)


class NodeTopicsInSync(NodeTopics):
    """The topics for a Produce with acks=all, with only the logs that have enough in-sync replicas
    (`min.insync.replicas`).
    """

    def partition(self, topic: str, index: int) -> Log | None:
        """The log of a partition; None if this broker does not lead the partition, or if too few of
        its replicas are in sync.
        """
        log = super().partition(topic, index)
        has_enough = log is not None and self._cluster.has_enough_in_sync(topic, index)
        return log if has_enough else None

    def missing_code(self, topic: str, index: int) -> Code:
        """The error code for a partition whose log `partition` did not return. It is
        NOT_ENOUGH_REPLICAS if the broker could serve the log but too few replicas are in sync.
        """
        if super().partition(topic, index) is not None:
            return Code.NOT_ENOUGH_REPLICAS
        return super().missing_code(topic, index)


class NodeProducerIds:
    """Allocates producer ids from the block of the broker that received the request (KIP-730).

    A producer may get a new id without an InitProducerId, when its transaction ends. That id is
    from the block that was used last.
    """

    def __init__(self, cluster: Cluster, blocks: ProducerIdAllocator) -> None:
        self._cluster, self._blocks = cluster, blocks
        self._node = cluster.nodes[cluster.controller_id]

    def serve(self, context: RequestContext) -> None:
        """Allocate the next ids from the block of the broker that received this request."""
        self._node = self._cluster.nodes[context.node_id]

    def allocate(self) -> int:
        """An unused id."""
        producer_id = next(self._node.producer_ids, None)
        if producer_id is None:
            self._node.producer_ids = iter(self._blocks.reserve_block())
            producer_id = next(self._node.producer_ids)
        return producer_id
