"""When flushes go through the flush journal, and when a journal comes to its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, kill, open_manager

from broker import flush_queue
from broker.flush_queue import FlushQueue
from broker.outbox import FlushJob, Outbox
from storage.log import Log
from storage.log_config import LogConfig
from storage.log_manager import LogManager


class Queue:
    """A queue over real logs of which each has been flushed once, so that the journal may be used."""

    def __init__(self, path: Path, logs: int = 3, **settings: int) -> None:
        self.path = path
        self.manager: LogManager = open_manager(path)
        self.logs = [self.manager.create("t", number, TOPIC_ID, LogConfig(), NOW_MS) for number in range(logs)]
        self.outbox = Outbox()
        self.queue = FlushQueue(self.outbox, self.manager.journal, **settings)  # type: ignore[arg-type]
        self.done: list[str] = []
        for log in self.logs:
            log.flush()

    def append(self, *logs: Log, size: int = 10) -> None:
        for log in logs or self.logs:
            log.append(batch([bytes(size)]), now_ms=NOW_MS)

    def wait(self, name: str, *logs: Log, in_place: bool = False, now_ms: int = NOW_MS) -> None:
        self.queue.wait(logs or self.logs, lambda _: self.done.append(name), now_ms, in_place=in_place)

    def job(self) -> FlushJob:
        (job,) = self.outbox.flushes
        return job

    def end_flush(self, now_ms: int = NOW_MS) -> list[str]:
        """The names of the files that were flushed."""
        job = self.outbox.flushes.pop(0)
        for file in job.files:
            file.fsync()
        self.queue.on_flushed(job, now_ms)
        return sorted(Path(getattr(file, "path", getattr(file, "directory", ""))).name for file in job.files)

    def journals(self) -> list[str]:
        return sorted(path.name for path in self.path.glob("barnabas-flush-*"))


FIRST, SECOND = "barnabas-flush-0000000001.journal", "barnabas-flush-0000000002.journal"
LOG = "00000000000000000000.log"


def test_several_logs_are_flushed_with_one_file(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.append()
    queue.wait("all")
    assert queue.end_flush() == [FIRST, tmp_path.name], "the new file and its name"
    assert queue.done == ["all"]
    assert [(log.durable_offset, log.recovery_point) for log in queue.logs] == [(1, 0)] * 3
    queue.append()
    queue.wait("again")
    assert queue.end_flush() == [FIRST]
    assert queue.done == ["all", "again"] and queue.outbox.flushes == []


@pytest.mark.parametrize(("fewest_logs", "files"), [(0, [LOG] * 2), (1, [FIRST]), (2, [FIRST]), (3, [LOG] * 2)])
def test_few_are_flushed_in_their_own_files(tmp_path: Path, fewest_logs: int, files: list[str]) -> None:
    queue = Queue(tmp_path, 2, fewest_logs=fewest_logs)
    queue.append()
    queue.wait("both")
    assert [name for name in queue.end_flush() if name != tmp_path.name] == files


def test_a_log_with_much_to_flush_is_flushed_beside_the_journal(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.append()
    queue.append(queue.logs[1], size=flush_queue.MOST_BYTES_OF_A_LOG)
    queue.wait("all")
    assert queue.end_flush() == [LOG, FIRST, tmp_path.name]
    assert [log.recovery_point for log in queue.logs] == [0, 2, 0]
    assert queue.done == ["all"]


def test_who_needs_the_own_files_gets_them(tmp_path: Path) -> None:
    """As compaction does: a journal's bytes must not come back over what it makes."""
    queue = Queue(tmp_path)
    queue.append()
    queue.wait("journal")
    queue.end_flush()
    queue.wait("nothing to do")
    queue.wait("in place", queue.logs[0], in_place=True)
    assert queue.done == ["journal", "nothing to do"]
    assert queue.end_flush() == [LOG]
    assert queue.done == ["journal", "nothing to do", "in place"]
    assert [log.recovery_point for log in queue.logs] == [1, 0, 0]


def test_an_old_journal_goes_when_its_logs_are_flushed(tmp_path: Path) -> None:
    queue = Queue(tmp_path, turn_over_ms=500)
    assert queue.queue.next_deadline_ms() is None
    queue.append()
    queue.wait("all")
    queue.end_flush()
    assert queue.queue.next_deadline_ms() == NOW_MS + 500
    queue.queue.on_tick(NOW_MS + 499)
    assert queue.outbox.flushes == []
    queue.queue.on_tick(NOW_MS + 500)
    assert queue.journals() == [FIRST], "not before"
    assert queue.end_flush() == [LOG] * 3
    assert queue.journals() == []
    assert [log.recovery_point for log in queue.logs] == [1, 1, 1]
    assert queue.queue.next_deadline_ms() is None and queue.queue.is_idle


def test_a_full_journal_is_followed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_queue, "FULL_JOURNAL_BYTES", 300)
    monkeypatch.setattr(flush_queue, "SETTLED_BESIDE", 1)
    queue = Queue(tmp_path)
    queue.append()
    queue.wait("first")
    assert queue.end_flush() == [LOG, FIRST, tmp_path.name], "with the flush that made it full the settling begins"
    queue.append(*queue.logs[:2])
    queue.wait("second", *queue.logs[:2])
    assert queue.end_flush() == [LOG, LOG], "nobody waited when the first ended: what was left went alone"
    assert queue.done == ["first"]
    assert [name for name in queue.end_flush() if name != tmp_path.name] == [SECOND]
    assert queue.done == ["first", "second"]
    assert queue.journals() == [SECOND]


def test_a_full_disk_gets_the_room_of_the_journal_back(tmp_path: Path) -> None:
    queue = Queue(tmp_path, 2)
    queue.append()
    queue.wait("journal")
    queue.end_flush()
    queue.queue._has_room = lambda: False
    queue.append()
    queue.wait("in place")
    assert queue.journals() == [FIRST]
    assert queue.end_flush() == [LOG] * 2
    assert queue.done == ["journal", "in place"]
    assert queue.journals() == [] and [log.recovery_point for log in queue.logs] == [2, 2]


def test_settling_does_not_hold_up_those_who_wait(tmp_path: Path) -> None:
    queue = Queue(tmp_path, 40, turn_over_ms=0)
    queue.append()
    queue.wait("all")
    queue.end_flush()
    queue.queue._under_way = blocked = FlushJob(99, (), ())  # a flush that takes its time, in which the journal grows old
    queue.append(*queue.logs[:2])
    queue.wait("urgent", *queue.logs[:2])
    queue.queue._turn_over()
    queue.queue.on_flushed(blocked, NOW_MS)
    assert len(queue.job().tokens) == 2 + flush_queue.SETTLED_BESIDE
    queue.end_flush()
    assert queue.done == ["all", "urgent"]
    assert len(queue.job().tokens) == 40 - flush_queue.SETTLED_BESIDE
    queue.end_flush()
    assert queue.journals() == [SECOND]


def test_a_log_that_is_deleted_needs_no_settling(tmp_path: Path) -> None:
    queue = Queue(tmp_path, 2, turn_over_ms=0)
    queue.append()
    queue.wait("both")
    queue.end_flush()
    queue.queue.forget(queue.logs[0], NOW_MS)
    queue.manager.delete("t", 0, NOW_MS)
    queue.queue.on_tick(NOW_MS)
    assert queue.end_flush() == [LOG]
    assert queue.journals() == []


def test_what_an_earlier_run_left_is_settled_first(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.append()
    queue.wait("all")
    queue.end_flush()
    kill(queue.manager, machine=False)
    manager = open_manager(tmp_path)
    outbox = Outbox()
    later = FlushQueue(outbox, manager.journal, to_settle=manager.logs.values())
    assert later.next_deadline_ms() == 0
    logs = list(manager.logs.values())
    for log in logs[:2]:
        log.append(batch([b"new"]), now_ms=NOW_MS)
    later.wait(logs[:2], lambda _: None, NOW_MS)
    assert queue.journals() == [FIRST], "a flush that others want does not make it go"
    for _ in range(2):
        for job in outbox.flushes:
            for file in job.files:
                file.fsync()
            later.on_flushed(job, NOW_MS)
        outbox.flushes.clear()
        later.on_tick(NOW_MS)
    assert queue.journals() == [] and [log.recovery_point for log in logs] == [2, 2, 1]
