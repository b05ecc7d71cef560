"""One group of the classic protocol, whose members join, stay, and leave.

`GroupMembers` has the members and the parked requests; `Rebalance` has the state, the generation
and the assignments. This module finds the member that sent a request, and changes both. All of this
is soft state. Only the group's record (`Rebalance.metadata_value`) survives a restart, and
`ClassicGroup.load` builds the group from that record.

Source: KIP-345 (static members), KIP-389 (group.max.size), KIP-394 (ids first), KIP-559 (protocol
        in responses), KIP-814 (skip_assignment); Apache Kafka 3.9's behaviour where the KIPs do not
        specify it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from barnabas.coordinator.groups.classic.classic_answers import (
    JoinRequest,
    ParkedRequest,
    join_error_response,
    sync_response,
)
from barnabas.coordinator.groups.classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from barnabas.coordinator.groups.classic.group_members import GroupMembers, Member
from barnabas.coordinator.groups.classic.rebalance import Rebalance, State
from barnabas.coordinator.groups.group_records import (
    GroupMetadataValue,
    group_record,
    group_tombstone,
)
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_state import (
    MAY_COMMIT,
    CommitCheck,
    CommitSender,
    GroupState,
)
from barnabas.coordinator.groups.group_timers import TimerKey
from barnabas.coordinator.groups.group_types import CLASSIC_TYPE
from barnabas.coordinator.result import CoordinatorRecord, Reply, Result
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.protocol.wall_clock import WallClock

MAX_PROTOCOLS = 1000  # the maximum number of protocols in a JoinGroup
FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9

# a module's name is found sooner than the member of an Enum
_NONE = Code.NONE
_COMPLETING, _PREPARING = State.COMPLETING_REBALANCE, State.PREPARING_REBALANCE


class ClassicGroup(GroupState):
    """One group of the classic protocol.

    rebalance: the group's state machine, which other parts may read.
    """

    __slots__ = ("_members", "_new_member_suffix", "rebalance")

    kind = CLASSIC_TYPE
    has_member_epochs = False
    reads_on = accepts_join_group = True

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        timers: Timers[TimerKey],
        new_member_suffix: Callable[[], str],
        wall: WallClock,
    ) -> None:
        self._new_member_suffix = new_member_suffix
        self._members = GroupMembers(group_id, timers)
        self.rebalance = Rebalance(self._members, settings, wall)

    # --- a start ---------------------------------------------------------------------------------

    def load(self, value: GroupMetadataValue, now_ms: int) -> None:
        """Build the group from its record: as Stable with the recorded members, or as Empty.

        The sessions of the members begin now.
        """
        members = self._members
        self.rebalance.load(value)
        for row in value.members:
            member = Member(
                row.member_id,
                row.group_instance_id,
                row.client_id,
                row.client_host,
                row.session_timeout_ms,
                row.rebalance_timeout_ms,
                {value.protocol_name or "": row.subscription},
                row.assignment,
            )
            members.add(member)
            members.restart_session(member, now_ms)
        is_member = value.leader_id in members.by_id
        members.leader_id = value.leader_id if is_member else next(iter(members.by_id), None)
        self.rebalance.update_subscribed_topics()

    def maybe_rebalance_oversized(self, result: Result, now_ms: int) -> None:
        """Rebalance a loaded group if it exceeds the configured size."""
        if len(self._members.by_id) > self.rebalance.settings.max_size:
            self.rebalance.prepare(result, now_ms)

    def remove_members(self, member_ids: Iterable[str], result: Result, now_ms: int) -> None:
        """Remove members of a loaded group, and begin its next generation."""
        for member_id in member_ids:
            self.rebalance.remove_member(member_id, Code.UNKNOWN_MEMBER_ID, result)
        self._after_departure(True, result, now_ms)

    # --- conversion (group_conversion.py) --------------------------------------------------------

    def dissolve(self, result: Result) -> None:
        """Refuse all parked requests, so that the members join again, and cancel all timers.

        Called when a group of another kind replaces this one.
        """
        for member_id in [*self._members.by_id, *self._members.pending_ids]:
            self._members.refuse_join(member_id, Code.REBALANCE_IN_PROGRESS, member_id, result)
            self._members.refuse_sync(member_id, Code.REBALANCE_IN_PROGRESS, result)
            self._members.end_session(member_id)
        self.rebalance.cancel_timers()

    def metadata_of(self, member: Member) -> bytes:
        """The member's metadata for the group's protocol. If the group has no protocol yet, the
        metadata for the member's first protocol.
        """
        if self.rebalance.protocol_name in member.protocols:
            return member.protocols[self.rebalance.protocol_name]
        return next(iter(member.protocols.values()), b"")

    def set_protocols(self, member_id: str, protocols: dict[str, bytes]) -> None:
        """Set all protocols of a loaded member, since the group's record contains only one
        of them.
        """
        self._members.set_protocols(self._members.by_id[member_id], protocols)

    # --- for readers -----------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.rebalance.state

    @property
    def members(self) -> dict[str, Member]:
        """The members by their ids, in the order in which they joined."""
        return self._members.by_id

    @property
    def pending_ids(self) -> dict[str, None]:
        """The ids that were assigned to members that have not joined yet."""
        return self._members.pending_ids

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.rebalance.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def protocol_type(self) -> str:
        """The type of the members' protocol; empty if the group never had members."""
        return self.rebalance.protocol_type or ""

    @property
    def state_name(self) -> str:
        return self.rebalance.state.value

    @property
    def member_ids(self) -> Collection[str]:
        return self._members.by_id.keys()

    @property
    def has_members(self) -> bool:
        return self.rebalance.state is not State.EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether the group has neither members nor pending member ids."""
        return self.rebalance.state is State.EMPTY and not self._members.pending_ids

    @property
    def retains_offsets(self) -> bool:
        """Whether no offset expires: the group has members, and their topics are not known."""
        rebalance = self.rebalance
        return (
            rebalance.protocol_type is not None
            and rebalance.state is not State.EMPTY
            and (rebalance.state is not State.STABLE or rebalance.subscribed_topics is None)
        )

    @property
    def emptied_ms(self) -> int | None:
        """When the last member left; None if the group has members, or never had any."""
        rebalance = self.rebalance
        is_emptied = rebalance.protocol_type is not None and rebalance.state is State.EMPTY
        return rebalance.state_since_ms if is_emptied else None

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members of the group read the topic.

        If their subscriptions are unknown, a group of consumers counts as reading all topics.
        """
        if self.rebalance.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.rebalance.subscribed_topics

    def check_commit(self, sender: CommitSender) -> CommitCheck:
        """Whether the sender may commit offsets.

        Source: KIP-447 for commits inside transactions.
        """
        code = self._check_commit(sender)
        return MAY_COMMIT if code is _NONE else CommitCheck(code)

    def _check_commit(self, sender: CommitSender) -> Code:
        member_id, generation, _, transactional, group_instance_id, _ = sender
        if generation < 0 and self.state is State.EMPTY:
            return _NONE
        if generation >= 0 or member_id or group_instance_id is not None:
            code = self._members.check(member_id, group_instance_id)
            if code is not _NONE:
                return code
            if generation != self.rebalance.generation:
                return Code.ILLEGAL_GENERATION
        elif not transactional:
            return Code.UNKNOWN_MEMBER_ID
        if not transactional and self.state is _COMPLETING:
            return Code.REBALANCE_IN_PROGRESS
        return _NONE

    def check_offset_delete(self) -> Code:
        """NONE if offsets may be deleted, otherwise the error code.

        They may be deleted if the group has no members, or if the topics that its members read are
        known.
        """
        if self.state is State.EMPTY or self.uses_consumer_protocol:
            return _NONE
        return Code.NON_EMPTY_GROUP

    def decide_again(self) -> None:
        """Do nothing: the heartbeats of classic members decide nothing."""

    def tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        yield group_tombstone(group_id)

    # --- joining ---------------------------------------------------------------------------------

    def on_join(self, join: JoinRequest, result: Result, now_ms: int) -> None:
        """Answer a JoinGroup, or park it until all members have joined or the join timeout ends."""
        if not self._has_room_for(join.member_id):
            self.rebalance.remove_member(join.member_id, Code.GROUP_MAX_SIZE_REACHED, result)
            _refuse(join, Code.GROUP_MAX_SIZE_REACHED, "", result)
            self.rebalance.maybe_complete_join(result, now_ms)
        elif not self._supports_protocols(join):
            _refuse(join, Code.INCONSISTENT_GROUP_PROTOCOL, join.member_id, result)
        elif join.member_id:
            self._join_existing_member(join, result, now_ms)
        elif join.group_instance_id is not None:
            self._join_new_static(join, join.group_instance_id, result, now_ms)
        else:
            self._join_new_dynamic(join, result, now_ms)

    def _has_room_for(self, member_id: str) -> bool:
        """Whether the group's maximum size allows the member.

        During a rebalance only members that have joined are counted, so a group that is too large
        loses the members that join last.
        """
        members, max_size = self._members, self.rebalance.settings.max_size
        counted = members.parked_joins if self.state is _PREPARING else members.by_id
        return member_id in counted or len(counted) < max_size

    def _supports_protocols(self, join: JoinRequest) -> bool:
        """Whether a request has the group's protocol type, and a protocol that all members
        support.
        """
        if not join.protocol_type or not join.protocols:
            return False
        if not self._members.by_id:
            return True
        if join.protocol_type != self.rebalance.protocol_type:
            return False
        return self._members.have_any_of(join.protocols)

    def _join_new_dynamic(self, join: JoinRequest, result: Result, now_ms: int) -> None:
        """Give a new dynamic member its id. From version 4 on it has to join again with that id
        (KIP-394), so that a lost response leaves no member behind.
        """
        member_id = f"{join.client_id}-{self._new_member_suffix()}"
        if join.api_version < FIRST_VERSION_WITH_MEMBER_ID_REQUIRED:
            self._add_member(member_id, join, result, now_ms)
            return
        self._members.pending_ids[member_id] = None
        self._members.set_session_end(member_id, now_ms + join.session_timeout_ms)
        _refuse(join, Code.MEMBER_ID_REQUIRED, member_id, result)

    def _join_new_static(
        self, join: JoinRequest, group_instance_id: str, result: Result, now_ms: int
    ) -> None:
        """Add a static member. If its instance is known, the member gets a new id in place of its
        former id.
        """
        member_id = f"{group_instance_id}-{self._new_member_suffix()}"
        former_id = self._members.id_of_instance(group_instance_id)
        if former_id is None:
            self._add_member(member_id, join, result, now_ms)
        else:
            self._replace_static_member(former_id, member_id, join, result, now_ms)

    def _add_member(self, member_id: str, join: JoinRequest, result: Result, now_ms: int) -> None:
        """Add a member, which takes part in a rebalance.

        The member cannot send heartbeats before it knows its id, so a special timeout applies until
        then.
        """
        member = Member(
            member_id,
            join.group_instance_id,
            join.client_id,
            join.client_host,
            join.session_timeout_ms,
            join.rebalance_timeout_ms,
            join.protocols,
            is_new=True,
        )
        self._members.add(member)
        self._members.parked_joins[member_id] = ParkedRequest(join.ticket, join.api_version)
        self._members.set_session_end(
            member_id, now_ms + self.rebalance.settings.new_member_join_timeout_ms
        )
        self.rebalance.on_member_added(join.protocol_type, result, now_ms)

    def _join_existing_member(self, join: JoinRequest, result: Result, now_ms: int) -> None:
        """Handle the JoinGroup of a known member id, which is the id of a member, or an id with
        which a client was required to join.
        """
        if join.member_id in self._members.pending_ids and join.group_instance_id is None:
            self._add_member(join.member_id, join, result, now_ms)
            return
        code = self._members.check(join.member_id, join.group_instance_id)
        if code is not _NONE:
            _refuse(join, code, join.member_id, result)
            return
        member = self._members.by_id[join.member_id]
        if self._repeats_former_join(member, join):
            parked = ParkedRequest(join.ticket, join.api_version)
            self.rebalance.answer_join(member, parked, result)
        else:
            self._update_member(member, join, result)
            self.rebalance.on_joined(result, now_ms)

    def _repeats_former_join(self, member: Member, join: JoinRequest) -> bool:
        """Whether the request repeats a JoinGroup that was answered.

        If the leader of a stable group joins again, this is not a repetition: the leader requests a
        rebalance.
        """
        if self.state is State.COMPLETING_REBALANCE:
            return member.has_protocols(join.protocols)
        return (
            self.state is State.STABLE
            and member.member_id != self._members.leader_id
            and member.has_protocols(join.protocols)
        )

    def _update_member(self, member: Member, join: JoinRequest, result: Result) -> None:
        """Update a member from its JoinGroup request, and park the request."""
        members = self._members
        members.set_protocols(member, join.protocols)
        member.session_timeout_ms, member.rebalance_timeout_ms = (
            join.session_timeout_ms,
            join.rebalance_timeout_ms,
        )
        members.refuse_join(member.member_id, Code.REBALANCE_IN_PROGRESS, member.member_id, result)
        members.parked_joins[member.member_id] = ParkedRequest(join.ticket, join.api_version)

    def _replace_static_member(
        self, former_id: str, member_id: str, join: JoinRequest, result: Result, now_ms: int
    ) -> None:
        """Let a returning static member replace its former incarnation, which is fenced.

        A stable group that keeps its protocol does not rebalance. The member receives its
        assignment with SyncGroup. If the returning member was the leader, a response before version
        9 names its former id as the leader's, so that the member does not assign again. Later
        versions have a separate field for this purpose.
        """
        rebalance, members = self.rebalance, self._members
        former_leader_id = members.leader_id
        if (
            self.state is State.STABLE
            and rebalance.record_bytes() + _max_stored_bytes(member_id, join)
            > self.rebalance.settings.max_record_bytes
        ):
            _refuse(join, Code.UNKNOWN_SERVER_ERROR, join.member_id, result)
            return
        rebalance.pending_syncs.pop(former_id, None)
        member = members.replace_id(former_id, member_id, join, result)
        members.restart_session(member, now_ms)
        self._update_member(member, join, result)
        if self.state is not State.STABLE:
            rebalance.on_joined(result, now_ms)
        elif members.select_protocol() != rebalance.protocol_name:
            rebalance.prepare(result, now_ms)
        else:
            result.records.append(group_record(self._members.group_id, rebalance.metadata_value()))
            parked = members.parked_joins.pop(member_id)
            if join.api_version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT:
                is_leader = member_id == members.leader_id
                rebalance.answer_join(member, parked, result, skip_assignment=is_leader)
            else:
                rebalance.answer_join(
                    member, parked, result, leader_id=former_leader_id, with_members=False
                )

    # --- syncing ---------------------------------------------------------------------------------

    def on_sync(
        self, request: SyncGroupRequest, parked: ParkedRequest, result: Result, now_ms: int
    ) -> None:
        """Answer a SyncGroup with the assignment, or park it until the leader has sent assignments.

        After:  if the leader has sent them, the group is Stable, and the Result has its record with
                the assignments.
        """
        members = self._members
        code = self._check_sync(request)
        if code is not _NONE:
            result.replies.append(Reply(parked.ticket, sync_response(code)))
            return
        member = members.by_id[request.member_id]
        self.rebalance.pending_syncs.pop(member.member_id, None)
        if self.state is State.STABLE:
            # a SyncGroup renews the session, as a heartbeat does
            members.restart_session(member, now_ms)
            self.rebalance.answer_sync(member, parked, result)
            return
        members.refuse_sync(member.member_id, Code.REBALANCE_IN_PROGRESS, result)
        members.parked_syncs[member.member_id] = parked
        if member.member_id == members.leader_id:
            assignments = {row.member_id: row.assignment for row in request.assignments}
            self.rebalance.on_leader_assigned(assignments, result, now_ms)

    def is_completed_by(self, request: SyncGroupRequest) -> bool:
        """Whether the request is the one that makes the group Stable, so that it contains the
        assignments for the group's record.
        """
        return (
            self.state is State.COMPLETING_REBALANCE
            and request.member_id == self._members.leader_id
            and self._check_sync(request) is _NONE
        )

    def _check_sync(self, request: SyncGroupRequest) -> Code:
        """NONE if the SyncGroup belongs to the current generation and its protocol, otherwise the
        error code.
        """
        rebalance = self.rebalance
        code = self._members.check(request.member_id, request.group_instance_id)
        if code is not _NONE:
            return code
        if request.generation_id != rebalance.generation:
            return Code.ILLEGAL_GENERATION
        for requested, current in (
            (request.protocol_type, rebalance.protocol_type),
            (request.protocol_name, rebalance.protocol_name),
        ):
            if None not in (requested, current) and requested != current:
                return Code.INCONSISTENT_GROUP_PROTOCOL
        return Code.REBALANCE_IN_PROGRESS if self.state is _PREPARING else _NONE

    # --- staying and leaving ---------------------------------------------------------------------

    def on_heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Code:
        """Restart the member's session. Gives: REBALANCE_IN_PROGRESS if the member must join
        again.
        """
        code = self._members.check(request.member_id, request.group_instance_id)
        if code is not _NONE:
            return code
        rebalance = self.rebalance
        if request.generation_id != rebalance.generation:
            return Code.ILLEGAL_GENERATION
        self._members.restart_session(self._members.by_id[request.member_id], now_ms)
        is_preparing = rebalance.state is _PREPARING
        return Code.REBALANCE_IN_PROGRESS if is_preparing else _NONE

    def on_commit(self, member_id: str, now_ms: int) -> None:
        """Restart the session of a member that commits offsets, as a heartbeat does."""
        member = self._members.by_id.get(member_id)
        if member is not None:
            self._members.restart_session(member, now_ms)

    def on_leave(
        self, leaving: Iterable[tuple[str, str | None]], result: Result, now_ms: int
    ) -> list[Code]:
        """Remove each member, given as (member_id, group_instance_id). Gives: an error code for
        each.

        The member_id of a static member may be empty.
        """
        codes, member_left = [], False
        for member_id, group_instance_id in leaving:
            if not member_id and group_instance_id is not None:
                member_id = self._members.id_of_instance(group_instance_id) or ""
            is_pending = member_id in self._members.pending_ids
            code = _NONE if is_pending else self._members.check(member_id, group_instance_id)
            if code is _NONE:
                member_left |= self.rebalance.remove_member(
                    member_id, Code.UNKNOWN_MEMBER_ID, result
                )
            codes.append(code)
        self._after_departure(member_left, result, now_ms)
        return codes

    def on_session_timeout(self, member_id: str, result: Result, now_ms: int) -> None:
        """Remove a member whose session has expired.

        A member with a parked request stays, since the broker has yet to answer the request. A new
        member is removed even so, since its client may have disconnected.
        """
        member = self._members.by_id.get(member_id)
        if member is not None and not member.is_new and self._members.is_waiting(member_id):
            return
        member_left = self.rebalance.remove_member(member_id, Code.UNKNOWN_MEMBER_ID, result)
        self._after_departure(member_left, result, now_ms)

    def _after_departure(self, member_left: bool, result: Result, now_ms: int) -> None:
        """Rebalance the group after a member was removed.

        If a rebalance is in progress, the removed member may have been the last one that had not
        joined. Then the rebalance continues.
        """
        if self.state is _PREPARING:
            self.rebalance.maybe_complete_join(result, now_ms)
        elif member_left:
            self.rebalance.prepare(result, now_ms)


def _refuse(join: JoinRequest, code: Code, member_id: str, result: Result) -> None:
    response = join_error_response(code, member_id, join.api_version)
    result.replies.append(Reply(join.ticket, response))


def _max_stored_bytes(member_id: str, join: JoinRequest) -> int:
    """The maximum number of bytes that the member's ids and metadata take in the group's record."""
    ids = len(member_id.encode()) + len(join.client_id.encode()) + len(join.client_host.encode())
    return ids + max(map(len, join.protocols.values()))
