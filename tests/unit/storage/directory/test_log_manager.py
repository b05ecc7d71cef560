"""The data directory: its files, the creation and deletion of logs, retention, and periodic
work.
"""

from __future__ import annotations

import contextlib
import errno
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.recording_disk import RecordingDisk
from helpers.storage_logs import (
    NOW_MS,
    SECOND_MS,
    TOPIC_ID,
    batch,
    delete_log,
    kill,
    new_log,
    open_manager,
    reopened,
    state_at,
    values_of,
)
from sim.disk import Crash, SimDisk

from barnabas.storage.directory import log_upkeep, offset_checkpoints
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.directory.log_upkeep import MUCH_READ_BYTES
from barnabas.storage.disk import Data, OsDisk, SyncSteps, run_at_once
from barnabas.storage.files.checkpoints import (
    LOG_START_NAME,
    MANIFEST_NAME,
    RECOVERY_POINT_NAME,
    REPLICATION_NAME,
    Manifest,
    decode_offsets,
)
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import UNREAD_BATCH_BYTES, Log
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.log.trash import Trash
from barnabas.storage.log_config import LogConfig, LogManagerConfig


def test_a_new_directory_has_kafkas_files(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, cluster_id="a-cluster", node_id=3, directory_id="a-directory")
    log = manager.create("some.topic_x", 7, TOPIC_ID, LogConfig(), NOW_MS)
    log.append(batch(), now_ms=NOW_MS)
    manager.close(NOW_MS)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        ".kafka_cleanshutdown",
        ".lock",
        "log-start-offset-checkpoint",
        "barnabas-boot-id",
        "barnabas-leader-epoch",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "some.topic_x-7",
    }
    assert (
        tmp_path / "meta.properties"
    ).read_text() == "#\nnode.id=3\ndirectory.id=a-directory\nversion=1\ncluster.id=a-cluster\n"
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nsome.topic_x 7 1\n"
    assert {path.name for path in (tmp_path / "some.topic_x-7").iterdir()} == {
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "segments.manifest",
    }
    assert (tmp_path / "some.topic_x-7" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_the_mark_of_a_clean_stop_is_gone_while_a_broker_runs(tmp_path: Path) -> None:
    open_manager(tmp_path).close(NOW_MS)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    open_manager(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_two_brokers_cannot_have_one_directory(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    with pytest.raises(LogDirectoryError, match="in use"):
        open_manager(tmp_path)
    manager.close(NOW_MS)
    open_manager(tmp_path)


def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    open_manager(tmp_path, node_id=1).close(NOW_MS)
    with pytest.raises(LogDirectoryError, match="node 1"):
        open_manager(tmp_path, node_id=2)


def test_the_cluster_id_is_that_of_the_directory(tmp_path: Path) -> None:
    open_manager(tmp_path, cluster_id="first").close(NOW_MS)
    assert open_manager(tmp_path, cluster_id="second").cluster_id == "first"


def test_a_deleted_log_is_gone_at_once_and_its_files_later(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path, file_delete_delay_ms=1000)
    log.append(batch([b"a"]), now_ms=NOW_MS)
    given = log.read(0, max_bytes=100, min_one_batch=True).slice
    delete_log(manager, "t", 0, NOW_MS)
    assert manager.logs == {}
    going = [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
    assert len(going) == 1 and not (tmp_path / "t-0").exists()
    again = manager.create("t", 0, uuid.uuid4(), LogConfig(), NOW_MS)
    manager.on_tick(NOW_MS + 999)
    assert going[0].exists()
    assert manager.next_deadline_ms() <= NOW_MS + 1000
    manager.on_tick(NOW_MS + 1000)
    assert not going[0].exists()
    assert (
        given is not None and len(given.file.pread(given.size, given.position)) == given.size
    )  # a read that has begun can still be completed
    assert again.log_end_offset == 0


def test_a_deletion_is_durable_and_out_of_the_checkpoints(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watched(OsDisk):
        def fsync_dir(self, path: str) -> None:
            synced.append(path)
            super().fsync_dir(path)

    manager = open_manager(tmp_path, disk=Watched())
    manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS).append(batch(), now_ms=NOW_MS)
    manager.logs["t", 0].flush()
    manager.write_checkpoints()
    assert ("t", 0) in decode_offsets((tmp_path / RECOVERY_POINT_NAME).read_bytes())
    synced.clear()
    delete_log(manager, "t", 0, NOW_MS)
    assert str(tmp_path) in synced, "else a power loss brings the log back"
    assert ("t", 0) not in decode_offsets((tmp_path / RECOVERY_POINT_NAME).read_bytes())


def test_of_one_topic_several_lives_may_be_on_their_way_out(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    for _ in range(3):
        manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS).append(batch(), now_ms=NOW_MS)
        delete_log(manager, "t", 0, NOW_MS)
    assert len([path for path in tmp_path.iterdir() if path.name.endswith("-delete")]) == 3


def test_a_directory_that_was_going_goes_after_a_kill(tmp_path: Path) -> None:
    manager, _ = new_log(tmp_path)
    delete_log(manager, "t", 0, NOW_MS)
    kill(manager)
    again = open_manager(tmp_path)
    again.on_tick(NOW_MS)
    assert again.logs == {}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.create("x" * 249, 0, TOPIC_ID, LogConfig(), NOW_MS)
    delete_log(manager, "x" * 249, 0, NOW_MS)
    assert manager.logs == {}


def test_a_told_log_start_survives_a_power_loss_that_brings_an_older_manifest_back(
    tmp_path: Path,
) -> None:
    manager, log = new_log(tmp_path)
    for number in range(5):
        log.append(batch([b"%d" % number]), now_ms=NOW_MS)
    log.checkpoint()
    manifest = tmp_path / "t-0" / MANIFEST_NAME
    older = manifest.read_bytes()
    log.delete_records_before(3)
    manager.on_tick(NOW_MS)
    manifest.write_bytes(older)
    kill(manager)
    manager = open_manager(tmp_path)
    log = manager.logs["t", 0]
    assert log.log_start_offset == 3 and list(values_of(log)) == [3, 4]
    manager.note_boot()
    kill(manager, machine=False)
    log = open_manager(tmp_path).logs["t", 0]
    assert log.log_start_offset == 3, (
        "a start after a kill trusts the manifest, so it must have been rewritten"
    )


@pytest.mark.parametrize("by_retention", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_a_told_log_start_survives_a_power_loss_after_its_segments_went(
    seed: int, by_retention: bool
) -> None:
    """Deleted segments may reappear until the directory is flushed. The checkpoint must therefore
    store the log start.
    """
    disk = SimDisk(random.Random(seed), lambda: NOW_MS)
    disk.mkdir("/data")
    disk.fsync_dir("/")
    manager = open_manager("/data", LogConfig(segment_bytes=150), disk=disk)
    log = manager.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=150), NOW_MS)
    while len(log.segments) < 3:
        log.append(batch(), now_ms=NOW_MS)
    log.flush()
    start = log.segments[1].base_offset
    if by_retention:
        log.config = LogConfig(segment_bytes=150, retention_bytes=150)
        manager.on_tick(NOW_MS + 10**6)
    else:
        log.delete_records_before(start)
        manager.on_tick(NOW_MS)
        assert log.delete_old_segments(NOW_MS) == 1
        manager.on_tick(NOW_MS + 10**6)
    assert log.log_start_offset == log.segments[0].base_offset == start
    disk.lose_power()
    assert (
        open_manager("/data", LogConfig(segment_bytes=150), disk=disk).logs["t", 0].log_start_offset
        == start
    )


@pytest.mark.parametrize("seed", range(6))
def test_an_acknowledged_log_start_survives_a_power_loss_while_another_one_is_raised(
    seed: int,
) -> None:
    """The power loss comes after each step in turn. The manifest is not flushed, so the checkpoint
    must have all starts at any time.
    """
    for steps in range(100):
        disk = SimDisk(random.Random(seed), lambda: NOW_MS)
        disk.mkdir("/data")
        disk.fsync_dir("/")
        manager = open_manager("/data", disk=disk)
        logs = [manager.create("t", number, TOPIC_ID, LogConfig(), NOW_MS) for number in (0, 1)]
        for log in logs:
            for _ in range(3):
                log.append(batch(), now_ms=NOW_MS)
            log.flush()
        manager.raise_starts({logs[0]: 2})
        disk.crash_in(steps)
        is_raised = False
        with contextlib.suppress(Crash):
            manager.raise_starts({logs[1]: 1})
            is_raised = True
        disk.lose_power()
        again = open_manager("/data", disk=disk).logs
        assert again["t", 0].log_start_offset == 2
        assert again["t", 1].log_start_offset in ((1,) if is_raised else (0, 1))
        if is_raised:
            break
    assert is_raised and steps > 3


@pytest.mark.parametrize("seed", range(6))
def test_a_log_start_survives_a_power_loss_although_the_full_disk_did_not_store_it(
    seed: int,
) -> None:
    """Retention deletes segments also on a full disk, since this frees space. What is left then
    begins at the log start that readers saw.
    """
    disk = NoStarts(random.Random(seed), lambda: NOW_MS)
    disk.mkdir("/data")
    disk.fsync_dir("/")
    config = LogConfig(segment_bytes=150, retention_bytes=150)
    manager = open_manager("/data", config, disk=disk)
    log = manager.create("t", 0, TOPIC_ID, config, NOW_MS)
    while len(log.segments) < 4:
        log.append(batch(), now_ms=NOW_MS)
    log.flush()
    disk.is_without_space = True
    manager.on_tick(NOW_MS + 10**6)
    start = log.log_start_offset
    assert start == log.segments[0].base_offset > 0
    disk.lose_power()
    disk.is_without_space = False
    assert open_manager("/data", config, disk=disk).logs["t", 0].log_start_offset == start


class NoStarts(SimDisk):
    """A simulated disk that has no space for any replaced file while `is_without_space`."""

    is_without_space = False

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        if self.is_without_space:
            raise OSError(errno.ENOSPC, "no space left", path)
        super().write_atomic(path, data, sync=sync)


def test_a_told_log_start_survives_a_kill(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    for _ in range(3):
        log.append(batch([b"a", b"b"]), now_ms=NOW_MS)
    log.delete_records_before(3)
    assert manager.next_deadline_ms() <= NOW_MS
    manager.on_tick(NOW_MS)
    assert decode_offsets((tmp_path / "log-start-offset-checkpoint").read_bytes()) == {("t", 0): 3}
    _, log = reopened(manager, LogConfig(), clean=False)
    assert log.log_start_offset == 3


def test_the_oldest_go_by_size(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path, segment_bytes=400, retention_bytes=1000, retention_ms=-1)
    for number in range(20):
        log.append(batch([b"%02d" % number * 10]), now_ms=NOW_MS)
    manager.on_tick(NOW_MS + 10**6)
    assert 1000 <= log.segments.size_bytes < 1400
    assert list(values_of(log)) == list(range(log.log_start_offset, 20))
    assert log.log_start_offset == log.segments[0].base_offset > 0


def test_the_oldest_go_by_the_time_of_their_records(tmp_path: Path) -> None:
    """The active segment is deleted as well. A new segment replaces it, and the offsets
    continue.
    """
    _, log = new_log(tmp_path, retention_ms=60_000)
    for _ in range(3):
        log.append(batch(), now_ms=NOW_MS)
    assert log.delete_old_segments(NOW_MS) == 1
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (3, 3, 1)
    assert log.append(batch([b"old"]), now_ms=NOW_MS).first_offset == 3
    log.append(batch([b"new"], timestamp=NOW_MS), now_ms=NOW_MS)
    assert log.delete_old_segments(NOW_MS + 60_000) == 0
    assert values_of(log) == {3: b"old", 4: b"new"}


@pytest.mark.parametrize("kept", [{"retention_ms": 60_000}, {"retention_bytes": 0}])
def test_of_a_long_log_a_few_segments_go_at_a_time(tmp_path: Path, kept: dict[str, int]) -> None:
    """The deletion of thousands of segments at once would block the event loop. Other work is done
    between two calls.
    """
    manager, log = new_log(tmp_path, segment_bytes=100, **kept)
    for _ in range(100):
        log.append(batch(), now_ms=NOW_MS)
    now_ms = NOW_MS + 10**6
    counts = []
    while len(log.segments) > 1:
        manager.on_tick(now_ms)
        counts.append(len(log.segments))
        assert manager.next_deadline_ms() == 0 or len(log.segments) == 1
        assert log.log_start_offset == log.segments[0].base_offset
    assert counts == [66, 32, 1]
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)


def test_emptied_segments_do_not_end_a_part_of_retention(tmp_path: Path) -> None:
    """Any number of emptied segments is deleted together with the next segment that has records."""
    _, log = new_log(tmp_path, segment_bytes=100, retention_ms=60_000)
    for _ in range(10):
        log.append(batch(), now_ms=NOW_MS)
    for segment in log.segments[1:6]:
        segment.batches.size = 0  # compaction leaves the segments empty
    assert log.delete_old_segments(NOW_MS, 2) == 7
    assert log.delete_old_segments(NOW_MS, 2) == 2


def test_without_times_a_segment_is_as_old_as_its_file(tmp_path: Path) -> None:
    _, log = new_log(tmp_path, retention_ms=60_000)
    log.append(batch(timestamp=-1), now_ms=NOW_MS)
    written = OsDisk().modified_ms(log.segments.active.batches.path(".log"))
    assert log.delete_old_segments(written + 60_000) == 0
    assert log.delete_old_segments(written + 60_001) == 1


def test_compacted_logs_lose_only_what_is_below_their_start(tmp_path: Path) -> None:
    _, log = new_log(
        tmp_path, cleanup_policy=frozenset({"compact"}), segment_bytes=100, retention_ms=1
    )
    for _ in range(3):
        log.append(batch(keys=[b"k"]), now_ms=NOW_MS)
    assert log.delete_old_segments(NOW_MS) == 0
    log.delete_records_before(1)
    assert log.delete_old_segments(NOW_MS) == 1


def test_the_last_stable_offset_moves_with_the_start_past_an_open_transaction(
    tmp_path: Path,
) -> None:
    _, log = new_log(tmp_path, retention_ms=60_000, segment_bytes=100)
    log.append(batch([b"a"], pid=1, epoch=0, seq=0, transactional=True), now_ms=NOW_MS)
    assert log.delete_old_segments(NOW_MS) == 1
    assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == (1, 1, 1)
    log.append(batch([b"plain"], timestamp=NOW_MS), now_ms=NOW_MS)
    assert log.last_stable_offset == 1
    append_marker(
        log, producer_id=1, producer_epoch=0, coordinator_epoch=0, commit=True, now_ms=NOW_MS
    )
    assert log.last_stable_offset == 3


def test_segments_roll_by_the_time_of_the_records(tmp_path: Path) -> None:
    _, log = new_log(tmp_path, segment_ms=1000)
    for time in (5000, 6000, 6001):
        log.append(batch(timestamp=time), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.append(batch(timestamp=7001), now_ms=NOW_MS)
    assert log.segments.active.base_offset == 2
    log.append(batch(timestamp=7002), now_ms=NOW_MS)
    assert log.segments.active.base_offset == 4


def test_files_of_deleted_segments_go_after_their_delay(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path, segment_bytes=100, file_delete_delay_ms=500, retention_ms=-1)
    for number in range(4):
        log.append(batch([b"%d" % number]), now_ms=NOW_MS)
    given = log.read(0, max_bytes=100, min_one_batch=True).slice
    log.delete_records_before(2)
    log.delete_old_segments(NOW_MS)
    deleted = [path for path in (tmp_path / "t-0").iterdir() if path.name.endswith(".deleted")]
    assert any(path.name.startswith("00000000000000000000.log") for path in deleted)
    manager.on_tick(NOW_MS + 499)
    assert all(path.exists() for path in deleted)
    manager.on_tick(NOW_MS + 500)
    assert not any(path.exists() for path in deleted)
    assert given is not None and len(given.file.pread(given.size, given.position)) == given.size


def test_many_indexes_do_not_stay_in_memory(tmp_path: Path) -> None:
    manager = LogManager(
        OsDisk(), str(tmp_path), config=LogManagerConfig(index_cache_bytes=3000), now_ms=NOW_MS
    )
    settings = LogConfig(segment_bytes=100, index_interval_bytes=0, retention_ms=-1)
    manager.load(lambda topic: settings, NOW_MS)
    log = manager.create("t", 0, TOPIC_ID, settings, NOW_MS)
    for number in range(20):
        log.append(batch([b"%d" % number]), now_ms=NOW_MS)
    assert len(values_of(log)) == 20
    held = [segment for segment in log.segments if segment.indexes.loaded_offsets is not None]
    assert len(held) < 5
    assert manager.cache.bytes <= 3000


def test_one_bad_log_does_not_keep_the_others_from_being_served(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    other = manager.create("u", 0, TOPIC_ID, LogConfig(), NOW_MS)
    for each in (log, other):
        each.append(batch([b"a"]), now_ms=NOW_MS)
        each.append(batch([b"b"]), now_ms=NOW_MS)
    kill(manager)
    path = Path(log.segments.active.batches.path(".log"))
    path.write_bytes(path.read_bytes()[:30] + b"x" + path.read_bytes()[31:])
    again = open_manager(tmp_path)
    assert list(again.offline) == [("t", 0)]
    assert values_of(again.logs["u", 0]) == {0: b"a", 1: b"b"}
    delete_log(again, "t", 0, NOW_MS)
    assert again.offline == {}


def test_a_log_that_is_made_again_has_nothing_of_one_that_was_deleted_off_line(
    tmp_path: Path,
) -> None:
    """Otherwise the checkpoints would keep the start and the recovery point of the old log. A
    restart would hide the new log's records below the old start, and would take the directory for a
    copy.
    """
    manager, log = new_log(tmp_path)
    for value in (b"a", b"b", b"c"):
        log.append(batch([value]), now_ms=NOW_MS)
    log.flush()
    log.delete_records_before(2)
    manager.write_checkpoints(force=True)
    kill(manager)
    path = Path(log.segments.active.batches.path(".log"))
    path.write_bytes(path.read_bytes()[:30] + b"x" + path.read_bytes()[31:])
    (path.parent / MANIFEST_NAME).unlink(missing_ok=True)
    again = open_manager(tmp_path)
    assert list(again.offline) == [("t", 0)]
    delete_log(again, "t", 0, NOW_MS)
    remade = again.create("t", 0, uuid.UUID(int=7), LogConfig(), NOW_MS)
    for value in (b"new a", b"new b", b"new c"):
        remade.append(batch([value]), now_ms=NOW_MS)
    again.write_starts()
    kill(again)
    last = open_manager(tmp_path)
    assert values_of(last.logs["t", 0]) == {0: b"new a", 1: b"new b", 2: b"new c"}


def test_a_log_that_goes_off_line_after_a_deletion_of_records_keeps_its_start(
    tmp_path: Path,
) -> None:
    """The next tick must store the log's start, although the manager no longer has the log."""
    manager, log = new_log(tmp_path)
    for value in (b"a", b"b", b"c"):
        log.append(batch([value]), now_ms=NOW_MS)
    log.delete_records_before(2)
    assert manager.log_dir.changed_starts == {("t", 0)}
    manager.take_off_line(log, CorruptLog("x", 0, "it is damaged", "Restore it."))
    manager.on_tick(NOW_MS + 60_000)
    manager.write_starts()
    stored = decode_offsets((tmp_path / LOG_START_NAME).read_bytes())
    assert stored == {("t", 0): 2}
    assert manager.logs == {}


@pytest.mark.parametrize("flushed", [0, 2, 3])
def test_a_log_that_goes_off_line_keeps_its_recovery_point(tmp_path: Path, flushed: int) -> None:
    """The recovery point is written to the disk. Otherwise a later start could truncate durable
    data.
    """
    manager, log = new_log(tmp_path)
    for number in range(3):
        if number == flushed:
            log.flush()
        log.append(batch([b"a"]), now_ms=NOW_MS)
    manager.take_off_line(log, CorruptLog("x", 0, "it is damaged", "Restore it."))
    run_at_once(manager.checkpoint_steps())
    for _ in range(2):
        manager.write_checkpoints(force=True)
        points = decode_offsets((tmp_path / RECOVERY_POINT_NAME).read_bytes())
        assert points == {("t", 0): 3}


@pytest.mark.parametrize("seed", range(8))
def test_what_a_log_has_that_goes_off_line_is_on_the_disk_after_a_clean_stop(seed: int) -> None:
    """A clean stop declares the whole directory durable. It does not close a log that is offline,
    so the log must already be durable.
    """
    disk = SimDisk(random.Random(seed), lambda: NOW_MS)
    disk.mkdir("/data")
    disk.fsync_dir("/")
    manager = open_manager("/data", disk=disk)
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    for value in (b"a", b"b", b"c"):
        log.append(batch([value]), now_ms=NOW_MS)
    manager.take_off_line(log, CorruptLog("x", 0, "it is damaged", "Restore it."))
    manager.close(NOW_MS)
    disk.lose_power()
    again = open_manager("/data", disk=disk).logs["t", 0]
    assert values_of(again) == {0: b"a", 1: b"b", 2: b"c"}


class FullDisk(OsDisk):
    """A disk that has no space for the recovery point file while `is_full`."""

    is_full = False

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        if self.is_full and RECOVERY_POINT_NAME in path:
            raise OSError(errno.ENOSPC, "no space left", path)
        super().write_atomic(path, data, sync=sync)


class FilledDisk(OsDisk):
    """A disk without space as long as a directory whose name ends in "-delete" exists."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__()
        self._data_dir = data_dir

    def free_bytes(self, path: str) -> int:
        return 0 if any(self._data_dir.glob("*-delete")) else 1 << 30

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        if not self.free_bytes(path):
            raise OSError(errno.ENOSPC, "no space left", path)
        super().write_atomic(path, data, sync=sync)


def deleted_directories(manager: LogManager, tmp_path: Path, count: int) -> list[Path]:
    """Delete `count` logs. Gives the directories that would be left if a kill followed at once."""
    for partition in range(count):
        log = manager.create("gone", partition, TOPIC_ID, LogConfig(), NOW_MS)
        log.append(batch([b"v"]), now_ms=NOW_MS)
        delete_log(manager, "gone", partition, NOW_MS)
    return list(tmp_path.glob("*-delete"))


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_start_without_space_first_removes_what_is_being_deleted(
    tmp_path: Path, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    manager, log = new_log(tmp_path)
    log.append(batch([b"a"]), now_ms=NOW_MS)
    assert len(deleted_directories(manager, tmp_path, 20)) == 20
    if is_clean:
        manager.close(NOW_MS)
    else:
        kill(manager)
    again = open_manager(tmp_path, disk=FilledDisk(tmp_path))
    assert values_of(again.logs["t", 0]) == {0: b"a"} and not list(tmp_path.glob("*-delete"))
    assert [record.getMessage() for record in caplog.records if "free bytes" in record.message] == [
        f"{tmp_path} has 0 free bytes: removing 20 directories of deleted partitions now"
    ]


def test_a_start_with_space_removes_them_later(tmp_path: Path) -> None:
    manager, _ = new_log(tmp_path)
    deleted_directories(manager, tmp_path, 20)
    kill(manager)
    again = open_manager(tmp_path)
    assert len(list(tmp_path.glob("*-delete"))) == 20
    for _ in range(3):
        again.on_tick(NOW_MS)
    assert not list(tmp_path.glob("*-delete"))


@pytest.mark.parametrize("is_made_again", [False, True])
def test_the_checkpoints_have_nothing_of_a_log_that_was_deleted_off_line(
    tmp_path: Path, is_made_again: bool
) -> None:
    """This matters if the next log of the same name has no files yet. A start would take its
    directory for a copy.
    """
    manager, log = new_log(tmp_path)
    for value in (b"a", b"b"):
        log.append(batch([value]), now_ms=NOW_MS)
    log.flush()
    log.delete_records_before(1)
    manager.write_checkpoints(force=True)
    kill(manager)
    path = Path(log.segments.active.batches.path(".log"))
    path.write_bytes(path.read_bytes()[:30] + b"x" + path.read_bytes()[31:])
    (path.parent / MANIFEST_NAME).unlink(missing_ok=True)
    again = open_manager(tmp_path)
    assert list(again.offline) == [("t", 0)]
    delete_log(again, "t", 0, NOW_MS)
    if is_made_again:
        again.create("t", 0, uuid.UUID(int=7), LogConfig(), NOW_MS)
    again.write_checkpoints(force=True)
    for name in (RECOVERY_POINT_NAME, LOG_START_NAME, REPLICATION_NAME):
        assert decode_offsets((tmp_path / name).read_bytes()) == {}, name


def test_the_trash_has_nothing_of_a_log_that_is_gone(tmp_path: Path) -> None:
    """The directory of a deleted log is removed as a whole. A new log of the same name may have
    files with the same names.
    """
    manager, log = new_log(tmp_path, segment_bytes=100)
    for number in range(6):
        log.append(batch([b"%d" % number]), now_ms=NOW_MS)
    log.delete_records_before(5)
    assert log.delete_old_segments(NOW_MS)
    assert len(manager.log_dir.trash)
    delete_log(manager, "t", 0, NOW_MS)
    assert len(manager.log_dir.trash) == 0
    manager.on_tick(NOW_MS)  # stores the starts of the remaining logs


def test_a_recovery_point_that_found_no_space_is_written_the_next_time(tmp_path: Path) -> None:
    """Otherwise a cleaned log would have gaps above the stored recovery point. The next start after
    a power loss would take the gaps for lost records, end the log there, and set the rest aside.
    """
    disk = FullDisk()
    manager = open_manager(tmp_path, disk=disk)
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    log.append(batch([b"a"]), now_ms=NOW_MS)
    log.flush()
    disk.is_full = True
    with pytest.raises(OSError, match="no space"):
        run_at_once(manager.checkpoint_steps())
    assert manager.lacks_recovery_point(log, 1)
    disk.is_full = False
    run_at_once(manager.checkpoint_steps())
    assert not manager.lacks_recovery_point(log, 1)
    written = decode_offsets((tmp_path / RECOVERY_POINT_NAME).read_bytes())
    assert written == {("t", 0): 1}


def deleted(manager: LogManager, log: Log) -> None:
    delete_log(manager, log.topic, log.partition, NOW_MS)


def created_again(manager: LogManager, log: Log) -> None:
    """Delete the log, and make one of the same name that has files and no records."""
    deleted(manager, log)
    manager.create(log.topic, log.partition, uuid.uuid4(), LogConfig(), NOW_MS).files.make()


def off_line(manager: LogManager, log: Log) -> None:
    manager.take_off_line(log, CorruptLog("x", 0, "it is damaged", "Restore it."))


def flushed(_: LogManager, log: Log) -> None:
    log.append(batch([b"b"]), now_ms=NOW_MS)
    log.flush()


@pytest.mark.parametrize("change", [None, deleted, created_again, off_line, flushed])
@pytest.mark.parametrize("pauses", [1, 2, 3])
def test_a_checkpoint_in_steps_has_what_one_at_once_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[LogManager, Log], None] | None,
    pauses: int,
) -> None:
    """A log may change between two steps. The checkpoint then has the log as it was before or
    after the change, and no row of another log. A log without a row has offset 0.
    """
    monkeypatch.setattr(offset_checkpoints, "ENCODED_AT_ONCE", 1)
    manager = open_manager(tmp_path)
    logs = [manager.create("t", number, TOPIC_ID, LogConfig(), NOW_MS) for number in range(4)]
    for log in logs[:3]:  # the last one has no files
        log.append(batch([b"a"]), now_ms=NOW_MS)
        log.flush()
    manager.write_checkpoints()
    before = offsets_on_disk(tmp_path)
    assert all(("t", 3) not in offsets for offsets in before.values())
    steps = manager.checkpoint_steps(with_starts=True)
    for _ in range(pauses):
        assert list(next(steps)) == []
    if change is not None:
        change(manager, logs[1])
    run_at_once(steps)
    in_steps = offsets_on_disk(tmp_path)
    manager.write_checkpoints(force=True)
    after = offsets_on_disk(tmp_path)
    for name, offsets in in_steps.items():
        # After two pauses, the steps have the changed log's row already.
        states = [after[name], before[name]][: 2 if pauses > 2 else 1]
        assert offsets.keys() <= set().union(*states), name
        for key in {*offsets, *after[name]}:
            assert offsets.get(key, 0) in [state.get(key, 0) for state in states], (name, key)


def offsets_on_disk(path: Path) -> dict[str, dict[tuple[str, int], int]]:
    return {
        name: dict(decode_offsets((path / name).read_bytes()))
        for name in (RECOVERY_POINT_NAME, REPLICATION_NAME)
    }


# --- checkpoints of logs that changed -----------------------------------------------------------


def ticked(manager: LogManager, now_ms: int) -> int:
    """Call on_tick as long as work is due. Gives the number of calls."""
    count = 0
    while manager.next_deadline_ms() <= now_ms:
        manager.on_tick(now_ms)
        count += 1
    return count


def many_logs(path: Path, count: int, **settings: object) -> tuple[LogManager, list[Log]]:
    manager = open_manager(path, initial_task_delay_ms=10**9, **settings)
    return manager, [
        manager.create("t", index, TOPIC_ID, LogConfig(), NOW_MS) for index in range(count)
    ]


def test_a_log_that_changed_has_a_snapshot_within_the_interval(tmp_path: Path) -> None:
    manager, logs = many_logs(tmp_path, 3, producer_snapshot_interval_ms=30_000)
    logs[0].append(batch(pid=1, epoch=0, seq=0, transactional=True), now_ms=NOW_MS)
    logs[1].append(batch(), now_ms=NOW_MS + 10_000)
    logs[0].append(batch(pid=1, epoch=0, seq=1, transactional=True), now_ms=NOW_MS + 20_000)
    ticked(manager, NOW_MS + 29_999)
    assert [log.snapshots.offsets for log in logs] == [[], [], []]
    ticked(manager, NOW_MS + 30_000)
    assert [log.snapshots.offsets for log in logs] == [[2], [], []]
    ticked(manager, NOW_MS + 40_000)
    assert [log.snapshots.offsets for log in logs] == [[2], [1], []]
    assert manager.next_deadline_ms() > NOW_MS + 100_000  # an idle broker has no work
    kill(manager, machine=False)
    again = open_manager(tmp_path)
    assert again.logs["t", 0].producer_state.open_transactions() == [1]


def test_a_marker_alone_changes_a_log(tmp_path: Path) -> None:
    manager, (log,) = many_logs(tmp_path, 1)
    append_marker(
        log, producer_id=7, producer_epoch=3, coordinator_epoch=2, commit=False, now_ms=NOW_MS
    )
    ticked(manager, NOW_MS + 30_000)
    assert log.snapshots.offsets == [1]
    assert state_at(log, 1).producers[7].producer_epoch == 3


def test_a_tick_takes_a_few_logs_and_fewer_with_many_producers(tmp_path: Path) -> None:
    manager, logs = many_logs(tmp_path, 20)
    for log in logs:
        log.append(batch(), now_ms=NOW_MS)
    assert ticked(manager, NOW_MS + 30_000) >= 3
    assert all(log.snapshots.offsets == [1] for log in logs)
    for log in logs[:2]:
        for producer_id in range(5000):
            log.producer_state.on_batch(producer_id, 0, 0, 0, 1, 1, SECOND_MS, False, NOW_MS)
    for log in logs[:2]:
        log.append(batch(), now_ms=NOW_MS + 30_000)
    manager.on_tick(NOW_MS + 60_000)
    assert [log.snapshots.offsets for log in logs[:2]] == [[1, 2], [1]]
    assert manager.next_deadline_ms() <= NOW_MS + 60_000
    manager.on_tick(NOW_MS + 60_000)
    assert [log.snapshots.offsets for log in logs[:2]] == [[1, 2], [1, 2]]


def test_logs_together_do_not_hold_more_than_the_bound_that_no_checkpoint_knows(
    tmp_path: Path,
) -> None:
    """The logs with the most unread bytes get a checkpoint first, long before their snapshots are
    due.
    """
    bound = 20 * UNREAD_BATCH_BYTES
    manager, logs = many_logs(tmp_path, 4, most_unread_bytes=bound)
    for log, count in zip(logs, (2, 14, 1, 9), strict=True):
        for _ in range(count):
            log.append(batch(), now_ms=NOW_MS)
    assert manager.next_deadline_ms() <= NOW_MS + 1000
    ticked(manager, NOW_MS + 1000)
    assert [bool(log.snapshots.offsets) for log in logs] == [False, True, False, False]
    assert sum(log.unread_bytes for log in logs) <= bound
    kill(manager, machine=False)
    again = open_manager(tmp_path, most_unread_bytes=bound)
    assert [again.logs["t", index].unread_bytes > 0 for index in range(4)] == [
        True,
        False,
        True,
        True,
    ]
    assert sum(log.unread_bytes for log in again.logs.values()) == sum(
        log.unread_bytes for log in logs
    )


def test_what_was_read_at_a_start_is_known_after_the_next_interval(tmp_path: Path) -> None:
    manager, (log,) = many_logs(tmp_path, 1)
    log.append(batch(), now_ms=NOW_MS)
    kill(manager, machine=False)
    again = open_manager(tmp_path)
    again.on_tick(NOW_MS + 30_000)
    assert again.logs["t", 0].snapshots.offsets == [1]
    kill(again, machine=False)
    assert open_manager(tmp_path).logs["t", 0].unread_bytes == 0


def test_what_a_start_had_to_read_is_not_read_by_each_start_that_follows(tmp_path: Path) -> None:
    """If the broker were killed again and again within the interval, each start would read more
    than the previous one.
    """
    manager, logs = many_logs(tmp_path, 2)
    for _ in range(MUCH_READ_BYTES // UNREAD_BATCH_BYTES):
        logs[1].append(batch(), now_ms=NOW_MS)
    logs[0].append(batch(), now_ms=NOW_MS)
    kill(manager, machine=False)
    again = open_manager(tmp_path)
    assert again.logs["t", 1].unread_bytes >= MUCH_READ_BYTES
    again.on_tick(NOW_MS)
    kill(again, machine=False)
    again = open_manager(tmp_path)
    assert again.logs["t", 1].unread_bytes == 0
    assert again.logs["t", 0].unread_bytes > 0, "little is read again sooner than written down"


def test_a_roll_is_a_checkpoint(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path, segment_bytes=200)
    for number in range(7):
        log.append(batch([b"%d" % number], pid=1, epoch=0, seq=number), now_ms=NOW_MS)
    held = log.segments.active.batches.size
    assert len(log.segments) > 2 and 0 < log.unread_bytes < 3 * UNREAD_BATCH_BYTES
    kill(manager, machine=False)
    again = open_manager(tmp_path, LogConfig(segment_bytes=200)).logs["t", 0]
    assert again.unread_bytes == log.unread_bytes
    assert again.segments.active.batches.size == held


def test_producers_that_expired_go_from_the_snapshot_too(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path, producer_id_expiration_ms=1000)
    log.append(batch(pid=1, epoch=0, seq=0), now_ms=NOW_MS)
    ticked(manager, NOW_MS + 30_000)
    assert 1 in state_at(log, 1).producers
    ticked(manager, NOW_MS + 630_000)
    ticked(manager, NOW_MS + 660_000)
    assert log.snapshots.offsets == [1] and state_at(log, 1).producers == {}


def test_a_log_that_is_deleted_is_not_checkpointed(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    log.append(batch(), now_ms=NOW_MS)
    delete_log(manager, "t", 0, NOW_MS)
    log.append(batch(), now_ms=NOW_MS)  # a caller may still have a reference to the log
    ticked(manager, NOW_MS + 10**6)
    assert manager.logs == {}


def test_files_go_in_the_order_of_their_time(tmp_path: Path) -> None:
    trash = Trash()
    for due_ms, path in ((30, "/d/c"), (10, "/d/a"), (20, "/e/b"), (10, "/d/b")):
        trash.add(due_ms, path)
    assert trash.next_due_ms == 10
    assert trash.take_due(9, 10) == []
    assert trash.take_due(10, 10) == ["/d/a", "/d/b"]
    trash.remove_in({"/e"})
    assert (trash.next_due_ms, len(trash)) == (30, 1)
    assert trash.take_due(30, 10) == ["/d/c"]
    assert trash.next_due_ms is None


def test_a_start_says_how_far_it_is(tmp_path: Path) -> None:
    manager, logs = many_logs(tmp_path, 3)
    logs[2].files.make()
    for log in logs[:2]:
        log.append(batch([b"x" * 700_000]), now_ms=NOW_MS)
        log.append(batch([b"x" * 700_000]), now_ms=NOW_MS)
    kill(manager, machine=False)
    said: list[tuple[int, int, int]] = []
    again = LogManager(OsDisk(), str(tmp_path), config=LogManagerConfig(), now_ms=NOW_MS)
    again.load(lambda topic: LogConfig(), NOW_MS, progress=lambda *reported: said.append(reported))
    assert [reported[0] for reported in said] == sorted(reported[0] for reported in said)
    assert said[-1][:2] == (3, 3) and said[-1][2] >= 4 * 700_000
    # progress is also reported within a log
    assert len([reported for reported in said if reported[0] == 0]) > 1


def test_retention_looks_at_a_few_logs_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleting a segment takes as much time as checking many logs. A log that has been deleted in
    the meantime is skipped.
    """
    monkeypatch.setattr(log_upkeep, "_LOGS_AT_ONCE", 60)
    manager = open_manager(tmp_path)
    logs = [manager.create("t", index, TOPIC_ID, LogConfig(), NOW_MS) for index in range(10)]
    looked: list[Log] = []

    def look(log: Log, now_ms: int, most: int) -> int:
        looked.append(log)
        return 1 if log in logs[:4] else 0

    monkeypatch.setattr(Log, "delete_old_segments", look)
    now_ms = NOW_MS + manager.config.retention_check_interval_ms
    manager.on_tick(now_ms)
    assert looked == logs[:2]
    assert manager.next_deadline_ms() == 0
    delete_log(manager, "t", 3, now_ms)
    manager.on_tick(now_ms)
    manager.on_tick(now_ms)
    assert looked == [*logs[:3], *logs[4:]]
    assert manager.next_deadline_ms() > now_ms


def test_producers_expire_in_a_few_logs_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_upkeep, "_LOGS_AT_ONCE", 4)
    manager = open_manager(tmp_path)
    logs = [manager.create("t", index, TOPIC_ID, LogConfig(), NOW_MS) for index in range(10)]
    looked: list[Log] = []
    monkeypatch.setattr(Log, "expire_producers", lambda log, now_ms, most: looked.append(log) or 0)
    now_ms = NOW_MS + manager.config.producer_expiration_check_interval_ms
    counts = []
    while manager.next_deadline_ms() <= now_ms:
        manager.on_tick(now_ms)
        counts.append(len(looked))
    assert counts[:3] == [4, 8, 10]
    assert looked == logs


def test_a_leader_epoch_is_on_the_disk_before_a_log_has_it(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    for _ in range(2):
        manager.begin_leader_epoch([log])
        assert log.leader_epoch == manager.leader_epoch
        noted = (tmp_path / "barnabas-leader-epoch").read_text().split()
        assert str(manager.leader_epoch) in noted


def test_a_start_of_a_log_that_was_told_is_written_at_once(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    log.append(batch(), now_ms=NOW_MS)
    log.delete_records_before(1)
    assert manager.next_deadline_ms() == 0
    manager.on_tick(NOW_MS)
    assert manager.next_deadline_ms() > 0


def test_a_directory_named_without_a_path_is_made_where_the_broker_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    synced: list[str] = []
    sync = OsDisk.fsync_dir
    monkeypatch.setattr(
        OsDisk, "fsync_dir", lambda disk, path: (synced.append(path), sync(disk, path))[1]
    )
    manager = open_manager(Path("data"))
    assert synced[0] == "." and (tmp_path / "data").is_dir()
    manager.close(NOW_MS)


def test_a_log_without_files_is_in_no_checkpoint(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    log.append(batch(), now_ms=NOW_MS)
    manager.create("u", 0, TOPIC_ID, LogConfig(), NOW_MS)
    manager.write_checkpoints(force=True)
    for name in (RECOVERY_POINT_NAME, REPLICATION_NAME):
        assert set(decode_offsets((tmp_path / name).read_bytes())) == {("t", 0)}, name


@pytest.mark.parametrize("is_offline", [True, False])
def test_a_stop_keeps_the_journals_that_a_log_off_line_may_need(
    tmp_path: Path, is_offline: bool
) -> None:
    """A clean stop deletes the flush journals. If a log is off line, those of earlier runs are
    kept, since they may have data of this log.
    """
    manager, log = new_log(tmp_path)
    for value in (b"a", b"b"):
        log.append(batch([value]), now_ms=NOW_MS)
    kill(manager)
    if is_offline:
        path = Path(log.segments.active.batches.path(".log"))
        path.write_bytes(path.read_bytes()[:30] + b"x" + path.read_bytes()[31:])
    again = open_manager(tmp_path)
    assert bool(again.offline) is is_offline
    kept: list[bool] = []
    forget = again.journal.forget_older

    def note(*, keep_earlier: bool = False) -> None:
        kept.append(keep_earlier)
        forget(keep_earlier=keep_earlier)

    again.journal.forget_older = note  # type: ignore[method-assign]
    again.close(NOW_MS)
    assert kept == [is_offline]


# --- periodic work and the stop ------------------------------------------------------------------


def test_a_directory_without_files_goes_with_its_log(tmp_path: Path) -> None:
    """The directory may have been created before the creation of its files failed."""
    manager = open_manager(tmp_path)
    for index in range(2):
        manager.create("u", index, TOPIC_ID, LogConfig(), NOW_MS)
    (tmp_path / "u-1").mkdir()
    for index in range(2):
        manager.remove("u", index, NOW_MS)
    manager.end_removals()
    assert manager.logs == {} and not (tmp_path / "u-1").exists()
    going = [path.name for path in tmp_path.iterdir() if path.name.startswith("u-")]
    assert len(going) == 1 and going[0].endswith("-delete")


def test_the_checkpoints_lose_a_log_when_its_directory_is_gone_for_good(tmp_path: Path) -> None:
    """Otherwise a power loss could restore the directory, but its entries in the checkpoints would
    be missing.
    """
    disk = RecordingDisk()
    manager = open_manager(tmp_path, disk=disk)
    manager.create("u", 0, TOPIC_ID, LogConfig(), NOW_MS).append(batch([b"v"]), now_ms=NOW_MS)
    manager.logs["u", 0].flush()
    manager.write_checkpoints()
    manager.remove("u", 0, NOW_MS)
    disk.take_steps()
    manager.end_removals()
    steps = disk.take_steps()
    assert steps.index(("fsync_dir", tmp_path.name)) < min(
        number for number, (_, name) in enumerate(steps) if name.startswith(RECOVERY_POINT_NAME)
    )


def test_the_checkpoint_of_recovery_points_is_written_in_its_time(tmp_path: Path) -> None:
    manager = open_manager(
        tmp_path, recovery_checkpoint_interval_ms=700, initial_task_delay_ms=1000
    )
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    path = tmp_path / RECOVERY_POINT_NAME
    for offset, due_ms in enumerate((NOW_MS + 1000, NOW_MS + 1700)):
        log.append(batch([b"a"]), now_ms=NOW_MS)
        log.flush()
        manager.on_tick(due_ms - 1)
        written = decode_offsets(path.read_bytes())
        assert written.get(("t", 0), 0) == offset and manager.next_deadline_ms() <= due_ms
        manager.on_tick(due_ms)
        assert decode_offsets(path.read_bytes()) == {("t", 0): offset + 1}


@pytest.mark.parametrize(("number", "ends"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_checkpoint_waits_for_space_and_for_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, ends: bool
) -> None:
    manager, _ = new_log(tmp_path)

    def fail() -> SyncSteps:
        yield []
        raise OSError(number, "of the disk")

    monkeypatch.setattr(manager, "checkpoint_steps", fail)
    if ends:
        with pytest.raises(OSError, match="of the disk"):
            manager.on_tick(NOW_MS + 10**7)
    else:
        manager.on_tick(NOW_MS + 10**7)
        assert manager.next_deadline_ms() > NOW_MS + 10**7, (
            "the checkpoint is not tried again at each tick"
        )


def test_a_stop_writes_all_checkpoints_whether_or_not_they_changed(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    log.append(batch([b"a"]), now_ms=NOW_MS)
    log.flush()
    manager.write_checkpoints()
    for name in (RECOVERY_POINT_NAME, REPLICATION_NAME):
        (tmp_path / name).unlink()
    manager.write_checkpoints()
    assert not (tmp_path / REPLICATION_NAME).exists(), "an unchanged checkpoint is not written"
    manager.close(NOW_MS)
    for name in (RECOVERY_POINT_NAME, REPLICATION_NAME):
        assert decode_offsets((tmp_path / name).read_bytes()) == {("t", 0): 1}


def test_a_stop_closes_the_files_of_all_logs(tmp_path: Path) -> None:
    def open_files() -> set[str]:
        found = set()
        for descriptor in Path("/proc/self/fd").iterdir():
            # the descriptor of this listing is already closed
            with contextlib.suppress(FileNotFoundError):
                found.add(str(descriptor.readlink()))
        return {path for path in found if path.startswith(str(tmp_path))}

    manager, log = new_log(tmp_path)
    log.append(batch([b"a"]), now_ms=NOW_MS)
    assert log.segments.active.batches.path(".log") in open_files()
    manager.close(NOW_MS)
    assert open_files() == set()


def test_a_told_start_is_in_the_logs_manifest(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    for value in (b"a", b"b", b"c"):
        log.append(batch([value]), now_ms=NOW_MS)
    log.flush()
    log.delete_records_before(2)
    manager.write_starts()
    manifest = Manifest.decode((tmp_path / "t-0" / MANIFEST_NAME).read_bytes())
    assert manifest.log_start_offset == 2
