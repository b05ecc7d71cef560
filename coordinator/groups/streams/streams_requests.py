"""StreamsGroupHeartbeat and StreamsGroupDescribe, with the checks that the group is a streams
group.

A streams group may replace a classic group that has no members. The group's offsets remain, since
the same application may have used the classic protocol before. Requests to a group of another kind
are rejected.
"""

from __future__ import annotations

from barnabas.coordinator.descriptions import InSlices, at_once, groups_in_slices
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_table import GroupTable
from barnabas.coordinator.groups.group_types import CLASSIC_TYPE, STREAMS_TYPE
from barnabas.coordinator.groups.offsets.offset_removal import OffsetRemoval
from barnabas.coordinator.groups.streams.streams_groups import JOINING, StreamsGroups
from barnabas.coordinator.result import Reply, Result
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages import streams_group_describe as describing
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from barnabas.protocol.request_context import RequestContext


class StreamsRequests:
    """Handles the requests about streams groups."""

    def __init__(
        self,
        table: GroupTable,
        streams: StreamsGroups,
        settings: GroupSettings,
        removal: OffsetRemoval,
    ) -> None:
        self._table, self._streams, self._settings = table, streams, settings
        self._removal = removal

    def on_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Handle the heartbeat of a member that joins a streams group, stays in it, or leaves it.
        Source:
        KIP-1071.
        """
        group_id = request.group_id
        result = self._table.result(group_id)
        try:
            self._streams.check_request(request)
            group = self._group_of(request, result)
            if request.member_epoch < JOINING:
                response = self._streams.on_leave(group, request, result, now_ms)
            else:
                response = self._streams.on_heartbeat(group, request, context, result, now_ms)
                self._table.by_id[group_id] = group
            self._removal.schedule_check(group, now_ms)
        except KafkaError as error:
            response = StreamsGroupHeartbeatResponse(
                error_code=error.code, error_message=error.message
            )
        result.replies.append(Reply(context.ticket, response))
        return result

    def _group_of(self, request: StreamsGroupHeartbeatRequest, result: Result) -> Group:
        """Return the streams group of a request, or the group that it will replace.

        Raises: KafkaError GROUP_ID_NOT_FOUND.
        """
        group_id = request.group_id
        group = self._table.by_id.get(group_id)
        if group is not None and group.kind == STREAMS_TYPE:
            return group
        if request.member_epoch != JOINING:
            message = f"there is no streams group '{group_id}': join it."
            raise KafkaError(Code.GROUP_ID_NOT_FOUND, message)
        if group is None:  # the new group is put into the table only after all checks
            return self._table.new_group(result.partition, group_id)
        if group.kind != CLASSIC_TYPE or group.has_members:
            raise KafkaError(
                Code.GROUP_ID_NOT_FOUND,
                f"'{group_id}' is a {group.kind} group: stop its members, or delete it, first.",
            )
        return group

    def describe_groups(
        self, request: describing.StreamsGroupDescribeRequest, context: RequestContext
    ) -> InSlices[describing.StreamsGroupDescribeResponse]:
        """Describe streams groups, in slices.

        The error code of a group may be GROUP_ID_NOT_FOUND or INVALID_GROUP_ID.
        """
        asks = request.include_authorized_operations
        described = yield from groups_in_slices(
            dict.fromkeys(request.group_ids),
            self._describe,
            self._settings.group_operations if asks else None,
        )
        return describing.StreamsGroupDescribeResponse(groups=described)

    def describe(self, group: Group, most: int | None = None) -> describing.DescribedGroup:
        """Describe a streams group with all its members, or with the first `most` of them.

        For callers that only read the group.
        """
        return at_once(self._streams.describe(group, most))

    def assigned_partitions(self, group: Group) -> dict[str, list[tuple[str, int]]]:
        """The partitions that the active tasks of each member of a streams group read."""
        return self._streams.assigned_partitions(group)

    def _describe(self, group_id: str) -> InSlices[describing.DescribedGroup]:
        """The row of a streams group. If no streams group has the id, the row has an error."""
        group = self._table.by_id.get(group_id)
        if group is not None and group.kind == STREAMS_TYPE:
            return (yield from self._streams.describe(group))

        code = Code.GROUP_ID_NOT_FOUND if group_id else Code.INVALID_GROUP_ID
        message = f"there is no streams group '{group_id}'."
        return describing.DescribedGroup(error_code=code, error_message=message, group_id=group_id)
