"""Producing encoded batches: the fields that are set in them, and the bytes of the requests. The
message class that is generated from the schema must give the same bytes.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import (
    HEADER_SIZE,
    NewRecord,
    computed_crc,
    encode_batch,
    read_header,
    records_of,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write.produce_request import (
    SMALL_BYTES,
    Producer,
    PublishError,
    StampedRecordBatch,
    encode_produce,
    stamp_header,
)

WRITER = Producer(2**40 + 7, 321)


def batch_of(
    *values: bytes, transactional: bool = True, control: bool = False
) -> EncodedRecordBatch:
    records = [NewRecord(b"key", value, 1_700_000_000_000, (("h", b"v"),)) for value in values]
    return EncodedRecordBatch(
        "t", 3, len(values), encode_batch(records, transactional=transactional, control=control)
    )


def put_together(header: bytes, record_batch: EncodedRecordBatch) -> bytes:
    return header + bytes(record_batch.data[HEADER_SIZE:])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("base_sequence", [0, 5, 2**31 - 1])
def test_a_stamped_batch_is_the_same_but_for_its_producer(kind: type, base_sequence: int) -> None:
    record_batch = batch_of(b"a", b"b" * 1000)
    record_batch = record_batch._replace(data=kind(record_batch.data))
    before = bytes(record_batch.data)
    whole = put_together(stamp_header(record_batch, WRITER, base_sequence), record_batch)
    expected = read_header(before)._replace(
        producer_id=2**40 + 7,
        producer_epoch=321,
        base_sequence=base_sequence,
        crc=computed_crc(whole),
    )
    assert read_header(whole) == expected
    assert records_of(whole) == records_of(before)
    assert bytes(record_batch.data) == before, (
        "an attempt that fails leaves the batch as it was for the next one"
    )


@pytest.mark.parametrize("position", [16, 17, 21, 23, 57, 61, -1])
def test_a_flipped_bit_is_never_given_a_good_checksum(position: int) -> None:
    record_batch = batch_of(b"a", b"b")
    data = bytearray(record_batch.data)
    data[position] ^= 1
    with pytest.raises(PublishError, match="a batch for t-3 is damaged"):
        stamp_header(record_batch._replace(data=data), WRITER, 0)


@pytest.mark.parametrize("size", [0, 60, -1])
def test_a_batch_that_is_cut_off(size: int) -> None:
    record_batch = batch_of(b"a", b"b")
    with pytest.raises(PublishError, match="a batch for t-3 is damaged"):
        stamp_header(record_batch._replace(data=record_batch.data[:size]), WRITER, 0)


def test_only_batches_for_transactions_are_taken() -> None:
    for wrong in (batch_of(b"a", transactional=False), batch_of(b"a", control=True)):
        with pytest.raises(PublishError, match="not transactional"):
            stamp_header(wrong, WRITER, 0)
    with pytest.raises(PublishError, match="its header does not fit"):
        stamp_header(batch_of(b"a", b"b")._replace(record_count=3), WRITER, 0)


@pytest.mark.parametrize("version", range(3, 12))
def test_produce_requests_of_all_versions(version: int) -> None:
    """Some batches are above the size limit for copying, and some are below. Their sizes need
    uvarints of several lengths.
    """
    names = [
        TopicPartition("t", 0),
        TopicPartition("u" * 200, 5),
        TopicPartition("t", 7),
        TopicPartition("t", 8),
    ]
    sizes = [10, SMALL_BYTES, SMALL_BYTES + 1, 2**21]
    record_batches = [
        StampedRecordBatch(
            name, bytes([size % 251]) * HEADER_SIZE, memoryview(bytes([size % 241]) * size)
        )
        for name, size in zip(names, sizes, strict=True)
    ]
    topics = [
        TopicProduceData(
            name=topic,
            partition_data=[
                PartitionProduceData(
                    index=each.partition.partition, records=each.header + bytes(each.records)
                )
                for each in record_batches
                if each.partition.topic == topic
            ],
        )
        for topic in ("t", "u" * 200)
    ]
    expected = ProduceRequest(
        transactional_id="query", acks=-1, timeout_ms=30_000, topic_data=topics
    ).encode(version)
    pieces = encode_produce(version, "query", 30_000, record_batches)
    assert b"".join(pieces) == expected
    assert sum(isinstance(piece, memoryview) for piece in pieces) == 2
