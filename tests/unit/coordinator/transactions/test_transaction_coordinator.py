"""TransactionCoordinator, compared with responses of Apache Kafka 3.9 to the same requests, with
KIPs, and with known bugs of other brokers.

Codes by number, as Kafka sent them: 3 UNKNOWN_TOPIC_OR_PARTITION, 19 NOT_ENOUGH_REPLICAS, 42
INVALID_REQUEST, 47 INVALID_PRODUCER_EPOCH, 48 INVALID_TXN_STATE, 49 INVALID_PRODUCER_ID_MAPPING, 50
INVALID_TRANSACTION_TIMEOUT, 51 CONCURRENT_TRANSACTIONS, 55 OPERATION_NOT_ATTEMPTED, 90
PRODUCER_FENCED, 105 TRANSACTIONAL_ID_NOT_FOUND, 120 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.txn_host import TxnHost

from barnabas.coordinator.internal_topics import INTERNAL_TOPICS, TRANSACTIONS_TOPIC
from barnabas.coordinator.result import partition_for
from barnabas.coordinator.timers import PUT_OFF_MS
from barnabas.coordinator.transactions.transaction_records import encode_key, encode_value
from barnabas.coordinator.transactions.transaction_state import (
    LEGAL_PREDECESSORS,
    Channel,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
)
from barnabas.coordinator.transactions.transaction_table import TxnSettings
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import describe_transactions
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition

MAX_EPOCH = 32767
T0 = {"t": [0]}
END_TXN = RequestContext(0, 3, "client", "host")


@pytest.fixture
def host() -> TxnHost:
    return TxnHost()


@pytest.fixture
def slow() -> TxnHost:
    """A host that writes markers only when the test says so."""
    return TxnHost(writes_markers=False)


def begun(host: TxnHost, txn: str = "txn", timeout_ms: int = 60_000) -> tuple[int, int]:
    """Begin a session and a transaction on t-0. Gives the (producer id, epoch)."""
    answer = host.init(txn, timeout_ms=timeout_ms)
    assert answer.error_code == Code.NONE
    assert host.add(txn, answer.producer_id, answer.producer_epoch, T0) == {("t", 0): 0}
    return answer.producer_id, answer.producer_epoch


def at_epoch(
    host: TxnHost, epoch: int, state: TransactionState = TransactionState.EMPTY, txn: str = "txn"
) -> int:
    """Make a session with this epoch and state. Gives its producer id."""
    pid = host._ids.allocate()
    partitions: dict[tuple[str, int], None] = (
        {} if state is TransactionState.EMPTY else {("t", 0): None}
    )
    metadata = TransactionMetadata(
        txn, pid, epoch, 60_000, state, partitions, host.now_ms, host.now_ms if partitions else -1
    )
    host._append(partition_for(txn, host.partition_count), encode_key(txn), encode_value(metadata))
    return pid


def init_of(answer: Any) -> tuple[int, int, int]:
    return answer.error_code, answer.producer_id, answer.producer_epoch


# Scenarios with the responses of Apache Kafka 3.9.


def test_requests_with_unknown_ids_epochs_or_partitions_are_refused(host: TxnHost) -> None:
    _, pid, epoch = init_of(host.init("txn"))
    assert host.add("unknown", pid, epoch, T0) == {("t", 0): Code.INVALID_PRODUCER_ID_MAPPING}
    assert host.end("unknown", pid, epoch, True) == Code.INVALID_PRODUCER_ID_MAPPING
    assert host.add("txn", pid + 1000, epoch, T0) == {("t", 0): Code.INVALID_PRODUCER_ID_MAPPING}
    assert host.end("txn", pid + 1000, epoch, True) == Code.INVALID_PRODUCER_ID_MAPPING
    assert host.add("txn", pid, epoch + 1, T0) == {("t", 0): Code.PRODUCER_FENCED}
    assert host.end("txn", pid, epoch + 1, True) == Code.PRODUCER_FENCED
    assert init_of(host.init("")) == (Code.INVALID_REQUEST, -1, -1)
    assert host.add("txn", pid, epoch, {"missing": [0]}) == {
        ("missing", 0): Code.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert host.add("txn", pid, epoch, {"t": [0], "gone": [0]}) == {
        ("t", 0): Code.OPERATION_NOT_ATTEMPTED,
        ("gone", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert host.add("txn", pid, epoch, {"t": [7]}) == {("t", 7): Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert host.state("txn") == "Empty"


def test_an_unknown_partition_is_reported_before_an_unknown_producer(host: TxnHost) -> None:
    assert host.add("unknown", 5, 0, {"t": [1, 9]}) == {
        ("t", 1): Code.OPERATION_NOT_ATTEMPTED,
        ("t", 9): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_an_empty_transactional_id_is_refused_everywhere(host: TxnHost) -> None:
    assert host.add("", 5, 0, T0) == {("t", 0): Code.INVALID_REQUEST}
    assert host.end("", 5, 0, True) == Code.INVALID_REQUEST
    assert host.add_offsets("", 5, 0, "group") == Code.INVALID_REQUEST
    assert host.describe("")[0].error_code == Code.INVALID_REQUEST
    assert host.log == []


def test_a_repeated_end_succeeds_only_with_the_same_outcome(host: TxnHost) -> None:
    pid, epoch = begun(host)
    assert host.end("txn", pid, epoch, True) == 0
    assert host.end("txn", pid, epoch, True) == 0
    assert host.end("txn", pid, epoch, False) == Code.INVALID_TXN_STATE
    host.add("txn", pid, epoch, T0)
    assert host.end("txn", pid, epoch, False) == 0
    assert host.end("txn", pid, epoch, False) == 0
    assert host.end("txn", pid, epoch, True) == Code.INVALID_TXN_STATE
    assert [effect.commit for effect in host.written] == [True, False]


def test_an_end_without_a_transaction_is_refused(host: TxnHost) -> None:
    _, pid, epoch = init_of(host.init("txn"))
    assert host.end("txn", pid, epoch, True) == Code.INVALID_TXN_STATE
    assert host.end("txn", pid, epoch, False) == Code.INVALID_TXN_STATE


def test_transaction_timeouts_out_of_range_are_refused(host: TxnHost) -> None:
    assert init_of(host.init("txn", timeout_ms=10_000_000)) == (
        Code.INVALID_TRANSACTION_TIMEOUT,
        -1,
        -1,
    )
    assert init_of(host.init("txn", timeout_ms=0)) == (Code.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert init_of(host.init("txn", timeout_ms=-1)) == (Code.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert init_of(host.init(None, timeout_ms=10_000_000)) == (0, 0, 0)
    assert init_of(host.init("txn", timeout_ms=900_000))[0] == 0


def test_init_producer_without_transactional_id(host: TxnHost) -> None:
    """A producer that asks to raise the epoch of its id also gets a new id."""
    assert init_of(host.init(None)) == (0, 0, 0)
    assert init_of(host.init(None)) == (0, 1, 0)
    assert init_of(host.init(None, pid=1, epoch=0)) == (0, 2, 0)
    assert host.log == []


def test_init_producer_id_raises_the_epoch_of_the_current_producer(host: TxnHost) -> None:
    assert init_of(host.init("txn")) == (0, 0, 0)
    assert init_of(host.init("txn", pid=0, epoch=0)) == (0, 0, 1)
    assert init_of(host.init("txn", pid=0, epoch=0)) == (0, 0, 1)
    assert init_of(host.init("txn", pid=0, epoch=1)) == (0, 0, 2)
    assert init_of(host.init("txn", pid=0, epoch=0)) == (Code.PRODUCER_FENCED, -1, -1)
    assert init_of(host.init("txn", pid=5000, epoch=0)) == (Code.PRODUCER_FENCED, -1, -1)
    assert init_of(host.init("txn", pid=0, epoch=-1)) == (Code.INVALID_REQUEST, -1, -1)
    assert init_of(host.init("txn", pid=-1, epoch=0)) == (Code.INVALID_REQUEST, -1, -1)
    assert init_of(host.init("txn", pid=0, epoch=0, version=3)) == (
        Code.INVALID_PRODUCER_EPOCH,
        -1,
        -1,
    )


def test_a_new_session_fences_the_old(host: TxnHost) -> None:
    # contract: kip-98/fencing
    pid, epoch = begun(host)
    assert init_of(host.init("txn")) == (0, pid, 2)
    assert [(effect.producer_epoch, effect.commit) for effect in host.written] == [(1, False)]
    assert (
        host.coordinator.additions.verify("txn", pid, epoch, "t", 0, 9)
        == Code.INVALID_PRODUCER_EPOCH
    )
    assert host.add("txn", pid, epoch, T0) == {("t", 0): Code.PRODUCER_FENCED}
    assert host.end("txn", pid, epoch, True) == Code.PRODUCER_FENCED
    assert host.end("txn", pid, epoch, True, version=1) == Code.INVALID_PRODUCER_EPOCH
    assert host.add_offsets("txn", pid, epoch, "group") == Code.PRODUCER_FENCED
    assert init_of(host.init("txn", pid=pid, epoch=epoch)) == (Code.PRODUCER_FENCED, -1, -1)
    assert host.add("txn", pid, 2, T0) == {("t", 0): 0}
    assert host.end("txn", pid, 2, True) == 0


@pytest.mark.parametrize("version", range(6))
def test_a_fenced_producer_gets_the_error_code_of_its_version(host: TxnHost, version: int) -> None:
    pid, epoch = begun(host)
    host.init("txn")
    if version <= 3:
        assert host.add("txn", pid, epoch, T0, version=version) == {
            ("t", 0): Code.INVALID_PRODUCER_EPOCH if version < 2 else Code.PRODUCER_FENCED
        }
    else:
        assert host.add_batch([("txn", pid, epoch, False, T0)], version=version) == [
            ("txn", {("t", 0): Code.PRODUCER_FENCED})
        ]
    if version <= 4:
        assert host.add_offsets("txn", pid, epoch, "group", version=version) == (
            Code.INVALID_PRODUCER_EPOCH if version < 2 else Code.PRODUCER_FENCED
        )
    assert host.end("txn", pid, epoch, True, version=version) == (
        Code.INVALID_PRODUCER_EPOCH if version < 2 else Code.PRODUCER_FENCED
    )
    if version >= 3:
        assert host.init("txn", pid=pid, epoch=epoch, version=version).error_code == (
            Code.INVALID_PRODUCER_EPOCH if version < 4 else Code.PRODUCER_FENCED
        )


def test_a_transaction_that_timed_out_is_aborted_and_its_producer_fenced(host: TxnHost) -> None:
    pid, epoch = begun(host, timeout_ms=1_000)
    host.tick(999)
    assert host.written == []
    host.tick(1)
    assert [
        (effect.producer_id, effect.producer_epoch, effect.commit) for effect in host.written
    ] == [(pid, epoch + 1, False)]
    assert host.end("txn", pid, epoch, True) == Code.PRODUCER_FENCED
    assert (
        host.coordinator.additions.verify("txn", pid, epoch, "t", 0, 9)
        == Code.INVALID_PRODUCER_EPOCH
    )
    assert host.add("txn", pid, epoch, T0) == {("t", 0): Code.PRODUCER_FENCED}
    assert init_of(host.init("txn")) == (0, pid, epoch + 2)


def test_a_producer_that_timed_out_cannot_raise_its_epoch(host: TxnHost) -> None:
    """Only a new session recovers the transactional id; the producer that timed out is fenced."""
    pid, epoch = begun(host, timeout_ms=1_000)
    host.tick(1_000)
    assert init_of(host.init("txn", pid=pid, epoch=epoch)) == (Code.PRODUCER_FENCED, -1, -1)
    assert init_of(host.init("txn", pid=pid, epoch=epoch, version=3)) == (
        Code.INVALID_PRODUCER_EPOCH,
        -1,
        -1,
    )


def test_transactions_are_described_and_listed_by_filters(host: TxnHost) -> None:
    pid = host.init("txn").producer_id

    def described() -> tuple[Any, ...]:
        (found,) = host.describe("txn")
        topics = [(topic.topic, topic.partitions) for topic in found.topics]
        assert (
            found.error_code,
            found.transactional_id,
            found.producer_id,
            found.producer_epoch,
        ) == (Code.NONE, "txn", pid, 0)
        return (
            found.transaction_state,
            found.transaction_start_time_ms,
            found.transaction_timeout_ms,
            topics,
        )

    assert described() == ("Empty", -1, 60_000, [])
    host.add("txn", pid, 0, {"t": [0, 2]})
    began_ms = host.now_ms
    host.now_ms += 500
    host.add("txn", pid, 0, {"u": [0]})
    assert described() == ("Ongoing", began_ms, 60_000, [("t", [0, 2]), ("u", [0])])

    def listed(**by: Any) -> list[tuple[str, int, str]]:
        states = host.list(**by).transaction_states
        return [
            (state.transactional_id, state.producer_id, state.transaction_state) for state in states
        ]

    assert listed(states=("Ongoing",)) == [("txn", pid, "Ongoing")]
    assert listed(states=("Empty",)) == []
    assert listed(pids=(pid + 1,)) == []
    assert listed(pids=(pid,), states=("Empty", "Ongoing")) == [("txn", pid, "Ongoing")]
    nonsense = host.list(states=("Nonsense",), pids=(pid,), version=0)
    assert (nonsense.error_code, nonsense.unknown_state_filters, nonsense.transaction_states) == (
        Code.NONE,
        ["Nonsense"],
        [],
    )
    assert listed(open_ms=499) == [("txn", pid, "Ongoing")]
    assert listed(open_ms=500) == []
    assert listed(version=0) == [("txn", pid, "Ongoing")]
    host.end("txn", pid, 0, True)
    assert described() == ("CompleteCommit", began_ms, 60_000, [])
    (unknown,) = host.describe("unknown")
    assert unknown == describe_transactions.TransactionState(
        error_code=Code.TRANSACTIONAL_ID_NOT_FOUND, transactional_id="unknown"
    )


def test_a_batch_for_a_partition_that_was_not_added_is_refused(host: TxnHost) -> None:
    _, pid, epoch = init_of(host.init("txn"))
    assert host.coordinator.additions.verify("txn", pid, epoch, "t", 0, 9) == Code.INVALID_TXN_STATE
    host.add("txn", pid, epoch, {"t": [1]})
    assert host.coordinator.additions.verify("txn", pid, epoch, "t", 0, 9) == Code.INVALID_TXN_STATE
    assert host.coordinator.additions.verify("txn", pid, epoch, "t", 1, 9) == 0
    assert (
        host.coordinator.additions.verify("txn", pid + 1, epoch, "t", 1, 9)
        == Code.INVALID_PRODUCER_ID_MAPPING
    )
    assert (
        host.coordinator.additions.verify("absent", pid, epoch, "t", 1, 9)
        == Code.INVALID_PRODUCER_ID_MAPPING
    )


@pytest.mark.parametrize(
    ("open_epoch", "epoch", "code"),
    [
        (3, 2, Code.INVALID_PRODUCER_EPOCH),
        (3, 3, Code.NONE),
        (3, 9, Code.NONE),
        (3, MAX_EPOCH - 1, Code.NONE),
        (3, MAX_EPOCH, Code.INVALID_PRODUCER_EPOCH),
    ],
)
def test_offsets_in_an_open_transaction_are_checked_by_its_epoch(
    host: TxnHost, open_epoch: int, epoch: int, code: Code
) -> None:
    """Like Apache Kafka 3.9, the coordinator accepts a later epoch. It refuses the highest epoch,
    which no producer can have.
    """
    assert (
        host.coordinator.additions.verify_offsets("txn", 7, epoch, "group", 3, open_epoch) == code
    )


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("level", range(3))
def test_a_later_epoch_commits_offsets_below_level_2_and_version_5_alone(
    level: int, version: int
) -> None:
    host = TxnHost(settings=TxnSettings(transaction_version=level))
    pid, epoch = begun(host)
    host.add_offsets("txn", pid, epoch, "group")
    later = host.coordinator.additions.verify_offsets(
        "txn", pid, epoch + 1, "group", version, epoch
    )
    is_accepted = level < 2 and version < 5
    assert later == (Code.NONE if is_accepted else Code.INVALID_PRODUCER_EPOCH)


def test_offsets_without_adding_the_group(host: TxnHost) -> None:
    _, pid, epoch = init_of(host.init("txn"))
    assert (
        host.coordinator.additions.verify_offsets("txn", pid, epoch, "group", 3)
        == Code.INVALID_TXN_STATE
    )
    assert host.add_offsets("txn", pid, epoch, "group") == 0
    assert host.coordinator.additions.verify_offsets("txn", pid, epoch, "group", 3) == 0
    assert (
        host.coordinator.additions.verify_offsets("txn", pid, epoch + 1, "group", 3)
        == Code.INVALID_PRODUCER_EPOCH
    )


def test_offsets_are_part_of_the_transaction(host: TxnHost) -> None:
    pid, epoch = begun(host)
    pair = ("__consumer_offsets", partition_for("group", 2))
    assert host.add_offsets("txn", pid, epoch, "group") == 0
    assert open_partitions(host, "txn", pid, epoch) == (("t", 0), pair)
    assert host.end("txn", pid, epoch, True) == 0
    assert host.written[0].partitions == (("t", 0), pair)
    assert open_partitions(host, "txn", pid, epoch) == ()


def open_partitions(host: TxnHost, txn: str, pid: int, epoch: int) -> tuple[object, ...]:
    """The transaction's partitions if this producer may commit the transaction, else an empty
    tuple.
    """
    transaction = host.coordinator.on_commit_requested(txn, pid, epoch, host.now_ms)
    return () if transaction is None else tuple(transaction.partitions)


def test_only_the_current_producer_may_request_the_commit(host: TxnHost) -> None:
    pid, epoch = begun(host)
    assert open_partitions(host, "txn", pid, epoch) == (("t", 0),)
    assert open_partitions(host, "txn", pid, epoch + 1) == ()
    assert open_partitions(host, "txn", pid + 1, epoch) == ()
    assert open_partitions(host, "other", pid, epoch) == ()
    transaction = host.coordinator.metadata("txn")
    assert transaction is not None
    host.coordinator.apply(transaction._replace(next_producer_id=9, next_producer_epoch=4))
    assert open_partitions(host, "txn", 9, 4) == (("t", 0),), (
        "a session that has kept the transaction may commit it"
    )
    assert open_partitions(host, "txn", pid, epoch) == ()
    for is_fenced, last in [(True, epoch), (False, MAX_EPOCH)]:
        host.coordinator.apply(
            transaction._replace(epoch_is_a_fence=is_fenced, producer_epoch=last)
        )
        assert open_partitions(host, "txn", pid, last) == (), "no producer has this epoch"


# The steps from the beginning of a transaction to its end.


def test_a_commit_writes_its_records_and_is_answered_after_the_markers(slow: TxnHost) -> None:
    pid, epoch = begun(slow)
    ticket = slow.end("txn", pid, epoch, True, call=False)
    assert slow.state("txn") == "PrepareCommit" and ticket not in slow.answers
    (effect,) = slow.markers
    assert effect[:6] == ("txn", pid, epoch, 0, True, (("t", 0),))
    slow.write_markers()
    assert slow.state("txn") == "CompleteCommit"
    assert slow.answers.pop(ticket).error_code == Code.NONE
    assert slow.add("txn", pid, epoch, T0) == {("t", 0): 0}, (
        "the next transaction must not meet CONCURRENT_TRANSACTIONS"
    )
    # The byte at index 16 of each record is the number of the state.
    assert [value[16] for *_, value in slow.log if value is not None] == [0, 1, 2, 4, 1]
    assert len({partition for partition, *_ in slow.log}) == 1
    assert slow.log[0][0] == partition_for("txn", 4)


def test_while_markers_are_written_requests_get_retriable_errors(slow: TxnHost) -> None:
    pid, epoch = begun(slow)
    ticket = slow.end("txn", pid, epoch, True, call=False)
    assert slow.end("txn", pid, epoch, True) == Code.CONCURRENT_TRANSACTIONS
    assert slow.end("txn", pid, epoch, False) == Code.CONCURRENT_TRANSACTIONS
    assert slow.add("txn", pid, epoch, T0) == {("t", 0): Code.CONCURRENT_TRANSACTIONS}
    assert slow.add_offsets("txn", pid, epoch, "group") == Code.CONCURRENT_TRANSACTIONS
    assert slow.init("txn").error_code == Code.CONCURRENT_TRANSACTIONS
    assert (
        slow.coordinator.additions.verify("txn", pid, epoch, "t", 0, 9) == Code.NOT_ENOUGH_REPLICAS
    )
    assert (
        slow.coordinator.additions.verify_offsets("txn", pid, epoch, "group", 3)
        == Code.CONCURRENT_TRANSACTIONS
    )
    assert slow.add_batch([("txn", pid, epoch, True, T0)], version=5) == [
        ("txn", {("t", 0): Code.CONCURRENT_TRANSACTIONS})
    ]
    assert len(slow.markers) == 1, "no request wrote further markers"
    slow.write_markers()
    assert slow.answers.pop(ticket).error_code == Code.NONE


def test_adding_a_known_partition_writes_nothing_but_waits_for_earlier_records(
    host: TxnHost,
) -> None:
    pid, epoch = begun(host)
    before = len(host.log)
    assert host.add("txn", pid, epoch, T0) == {("t", 0): 0}
    assert len(host.log) == before
    assert host.coordinator._table.result("txn", [], []).partition == partition_for("txn", 4)


def test_a_transaction_does_not_begin_without_a_partition(host: TxnHost) -> None:
    _, pid, epoch = init_of(host.init("txn"))
    assert host.add("txn", pid, epoch, {}) == {}
    assert host.state("txn") == "Empty"


def test_markers_reported_twice_or_for_another_transaction_change_nothing(slow: TxnHost) -> None:
    """A repeated report must have no effect (compare KAFKA-19999)."""
    pid, epoch = begun(slow)
    slow.end("txn", pid, epoch, True, call=False)
    decision = slow.markers[0]
    complete = slow.coordinator.complete
    assert complete(decision._replace(producer_epoch=epoch + 1), 0) is None
    assert complete(decision._replace(producer_id=pid + 1), 0) is None
    assert complete(decision._replace(transactional_id="unknown"), 0) is None
    slow.write_markers()
    assert complete(decision, 0) is None


def test_a_late_end_txn_with_an_earlier_epoch_does_not_end_the_next_transaction(
    host: TxnHost,
) -> None:
    """A late EndTxn of an earlier session is refused. If the epoch is the same, version 1 of
    transactions cannot recognise a late request (see README).
    """
    pid, epoch = begun(host)
    assert init_of(host.init("txn")) == (0, pid, 2)
    assert host.add("txn", pid, 2, T0) == {("t", 0): 0}
    for commit in (True, False):
        assert host.end("txn", pid, epoch, commit) == Code.PRODUCER_FENCED
    assert host.state("txn") == "Ongoing"


# sessions


def test_init_producer_id_is_answered_after_the_abort_that_it_causes(
    slow: TxnHost,
) -> None:
    # contract: kip-98/sessions
    """The first InitProducerId waits for the abort. A second one that arrives in the meantime gets
    CONCURRENT_TRANSACTIONS.
    """
    pid, epoch = begun(slow)
    ticket = slow.init("txn", call=False, timeout_ms=5_000)
    assert slow.state("txn") == "PrepareAbort" and ticket not in slow.answers
    assert slow.init("txn").error_code == Code.CONCURRENT_TRANSACTIONS
    assert slow.end("txn", pid, epoch, True) == Code.PRODUCER_FENCED
    effect = slow.write_markers()
    assert (effect.producer_epoch, effect.commit) == (epoch + 1, False)
    assert init_of(slow.answers.pop(ticket)) == (0, pid, epoch + 2)
    assert slow.state("txn") == "Empty"
    assert slow.describe("txn")[0].transaction_timeout_ms == 5_000
    assert [value[16] for *_, value in slow.log if value is not None] == [0, 1, 3, 5, 0]


def test_a_producer_can_request_its_next_epoch_during_its_transaction(
    slow: TxnHost,
) -> None:
    pid, epoch = begun(slow)
    ticket = slow.init("txn", pid=pid, epoch=epoch, call=False)
    slow.write_markers()
    assert init_of(slow.answers.pop(ticket)) == (0, pid, epoch + 2)
    assert init_of(slow.init("txn", pid=pid, epoch=epoch)) == (0, pid, epoch + 2), (
        "the same request again is a retry"
    )


@pytest.mark.parametrize("epoch", [0, 32766])
def test_a_request_for_the_next_epoch_can_be_repeated_after_a_crash(
    slow: TxnHost, epoch: int
) -> None:
    pid = at_epoch(slow, epoch, TransactionState.ONGOING)
    slow.init("txn", pid=pid, epoch=epoch, call=False)
    slow.crash()
    assert slow.init("txn", pid=pid, epoch=epoch).error_code == Code.CONCURRENT_TRANSACTIONS
    slow.write_markers()
    code, new_pid, new_epoch = init_of(slow.init("txn", pid=pid, epoch=epoch))
    assert code == Code.NONE
    assert (new_pid, new_epoch) == (pid, 2) if epoch == 0 else (new_pid != pid and new_epoch == 0)


def test_a_fenced_producer_cannot_abort_the_transaction_of_the_current_one(host: TxnHost) -> None:
    """Kafka 3.9 accepts such an InitProducerId with any epoch of the current id. No client needs
    this.
    """
    pid, epoch = begun(host)
    _, _, living = init_of(host.init("txn"))
    host.add("txn", pid, living, T0)
    assert init_of(host.init("txn", pid=pid, epoch=epoch)) == (Code.PRODUCER_FENCED, -1, -1)
    assert host.state("txn") == "Ongoing"
    assert host.end("txn", pid, living, True) == 0


def test_a_late_request_for_an_epoch_does_not_abort_a_later_transaction(host: TxnHost) -> None:
    _, pid, epoch = init_of(host.init("txn"))
    assert init_of(host.init("txn", pid=pid, epoch=epoch)) == (0, pid, 1)
    host.add("txn", pid, 1, T0)
    assert init_of(host.init("txn", pid=pid, epoch=epoch)) == (Code.PRODUCER_FENCED, -1, -1)
    assert host.end("txn", pid, 1, True) == 0
    assert init_of(host.init("txn", pid=pid, epoch=epoch)) == (Code.PRODUCER_FENCED, -1, -1)
    assert init_of(host.init("txn", pid=pid, epoch=1)) == (0, pid, 2)


def test_the_timeout_is_that_of_the_last_session(host: TxnHost) -> None:
    host.init("txn", timeout_ms=1_000)
    _, pid, epoch = init_of(host.init("txn", timeout_ms=2_000))
    host.add("txn", pid, epoch, T0)
    host.tick(1_999)
    assert host.state("txn") == "Ongoing"
    host.tick(1)
    assert host.state("txn") == "CompleteAbort"


# Exhausted epochs (KAFKA-20357 and others).


def test_after_the_last_epoch_a_session_gets_a_new_producer_id(host: TxnHost) -> None:
    pid = at_epoch(host, 32765)
    assert init_of(host.init("txn")) == (0, pid, 32766)
    code, other, epoch = init_of(host.init("txn"))
    assert (code, epoch) == (Code.NONE, 0) and other != pid
    assert host.end("txn", pid, 32766, True) == Code.INVALID_PRODUCER_ID_MAPPING


def test_a_repeated_request_for_a_new_producer_id_gets_the_same_id_after_a_crash(
    host: TxnHost,
) -> None:
    """KAFKA-20357."""
    pid = at_epoch(host, 32766)
    code, other, epoch = init_of(host.init("txn", pid=pid, epoch=32766))
    assert (code, epoch) == (Code.NONE, 0) and other != pid
    assert init_of(host.init("txn", pid=pid, epoch=32766)) == (0, other, 0)
    host.crash()
    assert init_of(host.init("txn", pid=pid, epoch=32766)) == (0, other, 0)
    assert init_of(host.init("txn", pid=pid, epoch=32765)) == (Code.PRODUCER_FENCED, -1, -1)


def test_an_abort_at_the_last_epoch_uses_the_reserved_highest_epoch(host: TxnHost) -> None:
    """The marker has epoch 32767, a late EndTxn is refused, and the next session gets a new
    producer id (KAFKA-20090).
    """
    pid = at_epoch(host, 32766, TransactionState.ONGOING)
    host.tick(60_000)
    assert [(effect.producer_id, effect.producer_epoch) for effect in host.written] == [
        (pid, MAX_EPOCH)
    ]
    assert host.end("txn", pid, 32766, False) == Code.PRODUCER_FENCED
    assert host.state("txn") == "CompleteAbort"
    code, other, epoch = init_of(host.init("txn"))
    assert (code, epoch) == (Code.NONE, 0) and other != pid


def test_a_session_that_aborts_at_the_last_epoch_gets_a_new_producer_id(host: TxnHost) -> None:
    pid = at_epoch(host, 32766, TransactionState.ONGOING)
    code, other, epoch = init_of(host.init("txn"))
    assert (code, epoch) == (Code.NONE, 0) and other != pid
    assert host.written[0].producer_epoch == MAX_EPOCH


# In these versions of requests, brokers send many transactions at once.


def test_a_request_with_many_transactions_is_answered_for_each(host: TxnHost) -> None:
    one, two = begun(host, "one"), begun(host, "two")
    host.end("two", *two, True)
    for version in (4, 5):
        assert host.add_batch(
            [
                ("one", *one, True, {"t": [0, 1]}),
                ("two", *two, False, {"t": [1], "u": [0]}),
                ("three", 99, 0, False, T0),
                ("one", one[0], one[1] + 1, True, T0),
                ("two", *two, True, {"u": [0], "t": [2]}),
                ("one", *one, False, {"gone": [0], "t": [2]}),
            ],
            version=version,
        ) == [
            (
                "one",
                {
                    ("t", 0): 0,
                    ("t", 1): Code.INVALID_TXN_STATE
                    if version == 4
                    else Code.TRANSACTION_ABORTABLE,
                },
            ),
            ("two", {("t", 1): 0, ("u", 0): 0}),
            ("three", {("t", 0): Code.INVALID_PRODUCER_ID_MAPPING}),
            ("one", {("t", 0): Code.PRODUCER_FENCED}),
            (
                "two",
                {
                    ("u", 0): 0,
                    ("t", 2): Code.INVALID_TXN_STATE
                    if version == 4
                    else Code.TRANSACTION_ABORTABLE,
                },
            ),
            (
                "one",
                {
                    ("gone", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
                    ("t", 2): Code.OPERATION_NOT_ATTEMPTED,
                },
            ),
        ]
    assert open_partitions(host, "two", *two) == (("t", 1), ("u", 0))


@pytest.mark.parametrize("version", range(6))
def test_which_internal_topics_are_added(host: TxnHost, version: int) -> None:
    """Clients add partitions of __consumer_offsets by AddOffsetsToTxn, and write to no other
    internal topic. Brokers, which send version 4 or later, may add partitions of all internal
    topics except __transaction_state.
    """
    host.topics |= dict.fromkeys(INTERNAL_TOPICS, 2)
    producer = begun(host)
    for topic in INTERNAL_TOPICS:
        if version < 4:
            codes = host.add("txn", *producer, {topic: [0]}, version=version)
        else:
            asked = [("txn", *producer, False, {topic: [0]})]
            ((_, codes),) = host.add_batch(asked, version=version)
        is_added = version >= 4 and topic != TRANSACTIONS_TOPIC
        code = Code.NONE if is_added else Code.TOPIC_AUTHORIZATION_FAILED
        assert codes == {(topic, 0): code}


def test_a_request_with_many_transactions_writes_to_the_partition_of_each(
    slow: TxnHost,
) -> None:
    names = ["a", "b", "c", "d"]
    sessions = {name: init_of(slow.init(name))[1:] for name in names}
    before = len(slow.log)
    asked = [(name, *sessions[name], False, T0) for name in names]
    assert slow.add_batch(asked, version=4) == [(name, {("t", 0): 0}) for name in names]
    assert sorted(partition for partition, *_ in slow.log[before:]) == sorted(
        partition_for(name, 4) for name in names
    )
    assert all(slow.state(name) == "Ongoing" for name in names)


# time


def test_idle_transactional_ids_expire_with_a_tombstone_and_open_ones_do_not() -> None:
    # contract: kip-98/id-expiration
    host = TxnHost(
        settings=TxnSettings(transactional_id_expiration_ms=100_000), writes_markers=False
    )
    producers = {
        name: begun(host, name, timeout_ms=900_000)
        for name in ("empty", "committed", "aborted", "open", "ending")
    }
    host.now_ms += 1  # each decision is later than the start of its transaction
    for name, (pid, epoch) in producers.items():
        if name == "empty":
            host.end(name, pid, epoch, True, call=False)
            host.write_markers()
            host.init(name)
        elif name in ("committed", "aborted"):
            host.end(name, pid, epoch, name == "committed", call=False)
            host.write_markers()
    host.end("ending", host.coordinator.metadata("ending").producer_id, 0, True, call=False)  # type: ignore[union-attr]
    before = len(host.log)
    host.tick(99_999)
    assert len(host.log) == before
    assert host.coordinator.next_deadline_ms() == host.now_ms + 1
    host.tick(1)
    tombstones = host.log[before:]
    assert sorted((key, value) for _, _, key, value in tombstones) == [
        (encode_key(n), None) for n in ("empty", "aborted", "committed")
    ]
    states = [host.state(name) for name in ("empty", "committed", "aborted", "open", "ending")]
    assert states == [None, None, None, "Ongoing", "PrepareCommit"]
    assert host.replayed().snapshot() == host.coordinator.snapshot()


def ticks_until_nothing_is_due(host: TxnHost) -> list[int]:
    """The number of transactions that each tick processes, until no transaction is due."""
    handled = []
    while (due_ms := host.coordinator.next_deadline_ms()) is not None and due_ms <= host.now_ms:
        result = host.coordinator.on_tick(host.event_ms())
        parts = (result, *result.more)
        handled.append(sum(len(part.records) + len(part.effects) for part in parts))
        host.handle(result)
    return handled


def test_each_tick_expires_a_part_of_very_many_ids() -> None:
    host = TxnHost(settings=TxnSettings(transactional_id_expiration_ms=100_000))
    names = [f"id-{number}" for number in range(300)]
    for name in names:
        host.init(name)
    host.now_ms += 100_000
    handled = ticks_until_nothing_is_due(host)
    assert sum(handled) == len(names)
    assert max(handled) <= len(names) // 4
    assert host.coordinator.snapshot() == {}


def test_each_tick_aborts_a_part_of_very_many_timed_out_transactions() -> None:
    host = TxnHost()
    names = [f"id-{number}" for number in range(300)]
    for name in names:
        begun(host, name, timeout_ms=1_000)
    host.now_ms += 1_000
    handled = ticks_until_nothing_is_due(host)
    assert sum(handled) == len(host.written) == len(names)
    assert max(handled) <= len(names) // 4


def test_a_tick_aborts_fewer_transactions_with_many_partitions() -> None:
    host = TxnHost()
    names = [f"id-{number}" for number in range(30)]
    for name in names:
        _, pid, epoch = init_of(host.init(name, timeout_ms=1_000))
        host.topics["wide"] = 100
        host.add(name, pid, epoch, {"wide": list(range(100))})
    host.now_ms += 1_000
    handled = ticks_until_nothing_is_due(host)
    assert sum(handled) == len(names)
    assert max(handled) <= 6


def test_the_connections_of_an_expired_id_are_dropped() -> None:
    host = TxnHost()
    coordinator = host.coordinator
    metadata = TransactionMetadata("txn", 1, 0, 60_000)
    coordinator.replay(0, 0, encode_key("txn"), encode_value(metadata))
    coordinator.check_connection("txn", (1, 0), 4, is_noted=False)
    assert not coordinator._latest_connections, "nothing is kept of a request that is not noted"
    for channel in Channel:
        coordinator.check_connection("txn", (1, 0), 5, (channel,))
    assert len(coordinator._latest_connections["txn"]) == len(Channel)
    coordinator.replay(0, 1, encode_key("txn"), None)
    assert not coordinator._latest_connections


@pytest.mark.parametrize(
    ("second", "is_error"),
    [((7, 4), True), ((7, 5), False), ((7, 6), False), ((8, 0), False), (None, False)],
    ids=["a lower epoch", "the same", "a higher one", "another producer id", "a tombstone between"],
)
def test_a_replay_reports_a_lower_epoch_behind_a_higher_one(
    second: tuple[int, int] | None, is_error: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """No broker writes that: two brokers wrote to the log, or it was restored in part (KIP-98,
    coordinator startup). The last record is used nevertheless.
    """
    coordinator = TxnHost().coordinator
    pairs = [(7, 5), second, (7, 4)] if second is None else [(7, 5), second]
    for offset, pair in enumerate(pairs, 40):
        metadata = None if pair is None else TransactionMetadata("txn", *pair, 60_000)
        value = None if metadata is None else encode_value(metadata)
        coordinator.replay(3, offset, encode_key("txn"), value)
    assert coordinator.snapshot()["txn"].producer_epoch == pairs[-1][1]  # type: ignore[index]
    said = "__transaction_state-3, offset 41: the transactional id 'txn' has the producer epoch 4"
    assert (said in caplog.text) is is_error
    assert bool(caplog.records) is is_error


def test_a_producer_whose_id_expired_is_refused() -> None:
    """KAFKA-18019."""
    host = TxnHost(settings=TxnSettings(transactional_id_expiration_ms=100_000))
    pid, epoch = begun(host)
    host.tick(1)  # the decision is later than the start of its transaction
    host.end("txn", pid, epoch, True)
    host.tick(100_000)
    assert host.add("txn", pid, epoch, T0) == {("t", 0): Code.INVALID_PRODUCER_ID_MAPPING}
    assert host.end("txn", pid, epoch, True) == Code.INVALID_PRODUCER_ID_MAPPING
    assert (
        host.coordinator.additions.verify("txn", pid, epoch, "t", 0, 9)
        == Code.INVALID_PRODUCER_ID_MAPPING
    )
    code, other, new_epoch = init_of(host.init("txn"))
    assert (code, new_epoch) == (Code.NONE, 0) and other != pid
    assert init_of(host.init("txn", pid=pid, epoch=epoch)) == (Code.PRODUCER_FENCED, -1, -1)


def test_a_transactional_id_in_use_does_not_expire() -> None:
    host = TxnHost(settings=TxnSettings(transactional_id_expiration_ms=100_000))
    pid, epoch = begun(host)
    for _ in range(5):
        host.end("txn", pid, epoch, True)
        host.tick(99_999)
        assert host.add("txn", pid, epoch, T0) == {("t", 0): 0}
        assert host.state("txn") == "Ongoing"


def test_a_tick_aborts_exactly_the_transactions_that_are_due(slow: TxnHost) -> None:
    producers = {
        name: begun(slow, name, timeout_ms)
        for name, timeout_ms in (("c", 500), ("a", 300), ("b", 300), ("d", 501))
    }
    assert slow.coordinator.next_deadline_ms() == slow.now_ms + 300
    slow.tick(500)
    assert sorted(effect.transactional_id for effect in slow.markers) == ["a", "b", "c"]
    assert all(
        effect.producer_epoch == producers[effect.transactional_id][1] + 1
        for effect in slow.markers
    )
    assert slow.coordinator.next_deadline_ms() == slow.now_ms + 1
    before = len(slow.log)
    slow.tick(0)
    assert len(slow.log) == before, "a transaction that is being aborted is not aborted again"


def test_a_decided_transaction_has_no_deadline(slow: TxnHost) -> None:
    """Neither the timeout of the transaction nor the expiry of its id applies, no matter how long
    the markers take.
    """
    pid, epoch = begun(slow, timeout_ms=1_000)
    slow.end("txn", pid, epoch, True, call=False)
    assert slow.coordinator.next_deadline_ms() is None
    slow.tick(30 * 24 * 3600 * 1000)
    assert slow.state("txn") == "PrepareCommit"
    assert slow.write_markers().commit


def test_a_tick_without_due_transactions_has_no_effect(host: TxnHost) -> None:
    begun(host)
    result = host.coordinator.on_tick(host.now_ms)
    assert (result.records, result.replies, result.effects, result.more) == ([], [], [], [])
    assert TxnHost().coordinator.next_deadline_ms() is None


# crashes


def test_a_decided_transaction_is_completed_after_a_crash(slow: TxnHost) -> None:
    """Redpanda #23656 and #9571 report transactions that are loaded in a PREPARE_* state. A
    transaction with a PrepareCommit record must be committed.
    """
    one, two, three = begun(slow, "one"), begun(slow, "two"), begun(slow, "three")
    slow.add("one", *one, {"u": [0]})
    slow.end("one", *one, True, call=False)
    slow.end("two", *two, False, call=False)
    slow.crash()
    assert [
        (e.transactional_id, e.commit, e.producer_epoch, e.partitions) for e in slow.markers
    ] == [
        ("one", True, 0, (("t", 0), ("u", 0))),
        ("two", False, 0, (("t", 0),)),
    ]
    slow.write_markers(1)
    slow.write_markers(0)
    assert [slow.state(name) for name in ("one", "two", "three")] == [
        "CompleteCommit",
        "CompleteAbort",
        "Ongoing",
    ]
    assert slow.end("one", *one, True) == 0, "its retry gets that answer"
    assert slow.end("three", *three, True, call=False) and slow.write_markers().commit


def test_an_open_transaction_keeps_its_timeout_over_a_crash(host: TxnHost) -> None:
    """All partitions that were added to the transaction must be kept (Redpanda #6018)."""
    pid, epoch = begun(host, timeout_ms=10_000)
    host.add_offsets("txn", pid, epoch, "group")
    host.now_ms += 4_000
    before = host.coordinator.metadata("txn")
    host.crash()
    assert before is not None and host.coordinator.metadata("txn") == before
    assert host.coordinator.next_deadline_ms() == host.now_ms + 6_000
    host.tick(6_000)
    assert host.written[0].partitions == tuple(before.partitions) and not host.written[0].commit


def test_after_a_crash_during_an_aborting_session_the_next_session_succeeds(
    slow: TxnHost,
) -> None:
    pid, epoch = begun(slow)
    slow.init("txn", call=False)
    slow.crash()
    slow.write_markers()
    assert slow.state("txn") == "CompleteAbort"
    assert slow.end("txn", pid, epoch, True) == Code.PRODUCER_FENCED
    assert init_of(slow.init("txn")) == (0, pid, epoch + 2)


def test_a_compacted_log_gives_the_same_state(host: TxnHost) -> None:
    """The last record of each key must lead to the same state as the whole log."""
    for name in ("one", "two"):
        producer = begun(host, name)
        host.end(name, *producer, name == "one")
    begun(host, "two")
    latest = {key: (partition, offset, key, value) for partition, offset, key, value in host.log}
    coordinator = host.new_coordinator()
    for row in latest.values():
        coordinator.replay(*row)
    assert coordinator.snapshot() == host.coordinator.snapshot()


# The states and their transitions.


def test_transaction_states_have_kafkas_numbers_and_names() -> None:
    assert [(state.number, state.value) for state in TransactionState] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]


@pytest.mark.parametrize("state", TransactionState)
def test_transitions_that_are_not_in_the_table_fail(state: TransactionState) -> None:
    metadata = TransactionMetadata("txn", 1, 1, 60_000, state)
    steps = {
        TransactionState.EMPTY: lambda: metadata.in_new_session(
            metadata.producer, metadata.producer, 1, 1
        ),
        TransactionState.ONGOING: lambda: metadata.with_partitions([("t", 0)], 1),
        TransactionState.PREPARE_COMMIT: lambda: metadata.prepared(True, 1),
        TransactionState.PREPARE_EPOCH_FENCE: lambda: metadata.fenced(metadata.producer, 1),
        TransactionState.DEAD: lambda: metadata.expired(1),
    }
    for target, step in steps.items():
        if state in LEGAL_PREDECESSORS[target]:
            step()
        else:
            with pytest.raises(AssertionError):
                step()
    if state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
        assert metadata.completed(1).state.value == state.value.replace("Prepare", "Complete")
    else:
        with pytest.raises(AssertionError):
            metadata.completed(1)


def test_every_request_is_answered_at_every_version(host: TxnHost) -> None:
    for version in range(6):
        assert host.init(f"txn{version}", version=version).error_code == Code.NONE
        assert host.init(None, version=version).error_code == Code.NONE
        answer = host.init(f"txn{version}", version=version)
        pid, epoch = answer.producer_id, answer.producer_epoch
        if version <= 3:
            assert host.add(f"txn{version}", pid, epoch, T0, version=version) == {("t", 0): 0}
        else:
            assert host.add_batch([(f"txn{version}", pid, epoch, False, T0)], version=version) == [
                (f"txn{version}", {("t", 0): 0})
            ]
        assert host.add_offsets(f"txn{version}", pid, epoch, "group", version=min(version, 4)) == 0
        assert host.end(f"txn{version}", pid, epoch, True, version=min(version, 4)) == 0


# Epochs that only fence, and were given to no producer.


@pytest.mark.parametrize("epoch", [5, 32766])
@pytest.mark.parametrize("restarts", [False, True])
def test_an_epoch_that_only_fences_belongs_to_no_producer(
    host: TxnHost, epoch: int, restarts: bool
) -> None:
    """The timeout raised the epoch, but no producer received the new epoch. A client that guesses
    it gets the same response as a former producer.
    """
    pid = at_epoch(host, epoch, TransactionState.ONGOING)
    host.tick(60_000)
    if restarts:
        host.crash()
    assert host.state("txn") == "CompleteAbort"
    guess = pid, epoch + 1
    assert host.add("txn", *guess, T0) == {("t", 0): Code.PRODUCER_FENCED}
    assert host.add_offsets("txn", *guess, "g") == Code.PRODUCER_FENCED
    assert host.end("txn", *guess, False) == Code.PRODUCER_FENCED
    assert init_of(host.init("txn", pid=guess[0], epoch=guess[1])) == (Code.PRODUCER_FENCED, -1, -1)
    assert (
        host.coordinator.additions.verify("txn", *guess, "t", 0, 9) == Code.INVALID_PRODUCER_EPOCH
    )
    assert (
        host.coordinator.additions.verify_offsets("txn", *guess, "g", 3)
        == Code.INVALID_PRODUCER_EPOCH
    )
    assert host.add_batch([("txn", *guess, True, T0)], version=4) == [
        ("txn", {("t", 0): Code.PRODUCER_FENCED})
    ]
    assert host.state("txn") == "CompleteAbort", "nothing has begun"


def test_a_stored_transaction_with_the_highest_epoch_is_aborted(host: TxnHost) -> None:
    """If the timeout of such a transaction stopped the broker, the same would happen after every
    start.
    """
    pid = at_epoch(host, MAX_EPOCH, TransactionState.ONGOING)
    host.flush()
    host.crash()
    assert host.end("txn", pid, MAX_EPOCH, True) == Code.PRODUCER_FENCED
    host.tick(60_000)
    assert [(effect.producer_epoch, effect.commit) for effect in host.written] == [
        (MAX_EPOCH, False)
    ]
    host.crash()
    assert host.state("txn") == "CompleteAbort"
    code, other, epoch = init_of(host.init("txn"))
    assert (code, epoch) == (Code.NONE, 0) and other != pid


def test_a_timeout_does_not_abort_a_transaction_whose_end_waits_for_data(host: TxnHost) -> None:
    """The EndTxn arrived in time. It may wait long for the disk, for example while the process is
    suspended. If a partition was added, so that the EndTxn does not end the transaction, the
    timeout starts again.
    """
    pid, epoch = begun(host, timeout_ms=60_000)
    host.tick(59_999)
    transaction = host.coordinator.on_commit_requested("txn", pid, epoch, host.now_ms)
    assert transaction is not None
    host.awaiting_data.add("txn")
    host.tick(1_000_000)
    assert host.state("txn") == "Ongoing"
    assert host.add("txn", pid, epoch, {"t": [1]}) == {("t", 1): Code.NONE}
    host.awaiting_data.clear()
    assert host.coordinator.on_data(transaction, END_TXN, 0, host.now_ms) is None
    host.tick(59_999)
    assert host.state("txn") == "Ongoing"
    host.tick(1)
    assert host.state("txn") == "CompleteAbort"


def test_records_of_a_later_version_of_the_key_are_skipped(host: TxnHost) -> None:
    """Newer Kafka brokers may write such records for other purposes."""
    key = b"\0\1" + encode_key("txn")[2:]
    value = encode_value(TransactionMetadata("txn", 1, 0, 60_000, last_update_ms=host.now_ms))
    host.coordinator.replay(0, 0, key, value)
    assert host.coordinator.snapshot() == {}
    host.coordinator.replay(0, 1, key, None)
    assert host.coordinator.snapshot() == {}


def test_an_id_that_expired_before_a_start_has_no_deadline_after_it() -> None:
    host = TxnHost(settings=TxnSettings(transactional_id_expiration_ms=1_000))
    host.init("txn")
    host.tick(1_000)
    assert host.coordinator.snapshot() == {}
    host.crash()
    assert host.coordinator.next_deadline_ms() is None
    host.tick(10_000)


@pytest.mark.parametrize("ahead_ms", [120_000, -120_000])
def test_a_step_of_the_wall_clock_does_not_move_a_transaction_deadline(
    host: TxnHost, ahead_ms: int
) -> None:
    pid, epoch = begun(host, timeout_ms=60_000)
    host.tick(20_000)
    host.wall_ahead_ms = ahead_ms
    assert host.add("txn", pid, epoch, {"t": [1]}) == {("t", 1): Code.NONE}
    host.tick(39_999)
    assert host.coordinator.snapshot()["txn"].state is TransactionState.ONGOING
    host.tick(1)
    assert host.coordinator.snapshot()["txn"].state is TransactionState.COMPLETE_ABORT


def test_after_a_power_loss_every_producer_is_fenced_once(slow: TxnHost) -> None:
    """Each producer gets a new id. Its next epoch may already have been assigned in a record that
    the power loss removed.
    """
    open_pid, _ = begun(slow, "open")
    decided_pid, _ = begun(slow, "decided")
    slow.end("decided", decided_pid, 0, commit=True, call=False)
    idle_pid = slow.init("idle").producer_id
    slow.crash()
    slow.handle(slow.coordinator.sessions.on_power_loss(slow.event_ms()))
    while slow.markers:
        slow.write_markers()
    assert sorted((one.transactional_id, one.commit) for one in slow.written) == [
        ("decided", True),
        ("open", False),
    ]
    for name, pid in (("open", open_pid), ("decided", decided_pid), ("idle", idle_pid)):
        assert slow.add(name, pid, 0, T0) == {("t", 0): Code.PRODUCER_FENCED}
        again = slow.init(name, pid=pid, epoch=0)
        assert again.error_code == Code.NONE
        assert again.producer_id != pid
        assert slow.add(name, again.producer_id, again.producer_epoch, T0) == {("t", 0): 0}


def test_a_producer_that_requested_its_next_epoch_gets_it_after_a_power_loss(
    slow: TxnHost,
) -> None:
    """No producer received the epoch that ended the transaction. The producer repeats its request
    with the former epoch, and must not be fenced.
    """
    pid, epoch = begun(slow, "txn")
    slow.init("txn", pid=pid, epoch=epoch, call=False)
    metadata = slow.coordinator.metadata("txn")
    assert metadata is not None and not metadata.is_epoch_given_out
    slow.crash()
    slow.handle(slow.coordinator.sessions.on_power_loss(slow.event_ms()))
    while slow.markers:
        slow.write_markers()
    again = slow.init("txn", pid=pid, epoch=epoch)
    assert again.error_code == Code.NONE
    assert again.producer_id != pid


def test_a_transaction_that_is_ending_does_not_delay_the_timeouts_of_others(slow: TxnHost) -> None:
    begun(slow, "decided", 1000)
    open_pid, _ = begun(slow, "open", 1000)
    slow.decided.add("decided")
    slow.tick(1000)
    assert [(one.transactional_id, one.producer_id) for one in slow.markers] == [("open", open_pid)]


def test_aborting_all_open_transactions_excludes_decided_ones(slow: TxnHost) -> None:
    """A transaction also counts as decided if the decision has been made but not yet written."""
    open_pid, _ = begun(slow, "open")
    begun(slow, "decided")
    slow.decided.add("decided")
    slow.handle(slow.coordinator.on_abort_requested(slow.event_ms()))
    assert [(one.transactional_id, one.producer_id) for one in slow.markers] == [("open", open_pid)]


@pytest.mark.parametrize(("timeout_ms", "code"), [(0, 50), (1, 0), (900_000, 0), (900_001, 50)])
def test_the_timeout_of_a_transaction_has_bounds(host: TxnHost, timeout_ms: int, code: int) -> None:
    answer = host.init("txn", timeout_ms=timeout_ms)
    assert answer.error_code == code
    if code:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


def test_a_decision_applies_before_its_record_is_written(host: TxnHost) -> None:
    """The host may keep the decision in a flush journal until the transaction's data is durable."""
    pid, epoch = begun(host)
    host.decided.add("txn")
    assert host.add("txn", pid, epoch, {"t": [1]}) == {("t", 1): Code.CONCURRENT_TRANSACTIONS}
    assert host.end("txn", pid, epoch, commit=False) == Code.CONCURRENT_TRANSACTIONS
    assert host.init("txn").error_code == Code.CONCURRENT_TRANSACTIONS
    assert host.add_offsets("txn", pid, epoch, "g") == Code.CONCURRENT_TRANSACTIONS
    assert (
        host.coordinator.additions.verify("txn", pid, epoch, "t", 0, 9) is Code.NOT_ENOUGH_REPLICAS
    )
    host.tick(60_000)
    assert host.coordinator.snapshot()["txn"].state is TransactionState.ONGOING, (
        "the timeout comes too late"
    )


def test_transactions_are_listed_by_their_duration(host: TxnHost) -> None:
    """KIP-994: the filter selects transactions that have been open for more than this number of ms.
    Version 0 has no such field.
    """
    begun(host)

    def listed(open_ms: int, version: int = 1) -> list[str]:
        answer = host.list(states=("Ongoing",), open_ms=open_ms, version=version)
        return [one.transactional_id for one in answer.transaction_states]

    assert (listed(-1), listed(0)) == (["txn"], [])
    host.tick(1)
    assert (listed(0), listed(1)) == (["txn"], [])
    host.tick(100)
    assert (listed(100), listed(101)) == (["txn"], [])
    assert listed(-1, version=0) == ["txn"]


def test_transactions_are_listed_by_a_pattern_of_ids(host: TxnHost) -> None:
    """KIP-1152: the pattern has RE2's syntax and must match the whole id."""
    for name in ("orders-1", "orders-ä", "other"):
        host.init(name)

    def listed(pattern: str | None) -> list[str]:
        answer = host.list(pattern=pattern, version=2)
        assert answer.error_code == Code.NONE
        return [one.transactional_id for one in answer.transaction_states]

    every = ["orders-1", "orders-ä", "other"]
    assert (listed(None), listed("")) == (every, every)
    assert listed("orders-.") == ["orders-1", "orders-ä"]
    assert listed("orders-[^1]") == ["orders-ä"]
    assert listed("order") == []
    refused = host.list(pattern="(?=x)", version=2)
    assert refused.error_code == Code.INVALID_REGULAR_EXPRESSION


def test_states_that_there_are_not_are_named(host: TxnHost) -> None:
    answer = host.list(states=("Ongoing", "Nonsense"))
    assert answer.unknown_state_filters == ["Nonsense"]


def test_a_response_without_a_transactional_id_waits_for_no_partition(host: TxnHost) -> None:
    request = EndTxnRequest(transactional_id="", producer_id=1, producer_epoch=0, committed=True)
    context = RequestContext(1, 3, "client", "host")
    result = host.coordinator.on_end_txn(request, context, host.now_ms)
    assert (result.partition, len(result.replies)) == (-1, 1)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_error_codes_other_than_fences_are_the_same_in_every_version(
    host: TxnHost, version: int
) -> None:
    pid, epoch = begun(host)
    stranger = {("t", 0): Code.INVALID_PRODUCER_ID_MAPPING}
    assert host.add("txn", pid + 1, epoch, T0, version=version) == stranger
    assert host.add_offsets("txn", pid + 1, epoch, "g", version=version) == (
        Code.INVALID_PRODUCER_ID_MAPPING
    )
    assert host.end("txn", pid + 1, epoch, commit=True, version=version) == (
        Code.INVALID_PRODUCER_ID_MAPPING
    )


def test_an_epoch_is_returned_only_after_it_is_durable(host: TxnHost) -> None:
    """An epoch that is not durable might be assigned to another producer after a power loss."""
    context = RequestContext(1, 4, "client", "host")
    for _ in range(2):
        request = InitProducerIdRequest(
            transactional_id="txn", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        result = host.coordinator.sessions.on_init_producer_id(request, context, host.event_ms())
        assert result.durable and len(result.records) == len(result.replies) == 1
        host.init("txn")


def test_records_of_transactions_have_the_wall_clock_time(slow: TxnHost) -> None:
    """Deadlines use the steady clock. The times that tools and the next run of the broker read are
    those of the wall clock.
    """
    slow.wall_ahead_ms = 3_600_000

    def assert_recorded_now(state: TransactionState) -> None:
        transaction = slow.coordinator.snapshot()["txn"]
        assert transaction.state is state
        assert transaction.last_update_ms == slow.now_ms + slow.wall_ahead_ms
        slow.tick(1_000)

    pid, epoch = (answer := slow.init("txn")).producer_id, answer.producer_epoch
    assert_recorded_now(TransactionState.EMPTY)
    epoch = slow.init("txn").producer_epoch
    assert_recorded_now(TransactionState.EMPTY)
    slow.add("txn", pid, epoch, T0)
    assert_recorded_now(TransactionState.ONGOING)
    assert slow.list(open_ms=999).transaction_states
    assert not slow.list(open_ms=1_000).transaction_states, "it is open for a second"
    slow.end("txn", pid, epoch, commit=True, call=False)
    assert_recorded_now(TransactionState.PREPARE_COMMIT)
    slow.write_markers()
    assert_recorded_now(TransactionState.COMPLETE_COMMIT)
    slow.add("txn", pid, epoch, T0)
    assert_recorded_now(TransactionState.ONGOING)
    slow.init("txn", call=False)
    assert_recorded_now(TransactionState.PREPARE_ABORT)
    slow.write_markers()
    slow.tick(1_000)
    slow.crash()
    slow.handle(slow.coordinator.sessions.on_power_loss(slow.event_ms()))
    assert_recorded_now(TransactionState.EMPTY)
    slow.add("txn", *slow.coordinator.snapshot()["txn"].producer, T0)
    slow.tick(1_000)
    slow.crash()
    slow.handle(slow.coordinator.sessions.on_power_loss(slow.event_ms()))
    assert_recorded_now(TransactionState.PREPARE_ABORT)


def test_all_timeouts_of_a_tick_without_disk_space_are_tried_again(slow: TxnHost) -> None:
    pids = [begun(slow, name, 1000)[0] for name in ("a", "b", "c")]
    slow.now_ms += 1000
    slow.coordinator.on_tick(slow.event_ms())  # the records of this tick are dropped
    slow.coordinator.on_tick_not_written(slow.event_ms())
    slow.tick(PUT_OFF_MS)
    assert [one.producer_id for one in slow.markers] == pids


@pytest.mark.parametrize(("is_requested", "wait_ms"), [(True, 60_000), (False, PUT_OFF_MS)])
def test_an_end_that_found_no_space_comes_again(
    slow: TxnHost, is_requested: bool, wait_ms: int
) -> None:
    """If a producer requested the end, it can request the end again until the whole timeout has
    passed. An abort by timeout is due again soon.
    """
    producer = begun(slow)
    if is_requested:
        assert slow.coordinator.on_commit_requested("txn", *producer, slow.event_ms()) is not None
    else:
        slow.now_ms += 60_000
        slow.coordinator.on_tick(slow.event_ms())
    assert slow.coordinator.next_deadline_ms() is None
    slow.coordinator.on_not_ended("txn", slow.event_ms(), is_requested=is_requested)
    slow.tick(wait_ms - 1)
    assert slow.markers == []
    slow.tick(1)
    assert [one.commit for one in slow.markers] == [False]


@pytest.mark.parametrize("version", [0, 2])
def test_a_partition_that_a_start_adds_changes_nothing_else(host: TxnHost, version: int) -> None:
    """A power loss removed the record that added the partition (see `on_partition_recovered`)."""
    _, *pair = init_of(host.init("txn"))
    producer, t0 = ProducerIdAndEpoch(*pair), TopicPartition("t", 0)
    if version:
        host.handle(host.coordinator.additions.on_writing("txn", producer, [t0], host.event_ms()))
    else:
        host.add("txn", *producer, T0)
    before = host.coordinator.metadata("txn")
    assert before is not None and before.client_transaction_version == version
    host.now_ms += 5_000
    found = TopicPartition("t", 1)
    host.handle(host.coordinator.on_partition_recovered(before, found, host.event_ms()))
    assert host.coordinator.metadata("txn") == before._replace(
        partitions={t0: None, found: None}, last_update_ms=host.now_ms
    )


def test_the_latest_connection_of_a_producer_may_be_for_any_purpose(host: TxnHost) -> None:
    producer, coordinator = begun(host), host.coordinator
    assert coordinator.latest_connection("txn") == 0
    for connection, channel in ((3, Channel.COORDINATOR), (5, Channel.DATA), (7, Channel.OFFSETS)):
        coordinator.check_connection("txn", producer, connection, (channel,))
        assert coordinator.latest_connection("txn") == connection
