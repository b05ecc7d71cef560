"""Offsets by time in a log that Apache Kafka wrote; the times are those of expected.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.storage_kafka_log import KAFKA, kafka_log
from helpers.storage_logs import NOW_MS, batch, new_log

from barnabas.storage.log import Log

RECORDS = json.loads((KAFKA.parent / "expected.json").read_text())["plain"]["0"]["records"]
BASE_MS = 1700000000000


@pytest.fixture
def plain(tmp_path: Path) -> Log:
    return kafka_log(tmp_path, "plain")


@pytest.mark.parametrize("timestamp", [0, BASE_MS, BASE_MS + 1, BASE_MS + 26, BASE_MS + 2001])
def test_the_first_record_that_is_not_older(plain: Log, timestamp: int) -> None:
    expected = next((time, offset, 0) for offset, time, *_ in RECORDS if time >= timestamp)
    assert plain.offset_for_timestamp(timestamp) == expected


def test_there_is_none_after_the_youngest(plain: Log) -> None:
    assert plain.offset_for_timestamp(BASE_MS + 4235) is None


def test_a_bound_hides_what_is_not_stable_yet(plain: Log) -> None:
    assert plain.offset_for_timestamp(BASE_MS + 26, upper_bound_offset=2) is not None
    assert plain.offset_for_timestamp(BASE_MS + 26, upper_bound_offset=1) is None


def test_what_is_below_the_log_start_is_not_found(plain: Log) -> None:
    plain.delete_records_before(15)
    expected = next((time, offset, 0) for offset, time, *_ in RECORDS if offset >= 15)
    assert plain.offset_for_timestamp(0) == expected


def test_the_record_of_the_highest_time(plain: Log, tmp_path: Path) -> None:
    """KIP-734: of txn-0 it is the last marker, which Kafka's time index has at 16 after 31."""
    assert plain.offset_of_max_timestamp() == (BASE_MS + 4234, 49, 0)
    txn = kafka_log(tmp_path / "again")
    assert txn.offset_of_max_timestamp() == (1795222689718, 47, 0)
    assert txn.offset_of_max_timestamp(upper_bound_offset=47) is None


def test_the_highest_time_may_be_of_no_batch_where_the_index_says(tmp_path: Path) -> None:
    """Kafka's time index has the offset of the last record of the batch or, in older versions, of
    one before it: what is told is the first record of the time.
    """
    _, log = new_log(tmp_path)
    for timestamp in (NOW_MS, NOW_MS + 9, NOW_MS + 9, NOW_MS + 5):
        log.append(batch([b"a", b"b"], timestamp=timestamp), now_ms=NOW_MS)
    assert log.offset_of_max_timestamp() == (NOW_MS + 9, 2, 0)
    segment = log.segments.active
    segment.load_times()
    segment.max_timestamp_offset = 0
    assert log.offset_of_max_timestamp() == (NOW_MS + 9, 2, 0)
