"""An exception in work that is put off ends only that work, at each place that runs such work.

`helpers/raised_faults.py` raises contained exceptions in the other tests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.disk_broker import DiskBroker, Producer, init_request
from helpers.raised_faults import contained_faults
from helpers.share_member import SHARED, ShareMember, begin_group, configure

from barnabas.broker.logs.syncs import Syncs
from barnabas.broker.outbox import NO_CONNECTION, Outbox, Work
from barnabas.broker.share_partitions.share_partition import SharePartition
from barnabas.broker.share_partitions.waiting_share_fetch import WaitingShareFetch
from barnabas.broker.slices import SlicedWork, Slices
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.storage.exception_guard import contain
from barnabas.storage.files.segment_files import CorruptLog

FAULT = "broken on purpose"


@pytest.fixture(autouse=True)
def _contained() -> Iterator[None]:
    with contained_faults():
        yield


def fail(*_: Any, **__: Any) -> Any:
    raise ValueError(FAULT)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def is_working(b: DiskBroker, topic: str = "t") -> bool:
    """Whether the broker still takes records and gives them."""
    code, offset = b.produce(topic, (b"after",))
    b.tick()
    return code == Code.NONE and b.fetch(topic, offset).rows() == [(offset, b"after")]


# --- the guard ------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError("the disk"), AssertionError("the state")])
def test_errors_of_the_disk_and_of_the_state_end_the_process(error: Exception) -> None:
    with pytest.raises(type(error)):
        contain(error, "work")


def test_a_fault_is_logged_with_its_traceback_and_a_damaged_file_with_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        fail()
    except ValueError as error:
        contain(error, "t-0")
    contain(CorruptLog("/data/t-0/1.log", 7, "no batch begins there", "Restore it"), "t-0")
    fault, damage = caplog.records
    assert fault.exc_info and "please report" in fault.getMessage()
    assert not damage.exc_info
    assert damage.getMessage() == "t-0: /data/t-0/1.log, byte 7: no batch begins there. Restore it"


# --- slices, the worker, callbacks ----------------------------------------------------------------


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_slice_that_fails_ends_its_work_and_the_next_work_begins(at_the_end: bool) -> None:
    done: list[Any] = []

    def failing() -> Slices:
        yield
        yield
        fail()

    def working() -> Slices:
        yield
        yield
        return "answer"

    def on_answer(ticket: int, answer: Any) -> None:
        done.append((ticket, answer))

    sliced = SlicedWork(on_answer, lambda ticket, error: done.append((ticket, str(error))))
    sliced.begin(1, failing(), 0)
    sliced.begin(2, working(), 0)
    if at_the_end:
        sliced.finish(0)
    else:
        for _ in range(4):
            sliced.on_tick(0)
    assert done == [(1, FAULT), (2, "answer")]
    assert not sliced.queue


def test_a_request_whose_slice_fails_loses_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    b = DiskBroker()
    b.topic("t")
    b.topic("old", partitions=200)
    connection = b.connect()
    b.send(connection, DeleteTopicsRequest(topic_names=["old"]), 3)
    monkeypatch.setattr(b.broker.logs, "remove", fail)
    for _ in range(10):
        b.tick()
    assert FAULT in b.closed[connection]
    assert any("a request of 192.0.2.9" in line for line in lines(caplog))
    assert is_working(b)


def test_a_result_of_the_worker_that_cannot_be_used_ends_its_request_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    b = DiskBroker()
    b.topic("t")
    connection = b.connect()
    b.broker.on_worked(Work(connection, fail, fail), None, None, b.now_ms)
    b.broker.on_worked(Work(NO_CONNECTION, fail, fail), None, None, b.now_ms)
    b.broker.on_worked(Work(NO_CONNECTION, fail, fail), None, ValueError(FAULT), b.now_ms)
    b.tick()
    assert FAULT in b.closed[connection]
    assert len(lines(caplog)) == 3
    assert is_working(b)


def test_a_callback_that_fails_does_not_keep_others_from_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Callbacks that wait for a flush, for a change of files, for space, and for sent answers."""
    b = DiskBroker()
    b.topic("t")
    b.produce("t", (b"x",))
    log = b.broker.topics.partition("t", 0)
    assert log is not None
    called: list[str] = []
    b.hold_flushes()
    b.broker.flushes.wait([log], fail, b.now_ms)
    b.broker.flushes.wait([log], lambda _: called.append("flush"), b.now_ms)
    b.flush()
    syncs = Syncs(Outbox())
    syncs.run(iter(()), 0, fail)
    syncs.run(iter(()), 0, lambda _: called.append("files"))
    for call in (fail, lambda _: called.append("space")):
        b.broker.unwritten.later(call, b.now_ms)
    b.tick(2000)
    b.broker.outbox.deferred += [fail, lambda _: called.append("sent")]
    b.tick()
    assert called == ["flush", "files", "space", "sent"]
    assert len(lines(caplog)) == 4
    b.release_flushes()
    assert is_working(b)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_of_a_transaction_that_fails_ends_its_request_and_a_start_completes_it(
    monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    b = DiskBroker()
    b.topic("t")
    producer = Producer(b, "x")
    producer.send("t", 0, b"a")
    ends = b.parts.transaction_ends
    monkeypatch.setattr(ends._markers, "write", fail)
    b.send(producer.connection, producer.end_request(commit), 3)
    b.tick()
    if commit:  # a commit is answered before its markers are written
        assert producer.ended() == Code.NONE
    else:
        assert FAULT in b.closed[producer.connection]
    assert is_working(b)
    b.kill()
    assert b.read("t", committed=True) == ([b"a"] if commit else []) + [b"after"]


def test_a_request_that_waited_for_an_end_and_fails_does_not_keep_others_from_running(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    b = DiskBroker()
    b.topic("t")
    producer = Producer(b, "x")
    producer.send("t", 0, b"a")
    b.hold_flushes()
    producer.start_end(True)
    while b.flush_one() and not b.parts.endings.is_decided("x"):
        pass
    called: list[int] = []
    ending = b.parts.endings.by_id.get("x")
    assert ending is not None, "its end waits for the disk"
    ending.held_back += [fail, called.append]
    b.release_flushes()
    b.tick()
    assert called and producer.ended() == Code.NONE
    assert any("waited for the end of 'x'" in line for line in lines(caplog))


def test_a_session_that_fails_to_begin_ends_its_request_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = DiskBroker()
    b.topic("t")
    monkeypatch.setattr(b.broker.transactions.sessions, "on_init_producer_id", fail)
    connection = b.connect()
    b.send(connection, init_request("x"), 4)
    b.tick()
    assert FAULT in b.closed[connection]
    assert is_working(b)


# --- waiting fetches ------------------------------------------------------------------------------


def test_a_waiting_fetch_that_fails_does_not_fail_the_request_of_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = DiskBroker()
    b.topic("t")
    broken, other = b.connect(), b.connect()
    b.send_fetch(broken, "t", 0, max_wait_ms=1000)
    b.send_fetch(other, "t", 0, max_wait_ms=1000)
    (first, _) = b.broker.purgatory._by_log[b.broker.topics.partition("t", 0)]  # type: ignore[index]
    first.try_complete = fail
    assert b.produce("t", (b"x",))[0] == Code.NONE
    assert FAULT in b.closed[broken]
    fetched = b.fetched(other)
    assert fetched is not None and fetched.rows() == [(0, b"x")]
    assert b.broker.purgatory.waiting_count == 0


def test_a_waiting_fetch_that_fails_at_its_deadline_ends_its_request_only() -> None:
    b = DiskBroker()
    b.topic("t")
    broken, other = b.connect(), b.connect()
    b.send_fetch(broken, "t", 0, max_wait_ms=10)
    b.send_fetch(other, "t", 0, max_wait_ms=10)
    (first, _) = b.broker.purgatory._by_log[b.broker.topics.partition("t", 0)]  # type: ignore[index]
    first.try_complete = fail
    b.tick(11)
    assert FAULT in b.closed[broken]
    assert b.fetched(other) is not None
    assert is_working(b)


def test_a_share_fetch_that_fails_while_it_waits_ends_its_request_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = DiskBroker(**SHARED)
    b.topic("t")
    begin_group(b, "g", "t")
    one, two = ShareMember(b, "g", "one"), ShareMember(b, "g", "two")
    one.send_fetch(("t", 0), max_wait_ms=1000)
    attempt = WaitingShareFetch._try

    def fails_for_one(self: WaitingShareFetch, now_ms: int, out_of_time: bool) -> bool:
        if self._member_id == "one":
            fail()
        return attempt(self, now_ms, out_of_time)

    monkeypatch.setattr(WaitingShareFetch, "_try", fails_for_one)
    two.send_fetch(("t", 0), max_wait_ms=1000)
    assert b.produce("t", (b"x",))[0] == Code.NONE
    b.tick()
    assert FAULT in b.closed[one.connection]
    assert two.answer() is not None
    b.tick(2000)
    assert b.broker.purgatory.waiting_count == 0


def test_a_partition_that_cannot_be_acquired_is_an_error_of_that_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = DiskBroker(**SHARED)
    for topic in ("bad", "t"):
        b.topic(topic)
        b.produce(topic, (b"x",))
    begin_group(b, "g", "bad", "t")
    acquire = WaitingShareFetch._acquire

    def fails_for_bad(self: WaitingShareFetch, loaded: Any, *arguments: Any) -> Any:
        return fail() if loaded.log.topic == "bad" else acquire(self, loaded, *arguments)

    monkeypatch.setattr(WaitingShareFetch, "_acquire", fails_for_bad)
    answer = ShareMember(b, "g", "m").fetch(("bad", 0), ("t", 0))
    codes = sorted(row.error_code for topic in answer.responses for row in topic.partitions)
    assert codes == [Code.UNKNOWN_SERVER_ERROR, Code.NONE]


def test_locks_of_a_share_partition_that_fail_do_not_keep_the_locks_of_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    b = DiskBroker(**SHARED)
    for topic in ("bad", "t"):
        b.topic(topic)
        b.produce(topic, (b"x",))
    begin_group(b, "g", "bad", "t")
    configure(b, "g", share_record_lock_duration_ms="1000")
    member, other = ShareMember(b, "g", "m"), ShareMember(b, "g", "o")
    assert member.take("bad") and member.take("t")
    ended = SharePartition.on_locks_ended
    shares = b.broker.shares.made
    assert shares is not None
    bad = next(one.value for one in shares.partitions if one.log.topic == "bad")

    def fails_for_bad(self: SharePartition, *arguments: Any, **how: Any) -> Any:
        return fail() if self is bad else ended(self, *arguments, **how)

    monkeypatch.setattr(SharePartition, "on_locks_ended", fails_for_bad)
    b.tick(1001)
    assert other.take("t") == [(0, 0, 2)]
    assert any("the locks of" in line for line in lines(caplog))
    deadline = shares.next_deadline_ms()
    assert deadline is None or deadline > b.now_ms, "the timer does not fire again and again"


# --- periodic work of logs ------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["delete_old_segments", "expire_producers", "checkpoint"])
def test_periodic_work_of_a_log_that_fails_does_not_keep_that_of_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    b = DiskBroker(
        log_retention_check_interval_ms="10",
        log_initial_task_delay_ms="0",
        producer_id_expiration_check_interval_ms="10",
    )
    for topic in ("bad", "t"):
        b.topic(topic)
        b.produce(topic, (b"x",))
    bad, log = (b.broker.topics.partition(topic, 0) for topic in ("bad", "t"))
    assert bad is not None and log is not None
    done: list[str] = []
    original = getattr(type(log), method)

    def work(self: Any, *arguments: Any, **how: Any) -> Any:
        if self is bad:
            fail()
        done.append(self.topic)
        return original(self, *arguments, **how)

    monkeypatch.setattr(type(log), method, work)
    for _ in range(3):
        b.tick(100_000)
    assert "t" in done
    failures = [line for line in lines(caplog) if "bad-0" in line]
    assert failures
    monkeypatch.undo()
    assert is_working(b) and is_working(b, "bad")


def test_a_compaction_that_fails_is_tried_again_later_and_others_are_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    b = DiskBroker(log_cleaner_backoff_ms="1")
    for topic in ("bad", "kv"):
        b.topic(
            topic, cleanup_policy="compact", segment_bytes="300", min_cleanable_dirty_ratio="0.01"
        )
        for number in range(12):
            b.put(topic, b"k", b"%d" % number)
    from barnabas.storage.cleaning import clean_plan

    assess = clean_plan.assess

    def fails_for_bad(log: Any, *arguments: Any) -> Any:
        return fail() if log.topic == "bad" else assess(log, *arguments)

    monkeypatch.setattr(clean_plan, "assess", fails_for_bad)
    b.compact()
    assert len(b.read("kv")) < 12 and len(b.read("bad")) == 12
    assert any("bad-0 cannot be compacted; tried again in 15 s" in line for line in lines(caplog))
    monkeypatch.undo()
    b.tick(15_000)
    b.compact()
    assert len(b.read("bad")) < 12


def test_a_swap_that_fails_leaves_the_log_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    b = DiskBroker(log_cleaner_backoff_ms="1")
    b.topic("kv", cleanup_policy="compact", segment_bytes="300", min_cleanable_dirty_ratio="0.01")
    for number in range(12):
        b.put("kv", b"k", b"%d" % number)
    monkeypatch.setattr("barnabas.storage.cleaning.segment_swap.swap_in", fail)
    b.compact()
    assert len(b.read("kv")) == 12
    assert any("kv-0 cannot be compacted" in line for line in lines(caplog))
    b.kill()
    assert b.read("kv") == [b"%d" % number for number in range(12)]
