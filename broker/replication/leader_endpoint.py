"""The rim of a leader: the port where its standby connects, and answers that wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any, cast

from barnabas.broker.core import Broker
from barnabas.broker.replication.held_answers import HeldAnswers
from barnabas.broker.replication.leading import Leading, ReplicationSettings, State
from barnabas.broker.replication.replicated_disk import ReplicatedDisk
from barnabas.broker.replication.standby_feed import StandbyFeed
from barnabas.broker.replication.steps_of_end import Until, steps_of_end
from barnabas.broker.replication.wire import NONCE_BYTES, WireError, frame
from barnabas.broker.server import Connection, Server

logger = logging.getLogger("barnabas.replication")

TICK_PARTS = 10  # of the time-out
SENDS_REST_S = 3.0
REFUSED_S, MOST_REFUSED = 1.0, 8


class ReplicatedConnection(Connection):
    """A connection whose answers may wait for the standby. waits: one does; the next request is
    taken after it.
    """

    __slots__ = ("waits",)

    def __init__(self, *arguments: Any) -> None:
        self.waits = False
        super().__init__(*arguments)

    def unmute(self) -> None:
        """The client's quota lets it go on: so it does, unless an answer waits."""
        if not self.waits:
            super().unmute()

    def send(self, pieces: Any) -> None:
        """Send an answer once the standby has what was done before it."""
        cast(ReplicatedServer, self._server).send_when_applied(self, pieces)

    def send_now(self, pieces: Any) -> None:
        """The standby has it."""
        super().send(pieces)


class ReplicatedServer(Server):
    """A server whose broker's disk is followed by a standby. is_deposed: another node leads.

    Holds: answers that wait.
    """

    connection_class = ReplicatedConnection
    is_deposed = False

    def __init__(
        self,
        broker: Broker,
        sock: Any,
        loop: asyncio.AbstractEventLoop,
        endpoint_socket: socket.socket,
    ) -> None:
        disk, config = broker.logs.disk, broker.config
        assert isinstance(disk, ReplicatedDisk), "a disk that nobody can follow"
        settings = ReplicationSettings(
            config.barnabas_replication_mode == "sync",
            config.barnabas_replication_alone,
            config.barnabas_replication_timeout_ms,
            config.barnabas_replication_secret or "",
        )
        self.data_dir: str = config.data_dir
        self.catch_up_rate: int = config.barnabas_replication_catch_up_bytes_per_second
        self.leading = self._new_leading(disk, settings)
        self._held: HeldAnswers[tuple[ReplicatedConnection, Any]] = HeldAnswers(self._may_go_out)
        self.endpoint = _Endpoint(self, disk, endpoint_socket, loop)
        super().__init__(broker, sock, loop)

    @property
    def replication_address(self) -> tuple[str, int]:
        """Where the standby connects."""
        return self.endpoint.address

    @property
    def waiting_count(self) -> int:
        """How many answers wait."""
        return len(self._held)

    def _new_leading(self, disk: ReplicatedDisk, settings: ReplicationSettings) -> Leading:
        return Leading(disk, self.data_dir, settings, self._release)

    def _may_go_out(self, position: int) -> bool:
        """Whether an answer that was ready at this position need not wait any more."""
        return self.leading.is_applied(position)

    def send_when_applied(self, connection: ReplicatedConnection, pieces: Any) -> None:
        """Send an answer, now or later; the connection's next request waits for it."""
        if self._held.holds(self.leading.position, (connection, pieces)):
            connection.in_flight = connection.waits = True
        else:
            connection.send_now(pieces)

    def _release(self) -> None:
        """Send the answers that need not wait any more."""
        for connection, pieces in self._held.released():
            if not connection.closed:
                connection.waits = False
                connection.in_flight = self.is_muted(connection.connection_id)
                connection.send_now(pieces)
                connection.wake()

    def close(self) -> None:
        """Stop; the standby gets what is written until then (`send_rest`)."""
        super().close()
        self.endpoint.close()

    def abandon(self) -> None:
        """Another leads: hang up without a word. The directory stays as after a kill."""
        self._is_closed = True
        for connection in self.connections():
            connection.close()
        self._cleaner.stop()

    async def end(self) -> None:
        """Stop, as `steps_of_end` has it."""
        for until in self._steps_of_end():
            await self._wait_for(until)

    def _steps_of_end(self) -> Iterator[Until]:
        return steps_of_end(self, None)

    async def _wait_for(self, until: Until) -> None:
        """Wait, but not for long. The rest is sent once the standby has hung up."""
        assert until is Until.REST_IS_SENT, "without a lease nothing else is waited for"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SENDS_REST_S):
                await self.endpoint.ended


class _Endpoint:
    """The port, the standby's connection, and the timer."""

    def __init__(
        self,
        server: ReplicatedServer,
        disk: ReplicatedDisk,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.server, self._disk, self._socket, self.loop = server, disk, sock, loop
        self.address: tuple[str, int] = sock.getsockname()[:2]
        self._standby: _StandbyProtocol | None = None
        self.timeout_s = server.leading.settings.timeout_ms / 1000
        self._interval_s = self.timeout_s / TICK_PARTS
        self._is_closed = self._is_paused = False
        self._refused: deque[socket.socket] = deque()
        self.ended = loop.create_future()  # after `close`: the standby has got what there was
        self.catch_up_rate: int = server.catch_up_rate
        loop.add_reader(sock.fileno(), self._on_connect)
        self._timer = loop.call_later(self._interval_s, self._on_tick)

    def _on_connect(self) -> None:
        try:
            sock, peer = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptors: who waits would be heard of without end
            self.loop.remove_reader(self._socket.fileno())
            self._is_paused = True
            logger.warning("a standby has to wait: %s", error)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._standby is not None:
            logger.warning("a second standby, %s:%d, is refused: there is one", *peer[:2])
            self._refuse(sock)
            self._standby.make_way()
            return
        self._standby = _StandbyProtocol(self, self.server.leading, f"{peer[0]}:{peer[1]}")
        self._disk.publish = self._publish
        self.loop.create_task(
            self.loop.connect_accepted_socket(lambda: cast(Any, self._standby), sock)
        )

    def _refuse(self, sock: socket.socket) -> None:
        """Say why, and hang up a little later: closed at once, what came meanwhile could reset the
        connection before the words are read.
        """
        with contextlib.suppress(OSError):
            sock.send(frame(["refused", "another standby is connected, and there can be one"]))
            sock.shutdown(socket.SHUT_WR)
        if len(self._refused) < MOST_REFUSED:
            self._refused.append(sock)
            self.loop.call_later(REFUSED_S, self._close_refused)
        else:
            sock.close()

    def _close_refused(self) -> None:
        if self._refused:  # else the endpoint was closed meanwhile
            self._refused.popleft().close()

    def _publish(self, operation: Any) -> None:
        self.server.leading.publish(operation)
        if self._standby is not None:
            self._standby.send_soon()

    def on_closed(self, peer: str, reason: str) -> None:
        """The standby is gone."""
        leading = self.server.leading
        if self._is_closed:
            self._standby = None
            self.ended.set_result(None)
            return
        self._standby, self._disk.publish = None, None
        logger.warning(
            "the standby %s is gone: %s; %s", peer, reason,
            "answers go out without it" if leading.settings.may_be_alone
            or not leading.settings.is_sync else "answers wait for one",
        )  # fmt: skip
        leading.on_closed()

    def send_soon(self) -> None:
        """There may be more for the standby."""
        if self._standby is not None:
            self._standby.send_soon()

    def _on_tick(self) -> None:
        self._timer = self.loop.call_later(self._interval_s, self._on_tick)
        if self._is_paused:
            self._is_paused = False
            self.loop.add_reader(self._socket.fileno(), self._on_connect)
        self.server.leading.on_tick(self.server.now_ms())
        if self._standby is not None:
            self._standby.send_soon()

    def close(self) -> None:
        self._is_closed = True
        self._timer.cancel()
        self.loop.remove_reader(self._socket.fileno())
        self._socket.close()
        while self._refused:
            self._close_refused()
        if self._standby is not None:
            self._standby.finish()
        else:
            self.ended.set_result(None)


class _StandbyProtocol(asyncio.Protocol):
    """The standby's connection: what asyncio calls."""

    def __init__(self, endpoint: _Endpoint, leading: Leading, peer: str) -> None:
        self._endpoint, self._leading, self._peer = endpoint, leading, peer
        self._transport: asyncio.Transport | None = None
        self._may_write, self._is_scheduled = True, False
        self._feed = StandbyFeed(leading, peer, endpoint.timeout_s, endpoint.catch_up_rate)
        self._is_finished = False
        self._reason = "it hung up"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._leading.on_connected(secrets.token_bytes(NONCE_BYTES), self._now_ms())
        logger.info("a standby connects from %s", self._peer)

    def _now_ms(self) -> int:
        return self._endpoint.server.now_ms()

    def data_received(self, data: bytes) -> None:
        try:
            self._leading.on_bytes(data, self._now_ms())
        except (OSError, WireError) as error:
            self._end(str(error))
            return
        self.send_soon()

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self.send_soon()

    def send_soon(self) -> None:
        """Send what there is, once for all that is done in this round of the loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._endpoint.loop.call_soon(self._send)

    def _send(self) -> None:
        self._is_scheduled = False
        transport = self._transport
        if transport is None or self._is_finished:
            return
        turn = self._feed.next_turn(may_write=self._may_write)
        if turn.end:
            self._end(turn.end)
            return
        if turn.data:
            transport.write(turn.data)
        if turn.again_s is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._endpoint.loop.call_later(turn.again_s, self._send)

    def _end(self, reason: str) -> None:
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    def make_way(self) -> None:
        """Another came, and connects again soon: hang up, unless this one is the standby."""
        link = self._leading.link
        if link is not None and link.state is State.GREETING:
            self._end("it had not shown that it knows the secret when another came")

    def finish(self) -> None:
        """The broker has stopped: send the rest, and hang up."""
        transport, leading = self._transport, self._leading
        self._reason = "the broker stops"
        if transport is not None and leading.link is not None and leading.lost is None:
            self._is_finished = True
            if not leading.follows:
                transport.close()
                return
            for data in self._feed.rest():
                transport.write(data)
            # closed before the standby's last words are read, the rest could be lost on its way
            transport.write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._endpoint.on_closed(self._peer, self._reason if error is None else str(error))
