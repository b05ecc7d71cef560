"""Stops, kills and torn writes: data that are read again, data that are truncated, and errors that
tell the operator what to do.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from helpers.recording_disk import RecordingDisk
from helpers.storage_logs import (
    NOW_MS,
    TOPIC_ID,
    batch,
    committed_values,
    kill,
    new_log,
    open_manager,
    reopened,
    values_of,
)

from barnabas.storage.disk import Disk, OsDisk
from barnabas.storage.files.checkpoints import MANIFEST_NAME, Manifest
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.log_config import LogConfig
from barnabas.storage.opening.last_run import BOOT_ID_NAME, LastRun
from barnabas.storage.opening.log_loader import Opening
from barnabas.storage.opening.partition_files import SET_ASIDE_SUFFIX
from barnabas.storage.opening.recovery import load_log
from barnabas.storage.segments.batch_file import BatchFile
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segment_indexes import SegmentIndexes

SMALL = LogConfig(segment_bytes=200)


def fill(log: Log, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        log.append(batch([b"%d" % number], pid=1, epoch=0, seq=number), now_ms=NOW_MS)


def test_a_torn_end_is_truncated_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager, log = new_log(tmp_path)
    fill(log, 5)
    path, size = Path(log.segments.active.batches.path(".log")), log.segments.size_bytes
    path.write_bytes(path.read_bytes()[:-3])
    with caplog.at_level(logging.WARNING):
        manager, log = reopened(manager, LogConfig(), clean=False)
    assert log.log_end_offset == 4
    assert "torn end" in caplog.text and path.name in caplog.text
    assert path.stat().st_size == size * 4 // 5
    assert values_of(log) == {number: b"%d" % number for number in range(4)}
    fill(log, 1, start=4)  # the producer's state agrees with the remaining batches


def test_damage_below_the_recovery_point_is_an_error_that_says_how_to_truncate(
    tmp_path: Path,
) -> None:
    manager, log = new_log(tmp_path)
    fill(log, 5)
    log.flush()
    manager.write_checkpoints(force=True)
    path = Path(log.segments.active.batches.path(".log"))
    path.write_bytes(path.read_bytes()[:-3])
    kill(manager)
    again = open_manager(tmp_path)
    error = again.offline["t", 0]
    assert str(path) in str(error) and "truncate -s" in str(error)
    assert path.stat().st_size % 5
    position = str(error).rpartition("truncate -s ")[2].rstrip("`")
    with path.open("ab") as file:
        file.truncate(int(position))
    kill(again)
    assert open_manager(tmp_path).logs["t", 0].log_end_offset == 4


def test_a_bad_batch_before_good_ones_is_an_error(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    fill(log, 5)
    kill(manager)
    path = Path(log.segments.active.batches.path(".log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 5 + 40] ^= 1
    path.write_bytes(data)
    again = open_manager(tmp_path)
    assert "a good batch follows" in str(again.offline["t", 0])
    assert path.read_bytes() == data
    assert again.logs == {}


@pytest.mark.parametrize("clean", [False, True])
def test_a_batch_without_a_producer_id_adds_no_producer(tmp_path: Path, clean: bool) -> None:
    manager, log = new_log(tmp_path)
    log.append(batch([b"plain"]), now_ms=NOW_MS)
    log.append(batch([b"idempotent"], pid=0, epoch=0, seq=0), now_ms=NOW_MS)
    assert list(log.producer_state.producers) == [0]
    _, log = reopened(manager, LogConfig(), clean=clean)
    assert list(log.producer_state.producers) == [0]


def test_zeros_at_the_end_of_a_file_are_truncated(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    fill(log, 5)
    with Path(log.segments.active.batches.path(".log")).open("ab") as file:
        file.write(bytes(5000))
    _, log = reopened(manager, LogConfig(), clean=False)
    assert log.log_end_offset == 5


@pytest.mark.parametrize("left_bytes", [8, 10, 16])
def test_a_lost_sector_that_contains_only_the_offset_of_a_batch_is_detected(
    tmp_path: Path, left_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """If a batch begins a few bytes before the end of a lost sector, its checksum is correct
    although its offset is 0.
    """
    manager, log = new_log(tmp_path)
    path = Path(log.segments.active.batches.path(".log"))
    log.append(batch([bytes(200)], pid=1, epoch=0, seq=0), now_ms=NOW_MS)
    torn_at = 1024 - left_bytes
    rest = torn_at - 2 * log.segments.size_bytes + 200
    log.append(batch([bytes(rest)], pid=1, epoch=0, seq=1), now_ms=NOW_MS)
    assert log.segments.size_bytes == torn_at
    fill(log, 3, start=2)
    kill(manager)
    data = bytearray(path.read_bytes())
    data[torn_at : torn_at + left_bytes] = bytes(left_bytes)
    path.write_bytes(data)
    copy = path.with_name(f"{path.stem}{SET_ASIDE_SUFFIX}-{torn_at}")
    copy.write_bytes(b"of a start that was killed in the midst of it")
    again = open_manager(tmp_path)
    assert not again.offline
    assert again.logs["t", 0].log_end_offset == 2
    assert "set aside" in caplog.text
    assert copy.read_bytes() == data[torn_at:]


def test_a_new_segment_after_a_torn_one_is_removed(tmp_path: Path) -> None:
    """A power loss may keep the new file but remove the end of the previous one. A snapshot that
    includes the lost batches must not be trusted.
    """
    manager, log = new_log(tmp_path, segment_bytes=200)
    fill(log, 2)
    torn = Path(log.segments.active.batches.path(".log"))
    log._roll(NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    torn.write_bytes(torn.read_bytes()[:-1])
    manager, log = reopened(manager, SMALL, clean=False)
    assert (
        [segment.base_offset for segment in log.segments],
        log.log_end_offset,
        log.snapshots.offsets,
    ) == ([0], 1, [])
    fill(log, 1, start=1)
    assert values_of(log) == {0: b"0", 1: b"1"}


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_an_empty_segment_after_lost_batches_is_removed(tmp_path: Path, policy: str) -> None:
    """Compaction also leaves gaps, but none before an empty segment."""
    config = replace(SMALL, cleanup_policy=frozenset({policy}))
    manager, log = new_log(tmp_path, segment_bytes=200, cleanup_policy=frozenset({policy}))
    for _ in range(2):
        log.append(batch([b"v"], keys=[b"k"]), now_ms=NOW_MS)
    cut = Path(log.segments.active.batches.path(".log"))
    log._roll(NOW_MS)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    _, log = reopened(manager, config, clean=False)
    assert ([segment.base_offset for segment in log.segments], log.log_end_offset) == ([0], 1)


def test_after_a_corrupt_snapshot_an_older_one_or_the_whole_log_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager, log = new_log(tmp_path, segment_bytes=200)
    fill(log, 7)
    manager.close(NOW_MS)
    snapshots = sorted((tmp_path / "t-0").glob("*.snapshot"))
    assert len(snapshots) >= 3
    for broken in (snapshots[-1:], snapshots[-2:], snapshots):
        for path in broken:
            if path.exists():
                path.write_bytes(path.read_bytes()[:-1])
        again = open_manager(tmp_path, SMALL)
        log = again.logs["t", 0]
        assert log.append(batch([b"3"], pid=1, epoch=0, seq=3), now_ms=NOW_MS).duplicate
        assert log.producer_state.producers[1].last_sequence == 6
        again.close(NOW_MS)
    assert "cannot be used" in caplog.text


def test_the_two_latest_snapshots_and_those_of_segments_are_kept(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    for number in range(4):
        fill(log, 1, start=number)
        log._checkpoint.write_snapshot()
    names = [path.stem for path in sorted((tmp_path / "t-0").glob("*.snapshot"))]
    assert [int(name) for name in names] == log.snapshots.offsets == [3, 4]
    log._roll(NOW_MS)
    for number in range(4, 8):
        fill(log, 1, start=number)
        log._checkpoint.write_snapshot()
    assert log.snapshots.offsets == [4, 7, 8]


def test_after_a_clean_stop_no_batch_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, log = new_log(tmp_path, segment_bytes=200)
    fill(log, 9)
    manager.close(NOW_MS)

    def refuse(self: Segment) -> None:
        raise AssertionError("the log file is opened")

    monkeypatch.setattr(BatchFile, "file", property(refuse))
    log = open_manager(tmp_path, SMALL).logs["t", 0]
    assert (log.log_end_offset, log.durability.recovery_point, log.segments.size_bytes) == (
        9,
        9,
        9 * 69,
    )
    log.delete_old_segments(NOW_MS)  # retention by time reads no batch either


def test_after_a_checkpoint_only_later_batches_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, log = new_log(tmp_path)
    fill(log, 9)
    log.flush()
    log.checkpoint()
    manager.write_checkpoints()
    fill(log, 2, start=9)
    kill(manager)
    taken: list[int] = []
    real = SegmentIndexes.index_batch
    monkeypatch.setattr(
        SegmentIndexes,
        "index_batch",
        lambda self, position, *rest: (taken.append(position), real(self, position, *rest)),
    )
    log = open_manager(tmp_path).logs["t", 0]
    assert log.log_end_offset == 11
    assert len(taken) == 2


INDEXED = LogConfig(index_interval_bytes=1)  # the index has an entry for each batch


def test_index_files_are_written_by_the_first_checkpoint_after_a_kill(tmp_path: Path) -> None:
    """The files are not used before the checkpoint, so a start that is killed leaves them
    unchanged.
    """
    manager, log = new_log(tmp_path, index_interval_bytes=1)
    fill(log, 9)
    kill(manager, machine=False)
    index = Path(log.segments.active.batches.path(".index"))
    assert index.stat().st_size == 0
    for _ in range(2):
        manager = open_manager(tmp_path, INDEXED)
        log = manager.logs["t", 0]
        assert log.log_end_offset == 9 and index.stat().st_size == 0
        kill(manager, machine=False)
    manager = open_manager(tmp_path, INDEXED)
    log = manager.logs["t", 0]
    assert log in log.log_dir.changed_logs, "its checkpoint comes by itself"
    log.checkpoint()
    assert index.stat().st_size == 8 * 8, "none for the first batch"
    kill(manager, machine=False)
    log = open_manager(tmp_path, INDEXED).logs["t", 0]
    assert log.unread_bytes == 0


def test_a_damaged_index_is_written_again_after_a_clean_stop(tmp_path: Path) -> None:
    """The start writes the index, since the stop of an unchanged log writes nothing."""
    manager, log = new_log(tmp_path, index_interval_bytes=1)
    fill(log, 9)
    manager.close(NOW_MS)
    index = Path(log.segments.active.batches.path(".index"))
    good = index.read_bytes()
    index.write_bytes(b"\xff" * len(good))
    open_manager(tmp_path, INDEXED).close(NOW_MS)
    assert len(good) == 8 * 8 and index.read_bytes() == good


def test_a_log_that_became_shorter_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager, log = new_log(tmp_path)
    fill(log, 4)
    manager.close(NOW_MS)
    path = Path(log.segments.active.batches.path(".log"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    log = open_manager(tmp_path).logs["t", 0]
    assert log.log_end_offset == 2
    assert "the log ends at offset 2, but it once reached to 4" in caplog.text


def test_a_missing_log_file_is_an_error(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path, segment_bytes=200)
    fill(log, 9)
    manager.close(NOW_MS)
    path = Path(log.segments[1].batches.path(".log"))
    path.unlink()
    error = open_manager(tmp_path, SMALL).offline["t", 0]
    assert str(path) in str(error) and "missing" in str(error) and "Restore" in str(error)


def test_the_topic_id_is_known_without_partition_metadata(tmp_path: Path) -> None:
    """The manifest also contains the topic id."""
    manager, _ = new_log(tmp_path)
    manager.close(NOW_MS)
    (tmp_path / "t-0" / "partition.metadata").unlink()
    again = open_manager(tmp_path)
    assert again.logs["t", 0].topic_id == TOPIC_ID
    assert (tmp_path / "t-0" / "partition.metadata").exists()


def test_leftover_files_are_removed(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    fill(log, 1)
    kill(manager)
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000009.index",
        "segments.manifest.tmp",
    ):
        (tmp_path / "t-0" / name).write_bytes(b"x")
    assert open_manager(tmp_path).logs["t", 0].log_end_offset == 1
    names = {path.name for path in (tmp_path / "t-0").iterdir()}
    assert not names & {
        "00000000000000000000.log.deleted",
        "00000000000000000009.index",
        "segments.manifest.tmp",
    }


@pytest.mark.parametrize("ours", [True, False])
def test_a_gap_in_a_compacted_log_ends_ours_after_a_power_loss_but_not_kafkas(
    tmp_path: Path, ours: bool
) -> None:
    """The cleaner of this broker works only below the stored recovery point. Apache Kafka may have
    cleaned any part of the log.
    """
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=100)
    manager = open_manager(tmp_path, config)
    log = manager.create("t", 0, TOPIC_ID, config, NOW_MS)
    for number in range(4):
        log.append(batch([b"%d" % number], keys=[b"k%d" % number]), now_ms=NOW_MS)
        if number == 0:
            log.flush()
    lost = log.segments[1].batches.path(".log")
    kill(manager, machine=not ours)
    Path(lost).write_bytes(b"")
    if ours:
        (tmp_path / BOOT_ID_NAME).write_text("another run of the machine")
    else:
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
    log = open_manager(tmp_path, config).logs["t", 0]
    assert list(values_of(log)) == ([0] if ours else [0, 2, 3])


def test_an_aborted_index_that_a_power_loss_reverted_is_rebuilt(tmp_path: Path) -> None:
    """A power loss restored an old manifest, from when the segment was shorter, and the old index
    of aborted transactions. The two agree, but the index lacks later transactions.
    """
    manager, log = new_log(tmp_path)
    log.append(batch([b"aborted"], pid=1, epoch=0, seq=0, transactional=True), now_ms=NOW_MS)
    log.checkpoint()
    manifest = tmp_path / "t-0/segments.manifest"
    then = manifest.read_bytes()
    append_marker(
        log, producer_id=1, producer_epoch=0, coordinator_epoch=0, commit=False, now_ms=NOW_MS
    )
    for number in (1, 2):
        log._roll(NOW_MS)
        fill(log, 1, start=number)
    log.flush()
    manager.write_checkpoints()
    manifest.write_bytes(then)
    Path(log.segments[0].batches.path(".txnindex")).unlink()
    manager, log = reopened(manager, LogConfig(), clean=False)
    assert committed_values(log) == {2: b"1", 3: b"2"}


def test_segments_that_a_power_loss_removed_are_not_an_error(tmp_path: Path) -> None:
    """A segment above the recovery point may be missing after a power loss. The log continues
    without it.
    """
    manager, log = new_log(tmp_path)
    fill(log, 2)
    log.flush()
    manager.write_checkpoints()
    log._roll(NOW_MS)
    fill(log, 3, start=2)
    log.checkpoint()
    for path in (tmp_path / "t-0").glob("00000000000000000002.*"):
        path.unlink()
    manager, log = reopened(manager, LogConfig(), clean=False)
    assert (log.log_end_offset, manager.offline) == (2, {})
    assert not log.append(batch([b"again"], pid=1, epoch=0, seq=2), now_ms=NOW_MS).duplicate
    manager.note_boot()
    kill(manager, machine=False)
    manager = open_manager(tmp_path)
    assert (manager.logs["t", 0].log_end_offset, manager.offline) == (3, {}), (
        "nor are they by the next start"
    )


def test_a_power_loss_may_remove_all_segments_of_a_log_that_was_never_flushed(
    tmp_path: Path,
) -> None:
    manager, log = new_log(tmp_path)
    fill(log, 3)
    log.checkpoint()
    for path in (tmp_path / "t-0").glob("00000000000000000000.*"):
        path.unlink()
    manager, log = reopened(manager, LogConfig(), clean=False)
    assert (log.log_start_offset, log.log_end_offset, log.topic_id, manager.offline) == (
        0,
        0,
        TOPIC_ID,
        {},
    )
    assert not log.append(batch([b"again"], pid=1, epoch=0, seq=0), now_ms=NOW_MS).duplicate


def test_a_manifest_of_a_longer_log_is_removed(tmp_path: Path) -> None:
    """Otherwise the manifest would be trusted as soon as the log had its old length again. The
    state of producers would then include the lost batches.
    """
    manager, log = new_log(tmp_path)
    fill(log, 4)
    log.checkpoint()
    path = Path(log.segments.active.batches.path(".log"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    manager, log = reopened(manager, LogConfig(), clean=False)
    assert log.log_end_offset == 2
    assert not (tmp_path / "t-0/segments.manifest").exists()
    log.append(batch([b"x"], pid=2, epoch=0, seq=0), now_ms=NOW_MS)
    log.append(batch([b"y"], pid=2, epoch=0, seq=1), now_ms=NOW_MS)
    kill(manager, machine=False)
    log = open_manager(tmp_path).logs["t", 0]
    assert (
        log.producer_state.producers[1].last_sequence,
        log.producer_state.producers[2].last_sequence,
    ) == (1, 1)


def test_a_checkpoint_notes_the_size_of_a_segment_that_grew_after_a_start(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    fill(log, 2)
    manager, log = reopened(manager, LogConfig(), clean=True)
    fill(log, 3, start=2)
    log._roll(NOW_MS)
    fill(log, 1, start=5)
    log.checkpoint()
    manifest = Manifest.decode((tmp_path / "t-0/segments.manifest").read_bytes())
    assert {base: note.size for base, note in manifest.segments.items()} == {
        segment.base_offset: segment.batches.size for segment in log.segments
    }
    for name, (size, crc) in manifest.files.items():
        data = (tmp_path / "t-0" / name).read_bytes() if size >= 0 else b""
        assert (max(size, 0), crc) == (len(data), crc32c(data)), name


# --- one log, by its checkpoints ------------------------------------------------------------------


def killed_log(path: Path, count: int, **config: object) -> Log:
    """A log of `count` records, for which a checkpoint was written before the broker was killed."""
    manager, log = new_log(path, **config)
    fill(log, count)
    log.checkpoint()
    kill(manager, machine=False)
    return log


def load(
    path: Path,
    last_run: LastRun,
    *,
    point: int | None = None,
    start: int | None = None,
    config: LogConfig = SMALL,
    disk: Disk | None = None,
) -> Log:
    """Load the log of `path`. `point` and `start` are the recovery point and the log start offset
    in the checkpoint files.
    """
    return load_log(
        LogDirectory(disk or OsDisk(), str(path)),
        "t",
        0,
        config,
        Opening(last_run, NOW_MS),
        recovery_point=point,
        log_start_offset=start,
    )


def cut_batch(log: Log, number: int) -> None:
    """Remove the last batch from a segment's file. All batches have the same size."""
    path = Path(log.segments[number].batches.path(".log"))
    path.write_bytes(path.read_bytes()[:-BATCH_BYTES])


BATCH_BYTES = 69  # the size of a batch that `fill` makes


@pytest.mark.parametrize(
    ("last_run", "has_grown", "start", "point", "expected"),
    [
        pytest.param(LastRun.CLEAN, False, None, None, (2, 6), id="all is in the manifest"),
        pytest.param(LastRun.CLEAN, False, 4, 5, (4, 6), id="Kafka deleted records since"),
        pytest.param(LastRun.CLEAN, True, 1, 7, (1, 7), id="Kafka wrote since"),
        pytest.param(LastRun.KILLED, False, None, None, (2, 0), id="no checkpoint"),
        pytest.param(LastRun.KILLED, True, 1, 3, (2, 3), id="the checkpoint is older"),
        pytest.param(LastRun.KILLED, True, 4, 3, (4, 3), id="the manifest is older"),
        pytest.param(LastRun.POWER_LOST, True, 1, 3, (2, 3), id="the power: the same"),
        pytest.param(LastRun.POWER_LOST, True, 4, 3, (4, 3), id="the older manifest is back"),
        pytest.param(LastRun.POWER_LOST, False, 9, 9, (9, 9), id="of more than there is"),
    ],
)
def test_the_start_and_recovery_point_come_from_the_manifest_and_checkpoints(
    tmp_path: Path,
    last_run: LastRun,
    has_grown: bool,
    start: int | None,
    point: int | None,
    expected: tuple[int, int],
) -> None:
    """`expected` has the log start offset and the recovery point. The log has 6 records, and starts
    at offset 2 according to its manifest.
    """
    manager, log = new_log(tmp_path)
    fill(log, 6)
    log.delete_records_before(2)
    log.checkpoint()
    if has_grown:
        fill(log, 2, start=6)
    kill(manager, machine=False)
    log = load(tmp_path, last_run, start=start, point=point, config=LogConfig())
    assert (log.log_start_offset, log.durability.recovery_point) == expected
    is_higher = expected[0] > 2
    assert (("t", 0) in log.log_dir.changed_starts) is is_higher, "the manifest has to be written"


@pytest.mark.parametrize("start", [None, 1, 5])
@pytest.mark.parametrize("last_run", list(LastRun))
def test_a_log_begins_no_lower_than_its_first_segment(
    tmp_path: Path, last_run: LastRun, start: int | None
) -> None:
    """The manifest is lost. The checkpoint is lost as well, or is older than the last deletion."""
    left = killed_log(tmp_path, 6, segment_bytes=200)
    first = left.segments[1].base_offset
    left.segments[0].remove_files()
    Path(left.directory, MANIFEST_NAME).unlink()
    log = load(tmp_path, last_run, start=start, point=6)
    assert log.log_start_offset == max(first, start or 0)
    assert list(values_of(log)) == list(range(log.log_start_offset, 6))


@pytest.mark.parametrize("last_run", [LastRun.CLEAN, LastRun.KILLED])
def test_a_missing_segment_is_accepted_only_after_a_power_loss(
    tmp_path: Path, last_run: LastRun
) -> None:
    log = killed_log(tmp_path, 6, segment_bytes=200)
    Path(log.segments.active.batches.path(".log")).unlink()
    with pytest.raises(CorruptLog, match="is missing"):
        load(tmp_path, last_run, point=0)
    assert load(tmp_path, LastRun.POWER_LOST, point=0).log_end_offset == 4


@pytest.mark.parametrize("last_run", list(LastRun))
def test_a_segment_that_lost_batches_since_a_clean_stop_is_reported(
    tmp_path: Path, last_run: LastRun, caplog: pytest.LogCaptureFixture
) -> None:
    """The loss is logged only once. After a power loss, a loss above the recovery point is not
    reported.
    """
    log = killed_log(tmp_path, 6, segment_bytes=200)
    cut_batch(log, 1)
    load(tmp_path, last_run, point=2)
    reported = [text for text in caplog.messages if "at the last stop" in text]
    if last_run is LastRun.CLEAN:
        assert reported == [
            f"{log.segments[1].batches.path('.log')} has {BATCH_BYTES} bytes, and had "
            f"{2 * BATCH_BYTES} at the last stop: restore it from a copy; missing records are "
            "not read"
        ]
    else:
        assert reported == []


@pytest.mark.parametrize(("more", "stays"), [(1, True), (0, True), (-1, False)])
@pytest.mark.parametrize("last_run", list(LastRun))
def test_a_manifest_is_kept_unless_the_log_became_shorter(
    tmp_path: Path, last_run: LastRun, more: int, stays: bool
) -> None:
    """If this start is killed, the next start reads no more than this one."""
    manager, log = new_log(tmp_path)
    fill(log, 4)
    log.checkpoint()
    if more > 0:
        fill(log, more, start=4)
    elif more < 0:
        cut_batch(log, 0)
    kill(manager, machine=False)
    log = load(tmp_path, last_run, point=2)
    assert log.log_end_offset == 4 + more
    assert (tmp_path / "t-0" / MANIFEST_NAME).exists() is stays
    assert all(offset <= 4 + more for offset in log.snapshots.offsets), "else it is believed"
    assert bool(log.snapshots.offsets) is stays


@pytest.mark.parametrize("last_run", list(LastRun))
def test_the_first_flush_syncs_the_topic_id_except_after_a_clean_stop(
    tmp_path: Path, last_run: LastRun
) -> None:
    """The entries of a flush journal are matched with a log by its topic id."""
    killed_log(tmp_path, 1)
    disk = RecordingDisk()
    log = load(tmp_path, last_run, config=LogConfig(), disk=disk)
    disk.take_steps()
    log.flush()
    is_due = last_run is not LastRun.CLEAN
    assert (("fsync", "partition.metadata") in disk.take_steps()) is is_due


def test_a_log_whose_topic_id_is_lost_is_flushed_without_it(tmp_path: Path) -> None:
    """No file contains a topic id. The broker will assign one to the log, or take the log
    offline.
    """
    killed_log(tmp_path, 1)
    for name in ("partition.metadata", MANIFEST_NAME):
        (tmp_path / "t-0" / name).unlink()
    log = load(tmp_path, LastRun.KILLED)
    log.flush()
    assert log.durability.recovery_point == 1


@pytest.mark.parametrize(
    ("last_run", "change", "writes"),
    [
        (LastRun.CLEAN, "none", False),
        (LastRun.CLEAN, "a segment lost a batch", True),
        (LastRun.CLEAN, "a manifest of more than there is", True),
        (LastRun.CLEAN, "the manifest is gone", True),
        (LastRun.KILLED, "none", True),
        (LastRun.POWER_LOST, "none", True),
    ],
)
def test_a_stop_writes_the_manifest_unless_nothing_changed_since_a_clean_stop(
    tmp_path: Path, last_run: LastRun, change: str, writes: bool
) -> None:
    """The manifest is written even if the log was flushed in the meantime, since a flush does not
    write it.
    """
    log = killed_log(tmp_path, 6, segment_bytes=200)
    path = tmp_path / "t-0" / MANIFEST_NAME
    if change == "a segment lost a batch":
        cut_batch(log, 1)
    elif change == "a manifest of more than there is":
        manifest = Manifest.decode(path.read_bytes())
        manifest.log_end_offset += 1
        path.write_bytes(manifest.encode())
    elif change == "the manifest is gone":
        path.unlink()
    disk = RecordingDisk()
    log = load(tmp_path, last_run, point=6, disk=disk)
    log.flush()
    disk.take_steps()
    for file in log.begin_close():
        file.fsync()
    assert (("fsync", MANIFEST_NAME) in disk.take_steps()) is writes
    sizes = {base: note.size for base, note in Manifest.decode(path.read_bytes()).segments.items()}
    assert sizes == {segment.base_offset: segment.batches.size for segment in log.segments}


@pytest.mark.parametrize(
    ("last_run", "point", "offsets", "recovery_point"),
    [
        (LastRun.FOREIGN, 1, [0, 2, 3], 4),
        (LastRun.POWER_LOST, 1, [0], 1),
        (LastRun.POWER_LOST, None, [0, 2, 3], 4),
        (LastRun.POWER_LOST, 2, [0, 2, 3], 2),
    ],
)
def test_a_gap_above_the_recovery_point_is_our_loss_or_kafkas_compaction(
    tmp_path: Path,
    last_run: LastRun,
    point: int | None,
    offsets: list[int],
    recovery_point: int,
) -> None:
    """Without recovery points, Apache Kafka may have cleaned any part of the log. A gap that is
    kept is below the recovery point from then on, so later gaps are losses of this broker.
    """
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=100)
    manager = open_manager(tmp_path, config)
    log = manager.create("t", 0, TOPIC_ID, config, NOW_MS)
    for number in range(4):
        log.append(batch([b"%d" % number], keys=[b"k%d" % number]), now_ms=NOW_MS)
    kill(manager, machine=False)
    Path(log.segments[1].batches.path(".log")).write_bytes(b"")
    (tmp_path / "t-0" / MANIFEST_NAME).unlink()
    log = load(tmp_path, last_run, point=point, config=config)
    assert list(values_of(log)) == offsets
    assert log.durability.recovery_point == recovery_point
