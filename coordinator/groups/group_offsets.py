"""The offsets of one group: committed offsets, and pending offsets of open transactions.

The offsets are hard state: only the `replay_*` methods change them. The offsets of a transaction
are pending, by producer, until the transaction's marker is replayed. When the transaction commits,
each pending offset is compared with the committed offset, and the offset with the later record in
the log remains. An offset that was committed outside of transactions after the pending one
therefore survives, both live and after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.protocol.topic_partition import TopicPartition

NO_TIMESTAMP = -1
LAST_TIMESTAMP = 2**63 - 1
NO_OFFSET = -1


class CommittedOffset(NamedTuple):
    """One committed offset.

    expire_timestamp_ms: NO_TIMESTAMP unless the request (versions 2 to 4) specified a retention
    time. record_offset: the offset of its record in the internal topic. since_ms: the steady time
    of the commit; the timestamps are wall-clock times, as in the record.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    record_offset: int = NO_OFFSET
    since_ms: int = NO_TIMESTAMP


OffsetValue = tuple[int, int, str, int, int]
"""The first five fields of a CommittedOffset, which are those in its record."""
OffsetInRecord = tuple[str, TopicPartition, OffsetValue]
"""The content of an offset's record: the group, the partition, and the value."""


class OffsetReset(NamedTuple):
    """An offset that was committed beyond the end of its log, and the offset that replaces it."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset
    offset: int
    leader_epoch: int


class Expiry(NamedTuple):
    """The offsets of one group whose retention is over at a given time.

    expired: the offsets to remove now. next_ms: when the next offset expires; None if no other
    offset can expire by time alone. is_complete: whether all offsets are in `expired`, and no
    transaction is open. has_more: whether more offsets may have expired than the limit allows in
    `expired`.
    """

    expired: list[TopicPartition]
    next_ms: int | None
    is_complete: bool
    has_more: bool = False


@dataclass(slots=True)
class GroupOffsets:
    """The committed offsets by partition, and the pending offsets by producer and partition."""

    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.committed or self.pending)

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for the partition."""
        return any(partition in offsets for offsets in self.pending.values())

    def has_any(self, partition: TopicPartition) -> bool:
        """Whether there is a committed or a pending offset for the partition."""
        return partition in self.committed or self.is_pending(partition)

    def all_partitions(self) -> Iterator[TopicPartition]:
        """The partitions that have a committed or a pending offset, each of them once."""
        yield from self.committed
        seen = dict.fromkeys(self.committed)
        for offsets in self.pending.values():
            for partition in offsets:
                if partition not in seen:
                    seen[partition] = None
                    yield partition

    def replay_commit(self, partition: TopicPartition, committed: CommittedOffset) -> None:
        self.committed[partition] = committed

    def replay_pending(
        self, producer_id: int, partition: TopicPartition, committed: CommittedOffset
    ) -> None:
        self.pending.setdefault(producer_id, {})[partition] = committed

    def replay_tombstone(self, partition: TopicPartition) -> None:
        """Remove the committed offset of the partition, and its pending offsets in open
        transactions.
        """
        self.committed.pop(partition, None)
        for producer_id in list(self.pending):
            offsets = self.pending[producer_id]
            offsets.pop(partition, None)
            if not offsets:
                del self.pending[producer_id]

    def replay_end(self, producer_id: int, commit: bool) -> None:
        """Commit or drop the pending offsets of a producer whose transaction has ended."""
        ended = self.pending.pop(producer_id, {})
        for partition, pending in ended.items() if commit else ():
            committed = self.committed.get(partition)
            if committed is None or committed.record_offset < pending.record_offset:
                self.committed[partition] = pending

    def expiry(
        self,
        now_ms: int,
        retention_ms: int,
        retained_since_ms: Callable[[CommittedOffset], int],
        is_subscribed: Callable[[str], bool],
        max_count: int | None = None,
    ) -> Expiry:
        """Find the offsets whose retention is over, but at most `max_count` of them.

        Offsets of topics that members read do not expire, nor do those of partitions with a pending
        offset.

        Takes:  retained_since_ms, a function that returns when the retention of an offset begins.
        Source: KIP-211; Kafka also excludes partitions with pending offsets.
        """
        expired: list[TopicPartition] = []
        next_ms: int | None = None
        for partition, committed in self.committed.items():
            if is_subscribed(partition[0]) or self.is_pending(partition):
                continue
            if committed.expire_timestamp_ms != NO_TIMESTAMP:
                expires_ms = (
                    committed.since_ms
                    + committed.expire_timestamp_ms
                    - committed.commit_timestamp_ms
                )
            else:
                expires_ms = retained_since_ms(committed) + retention_ms
            if expires_ms <= now_ms:
                if len(expired) == max_count:
                    return Expiry(expired, now_ms, is_complete=False, has_more=True)
                expired.append(partition)
            elif next_ms is None or expires_ms < next_ms:
                next_ms = expires_ms
        return Expiry(
            expired, next_ms, is_complete=len(expired) == len(self.committed) and not self.pending
        )


@dataclass(slots=True)
class OpenTransaction:
    """The open transaction of one producer on one partition of the internal topic.

    producer_epoch: the producer epoch of the last offset. group_ids: the groups for which the
    transaction has pending offsets, in order.
    """

    producer_epoch: int
    group_ids: dict[str, None] = field(default_factory=dict)
