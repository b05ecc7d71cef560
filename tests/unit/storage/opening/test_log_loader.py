"""The parts of Apache Kafka's log that are read at a start, depending on how the last run ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.recording_disk import RecordingDisk
from helpers.storage_kafka_log import KAFKA, TXN_END, kafka_directory
from helpers.storage_logs import NOW_MS, SECOND_MS, TOPIC_ID, batch, kill, open_manager

from barnabas.protocol.records import read_header
from barnabas.storage.cleaning.cleaner import _emptied
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.checkpoints import MANIFEST_NAME, Manifest
from barnabas.storage.files.flush_journal import JournalEntry, Redo
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log import UNREAD_BATCH_BYTES, Log
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.log_config import LogConfig
from barnabas.storage.opening import log_loader
from barnabas.storage.opening.last_run import LastRun
from barnabas.storage.opening.log_loader import LogLoader, Opening
from barnabas.storage.opening.partition_files import PartitionFiles

ACTIVE = "00000000000000000031.log"
LAST_BATCH, SIZE = 1362, 1439  # Kafka's dump tool shows these numbers for the active segment


def loader_of(
    path: Path,
    last_run: LastRun = LastRun.KILLED,
    recovery_point: int = 0,
    redo: Redo | None = None,
    *,
    is_compacted: bool = False,
    gaps_are_lost: bool = True,
    copied: bool = False,
) -> LogLoader:
    """A loader for a copy of Apache Kafka's partition txn-0."""
    if not copied:
        kafka_directory(path)
    files = PartitionFiles(LogDirectory(OsDisk(), str(path)), "txn", 0)
    files.open_segments(LogConfig(), 0, NOW_MS)
    opening = Opening(last_run, NOW_MS, redo)
    return LogLoader(
        files, opening, recovery_point, is_compacted=is_compacted, gaps_are_lost=gaps_are_lost
    )


def test_without_a_manifest_only_the_last_segment_is_read_after_a_kill(tmp_path: Path) -> None:
    loader = loader_of(tmp_path)
    state = loader.load()
    assert state.end_offset == TXN_END and state.open_txns == {8: 48}
    assert loader.read_bytes == SIZE + 18 * UNREAD_BATCH_BYTES


def test_after_a_power_loss_all_above_the_recovery_point_is_read(tmp_path: Path) -> None:
    sizes = [(KAFKA / "txn-0" / f"{base:020d}.log").stat().st_size for base in (3, 28, 31)]
    loader = loader_of(tmp_path, LastRun.POWER_LOST, 27)
    assert loader.load().end_offset == TXN_END
    assert loader.read_bytes == sum(sizes) + (TXN_END - 3) * UNREAD_BATCH_BYTES


# --- where the pass begins ----------------------------------------------------------------------

BATCH_BYTES = len(batch())
CONFIG = LogConfig(segment_bytes=2 * BATCH_BYTES)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A log of seven batches in segments at 0, 2, 4 and 6, with a complete checkpoint."""
    manager = open_manager(tmp_path, CONFIG)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for number in range(7):
        log.append(batch(pid=1, epoch=0, seq=number), now_ms=NOW_MS)
    log.flush()
    log.checkpoint()
    kill(manager)
    return log


def loaded(
    log: Log, last_run: LastRun = LastRun.KILLED, recovery_point: int = 0
) -> tuple[int, int, int]:
    """Load the log. Gives the number of batches that were read, the end of the log, and the
    producer's last sequence.
    """
    files = PartitionFiles(log.log_dir, "t", 0)
    files.open_segments(CONFIG, 0, NOW_MS)
    opening = Opening(last_run, NOW_MS)
    loader = LogLoader(files, opening, recovery_point, is_compacted=False, gaps_are_lost=True)
    state = loader.load()
    count, rest = divmod(loader.read_bytes, BATCH_BYTES + UNREAD_BATCH_BYTES)
    assert rest == 0
    producer = state.producers.get(1)
    return count, state.end_offset, -1 if producer is None else producer.batches[-1].last_sequence


def file_of(log: Log, base_offset: int) -> Path:
    return Path(log.directory, f"{base_offset:020d}.log")


def test_nothing_is_read_if_the_files_match_the_manifest(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert loaded(log) == (0, 7, 6)
    assert "after the last checkpoint" not in caplog.text


def test_timestamps_of_unread_segments_come_from_the_manifest(log: Log) -> None:
    loader = loader_over(log, last_run=LastRun.KILLED)
    loader.load()
    assert loader.segments[-1].indexes.max_timestamp == SECOND_MS


def test_batches_after_the_checkpoint_are_read(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log.append(batch(pid=1, epoch=0, seq=7), now_ms=NOW_MS)
    assert loaded(log) == (1, 8, 7)
    assert f"{BATCH_BYTES} bytes were written after the last checkpoint" in caplog.text


def test_a_manifest_without_segments_is_ignored(tmp_path: Path) -> None:
    loader = loader_of(tmp_path)
    loader.manifest = Manifest(TOPIC_ID, 0, TXN_END)
    assert loader.load().end_offset == TXN_END


def test_a_manifests_index_facts_are_ignored_for_a_segment_that_has_grown(log: Log) -> None:
    """According to the old manifest, the segment has no aborted transactions. Later ones are in an
    index file that may have been lost, together with the manifest that the roll wrote.
    """
    manifest = Path(log.directory, MANIFEST_NAME)
    noted = manifest.read_bytes()
    for number in (7, 8):
        log.append(batch(pid=1, epoch=0, seq=number), now_ms=NOW_MS)
    manifest.write_bytes(noted)
    Path(log.snapshots.path(7)).unlink()
    loader = loader_over(log, recovery_point=8)
    assert loader.load().end_offset == 9
    known = {
        segment.base_offset: segment.indexes.try_load_txn_index() for segment in loader.segments
    }
    assert known == {0: True, 2: True, 4: True, 6: False, 8: True}


def test_a_recovery_point_below_the_oldest_segment_has_all_of_them_read(log: Log) -> None:
    file_of(log, 0).unlink()
    assert loaded(log, LastRun.POWER_LOST) == (5, 7, 6)


def test_reading_begins_at_a_closed_segment_that_became_shorter(log: Log) -> None:
    """Reading starts at this segment even after a kill, when all data are trusted. The batch is
    read again as the last one of the log.
    """
    with file_of(log, 2).open("r+b") as file:
        file.truncate(BATCH_BYTES)
    assert loaded(log) == (2, 3, 2)


def test_after_a_power_loss_reading_begins_at_the_recovery_point_not_at_a_shorter_segment(
    log: Log,
) -> None:
    """A power loss removed the data of the first segment and the end of the second. Neither was
    durable.
    """
    file_of(log, 0).write_bytes(bytes(2 * BATCH_BYTES))
    with file_of(log, 2).open("r+b") as file:
        file.truncate(BATCH_BYTES)
    assert loaded(log, LastRun.POWER_LOST)[1:] == (0, -1)


@pytest.mark.parametrize("last_run", [LastRun.POWER_LOST, LastRun.CLEAN])
def test_after_loading_only_the_last_segment_is_open(log: Log, last_run: LastRun) -> None:
    """After a clean stop, the index files are written at once, since the log may be closed without
    a change. Otherwise the next checkpoint writes the index files.
    """
    index = file_of(log, 6).with_suffix(".index")
    Path(log.directory, MANIFEST_NAME).unlink()
    index.write_bytes(b"what is left of another")
    loader = loader_over(log, last_run=last_run)
    loader.load()
    assert loader.segments[-1].indexes.is_closed is False
    assert all(segment.indexes.is_closed for segment in loader.segments[:-1])
    assert (index.read_bytes() == b"") == (last_run == LastRun.CLEAN)
    loader.segments[-1].indexes.write()
    assert index.read_bytes() == b""


def test_a_batch_without_records_after_compaction_has_no_timestamp(log: Log) -> None:
    file_of(log, 6).write_bytes(_emptied(read_header((6).to_bytes(8) + batch()[8:])))
    loader = loader_over(log)
    assert loader.load().end_offset == 7
    assert loader.segments[-1].indexes.max_timestamp == -1
    assert loader.segments[-2].indexes.max_timestamp == SECOND_MS


def test_an_oldest_segment_that_retention_took_is_not_missed(log: Log) -> None:
    file_of(log, 0).unlink()
    assert loaded(log) == (0, 7, 6)


def test_a_manifest_that_lacks_an_older_segment_is_ignored(log: Log) -> None:
    kept = file_of(log, 0).read_bytes()
    log.delete_records_before(2)
    log.delete_old_segments(NOW_MS)
    log.checkpoint()
    assert loaded(log) == (0, 7, 6)
    file_of(log, 0).write_bytes(kept)
    assert loaded(log) == (1, 7, 6)


@pytest.mark.parametrize(
    ("base_offset", "size", "expected"),
    [
        (6, 0, (0, 6, 5)),  # the last segment is shorter: reading begins at its start
        (4, 3 * BATCH_BYTES, (1, 7, 6)),  # a closed segment is longer: only the last one is read
    ],
)
def test_a_segment_whose_size_differs_from_the_manifest_is_read(
    log: Log, base_offset: int, size: int, expected: tuple[int, int, int]
) -> None:
    with file_of(log, base_offset).open("r+b") as file:
        file.truncate(size)
    assert loaded(log) == expected


def test_without_the_snapshot_of_its_end_a_manifest_is_not_enough(log: Log) -> None:
    Path(log.snapshots.path(7)).unlink()
    assert loaded(log) == (1, 7, 6)


def test_an_empty_last_segment_may_be_missing(log: Log) -> None:
    log.append(batch(pid=1, epoch=0, seq=7), now_ms=NOW_MS)
    assert log.try_roll(NOW_MS)
    log.checkpoint()
    file_of(log, 8).unlink()
    assert loaded(log) == (2, 8, 7)


@pytest.mark.parametrize(
    ("recovery_point", "count"), [(7, 0), (8, 0), (6, 1), (5, 3), (4, 3), (3, 5), (0, 7)]
)
def test_after_a_power_loss_reading_begins_at_the_segment_of_the_recovery_point(
    log: Log, recovery_point: int, count: int
) -> None:
    assert loaded(log, LastRun.POWER_LOST, recovery_point) == (count, 7, 6)


def test_indexes_built_while_loading_equal_kafkas(tmp_path: Path) -> None:
    loader_of(tmp_path, LastRun.FOREIGN).load()
    for original in (KAFKA / "txn-0").glob("*index"):
        # the indexes of the active segment are completed only when it is closed
        if original.stem != ACTIVE[:20]:
            assert (tmp_path / "txn-0" / original.name).read_bytes() == original.read_bytes()


def cut(path: Path, size: int) -> None:
    """Copy Kafka's directory, and truncate the active segment."""
    kafka_directory(path)
    with (path / "txn-0" / ACTIVE).open("r+b") as file:
        file.truncate(size)


def test_a_torn_end_is_truncated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cut(tmp_path, LAST_BATCH + 70)
    state = loader_of(tmp_path, LastRun.POWER_LOST, copied=True).load()
    assert state.end_offset == 48 and state.open_txns == {}
    assert (tmp_path / "txn-0" / ACTIVE).stat().st_size == LAST_BATCH
    assert f"a batch is cut off at byte {LAST_BATCH}: the torn end of 70 bytes" in caplog.text


def test_damage_below_the_recovery_point_is_an_error(tmp_path: Path) -> None:
    cut(tmp_path, LAST_BATCH + 70)
    with pytest.raises(CorruptLog, match="although all below offset 49 was durable"):
        loader_of(tmp_path, LastRun.POWER_LOST, TXN_END, copied=True).load()


@pytest.mark.parametrize("recovery_point", [0, 48])
@pytest.mark.parametrize("last_run", [LastRun.POWER_LOST, LastRun.FOREIGN, LastRun.CLEAN])
def test_a_torn_batch_is_restored_from_a_flush_journal(
    tmp_path: Path, last_run: LastRun, recovery_point: int
) -> None:
    cut(tmp_path, LAST_BATCH + 70)
    loader = loader_of(tmp_path, last_run, recovery_point, copied=True)
    whole = (KAFKA / "txn-0" / ACTIVE).read_bytes()
    redo = Redo()
    redo.add(JournalEntry(*loader.files.partition, 31, LAST_BATCH, whole[LAST_BATCH:]))
    loader.redo = redo
    assert loader.load().end_offset == TXN_END
    assert (tmp_path / "txn-0" / ACTIVE).read_bytes() == whole


def test_two_runs_of_journal_bytes_are_restored_one_after_the_other(tmp_path: Path) -> None:
    """The second range of bytes begins where the first one ends, and was written by another
    flush.
    """
    cut(tmp_path, 100)
    loader = loader_of(tmp_path, LastRun.POWER_LOST, copied=True)
    whole = (KAFKA / "txn-0" / ACTIVE).read_bytes()
    redo = Redo()
    for position, data in ((LAST_BATCH, whole[LAST_BATCH:]), (0, whole[:LAST_BATCH])):
        redo.add(JournalEntry(*loader.files.partition, 31, position, data))
    loader.redo = redo
    assert loader.load().end_offset == TXN_END
    assert (tmp_path / "txn-0" / ACTIVE).read_bytes() == whole


def of_offset_60(last: bytes) -> bytes:
    return (60).to_bytes(8) + last[8:]


def of_magic_1(last: bytes) -> bytes:
    return last[:16] + b"\x01" + last[17:]


@pytest.mark.parametrize("lie", [of_offset_60, of_magic_1])
def test_journal_bytes_that_are_not_the_next_batch_are_not_restored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lie: Callable[[bytes], bytes]
) -> None:
    """The journal has bytes for the torn batch, but with another offset or format version. They
    must not be written to the log.
    """
    cut(tmp_path, LAST_BATCH + 70)
    loader = loader_of(tmp_path, LastRun.POWER_LOST, copied=True)
    last = lie((KAFKA / "txn-0" / ACTIVE).read_bytes()[LAST_BATCH:])
    redo = Redo()
    redo.add(JournalEntry(*loader.files.partition, 31, LAST_BATCH, last))
    loader.redo = redo
    assert loader.load().end_offset == 48
    assert (tmp_path / "txn-0" / ACTIVE).stat().st_size == LAST_BATCH
    assert "written again" not in caplog.text


def test_a_batch_that_is_damaged_in_the_journal_is_not_restored(tmp_path: Path) -> None:
    cut(tmp_path, LAST_BATCH + 70)
    loader = loader_of(tmp_path, LastRun.POWER_LOST, copied=True)
    last = (KAFKA / "txn-0" / ACTIVE).read_bytes()[LAST_BATCH:]
    redo = Redo()
    redo.add(JournalEntry(*loader.files.partition, 31, LAST_BATCH, last[:-1] + b"?"))
    loader.redo = redo
    assert loader.load().end_offset == 48
    assert (tmp_path / "txn-0" / ACTIVE).stat().st_size == LAST_BATCH


def test_restored_batches_are_flushed_before_the_log_is_used(log: Log) -> None:
    whole = file_of(log, 6).read_bytes()
    file_of(log, 6).write_bytes(whole[:40])
    disk = RecordingDisk()
    loader = loader_over(log, disk)
    loader.redo = Redo()
    loader.redo.add(JournalEntry(*loader.files.partition, 6, 0, whole))
    assert loader.load().end_offset == 7
    name = file_of(log, 6).name
    steps = disk.take_steps()
    assert steps[steps.index(("truncate", name)) + 1] == ("fsync", name)


def test_an_empty_batch_is_restored(log: Log) -> None:
    """An empty batch consists of a header only."""
    emptied = bytes(_emptied(read_header((6).to_bytes(8) + batch()[8:])))
    file_of(log, 6).write_bytes(emptied[:40])
    loader = loader_over(log)
    loader.redo = Redo()
    loader.redo.add(JournalEntry(*loader.files.partition, 6, 0, emptied))
    assert loader.load().end_offset == 7
    assert file_of(log, 6).read_bytes() == emptied


def test_after_a_kill_no_journal_is_asked(tmp_path: Path) -> None:
    assert loader_of(tmp_path, LastRun.KILLED, redo=Redo()).redo is None
    assert loader_of(tmp_path / "other", LastRun.POWER_LOST, redo=Redo()).redo is not None


def without_the_third(path: Path) -> None:
    kafka_directory(path)
    (path / "txn-0" / "00000000000000000028.log").unlink()


def test_after_a_power_loss_the_log_ends_at_a_gap_between_segments(tmp_path: Path) -> None:
    without_the_third(tmp_path)
    loader = loader_of(tmp_path, LastRun.POWER_LOST, copied=True)
    assert loader.load().end_offset == 28
    assert (tmp_path / "txn-0" / "00000000000000000031.log.set-aside").stat().st_size == SIZE


def test_a_gap_in_a_compacted_log_of_another_broker_is_kept(tmp_path: Path) -> None:
    without_the_third(tmp_path)
    loader = loader_of(
        tmp_path, LastRun.FOREIGN, is_compacted=True, gaps_are_lost=False, copied=True
    )
    assert loader.load().end_offset == TXN_END


# --- cuts, and their durability -----------------------------------------------------------------


def loader_over(
    log: Log,
    disk: OsDisk | None = None,
    recovery_point: int = 0,
    last_run: LastRun = LastRun.POWER_LOST,
    *,
    is_compacted: bool = False,
    gaps_are_lost: bool = True,
) -> LogLoader:
    """A loader for the fixture's log. The log has segments at 0, 2, 4 and 6, and the last one has
    one batch.
    """
    log_dir = LogDirectory(disk or OsDisk(), str(Path(log.directory).parent))
    files = PartitionFiles(log_dir, "t", 0)
    files.open_segments(CONFIG, 0, NOW_MS)
    return LogLoader(
        files,
        Opening(last_run, NOW_MS),
        recovery_point,
        is_compacted=is_compacted,
        gaps_are_lost=gaps_are_lost,
    )


def damage(log: Log, base_offset: int, at: int, data: bytes) -> None:
    """Overwrite bytes of the segment at this offset."""
    raw = bytearray(file_of(log, base_offset).read_bytes())
    raw[at : at + len(data)] = data
    file_of(log, base_offset).write_bytes(raw)


def bases_of(loader: LogLoader) -> list[int]:
    return [segment.base_offset for segment in loader.segments]


def set_aside(log: Log) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in Path(log.directory).glob("*.log.set-aside*")}


@pytest.mark.parametrize("gaps_are_lost", [False, True])
@pytest.mark.parametrize("recovery_point", [0, 4, 5])
def test_segments_after_a_torn_batch_are_set_aside_and_the_truncation_is_durable(
    log: Log, recovery_point: int, gaps_are_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The second batch of the third segment is torn, and the last segment begins after this batch.
    The gap that results does not come from compaction.
    """
    manifest = Path(log.directory, MANIFEST_NAME)
    assert manifest.exists()
    damage(log, 4, BATCH_BYTES + 40, b"torn")
    disk = RecordingDisk()
    loader = loader_over(
        log, disk, recovery_point, is_compacted=not gaps_are_lost, gaps_are_lost=gaps_are_lost
    )
    state = loader.load()
    assert state.end_offset == 5 and bases_of(loader) == [0, 2, 4]
    assert f"are set aside in {file_of(log, 6)}.set-aside" in caplog.text
    assert state.producers[1].batches[-1].last_sequence == 4
    name = file_of(log, 4).name
    assert set_aside(log) == {file_of(log, 6).name + ".set-aside": BATCH_BYTES}
    assert file_of(log, 4).stat().st_size == BATCH_BYTES
    assert not manifest.exists(), "it would seem to fit what is written from now on"
    assert max(loader.files.snapshots.offsets, default=0) <= 5
    gone = {path.name[:20] for path in Path(log.directory).iterdir() if path.suffix != ".set-aside"}
    assert f"{6:020d}" not in gone, "no index of it stays"
    steps = disk.take_steps()
    at = steps.index(("truncate", name))
    assert steps[at : at + 3] == [("truncate", name), ("fsync", name), ("fsync_dir", "t-0")]
    assert ("unlink", MANIFEST_NAME) in steps[:at]


def test_a_damaged_batch_below_the_recovery_point_is_not_truncated(log: Log) -> None:
    damage(log, 4, 40, b"torn")
    with pytest.raises(CorruptLog, match="although all below offset 5 was durable"):
        loader_over(log, recovery_point=5).load()
    assert file_of(log, 4).stat().st_size == 2 * BATCH_BYTES and set_aside(log) == {}


def test_a_good_batch_after_a_lost_sector_is_set_aside(tmp_path: Path) -> None:
    """The batch before the good one has lost a sector. If an earlier start left an incomplete copy,
    the copy is made again.
    """
    manager = open_manager(tmp_path, LogConfig())
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    for _ in range(3):
        log.append(batch([b"x" * 1_200]), now_ms=NOW_MS)
    kill(manager)
    size = file_of(log, 0).stat().st_size // 3
    damage(log, 0, 512 * (size // 512 + 1), bytes(512))
    whole = file_of(log, 0).read_bytes()
    aside = Path(f"{file_of(log, 0)}.set-aside-{size}")
    aside.write_bytes(b"half" * 1_000)
    disk = RecordingDisk()
    assert loader_over(log, disk).load().end_offset == 1
    assert aside.read_bytes() == whole[size:]
    steps = disk.take_steps()
    cut = steps.index(("truncate", file_of(log, 0).name))
    assert ("fsync", aside.name) in steps[:cut], "the copy is durable before the original goes"


def test_a_good_batch_after_a_bad_one_without_a_lost_sector_is_an_error(log: Log) -> None:
    damage(log, 4, 40, b"bad")
    with pytest.raises(CorruptLog, match=f"a good batch follows at byte {BATCH_BYTES}"):
        loader_over(log).load()


def test_a_whole_batch_with_a_wrong_offset_is_an_error(log: Log) -> None:
    damage(log, 4, BATCH_BYTES, (3).to_bytes(8))
    with pytest.raises(CorruptLog, match=f"byte {BATCH_BYTES}: a batch of offset 3"):
        loader_over(log).load()


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("is_last", [False, True])
def test_a_gap_within_a_segment_is_accepted_as_compaction(
    log: Log, is_compacted: bool, is_last: bool
) -> None:
    """In the last segment of a log that is not compacted, the gap means that an offset is wrong."""
    base = 6 if is_last else 4
    at = 0 if is_last else BATCH_BYTES
    damage(log, base, at, (base + 1 + (not is_last)).to_bytes(8))
    if not is_last:
        file_of(log, 6).unlink()
        file_of(log, 7).write_bytes(bytes((7).to_bytes(8) + batch()[8:]))
    Path(log.directory, MANIFEST_NAME).unlink()
    loader = loader_over(log, is_compacted=is_compacted, last_run=LastRun.KILLED)
    loader.trusted_point = 0
    if is_last and not is_compacted:
        with pytest.raises(CorruptLog, match="the offset 7 follows 5"):
            loader.load()
    else:
        assert loader.load().end_offset == 8


def test_an_overlapped_empty_segment_before_another_one_is_an_error(log: Log) -> None:
    Path(log.directory, MANIFEST_NAME).unlink()
    file_of(log, 4).write_bytes(b"".join((4 + at).to_bytes(8) + batch()[8:] for at in range(3)))
    file_of(log, 6).write_bytes(b"")
    file_of(log, 7).write_bytes((7).to_bytes(8) + batch()[8:])
    with pytest.raises(CorruptLog, match="the segment before it reaches to offset 7"):
        loader_over(log).load()


def test_overlapping_segments_are_an_error(log: Log) -> None:
    file_of(log, 3).write_bytes((3).to_bytes(8) + batch()[8:])
    with pytest.raises(CorruptLog, match="the segment before it reaches to offset 4"):
        loader_over(log).load()


def test_empty_segments_within_the_offsets_of_another_are_removed(log: Log) -> None:
    """A roll without space on the disk may leave such an empty segment. An empty segment at the end
    of the log is kept.
    """
    Path(log.directory, MANIFEST_NAME).unlink()
    for base in (6, 7):
        file_of(log, base).write_bytes(b"")
    file_of(log, 4).write_bytes(b"".join((4 + at).to_bytes(8) + batch()[8:] for at in range(3)))
    loader = loader_over(log)
    assert loader.load().end_offset == 7
    assert bases_of(loader) == [0, 2, 4, 7] and not file_of(log, 6).exists()


@pytest.mark.parametrize(
    ("recovery_point", "is_compacted", "gaps_are_lost", "ends_at"),
    [
        (0, False, True, 4),
        (4, False, True, 4),
        (5, False, True, 7),  # the lost offsets are below the recovery point
        (0, True, True, 4),
        (0, True, False, 7),
        (4, True, False, 7),
        (5, True, False, 7),
        (0, False, False, 4),
    ],
)
def test_offsets_that_are_missing_between_segments(
    log: Log,
    recovery_point: int,
    is_compacted: bool,
    gaps_are_lost: bool,
    ends_at: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The power loss removed the missing offsets, unless they were durable or were removed by
    compaction. A snapshot that includes lost offsets is never trusted.
    """
    file_of(log, 4).unlink()
    Path(log.directory, MANIFEST_NAME).unlink()
    assert max(log.snapshots.offsets) > 4
    disk = RecordingDisk()
    loader = loader_over(
        log, disk, recovery_point, is_compacted=is_compacted, gaps_are_lost=gaps_are_lost
    )
    assert loader.load().end_offset == ends_at
    assert bases_of(loader) == ([0, 2] if ends_at == 4 else [0, 2, 6])
    assert max(loader.files.snapshots.offsets, default=0) <= 4
    assert loader.has_kept_gap == (ends_at == 7 and recovery_point <= 4)
    is_cut = ends_at == 4
    assert (set_aside(log) != {}) == is_cut
    assert ("the segment after it begins at offset 6, and all between" in caplog.text) == is_cut
    steps = disk.take_steps()
    renamed = ("rename to", file_of(log, 6).name + ".set-aside")
    assert (renamed in steps) == is_cut
    if is_cut:
        assert ("fsync_dir", "t-0") in steps[steps.index(renamed) :]


def test_a_gap_after_the_first_segment_ends_the_log(log: Log) -> None:
    file_of(log, 2).unlink()
    Path(log.directory, MANIFEST_NAME).unlink()
    loader = loader_over(log)
    assert loader.load().end_offset == 2 and bases_of(loader) == [0]


def test_an_empty_last_segment_after_a_gap_is_removed(log: Log) -> None:
    file_of(log, 4).unlink()
    file_of(log, 6).write_bytes(b"")
    Path(log.directory, MANIFEST_NAME).unlink()
    loader = loader_over(log, is_compacted=True, gaps_are_lost=False)
    assert loader.load().end_offset == 4
    assert bases_of(loader) == [0, 2] and set_aside(log) == {}
    assert not loader.has_kept_gap, "nothing lies behind it"


@pytest.mark.parametrize(
    ("lost", "recovery_point", "bases"),
    [
        ([4], 0, [0, 2]),
        ([4], 4, [0, 2]),
        ([4], 5, [0, 2, 6]),  # the missing offsets were durable, so compaction removed them
        ([2, 4], 0, [0]),
    ],
)
def test_a_wholly_truncated_last_segment_after_a_gap_is_removed(
    log: Log,
    caplog: pytest.LogCaptureFixture,
    lost: list[int],
    recovery_point: int,
    bases: list[int],
) -> None:
    """A gap that compaction left before the segment has no effect if no segment follows."""
    for base in lost:
        file_of(log, base).unlink()
    damage(log, 6, 40, b"torn")
    Path(log.directory, MANIFEST_NAME).unlink()
    loader = loader_over(log, recovery_point=recovery_point, is_compacted=True, gaps_are_lost=False)
    loader.manifest = Manifest(TOPIC_ID, 0, 7)
    state = loader.load()
    end_offset = 6 if 6 in bases else bases[-1] + 2
    assert state.end_offset == end_offset and bases_of(loader) == bases
    assert loader.segments[-1].indexes.is_closed is False
    assert f"the log ends at offset {end_offset}, but it once reached to 7" in caplog.text


def test_a_log_that_ends_below_its_recovery_point_is_reported(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    loader = loader_over(log)
    loader.load()
    assert "once reached" not in caplog.text
    for base in (4, 6):
        file_of(log, base).unlink()
    Path(log.directory, MANIFEST_NAME).unlink()
    loader = loader_over(log, recovery_point=4)
    loader.load()
    assert "once reached" not in caplog.text
    loader_over(log, recovery_point=5).load()
    assert "the log ends at offset 4, but it once reached to 5" in caplog.text


def test_an_empty_log_is_not_reported_as_shorter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    log.files.make()
    kill(manager)
    assert loader_over(log).load().end_offset == 0
    assert "once reached" not in caplog.text


def test_on_read_gets_the_size_of_each_piece(log: Log) -> None:
    """A start uses these calls to report its progress."""
    reported: list[int] = []
    loader = loader_over(log)
    loader.on_read = reported.append
    loader.load()
    assert sum(reported) == 7 * BATCH_BYTES


def test_a_batch_longer_than_the_read_buffer_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_loader, "_READ_BYTES", 200)
    manager = open_manager(tmp_path, LogConfig())
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    for length in (10, 50, 500, 10, 139, 138, 137, 1, 199, 200, 201, 10):
        log.append(batch([b"x" * length]), now_ms=NOW_MS)
    kill(manager)
    loader = loader_over(log)
    assert loader.load().end_offset == 12
    assert loader.segments[0].batches.size == file_of(log, 0).stat().st_size
