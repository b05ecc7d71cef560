"""What is asked before a request, of each shape that requests have: the whole of it, each of its
rows, or what some requests have of their own.

A guard answers a request: it hands on what of it is allowed, and adds to the answer what of it is
refused. `authorization.py` has the table of which request has which.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from barnabas.broker.outbox import NO_RESPONSE, Answer
from barnabas.broker.requests.encoded_rows import EncodedRows, join_rows
from barnabas.broker.security.acls import CLUSTER_NAME, FAILED, Operation, ResourceType
from barnabas.broker.security.unauthorized import unauthorized
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    offset_delete,
    offset_fetch,
)
from barnabas.protocol.records import HEADER_SIZE, TRANSACTIONAL, attributes_of

if TYPE_CHECKING:
    from barnabas.broker.lazy import Lazy
    from barnabas.broker.logs.topics import TopicRegistry
    from barnabas.broker.requests.under_way import Requests
    from barnabas.broker.requests.wide_requests import WideRequests
    from barnabas.broker.security.access import ClientAccess
    from barnabas.broker.security.authorizer import Access
    from barnabas.broker.settings.features import Release
    from barnabas.broker.slices import Slices
    from barnabas.protocol.api_table import Api
    from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
    from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
    from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
    from barnabas.protocol.messages.message import Message
    from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
    from barnabas.protocol.messages.produce import ProduceRequest
    from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
    from barnabas.protocol.request_context import RequestContext

RequestT = TypeVar("RequestT", bound="Message")

CLUSTER, GROUP, TOPIC = ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TOPIC
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
# As globals: a member looked up in its class takes several times as long, for each request.
CLUSTER_ACTION, CREATE, DELETE, DESCRIBE = (
    Operation.CLUSTER_ACTION, Operation.CREATE, Operation.DELETE, Operation.DESCRIBE,
)  # fmt: skip
DESCRIBE_CONFIGS, IDEMPOTENT_WRITE = Operation.DESCRIBE_CONFIGS, Operation.IDEMPOTENT_WRITE
READ, TWO_PHASE_COMMIT, WRITE = Operation.READ, Operation.TWO_PHASE_COMMIT, Operation.WRITE
NOT_ASKED = -(2**31)  # of authorized operations
NO_ID = uuid.UUID(int=0)
DELETE_BY_ID_SINCE = 6
NAMED_IN_LOG = 10
KAFKA_3_9 = "3.9"  # it answers an OffsetFetch 0 or 1 with nothing; 4.x with errors
GROUPS_SINCE = 8  # OffsetFetch of several
ROWS_AT_ONCE = 500


class GuardParts(NamedTuple):
    """What guards use of the broker."""

    access: ClientAccess
    requests: Requests
    wide: Lazy[WideRequests]
    topics: TopicRegistry
    release: Release


class Case(Generic[RequestT]):
    """One request on its way to its handler, and what its client may."""

    __slots__ = ("_handle", "access", "api", "context", "parts", "request", "version")

    def __init__(
        self,
        parts: GuardParts,
        api: Api,
        handle: Callable[..., Answer],
        request: RequestT,
        context: RequestContext,
        access: Access,
    ) -> None:
        self.parts, self.api, self._handle = parts, api, handle
        self.request, self.context, self.access = request, context, access
        self.version = context.api_version

    def proceed(self) -> Answer:
        """The handler's answer."""
        return self._handle(self.request, self.context)

    def proceed_beside(self, denied: list[Any], code: Code) -> Answer:
        """The answer of a handler that refuses rows with a code by itself."""
        return self._handle(self.request, self.context, denied, code)

    def refuse(self, code: Code) -> Message:
        """The answer where the whole is refused."""
        return unauthorized(self.api, self.version, self.request, code)

    def amend(self, amendment: Callable[[Any], None]) -> None:
        """Let the handler's answer be changed before it leaves."""
        self.parts.requests.amend(self.context.ticket, amendment)

    def split(
        self,
        field: str,
        rows: str,
        is_allowed: Callable[[Any], bool],
        code: Code,
        refused: Callable[[list[Any]], Any] | None = None,
    ) -> Answer:
        """Hand on the allowed ones of a list of the request, and add the others' refusals; of a
        long list in slices.

        Takes: rows, the list in the answer. refused, the answer with the refusals of some rows;
               None: one with the code.
        """

        def refuse(denied: list[Any]) -> Any:
            return self._refused(field, denied, code) if refused is None else refused(denied)

        asked = getattr(self.request, field)
        if len(asked) > ROWS_AT_ONCE:
            work = self._split_in_slices(field, rows, is_allowed, refuse)
            return self.parts.wide.get().begin(self.context, work)
        allowed, denied = _parted(asked, is_allowed)
        if not denied:
            return self.proceed()
        answer = refuse(denied)
        return answer if not allowed else self._with_others(field, allowed, rows, answer)

    def _split_in_slices(
        self,
        field: str,
        rows: str,
        is_allowed: Callable[[Any], bool],
        refuse: Callable[[list[Any]], Any],
    ) -> Slices:
        yield
        asked = getattr(self.request, field)
        allowed: list[Any] = []
        refusals: Any = None
        for first in range(0, len(asked), ROWS_AT_ONCE):
            if first:
                yield
            some, denied = _parted(asked[first : first + ROWS_AT_ONCE], is_allowed)
            allowed += some
            if denied:
                answer = refuse(denied)
                refused, encoded = getattr(answer, rows), EncodedRows()
                encoded.add(refused, self.version)
                setattr(answer, rows, encoded)
                if refusals is None:
                    refusals = answer
                else:
                    join_rows(refusals, rows, encoded, self.version)
        now_ms = yield
        if refusals is not None and not allowed:
            return refusals
        self.context = self.context._replace(now_ms=now_ms)
        if refusals is None:
            return self.proceed()
        return self._with_others(field, allowed, rows, refusals)

    def _with_others(self, field: str, allowed: list[Any], rows: str, refused: Any) -> Answer:
        """The handler's answer about the allowed rows, with the refusals of the others."""
        setattr(self.request, field, allowed)
        self.amend(lambda answer: join_rows(answer, rows, getattr(refused, rows), self.version))
        return self.proceed()

    def _refused(self, field: str, denied: list[Any], code: Code) -> Message:
        request = copy.copy(self.request)
        setattr(request, field, denied)
        return unauthorized(self.api, self.version, request, code)

    def topic_name(self, row: Any) -> str | None:
        """The name of a row's topic, by its id where it has one; None: there is no such topic."""
        topic_id = getattr(row, "topic_id", None)
        if topic_id is None or topic_id == NO_ID:
            name: str = row.name
            return name
        topic = self.parts.topics.metadata.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def may_topic(self, operation: Operation) -> Callable[[Any], bool]:
        """Whether the operation on a row's topic is allowed. An id that there is not is left to
        the handler.
        """

        def is_allowed(row: Any) -> bool:
            name = self.topic_name(row)
            return name is None or self.access.may(operation, TOPIC, name)

        return is_allowed

    def sees_topic(self, row: Any) -> bool:
        """Whether a row of an answer is about a topic that may be described."""
        name = self.topic_name(row)
        return name is not None and self.access.sees(DESCRIBE, TOPIC, name)

    def mask(self, rows: Any, resource_type: ResourceType, key: str, field: str) -> None:
        """Leave of the operations that rows of an answer tell those that are allowed."""
        for row in rows:
            bits = getattr(row, field)
            if bits != NOT_ASKED:
                name = getattr(row, key)
                setattr(row, field, self.access.operations(bits, resource_type, name))


def _parted(items: list[Any], is_allowed: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    allowed: list[Any] = []
    denied: list[Any] = []
    for item in items:
        (allowed if is_allowed(item) else denied).append(item)
    return allowed, denied


Guard = Callable[[Case[Any]], Answer]


# --- shapes ---------------------------------------------------------------------------------------


def nothing(case: Case[Any]) -> Answer:
    """No guard: everybody may."""
    return case.proceed()


def in_handler(case: Case[Any]) -> Answer:
    """The handler asks by itself, since its answer is not a message or is made of more than the
    request.
    """
    return case.proceed()


def of_cluster(*operations: Operation) -> Guard:
    """One of these operations on the cluster, for the whole request."""

    def guard(case: Case[Any]) -> Answer:
        if any(case.access.may_on_cluster(operation) for operation in operations):
            return case.proceed()
        return case.refuse(FAILED[CLUSTER])

    return guard


def of_one(resource_type: ResourceType, operation: Operation, field: str) -> Guard:
    """An operation on what a field of the request names, for the whole of it."""

    def guard(case: Case[Any]) -> Answer:
        if case.access.may(operation, resource_type, getattr(case.request, field)):
            return case.proceed()
        return case.refuse(FAILED[resource_type])

    return guard


class Rows(NamedTuple):
    """A list of the request, each of which names a resource; and the list in its answer. key: the
    field that has the name; None: the row is the name.
    """

    resource_type: ResourceType
    operation: Operation
    field: str
    rows: str
    key: str | None = "name"


def of_rows(rows: Rows) -> Guard:
    """An operation on what each row of the request names."""
    code = FAILED[rows.resource_type]

    def guard(case: Case[Any]) -> Answer:
        def is_allowed(row: Any) -> bool:
            name = row if rows.key is None else getattr(row, rows.key)
            return case.access.may(rows.operation, rows.resource_type, name)

        return case.split(rows.field, rows.rows, is_allowed, code)

    return guard


# --- writing and reading --------------------------------------------------------------------------


def produce(case: Case[ProduceRequest]) -> Answer:
    """WRITE on each topic, and on the transactional id where a batch is of a transaction."""
    request = case.request
    transactional_id, code = request.transactional_id, FAILED[TOPIC]
    allowed: list[Any] = []
    if (
        transactional_id is not None
        and _has_transactional(request)
        and not case.access.may(WRITE, TRANSACTIONAL_ID, transactional_id)
    ):
        if request.acks == 0:
            return _hang_up(case, request.topic_data)
        denied, code = request.topic_data, FAILED[TRANSACTIONAL_ID]
    else:
        allowed, denied = _parted(request.topic_data, case.may_topic(WRITE))
    if not denied:
        return case.proceed()
    request.topic_data = allowed
    if request.acks != 0:
        return case.proceed_beside(denied, code)
    answer = case.proceed() if allowed else NO_RESPONSE
    _hang_up(case, denied)
    return answer


def may_produce_all(request: ProduceRequest, access: Access) -> bool:
    """Whether no batch will be refused; False where that cannot be said of names alone."""
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
    """End the connection of a client that does not want an answer: it would not learn of it."""
    names = ", ".join(str(case.topic_name(row)) for row in denied[:NAMED_IN_LOG])
    if len(denied) > NAMED_IN_LOG:
        names += f" and {len(denied) - NAMED_IN_LOG} more topics"
    case.parts.requests.close(
        case.context.connection_id,
        f"{case.access.principal} may not write to {names}, and does not ask for an answer",
    )
    return NO_RESPONSE


def _has_transactional(request: ProduceRequest) -> bool:
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


def offset_for_leader_epoch(case: Case[Any]) -> Answer:
    """CLUSTER_ACTION, or DESCRIBE on each topic."""
    if case.access.sees(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
        return case.proceed()
    return of_rows(Rows(TOPIC, DESCRIBE, "topics", "topics", "topic"))(case)


def describe_topic_partitions_guard(
    case: Case[describe_topic_partitions.DescribeTopicPartitionsRequest],
) -> Answer:
    """DESCRIBE on each topic; where none is named, those that may be described are asked for. The
    topic at the cursor may be gone, or hidden by now: where to go on is said by its name alone.
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
        request.topics = [one for one in request.topics if one.name >= cursor.topic_name]
        is_there = any(one.name == cursor.topic_name for one in request.topics)
        if not (is_there and access.sees(DESCRIBE, TOPIC, cursor.topic_name)):
            request.cursor = None
    if not request.topics:
        return describe_topic_partitions.DescribeTopicPartitionsResponse()
    case.amend(
        lambda answer: case.mask(answer.topics, TOPIC, "name", "topic_authorized_operations")
    )
    return of_rows(Rows(TOPIC, DESCRIBE, "topics", "topics"))(case)


# --- groups ---------------------------------------------------------------------------------------


def find_coordinator(case: Case[FindCoordinatorRequest]) -> Answer:
    """DESCRIBE on each group or transactional id, by the kind of the key."""
    request = case.request
    resource_type = {0: GROUP, 1: TRANSACTIONAL_ID}.get(request.key_type)
    if resource_type is None:
        return case.proceed()  # the handler refuses it
    if case.version < 4:
        return of_one(resource_type, DESCRIBE, "key")(case)
    rows = Rows(resource_type, DESCRIBE, "coordinator_keys", "coordinators", None)
    return of_rows(rows)(case)


def describe_groups(case: Case[Any]) -> Answer:
    """DESCRIBE on each group."""
    case.amend(lambda answer: case.mask(answer.groups, GROUP, "group_id", "authorized_operations"))
    return of_rows(Rows(GROUP, DESCRIBE, "groups", "groups", None))(case)


def consumer_group_describe_guard(case: Case[Any]) -> Answer:
    """DESCRIBE on each group; a group with a topic that may not be described is refused."""

    def hide(answer: Any) -> None:
        answer.groups[:] = [
            group
            if all(case.access.sees(DESCRIBE, TOPIC, name) for name in _topics_of(group))
            else consumer_group_describe.DescribedGroup(
                error_code=FAILED[TOPIC], group_id=group.group_id
            )
            for group in answer.groups
        ]
        case.mask(answer.groups, GROUP, "group_id", "authorized_operations")

    case.amend(hide)
    return of_rows(Rows(GROUP, DESCRIBE, "group_ids", "groups", None))(case)


def _topics_of(group: consumer_group_describe.DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def consumer_group_heartbeat_guard(
    case: Case[consumer_group_heartbeat.ConsumerGroupHeartbeatRequest],
) -> Answer:
    """READ on the group, and DESCRIBE on each topic that a member subscribes by its name."""
    request, access = case.request, case.access
    if not access.may(READ, GROUP, request.group_id):
        return case.refuse(FAILED[GROUP])
    names = request.subscribed_topic_names or ()
    if not all(access.may(DESCRIBE, TOPIC, name) for name in names):
        return case.refuse(FAILED[TOPIC])

    def hide(answer: Any) -> None:
        """A pattern may have found topics that this member may not see."""
        if answer.assignment is not None:
            rows = [row for row in answer.assignment.topic_partitions if case.sees_topic(row)]
            answer.assignment = consumer_group_heartbeat.Assignment(rows)

    case.amend(hide)
    return case.proceed()


def list_groups(case: Case[Any]) -> Answer:
    """DESCRIBE on the cluster, else those groups are listed that may be described."""
    access = case.access
    if not access.sees(DESCRIBE, CLUSTER, CLUSTER_NAME):

        def hide(answer: Any) -> None:
            answer.groups[:] = [
                row for row in answer.groups if access.sees(DESCRIBE, GROUP, row.group_id)
            ]

        case.amend(hide)
    return case.proceed()


def offset_commit(case: Case[OffsetCommitRequest]) -> Answer:
    """READ on the group, and on each topic."""
    if not case.access.may(READ, GROUP, case.request.group_id):
        return case.refuse(FAILED[GROUP])
    return case.split("topics", "topics", case.may_topic(READ), FAILED[TOPIC])


def offset_delete_guard(case: Case[offset_delete.OffsetDeleteRequest]) -> Answer:
    """DELETE on the group, and READ on each topic."""
    if not case.access.may(DELETE, GROUP, case.request.group_id):
        return offset_delete.OffsetDeleteResponse(error_code=FAILED[GROUP])
    return case.split("topics", "topics", case.may_topic(READ), FAILED[TOPIC])


def offset_fetch_guard(case: Case[offset_fetch.OffsetFetchRequest]) -> Answer:
    """DESCRIBE on each group, and on each topic; where all topics are asked for, those are told
    that may be described.
    """
    request, access = case.request, case.access
    if case.version < GROUPS_SINCE:
        if not access.may(DESCRIBE, GROUP, request.group_id):
            if case.version < 2 and case.parts.release.name == KAFKA_3_9:
                return offset_fetch.OffsetFetchResponse()
            return case.refuse(FAILED[GROUP])
        refused = _hidden_offsets(case, request)
        case.amend(lambda answer: _hide_offsets(case, answer, refused))
        return case.proceed()
    of_groups: dict[str, list[Any]] = {}

    def is_allowed(group: Any) -> bool:
        if not access.may(DESCRIBE, GROUP, group.group_id):
            return False
        of_groups[group.group_id] = _hidden_offsets(case, group)
        return True

    def hide(answer: Any) -> None:
        for group in answer.groups:
            if group.group_id in of_groups and group.error_code == Code.NONE:
                _hide_offsets(case, group, of_groups[group.group_id])

    case.amend(hide)
    return case.split("groups", "groups", is_allowed, FAILED[GROUP])


def _hidden_offsets(case: Case[Any], group: Any) -> list[Any]:
    """Take from a request, or a group of it, the topics that may not be described. Gives their
    rows of the answer.
    """
    if group.topics is None:
        return []
    group.topics, denied = _parted(group.topics, case.may_topic(DESCRIBE))
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
    """Leave in an answer, or a group of it, the topics that may be seen, and add the refusals. Ids
    that there are not stay, with their error.
    """
    answer.topics[:] = [
        row for row in answer.topics if case.topic_name(row) is None or case.sees_topic(row)
    ] + refused


# --- transactions ---------------------------------------------------------------------------------


def init_producer_id(case: Case[InitProducerIdRequest]) -> Answer:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on some
    topic (KIP-679). Two-phase commit: TWO_PHASE_COMMIT on the id, too (KIP-939).
    """
    request, access = case.request, case.access
    transactional_id = request.transactional_id
    if transactional_id is None:
        if access.may_on_cluster(IDEMPOTENT_WRITE) or access.may_any(WRITE, TOPIC):
            return case.proceed()
        return case.refuse(FAILED[CLUSTER])
    if not access.may(WRITE, TRANSACTIONAL_ID, transactional_id) or (
        request.enable2_pc and not access.may(TWO_PHASE_COMMIT, TRANSACTIONAL_ID, transactional_id)
    ):
        return case.refuse(FAILED[TRANSACTIONAL_ID])
    return case.proceed()


def add_partitions_to_txn_guard(
    case: Case[add_partitions_to_txn.AddPartitionsToTxnRequest],
) -> Answer:
    """WRITE on the transactional id and on each topic: one refused, none is added, and unknown
    partitions are named as such. No WRITE is enough for an internal topic. Of brokers (version 4
    on): CLUSTER_ACTION, and nothing else.
    """
    request, access = case.request, case.access
    if case.version >= 4:
        if access.may_on_cluster(CLUSTER_ACTION):
            return case.proceed()
        return add_partitions_to_txn.AddPartitionsToTxnResponse(error_code=FAILED[CLUSTER])
    if not access.may(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return case.refuse(FAILED[TRANSACTIONAL_ID])
    may_write, is_internal = case.may_topic(WRITE), _is_internal
    topics = request.v3_and_below_topics
    allowed, denied = _parted(topics, lambda row: is_internal(row) or may_write(row))
    if not denied:
        return case.proceed()  # which refuses internal topics
    internal, allowed = _parted(allowed, is_internal)
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


def add_offsets_to_txn(case: Case[AddOffsetsToTxnRequest]) -> Answer:
    """WRITE on the transactional id, and READ on the group."""
    request, access = case.request, case.access
    if not access.may(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return case.refuse(FAILED[TRANSACTIONAL_ID])
    if not access.may(READ, GROUP, request.group_id):
        return case.refuse(FAILED[GROUP])
    return case.proceed()


def txn_offset_commit(case: Case[TxnOffsetCommitRequest]) -> Answer:
    """WRITE on the transactional id, READ on the group and on each topic."""
    request, access = case.request, case.access
    if not access.may(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return case.refuse(FAILED[TRANSACTIONAL_ID])
    if not access.may(READ, GROUP, request.group_id):
        return case.refuse(FAILED[GROUP])
    return case.split("topics", "topics", case.may_topic(READ), FAILED[TOPIC])


def describe_transactions(case: Case[Any]) -> Answer:
    """DESCRIBE on each transactional id; of its topics those are told that may be described."""

    def hide(answer: Any) -> None:
        for state in answer.transaction_states:
            state.topics[:] = [
                row for row in state.topics if case.access.sees(DESCRIBE, TOPIC, row.topic)
            ]

    case.amend(hide)
    rows = Rows(TRANSACTIONAL_ID, DESCRIBE, "transactional_ids", "transaction_states", None)
    return of_rows(rows)(case)


# --- what administrators do -----------------------------------------------------------------------


def create_topics_guard(case: Case[create_topics.CreateTopicsRequest]) -> Answer:
    """CREATE on the cluster or on the topic. The handler leaves out settings that may not be
    described.
    """
    if case.access.may_on_cluster(CREATE):
        return case.proceed()
    return of_rows(Rows(TOPIC, CREATE, "topics", "topics"))(case)


def delete_topics_guard(case: Case[delete_topics.DeleteTopicsRequest]) -> Answer:
    """DELETE on the cluster or on the topic. Given by its name: DESCRIBE, too, which alone is asked
    where there is no such topic. Given by its id: the answer has the name with DESCRIBE alone.
    """
    if case.access.may_on_cluster(DELETE):
        return case.proceed()
    if case.version < DELETE_BY_ID_SINCE:
        return case.split("topic_names", "responses", _may_delete_named(case), FAILED[TOPIC])

    def refused(rows: list[Any]) -> Message:
        return delete_topics.DeleteTopicsResponse(
            responses=[_deletion_refused(case, row) for row in rows]
        )

    return case.split("topics", "responses", _may_delete(case), FAILED[TOPIC], refused)


def _may_delete_named(case: Case[delete_topics.DeleteTopicsRequest]) -> Callable[[str], bool]:
    access, topics = case.access, case.parts.topics.metadata

    def may_delete(name: str) -> bool:
        if not access.may(DESCRIBE, TOPIC, name):
            return False
        return topics.topic(name) is None or access.may(DELETE, TOPIC, name)

    return may_delete


def _may_delete(
    case: Case[delete_topics.DeleteTopicsRequest],
) -> Callable[[delete_topics.DeleteTopicState], bool]:
    may_delete_named = _may_delete_named(case)

    def may_delete(row: delete_topics.DeleteTopicState) -> bool:
        if row.name is not None:
            return row.topic_id in (None, NO_ID) and may_delete_named(row.name)
        name = case.topic_name(row)  # None: no topic has that id, or there is none in the row
        return name is None or case.access.may(DELETE, TOPIC, name)

    return may_delete


def _deletion_refused(
    case: Case[delete_topics.DeleteTopicsRequest], row: delete_topics.DeleteTopicState
) -> delete_topics.DeletableTopicResult:
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


def of_configs(operation: Operation, rows: str) -> Guard:
    """An operation on each topic or group that is named, and on the cluster for other resources."""

    def guard(case: Case[Any]) -> Answer:
        access = case.access
        denied: dict[Code, list[Any]] = {}
        allowed = []
        for resource in case.request.resources:
            resource_type = {2: TOPIC, 32: GROUP}.get(resource.resource_type, CLUSTER)
            name = CLUSTER_NAME if resource_type is CLUSTER else resource.resource_name
            if access.may(operation, resource_type, name):
                allowed.append(resource)
            else:
                denied.setdefault(FAILED[resource_type], []).append(resource)
        if not denied:
            return case.proceed()
        refused: list[Any] = []
        for code, resources in denied.items():
            case.request.resources = resources
            refused += getattr(case.refuse(code), rows)
        case.request.resources = allowed
        if not allowed:
            answer: Any = case.refuse(FAILED[TOPIC])
            setattr(answer, rows, refused)
            whole: Message = answer
            return whole
        case.amend(lambda answer: getattr(answer, rows).extend(refused))
        return case.proceed()

    return guard


def describe_cluster(case: Case[Any]) -> Answer:
    """Everybody may; the operations on it are told with DESCRIBE."""
    access = case.access

    def mask(answer: Any) -> None:
        bits = answer.cluster_authorized_operations
        if bits != NOT_ASKED:
            answer.cluster_authorized_operations = cluster_operations(access, bits)

    case.amend(mask)
    return case.proceed()


def cluster_operations(access: Access, bits: int) -> int:
    """Those of the operations on the cluster that are allowed; none without DESCRIBE."""
    if not access.sees(DESCRIBE, CLUSTER, CLUSTER_NAME):
        return 0
    return access.operations(bits, CLUSTER, CLUSTER_NAME)
