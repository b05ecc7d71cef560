"""A job of the cleaner on segments that the test wrote: what the job reads and writes, and which
records it keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.storage_logs import NOW_MS, SECOND_MS, batch, broken

from barnabas.protocol.compression import Levels
from barnabas.protocol.records import (
    DELETE_HORIZON,
    HEADER_SIZE,
    BatchHeader,
    batches_in,
    encode_marker,
    encode_varint,
    read_header,
    records_of,
)
from barnabas.storage.cleaning import cleaner
from barnabas.storage.cleaning.clean_job import CleanJob, CleanResult, cleaned_path
from barnabas.storage.cleaning.cleaner import KEY_BYTES, _emptied, _Output, _with_times_from, clean
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.segment_files import (
    HIGHEST_RELATIVE_OFFSET,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    CorruptLog,
)
from barnabas.storage.files.txn_index import AbortedEntry
from barnabas.storage.segments.index_cache import IndexCache
from barnabas.storage.segments.segment import Segment

DAY_MS = 86_400_000


def at(offset: int, data: bytes | bytearray) -> bytes:
    """The batch with another base offset. The checksum does not cover this field."""
    return offset.to_bytes(8) + data[8:]


def record(offset: int, key: bytes | None, value: bytes | None = b"v", **sent: Any) -> bytes:
    return at(offset, batch([value], keys=[key], **sent))


def marker(offset: int, pid: int, *, epoch: int = 0, commit: bool = True) -> bytes:
    return at(
        offset,
        encode_marker(
            commit=commit,
            producer_id=pid,
            producer_epoch=epoch,
            coordinator_epoch=0,
            timestamp=SECOND_MS,
        ),
    )


def with_horizon(data: bytes, horizon_ms: int) -> bytes:
    """The batch as an earlier cleaning left it, with a delete horizon. It has tombstones, or is a
    marker without data.
    """
    header = read_header(data)
    places = cleaner._places(data[HEADER_SIZE:], header.record_count)
    body = _with_times_from(data[HEADER_SIZE:], places, header.base_timestamp - horizon_ms)
    attributes = header.attributes | DELETE_HORIZON
    return cleaner._assembled(
        header, body, attributes, horizon_ms, header.max_timestamp, header.record_count
    )


def job_over(
    path: Path, segments: Mapping[int, Iterable[bytes]], groups: list[list[int]], **changed: Any
) -> CleanJob:
    """Write the segments, and make a job that cleans them. The whole log is dirty."""
    sizes = {base: path.joinpath(f"{base:020d}.log").write_bytes(b"".join(batches))
             for base, batches in segments.items()}  # fmt: skip
    last = path.joinpath(f"{max(segments):020d}.log").read_bytes()
    end_offset = max(
        [max(segments), *(read_header(last, start).next_offset for start, _ in batches_in(last))]
    )
    job = CleanJob(
        job_id=1,
        directory=str(path),
        groups=tuple(tuple((base, sizes[base]) for base in group) for group in groups),
        first_dirty_offset=0,
        end_offset=end_offset,
        aborted=(),
        last_batches={},
        wall_ms=NOW_MS,
        delete_retention_ms=DAY_MS,
        index_interval_bytes=4096,
        map_bytes=1 << 20,
        levels=Levels(),
        max_decompressed_bytes=1 << 20,
    )
    return job._replace(**changed)


def written(path: Path, base_offset: int = 0) -> bytes:
    return Path(cleaned_path(str(path), base_offset, LOG_SUFFIX)).read_bytes()


def left(path: Path, base_offset: int = 0) -> dict[int, list[bytes | None] | None]:
    """The values in each batch of a written segment, by base offset. None means that only a header
    was written.
    """
    raw = written(path, base_offset)
    return {
        header.base_offset: [each.value for each in records_of(raw[start:])]
        if header.record_count
        else None
        for start, header in batches_in(raw)
    }


def headers(path: Path, base_offset: int = 0) -> dict[int, BatchHeader]:
    return {header.base_offset: header for _, header in batches_in(written(path, base_offset))}


def cleaned(path: Path, *batches: bytes, **changed: Any) -> CleanResult:
    return clean(OsDisk(), job_over(path, {0: batches}, [[0]], **changed))


OLD = record(0, b"k", b"old")  # a later record with this key causes a rewrite of the segment


# --- the files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [[5, 9, 9, 3, 12, 1, 1, 20], [-1, -1, -1], [7, -1, 6], []])
@pytest.mark.parametrize("interval", [0, 99, 100, 101, 10_000])
def test_a_cleaned_segments_indexes_equal_those_of_an_appended_segment(
    tmp_path: Path, times: list[int], interval: int
) -> None:
    disk, base = OsDisk(), 1_000
    for suffix in SEGMENT_SUFFIXES:
        Path(cleaned_path(str(tmp_path), base, suffix)).write_bytes(b"left of an earlier job")
    output = _Output(disk, str(tmp_path), base, interval)
    segment = Segment.create(
        disk,
        str(tmp_path),
        base,
        now_ms=NOW_MS,
        cache=IndexCache(),
        index_interval_bytes=interval,
    )
    for number, time in enumerate(times):
        data, first = b"%c" % (65 + number) * 50, base + 3 * number
        output.add(data, first + 2, time)
        segment.append(data, len(data), first, first + 2, time)
    output.finish()
    segment.close_for_appends()
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES[:2]):
        name = cleaned_path(str(tmp_path), base, suffix)
        assert Path(name).read_bytes() == Path(segment.batches.path(suffix)).read_bytes(), suffix
    assert Path(cleaned_path(str(tmp_path), base, INDEX_SUFFIXES[2])).read_bytes() == b""
    assert output.size == segment.batches.size
    found = output.max_timestamp, output.max_timestamp_offset
    assert found == (segment.indexes.max_timestamp, segment.indexes.max_timestamp_offset)


def test_a_cleaned_segment_is_written_in_pieces_and_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "_WRITE_BYTES", 200)
    steps: dict[str, list[str]] = {}

    class Watched(OsDisk):
        def open(self, path: str, *, create: bool = False) -> Any:
            return _WatchedFile(super().open(path, create=create), steps.setdefault(path, []))

    output = _Output(Watched(), str(tmp_path), 0, 0)
    for number in range(10):
        output.add(b"x" * 100, number, SECOND_MS + number)
    output.finish()
    log = steps.pop(cleaned_path(str(tmp_path), 0, LOG_SUFFIX))
    assert log == ["append 200"] * 5 + ["append 0", "fsync", "close"]
    assert len(steps) == 3
    for name, found in steps.items():
        size = Path(name).stat().st_size
        assert found == [f"append {size}", "fsync", "close"], name


class _WatchedFile:
    def __init__(self, file: Any, steps: list[str]) -> None:
        self._file, self._steps = file, steps

    def append(self, data: bytes) -> None:
        self._file.append(data)
        self._steps.append(f"append {len(data)}")

    def fsync(self) -> None:
        self._file.fsync()
        self._steps.append("fsync")

    def close(self) -> None:
        self._file.close()
        self._steps.append("close")


def test_a_result_counts_what_was_read_and_written_and_has_the_highest_time(
    tmp_path: Path,
) -> None:
    segments = {
        0: [OLD, record(1, b"j", timestamp=SECOND_MS + 9)],
        2: [record(2, b"k")],
        3: [record(3, b"i"), record(4, None)],
    }
    job = job_over(tmp_path, segments, [[0, 2], [3]])
    result = clean(OsDisk(), job)
    sizes = [len(written(tmp_path, base)) for base in (0, 3)]
    assert result.read_bytes == sum(size for group in job.groups for _, size in group)
    assert result.written_bytes == sum(sizes)
    assert [each.size for each in result.segments] == sizes
    assert [each.replaces for each in result.segments] == [(0, 2), (3,)]
    assert result.segments[0][3:] == (SECOND_MS + 9, 1)
    assert result.segments[1][3:] == (SECOND_MS, 3)


def test_two_segments_are_merged_although_no_record_is_removed(tmp_path: Path) -> None:
    job = job_over(tmp_path, {0: [record(0, b"a")], 1: [record(1, b"b")]}, [[0, 1]])
    assert [each.replaces for each in clean(OsDisk(), job).segments] == [(0, 1)]
    assert list(left(tmp_path)) == [0, 1]


@pytest.mark.parametrize(
    "batches",
    [
        [record(0, b"a"), record(1, b"b")],
        [record(0, b"a"), _emptied(read_header(record(1, b"b")))],
    ],
)
def test_a_segment_of_which_all_stays_is_not_written(tmp_path: Path, batches: list[bytes]) -> None:
    assert cleaned(tmp_path, *batches).segments == ()
    assert not list(tmp_path.glob("*.cleaned"))


# --- keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("map_bytes", "count"),
    [(0, 1), (1, 1), (2 * KEY_BYTES - 1, 1), (2 * KEY_BYTES, 2), (2 * KEY_BYTES + 100, 2)],
)
def test_a_round_ends_where_the_map_is_full(tmp_path: Path, map_bytes: int, count: int) -> None:
    """Segments beyond the end of the round are not changed, even if they are small or have records
    without a key.
    """
    segments = {offset: [record(offset, b"%d" % offset)] for offset in range(4)}
    segments[4] = [record(4, None)]
    groups = [[offset] for offset in range(count)] + [list(range(count, 5))]
    result = clean(OsDisk(), job_over(tmp_path, segments, groups, map_bytes=map_bytes))
    assert (result.next_dirty_offset, result.segments) == (count, ())


def test_within_a_segment_batches_beyond_the_map_stay_whole(tmp_path: Path) -> None:
    batches = [record(0, None), record(1, b"k"), record(2, None), record(3, None)]
    result = cleaned(tmp_path, *batches, map_bytes=1)
    assert result.next_dirty_offset == 2 and list(left(tmp_path)) == [1, 2, 3]


def test_keys_of_the_clean_part_do_not_use_the_map(tmp_path: Path) -> None:
    batches = [OLD, record(1, b"j"), record(2, b"k"), record(3, b"i")]
    result = cleaned(tmp_path, *batches, first_dirty_offset=2, map_bytes=1)
    assert result.next_dirty_offset == 3 and list(left(tmp_path)) == [1, 2, 3]


def test_a_job_without_a_dirty_part_changes_no_record(tmp_path: Path) -> None:
    result = cleaned(tmp_path, record(0, b"k"), record(1, b"k"), first_dirty_offset=2)
    assert (result.next_dirty_offset, result.segments) == (2, ())


def test_offsets_that_no_batch_has_at_the_end_are_clean(tmp_path: Path) -> None:
    assert cleaned(tmp_path, OLD, record(1, b"k"), end_offset=5).next_dirty_offset == 5


def test_a_marker_does_not_replace_a_record_with_the_same_key_bytes(tmp_path: Path) -> None:
    """The record's key has the same bytes as the marker's key. The marker must not replace the
    record.
    """
    key = records_of(marker(0, 7))[0].key
    cleaned(tmp_path, record(0, key), marker(1, 7))
    assert list(headers(tmp_path)) == [0, 1]


def test_keys_shorter_and_longer_than_a_hash_are_compacted(
    tmp_path: Path,
) -> None:
    """The map stores keys of more than 32 bytes as hashes."""
    keys = [b"x" * length for length in (1, 31, 32, 33, 34)]
    old = [record(offset, key, b"old") for offset, key in enumerate(keys)]
    new = [record(offset, key, b"new") for offset, key in enumerate(keys, len(keys))]
    cleaned(tmp_path, *old, *new)
    assert list(left(tmp_path)) == list(range(5, 10))


# --- unreadable batches -------------------------------------------------------------------------


def body_of(*deltas: int) -> bytes:
    """The encoded records, without keys, at these offset deltas."""
    body = bytearray()
    for delta in deltas:
        inner = bytearray(b"\0\0")
        encode_varint(delta, inner)
        inner += b"\1\1\0"  # no key, no value, no headers
        encode_varint(len(inner), body)
        body += inner
    return bytes(body)


@pytest.mark.parametrize(
    ("body", "is_readable"),
    [
        (body_of(0, 1), True),
        (body_of(0, 1) + b"\0", False),
        (body_of(0), False),
        (body_of(0, 2), False),
        (body_of(-20_000, 1), False),
        (body_of(0, 1, 1), False),
    ],
)
def test_an_unreadable_batch_is_kept_unchanged(
    tmp_path: Path, body: bytes, is_readable: bool
) -> None:
    """The unreadable batch may contain records that are needed. The readable batches have no keys,
    so they are removed.
    """
    odd = at(1, broken([b"", b""], body=body))
    result = cleaned(tmp_path, OLD, odd, record(3, b"k"))
    assert result.unreadable == (() if is_readable else (1,))
    assert (odd in written(tmp_path)) is not is_readable and 0 not in headers(tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        marker(1, 7)[HEADER_SIZE:] + b"\0",
        marker(1, 7)[HEADER_SIZE : HEADER_SIZE + 3] + b"\x0a" + marker(1, 7)[HEADER_SIZE + 4 :],
    ],
    ids=["left over", "another offset"],
)
def test_a_marker_with_an_unreadable_record_is_kept(tmp_path: Path, body: bytes) -> None:
    header = read_header(marker(1, 7))
    odd = cleaner._assembled(header, body, header.attributes, SECOND_MS, SECOND_MS, 1)
    cleaned(tmp_path, OLD, odd, record(2, b"k"))
    assert odd in written(tmp_path)


@pytest.mark.parametrize("cut_to", [30, HEADER_SIZE, HEADER_SIZE + 3])
def test_a_segment_that_became_shorter_is_reported_as_corrupt(tmp_path: Path, cut_to: int) -> None:
    job = job_over(tmp_path, {0: [OLD]}, [[0]])
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:cut_to])
    with pytest.raises(CorruptLog, match="a batch is cut off"):
        clean(OsDisk(), job)


@pytest.mark.parametrize("read_bytes", [61, 70, 100, 150])
def test_batches_longer_than_the_read_buffer_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    monkeypatch.setattr(cleaner, "_READ_BYTES", read_bytes)
    lengths = (1, 5, 300, 1, 80, 79, 2)
    batches = [record(number, b"%d" % number, b"x" * n) for number, n in enumerate(lengths, 1)]
    result = cleaned(tmp_path, record(0, None), *batches)
    assert result.segments and written(tmp_path) == b"".join(batches)


def test_a_segments_relative_offsets_are_bounded(tmp_path: Path) -> None:
    last = record(HIGHEST_RELATIVE_OFFSET, b"k", b"new")
    cleaned(tmp_path, OLD, last)
    assert list(left(tmp_path)) == [HIGHEST_RELATIVE_OFFSET]
    with pytest.raises(CorruptLog, match="a batch of the offsets"):
        cleaned(tmp_path, OLD, at(HIGHEST_RELATIVE_OFFSET + 1, last))


# --- the rest of a batch ------------------------------------------------------------------------


@pytest.mark.parametrize("is_last", [False, True])
def test_only_the_last_batch_of_the_log_keeps_its_header_without_records(
    tmp_path: Path, is_last: bool
) -> None:
    """As in Kafka, the header of the last batch keeps the log's end offset and the producer's
    sequence.
    """
    cleaned(tmp_path, OLD, record(1, None), end_offset=2 if is_last else 3)
    assert left(tmp_path) == {0: [b"old"]} | ({1: None} if is_last else {})


def test_a_rewritten_batch_has_a_new_maximum_timestamp_and_no_delete_horizon(
    tmp_path: Path,
) -> None:
    times = [SECOND_MS, SECOND_MS + 7, SECOND_MS + 3]
    first = batch([b"1", b"2", b"3"], keys=[b"a", b"b", b"c"], times=times)
    cleaned(tmp_path, at(0, first), record(3, b"b"))
    header = headers(tmp_path)[0]
    assert header.max_timestamp == SECOND_MS + 3 and header.base_timestamp == SECOND_MS
    assert header.attributes == 0


def test_only_tombstones_are_removed_after_the_delete_horizon(tmp_path: Path) -> None:
    """The batch keeps its delete horizon and its other records."""
    data = at(0, batch([None, b"2", None, b"4"], keys=[b"a", b"b", b"c", b"d"]))
    cleaned(tmp_path, with_horizon(data, NOW_MS))
    assert left(tmp_path) == {0: [b"2", b"4"]}
    assert headers(tmp_path)[0].delete_horizon_ms == NOW_MS
    assert cleaned(tmp_path, with_horizon(data, NOW_MS + 1)).segments == ()


# --- markers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_marker_without_data_is_removed_unless_it_is_the_last_batch(
    tmp_path: Path, is_last: bool, is_empty: bool
) -> None:
    """The marker's delete horizon has passed, or an earlier cleaning emptied the marker."""
    over = with_horizon(marker(1, 7), NOW_MS)
    if is_empty:
        over = _emptied(read_header(marker(1, 7)))
    cleaned(tmp_path, record(0, None), over, end_offset=2 if is_last else 3)
    assert list(left(tmp_path)) == ([1] if is_last else [])


def test_the_last_marker_of_a_producers_epoch_is_kept(tmp_path: Path) -> None:
    """The data of the producer is removed. Only the last marker with the epoch of this data is
    needed.
    """
    cleaned(
        tmp_path,
        record(0, None, pid=7, epoch=3, seq=0),
        with_horizon(marker(1, 7, epoch=2), NOW_MS),
        with_horizon(marker(2, 7, epoch=3), NOW_MS),
        with_horizon(marker(3, 8, epoch=3), NOW_MS),
        end_offset=9,
        last_batches={7: (-1, 3)},
    )
    assert list(left(tmp_path)) == [2]


def test_the_index_entry_of_an_aborted_transaction_is_kept_with_its_marker(tmp_path: Path) -> None:
    entries = (AbortedEntry(7, 0, 1, 0), AbortedEntry(8, 2, 2, 2))
    cleaned(
        tmp_path,
        record(0, b"k", pid=7, epoch=0, seq=0, transactional=True),
        marker(1, 7, commit=False),
        with_horizon(marker(2, 8, commit=False), NOW_MS),
        end_offset=9,
        aborted=entries,
    )
    assert list(left(tmp_path)) == [1]
    index = Path(cleaned_path(str(tmp_path), 0, INDEX_SUFFIXES[2])).read_bytes()
    assert len(index) == 34 and index[2:10] == (7).to_bytes(8)
