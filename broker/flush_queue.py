"""Group commit: who waits for which logs to be on the disk, and which flush serves them.

At most one flush is under way. All who come while it runs are served together by the next one, so that a hundred transactions that end at
the same time cost the disk no more than one. Order of effects: logs are asked for their unflushed files only when a flush begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker.outbox import FlushJob, Outbox

if TYPE_CHECKING:
    from storage.log import Log

Continuation = Callable[[int], None]


class FlushQueue:
    """Waiters by what they wait for; `then(now_ms)` runs once, when all of it is on the disk."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting: list[tuple[list[tuple[Log, int]], Continuation]] = []
        self._wanted: dict[Log, None] = {}
        self._under_way: FlushJob | None = None
        self._next_job_id = 1

    @property
    def is_idle(self) -> bool:
        return self._under_way is None and not self._waiting

    def wait(self, logs: Iterable[Log], then: Continuation, now_ms: int) -> None:
        """Run `then` when everything appended so far to `logs` is on the disk: at once if it is."""
        needed = [(log, log.log_end_offset) for log in logs if not log.is_flushed(log.log_end_offset)]
        if not needed:
            then(now_ms)
            return
        for log, _ in needed:
            self._wanted[log] = None
        self._waiting.append((needed, then))
        self._begin()

    def forget(self, log: Log, now_ms: int) -> None:
        """The log is gone (its topic was deleted): nobody waits for it any more."""
        self._wanted.pop(log, None)
        for needed, _ in self._waiting:
            needed[:] = [(other, offset) for other, offset in needed if other is not log]
        self._release(now_ms)

    def on_flushed(self, job: FlushJob, now_ms: int) -> None:
        """The rim brought the job's files to the disk."""
        assert self._under_way is job, "a flush ended that was not under way"
        self._under_way = None
        for log, token in job.tokens:
            log.finish_flush(token)
        for needed, _ in self._waiting:
            needed[:] = [(log, offset) for log, offset in needed if not log.is_flushed(offset)]
        self._release(now_ms)
        self._begin()

    def _release(self, now_ms: int) -> None:
        ready = [then for needed, then in self._waiting if not needed]
        self._waiting = [entry for entry in self._waiting if entry[0]]
        for then in ready:
            then(now_ms)

    def _begin(self) -> None:
        if self._under_way is not None or not self._wanted:
            return
        tokens = []
        for log in self._wanted:
            token = log.begin_flush()
            if token is not None:
                tokens.append((log, token))
        self._wanted.clear()
        if tokens:
            self._under_way = FlushJob(self._next_job_id, tuple(tokens))
            self._next_job_id += 1
            self._outbox.flushes.append(self._under_way)
