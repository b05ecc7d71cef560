"""The connector reads and publishes over TLS and with logins, through a listener in front of the
real daemon.
"""

from __future__ import annotations

import pickle
import ssl
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

pytest.importorskip("pyarrow")

from helpers.e2e_clients import unique
from helpers.guarded_listener import TLS_FILES, GuardedListener, SaslServer, server_context

from barnabas import LocalBroker
from barnabas.client.cluster_reader import ClientError, ClusterReader
from barnabas.client.options import ClientOptions
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.read.options import parse_source_options
from barnabas.spark_connector.read.planning import plan
from barnabas.spark_connector.read.reading import read_range
from barnabas.spark_connector.write.publishing import Publisher, PublishSettings

pytestmark = pytest.mark.e2e

CA, CLIENT = str(TLS_FILES / "ca.pem"), str(TLS_FILES / "client.pem")
PASSWORD = "p4ss, w=rd"
TLS = {"security.protocol": "SSL", "ssl.truststore.location": CA, "ssl.truststore.type": "PEM"}


def login(
    mechanism: str, password: str = PASSWORD, protocol: str = "SASL_PLAINTEXT"
) -> dict[str, str]:
    """A client's settings to log in as alice."""
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    line = (
        f"org.apache.kafka.common.security.{module}LoginModule required "
        f'username="alice" password="{password}";'
    )
    return {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": line}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def listener() -> Iterator[GuardedListener]:
    """A listener in front of a broker that advertises the listener's address. Each test sets what
    the listener requires.
    """
    with (
        GuardedListener() as listening,
        LocalBroker(
            settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{listening.port}"}
        ) as broker,
    ):
        listening.broker_port = broker.port
        yield listening


def guard(
    listener: GuardedListener, *, tls: ssl.SSLContext | None = None, sasl: SaslServer | None = None
) -> None:
    """Set what the listener requires from now on."""
    listener.tls, listener.sasl = tls, sasl


def client_options(
    port: int, given: dict[str, str], topic: str = "t", host: str = "127.0.0.1"
) -> ClientOptions:
    """The connector's options for a client; `given` has Kafka's settings."""
    options = {f"kafka.{name}": value for name, value in given.items()}
    quick = {"kafka.default.api.timeout.ms": "200", "kafka.retry.backoff.ms": "20"}
    return parse_source_options(
        {"kafka.bootstrap.servers": f"{host}:{port}", "subscribe": topic, **quick, **options}
    ).client


def write_and_read(
    listener: GuardedListener, given: dict[str, str], record_batches: int = 3
) -> None:
    """Publish batches with the sink's publisher, and check that the source reads them back."""
    topic, name = unique("protected"), unique("query")
    # Spark sends the options to its executors.
    options = pickle.loads(pickle.dumps(client_options(listener.port, given, topic)))
    values = [b"%d" % index * 2000 for index in range(10)]

    def batch(number: int) -> EncodedRecordBatch:
        records = [NewRecord(None, b"%d:" % number + value, now_ms()) for value in values]
        return EncodedRecordBatch(topic, 0, len(records), encode_batch(records, transactional=True))

    with Publisher(options, PublishSettings(delivery_timeout_ms=600_000)) as publisher:
        for number in range(record_batches):
            publisher.commit_once(
                transactional_id=name,
                group_id=name,
                batch_id=number,
                metadata="",
                record_batches=lambda number=number: [batch(number)],
            )
    expected = [b"%d:" % number + value for number in range(record_batches) for value in values]
    parsed = parse_source_options(
        {
            "kafka.bootstrap.servers": f"127.0.0.1:{listener.port}",
            "subscribe": topic,
            **{f"kafka.{k}": v for k, v in given.items()},
        }
    )
    with ClusterReader(parsed.client) as client:
        ranges = plan(client, parsed)
        found = [
            value
            for wanted in ranges
            for part in read_range(
                client, wanted, ["value"], read_committed=True, fail_on_data_loss=True
            )
            for value in part.column(0).to_pylist()
        ]
    assert found == expected


def refused(port: int, given: dict[str, str], says: str, host: str = "127.0.0.1") -> None:
    """Check that a client with these settings fails with this error, and that the error does not
    contain the password.
    """
    with (
        ClusterReader(client_options(port, given, host=host)) as client,
        pytest.raises(ClientError, match=says) as raised,
    ):
        client.partitions_of(["t"])
    assert PASSWORD not in str(raised.value)


def test_tls(listener: GuardedListener) -> None:
    guard(listener, tls=server_context("server.pem"))
    write_and_read(listener, TLS)
    write_and_read(listener, {"security.protocol": "SSL", "ssl.ca.location": CA})


def test_tls_with_certificates_on_both_sides(listener: GuardedListener) -> None:
    guard(listener, tls=server_context("server.pem", ask_for_certificate=True))
    write_and_read(listener, {**TLS, "ssl.keystore.location": CLIENT, "ssl.keystore.type": "PEM"})
    pem = (
        (TLS_FILES / "client-certificate.pem").read_text(),
        (TLS_FILES / "client-key-encrypted.pem").read_text(),
    )
    inline = {
        "ssl.keystore.certificate.chain": pem[0],
        "ssl.keystore.key": pem[1],
        "ssl.key.password": "secret",
    }
    write_and_read(listener, {**TLS, **inline})
    refused(
        listener.port,
        TLS,
        r"refuses TLS .*kafka.ssl.keystore.location \(PEM\)|connection was closed|reset",
    )


def test_a_server_with_an_untrusted_certificate_or_another_hosts_one_is_refused(
    listener: GuardedListener,
) -> None:
    guard(listener, tls=server_context("server.pem"))
    refused(
        listener.port,
        {"security.protocol": "SSL"},
        r"certificate is not trusted .*kafka.ssl.truststore.location \(PEM\)",
    )
    guard(listener, tls=server_context("elsewhere.pem"))
    refused(
        listener.port,
        TLS,
        r"certificate is for another host .*kafka.ssl.endpoint.identification.algorithm",
    )
    refused(
        listener.port,
        TLS,
        r"certificate is for another host .*kafka.ssl.endpoint.identification.algorithm",
        host="localhost",
    )
    unchecked = {**TLS, "ssl.endpoint.identification.algorithm": ""}
    with ClusterReader(client_options(listener.port, unchecked)) as client:
        assert client.topics_matching("nothing") == []


def test_the_wrong_protocol_for_a_port(listener: GuardedListener) -> None:
    hint = "kafka.security.protocol"
    hinted = rf"(closed|reset by peer); is {hint} right for this port"
    guard(listener)
    refused(listener.port, TLS, hinted)
    refused(listener.port, login("PLAIN"), rf"takes no login: give {hint} without SASL_")
    guard(listener, tls=server_context("server.pem"))
    refused(listener.port, {}, rf"speaks it over TLS \({hint}\)|{hinted}")
    guard(listener, sasl=SaslServer("PLAIN", {"alice": PASSWORD}))
    refused(listener.port, {}, hinted)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_logins(listener: GuardedListener, mechanism: str) -> None:
    sasl = SaslServer(mechanism, {"alice": PASSWORD})
    guard(listener, sasl=sasl)
    write_and_read(listener, login(mechanism))
    assert set(sasl.logins) == {"alice"}
    before = len(sasl.logins)
    refused(
        listener.port,
        login(mechanism, "wrong"),
        rf"refuses user 'alice' by {mechanism}: Authentication failed: invalid",
    )
    other = "PLAIN" if mechanism != "PLAIN" else "SCRAM-SHA-512"
    refused(
        listener.port,
        login(other),
        rf"does not have kafka.sasl.mechanism={other}; it has {mechanism}",
    )
    assert len(sasl.logins) == before


def test_logins_over_tls(listener: GuardedListener) -> None:
    sasl = SaslServer("SCRAM-SHA-512", {"alice": PASSWORD})
    guard(listener, tls=server_context("server.pem"), sasl=sasl)
    write_and_read(listener, {**TLS, **login("SCRAM-SHA-512", protocol="SASL_SSL")})


def test_a_scram_server_that_does_not_know_the_password_is_refused(
    listener: GuardedListener,
) -> None:
    guard(listener, sasl=SaslServer("SCRAM-SHA-256", {}, knows_passwords=False))
    refused(
        listener.port,
        login("SCRAM-SHA-256"),
        "does not prove that it has the password",
    )


def test_publishing_with_a_wrong_password_fails_at_once(listener: GuardedListener) -> None:
    guard(listener, sasl=SaslServer("PLAIN", {"alice": PASSWORD}))
    options = client_options(listener.port, login("PLAIN", "wrong"))
    batch = EncodedRecordBatch(
        "t", 0, 1, encode_batch([NewRecord(None, b"x", now_ms())], transactional=True)
    )
    with (
        Publisher(options) as publisher,
        pytest.raises(ClientError, match="refuses user 'alice'"),
    ):
        publisher.commit_once(
            transactional_id="q",
            group_id="q",
            batch_id=0,
            metadata="",
            record_batches=lambda: [batch],
        )


def test_connections_are_replaced_before_their_login_expires(
    listener: GuardedListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener closes connections that are used after their lifetime. Both sides use the same
    clock, which advances with each batch.
    """
    now_s = 0.0
    monkeypatch.setattr(listener, "now_s", lambda: now_s)
    monkeypatch.setattr("barnabas.client.connection.time", SimpleNamespace(monotonic=lambda: now_s))
    sasl = SaslServer("PLAIN", {"alice": PASSWORD}, session_lifetime_ms=1000)
    guard(listener, sasl=sasl)
    topic, name = unique("relogin"), unique("query")
    options = client_options(listener.port, login("PLAIN"), topic)

    def record_batches() -> Iterator[EncodedRecordBatch]:
        nonlocal now_s
        start = len(sasl.logins)
        number = 0
        while (
            len(sasl.logins) < start + 2
        ):  # until the producer has replaced its connections twice while it publishes
            records = [NewRecord(None, b"%d" % number, now_ms())]
            yield EncodedRecordBatch(topic, 0, 1, encode_batch(records, transactional=True))
            number += 1
            now_s += 0.01

    with Publisher(options, PublishSettings(max_request_bytes=1)) as publisher:
        for number in range(2):
            done = publisher.commit_once(
                transactional_id=name,
                group_id=name,
                batch_id=number,
                metadata="",
                record_batches=record_batches,
            )
            assert done.attempts == 1
    assert listener.expired == 0
