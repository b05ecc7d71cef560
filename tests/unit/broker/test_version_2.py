"""Transactions of version 2: what they guarantee to clients after kills, power losses and late
requests.

Source: KIP-890. `make oracle` compares the responses with those recorded from Apache Kafka 4.3.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.disk_broker import DiskBroker, Producer, init_request
from sim.disk import Crash

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.end_txn import EndTxnRequest

LAST_EPOCH = 32766
MINUTE_MS = 60_000


class Producer2(Producer):
    """A producer of transaction version 2. It sends no AddPartitionsToTxn, and each EndTxn returns
    its next epoch.
    """

    def write(self, topic: str, partition: int, *values: bytes, version: int = 12) -> int:
        """Write records without adding the partition first, as version 2 allows. Gives the error
        code.
        """
        at = self.sequences.get((topic, partition), 0)
        code, _ = self.b.produce(
            topic,
            values,
            partition=partition,
            pid=self.pid,
            epoch=self.epoch,
            sequence=at,
            txn=self.txn,
            connection=self.connection,
            version=version,
        )
        if code == 0:
            self.sequences[topic, partition] = at + len(values)
        return code

    def finish(self, commit: bool) -> int:
        """Send EndTxn 5, and take over the id and epoch of the response. Gives the error code."""
        answer = self.b.call(self.end_request(commit), 5, self.connection)
        self.take(answer)
        return int(answer.error_code)

    def take(self, answer: Any) -> None:
        """Take over the id and epoch that the end of a transaction returned."""
        if answer.error_code == 0:
            self.pid, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()


@pytest.fixture(params=["2", "0"], ids=["journal", "no journal"])
def b(request: pytest.FixtureRequest) -> DiskBroker:
    broker = DiskBroker(
        barnabas_flush_journal_logs=request.param, barnabas_features="transaction.version=2"
    )
    broker.topic("t", 2)
    return broker


def end_of(pid: int, epoch: int, commit: bool) -> EndTxnRequest:
    return EndTxnRequest("txn", pid, epoch, commit)


def test_without_an_open_transaction_commit_is_refused_and_abort_returns_the_next_epoch(
    b: DiskBroker,
) -> None:
    p = Producer2(b, "txn")
    assert (p.finish(True), p.epoch) == (Code.INVALID_TXN_STATE, 0)
    assert (p.finish(False), p.epoch) == (Code.NONE, 1)


def test_a_write_begins_a_transaction_and_each_end_returns_the_next_epoch(b: DiskBroker) -> None:
    p = Producer2(b, "txn")
    for number, commit in enumerate((True, False, True)):
        assert p.epoch == number
        assert p.write("t", 0, b"%d" % number) == 0
        assert p.write("t", 1, b"%d" % number) == 0
        assert b.state("txn")[0] == "Ongoing"
        assert p.finish(commit) == 0
    assert b.read("t", committed=True) == [b"0", b"2"] == b.read("t", 1, committed=True)
    assert b.markers("t") == [(p.pid, 1, True), (p.pid, 2, False), (p.pid, 3, True)]


@pytest.mark.parametrize("restart", ["", "kill", "stop"])
def test_a_repeated_end_gets_the_same_response(b: DiskBroker, restart: str) -> None:
    p = Producer2(b, "txn")
    first = p.pid, p.epoch
    for commit in (True, False):
        p.write("t", 0, b"x")
        before = p.epoch
        assert p.finish(commit) == 0
        if restart:
            getattr(b, restart)()
            p.reconnect()
        again = b.call(end_of(p.pid, before, commit), 5, p.connection)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, p.pid, p.epoch)
        other = b.call(end_of(p.pid, before, not commit), 5, p.connection)
        assert (other.error_code, other.producer_id) == (Code.INVALID_TXN_STATE, -1)
    assert (p.pid, p.epoch) == (first[0], first[1] + 2)
    assert len(b.markers("t")) == 2


def test_an_end_that_comes_late_does_not_end_the_next_transaction(b: DiskBroker) -> None:
    """The late EndTxn has the epoch of the previous transaction, so it is refused on any
    connection.
    """
    p = Producer2(b, "txn")
    p.write("t", 0, b"1")
    before = p.epoch
    p.finish(True)
    p.write("t", 0, b"2")
    for commit in (True, False):
        late = b.call(end_of(p.pid, before, commit), 5, p.connection)
        assert late.error_code == Code.PRODUCER_FENCED
    assert b.state("txn")[0] == "Ongoing"
    assert p.finish(True) == 0
    assert b.read("t", committed=True) == [b"1", b"2"]


def test_a_late_batch_neither_begins_nor_joins_a_transaction(b: DiskBroker) -> None:
    """A producer's batch arrives after its transaction was aborted, with the epoch of that
    transaction. It must be refused before and during the next transaction.
    """
    p = Producer2(b, "txn")
    p.write("t", 0, b"1")
    late = Producer2(b, "other")
    late.txn, late.pid, late.epoch = "txn", p.pid, p.epoch
    p.finish(False)
    for partition in (0, 1):
        assert late.write("t", partition, b"late") == Code.INVALID_PRODUCER_EPOCH
    assert b.state("txn")[0] == "CompleteAbort"
    p.write("t", 1, b"2")
    for partition in (0, 1):
        assert late.write("t", partition, b"late") == Code.INVALID_PRODUCER_EPOCH
    assert p.finish(True) == 0
    assert (b.read("t", committed=True), b.read("t", 1, committed=True)) == ([], [b"2"])
    assert b.end_offset("t", committed=True) == b.end_offset("t")


@pytest.mark.parametrize("commit", [True, False])
def test_a_kill_between_adding_the_partition_and_the_batch_leaves_no_hanging_transaction(
    b: DiskBroker, commit: bool
) -> None:
    # contract: kip-98/order
    """The broker is killed before the first write that a Produce request causes, then before the
    second, and so on. The first write adds the partition to the transaction.
    """
    outcomes = set()
    for steps in range(6):
        p = Producer2(b, f"txn{steps}")
        end, name = b.end_offset("t"), f"txn{steps}"
        request = b.produce_request("t", (b"x",), pid=p.pid, epoch=p.epoch, sequence=0, txn=name)
        b.disk.crash_in(steps)
        try:
            b.call(request, 12, p.connection)
        except Crash:
            b.kill()
            b.tick()
            p.reconnect()
        b.disk.crash_in(-1)
        is_written, state = b.end_offset("t") > end, b.state(name)[0]
        outcomes.add((state, is_written))
        assert state == "Ongoing" or not is_written
        assert p.finish(commit) == 0 or state != "Ongoing"
        assert b.end_offset("t", committed=True) == b.end_offset("t")
    assert {("Empty", False), ("Ongoing", False), ("Ongoing", True)} <= outcomes


def test_after_a_power_loss_the_producer_is_fenced(b: DiskBroker) -> None:
    """A power loss may lose the epoch that the abort returned. No other producer gets the same id
    and epoch, since the next session has a new id.
    """
    p = Producer2(b, "txn")
    p.write("t", 0, b"1")
    assert p.finish(True) == 0
    b.sync("/__transaction_state")
    p.write("t", 0, b"2")
    assert p.finish(False) == 0
    p.write("t", 0, b"3")
    b.sync("/t-0/")
    b.lose_power()
    p.reconnect()
    assert p.write("t", 0, b"4") != 0
    assert p.finish(True) in (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_ID_MAPPING)
    _, pid, epoch = b.state("txn")
    assert pid > p.pid and epoch == 0
    assert b.read("t", committed=True) == [b"1"]
    assert b.end_offset("t", committed=True) == b.end_offset("t")


@pytest.mark.parametrize(("level", "next_level"), [(2, 1), (2, 0), (1, 1), (0, 0), (0, 2)])
def test_after_a_power_loss_the_producer_is_fenced_at_any_transaction_version(
    level: int, next_level: int
) -> None:
    """An abort with EndTxn 5 returns a new epoch at each level, and is not flushed at any level."""
    b = DiskBroker(barnabas_features=f"transaction.version={level}")
    b.topic("t", 2)
    p = Producer2(b, "txn")
    p.write("t", 0, b"1")
    assert p.finish(True) == 0
    b.sync("/__transaction_state")
    p.write("t", 0, b"2")
    assert p.finish(False) == 0
    assert p.write("t", 0, b"lost") == 0
    b.set_property("barnabas.features", f"transaction.version={next_level}")
    b.lose_power()
    p.reconnect()
    assert p.write("t", 1, b"3") != 0
    assert p.finish(True) in (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_ID_MAPPING)
    assert b.read("t", 1, committed=True) == []


def test_a_write_after_an_end_waits_for_the_markers(b: DiskBroker) -> None:
    """The write waits for the markers, even if the disk is slow. It does not get
    CONCURRENT_TRANSACTIONS.
    """
    p = Producer2(b, "txn")
    p.write("t", 0, b"1")
    b.hold_flushes()
    b.send(p.connection, p.end_request(True), 5)
    while (answer := b.answer(p.connection)) is None:
        assert b.flush_one()
    p.take(answer)
    request = b.produce_request("t", (b"2",), pid=p.pid, epoch=p.epoch, sequence=0, txn="txn")
    b.send(p.connection, request, 12)
    while (produced := b.answer(p.connection)) is None:
        assert b.flush_one()
    assert produced.responses[0].partition_responses[0].error_code == 0
    b.release_flushes()
    p.sequences["t", 0] = 1
    assert p.finish(True) == 0
    assert b.read("t", committed=True) == [b"1", b"2"]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_write_that_waited_for_an_end_lets_the_next_request_come(
    b: DiskBroker, acks: int
) -> None:
    """The same holds for a write with acks=0, which gets no response."""
    p = Producer2(b, "txn")
    p.write("t", 0, b"1")
    ending = b.connect()
    b.hold_flushes()
    b.send(ending, p.end_request(True), 5)
    b.flush_one()
    request = b.produce_request("t", (b"2",), pid=p.pid, epoch=p.epoch + 1, sequence=0, txn="txn")
    request.acks = acks
    b.send(p.connection, request, 12)
    assert b.broker.connections[p.connection].in_flight, "it waits for the end"
    b.release_flushes()
    p.take(b.answer(ending))
    assert p.finish(True) == 0
    assert b.read("t", committed=True) == [b"1", b"2"]


@pytest.mark.parametrize("restart", ["", "kill", "stop"])
def test_an_end_at_the_last_epoch_returns_a_new_producer_id(b: DiskBroker, restart: str) -> None:
    p = Producer2(b, "txn")
    b.set_epoch("txn", LAST_EPOCH - 1)
    p.begin_session()
    old = p.pid
    assert p.epoch == LAST_EPOCH
    p.write("t", 0, b"x")
    assert p.finish(True) == 0
    assert (p.pid > old, p.epoch) == (True, 0)
    assert b.markers("t") == [(old, 32767, True)]
    if restart:
        getattr(b, restart)()
        p.reconnect()
    again = b.call(end_of(old, LAST_EPOCH, True), 5, p.connection)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, p.pid, 0)
    again = b.call(init_request("txn", old, LAST_EPOCH, MINUTE_MS), 5)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, p.pid, 0)
    p.write("t", 0, b"y")
    assert p.finish(True) == 0
    assert b.read("t", committed=True) == [b"x", b"y"]


@pytest.mark.parametrize("way", ["", "kill"])
def test_a_producer_whose_transaction_timed_out_can_abort_and_continue(
    b: DiskBroker, way: str
) -> None:
    """The late commit is refused, since the transaction was aborted. In version 1 the producer
    would be fenced.
    """
    p = Producer2(b, "txn", timeout_ms=1000)
    p.write("t", 0, b"x")
    b.tick(1000)
    assert b.state("txn") == ("CompleteAbort", p.pid, p.epoch + 1)
    if way:
        getattr(b, way)()
        p.reconnect()
    assert p.write("t", 0, b"y") == Code.INVALID_PRODUCER_EPOCH
    assert p.finish(True) == Code.INVALID_TXN_STATE
    assert p.finish(False) == 0
    p.write("t", 0, b"z")
    assert p.finish(True) == 0
    assert b.read("t", committed=True) == [b"z"]


def test_a_transactional_id_can_change_between_versions_1_and_2(b: DiskBroker) -> None:
    p = Producer2(b, "txn")
    for number in range(6):
        value = b"%d" % number
        if number % 3 == 0:
            assert p.write("t", 0, value) == 0 and p.finish(True) == 0
        elif number % 3 == 1:
            assert p.add("t", 0) == 0 and p.produce("t", 0, value) == 0 and p.end(True) == 0
        else:
            assert p.add("t", 0) == 0 and p.produce("t", 0, value) == 0 and p.finish(True) == 0
        if number == 2:
            b.kill()
            p.reconnect()
    assert b.read("t", committed=True) == [b"%d" % number for number in range(6)]
    assert p.epoch == 4, "only the four ends of version 2 raised the epoch"


def test_late_requests_of_version_1_do_not_affect_a_later_transaction_of_version_2(
    b: DiskBroker,
) -> None:
    """EndTxn of version 1 returns no new epoch, so late requests are recognised by the connection
    that they arrive on.
    """
    p = Producer2(b, "txn")
    p.send("t", 0, b"1")
    old = p.reconnect()
    assert p.end(False) == 0
    assert p.write("t", 0, b"2") == 0
    assert b.is_hung_up_on(old, p.end_request(False), 3)
    older = p.reconnect()
    assert p.write("t", 0, b"3") == 0
    assert p.is_late("t", b"late", sequence=3, connection=older)
    assert p.finish(True) == 0
    assert b.read("t", committed=True) == [b"2", b"3"]


def test_a_txn_offset_commit_begins_a_transaction_from_version_5_on(b: DiskBroker) -> None:
    p = Producer2(b, "txn")
    request = p.offset_request("group", "t", 7)
    assert b.call(request, 3, p.connection).topics[0].partitions[0].error_code == (
        Code.INVALID_TXN_STATE
    )
    assert b.call(request, 4, p.connection).topics[0].partitions[0].error_code == (
        Code.TRANSACTION_ABORTABLE
    )
    assert b.call(request, 5, p.connection).topics[0].partitions[0].error_code == 0
    assert b.state("txn")[0] == "Ongoing"
    assert p.finish(True) == 0
    b.kill()
    assert b.group_offset("group", "t") == (0, 7)


def test_older_versions_of_produce_need_the_partition_to_be_added_first(b: DiskBroker) -> None:
    p = Producer2(b, "txn")
    assert p.write("t", 0, b"x", version=10) == Code.INVALID_TXN_STATE
    assert p.write("t", 0, b"x", version=11) == Code.TRANSACTION_ABORTABLE
    assert p.write("t", 0, b"x", version=12) == 0


def test_a_new_session_that_aborts_a_transaction_raises_the_epoch_by_two(b: DiskBroker) -> None:
    """The abort takes one epoch, and the new session takes another. A producer that sends its own
    id and epoch gets the first of them.
    """
    p = Producer2(b, "txn")
    p.write("t", 0, b"x")
    assert b.init("txn") == (0, p.pid, p.epoch + 2)
    assert p.finish(True) == Code.PRODUCER_FENCED
    q = Producer2(b, "txn2")
    q.write("t", 0, b"x")
    assert b.init("txn2", pid=q.pid, epoch=q.epoch) == (0, q.pid, q.epoch + 1)
    assert b.init("txn2", pid=q.pid, epoch=q.epoch) == (0, q.pid, q.epoch + 1), "a retry"
    assert b.read("t", committed=True) == []
