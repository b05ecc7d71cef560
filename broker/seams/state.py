"""The seam for reading the state of a broker, for the console, metrics and test control: single
values. `snapshots.py` has what may be long.

All of it is read in the loop's thread, between two requests, except where a line says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.connections.login_counts import LoginCount
from barnabas.broker.core import Broker
from barnabas.broker.observation.error_counts import ErrorCounts
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.stored import ScramCredential
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.share_partitions.share_counts import ShareCounts, StateWrites
from barnabas.storage.disk import Disk

if TYPE_CHECKING:  # a broker without topics has not loaded it
    from barnabas.storage.log.log import Log


class ShareNumbers(NamedTuple):
    """What share groups have in memory, and what they have done. Any thread may read the counts."""

    partition_count: int
    session_count: int
    session_partition_count: int
    counts: ShareCounts
    writes: StateWrites


class BrokerState:
    """What an annex reads of a broker. config: its settings."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.config: BrokerConfig = broker.config

    # --- topics and logs -------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        return self._broker.logs.cluster_id or ""

    @property
    def topic_count(self) -> int:
        return len(self._broker.metadata.topics)

    @property
    def offline_count(self) -> int:
        """The number of partitions whose files cannot be used."""
        return len(self._broker.logs.offline)

    def topic_names(self) -> dict[str, str]:
        """The names of the topics by their ids, as text."""
        return {str(topic.topic_id): topic.name for topic in self._broker.metadata.topics.values()}

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic; 0 for an unknown topic."""
        return len(self._broker.topics.partitions_of(topic))

    def log(self, topic: str, index: int) -> Log | None:
        """The log of a partition; None if there is none, or if it is offline."""
        return self._broker.topics.partition(topic, index)

    def logs_of(self, topic: str) -> Sequence[Log]:
        """The logs of a topic."""
        return list(self._broker.topics.logs_of(topic))

    # --- the disk --------------------------------------------------------------------------------

    @property
    def disk(self) -> Disk:
        """The disk to which the broker writes."""
        return self._broker.logs.disk

    def free_bytes(self) -> int:
        """The free space of the data directory's file system. Any thread may call it."""
        return self._broker.logs.disk.free_bytes(self._broker.logs.data_dir)

    def usable_bytes(self) -> int:
        """The free space that writes may use. Any thread may call it."""
        return self._broker.disk_space.usable_bytes()

    @property
    def refused_write_count(self) -> int:
        """The writes that were refused for lack of space."""
        return self._broker.disk_space.refused_count

    def space_problem(self) -> str | None:
        """Why writes are refused now; None if they are not. Any thread may call it."""
        return self._broker.disk_space.problem()

    # --- share groups ----------------------------------------------------------------------------

    def share_numbers(self) -> ShareNumbers | None:
        """The numbers of share groups; None before one is used. Any thread may call it."""
        shares = self._broker.shares.made
        if shares is None:
            return None
        sessions = shares.sessions
        return ShareNumbers(
            len(shares.partitions),
            len(sessions),
            sessions.partition_count,
            shares.counts,
            shares.runtime.writes,
        )

    # --- connections and requests ----------------------------------------------------------------

    @property
    def connection_count(self) -> int:
        """The number of clients' connections. Any thread may read it."""
        return len(self._broker.connections)

    def connection(self, connection_id: int) -> ConnectionState:
        """The state of an open connection."""
        return self._broker.connections[connection_id]

    def client_host(self, transactional_id: str) -> str | None:
        """The host from which the producer last added a partition to its transaction; None if the
        connection is closed.
        """
        connection_id = self._broker.transactions.latest_connection(transactional_id)
        connection = self._broker.connections.get(connection_id)
        return None if connection is None else connection.client_host.removeprefix("/")

    def fetch_session(self, node_id: int, session_id: int) -> list[tuple[Any, int]]:
        """The partitions of a fetch session: name or id of the topic, and the index."""
        sessions = self._broker.cluster.nodes[node_id].fetch_sessions
        return list(sessions.partitions_of(session_id))

    @property
    def waiting_fetch_count(self) -> int:
        return self._broker.purgatory.waiting_count

    @property
    def waiting_fetch_bytes(self) -> int:
        return self._broker.purgatory.memory.held_bytes

    @property
    def refused_fetch_count(self) -> int:
        """The fetches that could not wait for lack of memory."""
        return self._broker.purgatory.memory.refused_count

    # --- counts, which any thread may read -------------------------------------------------------

    def count_errors(self) -> bool:
        """Count the errors in responses from now on. Gives: whether they were not counted yet."""
        requests = self._broker.requests
        is_new = requests.errors is None
        if is_new:
            requests.errors = ErrorCounts()
        return is_new

    def stop_counting_errors(self) -> None:
        """Count errors no longer."""
        self._broker.requests.errors = None

    @property
    def errors(self) -> Mapping[tuple[int, int], int]:
        """The errors in responses, by API key and error code; empty if they are not counted."""
        errors = self._broker.requests.errors
        return {} if errors is None else errors.counts.copy()

    def count_of(self, metric: str) -> dict[tuple[str, ...], int]:
        """A counter's rows, by the values of its labels."""
        return self._broker.counters.rows(metric)

    def login_counts(self) -> list[LoginCount]:
        """The logins, by listener, mechanism and result."""
        return list(self._broker.logins.counts.rows())

    # --- rights ----------------------------------------------------------------------------------

    @property
    def authorizer(self) -> Authorizer | None:
        """What decides on rights; None if every client may do everything."""
        return self._broker.access.authorizer

    def scram_credential(self, user: str, mechanism: int) -> ScramCredential | None:
        """A user's stored credential; None if there is none."""
        return self._broker.metadata.scram_credentials.get((user, mechanism))
