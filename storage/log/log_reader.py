"""Reads a log: slices of its files for fetches, the aborted transactions in the slices, whole
batches.

A slice is a part of one segment's file, which is sent unchanged. It begins with the batch that
contains the offset, and may end within a batch. It ends at the first of these:

    max_bytes                    of the fetch; on request the first batch is returned whole
    the segment's end            the next fetch continues in the next segment
    the limit of the reader      the last stable offset for read_committed, otherwise the high
                                 watermark
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import LENGTH_END, BatchHeader, batch_size_of, has_right_crc
from barnabas.storage.disk import Slice, is_out_of_descriptors
from barnabas.storage.files.txn_index import AbortedTxn, TxnIndex
from barnabas.storage.producers.producer_snapshots import (
    ProducerSnapshots,
    aborted_entry,
    replaying,
)
from barnabas.storage.producers.producer_state import CompletedTxn
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segment_list import SegmentList

logger = logging.getLogger(__name__)


_new = tuple.__new__  # makes a NamedTuple without its constructor, which is a function of Python


class Isolation(IntEnum):
    """A reader's isolation level, as in a Fetch request."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FetchData(NamedTuple):
    """The result of a read. `aborted` is None for read_uncommitted."""

    slice: Slice | None
    aborted: list[AbortedTxn] | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class LogReader:
    """The reading side of one log. It changes nothing, except that it rebuilds indexes."""

    __slots__ = ("_segments", "_snapshots")

    def __init__(self, segments: SegmentList, snapshots: ProducerSnapshots) -> None:
        self._segments = segments
        self._snapshots = snapshots

    def slice(
        self, offset: int, limit: int, max_bytes: int, min_one_batch: bool
    ) -> tuple[Segment, Slice | None]:
        """The bytes from the batch with `offset` up to `limit`, and the segment that contains them.

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
        size, file = segments.end_position(segment, limit) - position, segment.batches.file
        if size > max_bytes:
            if not first_size:
                first_size = batch_size_of(file.pread(LENGTH_END, position))
            if first_size > max_bytes:
                return segment, Slice(file, position, first_size) if min_one_batch else None
            size = max_bytes
        return segment, _new(Slice, (file, position, size)) if size > 0 else None

    def aborted(self, offset: int, segment: Segment, slice: Slice) -> list[AbortedTxn]:
        """The aborted transactions between `offset` and the end of a slice of the segment.

        The end of the slice is only known as an upper bound from the offset index. Some of the
        transactions may therefore be at later offsets.
        """
        aborted: list[AbortedTxn] = []
        if segment is self._segments.active and not self.txn_index(segment):
            return aborted
        upper = segment.indexes.upper_bound_offset(slice.position + slice.size)
        if upper is None:
            upper = self._segments.end_of(segment)
        for later in self._segments.since(segment):
            if self.txn_index(later).collect(offset, upper, aborted):
                break
        return aborted

    def txn_index(self, segment: Segment) -> TxnIndex:
        """The aborted index of a segment, which is rebuilt if the file is not trusted.

        Raises: BuildDeferred, only if `IndexCache.defers_builds` is set; CorruptLog.
        """
        indexes = segment.indexes
        if not indexes.has_txn_index() and not indexes.try_load_txn_index():
            indexes.check_builds_now(lambda: self._building(segment), is_for_aborted=True)
            for _ in self._building(segment):
                pass
        return indexes.txn_index()

    def _building(self, segment: Segment) -> Iterator[None]:
        """Rebuild the aborted index of a segment, one slice in each step."""
        index, completed = TxnIndex(), list[CompletedTxn]()
        state = self._snapshots.latest(segment.base_offset, self._segments[0].base_offset, 0)
        for earlier in list(self._segments):
            if (
                self._segments.end_of(earlier) > state.end_offset
                and earlier.base_offset < segment.base_offset
            ):
                yield from replaying(state, earlier, state.end_offset, segment.base_offset, 0, [])
                if segment.indexes.is_forgotten:
                    return
        end_offset = self._segments.end_offset
        yield from replaying(state, segment, segment.base_offset, end_offset, 0, completed)
        if segment.indexes.is_forgotten:
            return
        for transaction in completed:
            if transaction.aborted:
                index.append(aborted_entry(transaction))
        segment.indexes.set_txn_index(index)

    def has_marker_before(self, first_offset: int, producer_id: int, decided_ms: int) -> bool:
        """Whether the producer's last marker before an offset belongs to the given decision, or to
        a later one.

        The base timestamp of a marker is the time of its decision. If cleaning has replaced it by a
        delete horizon (KIP-534), the record's timestamp is used.
        """
        for segment in reversed(self._segments):
            if segment.base_offset >= first_offset:
                continue
            last: BatchHeader | None = None
            for _, header in segment.batches.headers():
                if header.base_offset >= first_offset:
                    break
                if header.producer_id == producer_id and header.is_control:
                    last = header
            if last is not None:
                is_cleaned = last.delete_horizon_ms is not None
                return (last.max_timestamp if is_cleaned else last.base_timestamp) >= decided_ms
        return False

    def batches(self, from_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Iterate over all whole batches in order, from the one with `from_offset` on.

        Raises: CorruptLog, also if a checksum is wrong.
        """
        is_there = from_offset < self._segments.end_offset
        place = self._segments.find(from_offset) if is_there else None
        if place is None:
            return
        for segment in self._segments.since(place.segment):
            start = place.position if segment is place.segment else 0
            for position, header in segment.batches.headers(start):
                batch = segment.batches.file.pread(header.size_bytes, position)
                if not has_right_crc(batch, header):
                    raise segment.batches.corrupt(position, "the CRC of a batch is wrong")
                yield header, batch

    def transactional(self, from_offset: int) -> Iterator[tuple[BatchHeader, bytes | None]]:
        """Iterate over the headers of transactional batches, from the one with `from_offset` on.
        With a marker comes its batch.

        Raises: CorruptLog.
        """
        is_there = from_offset < self._segments.end_offset
        place = self._segments.find(from_offset) if is_there else None
        if place is None:
            return
        for segment in self._segments.since(place.segment):
            start = place.position if segment is place.segment else 0
            for position, header in segment.batches.headers(start):
                if header.is_control:
                    yield header, segment.batches.file.pread(header.size_bytes, position)
                elif header.is_transactional:
                    yield header, None


@contextmanager
def reading(log: object) -> Iterator[None]:
    """A context in which the files of a log are read for a request.

    Raises: KafkaError KAFKA_STORAGE_ERROR if no descriptor is free, which is not an error of the
            disk.
    """
    try:
        yield
    except OSError as error:
        raise unreadable(log, error) from error


def unreadable(log: object, error: OSError) -> Exception:
    """The error for a request that could not read a log."""
    if not is_out_of_descriptors(error):
        return error
    logger.warning("%r cannot be read now: %s", log, error)
    return KafkaError(Code.KAFKA_STORAGE_ERROR, str(error))
