"""Handlers of requests that the group coordinator answers: the coordinator decides, and its Result
is carried out.

A request whose response may come later, with another Result, is parked first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter

from barnabas.broker.groups.group_runtime import GroupRuntime
from barnabas.broker.outbox import PARKED, Answer
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.without_space import refuse
from barnabas.broker.routes import Decide, Handler, ReadInSlices, Request, Respond
from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.coordinator.groups.consumer.topic_patterns import (
    InvalidPatternError,
    TopicPattern,
    read_client_pattern,
)
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import consumer_group_describe, consumer_group_heartbeat
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import NotWrittenError

group_of: Callable[[Message], str] = attrgetter("group_id")


def without_consumer_groups(request: Message) -> Message:
    """The response if the consumer protocol is off: UNSUPPORTED_VERSION, as in Kafka."""
    if isinstance(request, consumer_group_describe.ConsumerGroupDescribeRequest):
        rows = [
            consumer_group_describe.DescribedGroup(
                error_code=Code.UNSUPPORTED_VERSION, group_id=group_id
            )
            for group_id in request.group_ids
        ]
        return consumer_group_describe.ConsumerGroupDescribeResponse(groups=rows)
    return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
        error_code=Code.UNSUPPORTED_VERSION
    )


def without_share_groups(request: Message, context: RequestContext) -> Message:
    """The response if share groups are off: UNSUPPORTED_VERSION, as in Kafka."""
    return request.error_response(context.api_version, Code.UNSUPPORTED_VERSION)


class ToGroups:
    """Makes handlers of requests that the group coordinator answers."""

    def __init__(
        self,
        groups: GroupCoordinator,
        group_runtime: GroupRuntime,
        requests: Requests,
        features: CurrentFeatures,
    ) -> None:
        self._groups, self._runtime = groups, group_runtime
        self._requests, self._features = requests, features

    def answering(self, respond: Respond[Request]) -> Handler[Request]:
        """Make the handler of a request that writes nothing. It may restart the session of a
        member. Takes: respond, the coordinator's method.
        """
        requests, timers = self._requests, self._groups.timers

        def handle(request: Request, context: RequestContext) -> Answer:
            earliest_ms = timers.earliest_ms
            response = respond(request, context, context.now_ms)
            if timers.earliest_ms == earliest_ms:
                return requests.with_deadline_kept(context, response)
            return response

        return handle

    def writing(self, decide: Decide[Request]) -> Handler[Request]:
        """Make the handler of a request about a group that changes no state before its records are
        written. If there is no disk space, the records are dropped.
        """
        requests, runtime, timers = self._requests, self._runtime, self._groups.timers

        def handle(request: Request, context: RequestContext) -> Answer:
            runtime.check_writable(group_of(request))
            earliest_ms = timers.earliest_ms
            result = decide(request, context, context.now_ms)
            response = result.take_response()
            has_work = runtime.run(result, context.now_ms)
            if not has_work and timers.earliest_ms == earliest_ms:
                return requests.with_deadline_kept(context, response)
            return response

        return handle

    def of_members(self, decide: Decide[Request]) -> Handler[Request]:
        """Make the handler of a request that a member of a classic group sends."""
        requests, runtime = self._requests, self._runtime

        def handle(request: Request, context: RequestContext) -> Answer:
            runtime.check_writable(group_of(request))
            requests.park(context)
            runtime.run_or_keep(decide(request, context, context.now_ms), context.now_ms)
            return PARKED

        return handle

    def of_commits(self, decide: Decide[Request]) -> Handler[Request]:
        """Make the handler of a request that commits offsets."""
        return self._after_zookeeper(self.writing(decide))

    def of_offsets(self, respond: Respond[Request]) -> Handler[Request]:
        """Make the handler of a request that reads offsets."""
        return self._after_zookeeper(self.answering(respond))

    def _after_zookeeper(self, handle: Handler[Request]) -> Handler[Request]:
        """Make a handler that refuses version 0 of a request, since it means offsets in ZooKeeper,
        and handles later versions.
        """

        def handle_unless_version_0(request: Request, context: RequestContext) -> Answer:
            if context.api_version > 0:
                return handle(request, context)
            return request.error_response(0, Code.UNSUPPORTED_VERSION)

        return handle_unless_version_0

    def reading(self, read: ReadInSlices[Request]) -> Handler[Request]:
        """Make the handler of a request that only reads, in slices."""
        requests = self._requests

        def handle(request: Request, context: RequestContext) -> Answer:
            return requests.read_in_slices(context, read(request, context))

        return handle

    def reading_consumer_groups(self, read: ReadInSlices[Request]) -> Handler[Request]:
        """Make the handler of a request that reads groups of the consumer protocol, which
        `group.version` can turn off.
        """
        handle, features = self.reading(read), self._features

        def handle_if_on(request: Request, context: RequestContext) -> Answer:
            if features.speaks_consumer_groups:
                return handle(request, context)

            return without_consumer_groups(request)

        return handle_if_on

    def reading_share_groups(self, read: ReadInSlices[Request]) -> Handler[Request]:
        """Make the handler of a request that reads share groups, which `share.version` can turn
        off.
        """
        return self._if_share_groups(self.reading(read))

    def writing_share_groups(self, decide: Decide[Request]) -> Handler[Request]:
        """Make the handler of a request that changes a share group. The response is sent when the
        states of the group's partitions have changed.
        """
        requests, runtime = self._requests, self._runtime

        def handle(request: Request, context: RequestContext) -> Answer:
            runtime.check_writable(group_of(request))
            requests.park(context)
            if runtime.run_or_keep(decide(request, context, context.now_ms), context.now_ms):
                refuse(requests, request, context)
            return PARKED

        return self._if_share_groups(handle)

    def _if_share_groups(self, handle: Handler[Request]) -> Handler[Request]:
        """Handle a request if share groups are on; otherwise refuse it."""
        features = self._features

        def handle_if_on(request: Request, context: RequestContext) -> Answer:
            if features.speaks_share_groups:
                return handle(request, context)

            return without_share_groups(request, context)

        return handle_if_on

    def of_heartbeats(
        self, decide: Decide[ConsumerGroupHeartbeatRequest]
    ) -> Handler[ConsumerGroupHeartbeatRequest]:
        """Make the handler of ConsumerGroupHeartbeat. If matching the member's topic pattern takes
        long, the worker does it first.
        """
        groups, features, requests = self._groups, self._features, self._requests
        runtime = self._runtime

        def handle(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Answer:
            if not features.speaks_consumer_groups:
                return without_consumer_groups(request)
            requests.park(context)
            runtime.run_heartbeat(
                lambda: decide(request, context, context.now_ms), request, context
            )
            return PARKED

        def handle_when_read(
            request: ConsumerGroupHeartbeatRequest, context: RequestContext
        ) -> Answer:
            if not request.subscribed_topic_regex or not features.speaks_consumer_groups:
                return handle(request, context)
            text = groups.membership.pattern_to_read(request)
            if text is None:
                return handle(request, context)

            def done(made: TopicPattern | InvalidPatternError, now_ms: int) -> None:
                groups.keep_pattern(text, made)
                if not requests.is_waited_for(context):
                    return
                try:
                    answer = handle(request, context.replace(now_ms=now_ms))
                except NotWrittenError:
                    refuse(requests, request, context)
                    return
                if isinstance(answer, Message):
                    requests.reply(context.ticket, answer)

            requests.park(context, keeps_request=True)
            requests.run_elsewhere(context, partial(read_client_pattern, text), done, len(text))
            return PARKED

        return handle_when_read
