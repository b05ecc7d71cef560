"""Batches that take long to check are checked in the worker, and then appended as if they had just
arrived.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import NOW_MS
from helpers.core_host import CoreHost, delete_topic, error_of, fetch, produce
from helpers.disk_broker import DiskBroker, Producer

from barnabas.broker.handlers import produce as produce_handler
from barnabas.broker.observation.error_counts import ErrorCounts
from barnabas.coordinator.internal_topics import TRANSACTIONS_TOPIC
from barnabas.protocol.errors import Code
from barnabas.protocol.message_sets import upgraded
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import HEADER_SIZE, NewRecord, encode_batch
from barnabas.storage.log import log as log_module
from barnabas.storage.log.log_files import LogFiles
from barnabas.storage.producers import producer_window
from barnabas.storage.producers.producer_state import BatchMeta

BOMB = encode_batch([NewRecord(None, bytes(200 << 20), NOW_MS)], codec=4)


def large(codec: int = 4, **producer: Any) -> bytes:
    """A batch of 4 MiB of zeros, which is too large to be decompressed in the event loop, but
    within the limit.
    """
    return bytes(encode_batch([NewRecord(b"k", bytes(4 << 20), NOW_MS)], codec=codec, **producer))


def asking(
    records: bytes,
    *,
    acks: int = -1,
    partitions: tuple[int, ...] = (0,),
    transactional_id: str | None = None,
) -> Any:
    request = produce("t", acks=acks, transactional_id=transactional_id)
    data = request.topic_data[0]
    row = type(data.partition_data[0])
    data.partition_data = [row(index=index, records=records) for index in partitions]
    return request


@pytest.fixture
def host(tmp_path: Path) -> CoreHost:
    host = CoreHost(tmp_path)
    host.create("t", 2)
    # the files of new logs are created immediately
    host.parts.files_ahead.most_by_request = 4
    return host


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_others_are_answered_before_a_large_batch_is_checked(host: CoreHost, codec: int) -> None:
    one, other = host.connect(1), host.connect(2)
    host.ask(one, asking(large(codec)), 9)
    assert host.work and not host.answers[one]
    assert error_of(host.call(other, produce("t"), 9)) == 0
    host.finish_work()
    (answer,) = host.answers[one]
    (partition,) = answer.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (Code.NONE, 1), (
        "behind what came while it was checked"
    )


def test_a_decompression_bomb_is_refused_and_the_next_batch_is_appended(host: CoreHost) -> None:
    one = host.connect(1)
    request = asking(bytes(BOMB), partitions=(0, 1))
    request.topic_data[0].partition_data[1].records = bytes(
        encode_batch([NewRecord(None, b"v", NOW_MS)])
    )
    host.ask(one, request, 9)
    assert host.broker.topics.partition("t", 1).log_end_offset == 1  # type: ignore[union-attr]
    host.finish_work()
    (answer,) = host.answers[one]
    codes = [partition.error_code for partition in answer.responses[0].partition_responses]
    assert codes == [Code.MESSAGE_TOO_LARGE, 0]
    assert (
        "barnabas.decompressed.max.bytes"
        in answer.responses[0].partition_responses[0].error_message
    )


def test_a_batch_that_the_worker_checked_is_not_checked_again(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second check would run in the event loop, and would block it."""
    one = host.connect(1)
    host.ask(one, asking(large()), 9)
    checks: list[int] = []
    check = log_module.checked_fields

    def counted(view: memoryview, *more: Any, **how: Any) -> Any:
        checks.append(len(view))
        return check(view, *more, **how)

    monkeypatch.setattr(log_module, "checked_fields", counted)
    host.finish_work()
    assert error_of(host.answers[one][0]) == 0 and checks == []


def long_batch(value: bytes = b"v", *, time_ms: int = NOW_MS) -> bytes:
    """An idempotent producer's batch with more records than the event loop compares."""
    records = [NewRecord(None, value, time_ms) for _ in range(9000)]
    return bytes(encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=0))


def answered(host: CoreHost, connection_id: int) -> tuple[int, int]:
    """The error code and base offset of the last answer to a Produce."""
    (partition,) = host.answers[connection_id][-1].responses[0].partition_responses
    return partition.error_code, partition.base_offset


def test_others_are_answered_while_a_repetition_is_compared(host: CoreHost) -> None:
    one, other = host.connect(1), host.connect(2)
    assert error_of(host.call(one, produce("t"), 9)) == 0
    host.ask(one, asking(long_batch()), 9)
    assert answered(host, one) == (0, 1)
    host.ask(one, asking(long_batch(time_ms=NOW_MS + 5)), 9)
    assert host.work and len(host.answers[one]) == 2
    assert error_of(host.call(other, produce("t"), 9)) == 0
    host.finish_work()
    assert answered(host, one) == (0, 1), "the stored offset"
    host.ask(one, asking(long_batch(b"x", time_ms=NOW_MS + 5)), 9)
    host.finish_work()
    assert answered(host, one) == (Code.UNKNOWN_PRODUCER_ID, -1), "its sequences, other records"


def test_others_are_answered_while_a_producers_last_batches_are_looked_for(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart only the last batch of each producer is known, and the others may be far back
    in the log.
    """
    one, other = host.connect(1), host.connect(2)
    records = [NewRecord(None, b"v", NOW_MS)]
    for sequence in range(3):
        sent = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=sequence)
        host.ask(one, asking(bytes(sent)), 9)
    for _ in range(30):
        host.call(other, produce("t"), 9)
    log = host.broker.topics.partition("t", 0)
    assert log is not None
    entry = log.producer_state.producers[1]
    del entry.batches[:]
    entry.batches.append(BatchMeta(2, 2, 33, 33, NOW_MS))
    entry.has_whole_window = False
    monkeypatch.setattr(producer_window, "_HEADERS_AT_ONCE", 10)
    sent = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=1)
    host.ask(one, asking(bytes(sent)), 9)
    turns = 0
    while host.work:
        assert len(host.answers[one]) == 3
        assert error_of(host.call(other, produce("t"), 9)) == 0
        host.finish_work()
        turns += 1
    assert turns == 3
    assert answered(host, one) == (0, 1)


@pytest.mark.parametrize("event", ["retention", "another producer", "a new topic"])
def test_a_log_may_change_while_a_repetition_is_compared(host: CoreHost, event: str) -> None:
    one = host.connect(1)
    host.ask(one, asking(long_batch()), 9)
    host.ask(one, asking(long_batch(time_ms=NOW_MS + 5)), 9)
    assert host.work
    log = host.broker.topics.partition("t", 0)
    assert log is not None
    expected = (0, 0)
    if event == "retention":
        log.try_roll(NOW_MS)
        log.delete_records_before(9000)
        log.delete_old_segments(NOW_MS)
    elif event == "another producer":
        log.expire_producers(NOW_MS + 10**12)
        expected = (0, 9000)  # nothing shows that it is a repetition
    else:
        delete_topic(host.parts.deletion, "t", NOW_MS)
        host.create("t", 2)
        expected = (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)
    host.finish_work()
    assert answered(host, one) == expected


@pytest.mark.parametrize("event", ["removed", "damaged"])
def test_a_repetition_whose_batch_cannot_be_read_goes_by_its_checksum(
    host: CoreHost, event: str
) -> None:
    one = host.connect(1)
    host.ask(one, asking(long_batch()), 9)
    log = host.broker.topics.partition("t", 0)
    assert log is not None
    path = Path(log.segments.active.batches.directory) / "00000000000000000000.log"
    if event == "removed":
        log.try_roll(NOW_MS)
        log.delete_records_before(9000)
        log.delete_old_segments(NOW_MS)
    else:
        with open(path, "r+b") as file:
            file.seek(200)
            file.write(b"?")
    host.ask(one, asking(long_batch(time_ms=NOW_MS + 5)), 9)
    while host.work:
        host.finish_work()
    assert answered(host, one) == (Code.UNKNOWN_PRODUCER_ID, -1)
    host.ask(one, asking(long_batch()), 9)
    assert answered(host, one) == (0, 0)


def test_a_batch_that_the_worker_checked_completes_a_waiting_fetch(
    host: CoreHost,
) -> None:
    one, reader = host.connect(1), host.connect(2)
    host.ask(reader, fetch({"t": {0: 0}}, max_wait_ms=10_000), 12)
    host.ask(one, asking(large()), 9)
    assert not host.answers[reader]
    host.finish_work()
    assert len(host.answers[reader]) == 1


def test_with_acks_0_a_large_batch_gets_no_response_and_a_bomb_closes_the_connection(
    host: CoreHost,
) -> None:
    one = host.connect(1)
    host.ask(one, asking(large(), acks=0), 9)
    host.finish_work()
    assert host.answers[one] == [None] and not host.closed
    host.ask(one, asking(bytes(BOMB), acks=0), 9)
    host.finish_work()
    assert "MESSAGE_TOO_LARGE on t-0" in host.closed[one]


def test_a_batch_is_appended_although_its_client_disconnected_during_the_check(
    host: CoreHost,
) -> None:
    one = host.connect(1)
    host.ask(one, asking(large()), 9)
    host.broker.on_closed(one)
    host.finish_work()
    assert host.broker.topics.partition("t", 0).log_end_offset == 1  # type: ignore[union-attr]
    assert not host.answers[one]


def test_a_batch_is_refused_when_its_topic_was_deleted_during_the_check(host: CoreHost) -> None:
    one = host.connect(1)
    host.ask(one, asking(large()), 9)
    delete_topic(host.parts.deletion, "t", NOW_MS)
    host.finish_work()
    assert error_of(host.answers[one][0]) == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_one_answer_names_a_bounded_number_of_records(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound applies to all partitions of the request together."""
    monkeypatch.setattr(produce_handler, "MOST_RECORD_ERRORS", 3)
    host.create("compacted", 3, cleanup_policy="compact")
    without_keys = bytes(encode_batch([NewRecord(None, b"v", NOW_MS)] * 2))
    rows = [PartitionProduceData(index=index, records=without_keys) for index in range(3)]
    topics = [TopicProduceData(name="compacted", partition_data=rows)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    (topic,) = host.call(host.connect(1), request, 9).responses
    assert {row.error_code for row in topic.partition_responses} == {Code.INVALID_RECORD}
    assert [len(row.record_errors) for row in topic.partition_responses] == [2, 1, 0]


def remake(host: CoreHost) -> None:
    """Delete the topic and create another with the same name."""
    delete_topic(host.parts.deletion, "t", NOW_MS)
    host.create("t", 2)


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize(
    "asked",
    [
        asking(large()),  # a long check
        asking(bytes(encode_batch([NewRecord(None, b"v", NOW_MS)])), partitions=(0,) * 600),
        asking(
            bytes(encode_batch([NewRecord(None, bytes(500_000), NOW_MS)], codec=0)),
            partitions=(0, 1) * 20,
        ),
    ],
    ids=["a long check", "many batches", "decoded by the worker"],
)
def test_waiting_batches_are_not_appended_to_a_later_topic_of_the_same_name(
    host: CoreHost, asked: Any, version: int
) -> None:
    """A request that names the topic means the topic that has this name when the request arrives. A
    request with a topic id means the topic itself.
    """
    one = host.connect(1)
    asked.topic_data[0].topic_id = host.broker.metadata.topics["t"].topic_id
    gone = Code.UNKNOWN_TOPIC_ID if version >= 13 else Code.UNKNOWN_TOPIC_OR_PARTITION
    host.ask(one, asked, version)
    assert host.work, "it waits"
    is_begun = any(log.log_end_offset for log in host.broker.topics.logs_of("t"))
    remake(host)
    while host.work:
        host.finish_work()
    (answer,) = host.answers[one]
    codes = [row.error_code for row in answer.responses[0].partition_responses]
    assert set(codes) <= {0, gone}
    assert is_begun or 0 not in codes
    assert [log.log_end_offset for log in host.broker.topics.logs_of("t")] == [0, 0]
    host.ask(one, asking(bytes(encode_batch([NewRecord(None, b"v", NOW_MS)]))), 9)
    assert error_of(host.answers[one][-1]) == 0, "a later request means the later topic"


def test_requests_that_waited_for_a_commit_do_not_write_to_a_later_topic_of_the_name() -> None:
    """These requests wait for the completion of their producer's previous transaction."""
    b = DiskBroker()
    b.topic("t")
    b.topic("kept")
    producer = Producer(b, "txn")
    producer.send("kept", 0, b"x")
    b.hold_flushes()
    producer.start_end(True)
    while not b.parts.endings.is_decided("txn"):
        assert b.flush_one()
    batch, offsets = b.connect(), b.connect()
    request = b.produce_request(
        "t", (b"y",), pid=producer.pid, epoch=producer.epoch, sequence=0, txn="txn"
    )
    b.send(batch, request, 12)
    b.send(offsets, producer.offset_request("g", "t", 5), 5)
    assert b.answer(batch) is b.answer(offsets) is None
    delete_topic(b.parts.deletion, "t", b.now_ms)
    made = b.parts.topics.create_topic
    made("t", 1, {}, now_ms=b.now_ms)
    b.release_flushes()
    b.tick()
    (row,) = b.answer(batch).responses[0].partition_responses
    assert row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    (row,) = b.answer(offsets).topics[0].partitions
    assert row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert b.end_offset("t") == 0
    assert b.group_offset("g", "t") == (0, -1)


def test_topic_settings_that_changed_during_the_check_apply(host: CoreHost) -> None:
    one = host.connect(1)
    host.ask(one, asking(large()), 9)
    host.broker.topics.set_topic_configs("t", {"max.message.bytes": "100"})
    host.finish_work()
    assert error_of(host.answers[one][0]) == Code.MESSAGE_TOO_LARGE
    assert host.broker.topics.partition("t", 0).log_end_offset == 0  # type: ignore[union-attr]


def test_a_batch_is_refused_when_its_transaction_ended_during_the_check(host: CoreHost) -> None:
    """KAFKA-14884: a batch that was checked while the transaction was open, and appended after the
    marker, would not belong to any transaction.
    """
    one, other = host.connect(1), host.connect(2)
    init = InitProducerIdRequest(
        transactional_id="x", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    host.ask(other, init, 4)
    while host.flushes:
        host.flush()
    producer = host.answers[other][-1]
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    host.ask(other, add, 3)
    batch = large(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    host.ask(one, asking(batch, transactional_id="x"), 9)
    host.broker.topics.partition("t", 0).files.make()  # type: ignore[union-attr]
    end = EndTxnRequest(
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    # The commit completes before the worker has checked the batch.
    host.ask(other, end, 3)
    while host.flushes:
        host.flush()
    host.tick(1)
    host.finish_work()
    assert error_of(host.answers[one][0]) == Code.INVALID_TXN_STATE
    assert not host.broker.topics.partition("t", 0).producer_state.open_transactions()  # type: ignore[union-attr]


def test_disk_space_is_reserved_once_for_a_batch_that_the_worker_checks(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take = host.parts.disk_space.reserve
    monkeypatch.setattr(
        host.parts.disk_space, "reserve", lambda count: taken.append(count) or take(count)
    )
    host.ask(host.connect(1), asking(large()), 9)
    host.finish_work()
    assert taken == [len(large())]


@pytest.mark.parametrize("version", [2, 3, 6, 7])
def test_plain_batches_of_old_requests_are_of_no_transaction(host: CoreHost, version: int) -> None:
    assert error_of(host.call(host.connect(1), produce("t"), version)) == Code.NONE


@pytest.mark.parametrize("version", [6, 9])
def test_a_plain_batch_in_a_request_with_a_transactional_id_is_not_verified(
    host: CoreHost, version: int
) -> None:
    """Like Kafka's ReplicaManager, the broker verifies only transactional batches with the
    coordinator.
    """
    request = produce("t", transactional_id="unknown")
    assert error_of(host.call(host.connect(1), request, version)) == Code.NONE


@pytest.mark.parametrize(("version", "code"), [(6, Code.UNSUPPORTED_COMPRESSION_TYPE), (7, 0)])
def test_zstd_is_accepted_from_version_7_on(host: CoreHost, version: int, code: int) -> None:
    """Zstandard came with KIP-110; the other codecs are older."""
    zstd, lz4 = (
        bytes(encode_batch([NewRecord(b"k", b"v", NOW_MS)], codec=codec)) for codec in (4, 3)
    )
    assert error_of(host.call(host.connect(1), asking(zstd), version)) == code
    assert error_of(host.call(host.connect(2), asking(lz4), version)) == Code.NONE
    # the codec is in the batch header, so it is refused first
    header = Code.INVALID_RECORD if code == Code.NONE else code
    assert error_of(host.call(host.connect(3), asking(zstd[:HEADER_SIZE]), version)) == header


@pytest.mark.parametrize("acks", [-2, 2, 7])
def test_acks_other_than_minus_1_0_and_1_are_refused(host: CoreHost, acks: int) -> None:
    answer = host.call(host.connect(1), asking(SMALL, acks=acks, partitions=(0, 1)), 9)
    rows = answer.responses[0].partition_responses
    assert [row.error_code for row in rows] == [Code.INVALID_REQUIRED_ACKS] * 2
    assert host.broker.topics.partition("t", 0).log_end_offset == 0  # type: ignore[union-attr]


SMALL = bytes(encode_batch([NewRecord(None, b"v", NOW_MS)]))
TRANSACTIONAL_BATCH = bytes(
    encode_batch(
        [NewRecord(None, b"v", NOW_MS)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
)


@pytest.mark.parametrize(
    ("topic", "partition", "records", "code"),
    [
        ("t", 2, SMALL, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("missing", 0, SMALL, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ("__transaction_state", 0, SMALL, Code.INVALID_TOPIC_EXCEPTION),
        ("__consumer_offsets", 0, SMALL, Code.INVALID_TOPIC_EXCEPTION),
        ("t", 1, None, Code.INVALID_RECORD),
        ("t", 1, SMALL[:-1], Code.INVALID_RECORD),
        ("t", 1, SMALL[:40], Code.INVALID_RECORD),
        ("t", 1, SMALL[:-1] + b"x", Code.CORRUPT_MESSAGE),
    ],
)
def test_an_error_of_one_partition_does_not_affect_the_others(
    host: CoreHost, topic: str, partition: int, records: bytes | None, code: Code
) -> None:
    request = asking(SMALL)
    first = request.topic_data[0]
    row = type(first.partition_data[0])
    others = [row(index=partition, records=records)]
    last = [row(index=1, records=SMALL)]
    request.topic_data += [
        type(first)(name=topic, partition_data=others),
        type(first)(name="t", partition_data=last),
    ]
    answer = host.call(host.connect(1), request, 9)
    found = [
        (topic.name, part.index, part.error_code, part.base_offset)
        for topic in answer.responses
        for part in topic.partition_responses
    ]
    assert found[0] == ("t", 0, 0, 0) and found[2] == ("t", 1, 0, 0)
    assert found[1] == (topic, partition, code, -1)


def test_a_transactional_batch_needs_its_id_in_the_request(host: CoreHost) -> None:
    """One such batch causes the whole request to be refused."""
    request = asking(SMALL, partitions=(0, 1))
    request.topic_data[0].partition_data[1].records = TRANSACTIONAL_BATCH
    answer = host.call(host.connect(1), request, 9)
    codes = [row.error_code for row in answer.responses[0].partition_responses]
    assert codes == [Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert host.broker.topics.partition("t", 0).log_end_offset == 0  # type: ignore[union-attr]


def test_a_produce_on_a_full_disk_is_refused_with_a_message(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host.parts.disk_space, "reserve", lambda count: False)
    (row,) = host.call(host.connect(1), asking(SMALL), 9).responses[0].partition_responses
    assert (row.error_code, row.base_offset) == (Code.KAFKA_STORAGE_ERROR, -1)
    assert "disk is full" in row.error_message
    monkeypatch.undo()
    assert error_of(host.call(host.connect(2), asking(SMALL), 9)) == Code.NONE


@pytest.mark.parametrize("version", [8, 9])
def test_a_response_has_base_offset_append_time_and_log_start_offset(
    host: CoreHost, version: int
) -> None:
    log = host.broker.topics.partition("t", 0)
    assert log is not None
    connection = host.connect(1)
    for _ in range(3):
        host.call(connection, asking(SMALL), version)
    log.delete_records_before(2)
    (row,) = host.call(connection, asking(SMALL), version).responses[0].partition_responses
    assert (row.base_offset, row.log_append_time_ms, row.log_start_offset) == (3, -1, 2)
    (row,) = host.call(connection, asking(SMALL[:-1]), version).responses[0].partition_responses
    assert row.error_code == Code.INVALID_RECORD and row.log_start_offset == -1


def test_with_acks_0_the_reason_of_the_close_names_the_partition_that_failed(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[str] = []
    monkeypatch.setattr(
        host.broker.requests, "close", lambda _, reason: reasons.append(str(reason))
    )
    request = asking(SMALL, acks=0, partitions=(0, 1))
    request.topic_data[0].partition_data[1].records = SMALL[:-1]
    host.ask(host.connect(1), request, 9)
    assert [reason.endswith("failed: INVALID_RECORD on t-1") for reason in reasons] == [True]


@pytest.mark.parametrize("refused", [0, 1])
def test_with_acks_0_one_refused_batch_of_several_closes_the_connection(
    host: CoreHost, refused: int
) -> None:
    request = asking(SMALL, acks=0, partitions=(0, 1))
    request.topic_data[0].partition_data[refused].records = SMALL[:-1]
    host.ask(host.connect(1), request, 9)
    assert f"INVALID_RECORD on t-{refused}" in host.closed[1]


@pytest.mark.parametrize(("acks", "waits"), [(-1, True), (1, False)])
def test_only_acks_all_waits_for_a_flush(host: CoreHost, acks: int, waits: bool) -> None:
    host.create("safe", flush_messages="1")
    one = host.connect(1)
    host.ask(one, produce("safe", acks=acks), 9)
    assert (host.answers[one] == []) is waits
    while host.flushes:
        host.flush()
    assert len(host.answers[one]) == 1


def older(value: bytes) -> bytes:
    """A message set with one message of format 0, which is older than batches."""
    body = b"\0\0" + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize(("version", "code"), [(0, 0), (2, 0), (3, Code.INVALID_RECORD)])
def test_messages_of_format_0_are_accepted_only_before_version_3(
    host: CoreHost, version: int, code: int
) -> None:
    one = host.connect(1)
    (row,) = host.call(one, asking(older(b"x")), version).responses[0].partition_responses
    assert row.error_code == code
    assert host.broker.topics.partition("t", 0).log_end_offset == int(code == 0)  # type: ignore[union-attr]


def test_a_damaged_message_of_format_0_does_not_affect_another_partition(host: CoreHost) -> None:
    request = asking(older(b"x"), partitions=(0, 1))
    request.topic_data[0].partition_data[0].records = older(b"x")[:-1]
    rows = host.call(host.connect(1), request, 2).responses[0].partition_responses
    assert [row.error_code for row in rows] == [Code.CORRUPT_MESSAGE, Code.NONE]


@pytest.mark.parametrize(("left", "taken"), [(-1, 2), (0, 2), (1, 3)])
def test_messages_of_format_0_beyond_the_limit_get_a_retriable_error(
    host: CoreHost, left: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conversion of old messages blocks the event loop, so the number of converted bytes is
    limited. `left` is the number of bytes that two messages leave of a request's limit.
    """
    _, converted_bytes = upgraded(older(b"x"))
    monkeypatch.setattr(produce_handler, "MOST_OLDER_BYTES", 2 * converted_bytes + left)
    host.create("many", 4)
    request = asking(older(b"x"), partitions=tuple(range(4)))
    request.topic_data[0].name = "many"
    rows = host.call(host.connect(1), request, 2).responses[0].partition_responses
    codes = [row.error_code for row in rows]
    assert codes == [Code.NONE] * taken + [Code.REQUEST_TIMED_OUT] * (4 - taken)


@pytest.mark.parametrize("version", [5, 9])
def test_the_mere_header_of_a_transactional_batch_needs_the_id_as_well(
    host: CoreHost, version: int
) -> None:
    header = TRANSACTIONAL_BATCH[:HEADER_SIZE]
    (row,) = host.call(host.connect(1), asking(header), version).responses[0].partition_responses
    assert row.error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_zstd_with_a_transactional_id_is_accepted_from_version_7_on(host: CoreHost) -> None:
    batch = bytes(encode_batch([NewRecord(None, b"v", NOW_MS)], codec=4))
    one = host.connect(1)
    for version, code in ((6, Code.UNSUPPORTED_COMPRESSION_TYPE), (7, Code.NONE)):
        assert error_of(host.call(one, asking(batch, transactional_id="txn"), version)) == code


def test_with_flush_messages_4_every_fourth_record_waits_for_a_flush(host: CoreHost) -> None:
    """flush.messages bounds the number of records that are not flushed."""
    host.create("safe", flush_messages="4")
    one, waited = host.connect(1), []
    for _ in range(8):
        host.ask(one, produce("safe"), 9)
        waited.append(host.answers[one] == [])
        while host.flushes:
            host.flush()
        host.answers[one].clear()
    assert waited == [False, False, False, True] * 2


def test_a_log_fences_producers_of_an_expired_transactional_id() -> None:
    """The log compares the epoch of a batch with the epoch of its last writer. An earlier epoch is
    fenced, and an equal epoch gets INVALID_PRODUCER_ID_MAPPING.
    """
    b = DiskBroker(transactional_id_expiration_ms="1000")
    b.topic("t")
    first = Producer(b, "txn")
    first.send("t", 0, b"a")
    assert first.end(True) == 0
    second = Producer(b, "txn")
    second.send("t", 0, b"b")
    assert second.end(True) == 0
    for _ in range(2):
        b.tick(10_000)
    assert b.broker.transactions.metadata("txn") is None
    assert first.produce("t", 0, b"c") == Code.INVALID_PRODUCER_EPOCH
    assert second.produce("t", 0, b"c") == Code.INVALID_PRODUCER_ID_MAPPING
    assert b.read("t", committed=True) == [b"a", b"b"]


def test_a_mere_header_over_an_abandoned_connection_closes_it() -> None:
    """The header arrives on a connection that the producer has abandoned. On the producer's new
    connection the header would be an invalid batch.
    """
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    old = p.reconnect()
    p.send("t", 0, b"b")
    request = b.produce_request("t", (b"c",), pid=p.pid, epoch=p.epoch, sequence=2, txn="txn")
    part = request.topic_data[0].partition_data[0]
    assert part.records is not None
    part.records = bytes(part.records)[:HEADER_SIZE]
    assert error_of(b.call(request, 9, p.connection)) == Code.INVALID_RECORD
    assert b.is_hung_up_on(old, request, 9)


def test_without_quotas_the_throttle_time_of_a_produce_is_0(host: CoreHost) -> None:
    one = host.connect(1)
    for request in (asking(SMALL), asking(SMALL[:-1])):
        assert host.call(one, request, 9).throttle_time_ms == 0


@pytest.mark.parametrize("version", [9, 12])
def test_records_shorter_than_a_header_are_refused_with_a_transactional_id_too(
    host: CoreHost, version: int
) -> None:
    request = asking(SMALL[:10], transactional_id="txn")
    (row,) = host.call(host.connect(1), request, version).responses[0].partition_responses
    assert row.error_code == Code.INVALID_RECORD


def test_a_refused_request_adds_nothing_to_a_transaction(host: CoreHost) -> None:
    connection = host.connect(1)
    init = InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=60_000)
    host.ask(connection, init, 5)
    while host.flushes:
        host.flush()
    answer = host.answers[connection].pop()
    request = produce(
        "t",
        acks=7,
        transactional_id="txn",
        identity=(answer.producer_id, answer.producer_epoch),
    )
    assert error_of(host.call(connection, request, 12)) == Code.INVALID_REQUIRED_ACKS
    assert not host.broker.transactions.snapshot()["txn"].partitions


# --- batches whose check takes long, once more --------------------------------------------------


def codes_of(answer: Any) -> list[int]:
    return [row.error_code for topic in answer.responses for row in topic.partition_responses]


def test_after_a_change_of_settings_during_the_check_batches_are_checked_again(
    host: CoreHost,
) -> None:
    one = host.connect(1)
    host.ask(one, asking(large(), partitions=(0, 1)), 9)
    host.broker.topics.set_topic_configs("t", {"max.message.bytes": "2000000"})
    host.finish_work()
    assert host.answers[one] == [] and len(host.work) == 1
    while host.work:
        host.finish_work()
    (answer,) = host.answers[one]
    rows = answer.responses[0].partition_responses
    assert [(row.index, row.error_code, row.base_offset) for row in rows] == [(0, 0, 0), (1, 0, 0)]


@pytest.mark.parametrize(("acks", "is_parked"), [(-1, True), (1, False)])
def test_after_a_long_check_acks_all_waits_for_a_flush_with_flush_messages_1(
    tmp_path: Path, acks: int, is_parked: bool
) -> None:
    host = CoreHost(tmp_path)
    host.create("t", 2, flush_messages="1")
    one = host.connect(1)
    host.ask(one, asking(large(), acks=acks), 9)
    host.finish_work()
    assert (host.answers[one] == []) is is_parked
    while host.flushes:
        host.flush()
    assert [error_of(answer) for answer in host.answers[one]] == [Code.NONE]


def test_a_long_check_compares_timestamps_with_the_wall_clock(host: CoreHost) -> None:
    """message.timestamp.after.max.ms limits how far a record's timestamp may be ahead of the
    wall clock.
    """
    host.broker.topics.set_topic_configs("t", {"message.timestamp.after.max.ms": "1000"})
    host.wall_ahead_ms = 3_600_000
    records = [NewRecord(b"k", bytes(4 << 20), NOW_MS + host.wall_ahead_ms)]
    one = host.connect(1)
    host.ask(one, asking(bytes(encode_batch(records, codec=4))), 9)
    host.finish_work()
    assert error_of(host.answers[one][0]) == Code.NONE


def test_after_a_long_check_log_append_time_is_the_time_of_the_append(
    tmp_path: Path,
) -> None:
    host = CoreHost(tmp_path)
    host.create("t", 1, message_timestamp_type="LogAppendTime")
    one = host.connect(1)
    host.ask(one, asking(large()), 9)
    host.now_ms += 5_000
    host.finish_work()
    (row,) = host.answers[one][0].responses[0].partition_responses
    assert row.log_append_time_ms == NOW_MS + 5_000


def test_with_acks_0_a_batch_refused_after_a_long_check_closes_the_connection(
    host: CoreHost,
) -> None:
    """Any refused batch closes the connection, unless the client has closed it already."""
    host.create("u")
    for connection, is_there in ((1, True), (2, False)):
        host.broker.topics.set_topic_configs("t", {"max.message.bytes": "1048588"})
        one = host.connect(connection)
        request = asking(large(), acks=0)
        first = request.topic_data[0]
        second = type(first)(name="u", partition_data=list(first.partition_data))
        request.topic_data.append(second)
        host.ask(one, request, 9)
        host.broker.topics.set_topic_configs("t", {"max.message.bytes": "100"})
        if not is_there:
            host.broker.on_closed(one)
        while host.work:
            host.finish_work()
        assert (one in host.closed) is is_there
    assert host.broker.topics.partition("u", 0).log_end_offset == 2  # type: ignore[union-attr]


def test_an_error_of_a_long_check_is_counted_once(host: CoreHost) -> None:
    """The refused batch is counted once, although another batch of the request is checked again."""
    host.create("u")
    errors = host.broker.requests.errors = ErrorCounts()
    request = asking(large())
    first = request.topic_data[0]
    request.topic_data.append(type(first)(name="u", partition_data=list(first.partition_data)))
    one = host.connect(1)
    host.ask(one, request, 9)
    host.broker.topics.set_topic_configs("t", {"max.message.bytes": "100"})
    host.broker.topics.set_topic_configs("u", {"max.message.bytes": "2000000"})
    host.finish_work()
    assert host.answers[one] == []
    host.broker.topics.set_topic_configs("u", {"max.message.bytes": "100"})
    host.finish_work()
    assert codes_of(host.answers[one][0]) == [Code.MESSAGE_TOO_LARGE] * 2
    assert errors.counts == {(0, Code.MESSAGE_TOO_LARGE): 2}


def test_an_io_error_ends_the_broker_and_a_full_disk_does_not(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an I/O error it is unknown which bytes were written."""
    log = host.broker.topics.partition("t", 0)
    assert log is not None

    def fail(*_args: Any, **_named: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(log, "append_fields", fail)
    number = errno.ENOSPC
    (row,) = host.call(host.connect(1), asking(SMALL), 9).responses[0].partition_responses
    assert (row.error_code, row.log_append_time_ms) == (Code.KAFKA_STORAGE_ERROR, -1)
    number = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        host.ask(host.connect(2), asking(SMALL), 9)


def test_an_error_has_neither_offset_nor_time(host: CoreHost) -> None:
    late = asking(bytes(encode_batch([NewRecord(None, b"v", 1)])))
    host.broker.topics.set_topic_configs("t", {"message.timestamp.before.max.ms": "1000"})
    (row,) = host.call(host.connect(1), late, 9).responses[0].partition_responses
    assert row.error_code == Code.INVALID_TIMESTAMP
    assert (row.base_offset, row.log_append_time_ms) == (-1, -1)


def test_an_empty_topic_name_is_unknown_or_invalid(host: CoreHost) -> None:
    """Before version 13, requests name topics instead of using their ids, and no topic has an empty
    name.
    """
    answer = host.call(host.connect(1), produce(""), 9)
    assert error_of(answer) in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION)


# --- transactions of version 2: what a batch begins by itself -----------------------------------


class Writer:
    """A transactional producer of version 2 with a connection of its own."""

    def __init__(self, host: CoreHost, connection: int, name: str = "txn") -> None:
        """Connect a producer, and initialise its transactional id."""
        self.host, self.connection, self.name = host, host.connect(connection), name
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        self.take(self.asked(init, 5))

    def asked(self, request: Any, version: int) -> Any:
        """The response to a request, after all flushes that it waits for."""
        self.host.ask(self.connection, request, version)
        while not self.host.answers[self.connection]:
            self.host.flush()
        return self.host.answers[self.connection].pop()

    def take(self, answer: Any) -> None:
        assert answer.error_code == Code.NONE
        self.identity = answer.producer_id, answer.producer_epoch

    def batch(self, *, transactional: bool = True, sequence: int = 0) -> bytes:
        """A batch of one record with the producer's id and epoch."""
        producer_id, epoch = self.identity
        return bytes(
            encode_batch(
                [NewRecord(None, b"v", NOW_MS)],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
        )

    def request(self, *batches: tuple[str, int, bytes | None], acks: int = -1) -> Any:
        """A Produce request for the (topic, partition, batch) rows."""
        request = asking(SMALL, acks=acks, transactional_id=self.name)
        row, part = type(request.topic_data[0]), type(request.topic_data[0].partition_data[0])
        request.topic_data = [
            row(name=topic, partition_data=[part(*numbered[1:]) for numbered in of_topic])
            for topic, of_topic in itertools.groupby(batches, lambda batch: batch[0])
        ]
        return request

    def write(self, *batches: tuple[str, int, bytes | None]) -> list[int]:
        return codes_of(self.asked(self.request(*batches), 12))

    def end(self) -> None:
        """Send EndTxn. The response arrives before the last flush."""
        producer_id, epoch = self.identity
        end = EndTxnRequest(self.name, producer_id, epoch, committed=True)
        self.take(self.asked(end, 5))

    @property
    def partitions(self) -> list[tuple[str, int]]:
        transaction = self.host.broker.transactions.snapshot()[self.name]
        return sorted((topic, index) for topic, index in transaction.partitions)


@pytest.fixture
def host_2(tmp_path: Path) -> CoreHost:
    """A broker with transactions of version 2 (KIP-890), and without a flush journal."""
    host = CoreHost(
        tmp_path, barnabas_features="transaction.version=2", barnabas_flush_journal_logs="0"
    )
    host.create("t", 3)
    host.parts.files_ahead.most_by_request = 4
    return host


def transactions_end(host: CoreHost) -> int:
    return sum(log.log_end_offset for log in host.broker.topics.partitions_of(TRANSACTIONS_TOPIC))


def test_the_first_batch_adds_its_partition_to_the_transaction(host_2: CoreHost) -> None:
    writer = Writer(host_2, 1)
    assert writer.write(("t", 0, writer.batch())) == [0]
    assert writer.partitions == [("t", 0)]
    end = transactions_end(host_2)
    assert writer.write(("t", 0, writer.batch(sequence=1))) == [0]
    assert transactions_end(host_2) == end, "the transaction has the partition already"
    assert writer.write(("t", 0, writer.batch(sequence=2)), ("t", 1, writer.batch())) == [0, 0]
    assert writer.partitions == [("t", 0), ("t", 1)]
    assert transactions_end(host_2) == end + 1


@pytest.mark.parametrize("sequence", [0, 3])
def test_the_first_batch_of_a_producer_on_a_partition_must_have_sequence_0(
    host_2: CoreHost, sequence: int
) -> None:
    """See KAFKA-18202. The producer's epoch is checked before the sequence."""
    writer = Writer(host_2, 1)
    for log in host_2.broker.topics.logs_of("t"):
        log.files.make()
    out_of_order = Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.write(("t", 0, writer.batch(sequence=sequence))) == [sequence and out_of_order]
    Writer(host_2, 2)  # the next session
    assert writer.write(("t", 1, writer.batch(sequence=sequence))) == [Code.INVALID_PRODUCER_EPOCH]


def test_at_debug_level_only_writes_of_transactions_are_logged(
    host_2: CoreHost, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(host_2, 1)
    other = host_2.connect(2)

    def reported() -> list[tuple[Any, ...]]:
        lines = [vars(line) for line in caplog.records if "offsets " in line.getMessage()]
        caplog.clear()
        return [
            (line["transactional_id"], line["producer_id"], line["producer_epoch"], line["offset"])
            for line in lines
        ]

    assert writer.write(("t", 0, writer.batch())) == [0]
    assert reported() == []
    with caplog.at_level(logging.DEBUG, "barnabas.transactions"):
        assert error_of(host_2.call(other, produce("t"), 9)) == 0
        assert reported() == []
        assert writer.write(("t", 0, writer.batch(sequence=1))) == [0]
        assert [line[3] for line in reported()] == [2]


def test_refused_and_plain_batches_add_no_partition_to_the_transaction(host_2: CoreHost) -> None:
    writer = Writer(host_2, 1)
    end = transactions_end(host_2)
    plain = writer.batch(transactional=False)
    internal, unknown = Code.INVALID_TOPIC_EXCEPTION, Code.UNKNOWN_TOPIC_OR_PARTITION
    assert writer.write(("t", 0, plain)) == [0]
    assert writer.write(("t", 1, None)) == [Code.INVALID_RECORD]
    assert writer.write((TRANSACTIONS_TOPIC, 0, writer.batch())) == [internal]
    assert writer.write(("t", 9, writer.batch())) == [unknown]
    assert (writer.partitions, transactions_end(host_2)) == ([], end)
    codes = writer.write(
        (TRANSACTIONS_TOPIC, 0, writer.batch()),
        ("t", 9, writer.batch()),
        ("t", 1, None),
        ("t", 2, writer.batch()),
    )
    assert codes == [internal, unknown, Code.INVALID_RECORD, 0]
    assert writer.partitions == [("t", 2)]


def test_a_request_writes_only_batches_of_its_own_producer(host_2: CoreHost) -> None:
    """A batch of another producer in the same request does not join the transaction."""
    writer, other = Writer(host_2, 1), Writer(host_2, 2, "other")
    codes = writer.write(("t", 0, writer.batch()), ("t", 1, other.batch()))
    assert codes[0] == 0 and codes[1] != 0
    assert (writer.partitions, other.partitions) == ([("t", 0)], [])


def held_back(host: CoreHost, request_of: Any) -> Writer:
    """Return a producer whose request arrives after the response to its commit, but before the
    commit is complete.
    """
    writer = Writer(host, 1)
    assert writer.write(("t", 0, writer.batch())) == [0]
    writer.end()
    host.ask(writer.connection, request_of(writer), 12)
    assert host.answers[1] == [] and host.flushes
    return writer


def complete(host: CoreHost) -> None:
    while host.flushes:
        host.flush()


def test_a_batch_waits_until_the_producers_previous_transaction_is_complete(
    host_2: CoreHost,
) -> None:
    """When that transaction is complete, the batch is appended unchanged in the next one, with the
    time of the append.
    """
    host_2.broker.topics.set_topic_configs("t", {"message.timestamp.type": "LogAppendTime"})
    writer = held_back(
        host_2, lambda writer: writer.request(("t", 0, writer.batch()), ("t", 1, None))
    )
    host_2.now_ms += 3_000
    complete(host_2)
    (answer,) = host_2.answers[1]
    rows = answer.responses[0].partition_responses
    assert [row.error_code for row in rows] == [0, Code.INVALID_RECORD]
    assert (rows[0].base_offset, rows[0].log_append_time_ms) == (2, NOW_MS + 3_000)
    assert writer.partitions == [("t", 0)]


def test_a_waiting_batch_of_a_disconnected_client_is_not_appended(host_2: CoreHost) -> None:
    writer = held_back(host_2, lambda writer: writer.request(("t", 0, writer.batch())))
    host_2.broker.on_closed(1)
    complete(host_2)
    assert host_2.broker.topics.partition("t", 0).log_end_offset == 2  # type: ignore[union-attr]
    assert writer.partitions == []


def test_a_waiting_batch_with_acks_0_gets_no_response(host_2: CoreHost) -> None:
    held_back(host_2, lambda writer: writer.request(("t", 0, writer.batch()), acks=0))
    complete(host_2)
    assert host_2.answers[1] == [None]


def test_a_waiting_batch_with_a_long_check_gets_one_response(host_2: CoreHost) -> None:
    def request(writer: Writer) -> Any:
        producer_id, epoch = writer.identity
        producer = {"producer_id": producer_id, "producer_epoch": epoch}
        batch = large(**producer, base_sequence=0, transactional=True)
        return writer.request(("t", 0, batch))

    held_back(host_2, request)
    complete(host_2)
    assert host_2.answers[1] == []
    host_2.finish_work()
    assert [codes_of(answer) for answer in host_2.answers[1]] == [[0]]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_batch_is_dropped_when_its_producer_reconnected_during_the_check(
    host_2: CoreHost, is_there: bool
) -> None:
    """The batch from the old connection would join the next transaction. It is dropped, and the
    connection is closed.
    """
    writer = Writer(host_2, 1)
    producer_id, epoch = writer.identity
    batch = large(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
    )
    host_2.ask(1, writer.request(("t", 0, batch)), 12)
    writer.connection = host_2.connect(2)
    assert writer.write(("t", 1, writer.batch())) == [0]
    if not is_there:
        host_2.broker.on_closed(1)
    host_2.finish_work()
    assert (1 in host_2.closed) is is_there and host_2.answers[1] == []
    assert host_2.broker.topics.partition("t", 0).log_end_offset == 0  # type: ignore[union-attr]


def test_a_bounded_number_of_bytes_is_checked_and_appended_in_one_call(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = produce("t", b"1")
    row = request.topic_data[0].partition_data[0]
    request.topic_data[0].partition_data = [
        PartitionProduceData(index, row.records) for index in range(5)
    ]
    logs = host.create("many", 5)
    request.topic_data[0].name = "many"
    monkeypatch.setattr(produce_handler, "ROWS_AT_ONCE", 0)
    monkeypatch.setattr(produce_handler, "BYTES_OF_A_TURN", 2 * len(row.records))
    host.parts.files_ahead.most_by_request = 5
    host.ask(host.connect(1), request, 9)
    in_each_call = []
    while host.work:
        host.finish_work()
        in_each_call.append(sum(log.log_end_offset for log in logs))
    assert in_each_call == [2, 4, 5]


def test_a_bounded_number_of_logs_write_their_leader_epoch_in_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a start, each log writes a file before its first batch. With 500 logs in one request,
    this blocked the event loop for 0.4 s.
    """
    count = 2 * produce_handler.EPOCHS_AT_ONCE + 5
    first = CoreHost(tmp_path)
    for log in first.create("t", count):
        log.append(bytearray(encode_batch([NewRecord(None, b"1", NOW_MS)])), now_ms=NOW_MS)
    first.close()
    host = CoreHost(tmp_path)
    begun: list[Any] = []
    write_epochs = LogFiles.write_epochs

    def counted(files: LogFiles) -> bool:
        begun.append(files)
        return write_epochs(files)

    monkeypatch.setattr(LogFiles, "write_epochs", counted)
    request = produce("t", b"2")
    row = request.topic_data[0].partition_data[0]
    request.topic_data[0].partition_data = [
        PartitionProduceData(index, row.records) for index in range(count)
    ]
    host.ask(host.connect(1), request, 9)
    in_each_call = [len(begun)]
    while host.work:
        host.finish_work()
        in_each_call.append(len(begun) - sum(in_each_call))
    assert in_each_call == [produce_handler.EPOCHS_AT_ONCE] * 2 + [5]
    rows = host.answers[1][0].responses[0].partition_responses
    assert [(row.index, row.error_code, row.base_offset) for row in rows] == [
        (index, Code.NONE, 1) for index in range(count)
    ]
    host.ask(1, request, 9)
    assert len(host.answers[1]) == 2 and len(begun) == count, "all in one call, as before"
