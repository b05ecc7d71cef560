"""Simulated time: a heap of events, and tasks that are plain generators.

A task yields a number (sleep that many ms) or a Future (wait for it; its value is the result of the
yield). Events of the same time run in the order of their registration, so a schedule depends only
on the seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from typing import Any

Task = Generator[Any, Any, Any]
MOST_EVENTS = 20_000


class EndlessError(Exception):
    """A schedule had so many events that it must be an endless loop."""


class Future:
    """A value that is not known yet. Its callbacks run in the order of their registration."""

    __slots__ = ("_waiting", "done", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self._waiting: list[Callable[[Any], None]] = []

    def resolve(self, value: Any) -> None:
        if self.done:
            return
        self.done, self.value = True, value
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(value)

    def then(self, call: Callable[[Any], None]) -> None:
        """Call the function with the value, now or when there is one."""
        if self.done:
            call(self.value)
        else:
            self._waiting.append(call)


class Timer:
    """An event that can be cancelled."""

    __slots__ = ("arguments", "call")

    def __init__(self, call: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> None:
        self.call, self.arguments = call, arguments

    def cancel(self) -> None:
        self.call = None


class Loop:
    """The clock and the pending events."""

    def __init__(self, start_ms: int) -> None:
        self.now_ms = start_ms
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = self.events = 0
        self.running = 0
        self.most_events = MOST_EVENTS

    def at(self, when_ms: int, call: Callable[..., Any], *arguments: Any) -> Timer:
        """Run a call at that time, or now if the time has passed."""
        timer = Timer(call, arguments)
        self._sequence += 1
        heapq.heappush(self._heap, (max(when_ms, self.now_ms), self._sequence, timer))
        return timer

    def later(self, delay_ms: int, call: Callable[..., Any], *arguments: Any) -> Timer:
        return self.at(self.now_ms + delay_ms, call, *arguments)

    def run_until(self, end_ms: int, is_done: Callable[[], bool] | None = None) -> None:
        """Run events up to `end_ms`, or until `is_done` gives true. Raises: EndlessError."""
        heap = self._heap
        while heap and heap[0][0] <= end_ms:
            self.events += 1
            if self.events > self.most_events:
                raise EndlessError(f"{self.most_events} events, the last at {self.now_ms}")
            if is_done is not None and is_done():
                return
            when_ms, _, timer = heapq.heappop(heap)
            if timer.call is not None:
                self.now_ms = when_ms
                timer.call(*timer.arguments)
        if is_done is None or not is_done():
            self.now_ms = max(self.now_ms, end_ms)

    def skip(self, for_ms: int) -> None:
        """Advance the clock without running events; the events that were due run late."""
        self.now_ms += for_ms
        self._heap = [(max(row[0], self.now_ms), *row[1:]) for row in self._heap]
        heapq.heapify(self._heap)

    def spawn(self, task: Task) -> Future:
        """Start a task. Gives: a future for its return value."""
        finished = Future()
        self.running += 1

        def step(value: Any) -> None:
            try:
                wanted = task.send(value)
            except StopIteration as end:
                self.running -= 1
                finished.resolve(end.value)
                return
            if isinstance(wanted, Future):
                wanted.then(step)
            else:
                self.later(wanted, step, None)

        self.later(0, step, None)
        return finished
