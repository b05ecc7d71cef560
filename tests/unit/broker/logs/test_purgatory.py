"""Waiting fetches. They are found by the logs that they read and by their deadlines."""

from __future__ import annotations

from typing import Any, cast

import pytest
from helpers.repeating import repeat_until

from barnabas.broker.logs.purgatory import FEWEST_SWEPT, Purgatory, WaitingFetch


class Wait:
    """A fetch that is complete once the test sets `enough`. `calls` has the calls of
    try_complete.
    """

    def __init__(self, *logs: object) -> None:
        """Create a waiting fetch that is complete once `enough` is set, and that records each
        attempt.
        """
        self.enough = False
        self.calls: list[tuple[int, bool]] = []
        self.fetch = WaitingFetch(cast(Any, list(logs)), self.try_complete)

    def try_complete(self, now_ms: int, out_of_time: bool) -> bool:
        self.calls.append((now_ms, out_of_time))
        return self.enough or out_of_time


class Watching:
    """A watcher that records the progress of which it is notified."""

    def __init__(self, notified: list[tuple[object, int]]) -> None:
        self.notified = notified

    def on_progress(self, log: object, now_ms: int) -> None:
        self.notified.append((log, now_ms))


A, B = cast(Any, object()), cast(Any, object())


@pytest.fixture
def purgatory() -> Purgatory:
    return Purgatory(1 << 40)


def test_progress_of_a_log_tries_its_waiting_fetches_in_order(purgatory: Purgatory) -> None:
    order: list[str] = []
    for name, log in (("first", A), ("other", B), ("second", A)):
        purgatory.try_park(
            WaitingFetch([log], lambda now_ms, late, name=name: order.append(name) is not None), 100
        )
    purgatory.on_progress(A, 10)
    assert order == ["first", "second"]


@pytest.mark.parametrize("waits", [False, True])
def test_watchers_hear_of_each_progress_whether_fetches_wait_or_not(
    purgatory: Purgatory, waits: bool
) -> None:
    """A watcher of a log is called at each progress of this log, and of no other, until it is
    removed.
    """
    notified: list[tuple[object, int]] = []
    watcher = Watching(notified)
    purgatory.watch(A, watcher)
    if waits:
        purgatory.try_park(Wait(A).fetch, 100)
    for log, now_ms in ((A, 10), (B, 20), (A, 30)):
        purgatory.on_progress(log, now_ms)
    purgatory.unwatch(A, watcher)
    purgatory.on_progress(A, 40)
    assert notified == [(A, 10), (A, 30)]


def test_an_incomplete_fetch_waits_until_a_later_progress(purgatory: Purgatory) -> None:
    wait = Wait(A)
    purgatory.try_park(wait.fetch, 100)
    purgatory.on_progress(A, 10)
    assert not wait.fetch.done and purgatory.next_deadline_ms() == 100
    wait.enough = True
    purgatory.on_progress(A, 20)
    assert wait.fetch.done and purgatory.next_deadline_ms() is None
    purgatory.on_progress(A, 30)
    purgatory.on_tick(200)
    assert wait.calls == [(10, False), (20, False)], "answered once"


def test_an_answered_fetch_is_removed_from_all_its_logs(purgatory: Purgatory) -> None:
    wait = Wait(A, B)
    purgatory.try_park(wait.fetch, 100)
    wait.enough = True
    purgatory.on_progress(A, 10)
    purgatory.on_progress(B, 11)
    assert wait.calls == [(10, False)]
    assert purgatory._by_log == {}


def test_fetches_are_answered_at_their_deadlines(purgatory: Purgatory) -> None:
    late, soon = Wait(A), Wait(A)
    purgatory.try_park(late.fetch, 300)
    purgatory.try_park(soon.fetch, 100)
    assert purgatory.next_deadline_ms() == 100
    purgatory.on_tick(99)
    assert soon.calls == []
    purgatory.on_tick(100)
    assert soon.calls == [(100, True)] and late.calls == []
    assert purgatory.next_deadline_ms() == 300
    purgatory.on_tick(1000)
    assert late.calls == [(1000, True)] and purgatory._by_log == {}


def test_a_fetch_that_does_not_complete_at_its_deadline_is_an_error(purgatory: Purgatory) -> None:
    purgatory.try_park(WaitingFetch([A], lambda now_ms, late: False), 100)
    with pytest.raises(AssertionError, match="not answered"):
        purgatory.on_tick(100)


def test_cancelled_fetches_are_not_tried(purgatory: Purgatory) -> None:
    wait, other = Wait(A), Wait(A)
    purgatory.try_park(wait.fetch, 100)
    purgatory.try_park(other.fetch, 200)
    purgatory.cancel(wait.fetch)
    assert purgatory.next_deadline_ms() == 200
    purgatory.on_progress(A, 10)
    purgatory.on_tick(150)
    assert wait.calls == [] and other.calls == [(10, False)]


def test_a_fetch_without_logs_waits_until_its_deadline(purgatory: Purgatory) -> None:
    wait = Wait()
    purgatory.try_park(wait.fetch, 50)
    purgatory.on_tick(50)
    assert wait.calls == [(50, True)]


def test_progress_made_by_an_answer_is_seen(purgatory: Purgatory) -> None:
    """A response that itself causes progress of a log does not disturb the other fetches."""
    second = Wait(A)
    second.enough = True

    def answer(now_ms: int, late: bool) -> bool:
        purgatory.on_progress(B, now_ms)
        return True

    nested = Wait(B)
    nested.enough = True
    for fetch in (WaitingFetch([A], answer), second.fetch, nested.fetch):
        purgatory.try_park(fetch, 100)
    purgatory.on_progress(A, 10)
    assert second.calls == [(10, False)] and nested.calls == [(10, False)]
    assert purgatory._by_log == {} and purgatory.next_deadline_ms() is None


def test_rows_of_answered_fetches_do_not_pile_up(purgatory: Purgatory) -> None:
    """A busy reader may send thousands of fetches before the deadline of its first fetch."""
    early = Wait(B)
    purgatory.try_park(early.fetch, 10)
    for number in range(5000):
        wait = Wait(A)
        wait.enough = True
        purgatory.try_park(wait.fetch, 30_000)
        if number % 2:
            purgatory.on_progress(A, number)
        else:
            purgatory.cancel(wait.fetch)
    assert len(purgatory._deadlines) <= FEWEST_SWEPT
    late = [Wait(A) for _ in range(500)]
    for wait in late:
        purgatory.try_park(wait.fetch, 30_000)
    purgatory.on_tick(10)
    assert early.calls == [(10, True)]
    repeat_until(lambda: not purgatory.waiting_count, lambda: purgatory.on_tick(30_000))
    assert [wait.calls for wait in late] == [[(30_000, True)]] * 500
    assert purgatory.next_deadline_ms() is None


def test_at_most_100_expired_fetches_are_answered_in_a_tick(purgatory: Purgatory) -> None:
    waits = [Wait(A) for _ in range(350)]
    for wait in waits:
        purgatory.try_park(wait.fetch, 100)
    answered = []
    while purgatory.waiting_count:
        assert purgatory.next_deadline_ms() == 100
        before = purgatory.waiting_count
        purgatory.on_tick(100)
        answered.append(before - purgatory.waiting_count)
    assert answered == [100, 100, 100, 50]
    assert [wait.calls for wait in waits] == [[(100, True)]] * len(waits)
