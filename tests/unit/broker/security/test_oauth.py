"""OAUTHBEARER: the tokens that are accepted or refused, and the exchange."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest
from helpers.core_host import CoreHost
from helpers.tokens import AUDIENCE, ISSUER, Issuer, bearer_message

from barnabas.broker.admission.gate import READING_TIME_MS
from barnabas.broker.security.oauth import (
    LONGEST_MESSAGE,
    REFUSAL,
    KeySet,
    KeySetError,
    OAuthBearerServer,
    TokenSettings,
    TokenValidator,
    UnknownKeys,
    parse_keys,
)
from barnabas.broker.security.scram import AuthenticationError
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.setting import ConfigError
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest


class FromNow(NamedTuple):
    """A time in a claim, as the number of seconds from the start of the test."""

    seconds: int


def resolved(claims: dict[str, Any]) -> dict[str, Any]:
    """Replace each FromNow in the claims by a time."""
    now = time.time()
    return {
        name: now + value.seconds if isinstance(value, FromNow) else value
        for name, value in claims.items()
    }


SETTINGS = TokenSettings((AUDIENCE, "other"), ISSUER, 30, "sub", "scope")


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def keys_of(issuer: Issuer) -> KeySet:
    """Return the issuer's public keys in the form in which a reader stores them."""
    keys = KeySet()
    keys.keys = parse_keys(issuer.jwks())
    return keys


def user_of(issuer: Issuer, token: str, settings: TokenSettings = SETTINGS) -> str:
    validator = TokenValidator(settings, keys_of(issuer))
    return validator.bearer(token, int(time.time() * 1000)).name


def unsigned(**claims: object) -> str:
    """An unsigned token (alg none) with valid claims, except those that are given."""
    now = int(time.time())
    values = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 60}
    parts: tuple[dict[str, Any], ...] = ({"alg": "none"}, values | claims)
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return (b".".join(texts) + b".").decode()


@pytest.mark.parametrize("key", ["rsa", "ec"])
def test_tokens_of_the_issuer_are_believed(issuer: Issuer, key: str) -> None:
    assert user_of(issuer, issuer.token(key=key)) == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["somebody", "other"]},
        {"scope": "read write"},
        {"scope": ["read"]},
        {"exp": FromNow(-20)},  # within the allowed clock skew
        {"nbf": FromNow(20)},
    ],
)
def test_claims_that_may_be(issuer: Issuer, claims: dict[str, Any]) -> None:
    assert user_of(issuer, issuer.token(**resolved(claims))) == "alice"


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"aud": "somebody"}, "Audience"),
        ({"aud": None}, "aud"),
        ({"iss": "https://foreign.example"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"exp": FromNow(-40)}, "expired"),
        ({"exp": None}, "claim exp"),
        ({"exp": "tomorrow"}, "claim exp"),
        ({"exp": 1e300}, "claim exp"),
        ({"iat": None}, "claim iat"),
        ({"iat": FromNow(60)}, "becomes valid in"),
        ({"nbf": FromNow(60)}, "becomes valid in"),
        ({"sub": None}, "claim sub"),
        ({"sub": " "}, "claim sub"),
        ({"sub": "\t\0"}, "claim sub"),
        ({"iss": "https"}, "issuer"),  # this is only a part of the expected issuer
        ({"iss": ""}, "issuer"),
        ({"scope": 7}, "claim scope"),
        ({"scope": ["read", ""]}, "claim scope"),
    ],
)
def test_tokens_with_invalid_claims_are_refused(
    issuer: Issuer, claims: dict[str, Any], words: str
) -> None:
    claims = resolved(claims)
    with pytest.raises(AuthenticationError, match=words):
        user_of(issuer, issuer.token(**{"user": claims.pop("sub", "alice"), **claims}))


@pytest.mark.parametrize(
    ("subject", "user"),
    [
        (" admin\t\n", "admin"),
        ("\0admin\x1f", "admin"),
        ("admin\xa0", "admin\xa0"),
        ("\u2003admin", "\u2003admin"),
        ("\u3000", "\u3000"),
    ],
)
def test_a_subject_is_trimmed_as_java_trims_it(issuer: Issuer, subject: str, user: str) -> None:
    assert user_of(issuer, issuer.token(subject)) == user


def test_tokens_with_invalid_signatures_are_refused(issuer: Issuer) -> None:
    good = issuer.token()
    header, claims, signature = good.split(".")
    public = issuer.jwks()["keys"][0]["n"]
    forged = {
        "another issuer's": Issuer().token(),
        "of other claims": f"{header}.{unsigned(sub='admin').split('.')[1]}.{signature}",
        "without one": f"{header}.{claims}.",
        "none": unsigned(),
        "no JWT": "abc",
        "an unknown key": jwt.encode({"sub": "a"}, issuer.keys["rsa"], "RS256", {"kid": "x"}),
        "another kind of key": jwt.encode({"sub": "a"}, issuer.keys["rsa"], "RS256", {"kid": "ec"}),
        "the public key as a secret": jwt.encode(
            {"sub": "a"}, public.ljust(64), "HS256", {"kid": "rsa"}
        ),
    }
    for why, token in forged.items():
        with pytest.raises(AuthenticationError) as error:
            user_of(issuer, token)
        assert token not in str(error.value), why


def test_other_names_of_claims(issuer: Issuer) -> None:
    settings = SETTINGS._replace(subject_claim="client_id", scope_claim="scp")
    assert user_of(issuer, issuer.token(client_id=" carol ", scope=7), settings) == "carol"


def test_unsigned_tokens_are_accepted_only_with_the_setting(issuer: Issuer) -> None:
    settings = SETTINGS._replace(believes_unsigned=True)
    assert user_of(issuer, unsigned(), settings) == "alice"
    for wrong in ({"aud": "x"}, {"iss": "x"}, {"exp": 1}):
        with pytest.raises(AuthenticationError):
            user_of(issuer, unsigned(**wrong), settings)
    with pytest.raises(AuthenticationError):  # a signed token needs a valid signature
        user_of(issuer, Issuer().token(), settings)


def test_a_token_with_an_unknown_key_causes_the_keys_to_be_read_again(issuer: Issuer) -> None:
    keys, asked = keys_of(issuer), []
    keys.on_unknown_key = lambda: asked.append(1)
    assert keys.key("rsa", 0) is not None
    assert asked == []
    assert keys.key("new", 0) is keys.key(None, 0) is None
    assert len(asked) == 2
    keys.keys = {"rsa": keys.keys["rsa"]}
    assert keys.key(None, 0) is keys.keys["rsa"], "there is no other that it may be"


def test_an_unknown_key_causes_at_most_one_read_a_minute() -> None:
    """The numbers are Apache Kafka's (RefreshingHttpsJwks): 60 s, 16 ids, 1000 characters."""
    unknown = UnknownKeys()
    times_ms = (0, 1, 59_999, 60_000, 60_001, 119_999, 120_000)
    assert [unknown.are_worth_a_read("new", now_ms) for now_ms in times_ms] == [
        True, False, False, True, False, False, True
    ]  # fmt: skip
    assert unknown.are_worth_a_read("new", 100), "the clock was set back"
    assert unknown.are_worth_a_read("x" * 1000, 100)
    assert not unknown.are_worth_a_read("x" * 1001, 100)


def test_made_up_ids_cause_no_more_than_sixteen_reads_a_minute() -> None:
    unknown = UnknownKeys()
    reads = [
        now_ms
        for now_ms in range(0, 180_000, 10)
        if unknown.are_worth_a_read(f"made-up-{now_ms}", now_ms)
    ]
    assert len(reads) == 3 * 16
    assert reads[:17] == [*range(0, 160, 10), 60_000]


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"keys": {}},
        {"keys": []},
        {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]},
        {"keys": [{"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"}]},
        {"keys": [{"kty": "RSA", "alg": "HS256", "n": "AQAB", "e": "AQAB"}]},
        {"keys": [{"kty": "RSA", "kid": "a", "d": "a-secret"}]},
    ],
)
def test_invalid_key_sets_are_refused_without_showing_a_secret(data: object) -> None:
    with pytest.raises(KeySetError) as error:
        parse_keys(data)
    assert "a-secret" not in str(error.value)


# --- the exchange -------------------------------------------------------------------------------


def server_of(issuer: Issuer) -> OAuthBearerServer:
    validator = TokenValidator(SETTINGS, keys_of(issuer))
    return OAuthBearerServer(validator, lambda: int(time.time() * 1000))


@pytest.mark.parametrize("before", ["n,,", "n,a=alice,", "n,,\x01traceId=7"])
def test_a_valid_first_message_completes_the_exchange(issuer: Issuer, before: str) -> None:
    server = server_of(issuer)
    assert server.evaluate(bearer_message(issuer.token(), before)) == b""
    assert (server.user, server.is_complete) == ("alice", True)
    assert server.lifetime_ms is not None
    assert 50_000 < server.lifetime_ms <= 60_000


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\xff",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer " + b"a" * LONGEST_MESSAGE + b"\x01\x01",
    ],
)
def test_an_invalid_message_gets_kafkas_refusal(issuer: Issuer, message: bytes) -> None:
    server = server_of(issuer)
    assert server.evaluate(message) == REFUSAL.encode()
    for second in (b"\x01", bearer_message(issuer.token())):
        with pytest.raises(AuthenticationError) as error:
            server.evaluate(second)
        assert error.value.answer == REFUSAL
    assert not server.is_complete


def test_a_user_may_not_act_for_another_user(issuer: Issuer) -> None:
    server = server_of(issuer)
    assert server.evaluate(bearer_message(issuer.token(), "n,a=admin,")) == REFUSAL.encode()
    with pytest.raises(AuthenticationError, match="'alice' may not act"):
        server.evaluate(b"\x01")


def test_the_name_that_a_client_acts_for_is_unescaped_once(issuer: Issuer) -> None:
    for user, said in (("a,b", "a=2Cb"), ("a=b", "a=3Db"), ("a=2Cb", "a=3D2Cb")):
        server = server_of(issuer)
        assert server.evaluate(bearer_message(issuer.token(user), f"n,a={said},")) == b"", user
        assert server.user == user
    server = server_of(issuer)
    assert server.evaluate(bearer_message(issuer.token("a,b"), "n,a=a=3D2Cb,")) == REFUSAL.encode()


# --- a broker -----------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path, issuer: Issuer) -> Iterator[CoreHost]:
    host = CoreHost(
        tmp_path,
        listeners="SASL_PLAINTEXT://:9092",
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url="file:///none",
        sasl_oauthbearer_expected_audience=AUDIENCE,
        sasl_oauthbearer_expected_issuer=ISSUER,
        connections_max_reauth_ms="3600000",
    )
    (listener,) = host.broker.config.listeners
    assert listener.oauth_keys is not None
    listener.oauth_keys.keys = parse_keys(issuer.jwks())
    host.wall_ahead_ms = int(time.time() * 1000) - host.now_ms
    yield host
    host.close()


@pytest.mark.parametrize("left_ms", [-9_000, -1, 0, 1, 60_000])
def test_a_session_has_an_end_however_little_is_left_of_its_token(
    issuer: Issuer, left_ms: int
) -> None:
    """The allowed clock skew accepts a token after its end. A session lifetime of 0 would mean a
    session without an end.
    """
    expires_s = int(time.time()) + 60
    validator = TokenValidator(SETTINGS._replace(clock_skew_s=10), keys_of(issuer))
    server = OAuthBearerServer(validator, lambda: expires_s * 1000 - left_ms)
    assert server.evaluate(bearer_message(issuer.token(exp=expires_s))) == b""
    assert server.lifetime_ms == max(1, left_ms)


def log_in(host: CoreHost, connection: int, message: bytes) -> Any:
    answer = host.call(connection, SaslHandshakeRequest("OAUTHBEARER"), 1)
    assert answer.error_code == Code.NONE
    return host.call(connection, SaslAuthenticateRequest(message), 1)


def test_a_session_ends_with_its_token(host: CoreHost, issuer: Issuer) -> None:
    host.connect(1)
    answer = log_in(host, 1, bearer_message(issuer.token()))
    assert answer.error_code == Code.NONE
    assert 50_000 < answer.session_lifetime_ms <= 60_000
    assert host.broker.connections[1].principal == "User:alice"
    host.call(1, MetadataRequest(topics=[]), 12)
    host.tick(50_000)
    host.call(1, MetadataRequest(topics=[]), 12)
    wall_ms = host.now_ms + host.wall_ahead_ms
    expires_s = wall_ms // 1000 + 150
    renewed = log_in(host, 1, bearer_message(issuer.token(exp=expires_s)))
    assert renewed.session_lifetime_ms == expires_s * 1000 - wall_ms
    host.tick(151_000)
    host.ask(1, MetadataRequest(topics=[]), 12)
    assert "has ended" in host.closed[1]


def test_a_refusal_is_sent_in_two_steps_as_by_apache_kafka(host: CoreHost) -> None:
    host.connect(1)
    answer = log_in(host, 1, bearer_message(Issuer().token()))
    assert (answer.error_code, bytes(answer.auth_bytes)) == (Code.NONE, REFUSAL.encode())
    host.ask(1, SaslAuthenticateRequest(b"\x01"), 1)
    host.tick(100)
    refusal = host.answers[1][-1]
    assert refusal.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert refusal.error_message == REFUSAL
    host.tick(READING_TIME_MS)
    assert "an invalid token" in host.closed[1]


def test_the_reason_is_logged_when_a_client_mistakes_the_refusal_for_a_success(
    host: CoreHost,
) -> None:
    """kafkajs and aiokafka mistake the refusal for a success, and send their next request."""
    host.connect(1)
    log_in(host, 1, bearer_message(Issuer().token()))
    answer = host.call(1, MetadataRequest(topics=[]), 12)
    assert answer is not None
    assert "an invalid token" in host.closed[1]


def test_tokens_with_made_up_keys_cause_at_most_sixteen_reads_a_minute(
    host: CoreHost,
) -> None:
    asked: list[int] = []
    (listener,) = host.broker.config.listeners
    assert listener.oauth_keys is not None
    listener.oauth_keys.on_unknown_key = lambda: asked.append(host.now_ms)
    began_ms = host.now_ms
    for number in range(40):
        header = base64.urlsafe_b64encode(
            json.dumps({"alg": "RS256", "kid": f"made-up-{number}"}).encode()
        )
        host.connect(number)
        log_in(host, number, bearer_message(f"{header.rstrip(b'=').decode()}.e30.AAAA"))
        host.tick(2_000)
    assert asked == [began_ms + 2_000 * number for number in (*range(16), *range(30, 40))]


# --- settings -----------------------------------------------------------------------------------


def config(**settings: str) -> BrokerConfig:
    """Settings of a listener with OAUTHBEARER."""
    return BrokerConfig.from_properties(
        {"listeners": "SASL_PLAINTEXT://:9092",
         "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "OAUTHBEARER"}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )  # fmt: skip


def test_oauthbearer_settings_have_kafkas_names() -> None:
    prefix = "listener.name.sasl_plaintext."
    taken = BrokerConfig.from_properties(
        {
            "listeners": "SASL_PLAINTEXT://:9092",
            f"{prefix}sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}oauthbearer.sasl.jaas.config": "a.OAuthBearerLoginModule required ;",
            f"{prefix}oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common."
            "security.oauthbearer.OAuthBearerValidatorCallbackHandler",
            f"{prefix}oauthbearer.sasl.oauthbearer.expected.audience": "a,b",
            f"{prefix}sasl.oauthbearer.sub.claim.name": "client_id",
            "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }
    )
    (listener,) = taken.listeners
    assert listener.oauth == TokenSettings(("a", "b"), ISSUER, 30, "client_id", "scope")


def test_a_configuration_without_keys_is_refused_unless_unsigned_tokens_are_allowed() -> None:
    with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url"):
        config()
    (listener,) = config(barnabas_oauthbearer_believe_unsigned_tokens_of_anybody="true").listeners
    assert listener.oauth is not None
    assert listener.oauth.believes_unsigned
