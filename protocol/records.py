"""Record batches (message format v2): their header by name, their records encoded and decoded.

A batch, big-endian; the CRC-32C covers everything from `attributes` to the end:

    at  size  field                 at  size  field
     0   8    base_offset           23   4    last_offset_delta
     8   4    batch_length (from    27   8    base_timestamp (or the delete horizon, KIP-534)
              the next field on)    35   8    max_timestamp
    12   4    partition_leader_epoch 43  8    producer_id
    16   1    magic (2)             51   2    producer_epoch
    17   4    crc                   53   4    base_sequence
    21   2    attributes            57   4    record_count        61  records

attributes: bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 base_timestamp is a
delete horizon.

A record: varint length; int8 attributes; varint timestamp_delta, offset_delta; varint-sized key and
value (-1 is null); varint header count, then a varint-sized key and value for each header.

The key of a control record is (int16 version, int16 type: 0 abort, 1 commit); its value is (int16
version, int32 coordinator_epoch).

Source: Kafka's message format; KIP-98, "Message format changes".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.compression import MOST_DECOMPRESSED_BYTES, compress, decompress
from barnabas.protocol.errors import Code, KafkaError

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LENGTH_END = 12  # a batch is LENGTH_END + batch_length bytes long
CRC_START = 21  # the CRC covers the bytes from here to the end
LEADER_EPOCH_AT, MAGIC_AT = 12, 16
MAGIC_END = MAGIC_AT + 1
FLAGS_AT = 22  # the low byte of the attributes, which contains all defined flags
MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
MAX_SEQUENCE = 2**31 - 1

CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
ABORT, COMMIT = 0, 1

# The positions of fields that are read or changed without decoding the rest of the header.
_BATCH_LENGTH_AT, _CRC_AT, _ATTRIBUTES_AT, _MAX_TIMESTAMP_AT, _PRODUCER_ID_AT = 8, 17, 21, 35, 43
BASE_OFFSET = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
LEADER_EPOCH = struct.Struct(">i")
BATCH_START = struct.Struct(">qii")  # base offset, length after LENGTH_END, leader epoch
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_PRODUCER = struct.Struct(">qhi")  # producer_id, producer_epoch, base_sequence
_PLACE = struct.Struct(">qi4xb6xi")  # base_offset, batch_length, magic, last_offset_delta
_START = struct.Struct(">qiibI")  # base_offset, batch_length, leader_epoch, magic, crc
_TAIL = struct.Struct(">hiqqqhii")  # the header from attributes on
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VALUE = struct.Struct(">hi")
Header = tuple[str, bytes | None]
Buffer = bytes | bytearray | memoryview


class BatchHeader(NamedTuple):
    """The 61 bytes before a batch's records."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return LENGTH_END + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1 if there is none. It wraps from 2^31-1
        to 0.
        """
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


class Record(NamedTuple):
    """One decoded record. `timestamp` is in ms; with LogAppendTime it is the batch's timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class NewRecord(NamedTuple):
    """A record to be encoded. Its position in the batch determines its offset."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[Header, ...] = ()


class EndTransactionMarker(NamedTuple):
    """The content of a control record, which ends a transaction."""

    commit: bool
    coordinator_epoch: int


def add_sequence(sequence: int, count: int) -> int:
    """Return the sequence number `count` records after `sequence`. The mask makes 0 follow
    2^31-1.
    """
    return (sequence + count) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at `position`. The buffer must have 61 bytes there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def batches_in(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Iterate over the positions and headers of all whole batches.

    The iteration ends at a partial batch, as it does in a client.
    """
    position, end = 0, len(buffer)
    while position + HEADER_SIZE <= end:
        header = read_header(buffer, position)
        if header.batch_length < HEADER_SIZE - LENGTH_END or position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


def computed_crc(batch: Buffer) -> int:
    """Compute the CRC-32C of one whole batch, over its bytes from `attributes` on."""
    return int(crc32c(memoryview(batch)[CRC_START:]))


def has_right_crc(batch: Buffer, header: BatchHeader) -> bool:
    """Whether the CRC of one whole batch's bytes is the one in its header."""
    return computed_crc(batch) == header.crc


def base_offset_of(batch: Buffer, position: int = 0) -> int:
    """Return the base offset of the batch at `position`. The buffer must have 8 bytes there."""
    offset: int = BASE_OFFSET.unpack_from(batch, position)[0]
    return offset


def batch_size_of(batch: Buffer, position: int = 0) -> int:
    """Return the size of the batch at `position`, including its header. The buffer must have 12
    bytes there.
    """
    length: int = _LENGTH.unpack_from(batch, position + _BATCH_LENGTH_AT)[0]
    return LENGTH_END + length


def leader_epoch_of(batch: Buffer, position: int = 0) -> int:
    """Return the leader epoch of the batch at `position`. The buffer must have 16 bytes there."""
    epoch: int = LEADER_EPOCH.unpack_from(batch, position + LEADER_EPOCH_AT)[0]
    return epoch


def place_of(buffer: Buffer, position: int) -> tuple[int, int, int, int]:
    """Return (base offset, size, magic, last offset) of the batch at `position`. The buffer must
    have 61 bytes there.
    """
    base_offset, length, magic, last_offset_delta = _PLACE.unpack_from(buffer, position)
    return base_offset, length + LENGTH_END, magic, base_offset + last_offset_delta


def attributes_of(batch: Buffer) -> int:
    """Return the attributes of the batch. The buffer must contain its whole header."""
    attributes: int = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)[0]
    return attributes


def producer_of(batch: Buffer) -> tuple[int, int, int]:
    """Return (producer id, producer epoch, base sequence) of the batch. The buffer must contain its
    whole header.
    """
    return _PRODUCER.unpack_from(batch, _PRODUCER_ID_AT)


def set_attributes(batch: bytearray | memoryview, attributes: int) -> None:
    """Change the attributes of a batch. `set_crc` has to be called afterwards."""
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes)


def set_max_timestamp(batch: bytearray | memoryview, max_timestamp: int) -> None:
    """Change the highest timestamp of a batch. `set_crc` has to be called afterwards."""
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, max_timestamp)


def set_size_and_attributes(batch: bytearray, attributes: int) -> None:
    """Change the attributes of a batch, and set its length to that of the buffer.

    `set_crc` has to be called afterwards.
    """
    _LENGTH.pack_into(batch, _BATCH_LENGTH_AT, len(batch) - LENGTH_END)
    set_attributes(batch, attributes)


def set_crc(batch: bytearray | memoryview) -> None:
    """Set the CRC of one whole batch to the CRC of its current bytes."""
    _CRC.pack_into(batch, _CRC_AT, computed_crc(batch))


def encode_varint(value: int, out: bytearray) -> None:
    """Append `value` in zigzag encoding, with seven bits in each byte."""
    # Zigzag encoding maps 0, -1, 1, -2 to 0, 1, 2, 3. `value >> 63` is -1 for negative numbers, so
    # that the xor inverts their bits, and 0 for others.
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


class _Varints(dict[int, bytes]):
    """Encoded varints by number. Small numbers, which are by far the most frequent, are
    cached.
    """

    def __missing__(self, value: int) -> bytes:
        """Encode a number that is not cached, and cache it if it is small."""
        out = bytearray()
        encode_varint(value, out)
        encoded = bytes(out)
        if -1 <= value < _KEPT_VARINTS:
            self[value] = encoded
        return encoded


_KEPT_VARINTS = 4096
_VARINT = _Varints()


def decode_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Decode the zigzag-encoded value at `position`. Gives: the value, and the position after it.

    A varint has at most ten bytes.

    Raises: IndexError if the data end too early.
    """
    byte = data[position]
    # The lowest bit is the sign. `-(byte & 1)` is -1 for negative numbers, for which the xor
    # inverts the bits again.
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
        if shift > 63:
            raise KafkaError(Code.INVALID_RECORD, "a varint is longer than ten bytes")


def records_of(batch: Buffer) -> list[Record]:
    """Decode the records of one whole batch.

    Raises: KafkaError INVALID_RECORD if the content does not match the header; DecompressionError.
    """
    return list(open_records(batch))


def open_records(batch: Buffer, limit: int = MOST_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """Decode the records one by one.

    Raises: TooLargeError if there are more than `limit` decompressed bytes.
    """
    header = read_header(batch)
    body = decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size_bytes], limit)
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    return decode_records(
        body, header.record_count, header.base_offset, header.base_timestamp, fixed_timestamp
    )


def decode_records(
    body: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    fixed_timestamp: int | None = None,
) -> Iterator[Record]:
    """Decode the `count` records in `body`, which must contain nothing else.

    Raises: KafkaError INVALID_RECORD.
    """
    position = 0
    try:
        for _ in range(count):
            size, position = decode_varint(body, position)
            end = position + size
            # `+ 1` skips the record's attributes, which are not used in this format.
            timestamp_delta, position = decode_varint(body, position + 1)
            offset_delta, position = decode_varint(body, position)
            key, position = _decode_blob(body, position)
            value, position = _decode_blob(body, position)
            headers: tuple[Header, ...] = ()
            if body[position]:  # this byte is usually 0, because there are no headers
                header_count, position = decode_varint(body, position)
                headers, position = _decode_headers(body, position, header_count)
            else:
                position += 1
            if position != end:
                raise KafkaError(Code.INVALID_RECORD, "a record is not as long as it says")
            timestamp = (
                base_timestamp + timestamp_delta if fixed_timestamp is None else fixed_timestamp
            )
            yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    except IndexError as error:
        raise KafkaError(
            Code.INVALID_RECORD, "the records end before their count is reached"
        ) from error
    if position != len(body):
        raise KafkaError(Code.INVALID_RECORD, "bytes are left over after the last record")


def _decode_blob(body: bytes, position: int) -> tuple[bytes | None, int]:
    """The bytes of a key or value, or None, and the position after them."""
    byte = body[position]
    # An even byte below 0x80 is the zigzag form of a size from 0 to 63, which is twice the size.
    # Nearly all sizes are in that range, and are decoded without a call.
    if byte < 0x80 and not byte & 1:
        position += 1
        end = position + (byte >> 1)
    else:
        size, position = decode_varint(body, position)
        if size < 0:
            return None, position
        end = position + size
    # Without this check, a slice beyond the end would just be shorter. `decode_records` turns the
    # IndexError into INVALID_RECORD.
    if end > len(body):
        raise IndexError
    return body[position:end], end


def _decode_headers(body: bytes, position: int, count: int) -> tuple[tuple[Header, ...], int]:
    """The headers of a record, and the position after them.

    The bytes of a name that is not UTF-8 become surrogates, as in the names of Python's files, so
    that `encode_record` writes the same bytes.
    """
    if count < 0:
        raise KafkaError(Code.INVALID_RECORD, "a record has a negative number of headers")
    headers = []
    for _ in range(count):
        key, position = _decode_blob(body, position)
        if key is None:
            raise KafkaError(Code.INVALID_RECORD, "a record's header has no key")
        value, position = _decode_blob(body, position)
        headers.append((key.decode(errors="surrogateescape"), value))
    return tuple(headers), position


def header_name_bytes(name: str) -> bytes:
    """The bytes of a header's name, which need not be UTF-8."""
    return name.encode(errors="surrogateescape")


def encode_record(record: NewRecord | Record, offset_delta: int, base_timestamp: int) -> bytes:
    """Encode one record of a batch, preceded by its length."""
    key, value, headers = record.key, record.value, record.headers
    fields = [
        b"\0",
        _VARINT[record.timestamp - base_timestamp],
        _VARINT[offset_delta],
        _VARINT[-1 if key is None else len(key)],
        key or b"",
        _VARINT[-1 if value is None else len(value)],
        value or b"",
        _VARINT[len(headers)],
    ]
    for name, content in headers:
        name_bytes = header_name_bytes(name)
        fields += (
            _VARINT[len(name_bytes)],
            name_bytes,
            _VARINT[-1 if content is None else len(content)],
            content or b"",
        )
    encoded = b"".join(fields)
    return _VARINT[len(encoded)] + encoded


def encode_batch(
    records: Sequence[NewRecord | Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: bool = False,
) -> bytearray:
    """Encode one batch of `records`, in order, with the offset deltas 0, 1, 2, 3 and so on.

    The other parameters are the fields of the header that a caller can choose.
    """
    base_timestamp = max_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    encoded: list[bytes] = []
    for record in records:
        encoded.append(encode_record(record, len(encoded), base_timestamp))
        max_timestamp = max(max_timestamp, record.timestamp)
    body = b"".join(encoded)
    attributes = codec
    attributes |= LOG_APPEND_TIME if log_append_time else 0
    attributes |= TRANSACTIONAL if transactional else 0
    attributes |= CONTROL if control else 0
    return assemble_batch(
        compress(codec, body) if codec else body,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


def encode_pairs(
    pairs: Sequence[tuple[bytes, bytes | None]],
    timestamp: int,
    producer: tuple[int, int] | None,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Encode one batch of keys and values with the same timestamp, as coordinators write them.

    The result is the same as that of `encode_batch`. Nearly all such batches have one record.

    Takes:  producer, (producer_id, producer_epoch) of a transactional batch.
    """
    attributes, producer_id, producer_epoch = 0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if producer is not None:
        attributes = TRANSACTIONAL
        producer_id, producer_epoch = producer
    count = len(pairs)
    if count == 1 and (value := pairs[0][1]) is not None:
        key = pairs[0][0]
        form, before, between = _form_of_pair(len(key), len(value))
        content = form.pack(
            attributes, 0, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, 1,
            before, key, between, value,
        )  # fmt: skip
    else:
        content = _TAIL.pack(
            attributes, count - 1, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE,
            count,
        ) + b"".join(
            [_encode_pair(key, value, _VARINT[delta]) for delta, (key, value) in enumerate(pairs)]
        )  # fmt: skip
    return bytearray(_with_start(content, base_offset, leader_epoch))


@lru_cache(maxsize=500)
def _form_of_pair(key_size: int, value_size: int) -> tuple[struct.Struct, bytes, bytes]:
    """How to pack a batch of one record from `attributes` on, by the sizes of its key and value:
    the form, the bytes before the key, and those between the key and the value.
    """
    key_length, value_length = _VARINT[key_size], _VARINT[value_size]
    # the attributes, two deltas and the number of headers are 0, one byte each
    size = 4 + len(key_length) + key_size + len(value_length) + value_size
    before = _VARINT[size] + bytes(3) + key_length
    # the field of the value has one byte more, which `pack` sets to 0: there are no headers
    form = struct.Struct(
        f"{_TAIL.format}{len(before)}s{key_size}s{len(value_length)}s{value_size + 1}s"
    )
    return form, before, value_length


def _encode_pair(key: bytes, value: bytes | None, offset_delta: bytes) -> bytes:
    """Encode one record with the timestamp of its batch. Takes: offset_delta, encoded."""
    key_size, value_size = _VARINT[len(key)], _VARINT[-1 if value is None else len(value)]
    content = value or b""
    # the attributes, the timestamp delta and the number of headers are 0, one byte each
    size = 3 + len(offset_delta) + len(key_size) + len(key) + len(value_size) + len(content)
    return b"".join(
        (_VARINT[size], b"\0\0", offset_delta, key_size, key, value_size, content, b"\0")
    )


def assemble_batch(
    body: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """Make a batch from the fields of its header and its encoded (and compressed) records.

    Length and CRC are computed. There is a parameter for each other field of the header.
    """
    checked = _TAIL.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    # The CRC is computed over the two parts one after the other, without joining them.
    crc = crc32c(body, crc32c(checked))
    batch_length = HEADER_SIZE - LENGTH_END + len(body)
    batch = bytearray(_START.pack(base_offset, batch_length, leader_epoch, MAGIC, crc))
    batch += checked
    batch += body
    return batch


def _with_start(content: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """Make a batch from its bytes from `attributes` on, which the CRC covers."""
    length = CRC_START - LENGTH_END + len(content)
    return _START.pack(base_offset, length, leader_epoch, MAGIC, crc32c(content)) + content


def encode_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_timestamp: int | None = None,
    header: tuple[str, bytes] | None = None,
) -> bytes:
    """Encode the control batch that ends a transaction on one partition (KIP-98, "Control
    messages").

    The markers of one transaction differ only in offset and leader epoch, which the log sets.

    Takes:  timestamp, that of the record, in ms; base_timestamp, that of the batch, if it differs.
            The record contains the difference, as in every batch. header: that of the record, which
            all clients and Apache Kafka skip. Its value is the end of the batch.
    """
    if base_timestamp is None:
        base_timestamp = timestamp
    name, value = header or ("", b"")
    kind = COMMIT if commit else ABORT
    start = _marker_start(kind, coordinator_epoch, timestamp - base_timestamp, name, len(value))
    fields = _TAIL.pack(
        TRANSACTIONAL | CONTROL, 0, base_timestamp, timestamp, producer_id, producer_epoch,
        NO_SEQUENCE, 1,
    )  # fmt: skip
    return _with_start(fields + start + value, 0, NO_LEADER_EPOCH)


@lru_cache(maxsize=64)
def _marker_start(
    kind: int, coordinator_epoch: int, timestamp_delta: int, name: str, value_size: int
) -> bytes:
    """The record of a marker up to the value of its header. Takes: name, empty for no header."""
    key, value = _CONTROL_KEY.pack(0, kind), _CONTROL_VALUE.pack(0, coordinator_epoch)
    headers = ((name, bytes(value_size)),) if name else ()
    record = encode_record(NewRecord(key, value, timestamp_delta, headers), 0, 0)
    return record[: len(record) - value_size]


def set_last_bytes(batch: bytearray, last_bytes: bytes, crc_before: int) -> None:
    """Replace the last bytes of a batch, and set its CRC. Takes: crc_before, the CRC of the bytes
    before them (`crc_without_last`).
    """
    batch[-len(last_bytes) :] = last_bytes
    _CRC.pack_into(batch, _CRC_AT, crc32c(last_bytes, crc_before))


def crc_without_last(batch: bytearray, count: int) -> int:
    """The CRC of a batch without its last bytes."""
    return crc32c(memoryview(batch)[CRC_START : len(batch) - count])


def decode_marker(batch: Buffer) -> EndTransactionMarker:
    """Decode a control batch.

    Raises: KafkaError INVALID_RECORD if the marker is neither a commit nor an abort.
    """
    records = records_of(batch)
    key, value = records[0].key, records[0].value
    if key is None or value is None or len(key) < 4 or len(value) < 6:
        raise KafkaError(Code.INVALID_RECORD, "a control record is cut off")
    _, kind = _CONTROL_KEY.unpack_from(key)
    _, coordinator_epoch = _CONTROL_VALUE.unpack_from(value)
    if kind not in (ABORT, COMMIT):
        raise KafkaError(Code.INVALID_RECORD, f"a control record has the unknown type {kind}")
    return EndTransactionMarker(kind == COMMIT, coordinator_epoch)
