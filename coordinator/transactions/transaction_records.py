"""Keys and values of __transaction_state.

Key, version 0, big-endian:     int16 version, string transactional_id
Value, version 0:               int16 version, int64 producer_id, int16 producer_epoch,
                                int32 timeout_ms, int8 state, nullable array of
                                (string topic, array of int32 partition), int64 last_update_ms,
                                int64 start_ms
Value, version 1:               the same with compact strings and arrays, and tagged fields after
                                each structure; at the end of the value
                                0 int64 previous_producer_id, 1 int64 next_producer_id,
                                2 int16 client_transaction_version, 3 int16 next_producer_epoch,
                                10000 int16 last_producer_epoch, 10001 int8 epoch_is_a_fence (1),
                                10002 int64 latest_ms

string: int16 length, UTF-8. array: int32 count, -1 is null. Compact: unsigned varint of length + 1,
0 is null. The partitions of an Empty transaction are null, those of a completed one an empty array.
A tombstone (no value) means that the transactional id has expired.

Apache Kafka 3.9 writes version 0 while transaction.version is 0, and reads both. We write version 0
too, byte for byte, unless a field has a value that version 0 cannot store:

  - after a producer requested its next epoch: a retry has to be recognised after a restart
    (KAFKA-20357);
  - after the coordinator aborted a transaction: a producer that guesses the epoch has to be
    rejected;
  - while the wall clock is behind an earlier record.

Kafka 3.9 has no tags for last_producer_epoch, epoch_is_a_fence and latest_ms: our tag numbers are
far from Kafka's, and readers skip unknown tags.

Source: TransactionLogKey and TransactionLogValue of Apache Kafka 3.9, and its tag 3 of KIP-939.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from barnabas.coordinator.result import CoordinatorRecord
from barnabas.coordinator.transactions.transaction_state import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    NUMBERS,
    STATE_BY_NUMBER,
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.topic_partition import TopicPartition

KEY_VERSION = 0
_FIXED = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

PREVIOUS_PRODUCER_ID, NEXT_PRODUCER_ID, CLIENT_TRANSACTION_VERSION, LAST_PRODUCER_EPOCH = (
    0,
    1,
    2,
    10_000,
)
NEXT_PRODUCER_EPOCH = 3
EPOCH_IS_A_FENCE = 10_001
LATEST_MS = 10_002


@lru_cache(maxsize=128)
def _unsigned_varint(value: int) -> bytes:
    """Encode a number as a varint.

    The function is cached. Nearly all numbers are small, so most calls run no Python code.
    """
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_TAGGED: tuple[tuple[str, int, struct.Struct], ...] = (
    ("previous_producer_id", PREVIOUS_PRODUCER_ID, _INT64),
    ("next_producer_id", NEXT_PRODUCER_ID, _INT64),
    ("client_transaction_version", CLIENT_TRANSACTION_VERSION, _INT16),
    ("next_producer_epoch", NEXT_PRODUCER_EPOCH, _INT16),
    ("last_producer_epoch", LAST_PRODUCER_EPOCH, _INT16),
    ("epoch_is_a_fence", EPOCH_IS_A_FENCE, _INT8),
    ("latest_ms", LATEST_MS, _INT64),
)
"""The fields that version 0 cannot store, in the order of their tags."""
_TAG_ROWS = tuple(
    (
        TransactionMetadata._fields.index(name),
        TransactionMetadata._field_defaults[name],
        _unsigned_varint(tag) + _unsigned_varint(form.size),
        form,
    )
    for name, tag, form in _TAGGED
)
"""For each of these fields: its index, its default value, the bytes before its value, and its
form.
"""
_TAGGED_FROM = min(index for index, *_ in _TAG_ROWS)
_UNTAGGED = tuple(TransactionMetadata._field_defaults.values())[
    _TAGGED_FROM - len(TransactionMetadata._fields) :
]


@lru_cache(maxsize=256)
def encode_key(transactional_id: str) -> bytes:
    """Encode the key of a transactional id's records. It is cached, since a transaction writes
    several.
    """
    name = transactional_id.encode()
    return _INT16.pack(KEY_VERSION) + _INT16.pack(len(name)) + name


def decode_key(key: bytes) -> str | None:
    """Decode the transactional id.

    Gives:  None for a key of a later version, which readers skip.
    """
    (version,) = _INT16.unpack_from(key)
    if version != KEY_VERSION:
        return None
    (size,) = _INT16.unpack_from(key, 2)
    if len(key) != 4 + size:
        raise ValueError(f"a key of __transaction_state has a wrong length: {key!r}")
    return key[4:].decode()


def encode_value(metadata: TransactionMetadata) -> bytes:
    """Encode the value in the lowest version that can store it."""
    compact = metadata[_TAGGED_FROM:] != _UNTAGGED
    out = bytearray(
        _FIXED.pack(
            1 if compact else 0,
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.timeout_ms,
            NUMBERS[metadata.state],
        )
    )
    if metadata.state is TransactionState.EMPTY:
        assert not metadata.partitions, "an Empty transaction has partitions"
        out += b"\0" if compact else _INT32.pack(-1)
    elif not metadata.partitions:
        out += b"\1" if compact else _INT32.pack(0)
    else:
        _put_partitions(metadata, compact, out)
    out += _TIMES.pack(metadata.last_update_ms, metadata.start_ms)
    if compact:
        count, tags = 0, bytearray()
        for index, default, head, form in _TAG_ROWS:
            value = metadata[index]
            if value != default:
                tags += head + form.pack(value)
                count += 1
        out += _unsigned_varint(count) + tags
    return bytes(out)


def producer_id_of(value: bytes) -> int:
    """The producer id in an encoded value, without decoding the rest."""
    producer_id: int = _FIXED.unpack_from(value)[1]
    return producer_id


def record_of(metadata: TransactionMetadata) -> CoordinatorRecord:
    """Return the record with this content. If the id has expired, the record is a tombstone."""
    value = None if metadata.state is TransactionState.DEAD else encode_value(metadata)
    return CoordinatorRecord(encode_key(metadata.transactional_id), value)


def decode_record(key: bytes, value: bytes) -> TransactionMetadata | None:
    """Decode the content of a record. Return None if the key has a later version.

    Raises: ValueError.
    """
    transactional_id = decode_key(key)
    return None if transactional_id is None else decode_value(transactional_id, value)


def decode_value(transactional_id: str, value: bytes) -> TransactionMetadata:
    """Decode the content of a record's value.

    A value that cannot be read is an error, because without the record fenced producers would be
    accepted again.

    Raises: ValueError if the version is a later one, or if bytes are missing or left over.
    """
    try:
        version, producer_id, producer_epoch, timeout_ms, state = _FIXED.unpack_from(value)
        if version not in (0, 1):
            raise ValueError(
                f"__transaction_state: the value of {transactional_id!r} has the unknown version "
                f"{version}"
            )
        reader = _Reader(value, _FIXED.size, compact=version == 1)
        partitions = reader.partitions()
        last_update_ms, start_ms = reader.take(_TIMES)
        tags = reader.tags()
    except (struct.error, IndexError) as error:
        raise ValueError(
            f"__transaction_state: the value of {transactional_id!r} is cut off"
        ) from error
    if reader.position != len(value):
        raise ValueError(
            f"__transaction_state: bytes are left over in the value of {transactional_id!r}"
        )
    if state not in STATE_BY_NUMBER:
        raise ValueError(
            f"__transaction_state: the value of {transactional_id!r} has the unknown state {state}"
        )
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=STATE_BY_NUMBER[state],
        partitions=partitions,
        last_update_ms=last_update_ms,
        start_ms=start_ms,
        previous_producer_id=_tag(tags, PREVIOUS_PRODUCER_ID, _INT64, NO_PRODUCER_ID),
        last_producer_epoch=_tag(tags, LAST_PRODUCER_EPOCH, _INT16, NO_PRODUCER_EPOCH),
        next_producer_id=_tag(tags, NEXT_PRODUCER_ID, _INT64, NO_PRODUCER_ID),
        next_producer_epoch=_tag(tags, NEXT_PRODUCER_EPOCH, _INT16, NO_PRODUCER_EPOCH),
        epoch_is_a_fence=_tag(tags, EPOCH_IS_A_FENCE, _INT8, 0) == 1,
        latest_ms=_tag(tags, LATEST_MS, _INT64, NO_TIMESTAMP),
        client_transaction_version=_tag(tags, CLIENT_TRANSACTION_VERSION, _INT16, 0),
    )


def _tag(tags: dict[int, bytes], tag: int, form: struct.Struct, default: int) -> int:
    """The number in a tagged field; the default if the field is missing. Raises: ValueError for a
    wrong size.
    """
    data = tags.get(tag)
    if data is None:
        return default
    if len(data) != form.size:
        raise ValueError(
            f"__transaction_state: tag {tag} has {len(data)} bytes instead of {form.size}"
        )
    value: int = form.unpack(data)[0]
    return value


def _put_partitions(metadata: TransactionMetadata, compact: bool, out: bytearray) -> None:
    """Append the partitions, grouped by topic. Takes: compact, whether the version has compact
    arrays and tagged fields.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in metadata.partitions:
        topics.setdefault(topic, []).append(partition)
    # The fields are packed here, without helper functions, since every transaction runs this twice.
    if not compact:
        out += _INT32.pack(len(topics))
        for topic, indexes in topics.items():
            name, count = topic.encode(), len(indexes)
            out += struct.pack(f">h{len(name)}si{count}i", len(name), name, count, *indexes)
        return
    out += _unsigned_varint(len(topics) + 1)
    for topic, indexes in topics.items():
        name = topic.encode()
        out += _unsigned_varint(len(name) + 1) + name
        out += _unsigned_varint(len(indexes) + 1) + struct.pack(f">{len(indexes)}i", *indexes)
        out.append(0)


class _Reader:
    """Reads a value from a position on. Reading past the end raises struct.error or IndexError."""

    def __init__(self, data: bytes, position: int, *, compact: bool) -> None:
        self.data, self.position, self.compact = data, position, compact

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        values = form.unpack_from(self.data, self.position)
        self.position += form.size
        return values

    def unsigned_varint(self) -> int:
        """The next number with seven bits in each byte, the lowest bits first."""
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def size(self, form: struct.Struct) -> int:
        """Read a length or count; -1 means null."""
        return self.unsigned_varint() - 1 if self.compact else self.take(form)[0]

    def blob(self, size: int) -> bytes:
        """The next bytes. Raises: IndexError if there are fewer."""
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise IndexError
        data = self.data[self.position : end]
        self.position = end
        return data

    def partitions(self) -> dict[TopicPartition, None]:
        """The partitions of a transaction, in order."""
        partitions: dict[TopicPartition, None] = {}
        for _ in range(self.size(_INT32)):
            topic = self.blob(self.size(_INT16)).decode()
            count = self.size(_INT32)
            for index in struct.unpack(f">{max(count, 0)}i", self.blob(4 * count)):
                partitions[TopicPartition(topic, index)] = None
            self.tags()
        return partitions

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields at this position. A value of version 0 has none."""
        if not self.compact:
            return {}
        tags = {}
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            tags[tag] = self.blob(self.unsigned_varint())
        return tags
