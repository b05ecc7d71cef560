"""The state machine of classic groups: it makes them, and passes requests and timers to the group.

Timers, keyed (kind, group, member):

    SESSION    the end of a member's session: it is removed
    JOIN       the end of the wait for JoinGroup requests (without a member)
    SYNC       the end of the wait for SyncGroup requests (without a member)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from barnabas.coordinator.groups.classic.classic_answers import JoinRequest, ParkedRequest
from barnabas.coordinator.groups.classic.classic_group import ClassicGroup
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_machine import GroupMachine
from barnabas.coordinator.groups.group_records import GroupMetadataValue, decode_group
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_timers import JOIN, SESSION, SYNC, TimerKey
from barnabas.coordinator.result import Result
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.protocol.wall_clock import WallClock


class ClassicGroups(GroupMachine):
    """Makes classic groups, and handles the requests of their members, and their timers.

    Takes:  new_member_suffix, a source of unique suffixes of member ids.
    """

    def __init__(
        self,
        settings: GroupSettings,
        timers: Timers[TimerKey],
        new_member_suffix: Callable[[], str],
        wall: WallClock,
    ) -> None:
        self._settings, self._timers, self._wall = settings, timers, wall
        self._new_member_suffix = new_member_suffix

    def new(self, group_id: str) -> ClassicGroup:
        """A classic group without members."""
        return ClassicGroup(
            group_id, self._settings, self._timers, self._new_member_suffix, self._wall
        )

    def load(self, group_id: str, value: GroupMetadataValue, now_ms: int) -> ClassicGroup:
        """Make the classic group that a group's record describes."""
        group = self.new(group_id)
        group.load(value, now_ms)
        return group

    # --- deadlines -------------------------------------------------------------------------------

    def on_loaded(self, group: Group, result: Result, now_ms: int) -> None:
        """Build the members from the group's record, and begin their sessions."""
        if group.metadata_value is None:
            return
        value = decode_group(group.metadata_value)
        group.classic = self.load(group.group_id, value, now_ms)
        # A group that has members but no leader was converted from a consumer group, and its
        # rebalance is still pending (`group_conversion`).
        if value.members and value.leader_id is None:
            group.classic.rebalance.prepare(result, now_ms)
        else:
            group.classic.maybe_rebalance_oversized(result, now_ms)

    def on_timers(self, group: Group, due: Iterable[TimerKey], result: Result, now_ms: int) -> None:
        classic = group.classic
        for key in due:
            kind, _, member_id = key
            if self._timers.deadline_ms(key) is not None:
                continue  # rescheduled while an earlier deadline was handled
            if kind == SESSION:
                classic.on_session_timeout(member_id, result, now_ms)
            elif member_id:
                continue  # a timer of a member, left from a conversion of the group
            elif kind == JOIN:
                classic.rebalance.on_join_timeout(result, now_ms)
            elif kind == SYNC:
                classic.rebalance.on_sync_timeout(result, now_ms)

    def remove_members(
        self, group: Group, member_ids: Iterable[str], result: Result, now_ms: int
    ) -> None:
        group.classic.remove_members(member_ids, result, now_ms)

    # --- requests --------------------------------------------------------------------------------

    def on_classic_join(self, group: Group, join: JoinRequest, result: Result, now_ms: int) -> None:
        group.classic.on_join(join, result, now_ms)

    def on_classic_sync(
        self,
        group: Group,
        request: SyncGroupRequest,
        parked: ParkedRequest,
        result: Result,
        now_ms: int,
    ) -> None:
        group.classic.on_sync(request, parked, result, now_ms)

    def on_classic_heartbeat(self, group: Group, request: HeartbeatRequest, now_ms: int) -> Code:
        return group.classic.on_heartbeat(request, now_ms)

    def on_classic_leave(
        self,
        group: Group,
        leaving: Sequence[tuple[str, str | None]],
        result: Result,
        now_ms: int,
    ) -> list[Code]:
        return group.classic.on_leave(leaving, result, now_ms)
