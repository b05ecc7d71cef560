"""ShareFetch and ShareAcknowledge (KIP-932): records are locked for a member of a share group, and
it says what became of them.

A ShareFetch may acknowledge, too. It is answered when records were acquired, or its time is up; and
when what it acknowledged is on the disk.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.outbox import PARKED, Answer, Encoded
from barnabas.broker.requests.purgatory import WaitingFetch
from barnabas.broker.share.acquisition import RECORD_LIMIT, Acquired, Taker, acquire, without
from barnabas.broker.share.log_batches import aborted_batches, batches_of, slice_of
from barnabas.broker.share.share_partition import RENEW, Acknowledgement
from barnabas.broker.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey
from barnabas.broker.slices import Slices, run_through
from barnabas.coordinator.share.share_records import SharePartitionKey
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from barnabas.protocol.messages.share_fetch import ShareFetchRequest
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.share_fetch_response import SharedPartition, encode_share_fetch
from barnabas.storage.log.log_reader import Isolation
from barnabas.storage.log.segment import BuildPutOff

if TYPE_CHECKING:
    from barnabas.broker.brokers.addresses import Addresses
    from barnabas.broker.brokers.cluster import Cluster
    from barnabas.broker.lazy import Lazy
    from barnabas.broker.logs.metadata import ClusterMetadata
    from barnabas.broker.quotas.quotas import Quotas
    from barnabas.broker.requests.under_way import Requests
    from barnabas.broker.requests.wide_requests import WideRequests
    from barnabas.broker.security.access import ClientAccess
    from barnabas.broker.settings.config import BrokerConfig
    from barnabas.broker.settings.current_features import CurrentFeatures
    from barnabas.broker.settings.group_configs import GroupConfigs
    from barnabas.broker.share.loaded_partitions import LoadedPartition, Storing
    from barnabas.broker.share.share_sessions import Place, ShareSession, ShareTarget
    from barnabas.broker.share.shares import Shares
    from barnabas.storage.directory.log_manager import LogManager
    from barnabas.storage.log.log import Log
    from barnabas.storage.log.log_reader import Slice

READ, TOPIC = 3, 2  # ACLs' numbers
LONGEST_MEMBER_ID = 36
RENEWALS_SINCE = 2
VISITED_AT_ONCE = 200  # partitions that are loaded, or acknowledged, in one slice
READS_AT_ONCE = 16  # of one partition, where all that was read belongs to aborted transactions
ROW_BYTES = 40

Codes = dict["Place", tuple[int, str | None]]


class ShareParts(NamedTuple):
    """What the requests of share groups are handled with."""

    config: BrokerConfig
    metadata: ClusterMetadata
    logs: LogManager
    requests: Requests
    wide: Lazy[WideRequests]
    quotas: Quotas
    access: ClientAccess
    features: CurrentFeatures
    cluster: Cluster
    addresses: Addresses
    group_configs: GroupConfigs
    shares: Lazy[Shares]


class Topics:
    """The topics of a request's partitions, by their ids, as its client may read them."""

    def __init__(self, parts: ShareParts, context: RequestContext) -> None:
        self._metadata = parts.metadata
        self._topics = parts.cluster.topics_here(context)
        self._access = parts.access.of(context)

    def log(self, topic_id: uuid.UUID | None, index: int) -> Log:
        """The log of a partition.

        Raises: KafkaError UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
                KAFKA_STORAGE_ERROR; of several brokers NOT_LEADER_OR_FOLLOWER.
        """
        topic = None if topic_id is None else self._metadata.topic_by_id(topic_id)
        if topic is None:
            raise KafkaError(Code.UNKNOWN_TOPIC_ID)
        access = self._access
        if access is not None and not (
            topic.name in access.readable or access.may(READ, TOPIC, topic.name)
        ):
            raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
        logs = self._topics.partitions_of(topic.name)
        log = logs[index] if 0 <= index < len(logs) else None
        if log is None:
            raise KafkaError(self._topics.missing_code(topic.name, index))
        return log


class _Acknowledging:
    """The acknowledgements of one request. codes: what is answered, by partition."""

    def __init__(
        self, parts: ShareParts, request: Any, context: RequestContext, *, is_renewal: bool
    ) -> None:
        self._shares = parts.shares.get()
        self._topics = Topics(parts, context)
        self._group_id, self._member_id = request.group_id, request.member_id
        self._highest_type = RENEW if context.api_version >= RENEWALS_SINCE else RENEW - 1
        self._is_renewal = is_renewal
        self._storing: list[Storing] = []
        self.codes: Codes = {}
        self.rows: dict[Place, tuple[uuid.UUID | None, Any]] = {
            (topic.topic_id.bytes if topic.topic_id else bytes(16), row.partition_index): (
                topic.topic_id,
                row,
            )
            for topic in request.topics
            for row in topic.partitions
        }

    @property
    def is_empty(self) -> bool:
        """Whether the request acknowledges nothing."""
        return not any(row.acknowledgement_batches for _, row in self.rows.values())

    def in_slices(self, then: Callable[[int], None], now_ms: int) -> Slices:
        """Decide about all partitions, and make the changes; some in each slice.

        Takes: then, called once all of them are durable.
        """
        left = 1

        def done(at_ms: int) -> None:
            nonlocal left
            left -= 1
            if not left:
                then(at_ms)

        places = list(self.rows)
        for first in range(0, len(places), VISITED_AT_ONCE):
            if first:
                now_ms = yield
            self._decide_each(places[first : first + VISITED_AT_ONCE], now_ms)
            storing, self._storing = self._storing, []
            left += 1
            self._shares.partitions.store(storing, done, now_ms)
        done(now_ms)

    def _decide_each(self, places: Iterable[Place], now_ms: int) -> None:
        for place in places:
            try:
                self._decide(place, now_ms)
                self.codes[place] = (Code.NONE, None)
            except KafkaError as error:
                self.codes[place] = (error.code, error.message)

    def _decide(self, place: Place, now_ms: int) -> None:
        topic_id, row = self.rows[place]
        batches = row.acknowledgement_batches
        try:
            self._topics.log(topic_id, row.partition_index)
        except KafkaError as error:
            if error.code != Code.UNKNOWN_TOPIC_ID:
                self._check(batches)
            raise
        self._check(batches)
        if batches:
            key = SharePartitionKey(self._group_id, *place)
            acknowledged = [
                Acknowledgement(one.first_offset, one.last_offset, one.acknowledge_types)
                for one in batches
            ]
            partitions = self._shares.partitions
            self._storing.append(
                partitions.acknowledge(key, self._member_id, acknowledged, now_ms)
            )

    def _check(self, batches: Sequence[Any]) -> None:
        """Raise KafkaError INVALID_REQUEST for batches that make no sense."""
        last_offset = -1
        for one in batches:
            types = one.acknowledge_types
            if one.first_offset > one.last_offset or one.first_offset < last_offset:
                raise KafkaError(Code.INVALID_REQUEST, "the batches are not in order")
            if not types or len(types) not in (1, one.last_offset - one.first_offset + 1):
                raise KafkaError(Code.INVALID_REQUEST, "a batch needs one type, or one for each")
            if min(types) < 0 or max(types) > self._highest_type:
                raise KafkaError(Code.INVALID_REQUEST, "there is no such type of acknowledgement")
            if RENEW in types and not self._is_renewal:
                raise KafkaError(Code.INVALID_REQUEST, "is_renew_ack is needed for a renewal")
            last_offset = one.last_offset


class _Candidate(NamedTuple):
    """A partition that has records for a member."""

    target: ShareTarget
    partition: LoadedPartition
    offset: int


class _ShareFetch:
    """One ShareFetch under way. It is answered once."""

    __slots__ = (
        "_codes", "_context", "_errors", "_is_committed", "_is_done", "_is_durable", "_max_bytes",
        "_min_bytes", "_parts", "_request", "_rows", "_session", "_shares", "_topics",
    )  # fmt: skip

    def __init__(
        self,
        parts: ShareParts,
        request: ShareFetchRequest,
        context: RequestContext,
        session: ShareSession | None,
    ) -> None:
        """Takes: session, None where no records are fetched."""
        self._parts, self._request, self._context = parts, request, context
        self._session = session
        self._shares = parts.shares.get()
        self._topics = Topics(parts, context)
        self._codes: Codes = {}
        self._errors: dict[ShareTarget, KafkaError] = {}
        self._rows: dict[Place, tuple[uuid.UUID, SharedPartition]] = {}
        self._is_done, self._is_durable = False, True
        level = parts.group_configs.value(request.group_id, "share.isolation.level")
        self._is_committed = level == "read_committed"
        self._max_bytes = min(request.max_bytes, parts.config.fetch_max_bytes)
        if parts.quotas.clients is not None:
            most_bytes = parts.quotas.clients.most_fetched_bytes(context)
            if most_bytes is not None:
                self._max_bytes = min(self._max_bytes, most_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)

    # --- acknowledgements, and the end -----------------------------------------------------------

    def acknowledge(self, acknowledging: _Acknowledging, now_ms: int) -> Slices:
        """Acknowledge first; the answer waits until that is durable."""
        self._is_durable = False
        self._codes = acknowledging.codes
        yield from acknowledging.in_slices(self._on_durable, now_ms)

    def _on_durable(self, now_ms: int) -> None:
        self._is_durable = True
        if self._is_done:
            self._reply()

    def finish(self) -> None:
        """Answer with the rows, once the acknowledgements are durable."""
        assert not self._is_done, "a ShareFetch is answered once"
        self._is_done = True
        session = self._session
        if session is not None:
            session.waiting.pop(self, None)
        self._parts.requests.end_wait(self._context)
        if self._is_durable:
            self._reply()

    def _reply(self) -> None:
        for place, (code, message) in self._codes.items():
            _, row = self._rows.get(place, (None, SharedPartition(place[1])))
            self._rows[place] = (
                uuid.UUID(bytes=place[0]),
                row._replace(acknowledge_error_code=code, acknowledge_error_message=message),
            )
        topics: dict[uuid.UUID, list[SharedPartition]] = {}
        for topic_id, row in self._rows.values():
            topics.setdefault(topic_id, []).append(row)
        parts, context = self._parts, self._context
        errors = parts.requests.errors
        if errors is not None:
            for rows in topics.values():
                errors.count_rows(context.api_key, rows)
        leaders = [row.leader for _, row in self._rows.values() if row.leader is not None]
        parts.requests.reply(
            context.ticket,
            Encoded(
                encode_share_fetch(
                    context.correlation_id,
                    list(topics.items()),
                    throttle_time_ms=self._throttle_ms(),
                    lock_timeout_ms=self._shares.partitions.limits(
                        self._request.group_id
                    ).lock_duration_ms,
                    endpoints=parts.addresses.endpoints_of(leaders, context) if leaders else (),
                )
            ),
        )

    def _throttle_ms(self) -> int:
        clients = self._parts.quotas.clients
        if clients is None:
            return 0
        size = sum(
            ROW_BYTES + (0 if row.records is None else row.records.size)
            for _, row in self._rows.values()
        )
        return clients.on_shared(self._context, size)

    # --- records ---------------------------------------------------------------------------------

    def try_complete(self, now_ms: int, out_of_time: bool) -> bool:
        """Acquire records and answer, if there are enough, or the time is up."""
        if self._is_done:
            return True
        session, request = self._session, self._request
        if session is None or not session.targets or not self._is_current(session):
            self.finish()
            return True
        if request.max_records > 0 and self._max_bytes > 0:
            candidates = self._candidates(session, now_ms)
            is_refused = len(self._errors) == len(session.targets)
            if not (out_of_time or is_refused or self._is_enough(candidates)):
                return False
            self._acquire_all(session, candidates, now_ms)
            self._add_fresh(session)
        self.finish()
        return True

    def _is_current(self, session: ShareSession) -> bool:
        """Whether the member can still get records by this request."""
        return self._shares.sessions.get(
            session.key
        ) is session and self._parts.requests.is_waited_for(self._context)

    def wait(self, session: ShareSession, deadline_ms: int) -> None:
        """Wait for records, until the deadline."""
        session.waiting[self] = None
        self._parts.requests.park_fetch(
            self._context, WaitingFetch([], self.try_complete), deadline_ms
        )

    def load_some(self, now_ms: int) -> bool:
        """Load partitions that this request is the first to visit. Gives: whether there are more.
        """
        session = self._session
        left = VISITED_AT_ONCE
        for target in list(session.ready) if session is not None else ():
            if target.partition is None and target not in self._errors:
                if not left:
                    return True
                left -= 1
                self._visit(target, now_ms)
        return False

    def _candidates(self, session: ShareSession, now_ms: int) -> list[_Candidate]:
        """The partitions that have records; the others are ready again when they have some."""
        found: list[_Candidate] = []
        self._errors.clear()
        for target in list(session.ready):
            if len(found) >= self._request.max_records:
                break
            loaded = self._visit(target, now_ms)
            if loaded is None:
                continue
            log, value = loaded.log, loaded.value
            if log.log_start_offset > value.start_offset:
                value.on_log_start(log.log_start_offset)
            offset = value.next_offset
            end_offset = log.last_stable_offset if self._is_committed else log.high_watermark
            limits = self._shares.partitions.limits(self._request.group_id)
            loaded.idle[target] = None  # also one with records: there may be too few
            if offset < end_offset and loaded.is_stored and value.may_acquire(limits.record_locks):
                found.append(_Candidate(target, loaded, offset))
            else:
                del session.ready[target]
        return found

    def _visit(self, target: ShareTarget, now_ms: int) -> LoadedPartition | None:
        """The share partition of a target; None where there is an error, which is noted."""
        try:
            log = self._topics.log(target.topic_id, target.index)
            loaded = target.partition
            if loaded is None or not loaded.is_of(log):
                key = SharePartitionKey(self._request.group_id, *target.place)
                loaded = target.partition = self._shares.partitions.load(key, log, now_ms)
            return loaded
        except KafkaError as error:
            self._errors[target] = error
            return None

    def _is_enough(self, candidates: Sequence[_Candidate]) -> bool:
        """Whether there are min_bytes to acquire."""
        if self._min_bytes <= 1:
            return bool(candidates) or self._min_bytes <= 0
        size = 0
        for one in candidates:
            data = self._read(one.partition, one.offset, self._max_bytes)
            size += 0 if data is None else data[0].size
            if size >= self._min_bytes:
                return True
        return False

    def _acquire_all(
        self, session: ShareSession, candidates: Sequence[_Candidate], now_ms: int
    ) -> None:
        """Acquire records of the partitions, until the member has as many as it wants."""
        left_records, left_bytes = self._request.max_records, self._max_bytes
        share_bytes = max(1, left_bytes // max(1, len(candidates)))
        for target, loaded, offset in candidates:
            if left_records <= 0 or left_bytes <= 0:
                break
            most_bytes = min(share_bytes, left_bytes)
            try:
                records, acquired = self._acquire(
                    loaded, offset, left_records, most_bytes, now_ms
                )
            except KafkaError as error:
                self._errors[target] = error
                continue
            if records is None:
                session.ready.pop(target, None)
                continue
            left_records -= sum(one.last_offset - one.first_offset + 1 for one in acquired)
            left_bytes -= records.size
            row = SharedPartition(target.index, records=records, acquired=acquired)
            self._rows[target.place] = (target.topic_id, row)
            session.fresh.pop(target, None)
            session.to_end(target)
            self._shares.partitions.schedule(loaded)
        for target, error in self._errors.items():
            log_name = self._parts.metadata.topic_by_id(target.topic_id)
            leader = (
                None
                if log_name is None
                else self._parts.cluster.hint(log_name.name, target.index, error.code)
            )
            row = SharedPartition(target.index, error.code, leader=leader)
            self._rows[target.place] = (target.topic_id, row)
            session.fresh[target] = None

    def _add_fresh(self, session: ShareSession) -> None:
        """Add the partitions that are new in the session, without records."""
        if not session.fresh:
            return
        for target in list(session.fresh):
            if target not in self._errors:
                del session.fresh[target]
                row = SharedPartition(target.index)
                self._rows.setdefault(target.place, (target.topic_id, row))

    def _acquire(
        self, loaded: LoadedPartition, offset: int, most: int, most_bytes: int, now_ms: int
    ) -> tuple[Slice | None, Sequence[Acquired]]:
        """Acquire records of a partition. Gives: the batches with them; None: there are none."""
        request, value = self._request, loaded.value
        limits = self._shares.partitions.limits(request.group_id)
        taker = Taker(
            request.member_id,
            min(most, limits.record_locks),
            request.batch_size,
            request.share_acquire_mode == RECORD_LIMIT,
        )
        for _ in range(READS_AT_ONCE):
            found = self._read(loaded, offset, most_bytes)
            if found is None:
                break
            data, aborted = found
            read = batches_of(data, max(offset, value.end_offset) + taker.most_records)
            batches = [one.batch for one in read]
            acquired = acquire(value, taker, batches, offset, limits, now_ms)
            if aborted:
                acquired = without(value, acquired, aborted_batches(data, read, aborted))
            value.settle()
            if acquired:
                first, last = acquired[0].first_offset, acquired[-1].last_offset
                return slice_of(data, read, first, last), acquired
            if value.next_offset == offset or not value.may_acquire(limits.record_locks):
                break
            offset = value.next_offset
        return None, ()

    def _read(
        self, loaded: LoadedPartition, offset: int, most_bytes: int
    ) -> tuple[Slice, Sequence[Any]] | None:
        """Read the log. None: there is nothing, or an index has to be built first."""
        log, logs = loaded.log, self._parts.logs
        isolation = Isolation.READ_COMMITTED if self._is_committed else Isolation.READ_UNCOMMITTED
        if offset > log.log_end_offset:
            return None
        try:
            with logs.cache.putting_off():
                data = log.read(
                    offset, max_bytes=most_bytes, isolation=isolation, min_one_batch=True
                )
        except BuildPutOff as put_off:
            logs.log_dir.build_later(put_off, loaded.wake)
            return None
        return None if data.slice is None else (data.slice, data.aborted or ())


class ShareHandler:
    """Answers ShareFetch and ShareAcknowledge."""

    def __init__(self, *parts: Any) -> None:
        self._parts = ShareParts(*parts)

    # --- ShareFetch ------------------------------------------------------------------------------

    def on_share_fetch(self, request: ShareFetchRequest, context: RequestContext) -> Answer:
        """Acquire records for a member, waiting max_wait_ms for min_bytes of them.

        Errors: in the whole answer UNSUPPORTED_VERSION without share groups, INVALID_REQUEST,
        SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED; in a
        partition's UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
        OFFSET_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_SERVER_ERROR; of acknowledgements
        those of ShareAcknowledge.
        """
        code = self._refusal(request)
        if not code and request.is_renew_ack:
            code = _refusal_of_renewal(request)
        if code:
            return request.error_response(context.api_version, code)
        try:
            session = self._session(request, context)
        except KafkaError as error:
            response = request.error_response(context.api_version, error.code)
            if error.code != Code.SHARE_SESSION_LIMIT_REACHED or request.max_wait_ms <= 0:
                return response
            return self._answer_later(context, response, request.max_wait_ms)
        work = self._fetching(request, context, session)
        self._parts.requests.park(context)
        if len(session.ready) + sum(len(one.partitions) for one in request.topics) <= (
            VISITED_AT_ONCE
        ):
            run_through(work, context.now_ms)
            return PARKED
        return self._parts.requests.answer_by(context, work)

    def _fetching(
        self, request: ShareFetchRequest, context: RequestContext, session: ShareSession
    ) -> Slices:
        """The rest of `on_share_fetch`, in slices."""
        now_ms = yield
        is_last = request.share_session_epoch == FINAL_EPOCH
        fetches = not is_last and not request.is_renew_ack
        fetch = _ShareFetch(self._parts, request, context, session if fetches else None)
        if request.share_session_epoch != INITIAL_EPOCH:
            acknowledging = _Acknowledging(
                self._parts, request, context, is_renewal=request.is_renew_ack
            )
            if not acknowledging.is_empty:
                yield from fetch.acknowledge(acknowledging, now_ms)
        if is_last:
            self._parts.shares.get().close_session(session.key, now_ms)
        while fetch.load_some(now_ms):
            now_ms = yield
        if not fetch.try_complete(now_ms, request.max_wait_ms <= 0):
            fetch.wait(session, context.now_ms + request.max_wait_ms)
        return PARKED

    def _session(self, request: ShareFetchRequest, context: RequestContext) -> ShareSession:
        """The session of a ShareFetch, with the partitions that the request adds and removes.

        Raises: KafkaError INVALID_REQUEST where the first request acknowledges, and those of
                `ShareSessions`.
        """
        sessions = self._parts.shares.get().sessions
        key = self._session_key(request, context)
        epoch = request.share_session_epoch
        if epoch == INITIAL_EPOCH:
            if any(row.acknowledgement_batches for one in request.topics for row in one.partitions):
                raise KafkaError(Code.INVALID_REQUEST)
            session = sessions.begin(key, context.connection_id)
        else:
            session = sessions.require(key, epoch)
            if epoch == FINAL_EPOCH:
                return session
            session.advance()
        sessions.update(
            session,
            (
                (topic.topic_id or uuid.UUID(int=0), row.partition_index)
                for topic in request.topics
                for row in topic.partitions
            ),
            (
                (topic.topic_id or uuid.UUID(int=0), index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ),
        )
        return session

    def _answer_later(self, context: RequestContext, response: Any, wait_ms: int) -> Answer:
        """Answer when the client would have waited for records: it would come again at once."""
        requests = self._parts.requests

        def try_complete(_: int, out_of_time: bool) -> bool:
            if out_of_time:
                requests.reply(context.ticket, response)
            return out_of_time

        waiting = WaitingFetch([], try_complete)
        requests.park_fetch(context, waiting, context.now_ms + wait_ms)
        return PARKED

    # --- ShareAcknowledge ------------------------------------------------------------------------

    def on_share_acknowledge(
        self, request: ShareAcknowledgeRequest, context: RequestContext
    ) -> Answer:
        """Take note of what became of records; answer once that is on the disk.

        Errors: in the whole answer those of ShareFetch; in a partition's INVALID_RECORD_STATE where
        the member does not hold the records; INVALID_REQUEST where they were not acquired, or the
        request makes no sense; UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
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
        acknowledging = _Acknowledging(
            self._parts, request, context, is_renewal=request.is_renew_ack
        )
        work = self._acknowledging(request, context, acknowledging)
        self._parts.requests.park(context)
        if len(acknowledging.rows) <= VISITED_AT_ONCE:
            run_through(work, context.now_ms)
            return PARKED
        return self._parts.requests.answer_by(context, work)

    def _acknowledging(
        self,
        request: ShareAcknowledgeRequest,
        context: RequestContext,
        acknowledging: _Acknowledging,
    ) -> Slices:
        """The rest of `on_share_acknowledge`, in slices."""
        now_ms = yield

        def reply(_: int) -> None:
            self._parts.requests.reply(
                context.ticket, self._acknowledged(request, context, acknowledging)
            )

        yield from acknowledging.in_slices(reply, now_ms)
        if request.share_session_epoch == FINAL_EPOCH:
            key = self._session_key(request, context)
            self._parts.shares.get().close_session(key, now_ms)
        return PARKED

    def _acknowledged(
        self,
        request: ShareAcknowledgeRequest,
        context: RequestContext,
        acknowledging: _Acknowledging,
    ) -> ShareAcknowledgeResponse:
        """The answer to a ShareAcknowledge."""
        parts = self._parts
        topics: dict[uuid.UUID | None, list[PartitionData]] = {}
        leaders = []
        for place, (code, message) in acknowledging.codes.items():
            topic_id, row = acknowledging.rows[place]
            data = PartitionData(row.partition_index, code, message)
            topic = None if topic_id is None else parts.metadata.topic_by_id(topic_id)
            leader = None
            if topic is not None:
                leader = parts.cluster.hint(topic.name, row.partition_index, code)
            if leader is not None:
                data.current_leader = LeaderIdAndEpoch(*leader)
                leaders.append(leader)
            topics.setdefault(topic_id, []).append(data)
        limits = parts.shares.get().partitions.limits(request.group_id or "")
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=limits.lock_duration_ms,
            responses=[ShareAcknowledgeTopicResponse(*item) for item in topics.items()],
            node_endpoints=[
                NodeEndpoint(one.node_id, one.host, one.port, one.rack)
                for one in parts.addresses.endpoints_of(leaders, context)
            ],
        )

    # --- both ------------------------------------------------------------------------------------

    def _refusal(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> int:
        """The error of the whole request; 0: there is none."""
        if not self._parts.features.speaks_share_groups:
            return Code.UNSUPPORTED_VERSION
        member_id = request.member_id
        if request.group_id is None or not member_id or len(member_id) > LONGEST_MEMBER_ID:
            return Code.INVALID_REQUEST
        return Code.NONE

    def _session_key(self, request: Any, context: RequestContext) -> SessionKey:
        node_id = self._parts.cluster.node_id_here(context)
        return SessionKey(request.group_id, request.member_id, node_id)


def _refusal_of_renewal(request: ShareFetchRequest) -> int:
    """A ShareFetch that renews locks fetches nothing: the locks could end before its answer."""
    fetches = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    return Code.INVALID_REQUEST if any(fetches) else Code.NONE

