"""The login by SASL: its requests, and the exchanges of PLAIN (RFC 4616), of SCRAM (RFC 5802, RFC
7677) and of OAUTHBEARER (RFC 7628).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Sequence

from barnabas.client.errors import code_name
from barnabas.client.frames import Steps
from barnabas.client.request_kind import RequestKind
from barnabas.client.security_options import PLAIN, SCRAM_HASHES, TokenSource
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

# A server that requests fewer iterations may be trying to obtain the password. More iterations
# would only use CPU.
LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 10_000_000
HANDSHAKE = RequestKind(SaslHandshakeRequest, SaslHandshakeResponse, 1, 1)
AUTHENTICATE = RequestKind(SaslAuthenticateRequest, SaslAuthenticateResponse, 0, 2)


class AuthenticationError(Exception):
    """The broker rejects the user, or does not prove its own identity."""


class NoLoginError(Exception):
    """The broker's listener does not use SASL."""


class HandshakeRefusedError(Exception):
    """The broker refuses the mechanism. mechanisms: those that it has."""

    def __init__(self, code: int, mechanisms: Sequence[str]) -> None:
        super().__init__(f"error code {code}")
        self.code, self.mechanisms = code, mechanisms


def log_in(mechanism: str, login: Exchange, *, has_handshake: bool = True) -> Steps[int]:
    """The steps of a login: SaslHandshake and SaslAuthenticate.

    Takes:  has_handshake, whether the broker supports SaslHandshake.
    Gives:  the lifetime of the session in ms; 0 if it is unlimited.
    Raises: NoLoginError, HandshakeRefusedError; AuthenticationError with the broker's reason;
            TokenError.
    Source: KIP-152; KIP-368 (lifetime of a session).
    """
    if not has_handshake:
        raise NoLoginError
    handshake = yield HANDSHAKE, SaslHandshakeRequest(mechanism)
    if handshake.error_code == Code.ILLEGAL_SASL_STATE:
        raise NoLoginError
    if handshake.error_code:
        raise HandshakeRefusedError(handshake.error_code, handshake.mechanisms)
    lifetime_ms = 0
    message: bytes | None = login.first()
    while message is not None:
        answer = yield AUTHENTICATE, SaslAuthenticateRequest(message)
        if answer.error_code:
            raise AuthenticationError(answer.error_message or code_name(answer.error_code))
        if answer.session_lifetime_ms > 0:
            lifetime_ms = answer.session_lifetime_ms
        message = login.answer(answer.auth_bytes)
    return lifetime_ms


def exchange_of_password(mechanism: str, username: str, password: str) -> Exchange:
    """Begin a login with PLAIN or SCRAM."""
    if mechanism == PLAIN:
        return PlainExchange(username, password)
    return ScramExchange(SCRAM_HASHES[mechanism], username, password)


class Exchange:
    """The client's side of a login.

    Call `first()`, and then `answer(challenge)` for each message of the server, until the result is
    None.
    """

    def first(self) -> bytes:
        raise NotImplementedError

    def answer(self, challenge: bytes) -> bytes | None:
        raise NotImplementedError


class PlainExchange(Exchange):
    """PLAIN (RFC 4616): name and password in clear text, for use only with TLS or in a trusted
    network.
    """

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class BearerExchange(Exchange):
    """OAUTHBEARER (RFC 7628): a token, which the broker verifies."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    def first(self) -> bytes:
        """Return the client's first message. Raises: TokenError if there is no token."""
        from barnabas.client.oauth import first_message, token_of

        return first_message(token_of(self._source), self._source.extensions)

    def answer(self, challenge: bytes) -> bytes | None:
        """Return None if the broker has accepted the token. Otherwise return the message to which
        the broker responds with the reason.
        """
        if not challenge:
            return None
        from barnabas.client.oauth import SEPARATOR, forget

        forget(self._source)
        return SEPARATOR.encode()


class ScramExchange(Exchange):
    """SCRAM (RFC 5802) without channel binding. The server also proves that it knows the password.

    Names and passwords are sent as UTF-8 without SASLprep, as Apache Kafka does.
    """

    def __init__(
        self, hash_name: str, username: str, password: str, nonce: str | None = None
    ) -> None:
        self._hash_name = hash_name
        self._password = password.encode()
        self._nonce = nonce or base64.b64encode(os.urandom(24)).decode()
        self._first_bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the response to the server's first message, or None after its last message.

        Raises: AuthenticationError if the server violates the RFC, rejects the user, or does not
                know the password.
        """
        try:
            text = challenge.decode()
            if self._server_signature is None:
                return self._final(text)
            self._verify(text)
            return None
        except ValueError as error:
            raise AuthenticationError("the broker's answer is not SCRAM") from error

    def _final(self, server_first: str) -> bytes:
        """The client's final message, with its proof, for the server's first one (RFC 5802).
        Raises: AuthenticationError.
        """
        attributes = _attributes(server_first)
        if "e" in attributes:
            raise AuthenticationError(f"the broker says {attributes['e']!r}")
        if not {"r", "s", "i"} <= attributes.keys() or "m" in attributes:
            raise AuthenticationError("the broker's answer is not SCRAM")
        nonce, iterations = attributes["r"], int(attributes["i"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("the broker's nonce does not begin with the client's")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise AuthenticationError(
                f"the broker asks for {iterations} iterations; {LEAST_ITERATIONS} to "
                f"{MOST_ITERATIONS} are supported"
            )
        salted = hashlib.pbkdf2_hmac(
            self._hash_name,
            self._password,
            base64.b64decode(attributes["s"], validate=True),
            iterations,
        )
        without_proof = f"c=biws,r={nonce}"  # biws is "n,," encoded in base64
        message = f"{self._first_bare},{server_first},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash_name, client_key).digest(), message)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, server_final: str) -> None:
        """Check the server's signature, by which it proves that it has the credential. Raises:
        AuthenticationError.
        """
        attributes = _attributes(server_final)
        if "e" in attributes:
            raise AuthenticationError(f"the broker says {attributes['e']!r}")
        assert self._server_signature is not None
        if not hmac.compare_digest(
            base64.b64decode(attributes.get("v", ""), validate=True), self._server_signature
        ):
            raise AuthenticationError(
                "the broker does not prove that it has the password: another server may pose as "
                "the broker"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash_name).digest()


def _attributes(message: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in message.split(",") if part[1:2] == "="}
