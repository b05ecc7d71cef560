"""The PostgreSQL of tests and examples ends with the process that started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from helpers.e2e_clients import eventually

OWNER = """
import sys
sys.path.insert(0, sys.argv[1])
from postgres_process import PostgresProcess
postgres = PostgresProcess({"fsync": "off"}).start()
print(postgres.process.pid, postgres.directory, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "terminated"])
def test_no_process_and_no_file_is_left_of_an_owner_that_is(how: str) -> None:
    """As a worker of an interrupted test run, which has no time to end anything."""
    examples = Path(__file__).resolve().parents[2] / "examples" / "guarantees"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(examples)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        server = psutil.Process(int(pid))
        processes = [server, *server.children(recursive=True)]
        assert Path(directory).exists()
        if how == "killed":
            owner.kill()
        else:
            owner.terminate()
    eventually(lambda: not any(map(runs, processes)), what="the end of all processes")
    eventually(lambda: not Path(directory).exists(), what="the removal of the directory")


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
