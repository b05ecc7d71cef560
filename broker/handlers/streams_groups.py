"""StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071), if `streams.version` enables them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.outbox import PARKED, Answer
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.connections.access import ClientAccess
    from barnabas.broker.groups.group_runtime import GroupRuntime
    from barnabas.broker.lazy import Lazy
    from barnabas.broker.requests.pending_requests import Requests
    from barnabas.broker.settings.current_features import CurrentFeatures
    from barnabas.broker.topic_changes.streams_topics import StreamsTopics
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
    from barnabas.coordinator.groups.streams.topology import CreateTopics, InternalTopic
    from barnabas.coordinator.result import Result
    from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
    from barnabas.protocol.request_context import RequestContext


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
        streams_topics: Lazy[StreamsTopics],
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
            from barnabas.broker.topic_changes.streams_topics import check_names

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
            self._streams_topics.get().make(creation.topics, context, creation.kept_ms)
        return PARKED

    def _may_create(self, result: Result, creation: CreateTopics, context: RequestContext) -> bool:
        """Whether the client may create the topics that its group lacks. If it may not, or if their
        creation failed recently, the response says why the topics are missing.
        """
        denied = self._not_creatable(creation.topics, context)
        topics = self._streams_topics.get()
        if denied:
            why = f"the client may not create {', '.join(denied)}"
        else:
            why = topics.why_missing([topic.name for topic in creation.topics], context.now_ms)
        if why:
            _explain(result, why)
        return not denied

    def _not_creatable(
        self, topics: tuple[InternalTopic, ...], context: RequestContext
    ) -> list[str]:
        """The topics that the client may not create."""
        access = self._access.of(context)
        if access is None:
            return []
        from barnabas.broker.security.acls import Operation, ResourceType

        if access.is_enough_on_cluster(Operation.CREATE):
            return []
        return [
            topic.name
            for topic in topics
            if not access.may(Operation.CREATE, ResourceType.TOPIC, topic.name)
        ]

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
    from barnabas.coordinator.groups.streams.topic_plan import Status

    (reply,) = result.replies
    assert isinstance(reply.response, StreamsGroupHeartbeatResponse)
    for status in reply.response.status or ():
        if status.status_code == Status.MISSING_INTERNAL_TOPICS:
            status.status_detail += f" ({why})"
