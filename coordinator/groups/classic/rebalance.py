"""The rebalances of one classic group: its state, generation and protocol.

A rebalance waits first for the members to join (PREPARING_REBALANCE), then for the leader's
assignments (COMPLETING_REBALANCE). The group's record is written when the leader has sent the
assignments, and when the last member has left. All state here is soft; a start builds it from the
record. A generation that began but received no assignments therefore begins again after a restart,
with the same number. That does no harm, since no member has an assignment of that generation.

Timers, with the keys (kind, group, ""):

    JOIN    the end of the wait for members to join
    SYNC    the end of the wait for their SyncGroup

Another wait of the same kind moves the timer. If a timer becomes due while no member waits, it has
no effect.

Source: KIP-134 (initial delay), KIP-814 (skip_assignment).
"""

from __future__ import annotations

from enum import Enum

from barnabas.coordinator.groups.classic.classic_answers import ParkedRequest, sync_response
from barnabas.coordinator.groups.classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from barnabas.coordinator.groups.classic.group_members import GroupMembers, Member
from barnabas.coordinator.groups.group_records import (
    GroupMetadataValue,
    MemberMetadata,
    group_record,
)
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_timers import JOIN, SYNC
from barnabas.coordinator.result import Counted, Reply, Result
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.wall_clock import WallClock

# The maximum number of bytes that a batch of one record adds to the record's key and value: the
# batch header, and the record's lengths, timestamp delta and offset delta.
BATCH_OVERHEAD_BYTES = 61 + 32


class State(Enum):
    """The state of a group. The value is the state's name in ListGroups and DescribeGroups.

    Each docstring lists the responses to a member of the current generation. Requests of others are
    answered with UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION in every state.
    """

    EMPTY = "Empty"
    """No members.

    JoinGroup: begins the first rebalance. OffsetCommit without member and generation: accepted.
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for members to join.

    JoinGroup: waits. SyncGroup, Heartbeat: REBALANCE_IN_PROGRESS. OffsetCommit: accepted, for the
    former generation.
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's assignments.

    JoinGroup: the same answer again, or a rebalance if the protocols changed. SyncGroup: waits; the
    leader's ends the wait. Heartbeat: NONE. OffsetCommit: REBALANCE_IN_PROGRESS.
    """

    STABLE = "Stable"
    """The assignments are complete.

    JoinGroup: a rebalance for the leader and for changed members, else the same answer. SyncGroup:
    the assignment. Heartbeat: NONE. OffsetCommit: accepted.
    """


DEAD = "Dead"  # the state that descriptions show for groups that do not exist

LEGAL_PREDECESSORS: dict[State, tuple[State, ...]] = {
    State.EMPTY: (State.PREPARING_REBALANCE,),
    State.PREPARING_REBALANCE: (State.EMPTY, State.STABLE, State.COMPLETING_REBALANCE),
    State.COMPLETING_REBALANCE: (State.PREPARING_REBALANCE,),
    State.STABLE: (State.COMPLETING_REBALANCE,),
}


class Rebalance:
    """The state machine of one classic group, over its members.

    state_since_ms: the steady time of the last change of the state; None if the group's record has
    no time. subscribed_topics: the topics that the members read; None if these are unknown.
    pending_syncs: the members of the generation that have not sent SyncGroup.
    """

    __slots__ = (
        "_has_new_member", "_initial_remaining_ms", "_is_initial", "_members", "_wall",
        "generation", "pending_syncs", "protocol_name", "protocol_type", "settings", "state",
        "state_since_ms", "subscribed_topics",
    )  # fmt: skip

    def __init__(self, members: GroupMembers, settings: GroupSettings, wall: WallClock) -> None:
        self.state = State.EMPTY
        self.state_since_ms: int | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.subscribed_topics: frozenset[str] | None = None
        self.pending_syncs: dict[str, None] = {}
        self._members, self.settings, self._wall = members, settings, wall
        self._is_initial = False  # whether the running rebalance began in the state EMPTY
        self._has_new_member = False
        self._initial_remaining_ms = 0

    # --- members ---------------------------------------------------------------------------------

    def remove_member(self, member_id: str, code: Code, result: Result) -> bool:
        """Remove a member or a pending id. Gives: whether it was a member."""
        self.pending_syncs.pop(member_id, None)
        return self._members.remove(member_id, code, result)

    def on_member_added(self, protocol_type: str, result: Result, now_ms: int) -> None:
        """Let a new member take part in a rebalance. Its JoinGroup is parked."""
        self.protocol_type = protocol_type
        self._has_new_member = True
        self.on_joined(result, now_ms)

    # --- the wait for members --------------------------------------------------------------------

    def on_joined(self, result: Result, now_ms: int) -> None:
        """Begin a rebalance for a parked JoinGroup. If a rebalance is already running, end its wait
        if all members have joined.
        """
        if self.state is State.PREPARING_REBALANCE:
            self.maybe_complete_join(result, now_ms)
        else:
            self.prepare(result, now_ms)

    def prepare(self, result: Result, now_ms: int) -> None:
        """Wait for all members to join again.

        The first rebalance of a group waits for more members, as configured.
        """
        if self.state is State.COMPLETING_REBALANCE:
            self._reset_assignments(result)
        self._is_initial = self.state is State.EMPTY
        self._move_to(State.PREPARING_REBALANCE, now_ms)
        if not self._members.by_id:
            self._complete_join(result, now_ms)
        elif not self._is_initial:
            self._schedule(JOIN, now_ms + self._members.rebalance_timeout_ms())
            self.maybe_complete_join(result, now_ms)
        elif self.settings.initial_rebalance_delay_ms > 0:
            delay_ms = self.settings.initial_rebalance_delay_ms
            self._has_new_member = False
            self._initial_remaining_ms = max(self._members.rebalance_timeout_ms() - delay_ms, 0)
            self._schedule(JOIN, now_ms + delay_ms)
        else:
            self._complete_join(result, now_ms)

    def on_join_timeout(self, result: Result, now_ms: int) -> None:
        """End the wait for members.

        The first rebalance is delayed further while new members join, up to the rebalance timeout.
        """
        if self.state is not State.PREPARING_REBALANCE:
            return
        if not (self._is_initial and self._has_new_member and self._initial_remaining_ms > 0):
            self._complete_join(result, now_ms)
            return
        self._has_new_member = False
        delay_ms = min(self.settings.initial_rebalance_delay_ms, self._initial_remaining_ms)
        self._initial_remaining_ms -= delay_ms
        self._schedule(JOIN, now_ms + delay_ms)

    def maybe_complete_join(self, result: Result, now_ms: int) -> None:
        """End the wait for members early if all have joined and no id is pending.

        The first rebalance of a group always waits until its timer is due.
        """
        if self.state is not State.PREPARING_REBALANCE or self._is_initial:
            return
        if self._members.have_all_joined():
            self._complete_join(result, now_ms)

    def _complete_join(self, result: Result, now_ms: int) -> None:
        """Begin the next generation with the members that joined.

        Static members stay in the group without joining.
        """
        members = self._members
        for member in list(members.by_id.values()):
            if member.member_id not in members.parked_joins and member.group_instance_id is None:
                self.remove_member(member.member_id, Code.UNKNOWN_MEMBER_ID, result)
        if members.by_id and not members.elect_leader():
            self._schedule(JOIN, now_ms + members.rebalance_timeout_ms())
            return
        self.generation += 1
        if members.by_id:
            self._begin_generation(result, now_ms)
        else:
            self._become_empty(result, now_ms)

    def _begin_generation(self, result: Result, now_ms: int) -> None:
        """Select the protocol, answer the JoinGroups, and wait for the assignments of the
        leader.
        """
        members = self._members
        self.protocol_name = members.select_protocol()
        self.update_subscribed_topics()
        self._move_to(State.COMPLETING_REBALANCE, now_ms)
        for member in members.by_id.values():
            parked = members.parked_joins.pop(member.member_id, None)
            if parked is not None:
                self.answer_join(member, parked, result)
            member.is_new = False
            members.restart_session(member, now_ms)
            self.pending_syncs[member.member_id] = None
        self._schedule(SYNC, now_ms + members.rebalance_timeout_ms())

    def _become_empty(self, result: Result, now_ms: int) -> None:
        """All members have left: write the record of the empty group."""
        self.protocol_name = None
        self.update_subscribed_topics()
        self._move_to(State.EMPTY, now_ms)
        result.records.append(group_record(self._members.group_id, self.metadata_value()))

    def update_subscribed_topics(self) -> None:
        """Set `subscribed_topics`. Which topics are read is unknown unless the members are
        consumers.
        """
        is_consumer = self.protocol_type == CONSUMER_PROTOCOL_TYPE
        self.subscribed_topics = (
            self._members.topics_of_consumers(self.protocol_name) if is_consumer else None
        )

    def answer_join(
        self,
        member: Member,
        parked: ParkedRequest,
        result: Result,
        *,
        leader_id: str | None = None,
        with_members: bool = True,
        skip_assignment: bool = False,
    ) -> None:
        """Answer a JoinGroup with the generation. Only the leader receives the list of members."""
        members = self._members
        response_members = []
        if with_members and member.member_id == members.leader_id:
            response_members = [
                JoinGroupResponseMember(
                    member_id=other.member_id,
                    group_instance_id=other.group_instance_id,
                    metadata=other.protocols.get(self.protocol_name or "", b""),
                )
                for other in members.by_id.values()
            ]
        response = JoinGroupResponse(
            error_code=Code.NONE,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name or "",
            leader=leader_id or members.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=response_members,
        )
        result.replies.append(Reply(parked.ticket, response))

    # --- the wait for assignments ----------------------------------------------------------------

    def on_leader_assigned(
        self, assignments: dict[str, bytes], result: Result, now_ms: int
    ) -> None:
        """Store the leader's assignments, answer all parked SyncGroups, and write the record.

        If the record is too large for the log, the members rebalance again, as in Apache Kafka.
        """
        if self.record_bytes(assignments) > self.settings.max_record_bytes:
            for member_id in list(self._members.parked_syncs):
                self._members.refuse_sync(member_id, Code.UNKNOWN_SERVER_ERROR, result)
            self.prepare(result, now_ms)
        else:
            self._set_assignments(assignments, result, now_ms)

    def _set_assignments(self, assignments: dict[str, bytes], result: Result, now_ms: int) -> None:
        """Set each member's assignment, which is empty if the leader sent none for it, and write
        the record.
        """
        members = self._members
        for member in members.by_id.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._move_to(State.STABLE, now_ms)
        result.count(Counted.CLASSIC_REBALANCE)
        result.records.append(group_record(self._members.group_id, self.metadata_value()))
        for member in members.by_id.values():
            parked = members.parked_syncs.pop(member.member_id, None)
            if parked is not None:
                self.answer_sync(member, parked, result)
                # Restart the session, of which a part has passed while the member waited.
                members.restart_session(member, now_ms)

    def answer_sync(self, member: Member, parked: ParkedRequest, result: Result) -> None:
        """Answer a SyncGroup with the member's assignment."""
        response = sync_response(
            Code.NONE, self.protocol_type, self.protocol_name, member.assignment
        )
        result.replies.append(Reply(parked.ticket, response))

    def _reset_assignments(self, result: Result) -> None:
        """Clear the assignments. Members with a parked SyncGroup have to join again."""
        for member in self._members.by_id.values():
            member.assignment = b""
            self._members.refuse_sync(member.member_id, Code.REBALANCE_IN_PROGRESS, result)

    def on_sync_timeout(self, result: Result, now_ms: int) -> None:
        """Remove the members that did not send SyncGroup in time."""
        if self.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not self.pending_syncs:
            return
        for member_id in list(self.pending_syncs):
            self.remove_member(member_id, Code.UNKNOWN_MEMBER_ID, result)
        self.prepare(result, now_ms)

    # --- the record ------------------------------------------------------------------------------

    def metadata_value(self, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        """The value of the group's record.

        Takes:  assignments, which are written in place of the current ones; None to write the
                current ones.
        """
        return GroupMetadataValue(
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self._members.leader_id,
            -1 if self.state_since_ms is None else self.state_since_ms + self._wall.ahead_ms,
            tuple(
                MemberMetadata(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.protocols.get(self.protocol_name or "", b""),
                    member.assignment
                    if assignments is None
                    else assignments.get(member.member_id, b""),
                )
                for member in self._members.by_id.values()
            ),
        )

    def record_bytes(self, assignments: dict[str, bytes] | None = None) -> int:
        """The size of a batch that contains only the group's record. Takes: assignments, as for
        `metadata_value`.
        """
        record = group_record(self._members.group_id, self.metadata_value(assignments))
        return BATCH_OVERHEAD_BYTES + len(record.key) + len(record.value or b"")

    def load(self, value: GroupMetadataValue) -> None:
        """Restore the state from a group's record: Stable if it has members, otherwise Empty."""
        self.state = State.STABLE if value.members else State.EMPTY
        self.state_since_ms = (
            self._wall.since_ms(value.state_timestamp_ms) if value.state_timestamp_ms >= 0 else None
        )
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol_name

    # --- small parts -----------------------------------------------------------------------------

    def _move_to(self, state: State, now_ms: int) -> None:
        """Change the state, and store `now_ms` as the time of the change."""
        assert self.state in LEGAL_PREDECESSORS[state], (
            f"group {self._members.group_id}: {self.state} to {state}"
        )
        self.state, self.state_since_ms = state, now_ms

    def _schedule(self, kind: str, deadline_ms: int) -> None:
        self._members.timers.schedule((kind, self._members.group_id, ""), deadline_ms)

    def cancel_timers(self) -> None:
        """Cancel the timers of both waits, for a group that is being replaced."""
        self._members.timers.cancel((JOIN, self._members.group_id, ""))
        self._members.timers.cancel((SYNC, self._members.group_id, ""))
