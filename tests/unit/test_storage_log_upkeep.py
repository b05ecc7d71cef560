"""What is done for logs from time to time, a little at a call."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from helpers.storage_kafka_log import kafka_log
from helpers.storage_logs import NOW_MS, batch

from barnabas.storage import log_upkeep
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogManagerConfig
from barnabas.storage.log_upkeep import LogUpkeep

MINUTE_MS = 60_000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return kafka_log(tmp_path)


def upkeep_of(log: Log, **config: int) -> LogUpkeep:
    log.checkpoint()
    settings = LogManagerConfig(**config)  # type: ignore[arg-type]
    return LogUpkeep(log.log_dir, {(log.topic, log.partition): log}, settings, NOW_MS)


def test_the_first_thing_is_due_after_the_initial_delay(log: Log) -> None:
    """log.initial.task.delay.ms; Kafka's default is 30 s."""
    assert upkeep_of(log).next_deadline_ms() == NOW_MS + 30_000


def test_retention_comes_with_its_interval(log: Log) -> None:
    upkeep = upkeep_of(log, retention_check_interval_ms=MINUTE_MS)
    log.delete_records_before(28)
    upkeep.retain(NOW_MS + 29_999)
    assert len(log.segments) == 4
    upkeep.retain(NOW_MS + 30_000)
    assert log.segments.base_offsets == [28, 31]
    assert upkeep.next_deadline_ms() <= NOW_MS + 30_000 + MINUTE_MS


def test_a_log_that_is_gone_is_left_alone(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {("txn", 0): log}
    upkeep = LogUpkeep(log.log_dir, logs, LogManagerConfig(), NOW_MS)
    monkeypatch.setattr(log_upkeep, "_LOGS_AT_ONCE", 0)
    log.delete_records_before(28)
    upkeep.retain(NOW_MS + 30_000)
    assert upkeep.next_deadline_ms() == 0, "what is left over is due at once"
    logs.clear()
    monkeypatch.setattr(log_upkeep, "_LOGS_AT_ONCE", 10)
    upkeep.retain(NOW_MS + 30_000)
    assert len(log.segments) == 4


def test_producers_expire_with_their_interval(log: Log) -> None:
    upkeep = upkeep_of(log, producer_expiration_check_interval_ms=MINUTE_MS)
    day_ms = 24 * 60 * MINUTE_MS
    first_ms = upkeep._next_expiration_ms
    upkeep.expire(first_ms - 1)
    assert upkeep._next_expiration_ms == first_ms
    upkeep.expire(first_ms)
    assert upkeep._next_expiration_ms == first_ms + MINUTE_MS
    upkeep.expire(NOW_MS + day_ms)
    assert sorted(log.producer_state.producers) == [8], "it has a transaction open"


def test_a_log_is_checkpointed_within_the_interval_of_its_change(log: Log) -> None:
    upkeep = upkeep_of(log, producer_snapshot_interval_ms=1000)
    log.append(batch(), now_ms=NOW_MS)
    assert upkeep.next_deadline_ms() == NOW_MS
    upkeep.checkpoint_logs(NOW_MS + 999)
    assert log.unread_bytes > 0
    upkeep.checkpoint_logs(NOW_MS + 1000)
    assert log.unread_bytes == 0


def test_the_log_that_holds_too_much_is_checkpointed_at_once(log: Log) -> None:
    upkeep = upkeep_of(log, most_unread_bytes=1)
    log.append(batch(), now_ms=NOW_MS)
    upkeep.checkpoint_logs(NOW_MS)
    assert log.unread_bytes == 0


def test_checkpoints_that_find_no_room_are_not_tried_again_at_once(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = upkeep_of(log, most_unread_bytes=1)
    log.append(batch(), now_ms=NOW_MS)
    tried = []

    def fail(_log: Log) -> None:
        tried.append(_log)
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(Log, "checkpoint", fail)
    upkeep.checkpoint_logs(NOW_MS)
    again_ms = upkeep.next_deadline_ms()
    assert len(tried) == 1 and again_ms > NOW_MS
    upkeep.checkpoint_logs(again_ms - 1)
    assert len(tried) == 1
    upkeep.checkpoint_logs(again_ms)
    assert len(tried) == 2


def test_files_and_directories_go_when_they_are_due(log: Log, tmp_path: Path) -> None:
    upkeep = upkeep_of(log)
    (tmp_path / "old").mkdir()
    (tmp_path / "f").write_bytes(b"")
    upkeep.deleted_directories.add(NOW_MS + 5, f"{tmp_path}/old")
    log.log_dir.trash.add(NOW_MS + 9, f"{tmp_path}/f")
    assert upkeep.next_deadline_ms() == NOW_MS + 5
    upkeep.empty_trash(NOW_MS + 5)
    assert not (tmp_path / "old").exists() and (tmp_path / "f").exists()
    upkeep.empty_trash(NOW_MS + 9)
    assert not (tmp_path / "f").exists()
