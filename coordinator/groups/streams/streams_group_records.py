"""The records of streams groups (KIP-1071) in `__consumer_offsets`, as Apache Kafka 4.3 writes
them.

Keys: int16 version, then strings of int16 length and UTF-8:

    17     the group                   group_id
    19     a member                    group_id, member_id
    20     its target assignment       group_id
    21     a member's target           group_id, member_id
    22     a member's assignment       group_id, member_id
    23     its topology                group_id

Values: int16 version (0), then, in compact forms and with tagged fields at the end of each struct:

    17     epoch int32, metadata_hash int64; tag 0: validated_topology_epoch int32 (not written if
           it is -1); tag 1: last_assignment_configs, an array of (key string, value string)
    19     instance_id, rack_id (nullable strings), client_id, client_host (strings),
           rebalance_timeout_ms int32, topology_epoch int32, process_id string, user_endpoint
           (int8 -1 for null, or 1, host string, port uint16), client_tags: array of (key string,
           value string)
    20     assignment_epoch int32; tag 0: assignment_timestamp int64 (not written if it is 0)
    21     active_tasks, standby_tasks, warmup_tasks: arrays of (subtopology_id string, partitions
           array of int32)
    22     member_epoch int32, previous_member_epoch int32, state int8 (1 stable, 2 unrevoked tasks,
           3 unreleased tasks); active_tasks, standby_tasks, warmup_tasks, and the same three for
           tasks to revoke: arrays of (subtopology_id string, partitions array of int32; tag 0, of
           active tasks: assignment_epochs, an array of int32 with the same length)
    23     epoch int32, subtopologies: array of (subtopology_id string; source_topics,
           source_topic_regex: arrays of strings; state_changelog_topics: array of topics;
           repartition_sink_topics: array of strings; repartition_source_topics: array of topics;
           copartition_groups: array of (source_topics, source_topic_regex,
           repartition_source_topics: arrays of int16)), where a topic is (name string, partitions
           int32, replication_factor int16, topic_configs: array of (key string, value string))

A value of None is a tombstone. The hash function is Barnabas's own, as for consumer groups.

Source: Apache Kafka's schemas StreamsGroup*Key and StreamsGroup*Value; KIP-1071, KIP-1263.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeVar

from barnabas.coordinator.groups.record_parts import encode_key, value_start
from barnabas.coordinator.groups.streams.tasks import (
    NONE_HELD,
    HeldTasks,
    TaskEpochs,
    Tasks,
    TaskSet,
    tasks_of,
)
from barnabas.coordinator.groups.streams.topology import CopartitionGroup, Subtopology, Topology
from barnabas.coordinator.result import CoordinatorRecord, InternalTopic
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_string,
    read_numbers,
    read_string,
    read_strings,
    read_structs,
    read_tags,
    skip_tags,
    write_nullable_string,
    write_numbers,
    write_string,
    write_strings,
    write_tags,
    write_uvarint,
)

GROUP_VERSION = 17
MEMBER_VERSION = 19
TARGET_VERSION = 20
MEMBER_TARGET_VERSION = 21
CURRENT_VERSION = 22
TOPOLOGY_VERSION = 23
# The keys of these versions contain the group's id and no member id.
VERSIONS_OF_GROUPS = (GROUP_VERSION, TARGET_VERSION, TOPOLOGY_VERSION)
VERSIONS_OF_MEMBERS = (MEMBER_VERSION, MEMBER_TARGET_VERSION, CURRENT_VERSION)

NO_EPOCH = -1
NO_HASH = 0
NO_TIMESTAMP = 0
_EPOCH_TAG, _CONFIGS_TAG = 0, 1
_TIMESTAMP_TAG = _EPOCHS_TAG = 0
_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_GROUP_HEAD = struct.Struct(">iq")
_MEMBER_NUMBERS = struct.Struct(">ii")
_CURRENT_HEAD = struct.Struct(">iib")
_TOPIC_NUMBERS = struct.Struct(">ih")
_VALUE_VERSION = _INT16.pack(0)
_IS_NULL, _IS_THERE = -1, 1
_NO_TAGS = 0

Item = TypeVar("Item")


class StreamsGroupKey(NamedTuple):
    """The key of a record of a streams group.

    version: the kind of the record. member_id: empty for the records of the group itself.
    """

    version: int
    group_id: str
    member_id: str


class GroupEpochValue(NamedTuple):
    """The value of a group's record.

    validated_topology_epoch: NO_EPOCH while topics of the topology are missing.
    """

    epoch: int
    metadata_hash: int
    validated_topology_epoch: int
    assignment_configs: tuple[tuple[str, str], ...]


class MemberValue(NamedTuple):
    """The value of a member's record, which identifies the member.

    process_id: the id of the application's instance, which may have several members. endpoint: host
    and port at which the member answers interactive queries.
    """

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    endpoint: tuple[str, int] | None
    client_tags: tuple[tuple[str, str], ...]


class MemberState(IntEnum):
    """The progress of a member towards its target assignment."""

    STABLE = 1
    """The member has its target assignment."""

    UNREVOKED_TASKS = 2
    """The member has to give up tasks, and has not confirmed that. It stays in its epoch."""

    UNRELEASED_TASKS = 3
    """The member is in the target's epoch, and waits for tasks that other members still have."""

    UNKNOWN = 127
    """A state of a later Apache Kafka: the member has to join again without tasks."""


class CurrentValue(NamedTuple):
    """The value of the record of a member's current assignment."""

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: HeldTasks
    pending_revocation: HeldTasks


NOTHING = CurrentValue(0, 0, MemberState.STABLE, NONE_HELD, NONE_HELD)
"""The current assignment of a new member."""


# --- keys ---------------------------------------------------------------------------------------


def decode_streams_key(key: bytes) -> StreamsGroupKey | None:
    """The key of a record of a streams group; None for a record of another kind."""
    (version,) = _INT16.unpack_from(key)
    if version in VERSIONS_OF_GROUPS:
        return StreamsGroupKey(version, read_string(key, _INT16.size, False)[0], "")
    if version not in VERSIONS_OF_MEMBERS:
        return None
    group_id, at = read_string(key, _INT16.size, False)
    return StreamsGroupKey(version, group_id, read_string(key, at, False)[0])


def _key(version: int, group_id: str, member_id: str) -> bytes:
    return encode_key(version, group_id, None if version in VERSIONS_OF_GROUPS else member_id)


def tombstone(version: int, group_id: str, member_id: str = "") -> CoordinatorRecord:
    """The tombstone for the record with this key."""
    return CoordinatorRecord(_key(version, group_id, member_id), None)


def _record(version: int, group_id: str, member_id: str, value: bytearray) -> CoordinatorRecord:
    return CoordinatorRecord(_key(version, group_id, member_id), bytes(value))


# --- values -------------------------------------------------------------------------------------


def group_epoch_record(group_id: str, value: GroupEpochValue) -> CoordinatorRecord:
    """The record of a group's epoch, and of the values that raise the epoch when they change."""
    out = bytearray(_VALUE_VERSION)
    out += _GROUP_HEAD.pack(value.epoch, value.metadata_hash)
    tags: dict[int, bytearray] = {}
    if value.validated_topology_epoch != NO_EPOCH:
        tags[_EPOCH_TAG] = bytearray(_INT32.pack(value.validated_topology_epoch))
    tags[_CONFIGS_TAG] = bytearray()
    _write_pairs(tags[_CONFIGS_TAG], value.assignment_configs)
    write_tags(out, tags)
    return _record(GROUP_VERSION, group_id, "", out)


def decode_group_epoch(value: bytes) -> GroupEpochValue:
    at = value_start(value, "streams")
    epoch, metadata_hash = _GROUP_HEAD.unpack_from(value, at)
    tags, _ = read_tags(value, at + _GROUP_HEAD.size)
    validated, configs = tags.get(_EPOCH_TAG), tags.get(_CONFIGS_TAG)
    return GroupEpochValue(
        epoch,
        metadata_hash,
        NO_EPOCH if validated is None else _INT32.unpack(validated)[0],
        () if configs is None or configs[0] == 0 else _read_pairs(configs, 0)[0],
    )


def member_record(group_id: str, member_id: str, member: MemberValue) -> CoordinatorRecord:
    """The record of a member's identity."""
    out = bytearray(_VALUE_VERSION)
    write_nullable_string(out, member.instance_id, True)
    write_nullable_string(out, member.rack_id, True)
    write_string(out, member.client_id, True)
    write_string(out, member.client_host, True)
    out += _MEMBER_NUMBERS.pack(member.rebalance_timeout_ms, member.topology_epoch)
    write_string(out, member.process_id, True)
    if member.endpoint is None:
        out += _INT8.pack(_IS_NULL)
    else:
        host, port = member.endpoint
        out += _INT8.pack(_IS_THERE)
        write_string(out, host, True)
        out += _UINT16.pack(port)
        out.append(_NO_TAGS)
    _write_pairs(out, member.client_tags)
    out.append(_NO_TAGS)
    return _record(MEMBER_VERSION, group_id, member_id, out)


def decode_member(value: bytes) -> MemberValue:
    at = value_start(value, "streams")
    instance_id, at = read_nullable_string(value, at, True)
    rack_id, at = read_nullable_string(value, at, True)
    client_id, at = read_string(value, at, True)
    client_host, at = read_string(value, at, True)
    rebalance_timeout_ms, topology_epoch = _MEMBER_NUMBERS.unpack_from(value, at)
    process_id, at = read_string(value, at + _MEMBER_NUMBERS.size, True)
    (presence,) = _INT8.unpack_from(value, at)
    at += _INT8.size
    endpoint = None
    if presence == _IS_THERE:
        host, at = read_string(value, at, True)
        endpoint = (host, _UINT16.unpack_from(value, at)[0])
        at = skip_tags(value, at + _UINT16.size)
    client_tags, _ = _read_pairs(value, at)
    return MemberValue(
        instance_id, rack_id, client_id, client_host, rebalance_timeout_ms, topology_epoch,
        process_id, endpoint, client_tags,
    )  # fmt: skip


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """The record of the target assignment's epoch, and of the time when it was computed."""
    out = bytearray(_VALUE_VERSION)
    out += _INT32.pack(epoch)
    tags = (
        {}
        if timestamp_ms == NO_TIMESTAMP
        else {_TIMESTAMP_TAG: bytearray(_INT64.pack(timestamp_ms))}
    )
    write_tags(out, tags)
    return _record(TARGET_VERSION, group_id, "", out)


def decode_target_epoch(value: bytes) -> int:
    (epoch,) = _INT32.unpack_from(value, value_start(value, "streams"))
    return int(epoch)


def member_target_record(group_id: str, member_id: str, target: TaskSet) -> CoordinatorRecord:
    """The record of a member's target assignment."""
    out = bytearray(_VALUE_VERSION)
    for tasks in target:
        _write_tasks(out, tasks)
    out.append(_NO_TAGS)
    return _record(MEMBER_TARGET_VERSION, group_id, member_id, out)


def decode_member_target(value: bytes) -> TaskSet:
    active, at = _read_tasks(value, value_start(value, "streams"))
    standby, at = _read_tasks(value, at)
    warmup, _ = _read_tasks(value, at)
    return TaskSet(active, standby, warmup)


def current_record(group_id: str, member_id: str, current: CurrentValue) -> CoordinatorRecord:
    """The record of a member's current assignment."""
    out = bytearray(_VALUE_VERSION)
    out += _CURRENT_HEAD.pack(current.member_epoch, current.previous_member_epoch, current.state)
    for held in (current.assigned, current.pending_revocation):
        _write_tasks_with_epochs(out, held.active)
        _write_tasks(out, held.standby)
        _write_tasks(out, held.warmup)
    out.append(_NO_TAGS)
    return _record(CURRENT_VERSION, group_id, member_id, out)


def decode_current(value: bytes) -> CurrentValue:
    """Decode the current assignment of a member.

    If the record has no assignment epoch for a task, the task gets the member's epoch.
    """
    at = value_start(value, "streams")
    member_epoch, previous_epoch, state = _CURRENT_HEAD.unpack_from(value, at)
    at += _CURRENT_HEAD.size
    assigned, at = _read_held(value, at, member_epoch)
    pending_revocation, _ = _read_held(value, at, member_epoch)
    known_states = [known.value for known in MemberState]
    return CurrentValue(
        member_epoch,
        previous_epoch,
        MemberState(state) if state in known_states else MemberState.UNKNOWN,
        assigned,
        pending_revocation,
    )


def topology_record(group_id: str, topology: Topology) -> CoordinatorRecord:
    """The record of a group's topology."""
    out = bytearray(_VALUE_VERSION)
    out += _INT32.pack(topology.epoch)
    write_uvarint(out, len(topology.subtopologies) + 1)
    for one in topology.subtopologies.values():
        write_string(out, one.subtopology_id, True)
        write_strings(out, one.source_topics, True)
        write_strings(out, one.source_topic_regex, True)
        _write_topics(out, one.changelog_topics)
        write_strings(out, one.repartition_sink_topics, True)
        _write_topics(out, one.repartition_source_topics)
        write_uvarint(out, len(one.copartition_groups) + 1)
        for group in one.copartition_groups:
            for indexes in group:
                write_numbers(out, indexes, True, "h")
            out.append(_NO_TAGS)
        out.append(_NO_TAGS)
    out.append(_NO_TAGS)
    return _record(TOPOLOGY_VERSION, group_id, "", out)


def decode_topology(value: bytes) -> Topology:
    at = value_start(value, "streams")
    (epoch,) = _INT32.unpack_from(value, at)
    rows, _ = read_structs(value, at + _INT32.size, True, _read_subtopology, 0)
    return Topology(epoch, tuple(rows))


def _read_subtopology(data: Buffer, at: int, version: int) -> tuple[Subtopology, int]:
    """A subtopology, and the position after it."""
    subtopology_id, at = read_string(data, at, True)
    source_topics, at = read_strings(data, at, True)
    source_topic_regex, at = read_strings(data, at, True)
    changelog_topics, at = read_structs(data, at, True, _read_topic, 0)
    sink_topics, at = read_strings(data, at, True)
    repartition_topics, at = read_structs(data, at, True, _read_topic, 0)
    groups, at = read_structs(data, at, True, _read_copartition_group, 0)
    return Subtopology(
        subtopology_id, tuple(source_topics), tuple(source_topic_regex), tuple(changelog_topics),
        tuple(sink_topics), tuple(repartition_topics), tuple(groups),
    ), skip_tags(data, at)  # fmt: skip


def _read_copartition_group(data: Buffer, at: int, version: int) -> tuple[CopartitionGroup, int]:
    """A copartition group, as indexes into the lists of topics, and the position after it."""
    source_topics, at = read_numbers(data, at, True, "h")
    source_topic_regex, at = read_numbers(data, at, True, "h")
    repartition_topics, at = read_numbers(data, at, True, "h")
    return CopartitionGroup(
        tuple(source_topics), tuple(source_topic_regex), tuple(repartition_topics)
    ), skip_tags(data, at)


# --- small parts --------------------------------------------------------------------------------


def _write_topics(out: bytearray, topics: tuple[InternalTopic, ...]) -> None:
    """Append internal topics."""
    write_uvarint(out, len(topics) + 1)
    for topic in topics:
        write_string(out, topic.name, True)
        out += _TOPIC_NUMBERS.pack(topic.partition_count, topic.replication_factor)
        _write_pairs(out, topic.configs)
        out.append(_NO_TAGS)


def _read_topic(data: Buffer, at: int, version: int) -> tuple[InternalTopic, int]:
    """An internal topic, and the position after it."""
    name, at = read_string(data, at, True)
    partition_count, replication_factor = _TOPIC_NUMBERS.unpack_from(data, at)
    configs, at = _read_pairs(data, at + _TOPIC_NUMBERS.size)
    return InternalTopic(name, partition_count, replication_factor, configs), skip_tags(data, at)


def _write_pairs(out: bytearray, pairs: tuple[tuple[str, str], ...]) -> None:
    """Append keys and values."""
    write_uvarint(out, len(pairs) + 1)
    for key, value in pairs:
        write_string(out, key, True)
        write_string(out, value, True)
        out.append(_NO_TAGS)


def _read_pairs(data: Buffer, at: int) -> tuple[tuple[tuple[str, str], ...], int]:
    pairs, at = read_structs(data, at, True, _read_pair, 0)
    return tuple(pairs), at


def _read_pair(data: Buffer, at: int, version: int) -> tuple[tuple[str, str], int]:
    key, at = read_string(data, at, True)
    value, at = read_string(data, at, True)
    return (key, value), skip_tags(data, at)


def _write_tasks(out: bytearray, tasks: Tasks) -> None:
    """Append the tasks, by subtopology."""
    write_uvarint(out, len(tasks) + 1)
    for subtopology_id, partitions in tasks.items():
        write_string(out, subtopology_id, True)
        write_numbers(out, partitions, True, "i")
        out.append(_NO_TAGS)


def _write_tasks_with_epochs(out: bytearray, tasks: TaskEpochs) -> None:
    """Append the tasks, by subtopology, with their assignment epochs in a tagged field."""
    write_uvarint(out, len(tasks) + 1)
    for subtopology_id, epochs in tasks.items():
        write_string(out, subtopology_id, True)
        write_numbers(out, list(epochs), True, "i")
        field = bytearray()
        write_numbers(field, list(epochs.values()), True, "i")
        write_tags(out, {_EPOCHS_TAG: field})


def _read_tasks(data: Buffer, at: int) -> tuple[Tasks, int]:
    rows, at = read_structs(data, at, True, _task_reader(None), 0)
    return tasks_of(rows), at


def _read_held(data: Buffer, at: int, member_epoch: int) -> tuple[HeldTasks, int]:
    """The tasks of a member in the three roles, and the position after them."""
    rows, at = read_structs(data, at, True, _task_reader(member_epoch), 0)
    standby, at = _read_tasks(data, at)
    warmup, at = _read_tasks(data, at)
    active = {
        subtopology_id: dict(sorted(epochs.items())) for subtopology_id, epochs in sorted(rows)
        if epochs
    }  # fmt: skip
    return HeldTasks(active, standby, warmup), at


def _task_reader(
    member_epoch: int | None,
) -> Callable[[Buffer, int, int], tuple[tuple[str, dict[int, int]], int]]:
    """Return a function that reads the tasks of one subtopology.

    Takes:  member_epoch, the epoch of tasks that have none of their own; None if the tasks are of a
            role that has no epochs.
    """

    def read(data: Buffer, at: int, version: int) -> tuple[tuple[str, dict[int, int]], int]:
        subtopology_id, at = read_string(data, at, True)
        partitions, at = read_numbers(data, at, True, "i")
        if member_epoch is None:
            return (subtopology_id, dict.fromkeys(partitions, 0)), skip_tags(data, at)
        tags, at = read_tags(data, at)
        field = tags.get(_EPOCHS_TAG)
        epochs = None if field is None or field[0] == 0 else read_numbers(field, 0, True, "i")[0]
        if epochs is None or len(epochs) != len(partitions):
            epochs = [member_epoch] * len(partitions)
        return (subtopology_id, dict(zip(partitions, epochs, strict=True))), at

    return read
