"""LAW, the table of the steps in which a transaction ends: whether its rows are complete, whether
the code follows them, and how many function calls a commit takes.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator, Mapping

import pytest
from helpers.disk_broker import DiskBroker, Producer

from barnabas.broker.transactions.transaction_end import (
    LAW,
    LAW_IN_PARTS,
    Action,
    CommitDurability,
    Ending,
    Event,
    Row,
    Step,
)
from barnabas.broker.transactions.transaction_end import TransactionEnds as Ends
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_files import LogFiles
from barnabas.storage.log.new_files import NewFiles

WAITS = {
    Action.FLUSH_DATA: Event.DATA,
    Action.FRAME_DECISION: Event.FLUSHED,
    Action.FLUSH_PREPARE: Event.FLUSHED,
    Action.AFTER_ANSWER: Event.SENT,
    Action.FLUSH_MARKERS: Event.FLUSHED,
    Action.WRITE_PARTS: Event.MARKED,
}
LAWS = [LAW, LAW_IN_PARTS]
Law = Mapping[tuple[Step, Event], Mapping[CommitDurability, Row]]
BEGINS = (Event.COMMIT, Event.ABORT, Event.RESUME)


def walks(law: Law, durability: CommitDurability) -> Iterator[tuple[Event, list[Action]]]:
    """For each event that starts the end of a transaction, the actions up to COMPLETE, in order.

    A commit that waits for its data starts with a row of LAW, even if `law` is the table for ends
    in parts.
    """
    for begins in BEGINS:
        row = law.get((Step.OPEN, begins), {}).get(durability)
        if row is None and begins is Event.COMMIT:
            row = LAW[Step.OPEN, begins][durability]
        if row is None:
            continue
        actions = list(row.actions)
        while row.step is not Step.COMPLETE:
            row = law[row.step, WAITS[row.actions[-1]]][durability]
            actions += row.actions
        yield begins, actions


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("durability", CommitDurability)
def test_each_way_writes_its_markers_before_the_complete_record(
    durability: CommitDurability, law: Law
) -> None:
    markers = Action.WRITE_MARKERS if law is LAW else Action.WRITE_PARTS
    for begins, actions in walks(law, durability):
        assert actions.count(markers) == actions.count(Action.WRITE_COMPLETE) == 1
        assert actions.index(markers) < actions.index(Action.WRITE_COMPLETE)
        is_resumed = begins is Event.RESUME
        assert actions.count(Action.WRITE_PREPARE) == (0 if is_resumed else 1)
        assert actions.count(Action.ANSWER) == (0 if is_resumed else 1)


@pytest.mark.parametrize("durability", CommitDurability)
def test_an_end_in_parts_is_answered_after_all_markers_are_written(
    durability: CommitDurability,
) -> None:
    ways = list(walks(LAW_IN_PARTS, durability))
    assert ways
    for _, actions in ways:
        assert actions.index(Action.WRITE_PARTS) < actions.index(Action.ANSWER)
        assert Action.AFTER_ANSWER not in actions


@pytest.mark.parametrize("durability", [CommitDurability.JOURNAL, CommitDurability.FLUSH])
def test_a_durable_commit_is_answered_after_its_decision_is_flushed(
    durability: CommitDurability,
) -> None:
    in_parts = dict(walks(LAW_IN_PARTS, durability))[Event.COMMIT]
    actions = dict(walks(LAW, durability))[Event.COMMIT]
    is_durable = {
        CommitDurability.JOURNAL: Action.FRAME_DECISION,
        CommitDurability.FLUSH: Action.FLUSH_PREPARE,
    }[durability]
    order = [Action.FLUSH_DATA, is_durable, Action.ANSWER, Action.AFTER_ANSWER]
    assert [action for action in actions if action in order] == order
    assert actions.index(Action.AFTER_ANSWER) < actions.index(Action.WRITE_MARKERS)
    assert [action for action in in_parts if action in order] == order[:-1]


def test_only_the_last_action_of_a_row_waits() -> None:
    for (step, event), cells in [*LAW.items(), *LAW_IN_PARTS.items()]:
        for durability, row in cells.items():
            assert not set(row.actions[:-1]) & set(WAITS), (step, event, durability)
            waits = row.actions[-1] in WAITS
            assert waits != (row.step is Step.COMPLETE), (step, event, durability)


def test_every_step_event_and_action_is_in_the_table() -> None:
    rows = [row for law in LAWS for cells in law.values() for row in cells.values()]
    assert {step for law in LAWS for step, _ in law} | {row.step for row in rows} == set(Step)
    assert {event for law in LAWS for _, event in law} == set(Event)
    assert {action for row in rows for action in row.actions} == set(Action)


# --- the code runs from it -----------------------------------------------------------------------


def ready(**settings: str) -> tuple[DiskBroker, Producer]:
    """A producer that has committed once, so that all files exist, and has an open transaction."""
    b = DiskBroker(**settings)
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    assert p.end(True) == 0
    b.tick(1000)
    p.send("t", 0, b"b")
    return b, p


@pytest.mark.parametrize(
    ("commit", "durability", "settings"),
    [
        (True, CommitDurability.JOURNAL, {}),
        (True, CommitDurability.FLUSH, {"barnabas_flush_journal_logs": "0"}),
        (True, CommitDurability.OS, {"barnabas_transaction_durability": "os"}),
        (False, CommitDurability.OS, {}),
    ],
)
def test_an_end_takes_the_steps_of_the_table(
    commit: bool,
    durability: CommitDurability,
    settings: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The code receives exactly the events that LAW has for this durability, each in the same
    step.
    """
    b, p = ready(**settings)
    events: list[tuple[Step, Event]] = []
    lead_on = Ends._on

    def note(self: Ends, ending: Ending, event: Event, now_ms: int) -> None:
        events.append((ending.step, event))
        lead_on(self, ending, event, now_ms)
        assert ending.durability is durability or event is Event.COMMIT

    monkeypatch.setattr(Ends, "_on", note)
    assert p.end(commit) == 0
    step, expected = Step.OPEN, []
    event = Event.COMMIT if commit else Event.ABORT
    while step is not Step.COMPLETE:
        expected.append((step, event))
        row = LAW[step, event][durability]
        step, event = row.step, WAITS.get(row.actions[-1], event)
    assert events == expected
    assert b.parts.transaction_ends.is_idle
    assert b.read("t", committed=True) == ([b"a", b"b"] if commit else [b"a"])


def waiting_for_data(version: int = 3) -> tuple[DiskBroker, Producer, int]:
    """A broker, a producer, and the connection of a commit that waits for the next flush while a
    flush for another client runs.
    """
    b, p = ready()
    b.topic("u")
    b.hold_flushes()
    assert b.produce("u", (b"x",))[0] == 0
    log = b.broker.topics.partition("u", 0)
    assert log is not None
    b.broker.flushes.wait([log], lambda _: None, b.now_ms)
    b.send(p.connection, p.end_request(True), version)
    assert b.state("txn")[0] == "Ongoing"
    return b, p, p.connection


def test_a_waiting_commit_of_an_abandoned_connection_is_dropped_when_the_producer_writes_on() -> (
    None
):
    """A commit waits for its data when its producer reconnects and writes another record. The
    commit must then not be carried out, since it would split the transaction.
    """
    b, p, old = waiting_for_data()
    p.connection = b.connect()
    assert p.add("u", 0) == 0 and p.produce("u", 0, b"y") == 0
    b.release_flushes()
    assert b.answer(old) is None and b.state("txn")[0] == "Ongoing", (
        "the commit of the abandoned connection is dropped"
    )
    assert old in b.closed, "the abandoned connection is closed without a response"
    assert p.end(True) == 0
    assert b.read("u", committed=True) == [b"x", b"y"]


def test_a_waiting_commit_of_version_5_takes_effect_from_any_connection() -> None:
    """A late EndTxn of version 5 is recognised by its epoch, not by its connection (KIP-890)."""
    b, p, old = waiting_for_data(version=5)
    p.connection = b.connect()
    assert p.add("u", 0) == 0 and p.produce("u", 0, b"y") == 0
    b.release_flushes()
    assert b.answer(old).error_code == 0 and old not in b.closed
    assert b.read("u", committed=True) == [b"x", b"y"]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_end_over_an_abandoned_connection_takes_effect_only_in_version_5(version: int) -> None:
    b, p = ready()
    old, p.connection = p.connection, b.connect()
    assert p.add("t", 0) == 0
    if version < 5:
        assert b.is_hung_up_on(old, p.end_request(True), version)
        assert b.state("txn")[0] == "Ongoing"
    else:
        assert b.call(p.end_request(True), version, old).error_code == 0
        assert b.state("txn")[0] == "CompleteCommit"


@pytest.mark.parametrize("commit", [True, False])
def test_markers_are_written_although_a_partition_without_records_has_no_space(
    commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition whose disk is full has no record of the transaction, so it needs no marker."""
    b = DiskBroker()
    for name in ("t", "u", "v"):
        b.topic(name)
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    assert p.add("u", 0) == 0
    p.send("v", 0, b"b")
    full = b.broker.topics.partition("u", 0)
    assert full is not None and not full.files.are_made

    def refuse(log: Log) -> None:
        raise OSError(errno.ENOSPC, f"no room for {log}")

    monkeypatch.setattr(LogFiles, "make", refuse)
    monkeypatch.setattr(NewFiles, "make", lambda files: None)
    assert p.end(commit) == 0
    assert [len(b.markers(name)) for name in ("t", "u", "v")] == [1, 0, 1]
    assert b.state("txn")[0] == ("CompleteCommit" if commit else "CompleteAbort")


def test_an_end_completes_a_waiting_fetch_of_the_transaction_log() -> None:
    b, p = ready()
    reader = b.connect()
    log = b.broker.topics.logs_of("__transaction_state")
    index, end = next((one.partition, one.log_end_offset) for one in log if one.log_end_offset)
    b.send_fetch(reader, "__transaction_state", end, partition=index, max_wait_ms=10_000)
    assert b.answer(reader) is None
    assert p.end(True) == 0
    assert b.answer(reader) is not None


@pytest.mark.parametrize("commit", [True, False])
def test_each_step_is_logged_at_debug_level(commit: bool, caplog: pytest.LogCaptureFixture) -> None:
    _, p = ready()
    with caplog.at_level(logging.DEBUG, logger="barnabas.transactions"):
        assert p.end(commit) == 0
    text = caplog.text
    assert "leads from" in text and Step.COMPLETE.name in text
    assert f"the marker {'COMMIT' if commit else 'ABORT'} of producer {p.pid}" in text
    steps = [vars(record) for record in caplog.records if "leads from" in record.getMessage()]
    assert {(step["producer_id"], step["producer_epoch"]) for step in steps} == {(p.pid, p.epoch)}


def test_markers_whose_decision_is_in_the_journal_start_no_flush() -> None:
    """The markers need no flush of their own, even if readers see only flushed records."""
    b = DiskBroker()
    b.topic("t", flush_messages="1")
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    assert p.end(True) == 0
    b.tick(1000)
    p.send("t", 0, b"b")
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and p.ended() == 0
    assert not b.flush_one()
    b.tick(100)
    assert b.flush_one()
    assert b.read("t", committed=True) == [b"a", b"b"]


def test_data_written_before_the_decision_are_flushed_before_it() -> None:
    """Another client writes the data over an earlier connection. EndTxn is processed again after
    the data are flushed.

    The commit waits for the flush that is running, and no second flush begins in the meantime.
    """
    b, p = ready()
    b.topic("u")
    earlier, p.connection = p.connection, b.connect()
    b.hold_flushes()
    assert b.produce("u", (b"x",))[0] == 0
    log = b.broker.topics.partition("u", 0)
    assert log is not None
    b.broker.flushes.wait([log], lambda _: None, b.now_ms)
    p.start_end(True)
    ending, p.connection = p.connection, earlier
    assert p.add("u", 0) == 0 and p.produce("u", 0, b"y") == 0
    assert b.flush_one() and b.answer(ending) is None
    b.release_flushes()
    assert b.answer(ending).error_code == 0
    b.lose_power()
    assert b.read("u", committed=True) == [b"x", b"y"]


def test_an_abort_overtakes_a_commit_that_waits_for_its_data() -> None:
    b, p, old = waiting_for_data()
    p.connection = b.connect()
    assert p.end(False) == 0
    assert b.answer(old).error_code == 48, "INVALID_TXN_STATE: it was aborted"
    b.release_flushes()
    assert b.read("t", committed=True) == [b"a"]
    assert b.parts.transaction_ends.is_idle


def test_a_repeated_commit_waits_for_the_first_one() -> None:
    b, p, old = waiting_for_data()
    p.connection = b.connect()
    p.start_end(True)
    b.release_flushes()
    assert (b.answer(old).error_code, p.ended()) == (0, 0)
    assert b.read("t", committed=True) == [b"a", b"b"]
    assert len(b.markers("t")) == 2
    p.connection = old
    assert p.add("t", 0) == 0, (
        "after an EndTxn over a new connection, the former one may still be used for other requests"
    )
