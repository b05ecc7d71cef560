"""SCRAM's server side: the stored credential of a password, and the two messages of the client that
prove knowledge of the password.

    client  n,[a=USER],n=USER,r=NONCE                     first
    server  r=NONCE and more,s=SALT,i=ITERATIONS
    client  c=GS2 HEADER,r=THE WHOLE NONCE,p=PROOF        final
    server  v=SIGNATURE

Source: RFC 5802 (SCRAM), RFC 7677 (SHA-256); KIP-84, KIP-554. Binding to a TLS channel is not
offered.

librdkafka before 2.6.1 (kcat of Debian 12 and Ubuntu 24.04) sends the client's part of the nonce
twice in its final message. Such a login is accepted unless the emulated release refuses it. That
costs no security: the proof is made over the server's message, which has the fresh nonce of this
exchange, whatever the nonce in the final message is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

from barnabas.broker.security.stored import ScramCredential, ScramNonces

MOST_SHOWN = 100
LONGEST_MESSAGE = 4096
FEWEST_ITERATIONS, MOST_ITERATIONS = 4096, 16384
_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_VALUE = r"[^,\0]+"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authorization>{_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<user>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+){_EXTENSIONS})"
)
_FINAL = re.compile(
    r"(?P<without_proof>c=(?P<channel>[A-Za-z0-9+/=]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+))"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


OLD_LIBRDKAFKA = (
    "its nonce begins twice with the client's part, as librdkafka before 2.6.1 sends it "
    "(kcat of Debian 12): update the client, or use another mechanism; Apache Kafka 4.x refuses "
    "it, too"
)


class AuthenticationError(Exception):
    """A login failed. The text is for the broker's log, and contains no secret.

    answer: the text for the client, in place of the usual one.
    """

    def __init__(self, text: str, answer: str = "") -> None:
        super().__init__(text)
        self.answer = answer


def shown(name: str) -> str:
    """A client's name as the log shows it: a long name is shortened."""
    return name if len(name) <= MOST_SHOWN else f"{name[:MOST_SHOWN]}..."


class Mechanism(NamedTuple):
    """One of SCRAM's mechanisms: its number in Kafka's requests, and its hash."""

    name: str
    number: int
    hash_name: str

    def digest(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()


SCRAM_SHA_256 = Mechanism("SCRAM-SHA-256", 1, "sha256")
SCRAM_SHA_512 = Mechanism("SCRAM-SHA-512", 2, "sha512")
MECHANISMS = {mechanism.name: mechanism for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)}
BY_NUMBER = {mechanism.number: mechanism for mechanism in MECHANISMS.values()}


def credential_of(
    mechanism: Mechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential of a password. Clients send the password already salted and iterated."""
    client_key = mechanism.digest(salted_password, b"Client Key")
    server_key = mechanism.digest(salted_password, b"Server Key")
    return ScramCredential(salt, mechanism.hash(client_key), server_key, iterations)


def salted(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Salt and iterate a password, by the function Hi() of RFC 5802. Even the smallest allowed
    number of iterations takes some milliseconds of CPU time.
    """
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


class ScramServer:
    """The server's side of one exchange.

    Takes: credential_of_user, a function that returns None for an unknown user; nonce, the server's
           part of the nonce, which is different for each exchange; nonces, which ones the client's
           final message may have.
    After: once `is_complete`, `user` is the client's name.
    """

    lifetime_ms: int | None = None
    refusal = ""

    def __init__(
        self,
        mechanism: Mechanism,
        credential_of_user: Callable[[str], ScramCredential | None],
        nonce: str,
        nonces: ScramNonces = "or repeated",
    ) -> None:
        self._mechanism, self._credential_of_user = mechanism, credential_of_user
        self._own_nonce, self._nonces = nonce, nonces
        self.user = ""
        self.is_complete = False
        self._gs2 = self._messages = self._nonce = ""
        self._credential: ScramCredential | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Return the response to the client's next message. Raises: AuthenticationError."""
        if self.is_complete:
            raise AuthenticationError("a message after the last one of the exchange")
        # bounded, since the first message of an unauthenticated client is stored
        if len(token) > LONGEST_MESSAGE:
            raise AuthenticationError(f"a message of more than {LONGEST_MESSAGE} bytes")
        try:
            text = token.decode()
        except UnicodeDecodeError as error:
            raise AuthenticationError("a message that is not text") from error
        return self._first(text) if self._credential is None else self._final(text)

    def _first(self, text: str) -> bytes:
        """Answer the client's first message by the nonce, the salt and the number of iterations
        (RFC 5802).
        """
        match = _FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationError("the client's first message is malformed")
        self.user = match["user"].replace("=2C", ",").replace("=3D", "=")
        if match["authorization"] not in (None, match["user"]):
            raise AuthenticationError(f"user '{shown(self.user)}' may not act for another user")
        self._credential = self._credential_of_user(self.user)
        if self._credential is None:
            name = shown(self.user)
            raise AuthenticationError(f"there is no {self._mechanism.name} user '{name}'")
        self._gs2 = match["gs2"]
        self._nonce = match["nonce"] + self._own_nonce
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._messages = f"{match['bare']},{answer}"
        return answer.encode()

    def _final(self, text: str) -> bytes:
        """Check the client's proof (RFC 5802). Gives: the server's signature, by which the client
        checks the server.
        """
        assert self._credential is not None
        match = _FINAL.fullmatch(text)
        if match is None:
            raise AuthenticationError("the client's final message is malformed")
        self._check_nonce(match["nonce"])
        if match["channel"] != base64.b64encode(self._gs2.encode()).decode():
            raise AuthenticationError("the client's final message binds another channel")
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error as error:
            raise AuthenticationError("the client's proof is malformed") from error
        mechanism, credential = self._mechanism, self._credential
        messages = f"{self._messages},{match['without_proof']}".encode()
        signature = mechanism.digest(credential.stored_key, messages)
        if len(proof) != len(signature):
            raise AuthenticationError("the client's proof has another length")
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        if not hmac.compare_digest(mechanism.hash(client_key), credential.stored_key):
            raise AuthenticationError(f"a wrong password for user '{self.user}'")
        self.is_complete = True
        return b"v=" + base64.b64encode(mechanism.digest(credential.server_key, messages))

    def _check_nonce(self, nonce: str) -> None:
        """Check the nonce of the final message. Raises: AuthenticationError."""
        if nonce == self._nonce or (
            self._nonces == "any beginning" and nonce.endswith(self._nonce)
        ):
            return
        if nonce != self._nonce.removesuffix(self._own_nonce) + self._nonce:
            raise AuthenticationError("the client's final message has another nonce")
        if self._nonces == "exact":
            raise AuthenticationError(
                f"the final message of user '{shown(self.user)}' is not of this exchange: "
                f"{OLD_LIBRDKAFKA}",
                f"Authentication failed during authentication by {self._mechanism.name}: "
                f"{OLD_LIBRDKAFKA}.",
            )
