"""The records of consumer groups (KIP-848) in `__consumer_offsets`, as Apache Kafka 4 writes them.

Keys: int16 version, then strings of int16 length and UTF-8:

    3      the group                   group_id
    4      its topics (4.0)            group_id; not written, since 4.1 stores a hash, but
                                       removed with the group if it is found
    5      a member                    group_id, member_id
    6      its target assignment       group_id
    7      a member's target           group_id, member_id
    8      a member's assignment       group_id, member_id
    16     the topics of a pattern     group_id, regular_expression

Values: int16 version (0), then, in compact forms and with tagged fields at the end of each struct:

    3      epoch int32; tag 0: metadata_hash int64 (not written if it is 0)
    5      instance_id, rack_id (nullable strings), client_id, client_host (strings),
           subscribed_topic_names (array of strings), subscribed_topic_regex (nullable string),
           rebalance_timeout_ms int32, server_assignor (nullable string); tag 0, of a member that
           speaks the classic protocol: int8 1, session_timeout_ms int32,
           supported_protocols (array of: name string, metadata bytes)
    6      assignment_epoch int32
    7      topic_partitions: array of (topic_id uuid, partitions array of int32)
    8      member_epoch int32, previous_member_epoch int32, state int8 (0 stable, 1 unrevoked
           partitions, 2 unreleased partitions), assigned_partitions, partitions_pending_revocation:
           arrays of (topic_id uuid, partitions array of int32; tag 0: assignment_epochs, an array
           of int32 with the same length, KIP-1251)
    16     topics (array of strings), version int64 (of the metadata that they come from),
           timestamp int64

A value of None is a tombstone. The hash function is Barnabas's own: an Apache Kafka that takes over
the directory computes another hash, raises the group's epoch once, and leaves partitions with their
members. Barnabas does the same with Kafka's hash.

Source: Apache Kafka's schemas ConsumerGroup*Key and ConsumerGroup*Value; KIP-848, KIP-1101,
        KIP-1251.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeVar

from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.record_parts import encode_key, read_topic_id, value_start
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.primitives import (
    Buffer,
    read_bytes,
    read_nullable_string,
    read_numbers,
    read_string,
    read_strings,
    read_structs,
    read_tags,
    skip_tags,
    write_bytes,
    write_nullable_string,
    write_numbers,
    write_string,
    write_strings,
    write_uuid,
    write_uvarint,
)

GROUP_VERSION = 3
TOPICS_VERSION = 4
MEMBER_VERSION = 5
TARGET_VERSION = 6
MEMBER_TARGET_VERSION = 7
CURRENT_VERSION = 8
PATTERN_VERSION = 16
VERSIONS_OF_GROUPS = (
    GROUP_VERSION,
    TOPICS_VERSION,
    TARGET_VERSION,
)  # the keys of these versions contain only the group's id

NO_HASH = 0
FIRST_TAG = 0
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_CURRENT_HEAD = struct.Struct(">iib")
_VALUE_VERSION = _INT16.pack(0)
_STRUCT_IS_THERE = 1
_NO_TAGS = 0

Item = TypeVar("Item")
PartitionEpochs = dict[uuid.UUID, dict[int, int]]
"""The partitions of each topic, and the epoch in which the member got each."""


class ConsumerGroupKey(NamedTuple):
    """The key of a record of a consumer group.

    version: the kind of the record. name: the member's id or the regular expression; empty for the
    other kinds.
    """

    version: int
    group_id: str
    name: str


class GroupEpochValue(NamedTuple):
    """The value of a group's record."""

    epoch: int
    metadata_hash: int


class ClassicMember(NamedTuple):
    """The stored fields of a member that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberValue(NamedTuple):
    """The value of a member's record: its subscription and its identity.

    subscribed_topic_regex: the member's pattern; empty if it has none. classic: None for a member
    of the consumer protocol.
    """

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMember | None


class MemberState(IntEnum):
    """The progress of a member towards its target assignment."""

    STABLE = 0
    """The member has its target assignment."""

    UNREVOKED_PARTITIONS = 1
    """The member has to give up partitions, and has not confirmed that. It stays in its epoch."""

    UNRELEASED_PARTITIONS = 2
    """The member is in the target's epoch, and waits for partitions that other members still
    have.
    """


class CurrentValue(NamedTuple):
    """The value of the record of a member's current assignment."""

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: PartitionEpochs
    pending_revocation: PartitionEpochs


class PatternValue(NamedTuple):
    """The value of the record of a pattern: the topics that it matched."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


# --- keys ---------------------------------------------------------------------------------------


def decode_consumer_key(key: bytes) -> ConsumerGroupKey | None:
    """The key of a record of a consumer group; None for a record of another kind."""
    (version,) = _INT16.unpack_from(key)
    if version in VERSIONS_OF_GROUPS:
        return ConsumerGroupKey(version, read_string(key, _INT16.size, False)[0], "")
    if version not in (MEMBER_VERSION, MEMBER_TARGET_VERSION, CURRENT_VERSION, PATTERN_VERSION):
        return None
    group_id, at = read_string(key, _INT16.size, False)
    return ConsumerGroupKey(version, group_id, read_string(key, at, False)[0])


def _key(version: int, group_id: str, name: str) -> bytes:
    return encode_key(version, group_id, None if version in VERSIONS_OF_GROUPS else name)


def tombstone(version: int, group_id: str, name: str = "") -> CoordinatorRecord:
    """The tombstone for the record with this key."""
    return CoordinatorRecord(_key(version, group_id, name), None)


# --- values -------------------------------------------------------------------------------------


def _record(version: int, group_id: str, name: str, value: bytearray) -> CoordinatorRecord:
    return CoordinatorRecord(_key(version, group_id, name), bytes(value))


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The record of a group's epoch, and of the hash of its topics."""
    out = bytearray(_VALUE_VERSION)
    out += _INT32.pack(epoch)
    if metadata_hash == NO_HASH:
        out.append(_NO_TAGS)
    else:
        _write_tag(out, _INT64.pack(metadata_hash))
    return _record(GROUP_VERSION, group_id, "", out)


def decode_group_epoch(value: bytes) -> GroupEpochValue:
    at = value_start(value, "consumer")
    (epoch,) = _INT32.unpack_from(value, at)
    tags, _ = read_tags(value, at + 4)
    metadata_hash = tags.get(FIRST_TAG)
    return GroupEpochValue(
        epoch, NO_HASH if metadata_hash is None else _INT64.unpack(metadata_hash)[0]
    )


def member_record(group_id: str, member_id: str, member: MemberValue) -> CoordinatorRecord:
    """The record of a member, with its subscription and its identity."""
    out = bytearray(_VALUE_VERSION)
    write_nullable_string(out, member.instance_id, True)
    write_nullable_string(out, member.rack_id, True)
    write_string(out, member.client_id, True)
    write_string(out, member.client_host, True)
    write_strings(out, member.subscribed_topic_names, True)
    write_nullable_string(out, member.subscribed_topic_regex or None, True)
    out += _INT32.pack(member.rebalance_timeout_ms)
    write_nullable_string(out, member.server_assignor, True)
    if member.classic is None:
        out.append(_NO_TAGS)
    else:
        field = bytearray([_STRUCT_IS_THERE])
        field += _INT32.pack(member.classic.session_timeout_ms)
        write_uvarint(field, len(member.classic.protocols) + 1)
        for name, metadata in member.classic.protocols:
            write_string(field, name, True)
            write_bytes(field, metadata, True)
            field.append(_NO_TAGS)
        field.append(_NO_TAGS)
        _write_tag(out, field)
    return _record(MEMBER_VERSION, group_id, member_id, out)


def decode_member(value: bytes) -> MemberValue:
    at = value_start(value, "consumer")
    instance_id, at = read_nullable_string(value, at, True)
    rack_id, at = read_nullable_string(value, at, True)
    client_id, at = read_string(value, at, True)
    client_host, at = read_string(value, at, True)
    names, at = read_strings(value, at, True)
    regex, at = read_nullable_string(value, at, True)
    (rebalance_timeout_ms,) = _INT32.unpack_from(value, at)
    server_assignor, at = read_nullable_string(value, at + 4, True)
    tags, _ = read_tags(value, at)
    classic = tags.get(FIRST_TAG)
    return MemberValue(
        instance_id, rack_id, client_id, client_host, tuple(names), regex or "",
        rebalance_timeout_ms, server_assignor,
        None if classic is None else _read_classic(classic),
    )  # fmt: skip


def _read_classic(data: Buffer) -> ClassicMember | None:
    """The part of a record that only members of the classic protocol have."""
    if data[0] != _STRUCT_IS_THERE:
        return None
    (session_timeout_ms,) = _INT32.unpack_from(data, 1)
    protocols, _ = read_structs(data, 1 + _INT32.size, True, _read_protocol, 0)
    return ClassicMember(session_timeout_ms, tuple(protocols))


def _read_protocol(data: Buffer, at: int, version: int) -> tuple[tuple[str, bytes], int]:
    """The name and metadata of a protocol, and the position after them."""
    name, at = read_string(data, at, True)
    metadata, at = read_bytes(data, at, True)
    return (name, metadata), skip_tags(data, at)


def target_epoch_record(group_id: str, epoch: int) -> CoordinatorRecord:
    """The record of the target assignment's epoch."""
    out = bytearray(_VALUE_VERSION)
    out += _INT32.pack(epoch)
    out.append(_NO_TAGS)
    return _record(TARGET_VERSION, group_id, "", out)


def decode_target_epoch(value: bytes) -> int:
    (epoch,) = _INT32.unpack_from(value, value_start(value, "consumer"))
    return int(epoch)


def member_target_record(
    group_id: str, member_id: str, assignment: Assignment
) -> CoordinatorRecord:
    """The record of a member's target assignment."""
    out = bytearray(_VALUE_VERSION)
    write_uvarint(out, len(assignment) + 1)
    for topic_id, partitions in assignment.items():
        write_uuid(out, topic_id)
        write_numbers(out, partitions, True, "i")
        out.append(_NO_TAGS)
    out.append(_NO_TAGS)
    return _record(MEMBER_TARGET_VERSION, group_id, member_id, out)


def decode_member_target(value: bytes) -> Assignment:
    rows, _ = read_structs(value, value_start(value, "consumer"), True, _read_target_topic, 0)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in rows if partitions}


def _read_target_topic(
    data: Buffer, at: int, version: int
) -> tuple[tuple[uuid.UUID, list[int]], int]:
    """A topic with its partitions in a target assignment, and the position after it."""
    topic_id, at = read_topic_id(data, at)
    partitions, at = read_numbers(data, at, True, "i")
    return (topic_id, partitions), skip_tags(data, at)


def current_record(group_id: str, member_id: str, current: CurrentValue) -> CoordinatorRecord:
    """The record of a member's current assignment."""
    out = bytearray(_VALUE_VERSION)
    out += _CURRENT_HEAD.pack(current.member_epoch, current.previous_member_epoch, current.state)
    for partitions in (current.assigned, current.pending_revocation):
        write_uvarint(out, len(partitions) + 1)
        for topic_id, epochs in partitions.items():
            write_uuid(out, topic_id)
            write_numbers(out, list(epochs), True, "i")
            field = bytearray()
            write_numbers(field, list(epochs.values()), True, "i")
            _write_tag(out, field)
    out.append(_NO_TAGS)
    return _record(CURRENT_VERSION, group_id, member_id, out)


def decode_current(value: bytes) -> CurrentValue:
    """The current assignment of a member.

    A partition that has no assignment epoch in the record gets the member's epoch.
    """
    at = value_start(value, "consumer")
    member_epoch, previous_epoch, state = _CURRENT_HEAD.unpack_from(value, at)
    read = _current_topic_reader(max(member_epoch, 0))
    assigned, at = read_structs(value, at + _CURRENT_HEAD.size, True, read, 0)
    pending_revocation, _ = read_structs(value, at, True, read, 0)
    known_states = [known.value for known in MemberState]
    return CurrentValue(
        member_epoch,
        previous_epoch,
        # A later Apache Kafka may have further states. The member then takes the next step from its
        # present partitions.
        MemberState(state) if state in known_states else MemberState.UNRELEASED_PARTITIONS,
        dict(assigned),
        dict(pending_revocation),
    )


def _current_topic_reader(
    epoch: int,
) -> Callable[[Buffer, int, int], tuple[tuple[uuid.UUID, dict[int, int]], int]]:
    """The function that reads the row of a topic in a current assignment. Takes: epoch, the epoch
    of partitions that have no assignment epoch.
    """

    def read(data: Buffer, at: int, version: int) -> tuple[tuple[uuid.UUID, dict[int, int]], int]:
        topic_id, at = read_topic_id(data, at)
        partitions, at = read_numbers(data, at, True, "i")
        tags, at = read_tags(data, at)
        field = tags.get(FIRST_TAG)
        epochs = None if field is None else read_numbers(field, 0, True, "i")[0]
        if epochs is None or len(epochs) != len(partitions):
            epochs = [epoch] * len(partitions)
        return (topic_id, dict(zip(partitions, epochs, strict=True))), at

    return read


def pattern_record(group_id: str, regex: str, pattern: PatternValue) -> CoordinatorRecord:
    """The record of the topics that a pattern matched."""
    out = bytearray(_VALUE_VERSION)
    write_strings(out, pattern.topics, True)
    out += _INT64.pack(pattern.version) + _INT64.pack(pattern.timestamp_ms)
    out.append(_NO_TAGS)
    return _record(PATTERN_VERSION, group_id, regex, out)


def decode_pattern(value: bytes) -> PatternValue:
    topics, at = read_strings(value, value_start(value, "consumer"), True)
    (version,) = _INT64.unpack_from(value, at)
    (timestamp_ms,) = _INT64.unpack_from(value, at + 8)
    return PatternValue(tuple(topics), version, timestamp_ms)


# --- small parts --------------------------------------------------------------------------------


def _write_tag(out: bytearray, field: bytes | bytearray) -> None:
    """Write a tagged section that has only one field, with the first tag."""
    out.append(1)
    out.append(FIRST_TAG)
    write_uvarint(out, len(field))
    out += field
