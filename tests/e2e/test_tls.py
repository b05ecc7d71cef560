"""Kafka clients over TLS: with and without SASL, with client certificates, and with certificates
that are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

from barnabas import LocalBroker
from barnabas.certificates import make_certificates

pytestmark = pytest.mark.e2e

USERS = {"alice": "her-secret"}
# This many records of 10 KB exceed the capacity of all buffers between client and broker.
LARGE = 300


def confluent(broker: LocalBroker, **more: str) -> dict[str, Any]:
    """Return librdkafka's settings for a client of this broker. An underscore in the name of an
    argument becomes a dot.
    """
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": broker.security_protocol,
        "ssl.ca.location": broker.ca_file,
        "log_level": 0,
    }
    return settings | {name.replace("_", "."): value for name, value in more.items()}


def write_and_read(broker: LocalBroker, topic: str, **more: str) -> None:
    """Commit a transaction of records larger than a TLS frame, and read it back with a group."""
    values = [os.urandom(10_000) for _ in range(LARGE)]
    producer = Producer(confluent(broker, transactional_id=topic, **more))
    producer.init_transactions(20)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(20)
    consumer = Consumer(
        confluent(broker, group_id="g", auto_offset_reset="earliest", **more)
        | {"fetch.min.bytes": 1_000_000, "fetch.wait.max.ms": 100}
    )
    consumer.subscribe([topic])
    read = []
    while len(read) < LARGE:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        read.append(message.value())
    consumer.close()
    assert read == values


def is_refused(settings: dict[str, Any]) -> bool:
    """Whether a client with these settings cannot request metadata."""
    producer = Producer(settings)
    try:
        producer.list_topics(timeout=2)
    except KafkaException:
        return True
    return False


def test_librdkafka_over_tls_with_a_user() -> None:
    sasl = {
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "alice",
        "sasl_password": "her-secret",
    }
    with LocalBroker(tls=True, users=USERS, topics=["t"]) as broker:
        assert broker.security_protocol == "SASL_SSL"
        write_and_read(broker, "t", **sasl)
        assert is_refused(confluent(broker, **{**sasl, "sasl_password": "wrong"}))
        assert is_refused(confluent(broker, security_protocol="SASL_PLAINTEXT", **sasl))
        assert "her-secret" not in "".join(broker.output)
        assert "does not speak TLS" in "".join(broker.output)


def test_a_required_client_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path / "foreign")
    settings = {"ssl.client.auth": "required"}
    with LocalBroker(tls=True, settings=settings) as broker:
        own = {
            "ssl_certificate_location": broker.certificate_file(),
            "ssl_key_location": broker.certificate_file(),
        }
        write_and_read(broker, "t", **own)
        assert is_refused(confluent(broker))
        foreign = str(tmp_path / "foreign" / "client.pem")
        assert is_refused(
            confluent(broker, ssl_certificate_location=foreign, ssl_key_location=foreign)
        )
        assert is_refused(
            confluent(broker, **own) | {"ssl.ca.location": str(tmp_path / "foreign" / "ca.pem")}
        )


def test_kafka_python_and_aiokafka_over_tls() -> None:
    with LocalBroker(tls=True, topics=["t"]) as broker:
        common = {"bootstrap_servers": broker.bootstrap_servers, "security_protocol": "SSL"}
        producer = KafkaProducer(ssl_cafile=broker.ca_file, **common)
        for number in range(LARGE):
            producer.send("t", bytes([number % 256]) * 10_000)
        producer.flush(30)
        producer.close()
        consumer = KafkaConsumer(
            "t", ssl_cafile=broker.ca_file, auto_offset_reset="earliest",
            consumer_timeout_ms=20_000, **common,
        )  # fmt: skip
        read = [next(consumer).value[0] for _ in range(LARGE)]
        consumer.close()
        assert read == [number % 256 for number in range(LARGE)]

        async def once_more() -> bytes:
            context = ssl.create_default_context(cafile=broker.ca_file)
            async with AIOKafkaProducer(ssl_context=context, **common) as writer:
                sent = await writer.send_and_wait("t", b"last")
            async with AIOKafkaConsumer("t", ssl_context=context, **common) as reader:
                (partition,) = reader.assignment()
                reader.seek(partition, sent.offset)
                value: bytes = (await reader.getone()).value
                return value

        assert asyncio.run(asyncio.wait_for(once_more(), 30)) == b"last"


def test_a_client_certificates_subject_is_the_principal_of_acls_and_audit_log(
    tmp_path: Path,
) -> None:
    settings = {
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U",
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:CLIENT",
        "barnabas.audit.log": str(tmp_path / "audit"),
    }
    with LocalBroker(tls=True, settings=settings) as broker:
        # Copy the certificate authority, which then signs the client certificates.
        for part in ("ca.pem", "ca-key.pem"):
            shutil.copy(Path(broker.ca_file).parent / part, tmp_path)
        make_certificates(tmp_path, clients=["client", "other"])
        topics = {}
        for name in ("client", "other"):
            own = {
                "ssl_certificate_location": str(tmp_path / f"{name}.pem"),
                "ssl_key_location": str(tmp_path / f"{name}.pem"),
            }
            producer = Producer(confluent(broker, **own))
            if name == "client":
                producer.produce("t", b"x")
                assert producer.flush(20) == 0
            topics[name] = set(producer.list_topics(timeout=20).topics)
        with socket.create_connection(("127.0.0.1", broker.port), 20) as stranger:
            context = ssl.create_default_context(cafile=broker.ca_file)
            with (
                contextlib.suppress(ssl.SSLError, ConnectionError),
                context.wrap_socket(stranger, server_hostname="localhost") as secured,
            ):
                secured.recv(1)  # with TLS 1.3 the client gets the error at its first read
    assert topics == {"client": {"t"}, "other": set()}
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    logins = {
        (line["principal"], line["resource_name"], line["allowed"])
        for line in lines
        if (line["request"], line["operation"]) == ("TLS", "AUTHENTICATE")
    }
    assert logins == {
        ("User:CLIENT", "SSL", True), ("User:OTHER", "SSL", True), ("User:ANONYMOUS", "SSL", False)
    }  # fmt: skip
