"""How much clients may still write: a full disk refuses them before it stops the broker."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

MEASURED_EVERY_BYTES = 16 << 20
MOST_REFUSED = 10_000
_PRODUCER_AND_SEQUENCE = struct.Struct(">qhi")
_PRODUCER_AT = 43
_BATCH_BYTES = 61

Refused = tuple[str, int, int, int]  # topic, partition, producer id, producer epoch


class DiskRoom:
    """Counts what clients write against the space that was free when it was last measured.

    What is left of the disk below `reserve_bytes` is kept for markers, offsets and checkpoints, so
    that transactions can still be ended and readers go on. Measured anew after every 16 MB, and
    each time there seems to be no room. is_full: the last to ask was refused.
    """

    def __init__(self, free_bytes: Callable[[], int], reserve_bytes: int) -> None:
        self._free_bytes, self._reserve_bytes = free_bytes, reserve_bytes
        self._left = 0
        self.is_full = False
        self._refused: dict[Refused, int] = {}

    def take(self, count: int) -> bool:
        """Whether so many bytes may be written; they count as written then."""
        if self._left < count:
            self._left = min(
                self._free_bytes() - self._reserve_bytes, max(MEASURED_EVERY_BYTES, count)
            )
            self.is_full = self._left < count
            if self.is_full:
                self._left = 0
                return False
        self._left -= count
        return True

    def note_refused(self, topic: str, partition: int, batch: Any) -> None:
        """Remember an idempotent producer's batch that found no room; its later ones, which are
        under way, must not overtake it.

        A log takes the first batch of a producer that it does not know with any sequence, so that
        one would leave a hole in its order, and the refused one, sent again, be out of order for
        good.
        """
        if len(batch) < _BATCH_BYTES or len(self._refused) >= MOST_REFUSED:
            return
        producer_id, epoch, sequence = _PRODUCER_AND_SEQUENCE.unpack_from(batch, _PRODUCER_AT)
        if producer_id >= 0:
            key = topic, partition, producer_id, epoch
            self._refused[key] = min(sequence, self._refused.get(key, sequence))

    def is_overtaking(self, topic: str, partition: int, batch: Any) -> bool:
        """Whether an earlier batch of this one's producer was refused and did not come again yet."""
        if not self._refused or len(batch) < _BATCH_BYTES:
            return False
        producer_id, epoch, sequence = _PRODUCER_AND_SEQUENCE.unpack_from(batch, _PRODUCER_AT)
        key = topic, partition, producer_id, epoch
        first = self._refused.get(key)
        if first is None or sequence > first:
            return first is not None
        del self._refused[key]
        return False
