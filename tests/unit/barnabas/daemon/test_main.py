"""The parts of the command line that do not need a broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.properties import read_properties
from barnabas.daemon.arguments import StartError, parser
from barnabas.daemon.configure import read_config
from barnabas.daemon.main import main
from barnabas.daemon.modes import _unusable_data_directory
from barnabas.daemon.serving import _explain
from barnabas.daemon.signals import SIGNALS, Signals
from barnabas.process import hangups
from barnabas.storage.disk import FailedFsync


@pytest.fixture
def handlers_of_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_output_of_barnabas_settings_is_a_valid_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["settings"]) == 0
    of_the_broker = capsys.readouterr().out.partition("# of a topic")[0]
    lines = [
        line for line in of_the_broker.splitlines() if line and not line.startswith(("#", "    "))
    ]
    properties = read_properties("\n".join(line for line in lines if not line.endswith("=")))
    assert len(properties) > 50
    taken = BrokerConfig.from_properties(properties)
    (listener,), (by_default,) = taken.listeners, BrokerConfig.from_properties({}).listeners
    assert listener.endpoint == by_default.endpoint


def test_settings_of_broker_and_topics_that_contain_a_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["settings", "cleanup.policy"]) == 0
    names = [line.partition("=")[0] for line in capsys.readouterr().out.splitlines() if "=" in line]
    assert names == ["log.cleanup.policy", "cleanup.policy"]


def test_a_text_that_no_setting_contains(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "log.retention.mss"]) == 1
    assert "no setting has 'log.retention.mss' in its name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--prot", "9"], "there is no --prot; did you mean --port?"),
        (["--dta-dir=d"], "there is no --dta-dir; did you mean --data-dir?"),
        (
            ["--zookeeper", "x", "--quite"],
            "no --zookeeper. there is no --quite; did you mean --quiet?",
        ),
        (["9092"], "unknown argument '9092'"),
    ],
)
def test_an_unknown_argument_is_answered_with_the_options_of_its_command(
    capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["start", *arguments])
    assert exit_.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: barnabas start")
    assert said.endswith(f"{error}\n")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["settings"]])
def test_a_closed_pipe_ends_the_command_without_a_traceback(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "barnabas", *arguments]
    with os.fdopen(writing, "wb") as pipe:
        ended = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, timeout=30, check=False
        )
    # A shell shows this code for a program that SIGPIPE (13) ended: 128 + 13.
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_ports_for_another_number_of_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "--port", "0,0"]) == 1
    assert "names 2 ports for 1 broker: name one port, or one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (FileExistsError(17, "File exists"), "it is a file"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
    ],
)
def test_the_error_for_an_unusable_data_directory_gives_the_reason(
    error: OSError, why: str
) -> None:
    refusal = _unusable_data_directory(BrokerConfig.from_properties({"log.dirs": "/d"}), error)
    assert str(refusal) == (
        f"cannot use the data directory /d: {why}; --data-dir DIR names another"
    )


def test_the_error_for_a_full_data_directory_asks_to_free_space() -> None:
    error = OSError(28, "No space left on device")
    refusal = _unusable_data_directory(BrokerConfig.from_properties({"log.dirs": "/d"}), error)
    assert str(refusal) == (
        "the data directory /d has no space for the files of this start: No "
        "space left on device; free some, and start again: no data are lost"
    )


def test_a_stop_without_space_says_that_nothing_is_lost() -> None:
    """The message says this only when the broker stops, and only if the disk had no space for a
    write. A failed fsync or another error may lose data.
    """
    error = OSError(28, "No space left on device")
    as_kill = "as after a kill, and no acknowledged data are lost"
    assert as_kill in _explain(error, "/d", is_stopping=True)
    assert as_kill not in _explain(error, "/d", is_stopping=False)
    assert as_kill not in _explain(FailedFsync(28, "No space"), "/d", is_stopping=True)
    assert as_kill not in _explain(OSError(5, "I/O error"), "/d", is_stopping=True)


FILE = """
listeners=PLAINTEXT://10.0.0.1:9092,INNER://10.0.0.1:9193
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT
log.dir=/of/the/file
barnabas.log.format=text
barnabas.console.port=9000
"""


@pytest.mark.parametrize(
    ("options", "setting", "value"),
    [
        ("", "listeners", "PLAINTEXT://10.0.0.1:9092,INNER://10.0.0.1:9193"),
        ("--port 5", "listeners", "PLAINTEXT://10.0.0.1:5,INNER://10.0.0.1:9193"),
        ("--host 10.0.0.2", "listeners", "PLAINTEXT://10.0.0.2:9092,INNER://10.0.0.1:9193"),
        ("--host 10.0.0.2 --port 0", "listeners", "PLAINTEXT://10.0.0.2:0,INNER://10.0.0.1:9193"),
        ("--set listeners=A://:1 --set listener.security.protocol.map=A:PLAINTEXT --port 5",
         "listeners", "A://0.0.0.0:5"),
        ("--set log.dir=/of/set", "log.dir", "/of/set"),
        ("--data-dir /of/the/option", "log.dirs", "/of/the/option"),
        ("--set log.dirs=/of/set --data-dir /of/the/option", "log.dirs", "/of/the/option"),
        ("--emulate 3.9", "barnabas.emulate", "3.9"),
        ("--brokers 3", "barnabas.brokers", "3"),
        ("--log-format json", "barnabas.log.format", "json"),
        ("--audit-log {}/audit", "barnabas.audit.log", "{}/audit"),
        ("--metrics-port 7", "barnabas.metrics.port", "7"),
        ("--console-port 0", "barnabas.console.port", "0"),
        ("--console-writes", "barnabas.console.writes", "true"),
    ],
)  # fmt: skip
def test_an_option_overrides_its_setting_and_leaves_the_others(
    tmp_path: Path, options: str, setting: str, value: str
) -> None:
    (tmp_path / "server.properties").write_text(FILE)
    given = ["start", "--config", str(tmp_path / "server.properties")]
    before = read_config(parser().parse_args(given)).explicit
    config = read_config(parser().parse_args([*given, *options.format(tmp_path).split()]))
    assert config.explicit[setting] == value.format(tmp_path)
    named = {word.partition("=")[0] for word in options.split() if "=" in word}
    changed = {setting, *named, *(("log.dir",) if setting == "log.dirs" else ())}
    others = {name: text for name, text in before.items() if name not in changed}
    assert others.items() <= config.explicit.items()


@pytest.mark.parametrize("options", ["", "--port 5", "--set num.partitions=3"])
def test_only_unknown_settings_of_the_file_are_ignored(tmp_path: Path, options: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text("org.example.plugin=on\nnum.partitons=3\n")
    given = ["start", "--config", str(file), *options.split()]
    (warning,) = read_config(parser().parse_args(given)).warnings
    assert warning == (
        "unknown settings, which have no effect: org.example.plugin, num.partitons (did you mean "
        "num.partitions?)"
    )
    for name in ("org.example.plugin", "org.example.other"):
        with pytest.raises(StartError, match=f"unknown setting {name}"):
            read_config(parser().parse_args([*given, "--set", f"{name}=1"]))


def test_an_interrupt_during_the_start_prints_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("barnabas.daemon.modes.start", interrupted)
    assert main(["start"]) == 130
    assert capsys.readouterr().err == ""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has a controlling terminal."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    monkeypatch.setattr(hangups, "has_terminal", lambda: True)


@pytest.mark.usefixtures("handlers_of_before", "terminal")
@pytest.mark.parametrize("number", SIGNALS)
def test_each_stop_signal_calls_the_stop_function(number: signal.Signals) -> None:
    asked: list[None] = []
    Signals().call(lambda: asked.append(None), lambda: pytest.fail("a reload"))
    signal.raise_signal(number)
    signal.raise_signal(number)
    assert len(asked) == 2


@pytest.mark.usefixtures("handlers_of_before")
def test_without_a_terminal_sighup_asks_for_a_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under systemd, in a container, or after setsid: logrotate and others send it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    monkeypatch.setattr(hangups, "has_terminal", lambda: False)
    signals = Signals()
    signal.raise_signal(signal.SIGHUP)  # the start reads the files anyway
    asked: list[str] = []
    signals.call(lambda: asked.append("end"), lambda: asked.append("reload"))
    assert asked == []
    signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)
    assert asked == ["reload"] * 2
    signal.raise_signal(signal.SIGTERM)
    assert asked == ["reload", "reload", "end"]


@pytest.mark.usefixtures("handlers_of_before", "terminal")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_during_the_start_stops_the_broker_after_the_start(
    number: signal.Signals,
) -> None:
    signals = Signals()
    signal.raise_signal(number)
    asked: list[None] = []
    signals.call(lambda: asked.append(None), lambda: pytest.fail("a reload"))
    assert len(asked) == 1
    signal.raise_signal(number)
    assert len(asked) == 2


@pytest.mark.usefixtures("handlers_of_before")
def test_a_second_signal_during_the_start_ends_the_process_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first signal only asks for a stop. The second one must be raised again with the default
    handler, which ends the process.
    """
    Signals()
    raised: list[tuple[int, object]] = []
    signal.raise_signal(signal.SIGTERM)
    monkeypatch.setattr(
        signal,
        "raise_signal",
        lambda number: raised.append((number, signal.getsignal(number))),
    )
    os.kill(os.getpid(), signal.SIGTERM)
    assert raised == [(signal.SIGTERM, signal.SIG_DFL)]


@pytest.mark.usefixtures("handlers_of_before")
def test_under_nohup_the_broker_ignores_sighup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Signals().call(lambda: pytest.fail("it was asked to stop"), lambda: pytest.fail("a reload"))
    signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
