"""The broker's state as values, for metrics and the console.

An observation is a generator. It yields after ROWS_AT_ONCE rows, so that a broker of ten thousand
partitions can serve its clients in between. It returns tuples that another thread may keep. Each
row is consistent, but two rows may be of different moments. Anything that is created or deleted
during the observation may be missing or included. (`http_server.in_slices` runs an observation from
another thread.)
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.coordinator.groups.classic.consumer_protocol import read_assignment
from barnabas.coordinator.groups.group_types import CLASSIC_TYPE, SHARE_TYPE, STREAMS_TYPE
from barnabas.coordinator.transactions.transaction_state import AT_REST
from barnabas.texts import is_batch_number

if TYPE_CHECKING:
    from barnabas.broker.lazy import Lazy
    from barnabas.broker.logs.topics import TopicRegistry
    from barnabas.broker.share.shares import Shares
    from barnabas.coordinator.groups.group import Group
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
    from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from barnabas.storage.directory.log_manager import LogManager
    from barnabas.storage.log.log import Log

ROWS_AT_ONCE = 100
"""The number of rows that are made without a break, in half a millisecond."""

T = TypeVar("T")
Look = Generator[None, None, T]


NO_OFFSET = -1


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
    """A group's committed offset of one partition, or a share group's start offset.

    offset: NO_OFFSET if a member waits for its first record behind an open transaction. lag: the
    number of records that the group has not read; with NO_OFFSET, those that the transaction holds
    back; for a share group, the unfinished records. It is None if the partition is unknown, if the
    offset is the number of a micro-batch, or before a share group has stored a state. in_flight:
    the number of records of the share partition in memory, from the start offset to the last
    acquired record. in_flight_batches: the number of batches in which they were acquired.
    is_batch_number: whether the offset is the number of a micro-batch of the Spark sink instead of
    a position.
    """

    topic: str
    partition: int
    offset: int
    lag: int | None
    is_batch_number: bool = False
    is_of_share_group: bool = False
    in_flight: int = 0
    in_flight_batches: int = 0


class GroupState(NamedTuple):
    """The state of one group. pending_count: the number of offsets in open transactions. kind: a
    type from `group_types`.
    """

    group_id: str
    state: str
    member_count: int
    offsets: tuple[CommittedOffsetState, ...]
    pending_count: int
    kind: str = CLASSIC_TYPE

    @property
    def is_bookkeeping(self) -> bool:
        """Whether all committed offsets of the group are numbers of micro-batches."""
        return bool(self.offsets) and all(row.is_batch_number for row in self.offsets)

    @property
    def lag(self) -> int:
        """How many offsets the group is behind the high watermarks, over all partitions."""
        return sum(offset.lag or 0 for offset in self.offsets)


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
    groups: GroupCoordinator,
    topics: TopicRegistry,
    shares: Lazy[Shares],
    stuck: Collection[tuple[str, int]] = (),
) -> Look[tuple[GroupState, ...]]:
    """All groups, with their committed offsets and lags.

    Takes: stuck, the partitions whose last stable offset is held back by an open transaction. A
           group to which such a partition is assigned gets an entry for it even if it has committed
           no offset there.
    """
    rows: list[GroupState] = []
    for group in groups.all_groups():
        if group.kind == SHARE_TYPE:
            row = yield from _look_at_share_group(groups, group, topics, shares.made)
        else:
            waiting = _uncommitted(groups, group, stuck) if stuck else []
            row = yield from _look_at_group(group, topics, waiting)
        rows.append(row)
        if len(rows) % ROWS_AT_ONCE == 0:
            yield
    return tuple(rows)


def _uncommitted(
    groups: GroupCoordinator, group: Group, stuck: Collection[tuple[str, int]]
) -> list[tuple[str, int]]:
    """The stuck partitions that are assigned to a group and for which it has no committed
    offset.
    """
    committed = group.offsets.committed
    return sorted(
        partition
        for partition in set(_assigned(groups, group))
        if partition in stuck and partition not in committed
    )


def _assigned(groups: GroupCoordinator, group: Group) -> Iterator[tuple[str, int]]:
    """The partitions that are assigned to a group's members."""
    if group.is_consumer:
        for consumer in groups.describe_consumer_group(group).members:
            for topic in consumer.assignment.topic_partitions:
                yield from ((topic.topic_name, index) for index in topic.partitions)
        return
    if group.kind == STREAMS_TYPE:
        for partitions in groups.streams_requests.assigned_partitions(group).values():
            yield from partitions
        return
    for member in group.classic.members.values():
        for name, indexes in (read_assignment(member.assignment) or {}).items():
            yield from ((name, index) for index in indexes)


def _look_at_group(
    group: Group, topics: TopicRegistry, waiting: list[tuple[str, int]]
) -> Look[GroupState]:
    """The state of a group that is not a share group. Takes: waiting, partitions without a
    committed offset that get a row as well.
    """
    rows: list[CommittedOffsetState] = []
    for partition, committed in list(group.offsets.committed.items()):
        log = topics.partition(*partition)
        lag = None if log is None else max(0, log.high_watermark - committed.offset)
        is_batch = is_batch_number(committed.metadata)
        lag = None if is_batch else lag
        rows.append(
            CommittedOffsetState(*partition, committed.offset, lag, is_batch_number=is_batch)
        )
        if len(rows) % ROWS_AT_ONCE == 0:
            yield
    for topic, index in waiting:
        if (log := topics.partition(topic, index)) is not None:
            held = log.high_watermark - log.last_stable_offset
            rows.append(CommittedOffsetState(topic, index, NO_OFFSET, held))
    return GroupState(
        group.group_id,
        group.state_name,
        len(group.member_ids),
        tuple(rows),
        sum(map(len, group.offsets.pending.values())),
        group.kind,
    )


def _look_at_share_group(
    groups: GroupCoordinator, group: Group, topics: TopicRegistry, shares: Shares | None
) -> Look[GroupState]:
    """The state of a share group, with the start offsets of the partitions that it has read."""
    rows: list[CommittedOffsetState] = []
    if shares is not None:
        from barnabas.broker.handlers.share_groups import UNKNOWN_LAG, start_and_lag
        from barnabas.coordinator.share.share_state import UNINITIALIZED_OFFSET

        initialized = groups.share_requests.initialized_partitions(group.group_id)
        for name, indexes in initialized.items():
            for index in indexes:
                start, lag = start_and_lag(topics, shares, group.group_id, name, index)
                if start == UNINITIALIZED_OFFSET:
                    continue
                known = None if lag == UNKNOWN_LAG else max(0, lag)
                in_flight, batches = shares.in_flight(group.group_id, name, index)
                rows.append(
                    CommittedOffsetState(
                        name,
                        index,
                        start,
                        known,
                        is_of_share_group=True,
                        in_flight=in_flight,
                        in_flight_batches=batches,
                    )
                )
                if len(rows) % ROWS_AT_ONCE == 0:
                    yield
    return GroupState(
        group.group_id,
        group.state_name,
        len(group.member_ids),
        tuple(rows),
        pending_count=0,
        kind=SHARE_TYPE,
    )
