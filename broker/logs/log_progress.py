"""The effects of an append: waiting fetches are answered, and logs that are due are flushed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.purgatory import Purgatory

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log


class LogProgress:
    """Notifies waiting fetches of the progress of logs, and flushes logs in time (`flush.ms`).

    purgatory: the waiting fetches. While it is empty, only logs that are flushed have to be
    reported to `on_appended`. next_due_ms: the time at which the next flush for `flush.ms` is due,
    or None. risen: further logs whose last stable offsets have risen, because that of another log
    has.
    """

    def __init__(self, purgatory: Purgatory, flushes: FlushQueue) -> None:
        self.purgatory, self._flushes = purgatory, flushes
        self._due_ms: dict[Log, int] = {}
        self.risen: list[Log] = []
        self.next_due_ms: int | None = None

    def on_appended(self, logs: Sequence[Log], now_ms: int) -> bool:
        """Notify the waiting fetches that the logs have grown, or their last stable offsets have
        risen.

        Logs whose records are visible only when they are durable (`flush.messages=1`) are flushed,
        in one flush.

        Gives:  whether something else than fetches may have got work by this.
        """
        for log in logs:
            if log.high_watermark < log.log_end_offset:
                self._flushes.wait(
                    [log for log in logs if log.high_watermark < log.log_end_offset],
                    lambda _: None,
                    now_ms,
                )
                self.try_fetches(logs, now_ms)
                return True
        if self.purgatory.waiting_count or self.purgatory.watchers:
            self.try_fetches(logs, now_ms)
            return bool(self.purgatory.watchers)
        return False

    def try_fetches(self, logs: Sequence[Log], now_ms: int) -> None:
        """Try to answer the fetches that wait for the logs."""
        risen, self.risen = self.risen, []
        if self.purgatory.waiting_count or self.purgatory.watchers:
            for log in (*logs, *risen) if risen else logs:
                self.purgatory.on_progress(log, now_ms)

    def try_risen(self, now_ms: int) -> None:
        """Try to answer the fetches that wait for the logs in `risen`."""
        self.try_fetches((), now_ms)

    def flush_later(self, log: Log, due_ms: int) -> None:
        """Record the time by which appended records have to be durable (`flush.ms`)."""
        if log not in self._due_ms:
            self._due_ms[log] = due_ms
            if self.next_due_ms is None or due_ms < self.next_due_ms:
                self.next_due_ms = due_ms

    def on_deleted(self, log: Log, now_ms: int) -> None:
        """Answer the fetches that wait for a deleted log, and cancel the log's flush."""
        self.purgatory.on_progress(log, now_ms)
        self._due_ms.pop(log, None)
        self._flushes.forget(log, now_ms)

    def on_tick(self, now_ms: int) -> None:
        """Flush the logs that are due."""
        if self.next_due_ms is not None and self.next_due_ms <= now_ms:
            due = [log for log, due_ms in self._due_ms.items() if due_ms <= now_ms]
            for log in due:
                del self._due_ms[log]
            self.next_due_ms = min(self._due_ms.values(), default=None)
            self._flushes.wait(due, lambda _: None, now_ms)
