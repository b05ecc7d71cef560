"""Flushes a standby's copy early, so that a take-over does not have to wait for the whole flush.

A copy must be durable before a broker starts on it, since its checkpoints describe the leader's
disk. On a busy disk a flush takes seconds. The expiry of the lease takes seconds as well, so the
flush runs during that time.
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

    Takes: sync, a function that makes all written data durable; run_beside, a function that runs a
           call in the background, and returns a function that waits for its end.

    Data written before this object was created count as not durable.
    """

    def __init__(
        self, sync: Callable[[], None], run_beside: Callable[[Call], Call] = _run_in_thread
    ) -> None:
        self._sync, self._run_beside = sync, run_beside
        self._written, self._synced = 1, 0  # counts of `on_written`
        self._is_running, self._join = False, _nothing

    def on_written(self) -> None:
        """Record that something was written, so that not everything is durable."""
        self._written += 1

    def begin(self) -> None:
        """Begin a sync, unless everything is durable or a sync is running."""
        if self._synced != self._written and not self._is_running:
            self._is_running = True
            self._join = self._run_beside(self._try)

    def _try(self) -> None:
        """Sync in the thread; at an error nothing counts as synced, so that `finish` syncs
        again.
        """
        try:
            with suppress(OSError):  # an error is ignored here: `finish` tries again and raises it
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
