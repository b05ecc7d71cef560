"""The log directory: its files, logs that come and go, retention, what is done from time to time."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, kill, new_log, open_manager, reopened, values_of

from storage.checkpoints import decode_offsets
from storage.disk import OsDisk
from storage.log_config import LogConfig
from storage.log_manager import LogDirectoryError, LogManager, LogManagerConfig


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
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "some.topic_x-7",
    }
    assert (tmp_path / "meta.properties").read_text() == "#\nnode.id=3\ndirectory.id=a-directory\nversion=1\ncluster.id=a-cluster\n"
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
    manager.delete("t", 0, NOW_MS)
    assert manager.logs == {}
    going = [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
    assert len(going) == 1 and not (tmp_path / "t-0").exists()
    again = manager.create("t", 0, uuid.uuid4(), LogConfig(), NOW_MS)
    manager.on_tick(NOW_MS + 999)
    assert going[0].exists()
    assert manager.next_deadline_ms() <= NOW_MS + 1000
    manager.on_tick(NOW_MS + 1000)
    assert not going[0].exists()
    assert given is not None and len(given.file.pread(given.size, given.position)) == given.size  # a reader may finish
    assert again.log_end_offset == 0


def test_a_directory_that_was_going_goes_after_a_kill(tmp_path: Path) -> None:
    manager, _ = new_log(tmp_path)
    manager.delete("t", 0, NOW_MS)
    kill(manager)
    again = open_manager(tmp_path)
    again.on_tick(NOW_MS)
    assert again.logs == {}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    manager.create("x" * 249, 0, TOPIC_ID, LogConfig(), NOW_MS)
    manager.delete("x" * 249, 0, NOW_MS)
    assert manager.logs == {}


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
    assert 1000 <= log.size_bytes < 1400
    assert list(values_of(log)) == list(range(log.log_start_offset, 20))
    assert log.log_start_offset == log.segments[0].base_offset > 0


def test_the_oldest_go_by_the_time_of_their_records(tmp_path: Path) -> None:
    """The active segment goes too: a new one takes its place, and offsets go on."""
    _, log = new_log(tmp_path, retention_ms=60_000)
    for _ in range(3):
        log.append(batch(), now_ms=NOW_MS)
    assert log.delete_old_segments(NOW_MS) == 1
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (3, 3, 1)
    assert log.append(batch([b"old"]), now_ms=NOW_MS).first_offset == 3
    log.append(batch([b"new"], timestamp=NOW_MS), now_ms=NOW_MS)
    assert log.delete_old_segments(NOW_MS + 60_000) == 0
    assert values_of(log) == {3: b"old", 4: b"new"}


def test_without_times_a_segment_is_as_old_as_its_file(tmp_path: Path) -> None:
    _, log = new_log(tmp_path, retention_ms=60_000)
    log.append(batch(timestamp=-1), now_ms=NOW_MS)
    written = OsDisk().modified_ms(log.active.path(".log"))
    assert log.delete_old_segments(written + 60_000) == 0
    assert log.delete_old_segments(written + 60_001) == 1


def test_compacted_logs_lose_only_what_is_below_their_start(tmp_path: Path) -> None:
    _, log = new_log(tmp_path, cleanup_policy=frozenset({"compact"}), segment_bytes=100, retention_ms=1)
    for _ in range(3):
        log.append(batch(keys=[b"k"]), now_ms=NOW_MS)
    assert log.delete_old_segments(NOW_MS) == 0
    log.delete_records_before(1)
    assert log.delete_old_segments(NOW_MS) == 1


def test_the_last_stable_offset_moves_with_the_start_past_an_open_transaction(tmp_path: Path) -> None:
    _, log = new_log(tmp_path, retention_ms=60_000, segment_bytes=100)
    log.append(batch([b"a"], pid=1, epoch=0, seq=0, transactional=True), now_ms=NOW_MS)
    assert log.delete_old_segments(NOW_MS) == 1
    assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == (1, 1, 1)
    log.append(batch([b"plain"], timestamp=NOW_MS), now_ms=NOW_MS)
    assert log.last_stable_offset == 1
    log.append_marker(producer_id=1, producer_epoch=0, coordinator_epoch=0, commit=True, now_ms=NOW_MS)
    assert log.last_stable_offset == 3


def test_segments_roll_by_the_time_of_the_records(tmp_path: Path) -> None:
    _, log = new_log(tmp_path, segment_ms=1000)
    for time in (5000, 6000, 6001):
        log.append(batch(timestamp=time), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert log.maybe_roll(7001) is False
    assert log.maybe_roll(7002) is True


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
    manager = LogManager(OsDisk(), str(tmp_path), config=LogManagerConfig(index_cache_bytes=3000), now_ms=NOW_MS)
    settings = LogConfig(segment_bytes=100, index_interval_bytes=0, retention_ms=-1)
    manager.load(lambda topic: settings, NOW_MS)
    log = manager.create("t", 0, TOPIC_ID, settings, NOW_MS)
    for number in range(20):
        log.append(batch([b"%d" % number]), now_ms=NOW_MS)
    assert len(values_of(log)) == 20
    held = [segment for segment in log.segments if segment._offset_index is not None]
    assert len(held) < 5
    assert manager.cache.bytes <= 3000


def test_one_bad_log_does_not_keep_the_others_from_being_served(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    other = manager.create("u", 0, TOPIC_ID, LogConfig(), NOW_MS)
    for each in (log, other):
        each.append(batch([b"a"]), now_ms=NOW_MS)
        each.append(batch([b"b"]), now_ms=NOW_MS)
    kill(manager)
    path = Path(log.active.path(".log"))
    path.write_bytes(path.read_bytes()[:30] + b"x" + path.read_bytes()[31:])
    again = open_manager(tmp_path)
    assert list(again.offline) == [("t", 0)]
    assert values_of(again.logs["u", 0]) == {0: b"a", 1: b"b"}
    again.delete("t", 0, NOW_MS)
    assert again.offline == {}
