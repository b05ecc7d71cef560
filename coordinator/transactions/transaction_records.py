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
from functools import lru_cache

from barnabas.coordinator.result import CoordinatorRecord
from barnabas.coordinator.transactions.transaction_state import (
    NUMBERS,
    STATE_BY_NUMBER,
    TransactionMetadata,
    TransactionState,
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
    """Encode the value in the lowest version that can store it."""
    topics: dict[str, list[int]] = {}
    for topic, partition in metadata.partitions:
        topics.setdefault(topic, []).append(partition)
    rows = topics.items() if metadata.state is not TransactionState.EMPTY else None
    assert rows is not None or not topics, "an Empty transaction has partitions"
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
