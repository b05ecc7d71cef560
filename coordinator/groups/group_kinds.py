"""The kinds of groups: how classic groups are made, and the machines of consumer groups.

All that consumer groups need is imported and made when the first of them is met: at a start it
would take a tenth of the broker's time. A further kind of group has its machine here, too.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordinator.groups.classic.classic_group import ClassicGroup
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.group_records import GroupMetadataValue
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_timers import TimerKey
from barnabas.coordinator.timers import Timers
from barnabas.protocol.wall_clock import WallClock

if TYPE_CHECKING:
    from barnabas.coordinator.groups.classic.classic_members import ClassicMembers
    from barnabas.coordinator.groups.consumer.consumer_group import TopicDirectory
    from barnabas.coordinator.groups.consumer.consumer_groups import (
        ConsumerGroups,
        ConsumerGroupsContext,
    )
    from barnabas.coordinator.groups.group_conversion import GroupConversion


class GroupsContext(NamedTuple):
    """What groups of every kind use of the broker.

    overrides: the settings that a consumer group has of its own. new_member_suffix: a source of
    unique texts for the ids of classic members. new_member_id: a source of whole member ids.
    """

    settings: GroupSettings
    consumer_settings: ConsumerGroupSettings
    overrides: Callable[[str], Mapping[str, int]]
    topics: TopicDirectory
    timers: Timers[TimerKey]
    wall: WallClock
    new_member_suffix: Callable[[], str]
    new_member_id: Callable[[], str]


class GroupKinds:
    """Makes classic groups, and has the machines of consumer groups."""

    def __init__(self, context: GroupsContext) -> None:
        self._context = context

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
        """The classic group of a record."""
        group = self.new_classic_group(group_id)
        group.load(value, now_ms)
        return group

    # --- consumer groups -------------------------------------------------------------------------

    @functools.cached_property
    def consumer_records(self) -> types.ModuleType:
        """The module of their records."""
        from barnabas.coordinator.groups.consumer import consumer_group_records

        return consumer_group_records

    @functools.cached_property
    def _consumer_context(self) -> ConsumerGroupsContext:
        from barnabas.coordinator.groups.consumer.consumer_groups import ConsumerGroupsContext

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
        """The conversion between the classic and the consumer protocol."""
        from barnabas.coordinator.groups.group_conversion import ClassicGroups, GroupConversion

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
        """The machine for members of the consumer protocol."""
        from barnabas.coordinator.groups.consumer.consumer_groups import ConsumerGroups

        return ConsumerGroups(self._consumer_context, self.conversion)

    @functools.cached_property
    def classic_members(self) -> ClassicMembers:
        """The machine for members of the classic protocol in a consumer group."""
        from barnabas.coordinator.groups.classic.classic_members import ClassicMembers

        return ClassicMembers(self._consumer_context, self.conversion, self.consumers)
