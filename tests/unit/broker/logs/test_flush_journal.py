"""The conditions for a flush through the flush journal, and for the deletion of a journal."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, delete_log, kill, open_manager

from barnabas.broker.logs import flush_queue
from barnabas.broker.logs.disk_space import DiskSpace
from barnabas.broker.logs.flush_queue import FlushQueue, Frame
from barnabas.broker.outbox import FlushJob, Outbox
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.flush_journal import FlushJournal, JournalDecision
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig


def full_disk() -> DiskSpace:
    """Return the state of a disk that has no free byte for a journal."""
    space = DiskSpace(lambda: 0, 0)
    assert not space.reserve(1)
    return space


class Queue:
    """A flush queue over real logs. Each log has been flushed once, so the journal may be used."""

    def __init__(self, path: Path, logs: int = 3, **settings: int) -> None:
        self.path = path
        self.manager: LogManager = open_manager(path)
        self.logs = [
            self.manager.create("t", number, TOPIC_ID, LogConfig(), NOW_MS)
            for number in range(logs)
        ]
        self.outbox = Outbox()
        self.queue = FlushQueue(self.outbox, self.manager.journal, **settings)  # type: ignore[arg-type]
        self.done: list[str] = []
        for log in self.logs:
            log.files.make()
            log.flush()

    def append(self, *logs: Log, size: int = 10) -> None:
        for log in logs or self.logs:
            log.append(batch([bytes(size)]), now_ms=NOW_MS)

    def wait(self, name: str, *logs: Log, in_place: bool = False, now_ms: int = NOW_MS) -> None:
        """Wait for a flush of the given logs, or of all logs. When the flush has ended, the name is
        added to `done`.
        """
        self.queue.wait(
            logs or self.logs, lambda _: self.done.append(name), now_ms, in_place=in_place
        )

    def job(self) -> FlushJob:
        (job,) = self.outbox.flushes
        return job

    def end_flush(self, now_ms: int = NOW_MS) -> list[str]:
        """Complete the first flush. Gives the names of the flushed files."""
        job = self.outbox.flushes.pop(0)
        for file in job.files:
            file.fsync()
        self.queue.on_flushed(job, now_ms)
        return sorted(
            Path(getattr(file, "path", getattr(file, "directory", ""))).name for file in job.files
        )

    def journals(self) -> list[str]:
        return sorted(path.name for path in self.path.glob("barnabas-flush-*"))


FIRST, SECOND = "barnabas-flush-0000000001.journal", "barnabas-flush-0000000002.journal"
LOG = "00000000000000000000.log"


def test_several_logs_are_flushed_through_the_journal_alone(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.append()
    queue.wait("all")
    assert queue.end_flush() == [FIRST, tmp_path.name], (
        "the new journal, and the directory with its name"
    )
    assert queue.done == ["all"]
    assert [
        (log.durability.durable_offset, log.durability.recovery_point) for log in queue.logs
    ] == [(1, 0)] * 3
    queue.append()
    queue.wait("again")
    assert queue.end_flush() == [FIRST]
    assert queue.done == ["all", "again"] and queue.outbox.flushes == []


@pytest.mark.parametrize(
    ("fewest_logs", "files"), [(0, [LOG] * 2), (1, [FIRST]), (2, [FIRST]), (3, [LOG] * 2)]
)
def test_fewer_logs_than_the_setting_are_flushed_in_their_own_files(
    tmp_path: Path, fewest_logs: int, files: list[str]
) -> None:
    queue = Queue(tmp_path, 2, fewest_logs=fewest_logs)
    queue.append()
    queue.wait("both")
    assert [name for name in queue.end_flush() if name != tmp_path.name] == files


def test_a_log_with_many_bytes_to_flush_is_flushed_in_its_own_file(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.append()
    queue.append(queue.logs[1], size=flush_queue.MOST_BYTES_OF_A_FLUSH // 3)
    queue.wait("all")
    assert queue.end_flush() == [LOG, FIRST, tmp_path.name]
    assert [log.durability.recovery_point for log in queue.logs] == [0, 2, 0]
    assert queue.done == ["all"]


def test_the_most_bytes_of_a_log_in_the_journal_depend_on_the_number_of_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_queue, "MOST_BYTES_OF_A_LOG", 500)
    monkeypatch.setattr(flush_queue, "MOST_BYTES_OF_A_FLUSH", 2100)
    queue = Queue(tmp_path, 5)
    # two logs may have 1,050 bytes each, three 700, and any number 500
    for count, in_place in ((2, []), (3, [LOG] * 3)):
        queue.append(*queue.logs[:count], size=900)
        queue.wait("some", *queue.logs[:count])
        assert [name for name in queue.end_flush() if name == LOG] == in_place
    queue.append(size=400)
    queue.wait("all")
    assert LOG not in queue.end_flush(), "400 bytes are few enough for any number of logs"


def test_a_flush_in_place_flushes_own_files_although_the_journal_has_the_bytes(
    tmp_path: Path,
) -> None:
    """Compaction needs such a flush, since bytes in the journal do not make the cleaned segments
    durable.
    """
    queue = Queue(tmp_path)
    queue.append()
    queue.wait("journal")
    queue.end_flush()
    queue.wait("nothing to do")
    queue.wait("in place", queue.logs[0], in_place=True)
    assert queue.done == ["journal", "nothing to do"]
    assert queue.end_flush() == [LOG]
    assert queue.done == ["journal", "nothing to do", "in place"]
    assert [log.durability.recovery_point for log in queue.logs] == [1, 0, 0]


def test_an_old_journal_is_deleted_when_its_logs_are_flushed_in_place(tmp_path: Path) -> None:
    queue = Queue(tmp_path, journal_roll_ms=500)
    assert queue.queue.next_deadline_ms() is None
    queue.append()
    queue.wait("all")
    queue.end_flush()
    assert queue.queue.next_deadline_ms() == NOW_MS + 500
    queue.queue.on_tick(NOW_MS + 499)
    assert queue.outbox.flushes == []
    queue.queue.on_tick(NOW_MS + 500)
    assert queue.journals() == [FIRST], "the journal is kept until the logs' own files are flushed"
    assert queue.end_flush() == [LOG] * 3
    assert queue.journals() == []
    assert [log.durability.recovery_point for log in queue.logs] == [1, 1, 1]
    assert queue.queue.next_deadline_ms() is None and queue.queue.is_idle


def test_a_full_journal_is_followed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_queue, "FULL_JOURNAL_BYTES", 300)
    monkeypatch.setattr(flush_queue, "CHECKPOINTED_BESIDE", 1)
    queue = Queue(tmp_path)
    queue.append()
    queue.wait("first")
    assert queue.end_flush() == [FIRST, tmp_path.name]
    queue.append(*queue.logs[:2])
    queue.wait("second", *queue.logs[:2])
    assert queue.end_flush() == [LOG, SECOND, tmp_path.name], (
        "the next flush also checkpoints a log of the full journal"
    )
    assert queue.done == ["first", "second"]
    assert queue.journals() == [FIRST, SECOND]
    assert queue.end_flush() == [LOG, LOG], (
        "no request waits, so the remaining logs are checkpointed in a flush of their own"
    )
    assert queue.journals() == [SECOND]


def test_without_disk_space_logs_are_flushed_in_place_and_the_journal_is_deleted(
    tmp_path: Path,
) -> None:
    queue = Queue(tmp_path, 2)
    queue.append()
    queue.wait("journal")
    queue.end_flush()
    queue.queue._disk_space = full_disk()
    queue.append()
    queue.wait("in place")
    assert queue.journals() == [FIRST]
    assert queue.end_flush() == [LOG] * 2
    assert queue.done == ["journal", "in place"]
    assert queue.journals() == [] and [log.durability.recovery_point for log in queue.logs] == [
        2,
        2,
    ]


# --- decisions ----------------------------------------------------------------------------------


class Decider:
    """Adds a record of the log to its frame, and appends each step to `seen`."""

    def __init__(self, log: Log, name: str = "d") -> None:
        self.log, self.name = log, name
        self.seen: list[str] = []

    def __call__(self, frame: Frame | None, now_ms: int) -> None:
        """Add the decision to the frame. Without a journal (no frame), append the record
        instead.
        """
        self.seen.append("decided")
        if frame is None:
            self.append()
            self.seen.append("to be flushed")
        else:
            record = JournalDecision(b"key", self.name.encode(), ())
            frame.add(record, self.log, self.on_durable, self.on_undone)

    def on_undone(self, now_ms: int) -> None:
        self.seen.append("undone")

    def on_durable(self, now_ms: int) -> None:
        self.append()
        self.seen.append("journaled")

    def append(self) -> None:
        self.log.append(batch([self.name.encode()]), now_ms=NOW_MS)


def read_decisions(queue: Queue) -> list[bytes]:
    return [decision.value for decision in FlushJournal(OsDisk(), str(queue.path)).read().decisions]


def test_a_decision_is_in_the_same_frame_as_its_data(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    decider = Decider(queue.logs[2])
    queue.append(*queue.logs[:2])
    queue.queue.wait_for_frame(queue.logs[:2], decider, NOW_MS)
    assert decider.seen == ["decided"] and read_decisions(queue) == [b"d"]
    assert len(queue.job().tokens) == 2 and queue.logs[2].log_end_offset == 0
    assert queue.end_flush() == [FIRST, tmp_path.name]
    assert decider.seen == ["decided", "journaled"] and queue.logs[2].log_end_offset == 1
    assert queue.queue.is_idle and queue.outbox.flushes == []


def test_a_decision_waits_for_data_that_are_flushed_in_place(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    decider = Decider(queue.logs[2])
    queue.append(queue.logs[0])
    queue.append(queue.logs[1], size=flush_queue.MOST_BYTES_OF_A_FLUSH // 2)
    queue.queue.wait_for_frame(queue.logs[:2], decider, NOW_MS)
    assert decider.seen == [] and queue.end_flush() == [LOG, FIRST, tmp_path.name]
    assert decider.seen == ["decided"] and queue.job().tokens == ()
    assert queue.end_flush() == [FIRST] and decider.seen == ["decided", "journaled"]


def test_a_decision_without_data_needs_one_flush(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    decider = Decider(queue.logs[2])
    queue.queue.wait_for_frame([], decider, NOW_MS)
    assert queue.end_flush() == [FIRST, tmp_path.name] and decider.seen == ["decided", "journaled"]


def test_decisions_that_come_during_a_flush_share_the_next(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    deciders = [Decider(queue.logs[2], name) for name in "abc"]
    queue.append(queue.logs[0])
    for decider in deciders:
        queue.queue.wait_for_frame(queue.logs[:1], decider, NOW_MS)
    assert [decider.seen for decider in deciders] == [["decided"], [], []]
    queue.end_flush()
    assert [decider.seen for decider in deciders] == [
        ["decided", "journaled"],
        ["decided"],
        ["decided"],
    ]
    queue.end_flush()
    assert [decider.seen for decider in deciders] == [["decided", "journaled"]] * 3
    assert queue.outbox.flushes == [] and read_decisions(queue) == [b"a", b"b", b"c"]


def test_a_waiter_that_adds_nothing_to_the_frame_causes_no_flush(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.queue.wait_for_frame([], lambda frame, now_ms: None, NOW_MS)
    assert queue.outbox.flushes == [] and queue.queue.is_idle


def test_a_decision_does_not_wait_for_a_deleted_log(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    decider = Decider(queue.logs[2])
    queue.append(queue.logs[0])
    queue.wait("under way", queue.logs[0])
    queue.append(queue.logs[1])
    queue.queue.wait_for_frame(queue.logs[1:2], decider, NOW_MS)
    queue.queue.forget(queue.logs[1], NOW_MS)
    queue.end_flush()
    assert queue.end_flush() == [FIRST, tmp_path.name] and decider.seen == ["decided", "journaled"]


@pytest.mark.parametrize("why", ["no room", "never"])
def test_without_a_journal_a_decision_is_made_after_the_flush_of_its_data(
    tmp_path: Path, why: str
) -> None:
    queue = Queue(tmp_path, fewest_logs=0) if why == "never" else Queue(tmp_path)
    if why == "no room":
        queue.queue._disk_space = full_disk()
    decider = Decider(queue.logs[2])
    queue.append(*queue.logs[:2])
    queue.queue.wait_for_frame(queue.logs[:2], decider, NOW_MS)
    assert decider.seen == [] and queue.end_flush() == [LOG, LOG]
    assert decider.seen == ["decided", "to be flushed"]
    assert queue.journals() == [] and queue.queue.is_idle


def with_decision(path: Path, **settings: int) -> Queue:
    """Return a queue with a decision that is durable in a journal. A later flush is requested for
    the logs with the decision's effects, but not for the log that contains the decision.
    """
    queue = Queue(path, **settings)
    queue.append(*queue.logs[:2])
    queue.queue.wait_for_frame(queue.logs[:2], Decider(queue.logs[2]), NOW_MS)
    queue.end_flush()
    queue.append(*queue.logs[:2])
    queue.queue.flush_later(queue.logs[:2], NOW_MS)
    return queue


def test_the_effects_of_a_decision_are_flushed_after_a_while(tmp_path: Path) -> None:
    queue = with_decision(tmp_path)
    assert (
        queue.outbox.flushes == []
        and queue.queue.next_deadline_ms() == NOW_MS + flush_queue.LONGEST_LATER_MS
    )
    queue.append(*queue.logs[:2])
    queue.queue.on_tick(NOW_MS + flush_queue.LONGEST_LATER_MS)
    assert queue.end_flush() == [FIRST]
    assert [log.durability.durable_offset for log in queue.logs] == [2, 2, 0], (
        "later appends are not flushed"
    )
    assert queue.queue.next_deadline_ms() == NOW_MS + 60_000


def test_the_effects_of_a_decision_are_not_flushed_when_another_flush_ends(tmp_path: Path) -> None:
    """A decision's effects wait for their own deadline, even if they are added during another
    flush.
    """
    queue = Queue(tmp_path)
    queue.append(*queue.logs[:2])
    queue.queue.wait_for_frame(queue.logs[:2], Decider(queue.logs[2]), NOW_MS)
    queue.end_flush()
    queue.append(queue.logs[2])
    queue.wait("other", queue.logs[2])
    queue.append(*queue.logs[:2])
    queue.queue.flush_later(queue.logs[:2], NOW_MS)
    queue.end_flush()
    assert queue.done == ["other"] and queue.outbox.flushes == []
    queue.queue.on_tick(NOW_MS + flush_queue.LONGEST_LATER_MS)
    queue.end_flush()
    assert [log.durability.durable_offset for log in queue.logs] == [2, 2, 2]


def test_the_effects_of_a_decision_are_flushed_with_any_flush_that_starts(tmp_path: Path) -> None:
    queue = with_decision(tmp_path)
    queue.wait("other", queue.logs[2])
    assert queue.end_flush() == [FIRST]
    assert [log.durability.durable_offset for log in queue.logs] == [2, 2, 1] and queue.done == [
        "other"
    ]
    assert queue.queue.next_deadline_ms() == NOW_MS + 60_000


def test_without_disk_space_the_effects_of_a_decision_are_flushed_in_place(tmp_path: Path) -> None:
    queue = with_decision(tmp_path)
    queue.queue._disk_space = full_disk()
    queue.queue.on_tick(NOW_MS + flush_queue.LONGEST_LATER_MS)
    while queue.outbox.flushes:
        assert set(queue.end_flush()) == {LOG}
    assert [log.durability.recovery_point for log in queue.logs] == [2, 2, 1]
    assert queue.journals() == []


def test_effects_of_a_decision_in_a_closed_segment_are_flushed_in_place(tmp_path: Path) -> None:
    queue = with_decision(tmp_path)
    queue.logs[0]._roll(NOW_MS)
    queue.append(queue.logs[0])
    queue.queue.on_tick(NOW_MS + flush_queue.LONGEST_LATER_MS)
    assert LOG in queue.end_flush()
    assert (
        queue.logs[0].durability.recovery_point == 3
        and queue.logs[1].durability.durable_offset == 2
    )


def test_no_decision_is_made_during_a_flush_in_place_of_earlier_effects(tmp_path: Path) -> None:
    """A power loss during this flush might keep only the frame with the new decision. But the
    producer of that decision may have read the effects of the earlier one.
    """
    queue = with_decision(tmp_path)
    queue.logs[0]._roll(NOW_MS)
    queue.append(queue.logs[0])
    decider = Decider(queue.logs[2])
    queue.append(queue.logs[1])
    queue.queue.wait_for_frame(queue.logs[1:2], decider, NOW_MS)
    assert decider.seen == [] and LOG in queue.end_flush()
    assert decider.seen == ["decided"] and queue.end_flush() == [FIRST]
    assert decider.seen == ["decided", "journaled"]


def test_effects_of_a_decision_with_many_bytes_are_flushed_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_queue, "MOST_BYTES_OF_A_LOG", 100)
    monkeypatch.setattr(flush_queue, "MOST_BYTES_OF_A_FLUSH", 1000)
    queue = Queue(tmp_path)
    queue.queue.wait_for_frame([], Decider(queue.logs[2]), NOW_MS)
    queue.end_flush()
    queue.append(*queue.logs[:2], size=600)
    queue.queue.flush_later(queue.logs[:2], NOW_MS)
    queue.queue.on_tick(NOW_MS + flush_queue.LONGEST_LATER_MS)
    assert queue.end_flush() == [LOG, LOG]


@pytest.mark.parametrize("when", ["before", "with it under way"])
def test_a_journal_is_kept_until_the_effects_of_its_decisions_are_flushed_in_place(
    tmp_path: Path, when: str
) -> None:
    queue = Queue(tmp_path, journal_roll_ms=0)
    decider = Decider(queue.logs[2])
    queue.append(*queue.logs[:2])
    queue.queue.wait_for_frame(queue.logs[:2], decider, NOW_MS)
    if when == "with it under way":
        queue.queue.on_tick(NOW_MS)
        queue.end_flush()
    else:
        queue.end_flush()
        queue.queue.on_tick(NOW_MS)
    assert decider.seen[-1] == "journaled" and queue.journals() == [FIRST]
    queue.append(*queue.logs[:2])  # markers that are appended while the checkpointing flush runs
    queue.queue.flush_later(queue.logs[:2], NOW_MS)
    while queue.outbox.flushes:
        assert queue.journals()[:1] == [FIRST]
        queue.end_flush()
    assert [log.durability.recovery_point for log in queue.logs] == [2, 2, 1]
    assert FIRST not in queue.journals()


def test_a_flush_for_waiting_requests_checkpoints_only_a_few_further_logs(tmp_path: Path) -> None:
    queue = Queue(tmp_path, 40, journal_roll_ms=0)
    queue.append()
    queue.wait("all")
    queue.end_flush()
    queue.queue._under_way = blocked = FlushJob(
        99, (), ()
    )  # the journal becomes old during this long flush
    queue.append(*queue.logs[:2])
    queue.wait("urgent", *queue.logs[:2])
    queue.queue._roll_journal()
    queue.queue.on_flushed(blocked, NOW_MS)
    assert len(queue.job().tokens) == 2 + flush_queue.CHECKPOINTED_BESIDE
    queue.end_flush()
    assert queue.done == ["all", "urgent"]
    assert len(queue.job().tokens) == 40 - flush_queue.CHECKPOINTED_BESIDE
    queue.end_flush()
    assert queue.journals() == [SECOND]


def test_a_log_that_is_deleted_needs_no_checkpoint(tmp_path: Path) -> None:
    queue = Queue(tmp_path, 2, journal_roll_ms=0)
    queue.append()
    queue.wait("both")
    queue.end_flush()
    queue.queue.forget(queue.logs[0], NOW_MS)
    delete_log(queue.manager, "t", 0, NOW_MS)
    queue.queue.on_tick(NOW_MS)
    assert queue.end_flush() == [LOG]
    assert queue.journals() == []


def test_the_journal_of_an_earlier_run_is_deleted_after_its_logs_are_checkpointed(
    tmp_path: Path,
) -> None:
    queue = Queue(tmp_path)
    queue.append()
    queue.wait("all")
    queue.end_flush()
    kill(queue.manager, machine=False)
    manager = open_manager(tmp_path)
    outbox = Outbox()
    later = FlushQueue(outbox, manager.journal, logs_to_checkpoint=manager.logs.values())
    assert later.next_deadline_ms() == 0
    logs = list(manager.logs.values())
    for log in logs[:2]:
        log.append(batch([b"new"]), now_ms=NOW_MS)
    later.wait(logs[:2], lambda _: None, NOW_MS)
    assert queue.journals() == [FIRST], "a flush for waiting requests does not delete it"
    for _ in range(2):
        for job in outbox.flushes:
            for file in job.files:
                file.fsync()
            later.on_flushed(job, NOW_MS)
        outbox.flushes.clear()
        later.on_tick(NOW_MS)
    assert queue.journals() == [] and [log.durability.recovery_point for log in logs] == [2, 2, 1]


# --- more logs than one flush takes ---------------------------------------------------------------


class Decisions:
    """Adds a decision to a frame. When the frame is durable, it appends the decision's effects to
    the given logs.
    """

    def __init__(self, queue: Queue, name: str, *logs: Log) -> None:
        self.queue, self.name, self.logs = queue, name, logs
        queue.queue.wait_for_frame(logs, self.add, NOW_MS)

    def add(self, frame: Frame | None, _now_ms: int) -> None:
        """Add the decision to the frame. Its record belongs to the first log."""
        assert frame is not None
        decision = JournalDecision(self.name.encode(), b"", ())
        frame.add(decision, self.logs[0], self.on_durable, lambda _now_ms: None)

    def on_durable(self, now_ms: int) -> None:
        """Append the effects to all logs, and request a later flush of them."""
        self.queue.done.append(self.name)
        self.queue.append(*self.logs)
        self.queue.queue.flush_later(self.logs, now_ms)


def test_a_flush_has_a_bounded_number_of_logs_and_the_next_has_the_rest(tmp_path: Path) -> None:
    queue = Queue(tmp_path, logs=5)
    queue.queue.most_logs = 2
    queue.append()
    queue.wait("all")
    queue.wait("first", queue.logs[0])
    counts = []
    while queue.outbox.flushes:
        counts.append(len(queue.job().tokens))
        queue.end_flush()
    assert counts == [2, 2, 1]
    assert sorted(queue.done) == ["all", "first"] and queue.queue.is_idle


def test_a_decision_is_in_the_frame_with_the_last_of_its_data(tmp_path: Path) -> None:
    queue = Queue(tmp_path, logs=5)
    queue.queue.most_logs = 2
    queue.append()
    Decisions(queue, "all", *queue.logs)
    assert queue.queue._journal is not None
    frames = 0
    while queue.outbox.flushes:
        frames += 1
        queue.end_flush()
        assert bool(queue.done) == (frames == 3)
    assert queue.done == ["all"]
    redo = FlushJournal(OsDisk(), str(tmp_path)).read()
    assert [key for key, *_ in redo.decisions] == [b"all"]


def test_a_decision_is_durable_only_after_all_effects_of_an_earlier_one(tmp_path: Path) -> None:
    """The producer of the later record may have read any effect of the earlier decision."""
    queue = Queue(tmp_path, logs=5)
    queue.append()
    Decisions(queue, "first", *queue.logs)
    queue.end_flush()
    queue.queue.most_logs = 2
    other = queue.manager.create("u", 0, TOPIC_ID, LogConfig(), NOW_MS)
    other.files.make()
    other.flush()
    queue.append(other)
    Decisions(queue, "second", other)
    ends = [log.log_end_offset for log in queue.logs]
    while "second" not in queue.done:
        queue.end_flush()
    assert [log.durability.durable_offset for log in queue.logs] == ends


def test_logs_of_waiting_requests_are_flushed_before_effects_of_decisions(tmp_path: Path) -> None:
    queue = Queue(tmp_path, logs=6)
    queue.append()
    Decisions(queue, "first", *queue.logs[:5])
    queue.end_flush()
    queue.queue.most_logs = 2
    queue.append(queue.logs[5])
    queue.wait("request", queue.logs[5])
    queue.end_flush()
    assert queue.done == ["first", "request"]


def test_a_frame_has_a_bounded_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush_queue, "BYTES_OF_A_FRAME", 5_000)
    queue = Queue(tmp_path, logs=4)
    queue.append(size=3_000)
    queue.wait("all")
    assert len(queue.job().tokens) == 2
    queue.end_flush()
    assert len(queue.job().tokens) == 2
    queue.end_flush()
    assert queue.done == ["all"]
