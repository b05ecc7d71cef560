"""DeleteGroups: in slices, since one request may name a hundred thousand groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.slices import GROUPS_DELETED_AT_ONCE, Slices
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.core import Broker
    from barnabas.broker.outbox import Answer
    from barnabas.protocol.request_context import RequestContext


def on_delete_groups(
    broker: Broker, request: DeleteGroupsRequest, context: RequestContext
) -> Answer:
    """Delete groups without members, each by itself. Errors: see `GroupCoordinator`.

    A kill between two slices leaves some groups deleted and nobody answered, as a kill amid a
    coordinator's batches does: the request, sent again, has GROUP_ID_NOT_FOUND for these.
    """
    return broker.answer_in_slices(context, _delete_groups(broker, request, context))


def _delete_groups(broker: Broker, request: DeleteGroupsRequest, context: RequestContext) -> Slices:
    now_ms = yield
    group_ids = list(dict.fromkeys(request.groups_names))
    results: list[DeletableGroupResult] = []
    for at in range(0, len(group_ids), GROUPS_DELETED_AT_ONCE):
        if at:
            now_ms = yield
        some = DeleteGroupsRequest(groups_names=group_ids[at : at + GROUPS_DELETED_AT_ONCE])
        result = broker.groups.on_delete_groups(some, context, now_ms)
        response = result.take_response()
        assert isinstance(response, DeleteGroupsResponse)
        broker.runtime.run_groups(result, now_ms)
        results += response.results
    return DeleteGroupsResponse(results=results)
