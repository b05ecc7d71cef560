"""ProducerIdAllocator assigns no id twice, even after a loss of records."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator


def test_a_block_is_reserved_before_its_first_id_is_given() -> None:
    reserved: list[int] = []
    allocator = ProducerIdAllocator(block_size=3, persist=reserved.append, next_id=0)
    assert reserved == []
    given = []
    for _ in range(7):
        given.append(allocator.allocate())
        assert given[-1] < reserved[-1]
    assert given == [0, 1, 2, 3, 4, 5, 6]
    assert reserved == [3, 6, 9]


def test_a_crash_loses_at_most_the_rest_of_a_block_and_repeats_no_id() -> None:
    reserved = [0]
    given: list[int] = []
    for run in range(20):
        allocator = ProducerIdAllocator(block_size=5, persist=reserved.append, next_id=reserved[-1])
        given += [allocator.allocate() for _ in range(run % 7)]
    assert len(set(given)) == len(given)
    assert given == sorted(given)
    assert reserved[-1] <= given[-1] + 5


def test_an_id_is_not_given_if_its_block_could_not_be_reserved() -> None:
    reserved: list[int] = []

    def persist(end: int) -> None:
        if not reserved:
            reserved.append(end)
            raise OSError("disk full")
        reserved.append(end)

    allocator = ProducerIdAllocator(block_size=5, persist=persist, next_id=10)
    with pytest.raises(OSError, match="disk full"):
        allocator.allocate()
    assert allocator.allocate() == 10
    assert reserved == [15, 15]


def test_used_ids_are_skipped_and_a_block_is_kept_when_it_still_has_ids() -> None:
    reserved: list[int] = []
    allocator = ProducerIdAllocator(block_size=3, persist=reserved.append, next_id=0)
    assert allocator.allocate() == 0
    allocator.skip_used(1)
    assert allocator.allocate() == 1, "it is of the block"
    allocator.skip_used(9)
    assert allocator.allocate() == 9
    assert reserved == [3, 12]


def test_skipped_ids_are_not_assigned_by_a_later_run_either() -> None:
    """The leader may have assigned the skipped ids after it made this copy of its directory."""
    reserved = [0]
    allocator = ProducerIdAllocator(block_size=3, persist=reserved.append, next_id=0)
    assert allocator.allocate() == 0
    allocator.skip(10)
    assert reserved[-1] == 13, "also where the run ends before it gives one"
    assert allocator.allocate() == 13
    later = ProducerIdAllocator(block_size=3, persist=reserved.append, next_id=reserved[-1])
    assert later.allocate() == 16


@pytest.mark.parametrize("seed", range(30))
def test_no_id_is_given_twice_in_any_order_of_calls_and_crashes(seed: int) -> None:
    """No id is assigned twice by this broker, by brokers that have their own blocks, or by a broker
    whose ids this one skips.
    """
    chance = random.Random(seed)
    stored, given = [0], set[int]()
    allocator = ProducerIdAllocator(block_size=4, persist=stored.append, next_id=0)

    def give(ids: Iterable[int]) -> None:
        for one in ids:
            assert one not in given and one < stored[-1]
            given.add(one)

    for _ in range(60):
        step = chance.choice(("allocate", "allocate", "allocate", "block", "skip", "used", "crash"))
        if step == "allocate":
            give([allocator.allocate()])
        elif step == "block":
            give(allocator.reserve_block())
        elif step == "skip":
            allocator.skip(chance.randint(1, 6))
        elif step == "used":
            first = max(given, default=-1) + chance.randint(1, 6)
            allocator.skip_used(first + 1)
            given.add(first)
        else:
            allocator = ProducerIdAllocator(block_size=4, persist=stored.append, next_id=stored[-1])
            allocator.skip_used(max(given, default=-1) + 1)
