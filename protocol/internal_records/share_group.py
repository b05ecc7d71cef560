"""Records of share groups (KIP-932) in `__consumer_offsets`.

Made by `make protocol` from generator/schemas/records/share_group.json; not to be edited.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Collection
from typing import Any

from barnabas.protocol.internal_records.record import (
    encoded_strings,
    encoded_uvarint,
    read_nullable_string,
    read_string,
    read_strings,
    unpack_tag,
)
from barnabas.protocol.primitives import (
    read_numbers,
    read_tags,
    read_uvarint,
    refuse_length,
    skip_tags,
)

_INT64 = struct.Struct(">q")
_PACK_INT16 = struct.Struct(">h").pack
_PACK_INT16_2_TIMES = struct.Struct(">hh").pack
_PACK_INT16_INT32 = struct.Struct(">hi").pack
_PACK_INT16_INT32_2_TIMES_INT8 = struct.Struct(">hiib").pack
_PACK_INT16_INT32_INT64_NO_TAGS = struct.Struct(">hiqx").pack
_PACK_INT64 = struct.Struct(">q").pack
_PACK_UUID = struct.Struct(">16s").pack
_UNPACK_INT16 = struct.Struct(">h").unpack_from
_UNPACK_INT32 = struct.Struct(">i").unpack_from
_UNPACK_INT32_2_TIMES_INT8 = struct.Struct(">iib").unpack_from
_UNPACK_INT32_INT64 = struct.Struct(">iq").unpack_from
_UNPACK_UUID = struct.Struct(">16s").unpack_from

TopicPartitions = tuple[uuid.UUID, Collection[int]]
"""topic_id, partitions"""
TopicPartitionsInfo = tuple[uuid.UUID, str, Collection[int]]
"""topic_id, topic_name, partitions"""
TopicInfo = tuple[uuid.UUID, str]
"""topic_id, topic_name"""


def _encode_topic_partitions_rows(rows: Collection[TopicPartitions]) -> bytes:
    out = []
    for topic_id, partitions in rows:
        out.append(
            _PACK_UUID(topic_id.bytes)
            + encoded_uvarint(len(partitions) + 1)
            + struct.pack(f">{len(partitions)}i", *partitions)
            + b"\0"
        )
    return b"".join(out)


def _read_topic_partitions_rows(
    data: bytes, at: int, count: int
) -> tuple[list[TopicPartitions], int]:
    rows: list[TopicPartitions] = []
    for _ in range(count):
        (topic_id_bytes,) = _UNPACK_UUID(data, at)
        at += 16
        topic_id = uuid.UUID(bytes=topic_id_bytes)
        partitions, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append((topic_id, partitions))
    return rows, at


def _encode_topic_partitions_info_rows(rows: Collection[TopicPartitionsInfo]) -> bytes:
    out = []
    for topic_id, topic_name, partitions in rows:
        topic_name_utf8 = topic_name.encode()
        out.append(
            _PACK_UUID(topic_id.bytes)
            + encoded_uvarint(len(topic_name_utf8) + 1)
            + topic_name_utf8
            + encoded_uvarint(len(partitions) + 1)
            + struct.pack(f">{len(partitions)}i", *partitions)
            + b"\0"
        )
    return b"".join(out)


def _encode_topic_info_rows(rows: Collection[TopicInfo]) -> bytes:
    out = []
    for topic_id, topic_name in rows:
        topic_name_utf8 = topic_name.encode()
        out.append(
            _PACK_UUID(topic_id.bytes)
            + encoded_uvarint(len(topic_name_utf8) + 1)
            + topic_name_utf8
            + b"\0"
        )
    return b"".join(out)


def _read_topic_partitions_info_rows(
    data: bytes, at: int, count: int
) -> tuple[list[TopicPartitionsInfo], int]:
    rows: list[TopicPartitionsInfo] = []
    for _ in range(count):
        (topic_id_bytes,) = _UNPACK_UUID(data, at)
        at += 16
        topic_id = uuid.UUID(bytes=topic_id_bytes)
        topic_name, at = read_string(data, at)
        partitions, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append((topic_id, topic_name, partitions))
    return rows, at


def _read_topic_info_rows(data: bytes, at: int, count: int) -> tuple[list[TopicInfo], int]:
    rows: list[TopicInfo] = []
    for _ in range(count):
        (topic_id_bytes,) = _UNPACK_UUID(data, at)
        at += 16
        topic_id = uuid.UUID(bytes=topic_id_bytes)
        topic_name, at = read_string(data, at)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append((topic_id, topic_name))
    return rows, at


def encode_share_group_member_metadata_key(group_id: str, member_id: str) -> bytes:
    """The key of a member."""
    group_id_utf8 = group_id.encode()
    member_id_utf8 = member_id.encode()
    return (
        _PACK_INT16_2_TIMES(10, len(group_id_utf8))
        + group_id_utf8
        + _PACK_INT16(len(member_id_utf8))
        + member_id_utf8
    )


def read_share_group_member_metadata_key(data: bytes) -> tuple[str, str, int]:
    """Read group_id, member_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0:
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    (member_id_size,) = _UNPACK_INT16(data, at)
    at += 2
    end = at + member_id_size
    if member_id_size < 0 or end > len(data):
        refuse_length(member_id_size)
    member_id = data[at:end].decode()
    at = end
    return group_id, member_id, at


def encode_share_group_member_metadata_value(
    rack_id: str | None, client_id: str, client_host: str, subscribed_topic_names: Collection[str]
) -> bytes:
    """A member: its identity and its subscription."""
    rack_id_utf8 = b"" if rack_id is None else rack_id.encode()
    client_id_utf8 = client_id.encode()
    client_host_utf8 = client_host.encode()
    return b"".join(
        (
            _PACK_INT16(0),
            encoded_uvarint(len(rack_id_utf8) + 1 if rack_id is not None else 0),
            rack_id_utf8,
            encoded_uvarint(len(client_id_utf8) + 1),
            client_id_utf8,
            encoded_uvarint(len(client_host_utf8) + 1),
            client_host_utf8,
            encoded_uvarint(len(subscribed_topic_names) + 1),
            encoded_strings(subscribed_topic_names),
            b"\0",
        )
    )


def read_share_group_member_metadata_value(
    data: bytes,
) -> tuple[str | None, str, str, Collection[str], int]:
    """Read rack_id, client_id, client_host, subscribed_topic_names, and the position after them."""
    at = 2
    rack_id, at = read_nullable_string(data, at)
    client_id, at = read_string(data, at)
    client_host, at = read_string(data, at)
    subscribed_topic_names, at = read_strings(data, at)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return rack_id, client_id, client_host, subscribed_topic_names, at


def encode_share_group_metadata_key(group_id: str) -> bytes:
    """The key of a share group."""
    group_id_utf8 = group_id.encode()
    return _PACK_INT16_2_TIMES(11, len(group_id_utf8)) + group_id_utf8


def read_share_group_metadata_key(data: bytes) -> tuple[str, int]:
    """Read group_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0 or end > len(data):
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    return group_id, at


def encode_share_group_metadata_value(epoch: int, metadata_hash: int) -> bytes:
    """The epoch of a share group."""
    return _PACK_INT16_INT32_INT64_NO_TAGS(0, epoch, metadata_hash)


def read_share_group_metadata_value(data: bytes) -> tuple[int, int, int]:
    """Read epoch, metadata_hash, and the position after them."""
    epoch, metadata_hash = _UNPACK_INT32_INT64(data, 2)
    at = 14
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return epoch, metadata_hash, at


def encode_share_group_target_assignment_metadata_key(group_id: str) -> bytes:
    """The key of the target assignment."""
    group_id_utf8 = group_id.encode()
    return _PACK_INT16_2_TIMES(12, len(group_id_utf8)) + group_id_utf8


def read_share_group_target_assignment_metadata_key(data: bytes) -> tuple[str, int]:
    """Read group_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0 or end > len(data):
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    return group_id, at


def encode_share_group_target_assignment_metadata_value(
    assignment_epoch: int, assignment_timestamp: int = 0
) -> bytes:
    """The epoch of the target assignment."""
    tags = b"\0"
    if assignment_timestamp != 0:
        tags = b"\x01\x00\x08" + _PACK_INT64(assignment_timestamp)
    return _PACK_INT16_INT32(0, assignment_epoch) + tags


def read_share_group_target_assignment_metadata_value(data: bytes) -> tuple[int, int, int]:
    """Read assignment_epoch, assignment_timestamp, and the position after them."""
    (assignment_epoch,) = _UNPACK_INT32(data, 2)
    at = 6
    assignment_timestamp = 0
    if data[at] == 0:
        at += 1
    else:
        tags, at = read_tags(data, at)
        if 0 in tags:
            assignment_timestamp = unpack_tag(tags, 0, _INT64)
    return assignment_epoch, assignment_timestamp, at


def encode_share_group_target_assignment_member_key(group_id: str, member_id: str) -> bytes:
    """The key of a member's target assignment."""
    group_id_utf8 = group_id.encode()
    member_id_utf8 = member_id.encode()
    return (
        _PACK_INT16_2_TIMES(13, len(group_id_utf8))
        + group_id_utf8
        + _PACK_INT16(len(member_id_utf8))
        + member_id_utf8
    )


def read_share_group_target_assignment_member_key(data: bytes) -> tuple[str, str, int]:
    """Read group_id, member_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0:
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    (member_id_size,) = _UNPACK_INT16(data, at)
    at += 2
    end = at + member_id_size
    if member_id_size < 0 or end > len(data):
        refuse_length(member_id_size)
    member_id = data[at:end].decode()
    at = end
    return group_id, member_id, at


def encode_share_group_target_assignment_member_value(
    topic_partitions: Collection[TopicPartitions],
) -> bytes:
    """The target assignment of a member."""
    return (
        _PACK_INT16(0)
        + encoded_uvarint(len(topic_partitions) + 1)
        + _encode_topic_partitions_rows(topic_partitions)
        + b"\0"
    )


def read_share_group_target_assignment_member_value(
    data: bytes,
) -> tuple[Collection[TopicPartitions], int]:
    """Read topic_partitions, and the position after them."""
    at = 2
    topic_partitions_count, at = read_uvarint(data, at)
    topic_partitions_count -= 1
    if topic_partitions_count < 0:
        refuse_length(topic_partitions_count)
    topic_partitions, at = _read_topic_partitions_rows(data, at, topic_partitions_count)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return topic_partitions, at


def encode_share_group_current_member_assignment_key(group_id: str, member_id: str) -> bytes:
    """The key of a member's current assignment."""
    group_id_utf8 = group_id.encode()
    member_id_utf8 = member_id.encode()
    return (
        _PACK_INT16_2_TIMES(14, len(group_id_utf8))
        + group_id_utf8
        + _PACK_INT16(len(member_id_utf8))
        + member_id_utf8
    )


def read_share_group_current_member_assignment_key(data: bytes) -> tuple[str, str, int]:
    """Read group_id, member_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0:
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    (member_id_size,) = _UNPACK_INT16(data, at)
    at += 2
    end = at + member_id_size
    if member_id_size < 0 or end > len(data):
        refuse_length(member_id_size)
    member_id = data[at:end].decode()
    at = end
    return group_id, member_id, at


def encode_share_group_current_member_assignment_value(
    member_epoch: int,
    previous_member_epoch: int,
    state: int,
    assigned_partitions: Collection[TopicPartitions],
) -> bytes:
    """The current assignment of a member."""
    return (
        _PACK_INT16_INT32_2_TIMES_INT8(0, member_epoch, previous_member_epoch, state)
        + encoded_uvarint(len(assigned_partitions) + 1)
        + _encode_topic_partitions_rows(assigned_partitions)
        + b"\0"
    )


def read_share_group_current_member_assignment_value(
    data: bytes,
) -> tuple[int, int, int, Collection[TopicPartitions], int]:
    """Read member_epoch, previous_member_epoch, state, assigned_partitions, and the position
    after them.
    """
    member_epoch, previous_member_epoch, state = _UNPACK_INT32_2_TIMES_INT8(data, 2)
    at = 11
    assigned_partitions_count, at = read_uvarint(data, at)
    assigned_partitions_count -= 1
    if assigned_partitions_count < 0:
        refuse_length(assigned_partitions_count)
    assigned_partitions, at = _read_topic_partitions_rows(data, at, assigned_partitions_count)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return member_epoch, previous_member_epoch, state, assigned_partitions, at


def encode_share_group_state_partition_metadata_key(group_id: str) -> bytes:
    """The key of the partitions that have a state."""
    group_id_utf8 = group_id.encode()
    return _PACK_INT16_2_TIMES(15, len(group_id_utf8)) + group_id_utf8


def read_share_group_state_partition_metadata_key(data: bytes) -> tuple[str, int]:
    """Read group_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0 or end > len(data):
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    return group_id, at


def encode_share_group_state_partition_metadata_value(
    initializing_topics: Collection[TopicPartitionsInfo],
    initialized_topics: Collection[TopicPartitionsInfo],
    deleting_topics: Collection[TopicInfo],
) -> bytes:
    """The partitions that have a state."""
    return b"".join(
        (
            _PACK_INT16(0),
            encoded_uvarint(len(initializing_topics) + 1),
            _encode_topic_partitions_info_rows(initializing_topics),
            encoded_uvarint(len(initialized_topics) + 1),
            _encode_topic_partitions_info_rows(initialized_topics),
            encoded_uvarint(len(deleting_topics) + 1),
            _encode_topic_info_rows(deleting_topics),
            b"\0",
        )
    )


def read_share_group_state_partition_metadata_value(
    data: bytes,
) -> tuple[
    Collection[TopicPartitionsInfo], Collection[TopicPartitionsInfo], Collection[TopicInfo], int
]:
    """Read initializing_topics, initialized_topics, deleting_topics, and the position after
    them.
    """
    at = 2
    initializing_topics_count, at = read_uvarint(data, at)
    initializing_topics_count -= 1
    if initializing_topics_count < 0:
        refuse_length(initializing_topics_count)
    initializing_topics, at = _read_topic_partitions_info_rows(data, at, initializing_topics_count)
    initialized_topics_count, at = read_uvarint(data, at)
    initialized_topics_count -= 1
    if initialized_topics_count < 0:
        refuse_length(initialized_topics_count)
    initialized_topics, at = _read_topic_partitions_info_rows(data, at, initialized_topics_count)
    deleting_topics_count, at = read_uvarint(data, at)
    deleting_topics_count -= 1
    if deleting_topics_count < 0:
        refuse_length(deleting_topics_count)
    deleting_topics, at = _read_topic_info_rows(data, at, deleting_topics_count)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return initializing_topics, initialized_topics, deleting_topics, at


READ_KEY: dict[int, Callable[[bytes], tuple[Any, ...]]] = {
    10: read_share_group_member_metadata_key,
    11: read_share_group_metadata_key,
    12: read_share_group_target_assignment_metadata_key,
    13: read_share_group_target_assignment_member_key,
    14: read_share_group_current_member_assignment_key,
    15: read_share_group_state_partition_metadata_key,
}
ENCODE_KEY: dict[int, Callable[..., bytes]] = {
    10: encode_share_group_member_metadata_key,
    11: encode_share_group_metadata_key,
    12: encode_share_group_target_assignment_metadata_key,
    13: encode_share_group_target_assignment_member_key,
    14: encode_share_group_current_member_assignment_key,
    15: encode_share_group_state_partition_metadata_key,
}
