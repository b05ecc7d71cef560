"""Changes of files in steps: the thread of the flusher does the fsyncs between them.

A step runs in the loop: it writes a file under another name, or renames one. What it yields is
fsynced by the thread, and then comes the next step. One change is carried out after the other, so
that a later one is never on the disk before an earlier one. A step that yields nothing to fsync
continues in another round of the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from barnabas.broker.outbox import FlushJob, Outbox
from barnabas.storage.disk import SyncSteps

Continuation = Callable[[int], None]
NO_JOB_ID = 0


class Syncs:
    """The change that is carried out, and those behind it, each with what is called at its end."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._queue: deque[tuple[SyncSteps, Continuation]] = deque()

    def run(
        self, steps: SyncSteps, now_ms: int = 0, then: Continuation = lambda _now_ms: None
    ) -> None:
        """Carry out a change, at once as far as it waits for nothing; then(now_ms) is called at its
        end.
        """
        self._queue.append((steps, then))
        if len(self._queue) == 1:
            self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        while self._queue:
            steps, then = self._queue[0]
            try:
                files = next(steps)
            except StopIteration:
                self._queue.popleft()
                then(now_ms)
                continue
            except BaseException:
                self._queue.popleft()
                raise
            self._outbox.flushes.append(FlushJob(NO_JOB_ID, (), tuple(files), self._go_on))
            return
