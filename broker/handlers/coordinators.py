"""FindCoordinator: this broker, whoever asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.request_context import RequestContext

if TYPE_CHECKING:
    from barnabas.broker.core import Broker

GROUP, TRANSACTION = 0, 1
BATCHED_SINCE = 4


def on_find_coordinator(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """The coordinator of groups and transactional ids. Its internal topic is made now, as clients
    of Kafka expect. INVALID_REQUEST: other kinds.
    """
    code = Code.NONE
    if request.key_type == GROUP:
        broker.topics.ensure_internal_topic(OFFSETS_TOPIC, context.now_ms)
    elif request.key_type == TRANSACTION:
        broker.topics.ensure_internal_topic(TRANSACTIONS_TOPIC, context.now_ms)
    else:
        code = Code.INVALID_REQUEST
    host, port = broker.advertised(context) if code is Code.NONE else ("", -1)
    node_id = broker.node_id if code is Code.NONE else -1
    if context.api_version >= BATCHED_SINCE:
        rows = [
            Coordinator(key, node_id, host, port, code, error_message=None)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=rows)
    return FindCoordinatorResponse(
        error_code=code, error_message=None, node_id=node_id, host=host, port=port
    )
