"""Look-ups by time in one log: the first record at or after a time, and the record with the highest
timestamp.

The steps of a look-up, each of which uses the previous result:

    segment     the first whose highest timestamp is not before the time
    position    of the batch that the time index gives, or of the segment's first batch
    batch       the first one from there on whose max_timestamp is not before the time
    record      within the batch: `time_search`, which may be postponed if it takes long

If the records of the first batch found are below the log start offset, or cannot be read, the
search continues with the next batch. Apache Kafka ends the search there.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from barnabas.protocol.compression import TooLargeError
from barnabas.protocol.records import HEADER_SIZE, BatchHeader
from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_reader import reading
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segment_list import SegmentList
from barnabas.storage.segments.time_search import BatchSearch, Searched

logger = logging.getLogger(__name__)


class TimestampOffset(NamedTuple):
    """A record's timestamp, offset and leader epoch."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimeLookup:
    """One look-up by time in the current state of a log.

    searched: the results of long searches. If this is given, long searches are postponed, and each
    look-up may raise SearchTakesLong.
    """

    __slots__ = (
        "_log_start_offset",
        "_max_decompressed_bytes",
        "_partition",
        "_searched",
        "_segments",
    )

    def __init__(
        self,
        partition: TopicIdPartition,
        segments: SegmentList,
        log_start_offset: int,
        max_decompressed_bytes: int,
        searched: Searched | None,
    ) -> None:
        self._partition = partition
        self._segments = segments
        self._log_start_offset = log_start_offset
        self._max_decompressed_bytes = max_decompressed_bytes
        self._searched = searched

    def first_at(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp is not before `timestamp`; None if there is none."""
        for segment in list(self._segments):
            segment.indexes.load_times()
            if segment.indexes.max_timestamp < timestamp or self._is_below_start(segment):
                continue
            record = self._first_in_segment(segment, timestamp)
            if record is not None:
                return record
        return None

    def highest(self) -> TimestampOffset | None:
        """The first record with the highest timestamp (KIP-734); None if there are no
        timestamps.
        """
        best: tuple[int, int, Segment] | None = None
        for segment in self._segments:
            if self._is_below_start(segment):
                continue
            segment.indexes.load_times()
            timestamp, offset = segment.indexes.max_timestamp, segment.indexes.max_timestamp_offset
            if self._is_begun_below_start(segment, offset):
                timestamp, offset = self._highest_from_start(segment)
            if timestamp >= 0 and (best is None or timestamp > best[0]):
                best = timestamp, offset, segment
        if best is None:
            return None
        timestamp, offset, segment = best
        place = segment.find(offset)
        if place is None:
            return None
        for position, header in segment.batches.headers(place.position):
            if header.max_timestamp >= timestamp and header.record_count:
                record = self._first_in_batch(segment, position, header, timestamp)
                if record is not None:
                    return record
        return None

    def _is_below_start(self, segment: Segment) -> bool:
        return self._segments.end_of(segment) <= self._log_start_offset

    def _is_begun_below_start(self, segment: Segment, offset: int) -> bool:
        """Whether the batch that contains the offset begins below the log start."""
        if segment.base_offset >= self._log_start_offset:
            return False
        place = segment.find(offset)
        return place is None or place.base_offset < self._log_start_offset

    def _highest_from_start(self, segment: Segment) -> tuple[int, int]:
        """The highest timestamp of the records that are not below the log start, and the offset of
        the record that has it.
        """
        place = segment.find(self._log_start_offset)
        highest, at = -1, segment.base_offset
        if place is not None:
            for position, header in segment.batches.headers(place.position):
                timestamp = header.max_timestamp if header.record_count else -1
                if timestamp > highest and header.base_offset < self._log_start_offset:
                    timestamp = self._highest_in_rest(segment, position, header)
                if timestamp > highest:
                    highest, at = timestamp, header.last_offset
        return highest, at

    def _highest_in_rest(self, segment: Segment, position: int, header: BatchHeader) -> int:
        """The highest timestamp in the part of a batch that is not below the log start.

        It is the batch's timestamp, or is found by bisection; -1 if that part has no records.
        """
        least, beyond = -1, header.max_timestamp + 1
        timestamp = header.max_timestamp
        while least + 1 < beyond:
            record = self._first_in_batch(segment, position, header, timestamp)
            if record is None:
                beyond = timestamp
            else:
                least = record.timestamp
            timestamp = (least + beyond) // 2
        return least

    def _first_in_segment(self, segment: Segment, timestamp: int) -> TimestampOffset | None:
        """The first record of the segment whose timestamp is not before `timestamp`; None if there
        is none.
        """
        # No batch up to and including the batch of an entry has a higher timestamp than the entry.
        entry = segment.indexes.time_index().lookup(timestamp - 1)
        indexed = segment.base_offset + entry.relative_offset if entry else segment.base_offset
        place = segment.find(max(indexed, self._log_start_offset))
        if place is None:
            return None
        for position, header in segment.batches.headers(place.position):
            if header.max_timestamp >= timestamp and header.record_count:
                record = self._first_in_batch(segment, position, header, timestamp)
                if record is not None:
                    return record
        return None

    def _first_in_batch(
        self, segment: Segment, position: int, header: BatchHeader, timestamp: int
    ) -> TimestampOffset | None:
        """The first record of a batch whose timestamp is not before `timestamp`.

        The result is None if the records are unreadable. If the batch exceeds the maximum
        decompressed size, its first offset is returned. A reader that begins there misses no
        record.
        """
        least_time = -(1 << 63) if header.is_log_append_time else timestamp - header.base_timestamp
        least_delta = max(self._log_start_offset - header.base_offset, 0)
        search = BatchSearch(
            header.base_offset,
            header.crc,
            least_time,
            least_delta,
            header.codec,
            header.record_count,
            self._max_decompressed_bytes,
            lambda: segment.batches.file.pread(
                header.size_bytes - HEADER_SIZE, position + HEADER_SIZE
            ),
        )
        result = search.result(self._searched)
        if isinstance(result, TooLargeError):
            logger.warning(
                "%s: a search by time gives the batch at offset %d, not a record in it: %s",
                self._partition,
                header.base_offset,
                result,
            )
            is_late = header.base_timestamp < timestamp or header.is_log_append_time
            time = header.max_timestamp if is_late else header.base_timestamp
            return TimestampOffset(time, header.base_offset + least_delta, header.leader_epoch)
        if isinstance(result, Exception):
            logger.warning(
                "%s: a search by time skips the batch at offset %d, which cannot be read: %s",
                self._partition,
                header.base_offset,
                result,
            )
            return None
        if result is None or not 0 <= result[1] <= header.last_offset_delta:
            return None
        time_delta, offset_delta = result
        time = (
            header.max_timestamp
            if header.is_log_append_time
            else header.base_timestamp + time_delta
        )
        return TimestampOffset(time, header.base_offset + offset_delta, header.leader_epoch)


def offset_for_timestamp(
    log: Log,
    timestamp: int,
    *,
    upper_bound_offset: int | None = None,
    searched: Searched | None = None,
) -> TimestampOffset | None:
    """The first record whose timestamp is not before `timestamp`.

    Takes:  searched, the results of long searches; if it is not given, no search is postponed.
    Gives:  None if there is no such record below the bound.
    Raises: SearchTakesLong, only if `searched` is given; KafkaError KAFKA_STORAGE_ERROR if no
            descriptor is free.
    """
    with reading(log):
        record = _lookup_in(log, searched).first_at(timestamp)
    return _below(record, upper_bound_offset)


def offset_of_max_timestamp(
    log: Log, *, upper_bound_offset: int | None = None, searched: Searched | None = None
) -> TimestampOffset | None:
    """The first record with the highest timestamp (KIP-734); None if there are no timestamps.

    Takes, Gives, Raises: as `offset_for_timestamp`.
    """
    with reading(log):
        record = _lookup_in(log, searched).highest()
    return _below(record, upper_bound_offset)


def _lookup_in(log: Log, searched: Searched | None) -> TimeLookup:
    """A look-up in the current state of the log."""
    return TimeLookup(
        log.topic_id_partition,
        log.segments,
        log.log_start_offset,
        log.config.max_decompressed_bytes,
        searched,
    )


def _below(record: TimestampOffset | None, bound: int | None) -> TimestampOffset | None:
    if record is None or bound is None or record.offset < bound:
        return record
    return None
