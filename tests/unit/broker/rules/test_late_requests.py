"""Rules that other brokers broke: requests that arrive late, or in an order other than that in
which they were sent.

Here the broker uses version 1 of transactions, which precedes the second part of KIP-890: a session
keeps one epoch, and EndTxn returns no epoch. If a rule is about version 2, its test shows what
version 1 does in the same situation, as in Apache Kafka 3.9.
"""

from __future__ import annotations

import pytest
from helpers.disk_broker import DiskBroker, Producer

from barnabas.protocol.errors import Code


@pytest.fixture
def b(request: pytest.FixtureRequest) -> DiskBroker:
    broker = DiskBroker(barnabas_flush_journal_logs=getattr(request, "param", "2"))
    broker.topic("t", 2)
    return broker


STEP_BY_STEP = pytest.mark.parametrize(
    "b", ["0"], indirect=True
)  # without the flush journal, a commit waits for each flush


def retried_over_a_new_connection(p: Producer, commit: bool) -> int:
    """Write T1, and end it over a new connection while the first EndTxn is still in transit on the
    old connection. Then begin T2. Gives the old connection.
    """
    p.send("t", 0, b"t1")
    old = p.reconnect()
    assert p.end(commit) == 0
    p.send("t", 0, b"t2a")
    return old


def test_a_delayed_commit_does_not_end_the_next_transaction(b: DiskBroker) -> None:
    """A delayed commit does not end the next transaction.

    In version 1, the epoch does not show that the request is late, but its producer now uses
    another connection. The broker closes the old connection, since no client waits for a response
    there.

    Source: KIP-890, Jepsen (users@kafka, 2024).
    """
    p = Producer(b, "txn")
    old = retried_over_a_new_connection(p, True)
    assert not p.is_end_processed_over(True, old)
    assert b.state("txn")[0] == "Ongoing"
    assert b.read("t", committed=True) == [b"t1"]
    assert p.end(False) == 0
    assert b.read("t", committed=True) == [b"t1"]


def test_a_delayed_commit_of_an_earlier_session_is_fenced_by_its_epoch(b: DiskBroker) -> None:
    """A delayed commit of an earlier session is fenced by its epoch.

    Source: KIP-890, Jepsen (users@kafka, 2024).
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"t1")
    late = p.end_request(True)
    p.reconnect()
    p.begin_session()
    p.send("t", 0, b"t2")
    assert b.call(late, 3, b.connect()).error_code == Code.PRODUCER_FENCED
    assert b.call(late, 3, 1).error_code == Code.PRODUCER_FENCED, (
        "over its old connection too: the words tell more than a closed connection"
    )
    assert b.state("txn")[0] == "Ongoing"
    assert b.read("t", committed=True) == []


def test_a_connection_that_never_added_anything_may_end_a_transaction(b: DiskBroker) -> None:
    """A connection over which no partition was added may end a transaction.

    The client may have lost its connection between the last write and EndTxn. It may also be
    another process, which ends the transaction in which its workers wrote.

    Source: KIP-890, Jepsen (users@kafka, 2024).
    """
    p = Producer(b, "txn")
    for value in (b"1", b"2", b"3"):
        p.send("t", 0, value)
        assert p.end(True, connection=b.connect()) == 0
    assert b.read("t", committed=True) == [b"1", b"2", b"3"]


def test_who_ends_over_an_older_connection_connects_again_and_is_heard(b: DiskBroker) -> None:
    """An EndTxn over an older connection is accepted after a reconnection.

    The client is a coordinating process that connected before its workers, and ends the transaction
    in which they wrote. It repeats the EndTxn over a new connection, so the broker can distinguish
    it from a late request.

    Source: KIP-890, Jepsen (users@kafka, 2024).
    """
    coordinator, p = b.connect(), Producer(b, "txn")
    p.send("t", 0, b"a")
    assert not p.is_end_processed_over(True, coordinator)
    assert b.state("txn")[0] == "Ongoing"
    assert p.end(True, connection=b.connect()) == 0
    assert b.read("t", committed=True) == [b"a"]


def test_a_new_session_may_come_over_any_connection(b: DiskBroker) -> None:
    """A new session may begin over any connection.

    Two processes share a transactional id and take turns. Each of them keeps its connection, and
    begins each turn with InitProducerId, which returns a new epoch.

    Source: KIP-890, Jepsen (users@kafka, 2024).
    """
    first, second = Producer(b, "txn"), Producer(b, "txn")
    assert first.connection < second.connection
    second.send("t", 0, b"second")
    assert second.end(True) == 0
    first.begin_session()
    first.send("t", 0, b"first")
    assert first.end(True) == 0
    assert second.end(True) == Code.PRODUCER_FENCED
    assert b.read("t", committed=True) == [b"second", b"first"]


def test_offsets_may_come_over_the_connection_of_the_groups_coordinator(
    b: DiskBroker,
) -> None:
    """Offsets may be sent over the connection to the group's coordinator.

    Some clients open one connection to each coordinator, in any order, and use all of them.

    Source: KIP-890, Jepsen (users@kafka, 2024).
    """
    to_group = b.connect()
    p = Producer(b, "txn")
    for offset in (1, 2, 3):
        p.send("t", 0, b"%d" % offset)
        assert p.add_offsets("g") == 0
        assert not b.is_hung_up_on(to_group, p.offset_request("g", "t", offset), 3)
        assert p.end(True) == 0
        assert b.group_offset("g", "t") == (0, offset)


@pytest.mark.parametrize("request_of", ["AddPartitions", "AddOffsets", "TxnOffsetCommit"])
def test_nothing_else_that_was_delayed_with_it_joins_the_next_transaction(
    b: DiskBroker, request_of: str
) -> None:
    """A delayed request of any other kind does not join the next transaction.

    Source: KIP-890, Jepsen (users@kafka, 2024).
    """
    p = Producer(b, "txn")
    p.send_offset("g", "t", 1)
    old = retried_over_a_new_connection(p, True)
    p.send_offset("g", "t", 2)
    late, version = {
        "AddPartitions": (p.add_request({"t": (1,)}), 3),
        "AddOffsets": (p.add_offsets_request("another"), 3),
        "TxnOffsetCommit": (p.offset_request("g", "t", 1), 3),
    }[request_of]
    assert b.is_hung_up_on(old, late, version)
    assert p.produce("t", 1, b"x") == Code.INVALID_TXN_STATE
    assert p.end(True) == 0
    assert b.group_offset("g", "t") == (0, 2)
    assert b.markers("t", 1) == []


def test_producers_that_share_connections_do_not_give_up_each_others(b: DiskBroker) -> None:
    """If producers share a connection, one that reconnects does not make the connection invalid for
    the others.

    Source: KIP-890, Jepsen (users@kafka, 2024).
    """
    one, two = Producer(b, "one"), Producer(b, "two")
    one.send("t", 0, b"1")
    two.connection = one.connection
    two.send("t", 1, b"2")
    two.reconnect()
    two.send("t", 1, b"2b")
    assert one.end(True) == 0
    assert two.end(True) == 0


@pytest.mark.parametrize("restart", ["kill", "stop"])
def test_a_restart_knows_no_connection_and_so_refuses_none(b: DiskBroker, restart: str) -> None:
    """After a restart, the broker knows no earlier connections, so it accepts any.

    The restart closes the earlier connections, so requests that were not read yet are lost.

    Source: KIP-890, Jepsen (users@kafka, 2024).
    """
    p = Producer(b, "txn")
    retried_over_a_new_connection(p, True)
    getattr(b, restart)()
    p.reconnect()
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"t1", b"t2a"]


def test_a_delayed_abort_does_not_take_the_next_transactions_records(b: DiskBroker) -> None:
    """A delayed abort does not remove the next transaction's records.

    Source: KIP-890, Jepsen (users@kafka, 2024).
    """
    p = Producer(b, "txn")
    old = retried_over_a_new_connection(p, False)
    assert not p.is_end_processed_over(False, old)
    assert b.state("txn")[0] == "Ongoing"
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"t2a"]


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_a_delayed_end_between_two_writes_does_not_tear_the_next_transaction(
    b: DiskBroker, late: bool, commit: bool
) -> None:
    """A delayed end between two writes does not split the next transaction.

    Source: KIP-890, Jepsen (users@kafka, 2024).
    """
    p = Producer(b, "txn")
    old = retried_over_a_new_connection(p, True)
    assert not p.is_end_processed_over(late, old)
    p.send("t", 0, b"t2b")
    p.send("t", 1, b"t2c")
    assert p.end(commit) == 0
    assert b.read("t", 0, committed=True) == ([b"t1", b"t2a", b"t2b"] if commit else [b"t1"])
    assert b.read("t", 1, committed=True) == ([b"t2c"] if commit else [])


def test_a_delayed_batch_of_the_last_transaction_does_not_join_the_next(
    b: DiskBroker,
) -> None:
    """A delayed batch of the last transaction does not join the next one.

    In version 1, the batch has the same epoch. It is refused if its sequences were used before the
    last marker, or are not the next ones. If they are the next ones, the batch is accepted in place
    of the client's own batch. The client's own batch has other records, so it is refused, and the
    client aborts. Once the client has written over its new connection, requests over the old one
    are refused.

    Source: KIP-890.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"t1a", b"t1b")
    old = p.reconnect()
    assert p.end(False) == 0
    assert p.add("t", 0) == 0
    assert (
        p.produce("t", 0, b"t1a", b"t1b", sequence=0, connection=old) == Code.UNKNOWN_PRODUCER_ID
    ), "its transaction has ended"
    assert (
        p.produce("t", 0, b"t1d", sequence=3, connection=old) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    end = b.end_offset("t")
    assert (end, b.end_offset("t", committed=True)) == (3, 3), (
        "nothing of the delayed ones is there"
    )
    assert p.produce("t", 0, b"t2") == 0
    assert p.is_late("t", b"t1d", sequence=3, connection=old), "it would be the next"
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"t2"]


def test_a_delayed_batch_that_comes_first_makes_its_client_abort(b: DiskBroker) -> None:
    """A delayed batch that takes the place of a batch of the next transaction is not committed with
    it.

    Source: KIP-890.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"t1a")
    old = p.reconnect()
    assert p.end(False) == 0
    assert p.add("t", 0) == 0
    assert p.produce("t", 0, b"t1b", sequence=1, connection=old) == 0, (
        "it cannot be distinguished from t2"
    )
    assert p.produce("t", 0, b"t2") == Code.UNKNOWN_PRODUCER_ID, "its place is taken"
    assert p.end(False) == 0
    assert b.read("t", committed=True) == []


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("commits_first", [False, True])
def test_sequences_that_are_given_to_other_records_are_no_repetition(
    b: DiskBroker, restarts: bool, commits_first: bool
) -> None:
    """A batch with the sequences of an abandoned batch is not taken for a retry of it.

    After a broken connection, librdkafka aborts, and uses the sequences of the abandoned records
    again in its next transaction. Apache Kafka acknowledges the new records with the offsets of the
    old ones, so the new records are missing from the committed data.

    Source: Kafka: ProducerStateEntry, librdkafka: rdkafka_txnmgr.
    """
    p = Producer(b, "txn")
    if commits_first:
        p.send("t", 0, b"t0")
        assert p.end(True) == 0
    sequence = p.sequences.get(("t", 0), 0)
    p.send("t", 0, b"given up")
    assert p.end(False) == 0
    if restarts:
        b.kill()
        p.reconnect()
    p.sequences["t", 0] = sequence
    assert p.add("t", 0) == 0
    assert p.produce("t", 0, b"other") == Code.UNKNOWN_PRODUCER_ID
    assert p.end(False) == 0
    p.begin_session()
    p.send("t", 0, b"other")
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [*([b"t0"] if commits_first else []), b"other"]


def test_within_a_transaction_a_repetition_has_the_same_records(b: DiskBroker) -> None:
    """Within a transaction, a batch is a retry only if it has the same records.

    Source: Kafka: ProducerStateEntry, librdkafka: rdkafka_txnmgr.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"one")
    assert p.produce("t", 0, b"one", sequence=0) == 0, "its answer was lost"
    assert p.produce("t", 0, b"two", sequence=0) == Code.UNKNOWN_PRODUCER_ID
    b.kill()
    p.reconnect()
    assert p.produce("t", 0, b"one", sequence=0) == 0
    assert p.produce("t", 0, b"two", sequence=0) == Code.UNKNOWN_PRODUCER_ID
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"one"]


def test_a_delayed_batch_is_refused_once_the_client_has_a_new_epoch(b: DiskBroker) -> None:
    """A delayed batch is refused once the client has a new epoch.

    Source: KIP-890.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"t1a")
    pid, epoch = p.pid, p.epoch
    code, p.pid, p.epoch = b.init("txn", pid=pid, epoch=epoch)
    p.sequences.clear()
    assert (code, p.pid) == (Code.NONE, pid) and p.epoch > epoch
    assert p.add("t", 0) == 0
    for sequence in (0, 1):
        assert (
            b.produce("t", (b"t1b",), pid=pid, epoch=epoch, sequence=sequence, txn="txn")[0]
            == Code.INVALID_PRODUCER_EPOCH
        )
    assert p.produce("t", 0, b"t2") == 0
    assert (
        b.produce("t", (b"t1b",), pid=pid, epoch=epoch, sequence=1, txn="txn")[0]
        == Code.INVALID_PRODUCER_EPOCH
    )
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"t2"]


def test_a_partition_that_was_never_added_cannot_be_written(b: DiskBroker) -> None:
    # contract: kip-98/order
    """A partition that was not added to the transaction cannot be written to.

    A batch is refused both without an open transaction and during one. A refused batch does not
    hold back the last stable offset.

    Source: KIP-890, KAFKA-14402, KAFKA-19690.
    """
    p = Producer(b, "txn")
    assert p.produce("t", 0, b"x") == Code.INVALID_TXN_STATE
    p.send("t", 1, b"a")
    assert p.produce("t", 0, b"x") == Code.INVALID_TXN_STATE
    assert p.end(True) == 0
    assert p.produce("t", 1, b"x") == Code.INVALID_TXN_STATE, (
        "added to the last one, not to this one"
    )
    assert (b.end_offset("t", 0), b.end_offset("t", 0, committed=True)) == (0, 0)
    assert (b.end_offset("t", 1), b.end_offset("t", 1, committed=True)) == (2, 2)


@STEP_BY_STEP
def test_a_batch_is_checked_at_the_moment_of_its_append(b: DiskBroker) -> None:
    """A batch is checked at the moment of its append.

    At every stage of an EndTxn, the batch either becomes part of the transaction that is ending, or
    is refused. It is never appended after the marker.

    Source: KAFKA-14884.
    """
    for commit in (True, False):
        p = Producer(b, f"txn-{commit}")
        p.send("t", 0, b"a")
        assert p.add("t", 1) == 0
        b.hold_flushes()
        p.start_end(commit)
        other = b.connect()
        refused = []
        while p.ended() is None or b.state(p.txn)[0].startswith("Prepare"):
            if b.state(p.txn)[0].startswith("Prepare"):
                refused.append(p.produce("t", 1, b"late", sequence=0, connection=other))
            if not b.flush_one():
                break
        b.release_flushes()
        assert p.ended() == 0
        assert set(refused) <= {Code.NOT_ENOUGH_REPLICAS}, (
            "to be tried again, in words that every producer knows"
        )
        assert refused or not commit
        assert p.produce("t", 1, b"late", sequence=0, connection=other) == Code.INVALID_TXN_STATE
        assert b.end_offset("t", 1, committed=True) == b.end_offset("t", 1), "nothing hangs"
        assert b.read("t", 1) == []


def test_between_check_and_append_nothing_else_is_done(b: DiskBroker) -> None:
    """Nothing happens between the check and the append of a batch.

    If the transaction times out in the tick before the batch, the batch is refused. If it times out
    in the tick after it, the batch is aborted with the transaction.

    Source: KAFKA-14884.
    """
    p = Producer(b, "txn", timeout_ms=1000)
    assert p.add("t", 0) == 0
    b.tick(999)
    assert p.produce("t", 0, b"in time") == 0
    b.tick(1)
    assert p.produce("t", 0, b"late") == Code.INVALID_PRODUCER_EPOCH
    assert (b.read("t", committed=True), b.end_offset("t", committed=True)) == (
        [],
        b.end_offset("t"),
    )


@STEP_BY_STEP
def test_an_end_that_meets_another_under_way_waits_for_it(b: DiskBroker) -> None:
    """An EndTxn that arrives during another one waits for it.

    The later request gets no successful response before the transaction has ended.

    Source: ydb#52731.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    b.hold_flushes()
    p.start_end(True)
    others = [b.connect(), b.connect(), b.connect()]
    assert b.flush_one(), "the data"
    assert (b.state("txn")[0], p.ended()) == ("PrepareCommit", None)
    for connection, commit in zip(others, (True, False), strict=False):
        b.send(connection, p.end_request(commit), 3)
    assert b.read("t", committed=True) == []
    assert b.flush_one(), "the decision"
    assert p.ended() == 0
    b.send(others[2], p.end_request(True), 3)
    assert [b.answer(connection) for connection in others] == [None] * 3, (
        "they wait for the markers"
    )
    assert b.flush_one(), "the markers"
    assert [b.answer(connection).error_code for connection in others] == [
        0,
        Code.INVALID_TXN_STATE,
        0,
    ]
    assert b.read("t", committed=True) == [b"a"]
    assert b.markers("t") == [(p.pid, p.epoch, True)]


@STEP_BY_STEP
def test_a_repeated_end_that_waits_for_the_same_flush_ends_nothing_twice(
    b: DiskBroker,
) -> None:
    """If a repeated EndTxn waits for the same flush as the first one, the transaction ends once.

    Source: ydb#52731.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    b.hold_flushes()
    p.start_end(True)
    other = b.connect()
    b.send(other, p.end_request(True), 3)
    assert b.flush_one(), "the data, for both"
    assert (p.ended(), b.answer(other)) == (None, None)
    b.flush()
    assert p.ended() == b.answer(other).error_code == 0
    assert b.markers("t") == [(p.pid, p.epoch, True)]


def test_ending_a_transaction_that_never_began_changes_nothing(b: DiskBroker) -> None:
    """An EndTxn without a transaction changes nothing.

    In version 1 the response to EndTxn in state Empty is INVALID_TXN_STATE, for a commit and for an
    abort, and no epoch is returned. Clients know whether they have added partitions.

    Source: apache/kafka#17698.
    """
    p = Producer(b, "txn")
    assert (p.end(False), p.end(True)) == (Code.INVALID_TXN_STATE, Code.INVALID_TXN_STATE)
    assert b.state("txn") == ("Empty", p.pid, p.epoch)
    p.send("t", 0, b"a")
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"a"]


def test_a_partition_whose_append_failed_stays_in_its_transaction_and_not_in_the_next(
    b: DiskBroker,
) -> None:
    """A partition to which an append failed stays in its transaction, and is not part of the next
    one.

    In version 1 only AddPartitionsToTxn adds partitions, and only EndTxn removes them, no matter
    whether their batches were written.

    Source: franz-go: EndTransaction.
    """
    p = Producer(b, "txn")
    assert p.add("t", 0, 1) == 0
    assert p.produce("t", 0, b"a") == 0
    assert p.produce("t", 0, b"gap", sequence=7) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    b.topic("small", max_message_bytes="100")
    assert p.add("small", 0) == 0
    assert p.produce("small", 0, b"x" * 200) == Code.MESSAGE_TOO_LARGE
    assert p.end(False) == 0
    assert b.markers("t", 1) == [(p.pid, p.epoch, False)] and b.markers("small") == [
        (p.pid, p.epoch, False)
    ]
    assert p.produce("small", 0, b"x") == Code.INVALID_TXN_STATE, (
        "the next one, with the same epoch, begins with nothing"
    )
    p.send("small", 0, b"y")
    p.send("t", 0, b"b")
    assert p.end(True) == 0
    assert (b.read("small", committed=True), b.read("t", committed=True)) == ([b"y"], [b"b"])


@pytest.mark.parametrize("restart", ["", "kill", "stop"])
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_repeated_when_its_answer_was_lost(
    b: DiskBroker, commit: bool, restart: str
) -> None:
    # contract: kip-98/repeated-end
    """An EndTxn whose response was lost can be repeated.

    The epoch does not change in version 1. A retry gets NONE again, and the opposite request gets
    INVALID_TXN_STATE.

    Source: KIP-890, flink-connector-kafka#271.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    assert p.end(commit) == 0
    if restart:
        getattr(b, restart)()
    p.reconnect()
    assert p.end(commit) == 0
    assert p.end(not commit) == Code.INVALID_TXN_STATE
    assert b.markers("t") == [(p.pid, p.epoch, commit)]
    assert b.read("t", committed=True) == ([b"a"] if commit else [])
