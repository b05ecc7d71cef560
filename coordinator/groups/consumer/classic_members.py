"""Members of the classic protocol in a consumer group (KIP-848, "Supporting Online Consumer Group
Upgrade").

Such a member joins, syncs and sends heartbeats as in a classic group. JoinGroup is answered
immediately, with the member's epoch as its generation. No member is a leader, and SyncGroup returns
the broker's assignment. When the member has to join again, Heartbeat is answered with
REBALANCE_IN_PROGRESS, and the member's rebalance timeout begins.

    request     answered with
    JoinGroup   MEMBER_ID_REQUIRED and an id; INCONSISTENT_GROUP_PROTOCOL if it shares no
                protocol with the other classic members; GROUP_MAX_SIZE_REACHED; else NONE
    SyncGroup   ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS if a newer assignment exists; NONE
    Heartbeat   ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS if it has to give up partitions, or can
                get more; NONE
    LeaveGroup  NONE, also for a member of the consumer protocol

All are answered with UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID as in a classic group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from barnabas.coordinator.groups import group_timers as timers_of
from barnabas.coordinator.groups.classic.classic_answers import (
    JoinRequest,
    join_error_response,
    sync_response,
)
from barnabas.coordinator.groups.classic.classic_group import FIRST_VERSION_WITH_MEMBER_ID_REQUIRED
from barnabas.coordinator.groups.classic.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    read_subscription,
    write_assignment,
)
from barnabas.coordinator.groups.consumer.consumer_group import (
    ConsumerGroup,
    consumer_group,
    static_member_id,
)
from barnabas.coordinator.groups.consumer.consumer_group_change import GroupChange
from barnabas.coordinator.groups.consumer.consumer_group_records import (
    ClassicMember,
    MemberState,
    MemberValue,
)
from barnabas.coordinator.groups.consumer.consumer_groups_context import (
    ASSIGNMENT_INTERVAL,
    ConsumerGroupsContext,
)
from barnabas.coordinator.groups.consumer.group_conversion import GroupConversion
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.result import Reply, Result
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class MemberChanges(Protocol):
    """The changes of a consumer group's members that do not depend on their protocol."""

    def set_member(self, change: GroupChange, member_id: str, value: MemberValue) -> None:
        """Set the value of a member, and raise the group's epoch if the member's topics change."""

    def remove_members(
        self, group: Group, member_ids: Iterable[str], result: Result, now_ms: int
    ) -> None:
        """Remove members, and raise the group's epoch. If only classic members remain, the group
        becomes classic.
        """


class ClassicMembers:
    """Handles the requests that members of the classic protocol send to a consumer group."""

    def __init__(
        self,
        context: ConsumerGroupsContext,
        conversion: GroupConversion,
        consumers: MemberChanges,
    ) -> None:
        self._context, self._conversion, self._consumers = context, conversion, consumers
        self._timers = context.timers

    # --- joining ---------------------------------------------------------------------------------

    def on_join(self, group: Group, join: JoinRequest, result: Result, now_ms: int) -> None:
        """Answer the JoinGroup of a new or known member of a group that has members."""
        try:
            response = self._join(group, join, result, now_ms)
        except KafkaError as error:
            response = join_error_response(error.code, join.member_id, join.api_version)
        if response is not None:
            result.replies.append(Reply(join.ticket, response))

    def _join(
        self, group: Group, join: JoinRequest, result: Result, now_ms: int
    ) -> JoinGroupResponse | None:
        """Handle the JoinGroup. Gives: the response; None if the group has become classic, since
        the classic group's state machine then answers the request.
        """
        consumer = consumer_group(group)
        self._check_join(consumer, join)
        former_id = self._former_id(consumer, join)
        subscription = self._check_protocols(consumer, join, former_id)
        if _needs_id(join):
            return join_error_response(
                Code.MEMBER_ID_REQUIRED, self._context.new_member_id(), join.api_version
            )
        member_id = join.member_id or self._context.new_member_id()
        if former_id not in (None, member_id) and self._maybe_downgrade(
            group, former_id, join, result, now_ms
        ):
            return None
        change = GroupChange(group.group_id, consumer, self._context.topics)
        if former_id is not None and former_id != member_id:
            timers_of.cancel_member(self._timers, group.group_id, former_id)
            change.replace_member(former_id, member_id)
        value = _member_value(join, subscription)
        self._consumers.set_member(change, member_id, value)
        change.assign_if_due(
            self._context.settings, self._assignment_interval_ms(group.group_id), now_ms
        )
        current = change.reconcile(member_id, self._conversion.by_id(subscription.owned))
        change.add_to(result)
        timers_of.cancel_member(self._timers, group.group_id, member_id)
        self._restart_session(group.group_id, member_id, value, now_ms)
        self._timers.schedule(
            (timers_of.SYNC, group.group_id, member_id), now_ms + value.rebalance_timeout_ms
        )
        return JoinGroupResponse(
            generation_id=current.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=next(iter(join.protocols)),
            leader="",
            member_id=member_id,
            members=[],
        )

    def _check_join(self, consumer: ConsumerGroup, join: JoinRequest) -> None:
        """Raise KafkaError GROUP_MAX_SIZE_REACHED for a new member of a full group."""
        is_member = join.member_id in consumer.members or (
            join.group_instance_id in consumer.static_members
        )
        if not is_member and len(consumer.members) >= self._context.settings.max_size:
            raise KafkaError(Code.GROUP_MAX_SIZE_REACHED)

    def _former_id(self, consumer: ConsumerGroup, join: JoinRequest) -> str | None:
        """The member's current id in the group; None for a new member."""
        if join.group_instance_id is None:
            return join.member_id if join.member_id in consumer.members else None
        if join.member_id:
            return static_member_id(consumer, join.group_instance_id, join.member_id)
        return consumer.static_members.get(join.group_instance_id)

    def _check_protocols(
        self, consumer: ConsumerGroup, join: JoinRequest, former_id: str | None
    ) -> Subscription:
        """The member's subscription, which is the same in all its protocols.

        Raises: KafkaError INCONSISTENT_GROUP_PROTOCOL.
        """
        others = [
            dict(member.classic.protocols)
            for member_id, member in consumer.members.items()
            if member.classic is not None and member_id != former_id
        ]
        is_allowed = self._context.settings.takes_classic_members or former_id is not None
        shares_one = any(all(name in row for row in others) for name in join.protocols)
        if not is_allowed or join.protocol_type != CONSUMER_PROTOCOL_TYPE or not shares_one:
            raise KafkaError(Code.INCONSISTENT_GROUP_PROTOCOL)
        subscription = read_subscription(next(iter(join.protocols.values())))
        if subscription is None and not _needs_id(join):
            raise KafkaError(Code.INCONSISTENT_GROUP_PROTOCOL)
        return subscription or Subscription(0, (), {}, None)

    def _maybe_downgrade(
        self, group: Group, former_id: str | None, join: JoinRequest, result: Result, now_ms: int
    ) -> bool:
        """Make the group classic if its last member of the consumer protocol is a static member
        that is replaced by a returning classic member.

        Gives:  whether the group was changed; if so, the member has joined the classic group.
        """
        consumer = consumer_group(group)
        remaining = [member_id for member_id in consumer.members if member_id != former_id]
        if not self._conversion.may_downgrade(consumer, remaining):
            return False
        self._conversion.downgrade(group, remaining, result, now_ms)
        group.classic.on_join(join, result, now_ms)
        return True

    # --- staying ---------------------------------------------------------------------------------

    def on_sync(
        self, group: Group, request: SyncGroupRequest, result: Result, now_ms: int
    ) -> SyncGroupResponse:
        """Answer a SyncGroup with the member's assignment."""
        consumer = consumer_group(group)
        try:
            member_id, value = self._require_member(
                group, request.member_id, request.group_instance_id
            )
            current = consumer.current(member_id)
            classic = value.classic
            assert classic is not None
            protocol, metadata = classic.protocols[0]
            if request.generation_id != current.member_epoch:
                raise KafkaError(Code.ILLEGAL_GENERATION)
            for requested, known in (
                (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
                (request.protocol_name, protocol),
            ):
                if requested is not None and requested != known:
                    raise KafkaError(Code.INCONSISTENT_GROUP_PROTOCOL)
            if (
                consumer.target_epoch > current.member_epoch
                and current.state is not MemberState.UNREVOKED_PARTITIONS
            ):
                self._begin_wait_for_join(group.group_id, member_id, value, now_ms)
                raise KafkaError(Code.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            return sync_response(error.code)
        self._timers.cancel((timers_of.SYNC, group.group_id, member_id))
        self._restart_session(group.group_id, member_id, value, now_ms)
        subscription = read_subscription(metadata)
        assignment = write_assignment(
            0 if subscription is None else subscription.version,
            self._conversion.by_name(current.assigned),
        )
        return sync_response(Code.NONE, request.protocol_type, request.protocol_name, assignment)

    def on_heartbeat(self, group: Group, request: HeartbeatRequest, now_ms: int) -> Code:
        """Restart the session. Gives: REBALANCE_IN_PROGRESS if the member has to join again.

        The member has to join again if its target assignment has changed. If all members are
        classic, it also has to join again when a new target is due, since heartbeats of classic
        members neither raise the group's epoch nor compute a new target.
        """
        consumer = consumer_group(group)
        try:
            member_id, value = self._require_member(
                group, request.member_id, request.group_instance_id
            )
        except KafkaError as error:
            return error.code
        current = consumer.current(member_id)
        if request.generation_id != current.member_epoch:
            return Code.ILLEGAL_GENERATION
        self._restart_session(group.group_id, member_id, value, now_ms)
        if (
            current.member_epoch < consumer.target_epoch
            or self._is_join_awaited(group.group_id, consumer, now_ms)
            or current.state is MemberState.UNREVOKED_PARTITIONS
            or (
                current.state is MemberState.UNRELEASED_PARTITIONS
                and not consumer.waits_for_others(member_id)
            )
        ):
            self._begin_wait_for_join(group.group_id, member_id, value, now_ms)
            return Code.REBALANCE_IN_PROGRESS
        return Code.NONE

    def on_leave(
        self,
        group: Group,
        members: Iterable[tuple[str, str | None]],
        result: Result,
        now_ms: int,
    ) -> list[Code]:
        """Remove each member, given as (member_id, group_instance_id). Gives: an error code for
        each.

        The member_id of a static member may be empty.
        """
        consumer = consumer_group(group)
        codes, removed = [], dict[str, None]()
        for member_id, instance_id in members:
            try:
                if instance_id is not None:
                    known_id = consumer.static_members.get(instance_id, "")
                    member_id = static_member_id(consumer, instance_id, member_id or known_id)
                if member_id not in consumer.members or member_id in removed:
                    raise KafkaError(Code.UNKNOWN_MEMBER_ID)
                if self._context.settings.is_preview:
                    self._require_member(group, member_id, None)
                removed[member_id] = None
                codes.append(Code.NONE)
            except KafkaError as error:
                codes.append(error.code)
        if removed:
            self._consumers.remove_members(group, removed, result, now_ms)
        return codes

    # --- small parts -----------------------------------------------------------------------------

    def _require_member(
        self, group: Group, member_id: str, instance_id: str | None
    ) -> tuple[str, MemberValue]:
        """The id and the value of the classic member that sent the request.

        Raises: KafkaError UNKNOWN_MEMBER_ID, also for a member of the consumer protocol;
                COORDINATOR_NOT_AVAILABLE if the member's removal is decided, but not yet written
                for lack of disk space.
        """
        consumer, group_id = consumer_group(group), group.group_id
        if instance_id is not None:
            member_id = static_member_id(consumer, instance_id, member_id)
        value = consumer.members.get(member_id)
        if value is None or value.classic is None:
            raise KafkaError(Code.UNKNOWN_MEMBER_ID)
        if (timers_of.SESSION, group_id, member_id) not in self._timers:
            # the member's removal is not written yet
            raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE)
        return member_id, value

    def _restart_session(
        self, group_id: str, member_id: str, value: MemberValue, now_ms: int
    ) -> None:
        """Begin the member's session timeout again."""
        assert value.classic is not None
        self._timers.schedule(
            (timers_of.SESSION, group_id, member_id), now_ms + value.classic.session_timeout_ms
        )

    def _is_join_awaited(self, group_id: str, consumer: ConsumerGroup, now_ms: int) -> bool:
        """Whether a new target assignment is due that only a classic member's JoinGroup can
        compute.

        If all members are classic, their heartbeats neither raise the group's epoch nor compute a
        new target. If the group has members of the consumer protocol, their next heartbeat computes
        it.
        """
        return (
            consumer.may_be_assigned(self._assignment_interval_ms(group_id), now_ms)
            and all(member.classic is not None for member in consumer.members.values())
            and (
                consumer.epoch > consumer.target_epoch
                or consumer.notices_topics(self._context.topics)
            )
        )

    def _assignment_interval_ms(self, group_id: str) -> int:
        overrides = self._context.overrides(group_id)
        return overrides.get(ASSIGNMENT_INTERVAL, self._context.settings.assignment_interval_ms)

    def _begin_wait_for_join(
        self, group_id: str, member_id: str, value: MemberValue, now_ms: int
    ) -> None:
        """Give the member its rebalance timeout to join again, unless the timeout runs already."""
        key = (timers_of.JOIN, group_id, member_id)
        if key not in self._timers:
            self._timers.schedule(key, now_ms + value.rebalance_timeout_ms)


def _needs_id(join: JoinRequest) -> bool:
    """Whether the response to a new member only assigns an id to it (KIP-394)."""
    return (
        not join.member_id
        and join.group_instance_id is None
        and join.api_version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED
    )


def _member_value(join: JoinRequest, subscription: Subscription) -> MemberValue:
    """The value of a classic member in the group of the consumer protocol."""
    return MemberValue(
        join.group_instance_id,
        subscription.rack_id,
        join.client_id,
        join.client_host,
        tuple(sorted(set(subscription.topics))),
        "",
        join.rebalance_timeout_ms,
        None,
        ClassicMember(join.session_timeout_ms, tuple(join.protocols.items())),
    )
