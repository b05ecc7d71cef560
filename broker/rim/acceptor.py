"""The listening sockets, and the limits of connections.

A client that cannot be accepted waits in the listener's queue, because of `max.connections`, a
rate, or a lack of file descriptors. A connection above the limit of its address is closed, at once
or after a delay (KIP-402, KIP-612). A connection that has not completed TLS and authentication in
time is closed as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import ssl
import stat
import sys
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.observation.counters import Counters
from barnabas.broker.outbox import CloseReason
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.rim.connection import Connection
from barnabas.broker.rim.connection_limits import (
    ConnectionLimits,
    ListenerLimits,
    limits_of_listener,
)
from barnabas.broker.seams.nodes import Listener as OpenListener
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import ListenerConfig
from barnabas.protocol.request_context import UNIX_SCHEME
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import is_out_of_descriptors
from barnabas.storage.pooled_disk import kept_from_connections

if TYPE_CHECKING:
    from barnabas.broker.rim.tls import TlsSocket

logger = logging.getLogger("barnabas.server")

BACKLOG = 1024
ACCEPT_PAUSE_S, COMPLAINT_INTERVAL_S = 0.5, 60.0
MOST_REFUSED = 1000  # the maximum number of refused connections that wait to be closed


class AcceptorCore(Protocol):
    """The part of the core that the acceptor uses: three inputs, and attributes that it reads."""

    config: BrokerConfig
    cluster: Cluster
    connections: dict[int, ConnectionState]
    counters: Counters
    logs: LogManager
    metadata: ClusterMetadata
    quotas: Quotas

    def on_listening(self, node_id: int, listener: ListenerConfig, port: int) -> None:
        """Record that a broker listens on a port."""

    def on_connected(
        self,
        connection_id: int,
        client_host: str,
        local_host: str,
        local_port: int,
        node_id: int,
        listener: ListenerConfig,
    ) -> None:
        """A client connected."""

    def on_identified(self, connection_id: int, principal: str) -> None:
        """Handle the end of a client's TLS handshake."""


class AcceptorHost(Protocol):
    """The part of the server that the acceptor uses."""

    loop: asyncio.AbstractEventLoop

    def steady_ms(self) -> int:
        """The time of the steady clock."""

    def add_connection(
        self,
        connection_id: int,
        transport: socket.socket | TlsSocket,
        peer: str,
        greeting_bytes: int,
    ) -> Connection:
        """Add the connection of a client, of which the core has already been notified."""

    def connections(self) -> list[Connection]:
        """The open connections."""

    @property
    def connection_count(self) -> int:
        """The number of open connections."""

    def disconnect(
        self, connection: Connection, reason: CloseReason | None, level: int = logging.WARNING
    ) -> None:
        """End a connection. If there is a reason, it is written to the log."""


def _most_connections() -> int:
    """The maximum number of open connections, which leaves descriptors for files and other uses."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - kept_from_connections(limit)


def _advice_on_descriptors() -> str:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"RLIMIT_NOFILE is {limit}: raise it (ulimit -n), or let clients share connections"


class Listener:
    """A listening socket of one broker, which may be closed for a while.

    greeting_bytes: the largest request of a client that is not authenticated; 0 if clients of this
    listener do not have to authenticate. limits: the limits of this listener. pause: the timer that
    ends a pause in accepting, or None.
    """

    __slots__ = ("address", "config", "greeting_bytes", "limits", "node_id", "pause", "socket")

    def __init__(
        self, node_id: int, config: ListenerConfig, sock: socket.socket, greeting_bytes: int
    ) -> None:
        self.limits: ListenerLimits | None = None
        self.pause: asyncio.TimerHandle | None = None
        self.node_id, self.config = node_id, config
        self.greeting_bytes = greeting_bytes if config.has_sasl else 0
        self.socket: socket.socket | None = sock
        self.address = address_of(sock)


def _listeners(core: AcceptorCore, socks: Sequence[socket.socket]) -> list[Listener]:
    """The Listener of each socket. The sockets are sorted by listener, then by broker."""
    config = core.config
    places = product(config.listeners, core.cluster.nodes)
    return [
        Listener(node_id, listener, sock, config.sasl_server_max_receive_size)
        for (listener, node_id), sock in zip(places, socks, strict=True)
    ]


class Acceptor:
    """The listening sockets, and the limits of connections.

    Takes: socks, the sockets: for each listener, one socket for each broker.
    """

    _limits: ConnectionLimits | None = None  # None if there are no limits
    _admission_timer: asyncio.TimerHandle | None = None

    def __init__(
        self, host: AcceptorHost, core: AcceptorCore, socks: Sequence[socket.socket]
    ) -> None:
        self._host, self._core, self._loop = host, core, host.loop
        self._accepts = True
        self.listeners = _listeners(self._core, socks)
        self._set_limits_of_listeners()
        self._limited: dict[int, ListenerLimits] = {}  # limits by connection
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}
        # pairs (deadline, connection) by connection id, in the order of the deadlines
        self._unadmitted: dict[int, tuple[float, Connection]] = {}
        self._next_connection_id = 1
        # connections of the process to itself, which count towards no limit
        self._inner: set[int] = set()
        self._accept_timer: asyncio.TimerHandle | None = None
        self._complain_at_s = self._loop.time()

    def start(self) -> None:
        """Listen."""
        for listener in self.listeners:
            self._core.on_listening(listener.node_id, listener.config, listener.address[1])
            self._listen_to(listener)

    def listener_of(self, node_id: int) -> Listener:
        """The first listener of a broker."""
        return next(listener for listener in self.listeners if listener.node_id == node_id)

    def _listen_to(self, listener: Listener) -> None:
        if listener.socket is not None and self._accepts and listener.pause is None:
            self._loop.add_reader(listener.socket.fileno(), self._on_connect, listener)

    def close_listener(self, node_id: int) -> None:
        """Close a broker's ports. The operating system then refuses connections to them."""
        for listener in self.listeners:
            if listener.node_id == node_id and listener.socket is not None:
                self._loop.remove_reader(listener.socket.fileno())
                listener.socket.close()
                listener.socket = None
                path = listener.config.path
                if path is not None:
                    with contextlib.suppress(OSError):
                        os.unlink(path)

    def open_listener(self, node_id: int) -> None:
        """Listen on a broker's ports again. Raises: OSError if another process uses one of them."""
        for listener in self.listeners:
            if listener.node_id == node_id and listener.socket is None:
                path = listener.config.path
                listener.socket = (
                    listener_at(*listener.address) if path is None else unix_listener_at(path)
                )
                self._listen_to(listener)

    def _on_connect(self, listener: Listener) -> None:
        """Accept the waiting connections of a listener, up to BACKLOG of them and within the
        limits.
        """
        limits = self._connection_limits()
        for number in range(BACKLOG):
            if listener.socket is None or not self._accepts or listener.pause is not None:
                return
            if listener.limits is not None and listener.limits.is_full:
                self._pause_listener(listener, "it has reached its max.connections")
                return
            if limits is not None and limits.is_full:
                # without a pause the loop would report the waiting connections again and again
                if number == 0:
                    self._pause_accepting("max.connections is reached")
                return
            try:
                sock, peer = listener.socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # reserving makes the logs close files, so that connections get descriptors
                if is_out_of_descriptors(error):
                    self._reserve_descriptors(_most_connections())
                self._pause_accepting(f"{error}: {_advice_on_descriptors()}")
                return
            # a Unix domain socket has no address at either end
            client_host, client_port = peer[:2] if peer else (listener.address[0], 0)
            client_host = unmapped(client_host)
            if limits is not None and not self._has_room_for(sock, client_host, limits):
                continue
            self.take_up(listener, sock, client_host, client_port)

    def take_up(
        self, listener: Listener, sock: socket.socket, client_host: str, client_port: int
    ) -> None:
        """Set up the connection of an accepted socket, within the limits."""
        _set_options(sock)
        address = address_of(sock)
        connection_id = self._next_connection_id
        try:
            transport = self._transport(listener.config, sock, connection_id)
        except OSError:  # the client has already disconnected
            sock.close()
            if self._limits is not None:
                self._limits.on_closed(client_host)
            return
        self._next_connection_id += 1
        self._core.counters.add("barnabas_connections_opened_total")
        self._core.on_connected(
            connection_id, client_host, *address, listener.node_id, listener.config
        )
        connection = self._host.add_connection(
            connection_id, transport, f"{client_host}:{client_port}", listener.greeting_bytes
        )
        if listener.greeting_bytes or transport is not sock:
            self._await_admission(connection)
        if listener.limits is not None:
            self._limited[connection_id] = listener.limits
            pause_ms = listener.limits.on_connected(self._host.steady_ms())
            if pause_ms:
                why = "its max.connection.creation.rate is exceeded"
                self._pause_listener(listener, why, pause_ms)
        self._reserve_descriptors(self._held_by_clients)
        if not self._may_connect():
            self._pause_accepting(
                f"the remaining descriptors are reserved for logs: {_advice_on_descriptors()}"
            )
        elif self._limits is not None:
            pause_ms = self._limits.pause_ms(self._host.steady_ms())
            if pause_ms:
                self._pause_accepting("max.connection.creation.rate is exceeded", pause_ms)

    def adopt(self, listener_name: str, sock: socket.socket) -> None:
        """Set up the connection of a client that connected elsewhere to a listener of this name."""
        listener = next(one for one in self.listeners if one.config.name == listener_name)
        try:
            host, port = sock.getpeername()[:2]
        except OSError:  # the client has disconnected already
            sock.close()
            return
        self.take_up(listener, sock, unmapped(host), port)

    def connect_inside(
        self,
        sock: socket.socket,
        client_host: str,
        principal: str | None,
        listener: OpenListener | None,
        node_id: int | None,
    ) -> None:
        """Set up a connection of the process to itself, without TLS and outside the limits.

        Takes: principal, the principal of a client that does not have to authenticate; None for a
               client that authenticates like the other clients of the listener. listener, None for
               the first one of the broker. node_id, the broker, None for the first one.
        """
        first = next(iter(self._core.cluster.nodes)) if node_id is None else node_id
        inside = self.listener_of(first) if listener is None else listener
        sock.setblocking(False)
        connection_id = self._next_connection_id
        self._next_connection_id += 1
        self._core.on_connected(
            connection_id, client_host, *inside.address, inside.node_id, inside.config
        )
        if principal is not None:
            state = self._core.connections[connection_id]
            state.principal, state.authentication = principal, None
        self._inner.add(connection_id)
        greeting_bytes = inside.greeting_bytes if principal is None else 0
        self._host.add_connection(connection_id, sock, f"{client_host}:0", greeting_bytes)

    def _connection_limits(self) -> ConnectionLimits | None:
        """The limits of connections, which are created when the first limit is set."""
        core = self._core
        if self._limits is None and (core.quotas.have_addresses or core.config.limits_connections):
            self._limits = ConnectionLimits(
                core.config,
                core.metadata.client_quotas,
                [
                    host_of(connection)
                    for connection in self._host.connections()
                    if connection.connection_id not in self._inner
                ],
                self._host.steady_ms(),
            )
        return self._limits

    def _set_limits_of_listeners(self) -> None:
        """Give the listeners that have settings of their own their limits."""
        for listener in self.listeners:
            if listener.config.limits_connections:
                config, now_ms = self._core.config, self._host.steady_ms()
                listener.limits = limits_of_listener(listener.config, config, now_ms)

    def _pause_listener(
        self, listener: Listener, why: str, pause_ms: float = ACCEPT_PAUSE_S * 1000
    ) -> None:
        """Stop accepting at a listener for a while. Its clients wait in the queue."""
        if listener.socket is not None:
            self._loop.remove_reader(listener.socket.fileno())
        listener.pause = self._loop.call_later(pause_ms / 1000, self._end_pause, listener)
        self._complain("listener %s accepts no connections for now: %s", listener.config.name, why)

    def _end_pause(self, listener: Listener) -> None:
        """Accept at the listener again, or pause again if it is still full."""
        if listener.limits is not None and listener.limits.is_full:
            listener.pause = self._loop.call_later(ACCEPT_PAUSE_S, self._end_pause, listener)
        else:
            listener.pause = None
            self._listen_to(listener)

    def _has_room_for(self, sock: socket.socket, address: str, limits: ConnectionLimits) -> bool:
        """Whether the address may have one more connection. If not, the connection is closed, at
        once or after a delay.
        """
        refusal = limits.on_connected(address, self._host.steady_ms())
        if refusal is None:
            return True
        self._complain("connections are closed: %s", refusal.why)
        if refusal.after_ms and len(self._refused) < MOST_REFUSED:
            self._refused[sock] = self._loop.call_later(
                refusal.after_ms / 1000, self._close_refused, sock
            )
        else:
            sock.close()
        return False

    def _close_refused(self, sock: socket.socket) -> None:
        del self._refused[sock]
        sock.close()

    def _await_admission(self, connection: Connection) -> None:
        """Close the connection unless it is admitted by the deadline."""
        timeout_ms = self._core.config.barnabas_authentication_timeout_ms
        if timeout_ms < 0:
            return
        deadline_s = self._loop.time() + timeout_ms / 1000
        self._unadmitted[connection.connection_id] = (deadline_s, connection)
        if self._admission_timer is None:
            self._admission_timer = self._loop.call_later(timeout_ms / 1000, self._close_unadmitted)

    def _close_unadmitted(self) -> None:
        """Close the connections whose deadline has passed, and wait for the next deadline."""
        self._admission_timer = None
        while self._unadmitted:
            connection_id, (deadline_s, connection) = next(iter(self._unadmitted.items()))
            if deadline_s > self._loop.time():
                self._admission_timer = self._loop.call_at(deadline_s, self._close_unadmitted)
                return
            del self._unadmitted[connection_id]
            if not connection.is_admitted:
                self._host.disconnect(
                    connection,
                    "it has not completed TLS, or its authentication, within "
                    "barnabas.authentication.timeout.ms",
                    logging.INFO,
                )

    def _transport(
        self, config: ListenerConfig, sock: socket.socket, connection_id: int
    ) -> socket.socket | TlsSocket:
        """The socket, with TLS if the listener uses it. Raises: OSError."""
        if config.tls is None:
            return sock
        if config.has_sasl or not config.tls.asks_for_certificates:
            wrapped: TlsSocket = config.tls.wrap(sock)
            return wrapped

        def on_shaken(peer: ssl.SSLSocket) -> None:
            self._core.on_identified(connection_id, config.tls_principal(peer.getpeercert()))

        shaken: TlsSocket = config.tls.wrap(sock, on_shaken)
        return shaken

    def _pause_accepting(self, why: str, pause_ms: float = ACCEPT_PAUSE_S * 1000) -> None:
        """Stop accepting at all listeners. Clients wait in the queues until there is room."""
        self._accepts = False
        for listener in self.listeners:
            if listener.socket is not None:
                self._loop.remove_reader(listener.socket.fileno())
        if self._accept_timer is None:
            self._accept_timer = self._loop.call_later(pause_ms / 1000, self._try_accepting)
        self._complain(
            "no connections are accepted for now: %s; %d connections are open",
            why,
            self._host.connection_count,
        )

    def _complain(self, text: str, *arguments: object) -> None:
        """Log a warning about refused or waiting connections, at most once a minute."""
        if self._loop.time() >= self._complain_at_s:
            self._complain_at_s = self._loop.time() + COMPLAINT_INTERVAL_S
            logger.warning(text, *arguments)

    @property
    def _held_by_clients(self) -> int:
        """The number of descriptors that connections use. Refused connections that are to be closed
        later are included.
        """
        return self._host.connection_count + len(self._refused)

    def _may_connect(self) -> bool:
        return self._held_by_clients < _most_connections()

    def _reserve_descriptors(self, count: int) -> None:
        """Let the logs close files when connections need descriptors."""
        self._core.logs.disk.reserve_descriptors(count)

    def _try_accepting(self) -> None:
        """Accept again at all listeners, or try again later if there is still no room."""
        is_full = self._limits is not None and self._limits.is_full
        if self._may_connect() and not is_full:
            self._accept_timer = None
            self._accepts = True
            for listener in self.listeners:
                self._listen_to(listener)
        else:
            self._accept_timer = self._loop.call_later(ACCEPT_PAUSE_S, self._try_accepting)

    def on_closed(self, connection: Connection) -> None:
        """Handle the end of a connection, which no longer counts towards the limits."""
        self._reserve_descriptors(self._held_by_clients)
        self._unadmitted.pop(connection.connection_id, None)
        if connection.connection_id in self._inner:
            self._inner.remove(connection.connection_id)
            return
        if self._limits is not None:
            self._limits.on_closed(host_of(connection))
        limits_of_listener = self._limited.pop(connection.connection_id, None)
        if limits_of_listener is not None:
            limits_of_listener.on_closed()

    def close(self) -> None:
        """Stop listening, and close the refused connections that are to be closed later."""
        for node_id in self._core.cluster.nodes:
            self.close_listener(node_id)
        for refused, closing in self._refused.items():
            closing.cancel()
            refused.close()
        self._refused.clear()
        timers = (self._accept_timer, self._admission_timer)
        for timer in (*timers, *(listener.pause for listener in self.listeners)):
            if timer is not None:
                timer.cancel()


def host_of(connection: Connection) -> str:
    return connection.peer.rpartition(":")[0]


def address_of(sock: socket.socket) -> tuple[str, int]:
    """A socket's own address; for a Unix domain socket `unix:///PATH` and 0."""
    if sock.family == socket.AF_UNIX:
        return f"{UNIX_SCHEME}{sock.getsockname()}", 0
    host, port = sock.getsockname()[:2]
    return unmapped(host), port


def unmapped(host: str) -> str:
    """An address, with an IPv4 address that is mapped to IPv6 (RFC 4291, 2.5.5.2) converted to its
    IPv4 form, since ACLs, quotas and limits use that form.
    """
    return host.removeprefix("::ffff:") if "." in host else host


def _set_options(sock: socket.socket) -> None:
    """Set the socket options that every connection has."""
    sock.setblocking(False)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Detect clients whose machine has failed. Otherwise their parked requests would stay for
        # ever.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def unix_listener_at(path: str) -> socket.socket:
    """A Unix domain socket that only its owner may use. A leftover socket at the path is replaced.

    Raises: OSError.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A refused connection means that no process listens at the path any more, so the leftover
        # socket is removed.
        if stat.S_ISSOCK(_mode_of(path)) and sock.connect_ex(path) == errno.ECONNREFUSED:
            os.unlink(path)
        sock.close()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        former_mask = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(former_mask)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _mode_of(path: str) -> int:
    """The type and permissions of a path; 0 if it does not exist."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return 0


def listener_at(host: str, port: int) -> socket.socket:
    """A non-blocking socket that listens at an address. Raises: OSError."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock
