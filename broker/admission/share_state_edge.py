"""Checks around the requests for share coordinators (KIP-932), in a process with several brokers.

The coordinator of a share partition is the broker that leads the partition of __share_group_state
in which its state is stored. Each row of a request is about one share partition. A row is refused
with NOT_COORDINATOR if another broker is its coordinator. While too few replicas are in sync, rows
of requests that write are refused with COORDINATOR_NOT_AVAILABLE. The other rows are handled. The
broker's own share groups use the coordinator without requests.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barnabas.broker.connections.connection_state import CoordinatorWait
from barnabas.broker.outbox import Answer
from barnabas.broker.routes import Route
from barnabas.coordinator.internal_topics import SHARE_STATE_TOPIC
from barnabas.coordinator.share_states.share_messages import StateRequest
from barnabas.coordinator.share_states.share_records import (
    NO_TOPIC_ID,
    SharePartitionKey,
    coordinator_key,
)
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.request_context import RequestContext

if TYPE_CHECKING:
    from barnabas.broker.admission.coordinator_edge import CoordinatorEdge


class ShareStateEdge:
    """The checks for one API's requests.

    Takes: writes, whether the requests write. A read with a higher leader epoch also writes.
    """

    def __init__(self, edge: CoordinatorEdge, route: Route, *, writes: bool) -> None:
        self._edge, self._handle, self._writes = edge, route.handle, writes

    def handle(self, request: StateRequest, context: RequestContext) -> Answer:
        """Handle a request, and refuse the rows that other brokers coordinate."""
        cluster = self._edge.cluster
        refused: dict[Code, list[Any]] = {}
        served: list[Any] = []
        indexes: set[int] = set()
        for topic in request.topics:
            by_code: dict[Code, list[Any]] = {}
            for row in topic.partitions:
                place = cluster.coordinator_partition(
                    SHARE_STATE_TOPIC, _key(request.group_id, topic.topic_id, row.partition)
                )
                code = Code.NONE
                if not cluster.leads(context.node_id, *place):
                    code = Code.NOT_COORDINATOR
                elif self._writes and not cluster.has_enough_in_sync(*place):
                    code = Code.COORDINATOR_NOT_AVAILABLE
                else:
                    indexes.add(place.partition)
                by_code.setdefault(code, []).append(row)
            for code, rows in by_code.items():
                part = copy.copy(topic)
                part.partitions = rows
                (refused.setdefault(code, []) if code else served).append(part)
        results = [
            result
            for code, topics in refused.items()
            for result in self._refusal(request, topics, code, context).results
        ]
        if not served and results:
            refusal: Message = _with_results(
                self._refusal(request, [], Code.NONE, context), results
            )
            return refusal
        whole: Any = request
        if results:
            whole = copy.copy(request)
            whole.topics = served
            self._edge.requests.amend(context.ticket, lambda answer: _with_results(answer, results))
        answer = self._handle(whole, context)
        connection = self._edge.connections.get(context.connection_id)
        if connection is not None and connection.parked_ticket == context.ticket:
            connection.waits_for_coordinator = CoordinatorWait(
                context.ticket,
                SHARE_STATE_TOPIC,
                frozenset(indexes),
                lambda: self._refusal(request, served, Code.NOT_COORDINATOR, context),
            )
        return answer

    def _refusal(
        self, request: StateRequest, topics: Sequence[Any], code: Code, context: RequestContext
    ) -> Any:
        """The response that refuses the given rows of a request."""
        part: Any = copy.copy(request)
        part.topics = list(topics)
        return part.error_response(context.api_version, code)


def _key(group_id: str, topic_id: Any, partition: int) -> str:
    id_bytes = NO_TOPIC_ID if topic_id is None else topic_id.bytes
    return coordinator_key(SharePartitionKey(group_id, id_bytes, partition))


def _with_results(answer: Any, results: Sequence[Any]) -> Any:
    """Add rows to a response. A row is added to its topic if the response already has the topic."""
    of_topics = {one.topic_id: one for one in answer.results}
    for result in results:
        if result.topic_id in of_topics:
            of_topics[result.topic_id].partitions.extend(result.partitions)
        else:
            of_topics[result.topic_id] = result
            answer.results.append(result)
    return answer
