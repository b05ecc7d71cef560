"""The core, called without a server: one request at a time per connection, parked requests, acks=0,
closed connections, and the order in which a commit becomes durable.
"""

from __future__ import annotations

import errno
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import CountedIds
from helpers.core_host import CoreHost, delete_topic, error_of, fetch, produce
from helpers.deferred_batches import defer_batches
from helpers.disk_broker import DiskBroker, Producer
from helpers.places import TESTS
from helpers.repeating import repeat_until

from barnabas.broker.logs.flush_queue import LONGEST_LATER_MS
from barnabas.broker.settings.config import BrokerConfig
from barnabas.coordinator.groups.group_records import offset_tombstone
from barnabas.coordinator.result import Result
from barnabas.daemon.opening import open_broker
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.records import NewRecord, batches_in, decode_marker, encode_batch
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.log.broker_appends import append_records
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_directory import LogDirectory, LogDirectoryError

KAFKA = TESTS / "fixtures" / "kafka-logdir" / "logdir"
DELTA_BEGAN_MS = 1_795_222_690_308
TXN_LOG = "__transaction_state"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    """The core with three connections. After the test, the remaining flushes are carried out."""
    host = CoreHost(tmp_path)
    for connection in (1, 2, 3):
        host.connect(connection)
    yield host
    for _ in range(20):
        if host.flushes:
            host.flush()
    host.close()


# --- parts of a request --------------------------------------------------------------------------


def test_each_part_has_its_own_ticket_and_its_amendments_apply_in_order(
    host: CoreHost,
) -> None:
    """A part is a request that the core creates to handle one element of a larger request. An
    amendment changes the part's response before the response is passed on.
    """
    requests, taken = host.broker.requests, []
    tickets = [
        requests.new_part(lambda answer, number=number: taken.append((number, answer.cluster_id)))
        for number in range(2)
    ]
    assert len({*tickets, requests.next_ticket}) == 3

    def append(text: str) -> Callable[[Any], None]:
        return lambda answer: setattr(answer, "cluster_id", answer.cluster_id + text)

    for text in "abc":
        requests.amend(tickets[1], append(text))
    requests.amend(tickets[0], append("x"))
    for ticket in tickets:
        context = RequestContext(ticket, 9, "client", "host", api_key=MetadataRequest.API_KEY)
        requests.reply_to_part(context, MetadataResponse(cluster_id=""))
    assert taken == [(0, "x"), (1, "abc")]


# --- one at a time ------------------------------------------------------------------------------


def test_a_second_request_of_a_connection_while_one_is_in_flight_is_an_error(
    host: CoreHost,
) -> None:
    host.create("t")
    host.ask(1, fetch({"t": {0: 0}}, max_wait_ms=1000), 12)
    with pytest.raises(AssertionError, match="last request is not answered yet"):
        host.broker.on_frame(
            # a Metadata request, while the Fetch of the same connection waits
            1,
            memoryview(bytearray(b"\0\3\0\1\0\0\0\7\xff\xff\xff\xff\xff\xff")),
            host.now_ms,
        )


def test_another_connection_is_not_held_up_by_a_parked_one(host: CoreHost) -> None:
    host.create("t")
    host.ask(1, fetch({"t": {0: 0}}, max_wait_ms=1000), 12)
    assert host.answers[1] == []
    assert error_of(host.call(2, produce("t", b"x"), 9)) == 0
    (answer,) = host.answers[1]
    assert bytes(answer.responses[0].partitions[0].records).endswith(b"\x02x\0")


def test_a_request_that_cannot_be_decoded_closes_only_its_connection(
    host: CoreHost,
) -> None:
    host.broker.on_frame(
        # a Metadata request whose body is too short
        1,
        memoryview(bytearray(struct.pack(">hhih", 3, 1, 7, -1) + b"\0\0")),
        host.now_ms,
    )
    host.carry_out()
    assert "Metadata" in host.closed[1] and host.answers[1] == []
    assert host.call(2, MetadataRequest(topics=None), 1).brokers


def test_tickets_are_not_used_twice(host: CoreHost) -> None:
    """When a connection is closed, the response to its request must not go to a later connection
    with the same number.
    """
    host.create("t")
    host.ask(1, fetch({"t": {0: 0}}, max_wait_ms=1000), 12)
    host.broker.on_closed(1)
    host.connect(1)
    host.call(2, produce("t"), 9)
    host.tick(5000)
    assert host.answers[1] == []
    assert host.broker.requests._parked == {} and host.broker.requests._waiting_fetches == {}


def test_deferred_work_runs_before_the_logs_are_closed(
    tmp_path: Path,
) -> None:
    """Deferred work waits until the responses have been sent, which does not happen here before the
    stop.
    """
    host = CoreHost(tmp_path)
    done: list[int] = []
    host.broker.outbox.deferred.append(done.append)
    host.close()
    assert done == [host.now_ms]


def test_deferred_work_runs_before_the_next_event(host: CoreHost) -> None:
    """Deferred work waits until the responses have been sent. The next event may be a tick or the
    end of a flush.
    """
    host.create("t", flush_messages="1")
    host.ask(1, produce("t", b"x"), 9)
    done: list[int] = []
    host.broker.outbox.deferred.append(done.append)
    host.broker.on_tick(host.now_ms + 1)
    host.broker.outbox.deferred.append(done.append)
    job = host.flushes.pop()
    for file in job.files:
        file.fsync()
    host.broker.on_flushed(job, host.now_ms + 2)
    assert done == [host.now_ms + 1, host.now_ms + 2]
    host.carry_out()


@pytest.mark.parametrize(("number", "is_noted"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_a_failed_stop_raises_and_records_whether_unflushed_bytes_may_be_lost(
    tmp_path: Path, number: int, is_noted: bool
) -> None:
    """After an I/O error, the next start must not trust unflushed bytes. If only file descriptors
    were missing, nothing is lost.
    """
    host = CoreHost(tmp_path)
    host.connect(1)
    host.create("t")
    host.call(1, produce("t", b"x"), 9)
    noted: list[bool] = []
    host.broker.logs.note_failure = lambda: noted.append(True)  # type: ignore[method-assign]

    def fail(files: list[Any]) -> None:
        raise OSError(number, "of the disk")

    with pytest.raises(OSError, match="of the disk"):
        host.broker.close_logs(host.now_ms, fail)
    assert noted == [True] * is_noted


def test_a_stop_finishes_the_deletion_of_a_topic(tmp_path: Path) -> None:
    """The core deletes the 200 partitions in several steps, and the broker is stopped between two
    of them.
    """
    host = CoreHost(tmp_path)
    host.connect(1)
    host.create("t", 200)
    for log in host.broker.topics.partitions_of("t"):
        append_records(log, [(b"k", b"x")], host.now_ms)
    host.ask(1, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)
    assert host.answers[1] == [], "it is under way"
    host.close()
    names = [path.name for path in (tmp_path / "data").iterdir() if path.name.startswith("t-")]
    assert [name for name in names if not name.endswith("-delete")] == []


def test_a_fetch_that_was_answered_early_leaves_no_deadline(host: CoreHost) -> None:
    host.create("t")
    host.ask(1, fetch({"t": {0: 0}}, max_wait_ms=10), 12)
    due_ms = host.now_ms + 10
    assert host.broker.next_deadline_ms() == due_ms
    host.call(2, produce("t", b"x"), 9)
    assert len(host.answers[1]) == 1
    host.tick(1)
    deadline_ms = host.broker.next_deadline_ms()
    assert deadline_ms is None or deadline_ms > due_ms


def test_a_tick_starts_a_compaction(host: CoreHost) -> None:
    (log,) = host.create(
        "t", cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0"
    )
    for _ in range(3):
        append_records(log, [(b"k", b"x")], host.now_ms)
        host.tick(2)
    for _ in range(3):
        host.tick(60_000)
        while host.flushes:
            host.flush()
    assert [job.directory for job in host.broker.outbox.cleanings] == [log.directory]


# --- fetches that wait --------------------------------------------------------------------------


def test_a_fetch_waits_for_min_bytes(host: CoreHost) -> None:
    host.create("t")
    host.ask(1, fetch({"t": {0: 0}}, min_bytes=150, max_wait_ms=1000), 12)
    host.call(2, produce("t", b"x"), 9)
    assert host.answers[1] == [], "one batch is 70 bytes"
    host.call(2, produce("t", b"y"), 9)
    host.call(2, produce("t", b"z"), 9)
    assert len(host.answers[1]) == 1
    assert [
        header.base_offset
        for _, header in batches_in(bytes(host.answers[1][0].responses[0].partitions[0].records))
    ] == [0, 1, 2]


def test_a_fetch_is_answered_when_its_time_is_up(host: CoreHost) -> None:
    host.create("t")
    host.ask(1, fetch({"t": {0: 0}}, max_wait_ms=500), 12)
    assert host.broker.next_deadline_ms() == host.now_ms + 500
    host.tick(499)
    assert host.answers[1] == []
    host.tick(1)
    (answer,) = host.answers[1]
    assert (
        answer.responses[0].partitions[0].error_code == Code.NONE
        and not answer.responses[0].partitions[0].records
    )


def test_a_waiting_fetch_is_answered_when_its_topic_is_deleted(host: CoreHost) -> None:
    host.create("t")
    host.ask(1, fetch({"t": {0: 0}}, max_wait_ms=60_000), 12)
    delete_topic(host.parts.deletion, "t", host.now_ms)
    host.carry_out()
    host.tick(60_000)
    assert len(host.answers[1]) == 1


# --- acks ---------------------------------------------------------------------------------------


def test_acks_zero_has_no_answer(host: CoreHost) -> None:
    (log,) = host.create("t")
    host.ask(1, produce("t", acks=0), 9)
    assert host.answers[1] == [None] and log.log_end_offset == 1
    assert error_of(host.call(1, produce("t", acks=1), 9)) == 0, "the next request goes on"


def test_acks_zero_and_an_error_end_the_connection(host: CoreHost) -> None:
    host.ask(1, produce("missing", acks=0), 9)
    assert "UNKNOWN_TOPIC_OR_PARTITION on missing-0" in host.closed[1]


def test_flush_messages_1_waits_for_the_disk(host: CoreHost) -> None:
    (log,) = host.create("t", flush_messages="1")
    host.create("plain")
    host.ask(1, produce("t"), 9)
    host.ask(2, produce("t"), 9)
    assert error_of(host.call(3, produce("plain"), 9)) == 0
    assert host.answers[1] == host.answers[2] == []
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (0, 0, 2), (
        "readers wait, too"
    )
    host.ask(3, fetch({"t": {0: 0}}, max_wait_ms=500), 11)
    assert len(host.answers[3]) == 1 and len(host.flushes) == 1
    host.flush()
    assert len(host.answers[1]) == 1 and host.answers[2] == []
    assert log.high_watermark == 1 and len(host.answers[3]) == 2, (
        "a fetch that waits is answered with the flush"
    )
    host.flush()
    assert len(host.answers[2]) == 1 and log.durability.recovery_point == 2
    assert error_of(host.call(3, produce("t", acks=1), 9)) == 0, "acks=1 does not wait"
    assert (log.high_watermark, log.log_end_offset) == (2, 3), (
        "readers wait for the flush of its record"
    )
    host.flush()
    assert log.high_watermark == 3


def test_with_flush_messages_3_every_third_record_waits_for_a_flush(host: CoreHost) -> None:
    (log,) = host.create("t", flush_messages="3")
    assert [error_of(host.call(2, produce("t"), 9)) for _ in range(2)] == [
        0,
        0,
    ] and not host.flushes
    host.ask(1, produce("t"), 9)
    assert host.answers[1] == []
    host.flush()
    assert len(host.answers[1]) == 1 and log.durability.recovery_point == 3


@pytest.mark.parametrize("deferred_above", [None, "ROWS_AT_ONCE"])
@pytest.mark.parametrize("transactional_id", [None, "txn"])
def test_flush_ms_flushes_records_in_time_and_no_request_waits(
    host: CoreHost,
    monkeypatch: pytest.MonkeyPatch,
    transactional_id: str | None,
    deferred_above: str | None,
) -> None:
    """The batches may belong to a transaction, and may be appended after the worker has checked
    them.
    """
    if deferred_above is not None:
        defer_batches(monkeypatch, deferred_above)
    host.ask(1, InitProducerIdRequest(transactional_id, 60_000, -1, -1), 4)
    while host.flushes:
        host.flush()
    init = host.answers[1][-1]
    writer = {
        "transactional_id": transactional_id,
        "identity": (init.producer_id, init.producer_epoch),
    }
    (log,) = host.create("t", flush_ms="500")
    log.files.make()
    began = host.now_ms
    assert error_of(host.call(1, produce("t", **writer), 12)) == 0 and not host.flushes
    host.tick(400)
    assert error_of(host.call(1, produce("t", sequence=1, **writer), 12)) == 0
    assert host.broker.next_deadline_ms() == began + 500, (
        "by the first record that is not on the disk"
    )
    host.tick(100)
    host.flush()
    assert log.durability.recovery_point == 2


def test_a_client_that_hangs_up_while_its_long_answer_is_encoded(host: CoreHost) -> None:
    host.create("wide", 600)
    host.ask(1, DescribeLogDirsRequest(topics=None), 1)
    repeat_until(lambda: host.work, lambda: host.tick(0))
    host.broker.on_closed(1)
    host.finish_work()
    assert host.answers[1] == []


def test_a_flush_ends_normally_when_its_producer_has_disconnected(host: CoreHost) -> None:
    host.create("t", flush_messages="1")
    host.ask(1, produce("t"), 9)
    host.broker.on_closed(1)
    host.flush()
    assert host.answers[1] == [] and host.broker.flushes.is_idle


def test_a_produce_is_answered_when_its_topic_is_deleted_during_the_flush(host: CoreHost) -> None:
    host.create("t", flush_messages="1")
    host.ask(1, produce("t"), 9)
    delete_topic(host.parts.deletion, "t", host.now_ms)
    host.carry_out()
    assert len(host.answers[1]) == 1
    host.flush()
    assert host.broker.flushes.is_idle


# --- the ordering law of a commit ---------------------------------------------------------------


class Transaction:
    """A producer on connection 1 with a durable producer id and epoch, and a transaction on two
    partitions.
    """

    def __init__(self, host: CoreHost, *, transactional_id: str = "id", topic: str = "t") -> None:
        """Create the topic with two partitions, and initialise the producer."""
        self.host, self.transactional_id, self.topic = host, transactional_id, topic
        self.logs = host.create(topic, 2)
        host.answers[1].clear()
        host.ask(
            1,
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000),
            1,
        )
        assert host.answers[1] == [], "an epoch is given out when it is on the disk"
        self.flush_all()
        answer = host.answers[1].pop()
        self.identity = (answer.producer_id, answer.producer_epoch)
        self.sequence = 0

    def flush_all(self) -> None:
        while self.host.flushes:
            self.host.flush()

    def names(self) -> dict[str, Any]:
        """The fields by which a request names the transaction."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.identity[0],
            "producer_epoch": self.identity[1],
        }

    def add_partitions(self, connection: int = 1) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity[0],
            v3_and_below_producer_epoch=self.identity[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=[0, 1])],
        )
        self.host.ask(connection, request, 3)

    def write(self) -> None:
        """Write a record to each of the two partitions."""
        for partition in (0, 1):
            names = {"transactional_id": self.transactional_id, "identity": self.identity}
            request = produce(self.topic, partition=partition, sequence=self.sequence, **names)
            assert error_of(self.host.call(2, request, 9)) == 0
        self.sequence += 1

    def end(self, *, commit: bool) -> None:
        self.host.ask(1, EndTxnRequest(committed=commit, **self.names()), 3)

    def markers(self) -> list[list[bool]]:
        """Return for each partition whether each marker in its log is a commit."""
        return [
            [
                decode_marker(batch).commit
                for header, batch in log.read_batches()
                if header.is_control
            ]
            for log in self.logs
        ]

    def state(self) -> str:
        return self.host.broker.transactions.snapshot()[self.transactional_id].state.name

    def flushed(self) -> list[str]:
        """Complete the current flush. Gives the topics of the logs that it flushed."""
        return sorted(log.topic for log, _ in self.host.flush().tokens)

    def begin(self) -> None:
        """Add both partitions, and write a record to each."""
        self.add_partitions()
        assert (
            self.host.answers[1]
            .pop()
            .results_by_topic_v3_and_below[0]
            .results_by_partition[0]
            .partition_error_code
            == Code.NONE
        )
        self.write()
        assert self.host.flushes == [], "nothing of an open transaction waits for the disk"


def begun(host: CoreHost) -> Transaction:
    """An open transaction with one record in each of two partitions."""
    transaction = Transaction(host)
    transaction.begin()
    return transaction


@pytest.fixture
def journal_less_host(tmp_path: Path) -> Iterator[CoreHost]:
    """A host without a flush journal."""
    host = CoreHost(tmp_path, barnabas_flush_journal_logs="0")
    for connection in (1, 2):
        host.connect(connection)
    yield host
    host.close()


def test_a_commit_waits_for_one_flush_of_the_journal(host: CoreHost) -> None:
    transaction = begun(host)
    transaction.end(commit=True)
    assert transaction.flushed() == ["t", "t"], "the first flush of a log is of its own files"
    for number in (1, 2):
        assert (transaction.state(), host.answers[1]) == ("ONGOING", []), (
            "the decision is under way"
        )
        assert transaction.flushed() == ([] if number == 1 else ["t", "t"]), (
            "the last data and the decision are one frame of the journal"
        )
        assert [answer.error_code for answer in host.answers[1]] == [0]
        assert (transaction.state(), transaction.markers()) == (
            "COMPLETE_COMMIT",
            [[True] * number] * 2,
        )
        assert [log.last_stable_offset for log in transaction.logs] == [2 * number, 2 * number]
        assert host.flushes == [], "no request waits for the markers"
        host.answers[1].clear()
        if number == 1:
            transaction.add_partitions()
            assert (
                host.answers[1]
                .pop()
                .results_by_topic_v3_and_below[0]
                .results_by_partition[0]
                .partition_error_code
                == Code.NONE
            )
            transaction.write()
            transaction.end(commit=True)


def test_markers_are_flushed_soon_after_the_commit_was_answered(host: CoreHost) -> None:
    transaction = begun(host)
    transaction.end(commit=True)
    transaction.flush_all()
    ends = [log.log_end_offset for log in transaction.logs]
    assert [log.durability.durable_offset for log in transaction.logs] == [end - 1 for end in ends]
    host.tick(LONGEST_LATER_MS - 1)
    assert host.flushes == []
    host.tick(1)
    assert transaction.flushed() == ["t", "t"]
    assert [log.durability.durable_offset for log in transaction.logs] == ends
    host.tick(60_000)
    transaction.flush_all()
    assert [log.durability.recovery_point for log in transaction.logs] == ends, (
        "the logs' own files are flushed before the journal is deleted"
    )


def test_a_decision_that_is_made_later_brings_earlier_markers_to_the_disk(host: CoreHost) -> None:
    """The producer of the later commit may have read the records of the earlier transaction. If a
    power loss keeps the later decision, it must also keep these records.
    """
    other = Transaction(host, transactional_id="other", topic="u")
    other.begin()
    transaction = begun(host)
    transaction.end(commit=True)
    transaction.flush_all()
    assert [log.durability.durable_offset for log in transaction.logs] == [1, 1]
    other.end(commit=True)
    jobs = []
    while host.flushes:
        jobs.append(other.flushed())
    assert jobs == [["t", "t", "u", "u"], []]
    assert [log.durability.durable_offset for log in transaction.logs] == [2, 2]


def while_deciding(host: CoreHost) -> Transaction:
    """A transaction whose data are flushed, and whose commit decision waits for its flush."""
    transaction = begun(host)
    transaction.end(commit=True)
    assert transaction.flushed() == ["t", "t"]
    assert transaction.state() == "ONGOING" and len(host.flushes) == 1 and host.answers[1] == []
    return transaction


def test_requests_for_a_transaction_wait_while_its_decision_is_flushed(host: CoreHost) -> None:
    transaction = while_deciding(host)
    for connection in (3, 4, 5):
        host.connect(connection)
    transaction.add_partitions(connection=3)
    host.ask(4, EndTxnRequest(committed=True, **transaction.names()), 3)
    host.ask(5, InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000), 1)
    assert [host.answers[connection] for connection in (1, 3, 4, 5)] == [[], [], [], []]
    host.flush()
    assert [answer.error_code for answer in host.answers[1]] == [0]
    assert (
        host.answers[3][0]
        .results_by_topic_v3_and_below[0]
        .results_by_partition[0]
        .partition_error_code
        == Code.NONE
    ), "the partition is added to the next transaction"
    transaction.flush_all()
    assert transaction.markers()[0][0] is True, "the decided transaction is committed"
    assert host.answers[5][0].error_code == Code.NONE and host.answers[5][0].producer_epoch == 1


def test_a_request_for_several_transactions_gets_concurrent_transactions_during_a_decision(
    host: CoreHost,
) -> None:
    """A request of version 4 of AddPartitionsToTxn may name several transactions, so it does not
    wait for one of them.
    """
    transaction = while_deciding(host)
    producer_id, producer_epoch = transaction.identity
    answer = host.call(
        2,
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id="id",
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    verify_only=verify_only,
                    topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
                )
                for verify_only in (False, True)
            ]
        ),
        4,
    )
    codes = [
        result.topic_results[0].results_by_partition[0].partition_error_code
        for result in answer.results_by_transaction
    ]
    assert codes == [Code.CONCURRENT_TRANSACTIONS] * 2
    host.flush()
    assert transaction.state() == "COMPLETE_COMMIT"


def test_the_first_batch_of_a_partition_is_refused_while_the_decision_is_flushed(
    host: CoreHost,
) -> None:
    """The batch could belong to the transaction that is being decided, or to the next one. So it is
    refused with NOT_ENOUGH_REPLICAS, an error after which the producer retries.
    """
    transaction = Transaction(host)
    transaction.add_partitions()
    host.answers[1].clear()
    request = produce(
        "t", partition=0, transactional_id="id", identity=transaction.identity, sequence=0
    )
    assert error_of(host.call(2, request, 9)) == 0
    for log in host.broker.topics.logs_of("t"):
        # partition 1 has no record yet, so it has no files
        log.files.make()
    transaction.end(commit=True)
    host.flush()
    late = produce(
        "t", partition=1, transactional_id="id", identity=transaction.identity, sequence=0
    )
    assert error_of(host.call(2, late, 9)) == Code.NOT_ENOUGH_REPLICAS
    host.flush()
    assert (transaction.state(), transaction.markers()) == ("COMPLETE_COMMIT", [[True], [True]])


def test_a_transaction_does_not_time_out_while_its_commit_waits_for_a_flush(host: CoreHost) -> None:
    transaction = while_deciding(host)
    host.tick(10 * 60_000)
    assert transaction.state() == "ONGOING"
    transaction.flush_all()
    assert (transaction.state(), transaction.markers()) == ("COMPLETE_COMMIT", [[True], [True]])
    assert host.answers[1][0].error_code == Code.NONE
    host.tick(10 * 60_000)
    assert transaction.state() == "COMPLETE_COMMIT"


def test_without_a_journal_a_commit_flushes_data_then_decision_then_markers(
    journal_less_host: CoreHost,
) -> None:
    host = journal_less_host
    transaction = begun(host)
    transaction.end(commit=True)
    assert (transaction.state(), transaction.markers(), host.answers[1]) == (
        "ONGOING",
        [[], []],
        [],
    ), "nothing is decided before the data"
    assert transaction.flushed() == ["t", "t"]
    assert (transaction.state(), transaction.markers(), host.answers[1]) == (
        "PREPARE_COMMIT",
        [[], []],
        [],
    )
    assert transaction.flushed() == [TXN_LOG]
    assert (transaction.state(), transaction.markers()) == ("PREPARE_COMMIT", [[True], [True]])
    assert [answer.error_code for answer in host.answers[1]] == [0], (
        "the decision is durable: the answer needs not wait for the markers"
    )
    assert [log.last_stable_offset for log in transaction.logs] == [2, 2]
    assert transaction.flushed() == ["t", "t"]
    assert transaction.state() == "COMPLETE_COMMIT"
    assert host.flushes == [], "the completion itself needs no flush"


def test_without_a_journal_the_next_transaction_waits_for_the_completion(
    journal_less_host: CoreHost,
) -> None:
    """The first request of a transaction waits, and does not get CONCURRENT_TRANSACTIONS."""
    host = journal_less_host
    transaction = begun(host)
    transaction.end(commit=True)
    transaction.flushed()
    transaction.flushed()
    assert host.answers[1].pop().error_code == Code.NONE
    transaction.add_partitions()
    assert host.answers[1] == [], "held back"
    assert transaction.flushed() == ["t", "t"]
    answer = host.answers[1].pop()
    assert (
        answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        == Code.NONE
    )
    assert transaction.state() == "ONGOING"
    transaction.write()


def test_a_waiting_fetch_is_dropped_when_its_client_disconnects(host: CoreHost) -> None:
    """New records may not arrive for a long time, and the state of the connection would be kept
    until then.
    """
    host.create("idle")
    host.ask(host.connect(7), fetch({"idle": {0: 0}}, max_wait_ms=60_000), 12)
    purgatory = host.broker.purgatory
    assert purgatory.waiting_count == 1
    host.broker.on_closed(7)
    assert purgatory.waiting_count == 0
    assert purgatory.next_deadline_ms() is None


def test_a_commit_is_completed_when_its_client_disconnects_meanwhile(host: CoreHost) -> None:
    transaction = begun(host)
    transaction.end(commit=True)
    host.broker.on_closed(1)
    transaction.flush_all()
    assert transaction.state() == "COMPLETE_COMMIT" and transaction.markers() == [[True], [True]]


def test_an_abort_waits_for_no_flush(host: CoreHost) -> None:
    transaction = begun(host)
    transaction.end(commit=False)
    assert [answer.error_code for answer in host.answers[1]] == [0]
    assert (transaction.state(), transaction.markers(), host.flushes) == (
        "COMPLETE_ABORT",
        [[False], [False]],
        [],
    )


def test_a_commit_completes_when_its_topic_is_deleted_meanwhile(host: CoreHost) -> None:
    transaction = begun(host)
    transaction.end(commit=True)
    delete_topic(host.parts.deletion, "t", host.now_ms)
    host.carry_out()
    transaction.flush_all()
    assert [answer.error_code for answer in host.answers[1]] == [0]
    assert transaction.state() == "COMPLETE_COMMIT"


def test_with_durability_os_no_step_waits_for_a_flush(tmp_path: Path) -> None:
    host = CoreHost(tmp_path, barnabas_transaction_durability="os")
    for connection in (1, 2):
        host.connect(connection)
    host.create("t", 2)
    answer = host.call(
        1, InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000), 1
    )
    # __init__ is not called, since it expects that the response to InitProducerId waits for a flush
    transaction = Transaction.__new__(Transaction)
    transaction.host, transaction.logs, transaction.sequence = (
        host,
        host.broker.topics.partitions_of("t"),
        0,
    )
    transaction.transactional_id, transaction.topic = "id", "t"
    transaction.identity = (answer.producer_id, answer.producer_epoch)
    transaction.add_partitions()
    transaction.write()
    transaction.end(commit=True)
    assert host.answers[1][-1].error_code == Code.NONE
    assert (transaction.state(), transaction.markers(), host.flushes) == (
        "COMPLETE_COMMIT",
        [[True], [True]],
        [],
    )
    host.close()


def test_a_hundred_commits_at_a_time_cost_a_few_flushes(host: CoreHost) -> None:
    """Group commit: all commits that arrive during a flush share the next one."""
    host.create("t")
    for number in range(100):
        connection = host.connect(1000 + number)
        host.ask(
            connection,
            InitProducerIdRequest(transactional_id=f"id-{number}", transaction_timeout_ms=60_000),
            1,
        )
    while host.flushes:
        host.flush()
    for number in range(100):
        connection = 1000 + number
        answer = host.answers[connection].pop()
        names = (f"id-{number}", answer.producer_id, answer.producer_epoch)
        host.call(
            connection,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=names[0],
                v3_and_below_producer_id=names[1],
                v3_and_below_producer_epoch=names[2],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            ),
            3,
        )
        assert (
            error_of(
                host.call(
                    connection, produce("t", transactional_id=names[0], identity=names[1:]), 9
                )
            )
            == 0
        )
        end = EndTxnRequest(
            transactional_id=names[0], producer_id=names[1], producer_epoch=names[2], committed=True
        )
        host.ask(connection, end, 3)
    flushes = 0
    while host.flushes:
        host.flush()
        flushes += 1
    assert all(host.answers[1000 + number][-1].error_code == Code.NONE for number in range(100))
    assert flushes <= 6


# --- a directory of Apache Kafka's --------------------------------------------------------------


def open_kafkas(path: Path, now_ms: int) -> Any:
    """Open the core on a data directory that a broker of Apache Kafka wrote."""
    config = BrokerConfig.from_properties(
        {"node.id": "1", "log.dirs": str(path), "log.retention.ms": "-1"}
    )
    return open_broker(config, CountedIds(), now_ms=now_ms)


def test_an_open_transaction_in_kafkas_files_is_aborted_after_its_timeout(tmp_path: Path) -> None:
    """The transactional id "delta" began a transaction with a timeout of ten minutes, and Kafka was
    stopped before its end.
    """
    path = tmp_path / "data"
    shutil.copytree(KAFKA, path)
    broker = open_kafkas(path, DELTA_BEGAN_MS + 60_000)
    log: Log = broker.topics.partition("txn", 0)
    assert (log.last_stable_offset, log.log_end_offset) == (48, 49)
    assert broker.transactions.snapshot()["delta"].state.name == "ONGOING"
    broker.on_tick(DELTA_BEGAN_MS + 599_999)
    assert log.last_stable_offset == 48
    broker.on_tick(DELTA_BEGAN_MS + 600_001)
    assert (log.last_stable_offset, log.log_end_offset) == (50, 50)
    assert broker.transactions.snapshot()["delta"].state.name == "COMPLETE_ABORT"
    broker.close_logs(DELTA_BEGAN_MS + 600_001)


def test_producer_ids_begin_above_those_that_kafka_gave_out(tmp_path: Path) -> None:
    """If an id were assigned twice, the first batch of the new producer could look like a retry of
    the earlier producer's batch: it would be acknowledged but not written.
    """
    path = tmp_path / "data"
    shutil.copytree(KAFKA, path)
    broker = open_kafkas(path, DELTA_BEGAN_MS)
    used = {
        producer.producer_id
        for log in broker.logs.logs.values()
        for producer in log.producer_state.active_producers()
    }
    assert max(used) == 8
    assert broker.routes.parts.producer_ids.allocate() == 9
    broker.close_logs(DELTA_BEGAN_MS)
    again = open_kafkas(path, DELTA_BEGAN_MS)
    assert again.routes.parts.producer_ids.allocate() == 1009, (
        "the rest of a block is lost with a stop, and none is given out twice"
    )
    again.close_logs(DELTA_BEGAN_MS)


def test_the_highest_producer_id_in_a_log_does_not_exhaust_the_ids(tmp_path: Path) -> None:
    """Ids are assigned above those in the logs. A client sent a batch with the highest possible id,
    which the broker never assigned.
    """
    host = CoreHost(tmp_path)
    host.connect(1)
    host.create("t")
    assert error_of(host.call(1, produce("t", identity=(2**63 - 1, 0)), 9)) == 0
    host.close()
    again = CoreHost(tmp_path)
    again.connect(1)
    answer = again.call(
        1, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 1
    )
    assert (answer.error_code, answer.producer_id) == (Code.NONE, 0)
    again.close()


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_a_damaged_internal_topic_ends_the_start_with_one_line(tmp_path: Path, topic: str) -> None:
    """The broker finds a flipped bit when it starts, even if nothing needs recovery."""
    # contract: kip-98/corrupt-log
    path = tmp_path / "data"
    shutil.copytree(KAFKA, path)
    file = next(file for file in path.glob(f"{topic}-*/*.log") if file.stat().st_size > 100)
    data = bytearray(file.read_bytes())
    data[100] ^= 4
    file.write_bytes(data)
    with pytest.raises(LogDirectoryError) as found:
        open_kafkas(path, DELTA_BEGAN_MS)
    text = str(found.value)
    assert (
        f"{file.parent.name}/00000000000000000000.log, byte 0" in text
        and "CRC" in text
        and "Restore" in text
        and "\n" not in text
    )


UNREADABLE_RECORDS = {
    "__consumer_offsets": (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\3\0"),
    "__transaction_state": (b"\0\0\0\1t", b"\0\0\0"),
}


@pytest.mark.parametrize("topic", UNREADABLE_RECORDS)
def test_a_record_of_an_internal_topic_that_cannot_be_read_ends_the_start_with_one_line(
    tmp_path: Path, topic: str
) -> None:
    path = tmp_path / "data"
    shutil.copytree(KAFKA, path)
    file = next(file for file in path.glob(f"{topic}-*/*.log") if file.stat().st_size > 100)
    data = file.read_bytes()
    *_, (_, last) = batches_in(data)
    offset = last.last_offset + 1
    key, value = UNREADABLE_RECORDS[topic]
    batch = encode_batch(
        [NewRecord(key, value, DELTA_BEGAN_MS)], base_offset=offset, leader_epoch=last.leader_epoch
    )
    file.write_bytes(data + batch)
    with pytest.raises(LogDirectoryError) as found:
        open_kafkas(path, DELTA_BEGAN_MS)
    text = str(found.value)
    assert f"{file.parent.name} has a record at offset {offset} " in text
    assert "restore the directory from a copy" in text and "\n" not in text


def test_an_offset_commit_with_the_highest_epoch_is_refused_within_a_transaction(
    tmp_path: Path,
) -> None:
    """No producer can have the highest epoch. If a commit with that epoch were accepted, it would
    fence the producer id permanently.
    """
    host = CoreHost(tmp_path)
    host.connect(1)
    host.create("t")
    host.ask(1, InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000), 1)
    while host.flushes:
        host.flush()
    producer_id = host.answers[1][-1].producer_id
    host.call(
        1,
        AddOffsetsToTxnRequest(
            transactional_id="id", producer_id=producer_id, producer_epoch=0, group_id="g"
        ),
        3,
    )

    def commit_offset(epoch: int, offset: int) -> int:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id="id",
            group_id="g",
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        code: int = host.call(1, request, 2).topics[0].partitions[0].error_code
        return code

    assert [commit_offset(epoch, offset) for epoch, offset in ((0, 1), (32767, 2), (0, 3))] == [
        Code.NONE,
        Code.INVALID_PRODUCER_EPOCH,
        Code.NONE,
    ]
    host.ask(
        1,
        EndTxnRequest(
            transactional_id="id", producer_id=producer_id, producer_epoch=0, committed=True
        ),
        3,
    )
    while host.flushes:
        host.flush()
    assert host.answers[1][-1].error_code == Code.NONE
    host.close()


def test_after_a_tick_the_next_deadline_is_later_than_now() -> None:
    """Otherwise the server would call the core again immediately, in an endless loop."""
    b = DiskBroker(log_flush_offset_checkpoint_interval_ms="1000")
    b.topic("t", 2, flush_ms="300")
    p = Producer(b, "txn", timeout_ms=5000)
    p.send("t", 0, b"a")
    assert p.end(True) == 0
    p.send("t", 1, b"b")
    assert b.produce("t", (b"c",))[0] == 0
    reader = b.connect()
    b.send_fetch(reader, "t", 5, max_wait_ms=700)
    began_ms = b.now_ms
    for _ in range(200):
        deadline = b.broker.next_deadline_ms()
        assert deadline is not None
        b.now_ms = max(b.now_ms, deadline)
        b.tick()
        following = b.broker.next_deadline_ms()
        assert following is None or following > b.now_ms
    assert b.answer(reader) is not None and b.state("txn")[0] == "CompleteAbort"
    assert b.now_ms > began_ms + 60_000


def test_a_produce_and_a_fetch_keep_the_servers_timer(tmp_path: Path) -> None:
    """After the first record, which makes work of the log's upkeep. Each request of these tests is
    judged, see `kept_deadline`.
    """
    host = CoreHost(tmp_path)
    host.connect(1)
    host.create("t")
    kept = []
    for request, version in (
        (produce("t"), 9), (produce("t"), 9), (fetch({"t": {0: 0}}), 12), (ApiVersionsRequest(), 0)
    ):  # fmt: skip
        host.call(1, request, version)
        host.call(1, request, version)
        kept.append(host.broker.timer_is_set)
    assert kept == [True, True, True, False]
    host.close()


def test_a_heartbeat_and_a_commit_keep_the_servers_timer(tmp_path: Path) -> None:
    """But not the first commit of all, which brings the first deadline of groups."""
    host = CoreHost(tmp_path, group_initial_rebalance_delay_ms="0")
    host.connect(1)
    host.create("t")
    # so that the log of the commit has work for its upkeep already
    first = Result(partition=0, records=[offset_tombstone("g", "t", 0)])
    host.parts.group_runtime.run(first, host.event_ms())
    rows = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 5)])]
    commit = OffsetCommitRequest("g", topics=rows)
    kept = []
    for _ in range(3):
        host.call(1, commit, 8)
        kept.append(host.broker.timer_is_set)
    assert kept == [False, True, True]
    protocols = [JoinGroupRequestProtocol("range", b"")]
    join = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols)
    member = host.call(1, join, 2)
    host.call(1, HeartbeatRequest("g", member.generation_id, member.member_id), 4)
    assert host.broker.timer_is_set
    host.close()


def test_an_answer_that_is_wrongly_settled_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs do not say that an append has given their manager work."""
    never = property(lambda _: False, lambda *_: None)
    monkeypatch.setattr(LogDirectory, "has_new_work", never)
    host = CoreHost(tmp_path)
    host.connect(1)
    host.create("t")
    with pytest.raises(AssertionError, match="there is work at"):
        host.call(1, produce("t"), 9)
    host.close()
