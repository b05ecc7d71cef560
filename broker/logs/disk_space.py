"""The number of bytes that clients may still write. Writes are refused before a full disk stops the
broker.
"""

from __future__ import annotations

from collections.abc import Callable

MEASURED_EVERY_BYTES = 16 << 20


class DiskSpace:
    """The bytes that clients may write, counted against the free space at the last measurement.

    The last `reserve_bytes` of the disk are kept for markers, offsets and checkpoints, so that
    transactions can still be ended and readers can continue. The free space is measured again after
    every 16 MB, and whenever it seems too small. is_full: whether the last reservation was refused.
    """

    def __init__(self, free_bytes: Callable[[], int], reserve_bytes: int) -> None:
        self._free_bytes, self._reserve_bytes = free_bytes, reserve_bytes
        self._left_bytes = 0
        self.is_full = False

    def reserve(self, count: int) -> bool:
        """Reserve bytes. Gives: whether they may be written; if so they count as written."""
        # The free space is measured again only after MEASURED_EVERY_BYTES, since each measurement
        # is a system call.
        if self._left_bytes < count:
            self._left_bytes = min(
                self._free_bytes() - self._reserve_bytes, max(MEASURED_EVERY_BYTES, count)
            )
            self.is_full = self._left_bytes < count
            if self.is_full:
                self._left_bytes = 0
                return False
        self._left_bytes -= count
        return True
