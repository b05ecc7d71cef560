"""Reading a log: slices of its files for fetches, the aborted transactions in them, whole batches.

A slice is a part of one segment's file, which is sent unchanged. It begins with the batch that
contains the offset, and may end within a batch. It ends at the first of these:

    max_bytes                    of the fetch; on request the first batch is returned whole
    the segment's end            the next fetch continues in the next segment
    the limit of the reader      read_committed: the last stable offset; else the high watermark
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from barnabas.protocol.records import LENGTH_END, BatchHeader, batch_size_of, has_right_crc
from barnabas.storage.disk import File
from barnabas.storage.files.txn_index import AbortedTxn, TxnIndex
from barnabas.storage.log.segment import Segment
from barnabas.storage.log.segment_list import SegmentList
from barnabas.storage.producers.producer_snapshots import (
    ProducerSnapshots,
    aborted_entry,
    replaying,
)
from barnabas.storage.producers.producer_state import CompletedTxn


class Isolation(IntEnum):
    """A reader's isolation level, as in a Fetch request."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Slice(NamedTuple):
    """A part of one segment's file, which is sent unchanged."""

    file: File
    position: int
    size: int


class FetchData(NamedTuple):
    """The result of a read. `aborted` is None for read_uncommitted."""

    slice: Slice | None
    aborted: list[AbortedTxn] | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class LogReader:
    """The reading side of one log; it changes nothing but rebuilt indexes."""

    __slots__ = ("_segments", "_snapshots")

    def __init__(self, segments: SegmentList, snapshots: ProducerSnapshots) -> None:
        self._segments = segments
        self._snapshots = snapshots

    def slice(
        self, offset: int, limit: int, max_bytes: int, min_one_batch: bool
    ) -> tuple[Segment, Slice | None]:
        """The bytes from the batch with `offset` on and below `limit`, and their segment.

        Raises: CorruptLog.
        """
        segments = self._segments
        segment = segments.active
        position = segment.recent_position(offset)
        first_size = 0
        if position < 0:
            place = segments.find(offset)
            if place is None:
                return segment, None
            segment, position, first_size = place
        size = segments.end_position(segment, limit) - position
        if size > max_bytes:
            if not first_size:
                first_size = batch_size_of(segment.file.pread(LENGTH_END, position))
            if first_size > max_bytes:
                return segment, Slice(segment.file, position, first_size) if min_one_batch else None
            size = max_bytes
        return segment, Slice(segment.file, position, size) if size > 0 else None

    def aborted(self, offset: int, segment: Segment, slice: Slice) -> list[AbortedTxn]:
        """The aborted transactions between `offset` and the end of a slice of the segment.

        The offset index gives an upper bound of the end, so some may be at later offsets.
        """
        aborted: list[AbortedTxn] = []
        if segment is self._segments.active and not self.txn_index(segment):
            return aborted
        upper = segment.upper_bound_offset(slice.position + slice.size)
        if upper is None:
            upper = self._segments.end_of(segment)
        for later in self._segments.since(segment):
            if self.txn_index(later).collect(offset, upper, aborted):
                break
        return aborted

    def txn_index(self, segment: Segment) -> TxnIndex:
        """The aborted index of a segment, rebuilt where the file is not trusted.

        Raises: BuildPutOff, only where `IndexCache.puts_off`; CorruptLog.
        """
        if not segment.has_txn_index() and not segment.try_load_txn_index():
            segment.check_builds_now(lambda: self._building(segment), is_for_aborted=True)
            for _ in self._building(segment):
                pass
        return segment.txn_index()

    def _building(self, segment: Segment) -> Iterator[None]:
        """Rebuild the aborted index of a segment, a slice at each step."""
        index, completed = TxnIndex(), list[CompletedTxn]()
        state = self._snapshots.latest(segment.base_offset, self._segments[0].base_offset, 0)
        for earlier in list(self._segments):
            if (
                self._segments.end_of(earlier) > state.end_offset
                and earlier.base_offset < segment.base_offset
            ):
                yield from replaying(state, earlier, state.end_offset, segment.base_offset, 0, [])
                if segment.is_forgotten:
                    return
        end_offset = self._segments.end_offset
        yield from replaying(state, segment, segment.base_offset, end_offset, 0, completed)
        if segment.is_forgotten:
            return
        for transaction in completed:
            if transaction.aborted:
                index.append(aborted_entry(transaction))
        segment.set_txn_index(index)

    def batches(self, from_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Each whole batch in order, from the one with `from_offset` on.

        Raises: CorruptLog, also where a checksum is wrong.
        """
        is_there = from_offset < self._segments.end_offset
        place = self._segments.find(from_offset) if is_there else None
        if place is None:
            return
        for segment in self._segments.since(place.segment):
            start = place.position if segment is place.segment else 0
            for position, header in segment.headers(start):
                batch = segment.file.pread(header.size_bytes, position)
                if not has_right_crc(batch, header):
                    raise segment.corrupt(position, "the CRC of a batch is wrong")
                yield header, batch
