"""The kinds of groups: makes classic groups, and the state machines of groups of the other kinds.

When the first group of a kind is created, the modules of that kind are imported and its state
machine is made. Importing them at every start would take a tenth of the time that a start takes.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from barnabas.coordinator.groups.classic.classic_group import ClassicGroup
from barnabas.coordinator.groups.consumer import consumer_group_records
from barnabas.coordinator.groups.consumer.classic_members import ClassicMembers
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.consumer.consumer_groups import (
    ConsumerGroups,
    ConsumerGroupsContext,
)
from barnabas.coordinator.groups.consumer.group_conversion import ClassicGroups, GroupConversion
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_records import GroupMetadataValue
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_state import GroupMachine, TypedKind
from barnabas.coordinator.groups.group_timers import TimerKey
from barnabas.coordinator.groups.group_types import SHARE_TYPE, STREAMS_TYPE
from barnabas.coordinator.groups.share.share_group import ShareKind
from barnabas.coordinator.groups.share.share_group_settings import ShareGroupSettings
from barnabas.coordinator.groups.share.share_groups import ShareGroups
from barnabas.coordinator.groups.streams.streams_group import StreamsKind
from barnabas.coordinator.groups.streams.streams_group_settings import StreamsGroupSettings
from barnabas.coordinator.groups.streams.streams_groups import StreamsGroups
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.coordinator.timers import Timers
from barnabas.protocol.wall_clock import WallClock


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
    """Makes classic groups, and provides the state machines of the other kinds."""

    def __init__(self, context: GroupsContext) -> None:
        self._context = context

    # --- machines by kind ------------------------------------------------------------------------

    def machine_of(self, group: Group) -> GroupMachine:
        """The state machine for the members of a group that is not classic."""
        if not group.is_typed:
            return self.consumers
        return self.shares if group.kind == SHARE_TYPE else self.streams

    def typed_kind(self, kind: str) -> TypedKind | None:
        """The reader of the records of share groups or streams groups; None if the kind is
        unknown.
        """
        if kind == SHARE_TYPE:
            return ShareKind()
        if kind == STREAMS_TYPE:
            return StreamsKind()
        return None

    # --- classic groups --------------------------------------------------------------------------

    def new_classic_group(self, group_id: str) -> ClassicGroup:
        """A classic group without members."""
        context = self._context
        return ClassicGroup(
            group_id, context.settings, context.timers, context.new_member_suffix, context.wall
        )

    def load_classic_group(
        self, group_id: str, value: GroupMetadataValue, now_ms: int
    ) -> ClassicGroup:
        """Make the classic group that a group's record describes."""
        group = self.new_classic_group(group_id)
        group.load(value, now_ms)
        return group

    # --- consumer groups -------------------------------------------------------------------------

    @functools.cached_property
    def consumer_records(self) -> types.ModuleType:
        """The module that encodes and decodes the records of consumer groups."""

        return consumer_group_records

    @functools.cached_property
    def _consumer_context(self) -> ConsumerGroupsContext:
        """The parts that the state machines of consumer groups use. Created at the first use."""

        context = self._context
        return ConsumerGroupsContext(
            context.consumer_settings,
            context.overrides,
            context.topics,
            context.timers,
            context.wall,
            context.new_member_id,
        )

    @functools.cached_property
    def conversion(self) -> GroupConversion:
        """Converts groups between the classic and the consumer protocol."""

        context = self._context
        return GroupConversion(
            context.consumer_settings,
            context.settings,
            context.topics,
            context.timers,
            context.wall,
            ClassicGroups(self.new_classic_group, self.load_classic_group),
        )

    @functools.cached_property
    def consumers(self) -> ConsumerGroups:
        """The state machine for members of the consumer protocol."""

        return ConsumerGroups(self._consumer_context, self.conversion)

    @functools.cached_property
    def classic_members(self) -> ClassicMembers:
        """The state machine for members of the classic protocol in a consumer group."""

        return ClassicMembers(self._consumer_context, self.conversion, self.consumers)

    # --- share groups ----------------------------------------------------------------------------

    @functools.cached_property
    def shares(self) -> ShareGroups:
        """The state machine for members of share groups."""

        context = self._context
        return ShareGroups(
            context.share_settings,
            context.setting_of,
            context.topics,
            context.timers,
            context.wall,
        )

    # --- streams groups --------------------------------------------------------------------------

    @functools.cached_property
    def streams(self) -> StreamsGroups:
        """The state machine for members of streams groups."""

        context = self._context
        return StreamsGroups(
            context.streams_settings,
            context.setting_of,
            context.topics,
            context.timers,
            context.wall,
            self.new_classic_group,
        )
