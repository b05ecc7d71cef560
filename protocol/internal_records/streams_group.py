"""Records of streams groups (KIP-1071) in `__consumer_offsets`.

Made by `make protocol` from generator/schemas/records/streams_group.json; not to be edited.
"""

from __future__ import annotations

import struct
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
    read_nullable_numbers,
    read_numbers,
    read_tags,
    read_uvarint,
    refuse_length,
    skip_tags,
)

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_PACK_INT16 = struct.Struct(">h").pack
_PACK_INT16_2_TIMES = struct.Struct(">hh").pack
_PACK_INT16_INT32 = struct.Struct(">hi").pack
_PACK_INT16_INT32_2_TIMES_INT8 = struct.Struct(">hiib").pack
_PACK_INT16_INT32_INT64 = struct.Struct(">hiq").pack
_PACK_INT32 = struct.Struct(">i").pack
_PACK_INT32_2_TIMES = struct.Struct(">ii").pack
_PACK_INT32_INT16 = struct.Struct(">ih").pack
_PACK_INT64 = struct.Struct(">q").pack
_PACK_UINT16_NO_TAGS = struct.Struct(">Hx").pack
_UNPACK_INT16 = struct.Struct(">h").unpack_from
_UNPACK_INT32 = struct.Struct(">i").unpack_from
_UNPACK_INT32_2_TIMES = struct.Struct(">ii").unpack_from
_UNPACK_INT32_2_TIMES_INT8 = struct.Struct(">iib").unpack_from
_UNPACK_INT32_INT16 = struct.Struct(">ih").unpack_from
_UNPACK_INT32_INT64 = struct.Struct(">iq").unpack_from
_UNPACK_UINT16 = struct.Struct(">H").unpack_from

KeyValue = tuple[str, str]
"""key, value"""
Endpoint = tuple[str, int]
"""host, port"""
TaskIds = tuple[str, Collection[int]]
"""subtopology_id, partitions"""
HeldTaskIds = tuple[str, Collection[int], Collection[int] | None]
"""subtopology_id, partitions, assignment_epochs"""
TopicInfo = tuple[str, int, int, Collection[KeyValue]]
"""name, partitions, replication_factor, topic_configs"""
CopartitionGroup = tuple[Collection[int], Collection[int], Collection[int]]
"""source_topics, source_topic_regex, repartition_source_topics"""
Subtopology = tuple[
    str,
    Collection[str],
    Collection[str],
    Collection[TopicInfo],
    Collection[str],
    Collection[TopicInfo],
    Collection[CopartitionGroup],
]
"""subtopology_id, source_topics, source_topic_regex, state_changelog_topics,
repartition_sink_topics, repartition_source_topics, copartition_groups
"""


def _encode_key_value_rows(rows: Collection[KeyValue]) -> bytes:
    out = []
    for key, value in rows:
        key_utf8 = key.encode()
        value_utf8 = value.encode()
        out.append(
            encoded_uvarint(len(key_utf8) + 1)
            + key_utf8
            + encoded_uvarint(len(value_utf8) + 1)
            + value_utf8
            + b"\0"
        )
    return b"".join(out)


def _read_key_value_rows(data: bytes, at: int, count: int) -> tuple[list[KeyValue], int]:
    rows: list[KeyValue] = []
    for _ in range(count):
        key, at = read_string(data, at)
        value, at = read_string(data, at)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append((key, value))
    return rows, at


def _encode_endpoint(row: Endpoint) -> bytes:
    host, port = row
    host_utf8 = host.encode()
    return encoded_uvarint(len(host_utf8) + 1) + host_utf8 + _PACK_UINT16_NO_TAGS(port)


def _read_endpoint(data: bytes, at: int) -> tuple[Endpoint, int]:
    host, at = read_string(data, at)
    (port,) = _UNPACK_UINT16(data, at)
    at += 2
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return (host, port), at


def _encode_task_ids_rows(rows: Collection[TaskIds]) -> bytes:
    out = []
    for subtopology_id, partitions in rows:
        subtopology_id_utf8 = subtopology_id.encode()
        out.append(
            encoded_uvarint(len(subtopology_id_utf8) + 1)
            + subtopology_id_utf8
            + encoded_uvarint(len(partitions) + 1)
            + struct.pack(f">{len(partitions)}i", *partitions)
            + b"\0"
        )
    return b"".join(out)


def _read_task_ids_rows(data: bytes, at: int, count: int) -> tuple[list[TaskIds], int]:
    rows: list[TaskIds] = []
    for _ in range(count):
        subtopology_id, at = read_string(data, at)
        partitions, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append((subtopology_id, partitions))
    return rows, at


def _encode_held_task_ids_rows(rows: Collection[HeldTaskIds]) -> bytes:
    out = []
    for subtopology_id, partitions, assignment_epochs in rows:
        subtopology_id_utf8 = subtopology_id.encode()
        tags = b"\0"
        if assignment_epochs is not None:
            field = encoded_uvarint(len(assignment_epochs) + 1) + struct.pack(
                f">{len(assignment_epochs)}i", *assignment_epochs
            )
            tags = b"\x01\x00" + encoded_uvarint(len(field)) + field
        out.append(
            encoded_uvarint(len(subtopology_id_utf8) + 1)
            + subtopology_id_utf8
            + encoded_uvarint(len(partitions) + 1)
            + struct.pack(f">{len(partitions)}i", *partitions)
            + tags
        )
    return b"".join(out)


def _read_held_task_ids_rows(data: bytes, at: int, count: int) -> tuple[list[HeldTaskIds], int]:
    rows: list[HeldTaskIds] = []
    for _ in range(count):
        subtopology_id, at = read_string(data, at)
        partitions, at = read_numbers(data, at, True, "i")
        assignment_epochs: Collection[int] | None = None
        if data[at] == 0:
            at += 1
        else:
            tags, at = read_tags(data, at)
            if 0 in tags:
                assignment_epochs, _ = read_nullable_numbers(tags[0], 0, True, "i")
        rows.append((subtopology_id, partitions, assignment_epochs))
    return rows, at


def _encode_topic_info_rows(rows: Collection[TopicInfo]) -> bytes:
    out = []
    for name, partitions, replication_factor, topic_configs in rows:
        name_utf8 = name.encode()
        out.append(
            encoded_uvarint(len(name_utf8) + 1)
            + name_utf8
            + _PACK_INT32_INT16(partitions, replication_factor)
            + encoded_uvarint(len(topic_configs) + 1)
            + _encode_key_value_rows(topic_configs)
            + b"\0"
        )
    return b"".join(out)


def _encode_copartition_group_rows(rows: Collection[CopartitionGroup]) -> bytes:
    out = []
    for source_topics, source_topic_regex, repartition_source_topics in rows:
        out.append(
            encoded_uvarint(len(source_topics) + 1)
            + struct.pack(f">{len(source_topics)}h", *source_topics)
            + encoded_uvarint(len(source_topic_regex) + 1)
            + struct.pack(f">{len(source_topic_regex)}h", *source_topic_regex)
            + encoded_uvarint(len(repartition_source_topics) + 1)
            + struct.pack(f">{len(repartition_source_topics)}h", *repartition_source_topics)
            + b"\0"
        )
    return b"".join(out)


def _encode_subtopology_rows(rows: Collection[Subtopology]) -> bytes:
    out = []
    for (
        subtopology_id,
        source_topics,
        source_topic_regex,
        state_changelog_topics,
        repartition_sink_topics,
        repartition_source_topics,
        copartition_groups,
    ) in rows:
        subtopology_id_utf8 = subtopology_id.encode()
        out.append(
            b"".join(
                (
                    encoded_uvarint(len(subtopology_id_utf8) + 1),
                    subtopology_id_utf8,
                    encoded_uvarint(len(source_topics) + 1),
                    encoded_strings(source_topics),
                    encoded_uvarint(len(source_topic_regex) + 1),
                    encoded_strings(source_topic_regex),
                    encoded_uvarint(len(state_changelog_topics) + 1),
                    _encode_topic_info_rows(state_changelog_topics),
                    encoded_uvarint(len(repartition_sink_topics) + 1),
                    encoded_strings(repartition_sink_topics),
                    encoded_uvarint(len(repartition_source_topics) + 1),
                    _encode_topic_info_rows(repartition_source_topics),
                    encoded_uvarint(len(copartition_groups) + 1),
                    _encode_copartition_group_rows(copartition_groups),
                    b"\0",
                )
            )
        )
    return b"".join(out)


def _read_topic_info_rows(data: bytes, at: int, count: int) -> tuple[list[TopicInfo], int]:
    rows: list[TopicInfo] = []
    for _ in range(count):
        name, at = read_string(data, at)
        partitions, replication_factor = _UNPACK_INT32_INT16(data, at)
        at += 6
        topic_configs_count, at = read_uvarint(data, at)
        topic_configs_count -= 1
        if topic_configs_count < 0:
            refuse_length(topic_configs_count)
        topic_configs, at = _read_key_value_rows(data, at, topic_configs_count)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append((name, partitions, replication_factor, topic_configs))
    return rows, at


def _read_copartition_group_rows(
    data: bytes, at: int, count: int
) -> tuple[list[CopartitionGroup], int]:
    rows: list[CopartitionGroup] = []
    for _ in range(count):
        source_topics, at = read_numbers(data, at, True, "h")
        source_topic_regex, at = read_numbers(data, at, True, "h")
        repartition_source_topics, at = read_numbers(data, at, True, "h")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append((source_topics, source_topic_regex, repartition_source_topics))
    return rows, at


def _read_subtopology_rows(data: bytes, at: int, count: int) -> tuple[list[Subtopology], int]:
    rows: list[Subtopology] = []
    for _ in range(count):
        subtopology_id, at = read_string(data, at)
        source_topics, at = read_strings(data, at)
        source_topic_regex, at = read_strings(data, at)
        state_changelog_topics_count, at = read_uvarint(data, at)
        state_changelog_topics_count -= 1
        if state_changelog_topics_count < 0:
            refuse_length(state_changelog_topics_count)
        state_changelog_topics, at = _read_topic_info_rows(data, at, state_changelog_topics_count)
        repartition_sink_topics, at = read_strings(data, at)
        repartition_source_topics_count, at = read_uvarint(data, at)
        repartition_source_topics_count -= 1
        if repartition_source_topics_count < 0:
            refuse_length(repartition_source_topics_count)
        repartition_source_topics, at = _read_topic_info_rows(
            data, at, repartition_source_topics_count
        )
        copartition_groups_count, at = read_uvarint(data, at)
        copartition_groups_count -= 1
        if copartition_groups_count < 0:
            refuse_length(copartition_groups_count)
        copartition_groups, at = _read_copartition_group_rows(data, at, copartition_groups_count)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append(
            (
                subtopology_id,
                source_topics,
                source_topic_regex,
                state_changelog_topics,
                repartition_sink_topics,
                repartition_source_topics,
                copartition_groups,
            )
        )
    return rows, at


def encode_streams_group_metadata_key(group_id: str) -> bytes:
    """The key of a streams group."""
    group_id_utf8 = group_id.encode()
    return _PACK_INT16_2_TIMES(17, len(group_id_utf8)) + group_id_utf8


def read_streams_group_metadata_key(data: bytes) -> tuple[str, int]:
    """Read group_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0 or end > len(data):
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    return group_id, at


def encode_streams_group_metadata_value(
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int = -1,
    last_assignment_configs: Collection[KeyValue] | None = None,
) -> bytes:
    """The epoch of a streams group."""
    tags = []
    if validated_topology_epoch != -1:
        tags.append(b"\x00\x04" + _PACK_INT32(validated_topology_epoch))
    if last_assignment_configs is not None:
        field = encoded_uvarint(len(last_assignment_configs) + 1) + _encode_key_value_rows(
            last_assignment_configs
        )
        tags.append(b"\x01" + encoded_uvarint(len(field)) + field)
    return (
        _PACK_INT16_INT32_INT64(0, epoch, metadata_hash)
        + encoded_uvarint(len(tags))
        + b"".join(tags)
    )


def read_streams_group_metadata_value(
    data: bytes,
) -> tuple[int, int, int, Collection[KeyValue] | None, int]:
    """Read epoch, metadata_hash, validated_topology_epoch, last_assignment_configs, and the
    position after them.
    """
    epoch, metadata_hash = _UNPACK_INT32_INT64(data, 2)
    at = 14
    validated_topology_epoch = -1
    last_assignment_configs: Collection[KeyValue] | None = None
    if data[at] == 0:
        at += 1
    else:
        tags, at = read_tags(data, at)
        if 0 in tags:
            validated_topology_epoch = unpack_tag(tags, 0, _INT32)
        if 1 in tags:
            field, start = tags[1], 0
            last_assignment_configs_count, start = read_uvarint(field, start)
            last_assignment_configs_count -= 1
            last_assignment_configs = None
            if last_assignment_configs_count >= 0:
                last_assignment_configs, start = _read_key_value_rows(
                    field, start, last_assignment_configs_count
                )
    return epoch, metadata_hash, validated_topology_epoch, last_assignment_configs, at


def encode_streams_group_member_metadata_key(group_id: str, member_id: str) -> bytes:
    """The key of a member."""
    group_id_utf8 = group_id.encode()
    member_id_utf8 = member_id.encode()
    return (
        _PACK_INT16_2_TIMES(19, len(group_id_utf8))
        + group_id_utf8
        + _PACK_INT16(len(member_id_utf8))
        + member_id_utf8
    )


def read_streams_group_member_metadata_key(data: bytes) -> tuple[str, str, int]:
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


def encode_streams_group_member_metadata_value(
    instance_id: str | None,
    rack_id: str | None,
    client_id: str,
    client_host: str,
    rebalance_timeout_ms: int,
    topology_epoch: int,
    process_id: str,
    user_endpoint: Endpoint | None,
    client_tags: Collection[KeyValue],
) -> bytes:
    """A member: its identity."""
    instance_id_utf8 = b"" if instance_id is None else instance_id.encode()
    rack_id_utf8 = b"" if rack_id is None else rack_id.encode()
    client_id_utf8 = client_id.encode()
    client_host_utf8 = client_host.encode()
    process_id_utf8 = process_id.encode()
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
            _PACK_INT32_2_TIMES(rebalance_timeout_ms, topology_epoch),
            encoded_uvarint(len(process_id_utf8) + 1),
            process_id_utf8,
            (b"\xff" if user_endpoint is None else b"\x01" + _encode_endpoint(user_endpoint)),
            encoded_uvarint(len(client_tags) + 1),
            _encode_key_value_rows(client_tags),
            b"\0",
        )
    )


def read_streams_group_member_metadata_value(
    data: bytes,
) -> tuple[
    str | None, str | None, str, str, int, int, str, Endpoint | None, Collection[KeyValue], int
]:
    """Read instance_id, rack_id, client_id, client_host, rebalance_timeout_ms, topology_epoch,
    process_id, user_endpoint, client_tags, and the position after them.
    """
    at = 2
    instance_id, at = read_nullable_string(data, at)
    rack_id, at = read_nullable_string(data, at)
    client_id, at = read_string(data, at)
    client_host, at = read_string(data, at)
    rebalance_timeout_ms, topology_epoch = _UNPACK_INT32_2_TIMES(data, at)
    at += 8
    process_id, at = read_string(data, at)
    user_endpoint: Endpoint | None = None
    at += 1
    if data[at - 1] < 0x80:
        user_endpoint, at = _read_endpoint(data, at)
    client_tags_count, at = read_uvarint(data, at)
    client_tags_count -= 1
    if client_tags_count < 0:
        refuse_length(client_tags_count)
    client_tags, at = _read_key_value_rows(data, at, client_tags_count)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return (
        instance_id,
        rack_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        topology_epoch,
        process_id,
        user_endpoint,
        client_tags,
        at,
    )


def encode_streams_group_target_assignment_metadata_key(group_id: str) -> bytes:
    """The key of the target assignment."""
    group_id_utf8 = group_id.encode()
    return _PACK_INT16_2_TIMES(20, len(group_id_utf8)) + group_id_utf8


def read_streams_group_target_assignment_metadata_key(data: bytes) -> tuple[str, int]:
    """Read group_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0 or end > len(data):
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    return group_id, at


def encode_streams_group_target_assignment_metadata_value(
    assignment_epoch: int, assignment_timestamp: int = 0
) -> bytes:
    """The epoch of the target assignment."""
    tags = b"\0"
    if assignment_timestamp != 0:
        tags = b"\x01\x00\x08" + _PACK_INT64(assignment_timestamp)
    return _PACK_INT16_INT32(0, assignment_epoch) + tags


def read_streams_group_target_assignment_metadata_value(data: bytes) -> tuple[int, int, int]:
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


def encode_streams_group_target_assignment_member_key(group_id: str, member_id: str) -> bytes:
    """The key of a member's target assignment."""
    group_id_utf8 = group_id.encode()
    member_id_utf8 = member_id.encode()
    return (
        _PACK_INT16_2_TIMES(21, len(group_id_utf8))
        + group_id_utf8
        + _PACK_INT16(len(member_id_utf8))
        + member_id_utf8
    )


def read_streams_group_target_assignment_member_key(data: bytes) -> tuple[str, str, int]:
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


def encode_streams_group_target_assignment_member_value(
    active_tasks: Collection[TaskIds],
    standby_tasks: Collection[TaskIds],
    warmup_tasks: Collection[TaskIds],
) -> bytes:
    """The target assignment of a member."""
    return b"".join(
        (
            _PACK_INT16(0),
            encoded_uvarint(len(active_tasks) + 1),
            _encode_task_ids_rows(active_tasks),
            encoded_uvarint(len(standby_tasks) + 1),
            _encode_task_ids_rows(standby_tasks),
            encoded_uvarint(len(warmup_tasks) + 1),
            _encode_task_ids_rows(warmup_tasks),
            b"\0",
        )
    )


def read_streams_group_target_assignment_member_value(
    data: bytes,
) -> tuple[Collection[TaskIds], Collection[TaskIds], Collection[TaskIds], int]:
    """Read active_tasks, standby_tasks, warmup_tasks, and the position after them."""
    at = 2
    active_tasks_count, at = read_uvarint(data, at)
    active_tasks_count -= 1
    if active_tasks_count < 0:
        refuse_length(active_tasks_count)
    active_tasks, at = _read_task_ids_rows(data, at, active_tasks_count)
    standby_tasks_count, at = read_uvarint(data, at)
    standby_tasks_count -= 1
    if standby_tasks_count < 0:
        refuse_length(standby_tasks_count)
    standby_tasks, at = _read_task_ids_rows(data, at, standby_tasks_count)
    warmup_tasks_count, at = read_uvarint(data, at)
    warmup_tasks_count -= 1
    if warmup_tasks_count < 0:
        refuse_length(warmup_tasks_count)
    warmup_tasks, at = _read_task_ids_rows(data, at, warmup_tasks_count)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return active_tasks, standby_tasks, warmup_tasks, at


def encode_streams_group_current_member_assignment_key(group_id: str, member_id: str) -> bytes:
    """The key of a member's current assignment."""
    group_id_utf8 = group_id.encode()
    member_id_utf8 = member_id.encode()
    return (
        _PACK_INT16_2_TIMES(22, len(group_id_utf8))
        + group_id_utf8
        + _PACK_INT16(len(member_id_utf8))
        + member_id_utf8
    )


def read_streams_group_current_member_assignment_key(data: bytes) -> tuple[str, str, int]:
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


def encode_streams_group_current_member_assignment_value(
    member_epoch: int,
    previous_member_epoch: int,
    state: int,
    active_tasks: Collection[HeldTaskIds],
    standby_tasks: Collection[HeldTaskIds],
    warmup_tasks: Collection[HeldTaskIds],
    active_tasks_pending_revocation: Collection[HeldTaskIds],
    standby_tasks_pending_revocation: Collection[HeldTaskIds],
    warmup_tasks_pending_revocation: Collection[HeldTaskIds],
) -> bytes:
    """The current assignment of a member."""
    return b"".join(
        (
            _PACK_INT16_INT32_2_TIMES_INT8(0, member_epoch, previous_member_epoch, state),
            encoded_uvarint(len(active_tasks) + 1),
            _encode_held_task_ids_rows(active_tasks),
            encoded_uvarint(len(standby_tasks) + 1),
            _encode_held_task_ids_rows(standby_tasks),
            encoded_uvarint(len(warmup_tasks) + 1),
            _encode_held_task_ids_rows(warmup_tasks),
            encoded_uvarint(len(active_tasks_pending_revocation) + 1),
            _encode_held_task_ids_rows(active_tasks_pending_revocation),
            encoded_uvarint(len(standby_tasks_pending_revocation) + 1),
            _encode_held_task_ids_rows(standby_tasks_pending_revocation),
            encoded_uvarint(len(warmup_tasks_pending_revocation) + 1),
            _encode_held_task_ids_rows(warmup_tasks_pending_revocation),
            b"\0",
        )
    )


def read_streams_group_current_member_assignment_value(
    data: bytes,
) -> tuple[
    int,
    int,
    int,
    Collection[HeldTaskIds],
    Collection[HeldTaskIds],
    Collection[HeldTaskIds],
    Collection[HeldTaskIds],
    Collection[HeldTaskIds],
    Collection[HeldTaskIds],
    int,
]:
    """Read member_epoch, previous_member_epoch, state, active_tasks, standby_tasks,
    warmup_tasks, active_tasks_pending_revocation, standby_tasks_pending_revocation,
    warmup_tasks_pending_revocation, and the position after them.
    """
    member_epoch, previous_member_epoch, state = _UNPACK_INT32_2_TIMES_INT8(data, 2)
    at = 11
    active_tasks_count, at = read_uvarint(data, at)
    active_tasks_count -= 1
    if active_tasks_count < 0:
        refuse_length(active_tasks_count)
    active_tasks, at = _read_held_task_ids_rows(data, at, active_tasks_count)
    standby_tasks_count, at = read_uvarint(data, at)
    standby_tasks_count -= 1
    if standby_tasks_count < 0:
        refuse_length(standby_tasks_count)
    standby_tasks, at = _read_held_task_ids_rows(data, at, standby_tasks_count)
    warmup_tasks_count, at = read_uvarint(data, at)
    warmup_tasks_count -= 1
    if warmup_tasks_count < 0:
        refuse_length(warmup_tasks_count)
    warmup_tasks, at = _read_held_task_ids_rows(data, at, warmup_tasks_count)
    active_tasks_pending_revocation_count, at = read_uvarint(data, at)
    active_tasks_pending_revocation_count -= 1
    if active_tasks_pending_revocation_count < 0:
        refuse_length(active_tasks_pending_revocation_count)
    active_tasks_pending_revocation, at = _read_held_task_ids_rows(
        data, at, active_tasks_pending_revocation_count
    )
    standby_tasks_pending_revocation_count, at = read_uvarint(data, at)
    standby_tasks_pending_revocation_count -= 1
    if standby_tasks_pending_revocation_count < 0:
        refuse_length(standby_tasks_pending_revocation_count)
    standby_tasks_pending_revocation, at = _read_held_task_ids_rows(
        data, at, standby_tasks_pending_revocation_count
    )
    warmup_tasks_pending_revocation_count, at = read_uvarint(data, at)
    warmup_tasks_pending_revocation_count -= 1
    if warmup_tasks_pending_revocation_count < 0:
        refuse_length(warmup_tasks_pending_revocation_count)
    warmup_tasks_pending_revocation, at = _read_held_task_ids_rows(
        data, at, warmup_tasks_pending_revocation_count
    )
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return (
        member_epoch,
        previous_member_epoch,
        state,
        active_tasks,
        standby_tasks,
        warmup_tasks,
        active_tasks_pending_revocation,
        standby_tasks_pending_revocation,
        warmup_tasks_pending_revocation,
        at,
    )


def encode_streams_group_topology_key(group_id: str) -> bytes:
    """The key of the topology."""
    group_id_utf8 = group_id.encode()
    return _PACK_INT16_2_TIMES(23, len(group_id_utf8)) + group_id_utf8


def read_streams_group_topology_key(data: bytes) -> tuple[str, int]:
    """Read group_id, and the position after them."""
    (group_id_size,) = _UNPACK_INT16(data, 2)
    at = 4
    end = at + group_id_size
    if group_id_size < 0 or end > len(data):
        refuse_length(group_id_size)
    group_id = data[at:end].decode()
    at = end
    return group_id, at


def encode_streams_group_topology_value(
    epoch: int, subtopologies: Collection[Subtopology]
) -> bytes:
    """The topology of a group."""
    return (
        _PACK_INT16_INT32(0, epoch)
        + encoded_uvarint(len(subtopologies) + 1)
        + _encode_subtopology_rows(subtopologies)
        + b"\0"
    )


def read_streams_group_topology_value(data: bytes) -> tuple[int, Collection[Subtopology], int]:
    """Read epoch, subtopologies, and the position after them."""
    (epoch,) = _UNPACK_INT32(data, 2)
    at = 6
    subtopologies_count, at = read_uvarint(data, at)
    subtopologies_count -= 1
    if subtopologies_count < 0:
        refuse_length(subtopologies_count)
    subtopologies, at = _read_subtopology_rows(data, at, subtopologies_count)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return epoch, subtopologies, at


READ_KEY: dict[int, Callable[[bytes], tuple[Any, ...]]] = {
    17: read_streams_group_metadata_key,
    19: read_streams_group_member_metadata_key,
    20: read_streams_group_target_assignment_metadata_key,
    21: read_streams_group_target_assignment_member_key,
    22: read_streams_group_current_member_assignment_key,
    23: read_streams_group_topology_key,
}
ENCODE_KEY: dict[int, Callable[..., bytes]] = {
    17: encode_streams_group_metadata_key,
    19: encode_streams_group_member_metadata_key,
    20: encode_streams_group_target_assignment_metadata_key,
    21: encode_streams_group_target_assignment_member_key,
    22: encode_streams_group_current_member_assignment_key,
    23: encode_streams_group_topology_key,
}
