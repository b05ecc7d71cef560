"""Mistakes in a client's security settings. The command ends when it is first refused, and its
error names the setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.cli_commands import CommandLine

from barnabas.local_broker import LocalBroker

pytestmark = pytest.mark.e2e

USER = {"alice": "secret"}
PLAINTEXT, SSL, SASL, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, LocalBroker]]:
    """A broker for each security protocol."""
    settings = {"connection.failed.authentication.delay.ms": "1"}
    with (
        LocalBroker() as plain,
        LocalBroker(tls=True) as tls,
        LocalBroker(users=USER, settings=settings) as sasl,
        LocalBroker(users=USER, tls=True, settings=settings) as both,
    ):
        yield {PLAINTEXT: plain, SSL: tls, SASL: sasl, SASL_SSL: both}


def _settings(protocol: str, broker: LocalBroker, **others: str) -> dict[str, str]:
    """A client's correct settings for this protocol. `others` replaces some of them; in its names,
    `_` replaces `.`.
    """
    settings = {"security.protocol": protocol}
    if protocol.startswith("SASL"):
        settings |= {"sasl.mechanism": "SCRAM-SHA-512"}
        settings |= {"sasl.username": "alice", "sasl.password": "secret"}
    if protocol.endswith("SSL") and broker.security_protocol.endswith("SSL"):
        settings["ssl.truststore.location"] = str(broker.ca_file)
    return settings | {name.replace("_", "."): value for name, value in others.items()}


class Client:
    """Runs commands with client settings in a file, and with a timeout that is longer than any
    test.
    """

    def __init__(self, tmp_path: Path, barnabas: CommandLine) -> None:
        self._file = tmp_path / "client.properties"
        self._barnabas = barnabas

    def error(self, broker: LocalBroker, settings: dict[str, str]) -> str:
        """The last line on standard error of a command that must fail."""
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        ended = self._barnabas.alone(
            "topics", "list", "-b", broker.bootstrap_servers, "--client-config", str(self._file),
            "--timeout", "1000",
        )  # fmt: skip
        assert (ended.code, ended.out) == (1, ""), ended
        return ended.err.splitlines()[-1]


@pytest.fixture
def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Client:
    return Client(tmp_path, CommandLine(monkeypatch, capsys))


@pytest.mark.parametrize("wrong", [PLAINTEXT, SSL, SASL, SASL_SSL])
@pytest.mark.parametrize("right", [PLAINTEXT, SSL, SASL, SASL_SSL])
def test_a_wrong_protocol_is_named_with_the_right_one(
    client: Client, brokers: dict[str, LocalBroker], wrong: str, right: str
) -> None:
    if wrong == right:
        return
    error = client.error(brokers[right], _settings(wrong, brokers[right]))
    assert f"security.protocol={right}" in error
    assert f"the client has {wrong}" in error
    if right.startswith("SASL"):
        assert "sasl.mechanism=" in error


@pytest.mark.parametrize("right", [SASL, SASL_SSL])
def test_a_wrong_password_and_mechanism_are_named(
    client: Client, brokers: dict[str, LocalBroker], right: str
) -> None:
    broker = brokers[right]
    wrong = client.error(broker, _settings(right, broker, sasl_password="wrong"))
    assert "refuses the login" in wrong
    assert "sasl.password" in wrong
    other = client.error(broker, _settings(right, broker, sasl_mechanism="OAUTHBEARER") | TOKEN)
    assert "does not support sasl.mechanism=OAUTHBEARER" in other
    assert "SCRAM-SHA-512" in other
    none = _settings(right, broker)
    del none["sasl.mechanism"]
    assert "needs sasl.mechanism" in client.error(broker, none)


TOKEN = {"sasl.oauthbearer.token.endpoint.url": "file:///dev/null"}


@pytest.mark.parametrize("right", [SSL, SASL_SSL])
def test_a_ca_that_is_missing_is_named(
    client: Client, brokers: dict[str, LocalBroker], right: str
) -> None:
    settings = _settings(right, brokers[right])
    gone = client.error(brokers[right], settings | {"ssl.truststore.location": "/nowhere.pem"})
    assert "ssl.truststore.location=/nowhere.pem: the file does not exist" in gone
    del settings["ssl.truststore.location"]
    missing = client.error(brokers[right], settings)
    assert "certificate is not trusted" in missing
    assert "set ssl.truststore.location" in missing
    assert "_ssl.c" not in missing


def test_a_port_of_http_is_named(client: Client) -> None:
    with LocalBroker(control=True) as broker:
        address = broker.control.url.rpartition("//")[2].partition("/")[0]

        class Http:
            bootstrap_servers = address

        assert "speaks HTTP" in client.error(Http(), {})  # type: ignore[arg-type]
