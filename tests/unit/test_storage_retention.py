"""Which segments go: KIP-107 (log start), and Apache Kafka's retention.bytes and retention.ms."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.storage_kafka_log import KAFKA, TXN_BASES, TXN_END, kafka_log

from barnabas.storage.log_config import LogConfig
from barnabas.storage.retention import expired_count

SIZES = [(KAFKA / "txn-0" / f"{base:020d}.log").stat().st_size for base in TXN_BASES]
# the highest timestamps of the four segments, as Kafka's time indexes have them
TIMES = [1700000000004, 1795222689507, 1700000000046, 1795222689718]


def count(
    path: Path, start: int = 0, high_watermark: int = TXN_END, wall_ms: int = 0, **of: object
) -> int:
    config = LogConfig(**({"retention_ms": -1} | of))  # type: ignore[arg-type]
    return expired_count(kafka_log(path).segments, config, start, high_watermark, wall_ms)


@pytest.mark.parametrize(("start", "gone"), [(0, 0), (2, 0), (3, 1), (30, 2), (31, 3), (49, 3)])
def test_what_is_below_the_log_start_goes_but_not_the_active_segment(
    tmp_path: Path, start: int, gone: int
) -> None:
    assert count(tmp_path, start) == gone
    assert count(tmp_path, start, cleanup_policy=frozenset({"compact"})) == gone


@pytest.mark.parametrize(
    ("most", "gone"),
    [(sum(SIZES), 0), (sum(SIZES[1:]) + 1, 0), (sum(SIZES[1:]), 1), (SIZES[3], 3), (0, 4)],
)
def test_the_oldest_go_while_the_others_still_have_the_size(
    tmp_path: Path, most: int, gone: int
) -> None:
    assert count(tmp_path, retention_bytes=most) == gone


def test_the_oldest_go_by_the_time_of_their_youngest_record(tmp_path: Path) -> None:
    assert count(tmp_path, wall_ms=TIMES[0] + 1000, retention_ms=1000) == 0
    assert count(tmp_path, wall_ms=TIMES[0] + 1001, retention_ms=1000) == 1
    later = TIMES[2] + 50_000
    assert count(tmp_path, wall_ms=later, retention_ms=1000) == 1, "the second keeps the third"
    assert count(tmp_path, wall_ms=TIMES[3] + 1001, retention_ms=1000) == 4


def test_nothing_goes_by_size_or_age_from_a_log_that_is_only_compacted(tmp_path: Path) -> None:
    compacted = {"cleanup_policy": frozenset({"compact"})}
    assert count(tmp_path, retention_bytes=0, **compacted) == 0
    assert count(tmp_path, wall_ms=TIMES[3] * 2, retention_ms=1, **compacted) == 0


def test_what_no_reader_has_seen_stays(tmp_path: Path) -> None:
    assert count(tmp_path, high_watermark=48, retention_bytes=0) == 3
    assert count(tmp_path, high_watermark=27, retention_bytes=0) == 1


def test_without_times_a_segment_is_as_old_as_its_file(tmp_path: Path) -> None:
    segments = kafka_log(tmp_path).segments
    for segment in segments:
        segment.max_timestamp, segment.has_times = -1, True
        os.utime(segment.path(".log"), (500, 500))
    config = LogConfig(retention_ms=1000)
    assert expired_count(segments, config, 0, TXN_END, 501_000) == 0
    assert expired_count(segments, config, 0, TXN_END, 501_001) == 4
