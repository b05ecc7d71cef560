"""The modules that the daemon loads from its start to its first response to Metadata.

A start should take 0.12 s of CPU time with cached bytecode, 0.35 s without it, and 30 MB. No test
can measure this on a busy machine. Nearly all of it is spent on loading modules, so the tests count
the modules instead.
"""

from __future__ import annotations

import ast
import io
import os
import socket
import struct
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Any

import pytest
from helpers.e2e_clients import eventually
from helpers.our_messages import read_answer, request_frame
from helpers.processes import environment

from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.metadata import MetadataRequest

ROOT = Path(__file__).resolve().parents[2]
METADATA_VERSION = 4
MOST_BYTES_OF_OURS = 553_250  # of the code that a start with an empty directory loads
NOT_AT_START = (
    # From the standard library: each took at least 1 % of a start, or is imported by one that did.
    "email", "http", "importlib.metadata", "importlib.resources", "multiprocessing", "unittest",
    "urllib", "xml", "zipfile",
    # needed by some settings, commands or extras
    "click", "cryptography", "kafka", "numba", "numpy", "pandas", "pyarrow", "pyspark",
    "anyio",
    "barnabas.admin", "barnabas.cli", "barnabas.control", "barnabas.local_broker",
    "barnabas.spark_connector",
    "barnabas.broker.console", "barnabas.broker.control", "barnabas.broker.graduation",
    "barnabas.broker.metrics", "barnabas.broker.replication", "barnabas.broker.security.acls",
    "barnabas.broker.security.gate", "barnabas.broker.share", "barnabas.broker.quotas.rates",
    # needed by the first topic, group or transaction
    "barnabas.broker.group_runtime", "barnabas.broker.logs.start", "barnabas.broker.transactions",
    "barnabas.coordinator.groups", "barnabas.coordinator.transactions.transaction_coordinator",
    "barnabas.coordinator.transactions.transaction_state",
    "barnabas.storage.batch", "barnabas.storage.cleaning.clean_plan",
    "barnabas.storage.cleaning.cleaner", "barnabas.storage.cleaning.segment_swap",
    "barnabas.storage.log", "barnabas.storage.opening", "barnabas.storage.producers",
)  # fmt: skip
START = """
import sys
from barnabas.broker.rim.daemon import main
status = main.main(sys.argv[1:])
print("LOADED", *sys.modules)
sys.exit(status)
"""


def answer_of(port: int, request: Message, version: int) -> Any:
    """Send a request to the broker. Gives the response."""
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        frame = request_frame(request, version, 1)
        sock.sendall(struct.pack(">i", len(frame)) + frame)
        with sock.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            return read_answer(stream.read(size), type(request), version)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules that the daemon has loaded when it ends, after it answered a Metadata request."""
    directory = tmp_path_factory.mktemp("start")
    ready = directory / "ready"
    with subprocess.Popen(
        [sys.executable, "-c", START, "start", "--port", "0", "--data-dir", str(directory / "data"),
         "--stop-at-end-of-input", "--ready-file", str(ready)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as daemon:  # fmt: skip
        try:
            eventually(ready.exists, what="the daemon listens")
            port = int(ready.read_text().rpartition(":")[2])
            assert answer_of(port, MetadataRequest(), METADATA_VERSION).brokers
            output, _ = daemon.communicate(timeout=60)
        finally:
            daemon.kill()
    assert daemon.returncode == 0
    (line,) = [line for line in output.splitlines() if line.startswith("LOADED ")]
    return set(line.split()[1:])


def test_a_start_does_not_load_modules_that_are_needed_later(loaded: set[str]) -> None:
    early = {
        name
        for name in loaded
        for later in NOT_AT_START
        if name == later or name.startswith(f"{later}.")
    }
    assert early == set()


def bytes_of_code(source: str) -> int:
    """The size of a module without indentation, comments and docstrings."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    comments = {
        token.start[0]: token.start[1]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    return sum(
        len(line[: comments.get(number)].strip().encode())
        for number, line in enumerate(source.splitlines(), 1)
        if number not in docstrings
    )


def test_comments_and_docstrings_are_no_code() -> None:
    code = "def f():\n    return '# none'\n"
    with_texts = (
        'def f():  # one\n    """Two.\n\n    Three."""\n    # four\n    return \'# none\'\n'
    )
    assert bytes_of_code(code) == bytes_of_code(with_texts) == len("def f():return '# none'")


def test_the_size_of_barnabas_modules_loaded_at_a_start_is_bounded(loaded: set[str]) -> None:
    """The limit is a number of bytes, since splitting a module does not slow down a start. Comments
    and docstrings do not count, since they do not slow it down either.
    """
    files = {name: ROOT / f"{name.replace('.', '/')}.py" for name in loaded}
    sizes = {
        name: bytes_of_code(path.read_text(encoding="utf-8"))
        for name, path in files.items()
        if name.startswith("barnabas.") and path.is_file()
    }
    assert sum(sizes.values()) <= MOST_BYTES_OF_OURS, sizes
    assert len(sizes) > 80, "the daemon loads its modules under this name"


LOCAL_BROKER = """
import sys
before = set(sys.modules)
from barnabas.local_broker import LocalBroker
broker = LocalBroker().start()
print(*(set(sys.modules) - before))
broker.stop()
"""
NOT_FOR_A_LOCAL_BROKER = {
    "platform", "random", "shutil", "tempfile", "typing", "uuid",
    "barnabas.admin", "barnabas.broker", "barnabas.control", "barnabas.protocol",
}  # fmt: skip


def test_a_local_broker_loads_little_in_its_own_process() -> None:
    """The start of a local broker should take at most 1.2 times the CPU time of a daemon's
    start.
    """
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOCAL_BROKER],
        capture_output=True, text=True, check=True, timeout=120,
        env={**environment(), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )  # fmt: skip
    loaded = set(done.stdout.split())
    assert "barnabas.local_broker" in loaded and "subprocess" in loaded
    assert loaded & NOT_FOR_A_LOCAL_BROKER == set()
