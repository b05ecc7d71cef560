"""Section C of the known failures of other brokers: the transaction coordinator's states and
epochs, and what crashes make of them.

The first version of the transaction protocol (TV1) is spoken here, in which EndTxn gives out no
epoch. Where a row is of the second (TV2), the test shows what the first does in that situation, as
Apache Kafka 3.9 does.

Codes: 19 NOT_ENOUGH_REPLICAS, 47 INVALID_PRODUCER_EPOCH, 48 INVALID_TXN_STATE, 49
INVALID_PRODUCER_ID_MAPPING, 50 INVALID_TRANSACTION_TIMEOUT, 51 CONCURRENT_TRANSACTIONS, 88
UNSTABLE_OFFSET_COMMIT, 90 PRODUCER_FENCED.
"""

from __future__ import annotations

import contextlib

import pytest
from helpers.pitfall_broker import PitfallBroker, Producer, code_of_adding, init_request, init_row
from sim.disk import Crash

LAST_EPOCH = 32766  # of a client: 32767 is left to the coordinator, for fencing
MINUTE_MS = 60_000


@pytest.fixture
def b(request: pytest.FixtureRequest) -> PitfallBroker:
    broker = PitfallBroker(barnabas_flush_journal_logs=getattr(request, "param", "2"))
    broker.topic("t", 2)
    return broker


STEP_BY_STEP = pytest.mark.parametrize(
    "b", ["0"], indirect=True
)  # without the flush journal a commit waits for the disk at each step


def at_last_epoch(b: PitfallBroker) -> Producer:
    """A producer in the last session that its id allows."""
    p = Producer(b, "txn")
    b.set_epoch("txn", LAST_EPOCH - 1)
    p.begin_session()
    assert p.epoch == LAST_EPOCH
    return p


# --- exhausted epochs ---------------------------------------------------------------------------


def test_c1_the_last_epoch_serves_any_number_of_transactions(b: PitfallBroker) -> None:
    """C1: in TV1 EndTxn gives out no epoch, so that none runs out there; the next session has
    another producer id, and fences only the last.
    """
    p = at_last_epoch(b)
    for value in (b"1", b"2", b"3"):
        p.send("t", 0, value)
        assert p.end(True) == 0
    assert b.state("txn") == ("CompleteCommit", p.pid, LAST_EPOCH)
    old = p.pid
    p.begin_session()
    assert p.pid != old and p.epoch == 0
    p.send("t", 0, b"4")
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"1", b"2", b"3", b"4"]


def test_c2_a_session_that_meets_an_open_transaction_never_gets_a_negative_epoch(
    b: PitfallBroker,
) -> None:
    """C2: in TV1 two epochs go by, one for the abort's marker and one for the session, and no third
    when the request is repeated.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"x")
    first = b.init("txn", pid=p.pid, epoch=p.epoch)
    assert first == (0, p.pid, p.epoch + 2)
    assert b.init("txn", pid=p.pid, epoch=p.epoch) == first
    assert b.markers("t") == [(p.pid, p.epoch + 1, False)]
    for epoch, taken_over in ((LAST_EPOCH - 2, LAST_EPOCH), (LAST_EPOCH - 1, 0), (LAST_EPOCH, 0)):
        p.begin_session()
        b.set_epoch("txn", epoch)
        p.epoch = epoch
        p.send("t", 1, b"x")
        code, pid, new_epoch = b.init("txn")
        assert (code, new_epoch) == (0, taken_over)
        assert (pid != p.pid) == (taken_over == 0)
    assert all(0 <= epoch <= 32767 and not commit for _, epoch, commit in b.markers("t", 1))
    assert b.read("t", 1, committed=True) == []


@pytest.mark.parametrize("way", ["", "kill", "stop"])
def test_c3_a_timeout_at_the_last_epoch_ends_the_transaction(b: PitfallBroker, way: str) -> None:
    """C3 (KAFKA-20090): the marker has the coordinator's own epoch, the late abort is refused, the
    next session has another producer id.
    """
    p = at_last_epoch(b)
    p.send("t", 0, b"x")
    if way:
        getattr(b, way)()
        p.reconnect()
    b.tick(MINUTE_MS)
    assert b.markers("t") == [(p.pid, 32767, False)]
    assert b.state("txn") == ("CompleteAbort", p.pid, 32767)
    assert (p.end(False), p.end(True)) == (90, 90)
    assert b.end_offset("t", committed=True) == b.end_offset("t") == 2
    if way:
        getattr(b, way)()
        p.reconnect()
    assert b.state("txn") == ("CompleteAbort", p.pid, 32767)
    old = p.pid
    p.begin_session()
    assert p.pid != old and p.epoch == 0
    p.send("t", 0, b"a")
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"a"]


def test_c3_a_kill_amid_the_abort_at_the_last_epoch_is_recovered_from() -> None:
    """C3: whatever step of the abort the kill comes before, its marker with epoch 32767 is accepted
    in the end.
    """
    outcomes = set()
    for steps in range(100):
        b = PitfallBroker()
        b.topic("t")
        p = at_last_epoch(b)
        p.send("t", 0, b"x")
        b.disk.crash_in(steps)
        try:
            b.tick(MINUTE_MS)
        except Crash:
            b.kill()
            b.tick()
            assert b.state("txn") == ("CompleteAbort", p.pid, 32767)
            assert {epoch for _, epoch, _ in b.markers("t")} == {32767}
            assert b.end_offset("t", committed=True) == b.end_offset("t")
            p.begin_session()
            assert p.epoch == 0
            outcomes.add(len(b.markers("t")))
        else:
            break
    else:
        pytest.fail("the abort never came to its end")
    assert outcomes == {1, 2}, "killed before the marker, and behind it: then it stands there twice"


@pytest.mark.parametrize("epoch", [0, LAST_EPOCH])
def test_c4_a_session_whose_answer_was_lost_in_a_kill_is_given_again(
    b: PitfallBroker, epoch: int
) -> None:
    """C4 (KAFKA-20357): the record has who asked for it, so that the same request is known again."""
    p = at_last_epoch(b) if epoch else Producer(b, "txn")
    p.send("t", 0, b"a")
    assert p.end(True) == 0
    b.hold_flushes()
    connection = b.connect()
    b.send(connection, init_request("txn", p.pid, p.epoch), 4)
    assert b.answer(connection) is None, "an epoch is told when it cannot be forgotten"
    state, pid, new_epoch = b.state("txn")
    assert (state, pid != p.pid, new_epoch) == ("Empty", bool(epoch), 0 if epoch else p.epoch + 1)
    b.kill()
    assert b.init("txn", pid=p.pid, epoch=p.epoch) == (0, pid, new_epoch)
    assert b.init("txn", pid=p.pid, epoch=p.epoch) == (0, pid, new_epoch)
    assert b.init("txn", pid=p.pid, epoch=p.epoch - 1 if epoch else 7)[0] == 90
    p.reconnect()
    p.pid, p.epoch = pid, new_epoch
    p.sequences.clear()
    p.send("t", 0, b"b")
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"a", b"b"]


# --- markers ------------------------------------------------------------------------------------


@STEP_BY_STEP
def test_c5_markers_that_are_written_again_do_no_harm(b: PitfallBroker) -> None:
    """C5 (KAFKA-19999): killed between the markers and the Complete record, three times over;
    nobody meets CONCURRENT_TRANSACTIONS then.
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


def test_c6_a_marker_of_an_earlier_session_does_not_end_what_is_open(b: PitfallBroker) -> None:
    """C6: in TV1 transactions of one session have one epoch, and a marker's has to be at least that
    of the data.
    """
    p = Producer(b, "txn")
    old = p.epoch
    p.begin_session()
    p.send("t", 0, b"a")
    assert b.write_marker(p.pid, old, "t", commit=True) == 47
    assert b.read("t", committed=True) == []
    assert p.end(False) == 0
    assert b.read("t", committed=True) == []


@STEP_BY_STEP
def test_c6_a_marker_that_is_written_again_after_a_power_loss_does_not_end_the_next_transaction(
    b: PitfallBroker,
) -> None:
    """C6: T1's Complete record and T2's first one were not on the disk, T2's data were: T1's
    commit, done again, must not commit them.
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
    assert p.end(True) == 90


def test_c7_a_fencing_that_cannot_be_written_raises_no_epoch() -> None:
    """C7 (KAFKA-9666): the disk is full, the broker stops, is started again, and so on; then there
    is room, and one epoch has gone by.
    """
    b = PitfallBroker()
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"x")
    b.tick(MINUTE_MS - 1)
    for _ in range(4):
        b.disk.crash_in(0, is_full=True)
        b.now_ms += 1
        with pytest.raises(OSError, match="full"):
            b.broker.on_tick(b.now_ms)
        found = b.broker.transactions.metadata("txn")
        assert found is not None and (found.state.value, found.producer_epoch) == (
            "Ongoing",
            p.epoch,
        )
        b.kill()
        assert b.state("txn") == ("Ongoing", p.pid, p.epoch)
    b.tick()
    assert b.state("txn") == ("CompleteAbort", p.pid, p.epoch + 1)
    assert b.markers("t") == [(p.pid, p.epoch + 1, False)]


# --- time ---------------------------------------------------------------------------------------


def test_c8_a_producer_whose_transactional_id_expired_is_not_taken_back_silently() -> None:
    """C8 (KAFKA-18019): INVALID_PRODUCER_ID_MAPPING for all that it asks, until somebody begins a
    session; that one has another producer id.
    """
    b = PitfallBroker(transactional_id_expiration_ms=str(10 * MINUTE_MS))
    b.topic("t")
    zombie = Producer(b, "txn")
    zombie.send("t", 0, b"a")
    b.tick(1)
    assert zombie.end(True) == 0
    b.tick(10 * MINUTE_MS)
    for _ in ("nobody has come", "its successor has"):
        assert zombie.add("t", 0) == 49
        assert zombie.add_offsets("g") == 49
        assert zombie.produce("t", 0, b"x") == 49
        assert (zombie.end(True), zombie.end(False)) == (49, 49)
        successor = Producer(b, "txn")
        assert successor.pid != zombie.pid
    b.kill()
    zombie.reconnect()
    assert zombie.add("t", 0) == 49
    assert b.read("t", committed=True) == [b"a"]


@pytest.mark.parametrize(("version", "code"), [(0, 47), (1, 47), (2, 90), (3, 90)])
def test_c9_a_producer_out_of_time_is_told_so_in_words_that_its_version_knows(
    b: PitfallBroker, version: int, code: int
) -> None:
    """C9 (KIP-588): PRODUCER_FENCED from version 2 on; before, and always for Produce,
    INVALID_PRODUCER_EPOCH.
    """
    p = Producer(b, "txn", timeout_ms=1000)
    p.send("t", 0, b"x")
    p.send_offset("g", "t", 3)
    b.tick(1000)
    assert b.state("txn")[0] == "CompleteAbort"
    assert p.add("t", 0, version=version) == code
    assert p.add_offsets("g", version=version) == code
    assert p.end(True, version=version) == code
    assert p.produce("t", 0, b"x") == 47
    assert p.commit_offset("g", "t", 4) == 47
    assert b.group_offset("g", "t") == (0, -1)
    assert b.read("t", committed=True) == []


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90)])
def test_c9_a_new_epoch_ends_it(b: PitfallBroker, version: int, code: int) -> None:
    """A client of KIP-588 asks for its next epoch and goes on; once another session has begun it is
    fenced for good.
    """
    p = Producer(b, "txn", timeout_ms=1000)
    p.send("t", 0, b"x")
    b.tick(1000)
    old = p.epoch
    got = b.init("txn", pid=p.pid, epoch=old, version=version)
    if got[0] == 0:
        p.epoch = got[2]
        p.sequences.clear()
        p.send("t", 0, b"a")
        assert p.end(True) == 0
        assert b.read("t", committed=True) == [b"a"]
    else:
        assert got == (code, -1, -1)
    Producer(b, "txn")
    assert b.init("txn", pid=p.pid, epoch=old, version=version)[0] == code


def test_c10_a_timeout_longer_than_the_broker_allows_is_refused() -> None:
    """C10: INVALID_TRANSACTION_TIMEOUT, not a shorter timeout that the client does not know of."""
    b = PitfallBroker(transaction_max_timeout_ms="5000")
    for timeout_ms, code in ((5000, 0), (5001, 50), (2**31 - 1, 50), (0, 50), (-1, 50)):
        assert b.init("txn", timeout_ms=timeout_ms)[0] == code
    assert b.init(None, timeout_ms=5001)[0] == 0, "without a transactional id it says nothing"


# --- crashes amid a transaction -----------------------------------------------------------------


def test_c11_a_kill_between_the_records_and_the_offsets_of_a_transaction_forgets_neither(
    b: PitfallBroker,
) -> None:
    """C11"""
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    b.kill()
    p.reconnect()
    p.send_offset("g", "t", 5)
    b.kill()
    p.reconnect()
    assert b.group_offset("g", "t") == (88, -1)
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"a"]
    assert b.group_offset("g", "t") == (0, 5)


@pytest.mark.parametrize("kept", ["", "/t-0/", "/__transaction_state-", "/__consumer_offsets-"])
def test_c11_after_a_power_loss_a_transaction_that_lost_a_part_cannot_be_committed(
    b: PitfallBroker, kept: str
) -> None:
    """C11: whichever of its parts reached the disk, the commit fails and nothing of it is seen."""
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
    assert p.end(True) == 90
    assert b.read("t", committed=True) == []
    assert b.group_offset("g", "t") == (0, 1)
    assert b.end_offset("t", committed=True) == b.end_offset("t")


@STEP_BY_STEP
@pytest.mark.parametrize("way", ["kill", "lose_power"])
def test_c12_once_it_is_decided_a_commit_always_comes_to_its_end(
    b: PitfallBroker, way: str
) -> None:
    """C12: the client does not know the result; whoever reads the group's offset waits, and then
    has the new one.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    p.send_offset("g", "t", 5)
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and b.state("txn")[0] == "PrepareCommit"
    assert b.group_offset("g", "t") == (88, -1)
    assert p.ended() is None
    b.sync("/__transaction_state-")
    getattr(b, way)()
    assert b.group_offset("g", "t") == (0, 5)
    assert b.read("t", committed=True) == [b"a"]
    if way == "kill":
        p.reconnect()
        assert p.end(True) == 0
        assert p.end(False) == 48


@STEP_BY_STEP
def test_c12_before_it_is_decided_nobody_sees_anything_of_it(b: PitfallBroker) -> None:
    """C12: the decision was not on the disk when the power went: the transaction is aborted, offset
    and records alike.
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
def test_c13_what_a_start_finds_decided_it_completes_however_often_it_is_killed_over_it(
    b: PitfallBroker,
) -> None:
    """C13: recovery is killed at every step that it takes on the disk, one later each time."""
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


def test_c13_without_flushes_a_power_loss_shows_no_aborted_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C13, `os`: the coordinator's log comes back with a decision to commit, and the partition
    without the abort marker before it.
    """
    for steps in range(8):
        b = PitfallBroker(barnabas_transaction_durability="os")
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
    assert "that a power loss left open" in caplog.text, (
        "this test has to see the case that it is for"
    )


def test_c13_without_flushes_no_epoch_is_given_to_two_producers() -> None:
    """C13, `os`: the record of a session went with the power, and its producer, on another machine,
    goes on.
    """
    for is_open in (False, True):
        b = PitfallBroker(barnabas_transaction_durability="os")
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
def test_c14_the_next_transaction_never_meets_the_end_of_the_last(
    durability: str, journal: str
) -> None:
    """C14: not with CONCURRENT_TRANSACTIONS, also while the markers wait for the disk; it waits
    with them, and is then let in.
    """
    b = PitfallBroker(
        barnabas_transaction_durability=durability, barnabas_flush_journal_logs=journal
    )
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
def test_c14_offsets_and_sessions_wait_for_the_markers_too(b: PitfallBroker) -> None:
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and b.flush_one() and p.ended() == 0
    b.send(p.connection, init_request("txn", p.pid, p.epoch), 4)
    assert b.answer(p.connection) is None
    b.flush()
    assert init_row(b.answer(p.connection)) == (0, p.pid, p.epoch + 1)


def test_c15_a_session_that_takes_over_an_open_transaction_is_answered_when_that_has_ended(
    b: PitfallBroker,
) -> None:
    """C15: at once, with no CONCURRENT_TRANSACTIONS in between."""
    p = Producer(b, "txn")
    p.send("t", 0, b"x")
    b.hold_flushes()
    connection = b.connect()
    b.send(connection, init_request("txn"), 4)
    assert b.answer(connection) is None
    b.flush()
    assert init_row(b.answer(connection)) == (0, p.pid, p.epoch + 2)
    assert b.markers("t") == [(p.pid, p.epoch + 1, False)]
    assert p.end(True) == 90


@STEP_BY_STEP
def test_c15_a_session_that_comes_amid_a_commit_is_let_in_when_that_has_ended(
    b: PitfallBroker,
) -> None:
    """C15: the commit is decided and is not undone."""
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
