"""The segments of a log that Apache Kafka wrote, and the search for a batch among them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import KAFKA, TXN_BASES, TXN_END, kafka_log

from barnabas.storage import segment_list
from barnabas.storage.segment import CorruptLog
from barnabas.storage.segment_list import LogEnd, SegmentList

SIZES = [(KAFKA / "txn-0" / f"{base:020d}.log").stat().st_size for base in TXN_BASES]


@pytest.fixture
def segments(tmp_path: Path) -> SegmentList:
    return kafka_log(tmp_path).segments


def test_it_is_a_sequence_that_ends_with_the_active_segment(segments: SegmentList) -> None:
    assert [segment.base_offset for segment in segments] == TXN_BASES == segments.base_offsets
    assert segments[-1] is segments.active and len(segments[1:]) == 3
    assert segments.size_bytes == sum(SIZES)
    assert segments.end == LogEnd(TXN_END, 31, SIZES[-1])


def test_a_segment_ends_where_the_next_begins(segments: SegmentList) -> None:
    assert [segments.end_of(segment) for segment in segments] == [3, 28, 31, TXN_END]
    assert segments.since(segments[2]) == segments[2:]


# Positions and sizes as `kafka-dump-log.sh` prints them.
@pytest.mark.parametrize(
    ("offset", "place"),
    [
        (0, (0, 0, 78)),
        (2, (0, 156, 78)),
        (3, (3, 0, 78)),
        (27, (3, 1924, 78)),
        (48, (31, 1362, 77)),
    ],
)
def test_a_batch_is_found_by_its_offset(
    segments: SegmentList, offset: int, place: tuple[int, int, int]
) -> None:
    found = segments.find(offset)
    assert found is not None
    assert (found.segment.base_offset, found.position, found.size) == place


def test_there_is_no_batch_at_the_end(segments: SegmentList) -> None:
    assert segments.find(TXN_END) is None


def test_a_batch_that_reaches_into_the_next_segment_is_damage(segments: SegmentList) -> None:
    path = Path(segments[0].path(".log"))
    data = bytearray(path.read_bytes())
    data[156 + 23 : 156 + 27] = (40).to_bytes(4)  # last_offset_delta of the last batch
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="beyond the segment's end"):
        segments.find(2)


def test_a_batch_that_is_longer_than_its_file_is_damage(segments: SegmentList) -> None:
    path = Path(segments[0].path(".log"))
    data = bytearray(path.read_bytes())
    data[156 + 8 : 156 + 12] = (78 - 12 + 1).to_bytes(4)  # batch_length of the last batch
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="no batch begins there"):
        segments.find(2)


def test_headers_come_latest_first_and_from_earlier_segments(segments: SegmentList) -> None:
    offsets = [header.base_offset for header in segments.headers_before(30)]
    assert offsets == list(range(29, -1, -1))


def test_headers_are_not_looked_for_without_end(
    segments: SegmentList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_list, "_MOST_HEADERS_BEFORE", 2)
    assert 2 <= len(list(segments.headers_before(30))) < 30


def test_reading_ends_at_the_batch_of_the_limit(segments: SegmentList) -> None:
    assert segments.end_position(segments.active, 48) == 1362
    assert segments.end_position(segments[1], 48) == SIZES[1], "an earlier segment is read whole"
    assert segments.end_position(segments.active, TXN_END) == SIZES[-1]


def test_the_oldest_go_and_a_cleaned_one_takes_the_place_of_neighbours(
    segments: SegmentList,
) -> None:
    first, second, third, active = segments
    segments.replace([first, second], second)
    assert list(segments) == [second, third, active]
    assert segments.size_bytes == sum(SIZES[1:])
    assert segments.remove_oldest(1) == [second] and segments.base_offsets == [28, 31]
    assert segments.size_bytes == sum(SIZES[2:])


def test_a_size_that_the_files_do_not_have_is_no_reason_to_delete(segments: SegmentList) -> None:
    segments.check_sizes()
    with Path(segments[1].path(".log")).open("ab") as file:
        file.write(b"more")
    with pytest.raises(CorruptLog, match="Nothing is deleted"):
        segments.check_sizes()
    Path(segments[1].path(".log")).unlink()
    with pytest.raises(CorruptLog, match="the file has -1 bytes"):
        segments.check_sizes()
