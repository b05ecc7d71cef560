"""Timers: each key has one deadline, due keys are returned in order of their deadlines, and
rescheduling takes no more memory.
"""

from __future__ import annotations

from barnabas.coordinator.timers import Timers


def test_pop_due_returns_due_keys_once_and_the_earliest_first() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("late", 30)
    timers.schedule("early", 10)
    timers.schedule("never", 31)
    assert timers.next_deadline_ms() == 10
    assert timers.pop_due(9) == []
    assert timers.pop_due(30) == ["early", "late"]
    assert timers.pop_due(30) == []
    assert timers.next_deadline_ms() == 31 and len(timers) == 1


def test_keys_with_the_same_deadline_are_returned_in_the_order_of_scheduling() -> None:
    timers: Timers[str] = Timers()
    for key in ("b", "c", "a"):
        timers.schedule(key, 5)
    assert timers.pop_due(5) == ["b", "c", "a"]


def test_rescheduling_moves_a_deadline_forward_and_back() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("key", 10)
    timers.schedule("key", 20)
    assert timers.deadline_ms("key") == 20
    assert timers.pop_due(19) == []
    timers.schedule("key", 5)
    assert timers.pop_due(5) == ["key"]
    assert timers.pop_due(100) == []


def test_a_cancelled_key_is_never_due() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("key", 10)
    assert timers.cancel("key") and not timers.cancel("key")
    assert "key" not in timers and timers.deadline_ms("key") is None
    assert timers.next_deadline_ms() is None
    assert timers.pop_due(10) == []


def test_keys_need_not_be_comparable() -> None:
    timers: Timers[object] = Timers()
    keys = [object() for _ in range(3)]
    for key in keys:
        timers.schedule(key, 1)
    assert timers.pop_due(1) == keys


def test_rescheduling_does_not_grow_the_heap_without_limit() -> None:
    timers: Timers[int] = Timers()
    for turn in range(10_000):
        timers.schedule(turn % 10, turn)
    assert len(timers._heap) <= 64
    assert timers.pop_due(10_000) == list(range(10))


def test_keys_are_returned_in_order_after_the_heap_was_rebuilt() -> None:
    timers: Timers[int] = Timers()
    # The heap has one entry more than 64, so it is rebuilt without obsolete entries.
    for turn in range(65):
        timers.schedule(turn % 10, 10_000 - 1_000 * (turn % 10) - turn)
    assert len(timers._heap) == 10, "it was just made again"
    assert timers.next_deadline_ms() == 10_000 - 9_000 - 59
    assert timers.pop_due(10_000) == list(reversed(range(10)))


def test_earliest_ms_is_a_lower_bound_that_next_deadline_ms_makes_exact() -> None:
    timers: Timers[str] = Timers()
    assert timers.earliest_ms is None
    timers.schedule("a", 10)
    timers.schedule("b", 20)
    assert timers.earliest_ms == 10
    timers.schedule("a", 30)
    assert timers.earliest_ms == 10, "it may be too early"
    assert timers.next_deadline_ms() == timers.earliest_ms == 20
    assert timers.pop_due(20) == ["b"] and timers.earliest_ms == 30
    timers.cancel("a")
    assert timers.next_deadline_ms() is None and timers.earliest_ms is None


def test_pop_due_takes_at_most_the_given_number_of_keys() -> None:
    timers: Timers[int] = Timers()
    for number in range(10):
        timers.schedule(number, number)
    timers.cancel(1)
    assert timers.pop_due(8, 3) == [0, 2, 3]
    assert timers.next_deadline_ms() == timers.earliest_ms == 4
    assert timers.pop_due(8, 100) == [4, 5, 6, 7, 8]
    assert timers.pop_due(8, 1) == [] and timers.next_deadline_ms() == 9


def test_a_deadline_that_is_moved_to_later_again_and_again_is_due_once_and_in_order() -> None:
    """Also beside others of the same time, and after it was moved to an earlier time."""
    timers: Timers[str] = Timers()
    timers.schedule("a", 10)
    timers.schedule("b", 50)
    for deadline_ms in (20, 20, 30, 50):
        timers.schedule("a", deadline_ms)
    timers.schedule("c", 50)
    assert timers.pop_due(49) == []
    assert timers.next_deadline_ms() == 50
    timers.schedule("c", 60)
    timers.schedule("c", 50)
    assert timers.pop_due(50) == ["b", "a", "c"]
    assert timers.pop_due(100) == [] and timers.next_deadline_ms() is None
