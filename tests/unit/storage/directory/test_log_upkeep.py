"""The periodic work on logs. Each call does a small part of it."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.repeating import repeat_until
from helpers.storage_kafka_log import kafka_log
from helpers.storage_logs import NOW_MS, batch

from barnabas.storage.directory import log_upkeep
from barnabas.storage.directory.log_upkeep import MUCH_READ_BYTES, LogUpkeep
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.log_config import LogManagerConfig

MINUTE_MS = 60_000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return kafka_log(tmp_path)


def upkeep_of(log: Log, **config: int) -> LogUpkeep:
    log.checkpoint()
    settings = LogManagerConfig(**config)  # type: ignore[arg-type]
    return LogUpkeep(log.log_dir, {(log.topic, log.partition): log}, settings, NOW_MS)


def test_the_first_thing_is_due_after_the_initial_delay(log: Log) -> None:
    """The delay is log.initial.task.delay.ms, with Kafka's default of 30 s."""
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


def test_many_producers_expire_some_at_a_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_upkeep, "_EXPIRED_AT_ONCE", 2)
    upkeep = upkeep_of(log)
    for number in range(5):
        log.append(batch(pid=100 + number, epoch=0, seq=0), now_ms=NOW_MS)
    count = len(log.producer_state.producers)
    day_ms = 24 * 60 * MINUTE_MS
    for left in (count - 2, count - 4):
        upkeep.expire(NOW_MS + 2 * day_ms)
        assert len(log.producer_state.producers) == left
        assert upkeep.next_deadline_ms() == 0, "what is left over is due at once"
    repeat_until(lambda: upkeep.next_deadline_ms() != 0, lambda: upkeep.expire(NOW_MS + 2 * day_ms))
    assert sorted(log.producer_state.producers) == [8], "producer 8 has an open transaction"


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


# --- the work of a call -------------------------------------------------------------------------


class FakeLog:
    """The attributes of a log that the upkeep uses. Calls are counted."""

    def __init__(
        self, number: int, *, producers: int = 0, segments: int = 0, unread_bytes: int = 0
    ) -> None:
        self.topic, self.partition = "t", number
        self.producer_state = SimpleNamespace(producers=range(producers))
        self.segments, self.unread_bytes = segments, unread_bytes
        self.retained = self.expired = self.checkpoints = 0
        self.changed: dict[FakeLog, int] = {}

    def delete_old_segments(self, now_ms: int, most: int) -> int:
        self.retained += 1
        deleted = min(self.segments, most)
        self.segments -= deleted
        return deleted

    def expire_producers(self, now_ms: int, most: int) -> int:
        self.expired += 1
        return 0

    def checkpoint(self) -> None:
        self.checkpoints += 1
        self.unread_bytes = 0
        del self.changed[self]


def fakes(count: int, **more: int) -> list[FakeLog]:
    return [FakeLog(number, **more) for number in range(count)]


def upkeep_over(path: Path, logs: list[FakeLog], **config: int) -> LogUpkeep:
    rows: Any = {(log.topic, log.partition): log for log in logs}
    settings = LogManagerConfig(**config)  # type: ignore[arg-type]
    return LogUpkeep(LogDirectory(OsDisk(), str(path)), rows, settings, NOW_MS)


@pytest.mark.parametrize(
    ("segments", "at_a_call"),
    [(0, 1_000), (1, 33), (33, 2)],  # deleting a segment takes as much time as checking 30 logs
)
def test_retention_looks_at_a_part_of_the_logs_at_a_call(
    tmp_path: Path, segments: int, at_a_call: int
) -> None:
    logs = fakes(1_500, segments=segments)
    upkeep = upkeep_over(tmp_path, logs)
    due_ms = NOW_MS + 30_000
    upkeep.retain(due_ms)
    assert at_a_call <= sum(log.retained for log in logs) <= at_a_call + 1
    assert upkeep.next_deadline_ms() == 0, "the rest is due at once"
    upkeep.retain(due_ms)
    assert 2 * at_a_call - 500 <= sum(log.retained for log in logs) <= 2 * at_a_call + 2
    repeat_until(lambda: upkeep.next_deadline_ms() != 0, lambda: upkeep.retain(due_ms))
    assert {log.retained for log in logs} == {1}, "each is looked at once"
    assert upkeep.next_deadline_ms() == due_ms + 5 * MINUTE_MS


def test_retention_goes_on_with_a_log_that_has_many_segments_to_lose(tmp_path: Path) -> None:
    logs = fakes(2, segments=69)
    upkeep = upkeep_over(tmp_path, logs)
    left = []
    while not left or upkeep.next_deadline_ms() == 0:
        upkeep.retain(NOW_MS + 30_000)
        left.append([log.segments for log in logs])
    assert left == [[35, 69], [1, 69], [0, 35], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("producers", "at_a_call"), [(0, 1_000), (19, 1_000), (20, 500), (20_000, 1)]
)
def test_producers_of_a_part_of_the_logs_expire_at_a_call(
    tmp_path: Path, producers: int, at_a_call: int
) -> None:
    logs = fakes(1_500, producers=producers)
    upkeep = upkeep_over(tmp_path, logs)
    due_ms = upkeep._next_expiration_ms
    upkeep.expire(due_ms)
    assert sum(log.expired for log in logs) == at_a_call
    assert upkeep.next_deadline_ms() == 0, "the rest is due at once"
    repeat_until(lambda: not upkeep._to_expire, lambda: upkeep.expire(due_ms))
    assert {log.expired for log in logs} == {1}


def test_what_comes_due_while_a_round_is_under_way_begins_none_again(tmp_path: Path) -> None:
    logs = fakes(1_500)
    upkeep = upkeep_over(tmp_path, logs, retention_check_interval_ms=1_000)
    upkeep.retain(NOW_MS + 30_000)
    upkeep.retain(NOW_MS + 31_000)
    assert {log.retained for log in logs} == {1}


def changed_logs(
    path: Path, logs: list[FakeLog], changed_ms: int = NOW_MS, **config: int
) -> LogUpkeep:
    """An upkeep with these logs, all of which changed at the given time."""
    upkeep = upkeep_over(path, logs, **config)
    changed: Any = upkeep._log_dir.changed_logs
    for log in logs:
        changed[log] = changed_ms
        log.changed = changed
    return upkeep


@pytest.mark.parametrize(
    ("producers", "at_a_call"), [(0, 8), (499, 8), (500, 4), (3_500, 1), (10_000, 1)]
)
def test_some_checkpoints_are_written_at_a_call(
    tmp_path: Path, producers: int, at_a_call: int
) -> None:
    logs = fakes(20, producers=producers)
    upkeep = changed_logs(tmp_path, logs, producer_snapshot_interval_ms=100)
    upkeep.checkpoint_logs(NOW_MS + 100)
    assert [log.checkpoints for log in logs] == [1] * at_a_call + [0] * (20 - at_a_call)
    assert upkeep.next_deadline_ms() == NOW_MS + 100, "the rest is due"


def test_the_logs_that_hold_the_most_get_checkpoints_first(tmp_path: Path) -> None:
    """Only as many logs get a checkpoint as are needed to reduce the unread data to the limit."""
    logs = fakes(4, unread_bytes=10)
    logs[1].unread_bytes, logs[3].unread_bytes = 50, 40
    upkeep = changed_logs(tmp_path, logs, most_unread_bytes=60)
    upkeep.checkpoint_logs(NOW_MS)
    assert [log.checkpoints for log in logs] == [0, 1, 0, 0]
    for log in logs:
        log.unread_bytes += 60
    logs[1].changed[logs[1]], logs[1].unread_bytes = NOW_MS, 60
    upkeep.checkpoint_logs(NOW_MS + 1_000)
    assert [log.checkpoints for log in logs] == [1, 1, 1, 1]
    assert sum(log.unread_bytes for log in logs) == 60


def test_logs_of_which_a_start_read_much_are_due_at_once(tmp_path: Path) -> None:
    """Logs that changed later are still due at their own times, not earlier."""
    logs = fakes(20, unread_bytes=MUCH_READ_BYTES - 1)
    much = logs[3::2]
    for log in much:
        log.unread_bytes = MUCH_READ_BYTES
    upkeep = changed_logs(tmp_path, logs, producer_snapshot_interval_ms=1_000)
    upkeep.hasten_checkpoints(NOW_MS)
    assert upkeep.next_deadline_ms() <= NOW_MS
    upkeep.checkpoint_logs(NOW_MS)
    assert [log.checkpoints for log in much] == [1] * 8 + [0], "a little at a call"
    assert upkeep.next_deadline_ms() <= NOW_MS
    upkeep.checkpoint_logs(NOW_MS)
    assert [log for log in logs if log.checkpoints] == much
    assert upkeep.next_deadline_ms() == NOW_MS + 1_000
    upkeep.checkpoint_logs(NOW_MS + 999)
    assert [log for log in logs if log.checkpoints] == much
    upkeep.checkpoint_logs(NOW_MS + 1_000)
    upkeep.checkpoint_logs(NOW_MS + 1_000)
    assert all(log.checkpoints == 1 for log in logs)


@pytest.mark.parametrize("unread_bytes", [5, 6])
def test_at_the_bound_nothing_is_written_yet(tmp_path: Path, unread_bytes: int) -> None:
    logs = fakes(1, unread_bytes=unread_bytes)
    upkeep = changed_logs(tmp_path, logs, most_unread_bytes=5)
    upkeep.checkpoint_logs(NOW_MS)
    assert logs[0].checkpoints == (unread_bytes > 5)


def test_what_holds_too_much_after_a_call_is_due_at_once(tmp_path: Path) -> None:
    logs = fakes(20, unread_bytes=10)
    upkeep = changed_logs(tmp_path, logs, most_unread_bytes=65)
    upkeep.checkpoint_logs(NOW_MS)
    assert sum(log.checkpoints for log in logs) == 8
    assert upkeep.next_deadline_ms() == NOW_MS
    upkeep.checkpoint_logs(NOW_MS)
    assert sum(log.unread_bytes for log in logs) <= 65
    assert upkeep.next_deadline_ms() > NOW_MS


def test_the_next_look_is_when_a_log_is_due_within_a_second(tmp_path: Path) -> None:
    """The delay is at most one second, since the unread bytes of all logs may reach their limit."""
    for changed_ms, interval_ms, next_ms in (
        (NOW_MS, 10_000, NOW_MS + 1_000),
        (NOW_MS - 9_500, 10_000, NOW_MS + 500),
        (NOW_MS, 300, NOW_MS + 300),
    ):
        logs = fakes(1)
        upkeep = changed_logs(tmp_path, logs, changed_ms, producer_snapshot_interval_ms=interval_ms)
        upkeep.checkpoint_logs(NOW_MS)
        assert logs[0].checkpoints == 0
        assert upkeep.next_deadline_ms() == next_ms


@pytest.mark.parametrize(("interval_ms", "again_ms"), [(10_000, 10_000), (300, 1_000)])
def test_without_room_checkpoints_wait_a_second_or_their_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval_ms: int, again_ms: int
) -> None:
    logs = fakes(1)
    upkeep = changed_logs(
        tmp_path, logs, NOW_MS - interval_ms, producer_snapshot_interval_ms=interval_ms
    )

    def fail(_log: FakeLog) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(FakeLog, "checkpoint", fail)
    upkeep.checkpoint_logs(NOW_MS)
    assert upkeep.next_deadline_ms() == NOW_MS + again_ms


def test_an_error_of_the_disk_is_not_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = changed_logs(tmp_path, fakes(1), NOW_MS - 100_000)

    def fail(_log: FakeLog) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(FakeLog, "checkpoint", fail)
    with pytest.raises(OSError, match="broken"):
        upkeep.checkpoint_logs(NOW_MS)


def test_a_directory_that_cannot_go_for_want_of_descriptors_goes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = upkeep_over(tmp_path, [])
    (tmp_path / "old").mkdir()
    upkeep.deleted_directories.add(NOW_MS, f"{tmp_path}/old")

    def refuse(_disk: OsDisk, path: str) -> None:
        raise OSError(code, "refused")

    with monkeypatch.context() as patch:
        patch.setattr(OsDisk, "rmtree", refuse)
        code = errno.EMFILE
        upkeep.empty_trash(NOW_MS)
        assert upkeep.next_deadline_ms() == NOW_MS + 1_000
        code = errno.EIO
        with pytest.raises(OSError, match="refused"):
            upkeep.empty_trash(NOW_MS + 1_000)
    upkeep.deleted_directories.add(NOW_MS + 1_000, f"{tmp_path}/old")
    upkeep.empty_trash(NOW_MS + 1_000)
    assert not (tmp_path / "old").exists()


def test_a_log_that_is_damaged_does_not_keep_others_from_their_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = fakes(3)
    upkeep = upkeep_over(tmp_path, logs)

    def fail(now_ms: int, most: int) -> int:
        raise CorruptLog("f", 0, "damaged", "restore it")

    monkeypatch.setattr(logs[0], "delete_old_segments", fail)
    upkeep.retain(NOW_MS + 30_000)
    assert [log.retained for log in logs] == [0, 1, 1]


def test_a_log_that_is_damaged_costs_no_more_than_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fail(log: FakeLog, now_ms: int, most: int) -> int:
        tried.append(log)
        raise CorruptLog("f", 0, "damaged", "restore it")

    monkeypatch.setattr(FakeLog, "delete_old_segments", fail)
    upkeep_over(tmp_path, fakes(1_500)).retain(NOW_MS + 30_000)
    assert len(tried) == 1_000


def test_an_expiry_that_comes_due_while_one_is_under_way_begins_none_again(tmp_path: Path) -> None:
    logs = fakes(1_500)
    upkeep = upkeep_over(tmp_path, logs, producer_expiration_check_interval_ms=1_000)
    upkeep.expire(NOW_MS + 1_000)
    upkeep.expire(NOW_MS + 2_000)
    assert {log.expired for log in logs} == {1}


def test_the_producers_of_a_log_that_is_gone_are_left_alone(tmp_path: Path) -> None:
    logs = fakes(1_500)
    rows: Any = {(log.topic, log.partition): log for log in logs}
    upkeep = LogUpkeep(LogDirectory(OsDisk(), str(tmp_path)), rows, LogManagerConfig(), NOW_MS)
    due_ms = upkeep._next_expiration_ms
    upkeep.expire(due_ms)
    del rows["t", 1_498]
    upkeep.expire(due_ms)
    assert [log.expired for log in logs[-3:]] == [1, 0, 1]


def test_a_log_that_changes_is_looked_at_at_once(tmp_path: Path) -> None:
    """The log may have too many unread bytes by then. A check that finds no due log does not delay
    the next check.
    """
    log = FakeLog(0, unread_bytes=6)
    upkeep = changed_logs(tmp_path, [log], most_unread_bytes=5)
    log.changed.clear()
    upkeep.checkpoint_logs(NOW_MS)
    log.changed[log] = NOW_MS
    assert upkeep.next_deadline_ms() == NOW_MS
    upkeep.checkpoint_logs(NOW_MS)
    assert log.checkpoints == 1


def test_the_next_deadline_is_that_of_the_first_task_that_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this test retention is first, since a checkpoint that found no space has a longer
    delay.
    """
    upkeep = changed_logs(
        tmp_path, fakes(1), NOW_MS - MINUTE_MS, producer_snapshot_interval_ms=MINUTE_MS
    )

    def fail(_log: FakeLog) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(FakeLog, "checkpoint", fail)
    upkeep.checkpoint_logs(NOW_MS)
    assert upkeep.next_deadline_ms() == NOW_MS + 30_000


@pytest.mark.parametrize(("most_bytes", "next_ms"), [(119, NOW_MS), (120, NOW_MS + 1_000)])
def test_one_byte_too_much_is_due_at_once(tmp_path: Path, most_bytes: int, next_ms: int) -> None:
    upkeep = changed_logs(tmp_path, fakes(20, unread_bytes=10), most_unread_bytes=most_bytes)
    upkeep.checkpoint_logs(NOW_MS)
    assert upkeep.next_deadline_ms() == next_ms


@pytest.mark.parametrize(
    ("due", "producers", "at_a_call"), [(0, 0, 8), (0, 500, 4), (8, 0, 8), (3, 500, 4)]
)
def test_what_is_due_and_what_holds_too_much_share_one_bound(
    tmp_path: Path, due: int, producers: int, at_a_call: int
) -> None:
    logs = fakes(20, producers=producers, unread_bytes=10)
    upkeep = changed_logs(tmp_path, logs, most_unread_bytes=0, producer_snapshot_interval_ms=1_000)
    for log in logs[:due]:
        log.changed[log] = NOW_MS - 1_000
    upkeep.checkpoint_logs(NOW_MS)
    assert sum(log.checkpoints for log in logs) == at_a_call
    assert all(log.checkpoints for log in logs[:due])
