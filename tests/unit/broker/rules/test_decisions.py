"""Rules that other brokers broke: markers and decisions, also after crashes.

Here the broker uses version 1 of transactions, which precedes the second part of KIP-890: a session
keeps one epoch, and EndTxn returns no epoch. If a rule is about version 2, its test shows what
version 1 does in the same situation, as in Apache Kafka 3.9.
"""

from __future__ import annotations

import contextlib

import pytest
from helpers.disk_broker import DiskBroker, Producer, code_of_adding, init_request, init_row
from sim.disk import Crash

from barnabas.protocol.errors import Code

LAST_EPOCH = 32766  # the last epoch for clients; the coordinator uses 32767 for fencing
MINUTE_MS = 60_000


@pytest.fixture
def b(request: pytest.FixtureRequest) -> DiskBroker:
    broker = DiskBroker(barnabas_flush_journal_logs=getattr(request, "param", "2"))
    broker.topic("t", 2)
    return broker


STEP_BY_STEP = pytest.mark.parametrize(
    "b", ["0"], indirect=True
)  # without the flush journal, a commit waits for each flush


def at_last_epoch(b: DiskBroker) -> Producer:
    """A producer with the last epoch of its producer id."""
    p = Producer(b, "txn")
    b.set_epoch("txn", LAST_EPOCH - 1)
    p.begin_session()
    assert p.epoch == LAST_EPOCH
    return p


# --- exhausted epochs ---------------------------------------------------------------------------


# --- markers ------------------------------------------------------------------------------------


@STEP_BY_STEP
def test_markers_that_are_written_again_do_no_harm(b: DiskBroker) -> None:
    # contract: kip-98/markers
    """The broker is killed three times between the markers and the Complete record. Afterwards the
    markers are in the log once, and no client gets CONCURRENT_TRANSACTIONS.

    Source: KAFKA-19999.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    p.send_offset("g", "t", 5)
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and b.flush_one()
    assert p.ended() == 0 and b.state("txn")[0] == "PrepareCommit"
    for _ in range(3):
        b.disk.kill()
        b.hold_flushes()
        b.open()
        assert b.state("txn")[0] == "PrepareCommit"
        assert b.read("t", committed=True) == [b"a"]
    b.release_flushes()
    assert b.state("txn")[0] == "CompleteCommit"
    assert set(b.markers("t")) == {(p.pid, p.epoch, True)}
    assert b.group_offset("g", "t") == (0, 5)
    p.reconnect()
    assert p.end(True) == 0, "the lost answer's retry"
    p.send("t", 0, b"b")
    assert p.end(False) == 0
    assert b.read("t", committed=True) == [b"a"]


def test_a_marker_of_an_earlier_session_does_not_end_what_is_open(b: DiskBroker) -> None:
    """A marker of an earlier session does not end an open transaction.

    In version 1 the transactions of a session share an epoch, so the epoch of a marker must be at
    least that of the data.

    Source: KAFKA-19446.
    """
    p = Producer(b, "txn")
    old = p.epoch
    p.begin_session()
    p.send("t", 0, b"a")
    assert b.write_marker(p.pid, old, "t", commit=True) == Code.INVALID_PRODUCER_EPOCH
    assert b.read("t", committed=True) == []
    assert p.end(False) == 0
    assert b.read("t", committed=True) == []


@STEP_BY_STEP
def test_a_marker_that_is_written_again_after_a_power_loss_does_not_end_the_next_transaction(
    b: DiskBroker,
) -> None:
    """A marker that is written again after a power loss does not end the next transaction.

    The Complete record of T1 and the first record of T2 were not durable, but the data of T2 was.
    The repeated commit of T1 must not commit the data of T2.

    Source: KAFKA-19446.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"t1")
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and b.flush_one() and p.ended() == 0 and b.flush_one()
    assert b.state("txn")[0] == "CompleteCommit"
    b.tick(5)
    p.send("t", 0, b"t2")
    b.sync("/t-0/")
    b.lose_power()
    b.tick()
    assert b.read("t") == [b"t1", b"t2"]
    assert b.read("t", committed=True) == [b"t1"]
    assert b.end_offset("t", committed=True) == b.end_offset("t")
    p.reconnect()
    assert p.end(True) == Code.PRODUCER_FENCED


# --- time ---------------------------------------------------------------------------------------


# --- crashes during a transaction -----------------------------------------------------------------


def test_a_kill_between_the_records_and_the_offsets_of_a_transaction_forgets_neither(
    b: DiskBroker,
) -> None:
    """A kill comes between the records and the offsets of a transaction: both are kept.

    Source: redpanda#6018, redpanda#6019.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    b.kill()
    p.reconnect()
    p.send_offset("g", "t", 5)
    b.kill()
    p.reconnect()
    assert b.group_offset("g", "t") == (Code.UNSTABLE_OFFSET_COMMIT, -1)
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"a"]
    assert b.group_offset("g", "t") == (0, 5)


@pytest.mark.parametrize("kept", ["", "/t-0/", "/__transaction_state-", "/__consumer_offsets-"])
def test_after_a_power_loss_a_transaction_that_lost_a_part_cannot_be_committed(
    b: DiskBroker, kept: str
) -> None:
    """After a power loss, a transaction that lost a part cannot be committed.

    No matter which of its parts were durable, the commit fails, and readers see no part of it.

    Source: redpanda#6018, redpanda#6019.
    """
    warm = Producer(b, "warm")
    warm.send_offset("g", "t", 1)
    assert warm.end(True) == 0
    p = Producer(b, "txn")
    b.hold_flushes()
    p.send("t", 0, b"a")
    p.send_offset("g", "t", 5)
    if kept:
        b.sync(kept)
    b.lose_power()
    p.reconnect()
    assert p.end(True) == Code.PRODUCER_FENCED
    assert b.read("t", committed=True) == []
    assert b.group_offset("g", "t") == (0, 1)
    assert b.end_offset("t", committed=True) == b.end_offset("t")


@STEP_BY_STEP
@pytest.mark.parametrize("way", ["kill", "lose_power"])
def test_once_it_is_decided_a_commit_always_comes_to_its_end(b: DiskBroker, way: str) -> None:
    # contract: kip-98/decision
    """A decided commit is always completed.

    The client does not receive the response. A reader of the group's offset waits, and then gets
    the new offset.

    Source: redpanda#9571, redpanda#10669.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    p.send_offset("g", "t", 5)
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and b.state("txn")[0] == "PrepareCommit"
    assert b.group_offset("g", "t") == (Code.UNSTABLE_OFFSET_COMMIT, -1)
    assert p.ended() is None
    b.sync("/__transaction_state-")
    getattr(b, way)()
    assert b.group_offset("g", "t") == (0, 5)
    assert b.read("t", committed=True) == [b"a"]
    if way == "kill":
        p.reconnect()
        assert p.end(True) == 0
        assert p.end(False) == Code.INVALID_TXN_STATE


@STEP_BY_STEP
def test_before_it_is_decided_nobody_sees_anything_of_it(b: DiskBroker) -> None:
    # contract: kip-98/undecided
    """Until a transaction is decided, readers see nothing of it.

    The decision was not durable when the power was lost, so the transaction is aborted: both its
    offset and its records.

    Source: redpanda#9571, redpanda#10669.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    p.send_offset("g", "t", 5)
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and b.state("txn")[0] == "PrepareCommit"
    assert (b.read("t", committed=True), p.ended()) == ([], None)
    b.lose_power()
    assert b.group_offset("g", "t") == (0, -1)
    assert b.read("t", committed=True) == []


@STEP_BY_STEP
def test_what_a_start_finds_decided_it_completes_however_often_it_is_killed_over_it(
    b: DiskBroker,
) -> None:
    """A start completes decided transactions, even if it is killed again and again.

    Each recovery is killed before one of its changes to the disk, each time one change later.

    Source: redpanda#23656.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    p.send("t", 1, b"b")
    p.send_offset("g", "t", 5)
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and b.state("txn")[0] == "PrepareCommit"
    b.holds_flushes = False
    kills = 0
    for steps in range(200):
        b.disk.kill()
        b.disk.crash_in(steps)
        try:
            b.open()
        except Crash:
            kills += 1
        else:
            break
    b.disk.crash_in(-1)
    assert kills > 5
    assert b.state("txn")[0] == "CompleteCommit"
    assert (b.read("t", 0, committed=True), b.read("t", 1, committed=True)) == ([b"a"], [b"b"])
    assert b.group_offset("g", "t") == (0, 5)
    assert {marker for index in (0, 1) for marker in b.markers("t", index)} == {
        (p.pid, p.epoch, True)
    }
    p.reconnect()
    p.send("t", 0, b"c")
    assert p.end(True) == 0


def test_without_flushes_a_power_loss_shows_no_aborted_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without flushes, a power loss must not show aborted records.

    After the power loss, the coordinator's log has a decision to commit, but the partition has lost
    the abort marker of the earlier transaction.

    Source: redpanda#23656.
    """
    for steps in range(8):
        b = DiskBroker(barnabas_transaction_durability="os")
        b.topic("t")
        p = Producer(b, "txn")
        p.send("t", 0, b"aborted")
        b.sync("/t-0/")
        assert p.end(False) == 0
        p.send("t", 0, b"lost")
        b.disk.crash_in(steps)
        with contextlib.suppress(Crash):
            p.end(True)
        b.disk.crash_in(-1)
        b.sync("__transaction_state")
        b.disk.fsync_dir("/data")
        b.lose_power()
        assert b.read("t", committed=True) == []
        assert b.end_offset("t", committed=True) == b.end_offset("t")
    assert ", which a power loss left open" in caplog.text, (
        "this test has to see the case that it is for"
    )


def test_without_flushes_no_epoch_is_given_to_two_producers() -> None:
    """Without flushes, no epoch is given to two producers.

    The power loss removes the record of a session, but its producer runs on another machine, and
    continues.

    Source: redpanda#23656.
    """
    for is_open in (False, True):
        b = DiskBroker(barnabas_transaction_durability="os")
        b.topic("t")
        p = Producer(b, "txn")
        p.send("t", 0, b"a")
        if not is_open:
            assert p.end(True) == 0
        b.sync("")
        zombie = Producer(b, "txn")
        assert (zombie.pid, zombie.epoch) == (p.pid, p.epoch + 1 + is_open)
        b.lose_power()
        zombie.reconnect()
        assert zombie.add("t", 0) != 0
        assert zombie.produce("t", 0, b"of a zombie") != 0
        again = Producer(b, "txn")
        assert again.pid > zombie.pid
        assert (
            zombie.add("t", 0) != 0
            and zombie.produce("t", 0, b"of a zombie") != 0
            and zombie.end(True) != 0
        )
        again.send("t", 0, b"b")
        assert again.end(True) == 0
        assert b.read("t", committed=True) == ([b"b"] if is_open else [b"a", b"b"])


# --- the normal path ----------------------------------------------------------------------------


@pytest.mark.parametrize(("durability", "journal"), [("flush", "0"), ("flush", "2"), ("os", "2")])
def test_the_next_transaction_never_meets_the_end_of_the_last(
    durability: str, journal: str
) -> None:
    """The end of a transaction does not cause the next one to fail.

    The next transaction's request waits while the markers wait for the disk, and is then accepted.
    It does not get CONCURRENT_TRANSACTIONS.

    Source: KAFKA-5477, KAFKA-18575, KAFKA-18654, KAFKA-18662.
    """
    b = DiskBroker(barnabas_transaction_durability=durability, barnabas_flush_journal_logs=journal)
    b.topic("t")
    p = Producer(b, "txn")
    b.hold_flushes()
    waited = 0
    for number in range(12):
        commit = number % 3 != 2
        b.send(p.connection, p.add_request({"t": (0,)}), 3)
        while (added := b.answer(p.connection)) is None:
            waited += 1
            assert b.flush_one()
        assert code_of_adding(added) == 0
        assert p.produce("t", 0, b"%d" % number) == 0
        p.start_end(commit)
        while p.ended() is None:
            assert b.flush_one()
        assert p.ended() == 0
    b.flush()
    assert (waited > 0) == (durability == "flush" and journal == "0"), (
        "this test has to see the case that it is for"
    )
    assert b.read("t", committed=True) == [
        b"%d" % number for number in range(12) if number % 3 != 2
    ]
    assert len(b.markers("t")) == 12


@STEP_BY_STEP
def test_offsets_and_sessions_wait_for_the_markers_too(b: DiskBroker) -> None:
    """Offsets and new sessions wait for the markers of the previous transaction.

    Source: KAFKA-5477, KAFKA-18575, KAFKA-18654, KAFKA-18662.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and b.flush_one() and p.ended() == 0
    b.send(p.connection, init_request("txn", p.pid, p.epoch), 4)
    assert b.answer(p.connection) is None
    b.flush()
    assert init_row(b.answer(p.connection)) == (0, p.pid, p.epoch + 1)


def test_a_session_that_takes_over_an_open_transaction_is_answered_when_that_has_ended(
    b: DiskBroker,
) -> None:
    """A session that takes over an open transaction gets its response when the transaction has
    ended, without a CONCURRENT_TRANSACTIONS in between.

    Source: Kafka: TransactionCoordinator, franz-go: kfake.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"x")
    b.hold_flushes()
    connection = b.connect()
    b.send(connection, init_request("txn"), 4)
    assert b.answer(connection) is None
    b.flush()
    assert init_row(b.answer(connection)) == (0, p.pid, p.epoch + 2)
    assert b.markers("t") == [(p.pid, p.epoch + 1, False)]
    assert p.end(True) == Code.PRODUCER_FENCED


@STEP_BY_STEP
def test_a_session_that_comes_amid_a_commit_is_let_in_when_that_has_ended(
    b: DiskBroker,
) -> None:
    """A session that begins during a commit gets its response when the commit is complete.

    The commit is already decided, so the new session does not abort the transaction.

    Source: Kafka: TransactionCoordinator, franz-go: kfake.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and b.state("txn")[0] == "PrepareCommit"
    connection = b.connect()
    b.send(connection, init_request("txn"), 4)
    assert b.answer(connection) is None
    b.release_flushes()
    assert p.ended() == 0
    assert init_row(b.answer(connection)) == (0, p.pid, p.epoch + 1)
    assert b.read("t", committed=True) == [b"a"]
