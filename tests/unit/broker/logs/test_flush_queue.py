"""Group commit: one flush runs at a time, and the next one serves all waiting callbacks that were
added in the meantime.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from helpers.raised_faults import contained_faults

from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.outbox import Outbox
from barnabas.storage.log.durability import FlushToken, LogEnd


class FakeLog:
    """A log that counts appends; a flush covers the appends that were made before it began."""

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.flushed = 0
        self.durability = self

    def append(self) -> None:
        self.log_end_offset += 1

    @property
    def durable_offset(self) -> int:
        return self.flushed

    def begin_flush(self) -> Any:
        """Like a real log, return None if everything is flushed."""
        return (
            None
            if self.flushed == self.log_end_offset
            else FlushToken((), (self.log_end_offset, 0, 0))
        )

    def finish_flush(self, token: FlushToken) -> None:
        self.flushed = max(self.flushed, token.end[0])


class Queue:
    def __init__(self) -> None:
        self.outbox = Outbox()
        self.queue = FlushQueue(self.outbox)
        self.done: list[tuple[str, int]] = []

    def wait(self, name: str, *logs: FakeLog, now_ms: int = 1) -> None:
        self.queue.wait(cast(Any, logs), lambda then_ms: self.done.append((name, then_ms)), now_ms)

    def end_flush(self, now_ms: int = 2) -> int:
        """Complete the first requested flush. Gives the number of logs in it."""
        job = self.outbox.flushes.pop(0)
        self.queue.on_flushed(job, now_ms)
        return len(job.tokens)


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    log.append()
    return log


def test_a_callback_for_flushed_logs_runs_at_once(queue: Queue, log: FakeLog) -> None:
    log.flushed = 1
    queue.wait("a", log)
    assert queue.done == [("a", 1)]
    assert queue.outbox.flushes == [] and queue.queue.is_idle


def test_waiters_during_a_flush_are_served_together_by_the_next(queue: Queue, log: FakeLog) -> None:
    queue.wait("first", log)
    for name in "bcd":
        log.append()
        queue.wait(name, log)
    assert len(queue.outbox.flushes) == 1, "one at a time"
    queue.end_flush(5)
    assert queue.done == [("first", 5)]
    assert len(queue.outbox.flushes) == 1
    queue.end_flush(6)
    assert queue.done == [("first", 5), ("b", 6), ("c", 6), ("d", 6)]
    assert queue.outbox.flushes == [] and queue.queue.is_idle


def test_a_flush_includes_what_was_appended_before_it_began(queue: Queue, log: FakeLog) -> None:
    """There are two waiting callbacks for two logs. The second log's data was appended before the
    flush that serves the second callback.
    """
    other = FakeLog()
    queue.wait("first", log)
    other.append()
    queue.wait("both", log, other)
    assert queue.end_flush() == 1
    assert [name for name, _ in queue.done] == ["first"]
    assert queue.end_flush() == 1, "the first log has nothing new"
    assert [name for name, _ in queue.done] == ["first", "both"]


def test_a_waiter_of_several_logs_waits_for_all(queue: Queue, log: FakeLog) -> None:
    other = FakeLog()
    other.append()
    queue.wait("both", log, other)
    assert queue.end_flush() == 2
    assert queue.done == [("both", 2)]


def test_callbacks_run_when_their_log_was_flushed_without_the_queue(
    queue: Queue, log: FakeLog
) -> None:
    """For example, the Complete records are flushed directly before a topic is deleted, possibly
    while another flush ends.
    """
    other = FakeLog()
    other.append()

    def flush_the_log(_now_ms: int) -> None:
        log.finish_flush(log.begin_flush())

    queue.queue.wait(cast(Any, [other]), flush_the_log, 1)
    queue.wait("a", log)
    assert queue.end_flush(5) == 1
    assert queue.done == [("a", 5)]
    assert queue.outbox.flushes == [] and queue.queue.is_idle


def test_an_error_of_one_does_not_stop_the_flushes_of_others(queue: Queue, log: FakeLog) -> None:
    def fail(_frame: object, _now_ms: int) -> None:
        raise ValueError("a request that cannot be handled")

    with contained_faults():
        queue.queue.wait_for_frame([], fail, 1)
    queue.wait("a", log)
    queue.end_flush()
    assert queue.done == [("a", 2)]


def test_a_continuation_may_wait_again(queue: Queue, log: FakeLog) -> None:
    """EndTxn waits twice: for the data to be durable, and then for the decision."""
    decisions = FakeLog()

    def decide(now_ms: int) -> None:
        queue.done.append(("data", now_ms))
        decisions.append()
        queue.wait("decision", decisions, now_ms=now_ms)

    queue.queue.wait(cast(Any, [log]), decide, 1)
    queue.end_flush(2)
    assert queue.done == [("data", 2)]
    queue.end_flush(3)
    assert queue.done == [("data", 2), ("decision", 3)]


def test_callbacks_do_not_wait_for_a_forgotten_log(queue: Queue, log: FakeLog) -> None:
    other = FakeLog()
    other.append()
    queue.wait("one", log)
    queue.wait("other", other)
    queue.wait("both", log, other)
    queue.queue.forget(cast(Any, other), 7)
    assert queue.done == [("other", 7)]
    queue.end_flush(8)
    assert queue.done == [("other", 7), ("one", 8), ("both", 8)]
    assert queue.outbox.flushes == [] and queue.queue.is_idle


def test_the_end_of_a_flush_that_is_not_under_way_is_an_error(queue: Queue, log: FakeLog) -> None:
    queue.wait("a", log)
    job = queue.outbox.flushes[0]
    queue.end_flush()
    with pytest.raises(AssertionError, match="not under way"):
        queue.queue.on_flushed(job, 3)


# --- with a journal -----------------------------------------------------------------------------


class JournaledLog(FakeLog):
    """A log whose offsets count bytes. With `is_closed`, an earlier segment is not durable, so a
    flush must go to the log's own files.
    """

    def __init__(self, name: str, appended: int = 1) -> None:
        super().__init__()
        self.name, self.log_end_offset = name, appended
        self.recovery_point = 0
        self.is_closed = False

    def __repr__(self) -> str:
        return self.name

    @property
    def end(self) -> LogEnd:
        return self.log_end_offset, 0, self.log_end_offset

    def begin_flush(self) -> Any:
        if self.recovery_point == self.log_end_offset:
            return None
        return FlushToken(cast(Any, (self.name,)), (self.log_end_offset, 0, 0))

    def try_begin_journal(self, most_bytes: int, end: LogEnd | None) -> Any:
        end = end or self.end
        if self.is_closed or end[0] - self.flushed > most_bytes:
            return None
        return FakeEntry(self.name, end[0]), end

    def finish_flush(self, token: FlushToken | LogEnd) -> bool:
        end = token.end if isinstance(token, FlushToken) else token
        self.flushed = max(self.flushed, end[0])
        if isinstance(token, FlushToken):
            self.recovery_point = max(self.recovery_point, end[0])
        return True


class FakeEntry(NamedTuple):
    """A log's entry for the journal, without data."""

    name: str
    end: int
    data: bytes = b""


class FakeJournal:
    """A journal that records its calls. `frames` has the (entries, records) of each frame so far,
    in all journals.
    """

    def __init__(self, *, has_older: bool = False) -> None:
        self.size_bytes, self.has_older = 0, has_older
        self.frames: list[tuple[list[Any], list[Any]]] = []
        self.forgotten: list[bool] = []
        self.begun = self.flushed = 0

    def append(self, entries: Any, records: Any) -> list[Any]:
        self.frames.append(([entry[:2] for entry in entries], list(records)))
        self.size_bytes += 100
        return ["journal"]

    def note_flushed(self) -> None:
        self.flushed += 1

    def begin_next(self) -> None:
        self.size_bytes, self.has_older = 0, True
        self.begun += 1

    def forget_older(self, *, keep_earlier: bool) -> None:
        self.has_older = False
        self.forgotten.append(keep_earlier)


class JournaledQueue(Queue):
    def __init__(self, *, has_older: bool = False, **settings: Any) -> None:
        super().__init__()
        self.journal = FakeJournal(has_older=has_older)
        self.space = SimpleNamespace(is_full=False)
        self.advanced: list[tuple[str, int]] = []
        self.queue = FlushQueue(
            self.outbox,
            cast(Any, self.journal),
            disk_space=cast(Any, self.space),
            on_advanced=lambda log, now_ms: self.advanced.append((repr(log), now_ms)),
            **settings,
        )

    def wait_for_frame(
        self, name: str, *logs: FakeLog, adds: JournaledLog | None = None, now_ms: int = 1
    ) -> None:
        """Wait for a frame. With `adds`, a record of that log is put into the frame, and appended
        to the log once the frame is durable.
        """

        def then(frame: Any, then_ms: int) -> None:
            self.done.append((name if frame else f"{name} without", then_ms))
            if frame is not None and adds is not None:
                follow, undo = self._follow(name, adds), lambda ms: self._undone(name, ms)
                frame.add(f"record of {name}", adds, follow, undo)

        self.queue.wait_for_frame(cast(Any, logs), then, now_ms)

    def _undone(self, name: str, now_ms: int) -> None:
        self.done.append((f"{name} is undone", now_ms))

    def _follow(self, name: str, log: JournaledLog) -> Any:
        """Return a callback that does what the coordinator does when the frame with its record is
        durable: append the record to the log.
        """

        def follow(now_ms: int) -> None:
            self.done.append((f"{name} is durable", now_ms))
            log.append()
            self.queue.flush_later([cast(Any, log)], now_ms)

        return follow

    def files(self) -> list[Any]:
        """The files of the current flush."""
        (job,) = self.outbox.flushes
        return list(job.files)


def logs_of(*sizes: int) -> list[JournaledLog]:
    return [JournaledLog(f"log {number}", size) for number, size in enumerate(sizes)]


def test_several_logs_with_little_data_are_written_to_the_journal_together() -> None:
    queue = JournaledQueue(fewest_logs=3)
    a, b, c = logs_of(1, 2, 3)
    queue.wait("two", a, b)
    assert queue.files() == ["log 0", "log 1"], "too few for the journal"
    queue.end_flush(2)
    for log in (a, b):
        log.append()
    queue.wait("three", a, b, c, now_ms=3)
    assert queue.files() == ["journal"]
    assert queue.journal.frames == [([("log 0", 2), ("log 1", 3), ("log 2", 3)], [])]
    queue.end_flush(4)
    assert queue.done == [("two", 2), ("three", 4)]
    assert queue.advanced == [("log 0", 2), ("log 1", 2)] + [
        (f"log {number}", 4) for number in range(3)
    ]
    assert [log.recovery_point for log in (a, b, c)] == [1, 2, 0], (
        "their own files are flushed later"
    )
    assert queue.journal.flushed == 2


@pytest.mark.parametrize("settings", [{"fewest_logs": 0}, {"fewest_logs": 2}])
def test_without_a_journal_logs_are_flushed_to_their_own_files(settings: dict[str, int]) -> None:
    """The journal is switched off (fewest_logs=0), or the disk is full."""
    queue = JournaledQueue(**settings)
    queue.space.is_full = settings["fewest_logs"] > 0
    queue.wait("a", *logs_of(1, 1, 1))
    assert queue.files() == ["log 0", "log 1", "log 2"] and queue.journal.frames == []


@pytest.mark.parametrize(
    ("sizes", "in_place"),
    [
        ((1, (1 << 19)), []),  # a log may use half of the bytes of a flush
        ((1, (1 << 19) + 1), ["log 1"]),
        ((1,) * 40 + (32 << 10,), []),  # 32 KiB are always allowed
        ((1,) * 40 + ((32 << 10) + 1,), ["log 40"]),
    ],
)
def test_a_log_with_more_than_its_share_goes_to_its_own_files(
    sizes: tuple[int, ...], in_place: list[str]
) -> None:
    queue = JournaledQueue()
    queue.wait("a", *logs_of(*sizes))
    assert queue.files() == [*in_place, "journal"]
    assert len(queue.journal.frames[0][0]) == len(sizes) - len(in_place)
    queue.end_flush()
    assert queue.done == [("a", 2)]


def test_a_callback_with_in_place_waits_for_the_logs_own_files() -> None:
    queue = JournaledQueue()
    a, b, c = logs_of(1, 1, 1)
    queue.wait("first", a, b, c)
    queue.end_flush(2)
    queue.queue.wait(
        cast(Any, [a, b]), lambda now_ms: queue.done.append(("in place", now_ms)), 3, in_place=True
    )
    assert queue.files() == ["log 0", "log 1"]
    c.append()
    queue.wait("meanwhile", a, c)
    queue.end_flush(4)
    assert queue.done == [("first", 2), ("in place", 4)]
    queue.end_flush(5)
    assert queue.done[2:] == [("meanwhile", 5)]


def test_one_callback_with_in_place_sends_the_flush_to_the_logs_own_files() -> None:
    queue = JournaledQueue()
    first, a, b = logs_of(1, 1, 1)
    queue.wait("before", first)
    for in_place in (False, True, False):
        queue.queue.wait(cast(Any, [a, b]), lambda _now_ms: None, 1, in_place=in_place)
    queue.end_flush(2)
    assert queue.files() == ["log 1", "log 2"]


def test_a_decision_and_its_data_go_into_one_journal_frame() -> None:
    """A commit's decision must not be durable before the transaction's data. If one journal frame
    has both, the commit needs one flush less.
    """
    queue = JournaledQueue(fewest_logs=9)
    data, decisions = logs_of(1, 0)
    queue.wait_for_frame("commit", data, adds=decisions)
    assert queue.done == [("commit", 1)]
    assert queue.journal.frames == [([("log 0", 1)], ["record of commit"])], "in one flush"
    queue.end_flush(2)
    assert queue.done == [("commit", 1), ("commit is durable", 2)]
    assert decisions.log_end_offset == 1 and decisions.flushed == 0
    assert queue.outbox.flushes == [] and queue.queue.is_idle, "no request waits for what follows"


def test_the_decision_is_appended_before_other_callbacks_for_the_same_data_run() -> None:
    """The other callbacks, and the next requests of their clients, see the state after the
    decision.
    """
    queue = JournaledQueue(fewest_logs=9)
    data, decisions = logs_of(1, 0)
    queue.wait_for_frame("commit", data, adds=decisions)
    queue.wait("another", data)
    queue.end_flush(2)
    assert queue.done == [("commit", 1), ("commit is durable", 2), ("another", 2)]


def test_a_decision_waits_for_the_running_flush_that_has_its_data() -> None:
    queue = JournaledQueue()
    a, b, decisions = logs_of(1, 1, 0)
    queue.wait("a", a, b)
    queue.wait_for_frame("commit", a, adds=decisions)
    assert queue.done == []
    queue.end_flush(2)
    assert queue.done == [("a", 2), ("commit", 2)]
    assert queue.journal.frames[1] == ([], ["record of commit"])


def test_a_decision_waits_for_data_that_goes_to_its_own_files() -> None:
    queue = JournaledQueue()
    data, decisions = logs_of(1, 0)
    # an earlier segment is not durable, so the data cannot go to the journal
    data.is_closed = True
    queue.wait_for_frame("commit", data, adds=decisions)
    assert queue.files() == ["log 0"] and queue.done == [] and queue.journal.frames == []
    queue.end_flush(2)
    assert queue.done == [("commit", 2)] and queue.journal.frames == [([], ["record of commit"])]


def test_an_appended_decision_is_in_the_next_frame_before_its_records() -> None:
    """The first decision was appended to its log after its frame was durable. The next frame has
    this log's data, so a start restores the decisions in their order.
    """
    queue = JournaledQueue()
    decisions, data = logs_of(0, 1)
    queue.wait_for_frame("first", adds=decisions)
    queue.end_flush(2)
    queue.wait_for_frame("second", data, adds=decisions, now_ms=3)
    assert queue.journal.frames[1] == ([("log 0", 1), ("log 1", 1)], ["record of second"])


def test_a_frame_has_no_record_while_earlier_decisions_are_flushed_to_their_own_file() -> None:
    """A power loss may keep the frame but lose the changes in the log's own file."""
    queue = JournaledQueue()
    decisions, data = logs_of(0, 1)
    queue.wait_for_frame("first", adds=decisions)
    queue.end_flush(2)
    decisions.is_closed = True
    queue.wait_for_frame("second", data, adds=decisions, now_ms=3)
    assert queue.journal.frames[1] == ([("log 1", 1)], [])
    assert queue.files() == ["log 0", "journal"]
    queue.end_flush(4)
    assert queue.journal.frames[2] == ([], ["record of second"])


def test_an_appended_decision_is_flushed_by_itself_after_100_ms() -> None:
    queue = JournaledQueue()
    (decisions,) = logs_of(0)
    queue.wait_for_frame("first", adds=decisions)
    queue.end_flush(1_000)
    assert queue.queue.next_deadline_ms() == 1_100
    queue.queue.on_tick(1_099)
    assert queue.outbox.flushes == []
    queue.queue.on_tick(1_100)
    assert queue.journal.frames[1] == ([("log 0", 1)], [])
    queue.end_flush(1_101)
    assert queue.queue.next_deadline_ms() == 1 + 60_000, (
        "only the maximum age of the journal is left as a deadline"
    )


def test_later_appends_do_not_postpone_a_delayed_flush() -> None:
    queue = JournaledQueue()
    (decisions,) = logs_of(1)
    queue.queue.flush_later([cast(Any, decisions)], 1_000)
    decisions.append()
    queue.queue.flush_later([cast(Any, decisions)], 1_050)
    assert queue.queue.next_deadline_ms() == 1_100
    queue.queue.on_tick(1_100)
    assert queue.journal.frames == [([("log 0", 2)], [])]


def test_on_a_full_disk_a_wait_for_a_frame_ends_without_one_when_the_files_are_flushed() -> None:
    queue = JournaledQueue()
    a, b = logs_of(1, 1)
    queue.space.is_full = True
    queue.wait_for_frame("commit", a, b)
    assert queue.files() == ["log 0", "log 1"] and queue.done == []
    queue.wait_for_frame("at once")
    assert queue.done == [("at once without", 1)]
    queue.end_flush(2)
    assert queue.done == [("at once without", 1), ("commit without", 2)]
    assert queue.queue.is_idle and queue.journal.frames == []


def journaled(**settings: Any) -> tuple[JournaledQueue, list[JournaledLog]]:
    """A queue and two logs whose data has been only in the journal since 2 ms."""
    queue = JournaledQueue(**settings)
    logs = logs_of(1, 1)
    queue.wait("a", *logs)
    queue.end_flush(2)
    return queue, logs


def test_an_old_journal_is_rolled_and_deleted_when_its_logs_are_checkpointed() -> None:
    queue, logs = journaled(journal_roll_ms=500)
    assert queue.queue.next_deadline_ms() == 501, "it began with its first frame"
    queue.queue.on_tick(500)
    assert queue.journal.begun == 0
    queue.queue.on_tick(501)
    assert queue.journal.begun == 1 and queue.files() == ["log 0", "log 1"]
    assert queue.journal.forgotten == []
    queue.end_flush(502)
    assert queue.journal.forgotten == [False] and queue.queue.next_deadline_ms() is None
    assert [log.recovery_point for log in logs] == [1, 1]


def test_a_full_journal_is_rolled_by_the_next_flush() -> None:
    queue, logs = journaled()
    queue.queue.full_journal_bytes = 101
    for log in logs:
        log.append()
    queue.wait("b", *logs)
    assert queue.journal.begun == 0
    queue.end_flush(3)
    for log in logs:
        log.append()
    queue.wait("c", *logs)
    assert queue.journal.begun == 1
    assert queue.files() == ["journal", "log 0", "log 1"], (
        "the flush also checkpoints the logs of the full journal"
    )
    queue.end_flush(4)
    assert queue.journal.forgotten == [False]


def test_on_a_full_disk_the_journal_is_rolled_so_that_it_can_be_deleted() -> None:
    queue, logs = journaled()
    queue.space.is_full = True
    logs[0].append()
    queue.wait("b", logs[0])
    assert queue.journal.begun == 1 and queue.files() == ["log 0", "log 1"]
    queue.end_flush(3)
    assert queue.journal.forgotten == [False]


@pytest.mark.parametrize(("waits", "at_a_time"), [(True, 8), (False, 64)])
def test_logs_are_checkpointed_a_few_at_a_time(waits: bool, at_a_time: int) -> None:
    """If requests wait for a flush, it also checkpoints 8 logs of earlier journals, so that it
    stays short. A flush of an idle queue checkpoints 64.
    """
    earlier = [JournaledLog(f"old {number}") for number in range(100)]
    queue = JournaledQueue(has_older=True, logs_to_checkpoint=earlier)
    assert queue.queue.next_deadline_ms() == 0
    if waits:
        queue.wait("a", JournaledLog("new"))
    else:
        queue.queue.on_tick(1)
    files = queue.files()
    assert len([file for file in files if file.startswith("old")]) == at_a_time
    assert queue.queue.next_deadline_ms() is None, "a flush is under way"
    for now_ms in range(2, 40):
        if queue.outbox.flushes:
            queue.end_flush(now_ms)
        queue.queue.on_tick(now_ms)
        assert (queue.journal.forgotten == [False]) == all(log.recovery_point for log in earlier)
    assert queue.journal.forgotten == [False]


def test_journals_of_an_earlier_run_are_kept_while_logs_are_offline() -> None:
    queue = JournaledQueue(
        has_older=True,
        logs_to_checkpoint=[JournaledLog("old")],
        keeps_earlier_journals=lambda: True,
    )
    queue.queue.on_tick(1)
    queue.end_flush(2)
    # True means that the journals of earlier runs are kept, since the offline logs need them.
    assert queue.journal.forgotten == [True]


def test_while_logs_are_to_be_checkpointed_the_next_journal_is_not_rolled() -> None:
    queue, logs = journaled(journal_roll_ms=500)
    many = [JournaledLog(f"many {number}") for number in range(30)]
    queue.wait("many", *many)
    queue.end_flush(3)
    queue.queue.on_tick(501)
    assert queue.journal.begun == 1
    queue.end_flush(502)
    for log in logs:
        log.append()
    queue.queue.full_journal_bytes = 1
    queue.wait("b", *logs, now_ms=600)
    for log in logs:
        log.append()
    queue.wait("c", *logs, now_ms=601)
    assert queue.journal.begun == 1
    queue.end_flush(602)


def test_a_deleted_log_is_neither_checkpointed_nor_flushed_later() -> None:
    queue, logs = journaled(journal_roll_ms=500)
    (later,) = logs_of(1)
    queue.queue.flush_later([cast(Any, later)], 400)
    queue.queue.forget(cast(Any, later), 401)
    queue.queue.forget(cast(Any, logs[0]), 401)
    assert queue.queue.next_deadline_ms() == 501
    queue.queue.on_tick(501)
    assert queue.files() == ["log 1"]


def test_a_wait_for_a_frame_gets_the_next_one_when_its_log_is_deleted() -> None:
    queue = JournaledQueue()
    first, gone, decisions = logs_of(1, 1, 0)
    queue.wait("first", first)
    gone.is_closed = True
    queue.wait_for_frame("commit", gone, adds=decisions)
    queue.queue.forget(cast(Any, gone), 2)
    assert queue.done == []
    queue.end_flush(3)
    assert queue.done == [("first", 3), ("commit", 3)]
    assert queue.journal.frames == [([], ["record of commit"])]


def test_a_flush_of_a_record_alone_checkpoints_8_logs() -> None:
    queue = JournaledQueue(
        has_older=True, logs_to_checkpoint=[JournaledLog(f"old {number}") for number in range(20)]
    )
    (decisions,) = logs_of(0)
    queue.wait_for_frame("commit", adds=decisions)
    assert queue.files() == ["journal", *(f"old {number}" for number in range(8))]


def test_on_a_full_disk_a_wait_ends_when_its_log_is_deleted() -> None:
    queue = JournaledQueue()
    queue.space.is_full = True
    (gone,) = logs_of(1)
    queue.wait_for_frame("commit", gone)
    assert queue.done == [] and queue.files() == ["log 0"]
    queue.queue.forget(cast(Any, gone), 2)
    assert queue.done == [("commit without", 2)]


def test_a_queue_is_idle_without_callbacks_and_running_flushes() -> None:
    queue = JournaledQueue()
    (log,) = logs_of(1)
    assert queue.queue.is_idle
    log.is_closed = True
    queue.wait_for_frame("commit", log)
    assert not queue.queue.is_idle
    queue.end_flush(2)
    assert queue.done == [("commit", 2)]
    queue.wait_for_frame("another", log, adds=log)
    assert not queue.queue.is_idle, "its frame is under way"
    log.append()
    queue.wait("a", log)
    queue.end_flush(3)
    while queue.outbox.flushes:
        assert not queue.queue.is_idle
        queue.end_flush(4)
    queue.queue.on_tick(10_000)
    while queue.outbox.flushes:
        queue.end_flush(10_001)
    assert queue.queue.is_idle


def test_a_forgotten_log_is_not_checkpointed() -> None:
    gone, stays = logs_of(1, 1)
    queue = JournaledQueue(has_older=True, logs_to_checkpoint=[gone, stays])
    queue.queue.forget(cast(Any, gone), 1)
    queue.queue.on_tick(2)
    assert queue.files() == ["log 1"]


def test_checkpointed_journals_are_deleted_while_the_queue_is_busy() -> None:
    """Otherwise a queue that is never idle would keep all its journals for ever."""
    queue, _ = journaled(journal_roll_ms=500)
    queue.queue.on_tick(501)
    (other,) = logs_of(1)
    queue.wait("b", other, now_ms=501)
    queue.end_flush(502)
    assert queue.outbox.flushes, "the next flush has begun"
    assert queue.journal.forgotten == [False]


def test_on_a_full_disk_data_in_the_journal_counts_as_durable() -> None:
    queue, logs = journaled()
    other = JournaledLog("other")
    queue.wait("b", other)
    queue.wait_for_frame("commit", *logs, other)
    queue.space.is_full = True
    queue.end_flush(3)
    assert ("commit without", 3) in queue.done


def test_no_journal_is_deleted_while_journals_are_held() -> None:
    queue = JournaledQueue(has_older=True)
    log = JournaledLog("log")
    queue.queue.hold_journals()
    log.append()
    queue.wait("a", log)
    queue.end_flush()
    assert queue.journal.forgotten == []
    queue.queue.release_journals()
    log.append()
    queue.wait("b", log)
    queue.end_flush()
    assert queue.journal.forgotten == [False]
