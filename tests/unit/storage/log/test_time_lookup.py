"""Offsets by time in a log that Apache Kafka wrote. The timestamps are those in expected.json."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from helpers.storage_cleaning import COMPACTED, compact, empty_batches, put
from helpers.storage_kafka_log import KAFKA, kafka_log
from helpers.storage_logs import (
    NOW_MS,
    TOPIC_ID,
    append_unchecked,
    batch,
    new_log,
    open_manager,
)

from barnabas.protocol.records import HEADER_SIZE, records_of
from barnabas.storage.files.checkpoints import MANIFEST_NAME
from barnabas.storage.log.log import Log
from barnabas.storage.log.time_lookup import (
    TimeLookup,
    TimestampOffset,
    offset_for_timestamp,
    offset_of_max_timestamp,
)
from barnabas.storage.segments.time_search import BatchSearch

RECORDS = json.loads((KAFKA.parent / "expected.json").read_text())["plain"]["0"]["records"]
BASE_MS = 1700000000000


@pytest.fixture
def plain(tmp_path: Path) -> Log:
    return kafka_log(tmp_path, "plain")


@pytest.fixture
def searched_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that collects the base offsets of the batches whose records are searched."""
    offsets: list[int] = []
    run = BatchSearch.run

    def noting(self: BatchSearch, data: bytes, most_bytes: int) -> object:
        offsets.append(self.base_offset)
        return run(self, data, most_bytes)

    monkeypatch.setattr(BatchSearch, "run", noting)
    return offsets


def emptied(timestamp: int) -> bytes:
    """A batch of three records after compaction. Only its header is left, with the timestamp of the
    removed records.
    """
    data = batch([b"v"] * 3, timestamp=timestamp, codec=1)[:HEADER_SIZE]
    data[8:12], data[57:61] = (HEADER_SIZE - 12).to_bytes(4), (0).to_bytes(4)
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4)
    return bytes(data)


@pytest.mark.parametrize("timestamp", [0, BASE_MS, BASE_MS + 1, BASE_MS + 26, BASE_MS + 2001])
def test_the_first_record_that_is_not_older(plain: Log, timestamp: int) -> None:
    expected = next((time, offset, 0) for offset, time, *_ in RECORDS if time >= timestamp)
    assert offset_for_timestamp(plain, timestamp) == expected


def test_there_is_none_after_the_youngest(plain: Log) -> None:
    assert offset_for_timestamp(plain, BASE_MS + 4235) is None


def test_a_bound_hides_what_is_not_stable_yet(plain: Log) -> None:
    assert offset_for_timestamp(plain, BASE_MS + 26, upper_bound_offset=2) is not None
    assert offset_for_timestamp(plain, BASE_MS + 26, upper_bound_offset=1) is None


def test_records_below_the_log_start_are_not_found_by_time(plain: Log) -> None:
    plain.delete_records_before(15)
    expected = next((time, offset, 0) for offset, time, *_ in RECORDS if offset >= 15)
    assert offset_for_timestamp(plain, 0) == expected


def test_offset_of_max_timestamp_gives_the_record_with_the_highest_time(
    plain: Log, tmp_path: Path
) -> None:
    """In txn-0, the record with the highest time is the last marker (KIP-734). Its entry in Kafka's
    time index has the relative offset 16, in the segment at 31.
    """
    assert offset_of_max_timestamp(plain) == (BASE_MS + 4234, 49, 0)
    txn = kafka_log(tmp_path / "again")
    assert offset_of_max_timestamp(txn) == (1795222689718, 47, 0)
    assert offset_of_max_timestamp(txn, upper_bound_offset=47) is None


def test_the_first_record_of_the_highest_time_may_precede_the_index_entrys_offset(
    tmp_path: Path,
) -> None:
    """The entry in Kafka's time index has the offset of the batch's last record or, in older
    versions, of an earlier record. The result must be the first record with this timestamp.
    """
    _, log = new_log(tmp_path)
    for timestamp in (NOW_MS, NOW_MS + 9, NOW_MS + 9, NOW_MS + 5):
        log.append(batch([b"a", b"b"], timestamp=timestamp), now_ms=NOW_MS)
    assert offset_of_max_timestamp(log) == (NOW_MS + 9, 2, 0)
    segment = log.segments.active
    segment.indexes.load_times()
    segment.indexes.max_timestamp_offset = 0
    assert offset_of_max_timestamp(log) == (NOW_MS + 9, 2, 0)


def test_the_search_for_the_highest_time_skips_older_and_emptied_batches(
    tmp_path: Path, searched_batches: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Older and emptied batches are not opened. An unreadable batch is logged."""
    _, log = new_log(tmp_path)
    log.append(batch(timestamp=BASE_MS), now_ms=NOW_MS)
    append_unchecked(log, emptied(BASE_MS + 9))
    spoilt = log.append(batch([b"v"] * 9, timestamp=BASE_MS + 9, codec=1), now_ms=NOW_MS)
    first = log.append(batch(timestamp=BASE_MS + 9), now_ms=NOW_MS).first_offset
    segment = log.segments.active
    place = segment.find(spoilt.first_offset)
    assert place is not None
    with Path(segment.batches.path(".log")).open("r+b") as file:
        file.seek(place.position + HEADER_SIZE)
        file.write(bytes(8))
    segment.indexes.max_timestamp_offset = 0
    assert offset_of_max_timestamp(log) == (BASE_MS + 9, first, 0)
    assert searched_batches == [spoilt.first_offset, first] and len(caplog.messages) == 1


# --- compared with a full search ----------------------------------------------------------------


def records_from(log: Log, offset: int) -> list[TimestampOffset]:
    """The timestamp and the offset of each record from `offset` on, including markers."""
    return [
        TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
        for header, data in log.read_batches()
        if header.record_count
        for record in records_of(data)
        if record.offset >= offset
    ]


@pytest.mark.parametrize(
    ("base_ms", "trend"), [(BASE_MS, 1), (BASE_MS, -1), (BASE_MS, 0), (2, 0), (-5, 0)]
)
@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("index_interval_bytes", [0, 150, 4096])
def test_look_ups_by_time_equal_a_search_of_all_records(
    tmp_path: Path,
    index_interval_bytes: int,
    append_time: bool,
    base_ms: int,
    trend: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The test compares each time and each log start, in segments with rising and falling times.
    The log may start within a batch, after its record with the highest time. Some batches are
    emptied. Times of 1970 are valid, and -1 means no time.
    """
    rng = random.Random(3)
    _, log = new_log(
        tmp_path,
        segment_bytes=500,
        index_interval_bytes=index_interval_bytes,
        timestamp_type_log_append=append_time,
    )
    for number in range(30):
        if number == 9:
            log.begin_leader_epoch(7)
        middle = base_ms + trend * number // 2
        if number % 8 == 5:
            append_unchecked(log, emptied(middle + 9))
            continue
        times = [max(middle + rng.randrange(-6, 7), -1) for _ in range(rng.randrange(1, 4))]
        log.append(batch([b"v"] * len(times), times=times), now_ms=max(times[0], 0))
    assert len(log.segments) >= 4
    for segment in log.segments:
        segment.indexes.rebuild(None)  # as after compaction, without the emptied batches
    for start in range(log.log_end_offset + 1):
        log.delete_records_before(start)
        records = records_from(log, start)
        for time in range(max(base_ms - 20, 0), base_ms + 20):
            expected = next((record for record in records if record.timestamp >= time), None)
            assert offset_for_timestamp(log, time) == expected, (start, time)
        highest = max((record.timestamp for record in records if record.timestamp >= 0), default=-2)
        first = next((record for record in records if record.timestamp == highest), None)
        assert offset_of_max_timestamp(log) == first, start
    assert not caplog.messages, "an emptied batch is not searched"


def test_segments_that_an_earlier_process_closed_are_found_by_time(tmp_path: Path) -> None:
    """Without a manifest, the times come from the indexes."""
    manager, log = new_log(tmp_path, segment_bytes=200)
    for time in (BASE_MS - 9, BASE_MS - 9, BASE_MS + 50, BASE_MS - 9, BASE_MS - 9, BASE_MS - 9):
        log.append(batch(timestamp=time), now_ms=NOW_MS)
    assert len(log.segments) == 3
    for ask in (lambda log: offset_for_timestamp(log, BASE_MS), offset_of_max_timestamp):
        manager.close(NOW_MS)
        Path(log.directory, MANIFEST_NAME).unlink()
        manager = open_manager(tmp_path, log.config)
        log = manager.logs["t", 0]
        assert ask(log) == (BASE_MS + 50, 2, 0)


# --- the batches read ---------------------------------------------------------------------------

PEAK = 9  # The batch with this number has the highest time. It is in the second segment.
ROW_BYTES = len(batch([b"a", b"b"]))


@pytest.fixture
def peaked(tmp_path: Path) -> Log:
    """Four segments of six batches, each of which has two records. The times rise to a peak, and
    then fall.
    """
    _, log = new_log(tmp_path, segment_bytes=6 * ROW_BYTES, index_interval_bytes=ROW_BYTES - 1)
    for number in range(24):
        time = BASE_MS - 2 * abs(number - PEAK)
        log.append(batch([b"a", b"b"], times=[time, time + 1]), now_ms=NOW_MS)
    assert log.segments.base_offsets == [0, 12, 24, 36]
    return log


def spoil(log: Log, *kept: range) -> None:
    """Overwrite all batches of all segments, except those with the numbers in `kept`."""
    for number, segment in enumerate(log.segments):
        with Path(segment.batches.path(".log")).open("r+b") as file:
            for row in range(6):
                if all(6 * number + row not in numbers for numbers in kept):
                    file.seek(row * ROW_BYTES)
                    file.write(bytes(ROW_BYTES))


@pytest.mark.parametrize("start", [0, 12, 14, 15, 2 * PEAK])
def test_the_search_for_the_highest_time_reads_only_its_batch(
    peaked: Log, searched_batches: list[int], start: int
) -> None:
    """The times and the indexes of the segments lead to the batch, unless it is below the log
    start.
    """
    peaked.delete_records_before(start)
    spoil(peaked, range(PEAK, PEAK + 1))
    assert offset_of_max_timestamp(peaked) == (BASE_MS + 1, 2 * PEAK + 1, 0)
    assert searched_batches == [2 * PEAK]


@pytest.mark.parametrize(
    ("start", "searched"),
    [
        (2 * PEAK + 1, [2 * PEAK, 2 * PEAK]),
        (2 * PEAK + 2, [2 * PEAK + 2]),
    ],
)
def test_with_the_highest_time_below_the_log_start_headers_are_searched(
    peaked: Log, searched_batches: list[int], start: int, searched: list[int]
) -> None:
    """Records are read only in the batch that contains the log start, and in the batch that has the
    highest time.
    """
    peaked.delete_records_before(start)
    best = BASE_MS + 1 if start % 2 else BASE_MS - 1
    assert offset_of_max_timestamp(peaked) == (best, 2 * (start // 2) + 1, 0)
    assert searched_batches == searched


def test_very_large_timestamps_are_found_exactly(tmp_path: Path) -> None:
    """Times of 2**62 and more are valid. The search for the highest time in the rest of a batch
    does not round them.
    """
    _, log = new_log(tmp_path)
    far = 1 << 62
    append_unchecked(log, batch([b"v"] * 3, times=[far + 9, far + 4, far + 5]))
    assert offset_of_max_timestamp(log) == (far + 9, 0, 0)
    log.delete_records_before(1)
    assert offset_of_max_timestamp(log) == (far + 5, 2, 0)
    assert offset_for_timestamp(log, far + 5) == (far + 5, 2, 0)
    assert offset_for_timestamp(log, far + 6) is None


def test_a_search_by_time_reads_from_the_last_index_entry_before_it(
    peaked: Log, searched_batches: list[int]
) -> None:
    """Segments that have only older times, or are below the log start, are not read."""
    spoil(peaked, range(PEAK - 1, PEAK + 1))
    assert offset_for_timestamp(peaked, BASE_MS) == (BASE_MS, 2 * PEAK, 0)
    peaked.delete_records_before(12)
    assert offset_for_timestamp(peaked, BASE_MS) == (BASE_MS, 2 * PEAK, 0)
    assert searched_batches == [2 * PEAK] * 2


@pytest.mark.parametrize("start", [24, 30])
def test_a_search_by_time_reads_nothing_below_the_log_start(
    peaked: Log, searched_batches: list[int], start: int
) -> None:
    peaked.delete_records_before(start)
    spoil(peaked, range(start // 2 - 1, start // 2 + 1))
    time = BASE_MS - 2 * (start // 2 - PEAK)
    assert offset_for_timestamp(peaked, BASE_MS - 40) == (time, start, 0)
    assert searched_batches == [start]


@pytest.mark.parametrize("start", [22, 23])
def test_a_search_by_time_continues_after_a_gap_at_the_end_of_a_segment(
    peaked: Log, start: int
) -> None:
    """Compaction removed the last batch of the segment, which contained the log start. The result
    is in the next segment.
    """
    peaked.delete_records_before(start)
    segment = peaked.segments[1]
    segment.batches.truncate(5 * ROW_BYTES)
    expected = (BASE_MS - 2 * (12 - PEAK), 24, 0)
    assert offset_for_timestamp(peaked, BASE_MS - 40) == expected
    assert offset_of_max_timestamp(peaked) == (expected[0] + 1, 25, 0)


def test_a_max_timestamp_offset_beyond_the_log_is_not_an_answer(peaked: Log) -> None:
    peaked.segments.active.indexes.max_timestamp = BASE_MS + 9
    peaked.segments.active.indexes.max_timestamp_offset = 48
    assert offset_of_max_timestamp(peaked) is None
    peaked.delete_records_before(38)
    expected = (BASE_MS - 2 * (19 - PEAK) + 1, 39, 0)
    assert offset_of_max_timestamp(peaked) == expected, "the headers are read then"


# --- batches without readable records ----------------------------------------------------------


def lookup(log: Log, start: int = 0, most_bytes: int = 1 << 20) -> TimeLookup:
    return TimeLookup(log.topic_id_partition, log.segments, start, most_bytes, None)


@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize(
    ("start", "time", "found"),
    [
        (0, BASE_MS + 9, (BASE_MS + 10, 1)),
        (0, BASE_MS + 10, (BASE_MS + 10, 1)),
        (0, BASE_MS + 11, (BASE_MS + 30, 1)),
        (0, BASE_MS + 30, (BASE_MS + 30, 1)),
        (2, BASE_MS + 30, (BASE_MS + 30, 2)),
        (2, BASE_MS + 10, (BASE_MS + 10, 2)),
    ],
)
def test_a_search_by_time_gives_the_first_offset_of_a_too_large_batch(
    tmp_path: Path,
    start: int,
    time: int,
    found: tuple[int, int],
    append_time: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The result has the first time of the batch or, if this is too early, its last time. A reader
    that begins there misses no record.
    """
    _, log = new_log(tmp_path, timestamp_type_log_append=append_time)
    log.begin_leader_epoch(4)
    log.append(batch(timestamp=BASE_MS), now_ms=BASE_MS)
    data = batch([bytes(900)] * 3, times=[BASE_MS + 10, BASE_MS + 30, BASE_MS + 20], codec=1)
    log.append(data, now_ms=BASE_MS + 30)
    expected = (BASE_MS + 30 if append_time else found[0], found[1], 4)
    assert lookup(log, start, 1_000).first_at(time) == expected
    assert len(caplog.messages) == 1
    assert "t-0: a search by time gives the batch at offset 1, not a record in it" in caplog.text


def test_a_search_by_time_skips_an_unreadable_batch_and_logs_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, log = new_log(tmp_path)
    data = batch([b"v"] * 9, timestamp=BASE_MS, codec=1)
    for _ in range(2):
        log.append(data, now_ms=NOW_MS)
    with Path(log.segments.active.batches.path(".log")).open("r+b") as file:
        file.seek(HEADER_SIZE)
        file.write(bytes(8))
    assert lookup(log).first_at(BASE_MS) == (BASE_MS, 9, 0)
    assert len(caplog.messages) == 1
    assert "t-0: a search by time skips the batch at offset 0, which cannot be read" in caplog.text


def test_a_record_beyond_the_last_offset_of_its_batch_is_not_found(tmp_path: Path) -> None:
    """The batch has three records, but its last offset is that of the second. The next batch has a
    record with the offset of the third.
    """
    _, log = new_log(tmp_path)
    data = batch([b"v"] * 3, times=[BASE_MS, BASE_MS, BASE_MS + 7])
    data[23:27] = (1).to_bytes(4)  # this field is the last offset delta
    append_unchecked(log, data)
    log.append(batch(timestamp=BASE_MS + 8), now_ms=NOW_MS)
    assert lookup(log).first_at(BASE_MS) == (BASE_MS, 0, 0)
    assert lookup(log).first_at(BASE_MS + 7) == (BASE_MS + 8, 2, 0)


def test_the_time_of_an_emptied_batch_is_not_the_highest_time(tmp_path: Path) -> None:
    """Compaction leaves the header of the batch, with the time of the removed records. The record
    with the highest time is below the log start.
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
    assert offset_of_max_timestamp(log) == (BASE_MS + 100, 2, 0)
