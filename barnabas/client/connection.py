"""The connections to brokers: TLS and login, negotiation of versions, framing of requests, and
responses in order, received into one reused buffer.

`Connections` keeps one connection to each address, and another one for each `purpose`. A broker
handles the requests of a connection one after the other. Requests that must not wait until
megabytes of records have been sent therefore use a separate connection.
"""

from __future__ import annotations

import itertools
import math
import os
import selectors
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas.client.notices import NOTICE_S, logger
from barnabas.client.oauth import TokenError
from barnabas.client.options import ClientOptions
from barnabas.client.request_kind import Request, RequestKind, Response
from barnabas.client.sasl import AuthenticationError, HandshakeRefusedError, NoLoginError, log_in
from barnabas.client.security import SecurityError, exchange, ssl_context
from barnabas.protocol.errors import Code
from barnabas.protocol.framing import decode_response, encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from barnabas.protocol.primitives import Buffer, MalformedMessageError

MAX_RESPONSE_BYTES = (1 << 31) - 1
# The maximum size of a response to ApiVersions. A larger response shows that the peer uses another
# protocol.
MAX_FIRST_RESPONSE_BYTES = 1 << 20
HTTP = int.from_bytes(b"HTTP")  # the size of a response, if its first bytes are those of HTTP's
# the part of a login's lifetime after which a new connection replaces the old one
SESSION_USED = 0.85
# How long an unknown topic is requested again. Some brokers may take a moment to learn of a new
# topic, but a topic whose name is wrong stays unknown.
UNKNOWN_TOPIC_PATIENCE_MS = 3000
PIECES_AT_ONCE = 512  # sendmsg takes at most IOV_MAX buffers, which is 1024 on Linux and macOS

Address = tuple[str, int]

PASSING = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.BROKER_NOT_AVAILABLE,
        Code.REPLICA_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.KAFKA_STORAGE_ERROR,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.LISTENER_NOT_FOUND,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class ClientError(Exception):
    """A broker cannot be reached, or rejects every attempt. The message says what to do."""


class RefusedError(ClientError):
    """A broker has responded with an error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnknownTopicError(ClientError):
    """For some seconds, no broker has known a topic or partition.

    The topic or partition does not exist, or it was deleted.
    """


class PassingError(ClientError):
    """A transient failure. The request is repeated for `patience_ms` from its first failure.

    Callers of the client never see this error. After that time they get a ClientError.
    """

    def __init__(self, message: str, patience_ms: float = math.inf) -> None:
        super().__init__(message)
        self.patience_ms = patience_ms


class UnresolvedError(PassingError):
    """A host name has no address.

    If this happens at a client's first request it is permanent, as in a Java client: the name is
    wrong, or there is no network.
    """


# Version 0 of ApiVersions is used first, since every broker supports it.
API_VERSIONS = RequestKind(ApiVersionsRequest, ApiVersionsResponse, 0, 0)
FEATURES = RequestKind(ApiVersionsRequest, ApiVersionsResponse, 3, 4)  # versions with features
# from version 10 on, the response has topic ids
METADATA = RequestKind(MetadataRequest, MetadataResponse, 1, 12)
# the first version in which a client can ask for a topic without creating it
METADATA_WITHOUT_CREATION = 4


class _Sent(NamedTuple):
    """A request that was sent and whose response has not been received yet."""

    kind: RequestKind[Any, Any]
    version: int
    correlation_id: int


class Connection:
    """A socket to one broker, with the versions that the broker supports.

    The responses have the order of the requests.
    """

    def __init__(
        self,
        address: Address,
        options: ClientOptions,
        context: ssl.SSLContext | None,
    ) -> None:
        self.address = f"{address[0]}:{address[1]}"
        self._options = options
        self._correlation_ids = itertools.count(1)
        self._unanswered: deque[_Sent] = deque()
        self._buffer = bytearray(64 * 1024)
        self._versions: dict[int, tuple[int, int]] = {}
        self._levels: dict[str, int] | None = None
        # whether a response of the broker has proven that the security settings are right
        self._is_proven = False
        self._session_end_s = math.inf
        self._socket = self._connect(address, context)
        try:
            self._negotiate()
        except BaseException:
            self.close()
            raise

    def _connect(self, address: Address, context: ssl.SSLContext | None) -> socket.socket:
        """Connect to the broker, with TLS if there is a context. Raises: PassingError; ClientError
        for a wrong setting.
        """
        try:
            connected = socket.create_connection(address, self._options.connect_timeout_ms / 1000)
        except socket.gaierror as error:
            raise UnresolvedError(
                f"{self.address}: the name {address[0]!r} cannot be resolved ({reason(error)})"
            ) from error
        except OSError as error:
            raise PassingError(f"{self.address}: {reason(error)}") from error
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for name, size_bytes in (
                (socket.SO_SNDBUF, self._options.send_buffer_bytes),
                (socket.SO_RCVBUF, self._options.receive_buffer_bytes),
            ):
                if size_bytes >= 0:
                    connected.setsockopt(socket.SOL_SOCKET, name, size_bytes)
            if context is not None:
                connected = context.wrap_socket(connected, server_hostname=address[0])
            connected.settimeout(self._options.request_timeout_ms / 1000)
        except OSError as error:
            connected.close()
            raise self._failure(error) from error
        except BaseException:
            connected.close()
            raise
        return connected

    def _negotiate(self) -> None:
        """Agree with the broker on versions, and log in."""
        self.send(API_VERSIONS, ApiVersionsRequest())
        if not self._is_readable(NOTICE_S):
            logger.warning(
                "barnabas: %s has taken the connection and does not answer: is a Kafka broker's "
                "listener at this port, with this kafka.security.protocol?",
                self.address,
            )
        answer = self.receive(API_VERSIONS)
        if answer.error_code:
            raise ClientError(
                f"{self.address} refuses ApiVersions with {code_name(answer.error_code)}"
            )
        self._versions = {
            api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
        }
        if self._options.security.uses_sasl:
            self._log_in()
        # ApiVersions proves nothing, since a broker responds to it before authentication
        self._is_proven = False

    def _log_in(self) -> None:
        """Log in by SASL. Raises: ClientError, or PassingError if there is no token for now."""
        security = self._options.security
        assert security.mechanism is not None
        try:
            lifetime_ms = log_in(self, security.mechanism, exchange(security))
        except NoLoginError as error:
            raise ClientError(
                f"{self.address} takes no login: give kafka.security.protocol without SASL_, or "
                "another port"
            ) from error
        except HandshakeRefusedError as error:
            if error.code == Code.UNSUPPORTED_SASL_MECHANISM:
                has = ", ".join(error.mechanisms) or "none"
                raise ClientError(
                    f"{self.address} does not have kafka.sasl.mechanism={security.mechanism}; it "
                    f"has {has}"
                ) from error
            raise ClientError(
                f"{self.address} refuses a login with {code_name(error.code)}: this port may take "
                "none"
            ) from error
        except TokenError as error:
            kind = PassingError if error.passes else ClientError
            raise kind(f"{self.address}: there is no token for the login: {error}") from error
        except AuthenticationError as error:
            raise ClientError(
                f"{self.address} refuses {security.login_name} by {security.mechanism}: {error}"
            ) from error
        if lifetime_ms > 0:
            self._session_end_s = time.monotonic() + SESSION_USED * lifetime_ms / 1000

    @property
    def is_expired(self) -> bool:
        """Whether the login is about to expire. When it expires, the broker closes the
        connection.
        """
        return time.monotonic() >= self._session_end_s

    def _failure(self, error: OSError) -> ClientError:
        """Return the error to raise for a failure of the socket.

        It is a transient error, or an error that explains which setting is wrong.
        """
        if isinstance(error, ssl.SSLCertVerificationError):
            if (
                "ostname mismatch" in error.verify_message
                or "IP address mismatch" in error.verify_message
            ):
                return ClientError(
                    f"{self.address}: the certificate is for another host "
                    f"({error.verify_message}); use its name in kafka.bootstrap.servers and "
                    "advertised.listeners, or set kafka.ssl.endpoint.identification.algorithm to "
                    "an empty text"
                )
            return ClientError(
                f"{self.address}: the broker's certificate is not trusted "
                f"({error.verify_message}); "
                "give the authority that signed it in kafka.ssl.truststore.location (PEM)"
            )
        if isinstance(error, ssl.SSLError):
            why = error.reason or ""
            if why in (
                "WRONG_VERSION_NUMBER",
                "HTTP_REQUEST",
                "UNKNOWN_PROTOCOL",
                "PACKET_LENGTH_TOO_LONG",
                "RECORD_LAYER_FAILURE",
            ):
                return ClientError(
                    f"{self.address} does not speak TLS ({why}): check kafka.security.protocol "
                    "for this port"
                )
            if "ALERT" in why:
                return ClientError(
                    f"{self.address} refuses TLS ({why}): it may require the client's "
                    "certificate: give one in kafka.ssl.keystore.location (PEM)"
                )
        ended = isinstance(error, ConnectionResetError | ssl.SSLEOFError)
        hint = self._hint() if ended else ""
        if isinstance(error, TimeoutError) and not self._versions:
            hint = "; is a Kafka broker's listener at this port?"
        return PassingError(f"{self.address}: {reason(error)}{hint}")

    def _hint(self) -> str:
        """Return a text with a possible reason why the connection was closed.

        It is empty if the security setting is known to be right.
        """
        return "" if self._is_proven else "; is kafka.security.protocol right for this port?"

    def version_of(self, kind: RequestKind[Any, Any]) -> int:
        """Return the highest version of a kind of request that both sides support.

        Raises: ClientError if there is no common version.
        """
        if kind is API_VERSIONS:
            return 0
        name, (_, _, first, last) = kind.request_class.__name__, kind
        lowest, highest = self._versions.get(kind.request_class.API_KEY, (0, -1))
        if not self.speaks(kind):
            has = (
                f"has {name} in versions {lowest} to {highest}"
                if highest >= 0
                else f"does not have {name}"
            )
            raise ClientError(f"{self.address} {has}; versions {first} to {last} are supported")
        return min(last, highest)

    def speaks(self, kind: RequestKind[Any, Any]) -> bool:
        """Whether there is a version of a kind of request that both sides support."""
        lowest, highest = self._versions.get(kind.request_class.API_KEY, (0, -1))
        return min(kind.last_version, highest) >= max(kind.first_version, lowest)

    def level_of(self, feature: str) -> int:
        """Return the finalised level of a feature in the cluster (KIP-584), or 0 if the feature is
        not finalised.

        The broker is asked once per connection. A broker that is too old is not asked.
        """
        if self._levels is None:
            self._levels = {}
            _, highest = self._versions.get(ApiVersionsRequest.API_KEY, (0, -1))
            if highest >= FEATURES.first_version:
                client = ApiVersionsRequest("barnabas-spark", "1")
                answer = self.request(FEATURES, client)
                self._levels = {
                    row.name: row.max_version_level
                    for row in answer.finalized_features
                    if answer.finalized_features_epoch >= 0
                }
        return self._levels.get(feature, 0)

    @property
    def unanswered(self) -> int:
        """The number of requests whose responses have not been received yet."""
        return len(self._unanswered)

    def is_stale(self) -> bool:
        """Whether the broker closed the connection, or sent unexpected bytes, while it had no
        request to respond to.
        """
        return not self._unanswered and self._is_readable(0)

    def _is_readable(self, seconds: float) -> bool:
        """Wait until something can be received, or the connection is closed, or the time is
        over.
        """
        try:
            # this also works for descriptors above 1023, which select() does not accept
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                return bool(selector.select(seconds))
        except (OSError, ValueError):
            return True

    @property
    def buffer_bytes(self) -> int:
        """The size of the receive buffer, which grows to the size of the largest response."""
        return len(self._buffer)

    def request(self, kind: RequestKind[Request, Response], request: Request) -> Response:
        """Send a request and wait for its response."""
        assert not self._unanswered, "the answer to another request is still to be received"
        self.send(kind, request)
        return self.receive(kind)

    def send(self, kind: RequestKind[Request, Any], request: Request) -> None:
        """Send a request without waiting for its response.

        `receive` returns the responses in the order of the requests.
        """
        version, correlation_id = self.version_of(kind), next(self._correlation_ids)
        frame = encode_request(request, version, correlation_id, self._options.client_id)
        self._send_all([frame])
        self._unanswered.append(_Sent(kind, version, correlation_id))

    def send_encoded(
        self, kind: RequestKind[Any, Any], version: int, body: Sequence[Buffer]
    ) -> None:
        """Send a request whose body the caller has encoded.

        The buffers of the body are not joined, which saves a copy of the records. The header has
        the format:

            int32 size, int16 api_key, int16 api_version, int32 correlation_id, nullable string
            client_id | flexible: no tagged fields
        """
        request_class, correlation_id = kind.request_class, next(self._correlation_ids)
        client_id = self._options.client_id.encode()
        header = struct.pack(
            ">hhih", request_class.API_KEY, version, correlation_id, len(client_id)
        )
        header += client_id
        if version >= request_class.FLEXIBLE_FROM:
            header += b"\0"
        size = len(header) + sum(map(len, body))
        self._send_all([struct.pack(">i", size) + header, *body])
        self._unanswered.append(_Sent(kind, version, correlation_id))

    def _send_all(self, pieces: Sequence[Buffer]) -> None:
        """Send the pieces, without joining them where the socket permits it. Raises: ClientError,
        PassingError.
        """
        try:
            if len(pieces) == 1 or isinstance(self._socket, ssl.SSLSocket):
                self._socket.sendall(pieces[0] if len(pieces) == 1 else b"".join(pieces))
                return
            unsent = [memoryview(piece) for piece in pieces if len(piece)]
            while unsent:
                sent_bytes = self._socket.sendmsg(unsent[:PIECES_AT_ONCE])
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
        sent = self._unanswered.popleft()
        assert sent.kind is kind, f"{sent.kind} was sent, and {kind} is to be received"
        (size,) = struct.unpack(">i", self._read(4))
        if size == HTTP and not self._versions:
            raise ClientError(
                f"{self.address} speaks HTTP, not Kafka's protocol: give the port of a listener "
                "in kafka.bootstrap.servers"
            )
        if not 4 <= size <= (MAX_RESPONSE_BYTES if self._versions else MAX_FIRST_RESPONSE_BYTES):
            raise ClientError(
                f"{self.address} does not speak Kafka's protocol, or speaks it over TLS "
                f"(kafka.security.protocol): an answer of {size} bytes"
            )
        frame = self._read(size)
        (correlation_id,) = struct.unpack_from(">i", frame)
        if correlation_id != sent.correlation_id:
            raise ClientError(
                f"{self.address} answers request {correlation_id} instead of {sent.correlation_id}"
            )
        self._is_proven = True
        try:
            response: Response
            _, response = decode_response(kind.response_class, frame, sent.version)
            return response
        except (struct.error, IndexError, MalformedMessageError) as error:
            raise ClientError(
                f"{self.address} sent an answer that cannot be decoded ({error})"
            ) from error

    def _read(self, size: int) -> memoryview:
        """Read the next bytes of the connection into a buffer, which the next response uses again.

        Allocating memory for each response would take longer than receiving the response.
        """
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        view, have = memoryview(self._buffer)[:size], 0
        while have < size:
            try:
                count = self._socket.recv_into(view[have:])
            except OSError as error:
                raise self._failure(error) from error
            if not count:
                raise PassingError(f"{self.address}: the connection was closed{self._hint()}")
            have += count
        return view

    def close(self) -> None:
        """Close the socket, unless it is already closed."""
        self._socket.close()


class Connections:
    """The connections of one client: one to each broker and purpose, opened on first use.

    All of them belong to one thread of one process.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
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

        Raises: PassingError with the error of each broker; ClientError if no host in
                kafka.bootstrap.servers can be resolved.
        """
        for address, opened_for in self._open:
            if opened_for == purpose:
                return self.at(address, purpose)
        failures: list[str] = []
        unresolved = 0
        for address in dict.fromkeys((*self.nodes.values(), *self.options.bootstrap_servers)):
            try:
                return self.at(address, purpose)
            except PassingError as error:
                failures.append(str(error))
                unresolved += isinstance(error, UnresolvedError)
        reasons = "; ".join(failures)
        if unresolved == len(failures) and not self.nodes:
            raise ClientError(f"no host of kafka.bootstrap.servers can be resolved: {reasons}")
        raise PassingError(reasons)

    def of_node(self, node: int, purpose: str = "") -> Connection:
        """Return the connection to a broker in the last Metadata response."""
        if node not in self.nodes:
            raise PassingError(f"broker {node} is not in the metadata")
        return self.at(self.nodes[node], purpose)

    def at(self, address: Address, purpose: str = "") -> Connection:
        """Return the connection to a broker's address. It is opened if it does not exist yet."""
        assert self._pid == os.getpid(), "a client does not survive a fork"
        connection = self._open.get((address, purpose))
        if connection is not None and connection.is_expired and not connection.unanswered:
            connection.close()
            connection = None
        if connection is None:
            connection = Connection(address, self.options, self._tls())
            self._open[address, purpose] = connection
        return connection

    def _tls(self) -> ssl.SSLContext | None:
        """The TLS context, made once; None without TLS. Raises: ClientError."""
        if self._context is None and self.options.security.uses_tls:
            try:
                self._context = ssl_context(self.options.security)
            except SecurityError as error:
                raise ClientError(str(error)) from error
        return self._context

    def advice(self, error: Exception) -> str:
        """Return the text of an error. If no broker has ever responded, add what to check."""
        if self.nodes:
            return str(error)
        return (
            f"no broker of kafka.bootstrap.servers can be reached ({error}); check that one is "
            "running"
        )


def metadata(
    connections: Connections,
    topics: Sequence[str] | None,
    *,
    create: bool = False,
    purpose: str = "",
) -> MetadataResponse:
    """Ask any broker for Metadata.

    Takes:  topics, None for all topics; create, whether missing topics are created if the broker
            allows this.
    After:  `connections.nodes` has the brokers in the response.
    """
    connection = connections.any(purpose)
    # Older versions of the request have no field for this. Their brokers create missing topics if
    # they are configured to do so.
    create = create or connection.version_of(METADATA) < METADATA_WITHOUT_CREATION
    answer = connection.request(
        METADATA,
        MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=create,
        ),
    )
    connections.nodes = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    return answer


def check(
    code: int, what: str, unknown_topic_patience_ms: float = UNKNOWN_TOPIC_PATIENCE_MS
) -> None:
    """Raise PassingError or RefusedError if the code is an error."""
    if code in PASSING:
        if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise PassingError(f"{what} does not exist", unknown_topic_patience_ms)
        if code in (Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID):
            raise PassingError(f"{what} does not exist under its id", unknown_topic_patience_ms)
        raise PassingError(f"{what}: {code_name(code)}")
    if code:
        raise RefusedError(code, f"{what}: {code_name(code)}")


def code_name(code: int) -> str:
    """The name of an error code."""
    try:
        return Code(code).name
    except ValueError:
        return f"error code {code}"


def reason(error: OSError) -> str:
    """A short description of a socket error."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLEOFError):
        return "the connection was closed"
    return error.strerror or str(error)
