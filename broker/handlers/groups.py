"""ListGroups and DeleteGroups: in slices, since there may be a hundred thousand groups.

And the refusals where the consumer protocol is off, and for offsets in ZooKeeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.slices import GROUPS_DELETED_AT_ONCE, Slices
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.group_runtime import GroupRuntime
    from barnabas.broker.outbox import Answer
    from barnabas.broker.requests.pending_requests import Requests
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
    from barnabas.protocol.messages.list_groups import ListGroupsRequest
    from barnabas.protocol.messages.message import Message
    from barnabas.protocol.request_context import RequestContext


def without_consumer_groups(request: Message) -> Message:
    """The refusal of the consumer protocol where it is off: UNSUPPORTED_VERSION, as Kafka's."""
    from barnabas.protocol.messages import consumer_group_describe, consumer_group_heartbeat

    if isinstance(request, consumer_group_describe.ConsumerGroupDescribeRequest):
        rows = [
            consumer_group_describe.DescribedGroup(
                error_code=Code.UNSUPPORTED_VERSION, group_id=group_id
            )
            for group_id in request.group_ids
        ]
        return consumer_group_describe.ConsumerGroupDescribeResponse(groups=rows)
    return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
        error_code=Code.UNSUPPORTED_VERSION
    )


def on_list_groups(
    requests: Requests,
    groups: GroupCoordinator,
    request: ListGroupsRequest,
    context: RequestContext,
) -> Answer:
    """The groups that pass the filters, in slices."""
    return requests.read_in_slices(context, groups.list_groups(request))


def on_delete_groups(
    requests: Requests,
    groups: GroupCoordinator,
    group_runtime: GroupRuntime,
    request: DeleteGroupsRequest,
    context: RequestContext,
) -> Answer:
    """Delete groups without members, each by itself. Errors: see `GroupCoordinator`.

    A kill between two slices leaves some groups deleted and the request unanswered: sent again, it
    has GROUP_ID_NOT_FOUND for these groups, as after a kill between a coordinator's batches.
    """
    return requests.answer_in_slices(
        context, _delete_groups(groups, group_runtime, request, context)
    )


def _delete_groups(
    groups: GroupCoordinator,
    group_runtime: GroupRuntime,
    request: DeleteGroupsRequest,
    context: RequestContext,
) -> Slices:
    now_ms = yield
    group_ids = list(dict.fromkeys(request.groups_names))
    results: list[DeletableGroupResult] = []
    for at in range(0, len(group_ids), GROUPS_DELETED_AT_ONCE):
        if at:
            now_ms = yield
        some = DeleteGroupsRequest(groups_names=group_ids[at : at + GROUPS_DELETED_AT_ONCE])
        result = groups.on_delete_groups(some, context, now_ms)
        response = result.take_response()
        assert isinstance(response, DeleteGroupsResponse)
        group_runtime.run(result, now_ms)
        results += response.results
    return DeleteGroupsResponse(results=results)
