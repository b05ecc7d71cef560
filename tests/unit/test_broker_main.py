"""The parts of the command line that do not need a broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from barnabas.broker.rim.daemon.arguments import parser
from barnabas.broker.rim.daemon.configure import read_config
from barnabas.broker.rim.daemon.main import main
from barnabas.broker.rim.daemon.modes import _unusable_data_directory
from barnabas.broker.rim.daemon.serving import _explain
from barnabas.broker.rim.daemon.signals import SIGNALS, Signals
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.properties import read_properties
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
    # as a shell shows a program that SIGPIPE (13) ended: 128 + 13
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
    """A stop explains this even after another refused write, but not after a failed fsync."""
    error = OSError(28, "No space left on device")
    as_kill = "as after a kill, and no acknowledged data are lost"
    assert as_kill in _explain(error, "/d", is_stopping=True)
    assert as_kill not in _explain(error, "/d", is_stopping=False)
    assert as_kill not in _explain(FailedFsync(28, "No space"), "/d", is_stopping=True)
    assert as_kill not in _explain(OSError(5, "I/O error"), "/d", is_stopping=True)


def test_a_release_to_be_emulated_is_a_setting() -> None:
    options = parser().parse_args(["start", "--emulate", "3.9"])
    assert read_config(options).release.name == "3.9"


def test_an_interrupt_during_the_start_prints_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("barnabas.broker.rim.daemon.modes.start", interrupted)
    assert main(["start"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("handlers_of_before")
@pytest.mark.parametrize("number", SIGNALS)
def test_each_stop_signal_calls_the_stop_function(number: signal.Signals) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    asked: list[None] = []
    Signals().call(lambda: asked.append(None))
    signal.raise_signal(number)
    signal.raise_signal(number)
    assert len(asked) == 2


@pytest.mark.usefixtures("handlers_of_before")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_during_the_start_stops_the_broker_after_the_start(
    number: signal.Signals,
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signals = Signals()
    signal.raise_signal(number)
    asked: list[None] = []
    signals.call(lambda: asked.append(None))
    assert len(asked) == 1
    signal.raise_signal(number)
    assert len(asked) == 2


@pytest.mark.usefixtures("handlers_of_before")
def test_a_second_signal_during_the_start_ends_the_process_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    Signals().call(lambda: pytest.fail("it was asked to stop"))
    signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
