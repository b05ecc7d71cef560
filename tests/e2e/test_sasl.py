"""Kafka clients that must authenticate: each mechanism, wrong passwords, and users that are added
and removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaProducer

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e

USER, PASSWORD = "alice", "her:secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A broker with one user, which answers failed logins without delay."""
    settings = {"connection.failed.authentication.delay.ms": "1"}
    with LocalBroker(users={USER: PASSWORD}, topics=["t"], settings=settings) as broker:
        yield broker


def confluent(broker: LocalBroker, mechanism: str, user: str, password: str) -> dict[str, Any]:
    """librdkafka's settings to log in."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_writes_and_reads(broker: LocalBroker, mechanism: str) -> None:
    settings = confluent(broker, mechanism, USER, PASSWORD)
    producer = Producer({**settings, "transactional.id": mechanism})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("t", mechanism.encode())
    producer.commit_transaction(20)
    consumer = Consumer({**settings, "group.id": mechanism, "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    values: set[bytes] = set()
    while mechanism.encode() not in values:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        values.add(message.value())
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_with_a_wrong_password_gets_an_authentication_error(
    broker: LocalBroker, mechanism: str
) -> None:
    errors: list[KafkaError] = []
    settings = confluent(broker, mechanism, USER, "wrong") | {"error_cb": errors.append}
    producer = Producer(settings)
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        producer.poll(1)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=0.5)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_writes(broker: LocalBroker, mechanism: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
    )
    assert producer.send("t", b"x").get(timeout=20).topic == "t"
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_writes(broker: LocalBroker, mechanism: str) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=USER,
            sasl_plain_password=PASSWORD,
        )
        async with producer:
            await producer.send_and_wait("t", b"x")

    asyncio.run(asyncio.wait_for(write(), 30))


def test_a_scram_user_that_a_client_created_survives_a_kill(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data", users={USER: PASSWORD}, topics=["t"]) as broker:
        admin = AdminClient(confluent(broker, "PLAIN", USER, PASSWORD))
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        made = UserScramCredentialUpsertion("bob", credential, b"his-secret")
        for future in admin.alter_user_scram_credentials([made]).values():
            future.result(20)
        broker.kill()
        broker.start()
        producer = Producer(confluent(broker, "SCRAM-SHA-512", "bob", "his-secret"))
        producer.produce("t", b"x")
        assert producer.flush(20) == 0
        admin = AdminClient(confluent(broker, "SCRAM-SHA-512", "bob", "his-secret"))
        described = admin.describe_user_scram_credentials(["bob"])["bob"].result(20)
        (info,) = described.scram_credential_infos
        assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_512, 4096)
        log = "".join(broker.output)
        assert "'bob'" in log
        assert "secret" not in log
        mode = (tmp_path / "data" / "barnabas-users").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600


def test_incomplete_requests_before_login_do_not_block_users() -> None:
    """Twenty clients that have not logged in each send 400 KiB of a request of 500 KiB, together
    more than queued.max.request.bytes. A user can still produce.
    """
    settings = {"queued.max.request.bytes": str(4 << 20)}
    with (
        contextlib.ExitStack() as strangers,
        LocalBroker(users={USER: PASSWORD}, topics=["t"], settings=settings) as broker,
    ):
        host, port = broker.bootstrap_servers.split(":")
        for _ in range(20):
            stranger = strangers.enter_context(socket.create_connection((host, int(port)), 10))
            stranger.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                stranger.send((500 << 10).to_bytes(4, "big") + bytes(400 << 10))
        producer = Producer(confluent(broker, "PLAIN", USER, PASSWORD))
        for _ in range(3):
            producer.produce("t", bytes(900_000))
            assert producer.flush(8) == 0, "it waits for the incomplete requests"


def test_a_client_without_sasl_is_not_served(broker: LocalBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    said = "has to authenticate first"
    while said not in "".join(broker.output):
        with pytest.raises(KafkaException):
            producer.list_topics(timeout=1)


def test_a_removed_users_open_transaction_is_aborted_at_its_timeout(tmp_path: Path) -> None:
    """The user's session continues to its end. Then further logins fail, and the open transaction
    is aborted at its timeout.
    """
    reauth = "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms"
    settings = {reauth: "1500", "connection.failed.authentication.delay.ms": "1"}
    users = {USER: PASSWORD}
    with LocalBroker(tmp_path / "data", users=users, topics=["t"], settings=settings) as broker:
        admin = AdminClient(confluent(broker, "PLAIN", USER, PASSWORD))
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change: Any = UserScramCredentialUpsertion("bob", credential, b"his-secret")
        admin.alter_user_scram_credentials([change])["bob"].result(20)
        producer = Producer(
            confluent(broker, "SCRAM-SHA-512", "bob", "his-secret")
            | {"transactional.id": "bobs", "transaction.timeout.ms": 4000}
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("t", b"x")
        assert producer.flush(20) == 0
        change = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)
        admin.alter_user_scram_credentials([change])["bob"].result(20)
        # Wait until the session of 1.5 s has ended, so that the user must log in again.
        time.sleep(1.6)
        with pytest.raises(KafkaException):
            producer.commit_transaction(6)
        other = Producer(confluent(broker, "PLAIN", USER, PASSWORD))
        other.produce("t", b"after it")
        assert other.flush(20) == 0
        consumer = Consumer(confluent(broker, "PLAIN", USER, PASSWORD) | {"group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        message = consumer.poll(30)
        assert message is not None and message.value() == b"after it", "his record is aborted"
        consumer.close()
