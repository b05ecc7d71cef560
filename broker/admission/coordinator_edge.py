"""Checks around requests for coordinators, in a process with several brokers.

The coordinator of a group or transaction is the broker that leads the partition of the internal
topic in which it is stored. If another broker receives the request, it is refused here with
NOT_COORDINATOR before its handler is called. In a request about several groups or ids, only those
of other brokers are refused. Lists omit the groups and transactions of other brokers. Requests that
write are refused with COORDINATOR_NOT_AVAILABLE while too few replicas of that partition are in
sync. Apache Kafka responds in the same way when its coordinator's append is refused. The
coordinators themselves are not involved.

| requests | result |
|---|---|
| `one`: about one group or transactional id | refused as a whole |
| `several`: about a list of these | those of other brokers are refused, the rest is answered |
| `listed`: all that the broker coordinates | the response lists only this broker's |
| `share_state_writes`: about share partitions | those of other brokers are refused |

| while too few replicas are in sync | refused |
|---|---|
| `writes` | always; of several groups or ids, those that are stored in the partition |
| SyncGroup | from the group's leader, whose assignments complete a rebalance |
| `heartbeats` | if a member joins or leaves, or if the Result has records, which are dropped |

The row of an API (`coordination.py`) says which of these it is. With one broker this module is not
imported. It is made before the coordinators, which it takes at the first request for one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from barnabas.broker.admission.coordination import Coordination, Heartbeats, Several
from barnabas.broker.admission.share_state_edge import ShareStateEdge
from barnabas.broker.brokers.cluster import Cluster, NodeProducerIds
from barnabas.broker.connections.connection_state import ConnectionState, CoordinatorWait
from barnabas.broker.outbox import PARKED, Answer
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.routes import Route
from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.protocol.request_context import RequestContext

if TYPE_CHECKING:
    from barnabas.broker.groups.group_runtime import GroupRuntime
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator

Heartbeat = (
    ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest | StreamsGroupHeartbeatRequest
)


class GroupParts(Protocol):
    """The coordinator of groups, and the part that carries out its decisions."""

    @property
    def groups(self) -> GroupCoordinator: ...

    @property
    def group_runtime(self) -> GroupRuntime: ...


class CoordinatorEdge:
    """The checks around the requests for coordinators."""

    def __init__(
        self,
        cluster: Cluster,
        node_producer_ids: NodeProducerIds,
        connections: Mapping[int, ConnectionState],
        requests: Requests,
        coordinators: Callable[[], GroupParts],
        features: CurrentFeatures,
    ) -> None:
        self.cluster, self.node_producer_ids = cluster, node_producer_ids
        self.connections, self.requests = connections, requests
        self.coordinators, self.features = coordinators, features

    def around(self, coordination: Coordination, route: Route) -> Route:
        """The route with these checks around its handler."""
        writes = coordination.share_state_writes
        if writes is not None:
            return route._replace(handle=ShareStateEdge(self, route, writes=writes).handle)
        return route._replace(handle=_Edge(self, coordination, route).handle)


class _Edge:
    """The checks for one API's requests."""

    def __init__(self, edge: CoordinatorEdge, coordination: Coordination, route: Route) -> None:
        self._edge, self._handle, self._name = edge, route.handle, route.name
        self._one, self._several = coordination.one, coordination.several
        self._list, self._heartbeats = coordination.listed, coordination.heartbeats
        self._writes = coordination.writes

    def handle(self, request: Message, context: RequestContext) -> Answer:
        """Handle a request, and refuse the parts of it that other brokers coordinate."""
        if self._name == "InitProducerId":
            self._edge.node_producer_ids.serve(context)
        if self._list is not None:
            listed = self._list
            self._edge.requests.amend(
                context.ticket, lambda answer: self._keep_own(listed, answer, context)
            )
            return self._handle(request, context)
        if self._several is not None and context.api_version >= self._several.since:
            return self._handle_several(self._several, request, context)
        assert self._one is not None
        key = getattr(request, self._one.field)
        if not key:
            # the handler answers a request without a group or id
            return self._handle(request, context)
        if self._lacks_replicas(self._one.topic, key, context):
            if self._writes:
                return self._refusal(request, context, Code.COORDINATOR_NOT_AVAILABLE)
            if isinstance(request, SyncGroupRequest):
                if self._edge.coordinators().groups.membership.completes_rebalance(request):
                    return self._refusal(request, context, Code.COORDINATOR_NOT_AVAILABLE)
            elif self._heartbeats is not None:
                heartbeat = cast("Heartbeat", request)
                return self._handle_heartbeat(self._heartbeats, heartbeat, context)
        return self._handle_keys(self._one.topic, [key], request, context)

    def _handle_several(
        self, several: Several, request: Message, context: RequestContext
    ) -> Answer:
        """Handle a request that names several groups or ids: pass those that this broker
        coordinates to the handler, and add the refusals of the others to its answer.
        """
        items = getattr(request, several.field)

        def key_of(item: Any) -> str:
            key: str = item if several.key is None else getattr(item, several.key)
            return key

        def code_of(item: Any) -> Code:
            if not self._is_own(several.topic, key_of(item), context):
                return Code.NOT_COORDINATOR
            writes = self._writes and not getattr(item, "verify_only", False)
            if writes and self._lacks_replicas(several.topic, key_of(item), context):
                return Code.COORDINATOR_NOT_AVAILABLE
            return Code.NONE

        codes = [code_of(item) for item in items]
        served = [item for item, code in zip(items, codes, strict=True) if not code]
        if len(served) == len(items):
            return self._handle_keys(
                several.topic, [key_of(one) for one in items], request, context
            )
        refusals: list[Any] = []
        for refusing in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE):
            refused = copy.copy(request)
            of_code = [item for item, code in zip(items, codes, strict=True) if code is refusing]
            setattr(refused, several.field, of_code)
            if of_code:
                refusals.append(self._refusal(refused, context, refusing))
        first, *others = refusals
        for other in others:
            getattr(first, several.rows).extend(getattr(other, several.rows))
        if not served:
            return first  # type: ignore[no-any-return]
        setattr(request, several.field, served)
        self._edge.requests.amend(
            context.ticket,
            lambda answer: getattr(answer, several.rows).extend(getattr(first, several.rows)),
        )
        return self._handle(request, context)

    def _handle_heartbeat(
        self, decided: Heartbeats, request: Heartbeat, context: RequestContext
    ) -> Answer:
        """Handle a heartbeat of a group whose records cannot be written.

        The heartbeat renews the session. A change is refused and its records are dropped; the
        member repeats the change with its next heartbeat.
        """
        edge = self._edge
        made = edge.coordinators()
        if not decided.are_spoken(edge.features):
            return self._handle(request, context)
        if request.member_epoch > 0:
            result = decided.decide(made.groups)(request, context, context.now_ms)
            if not result.records:
                edge.requests.park(context)
                made.group_runtime.run(result, context.now_ms)
                return PARKED
            made.groups.on_records_dropped(request.group_id)
        return self._refusal(request, context, Code.COORDINATOR_NOT_AVAILABLE)

    def _handle_keys(
        self, topic: str, keys: list[str], request: Message, context: RequestContext
    ) -> Answer:
        """Pass a request to its handler if this broker coordinates all of `keys`; otherwise refuse
        it. It is also refused if one of the keys gets another coordinator while the request waits.
        """
        if not all(self._is_own(topic, key, context) for key in keys):
            return self._refusal(request, context)
        answer = self._handle(request, context)
        connection = self._edge.connections.get(context.connection_id)
        if connection is not None and connection.parked_ticket == context.ticket:
            cluster = self._edge.cluster
            connection.waits_for_coordinator = CoordinatorWait(
                context.ticket,
                topic,
                frozenset(cluster.coordinator_partition(topic, key).partition for key in keys),
                lambda: self._refusal(request, context),
            )
        return answer

    def _lacks_replicas(self, topic: str, key: str, context: RequestContext) -> bool:
        """Whether this broker coordinates a key, but too few replicas of the partition that stores
        the key are in sync. False for keys of other brokers, whose requests are refused elsewhere.
        """
        cluster = self._edge.cluster
        return self._is_own(topic, key, context) and not cluster.has_enough_in_sync(
            *cluster.coordinator_partition(topic, key)
        )

    def _refusal(
        self, request: Message, context: RequestContext, code: Code = Code.NOT_COORDINATOR
    ) -> Message:
        return request.error_response(context.api_version, code)

    def _keep_own(self, listed: Several, answer: Any, context: RequestContext) -> None:
        """Remove the rows of groups or ids that other brokers coordinate from the answer to a list
        request.
        """
        assert listed.key is not None
        rows = getattr(answer, listed.rows)
        rows[:] = [
            row for row in rows if self._is_own(listed.topic, getattr(row, listed.key), context)
        ]

    def _is_own(self, topic: str, key: str, context: RequestContext) -> bool:
        """Whether this broker coordinates a group or transactional id."""
        cluster = self._edge.cluster
        partition = cluster.coordinator_partition(topic, key)
        return cluster.leads(context.node_id, *partition)
