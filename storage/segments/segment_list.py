"""The segments of one log, and the search for a batch in them.

Offsets of the segments, where L is the log's end (the offset after its last batch):

    segment      0              1              2            the last one, active
    offsets      [base_0,       [base_1,       [base_2,     [base_n,
                  base_1)        base_2)        base_3)      L)

Only the active segment grows. A segment may begin below the log start offset. Its batches may not
fill its range of offsets, since compaction leaves gaps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from barnabas.protocol.records import BatchHeader
from barnabas.storage.files.segment_files import LOG_SUFFIX, CorruptLog
from barnabas.storage.segments.segment import Segment

_MOST_HEADERS_BEFORE = 1 << 18  # the number of batches that are read in half a second


class BatchPlace(NamedTuple):
    """The segment of a batch, its position in the segment's file, and its size."""

    segment: Segment
    position: int
    size: int


class SegmentList(Sequence[Segment]):
    """A log's segments, oldest first. The last one is the active segment, which always exists.

    end_offset: the log's end. _end: the last result of `end_position`.
    """

    __slots__ = (
        "_bases",
        "_closed_bytes",
        "_end",
        "_segments",
        "active",
        "end_offset",
    )

    def __init__(self, segments: list[Segment], end_offset: int) -> None:
        assert segments, "a log has at least one segment"
        self._segments = segments
        self.active = segments[-1]
        self.end_offset = end_offset
        self._bases = [segment.base_offset for segment in segments]
        self._closed_bytes = sum(segment.batches.size for segment in segments[:-1])
        self._end: tuple[int, Segment, int] = (-1, self.active, 0)

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...

    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...

    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def base_offsets(self) -> list[int]:
        """The base offset of each segment, oldest first."""
        return self._bases

    @property
    def size_bytes(self) -> int:
        """The total size of all log files."""
        return self._closed_bytes + self.active.batches.size

    def end_of(self, segment: Segment) -> int:
        """The end of a segment, which is the base offset of the next one, or the log's end."""
        at = bisect_right(self._bases, segment.base_offset)
        return self._bases[at] if at < len(self._bases) else self.end_offset

    def since(self, segment: Segment) -> list[Segment]:
        """A segment and all later ones."""
        return self._segments[bisect_right(self._bases, segment.base_offset) - 1 :]

    # --- change ----------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Make a new, empty segment the active one."""
        self._closed_bytes += self.active.batches.size
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def remove_oldest(self, count: int) -> list[Segment]:
        """Remove the oldest segments, but not the active one. Gives: the removed segments."""
        assert count < len(self._segments), "the active segment stays"
        removed = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        self._closed_bytes -= sum(segment.batches.size for segment in removed)
        self._end = (-1, self.active, 0)
        return removed

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Replace adjacent segments below the active one by one segment."""
        at = self._segments.index(old[0])
        end = at + len(old)
        assert self._segments[at:end] == old and self.active not in old, (
            "neighbours below the active segment are replaced"
        )
        self._segments[at:end] = [new]
        self._bases[at:end] = [new.base_offset]
        self._closed_bytes += new.batches.size - sum(segment.batches.size for segment in old)
        self._end = (-1, self.active, 0)

    # --- search ----------------------------------------------------------------------------------

    def find(self, offset: int) -> BatchPlace | None:
        """The first batch whose last offset is not below `offset`; None if there is none.

        Raises: CorruptLog.
        """
        at = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self._segments[at:]:
            place = segment.find(offset)
            if place is not None:
                if place.last_offset >= self.end_of(segment):
                    raise segment.batches.corrupt(
                        place.position,
                        f"a batch reaches to offset {place.last_offset}, beyond the segment's end",
                    )
                return BatchPlace(segment, place.position, place.size)
        return None

    def end_position(self, segment: Segment, limit: int) -> int:
        """The position in a segment at which a read ends, for readers that may read up to
        `limit`.
        """
        if limit == self.end_offset:
            return segment.batches.size
        end = self._end
        if end[0] != limit:
            place = self.find(limit)
            end = self._end = (
                (limit, place.segment, place.position)
                if place is not None
                else (limit, self.active, self.active.batches.size)
            )
        return end[2] if end[1] is segment else segment.batches.size

    def headers_before(self, offset: int) -> Iterator[BatchHeader]:
        """Iterate over the headers of at most 262,144 batches below `offset`, the latest batch
        first.
        """
        left = _MOST_HEADERS_BEFORE
        for segment in reversed(self._segments[: bisect_right(self._bases, offset)]):
            index = segment.indexes.trusted_offset_index()
            # The batch of the entry at `below`, and all later batches, are above the offset.
            below = bisect_left(index.offsets, offset - segment.base_offset)
            end = index.positions[below] if below < len(index) else segment.batches.size
            stops = [0, *index.positions[:below], end]
            for start, stop in zip(reversed(stops[:-1]), reversed(stops[1:]), strict=True):
                headers = [
                    header
                    for _, header in segment.batches.headers(start, stop)
                    if header.last_offset < offset
                ]
                yield from reversed(headers)
                left -= len(headers)
                if left < 0:
                    return

    # --- check -----------------------------------------------------------------------------------

    def check_sizes(self) -> None:
        """Check that each file has the size that is known for its segment.

        It is called before retention by size.

        Raises: CorruptLog.
        """
        total = 0
        for segment in self._segments:
            batches = segment.batches
            path = batches.path(LOG_SUFFIX)
            size = batches.disk.size(path) if batches.disk.exists(path) else -1
            if size != batches.size:
                raise CorruptLog(
                    path,
                    batches.size,
                    f"the file has {size} bytes, not {batches.size}",
                    "Retention by size is suspended for the log meanwhile.",
                )
            total += batches.size
        assert self.size_bytes == total, (
            f"{self.active.batches.directory}: "
            f"its segments hold {total} bytes, not {self.size_bytes}"
        )
