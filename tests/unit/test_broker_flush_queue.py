"""Group commit: one flush at a time, and all who come while it runs are served by the next."""

from __future__ import annotations

from typing import Any, cast

import pytest

from barnabas.broker.flush_queue import FlushQueue
from barnabas.broker.outbox import Outbox
from barnabas.storage.durability import FlushToken


class FakeLog:
    """Appends are counted; a flush covers what was appended when it began."""

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.flushed = 0
        self.durability = self

    def append(self) -> None:
        self.log_end_offset += 1

    @property
    def durable_offset(self) -> int:
        return self.flushed

    def begin_flush(self) -> Any:
        return (
            None
            if self.flushed == self.log_end_offset
            else FlushToken((), self.log_end_offset, 0, 0, True)
        )

    def finish_flush(self, token: FlushToken) -> None:
        self.flushed = max(self.flushed, token.end_offset)


class Queue:
    def __init__(self) -> None:
        self.outbox = Outbox()
        self.queue = FlushQueue(self.outbox)
        self.done: list[tuple[str, int]] = []

    def wait(self, name: str, *logs: FakeLog, now_ms: int = 1) -> None:
        self.queue.wait(cast(Any, logs), lambda then_ms: self.done.append((name, then_ms)), now_ms)

    def end_flush(self, now_ms: int = 2) -> int:
        job = self.outbox.flushes.pop(0)
        self.queue.on_flushed(job, now_ms)
        return len(job.tokens)


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    log.append()
    return log


def test_what_is_on_the_disk_needs_no_flush(queue: Queue, log: FakeLog) -> None:
    log.flushed = 1
    queue.wait("a", log)
    assert queue.done == [("a", 1)]
    assert queue.outbox.flushes == [] and queue.queue.is_idle


def test_waiters_during_a_flush_are_served_together_by_the_next(queue: Queue, log: FakeLog) -> None:
    queue.wait("first", log)
    for name in "bcd":
        log.append()
        queue.wait(name, log)
    assert len(queue.outbox.flushes) == 1, "one at a time"
    queue.end_flush(5)
    assert queue.done == [("first", 5)]
    assert len(queue.outbox.flushes) == 1
    queue.end_flush(6)
    assert queue.done == [("first", 5), ("b", 6), ("c", 6), ("d", 6)]
    assert queue.outbox.flushes == [] and queue.queue.is_idle


def test_a_flush_takes_what_was_appended_before_it_began(queue: Queue, log: FakeLog) -> None:
    """Two waiters of two logs: the second log's data came before the flush that serves the second
    waiter.
    """
    other = FakeLog()
    queue.wait("first", log)
    other.append()
    queue.wait("both", log, other)
    assert queue.end_flush() == 1
    assert [name for name, _ in queue.done] == ["first"]
    assert queue.end_flush() == 1, "the first log has nothing new"
    assert [name for name, _ in queue.done] == ["first", "both"]


def test_a_waiter_of_several_logs_waits_for_all(queue: Queue, log: FakeLog) -> None:
    other = FakeLog()
    other.append()
    queue.wait("both", log, other)
    assert queue.end_flush() == 2
    assert queue.done == [("both", 2)]


def test_an_error_of_one_does_not_stop_the_flushes_of_others(queue: Queue, log: FakeLog) -> None:
    def fail(_frame: object, _now_ms: int) -> None:
        raise ValueError("a request that cannot be handled")

    with pytest.raises(ValueError, match="cannot be handled"):
        queue.queue.wait_for_frame([], fail, 1)
    queue.wait("a", log)
    queue.end_flush()
    assert queue.done == [("a", 2)]


def test_a_continuation_may_wait_again(queue: Queue, log: FakeLog) -> None:
    """As EndTxn does: data, then the decision."""
    decisions = FakeLog()

    def decide(now_ms: int) -> None:
        queue.done.append(("data", now_ms))
        decisions.append()
        queue.wait("decision", decisions, now_ms=now_ms)

    queue.queue.wait(cast(Any, [log]), decide, 1)
    queue.end_flush(2)
    assert queue.done == [("data", 2)]
    queue.end_flush(3)
    assert queue.done == [("data", 2), ("decision", 3)]


def test_a_log_that_is_forgotten_holds_nobody_up(queue: Queue, log: FakeLog) -> None:
    other = FakeLog()
    other.append()
    queue.wait("one", log)
    queue.wait("other", other)
    queue.wait("both", log, other)
    queue.queue.forget(cast(Any, other), 7)
    assert queue.done == [("other", 7)]
    queue.end_flush(8)
    assert queue.done == [("other", 7), ("one", 8), ("both", 8)]
    assert queue.outbox.flushes == [] and queue.queue.is_idle


def test_a_flush_that_is_not_under_way_must_not_end(queue: Queue, log: FakeLog) -> None:
    queue.wait("a", log)
    job = queue.outbox.flushes[0]
    queue.end_flush()
    with pytest.raises(AssertionError, match="not under way"):
        queue.queue.on_flushed(job, 3)
