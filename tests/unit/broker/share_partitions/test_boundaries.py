"""A share partition where a comparison is just true, or just false: the first and last offset, the
limits of records and deliveries, and what is loaded from a stored state.
"""

from __future__ import annotations

import pytest

from barnabas.broker.share_partitions.acquisition import Acquired, LogBatch, Taker, acquire, without
from barnabas.broker.share_partitions.share_partition import (
    ACCEPT,
    RELEASE,
    RENEW,
    Acknowledgement,
    GroupLimits,
    SharePartition,
)
from barnabas.coordinator.share_states.state_batches import StateBatch

NOW_MS = 1000
LIMITS = GroupLimits(delivery_count=5, record_locks=5, lock_duration_ms=100)
MANY = GroupLimits(record_locks=2000, lock_duration_ms=100)


def take(
    partition: SharePartition,
    *batches: tuple[int, int],
    most: int = 100,
    batch_size: int = 100,
    limits: GroupLimits = LIMITS,
) -> list[Acquired]:
    fetched = [LogBatch(*offsets) for offsets in batches]
    taker = Taker("m", most, batch_size)
    return acquire(partition, taker, fetched, partition.next_offset, limits, NOW_MS)


def acknowledge(
    partition: SharePartition,
    first: int,
    last: int,
    kind: int,
    now_ms: int = NOW_MS,
    limits: GroupLimits = LIMITS,
) -> None:
    one = Acknowledgement(first, last, [kind])
    partition.apply(partition.on_acknowledged("m", [one], limits, now_ms))


def test_an_available_record_is_acquired_although_the_limit_of_locks_is_reached() -> None:
    """It may be the very last one in flight."""
    partition = SharePartition(0)
    assert take(partition, (0, 4)) == [(0, 4, 1)]
    assert not partition.may_acquire(5) and partition.may_acquire(6)
    assert take(partition, (5, 9)) == []
    acknowledge(partition, 4, 4, RELEASE)
    assert partition.may_acquire(5)
    assert take(partition, (0, 4), (5, 9)) == [(4, 4, 2)]
    assert not partition.may_acquire(5)


def test_the_records_of_a_gap_are_acquired_like_new_ones() -> None:
    """They were acquired before the last start, and not acknowledged: their batches are those of
    the log.
    """
    partition = SharePartition(0, [StateBatch(10, 14, 2, 1)])
    assert take(partition, (0, 4), (5, 9), (10, 14), most=3, limits=MANY) == [(0, 4, 1)]
    assert take(partition, (5, 9), (10, 14), (15, 19), most=6, limits=MANY) == [
        (5, 9, 1), (15, 19, 1)
    ]  # fmt: skip
    partition = SharePartition(0, [StateBatch(10, 14, 2, 1)])
    assert take(partition, (0, 4), (5, 9), (10, 14), batch_size=5, limits=MANY) == [
        (0, 4, 1), (5, 9, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("offset", [4, 5, 6])
def test_a_log_start_moves_a_partition_only_if_it_is_higher(offset: int) -> None:
    partition = SharePartition(5)
    take(partition, (5, 9))
    assert partition.on_log_start(offset) is (offset > 5)
    assert partition.start_offset == max(5, offset)


def test_locks_of_records_that_no_one_holds_are_forgotten() -> None:
    """A member may renew one lock for ever."""
    partition = SharePartition(0)
    for offset in range(150):
        take(partition, (offset, offset), limits=MANY)
    acknowledge(partition, 1, 149, ACCEPT, limits=MANY)
    for later in range(300):
        acknowledge(partition, 0, 0, RENEW, NOW_MS + later, MANY)
    assert {first for _, first, _ in partition._locks} == {0}
    assert len(partition._locks) <= 300
    assert partition.on_locks_ended(MANY, NOW_MS + 398, one_by_one=False).is_empty
    assert not partition.on_locks_ended(MANY, NOW_MS + 399, one_by_one=False).is_empty


def test_one_request_may_complete_the_first_records_and_release_others() -> None:
    partition = SharePartition(0)
    take(partition, (0, 4))
    made = partition.on_acknowledged(
        "m", [Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(4, 4, [RELEASE])], LIMITS, NOW_MS
    )
    assert partition.apply(made)
    assert (partition.start_offset, partition.next_offset, partition.complete_count) == (2, 4, 0)


def test_stored_records_before_the_start_do_not_move_it_back() -> None:
    assert SharePartition(5, [StateBatch(3, 7, 0, 1)]).start_offset == 5


def test_the_last_delivery_of_a_record_contains_only_this_record() -> None:
    """If it makes its members fail, the others must not be given up with it."""
    partition = SharePartition(0)
    take(partition, (0, 5))
    for count in range(2, 5):
        acknowledge(partition, 5, 5, RELEASE)
        assert take(partition, (0, 5)) == [(5, 5, count)]
    acknowledge(partition, 0, 5, RELEASE)
    assert take(partition, (0, 5)) == [(0, 4, 2)]
    assert take(partition, (0, 5)) == [(5, 5, 5)]


@pytest.mark.parametrize("is_tracked", [False, True])
def test_expired_locks_of_a_batch_in_several_states_end_one_by_one(is_tracked: bool) -> None:
    """Each waiting member gets one record then, as in Apache Kafka; also if the other records were
    of an aborted transaction.
    """
    partition = SharePartition(0)
    got = take(partition, (0, 4))
    if is_tracked:
        assert without(partition, got, [LogBatch(3, 4)]) == [(0, 2, 1)]
    made = partition.on_locks_ended(LIMITS, NOW_MS + 100, one_by_one=True)
    expected = [(0, 0, 0, 1)] if is_tracked else [(0, 4, 0, 1)]
    assert made.stored == expected


def test_a_batch_of_exactly_the_limit_is_acquired_whole() -> None:
    partition = SharePartition(0)
    take(partition, (0, 4))
    acknowledge(partition, 0, 4, RELEASE)
    taker = Taker("m", 5, 100, is_limited=True)
    assert acquire(partition, taker, [LogBatch(0, 4)], 0, LIMITS, NOW_MS) == [(0, 4, 2)]
    made = partition.on_locks_ended(LIMITS, NOW_MS + 100, one_by_one=True)
    assert made.stored == [(0, 4, 0, 2)], "it is still in one state"
