"""The authentication of connections: the stages of a SASL login, and the requests in each stage.

    stage          request           result                                         next stage
    GREETING       ApiVersions       served                                         VERSIONS_SENT
    GREETING       SaslHandshake 1   answered; 33 and the end if unknown            TOKENS
     and           SaslHandshake 0   likewise                                       BARE_TOKENS
     VERSIONS_SENT anything else     the connection ends
    TOKENS         SaslAuthenticate  the mechanism's answer; 58 and the end         AUTHENTICATED
    TOKENS         anything else     its own answer with 34, and the end
    BARE_TOKENS    any bytes         the mechanism's answer, bare; or the end       AUTHENTICATED
    AUTHENTICATED  SaslHandshake     34; a renewal where sessions have an end       TOKENS
    AUTHENTICATED  SaslAuthenticate  34
    AUTHENTICATED  anything else     served; the end where the session has ended

Numbers are error codes, and "the end" means that the connection is closed. Neither a refused
ApiVersions nor a token that is not the last one changes the stage. If a client is refused, the
response and the end of its connection are delayed by
`connection.failed.authentication.delay.ms`. Source: KIP-43, KIP-152 (SaslAuthenticate), KIP-368
(sessions that are renewed), KIP-306 (the delay).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple, Protocol

from barnabas.broker.security.plain import PlainServer
from barnabas.broker.security.scram import MECHANISMS, AuthenticationError, ScramServer, shown
from barnabas.broker.security.stored import ScramNonces
from barnabas.broker.security.users import Users
from barnabas.protocol.client_software import PROBE, names_software
from barnabas.protocol.errors import Code
from barnabas.protocol.framing import RequestHeader, read_request_header
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
EXCHANGE = (SASL_HANDSHAKE, SASL_AUTHENTICATE)
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SHORTEST_RENEWAL_MS = 1000  # minimum time between two renewals (KIP-368)
SASL_STATE_ERROR = "this request is out of order in the SASL exchange"
NEVER_MS, FOREVER_MS = -(2**63), 2**63
_API_KEY = struct.Struct(">h")


class Stage(Enum):
    """The stage of a connection's login; see the table above."""

    GREETING = auto()
    VERSIONS_SENT = auto()
    TOKENS = auto()
    BARE_TOKENS = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


class SaslServer(Protocol):
    """The server's side of one SASL exchange. lifetime_ms: how long the client's credential is
    valid; None if it does not expire. refusal: the reason why the last token that was sent refuses
    the client; empty if it does not. After a refusal, the client's next message ends the exchange.
    """

    user: str
    refusal: str
    is_complete: bool
    lifetime_ms: int | None

    def evaluate(self, token: bytes) -> bytes:
        """Return the server's token in response to the client's token.
        Raises: AuthenticationError.
        """
        ...


class Authentication:
    """The state of one connection's authentication.

    user: the user of the last session, if there was one. session_end_ms: the steady time at which
    the session ends; None if it has no end. renewed_ms: the time of the last renewal; None if the
    session was never renewed. passes_until_ms: until this time every request, except those of the
    SASL exchange, is served without a check of this state.
    """

    __slots__ = (
        "_server", "mechanism", "passes_until_ms", "renewed_ms", "session_end_ms", "stage", "user",
    )  # fmt: skip

    def __init__(self) -> None:
        self.stage = Stage.GREETING
        self.passes_until_ms = NEVER_MS
        self.user: str | None = None
        self.mechanism = ""
        self.renewed_ms: int | None = None
        self.session_end_ms: int | None = None
        self._server: SaslServer | None = None

    def begin(self, server: SaslServer, stage: Stage) -> None:
        self._server, self.stage = server, stage
        self.passes_until_ms = NEVER_MS

    @property
    def server(self) -> SaslServer:
        assert self._server is not None, "a token before the handshake"
        return self._server

    def fail(self) -> None:
        """Record that the login has failed. The connection gets no second attempt."""
        self.stage, self._server = Stage.FAILED, None
        self.passes_until_ms = NEVER_MS

    def may_renew(self, now_ms: int) -> bool:
        """Whether the session has an end, and was not renewed within SHORTEST_RENEWAL_MS."""
        return self.session_end_ms is not None and (
            self.renewed_ms is None or now_ms >= self.renewed_ms + SHORTEST_RENEWAL_MS
        )

    def complete(self, now_ms: int, lifetime_ms: int) -> None:
        """The login, or its renewal (KIP-368), has succeeded. Takes: lifetime_ms, 0 for a session
        without an end.
        """
        if self.user is not None:
            self.renewed_ms = now_ms
        self.user, self._server = self.server.user, None
        self.stage = Stage.AUTHENTICATED
        self.session_end_ms = now_ms + lifetime_ms if lifetime_ms else None
        self.passes_until_ms = FOREVER_MS if self.session_end_ms is None else self.session_end_ms


class Verdict(NamedTuple):
    """The decision on a frame. With neither `answer` nor `close` the request is served.

    answer: a response message, or the bytes of a token without a header. close: why the connection
    is closed after the response. is_failure: whether the response and the close are delayed.
    is_admitted: whether this frame has authenticated the client.
    """

    answer: Message | bytes | None = None
    close: str = ""
    is_failure: bool = False
    is_admitted: bool = False


SERVE = Verdict()
# A larger request is refused without a response, since a response with rows would require reading
# all elements of the request.
LONGEST_SHAPED = 16 << 10
OTHER_MECHANISM = Verdict(close="a session can only be renewed with its own mechanism")


class AuthenticationSettings(NamedTuple):
    """The settings of authentication.

    mechanisms: the enabled mechanisms. max_reauth_ms: the duration of a session, by mechanism; 0 if
    it has no end. scram_nonces: which nonces the final message of SCRAM may have.
    """

    mechanisms: tuple[str, ...]
    max_reauth_ms: Mapping[str, int]
    scram_nonces: ScramNonces = "or repeated"


class Authenticator:
    """Decides on each frame of a connection that has to authenticate.

    Takes: users; new_nonce, which makes the server's part of a SCRAM nonce; refusal, which makes
           the response that refuses a request with an error code; new_bearer_server, which makes
           the server of an OAUTHBEARER exchange, or None if that mechanism is not enabled.
    """

    def __init__(
        self,
        settings: AuthenticationSettings,
        users: Users,
        new_nonce: Callable[[], str],
        refusal: Callable[[RequestHeader, memoryview, Code], Message],
        new_bearer_server: Callable[[], SaslServer] | None = None,
    ) -> None:
        self.settings, self._users, self._new_nonce = settings, users, new_nonce
        self._refusal = refusal
        self._new_bearer_server = new_bearer_server

    def on_frame(self, state: Authentication, frame: memoryview, now_ms: int) -> Verdict:
        """The decision on the frame.

        Raises: ProtocolViolation, MalformedMessageError, IndexError or struct.error if the frame
                cannot be read.
        """
        if state.stage is Stage.AUTHENTICATED:
            key = _API_KEY.unpack_from(frame)[0] if len(frame) >= _API_KEY.size else -1
            if key not in EXCHANGE:
                if state.session_end_ms is not None and now_ms >= state.session_end_ms:
                    return Verdict(close=f"the session of user '{state.user}' has ended")
                return SERVE
        if state.stage is Stage.FAILED:
            return Verdict(close="authentication has failed already")
        if state.stage is Stage.BARE_TOKENS:
            return self._on_bare_token(state, bytes(frame), now_ms)
        header = read_request_header(frame)
        if state.stage is Stage.TOKENS:
            if header.api_key == SASL_AUTHENTICATE and header.api is not None:
                return self._on_token(state, frame, header, now_ms)
            return self._on_no_token(state, frame, header)
        if header.api_key == SASL_HANDSHAKE and header.api is not None:
            return self._on_handshake(state, frame, header, now_ms)
        if state.stage is Stage.AUTHENTICATED:
            if header.api is None:
                # the core refuses the unsupported version of the request, as in any other stage
                return SERVE
            return Verdict(self._refusal(header, frame, Code.ILLEGAL_SASL_STATE))
        if header.api_key == API_VERSIONS and state.stage is Stage.GREETING:
            return self._on_versions(state, frame, header)
        return Verdict(close="the client has to authenticate first (SASL)")

    def _on_no_token(
        self, state: Authentication, frame: memoryview, header: RequestHeader
    ) -> Verdict:
        """Refuse a request that is sent in place of a token."""
        close = SASL_STATE_ERROR
        # After a refusal, kafkajs and aiokafka send another request. The reason of that refusal is
        # then the reason for closing the connection.
        if state.mechanism and state.server.refusal:
            close = f"authentication failed: {state.server.refusal}"
        if header.api is None or len(frame) > LONGEST_SHAPED:
            return Verdict(close=close)
        return Verdict(self._refusal(header, frame, Code.ILLEGAL_SASL_STATE), close)

    def _on_versions(
        self, state: Authentication, frame: memoryview, header: RequestHeader
    ) -> Verdict:
        """Serve ApiVersions. After a response without an error, the connection may not send it
        again.
        """
        if header.api is not None:
            request = ApiVersionsRequest.read(frame, header.body_start, header.api_version)[0]
            if names_software(request, header.api_version):
                state.stage = Stage.VERSIONS_SENT
        return SERVE

    def _on_handshake(
        self, state: Authentication, frame: memoryview, header: RequestHeader, now_ms: int
    ) -> Verdict:
        """Begin a login by the requested mechanism, or a renewal of the session (KIP-368). The
        login of an unsupported mechanism is refused with a delay, and closes the connection.
        """
        name = SaslHandshakeRequest.read(frame, header.body_start, header.api_version)[0].mechanism
        is_renewal = state.stage is Stage.AUTHENTICATED
        if is_renewal and not state.may_renew(now_ms):
            return Verdict(SaslHandshakeResponse(Code.ILLEGAL_SASL_STATE, []))
        enabled = list(self.settings.mechanisms)
        if name not in enabled:
            if header.client_id == PROBE and not is_renewal:
                # a question, no login: it is neither logged nor counted, and not delayed
                return Verdict(SaslHandshakeResponse(Code.UNSUPPORTED_SASL_MECHANISM, enabled))
            close = f"the mechanism '{shown(name)}' is not enabled: {', '.join(enabled)} are"
            if is_renewal:
                return Verdict(close=close)
            return Verdict(
                SaslHandshakeResponse(Code.UNSUPPORTED_SASL_MECHANISM, enabled), close, True
            )
        state.mechanism, before = name, state.mechanism
        if is_renewal and before != name:
            # The changed mechanism counts as an unknown one. The first token that the client sends
            # for it ends the connection.
            state.mechanism = ""
        stage = Stage.TOKENS if header.api_version > 0 else Stage.BARE_TOKENS
        state.begin(self._server_of(name), stage)
        return Verdict(SaslHandshakeResponse(Code.NONE, enabled))

    def _server_of(self, mechanism: str) -> SaslServer:
        """The server's side of a new exchange by the mechanism."""
        if mechanism == PLAIN:
            return PlainServer(self._users.passwords)
        if mechanism == OAUTHBEARER:
            assert self._new_bearer_server is not None, "it is enabled"
            return self._new_bearer_server()
        scram = MECHANISMS[mechanism]
        return ScramServer(
            scram,
            lambda user: self._users.credential(scram, user),
            self._new_nonce(),
            self.settings.scram_nonces,
        )

    def _on_token(
        self, state: Authentication, frame: memoryview, header: RequestHeader, now_ms: int
    ) -> Verdict:
        """Evaluate a token in SaslAuthenticate. A failed login is answered, with a delay, and
        closes the connection.
        """
        if not state.mechanism:
            return OTHER_MECHANISM
        request = SaslAuthenticateRequest.read(frame, header.body_start, header.api_version)[0]
        try:
            answer = self._evaluate(state, bytes(request.auth_bytes))
        except AuthenticationError as error:
            response = SaslAuthenticateResponse(
                Code.SASL_AUTHENTICATION_FAILED,
                error.answer
                or f"Authentication failed during authentication by {state.mechanism}: the user or "
                "the password is wrong, or the message is malformed.",
                b"",
            )
            return Verdict(response, f"authentication failed: {error}", True)
        lifetime_ms = self._maybe_complete(state, now_ms)
        response = SaslAuthenticateResponse(Code.NONE, None, answer, lifetime_ms)
        return Verdict(response, is_admitted=state.stage is Stage.AUTHENTICATED)

    def _on_bare_token(self, state: Authentication, token: bytes, now_ms: int) -> Verdict:
        """Evaluate a token without a request header, as sent after SaslHandshake version 0. A
        failed login closes the connection without an answer.
        """
        if not state.mechanism:
            return OTHER_MECHANISM
        try:
            answer = self._evaluate(state, token)
        except AuthenticationError as error:
            return Verdict(None, f"authentication failed: {error}", True)
        self._maybe_complete(state, now_ms)
        return Verdict(answer, is_admitted=state.stage is Stage.AUTHENTICATED)

    def _evaluate(self, state: Authentication, token: bytes) -> bytes:
        """The answer to a token. A renewal must be by the user of the session. Raises:
        AuthenticationError.
        """
        server = state.server
        answer = server.evaluate(token)
        if server.is_complete and state.user not in (None, server.user):
            raise AuthenticationError(f"the session is of user '{state.user}', not '{server.user}'")
        return answer

    def _maybe_complete(self, state: Authentication, now_ms: int) -> int:
        """Complete the login if the exchange is complete. Gives: the session's lifetime in ms; 0 if
        the session has no end, or the exchange is not complete.
        """
        if not state.server.is_complete:
            return 0
        limits = (self.settings.max_reauth_ms.get(state.mechanism), state.server.lifetime_ms)
        lifetime_ms = min((limit for limit in limits if limit), default=0)
        state.complete(now_ms, lifetime_ms)
        return lifetime_ms
