"""The commands that the broker prints when it starts. They work as printed, or the text names the
settings that they need.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.settings.config import BrokerConfig
from barnabas.certificates import make_certificates
from barnabas.daemon.announcing import announce, has_cli


@pytest.mark.parametrize(
    ("protocol", "shown"),
    [
        ("PLAINTEXT", None),
        ("SSL", "security.protocol=SSL,"),
        ("SASL_PLAINTEXT", "security.protocol=SASL_PLAINTEXT,"),
        ("SASL_SSL", "security.protocol=SASL_SSL,"),
    ],
)
def test_the_printed_commands_fit_the_protocol_of_the_listener(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str, shown: str | None
) -> None:
    """Clients of a protected listener need a file of settings, so the text shows its lines, and the
    commands name the file.
    """
    make_certificates(tmp_path)
    settings = {
        "listeners": f"{protocol}://127.0.0.1:9092",
        "log.dirs": str(tmp_path / "data"),
    }
    if protocol.endswith("SSL"):
        settings["ssl.keystore.location"] = str(tmp_path / "broker.pem")
    config = BrokerConfig.from_properties(settings)
    server: Any = SimpleNamespace(
        addresses=[("127.0.0.1", 9092)],
        acceptor=SimpleNamespace(listeners=[]),
        broker=SimpleNamespace(config=config),
    )
    announce(server, 0.0, None, quiet=False)
    text = capsys.readouterr().out
    if shown is None:
        assert "barnabas consume greetings -b 127.0.0.1:9092\n" in text
        assert "security" not in text
    else:
        assert shown in text
        assert "greetings -b 127.0.0.1:9092 --client-config client.properties\n" in text


@pytest.mark.parametrize(
    ("listener", "address"),
    [("SSL://0.0.0.0:9093", "kafka.example:9"), ("PLAINTEXT://0.0.0.0:9093", "127.0.0.1:9093")],
)
def test_commands_of_a_tls_listener_use_its_advertised_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], listener: str, address: str
) -> None:
    """With 127.0.0.1, a client would refuse the certificate, which is for the advertised name."""
    make_certificates(tmp_path, hosts=["kafka.example"])
    settings = {
        "listeners": listener,
        "advertised.listeners": f"{listener.partition(':')[0]}://kafka.example:9",
        "log.dirs": str(tmp_path / "data"),
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
    }
    server: Any = SimpleNamespace(
        addresses=[("0.0.0.0", 9093)],
        acceptor=SimpleNamespace(listeners=[]),
        broker=SimpleNamespace(config=BrokerConfig.from_properties(settings)),
    )
    announce(server, 0.0, None, quiet=False)
    assert f"barnabas consume greetings -b {address}" in capsys.readouterr().out


def test_a_quiet_start_prints_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    server: Any = SimpleNamespace(
        addresses=[("127.0.0.1", 9092)],
        acceptor=SimpleNamespace(listeners=[]),
        broker=SimpleNamespace(config=BrokerConfig.from_properties({})),
    )
    announce(server, 0.0, "http://127.0.0.1:8080", quiet=True)
    assert capfd.readouterr() == ("", "")
    assert not [row for row in caplog.records if row.levelname != "INFO"]


@pytest.mark.parametrize("is_installed", [True, False])
def test_the_commands_are_printed_with_a_hint_when_the_extra_cli_is_not_installed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_installed: bool,
) -> None:
    found = object() if is_installed else None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: found)
    has_cli.cache_clear()
    config = BrokerConfig.from_properties({"log.dirs": str(tmp_path)})
    server: Any = SimpleNamespace(
        addresses=[("127.0.0.1", 9092)],
        acceptor=SimpleNamespace(listeners=[]),
        broker=SimpleNamespace(config=config),
    )
    announce(server, 0.0, None, quiet=False)
    has_cli.cache_clear()
    assert ("both need the extra `cli`" in capsys.readouterr().out) is not is_installed
