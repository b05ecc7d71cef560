"""The command line as a user sees it: help, wrong settings, errors at the start, and a clean and
fast stop.
"""

from __future__ import annotations

import itertools
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers.e2e_clients import (
    PATIENCE_S,
    create_topic,
    eventually,
    producer,
    send_all,
    transact,
    unique,
    values_of,
    wait_until_ready,
)
from helpers.e2e_wire import Wire
from helpers.loop_watchdog import daemon_command
from helpers.ports import free_port
from sim import wire

from barnabas import LocalBroker
from barnabas.protocol.messages.metadata import MetadataRequest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]


METADATA = wire.request(MetadataRequest(topics=[]), 1)


def barnabas(*arguments: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    """Run the command `barnabas` to its end."""
    return subprocess.run(
        [*daemon_command(), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def refusal(*arguments: str) -> str:
    """The only line that a refused start prints."""
    done = barnabas("start", *arguments)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("barnabas: ")
    assert done.stdout == ""
    return lines[0]


def test_help_names_every_option() -> None:
    whole, start = barnabas("--help"), barnabas("start", "--help")
    assert whole.returncode == start.returncode == 0
    assert "start" in whole.stdout
    for option in ("--config", "--set", "--host", "--port", "--data-dir", "--quiet"):
        assert option in start.stdout
    assert "Example" in whole.stdout


def test_version() -> None:
    done = barnabas("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("barnabas ")


def test_an_unknown_setting_is_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    line = refusal("--port", "0", "--data-dir", str(tmp_path), "--set", "log.segment.byte=5")
    assert "log.segment.byte" in line
    assert "log.segment.bytes" in line


def test_invalid_values_of_settings_and_options_are_refused(tmp_path: Path) -> None:
    assert "num.partitions=many" in refusal(
        "--port", "0", "--data-dir", str(tmp_path), "--set", "num.partitions=many"
    )
    assert "KEY=VALUE" in refusal(
        "--port", "0", "--data-dir", str(tmp_path), "--set", "num.partitions"
    )
    assert "70000" in refusal("--port", "70000", "--data-dir", str(tmp_path))


def test_a_missing_properties_file_and_an_unknown_key_in_one_are_refused(tmp_path: Path) -> None:
    assert "missing.properties" in refusal("--config", str(tmp_path / "missing.properties"))
    file = tmp_path / "server.properties"
    file.write_text("# as Kafka's\nnum.partitions=7\nbarnabas.no.such.key=1\n")
    assert "barnabas.no.such.key" in refusal(
        "--config", str(file), "--port", "0", "--data-dir", str(tmp_path)
    )


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal("--port", str(port), "--data-dir", str(tmp_path))
    assert str(port) in line
    assert "in use" in line


def test_a_data_directory_that_another_broker_has(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        line = refusal("--port", "0", "--data-dir", str(tmp_path))
        assert str(tmp_path) in line
        topic = create_topic(broker.bootstrap_servers, "undisturbed")
        send_all(broker.bootstrap_servers, topic, [b"v"])
        assert values_of(broker.bootstrap_servers, topic) == [b"v"]


def test_a_data_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    line = refusal("--port", "0", "--data-dir", str(tmp_path / "file" / "data"))
    assert str(tmp_path / "file" / "data") in line


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert str(tmp_path / "file") in refusal("--port", "0", "--data-dir", str(tmp_path / "file"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_directory_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert str(tmp_path) in refusal("--port", "0", "--data-dir", str(tmp_path))
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_cleanly_with_an_open_transaction_and_a_waiting_fetch(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The stop waits neither for an open transaction nor for a waiting fetch, each of which could
    last for another ten minutes.
    """
    with LocalBroker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        topic, name = create_topic(servers, "load", 20), unique("open")
        client = producer(servers, transactional_id=name, transaction_timeout_ms=600_000)
        client.init_transactions(PATIENCE_S)
        transact(client, topic, [b"committed"])
        client.begin_transaction()
        client.produce(topic, b"open", partition=0)
        assert client.flush(PATIENCE_S) == 0
        process = broker.process
        assert process is not None
        with Wire(broker.port) as reader:
            reader.send(wire.fetch([(topic, 1, 0)], committed=True, max_wait_ms=600_000))
            os.kill(process.pid, number)
            assert process.wait(PATIENCE_S) == 0
            assert reader.is_closed_by_broker()
        assert broker.stop() == 0
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        output = "".join(broker.output)
        assert "Traceback" not in output
        assert "ERROR" not in output
        broker.restart()
        wait_until_ready(servers)
        assert values_of(servers, topic) == [b"committed"]
        client.commit_transaction(PATIENCE_S)
        assert values_of(servers, topic) == [b"committed", b"open"]


def test_further_signals_do_not_interrupt_a_clean_stop(tmp_path: Path) -> None:
    """Signals are sent continuously from the time when the daemon listens until it has ended. None
    of them interrupts the stop.
    """
    with LocalBroker(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "many", 50)
        assert broker.stop() == 0
        broker.restart()
        process = broker.process
        assert process is not None
        signals = itertools.cycle((signal.SIGTERM, signal.SIGINT))
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None:
            process.send_signal(next(signals))
            assert time.monotonic() < deadline, "it does not end"
            time.sleep(0.001)  # gives the daemon time to make progress
        assert broker.stop() == process.returncode == 0, "".join(broker.output)
        assert "Traceback" not in "".join(broker.output)
        assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_right_after_the_port_opens_stops_the_broker_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    port = free_port()
    command = [sys.executable, "-P", "-m", "barnabas", "start", "--port", str(port)]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    ) as process:
        try:
            while process.poll() is None:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
            process.send_signal(number)
            _, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert b"Traceback" not in errors


@pytest.mark.parametrize("is_forked", [False, True])
def test_signals_that_the_starting_process_has_blocked_stop_the_broker(is_forked: bool) -> None:
    """A child inherits them, from a program that waits for signals in a thread of its own."""
    script = f"""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD])
from barnabas import LocalBroker
from barnabas.forked_daemon import FORKING
if {is_forked}:
    for _ in range(2):
        LocalBroker().start().kill()
    assert FORKING.wait_until_ready()
broker = LocalBroker().start()
assert (type(broker.process).__name__ == "ForkedProcess") is {is_forked}
assert broker.stop() == 0
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def started(data: Path, output: int, *, shell: str = "") -> tuple[subprocess.Popen[bytes], int]:
    """Start the daemon as a supervisor does. Gives: the process, and the daemon's port. Takes:
    shell, redirections of the shell.
    """
    ready = data.with_name(f"{data.name}-ready")
    command = (
        f"exec {sys.executable} -P -m barnabas start "
        f"--port 0 --data-dir {data} --ready-file {ready} {shell}"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment,
    )
    try:
        eventually(ready.exists, what="the broker is ready")
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process, int(ready.read_text().strip().rpartition(":")[2])


def ended(process: subprocess.Popen[bytes]) -> int:
    """Stop the daemon by SIGTERM. Gives: the exit code."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(PATIENCE_S)
    finally:
        process.kill()


def test_a_full_pipe_of_log_lines_does_not_block_clients(tmp_path: Path) -> None:
    """A terminal with Ctrl-S, or a log collector that hangs, does not read the pipe. The pipe is
    full after 64 KB.
    """
    reading, writing = os.pipe()
    process, port = started(tmp_path, writing)
    try:
        os.close(writing)
        # The clients use many addresses, since log lines are limited for each address.
        for number in range(1500):
            source = (f"127.0.1.{1 + number % 100}", 0)
            with socket.create_connection(("127.0.0.1", port), source_address=source) as client:
                client.sendall(b"\xff\xff\xff\xfb")  # an invalid size, which is logged
        topic = create_topic(f"127.0.0.1:{port}", "heard")
        send_all(f"127.0.0.1:{port}", topic, [b"v"])
        assert values_of(f"127.0.0.1:{port}", topic) == [b"v"]
        assert ended(process) == 0
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        assert len(os.read(reading, 1 << 20)) > 60_000, "the pipe was full"
    finally:
        process.kill()
        os.close(reading)


def test_closed_standard_streams_are_replaced_by_dev_null(tmp_path: Path) -> None:
    """Otherwise a data file could get the descriptor 2, and log lines would be written into it."""
    process, port = started(tmp_path, subprocess.DEVNULL, shell="<&- >&- 2>&-")
    try:
        create_topic(f"127.0.0.1:{port}", "some")
        assert [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)] == [
            "/dev/null"
        ] * 3
    finally:
        assert ended(process) == 0


def test_a_standard_output_that_cannot_be_written_is_no_reason_to_end(tmp_path: Path) -> None:
    process, _ = started(tmp_path, subprocess.DEVNULL, shell=">/dev/full")
    assert ended(process) == 0


def test_a_stop_after_the_data_directory_vanished_fails_with_one_line(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        create_topic(broker.bootstrap_servers, "some")
        shutil.rmtree(tmp_path / "data")
        assert broker.stop() == 1
        output = "".join(broker.output)
        assert "Traceback" not in output
        assert f"the data directory {tmp_path / 'data'} failed: No such file or directory" in output


def test_the_broker_needs_less_than_60_mb_of_memory(tmp_path: Path) -> None:
    """The memory is measured after the first Metadata response; bench/start.py measures memory and
    time more precisely.
    """
    with LocalBroker(tmp_path) as broker:
        wait_until_ready(broker.bootstrap_servers)
        assert psutil.Process(broker.pid).memory_info().rss < 60_000_000


def test_the_working_directory_does_not_shadow_its_modules(tmp_path: Path) -> None:
    """The user's directory, in which the command runs, has a package named `storage`."""
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "__init__.py").write_text("raise RuntimeError('the wrong storage')\n")
    with subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "barnabas",
            "start",
            "--port",
            "0",
            "--data-dir",
            str(tmp_path / "data"),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.terminate()
        assert "listens on" in first


def test_sighup_without_a_terminal_opens_the_log_again_and_reads_the_certificates(
    tmp_path: Path,
) -> None:
    """As logrotate and `systemctl reload` ask for. Clients stay connected."""
    assert barnabas("certs", str(tmp_path / "certs")).returncode == 0
    log, audit = tmp_path / "broker.log", tmp_path / "audit.log"
    port, ready = free_port(), tmp_path / "ready"
    with open(log, "ab") as output:
        process = subprocess.Popen(
            [*daemon_command(), "start", "--port", str(port), "--data-dir", str(tmp_path / "data"),
             "--audit-log", str(audit), "--ready-file", str(ready), "--set",
             f"listeners=PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:0", "--set",
             f"ssl.keystore.location={tmp_path / 'certs' / 'broker.pem'}"],
            stdout=output, stderr=output, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    try:
        eventually(ready.exists, what="the broker to be ready")
        with Wire(port) as client:
            client.call(METADATA)
            log.rename(tmp_path / "broker.log.1")
            audit.rename(tmp_path / "audit.log.1")
            process.send_signal(signal.SIGHUP)
            eventually(lambda: log.exists() and audit.exists(), what="new log files")
            client.call(METADATA)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
    before = (tmp_path / "broker.log.1").read_text()
    assert "the certificates are read and the log files are opened again" in before
    assert "broker.pem are in use" in before
    assert "listens on" in before and "listens on" not in log.read_text()


def test_when_its_terminal_is_closed_the_broker_stops_cleanly(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [
        *daemon_command(), "start", "--port", "0", "--data-dir", str(tmp_path / "data"),
        "--ready-file", str(ready),
    ]  # fmt: skip
    child, terminal = pty.fork()
    if child == 0:  # it leads a session, to which the system sends SIGHUP
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execvpe(command[0], command, {**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        eventually(ready.exists, what="the broker to be ready")
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not ready.exists()
