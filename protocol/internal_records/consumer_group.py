"""Records of consumer groups (KIP-848) in `__consumer_offsets`.

Made by `make protocol` from generator/schemas/records/consumer_group.json; not to be edited.
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
    read_bytes,
    read_nullable_numbers,
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
_PACK_INT16_INT32_NO_TAGS = struct.Struct(">hix").pack
_PACK_INT32 = struct.Struct(">i").pack
_PACK_INT64 = struct.Struct(">q").pack
_PACK_INT64_2_TIMES_NO_TAGS = struct.Struct(">qqx").pack
_PACK_UUID = struct.Struct(">16s").pack
_UNPACK_INT16 = struct.Struct(">h").unpack_from
_UNPACK_INT32 = struct.Struct(">i").unpack_from
_UNPACK_INT32_2_TIMES_INT8 = struct.Struct(">iib").unpack_from
_UNPACK_INT64_2_TIMES = struct.Struct(">qq").unpack_from
_UNPACK_UUID = struct.Struct(">16s").unpack_from

ClassicProtocol = tuple[str, bytes]
"""name, metadata"""
ClassicMemberMetadata = tuple[int, Collection[ClassicProtocol]]
"""session_timeout_ms, supported_protocols"""
TopicPartition = tuple[uuid.UUID, Collection[int]]
"""topic_id, partitions"""
TopicPartitions = tuple[uuid.UUID, Collection[int], Collection[int] | None]
"""topic_id, partitions, assignment_epochs"""


def _encode_classic_protocol_rows(rows: Collection[ClassicProtocol]) -> bytes:
    out = []
    for name, metadata in rows:
        name_utf8 = name.encode()
        out.append(
            encoded_uvarint(len(name_utf8) + 1)
            + name_utf8
            + encoded_uvarint(len(metadata) + 1)
            + metadata
            + b"\0"
        )
    return b"".join(out)


def _encode_classic_member_metadata(row: ClassicMemberMetadata) -> bytes:
    session_timeout_ms, supported_protocols = row
    return (
        _PACK_INT32(session_timeout_ms)
        + encoded_uvarint(len(supported_protocols) + 1)
        + _encode_classic_protocol_rows(supported_protocols)
        + b"\0"
    )


def _read_classic_protocol_rows(
    data: bytes, at: int, count: int
) -> tuple[list[ClassicProtocol], int]:
    rows: list[ClassicProtocol] = []
    for _ in range(count):
        name, at = read_string(data, at)
        metadata, at = read_bytes(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append((name, metadata))
    return rows, at


def _read_classic_member_metadata(data: bytes, at: int) -> tuple[ClassicMemberMetadata, int]:
    (session_timeout_ms,) = _UNPACK_INT32(data, at)
    at += 4
    supported_protocols_count, at = read_uvarint(data, at)
    supported_protocols_count -= 1
    if supported_protocols_count < 0:
        refuse_length(supported_protocols_count)
    supported_protocols, at = _read_classic_protocol_rows(data, at, supported_protocols_count)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return (session_timeout_ms, supported_protocols), at


def _encode_topic_partition_rows(rows: Collection[TopicPartition]) -> bytes:
    out = []
    for topic_id, partitions in rows:
        out.append(
            _PACK_UUID(topic_id.bytes)
            + encoded_uvarint(len(partitions) + 1)
            + struct.pack(f">{len(partitions)}i", *partitions)
            + b"\0"
        )
    return b"".join(out)


def _read_topic_partition_rows(
    data: bytes, at: int, count: int
) -> tuple[list[TopicPartition], int]:
    rows: list[TopicPartition] = []
    for _ in range(count):
        (topic_id_bytes,) = _UNPACK_UUID(data, at)
        at += 16
        topic_id = uuid.UUID(bytes=topic_id_bytes)
        partitions, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append((topic_id, partitions))
    return rows, at


def _encode_topic_partitions_rows(rows: Collection[TopicPartitions]) -> bytes:
    out = []
    for topic_id, partitions, assignment_epochs in rows:
        tags = b"\0"
        if assignment_epochs is not None:
            field = encoded_uvarint(len(assignment_epochs) + 1) + struct.pack(
                f">{len(assignment_epochs)}i", *assignment_epochs
            )
            tags = b"\x01\x00" + encoded_uvarint(len(field)) + field
        out.append(
            _PACK_UUID(topic_id.bytes)
            + encoded_uvarint(len(partitions) + 1)
            + struct.pack(f">{len(partitions)}i", *partitions)
            + tags
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
        assignment_epochs: Collection[int] | None = None
        if data[at] == 0:
            at += 1
        else:
            tags, at = read_tags(data, at)
            if 0 in tags:
                assignment_epochs, _ = read_nullable_numbers(tags[0], 0, True, "i")
        rows.append((topic_id, partitions, assignment_epochs))
    return rows, at


def encode_consumer_group_metadata_key(group_id: str) -> bytes:
    """The key of a consumer group."""
    group_id_utf8 = group_id.encode()
    return _PACK_INT16_2_TIMES(3, len(group_id_utf8)) + group_id_utf8


def read_consumer_group_metadata_key(data: bytes) -> tuple[str, int]:
    """Read group_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0 or end > len(data):
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    return group_id, at


def encode_consumer_group_metadata_value(epoch: int, metadata_hash: int = 0) -> bytes:
    """The epoch of a consumer group."""
    tags = b"\0"
    if metadata_hash != 0:
        tags = b"\x01\x00\x08" + _PACK_INT64(metadata_hash)
    return _PACK_INT16_INT32(0, epoch) + tags


def read_consumer_group_metadata_value(data: bytes) -> tuple[int, int, int]:
    """Read epoch, metadata_hash, and the position after them."""
    (epoch,) = _UNPACK_INT32(data, 2)
    at = 6
    metadata_hash = 0
    if data[at] == 0:
        at += 1
    else:
        tags, at = read_tags(data, at)
        if 0 in tags:
            metadata_hash = unpack_tag(tags, 0, _INT64)
    return epoch, metadata_hash, at


def encode_consumer_group_partition_metadata_key(group_id: str) -> bytes:
    """The key of the topics of a consumer group."""
    group_id_utf8 = group_id.encode()
    return _PACK_INT16_2_TIMES(4, len(group_id_utf8)) + group_id_utf8


def read_consumer_group_partition_metadata_key(data: bytes) -> tuple[str, int]:
    """Read group_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0 or end > len(data):
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    return group_id, at


def encode_consumer_group_member_metadata_key(group_id: str, member_id: str) -> bytes:
    """The key of a member."""
    group_id_utf8 = group_id.encode()
    member_id_utf8 = member_id.encode()
    return (
        _PACK_INT16_2_TIMES(5, len(group_id_utf8))
        + group_id_utf8
        + _PACK_INT16(len(member_id_utf8))
        + member_id_utf8
    )


def read_consumer_group_member_metadata_key(data: bytes) -> tuple[str, str, int]:
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


def encode_consumer_group_member_metadata_value(
    instance_id: str | None,
    rack_id: str | None,
    client_id: str,
    client_host: str,
    subscribed_topic_names: Collection[str],
    subscribed_topic_regex: str | None,
    rebalance_timeout_ms: int,
    server_assignor: str | None,
    classic_member_metadata: ClassicMemberMetadata | None = None,
) -> bytes:
    """A member: its identity and its subscription."""
    instance_id_utf8 = b"" if instance_id is None else instance_id.encode()
    rack_id_utf8 = b"" if rack_id is None else rack_id.encode()
    client_id_utf8 = client_id.encode()
    client_host_utf8 = client_host.encode()
    subscribed_topic_regex_utf8 = (
        b"" if subscribed_topic_regex is None else subscribed_topic_regex.encode()
    )
    server_assignor_utf8 = b"" if server_assignor is None else server_assignor.encode()
    tags = b"\0"
    if classic_member_metadata is not None:
        field = (
            b"\xff"
            if classic_member_metadata is None
            else b"\x01" + _encode_classic_member_metadata(classic_member_metadata)
        )
        tags = b"\x01\x00" + encoded_uvarint(len(field)) + field
    return b"".join(
        (
            _PACK_INT16(0),
            encoded_uvarint(len(instance_id_utf8) + 1 if instance_id is not None else 0),
            instance_id_utf8,
            encoded_uvarint(len(rack_id_utf8) + 1 if rack_id is not None else 0),
            rack_id_utf8,
            encoded_uvarint(len(client_id_utf8) + 1),
            client_id_utf8,
            encoded_uvarint(len(client_host_utf8) + 1),
            client_host_utf8,
            encoded_uvarint(len(subscribed_topic_names) + 1),
            encoded_strings(subscribed_topic_names),
            encoded_uvarint(
                len(subscribed_topic_regex_utf8) + 1 if subscribed_topic_regex is not None else 0
            ),
            subscribed_topic_regex_utf8,
            _PACK_INT32(rebalance_timeout_ms),
            encoded_uvarint(len(server_assignor_utf8) + 1 if server_assignor is not None else 0),
            server_assignor_utf8,
            tags,
        )
    )


def read_consumer_group_member_metadata_value(
    data: bytes,
) -> tuple[
    str | None,
    str | None,
    str,
    str,
    Collection[str],
    str | None,
    int,
    str | None,
    ClassicMemberMetadata | None,
    int,
]:
    """Read instance_id, rack_id, client_id, client_host, subscribed_topic_names,
    subscribed_topic_regex, rebalance_timeout_ms, server_assignor, classic_member_metadata,
    and the position after them.
    """
    at = 2
    instance_id, at = read_nullable_string(data, at)
    rack_id, at = read_nullable_string(data, at)
    client_id, at = read_string(data, at)
    client_host, at = read_string(data, at)
    subscribed_topic_names, at = read_strings(data, at)
    subscribed_topic_regex, at = read_nullable_string(data, at)
    (rebalance_timeout_ms,) = _UNPACK_INT32(data, at)
    at += 4
    server_assignor, at = read_nullable_string(data, at)
    classic_member_metadata: ClassicMemberMetadata | None = None
    if data[at] == 0:
        at += 1
    else:
        tags, at = read_tags(data, at)
        if 0 in tags:
            field, start = tags[0], 0
            classic_member_metadata = None
            start += 1
            if field[start - 1] == 1:
                classic_member_metadata, start = _read_classic_member_metadata(field, start)
    return (
        instance_id,
        rack_id,
        client_id,
        client_host,
        subscribed_topic_names,
        subscribed_topic_regex,
        rebalance_timeout_ms,
        server_assignor,
        classic_member_metadata,
        at,
    )


def encode_consumer_group_target_assignment_metadata_key(group_id: str) -> bytes:
    """The key of the target assignment."""
    group_id_utf8 = group_id.encode()
    return _PACK_INT16_2_TIMES(6, len(group_id_utf8)) + group_id_utf8


def read_consumer_group_target_assignment_metadata_key(data: bytes) -> tuple[str, int]:
    """Read group_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0 or end > len(data):
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    return group_id, at


def encode_consumer_group_target_assignment_metadata_value(assignment_epoch: int) -> bytes:
    """The epoch of the target assignment."""
    return _PACK_INT16_INT32_NO_TAGS(0, assignment_epoch)


def read_consumer_group_target_assignment_metadata_value(data: bytes) -> tuple[int, int]:
    """Read assignment_epoch, and the position after them."""
    (assignment_epoch,) = _UNPACK_INT32(data, 2)
    at = 6
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return assignment_epoch, at


def encode_consumer_group_target_assignment_member_key(group_id: str, member_id: str) -> bytes:
    """The key of a member's target assignment."""
    group_id_utf8 = group_id.encode()
    member_id_utf8 = member_id.encode()
    return (
        _PACK_INT16_2_TIMES(7, len(group_id_utf8))
        + group_id_utf8
        + _PACK_INT16(len(member_id_utf8))
        + member_id_utf8
    )


def read_consumer_group_target_assignment_member_key(data: bytes) -> tuple[str, str, int]:
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


def encode_consumer_group_target_assignment_member_value(
    topic_partitions: Collection[TopicPartition],
) -> bytes:
    """The target assignment of a member."""
    return (
        _PACK_INT16(0)
        + encoded_uvarint(len(topic_partitions) + 1)
        + _encode_topic_partition_rows(topic_partitions)
        + b"\0"
    )


def read_consumer_group_target_assignment_member_value(
    data: bytes,
) -> tuple[Collection[TopicPartition], int]:
    """Read topic_partitions, and the position after them."""
    at = 2
    topic_partitions_count, at = read_uvarint(data, at)
    topic_partitions_count -= 1
    if topic_partitions_count < 0:
        refuse_length(topic_partitions_count)
    topic_partitions, at = _read_topic_partition_rows(data, at, topic_partitions_count)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return topic_partitions, at


def encode_consumer_group_current_member_assignment_key(group_id: str, member_id: str) -> bytes:
    """The key of a member's current assignment."""
    group_id_utf8 = group_id.encode()
    member_id_utf8 = member_id.encode()
    return (
        _PACK_INT16_2_TIMES(8, len(group_id_utf8))
        + group_id_utf8
        + _PACK_INT16(len(member_id_utf8))
        + member_id_utf8
    )


def read_consumer_group_current_member_assignment_key(data: bytes) -> tuple[str, str, int]:
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


def encode_consumer_group_current_member_assignment_value(
    member_epoch: int,
    previous_member_epoch: int,
    state: int,
    assigned_partitions: Collection[TopicPartitions],
    partitions_pending_revocation: Collection[TopicPartitions],
) -> bytes:
    """The current assignment of a member."""
    return (
        _PACK_INT16_INT32_2_TIMES_INT8(0, member_epoch, previous_member_epoch, state)
        + encoded_uvarint(len(assigned_partitions) + 1)
        + _encode_topic_partitions_rows(assigned_partitions)
        + encoded_uvarint(len(partitions_pending_revocation) + 1)
        + _encode_topic_partitions_rows(partitions_pending_revocation)
        + b"\0"
    )


def read_consumer_group_current_member_assignment_value(
    data: bytes,
) -> tuple[int, int, int, Collection[TopicPartitions], Collection[TopicPartitions], int]:
    """Read member_epoch, previous_member_epoch, state, assigned_partitions,
    partitions_pending_revocation, and the position after them.
    """
    member_epoch, previous_member_epoch, state = _UNPACK_INT32_2_TIMES_INT8(data, 2)
    at = 11
    assigned_partitions_count, at = read_uvarint(data, at)
    assigned_partitions_count -= 1
    if assigned_partitions_count < 0:
        refuse_length(assigned_partitions_count)
    assigned_partitions, at = _read_topic_partitions_rows(data, at, assigned_partitions_count)
    partitions_pending_revocation_count, at = read_uvarint(data, at)
    partitions_pending_revocation_count -= 1
    if partitions_pending_revocation_count < 0:
        refuse_length(partitions_pending_revocation_count)
    partitions_pending_revocation, at = _read_topic_partitions_rows(
        data, at, partitions_pending_revocation_count
    )
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return (
        member_epoch,
        previous_member_epoch,
        state,
        assigned_partitions,
        partitions_pending_revocation,
        at,
    )


def encode_consumer_group_regular_expression_key(group_id: str, regular_expression: str) -> bytes:
    """The key of a regular expression."""
    group_id_utf8 = group_id.encode()
    regular_expression_utf8 = regular_expression.encode()
    return (
        _PACK_INT16_2_TIMES(16, len(group_id_utf8))
        + group_id_utf8
        + _PACK_INT16(len(regular_expression_utf8))
        + regular_expression_utf8
    )


def read_consumer_group_regular_expression_key(data: bytes) -> tuple[str, str, int]:
    """Read group_id, regular_expression, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0:
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    (regular_expression_size,) = _UNPACK_INT16(data, at)
    at += 2
    end = at + regular_expression_size
    if regular_expression_size < 0 or end > len(data):
        refuse_length(regular_expression_size)
    regular_expression = data[at:end].decode()
    at = end
    return group_id, regular_expression, at


def encode_consumer_group_regular_expression_value(
    topics: Collection[str], version: int, timestamp: int
) -> bytes:
    """The topics that a regular expression matched."""
    return (
        _PACK_INT16(0)
        + encoded_uvarint(len(topics) + 1)
        + encoded_strings(topics)
        + _PACK_INT64_2_TIMES_NO_TAGS(version, timestamp)
    )


def read_consumer_group_regular_expression_value(
    data: bytes,
) -> tuple[Collection[str], int, int, int]:
    """Read topics, version, timestamp, and the position after them."""
    at = 2
    topics, at = read_strings(data, at)
    version, timestamp = _UNPACK_INT64_2_TIMES(data, at)
    at += 16
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return topics, version, timestamp, at


READ_KEY: dict[int, Callable[[bytes], tuple[Any, ...]]] = {
    3: read_consumer_group_metadata_key,
    4: read_consumer_group_partition_metadata_key,
    5: read_consumer_group_member_metadata_key,
    6: read_consumer_group_target_assignment_metadata_key,
    7: read_consumer_group_target_assignment_member_key,
    8: read_consumer_group_current_member_assignment_key,
    16: read_consumer_group_regular_expression_key,
}
ENCODE_KEY: dict[int, Callable[..., bytes]] = {
    3: encode_consumer_group_metadata_key,
    4: encode_consumer_group_partition_metadata_key,
    5: encode_consumer_group_member_metadata_key,
    6: encode_consumer_group_target_assignment_metadata_key,
    7: encode_consumer_group_target_assignment_member_key,
    8: encode_consumer_group_current_member_assignment_key,
    16: encode_consumer_group_regular_expression_key,
}
