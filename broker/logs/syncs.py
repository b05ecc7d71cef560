"""Changes of files, carried out in steps. The flusher's thread does the fsyncs between the steps.

A step runs in the loop: it writes a file under another name, or renames a file. It yields files,
which the thread fsyncs before the next step runs. Changes are carried out one after the other, so
that a later change is never durable before an earlier one. After a step that yields no file, the
next step runs in another round of the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from barnabas.broker.outbox import FlushJob, Outbox
from barnabas.storage.disk import SyncSteps
from barnabas.storage.exception_guard import contain

Continuation = Callable[[int], None]
NO_JOB_ID = 0


class Syncs:
    """The queue of changes, of which the first is being carried out. Each change has a callback
    that is called at its end.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._queue: deque[tuple[SyncSteps, Continuation]] = deque()

    def run(
        self, steps: SyncSteps, now_ms: int = 0, then: Continuation = lambda _now_ms: None
    ) -> None:
        """Carry out a change, and call then(now_ms) at its end. If no other change is queued, the
        change begins at once and runs until its first wait.
        """
        self._queue.append((steps, then))
        if len(self._queue) == 1:
            self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        """Continue the first change of the queue up to its next wait; the flusher then fsyncs the
        files and calls this again.
        """
        while self._queue:
            steps, then = self._queue[0]
            try:
                files = next(steps)
            except StopIteration:
                self._queue.popleft()
                try:
                    then(now_ms)
                except Exception as error:
                    contain(error, "a step after a change of files")
                continue
            except BaseException:
                self._queue.popleft()
                raise
            self._outbox.flushes.append(FlushJob(NO_JOB_ID, (), tuple(files), self._go_on))
            return
