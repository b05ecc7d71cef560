"""Wrong passwords with each Python client, mechanism and protocol: each client reports the error,
and none is authenticated.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
import warnings
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaError, Producer
from helpers.scrapes import logins_at
from kafka import KafkaAdminClient
from kafka.errors import KafkaTimeoutError, SaslAuthenticationFailedError

from barnabas import LocalBroker

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

USER, WRONG = "alice", "not-hers"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A broker on which no login succeeds. At the end, each mechanism must have had failed
    logins.
    """
    settings = {"connection.failed.authentication.delay.ms": "1", "barnabas.metrics.port": "0"}
    users, tls = {USER: "hers"}, request.param == "SASL_SSL"
    with LocalBroker(users=users, tls=tls, settings=settings) as broker:
        yield broker
        for mechanism, (succeeded, failed) in logins_at(broker).items():
            assert (succeeded, failed > 0) == (0, mechanism in MECHANISMS), mechanism
        log = "".join(broker.output)
        assert "is user" not in log, "somebody got in"
        assert WRONG not in log


def _ca_file(broker: LocalBroker) -> str | None:
    return broker.ca_file if broker.security_protocol == "SASL_SSL" else None


def librdkafka(broker: LocalBroker, mechanism: str) -> None:
    """Check that librdkafka reports an authentication error."""
    errors: list[KafkaError] = []
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": broker.security_protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": WRONG,
        "log_level": 0,
        "error_cb": errors.append,
    }
    ca_file = _ca_file(broker)
    producer = Producer(settings | ({"ssl.ca.location": ca_file} if ca_file else {}))
    for _ in range(60):
        producer.poll(1)
        if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            return
    pytest.fail(f"it got {errors}")


def kafka_python(broker: LocalBroker, mechanism: str) -> None:
    """Check that kafka-python fails. It logs the authentication error, and retries until its
    timeout for the first connection.
    """
    with pytest.raises((SaslAuthenticationFailedError, KafkaTimeoutError)):
        KafkaAdminClient(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol=broker.security_protocol,
            ssl_cafile=_ca_file(broker),
            sasl_mechanism=mechanism,
            sasl_plain_username=USER,
            sasl_plain_password=WRONG,
            bootstrap_timeout_ms=1500,
        )


def aiokafka(broker: LocalBroker, mechanism: str) -> None:
    """Check that aiokafka raises an error."""

    async def begin() -> None:
        ca_file = _ca_file(broker)
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol=broker.security_protocol,
            ssl_context=ssl.create_default_context(cafile=ca_file) if ca_file else None,
            sasl_mechanism=mechanism,
            sasl_plain_username=USER,
            sasl_plain_password=WRONG,
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AiokafkaError):
        asyncio.run(asyncio.wait_for(begin(), 60))
    with warnings.catch_warnings():
        # aiokafka does not close the transport after the failed login.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [librdkafka, kafka_python, aiokafka])
def test_a_wrong_password_is_reported_by_each_client(
    broker: LocalBroker, client: Callable[[LocalBroker, str], None], mechanism: str
) -> None:
    """`client` checks the error; the fixture checks at the end that no login succeeded."""
    client(broker, mechanism)
