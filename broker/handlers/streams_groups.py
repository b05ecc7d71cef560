"""StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071), if `streams.version` enables them."""

from __future__ import annotations

from itertools import islice

from barnabas.broker import coordinators  # noqa: F401 - loaded with the family
from barnabas.broker.admission import streams_guards
from barnabas.broker.admission.coordination import Coordination, Heartbeats, One, Several
from barnabas.broker.admission.guard_steps import (
    Ask,
    by_hand,
    each,
    in_answer,
    in_handler,
    operations_of,
    rule,
    whole,
)
from barnabas.broker.admission.rights import CLUSTER, CREATE, DESCRIBE, GROUP, READ, TOPIC
from barnabas.broker.api_row import ApiRow
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.groups.group_runtime import GroupRuntime
from barnabas.broker.outbox import PARKED, Answer
from barnabas.broker.parts import Parts
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.wide_requests import Shape, of_rows
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.broker.topic_changes.new_topics import NewTopics
from barnabas.broker.topic_changes.streams_topics import StreamsTopics, check_names
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.groups.streams.topic_plan import Status
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.coordinator.result import CreateTopics, InternalTopic, Result
from barnabas.protocol.api import Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from barnabas.protocol.request_context import RequestContext

MOST_NAMED = 3  # topics in an explanation


class StreamsGroupHandler:
    """Answers heartbeats and descriptions of streams groups, and creates the groups' internal
    topics.
    """

    __slots__ = (
        "_access", "_features", "_group_runtime", "_groups", "_requests", "_streams_topics",
    )  # fmt: skip

    def __init__(
        self,
        requests: Requests,
        groups: GroupCoordinator,
        group_runtime: GroupRuntime,
        features: CurrentFeatures,
        access: ClientAccess,
        streams_topics: StreamsTopics,
    ) -> None:
        self._requests, self._groups, self._group_runtime = requests, groups, group_runtime
        self._features, self._access = features, access
        self._streams_topics = streams_topics

    def on_streams_group_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> Answer:
        """Join a streams group, stay in it, or leave it. Missing internal topics are created after
        the response, if the client may create them.

        Errors: UNSUPPORTED_VERSION if `streams.version` is 0; STREAMS_INVALID_TOPOLOGY for names
        that are invalid for topics; the errors of the coordinator.
        """
        if not self._features.speaks_streams_groups:
            return request.error_response(context.api_version, Code.UNSUPPORTED_VERSION)
        if request.topology is not None:
            try:
                check_names(request.topology)
            except KafkaError as error:
                return StreamsGroupHeartbeatResponse(
                    error_code=error.code, error_message=error.message
                )
        self._requests.park(context)
        decide = self._groups.streams_requests.on_heartbeat
        creations: list[CreateTopics] = []

        def explain(result: Result) -> None:
            if result.creation is not None and self._may_create(result, result.creation, context):
                creations.append(result.creation)

        self._group_runtime.run_heartbeat(
            lambda: decide(request, context, context.now_ms), request, context, explain
        )
        for creation in creations:
            self._streams_topics.make(creation.topics, context, creation.kept_ms)
        return PARKED

    def _may_create(self, result: Result, creation: CreateTopics, context: RequestContext) -> bool:
        """Whether the client may create the topics that its group lacks. If it may not, or if their
        creation failed recently, the response says why the topics are missing.
        """
        denied = self._not_creatable(creation.topics, context)
        topics = self._streams_topics
        if denied:
            more = " and others" if len(denied) > MOST_NAMED else ""
            why = f"the client may not create {', '.join(denied[:MOST_NAMED])}{more}"
        else:
            why = topics.why_missing([topic.name for topic in creation.topics], context.now_ms)
        if why:
            _explain(result, why)
        return not denied

    def _not_creatable(
        self, topics: tuple[InternalTopic, ...], context: RequestContext
    ) -> list[str]:
        """The first few topics that the client may not create."""
        access = self._access.of(context)
        if access is None:
            return []

        if access.is_enough_on_cluster(Operation.CREATE):
            return []
        denied = (
            topic.name
            for topic in topics
            if not access.may(Operation.CREATE, ResourceType.TOPIC, topic.name)
        )
        return list(islice(denied, MOST_NAMED + 1))

    def on_streams_group_describe(
        self, request: StreamsGroupDescribeRequest, context: RequestContext
    ) -> Answer:
        """Describe streams groups. Errors of a group: GROUP_ID_NOT_FOUND, INVALID_GROUP_ID;
        UNSUPPORTED_VERSION for all if `streams.version` is 0.
        """
        if not self._features.speaks_streams_groups:
            return request.error_response(context.api_version, Code.UNSUPPORTED_VERSION)
        work = self._groups.streams_requests.describe_groups(request, context)
        return self._requests.read_in_slices(context, work)


def _explain(result: Result, why: str) -> None:
    """Add the reason why internal topics are missing to the response."""
    (reply,) = result.replies
    assert isinstance(reply.response, StreamsGroupHeartbeatResponse)
    for status in reply.response.status or ():
        if status.status_code == Status.MISSING_INTERNAL_TOPICS:
            status.status_detail += f" ({why})"


# --- the APIs of this family ----------------------------------------------------------------------


def _handler(parts: Parts) -> StreamsGroupHandler:
    new_topics = NewTopics(parts.config, parts.ids, parts.topics, parts.cluster)
    streams_topics = parts.of_family(
        StreamsTopics,
        lambda: StreamsTopics(new_topics, parts.topics, parts.requests, parts.quotas),
    )
    return StreamsGroupHandler(
        parts.requests,
        parts.groups,
        parts.group_runtime,
        parts.features,
        parts.access,
        streams_topics,
    )


ROWS = (
    ApiRow(
        Api(88, "StreamsGroupHeartbeat", 0, 0, flexible_from=0, most_elements=20_000),
        right=rule(
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
        coordination=Coordination(
            one=One(OFFSETS_TOPIC, "group_id"),
            heartbeats=Heartbeats(
                lambda groups: groups.streams_requests.on_heartbeat,
                lambda features: features.speaks_streams_groups,
            ),
        ),
        handler=lambda parts: _handler(parts).on_streams_group_heartbeat,
    ),
    ApiRow(
        Api(89, "StreamsGroupDescribe", 0, 0, flexible_from=0),
        right=rule(
            each(DESCRIBE, GROUP, "group_ids"),
            in_answer(
                streams_guards.hide_groups_of_hidden_topics,
                Ask(DESCRIBE, TOPIC, "for all of its topology"),
            ),
            operations_of("groups", GROUP, "group_id", "authorized_operations"),
        ),
        shapes=(Shape(of_rows("group_ids", "groups"), at_once=10),),
        coordination=Coordination(several=Several(OFFSETS_TOPIC, "group_ids", "groups")),
        handler=lambda parts: _handler(parts).on_streams_group_describe,
    ),
)
