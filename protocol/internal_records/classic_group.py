"""Records of committed offsets and of classic groups in `__consumer_offsets`.

Made by `make protocol` from generator/schemas/records/classic_group.json; not to be edited.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import Any

from barnabas.protocol.internal_records.record import read_nullable_string, read_string
from barnabas.protocol.primitives import read_bytes, read_uvarint, refuse_length, skip_tags

_PACK_INT16 = struct.Struct(">h").pack
_PACK_INT16_2_TIMES = struct.Struct(">hh").pack
_PACK_INT16_INT64_INT16 = struct.Struct(">hqh").pack
_PACK_INT16_INT64_INT32_INT16 = struct.Struct(">hqih").pack
_PACK_INT32 = struct.Struct(">i").pack
_PACK_INT32_3_TIMES = struct.Struct(">iii").pack
_PACK_INT32_INT16 = struct.Struct(">ih").pack
_PACK_INT64 = struct.Struct(">q").pack
_PACK_INT64_2_TIMES = struct.Struct(">qq").pack
_PACK_INT64_INT32 = struct.Struct(">qi").pack
_UNPACK_INT16 = struct.Struct(">h").unpack_from
_UNPACK_INT32 = struct.Struct(">i").unpack_from
_UNPACK_INT32_2_TIMES = struct.Struct(">ii").unpack_from
_UNPACK_INT32_3_TIMES = struct.Struct(">iii").unpack_from
_UNPACK_INT32_INT16 = struct.Struct(">ih").unpack_from
_UNPACK_INT64 = struct.Struct(">q").unpack_from
_UNPACK_INT64_2_TIMES = struct.Struct(">qq").unpack_from
_UNPACK_INT64_INT16 = struct.Struct(">qh").unpack_from
_UNPACK_INT64_INT32 = struct.Struct(">qi").unpack_from
_UNPACK_INT64_INT32_INT16 = struct.Struct(">qih").unpack_from

MemberMetadata = tuple[str, str | None, str, str, int, int, bytes, bytes]
"""member_id, group_instance_id, client_id, client_host, rebalance_timeout, session_timeout,
subscription, assignment
"""


def _encode_member_metadata_rows_v3(rows: Collection[MemberMetadata]) -> bytes:
    out = []
    for (
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout,
        session_timeout,
        subscription,
        assignment,
    ) in rows:
        member_id_utf8 = member_id.encode()
        group_instance_id_utf8 = b"" if group_instance_id is None else group_instance_id.encode()
        client_id_utf8 = client_id.encode()
        client_host_utf8 = client_host.encode()
        out.append(
            b"".join(
                (
                    _PACK_INT16(len(member_id_utf8)),
                    member_id_utf8,
                    _PACK_INT16(
                        len(group_instance_id_utf8) if group_instance_id is not None else -1
                    ),
                    group_instance_id_utf8,
                    _PACK_INT16(len(client_id_utf8)),
                    client_id_utf8,
                    _PACK_INT16(len(client_host_utf8)),
                    client_host_utf8,
                    _PACK_INT32_3_TIMES(rebalance_timeout, session_timeout, len(subscription)),
                    subscription,
                    _PACK_INT32(len(assignment)),
                    assignment,
                )
            )
        )
    return b"".join(out)


def _read_member_metadata_rows_v0(
    data: bytes, at: int, count: int
) -> tuple[list[MemberMetadata], int]:
    rows: list[MemberMetadata] = []
    for _ in range(count):
        (member_id_size,) = _UNPACK_INT16(data, at)
        at += 2
        end = at + member_id_size
        if member_id_size < 0:
            refuse_length(member_id_size)
        member_id = data[at:end].decode()
        at = end
        (client_id_size,) = _UNPACK_INT16(data, at)
        at += 2
        end = at + client_id_size
        if client_id_size < 0:
            refuse_length(client_id_size)
        client_id = data[at:end].decode()
        at = end
        (client_host_size,) = _UNPACK_INT16(data, at)
        at += 2
        end = at + client_host_size
        if client_host_size < 0:
            refuse_length(client_host_size)
        client_host = data[at:end].decode()
        at = end
        session_timeout, subscription_size = _UNPACK_INT32_2_TIMES(data, at)
        at += 8
        end = at + subscription_size
        if subscription_size < 0:
            refuse_length(subscription_size)
        subscription = data[at:end]
        at = end
        (assignment_size,) = _UNPACK_INT32(data, at)
        at += 4
        end = at + assignment_size
        if assignment_size < 0 or end > len(data):
            refuse_length(assignment_size)
        assignment = data[at:end]
        at = end
        rows.append(
            (member_id, None, client_id, client_host, -1, session_timeout, subscription, assignment)
        )
    return rows, at


def _read_member_metadata_rows_v1(
    data: bytes, at: int, count: int
) -> tuple[list[MemberMetadata], int]:
    rows: list[MemberMetadata] = []
    for _ in range(count):
        (member_id_size,) = _UNPACK_INT16(data, at)
        at += 2
        end = at + member_id_size
        if member_id_size < 0:
            refuse_length(member_id_size)
        member_id = data[at:end].decode()
        at = end
        (client_id_size,) = _UNPACK_INT16(data, at)
        at += 2
        end = at + client_id_size
        if client_id_size < 0:
            refuse_length(client_id_size)
        client_id = data[at:end].decode()
        at = end
        (client_host_size,) = _UNPACK_INT16(data, at)
        at += 2
        end = at + client_host_size
        if client_host_size < 0:
            refuse_length(client_host_size)
        client_host = data[at:end].decode()
        at = end
        rebalance_timeout, session_timeout, subscription_size = _UNPACK_INT32_3_TIMES(data, at)
        at += 12
        end = at + subscription_size
        if subscription_size < 0:
            refuse_length(subscription_size)
        subscription = data[at:end]
        at = end
        (assignment_size,) = _UNPACK_INT32(data, at)
        at += 4
        end = at + assignment_size
        if assignment_size < 0 or end > len(data):
            refuse_length(assignment_size)
        assignment = data[at:end]
        at = end
        rows.append(
            (
                member_id,
                None,
                client_id,
                client_host,
                rebalance_timeout,
                session_timeout,
                subscription,
                assignment,
            )
        )
    return rows, at


def _read_member_metadata_rows_v3(
    data: bytes, at: int, count: int
) -> tuple[list[MemberMetadata], int]:
    rows: list[MemberMetadata] = []
    for _ in range(count):
        (member_id_size,) = _UNPACK_INT16(data, at)
        at += 2
        end = at + member_id_size
        if member_id_size < 0:
            refuse_length(member_id_size)
        member_id = data[at:end].decode()
        at = end
        (group_instance_id_size,) = _UNPACK_INT16(data, at)
        at += 2
        group_instance_id = None
        if group_instance_id_size >= 0:
            end = at + group_instance_id_size
            group_instance_id = data[at:end].decode()
            at = end
        (client_id_size,) = _UNPACK_INT16(data, at)
        at += 2
        end = at + client_id_size
        if client_id_size < 0:
            refuse_length(client_id_size)
        client_id = data[at:end].decode()
        at = end
        (client_host_size,) = _UNPACK_INT16(data, at)
        at += 2
        end = at + client_host_size
        if client_host_size < 0:
            refuse_length(client_host_size)
        client_host = data[at:end].decode()
        at = end
        rebalance_timeout, session_timeout, subscription_size = _UNPACK_INT32_3_TIMES(data, at)
        at += 12
        end = at + subscription_size
        if subscription_size < 0:
            refuse_length(subscription_size)
        subscription = data[at:end]
        at = end
        (assignment_size,) = _UNPACK_INT32(data, at)
        at += 4
        end = at + assignment_size
        if assignment_size < 0 or end > len(data):
            refuse_length(assignment_size)
        assignment = data[at:end]
        at = end
        rows.append(
            (
                member_id,
                group_instance_id,
                client_id,
                client_host,
                rebalance_timeout,
                session_timeout,
                subscription,
                assignment,
            )
        )
    return rows, at


def _read_member_metadata_rows_v4(
    data: bytes, at: int, count: int
) -> tuple[list[MemberMetadata], int]:
    rows: list[MemberMetadata] = []
    for _ in range(count):
        member_id, at = read_string(data, at)
        group_instance_id, at = read_nullable_string(data, at)
        client_id, at = read_string(data, at)
        client_host, at = read_string(data, at)
        rebalance_timeout, session_timeout = _UNPACK_INT32_2_TIMES(data, at)
        at += 8
        subscription, at = read_bytes(data, at, True)
        assignment, at = read_bytes(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append(
            (
                member_id,
                group_instance_id,
                client_id,
                client_host,
                rebalance_timeout,
                session_timeout,
                subscription,
                assignment,
            )
        )
    return rows, at


def encode_offset_commit_key(group: str, topic: str, partition: int) -> bytes:
    """The key of the offset that a group committed for a partition."""
    group_utf8 = group.encode()
    topic_utf8 = topic.encode()
    return (
        _PACK_INT16_2_TIMES(1, len(group_utf8))
        + group_utf8
        + _PACK_INT16(len(topic_utf8))
        + topic_utf8
        + _PACK_INT32(partition)
    )


def read_offset_commit_key(data: bytes) -> tuple[str, str, int, int]:
    """Read group, topic, partition, and the position after them."""
    (group_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_size
    if group_size < 0:
        refuse_length(group_size)
    group = data[at:end].decode()
    at = end
    (topic_size,) = _UNPACK_INT16(data, at)
    at += 2
    end = at + topic_size
    if topic_size < 0:
        refuse_length(topic_size)
    topic = data[at:end].decode()
    at = end
    (partition,) = _UNPACK_INT32(data, at)
    at += 4
    return group, topic, partition, at


def encode_offset_commit_value_v1(
    offset: int, metadata: str, commit_timestamp: int, expire_timestamp: int
) -> bytes:
    """A committed offset, in version 1."""
    metadata_utf8 = metadata.encode()
    return (
        _PACK_INT16_INT64_INT16(1, offset, len(metadata_utf8))
        + metadata_utf8
        + _PACK_INT64_2_TIMES(commit_timestamp, expire_timestamp)
    )


def encode_offset_commit_value_v3(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp: int
) -> bytes:
    """A committed offset, in version 3."""
    metadata_utf8 = metadata.encode()
    return (
        _PACK_INT16_INT64_INT32_INT16(3, offset, leader_epoch, len(metadata_utf8))
        + metadata_utf8
        + _PACK_INT64(commit_timestamp)
    )


def _read_offset_commit_value_v0(data: bytes) -> tuple[int, int, str, int, int, int]:
    offset, metadata_size = _UNPACK_INT64_INT16(data, 2)
    at = 12
    end = at + metadata_size
    if metadata_size < 0:
        refuse_length(metadata_size)
    metadata = data[at:end].decode()
    at = end
    (commit_timestamp,) = _UNPACK_INT64(data, at)
    at += 8
    return offset, -1, metadata, commit_timestamp, -1, at


def _read_offset_commit_value_v1(data: bytes) -> tuple[int, int, str, int, int, int]:
    offset, metadata_size = _UNPACK_INT64_INT16(data, 2)
    at = 12
    end = at + metadata_size
    if metadata_size < 0:
        refuse_length(metadata_size)
    metadata = data[at:end].decode()
    at = end
    commit_timestamp, expire_timestamp = _UNPACK_INT64_2_TIMES(data, at)
    at += 16
    return offset, -1, metadata, commit_timestamp, expire_timestamp, at


def _read_offset_commit_value_v3(data: bytes) -> tuple[int, int, str, int, int, int]:
    offset, leader_epoch, metadata_size = _UNPACK_INT64_INT32_INT16(data, 2)
    at = 16
    end = at + metadata_size
    if metadata_size < 0:
        refuse_length(metadata_size)
    metadata = data[at:end].decode()
    at = end
    (commit_timestamp,) = _UNPACK_INT64(data, at)
    at += 8
    return offset, leader_epoch, metadata, commit_timestamp, -1, at


def _read_offset_commit_value_v4(data: bytes) -> tuple[int, int, str, int, int, int]:
    offset, leader_epoch = _UNPACK_INT64_INT32(data, 2)
    at = 14
    metadata, at = read_string(data, at)
    (commit_timestamp,) = _UNPACK_INT64(data, at)
    at += 8
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return offset, leader_epoch, metadata, commit_timestamp, -1, at


read_offset_commit_value = (
    _read_offset_commit_value_v0,
    _read_offset_commit_value_v1,
    _read_offset_commit_value_v0,
    _read_offset_commit_value_v3,
    _read_offset_commit_value_v4,
)
"""Read offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, and the position
after them. Takes: the version, as the index.
"""


def encode_group_metadata_key(group: str) -> bytes:
    """The key of a classic group."""
    group_utf8 = group.encode()
    return _PACK_INT16_2_TIMES(2, len(group_utf8)) + group_utf8


def read_group_metadata_key(data: bytes) -> tuple[str, int]:
    """Read group, and the position after them."""
    (group_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_size
    if group_size < 0 or end > len(data):
        refuse_length(group_size)
    group = data[at:end].decode()
    at = end
    return group, at


def encode_group_metadata_value(
    protocol_type: str,
    generation: int,
    protocol: str | None,
    leader: str | None,
    current_state_timestamp: int,
    members: Collection[MemberMetadata],
) -> bytes:
    """A generation of a classic group, in version 3."""
    protocol_type_utf8 = protocol_type.encode()
    protocol_utf8 = b"" if protocol is None else protocol.encode()
    leader_utf8 = b"" if leader is None else leader.encode()
    return b"".join(
        (
            _PACK_INT16_2_TIMES(3, len(protocol_type_utf8)),
            protocol_type_utf8,
            _PACK_INT32_INT16(generation, len(protocol_utf8) if protocol is not None else -1),
            protocol_utf8,
            _PACK_INT16(len(leader_utf8) if leader is not None else -1),
            leader_utf8,
            _PACK_INT64_INT32(current_state_timestamp, len(members)),
            _encode_member_metadata_rows_v3(members),
        )
    )


def _read_group_metadata_value_v0(
    data: bytes,
) -> tuple[str, int, str | None, str | None, int, Collection[MemberMetadata], int]:
    (protocol_type_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + protocol_type_size
    if protocol_type_size < 0:
        refuse_length(protocol_type_size)
    protocol_type = data[at:end].decode()
    at = end
    generation, protocol_size = _UNPACK_INT32_INT16(data, at)
    at += 6
    protocol = None
    if protocol_size >= 0:
        end = at + protocol_size
        protocol = data[at:end].decode()
        at = end
    (leader_size,) = _UNPACK_INT16(data, at)
    at += 2
    leader = None
    if leader_size >= 0:
        end = at + leader_size
        leader = data[at:end].decode()
        at = end
    (members_count,) = _UNPACK_INT32(data, at)
    at += 4
    if members_count < 0:
        refuse_length(members_count)
    members, at = _read_member_metadata_rows_v0(data, at, members_count)
    return protocol_type, generation, protocol, leader, -1, members, at


def _read_group_metadata_value_v1(
    data: bytes,
) -> tuple[str, int, str | None, str | None, int, Collection[MemberMetadata], int]:
    (protocol_type_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + protocol_type_size
    if protocol_type_size < 0:
        refuse_length(protocol_type_size)
    protocol_type = data[at:end].decode()
    at = end
    generation, protocol_size = _UNPACK_INT32_INT16(data, at)
    at += 6
    protocol = None
    if protocol_size >= 0:
        end = at + protocol_size
        protocol = data[at:end].decode()
        at = end
    (leader_size,) = _UNPACK_INT16(data, at)
    at += 2
    leader = None
    if leader_size >= 0:
        end = at + leader_size
        leader = data[at:end].decode()
        at = end
    (members_count,) = _UNPACK_INT32(data, at)
    at += 4
    if members_count < 0:
        refuse_length(members_count)
    members, at = _read_member_metadata_rows_v1(data, at, members_count)
    return protocol_type, generation, protocol, leader, -1, members, at


def _read_group_metadata_value_v2(
    data: bytes,
) -> tuple[str, int, str | None, str | None, int, Collection[MemberMetadata], int]:
    (protocol_type_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + protocol_type_size
    if protocol_type_size < 0:
        refuse_length(protocol_type_size)
    protocol_type = data[at:end].decode()
    at = end
    generation, protocol_size = _UNPACK_INT32_INT16(data, at)
    at += 6
    protocol = None
    if protocol_size >= 0:
        end = at + protocol_size
        protocol = data[at:end].decode()
        at = end
    (leader_size,) = _UNPACK_INT16(data, at)
    at += 2
    leader = None
    if leader_size >= 0:
        end = at + leader_size
        leader = data[at:end].decode()
        at = end
    current_state_timestamp, members_count = _UNPACK_INT64_INT32(data, at)
    at += 12
    if members_count < 0:
        refuse_length(members_count)
    members, at = _read_member_metadata_rows_v1(data, at, members_count)
    return protocol_type, generation, protocol, leader, current_state_timestamp, members, at


def _read_group_metadata_value_v3(
    data: bytes,
) -> tuple[str, int, str | None, str | None, int, Collection[MemberMetadata], int]:
    (protocol_type_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + protocol_type_size
    if protocol_type_size < 0:
        refuse_length(protocol_type_size)
    protocol_type = data[at:end].decode()
    at = end
    generation, protocol_size = _UNPACK_INT32_INT16(data, at)
    at += 6
    protocol = None
    if protocol_size >= 0:
        end = at + protocol_size
        protocol = data[at:end].decode()
        at = end
    (leader_size,) = _UNPACK_INT16(data, at)
    at += 2
    leader = None
    if leader_size >= 0:
        end = at + leader_size
        leader = data[at:end].decode()
        at = end
    current_state_timestamp, members_count = _UNPACK_INT64_INT32(data, at)
    at += 12
    if members_count < 0:
        refuse_length(members_count)
    members, at = _read_member_metadata_rows_v3(data, at, members_count)
    return protocol_type, generation, protocol, leader, current_state_timestamp, members, at


def _read_group_metadata_value_v4(
    data: bytes,
) -> tuple[str, int, str | None, str | None, int, Collection[MemberMetadata], int]:
    at = 2
    protocol_type, at = read_string(data, at)
    (generation,) = _UNPACK_INT32(data, at)
    at += 4
    protocol, at = read_nullable_string(data, at)
    leader, at = read_nullable_string(data, at)
    (current_state_timestamp,) = _UNPACK_INT64(data, at)
    at += 8
    members_count, at = read_uvarint(data, at)
    members_count -= 1
    if members_count < 0:
        refuse_length(members_count)
    members, at = _read_member_metadata_rows_v4(data, at, members_count)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return protocol_type, generation, protocol, leader, current_state_timestamp, members, at


read_group_metadata_value = (
    _read_group_metadata_value_v0,
    _read_group_metadata_value_v1,
    _read_group_metadata_value_v2,
    _read_group_metadata_value_v3,
    _read_group_metadata_value_v4,
)
"""Read protocol_type, generation, protocol, leader, current_state_timestamp, members, and the
position after them. Takes: the version, as the index.
"""


READ_KEY: dict[int, Callable[[bytes], tuple[Any, ...]]] = {
    0: read_offset_commit_key,
    1: read_offset_commit_key,
    2: read_group_metadata_key,
}
ENCODE_KEY: dict[int, Callable[..., bytes]] = {
    1: encode_offset_commit_key,
    2: encode_group_metadata_key,
}
