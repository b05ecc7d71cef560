"""Requests of share groups' members, and of administrators who describe the groups (KIP-932)."""

from __future__ import annotations

from barnabas.coordinator.descriptions import InSlices, at_once, groups_in_slices
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_table import GroupTable
from barnabas.coordinator.groups.group_types import SHARE_TYPE
from barnabas.coordinator.groups.share.share_groups import (
    JOINING,
    LEAVING,
    ShareGroups,
    heartbeat_error,
    share_group,
)
from barnabas.coordinator.result import Reply, Result
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.request_context import RequestContext


class ShareRequests:
    """Passes requests about share groups to the state machine of their members."""

    def __init__(self, table: GroupTable, shares: ShareGroups, settings: GroupSettings) -> None:
        self._table, self._shares, self._settings = table, shares, settings

    def on_heartbeat(
        self, request: ShareGroupHeartbeatRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Handle the heartbeat with which a member joins a share group, stays in it, or
        leaves it.
        """
        result = self._table.result(request.group_id)
        try:
            self._shares.check_request(request)
            group = self._group_of(request, result.partition)
            if request.member_epoch == LEAVING:
                response = self._shares.on_leave(group, request, result, now_ms)
            else:
                response = self._shares.on_heartbeat(group, request, context, result, now_ms)
                self._table.by_id[request.group_id] = group
        except KafkaError as error:
            response = heartbeat_error(error)
        result.replies.append(Reply(context.ticket, response))
        return result

    def _group_of(self, request: ShareGroupHeartbeatRequest, partition: int) -> Group:
        """The share group of a request. If the member joins and the group does not exist, this is a
        new group, which is not in the table yet.

        Raises: KafkaError GROUP_ID_NOT_FOUND if the group does not exist, or is of another kind.
        """
        group = self._table.by_id.get(request.group_id)
        if group is not None and (group.kind == SHARE_TYPE or not _is_used(group)):
            return group
        if group is None and request.member_epoch == JOINING:
            return self._table.new_group(partition, request.group_id)
        raise KafkaError(
            Code.GROUP_ID_NOT_FOUND,
            f"there is no share group '{request.group_id}'"
            + (": join it." if group is None else f", but a {group.kind} group."),
        )

    # --- descriptions ----------------------------------------------------------------------------

    def describe_groups(
        self, request: ShareGroupDescribeRequest, context: RequestContext
    ) -> InSlices[ShareGroupDescribeResponse]:
        """Describe share groups, in slices.

        A group's row may have the error code GROUP_ID_NOT_FOUND or INVALID_GROUP_ID.
        """
        asks = request.include_authorized_operations
        described = yield from groups_in_slices(
            dict.fromkeys(request.group_ids),
            self._describe,
            self._settings.group_operations if asks else None,
        )
        return ShareGroupDescribeResponse(groups=described)

    def _describe(self, group_id: str) -> InSlices[DescribedGroup]:
        """The row of a share group. If no share group has the id, the row has an error."""
        group = self._table.by_id.get(group_id)
        if group is not None and group.kind == SHARE_TYPE:
            return (yield from self._shares.describe(group))
        code = Code.GROUP_ID_NOT_FOUND if group_id else Code.INVALID_GROUP_ID
        message = f"there is no share group '{group_id}'."
        return DescribedGroup(error_code=code, error_message=message, group_id=group_id)

    def describe(self, group: Group, most: int | None = None) -> DescribedGroup:
        """A share group with its members, or the first `most` of them, for readers that do not
        change it.
        """
        return at_once(self._shares.describe(group, most))

    def initialized_partitions(self, group_id: str) -> dict[str, tuple[int, ...]]:
        """The partitions of a share group that have a state, by topic name."""
        group = self._table.by_id.get(group_id)
        if group is None or group.kind != SHARE_TYPE:
            return {}
        return self._shares.initialized_partitions(share_group(group))


def _is_used(group: Group) -> bool:
    """Whether the group has a record, or a classic member that is joining."""
    return group.has_hard_state or not group.state.is_unused
