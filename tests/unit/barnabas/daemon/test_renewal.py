"""Which process may run a second daemon: one in which nothing is left of the first."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import pytest
from helpers.processes import ROOT

from barnabas.daemon import rehearsal

# Each change is made in a child of one process, after its state was noted. The child's exit code
# says whether `restore` gave True.
PROGRAM = """
import gc, json, locale, logging, os, resource, signal, subprocess, sys, threading, time, warnings
from barnabas.daemon.renewal import ProcessState

CHANGES = json.loads(sys.argv[1])
_, MOST_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
given = {}
for change in CHANGES:
    pid = os.fork()
    if not pid:
        known = logging.getLogger("known")
        known.setLevel(logging.WARNING)
        state = ProcessState()
        exec(change, globals())
        fits = state.restore()
        if fits:  # what is set back, is so
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            assert logging.root.handlers == []
            assert known.level == logging.WARNING and known.handlers == [] and not known.disabled
            assert gc.get_threshold() == (700, 10, 10)
            assert sys.getswitchinterval() == 0.005
            assert os.getcwd() == "/"
            assert os.read(0, 1) == b""
        os._exit(0 if fits else 1)
    given[change] = os.waitpid(pid, 0)[1]
print(json.dumps(given))
"""
SET_BACK = [
    "pass",
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "signal.signal(signal.SIGINT, lambda *_: None)",
    "logging.basicConfig(level=10)",
    "logging.root.setLevel(1)",
    "known.setLevel(logging.DEBUG)",
    "known.disabled = True",
    "known.addHandler(logging.NullHandler())",
    "known.addFilter(lambda record: False)",
    "logging.disable(logging.ERROR)",
    "sys.setswitchinterval(0.001)",
    "gc.set_threshold(25_000, 1, 1 << 30)",
    "resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))",
    "os.chdir('/tmp')",
    "thread = threading.Thread(target=time.sleep, args=(0.05,)); thread.start()",
    "subprocess.run(['true'])",
]
REFUSED = [
    "logging.getLogger('other')",
    "kept = open('/dev/null')",
    "kept = os.dup(1)",
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "kept = subprocess.Popen(['sleep', '1'])",
    "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))",
    "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))",
    "os.nice(1)",
    "os.umask(0o077)",
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])",
    "signal.setitimer(signal.ITIMER_REAL, 1000)",
    "time.tzname = ('XYZ', 'XYZ')",
    "warnings.filterwarnings('error', 'of a test')",
    "sys.excepthook = print",
    "sys.setprofile(lambda *_: None)",
    "gc.disable()",
    "state.restore(); kept = bytearray(b'x') * (100 << 20)",
]


@pytest.fixture(scope="module")
def exit_codes() -> dict[str, int]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(SET_BACK + REFUSED)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, cwd=ROOT, timeout=120,
    )  # fmt: skip
    found: dict[str, int] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("change", SET_BACK)
def test_what_a_daemon_changes_is_set_back(exit_codes: dict[str, int], change: str) -> None:
    assert exit_codes[change] == 0


@pytest.mark.parametrize("change", REFUSED)
def test_a_process_that_differs_is_not_used_again(exit_codes: dict[str, int], change: str) -> None:
    assert exit_codes[change] == 1 << 8


# --- modules

CONTAINERS = (list, dict, set, bytearray, deque, WeakKeyDictionary, WeakValueDictionary, WeakSet)
# Caches of pure functions: what is found in them depends on the key alone.
CACHES = {"_HEADS_BY_NAME", "_HEADS_BY_ID", "_FETCHES", "_HEARTBEATS", "_COMMITS", "_VARINT"}


def containers() -> Iterator[tuple[str, Any]]:
    """The changeable values of our modules and classes, by name."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("barnabas.") or not isinstance(module, types.ModuleType):
            continue
        owners = [(name, vars(module))]
        owners += [
            (f"{name}.{each.__qualname__}", vars(each))
            for each in vars(module).values()
            if isinstance(each, type) and each.__module__ == name
        ]
        for owner, values in owners:
            for key, value in list(values.items()):
                if not key.startswith("__") and key not in CACHES and isinstance(value, CONTAINERS):
                    yield f"{owner}.{key}", value


def test_a_broker_leaves_nothing_in_modules_and_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next broker of the process would have it."""
    rehearsal.rehearse_test(str(tmp_path / "first"))  # loads all modules
    before = {name: repr(value) for name, value in containers()}
    assert len(before) > 100
    monkeypatch.setattr(rehearsal, "_TOPIC", "of-this-test")
    rehearsal.rehearse_test(str(tmp_path / "second"))
    after = {name: repr(value) for name, value in containers()}
    changed = {name for name in before.keys() | after if before.get(name) != after.get(name)}
    assert not changed
