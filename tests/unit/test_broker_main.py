"""The command line where it needs no broker."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from barnabas.broker.config import BrokerConfig, read_properties
from barnabas.broker.main import SIGNALS, _on_signals, _read_config, main, parser


@pytest.fixture
def handlers_of_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_broker_takes_the_settings_as_they_are_printed(
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


def test_a_release_to_be_emulated_is_a_setting() -> None:
    options = parser().parse_args(["start", "--emulate", "3.9"])
    assert _read_config(options).release.name == "3.9"


def test_an_interrupt_while_it_starts_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("barnabas.broker.main._start", interrupted)
    assert main(["start"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("handlers_of_before")
@pytest.mark.parametrize("number", SIGNALS)
def test_signals_that_ask_it_to_stop(number: signal.Signals) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    asked: list[None] = []
    _on_signals(lambda: asked.append(None))
    signal.raise_signal(number)
    signal.raise_signal(number)
    assert len(asked) == 2


@pytest.mark.usefixtures("handlers_of_before")
def test_under_nohup_it_stays_when_its_terminal_goes() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _on_signals(lambda: pytest.fail("it was asked to stop"))
    signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
