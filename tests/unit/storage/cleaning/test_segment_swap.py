"""The swap of cleaned segments, with Kafka's file names. Also, what a start does after a stop at
each step of the swap.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from crc32c import crc32c
from helpers.recording_disk import RecordingDisk
from helpers.storage_kafka_log import TXN_END, kafka_log
from helpers.storage_logs import TOPIC_ID

from barnabas.protocol.records import HEADER_SIZE, computed_crc, read_header
from barnabas.storage.cleaning.clean_job import CleanedSegment
from barnabas.storage.cleaning.segment_swap import complete_swaps, discard_result, swap_in
from barnabas.storage.disk import NotWrittenError, OsDisk
from barnabas.storage.files.checkpoints import MANIFEST_NAME, Manifest, SegmentNote
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.files.time_index import TimeIndex
from barnabas.storage.log.log import Log

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
CLEANED = CleanedSegment(28, (28,), 237, 1700000000046, 30)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return kafka_log(tmp_path)


def copy_as(directory: Path, base: int, ending: str) -> None:
    """Copy the files of a segment, as if a cleaning had removed none of its records."""
    for suffix in SUFFIXES:
        source = directory / f"{base:020d}{suffix}"
        target = Path(f"{source}{ending}")
        if source.exists():
            shutil.copy(source, target)
        else:
            target.write_bytes(b"")


def names(directory: Path, ending: str) -> list[str]:
    return sorted(path.name for path in directory.glob(f"*{ending}"))


def test_the_new_segment_takes_the_old_ones_place(log: Log) -> None:
    directory = Path(log.directory)
    copy_as(directory, 28, ".cleaned")
    old = log.segments[2]
    assert swap_in(log, [CLEANED], 0)
    assert log.segments[2] is not old and log.segments.base_offsets == [0, 3, 28, 31]
    assert names(directory, ".cleaned") == names(directory, ".swap") == []
    assert f"{28:020d}.log.deleted" in names(directory, ".deleted")
    assert [header.base_offset for header, _ in log.read_batches(28)][:3] == [28, 29, 30]


def test_snapshots_within_what_was_cleaned_go(log: Log) -> None:
    copy_as(Path(log.directory), 28, ".cleaned")
    swap_in(log, [CLEANED], 0)
    assert log.snapshots.offsets == [31, TXN_END]


def test_a_group_that_lost_segments_is_dropped_with_all_later_ones(log: Log) -> None:
    directory = Path(log.directory)
    for base in (0, 28):
        copy_as(directory, base, ".cleaned")
    replaced = [segment.base_offset for segment in log.segments]
    groups = [CleanedSegment(0, (0, 1), 234, 1, 1), CLEANED]
    assert not swap_in(log, groups, 0)
    assert log.segments.base_offsets == replaced and names(directory, ".cleaned") == []


def test_a_result_that_nobody_wants_is_removed(log: Log) -> None:
    copy_as(Path(log.directory), 28, ".cleaned")
    discard_result(log, [CLEANED])
    assert names(Path(log.directory), ".cleaned") == []


def test_a_start_completes_a_swap_whose_log_has_its_swap_name(log: Log) -> None:
    directory = Path(log.directory)
    raw = (directory / f"{28:020d}.log").read_bytes()
    copy_as(directory, 28, ".swap")
    (directory / f"{28:020d}.log").unlink()
    complete_swaps(OsDisk(), str(directory))
    assert names(directory, ".swap") == []
    assert (directory / f"{28:020d}.log").read_bytes() == raw


def test_a_start_drops_indexes_whose_log_did_not_come_so_far(log: Log) -> None:
    directory = Path(log.directory)
    raw = (directory / f"{28:020d}.log").read_bytes()
    (directory / f"{28:020d}.index.swap").write_bytes(b"half")
    complete_swaps(OsDisk(), str(directory))
    assert names(directory, ".swap") == []
    assert (directory / f"{28:020d}.log").read_bytes() == raw


def test_segments_within_the_offsets_of_the_new_one_go_at_a_start(log: Log) -> None:
    directory = Path(log.directory)
    merged = b"".join((directory / f"{base:020d}.log").read_bytes() for base in (0, 3))
    (directory / f"{0:020d}.log.swap").write_bytes(merged)
    (directory / f"{0:020d}.txnindex.swap").write_bytes(b"")
    complete_swaps(OsDisk(), str(directory))
    assert names(directory, ".log") == [f"{base:020d}.log" for base in (0, 28, 31)]
    assert (directory / f"{0:020d}.log").read_bytes() == merged


# --- the disk, the manifest and readers after a swap --------------------------------------------


def on_recording_disk(log: Log) -> RecordingDisk:
    disk = log.disk = RecordingDisk()
    log.log_dir.disk = disk
    return disk


def manifest_of(log: Log) -> Manifest:
    return Manifest.decode(Path(log.directory, MANIFEST_NAME).read_bytes())


def test_the_log_file_takes_its_swap_name_last(log: Log) -> None:
    """A start completes the swap if the log file has its swap name. Otherwise it deletes the files
    of the swap.
    """
    copy_as(Path(log.directory), 28, ".cleaned")
    disk = on_recording_disk(log)
    swap_in(log, [CLEANED], 0)
    swapped = [name for step, name in disk.take_steps() if name.endswith(".swap")]
    assert sorted(swapped[:4]) == sorted(f"{28:020d}{suffix}.swap" for suffix in SUFFIXES)
    assert swapped[3] == f"{28:020d}.log.swap"


@pytest.mark.parametrize("by_a_start", [False, True])
def test_the_log_file_takes_its_final_name_last(log: Log, by_a_start: bool) -> None:
    """A start completes a swap whose log file still has its swap name. If the log file had its
    final name already, the start would delete the remaining indexes of the swap.
    """
    copy_as(Path(log.directory), 28, ".swap" if by_a_start else ".cleaned")
    disk = on_recording_disk(log)
    if by_a_start:
        complete_swaps(disk, log.directory)
    else:
        swap_in(log, [CLEANED], 0)
    final = [name for step, name in disk.take_steps() if step == "rename to"]
    final = [name for name in final if name in {f"{28:020d}{suffix}" for suffix in SUFFIXES}]
    assert len(final) == len(SUFFIXES) and final[-1] == f"{28:020d}.log"


@pytest.mark.parametrize("renames", range(8))
def test_a_swap_without_space_for_its_names_leaves_no_file_of_the_job(
    log: Log, renames: int
) -> None:
    """Even the files of groups that were not renamed yet are deleted, since they take up the space
    that is missing.
    """

    class FullDisk(OsDisk):
        left = renames

        def rename(self, old: str, new: str) -> None:
            if not self.left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), new)
            self.left -= 1
            super().rename(old, new)

    directory = Path(log.directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    for base in (0, 28):
        copy_as(directory, base, ".cleaned")
    log.disk = FullDisk()
    with pytest.raises(NotWrittenError):
        swap_in(log, [CleanedSegment(0, (0,), 234, 1, 1), CLEANED], 0)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert log.segments.base_offsets == [0, 3, 28, 31]


def test_the_manifest_of_the_new_state_is_durable_before_an_old_segment_goes(log: Log) -> None:
    """As soon as an old segment is deleted, the renames may become durable at any time."""
    copy_as(Path(log.directory), 28, ".cleaned")
    disk = on_recording_disk(log)
    swap_in(log, [CLEANED], 0)
    steps = disk.take_steps()
    (noted,) = [at for at, step in enumerate(steps) if step == ("write and sync", MANIFEST_NAME)]
    before, after = ([name for _, name in some] for some in (steps[:noted], steps[noted:]))
    assert not [name for name in before if name.endswith((".deleted", ".log"))]
    assert not [name for name in after if name.endswith(".swap")]
    assert f"{28:020d}.log.deleted" in after


def test_the_manifest_has_the_new_segment(log: Log) -> None:
    directory = Path(log.directory)
    copy_as(directory, 28, ".cleaned")
    swap_in(log, [CLEANED], 0)
    manifest = manifest_of(log)
    assert list(manifest.segments) == [0, 3, 28, 31]
    note, log_file = manifest.segments[28], directory / f"{28:020d}.log"
    assert (note.size, note.end_offset) == (log_file.stat().st_size, 31)
    times = TimeIndex.decode((directory / f"{28:020d}.timeindex").read_bytes())
    last = times.last()
    assert last is not None
    assert (note.max_timestamp, note.max_timestamp_offset) == (
        last.timestamp,
        28 + last.relative_offset,
    )
    for suffix in (".index", ".timeindex"):
        name = f"{28:020d}{suffix}"
        data = (directory / name).read_bytes()
        assert manifest.files[name] == (len(data), crc32c(data))
    assert manifest.files[f"{28:020d}.txnindex"][0] == -1, "nothing was aborted there"
    assert not (directory / f"{28:020d}.txnindex").exists()


def test_the_new_segment_is_as_old_as_the_first_of_those_it_stands_for(log: Log) -> None:
    copy_as(Path(log.directory), 28, ".cleaned")
    log.segments[2].created_ms = 77
    swap_in(log, [CLEANED], 0)
    new = log.segments[2]
    assert (new.created_ms, new.batches.size) == (77, 237)
    assert (new.indexes.max_timestamp, new.indexes.max_timestamp_offset) == (1700000000046, 30)
    assert (
        new.indexes.has_times
        and new.indexes.index_trusted
        and new.indexes.rebuilt
        and new.indexes.txn_trusted
    )


def test_aborted_transactions_of_the_new_segment_stay_known(log: Log) -> None:
    """The second segment has an aborted transaction."""
    directory = Path(log.directory)
    log.reader.txn_index(log.segments[1])
    aborted = (directory / f"{3:020d}.txnindex").read_bytes()
    assert aborted
    copy_as(directory, 3, ".cleaned")
    size = (directory / f"{3:020d}.log").stat().st_size
    swap_in(log, [CleanedSegment(3, (3,), size, 1, 27)], 0)
    assert (directory / f"{3:020d}.txnindex").read_bytes() == aborted
    assert manifest_of(log).files[f"{3:020d}.txnindex"] == (len(aborted), crc32c(aborted))


def test_a_group_that_is_gone_altogether_is_not_missed(log: Log) -> None:
    """Retention has deleted the segment of the group. The other groups of the job are swapped
    in.
    """
    directory = Path(log.directory)
    log.delete_records_before(3)
    log.delete_old_segments(0)
    for base in (0, 28):
        copy_as(directory, base, ".cleaned")
    assert swap_in(log, [CleanedSegment(0, (0,), 234, 1, 1), CLEANED], 0)
    assert names(directory, ".cleaned") == []
    assert log.segments.base_offsets == [3, 28, 31]
    assert f"{28:020d}.log.deleted" in names(directory, ".deleted")


def test_old_files_go_after_their_delay(log: Log) -> None:
    directory = Path(log.directory)
    copy_as(directory, 28, ".cleaned")
    delay_ms = log.config.file_delete_delay_ms
    swap_in(log, [CLEANED], 1_000)
    assert log.log_dir.trash.take_due(1_000 + delay_ms - 1, 99) == []
    assert f"{directory}/{28:020d}.log.deleted" in log.log_dir.trash.take_due(1_000 + delay_ms, 99)


def test_a_result_of_a_log_that_is_gone_needs_no_removal(log: Log) -> None:
    class Strict(OsDisk):
        def unlink(self, path: str) -> None:
            assert Path(path).parent.is_dir(), "there is nothing to look for a file in"
            super().unlink(path)

    log.disk = Strict()
    discard_result(log, [CLEANED])
    shutil.rmtree(log.directory)
    discard_result(log, [CLEANED])


def test_the_steps_come_in_their_order(log: Log) -> None:
    """Because of this order, a start can tell from the files which steps were completed before a
    stop.
    """
    copy_as(Path(log.directory), 28, ".cleaned")
    (Path(log.directory) / f"{30:020d}.snapshot").write_bytes(b"")
    log.snapshots.offsets.insert(-2, 30)
    disk = log.snapshots._disk = log._checkpoint._disk = on_recording_disk(log)
    swap_in(log, [CLEANED], 0)
    kinds = [
        "1" if name.endswith(".swap")
        else "2" if name.endswith(".snapshot") and step == "unlink"
        else "3" if name == MANIFEST_NAME
        else "4" if step == "rename to"
        else ""
        for step, name in disk.take_steps()
    ]  # fmt: skip
    order = "".join(kinds)
    assert order == "".join(sorted(order)) and set(order) == set("1234")


def test_the_manifest_notes_nothing_of_the_segments_that_go(log: Log) -> None:
    """The manifest has neither the sizes of these segments nor the checksums of their indexes,
    since other files may get the same names.
    """
    directory = Path(log.directory)
    copy_as(directory, 3, ".cleaned")
    size = (directory / f"{3:020d}.log").stat().st_size
    for segment in log.segments:
        log.reader.txn_index(segment)
        segment.indexes.load_times()
    log.checkpoint()
    assert f"{28:020d}.index" in manifest_of(log).files
    swap_in(log, [CleanedSegment(3, (3, 28), size, 1, 27)], 0)
    manifest = manifest_of(log)
    assert list(manifest.segments) == log.segments.base_offsets == [0, 3, 31]
    noted = {name[:20] for name in manifest.files if name.endswith("index")}
    assert noted == {f"{base:020d}" for base in (0, 3, 31)}


def test_an_emptied_segment_is_noted_without_a_time_and_up_to_the_next(log: Log) -> None:
    directory = Path(log.directory)
    for suffix in SUFFIXES:
        (directory / f"{28:020d}{suffix}.cleaned").write_bytes(b"")
    swap_in(log, [CleanedSegment(28, (28,), 0, -1, 28)], 0)
    assert manifest_of(log).segments[28] == SegmentNote(28, 0, -1, 28, 31)


def stopped(log: Log) -> Path:
    """The directory of a closed log, whose manifest has all segments."""
    for segment in log.segments:
        log.reader.txn_index(segment)
        segment.indexes.load_times()
    log.checkpoint()
    log.close()
    return Path(log.directory)


def test_a_start_notes_the_completed_swap_and_makes_it_durable(log: Log) -> None:
    directory = stopped(log)
    before = manifest_of(log)
    copy_as(directory, 28, ".swap")
    raw = (directory / f"{28:020d}.log").read_bytes()
    shorter = raw[: -read_header(raw, 0).size_bytes]  # as if compaction had removed the last batch
    (directory / f"{28:020d}.log.swap").write_bytes(shorter)
    disk = RecordingDisk()
    complete_swaps(disk, str(directory))
    manifest = manifest_of(log)
    assert list(manifest.segments) == [0, 3, 28, 31]
    assert manifest.segments[28].size == len(shorter)
    assert {base: manifest.segments[base] for base in (0, 3, 31)} == {
        base: before.segments[base] for base in (0, 3, 31)
    }
    assert disk.take_steps()[-1] == ("fsync_dir", directory.name)
    assert [int(path.stem) for path in sorted(directory.glob("*.snapshot"))] == [31, TXN_END]


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_segment_reaches_as_far_as_the_manifest_notes_it(log: Log, is_noted: bool) -> None:
    """Compaction may have removed the last records of the segment, so its batches do not show which
    segments it replaces.
    The stop came after the manifest was written, when the old segments at 3 and 28 still existed.
    """
    directory = stopped(log)
    first = (directory / f"{0:020d}.log").read_bytes()
    manifest = manifest_of(log)
    size = len(first) if is_noted else len(first) + 1
    manifest.segments[0] = manifest.segments[0]._replace(size=size, end_offset=28)
    Path(directory, MANIFEST_NAME).write_bytes(manifest.encode())
    copy_as(directory, 0, ".swap")
    complete_swaps(OsDisk(), str(directory))
    assert names(directory, ".log") == [
        f"{base:020d}.log" for base in ((0, 28, 31) if is_noted else (0, 3, 28, 31))
    ]
    assert list(manifest_of(log).segments) == ([0, 28, 31] if is_noted else [0, 3, 28, 31])


def test_an_index_that_has_its_name_already_is_kept(log: Log) -> None:
    """The stop came between two renames of step 4."""
    directory = stopped(log)
    copy_as(directory, 28, ".swap")
    new_index = b"\0" * 8
    (directory / f"{28:020d}.index").write_bytes(new_index)
    (directory / f"{28:020d}.index.swap").unlink()
    complete_swaps(OsDisk(), str(directory))
    assert (directory / f"{28:020d}.index").read_bytes() == new_index
    assert manifest_of(log).files[f"{28:020d}.index"] == (8, crc32c(new_index))


def test_a_start_without_a_swap_touches_nothing(log: Log) -> None:
    directory = stopped(log)
    (directory / "notes-of-an-operator.log.swap").write_bytes(b"x")
    disk = RecordingDisk()
    complete_swaps(disk, str(directory))
    assert disk.take_steps() == [("unlink", "notes-of-an-operator.log.swap")]


def test_a_start_without_a_swap_lists_the_directory_once(log: Log) -> None:
    """The list of files that is returned is up to date, even after a swap."""
    directory = stopped(log)

    class Listing(OsDisk):
        lists = 0

        def list(self, path: str) -> list[str]:
            self.lists += 1
            return super().list(path)

    disk = Listing()
    assert complete_swaps(disk, str(directory)) == disk.list(str(directory))
    assert disk.lists == 2, "one is the test's"
    copy_as(directory, 28, ".swap")
    assert complete_swaps(disk, str(directory)) == disk.list(str(directory))


@pytest.mark.parametrize("has_manifest", [False, True])
def test_an_emptied_segment_stands_for_itself_alone(tmp_path: Path, has_manifest: bool) -> None:
    """The next segment, which may begin at the next offset, must not be deleted. The manifest
    already says that the new segment is empty when the old one is deleted.
    """
    for base in (7, 8, 9):
        for suffix in (".log", ".index", ".timeindex"):
            (tmp_path / f"{base:020d}{suffix}").write_bytes(b"old" if base == 7 else b"")
    for suffix in SUFFIXES:
        (tmp_path / f"{7:020d}{suffix}.swap").write_bytes(b"")
    if has_manifest:
        notes = {base: SegmentNote(base, 3, 50, base, base + 1) for base in (7, 8, 9)}
        manifest = Manifest(TOPIC_ID, 7, 10)
        manifest.segments = notes | {7: SegmentNote(7, 0, 50, 7, 8)}
        (tmp_path / MANIFEST_NAME).write_bytes(manifest.encode())
    else:
        (tmp_path / f"{7:020d}.log").unlink()
    complete_swaps(OsDisk(), str(tmp_path))
    assert names(tmp_path, ".log") == [f"{base:020d}.log" for base in (7, 8, 9)]
    assert (tmp_path / f"{7:020d}.log").read_bytes() == b""
    if has_manifest:
        after = Manifest.decode((tmp_path / MANIFEST_NAME).read_bytes())
        assert after.segments == notes | {7: SegmentNote(7, 0, -1, 7, 8)}


def test_files_that_are_no_segments_stay(log: Log) -> None:
    directory = stopped(log)
    copy_as(directory, 28, ".swap")
    others = [
        directory / f"{'an-operators-notes':_<20}{suffix}" for suffix in (".log", ".snapshot")
    ]
    for other in others:
        other.write_bytes(b"x")
    complete_swaps(OsDisk(), str(directory))
    assert all(other.read_bytes() == b"x" for other in others)


@pytest.mark.parametrize(("taken", "kept"), [(0, [28, 31, 49]), (1, [28, 31, 49])])
def test_snapshots_up_to_the_next_segment_go_at_a_start(
    log: Log, taken: int, kept: list[int]
) -> None:
    """Snapshots after the last remaining record are deleted as well. The snapshot at the start of
    the next segment is kept.
    """
    directory = stopped(log)
    copy_as(directory, 3, ".swap")
    if taken:
        raw = (directory / f"{3:020d}.log").read_bytes()
        (directory / f"{3:020d}.log.swap").write_bytes(raw[:-78])  # all but the last batch
    for offset in (2, 3, 5, 27, 28):
        (directory / f"{offset:020d}.snapshot").write_bytes(b"")
    complete_swaps(OsDisk(), str(directory))
    assert [int(path.stem) for path in sorted(directory.glob("*.snapshot"))] == kept


def test_a_batch_without_records_at_the_end_counts(log: Log) -> None:
    """An emptied batch is only a header, but its offsets are kept."""
    directory = stopped(log)
    Path(directory, MANIFEST_NAME).unlink()
    header = bytearray((directory / f"{0:020d}.log").read_bytes()[:HEADER_SIZE])
    header[0:8], header[8:12] = (27).to_bytes(8), (HEADER_SIZE - 12).to_bytes(4)
    header[17:21] = computed_crc(header).to_bytes(4)
    for suffix in SUFFIXES:
        (directory / f"{0:020d}{suffix}.swap").write_bytes(header if suffix == ".log" else b"")
    complete_swaps(OsDisk(), str(directory))
    assert names(directory, ".log") == [f"{base:020d}.log" for base in (0, 28, 31)]


def test_without_a_manifest_a_swap_is_completed_by_the_log_alone(log: Log) -> None:
    directory = stopped(log)
    for content in (None, b"damaged"):
        if content is None:
            Path(directory, MANIFEST_NAME).unlink()
        else:
            Path(directory, MANIFEST_NAME).write_bytes(content)
        copy_as(directory, 28, ".swap")
        raw = (directory / f"{28:020d}.log").read_bytes()
        complete_swaps(OsDisk(), str(directory))
        assert (directory / f"{28:020d}.log").read_bytes() == raw
        assert names(directory, ".log") == [f"{base:020d}.log" for base in (0, 3, 28, 31)]


# --- damaged swap files -------------------------------------------------------------------------


def damaged(data: bytes) -> list[bytes]:
    """The data in four damaged forms: empty, cut within a batch, cut within a header, and with a
    changed byte.
    """
    changed = bytearray(data)
    changed[-1] ^= 1
    return [b"", data[:-1], data[:30], bytes(changed)]


def test_a_swap_that_is_empty_or_cut_off_takes_no_segments_place(log: Log) -> None:
    """Later swaps are not completed either. Otherwise an older value of a key could remain after
    its tombstone has been removed.
    """
    directory = stopped(log)
    whole = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    for data in damaged(whole[f"{3:020d}.log"]):
        for base in (0, 3, 28):
            copy_as(directory, base, ".swap")
        (directory / f"{3:020d}.log.swap").write_bytes(data)
        complete_swaps(OsDisk(), str(directory))
        assert names(directory, ".swap") == []
        assert {path.name: path.read_bytes() for path in directory.glob("*.log")} == whole
        assert not (directory / MANIFEST_NAME).exists(), "it may have the new segments"


def test_a_swap_that_is_cut_off_after_the_old_segments_went_is_said(log: Log) -> None:
    """The partition goes offline, and the remaining files of the old segments are kept."""
    directory = stopped(log)
    raw = (directory / f"{3:020d}.log").read_bytes()
    copy_as(directory, 3, ".swap")
    (directory / f"{3:020d}.log").rename(directory / f"{3:020d}.log.deleted")
    for data in damaged(raw):
        (directory / f"{3:020d}.log.swap").write_bytes(data)
        with pytest.raises(CorruptLog, match=r"is empty or cut off.*as \.deleted files"):
            complete_swaps(OsDisk(), str(directory))
        assert (directory / f"{3:020d}.log.deleted").read_bytes() == raw


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_a_swap_without_one_of_its_indexes_is_completed_without_the_manifest(
    log: Log, suffix: str
) -> None:
    directory = stopped(log)
    copy_as(directory, 3, ".swap")
    raw = (directory / f"{3:020d}.log").read_bytes()
    for path in directory.glob(f"{3:020d}*{suffix}*"):
        path.unlink()
    complete_swaps(OsDisk(), str(directory))
    assert (directory / f"{3:020d}.log").read_bytes() == raw
    assert not (directory / MANIFEST_NAME).exists()
