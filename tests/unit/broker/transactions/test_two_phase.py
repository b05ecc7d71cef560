"""Two-phase commit: transactions that stay open until a request ends them, and which sessions may
send this request.

Source: KIP-939 ("Proposed Changes", with its examples of ids and epochs); Apache Kafka 4.3's
responses to InitProducerId 6 if two-phase commit is off.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest
from helpers.disk_broker import DATA_DIR, DiskBroker, Producer
from helpers.full_disk import ALL
from sim.disk import Refusal

from barnabas.broker.opening.start import UNHEARD_PRODUCER_IDS
from barnabas.coordinator.result import partition_for
from barnabas.coordinator.transactions.transaction_state import NO_PRODUCER, NO_TIMEOUT_MS
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.replication.following import StandbyNote
from barnabas.replication.wire import AnswersWait

LAST_EPOCH = 32766
MONTH_MS = 30 * 24 * 3600 * 1000
ENABLED = {"transaction_two_phase_commit_enable": "true"}
Pair = tuple[int, int]


class TwoPhase(Producer):
    """A producer in a session of two-phase commit, with version 1 or 2 of transactions.

    ongoing: the id and epoch of the open transaction that the session keeps.
    """

    def __init__(
        self, b: DiskBroker, version: int = 2, *, keep: bool = False, enable: bool = True
    ) -> None:
        """A producer of two-phase commit, in the given version of transactions (KIP-890). With
        `keep`, its session keeps the open transaction; without `enable`, it is an ordinary session.
        """
        self.version, self.keep, self.enable = version, keep, enable
        self.ongoing: Pair = NO_PRODUCER
        super().__init__(b, "txn")

    @property
    def pair(self) -> Pair:
        return self.pid, self.epoch

    def begin_session(self) -> None:
        """Initialise the producer. `ongoing` is the id and epoch of the transaction that the
        session keeps.
        """
        answer = self.b.call(init_6(keep=self.keep, enable=self.enable), 6, self.connection)
        assert answer.error_code == Code.NONE, answer.error_code
        self.pid, self.epoch = answer.producer_id, answer.producer_epoch
        self.ongoing = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)

    def write(self, topic: str, partition: int, value: bytes) -> int:
        """Write a record in the transaction. Gives the error code."""
        if self.version == 1:
            return self.add(topic, partition) or self.produce(topic, partition, value)
        at = self.sequences.get((topic, partition), 0)
        code, _ = self.b.produce(
            topic,
            (value,),
            partition=partition,
            pid=self.pid,
            epoch=self.epoch,
            sequence=at,
            txn=self.txn,
            connection=self.connection,
            version=12,
        )
        if code == Code.NONE:
            self.sequences[topic, partition] = at + 1
        return code

    def finish(self, commit: bool) -> int:
        """End the transaction, and take over the id and epoch of the response. Gives the error
        code.
        """
        version = 5 if self.version == 2 else 4
        answer = self.b.call(self.end_request(commit), version, self.connection)
        if answer.error_code == Code.NONE and version == 5:
            self.pid, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return int(answer.error_code)


def init_6(
    *, keep: bool = False, enable: bool = False, timeout_ms: int = 60_000, of: Pair = NO_PRODUCER
) -> InitProducerIdRequest:
    """InitProducerId of version 6, the first with the fields of two-phase commit (KIP-939)."""
    return InitProducerIdRequest(
        transactional_id="txn",
        transaction_timeout_ms=timeout_ms,
        producer_id=of[0],
        producer_epoch=of[1],
        enable2_pc=enable,
        keep_prepared_txn=keep,
    )


def keep(b: DiskBroker, version: int = 2) -> TwoPhase:
    """Begin a session that keeps the open transaction, as a producer does after a crash."""
    return TwoPhase(b, version, keep=True)


def timeout_of(b: DiskBroker) -> int:
    (row,) = b.call(DescribeTransactionsRequest(["txn"]), 0).transaction_states
    timeout_ms: int = row.transaction_timeout_ms
    return timeout_ms


def ways() -> Any:
    """Run the test once for each way in which a broker with a prepared transaction may stop."""
    return pytest.mark.parametrize("way", ["kill", "lose_power", "stop"])


@pytest.fixture
def journal_logs() -> str:
    """The number of logs from which on a flush uses the journal. Some tests override it."""
    return "2"


@pytest.fixture
def level() -> int:
    """The level of the feature transaction.version. Some tests override it."""
    return 2


@pytest.fixture
def b(journal_logs: str, level: int) -> DiskBroker:
    features = f"transaction.version={level}"
    broker = DiskBroker(
        barnabas_flush_journal_logs=journal_logs, barnabas_features=features, **ENABLED
    )
    broker.topic("t", 2)
    return broker


each_level = pytest.mark.parametrize("level", [0, 1, 2])
each_flush = pytest.mark.parametrize("journal_logs", ["2", "0"], ids=["journal", "no journal"])


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


# --- requests for two-phase commit --------------------------------------------------------------


def test_two_phase_commit_is_refused_unless_the_broker_enables_it() -> None:
    b = DiskBroker()
    refused = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert b.call(init_6(enable=True), 6).error_code == refused
    assert b.call(init_6(enable=True, keep=True), 6).error_code == refused
    longest = b.call(init_6(timeout_ms=NO_TIMEOUT_MS), 6)
    assert longest.error_code == Code.INVALID_TRANSACTION_TIMEOUT


def test_a_broker_that_disabled_two_phase_commit_warns_of_open_transactions_and_aborts_them(
    b: DiskBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """An open two-phase transaction remains after the setting was removed, until an ordinary
    session aborts it. The broker warns only when it starts with such a transaction.
    """
    p = TwoPhase(b)
    assert p.write("t", 0, b"a") == 0
    b.stop()
    assert "two-phase" not in caplog.text
    b.set_property("transaction.two.phase.commit.enable", "false")
    b.stop()
    assert "txn has an open transaction of two-phase commit" in caplog.text
    refused = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert b.call(init_6(enable=True, keep=True), 6).error_code == refused
    assert b.state("txn") == ("Ongoing", *p.pair)
    assert b.call(init_6(), 6).error_code == Code.NONE
    assert b.read("t", committed=True) == []
    b.stop()
    assert caplog.text.count("two-phase") == 1


def test_a_start_without_two_phase_commit_does_not_warn_of_other_transactions(
    b: DiskBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker has an open transaction of an ordinary session, and a two-phase transaction that
    has ended. Neither causes a warning.
    """
    p, other = TwoPhase(b), Producer(b, "other")
    assert p.write("t", 0, b"a") == 0 and p.finish(True) == 0
    other.send("t", 1, b"b")
    b.set_property("transaction.two.phase.commit.enable", "false")
    b.stop()
    assert (b.state("txn")[0], b.state("other")[0]) == ("CompleteCommit", "Ongoing")
    assert "two-phase" not in caplog.text


def test_without_a_transactional_id_the_flags_of_two_phase_commit_have_no_effect() -> None:
    asked = InitProducerIdRequest(None, 1, enable2_pc=True, keep_prepared_txn=True)
    answer = DiskBroker().call(asked, 6)
    assert answer.error_code == 0 and answer.producer_id >= 0
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == NO_PRODUCER


@pytest.mark.parametrize("timeout_ms", [-1, 0, NO_TIMEOUT_MS])
def test_any_timeout_is_taken_for_none(b: DiskBroker, timeout_ms: int) -> None:
    assert b.call(init_6(enable=True, timeout_ms=timeout_ms), 6).error_code == 0
    assert timeout_of(b) == NO_TIMEOUT_MS


def test_a_session_that_keeps_without_an_open_transaction_is_an_ordinary_one(b: DiskBroker) -> None:
    p = keep(b)
    assert (p.epoch, p.ongoing) == (0, NO_PRODUCER)
    assert p.write("t", 0, b"a") == 0 and p.finish(True) == 0
    q = keep(b)
    assert (q.epoch, q.ongoing) == (p.epoch + 1, NO_PRODUCER)
    assert q.write("t", 0, b"b") == 0


# --- prepared transactions stay -----------------------------------------------------------------


def test_a_transaction_of_two_phase_commit_does_not_time_out(b: DiskBroker, version: int) -> None:
    p = TwoPhase(b, version)
    assert p.write("t", 0, b"a") == 0
    for _ in range(3):
        b.tick(MONTH_MS)
    b.kill()
    b.tick(MONTH_MS)
    assert b.state("txn") == ("Ongoing", *p.pair)
    p.reconnect()
    assert p.finish(True) == 0
    assert b.read("t", committed=True) == [b"a"]


@pytest.mark.parametrize("commit", [True, False])
def test_after_an_end_without_disk_space_the_transaction_has_no_timeout_either(
    b: DiskBroker, version: int, commit: bool
) -> None:
    p = TwoPhase(b, version)
    assert p.write("t", 0, b"a") == 0
    b.disk.refuse(Refusal(ALL, errno.ENOSPC))
    assert p.finish(commit) == Code.COORDINATOR_NOT_AVAILABLE
    b.disk.refuse(None)
    for _ in range(3):
        b.tick(MONTH_MS)
    assert b.state("txn") == ("Ongoing", *p.pair)
    assert p.finish(commit) == 0
    assert b.read("t", committed=True) == ([b"a"] if commit else [])


@each_flush
@ways()
@pytest.mark.parametrize("commit", [True, False])
def test_the_session_after_a_crash_can_commit_or_abort_the_transaction(
    b: DiskBroker, version: int, way: str, commit: bool
) -> None:
    p = TwoPhase(b, version)
    assert p.write("t", 0, b"a") == 0 and p.write("t", 1, b"b") == 0
    getattr(b, way)()
    q = keep(b, version)
    assert q.ongoing == p.pair, (
        "the database has the transaction's state under this producer id and epoch"
    )
    assert b.state("txn") == ("Ongoing", *p.pair)
    getattr(b, way)()
    q.reconnect()
    assert q.finish(commit) == 0
    assert b.read("t", committed=True) == ([b"a"] if commit else [])
    assert b.read("t", 1, committed=True) == ([b"b"] if commit else [])
    assert q.write("t", 0, b"next") == 0 and q.finish(True) == 0


@each_flush
@ways()
def test_its_own_producer_continues_the_transaction_after_a_power_loss(
    b: DiskBroker, version: int, way: str
) -> None:
    """All acknowledged writes are durable, and the producer can continue to write after each
    restart.
    """
    p = TwoPhase(b, version)
    assert p.write("t", 0, b"a") == 0
    getattr(b, way)()
    p.reconnect()
    assert p.write("t", 0, b"b") == 0 and p.write("t", 1, b"c") == 0
    getattr(b, way)()
    p.reconnect()
    assert p.finish(True) == 0
    assert b.read("t", committed=True) == [b"a", b"b"]


@each_flush
@ways()
def test_an_acknowledged_abort_survives_a_crash(b: DiskBroker, version: int, way: str) -> None:
    """If the abort were lost, the transaction would be open again, and the next session could
    commit it.
    """
    p = TwoPhase(b, version)
    assert p.write("t", 0, b"a") == 0 and p.finish(False) == 0
    getattr(b, way)()
    assert keep(b, version).ongoing == NO_PRODUCER
    assert b.read("t", committed=True) == []
    assert b.end_offset("t", committed=True) == b.end_offset("t")


@ways()
def test_group_offsets_are_part_of_the_kept_transaction(b: DiskBroker, way: str) -> None:
    p = TwoPhase(b, 1)
    p.send_offset("group", "t", 7)
    getattr(b, way)()
    assert b.group_offset("group", "t")[0] == Code.UNSTABLE_OFFSET_COMMIT
    q = keep(b, 1)
    assert q.ongoing == p.pair and q.finish(True) == 0
    assert b.group_offset("group", "t") == (0, 7)


def test_offsets_are_answered_when_they_and_the_group_record_are_durable(
    b: DiskBroker,
) -> None:
    p = TwoPhase(b)
    b.hold_flushes()
    b.send(p.connection, p.offset_request("group", "t", 7), 5)
    assert b.answer(p.connection) is None
    b.release_flushes()
    assert b.answer(p.connection).topics[0].partitions[0].error_code == 0
    assert p.finish(True) == 0
    assert b.group_offset("group", "t") == (0, 7)


def test_additions_to_several_are_answered_when_all_are_on_the_disk(b: DiskBroker) -> None:
    """The records of the two transactional ids are in different partitions of
    __transaction_state.
    """
    names = [next(name for name in "abcd" if partition_for(name, 2) == index) for index in (0, 1)]
    added = []
    for name in names:
        asked = InitProducerIdRequest(name, 60_000, enable2_pc=True)
        session = b.call(asked, 6)
        topics = [AddPartitionsToTxnTopic("t", [0])]
        added.append(
            AddPartitionsToTxnTransaction(
                name, session.producer_id, session.producer_epoch, topics=topics
            )
        )
    b.hold_flushes()
    connection = b.connect()
    b.send(connection, AddPartitionsToTxnRequest(transactions=added), 5)
    while b.answer(connection) is None:
        assert b.flush_one(), "it waits for something else"
    b.lose_power()
    assert [b.state(name)[0] for name in names] == ["Ongoing"] * 2


def test_an_addition_that_is_repeated_is_answered_when_it_is_on_the_disk(b: DiskBroker) -> None:
    p = TwoPhase(b, 1)
    b.hold_flushes()
    connections = b.connect(), b.connect()
    for connection in connections:
        b.send(connection, p.add_request({"t": (1,)}), 3)
    assert [b.answer(connection) for connection in connections] == [None, None]
    b.release_flushes()
    assert all(b.answer(connection) is not None for connection in connections)


@pytest.mark.parametrize("enable", [True, False])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_new_session_is_answered_when_its_epoch_is_durable(
    b: DiskBroker, keeps: bool, enable: bool
) -> None:
    """An epoch that is not durable could be assigned again after a power loss."""
    p = TwoPhase(b, enable=enable)
    assert p.write("t", 0, b"a") == 0
    if not keeps:
        assert p.finish(True) == 0
    connection = b.connect()
    b.hold_flushes()
    b.send(connection, init_6(enable=enable, keep=keeps), 6)
    assert b.answer(connection) is None
    b.release_flushes()
    answer = b.answer(connection)
    assert answer.error_code == Code.NONE
    assert (answer.ongoing_txn_producer_id >= 0) == keeps


@each_flush
def test_after_a_power_loss_a_partition_without_its_record_can_be_written_again(
    b: DiskBroker,
) -> None:
    """A batch may be durable before the record that adds its partition to the transaction. With an
    ordinary producer, such a batch is aborted.
    """
    p, other = TwoPhase(b), Producer(b, "other")
    assert p.write("t", 0, b"a") == 0
    b.hold_flushes()
    b.send(p.connection, produce_12(p, 1, b"b"), 12)
    other.send("t", 1, b"x")
    b.sync("t-1")
    b.lose_power()
    assert b.markers("t", 1) == [(other.pid, other.epoch, False)]
    p.reconnect()
    assert p.write("t", 1, b"b") == 0, "the producer repeats the batch, which got no response"
    assert p.finish(True) == 0
    assert b.read("t", committed=True) == [b"a"] and b.read("t", 1, committed=True) == [b"b"]


def test_in_version_1_a_batch_whose_partition_record_was_lost_is_aborted(
    b: DiskBroker,
) -> None:
    """In version 1, several transactions share an epoch, so the batch cannot be assigned to one of
    them. The record is durable only for a client that waits for the response to AddPartitionsToTxn,
    and this client does not wait.
    """
    p = TwoPhase(b, 1)
    assert p.write("t", 0, b"a") == 0
    b.hold_flushes()
    b.send(p.connection, p.add_request({"t": (1,)}), 3)
    impatient = b.connect()
    b.send(impatient, produce_12(p, 1, b"b"), 9)
    b.sync("t-1")
    b.lose_power()
    assert b.markers("t", 1) == [(p.pid, p.epoch, False)]
    p.reconnect()
    assert p.finish(True) == 0
    assert b.read("t", committed=True) == [b"a"] and b.read("t", 1, committed=True) == []


@each_flush
def test_a_batch_without_any_record_of_its_transaction_is_aborted(b: DiskBroker) -> None:
    """The transactional id has no open transaction to which the batch could belong."""
    p = TwoPhase(b)
    assert p.write("t", 0, b"a") == 0 and p.finish(True) == 0
    b.disk.sync_all()
    b.hold_flushes()
    b.send(p.connection, produce_12(p, 1, b"b"), 12)
    b.sync("t-1")
    b.lose_power()
    assert b.markers("t", 1) == [(p.pid, p.epoch, False)]
    assert keep(b).ongoing == NO_PRODUCER
    assert b.read("t", committed=True) == [b"a"]


def test_a_batch_of_an_ordinary_session_without_its_partition_record_is_logged_and_aborted(
    b: DiskBroker, caplog: pytest.LogCaptureFixture
) -> None:
    p = TwoPhase(b, enable=False)
    assert p.write("t", 0, b"a") == 0
    b.disk.sync_all()
    b.send(p.connection, produce_12(p, 1, b"b"), 12)
    b.sync("t-1")
    b.lose_power()
    assert caplog.text.count("which is unknown to its coordinator") == 1
    assert b.read("t", committed=True) == [] and b.read("t", 1, committed=True) == []


@each_flush
def test_in_a_standbys_copy_that_may_lack_acknowledged_records_it_is_aborted(b: DiskBroker) -> None:
    """The leader did not wait for this standby before it acknowledged records."""
    p = TwoPhase(b)
    assert p.write("t", 0, b"a") == 0
    b.disk.kill()
    StandbyNote(b.disk, DATA_DIR).write_following(AnswersWait.NEVER)
    b.open()
    assert b.parts.transaction_ends.is_idle
    assert b.read("t", committed=True) == [] and b.markers("t")[-1][2] is False
    q = keep(b)
    assert q.ongoing == NO_PRODUCER
    assert q.pid > p.pid + UNHEARD_PRODUCER_IDS, "ids that the leader may have given out since"


def test_a_batch_without_a_response_may_be_lost_with_its_transaction(b: DiskBroker) -> None:
    p = TwoPhase(b)
    b.hold_flushes()
    b.send(p.connection, produce_12(p, 0, b"a"), 12)
    assert b.answer(p.connection) is None, "it waits for the disk"
    b.lose_power()
    q = keep(b)
    assert q.ongoing == NO_PRODUCER
    assert q.write("t", 0, b"b") == 0 and q.finish(True) == 0
    assert b.read("t", committed=True) == [b"b"]


def produce_12(p: TwoPhase, partition: int, value: bytes) -> Any:
    """A Produce request of version 12, whose batch adds its partition to the transaction."""
    return p.b.produce_request(
        "t", (value,), partition=partition, pid=p.pid, epoch=p.epoch, sequence=0, txn="txn"
    )


@pytest.mark.parametrize("written", ["", "__transaction_state", "/data"])
def test_with_durability_os_a_power_loss_aborts_the_transaction(written: str) -> None:
    """The result is the same no matter which files the operating system has written by itself."""
    b = DiskBroker(barnabas_transaction_durability="os", **ENABLED)
    b.topic("t")
    p = TwoPhase(b)
    assert p.write("t", 0, b"a") == 0
    b.kill()
    assert keep(b).ongoing == p.pair
    if written:
        b.sync(written)
    b.lose_power()
    assert b.broker.transactions.metadata("txn") is None or b.state("txn")[0] == "Empty"
    assert b.read("t", committed=True) == []
    assert b.end_offset("t", committed=True) == b.end_offset("t")


def test_a_power_loss_fences_other_producers_although_one_transaction_stays_open(
    b: DiskBroker,
) -> None:
    p = TwoPhase(b)
    assert p.write("t", 0, b"a") == 0
    other = Producer(b, "other")
    other.send("t", 1, b"b")
    b.lose_power()
    assert keep(b).ongoing == p.pair
    other.connection = b.connect()
    assert other.add("t", 1) == Code.PRODUCER_FENCED


def test_a_later_ordinary_session_ends_the_rules_of_two_phase_commit(b: DiskBroker) -> None:
    """A power loss may lose the open transaction of an ordinary session. That is allowed, since its
    producer is then fenced.
    """
    p = TwoPhase(b)
    assert p.write("t", 0, b"a") == 0 and p.finish(True) == 0
    assert b.broker.transactions.two_phase == {"txn"}
    p.enable = False
    p.begin_session()
    p.sequences.clear()
    assert b.broker.transactions.two_phase == set()
    assert p.write("t", 0, b"b") == 0 and p.finish(True) == 0


# --- sessions and epochs-------------------------------------------------------------------------


def test_producer_ids_and_epochs_are_those_of_kip_939(b: DiskBroker) -> None:
    """The test follows the example in the KIP. The markers have the epoch after that of the
    transaction, and the last producer continues with the next epoch of its own.
    """
    p = TwoPhase(b)
    assert p.write("t", 0, b"a") == 0
    for number in (1, 2, 3):
        q = keep(b)
        assert (q.pair, q.ongoing) == ((p.pid, p.epoch + number), p.pair)
    assert q.finish(True) == 0
    assert q.pair == (p.pid, p.epoch + 4)
    assert b.markers("t") == [(p.pid, p.epoch + 1, True)]


def test_at_the_last_epoch_the_session_that_keeps_gets_a_new_producer_id(b: DiskBroker) -> None:
    """A session that keeps the prepared transaction of its predecessor needs an epoch of its own.
    At the last epoch it gets a new producer id, and the marker has the former id.
    """
    p = TwoPhase(b)
    b.set_epoch("txn", LAST_EPOCH)
    p.epoch = LAST_EPOCH
    assert p.write("t", 0, b"a") == 0
    q = keep(b)
    assert q.pid != p.pid and q.epoch == 0 and q.ongoing == p.pair
    b.kill()
    q.reconnect()
    assert q.finish(True) == 0
    assert q.epoch == 1 and b.markers("t") == [(p.pid, LAST_EPOCH + 1, True)]
    assert b.read("t", committed=True) == [b"a"]


def test_a_commit_at_the_last_epoch_returns_a_new_producer_id(b: DiskBroker) -> None:
    """A commit with the last epoch returns a new producer id, and so does a retry of the commit."""
    p = TwoPhase(b)
    b.set_epoch("txn", LAST_EPOCH - 1)
    p.epoch = LAST_EPOCH - 1
    assert p.write("t", 0, b"a") == 0
    q = keep(b)
    assert q.pair == (p.pid, LAST_EPOCH)
    asked = q.end_request(True)
    first = b.call(asked, 5, q.connection)
    assert first.error_code == 0 and first.producer_id != p.pid and first.producer_epoch == 0
    b.kill()
    again = b.call(asked, 5)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, first.producer_id, 0)
    assert b.markers("t") == [(p.pid, LAST_EPOCH, True)]


@ways()
def test_an_end_that_got_no_response_can_be_repeated_after_a_restart(
    b: DiskBroker, way: str
) -> None:
    """After a power loss the repeated EndTxn is refused, since each transactional id without an
    open transaction gets a new producer id.
    """
    p = TwoPhase(b)
    assert p.write("t", 0, b"a") == 0
    q = keep(b)
    asked = q.end_request(True)
    assert q.finish(True) == 0
    getattr(b, way)()
    again = b.call(asked, 5)
    if way == "lose_power":
        assert again.error_code in (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_ID_MAPPING)
    else:
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, *q.pair)
    assert b.read("t", committed=True) == [b"a"]
    assert keep(b).ongoing == NO_PRODUCER


def test_the_previous_producer_of_a_kept_transaction_is_fenced(b: DiskBroker, version: int) -> None:
    """The previous producer must not end the kept transaction or write to it, even to a partition
    that already belongs to the transaction.
    """
    p = TwoPhase(b, version)
    assert p.write("t", 0, b"a") == 0
    q = keep(b, version)
    assert p.finish(True) == Code.PRODUCER_FENCED
    assert p.finish(False) == Code.PRODUCER_FENCED
    assert p.produce("t", 0, b"late") == Code.INVALID_PRODUCER_EPOCH
    assert p.write("t", 1, b"late") in (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH)
    again = b.call(init_6(enable=True, keep=True, of=p.pair), 6)
    assert again.error_code == Code.PRODUCER_FENCED
    stranger = b.call(q.end_request(True).__class__("txn", q.pid + 77, 0, True), 5)
    assert stranger.error_code == Code.INVALID_PRODUCER_ID_MAPPING
    assert q.finish(True) == 0
    assert b.read("t", committed=True) == [b"a"] and b.read("t", 1) == []


def test_nothing_is_added_to_a_kept_transaction(b: DiskBroker, version: int) -> None:
    """Even the session that keeps the transaction can only end it (KIP-939)."""
    p = TwoPhase(b, version)
    assert p.write("t", 0, b"a") == 0
    q = keep(b, version)
    assert q.add("t", 1) == q.add_offsets("group") == Code.INVALID_TXN_STATE
    assert q.commit_offset("group", "t", 7) == Code.INVALID_TXN_STATE
    assert q.write("t", 0, b"b") == q.write("t", 1, b"b") == Code.INVALID_TXN_STATE
    b.kill()
    q.reconnect()
    found = b.broker.transactions.metadata("txn")
    assert found is not None and list(found.partitions) == [("t", 0)]
    assert q.finish(True) == 0
    assert b.read("t") == [b"a"] and b.read("t", 1) == []


@each_level
@each_flush
def test_the_previous_producer_is_fenced_while_the_decision_is_flushed(
    b: DiskBroker, version: int
) -> None:
    """A late batch must be refused while the decision is flushed, since it would be committed as
    well.
    """
    p = TwoPhase(b, version)
    assert p.write("t", 0, b"a") == 0
    p.send_offset("group", "t", 7)
    q = keep(b, version)
    b.hold_flushes()
    b.send(q.connection, q.end_request(True), 5 if version == 2 else 4)
    late = {p.produce("t", 0, b"late"), p.commit_offset("group", "t", 8)}
    while b.flush_one():
        late |= {p.produce("t", 0, b"late"), p.commit_offset("group", "t", 8)}
    assert late <= {
        Code.INVALID_PRODUCER_EPOCH,
        Code.NOT_ENOUGH_REPLICAS,
        Code.CONCURRENT_TRANSACTIONS,
    }
    b.release_flushes()
    assert b.answer(q.connection).error_code == Code.NONE
    assert b.read("t", committed=True) == [b"a"]
    assert b.group_offset("group", "t") == (0, 7)


def test_other_producers_can_write_while_a_transaction_is_kept(b: DiskBroker) -> None:
    p, other = TwoPhase(b), Producer(b, "other")
    assert p.write("t", 0, b"a") == 0
    other.send("t", 0, b"b")
    keep(b)
    assert b.broker.transactions.kept_from
    assert other.produce("t", 0, b"c") == 0
    assert p.write("t", 0, b"d") == Code.INVALID_PRODUCER_EPOCH


@each_level
def test_offset_commits_of_the_previous_producer_are_fenced(b: DiskBroker) -> None:
    p = TwoPhase(b, 1)
    p.send_offset("group", "t", 7)
    q = keep(b, 1)
    assert p.commit_offset("group", "t", 8) == Code.INVALID_PRODUCER_EPOCH
    assert q.commit_offset("group", "t", 9) in (
        Code.INVALID_TXN_STATE, Code.INVALID_PRODUCER_EPOCH
    )  # fmt: skip
    assert q.finish(True) == 0
    assert b.group_offset("group", "t") == (0, 7)


def test_the_session_that_keeps_can_only_end_the_transaction(b: DiskBroker, version: int) -> None:
    p = TwoPhase(b, version)
    assert p.write("t", 0, b"a") == 0
    q = keep(b, version)
    assert q.write("t", 0, b"more") == Code.INVALID_TXN_STATE
    assert q.write("t", 1, b"more") == Code.INVALID_TXN_STATE
    assert q.finish(True) == 0
    assert b.read("t", committed=True) == [b"a"]


def test_a_session_that_does_not_keep_aborts_the_transaction(b: DiskBroker, version: int) -> None:
    """This lets an operator end an abandoned transaction without permission for two-phase
    commit.
    """
    p = TwoPhase(b, version)
    assert p.write("t", 0, b"a") == 0
    q = keep(b, version)
    operator = TwoPhase(b, version, enable=False)
    assert b.state("txn")[0] == "Empty" and timeout_of(b) == 60_000
    assert b.read("t", committed=True) == []
    assert b.end_offset("t", committed=True) == b.end_offset("t")
    for fenced in (p, q):
        assert fenced.finish(True) in (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_ID_MAPPING)
    assert operator.write("t", 0, b"b") == 0 and operator.finish(True) == 0
    b.tick(MONTH_MS)
    assert b.read("t", committed=True) == [b"b"]


def test_a_new_session_overtakes_a_commit_that_is_not_decided_yet() -> None:
    """The commit waits for a flush before it is decided. Meanwhile a new session sends an
    InitProducerId that keeps the transaction. This fences the producer that commits.
    """
    b = DiskBroker(**ENABLED)
    b.topic("t")
    p = TwoPhase(b, 1)
    assert p.write("t", 0, b"a") == 0
    b.topic("u")
    b.hold_flushes()
    assert b.produce("u", (b"x",))[0] == 0
    log = b.broker.topics.partition("u", 0)
    assert log is not None
    b.broker.flushes.wait([log], lambda _: None, b.now_ms)  # the commit must wait for this flush
    b.send(p.connection, p.end_request(True), 4)
    assert b.answer(p.connection) is None
    late = b.connect()
    b.send(late, init_6(enable=True, keep=True), 6)
    b.release_flushes()
    kept = b.answer(late)
    assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == p.pair
    assert b.answer(p.connection).error_code == Code.PRODUCER_FENCED
    b.tick(MONTH_MS)
    assert b.state("txn")[0] == "Ongoing", "it has no timeout after that either"


def test_a_kept_transaction_of_an_ordinary_session_keeps_its_timeout(b: DiskBroker) -> None:
    """KeepPreparedTxn without Enable2Pc is meant for users who need no more than a long timeout."""
    p = TwoPhase(b, enable=False)
    assert p.write("t", 0, b"a") == 0
    q = TwoPhase(b, keep=True, enable=False)
    assert q.ongoing == p.pair
    b.tick(59_000)
    assert b.state("txn")[0] == "Ongoing"
    b.tick(2_000)
    assert b.state("txn")[0] == "CompleteAbort"
    assert b.read("t", committed=True) == []
    assert q.finish(True) == Code.INVALID_TXN_STATE


@pytest.mark.parametrize(("timeout_ms", "lasts_ms"), [(10_000, 60_000), (90_000, 90_000)])
def test_keeping_a_transaction_never_shortens_its_timeout(
    b: DiskBroker, timeout_ms: int, lasts_ms: int
) -> None:
    """The transaction was prepared with the longer timeout. The external transaction manager may
    decide on it until this timeout ends.
    """
    assert TwoPhase(b, enable=False).write("t", 0, b"a") == 0
    asked = init_6(keep=True, timeout_ms=timeout_ms)
    assert b.call(asked, 6).error_code == Code.NONE
    b.tick(lasts_ms - 1_000)
    assert b.state("txn")[0] == "Ongoing"
    b.tick(2_000)
    assert b.state("txn")[0] == "CompleteAbort"


def test_a_transaction_that_is_kept_for_two_phase_commit_loses_its_timeout(b: DiskBroker) -> None:
    p = TwoPhase(b, enable=False)
    assert p.write("t", 0, b"a") == 0
    q = keep(b)
    b.tick(MONTH_MS)
    assert q.finish(True) == 0 and q.write("t", 0, b"b") == 0
    b.tick(MONTH_MS)
    assert q.finish(True) == 0
    assert b.read("t", committed=True) == [b"a", b"b"]


@each_flush
@ways()
def test_a_transaction_that_is_kept_for_two_phase_commit_is_durable_from_then_on(
    b: DiskBroker, version: int, way: str
) -> None:
    """The responses to the batches did not wait for a flush. From now on, an external transaction
    manager may decide on the transaction, so its batches must be durable.
    """
    p = TwoPhase(b, version, enable=False)
    assert p.write("t", 0, b"a") == 0 and p.write("t", 1, b"b") == 0
    assert keep(b, version).ongoing == p.pair
    getattr(b, way)()
    q = keep(b, version)
    assert q.ongoing == p.pair
    getattr(b, way)()
    q.reconnect()
    assert q.finish(True) == 0
    assert b.read("t", committed=True) == [b"a"] and b.read("t", 1, committed=True) == [b"b"]


def test_an_ordinary_session_cannot_keep_a_transaction_without_timeout(b: DiskBroker) -> None:
    p = TwoPhase(b)
    assert p.write("t", 0, b"a") == 0
    assert b.call(init_6(keep=True), 6).error_code == Code.INVALID_TXN_STATE
    assert p.finish(True) == 0, "a refused request has changed nothing"


def test_below_transaction_version_2_the_next_epoch_is_above_that_of_the_keeping_session() -> None:
    b = DiskBroker(barnabas_features="transaction.version=0", **ENABLED)
    b.topic("t")
    p = TwoPhase(b, 1)
    assert p.write("t", 0, b"a") == 0
    q = keep(b, 1)
    b.kill()
    r = TwoPhase(b, 1)
    assert r.pair > q.pair > p.pair
    q.reconnect()
    assert q.finish(True) == Code.PRODUCER_FENCED
    assert b.read("t", committed=True) == []


def test_a_late_end_of_a_kept_transaction_does_not_end_the_next_one(b: DiskBroker) -> None:
    """The session sends EndTxn over a connection that breaks, and repeats it over a new
    connection.
    """
    TwoPhase(b, 1).write("t", 0, b"kept")
    keeper = keep(b, 1)
    given_up = keeper.reconnect()
    assert keeper.finish(commit=True) == Code.NONE
    assert b.broker.transactions.latest_connection("txn") == keeper.connection, "known at once"
    assert keeper.write("t", 0, b"next") == Code.NONE
    assert b.is_hung_up_on(given_up, keeper.end_request(True), 4)
    assert keeper.finish(commit=False) == Code.NONE, "it is still open"
