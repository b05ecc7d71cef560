"""The members of one classic group: their ids, protocols, sessions, and parked requests.

Members are in the order in which they joined. An assigned id (KIP-394) is pending until its member
joins with it. JoinGroup and SyncGroup may be parked: the event that ends the wait puts the replies
into its Result. A parked request is removed only when its reply is made.

Each member, and each pending id, has a timer with the key (SESSION, group, member), which expires
at the end of the session.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.coordinator.groups.classic.classic_answers import (
    JoinRequest,
    ParkedRequest,
    join_error_response,
    sync_response,
)
from barnabas.coordinator.groups.classic.consumer_protocol import subscribed_topics
from barnabas.coordinator.groups.group_timers import SESSION, TimerKey
from barnabas.coordinator.result import Reply, Result
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code

_NONE = Code.NONE  # a module's name is found sooner than the member of an Enum


@dataclass(slots=True)
class Member:
    """One member of a group.

    protocols: the metadata by protocol name, with the preferred protocol first. is_new: whether its
    first JoinGroup is not answered yet.
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
        """Whether the member has these protocols, in this order."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: dict[str, None]) -> str:
        """The protocol among the candidates that this member prefers."""
        return next(name for name in self.protocols if name in candidates)


class GroupMembers:
    """The members of one classic group.

    by_id: the members. leader_id: the member that computes the assignment; None before an election.
    pending_ids: ids that were assigned to members that have not joined yet. parked_joins,
    parked_syncs: the parked requests, by member.
    """

    __slots__ = (
        "_static_ids", "_supported_protocols", "by_id", "group_id", "leader_id", "parked_joins",
        "parked_syncs", "pending_ids", "timers",
    )  # fmt: skip

    def __init__(self, group_id: str, timers: Timers[TimerKey]) -> None:
        self.by_id: dict[str, Member] = {}
        self.leader_id: str | None = None
        self.pending_ids: dict[str, None] = {}
        self.parked_joins: dict[str, ParkedRequest] = {}
        self.parked_syncs: dict[str, ParkedRequest] = {}
        self.group_id, self.timers = group_id, timers
        self._static_ids: dict[str, str] = {}  # member id by group_instance_id
        # the number of members that support each protocol
        self._supported_protocols: dict[str, int] = {}

    # --- ids -------------------------------------------------------------------------------------

    def check(self, member_id: str, group_instance_id: str | None) -> Code:
        """The error code for a request with these ids; NONE if they are the current ids of a
        member.
        """
        if group_instance_id is not None:
            current_id = self._static_ids.get(group_instance_id)
            if current_id is None:
                return Code.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return Code.FENCED_INSTANCE_ID
        return _NONE if member_id in self.by_id else Code.UNKNOWN_MEMBER_ID

    def id_of_instance(self, group_instance_id: str) -> str | None:
        """The member id of a static member; None if the instance has not joined."""
        return self._static_ids.get(group_instance_id)

    def add(self, member: Member) -> None:
        """Add a member at the end of the order."""
        self.by_id[member.member_id] = member
        self.pending_ids.pop(member.member_id, None)
        self._count_protocols(member, 1)
        if member.group_instance_id is not None:
            self._static_ids[member.group_instance_id] = member.member_id

    def remove(self, member_id: str, code: Code, result: Result) -> bool:
        """Remove a member or a pending id, and refuse its parked requests with the code.

        Gives: whether it was a member.
        """
        self.refuse_join(member_id, code, "", result)
        self.refuse_sync(member_id, code, result)
        self.end_session(member_id)
        self.pending_ids.pop(member_id, None)
        member = self.by_id.pop(member_id, None)
        if member is None:
            return False
        self._count_protocols(member, -1)
        if member.group_instance_id is not None:
            self._static_ids.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = None
        return True

    def replace_id(
        self, former_id: str, member_id: str, join: JoinRequest, result: Result
    ) -> Member:
        """Give a static member a new id. The member keeps its place in the order.

        The parked requests of the former id are answered with FENCED_INSTANCE_ID.
        """
        self.refuse_join(former_id, Code.FENCED_INSTANCE_ID, former_id, result)
        self.refuse_sync(former_id, Code.FENCED_INSTANCE_ID, result)
        self.end_session(former_id)
        member = self.by_id[former_id]
        member.member_id, member.client_id, member.client_host = (
            member_id,
            join.client_id,
            join.client_host,
        )
        member.is_new = False
        self.by_id = {other.member_id: other for other in self.by_id.values()}
        assert member.group_instance_id is not None
        self._static_ids[member.group_instance_id] = member_id
        if self.leader_id == former_id:
            self.leader_id = member_id
        return member

    def elect_leader(self) -> bool:
        """Elect the first member that has joined as the leader, unless the current leader has
        joined.

        Gives:  False if no member has joined.
        """
        if self.leader_id not in self.parked_joins:
            selected = next(
                (member_id for member_id in self.by_id if member_id in self.parked_joins), None
            )
            if selected is None:
                return False
            self.leader_id = selected
        return True

    def have_all_joined(self) -> bool:
        """Whether the JoinGroup of every member is parked, and no id is pending."""
        return len(self.parked_joins) == len(self.by_id) and not self.pending_ids

    # --- protocols -------------------------------------------------------------------------------

    def set_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        """Replace the protocols of a member."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def have_any_of(self, protocols: dict[str, bytes]) -> bool:
        """Whether all members support at least one of the protocols."""
        return any(self._supported_protocols.get(name) == len(self.by_id) for name in protocols)

    def select_protocol(self) -> str:
        """The protocol that most members prefer, among those that all members support. If several
        protocols have the same number of votes, the protocol that was voted for first is selected.
        """
        candidates = {
            name: None
            for name, count in self._supported_protocols.items()
            if count == len(self.by_id)
        }
        votes: dict[str, int] = {}
        for member in self.by_id.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def topics_of_consumers(self, protocol_name: str | None) -> frozenset[str] | None:
        """The topics that the members of a group of consumers read; None if the topics are
        unknown.
        """
        if not self.by_id:
            return frozenset()
        if protocol_name is None:
            return None
        topics: list[str] = []
        for member in self.by_id.values():
            member_topics = subscribed_topics(member.protocols.get(protocol_name, b""))
            if member_topics is None:
                return None
            topics += member_topics
        return frozenset(topics)

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max(member.rebalance_timeout_ms for member in self.by_id.values())

    def _count_protocols(self, member: Member, step: int) -> None:
        """Count the protocols of a member that is added (step 1) or removed (step -1)."""
        for name in member.protocols:
            count = self._supported_protocols.get(name, 0) + step
            if count:
                self._supported_protocols[name] = count
            else:
                del self._supported_protocols[name]

    # --- sessions --------------------------------------------------------------------------------

    def restart_session(self, member: Member, now_ms: int) -> None:
        """Schedule the end of the member's session for one session timeout from now."""
        self.timers.schedule(
            (SESSION, self.group_id, member.member_id), now_ms + member.session_timeout_ms
        )

    def set_session_end(self, member_id: str, deadline_ms: int) -> None:
        """Set when the session of a pending id or of a new member ends."""
        self.timers.schedule((SESSION, self.group_id, member_id), deadline_ms)

    def end_session(self, member_id: str) -> None:
        """End the session of a member or of a pending id: cancel its timer."""
        self.timers.cancel((SESSION, self.group_id, member_id))

    # --- parked requests -------------------------------------------------------------------------

    def is_waiting(self, member_id: str) -> bool:
        """Whether a request of the member is parked."""
        return member_id in self.parked_joins or member_id in self.parked_syncs

    def refuse_join(
        self, member_id: str, code: Code, response_member_id: str, result: Result
    ) -> None:
        """If a JoinGroup of the member is parked, answer it with the code."""
        parked = self.parked_joins.pop(member_id, None)
        if parked is not None:
            response = join_error_response(code, response_member_id, parked.api_version)
            result.replies.append(Reply(parked.ticket, response))

    def refuse_sync(self, member_id: str, code: Code, result: Result) -> None:
        """If a SyncGroup of the member is parked, answer it with the code."""
        parked = self.parked_syncs.pop(member_id, None)
        if parked is not None:
            result.replies.append(Reply(parked.ticket, sync_response(code)))
