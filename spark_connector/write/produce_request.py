"""The bytes of a ProduceRequest: record batches with their producer, and the body of the request
around them. Large records are not copied.

Tasks encode record batches without producer id, epoch and sequence, which only the driver knows.
The driver puts these into the 61 bytes of each header, with a new checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.client.errors import ClientError
from barnabas.protocol.checksum import crc32c
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.primitives import Buffer, write_string, write_uvarint
from barnabas.protocol.records import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    has_right_crc,
    read_header,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch

ALL_REPLICAS = -1  # value of acks
# Records up to this size are copied into a buffer with others, which costs less than a separate
# buffer.
SMALL_BYTES = 8 * 1024


class PublishError(ClientError):
    """A batch cannot be published.

    The message says what to do, and names the topic and partition if the error is about only one.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Producer(NamedTuple):
    """The producer id and epoch that InitProducerId returned."""

    producer_id: int
    epoch: int


def checked_header(record_batch: EncodedRecordBatch) -> BatchHeader:
    """Return the header of a record batch, after checking that the batch is complete, undamaged and
    transactional.

    Raises: PublishError.
    """
    name = TopicPartition(record_batch.topic, record_batch.partition)
    if len(record_batch.data) < HEADER_SIZE:
        raise PublishError(f"a batch for {name} is damaged: it has {len(record_batch.data)} bytes")
    header = read_header(record_batch.data)
    if (
        header.magic != MAGIC
        or header.size_bytes != len(record_batch.data)
        or header.record_count != record_batch.record_count
    ):
        raise PublishError(
            f"a batch for {name} is damaged: its header does not fit its "
            f"{len(record_batch.data)} bytes and {record_batch.record_count} records"
        )
    if not has_right_crc(record_batch.data, header):
        raise PublishError(f"a batch for {name} is damaged: its checksum is wrong")
    if (
        not header.is_transactional
        or header.is_control
        or header.record_count < 1
        or header.last_offset_delta != header.record_count - 1
    ):
        raise PublishError(f"a batch for {name} is not transactional")
    return header


def stamp_header(record_batch: EncodedRecordBatch, producer: Producer, base_sequence: int) -> bytes:
    """Make a new header for a record batch, with its producer, its sequence, and the new CRC.

    The records do not change.

    Raises: PublishError for a damaged batch, since damaged data must never get a valid checksum.
    """
    header = checked_header(record_batch)._replace(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=base_sequence,
        base_offset=0,
    )
    fresh = HEADER.pack(*header)
    crc = crc32c(memoryview(record_batch.data)[HEADER_SIZE:], crc32c(fresh[CRC_START:]))
    return HEADER.pack(*header._replace(crc=crc))


class StampedRecordBatch(NamedTuple):
    """A record batch in the form in which it is sent."""

    partition: TopicPartition
    header: bytes
    records: memoryview

    @property
    def size_bytes(self) -> int:
        return len(self.header) + len(self.records)


def encode_produce(
    version: int,
    transactional_id: str,
    timeout_ms: int,
    record_batches: Sequence[StampedRecordBatch],
) -> list[Buffer]:
    """Encode the body of a ProduceRequest of version 3 to 12, as several buffers. Large records are
    not copied.

    The layout is: nullable string transactional_id, int16 acks, int32 timeout_ms, [ string topic |
    [ int32 partition, bytes records ] ]. From version 9 on it is flexible: sizes are uvarints and
    one larger, and each struct ends in tagged fields.
    """
    compact = version >= ProduceRequest.FLEXIBLE_FROM
    pieces: list[Buffer] = []
    piece = bytearray()
    topics: dict[str, list[StampedRecordBatch]] = {}
    for record_batch in record_batches:
        topics.setdefault(record_batch.partition.topic, []).append(record_batch)
    write_string(piece, transactional_id, compact)
    piece += struct.pack(">hi", ALL_REPLICAS, timeout_ms)
    _write_size(piece, len(topics), compact)
    for topic, parts in topics.items():
        write_string(piece, topic, compact)
        _write_size(piece, len(parts), compact)
        for part in parts:
            piece += struct.pack(">i", part.partition.partition)
            _write_size(piece, part.size_bytes, compact)
            piece += part.header
            if len(part.records) <= SMALL_BYTES:
                piece += part.records
            else:
                pieces += [piece, part.records]
                piece = bytearray()
            piece += b"\0" * compact
        piece += b"\0" * compact
    piece += b"\0" * compact
    pieces.append(piece)
    return pieces


def _write_size(out: bytearray, size: int, compact: bool) -> None:
    """Append the count of an array, or the size of records."""
    if compact:
        write_uvarint(out, size + 1)
    else:
        out += struct.pack(">i", size)
