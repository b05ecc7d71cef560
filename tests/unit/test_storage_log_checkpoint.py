"""What a checkpoint of a log consists of, beside the files that Apache Kafka wrote."""

from __future__ import annotations

from pathlib import Path

from helpers.storage_kafka_log import TXN_BASES, TXN_END, kafka_log
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, open_manager, reopened

from barnabas.storage.checkpoints import MANIFEST_NAME, Manifest
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig


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
    # of segments that were not looked at, no index is vouched for
    assert manifest.segments[3].max_timestamp == -1
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
    assert len(path.read_bytes()) == len(before) - 46  # a producer's row in Kafka's layout


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
    """What is noted of closed segments is taken from the manifest before, one by one: those that
    retention deleted, and the size that the active one had, are not.
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
