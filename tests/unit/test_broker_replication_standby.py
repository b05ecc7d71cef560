"""The rim of a standby, and signals."""

from __future__ import annotations

import io
import logging
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.ports import refusing_port

from barnabas.broker.replication import standby_steps
from barnabas.broker.replication.rim import standby
from barnabas.broker.replication.rim.standby import SIGNALS, Standby
from barnabas.broker.settings.config import BrokerConfig


class SignalledWhileWriting(io.StringIO):
    """A log in whose midst a signal comes."""

    def write(self, text: str) -> int:
        signal.raise_signal(signal.SIGTERM)
        return super().write(text)


def test_a_signal_ends_a_standby_while_it_writes_a_line_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that goes away is logged just when the standby is stopped, too."""
    handler = logging.StreamHandler(SignalledWhileWriting())
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def sleep(seconds: float, by_others: Callable[[float], None] = time.sleep) -> None:
        if threading.current_thread() is threading.main_thread():
            pytest.fail("the standby goes on after the signal")
        by_others(seconds)  # of an earlier test's threads

    monkeypatch.setattr(standby.time, "sleep", sleep)
    standby_steps.logger.addHandler(handler)
    try:
        with refusing_port() as port:
            config = BrokerConfig.from_properties({"log.dirs": str(tmp_path)})
            Standby(config, ("127.0.0.1", port)).run()
    finally:
        standby_steps.logger.removeHandler(handler)
        for number, before in handlers.items():
            signal.signal(number, before)
