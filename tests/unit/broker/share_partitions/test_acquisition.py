"""The records that a member of a share group acquires. The expected results are those of Apache
Kafka 4.3.
"""

from __future__ import annotations

import itertools

import pytest

from barnabas.broker.share_partitions.acquisition import Acquired, LogBatch, Taker, acquire, without
from barnabas.broker.share_partitions.in_flight import ACKNOWLEDGED, ARCHIVED
from barnabas.broker.share_partitions.share_partition import (
    ACCEPT,
    RELEASE,
    Acknowledgement,
    GroupLimits,
    SharePartition,
)
from barnabas.coordinator.share_states.state_batches import StateBatch

LIMITS = GroupLimits()
ALL = Taker("m", 500, 500)


def log(*lengths: int, first: int = 0) -> list[LogBatch]:
    """Return consecutive batches of a log with these lengths."""
    ends = itertools.accumulate(lengths, initial=first)
    return [LogBatch(begin, end - 1) for begin, end in itertools.pairwise(ends)]


def take(
    partition: SharePartition,
    batches: list[LogBatch],
    taker: Taker = ALL,
    limits: GroupLimits = LIMITS,
) -> list[tuple[int, int, int]]:
    """Acquire records from the share partition's next offset, as a ShareFetch does. Gives the first
    offset, last offset and delivery count of each acquired batch.
    """
    at = partition.next_offset
    fetched = [batch for batch in batches if batch.last_offset >= at]
    return [tuple(one) for one in acquire(partition, taker, fetched, at, limits, 0)]  # type: ignore[misc]


def release_all(partition: SharePartition, limits: GroupLimits = LIMITS) -> None:
    partition.apply(partition.on_released("m", limits))


@pytest.mark.parametrize(
    ("taker", "expected"),
    [
        (Taker("m", 3, 500), [(0, 4, 1)]),
        (Taker("m", 5, 500), [(0, 4, 1)]),
        (Taker("m", 6, 500), [(0, 9, 1)]),
        (Taker("m", 3, 500, is_limited=True), [(0, 2, 1)]),
        (Taker("m", 7, 2, is_limited=True), [(0, 6, 1)]),
        (Taker("m", 500, 2), [(0, 4, 1), (5, 9, 1), (10, 14, 1)]),
        (Taker("m", 500, 8), [(0, 9, 1), (10, 14, 1)]),
        (Taker("m", 500, 0), [(0, 4, 1), (5, 9, 1), (10, 14, 1)]),
        (Taker("m", 500, -1), [(0, 4, 1), (5, 9, 1), (10, 14, 1)]),
        (Taker("m", 0, 500), []),
    ],
)
def test_whole_batches_are_acquired_unless_the_record_limit_is_strict(
    taker: Taker, expected: list[tuple[int, int, int]]
) -> None:
    """The log has three batches of five records. A taker has a name, the maximum number of its
    records, and its batch size. `is_limited` is the strict limit of KIP-1206: only with this limit
    is a batch of the log divided.
    """
    assert take(SharePartition(0), log(5, 5, 5), taker) == expected


def test_the_rest_of_a_batch_comes_next() -> None:
    partition = SharePartition(0)
    batches = log(10)
    limited = Taker("m", 4, 500, is_limited=True)
    assert take(partition, batches, limited) == [(0, 3, 1)]
    assert take(partition, batches, limited) == [(4, 7, 1)]
    assert take(partition, batches, limited) == [(8, 9, 1)]


def test_released_records_are_acquired_again_in_the_same_batches() -> None:
    partition = SharePartition(0)
    batches = log(*[1] * 6)
    assert take(partition, batches, Taker("m", 6, 2)) == [(0, 1, 1), (2, 3, 1), (4, 5, 1)]
    release_all(partition)
    assert take(partition, batches) == [(0, 1, 2), (2, 3, 2), (4, 5, 2)]


def test_records_that_fail_again_and_again_come_in_ever_smaller_parts() -> None:
    """500 records may be delivered 10 times each. The first five fetches get all of them, and the
    next ones get 250, 125, 62, 31 and 1.
    """
    limits = GroupLimits(delivery_count=10)
    partition = SharePartition(0)
    batches = log(500)
    for delivery in range(1, 6):
        assert take(partition, batches, limits=limits) == [(0, 499, delivery)]
        release_all(partition, limits)
    for delivery, last in ((6, 249), (7, 124), (8, 61), (9, 30), (10, 0)):
        assert take(partition, batches, limits=limits) == [(0, last, delivery)]
        release_all(partition, limits)
    assert partition.start_offset == 1
    assert take(partition, batches, limits=limits) == [(1, 1, 10)], "each comes alone now"


def test_a_record_at_its_last_delivery_comes_alone_and_not_behind_others() -> None:
    """The second record was delivered more often than the first. Its last delivery is of this
    record alone, so that no other record loses a delivery if this one makes members fail.
    """
    limits = GroupLimits(delivery_count=4)
    partition = SharePartition(0)
    batches = log(2)
    assert take(partition, batches, limits=limits) == [(0, 1, 1)]
    for delivery in (2, 3, 4):
        for offset in (0, 1) if delivery == 4 else (1,):
            released = [Acknowledgement(offset, offset, [RELEASE])]
            partition.apply(partition.on_acknowledged("m", released, limits, 0))
        if delivery < 4:
            assert take(partition, batches, limits=limits) == [(1, 1, delivery)]
    assert take(partition, batches, limits=limits) == [(0, 0, 2)]
    assert take(partition, batches, limits=limits) == [(1, 1, 4)]


def test_gaps_in_the_stored_state_are_acquired_as_new_records() -> None:
    stored = [StateBatch(5, 9, ACKNOWLEDGED, 1), StateBatch(20, 24, ACKNOWLEDGED, 1)]
    partition = SharePartition(0, stored)
    assert partition.next_offset == 0
    batches = log(*[5] * 6)
    assert take(partition, batches, Taker("m", 3, 500)) == [(0, 4, 1)]
    assert take(partition, batches, Taker("m", 3, 500, is_limited=True)) == [(10, 12, 1)]
    assert take(partition, batches) == [(13, 14, 1), (15, 19, 1), (25, 29, 1)]


def test_a_start_offset_within_a_batch_of_the_log() -> None:
    assert take(SharePartition(3), log(5, 5)) == [(3, 9, 1)]


def test_the_start_offset_moves_to_the_first_record_that_the_log_still_has() -> None:
    """The log has lost its first 7 records, for example by retention."""
    partition = SharePartition(0)
    assert take(partition, log(5, first=7)) == [(7, 11, 1)]
    assert partition.start_offset == 7


def test_records_that_were_compacted_away_are_archived() -> None:
    partition = SharePartition(0)
    take(partition, log(*[5] * 3), Taker("m", 500, 5))
    release_all(partition)
    assert take(partition, log(5, first=10)) == [(10, 14, 2)]
    partition.move_start()
    assert partition.start_offset == 10


def test_what_was_compacted_away_within_a_gap_of_the_stored_state_is_archived() -> None:
    partition = SharePartition(0, [StateBatch(5, 9, ACKNOWLEDGED, 1)])
    assert take(partition, log(2, first=3)) == [(3, 4, 1)]
    assert (partition.start_offset, partition.complete_count) == (0, 8)
    partition.move_start()
    assert (partition.start_offset, partition.complete_count) == (3, 5)


def test_released_records_of_a_full_window_are_acquired_again() -> None:
    limits = GroupLimits(record_locks=10)
    partition = SharePartition(0)
    batches = log(*[1] * 20)
    assert take(partition, batches, limits=limits) == [(0, 9, 1)]
    assert not partition.may_acquire(10)
    # acknowledgement type 2 is release
    released = partition.on_acknowledged("m", [Acknowledgement(4, 5, [2])], limits, 0)
    partition.apply(released)
    assert partition.may_acquire(10)
    assert take(partition, batches, limits=limits) == [(4, 5, 2)]


def test_batches_of_aborted_transactions_are_not_acquired_but_archived() -> None:
    partition = SharePartition(0)
    batches = log(*[5] * 4)
    got = acquire(partition, ALL, batches, 0, LIMITS, 0)
    assert without(partition, got, [batches[0], batches[2]]) == [
        Acquired(5, 9, 1),
        Acquired(15, 19, 1),
    ]
    assert {run.state for batch in partition.batches() for run in batch.between(0, 4)} == {ARCHIVED}
    assert partition.move_start()
    assert (partition.start_offset, partition.complete_count) == (5, 5)


def test_the_cost_does_not_depend_on_the_number_of_locked_records() -> None:
    """The state of a share partition consists of runs and batches, and has no entry for each
    record.
    """
    partition = SharePartition(0)
    limits = GroupLimits(record_locks=1_000_000)
    take(partition, log(100_000), limits=limits)
    assert len(partition) == 1
    made = partition.on_acknowledged("m", [Acknowledgement(50_000, 50_999, [ACCEPT])], limits, 0)
    partition.apply(made)
    (batch,) = partition.batches()
    assert len(batch.runs) == 3
