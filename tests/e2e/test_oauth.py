"""Kafka clients with tokens: valid tokens, expired ones, tokens of another issuer, and a session
that is renewed with the next token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from confluent_kafka import KafkaError, KafkaException, Producer
from helpers.tokens import AUDIENCE, ISSUER, Issuer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def settings(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.write(tmp_path_factory.mktemp("k") / "jwks"),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "connection.failed.authentication.delay.ms": "1",
    }


@pytest.fixture(scope="module")
def broker(settings: dict[str, str]) -> Iterator[LocalBroker]:
    with LocalBroker(settings=settings) as broker:
        yield broker


def confluent(broker: LocalBroker, token: Any, **more: Any) -> Producer:
    """A librdkafka producer that logs in with the tokens of this function."""
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token(), time.time() + 60),
            "log_level": 0,
            **more,
        }
    )


def test_librdkafka_with_a_token_and_the_next_one(settings: dict[str, str], issuer: Issuer) -> None:
    """The session expires with the token, and is renewed with the next token. No request fails.

    The broker's clock is stopped, so that the client renews in time on any machine.
    """
    given: list[float] = []
    issued_s = int(time.time())

    def token() -> str:
        given.append(time.time())
        return issuer.token("carol", iat=issued_s, exp=frozen_at_s + 4)

    errors: list[KafkaError] = []
    admitted = "'carol', by OAUTHBEARER"
    with LocalBroker(settings=settings, control=True) as broker, broker.control.frozen():
        frozen_at_s = int(time.time())
        producer = confluent(
            # The client renews a token before the time that the callback returns, here two seconds
            # later.
            broker,
            token,
            oauth_cb=lambda _: (token(), time.time() + 2),
            error_cb=errors.append,
        )
        producer.poll(0)
        while len(given) < 3 or "".join(broker.output).count(admitted) < 3:
            producer.produce("t", b"x")
            assert producer.flush(20) == 0
            producer.poll(0.1)
        assert [error.code() for error in errors] == []
        assert "has ended" not in "".join(broker.output)


@pytest.mark.parametrize("kind", ["expired", "foreign"])
def test_librdkafka_gets_an_authentication_error_for_an_invalid_token(
    broker: LocalBroker, issuer: Issuer, kind: str
) -> None:
    tokens = {
        "expired": issuer.token(exp=int(time.time()) - 1),
        "foreign": Issuer().token(),
    }
    errors: list[KafkaError] = []
    producer = confluent(broker, lambda: tokens[kind], error_cb=errors.append)
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        producer.poll(1)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=0.5)
    assert any("invalid_token" in error.str() for error in errors)
    assert tokens[kind] not in "".join(broker.output)


class Tokens(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


class AsyncTokens(AsyncTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def test_kafka_python_and_aiokafka(broker: LocalBroker, issuer: Issuer) -> None:
    common = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    producer = KafkaProducer(sasl_oauth_token_provider=Tokens(issuer.token()), **common)
    assert producer.send("t", b"x").get(timeout=20).topic == "t"
    producer.close()

    async def once_more() -> None:
        tokens = AsyncTokens(issuer.token())
        async with AIOKafkaProducer(sasl_oauth_token_provider=tokens, **common) as writer:
            await writer.send_and_wait("t", b"x")

    asyncio.run(asyncio.wait_for(once_more(), 30))
