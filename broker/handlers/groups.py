"""ListGroups and DeleteGroups: in slices, since there may be a hundred thousand groups.

This module also refuses the consumer protocol if it is off, and offsets in ZooKeeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.slices import GROUPS_DELETED_AT_ONCE, Slices
from barnabas.coordinator.groups.group_types import SHARE_TYPE
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.groups.group_runtime import GroupRuntime
    from barnabas.broker.lazy import Lazy
    from barnabas.broker.outbox import Answer
    from barnabas.broker.requests.pending_requests import Requests
    from barnabas.broker.share.shares import Shares
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
    from barnabas.protocol.messages.list_groups import ListGroupsRequest
    from barnabas.protocol.messages.message import Message
    from barnabas.protocol.request_context import RequestContext


def without_consumer_groups(request: Message) -> Message:
    """The response if the consumer protocol is off: UNSUPPORTED_VERSION, as in Kafka."""
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
    shares: Lazy[Shares],
    request: DeleteGroupsRequest,
    context: RequestContext,
) -> Answer:
    """Delete groups without members, each independently. The states of share groups' partitions are
    deleted first. Errors: see `GroupCoordinator`.

    After a kill between two slices some groups are deleted and the request has no response. When
    the client sends it again, these groups get GROUP_ID_NOT_FOUND, as after a kill between two
    batches of Kafka's coordinator.
    """
    return requests.answer_in_slices(
        request, context, _delete_groups(groups, group_runtime, shares, request, context)
    )


def _delete_groups(
    groups: GroupCoordinator,
    group_runtime: GroupRuntime,
    shares: Lazy[Shares],
    request: DeleteGroupsRequest,
    context: RequestContext,
) -> Slices:
    """The slices of `on_delete_groups`: GROUPS_DELETED_AT_ONCE in each."""
    now_ms = yield
    group_ids = list(dict.fromkeys(request.groups_names))
    results: list[DeletableGroupResult] = []
    for at in range(0, len(group_ids), GROUPS_DELETED_AT_ONCE):
        if at:
            now_ms = yield
        names = group_ids[at : at + GROUPS_DELETED_AT_ONCE]
        if any(_is_share_group(groups, name) for name in names):
            codes = yield from _delete_states(groups, group_runtime, shares.get(), names, now_ms)
            results += [DeletableGroupResult(*row) for row in codes.items()]
            names = [name for name in names if name not in codes]
            now_ms = yield
        some = DeleteGroupsRequest(groups_names=names)
        result = groups.on_delete_groups(some, context, now_ms)
        response = result.take_response()
        assert isinstance(response, DeleteGroupsResponse)
        group_runtime.run(result, now_ms)
        results += response.results
    return DeleteGroupsResponse(results=results)


def _is_share_group(groups: GroupCoordinator, group_id: str) -> bool:
    group = groups.group(group_id)
    return group is not None and group.kind == SHARE_TYPE


def _delete_states(
    groups: GroupCoordinator,
    group_runtime: GroupRuntime,
    shares: Shares,
    group_ids: list[str],
    now_ms: int,
) -> Slices:
    """Delete the states of the partitions of share groups. Gives: the error codes of groups whose
    states could not be deleted; these groups are kept.
    """
    wrong: dict[str, Code] = {}
    for result in groups.share_offsets.begin_deletion(group_ids):
        (change,), result.state_changes = result.state_changes, []
        group_runtime.run(result, now_ms)
        now_ms = yield group_runtime.durable(result.partition, now_ms)
        codes = yield from shares.changes.in_slices(change, now_ms)
        now_ms = yield
        done = groups.share_offsets.on_states_changed(change, codes)
        group_runtime.run(done, now_ms)
        failed = [
            code for code in codes if code not in (Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION)
        ]
        if failed:
            wrong[change.group_id] = Code(failed[0])
    return wrong
