"""The offset index of one segment: (offset, position) pairs of some batches, by which the other
batches are also found.

An entry of `.index`, big-endian:

    at  size  field
     0   4    relative_offset: the last offset of the batch, less the segment's base offset
     4   4    position of that batch in the segment's file

A batch gets an entry if more than index.interval.bytes were appended since the last entry; the
first batch of a segment has none. An index that Apache Kafka did not close ends in zeros, which are
ignored.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

ENTRY_SIZE = 8


class IndexEntry(NamedTuple):
    """One entry. Its offset is relative to the segment's base offset."""

    relative_offset: int
    position: int


NO_ENTRY = IndexEntry(-1, 0)


class OffsetIndex:
    """The entries in memory, as two arrays that grow together. Both strictly increase."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def lookup(self, relative_offset: int) -> IndexEntry:
        """The entry with the largest offset that is not above the given one, or NO_ENTRY.

        The batch with the given offset is at the entry's position or after it.
        """
        slot = bisect_right(self.offsets, relative_offset) - 1
        return IndexEntry(self.offsets[slot], self.positions[slot]) if slot >= 0 else NO_ENTRY

    def first_at_or_after(self, position: int) -> IndexEntry | None:
        """The entry with the smallest position that is not below the given one."""
        slot = bisect_left(self.positions, position)
        return (
            IndexEntry(self.offsets[slot], self.positions[slot])
            if slot < len(self.positions)
            else None
        )

    def encode(self, start: int = 0) -> bytes:
        """Encode the entries from number `start` on, in the format of the file."""
        flat = array("I", bytes(8 * (len(self.offsets) - start)))
        flat[0::2] = self.offsets[start:]
        flat[1::2] = self.positions[start:]
        if sys.byteorder == "little":
            flat.byteswap()
        return flat.tobytes()

    @classmethod
    def decode(cls, data: bytes, segment_size: int) -> OffsetIndex:
        """Decode the entries of a file, up to the first invalid one.

        An entry is invalid if its offset or position does not rise, or is beyond the segment's end.
        """
        flat = array("I", data[: len(data) - len(data) % ENTRY_SIZE])
        if sys.byteorder == "little":
            flat.byteswap()
        index = cls()
        index.offsets, index.positions = flat[0::2], flat[1::2]
        last_offset, last_position = -1, 0
        for slot, (offset, position) in enumerate(zip(index.offsets, index.positions, strict=True)):
            if (
                offset <= last_offset
                or position <= last_position
                or position >= segment_size
                or offset > 0x7FFFFFFF
            ):
                del index.offsets[slot:]
                del index.positions[slot:]
                break
            last_offset, last_position = offset, position
        return index
