"""A start with a whole data directory: how it finds out how the last run ended, what it writes, and
what it logs.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.recording_disk import RecordingDisk
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, delete_log, kill, new_log, open_manager

from barnabas.protocol.records import read_header
from barnabas.storage.cleaning.cleaner import _emptied
from barnabas.storage.directory.bootstrap_checkpoint import mark_of
from barnabas.storage.directory.graduated import BOOTSTRAP_NAME, MARK_NAME
from barnabas.storage.directory.log_manager import UNHEARD_LEADER_EPOCHS, LogManager
from barnabas.storage.disk import Data, File, NotWrittenError, OsDisk
from barnabas.storage.files import leader_epochs
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    LOG_START_NAME,
    MANIFEST_NAME,
    RECOVERY_POINT_NAME,
    decode_offsets,
    encode_offsets,
)
from barnabas.storage.files.flush_journal import JournalDecision
from barnabas.storage.files.leader_epochs import HIGHEST_EPOCH_NAME, HighestEpoch
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.log_config import LogConfig, LogManagerConfig
from barnabas.storage.opening.last_run import BOOT_ID_NAME, LastRun


def lose_power(manager: LogManager) -> None:
    """Kill the process, and change the stored boot id, as if the machine had rebooted."""
    kill(manager, machine=False)
    Path(manager.data_dir, BOOT_ID_NAME).write_text("another run")


def log_path(log: Log) -> Path:
    return Path(log.segments.active.batches.path(".log"))


def spoil(log: Log) -> None:
    """Damage the first of several batches, so that the log goes offline at the next start."""
    raw = bytearray(log_path(log).read_bytes())
    raw[30] ^= 1
    log_path(log).write_bytes(raw)
    Path(log.directory, MANIFEST_NAME).unlink(missing_ok=True)


def points_in(path: Path, name: str = RECOVERY_POINT_NAME) -> dict[tuple[str, int], int]:
    return dict(decode_offsets((path / name).read_bytes()))


# --- how the last run ended ---------------------------------------------------------------------


def test_all_files_of_logs_are_durable_before_the_mark_of_a_clean_stop(tmp_path: Path) -> None:
    disk = RecordingDisk()
    manager = open_manager(tmp_path, disk=disk)
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    log.append(batch(), now_ms=NOW_MS)
    disk.take_steps()
    manager.close(NOW_MS)
    steps = disk.take_steps()
    before = steps[: steps.index(("write and sync", CLEAN_SHUTDOWN_NAME))]
    for step in (("fsync", log_path(log).name), ("fsync", MANIFEST_NAME), ("fsync_dir", "t-0")):
        assert step in before


def test_files_that_a_clean_stop_creates_are_durable_before_its_mark(
    tmp_path: Path,
) -> None:
    """The files must be durable, since the next start trusts them and reads no batch of the log."""
    first = open_manager(tmp_path)
    first.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS).append(batch(), now_ms=NOW_MS)
    first.close(NOW_MS)
    disk = RecordingDisk()
    manager = open_manager(tmp_path, disk=disk)
    manager.logs["t", 0].append(batch(), now_ms=NOW_MS)
    disk.take_steps()
    manager.close(NOW_MS)
    steps = disk.take_steps()
    before = steps[: steps.index(("write and sync", CLEAN_SHUTDOWN_NAME))]
    snapshot = ("write", f"{2:020d}.snapshot")
    assert ("fsync_dir", "t-0") in before[before.index(snapshot) :]
    assert ("fsync", MANIFEST_NAME) in before[before.index(("write", MANIFEST_NAME)) :]


def test_the_removal_of_the_clean_stop_mark_is_durable(tmp_path: Path) -> None:
    """The directory is flushed after the mark is removed. Otherwise a power loss could restore the
    mark.
    """
    open_manager(tmp_path).close(NOW_MS)
    disk = RecordingDisk()
    assert open_manager(tmp_path, disk=disk).last_run is LastRun.CLEAN
    steps = disk.take_steps()
    assert ("fsync_dir", tmp_path.name) in steps[steps.index(("unlink", CLEAN_SHUTDOWN_NAME)) :]


@pytest.mark.parametrize(("ending", "count"), [("new", 1), ("clean", 0), ("killed", 1)])
def test_a_start_flushes_the_directory_except_after_a_clean_stop(
    tmp_path: Path, ending: str, count: int
) -> None:
    """In a new directory, the flush makes the name of the file with the directory's ids durable."""
    if ending != "new":
        manager = open_manager(tmp_path)
        if ending == "clean":
            manager.close(NOW_MS)
        else:
            kill(manager, machine=False)
    disk = RecordingDisk()
    again = LogManager(disk, str(tmp_path), config=LogManagerConfig(), now_ms=NOW_MS)
    again._take_directory()
    assert disk.take_steps().count(("fsync_dir", tmp_path.name)) == count


def test_a_new_data_directory_is_durable_in_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    class Watched(OsDisk):
        def fsync_dir(self, path: str) -> None:
            synced.append(path)
            super().fsync_dir(path)

    class Root(Watched):
        """A disk that accepts a new directory within the root directory."""

        def is_dir(self, path: str) -> bool:
            return False

        def mkdir(self, path: str) -> None:
            pass

        def lock(self, path: str) -> None:  # type: ignore[override]
            raise BlockingIOError

    monkeypatch.chdir(tmp_path)
    (tmp_path / "around").mkdir()
    for name in ("around/data", f"{tmp_path}/data"):
        synced.clear()
        manager = LogManager(Watched(), name, config=LogManagerConfig(), now_ms=NOW_MS)
        manager._take_directory()
        assert synced[0] == name.rpartition("/")[0]
    synced.clear()
    with pytest.raises(LogDirectoryError, match="in use"):
        LogManager(Root(), "/data", config=LogManagerConfig(), now_ms=NOW_MS)._take_directory()
    assert synced == ["/"]


def test_a_directory_that_was_handed_over_to_kafka_is_refused(tmp_path: Path) -> None:
    (tmp_path / MARK_NAME).write_bytes(mark_of(b"records"))
    (tmp_path / BOOTSTRAP_NAME).write_bytes(b"records")
    with pytest.raises(LogDirectoryError, match="handed over to Apache Kafka"):
        open_manager(tmp_path)


def test_trailing_slashes_of_the_data_directory_are_removed(tmp_path: Path) -> None:
    for given, is_known_as in ((f"{tmp_path}//", str(tmp_path)), ("/", "/"), ("//", "/")):
        config = LogManagerConfig(node_id=7)
        manager = LogManager(OsDisk(), given, config=config, now_ms=NOW_MS)
        assert (manager.data_dir, manager.node_id) == (is_known_as, 7)
        assert manager.wall is manager.log_dir.wall


def test_a_power_loss_is_handled_at_each_start_until_all_logs_were_flushed(tmp_path: Path) -> None:
    """A start that was killed may have rewritten data, which may be only in the page cache."""
    lose_power(open_manager(tmp_path))
    for _ in range(2):
        manager = open_manager(tmp_path)
        assert manager.last_run is LastRun.POWER_LOST
        kill(manager, machine=False)
    manager = open_manager(tmp_path)
    manager.note_boot()
    kill(manager, machine=False)
    assert open_manager(tmp_path).last_run is LastRun.KILLED


@pytest.mark.parametrize("is_copy", [False, True])
@pytest.mark.parametrize("last_run", list(LastRun))
def test_acknowledged_data_may_be_missing_after_a_power_loss_and_in_a_copy(
    tmp_path: Path, last_run: LastRun, is_copy: bool
) -> None:
    manager = open_manager(tmp_path, may_lack_acknowledged=is_copy)
    manager.last_run = last_run
    lost = last_run in (LastRun.POWER_LOST, LastRun.FOREIGN)
    assert manager.lost_power is lost
    assert manager.may_lack_acknowledged is (lost or is_copy)


@pytest.mark.parametrize(
    ("point", "last_run"),
    [(1, LastRun.KILLED), (2, LastRun.KILLED), (3, LastRun.POWER_LOST)],
)
def test_a_log_that_ends_below_its_recovery_point_marks_a_copy(
    tmp_path: Path, point: int, last_run: LastRun
) -> None:
    """A kill loses no data, and durable data are never truncated, so the directory must be a
    copy.
    """
    manager, log = new_log(tmp_path)
    empty = manager.create("u", 0, TOPIC_ID, LogConfig(), NOW_MS)
    empty.files.make()
    for _ in range(2):
        log.append(batch(), now_ms=NOW_MS)
    kill(manager, machine=False)
    (tmp_path / RECOVERY_POINT_NAME).write_bytes(encode_offsets({("t", 0): point}))
    assert open_manager(tmp_path).last_run is last_run


def test_a_shorter_log_after_a_clean_stop_does_not_mark_a_copy(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    log.append(batch(), now_ms=NOW_MS)
    manager.close(NOW_MS)
    (tmp_path / RECOVERY_POINT_NAME).write_bytes(encode_offsets({("t", 0): 5}))
    assert open_manager(tmp_path).last_run is LastRun.CLEAN


# --- flush journals -----------------------------------------------------------------------------

DECISION = JournalDecision(b"key", b"value", ())


def journal_of(manager: LogManager, log: Log, *, decision: bool = False) -> bytes:
    """Write a journal that contains the whole file of the log. Gives the file's content."""
    data = log_path(log).read_bytes()
    entry = log.topic, log.partition, log.topic_id.bytes, 0, 0, data
    records = [DECISION] if decision else []
    for file in manager.journal.append([entry], records):
        file.fsync()
    return data


@pytest.mark.parametrize(
    ("change", "point", "last_run"),
    [
        ("none", 0, LastRun.KILLED),
        ("cut", 0, LastRun.POWER_LOST),
        ("compacted", 0, LastRun.POWER_LOST),
        ("compacted", 2, LastRun.KILLED),
    ],
)
def test_after_a_kill_a_log_that_lacks_journal_bytes_marks_a_copy(
    tmp_path: Path, change: str, point: int, last_run: LastRun
) -> None:
    """The data are written again, as after a power loss. Below the recovery point, a difference is
    no sign of a copy, since compaction may have changed the file.
    """
    manager, log = new_log(tmp_path)
    for _ in range(2):
        log.append(batch(), now_ms=NOW_MS)
    data = journal_of(manager, log)
    kill(manager, machine=False)
    half = len(data) // 2
    if change == "cut":
        log_path(log).write_bytes(data[:half])
    elif change == "compacted":
        log_path(log).write_bytes(_emptied(read_header(data)) + data[half:])
    (tmp_path / RECOVERY_POINT_NAME).write_bytes(encode_offsets({("t", 0): point} if point else {}))
    again = open_manager(tmp_path)
    assert again.last_run is last_run
    assert again.logs["t", 0].log_end_offset == 2


def test_after_a_kill_the_journal_is_compared_even_without_recovery_points(tmp_path: Path) -> None:
    """The log is empty although the journal has a batch of it, as in a copy of the directory. The
    batch is restored.
    """
    manager, log = new_log(tmp_path)
    log.append(batch(), now_ms=NOW_MS)
    journal_of(manager, log)
    kill(manager, machine=False)
    log_path(log).write_bytes(b"")
    for name in (RECOVERY_POINT_NAME, LOG_START_NAME):
        (tmp_path / name).unlink(missing_ok=True)
    again = open_manager(tmp_path)
    assert again.last_run is LastRun.POWER_LOST
    assert again.logs["t", 0].log_end_offset == 1


@pytest.mark.parametrize("decision", [False, True])
@pytest.mark.parametrize("is_clean", [False, True])
def test_a_start_after_a_clean_stop_removes_journals_without_decisions(
    tmp_path: Path, is_clean: bool, decision: bool
) -> None:
    """If the last run ended in another way, the journals are kept until all logs have been
    flushed.
    """
    manager, log = new_log(tmp_path)
    log.append(batch(), now_ms=NOW_MS)
    journal_of(manager, log, decision=decision)
    kill(manager, machine=False)
    if is_clean:
        (tmp_path / CLEAN_SHUTDOWN_NAME).write_bytes(b"")
    again = open_manager(tmp_path)
    assert again.decisions == ([DECISION] if decision else [])
    is_gone = not list(tmp_path.glob("barnabas-flush-*"))
    assert is_gone is (is_clean and not decision)


# --- logs that are off line ---------------------------------------------------------------------


def test_an_offline_log_is_flushed_and_keeps_its_checkpointed_offsets(tmp_path: Path) -> None:
    """A transaction with data in the offline log may still be committed, and the log may be
    repaired. After a clean stop, a start assumes that the whole log is durable.
    """
    manager, log = new_log(tmp_path)
    for _ in range(3):
        log.append(batch(), now_ms=NOW_MS)
    log.flush()
    log.delete_records_before(1)
    other = manager.create("u", 0, TOPIC_ID, LogConfig(), NOW_MS)
    other.append(batch(), now_ms=NOW_MS)
    other.append(batch(), now_ms=NOW_MS)
    manager.on_tick(NOW_MS)
    manager.write_checkpoints()
    kill(manager)
    spoil(log)
    spoil(other)
    disk = RecordingDisk()
    again = open_manager(tmp_path, disk=disk)
    assert set(again.offline) == {("t", 0), ("u", 0)}
    steps = disk.take_steps()
    flushed = [steps.index(("fsync", path.name)) for path in log_path(log).parent.iterdir()]
    assert len(flushed) >= 4
    assert ("fsync_dir", "t-0") in steps[max(flushed) :]
    assert points_in(tmp_path)["t", 0] == 3
    assert points_in(tmp_path, LOG_START_NAME) == {("t", 0): 1}


def test_an_offline_log_without_a_recovery_point_gets_none(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    for _ in range(2):
        log.append(batch(), now_ms=NOW_MS)
    kill(manager)
    spoil(log)
    (tmp_path / RECOVERY_POINT_NAME).unlink()
    assert list(open_manager(tmp_path).offline) == [("t", 0)]
    assert points_in(tmp_path) == {}


def test_an_offline_log_is_deleted_at_once_with_its_checkpointed_offsets(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    for _ in range(2):
        log.append(batch(), now_ms=NOW_MS)
    log.flush()
    log.delete_records_before(1)
    manager.on_tick(NOW_MS)
    manager.write_checkpoints()
    kill(manager)
    spoil(log)
    again = open_manager(tmp_path)
    delete_log(again, "t", 0, NOW_MS)
    again.on_tick(NOW_MS)
    assert points_in(tmp_path) == {} and points_in(tmp_path, LOG_START_NAME) == {}
    assert not list(tmp_path.glob("t*"))


# --- missing partitions -------------------------------------------------------------------------


@dataclass
class _Topic:
    name: str
    partition_count: int


class _Topics:
    """The topics of a cluster: only `t`, with two partitions."""

    is_torn = False

    def topic(self, name: str) -> _Topic | None:
        return _Topic("t", 2) if name == "t" else None

    def topic_by_id(self, topic_id: uuid.UUID) -> _Topic | None:
        return None


@pytest.mark.parametrize(
    ("partition", "point", "is_missed"),
    [
        (("t", 1), 4, True),
        (("t", 1), 1, True),
        (("t", 1), 0, False),  # none of its data were durable
        (("t", 2), 4, False),  # the topic has fewer partitions
        (("u", 1), 4, False),  # the topic was deleted
        (("t", 0), 2, False),  # its directory exists
        (("t", 0), 4, False),  # the log is offline
    ],
)
def test_a_partition_with_a_recovery_point_but_no_directory_is_reported(
    tmp_path: Path,
    partition: tuple[str, int],
    point: int,
    is_missed: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager, log = new_log(tmp_path)
    for _ in range(2):
        log.append(batch(), now_ms=NOW_MS)
    kill(manager)
    is_damaged = partition == ("t", 0) and point == 4
    if is_damaged:
        spoil(log)
    (tmp_path / RECOVERY_POINT_NAME).write_bytes(encode_offsets({partition: point}))
    again = LogManager(OsDisk(), str(tmp_path), config=LogManagerConfig(), now_ms=NOW_MS)
    topics = _Topics()
    again.load(lambda topic: LogConfig(), NOW_MS, known_topics=lambda: topics)
    assert (("t", 0) in again.offline) is is_damaged
    message = f"t-1 is missing, and had records up to offset {point - 1}"
    assert ("is missing, and had" in caplog.text) is is_missed and (
        message in caplog.text
    ) is is_missed


def test_no_partition_is_reported_missing_if_no_topics_are_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kill(open_manager(tmp_path))
    (tmp_path / RECOVERY_POINT_NAME).write_bytes(encode_offsets({("t", 1): 4}))
    open_manager(tmp_path)
    assert "is missing, and had" not in caplog.text


# --- leader epochs ------------------------------------------------------------------------------


def test_a_start_uses_the_leader_epoch_after_the_highest_of_all_logs(tmp_path: Path) -> None:
    """The file with the highest epoch of the directory may be missing, for example in a directory
    of Apache Kafka.
    """
    manager = open_manager(tmp_path)
    assert manager.leader_epoch == 0
    for partition, epoch in enumerate((3, 7, 5)):
        log = manager.create("t", partition, TOPIC_ID, LogConfig(), NOW_MS, leader_epoch=epoch)
        log.append(batch(), now_ms=NOW_MS)
    manager.close(NOW_MS)
    (tmp_path / "barnabas-leader-epoch").unlink()
    again = open_manager(tmp_path)
    assert again.leader_epoch == 8
    assert {log.leader_epoch for log in again.logs.values()} == {8}


@pytest.mark.parametrize(
    ("lowest", "is_copy", "begun"),
    [(0, False, 0), (1, False, 1), (5, False, 5), (5, True, 5), (0, True, UNHEARD_LEADER_EPOCHS)],
)
def test_the_first_leader_epoch_is_that_of_the_claim_or_far_higher_in_a_copy(
    tmp_path: Path, lowest: int, is_copy: bool, begun: int
) -> None:
    """`lowest` is the epoch of the claim. A copy may lack the last epochs of the original, so the
    broker skips some epochs there.
    """
    manager = open_manager(tmp_path, lowest_leader_epoch=lowest, may_lack_acknowledged=is_copy)
    assert manager.leader_epoch == begun
    manager.begin_leader_epoch([])
    assert manager.leader_epoch == begun + 1


class EpochDisk(OsDisk):
    """A disk on which the file of the highest leader epoch may fail: writing it with ENOSPC
    (`is_full`), and opening it with EMFILE (`lacks_descriptors`).
    """

    is_full = lacks_descriptors = False

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        if self.is_full and path.endswith(HIGHEST_EPOCH_NAME):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().write_atomic(path, data, sync=sync)

    def open(self, path: str, *, create: bool = False) -> File:
        if self.lacks_descriptors and path.endswith(HIGHEST_EPOCH_NAME):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, create=create)


@pytest.mark.parametrize("seed", range(3))
def test_an_epoch_that_a_batch_has_is_never_given_again_even_if_all_logs_are_lost(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may lack space for any of the files. A batch is refused unless its epoch is on the
    disk.
    """
    monkeypatch.setattr(leader_epochs, "DOTS", 3)
    rng, disk = random.Random(seed), EpochDisk()
    manager = open_manager(tmp_path, disk=disk)
    used: set[int] = set()
    outcomes: Counter[str] = Counter()
    for turn in range(20):
        log = manager.create("t", turn, TOPIC_ID, LogConfig(), NOW_MS)
        for _ in range(rng.randrange(3)):
            disk.is_full, disk.lacks_descriptors = rng.random() < 0.7, rng.random() < 0.3
            manager.begin_leader_epoch([log])
            try:
                log.append(batch(), now_ms=NOW_MS)
            except NotWrittenError:
                outcomes["refused"] += 1
                assert log.log_end_offset == 0
                continue
            outcomes["written"] += 1
            used.add(log.leader_epoch)
            assert HighestEpoch(disk, str(tmp_path)).read() >= log.leader_epoch
            break
        if rng.random() < 0.5:
            disk.is_full = disk.lacks_descriptors = False
            kill(manager)
            for directory in tmp_path.glob("t-*"):
                shutil.rmtree(directory)
            manager = open_manager(tmp_path, disk=disk)
            assert manager.leader_epoch > max(used, default=-1)
    assert outcomes["refused"] and outcomes["written"]


# --- new and deleted logs -----------------------------------------------------------------------


def test_an_unused_log_has_nothing_to_flush(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    assert log.durability.begin_flush() is None


def test_a_log_may_be_deleted_before_its_changed_start_is_written(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    log.append(batch(), now_ms=NOW_MS)
    log.delete_records_before(1)
    delete_log(manager, "t", 0, NOW_MS)
    manager.on_tick(NOW_MS)
    assert manager.next_deadline_ms() > 0


def test_end_removals_flushes_nothing_without_removals(tmp_path: Path) -> None:
    """The deletion itself has already flushed the directory, so the end of removals flushes
    nothing.
    """
    disk = RecordingDisk()
    manager = open_manager(tmp_path, disk=disk)
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    log.append(batch(), now_ms=NOW_MS)
    delete_log(manager, "t", 0, NOW_MS)
    assert ("fsync_dir", tmp_path.name) in disk.take_steps()
    manager.end_removals()
    assert disk.take_steps() == []
