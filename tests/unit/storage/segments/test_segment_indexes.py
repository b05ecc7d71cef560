"""The index files of one segment: how they are written and read, and when they are trusted."""

from __future__ import annotations

import errno
import random
from itertools import product
from pathlib import Path

import pytest
from crc32c import crc32c
from helpers.recording_disk import RecordingDisk
from helpers.storage_logs import TOPIC_ID, batch

from barnabas.storage.disk import Data, File
from barnabas.storage.files.checkpoints import Manifest, SegmentNote
from barnabas.storage.files.segment_files import INDEX_SUFFIXES, CorruptLog
from barnabas.storage.files.time_index import TimeIndex
from barnabas.storage.files.txn_index import AbortedEntry, TxnIndex
from barnabas.storage.segments.index_cache import IndexCache
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segment_indexes import SegmentIndexes

ROW_BYTES = len(batch())
ABORTED = [AbortedEntry(1, at, at + 1, at) for at in (0, 3, 6)]


class WatchedDisk(RecordingDisk):
    """A disk that records suffixes of files. `opened` has those of the files that were opened, and
    `was_read` those of the files that were read completely.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.was_read: list[str] = []
        self.fails = False

    def open(self, path: str, *, create: bool = False) -> File:
        self.opened.append(Path(path).suffix)
        self.fail()
        return super().open(path, create=create)

    def read(self, path: str) -> bytes:
        self.was_read.append(Path(path).suffix)
        return super().read(path)

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        self.fail()
        super().write_atomic(path, data, sync=sync)

    def fail(self) -> None:
        if self.fails:
            raise OSError(errno.ENOSPC, "no room")

    def take(self) -> list[tuple[str, str]]:
        """The steps since the last call, with the suffixes of the files."""
        return [(step, Path(name).suffix) for step, name in self.take_steps()]


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


def created(disk: RecordingDisk, directory: Path, interval: int = 0, base: int = 0) -> Segment:
    directory.mkdir(exist_ok=True)
    return Segment.create(
        disk, str(directory), base, now_ms=0, cache=IndexCache(), index_interval_bytes=interval
    )


def again(segment: Segment, manifest: Manifest | None = None) -> Segment:
    """The same segment, as another process would open it."""
    return Segment(
        segment.batches.disk,
        segment.batches.directory,
        segment.base_offset,
        size=Path(segment.batches.path(".log")).stat().st_size,
        created_ms=0,
        cache=IndexCache(),
        index_interval_bytes=segment.indexes.index_interval_bytes,
        manifest=manifest,
    )


def time_of(number: int) -> int:
    """A time in 1970 that rises and falls as the number grows."""
    return 37 * number % 23


def fill(segment: Segment, numbers: range) -> None:
    for number in numbers:
        data = batch(timestamp=time_of(number))
        offset = segment.base_offset + number
        data[:8] = offset.to_bytes(8)
        segment.append(bytes(data), ROW_BYTES, offset, offset, time_of(number))


def on_disk(segment: Segment) -> list[tuple[str, int, int]]:
    rows = []
    for suffix in INDEX_SUFFIXES:
        path = Path(segment.batches.path(suffix))
        data = path.read_bytes() if path.exists() else None
        rows.append((path.name, -1 if data is None else len(data), crc32c(data or b"")))
    return rows


def manifest_of(segment: Segment) -> Manifest:
    """A manifest that contains the current state of the segment."""
    end_offset = segment.base_offset + segment.batches.size // ROW_BYTES
    manifest = Manifest(TOPIC_ID, segment.base_offset, end_offset)
    manifest.segments[segment.base_offset] = SegmentNote(
        segment.base_offset,
        segment.batches.size,
        segment.indexes.max_timestamp,
        segment.indexes.max_timestamp_offset,
        end_offset,
    )
    manifest.files = {name: (size, crc) for name, size, crc in on_disk(segment)}
    return manifest


def vouched(segment: Segment, suffix: str, data: bytes | None) -> Manifest:
    """Write a file with this content. Gives a manifest with its checksum."""
    path = Path(segment.batches.path(suffix))
    if data is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(data)
    manifest = Manifest(TOPIC_ID, 0, 0)
    manifest.files[path.name] = (-1, 0) if data is None else (len(data), crc32c(data))
    return manifest


def state_of(segment: Segment) -> dict[str, object]:
    """The state of the indexes, and of the batches that they cover."""
    return {
        "offsets": segment.indexes.offset_index().offsets,
        "positions": segment.indexes.offset_index().positions,
        "timestamps": segment.indexes.time_index().timestamps,
        "offsets of times": segment.indexes.time_index().offsets,
        "max_timestamp": (segment.indexes.max_timestamp, segment.indexes.max_timestamp_offset),
        "first_timestamp": segment.indexes.first_batch_timestamp(),
    }


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[SegmentIndexes]:
    """Collects the indexes that are rebuilt."""
    built: list[SegmentIndexes] = []
    rebuild = SegmentIndexes.rebuild

    def noting(self: SegmentIndexes, why: str | None) -> None:
        built.append(self)
        rebuild(self, why)

    monkeypatch.setattr(SegmentIndexes, "rebuild", noting)
    return built


# --- writing ------------------------------------------------------------------------------------


def test_index_files_grow_with_the_segment(disk: WatchedDisk, tmp_path: Path) -> None:
    """Missing entries are appended, and a complete file is not written. No file is read to compute
    its checksum.
    """
    segment = created(disk, tmp_path)
    assert segment.indexes.files.checksums() == on_disk(segment)
    for number in range(6):
        fill(segment, range(3 * number, 3 * number + 3))
        if number % 2:
            segment.indexes.append_aborted(ABORTED[number // 2])
        segment.indexes.write()
        index, times = segment.indexes.offset_index(), segment.indexes.time_index()
        assert Path(segment.batches.path(".index")).read_bytes() == index.encode()
        assert Path(segment.batches.path(".timeindex")).read_bytes() == times.encode()
        disk.opened = []
        segment.indexes.write()
        assert disk.opened == []
        assert segment.indexes.files.checksums() == on_disk(segment)
    segment.close_for_appends()
    assert segment.indexes.files.checksums() == on_disk(segment)
    assert (
        Path(segment.batches.path(".timeindex")).read_bytes()
        == segment.indexes.time_index().encode()
    )
    assert disk.was_read == [] and disk.take() == [], "and none was cut or rewritten"


@pytest.mark.parametrize("junk", [b"\0", bytes(5), bytes(24)])
def test_what_lies_behind_the_entries_is_cut_before_others_are_added(
    disk: WatchedDisk, tmp_path: Path, junk: bytes
) -> None:
    """An append that finds too little space on the disk leaves such bytes."""
    segment = created(disk, tmp_path)
    for numbers in (range(8), range(8, 30)):
        fill(segment, numbers)
        segment.indexes.write()
        for suffix, data in (
            (".index", segment.indexes.offset_index().encode()),
            (".timeindex", segment.indexes.time_index().encode()),
        ):
            path = Path(segment.batches.path(suffix))
            assert path.read_bytes() == data
            path.write_bytes(data + junk)
    segment.indexes.offset_index().append(1_000, 100_000)
    segment.indexes.time_index().maybe_append(1_000, 1_000)
    segment.indexes.write()
    assert segment.indexes.files.checksums() == on_disk(segment)
    assert disk.take() == [("truncate", ".index"), ("truncate", ".timeindex")] * 2


def test_an_index_file_that_is_gone_is_made_again(disk: WatchedDisk, tmp_path: Path) -> None:
    segment = created(disk, tmp_path)
    for suffix in (".index", ".timeindex"):
        Path(segment.batches.path(suffix)).unlink()
    fill(segment, range(5))
    segment.indexes.write()
    assert (
        Path(segment.batches.path(".index")).read_bytes() == segment.indexes.offset_index().encode()
    )
    assert (
        Path(segment.batches.path(".timeindex")).read_bytes()
        == segment.indexes.time_index().encode()
    )


def test_checksums_are_those_of_before_where_a_write_failed(
    disk: WatchedDisk, tmp_path: Path
) -> None:
    """The write is retried when the disk has space."""
    segment = created(disk, tmp_path)
    fill(segment, range(5))
    segment.indexes.write()
    fill(segment, range(5, 9))
    for written in (segment.indexes.written_entries, -1):
        segment.indexes.written_entries = segment.indexes.written_times = written
        disk.fails = True
        with pytest.raises(OSError, match="no room"):
            segment.close_for_appends()
        assert not segment.indexes.is_closed, "it may still grow"
        disk.fails = False
        assert segment.indexes.files.checksums() == on_disk(segment)
    segment.close_for_appends()
    assert segment.indexes.is_closed and segment.indexes.files.checksums() == on_disk(segment)


def test_rebuilt_they_are_written_without_waiting_for_the_disk(
    disk: WatchedDisk, tmp_path: Path
) -> None:
    """Later, the checksums show whether the data became durable."""
    segment = created(disk, tmp_path)
    fill(segment, range(5))
    segment.close_for_appends()
    segment.indexes.rebuild(None)
    segment.indexes.set_txn_index(TxnIndex(ABORTED[:1]))
    assert disk.take() == [("write", ".index"), ("write", ".timeindex"), ("write", ".txnindex")]


def test_a_segment_that_begins_again_knows_nothing_of_before(
    disk: WatchedDisk, tmp_path: Path
) -> None:
    """The batches of the segment can then be indexed again, no matter what the files contain."""
    segment = created(disk, tmp_path, 3 * ROW_BYTES)
    fill(segment, range(9))
    segment.indexes.append_aborted(ABORTED[0])
    segment.indexes.write()
    expected, rest = state_of(segment), segment.indexes.bytes_since_entry
    for suffix in INDEX_SUFFIXES:
        Path(segment.batches.path(suffix)).write_bytes(b"of somebody else")
    segment.start_empty()
    assert segment.indexes.files.checksums() == on_disk(segment)
    for position, header in segment.batches.headers():
        segment.indexes.index_batch(
            position, header.size_bytes, header.last_offset, header.max_timestamp
        )
    assert state_of(segment) == expected and segment.indexes.bytes_since_entry == rest
    assert segment.indexes.txn_index().entries == []


def test_the_checksum_of_a_file_that_begins_goes_on_from_nothing(
    disk: WatchedDisk, tmp_path: Path
) -> None:
    segment = created(disk, tmp_path)
    segment.start_empty()
    segment.indexes.append_aborted(ABORTED[0])
    assert (
        segment.indexes.files.checksums() == on_disk(segment) and ".txnindex" not in disk.was_read
    )


# --- memory -------------------------------------------------------------------------------------


def test_an_open_segment_keeps_its_indexes(disk: WatchedDisk, tmp_path: Path) -> None:
    segment = created(disk, tmp_path)
    fill(segment, range(5))
    index, times = segment.indexes.offset_index(), segment.indexes.time_index()
    segment.indexes.drop()
    assert segment.indexes.offset_index() is index and segment.indexes.time_index() is times
    assert segment.indexes.has_txn_index()
    segment.close_for_appends()
    segment.indexes.drop()
    assert segment.indexes.offset_index() is not index and not segment.indexes.has_txn_index()
    assert disk.take() == []


def test_indexes_of_which_one_is_loaded_are_dropped_without_a_write(
    disk: WatchedDisk, tmp_path: Path
) -> None:
    segment = created(disk, tmp_path)
    fill(segment, range(5))
    segment.close_for_appends()
    manifest = manifest_of(segment)
    for load in (
        SegmentIndexes.offset_index,
        SegmentIndexes.time_index,
        SegmentIndexes.try_load_txn_index,
    ):
        closed = again(segment, manifest)
        load(closed.indexes)
        disk.opened = []
        closed.indexes.drop()
        assert disk.opened == [] and disk.take() == []


def test_indexes_for_which_there_was_no_space_when_they_were_dropped_are_built_again(
    disk: WatchedDisk, tmp_path: Path
) -> None:
    """The files are old. They lack the entries for later batches of the log."""
    segment = closed_segment(disk, tmp_path)
    indexes = segment.indexes
    offsets, times = indexes.offset_index().encode(), indexes.time_index().encode()
    for suffix, width in ((".index", 8), (".timeindex", 12)):
        path = Path(segment.batches.path(suffix))
        path.write_bytes(path.read_bytes()[:width])
    assert segment.batches.file  # opens the log file
    disk.fails = True
    indexes.rebuild(None)
    indexes.set_txn_index(TxnIndex(ABORTED))
    indexes.drop()
    disk.fails = False
    assert not indexes.try_load_txn_index(), "it would show aborted records as committed ones"
    assert indexes.time_index().encode() == times
    assert indexes.trusted_offset_index().encode() == offsets


@pytest.mark.parametrize(("suffix", "width"), [(".index", 8), (".timeindex", 12)])
@pytest.mark.parametrize("junk", [0, 1, 8, 12, 96])
def test_what_is_no_entry_is_left_out_when_the_indexes_are_dropped(
    disk: WatchedDisk, tmp_path: Path, suffix: str, width: int, junk: int
) -> None:
    """Apache Kafka leaves zeros after the entries of an open segment's index."""
    segment = created(disk, tmp_path)
    fill(segment, range(9))
    segment.close_for_appends()
    path = Path(segment.batches.path(suffix))
    whole = path.read_bytes()
    assert len(whole) > 2 * width
    closed = again(segment, vouched(segment, suffix, whole + bytes(junk)))
    index = closed.indexes.offset_index() if suffix == ".index" else closed.indexes.time_index()
    assert index.encode() == whole
    closed.indexes.drop()
    assert path.read_bytes() == whole
    assert disk.take() == ([("write", suffix)] if junk else [])


def test_what_indexes_take_in_memory_is_counted_however_they_came(
    disk: WatchedDisk, tmp_path: Path
) -> None:
    segment = created(disk, tmp_path)
    fill(segment, range(200))
    segment.close_for_appends()
    least = 8 * len(segment.indexes.offset_index())
    manifest = manifest_of(segment)
    assert least <= segment.indexes.cache.bytes <= least + 2_048
    for load in (
        [SegmentIndexes.offset_index],
        [lambda one: one.rebuild(None)],
        [SegmentIndexes.offset_index, SegmentIndexes.try_load_txn_index],
    ):
        closed = again(segment, manifest)
        for step in load:
            step(closed.indexes)
        assert least <= closed.indexes.cache.bytes <= least + 2_048
        closed.close()
        assert closed.indexes.cache.bytes == 0
    closed = again(segment, manifest)
    assert closed.indexes.try_load_txn_index() and 0 < closed.indexes.cache.bytes <= 2_048


def test_a_segment_that_is_closed_has_no_file_open(disk: WatchedDisk, tmp_path: Path) -> None:
    segment = created(disk, tmp_path)
    file = segment.batches.file
    assert file.fileno() >= 0
    segment.close()
    assert file.fileno() == -1, "also where somebody still has it"
    assert segment.batches.file.fileno() >= 0, "who reads it again opens it again"
    assert segment.batches.file is segment.batches.file
    segment.remove_files()
    with pytest.raises(CorruptLog, match="the file is gone"):
        segment.batches.file.pread(1, 0)


# --- trust in files -----------------------------------------------------------------------------


def closed_segment(disk: WatchedDisk, path: Path) -> Segment:
    segment = created(disk, path)
    fill(segment, range(9))
    segment.close_for_appends()
    return segment


def test_a_segment_that_was_not_read_has_no_times(disk: WatchedDisk, tmp_path: Path) -> None:
    segment = again(created(disk, tmp_path, base=7))
    assert (segment.indexes.max_timestamp, segment.indexes.max_timestamp_offset) == (-1, 7)
    assert not segment.indexes.has_times and not segment.indexes.txn_trusted


ONE_TIME = TimeIndex()
ONE_TIME.maybe_append(5, 1)


@pytest.mark.parametrize(
    ("data", "is_noted", "is_built", "warnings"),
    [
        (ONE_TIME.encode(), True, False, 0),
        (b"", True, False, 0),
        (ONE_TIME.encode(), False, True, 0),
        (None, False, True, 1),
        (None, True, True, 1),
    ],
)
def test_a_time_index_is_believed_that_the_manifest_notes(
    disk: WatchedDisk,
    tmp_path: Path,
    builds: list[SegmentIndexes],
    caplog: pytest.LogCaptureFixture,
    data: bytes | None,
    is_noted: bool,
    is_built: bool,
    warnings: int,
) -> None:
    """If the manifest does not contain the time index, it is rebuilt once. A missing file is
    logged.
    """
    whole = closed_segment(disk, tmp_path)
    right = whole.indexes.time_index().encode()
    noted = vouched(whole, ".timeindex", data)
    segment = again(whole, noted if is_noted else Manifest(TOPIC_ID, 0, 0))
    for _ in range(2):
        segment.indexes.load_times()
        assert (
            segment.indexes.has_times
            and segment.indexes.time_index() is segment.indexes.time_index()
        )
        assert segment.indexes.time_index().encode() == (right if is_built else data)
        highest = (
            (whole.indexes.max_timestamp, whole.indexes.max_timestamp_offset)
            if is_built
            else (5, 1)
        )
        assert (segment.indexes.max_timestamp, segment.indexes.max_timestamp_offset) == (
            highest if is_built or data else (-1, 0)
        )
        segment.indexes.drop()
        disk.was_read = []
        segment.indexes.load_times()
        assert not disk.was_read, "they are known, and stay known"
    assert len(builds) == is_built and len(caplog.messages) == warnings
    assert warnings == caplog.text.count("is missing")


def test_a_manifest_that_is_wrong_about_one_index_is_believed_about_none(
    disk: WatchedDisk, tmp_path: Path
) -> None:
    """Whatever caused one wrong checksum may have affected the other indexes as well."""
    whole = closed_segment(disk, tmp_path)
    right = whole.indexes.time_index().encode()
    for find_out in (
        lambda indexes: indexes.set_txn_index(TxnIndex(ABORTED[:1])),
        lambda indexes: indexes.rebuild(None),
    ):
        segment = again(whole, vouched(whole, ".timeindex", ONE_TIME.encode()))
        find_out(segment.indexes)
        assert segment.indexes.manifest is None
        assert segment.indexes.time_index().encode() == right


def test_an_index_without_a_note_is_rebuilt_for_what_cannot_check_it(
    disk: WatchedDisk, tmp_path: Path, builds: list[SegmentIndexes]
) -> None:
    """The index is rebuilt only once, since an index that this process built is valid."""
    whole = closed_segment(disk, tmp_path)
    right = whole.indexes.upper_bound_offset(2 * ROW_BYTES)
    assert right == 2
    noted = manifest_of(whole)
    Path(whole.batches.path(".index")).write_bytes((7).to_bytes(4) + (2 * ROW_BYTES).to_bytes(4))
    segment = again(whole, noted)
    for _ in range(3):
        assert segment.indexes.upper_bound_offset(2 * ROW_BYTES) == right
        segment.indexes.drop()
    assert builds == [segment.indexes]
    segment = again(whole, manifest_of(whole))
    assert segment.indexes.upper_bound_offset(2 * ROW_BYTES) == right and len(builds) == 1


def test_that_an_offset_index_is_missing_is_told_and_it_is_built(
    disk: WatchedDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = closed_segment(disk, tmp_path)
    right = whole.indexes.offset_index().encode()
    Path(whole.batches.path(".index")).unlink()
    segment = again(whole)
    assert (
        segment.indexes.offset_index().encode()
        == right
        == Path(whole.batches.path(".index")).read_bytes()
    )
    assert caplog.messages == [
        f"an index of {segment.batches.path('.log')} is missing: they are rebuilt from the log"
    ]


def test_what_lies_before_damage_is_found_once_the_index_is_rebuilt(
    disk: WatchedDisk, tmp_path: Path
) -> None:
    """The rebuild ends with an error. The indexes then cover the batches before the damage."""
    whole = closed_segment(disk, tmp_path)
    log_path = Path(whole.batches.path(".log"))
    Path(whole.batches.path(".index")).unlink()
    data = bytearray(log_path.read_bytes())
    data[2 * ROW_BYTES + 16] ^= 1  # the magic byte
    log_path.write_bytes(data)
    segment = again(whole)
    with pytest.raises(CorruptLog):
        segment.find(whole.base_offset)
    for number in range(2):
        place = segment.find(whole.base_offset + number)
        assert place is not None and place.base_offset == whole.base_offset + number


def test_data_behind_the_last_entry_has_no_bound(disk: WatchedDisk, tmp_path: Path) -> None:
    segment = closed_segment(disk, tmp_path)
    last = segment.indexes.offset_index().positions[-1]
    assert segment.indexes.upper_bound_offset(last) == 8
    assert segment.indexes.upper_bound_offset(last + 1) is None


def test_an_aborted_index_is_believed_that_the_manifest_notes(
    disk: WatchedDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = closed_segment(disk, tmp_path)
    data = TxnIndex(ABORTED).encode()
    for content, entries in ((None, []), (data, ABORTED)):
        segment = again(whole, vouched(whole, ".txnindex", content))
        assert segment.indexes.try_load_txn_index() and segment.indexes.txn_trusted
        assert segment.indexes.txn_index().entries == entries
        segment.indexes.drop()
        segment.indexes.manifest = None
        assert segment.indexes.try_load_txn_index(), "the index was verified in this process"
        assert not again(whole).indexes.try_load_txn_index()
    assert not caplog.messages
    segment = again(whole, vouched(whole, ".txnindex", data[:-1]))
    segment.indexes.txn_trusted = True
    assert not segment.indexes.try_load_txn_index() and not segment.indexes.txn_trusted
    assert not segment.indexes.has_txn_index() and "it is rebuilt from the log" in caplog.text


def test_an_aborted_index_rebuilt_is_logged_where_the_file_was_another(
    disk: WatchedDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A rebuilt index of aborted transactions is written, with a warning, only if it differs from
    the file.
    """
    whole = closed_segment(disk, tmp_path)
    manifest = vouched(whole, ".txnindex", TxnIndex(ABORTED[:2]).encode())
    steps: list[tuple[list[AbortedEntry], list[tuple[str, str]]]] = [
        (ABORTED[:2], []),
        (ABORTED, [("write", ".txnindex")]),
        (ABORTED, []),
        ([], [("unlink", ".txnindex")]),
        ([], []),
    ]
    warned = 0
    for entries, expected in steps:
        segment = again(whole, manifest)
        segment.indexes.set_txn_index(TxnIndex(entries))
        assert segment.indexes.txn_trusted and segment.indexes.txn_index().entries == entries
        assert disk.take() == expected
        warned += len(expected)
        assert len(caplog.messages) == warned
        assert (segment.indexes.manifest is manifest) == (not expected)
        assert segment.indexes.files.checksums() == on_disk(segment)


# --- rebuilt ---------------------------------------------------------------------------------


def emptied(offset: int) -> bytes:
    """A batch whose records compaction removed. Its header still has their timestamp."""
    data = batch(timestamp=10_000)[:61]
    data[:8], data[8:12], data[57:61] = offset.to_bytes(8), (49).to_bytes(4), bytes(4)
    return bytes(data)


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("first_empty", [False, True])
def test_indexes_rebuilt_are_those_that_were_appended(
    disk: WatchedDisk, tmp_path: Path, is_closed: bool, first_empty: bool
) -> None:
    """Emptied batches have no time. The last entry of a closed segment is for the highest time. An
    open segment has no such entry, since it may still get a higher time.
    """
    rng = random.Random(2)
    for interval in (0, ROW_BYTES - 1, ROW_BYTES, 3 * ROW_BYTES - 1, 10**6):
        segment = created(disk, tmp_path / f"{interval}", interval, base=100)
        for offset in range(100, 130):
            if rng.randrange(4) == 0 or (first_empty and offset == 100):
                segment.append(emptied(offset), 61, offset, offset, -1)
            else:
                fill(segment, range(offset - 100, offset - 99))
        before = segment.indexes.bytes_since_entry
        if is_closed:
            segment.close_for_appends()
        expected = state_of(segment)
        if first_empty:
            assert expected["first_timestamp"] == -1
        segment.indexes.rebuild(None)
        assert state_of(segment) == expected and segment.indexes.bytes_since_entry == before
        if is_closed:
            times = segment.indexes.time_index().encode()
            assert Path(segment.batches.path(".timeindex")).read_bytes() == times, "at once"
            segment.indexes.drop()
            assert state_of(segment) == expected and segment.indexes.files.checksums() == on_disk(
                segment
            )


def test_no_index_is_built_for_a_segment_that_went_while_its_build_waited(
    disk: WatchedDisk, tmp_path: Path
) -> None:
    """The rebuild may consist of a single part. Meanwhile, the directory may have been deleted, or
    may belong to another log.
    """
    segment = closed_segment(disk, tmp_path)
    waiting = segment.indexes._rebuilding(None)
    segment.indexes.cache.forget(segment.indexes)
    for path in tmp_path.iterdir():
        if path.suffix != ".log":
            path.unlink()
    disk.take_steps()
    assert list(waiting) == []
    assert [path.suffix for path in tmp_path.iterdir()] == [".log"]


def test_without_any_time_there_is_no_highest(disk: WatchedDisk, tmp_path: Path) -> None:
    segment = created(disk, tmp_path, base=100)
    for offset in range(101, 104):
        segment.append(emptied(offset), 61, offset, offset, -1)
    for _ in range(2):
        assert (segment.indexes.max_timestamp, segment.indexes.max_timestamp_offset) == (-1, 100)
        assert len(segment.indexes.time_index()) == 0
        segment.indexes.rebuild(None)


def test_the_log_says_why_indexes_are_rebuilt(
    disk: WatchedDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the only reason is a missing entry in the manifest, nothing is logged."""
    segment = closed_segment(disk, tmp_path)
    segment.indexes.rebuild(None)
    assert not caplog.messages
    segment.indexes.rebuild("has a hole")
    assert caplog.messages == [
        f"an index of {segment.batches.path('.log')} has a hole: they are rebuilt from the log"
    ]


# --- opened again -------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [0, 2 * ROW_BYTES - 1, 3 * ROW_BYTES])
@pytest.mark.parametrize("are_written", [False, True])
def test_a_reopened_segment_goes_on_from_what_the_manifest_notes(
    tmp_path: Path, interval: int, are_written: bool
) -> None:
    """The state must be the same as without a restart, whether or not the index files have later
    entries. A file that agrees with the manifest is not truncated, rewritten, or read again for a
    known checksum.
    """
    for number, (noted, later, aborted, aborted_later) in enumerate(
        product((0, 1, 2, 5), (0, 5), (0, 1), (0, 1))
    ):
        disk = WatchedDisk()
        segment = created(disk, tmp_path / f"{number}", interval, base=50)
        fill(segment, range(noted))
        for entry in ABORTED[:aborted]:
            segment.indexes.append_aborted(entry)
        segment.indexes.write()
        manifest = manifest_of(segment)
        before = on_disk(segment)
        fill(segment, range(noted, noted + later))
        for entry in ABORTED[aborted : aborted + aborted_later]:
            segment.indexes.append_aborted(entry)
        if are_written:
            segment.indexes.write()
        grown = {
            Path(row[0]).suffix
            for row, old in zip(on_disk(segment), before, strict=True)
            if row != old
        }
        reopened = again(segment, manifest)
        assert disk.take() == []
        note = manifest.segments[50]
        assert reopened.reopen(note)
        assert reopened.batches.size == note.size == noted * ROW_BYTES
        assert (
            not reopened.indexes.is_closed
            and reopened.indexes.txn_index().entries == ABORTED[:aborted]
        )
        assert disk.take() == [
            ("write" if suffix == ".txnindex" else "truncate", suffix)
            for suffix in INDEX_SUFFIXES
            if suffix in grown
        ]
        disk.was_read = []
        assert reopened.indexes.files.checksums() == on_disk(reopened)
        assert disk.was_read == [suffix for suffix in (".txnindex",) if suffix in grown]
        reopened.batches.size = segment.batches.size
        for position, header in reopened.batches.headers(note.size):
            reopened.indexes.index_batch(
                position, header.size_bytes, header.last_offset, header.max_timestamp
            )
        for entry in ABORTED[aborted : aborted + aborted_later]:
            reopened.indexes.append_aborted(entry)
        assert state_of(reopened) == state_of(segment)
        assert reopened.indexes.bytes_since_entry == segment.indexes.bytes_since_entry
        assert reopened.indexes.txn_index().entries == segment.indexes.txn_index().entries
        reopened.close_for_appends()
        assert disk.take() == []
        assert reopened.indexes.files.checksums() == on_disk(reopened)
        index, times = segment.indexes.offset_index(), segment.indexes.time_index()
        times.maybe_append(segment.indexes.max_timestamp, segment.indexes.max_timestamp_offset - 50)
        assert Path(segment.batches.path(".index")).read_bytes() == index.encode()
        assert Path(segment.batches.path(".timeindex")).read_bytes() == times.encode()


@pytest.mark.parametrize("suffix", INDEX_SUFFIXES)
def test_a_segment_is_not_reopened_with_indexes_that_are_not_as_noted(
    disk: WatchedDisk, tmp_path: Path, suffix: str
) -> None:
    segment = created(disk, tmp_path)
    fill(segment, range(9))
    segment.indexes.append_aborted(ABORTED[0])
    segment.indexes.write()
    manifest = manifest_of(segment)
    note = manifest.segments[0]
    assert not again(segment).reopen(note), "no manifest has their checksums"
    path = Path(segment.batches.path(suffix))
    data = path.read_bytes()
    for content in (data[:-1], data[:-1] + b"?", None):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        assert not again(segment, manifest).reopen(note)
        path.write_bytes(data)
    assert again(segment, manifest).reopen(note)
    if suffix == ".txnindex":
        manifest.files[path.name] = len(data) - 1, crc32c(data[:-1])
        assert not again(segment, manifest).reopen(note), "not a whole number of entries"
    del manifest.files[path.name]
    assert not again(segment, manifest).reopen(note), "the manifest has no checksum of this index"


def test_a_reopened_index_that_has_no_entries_to_the_end_is_rewritten(
    disk: WatchedDisk, tmp_path: Path
) -> None:
    """The manifest's checksum covers the zeros that Apache Kafka leaves."""
    segment = created(disk, tmp_path)
    fill(segment, range(9))
    segment.indexes.write()
    for suffix in (".index", ".timeindex"):
        path = Path(segment.batches.path(suffix))
        path.write_bytes(path.read_bytes() + bytes(24))
    manifest = manifest_of(segment)
    reopened = again(segment, manifest)
    assert reopened.reopen(manifest.segments[0])
    reopened.indexes.write()
    assert disk.take() == [("write", ".index"), ("write", ".timeindex")]
    assert (
        Path(segment.batches.path(".index")).read_bytes() == segment.indexes.offset_index().encode()
    )
    assert (
        Path(segment.batches.path(".timeindex")).read_bytes()
        == segment.indexes.time_index().encode()
    )
