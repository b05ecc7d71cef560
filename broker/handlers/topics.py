"""CreateTopics, DeleteTopics, CreatePartitions: create and delete topics, and add partitions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Generator, Hashable, Iterable, Mapping
from typing import TypeVar

from barnabas.broker import coordinators  # noqa: F401 - loaded with the family
from barnabas.broker.admission import guards
from barnabas.broker.admission.guard_steps import (
    Ask,
    by_hand,
    each,
    enough_on_cluster,
    in_handler,
    rule,
)
from barnabas.broker.admission.rights import (
    ALTER,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    TOPIC,
)
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.logs.metadata import Topic
from barnabas.broker.logs.topic_names import TakenNames
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.outbox import Answer
from barnabas.broker.parts import Parts
from barnabas.broker.quotas.client_quotas import Mutations
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.requests.encoded_rows import EncodedRows
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.config_entries import topic_entries
from barnabas.broker.slices import MOST_PARTITIONS_AT_ONCE, Slices
from barnabas.broker.topic_changes.new_topics import NewTopics
from barnabas.broker.topic_changes.topic_deletion import TopicDeletion
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.api import CHANGES, Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas.protocol.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from barnabas.protocol.request_context import RequestContext

Key = TypeVar("Key", bound=Hashable)
Answered = TypeVar("Answered", CreateTopicsResponse, DeleteTopicsResponse, CreatePartitionsResponse)

UNSET = -1
NO_ID = uuid.UUID(int=0)
MOST_TOPICS_DELETED_AT_ONCE = 10_000
CHECKED_AT_ONCE = 50
CREATION_TELLS_SETTINGS_SINCE = 5
BY_ID_SINCE = 6
DELETION_DISABLED_SINCE = 3


class TopicHandler:
    """Answers CreateTopics, DeleteTopics and CreatePartitions."""

    __slots__ = (
        "_access",
        "_cluster",
        "_config",
        "_deletion",
        "_new_topics",
        "_quotas",
        "_requests",
        "_topics",
    )

    def __init__(
        self,
        config: BrokerConfig,
        new_topics: NewTopics,
        requests: Requests,
        quotas: Quotas,
        access: ClientAccess,
        topics: TopicRegistry,
        cluster: Cluster,
        deletion: TopicDeletion,
    ) -> None:
        self._config = config
        self._new_topics = new_topics
        self._requests = requests
        self._quotas = quotas
        self._access = access
        self._topics = topics
        self._cluster = cluster
        self._deletion = deletion

    def on_create_topics(self, request: CreateTopicsRequest, context: RequestContext) -> Answer:
        """Create topics, or only check whether they could be created. An error of one topic does
        not affect the others.

        Errors: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT; INVALID_REQUEST for a name given
        twice, or for counts together with assignments; POLICY_VIOLATION for all topics if the
        request asks for too many partitions; KAFKA_STORAGE_ERROR for topics without disk space,
        which are removed again.
        """
        return self._requests.answer_in_slices(
            request, context, self._create_topics(request, context)
        )

    def _create_topics(self, request: CreateTopicsRequest, context: RequestContext) -> Slices:
        """The slices of `on_create_topics`: all topics are checked first, then those without an
        error are created.
        """
        may_see = self._settings_shown(context)  # now, as the client may disconnect later
        now_ms = yield
        counts = _counts(topic_request.name for topic_request in request.topics)
        new_topics = self._new_topics
        total = sum(map(new_topics.requested_count, request.topics))
        if len(request.topics) > CHECKED_AT_ONCE:
            now_ms = yield
        taken = TakenNames(self._topics.metadata.topics)
        mutations = self._mutations(context)
        config_rows: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}
        rows: list[CreatableTopicResult] = []
        wanted: list[Topic] = []
        for topic_request in {
            topic_request.name: topic_request for topic_request in request.topics
        }.values():
            if rows and len(rows) % CHECKED_AT_ONCE == 0:
                now_ms = yield
            try:
                if counts[topic_request.name] > 1:
                    raise KafkaError(
                        Code.INVALID_REQUEST,
                        f"The topic '{topic_request.name}' is named more than once in this "
                        "request: name it once.",
                    )
                if total > MOST_PARTITIONS_AT_ONCE:
                    raise KafkaError(
                        Code.POLICY_VIOLATION,
                        f"This request is for {total} partitions: ask for at most "
                        f"{MOST_PARTITIONS_AT_ONCE} at once.",
                    )
                topic = new_topics.checked(topic_request, taken)
                if mutations is not None:
                    mutations.record(topic.partition_count)
                taken.add(topic.name)
                if not request.validate_only:
                    wanted.append(topic)
                key = tuple(topic.configs.items())
                if key not in config_rows:
                    config_rows[key] = self._config_rows(topic.configs)
                topic_id = NO_ID if request.validate_only else topic.topic_id
                row = _created(topic, topic_id, config_rows[key], len(self._cluster.node_ids))
                rows.append(row if may_see is None else may_see(row))
            except KafkaError as error:
                rows.append(_not_created(topic_request.name, error))
        if wanted:
            lacking = set((yield from self._topics.create_topics(wanted, now_ms)))
            _refuse_for_space(rows, lacking, self._no_room())
        answer = CreateTopicsResponse(topics=rows)
        return (yield from self._in_slices(answer, "topics", context))

    def _settings_shown(
        self, context: RequestContext
    ) -> Callable[[CreatableTopicResult], CreatableTopicResult] | None:
        """A function that removes a topic's settings from its result if the client may not describe
        them. None if the client may see all settings.
        """
        access = self._access.of(context)
        if access is None or context.api_version < CREATION_TELLS_SETTINGS_SINCE:
            return None

        operation, resource_type = Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC

        def without_hidden(row: CreatableTopicResult) -> CreatableTopicResult:
            if not access.sees(operation, resource_type, row.name):
                row.num_partitions = row.replication_factor = UNSET
                row.configs = []
                row.topic_config_error_code = Code.TOPIC_AUTHORIZATION_FAILED
            return row

        return without_hidden

    def _in_slices(
        self, answer: Answered, field: str, context: RequestContext
    ) -> Generator[None, int, Answered]:
        """Encode the results of a long response in slices, since encoding the settings of thousands
        of topics takes seconds.
        """
        rows = getattr(answer, field)
        if len(rows) <= CHECKED_AT_ONCE:
            return answer
        if self._requests.errors is not None:
            self._requests.errors.count_rows(context.api_key, rows)
        encoded = EncodedRows()
        for first in range(0, len(rows), CHECKED_AT_ONCE):
            yield
            encoded.add(rows[first : first + CHECKED_AT_ONCE], context.api_version)
        setattr(answer, field, encoded)
        return answer

    def _config_rows(self, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """The settings of a new topic for the answer."""
        return [
            CreatableTopicConfigs(
                name=entry.setting.name,
                value=configs.get(
                    entry.setting.name, entry.value
                ),  # a topic's own settings are shown as they were given
                read_only=False,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in topic_entries(self._config, configs)
        ]

    def on_delete_topics(self, request: DeleteTopicsRequest, context: RequestContext) -> Answer:
        """Delete topics, identified by name or (since version 6) by id.

        Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID; TOPIC_DELETION_DISABLED if
        delete.topic.enable is false; INVALID_REQUEST for a topic given twice, with both name and
        id, or with neither; INVALID_TOPIC_EXCEPTION for internal topics; POLICY_VIOLATION for all
        if the request names too many topics.
        """
        return self._requests.answer_in_slices(
            request, context, self._delete_topics(request, context)
        )

    def _delete_topics(self, request: DeleteTopicsRequest, context: RequestContext) -> Slices:
        """The slices of `on_delete_topics`: all topics are checked first, then those without an
        error are deleted.
        """
        now_ms = yield
        if context.api_version >= BY_ID_SINCE:
            wanted: list[tuple[str | None, uuid.UUID]] = [
                (state.name, state.topic_id or NO_ID) for state in request.topics
            ]
        else:
            wanted = [(name, NO_ID) for name in request.topic_names]
        # Keyed by id if the topic exists, so that a topic that is given once by name and once by id
        # counts as given twice.
        keys = [self._existing_id(name, topic_id) or (name, topic_id) for name, topic_id in wanted]
        counts = _counts(keys)
        if len(wanted) > CHECKED_AT_ONCE:
            now_ms = yield
        mutations = self._mutations(context)
        rows = []
        answered: set[Hashable] = set()
        deletable: list[str] = []
        for number, (key, (name, topic_id)) in enumerate(zip(keys, wanted, strict=True), 1):
            if number % CHECKED_AT_ONCE == 0:
                now_ms = yield
            code, message = Code.NONE, None
            try:
                if counts[key] > 1 and key != (None, NO_ID):
                    if key in answered:
                        continue
                    answered.add(key)
                    raise KafkaError(
                        Code.INVALID_REQUEST,
                        "The topic is given more than once in this request: give it once.",
                    )
                if len(wanted) > MOST_TOPICS_DELETED_AT_ONCE:
                    raise KafkaError(
                        Code.POLICY_VIOLATION,
                        f"This request is for {len(wanted)} topics: delete at most "
                        f"{MOST_TOPICS_DELETED_AT_ONCE} at once.",
                    )
                name, topic_id = self._checked_for_deletion(name, topic_id, context)
                if mutations is not None:
                    mutations.record(self._topics.metadata.topics[name].partition_count)
                deletable.append(name)
            except KafkaError as error:
                code, message = error.code, error.message
            rows.append(DeletableTopicResult(name, topic_id, code, message))
        if deletable:
            yield from self._deletion.delete_topics(deletable, now_ms)
        answer = DeleteTopicsResponse(responses=rows)
        return (yield from self._in_slices(answer, "responses", context))

    def _existing_id(self, name: str | None, topic_id: uuid.UUID) -> uuid.UUID | None:
        """The id of the requested topic, whether it is given by name or by id; None if it does not
        exist.
        """
        if name is None:
            return (
                topic_id
                if topic_id != NO_ID and self._topics.metadata.topic_by_id(topic_id) is not None
                else None
            )
        topic = self._topics.metadata.topic(name)
        return None if topic is None else topic.topic_id

    def _checked_for_deletion(
        self, name: str | None, topic_id: uuid.UUID, context: RequestContext
    ) -> tuple[str, uuid.UUID]:
        """The name and the id of the topic to delete. Raises: KafkaError if it cannot be
        deleted.
        """
        if not self._config.delete_topic_enable:
            code = (
                Code.TOPIC_DELETION_DISABLED
                if context.api_version >= DELETION_DISABLED_SINCE
                else Code.INVALID_REQUEST
            )
            raise KafkaError(
                code,
                "This broker deletes no topics: set delete.topic.enable=true in its config to "
                "allow it.",
            )
        if name is not None and topic_id != NO_ID:
            raise KafkaError(
                Code.INVALID_REQUEST, "The topic is given by name and by id: give one of them."
            )
        if name is None and topic_id == NO_ID:
            raise KafkaError(
                Code.INVALID_REQUEST,
                "The topic is given neither by name nor by id: give one of them.",
            )
        topic = (
            self._topics.metadata.topic_by_id(topic_id)
            if name is None
            else self._topics.metadata.topic(name)
        )
        if topic is None:
            if name is None:
                raise KafkaError(
                    Code.UNKNOWN_TOPIC_ID, f"There is no topic with the id {topic_id}."
                )
            raise KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
        _refuse_internal(topic.name, "deleted")
        return topic.name, topic.topic_id

    def on_create_partitions(
        self, request: CreatePartitionsRequest, context: RequestContext
    ) -> Answer:
        """Add partitions to topics, or only check whether they could be added.

        Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS (no growth),
        INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST for a topic named twice, POLICY_VIOLATION for
        too many partitions at once, INVALID_TOPIC_EXCEPTION for internal topics,
        KAFKA_STORAGE_ERROR without disk space.
        """
        return self._requests.answer_in_slices(
            request, context, self._create_partitions(request, context)
        )

    def _create_partitions(
        self, request: CreatePartitionsRequest, context: RequestContext
    ) -> Slices:
        """The slices of `on_create_partitions`: all topics are checked first, then those without an
        error are grown.
        """
        now_ms = yield
        mutations = self._mutations(context)
        counts = _counts(topic_request.name for topic_request in request.topics)
        total = sum(self._added_count(topic_request) for topic_request in request.topics)
        if len(request.topics) > CHECKED_AT_ONCE:
            now_ms = yield
        wanted: dict[str, int] = {}
        rows: list[CreatePartitionsTopicResult] = []
        for topic_request in {
            topic_request.name: topic_request for topic_request in request.topics
        }.values():
            if rows and len(rows) % CHECKED_AT_ONCE == 0:
                now_ms = yield
            code, message = Code.NONE, None
            try:
                if counts[topic_request.name] > 1:
                    raise KafkaError(
                        Code.INVALID_REQUEST,
                        f"The topic '{topic_request.name}' is named more than once in this "
                        "request: name it "
                        "once.",
                    )
                self._check_growth(topic_request, total)
                if mutations is not None:
                    mutations.record(self._added_count(topic_request))
                if not request.validate_only:
                    self._assign_growth(topic_request)
                    wanted[topic_request.name] = topic_request.count
            except KafkaError as error:
                code, message = error.code, error.message
            rows.append(CreatePartitionsTopicResult(topic_request.name, code, message))
        if wanted:
            lacking = set((yield from self._topics.add_partitions(wanted, now_ms)))
            for row in rows:
                if row.name in lacking:
                    row.error_code = int(Code.KAFKA_STORAGE_ERROR)
                    row.error_message = self._no_room()
        answer = CreatePartitionsResponse(results=rows)
        return (yield from self._in_slices(answer, "results", context))

    def _no_room(self) -> str:
        return (
            "The broker has no room for so many partitions: "
            f"{self._topics.disk_space.shortage()}. Free some space or inodes, or ask for fewer."
        )

    def _added_count(self, topic_request: CreatePartitionsTopic) -> int:
        """The number of partitions that a request would add to a topic, even if the request is
        invalid.
        """
        topic = self._topics.metadata.topic(topic_request.name)
        return 0 if topic is None else max(0, topic_request.count - topic.partition_count)

    def _check_growth(self, topic_request: CreatePartitionsTopic, total: int) -> None:
        """Check that a topic can grow as requested. Raises: KafkaError. Takes: total, the number of
        partitions that the whole request adds.
        """
        topic = self._topics.metadata.topic(topic_request.name)
        if topic is None:
            raise KafkaError(
                Code.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{topic_request.name}'."
            )
        _refuse_internal(topic.name, "grown")
        added_count = topic_request.count - topic.partition_count
        if added_count <= 0:
            raise KafkaError(
                Code.INVALID_PARTITIONS,
                f"The topic '{topic_request.name}' has {topic.partition_count} partitions, "
                f"which {topic_request.count} does not raise: give a higher number.",
            )
        if total > MOST_PARTITIONS_AT_ONCE:
            raise KafkaError(
                Code.POLICY_VIOLATION,
                f"This request is for {total} more partitions: ask for at most "
                f"{MOST_PARTITIONS_AT_ONCE} at once.",
            )
        if topic_request.assignments is not None:
            if len(topic_request.assignments) != added_count:
                raise KafkaError(
                    Code.INVALID_REPLICA_ASSIGNMENT,
                    f"{len(topic_request.assignments)} partitions are assigned and {added_count} "
                    "would be new: "
                    "assign each of the new ones.",
                )
            for index, assignment in enumerate(topic_request.assignments, topic.partition_count):
                self._new_topics.check_replicas(index, assignment.broker_ids)

    def _assign_growth(self, topic_request: CreatePartitionsTopic) -> None:
        """Store the requested replicas of a topic's new partitions, if there are several brokers
        and the request assigns replicas.
        """
        if self._cluster.is_one or topic_request.assignments is None:
            return
        name = topic_request.name
        present = [one.replicas for one in self._cluster.leaderships(name)]
        added = [tuple(one.broker_ids) for one in topic_request.assignments]
        self._topics.metadata.set_topic_replicas(name, (*present, *added))

    def _mutations(self, context: RequestContext) -> Mutations | None:
        """The object that records the request's changes for the client's quota; None if there are
        no quotas.
        """
        return None if self._quotas.clients is None else self._quotas.clients.mutations(context)


def _refuse_for_space(
    rows: Iterable[CreatableTopicResult], lacking: Container[str], why: str
) -> None:
    """Replace the results of topics for which there was no disk space with errors."""
    for row in rows:
        if row.name in lacking:
            row.topic_id, row.error_code, row.error_message = (
                NO_ID,
                int(Code.KAFKA_STORAGE_ERROR),
                why,
            )
            row.num_partitions, row.replication_factor, row.configs = UNSET, UNSET, []


def _created(
    topic: Topic, topic_id: uuid.UUID, configs: list[CreatableTopicConfigs], node_count: int
) -> CreatableTopicResult:
    """The result for a new topic. Takes: node_count, the replication factor of topics without
    replicas in the journal.
    """
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=Code.NONE,
        error_message=None,
        num_partitions=topic.partition_count,
        replication_factor=len(topic.replicas[0]) if topic.replicas else node_count,
        configs=configs,
    )


def _not_created(name: str, error: KafkaError) -> CreatableTopicResult:
    """The row of a topic that is refused."""
    return CreatableTopicResult(
        name=name,
        topic_id=NO_ID,
        error_code=error.code,
        error_message=error.message,
        num_partitions=UNSET,
        replication_factor=UNSET,
        configs=[],
    )


def _refuse_internal(name: str, what: str) -> None:
    """Raise KafkaError for an internal topic: coordinators rely on its partition count, and on its
    records.
    """
    if name in INTERNAL_TOPICS:
        raise KafkaError(
            Code.INVALID_TOPIC_EXCEPTION,
            f"The topic '{name}' is internal: it cannot be {what}.",
        )


def _counts(keys: Iterable[Key]) -> dict[Key, int]:
    """How often each key occurs."""
    counts: dict[Key, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return counts


# --- the APIs of this family ----------------------------------------------------------------------


def _handler(parts: Parts) -> TopicHandler:
    return TopicHandler(
        parts.config,
        NewTopics(parts.config, parts.ids, parts.topics, parts.cluster),
        parts.requests,
        parts.quotas,
        parts.access,
        parts.topics,
        parts.cluster,
        parts.deletion,
    )


ROWS = (
    ApiRow(
        Api(19, "CreateTopics", 0, 7, flexible_from=5, most_elements=2 * CHANGES),
        right=rule(
            enough_on_cluster(CREATE),
            each(CREATE, TOPIC, "topics.name", "or on the topic"),
            in_handler(Ask(DESCRIBE_CONFIGS, TOPIC, "for the settings in the answer")),
        ),
        handler=lambda parts: _handler(parts).on_create_topics,
    ),
    ApiRow(
        Api(20, "DeleteTopics", 0, 6, flexible_from=4, most_elements=CHANGES),
        right=rule(
            enough_on_cluster(DELETE),
            by_hand(
                guards.delete_topics_step,
                Ask(DELETE, TOPIC, "or on the topic"),
                Ask(DESCRIBE, TOPIC, "too, by its name; by its id, for the name in the answer"),
            ),
        ),
        handler=lambda parts: _handler(parts).on_delete_topics,
    ),
    ApiRow(
        Api(37, "CreatePartitions", 0, 3, flexible_from=2, most_elements=CHANGES),
        right=rule(each(ALTER, TOPIC, "topics.name")),
        handler=lambda parts: _handler(parts).on_create_partitions,
    ),
)
