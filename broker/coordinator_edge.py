"""Around the requests of coordinators, where a process is several brokers.

A coordinator of groups or transactions is the broker that leads the partition of the internal topic
in which it keeps them. Here, before its handler, a request that came to another one is refused with
NOT_COORDINATOR; of a request about several, those that are another's. Lists of what a broker
coordinates leave out what others do. What always writes is refused with COORDINATOR_NOT_AVAILABLE
while fewer replicas of that partition are in sync than it wants, as Apache Kafka answers where its
coordinator's append is refused. The coordinators themselves know nothing of it.

| requests | what becomes of them |
|---|---|
| `SINGLE`: about one group or transactional id | refused as a whole |
| `SEVERAL`: about a list of them | those of other brokers are refused, the rest is answered |
| `LISTS`: of all that the broker coordinates | the answer has those alone |

With one broker none of it is imported.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.dispatch import Route
from barnabas.broker.outbox import Answer, CoordinatorWait
from barnabas.broker.refusals import refusal
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.protocol.errors import Code

if TYPE_CHECKING:
    from barnabas.broker.core import Broker
    from barnabas.protocol.api_table import Api
    from barnabas.protocol.messages.message import Message
    from barnabas.protocol.request_context import RequestContext


class One(NamedTuple):
    """A field of a request: the group or transactional id that it is about."""

    topic: str
    field: str


class Several(NamedTuple):
    """A field of a request, a list: of texts, or of rows that have the text in a field. rows: the
    list in its answer, in the same order. since: the first version that has it.
    """

    topic: str
    field: str
    rows: str
    key: str | None = None
    since: int = 0


SINGLE = {
    "OffsetCommit": One(OFFSETS_TOPIC, "group_id"),
    "OffsetFetch": One(OFFSETS_TOPIC, "group_id"),
    "JoinGroup": One(OFFSETS_TOPIC, "group_id"),
    "Heartbeat": One(OFFSETS_TOPIC, "group_id"),
    "LeaveGroup": One(OFFSETS_TOPIC, "group_id"),
    "SyncGroup": One(OFFSETS_TOPIC, "group_id"),
    "OffsetDelete": One(OFFSETS_TOPIC, "group_id"),
    "TxnOffsetCommit": One(OFFSETS_TOPIC, "group_id"),
    "ConsumerGroupHeartbeat": One(OFFSETS_TOPIC, "group_id"),
    "InitProducerId": One(TRANSACTIONS_TOPIC, "transactional_id"),
    "AddPartitionsToTxn": One(TRANSACTIONS_TOPIC, "v3_and_below_transactional_id"),
    "AddOffsetsToTxn": One(TRANSACTIONS_TOPIC, "transactional_id"),
    "EndTxn": One(TRANSACTIONS_TOPIC, "transactional_id"),
}
WRITING = frozenset(
    {
        "OffsetCommit",
        "OffsetDelete",
        "TxnOffsetCommit",
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
    }
)
SEVERAL = {
    "OffsetFetch": Several(OFFSETS_TOPIC, "groups", "groups", "group_id", 8),
    "DescribeGroups": Several(OFFSETS_TOPIC, "groups", "groups"),
    "ConsumerGroupDescribe": Several(OFFSETS_TOPIC, "group_ids", "groups"),
    "DeleteGroups": Several(OFFSETS_TOPIC, "groups_names", "results"),
    "DescribeTransactions": Several(TRANSACTIONS_TOPIC, "transactional_ids", "transaction_states"),
    "AddPartitionsToTxn": Several(
        TRANSACTIONS_TOPIC, "transactions", "results_by_transaction", "transactional_id", 4
    ),
}
LISTS = {
    "ListGroups": Several(OFFSETS_TOPIC, "", "groups", "group_id"),
    "ListTransactions": Several(TRANSACTIONS_TOPIC, "", "transaction_states", "transactional_id"),
}


def at_coordinator(broker: Broker, api: Api, row: Route) -> Route:
    """The row with what is done around it; the row itself where it is no coordinator's."""
    if api.name not in SINGLE and api.name not in SEVERAL and api.name not in LISTS:
        return row
    edge = _Edge(broker, api, row)
    return row._replace(handle=edge.handle)


class _Edge:
    """One API's requests, on their way to its handler."""

    def __init__(self, broker: Broker, api: Api, row: Route) -> None:
        self._broker, self._api, self._handle = broker, api, row.handle
        self._one, self._several = SINGLE.get(api.name), SEVERAL.get(api.name)
        self._list = LISTS.get(api.name)

    def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer a request, or refuse what of it is another broker's."""
        if self._api.name == "InitProducerId":
            self._broker.node_producer_ids.serve(context)
        if self._list is not None:
            listed = self._list
            self._broker.amend(
                context.ticket, lambda answer: self._keep_own(listed, answer, context)
            )
            return self._handle(request, context)
        if self._several is not None and context.api_version >= self._several.since:
            return self._handle_several(self._several, request, context)
        assert self._one is not None
        key = getattr(request, self._one.field)
        if not key:
            return self._handle(request, context)  # no group or transactional id: its handler knows
        if self._api.name in WRITING and not self._may_write(self._one.topic, key, context):
            return self._refusal(request, context, Code.COORDINATOR_NOT_AVAILABLE)
        return self._handle_keys(self._one.topic, [key], request, context)

    def _handle_several(self, several: Several, request: Any, context: RequestContext) -> Answer:
        items = getattr(request, several.field)

        def key_of(item: Any) -> str:
            key: str = item if several.key is None else getattr(item, several.key)
            return key

        own = [item for item in items if self._is_own(several.topic, key_of(item), context)]
        if len(own) == len(items):
            return self._handle_keys(several.topic, [key_of(one) for one in own], request, context)
        foreign = copy.copy(request)
        setattr(foreign, several.field, [item for item in items if item not in own])
        refused: Any = self._refusal(foreign, context)
        if not own:
            return refused  # type: ignore[no-any-return]
        setattr(request, several.field, own)
        self._broker.amend(
            context.ticket,
            lambda answer: getattr(answer, several.rows).extend(getattr(refused, several.rows)),
        )
        return self._handle(request, context)

    def _handle_keys(
        self, topic: str, keys: list[str], request: Any, context: RequestContext
    ) -> Answer:
        """Hand on a request about these, all of this broker or refused; while it waits for its
        answer, they have to stay this broker's.
        """
        if not all(self._is_own(topic, key, context) for key in keys):
            return self._refusal(request, context)
        answer = self._handle(request, context)
        connection = self._broker.connections.get(context.connection_id)
        if connection is not None and connection.parked_ticket == context.ticket:
            cluster = self._broker.cluster
            connection.waits_for_coordinator = CoordinatorWait(
                context.ticket,
                topic,
                frozenset(cluster.coordinator_partition(topic, key).partition for key in keys),
                lambda: self._refusal(request, context),
            )
        return answer

    def _may_write(self, topic: str, key: str, context: RequestContext) -> bool:
        """Whether enough replicas are in sync of what this broker coordinates; also where another
        one does, which is refused elsewhere.
        """
        cluster = self._broker.cluster
        return not self._is_own(topic, key, context) or cluster.has_enough_in_sync(
            *cluster.coordinator_partition(topic, key)
        )

    def _refusal(
        self, request: Any, context: RequestContext, code: Code = Code.NOT_COORDINATOR
    ) -> Message:
        return refusal(self._api, context.api_version, request, code)

    def _keep_own(self, listed: Several, answer: Any, context: RequestContext) -> None:
        assert listed.key is not None
        rows = getattr(answer, listed.rows)
        rows[:] = [
            row for row in rows if self._is_own(listed.topic, getattr(row, listed.key), context)
        ]

    def _is_own(self, topic: str, key: str, context: RequestContext) -> bool:
        cluster = self._broker.cluster
        partition = cluster.coordinator_partition(topic, key)
        return cluster.leads(context.node_id, *partition)
