"""The records of `__consumer_offsets`: classic groups and committed offsets, as Kafka writes them.

Their bytes are Kafka's (protocol/generator/schemas/records/classic_group.json). Keys of other
versions belong to groups of other types (KIP-848) and are skipped. The value of an offset is
written as version 3, or as version 1 if the request specified a retention time; the value of a
group is written as version 3. All versions up to 4, which newer brokers write, are read.

A value of None is a tombstone. Source: KIP-211, KIP-345, KIP-915.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, NoReturn

from barnabas.coordinator.groups.group_offsets import (
    NO_TIMESTAMP,
    CommittedOffset,
    OffsetValue,
)
from barnabas.coordinator.result import CoordinatorRecord, EncodedRecord
from barnabas.protocol.internal_records import classic_group as wire
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import WallClock

_HIGHEST_READ_VERSION = 4
_GROUP_KEY_VERSION = 2  # lower ones are of offsets

encode_offset_key = wire.encode_offset_commit_key
encode_group_key = wire.encode_group_metadata_key


class OffsetKey(NamedTuple):
    """The key of an offset's record."""

    group_id: str
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class GroupKey(NamedTuple):
    """The key of a group's record."""

    group_id: str


class MemberMetadata(NamedTuple):
    """A member in the value of its group's record.

    subscription: the member's metadata for the group's protocol. Its metadata for other protocols
    are not stored.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(NamedTuple):
    """The value of a classic group's record.

    A group without members is loaded as Empty, and any other group as Stable.
    """

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


def decode_key(key: bytes) -> OffsetKey | GroupKey | None:
    """The key of a record; None if the record belongs to a group of another type."""
    version = key[1]
    if version > _GROUP_KEY_VERSION or key[0]:
        return None
    if version == _GROUP_KEY_VERSION:
        return GroupKey(wire.read_group_metadata_key(key)[0])
    return decode_offset_key(key)


def decode_offset_key(key: bytes) -> OffsetKey:
    """The key of an offset's record."""
    group_id, topic, partition, _ = wire.read_offset_commit_key(key)
    return OffsetKey(group_id, topic, partition)


def split_offset_key(key: bytes) -> tuple[str, bytes] | None:
    """Split an offset's key into the group and the rest, which does not depend on the group; None
    if it is the key of another record.

    A start reads the keys of all offsets, and decodes the rest only once for each partition. Both
    kinds of keys begin with the group.
    """
    if key[0] or key[1] >= _GROUP_KEY_VERSION:
        return None
    group_id, end = wire.read_group_metadata_key(key)
    return group_id, key[end:]


def offset_record(group_id: str, topic: str, partition: int, value: OffsetValue) -> EncodedRecord:
    """The record of one committed offset."""
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = value
    if expire_timestamp_ms == NO_TIMESTAMP:
        encoded = wire.encode_offset_commit_value_v3(
            offset, leader_epoch, metadata, commit_timestamp_ms
        )
    else:
        encoded = wire.encode_offset_commit_value_v1(
            offset, metadata, commit_timestamp_ms, expire_timestamp_ms
        )
    return encode_offset_key(group_id, topic, partition), encoded


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(encode_offset_key(group_id, topic, partition), None)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(encode_group_key(group_id), None)


def decode_offset(
    value: bytes, record_offset: int, wall: WallClock | None = None
) -> CommittedOffset:
    """Decode the value of an offset's record.

    Takes:  record_offset, the offset of the record; wall, which converts the wall-clock time of the
            commit to the steady time `since_ms`; None if that time is not needed.
    Raises: ValueError if the version is unknown.
    """
    if value[0] or value[1] > _HIGHEST_READ_VERSION:
        _refuse_version(value)
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, _ = (
        wire.read_offset_commit_value[value[1]](value)
    )
    return CommittedOffset(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        expire_timestamp_ms,
        record_offset,
        NO_TIMESTAMP if wall is None else wall.since_ms(commit_timestamp_ms),
    )


def group_record(group_id: str, group: GroupMetadataValue) -> CoordinatorRecord:
    """The record of a group's members and assignments."""
    return CoordinatorRecord(encode_group_key(group_id), wire.encode_group_metadata_value(*group))


def decode_group(value: bytes) -> GroupMetadataValue:
    """Decode the value of a group's record.

    Raises: ValueError if the version is unknown.
    """
    if value[0] or value[1] > _HIGHEST_READ_VERSION:
        _refuse_version(value)
    try:
        protocol_type, generation, protocol_name, leader_id, state_timestamp_ms, members, _ = (
            wire.read_group_metadata_value[value[1]](value)
        )
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError(
            "a field of a group's record is null, or it is longer than its record"
        ) from error
    return GroupMetadataValue(
        protocol_type,
        generation,
        protocol_name,
        leader_id,
        state_timestamp_ms,
        tuple(map(_member, members)),
    )


def _member(row: wire.MemberMetadata) -> MemberMetadata:
    """The member that a row of a group's record describes."""
    member = MemberMetadata(*row)
    # Before version 1 the session timeout was also used as the rebalance timeout.
    if member.rebalance_timeout_ms < 0:
        return member._replace(rebalance_timeout_ms=member.session_timeout_ms)
    return member


def _refuse_version(value: bytes) -> NoReturn:
    version = int.from_bytes(value[:2], "big", signed=True)
    raise ValueError(f"a record of a group has the unknown version {version}")
