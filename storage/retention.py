"""Which segments a log lets go: by the log's start, by its size, by the age of the youngest record
in each.

Ages are by the wall clock, as in Apache Kafka: the records say when they were written by nothing
else. A clock that is wrong by a week for a minute deletes what is a week from its end.

Segments go from the oldest on, without gaps, none beyond the high watermark.
 A segment without any time counts as old as its file. The active segment goes too, unless
it is empty (a new one takes its place), but not for the log's start. Compacted logs lose what lies
below their start alone, unless their policy is also to delete. Source: KIP-107 (log start), Apache
Kafka's retention.ms and retention.bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.storage.log import Log
    from barnabas.storage.segment import Segment


def expired_segments(log: Log, wall_ms: int) -> list[Segment]:
    """The oldest segments, as many as go."""
    count = _below_start(log)
    if log.config.is_deleted:
        count = max(count, _beyond_size(log), _beyond_time(log, wall_ms))
    while count and _end_of(log, count - 1) > log.high_watermark:
        count -= 1  # it holds what is not on the disk yet, and no reader has seen
    return log.segments[:count]


def _end_of(log: Log, number: int) -> int:
    return (
        log.segments[number + 1].base_offset
        if number + 1 < len(log.segments)
        else log.log_end_offset
    )


def _below_start(log: Log) -> int:
    count = 0
    for following in log.segments[1:]:
        if following.base_offset > log.log_start_offset:
            break
        count += 1
    return count


def _beyond_size(log: Log) -> int:
    limit = log.config.retention_bytes
    if limit < 0:
        return 0
    surplus = log.size_bytes - limit
    count = 0
    if surplus > 0:
        log.check_sizes()
    for segment in log.segments:
        if surplus < segment.size or (segment is log.active and not segment.size):
            break
        surplus -= segment.size
        count += 1
    return count


def _beyond_time(log: Log, wall_ms: int) -> int:
    limit = log.config.retention_ms
    if limit < 0:
        return 0
    count = 0
    for number, segment in enumerate(log.segments):
        if not segment.size:
            if segment is log.active:
                break
            continue  # compaction emptied it: it goes with the one after it
        segment.load_times()
        youngest = (
            segment.max_timestamp if segment.max_timestamp >= 0 else segment.last_modified_ms()
        )
        if wall_ms - youngest <= limit:
            break
        count = number + 1
    return count
