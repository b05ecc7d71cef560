"""The members of one group of the classic protocol, and its rebalances.

The machine is soft state. What outlives the broker is the group's record, written when the leader
has assigned, when the last member has left, and when a static member comes back under a new id;
`ClassicGroup.load` builds the machine from it. So a generation that was begun and never assigned is
begun again after a restart, with the same number. That does no harm: nobody has an assignment of
it.

JoinGroup and SyncGroup may be parked: their tickets are in `_parked_joins` and `_parked_syncs`, and
the event that ends the wait puts the replies into its Result. A ticket leaves these tables with its
reply and in no other way.

Timers, keyed (kind, group, member):

    SESSION   the end of a member's session, or of an id that was given out and has not joined
    JOIN      the end of the wait for members to join again
    SYNC      the end of the wait for their SyncGroup

The next wait of a kind moves its timer. One that comes due when nobody waits does nothing.

Source: KIP-134 (initial delay), KIP-345 (static members), KIP-394 (ids first), KIP-559 (protocol in
answers), KIP-389 (group.max.size), KIP-814 (skip_assignment); Apache Kafka 3.9's behaviour where
these are silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordinator.groups.classic.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    subscribed_topics,
)
from barnabas.coordinator.groups.group_records import (
    GroupMetadataValue,
    MemberMetadata,
    group_record,
)
from barnabas.coordinator.groups.group_timers import JOIN, SESSION, SYNC, TimerKey
from barnabas.coordinator.result import Reply, Result
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from barnabas.protocol.wall_clock import WallClock

if TYPE_CHECKING:
    from barnabas.protocol.messages.heartbeat import HeartbeatRequest
    from barnabas.protocol.messages.sync_group import SyncGroupRequest

MAX_PROTOCOLS = 1000  # of a member
# of a batch of one record: its header, and at the most the record's own lengths, time and offset
BATCH_OVERHEAD_BYTES = 61 + 32
NO_GENERATION = -1
FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
FIRST_VERSION_WITH_NULLABLE_PROTOCOL = 7
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


class State(Enum):
    """The state of a group; the value is its name in ListGroups and DescribeGroups.

    Each docstring lists the answers to a member of the current generation. Others get
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION in every state.
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
    """All members can have their assignments.

    JoinGroup: a rebalance for the leader and for changed members, else the same answer. SyncGroup:
    the assignment. Heartbeat: NONE. OffsetCommit: accepted.
    """


DEAD = "Dead"  # how a group that does not exist is described

LEGAL_PREDECESSORS: dict[State, tuple[State, ...]] = {
    State.EMPTY: (State.PREPARING_REBALANCE,),
    State.PREPARING_REBALANCE: (State.EMPTY, State.STABLE, State.COMPLETING_REBALANCE),
    State.COMPLETING_REBALANCE: (State.PREPARING_REBALANCE,),
    State.STABLE: (State.COMPLETING_REBALANCE,),
}


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's settings of groups; Kafka's names of the properties are in the comments."""

    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 0  # group.initial.rebalance.delay.ms
    max_size: int = 2**31 - 1  # group.max.size
    # no property: how long the JoinGroup of a new member may wait
    new_member_join_timeout_ms: int = 300_000
    offset_metadata_max_size: int = 4_096  # offset.metadata.max.bytes
    # message.max.bytes, as the topic of the group's record has it
    max_record_bytes: int = 1_048_588
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    # no property: AclOperation READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, a bit each
    group_operations: int = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


class JoinRequest(NamedTuple):
    """A JoinGroup request whose bytes were copied out of its frame."""

    ticket: int
    api_version: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: dict[str, bytes]


class ParkedRequest(NamedTuple):
    """A JoinGroup or SyncGroup whose answer comes later."""

    ticket: int
    api_version: int


@dataclass(slots=True)
class Member:
    """One member of a group.

    protocols: name to metadata, in the order of preference. is_new: its first JoinGroup is not
    answered yet.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    assignment: bytes = b""
    is_new: bool = False

    def has_protocols(self, protocols: dict[str, bytes]) -> bool:
        """Whether these are its protocols, in the same order."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: dict[str, None]) -> str:
        """The protocol that it prefers among the candidates."""
        return next(name for name in self.protocols if name in candidates)


class ClassicGroup:
    """The members of one group, and its state.

    Members are in the order in which they joined. Votes that are even go to the protocol that was
    voted for first. The first member leads; when it leaves, the next in order that has joined does.
    """

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        timers: Timers[TimerKey],
        new_member_suffix: Callable[[], str],
        wall: WallClock,
    ) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        # by the steady time; None for a group without a record that has it
        self.state_since_ms: int | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.pending_join_members: dict[str, None] = {}
        self.subscribed_topics: frozenset[str] | None = None
        self._settings, self._timers, self._new_member_suffix, self._wall = (
            settings,
            timers,
            new_member_suffix,
            wall,
        )
        self._static_members: dict[str, str] = {}
        self._supported_protocols: dict[str, int] = {}  # how many members have each protocol
        self._parked_joins: dict[str, ParkedRequest] = {}
        self._parked_syncs: dict[str, ParkedRequest] = {}
        self._pending_sync_members: dict[str, None] = {}
        self._is_initial_rebalance = False  # the rebalance under way began in EMPTY
        self._new_member_added = False
        self._initial_remaining_ms = 0

    @classmethod
    def load(
        cls,
        group_id: str,
        value: GroupMetadataValue,
        settings: GroupSettings,
        timers: Timers[TimerKey],
        new_member_suffix: Callable[[], str],
        wall: WallClock,
        now_ms: int,
    ) -> ClassicGroup:
        """Build the group from its record: Stable with the recorded members, or Empty.

        Members' sessions begin now.
        """
        group = cls(group_id, settings, timers, new_member_suffix, wall)
        group.state = State.STABLE if value.members else State.EMPTY
        group.state_since_ms = (
            wall.since_ms(value.state_timestamp_ms) if value.state_timestamp_ms >= 0 else None
        )
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol_name
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
            group._add(member)
            group._restart_session(member, now_ms)
        is_member = value.leader_id in group.members
        group.leader_id = value.leader_id if is_member else next(iter(group.members), None)
        group.subscribed_topics = group._compute_subscribed_topics()
        return group

    def maybe_rebalance_oversized(self, result: Result, now_ms: int) -> None:
        """Rebalance a loaded group that is larger than the configuration now allows."""
        if len(self.members) > self._settings.max_size:
            self._prepare_rebalance(result, now_ms)

    def remove_all_members(self, result: Result, now_ms: int) -> None:
        """Remove all members of a loaded group, which begins its next generation."""
        for member_id in list(self.members):
            self._remove_member(member_id, Code.UNKNOWN_MEMBER_ID, result)
        self._after_departure(True, result, now_ms)

    # --- conversion (group_conversion.py) --------------------------------------------------------

    def dissolve(self, result: Result) -> None:
        """Refuse what is parked, so that members join anew; forget all deadlines.

        Others take the group's place.
        """
        for member_id in [*self.members, *self.pending_join_members]:
            self._refuse_parked_join(member_id, Code.REBALANCE_IN_PROGRESS, member_id, result)
            self._refuse_parked_sync(member_id, Code.REBALANCE_IN_PROGRESS, result)
            self._timers.cancel(self._session_key(member_id))
        self._timers.cancel((JOIN, self.group_id, ""))
        self._timers.cancel((SYNC, self.group_id, ""))

    def metadata_of(self, member: Member) -> bytes:
        """The member's metadata for the group's protocol; for its own first one while there is
        none."""
        if self.protocol_name in member.protocols:
            return member.protocols[self.protocol_name]
        return next(iter(member.protocols.values()), b"")

    def set_protocols(self, member_id: str, protocols: dict[str, bytes]) -> None:
        """Give a loaded member all its protocols, of which the group's record has one."""
        member = self.members[member_id]
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def rebalance(self, result: Result, now_ms: int) -> None:
        """Have all members of a loaded group join again."""
        self._prepare_rebalance(result, now_ms)

    # --- what others ask -------------------------------------------------------------------------

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def has_known_subscriptions(self) -> bool:
        """Whether the topics that the members read are known: those of consumers mostly are."""
        return self.subscribed_topics is not None

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether its members read the topic.

        Where their subscriptions cannot be read, all topics of a consumer group count as read.
        """
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def check_member(self, member_id: str, group_instance_id: str | None) -> Code:
        """NONE for a member under its current id, else the error for whoever sent the request."""
        if group_instance_id is not None:
            current_id = self._static_members.get(group_instance_id)
            if current_id is None:
                return Code.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return Code.FENCED_INSTANCE_ID
        return Code.NONE if member_id in self.members else Code.UNKNOWN_MEMBER_ID

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool
    ) -> Code:
        """NONE where the sender may commit offsets, else the error.

        Source: KIP-447 for commits inside transactions.
        """
        if generation < 0 and self.state is State.EMPTY:
            return Code.NONE
        if generation >= 0 or member_id or group_instance_id is not None:
            code = self.check_member(member_id, group_instance_id)
            if code is not Code.NONE:
                return code
            if generation != self.generation:
                return Code.ILLEGAL_GENERATION
        elif not transactional:
            return Code.UNKNOWN_MEMBER_ID
        if not transactional and self.state is State.COMPLETING_REBALANCE:
            return Code.REBALANCE_IN_PROGRESS
        return Code.NONE

    def check_offset_delete(self) -> Code:
        """NONE where offsets may be deleted, else the error.

        They may be deleted where all topics that members read are known, or without members.
        """
        if self.state is State.EMPTY or self.uses_consumer_protocol:
            return Code.NONE
        return Code.NON_EMPTY_GROUP

    def describe(self) -> DescribedGroup:
        """The group as DescribeGroups shows it.

        Assignments of a former generation are shown until there are new ones.
        """
        selected = self.protocol_name if self.state is State.STABLE else None
        return DescribedGroup(
            error_code=Code.NONE,
            error_message=None,
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=selected or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b""
                    if selected is None
                    else member.protocols.get(selected, b""),
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    def metadata_value(self, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        """The value of the group's record, as the group is or would be with these assignments."""
        return GroupMetadataValue(
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.leader_id,
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
                for member in self.members.values()
            ),
        )

    # --- joining ---------------------------------------------------------------------------------

    def on_join(self, join: JoinRequest, result: Result, now_ms: int) -> None:
        """Answer a JoinGroup, or park it until all members have joined or it is too late."""
        if not self._accepts_joining_member(join.member_id):
            self._remove_member(join.member_id, Code.GROUP_MAX_SIZE_REACHED, result)
            self._refuse(join, Code.GROUP_MAX_SIZE_REACHED, "", result)
            self._maybe_complete_join(result, now_ms)
        elif not self._supports_protocols(join):
            self._refuse(join, Code.INCONSISTENT_GROUP_PROTOCOL, join.member_id, result)
        elif join.member_id:
            self._join_existing_member(join, result, now_ms)
        elif join.group_instance_id is not None:
            self._join_new_static(join, join.group_instance_id, result, now_ms)
        else:
            self._join_new_dynamic(join, result, now_ms)

    def _join_new_dynamic(self, join: JoinRequest, result: Result, now_ms: int) -> None:
        member_id = f"{join.client_id}-{self._new_member_suffix()}"
        if join.api_version < FIRST_VERSION_WITH_MEMBER_ID_REQUIRED:
            self._add_member_and_rebalance(member_id, join, result, now_ms)
            return
        self.pending_join_members[member_id] = None
        self._timers.schedule(self._session_key(member_id), now_ms + join.session_timeout_ms)
        self._refuse(join, Code.MEMBER_ID_REQUIRED, member_id, result)

    def _join_new_static(
        self, join: JoinRequest, group_instance_id: str, result: Result, now_ms: int
    ) -> None:
        member_id = f"{group_instance_id}-{self._new_member_suffix()}"
        former_id = self._static_members.get(group_instance_id)
        if former_id is None:
            self._add_member_and_rebalance(member_id, join, result, now_ms)
        else:
            self._replace_static_member(former_id, member_id, join, result, now_ms)

    def _add_member_and_rebalance(
        self, member_id: str, join: JoinRequest, result: Result, now_ms: int
    ) -> None:
        """Add a member and let it take part in a rebalance.

        The member cannot send heartbeats before it knows its id, so its wait has a time limit of
        its own.
        """
        self.protocol_type = join.protocol_type
        self._new_member_added = True
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
        self._add(member)
        self._parked_joins[member_id] = ParkedRequest(join.ticket, join.api_version)
        self._timers.schedule(
            self._session_key(member_id), now_ms + self._settings.new_member_join_timeout_ms
        )
        self._rebalance_or_complete_join(result, now_ms)

    def _join_existing_member(self, join: JoinRequest, result: Result, now_ms: int) -> None:
        if join.member_id in self.pending_join_members and join.group_instance_id is None:
            self._add_member_and_rebalance(join.member_id, join, result, now_ms)
            return
        code = self.check_member(join.member_id, join.group_instance_id)
        if code is not Code.NONE:
            self._refuse(join, code, join.member_id, result)
            return
        member = self.members[join.member_id]
        if self._repeats_former_join(member, join):
            self._answer_join(member, ParkedRequest(join.ticket, join.api_version), result)
        else:
            self._update_member(member, join, result)
            self._rebalance_or_complete_join(result, now_ms)

    def _repeats_former_join(self, member: Member, join: JoinRequest) -> bool:
        """Whether the request repeats one that was answered.

        The leader of a stable group that joins again wants a rebalance.
        """
        if self.state is State.COMPLETING_REBALANCE:
            return member.has_protocols(join.protocols)
        return (
            self.state is State.STABLE
            and member.member_id != self.leader_id
            and member.has_protocols(join.protocols)
        )

    def _update_member(self, member: Member, join: JoinRequest, result: Result) -> None:
        self._count_protocols(member, -1)
        member.protocols = join.protocols
        member.session_timeout_ms, member.rebalance_timeout_ms = (
            join.session_timeout_ms,
            join.rebalance_timeout_ms,
        )
        self._count_protocols(member, 1)
        self._refuse_parked_join(
            member.member_id, Code.REBALANCE_IN_PROGRESS, member.member_id, result
        )
        self._parked_joins[member.member_id] = ParkedRequest(join.ticket, join.api_version)

    def _replace_static_member(
        self, former_id: str, member_id: str, join: JoinRequest, result: Result, now_ms: int
    ) -> None:
        """Let a static member that comes back take the place of its former self, which is fenced.

        In a stable group that keeps its protocol there is no rebalance; the member gets its
        assignment with SyncGroup. Where the leader comes back like this, versions before 9 name its
        former id as the leader's, so that it does not assign again; later versions have a field for
        that.
        """
        former_leader_id = self.leader_id
        if (
            self.state is State.STABLE
            and self._record_bytes() + _max_stored_bytes(member_id, join)
            > self._settings.max_record_bytes
        ):
            self._refuse(join, Code.UNKNOWN_SERVER_ERROR, join.member_id, result)
            return
        member = self._replace_member_id(former_id, member_id, join, result)
        self._restart_session(member, now_ms)
        self._update_member(member, join, result)
        if self.state is not State.STABLE:
            self._rebalance_or_complete_join(result, now_ms)
        elif self._select_protocol() != self.protocol_name:
            self._prepare_rebalance(result, now_ms)
        else:
            result.records.append(group_record(self.group_id, self.metadata_value()))
            parked = self._parked_joins.pop(member_id)
            if join.api_version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT:
                self._answer_join(
                    member, parked, result, skip_assignment=member_id == self.leader_id
                )
            else:
                self._answer_join(
                    member, parked, result, leader_id=former_leader_id, with_members=False
                )

    def _replace_member_id(
        self, former_id: str, member_id: str, join: JoinRequest, result: Result
    ) -> Member:
        """Give a static member its new id, in its place in the order.

        Parked requests of the former id are answered with FENCED_INSTANCE_ID.
        """
        self._refuse_parked_join(former_id, Code.FENCED_INSTANCE_ID, former_id, result)
        self._refuse_parked_sync(former_id, Code.FENCED_INSTANCE_ID, result)
        self._timers.cancel(self._session_key(former_id))
        self._pending_sync_members.pop(former_id, None)
        member = self.members[former_id]
        member.member_id, member.client_id, member.client_host = (
            member_id,
            join.client_id,
            join.client_host,
        )
        member.is_new = False
        self.members = {other.member_id: other for other in self.members.values()}
        assert member.group_instance_id is not None
        self._static_members[member.group_instance_id] = member_id
        if self.leader_id == former_id:
            self.leader_id = member_id
        return member

    def _accepts_joining_member(self, member_id: str) -> bool:
        """Whether the size of the group leaves a place for the member.

        While members join, those that did count: so a group that is too large loses its last
        members.
        """
        if self.state is State.PREPARING_REBALANCE:
            return (
                member_id in self._parked_joins or len(self._parked_joins) < self._settings.max_size
            )
        return member_id in self.members or len(self.members) < self._settings.max_size

    def _supports_protocols(self, join: JoinRequest) -> bool:
        """Whether it has the group's protocol type, and a protocol that all members have."""
        if not join.protocol_type or not join.protocols:
            return False
        if not self.members:
            return True
        if join.protocol_type != self.protocol_type:
            return False
        return any(
            self._supported_protocols.get(name) == len(self.members) for name in join.protocols
        )

    # --- the rebalance ---------------------------------------------------------------------------

    def _rebalance_or_complete_join(self, result: Result, now_ms: int) -> None:
        if self.state is State.PREPARING_REBALANCE:
            self._maybe_complete_join(result, now_ms)
        else:
            self._prepare_rebalance(result, now_ms)

    def _prepare_rebalance(self, result: Result, now_ms: int) -> None:
        """Have all members join again.

        The first rebalance of a group waits for more members, as configured.
        """
        if self.state is State.COMPLETING_REBALANCE:
            self._reset_assignments(result)
        self._is_initial_rebalance = self.state is State.EMPTY
        self._move_to(State.PREPARING_REBALANCE, now_ms)
        if not self.members:
            self._complete_join(result, now_ms)
        elif not self._is_initial_rebalance:
            self._timers.schedule((JOIN, self.group_id, ""), now_ms + self._rebalance_timeout_ms())
            self._maybe_complete_join(result, now_ms)
        elif self._settings.initial_rebalance_delay_ms > 0:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._new_member_added = False
            self._initial_remaining_ms = max(self._rebalance_timeout_ms() - delay_ms, 0)
            self._timers.schedule((JOIN, self.group_id, ""), now_ms + delay_ms)
        else:
            self._complete_join(result, now_ms)

    def on_join_timeout(self, result: Result, now_ms: int) -> None:
        """End the wait for members.

        The first rebalance is put off further while new members come, up to the rebalance timeout.
        """
        if self.state is not State.PREPARING_REBALANCE:
            return
        if not (
            self._is_initial_rebalance and self._new_member_added and self._initial_remaining_ms > 0
        ):
            self._complete_join(result, now_ms)
            return
        self._new_member_added = False
        delay_ms = min(self._settings.initial_rebalance_delay_ms, self._initial_remaining_ms)
        self._initial_remaining_ms -= delay_ms
        self._timers.schedule((JOIN, self.group_id, ""), now_ms + delay_ms)

    def _maybe_complete_join(self, result: Result, now_ms: int) -> None:
        """End the wait for members early where none is missing, and nobody who was given an id."""
        if self.state is not State.PREPARING_REBALANCE or self._is_initial_rebalance:
            return
        if len(self._parked_joins) == len(self.members) and not self.pending_join_members:
            self._complete_join(result, now_ms)

    def _complete_join(self, result: Result, now_ms: int) -> None:
        """Begin the next generation with those that joined.

        Static members stay in the group without joining.
        """
        for member in list(self.members.values()):
            if member.member_id not in self._parked_joins and member.group_instance_id is None:
                self._remove_member(member.member_id, Code.UNKNOWN_MEMBER_ID, result)
        if self.members and not self._maybe_elect_leader():
            self._timers.schedule((JOIN, self.group_id, ""), now_ms + self._rebalance_timeout_ms())
            return
        self.generation += 1
        if self.members:
            self._begin_generation(result, now_ms)
        else:
            self._become_empty(result, now_ms)

    def _maybe_elect_leader(self) -> bool:
        """Choose another leader where the leader has not joined. False where nobody has."""
        if self.leader_id not in self._parked_joins:
            selected = next(
                (member_id for member_id in self.members if member_id in self._parked_joins), None
            )
            if selected is None:
                return False
            self.leader_id = selected
        return True

    def _begin_generation(self, result: Result, now_ms: int) -> None:
        self.protocol_name = self._select_protocol()
        self.subscribed_topics = self._compute_subscribed_topics()
        self._move_to(State.COMPLETING_REBALANCE, now_ms)
        for member in self.members.values():
            parked = self._parked_joins.pop(member.member_id, None)
            if parked is not None:
                self._answer_join(member, parked, result)
            member.is_new = False
            self._restart_session(member, now_ms)
            self._pending_sync_members[member.member_id] = None
        self._timers.schedule((SYNC, self.group_id, ""), now_ms + self._rebalance_timeout_ms())

    def _become_empty(self, result: Result, now_ms: int) -> None:
        self.protocol_name = None
        self.subscribed_topics = self._compute_subscribed_topics()
        self._move_to(State.EMPTY, now_ms)
        result.records.append(group_record(self.group_id, self.metadata_value()))

    def _select_protocol(self) -> str:
        """The protocol with the most votes among those that all members have."""
        candidates = {
            name: None
            for name, count in self._supported_protocols.items()
            if count == len(self.members)
        }
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members of a consumer group read; None where they are unknown."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: list[str] = []
        for member in self.members.values():
            member_topics = subscribed_topics(member.protocols.get(self.protocol_name, b""))
            if member_topics is None:
                return None
            topics += member_topics
        return frozenset(topics)

    # --- syncing ---------------------------------------------------------------------------------

    def on_sync(
        self, request: SyncGroupRequest, parked: ParkedRequest, result: Result, now_ms: int
    ) -> None:
        """Answer a SyncGroup with the assignment, or park it until the leader has assigned.

        After: the leader's assignments are in the Result as the group's record, and the group is
               Stable.
        """
        code = self._check_sync(request)
        if code is not Code.NONE:
            result.replies.append(Reply(parked.ticket, sync_response(code)))
            return
        member = self.members[request.member_id]
        self._pending_sync_members.pop(member.member_id, None)
        if self.state is State.STABLE:
            self._restart_session(member, now_ms)  # a sign of life, as a heartbeat is
            self._answer_sync(member, parked, result)
            return
        self._refuse_parked_sync(member.member_id, Code.REBALANCE_IN_PROGRESS, result)
        self._parked_syncs[member.member_id] = parked
        if member.member_id != self.leader_id:
            return
        assignments = {row.member_id: row.assignment for row in request.assignments}
        if self._record_bytes(assignments) > self._settings.max_record_bytes:
            # as Apache Kafka answers where the group's record is refused by its log
            for member_id in list(self._parked_syncs):
                self._refuse_parked_sync(member_id, Code.UNKNOWN_SERVER_ERROR, result)
            self._prepare_rebalance(result, now_ms)
        else:
            self._set_assignments(assignments, result, now_ms)

    def is_completed_by(self, request: SyncGroupRequest) -> bool:
        """Whether the request makes the group Stable, with a record of the assignments."""
        return (
            self.state is State.COMPLETING_REBALANCE
            and request.member_id == self.leader_id
            and self._check_sync(request) is Code.NONE
        )

    def _record_bytes(self, assignments: dict[str, bytes] | None = None) -> int:
        """The size of the batch with the group's record.

        Takes:  assignments, those that the group would have; None: those that it has.
        """
        record = group_record(self.group_id, self.metadata_value(assignments))
        return BATCH_OVERHEAD_BYTES + len(record.key) + len(record.value or b"")

    def _check_sync(self, request: SyncGroupRequest) -> Code:
        code = self.check_member(request.member_id, request.group_instance_id)
        if code is not Code.NONE:
            return code
        if request.generation_id != self.generation:
            return Code.ILLEGAL_GENERATION
        for requested, current in (
            (request.protocol_type, self.protocol_type),
            (request.protocol_name, self.protocol_name),
        ):
            if None not in (requested, current) and requested != current:
                return Code.INCONSISTENT_GROUP_PROTOCOL
        return Code.REBALANCE_IN_PROGRESS if self.state is State.PREPARING_REBALANCE else Code.NONE

    def _set_assignments(self, assignments: dict[str, bytes], result: Result, now_ms: int) -> None:
        """Set each member's assignment, empty where the leader named none, and record the group."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._move_to(State.STABLE, now_ms)
        result.records.append(group_record(self.group_id, self.metadata_value()))
        for member in self.members.values():
            parked = self._parked_syncs.pop(member.member_id, None)
            if parked is not None:
                self._answer_sync(member, parked, result)
                self._restart_session(
                    member, now_ms
                )  # it was not restarted while the member waited

    def _reset_assignments(self, result: Result) -> None:
        """Clear the assignments, and let members that wait for one join again."""
        for member in self.members.values():
            member.assignment = b""
            self._refuse_parked_sync(member.member_id, Code.REBALANCE_IN_PROGRESS, result)

    def on_sync_timeout(self, result: Result, now_ms: int) -> None:
        """Remove the members that have not sent SyncGroup in time."""
        if (
            self.state not in (State.COMPLETING_REBALANCE, State.STABLE)
            or not self._pending_sync_members
        ):
            return
        for member_id in list(self._pending_sync_members):
            self._remove_member(member_id, Code.UNKNOWN_MEMBER_ID, result)
        self._prepare_rebalance(result, now_ms)

    # --- staying and members ---------------------------------------------------------------------

    def on_heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Code:
        code = self.check_member(request.member_id, request.group_instance_id)
        if code is not Code.NONE:
            return code
        if request.generation_id != self.generation:
            return Code.ILLEGAL_GENERATION
        self._restart_session(self.members[request.member_id], now_ms)
        return Code.REBALANCE_IN_PROGRESS if self.state is State.PREPARING_REBALANCE else Code.NONE

    def on_commit(self, member_id: str, now_ms: int) -> None:
        """Restart the session of a member that commits offsets, as a heartbeat does."""
        member = self.members.get(member_id)
        if member is not None:
            self._restart_session(member, now_ms)

    def on_leave(
        self, members: Iterable[tuple[str, str | None]], result: Result, now_ms: int
    ) -> list[Code]:
        """Remove each (member_id, group_instance_id).

        An empty member_id stands for the member of that instance.
        """
        codes, member_left = [], False
        for member_id, group_instance_id in members:
            if not member_id and group_instance_id is not None:
                member_id = self._static_members.get(group_instance_id, "")
            is_pending = member_id in self.pending_join_members
            code = Code.NONE if is_pending else self.check_member(member_id, group_instance_id)
            if code is Code.NONE:
                member_left |= self._remove_member(member_id, Code.UNKNOWN_MEMBER_ID, result)
            codes.append(code)
        self._after_departure(member_left, result, now_ms)
        return codes

    def on_session_timeout(self, member_id: str, result: Result, now_ms: int) -> None:
        """Remove a member whose session is over.

        A member with a parked request stays, unless it is new: then its client may be gone.
        """
        member = self.members.get(member_id)
        if (
            member is not None
            and not member.is_new
            and (member_id in self._parked_joins or member_id in self._parked_syncs)
        ):
            return
        member_left = self._remove_member(member_id, Code.UNKNOWN_MEMBER_ID, result)
        self._after_departure(member_left, result, now_ms)

    def _after_departure(self, member_left: bool, result: Result, now_ms: int) -> None:
        """Rebalance after a member was removed.

        While members join, the one that left may have been the last that was missing.
        """
        if self.state is State.PREPARING_REBALANCE:
            self._maybe_complete_join(result, now_ms)
        elif member_left:
            self._prepare_rebalance(result, now_ms)

    def _remove_member(self, member_id: str, code: Code, result: Result) -> bool:
        """Remove a member, or an id that was given out; refuse its parked requests with the code.

        Gives: whether it was a member.
        """
        self._refuse_parked_join(member_id, code, "", result)
        self._refuse_parked_sync(member_id, code, result)
        self._timers.cancel(self._session_key(member_id))
        self.pending_join_members.pop(member_id, None)
        self._pending_sync_members.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return False
        self._count_protocols(member, -1)
        if member.group_instance_id is not None:
            self._static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = None
        return True

    # --- small parts -----------------------------------------------------------------------------

    def _move_to(self, state: State, now_ms: int) -> None:
        assert self.state in LEGAL_PREDECESSORS[state], (
            f"group {self.group_id}: {self.state} to {state}"
        )
        self.state, self.state_since_ms = state, now_ms

    def _add(self, member: Member) -> None:
        self.members[member.member_id] = member
        self.pending_join_members.pop(member.member_id, None)
        self._count_protocols(member, 1)
        if member.group_instance_id is not None:
            self._static_members[member.group_instance_id] = member.member_id

    def _count_protocols(self, member: Member, step: int) -> None:
        for name in member.protocols:
            count = self._supported_protocols.get(name, 0) + step
            if count:
                self._supported_protocols[name] = count
            else:
                del self._supported_protocols[name]

    def _rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max(member.rebalance_timeout_ms for member in self.members.values())

    def _session_key(self, member_id: str) -> TimerKey:
        return (SESSION, self.group_id, member_id)

    def _restart_session(self, member: Member, now_ms: int) -> None:
        self._timers.schedule(
            self._session_key(member.member_id), now_ms + member.session_timeout_ms
        )

    def _refuse(self, join: JoinRequest, code: Code, member_id: str, result: Result) -> None:
        result.replies.append(
            Reply(join.ticket, join_error_response(code, member_id, join.api_version))
        )

    def _refuse_parked_join(
        self, member_id: str, code: Code, response_member_id: str, result: Result
    ) -> None:
        parked = self._parked_joins.pop(member_id, None)
        if parked is not None:
            result.replies.append(
                Reply(
                    parked.ticket, join_error_response(code, response_member_id, parked.api_version)
                )
            )

    def _refuse_parked_sync(self, member_id: str, code: Code, result: Result) -> None:
        parked = self._parked_syncs.pop(member_id, None)
        if parked is not None:
            result.replies.append(Reply(parked.ticket, sync_response(code)))

    def _answer_join(
        self,
        member: Member,
        parked: ParkedRequest,
        result: Result,
        *,
        leader_id: str | None = None,
        with_members: bool = True,
        skip_assignment: bool = False,
    ) -> None:
        """Answer a JoinGroup with the generation; the leader alone gets the list of members."""
        response_members = []
        if with_members and member.member_id == self.leader_id:
            response_members = [
                JoinGroupResponseMember(
                    member_id=other.member_id,
                    group_instance_id=other.group_instance_id,
                    metadata=other.protocols.get(self.protocol_name or "", b""),
                )
                for other in self.members.values()
            ]
        response = JoinGroupResponse(
            error_code=Code.NONE,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name or "",
            leader=leader_id or self.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=response_members,
        )
        result.replies.append(Reply(parked.ticket, response))

    def _answer_sync(self, member: Member, parked: ParkedRequest, result: Result) -> None:
        response = sync_response(
            Code.NONE, self.protocol_type, self.protocol_name, member.assignment
        )
        result.replies.append(Reply(parked.ticket, response))


def join_error_response(code: Code, member_id: str, api_version: int) -> JoinGroupResponse:
    """A JoinGroup answer with an error; the protocol's name may be null from version 7 on."""
    return JoinGroupResponse(
        error_code=code,
        generation_id=NO_GENERATION,
        protocol_type=None,
        protocol_name=None if api_version >= FIRST_VERSION_WITH_NULLABLE_PROTOCOL else "",
        leader="",
        skip_assignment=False,
        member_id=member_id,
        members=[],
    )


def _max_stored_bytes(member_id: str, join: JoinRequest) -> int:
    """The most bytes that the member's ids and metadata take in the group's record."""
    ids = len(member_id.encode()) + len(join.client_id.encode()) + len(join.client_host.encode())
    return ids + max(map(len, join.protocols.values()))


def sync_response(
    code: Code,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
    assignment: bytes = b"",
) -> SyncGroupResponse:
    """A SyncGroup answer; without an assignment where it has an error."""
    return SyncGroupResponse(
        error_code=code,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignment=assignment,
    )
