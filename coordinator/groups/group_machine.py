"""The interface of the state machines that handle the members of groups, one for each kind.

    kind       machine
    classic    classic_groups.py
    consumer   consumer/consumer_groups.py
    share      share/share_groups.py
    streams    streams/streams_groups.py

Each also has the heartbeats of its own protocol. The requests of the classic protocol come to any
kind of group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from barnabas.coordinator.groups.classic.classic_answers import (
    JoinRequest,
    ParkedRequest,
    join_error_response,
    sync_response,
)
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_timers import TimerKey
from barnabas.coordinator.result import Reply, Result
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest


class GroupMachine(ABC):
    """The state machine for the members of groups of one kind.

    A kind without classic members refuses the requests of the classic protocol, as is done here.
    """

    # --- deadlines -------------------------------------------------------------------------------

    @abstractmethod
    def on_loaded(self, group: Group, result: Result, now_ms: int) -> None:
        """Begin the sessions of the members when the broker has started and loaded the group."""

    @abstractmethod
    def on_timers(self, group: Group, due: Iterable[TimerKey], result: Result, now_ms: int) -> None:
        """Handle all timers of the group that are due at the same time."""

    @abstractmethod
    def remove_members(
        self, group: Group, member_ids: Iterable[str], result: Result, now_ms: int
    ) -> None:
        """Remove members."""

    # --- the classic protocol --------------------------------------------------------------------

    def on_classic_join(self, group: Group, join: JoinRequest, result: Result, now_ms: int) -> None:
        """Handle a JoinGroup. The response may be in the Result of a later event."""
        code = Code.INCONSISTENT_GROUP_PROTOCOL
        response = join_error_response(code, "", join.api_version)
        result.replies.append(Reply(join.ticket, response))

    def on_classic_sync(
        self,
        group: Group,
        request: SyncGroupRequest,
        parked: ParkedRequest,
        result: Result,
        now_ms: int,
    ) -> None:
        """Handle a SyncGroup. The response may be in the Result of a later event."""
        result.replies.append(Reply(parked.ticket, sync_response(Code.UNKNOWN_MEMBER_ID)))

    def on_classic_heartbeat(self, group: Group, request: HeartbeatRequest, now_ms: int) -> Code:
        """Handle a Heartbeat. Gives: REBALANCE_IN_PROGRESS if the member has to join again."""
        return Code.UNKNOWN_MEMBER_ID

    def on_classic_leave(
        self,
        group: Group,
        leaving: Sequence[tuple[str, str | None]],
        result: Result,
        now_ms: int,
    ) -> list[Code]:
        """Remove each member, given as (member_id, group_instance_id). Gives: an error code for
        each.
        """
        return [Code.UNKNOWN_MEMBER_ID] * len(leaving)
