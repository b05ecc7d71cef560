"""The tests' part of the watchdog of the event loop. It starts watched daemons and collects faults.

    daemon_command()     the command of a daemon, watched after a call of `start_watching`
    take_faults()        the faults of all daemons of this process since the last call

`watched_daemon.py` defines what a fault is. tests/conftest.py starts the watch for every
LocalBroker and every process that is started by `daemon_command`, and fails the test during which a
fault is reported.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from barnabas import LocalBroker
from helpers import watched_daemon

BOUND_MS = 50
CI_FACTOR = 2  # higher on CI, where other virtual machines share the hardware's caches
_UNWATCHED = ("-P", "-m", "barnabas")
_WATCHED = ("-P", watched_daemon.__file__)


def start_watching() -> None:
    """From now on, watch the daemons that this process starts."""
    if watched_daemon.FAULTS_DIRECTORY not in os.environ:
        directory = tempfile.mkdtemp(prefix="barnabas-faults-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        os.environ[watched_daemon.FAULTS_DIRECTORY] = directory
        os.environ.setdefault(watched_daemon.BOUND_MS, str(bound_ms()))
    LocalBroker.daemon = _WATCHED


def bound_ms() -> int:
    """The limit, on this machine, of the CPU time of a callback of the event loop."""
    return BOUND_MS * (CI_FACTOR if os.environ.get("CI") else 1)


def daemon_command() -> list[str]:
    """The interpreter and the arguments that precede those of `barnabas`."""
    is_watched = watched_daemon.FAULTS_DIRECTORY in os.environ
    return [sys.executable, *(_WATCHED if is_watched else _UNWATCHED)]


def take_faults() -> list[str]:
    """The faults that daemons have reported since the last call."""
    directory = os.environ.get(watched_daemon.FAULTS_DIRECTORY)
    faults = []
    for path in sorted(Path(directory).glob("*.fault")) if directory else ():
        faults.append(path.read_text())
        path.unlink()
    return faults
