"""Metadata: where the brokers are, and which topics and partitions there are."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.cluster import led_partitions
from barnabas.broker.metadata import Topic
from barnabas.broker.outbox import Answer, Encoded
from barnabas.broker.slices import MOST_PARTITIONS_AT_ONCE, Slices
from barnabas.broker.topic_names import TakenNames, check_topic_name
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.metadata_response import OPERATIONS_NOT_ASKED, MetadataTopic, encode_metadata
from barnabas.protocol.request_context import RequestContext

if TYPE_CHECKING:
    from barnabas.broker.core import Broker

logger = logging.getLogger("barnabas.metadata")

NO_ID = uuid.UUID(int=0)
NONE_MEANS_NONE_SINCE, LEAVE_ASKED_SINCE, ASKED_BY_ID_SINCE = 1, 4, 12
TOPIC_OPERATIONS = sum(
    1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11)
)  # AclOperation: read to describe, and configs
CLUSTER_OPERATIONS = sum(
    1 << operation for operation in (5, 7, 8, 9, 10, 11, 12)
)  # create to idempotent write


def on_metadata(broker: Broker, request: MetadataRequest, context: RequestContext) -> Answer:
    """The brokers, and the topics asked for by name or (version 12) by id; null, or in version 0 an
    empty list: all.

    A topic that is missing is made where auto.create.topics.enable and the request allow it; as
    with Apache Kafka this answer still says that it is missing, and clients ask again. Errors, by
    topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_ID,
    TOPIC_AUTHORIZATION_FAILED; INVALID_REQUEST for all where ids stand in a version that cannot ask
    by id.
    """
    access = None if broker.authorizer is None else _TopicAccess(broker, context)
    missing = _missing_names(broker, request, context)
    codes: dict[str, Code] = {}
    if missing and access is not None:
        missing = access.creatable(missing, codes)
    if missing:
        return broker.answer_in_slices(
            context, _make_missing(broker, request, context, missing, codes, access)
        )
    return _encoded(broker, request, context, codes, access)


class _TopicAccess:
    """What the client of a request may see and make."""

    def __init__(self, broker: Broker, context: RequestContext) -> None:
        from barnabas.broker.security.acls import Operation, ResourceType
        from barnabas.broker.security.guards import cluster_operations

        access = broker.access_of(context)
        assert access is not None, "there is an authorizer"
        self._access, self._operation, self._topic = access, Operation, ResourceType.TOPIC
        self._cluster_operations = cluster_operations

    def sees(self, name: str, *, is_named: bool = True) -> bool:
        """Whether a topic may be described. Takes: is_named, by the client."""
        ask = self._access.may if is_named else self._access.sees
        return ask(self._operation.DESCRIBE, self._topic, name)

    def creatable(self, names: list[str], codes: dict[str, Code]) -> list[str]:
        """Those of missing topics that may be made. What may be seen and not made gets its code."""
        names = [name for name in names if self.sees(name)]
        if not names or self._access.may_on_cluster(self._operation.CREATE):
            return names
        creatable = []
        for name in names:
            if self._access.may(self._operation.CREATE, self._topic, name):
                creatable.append(name)
            else:
                codes[name] = Code.TOPIC_AUTHORIZATION_FAILED
        return creatable

    def topic_operations(self, topic: MetadataTopic) -> int:
        if topic.error_code or topic.name is None:
            return OPERATIONS_NOT_ASKED
        return self._access.operations(TOPIC_OPERATIONS, self._topic, topic.name)

    def cluster_operations(self) -> int:
        return self._cluster_operations(self._access, CLUSTER_OPERATIONS)


def _missing_names(broker: Broker, request: MetadataRequest, context: RequestContext) -> list[str]:
    """The names asked for of which there is no topic, where that is a reason to make them."""
    may_create = context.api_version < LEAVE_ASKED_SINCE or request.allow_auto_topic_creation
    if (
        not request.topics
        or not may_create
        or not broker.config.auto_create_topics_enable
        or _names_ids_too_soon(request, context)
    ):
        return []
    return [
        name
        for name, topic_id in _once(request.topics)
        if topic_id is None and broker.metadata.topic(name) is None
    ]


def _client_of(context: RequestContext) -> dict[str, str]:
    return {"client_id": context.client_id or "", "client": context.client_host.removeprefix("/")}


def _make_missing(
    broker: Broker,
    request: MetadataRequest,
    context: RequestContext,
    names: list[str],
    codes: dict[str, Code],
    access: _TopicAccess | None,
) -> Slices:
    """Make the topics that may be made, then answer. codes: of those that may not."""
    now_ms = yield
    wanted: list[Topic] = []
    taken = TakenNames(broker.metadata.topics)
    partition_count = broker.config.num_partitions
    is_too_much = _is_too_much(broker, context, len(names), len(names) * partition_count)
    for name in names:
        codes[name] = Code.UNKNOWN_TOPIC_OR_PARTITION
        if is_too_much or broker.metadata.topic(name) is not None:
            continue
        try:
            check_topic_name(name)
            if name in INTERNAL_TOPICS:
                broker.topics.ensure_internal_topic(name, now_ms)
                continue
            taken.check(name)
            taken.add(name)
            wanted.append(Topic(name, broker.ids.uuid(), partition_count))
        except KafkaError as error:
            codes[name] = error.code
    mutations = None if broker.quotas is None else broker.quotas.mutations(context)
    if mutations is not None:
        mutations.record(len(wanted) * partition_count)
    if wanted:
        yield from broker.topics.create_topics(wanted, now_ms)
    return _encoded(broker, request, context, codes, access)


def _is_too_much(
    broker: Broker, context: RequestContext, topic_count: int, partition_count: int
) -> bool:
    """Whether one request asks for more new partitions than are made; the log says so then."""
    is_too_much = partition_count > MOST_PARTITIONS_AT_ONCE
    if is_too_much:
        logger.warning(
            "%s of %s asks for %d topics that are not there: none is made, since %d partitions at "
            "once are the most",
            context.client_id or "a client", context.client_host, topic_count,
            MOST_PARTITIONS_AT_ONCE,
            extra=_client_of(context),
        )  # fmt: skip
    return is_too_much


def _encoded(
    broker: Broker,
    request: MetadataRequest,
    context: RequestContext,
    codes: Mapping[str, Code],
    access: _TopicAccess | None,
) -> Encoded:
    """Takes: codes, of the topics that were missing when they were asked for. access: None, where
    everything may be seen.
    """
    topics = _topics(broker, request, context, codes, access)
    cluster_operations = CLUSTER_OPERATIONS
    if access is not None and request.include_cluster_authorized_operations:
        cluster_operations = access.cluster_operations()
    if access is not None and request.include_topic_authorized_operations:
        topics = [topic._replace(operations=access.topic_operations(topic)) for topic in topics]
    if broker.errors is not None:
        broker.errors.count_rows(context.api_key, topics)
    frame = encode_metadata(
        context.correlation_id,
        context.api_version,
        controller_id=broker.cluster.controller_id,
        brokers=broker.endpoints(context),
        cluster_id=broker.logs.cluster_id,
        topics=topics,
        topic_operations=TOPIC_OPERATIONS
        if request.include_topic_authorized_operations
        else OPERATIONS_NOT_ASKED,
        cluster_operations=cluster_operations
        if request.include_cluster_authorized_operations
        else OPERATIONS_NOT_ASKED,
    )
    return Encoded((frame,))


def _names_ids_too_soon(request: MetadataRequest, context: RequestContext) -> bool:
    return context.api_version < ASKED_BY_ID_SINCE and any(
        wanted.name is None or wanted.topic_id for wanted in request.topics or ()
    )


def _topics(
    broker: Broker,
    request: MetadataRequest,
    context: RequestContext,
    codes: Mapping[str, Code],
    access: _TopicAccess | None,
) -> list[MetadataTopic]:
    requested = request.topics
    if requested is None or (not requested and context.api_version < NONE_MEANS_NONE_SINCE):
        return [
            _found(broker, topic)
            for topic in broker.metadata.topics.values()
            if access is None or access.sees(topic.name, is_named=False)
        ]
    if _names_ids_too_soon(request, context):
        return [
            MetadataTopic(Code.INVALID_REQUEST, wanted.name or "", wanted.topic_id or NO_ID)
            for wanted in requested
        ]
    rows = []
    for name, topic_id in _once(requested):
        if topic_id is not None:
            rows.append(_found_by_id(broker, topic_id, access))
            continue
        if access is not None and not access.sees(name):
            rows.append(
                MetadataTopic(Code.TOPIC_AUTHORIZATION_FAILED, name, NO_ID, name in INTERNAL_TOPICS)
            )
            continue
        topic = broker.metadata.topic(name)
        if topic is not None and name not in codes:
            rows.append(_found(broker, topic))
        else:
            rows.append(
                MetadataTopic(
                    codes.get(name) or _why_missing(name), name, NO_ID, name in INTERNAL_TOPICS
                )
            )
    return rows


def _found_by_id(broker: Broker, topic_id: uuid.UUID, access: _TopicAccess | None) -> MetadataTopic:
    topic = broker.metadata.topic_by_id(topic_id)
    if topic is None:
        return MetadataTopic(Code.UNKNOWN_TOPIC_ID, None, topic_id)
    if access is not None and not access.sees(topic.name):
        return MetadataTopic(Code.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return _found(broker, topic)


def _once(requested: Iterable[MetadataRequestTopic]) -> Iterable[tuple[str, uuid.UUID | None]]:
    """Each name and each id once, in order. Where both are given the id counts."""
    return dict.fromkeys(
        ("", wanted.topic_id) if wanted.topic_id else (wanted.name or "", None)
        for wanted in requested
    )


def _why_missing(name: str) -> Code:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return Code.UNKNOWN_TOPIC_OR_PARTITION


def _found(broker: Broker, topic: Topic) -> MetadataTopic:
    logs = broker.topics.partitions_of(topic.name)
    if not broker.cluster.is_one or broker.cluster.standby is not None:
        return MetadataTopic(
            Code.NONE,
            topic.name,
            topic.topic_id,
            topic.internal,
            broker.topics.leader_epochs(topic.name),
            led=led_partitions(broker.cluster, topic.name, logs),
        )
    offline = (
        frozenset(index for index, log in enumerate(logs) if log is None)
        if None in logs
        else frozenset()
    )
    return MetadataTopic(
        Code.NONE,
        topic.name,
        topic.topic_id,
        topic.internal,
        broker.topics.leader_epochs(topic.name),
        offline,
    )
