"""The table of what each request asks of whom, and the step before each handler that asks it.

`authorized` puts the step around a row of `broker/requests/dispatch.py`, where there is an
authorizer; without one nothing of this is imported. A request without a row ends its connection: a
test holds the table to `protocol/api_table.py`. Source: KIP-11, KIP-98, KIP-290,
KIP-430 (operations), KIP-679, KIP-848, KIP-939, and what Apache Kafka 3.9 answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.outbox import Answer, Encoded
from barnabas.broker.security import guards
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.broker.security.guards import (
    Case,
    Guard,
    GuardParts,
    Rows,
    of_cluster,
    of_one,
    of_rows,
)

if TYPE_CHECKING:
    from barnabas.broker.requests.routes import Route
    from barnabas.broker.security.authorizer import Access
    from barnabas.protocol.api_table import Api
    from barnabas.protocol.messages.message import Message
    from barnabas.protocol.request_context import RequestContext

CLUSTER, GROUP, TOPIC = ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TOPIC
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
ALTER, ALTER_CONFIGS, CLUSTER_ACTION = (
    Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION,
)  # fmt: skip
CREATE, DELETE, DESCRIBE, DESCRIBE_CONFIGS = (
    Operation.CREATE, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
)  # fmt: skip
IDEMPOTENT_WRITE, READ, TWO_PHASE_COMMIT, WRITE = (
    Operation.IDEMPOTENT_WRITE, Operation.READ, Operation.TWO_PHASE_COMMIT, Operation.WRITE,
)  # fmt: skip


class Ask(NamedTuple):
    """An operation on a kind of resource. when: where it is not asked of each that the request
    names.
    """

    operation: Operation
    resource_type: ResourceType
    when: str = ""


class Rule(NamedTuple):
    """What a request asks, and what asks it. No asks: everybody may.

    is_all_allowed: of a request that is frequent, whether the guard would hand it on as it is.
    """

    asks: tuple[Ask, ...]
    guard: Guard
    is_all_allowed: Callable[[Any, Access], bool] | None = None


OPEN = Rule((), guards.nothing)
_OF_GROUP = Rule((Ask(READ, GROUP),), of_one(GROUP, READ, "group_id"))
_OR_OF_TOPIC = "or on the topic"

RULES: dict[str, Rule] = {
    "Produce": Rule(
        (Ask(WRITE, TOPIC), Ask(WRITE, TRANSACTIONAL_ID, "with batches of a transaction")),
        guards.produce,
        guards.may_produce_all,
    ),
    "Fetch": Rule(
        (Ask(READ, TOPIC), Ask(CLUSTER_ACTION, CLUSTER, "instead, as a replica")),
        guards.in_handler,
    ),
    "ListOffsets": Rule(
        (Ask(DESCRIBE, TOPIC),), of_rows(Rows(TOPIC, DESCRIBE, "topics", "topics"))
    ),
    "Metadata": Rule(
        (
            Ask(DESCRIBE, TOPIC, "others are left out where all are asked for"),
            Ask(CREATE, CLUSTER, "for a topic that is to be made"),
            Ask(CREATE, TOPIC, "or on the topic"),
            Ask(DESCRIBE, CLUSTER, "for the operations on it"),
        ),
        guards.in_handler,
    ),
    "OffsetCommit": Rule((Ask(READ, GROUP), Ask(READ, TOPIC)), guards.offset_commit),
    "OffsetFetch": Rule(
        (
            Ask(DESCRIBE, GROUP),
            Ask(DESCRIBE, TOPIC, "others are left out where all are asked for"),
        ),
        guards.offset_fetch_guard,
    ),
    "FindCoordinator": Rule(
        (Ask(DESCRIBE, GROUP), Ask(DESCRIBE, TRANSACTIONAL_ID)), guards.find_coordinator
    ),
    "JoinGroup": _OF_GROUP,
    "Heartbeat": _OF_GROUP,
    "LeaveGroup": _OF_GROUP,
    "SyncGroup": _OF_GROUP,
    "DescribeGroups": Rule((Ask(DESCRIBE, GROUP),), guards.describe_groups),
    "ListGroups": Rule(
        (Ask(DESCRIBE, CLUSTER), Ask(DESCRIBE, GROUP, "else, for each that is listed")),
        guards.list_groups,
    ),
    "SaslHandshake": OPEN,
    "ApiVersions": OPEN,
    "CreateTopics": Rule(
        (
            Ask(CREATE, CLUSTER),
            Ask(CREATE, TOPIC, _OR_OF_TOPIC),
            Ask(DESCRIBE_CONFIGS, TOPIC, "for the settings in the answer"),
        ),
        guards.create_topics_guard,
    ),
    "DeleteTopics": Rule(
        (
            Ask(DELETE, CLUSTER),
            Ask(DELETE, TOPIC, _OR_OF_TOPIC),
            Ask(DESCRIBE, TOPIC, "too, by its name; by its id, for the name in the answer"),
        ),
        guards.delete_topics_guard,
    ),
    "DeleteRecords": Rule((Ask(DELETE, TOPIC),), of_rows(Rows(TOPIC, DELETE, "topics", "topics"))),
    "InitProducerId": Rule(
        (
            Ask(WRITE, TRANSACTIONAL_ID),
            Ask(TWO_PHASE_COMMIT, TRANSACTIONAL_ID, "too, for two-phase commit"),
            Ask(IDEMPOTENT_WRITE, CLUSTER, "without a transactional id"),
            Ask(WRITE, TOPIC, "or on any topic"),
        ),
        guards.init_producer_id,
    ),
    "OffsetForLeaderEpoch": Rule(
        (Ask(CLUSTER_ACTION, CLUSTER), Ask(DESCRIBE, TOPIC, "or on each topic")),
        guards.offset_for_leader_epoch,
    ),
    "AddPartitionsToTxn": Rule(
        (
            Ask(WRITE, TRANSACTIONAL_ID),
            Ask(WRITE, TOPIC),
            Ask(CLUSTER_ACTION, CLUSTER, "instead, from version 4 on"),
        ),
        guards.add_partitions_to_txn_guard,
    ),
    "AddOffsetsToTxn": Rule(
        (Ask(WRITE, TRANSACTIONAL_ID), Ask(READ, GROUP)), guards.add_offsets_to_txn
    ),
    "EndTxn": Rule(
        (Ask(WRITE, TRANSACTIONAL_ID),), of_one(TRANSACTIONAL_ID, WRITE, "transactional_id")
    ),
    "WriteTxnMarkers": Rule(
        (Ask(ALTER, CLUSTER), Ask(CLUSTER_ACTION, CLUSTER, "or this")),
        of_cluster(ALTER, CLUSTER_ACTION),
    ),
    "TxnOffsetCommit": Rule(
        (Ask(WRITE, TRANSACTIONAL_ID), Ask(READ, GROUP), Ask(READ, TOPIC)),
        guards.txn_offset_commit,
    ),
    "DescribeAcls": Rule((Ask(DESCRIBE, CLUSTER),), of_cluster(DESCRIBE)),
    "CreateAcls": Rule((Ask(ALTER, CLUSTER),), of_cluster(ALTER)),
    "DeleteAcls": Rule((Ask(ALTER, CLUSTER),), of_cluster(ALTER)),
    "DescribeConfigs": Rule(
        (
            Ask(DESCRIBE_CONFIGS, TOPIC),
            Ask(DESCRIBE_CONFIGS, GROUP),
            Ask(DESCRIBE_CONFIGS, CLUSTER, "for brokers and clients' metrics"),
        ),
        guards.of_configs(DESCRIBE_CONFIGS, "results"),
    ),
    "AlterConfigs": Rule(
        (
            Ask(ALTER_CONFIGS, TOPIC),
            Ask(ALTER_CONFIGS, GROUP),
            Ask(ALTER_CONFIGS, CLUSTER, "for brokers and clients' metrics"),
        ),
        guards.of_configs(ALTER_CONFIGS, "responses"),
    ),
    "AlterReplicaLogDirs": Rule((Ask(ALTER, CLUSTER),), of_cluster(ALTER)),
    "DescribeLogDirs": Rule((Ask(DESCRIBE, CLUSTER),), of_cluster(DESCRIBE)),
    "SaslAuthenticate": OPEN,
    "CreatePartitions": Rule(
        (Ask(ALTER, TOPIC),), of_rows(Rows(TOPIC, ALTER, "topics", "results"))
    ),
    "DeleteGroups": Rule(
        (Ask(DELETE, GROUP),), of_rows(Rows(GROUP, DELETE, "groups_names", "results", None))
    ),
    "ElectLeaders": Rule((Ask(ALTER, CLUSTER),), of_cluster(ALTER)),
    "IncrementalAlterConfigs": Rule(
        (
            Ask(ALTER_CONFIGS, TOPIC),
            Ask(ALTER_CONFIGS, GROUP),
            Ask(ALTER_CONFIGS, CLUSTER, "for brokers and clients' metrics"),
        ),
        guards.of_configs(ALTER_CONFIGS, "responses"),
    ),
    "AlterPartitionReassignments": Rule((Ask(ALTER, CLUSTER),), of_cluster(ALTER)),
    "ListPartitionReassignments": Rule((Ask(DESCRIBE, CLUSTER),), of_cluster(DESCRIBE)),
    "OffsetDelete": Rule((Ask(DELETE, GROUP), Ask(READ, TOPIC)), guards.offset_delete_guard),
    "DescribeClientQuotas": Rule((Ask(DESCRIBE_CONFIGS, CLUSTER),), of_cluster(DESCRIBE_CONFIGS)),
    "AlterClientQuotas": Rule((Ask(ALTER_CONFIGS, CLUSTER),), of_cluster(ALTER_CONFIGS)),
    "DescribeUserScramCredentials": Rule((Ask(DESCRIBE, CLUSTER),), of_cluster(DESCRIBE)),
    "AlterUserScramCredentials": Rule((Ask(ALTER, CLUSTER),), of_cluster(ALTER)),
    "DescribeQuorum": Rule((Ask(DESCRIBE, CLUSTER),), of_cluster(DESCRIBE)),
    "CreateDelegationToken": OPEN,  # there are no tokens: everybody is told so
    "RenewDelegationToken": OPEN,
    "ExpireDelegationToken": OPEN,
    "DescribeDelegationToken": OPEN,
    "UnregisterBroker": Rule((Ask(ALTER, CLUSTER),), of_cluster(ALTER)),
    "AddRaftVoter": Rule((Ask(ALTER, CLUSTER),), of_cluster(ALTER)),
    "RemoveRaftVoter": Rule((Ask(ALTER, CLUSTER),), of_cluster(ALTER)),
    "UpdateFeatures": Rule((Ask(ALTER, CLUSTER),), of_cluster(ALTER)),
    "GetTelemetrySubscriptions": OPEN,
    "PushTelemetry": OPEN,
    "DescribeCluster": Rule(
        (Ask(DESCRIBE, CLUSTER, "for the operations on it"),), guards.describe_cluster
    ),
    "DescribeProducers": Rule((Ask(READ, TOPIC),), of_rows(Rows(TOPIC, READ, "topics", "topics"))),
    "DescribeTransactions": Rule(
        (Ask(DESCRIBE, TRANSACTIONAL_ID), Ask(DESCRIBE, TOPIC, "for each in the answer")),
        guards.describe_transactions,
    ),
    "ListTransactions": Rule(
        (Ask(DESCRIBE, TRANSACTIONAL_ID, "for each that is listed"),), guards.in_handler
    ),
    "ConsumerGroupHeartbeat": Rule(
        (
            Ask(READ, GROUP),
            Ask(DESCRIBE, TOPIC, "for each that is subscribed by its name, or assigned"),
        ),
        guards.consumer_group_heartbeat_guard,
    ),
    "ConsumerGroupDescribe": Rule(
        (Ask(DESCRIBE, GROUP), Ask(DESCRIBE, TOPIC, "for all that it reads")),
        guards.consumer_group_describe_guard,
    ),
    "ListConfigResources": Rule((Ask(DESCRIBE_CONFIGS, CLUSTER),), of_cluster(DESCRIBE_CONFIGS)),
    "DescribeTopicPartitions": Rule(
        (Ask(DESCRIBE, TOPIC, "others are left out where all are asked for"),),
        guards.describe_topic_partitions_guard,
    ),
}
"""By the request's name."""


def authorized(parts: GuardParts, api: Api, row: Route) -> Route:
    """The row with the step before its handler."""
    _, guard, is_all_allowed = RULES[api.name]
    if guard in (guards.nothing, guards.in_handler):
        return row
    handle = row.handle

    def handle_authorized(request: Message, context: RequestContext) -> Answer:
        access = parts.access.of(context)
        assert access is not None, "there is an authorizer"
        if is_all_allowed is not None and is_all_allowed(request, access):
            return handle(request, context)
        answer = guard(Case(parts, api, handle, request, context, access))
        return parts.requests.amendable(context, answer) if isinstance(answer, Encoded) else answer

    return row._replace(handle=handle_authorized)
