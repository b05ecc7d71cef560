"""The process of a standby, and how it handles signals."""

from __future__ import annotations

import io
import logging
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.ports import refusing_port

from barnabas.broker.rim.tls import TlsError
from barnabas.broker.settings.config import BrokerConfig
from barnabas.replication import standby_steps
from barnabas.replication.rim import standby
from barnabas.replication.rim.link_security import LinkSecurityError
from barnabas.replication.rim.standby import SIGNALS, Standby
from barnabas.replication.standby_steps import (
    Connect,
    HangUp,
    LinkError,
    Receive,
    Send,
    Steps,
    Wait,
)
from barnabas.storage.files.checkpoints import META_PROPERTIES_NAME, STANDBY_NOTE_NAME
from barnabas.storage.log.log_directory import LogDirectoryError


class SignalledWhileWriting(io.StringIO):
    """A stream for log lines in which every write raises a signal."""

    def write(self, text: str) -> int:
        signal.raise_signal(signal.SIGTERM)
        return super().write(text)


def test_a_signal_ends_a_standby_while_it_writes_a_line_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby is often stopped together with its leader, whose loss it is logging at that
    moment.
    """
    handler = logging.StreamHandler(SignalledWhileWriting())
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def sleep(seconds: float, by_others: Callable[[float], None] = time.sleep) -> None:
        if threading.current_thread() is threading.main_thread():
            pytest.fail("the standby goes on after the signal")
        by_others(seconds)  # threads of an earlier test really sleep

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


# --- each step on the connection -----------------------------------------------------------------


class Wire:
    """A fake connection. `said` has the calls that it received, in order. `failures` has, by the
    name of a call, the exception that its next use raises.
    """

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.failures: dict[str, BaseException] = {}
        self._timeout_s: float | None = None

    def note(self, name: str, *arguments: Any) -> None:
        """Record a call, and raise the exception that the test has set for it."""
        self.said.append((name, *arguments) if arguments else name)
        failure = self.failures.pop(name, None)
        if failure is not None:
            raise failure

    def connect(self, address: Any, timeout: float) -> Wire:
        self.note("connect", address, timeout)
        self._timeout_s = timeout
        return self

    def setsockopt(self, *arguments: int) -> None:
        assert arguments == (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.note("small messages")

    def gettimeout(self) -> float | None:
        return self._timeout_s

    def settimeout(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def sendall(self, data: bytes) -> None:
        self.note("send", data, self._timeout_s)

    def recv(self, count: int) -> bytes:
        self.note("receive", count, self._timeout_s)
        return b"answer"

    def close(self) -> None:
        self.note("close")

    def finish(self) -> None:
        """Replace `finish` of the standby's sync."""
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, "a second one ends it amid this"
        self.note("finish sync")

    def release(self) -> None:
        """Replace `release` of the directory's lock."""
        self.note("release lock")


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """A stand-in for the connection, the sync and the lock, which records the calls. Waits take no
    time.
    """
    wire = Wire()
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    monkeypatch.setattr(standby.socket, "create_connection", wire.connect)

    def sleep(seconds: float, by_others: Callable[[float], None] = time.sleep) -> None:
        if threading.current_thread() is threading.main_thread():
            wire.note("wait", seconds)
        else:
            by_others(seconds)  # threads of an earlier test really sleep

    monkeypatch.setattr(standby.time, "sleep", sleep)
    yield wire
    for number, before in handlers.items():
        signal.signal(number, before)


@pytest.fixture
def node(tmp_path: Path, wire: Wire) -> Iterator[Standby]:
    properties = {"log.dirs": str(tmp_path), "barnabas.replication.timeout.ms": "4000"}
    node = Standby(BrokerConfig.from_properties(properties), ("127.0.0.1", 9))
    lock = node._lock
    made: Any = wire
    node._sync = node._lock = made
    yield node
    lock.release()


def test_each_step_is_done_on_the_connection_with_its_own_timeout(
    node: Standby, wire: Wire
) -> None:
    results: list[Any] = []

    def steps() -> Steps:
        for step in (
            Connect(("127.0.0.1", 9), 0.5),
            Send(b"a"),
            Receive(0.25),
            Send(b"b"),
            HangUp(),
            HangUp(),
            Wait(3.0),
            Connect(("127.0.0.1", 9), 0.5),
        ):
            results.append((yield step))
        return "led"

    assert node.carry_out(steps()) == "led"
    connected = [("connect", ("127.0.0.1", 9), 0.5), "small messages"]
    assert wire.said == [
        *connected,
        ("send", b"a", 4.0),
        ("receive", standby.RECEIVED_BYTES, 0.25),
        ("send", b"b", 4.0),
        "close",
        ("wait", 3.0),
        *connected,
        "close",  # closed although the steps left it open
    ]
    assert results == [None, None, b"answer", None, None, None, None, None]


@pytest.mark.parametrize(
    ("failure", "thrown", "says"),
    [
        (ConnectionResetError(104, "reset"), ConnectionResetError, "reset"),
        (ssl.SSLError(1, "no shared cipher"), LinkError, "TLS: no shared cipher; both sides need"),
        (LinkSecurityError("not encrypted"), LinkError, "not encrypted"),
        (TlsError("no key"), LinkError, "no key"),
    ],
)
def test_a_failed_step_raises_in_the_steps_which_may_continue(
    node: Standby, wire: Wire, failure: BaseException, thrown: type[BaseException], says: str
) -> None:
    wire.failures["receive"] = failure

    def steps() -> Steps:
        yield Connect(("127.0.0.1", 9), 0.5)
        with pytest.raises(thrown, match=says):
            yield Receive(1.0)
        assert (yield Send(b"a")) is None
        assert (yield Receive(1.0)) == b"answer"

    node.carry_out(steps())
    assert wire.said[2:] == [
        ("receive", standby.RECEIVED_BYTES, 1.0),
        ("send", b"a", 4.0),
        ("receive", standby.RECEIVED_BYTES, 1.0),
        "close",
    ]


def test_a_leader_on_another_machine_needs_tls(node: Standby, wire: Wire) -> None:
    def steps() -> Steps:
        with pytest.raises(LinkError, match="would not be encrypted"):
            yield Connect(("10.0.0.1", 9), 0.5)

    node.carry_out(steps())
    assert wire.said == []


def test_steps_that_fail_end_with_their_connection(node: Standby, wire: Wire) -> None:
    ended: list[str] = []

    def steps() -> Steps:
        try:
            yield Connect(("127.0.0.1", 9), 0.5)
            raise OSError(5, "of this disk")
        finally:
            ended.append("ended")

    with pytest.raises(OSError, match="of this disk"):
        node.carry_out(steps())
    assert ended == ["ended"]
    assert wire.said[-1] == "close"


def test_a_signal_during_a_step_ends_the_steps_before_the_connection(
    node: Standby, wire: Wire
) -> None:
    """The steps close the files of the copy, which must be flushed afterwards."""
    wire.failures["receive"] = standby._StopError()

    def steps() -> Steps:
        try:
            yield Connect(("127.0.0.1", 9), 0.5)
            yield Receive(1.0)
        finally:
            wire.note("steps end")

    node.steps.run = steps  # type: ignore[method-assign]
    node.run()
    assert wire.said[3:] == ["steps end", "close", "finish sync", "release lock"]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_stopped_standby_flushes_its_copy_before_it_releases_the_directory(
    node: Standby, wire: Wire, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "hangup_reloads", lambda: False)  # it has a terminal

    def steps() -> Steps:
        try:
            yield Connect(("127.0.0.1", 9), 0.5)
            signal.raise_signal(number)
            pytest.fail("it goes on after the signal")
        finally:
            wire.note("steps end")

    node.steps.run = steps  # type: ignore[method-assign]
    node.run()
    assert wire.said[2:] == ["steps end", "close", "finish sync", "release lock"]


def test_a_failed_standby_flushes_its_copy(node: Standby, wire: Wire) -> None:
    def steps() -> Steps:
        yield Connect(("127.0.0.1", 9), 0.5)
        raise LogDirectoryError("another cluster's")

    node.steps.run = steps  # type: ignore[method-assign]
    with pytest.raises(LogDirectoryError, match="another cluster's"):
        node.run()
    assert wire.said[2:] == ["close", "finish sync", "release lock"]


@pytest.mark.parametrize("sign", [META_PROPERTIES_NAME, STANDBY_NOTE_NAME])
def test_one_file_shows_that_a_directory_belongs_to_a_broker_or_standby(
    tmp_path: Path, sign: str
) -> None:
    """A directory with either of two files belongs to a broker or standby. A standby that was
    catching up has left only the file with the standby note, and needs it to continue.
    """
    (tmp_path / "t-0").mkdir()
    config = BrokerConfig.from_properties({"log.dirs": str(tmp_path)})
    with pytest.raises(LogDirectoryError, match="is not a broker's data directory"):
        Standby(config, ("127.0.0.1", 9))
    (tmp_path / sign).write_bytes(b"")
    Standby(config, ("127.0.0.1", 9))._lock.release()


def test_a_directory_has_one_standby(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties({"log.dirs": str(tmp_path / "new")})
    first = Standby(config, ("127.0.0.1", 9))
    with pytest.raises(LogDirectoryError, match="is in use by another broker"):
        Standby(config, ("127.0.0.1", 9))
    first._lock.release()
    Standby(config, ("127.0.0.1", 9))._lock.release()
