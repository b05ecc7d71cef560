"""Fetch: answers readers with slices of segment files, at once or when there is enough data."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from barnabas.broker.admission.guard_steps import Ask, in_handler, rule
from barnabas.broker.admission.rights import CLUSTER, CLUSTER_ACTION, READ, TOPIC
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.addresses import Addresses
from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.logs.purgatory import WaitingFetch
from barnabas.broker.logs.topics import check_leader_epoch
from barnabas.broker.outbox import PARKED, Answer, DeadlineKept, Encoded
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.requests.fetch_sessions import (
    NO_SESSION,
    FetchPlan,
    FetchSession,
    FetchTarget,
    Targets,
    TopicKey,
    targets_in_slices,
)
from barnabas.broker.requests.older_fetch import encode_older
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.wide_requests import WideRequests
from barnabas.broker.security.authorizer import Access
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.slices import Slices
from barnabas.protocol.api import Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.hot_requests import BATCHES_IN_FETCH, read_fetch
from barnabas.protocol.hot_responses import (
    FETCH_TOPIC_IDS,
    Endpoint,
    FetchedPartition,
    Piece,
    encode_fetch,
)
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.files.txn_index import AbortedTxn
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_reader import Isolation
from barnabas.storage.segments.index_cache import BuildDeferred

# a module's name is found sooner than the member of an Enum
_COMMITTED, _UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
DIVERGING_SINCE = 12
TARGETS_AT_ONCE, LOGS_READ_AT_ONCE = 2000, 500
# sizes in a response of version 11: of a response without topics, of a topic without its name, and
# of a partition without records
EMPTY_RESPONSE_BYTES, TOPIC_BYTES, PARTITION_BYTES = 18, 6, 42

# A Log in place of a FetchedPartition means that nothing can be read from it. The FetchedPartition
# is then made only if the response needs it.
Fetched = tuple[FetchTarget, "FetchedPartition | Log"]


def _may_read_as_replica(request: FetchRequest, access: Access) -> bool | None:
    """Whether a fetch with a replica id may read all topics, for which it needs CLUSTER_ACTION.
    None if the request has no replica id, so that it needs READ on each topic.
    """
    state = request.replica_state
    if request.replica_id < 0 and (state is None or state.replica_id < 0):
        return None
    return access.may_on_cluster(CLUSTER_ACTION)


class _Fetch:
    """One fetch request in progress: it is read again until it has min_bytes, and answered once.

    Most of a reader's thousands of partitions have nothing to read, and a few comparisons are
    enough to find these. `_sizes`: while the request waits, the bytes that could be read from each
    log by itself. Their sum is an upper bound of the bytes that the whole request would read.
    """

    __slots__ = (
        "_access",
        "_as_replica",
        "_context",
        "_handler",
        "_is_committed",
        "_isolation",
        "_max_bytes",
        "_min_bytes",
        "_plan",
        "_readable_version",
        "_refused",
        "_size",
        "_sizes",
        "_targets",
        "logs",
    )  # fmt: skip

    def __init__(
        self,
        handler: FetchHandler,
        request: FetchRequest,
        context: RequestContext,
        plan: FetchPlan,
    ) -> None:
        self._handler, self._context, self._plan = handler, context, plan
        self._access = access = handler.access.of(context)
        self._as_replica = None if access is None else _may_read_as_replica(request, access)
        self._isolation = _COMMITTED if request.isolation_level == 1 else _UNCOMMITTED
        self._max_bytes = min(request.max_bytes, handler.config.fetch_max_bytes)
        if handler.quotas.clients is not None:
            most_bytes = handler.quotas.clients.most_fetched_bytes(context)
            if most_bytes is not None:
                self._max_bytes = min(self._max_bytes, most_bytes)
        self._min_bytes: int = min(request.min_bytes, self._max_bytes)
        self.logs: list[tuple[FetchTarget, Log]]
        self._refused: list[Fetched]
        self._targets: dict[Log, FetchTarget] = {}
        # for a waiting fetch: the bytes that each log has for it, and their sum
        self._sizes: dict[Log, int] = {}
        self._size = 0
        self._readable_version = -1
        if len(plan.targets) <= TARGETS_AT_ONCE:
            self._resolve()

    def _resolve(self) -> None:
        """Find each target's log; targets without a log are answered last, as in Kafka."""
        self._readable_version = self._handler.cluster.readable_version
        self.logs, self._refused = [], []
        self._find(self._plan.targets)

    def _find(self, targets: Sequence[FetchTarget]) -> None:
        """Find the logs of some targets."""
        topics = self._handler.cluster.topics_here(self._context)
        key: Any = None
        name: str | None = None
        logs: list[Log | None] = []
        may_read, access = True, self._access
        for target in targets:
            if target.topic is not key:  # the targets of a topic are usually adjacent
                key = target.topic
                name = self._topic_name(key)
                logs = [] if name is None else topics.partitions_of(name)
                may_read = name is None or access is None or self._may_read(access, name)
            index = target.index
            log = logs[index] if 0 <= index < len(logs) else None
            if not may_read:
                denied = FetchedPartition(index, Code.TOPIC_AUTHORIZATION_FAILED, aborted=())
                self._refused.append((target, denied))
            elif log is None:
                missing = (
                    Code.UNKNOWN_TOPIC_ID if name is None else topics.missing_code(name, index)
                )
                hint = None if name is None else self._handler.cluster.hint(name, index, missing)
                row = FetchedPartition(index, missing, aborted=(), current_leader=hint)
                self._refused.append((target, row))
            else:
                self.logs.append((target, log))

    def _may_read(self, access: Access, topic: str) -> bool:
        """Whether the client may read a topic, as a replica or by READ on the topic."""
        if self._as_replica is not None:
            return self._as_replica
        return topic in access.readable or access.may(READ, TOPIC, topic)

    def _topic_name(self, key: TopicKey) -> str | None:
        """The name of a topic that the request gives by name or by id; None for an unknown id."""
        if not isinstance(key, uuid.UUID):
            return key
        topic = self._handler.metadata.topic_by_id(key)
        return None if topic is None else topic.name

    def read_in_slices(self) -> Generator[None, int, tuple[list[Fetched], int, bool]]:
        """`read` for thousands of targets, in slices; each log is read within one slice."""
        self._readable_version = version = self._handler.cluster.readable_version
        self.logs, self._refused = [], []
        for first in range(0, len(self._plan.targets), TARGETS_AT_ONCE):
            self._find(self._plan.targets[first : first + TARGETS_AT_ONCE])
            yield
        fetched: list[Fetched] = []
        total, urgent = 0, bool(self._refused)
        for first in range(0, len(self.logs), LOGS_READ_AT_ONCE):
            yield
            some = self.logs[first : first + LOGS_READ_AT_ONCE]
            of_some, size, is_urgent = yield from self._read_when_built(
                some, max(0, self._max_bytes - total), total == 0
            )
            fetched += of_some
            total += size
            urgent = urgent or is_urgent
        if version != self._handler.cluster.readable_version:
            return self.read()
        return fetched, total, urgent

    def _read_when_built(
        self, some: Sequence[tuple[FetchTarget, Log]], left: int, min_one_batch: bool
    ) -> Generator[None, int, tuple[list[Fetched], int, bool]]:
        """Call `_read`. If it needs an index that is missing, build the index in slices and call
        `_read` again.
        """
        logs = self._handler.logs
        while True:
            try:
                with logs.cache.deferring_builds():
                    return self._read(some, left, min_one_batch)
            except BuildDeferred as deferred:
                built_ms: list[int] = []
                logs.log_dir.build_later(deferred, built_ms.append)
                while not built_ms:
                    yield

    def read(self) -> tuple[list[Fetched], int, bool]:
        """Read all logs. Gives: the results, their size in bytes, and whether the request must be
        answered at once. In a session, unchanged partitions are left out.
        """
        if self._readable_version != self._handler.cluster.readable_version:
            self._resolve()
        fetched, total, urgent = self._read(self.logs, self._max_bytes, True)
        return fetched, total, urgent or bool(self._refused)

    def _read(
        self, logs: Sequence[tuple[FetchTarget, Log]], left: int, min_one_batch: bool
    ) -> tuple[list[Fetched], int, bool]:
        """Read some of the logs. Takes: left, the number of bytes that may still be read."""
        fetched: list[Fetched] = []
        total, urgent = 0, False
        is_committed = self._isolation is _COMMITTED
        is_incremental = self._plan.incremental
        for pair in logs:
            target, log = pair
            if _is_idle(target, log, is_committed):
                if (
                    is_incremental
                    and log.high_watermark == target.high_watermark
                    and log.log_start_offset == target.log_start_offset
                ):
                    continue
                fetched.append(pair)
                continue
            answer = self._read_one(target, log, left, min_one_batch)
            if answer.error_code or answer.diverging_epoch is not None:
                urgent = True
            elif answer.records is not None:
                size = answer.records.size
                total += size
                left = max(0, left - size)
                min_one_batch = False
            fetched.append((target, answer))
        return fetched, total, urgent

    def waiting(self, fetched: list[Fetched]) -> WaitingFetch:
        """The entry for the purgatory, with the results so far."""
        self._targets = {log: target for target, log in self.logs}
        sizes = {
            target: answer.records.size
            for target, answer in fetched
            if isinstance(answer, FetchedPartition) and answer.records is not None
        }
        self._sizes = (
            {log: sizes[target] for target, log in self.logs if target in sizes} if sizes else {}
        )
        self._size = sum(self._sizes.values())
        return WaitingFetch(list(self._targets), self.try_complete, self._is_worth_a_try)

    def _is_worth_a_try(self, log: Log) -> bool:
        """Whether the whole request may have reached min_bytes now that this log has progressed."""
        if self._readable_version != self._handler.cluster.readable_version:
            return True  # the log's leader may have changed, which the response has to report
        target = self._targets[log]
        if _is_idle(target, log, self._isolation is _COMMITTED):
            return False
        answer = self._read_one(target, log, self._max_bytes, True)
        if answer.error_code or answer.diverging_epoch is not None:
            return True
        size: int = 0 if answer.records is None else answer.records.size
        self._size += size - self._sizes.get(log, 0)
        self._sizes[log] = size
        return self._size >= self._min_bytes

    def _read_one(
        self, target: FetchTarget, log: Log, left: int, min_one_batch: bool
    ) -> FetchedPartition:
        """Read one log, up to `left` bytes. Gives: its row of the answer; an error is a row as
        well.
        """
        try:
            if target.current_leader_epoch >= 0:  # in Fetch every negative epoch means no epoch
                check_leader_epoch(log, target.current_leader_epoch)
            if target.last_fetched_epoch >= 0 and self._context.api_version >= DIVERGING_SINCE:
                diverging = _divergence(log, target)
                if diverging is not None:
                    ends = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
                    return FetchedPartition(target.index, 0, *ends, diverging_epoch=diverging)
            records, aborted, high_watermark, last_stable_offset, log_start_offset = log.read(
                target.fetch_offset,
                max_bytes=min(target.partition_max_bytes, left),
                isolation=self._isolation,
                min_one_batch=min_one_batch,
            )
        except KafkaError as error:
            hint = self._handler.cluster.hint(log.topic, log.partition, error.code)
            return FetchedPartition(target.index, error.code, current_leader=hint)
        fields = (
            target.index, 0, high_watermark, last_stable_offset, log_start_offset, aborted, records,
            None, None,
        )  # fmt: skip
        # made without its constructor, which is a function of Python
        return tuple.__new__(FetchedPartition, fields)

    def try_complete(self, now_ms: int, out_of_time: bool) -> bool:
        """Send the response if there is enough to read, or the time is up."""
        fetched, total, urgent = self.read()
        if not (out_of_time or self.is_enough(total, urgent)):
            return False
        self._handler.requests.reply(self._context.ticket, Encoded(self.encode(fetched)))
        return True

    def is_enough(self, total: int, urgent: bool) -> bool:
        """Whether the response is sent now. Takes: total and urgent, as `read` returns them."""
        return urgent or total >= self._min_bytes

    def encode(self, fetched: list[Fetched], least_throttle_ms: int = 0) -> list[Piece]:
        """The encoded response. In a session it has only changed partitions. For a client above its
        byte quota it has no data, and the session is unchanged.
        """
        throttle_ms, gets_nothing = self._quota(fetched)
        throttle_ms = max(throttle_ms, least_throttle_ms)
        if gets_nothing:
            return self._throttled(throttle_ms)
        topics: list[tuple[Any, list[FetchedPartition]]] = []
        self._add_rows(topics, fetched + self._refused)
        return self._encoded(topics, throttle_ms)

    def encode_in_slices(
        self, fetched: list[Fetched], least_throttle_ms: int = 0
    ) -> Generator[None, int, list[Piece]]:
        """`encode` for thousands of targets, in slices."""
        throttle_ms, gets_nothing = self._quota(fetched)
        throttle_ms = max(throttle_ms, least_throttle_ms)
        if gets_nothing:
            return self._throttled(throttle_ms)
        topics: list[tuple[Any, list[FetchedPartition]]] = []
        rows = fetched + self._refused
        for first in range(0, len(rows), TARGETS_AT_ONCE):
            self._add_rows(topics, rows[first : first + TARGETS_AT_ONCE])
            yield
        return self._encoded(topics, throttle_ms)

    def _quota(self, fetched: list[Fetched]) -> tuple[int, bool]:
        """The throttle time in ms, and whether the response has to be without data."""
        quotas = self._handler.quotas.clients
        if quotas is None or not quotas.are_for(self._context):
            return 0, False
        return quotas.on_fetched(self._context, self._response_bytes(fetched))

    def _add_rows(
        self, topics: list[tuple[Any, list[FetchedPartition]]], fetched: list[Fetched]
    ) -> None:
        """Add the partitions of some targets to the topics of the response."""
        session = self._plan.session
        topic, rows = topics[-1] if topics else (None, [])
        for target, answer in fetched:
            if not isinstance(answer, FetchedPartition):
                answer = self._idle(target, answer)
            if session is not None and not self._has_news(session, target, answer):
                continue
            if target.topic is not topic and target.topic != topic:
                topic, rows = target.topic, []
                topics.append((topic, rows))
            rows.append(answer)

    def _encoded(
        self, topics: list[tuple[Any, list[FetchedPartition]]], throttle_ms: int
    ) -> list[Piece]:
        """The frame of the answer, after its errors are counted."""
        if self._handler.requests.errors is not None:
            for _, rows in topics:
                self._handler.requests.errors.count_rows(self._context.api_key, rows)
        if self._context.api_version < BATCHES_IN_FETCH:
            return self._older(topics, throttle_ms)
        return encode_fetch(
            self._context.correlation_id,
            self._context.api_version,
            topics,
            session_id=self._plan.session_id,
            throttle_time_ms=throttle_ms,
            endpoints=() if self._handler.cluster.is_one else self._endpoints(topics),
        )

    def _older(
        self, topics: list[tuple[Any, list[FetchedPartition]]], throttle_ms: int
    ) -> list[Piece]:
        """The response in the format of versions before 4."""
        return [encode_older(self._context, topics, self.logs, throttle_ms)]

    def _response_bytes(self, fetched: list[Fetched]) -> int:
        """The size of the response, without partitions that a session would leave out."""
        size = EMPTY_RESPONSE_BYTES
        topic: Any = None
        for target, answer in fetched:
            if isinstance(answer, FetchedPartition):
                size += PARTITION_BYTES + (0 if answer.records is None else answer.records.size)
            elif self._plan.incremental:
                continue
            else:
                size += PARTITION_BYTES
            if target.topic is not topic and target.topic != topic:
                topic = target.topic
                size += TOPIC_BYTES + len(topic if isinstance(topic, str) else topic.bytes)
        return size

    def _throttled(self, throttle_ms: int) -> list[Piece]:
        """The response to a client above its byte quota. If this request created a session, the
        session is dropped, since the empty response does not contain its id (KIP-219). The next
        request creates another session.
        """
        plan = self._plan
        if plan.session is not None and not plan.incremental:
            self._handler.cluster.sessions_here(self._context).forget(plan.session_id)
        if self._context.api_version < BATCHES_IN_FETCH:
            return self._older([], throttle_ms)
        return encode_fetch(
            self._context.correlation_id,
            self._context.api_version,
            (),
            session_id=plan.session_id if plan.incremental else NO_SESSION,
            throttle_time_ms=throttle_ms,
        )

    def _endpoints(self, topics: list[tuple[Any, list[FetchedPartition]]]) -> list[Endpoint]:
        """The addresses of the new leaders that the response names."""
        leaders = [
            row.current_leader
            for _, rows in topics
            for row in rows
            if row.current_leader is not None
        ]
        return self._handler.addresses.endpoints_of(leaders, self._context)

    def _idle(self, target: FetchTarget, log: Log) -> FetchedPartition:
        """The response's entry for a log that has nothing to read: its offsets, and no records."""
        aborted: list[AbortedTxn] | None = [] if self._isolation is _COMMITTED else None
        return FetchedPartition(
            target.index,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted,
        )

    def _has_news(
        self, session: FetchSession, target: FetchTarget, answer: FetchedPartition
    ) -> bool:
        """Whether the session's response has to contain this partition. The partition's values are
        stored in the session, and a partition with records moves to the end of the session's order.
        """
        size = 0 if answer.records is None else answer.records.size
        news = (
            target.has_news(answer.error_code, answer.high_watermark, answer.log_start_offset, size)
            or answer.diverging_epoch is not None
        )
        if news and size and self._plan.incremental:
            session.to_end(target)
        return news or not self._plan.incremental


def _is_idle(target: FetchTarget, log: Log, is_committed: bool) -> bool:
    """Whether there is nothing to read and no error: a cheap prediction of the result of
    `_Fetch._read_one`.
    """
    end_offset = log.last_stable_offset if is_committed else log.high_watermark
    return (
        end_offset <= target.fetch_offset <= log.log_end_offset
        and target.current_leader_epoch in (-1, log.leader_epoch)
        and target.last_fetched_epoch in (-1, log.epochs.latest)
        and target.partition_max_bytes >= 0
    )


def _divergence(log: Log, target: FetchTarget) -> tuple[int, int] | None:
    """The point where the reader's log diverges from this one (KIP-595): the leader epoch and its
    end offset, or None. Raises OFFSET_OUT_OF_RANGE.
    """
    epoch, end_offset = log.end_offset_for_epoch(target.last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or target.fetch_offset < log.log_start_offset:
        raise KafkaError(Code.OFFSET_OUT_OF_RANGE)
    if epoch < target.last_fetched_epoch or end_offset < target.fetch_offset:
        return epoch, end_offset
    return None


class FetchHandler:
    """Answers Fetch with slices of segment files, at once or when there are enough data."""

    __slots__ = (
        "access",
        "addresses",
        "cluster",
        "config",
        "connections",
        "logs",
        "metadata",
        "quotas",
        "requests",
        "wide",
    )

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        logs: LogManager,
        connections: Mapping[int, ConnectionState],
        requests: Requests,
        wide: WideRequests,
        quotas: Quotas,
        access: ClientAccess,
        cluster: Cluster,
        addresses: Addresses,
    ) -> None:
        self.config = config
        self.metadata = metadata
        self.logs = logs
        self.connections = connections
        self.requests = requests
        self.wide = wide
        self.quotas = quotas
        self.access = access
        self.cluster = cluster
        self.addresses = addresses

    def on_fetch(self, request: FetchRequest, context: RequestContext) -> Answer:
        """Read each partition from its offset, up to max_bytes in all (but at least one batch),
        waiting up to max_wait_ms for min_bytes.

        Errors: for the whole request those of fetch sessions (KIP-227); for a partition
        OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH, TOPIC_AUTHORIZATION_FAILED; with several brokers
        NOT_LEADER_OR_FOLLOWER, also for a waiting fetch when the leader is moved.
        """
        if sum([len(one.partitions) for one in request.topics or ()]) > TARGETS_AT_ONCE:
            return self.wide.begin(context, self._all_in_slices(request, context))
        try:
            plan = self._plan(request, context, None)
        except KafkaError as error:
            return self._refusal(context, error.code)
        fetch = _Fetch(self, request, context, plan)
        if len(plan.targets) > TARGETS_AT_ONCE:
            return self.wide.begin(context, self._in_slices(request, context, fetch))
        cache = self.logs.cache
        # without a context manager, since each further call costs measurable time here
        cache.defers_builds = True
        try:
            fetched, total, urgent = fetch.read()
        except BuildDeferred as deferred:
            self.requests.park(context)
            self._read_later(fetch, deferred, context, context.now_ms + request.max_wait_ms)
            return PARKED
        finally:
            cache.defers_builds = False
        if request.max_wait_ms <= 0 or not plan.targets or fetch.is_enough(total, urgent):
            return DeadlineKept(fetch.encode(fetched))
        deadline_ms = context.now_ms + request.max_wait_ms
        if self.requests.try_park_fetch(context, fetch.waiting(fetched), deadline_ms):
            return PARKED
        return self._without_wait(fetch, fetched, context)

    def _without_wait(
        self, fetch: _Fetch, fetched: list[Fetched], context: RequestContext
    ) -> Encoded:
        """The response of a fetch that may not wait, with what there is."""
        return Encoded(fetch.encode(fetched, self.requests.throttle_without_wait(context)))

    def _plan(
        self, request: FetchRequest, context: RequestContext, named: Targets | None
    ) -> FetchPlan:
        """The partitions that a request reads, by its session. Raises: KafkaError."""
        connection = self.connections[context.connection_id]
        return self.cluster.sessions_here(context).plan(
            request,
            uses_topic_ids=context.api_version >= FETCH_TOPIC_IDS,
            now_ms=context.now_ms,
            owner="" if self.access.authorizer is None else connection.principal,
            holder=connection.owner,
            named=named,
        )

    def _refusal(self, context: RequestContext, code: Code) -> Encoded:
        """The response to a request that is refused as a whole."""
        if self.requests.errors is not None:
            self.requests.errors.count(context.api_key, code)
        clients = self.quotas.clients
        return Encoded(
            encode_fetch(
                context.correlation_id,
                context.api_version,
                (),
                error_code=code,
                throttle_time_ms=0 if clients is None else clients.on_answered(context),
            )
        )

    def _read_later(
        self, fetch: _Fetch, deferred: BuildDeferred, context: RequestContext, deadline_ms: int
    ) -> None:
        """Let a large index be built in slices, then read and continue like `on_fetch`."""

        def read_again(now_ms: int) -> None:
            try:
                with self.logs.cache.deferring_builds():
                    fetched, total, urgent = fetch.read()
            except BuildDeferred as further:
                self._read_later(fetch, further, context, deadline_ms)
                return
            if now_ms >= deadline_ms or fetch.is_enough(total, urgent):
                self.requests.reply(context.ticket, Encoded(fetch.encode(fetched)))
            elif not self.requests.try_park_fetch(context, fetch.waiting(fetched), deadline_ms):
                response = self._without_wait(fetch, fetched, context)
                self.requests.reply(context.ticket, response)

        def on_built(now_ms: int) -> None:
            if self.requests.is_waited_for(context):
                self.requests.go_on(context, lambda: read_again(now_ms))

        self.logs.log_dir.build_later(deferred, on_built)

    def _all_in_slices(self, request: FetchRequest, context: RequestContext) -> Slices:
        """`on_fetch` for thousands of partitions that the request names."""
        yield
        uses_topic_ids = context.api_version >= FETCH_TOPIC_IDS
        named = yield from targets_in_slices(
            request, TARGETS_AT_ONCE, uses_topic_ids=uses_topic_ids
        )
        try:
            plan = self._plan(request, context, named)
        except KafkaError as error:
            return self._refusal(context, error.code)
        yield
        fetch = _Fetch(self, request, context, plan)
        return (yield from self._in_slices(request, context, fetch))

    def _in_slices(self, request: FetchRequest, context: RequestContext, fetch: _Fetch) -> Slices:
        """The rest of `on_fetch` for thousands of targets."""
        yield
        fetched, total, urgent = yield from fetch.read_in_slices()
        now_ms = yield
        deadline_ms = context.now_ms + request.max_wait_ms
        if now_ms < deadline_ms and not fetch.is_enough(total, urgent):
            # read again before waiting: the fetch was not notified of appends between the slices
            fetched, total, urgent = fetch.read()
        if now_ms >= deadline_ms or fetch.is_enough(total, urgent):
            return Encoded((yield from fetch.encode_in_slices(fetched)))
        if self.requests.try_park_fetch(context, fetch.waiting(fetched), deadline_ms):
            return PARKED
        throttle_ms = self.requests.throttle_without_wait(context)
        return Encoded((yield from fetch.encode_in_slices(fetched, throttle_ms)))


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(1, "Fetch", 0, 18, flexible_from=12, most_elements=80_000),
        right=rule(
            in_handler(Ask(READ, TOPIC), Ask(CLUSTER_ACTION, CLUSTER, "instead, as a replica"))
        ),
        read=lambda parts: read_fetch,
        handler=lambda parts: (
            FetchHandler(
                parts.config,
                parts.metadata,
                parts.logs,
                parts.connections,
                parts.requests,
                parts.wide,
                parts.quotas,
                parts.access,
                parts.cluster,
                parts.addresses,
            ).on_fetch
        ),
    ),
)
