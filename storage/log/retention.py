"""Which segments a log deletes: by its start, by its size, by the age of their records.

Ages are by the wall clock, as in Apache Kafka: the records say when they were written by nothing
else. A clock that is wrong by a week for a minute deletes what is a week from its end.

    reason        cleanup.policy    a segment goes when
    log start     any               all of it is below the log start offset (KIP-107)
    size          has delete        the others still have retention.bytes without it
    age           has delete        its youngest record is older than retention.ms; without any
                                    time, its file is

Segments go from the oldest on, without gaps, none beyond the high watermark. The active segment
goes too, unless it is empty (a new one takes its place), but not for the log's start.
"""

from __future__ import annotations

import sys

from barnabas.storage.log.segment import Segment
from barnabas.storage.log.segment_list import SegmentList
from barnabas.storage.log_config import LogConfig


def expired_count(
    segments: SegmentList,
    config: LogConfig,
    log_start_offset: int,
    high_watermark: int,
    wall_ms: int,
    most: int = sys.maxsize,
) -> int:
    """How many segments go, from the oldest on. Raises CorruptLog.

    Takes:  most, after how many no further one is looked at.
    """
    count = _below_start(segments, log_start_offset, most)
    if config.is_deleted:
        count = max(
            count,
            _beyond_size(segments, config.retention_bytes, most),
            _beyond_time(segments, config.retention_ms, wall_ms, most),
        )
    while count and segments.end_of(segments[count - 1]) > high_watermark:
        count -= 1  # it holds what is not on the disk yet, and no reader has seen
    return count


def _below_start(segments: SegmentList, log_start_offset: int, most: int) -> int:
    count = 0
    for following in segments[1:]:
        if following.base_offset > log_start_offset or count >= most:
            break
        count += 1
    return count


def _beyond_size(segments: SegmentList, retention_bytes: int, most: int) -> int:
    if retention_bytes < 0:
        return 0
    surplus = segments.size_bytes - retention_bytes
    count = 0
    if surplus > 0:
        segments.check_sizes()
    for segment in segments:
        if surplus < segment.size or count >= most or _is_empty_and_active(segments, segment):
            break
        surplus -= segment.size
        count += 1
    return count


def _beyond_time(segments: SegmentList, retention_ms: int, wall_ms: int, most: int) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for number, segment in enumerate(segments):
        if count >= most:
            break
        if not segment.size:
            continue  # compaction emptied it: it goes with the one after it; or it is active
        if wall_ms - _youngest_ms(segment) <= retention_ms:
            break
        count = number + 1
    return count


def _is_empty_and_active(segments: SegmentList, segment: Segment) -> bool:
    return segment is segments.active and not segment.size


def _youngest_ms(segment: Segment) -> int:
    segment.load_times()
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.last_modified_ms()
