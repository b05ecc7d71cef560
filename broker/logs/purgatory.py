"""Fetches that wait for data, by their logs and by their deadlines (Kafka's delayed fetches).

When a log progresses, its waiting fetches are tried in the order of arrival, if this log may
complete them. A fetch that was answered, or whose client has hung up, is removed from every log
that it waited for, and keeps nothing. Deadlines are entries of a heap. The entry of such a fetch is
dropped when it is due, or when such entries are the majority, since a busy reader's fetches are
answered long before their deadlines. How much memory fetches may hold while they wait is in
`waiting_memory.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.logs.waiting_memory import FETCH_BYTES, PARTITION_BYTES, WaitingMemory
from barnabas.storage.exception_guard import contain

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log

    IsWorthATry = Callable[[Log], bool]
TryComplete = Callable[[int, bool], bool]

DUE_AT_ONCE = 100  # the maximum number of fetches that one tick answers
FEWEST_SWEPT = 64  # a heap with at most this many entries is not cleaned


def _always(_log: Log) -> bool:
    return True


def _end_process(_fetch: WaitingFetch, error: Exception) -> None:
    raise error


def _never(_now_ms: int, _out_of_time: bool) -> bool:
    return False


def _nothing() -> None:
    pass


class WaitingFetch:
    """One parked fetch. `try_complete(now_ms, out_of_time)` sends the response if it can, and
    returns whether it did.

    `is_worth_a_try(log)` is called first when `log` progresses, and reads only this log. Otherwise
    a million logs would be read when each of a fetch's thousand partitions gets a batch that cannot
    be read yet.

    `on_closed()` is called when the fetch's connection is closed, so that no other table keeps the
    fetch. `owner`: the principal or the address of the client. `size_bytes`: the memory that the
    fetch holds.
    """

    __slots__ = (
        "done", "is_worth_a_try", "logs", "on_closed", "owner", "size_bytes", "try_complete",
    )  # fmt: skip

    def __init__(
        self,
        logs: list[Log],
        try_complete: TryComplete,
        is_worth_a_try: IsWorthATry = _always,
        on_closed: Callable[[], None] = _nothing,
    ) -> None:
        self.logs, self.try_complete, self.is_worth_a_try = logs, try_complete, is_worth_a_try
        self.on_closed, self.done = on_closed, False
        self.owner, self.size_bytes = "", FETCH_BYTES + PARTITION_BYTES * len(logs)

    def end(self) -> None:
        """Refer to nothing any more: the entry of the deadline may stay for days."""
        self.done = True
        self.logs, self.try_complete, self.is_worth_a_try = [], _never, _always
        self.on_closed = _nothing


class Watcher(Protocol):
    """An object that is notified of each progress of a log."""

    def on_progress(self, log: Log, now_ms: int) -> None:
        """Called when data of the log were appended, became stable, or were deleted."""
        ...


class Purgatory:
    """The fetches that wait for progress of their logs, or for their deadline.

    waiting_count, watchers: while there are waiting fetches or watchers, callers have to report the
    progress of logs. memory: the memory that the fetches hold. on_failed(fetch, error): called if
    an attempt at a fetch raises an exception; it ends the fetch's request, and raises the error
    again if that ends the process.
    """

    def __init__(self, most_bytes: int) -> None:
        """Takes: most_bytes, how much memory all waiting fetches together may hold."""
        self.memory = WaitingMemory(most_bytes)
        self.watchers: dict[Log, dict[Watcher, None]] = {}
        self._by_log: dict[Log, dict[WaitingFetch, None]] = {}
        self._deadlines: list[tuple[int, int, WaitingFetch]] = []
        self._sequence = 0
        self.waiting_count = 0
        self.on_failed: Callable[[WaitingFetch, Exception], None] = _end_process

    def try_park(self, fetch: WaitingFetch, deadline_ms: int) -> bool:
        """Add a fetch, if there is memory for it. It waits for progress of its logs, at most until
        the deadline. Gives: whether it waits.
        """
        if not self.memory.try_take(fetch.owner, fetch.size_bytes):
            return False
        self._sequence += 1
        self.waiting_count += 1
        heapq.heappush(self._deadlines, (deadline_ms, self._sequence, fetch))
        for log in fetch.logs:
            self._by_log.setdefault(log, {})[fetch] = None
        return True

    def watch(self, log: Log, watcher: Watcher) -> None:
        """Notify the watcher of each progress of the log."""
        self.watchers.setdefault(log, {})[watcher] = None

    def unwatch(self, log: Log, watcher: Watcher) -> None:
        """Stop notifying the watcher."""
        watchers = self.watchers[log]
        del watchers[watcher]
        if not watchers:
            del self.watchers[log]

    def on_progress(self, log: Log, now_ms: int) -> None:
        """Try the fetches that wait for the log, since its data were appended, became stable, or
        were deleted.
        """
        if self.watchers:
            for watcher in list(self.watchers.get(log, ())):
                try:
                    watcher.on_progress(log, now_ms)
                except Exception as error:
                    contain(error, log)
        waiting = self._by_log.get(log)
        if waiting:
            for fetch in list(waiting):
                if fetch.done:
                    continue
                try:
                    is_over = fetch.is_worth_a_try(log) and fetch.try_complete(now_ms, False)
                except Exception as error:
                    self.on_failed(fetch, error)
                    is_over = True
                if is_over:
                    self._remove(fetch)

    def on_tick(self, now_ms: int) -> None:
        """Answer up to DUE_AT_ONCE fetches whose deadline has passed. The next tick continues."""
        left = DUE_AT_ONCE
        while left and self._deadlines and self._deadlines[0][0] <= now_ms:
            fetch = heapq.heappop(self._deadlines)[2]
            if not fetch.done:
                left -= 1
                self.time_out(fetch, now_ms)

    def time_out(self, fetch: WaitingFetch, now_ms: int) -> None:
        """Answer a fetch whose time is up."""
        try:
            answered = fetch.try_complete(now_ms, True)
        except Exception as error:
            self.on_failed(fetch, error)
            answered = True
        assert answered, "a fetch whose time is up was not answered"
        self._remove(fetch)

    def cancel(self, fetch: WaitingFetch) -> None:
        """Remove a fetch whose connection is closed."""
        self._remove(fetch)

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline of a waiting fetch; None if none waits. Answered fetches at the
        front are dropped.
        """
        while self._deadlines and self._deadlines[0][2].done:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _remove(self, fetch: WaitingFetch) -> None:
        """Forget an answered or cancelled fetch. Its deadline stays in the heap until most entries
        of the heap belong to such fetches.
        """
        if fetch.done:
            return
        logs = fetch.logs
        fetch.end()
        self.memory.give_back(fetch.owner, fetch.size_bytes)
        self.waiting_count -= 1
        if len(self._deadlines) > max(FEWEST_SWEPT, 2 * self.waiting_count):
            self._deadlines = [row for row in self._deadlines if not row[2].done]
            heapq.heapify(self._deadlines)
        for log in logs:
            waiting = self._by_log.get(log)
            if waiting is not None:
                waiting.pop(fetch, None)
                if not waiting:
                    del self._by_log[log]
