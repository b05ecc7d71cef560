"""The table of the permissions that each request needs, and the steps that check them.

With an authorizer, `authorized` puts the steps of a rule around a row of
`broker/dispatch.py`. Without an authorizer this module is not imported. A request without
a rule ends its connection; a test checks that every API of `protocol/api_table.py` has a rule.
Source: KIP-11, KIP-98, KIP-290, KIP-430 (operations), KIP-679, KIP-848, KIP-932, KIP-939, and the
responses of Apache Kafka 3.9.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.admission import guards, share_guards, streams_guards
from barnabas.broker.admission.guard_steps import (
    Ask,
    Case,
    GuardParts,
    Rule,
    by_hand,
    each,
    enough_on_cluster,
    every,
    in_answer,
    in_handler,
    on_cluster,
    operations_of,
    rule,
    whole,
)
from barnabas.broker.outbox import Answer, Encoded
from barnabas.broker.security.acls import Operation, ResourceType

if TYPE_CHECKING:
    from barnabas.broker.routes import Route
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

OPEN = rule()
_OF_GROUP = rule(whole(READ, GROUP, "group_id"))
_ALTER_CLUSTER, _DESCRIBE_CLUSTER = rule(on_cluster(ALTER)), rule(on_cluster(DESCRIBE))
_CLUSTER_ACTION = rule(on_cluster(CLUSTER_ACTION))
_OTHERS_LEFT_OUT = "others are left out where all are asked for"


def _of_configs(operation: Operation) -> Rule:
    """The rule of a request for configs: the operation on each topic or group, and on the cluster
    for other resources.
    """
    of_cluster = "for brokers and clients' metrics"
    asks = Ask(operation, TOPIC), Ask(operation, GROUP), Ask(operation, CLUSTER, of_cluster)
    return rule(by_hand(partial(guards.configs, operation=operation), *asks))


RULES: dict[str, Rule] = {
    "Produce": rule(
        by_hand(
            guards.produce,
            Ask(WRITE, TOPIC),
            Ask(WRITE, TRANSACTIONAL_ID, "with batches of a transaction"),
        ),
        is_all_allowed=guards.may_produce_all,
    ),
    "Fetch": rule(
        in_handler(Ask(READ, TOPIC), Ask(CLUSTER_ACTION, CLUSTER, "instead, as a replica"))
    ),
    "ListOffsets": rule(each(DESCRIBE, TOPIC, "topics.name")),
    "Metadata": rule(
        in_handler(
            Ask(DESCRIBE, TOPIC, _OTHERS_LEFT_OUT),
            Ask(CREATE, CLUSTER, "for a topic that is to be made"),
            Ask(CREATE, TOPIC, "or on the topic"),
            Ask(DESCRIBE, CLUSTER, "for the operations on it"),
        )
    ),
    "OffsetCommit": rule(
        whole(READ, GROUP, "group_id"), each(READ, TOPIC, "topics.name", by_id=True)
    ),
    "OffsetFetch": rule(
        by_hand(
            guards.offset_fetch_step,
            Ask(DESCRIBE, GROUP),
            Ask(DESCRIBE, TOPIC, _OTHERS_LEFT_OUT),
        )
    ),
    "FindCoordinator": rule(
        by_hand(
            guards.find_coordinator,
            Ask(DESCRIBE, GROUP),
            Ask(DESCRIBE, TRANSACTIONAL_ID),
            Ask(CLUSTER_ACTION, CLUSTER, "for a share partition"),
        )
    ),
    "JoinGroup": _OF_GROUP,
    "Heartbeat": _OF_GROUP,
    "LeaveGroup": _OF_GROUP,
    "SyncGroup": _OF_GROUP,
    "DescribeGroups": rule(
        operations_of("groups", GROUP, "group_id", "authorized_operations"),
        each(DESCRIBE, GROUP, "groups"),
    ),
    "ListGroups": rule(
        in_answer(
            guards.hide_groups,
            Ask(DESCRIBE, CLUSTER),
            Ask(DESCRIBE, GROUP, "else, for each that is listed"),
        )
    ),
    "SaslHandshake": OPEN,
    "ApiVersions": OPEN,
    "CreateTopics": rule(
        enough_on_cluster(CREATE),
        each(CREATE, TOPIC, "topics.name", "or on the topic"),
        in_handler(Ask(DESCRIBE_CONFIGS, TOPIC, "for the settings in the answer")),
    ),
    "DeleteTopics": rule(
        enough_on_cluster(DELETE),
        by_hand(
            guards.delete_topics_step,
            Ask(DELETE, TOPIC, "or on the topic"),
            Ask(DESCRIBE, TOPIC, "too, by its name; by its id, for the name in the answer"),
        ),
    ),
    "DeleteRecords": rule(each(DELETE, TOPIC, "topics.name")),
    "InitProducerId": rule(
        by_hand(
            guards.init_producer_id,
            Ask(WRITE, TRANSACTIONAL_ID),
            Ask(TWO_PHASE_COMMIT, TRANSACTIONAL_ID, "too, for two-phase commit"),
            Ask(IDEMPOTENT_WRITE, CLUSTER, "without a transactional id"),
            Ask(WRITE, TOPIC, "or on any topic"),
        )
    ),
    "OffsetForLeaderEpoch": rule(
        enough_on_cluster(CLUSTER_ACTION, is_audited=False),
        each(DESCRIBE, TOPIC, "topics.topic", "or on each topic"),
    ),
    "AddPartitionsToTxn": rule(
        by_hand(
            guards.add_partitions,
            Ask(WRITE, TRANSACTIONAL_ID),
            Ask(WRITE, TOPIC),
            Ask(CLUSTER_ACTION, CLUSTER, "instead, from version 4 on"),
        )
    ),
    "AddOffsetsToTxn": rule(
        whole(WRITE, TRANSACTIONAL_ID, "transactional_id"), whole(READ, GROUP, "group_id")
    ),
    "EndTxn": rule(whole(WRITE, TRANSACTIONAL_ID, "transactional_id")),
    "WriteTxnMarkers": rule(on_cluster(ALTER, CLUSTER_ACTION)),
    "TxnOffsetCommit": rule(
        whole(WRITE, TRANSACTIONAL_ID, "transactional_id"),
        whole(READ, GROUP, "group_id"),
        each(READ, TOPIC, "topics.name"),
    ),
    "DescribeAcls": _DESCRIBE_CLUSTER,
    "CreateAcls": _ALTER_CLUSTER,
    "DeleteAcls": _ALTER_CLUSTER,
    "DescribeConfigs": _of_configs(DESCRIBE_CONFIGS),
    "AlterConfigs": _of_configs(ALTER_CONFIGS),
    "AlterReplicaLogDirs": _ALTER_CLUSTER,
    "DescribeLogDirs": _DESCRIBE_CLUSTER,
    "SaslAuthenticate": OPEN,
    "CreatePartitions": rule(each(ALTER, TOPIC, "topics.name")),
    # Every client may send these requests, since the handler refuses all of them: there are no
    # delegation tokens.
    "CreateDelegationToken": OPEN,
    "RenewDelegationToken": OPEN,
    "ExpireDelegationToken": OPEN,
    "DescribeDelegationToken": OPEN,
    "DeleteGroups": rule(each(DELETE, GROUP, "groups_names")),
    "ElectLeaders": _ALTER_CLUSTER,
    "IncrementalAlterConfigs": _of_configs(ALTER_CONFIGS),
    "AlterPartitionReassignments": _ALTER_CLUSTER,
    "ListPartitionReassignments": _DESCRIBE_CLUSTER,
    "OffsetDelete": rule(whole(DELETE, GROUP, "group_id"), each(READ, TOPIC, "topics.name")),
    "DescribeClientQuotas": rule(on_cluster(DESCRIBE_CONFIGS)),
    "AlterClientQuotas": rule(on_cluster(ALTER_CONFIGS)),
    "DescribeUserScramCredentials": _DESCRIBE_CLUSTER,
    "AlterUserScramCredentials": _ALTER_CLUSTER,
    "DescribeQuorum": _DESCRIBE_CLUSTER,
    "UpdateFeatures": _ALTER_CLUSTER,
    "DescribeCluster": rule(
        in_answer(
            guards.hide_cluster_operations, Ask(DESCRIBE, CLUSTER, "for the operations on it")
        )
    ),
    "DescribeProducers": rule(each(READ, TOPIC, "topics.name")),
    "UnregisterBroker": _ALTER_CLUSTER,
    "DescribeTransactions": rule(
        each(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids"),
        in_answer(
            guards.hide_topics_of_transactions, Ask(DESCRIBE, TOPIC, "for each in the answer")
        ),
    ),
    "ListTransactions": rule(
        in_handler(Ask(DESCRIBE, TRANSACTIONAL_ID, "for each that is listed"))
    ),
    "ConsumerGroupHeartbeat": rule(
        whole(READ, GROUP, "group_id"),
        every(
            DESCRIBE,
            TOPIC,
            "subscribed_topic_names",
            "for each that is subscribed by its name, or assigned",
        ),
        in_answer(guards.hide_assigned_topics),
    ),
    "ConsumerGroupDescribe": rule(
        each(DESCRIBE, GROUP, "group_ids"),
        in_answer(
            guards.hide_groups_of_hidden_topics, Ask(DESCRIBE, TOPIC, "for all that it reads")
        ),
        operations_of("groups", GROUP, "group_id", "authorized_operations"),
    ),
    "ShareFetch": rule(whole(READ, GROUP, "group_id"), in_handler(Ask(READ, TOPIC))),
    "ShareAcknowledge": rule(whole(READ, GROUP, "group_id"), in_handler(Ask(READ, TOPIC))),
    "ShareGroupHeartbeat": rule(
        whole(READ, GROUP, "group_id"),
        every(DESCRIBE, TOPIC, "subscribed_topic_names", "for each that is subscribed"),
    ),
    "ShareGroupDescribe": rule(
        each(DESCRIBE, GROUP, "group_ids"),
        in_answer(
            guards.hide_groups_of_hidden_topics, Ask(DESCRIBE, TOPIC, "for all that it reads")
        ),
        operations_of("groups", GROUP, "group_id", "authorized_operations"),
    ),
    "DescribeShareGroupOffsets": rule(
        by_hand(share_guards.describe_offsets, Ask(DESCRIBE, TOPIC, _OTHERS_LEFT_OUT)),
        each(DESCRIBE, GROUP, "groups.group_id"),
    ),
    "AlterShareGroupOffsets": rule(
        whole(READ, GROUP, "group_id"), by_hand(share_guards.alter_offsets, Ask(READ, TOPIC))
    ),
    "DeleteShareGroupOffsets": rule(
        whole(DELETE, GROUP, "group_id"), by_hand(share_guards.delete_offsets, Ask(READ, TOPIC))
    ),
    "InitializeShareGroupState": _CLUSTER_ACTION,
    "ReadShareGroupState": _CLUSTER_ACTION,
    "WriteShareGroupState": _CLUSTER_ACTION,
    "DeleteShareGroupState": _CLUSTER_ACTION,
    "ReadShareGroupStateSummary": _CLUSTER_ACTION,
    "StreamsGroupHeartbeat": rule(
        whole(READ, GROUP, "group_id"),
        by_hand(
            streams_guards.describe_topology,
            Ask(DESCRIBE, TOPIC, "for each of the topology of a member that joins"),
        ),
        in_handler(
            Ask(CREATE, CLUSTER, "for internal topics that are to be made"),
            Ask(CREATE, TOPIC, "or on each of them"),
        ),
    ),
    "StreamsGroupDescribe": rule(
        each(DESCRIBE, GROUP, "group_ids"),
        in_answer(
            streams_guards.hide_groups_of_hidden_topics,
            Ask(DESCRIBE, TOPIC, "for all of its topology"),
        ),
        operations_of("groups", GROUP, "group_id", "authorized_operations"),
    ),
    "GetTelemetrySubscriptions": OPEN,
    "PushTelemetry": OPEN,
    "ListConfigResources": rule(on_cluster(DESCRIBE_CONFIGS)),
    "DescribeTopicPartitions": rule(
        by_hand(guards.only_topics_to_describe),
        operations_of("topics", TOPIC, "name", "topic_authorized_operations"),
        each(DESCRIBE, TOPIC, "topics.name", _OTHERS_LEFT_OUT),
    ),
    "AddRaftVoter": _ALTER_CLUSTER,
    "RemoveRaftVoter": _ALTER_CLUSTER,
}
"""The rules by the request's name."""


def authorized(parts: GuardParts, api: Api, row: Route) -> Route:
    """The dispatch row of an API, whose handler runs only after the steps of the API's rule."""
    _, takes, is_all_allowed = RULES[api.name]
    if not takes:
        return row
    handle = row.handle

    def handle_authorized(request: Message, context: RequestContext) -> Answer:
        access = parts.access.of(context)
        assert access is not None, "there is an authorizer"
        if is_all_allowed is not None and is_all_allowed(request, access):
            return handle(request, context)
        case = Case(parts, handle, request, context, access)
        answer: Answer | None = None
        for take in takes:
            answer = take(case)
            if answer is not None:
                break
        else:
            answer = case.proceed()
        return parts.requests.amendable(context, answer) if isinstance(answer, Encoded) else answer

    return row._replace(handle=handle_authorized)
