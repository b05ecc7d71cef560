"""When a broker stops answering, each command keeps its `--timeout`, prints what it waits for, and
ends at Ctrl-C.
"""

from __future__ import annotations

import gc
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.cli_commands import TOPIC, VERBS, CommandLine
from helpers.counted_requests import CountedRequests
from helpers.e2e_clients import PATIENCE_S, eventually, unique
from helpers.interrupting import sigint_not_ignored
from helpers.waiting_input import has_input

from barnabas.cli import waiting
from barnabas.local_broker import LocalBroker

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

FOR_BOOTSTRAP = 2  # the requests that a client sends before any other request
OTHER_WAYS: dict[str, Sequence[str]] = {
    "consume --follow": ("consume", TOPIC, "--follow"),
    "consume --group": ("consume", TOPIC, "--group", "kitchen"),
    "produce --transactional-id": ("produce", TOPIC, "--transactional-id", "load"),
    "txn abort --transactional-id": ("txn", "abort", "--transactional-id", "load", "--yes"),
    "txn why-stuck, all": ("txn", "why-stuck"),
}
COMMANDS = {name: (*name.split(), *rest) for name, rest in VERBS.items()} | OTHER_WAYS


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> CommandLine:
    """The command line in a temporary directory. After a short time it prints what it waits for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(waiting, "NOTE_AFTER_S", 0.05)
    return CommandLine(monkeypatch, capsys)


@pytest.fixture(scope="module")
def port() -> Iterator[CountedRequests]:
    """A port in front of a broker that advertises the port's address."""
    with CountedRequests() as port:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port.number}"}
        with LocalBroker(settings=advertised, topics=[TOPIC]) as broker:
            port.broker_port = broker.port
            yield port


@pytest.mark.parametrize("name", COMMANDS)
def test_a_verb_ends_by_its_timeout_where_nothing_answers(barnabas: CommandLine, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        barnabas.use(f"127.0.0.1:{silent.getsockname()[1]}")
        ended = barnabas(*COMMANDS[name], "--timeout", "0.3", stdin="coffee\n")
    assert ended.code == (3 if name == "check" else 1), ended
    assert "waiting for 127.0.0.1:" in ended.err
    assert "--timeout" in ended.err + ended.out
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("allowed", [FOR_BOOTSTRAP, 5])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_verb_ends_by_its_timeout_where_the_broker_falls_silent(
    barnabas: CommandLine, port: CountedRequests, name: str, allowed: int
) -> None:
    """The port forwards `allowed` requests to the broker, and answers no more after that."""
    port.hang_up()
    port.allow(port.broker_port, allowed)
    barnabas.use(port.address)
    ended = barnabas(*COMMANDS[name], "--timeout", "0.3", stdin="coffee\n")
    # If five requests are allowed, short commands succeed (exit code 0).
    assert ended.code in (0, 1, 3), ended
    if allowed == FOR_BOOTSTRAP:
        assert "did not answer for 0.3 s (--timeout)" in ended.err + ended.out, ended
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("name", ["produce", "consume", "produce --transactional-id"])
def test_a_client_that_could_not_connect_leaves_no_socket_open(
    barnabas: CommandLine, port: CountedRequests, name: str
) -> None:
    port.hang_up()
    port.allow(port.broker_port, FOR_BOOTSTRAP)
    barnabas.use(port.address)
    # The first import may take longer than the call's timeout. The call's thread then continues
    # after the command has ended.
    barnabas(*COMMANDS[name], "--timeout", "0.3", stdin="coffee\n")
    eventually(_no_call_waits, what="the ends of the calls' threads")
    gc.collect()  # collects garbage of this and earlier tests
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        assert barnabas(*COMMANDS[name], "--timeout", "0.3", stdin="coffee\n").code == 1
        eventually(_no_call_waits, what="the ends of the calls' threads")
        gc.collect()
    assert [str(one.message) for one in caught] == []


def _no_call_waits() -> bool:
    return all(thread.name != "waits-for-cluster" for thread in threading.enumerate())


class Started:
    """A command in a separate process, with a long timeout. err: its standard error so far."""

    def __init__(self, address: str, *arguments: str, timeout_s: int = 600) -> None:
        where = ("-b", address, "--timeout", str(timeout_s))
        with sigint_not_ignored():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "barnabas", *arguments, *where],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        self.err = ""

    def read_until(self, text: str) -> None:
        """Read standard error up to a line that contains this text."""
        assert self.process.stderr is not None
        while text not in self.err:
            line = self.process.stderr.readline()
            assert line, f"it ended before it said {text!r}: {self.err}"
            self.err += line

    def write(self, text: str) -> None:
        """Write to the command's standard input, which stays open."""
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def interrupt(self) -> int:
        """Send SIGINT, as Ctrl-C does. Gives: the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        """Wait until the process ends, and kill it if that takes too long. Gives: the exit code."""
        assert self.process.stderr is not None
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
        self.err += self.process.stderr.read()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return self.process.returncode


@pytest.mark.parametrize("name", ["topics list", "check", "groups describe"])
def test_ctrl_c_ends_a_verb_that_waits(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        started = Started(f"127.0.0.1:{silent.getsockname()[1]}", *COMMANDS[name])
        started.read_until("waiting for")
        assert started.interrupt() == 130
    assert "Traceback" not in started.err


@pytest.fixture
def topic(barnabas: CommandLine, port: CountedRequests) -> str:
    """A topic with one partition on the broker behind the port."""
    port.hang_up()
    port.allow(port.broker_port, None)
    name = unique("early")
    barnabas.use(port.address).ok("topics", "create", name)
    return name


def _end_offset(barnabas: CommandLine, topic: str) -> int:
    (row,) = barnabas.ok("topics", "offsets", topic, "--json").data
    return int(row["high_watermark"])


@pytest.mark.parametrize("transactional", [False, True])
def test_ctrl_c_ends_produce_and_says_what_was_acknowledged(
    barnabas: CommandLine, port: CountedRequests, topic: str, transactional: bool
) -> None:
    more = ("--transactional-id", topic) if transactional else ()
    started = Started(port.address, "produce", topic, *more)
    started.write("one\ntwo\n")
    eventually(lambda: _end_offset(barnabas, topic) == 2, what="the first two records")
    port.allow(port.broker_port, 0)
    started.write("three\n")
    started.read_until("waiting for")
    assert started.interrupt() == 130
    assert "Traceback" not in started.err
    assert "2 records were acknowledged" in started.err
    assert ("none of them committed" in started.err) == transactional


def test_produce_ends_by_its_timeout_though_its_input_does_not(
    barnabas: CommandLine, port: CountedRequests, topic: str
) -> None:
    started = Started(port.address, "produce", topic, timeout_s=2)
    started.write("one\n")
    eventually(lambda: _end_offset(barnabas, topic) == 1, what="the first record")
    port.allow(port.broker_port, 0)
    started.write("two\n")
    assert started.wait() == 1
    assert "its acknowledgement of 1 record" in started.err
    assert "1 record was acknowledged" in started.err


def test_ctrl_c_ends_consume_with_130_and_the_count(
    barnabas: CommandLine, port: CountedRequests, topic: str
) -> None:
    barnabas.ok("produce", topic, stdin="one\ntwo\n")
    started = Started(port.address, "consume", topic, "--follow", "--from", "earliest")
    assert started.process.stdout is not None
    assert started.process.stdout.readline() == "one\n"
    assert started.process.stdout.readline() == "two\n"
    port.allow(port.broker_port, 0)
    started.read_until("waiting for")
    assert started.interrupt() == 130
    assert "2 records printed" in started.err
    assert "Traceback" not in started.err


def test_consume_that_follows_waits_while_the_broker_answers(
    barnabas: CommandLine, port: CountedRequests, topic: str
) -> None:
    started = Started(port.address, "consume", topic, "--follow", timeout_s=3)
    assert started.process.stdout is not None

    def arrives() -> bool:
        barnabas.ok("produce", topic, stdin="late\n")
        return has_input(started.process.stdout, 0.5)

    eventually(arrives, what="a record that came after its start")
    assert started.interrupt() == 130
    assert "waiting for" not in started.err


def test_the_line_of_what_is_awaited_is_printed_before_the_error_if_the_check_runs_late(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a busy machine the first check may run only after the timeout, or after the client has
    ended.
    """
    now_s = [100.0]
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    late = waiting.Silence("127.0.0.1:9092", 5.0)
    early = waiting.Silence("127.0.0.1:9092", 0.5)
    now_s[0] += 0.9
    with pytest.raises(waiting.TimeoutOver):
        early.look("its answer")
    assert capsys.readouterr().err == "", "it lasted less than what the line waits for"
    now_s[0] += 60
    with pytest.raises(waiting.TimeoutOver):
        late.look("its answer")
    assert capsys.readouterr().err.count("waiting for 127.0.0.1:9092: its answer") == 1
    assert "did not answer" in str(late.over("its answer"))
    assert capsys.readouterr().err == ""
