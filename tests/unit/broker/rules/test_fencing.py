"""Rules that other brokers broke: epochs, sessions and timeouts of producers.

These rules are about version 1 of transactions: a session keeps one epoch, and EndTxn returns no
epoch. The broker is at level 1 of transaction.version, like Apache Kafka 3.9. The rules for level
2, and for version 2, are in `test_broker_version_2`.
"""

from __future__ import annotations

import pytest
from helpers.disk_broker import DiskBroker, Producer, init_request
from sim.disk import Crash

from barnabas.protocol.errors import Code

LAST_EPOCH = 32766  # the last epoch for clients; the coordinator uses 32767 for fencing
MINUTE_MS = 60_000
LEVEL_1 = "transaction.version=1"


@pytest.fixture
def b(request: pytest.FixtureRequest) -> DiskBroker:
    broker = DiskBroker(
        barnabas_flush_journal_logs=getattr(request, "param", "2"), barnabas_features=LEVEL_1
    )
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


def test_the_last_epoch_serves_any_number_of_transactions(b: DiskBroker) -> None:
    """A producer with the last epoch can make any number of transactions.

    In version 1, EndTxn returns no epoch, so transactions use up no epochs. The next session has a
    new producer id, and fences only the previous producer.

    Source: KAFKA-18660.
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


def test_a_session_that_meets_an_open_transaction_never_gets_a_negative_epoch(
    b: DiskBroker,
) -> None:
    """A session that begins during an open transaction never gets a negative epoch.

    In version 1 the epoch rises by two: one for the marker of the abort, and one for the session. A
    retry of the request does not raise it again.

    Source: KAFKA-19367.
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
        assert (code, new_epoch) == (Code.NONE, taken_over)
        assert (pid != p.pid) == (taken_over == 0)
    assert all(0 <= epoch <= 32767 and not commit for _, epoch, commit in b.markers("t", 1))
    assert b.read("t", 1, committed=True) == []


@pytest.mark.parametrize("way", ["", "kill", "stop"])
def test_a_timeout_at_the_last_epoch_ends_the_transaction(b: DiskBroker, way: str) -> None:
    """A timeout at the last epoch ends the transaction.

    The marker has the epoch that is reserved for the coordinator, the late abort is refused, and
    the next session has a new producer id.

    Source: KAFKA-20090.
    """
    p = at_last_epoch(b)
    p.send("t", 0, b"x")
    if way:
        getattr(b, way)()
        p.reconnect()
    b.tick(MINUTE_MS)
    assert b.markers("t") == [(p.pid, 32767, False)]
    assert b.state("txn") == ("CompleteAbort", p.pid, 32767)
    assert (p.end(False), p.end(True)) == (Code.PRODUCER_FENCED, Code.PRODUCER_FENCED)
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


def test_a_kill_during_the_abort_at_the_last_epoch_is_recovered_from() -> None:
    """A kill during the abort at the last epoch does no harm.

    The broker is killed before the first step of the abort, then before the second, and so on.
    After the recovery, the marker with epoch 32767 is accepted.

    Source: KAFKA-20090.
    """
    outcomes = set()
    for steps in range(100):
        b = DiskBroker(barnabas_features=LEVEL_1)
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
    assert outcomes == {1, 2}, "killed before the marker, and behind it: then it is there twice"


@pytest.mark.parametrize("epoch", [0, LAST_EPOCH])
def test_a_session_whose_response_was_lost_in_a_kill_is_returned_again(
    b: DiskBroker, epoch: int
) -> None:
    """If a kill loses the response to InitProducerId, a retry gets the same session.

    The coordinator's record names the producer that sent the request, so the retry is recognised.

    Source: KAFKA-20357.
    """
    p = at_last_epoch(b) if epoch else Producer(b, "txn")
    p.send("t", 0, b"a")
    assert p.end(True) == 0
    b.hold_flushes()
    connection = b.connect()
    b.send(connection, init_request("txn", p.pid, p.epoch), 4)
    assert b.answer(connection) is None, "an epoch is answered when it is durable"
    state, pid, new_epoch = b.state("txn")
    assert (state, pid != p.pid, new_epoch) == ("Empty", bool(epoch), 0 if epoch else p.epoch + 1)
    b.kill()
    assert b.init("txn", pid=p.pid, epoch=p.epoch) == (0, pid, new_epoch)
    assert b.init("txn", pid=p.pid, epoch=p.epoch) == (0, pid, new_epoch)
    assert b.init("txn", pid=p.pid, epoch=p.epoch - 1 if epoch else 7)[0] == Code.PRODUCER_FENCED
    p.reconnect()
    p.pid, p.epoch = pid, new_epoch
    p.sequences.clear()
    p.send("t", 0, b"b")
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"a", b"b"]


# --- markers ------------------------------------------------------------------------------------


def test_a_fencing_that_cannot_be_written_raises_no_epoch() -> None:
    """An abort for fencing that cannot be written does not raise the epoch.

    While the disk is full, the broker tries several times, is killed, and starts again, repeatedly.
    Once the disk has space, the epoch has risen by one.

    Source: KAFKA-9666.
    """
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"x")
    b.tick(MINUTE_MS - 1)
    for _ in range(4):
        b.disk.crash_in(0, is_full=True)
        for _ in range(3):
            b.now_ms += 10_001
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


def test_a_producer_whose_transactional_id_expired_is_refused() -> None:
    """A producer whose transactional id has expired cannot continue.

    All of its requests get INVALID_PRODUCER_ID_MAPPING until it begins a new session, which has a
    new producer id.

    Source: KAFKA-18019.
    """
    b = DiskBroker(transactional_id_expiration_ms=str(10 * MINUTE_MS))
    b.topic("t")
    zombie = Producer(b, "txn")
    zombie.send("t", 0, b"a")
    b.tick(1)
    assert zombie.end(True) == 0
    b.tick(10 * MINUTE_MS)
    for _ in ("nobody has come", "its successor has"):
        assert zombie.add("t", 0) == Code.INVALID_PRODUCER_ID_MAPPING
        assert zombie.add_offsets("g") == Code.INVALID_PRODUCER_ID_MAPPING
        assert zombie.produce("t", 0, b"x") == Code.INVALID_PRODUCER_ID_MAPPING
        assert (zombie.end(True), zombie.end(False)) == (
            Code.INVALID_PRODUCER_ID_MAPPING,
            Code.INVALID_PRODUCER_ID_MAPPING,
        )
        successor = Producer(b, "txn")
        assert successor.pid != zombie.pid
    b.kill()
    zombie.reconnect()
    assert zombie.add("t", 0) == Code.INVALID_PRODUCER_ID_MAPPING
    assert b.read("t", committed=True) == [b"a"]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, Code.INVALID_PRODUCER_EPOCH),
        (1, Code.INVALID_PRODUCER_EPOCH),
        (2, Code.PRODUCER_FENCED),
        (3, Code.PRODUCER_FENCED),
    ],
)
def test_a_timed_out_producer_gets_an_error_that_its_version_knows(
    b: DiskBroker, version: int, code: int
) -> None:
    """A producer that timed out gets an error that its version of the request knows.

    From version 2 on, this error is PRODUCER_FENCED. In earlier versions, and for every version of
    Produce, it is INVALID_PRODUCER_EPOCH.

    Source: KIP-588, KAFKA-10687, corda#2418.
    """
    p = Producer(b, "txn", timeout_ms=1000)
    p.send("t", 0, b"x")
    p.send_offset("g", "t", 3)
    b.tick(1000)
    assert b.state("txn")[0] == "CompleteAbort"
    assert p.add("t", 0, version=version) == code
    assert p.add_offsets("g", version=version) == code
    assert p.end(True, version=version) == code
    assert p.produce("t", 0, b"x") == Code.INVALID_PRODUCER_EPOCH
    assert p.commit_offset("g", "t", 4) == Code.INVALID_PRODUCER_EPOCH
    assert b.group_offset("g", "t") == (0, -1)
    assert b.read("t", committed=True) == []


@pytest.mark.parametrize(
    ("version", "code"), [(3, Code.INVALID_PRODUCER_EPOCH), (4, Code.PRODUCER_FENCED)]
)
def test_a_timed_out_producer_may_continue_with_a_new_epoch(
    b: DiskBroker, version: int, code: int
) -> None:
    """A producer that timed out can continue with a new epoch.

    A client that supports KIP-588 requests its next epoch and continues. As soon as another session
    has begun, that client is fenced for good.

    Source: KIP-588, KAFKA-10687, corda#2418.
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


def test_a_timeout_longer_than_the_broker_allows_is_refused() -> None:
    """A timeout longer than the broker allows is refused.

    The client gets INVALID_TRANSACTION_TIMEOUT. The broker does not shorten the timeout without the
    client's knowledge.

    Source: Kafka: InitProducerId.
    """
    b = DiskBroker(transaction_max_timeout_ms="5000")
    for timeout_ms, code in (
        (5000, 0),
        (5001, Code.INVALID_TRANSACTION_TIMEOUT),
        (2**31 - 1, Code.INVALID_TRANSACTION_TIMEOUT),
        (0, Code.INVALID_TRANSACTION_TIMEOUT),
        (-1, Code.INVALID_TRANSACTION_TIMEOUT),
    ):
        assert b.init("txn", timeout_ms=timeout_ms)[0] == code
    assert b.init(None, timeout_ms=5001)[0] == 0, "without a transactional id it says nothing"


# --- crashes during a transaction -----------------------------------------------------------------
# --- the normal path ----------------------------------------------------------------------------
