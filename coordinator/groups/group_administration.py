"""Requests of administrators about groups: listing, describing and deleting them.

Source: KIP-518 and KIP-848 (filters of lists), KIP-1043 (errors of DescribeGroups).
"""

from __future__ import annotations

from collections.abc import Generator

from barnabas.coordinator.descriptions import InSlices, groups_in_slices, members_in_slices
from barnabas.coordinator.groups.classic.rebalance import DEAD, State
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_kinds import GroupKinds
from barnabas.coordinator.groups.group_records import offset_tombstone
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_table import GroupTable
from barnabas.coordinator.groups.group_types import CLASSIC_TYPE, CONSUMER_TYPE
from barnabas.coordinator.result import Reply, Result, ResultsByPartition
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import consumer_group_describe as describing
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from barnabas.protocol.request_context import RequestContext

ROWS_AT_ONCE = 500  # the number of groups that one slice of a listing reads
_FIRST_DESCRIBE_VERSION_WITH_ERRORS = 6


class GroupAdministration:
    """Lists, describes and deletes groups of all kinds."""

    def __init__(self, table: GroupTable, kinds: GroupKinds, settings: GroupSettings) -> None:
        self._table, self._kinds, self._settings = table, kinds, settings

    def list_groups(self, request: ListGroupsRequest) -> Generator[None, int, ListGroupsResponse]:
        """List the groups, or those of the requested states and types, ROWS_AT_ONCE in each
        slice.
        """
        yield
        states = [state.lower() for state in request.states_filter]
        types = [kind.lower() for kind in request.types_filter]
        listed: list[ListedGroup] = []
        for number, group in enumerate(list(self._table.by_id.values()), 1):
            of_group = group.state
            state, kind = of_group.state_name, of_group.kind
            if (not states or state.lower() in states) and (not types or kind in types):
                listed.append(
                    ListedGroup(
                        group_id=group.group_id,
                        protocol_type=of_group.protocol_type,
                        group_state=state,
                        group_type=kind,
                    )
                )
            if number % ROWS_AT_ONCE == 0:
                yield
        return ListGroupsResponse(groups=listed)

    def describe_groups(
        self, request: DescribeGroupsRequest, context: RequestContext
    ) -> InSlices[DescribeGroupsResponse]:
        """Describe classic groups, in slices: state, members and assignments.

        A group that does not exist has the state Dead. From version 6 on, its row also has an error
        code (KIP-1043).
        """

        def describe(group_id: str) -> InSlices[DescribedGroup]:
            return self._describe(group_id, context.api_version)

        described = yield from groups_in_slices(request.groups, describe, None)
        if request.include_authorized_operations:
            for group in described:
                group.authorized_operations = self._settings.group_operations
        return DescribeGroupsResponse(groups=described)

    def _describe(self, group_id: str, api_version: int) -> InSlices[DescribedGroup]:
        """The row of a classic group. If no classic group has the id, the row is that of a dead
        group.
        """
        group = self._table.by_id.get(group_id)
        if group is not None and group.kind == CLASSIC_TYPE:
            return (yield from _described(group))
        has_error = api_version >= _FIRST_DESCRIBE_VERSION_WITH_ERRORS
        return DescribedGroup(
            error_code=Code.GROUP_ID_NOT_FOUND if has_error else Code.NONE,
            error_message=f"Group {group_id} not found." if has_error else None,
            group_id=group_id,
            group_state=DEAD,
            protocol_type="",
            protocol_data="",
        )

    def describe_consumer_groups(
        self, request: describing.ConsumerGroupDescribeRequest, context: RequestContext
    ) -> InSlices[describing.ConsumerGroupDescribeResponse]:
        """Describe consumer groups, in slices.

        A group's row may have the error code GROUP_ID_NOT_FOUND or INVALID_GROUP_ID.
        """
        asks = request.include_authorized_operations
        described = yield from groups_in_slices(
            dict.fromkeys(request.group_ids),
            self._describe_consumer_group,
            self._settings.group_operations if asks else None,
        )
        return describing.ConsumerGroupDescribeResponse(groups=described)

    def _describe_consumer_group(self, group_id: str) -> InSlices[describing.DescribedGroup]:
        """The row of a consumer group. If no consumer group has the id, the row has an error."""
        group = self._table.by_id.get(group_id)
        if group is not None and group.kind == CONSUMER_TYPE:
            return (yield from self._kinds.consumers.describe(group))
        code = Code.GROUP_ID_NOT_FOUND if group_id else Code.INVALID_GROUP_ID
        message = f"there is no consumer group '{group_id}'."
        return describing.DescribedGroup(error_code=code, error_message=message, group_id=group_id)

    def on_delete_groups(
        self, request: DeleteGroupsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Delete groups without members, with all their offsets. A group id that the request
        repeats gets a single result.
        """
        results = ResultsByPartition()
        codes: dict[str, Code] = {}
        for group_id in request.groups_names:
            if group_id not in codes:
                codes[group_id] = self._delete_group(group_id, results)
        response = DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id, code) for group_id, code in codes.items()]
        )
        return results.as_one(Reply(context.ticket, response))

    def _delete_group(self, group_id: str, results: ResultsByPartition) -> Code:
        """Add the tombstones of a group and its offsets to the results. Gives: its error code."""
        group = self._table.by_id.get(group_id)
        if group is None:
            return Code.GROUP_ID_NOT_FOUND
        if group.has_members:
            return Code.NON_EMPTY_GROUP
        tombstones = [
            offset_tombstone(group_id, *partition) for partition in group.offsets.all_partitions()
        ]
        results.add(group.partition, [*tombstones, *group.state.tombstones(group_id)])
        return Code.NONE


def _described(group: Group) -> InSlices[DescribedGroup]:
    """The response row of a classic group.

    Assignments of the previous generation are listed until the new ones arrive.
    """
    rebalance = group.classic.rebalance
    selected = rebalance.protocol_name if rebalance.state is State.STABLE else None

    described = DescribedGroup(
        error_code=Code.NONE,
        error_message=None,
        group_id=group.group_id,
        group_state=rebalance.state.value,
        protocol_type=rebalance.protocol_type or "",
        protocol_data=selected or "",
    )
    members = (
        (
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            b"" if selected is None else member.protocols.get(selected, b""),
            member.assignment,
        )
        for member in group.classic.members.values()
    )
    described.members = yield from members_in_slices(members, _described_member)
    return described


def _described_member(
    one: tuple[str, str | None, str, str, bytes, bytes],
) -> DescribedGroupMember:
    return DescribedGroupMember(*one)
