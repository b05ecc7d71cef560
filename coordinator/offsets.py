"""The offsets of one group: committed ones, and those that wait for the end of a transaction.

All of it is hard state: `replay_*` methods are its only writers. A transaction's offsets are staged
per producer until its marker is replayed. When it commits, each staged offset is compared with what
is committed by then: the one whose record stands later in the log is kept, so a plain commit that
came after the staged one survives, live and after a restart alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.protocol.topic_partition import TopicPartition

NO_TIMESTAMP = -1
LAST_TIMESTAMP = 2**63 - 1
NO_OFFSET = -1


class CommittedOffset(NamedTuple):
    """One committed offset.

    expire_timestamp_ms: NO_TIMESTAMP unless the request (versions 2 to 4) named a retention time of
    its own. record_offset: where its record stands in the internal topic. since_ms: the steady time
    of the commit; the timestamps are the wall clock's, as the record has them.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    record_offset: int = NO_OFFSET
    since_ms: int = NO_TIMESTAMP


class SetBack(NamedTuple):
    """An offset that a group has committed beyond the end of a log, and the one from which the
    group is to go on.
    """

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset
    offset: int
    leader_epoch: int


class Expiry(NamedTuple):
    """What retention finds in a group at one moment.

    expired: to be removed now.
    next_ms: when the next one is due, None where no offset that is left can expire by time alone.
    nothing_left: all offsets are in `expired`, and no transaction is open.
    is_cut: there may be more that are over their time.
    """

    expired: list[TopicPartition]
    next_ms: int | None
    nothing_left: bool
    is_cut: bool = False


@dataclass(slots=True)
class GroupOffsets:
    """Committed offsets by partition, and staged ones by producer and partition."""

    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    staged: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.committed or self.staged)

    def hard_state(
        self,
    ) -> tuple[
        dict[TopicPartition, CommittedOffset], dict[int, dict[TopicPartition, CommittedOffset]]
    ]:
        """What the records say, without what the clocks make of it."""
        staged = {
            producer_id: _without_age(offsets) for producer_id, offsets in self.staged.items()
        }
        return _without_age(self.committed), staged

    def is_staged(self, partition: TopicPartition) -> bool:
        """Whether an open transaction holds an offset for it."""
        return any(partition in offsets for offsets in self.staged.values())

    def all_partitions(self) -> Iterator[TopicPartition]:
        """Each partition with a committed or a staged offset, once."""
        yield from self.committed
        seen = dict.fromkeys(self.committed)
        for offsets in self.staged.values():
            for partition in offsets:
                if partition not in seen:
                    seen[partition] = None
                    yield partition

    def replay_commit(self, partition: TopicPartition, committed: CommittedOffset) -> None:
        self.committed[partition] = committed

    def replay_staged(
        self, producer_id: int, partition: TopicPartition, committed: CommittedOffset
    ) -> None:
        self.staged.setdefault(producer_id, {})[partition] = committed

    def replay_tombstone(self, partition: TopicPartition) -> None:
        """The offset is deleted, with what any open transaction had staged for it before."""
        self.committed.pop(partition, None)
        for producer_id in list(self.staged):
            offsets = self.staged[producer_id]
            offsets.pop(partition, None)
            if not offsets:
                del self.staged[producer_id]

    def replay_end(self, producer_id: int, commit: bool) -> None:
        """The producer's transaction ended."""
        for partition, staged in self.staged.pop(producer_id, {}).items():
            if not commit:
                continue
            committed = self.committed.get(partition)
            if committed is None or committed.record_offset < staged.record_offset:
                self.committed[partition] = staged

    def expiry(
        self,
        now_ms: int,
        retention_ms: int,
        retained_since_ms: Callable[[CommittedOffset], int],
        is_subscribed: Callable[[str], bool],
        most: int = sys.maxsize,
    ) -> Expiry:
        """Which offsets are over their time, at the most so many; those of topics that members
        read, and those with a staged successor, are kept.

        Source: KIP-211; the exclusion of staged partitions is Kafka's too.
        """
        expired: list[TopicPartition] = []
        next_ms: int | None = None
        for partition, committed in self.committed.items():
            if is_subscribed(partition[0]) or self.is_staged(partition):
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
                if len(expired) == most:
                    return Expiry(expired, now_ms, nothing_left=False, is_cut=True)
                expired.append(partition)
            elif next_ms is None or expires_ms < next_ms:
                next_ms = expires_ms
        return Expiry(
            expired, next_ms, nothing_left=len(expired) == len(self.committed) and not self.staged
        )


def _without_age(
    offsets: dict[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, CommittedOffset]:
    return {
        partition: committed._replace(since_ms=NO_TIMESTAMP)
        for partition, committed in offsets.items()
    }


@dataclass(slots=True)
class OpenTransaction:
    """A producer's transaction on one partition of the internal topic: its latest epoch, and the
    groups that it has staged offsets for.
    """

    producer_epoch: int
    group_ids: dict[str, None] = field(default_factory=dict)
