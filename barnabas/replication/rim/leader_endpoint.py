"""The rim of a leader: the port for its standby, and the responses that wait for the standby."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import sys
from collections.abc import Callable
from typing import Any, cast

from barnabas.broker.observation.log_lines import BoundedLines
from barnabas.broker.rim.tls import TlsListener
from barnabas.broker.seams.host import ClientConnection, HandleFrame, Host
from barnabas.broker.settings.config import BrokerConfig
from barnabas.replication.admission import Admission
from barnabas.replication.held_answers import HeldAnswers
from barnabas.replication.leading import GREETING_MS, Leading, ReplicationSettings
from barnabas.replication.replicated_disk import ReplicatedDisk
from barnabas.replication.rim.lease_keeper import LeaseKeeper
from barnabas.replication.rim.link_security import leaders_tls
from barnabas.replication.standby_feed import StandbyFeed
from barnabas.replication.state import ReplicationState
from barnabas.replication.steps_of_end import Until, steps_of_end
from barnabas.replication.wire import NONCE_BYTES
from barnabas.storage.disk import Disk
from barnabas.storage.pooled_disk import disk_below, most_beside_clients

logger = logging.getLogger("barnabas.replication")

TICK_PARTS = 10  # ticks per timeout
SENDS_REST_S = 3.0
# Connections that have not proved the secret may use an eighth of the file descriptors that
# clients' connections may not use.
DESCRIPTORS_PART = 8
REFUSED, WAITS = "refused", "waits"


class Leader:
    """A leader. It is the Gate of its server: it holds responses until the standby has their data.

    is_deposed: whether another node leads. server: the leader's server, set once it exists.
    """

    is_deposed = False
    silence: Callable[[], str | None] | None = None
    server: Host

    def __init__(
        self,
        config: BrokerConfig,
        brokers_disk: Disk,
        endpoint_socket: socket.socket,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        disk = disk_below(brokers_disk)
        assert isinstance(disk, ReplicatedDisk), "a disk that no standby can follow"
        settings = ReplicationSettings(
            config.barnabas_replication_mode == "sync",
            config.barnabas_replication_alone,
            config.barnabas_replication_timeout_ms,
            config.barnabas_replication_secret or "",
        )
        self.data_dir: str = config.data_dir
        self.catch_up_rate: int = config.barnabas_replication_catch_up_bytes_per_second
        self.leading = self._new_leading(disk, settings)
        self._held: HeldAnswers[tuple[ClientConnection, Any]] = HeldAnswers(self._may_go_out)
        self.endpoint = _Endpoint(self, disk, endpoint_socket, loop, leaders_tls(config))

    def around(self, server: Host, handle: HandleFrame) -> HandleFrame:
        """Return `handle` unchanged, since requests are handled at once and only responses may
        wait.
        """
        self.server = server
        return handle

    def start(self) -> None:
        """Log the address. Called when the server listens."""
        logger.info("a standby connects at %s:%d", *self.address)

    @property
    def address(self) -> tuple[str, int]:
        """The address at which the standby connects."""
        return self.endpoint.address

    @property
    def waiting_count(self) -> int:
        """The number of waiting responses."""
        return len(self._held)

    def replication_state(self) -> ReplicationState:
        """The progress of the standby. Called in the loop's thread.

        The time for which a response waits for the standby is not part of a request's phases, since
        this wait begins after the core has returned the response.
        """
        leading = self.leading
        link = leading.link
        return ReplicationState(
            "sync" if leading.settings.is_sync else "async",
            leading.follows,
            self._is_standby_in_sync(),
            0 if link is None else link.waiting_bytes,
            0 if link is None else leading.position - max(0, link.applied),
            leading.lag_ms(self.now_ms()),
            self.waiting_count,
            self._leader_epoch(),
        )

    def now_ms(self) -> int:
        """The steady time."""
        return self.server.now_ms()

    def _is_standby_in_sync(self) -> bool:
        link = self.leading.link
        return link is not None and link.is_awaited

    def _leader_epoch(self) -> int | None:
        return None

    def _new_leading(self, disk: ReplicatedDisk, settings: ReplicationSettings) -> Leading:
        return Leading(disk, self.data_dir, settings, self._release)

    def _may_go_out(self, position: int) -> bool:
        """Whether a response that was ready at a position may be sent."""
        return self.leading.is_applied(position)

    def send(self, connection: ClientConnection, pieces: Any) -> None:
        """Send a response once the standby has everything that was done before it.

        The connection's next request waits until the response is sent.
        """
        if self._held.holds(self.leading.position, (connection, pieces)):
            connection.hold()
        else:
            connection.send(pieces)

    def _release(self) -> None:
        """Send the responses that may be sent now."""
        for connection, pieces in self._held.released():
            if not connection.closed:
                connection.release()
                connection.send(pieces)
                connection.wake()

    def on_closing(self, connection: ClientConnection) -> None:
        """Do nothing. The waiting responses of a closing connection are dropped when it is their
        turn.
        """

    def close(self) -> None:
        """Close the endpoint, after the server was closed. Everything written until then is sent to
        the standby.
        """
        self.endpoint.close()

    async def end(self) -> None:
        """Close the server in the order of `steps_of_end`."""
        for until in steps_of_end(_Ending(self), self._keeper()):
            await self._wait_for(until)

    def abandon(self) -> None:
        """Close all connections without responses, since another node leads.

        The directory is left as a kill would leave it.
        """
        self.server.abandon()

    def _keeper(self) -> LeaseKeeper | None:
        return None

    async def _wait_for(self, until: Until) -> None:
        """Wait until the standby closes its connection, which means that all data are sent, for at
        most SENDS_REST_S.
        """
        assert until is Until.REST_IS_SENT, "without a lease nothing else is waited for"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SENDS_REST_S):
                await self.endpoint.ended


class _Ending:
    """The part of a leader and its server that `steps_of_end` uses."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    @property
    def is_deposed(self) -> bool:
        return self._leader.is_deposed

    @property
    def failed(self) -> bool:
        return self._leader.server.failed

    def close(self) -> None:
        self._leader.server.close()

    def abandon(self) -> None:
        self._leader.abandon()


class _Endpoint:
    """The port, its connections, and the timer. admission: decides which connection belongs to the
    standby.

    Connections that do not prove the secret are logged once a minute.
    """

    def __init__(
        self,
        leader: Leader,
        disk: ReplicatedDisk,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        tls: TlsListener | None = None,
    ) -> None:
        self.leader, self._disk, self._socket, self.loop = leader, disk, sock, loop
        self.address: tuple[str, int] = sock.getsockname()[:2]
        self.admission: Admission[_StandbyProtocol] = Admission(
            leader.leading,
            most_beside_clients(disk.most_open_files(), DESCRIPTORS_PART, sys.maxsize),
        )
        self._lines = BoundedLines(1)
        self._tls = tls
        self.timeout_s = leader.leading.settings.timeout_ms / 1000
        self._interval_s = self.timeout_s / TICK_PARTS
        self._is_closed = self._is_paused = False
        # after `close` this is set when everything was sent to the standby
        self.ended = loop.create_future()
        self.catch_up_rate: int = leader.catch_up_rate
        loop.add_reader(sock.fileno(), self._on_connect)
        self._timer = loop.call_later(self._interval_s, self._on_tick)

    def _on_connect(self) -> None:
        """Accept a connection to the replication port. Without a free descriptor, accepting is
        paused until the next tick.
        """
        try:
            sock, peer = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        # No file descriptor is free. The reader is removed until the next tick: the socket stays
        # readable, so the loop would call it again and again.
        except OSError as error:
            self.loop.remove_reader(self._socket.fileno())
            self._is_paused = True
            if self._lines.may_write(WAITS, "", self.leader.now_ms()):
                logger.warning("a standby has to wait: %s", error)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        protocol = _StandbyProtocol(self, self.leader.leading, f"{peer[0]}:{peer[1]}")
        made_room = self.admission.on_accepted(protocol, peer[0])
        if made_room is not None:
            made_room.peer.end(made_room.reason)
        protocol.task = self.loop.create_task(self._take_up(protocol, sock))

    async def _take_up(self, protocol: _StandbyProtocol, sock: socket.socket) -> None:
        """Set up TLS on a connection, if the link uses it. asyncio then calls the protocol."""
        tls = None if self._tls is None else self._tls.context()
        timeout_s = None if tls is None else GREETING_MS / 1000
        try:
            await self.loop.connect_accepted_socket(
                lambda: protocol, sock, ssl=tls, ssl_handshake_timeout=timeout_s
            )
        except OSError as error:  # the handshake failed
            protocol.forget()
            self.on_closed(protocol, f"TLS: {error.strerror or error}")
        # the handshake took too long, or the connection was closed to make room for another one
        except asyncio.CancelledError:
            protocol.forget()
            self.on_closed(protocol, protocol.reason)

    def on_admitted(self) -> None:
        """Publish the disk's operations from now on, since a connection was admitted as the
        standby's connection.
        """
        self._disk.publish = self._publish

    def _publish(self, operation: Any) -> None:
        self.leader.leading.publish(operation)
        self.send_soon()

    def on_closed(self, protocol: _StandbyProtocol, reason: str) -> None:
        """Remove a closed connection."""
        if not self.admission.on_closed(protocol):
            self._warn_of_stranger(protocol, reason)
            return
        leading = self.leader.leading
        if self._is_closed:
            self.ended.set_result(None)
            return
        self._disk.publish = None
        logger.warning(
            "the standby %s disconnected: %s; %s", protocol.peer, reason,
            "answers are sent without it" if leading.settings.may_be_alone
            or not leading.settings.is_sync else "answers wait for a standby",
        )  # fmt: skip
        leading.on_closed()

    def _warn_of_stranger(self, protocol: _StandbyProtocol, reason: str) -> None:
        """Log the end of a connection that was never the standby's, at most once a minute."""
        if not self._is_closed and self._lines.may_write(REFUSED, "", self.leader.now_ms()):
            logger.warning(
                "a connection from %s to barnabas.replication.port ended before its standby was "
                "accepted: %s",
                protocol.peer,
                reason,
            )

    def send_soon(self) -> None:
        """Let the standby's connection send soon, since there may be more bytes for it."""
        if self.admission.standby is not None:
            self.admission.standby.send_soon()

    def _on_tick(self) -> None:
        """Accept again after a pause, log the counts of refused connections, and check the standby
        for silence.
        """
        self._timer = self.loop.call_later(self._interval_s, self._on_tick)
        if self._is_paused:
            self._is_paused = False
            self.loop.add_reader(self._socket.fileno(), self._on_connect)
        now_ms = self.leader.now_ms()
        for row in self._lines.left_out(now_ms):
            if row.kind == REFUSED:
                logger.warning(
                    "%d more connections to barnabas.replication.port ended within a minute "
                    "before their standby was accepted",
                    row.line_count,
                )
        self.leader.leading.on_tick(now_ms)
        self.send_soon()

    def reload(self) -> None:
        """Read the certificates again, if the link uses TLS."""
        if self._tls is not None:
            self._tls.reload()

    def close(self) -> None:
        """Stop accepting, drop connections that are not the standby's, and send the standby the
        remaining data. `ended` is set when that is done.
        """
        self._is_closed = True
        self._timer.cancel()
        self.loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for protocol in self.admission.greeting:
            protocol.end("the broker stops")
        if self.admission.standby is not None:
            self.admission.standby.finish()
        else:
            self.ended.set_result(None)


class _StandbyProtocol(asyncio.Protocol):
    """The asyncio protocol of a connection, before and after it is admitted as the standby's
    connection.

    peer: the address of the other end. reason: why the connection is closed. task: the task that
    accepts the connection and waits for TLS.
    """

    def __init__(self, endpoint: _Endpoint, leading: Leading, peer: str) -> None:
        self._endpoint, self._leading, self.peer = endpoint, leading, peer
        self.task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        # None until the connection is admitted as the standby's connection
        self._feed: StandbyFeed | None = None
        self._may_write, self._is_scheduled = True, False
        self._is_finished = self._is_refused = False
        self.reason = "it closed the connection"
        self._deadline = endpoint.loop.call_later(
            GREETING_MS / 1000, self.end, f"it had not shown the secret within {GREETING_MS} ms"
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is set up, with TLS if the link uses it."""
        self._transport = cast(asyncio.Transport, transport)
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._endpoint.admission.on_connected(self, nonce, self._now_ms())

    def _now_ms(self) -> int:
        return self._endpoint.leader.now_ms()

    def data_received(self, data: bytes) -> None:
        """Process received bytes. Send the reply, if there is one, or close the connection if it is
        refused.
        """
        reply = self._endpoint.admission.on_bytes(self, data, self._now_ms())
        if reply.end:
            self._refuse(reply.data, reply.end)
            return
        if reply.data and self._transport is not None:
            self._transport.write(reply.data)
        if reply.is_admitted:
            self._on_admitted()
        self.send_soon()

    def _on_admitted(self) -> None:
        """The connection is the standby's from now on: begin to feed it."""
        endpoint = self._endpoint
        self._deadline.cancel()
        self._feed = StandbyFeed(
            self._leading, self.peer, endpoint.timeout_s, endpoint.catch_up_rate
        )
        endpoint.on_admitted()
        logger.info("a standby connects from %s", self.peer)

    def _refuse(self, words: bytes, reason: str) -> None:
        """Close the connection. If there is an error message, it is sent first."""
        transport = self._transport
        if words and transport is not None:
            self.reason, self._is_refused = reason, True
            transport.write(words)
            transport.close()
        else:
            self.end(reason)

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        if self._is_finished:
            # not at once: the transport, which calls this, must not be closed meanwhile
            self._endpoint.loop.call_soon(self._end_sending)
        else:
            self.send_soon()

    def send_soon(self) -> None:
        """Send the queued bytes at the end of this round of the loop, all operations of the round
        together.
        """
        if not self._is_scheduled:
            self._is_scheduled = True
            self._endpoint.loop.call_soon(self._send)

    def _send(self) -> None:
        """Send the next turn's bytes, and schedule the turn after a pause if the feed asks
        for one.
        """
        self._is_scheduled = False
        transport, feed = self._transport, self._feed
        if transport is None or feed is None or self._is_finished:
            return
        turn = feed.next_turn(may_write=self._may_write)
        if turn.end:
            self.end(turn.end)
            return
        if turn.data:
            transport.write(turn.data)
        if turn.again_s is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._endpoint.loop.call_later(turn.again_s, self._send)

    def end(self, reason: str) -> None:
        """Close the connection, and log the reason."""
        if not self._is_refused:
            self.reason = reason
        if self._transport is not None:
            self._transport.abort()
        elif self.task is not None:
            self.task.cancel()

    def forget(self) -> None:
        """Release the resources of a closed connection."""
        self._deadline.cancel()
        self._transport = None

    def finish(self) -> None:
        """Send the remaining bytes after the broker has stopped, and close the connection."""
        transport, leading, feed = self._transport, self._leading, self._feed
        self.reason = "the broker stops"
        if transport is None or feed is None or leading.link is None or leading.lost is not None:
            return
        self._is_finished = True
        if not leading.follows:
            transport.close()
            return
        for data in feed.rest():
            transport.write(data)
        if transport.can_write_eof():
            # If the connection were closed while bytes from the standby are unread, bytes in
            # transit to the standby could be lost: only the sending direction is closed, as soon as
            # all bytes are sent, which `resume_writing` reports.
            transport.set_write_buffer_limits(high=0)
            if not transport.get_write_buffer_size():
                self._end_sending()
        else:
            # TLS sends the remaining bytes first, then its alert, and waits for the standby's alert
            transport.close()

    def _end_sending(self) -> None:
        """Close the sending direction. If the connection was reset, and the transport has not
        noticed it yet, that is an error; the connection has then ended.
        """
        transport = self._transport
        if transport is not None:
            try:
                transport.write_eof()
            except OSError as error:
                self.end(f"the broker stops, and the standby has gone ({error.strerror})")

    def connection_lost(self, error: Exception | None) -> None:
        self.forget()
        self._endpoint.on_closed(self, self.reason if error is None else str(error))
