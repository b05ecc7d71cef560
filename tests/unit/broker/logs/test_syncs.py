"""Changes of files that are made in steps, one after the other, with fsyncs in the flusher
threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.disk_broker import DATA_DIR, DiskBroker
from helpers.storage_logs import NOW_MS, batch, new_log
from sim.disk import Crash

from barnabas.broker.logs.syncs import Syncs
from barnabas.broker.outbox import FlushJob, Outbox
from barnabas.storage.disk import Syncable, SyncSteps
from barnabas.storage.files.checkpoints import (
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    REPLICATION_NAME,
    decode_offsets,
)

MINUTE_MS = 60_000


class File:
    """A fake file. `synced` has the names of the files that were synced, in order."""

    synced: list[str]

    def __init__(self, name: str, synced: list[str]) -> None:
        self.name, self.synced = name, synced

    def fsync(self) -> None:
        self.synced.append(self.name)


class Rim:
    def __init__(self) -> None:
        self.outbox = Outbox()
        self.syncs = Syncs(self.outbox)
        self.seen: list[str] = []

    def steps(self, name: str, *counts: int) -> SyncSteps:
        """Return a change that yields this number of files at each step."""
        for number, count in enumerate(counts):
            self.seen.append(f"{name} writes {number}")
            files: Sequence[Syncable] = [File(f"{name}{number}", self.seen) for _ in range(count)]
            yield files
        self.seen.append(f"{name} ends")

    def job(self) -> FlushJob:
        (job,) = self.outbox.flushes
        return job

    def end_flush(self, now_ms: int = 7) -> None:
        """Complete the first flush."""
        job = self.outbox.flushes.pop(0)
        for file in job.files:
            file.fsync()
        assert job.then is not None
        job.then(now_ms)


def test_a_step_begins_when_the_files_of_the_previous_step_are_synced() -> None:
    rim = Rim()
    ended: list[int] = []
    rim.syncs.run(rim.steps("a", 2, 1), 5, ended.append)
    assert rim.seen == ["a writes 0"] and len(rim.job().files) == 2 and not ended
    rim.end_flush()
    assert rim.seen[1:] == ["a0", "a0", "a writes 1"] and not ended
    rim.end_flush(9)
    assert rim.seen[4:] == ["a1", "a ends"] and ended == [9] and not rim.outbox.flushes


def test_changes_are_made_one_after_another() -> None:
    rim = Rim()
    for name in "ab":
        rim.syncs.run(rim.steps(name, 1))
    assert rim.seen == ["a writes 0"]
    rim.end_flush()
    assert rim.seen == ["a writes 0", "a0", "a ends", "b writes 0"]
    rim.end_flush()
    assert rim.seen[-1] == "b ends" and not rim.outbox.flushes


def test_a_change_without_steps_ends_immediately() -> None:
    rim = Rim()
    ended: list[int] = []
    rim.syncs.run(rim.steps("a"), 5, ended.append)
    assert ended == [5] and not rim.outbox.flushes


def test_a_step_without_files_still_pauses_the_change() -> None:
    """A flush of no files lets other events run between two steps."""
    rim = Rim()
    rim.syncs.run(rim.steps("a", 0, 1))
    assert rim.job().files == () and rim.seen == ["a writes 0"]
    rim.end_flush()
    assert rim.seen[-1] == "a writes 1"


def test_a_change_that_fails_is_not_tried_again() -> None:
    def fail() -> SyncSteps:
        yield []
        raise OSError("of the disk")

    rim = Rim()
    rim.syncs.run(fail())
    with pytest.raises(OSError, match="of the disk"):
        rim.end_flush()
    rim.syncs.run(rim.steps("b", 1))
    assert rim.seen == ["b writes 0"]


# --- offset checkpoints ---------------------------------------------------------------------------


def test_the_periodic_checkpoint_replaces_the_old_one_when_it_is_synced(tmp_path: Path) -> None:
    """The new checkpoint files are written under temporary names and synced. Only then do they
    replace the old ones. Another tick in between writes no further checkpoint.
    """
    manager, log = new_log(tmp_path)
    rim = Rim()
    manager.run_steps = rim.syncs.run
    log.append(batch([b"a"]), now_ms=NOW_MS)
    log.flush()
    path = tmp_path / RECOVERY_POINT_NAME
    before = path.read_bytes()
    manager.on_tick(NOW_MS + MINUTE_MS)
    names = {Path(file.path).name for file in rim.job().files}  # type: ignore[attr-defined]
    assert names == {f"{RECOVERY_POINT_NAME}.new", f"{REPLICATION_NAME}.new"}
    manager.on_tick(NOW_MS + 2 * MINUTE_MS)
    assert path.read_bytes() == before and len(rim.outbox.flushes) == 1, "one at a time"
    rim.end_flush()
    assert decode_offsets(path.read_bytes()) == {("t", 0): 1}
    rim.end_flush()
    assert not rim.outbox.flushes and not list(tmp_path.glob("*.new"))
    manager.on_tick(NOW_MS + 3 * MINUTE_MS)
    assert not rim.outbox.flushes, "nothing has changed"


def test_a_checkpoint_written_during_a_step_is_not_overwritten_by_an_older_one(
    tmp_path: Path,
) -> None:
    """DeleteRecords or a stop may write checkpoints while a step is flushed."""
    manager, log = new_log(tmp_path)
    rim = Rim()
    manager.run_steps = rim.syncs.run
    for _ in range(2):
        log.append(batch([b"a"]), now_ms=NOW_MS)
        log.flush()
        manager.on_tick(NOW_MS + MINUTE_MS * log.log_end_offset)
    assert decode_offsets((tmp_path / f"{RECOVERY_POINT_NAME}.new").read_bytes()) == {("t", 0): 1}
    log.delete_records_before(1)
    manager.write_checkpoints()
    assert not (tmp_path / f"{RECOVERY_POINT_NAME}.new").exists()
    while rim.outbox.flushes:
        rim.end_flush()
    assert decode_offsets((tmp_path / RECOVERY_POINT_NAME).read_bytes()) == {("t", 0): 2}
    assert decode_offsets((tmp_path / LOG_START_NAME).read_bytes()) == {("t", 0): 1}


@pytest.mark.parametrize("crash", ["kill", "lose_power"])
def test_after_a_crash_a_checkpoint_is_the_previous_or_the_new_one(crash: str) -> None:
    outcomes = set()
    for steps in range(100):
        b = DiskBroker(log_cleaner_enable="false")
        b.topic("t", flush_messages="1")
        assert b.produce("t", (b"a",)) == (0, 0)
        b.stop()
        assert b.produce("t", (b"b",)) == (0, 1)
        b.disk.crash_in(steps)
        try:
            b.tick(MINUTE_MS)
        except Crash:
            b.disk.kill() if crash == "kill" else b.disk.lose_power()
        else:
            break
        points = decode_offsets(b.disk.read(f"{DATA_DIR}/{RECOVERY_POINT_NAME}"))
        outcomes.add(points["t", 0])
        b.open()
        assert b.read("t") == [b"a", b"b"]
    assert 3 < steps < 99
    assert outcomes == ({1, 2} if crash == "kill" else {1})
    b.disk.lose_power()
    assert decode_offsets(b.disk.read(f"{DATA_DIR}/{RECOVERY_POINT_NAME}"))["t", 0] == 2
