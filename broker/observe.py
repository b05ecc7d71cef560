"""The broker's state as values, for metrics and the console.

An observation is a generator. It yields after ROWS_AT_ONCE rows, so that a broker of ten thousand
partitions can serve its clients in between. It returns tuples that another thread may keep. Each
row is consistent, but two rows may be of different moments. Anything that is created or deleted
during the observation may be missing or included. (`http_server.in_slices` runs an observation from
another thread.)
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from barnabas.broker.handlers.share_groups import UNKNOWN_LAG, start_and_lag
from barnabas.broker.lazy import Lazy
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.coordinator.groups.classic.consumer_protocol import read_assignment
from barnabas.coordinator.groups.consumer.consumer_group import consumer_group
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.groups.group_types import CLASSIC_TYPE, SHARE_TYPE, STREAMS_TYPE
from barnabas.coordinator.groups.share.share_groups import share_group
from barnabas.coordinator.share_states.share_state import UNINITIALIZED_OFFSET
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.transaction_state import AT_REST
from barnabas.group_lag import (
    TAIL_BYTES,
    Bounds,
    GroupPosition,
    PartitionLag,
    Situation,
    has_unread,
    is_tail,
    partition_lag,
    position,
    share_lag,
    status,
)
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_reader import Isolation
from barnabas.storage.segments.index_cache import BuildDeferred
from barnabas.texts import is_batch_number

if TYPE_CHECKING:
    from barnabas.broker.share_partitions.shares import Shares

ROWS_AT_ONCE = 100
"""The number of rows that are made without a break, in half a millisecond."""

MEMBERS_AT_ONCE = 20
"""The number of members whose assignments are read without a break."""

T = TypeVar("T")
Look = Generator[None, None, T]


NO_OFFSET = -1


class HasAssignment(Protocol):
    """A member's current assignment, by topic id."""

    @property
    def assigned(self) -> Mapping[uuid.UUID, Iterable[int]]: ...


class OpenTransaction(NamedTuple):
    """A transaction that is open in one partition. last_timestamp: the timestamp of its producer's
    last batch.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp: int


class PartitionState(NamedTuple):
    """The state of one partition's log. Offsets are Kafka's; `log_end_offset` is exclusive.

    is_whole: whether its topic shows whole transactions, across its partitions.
    """

    topic: str
    partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segment_count: int
    producer_id_count: int
    open_transactions: tuple[OpenTransaction, ...]
    is_whole: bool = False

    @property
    def stable_lag(self) -> int:
        """The number of offsets that read_committed readers cannot read yet."""
        return self.high_watermark - self.last_stable_offset

    @property
    def is_held_elsewhere(self) -> bool:
        """Whether a transaction in another partition holds back readers, rather than one here."""
        return self.stable_lag > 0 and all(
            one.first_offset > self.last_stable_offset for one in self.open_transactions
        )


class TransactionalIdState(NamedTuple):
    """The state of one transactional id. age_ms: the age of its open transaction, or None."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    age_ms: int | None
    timeout_ms: int
    partitions: tuple[tuple[str, int], ...]


class CommittedOffsetState(NamedTuple):
    """A group in one partition: its committed offset, or a share group's start offset, and its lag.

    offset: NO_OFFSET if the partition is assigned to a member, and the group has committed nothing.
    lag, situation, held, is_assigned: as in `barnabas.group_lag`. in_flight: the number of records
    of the share partition in memory, from the start offset to the last acquired record.
    in_flight_batches: the number of batches in which they were acquired. is_batch_number: whether
    the offset is the number of a micro-batch of the Spark sink instead of a position.
    """

    topic: str
    partition: int
    offset: int
    lag: int | None
    is_batch_number: bool = False
    is_of_share_group: bool = False
    in_flight: int = 0
    in_flight_batches: int = 0
    situation: Situation = Situation.BEHIND
    held: int = 0
    is_assigned: bool = False

    @property
    def partition_lag(self) -> PartitionLag:
        """The lag, without the partition."""
        return PartitionLag(self.situation, self.lag, self.held, self.is_assigned)


class GroupState(NamedTuple):
    """The state of one group. pending_count: the number of offsets in open transactions. kind: a
    type from `group_types`. is_simple: whether the group commits offsets and never had members.
    """

    group_id: str
    state: str
    member_count: int
    offsets: tuple[CommittedOffsetState, ...]
    pending_count: int
    kind: str = CLASSIC_TYPE
    is_simple: bool = False

    @property
    def is_bookkeeping(self) -> bool:
        """Whether all committed offsets of the group are numbers of micro-batches."""
        return bool(self.offsets) and all(row.is_batch_number for row in self.offsets)

    @property
    def lag(self) -> int:
        """How far the group is behind, over all its partitions."""
        return sum(row.lag or 0 for row in self.offsets)

    @property
    def status(self) -> str:
        """What the group waits for, how far it is behind, and why, as a phrase."""
        rows = [row.partition_lag for row in self.offsets]
        return status(self.state, self.member_count, self.is_simple, rows)


def partition_state(log: Log) -> PartitionState:
    """The state of a log now."""
    producer_state = log.producer_state
    return PartitionState(
        log.topic,
        log.partition,
        log.log_start_offset,
        log.last_stable_offset,
        log.high_watermark,
        log.log_end_offset,
        log.segments.size_bytes,
        len(log.segments),
        len(producer_state.producers),
        _open_transactions(log) if producer_state.open_txns else (),
        log.is_whole,
    )


def _open_transactions(log: Log) -> tuple[OpenTransaction, ...]:
    """The open transactions on a log, with their producers."""
    producers = log.producer_state.producers
    return tuple(
        OpenTransaction(
            producer_id,
            producers[producer_id].producer_epoch,
            first_offset,
            producers[producer_id].last_timestamp,
        )
        for producer_id, first_offset in log.producer_state.open_txns.items()
    )


def look_at_partitions(logs: LogManager) -> Look[tuple[PartitionState, ...]]:
    """All online partitions, including those of internal topics."""
    rows: list[PartitionState] = []
    for log in list(logs.logs.values()):
        rows.append(partition_state(log))
        if len(rows) % ROWS_AT_ONCE == 0:
            yield
    return tuple(rows)


def look_at_transactional_ids(
    transactions: TransactionCoordinator, wall_ms: int
) -> Look[tuple[TransactionalIdState, ...]]:
    """All transactional ids, with their open transactions."""
    rows: list[TransactionalIdState] = []
    for metadata in list(transactions.snapshot().values()):
        is_open = metadata.state not in AT_REST
        rows.append(
            TransactionalIdState(
                metadata.transactional_id,
                metadata.producer_id,
                metadata.producer_epoch,
                metadata.state.value,
                max(0, wall_ms - metadata.start_ms) if is_open else None,
                metadata.timeout_ms,
                tuple((p.topic, p.partition) for p in metadata.partitions) if is_open else (),
            )
        )
        if len(rows) % ROWS_AT_ONCE == 0:
            yield
    return tuple(rows)


def look_at_groups(
    groups: GroupCoordinator, topics: TopicRegistry, shares: Lazy[Shares]
) -> Look[tuple[GroupState, ...]]:
    """All groups, with their lag in the partitions for which they have committed offsets, and in
    those that are assigned to their members.
    """
    rows: list[GroupState] = []
    tails = Tails()
    for group in groups.all_groups():
        assigned = yield from _assigned(groups, group, topics)
        if group.kind == SHARE_TYPE:
            of_group = yield from _of_share_group(groups, group, topics, shares.made, assigned)
        else:
            of_group = yield from _of_group(group, topics, assigned, tails)
        rows.append(
            GroupState(
                group.group_id,
                group.state.state_name,
                len(group.member_ids),
                tuple(of_group),
                sum(map(len, group.offsets.pending.values())),
                group.kind,
                is_simple=group.kind == CLASSIC_TYPE and not group.state.protocol_type,
            )
        )
        if len(rows) % ROWS_AT_ONCE == 0:
            yield
    return tuple(rows)


def _assigned(
    groups: GroupCoordinator, group: Group, topics: TopicRegistry
) -> Look[set[tuple[str, int]]]:
    """The partitions that are assigned to a group's members."""
    assigned: set[tuple[str, int]] = set()
    if not group.has_members:
        return assigned
    if group.kind == STREAMS_TYPE:
        for partitions in groups.streams_requests.assigned_partitions(group).values():
            assigned.update(partitions)
        return assigned
    of_members = (
        _of_classic_members(group) if group.kind == CLASSIC_TYPE else _of_members(group, topics)
    )
    for number, partitions in enumerate(of_members, 1):
        assigned.update(partitions)
        if number % MEMBERS_AT_ONCE == 0:
            yield
    return assigned


def _of_classic_members(group: Group) -> Iterator[list[tuple[str, int]]]:
    """The partitions of each member of a classic group."""
    for member in list(group.classic.members.values()):
        by_topic = read_assignment(member.assignment) or {}
        yield [(name, index) for name, indexes in by_topic.items() for index in indexes]


def _of_members(group: Group, topics: TopicRegistry) -> Iterator[list[tuple[str, int]]]:
    """The partitions of each member of a consumer group or a share group."""
    currents: list[HasAssignment]
    if group.kind == SHARE_TYPE:
        currents = list(share_group(group).currents.values())
    else:
        currents = list(consumer_group(group).currents.values())
    for current in currents:
        yield [
            (topic.name, index)
            for topic_id, indexes in current.assigned.items()
            if (topic := topics.metadata.topic_by_id(topic_id)) is not None
            for index in indexes
        ]


def _of_group(
    group: Group, topics: TopicRegistry, assigned: set[tuple[str, int]], tails: Tails
) -> Look[list[CommittedOffsetState]]:
    """The partitions of a group that is not a share group."""
    rows: list[CommittedOffsetState] = []
    committed = dict(group.offsets.committed)
    for partition in [*committed, *sorted(assigned - committed.keys())]:
        entry = committed.get(TopicPartition(*partition))
        log = topics.partition(*partition)
        if entry is None and log is None:
            continue  # a member's assignment names a partition that does not exist
        is_batch = entry is not None and is_batch_number(entry.metadata)
        place = _place(log, None if entry is None else entry.offset, is_batch, tails)
        lag = partition_lag(place, is_assigned=partition in assigned)
        rows.append(
            CommittedOffsetState(
                *partition,
                NO_OFFSET if entry is None else entry.offset,
                lag.lag,
                is_batch_number=is_batch,
                situation=lag.situation,
                held=lag.held,
                is_assigned=lag.is_assigned,
            )
        )
        if len(rows) % ROWS_AT_ONCE == 0:
            yield
    return rows


def _place(log: Log | None, committed: int | None, is_batch: bool, tails: Tails) -> GroupPosition:
    """A group in one partition, with the log as it is now."""
    if log is None:
        return GroupPosition(committed, None, is_batch)
    bounds = Bounds(log.log_start_offset, log.last_stable_offset, log.high_watermark)
    if is_batch or not is_tail(committed, bounds):
        return GroupPosition(committed, bounds, is_batch)
    return GroupPosition(
        committed, bounds, is_batch, tails.has_unread(log, position(committed, bounds))
    )


class Tails:
    """The ends of logs, in which an observation looks for records. Many groups may be at the same
    offset of a log.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, int, int, int], bool] = {}

    def has_unread(self, log: Log, start: int) -> bool:
        """Whether there is a record for readers of committed data from an offset up to the last
        stable one; also if the log cannot be read there, or only after an index has been built.
        """
        key = (log.topic, log.partition, start, log.last_stable_offset)
        if (found := self._found.get(key)) is None:
            found = self._found[key] = _has_unread(log, start, log.last_stable_offset)
        return found


def _has_unread(log: Log, start: int, end: int) -> bool:
    try:
        with log.log_dir.cache.deferring_builds():
            found = log.read(
                start, max_bytes=TAIL_BYTES, isolation=Isolation.READ_COMMITTED, min_one_batch=False
            )
        if found.slice is None:
            return True
        data = found.slice.file.pread(found.slice.size, found.slice.position)
    except (BuildDeferred, KafkaError, OSError):
        return True
    aborted = [(row.producer_id, row.first_offset) for row in found.aborted or ()]
    return has_unread(data, aborted, start, end)


def _of_share_group(
    groups: GroupCoordinator,
    group: Group,
    topics: TopicRegistry,
    shares: Shares | None,
    assigned: set[tuple[str, int]],
) -> Look[list[CommittedOffsetState]]:
    """The partitions of a share group: those that it has read, and those of its members."""
    rows: list[CommittedOffsetState] = []
    initialized = groups.share_requests.initialized_partitions(group.group_id)
    partitions = {(name, index) for name, indexes in initialized.items() for index in indexes}
    for partition in sorted(partitions | assigned):
        start, lag, in_flight, batches = UNINITIALIZED_OFFSET, UNKNOWN_LAG, 0, 0
        if shares is not None and partition in partitions:
            start, lag = start_and_lag(topics, shares, group.group_id, *partition)
            in_flight, batches = shares.in_flight(group.group_id, *partition)
        known = share_lag(
            None if start == UNINITIALIZED_OFFSET else start,
            None if lag == UNKNOWN_LAG else lag,
            is_assigned=partition in assigned,
        )
        rows.append(
            CommittedOffsetState(
                *partition,
                NO_OFFSET if start == UNINITIALIZED_OFFSET else start,
                known.lag,
                is_of_share_group=True,
                in_flight=in_flight,
                in_flight_batches=batches,
                situation=known.situation,
                is_assigned=known.is_assigned,
            )
        )
        if len(rows) % ROWS_AT_ONCE == 0:
            yield
    return rows
