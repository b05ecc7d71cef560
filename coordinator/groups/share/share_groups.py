"""Handles the members of share groups (KIP-932): their heartbeats, with which they join, stay and
leave, and their sessions.

The steps of a heartbeat are: the request is checked; the group and the member are found or created;
then the steps of `ShareGroupChange` follow. A member gets its target assignment immediately. No
revocation has to come first, since several members may have the same partition.

A timer with the key (SESSION, group, member) removes a member at the end of its session.

Source: KIP-932; Apache Kafka 4.3's responses where the KIP does not specify them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from barnabas.coordinator.descriptions import InSlices, members_in_slices
from barnabas.coordinator.groups import group_timers as timers_of
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_machine import GroupMachine
from barnabas.coordinator.groups.group_timers import TimerKey
from barnabas.coordinator.groups.share.share_group import ShareGroup
from barnabas.coordinator.groups.share.share_group_change import ShareGroupChange
from barnabas.coordinator.groups.share.share_group_records import CurrentValue, MemberValue
from barnabas.coordinator.groups.share.share_group_settings import ShareGroupSettings
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.coordinator.result import Result, StateChange
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages import share_group_describe as describing
from barnabas.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.wall_clock import WallClock

JOINING, LEAVING = 0, -1  # special member epochs in requests
LONGEST_MEMBER_ID = 36
LONGEST_NAME_BYTES = (1 << 15) - 1  # the maximum length of a text in the key of a record
ASSIGNOR = "simple"
SESSION_TIMEOUT = "share.session.timeout.ms"
HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "share.assignment.interval.ms"


class ShareGroups(GroupMachine):
    """Handles the requests of members of share groups, and their timers."""

    def __init__(
        self,
        settings: ShareGroupSettings,
        setting_of: Callable[[str, str], Any],
        topics: TopicDirectory,
        timers: Timers[TimerKey],
        wall: WallClock,
    ) -> None:
        """Takes:  setting_of, which returns the value of a setting, the group's own or the
        broker's.
        """
        self._settings, self._setting_of = settings, setting_of
        self._topics, self._timers, self._wall = topics, timers, wall

    # --- heartbeats ------------------------------------------------------------------------------

    def check_request(self, request: ShareGroupHeartbeatRequest) -> None:
        """Check the fields of a request. Raises: KafkaError INVALID_REQUEST."""
        _require(bool(request.member_id), "MemberId is empty: the client makes it.")
        _require(
            len(request.member_id) <= LONGEST_MEMBER_ID,
            f"MemberId is longer than {LONGEST_MEMBER_ID} letters: use a UUID.",
        )
        _require(bool(request.group_id), "GroupId is empty: name the group.")
        _require(
            len(request.group_id.encode()) <= LONGEST_NAME_BYTES,
            f"GroupId is longer than {LONGEST_NAME_BYTES} bytes: shorten it.",
        )
        _require(request.rack_id != "", "RackId is empty: set it, or leave it out.")
        _require(
            request.member_epoch >= LEAVING,
            f"MemberEpoch is {request.member_epoch}: it must be -1 or more.",
        )
        if request.member_epoch == JOINING:
            _require(
                bool(request.subscribed_topic_names),
                "SubscribedTopicNames is empty: a member that joins names a topic.",
            )

    def on_heartbeat(
        self,
        group: Group,
        request: ShareGroupHeartbeatRequest,
        context: RequestContext,
        result: Result,
        now_ms: int,
    ) -> ShareGroupHeartbeatResponse:
        """Answer the heartbeat of a member that joins or stays.

        Takes:  request, a request that has passed `check_request`, and with which the member does
                not leave; group, a share group, or a new group if the member joins.
        Raises: KafkaError GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
        """
        share, group_id, member_id = share_group(group), request.group_id, request.member_id
        self._check_member(share, request)
        former = share.members.get(member_id)
        before = share.current(member_id)
        change = ShareGroupChange(group_id, share, self._topics)
        wants_others = change.set_member(member_id, _updated_member(former, request, context))
        is_changed = change.raise_epoch_if(wants_others)
        change.assign_if_due(
            self._setting_of(group_id, ASSIGNMENT_INTERVAL),
            now_ms,
            now_ms + self._wall.ahead_ms,
        )
        current = change.reconcile(member_id, is_changed)
        begun = change.begin_states(self._settings.initialize_retry_interval_ms, now_ms)
        self._begin_session(group_id, member_id, now_ms)
        group.modern = share  # set only now, since the checks above may refuse the request
        change.add_to(result)
        if begun:
            result.state_changes.append(
                StateChange(group_id, is_deletion=False, rows=begun, state_epoch=change.epoch)
            )
        is_due = (
            request.member_epoch == JOINING
            or request.subscribed_topic_names is not None
            or current.assigned != before.assigned
        )
        return ShareGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=self._setting_of(group_id, HEARTBEAT_INTERVAL),
            assignment=_assignment_of(current) if is_due else None,
        )

    def _check_member(self, share: ShareGroup, request: ShareGroupHeartbeatRequest) -> None:
        """Check the member that sent the request.

        Raises: KafkaError if the group is full, the member is not in the group, or its epoch is
                wrong.
        """
        member_id, epoch = request.member_id, request.member_epoch
        is_member = member_id in share.members
        if not is_member and len(share.members) >= self._settings.max_size:
            raise KafkaError(
                Code.GROUP_MAX_SIZE_REACHED,
                f"the group has {self._settings.max_size} members, which is the most that "
                "group.share.max.size allows.",
            )
        if epoch == JOINING:
            return
        if not is_member:
            raise _unknown_member(member_id, "join it")
        current = share.current(member_id)
        if epoch not in (current.member_epoch, current.previous_member_epoch):
            raise KafkaError(
                Code.FENCED_MEMBER_EPOCH,
                f"the member's epoch is {current.member_epoch}, not {epoch}: it has to give up all "
                "its partitions and join again.",
            )

    def on_leave(
        self, group: Group, request: ShareGroupHeartbeatRequest, result: Result, now_ms: int
    ) -> ShareGroupHeartbeatResponse:
        """Remove the member. Raises: KafkaError UNKNOWN_MEMBER_ID."""
        if request.member_id not in share_group(group).members:
            raise _unknown_member(request.member_id, "it need not leave")
        self.remove_members(group, [request.member_id], result, now_ms)
        return ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )

    def remove_members(
        self, group: Group, member_ids: Iterable[str], result: Result, now_ms: int
    ) -> None:
        """Remove members, and raise the group's epoch."""
        change = ShareGroupChange(group.group_id, share_group(group), self._topics)
        for member_id in dict.fromkeys(member_ids):
            timers_of.cancel_member(self._timers, group.group_id, member_id)
            change.remove_member(member_id)
        change.raise_epoch_if(True)
        if self._settings.assigns_emptied:
            change.end_emptied(now_ms + self._wall.ahead_ms)
        change.add_to(result)

    # --- timers ----------------------------------------------------------------------------------

    def on_loaded(self, group: Group, result: Result, now_ms: int) -> None:
        """Begin the sessions of all members."""
        for member_id in share_group(group).members:
            self._begin_session(group.group_id, member_id, now_ms)

    def _begin_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        timeout_ms = self._setting_of(group_id, SESSION_TIMEOUT)
        self._timers.schedule((timers_of.SESSION, group_id, member_id), now_ms + timeout_ms)

    def on_timers(self, group: Group, due: Iterable[TimerKey], result: Result, now_ms: int) -> None:
        """Remove the members whose sessions are over."""
        share = share_group(group)
        removed = [member_id for _, _, member_id in due if member_id in share.members]
        if removed:
            self.remove_members(group, removed, result, now_ms)

    # --- descriptions ----------------------------------------------------------------------------

    def describe(
        self, group: Group, most: int | None = None
    ) -> InSlices[describing.DescribedGroup]:
        """The group's row in ShareGroupDescribe, in slices.

        Takes:  most, the maximum number of members.
        """
        share = share_group(group)

        def row(one: tuple[str, MemberValue, CurrentValue]) -> describing.Member:
            member_id, member, current = one
            return describing.Member(
                member_id=member_id,
                rack_id=member.rack_id,
                member_epoch=current.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscribed_topic_names),
                assignment=self._described(current),
            )

        described = describing.DescribedGroup(
            group_id=group.group_id,
            group_state=share.state_name,
            group_epoch=share.epoch,
            assignment_epoch=share.target_epoch,
            assignor_name=ASSIGNOR,
        )
        members = (
            (member_id, member, share.current(member_id))
            for member_id, member in share.members.items()
        )
        described.members = yield from members_in_slices(members, row, most)
        return described

    def initialized_partitions(self, share: ShareGroup) -> dict[str, tuple[int, ...]]:
        """The partitions that have a state, by topic name."""
        return {
            name: partitions
            for topic_id, (_, partitions) in share.states.initialized.items()
            if (name := self._topics.name(topic_id)) is not None
        }

    def _described(self, current: CurrentValue) -> describing.Assignment:
        """The assigned partitions as the response lists them, without those of unknown topics."""
        return describing.Assignment(
            [
                describing.TopicPartitions(topic_id, name, list(partitions))
                for topic_id, partitions in current.assigned.items()
                if (name := self._topics.name(topic_id)) is not None
            ]
        )


def share_group(group: Group) -> ShareGroup:
    """The state of a share group, which exists or is being created."""
    share = group.modern
    if share is None or (not share.exists and not isinstance(share, ShareGroup)):
        return ShareGroup()
    assert isinstance(share, ShareGroup), f"group {group.group_id} is a {share.kind} group"
    return share


def heartbeat_error(error: KafkaError) -> ShareGroupHeartbeatResponse:
    """The response to a heartbeat with an error."""
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise KafkaError(Code.INVALID_REQUEST, message)


def _unknown_member(member_id: str, advice: str) -> KafkaError:
    return KafkaError(
        Code.UNKNOWN_MEMBER_ID, f"'{member_id}' is not a member of this group: {advice}."
    )


def _updated_member(
    former: MemberValue | None, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> MemberValue:
    """The member's value after the request."""
    known = former or MemberValue(None, "", "", ())
    names = request.subscribed_topic_names
    return MemberValue(
        known.rack_id if request.rack_id is None else request.rack_id,
        context.client_id,
        context.client_host,
        known.subscribed_topic_names if names is None else tuple(sorted(set(names))),
    )


def _assignment_of(current: CurrentValue) -> Assignment:
    """The assignment in the form of the response."""
    return Assignment(
        [
            TopicPartitions(topic_id, list(partitions))
            for topic_id, partitions in current.assigned.items()
        ]
    )
