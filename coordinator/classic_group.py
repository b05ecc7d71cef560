"""One group of the classic protocol: who is in it, and the rebalance that gives its members their
assignments.

The machine is soft state. What outlives the broker is the group's record, written when the leader
has assigned, when the last member is gone, and when a static member comes back under a new id;
`ClassicGroup.restored` builds the machine from it. A generation that was begun and never assigned
is therefore begun again after a restart, with the same number and, since nobody was given it,
without harm.

JoinGroup and SyncGroup may wait: their tickets stand in `_joining` and `_syncing`, and the event
that ends the wait puts the replies into its Result. A ticket leaves these tables with its reply and
in no other way.

Timers, keyed (kind, group, member): SESSION of each member and of each id that was given out but
has not joined; JOIN ends the wait for members to join again; SYNC ends the wait for their
SyncGroup.

Source: KIP-134 (initial delay), KIP-345 (static members), KIP-394 (ids first), KIP-559 (protocol in
answers), KIP-389 (group.max.size), KIP-814 (skip_assignment); Apache Kafka 3.9's behaviour where
these are silent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordinator.group_records import StoredGroup, StoredMember, group_record
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

TimerKey = tuple[str, str, str]
SESSION, JOIN, SYNC, RETENTION = "session", "join", "sync", "retention"

CONSUMER_PROTOCOL_TYPE = "consumer"
MOST_PROTOCOLS = 1000  # of a member
BATCH_BYTES = (
    61 + 32
)  # of a batch of one record: its header, and at the most the record's own lengths, time and offset
NO_GENERATION = -1
FIRST_VERSION_WITH_KNOWN_MEMBER_ID = 4
FIRST_VERSION_WITH_NULLABLE_PROTOCOL = 7
FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


class State(Enum):
    """Where a group stands; the value is its name in ListGroups and DescribeGroups.

    Each docstring lists the answers to a known member in the current generation; others are told
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION in every state.
    """

    EMPTY = "Empty"
    """No members. Join: begins the first rebalance. Commits without member and generation: taken.
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for members to join. Join: waits. Sync, Heartbeat: REBALANCE_IN_PROGRESS. OffsetCommit:
    taken, for the former generation.
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's assignments. Join: the same answer again, or a rebalance if changed.
    Sync: waits; the leader's ends the wait.

    Heartbeat: NONE. OffsetCommit: REBALANCE_IN_PROGRESS.
    """

    STABLE = "Stable"
    """All have their assignments. Join: a rebalance for the leader and for changed members, else
    the same answer. Sync: the assignment.

    Heartbeat: NONE. OffsetCommit: taken.
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
    """What the broker's configuration says of groups; Kafka's property names in the comments."""

    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 0  # group.initial.rebalance.delay.ms
    max_size: int = 2**31 - 1  # group.max.size
    new_member_join_timeout_ms: int = (
        300_000  # no property: how long a JoinGroup of a new member may wait
    )
    offset_metadata_max_size: int = 4_096  # offset.metadata.max.bytes
    max_record_bytes: int = (
        1_048_588  # message.max.bytes, as the topic of the group's record has it
    )
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms


class Join(NamedTuple):
    """A JoinGroup request, its bytes copied."""

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


class Waiting(NamedTuple):
    """A request that is parked."""

    ticket: int
    api_version: int


@dataclass(slots=True)
class Member:
    """One member. `protocols`: name to metadata, most wanted first. `is_new`: its first JoinGroup
    is not answered yet.
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

    def is_unchanged(self, protocols: dict[str, bytes]) -> bool:
        """Whether it joins again with the same protocols in the same order."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: dict[str, None]) -> str:
        """Its first protocol among the candidates."""
        return next(name for name in self.protocols if name in candidates)


class ClassicGroup:
    """The members of one group and its state.

    Order of members is that in which they joined; votes that are even go to the protocol that was
    voted for first. The first member leads; when it goes, the next in order that has joined does.
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
        self.state_since_ms: int | None = (
            None  # by the steady time; None for a group without a record that knows it
        )
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.pending_members: dict[str, None] = {}
        self.subscribed_topics: frozenset[str] | None = None
        self._settings, self._timers, self._new_member_suffix, self._wall = (
            settings,
            timers,
            new_member_suffix,
            wall,
        )
        self._static_members: dict[str, str] = {}
        self._support: dict[str, int] = {}  # how many members know each protocol
        self._joining: dict[str, Waiting] = {}
        self._syncing: dict[str, Waiting] = {}
        self._not_synced: dict[str, None] = {}
        self._is_initial = False  # the rebalance under way began in EMPTY
        self._member_was_added = False
        self._initial_delay_ms = self._initial_remaining_ms = 0

    @classmethod
    def restored(
        cls,
        group_id: str,
        stored: StoredGroup,
        settings: GroupSettings,
        timers: Timers[TimerKey],
        new_member_suffix: Callable[[], str],
        wall: WallClock,
        now_ms: int,
    ) -> ClassicGroup:
        """The group as its record left it: Stable with the stored members, whose sessions begin
        now, or Empty.
        """
        group = cls(group_id, settings, timers, new_member_suffix, wall)
        group.state = State.STABLE if stored.members else State.EMPTY
        group.state_since_ms = (
            wall.since_ms(stored.state_timestamp_ms) if stored.state_timestamp_ms >= 0 else None
        )
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol_name if stored.members else None
        for kept in stored.members:
            member = Member(
                kept.member_id,
                kept.group_instance_id,
                kept.client_id,
                kept.client_host,
                kept.session_timeout_ms,
                kept.rebalance_timeout_ms,
                {stored.protocol_name or "": kept.subscription},
                kept.assignment,
            )
            group._add(member)
            group._restart_session(member, now_ms)
        if stored.leader_id in group.members:
            group.leader_id = stored.leader_id
        group.subscribed_topics = group._compute_subscribed_topics()
        return group

    def maybe_shrink(self, result: Result, now_ms: int) -> bool:
        """Rebalance a restored group that is larger than the configuration now allows."""
        if len(self.members) <= self._settings.max_size:
            return False
        self._prepare_rebalance(result, now_ms)
        return True

    def dismiss_members(self, result: Result, now_ms: int) -> None:
        """All members of a restored group have to join again, which is what begins their next
        generation.
        """
        for member_id in list(self.members):
            self._forget(member_id, Code.UNKNOWN_MEMBER_ID, result)
        self._after_departure(True, result, now_ms)

    # --- what others ask -------------------------------------------------------------------------

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether its members read the topic; where their subscriptions cannot be read, all topics
        of a consumer group count as read.
        """
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def check_member(self, member_id: str, group_instance_id: str | None) -> Code:
        """NONE for a member under its present id, else what it is to be told."""
        if group_instance_id is not None:
            known_id = self._static_members.get(group_instance_id)
            if known_id is None:
                return Code.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return Code.FENCED_INSTANCE_ID
        return Code.NONE if member_id in self.members else Code.UNKNOWN_MEMBER_ID

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, *, transactional: bool
    ) -> Code:
        """Whether the sender may commit offsets. Source: KIP-447 for those inside transactions."""
        if generation < 0 and self.state is State.EMPTY:
            return Code.NONE
        if generation >= 0 or member_id or group_instance_id is not None:
            code = self.check_member(member_id, group_instance_id)
            if code is not Code.NONE:
                return code
            if generation != self.generation:
                return Code.ILLEGAL_GENERATION
        elif not transactional and self.state is not State.EMPTY:
            return Code.UNKNOWN_MEMBER_ID
        if not transactional and self.state is State.COMPLETING_REBALANCE:
            return Code.REBALANCE_IN_PROGRESS
        return Code.NONE

    def check_offset_delete(self) -> Code:
        """Whether offsets may be deleted: of a group whose members' topics are known, or of one
        without members.
        """
        if self.state is State.EMPTY or self.uses_consumer_protocol:
            return Code.NONE
        return Code.NON_EMPTY_GROUP

    def described(self) -> DescribedGroup:
        """As DescribeGroups tells of it; assignments of a former generation stay in sight until
        there are new ones.
        """
        chosen = self.protocol_name if self.state is State.STABLE else None
        return DescribedGroup(
            error_code=Code.NONE,
            error_message=None,
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=chosen or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if chosen is None else member.protocols.get(chosen, b""),
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    def stored(self, assignments: dict[str, bytes] | None = None) -> StoredGroup:
        """The group as it is to be recorded; or as it would be with these assignments."""
        return StoredGroup(
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.leader_id,
            -1 if self.state_since_ms is None else self._wall.at(self.state_since_ms),
            tuple(
                StoredMember(
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

    def on_join(self, join: Join, result: Result, now_ms: int) -> None:
        """Answer, or park until the rebalance has all members or its time is over."""
        if not self._has_room_for(join.member_id):
            self._forget(join.member_id, Code.GROUP_MAX_SIZE_REACHED, result)
            self._refuse(join, Code.GROUP_MAX_SIZE_REACHED, "", result)
            self._maybe_complete_join(result, now_ms)
        elif not self._supports(join):
            self._refuse(join, Code.INCONSISTENT_GROUP_PROTOCOL, join.member_id, result)
        elif join.member_id:
            self._join_known(join, result, now_ms)
        elif join.group_instance_id is not None:
            self._join_new_static(join, join.group_instance_id, result, now_ms)
        else:
            self._join_new_dynamic(join, result, now_ms)

    def _join_new_dynamic(self, join: Join, result: Result, now_ms: int) -> None:
        member_id = f"{join.client_id}-{self._new_member_suffix()}"
        if join.api_version < FIRST_VERSION_WITH_KNOWN_MEMBER_ID:
            self._join_first(member_id, join, result, now_ms)
            return
        self.pending_members[member_id] = None
        self._timers.schedule(self._session_key(member_id), now_ms + join.session_timeout_ms)
        self._refuse(join, Code.MEMBER_ID_REQUIRED, member_id, result)

    def _join_new_static(
        self, join: Join, group_instance_id: str, result: Result, now_ms: int
    ) -> None:
        member_id = f"{group_instance_id}-{self._new_member_suffix()}"
        former_id = self._static_members.get(group_instance_id)
        if former_id is None:
            self._join_first(member_id, join, result, now_ms)
        else:
            self._replace_static(former_id, member_id, join, result, now_ms)

    def _join_first(self, member_id: str, join: Join, result: Result, now_ms: int) -> None:
        """Take in a member that was none. It cannot beat before it knows its id, so its wait alone
        has a time limit.
        """
        if not self.members:
            self.protocol_type = join.protocol_type
        if self.state is State.PREPARING_REBALANCE and self._is_initial:
            self._member_was_added = True
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
        self._joining[member_id] = Waiting(join.ticket, join.api_version)
        self._timers.schedule(
            self._session_key(member_id), now_ms + self._settings.new_member_join_timeout_ms
        )
        self._rebalance_or_complete(result, now_ms)

    def _join_known(self, join: Join, result: Result, now_ms: int) -> None:
        if join.member_id in self.pending_members and join.group_instance_id is None:
            self._join_first(join.member_id, join, result, now_ms)
            return
        code = self.check_member(join.member_id, join.group_instance_id)
        if code is not Code.NONE:
            self._refuse(join, code, join.member_id, result)
            return
        member = self.members[join.member_id]
        if self._answers_as_before(member, join):
            self._answer_join(member, Waiting(join.ticket, join.api_version), result)
        else:
            self._join_again(member, join, result)
            self._rebalance_or_complete(result, now_ms)

    def _answers_as_before(self, member: Member, join: Join) -> bool:
        """Whether the request only repeats one that was answered; the leader of a stable group asks
        for a rebalance by joining.
        """
        if self.state is State.COMPLETING_REBALANCE:
            return member.is_unchanged(join.protocols)
        return (
            self.state is State.STABLE
            and member.member_id != self.leader_id
            and member.is_unchanged(join.protocols)
        )

    def _join_again(self, member: Member, join: Join, result: Result) -> None:
        self._count_support(member, -1)
        member.protocols = join.protocols
        member.session_timeout_ms, member.rebalance_timeout_ms = (
            join.session_timeout_ms,
            join.rebalance_timeout_ms,
        )
        self._count_support(member, 1)
        self._end_join_wait(member.member_id, Code.REBALANCE_IN_PROGRESS, member.member_id, result)
        self._joining[member.member_id] = Waiting(join.ticket, join.api_version)

    def _replace_static(
        self, former_id: str, member_id: str, join: Join, result: Result, now_ms: int
    ) -> None:
        """A static member has come back: it takes the place of its former self, which is fenced.

        In a stable group that keeps its protocol there is no rebalance; the member finds its
        assignment with SyncGroup. Where the leader comes back like this, versions before 9 tell it
        of its former id as the leader, lest it assign again; later ones have a field for that.
        """
        former_leader_id = self.leader_id
        if (
            self.state is State.STABLE
            and self._record_bytes() + _stored_bytes(member_id, join)
            > self._settings.max_record_bytes
        ):
            self._refuse(join, Code.UNKNOWN_SERVER_ERROR, join.member_id, result)
            return
        member = self._rename(former_id, member_id, join, result)
        self._restart_session(member, now_ms)
        self._join_again(member, join, result)
        if self.state is not State.STABLE:
            self._rebalance_or_complete(result, now_ms)
        elif self._choose_protocol() != self.protocol_name:
            self._prepare_rebalance(result, now_ms)
        else:
            result.records.append(group_record(self.group_id, self.stored()))
            waiting = self._joining.pop(member_id)
            if join.api_version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT:
                self._answer_join(
                    member, waiting, result, skip_assignment=member_id == self.leader_id
                )
            else:
                self._answer_join(
                    member, waiting, result, leader_id=former_leader_id, with_members=False
                )

    def _rename(self, former_id: str, member_id: str, join: Join, result: Result) -> Member:
        """Give a static member its new id, in its place in the order; requests of the former one
        that wait are fenced.
        """
        self._end_join_wait(former_id, Code.FENCED_INSTANCE_ID, former_id, result)
        self._end_sync_wait(former_id, Code.FENCED_INSTANCE_ID, result)
        self._timers.cancel(self._session_key(former_id))
        self._not_synced.pop(former_id, None)
        member = self.members[former_id]
        member.member_id, member.client_id, member.client_host = (
            member_id,
            join.client_id,
            join.client_host,
        )
        member.is_new = False
        self.members = {one.member_id: one for one in self.members.values()}
        assert member.group_instance_id is not None
        self._static_members[member.group_instance_id] = member_id
        if self.leader_id == former_id:
            self.leader_id = member_id
        return member

    def _has_room_for(self, member_id: str) -> bool:
        """While members join, those that did count, so that a group that is too large loses its
        last ones.
        """
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING_REBALANCE:
            return member_id in self._joining or len(self._joining) < self._settings.max_size
        return member_id in self.members or len(self.members) < self._settings.max_size

    def _supports(self, join: Join) -> bool:
        """Whether the request has the group's protocol type and a protocol that all members know."""
        if not join.protocol_type or not join.protocols:
            return False
        if not self.members:
            return True
        if join.protocol_type != self.protocol_type:
            return False
        return any(self._support.get(name) == len(self.members) for name in join.protocols)

    # --- the rebalance ---------------------------------------------------------------------------

    def _rebalance_or_complete(self, result: Result, now_ms: int) -> None:
        if self.state is State.PREPARING_REBALANCE:
            self._maybe_complete_join(result, now_ms)
        else:
            self._prepare_rebalance(result, now_ms)

    def _prepare_rebalance(self, result: Result, now_ms: int) -> None:
        """Have all members join again; the first rebalance of a group waits for more of them, as
        configured.
        """
        if self.state is State.COMPLETING_REBALANCE:
            self._drop_assignments(result)
        self._timers.cancel((SYNC, self.group_id, ""))
        self._is_initial = self.state is State.EMPTY
        self._move_to(State.PREPARING_REBALANCE, now_ms)
        if not self.members:
            self._complete_join(result, now_ms)
        elif not self._is_initial:
            if not self._maybe_complete_join(result, now_ms):
                self._timers.schedule(
                    (JOIN, self.group_id, ""), now_ms + self._rebalance_timeout_ms()
                )
        elif self._settings.initial_rebalance_delay_ms > 0:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._member_was_added = False
            self._initial_delay_ms = delay_ms
            self._initial_remaining_ms = max(self._rebalance_timeout_ms() - delay_ms, 0)
            self._timers.schedule((JOIN, self.group_id, ""), now_ms + delay_ms)
        else:
            self._complete_join(result, now_ms)

    def on_join_timeout(self, result: Result, now_ms: int) -> None:
        """The wait for members is over; the first rebalance is put off further while more of them
        come.
        """
        if self.state is not State.PREPARING_REBALANCE:
            return
        if not (self._is_initial and self._member_was_added and self._initial_remaining_ms > 0):
            self._complete_join(result, now_ms)
            return
        self._member_was_added = False
        delay_ms = min(self._settings.initial_rebalance_delay_ms, self._initial_remaining_ms)
        self._initial_remaining_ms = max(self._initial_remaining_ms - self._initial_delay_ms, 0)
        self._initial_delay_ms = delay_ms
        self._timers.schedule((JOIN, self.group_id, ""), now_ms + delay_ms)

    def _maybe_complete_join(self, result: Result, now_ms: int) -> bool:
        """End the wait early where nobody is missing: neither a member nor somebody who was given
        an id.
        """
        if self.state is not State.PREPARING_REBALANCE or self._is_initial:
            return False
        if len(self._joining) < len(self.members) or self.pending_members:
            return False
        self._complete_join(result, now_ms)
        return True

    def _complete_join(self, result: Result, now_ms: int) -> None:
        """Begin the next generation with those that joined; static members stay in it without
        joining.
        """
        self._timers.cancel((JOIN, self.group_id, ""))
        for member in list(self.members.values()):
            if member.member_id not in self._joining and member.group_instance_id is None:
                self._forget(member.member_id, Code.UNKNOWN_MEMBER_ID, result)
        if self.members and not self._maybe_elect_leader():
            self._timers.schedule((JOIN, self.group_id, ""), now_ms + self._rebalance_timeout_ms())
            return
        self.generation += 1
        self._is_initial = False
        self._not_synced.clear()
        if self.members:
            self._begin_generation(result, now_ms)
        else:
            self._become_empty(result, now_ms)

    def _maybe_elect_leader(self) -> bool:
        """Whether the leader has joined, or another that has could be chosen."""
        if self.leader_id not in self._joining:
            chosen = next(
                (member_id for member_id in self.members if member_id in self._joining), None
            )
            if chosen is None:
                return False
            self.leader_id = chosen
        return True

    def _begin_generation(self, result: Result, now_ms: int) -> None:
        self.protocol_name = self._choose_protocol()
        self.subscribed_topics = self._compute_subscribed_topics()
        self._move_to(State.COMPLETING_REBALANCE, now_ms)
        for member in self.members.values():
            waiting = self._joining.pop(member.member_id, None)
            if waiting is not None:
                self._answer_join(member, waiting, result)
            member.is_new = False
            self._restart_session(member, now_ms)
            self._not_synced[member.member_id] = None
        self._timers.schedule((SYNC, self.group_id, ""), now_ms + self._rebalance_timeout_ms())

    def _become_empty(self, result: Result, now_ms: int) -> None:
        self.protocol_name = None
        self.subscribed_topics = self._compute_subscribed_topics()
        self._move_to(State.EMPTY, now_ms)
        result.records.append(group_record(self.group_id, self.stored()))

    def _choose_protocol(self) -> str:
        """The protocol with the most votes among those that all members know."""
        candidates = {
            name: None for name, count in self._support.items() if count == len(self.members)
        }
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members of a consumer group read; None where that cannot be told."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: list[str] = []
        for member in self.members.values():
            read = subscribed_topics(member.protocols.get(self.protocol_name, b""))
            if read is None:
                return None
            topics += read
        return frozenset(topics)

    # --- syncing ---------------------------------------------------------------------------------

    def on_sync(
        self, request: SyncGroupRequest, waiting: Waiting, result: Result, now_ms: int
    ) -> None:
        """Answer with the assignment, or park until the leader has assigned.

        After: the leader's assignments are in the Result as the group's record, and the group is
               Stable.
        """
        code = self._check_sync(request)
        if code is not Code.NONE:
            result.replies.append(Reply(waiting.ticket, sync_response(code)))
            return
        member = self.members[request.member_id]
        self._not_synced.pop(member.member_id, None)
        if not self._not_synced:
            self._timers.cancel((SYNC, self.group_id, ""))
        if self.state is State.STABLE:
            self._restart_session(member, now_ms)  # a sign of life, as a heartbeat is
            self._answer_sync(member, waiting, result)
            return
        self._end_sync_wait(member.member_id, Code.REBALANCE_IN_PROGRESS, result)
        self._syncing[member.member_id] = waiting
        if member.member_id != self.leader_id:
            return
        assignments = {one.member_id: one.assignment for one in request.assignments}
        if self._record_bytes(assignments) > self._settings.max_record_bytes:
            for member_id in list(
                self._syncing
            ):  # as Apache Kafka answers where the group's record is refused by its log
                self._end_sync_wait(member_id, Code.UNKNOWN_SERVER_ERROR, result)
            self._prepare_rebalance(result, now_ms)
        else:
            self._assign(assignments, result, now_ms)

    def _record_bytes(self, assignments: dict[str, bytes] | None = None) -> int:
        """The size of the batch with the group's record, as the group is now or would be with these
        assignments.
        """
        record = group_record(self.group_id, self.stored(assignments))
        return BATCH_BYTES + len(record.key) + len(record.value or b"")

    def _check_sync(self, request: SyncGroupRequest) -> Code:
        code = self.check_member(request.member_id, request.group_instance_id)
        if code is not Code.NONE:
            return code
        if request.generation_id != self.generation:
            return Code.ILLEGAL_GENERATION
        for told, own in (
            (request.protocol_type, self.protocol_type),
            (request.protocol_name, self.protocol_name),
        ):
            if told is not None and own is not None and told != own:
                return Code.INCONSISTENT_GROUP_PROTOCOL
        return Code.REBALANCE_IN_PROGRESS if self.state is State.PREPARING_REBALANCE else Code.NONE

    def _assign(self, assignments: dict[str, bytes], result: Result, now_ms: int) -> None:
        """Give each member what the leader assigned to it, nothing where it was left out, and have
        that recorded.
        """
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._move_to(State.STABLE, now_ms)
        result.records.append(group_record(self.group_id, self.stored()))
        for member in self.members.values():
            waiting = self._syncing.pop(member.member_id, None)
            if waiting is not None:
                self._answer_sync(member, waiting, result)
                self._restart_session(member, now_ms)  # it did not run on while the member waited

    def _drop_assignments(self, result: Result) -> None:
        """A rebalance begins before the last one was done: those that wait for an assignment are
        told to join again.
        """
        for member in self.members.values():
            member.assignment = b""
            self._end_sync_wait(member.member_id, Code.REBALANCE_IN_PROGRESS, result)

    def on_sync_timeout(self, result: Result, now_ms: int) -> None:
        """Members that did not ask for their assignment in time are thrown out."""
        if self.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not self._not_synced:
            return
        for member_id in list(self._not_synced):
            self._forget(member_id, Code.UNKNOWN_MEMBER_ID, result)
        self._prepare_rebalance(result, now_ms)

    # --- staying and leaving ---------------------------------------------------------------------

    def on_heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Code:
        code = self.check_member(request.member_id, request.group_instance_id)
        if code is not Code.NONE:
            return code
        if request.generation_id != self.generation:
            return Code.ILLEGAL_GENERATION
        self._restart_session(self.members[request.member_id], now_ms)
        return Code.REBALANCE_IN_PROGRESS if self.state is State.PREPARING_REBALANCE else Code.NONE

    def on_commit(self, member_id: str, now_ms: int) -> None:
        """A commit is a sign of life, as a heartbeat is."""
        member = self.members.get(member_id)
        if member is not None and self.state in (State.STABLE, State.PREPARING_REBALANCE):
            self._restart_session(member, now_ms)

    def on_leave(
        self, leaving: Iterable[tuple[str, str | None]], result: Result, now_ms: int
    ) -> list[Code]:
        """Each (member_id, group_instance_id) leaves; an empty id stands for whoever is there under
        that instance's name.
        """
        codes, member_left = [], False
        for member_id, group_instance_id in leaving:
            if not member_id and group_instance_id is not None:
                member_id = self._static_members.get(group_instance_id, "")
            is_pending = member_id in self.pending_members
            code = Code.NONE if is_pending else self.check_member(member_id, group_instance_id)
            if code is Code.NONE:
                member_left |= self._forget(member_id, Code.UNKNOWN_MEMBER_ID, result)
            codes.append(code)
        self._after_departure(member_left, result, now_ms)
        return codes

    def on_session_timeout(self, member_id: str, result: Result, now_ms: int) -> None:
        """The member was silent for too long. One whose request waits here is not; unless it is new
        and its client may be gone.
        """
        member = self.members.get(member_id)
        if (
            member is not None
            and not member.is_new
            and (member_id in self._joining or member_id in self._syncing)
        ):
            return
        member_left = self._forget(member_id, Code.UNKNOWN_MEMBER_ID, result)
        self._after_departure(member_left, result, now_ms)

    def _after_departure(self, member_left: bool, result: Result, now_ms: int) -> None:
        """A rebalance where a member has gone; where members join, whoever has gone may have been
        the last to wait for.
        """
        if self.state is State.PREPARING_REBALANCE:
            self._maybe_complete_join(result, now_ms)
        elif member_left:
            self._prepare_rebalance(result, now_ms)

    def _forget(self, member_id: str, code: Code, result: Result) -> bool:
        """Take a member, or an id that was given out, out of the group; requests of it that wait
        are answered with the code.

        Gives: whether it was a member.
        """
        self._end_join_wait(member_id, code, "", result)
        self._end_sync_wait(member_id, code, result)
        self._timers.cancel(self._session_key(member_id))
        self.pending_members.pop(member_id, None)
        self._not_synced.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return False
        self._count_support(member, -1)
        if member.group_instance_id is not None:
            self._static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return True

    # --- small parts -----------------------------------------------------------------------------

    def _move_to(self, state: State, now_ms: int) -> None:
        assert self.state in LEGAL_PREDECESSORS[state], (
            f"group {self.group_id}: {self.state} to {state}"
        )
        self.state, self.state_since_ms = state, now_ms

    def _add(self, member: Member) -> None:
        self.members[member.member_id] = member
        self.pending_members.pop(member.member_id, None)
        self._count_support(member, 1)
        if member.group_instance_id is not None:
            self._static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def _count_support(self, member: Member, step: int) -> None:
        for name in member.protocols:
            count = self._support.get(name, 0) + step
            if count:
                self._support[name] = count
            else:
                del self._support[name]

    def _rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _session_key(self, member_id: str) -> TimerKey:
        return (SESSION, self.group_id, member_id)

    def _restart_session(self, member: Member, now_ms: int) -> None:
        self._timers.schedule(
            self._session_key(member.member_id), now_ms + member.session_timeout_ms
        )

    def _refuse(self, join: Join, code: Code, member_id: str, result: Result) -> None:
        result.replies.append(Reply(join.ticket, refused_join(code, member_id, join.api_version)))

    def _end_join_wait(
        self, member_id: str, code: Code, told_member_id: str, result: Result
    ) -> None:
        waiting = self._joining.pop(member_id, None)
        if waiting is not None:
            result.replies.append(
                Reply(waiting.ticket, refused_join(code, told_member_id, waiting.api_version))
            )

    def _end_sync_wait(self, member_id: str, code: Code, result: Result) -> None:
        waiting = self._syncing.pop(member_id, None)
        if waiting is not None:
            result.replies.append(Reply(waiting.ticket, sync_response(code)))

    def _answer_join(
        self,
        member: Member,
        waiting: Waiting,
        result: Result,
        *,
        leader_id: str | None = None,
        with_members: bool = True,
        skip_assignment: bool = False,
    ) -> None:
        """Tell a member of the generation; the leader alone is told of the others."""
        told_members = []
        if with_members and member.member_id == self.leader_id:
            told_members = [
                JoinGroupResponseMember(
                    member_id=one.member_id,
                    group_instance_id=one.group_instance_id,
                    metadata=one.protocols.get(self.protocol_name or "", b""),
                )
                for one in self.members.values()
            ]
        response = JoinGroupResponse(
            error_code=Code.NONE,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name or "",
            leader=leader_id or self.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=told_members,
        )
        result.replies.append(Reply(waiting.ticket, response))

    def _answer_sync(self, member: Member, waiting: Waiting, result: Result) -> None:
        response = sync_response(
            Code.NONE, self.protocol_type, self.protocol_name, member.assignment
        )
        result.replies.append(Reply(waiting.ticket, response))


def refused_join(code: Code, member_id: str, api_version: int) -> JoinGroupResponse:
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


def _stored_bytes(member_id: str, join: Join) -> int:
    """At the most so much do the member's ids and its metadata take in the group's record."""
    ids = len(member_id.encode()) + len(join.client_id.encode()) + len(join.client_host.encode())
    return ids + max(map(len, join.protocols.values()), default=0)


def sync_response(
    code: Code,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
    assignment: bytes = b"",
) -> SyncGroupResponse:
    """A SyncGroup answer; of a refusal by default."""
    return SyncGroupResponse(
        error_code=code,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignment=assignment,
    )


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics of a consumer's subscription, None where the bytes are none.

    All versions begin with version 0: version int16, topics as an int32 count of int16-sized
    strings, user_data int32-sized bytes.
    """
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or count < 0:
            return None
        topics, at = [], 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, at)
            at += 2 + size
            if size < 0 or at > len(metadata):
                return None
            topics.append(metadata[at - size : at].decode())
        (size,) = struct.unpack_from(">i", metadata, at)
    except (struct.error, UnicodeDecodeError):
        return None
    return topics if at + 4 + size <= len(metadata) else None
