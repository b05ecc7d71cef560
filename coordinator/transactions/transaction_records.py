"""Keys and values of __transaction_state.

Their bytes are Kafka's (protocol/generator/schemas/records/transaction_log.json). The partitions of
an Empty transaction are null, those of a completed one an empty array. A tombstone (no value) means
that the transactional id has expired.

Apache Kafka 3.9 writes version 0 while transaction.version is 0, and reads both. We write version 0
too, byte for byte, unless a field has a value that version 0 cannot store:

  - after a producer requested its next epoch: a retry has to be recognised after a restart
    (KAFKA-20357);
  - after the coordinator aborted a transaction: a producer that guesses the epoch has to be
    rejected;
  - while the wall clock is behind an earlier record.

Kafka 3.9 has no tags for last_producer_epoch, epoch_is_a_fence and latest_ms: our tag numbers are
far from Kafka's, and readers skip unknown tags.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from functools import lru_cache

from barnabas.coordinator.result import EncodedRecord
from barnabas.coordinator.transactions.transaction_state import (
    DEAD,
    EMPTY,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    NUMBERS,
    STATE_BY_NUMBER,
    TransactionMetadata,
)
from barnabas.protocol.internal_records.transaction_log import (
    encode_transaction_log_key,
    encode_transaction_log_value_v0,
    encode_transaction_log_value_v1,
    read_transaction_log_key,
    read_transaction_log_value,
)
from barnabas.protocol.topic_partition import TopicPartition

_VALUE_START = struct.Struct(">hq")  # version, producer_id
# The fields of a value around its partitions. In version 1 tags follow the times: in a transaction
# of version 2 its version, and after the end also the producer that requested the end.
_HEAD = struct.Struct(">hqhib")  # version, producer id and epoch, timeout, state
_TIMES = struct.Struct(">qq")  # of the last update, and of the start
_TIMES_OF_OPEN = struct.Struct(">qqb2sh")
_TIMES_OF_ENDED = struct.Struct(">qqb2sq2sh3sh")
_PREVIOUS_ID_TAG, _VERSION_TAG, _LAST_EPOCH_TAG = b"\0\x08", b"\2\2", b"\x90N\2"
_MOST_CACHED_PARTITIONS = 32
_UNREADABLE = (struct.error, IndexError, ValueError)
# The fields that version 0 cannot store are the last ones, and have these values if they are not
# set.
_ONLY_IN_VERSION_1 = TransactionMetadata._fields.index("previous_producer_id")
_UNSET = tuple(
    TransactionMetadata._field_defaults[name]
    for name in TransactionMetadata._fields[_ONLY_IN_VERSION_1:]
)


@lru_cache(maxsize=256)
def encode_key(transactional_id: str) -> bytes:
    """Encode the key of a transactional id's records. It is cached, since a transaction writes
    several.
    """
    return encode_transaction_log_key(transactional_id)


def decode_key(key: bytes) -> str | None:
    """Decode the transactional id.

    Gives:  None for a key of a later version, which readers skip.
    """
    if key[0] or key[1]:
        return None
    try:
        transactional_id, end = read_transaction_log_key(key)
    except _UNREADABLE:
        transactional_id, end = "", -1
    if end != len(key):
        raise ValueError(f"a key of __transaction_state has a wrong length: {key!r}")
    return transactional_id


def encode_value(metadata: TransactionMetadata) -> bytes:
    """Encode the value in the lowest version that can store it.

    Each transaction writes three values. So what nearly all of them contain is packed here, and the
    partitions, which are often the same, are encoded once.
    """
    (
        _,
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        partitions,
        last_update_ms,
        start_ms,
        previous_producer_id,
        last_producer_epoch,
        next_producer_id,
        next_producer_epoch,
        client_transaction_version,
        epoch_is_a_fence,
        latest_ms,
    ) = metadata
    number = NUMBERS[state]
    if (
        state is EMPTY
        or next_producer_id != NO_PRODUCER_ID
        or next_producer_epoch != NO_PRODUCER_EPOCH
        or epoch_is_a_fence
        or latest_ms != NO_TIMESTAMP
        or len(partitions) > _MOST_CACHED_PARTITIONS
    ):
        return encode_any_value(metadata)
    version = 1 if client_transaction_version else 0
    if previous_producer_id == NO_PRODUCER_ID and last_producer_epoch == NO_PRODUCER_EPOCH:
        if version:
            times_and_tags = _TIMES_OF_OPEN.pack(
                last_update_ms, start_ms, 1, _VERSION_TAG, client_transaction_version
            )
        else:
            times_and_tags = _TIMES.pack(last_update_ms, start_ms)
    elif (
        version
        and previous_producer_id != NO_PRODUCER_ID
        and last_producer_epoch != NO_PRODUCER_EPOCH
    ):
        times_and_tags = _TIMES_OF_ENDED.pack(
            last_update_ms, start_ms, 3, _PREVIOUS_ID_TAG, previous_producer_id,
            _VERSION_TAG, client_transaction_version, _LAST_EPOCH_TAG, last_producer_epoch,
        )  # fmt: skip
    else:
        return encode_any_value(metadata)
    head = _HEAD.pack(version, producer_id, producer_epoch, timeout_ms, number)
    return b"".join((head, _encoded_partitions(version, tuple(partitions)), times_and_tags))


@lru_cache(maxsize=64)
def _encoded_partitions(version: int, partitions: tuple[TopicPartition, ...]) -> bytes:
    """The bytes of the partitions in a value, with their count."""
    rows = _by_topic(partitions)
    if version == 0:
        value = encode_transaction_log_value_v0(0, 0, 0, 0, rows, 0, 0)
        return value[_HEAD.size : -_TIMES.size]
    value = encode_transaction_log_value_v1(0, 0, 0, 0, rows, 0, 0)
    return value[_HEAD.size : -_TIMES.size - 1]  # without the number of tags


def _by_topic(partitions: Iterable[TopicPartition]) -> Collection[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics.items()


def encode_any_value(metadata: TransactionMetadata) -> bytes:
    """Encode the value with the generated encoder, whatever its fields are."""
    rows = _by_topic(metadata.partitions) if metadata.state is not EMPTY else None
    assert rows is not None or not metadata.partitions, "an Empty transaction has partitions"
    if metadata[_ONLY_IN_VERSION_1:] == _UNSET:
        return encode_transaction_log_value_v0(
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.timeout_ms,
            NUMBERS[metadata.state],
            rows,
            metadata.last_update_ms,
            metadata.start_ms,
        )
    return encode_transaction_log_value_v1(
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        NUMBERS[metadata.state],
        rows,
        metadata.last_update_ms,
        metadata.start_ms,
        metadata.previous_producer_id,
        metadata.next_producer_id,
        metadata.client_transaction_version,
        metadata.next_producer_epoch,
        metadata.last_producer_epoch,
        metadata.epoch_is_a_fence,
        metadata.latest_ms,
    )


def producer_id_of(value: bytes) -> int:
    """The producer id in an encoded value, without decoding the rest."""
    producer_id: int = _VALUE_START.unpack_from(value)[1]
    return producer_id


def record_of(metadata: TransactionMetadata) -> EncodedRecord:
    """Return the record with this content. If the id has expired, the record is a tombstone."""
    value = None if metadata.state is DEAD else encode_value(metadata)
    return encode_key(metadata.transactional_id), value


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
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version < len(read_transaction_log_value):
        raise ValueError(
            f"__transaction_state: the value of {transactional_id!r} has the unknown version "
            f"{version}"
        )
    try:
        (
            producer_id,
            producer_epoch,
            timeout_ms,
            state,
            topics,
            last_update_ms,
            start_ms,
            previous_producer_id,
            next_producer_id,
            client_transaction_version,
            next_producer_epoch,
            last_producer_epoch,
            epoch_is_a_fence,
            latest_ms,
            end,
        ) = read_transaction_log_value[version](value)
    except _UNREADABLE as error:
        raise ValueError(
            f"__transaction_state: the value of {transactional_id!r} is cut off or damaged: {error}"
        ) from error
    if end != len(value):
        raise ValueError(
            f"__transaction_state: bytes are left over in the value of {transactional_id!r}"
        )
    if state not in STATE_BY_NUMBER:
        raise ValueError(
            f"__transaction_state: the value of {transactional_id!r} has the unknown state {state}"
        )
    return TransactionMetadata(
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        STATE_BY_NUMBER[state],
        {
            TopicPartition(topic, index): None
            for topic, indexes in topics or ()
            for index in indexes
        },
        last_update_ms,
        start_ms,
        previous_producer_id,
        last_producer_epoch,
        next_producer_id,
        next_producer_epoch,
        client_transaction_version,
        epoch_is_a_fence == 1,
        latest_ms,
    )
