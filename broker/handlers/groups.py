"""ListGroups and DeleteGroups: in slices, since there may be a hundred thousand groups.

This module also refuses the consumer protocol if it is off, and offsets in ZooKeeper.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker import coordinators  # noqa: F401 - loaded with the family
from barnabas.broker.admission import guards
from barnabas.broker.admission.coordination import Coordination, Heartbeats, One, Several
from barnabas.broker.admission.guard_steps import (
    Ask,
    each,
    every,
    in_answer,
    operations_of,
    rule,
    whole,
)
from barnabas.broker.admission.rights import CLUSTER, DELETE, DESCRIBE, GROUP, READ, TOPIC
from barnabas.broker.api_row import ApiRow
from barnabas.broker.groups.group_runtime import GroupRuntime
from barnabas.broker.groups.to_groups import ToGroups
from barnabas.broker.lazy import Lazy
from barnabas.broker.outbox import Answer
from barnabas.broker.parts import Parts
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.wide_requests import Repeats, Shape, of_rows
from barnabas.broker.slices import GROUPS_DELETED_AT_ONCE, Slices
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.groups.group_types import SHARE_TYPE
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.protocol.api import FEW, Api
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.repeated_messages import encode_heartbeat, read_heartbeat
from barnabas.protocol.request_context import RequestContext

if TYPE_CHECKING:
    from barnabas.broker.share_partitions.shares import Shares


def on_list_groups(
    requests: Requests,
    groups: GroupCoordinator,
    request: ListGroupsRequest,
    context: RequestContext,
) -> Answer:
    """The groups that pass the filters, in slices."""
    return requests.read_in_slices(context, groups.administration.list_groups(request))


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
        result = groups.administration.on_delete_groups(some, context, now_ms)
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
        codes = yield from shares.changes.carry_out(change, now_ms)
        now_ms = yield
        done = groups.share_offsets.on_states_changed(change, codes)
        group_runtime.run(done, now_ms)
        failed = [
            code for code in codes if code not in (Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION)
        ]
        if failed:
            wrong[change.group_id] = Code(failed[0])
    return wrong


# --- the APIs of this family ----------------------------------------------------------------------


def _to_groups(parts: Parts) -> ToGroups:
    return ToGroups(parts.groups, parts.group_runtime, parts.requests, parts.features)


ROWS = (
    ApiRow(
        Api(11, "JoinGroup", 0, 9, flexible_from=6, most_elements=FEW),
        right=rule(whole(READ, GROUP, "group_id")),
        coordination=Coordination(one=One(OFFSETS_TOPIC, "group_id")),
        handler=lambda parts: _to_groups(parts).of_members(parts.groups.membership.on_join_group),
    ),
    ApiRow(
        Api(12, "Heartbeat", 0, 4, flexible_from=4, most_elements=FEW),
        right=rule(whole(READ, GROUP, "group_id")),
        coordination=Coordination(one=One(OFFSETS_TOPIC, "group_id")),
        read=lambda parts: read_heartbeat,
        encode=encode_heartbeat,
        handler=lambda parts: _to_groups(parts).answering(parts.groups.on_heartbeat),
    ),
    ApiRow(
        Api(13, "LeaveGroup", 0, 5, flexible_from=4),
        right=rule(whole(READ, GROUP, "group_id")),
        shapes=(Shape(of_rows("members", "members"), Repeats.KEPT, first_version=3),),
        coordination=Coordination(one=One(OFFSETS_TOPIC, "group_id")),
        handler=lambda parts: _to_groups(parts).of_members(parts.groups.membership.on_leave_group),
    ),
    ApiRow(
        Api(14, "SyncGroup", 0, 5, flexible_from=4),
        right=rule(whole(READ, GROUP, "group_id")),
        coordination=Coordination(one=One(OFFSETS_TOPIC, "group_id")),
        handler=lambda parts: _to_groups(parts).of_members(parts.groups.membership.on_sync_group),
    ),
    ApiRow(
        Api(15, "DescribeGroups", 0, 6, flexible_from=5),
        right=rule(
            operations_of("groups", GROUP, "group_id", "authorized_operations"),
            each(DESCRIBE, GROUP, "groups"),
        ),
        shapes=(Shape(of_rows("groups", "groups"), at_once=10),),
        coordination=Coordination(several=Several(OFFSETS_TOPIC, "groups", "groups")),
        handler=lambda parts: _to_groups(parts).reading(
            parts.groups.administration.describe_groups
        ),
    ),
    ApiRow(
        Api(16, "ListGroups", 0, 5, flexible_from=3, most_elements=FEW),
        right=rule(
            in_answer(
                guards.hide_groups,
                Ask(DESCRIBE, CLUSTER),
                Ask(DESCRIBE, GROUP, "else, for each that is listed"),
            )
        ),
        coordination=Coordination(listed=Several(OFFSETS_TOPIC, "", "groups", "group_id")),
        handler=lambda parts: partial(on_list_groups, parts.requests, parts.groups),
    ),
    ApiRow(
        Api(42, "DeleteGroups", 0, 2, flexible_from=2),
        right=rule(each(DELETE, GROUP, "groups_names")),
        shapes=(Shape(of_rows("groups_names", "results")),),
        coordination=Coordination(
            several=Several(OFFSETS_TOPIC, "groups_names", "results"), writes=True
        ),
        handler=lambda parts: partial(
            on_delete_groups, parts.requests, parts.groups, parts.group_runtime, parts.shares
        ),
    ),
    ApiRow(
        Api(68, "ConsumerGroupHeartbeat", 0, 1, flexible_from=0, most_elements=20_000),
        right=rule(
            whole(READ, GROUP, "group_id"),
            every(
                DESCRIBE,
                TOPIC,
                "subscribed_topic_names",
                "for each that is subscribed by its name, or assigned",
            ),
            in_answer(guards.hide_assigned_topics),
        ),
        coordination=Coordination(
            one=One(OFFSETS_TOPIC, "group_id"),
            heartbeats=Heartbeats(
                lambda groups: groups.membership.on_consumer_group_heartbeat,
                lambda features: features.speaks_consumer_groups,
            ),
        ),
        handler=lambda parts: _to_groups(parts).of_heartbeats(
            parts.groups.membership.on_consumer_group_heartbeat
        ),
    ),
    ApiRow(
        Api(69, "ConsumerGroupDescribe", 0, 1, flexible_from=0),
        right=rule(
            each(DESCRIBE, GROUP, "group_ids"),
            in_answer(
                guards.hide_groups_of_hidden_topics, Ask(DESCRIBE, TOPIC, "for all that it reads")
            ),
            operations_of("groups", GROUP, "group_id", "authorized_operations"),
        ),
        shapes=(Shape(of_rows("group_ids", "groups"), at_once=10),),
        coordination=Coordination(several=Several(OFFSETS_TOPIC, "group_ids", "groups")),
        handler=lambda parts: _to_groups(parts).reading_consumer_groups(
            parts.groups.administration.describe_consumer_groups
        ),
    ),
)
