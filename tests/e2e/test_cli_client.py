"""The client of the administration commands: the modules that it imports, and its errors if the
broker is old, has stopped, or was replaced by another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.cli_commands import TOPIC, VERBS, CommandLine
from helpers.ports import refusing_port

from barnabas.local_broker import LocalBroker

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
RUN_ALL = """
import sys
from barnabas.daemon.main import main
for line in sys.argv[1:]:
    code = main(line.split())
    print("ENDED", code, line, flush=True)
print("LOADED", *sys.modules)
"""


def test_no_command_loads_another_client_or_asyncio(tmp_path: Path) -> None:
    names = list(VERBS)
    more = {"share consume": ["--idle", "0.2"], "user add": ["--password-file", __file__]}
    with LocalBroker(topics=[TOPIC]) as broker:
        where = ["-b", broker.bootstrap_servers]
        lines = [" ".join([name, *VERBS[name], *more.get(name, ()), *where]) for name in names]
        done = subprocess.run(
            [sys.executable, "-c", RUN_ALL, *lines],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path)},
        )
    *_, loaded = done.stdout.splitlines()
    assert done.stdout.count("ENDED") == len(names), done
    assert "Traceback" not in done.stderr
    heavy = {"kafka", "asyncio", "anyio", "rich", "ssl", "urllib.request", "confluent_kafka"}
    expected = {"ssl"}  # imported by the producer for two-phase commit
    assert heavy & set(loaded.split()) <= expected


@pytest.fixture
def barnabas(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def test_a_bootstrap_address_that_refuses_connections_is_skipped(barnabas: CommandLine) -> None:
    with LocalBroker(topics=[TOPIC]) as broker, refusing_port() as gone:
        barnabas.use(f"127.0.0.1:{gone},{broker.bootstrap_servers}")
        assert TOPIC in barnabas.ok("topics", "list").out


def test_a_broker_that_is_advertised_elsewhere_is_named(barnabas: CommandLine) -> None:
    """The client uses the address in the metadata, and the error says where the address comes
    from.
    """
    with refusing_port() as gone:
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{gone}"}
        with LocalBroker(settings=settings) as broker:
            barnabas.use(f"127.0.0.1:{broker.port}")
            assert barnabas.ok("topics", "list").err.startswith("no topics")
            lost = barnabas("groups", "list", "--timeout", "0.5")
    assert lost.code == 1
    assert f"broker 1 is at 127.0.0.1:{gone}" in lost.err
    assert "advertised.listeners" in lost.err


def test_settings_of_an_unknown_broker_are_an_error(barnabas: CommandLine) -> None:
    with LocalBroker() as broker:
        barnabas.use(broker.bootstrap_servers)
        unknown = barnabas("config", "describe", "broker", "99")
        assert (unknown.code, "there is no such broker" in unknown.err) == (1, True)
        word = barnabas("config", "describe", "broker", "first")
        assert (word.code, "'first' is not a broker's id" in word.err) == (1, True)
        barnabas.ok("config", "set", "broker", "", "message.max.bytes=2000000")
        said = barnabas.ok("config", "describe", "broker", "1", "--filter", "message.max.bytes")
        assert said.out.splitlines()[1].split()[:2] == ["message.max.bytes", "2000000"]
        (of_all,) = barnabas.ok("config", "describe", "broker", "", "--json").data
        assert (of_all["name"], of_all["value"]) == ("message.max.bytes", "2000000")
