"""Records in the forms from before record batches (magic 0 and 1), both ways.

Produce 0 to 2 and Fetch 0 to 3 are of clients that know no others. What they write becomes a batch
of version 2 on its way in; what they read is made of batches on its way out, without compression
and without what old messages cannot tell (headers, producers, control records).

One message; a set of them has nothing around it, and a compressed one has a set as its value:

    int64 offset, int32 size of what follows, uint32 crc32 of what follows,
    int8 magic, int8 attributes (bits 0-2 codec, bit 3 the time is the broker's),
    magic 1: int64 timestamp, nullable bytes key, nullable bytes value (int32 length, -1: null)

Source: the protocol guide of Apache Kafka 0.10, "Message sets"; KIP-31, KIP-32.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from barnabas.protocol.compression import decompress
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    MAGIC_AT,
    NO_TIMESTAMP,
    NewRecord,
    batches_in,
    encode_batch,
    records_of,
)

TIMES_IN_FETCH = 2
MOST_BYTES = 1 << 20  # that are converted at once: they hold up the loop

_ENTRY = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_FORM = struct.Struct(">bb")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_CODEC, _BROKERS_TIME = 0x07, 0x08


def upgraded(message_set: bytes | bytearray | memoryview) -> bytearray:
    """The batch that a set of old messages is, with the codec of its first message.

    Raises: KafkaError CORRUPT_MESSAGE, MESSAGE_TOO_LARGE; INVALID_RECORD for what is no such set.
    """
    data = bytes(message_set)
    if len(data) > MOST_BYTES:
        raise KafkaError(Code.MESSAGE_TOO_LARGE, f"a message set of more than {MOST_BYTES} bytes")
    try:
        found = list(_messages(data))
        records = [record for codec, value in found for record in _records(codec, value)]
    except (struct.error, IndexError) as error:
        raise KafkaError(Code.CORRUPT_MESSAGE, "a message set is cut off") from error
    if not records:
        raise KafkaError(Code.INVALID_RECORD, "a message set without a message")
    return encode_batch(records, codec=found[0][0])


def is_message_set(data: bytes | bytearray | memoryview) -> bool:
    """Whether the records that came are old messages, by the magic of the first."""
    return len(data) > MAGIC_AT and data[MAGIC_AT] < 2


def _records(codec: int, record: NewRecord) -> list[NewRecord]:
    if not codec:
        return [record]
    inner = decompress(codec, record.value or b"", MOST_BYTES)
    return [message for _, message in _messages(inner)]


def _messages(data: bytes) -> Iterator[tuple[int, NewRecord]]:
    """The messages of a set, each with its codec."""
    at = 0
    while at < len(data):
        _, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        end = at + size
        if size < _CRC.size + _FORM.size or end > len(data):
            raise KafkaError(Code.CORRUPT_MESSAGE, "a message is longer than its set")
        if _CRC.unpack_from(data, at)[0] != zlib.crc32(data[at + _CRC.size : end]):
            raise KafkaError(Code.CORRUPT_MESSAGE, "a message's checksum is wrong")
        magic, attributes = _FORM.unpack_from(data, at + _CRC.size)
        if magic not in (0, 1):
            raise KafkaError(Code.INVALID_RECORD, f"a message of magic {magic} among old ones")
        at += _CRC.size + _FORM.size
        timestamp = NO_TIMESTAMP
        if magic:
            (timestamp,) = _INT64.unpack_from(data, at)
            at += _INT64.size
        key, at = _blob(data, at, end)
        value, at = _blob(data, at, end)
        yield attributes & _CODEC, NewRecord(key, value, timestamp)
        at = end


def _blob(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    (size,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    if size < 0:
        return None, at
    if at + size > end:
        raise KafkaError(Code.CORRUPT_MESSAGE, "a message's key or value is longer than it")
    return data[at : at + size], at + size


def downgraded(batches: bytes, magic: int) -> bytes:
    """Whole batches as old messages, up to `MOST_BYTES` of them, the first in any case.

    A batch that is cut off at the end is left out, as a reader would have it.
    """
    out = bytearray()
    for at, header in batches_in(batches):
        end = at + header.size_bytes
        if end > len(batches) or (out and end > MOST_BYTES):
            break
        if header.is_control:
            continue
        attributes = _BROKERS_TIME if header.is_log_append_time and magic else 0
        for record in records_of(batches[at:end]):
            body = bytearray(_FORM.pack(magic, attributes))
            if magic:
                body += _INT64.pack(record.timestamp)
            for blob in (record.key, record.value):
                body += _INT32.pack(-1) if blob is None else _INT32.pack(len(blob)) + blob
            out += _ENTRY.pack(record.offset, _CRC.size + len(body))
            out += _CRC.pack(zlib.crc32(body)) + body
    return bytes(out)
