"""Batches whose check takes long are checked elsewhere, and appended as if they came only now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import NOW_MS
from helpers.core_host import CoreHost, error_of, fetch, produce

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.records import NewRecord, encode_batch

BOMB = encode_batch([NewRecord(None, bytes(200 << 20), NOW_MS)], codec=4)


def large(codec: int = 4, **producer: Any) -> bytes:
    """4 MiB of zeros: more than is decompressed while others wait, and less than the limit."""
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


def test_a_bomb_is_refused_and_its_neighbour_in_the_request_is_not(host: CoreHost) -> None:
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


def test_a_fetch_that_waits_is_answered_with_a_batch_that_was_checked_elsewhere(
    host: CoreHost,
) -> None:
    one, reader = host.connect(1), host.connect(2)
    host.ask(reader, fetch({"t": {0: 0}}, max_wait_ms=10_000), 12)
    host.ask(one, asking(large()), 9)
    assert not host.answers[reader]
    host.finish_work()
    assert len(host.answers[reader]) == 1


def test_without_acks_it_has_no_answer_and_a_bomb_ends_its_connection(host: CoreHost) -> None:
    one = host.connect(1)
    host.ask(one, asking(large(), acks=0), 9)
    host.finish_work()
    assert host.answers[one] == [None] and not host.closed
    host.ask(one, asking(bytes(BOMB), acks=0), 9)
    host.finish_work()
    assert "MESSAGE_TOO_LARGE on t-0" in host.closed[one]


def test_a_connection_that_is_gone_has_its_batch_appended(host: CoreHost) -> None:
    one = host.connect(1)
    host.ask(one, asking(large()), 9)
    host.broker.on_closed(one)
    host.finish_work()
    assert host.broker.topics.partition("t", 0).log_end_offset == 1  # type: ignore[union-attr]
    assert not host.answers[one]


def test_a_topic_that_went_meanwhile_is_told(host: CoreHost) -> None:
    one = host.connect(1)
    host.ask(one, asking(large()), 9)
    host.broker.deletion.delete_topic("t", NOW_MS)
    host.finish_work()
    assert error_of(host.answers[one][0]) == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_settings_that_changed_meanwhile_hold(host: CoreHost) -> None:
    one = host.connect(1)
    host.ask(one, asking(large()), 9)
    host.broker.topics.set_topic_configs("t", {"max.message.bytes": "100"})
    host.finish_work()
    assert error_of(host.answers[one][0]) == Code.MESSAGE_TOO_LARGE
    assert host.broker.topics.partition("t", 0).log_end_offset == 0  # type: ignore[union-attr]


def test_a_transaction_that_ended_meanwhile_does_not_get_the_batch(host: CoreHost) -> None:
    """KAFKA-14884: checked while the transaction was open, appended after its marker, a batch would
    belong to nobody's transaction.
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
    end = EndTxnRequest(
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    host.ask(other, end, 3)
    while host.flushes:
        host.flush()
    host.tick(1)
    host.finish_work()
    assert error_of(host.answers[one][0]) == Code.INVALID_TXN_STATE
    assert not host.broker.topics.partition("t", 0).producer_state.open_transactions()  # type: ignore[union-attr]


def test_a_batch_is_counted_once_against_the_room_of_the_disk(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take = host.broker.disk_space.reserve
    monkeypatch.setattr(
        host.broker.disk_space, "reserve", lambda count: taken.append(count) or take(count)
    )
    host.ask(host.connect(1), asking(large()), 9)
    host.finish_work()
    assert taken == [len(large())]


@pytest.mark.parametrize("version", [2, 3, 6, 7])
def test_plain_batches_of_old_requests_are_of_no_transaction(host: CoreHost, version: int) -> None:
    assert error_of(host.call(host.connect(1), produce("t"), version)) == Code.NONE


@pytest.mark.parametrize("version", [6, 9])
def test_a_plain_batch_beside_a_transactional_id_is_not_verified(
    host: CoreHost, version: int
) -> None:
    """Kafka: ReplicaManager asks the coordinator of transactional batches alone."""
    request = produce("t", transactional_id="nobody's")
    assert error_of(host.call(host.connect(1), request, version)) == Code.NONE
