"""The flush of a standby's copy, begun before a take-over has to wait for it.

A copy must be durable before a broker starts on it, since its checkpoints describe the leader's
disk. On a busy disk a flush takes seconds, and so does the expiry of the lease: the flush runs
during that time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

Call = Callable[[], None]


def _run_in_thread(call: Call) -> Call:
    """Run a call in a thread. Gives: a function that waits for its end."""
    thread = threading.Thread(target=call, name="early-sync", daemon=True)
    thread.start()
    return thread.join


def _nothing() -> None:
    """Do nothing: there is no sync to wait for."""


class EarlySync:
    """Flushes a copy early.

    Takes: sync, which makes all written data durable; run_beside, which runs a call in the
           background, and returns a function that waits for its end. Data written before this
           object was made count as not durable.
    """

    def __init__(
        self, sync: Callable[[], None], run_beside: Callable[[Call], Call] = _run_in_thread
    ) -> None:
        self._sync, self._run_beside = sync, run_beside
        self._written, self._synced = 1, 0  # counts of `on_written`
        self._is_running, self._join = False, _nothing

    def on_written(self) -> None:
        """Record a write: not everything is durable now."""
        self._written += 1

    def begin(self) -> None:
        """Begin a sync, unless everything is durable or one is running."""
        if self._synced != self._written and not self._is_running:
            self._is_running = True
            self._join = self._run_beside(self._try)

    def _try(self) -> None:
        """Sync in the thread; at an error nothing counts as synced, so that `finish` syncs
        again.
        """
        try:
            with suppress(OSError):  # `finish` raises the error
                self._run()
        finally:
            self._is_running = False

    def _run(self) -> None:
        """Sync everything. Only what was written before the sync began counts as synced."""
        written = self._written
        self._sync()
        self._synced = written

    def finish(self) -> None:
        """Make everything that was written durable. Raises: OSError."""
        self._join()
        if self._synced != self._written:
            self._run()
