"""The core's decisions about cleaning, without a cleaner process: when a log is cleaned, the order
of the effects, and the handling of failures.
"""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.leftovers import places_of
from helpers.repeating import repeat_until
from helpers.storage_cleaning import COMPACTED, entries, put
from helpers.storage_logs import NOW_MS, TOPIC_ID, delete_log, kill, open_manager

from barnabas.broker.logs.compaction import (
    FIRST_RETRY_MS,
    LEAST_SHARE,
    ROLLED_AT_ONCE,
    SWAPPED_AT_ONCE,
    Compaction,
)
from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.syncs import Syncs
from barnabas.broker.outbox import Outbox
from barnabas.broker.settings.config import BrokerConfig
from barnabas.coordinator.internal_topics import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.cleaning.clean_job import CleanResult
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.checkpoints import decode_offsets
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log.time_lookup import offset_for_timestamp
from barnabas.storage.segments.batch_file import BatchFile
from barnabas.storage.segments.segment import Segment

BACKOFF_MS = 100


class Host:
    """A broker's compaction and flush queue, without a server: the test carries out flushes and
    jobs.
    """

    def __init__(self, path: Path, *, has_journal: bool = False, **settings: str) -> None:
        """Takes: has_journal, whether each flush may go to the flush journal."""
        self.path, self.now_ms = path, NOW_MS
        self.logs = open_manager(path, COMPACTED)
        self.outbox = Outbox()
        journal = self.logs.journal if has_journal else None
        self.flushes = FlushQueue(self.outbox, journal, fewest_logs=1)
        self.config = BrokerConfig.from_properties(
            {"log.cleaner.backoff.ms": str(BACKOFF_MS), **settings}
        )
        self.compaction = Compaction(
            self.config, self.logs, self.flushes, Syncs(self.outbox), self.outbox, NOW_MS
        )

    def log(self, topic: str = "t", **settings: Any) -> Log:
        return self.logs.create(topic, 0, TOPIC_ID, replace(COMPACTED, **settings), NOW_MS)

    def tick(self) -> None:
        """Move the clock to the next deadline, and carry out the flushes that are then
        requested.
        """
        deadline = self.compaction.next_deadline_ms()
        assert deadline is not None
        self.now_ms = max(self.now_ms, deadline)
        self.compaction.on_tick(self.now_ms)
        self.flush()

    def flush(self) -> None:
        while self.outbox.flushes:
            job = self.outbox.flushes.pop()
            for file in job.files:
                file.fsync()
            (job.then or partial(self.flushes.on_flushed, job))(self.now_ms)

    def clean(self, error: str = "") -> str:
        """Carry out the only pending job. Gives the name of its directory."""
        (job,) = self.outbox.cleanings
        self.outbox.cleanings.clear()
        result: CleanResult | None = None if error else clean(OsDisk(), job)
        self.compaction.on_cleaned(job, result, error, self.now_ms)
        self.flush()
        repeat_until(lambda: self.compaction._result is None, self.tick)
        self.check_clean_parts()
        return Path(job.directory).name

    def check_clean_parts(self) -> None:
        """Check that each key is in the clean part of a log only once. Later cleanings would not
        remove a duplicate there.
        """
        for partition, end in self.compaction._cleaned_to.items():
            log = self.logs.logs.get(partition)
            keys = [] if log is None else [key for at, key, _ in entries(log) if at < end]
            assert len(keys) == len(set(keys)), f"{log} is not clean up to {end}"

    def checkpoint(self) -> dict[tuple[str, int], int]:
        return decode_offsets((self.path / "cleaner-offset-checkpoint").read_bytes())


def fill(log: Log, count: int = 4) -> None:
    for number in range(count):
        put(log, b"k", b"%d" % number)


def test_a_dirty_log_is_flushed_and_cleaned_and_the_checkpoint_gets_its_offset(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path)
    log = host.log()
    fill(log)
    assert host.compaction.next_deadline_ms() == NOW_MS + BACKOFF_MS
    host.compaction.on_tick(NOW_MS + BACKOFF_MS - 1)
    assert not host.outbox.flushes
    host.now_ms = NOW_MS + BACKOFF_MS
    host.compaction.on_tick(host.now_ms)
    # the log is flushed before it is cleaned
    assert host.outbox.flushes and not host.outbox.cleanings
    assert host.compaction.next_deadline_ms() is None
    host.flush()
    assert host.clean() == "t-0"
    assert [entry[0] for entry in entries(log)] == [2, 3]
    assert host.checkpoint() == {("t", 0): 3}
    assert decode_offsets((tmp_path / "recovery-point-offset-checkpoint").read_bytes())["t", 0] >= 3
    host.tick()
    assert not host.outbox.cleanings
    assert host.compaction.next_deadline_ms() == host.now_ms + BACKOFF_MS


def test_the_dirtiest_log_is_cleaned_first_and_one_log_at_a_time(tmp_path: Path) -> None:
    host = Host(tmp_path)
    logs = {name: host.log(name) for name in ("a", "b", "plain")}
    logs["plain"].config = replace(COMPACTED, cleanup_policy=frozenset({"delete"}))
    for log in logs.values():
        fill(log)
    host.tick()
    cleaned = host.clean()
    fill(logs["a"], 20)
    fill(logs["b"], 2)
    host.tick()
    assert len(host.outbox.cleanings) == 1
    order = [cleaned, host.clean()]
    host.tick()
    order.append(host.clean())
    # When the second job was chosen, all of log b was dirty, but only a part of log a.
    assert order == ["a-0", "b-0", "a-0"]
    host.tick()
    assert not host.outbox.cleanings


def test_after_a_restart_a_log_is_dirty_only_from_its_checkpointed_offset(tmp_path: Path) -> None:
    host = Host(tmp_path)
    fill(host.log())
    host.tick()
    host.clean()
    host.logs.close(host.now_ms)
    again = Host(tmp_path)
    again.tick()
    assert not again.outbox.cleanings
    again.logs.close(again.now_ms)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0")
    again = Host(tmp_path)
    again.tick()
    assert (
        again.outbox.cleanings[0].first_dirty_offset == 0
    )  # the checkpoint's only entry is incomplete, so the whole log is dirty


def test_the_result_of_a_job_is_dropped_when_its_log_was_deleted_and_created_again(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path)
    fill(host.log())
    host.tick()
    host.clean()
    fill(host.logs.logs["t", 0])
    host.tick()
    (job,) = host.outbox.cleanings
    delete_log(host.logs, "t", 0, host.now_ms)
    host.compaction.forget([("t", 0)])
    assert host.checkpoint() == {}
    again = host.log()
    fill(again, 10)
    again.flush()
    result = clean(
        OsDisk(), job._replace(groups=job.groups[:1], aborted=(), end_offset=2)
    )  # the directory now belongs to the new log of that name
    host.outbox.cleanings.clear()
    host.compaction.on_cleaned(job, result, "", host.now_ms)
    assert [entry[0] for entry in entries(again)] == list(range(10))
    assert not list(tmp_path.glob("t-0/*.cleaned"))
    host.tick()
    assert host.clean() == "t-0"
    assert [entry[0] for entry in entries(again)] == [8, 9]


@pytest.mark.parametrize("error", ["", "its cleaner failed"])
def test_nothing_is_kept_of_a_deleted_log(tmp_path: Path, error: str) -> None:
    """The cleaned offset, a failure and the unreadable offsets are all dropped. Otherwise the next
    log of that name would cause no warning if it had an unreadable batch at the same offset.
    """
    host = Host(tmp_path)
    fill(host.log("one-that-goes"))
    host.tick()
    (job,) = host.outbox.cleanings
    result = None if error else clean(OsDisk(), job)._replace(unreadable=(0,))
    host.outbox.cleanings.clear()
    host.compaction.on_cleaned(job, result, error, host.now_ms)
    for flush in host.outbox.flushes:  # the recovery point is flushed before the swap
        assert flush.then is not None
        flush.then(host.now_ms)
    delete_log(host.logs, "one-that-goes", 0, host.now_ms)
    host.compaction.forget([TopicPartition("one-that-goes", 0)])
    assert places_of(host.compaction, lambda value: value == "one-that-goes") == []


def test_a_log_that_is_deleted_during_its_flush_is_not_cleaned(tmp_path: Path) -> None:
    host = Host(tmp_path)
    log = host.log()
    fill(log)
    host.now_ms += BACKOFF_MS
    host.compaction.on_tick(host.now_ms)
    delete_log(host.logs, "t", 0, host.now_ms)
    host.flushes.forget(log, host.now_ms)
    assert not host.outbox.cleanings
    assert host.compaction.next_deadline_ms() is not None


def test_a_log_whose_records_are_durable_in_the_flush_journal_alone_is_flushed_before_its_cleaning(
    tmp_path: Path,
) -> None:
    """Otherwise the log would never be cleaned, since a job has only what is durable in the log's
    own files.
    """
    host = Host(tmp_path, has_journal=True)
    log = host.log(segment_bytes=1 << 20)
    put(log, b"k", b"0")
    log.flush()
    recovery_point = log.durability.recovery_point
    fill(log)
    flushed: list[int] = []
    host.flushes.wait([log], flushed.append, host.now_ms)
    host.flush()
    assert flushed and log.durability.durable_offset == log.log_end_offset
    assert log.durability.recovery_point == recovery_point < log.log_end_offset
    log._roll(host.now_ms)
    host.now_ms += BACKOFF_MS
    host.compaction.on_tick(host.now_ms)
    assert host.outbox.flushes and not host.outbox.cleanings
    host.flush()
    (job,) = host.outbox.cleanings
    assert recovery_point < job.end_offset <= log.durability.recovery_point
    assert host.clean() == "t-0"
    assert [key for _, key, _ in entries(log)] == [b"k"]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_job_has_no_segment_that_was_written_during_the_flush_of_its_log(
    tmp_path: Path, count: int
) -> None:
    """A segment that is written during the flush is not durable: a power loss would lose its
    records and keep the cleaned segments.
    """
    host = Host(tmp_path)
    log = host.log()
    fill(log)
    host.now_ms += BACKOFF_MS
    host.compaction.on_tick(host.now_ms)
    assert host.outbox.flushes
    fill(log, count)
    host.flush()
    for job in host.outbox.cleanings:
        assert job.end_offset <= log.durability.recovery_point
    if not host.outbox.cleanings:
        host.tick()
    assert host.clean() == "t-0"
    assert [key for _, key, _ in entries(log)] == [b"k"] * 2


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_a_log_is_cleaned_again_when_segments_of_its_job_were_deleted_meanwhile(
    tmp_path: Path, lost: int
) -> None:
    """DeleteRecords or retention removed segments of the job's group during the job. The result
    cannot replace the group, so that part of the log stays dirty.
    """
    host = Host(tmp_path)
    log = host.log(cleanup_policy=frozenset({"compact", "delete"}))
    for number in range(12):
        put(log, b"%d" % (number % 3), b"%d" % number)
    # so that one cleaned segment replaces several
    log.config = replace(log.config, segment_bytes=400)
    host.tick()
    (job,) = host.outbox.cleanings
    host.outbox.cleanings.clear()
    assert len(job.groups[0]) == 5
    result = clean(OsDisk(), job)
    log.delete_records_before(lost)
    assert log.delete_old_segments(host.now_ms) == lost
    host.compaction.on_cleaned(job, result, "", host.now_ms)
    host.flush()
    host.check_clean_parts()
    host.tick()
    host.clean()
    assert [offset for offset, _, _ in entries(log)] == [8, 9, 10, 11]
    assert host.checkpoint() == {("t", 0): 11}


def test_a_result_for_a_log_that_is_not_compacted_any_more_is_dropped(tmp_path: Path) -> None:
    host = Host(tmp_path)
    log = host.log()
    fill(log)
    host.tick()
    log.config = replace(log.config, cleanup_policy=frozenset({"delete"}))
    host.clean()
    assert len(entries(log)) == 4
    assert not list(tmp_path.glob("t-0/*.cleaned"))


@pytest.mark.parametrize(("data", "is_said"), [(b"", False), (b"0\n1\nt 0", True)])
def test_an_empty_checkpoint_causes_no_warning_and_an_incomplete_one_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes, is_said: bool
) -> None:
    """A checkpoint without entries is valid: Kafka's broker creates one when it starts."""
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(data)
    host = Host(tmp_path)
    log = host.log()
    fill(log)
    host.tick()
    assert host.clean() == "t-0"
    assert ("cannot be used" in caplog.text) is is_said


def test_a_failed_cleaning_is_logged_and_tried_again_after_growing_delays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(tmp_path)
    log, other = host.log(), host.log("other")
    fill(log)
    host.tick()
    began = host.now_ms
    host.clean(error="the cleaner's process ended with -9")
    assert [(record.levelno, record.message) for record in caplog.records][-1] == (
        logging.ERROR,
        "t-0 cannot be compacted; tried again in 15 s: the cleaner's process ended with -9",
    )
    assert len(entries(log)) == 4
    fill(other)
    host.tick()
    assert host.clean() == "other-0"  # while this log waits, another one is cleaned
    repeat_until(lambda: host.outbox.cleanings, host.tick)
    assert began + FIRST_RETRY_MS <= host.now_ms < began + FIRST_RETRY_MS + 2 * BACKOFF_MS
    began = host.now_ms
    host.clean(error="again")
    repeat_until(lambda: host.outbox.cleanings, host.tick)
    assert host.now_ms >= began + 2 * FIRST_RETRY_MS
    host.clean()
    assert len(entries(log)) == 2


def test_each_failure_in_a_row_doubles_the_wait_up_to_an_hour(tmp_path: Path) -> None:
    host = Host(tmp_path)
    log = host.log()
    fill(log)
    host.tick()
    waits = []
    for _ in range(40):
        began = host.now_ms
        host.clean(error="again")
        # try these waits in turn; a cleaning that starts before the end of a wait is noted as a
        # shorter wait
        for wait_ms in (1, 15_000 << len(waits), 3_600_000):
            host.now_ms = began + min(wait_ms, 3_600_000) - BACKOFF_MS - 1
            host.compaction.on_tick(host.now_ms)
            if not host.outbox.cleanings:
                host.now_ms += BACKOFF_MS + 1
                host.compaction.on_tick(host.now_ms)
            if host.outbox.cleanings:
                break
        waits.append(host.now_ms - began)
    assert waits == [min(15_000 << number, 3_600_000) for number in range(40)]
    host.clean()
    fill(log)
    host.tick()
    began = host.now_ms
    host.clean(error="after a success")
    host.now_ms = began + 15_000
    host.tick()
    assert host.outbox.cleanings, "the failures before a success do not count"


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_compaction_waits_until_there_is_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    """When the disk has no space for a file that a cleaning writes, the broker continues, and
    cleans the log later. Any other disk error, such as EIO, is raised.
    """
    host = Host(tmp_path)
    log = host.log()
    fill(log)
    host.tick()
    write = OsDisk.write_atomic

    def refuse(self: OsDisk, path: str, data: Any, *, sync: bool = True) -> None:
        if path.removesuffix(".new").endswith(name):
            raise OSError(code, os.strerror(code), path)
        write(self, path, data, sync=sync)

    with monkeypatch.context() as patched:
        patched.setattr(OsDisk, "write_atomic", refuse)
        if code == errno.EIO:
            with pytest.raises(OSError, match=os.strerror(code)):
                host.clean()
            return
        host.clean()
    # The checkpoint of recovery points is written before the swap, the cleaner's checkpoint after
    # it.
    is_clean = name.startswith("cleaner")
    assert [entry[0] for entry in entries(log)] == ([2, 3] if is_clean else [0, 1, 2, 3])
    assert not [path for path in os.listdir(log.directory) if path.endswith(".cleaned")], (
        "it takes no room"
    )
    host.now_ms += FIRST_RETRY_MS
    host.tick()
    if not is_clean:
        assert host.clean() == "t-0"
    assert [entry[0] for entry in entries(log)] == [2, 3]
    fill(log, 1)
    host.now_ms += FIRST_RETRY_MS
    host.tick()
    host.clean()
    assert host.checkpoint() == {("t", 0): 4}


@pytest.mark.parametrize("way", ["goes on", "is killed", "stops", "is deleted"])
@pytest.mark.parametrize("renamed", range(4))
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_compacted_segments_serve_readers_when_there_is_no_space_to_rename_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    way: str,
    renamed: int,
    code: int,
) -> None:
    """When the rename fails, the replaced segments have already been deleted, and the manifest
    lists the compacted ones.
    """
    host = Host(tmp_path)
    log = host.log()
    fill(log)
    host.tick()
    # The number of renames that succeed before one fails.
    left = [renamed]
    rename = OsDisk.rename

    def refuse(self: OsDisk, old: str, new: str) -> None:
        if old.endswith(".swap"):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(code, os.strerror(code), old)
        rename(self, old, new)

    with monkeypatch.context() as patched:
        patched.setattr(OsDisk, "rename", refuse)
        if code == errno.EIO:
            with pytest.raises(OSError, match=os.strerror(code)):
                host.clean()
            return
        host.clean()
        assert "until there is space to rename it: " in caplog.text
        assert [entry[0] for entry in entries(log)] == [2, 3]
        put(log, b"other", b"x")
        log.checkpoint()
        # Close all files, so that the reads below have to open them by their current names.
        for segment in log.segments:
            segment.batches.close()
            segment.indexes.drop()
        fill(log, 3)
        host.now_ms += BACKOFF_MS
        host.tick()
        assert host.outbox.cleanings == [], "one cleaning after the other"
        assert [entry[0] for entry in entries(log)] == [2, 3, 4, 5, 6, 7]
        first = offset_for_timestamp(log, 0)
        assert first is not None and first.offset == 2
    if way == "is deleted":
        host.compaction.forget([TopicPartition("t", 0)])
        delete_log(host.logs, "t", 0, host.now_ms)
        host.tick()
        return
    if way == "goes on":
        host.now_ms += BACKOFF_MS
        host.tick()
        host.clean()
        assert [entry[0] for entry in entries(log)] == [4, 6, 7]
    elif way == "stops":
        host.logs.close(host.now_ms)
    else:
        kill(host.logs)
    if way != "goes on":
        log = open_manager(tmp_path, COMPACTED).logs["t", 0]
        assert [entry[0] for entry in entries(log)] == [2, 3, 4, 5, 6, 7]
    assert not [name for name in os.listdir(log.directory) if name.endswith(".swap")]


def test_damage_is_a_failure_of_one_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = Host(tmp_path)
    log = host.log(segment_bytes=200)
    for number in range(4):
        append_marker(
            log,
            producer_id=number,
            producer_epoch=0,
            coordinator_epoch=0,
            commit=True,
            now_ms=NOW_MS,
        )
    log.flush()
    path = tmp_path / "t-0/00000000000000000000.log"
    path.write_bytes(b"\xff" * path.stat().st_size)
    damaged = log.segments[0]
    damaged.indexes.txn_trusted, damaged.indexes.manifest, damaged.indexes.loaded_aborted = (
        False,
        None,
        None,
    )  # so the segment must be read to find its aborted transactions
    host.tick()
    assert not host.outbox.cleanings
    assert "t-0 cannot be compacted" in caplog.text
    assert host.compaction.next_deadline_ms() is not None


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
def test_a_log_is_compacted_later_when_no_file_descriptor_is_left_to_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    host = Host(tmp_path)
    log = host.log()
    fill(log)
    log.flush()
    # Without its indexes, the segment must be read to find its aborted transactions.
    log.segments[0].indexes.loaded_aborted = log.segments[0].indexes.manifest = None
    log.segments[0].indexes.txn_trusted = False

    def refuse(self: Segment, *_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(BatchFile, "headers", refuse)
        if code == errno.EIO:
            with pytest.raises(OSError, match=os.strerror(code)):
                host.tick()
            return
        host.tick()
    assert not host.outbox.cleanings
    assert "t-0 cannot be compacted; tried again in 15 s" in caplog.text
    repeat_until(lambda: host.outbox.cleanings, host.tick)
    assert host.clean() == "t-0"
    assert len(entries(log)) == 2


def test_without_log_cleaner_enable_nothing_is_cleaned(tmp_path: Path) -> None:
    host = Host(tmp_path, **{"log.cleaner.enable": "false"})
    fill(host.log())
    assert host.compaction.next_deadline_ms() is None
    host.compaction.on_tick(NOW_MS + 10 * BACKOFF_MS)
    assert not host.outbox.flushes and not host.outbox.cleanings


def test_many_segments_are_swapped_in_a_few_at_a_time(tmp_path: Path) -> None:
    """Between the swaps the log may receive appends, lose its oldest segments, or be deleted."""
    for meanwhile in ("nothing", "append", "delete the oldest", "delete the topic"):
        host = Host(tmp_path / meanwhile)
        log = host.log()
        fill(log, 41)
        host.tick()
        (job,) = host.outbox.cleanings
        host.outbox.cleanings.clear()
        host.compaction.on_cleaned(job, clean(OsDisk(), job), "", host.now_ms)
        host.flush()
        left = [entry[0] for entry in entries(log)]
        assert left == list(range(SWAPPED_AT_ONCE, 41))
        # The next swaps are due immediately, but after other events.
        assert host.compaction.next_deadline_ms() == host.now_ms
        assert not (host.path / "cleaner-offset-checkpoint").exists()
        if meanwhile == "append":
            fill(log, 1)
        elif meanwhile == "delete the oldest":
            log.delete_records_before(20)
            log.delete_old_segments(host.now_ms)
        elif meanwhile == "delete the topic":
            delete_log(host.logs, "t", 0, host.now_ms)
        host.compaction.on_tick(host.now_ms)
        host.compaction.on_tick(host.now_ms)
        if meanwhile != "delete the topic":
            assert [entry[0] for entry in entries(log)] == (
                [39, 40, 41] if meanwhile == "append" else [39, 40]
            )
            assert host.checkpoint() == {("t", 0): 40}
            assert log.log_start_offset == (20 if meanwhile == "delete the oldest" else 0)
        assert not list(host.path.glob("t-0*/*.cleaned")) or meanwhile == "delete the topic"
        assert (
            host.compaction._result is None and host.compaction._under_way is None
        ) or host.outbox.cleanings


# --- internal topics, which a start replays -------------------------------------------------------


def internal_logs(host: Host, *names: str, **settings: Any) -> list[Log]:
    """Logs with segments so large that they do not become full. A record of `fill` takes at least
    70 bytes in them.
    """
    settings = {"segment_bytes": 1 << 20, "min_cleanable_dirty_ratio": 0.5, **settings}
    return [host.log(name, **settings) for name in names]


def test_internal_logs_are_compacted_before_their_segments_are_full(tmp_path: Path) -> None:
    """An internal log is rolled and compacted when it has many dirty bytes, since a start replays
    it.
    """
    host = Host(tmp_path, **{"barnabas.internal.topics.dirty.bytes": "2000"})
    offsets, transactions, plain = internal_logs(host, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "plain")
    fill(offsets, 10)
    fill(plain, 100)
    host.tick()
    assert len(offsets.segments) == 1, "the log is too small to be rolled"
    fill(transactions, 20)
    host.tick()
    assert host.clean() == f"{TRANSACTIONS_TOPIC}-0", (
        "the log with the most dirty bytes; then the rest is small enough"
    )
    assert [entry[0] for entry in entries(transactions)] == [19]
    host.tick()
    assert [len(log.segments) for log in (offsets, plain)] == [1, 1]
    fill(offsets, 50)
    host.tick()
    assert host.clean() == f"{OFFSETS_TOPIC}-0"
    assert [entry[0] for entry in entries(offsets)] == [59]


def test_an_internal_log_is_rolled_only_when_its_dirty_bytes_exceed_its_clean_bytes(
    tmp_path: Path,
) -> None:
    """Once a log has more than 500 dirty bytes, the dirty ratio of 0.5 decides."""
    host = Host(tmp_path, **{"barnabas.internal.topics.dirty.bytes": "500"})
    (log,) = internal_logs(host, OFFSETS_TOPIC)
    for number in range(50):
        put(log, b"%d" % number, b"v")
    host.tick()
    host.clean()
    assert len(entries(log)) == 50
    cleaned, _ = log.segments
    while len(log.segments) == 2:
        dirty_bytes = log.segments.active.batches.size
        assert dirty_bytes <= cleaned.batches.size
        fill(log, 1)
        host.tick()
    assert log.segments[1].batches.size > cleaned.batches.size >= dirty_bytes
    assert host.clean() == f"{OFFSETS_TOPIC}-0"


@pytest.mark.parametrize(
    ("count", "is_rolled"), [(1, False), (2, True)], ids=["a sliver", "a sixteenth"]
)
def test_partitions_with_few_dirty_bytes_each_are_not_rolled(
    tmp_path: Path, count: int, is_rolled: bool
) -> None:
    """Partitions that have few dirty bytes each are not rolled, although their sum is above the
    bound.
    """
    host = Host(tmp_path)
    logs = internal_logs(host, OFFSETS_TOPIC)
    logs += [
        host.logs.create(OFFSETS_TOPIC, index, TOPIC_ID, logs[0].config, NOW_MS)
        for index in range(1, 40)
    ]
    for log in logs:
        fill(log, count)
    # With two records, the dirty bytes of a log are exactly LEAST_SHARE of this bound.
    most = int(logs[0].segments.active.batches.size * 2 / count / LEAST_SHARE)
    host.compaction._config = BrokerConfig.from_properties(
        {"barnabas.internal.topics.dirty.bytes": str(most)}
    )
    host.tick()
    assert any(len(log.segments) > 1 for log in logs) is is_rolled


def test_one_call_rolls_only_the_few_dirtiest_logs(tmp_path: Path) -> None:
    host = Host(tmp_path, **{"barnabas.internal.topics.dirty.bytes": "0"})
    (first,) = internal_logs(host, OFFSETS_TOPIC)
    logs = [first] + [
        host.logs.create(OFFSETS_TOPIC, index, TOPIC_ID, first.config, NOW_MS)
        for index in range(1, 10)
    ]
    for count, log in enumerate(logs, start=1):
        fill(log, count)
    host.tick()
    assert [len(log.segments) for log in logs] == [1] * 6 + [2] * ROLLED_AT_ONCE, "the dirtiest"
    order = [host.clean()]
    while host.outbox.cleanings or host.compaction.next_deadline_ms() == host.now_ms:
        order += [host.clean()] if host.outbox.cleanings else []
        host.tick()
    assert sorted(order) == sorted(f"{OFFSETS_TOPIC}-{index}" for index in range(10))


def test_a_log_whose_transactions_are_open_is_rolled_once(tmp_path: Path) -> None:
    """Records of an open transaction cannot be cleaned, so rolling further segments would not
    help.
    """
    host = Host(tmp_path, **{"barnabas.internal.topics.dirty.bytes": "100"})
    (log,) = internal_logs(host, OFFSETS_TOPIC)
    fill(log)
    put(log, b"k", b"open", pid=1, epoch=0, seq=0, transactional=True)
    for _ in range(3):
        fill(log)
        host.tick()
        assert len(log.segments) == 2 and not host.outbox.cleanings
    append_marker(
        log, producer_id=1, producer_epoch=0, coordinator_epoch=0, commit=True, now_ms=host.now_ms
    )
    host.tick()
    assert host.clean() == f"{OFFSETS_TOPIC}-0"


@pytest.mark.parametrize("lag_ms", [0, 1])
def test_a_log_whose_min_compaction_lag_has_not_passed_is_not_rolled(
    tmp_path: Path, lag_ms: int
) -> None:
    host = Host(tmp_path, **{"barnabas.internal.topics.dirty.bytes": "100"})
    (log,) = internal_logs(host, OFFSETS_TOPIC, min_compaction_lag_ms=lag_ms)
    fill(log)
    host.tick()
    assert len(log.segments) == (1 if lag_ms else 2)


def test_a_log_whose_cleaning_failed_is_not_rolled_until_the_next_try(tmp_path: Path) -> None:
    host = Host(tmp_path, **{"barnabas.internal.topics.dirty.bytes": "100"})
    (log,) = internal_logs(host, OFFSETS_TOPIC)
    fill(log)
    host.tick()
    host.clean("the process is gone")
    fill(log)
    host.tick()
    assert len(log.segments) == 2 and not host.outbox.cleanings
    host.now_ms += FIRST_RETRY_MS
    host.tick()
    host.clean()
    assert [entry[0] for entry in entries(log)] == [7]


def test_without_disk_space_the_roll_is_tried_again_only_after_the_backoff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, **{"barnabas.internal.topics.dirty.bytes": "0"})
    logs = internal_logs(host, OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
    for log in logs:
        fill(log)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "create", fail)
        host.tick()
    assert [len(log.segments) for log in logs] == [1, 1] and not host.outbox.cleanings
    assert host.compaction.next_deadline_ms() == host.now_ms + BACKOFF_MS
    host.tick()
    assert host.outbox.cleanings
