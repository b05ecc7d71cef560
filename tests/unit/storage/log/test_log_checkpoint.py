"""The parts of a log's checkpoint, in a directory with files that Apache Kafka wrote."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from helpers.recording_disk import RecordingDisk
from helpers.storage_kafka_log import TXN_BASES, TXN_END, kafka_log
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, open_manager, reopened

from barnabas.storage.files.checkpoints import LEADER_EPOCH_NAME, MANIFEST_NAME, Manifest
from barnabas.storage.files.segment_files import INDEX_SUFFIXES
from barnabas.storage.files.txn_index import AbortedEntry, AbortedTxn, TxnIndex
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_reader import Isolation
from barnabas.storage.log.time_lookup import offset_for_timestamp
from barnabas.storage.log_config import LogConfig
from barnabas.storage.opening.last_run import LastRun
from barnabas.storage.opening.log_loader import Opening
from barnabas.storage.opening.recovery import load_log


def manifest_of(log: Log) -> Manifest:
    return Manifest.decode(Path(log.directory, MANIFEST_NAME).read_bytes())


def test_the_manifest_notes_the_files_as_kafka_left_them(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    log.checkpoint()
    manifest = manifest_of(log)
    assert manifest.topic_id == log.topic_id and manifest.log_end_offset == TXN_END
    assert {base: note.size for base, note in manifest.segments.items()} == {
        base: Path(log.directory, f"{base:020d}.log").stat().st_size for base in TXN_BASES
    }
    # The manifest has no checksums of the indexes of segments that were not read.
    assert manifest.segments[3].max_timestamp == -1
    assert {name[:20] for name in manifest.files if name[:20].isdigit()} == {f"{31:020d}"}
    assert (manifest.segments[31].max_timestamp, manifest.segments[31].end_offset) == (
        1795222689718,
        TXN_END,
    )


def test_a_checkpoint_brings_the_snapshot_up_to_the_log(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    log.append(batch(pid=9, epoch=0, seq=0), now_ms=NOW_MS)
    assert log.unread_bytes > 0 and log in log.log_dir.changed_logs
    log.checkpoint()
    assert log.snapshots.offsets[-1] == TXN_END + 1
    assert log.unread_bytes == 0 and log not in log.log_dir.changed_logs


def test_a_snapshot_is_written_again_only_where_producers_expired(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    path = Path(log.snapshots.path(TXN_END))
    before = path.read_bytes()
    log.producer_state.producers.pop(5)
    log.checkpoint()
    assert path.read_bytes() == before
    log._checkpoint.producers_expired = True
    log.checkpoint()
    assert len(path.read_bytes()) == len(before) - 46  # a producer takes 46 bytes in Kafka's format


def test_a_clean_stop_of_a_log_that_did_not_change_writes_nothing(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    assert log.begin_close() != []
    log.end_close()
    log.set_opened(0, NOW_MS, as_closed=True)
    assert log.begin_close() == []
    log.append(batch(), now_ms=NOW_MS)
    assert log.begin_close() != []


def test_after_a_start_a_manifest_has_the_segments_that_there_are_and_no_others(
    tmp_path: Path,
) -> None:
    """The rows of closed segments are copied from the previous manifest, except those of segments
    that retention has deleted. The old size of the active segment is not copied.
    """
    size = len(batch())
    config = LogConfig(segment_bytes=2 * size, retention_bytes=4 * size)
    manager = open_manager(tmp_path, config)
    log = manager.create("t", 0, TOPIC_ID, config, NOW_MS)
    for _ in range(7):
        log.append(batch(timestamp=NOW_MS), now_ms=NOW_MS)
    manager, log = reopened(manager, config, clean=True)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6]
    for _ in range(2):
        log.append(batch(timestamp=NOW_MS), now_ms=NOW_MS)
    assert log.delete_old_segments(NOW_MS) == 2
    for _ in range(2):
        log.checkpoint()
        manifest = manifest_of(log)
        assert {base: note.size for base, note in manifest.segments.items()} == {
            4: 2 * size, 6: 2 * size, 8: size,
        }  # fmt: skip
        assert {name[:20] for name in manifest.files if name[:20].isdigit()} == {
            f"{base:020d}" for base in (4, 6, 8)
        }


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_was_not_looked_at_is_not_vouched_for_when_another_was_damaged(
    tmp_path: Path, suffix: str
) -> None:
    """A power loss may damage all three index files of a segment. A read_committed fetch opens and
    rebuilds only the .txnindex. The checkpoint must not note that the other two are intact:
    look-ups by time would skip records whose entries are missing.
    """
    config = LogConfig(segment_bytes=6 * len(batch()), index_interval_bytes=0)
    manager = open_manager(tmp_path, config)
    log = manager.create("t", 0, TOPIC_ID, config, NOW_MS)
    for number in range(3):
        log.append(
            batch(pid=1, epoch=0, seq=number, transactional=True, timestamp=NOW_MS + number),
            now_ms=NOW_MS,
        )
    append_marker(
        log,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        commit=False,
        now_ms=NOW_MS + 3,
    )
    for number in range(4, 16):
        log.append(batch(timestamp=NOW_MS + number), now_ms=NOW_MS)
    manager, log = reopened(manager, config, clean=True)
    torn = Path(log.directory, f"{0:020d}{suffix}")
    for path in (torn, torn.with_suffix(".txnindex")):
        path.write_bytes(path.read_bytes()[:-5])
    content = torn.read_bytes()
    for _ in range(2):
        manager, log = reopened(manager, config, clean=False)
        data = log.read(
            0, max_bytes=1 << 20, isolation=Isolation.READ_COMMITTED, min_one_batch=True
        )
        assert data.aborted == [AbortedTxn(1, 0)]
        log.checkpoint()
        assert not manifest_of(log).knows(torn.name, content)
    for number in range(16):
        found = offset_for_timestamp(log, NOW_MS + number)
        assert found is not None and found.offset == number


@pytest.mark.parametrize("entry", [b"", b"others"])
def test_an_aborted_index_that_was_not_compared_is_not_vouched_for_when_the_others_are_rebuilt(
    tmp_path: Path, entry: bytes
) -> None:
    """A look-up by time rebuilds two of the three index files. The third file must still be rebuilt
    later.
    """
    config = LogConfig(segment_bytes=4 * len(batch()), index_interval_bytes=0)
    manager = open_manager(tmp_path, config)
    log = manager.create("t", 0, TOPIC_ID, config, NOW_MS)
    for commit in (False, True):
        pid = 1 + commit
        sent = batch(pid=pid, epoch=0, seq=0, transactional=True, timestamp=NOW_MS)
        log.append(sent, now_ms=NOW_MS)
        append_marker(
            log, producer_id=pid, producer_epoch=0, coordinator_epoch=0, commit=commit,
            now_ms=NOW_MS,
        )  # fmt: skip
    while len(log.segments) < 3:
        log.append(batch(timestamp=NOW_MS + 1), now_ms=NOW_MS)
    manager, log = reopened(manager, config, clean=True)
    names = [Path(log.directory, f"{0:020d}{suffix}") for suffix in INDEX_SUFFIXES]
    content = TxnIndex([AbortedEntry(2, 2, 3, 4)]).encode() if entry else b""
    for path in names:
        path.write_bytes(content if path == names[2] else path.read_bytes()[:-1])
    for _ in range(2):
        manager, log = reopened(manager, config, clean=False)
        assert offset_for_timestamp(log, NOW_MS) is not None
        log.checkpoint()
        assert not manifest_of(log).knows(names[2].name, content)
        for each in log.segments:
            each.indexes.drop()
    data = log.read(0, max_bytes=1 << 20, isolation=Isolation.READ_COMMITTED, min_one_batch=True)
    assert data.aborted == [AbortedTxn(1, 0)]


def written_by(disk: RecordingDisk) -> list[str]:
    """The suffixes of the files written since the last call, in the order of the writes."""
    return [Path(name).suffix or name for step, name in disk.take_steps() if step == "write"]


def test_the_manifest_comes_last_and_nothing_is_fsynced(tmp_path: Path) -> None:
    """If a kill comes before the manifest is written, the other files of the checkpoint are not
    used.
    """
    disk = RecordingDisk()
    log = open_manager(tmp_path, disk=disk).create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    log.append(batch(), now_ms=NOW_MS)
    disk.take_steps()
    log.checkpoint()
    steps = disk.take_steps()
    assert steps[-1] == ("write", MANIFEST_NAME)
    assert ("write", f"{1:020d}.snapshot") in steps
    assert {step for step, _ in steps} == {"write"}


def test_a_snapshot_that_found_no_room_is_due_with_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RecordingDisk()
    log = open_manager(tmp_path, disk=disk).create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    log.append(batch(), now_ms=NOW_MS)
    log.checkpoint()
    log._checkpoint.producers_expired = True

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(RecordingDisk, "write_atomic", refuse)
        with pytest.raises(OSError, match="no space"):
            log.checkpoint()
    disk.take_steps()
    log.checkpoint()
    assert ".snapshot" in written_by(disk)
    log.checkpoint()
    assert ".snapshot" not in written_by(disk), (
        "the last snapshot already has the current producers"
    )


def test_the_manifest_has_the_checksum_of_the_leader_epochs(tmp_path: Path) -> None:
    """The file of leader epochs has Kafka's format, which contains no checksum."""
    log = kafka_log(tmp_path)
    log.begin_leader_epoch(3)
    log.append(batch(), now_ms=NOW_MS)
    log.checkpoint()
    epochs = Path(log.directory, LEADER_EPOCH_NAME).read_bytes()
    assert epochs == b"0\n2\n0 0\n3 49\n"
    assert manifest_of(log).knows(LEADER_EPOCH_NAME, epochs)


def test_the_part_of_a_closed_segment_is_made_once(tmp_path: Path) -> None:
    """A log may have thousands of closed segments, and each roll writes a manifest."""
    config = LogConfig(segment_bytes=2 * len(batch()))
    log = open_manager(tmp_path).create("t", 0, TOPIC_ID, config, NOW_MS)
    for _ in range(5):
        log.append(batch(), now_ms=NOW_MS)
    log.checkpoint()
    parts = [segment.indexes.manifest for segment in log.segments]
    assert [part is not None and part.parted for part in parts] == [True, True, False]
    log.checkpoint()
    again = [segment.indexes.manifest for segment in log.segments]
    assert all(part is same for part, same in zip(parts, again, strict=True))


def test_what_no_index_was_vouched_for_is_noted_so_after_a_start_too(tmp_path: Path) -> None:
    """The manifest has no checksums of the indexes of segments that were not read. The first
    checkpoint after a start with this manifest must not add any.
    """
    log = kafka_log(tmp_path)
    log.checkpoint()
    log = load_log(
        log.log_dir,
        "txn",
        0,
        LogConfig(),
        Opening(LastRun.KILLED, NOW_MS),
        recovery_point=None,
        log_start_offset=None,
    )
    before = manifest_of(log)
    log.checkpoint()
    assert manifest_of(log).segments[3] == before.segments[3]
    assert not [name for name in manifest_of(log).files if name.startswith(f"{3:020d}")]
