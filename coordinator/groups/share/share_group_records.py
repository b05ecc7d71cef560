"""Records of share groups (KIP-932) in `__consumer_offsets`, in Apache Kafka's formats.

Keys: int16 version, then strings that are not compact:

    key    kind                        fields
    10     a member                    group_id, member_id
    11     a group's epoch             group_id
    12     its target assignment       group_id
    13     a member's target           group_id, member_id
    14     a member's assignment       group_id, member_id
    15     the states of partitions    group_id

Values: int16 version (0), then, in compact forms and with tagged fields at the end of each struct:

    10     rack_id (nullable string), client_id, client_host (strings), subscribed_topic_names
           (array of strings)
    11     epoch int32, metadata_hash int64
    12     assignment_epoch int32; tag 0: assignment_timestamp int64 (KIP-1263; not written if it
           is 0)
    13     topic_partitions: array of (topic_id uuid, partitions array of int32)
    14     member_epoch int32, previous_member_epoch int32, state int8 (always 0),
           assigned_partitions: array as in 13
    15     initializing_topics, initialized_topics: arrays of (topic_id uuid, topic_name string,
           partitions array of int32); deleting_topics: array of (topic_id uuid, topic_name string)

A value of None is a tombstone. The hash function is Barnabas's own, as for consumer groups.

Source: Apache Kafka's schemas ShareGroup*Key and ShareGroup*Value.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.record_parts import encode_key, read_topic_id, value_start
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_string,
    read_numbers,
    read_string,
    read_strings,
    read_structs,
    skip_tags,
    write_nullable_string,
    write_numbers,
    write_string,
    write_strings,
    write_uuid,
    write_uvarint,
)

MEMBER_VERSION = 10
GROUP_VERSION = 11
TARGET_VERSION = 12
MEMBER_TARGET_VERSION = 13
CURRENT_VERSION = 14
STATES_VERSION = 15
_VERSIONS_OF_MEMBERS = (MEMBER_VERSION, MEMBER_TARGET_VERSION, CURRENT_VERSION)
_VERSIONS_OF_GROUPS = (GROUP_VERSION, TARGET_VERSION, STATES_VERSION)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_EPOCH = struct.Struct(">iq")
_CURRENT_HEAD = struct.Struct(">iib")
_VALUE_VERSION = _INT16.pack(0)
_NO_TAGS = 0
_TIMESTAMP_TAG = 0
_STABLE = 0  # the only state that a member can have


class ShareGroupKey(NamedTuple):
    """The key of a record. version: which kind of record it is. member_id: empty for the kinds of
    records that are not about a member.
    """

    version: int
    group_id: str
    member_id: str


class EpochValue(NamedTuple):
    """The value of a group's record."""

    epoch: int
    metadata_hash: int


class MemberValue(NamedTuple):
    """The value of a member's record: its subscription and its identity."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


class CurrentValue(NamedTuple):
    """The value of the record of a member's current assignment."""

    member_epoch: int
    previous_member_epoch: int
    assigned: Assignment


class TopicStates(NamedTuple):
    """The partitions of a topic whose states are initialised, or are being initialised.

    name: the topic's name when the record was made.
    """

    name: str
    partitions: tuple[int, ...]


class StatesValue(NamedTuple):
    """The value of the record of a group's partition states, by topic id.

    deleting: the names of the topics whose states are being deleted.
    """

    initializing: Mapping[uuid.UUID, TopicStates]
    initialized: Mapping[uuid.UUID, TopicStates]
    deleting: Mapping[uuid.UUID, str]


NO_STATES = StatesValue({}, {}, {})


# --- keys ---------------------------------------------------------------------------------------


def decode_share_key(key: bytes) -> ShareGroupKey | None:
    """The key of a record of a share group; None for a record of another kind."""
    (version,) = _INT16.unpack_from(key)
    if version in _VERSIONS_OF_GROUPS:
        return ShareGroupKey(version, read_string(key, _INT16.size, False)[0], "")
    if version not in _VERSIONS_OF_MEMBERS:
        return None
    group_id, at = read_string(key, _INT16.size, False)
    return ShareGroupKey(version, group_id, read_string(key, at, False)[0])


def _key(version: int, group_id: str, member_id: str) -> bytes:
    return encode_key(version, group_id, None if version in _VERSIONS_OF_GROUPS else member_id)


def tombstone(version: int, group_id: str, member_id: str = "") -> CoordinatorRecord:
    """The tombstone for the record with this key."""
    return CoordinatorRecord(_key(version, group_id, member_id), None)


# --- values -------------------------------------------------------------------------------------


def _record(version: int, group_id: str, member_id: str, out: bytearray) -> CoordinatorRecord:
    out.append(_NO_TAGS)
    return CoordinatorRecord(_key(version, group_id, member_id), bytes(out))


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The record of a group's epoch, and of the hash of its topics."""
    out = bytearray(_VALUE_VERSION)
    out += _EPOCH.pack(epoch, metadata_hash)
    return _record(GROUP_VERSION, group_id, "", out)


def decode_epoch(value: bytes) -> EpochValue:
    return EpochValue(*_EPOCH.unpack_from(value, value_start(value, "share")))


def member_record(group_id: str, member_id: str, member: MemberValue) -> CoordinatorRecord:
    """The record of a member, with its subscription and its identity."""
    out = bytearray(_VALUE_VERSION)
    write_nullable_string(out, member.rack_id, True)
    write_string(out, member.client_id, True)
    write_string(out, member.client_host, True)
    write_strings(out, member.subscribed_topic_names, True)
    return _record(MEMBER_VERSION, group_id, member_id, out)


def decode_member(value: bytes) -> MemberValue:
    rack_id, at = read_nullable_string(value, value_start(value, "share"), True)
    client_id, at = read_string(value, at, True)
    client_host, at = read_string(value, at, True)
    names, _ = read_strings(value, at, True)
    return MemberValue(rack_id, client_id, client_host, tuple(names))


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The record of the target assignment's epoch, and of the time when it was computed."""
    out = bytearray(_VALUE_VERSION)
    out += _INT32.pack(epoch)
    key = _key(TARGET_VERSION, group_id, "")
    if wall_ms == 0:
        out.append(_NO_TAGS)
    else:
        out += bytes((1, _TIMESTAMP_TAG, _INT64.size)) + _INT64.pack(wall_ms)
    return CoordinatorRecord(key, bytes(out))


def decode_target_epoch(value: bytes) -> int:
    (epoch,) = _INT32.unpack_from(value, value_start(value, "share"))
    return int(epoch)


def member_target_record(
    group_id: str, member_id: str, assignment: Assignment
) -> CoordinatorRecord:
    """The record of a member's target assignment."""
    out = bytearray(_VALUE_VERSION)
    _write_assignment(out, assignment)
    return _record(MEMBER_TARGET_VERSION, group_id, member_id, out)


def decode_member_target(value: bytes) -> Assignment:
    return _read_assignment(value, value_start(value, "share"))


def current_record(group_id: str, member_id: str, current: CurrentValue) -> CoordinatorRecord:
    """The record of a member's current assignment."""
    out = bytearray(_VALUE_VERSION)
    out += _CURRENT_HEAD.pack(current.member_epoch, current.previous_member_epoch, _STABLE)
    _write_assignment(out, current.assigned)
    return _record(CURRENT_VERSION, group_id, member_id, out)


def decode_current(value: bytes) -> CurrentValue:
    at = value_start(value, "share")
    member_epoch, previous_epoch, _ = _CURRENT_HEAD.unpack_from(value, at)
    return CurrentValue(
        member_epoch, previous_epoch, _read_assignment(value, at + _CURRENT_HEAD.size)
    )


def states_record(group_id: str, states: StatesValue) -> CoordinatorRecord:
    """The record that lists the partitions that have a state."""
    out = bytearray(_VALUE_VERSION)
    for topics in (states.initializing, states.initialized):
        write_uvarint(out, len(topics) + 1)
        for topic_id, (name, partitions) in topics.items():
            write_uuid(out, topic_id)
            write_string(out, name, True)
            write_numbers(out, partitions, True, "i")
            out.append(_NO_TAGS)
    write_uvarint(out, len(states.deleting) + 1)
    for topic_id, name in states.deleting.items():
        write_uuid(out, topic_id)
        write_string(out, name, True)
        out.append(_NO_TAGS)
    return _record(STATES_VERSION, group_id, "", out)


def decode_states(value: bytes) -> StatesValue:
    initializing, at = read_structs(value, value_start(value, "share"), True, _read_topic_states, 0)
    initialized, at = read_structs(value, at, True, _read_topic_states, 0)
    deleting, _ = read_structs(value, at, True, _read_topic_name, 0)
    return StatesValue(dict(initializing), dict(initialized), dict(deleting))


# --- small parts --------------------------------------------------------------------------------


def _write_assignment(out: bytearray, assignment: Assignment) -> None:
    """Append the partitions of each topic."""
    write_uvarint(out, len(assignment) + 1)
    for topic_id, partitions in assignment.items():
        write_uuid(out, topic_id)
        write_numbers(out, partitions, True, "i")
        out.append(_NO_TAGS)


def _read_assignment(value: Buffer, at: int) -> Assignment:
    rows, _ = read_structs(value, at, True, _read_topic_partitions, 0)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in rows if partitions}


def _read_topic_partitions(
    data: Buffer, at: int, version: int
) -> tuple[tuple[uuid.UUID, list[int]], int]:
    """A topic with its partitions, and the position after it."""
    topic_id, at = read_topic_id(data, at)
    partitions, at = read_numbers(data, at, True, "i")
    return (topic_id, partitions), skip_tags(data, at)


def _read_topic_states(
    data: Buffer, at: int, version: int
) -> tuple[tuple[uuid.UUID, TopicStates], int]:
    """A topic with the partitions that have a state, and the position after it."""
    topic_id, at = read_topic_id(data, at)
    name, at = read_string(data, at, True)
    partitions, at = read_numbers(data, at, True, "i")
    return (topic_id, TopicStates(name, tuple(sorted(partitions)))), skip_tags(data, at)


def _read_topic_name(data: Buffer, at: int, version: int) -> tuple[tuple[uuid.UUID, str], int]:
    topic_id, at = read_topic_id(data, at)
    name, at = read_string(data, at, True)
    return (topic_id, name), skip_tags(data, at)
