"""The rim of a leader: the port where its standby connects, and answers that wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections import Counter, deque
from typing import Any, cast

from barnabas.broker.core import Broker
from barnabas.broker.observation.log_lines import BoundedLines
from barnabas.broker.replication.leading import (
    GREETING_MS,
    Leading,
    ReplicationSettings,
    StandbyLink,
    State,
)
from barnabas.broker.replication.replicated_disk import ReplicatedDisk
from barnabas.broker.replication.rim.link_security import leaders_tls
from barnabas.broker.replication.wire import NONCE_BYTES, WireError
from barnabas.broker.rim.server import Connection, Server
from barnabas.broker.rim.tls import TlsListener
from barnabas.storage.pooled_disk import disk_below

logger = logging.getLogger("barnabas.replication")

TICK_PARTS = 10  # of the time-out
SENDS_REST_S = 3.0
MOST_GREETING = 128  # connections that have not shown the secret
REFUSED, WAITS = "refused", "waits"


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
    """A server whose broker's disk is followed by a standby.

    Holds: answers that wait, in their order, each with the position that has to be applied.
    """

    connection_class = ReplicatedConnection

    def __init__(
        self,
        broker: Broker,
        sock: Any,
        loop: asyncio.AbstractEventLoop,
        endpoint_socket: socket.socket,
    ) -> None:
        disk, config = disk_below(broker.logs.disk), broker.config
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
        self._waiting: deque[tuple[int, ReplicatedConnection, Any]] = deque()
        self.endpoint = _Endpoint(self, disk, endpoint_socket, loop, leaders_tls(config))
        super().__init__(broker, sock, loop)

    @property
    def replication_address(self) -> tuple[str, int]:
        """Where the standby connects."""
        return self.endpoint.address

    @property
    def waiting_count(self) -> int:
        """How many answers wait."""
        return len(self._waiting)

    def _new_leading(self, disk: ReplicatedDisk, settings: ReplicationSettings) -> Leading:
        return Leading(disk, self.data_dir, settings, self._release)

    def _may_go_out(self, position: int) -> bool:
        """Whether an answer that was ready at this position need not wait any more."""
        return self.leading.is_applied(position)

    def send_when_applied(self, connection: ReplicatedConnection, pieces: Any) -> None:
        """Send an answer, now or later; the connection's next request waits for it."""
        position = self.leading.position
        if not self._waiting and self._may_go_out(position):
            connection.send_now(pieces)
            return
        connection.in_flight = connection.waits = True
        self._waiting.append((position, connection, pieces))

    def _release(self) -> None:
        """Send the answers that need not wait any more."""
        waiting = self._waiting
        while waiting and self._may_go_out(waiting[0][0]):
            _, connection, pieces = waiting.popleft()
            if not connection.closed:
                connection.waits = False
                connection.in_flight = self.is_muted(connection.connection_id)
                connection.send_now(pieces)
                connection.wake()

    def close(self) -> None:
        """Stop; the standby gets what is written until then (`send_rest`)."""
        super().close()
        self.endpoint.close()

    async def send_rest(self) -> None:
        """After `close`: wait until the standby has taken what there was, but not for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SENDS_REST_S):
                await self.endpoint.ended


class _Endpoint:
    """The port, the standby's connection, those that have not shown the secret, and the timer.

    Who has not shown it takes no place of the standby's: so many connections may greet, each for
    GREETING_MS. One more ends the eldest of the address that has most of them. What strangers do is
    in the log once a minute.
    """

    def __init__(
        self,
        server: ReplicatedServer,
        disk: ReplicatedDisk,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        tls: TlsListener | None = None,
    ) -> None:
        self.server, self._disk, self._socket, self.loop = server, disk, sock, loop
        self.address: tuple[str, int] = sock.getsockname()[:2]
        self._standby: _StandbyProtocol | None = None
        self._greeting: dict[_StandbyProtocol, None] = {}  # the eldest first
        self._lines = BoundedLines(1)
        self._tls = tls
        self.timeout_s = server.leading.settings.timeout_ms / 1000
        self._interval_s = self.timeout_s / TICK_PARTS
        self._is_closed = self._is_paused = False
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
            if self._lines.may_write(WAITS, "", self.server.now_ms()):
                logger.warning("a standby has to wait: %s", error)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self._greeting) >= MOST_GREETING:
            self._make_room()
        protocol = _StandbyProtocol(self, self.server.leading, peer[0], peer[1])
        self._greeting[protocol] = None
        protocol.task = self.loop.create_task(self._take_up(protocol, sock))

    def _make_room(self) -> None:
        counts = Counter(one.host for one in self._greeting)
        ((host, _),) = counts.most_common(1)
        eldest = next(one for one in self._greeting if one.host == host)
        del self._greeting[eldest]
        eldest.end(f"{MOST_GREETING} connections had not shown yet that they know the secret")

    async def _take_up(self, protocol: _StandbyProtocol, sock: socket.socket) -> None:
        """Put TLS on a connection, where the link has it; the protocol's own calls say the rest."""
        tls = None if self._tls is None else self._tls.context()
        timeout_s = None if tls is None else GREETING_MS / 1000
        try:
            await self.loop.connect_accepted_socket(
                lambda: protocol, sock, ssl=tls, ssl_handshake_timeout=timeout_s
            )
        except OSError as error:  # of the handshake
            self._refuse(protocol, f"TLS: {error.strerror or error}")
        except asyncio.CancelledError:  # it took too long, or made room for another
            self._refuse(protocol, protocol.reason)

    def admit(self, protocol: _StandbyProtocol, link: StandbyLink) -> None:
        """A connection has shown the secret: it is the standby. Raises: WireError."""
        self.server.leading.admit(link)
        self._greeting.pop(protocol, None)
        self._standby = protocol
        self._disk.publish = self._publish

    def _refuse(self, protocol: _StandbyProtocol, reason: str) -> None:
        """A connection has ended that was not the standby's."""
        protocol.forget()
        self._greeting.pop(protocol, None)
        if not self._is_closed and self._lines.may_write(REFUSED, "", self.server.now_ms()):
            logger.warning(
                "a connection from %s to barnabas.replication.port ended before it was a "
                "standby's: %s",
                protocol.peer,
                reason,
            )

    def _publish(self, operation: Any) -> None:
        self.server.leading.publish(operation)
        if self._standby is not None:
            self._standby.send_soon()

    def on_closed(self, protocol: _StandbyProtocol, reason: str) -> None:
        """A connection is gone."""
        if protocol is not self._standby:
            self._refuse(protocol, reason)
            return
        leading = self.server.leading
        if self._is_closed:
            self._standby = None
            self.ended.set_result(None)
            return
        self._standby, self._disk.publish = None, None
        logger.warning(
            "the standby %s is gone: %s; %s", protocol.peer, reason,
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
        now_ms = self.server.now_ms()
        for row in self._lines.left_out(now_ms):
            if row.kind == REFUSED:
                logger.warning(
                    "%d more connections to barnabas.replication.port ended within a minute "
                    "before they were a standby's",
                    row.line_count,
                )
        self.server.leading.on_tick(now_ms)
        if self._standby is not None:
            self._standby.send_soon()

    def close(self) -> None:
        self._is_closed = True
        self._timer.cancel()
        self.loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for protocol in list(self._greeting):
            protocol.end("the broker stops")
        if self._standby is not None:
            self._standby.finish()
        else:
            self.ended.set_result(None)


class _StandbyProtocol(asyncio.Protocol):
    """A connection that is a standby's, or not yet: what asyncio calls.

    host, peer: whence it comes. reason: why it ends. task: what takes it up, and waits for TLS.
    """

    def __init__(self, endpoint: _Endpoint, leading: Leading, host: str, port: int) -> None:
        self._endpoint, self._leading = endpoint, leading
        self.host, self.peer = host, f"{host}:{port}"
        self.task: asyncio.Task[None] | None = None
        self._link: StandbyLink | None = None  # until it is the leader's
        self._transport: asyncio.Transport | None = None
        self._may_write, self._is_scheduled, self._followed = True, False, False
        self._is_finished = self._is_admitted = False
        self.reason = "it hung up"
        self._deadline = endpoint.loop.call_later(
            GREETING_MS / 1000, self.end, f"it had not shown the secret within {GREETING_MS} ms"
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._link = self._leading.new_link(secrets.token_bytes(NONCE_BYTES), self._now_ms())

    def _now_ms(self) -> int:
        return self._endpoint.server.now_ms()

    def data_received(self, data: bytes) -> None:
        try:
            if self._is_admitted:
                self._leading.on_bytes(data, self._now_ms())
            else:
                self._greet(data)
        except (OSError, WireError) as error:
            self.end(str(error))
            return
        self.send_soon()

    def _greet(self, data: bytes) -> None:
        """Raises: WireError."""
        link = self._link
        assert link is not None, "bytes before the connection"
        link.on_bytes(data, self._now_ms())
        if link.state is not State.GREETING:
            self._endpoint.admit(self, link)
            self._is_admitted, self._link = True, None
            self._deadline.cancel()
            logger.info("a standby connects from %s", self.peer)

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
        transport, leading = self._transport, self._leading
        if transport is None or self._is_finished:
            return
        if self._link is not None:
            transport.write(self._link.take_output(0))  # a challenge, or nothing
            return
        if leading.link is None:
            return
        if leading.lost is not None:
            self.end(leading.lost)
            return
        if not self._may_write:
            return
        try:
            output = leading.take_output()
        except OSError as error:
            self.end(str(error))
            return
        if output:
            transport.write(output)
        if leading.follows and not self._followed:
            self._followed = True
            logger.warning("the standby %s has caught up, and follows", self.peer)
        if leading.link.is_behind:
            self._go_on(len(output))

    def _go_on(self, sent_bytes: int) -> None:
        """Send the next part when others have had their turn, and as the bound has it."""
        rate = self._endpoint.catch_up_rate
        if self._followed or not rate or not sent_bytes:
            self.send_soon()
        else:
            self._is_scheduled = True
            # later, and the standby would take the leader for gone
            longest_s = self._endpoint.timeout_s / 2
            self._endpoint.loop.call_later(min(sent_bytes / rate, longest_s), self._send)

    def end(self, reason: str) -> None:
        """Hang up; the log has the reason."""
        self.reason = reason
        if self._transport is not None:
            self._transport.abort()
        elif self.task is not None:
            self.task.cancel()

    def forget(self) -> None:
        """Release what a connection that has ended still holds."""
        self._deadline.cancel()
        self._transport = self._link = None

    def finish(self) -> None:
        """The broker has stopped: send the rest, and hang up."""
        transport, leading = self._transport, self._leading
        self.reason = "the broker stops"
        if transport is not None and leading.link is not None and leading.lost is None:
            self._is_finished = True
            if not leading.follows:
                transport.close()
                return
            while output := leading.take_output():
                transport.write(output)
            if transport.can_write_eof():
                # closed before the standby's last words are read, the rest could be lost
                transport.write_eof()
            else:
                transport.close()  # TLS says goodbye after the rest, and waits for the standby's

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._endpoint.on_closed(self, self.reason if error is None else str(error))
