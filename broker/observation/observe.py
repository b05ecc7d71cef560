"""The broker's state as values, for metrics and the console.

A look is a generator: it yields after ROWS_AT_ONCE rows, so that a broker of ten thousand
partitions serves its clients in between, and returns tuples that another thread may keep. Each row
is consistent; two rows may be of different moments, and what is created or deleted meanwhile may be
missing or included. (`http_server.in_slices` runs a look from another thread.)
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.coordinator.transactions.transaction_state import AT_REST

if TYPE_CHECKING:
    from barnabas.broker.core import Broker
    from barnabas.coordinator.groups.group import Group
    from barnabas.storage.log.log import Log

ROWS_AT_ONCE = 100
"""How many rows are made without a break: half a millisecond."""

T = TypeVar("T")
Look = Generator[None, None, T]


class OpenTransaction(NamedTuple):
    """A transaction that is open in one partition. last_timestamp: of its producer's last batch."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp: int


class PartitionState(NamedTuple):
    """The state of one partition's log. Offsets are Kafka's; `log_end_offset` is exclusive."""

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

    @property
    def stable_lag(self) -> int:
        """How far read_committed readers are behind the others."""
        return self.high_watermark - self.last_stable_offset


class TransactionalIdState(NamedTuple):
    """The state of one transactional id. age_ms: of its transaction; None where none is open."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    age_ms: int | None
    timeout_ms: int
    partitions: tuple[tuple[str, int], ...]


class CommittedOffsetState(NamedTuple):
    """A group's committed offset of one partition. lag: None for an unknown partition."""

    topic: str
    partition: int
    offset: int
    lag: int | None


class GroupState(NamedTuple):
    """The state of one group. pending_count: offsets in open transactions."""

    group_id: str
    state: str
    member_count: int
    offsets: tuple[CommittedOffsetState, ...]
    pending_count: int

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
    )


def _open_transactions(log: Log) -> tuple[OpenTransaction, ...]:
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


def look_at_partitions(broker: Broker) -> Look[tuple[PartitionState, ...]]:
    """All partitions that are online, with those of internal topics."""
    rows: list[PartitionState] = []
    for log in list(broker.logs.logs.values()):
        rows.append(partition_state(log))
        if len(rows) % ROWS_AT_ONCE == 0:
            yield
    return tuple(rows)


def look_at_transactional_ids(
    broker: Broker, now_ms: int
) -> Look[tuple[TransactionalIdState, ...]]:
    """All transactional ids, with their open transactions."""
    wall_ms = now_ms + broker.wall.ahead_ms
    rows: list[TransactionalIdState] = []
    for metadata in list(broker.transactions.snapshot().values()):
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


def look_at_groups(broker: Broker) -> Look[tuple[GroupState, ...]]:
    """All groups, with their committed offsets and lags."""
    groups: list[GroupState] = []
    for group in broker.groups.all_groups():
        groups.append((yield from _look_at_group(broker, group)))
        if len(groups) % ROWS_AT_ONCE == 0:
            yield
    return tuple(groups)


def _look_at_group(broker: Broker, group: Group) -> Look[GroupState]:
    rows: list[CommittedOffsetState] = []
    for partition, committed in list(group.offsets.committed.items()):
        log = broker.topics.partition(*partition)
        lag = None if log is None else max(0, log.high_watermark - committed.offset)
        rows.append(CommittedOffsetState(*partition, committed.offset, lag))
        if len(rows) % ROWS_AT_ONCE == 0:
            yield
    members = group.require_consumer().members if group.is_consumer else group.classic.members
    return GroupState(
        group.group_id,
        group.state_name,
        len(members),
        tuple(rows),
        sum(map(len, group.offsets.pending.values())),
    )
