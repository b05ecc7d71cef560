"""The segments of a log that Apache Kafka wrote, and the search for a batch among them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import KAFKA, TXN_BASES, TXN_END, kafka_log

from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.segments import segment_list
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segment_list import SegmentList

SIZES = [(KAFKA / "txn-0" / f"{base:020d}.log").stat().st_size for base in TXN_BASES]


@pytest.fixture
def segments(tmp_path: Path) -> SegmentList:
    return kafka_log(tmp_path).segments


def test_a_segment_list_is_a_sequence_that_ends_with_the_active_segment(
    segments: SegmentList,
) -> None:
    assert [segment.base_offset for segment in segments] == TXN_BASES == segments.base_offsets
    assert segments[-1] is segments.active and len(segments[1:]) == 3
    assert segments.size_bytes == sum(SIZES)
    assert (segments.end_offset, segments.active.base_offset) == (TXN_END, 31)
    assert segments.active.batches.size == SIZES[-1]


def test_a_segment_ends_where_the_next_begins(segments: SegmentList) -> None:
    assert [segments.end_of(segment) for segment in segments] == [3, 28, 31, TXN_END]
    assert segments.since(segments[2]) == segments[2:]


def test_a_new_segment_is_the_active_one(segments: SegmentList) -> None:
    """The previous segment keeps its size, and ends at the base offset of the new one."""
    before = segments.active
    new = Segment(
        before.batches.disk, before.batches.directory, TXN_END, size=0, created_ms=0,
        cache=before.indexes.cache, index_interval_bytes=4096,
    )  # fmt: skip
    segments.add(new)
    assert segments[-1] is segments.active is new and segments.end_of(before) == TXN_END
    assert segments.base_offsets == [*TXN_BASES, TXN_END]
    assert segments.size_bytes == sum(SIZES) and segments.end_offset == TXN_END
    assert (segments.active.base_offset, segments.active.batches.size) == (TXN_END, 0)


# The positions and sizes are those that `kafka-dump-log.sh` prints.
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


def write_at(path: str, at: int, data: bytes) -> None:
    with Path(path).open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("last_offset", [3, 4, 42])
def test_a_batch_that_reaches_into_the_next_segment_is_an_error(
    segments: SegmentList, last_offset: int
) -> None:
    write_at(
        segments[0].batches.path(".log"), 156 + 23, (last_offset - 2).to_bytes(4)
    )  # this field is the last offset delta
    with pytest.raises(CorruptLog, match=f"reaches to offset {last_offset}, beyond the segment's"):
        segments.find(2)


def test_damage_in_a_segment_does_not_affect_reads_of_later_ones(segments: SegmentList) -> None:
    for segment in segments[:2]:
        write_at(segment.batches.path(".log"), 0, bytes(segment.batches.size))
    assert [segments.find(offset) is not None for offset in (28, 31)] == [True, True]
    with pytest.raises(CorruptLog):
        segments.find(27)


def test_a_batch_that_is_longer_than_its_file_is_an_error(segments: SegmentList) -> None:
    path = Path(segments[0].batches.path(".log"))
    data = bytearray(path.read_bytes())
    data[156 + 8 : 156 + 12] = (78 - 12 + 1).to_bytes(4)  # batch_length of the last batch
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="no batch begins there"):
        segments.find(2)


def test_headers_come_latest_first_and_from_earlier_segments(segments: SegmentList) -> None:
    offsets = [header.base_offset for header in segments.headers_before(30)]
    assert offsets == list(range(29, -1, -1))


def test_headers_before_reads_no_further_than_the_next_index_entry(tmp_path: Path) -> None:
    """The file is overwritten after that entry, so reading further would fail."""
    segments = kafka_log(tmp_path, index_interval_bytes=300).segments
    segment = segments[1]
    index = segment.indexes.trusted_offset_index()
    behind = [at for last, at in zip(index.offsets, index.positions, strict=True) if last >= 10 - 3]
    assert len(behind) > 2
    write_at(segment.batches.path(".log"), behind[0], bytes(segment.batches.size - behind[0]))
    offsets = [header.base_offset for header in segments.headers_before(10)]
    assert offsets == list(range(9, -1, -1))


def test_headers_before_ends_after_a_bounded_number_of_headers(
    segments: SegmentList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_list, "_MOST_HEADERS_BEFORE", 2)
    assert 2 <= len(list(segments.headers_before(30))) < 30


def test_end_position_is_that_of_the_batch_at_the_limit(segments: SegmentList) -> None:
    assert segments.end_position(segments.active, 48) == 1362
    assert segments.end_position(segments[1], 48) == SIZES[1], "an earlier segment is read whole"
    assert segments.end_position(segments.active, TXN_END) == SIZES[-1]


@pytest.mark.parametrize("limit", range(TXN_END + 1))
def test_a_limit_changes_the_end_position_only_in_its_own_segment(
    segments: SegmentList, limit: int
) -> None:
    """A look-up of a limit has the same result whether it is the first look-up or follows the
    look-up of another limit.
    """
    ends = [segment.batches.size for segment in segments]
    for number, segment in enumerate(segments):
        for position, header in segment.batches.headers():
            if header.base_offset == limit:
                ends[number] = position
    assert [segments.end_position(segment, limit) for segment in segments] == ends
    segments.end_position(segments.active, (limit + 7) % TXN_END)
    assert [segments.end_position(segment, limit) for segment in segments] == ends


def test_the_batch_of_a_limit_is_looked_up_once(
    segments: SegmentList, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a transaction is open, all readers of a log have the same limit."""
    asked: list[int] = []
    find = SegmentList.find
    monkeypatch.setattr(
        SegmentList, "find", lambda self, offset: (asked.append(offset), find(self, offset))[1]
    )
    for limit in (48, 48, 40, 40, 48):
        assert segments.end_position(segments[1], limit) == SIZES[1]
        segments.end_position(segments.active, limit)
    assert asked == [48, 40, 48]
    assert segments.end_position(segments.active, TXN_END) == SIZES[-1]
    assert asked == [48, 40, 48], "the log's end needs no look-up"


@pytest.mark.parametrize("limit", [1, 20])
def test_end_position_is_computed_again_after_segments_changed(
    segments: SegmentList, limit: int
) -> None:
    """If the limit was in a replaced segment, it is now in the new segment, or below all
    segments.
    """
    second = segments[1]
    cleaned = Segment(
        second.batches.disk, second.batches.directory, 3, size=second.batches.size, created_ms=0,
        cache=second.indexes.cache, index_interval_bytes=4096,
    )  # fmt: skip
    segments.end_position(second, limit)
    segments.replace([second], cleaned)
    place = segments.find(limit)
    assert place is not None
    assert segments.end_position(place.segment, limit) == place.position
    segments.remove_oldest(1)
    if limit == 1:
        assert segments.end_position(cleaned, limit) == 0, "all of it lies above"
    else:
        assert segments.end_position(cleaned, limit) == place.position


def test_replace_and_remove_oldest(
    segments: SegmentList,
) -> None:
    first, second, third, active = segments
    segments.replace([first, second], second)
    assert list(segments) == [second, third, active]
    assert segments.size_bytes == sum(SIZES[1:])
    assert segments.remove_oldest(1) == [second] and segments.base_offsets == [28, 31]
    assert segments.size_bytes == sum(SIZES[2:])


def test_check_sizes_reports_a_file_of_another_size(segments: SegmentList) -> None:
    segments.check_sizes()
    with Path(segments[1].batches.path(".log")).open("ab") as file:
        file.write(b"more")
    with pytest.raises(CorruptLog, match="Retention by size is suspended"):
        segments.check_sizes()
    Path(segments[1].batches.path(".log")).unlink()
    with pytest.raises(CorruptLog, match="the file has -1 bytes"):
        segments.check_sizes()
