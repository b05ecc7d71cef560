"""FindCoordinator: this broker, whoever asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.outbox import Context
from barnabas.broker.shard_host import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.protocol import messages
from barnabas.protocol.errors import Code

if TYPE_CHECKING:
    from barnabas.broker.core import Broker

GROUP, TRANSACTION = 0, 1
BATCHED_SINCE = 4


def on_find_coordinator(broker: Broker, request: Any, context: Context) -> Any:
    """The coordinator of groups and transactional ids. Its internal topic is made now, as clients of Kafka expect. INVALID_REQUEST: other kinds."""
    code = Code.NONE
    if request.key_type == GROUP:
        broker.ensure_internal_topic(OFFSETS_TOPIC, context.now_ms)
    elif request.key_type == TRANSACTION:
        broker.ensure_internal_topic(TRANSACTIONS_TOPIC, context.now_ms)
    else:
        code = Code.INVALID_REQUEST
    host, port = broker.advertised(context) if code is Code.NONE else ("", -1)
    node_id = broker.node_id if code is Code.NONE else -1
    response_class = messages.message_class("metadata", "FindCoordinatorResponse")
    found = {"error_code": int(code), "error_message": None, "node_id": node_id, "host": host, "port": port}
    if context.api_version >= BATCHED_SINCE:
        rows = [response_class.Coordinator(key=key, **found) for key in request.coordinator_keys or ()]
        return response_class(throttle_time_ms=0, coordinators=rows)
    return response_class(throttle_time_ms=0, **found)
