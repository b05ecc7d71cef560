"""Records as the page shows them: their range, the limits on their size, and unreadable batches."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.storage_logs import NOW_MS, SECOND_MS, append_unchecked, batch, broken, new_log

from barnabas.console import records
from barnabas.console.records import MOST_SHOWN_BYTES, read_records, take_records
from barnabas.protocol.errors import Code, KafkaError
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    manager, log = new_log(tmp_path, segment_bytes=1 << 22)
    yield log
    manager.close(NOW_MS)


def test_a_record_is_shown_with_key_value_headers_and_batch_attributes(log: Log) -> None:
    log.append(
        batch([b"a", None], keys=[b"k", None], codec=1, headers=(("trace", b"1"), ("none", None))),
        now_ms=NOW_MS,
    )
    found = read_records(take_records(log, 0), 10)
    first, second = found["records"]
    assert first["key"] == {"size": 1, "base64": base64.b64encode(b"k").decode()}
    assert (second["key"], second["value"], second["offset"]) == (None, None, 1)
    assert first["headers"][1] == {"key": "none", "value": None} and first["header_count"] == 2
    assert (first["timestamp"], first["codec"], first["transactional"]) == (
        SECOND_MS,
        "gzip",
        False,
    )
    assert found["next_offset"] is None, "the log ends there"


def test_a_read_begins_within_a_batch_and_gives_at_most_the_wanted_records(log: Log) -> None:
    for _ in range(3):
        log.append(batch([b"v"] * 10), now_ms=NOW_MS)
    found = read_records(take_records(log, 7), 5)
    assert [row["offset"] for row in found["records"]] == [7, 8, 9, 10, 11]
    assert found["next_offset"] == 12


def test_a_marker_is_shown_with_its_kind_and_its_coordinator_epoch(log: Log) -> None:
    log.append(batch([b"v"], pid=5, epoch=0, seq=0, transactional=True), now_ms=NOW_MS)
    append_marker(
        log, producer_id=5, producer_epoch=0, coordinator_epoch=2, commit=False, now_ms=NOW_MS
    )
    data, marker = read_records(take_records(log, 0), 10)["records"]
    assert (data["transactional"], data["producer_id"]) == (True, 5)
    assert (marker["marker"], marker["coordinator_epoch"]) == ("abort", 2)


def test_a_long_value_is_cut_and_shown_with_its_full_size(log: Log) -> None:
    log.append(batch([b"x" * (MOST_SHOWN_BYTES + 1)]), now_ms=NOW_MS)
    (row,) = read_records(take_records(log, 0), 10)["records"]
    assert row["value"]["size"] == MOST_SHOWN_BYTES + 1
    assert len(base64.b64decode(row["value"]["base64"])) == MOST_SHOWN_BYTES


def test_a_batch_that_is_too_large_is_not_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(batch([b"x" * 5000]), now_ms=NOW_MS)
    monkeypatch.setattr(records, "MOST_READ_BYTES", 4000)
    found = read_records(take_records(log, 0), 10)
    assert found["records"] == [] and "and the console reads at most" in found["problem"]


def test_a_bomb_is_not_decompressed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_DECOMPRESSED_BYTES", 10_000)
    log.append(batch([b"first"]), now_ms=NOW_MS)
    log.append(batch([b"0" * 100_000], codec=1), now_ms=NOW_MS)
    log.append(batch([b"last"]), now_ms=NOW_MS)
    found = read_records(take_records(log, 0), 10)
    assert [row["offset"] for row in found["records"]] == [0]
    assert "offset 1 cannot be read" in found["problem"]
    assert found["next_offset"] == 2, "what is after it can be read"
    assert [row["offset"] for row in read_records(take_records(log, 2), 9)["records"]] == [2]


def test_a_batch_whose_checksum_is_wrong_is_not_shown(log: Log) -> None:
    append_unchecked(log, broken([b"v"], crc_xor=1))
    found = read_records(take_records(log, 0), 10)
    assert found["records"] == [] and "its CRC is wrong" in found["problem"]


def test_a_read_before_the_log_start_begins_there_and_one_beyond_the_end_is_refused(
    log: Log,
) -> None:
    log.append(batch([b"v"] * 4), now_ms=NOW_MS)
    log.append(batch([b"v"] * 4), now_ms=NOW_MS)
    log.delete_records_before(5)
    found = read_records(take_records(log, 0), 10)
    assert [row["offset"] for row in found["records"]] == [5, 6, 7]
    assert read_records(take_records(log, 8), 10)["records"] == []
    with pytest.raises(KafkaError) as refused:
        take_records(log, 9)
    assert refused.value.code is Code.OFFSET_OUT_OF_RANGE
