"""The broker as a value: frames, ticks, flush completions and hang-ups go in; an Outbox comes out.

Nothing here knows of sockets, threads or clocks. The rim (server.py) calls one method at a time,
then carries out the outbox. Each connection has one request under way at a time, as with Apache
Kafka: the rim holds back a connection's next frame until the answer to the last is in the outbox,
which keeps answers in order and slow readers from piling up work.

A request's way: `on_frame` -> table look-up and decode -> handler -> response, encoded here; or
PARKED, and `reply` later.
"""

from __future__ import annotations

import functools
import logging
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from barnabas.broker.brokers.cluster import NOBODY, Cluster, NodeProducerIds, NodeTopics
from barnabas.broker.brokers.failover import Failover
from barnabas.broker.coordinator_runtime import CoordinatorRuntime
from barnabas.broker.group_topics import GroupTopics, short_text
from barnabas.broker.logs.compaction import Compaction
from barnabas.broker.logs.disk_space import DiskSpace
from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.metadata import ClusterMetadata, QuotaEntity
from barnabas.broker.logs.start import Start, adopt_logs
from barnabas.broker.logs.topic_deletion import TopicDeletion
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.outbox import (
    ANONYMOUS,
    BY_CERTIFICATE,
    PARKED,
    Answer,
    CloseReason,
    ConnectionState,
    Encoded,
    FlushJob,
    Ids,
    NoResponse,
    Outbox,
    Parked,
    Work,
    login_record,
)
from barnabas.broker.requests.dispatch import ROUTES, Route, read_body
from barnabas.broker.requests.fetch_sessions import FetchSessions
from barnabas.broker.requests.purgatory import Purgatory, WaitingFetch
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.features import (
    GROUP_VERSION,
    TRANSACTION_VERSION,
    FinalizedFeatures,
    finalize,
    levels_of,
)
from barnabas.broker.settings.group_configs import group_overrides
from barnabas.broker.slices import Pieces, SlicedWork, Slices
from barnabas.broker.transactions.transaction_end import TransactionEnds
from barnabas.broker.transactions.transaction_recovery import TransactionRecovery
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.group_coordinator import NO_OVERRIDES, GroupCoordinator
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.transaction_table import TxnSettings
from barnabas.protocol.api_table import API_VERSIONS, BY_KEY, Api
from barnabas.protocol.errors import Code, ProtocolViolation
from barnabas.protocol.framing import (
    GIVEN_AWAY_BYTES,
    RequestHeader,
    read_request_header,
    response_has_tagged_header,
)
from barnabas.protocol.hot_responses import CurrentLeader, Endpoint, Piece
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import BoundedBytes
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.cleaning.cleaner import CleanJob, CleanResult
from barnabas.storage.directory.log_manager import LogManager, sync_one_by_one
from barnabas.storage.disk import Syncable, may_have_lost_pages

if TYPE_CHECKING:
    from barnabas.broker.logs.new_files import FilesAhead
    from barnabas.broker.observation.error_counts import ErrorCounts
    from barnabas.broker.observation.login_counts import LoginCounts
    from barnabas.broker.quotas.client_quotas import ClientQuotas
    from barnabas.broker.requests.telemetry import Telemetry
    from barnabas.broker.security.authorizer import Access, Authorizer
    from barnabas.broker.security.gate import SaslGate
    from barnabas.broker.settings.listeners import ListenerConfig
    from barnabas.broker.wide_requests import WideRequests
    from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.broker")

PRODUCER_ID_BLOCK = 1000
DECODED_AT_ONCE_BYTES = 128 * 1024  # takes 20 ms where it is all small elements
NARROW_BYTES = 1024  # holds too little to be counted
WIDE_BYTES = 32 * 1024  # of what is handled in parts and may be decoded by the worker as well
MOST_BYTES_OF_BOUNDS = 2 << 20
_SASL_KEYS = (17, 36)  # the last bytes of the API keys of SaslHandshake and SaslAuthenticate
_API_KEY_BYTES = 2
_FRAME = struct.Struct(">ii")
_FRAME_TAGGED = _FRAME.size + 1  # no tagged fields
PRODUCE, TELEMETRY = 0, (71, 72)


class Broker:
    """One broker: what comes in, what goes out, the time, and the requests under way.

    Takes: config; metadata and logs, both loaded; ids, the source of random names; now_ms, the time
           of start; sync, which fsyncs many files.
    Holds: topics; the coordinators, and the runtime that carries out what they decide; purgatory,
           flushes, compaction and progress, for those who wait.
    Time: every `now_ms` is steady. The rim feeds `wall` what the wall clock shows, before each
          event.
    After: internal topics are replayed into the coordinators; transactions found in PREPARE_* are
           under way to completion.
    """

    _wide: WideRequests | None = None  # once there is one

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        logs: LogManager,
        ids: Ids,
        now_ms: int,
        sync: Callable[[list[Syncable]], None] = sync_one_by_one,
    ) -> None:
        self.config, self.metadata, self.logs = config, metadata, logs
        self.ids, self.wall, self.node_id = ids, logs.wall, config.node_id
        self.connections: dict[int, ConnectionState] = {}
        self._parked: dict[int, RequestContext] = {}
        self._next_ticket, self._waiting_fetches = 1, dict[int, WaitingFetch]()
        self._routes: dict[int, Route] = {}
        self.errors: ErrorCounts | None = None  # where somebody wants them counted
        self.busy_ns: Callable[[], int] = _no_time  # the time that the core works, fed by the rim
        self.quotas: ClientQuotas | None = None  # where there are any
        self.telemetry: Telemetry | None = None  # once a client has asked for subscriptions
        self.has_address_quotas = False
        self.outbox = Outbox()
        self.work = SlicedWork(self._on_sliced)
        self.reading = SlicedWork(self._encode_elsewhere, self._parked.__contains__)
        self._takers: dict[int, Callable[[Message], None]] = {}  # of the answers to parts
        self._amendments: dict[int, Callable[[Any], None]] = {}
        self.authorizer = _authorizer(self)
        self.apis = config.release.apis
        self.features = _features(config, metadata)
        self.disk_space = DiskSpace(
            lambda: logs.disk.free_bytes(logs.data_dir), config.barnabas_disk_reserve_bytes
        )
        self.topics = TopicRegistry(config, metadata, logs, ids, self.disk_space, self._on_created)
        self.cluster = Cluster(config, self.topics, ids)
        self.fetch_sessions = self.cluster.nodes[self.node_id].fetch_sessions
        self.producer_ids = ProducerIdAllocator(
            block_size=PRODUCER_ID_BLOCK,
            persist=metadata.set_next_producer_id,
            next_id=metadata.next_producer_id,
        )
        adopt_logs(self.topics, self.producer_ids, ids, self.node_id, now_ms)
        self.purgatory = Purgatory()
        self.flushes = self._flush_queue()
        self.progress = LogProgress(self.purgatory, self.flushes)
        self.compaction = Compaction(config, logs, self.flushes, self.outbox, now_ms)
        self.sasl = _sasl_gate(self)
        self.node_producer_ids = NodeProducerIds(self.cluster, self.producer_ids)
        self._begin_coordinators(now_ms, sync)
        self.failover = Failover(self)
        self._apply_quotas()

    @functools.cached_property
    def files_ahead(self) -> FilesAhead:
        """What has the files of new partitions made; none of it is loaded at a start."""
        from barnabas.broker.logs.new_files import FilesAhead

        return FilesAhead(self.outbox, self.logs)

    def _on_created(self, logs: list[Log]) -> None:
        self.files_ahead.begin(logs)

    def _flush_queue(self) -> FlushQueue:
        config, logs = self.config, self.logs
        return FlushQueue(
            self.outbox,
            logs.journal,
            fewest_logs=config.barnabas_flush_journal_logs,
            journal_roll_ms=config.log_flush_offset_checkpoint_interval_ms,
            logs_to_checkpoint=logs.logs.values() if logs.journal.has_older else (),
            keeps_earlier_journals=lambda: bool(logs.offline),
            has_disk_space=lambda: not self.disk_space.is_full,
            on_advanced=self.purgatory.on_progress,
        )

    def _begin_coordinators(self, now_ms: int, sync: Callable[[list[Syncable]], None]) -> None:
        topics = self.topics
        self.transaction_ends = TransactionEnds(self)
        self.transactions = TransactionCoordinator(
            partition_count=topics.internal_partition_count(TRANSACTIONS_TOPIC),
            settings=_transaction_settings(self.config, self.features),
            partition_exists=topics.partition_exists,
            allocate_producer_id=(
                self.producer_ids if self.cluster.is_one else self.node_producer_ids
            ).allocate,
            group_partition=topics.group_partition,
            wall=self.wall,
            coordinator_epoch=functools.partial(topics.leader_epoch, TRANSACTIONS_TOPIC),
            is_ending=self.transaction_ends.is_decided,
        )
        self.groups = GroupCoordinator(
            partition_count=topics.internal_partition_count(OFFSETS_TOPIC),
            settings=_group_settings(self.config),
            partition_exists=topics.partition_exists,
            new_member_suffix=lambda: str(self.ids.uuid()),
            wall=self.wall,
            topics=GroupTopics(topics, self.access_of),
            new_member_id=lambda: short_text(self.ids.uuid()),
            consumer_settings=_consumer_group_settings(self.config),
            overrides=self._group_overrides,
        )
        self._group_timers, self._transaction_timers = self.groups.timers, self.transactions.timers
        self.runtime = CoordinatorRuntime(self)
        self.deletion = TopicDeletion(
            topics,
            self.groups,
            self.runtime,
            self.transaction_ends,
            self.progress,
            self.flushes,
            self.compaction,
            self.cluster,
        )
        recovery = TransactionRecovery(self)
        start = Start(
            topics,
            self.groups,
            self.transactions,
            self.producer_ids,
            self.runtime,
            recovery,
            self.deletion,
        )
        start.resume(now_ms, sync)

    def told_apis(self) -> list[Api]:
        """What ApiVersions tells of. Clients are asked for metrics where somebody wants some."""
        wants_metrics = bool(self.metadata.client_metrics)
        return [api for key, api in self.apis.items() if wants_metrics or key not in TELEMETRY]

    @property
    def speaks_consumer_groups(self) -> bool:
        """Whether there are groups of the consumer protocol (KIP-848)."""
        if self.config.release.has_group_preview:
            return "consumer" in self.config.group_coordinator_rebalance_protocols
        return self.features.level(GROUP_VERSION) > 0

    def update_features(self, updated: Mapping[str, int]) -> None:
        """Let these levels hold from now on; those that are not named stay."""
        levels = {**self.features.levels, **updated}
        self.features = finalize(
            self.metadata,
            levels,
            self.features.supported,
            {**self.metadata.updated_features, **updated},
        )
        self.transactions.settings = _transaction_settings(self.config, self.features)

    def _group_overrides(self, group_id: str) -> Mapping[str, int]:
        configs = self.metadata.group_configs.get(group_id)
        return group_overrides(configs) if configs else NO_OVERRIDES

    # --- input -----------------------------------------------------------------------------------

    def on_connected(
        self,
        connection_id: int,
        client_host: str,
        local_host: str,
        local_port: int,
        node_id: int | None = None,
        listener: ListenerConfig | None = None,
    ) -> None:
        """A client connected. Its address is shown with the slash that Kafka's tools expect.

        Takes: node_id, of the broker it came to; None: the first one. listener: by which it came;
               None: the first one.
        """
        connection = self.connections[connection_id] = ConnectionState(
            connection_id,
            f"/{client_host}",
            local_host,
            local_port,
            self.node_id if node_id is None else node_id,
            self.config.listeners[0] if listener is None else listener,
        )
        if self.sasl is not None:
            self.sasl.on_connected(connection)

    def on_frame(self, connection_id: int, frame: memoryview, now_ms: int) -> None:
        """One whole request without its size. The frame's memory may be written to and is not used
        after the call; of a frame of more than `GIVEN_AWAY_BYTES` it is the core's from then on.

        The connection's next frame may come once its answer (or its closing) has been put into the
        outbox.
        """
        if self.outbox.deferred:
            self.on_sent(now_ms)
        connection = self.connections[connection_id]
        assert not connection.in_flight, (
            "a connection's next request came before the last was answered"
        )
        connection.in_flight = True
        ticket = self._next_ticket
        self._next_ticket = ticket + 1
        try:
            authentication = connection.authentication
            if authentication is not None and (
                now_ms >= authentication.passes_until_ms
                or len(frame) < _API_KEY_BYTES
                or frame[1] in _SASL_KEYS
            ):
                assert self.sasl is not None
                if not self.sasl.is_served(connection, authentication, frame, now_ms):
                    return
            header = read_request_header(frame, self.apis)
            api = header.api
            if api is None:
                self._refuse(connection, header)
                return
            context = RequestContext(
                ticket, header.api_version, header.client_id, connection.client_host,
                connection_id, api.key, header.correlation_id, now_ms,
                connection.local_host, connection.local_port, connection.node_id,
            )  # fmt: skip
            row = self._routes.get(api.key) or self._load_route(api)
            size_bytes = len(frame)
            if size_bytes <= NARROW_BYTES or (
                api.key == PRODUCE and size_bytes <= GIVEN_AWAY_BYTES
            ):
                self._handle(context, row, read_body(row, frame, header))
                return
            if api.key == PRODUCE:
                self._decode_elsewhere(connection, context, row, frame, header)
                return
            bounded = BoundedBytes(frame)
            bounded.elements_left = self._most_elements(api)
            if size_bytes <= (WIDE_BYTES if row.is_wide else DECODED_AT_ONCE_BYTES):
                self._handle(context, row, read_body(row, bounded, header))
            else:
                self._decode_elsewhere(connection, context, row, bounded, header)
        except ProtocolViolation as error:
            self._amendments.pop(ticket, None)
            self.close(connection_id, error)

    def _most_elements(self, api: Api) -> int:
        """How many elements the arrays of a request may have."""
        most_bytes: int = self.config.barnabas_request_max_bytes
        return api.most_elements * max(1, most_bytes // MOST_BYTES_OF_BOUNDS)

    def _handle(self, context: RequestContext, row: Route, request: Message) -> None:
        response = row.handle(request, context)
        if isinstance(response, Encoded):
            self.answer(context.connection_id, response.pieces)
        elif isinstance(response, NoResponse):
            self.answer(context.connection_id, ())
        elif not isinstance(response, Parked):
            self.answer(context.connection_id, self.encode(context, response))

    def _decode_elsewhere(
        self,
        connection: ConnectionState,
        context: RequestContext,
        row: Route,
        frame: BoundedBytes | memoryview,
        header: RequestHeader,
    ) -> None:
        """Have the worker decode what may hold a hundred thousand elements; it is handled
        afterwards. Takes: frame, of a Produce the memory that was received, which is the core's.
        """
        connection_id = context.connection_id
        is_wide = row.is_wide

        def run() -> Message | ProtocolViolation:
            try:
                return read_body(row, frame, header)
            except ProtocolViolation as error:
                return error

        def done(request: Message | ProtocolViolation, now_ms: int) -> None:
            if self.connections.get(connection_id) is not connection:
                return
            if isinstance(request, ProtocolViolation):
                self.close(connection_id, request)
                return
            try:
                self._handle(
                    context._replace(now_ms=now_ms, keeps_frame=context.api_key == PRODUCE),
                    row,
                    request,
                )
            except ProtocolViolation as error:
                self._amendments.pop(context.ticket, None)
                self.close(connection_id, error)
            except (OSError, AssertionError):
                raise
            except Exception as error:
                self._amendments.pop(context.ticket, None)
                # ends the connection, as the rim has it for requests that are handled at once
                self.give_up(connection_id, error)
            if is_wide and not self.wide.has(connection_id):
                self.wide.on_answered(connection_id)

        work = Work(connection_id, run, done, 0 if is_wide else len(frame))
        if is_wide:
            self.wide.decode(connection_id, len(frame), lambda: self.outbox.work.append(work))
        else:
            self.outbox.work.append(work)

    def on_tick(self, now_ms: int) -> None:
        """Time passed. Cheap when nothing is due."""
        self.on_sent(now_ms)
        self.purgatory.on_tick(now_ms)
        self.progress.on_tick(now_ms)
        deadline = self.groups.next_deadline_ms()
        if deadline is not None and deadline <= now_ms:
            self.runtime.run_groups(self.groups.on_tick(now_ms), now_ms)
        deadline = self.transactions.next_deadline_ms()
        if deadline is not None and deadline <= now_ms:
            self.runtime.run_transactions(self.transactions.on_tick(now_ms), now_ms)
        if self.logs.next_deadline_ms() <= now_ms:
            self.logs.on_tick(now_ms)
        self.compaction.on_tick(now_ms)
        self.flushes.on_tick(now_ms)
        self.topics.on_tick()
        self.metadata.on_tick()
        self.work.on_tick(now_ms)
        self.reading.on_tick(now_ms)
        if self._wide is not None:
            self._wide.on_tick(now_ms)
        if self.sasl is not None:
            self.sasl.on_tick(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `on_tick` has something to do next; None: nothing is waiting."""
        is_ready = self.work.is_ready or self.reading.queue or self.topics.is_configuring
        if is_ready or self.metadata.is_rewriting or (self._wide is not None and self._wide.queue):
            return 0
        earliest: int | None = self.logs.next_deadline_ms()
        for deadline in (
            self.purgatory.next_deadline_ms() if self.purgatory.waiting_count else None,
            self._group_timers.earliest_ms,
            self._transaction_timers.earliest_ms,
            self.compaction.next_deadline_ms(),
            self.flushes.next_deadline_ms(),
            self.progress.next_due_ms,
            None if self.sasl is None else self.sasl.next_deadline_ms(),
        ):
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def on_sent(self, now_ms: int) -> None:
        """The outbox's answers are sent: do what was deferred. The outbox may hold more then."""
        deferred, self.outbox.deferred = self.outbox.deferred, []
        for call in deferred:
            call(now_ms)

    def on_flushed(self, job: FlushJob, now_ms: int) -> None:
        """The files of that job are on the disk."""
        if self.outbox.deferred:
            self.on_sent(now_ms)
        self.flushes.on_flushed(job, now_ms)

    def on_cleaned(
        self, job: CleanJob, result: CleanResult | None, error: str, now_ms: int
    ) -> None:
        """A cleaning ended; result is None where it failed, and the error says why."""
        self.compaction.on_cleaned(job, result, error, now_ms)

    def on_worked(self, work: Work, result: Any, error: Exception | None, now_ms: int) -> None:
        """Work ended; error is not None where it failed, which ends its connection as an error in a
        handler does.
        """
        self.on_sent(now_ms)
        if error is None:
            work.done(result, now_ms)
        elif work.connection_id in self.connections:
            self.give_up(work.connection_id, error)

    def give_up(self, connection_id: int, error: Exception) -> None:
        """End a connection whose request met an error of the broker's own."""
        logger.error("a request could not be handled", exc_info=error)
        self.close(connection_id, f"an error in the broker: {error!r}; please report it")

    def on_closed(self, connection_id: int) -> None:
        """The connection is gone; what it had under way is finished without an answer."""
        if self._wide is not None:
            self._wide.on_closed(connection_id)
        connection = self.connections.pop(connection_id, None)
        if self.quotas is not None:
            self.quotas.on_closed(connection_id)
        if connection is not None and connection.parked_ticket >= 0:
            self._parked.pop(connection.parked_ticket, None)
            self._amendments.pop(connection.parked_ticket, None)
            fetch = self._waiting_fetches.pop(connection.parked_ticket, None)
            if fetch is not None:
                self.purgatory.cancel(fetch)

    def close_logs(self, now_ms: int, sync: Callable[[list[Any]], None] = sync_one_by_one) -> None:
        """A clean stop: everything is written down so that the next start has nothing to recover.
        `sync` fsyncs many files.
        """
        self.on_sent(now_ms)
        self.work.finish(now_ms)
        self.topics.make_internal_files()
        try:
            self.logs.close(now_ms, sync)
        except OSError as error:
            if may_have_lost_pages(error):
                self.logs.note_failure()
            raise
        self.metadata.close()

    # --- answers ---------------------------------------------------------------------------------

    def reply(self, ticket: int, response: Message | Encoded) -> None:
        """Answer a request by its ticket: one that is parked, or (from within its handler) the one
        under way.
        """
        context = self._parked.pop(ticket, None)
        if context is None:
            return  # its connection is gone
        if self._takers and ticket in self._takers:
            assert isinstance(response, Message), "answers to parts are messages"
            self.reply_to_part(context, response)
            return
        connection = self.connections[context.connection_id]
        connection.parked_ticket = -1
        self._waiting_fetches.pop(ticket, None)
        if self._amendments and isinstance(response, Encoded):
            response = self.amendable(context, response)
        if isinstance(response, Encoded):
            if self.quotas is not None:
                response = self.quotas.on_encoded(context, response)
            self.answer(context.connection_id, response.pieces)
        else:
            self.answer(context.connection_id, self.encode(context, response))

    def new_part(self, take: Callable[[Message], None]) -> int:
        """The ticket of a part of a request, whose answer `take` is given."""
        ticket = self._next_ticket
        self._next_ticket = ticket + 1
        self._takers[ticket] = take
        return ticket

    def reply_to_part(self, context: RequestContext, response: Message) -> None:
        """Answer a part of a request, whose client is answered with the whole."""
        take = self._takers[context.ticket]
        amendment = self._amendments.pop(context.ticket, None)
        self.on_part_over(context.ticket)
        if amendment is not None:
            amendment(response)
        if self.errors is not None:
            self.errors.count_in(context.api_key, response)
        take(response)

    def on_part_over(self, ticket: int) -> None:
        """Forget a part of a request."""
        self._takers.pop(ticket, None)
        self._parked.pop(ticket, None)
        self._amendments.pop(ticket, None)

    def park(self, context: RequestContext) -> None:
        """Make `reply` possible for the request under way, before its handler returns PARKED."""
        self._parked[context.ticket] = context
        self.connections[context.connection_id].parked_ticket = context.ticket

    def amend(self, ticket: int, amendment: Callable[[Any], None]) -> None:
        """Let the answer to a request be changed before it leaves, after what was said before."""
        earlier = self._amendments.get(ticket)
        if earlier is None:
            self._amendments[ticket] = amendment
            return

        def both(response: Any) -> None:
            earlier(response)
            amendment(response)

        self._amendments[ticket] = both

    def answer_in_slices(self, context: RequestContext, work: Slices) -> Answer:
        """What the work gives; PARKED where others have their turn before its end."""
        response: Answer
        is_done, response = self.work.begin(context.ticket, work, context.now_ms)
        if is_done:
            return response
        self.park(context)
        return PARKED

    def _on_sliced(self, ticket: int, answer: Answer) -> None:
        if isinstance(answer, Message | Encoded):
            self.reply(ticket, answer)

    def answer_in_turns(self, context: RequestContext, work: Slices) -> Answer:
        """What the work gives, whose slices take turns with those of other wide requests. It may
        hand the request on when the client is still there; PARKED where others have their turn.
        """
        return self.wide.begin(context, work)

    def read_in_slices(self, context: RequestContext, work: Slices) -> Answer:
        """What the work reads; PARKED where others have their turn before its end. Then the answer
        is long, and the worker encodes it.

        Takes: work, which gives a message, or `Pieces`.
        """
        is_done, response = self.reading.begin(context.ticket, work, context.now_ms)
        if is_done:
            return Encoded(response()) if callable(response) else cast(Message, response)
        self.park(context)
        return PARKED

    def _encode_elsewhere(self, ticket: int, response: Message | Pieces) -> None:
        """Have the worker encode the long answer to a request that is parked."""
        if ticket in self._takers:  # of a part of a request, which is encoded with the whole
            self.reply(ticket, cast(Message, response))
            return
        context = self._parked[ticket]
        if callable(response) and ticket in self._amendments:
            self.reply(ticket, Encoded(response()))  # which amends it
            return
        if callable(response):
            encode, is_counted = response, True
        else:
            if self.quotas is not None:
                self.quotas.on_response(context, response)
            if (amendment := self._amendments.pop(ticket, None)) is not None:
                amendment(response)
            encode, is_counted = functools.partial(_frame_of, context, response), False

        def run() -> tuple[Sequence[Piece], ErrorCounts | None]:
            if callable(response) or self.errors is None:
                return encode(), None
            counts = type(self.errors)()
            counts.count_in(context.api_key, response)
            return encode(), counts

        def done(result: tuple[Sequence[Piece], ErrorCounts | None], now_ms: int) -> None:
            pieces, counts = result
            if self._parked.pop(ticket, None) is None:
                return
            self.connections[context.connection_id].parked_ticket = -1
            if counts is not None and self.errors is not None:
                self.errors.add(counts)
            encoded = Encoded(pieces)
            if is_counted and self.quotas is not None:
                encoded = self.quotas.on_encoded(context, encoded)
            self.answer(context.connection_id, encoded.pieces)

        self.outbox.work.append(Work(context.connection_id, run, done))

    def park_fetch(self, context: RequestContext, fetch: WaitingFetch, deadline_ms: int) -> None:
        """Let a fetch wait in the purgatory."""
        self.park(context)
        self._waiting_fetches[context.ticket] = fetch
        self.purgatory.park(fetch, deadline_ms)

    def close(self, connection_id: int, reason: CloseReason) -> None:
        """End a connection, with a line in the log."""
        self.outbox.closes.append((connection_id, reason))

    def answer(self, connection_id: int, pieces: Sequence[Piece]) -> None:
        """Send the answer to a connection's request, as it is on the wire."""
        self.connections[connection_id].in_flight = False
        self.outbox.sends.append((connection_id, pieces))

    def amendable(self, context: RequestContext, response: Encoded) -> Message | Encoded:
        """What a handler has encoded, as it is; or decoded again, where it is to be amended."""
        if context.ticket not in self._amendments:
            return response
        if not response.pieces:
            del self._amendments[context.ticket]  # there is no answer to change
            return response
        from barnabas.broker.requests.refusals import message_class

        api = BY_KEY[context.api_key]
        is_tagged = response_has_tagged_header(api, context.api_version)
        frame = b"".join(cast(Sequence[bytes], response.pieces))
        start = _FRAME_TAGGED if is_tagged else _FRAME.size
        return message_class(api, "Response").read(frame, start, context.api_version)[0]

    def access_of(self, context: RequestContext) -> Access | None:
        """What the client of a request may; None: there is no authorizer, and everybody may."""
        if self.authorizer is None:
            return None
        connection = self.connections[context.connection_id]
        access = connection.access
        if access is None or access.keeper is not self.authorizer:
            access = self.authorizer.access(connection.principal, connection.client_host, context)
            connection.access = access
        return access

    def _refuse(self, connection: ConnectionState, header: RequestHeader) -> None:
        """A request that is not spoken: ApiVersions is answered in the form that every client reads
        (KIP-511), others end the connection.
        """
        if header.api_key == API_VERSIONS:
            from barnabas.broker.handlers.api_versions import unsupported_version_response

            body = unsupported_version_response().encode(version=0)
            self.answer(
                connection.connection_id,
                (_FRAME.pack(4 + len(body), header.correlation_id) + body,),
            )
            return
        api = self.apis.get(header.api_key)
        what = (
            f"{api.name} version {header.api_version}"
            if api
            else f"a request with API key {header.api_key}"
        )
        spoken = f"; versions {api.min_version} to {api.max_version} are spoken" if api else ""
        raise ProtocolViolation(f"{what} is not spoken here{spoken}")

    def _load_route(self, api: Api) -> Route:
        from barnabas.broker.wide_requests import SHAPES, reading_once

        row = ROUTES[api.key](self)
        if api.name in SHAPES:
            row = row._replace(read=reading_once(api.name, row.read), is_wide=True)
        if not self.cluster.is_one:
            from barnabas.broker.brokers.coordinator_edge import at_coordinator

            row = at_coordinator(self, api, row)
        if self.authorizer is not None:
            from barnabas.broker.security.authorization import authorized

            row = authorized(self, api, row)
        if self.quotas is not None:
            row = self.quotas.around(api, row)
        if row.is_wide:
            row = self.wide.around(api, row)
        self._routes[api.key] = row
        return row

    def encode(self, context: RequestContext, response: Message) -> tuple[bytearray]:
        """The whole frame of the response to a request."""
        if self.quotas is not None:
            self.quotas.on_response(context, response)
        if self._amendments and (amendment := self._amendments.pop(context.ticket, None)):
            amendment(response)
        if self.errors is not None:
            self.errors.count_in(context.api_key, response)
        is_tagged = response_has_tagged_header(BY_KEY[context.api_key], context.api_version)
        out = bytearray(_FRAME_TAGGED if is_tagged else _FRAME.size)
        response.write(out, context.api_version)
        _FRAME.pack_into(out, 0, len(out) - 4, context.correlation_id)
        return (out,)

    @property
    def wide(self) -> WideRequests:
        """The requests that are handled in parts."""
        if self._wide is None:
            from barnabas.broker.wide_requests import WideRequests  # a start needs none

            self._wide = WideRequests(self)
        return self._wide

    @functools.cached_property
    def logins(self) -> LoginCounts:
        """How many logins succeeded and failed."""
        from barnabas.broker.observation.login_counts import (
            LoginCounts,  # most brokers ask nobody who he is
        )

        return LoginCounts(self.config.listeners)

    def on_identified(self, connection_id: int, principal: str) -> None:
        """A client has shown by a certificate who it is."""
        connection = self.connections[connection_id]
        connection.principal, connection.access = principal, None
        if principal == ANONYMOUS:
            return  # it has shown none, and need not
        self.logins.count_certificate(connection.listener, has_succeeded=True)
        if self.config.barnabas_audit_log:
            self.outbox.audit.append(login_record(connection, BY_CERTIFICATE, is_allowed=True))

    def on_not_identified(self, connection_id: int) -> None:
        """A client that may, or has to, show a certificate has not set up TLS."""
        connection = self.connections[connection_id]
        self.logins.count_certificate(connection.listener, has_succeeded=False)
        if self.config.barnabas_audit_log:
            self.outbox.audit.append(login_record(connection, BY_CERTIFICATE, is_allowed=False))

    # --- quotas ----------------------------------------------------------------------------------

    def set_client_quotas(self, changes: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Let other quotas hold for some entities, whole."""
        self.metadata.set_client_quotas(changes)
        self._apply_quotas()

    def _apply_quotas(self) -> None:
        """Without quotas of clients requests go their way as if there could be none."""
        types = {entity[0][0] for entity in self.metadata.client_quotas}
        self.has_address_quotas = "ip" in types
        is_wanted = bool(types - {"ip"})
        if self.quotas is not None and is_wanted:
            self.quotas.on_changed()
        elif is_wanted is not (self.quotas is not None):
            self._routes.clear()
            self.quotas = _client_quotas(self) if is_wanted else None

    # --- several brokers -------------------------------------------------------------------------

    def on_listening(self, node_id: int, listener: ListenerConfig, port: int) -> None:
        """One of the brokers listens there at that port."""
        self.cluster.node(node_id).ports[listener.name] = port

    def topics_of(self, context: RequestContext) -> TopicRegistry | NodeTopics:
        """The topics as the broker has them that a request came to: with the logs that it leads."""
        return self.topics if self.cluster.is_one else self.cluster.topics_of(context.node_id)

    def sessions_of(self, context: RequestContext) -> FetchSessions:
        """The fetch sessions of the broker that a request came to."""
        if self.cluster.is_one:
            return self.fetch_sessions
        return self.cluster.nodes[context.node_id].fetch_sessions

    def node_id_of(self, context: RequestContext) -> int:
        """The broker that a request came to."""
        return self.node_id if self.cluster.is_one else context.node_id

    def endpoint(self, node_id: int, context: RequestContext) -> Endpoint:
        """Where a broker is, as the client of this request may reach it: what advertised.listeners
        says of the listener that it came by, else where it came in.

        With advertised.listeners of several brokers the first has that port, and the others are as
        far from it as their own ports are from the first's.
        """
        listener = self._listener_of(context)
        host, port = listener.advertised or (context.local_host, context.local_port)
        if not self.cluster.is_one:
            nodes, name = self.cluster.nodes, listener.name
            if listener.advertised is None:
                port = nodes[node_id].ports.get(name, -1)
            else:
                port += nodes[node_id].ports[name] - nodes[self.node_id].ports[name]
        return Endpoint(node_id, host, port, self.config.broker_rack)

    def endpoints(self, context: RequestContext) -> list[Endpoint]:
        """Where the brokers are that are there; and the other node of a pair also while it is away:
        clients that know both go on by themselves when it leads.
        """
        there = [self.endpoint(node.node_id, context) for node in self.cluster.nodes_there()]
        standby = self.cluster.standby
        if standby is not None:
            address = standby.addresses.get(self._listener_of(context).name)
            if address is not None:
                there.append(Endpoint(standby.node_id, *address, rack=None))
        return there

    def _listener_of(self, context: RequestContext) -> ListenerConfig:
        connection = self.connections.get(context.connection_id)  # None: it has hung up meanwhile
        return self.config.listeners[0] if connection is None else connection.listener

    def hint(self, topic: str, index: int, code: int) -> CurrentLeader | None:
        """Who leads a partition, for a client that was refused where it asked (KIP-951)."""
        if self.cluster.is_one or code not in (
            Code.NOT_LEADER_OR_FOLLOWER,
            Code.FENCED_LEADER_EPOCH,
        ):
            return None
        leadership = self.cluster.leadership(topic, index)
        if leadership is None:
            return None
        return CurrentLeader(leadership.leader, self.topics.leader_epoch(topic, index))

    def endpoints_of(
        self, leaders: Iterable[CurrentLeader], context: RequestContext
    ) -> list[Endpoint]:
        """Where the leaders are that a client is told of, each once."""
        node_ids = dict.fromkeys(one.leader_id for one in leaders if one.leader_id != NOBODY)
        return [self.endpoint(node_id, context) for node_id in node_ids]


def _frame_of(context: RequestContext, response: Message) -> tuple[bytearray]:
    """The whole frame of a response as it is; `Broker.encode` has no call for it."""
    is_tagged = response_has_tagged_header(BY_KEY[context.api_key], context.api_version)
    out = bytearray(_FRAME_TAGGED if is_tagged else _FRAME.size)
    response.write(out, context.api_version)
    _FRAME.pack_into(out, 0, len(out) - 4, context.correlation_id)
    return (out,)


def _no_time() -> int:
    return 0


def _client_quotas(broker: Broker) -> ClientQuotas:
    from barnabas.broker.quotas.client_quotas import ClientQuotas

    return ClientQuotas(broker)


def _authorizer(broker: Broker) -> Authorizer | None:
    """What says who may do what, where one is set; an audit log alone has one that allows all."""
    config = broker.config
    if not config.authorizer_class_name and not config.barnabas_audit_log:
        return None
    # now: the first request would hold up the others while the modules load
    import barnabas.broker.security.authorization  # noqa: F401
    from barnabas.broker.security.authorizer import Authorizer

    def on_changed() -> None:
        broker.cluster.generation += 1

    return Authorizer(
        broker.metadata,
        config.super_users,
        everyone_if_no_acl=config.allow_everyone_if_no_acl_found,
        is_on=bool(config.authorizer_class_name),
        tell=broker.outbox.audit.append if config.barnabas_audit_log else None,
        on_changed=on_changed,
    )


def _sasl_gate(broker: Broker) -> SaslGate | None:
    """What asks clients who they are, where a listener has SASL."""
    if not broker.config.has_sasl:
        return None
    from barnabas.broker.security.gate import SaslGate

    return SaslGate(broker)


def _features(config: BrokerConfig, metadata: ClusterMetadata) -> FinalizedFeatures:
    supported = config.release.features
    levels = levels_of(config.barnabas_features, metadata.updated_features, supported)
    return finalize(metadata, levels, supported)


def _transaction_settings(config: BrokerConfig, features: FinalizedFeatures) -> TxnSettings:
    return TxnSettings(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        transaction_version=features.level(TRANSACTION_VERSION),
        two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        is_durable=config.barnabas_transaction_durability == "flush",
    )


def _consumer_group_settings(config: BrokerConfig) -> ConsumerGroupSettings:
    return ConsumerGroupSettings(
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        max_size=config.group_consumer_max_size,
        assignors=config.group_consumer_assignors,
        migration_policy=config.group_consumer_migration_policy,
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        is_preview=config.release.has_group_preview,
    )


def _group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        offset_metadata_max_size=config.offset_metadata_max_bytes,
        max_record_bytes=config.message_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        group_operations=config.release.group_operations,
    )
