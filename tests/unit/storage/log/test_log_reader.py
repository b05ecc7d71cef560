"""Slices of a log that Apache Kafka wrote, and the aborted transactions in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import TXN_ABORTED, TXN_END, kafka_log
from helpers.storage_logs import NOW_MS, batch, new_log, open_manager

from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segment_indexes import SegmentIndexes
from barnabas.storage.segments.segment_list import SegmentList


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return kafka_log(tmp_path)


# (offset, limit, max_bytes, min_one_batch), (position, size); the batches are those in Kafka's dump
@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ((0, TXN_END, 1000, True), (0, 234)),
        ((1, TXN_END, 100, True), (78, 100)),
        ((1, TXN_END, 10, True), (78, 78)),
        ((44, 48, 1000, True), (1041, 321)),
        ((44, TXN_END, 1000, True), (1041, 398)),
    ],
)
def test_a_slice_ends_at_its_limit_its_size_or_the_segment(
    log: Log, wanted: tuple[int, int, int, bool], place: tuple[int, int]
) -> None:
    """`wanted` has the offset, the limit, the maximum number of bytes, and whether the slice must
    have at least one whole batch. `place` has the position and the size in the segment.
    """
    _, data = log.reader.slice(*wanted)
    assert data is not None and (data.position, data.size) == place


def test_a_first_batch_that_is_too_long_is_left_out_unless_asked_for(log: Log) -> None:
    assert log.reader.slice(1, TXN_END, 77, False)[1] is None
    assert log.reader.slice(1, TXN_END, 78, False)[1] is not None


def test_aborted_transactions_are_those_that_kafka_lists(log: Log) -> None:
    entries = [entry for segment in log.segments for entry in log.reader.txn_index(segment).entries]
    assert [(e.producer_id, e.first_offset, e.last_offset) for e in entries] == TXN_ABORTED


def test_a_slice_comes_with_the_aborted_transactions_from_its_offset_on(log: Log) -> None:
    segment, data = log.reader.slice(18, 48, 1 << 20, True)
    assert data is not None and segment.base_offset == 3
    assert (7, 16) in log.reader.aborted(18, segment, data)
    segment, data = log.reader.slice(41, 48, 1 << 20, True)
    assert data is not None
    assert log.reader.aborted(41, segment, data) == [(7, 40), (7, 44)]


def test_a_damaged_aborted_index_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    index = tmp_path / "txn-0" / "00000000000000000003.txnindex"
    log = kafka_log(tmp_path)
    original = index.read_bytes()
    index.write_bytes(original[:-1] + b"\7")
    entries = log.reader.txn_index(log.segments[1]).entries
    assert [(e.first_offset, e.last_offset) for e in entries] == [(16, 19)]
    assert index.read_bytes() == original


def test_a_lost_aborted_index_is_rebuilt_from_any_snapshot_that_is_left(tmp_path: Path) -> None:
    """Transactions extend over several segments, and some snapshots are within segments."""
    manager, log = new_log(tmp_path, segment_bytes=4 * 71)
    config, snapshots = log.config, dict[str, bytes]()
    for turn in range(12):
        log.append(batch(pid=turn, epoch=0, seq=0, transactional=True), now_ms=NOW_MS)
        if turn % 3 == 1:
            log.checkpoint()
            path = Path(log.snapshots.path(log.log_end_offset))
            snapshots[path.name] = path.read_bytes()
        if turn > 2:
            append_marker(
                log, producer_id=turn - 3, producer_epoch=0, coordinator_epoch=0,
                commit=turn % 4 == 0, now_ms=NOW_MS,
            )  # fmt: skip
    expected = [log.reader.txn_index(segment).entries for segment in log.segments]
    assert len([entries for entries in expected if entries]) > 3
    assert {int(name[:20]) for name in snapshots} - set(log.segments.base_offsets)
    manager.close(NOW_MS)
    for left in ([], *([name] for name in snapshots)):
        for suffix in (".snapshot", ".txnindex", ".manifest"):
            for path in Path(log.directory).glob(f"*{suffix}"):
                path.unlink()
        for name in left:
            Path(log.directory, name).write_bytes(snapshots[name])
        again = open_manager(tmp_path, config)
        log = again.logs["t", 0]
        assert [log.reader.txn_index(segment).entries for segment in log.segments] == expected
        again.close(NOW_MS)


@pytest.mark.parametrize("interval", [0, 4096])
def test_a_fetch_lists_what_was_aborted_in_it_wherever_the_markers_are(
    tmp_path: Path, interval: int
) -> None:
    """The transactions of four producers overlap, and extend over several segments."""
    _, log = new_log(tmp_path, segment_bytes=3 * 71, index_interval_bytes=interval)
    aborted: list[tuple[int, int, int]] = []
    for turn in range(16):
        first = log.append(batch(pid=turn, epoch=0, seq=0, transactional=True), now_ms=NOW_MS)
        assert first.first_offset == log.log_end_offset - 1
        for pid, length in ((turn - 1, 1), (turn - 4, 4)):
            if pid >= 0 and (pid % 2 == 0) == (length == 1):
                start = log.producer_state.first_offset_of_transaction(pid)
                assert start is not None
                marker = append_marker(
                    log, producer_id=pid, producer_epoch=0, coordinator_epoch=0,
                    commit=pid % 3 == 0, now_ms=NOW_MS,
                )  # fmt: skip
                if pid % 3:
                    aborted.append((pid, start, marker))
    assert len(log.segments) > 8 and len(aborted) > 6
    for offset in range(log.last_stable_offset):
        found = log.read(offset, max_bytes=1 << 20, isolation=1, min_one_batch=True)
        assert found.slice is not None and found.aborted is not None
        last = max(
            header.last_offset
            for segment in log.segments
            if segment.batches.file is found.slice.file
            for position, header in segment.batches.headers()
            if position < found.slice.position + found.slice.size
        )
        touching = [(pid, at) for pid, at, end in aborted if end >= offset and at <= last]
        assert set(touching) <= set(found.aborted), f"a fetch from {offset} to {last}"
        assert set(found.aborted) <= {(pid, at) for pid, at, end in aborted if end >= offset}


def test_batches_are_read_whole_and_their_checksums_verified(log: Log) -> None:
    assert [header.base_offset for header, _ in log.reader.batches(26)] == list(range(26, TXN_END))
    path = Path(log.segments.active.batches.path(".log"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="CRC"):
        list(log.reader.batches(26))
    assert list(log.reader.batches(TXN_END)) == []


def test_transactions_aborted_after_the_slice_are_not_listed(tmp_path: Path) -> None:
    """These transactions can be omitted if the offset index shows the end of the slice."""
    _, log = new_log(tmp_path, index_interval_bytes=1)
    for number in range(6):
        log.append(batch(pid=1, epoch=0, seq=number, transactional=True), now_ms=NOW_MS)
        append_marker(
            log, producer_id=1, producer_epoch=0, coordinator_epoch=0, commit=False, now_ms=NOW_MS
        )
    for size, expected in ((10_000, [0, 2, 4, 6, 8, 10]), (1, [0])):
        aborted = log.read(0, max_bytes=size, isolation=1, min_one_batch=True).aborted
        assert aborted is not None and [entry.first_offset for entry in aborted] == expected


@pytest.mark.parametrize(
    ("offset", "limit"), [(TXN_END, TXN_END), (TXN_END + 5, TXN_END), (44, 44), (44, 40), (0, 0)]
)
def test_a_slice_at_its_limit_or_beyond_the_end_is_empty(log: Log, offset: int, limit: int) -> None:
    assert log.reader.slice(offset, limit, 1000, True)[1] is None


def test_the_batches_at_the_end_are_found_without_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most fetches read the newest batches, one of which may be the first of a segment."""
    log = new_log(tmp_path)[1]
    for _ in range(3):
        log.append(batch(), now_ms=NOW_MS)

    def refuse(segments: SegmentList, offset: int) -> None:
        raise AssertionError("the batch is looked up")

    monkeypatch.setattr(SegmentList, "find", refuse)
    size = len(batch())
    for offset in range(3):
        data = log.reader.slice(offset, 3, 1000, True)[1]
        assert data is not None
        assert (data.position, data.size) == (offset * size, (3 - offset) * size)


def test_without_aborted_transactions_no_index_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most readers at the end of a log find no aborted transactions."""
    log = new_log(tmp_path)[1]
    log.append(batch(), now_ms=NOW_MS)
    segment, data = log.reader.slice(0, 1, 1000, True)
    assert data is not None

    def refuse(segment: Segment, position: int) -> None:
        raise AssertionError("the index is asked")

    monkeypatch.setattr(SegmentIndexes, "upper_bound_offset", refuse)
    assert log.reader.aborted(0, segment, data) == []


def test_the_aborted_index_is_loaded_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    first = log.reader.txn_index(log.segments[1])

    def refuse(segment: Segment) -> bool:
        raise AssertionError("the file is read again")

    monkeypatch.setattr(SegmentIndexes, "try_load_txn_index", refuse)
    assert log.reader.txn_index(log.segments[1]) is first
