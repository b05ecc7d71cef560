"""The gate between a listener with SASL and the broker, which acts on the authenticator's
decisions.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.connections.logins import Logins
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.observation.log_lines import BoundedLines
from barnabas.broker.outbox import Ids, Outbox
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.security.authentication import (
    SASL_AUTHENTICATE,
    SERVE,
    Authentication,
    AuthenticationSettings,
    Authenticator,
    SaslServer,
    Stage,
    Verdict,
)
from barnabas.broker.security.oauth import OAuthBearerServer, TokenValidator
from barnabas.broker.security.users import Users
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import ListenerConfig
from barnabas.protocol.errors import Code, ProtocolViolation
from barnabas.protocol.framing import SIZE, RequestHeader, read_request_header
from barnabas.protocol.message_classes import message_class
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import MalformedMessageError
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.wall_clock import WallClock

logger = logging.getLogger("barnabas.security")

HUNG_UP, MOST_LINES_OF_AN_ADDRESS = "hung up", 20  # lines per minute


# The time between the response to a failed login and the end of the connection. A client that
# receives both at once may see only the end, as kafka-python does. Most clients close the
# connection first.
READING_TIME_MS = 100


class _Refusal(NamedTuple):
    """A response to send after a delay, or a connection to close after a delay."""

    deadline_ms: int
    connection: ConnectionState
    pieces: Sequence[bytes | bytearray]
    reason: str


class SaslGate:
    """Passes the requests of authenticated clients to the broker.

    _refusals: the refusals that are delayed by `connection.failed.authentication.delay.ms`, in
    order. _ends: the connections that are closed when their clients have had time to read the
    refusal.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        ids: Ids,
        wall: WallClock,
        connections: Mapping[int, ConnectionState],
        outbox: Outbox,
        requests: Requests,
        logins: Logins,
    ) -> None:
        self._wall, self._connections, self._outbox = wall, connections, outbox
        self._requests, self._logins = requests, logins
        self._refusals: deque[_Refusal] = deque()
        self._ends: deque[_Refusal] = deque()
        self._lines = BoundedLines(MOST_LINES_OF_AN_ADDRESS)
        self._now_ms = 0  # the time of the current frame
        self._failure_delay_ms = config.connection_failed_authentication_delay_ms
        self._authenticators = {
            listener.name: self._authenticator(listener, config, metadata, ids)
            for listener in config.listeners
            if listener.has_sasl
        }

    def _authenticator(
        self, listener: ListenerConfig, config: BrokerConfig, metadata: ClusterMetadata, ids: Ids
    ) -> Authenticator:
        """The authenticator of a listener, with the users of its settings and of the metadata
        (SCRAM).
        """
        users = Users(
            config.users,
            listener.plain_passwords,
            metadata.scram_credentials,
            config.user_credentials,
            new_salt=lambda: ids.uuid().bytes,
        )
        return Authenticator(
            AuthenticationSettings(
                listener.sasl_mechanisms, listener.max_reauth_ms, config.release.scram_nonces
            ),
            users,
            new_nonce=lambda: ids.uuid().hex + ids.uuid().hex,
            refusal=_refusal,
            new_bearer_server=self._bearer_servers(listener),
        )

    def _bearer_servers(self, listener: ListenerConfig) -> Callable[[], SaslServer] | None:
        """The factory of OAUTHBEARER's server side; None if the mechanism is not enabled."""
        if listener.oauth is None or listener.oauth_keys is None:
            return None

        validator = TokenValidator(listener.oauth, listener.oauth_keys)
        return lambda: OAuthBearerServer(validator, lambda: self._now_ms + self._wall.ahead_ms)

    def on_connected(self, connection: ConnectionState) -> None:
        if connection.listener.has_sasl:
            connection.authentication = Authentication()

    def is_served(
        self,
        connection: ConnectionState,
        authentication: Authentication,
        frame: memoryview,
        now_ms: int,
    ) -> bool:
        """Whether the broker is to serve the request. Otherwise the gate responds to the request,
        or closes its connection.

        Raises: ProtocolViolation if the request cannot be read.
        """
        self._now_ms = now_ms
        try:
            authenticator = self._authenticators[connection.listener.name]
            verdict = authenticator.on_frame(authentication, frame, now_ms)
        except (struct.error, IndexError, MalformedMessageError) as error:
            raise ProtocolViolation(f"a request cannot be read: {error}") from error
        if verdict is SERVE:
            return True
        if verdict.is_admitted:
            self._admit(connection, authentication)
        self._record_login(connection, authentication, verdict)
        pieces = self._encoded(verdict, frame)
        refusal = _Refusal(now_ms, connection, pieces, verdict.close)
        if verdict.is_failure:
            authentication.fail()
            deadline_ms = now_ms + self._failure_delay_ms
            self._refusals.append(refusal._replace(deadline_ms=deadline_ms))
            # without a delay the refusal is due at once
            if not self._failure_delay_ms:
                self.on_tick(now_ms)
        else:
            self._answer(refusal)
            self._end(refusal)
        return False

    def _admit(self, connection: ConnectionState, authentication: Authentication) -> None:
        """The client is authenticated: set its principal, and let the rim lift the smaller limit of
        requests.
        """
        self._outbox.admitted.append(connection.connection_id)
        connection.principal, connection.access = f"User:{authentication.user}", None
        logger.info(
            "%s is user '%s', by %s",
            connection.client_host.removeprefix("/"),
            authentication.user,
            authentication.mechanism,
        )

    def _record_login(
        self, connection: ConnectionState, authentication: Authentication, verdict: Verdict
    ) -> None:
        """If a login has succeeded or failed, count it and write it to the audit log."""
        has_failed = verdict.is_failure or _ends_a_login(authentication, verdict)
        if not (verdict.is_admitted or has_failed):
            return
        self._logins.on_sasl(
            connection,
            authentication.mechanism,
            SASL_AUTHENTICATE,
            has_succeeded=verdict.is_admitted,
        )

    def _encoded(self, verdict: Verdict, frame: memoryview) -> Sequence[bytes | bytearray]:
        """The verdict's response as a frame; empty if the verdict has no response."""
        if isinstance(verdict.answer, bytes):
            return (SIZE.pack(len(verdict.answer)) + verdict.answer,)
        if verdict.answer is None:
            return ()
        header = read_request_header(frame)
        context = RequestContext(
            0, header.api_version, "", "", -1, header.api_key, header.correlation_id
        )
        return self._requests.encode(context, verdict.answer)

    def _answer(self, refusal: _Refusal) -> None:
        if refusal.pieces:
            self._requests.answer(refusal.connection.connection_id, refusal.pieces)

    def _end(self, refusal: _Refusal) -> None:
        if refusal.reason:
            self._requests.close(refusal.connection.connection_id, refusal.reason)

    def next_deadline_ms(self) -> int | None:
        """The time at which the next refusal is to be sent, or the next connection closed."""
        queues = self._refusals, self._ends
        return min((queue[0].deadline_ms for queue in queues if queue), default=None)

    def on_tick(self, now_ms: int) -> None:
        """Send the refusals that are due, and close the connections that are due."""
        for refusal in self._due(self._refusals, now_ms):
            self._answer(refusal)
            if refusal.pieces:
                self._ends.append(refusal._replace(deadline_ms=now_ms + READING_TIME_MS))
            else:
                self._end(refusal)
        for refusal in self._due(self._ends, now_ms):
            self._end(refusal)

    def _due(self, queue: deque[_Refusal], now_ms: int) -> Iterator[_Refusal]:
        """Take the due refusals from a queue. If the client has already disconnected, the refusal
        is only logged, in the same form as the rim logs closed connections. So every attempt is in
        the log.
        """
        for row in self._lines.left_out(now_ms):
            logger.warning(
                "%d more clients of %s closed the connection within a minute before their refusal",
                row.line_count,
                row.peer,
            )
        while queue and queue[0].deadline_ms <= now_ms:
            refusal = queue.popleft()
            connection = refusal.connection
            if self._connections.get(connection.connection_id) is connection:
                yield refusal
            else:
                host = connection.client_host.removeprefix("/")
                if self._lines.may_write(HUNG_UP, host, now_ms):
                    logger.warning("%s closed the connection: %s", host, refusal.reason)


def _ends_a_login(authentication: Authentication, verdict: Verdict) -> bool:
    """Whether the connection ends because its request does not belong to the exchange."""
    stage = authentication.stage
    return bool(verdict.close) and stage not in (Stage.AUTHENTICATED, Stage.FAILED)


def _refusal(header: RequestHeader, frame: memoryview, code: Code) -> Message:
    """The response that refuses everything that the request names.

    Raises: MalformedMessageError, IndexError or struct.error if the request cannot be read.
    """
    api = header.api
    assert api is not None
    request = message_class(api, "Request").read(frame, header.body_start, header.api_version)[0]
    return request.error_response(header.api_version, code)
