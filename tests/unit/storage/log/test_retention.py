"""Which segments retention deletes, according to KIP-107 (log start), retention.bytes and
retention.ms.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from helpers.storage_kafka_log import KAFKA, TXN_BASES, TXN_END, kafka_log
from helpers.storage_logs import NOW_MS

from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log import Log
from barnabas.storage.log.retention import expired_count
from barnabas.storage.log_config import LogConfig
from barnabas.storage.segments.segment_list import SegmentList

SIZES = [(KAFKA / "txn-0" / f"{base:020d}.log").stat().st_size for base in TXN_BASES]
# The highest timestamps of the four segments are those in Kafka's time indexes.
TIMES = [1700000000004, 1795222689507, 1700000000046, 1795222689718]


def count(
    path: Path, start: int = 0, high_watermark: int = TXN_END, wall_ms: int = 0, **of: object
) -> int:
    """The number of segments of Kafka's log that retention would delete."""
    return count_of(kafka_log(path).segments, start, high_watermark, wall_ms, **of)


def count_of(
    segments: SegmentList,
    start: int = 0,
    high_watermark: int = TXN_END,
    wall_ms: int = 0,
    most: int = sys.maxsize,
    **of: object,
) -> int:
    """The number of these segments that retention would delete. By default, retention has no time
    limit.
    """
    config = LogConfig(**({"retention_ms": -1} | of))  # type: ignore[arg-type]
    return expired_count(segments, config, start, high_watermark, wall_ms, most)


def with_empty_active(log: Log) -> SegmentList:
    log._roll(NOW_MS)
    assert not log.segments.active.batches.size
    return log.segments


@pytest.mark.parametrize(("start", "gone"), [(0, 0), (2, 0), (3, 1), (30, 2), (31, 3), (49, 3)])
def test_segments_below_the_log_start_are_deleted_except_the_active_one(
    tmp_path: Path, start: int, gone: int
) -> None:
    assert count(tmp_path, start) == gone
    assert count(tmp_path, start, cleanup_policy=frozenset({"compact"})) == gone


@pytest.mark.parametrize(
    ("most", "gone"),
    [(sum(SIZES), 0), (sum(SIZES[1:]) + 1, 0), (sum(SIZES[1:]), 1), (SIZES[3], 3), (0, 4)],
)
def test_the_oldest_are_deleted_while_the_rest_still_has_retention_bytes(
    tmp_path: Path, most: int, gone: int
) -> None:
    assert count(tmp_path, retention_bytes=most) == gone


def test_the_oldest_are_deleted_by_the_time_of_their_latest_record(tmp_path: Path) -> None:
    assert count(tmp_path, wall_ms=TIMES[0] + 1000, retention_ms=1000) == 0
    assert count(tmp_path, wall_ms=TIMES[0] + 1001, retention_ms=1000) == 1
    later = TIMES[2] + 50_000
    assert count(tmp_path, wall_ms=later, retention_ms=1000) == 1, "the second keeps the third"
    assert count(tmp_path, wall_ms=TIMES[3] + 1001, retention_ms=1000) == 4


def test_a_log_that_is_only_compacted_deletes_nothing_by_size_or_age(tmp_path: Path) -> None:
    compacted = {"cleanup_policy": frozenset({"compact"})}
    assert count(tmp_path, retention_bytes=0, **compacted) == 0
    assert count(tmp_path, wall_ms=TIMES[3] * 2, retention_ms=1, **compacted) == 0


def test_what_no_reader_has_seen_stays(tmp_path: Path) -> None:
    assert count(tmp_path, high_watermark=48, retention_bytes=0) == 3
    assert count(tmp_path, high_watermark=27, retention_bytes=0) == 1


def test_where_nothing_goes_it_does_not_matter_what_readers_have_seen(tmp_path: Path) -> None:
    assert count(tmp_path, high_watermark=0) == 0


@pytest.mark.parametrize(
    "reason", [{"start": 49}, {"retention_bytes": 0}, {"wall_ms": 2 * TIMES[3], "retention_ms": 1}]
)
def test_no_more_go_at_once_than_are_asked_for(tmp_path: Path, reason: dict[str, int]) -> None:
    segments = kafka_log(tmp_path).segments
    assert [count_of(segments, most=most, **reason) for most in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("reason", [{"retention_bytes": 0}, {"retention_ms": 0, "wall_ms": 10**13}])
def test_an_active_segment_stays_that_is_empty(tmp_path: Path, reason: dict[str, int]) -> None:
    segments = with_empty_active(kafka_log(tmp_path))
    assert count_of(segments, **reason) == len(segments) - 1 == 4


@pytest.mark.parametrize("reason", [{"retention_bytes": 0}, {"retention_ms": 0, "wall_ms": 10**13}])
def test_a_segment_that_compaction_emptied_does_not_stop_retention(
    tmp_path: Path, reason: dict[str, int]
) -> None:
    segments = list(kafka_log(tmp_path).segments)
    for emptied in segments[0], segments[2]:
        emptied.batches.truncate(0)
    assert count_of(SegmentList(segments, TXN_END), **reason) == 4


def test_records_may_be_kept_for_ever(tmp_path: Path) -> None:
    assert count(tmp_path, wall_ms=10**13, retention_bytes=-1, retention_ms=-1) == 0


def test_records_may_be_kept_for_no_time_at_all(tmp_path: Path) -> None:
    assert count(tmp_path, wall_ms=TIMES[0] + 1, retention_ms=0) == 1
    assert count(tmp_path, wall_ms=TIMES[0], retention_ms=0) == 0


@pytest.mark.parametrize(("surplus", "is_asked"), [(-1, False), (0, False), (1, True)])
def test_the_sizes_of_the_files_are_checked_only_above_retention_bytes(
    tmp_path: Path, surplus: int, is_asked: bool
) -> None:
    """Below the limit, retention does not notice a file with a wrong size. Other checks find it."""
    segments = kafka_log(tmp_path).segments
    with Path(segments[1].batches.path(".log")).open("ab") as file:
        file.write(b"more")
    with pytest.raises(CorruptLog) if is_asked else nullcontext():
        assert count_of(segments, retention_bytes=sum(SIZES) - surplus) == 0


def test_timestamp_0_is_a_valid_time_for_retention(tmp_path: Path) -> None:
    """The time of the file is used only if none of the records has a timestamp."""
    segments = kafka_log(tmp_path).segments
    segments[0].indexes.max_timestamp, segments[0].indexes.has_times = 0, True
    assert count_of(segments, wall_ms=1_001, retention_ms=1_000) == 1
    assert count_of(segments, wall_ms=1_000, retention_ms=1_000) == 0


def test_without_times_a_segment_is_as_old_as_its_file(tmp_path: Path) -> None:
    segments = kafka_log(tmp_path).segments
    for segment in segments:
        segment.indexes.max_timestamp, segment.indexes.has_times = -1, True
        os.utime(segment.batches.path(".log"), (500, 500))
    config = LogConfig(retention_ms=1000)
    assert expired_count(segments, config, 0, TXN_END, 501_000) == 0
    assert expired_count(segments, config, 0, TXN_END, 501_001) == 4
