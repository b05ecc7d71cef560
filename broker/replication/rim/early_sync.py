"""What brings a standby's copy to the disk, begun before a take-over has to wait for it.

A copy must be durable before a broker goes on from it: its checkpoints say what was flushed on the
leader's disk. On a disk with much to write that takes seconds, and the lease takes seconds to end:
the one happens during the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress


class EarlySync:
    """Takes: sync, which makes durable all that was written before. What was written before this
    was made counts as not durable.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._written, self._synced = 1, 0  # counts of `on_written`
        self._thread: threading.Thread | None = None

    def on_written(self) -> None:
        """Note that something was written, so that not all is durable."""
        self._written += 1

    def begin(self) -> None:
        """Begin in a thread, unless all is durable or one is at it."""
        if self._synced == self._written or (self._thread and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._try, name="early-sync", daemon=True)
        self._thread.start()

    def _try(self) -> None:
        with suppress(OSError):  # `finish` tells of it
            self._run()

    def _run(self) -> None:
        written = self._written
        self._sync()
        self._synced = written

    def finish(self) -> None:
        """All that has been written is durable then. Raises: OSError."""
        if self._thread is not None:
            self._thread.join()
        if self._synced != self._written:
            self._run()
