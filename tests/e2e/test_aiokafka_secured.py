"""aiokafka with each SASL mechanism, with and without TLS: it writes a transaction, and a group
reads the transaction and commits.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from helpers.scrapes import logins_at
from helpers.tokens import AUDIENCE, Issuer

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e

USER, PASSWORD = "alice", "her:secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def broker(
    request: pytest.FixtureRequest, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalBroker]:
    settings = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": issuer.write(tmp_path_factory.mktemp("k") / "jwks"),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "connection.failed.authentication.delay.ms": "1",
        "barnabas.metrics.port": "0",
    }
    users, tls = {USER: PASSWORD}, request.param == "SASL_SSL"
    with LocalBroker(users=users, tls=tls, settings=settings, topics=list(MECHANISMS)) as broker:
        assert broker.security_protocol == request.param
        yield broker


class Tokens(AbstractTokenProvider):
    """Gives one token."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def login(broker: LocalBroker, mechanism: str, token: str) -> dict[str, Any]:
    """aiokafka's settings, for its consumer and its producer, to log in to the broker."""
    context = None
    if broker.security_protocol == "SASL_SSL":
        context = ssl.create_default_context(cafile=broker.ca_file)
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": broker.security_protocol,
        "ssl_context": context,
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return settings | {"sasl_oauth_token_provider": Tokens(token)}
    return settings | {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_transaction_is_written_and_read_by_a_group(
    broker: LocalBroker, issuer: Issuer, mechanism: str
) -> None:
    settings = login(broker, mechanism, issuer.token(USER))

    async def write_and_read() -> None:
        producer = AIOKafkaProducer(transactional_id=f"of-{mechanism}", **settings)
        async with producer, producer.transaction():
            await producer.send_and_wait(mechanism, mechanism.encode())
        consumer = AIOKafkaConsumer(
            mechanism, group_id=f"of-{mechanism}", auto_offset_reset="earliest",
            isolation_level="read_committed", enable_auto_commit=False, **settings,
        )  # fmt: skip
        async with consumer:
            assert (await consumer.getone()).value == mechanism.encode()
            await consumer.commit()

    asyncio.run(asyncio.wait_for(write_and_read(), 60))
    succeeded, failed = logins_at(broker)[mechanism]
    assert succeeded >= 2
    assert failed == 0
    assert f"user '{USER}', by {mechanism}" in "".join(broker.output)


def test_a_token_of_another_issuer_is_refused(broker: LocalBroker) -> None:
    """aiokafka ignores that the token was refused. The broker then closes the connection at the
    next request.
    """
    settings = login(broker, "OAUTHBEARER", Issuer().token("mallory"))

    async def write() -> None:
        producer = AIOKafkaProducer(request_timeout_ms=1000, **settings)
        try:
            await producer.start()
            await producer.send_and_wait("PLAIN", b"x")
        finally:
            await producer.stop()

    before = logins_at(broker)["OAUTHBEARER"]
    with pytest.raises(KafkaError):
        asyncio.run(asyncio.wait_for(write(), 60))
    after = logins_at(broker)["OAUTHBEARER"]
    assert after[0] == before[0]
    assert after[1] > before[1]
    assert "an invalid token" in "".join(broker.output)
