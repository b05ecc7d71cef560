"""The connections to brokers: TLS and login, negotiation of versions, requests and their responses
in order.

`Connections` keeps one connection to each address, and another one for each `purpose`. A broker
handles the requests of a connection one after the other. Requests that must not wait until
megabytes of records have been sent therefore use a separate connection.

All calls block. A caller that must not block gives `Connections` an object of its own class of
`Calls`, which makes them in a thread.
"""

from __future__ import annotations

import math
import os
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.client.errors import (
    ClientError,
    ConnectionLostError,
    LoginError,
    LoginFault,
    NoHostError,
    PassingError,
    TlsError,
    TlsFault,
    UnreachableError,
    UnresolvedError,
    code_name,
)
from barnabas.client.frames import Frames, run
from barnabas.client.options import ClientOptions
from barnabas.client.request_kind import Request, RequestKind, Response
from barnabas.protocol.errors import Code
from barnabas.protocol.primitives import Buffer

if TYPE_CHECKING:
    import ssl

    from barnabas.client.sasl import Exchange

# the part of a login's lifetime after which a new connection replaces the old one
SESSION_USED = 0.85
PIECES_AT_ONCE = 512  # sendmsg takes at most IOV_MAX buffers, which is 1024 on Linux and macOS
AT_ONCE = 100  # the number of requests that are sent before the first response is received
SILENCE_S = 3  # after which the log says that the port takes connections and does not answer

Address = tuple[str, int]


class Connection:
    """A socket to one broker, with the versions that the broker supports.

    The responses have the order of the requests. Order of use: `connect`, `negotiate`, requests,
    `close`.
    """

    def __init__(
        self,
        address: Address,
        options: ClientOptions,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Takes: context, for TLS."""
        self.address = f"{address[0]}:{address[1]}"
        self._host, self._port = address
        self._options, self._context = options, context
        self._frames = Frames(self.address, options.client_id, options.response_max_bytes)
        self._buffer = bytearray(64 * 1024)
        # whether a response of the broker has proven that the security settings are right
        self._is_proven = False
        self._session_end_s = math.inf
        self._socket: socket.socket | None = None

    @classmethod
    def over(
        cls,
        sock: socket.socket,
        peer: str,
        options: ClientOptions,
        versions: Mapping[int, tuple[int, int]],
    ) -> Connection:
        """A connection over a connected socket, to a broker whose versions are known.

        Takes:  peer, a name of the broker for messages.
        """
        made = cls((peer, 0), options)
        made.address = made._frames.peer = peer
        made._socket = sock
        made._frames.versions = dict(versions)
        return made

    def connect(self) -> None:
        """Connect to the broker. Raises: UnreachableError."""
        try:
            connected = socket.create_connection(
                (_resolvable(self._host), self._port), self._options.connect_timeout_ms / 1000
            )
        except socket.gaierror as error:
            raise UnresolvedError(
                f"{self.address}: the name {self._host!r} cannot be resolved ({reason(error)})"
            ) from error
        except OSError as error:
            raise UnreachableError(f"{self.address}: {reason(error)}") from error
        self._socket = connected
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for name, size_bytes in (
                (socket.SO_SNDBUF, self._options.send_buffer_bytes),
                (socket.SO_RCVBUF, self._options.receive_buffer_bytes),
            ):
                if size_bytes >= 0:
                    connected.setsockopt(socket.SOL_SOCKET, name, size_bytes)
        except OSError as error:
            failure = self._failure(error)
            connected.close()
            raise failure from error

    def negotiate(self) -> None:
        """Agree with the broker on TLS and versions, and log in. After a failure the connection is
        closed.

        Raises: ClientError of any kind.
        """
        try:
            self._wrap()
            self._open.settimeout(self._options.request_timeout_ms / 1000)
            run(self._frames.open(self._options.software_name), self._first_request)
            if self._options.security.uses_sasl:
                self._log_in()
        except BaseException:
            self.close()
            raise
        # ApiVersions proves nothing, since a broker responds to it before authentication
        self._is_proven = False

    @property
    def _open(self) -> socket.socket:
        assert self._socket is not None, "the connection is not connected"
        return self._socket

    def _wrap(self) -> None:
        """Begin TLS, if there is a context. Raises: TlsError, ConnectionLostError."""
        if self._context is None:
            return
        try:
            self._open.settimeout(self._options.tls_timeout_ms / 1000)
            self._socket = self._context.wrap_socket(self._open, server_hostname=self._host)
        except OSError as error:
            raise self._failure(error) from error

    def _first_request(self, kind: RequestKind[Any, Any], request: Any) -> Any:
        """The response to ApiVersions. If it takes long, the log says so."""
        self.send(kind, request)
        if self._options.logs_silence and not self._is_readable(SILENCE_S):
            from barnabas.client.notices import logger

            logger.warning(
                "barnabas: %s has taken the connection and does not answer: is a Kafka broker's "
                "listener at this port, with this kafka.security.protocol?",
                self.address,
            )
        return self.receive(kind)

    def _log_in(self) -> None:
        """Log in as the options say. Raises: LoginError; PassingError if there is no token now."""
        from barnabas.client.security import exchange

        security = self._options.security
        assert security.mechanism is not None
        lifetime_ms = self.log_in(security.mechanism, exchange(security), security.login_name)
        if lifetime_ms > 0:
            self._session_end_s = time.monotonic() + SESSION_USED * lifetime_ms / 1000

    def log_in(self, mechanism: str, login: Exchange, name: str) -> int:
        """Log in by SASL.

        Takes:  name, of the user, for messages.
        Gives:  the lifetime of the session in ms; 0 if it is unlimited.
        Raises: LoginError; PassingError if there is no token now.
        """
        from barnabas.client import sasl
        from barnabas.client.oauth import TokenError

        has_handshake = self.speaks(sasl.HANDSHAKE)
        try:
            return run(sasl.log_in(mechanism, login, has_handshake=has_handshake), self.request)
        except sasl.NoLoginError as error:
            raise LoginError(
                LoginFault.NO_LOGIN,
                "it takes no login",
                f"{self.address} takes no login: give kafka.security.protocol without SASL_, or "
                "another port",
                Code.ILLEGAL_SASL_STATE,
            ) from error
        except sasl.HandshakeRefusedError as error:
            has = ", ".join(error.mechanisms) or "none"
            raise LoginError(
                LoginFault.MECHANISM,
                f"it has {has}",
                f"{self.address} does not have kafka.sasl.mechanism={mechanism}; it has {has}"
                if error.code == Code.UNSUPPORTED_SASL_MECHANISM
                else f"{self.address} refuses a login with {code_name(error.code)}: this port may "
                "take none",
                error.code,
            ) from error
        except sasl.AuthenticationError as error:
            raise LoginError(
                LoginFault.USER,
                str(error),
                f"{self.address} refuses {name} by {mechanism}: {error}",
                Code.SASL_AUTHENTICATION_FAILED,
            ) from error
        except TokenError as error:
            text = f"{self.address}: there is no token for the login: {error}"
            if error.passes:
                raise PassingError(text) from error
            raise LoginError(LoginFault.TOKEN, str(error), text) from error

    @property
    def is_expired(self) -> bool:
        """Whether the login is about to expire. When it expires, the broker closes the
        connection.
        """
        return time.monotonic() >= self._session_end_s

    @property
    def is_closed(self) -> bool:
        """Whether this side has closed the connection."""
        return self._socket is None or self._socket.fileno() < 0

    def _failure(self, error: OSError) -> ClientError:
        """The error to raise for a failure of the socket: a transient one, or one that explains
        which setting is wrong.
        """
        ended = isinstance(error, ConnectionResetError)
        if self._context is not None:
            from barnabas.client.tls_faults import has_ended, tls_error

            if (of_settings := tls_error(error, self.address, self._open)) is not None:
                return of_settings
            if has_ended(error):
                return ConnectionLostError(
                    f"{self.address}: the connection was closed", self._hint()
                )
        hint = self._hint() if ended else ""
        if isinstance(error, TimeoutError) and not self.versions:
            hint = "; is a Kafka broker's listener at this port?"
        return ConnectionLostError(f"{self.address}: {reason(error)}", hint)

    def _hint(self) -> str:
        """A text with a possible reason why the connection was closed. It is empty if the security
        setting is known to be right.
        """
        return "" if self._is_proven else "; is kafka.security.protocol right for this port?"

    # --- versions

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and the highest version of each request that the broker supports, by API
        key.
        """
        return self._frames.versions

    def version_of(self, kind: RequestKind[Any, Any]) -> int:
        """The highest version of a kind of request that both sides support.

        Raises: UnsupportedRequestError if there is none.
        """
        return self._frames.version_of(kind)

    def speaks(self, kind: RequestKind[Any, Any]) -> bool:
        """Whether there is a version of a kind of request that both sides support."""
        return self._frames.speaks(kind)

    def level_of(self, feature: str) -> int:
        """The finalised level of a feature in the cluster (KIP-584); 0 if it is not finalised."""
        return self._frames.level_of(feature)

    # --- requests

    @property
    def unanswered(self) -> int:
        """The number of requests whose responses have not been received yet."""
        return len(self._frames.unanswered)

    def is_stale(self) -> bool:
        """Whether the broker closed the connection, or sent unexpected bytes, while it had no
        request to respond to.
        """
        return not self.unanswered and self._is_readable(0)

    def _is_readable(self, seconds: float) -> bool:
        """Wait until something can be received, or the connection is closed, or the time is
        over.
        """
        try:
            # this also works for descriptors above 1023, which select() does not accept
            with selectors.DefaultSelector() as selector:
                selector.register(self._open, selectors.EVENT_READ)
                return bool(selector.select(seconds))
        except (OSError, ValueError):
            return True

    @property
    def buffer_bytes(self) -> int:
        """The size of the receive buffer, which grows to the size of the largest response."""
        return len(self._buffer)

    def request(self, kind: RequestKind[Request, Response], request: Request) -> Response:
        """Send a request and wait for its response."""
        assert not self.unanswered, "the answer to another request is still to be received"
        self.send(kind, request)
        return self.receive(kind)

    def request_all(
        self, kind: RequestKind[Request, Response], requests: Sequence[Request]
    ) -> list[Response]:
        """Send requests, at most AT_ONCE before their responses are received. Gives: the responses,
        whose records must not be used.
        """
        responses = []
        for start in range(0, len(requests), AT_ONCE):
            part = requests[start : start + AT_ONCE]
            for request in part:
                self.send(kind, request)
            responses += [self.receive(kind) for _ in part]
        return responses

    def post(self, kind: RequestKind[Request, Any], request: Request) -> None:
        """Send a request that has no response, as Produce with acks=0."""
        self.send(kind, request)
        self._frames.expect_no_response()

    def send(self, kind: RequestKind[Request, Any], request: Request) -> None:
        """Send a request without waiting for its response.

        `receive` returns the responses in the order of the requests.
        """
        self._send_all([self._frames.encode(kind, request)])

    def send_encoded(
        self, kind: RequestKind[Any, Any], version: int, body: Sequence[Buffer]
    ) -> None:
        """Send a request whose body the caller has encoded, without joining its buffers."""
        self._send_all(self._frames.encode_around(kind, version, body))

    def _send_all(self, pieces: Sequence[Buffer]) -> None:
        """Send the pieces, without joining them where the socket permits it. Raises: ClientError,
        PassingError.
        """
        try:
            if len(pieces) == 1 or self._context is not None:
                self._open.sendall(pieces[0] if len(pieces) == 1 else b"".join(pieces))
                return
            unsent = [memoryview(piece) for piece in pieces if len(piece)]
            while unsent:
                sent_bytes = self._open.sendmsg(unsent[:PIECES_AT_ONCE])
                done = 0
                while done < len(unsent) and sent_bytes >= len(unsent[done]):
                    sent_bytes -= len(unsent[done])
                    done += 1
                del unsent[:done]
                if sent_bytes:
                    unsent[0] = unsent[0][sent_bytes:]
        except OSError as error:
            raise self._failure(error) from error

    def receive(self, kind: RequestKind[Any, Response]) -> Response:
        """Receive the response to the oldest request without a response, which must be of this
        kind.
        """
        size = self._frames.size_of(self._read(4))
        response = self._frames.decode(kind, self._read(size))
        self._is_proven = True
        return response

    def _read(self, size: int) -> memoryview:
        """Read the next bytes of the connection into a buffer, which the next response uses again
        unless the options forbid it.

        Allocating memory for each response would take longer than receiving the response.
        """
        if size > len(self._buffer) or not self._options.reuses_buffer:
            self._buffer = bytearray(size)
        view, have = memoryview(self._buffer)[:size], 0
        while have < size:
            try:
                count = self._open.recv_into(view[have:])
            except OSError as error:
                raise self._failure(error) from error
            if not count:
                raise ConnectionLostError(
                    f"{self.address}: the connection was closed", self._hint()
                )
            have += count
        return view

    def close(self) -> None:
        """Close the socket, unless it is already closed."""
        if self._socket is not None:
            self._socket.close()


class Calls:
    """How a client makes the calls that wait for a broker: here in the thread that needs them.

    A caller that must not block has a class of its own, whose methods make these calls in another
    thread.
    """

    def open(self, connection: Connection) -> None:
        """Connect, and agree on TLS, versions and the login."""
        connection.connect()
        connection.negotiate()

    def ask(
        self, connection: Connection, kind: RequestKind[Request, Response], request: Request
    ) -> Response:
        """Send a request, and wait for its response."""
        return connection.request(kind, request)

    def ask_all(
        self,
        connection: Connection,
        kind: RequestKind[Request, Response],
        requests: Sequence[Request],
    ) -> list[Response]:
        """Send requests of one kind, many before the first response is received. Gives: the
        responses, in the same order.
        """
        return connection.request_all(kind, requests)


HERE = Calls()


class Connections:
    """The connections of one client: one to each broker and purpose, opened on first use.

    All of them belong to one thread of one process.
    """

    def __init__(self, options: ClientOptions, calls: Calls = HERE) -> None:
        self.options = options
        self._calls = calls
        self.nodes: dict[int, Address] = {}  # the brokers in the last Metadata response
        self._open: dict[tuple[Address, str], Connection] = {}
        self._context: ssl.SSLContext | None = None
        self._pid = os.getpid()

    def close(self) -> None:
        """Close all connections. A connection is opened again when it is next used."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def after_fork(self) -> None:
        """Close the parent process's connections, if this is a child process.

        Closing the child's copy of a socket does not end the connection of the parent.
        """
        if self._pid != os.getpid():
            self.close()
            self._pid = os.getpid()

    def close_stale(self) -> None:
        """Discard connections that the broker closed while they were idle."""
        for key, connection in list(self._open.items()):
            if connection.is_stale():
                connection.close()
                del self._open[key]

    def keep_idle(self, buffer_bytes: int) -> None:
        """Keep idle connections whose buffer has at most this size, and close all others.

        A connection is idle if it is open and no response is outstanding.
        """
        self.close_stale()
        for key, connection in list(self._open.items()):
            if connection.unanswered or connection.buffer_bytes > buffer_bytes:
                connection.close()
                del self._open[key]

    def any(self, purpose: str = "") -> Connection:
        """Return an open connection, or open a new one to the first broker that accepts it.

        Raises: PassingError with the error of each broker; NoHostError if no host in
                kafka.bootstrap.servers can be resolved.
        """
        for (address, opened_for), connection in self._open.items():
            if opened_for == purpose and not connection.is_closed:
                return self.at(address, purpose)
        failures: list[PassingError] = []
        for address in dict.fromkeys((*self.nodes.values(), *self.options.bootstrap_servers)):
            try:
                return self.at(address, purpose)
            except PassingError as error:
                failures.append(error)
        reasons = "; ".join(map(str, failures))
        if not self.nodes and all(isinstance(error, UnresolvedError) for error in failures):
            raise NoHostError(
                reasons, f"no host of kafka.bootstrap.servers can be resolved: {reasons}"
            )
        if len(failures) == 1:
            raise failures[0]
        is_reached = not all(isinstance(error, UnreachableError) for error in failures)
        raise (PassingError if is_reached else UnreachableError)(reasons) from failures[0]

    def of_node(self, node: int, purpose: str = "") -> Connection:
        """Return the connection to a broker in the last Metadata response."""
        if node not in self.nodes:
            raise UnreachableError(f"broker {node} is not in the metadata")
        return self.at(self.nodes[node], purpose)

    def at(self, address: Address, purpose: str = "") -> Connection:
        """Return the connection to a broker's address. It is opened if it does not exist yet."""
        assert self._pid == os.getpid(), "a client does not survive a fork"
        connection = self._open.get((address, purpose))
        if connection is not None and connection.is_expired and not connection.unanswered:
            connection.close()
        if connection is None or connection.is_closed:
            self._open.pop((address, purpose), None)
            connection = Connection(address, self.options, self._tls())
            self._calls.open(connection)
            self._open[address, purpose] = connection
        return connection

    def _tls(self) -> ssl.SSLContext | None:
        """The TLS context, made once; None without TLS. Raises: TlsError."""
        if self._context is None and self.options.security.uses_tls:
            from barnabas.client.security import SecurityError, ssl_context

            try:
                self._context = ssl_context(self.options.security)
            except SecurityError as error:
                raise TlsError(TlsFault.SETTINGS, str(error), str(error)) from error
        return self._context

    def advice(self, error: Exception) -> str:
        """Return the text of an error. If no broker has ever responded, add what to check."""
        if self.nodes:
            return str(error)
        return (
            f"no broker of kafka.bootstrap.servers can be reached ({error}); check that one is "
            "running"
        )


def reason(error: OSError) -> str:
    """A short description of a socket error."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error)


def _resolvable(host: str) -> Any:
    """The name of a host for the resolver. For a text Python would load the tables of IDNA, which
    takes 2 ms.
    """
    return host.encode() if host.isascii() else host
