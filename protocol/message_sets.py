"""Records in the forms from before record batches (magic 0 and 1), both ways.

Produce 0 to 2 and Fetch 0 to 3 are of clients that know no others. What they write becomes a batch
of version 2 on its way in; what they read is made of batches on its way out, without compression
and without what old messages cannot tell (headers, producers, control records).

One message; a set of them has nothing around it, and a compressed one has a set as its value:

    int64 offset, int32 size of what follows, uint32 crc32 of what follows,
    int8 magic, int8 attributes (bits 0-2 codec, bit 3 the time is the broker's),
    magic 1: int64 timestamp, nullable bytes key, nullable bytes value (int32 length, -1: null)

Clients of magic 0 began the checksum in the header of an lz4 frame too early (KAFKA-3160): there it
is made anew. Source: the protocol guide of Apache Kafka 0.10, "Message sets"; KIP-31, KIP-32; the
descriptions of the LZ4 frame format and of xxHash.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from barnabas.protocol.compression import MOST_DECOMPRESSED_BYTES, Codec, decompress
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    MAGIC_AT,
    NO_TIMESTAMP,
    NewRecord,
    Record,
    batches_in,
    encode_batch,
    open_records,
)

TIMES_IN_FETCH = 2
MOST_BYTES = 1 << 20  # that are converted at once: they hold up the loop

_ENTRY = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_FORM = struct.Struct(">bb")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_CODEC, _BROKERS_TIME = 0x07, 0x08
_LZ4_DESCRIPTOR_AT = 4
_LZ4_CONTENT_SIZE, _LZ4_DICTIONARY_ID = 0x08, 0x01
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)  # xxHash's
_UINT32 = 0xFFFFFFFF


def upgraded(message_set: bytes | bytearray | memoryview) -> tuple[bytearray, int]:
    """The batch that a set of old messages is, with the codec of its first message.

    Gives:  the batch, and how many bytes were converted: the set's and what it decompressed to,
            each `MOST_BYTES` at most.
    Raises: KafkaError CORRUPT_MESSAGE, MESSAGE_TOO_LARGE; INVALID_RECORD for what is no such set,
            and for compressed messages in a compressed one; UNSUPPORTED_COMPRESSION_TYPE for zstd,
            which is younger, and UNKNOWN_SERVER_ERROR for a codec that there is not, and data that
            are not in their codec's form.
    """
    data = bytes(message_set)
    if len(data) > MOST_BYTES:
        raise KafkaError(Code.MESSAGE_TOO_LARGE, f"a message set of more than {MOST_BYTES} bytes")
    messages = list(_messages(data))
    magic = data[MAGIC_AT] if messages else 0
    records: list[NewRecord] = []
    left = MOST_BYTES
    for codec, message in messages:
        if not codec:
            records.append(message)
            continue
        inner = _decompressed(codec, message, magic, left)
        left -= len(inner)
        for inner_codec, inner_message in _messages(inner):
            if inner_codec:
                raise KafkaError(Code.INVALID_RECORD, "compressed messages in a compressed one")
            records.append(inner_message)
    if not records:
        raise KafkaError(Code.INVALID_RECORD, "a message set without a message")
    return encode_batch(records, codec=messages[0][0]), len(data) + MOST_BYTES - left


def is_message_set(data: bytes | bytearray | memoryview) -> bool:
    """Whether the records that came are old messages, by the magic of the first."""
    return len(data) > MAGIC_AT and data[MAGIC_AT] < 2


def _decompressed(codec: int, message: NewRecord, magic: int, limit: int) -> bytes:
    if codec == Codec.ZSTD:
        raise KafkaError(Code.UNSUPPORTED_COMPRESSION_TYPE, "old messages in zstd")
    if codec > Codec.ZSTD:
        raise KafkaError(Code.UNKNOWN_SERVER_ERROR, f"there is no compression codec {codec}")
    value = message.value or b""
    if codec == Codec.LZ4 and not magic:
        value = _with_header_checksum(value)
    return decompress(codec, value, limit)


def _with_header_checksum(frame: bytes) -> bytes:
    """An lz4 frame with the checksum of its descriptor (flags, block size and what they announce):
    the second byte of its xxHash of 32 bits.
    """
    flags = frame[_LZ4_DESCRIPTOR_AT] if len(frame) > _LZ4_DESCRIPTOR_AT else 0
    end = _LZ4_DESCRIPTOR_AT + 2
    end += 8 if flags & _LZ4_CONTENT_SIZE else 0
    end += 4 if flags & _LZ4_DICTIONARY_ID else 0
    checksum = _xxh32(frame[_LZ4_DESCRIPTOR_AT:end]) >> 8 & 0xFF
    return frame[:end] + bytes([checksum]) + frame[end + 1 :]


def _xxh32(data: bytes) -> int:
    """xxHash of less than 16 bytes, with the seed 0."""
    assert len(data) < 16
    first, second, third, fourth, fifth = _PRIMES
    whole = len(data) & ~3
    value = fifth + len(data)
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = _rotated(value + word * third, 17) * fourth
    for byte in data[whole:]:
        value = _rotated(value + byte * fifth, 11) * first
    value &= _UINT32
    value = (value ^ value >> 15) * second & _UINT32
    value = (value ^ value >> 13) * third & _UINT32
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _UINT32
    return value << bits | value >> (32 - bits)


def _messages(data: bytes) -> Iterator[tuple[int, NewRecord]]:
    """The messages of a set, each with its codec. Raises: KafkaError, see `upgraded`."""
    at = 0
    while at < len(data):
        if at + _ENTRY.size > len(data):
            raise KafkaError(Code.CORRUPT_MESSAGE, "a message set is cut off")
        _, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        end = at + size
        if size < _CRC.size + _FORM.size or end > len(data):
            raise KafkaError(Code.CORRUPT_MESSAGE, "a message is longer than its set")
        yield _message(data[at:end])
        at = end


def _message(data: bytes) -> tuple[int, NewRecord]:
    """One message from its checksum on, and its codec."""
    if _CRC.unpack_from(data)[0] != zlib.crc32(data[_CRC.size :]):
        raise KafkaError(Code.CORRUPT_MESSAGE, "a message's checksum is wrong")
    magic, attributes = _FORM.unpack_from(data, _CRC.size)
    if magic not in (0, 1):
        raise KafkaError(Code.INVALID_RECORD, f"a message of magic {magic} among old ones")
    at = _CRC.size + _FORM.size
    timestamp = NO_TIMESTAMP
    try:
        if magic:
            (timestamp,) = _INT64.unpack_from(data, at)
            at += _INT64.size
        key, at = _blob(data, at)
        value, at = _blob(data, at)
    except struct.error as error:
        raise KafkaError(Code.CORRUPT_MESSAGE, "a message is cut off") from error
    if at != len(data):
        raise KafkaError(Code.CORRUPT_MESSAGE, "a message's key and value are not as long as it")
    return attributes & _CODEC, NewRecord(key, value, timestamp)


def _blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def downgraded(batches: bytes, magic: int, from_offset: int, most_bytes: int) -> tuple[bytes, int]:
    """Batches as old messages, from an offset on.

    Takes:  most_bytes, after which no further message is made; one is in any case, where there is
            one. A batch that is cut off at the end is left out, as a reader would have it.
    Gives:  the messages; the offset after the last batch of which all was made, from which to go on
            where there are no messages: batches may hold none that old clients know.
    Raises: KafkaError where the first messages cannot be read; see `records_of`.
    """
    out = bytearray()
    next_offset = from_offset
    for at, header in batches_in(batches):
        if not header.is_control:
            has_brokers_time = header.is_log_append_time and magic
            attributes = _BROKERS_TIME if has_brokers_time else 0
            limit = most_bytes if out else MOST_DECOMPRESSED_BYTES
            try:
                for record in open_records(batches[at : at + header.size_bytes], limit):
                    if record.offset >= from_offset:
                        if out and len(out) >= most_bytes:
                            return bytes(out), next_offset
                        out += _old_message(record, magic, attributes)
            except KafkaError:
                if not out:
                    raise
                break  # the next fetch begins there
        next_offset = header.next_offset
    return bytes(out), next_offset


def _old_message(record: Record, magic: int, attributes: int) -> bytes:
    body = bytearray(_FORM.pack(magic, attributes))
    if magic:
        body += _INT64.pack(record.timestamp)
    for blob in (record.key, record.value):
        body += _INT32.pack(-1) if blob is None else _INT32.pack(len(blob)) + blob
    entry = _ENTRY.pack(record.offset, _CRC.size + len(body))
    return entry + _CRC.pack(zlib.crc32(body)) + body
