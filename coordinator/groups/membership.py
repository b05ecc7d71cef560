"""Handles the requests with which members join, sync with and leave a group of any kind.

This module makes the checks that do not depend on the kind of the group, and passes the request to
the state machine of that kind (group_machine.py).

Source: KIP-345, KIP-394, KIP-848.
"""

from __future__ import annotations

from barnabas.coordinator.groups.classic.classic_answers import (
    JoinRequest,
    ParkedRequest,
    join_error_response,
    sync_response,
)
from barnabas.coordinator.groups.classic.classic_group import MAX_PROTOCOLS
from barnabas.coordinator.groups.consumer.consumer_groups import (
    JOINING,
    LONGEST_NAME_BYTES,
    heartbeat_error,
)
from barnabas.coordinator.groups.group_kinds import GroupKinds
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_table import GroupTable
from barnabas.coordinator.groups.group_types import CLASSIC_TYPE, CONSUMER_TYPE
from barnabas.coordinator.groups.offsets.offset_removal import OffsetRemoval
from barnabas.coordinator.result import Reply, Result
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.protocol.request_context import RequestContext

_FIRST_JOIN_VERSION_WITH_REBALANCE_TIMEOUT = 1
_FIRST_SYNC_VERSION_WITH_PROTOCOL = 5
_LAST_LEAVE_VERSION_WITH_ONE_MEMBER = 2


class Membership:
    """Passes requests of members to the state machine of their group."""

    def __init__(
        self, table: GroupTable, kinds: GroupKinds, settings: GroupSettings, removal: OffsetRemoval
    ) -> None:
        self._table, self._kinds, self._settings = table, kinds, settings
        self._removal = removal

    # --- the classic protocol --------------------------------------------------------------------

    def on_join_group(
        self, request: JoinGroupRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Handle a JoinGroup. The response may be in the Result of a later event.

        Source: KIP-394, KIP-345.
        """
        result = self._table.result(request.group_id)
        code = self._check_join(request)
        if code is not Code.NONE:
            response = join_error_response(code, request.member_id, context.api_version)
            result.replies.append(Reply(context.ticket, response))
            return result
        group = self._table.get_or_create(result.partition, request.group_id)
        join = _join_of(request, context)
        if group.state.accepts_join_group:
            self._removal.schedule_check(group, now_ms)
        self._kinds.machine_of(group).on_classic_join(group, join, result, now_ms)
        return result

    def _check_join(self, request: JoinGroupRequest) -> Code:
        """The error code of a JoinGroup that is wrong in itself, or joins an unknown group with a
        member id; otherwise NONE.
        """
        settings = self._settings
        if not request.group_id:
            return Code.INVALID_GROUP_ID
        timeout_ms = request.session_timeout_ms
        if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
            return Code.INVALID_SESSION_TIMEOUT
        size = sum(len(protocol.metadata) for protocol in request.protocols)
        if len(request.protocols) > MAX_PROTOCOLS or size > settings.max_record_bytes:
            # Apache Kafka gives this response when it cannot write the group's record, and keeps
            # the members until then.
            return Code.UNKNOWN_SERVER_ERROR
        if request.group_id in self._table.by_id:
            return Code.NONE
        if request.member_id:
            return Code.UNKNOWN_MEMBER_ID
        has_protocol = request.protocol_type and request.protocols
        return Code.NONE if has_protocol else Code.INCONSISTENT_GROUP_PROTOCOL

    def on_sync_group(
        self, request: SyncGroupRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Store the leader's assignments, and return the member's assignment.

        The response may be in the Result of a later event.
        """
        result = self._table.result(request.group_id)
        group = self._table.by_id.get(request.group_id)
        needs_protocol = context.api_version >= _FIRST_SYNC_VERSION_WITH_PROTOCOL
        if not request.group_id:
            response = sync_response(Code.INVALID_GROUP_ID)
        elif needs_protocol and (request.protocol_type is None or request.protocol_name is None):
            response = sync_response(Code.INCONSISTENT_GROUP_PROTOCOL)
        elif group is None:
            response = sync_response(Code.UNKNOWN_MEMBER_ID)
        else:
            parked = ParkedRequest(context.ticket, context.api_version)
            machine = self._kinds.machine_of(group)
            machine.on_classic_sync(group, request, parked, result, now_ms)
            return result
        result.replies.append(Reply(context.ticket, response))
        return result

    def completes_rebalance(self, request: SyncGroupRequest) -> bool:
        """Whether a SyncGroup comes from the leader and contains the assignments for which the
        group waits.
        """
        group = self._table.by_id.get(request.group_id)
        return (
            group is not None
            and group.kind == CLASSIC_TYPE
            and group.classic.is_completed_by(request)
        )

    def on_leave_group(
        self, request: LeaveGroupRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Remove the members that leave, and the static members that an administrator removes.

        Up to version 2, a request names a single member.
        """
        result = self._table.result(request.group_id)
        is_single = context.api_version <= _LAST_LEAVE_VERSION_WITH_ONE_MEMBER
        leaving: list[tuple[str, str | None]] = (
            [(request.member_id, None)]
            if is_single
            else [(member.member_id, member.group_instance_id) for member in request.members]
        )
        code, codes = Code.NONE, [Code.UNKNOWN_MEMBER_ID] * len(leaving)
        group = self._table.by_id.get(request.group_id)
        if not request.group_id:
            code, leaving = Code.INVALID_GROUP_ID, []
        elif group is not None:
            machine = self._kinds.machine_of(group)
            codes = machine.on_classic_leave(group, leaving, result, now_ms)
        if is_single:
            response = LeaveGroupResponse(error_code=codes[0] if code is Code.NONE else code)
        else:
            members = [
                MemberResponse(member_id, instance_id, member_code)
                for (member_id, instance_id), member_code in zip(leaving, codes, strict=False)
            ]
            response = LeaveGroupResponse(error_code=code, members=members)
        result.replies.append(Reply(context.ticket, response))
        return result

    # --- the consumer protocol -------------------------------------------------------------------

    def on_consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Handle the heartbeat with which a member joins a consumer group, stays in it, or leaves
        it.

        Source: KIP-848.
        """
        group_id = request.group_id
        result = self._table.result(group_id)
        consumers = self._kinds.consumers
        try:
            consumers.check_request(request, context.api_version)
            group = self._table.by_id.get(group_id)
            kind = None if group is None else group.kind
            may_join = request.member_epoch == JOINING and kind in (None, CLASSIC_TYPE)
            if kind != CONSUMER_TYPE and not may_join:
                raise KafkaError(
                    Code.GROUP_ID_NOT_FOUND, f"there is no consumer group '{group_id}': join it."
                )
            if group is None:  # the group enters the table only after all checks
                group = self._table.new_group(result.partition, group_id)
            if request.member_epoch < JOINING:
                response = consumers.on_leave(group, request, result, now_ms)
            else:
                response = consumers.on_heartbeat(group, request, context, result, now_ms)
                self._table.by_id[group_id] = group
            self._removal.schedule_check(group, now_ms)
        except KafkaError as error:
            response = heartbeat_error(error)
        result.replies.append(Reply(context.ticket, response))
        return result

    def pattern_to_read(self, request: ConsumerGroupHeartbeatRequest) -> str | None:
        """The pattern of a heartbeat if compiling it takes too long for the core, otherwise
        None.
        """
        regex = request.subscribed_topic_regex
        is_long = bool(regex) and self._kinds.consumers.patterns.takes_long(regex or "")
        return regex if is_long and len(regex or "") <= LONGEST_NAME_BYTES else None


def _join_of(request: JoinGroupRequest, context: RequestContext) -> JoinRequest:
    """The JoinGroup without its protocol version. Before version 1 the session timeout is also the
    rebalance timeout.
    """
    has_timeout = context.api_version >= _FIRST_JOIN_VERSION_WITH_REBALANCE_TIMEOUT
    return JoinRequest(
        context.ticket,
        context.api_version,
        request.member_id,
        request.group_instance_id,
        context.client_id,
        context.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
        request.protocol_type,
        {protocol.name: protocol.metadata for protocol in request.protocols},
    )
