"""One segment that Apache Kafka wrote: look-ups of batches by offset, and the conditions under
which its indexes are trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest
from crc32c import crc32c
from helpers.storage_kafka_log import KAFKA, kafka_log
from helpers.storage_logs import NOW_MS, batch, kill, new_log, open_manager

from barnabas.protocol.records import HEADER_SIZE
from barnabas.storage.disk import File, OsDisk, OsFile
from barnabas.storage.files.checkpoints import MANIFEST_NAME
from barnabas.storage.files.checkpoints import Manifest as LogManifest
from barnabas.storage.files.offset_index import OffsetIndex
from barnabas.storage.files.segment_files import INDEX_SUFFIXES, CorruptLog, offset_name
from barnabas.storage.files.txn_index import AbortedEntry, TxnIndex
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.segments.batch_file import BatchPosition
from barnabas.storage.segments.index_cache import IndexCache
from barnabas.storage.segments.segment import RollLimits, Segment

NAME = offset_name(3)


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return kafka_log(tmp_path, index_interval_bytes=300).segments[1]


def test_files_are_named_as_kafka_names_them() -> None:
    assert offset_name(31) == "00000000000000000031"


@pytest.mark.parametrize(
    ("offset", "place"),
    [
        (3, BatchPosition(0, 3, 3, 78)),
        (7, BatchPosition(319, 7, 7, 78)),
        (27, BatchPosition(1924, 27, 27, 78)),
    ],
)
def test_a_batch_is_found_by_its_offset(
    segment: Segment, offset: int, place: BatchPosition
) -> None:
    assert segment.find(offset) == place


def test_beyond_its_last_batch_there_is_none(segment: Segment) -> None:
    assert segment.find(28) is None


def test_headers_equal_what_kafkas_tool_prints(segment: Segment) -> None:
    rows = [
        (at, header.base_offset, header.producer_id) for at, header in segment.batches.headers()
    ]
    assert rows[:3] == [(0, 3, 5), (78, 4, 7), (158, 5, 7)] and len(rows) == 25


def test_an_index_with_a_wrong_position_is_rebuilt(segment: Segment) -> None:
    Path(segment.batches.path(".index")).write_bytes((10).to_bytes(4) + (100).to_bytes(4))
    segment.indexes.loaded_offsets = None
    assert segment.find(26) == BatchPosition(1843, 26, 26, 81)
    assert len(Path(segment.batches.path(".index")).read_bytes()) > 8, (
        "one entry for each 300 bytes"
    )


def test_times_are_read_from_the_log_without_a_manifest(segment: Segment) -> None:
    segment.indexes.load_times()
    assert (segment.indexes.max_timestamp, segment.indexes.max_timestamp_offset) == (
        1795222689507,
        27,
    )
    assert segment.indexes.first_batch_timestamp() == 1795222689083


def test_a_lower_offset_than_that_of_the_previous_batch_is_an_error(segment: Segment) -> None:
    path = Path(segment.batches.path(".log"))
    data = bytearray(path.read_bytes())
    data[158:166] = (4).to_bytes(8)
    path.write_bytes(data)
    with pytest.raises(CorruptLog, match="byte 158") as damage:
        list(segment.batches.headers())
    assert damage.value.path == segment.batches.path(".log")


# The position of the third batch, and the positions of fields in its header.
THIRD, MAGIC_AT, LENGTH_AT, LAST_DELTA_AT = 158, 16, 8, 23


def changed(segment: Segment, at: int, data: bytes) -> None:
    """Overwrite bytes of the segment's log file."""
    path = Path(segment.batches.path(".log"))
    raw = bytearray(path.read_bytes())
    raw[at : at + len(data)] = data
    path.write_bytes(raw)


DAMAGE = [
    (MAGIC_AT, b"\1"),
    (LENGTH_AT, (48).to_bytes(4)),  # smaller than a header
    (LENGTH_AT, (10_000).to_bytes(4)),  # beyond the end of the file
    (0, (2).to_bytes(8)),  # below the segment's base offset
    (0, (3 + 2**31).to_bytes(8)),  # too far above the base offset
    (0, (4).to_bytes(8)),  # the offset of the previous batch
    (LAST_DELTA_AT, (-1).to_bytes(4, signed=True)),  # the last offset is before the first
    (LAST_DELTA_AT - 80, (1).to_bytes(4)),  # the previous batch extends to the offset of this one
]


@pytest.mark.parametrize(("at", "data"), DAMAGE)
def test_a_damaged_header_is_found_by_headers_and_by_find(
    segment: Segment, at: int, data: bytes
) -> None:
    segment.indexes.rebuild(None)
    # makes each look-up begin at the start of the file
    segment.indexes.loaded_offsets = OffsetIndex()
    assert segment.find(7) == BatchPosition(319, 7, 7, 78)
    changed(segment, THIRD + at, data)
    with pytest.raises(CorruptLog, match=f"byte {THIRD}"):
        list(segment.batches.headers())
    with pytest.raises(CorruptLog, match=f"byte {THIRD}"):
        segment.find(7)
    assert segment.find(3) == BatchPosition(0, 3, 3, 78), "what lies before it is read"
    assert [position for position, _ in segment.batches.headers(end=THIRD)] == [0, 78]


def test_a_file_that_ends_within_a_header_is_an_error(segment: Segment) -> None:
    with Path(segment.batches.path(".log")).open("r+b") as file:
        file.truncate(THIRD + 60)
    with pytest.raises(CorruptLog, match=f"byte {THIRD}: a batch is cut off"):
        list(segment.batches.headers())
    segment.indexes.rebuilt = True
    segment.indexes.loaded_offsets = OffsetIndex()
    with pytest.raises(CorruptLog, match=f"byte {THIRD}: a batch is cut off"):
        segment.find(7)


def test_find_of_an_offset_in_a_gap_gives_the_next_batch(segment: Segment) -> None:
    """Compaction leaves gaps between offsets. A wrong offset looks like a gap as well, but then the
    next batch has a lower offset.
    """
    for damaged, offset in ((False, 5), (True, 200)):
        segment.indexes.rebuilt, segment.indexes.loaded_offsets = True, OffsetIndex()
        # The batches at 3 and 4 stay unchanged. The batch at 5 gets a later offset.
        changed(segment, THIRD, (6 if not damaged else offset).to_bytes(8))
        if not damaged:
            changed(segment, 238, (7).to_bytes(8))
            assert segment.find(5) == BatchPosition(THIRD, 6, 6, 80)
        else:
            with pytest.raises(CorruptLog, match="byte 238: a batch of offset 7"):
                segment.find(5)


@pytest.mark.parametrize(
    ("behind", "why"),
    [
        (b"", None),
        (bytes(5), "byte 138: a batch is cut off"),
        ((20).to_bytes(8) + bytes(4), "byte 138: a batch of offset 20 comes after offset 20"),
        ((21).to_bytes(8) + bytes(4), None),
    ],
)
def test_the_offset_of_a_batch_after_a_gap_is_checked_against_the_next_batch(
    tmp_path: Path, behind: bytes, why: str | None
) -> None:
    """The next batch is not read if the requested offset is that of the batch after the gap."""
    segment = of_rows(tmp_path, [10, 20])
    segment.append(behind, len(behind), 99, 99, 0)
    segment.close_for_appends()
    assert segment.find(20) == BatchPosition(ROW_BYTES, 20, 20, ROW_BYTES)
    with nullcontext() if why is None else pytest.raises(CorruptLog, match=why):
        assert segment.find(15) == segment.find(20)


ROW_BYTES = len(batch())


def of_rows(path: Path, offsets: Iterable[int], base: int = 10, interval: int = 1 << 30) -> Segment:
    """An open segment with a batch at each of these offsets. Each batch has one record."""
    segment = Segment.create(
        OsDisk(), str(path), base, now_ms=0, cache=IndexCache(), index_interval_bytes=interval
    )
    data = bytes(batch())
    for offset in offsets:
        row = offset.to_bytes(8) + data[8:]
        segment.append(row, len(row), offset, offset, 0)
    return segment


def test_offsets_may_be_up_to_2_31_minus_1_above_the_base_offset(tmp_path: Path) -> None:
    last = 10 + 2**31 - 1
    segment = of_rows(tmp_path, [10, last])
    assert [header.base_offset for _, header in segment.batches.headers()] == [10, last]
    assert segment.find(last) == segment.find(11) != segment.find(10)
    assert segment.find(last + 1) is None and segment.find(2**62) is None
    assert segment.find(0) == segment.find(10), "the first, for what is below all"


def test_a_batch_without_records_is_read_and_found(tmp_path: Path) -> None:
    """A segment may end with such a batch, or may contain no other batch."""
    for others in ([], [10, 11]):
        path = tmp_path / str(len(others))
        path.mkdir()
        segment = of_rows(path, others)
        data = batch()[:HEADER_SIZE]
        data[:8], data[8:12] = (12).to_bytes(8), (HEADER_SIZE - 12).to_bytes(4)
        segment.append(data, HEADER_SIZE, 12, 12, -1)
        segment.close_for_appends()
        assert [header.base_offset for _, header in segment.batches.headers()] == [*others, 12]
        assert segment.find(12) == BatchPosition(len(others) * ROW_BYTES, 12, 12, HEADER_SIZE)


@pytest.mark.parametrize(("is_rebuilt", "has_entry"), [(True, True), (False, False)])
def test_damage_does_not_rebuild_an_index_that_was_not_used_or_was_just_built(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_rebuilt: bool, has_entry: bool
) -> None:
    """An index that was just built from the log is not rebuilt either. Otherwise each reader would
    rebuild it.
    """
    segment = of_rows(tmp_path, range(10, 20), interval=0 if has_entry else 1 << 30)
    segment.close_for_appends()
    segment.indexes.rebuilt = is_rebuilt
    index = segment.indexes.offset_index()
    changed(segment, 8 * ROW_BYTES + MAGIC_AT, b"\1")
    with pytest.raises(CorruptLog):
        segment.find(18)
    assert segment.indexes.offset_index() is index and not caplog.messages


def test_find_reads_4_kib_and_headers_64_kib_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte is read once, except for batches that extend over two reads. No byte after the
    requested end is read.
    """
    segment = of_rows(tmp_path, range(10, 3_010))
    segment.close_for_appends()
    reads: list[tuple[int, int]] = []
    pread = OsFile.pread

    def noting(self: OsFile, size: int, position: int) -> bytes:
        reads.append((position, size))
        return pread(self, size, position)

    monkeypatch.setattr(OsFile, "pread", noting)
    end = 2_000 * ROW_BYTES
    list(segment.batches.headers(ROW_BYTES, end))
    assert [at + size for at, size in reads[-1:]] == [end]
    assert max(size for _, size in reads) == 64 << 10
    assert sum(size for _, size in reads) <= end + len(reads) * ROW_BYTES
    reads.clear()
    place = segment.find(10 + 900)
    assert place is not None and place.position == 900 * ROW_BYTES
    assert max(size for _, size in reads) == 4096
    assert sum(size for _, size in reads) <= place.position + 4096 + len(reads) * ROW_BYTES
    segment.indexes.loaded_offsets.append(2_989, 2_989 * ROW_BYTES)
    reads.clear()
    segment.find(3_009)
    assert reads == [(2_989 * ROW_BYTES, 11 * ROW_BYTES)], "no further than the file goes"


@pytest.mark.parametrize("noted", [3, 5, 24])
def test_an_index_entry_with_a_position_beyond_its_offset_is_not_used(
    segment: Segment, noted: int
) -> None:
    """The entry's position is after that of its offset, so the entry would hide the batches in
    between.
    """
    entry = (noted - 3).to_bytes(4) + (1843).to_bytes(4)  # the position of batch 26
    Path(segment.batches.path(".index")).write_bytes(entry)
    segment.indexes.loaded_offsets = None
    assert segment.find(25) == BatchPosition(1762, 25, 25, 81)
    assert segment.find(noted) is not None and segment.find(noted).base_offset == noted


def test_a_look_up_far_from_any_entry_rebuilds_the_index(tmp_path: Path) -> None:
    """An index with a gap would be slow forever. Many batches without an entry do not prove a gap,
    since short batches have few entries.
    """
    short = Segment.create(
        OsDisk(), str(tmp_path), 5_000, now_ms=0, cache=IndexCache(), index_interval_bytes=1 << 20
    )
    data = bytes(batch())
    for offset in range(5_000, 6_200):
        row = offset.to_bytes(8) + data[8:]
        short.append(row, len(row), offset, offset, 0)
    short.close_for_appends()
    short.indexes.loaded_offsets, short.indexes.rebuilt = None, False
    place = short.find(6_199)
    assert place is not None and place.base_offset == 6_199 and not short.indexes.rebuilt
    segment = Segment.create(
        OsDisk(), str(tmp_path), 0, now_ms=0, cache=IndexCache(), index_interval_bytes=4096
    )
    data = bytes(batch([b"x" * 1_100]))
    for offset in range(1_200):
        row = offset.to_bytes(8) + data[8:]
        segment.append(row, len(row), offset, offset, 0)
    segment.close_for_appends()
    whole = Path(segment.batches.path(".index")).read_bytes()
    for entries, is_built in ((b"", True), (whole[: 8 * 30], True), (whole, False)):
        Path(segment.batches.path(".index")).write_bytes(entries)
        segment.indexes.loaded_offsets, segment.indexes.rebuilt = None, False
        place = segment.find(1_199)
        assert place is not None and place.base_offset == 1_199
        assert segment.indexes.rebuilt == is_built
        assert Path(segment.batches.path(".index")).read_bytes() == whole


def test_few_or_close_batches_after_an_entry_do_not_rebuild_an_index(tmp_path: Path) -> None:
    """The gap counts only if many batches, with many bytes, follow the entry."""

    def of_sizes(number: int, sizes: list[int]) -> Segment:
        path = tmp_path / str(number)
        path.mkdir()
        segment = of_rows(path, [], base=0)
        for offset, size in enumerate(sizes):
            data = bytes(batch([bytes(size)]))
            segment.append(offset.to_bytes(8) + data[8:], len(data), offset, offset, 0)
        segment.close_for_appends()
        segment.indexes.rebuilt = False
        return segment

    few = of_sizes(0, [64 << 10] * 40)
    assert few.find(39) is not None and not few.indexes.rebuilt
    close = of_sizes(1, [600 << 10, 500 << 10] + [10] * 1_100)
    index = close.indexes.offset_index()
    index.append(1, of_first := len(batch([bytes(600 << 10)])))
    index.append(2, of_first + len(batch([bytes(500 << 10)])))
    place = close.find(1_101)
    assert place is not None and place.base_offset == 1_101 and not close.indexes.rebuilt


def test_an_index_that_stays_empty_when_rebuilt_is_rebuilt_once(tmp_path: Path) -> None:
    """The rebuilt index may be just as sparse. It is kept."""
    segment = of_rows(tmp_path, [], base=0)
    data = bytes(batch([bytes(1_100)]))
    for offset in range(1_100):
        segment.append(offset.to_bytes(8) + data[8:], len(data), offset, offset, 0)
    segment.close_for_appends()
    segment.indexes.rebuilt = False
    for _ in range(2):
        place = segment.find(1_099)
        assert place is not None and place.base_offset == 1_099 and segment.indexes.rebuilt


def test_the_time_of_the_first_batch_is_read_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the first batch is damaged, the segment has no time, and the damage is logged. An empty
    segment has no time yet.
    """
    segment = of_rows(tmp_path, [])
    assert segment.indexes.first_batch_timestamp() == -1
    data = (10).to_bytes(8) + bytes(batch(timestamp=77))[8:]
    segment.append(data, len(data), 10, 10, 77)
    segment.indexes.first_timestamp = None
    assert segment.indexes.first_batch_timestamp() == 77
    changed(segment, MAGIC_AT, b"\1")
    assert segment.indexes.first_batch_timestamp() == 77 and not caplog.messages
    segment.indexes.first_timestamp = None
    for _ in range(2):
        assert segment.indexes.first_batch_timestamp() == -1
    assert len(caplog.messages) == 1
    assert "the time of the first batch is unknown" in caplog.text


def test_a_failed_append_is_truncated(tmp_path: Path) -> None:
    segment = Segment.create(
        OsDisk(), str(tmp_path), 0, now_ms=0, cache=IndexCache(), index_interval_bytes=4096
    )
    data = bytes(batch())
    segment.append(data, len(data), 0, 0, 0)

    class HalfFile:
        def __init__(self) -> None:
            self.file = segment.batches.file

        def append(self, data: bytes) -> int:
            self.file.append(data[:20])
            raise OSError("full")

        def truncate(self, size: int) -> None:
            self.file.truncate(size)

    half = HalfFile()
    segment.batches.open_file = half  # type: ignore[assignment]
    with pytest.raises(OSError, match="full"):
        segment.append(data, len(data), 1, 1, 0)
    assert Path(segment.batches.path(".log")).stat().st_size == segment.batches.size == len(data)


@pytest.mark.parametrize(
    ("limits", "batch_of", "rolls"),
    [
        ({}, {}, False),
        ({"segment_bytes": 300}, {}, False),  # it just fits
        ({"segment_bytes": 299}, {}, True),
        ({}, {"last_offset": 100 + 2**31 - 1}, False),
        ({}, {"last_offset": 100 + 2**31}, True),
        ({"age_ms": 40}, {"max_timestamp": 50}, False),
        ({"age_ms": 39}, {"max_timestamp": 50}, True),
        ({"index_bytes": 36}, {}, False),  # there is space for one more time entry and the last one
        ({"index_bytes": 35}, {}, True),
    ],
)
def test_a_segment_is_full_when_one_of_its_limits_is_reached(
    tmp_path: Path, limits: dict[str, int], batch_of: dict[str, int], rolls: bool
) -> None:
    segment = Segment.create(
        OsDisk(), str(tmp_path), 100, now_ms=0, cache=IndexCache(), index_interval_bytes=0
    )
    full = RollLimits(**({"segment_bytes": 10**9, "age_ms": 10**9, "index_bytes": 10**9} | limits))
    size = {"size": 100, "last_offset": 102, "max_timestamp": 10, "now_ms": 10**6} | batch_of
    empty = RollLimits(0, 0, 0)
    assert not segment.should_roll(limits=empty, **size), "an empty segment accepts any batch"
    segment.append(bytes(100), 100, 100, 100, 10)
    segment.append(bytes(100), 100, 101, 101, 10)
    assert segment.should_roll(limits=full, **size) == rolls


def test_a_full_offset_index_ends_a_segment(tmp_path: Path) -> None:
    segment = Segment.create(
        OsDisk(), str(tmp_path), 0, now_ms=0, cache=IndexCache(), index_interval_bytes=0
    )
    for offset in range(6):  # makes five offset entries and one time entry
        segment.append(bytes(100), 100, offset, offset, 10)
    for index_bytes, rolls in ((48, False), (47, True), (40, True)):
        limits = RollLimits(10**9, 10**9, index_bytes)
        assert segment.should_roll(100, 6, 10, 0, limits) == rolls


@pytest.mark.parametrize("first", [0, 1])
def test_the_age_of_a_segment_is_measured_from_timestamps_0_and_1(
    tmp_path: Path, first: int
) -> None:
    segment = Segment.create(
        OsDisk(), str(tmp_path), 0, now_ms=10**9, cache=IndexCache(), index_interval_bytes=0
    )
    segment.append(bytes(100), 100, 0, 0, first)
    limits = RollLimits(10**9, 500, 10**9)
    assert not segment.should_roll(100, 1, first + 500, 10**10, limits)
    assert segment.should_roll(100, 1, first + 501, 10**9, limits)


def test_without_times_the_age_of_a_segment_is_measured_from_its_creation(tmp_path: Path) -> None:
    segment = Segment.create(
        OsDisk(), str(tmp_path), 0, now_ms=1_000, cache=IndexCache(), index_interval_bytes=0
    )
    segment.append(bytes(100), 100, 0, 0, -1)
    limits = RollLimits(10**9, 500, 10**9)
    assert not segment.should_roll(100, 1, -1, 1_500, limits)
    assert segment.should_roll(100, 1, -1, 1_501, limits)


def test_max_timestamp_offset_is_that_of_the_first_batch_with_the_time(tmp_path: Path) -> None:
    segment = Segment.create(
        OsDisk(), str(tmp_path), 10, now_ms=0, cache=IndexCache(), index_interval_bytes=0
    )
    assert (segment.indexes.max_timestamp, segment.indexes.max_timestamp_offset) == (-1, 10)
    for offset, time in ((10, 5), (11, 9), (12, 9), (13, 7)):
        segment.append(bytes(100), 100, offset, offset, time)
    assert (segment.indexes.first_timestamp, segment.indexes.max_timestamp) == (5, 9)
    assert segment.indexes.max_timestamp_offset == 11


def test_the_latest_batches_are_found_without_an_index(tmp_path: Path) -> None:
    """An open segment remembers the last 128 to 256 batches. A closed segment remembers none."""
    segment = Segment.create(
        OsDisk(), str(tmp_path), 0, now_ms=0, cache=IndexCache(), index_interval_bytes=4096
    )
    for offset in range(400):
        segment.append(bytes(100), 100, offset, offset, 0)
        latest = range(max(0, offset - 127), offset + 1)
        assert [segment.recent_position(one) for one in latest] == [100 * one for one in latest]
        assert len(segment._recent) + len(segment._older) <= 256
    assert segment.recent_position(400) == segment.recent_position(0) == -1
    segment.close_for_appends()
    assert segment.recent_position(399) == -1
    segment.start_empty()
    segment.append(bytes(100), 100, 7, 7, 0)
    other = tmp_path / "other"
    other.mkdir()
    assert of_rows(other, []).recent_position(7) == -1, "nor those of another segment"
    of_rows(other, [7])
    assert segment.recent_position(7) == 40_000


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_if_one_file_cannot_be_created_no_file_is_left(tmp_path: Path, suffix: str) -> None:
    class Refusing(OsDisk):
        def open(self, path: str, *, create: bool = False) -> File:
            if path.endswith(suffix):
                raise OSError("no room")
            return super().open(path, create=create)

    with pytest.raises(OSError, match="no room"):
        Segment.create(
            Refusing(), str(tmp_path), 0, now_ms=0, cache=IndexCache(), index_interval_bytes=0
        )
    assert list(tmp_path.iterdir()) == []


def test_checksums_equal_those_of_the_files(segment: Segment) -> None:
    """The files include some that grew from earlier content, rebuilt files, and missing files."""

    def on_disk() -> list[tuple[str, int, int]]:
        rows = []
        for suffix in (".index", ".timeindex", ".txnindex"):
            path = Path(segment.batches.path(suffix))
            data = path.read_bytes() if path.exists() else None
            rows.append((path.name, -1 if data is None else len(data), crc32c(data or b"")))
        return rows

    assert segment.indexes.files.checksums() == on_disk()
    segment.indexes.rebuild(None)
    assert segment.indexes.files.checksums() == on_disk()
    entry = AbortedEntry(7, 4, 6, 6)
    segment.indexes.set_txn_index(TxnIndex())
    assert segment.indexes.files.checksums() == on_disk() and on_disk()[2][1] == -1
    for _ in range(2):
        segment.indexes.append_aborted(entry)
        assert segment.indexes.files.checksums() == on_disk()
    Path(segment.batches.path(".txnindex")).write_bytes(b"")  # written by another program
    segment.indexes.append_aborted(entry)
    assert segment.indexes.files.checksums() == on_disk()


def test_appends_write_the_same_files_as_kafka(tmp_path: Path) -> None:
    """The batches of Kafka's segment are appended to a new segment, with Kafka's index interval of
    4096 bytes.
    """
    source = KAFKA / "txn-0"
    raw = (source / f"{NAME}.log").read_bytes()
    segment = Segment.create(
        OsDisk(), str(tmp_path), 3, now_ms=0, cache=IndexCache(), index_interval_bytes=4096
    )
    original = Segment(
        OsDisk(), str(source), 3, size=len(raw), created_ms=0, cache=IndexCache(),
        index_interval_bytes=4096,
    )  # fmt: skip
    for at, header in original.batches.headers():
        data = raw[at : at + header.size_bytes]
        segment.append(
            data, len(data), header.base_offset, header.last_offset, header.max_timestamp
        )
    segment.close_for_appends()
    for suffix in (".log", ".index", ".timeindex"):
        assert (tmp_path / f"{NAME}{suffix}").read_bytes() == (
            source / f"{NAME}{suffix}"
        ).read_bytes()


def test_indexes_beyond_the_cache_size_are_dropped_from_memory(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    cache = log.log_dir.cache
    cache.max_bytes = 1100
    for segment in log.segments[:-1]:
        segment.indexes.offset_index()
    assert cache.bytes <= 1100
    assert [segment.indexes.loaded_offsets is None for segment in log.segments[:-1]] == [
        True,
        True,
        False,
    ]


def test_the_most_recently_used_indexes_stay_in_memory(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    first, second, third = log.segments[:3]
    for segment in (first, second, third):
        segment.indexes.offset_index()
    first.indexes.offset_index()
    cache = log.log_dir.cache
    cache.max_bytes = 2 * 1_100
    cache.hold(third.indexes, 1_024)
    assert [one.indexes.loaded_offsets is None for one in (first, second, third)] == [
        False,
        True,
        False,
    ]


# --- the cache of indexes -----------------------------------------------------------------------


class _Indexed:
    """The attributes of segment indexes that the cache uses."""

    is_dropped = False

    def drop(self) -> None:
        self.is_dropped = True


def test_the_cache_drops_the_least_recently_used_indexes() -> None:
    cache = IndexCache(100)
    first, second, third = segments = [_Indexed() for _ in range(3)]
    cache.hold(first, 30)  # type: ignore[arg-type]
    cache.hold(second, 40)  # type: ignore[arg-type]
    cache.hold(first, 60)  # type: ignore[arg-type]  # it has grown
    assert cache.bytes == 100 and not any(each.is_dropped for each in segments)
    cache.touch(second)  # type: ignore[arg-type]
    cache.hold(third, 1)  # type: ignore[arg-type]
    assert [each.is_dropped for each in segments] == [True, False, False]
    assert cache.bytes == 41


def test_a_single_index_may_exceed_the_cache_size() -> None:
    cache = IndexCache(100)
    alone, other = _Indexed(), _Indexed()
    cache.hold(alone, 500)  # type: ignore[arg-type]
    assert not alone.is_dropped and cache.bytes == 500
    cache.hold(other, 1)  # type: ignore[arg-type]
    assert alone.is_dropped and cache.bytes == 1


def test_an_index_whose_drop_failed_is_no_longer_counted() -> None:
    class Failing(_Indexed):
        def drop(self) -> None:
            raise OSError("no room")

    cache = IndexCache(100)
    cache.hold(Failing(), 90)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="no room"):
        cache.hold(_Indexed(), 20)  # type: ignore[arg-type]
    assert cache.bytes == 20


def test_forget_subtracts_an_index_once() -> None:
    cache = IndexCache(100)
    gone, other = _Indexed(), _Indexed()
    cache.hold(gone, 60)  # type: ignore[arg-type]
    cache.hold(other, 40)  # type: ignore[arg-type]
    for _ in range(2):
        cache.forget(gone)  # type: ignore[arg-type]
        assert cache.bytes == 40
    assert not gone.is_dropped, "it is not read any more"


# --- a segment that another process left --------------------------------------------------------

BATCH_BYTES = len(batch(pid=1, epoch=0, seq=0))
REOPENED = {"segment_bytes": 9 * BATCH_BYTES, "index_interval_bytes": BATCH_BYTES}


def fill(log: Log, numbers: range) -> None:
    """Append aborted transactions of two batches each. Their timestamps rise and fall."""
    for number in numbers:
        data = batch(
            pid=1, epoch=0, seq=number, transactional=True, timestamp=NOW_MS + 97 * number % 53
        )
        log.append(data, now_ms=NOW_MS)
        if number % 2:
            append_marker(
                log,
                producer_id=1,
                producer_epoch=0,
                coordinator_epoch=0,
                commit=False,
                now_ms=NOW_MS,
            )


def index_files(log: Log) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(log.directory).glob("*index")}


@pytest.mark.parametrize("left", ["as noted", "grown", "shorter", "others", "gone"])
@pytest.mark.parametrize(("noted", "written"), [(8, 8), (9, 9), (8, 11), (13, 14), (1, 2), (2, 3)])
def test_after_a_kill_a_segment_gets_the_same_indexes_as_without(
    tmp_path: Path, noted: int, written: int, left: str
) -> None:
    """The index files may be in any state, and any batches may follow the manifest."""
    manager, log = new_log(tmp_path / "ended", **REOPENED)
    fill(log, range(noted))
    log.checkpoint()
    fill(log, range(noted, written))
    base = log.segments.active.base_offset
    kill(manager, machine=False)
    for suffix, width in ((".index", 8), (".timeindex", 12), (".txnindex", 34)):
        path = Path(log.directory, f"{base:020d}{suffix}")
        data = path.read_bytes() if path.exists() else b""
        if left == "grown":
            path.write_bytes(data + b"\0" * width)
        elif left == "shorter":
            path.write_bytes(data[:-width])
        elif left == "others":
            path.write_bytes(b"\1" * len(data))
        elif left == "gone":
            path.unlink(missing_ok=True)
    manager = open_manager(tmp_path / "ended", log.config)
    log = manager.logs["t", 0]
    fill(log, range(written, 16))
    whole_manager, whole = new_log(tmp_path / "whole", **REOPENED)
    fill(whole, range(16))
    assert [each.base_offset for each in log.segments] == [
        each.base_offset for each in whole.segments
    ]
    for each in (manager, whole_manager):
        each.close(NOW_MS)
    expected = {name: data for name, data in index_files(whole).items() if data}
    assert {name: data for name, data in index_files(log).items() if data} == expected
    found = LogManifest.decode(Path(log.directory, MANIFEST_NAME).read_bytes())
    for segment, other in zip(log.segments, whole.segments, strict=True):
        assert (
            segment.indexes.max_timestamp,
            segment.indexes.max_timestamp_offset,
            segment.batches.size,
        ) == (
            other.indexes.max_timestamp,
            other.indexes.max_timestamp_offset,
            other.batches.size,
        )
        assert segment.indexes.first_batch_timestamp() == other.indexes.first_batch_timestamp()
        for suffix in INDEX_SUFFIXES:
            name = f"{segment.base_offset:020d}{suffix}"
            path = Path(log.directory, name)
            assert found.knows(name, path.read_bytes() if path.exists() else None), name
