"""Records of transactional ids in `__transaction_state`.

Made by `make protocol` from generator/schemas/records/transaction_log.json; not to be edited.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from barnabas.protocol.internal_records.record import encoded_uvarint, read_string, unpack_tag
from barnabas.protocol.primitives import (
    read_numbers,
    read_tags,
    read_uvarint,
    refuse_length,
    skip_tags,
)

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_INT8 = struct.Struct(">b")
_PACK_INT16 = struct.Struct(">h").pack
_PACK_INT16_2_TIMES = struct.Struct(">hh").pack
_PACK_INT16_INT64_INT16_INT32_INT8 = struct.Struct(">hqhib").pack
_PACK_INT16_INT64_INT16_INT32_INT8_INT32 = struct.Struct(">hqhibi").pack
_PACK_INT64 = struct.Struct(">q").pack
_PACK_INT64_2_TIMES = struct.Struct(">qq").pack
_PACK_INT8 = struct.Struct(">b").pack
_UNPACK_INT16 = struct.Struct(">h").unpack_from
_UNPACK_INT32 = struct.Struct(">i").unpack_from
_UNPACK_INT64_2_TIMES = struct.Struct(">qq").unpack_from
_UNPACK_INT64_INT16_INT32_INT8 = struct.Struct(">qhib").unpack_from
_UNPACK_INT64_INT16_INT32_INT8_INT32 = struct.Struct(">qhibi").unpack_from

PartitionsSchema = tuple[str, Collection[int]]
"""topic, partition_ids"""


def _encode_partitions_schema_rows_v0(rows: Collection[PartitionsSchema]) -> bytes:
    out = []
    for topic, partition_ids in rows:
        topic_utf8 = topic.encode()
        out.append(
            _PACK_INT16(len(topic_utf8))
            + topic_utf8
            + struct.pack(f">i{len(partition_ids)}i", len(partition_ids), *partition_ids)
        )
    return b"".join(out)


def _encode_partitions_schema_rows_v1(rows: Collection[PartitionsSchema]) -> bytes:
    out = []
    for topic, partition_ids in rows:
        topic_utf8 = topic.encode()
        out.append(
            encoded_uvarint(len(topic_utf8) + 1)
            + topic_utf8
            + encoded_uvarint(len(partition_ids) + 1)
            + struct.pack(f">{len(partition_ids)}i", *partition_ids)
            + b"\0"
        )
    return b"".join(out)


def _read_partitions_schema_rows_v0(
    data: bytes, at: int, count: int
) -> tuple[list[PartitionsSchema], int]:
    rows: list[PartitionsSchema] = []
    for _ in range(count):
        (topic_size,) = _UNPACK_INT16(data, at)
        at += 2
        end = at + topic_size
        if topic_size < 0:
            refuse_length(topic_size)
        topic = data[at:end].decode()
        at = end
        (partition_ids_count,) = _UNPACK_INT32(data, at)
        at += 4
        partition_ids = struct.unpack_from(f">{partition_ids_count}i", data, at)
        at += 4 * partition_ids_count
        rows.append((topic, partition_ids))
    return rows, at


def _read_partitions_schema_rows_v1(
    data: bytes, at: int, count: int
) -> tuple[list[PartitionsSchema], int]:
    rows: list[PartitionsSchema] = []
    for _ in range(count):
        topic, at = read_string(data, at)
        partition_ids, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append((topic, partition_ids))
    return rows, at


def encode_transaction_log_key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    transactional_id_utf8 = transactional_id.encode()
    return _PACK_INT16_2_TIMES(0, len(transactional_id_utf8)) + transactional_id_utf8


def read_transaction_log_key(data: bytes) -> tuple[str, int]:
    """Read transactional_id, and the position after them."""
    (transactional_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + transactional_id_size
    if transactional_id_size < 0 or end > len(data):
        refuse_length(transactional_id_size)
    transactional_id = data[at:end].decode()
    at = end
    return transactional_id, at


def encode_transaction_log_value_v0(
    producer_id: int,
    producer_epoch: int,
    transaction_timeout_ms: int,
    transaction_status: int,
    transaction_partitions: Collection[PartitionsSchema] | None,
    transaction_last_update_timestamp_ms: int,
    transaction_start_timestamp_ms: int,
) -> bytes:
    """The state of a transactional id, in version 0."""
    return (
        _PACK_INT16_INT64_INT16_INT32_INT8_INT32(
            0,
            producer_id,
            producer_epoch,
            transaction_timeout_ms,
            transaction_status,
            len(transaction_partitions) if transaction_partitions is not None else -1,
        )
        + (
            b""
            if not transaction_partitions
            else _encode_partitions_schema_rows_v0(transaction_partitions)
        )
        + _PACK_INT64_2_TIMES(transaction_last_update_timestamp_ms, transaction_start_timestamp_ms)
    )


def encode_transaction_log_value_v1(
    producer_id: int,
    producer_epoch: int,
    transaction_timeout_ms: int,
    transaction_status: int,
    transaction_partitions: Collection[PartitionsSchema] | None,
    transaction_last_update_timestamp_ms: int,
    transaction_start_timestamp_ms: int,
    previous_producer_id: int = -1,
    next_producer_id: int = -1,
    client_transaction_version: int = 0,
    next_producer_epoch: int = -1,
    last_producer_epoch: int = -1,
    epoch_is_a_fence: int = 0,
    latest_ms: int = -1,
) -> bytes:
    """The state of a transactional id, in version 1."""
    tags = []
    if previous_producer_id != -1:
        tags.append(b"\x00\x08" + _PACK_INT64(previous_producer_id))
    if next_producer_id != -1:
        tags.append(b"\x01\x08" + _PACK_INT64(next_producer_id))
    if client_transaction_version != 0:
        tags.append(b"\x02\x02" + _PACK_INT16(client_transaction_version))
    if next_producer_epoch != -1:
        tags.append(b"\x03\x02" + _PACK_INT16(next_producer_epoch))
    if last_producer_epoch != -1:
        tags.append(b"\x90N\x02" + _PACK_INT16(last_producer_epoch))
    if epoch_is_a_fence != 0:
        tags.append(b"\x91N\x01" + _PACK_INT8(epoch_is_a_fence))
    if latest_ms != -1:
        tags.append(b"\x92N\x08" + _PACK_INT64(latest_ms))
    return (
        _PACK_INT16_INT64_INT16_INT32_INT8(
            1, producer_id, producer_epoch, transaction_timeout_ms, transaction_status
        )
        + encoded_uvarint(
            len(transaction_partitions) + 1 if transaction_partitions is not None else 0
        )
        + (
            b""
            if not transaction_partitions
            else _encode_partitions_schema_rows_v1(transaction_partitions)
        )
        + _PACK_INT64_2_TIMES(transaction_last_update_timestamp_ms, transaction_start_timestamp_ms)
        + encoded_uvarint(len(tags))
        + b"".join(tags)
    )


def _read_transaction_log_value_v0(
    data: bytes,
) -> tuple[
    int,
    int,
    int,
    int,
    Collection[PartitionsSchema] | None,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
]:
    (
        producer_id,
        producer_epoch,
        transaction_timeout_ms,
        transaction_status,
        transaction_partitions_count,
    ) = _UNPACK_INT64_INT16_INT32_INT8_INT32(data, 2)
    at = 21
    transaction_partitions: Collection[PartitionsSchema] | None = None
    if transaction_partitions_count >= 0:
        transaction_partitions, at = _read_partitions_schema_rows_v0(
            data, at, transaction_partitions_count
        )
    transaction_last_update_timestamp_ms, transaction_start_timestamp_ms = _UNPACK_INT64_2_TIMES(
        data, at
    )
    at += 16
    return (
        producer_id,
        producer_epoch,
        transaction_timeout_ms,
        transaction_status,
        transaction_partitions,
        transaction_last_update_timestamp_ms,
        transaction_start_timestamp_ms,
        -1,
        -1,
        0,
        -1,
        -1,
        0,
        -1,
        at,
    )


def _read_transaction_log_value_v1(
    data: bytes,
) -> tuple[
    int,
    int,
    int,
    int,
    Collection[PartitionsSchema] | None,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
]:
    producer_id, producer_epoch, transaction_timeout_ms, transaction_status = (
        _UNPACK_INT64_INT16_INT32_INT8(data, 2)
    )
    at = 17
    transaction_partitions_count, at = read_uvarint(data, at)
    transaction_partitions_count -= 1
    transaction_partitions: Collection[PartitionsSchema] | None = None
    if transaction_partitions_count >= 0:
        transaction_partitions, at = _read_partitions_schema_rows_v1(
            data, at, transaction_partitions_count
        )
    transaction_last_update_timestamp_ms, transaction_start_timestamp_ms = _UNPACK_INT64_2_TIMES(
        data, at
    )
    at += 16
    previous_producer_id = -1
    next_producer_id = -1
    client_transaction_version = 0
    next_producer_epoch = -1
    last_producer_epoch = -1
    epoch_is_a_fence = 0
    latest_ms = -1
    if data[at] == 0:
        at += 1
    else:
        tags, at = read_tags(data, at)
        if 0 in tags:
            previous_producer_id = unpack_tag(tags, 0, _INT64)
        if 1 in tags:
            next_producer_id = unpack_tag(tags, 1, _INT64)
        if 2 in tags:
            client_transaction_version = unpack_tag(tags, 2, _INT16)
        if 3 in tags:
            next_producer_epoch = unpack_tag(tags, 3, _INT16)
        if 10000 in tags:
            last_producer_epoch = unpack_tag(tags, 10000, _INT16)
        if 10001 in tags:
            epoch_is_a_fence = unpack_tag(tags, 10001, _INT8)
        if 10002 in tags:
            latest_ms = unpack_tag(tags, 10002, _INT64)
    return (
        producer_id,
        producer_epoch,
        transaction_timeout_ms,
        transaction_status,
        transaction_partitions,
        transaction_last_update_timestamp_ms,
        transaction_start_timestamp_ms,
        previous_producer_id,
        next_producer_id,
        client_transaction_version,
        next_producer_epoch,
        last_producer_epoch,
        epoch_is_a_fence,
        latest_ms,
        at,
    )


read_transaction_log_value = (
    _read_transaction_log_value_v0,
    _read_transaction_log_value_v1,
)
"""Read producer_id, producer_epoch, transaction_timeout_ms, transaction_status,
transaction_partitions, transaction_last_update_timestamp_ms, transaction_start_timestamp_ms,
previous_producer_id, next_producer_id, client_transaction_version, next_producer_epoch,
last_producer_epoch, epoch_is_a_fence, latest_ms, and the position after them. Takes: the
version, as the index.
"""
