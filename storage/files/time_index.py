"""The time index of one segment: for some offsets, the highest timestamp up to that offset.

An entry of `.timeindex`, big-endian:

    at  size  field
     0   8    timestamp: the highest of all batches up to and including that of the offset
     8   4    relative_offset: the last offset of the batch with that timestamp, less the
              segment's base offset

When the offset index gets an entry, the time index also gets one if the highest timestamp has
risen. It gets another one when the segment is closed. No batch before the offset of an entry has a
higher timestamp than the entry.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import NamedTuple

ENTRY_SIZE = 12
_ENTRY = struct.Struct(">qI")


class TimeEntry(NamedTuple):
    """One entry. Its offset is relative to the segment's base offset."""

    timestamp: int
    relative_offset: int


class TimeIndex:
    """The entries in memory. Timestamps strictly increase, and offsets never decrease."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("I")

    def __len__(self) -> int:
        return len(self.timestamps)

    def maybe_append(self, timestamp: int, relative_offset: int) -> bool:
        """Add the entry if its timestamp is above that of the last one, and is not -1."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)
            return True
        return False

    def lookup(self, timestamp: int) -> TimeEntry | None:
        """The entry with the largest timestamp that is not above the given one."""
        slot = bisect_right(self.timestamps, timestamp) - 1
        return TimeEntry(self.timestamps[slot], self.offsets[slot]) if slot >= 0 else None

    def last(self) -> TimeEntry | None:
        return TimeEntry(self.timestamps[-1], self.offsets[-1]) if self.timestamps else None

    def encode(self, start: int = 0) -> bytes:
        """Encode the entries from number `start` on, in the format of the file."""
        pairs = zip(self.timestamps[start:], self.offsets[start:], strict=True)
        return b"".join([_ENTRY.pack(timestamp, offset) for timestamp, offset in pairs])

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex:
        """Decode the entries of a file, up to the first invalid one.

        Invalid entries are the zeros of an index that Apache Kafka did not close, or a torn end.
        """
        index = cls()
        last_timestamp, last_offset = -1, 0
        for timestamp, offset in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE]):
            if timestamp <= last_timestamp or offset < last_offset:
                break
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
            last_timestamp, last_offset = timestamp, offset
        return index
