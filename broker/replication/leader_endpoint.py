"""The rim of a leader: the port where its standby connects, and answers that wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections import deque
from typing import Any, cast

from barnabas.broker.core import Broker
from barnabas.broker.replication.leading import Leading, ReplicationSettings, State
from barnabas.broker.replication.replicated_disk import ReplicatedDisk
from barnabas.broker.replication.wire import NONCE_BYTES, WireError
from barnabas.broker.server import Connection, Server
from barnabas.storage.pooled_disk import disk_below

logger = logging.getLogger("barnabas.replication")

TICK_PARTS = 10  # of the time-out
SENDS_REST_S = 3.0


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
        self.endpoint = _Endpoint(self, disk, endpoint_socket, loop)
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
            sock.close()
            self._standby.make_way()
            return
        self._standby = _StandbyProtocol(self, self.server.leading, f"{peer[0]}:{peer[1]}")
        self._disk.publish = self._publish
        self.loop.create_task(
            self.loop.connect_accepted_socket(lambda: cast(Any, self._standby), sock)
        )

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
        if self._standby is not None:
            self._standby.finish()
        else:
            self.ended.set_result(None)


class _StandbyProtocol(asyncio.Protocol):
    """The standby's connection: what asyncio calls."""

    def __init__(self, endpoint: _Endpoint, leading: Leading, peer: str) -> None:
        self._endpoint, self._leading, self._peer = endpoint, leading, peer
        self._transport: asyncio.Transport | None = None
        self._may_write, self._is_scheduled, self._followed = True, False, False
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
        transport, leading = self._transport, self._leading
        if transport is None or leading.link is None or self._is_finished:
            return
        if leading.lost is not None:
            self._end(leading.lost)
            return
        if not self._may_write:
            return
        try:
            output = leading.take_output()
        except OSError as error:
            self._end(str(error))
            return
        if output:
            transport.write(output)
        if leading.follows and not self._followed:
            self._followed = True
            logger.warning("the standby %s has caught up, and follows", self._peer)
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
            while output := leading.take_output():
                transport.write(output)
            # closed before the standby's last words are read, the rest could be lost on its way
            transport.write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._endpoint.on_closed(self._peer, self._reason if error is None else str(error))
