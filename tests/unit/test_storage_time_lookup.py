"""Offsets by time in a log that Apache Kafka wrote; the times are those of expected.json."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.storage_cleaning import COMPACTED, compact, empty_batches, put
from helpers.storage_kafka_log import KAFKA, kafka_log
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, new_log, open_manager

from barnabas.protocol.records import records_of
from barnabas.storage.log import Log
from barnabas.storage.time_lookup import TimestampOffset

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


# --- beside a search of all records -------------------------------------------------------------


def records_from(log: Log, offset: int) -> list[TimestampOffset]:
    """Of every record, markers too, that is not below `offset`."""
    return [
        TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
        for header, data in log.read_batches()
        if header.record_count
        for record in records_of(data)
        if record.offset >= offset
    ]


@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("index_interval_bytes", [0, 150, 4096])
def test_what_is_found_is_what_a_search_of_all_records_finds(
    tmp_path: Path, index_interval_bytes: int, append_time: bool
) -> None:
    """For each time, from each log start, over segments whose times fall as well as rise.

    The log may start within a batch, behind its youngest record.
    """
    rng = random.Random(3)
    _, log = new_log(
        tmp_path,
        segment_bytes=500,
        index_interval_bytes=index_interval_bytes,
        timestamp_type_log_append=append_time,
    )
    for number in range(24):
        if number == 9:
            log.begin_leader_epoch(7)
        times = [BASE_MS + number // 2 + rng.randrange(-6, 7) for _ in range(rng.randrange(1, 4))]
        log.append(batch([b"v"] * len(times), times=times), now_ms=times[0])
    assert len(log.segments) >= 4
    for start in range(log.log_end_offset + 1):
        log.delete_records_before(start)
        records = records_from(log, start)
        for time in range(BASE_MS - 8, BASE_MS + 20):
            expected = next((record for record in records if record.timestamp >= time), None)
            assert log.offset_for_timestamp(time) == expected, (start, time)
        highest = max((record.timestamp for record in records), default=None)
        first = next((record for record in records if record.timestamp == highest), None)
        assert log.offset_of_max_timestamp() == first, start


def test_an_emptied_batch_has_no_highest_time_from_the_log_start_on(tmp_path: Path) -> None:
    """Compaction leaves its header, with the time of what was in it; the record of the highest time
    is below the log start.
    """
    config = replace(COMPACTED, segment_bytes=230)
    manager = open_manager(tmp_path, config)
    log = manager.create("t", 0, TOPIC_ID, config, NOW_MS)
    put(log, b"a", b"1", timestamp=BASE_MS + 900)
    put(log, b"k", b"1", pid=1, epoch=0, seq=0, timestamp=BASE_MS + 500)
    put(log, b"j", b"2", timestamp=BASE_MS + 100)
    put(log, b"k", b"2", timestamp=BASE_MS + 50)
    put(log, b"z", b"." * 150, timestamp=BASE_MS)
    put(log, b"z", b"." * 150, timestamp=BASE_MS)
    compact(manager, log)
    assert empty_batches(log) == [1]
    log.delete_records_before(1)
    assert log.offset_of_max_timestamp() == (BASE_MS + 100, 2, 0)
