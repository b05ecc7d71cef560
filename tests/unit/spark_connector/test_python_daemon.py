"""The daemon that starts the Python processes of a local session, and the script that starts the
daemon.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from barnabas.spark_connector import python_daemon, session


@pytest.mark.parametrize(
    ("outcome", "status"), [(0, 0), (1, 1), (BrokenPipeError(32, "Broken pipe"), 1)]
)
def test_a_process_whose_socket_java_has_closed_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, outcome: int | Exception, status: int
) -> None:
    def worker(sock: socket.socket, authenticated: bool) -> int:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(python_daemon, "_run_worker", worker)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    with socket.socket() as sock:
        assert python_daemon.run_worker(sock, True) == status


PROGRAM = """
import os, socket, sys
from barnabas.spark_connector import python_daemon

mine, peer = socket.socketpair()


def worker(sock, authenticated):
    class Buffer:
        def __del__(self):
            raise BrokenPipeError(32, "Broken pipe")

    buffer, outfile = Buffer(), os.fdopen(os.dup(sock.fileno()), "wb", 65536)
    outfile.write(b"the last bytes of a response")
    peer.close()
    outfile.flush()


python_daemon._run_worker = worker
assert python_daemon.run_worker(mine, True) == 1


class Other:
    def __del__(self):
        raise KeyError("another error")


other = Other()
del other
"""


def test_bytes_that_are_left_when_java_has_closed_the_socket_are_no_message() -> None:
    """The buffer still has them when it is freed, and Python then writes again. Since Python 3.13
    it prints the failure; other errors are printed still.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert "BrokenPipeError" not in done.stderr and "another error" in done.stderr


def test_other_errors_of_a_process_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def worker(sock: socket.socket, authenticated: bool) -> int:
        raise EOFError("no command")

    monkeypatch.setattr(python_daemon, "_run_worker", worker)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    with socket.socket() as sock, pytest.raises(EOFError, match="no command"):
        python_daemon.run_worker(sock, True)


@pytest.mark.parametrize(
    ("arguments", "started"),
    [
        (["-m", "pyspark.daemon", "pyspark.worker"],
         ["-m", "barnabas.spark_connector.python_daemon", "pyspark.worker"]),
        (["-m", "pyspark.worker", "a b"], ["-m", "pyspark.worker", "a b"]),
        (["script.py"], ["script.py"]),
        ([], []),
    ],
)  # fmt: skip
def test_the_launcher_starts_it_in_place_of_pyspark_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], started: list[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    program.chmod(0o700)
    launcher = session._launcher("python", str(program), session._PYTHON)
    output = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == str(started)
