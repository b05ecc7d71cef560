"""What brings a standby's copy to the disk, begun before a take-over has to wait for it.

A copy must be durable before a broker goes on from it: its checkpoints say what was flushed on the
leader's disk. On a disk with much to write that takes seconds, and the lease takes seconds to end:
the one happens during the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

Call = Callable[[], None]


def _run_in_thread(call: Call) -> Call:
    thread = threading.Thread(target=call, name="early-sync", daemon=True)
    thread.start()
    return thread.join


def _nothing() -> None:
    """There is no sync to wait for."""


class EarlySync:
    """Takes: sync, which makes durable all that was written before; run_beside, which runs a call
    beside what goes on, and gives what waits for its end. What was written before this was made
    counts as not durable.
    """

    def __init__(
        self, sync: Callable[[], None], run_beside: Callable[[Call], Call] = _run_in_thread
    ) -> None:
        self._sync, self._run_beside = sync, run_beside
        self._written, self._synced = 1, 0  # counts of `on_written`
        self._is_running, self._join = False, _nothing

    def on_written(self) -> None:
        """Note that something was written, so that not all is durable."""
        self._written += 1

    def begin(self) -> None:
        """Begin, unless all is durable or a sync is under way."""
        if self._synced != self._written and not self._is_running:
            self._is_running = True
            self._join = self._run_beside(self._try)

    def _try(self) -> None:
        try:
            with suppress(OSError):  # `finish` tells of it
                self._run()
        finally:
            self._is_running = False

    def _run(self) -> None:
        written = self._written
        self._sync()
        self._synced = written

    def finish(self) -> None:
        """All that has been written is durable then. Raises: OSError."""
        self._join()
        if self._synced != self._written:
            self._run()
