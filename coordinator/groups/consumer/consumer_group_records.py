"""The records of consumer groups (KIP-848) in `__consumer_offsets`, as Apache Kafka 4 writes them.

Their bytes are Kafka's (protocol/generator/schemas/records/consumer_group.json). The records of a
group's topics (TOPICS_VERSION) are Kafka 4.0's; they are not written, since 4.1 stores a hash, but
removed with the group if they are found.

A value of None is a tombstone. The hash function is Barnabas's own: an Apache Kafka that takes over
the directory computes another hash, raises the group's epoch once, and leaves partitions with their
members. Barnabas does the same with Kafka's hash.

Source: KIP-848, KIP-1101, KIP-1251.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple

from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.record_parts import check_version
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.internal_records import consumer_group as wire

GROUP_VERSION = 3
TOPICS_VERSION = 4
MEMBER_VERSION = 5
TARGET_VERSION = 6
MEMBER_TARGET_VERSION = 7
CURRENT_VERSION = 8
PATTERN_VERSION = 16

NO_HASH = 0

PartitionEpochs = dict[uuid.UUID, dict[int, int]]
"""The partitions of each topic, and the epoch in which the member got each."""


class ConsumerGroupKey(NamedTuple):
    """The key of a record of a consumer group.

    version: the kind of the record. name: the member's id or the regular expression; empty for the
    other kinds.
    """

    version: int
    group_id: str
    name: str = ""


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
    version = key[0] << 8 | key[1]
    read = wire.READ_KEY.get(version)
    return None if read is None else ConsumerGroupKey(version, *read(key)[:-1])


def tombstone(version: int, *names: str) -> CoordinatorRecord:
    """The tombstone for the record with this key: a group, and a name in it for some kinds."""
    return CoordinatorRecord(wire.ENCODE_KEY[version](*names), None)


# --- values -------------------------------------------------------------------------------------


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The record of a group's epoch, and of the hash of its topics."""
    return CoordinatorRecord(
        wire.encode_consumer_group_metadata_key(group_id),
        wire.encode_consumer_group_metadata_value(epoch, metadata_hash),
    )


def decode_group_epoch(value: bytes) -> GroupEpochValue:
    check_version(value, "consumer")
    epoch, metadata_hash, _ = wire.read_consumer_group_metadata_value(value)
    return GroupEpochValue(epoch, metadata_hash)


def member_record(group_id: str, member_id: str, member: MemberValue) -> CoordinatorRecord:
    """The record of a member, with its subscription and its identity."""
    return CoordinatorRecord(
        wire.encode_consumer_group_member_metadata_key(group_id, member_id),
        wire.encode_consumer_group_member_metadata_value(
            member.instance_id,
            member.rack_id,
            member.client_id,
            member.client_host,
            member.subscribed_topic_names,
            member.subscribed_topic_regex or None,
            member.rebalance_timeout_ms,
            member.server_assignor,
            member.classic,
        ),
    )


def decode_member(value: bytes) -> MemberValue:
    check_version(value, "consumer")
    (
        instance_id,
        rack_id,
        client_id,
        client_host,
        names,
        regex,
        rebalance_timeout_ms,
        server_assignor,
        classic,
        _,
    ) = wire.read_consumer_group_member_metadata_value(value)
    return MemberValue(
        instance_id,
        rack_id,
        client_id,
        client_host,
        tuple(names),
        regex or "",
        rebalance_timeout_ms,
        server_assignor,
        None if classic is None else ClassicMember(classic[0], tuple(classic[1])),
    )


def target_epoch_record(group_id: str, epoch: int) -> CoordinatorRecord:
    """The record of the target assignment's epoch."""
    return CoordinatorRecord(
        wire.encode_consumer_group_target_assignment_metadata_key(group_id),
        wire.encode_consumer_group_target_assignment_metadata_value(epoch),
    )


def decode_target_epoch(value: bytes) -> int:
    check_version(value, "consumer")
    return wire.read_consumer_group_target_assignment_metadata_value(value)[0]


def member_target_record(
    group_id: str, member_id: str, assignment: Assignment
) -> CoordinatorRecord:
    """The record of a member's target assignment."""
    return CoordinatorRecord(
        wire.encode_consumer_group_target_assignment_member_key(group_id, member_id),
        wire.encode_consumer_group_target_assignment_member_value(assignment.items()),
    )


def decode_member_target(value: bytes) -> Assignment:
    check_version(value, "consumer")
    rows, _ = wire.read_consumer_group_target_assignment_member_value(value)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in rows if partitions}


def current_record(group_id: str, member_id: str, current: CurrentValue) -> CoordinatorRecord:
    """The record of a member's current assignment."""
    return CoordinatorRecord(
        wire.encode_consumer_group_current_member_assignment_key(group_id, member_id),
        wire.encode_consumer_group_current_member_assignment_value(
            current.member_epoch,
            current.previous_member_epoch,
            current.state,
            _rows(current.assigned),
            _rows(current.pending_revocation),
        ),
    )


def decode_current(value: bytes) -> CurrentValue:
    """The current assignment of a member.

    A partition that has no assignment epoch in the record gets the member's epoch.
    """
    check_version(value, "consumer")
    member_epoch, previous_epoch, state, assigned, pending_revocation, _ = (
        wire.read_consumer_group_current_member_assignment_value(value)
    )
    known_states = [known.value for known in MemberState]
    return CurrentValue(
        member_epoch,
        previous_epoch,
        # A later Apache Kafka may have further states. The member then takes the next step from its
        # present partitions.
        MemberState(state) if state in known_states else MemberState.UNRELEASED_PARTITIONS,
        _partition_epochs(assigned, max(member_epoch, 0)),
        _partition_epochs(pending_revocation, max(member_epoch, 0)),
    )


def _rows(partitions: PartitionEpochs) -> list[wire.TopicPartitions]:
    """The rows of the topics in a current assignment."""
    return [(topic_id, epochs.keys(), epochs.values()) for topic_id, epochs in partitions.items()]


def _partition_epochs(rows: Collection[wire.TopicPartitions], member_epoch: int) -> PartitionEpochs:
    """The partitions of the rows. If the numbers of partitions and epochs differ, it is unknown
    which epoch belongs to which partition.
    """
    return {
        topic_id: dict(zip(partitions, epochs, strict=True))
        if epochs is not None and len(epochs) == len(partitions)
        else dict.fromkeys(partitions, member_epoch)
        for topic_id, partitions, epochs in rows
    }


def pattern_record(group_id: str, regex: str, pattern: PatternValue) -> CoordinatorRecord:
    """The record of the topics that a pattern matched."""
    return CoordinatorRecord(
        wire.encode_consumer_group_regular_expression_key(group_id, regex),
        wire.encode_consumer_group_regular_expression_value(*pattern),
    )


def decode_pattern(value: bytes) -> PatternValue:
    check_version(value, "consumer")
    topics, version, timestamp_ms, _ = wire.read_consumer_group_regular_expression_value(value)
    return PatternValue(tuple(topics), version, timestamp_ms)
