"""Converts records from and to the formats that preceded record batches (magic 0 and 1).

Clients that send Produce 0 to 2 and Fetch 0 to 3 support no other formats. Their messages are
converted to a batch of version 2 when they are produced. When batches are fetched, they are
converted to messages without compression and without the parts that old messages do not have
(headers, producers, control records).

The layout of a message. A set is a sequence of these; the value of a compressed message is a set:

    int64 offset, int32 size of what follows, uint32 crc32 of what follows,
    int8 magic, int8 attributes (bits 0-2 codec, bit 3 the time is the broker's),
    magic 1: int64 timestamp, nullable bytes key, nullable bytes value (int32 length, -1: null)

Clients of magic 0 computed the checksum in the header of an lz4 frame over too many bytes
(KAFKA-3160), so the checksum is replaced by the correct one. Source: the protocol guide of Apache
Kafka 0.10, "Message sets"; KIP-31, KIP-32; the descriptions of the LZ4 frame format and of xxHash.
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
# the maximum number of bytes to convert in one call, during which the loop is blocked
MOST_BYTES = 1 << 20

_ENTRY = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_FORM = struct.Struct(">bb")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_CODEC, _BROKERS_TIME = 0x07, 0x08
_LZ4_DESCRIPTOR_AT = 4
_LZ4_CONTENT_SIZE, _LZ4_DICTIONARY_ID = 0x08, 0x01
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)  # constants of xxHash
_UINT32 = 0xFFFFFFFF


def upgraded(message_set: bytes | bytearray | memoryview) -> tuple[bytearray, int]:
    """Convert a set of old messages to one batch, with the codec of the first message.

    Gives:  the batch, and the number of converted bytes: those of the set plus the decompressed
            ones, each at most `MOST_BYTES`.
    Raises: KafkaError CORRUPT_MESSAGE, MESSAGE_TOO_LARGE; INVALID_RECORD for bytes that are not a
            set, and for compressed messages inside a compressed one; UNSUPPORTED_COMPRESSION_TYPE
            for zstd, which is newer than these messages; UNKNOWN_SERVER_ERROR for an unknown codec,
            and for data that cannot be decompressed.
    """
    data = bytes(message_set)
    if len(data) > MOST_BYTES:
        raise KafkaError(Code.MESSAGE_TOO_LARGE, f"a message set of more than {MOST_BYTES} bytes")
    messages = list(_messages(data))
    magic = data[MAGIC_AT] if messages else 0
    records: list[NewRecord] = []
    left = MOST_BYTES  # the limit of the decompressed bytes of all messages of the set together
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
    """Whether the received records are old messages. The magic of the first one shows this."""
    # The magic is at the same position in a message and in a batch.
    return len(data) > MAGIC_AT and data[MAGIC_AT] < 2


def _decompressed(codec: int, message: NewRecord, magic: int, limit: int) -> bytes:
    """The messages inside a compressed message. Takes: limit, the maximum number of their bytes.
    Raises: KafkaError.
    """
    if codec == Codec.ZSTD:
        raise KafkaError(Code.UNSUPPORTED_COMPRESSION_TYPE, "messages of an old format in zstd")
    if codec > Codec.ZSTD:
        raise KafkaError(Code.UNKNOWN_SERVER_ERROR, f"there is no compression codec {codec}")
    value = message.value or b""
    if codec == Codec.LZ4 and not magic:
        # in messages of magic 0, the header checksum of lz4 frames is wrong (KIP-57)
        value = _with_header_checksum(value)
    return decompress(codec, value, limit)


def _with_header_checksum(frame: bytes) -> bytes:
    """Return the lz4 frame with the correct checksum of its descriptor.

    The descriptor consists of the flags, the block size, and the optional fields that the flags
    declare. The checksum is the second byte of the descriptor's 32-bit xxHash.
    """
    flags = frame[_LZ4_DESCRIPTOR_AT] if len(frame) > _LZ4_DESCRIPTOR_AT else 0
    end = _LZ4_DESCRIPTOR_AT + 2
    end += 8 if flags & _LZ4_CONTENT_SIZE else 0
    end += 4 if flags & _LZ4_DICTIONARY_ID else 0
    checksum = _xxh32(frame[_LZ4_DESCRIPTOR_AT:end]) >> 8 & 0xFF
    return frame[:end] + bytes([checksum]) + frame[end + 1 :]


def _xxh32(data: bytes) -> int:
    """Compute the 32-bit xxHash of less than 16 bytes, with the seed 0."""
    # for longer inputs the hash has another phase, but a descriptor is always shorter
    assert len(data) < 16
    first, second, third, fourth, fifth = _PRIMES
    whole = len(data) & ~3  # the number of bytes in whole words of four
    value = fifth + len(data)
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = _rotated(value + word * third, 17) * fourth
    for byte in data[whole:]:
        value = _rotated(value + byte * fifth, 11) * first
    value &= _UINT32  # Python's integers have no fixed width, so each product is cut to 32 bits
    value = (value ^ value >> 15) * second & _UINT32
    value = (value ^ value >> 13) * third & _UINT32
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _UINT32
    return value << bits | value >> (32 - bits)


def _messages(data: bytes) -> Iterator[tuple[int, NewRecord]]:
    """Iterate over the messages of a set, each with its codec. Raises: KafkaError, as
    `upgraded`.
    """
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
    """Decode a message whose bytes begin with its checksum. Gives: its codec, and the message."""
    if _CRC.unpack_from(data)[0] != zlib.crc32(data[_CRC.size :]):
        raise KafkaError(Code.CORRUPT_MESSAGE, "a message's checksum is wrong")
    magic, attributes = _FORM.unpack_from(data, _CRC.size)
    if magic not in (0, 1):
        raise KafkaError(Code.INVALID_RECORD, f"a message of magic {magic} in a message set")
    at = _CRC.size + _FORM.size
    timestamp = NO_TIMESTAMP
    try:
        if magic:  # messages of magic 0 have no timestamp
            (timestamp,) = _INT64.unpack_from(data, at)
            at += _INT64.size
        key, at = _blob(data, at)
        value, at = _blob(data, at)
    except struct.error as error:
        raise KafkaError(Code.CORRUPT_MESSAGE, "a message is cut off") from error
    if at != len(data):
        raise KafkaError(Code.CORRUPT_MESSAGE, "a message is longer than its key and value")
    return attributes & _CODEC, NewRecord(key, value, timestamp)


def _blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def downgraded(batches: bytes, magic: int, from_offset: int, most_bytes: int) -> tuple[bytes, int]:
    """Convert the records of batches, from an offset on, to old messages.

    Takes:  most_bytes, the size after which no further message is added; the first one is always
            added. A batch that is cut off at the end is left out, as a reader would do.
    Gives:  the messages, and the offset after the last batch that was converted entirely. The
            reader continues at this offset if there are no messages, since a batch may contain only
            records that old clients do not support.
    Raises: KafkaError if the first messages cannot be read, as `records_of`.
    """
    out = bytearray()
    next_offset = from_offset
    for at, header in batches_in(batches):
        # Old messages have no control records. At a control record an old client therefore sees a
        # gap in the offsets.
        if not header.is_control:
            has_brokers_time = header.is_log_append_time and magic
            attributes = _BROKERS_TIME if has_brokers_time else 0
            # The first batch is decompressed even if it is too large. Otherwise the client could
            # never read beyond it.
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
                break  # the next fetch begins with this batch
        next_offset = header.next_offset
    return bytes(out), next_offset


def _old_message(record: Record, magic: int, attributes: int) -> bytes:
    """A record as a message of the old format. Takes: attributes, which say whether the timestamp
    is the broker's.
    """
    body = bytearray(_FORM.pack(magic, attributes))
    if magic:
        body += _INT64.pack(record.timestamp)
    for blob in (record.key, record.value):
        body += _INT32.pack(-1) if blob is None else _INT32.pack(len(blob)) + blob
    entry = _ENTRY.pack(record.offset, _CRC.size + len(body))
    return entry + _CRC.pack(zlib.crc32(body)) + body
