"""The records of streams groups (KIP-1071) in `__consumer_offsets`, as Apache Kafka 4.3 writes
them.

Their bytes are Kafka's (protocol/generator/schemas/records/streams_group.json). A value of None is
a tombstone. The hash function is Barnabas's own, as for consumer groups.

Source: KIP-1071, KIP-1263.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple

from barnabas.coordinator.groups.record_parts import check_version
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
from barnabas.protocol.internal_records import streams_group as wire

GROUP_VERSION = 17
MEMBER_VERSION = 19
TARGET_VERSION = 20
MEMBER_TARGET_VERSION = 21
CURRENT_VERSION = 22
TOPOLOGY_VERSION = 23

NO_EPOCH = -1
NO_HASH = 0


class StreamsGroupKey(NamedTuple):
    """The key of a record of a streams group.

    version: the kind of the record. member_id: empty for the records of the group itself.
    """

    version: int
    group_id: str
    member_id: str = ""


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
    version = key[0] << 8 | key[1]
    read = wire.READ_KEY.get(version)
    return None if read is None else StreamsGroupKey(version, *read(key)[:-1])


def tombstone(version: int, *names: str) -> CoordinatorRecord:
    """The tombstone for the record with this key: a group, and a member of it for some kinds."""
    return CoordinatorRecord(wire.ENCODE_KEY[version](*names), None)


# --- values -------------------------------------------------------------------------------------


def group_epoch_record(group_id: str, value: GroupEpochValue) -> CoordinatorRecord:
    """The record of a group's epoch, and of the values that raise the epoch when they change."""
    return CoordinatorRecord(
        wire.encode_streams_group_metadata_key(group_id),
        wire.encode_streams_group_metadata_value(*value),
    )


def decode_group_epoch(value: bytes) -> GroupEpochValue:
    check_version(value, "streams")
    epoch, metadata_hash, validated, configs, _ = wire.read_streams_group_metadata_value(value)
    return GroupEpochValue(epoch, metadata_hash, validated, tuple(configs or ()))


def member_record(group_id: str, member_id: str, member: MemberValue) -> CoordinatorRecord:
    """The record of a member's identity."""
    return CoordinatorRecord(
        wire.encode_streams_group_member_metadata_key(group_id, member_id),
        wire.encode_streams_group_member_metadata_value(*member),
    )


def decode_member(value: bytes) -> MemberValue:
    check_version(value, "streams")
    (
        instance_id,
        rack_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        topology_epoch,
        process_id,
        endpoint,
        client_tags,
        _,
    ) = wire.read_streams_group_member_metadata_value(value)
    return MemberValue(
        instance_id,
        rack_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        topology_epoch,
        process_id,
        endpoint,
        tuple(client_tags),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """The record of the target assignment's epoch, and of the time when it was computed."""
    return CoordinatorRecord(
        wire.encode_streams_group_target_assignment_metadata_key(group_id),
        wire.encode_streams_group_target_assignment_metadata_value(epoch, timestamp_ms),
    )


def decode_target_epoch(value: bytes) -> int:
    check_version(value, "streams")
    return wire.read_streams_group_target_assignment_metadata_value(value)[0]


def member_target_record(group_id: str, member_id: str, target: TaskSet) -> CoordinatorRecord:
    """The record of a member's target assignment."""
    return CoordinatorRecord(
        wire.encode_streams_group_target_assignment_member_key(group_id, member_id),
        wire.encode_streams_group_target_assignment_member_value(
            target.active.items(), target.standby.items(), target.warmup.items()
        ),
    )


def decode_member_target(value: bytes) -> TaskSet:
    check_version(value, "streams")
    active, standby, warmup, _ = wire.read_streams_group_target_assignment_member_value(value)
    return TaskSet(tasks_of(active), tasks_of(standby), tasks_of(warmup))


def current_record(group_id: str, member_id: str, current: CurrentValue) -> CoordinatorRecord:
    """The record of a member's current assignment."""
    return CoordinatorRecord(
        wire.encode_streams_group_current_member_assignment_key(group_id, member_id),
        wire.encode_streams_group_current_member_assignment_value(
            current.member_epoch,
            current.previous_member_epoch,
            current.state,
            *_rows_held(current.assigned),
            *_rows_held(current.pending_revocation),
        ),
    )


def decode_current(value: bytes) -> CurrentValue:
    """Decode the current assignment of a member.

    If the record has no assignment epoch for a task, the task gets the member's epoch.
    """
    check_version(value, "streams")
    (
        member_epoch,
        previous_epoch,
        state,
        active,
        standby,
        warmup,
        active_to_revoke,
        standby_to_revoke,
        warmup_to_revoke,
        _,
    ) = wire.read_streams_group_current_member_assignment_value(value)
    known_states = [known.value for known in MemberState]
    return CurrentValue(
        member_epoch,
        previous_epoch,
        MemberState(state) if state in known_states else MemberState.UNKNOWN,
        HeldTasks(_epochs(active, member_epoch), _tasks(standby), _tasks(warmup)),
        HeldTasks(
            _epochs(active_to_revoke, member_epoch),
            _tasks(standby_to_revoke),
            _tasks(warmup_to_revoke),
        ),
    )


def _rows_held(held: HeldTasks) -> tuple[list[wire.HeldTaskIds], ...]:
    """The rows of the tasks in the three roles. Only active tasks have assignment epochs."""
    return (
        [(name, epochs.keys(), epochs.values()) for name, epochs in held.active.items()],
        [(name, partitions, None) for name, partitions in held.standby.items()],
        [(name, partitions, None) for name, partitions in held.warmup.items()],
    )


def _tasks(rows: Collection[wire.HeldTaskIds]) -> Tasks:
    return tasks_of((subtopology_id, partitions) for subtopology_id, partitions, _ in rows)


def _epochs(rows: Collection[wire.HeldTaskIds], member_epoch: int) -> TaskEpochs:
    """The active tasks of the rows. If the numbers of tasks and epochs differ, it is unknown which
    epoch belongs to which task.
    """
    return {
        subtopology_id: dict(sorted(zip(partitions, epochs, strict=True)))
        if epochs is not None and len(epochs) == len(partitions)
        else dict.fromkeys(sorted(partitions), member_epoch)
        for subtopology_id, partitions, epochs in sorted(rows, key=lambda row: row[0])
        if partitions
    }


def topology_record(group_id: str, topology: Topology) -> CoordinatorRecord:
    """The record of a group's topology."""
    return CoordinatorRecord(
        wire.encode_streams_group_topology_key(group_id),
        wire.encode_streams_group_topology_value(topology.epoch, topology.subtopologies.values()),
    )


def decode_topology(value: bytes) -> Topology:
    check_version(value, "streams")
    epoch, subtopologies, _ = wire.read_streams_group_topology_value(value)
    return Topology(epoch, tuple(map(_subtopology, subtopologies)))


def _subtopology(row: wire.Subtopology) -> Subtopology:
    subtopology_id, sources, regex, changelog_topics, sinks, repartition_topics, groups = row
    return Subtopology(
        subtopology_id,
        tuple(sources),
        tuple(regex),
        tuple(map(_internal_topic, changelog_topics)),
        tuple(sinks),
        tuple(map(_internal_topic, repartition_topics)),
        tuple(CopartitionGroup(*map(tuple, group)) for group in groups),
    )


def _internal_topic(row: wire.TopicInfo) -> InternalTopic:
    name, partition_count, replication_factor, configs = row
    return InternalTopic(name, partition_count, replication_factor, tuple(configs))
