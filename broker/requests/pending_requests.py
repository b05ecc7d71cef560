"""The unanswered requests: parks them, and sends their responses later.

A handler that has its response returns it. A handler that has to wait parks the request first,
returns PARKED, and sends the response later with `Requests.reply`. Long work is done in slices, or
by the worker. A layer around the handler (authorization, quotas) may amend a response before it is
sent.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.logs.purgatory import Purgatory, WaitingFetch
from barnabas.broker.logs.waiting_memory import WITHOUT_WAIT_MS
from barnabas.broker.observation.error_counts import ErrorCounts
from barnabas.broker.outbox import (
    NO_CONNECTION,
    PARKED,
    Answer,
    CloseReason,
    DeadlineKept,
    Encoded,
    Outbox,
    Parked,
    Work,
)
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.requests.large_requests import LargeRequests
from barnabas.broker.requests.without_space import refusing
from barnabas.broker.slices import Pieces, SlicedWork, Slices
from barnabas.protocol.api_table import BY_KEY, RESPONSE_TAGGED_FROM
from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.hot_responses import Piece
from barnabas.protocol.message_classes import message_class
from barnabas.protocol.messages.message import Message
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.exception_guard import contain
from barnabas.storage.files.segment_files import CorruptLog

FRAME = struct.Struct(">ii")
"""The size of a response frame, and the correlation id."""
_TAGGED = struct.Struct(">iib")  # with the header's empty tagged fields: one byte, 0
_FRAME_TAGGED = _TAGGED.size


class Requests:
    """The requests under way, by ticket, and their responses.

    These are the parked requests, the fetches that wait in the purgatory, the amendments of
    responses, and the parts of wide requests. work: the work in slices that changes state. reading:
    the work in slices that does not. large: the larger requests. errors: counts the error codes in
    responses; None if they are not counted. encoders: by API key, what encodes its responses, if it
    is not their `write`. next_ticket: the ticket of the next request, or of the next part of one.

    Takes: quotas, which record the cost of a response and throttle its client.
    """

    def __init__(
        self,
        connections: Mapping[int, ConnectionState],
        outbox: Outbox,
        purgatory: Purgatory,
        quotas: Quotas,
    ) -> None:
        self._connections, self._outbox = connections, outbox
        self._purgatory, self._quotas = purgatory, quotas
        self._parked: dict[int, RequestContext] = {}
        self._waiting_fetches: dict[int, WaitingFetch] = {}
        self._with_records: dict[int, Message] = {}
        # the connections of work that is done although its client has hung up, by ticket
        self._left_behind: dict[int, int] = {}
        # for each part of a wide request, by ticket: a function that is called with the response to
        # the part
        self._takers: dict[int, Callable[[Message], None]] = {}
        self._amendments: dict[int, Callable[[Any], None]] = {}
        self.large = LargeRequests(connections, outbox)
        self.next_ticket = 1
        self.errors: ErrorCounts | None = None
        self.encoders: dict[int, Callable[[Any, int], bytes]] = {}
        self.work = SlicedWork(self._on_sliced, self.on_failed)
        self.reading = SlicedWork(self._encode_elsewhere, self.on_failed, only_reads=True)
        purgatory.on_failed = self._on_fetch_failed

    # --- now or later ----------------------------------------------------------------------------

    def park(self, context: RequestContext, *, keeps_request: bool = False) -> None:
        """Park the current request, before its handler returns PARKED. From now on `reply` sends
        the response to it.

        Takes: keeps_request, whether the request's lists are still needed, so that they stay in
               memory.
        """
        self._parked[context.ticket] = context
        self._connections[context.connection_id].parked_ticket = context.ticket
        if keeps_request:
            self.large.keep(context.connection_id, context.request_bytes)
        elif (self.large.held or self.large.objects) and context.ticket not in self._takers:
            self.large.end(context.connection_id)

    def park_with_records(
        self, context: RequestContext, request: Message, size_bytes: int
    ) -> Callable[[], Message | None]:
        """Park a request whose records stay in memory, and count these until its response.

        Gives: a function that returns the request, or None if its client has hung up. It is then
               not in memory any more.
        """
        self._parked[context.ticket] = context
        self._connections[context.connection_id].parked_ticket = context.ticket
        self.large.hold(context.connection_id, size_bytes)
        self._with_records[context.ticket] = request
        return lambda: self._with_records.pop(context.ticket, None)

    def try_park_fetch(
        self, context: RequestContext, fetch: WaitingFetch, deadline_ms: int
    ) -> bool:
        """Park a fetch in the purgatory, if there is memory for it. Gives: whether it waits; if
        not, the handler answers it, see `throttle_without_wait`.
        """
        connection = self._connections[context.connection_id]
        fetch.owner = connection.owner
        if connection.has_hung_up or not self._purgatory.try_park(fetch, deadline_ms):
            return False
        self.park(context)
        self._waiting_fetches[context.ticket] = fetch
        return True

    def end_waiting_fetch(self, ticket: int, now_ms: int) -> None:
        """Answer a fetch that waits, as if its time were over. Other requests go on."""
        fetch = self._waiting_fetches.get(ticket)
        if fetch is not None:
            self._purgatory.time_out(fetch, now_ms)

    def throttle_without_wait(self, context: RequestContext) -> int:
        """Throttle the client of a fetch that may not wait. Gives: for how long, in ms, for the
        response.
        """
        self._outbox.mutes.append((context.connection_id, WITHOUT_WAIT_MS))
        return WITHOUT_WAIT_MS

    def is_parked(self, ticket: int) -> bool:
        """Whether a request is parked and has no response yet."""
        return ticket in self._parked

    def end_wait(self, context: RequestContext) -> None:
        """Take a fetch out of the purgatory. The response to it is sent later."""
        fetch = self._waiting_fetches.pop(context.ticket, None)
        if fetch is not None:
            self._purgatory.cancel(fetch)

    def is_waited_for(self, context: RequestContext) -> bool:
        """Whether the client of a parked request is still connected."""
        return context.connection_id in self._connections

    def reply(self, ticket: int, response: Message | Encoded) -> None:
        """Send the response to a request, by its ticket. The request is parked, or is the current
        one (if this is called within its handler).
        """
        context = self._parked.pop(ticket, None)
        if context is None:
            return  # the request's connection is closed
        if self._takers and ticket in self._takers:
            assert isinstance(response, Message), "answers to parts are messages"
            self.reply_to_part(context, response)
            return
        connection = self._connections[context.connection_id]
        connection.parked_ticket = -1
        self._waiting_fetches.pop(ticket, None)
        if self._amendments and isinstance(response, Encoded):
            response = self.amendable(context, response)
        pieces: Sequence[Piece]
        if isinstance(response, Encoded):
            quotas = self._quotas.clients
            if quotas is not None:
                response = quotas.on_encoded(context, response)
            pieces = response
        else:
            pieces = self.encode(context, response)
        connection.in_flight = False  # `answer`, inlined
        if self.large.held or self.large.objects:
            self.large.end(context.connection_id)
        self._outbox.sends.append((context.connection_id, pieces))

    def answer(self, connection_id: int, pieces: Sequence[Piece]) -> None:
        """Send the encoded response to a connection's request."""
        self._connections[connection_id].in_flight = False
        if self.large.held or self.large.objects:
            self.large.end(connection_id)
        self._outbox.sends.append((connection_id, pieces))

    def with_deadline_kept(self, context: RequestContext, response: Message) -> Message | Encoded:
        """The response of a handler after which no part of the core has earlier work than before.
        It is encoded now, unless it is a part of one, or quotas may delay it.
        """
        if self._quotas.clients is not None or context.ticket in self._takers:
            return response
        return DeadlineKept(self.encode(context, response))

    def encode(self, context: RequestContext, response: Message) -> tuple[bytes | bytearray]:
        """The whole frame of the response to a request."""
        quotas = self._quotas.clients
        if quotas is not None:
            quotas.on_response(context, response)
        if self._amendments and (amendment := self._amendments.pop(context.ticket, None)):
            amendment(response)
        if self.errors is not None:
            self.errors.count_in(context.api_key, response)
        version, key = context.api_version, context.api_key
        is_tagged = version >= RESPONSE_TAGGED_FROM[key]
        if key in self.encoders:
            body = self.encoders[key](response, version)
            if is_tagged:
                return (_TAGGED.pack(5 + len(body), context.correlation_id, 0) + body,)
            return (FRAME.pack(4 + len(body), context.correlation_id) + body,)
        out = bytearray(_FRAME_TAGGED if is_tagged else FRAME.size)
        response.write(out, version)
        FRAME.pack_into(out, 0, len(out) - 4, context.correlation_id)
        return (out,)

    # --- in slices, and by the worker ------------------------------------------------------------

    def answer_in_slices(self, request: Message, context: RequestContext, work: Slices) -> Answer:
        """Run the work. Gives: its response if the work ends at once; otherwise PARKED. If there is
        no disk space for the work, the request is refused.
        """
        response: Answer
        work = refusing(work, request, context)
        is_done, response = self.work.begin(context.ticket, work, context.now_ms)
        if is_done:
            return response
        self.park(context, keeps_request=True)
        return PARKED

    def park_and_run(self, context: RequestContext, work: Slices) -> Parked:
        """Park a request and run the work in slices. The work calls `reply` itself."""
        self.park(context, keeps_request=True)
        self.work.begin(context.ticket, work, context.now_ms)
        return PARKED

    def _on_sliced(self, ticket: int, answer: Answer) -> None:
        if self._left_behind and ticket in self._left_behind:
            self.large.end(self._left_behind.pop(ticket))
        if isinstance(answer, Message | Encoded):
            self.reply(ticket, answer)

    def read_in_slices(self, context: RequestContext, work: Slices) -> Answer:
        """Run work that only reads. Gives: its response if the work ends at once. Otherwise PARKED,
        and the worker encodes the response, since it is long.

        Takes: work, which returns a message, or `Pieces`.
        """
        is_done, response = self.reading.begin(context.ticket, work, context.now_ms)
        if is_done:
            return Encoded(response()) if callable(response) else cast(Message, response)
        self.park(context, keeps_request=True)
        return PARKED

    def reply_in_slices(self, context: RequestContext, work: Slices) -> None:
        """Make the response to a parked request in slices, and send it, unless its connection has
        closed. Takes: as `read_in_slices`.
        """
        if not self.is_parked(context.ticket):
            return
        response = self.read_in_slices(context, work)
        if isinstance(response, Message | Encoded):
            self.reply(context.ticket, response)

    def run_elsewhere(
        self,
        context: RequestContext,
        run: Callable[[], Any],
        done: Callable[[Any, int], None],
        held_bytes: int = 0,
    ) -> None:
        """Let the worker do a long computation for a request; `Work` describes the parameters."""
        self._outbox.work.append(Work(context.connection_id, run, done, held_bytes))

    def run_in_background(self, run: Callable[[], Any], done: Callable[[Any, int], None]) -> None:
        """Let the worker do a long computation for which no request waits."""
        self._outbox.work.append(Work(NO_CONNECTION, run, done))

    def _encode_elsewhere(self, ticket: int, response: Message | Pieces) -> None:
        """Let the worker encode the long response to a parked request."""
        # The response to a part of a request is encoded together with the responses to the other
        # parts.
        if ticket in self._takers:
            self.reply(ticket, cast(Message, response))
            return
        context = self._parked.get(ticket)
        if context is None:
            return
        if callable(response) and ticket in self._amendments:
            self.reply(ticket, Encoded(response()))  # `reply` applies the amendment
            return
        if callable(response):
            encode, is_counted = response, True
        else:
            quotas = self._quotas.clients
            if quotas is not None:
                quotas.on_response(context, response)
            if (amendment := self._amendments.pop(ticket, None)) is not None:
                amendment(response)
            encode, is_counted = functools.partial(_frame_of, context, response), False

        def run() -> tuple[Sequence[Piece], ErrorCounts | None]:
            if callable(response) or self.errors is None:
                return encode(), None
            counts = type(self.errors)()  # new ones, since the worker's thread counts here
            counts.count_in(context.api_key, response)
            return encode(), counts

        def done(result: tuple[Sequence[Piece], ErrorCounts | None], now_ms: int) -> None:
            pieces, counts = result
            if self._parked.pop(ticket, None) is None:
                return
            self._connections[context.connection_id].parked_ticket = -1
            if counts is not None and self.errors is not None:
                self.errors.add(counts)
            encoded = Encoded(pieces)
            quotas = self._quotas.clients
            if is_counted and quotas is not None:
                encoded = quotas.on_encoded(context, encoded)
            self.answer(context.connection_id, encoded)

        self.run_elsewhere(context, run, done)

    # --- amendments ------------------------------------------------------------------------------

    def amend(self, ticket: int, amendment: Callable[[Any], None]) -> None:
        """Register a change of a request's response. It is applied after earlier amendments, before
        the response is sent.
        """
        earlier = self._amendments.get(ticket)
        if earlier is None:
            self._amendments[ticket] = amendment
            return

        def both(response: Any) -> None:
            earlier(response)
            amendment(response)

        self._amendments[ticket] = both

    def amendable(self, context: RequestContext, response: Encoded) -> Message | Encoded:
        """An encoded response. If it has to be amended, it is decoded again; otherwise it is
        unchanged.
        """
        if context.ticket not in self._amendments:
            return response
        if not response:
            del self._amendments[context.ticket]  # there is no response to change
            return response
        api = BY_KEY[context.api_key]
        is_tagged = context.api_version >= RESPONSE_TAGGED_FROM[api.key]
        frame = b"".join(cast(Sequence[bytes], response))
        start = _FRAME_TAGGED if is_tagged else FRAME.size
        return message_class(api, "Response").read(frame, start, context.api_version)[0]

    # --- parts of wide requests ------------------------------------------------------------------

    def new_part(self, take: Callable[[Message], None]) -> int:
        """The ticket of a new part of a request. `take` is called with the response to the part."""
        ticket = self.next_ticket
        self.next_ticket = ticket + 1
        self._takers[ticket] = take
        return ticket

    def reply_to_part(self, context: RequestContext, response: Message) -> None:
        """Pass on the response to a part of a request. The client gets one response to all
        parts.
        """
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
        self.reading.drop(ticket)
        self._takers.pop(ticket, None)
        self._parked.pop(ticket, None)
        self._amendments.pop(ticket, None)

    # --- connections that end --------------------------------------------------------------------

    def close(self, connection_id: int, reason: CloseReason) -> None:
        """End a connection, with a line in the log."""
        self._outbox.closes.append((connection_id, reason))

    def give_up(self, connection_id: int, error: Exception) -> None:
        """End a connection whose request caused an error in the broker, if it is open. Raises: the
        error if it ends the process.
        """
        connection = self._connections.get(connection_id)
        client = "a client" if connection is None else connection.client_host.removeprefix("/")
        contain(error, f"a request of {client}")
        if connection is not None:
            self.close(connection_id, failure(error))

    def fail(self, ticket: int, connection_id: int, error: Exception) -> None:
        """End the connection of an unanswered request that caused an error in the broker. Raises:
        the error if it ends the process.
        """
        self._amendments.pop(ticket, None)
        self.give_up(connection_id, error)

    def go_on(self, context: RequestContext, step: Callable[[], None]) -> None:
        """Continue a parked request outside of its own event. An exception ends its connection."""
        try:
            step()
        except ProtocolViolation as error:
            self.refuse(context.ticket, context.connection_id, error)
        except Exception as error:
            self.fail(context.ticket, context.connection_id, error)

    def on_failed(self, ticket: int, error: Exception) -> None:
        """A step of a request has failed: end its connection, if the request still waits. Raises:
        the error if it ends the process.
        """
        context = self._parked.get(ticket)
        if context is None:
            contain(error, "a step for which no request waits")
        else:
            self.fail(ticket, context.connection_id, error)

    def _on_fetch_failed(self, fetch: WaitingFetch, error: Exception) -> None:
        """An attempt at a waiting fetch has failed: end its connection."""
        for ticket, waiting in self._waiting_fetches.items():
            if waiting is fetch:
                self.on_failed(ticket, error)
                return
        contain(error, "a waiting fetch")

    def refuse(self, ticket: int, connection_id: int, reason: CloseReason) -> None:
        """End the connection of an unanswered request."""
        self._amendments.pop(ticket, None)
        self.close(connection_id, reason)

    def on_closed(self, ticket: int, connection_id: int) -> None:
        """Finish a parked request without a response, since its connection is closed. As in Apache
        Kafka, work that changes something is still done; until then its request is counted.
        """
        self._parked.pop(ticket, None)
        self._with_records.pop(ticket, None)
        self.reading.drop(ticket)
        if ticket in self.work.queue:
            self._left_behind[ticket] = connection_id
        else:
            self.large.end(connection_id)
        self._amendments.pop(ticket, None)
        fetch = self._waiting_fetches.pop(ticket, None)
        if fetch is not None:
            fetch.on_closed()
            self._purgatory.cancel(fetch)


def failure(error: Exception) -> str:
    """Why the connection of a request that failed with this error is closed."""
    if isinstance(error, CorruptLog):
        return f"a file of a partition is damaged: {error}"
    return f"an error in the broker: {error!r}; please report it"


def _frame_of(context: RequestContext, response: Message) -> tuple[bytearray]:
    """The whole frame of a response. `Requests.encode` repeats this code to save a call."""
    is_tagged = context.api_version >= RESPONSE_TAGGED_FROM[context.api_key]
    out = bytearray(_FRAME_TAGGED if is_tagged else FRAME.size)
    response.write(out, context.api_version)
    FRAME.pack_into(out, 0, len(out) - 4, context.correlation_id)
    return (out,)
