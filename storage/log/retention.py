"""Decides which segments a log deletes: by the log's start, by its size, by the age of its records.

Ages are measured by the wall clock, as in Apache Kafka, since records have no other time. If the
clock is a week ahead for a minute, segments that would expire within a week are deleted.

    reason        cleanup.policy    a segment is deleted when
    log start     any               its whole content is below the log start offset (KIP-107)
    size          has delete        the others still have retention.bytes without it
    age           has delete        its youngest record is older than retention.ms or, if it has no
                                    timestamps, its file is

Segments are deleted from the oldest on, without gaps, up to the high watermark. The active segment
may also be deleted for its size or age, unless it is empty. A new one then replaces it.
"""

from __future__ import annotations

import sys

from barnabas.storage.log_config import LogConfig
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segment_list import SegmentList


def expired_count(
    segments: SegmentList,
    config: LogConfig,
    log_start_offset: int,
    high_watermark: int,
    wall_ms: int,
    most: int = sys.maxsize,
) -> int:
    """The number of segments to delete, counted from the oldest. Raises: CorruptLog.

    Takes:  most, the number after which no further segment is examined.
    """
    count = _below_start(segments, log_start_offset, most)
    if config.is_deleted:
        count = max(
            count,
            _beyond_size(segments, config.retention_bytes, most),
            _beyond_time(segments, config.retention_ms, wall_ms, most),
        )
    while count and segments.end_of(segments[count - 1]) > high_watermark:
        count -= 1  # the segment has data that are not durable yet, and that no reader has seen
    return count


def _below_start(segments: SegmentList, log_start_offset: int, most: int) -> int:
    """The number of the oldest segments that are below the log start."""
    count = 0
    for following in segments[1:]:
        if following.base_offset > log_start_offset or count >= most:
            break
        count += 1
    return count


def _beyond_size(segments: SegmentList, retention_bytes: int, most: int) -> int:
    """The number of the oldest segments that can be deleted while the log keeps retention.bytes."""
    if retention_bytes < 0:
        return 0
    surplus = segments.size_bytes - retention_bytes
    count = 0
    if surplus > 0:
        segments.check_sizes()
    for segment in segments:
        size = segment.batches.size
        if surplus < size or count >= most or _is_empty_and_active(segments, segment):
            break
        surplus -= size
        count += 1
    return count


def _beyond_time(segments: SegmentList, retention_ms: int, wall_ms: int, most: int) -> int:
    """The number of the oldest segments whose records are all older than retention.ms."""
    if retention_ms < 0:
        return 0
    count = 0
    for number, segment in enumerate(segments):
        if count >= most:
            break
        if not segment.batches.size:
            # The segment is empty. If compaction emptied it, it is deleted with the next one;
            # otherwise it is the active segment.
            continue
        if wall_ms - _youngest_ms(segment) <= retention_ms:
            break
        count = number + 1
    return count


def _is_empty_and_active(segments: SegmentList, segment: Segment) -> bool:
    return segment is segments.active and not segment.batches.size


def _youngest_ms(segment: Segment) -> int:
    segment.indexes.load_times()
    youngest_ms = segment.indexes.max_timestamp
    return youngest_ms if youngest_ms >= 0 else segment.batches.last_modified_ms()
