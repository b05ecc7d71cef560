"""Commands with `--client-config` against a broker that requires TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.cli_commands import CommandLine
from helpers.guarded_listener import TLS_FILES, GuardedListener, server_context

from barnabas.local_broker import LocalBroker

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def listener() -> Iterator[GuardedListener]:
    """A listener in front of a broker that advertises the listener's address."""
    with GuardedListener(tls=server_context("server.pem")) as listening:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{listening.port}"}
        with LocalBroker(settings=advertised, topics=["orders"]) as broker:
            listening.broker_port = broker.port
            yield listening


def test_tls_and_a_certificate_that_is_not_trusted(
    listener: GuardedListener,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    barnabas = CommandLine(monkeypatch, capsys).use(f"127.0.0.1:{listener.port}")
    config = tmp_path / "client.properties"
    secured = ("--client-config", str(config))
    config.write_text(
        f"security.protocol=SSL\nssl.truststore.location={TLS_FILES / 'ca.pem'}\n"
        "ssl.truststore.type=PEM\n"
    )
    barnabas.ok("produce", "orders", *secured, stdin="coffee\n")
    assert barnabas.ok("consume", "orders", *secured).out == "coffee\n"
    assert barnabas.ok("check", "--json", *secured).data["healthy"] is True

    config.write_text("security.protocol=SSL\n")
    refused = barnabas.alone("topics", "list", *secured, "--timeout", "3")
    assert refused.code == 1
    assert refused.err.count("\n") == 1, "one line, which names what is wrong"
