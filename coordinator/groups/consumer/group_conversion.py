"""The conversion of a group between the classic and the consumer protocol while it has members
(KIP-848, "Online Migration").

    a consumer joins a classic group      the group becomes a consumer group with the same members
                                          and assignments, and its generation as the epoch; parked
                                          requests are answered with REBALANCE_IN_PROGRESS
    the last consumer leaves, and         the group becomes a classic one with these members and
    classic members remain                their current assignments, and rebalances

The conversion uses the current assignments, not the targets. If another consumer joins before the
members know of the change, it therefore gets none of their partitions. When a group becomes
classic, its record has no leader, so that a start recognises that the rebalance is still pending.
(Apache Kafka may leave the partitions of the departed consumers without an owner if it restarts at
this point.)

`group.consumer.migration.policy` allows one or both conversions. An empty group is not converted,
but replaced by a group of the other type.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.coordinator.groups import group_timers as timers_of
from barnabas.coordinator.groups.classic.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    PartitionsByTopic,
    read_assignment,
    read_subscription,
    write_assignment,
)
from barnabas.coordinator.groups.classic.group_members import Member
from barnabas.coordinator.groups.classic_groups import ClassicGroups
from barnabas.coordinator.groups.consumer import consumer_group_records as records
from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.consumer.consumer_group import ConsumerGroup, consumer_group, held
from barnabas.coordinator.groups.consumer.consumer_group_records import (
    NO_HASH,
    ClassicMember,
    CurrentValue,
    MemberState,
    MemberValue,
)
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_records import (
    GroupMetadataValue,
    MemberMetadata,
    group_record,
    group_tombstone,
)
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_timers import TimerKey
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.coordinator.result import CoordinatorRecord, Result
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.wall_clock import WallClock

NO_LEADER = None


class Upgrade(NamedTuple):
    """A consumer group that will replace a classic one, and the records that create it."""

    consumer: ConsumerGroup
    records: list[CoordinatorRecord]


class GroupConversion:
    """Converts groups between the classic and the consumer protocol."""

    def __init__(
        self,
        settings: ConsumerGroupSettings,
        classic_settings: GroupSettings,
        topics: TopicDirectory,
        timers: Timers[TimerKey],
        wall: WallClock,
        classic_groups: ClassicGroups,
    ) -> None:
        self._settings, self._classic_settings = settings, classic_settings
        self._topics, self._timers, self._wall = topics, timers, wall
        self._classic_groups = classic_groups

    # --- to the consumer protocol ----------------------------------------------------------------

    def upgraded(self, group: Group) -> Upgrade | None:
        """The consumer group that a group with classic members is converted to; None if the group
        has no members.

        The group itself does not change.

        Raises: KafkaError GROUP_ID_NOT_FOUND if the conversion is not allowed.
        """
        classic = group.classic
        if not classic.members:
            return None
        if not self._settings.may_upgrade:
            raise _not_a_consumer_group(
                "it is a classic group, and group.consumer.migration.policy does not convert it"
            )
        if not classic.uses_consumer_protocol:
            raise _not_a_consumer_group("the members of the classic group are not consumers")
        if len(classic.members) > self._settings.max_size:
            raise _not_a_consumer_group("it has more members than group.consumer.max.size allows")
        epoch = max(classic.rebalance.generation, 1)
        values: dict[str, MemberValue] = {}
        targets: dict[str, Assignment] = {}
        for member in classic.members.values():
            subscription = read_subscription(classic.metadata_of(member))
            assignment = read_assignment(member.assignment)
            if subscription is None or assignment is None:
                raise _not_a_consumer_group(
                    "the subscription or assignment of a classic member cannot be read"
                )
            values[member.member_id] = _member_value(
                member, subscription.topics, subscription.rack_id
            )
            targets[member.member_id] = self.by_id(assignment)
        return _upgrade(group.group_id, epoch, values, targets)

    def by_id(self, partitions: PartitionsByTopic) -> Assignment:
        """Convert partitions by topic name to partitions by topic id. Unknown topics
        are omitted.
        """
        return {
            topic[0]: tuple(sorted(set(numbers)))
            for name, numbers in partitions.items()
            if numbers and (topic := self._topics.topic(name)) is not None
        }

    def by_name(self, partitions: Mapping[uuid.UUID, Iterable[int]]) -> PartitionsByTopic:
        """Convert partitions by topic id to partitions by topic name. Unknown topics
        are omitted.
        """
        return {
            name: sorted(numbers)
            for topic_id, numbers in partitions.items()
            if (name := self._topics.name(topic_id)) is not None
        }

    def begin(self, group: Group, upgrade: Upgrade, result: Result, now_ms: int) -> None:
        """Replace the classic group by the consumer group."""
        if group.metadata_value is not None:
            result.records.append(group_tombstone(group.group_id))
        group.classic.dissolve(result)
        group.classic = self._classic_groups.new(group.group_id)
        group.modern = upgrade.consumer
        result.records += upgrade.records
        for member_id, value in upgrade.consumer.members.items():
            assert value.classic is not None
            self._timers.schedule(
                (timers_of.SESSION, group.group_id, member_id),
                now_ms + value.classic.session_timeout_ms,
            )

    # --- to the classic protocol -----------------------------------------------------------------

    def may_downgrade(self, consumer: ConsumerGroup, remaining: Sequence[str]) -> bool:
        """Whether the group becomes classic if only these members remain."""
        return (
            bool(remaining)
            and self._settings.may_downgrade
            and len(remaining) <= self._classic_settings.max_size
            and all(consumer.members[member_id].classic is not None for member_id in remaining)
        )

    def downgrade(
        self, group: Group, remaining: Sequence[str], result: Result, now_ms: int
    ) -> None:
        """Make the group a classic one with these members, and begin a rebalance."""
        consumer = consumer_group(group)
        for member_id in consumer.members:
            timers_of.cancel_member(self._timers, group.group_id, member_id)
        self._timers.cancel((timers_of.PATTERNS, group.group_id, ""))
        result.records += consumer.tombstones(group.group_id)
        value = self._classic_value(consumer, remaining, now_ms)
        result.records.append(group_record(group.group_id, value))
        group.classic = self._classic_groups.load(group.group_id, value, now_ms)
        for member_id in remaining:
            classic = consumer.members[member_id].classic
            assert classic is not None
            group.classic.set_protocols(member_id, dict(classic.protocols))
        group.classic.rebalance.prepare(result, now_ms)

    def replace_empty(self, group: Group, result: Result) -> None:
        """Remove a consumer group that has no members. Its offsets remain."""
        self._timers.cancel((timers_of.PATTERNS, group.group_id, ""))
        result.records += consumer_group(group).tombstones(group.group_id)

    def _classic_value(
        self, consumer: ConsumerGroup, remaining: Sequence[str], now_ms: int
    ) -> GroupMetadataValue:
        """The record of the classic group. Without a common protocol, the first protocol of the
        first member is used.
        """
        protocols = {
            member_id: dict(classic.protocols)
            for member_id in remaining
            if (classic := consumer.members[member_id].classic) is not None
        }
        first = protocols[remaining[0]]
        protocol = next(
            (name for name in first if all(name in row for row in protocols.values())),
            next(iter(first)),
        )
        members = []
        for member_id in remaining:
            value = consumer.members[member_id]
            assert value.classic is not None
            subscription = protocols[member_id].get(protocol, b"")
            read = read_subscription(subscription)
            members.append(
                MemberMetadata(
                    member_id,
                    value.instance_id,
                    value.client_id,
                    value.client_host,
                    value.rebalance_timeout_ms,
                    value.classic.session_timeout_ms,
                    subscription,
                    write_assignment(
                        0 if read is None else read.version,
                        self.by_name(_held_by_topic(consumer.current(member_id))),
                    ),
                )
            )
        return GroupMetadataValue(
            CONSUMER_PROTOCOL_TYPE, consumer.epoch, protocol, NO_LEADER,
            now_ms + self._wall.ahead_ms, tuple(members),
        )  # fmt: skip


def _held_by_topic(current: CurrentValue) -> dict[uuid.UUID, list[int]]:
    """The partitions of a current assignment, by topic."""
    by_topic: dict[uuid.UUID, list[int]] = {}
    for topic_id, partition in held(current):
        by_topic.setdefault(topic_id, []).append(partition)
    return by_topic


def _not_a_consumer_group(reason: str) -> KafkaError:
    return KafkaError(Code.GROUP_ID_NOT_FOUND, f"this is not a consumer group: {reason}.")


def _member_value(member: Member, topics: tuple[str, ...], rack_id: str | None) -> MemberValue:
    """The value of a classic member in the group of the consumer protocol."""
    return MemberValue(
        member.group_instance_id,
        rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(set(topics))),
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicMember(member.session_timeout_ms, tuple(member.protocols.items())),
    )


def _upgrade(
    group_id: str, epoch: int, values: dict[str, MemberValue], targets: dict[str, Assignment]
) -> Upgrade:
    """The consumer group, in which all members have their targets, with the records that
    create it.
    """
    made = [records.member_record(group_id, *row) for row in values.items()]
    made.append(records.group_epoch_record(group_id, epoch, NO_HASH))
    made += [records.member_target_record(group_id, *row) for row in targets.items()]
    made.append(records.target_epoch_record(group_id, epoch))
    for member_id, target in targets.items():
        assigned = {
            topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in target.items()
        }
        current = CurrentValue(epoch, epoch, MemberState.STABLE, assigned, {})
        made.append(records.current_record(group_id, member_id, current))
    consumer = ConsumerGroup()
    for key, value in made:
        decoded = records.decode_consumer_key(key)
        assert decoded is not None
        consumer.replay(decoded, value)
    return Upgrade(consumer, made)
