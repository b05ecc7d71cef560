"""Records of share groups (KIP-932) in `__consumer_offsets`, in Apache Kafka's formats.

Their bytes are Kafka's (protocol/generator/schemas/records/share_group.json). A value of None is a
tombstone. The hash function is Barnabas's own, as for consumer groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import NamedTuple

from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.record_parts import check_version
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.internal_records import share_group as wire

MEMBER_VERSION = 10
GROUP_VERSION = 11
TARGET_VERSION = 12
MEMBER_TARGET_VERSION = 13
CURRENT_VERSION = 14
STATES_VERSION = 15
_STABLE = 0  # the only state that a member can have


class ShareGroupKey(NamedTuple):
    """The key of a record. version: which kind of record it is. member_id: empty for the kinds of
    records that are not about a member.
    """

    version: int
    group_id: str
    member_id: str = ""


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
    version = key[0] << 8 | key[1]
    read = wire.READ_KEY.get(version)
    return None if read is None else ShareGroupKey(version, *read(key)[:-1])


def tombstone(version: int, *names: str) -> CoordinatorRecord:
    """The tombstone for the record with this key: a group, and a member of it for some kinds."""
    return CoordinatorRecord(wire.ENCODE_KEY[version](*names), None)


# --- values -------------------------------------------------------------------------------------


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The record of a group's epoch, and of the hash of its topics."""
    return CoordinatorRecord(
        wire.encode_share_group_metadata_key(group_id),
        wire.encode_share_group_metadata_value(epoch, metadata_hash),
    )


def decode_epoch(value: bytes) -> EpochValue:
    check_version(value, "share")
    epoch, metadata_hash, _ = wire.read_share_group_metadata_value(value)
    return EpochValue(epoch, metadata_hash)


def member_record(group_id: str, member_id: str, member: MemberValue) -> CoordinatorRecord:
    """The record of a member, with its subscription and its identity."""
    return CoordinatorRecord(
        wire.encode_share_group_member_metadata_key(group_id, member_id),
        wire.encode_share_group_member_metadata_value(*member),
    )


def decode_member(value: bytes) -> MemberValue:
    check_version(value, "share")
    rack_id, client_id, client_host, names, _ = wire.read_share_group_member_metadata_value(value)
    return MemberValue(rack_id, client_id, client_host, tuple(names))


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The record of the target assignment's epoch, and of the time when it was computed."""
    return CoordinatorRecord(
        wire.encode_share_group_target_assignment_metadata_key(group_id),
        wire.encode_share_group_target_assignment_metadata_value(epoch, wall_ms),
    )


def decode_target_epoch(value: bytes) -> int:
    check_version(value, "share")
    return wire.read_share_group_target_assignment_metadata_value(value)[0]


def member_target_record(
    group_id: str, member_id: str, assignment: Assignment
) -> CoordinatorRecord:
    """The record of a member's target assignment."""
    return CoordinatorRecord(
        wire.encode_share_group_target_assignment_member_key(group_id, member_id),
        wire.encode_share_group_target_assignment_member_value(assignment.items()),
    )


def decode_member_target(value: bytes) -> Assignment:
    check_version(value, "share")
    rows, _ = wire.read_share_group_target_assignment_member_value(value)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in rows if partitions}


def current_record(group_id: str, member_id: str, current: CurrentValue) -> CoordinatorRecord:
    """The record of a member's current assignment."""
    return CoordinatorRecord(
        wire.encode_share_group_current_member_assignment_key(group_id, member_id),
        wire.encode_share_group_current_member_assignment_value(
            current.member_epoch,
            current.previous_member_epoch,
            _STABLE,
            current.assigned.items(),
        ),
    )


def decode_current(value: bytes) -> CurrentValue:
    check_version(value, "share")
    member_epoch, previous_epoch, _, rows, _ = (
        wire.read_share_group_current_member_assignment_value(value)
    )
    return CurrentValue(
        member_epoch,
        previous_epoch,
        {topic_id: tuple(sorted(partitions)) for topic_id, partitions in rows if partitions},
    )


def states_record(group_id: str, states: StatesValue) -> CoordinatorRecord:
    """The record that lists the partitions that have a state."""
    return CoordinatorRecord(
        wire.encode_share_group_state_partition_metadata_key(group_id),
        wire.encode_share_group_state_partition_metadata_value(
            _rows(states.initializing), _rows(states.initialized), states.deleting.items()
        ),
    )


def decode_states(value: bytes) -> StatesValue:
    check_version(value, "share")
    initializing, initialized, deleting, _ = wire.read_share_group_state_partition_metadata_value(
        value
    )
    return StatesValue(_topic_states(initializing), _topic_states(initialized), dict(deleting))


def _rows(topics: Mapping[uuid.UUID, TopicStates]) -> list[wire.TopicPartitionsInfo]:
    return [(topic_id, *states) for topic_id, states in topics.items()]


def _topic_states(rows: Collection[wire.TopicPartitionsInfo]) -> dict[uuid.UUID, TopicStates]:
    return {
        topic_id: TopicStates(name, tuple(sorted(partitions)))
        for topic_id, name, partitions in rows
    }
