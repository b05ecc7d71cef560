"""GroupOffsets: committed and pending offsets, and when they expire."""

from __future__ import annotations

import pytest
from helpers.hard_state import hard_state

from barnabas.coordinator.groups.group_offsets import CommittedOffset, Expiry, GroupOffsets
from barnabas.protocol.topic_partition import TopicPartition

P0, P1, P2 = (TopicPartition("t", partition) for partition in range(3))
DAY_MS = 24 * 3_600_000


def offset(number: int, record_offset: int = 0, since_ms: int = 0) -> CommittedOffset:
    return CommittedOffset(number, 0, "", since_ms, record_offset=record_offset, since_ms=since_ms)


def numbers(offsets: GroupOffsets) -> dict[TopicPartition, int]:
    return {partition: committed.offset for partition, committed in offsets.committed.items()}


def test_the_offsets_of_a_transaction_are_pending_until_its_end() -> None:
    offsets = GroupOffsets()
    assert not offsets
    offsets.replay_pending(7, P0, offset(5))
    assert offsets and offsets.is_pending(P0) and not offsets.is_pending(P1)
    assert numbers(offsets) == {}
    offsets.replay_end(7, commit=True)
    assert numbers(offsets) == {P0: 5} and not offsets.is_pending(P0)


def test_an_abort_drops_only_the_offsets_of_its_producer() -> None:
    offsets = GroupOffsets()
    offsets.replay_pending(7, P0, offset(5))
    offsets.replay_pending(8, P1, offset(6))
    offsets.replay_end(7, commit=False)
    offsets.replay_end(8, commit=True)
    offsets.replay_end(9, commit=True)
    assert numbers(offsets) == {P1: 6}


@pytest.mark.parametrize(("committed_at", "expected"), [(3, 5), (4, 5), (6, 1)])
def test_of_a_committed_and_a_pending_offset_the_later_record_is_kept(
    committed_at: int, expected: int
) -> None:
    offsets = GroupOffsets()
    offsets.replay_pending(7, P0, offset(5, record_offset=5))
    offsets.replay_commit(P0, offset(1, record_offset=committed_at))
    offsets.replay_end(7, commit=True)
    assert numbers(offsets) == {P0: expected}


def test_a_tombstone_removes_the_offset_from_every_open_transaction() -> None:
    offsets = GroupOffsets()
    offsets.replay_commit(P0, offset(1))
    offsets.replay_pending(7, P0, offset(2))
    offsets.replay_pending(8, P0, offset(3))
    offsets.replay_pending(8, P1, offset(4))
    offsets.replay_tombstone(P0)
    assert not offsets.has_any(P0) and offsets.has_any(P1)
    assert list(offsets.pending) == [8], "nothing is left of the transaction of producer 7"


def test_each_partition_is_listed_once() -> None:
    offsets = GroupOffsets()
    offsets.replay_commit(P0, offset(1))
    offsets.replay_pending(7, P0, offset(2))
    offsets.replay_pending(7, P1, offset(2))
    offsets.replay_pending(8, P1, offset(3))
    offsets.replay_pending(8, P2, offset(3))
    assert list(offsets.all_partitions()) == [P0, P1, P2]


def test_the_hard_state_does_not_depend_on_the_clock() -> None:
    early, late = GroupOffsets(), GroupOffsets()
    for offsets, since_ms in ((early, 10), (late, 20)):
        committed = offset(1)._replace(since_ms=since_ms)
        offsets.replay_commit(P0, committed)
        offsets.replay_pending(7, P1, committed)
    assert hard_state(early) == hard_state(late)
    late.replay_pending(7, P1, offset(2))
    assert hard_state(early) != hard_state(late)


def expiry(offsets: GroupOffsets, now_ms: int, max_count: int | None = None) -> Expiry:
    """The offsets that have expired, for a group that is subscribed to the topic u."""
    return offsets.expiry(
        now_ms, DAY_MS, lambda committed: committed.since_ms, lambda topic: topic == "u", max_count
    )


def test_an_offset_expires_at_the_end_of_its_retention() -> None:
    offsets = GroupOffsets()
    offsets.replay_commit(P0, offset(1, since_ms=5))
    offsets.replay_commit(P1, offset(1, since_ms=9))
    offsets.replay_commit(P2, offset(1, since_ms=7))
    assert expiry(offsets, DAY_MS + 4) == Expiry([], DAY_MS + 5, is_complete=False)
    assert expiry(offsets, DAY_MS + 5) == Expiry([P0], DAY_MS + 7, is_complete=False)
    assert expiry(offsets, DAY_MS + 9) == Expiry([P0, P1, P2], None, is_complete=True)


def test_an_own_retention_time_of_an_offset_starts_with_its_commit() -> None:
    """The offset's own retention time is the difference of two wall clock timestamps. It is added
    to the steady time of the commit.
    """
    offsets = GroupOffsets()
    offsets.replay_commit(
        P0,
        CommittedOffset(
            1, 0, "", commit_timestamp_ms=1_000_000, expire_timestamp_ms=1_000_300, since_ms=50
        ),
    )
    assert expiry(offsets, 349) == Expiry([], 350, is_complete=False)
    assert expiry(offsets, 350) == Expiry([P0], None, is_complete=True)


def test_subscribed_and_pending_partitions_do_not_expire() -> None:
    offsets = GroupOffsets()
    offsets.replay_commit(TopicPartition("u", 0), offset(1))
    assert expiry(offsets, 2 * DAY_MS) == Expiry([], None, is_complete=False)
    offsets.replay_commit(P0, offset(1))
    offsets.replay_commit(P1, offset(1))
    offsets.replay_pending(7, P0, offset(2))
    assert expiry(offsets, 2 * DAY_MS) == Expiry([P1], None, is_complete=False)


def test_a_group_with_pending_offsets_alone_is_not_complete() -> None:
    offsets = GroupOffsets()
    assert expiry(offsets, 0) == Expiry([], None, is_complete=True)
    offsets.replay_pending(7, P0, offset(2))
    assert expiry(offsets, 2 * DAY_MS) == Expiry([], None, is_complete=False)


def test_at_most_the_given_number_of_offsets_expires_at_once() -> None:
    offsets = GroupOffsets()
    for partition in (P0, P1, P2):
        offsets.replay_commit(partition, offset(1))
    assert expiry(offsets, DAY_MS, 2) == Expiry([P0, P1], DAY_MS, is_complete=False, has_more=True)
    assert expiry(offsets, DAY_MS, 3) == Expiry([P0, P1, P2], None, is_complete=True)
