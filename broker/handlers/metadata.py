"""Metadata: the addresses of the brokers, and the existing topics and partitions."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice

from barnabas.broker.admission.guard_steps import Ask, in_handler, rule
from barnabas.broker.admission.rights import CLUSTER, CREATE, DESCRIBE, TOPIC
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.addresses import Addresses
from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.brokers.led_partitions import led_partitions
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.logs.metadata import Topic
from barnabas.broker.logs.topic_names import TakenNames, check_topic_name
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.outbox import Answer, Encoded, Ids
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.requests.families import Families
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.wide_requests import WideRequests
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.broker.security.authorizer import Access
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.slices import MOST_PARTITIONS_AT_ONCE, ROWS_READ_AT_ONCE, Pieces, Slices
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.api import Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.metadata_response import (
    NO_LEADER,
    OPERATIONS_NOT_ASKED,
    EncodedTopics,
    MetadataTopic,
    encode_metadata,
    encode_topics,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import NotWrittenError

logger = logging.getLogger("barnabas.metadata")

NO_ID = uuid.UUID(int=0)
PARTITIONS_AS_A_ROW = 100  # this many partitions take as long as the entry of one topic
NONE_MEANS_NONE_SINCE, LEAVE_ASKED_SINCE, ASKED_BY_ID_SINCE = 1, 4, 12
TOPIC_OPERATIONS = sum(
    1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11)
)  # the AclOperations on a topic: READ (3) to DESCRIBE (8), DESCRIBE_CONFIGS, ALTER_CONFIGS
NAMED_AT_ONCE = 500
# The family that creates topics. Most requests for metadata create none, so this family does not
# load the modules that only new logs need.
CREATE_TOPICS = "topics"
CLUSTER_OPERATIONS = sum(
    1 << operation for operation in (5, 7, 8, 9, 10, 11, 12)
)  # the AclOperations on a cluster: CREATE (5) to IDEMPOTENT_WRITE (12), without DELETE (6)


class MetadataHandler:
    """Answers Metadata, and creates missing topics."""

    __slots__ = (
        "_access",
        "_addresses",
        "_cluster",
        "_config",
        "_families",
        "_ids",
        "_quotas",
        "_requests",
        "_topics",
        "_wide",
    )

    def __init__(
        self,
        config: BrokerConfig,
        ids: Ids,
        requests: Requests,
        families: Families,
        wide: WideRequests,
        quotas: Quotas,
        access: ClientAccess,
        topics: TopicRegistry,
        cluster: Cluster,
        addresses: Addresses,
    ) -> None:
        self._config = config
        self._ids = ids
        self._requests = requests
        self._families = families
        self._wide = wide
        self._quotas = quotas
        self._access = access
        self._topics = topics
        self._cluster = cluster
        self._addresses = addresses

    def on_metadata(self, request: MetadataRequest, context: RequestContext) -> Answer:
        """The brokers, and the topics requested by name or (version 12) by id; all topics if the
        list is null, or in version 0 empty.

        A missing topic is created if auto.create.topics.enable and the request allow it. As in
        Apache Kafka, this response still reports it as unknown, and clients send the request again.
        Errors, by topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_ID,
        TOPIC_AUTHORIZATION_FAILED. INVALID_REQUEST for all topics if a request has ids in a version
        without ids.
        """
        access = None if self._access.authorizer is None else _TopicAccess(self._access.of(context))
        if _is_wide(request):
            return self._wide.begin(context, self._answer_wide(request, context, access))
        missing = self._missing_names(request, context)
        codes: dict[str, Code] = {}
        if missing and access is not None:
            missing = access.creatable(missing, codes)
        if missing:
            return self._requests.answer_in_slices(
                request, context, self._make_missing(request, context, missing, codes, access)
            )
        return self._requests.read_in_slices(
            context, self._described(request, context, codes, access)
        )

    def _missing_names(self, request: MetadataRequest, context: RequestContext) -> list[str]:
        """The requested names of unknown topics, if the request and the settings allow the creation
        of topics; otherwise none.
        """
        may_create = context.api_version < LEAVE_ASKED_SINCE or request.allow_auto_topic_creation
        if (
            not request.topics
            or not may_create
            or not self._config.auto_create_topics_enable
            or _names_ids_too_soon(request, context)
        ):
            return []
        return [
            name
            for name, topic_id in _once(request.topics)
            if topic_id is None and self._topics.metadata.topic(name) is None
        ]

    def _make_missing(
        self,
        request: MetadataRequest,
        context: RequestContext,
        names: list[str],
        codes: dict[str, Code],
        access: _TopicAccess | None,
    ) -> Slices:
        """Create the missing topics, then send the response. codes: the errors of topics that may
        not be created.
        """
        now_ms = yield
        if (wait := self._families.wait(CREATE_TOPICS)) is not None:
            now_ms = yield wait
        wanted: list[Topic] = []
        taken = TakenNames(self._topics.metadata.topics)
        partition_count = self._config.num_partitions
        is_too_much = self._is_too_much(context, len(names), len(names) * partition_count)
        for name in names:
            codes[name] = Code.UNKNOWN_TOPIC_OR_PARTITION
            if is_too_much or self._topics.metadata.topic(name) is not None:
                continue
            try:
                check_topic_name(name)
                if name in INTERNAL_TOPICS:
                    with suppress(NotWrittenError):
                        self._topics.ensure_internal_topic(name, now_ms)
                    continue
                taken.check(name)
                taken.add(name)
                wanted.append(Topic(name, self._ids.uuid(), partition_count))
            except KafkaError as error:
                codes[name] = error.code
        mutations = (
            None if self._quotas.clients is None else self._quotas.clients.mutations(context)
        )
        if mutations is not None:
            mutations.record(len(wanted) * partition_count)
        if wanted:
            yield from self._topics.create_topics(wanted, now_ms)
        described = self._described(request, context, codes, access)
        # The generator's first step only waits for its turn in the event loop. This code already
        # has its turn.
        next(described)
        return Encoded((yield from described)())

    def _is_too_much(self, context: RequestContext, topic_count: int, partition_count: int) -> bool:
        """Whether a request asks for more new partitions than the limit. If it does, this is
        logged.
        """
        is_too_much = partition_count > MOST_PARTITIONS_AT_ONCE
        if is_too_much:
            logger.warning(
                "%s of %s asks for %d unknown topics: none is created, since a request may "
                "create at most %d partitions",
                context.client_id or "a client", context.client_host, topic_count,
                MOST_PARTITIONS_AT_ONCE,
                extra=_client_of(context),
            )  # fmt: skip
        return is_too_much

    def _described(
        self,
        request: MetadataRequest,
        context: RequestContext,
        codes: Mapping[str, Code],
        access: _TopicAccess | None,
    ) -> Slices:
        """The response, as a function that encodes it.

        Takes: codes, the errors of topics that were missing when the request arrived; access, None
               if the client may see everything.
        """
        yield
        if _is_wide(request):
            return (yield from self._encoded_in_slices(request, context, codes, access))
        topics = yield from self._rows(request, context, codes, access)
        if access is not None and request.include_topic_authorized_operations:
            for number, topic in enumerate(topics):
                topics[number] = topic._replace(operations=access.topic_operations(topic))
                if number % ROWS_READ_AT_ONCE == ROWS_READ_AT_ONCE - 1:
                    yield
        return self._encoding(request, context, topics, access)

    def _encoding(
        self,
        request: MetadataRequest,
        context: RequestContext,
        topics: list[MetadataTopic] | EncodedTopics,
        access: _TopicAccess | None,
    ) -> Pieces:
        """A function that encodes the response. Takes: topics, their entries with their authorized
        operations.
        """
        cluster_operations = CLUSTER_OPERATIONS
        if access is not None and request.include_cluster_authorized_operations:
            cluster_operations = access.cluster_operations()
        if self._requests.errors is not None and isinstance(topics, list):
            self._requests.errors.count_rows(context.api_key, topics)
        encode = partial(
            encode_metadata,
            context.correlation_id,
            context.api_version,
            controller_id=self._cluster.controller_id,
            brokers=self._addresses.endpoints(context),
            cluster_id=self._topics.logs.cluster_id,
            topics=topics,
            topic_operations=_topic_operations(request),
            cluster_operations=cluster_operations
            if request.include_cluster_authorized_operations
            else OPERATIONS_NOT_ASKED,
        )
        return lambda: (encode(),)

    def _answer_wide(
        self, request: MetadataRequest, context: RequestContext, access: _TopicAccess | None
    ) -> Slices:
        """`on_metadata` for a wide request. Gives: the response, or PARKED while missing topics are
        created.
        """
        yield
        missing: list[str] = []
        codes: dict[str, Code] = {}
        if not _names_ids_too_soon(request, context):
            for some in _parts(request):
                yield
                names = self._missing_names(some, context)
                missing += access.creatable(names, codes) if names and access is not None else names
        if missing:
            now_ms = yield
            making = self._make_missing(
                request, context, list(dict.fromkeys(missing)), codes, access
            )
            return self._requests.answer_in_slices(request, context.replace(now_ms=now_ms), making)
        return Encoded((yield from self._encoded_in_slices(request, context, codes, access))())

    def _encoded_in_slices(
        self,
        request: MetadataRequest,
        context: RequestContext,
        codes: Mapping[str, Code],
        access: _TopicAccess | None,
    ) -> Slices:
        """`_described` for a wide request, whose topics are also encoded in slices."""
        is_refused = _names_ids_too_soon(request, context)
        endpoints = self._addresses.endpoints(context)
        node_id = endpoints[0].node_id if endpoints else NO_LEADER
        seen: dict[tuple[str, uuid.UUID | None], None] = {}
        count, data = 0, bytearray()
        for part in _parts(request):
            yield
            if is_refused:
                topics = _refused_for_ids(part)
            else:
                new = [key for key in _once(part.topics or ()) if key not in seen]
                seen.update(dict.fromkeys(new))
                part.topics = [
                    MetadataRequestTopic(topic_id, name if topic_id is None else None)
                    for name, topic_id in new
                ]
                topics = (yield from self._rows(part, context, codes, access)) if new else []
            if access is not None and request.include_topic_authorized_operations:
                topics = [
                    topic._replace(operations=access.topic_operations(topic)) for topic in topics
                ]
            if self._requests.errors is not None:
                self._requests.errors.count_rows(context.api_key, topics)
            count += len(topics)
            data += encode_topics(context.api_version, node_id, topics, _topic_operations(request))
        yield
        return self._encoding(request, context, EncodedTopics(count, bytes(data)), access)

    def _rows(
        self,
        request: MetadataRequest,
        context: RequestContext,
        codes: Mapping[str, Code],
        access: _TopicAccess | None,
    ) -> Slices:
        """The rows of the requested topics, in slices; of all topics if the request is for all."""
        requested = request.topics
        rows = []
        left = ROWS_READ_AT_ONCE
        if requested is None or (not requested and context.api_version < NONE_MEANS_NONE_SINCE):
            for topic in list(self._topics.metadata.topics.values()):
                if self._topics.metadata.topic(topic.name) is not topic:
                    continue  # the topic was deleted between two slices
                if access is None or access.sees(topic.name, is_named=False):
                    rows.append(self._row_of(topic))
                left -= 1 + topic.partition_count // PARTITIONS_AS_A_ROW
                if left <= 0:
                    left = ROWS_READ_AT_ONCE
                    yield
            return rows
        if _names_ids_too_soon(request, context):
            return _refused_for_ids(request)
        for name, topic_id in _once(requested):
            left -= 1
            if not left:
                left = ROWS_READ_AT_ONCE
                yield
            if topic_id is not None:
                rows.append(self._found_by_id(topic_id, access))
                continue
            if access is not None and not access.sees(name):
                rows.append(
                    MetadataTopic(
                        Code.TOPIC_AUTHORIZATION_FAILED, name, NO_ID, name in INTERNAL_TOPICS
                    )
                )
                continue
            found = self._topics.metadata.topic(name)
            if found is not None and name not in codes:
                rows.append(self._row_of(found))
            else:
                rows.append(
                    MetadataTopic(
                        codes.get(name) or _why_missing(name), name, NO_ID, name in INTERNAL_TOPICS
                    )
                )
        return rows

    def _found_by_id(self, topic_id: uuid.UUID, access: _TopicAccess | None) -> MetadataTopic:
        """The row of a topic that the request gives by id. A refusal does not contain the name."""
        topic = self._topics.metadata.topic_by_id(topic_id)
        if topic is None:
            return MetadataTopic(Code.UNKNOWN_TOPIC_ID, None, topic_id)
        if access is not None and not access.sees(topic.name):
            return MetadataTopic(Code.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
        return self._row_of(topic)

    def _row_of(self, topic: Topic) -> MetadataTopic:
        """The row of an existing topic with its partitions."""
        logs = self._topics.partitions_of(topic.name)
        if not self._cluster.is_one or self._cluster.standby is not None:
            return MetadataTopic(
                Code.NONE,
                topic.name,
                topic.topic_id,
                topic.internal,
                self._topics.leader_epochs(topic.name),
                led=led_partitions(self._cluster, topic.name, logs),
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
            self._topics.leader_epochs(topic.name),
            offline,
        )


class _TopicAccess:
    """The topics that a request's client may see and create."""

    def __init__(self, access: Access | None) -> None:

        assert access is not None, "there is an authorizer"
        self._access, self._operation, self._topic = access, Operation, ResourceType.TOPIC

    def sees(self, name: str, *, is_named: bool = True) -> bool:
        """Whether the client may see a topic. Takes: is_named, whether the request names the
        topic.
        """
        ask = self._access.may if is_named else self._access.sees
        return ask(self._operation.DESCRIBE, self._topic, name)

    def creatable(self, names: list[str], codes: dict[str, Code]) -> list[str]:
        """The missing topics that the client may create. Topics that it may see but not create get
        an error in `codes`.
        """
        names = [name for name in names if self.sees(name)]
        if not names or self._access.is_enough_on_cluster(self._operation.CREATE):
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
        return self._access.operations_on_cluster(CLUSTER_OPERATIONS)


def _client_of(context: RequestContext) -> dict[str, str]:
    return {"client_id": context.client_id or "", "client": context.client_host.removeprefix("/")}


def _topic_operations(request: MetadataRequest) -> int:
    wants_them = request.include_topic_authorized_operations
    return TOPIC_OPERATIONS if wants_them else OPERATIONS_NOT_ASKED


# --- many topics --------------------------------------------------------------------------------


def _is_wide(request: MetadataRequest) -> bool:
    """Whether the request names so many topics that they have to be looked up in slices."""
    return request.topics is not None and len(request.topics) > NAMED_AT_ONCE


def _parts(request: MetadataRequest) -> Iterator[MetadataRequest]:
    """A wide request as requests for NAMED_AT_ONCE topics each."""
    rows: Iterator[MetadataRequestTopic] = iter(request.topics or ())
    while some := list(islice(rows, NAMED_AT_ONCE)):
        yield MetadataRequest(
            topics=some, allow_auto_topic_creation=request.allow_auto_topic_creation
        )


# --- topics ---------------------------------------------------------------------------------------


def _names_ids_too_soon(request: MetadataRequest, context: RequestContext) -> bool:
    """Whether a request has topic ids, or null names, in a version that does not support them."""
    return context.api_version < ASKED_BY_ID_SINCE and any(
        wanted.name is None or wanted.topic_id for wanted in request.topics or ()
    )


def _refused_for_ids(request: MetadataRequest) -> list[MetadataTopic]:
    """The refusal of a request that has topic ids, in a version that does not support them."""
    return [
        MetadataTopic(Code.INVALID_REQUEST, wanted.name or "", wanted.topic_id or NO_ID)
        for wanted in request.topics or ()
    ]


def _once(requested: Iterable[MetadataRequestTopic]) -> Iterable[tuple[str, uuid.UUID | None]]:
    """Each name and each id once, in order. A topic that is requested with both is identified by
    its id.
    """
    return dict.fromkeys(
        ("", wanted.topic_id) if wanted.topic_id else (wanted.name or "", None)
        for wanted in requested
    )


def _why_missing(name: str) -> Code:
    """The error code for a topic that does not exist: it depends on whether the name is valid."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return Code.UNKNOWN_TOPIC_OR_PARTITION


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(3, "Metadata", 0, 13, flexible_from=9),
        right=rule(
            in_handler(
                Ask(DESCRIBE, TOPIC, "others are left out where all are asked for"),
                Ask(CREATE, CLUSTER, "for a topic that is to be made"),
                Ask(CREATE, TOPIC, "or on the topic"),
                Ask(DESCRIBE, CLUSTER, "for the operations on it"),
            )
        ),
        handler=lambda parts: (
            MetadataHandler(
                parts.config,
                parts.ids,
                parts.requests,
                parts.families,
                parts.wide,
                parts.quotas,
                parts.access,
                parts.topics,
                parts.cluster,
                parts.addresses,
            ).on_metadata
        ),
    ),
)
