"""The broker without I/O: frames, ticks, flush completions and disconnections go in; an Outbox
comes out.

It uses no sockets, threads or clocks. The rim (rim/server.py) calls one method at a time, then
carries out the outbox. Each connection has one request under way at a time, as with Apache Kafka.
The rim holds back a connection's next frame until the response to the last request is in the
outbox. So responses keep their order, and the work for a slow reader does not pile up.

The path of a request: `answer_frame` -> its route (dispatch.py), which reads the body -> its
handler in `broker/handlers/` -> a response, which is encoded here; or PARKED, and `Requests.reply`
later. assemble.py makes the parts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.brokers.failover import Failover
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.connections.logins import Logins
from barnabas.broker.dispatch import Routes
from barnabas.broker.lazy import Lazy
from barnabas.broker.logs.compaction import Compaction
from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.logs.purgatory import Purgatory
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.observation.counters import Counters
from barnabas.broker.outbox import DeadlineKept, Encoded, FlushJob, NoResponse, Outbox, Parked, Work
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.requests.large_requests import NARROW_BYTES
from barnabas.broker.requests.pending_requests import FRAME, Requests, failure
from barnabas.broker.requests.wide_requests import WideRequests
from barnabas.broker.requests.without_space import refuse
from barnabas.broker.routes import Route
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import ListenerConfig
from barnabas.protocol.api import Api
from barnabas.protocol.api_table import API_VERSIONS
from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.framing import GIVEN_AWAY_BYTES, HeaderReader, read_request_header
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    BoundedBytes,
    Buffer,
    MalformedMessageError,
    TooManyElementsError,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.cleaning.clean_job import CleanJob, CleanResult
from barnabas.storage.directory.log_manager import LogManager, sync_one_by_one
from barnabas.storage.disk import NotWrittenError, may_have_lost_pages
from barnabas.storage.exception_guard import contain, report

if TYPE_CHECKING:
    from barnabas.broker.admission.gate import SaslGate
    from barnabas.broker.coordinators import Coordinators
    from barnabas.broker.share_partitions.shares import Shares
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
    from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator

# The maximum size of a request that the loop decodes. This takes 20 ms if all elements of the
# request are small.
DECODED_AT_ONCE_BYTES = 128 * 1024
# Requests that are handled in parts are decoded by the worker if they are larger than this.
WIDE_BYTES = 32 * 1024
MOST_BYTES_OF_BOUNDS = 2 << 20
_SASL_KEYS = (17, 36)  # the low bytes of the API keys of SaslHandshake and SaslAuthenticate
_API_KEY_BYTES = 2
PRODUCE = 0
# the errors that `Route.read` raises for an unreadable body
UNREADABLE = (TooManyElementsError, struct.error, IndexError, MalformedMessageError)


class Broker:
    """One broker. Connections and frames go in, an outbox comes out, and time passes by ticks.

    Its parameters are the parts that an input or a tick uses. The rim also reads them.

    timer_is_set: whether the next deadline is not earlier than when the rim last set its timer to
    it. Each input clears it, except a request with a `DeadlineKept` response.

    Time: every `now_ms` is a time of the steady clock. The rim sets `wall` to the wall clock's time
          before each event.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        logs: LogManager,
        outbox: Outbox,
        connections: dict[int, ConnectionState],
        requests: Requests,
        routes: Routes,
        *,
        wide: WideRequests,
        quotas: Quotas,
        access: ClientAccess,
        sasl: SaslGate | None,
        logins: Logins,
        topics: TopicRegistry,
        cluster: Cluster,
        failover: Failover,
        purgatory: Purgatory,
        progress: LogProgress,
        flushes: FlushQueue,
        compaction: Compaction,
        coordinators: Lazy[Coordinators],
        shares: Lazy[Shares],
        counters: Counters,
        unwritten: UnwrittenWork,
    ) -> None:
        self.config, self.metadata, self.logs, self.wall = config, metadata, logs, logs.wall
        self.outbox, self.connections = outbox, connections
        self.requests, self.routes, self._loaded_routes = requests, routes, routes.loaded
        self.families = routes.families
        self.wide, self.quotas, self.sasl, self.logins = wide, quotas, sasl, logins
        self.access = access
        self.topics, self.cluster, self.failover = topics, cluster, failover
        self.purgatory, self.progress = purgatory, progress
        self.flushes, self.compaction = flushes, compaction
        self.coordinators, self.shares = coordinators, shares
        self.counters, self.unwritten = counters, unwritten
        self.disk_space = topics.disk_space
        self._apis = config.release.apis
        self._read_header = HeaderReader(self._apis).read
        # the connection whose current request the gate has already accepted
        self._resumed: ConnectionState | None = None
        self._log_dir = logs.log_dir
        self.timer_is_set = False

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinator of groups, which is made at its first use."""
        return self.coordinators.get().groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of transactions, which is made at its first use."""
        return self.coordinators.get().transactions

    # --- connections -----------------------------------------------------------------------------

    def on_listening(self, node_id: int, listener: ListenerConfig, port: int) -> None:
        """Record the port at which the broker `node_id` accepts connections for a listener."""
        self.cluster.node(node_id).ports[listener.name] = port

    def on_connected(
        self,
        connection_id: int,
        client_host: str,
        local_host: str,
        local_port: int,
        node_id: int | None = None,
        listener: ListenerConfig | None = None,
    ) -> None:
        """A client has connected. Its address is stored with the slash that Kafka's tools expect.

        Takes: node_id, the id of the broker that the client connected to, None for the first
               broker; listener, the listener that accepted the connection, None for the first
               listener.
        """
        self.timer_is_set = False
        connection = self.connections[connection_id] = ConnectionState(
            connection_id,
            f"/{client_host}",
            local_host,
            local_port,
            self.config.node_id if node_id is None else node_id,
            self.config.listeners[0] if listener is None else listener,
        )
        if self.sasl is not None:
            self.sasl.on_connected(connection)

    def on_identified(self, connection_id: int, principal: str) -> None:
        """A client has completed the TLS handshake. principal: taken from the client's certificate,
        if it has one.
        """
        self.timer_is_set = False
        self.logins.on_certificate(self.connections[connection_id], principal)

    def on_not_identified(self, connection_id: int) -> None:
        """The TLS handshake failed on a listener that accepts client certificates."""
        self.timer_is_set = False
        self.logins.on_no_certificate(self.connections[connection_id])

    def on_hung_up(self, connection_id: int, now_ms: int) -> None:
        """The client will send nothing more, but may still read the response to its request. A
        fetch that waits for data is answered at once, and none will wait.
        """
        self.timer_is_set = False
        connection = self.connections.get(connection_id)
        if connection is not None:
            connection.has_hung_up = True
            self.requests.end_waiting_fetch(connection.parked_ticket, now_ms)

    def on_closed(self, connection_id: int) -> None:
        """A connection has closed. Its request under way is finished without a response."""
        self.timer_is_set = False
        self.wide.on_closed(connection_id)
        connection = self.connections.pop(connection_id, None)
        if self.shares.made is not None:
            self.shares.made.session_ends.on_closed(connection_id)
        if self.quotas.clients is not None:
            self.quotas.clients.on_closed(connection_id)
        if connection is not None and connection.parked_ticket >= 0:
            self.requests.on_closed(connection.parked_ticket, connection_id)
        else:
            self.requests.large.end(connection_id)

    # --- frames ----------------------------------------------------------------------------------

    def on_frame(self, connection_id: int, frame: memoryview, now_ms: int) -> None:
        """Process one whole request, as `answer_frame` does. The outbox has its response, now or
        later.
        """
        answer = self.answer_frame(connection_id, frame, now_ms)
        if answer is not None:
            self.outbox.sends.append((connection_id, answer))

    def answer_frame(self, connection_id: int, frame: memoryview, now_ms: int) -> Encoded | None:
        """Process one whole request. frame: the bytes of the request without the size field.

        Gives: the response, if the handler has encoded it; None if the outbox has it, now or later.
        This saves each such request the way through the outbox.

        This is one long function because each further call would make every request slower.

        The core may write to the frame's memory. It does not use the memory after the call, unless
        the frame has more than `GIVEN_AWAY_BYTES`: such memory belongs to the core from then on.

        The connection's next frame may come once the outbox has the response to this one, or the
        request to close the connection.
        """
        if self.outbox.deferred:
            self.on_sent(now_ms)
        timer_is_set, self.timer_is_set = self.timer_is_set, False
        connection = self.connections[connection_id]
        assert not connection.in_flight, "the connection's last request is not answered yet"
        connection.in_flight = True
        requests = self.requests
        ticket = requests.next_ticket
        requests.next_ticket = ticket + 1
        try:
            authentication = connection.authentication
            if (
                authentication is not None
                and connection is not self._resumed
                and (
                    now_ms >= authentication.passes_until_ms
                    or len(frame) < _API_KEY_BYTES
                    # This compares only the low byte of the API key, which is cheap to read;
                    # `is_served` reads the whole key.
                    or frame[1] in _SASL_KEYS
                )
            ):
                assert self.sasl is not None
                if not self.sasl.is_served(connection, authentication, frame, now_ms):
                    return None
            header, correlation_id = self._read_header(frame)
            api, api_key, version, client_id, body_start = header
            if api is None:
                self._refuse(connection, frame)
                return None
            context = RequestContext(
                ticket, version, client_id, connection.client_host, connection_id, api_key,
                correlation_id, now_ms, connection.local_host, connection.local_port,
                connection.node_id, False, self.topics.version,
            )  # fmt: skip
            route = self._loaded_routes.get(api_key) or self._try_load(connection, api, frame)
            if route is None:
                return None
            body: Buffer
            size_bytes = len(frame)
            if size_bytes > NARROW_BYTES and (api_key != PRODUCE or size_bytes > GIVEN_AWAY_BYTES):
                context = context.replace(request_bytes=size_bytes)
                bounded = self._bounded_body(connection, context, route, frame, api, body_start)
                if bounded is None:
                    return None
                body = bounded
            elif api_key == PRODUCE:
                body = frame  # its records stay views of the frame
            else:
                body = frame.tobytes()  # which is read faster than a view
            try:
                request = route.read(body, body_start, version)[0]
            except UNREADABLE as error:
                raise _unreadable(route, frame, error) from error
            try:
                response = route.handle(request, context)
            except NotWrittenError as error:
                self._refuse_unwritten(context, route, request, error)
                return None
            # This is `_answer` and `Requests.answer`, inlined, since every Produce and Fetch comes
            # here.
            if isinstance(response, Encoded):
                connection.in_flight = False
                large = requests.large
                if large.held or large.objects:
                    large.end(connection_id)
                if timer_is_set and type(response) is DeadlineKept:
                    self.timer_is_set = not self._log_dir.has_new_work
                return response
            if not isinstance(response, Parked):
                self._answer(context, response)
        except ProtocolViolation as error:
            requests.refuse(ticket, connection_id, error)
        return None

    def _try_load(self, connection: ConnectionState, api: Api, frame: memoryview) -> Route | None:
        """Load the route of an API at its first request. Gives: None if the worker has to load the
        API's family first; the request is then processed again.
        """
        if not self.families.has_to_load(api.family):
            return self.routes.load(api)
        self._load_elsewhere(connection, api, frame)
        return None

    def _load_elsewhere(self, connection: ConnectionState, api: Api, frame: memoryview) -> None:
        """Let the worker load the family of an API, then process the request again. In the loop,
        the imports might block other requests for too long.
        """
        size_bytes = len(frame)
        kept = frame if size_bytes > GIVEN_AWAY_BYTES else memoryview(bytearray(frame))
        connection_id = connection.connection_id

        def process_again(now_ms: int) -> None:
            if self.connections.get(connection_id) is not connection:
                return
            connection.in_flight = False
            self._resumed = connection
            try:
                self.on_frame(connection_id, kept, now_ms)
            except Exception as error:
                # This closes the connection, as the rim does after an error in any other request.
                self.requests.give_up(connection_id, error)
            finally:
                self._resumed = None

        held_bytes = size_bytes if kept is frame else 0
        self.families.load_elsewhere(api.family, process_again, connection_id, held_bytes)

    def _bounded_body(
        self,
        connection: ConnectionState,
        context: RequestContext,
        route: Route,
        frame: memoryview,
        api: Api,
        body_start: int,
    ) -> BoundedBytes | None:
        """The frame of a larger request, with a limit on the elements in its arrays. Gives: None if
        the worker decodes the request, which is then handled afterwards.
        """
        if api.key == PRODUCE:
            self._decode_elsewhere(connection, context, route, frame, body_start)
            return None
        bounded = BoundedBytes(frame)
        most_bytes: int = self.config.barnabas_request_max_bytes
        bounded.elements_left = api.most_elements * max(1, most_bytes // MOST_BYTES_OF_BOUNDS)
        most_at_once = WIDE_BYTES if route.is_wide else DECODED_AT_ONCE_BYTES
        if len(frame) <= most_at_once and not self.requests.large.is_crowded:
            return bounded
        self._decode_elsewhere(connection, context, route, bounded, body_start)
        return None

    def _refuse_unwritten(
        self, context: RequestContext, route: Route, request: Message, error: NotWrittenError
    ) -> None:
        """Refuse a request whose records could not be written for lack of space, and log that."""
        self.unwritten.note(f"a {route.name} request", error, context.now_ms)
        refuse(self.requests, request, context)

    def _answer(self, context: RequestContext, response: Message | Encoded | NoResponse) -> None:
        """Put the answer of a handler into the outbox."""
        requests = self.requests
        if isinstance(response, Encoded):
            requests.answer(context.connection_id, response)
        elif isinstance(response, NoResponse):
            requests.answer(context.connection_id, ())
        else:
            requests.answer(context.connection_id, requests.encode(context, response))

    def _decode_elsewhere(
        self,
        connection: ConnectionState,
        context: RequestContext,
        route: Route,
        frame: BoundedBytes | memoryview,
        body_start: int,
    ) -> None:
        """Let the worker decode a request that may have a hundred thousand elements, then handle
        the request. Takes: frame, which for a Produce is the received memory and belongs to the
        core.
        """
        connection_id = context.connection_id
        requests = self.requests

        def run() -> Message | ProtocolViolation:
            try:
                request: Message = route.read(frame, body_start, context.api_version)[0]
            except UNREADABLE as error:
                return _unreadable(route, frame, error)
            return request

        def done(request: Message | ProtocolViolation, now_ms: int) -> None:
            if self.connections.get(connection_id) is not connection:
                return
            if isinstance(request, ProtocolViolation):
                requests.close(connection_id, request)
                return
            after = context.replace(now_ms=now_ms, keeps_frame=context.api_key == PRODUCE)
            try:
                response = route.handle(request, after)
                if not isinstance(response, Parked):
                    self._answer(after, response)
            except NotWrittenError as error:
                self._refuse_unwritten(after, route, request, error)
            except ProtocolViolation as error:
                requests.refuse(context.ticket, connection_id, error)
            except Exception as error:
                # This closes the connection, as the rim does after an error in any other request.
                requests.fail(context.ticket, connection_id, error)

        if context.api_key == PRODUCE:
            self.outbox.work.append(Work(connection_id, run, done, len(frame)))
            return
        work = Work(connection_id, run, done)
        requests.large.decode(connection_id, len(frame), lambda: self.outbox.work.append(work))

    def _refuse(self, connection: ConnectionState, frame: memoryview) -> None:
        """Refuse a request of an unsupported API or version. ApiVersions gets a response that every
        client can read (KIP-511); any other request ends the connection.
        """
        header = read_request_header(frame, self._apis)
        if header.api_key == API_VERSIONS:
            api_versions = self._apis[API_VERSIONS]
            if self.families.has_to_load(api_versions.family):
                self._load_elsewhere(connection, api_versions, frame)
                return
            from barnabas.broker.handlers.api_versions import unsupported_version_response

            body = unsupported_version_response().encode(version=0)
            self.requests.answer(
                connection.connection_id,
                (FRAME.pack(4 + len(body), header.correlation_id) + body,),
            )
            return
        api = self._apis.get(header.api_key)
        what = (
            f"{api.name} version {header.api_version}"
            if api
            else f"a request with API key {header.api_key}"
        )
        spoken = f"; versions {api.min_version} to {api.max_version} are" if api else ""
        raise ProtocolViolation(f"{what} is not supported{spoken}")

    # --- completions from the rim ----------------------------------------------------------------

    def on_sent(self, now_ms: int) -> None:
        """The rim has sent the responses in the outbox. Run the deferred calls, which may add to
        the outbox.
        """
        self.timer_is_set = False
        deferred, self.outbox.deferred = self.outbox.deferred, []
        for call in deferred:
            try:
                call(now_ms)
            except Exception as error:
                contain(error, "a step after an answer")

    def on_flushed(self, job: FlushJob, now_ms: int) -> None:
        """The rim has flushed the files of a job to the disk."""
        self.timer_is_set = False
        if self.outbox.deferred:  # deferred calls run before any other input (see Outbox)
            self.on_sent(now_ms)
        if job.then is not None:
            job.then(now_ms)
        else:
            self.flushes.on_flushed(job, now_ms)
        if self.progress.risen:
            self.progress.try_risen(now_ms)

    def on_cleaned(
        self, job: CleanJob, result: CleanResult | None, error: str, now_ms: int
    ) -> None:
        """The cleaning of a log has ended. Takes: result, None if the cleaning failed; error, the
        reason for the failure.
        """
        self.timer_is_set = False
        self.compaction.on_cleaned(job, result, error, now_ms)

    def on_worked(self, work: Work, result: Any, error: Exception | None, now_ms: int) -> None:
        """The worker has finished some work. Takes: error, None if the work succeeded. An error
        closes the connection, as an error in a handler does.
        """
        self.on_sent(now_ms)
        if error is not None:
            report(error, f"the worker, for connection {work.connection_id}")
            if work.connection_id in self.connections:
                self.requests.close(work.connection_id, failure(error))
            return
        try:
            work.done(result, now_ms)
        except Exception as fault:
            self.requests.give_up(work.connection_id, fault)

    # --- time ------------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> None:
        """Time has passed. The call is cheap if nothing is due."""
        self.on_sent(now_ms)
        self.unwritten.on_tick(now_ms)
        self.disk_space.on_tick(now_ms)
        self.progress.on_tick(now_ms)
        if self.coordinators.made is not None:
            self._tick_coordinators(self.coordinators.made, now_ms)
        if self.logs.next_deadline_ms() <= now_ms:
            self.logs.on_tick(now_ms)
        self.compaction.on_tick(now_ms)
        self.flushes.on_tick(now_ms)
        self.topics.on_tick()
        self.metadata.on_tick()
        self.requests.work.on_tick(now_ms)
        self.requests.reading.on_tick(now_ms)
        self.wide.on_tick(now_ms)
        if self.sasl is not None:
            self.sasl.on_tick(now_ms)
        # Fetches are last. Their responses contain slices of files, which no step above may delete
        # before the slices are sent.
        if self.topics.more_readable:
            logs, self.topics.more_readable = self.topics.more_readable, []
            self.progress.try_fetches(logs, now_ms)
        if self.logs.raised:
            logs, self.logs.raised = self.logs.raised, []
            self.progress.try_fetches(logs, now_ms)
        if self.progress.risen:
            self.progress.try_risen(now_ms)
        self.purgatory.on_tick(now_ms)
        if self.shares.made is not None:
            self.shares.made.on_tick(now_ms)

    def _tick_coordinators(self, made: Coordinators, now_ms: int) -> None:
        """Handle the due timeouts of groups and transactions, and continue the transaction ends
        that are carried out in parts.
        """
        transactions, ends = made.transactions, made.transaction_ends
        deadline = made.groups.next_deadline_ms()
        if deadline is not None and deadline <= now_ms:
            made.group_runtime.on_tick(now_ms)
        deadline = transactions.next_deadline_ms()
        if deadline is not None and deadline <= now_ms:
            try:
                ends.run(transactions.on_tick(now_ms), now_ms)
            except NotWrittenError as error:
                self.unwritten.note("the timeouts of transactions", error, now_ms)
                transactions.on_tick_not_written(now_ms)
        if ends.in_parts:
            ends.on_tick(now_ms)
        if made.cuts.due_ms is not None and made.cuts.due_ms <= now_ms:
            made.cuts.on_tick(now_ms)

    def on_timer_set(self) -> None:
        """The rim has set its timer to `next_deadline_ms`, or it fires earlier."""
        self.timer_is_set, self._log_dir.has_new_work = True, False

    def next_deadline_ms(self) -> int:
        """The time at which `on_tick` next has work to do; 0 if it has work now."""
        requests, made = self.requests, self.coordinators.made
        # This runs after most requests. Nearly all queues are empty, and an empty queue costs no
        # call.
        if requests.reading.queue or (requests.work.queue and requests.work.is_ready):
            return 0
        if self.topics.configuring is not None or self.topics.more_readable:
            return 0
        if self.wide.queue:
            return 0
        if self.metadata.rewriting is not None and self.metadata.is_rewriting:
            return 0
        if made is not None and made.transaction_ends.in_parts:
            return 0
        earliest = self.logs.next_deadline_ms()
        # Each queue is compared by itself: a tuple of them would be made each time.
        if made is not None:
            at = made.groups.timers.earliest_ms
            if at is not None and at < earliest:
                earliest = at
            at = made.transactions.timers.earliest_ms
            if at is not None and at < earliest:
                earliest = at
            at = made.cuts.due_ms
            if at is not None and at < earliest:
                earliest = at
        at = self.compaction.next_deadline_ms()
        if at is not None and at < earliest:
            earliest = at
        at = self.flushes.next_deadline_ms()
        if at is not None and at < earliest:
            earliest = at
        at = self.progress.next_due_ms
        if at is not None and at < earliest:
            earliest = at
        if self.disk_space.refusals and (at := self.disk_space.next_deadline_ms()) is not None:
            earliest = min(earliest, at)
        if self.purgatory.waiting_count and (at := self.purgatory.next_deadline_ms()) is not None:
            earliest = min(earliest, at)
        if self.unwritten.calls and (at := self.unwritten.next_deadline_ms()) is not None:
            earliest = min(earliest, at)
        if self.sasl is not None and (at := self.sasl.next_deadline_ms()) is not None:
            earliest = min(earliest, at)
        shares = self.shares.made
        if shares is not None and (at := shares.next_deadline_ms()) is not None:
            earliest = min(earliest, at)
        return earliest

    def abort_transactions(self, now_ms: int) -> int:
        """Abort all open transactions, before the data directory is handed over. Gives: the number
        of transactions.
        """
        made = self.coordinators.get()
        result = made.transactions.on_abort_requested(now_ms)
        made.transaction_ends.run(result, now_ms)
        return len(result.effects)

    def close_logs(self, now_ms: int, sync: Callable[[list[Any]], None] = sync_one_by_one) -> None:
        """Stop cleanly: write all state to the disk, so that the next start has nothing to recover.

        Takes: sync, a function that fsyncs several files.
        """
        # The deferred calls and unfinished work are first, since they append to logs and change the
        # journal.
        self.on_sent(now_ms)
        self.requests.work.finish(now_ms)
        if self.coordinators.made is not None:
            self.coordinators.made.cuts.close(now_ms)
        self.topics.make_internal_files()
        try:
            self.logs.close(now_ms, sync)
        except OSError as error:
            # Record the failure, so that the next start treats this stop as a power loss.
            if may_have_lost_pages(error):
                self.logs.note_failure()
            raise
        self.metadata.close()


def _unreadable(route: Route, frame: Buffer, error: Exception) -> ProtocolViolation:
    """The error for a request whose body cannot be read."""
    if isinstance(error, TooManyElementsError):
        return ProtocolViolation(
            f"a {route.name} request of {len(frame):,} bytes has more elements in its lists than "
            "a request of its kind may have: name fewer in each request; the limits grow with "
            "barnabas.request.max.bytes"
        )
    return ProtocolViolation(f"the body of a {route.name} request cannot be read: {error}")
