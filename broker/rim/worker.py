"""The worker: a thread for long computations that do not use the core's state, such as checks of
batches that decompress to a large size.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from barnabas.broker.outbox import Work

SWITCH_INTERVAL_S = (
    0.001  # how long the event loop waits for the interpreter's lock each time the worker holds it
)


class Worker:
    """Runs work in order, one item at a time, which bounds the memory that the work uses.
    `on_done(work, result, error)` is called in the worker's thread.
    """

    def __init__(self, on_done: Callable[[Work, Any, Exception | None], Any]) -> None:
        self._on_done = on_done
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def submit(self, work: Work) -> None:
        """Queue the work; the thread starts with the first work. The work must yield the
        interpreter often, so that the event loop is not delayed.
        """
        if self._thread is None:
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
            self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
            self._thread.start()
        self._queue.put(work)

    def stop(self) -> None:
        """End the thread after its current work. Waiting work is dropped, since no client is
        connected any more.
        """
        self._stopping = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        """The thread: do the queued work, and report each result or error."""
        while (work := self._queue.get()) is not None and not self._stopping:
            self._do(work)
            del work  # its request and its result must not wait for the next work

    def _do(self, work: Work) -> None:
        try:
            result = work.run()
        except Exception as error:
            self._on_done(work, None, error)
        else:
            self._on_done(work, result, None)
