"""The four kinds of groups: the machines for their members, and the readers of their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from barnabas.coordinator.groups.classic.classic_group import ClassicGroup
from barnabas.coordinator.groups.classic_groups import ClassicGroups
from barnabas.coordinator.groups.consumer.consumer_group import ConsumerGroup, ConsumerKind
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.consumer.consumer_groups import ConsumerGroups
from barnabas.coordinator.groups.consumer.consumer_groups_context import ConsumerGroupsContext
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_machine import GroupMachine
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_state import GroupKind, GroupState
from barnabas.coordinator.groups.group_timers import TimerKey
from barnabas.coordinator.groups.group_types import (
    CONSUMER_TYPE,
    SHARE_TYPE,
    STREAMS_TYPE,
)
from barnabas.coordinator.groups.share.share_group import ShareGroup, ShareKind
from barnabas.coordinator.groups.share.share_group_settings import ShareGroupSettings
from barnabas.coordinator.groups.share.share_groups import ShareGroups
from barnabas.coordinator.groups.streams.streams_group import StreamsGroup, StreamsKind
from barnabas.coordinator.groups.streams.streams_group_settings import StreamsGroupSettings
from barnabas.coordinator.groups.streams.streams_groups import StreamsGroups
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.coordinator.timers import Timers
from barnabas.protocol.wall_clock import WallClock

MODERN_KINDS: dict[str, GroupKind] = {
    CONSUMER_TYPE: ConsumerKind(),
    SHARE_TYPE: ShareKind(),
    STREAMS_TYPE: StreamsKind(),
}
"""The reader of the records of each kind whose members are records of the log."""


class GroupsContext(NamedTuple):
    """The parts of the broker that groups of every kind use.

    overrides: returns the settings that are set for a consumer group. setting_of: returns the value
    of a group's setting, which is the group's own or the broker's. new_member_suffix: makes a
    unique suffix for the id of a classic member. new_member_id: makes a whole member id.
    """

    settings: GroupSettings
    consumer_settings: ConsumerGroupSettings
    overrides: Callable[[str], Mapping[str, int]]
    share_settings: ShareGroupSettings
    streams_settings: StreamsGroupSettings
    setting_of: Callable[[str, str], Any]
    topics: TopicDirectory
    timers: Timers[TimerKey]
    wall: WallClock
    new_member_suffix: Callable[[], str]
    new_member_id: Callable[[], str]


class GroupKinds:
    """The state machine for the members of each kind of group."""

    def __init__(self, context: GroupsContext) -> None:
        topics, timers, wall = context.topics, context.timers, context.wall
        setting_of = context.setting_of
        self.classic = ClassicGroups(context.settings, timers, context.new_member_suffix, wall)
        self.consumers = ConsumerGroups(
            ConsumerGroupsContext(
                context.consumer_settings,
                context.overrides,
                topics,
                timers,
                wall,
                context.new_member_id,
            ),
            context.settings,
            self.classic,
        )
        self.shares = ShareGroups(context.share_settings, setting_of, topics, timers, wall)
        self.streams = StreamsGroups(
            context.streams_settings, setting_of, topics, timers, wall, self.classic.new
        )
        self._machines: dict[type[GroupState], GroupMachine] = {
            ClassicGroup: self.classic,
            ConsumerGroup: self.consumers,
            ShareGroup: self.shares,
            StreamsGroup: self.streams,
        }

    def machine_of(self, group: Group) -> GroupMachine:
        """The state machine for the members of a group."""
        return self._machines[type(group.state)]
