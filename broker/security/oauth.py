"""OAUTHBEARER's server side: one message with a signed token, which names the user.

    client  n,[a=USER],^Aauth=Bearer TOKEN^A[KEY=VALUE^A ...]^A
    server  nothing: the token is accepted
            {"status":"invalid_token"} for any refused token; the reason is only in the log
    client  ^A, after a refusal; the response has the reason as its error's text

^A is the byte 1. A token is a JWT (RFC 7519) that is signed with a key of the key set, by an
algorithm for that type of key. Shared secrets (HS256 ...) are not accepted. A token's claims are
checked as by Apache Kafka's validator:

    exp, iat      required; exp not past and iat, nbf not ahead by more than the clock skew
    iss, aud      must be the expected ones, if settings name some; a token with an audience is
                  refused unless that is expected
    sub           the name of the claim is a setting; a text, trimmed as Java does it: a no-break
                  space is a part of a name
    scope         the name of the claim is a setting; a text or a list of texts, if present

Source: RFC 7628 (the exchange), KIP-255, KIP-768 (settings and validation), KIP-368 (a session ends
with its token).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jwt
from jwt import PyJWK

from barnabas.broker.java_text import trimmed
from barnabas.broker.security.scram import AuthenticationError, shown

REFUSAL = '{"status":"invalid_token"}'
LONGEST_MESSAGE = 64 << 10
UNSIGNED = "none"
UNKNOWN_KEY_MS, MOST_UNKNOWN_IDS, LONGEST_UNKNOWN_ID = 60_000, 16, 1000
ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_PAIR = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_MESSAGE = re.compile(rf"n,(?:a=(?P<authorization>{_NAME}))?,\x01(?P<pairs>(?:{_PAIR})+)\x01")
_AUTH = re.compile(r"(?:^|\x01)auth=[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-_.A-Za-z0-9]+)\x01")
_TIMES_UNCHECKED = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}


class KeySetError(ValueError):
    """A set of keys cannot be read. The text says why."""


class VerificationKey(NamedTuple):
    """A public key, and the algorithms that a signature checked with it may use."""

    key: Any
    algorithms: tuple[str, ...]


class UnknownKeys:
    """The ids of unknown keys for which the key set was read again within the last minute.

    As in Apache Kafka, an unknown key id causes a read at most once a minute, and an id that is too
    long never causes one. Apache Kafka remembers 16 ids, and drops the oldest id to make room for a
    new one. Here a new id causes no read until the oldest id is a minute old, so that
    unauthenticated clients cause at most 16 reads a minute, whatever ids they invent. Each of these
    reads also finds new keys of the issuer.
    """

    def __init__(self) -> None:
        self._asked_ms: dict[str, int] = {}

    def are_worth_a_read(self, key_id: str, wall_ms: int) -> bool:
        """Whether the key set is to be read again because of a key id. If so, the id
        is remembered.
        """
        # also drops times that are after now, since the clock may have been set back
        self._asked_ms = {
            known: asked_ms
            for known, asked_ms in self._asked_ms.items()
            if 0 <= wall_ms - asked_ms < UNKNOWN_KEY_MS
        }
        if (
            len(key_id) > LONGEST_UNKNOWN_ID
            or key_id in self._asked_ms
            or len(self._asked_ms) >= MOST_UNKNOWN_IDS
        ):
            return False
        self._asked_ms[key_id] = wall_ms
        return True


class KeySet:
    """The keys that verify the signatures of tokens, by key id. The rim replaces them when the set
    has changed.

    on_unknown_key: called when a token's key is unknown and the key set is to be read again.
    """

    def __init__(self) -> None:
        self.keys: Mapping[str, VerificationKey] = {}
        self.on_unknown_key: Callable[[], object] = lambda: None
        self._unknown = UnknownKeys()

    def key(self, key_id: str | None, wall_ms: int) -> VerificationKey | None:
        """The key for a token's key id; None if it is unknown. A token without a key id is accepted
        if the set has only one key.
        """
        if key_id is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        key = None if key_id is None else self.keys.get(key_id)
        if key is None and self._unknown.are_worth_a_read(key_id or "", wall_ms):
            self.on_unknown_key()
        return key


def parse_keys(data: object) -> dict[str, VerificationKey]:
    """The keys of a JWKS (RFC 7517) that verify signatures. Raises: KeySetError."""
    rows = data.get("keys") if isinstance(data, Mapping) else None
    if not isinstance(rows, list):
        raise KeySetError('it must have the form {"keys": [...]}')
    keys = {}
    for number, row in enumerate(rows):
        if isinstance(row, Mapping) and row.get("use", "sig") == "sig":
            algorithms = ALGORITHMS.get(str(row.get("kty")), ())
            if "alg" in row:
                algorithms = tuple(name for name in algorithms if name == row["alg"])
            if algorithms:
                keys[str(row.get("kid", f"#{number}"))] = _key(row, algorithms)
    if not keys:
        raise KeySetError(f"it has no key of the kinds {', '.join(ALGORITHMS)} that signs")
    return keys


def _key(row: Mapping[str, Any], algorithms: tuple[str, ...]) -> VerificationKey:
    """The verification key of an entry. Raises: KeySetError, whose text contains no part of the
    key, since the file may contain a private key.
    """
    try:
        key = PyJWK.from_dict(dict(row)).key
    except (jwt.PyJWTError, ValueError, KeyError, TypeError) as error:
        kind = type(error).__name__
        raise KeySetError(
            f"its key {shown(str(row.get('kid')))!r} cannot be read ({kind})"
        ) from None
    return VerificationKey(key, algorithms)


class TokenSettings(NamedTuple):
    """The required properties of a token, from the settings `sasl.oauthbearer....`."""

    audiences: tuple[str, ...]
    issuer: str | None
    clock_skew_s: int
    subject_claim: str
    scope_claim: str
    believes_unsigned: bool = False


class Bearer(NamedTuple):
    """The user that a token names, and the end of the token's validity (ms since 1970)."""

    name: str
    expiry_ms: int


class TokenValidator:
    """Validates tokens."""

    def __init__(self, settings: TokenSettings, keys: KeySet) -> None:
        self._settings, self._keys = settings, keys

    def bearer(self, token: str, wall_ms: int) -> Bearer:
        """Return the user that a valid token names. Raises: AuthenticationError."""
        try:
            claims = self._claims(token, wall_ms)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise AuthenticationError(f"an invalid token: {shown(str(error))}") from error
        settings, now_s = self._settings, wall_ms / 1000
        expiry_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
        if expiry_s + settings.clock_skew_s <= now_s:
            raise AuthenticationError(f"a token that expired {now_s - expiry_s:.0f} s ago")
        earliest_s = max(issued_s, _time(claims, "nbf") if "nbf" in claims else issued_s)
        if earliest_s - settings.clock_skew_s > now_s:
            raise AuthenticationError(f"a token that becomes valid in {earliest_s - now_s:.0f} s")
        name = claims.get(settings.subject_claim)
        if not isinstance(name, str) or not trimmed(name):
            raise AuthenticationError(f"a token without a claim {settings.subject_claim}")
        scopes = claims.get(settings.scope_claim, [])
        for scope in scopes if isinstance(scopes, list) else [scopes]:
            if not isinstance(scope, str) or not trimmed(scope):
                raise AuthenticationError(f"a token whose claim {settings.scope_claim} is not text")
        return Bearer(trimmed(name), int(expiry_s * 1000))

    def _claims(self, token: str, wall_ms: int) -> dict[str, Any]:
        """The claims of a token, after its signature, issuer and audience are checked.

        Raises: jwt.PyJWTError, ValueError, TypeError, RecursionError (JSON that is nested deeply);
                AuthenticationError.
        """
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        settings = self._settings
        expected = {"audience": settings.audiences or None, "issuer": settings.issuer}
        if algorithm == UNSIGNED and settings.believes_unsigned:
            # times are checked by `bearer`, with the clock skew
            options = {"verify_signature": False, "verify_aud": True, "verify_iss": True}
            return dict(jwt.decode(token, options=options | _TIMES_UNCHECKED, **expected))
        key = self._keys.key(None if key_id is None else str(key_id), wall_ms)
        if key is None:
            raise AuthenticationError(f"a token of an unknown key: {shown(str(key_id))!r}")
        options = dict(_TIMES_UNCHECKED)
        return dict(
            jwt.decode(token, key.key, algorithms=key.algorithms, options=options, **expected)
        )


def _time(claims: Mapping[str, Any], name: str) -> float:
    """A claim that is a time, in seconds since 1970. Raises: AuthenticationError."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise AuthenticationError(f"a token whose claim {name} is not a time, or missing")
    return value


class OAuthBearerServer:
    """The server's side of one exchange.

    After: once `is_complete`, `user` is the name of the token's user, and `lifetime_ms` is how long
           the token is valid.
    """

    def __init__(self, validator: TokenValidator, wall_ms: Callable[[], int]) -> None:
        """Takes: wall_ms, which gives the wall time. `refusal` is the reason of a failed login."""
        self._validator, self._wall_ms = validator, wall_ms
        self.user = ""
        self.is_complete = False
        self.lifetime_ms: int | None = None
        self.refusal = ""

    def evaluate(self, token: bytes) -> bytes:
        """Return the response to the client's message. Raises: AuthenticationError."""
        if self.is_complete or self.refusal:
            raise AuthenticationError(
                self.refusal or "a message after the last one of the exchange", REFUSAL
            )
        try:
            bearer = self._bearer(token)
        except AuthenticationError as error:
            self.refusal = str(error)
            # RFC 7628: the error is sent as a challenge, and the exchange fails with the client's
            # next message
            return REFUSAL.encode()
        self.user, self.is_complete = bearer.name, True
        self.lifetime_ms = max(1, bearer.expiry_ms - self._wall_ms())
        return b""

    def _bearer(self, message: bytes) -> Bearer:
        """The bearer of the token in the client's message (RFC 7628). Raises:
        AuthenticationError.
        """
        if len(message) > LONGEST_MESSAGE:
            raise AuthenticationError(f"a message of more than {LONGEST_MESSAGE} bytes")
        try:
            match = _MESSAGE.fullmatch(message.decode())
        except UnicodeDecodeError as error:
            raise AuthenticationError("a message that is not text") from error
        auth = None if match is None else _AUTH.search(match["pairs"])
        if match is None or auth is None:
            raise AuthenticationError("the client's message is malformed")
        bearer = self._validator.bearer(auth["token"], self._wall_ms())
        authorization = (match["authorization"] or "").replace("=2C", ",").replace("=3D", "=")
        if authorization not in ("", bearer.name):
            raise AuthenticationError(f"user '{shown(bearer.name)}' may not act for another user")
        return bearer
