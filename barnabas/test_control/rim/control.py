"""Test control of the server: faults for requests, a movable clock, and the journal of requests.

It is the server's Gate: it gets each request before the core does, and each response before the
server sends it. The core and the server are unchanged.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.rim.clocks import NS_PER_MS
from barnabas.broker.seams.gate import GatedHost
from barnabas.broker.seams.host import ClientConnection, Clock, HandleFrame
from barnabas.protocol.errors import Code
from barnabas.protocol.framing import SIZE, response_has_tagged_header
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.storage.disk import Slice
from barnabas.storage.pooled_disk import disk_below
from barnabas.test_control.faults import Action, Fault, FaultTable
from barnabas.test_control.forgetful_disk import ForgetfulDisk
from barnabas.test_control.observed import (
    ObservedRequest,
    answer_of,
    error_codes,
    observe,
    plain,
    with_fetch_session,
)
from barnabas.test_control.rim.clock import ControlledClock

logger = logging.getLogger("barnabas.control")

KEPT_REQUESTS, KEPT_BYTES = 10_000, 64 << 20
_QUIET_ROUNDS, _ROUND_S = 3, 0.002


OUTCOMES = ("under way", "answered", "answer dropped", "no answer", "connection closed")


@dataclass(slots=True)
class Exchange:
    """An entry of the journal: one request, its response, and the outcome.

    outcome: under way, answered, no answer (acks=0), answer dropped, answer cut, or connection
    closed. node_id: the id of the broker that received the request. size: the bytes of the request
    and the response in the journal; 0 after the journal has dropped them. sender: the connection's
    state in the core.
    """

    number: int
    at_ms: int
    connection: int
    client: str
    request: ObservedRequest
    frame: bytes
    faults: list[Fault]
    answer: Any = None
    errors: list[str] = field(default_factory=list)
    outcome: str = OUTCOMES[0]
    deliveries: int = 0
    size: int = 0
    node_id: int = -1
    sender: ConnectionState | None = None

    def has(self, action: Action) -> Fault | None:
        """The first fault with a given action that applies to the request."""
        return next((fault for fault in self.faults if fault.action is action), None)

    def as_values(self) -> dict[str, Any]:
        """The exchange as plain values."""
        request = self.request
        return {
            "number": self.number,
            "at_ms": self.at_ms,
            "connection": self.connection,
            "broker": self.node_id,
            "client": self.client,
            "client_id": request.client_id,
            "api": request.api.name,
            "version": request.version,
            "request": plain(request.body),
            "answer": plain(self.answer),
            "errors": self.errors,
            "outcome": self.outcome,
            "deliveries": self.deliveries,
            "faults": [fault.number for fault in self.faults],
        }


class Journal:
    """The last requests with their responses. Their number and their bytes are limited."""

    def __init__(self, most: int = KEPT_REQUESTS, most_bytes: int = KEPT_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._exchanges: deque[Exchange] = deque()
        self._bytes = 0

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self._exchanges)

    def add(self, exchange: Exchange) -> None:
        """Add a request."""
        self._exchanges.append(exchange)
        exchange.size = len(exchange.frame)
        self._bytes += exchange.size
        self._drop_earlier()

    def on_answer(self, exchange: Exchange, size: int) -> None:
        """Add the size of a response to the journal, if the journal still has its request."""
        if exchange.size:
            exchange.size += size
            self._bytes += size
            self._drop_earlier()

    def clear(self) -> None:
        """Remove all requests."""
        while self._exchanges:
            self._drop_first()

    def _drop_earlier(self) -> None:
        """Drop the oldest requests beyond the bounds; the last request stays even if it is larger
        than the bound.
        """
        while len(self._exchanges) > self._most or (
            self._bytes > self._most_bytes and len(self._exchanges) > 1
        ):
            self._drop_first()

    def _drop_first(self) -> None:
        first = self._exchanges.popleft()
        self._bytes -= first.size
        first.size = 0


class LateConnection:
    """Takes the place of a connection that the client has closed, until a late request is done.

    Without an open connection the core would drop the unfinished work of the request, such as the
    decoding of a large request in a thread.
    """

    def __init__(self, server: GatedHost, exchange: Exchange) -> None:
        self._server = server
        self.connection_id, self.peer = exchange.connection, exchange.client
        # the attributes of a connection that the server reads while it handles a request
        self.in_flight, self.closed, self.is_held = True, False, False
        self.has_stirred = True

    def send(self, pieces: Any) -> None:
        """Drop the response, since the client has disconnected."""

    def hold(self) -> None:
        """Do nothing, since no further request is read."""

    def release(self) -> None:
        """Do nothing, as in `hold`."""

    def wake(self) -> None:
        """Disconnect. Called after the response, when the request is done."""
        self._server.disconnect(self, None)

    def quiet_sweeps(self) -> int:
        """The number of sweeps without traffic. It is 0, since this connection never counts as
        idle.
        """
        return 0

    def takes_turns_of(self, turns: object) -> bool:
        """Whether its received bytes count with those of another connection. False, since it
        receives nothing.
        """
        return False

    def socket_option(self, level: int, option: int, size: int) -> bytes:
        """A socket option. Raises: OSError, since this connection has no socket."""
        raise OSError(errno.ENOTCONN, "its client closed the connection")

    def close(self) -> None:
        """Mark the connection as closed. It has no socket."""
        self.closed = True


class Control:
    """The commands of a test. All methods have to be called in the loop's thread.

    server: set after the server is made. _exchanges: the current request of each connection.
    """

    server: GatedHost
    silence: Callable[[], str | None] | None = None

    def __init__(self, clock: ControlledClock) -> None:
        self.clock = clock
        self.faults = FaultTable()
        self.journal = Journal()
        self._next_number = 1
        self._exchanges: dict[int, Exchange] = {}
        self._held: dict[int, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._refuses = False

    def server_clock(self) -> Clock:
        """The clock that the server uses."""
        clock = self.clock
        return Clock(
            lambda: clock.steady_ms() * NS_PER_MS,
            lambda: clock.wall_ms() * NS_PER_MS,
        )

    def around(self, server: GatedHost, handle: HandleFrame) -> HandleFrame:
        """Wrap the server's handling of requests.

        Gives: the function that gets each request before the core does.
        """
        self.server, self._handle = server, handle
        return self._on_frame

    def start(self) -> None:
        """Do nothing, since the endpoint calls the commands."""

    # --- requests --------------------------------------------------------------------------------

    def _on_frame(self, connection_id: int, frame: memoryview, now_ms: int) -> None:
        if self.server.is_closed:
            return  # after a simulated power loss; the process is about to end
        connection = self.server.connection(connection_id)
        assert connection is not None
        copy = bytes(frame)  # the next request will overwrite the frame's memory
        request = observe(memoryview(copy))
        if request is None:
            self._exchanges.pop(connection_id, None)
            self._handle(connection_id, frame, now_ms)
            return
        sender = self.server.state.connection(connection_id)
        node_id = sender.node_id
        request = self._with_names(request, node_id)
        exchange = Exchange(
            self._next_number, self.clock.wall_ms(), connection_id, connection.peer, request,
            copy, self.faults.met_by(request, connection_id),
            node_id=node_id, sender=sender,
        )  # fmt: skip
        self._next_number += 1
        self.journal.add(exchange)
        if exchange.faults and request.body is not None:
            self._exchanges[connection_id] = exchange
            # The request counts as held from now on, since the fault may be removed before
            # `_meet` runs.
            released = None
            if hold := exchange.has(Action.HOLD):
                released = self._held.setdefault(hold.number, asyncio.Event())
            self._start(self._meet(connection, exchange, released))
        else:
            exchange.faults.clear()
            self._hand_on(connection, exchange, frame, now_ms)

    def _with_names(self, request: ObservedRequest, node_id: int) -> ObservedRequest:
        """A request with the names of the topics whose ids it contains. A Fetch also gets the
        topics of its session.
        """
        if isinstance(request.body, FetchRequest) and request.body.session_epoch > 0:
            remembered = self.server.state.fetch_session(node_id, request.body.session_id)
            request = with_fetch_session(request, remembered)
        by_id = self.server.state.topic_names()
        return request._replace(
            topics={by_id.get(name, name): rows for name, rows in request.topics.items()}
        )

    def _start(self, steps: Coroutine[Any, Any, None]) -> None:
        task = self.server.loop.create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _meet(
        self,
        connection: ClientConnection,
        exchange: Exchange,
        released: asyncio.Event | None,
    ) -> None:
        """Apply the faults of a request, and pass it on unless a fault prevents that."""
        if delay := exchange.has(Action.DELAY):
            await asyncio.sleep(delay.ms / 1000)
        if released is not None:
            await released.wait()
        if exchange.has(Action.CLOSE_BEFORE) or (connection.closed and exchange.has(Action.ERROR)):
            self._end(connection, exchange)
        elif error := exchange.has(Action.ERROR):
            assert error.code is not None
            self._refuse(connection, exchange, error.code)
        else:
            self.deliver(connection, exchange)

    def _refuse(self, connection: ClientConnection, exchange: Exchange, code: Code) -> None:
        """Answer a request with an error code, without passing the request to the broker."""
        request = exchange.request
        frame = bytearray(SIZE.size) + SIZE.pack(request.correlation_id)
        if response_has_tagged_header(request.api, request.version):
            frame.append(0)
        assert request.body is not None
        request.body.error_response(request.version, code).write(frame, request.version)
        SIZE.pack_into(frame, 0, len(frame) - SIZE.size)
        connection.in_flight = False
        self.send(connection, [bytes(frame)])
        connection.wake()

    def deliver(self, connection: ClientConnection, exchange: Exchange) -> None:
        """Pass a request on to the broker. Called after a delay, or for the second time."""
        if self.server.is_closed:
            return
        try:
            frame = memoryview(bytearray(exchange.frame))
            if connection.closed:
                self._deliver_late(exchange, frame)
                return
            self._hand_on(connection, exchange, frame, self.server.now_ms())
        except Exception as error:
            self.server.on_request_failed(connection, error)
        self.server.carry_out()

    def _deliver_late(self, exchange: Exchange, frame: memoryview) -> None:
        """Handle a request whose client has disconnected since the request arrived.

        The response is dropped. The request keeps the number of its own connection, which only the
        core still has. With a later number it would count as a request of its producer's newest
        connection. Its principal and its listener are those of the closed connection.
        """
        assert exchange.sender is not None
        late = LateConnection(self.server, exchange)
        self.server.put_connection(late, exchange.sender)
        exchange.deliveries += 1
        try:
            self._handle(exchange.connection, frame, self.server.now_ms())
        except BaseException:
            self.server.disconnect(late, None)
            raise
        self.server.carry_out()

    def _hand_on(
        self,
        connection: ClientConnection,
        exchange: Exchange,
        frame: memoryview,
        now_ms: int,
    ) -> None:
        """Pass a request to the core. A Produce with acks=0 has no answer, so the fault TWICE is
        handled here and not in `send`.
        """
        exchange.deliveries += 1
        self._exchanges[connection.connection_id] = exchange
        if getattr(exchange.request.body, "acks", None) == 0:
            exchange.outcome = "no answer"
            del self._exchanges[connection.connection_id]
            if exchange.has(Action.TWICE) and exchange.deliveries == 1:
                self.server.loop.call_soon(self._deliver_again, connection, exchange)
        self._handle(connection.connection_id, frame, now_ms)

    def _deliver_again(self, connection: ClientConnection, exchange: Exchange) -> None:
        """Pass a request without a response (acks=0) to the broker for the second time. This waits
        until the first handling is done, since the request may be parked.
        """
        if connection.closed:
            return
        if connection.in_flight:
            self.server.loop.call_later(_ROUND_S, self._deliver_again, connection, exchange)
            return
        connection.in_flight = True
        self.deliver(connection, exchange)

    def _end(self, connection: ClientConnection, exchange: Exchange) -> None:
        exchange.outcome = "connection closed"
        self.server.disconnect(connection, None)

    def on_closing(self, connection: ClientConnection) -> None:
        """A connection is about to close, so its current request gets no response."""
        exchange = self._exchanges.pop(connection.connection_id, None)
        if exchange is not None and exchange.outcome == "under way":
            exchange.outcome = "connection closed"

    # --- answers ---------------------------------------------------------------------------------

    def send(self, connection: ClientConnection, pieces: Any) -> None:
        """Send a response, changed by the faults of its request."""
        exchange = self._exchanges.pop(connection.connection_id, None)
        connection.is_held = False
        if exchange is None:
            connection.send(pieces)
            return
        frame = _whole(pieces)
        exchange.answer = answer_of(exchange.request, frame)
        exchange.errors = error_codes(exchange.answer)
        self.journal.on_answer(exchange, len(frame))
        if exchange.has(Action.TWICE) and exchange.deliveries == 1:
            self._exchanges[connection.connection_id] = exchange
            connection.hold()
            self.server.loop.call_soon(self.deliver, connection, exchange)
        elif delay := exchange.has(Action.DELAY_ANSWER):
            connection.hold()
            self.server.loop.call_later(
                delay.ms / 1000, self._send_later, connection, exchange, frame
            )
        else:
            self._send_or_not(connection, exchange, frame)

    def _send_later(self, connection: ClientConnection, exchange: Exchange, frame: bytes) -> None:
        """Send an answer after the delay of a fault, unless the connection was closed meanwhile."""
        if not connection.closed:
            connection.release()
            self._send_or_not(connection, exchange, frame)
            connection.wake()
        else:
            exchange.outcome = "connection closed"

    def _send_or_not(self, connection: ClientConnection, exchange: Exchange, frame: bytes) -> None:
        """Send an answer, or drop or cut it, or close the connection, as the faults of its request
        say.
        """
        if exchange.has(Action.DROP_ANSWER):
            exchange.outcome = "answer dropped"
        elif exchange.has(Action.CLOSE_AFTER):
            self._close_soon(connection, exchange)
        elif exchange.has(Action.CUT):
            connection.send([frame[: len(frame) // 2]])
            self._close_soon(connection, exchange, "answer cut")
        else:
            exchange.outcome = "answered"
            connection.send([frame])

    def _close_soon(
        self, connection: ClientConnection, exchange: Exchange, outcome: str = "connection closed"
    ) -> None:
        """Close the connection after this event; no more data are read from it."""
        exchange.outcome = outcome
        connection.in_flight = True
        self.server.loop.call_soon(self.server.disconnect, connection, None)

    # --- faults ----------------------------------------------------------------------------------

    def add_fault(self, fault: Fault) -> Fault:
        """Add a fault."""
        return self.faults.add(fault)

    def remove_fault(self, number: int) -> Fault:
        """Remove a fault, and release the requests that it holds. Raises: KeyError."""
        fault = self.faults.remove(number)
        self.release(number)
        return fault

    def remove_all_faults(self) -> list[Fault]:
        """Remove all faults, and release the requests that they hold."""
        faults = self.faults.clear()
        for fault in faults:
            self.release(fault.number)
        return faults

    def release(self, number: int) -> None:
        """Release the requests that a fault holds. The fault holds later requests again."""
        released = self._held.pop(number, None)
        if released is not None:
            released.set()

    # --- connections -----------------------------------------------------------------------------

    def close_connections(self, client_id: str | None = None) -> int:
        """Close all connections, or those whose last request had the given client id.

        Gives: the number of closed connections.
        """
        last = {exchange.connection: exchange.request.client_id for exchange in self.journal}
        chosen = [
            connection
            for connection in self.server.connections()
            if not isinstance(connection, LateConnection)
            if client_id is None or last.get(connection.connection_id) == client_id
        ]
        for connection in chosen:
            self.server.disconnect(connection, None)
        return len(chosen)

    def connection_values(self) -> list[dict[str, Any]]:
        """The open connections, as plain values. client_id is the one in the connection's last
        request.
        """
        last = {exchange.connection: exchange.request.client_id for exchange in self.journal}
        return [
            {
                "connection": connection.connection_id,
                "client": connection.peer,
                "client_id": last.get(connection.connection_id),
            }
            for connection in self.server.connections()
            if not isinstance(connection, LateConnection)
        ]

    def refuse_connections(self, refuse: bool) -> None:
        """Refuse new connections, like a port without a listener, or accept them again."""
        if refuse == self._refuses:
            return
        ports = self.server.nodes.ports
        for node_id in self.server.nodes.ids_there:
            if refuse:
                ports.close_listener(node_id)
            else:  # The listener stays closed if another process has taken the port since.
                ports.open_listener(node_id)
        self._refuses = refuse

    # --- several brokers -------------------------------------------------------------------------

    def change(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function that changes the running brokers or the leaders, and carry out the
        effects.

        Raises: ValueError if the change is impossible.
        """
        call(*arguments)
        self.server.carry_out()

    def take_away(self, node_id: int) -> None:
        """Stop a broker. Its port and its connections are closed. Raises: ValueError."""
        self.change(self.server.nodes.take_away, node_id, self.server.now_ms())
        self.server.nodes.ports.close_listener(node_id)

    def give_back(self, node_id: int) -> None:
        """Start a stopped broker again, at its old port.

        Raises: ValueError; OSError if another process has taken the port.
        """
        self.server.nodes.require(node_id)
        if not self._refuses:
            self.server.nodes.ports.open_listener(node_id)
        self.change(self.server.nodes.give_back, node_id, self.server.now_ms())

    def broker_values(self) -> list[dict[str, Any]]:
        """The brokers, and the partitions that each leads, as plain values."""
        nodes = self.server.nodes
        rows = []
        for node_id in nodes.ids:
            host, port = nodes.ports.listener_of(node_id).address
            leads = {
                name: indexes
                for name in self.server.state.topic_names().values()
                if (
                    indexes := [
                        index
                        for index, leader in enumerate(nodes.leaders(name))
                        if leader == node_id
                    ]
                )
            }
            rows.append(
                {
                    "id": node_id,
                    "host": host,
                    "port": port,
                    "is_there": node_id in nodes.ids_there,
                    "is_controller": node_id == nodes.controller_id,
                    "leads": leads,
                }
            )
        return rows

    # --- time ------------------------------------------------------------------------------------

    async def advance(self, by_ms: int) -> None:
        """Move the time forward, and wait until all work that is due is done and flushed."""
        self.clock.advance(by_ms)
        self._say_time()
        self.server.tick()
        await self._until_quiet()

    def set_frozen(self, freeze: bool) -> None:
        """Freeze the clock, or let it run again."""
        if freeze:
            self.clock.freeze()
        else:
            self.clock.unfreeze()
        self._say_time()
        self.server.reset_timer()

    def _say_time(self) -> None:
        """Log how far the clock is ahead, for a test that restarts the broker after a kill."""
        logger.info("the test's clock is %d ms ahead of the machine's", self.clock.ahead_ms)

    async def _until_quiet(self) -> None:
        """Wait until, several times in a row, nothing is due and no flush runs."""
        quiet = 0
        while quiet < _QUIET_ROUNDS and not self.server.failed:
            self.server.reset_timer()
            await asyncio.sleep(_ROUND_S)
            quiet = quiet + 1 if self.server.is_quiet else 0

    # --- power -----------------------------------------------------------------------------------

    def lose_power(self) -> None:
        """Lose all unflushed data and, a moment later, end the process as in a crash.

        Raises: ValueError if the disk cannot simulate a power loss.
        """
        disk = disk_below(self.server.state.disk)
        if not isinstance(disk, ForgetfulDisk):
            raise ValueError(
                "this broker's disk does not record what was flushed: start it with --test-control"
            )
        self.server.is_closed = True  # from now on no response is sent and no data are written
        disk.lose_power()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()

    # --- end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Pass on no further requests."""
        for task in self._tasks:
            task.cancel()


def _whole(pieces: Sequence[Any]) -> bytes:
    """The bytes of a response. Slices are read from their files."""
    return b"".join(
        piece.file.pread(piece.size, piece.position) if type(piece) is Slice else bytes(piece)
        for piece in pieces
    )
