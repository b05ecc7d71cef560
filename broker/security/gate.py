"""Between the frames of a listener with SASL and the broker: what the authenticator decides is
carried out here.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.outbox import login_record
from barnabas.broker.security.authentication import (
    SASL_AUTHENTICATE,
    SERVE,
    Authentication,
    AuthenticationSettings,
    Authenticator,
    SaslServer,
)
from barnabas.broker.security.users import Users
from barnabas.protocol.errors import Code, ProtocolViolation
from barnabas.protocol.framing import SIZE, RequestHeader, read_request_header
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import MalformedMessageError
from barnabas.protocol.request_context import RequestContext

if TYPE_CHECKING:
    from barnabas.broker.core import Broker
    from barnabas.broker.listeners import ListenerConfig
    from barnabas.broker.outbox import ConnectionState

logger = logging.getLogger("barnabas.security")


class _Refusal(NamedTuple):
    """An answer, and the end of its connection, that are put off."""

    deadline_ms: int
    connection: ConnectionState
    pieces: Sequence[bytes | bytearray]
    reason: str


class SaslGate:
    """Lets requests of clients through that have shown who they are.

    Holds: refusals that wait for `connection.failed.authentication.delay.ms`, in their order.
    """

    def __init__(self, broker: Broker) -> None:
        config = broker.config
        self._broker = broker
        self._refusals: deque[_Refusal] = deque()
        self._now_ms = 0  # of the frame that is looked at
        self._is_audited = bool(config.barnabas_audit_log)
        self._failure_delay_ms = config.connection_failed_authentication_delay_ms
        self._authenticators = {
            listener.name: self._authenticator(listener)
            for listener in config.listeners
            if listener.has_sasl
        }

    def _authenticator(self, listener: ListenerConfig) -> Authenticator:
        broker, ids = self._broker, self._broker.ids
        users = Users(
            broker.config.users,
            listener.plain_passwords,
            broker.metadata.scram_credentials,
            broker.config.user_credentials,
            new_salt=lambda: ids.uuid().bytes,
        )
        return Authenticator(
            AuthenticationSettings(listener.sasl_mechanisms, listener.max_reauth_ms),
            users,
            new_nonce=lambda: ids.uuid().hex + ids.uuid().hex,
            refusal=_refusal,
            new_bearer_server=self._bearer_servers(listener),
        )

    def _bearer_servers(self, listener: ListenerConfig) -> Callable[[], SaslServer] | None:
        """What makes OAUTHBEARER's side of an exchange, where it is enabled."""
        if listener.oauth is None or listener.oauth_keys is None:
            return None
        from barnabas.broker.security.oauth import OAuthBearerServer, TokenValidator

        validator = TokenValidator(listener.oauth, listener.oauth_keys)
        return lambda: OAuthBearerServer(
            validator, lambda: self._now_ms + self._broker.wall.ahead_ms
        )

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
        """Whether the request goes its way; else it is answered here, or its connection ends.

        Raises: ProtocolViolation where it cannot be read.
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
            self._broker.outbox.admitted.append(connection.connection_id)
            connection.principal = f"User:{authentication.user}"
            logger.info(
                "%s is user '%s', by %s",
                connection.client_host.removeprefix("/"),
                authentication.user,
                authentication.mechanism,
            )
        if self._is_audited and (verdict.is_admitted or verdict.is_failure):
            self._broker.outbox.audit.append(
                login_record(connection, SASL_AUTHENTICATE, is_allowed=verdict.is_admitted)
            )
        pieces: Sequence[bytes | bytearray] = ()
        if isinstance(verdict.answer, bytes):
            pieces = (SIZE.pack(len(verdict.answer)) + verdict.answer,)
        elif verdict.answer is not None:
            header = read_request_header(frame)
            context = RequestContext(
                0, header.api_version, "", "", -1, header.api_key, header.correlation_id
            )
            pieces = self._broker.encode(context, verdict.answer)
        refusal = _Refusal(now_ms, connection, pieces, verdict.close)
        if verdict.is_failure and self._failure_delay_ms:
            deadline_ms = now_ms + self._failure_delay_ms
            self._refusals.append(refusal._replace(deadline_ms=deadline_ms))
        else:
            self._carry_out(refusal)
        return False

    def _carry_out(self, refusal: _Refusal) -> None:
        connection_id = refusal.connection.connection_id
        if refusal.pieces:
            self._broker.answer(connection_id, refusal.pieces)
        if refusal.reason:
            self._broker.close(connection_id, refusal.reason)

    def next_deadline_ms(self) -> int | None:
        """When the next refusal is due."""
        return self._refusals[0].deadline_ms if self._refusals else None

    def on_tick(self, now_ms: int) -> None:
        """Send the refusals that are due."""
        while self._refusals and self._refusals[0].deadline_ms <= now_ms:
            refusal = self._refusals.popleft()
            if self._broker.connections.get(refusal.connection.connection_id) is refusal.connection:
                self._carry_out(refusal)


def _refusal(header: RequestHeader, frame: memoryview, code: Code) -> Message:
    """An answer of the request's own kind, with the error where it has a place for one.

    Raises: MalformedMessageError, IndexError or struct.error where the request cannot be read.
    """
    from barnabas.broker.refusals import can_refuse, message_class, refusal

    api = header.api
    assert api is not None
    if not can_refuse(api.name):
        answer: Message = message_class(api, "Response")()
        if hasattr(answer, "error_code"):
            answer.error_code = code
        return answer
    request: Any = message_class(api, "Request")
    body = request.read(frame, header.body_start, header.api_version)[0]
    return refusal(api, header.api_version, body, code)
