"""ShareFetch and ShareAcknowledge (KIP-932): records are locked for a member of a share group,
which acknowledges them later.

A ShareFetch may also contain acknowledgements. The response is sent when its acknowledgements are
durable and either records were acquired or its time is up.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from itertools import islice

from barnabas.broker import coordinators  # noqa: F401 - loaded with the family
from barnabas.broker.admission.guard_steps import Ask, in_handler, named, rule
from barnabas.broker.admission.rights import GROUP, READ, TOPIC
from barnabas.broker.api_row import ApiRow
from barnabas.broker.logs.purgatory import WaitingFetch
from barnabas.broker.outbox import PARKED, Answer
from barnabas.broker.parts import Parts
from barnabas.broker.share_partitions import shares  # noqa: F401 - the part of share groups
from barnabas.broker.share_partitions.acquisition import ACQUIRE_MODES
from barnabas.broker.share_partitions.request_acknowledgements import (
    MemberRequest,
    RequestAcknowledgements,
    count_of,
)
from barnabas.broker.share_partitions.share_parts import ShareParts
from barnabas.broker.share_partitions.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_ID,
    Named,
    PartitionKey,
    SessionKey,
    ShareSession,
)
from barnabas.broker.share_partitions.waiting_share_fetch import (
    ANSWERED_AT_ONCE,
    VISITED_AT_ONCE,
    WaitingShareFetch,
)
from barnabas.broker.slices import Slices, run_through
from barnabas.protocol.api import Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from barnabas.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from barnabas.protocol.request_context import RequestContext

LONGEST_MEMBER_ID = 36
NAMED_AT_ONCE = 2_000  # maximum number of partitions of a request that one slice takes up


class ShareHandler:
    """Answers ShareFetch and ShareAcknowledge."""

    def __init__(self, parts: ShareParts) -> None:
        self._parts = parts

    # --- ShareFetch ------------------------------------------------------------------------------

    def on_share_fetch(self, request: ShareFetchRequest, context: RequestContext) -> Answer:
        """Acquire records for a member, waiting up to max_wait_ms for min_bytes of records.

        Errors: for the whole request UNSUPPORTED_VERSION without share groups, INVALID_REQUEST,
        SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED; for a
        partition UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
        OFFSET_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_SERVER_ERROR; for acknowledgements
        those of ShareAcknowledge.
        """
        code = self._refusal(request)
        if not code and request.share_acquire_mode not in ACQUIRE_MODES:
            code = Code.INVALID_REQUEST
        if not code and request.is_renew_ack:
            code = _refusal_of_renewal(request)
        if code:
            return request.error_response(context.api_version, code)
        try:
            session = self._session(request, context)
        except KafkaError as error:
            return self._refuse(request, context, error.code)
        work = self._fetch_in_slices(request, context, session)
        named = count_of(request) + sum(
            len(one.partitions) for one in request.forgotten_topics_data
        )
        if len(session.unloaded) + named <= VISITED_AT_ONCE:
            self._parts.requests.park(context)
            run_through(work, context.now_ms)
            return PARKED
        return self._parts.requests.park_and_run(context, work)

    def _fetch_in_slices(
        self, request: ShareFetchRequest, context: RequestContext, session: ShareSession
    ) -> Slices:
        """The rest of `on_share_fetch`, in slices."""
        now_ms = yield
        is_last = request.share_session_epoch == FINAL_EPOCH
        fetches = not is_last and not request.is_renew_ack
        fetch = WaitingShareFetch(self._parts, request, context, session if fetches else None)
        if not is_last:
            code = yield from self._update(session, request, fetch)
            if code:
                answer = self._refuse(request, context, code)
                if isinstance(answer, Message):
                    self._parts.requests.reply(context.ticket, answer)
                return PARKED
        if request.share_session_epoch != INITIAL_EPOCH:
            acknowledgements = RequestAcknowledgements(
                self._parts, request, context, is_renewal=request.is_renew_ack
            )
            if not acknowledgements.is_empty:
                yield from fetch.acknowledge(acknowledgements, now_ms)
        if is_last:
            self._parts.shares.get().session_ends.close_session(session, now_ms)
        while fetch.load_some(now_ms):
            now_ms = yield
        fetch.begin(context.now_ms + max(request.max_wait_ms, 0), now_ms)
        return PARKED

    def _session(self, request: ShareFetchRequest, context: RequestContext) -> ShareSession:
        """The session of a ShareFetch.

        Raises: KafkaError INVALID_REQUEST if the first request of a session has acknowledgements;
                the errors of `ShareSessions`.
        """
        sessions = self._parts.shares.get().sessions
        key = self._session_key(request, context)
        epoch = request.share_session_epoch
        if epoch == INITIAL_EPOCH:
            if any(row.acknowledgement_batches for one in request.topics for row in one.partitions):
                raise KafkaError(Code.INVALID_REQUEST)
            connection = self._parts.connections[context.connection_id]
            return sessions.begin(key, context.connection_id, connection.owner)
        session = sessions.require(key, epoch)
        if epoch != FINAL_EPOCH:
            session.advance()
        return session

    def _update(
        self, session: ShareSession, request: ShareFetchRequest, fetch: WaitingShareFetch
    ) -> Generator[None, int, Code]:
        """Add the partitions that the request names to the session, and remove those that it
        forgets, in slices. Partitions of unknown topics are only noted for the answer.

        Gives: the error code for the request. Then the session is unchanged, or it ends, if a slice
        has changed it before.
        """
        sessions = self._parts.shares.get().sessions
        named, forgotten = _named_in(request), _forgotten_in(request)
        is_changed, epoch = not session.targets, session.epoch
        while sessions.get(session.key) is session:
            some = list(islice(named, NAMED_AT_ONCE))
            left = list(islice(forgotten, NAMED_AT_ONCE - len(some)))
            known: list[Named] = []
            unknown: list[Named] = []
            for one in some:
                is_known = self._parts.metadata.topic_by_id(one[0]) is not None
                (known if is_known else unknown).append(one)
            fetch.refuse_unknown(unknown)
            try:
                sessions.update(session, known, left)
            except KafkaError as error:
                if is_changed:
                    self._parts.shares.get().session_ends.end(session)
                elif session.epoch == epoch:
                    session.epoch = request.share_session_epoch
                return error.code
            if len(some) + len(left) < NAMED_AT_ONCE:
                break
            is_changed = True
            yield
        return Code.NONE

    def _refuse(self, request: ShareFetchRequest, context: RequestContext, code: Code) -> Answer:
        """Answer a request for which there is no session. If there are too many, the response is
        sent after its time, since otherwise the client would repeat the request at once.
        """
        self._parts.shares.get().session_ends.drop_unread(request.group_id or "", context.now_ms)
        response = request.error_response(context.api_version, code)
        if not self._parts.requests.is_waited_for(context):
            return response
        if code != Code.SHARE_SESSION_LIMIT_REACHED or request.max_wait_ms <= 0:
            return response
        return self._answer_later(context, response, request.max_wait_ms)

    def _answer_later(
        self, context: RequestContext, response: ShareFetchResponse, wait_ms: int
    ) -> Answer:
        """Send the response after `wait_ms`. If it may not wait, the client is throttled."""
        requests = self._parts.requests

        def try_complete(_: int, out_of_time: bool) -> bool:
            if out_of_time:
                requests.reply(context.ticket, response)
            return out_of_time

        waiting = WaitingFetch([], try_complete)
        if requests.try_park_fetch(context, waiting, context.now_ms + wait_ms):
            return PARKED
        response.throttle_time_ms = requests.throttle_without_wait(context)
        return response

    # --- ShareAcknowledge ------------------------------------------------------------------------

    def on_share_acknowledge(
        self, request: ShareAcknowledgeRequest, context: RequestContext
    ) -> Answer:
        """Store acknowledgements of records, and send the response once they are durable.

        Errors: for the whole request those of ShareFetch; for a partition INVALID_RECORD_STATE
        if the member does not hold the records; INVALID_REQUEST if they were not acquired, or
        the request is inconsistent; UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
        TOPIC_AUTHORIZATION_FAILED, NOT_LEADER_OR_FOLLOWER.
        """
        code = self._refusal(request)
        if code:
            return request.error_response(context.api_version, code)
        epoch = request.share_session_epoch
        try:
            if epoch == INITIAL_EPOCH:
                raise KafkaError(Code.INVALID_SHARE_SESSION_EPOCH)
            key = self._session_key(request, context)
            session = self._parts.shares.get().sessions.require(key, epoch)
        except KafkaError as error:
            return request.error_response(context.api_version, error.code)
        if epoch != FINAL_EPOCH:
            session.advance()
        acknowledgements = RequestAcknowledgements(
            self._parts, request, context, is_renewal=request.is_renew_ack
        )
        work = self._acknowledge_in_slices(request, context, session, acknowledgements)
        if acknowledgements.count <= VISITED_AT_ONCE:
            self._parts.requests.park(context)
            run_through(work, context.now_ms)
            return PARKED
        return self._parts.requests.park_and_run(context, work)

    def _acknowledge_in_slices(
        self,
        request: ShareAcknowledgeRequest,
        context: RequestContext,
        session: ShareSession,
        acknowledgements: RequestAcknowledgements,
    ) -> Slices:
        """The rest of `on_share_acknowledge`, in slices."""
        now_ms = yield

        def reply(_: int) -> None:
            self._parts.requests.reply_in_slices(
                context, self._response_in_slices(context, acknowledgements)
            )

        yield from acknowledgements.decide_and_store(reply, now_ms)
        if request.share_session_epoch == FINAL_EPOCH:
            self._parts.shares.get().session_ends.close_session(session, now_ms)
        return PARKED

    def _response_in_slices(
        self, context: RequestContext, acknowledgements: RequestAcknowledgements
    ) -> Slices:
        """Make the response to a ShareAcknowledge, in slices."""
        yield
        parts = self._parts
        topics: dict[uuid.UUID | None, list[PartitionData]] = {}
        leaders = []
        for count, (place, (code, message)) in enumerate(acknowledgements.codes.items()):
            if count and count % ANSWERED_AT_ONCE == 0:
                yield
            topic_id, row = acknowledgements.rows[place]
            data = PartitionData(row.partition_index, code, message)
            leader = parts.leader(topic_id, row.partition_index, code) if code else None
            if leader is not None:
                data.current_leader = LeaderIdAndEpoch(*leader)
                leaders.append(leader)
            topics.setdefault(topic_id, []).append(data)
        endpoints = parts.addresses.endpoints_of(leaders, context) if leaders else ()
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=acknowledgements.lock_duration_ms,
            responses=[ShareAcknowledgeTopicResponse(*item) for item in topics.items()],
            node_endpoints=[
                NodeEndpoint(one.node_id, one.host, one.port, one.rack) for one in endpoints
            ],
        )

    # --- both ------------------------------------------------------------------------------------

    def _refusal(self, request: MemberRequest) -> Code:
        """The error code for the whole request, or NONE."""
        if not self._parts.features.speaks_share_groups:
            return Code.UNSUPPORTED_VERSION
        member_id = request.member_id
        if request.group_id is None or not member_id or len(member_id) > LONGEST_MEMBER_ID:
            return Code.INVALID_REQUEST
        return Code.NONE

    def _session_key(self, request: MemberRequest, context: RequestContext) -> SessionKey:
        node_id = self._parts.cluster.node_id_here(context)
        return SessionKey(request.group_id or "", request.member_id or "", node_id)


def _named_in(request: ShareFetchRequest) -> Iterator[Named]:
    """The partitions that a request names."""
    for topic in request.topics:
        topic_id = topic.topic_id or NO_ID
        id_bytes = topic_id.bytes
        for row in topic.partitions:
            yield topic_id, (id_bytes, row.partition_index)


def _forgotten_in(request: ShareFetchRequest) -> Iterator[PartitionKey]:
    """The partitions that a request removes from its session."""
    for topic in request.forgotten_topics_data:
        id_bytes = (topic.topic_id or NO_ID).bytes
        for index in topic.partitions:
            yield id_bytes, index


def _refusal_of_renewal(request: ShareFetchRequest) -> Code:
    """The error code for a ShareFetch that renews locks and also fetches; NONE if it only renews.

    A request that does both is refused because the locks could expire before its response.
    """
    fetches = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    return Code.INVALID_REQUEST if any(fetches) else Code.NONE


# --- the APIs of this family ----------------------------------------------------------------------


def _handler(parts: Parts) -> ShareHandler:
    return ShareHandler(
        ShareParts(
            parts.config,
            parts.metadata,
            parts.logs,
            parts.connections,
            parts.requests,
            parts.quotas,
            parts.access,
            parts.features,
            parts.cluster,
            parts.addresses,
            parts.group_configs,
            parts.shares,
        )
    )


ROWS = (
    ApiRow(
        Api(78, "ShareFetch", 1, 2, flexible_from=1, most_elements=80_000),
        right=rule(named(READ, GROUP, "group_id"), in_handler(Ask(READ, TOPIC))),
        handler=lambda parts: _handler(parts).on_share_fetch,
    ),
    ApiRow(
        Api(79, "ShareAcknowledge", 1, 2, flexible_from=1, most_elements=80_000),
        right=rule(named(READ, GROUP, "group_id"), in_handler(Ask(READ, TOPIC))),
        handler=lambda parts: _handler(parts).on_share_acknowledge,
    ),
)
