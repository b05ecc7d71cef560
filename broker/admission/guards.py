"""Special steps of rules, each for one API or a few.

The table in `authorization.py` shows which API uses which step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.admission.guard_steps import NO_ID, NOT_ASKED, Case, each, parted, whole
from barnabas.broker.outbox import NO_RESPONSE, Answer
from barnabas.broker.security.acls import CLUSTER_NAME, FAILED, Operation, ResourceType
from barnabas.broker.security.authorizer import Access
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    consumer_group_heartbeat,
    delete_topics,
    describe_topic_partitions,
    offset_fetch,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.records import HEADER_SIZE, TRANSACTIONAL, attributes_of

CLUSTER, GROUP, TOPIC = ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TOPIC
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
# These are global variables, since they are used for each request, and looking up a member in its
# Enum class takes several times as long.
CLUSTER_ACTION, DELETE, DESCRIBE = Operation.CLUSTER_ACTION, Operation.DELETE, Operation.DESCRIBE
IDEMPOTENT_WRITE, TWO_PHASE_COMMIT = Operation.IDEMPOTENT_WRITE, Operation.TWO_PHASE_COMMIT
WRITE = Operation.WRITE
DELETE_BY_ID_SINCE = 6
NAMED_IN_LOG = 10
# This release answers a refused OffsetFetch of version 0 or 1 without rows. Later releases answer
# it with errors.
KAFKA_3_9 = "3.9"
# the key type of share partitions in FindCoordinator, and the first version that has it
SHARE, SHARE_SINCE = 2, 6
GROUPS_SINCE = 8  # the first version of OffsetFetch with several groups


# --- writing and reading --------------------------------------------------------------------------


def produce(case: Case[ProduceRequest]) -> Answer:
    """Requires WRITE on each topic, and on the transactional id if a batch is transactional."""
    request = case.request
    transactional_id, code = request.transactional_id, FAILED[TOPIC]
    allowed: list[Any] = []
    if (
        transactional_id is not None
        and _has_transactional(request)
        and not case.access.may(WRITE, TRANSACTIONAL_ID, transactional_id)
    ):
        # With acks=0 there is no response, so only a closed connection shows the refusal to the
        # client.
        if request.acks == 0:
            return _hang_up(case, request.topic_data)
        denied, code = request.topic_data, FAILED[TRANSACTIONAL_ID]
    else:
        allowed, denied = parted(request.topic_data, case.may_topic(WRITE))
    if not denied:
        return case.proceed()
    request.topic_data = allowed
    if request.acks != 0:
        return case.proceed_beside(denied, code)
    answer = case.proceed() if allowed else NO_RESPONSE
    _hang_up(case, denied)
    return answer


def may_produce_all(request: ProduceRequest, access: Access) -> bool:
    """Whether no batch will be refused. False if this quick check cannot decide."""
    transactional_id, writable = request.transactional_id, access.writable
    if transactional_id is not None and not (
        _has_transactional(request) and access.may(WRITE, TRANSACTIONAL_ID, transactional_id)
    ):
        return False
    for topic in request.topic_data:
        name = topic.name
        if name not in writable and not (name and access.may(WRITE, TOPIC, name)):
            return False
    return True


def _hang_up(case: Case[Any], denied: list[Any]) -> Answer:
    """End the connection of a client that requested no response, since it would not see
    a refusal.
    """
    names = ", ".join(str(case.topic_name(row)) for row in denied[:NAMED_IN_LOG])
    if len(denied) > NAMED_IN_LOG:
        names += f" and {len(denied) - NAMED_IN_LOG} more topics"
    case.parts.requests.close(
        case.context.connection_id,
        f"{case.access.principal} may not write to {names}, and its Produce has acks=0",
    )
    return NO_RESPONSE


def _has_transactional(request: ProduceRequest) -> bool:
    """Whether some batch of the request is transactional, by the attributes in its header."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if (
                records is not None
                and len(records) >= HEADER_SIZE
                and attributes_of(records) & TRANSACTIONAL
            ):
                return True
    return False


def only_topics_to_describe(
    case: Case[describe_topic_partitions.DescribeTopicPartitionsRequest],
) -> Answer | None:
    """Requires DESCRIBE on each topic. If the request names no topic, it is narrowed to the topics
    that the client may describe. The topic of the cursor may have been deleted or hidden meanwhile,
    since only its name is needed to continue.
    """
    request, access, cursor = case.request, case.access, case.request.cursor
    names = {topic.name for topic in request.topics}
    if not names:
        request.topics = [
            describe_topic_partitions.TopicRequest(name)
            for name in case.parts.topics.metadata.topics
            if access.sees(DESCRIBE, TOPIC, name)
        ]
    if (
        cursor is not None
        and cursor.partition_index >= 0
        and (not names or cursor.topic_name in names)
    ):
        # topics before the cursor were described in an earlier answer
        request.topics = [one for one in request.topics if one.name >= cursor.topic_name]
        is_there = any(one.name == cursor.topic_name for one in request.topics)
        if not (is_there and access.sees(DESCRIBE, TOPIC, cursor.topic_name)):
            request.cursor = None
    if not request.topics:
        return describe_topic_partitions.DescribeTopicPartitionsResponse()
    return None


# --- groups ---------------------------------------------------------------------------------------


def find_coordinator(case: Case[FindCoordinatorRequest]) -> Answer | None:
    """Requires DESCRIBE on each group or transactional id, depending on the key type, or
    CLUSTER_ACTION for share partitions, since only brokers look those up.
    """
    if case.request.key_type == SHARE and case.version >= SHARE_SINCE:
        if case.access.may_on_cluster(CLUSTER_ACTION):
            return None
        return case.refuse(FAILED[CLUSTER])
    resource_type = {0: GROUP, 1: TRANSACTIONAL_ID}.get(case.request.key_type)
    if resource_type is None:
        return None  # the handler refuses an unknown key type
    if case.version < 4:
        take = whole(DESCRIBE, resource_type, "key").take
    else:
        take = each(DESCRIBE, resource_type, "coordinator_keys").take
    assert take is not None
    return take(case)


def hide_groups_of_hidden_topics(case: Case[Any], answer: Any) -> None:
    """Refuse a described group if it has a topic that the client may not describe."""
    answer.groups[:] = [
        group
        if all(case.access.sees(DESCRIBE, TOPIC, name) for name in _topics_of(group))
        else type(group)(error_code=FAILED[TOPIC], group_id=group.group_id)
        for group in answer.groups
    ]


def _topics_of(group: Any) -> set[str]:
    """The topics of a described consumer group or share group."""
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, getattr(member, "target_assignment", None))
        if assignment is not None
        for topic in assignment.topic_partitions
    }


def hide_assigned_topics(case: Case[Any], answer: Any) -> None:
    """Remove topics that the client may not describe from a member's assignment, since the member's
    pattern may match such topics.
    """
    if answer.assignment is not None:
        rows = [row for row in answer.assignment.topic_partitions if case.sees_topic(row)]
        answer.assignment = consumer_group_heartbeat.Assignment(rows)


def hide_groups(case: Case[Any], answer: Any) -> None:
    """List only groups that the client may describe, unless the client has DESCRIBE on
    the cluster.
    """
    access = case.access
    if not access.sees(DESCRIBE, CLUSTER, CLUSTER_NAME):
        answer.groups[:] = [
            row for row in answer.groups if access.sees(DESCRIBE, GROUP, row.group_id)
        ]


def offset_fetch_step(case: Case[offset_fetch.OffsetFetchRequest]) -> Answer:
    """Requires DESCRIBE on each group and on each topic. If all topics are requested, the response
    contains only those that the client may describe.
    """
    request, access = case.request, case.access
    if case.version < GROUPS_SINCE:
        if not access.may(DESCRIBE, GROUP, request.group_id):
            # In versions that have no error code for the group, Kafka 3.9 sends a response without
            # rows.
            if case.version < 2 and case.parts.release.name == KAFKA_3_9:
                return offset_fetch.OffsetFetchResponse()
            return case.refuse(FAILED[GROUP])
        refused = _hidden_offsets(case, request)
        case.amend(lambda case, answer: _hide_offsets(case, answer, refused))
        return case.proceed()
    of_groups: dict[str, list[Any]] = {}

    def is_allowed(group: Any) -> bool:
        if not access.may(DESCRIBE, GROUP, group.group_id):
            return False
        of_groups[group.group_id] = _hidden_offsets(case, group)
        return True

    def hide(case: Case[Any], answer: Any) -> None:
        for group in answer.groups:
            if group.group_id in of_groups and group.error_code == Code.NONE:
                _hide_offsets(case, group, of_groups[group.group_id])

    case.amend(hide)
    return case.split("groups", is_allowed, FAILED[GROUP])


def _hidden_offsets(case: Case[Any], group: Any) -> list[Any]:
    """Remove the topics that the client may not describe from a request, or from one of its groups.
    Gives: the rows of the response that refuse these topics.
    """
    if group.topics is None:
        return []
    group.topics, denied = parted(group.topics, case.may_topic(DESCRIBE))
    rows: list[Any] = []
    code = FAILED[TOPIC]
    for topic in denied:
        if case.version < GROUPS_SINCE:
            partitions = [
                offset_fetch.OffsetFetchResponsePartition(index, -1, -1, "", code)
                for index in topic.partition_indexes
            ]
            rows.append(offset_fetch.OffsetFetchResponseTopic(topic.name, partitions))
        else:
            rows.append(
                offset_fetch.OffsetFetchResponseTopics(
                    topic.name,
                    topic.topic_id,
                    [
                        offset_fetch.OffsetFetchResponsePartitions(index, -1, -1, "", code)
                        for index in topic.partition_indexes
                    ],
                )
            )
    return rows


def _hide_offsets(case: Case[Any], answer: Any, refused: list[Any]) -> None:
    """Remove the topics that the client may not describe from a response, or from one of its
    groups, and add the refusals. Rows with unknown topic ids stay, with their errors.
    """
    answer.topics[:] = [
        row for row in answer.topics if case.topic_name(row) is None or case.sees_topic(row)
    ] + refused


# --- transactions ---------------------------------------------------------------------------------


def init_producer_id(case: Case[InitProducerIdRequest]) -> Answer | None:
    """Requires WRITE on the transactional id. Without a transactional id, requires IDEMPOTENT_WRITE
    on the cluster, or WRITE on some topic (KIP-679). Two-phase commit also requires
    TWO_PHASE_COMMIT on the transactional id (KIP-939).
    """
    request, access = case.request, case.access
    transactional_id = request.transactional_id
    if transactional_id is None:
        if access.may_any(WRITE, TOPIC) or access.may_on_cluster(IDEMPOTENT_WRITE):
            return None
        return case.refuse(FAILED[CLUSTER])
    if not access.may(WRITE, TRANSACTIONAL_ID, transactional_id) or (
        request.enable2_pc and not access.may(TWO_PHASE_COMMIT, TRANSACTIONAL_ID, transactional_id)
    ):
        return case.refuse(FAILED[TRANSACTIONAL_ID])
    return None


def add_partitions(
    case: Case[add_partitions_to_txn.AddPartitionsToTxnRequest],
) -> Answer | None:
    """Requires WRITE on the transactional id and on each topic. If one topic is refused, no
    partition is added, and unknown partitions get their own error. WRITE is not sufficient for an
    internal topic. Requests of brokers (version 4 and later) require only CLUSTER_ACTION.
    """
    request, access = case.request, case.access
    if case.version >= 4:
        if access.may_on_cluster(CLUSTER_ACTION):
            return None
        return add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=FAILED[CLUSTER])
    if not access.may(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return case.refuse(FAILED[TRANSACTIONAL_ID])
    may_write, is_internal = case.may_topic(WRITE), _is_internal
    topics = request.v3_and_below_topics
    allowed, denied = parted(topics, lambda row: is_internal(row) or may_write(row))
    if not denied:
        return None  # the handler is called, and refuses internal topics
    internal, allowed = parted(allowed, is_internal)
    # `refuse` makes a refusal for each row of the request, so set the rows before each call: first
    # the refused topics, then the others.
    request.v3_and_below_topics = [*denied, *internal]
    refused: Any = case.refuse(FAILED[TOPIC])
    request.v3_and_below_topics = allowed
    others: Any = case.refuse(Code.OPERATION_NOT_ATTEMPTED)
    for topic in others.results_by_topic_v3_and_below:
        for row in topic.results_by_partition:
            if not case.parts.topics.partition_exists(topic.name, row.partition_index):
                row.partition_error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
    refused.results_by_topic_v3_and_below += others.results_by_topic_v3_and_below
    answer: Message = refused
    return answer


def _is_internal(row: Any) -> bool:
    return row.name in INTERNAL_TOPICS


def hide_topics_of_transactions(case: Case[Any], answer: Any) -> None:
    """Remove the topics that the client may not describe from the descriptions of transactions."""
    for state in answer.transaction_states:
        state.topics[:] = [
            row for row in state.topics if case.access.sees(DESCRIBE, TOPIC, row.topic)
        ]


# --- administration -------------------------------------------------------------------------------


def delete_topics_step(case: Case[delete_topics.DeleteTopicsRequest]) -> Answer:
    """Requires DELETE on the topic, and also DESCRIBE if the topic is given by its name. An unknown
    name requires only DESCRIBE. If the topic is given by its id, the response contains its name
    only if the client has DESCRIBE.
    """
    if case.version < DELETE_BY_ID_SINCE:
        return case.split("topic_names", _may_delete_named(case), FAILED[TOPIC])

    def refused(rows: list[Any]) -> Message:
        return delete_topics.DeleteTopicsResponse(
            responses=[_deletion_refused(case, row) for row in rows]
        )

    return case.split("topics", _may_delete(case), FAILED[TOPIC], refused)


def _may_delete_named(case: Case[delete_topics.DeleteTopicsRequest]) -> Callable[[str], bool]:
    """The function that says whether a topic of that name may be deleted. A topic that does not
    exist passes if it may be described: then the handler returns "unknown topic".
    """
    access, topics = case.access, case.parts.topics.metadata

    def may_delete(name: str) -> bool:
        if not access.may(DESCRIBE, TOPIC, name):
            return False
        return topics.topic(name) is None or access.may(DELETE, TOPIC, name)

    return may_delete


def _may_delete(
    case: Case[delete_topics.DeleteTopicsRequest],
) -> Callable[[delete_topics.DeleteTopicState], bool]:
    """The function that says whether a row of the request passes to the handler. A row may have
    either a name or an id.
    """
    may_delete_named = _may_delete_named(case)

    def may_delete(row: delete_topics.DeleteTopicState) -> bool:
        if row.name is not None:
            return row.topic_id in (None, NO_ID) and may_delete_named(row.name)
        # The name is None if the id is unknown or null. Then the handler refuses the row.
        name = case.topic_name(row)
        return name is None or case.access.may(DELETE, TOPIC, name)

    return may_delete


def _deletion_refused(
    case: Case[delete_topics.DeleteTopicsRequest], row: delete_topics.DeleteTopicState
) -> delete_topics.DeletableTopicResult:
    """The refusal of a row. The name of a topic requested by its id is given only if the client may
    describe the topic.
    """
    if row.name is not None and row.topic_id not in (None, NO_ID):
        return delete_topics.DeletableTopicResult(
            row.name, row.topic_id, Code.INVALID_REQUEST, "give its name or its id"
        )
    name = case.topic_name(row)
    if row.name is None and name is not None and not case.access.sees(DESCRIBE, TOPIC, name):
        name = None
    return delete_topics.DeletableTopicResult(
        name=name, topic_id=row.topic_id, error_code=FAILED[TOPIC]
    )


_WITH_CONFIGS = (2, 4, 8, 16, 32)  # topics, brokers, loggers, client metrics, groups


def configs(case: Case[Any], operation: Operation) -> Answer | None:
    """Requires an operation on each named topic or group, or on the cluster for other resources."""
    access, rows = case.access, case.request.ROWS["resources"]
    denied: dict[Code, list[Any]] = {}
    allowed = []
    for resource in case.request.resources:
        if resource.resource_type not in _WITH_CONFIGS:
            allowed.append(resource)  # refused by the handler, whatever the client may do
            continue
        resource_type = {2: TOPIC, 32: GROUP}.get(resource.resource_type, CLUSTER)
        name = CLUSTER_NAME if resource_type is CLUSTER else resource.resource_name
        if access.may(operation, resource_type, name):
            allowed.append(resource)
        else:
            denied.setdefault(FAILED[resource_type], []).append(resource)
    if not denied:
        return None
    refused: list[Any] = []
    for code, resources in denied.items():
        # `refuse` makes a refusal for each row of the request, so set the refused rows first.
        case.request.resources = resources
        refused += getattr(case.refuse(code), rows)
    case.request.resources = allowed
    if not allowed:
        answer = case.refuse(FAILED[TOPIC])
        setattr(answer, rows, refused)
        return answer
    case.amend(lambda _, answer: getattr(answer, rows).extend(refused))
    return None


def hide_cluster_operations(case: Case[Any], answer: Any) -> None:
    """List the operations on the cluster only if the client has DESCRIBE on the cluster."""
    bits = answer.cluster_authorized_operations
    if bits != NOT_ASKED:
        answer.cluster_authorized_operations = case.access.operations_on_cluster(bits)
