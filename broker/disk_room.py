"""How much clients may still write: a full disk refuses them before it stops the broker."""

from __future__ import annotations

from collections.abc import Callable

MEASURED_EVERY_BYTES = 16 << 20


class DiskRoom:
    """Counts what clients write against the space that was free when it was last measured.

    What is left of the disk below `reserve_bytes` is kept for markers, offsets and checkpoints, so that transactions can still be ended and
    readers go on. Measured anew after every 16 MB, and each time there seems to be no room.
    """

    def __init__(self, free_bytes: Callable[[], int], reserve_bytes: int) -> None:
        self._free_bytes, self._reserve_bytes = free_bytes, reserve_bytes
        self._left = 0

    def take(self, count: int) -> bool:
        """Whether so many bytes may be written; they count as written then."""
        if self._left < count:
            self._left = min(self._free_bytes() - self._reserve_bytes, max(MEASURED_EVERY_BYTES, count))
            if self._left < count:
                self._left = 0
                return False
        self._left -= count
        return True
