"""Records of share partitions (KIP-932) in `__share_group_state`.

Made by `make protocol` from generator/schemas/records/share_state.json; not to be edited.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import Any

from barnabas.protocol.internal_records.record import encoded_uvarint, unpack_tag
from barnabas.protocol.primitives import read_tags, read_uvarint, refuse_length, skip_tags

_INT32 = struct.Struct(">i")
_PACK_INT16_2_TIMES = struct.Struct(">hh").pack
_PACK_INT16_INT32_2_TIMES_INT64 = struct.Struct(">hiiq").pack
_PACK_INT16_INT32_3_TIMES_INT64_3_TIMES = struct.Struct(">hiiiqqq").pack
_PACK_INT32 = struct.Struct(">i").pack
_PACK_INT64_2_TIMES_INT8_INT16_NO_TAGS = struct.Struct(">qqbhx").pack
_PACK_UUID_INT32 = struct.Struct(">16si").pack
_UNPACK_INT16 = struct.Struct(">h").unpack_from
_UNPACK_INT32_2_TIMES_INT64 = struct.Struct(">iiq").unpack_from
_UNPACK_INT32_3_TIMES_INT64_3_TIMES = struct.Struct(">iiiqqq").unpack_from
_UNPACK_INT64_2_TIMES_INT8_INT16 = struct.Struct(">qqbh").unpack_from
_UNPACK_UUID_INT32 = struct.Struct(">16si").unpack_from

StateBatch = tuple[int, int, int, int]
"""first_offset, last_offset, delivery_state, delivery_count"""


def _encode_state_batch_rows(rows: Collection[StateBatch]) -> bytes:
    return b"".join([_PACK_INT64_2_TIMES_INT8_INT16_NO_TAGS(*row) for row in rows])


def _read_state_batch_rows(data: bytes, at: int, count: int) -> tuple[list[StateBatch], int]:
    rows: list[StateBatch] = []
    for _ in range(count):
        row = _UNPACK_INT64_2_TIMES_INT8_INT16(data, at)
        at += 19
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append(row)
    return rows, at


def encode_share_snapshot_key(group_id: str, topic_id: bytes, partition: int) -> bytes:
    """The key of a snapshot of a share partition."""
    group_id_utf8 = group_id.encode()
    return (
        _PACK_INT16_2_TIMES(0, len(group_id_utf8))
        + group_id_utf8
        + _PACK_UUID_INT32(topic_id, partition)
    )


def read_share_snapshot_key(data: bytes) -> tuple[str, bytes, int, int]:
    """Read group_id, topic_id, partition, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0:
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    topic_id, partition = _UNPACK_UUID_INT32(data, at)
    at += 20
    return group_id, topic_id, partition, at


def encode_share_snapshot_value(
    snapshot_epoch: int,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int,
    create_timestamp: int,
    write_timestamp: int,
    state_batches: Collection[StateBatch],
    delivery_complete_count: int = -1,
) -> bytes:
    """The whole state of a share partition."""
    tags = b"\0"
    if delivery_complete_count != -1:
        tags = b"\x01\x00\x04" + _PACK_INT32(delivery_complete_count)
    return (
        _PACK_INT16_INT32_3_TIMES_INT64_3_TIMES(
            0,
            snapshot_epoch,
            state_epoch,
            leader_epoch,
            start_offset,
            create_timestamp,
            write_timestamp,
        )
        + encoded_uvarint(len(state_batches) + 1)
        + _encode_state_batch_rows(state_batches)
        + tags
    )


def read_share_snapshot_value(
    data: bytes,
) -> tuple[int, int, int, int, int, int, Collection[StateBatch], int, int]:
    """Read snapshot_epoch, state_epoch, leader_epoch, start_offset, create_timestamp,
    write_timestamp, state_batches, delivery_complete_count, and the position after them.
    """
    snapshot_epoch, state_epoch, leader_epoch, start_offset, create_timestamp, write_timestamp = (
        _UNPACK_INT32_3_TIMES_INT64_3_TIMES(data, 2)
    )
    at = 38
    state_batches_count, at = read_uvarint(data, at)
    state_batches_count -= 1
    if state_batches_count < 0:
        refuse_length(state_batches_count)
    state_batches, at = _read_state_batch_rows(data, at, state_batches_count)
    delivery_complete_count = -1
    if data[at] == 0:
        at += 1
    else:
        tags, at = read_tags(data, at)
        if 0 in tags:
            delivery_complete_count = unpack_tag(tags, 0, _INT32)
    return (
        snapshot_epoch,
        state_epoch,
        leader_epoch,
        start_offset,
        create_timestamp,
        write_timestamp,
        state_batches,
        delivery_complete_count,
        at,
    )


def encode_share_update_key(group_id: str, topic_id: bytes, partition: int) -> bytes:
    """The key of an update of a share partition."""
    group_id_utf8 = group_id.encode()
    return (
        _PACK_INT16_2_TIMES(1, len(group_id_utf8))
        + group_id_utf8
        + _PACK_UUID_INT32(topic_id, partition)
    )


def read_share_update_key(data: bytes) -> tuple[str, bytes, int, int]:
    """Read group_id, topic_id, partition, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0:
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    topic_id, partition = _UNPACK_UUID_INT32(data, at)
    at += 20
    return group_id, topic_id, partition, at


def encode_share_update_value(
    snapshot_epoch: int,
    leader_epoch: int,
    start_offset: int,
    state_batches: Collection[StateBatch],
    delivery_complete_count: int = -1,
) -> bytes:
    """What changed in the state of a share partition since the last record."""
    tags = b"\0"
    if delivery_complete_count != -1:
        tags = b"\x01\x00\x04" + _PACK_INT32(delivery_complete_count)
    return (
        _PACK_INT16_INT32_2_TIMES_INT64(0, snapshot_epoch, leader_epoch, start_offset)
        + encoded_uvarint(len(state_batches) + 1)
        + _encode_state_batch_rows(state_batches)
        + tags
    )


def read_share_update_value(data: bytes) -> tuple[int, int, int, Collection[StateBatch], int, int]:
    """Read snapshot_epoch, leader_epoch, start_offset, state_batches, delivery_complete_count,
    and the position after them.
    """
    snapshot_epoch, leader_epoch, start_offset = _UNPACK_INT32_2_TIMES_INT64(data, 2)
    at = 18
    state_batches_count, at = read_uvarint(data, at)
    state_batches_count -= 1
    if state_batches_count < 0:
        refuse_length(state_batches_count)
    state_batches, at = _read_state_batch_rows(data, at, state_batches_count)
    delivery_complete_count = -1
    if data[at] == 0:
        at += 1
    else:
        tags, at = read_tags(data, at)
        if 0 in tags:
            delivery_complete_count = unpack_tag(tags, 0, _INT32)
    return snapshot_epoch, leader_epoch, start_offset, state_batches, delivery_complete_count, at


READ_KEY: dict[int, Callable[[bytes], tuple[Any, ...]]] = {
    0: read_share_snapshot_key,
    1: read_share_update_key,
}
ENCODE_KEY: dict[int, Callable[..., bytes]] = {
    0: encode_share_snapshot_key,
    1: encode_share_update_key,
}
