"""Each kind of protected connection and login."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.cli_commands import CommandLine
from helpers.guarded_listener import TLS_FILES, GuardedListener, server_context
from helpers.tokens import AUDIENCE, ISSUER, Issuer

from barnabas.cli.client.wording import closed_text, tls_text
from barnabas.client.tls_faults import tls_error
from barnabas.local_broker import LocalBroker

pytestmark = pytest.mark.e2e

USER = {"alice": "sec;ret"}
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
JAAS = 'org.apache.kafka.X{module}LoginModule required username="alice" password="sec;ret";'


class Client:
    """Runs commands with client settings in a file."""

    def __init__(self, tmp_path: Path, barnabas: CommandLine) -> None:
        self._file = tmp_path / "client.properties"
        self._barnabas = barnabas

    def _arguments(self, settings: Mapping[str, str]) -> tuple[str, str]:
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return ("--client-config", str(self._file))

    def works(self, servers: str, settings: Mapping[str, str]) -> None:
        """Check that an administration command, a write and a read succeed."""
        secured = (*self._arguments(settings), "-b", servers)
        barnabas = self._barnabas
        barnabas.ok("topics", "create", "orders", "--if-not-exists", *secured)
        assert "orders" in barnabas.ok("topics", "list", *secured).out
        barnabas.ok("produce", "orders", *secured, stdin="coffee\n")
        assert "coffee" in barnabas.ok("consume", "orders", "--group", "g", *secured).out
        assert barnabas.ok("groups", "list", "--json", *secured).data[0]["lag"] == 0
        assert barnabas.ok("check", "--json", *secured).data["healthy"] is True

    def error(self, servers: str, settings: Mapping[str, str]) -> str:
        """The error of a command that must fail."""
        secured = (*self._arguments(settings), "-b", servers)
        ended = self._barnabas("topics", "list", "--timeout", "1000", *secured)
        assert (ended.code, ended.out) == (1, ""), ended
        return ended.err.splitlines()[-1]


@pytest.fixture
def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Client:
    return Client(tmp_path, CommandLine(monkeypatch, capsys))


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, LocalBroker]]:
    """Two brokers with users, one without TLS and one with TLS."""
    with LocalBroker(users=USER) as plain, LocalBroker(users=USER, tls=True) as tls:
        yield {"SASL_PLAINTEXT": plain, "SASL_SSL": tls}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_users_with_passwords(
    client: Client, brokers: dict[str, LocalBroker], protocol: str, mechanism: str
) -> None:
    settings = {"security.protocol": protocol, "sasl.mechanism": mechanism}
    if protocol == "SASL_SSL":
        settings["ssl.truststore.location"] = str(brokers[protocol].ca_file)
    client.works(
        brokers[protocol].bootstrap_servers,
        settings | {"sasl.username": "alice", "sasl.password": "sec;ret"},
    )
    module = "Plain" if mechanism == "PLAIN" else "Scram"
    client.works(
        brokers[protocol].bootstrap_servers,
        settings | {"sasl.jaas.config": JAAS.format(module=module)},
    )


def test_tokens_of_a_file(client: Client, tmp_path: Path) -> None:
    """The file is read at each login. First the file is missing, then its token has expired, then
    its token is valid.
    """
    issuer, file = Issuer(), tmp_path / "token"
    broker_settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.write(tmp_path / "jwks"),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "connection.failed.authentication.delay.ms": "1",
    }
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    settings[TOKEN_URL] = file.as_uri()
    with LocalBroker(settings=broker_settings) as broker:
        assert "No such file" in client.error(broker.bootstrap_servers, settings)
        file.write_text(issuer.token(exp=int(time.time()) - 100) + "\n")
        assert "refuses the login" in client.error(broker.bootstrap_servers, settings)
        file.write_text(issuer.token(exp=int(time.time()) + 3000) + "\n")
        client.works(broker.bootstrap_servers, settings)


def test_a_certificate_of_the_client(client: Client) -> None:
    with LocalBroker(tls=True, settings={"ssl.client.auth": "required"}) as broker:
        settings = {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(broker.ca_file),
        }
        assert "requires a certificate of the client" in client.error(
            broker.bootstrap_servers, settings
        )
        client.works(
            broker.bootstrap_servers,
            settings | {"ssl.keystore.location": str(broker.certificate_file())},
        )


class ClosedSocket:
    """A TLS connection that the broker has closed, perhaps after an alert."""

    def __init__(self, alert: str) -> None:
        self._alert = alert

    def recv(self, _: int) -> bytes:
        """The result for a connection that the broker has closed: the end of the stream, or the
        error for the TLS alert that the broker sent before.
        """
        if not self._alert:
            return b""
        error = ssl.SSLError(1, self._alert)
        error.reason = self._alert
        raise error


def test_a_write_after_the_broker_s_alert_does_not_hide_it() -> None:
    """The timing of the client's first request decides whether the client notices the alert or the
    failed write first.
    """
    eof = ssl.SSLEOFError(8, "EOF occurred in violation of protocol")
    alerted: Any = ClosedSocket("TLSV13_ALERT_CERTIFICATE_REQUIRED")
    found = tls_error(eof, "a:1", alerted)
    assert found is not None and "requires a certificate of the client" in tls_text(found)
    silent: Any = ClosedSocket("")
    assert tls_error(eof, "a:1", silent) is None, "the broker may be stopping"
    assert "perhaps the broker requires a certificate" in closed_text(eof)
    assert closed_text(ConnectionResetError()) == ""


def test_a_certificate_of_another_host(client: Client) -> None:
    """The broker's certificate is for another host name. The error says so, unless the client does
    not check the name.
    """
    with GuardedListener(tls=server_context("elsewhere.pem")) as listener:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{listener.port}"}
        with LocalBroker(settings=advertised) as broker:
            listener.broker_port = broker.port
            servers = f"127.0.0.1:{listener.port}"
            settings = {
                "security.protocol": "SSL",
                "ssl.truststore.location": str(TLS_FILES / "ca.pem"),
            }
            assert "connect by a name of the certificate" in client.error(servers, settings)
            unchecked = settings | {"ssl.endpoint.identification.algorithm": ""}
            client.works(servers, unchecked)
