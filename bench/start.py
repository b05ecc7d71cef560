"""The time and the memory of a start, and of a fresh LocalBroker.

A start in an empty directory is measured from the beginning of the process to its first response to
Metadata. It is measured once with bytecode, as pip installs it, and once without, as if Python may
not write any. Each start then compiles the broker's source (the standard library has bytecode in
both cases). A fresh LocalBroker is measured from its import in a running Python, as under pytest,
to the same response. Its figure is the CPU time of both processes.
"""

from __future__ import annotations

import compileall
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import barnabas
from barnabas import LocalBroker
from bench.common import Row, cpu_seconds, create_topic, rss_mb, threads_cpu_seconds

METADATA_V1 = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", -1)
FRAME = struct.pack(">i", len(METADATA_V1)) + METADATA_V1


def metadata_answer(port: int) -> bytes:
    """Request the metadata of all topics, and wait for the response."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(FRAME)
        stream = sock.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        return stream.read(size)


ROUNDS = 9
# The program that measures a LocalBroker. It imports only these modules before the measurement.
FRESH = """
import glob, socket, struct, sys, time
wall, cpu = time.perf_counter(), time.process_time()
from barnabas.local_broker import LocalBroker
broker = LocalBroker().start()
request = bytes.fromhex(sys.argv[1])
with socket.create_connection(("127.0.0.1", broker.port)) as sock:
    sock.sendall(request)
    sock.recv(4)
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
for task in glob.glob(f"/proc/{broker.pid}/task/*/schedstat"):
    cpu += int(open(task).read().split()[0]) / 1e9
print(wall, cpu)
broker.stop()
"""


def _fresh_copy(folder: str, *, with_bytecode: bool) -> str:
    """A copy of the package's source for PYTHONPATH, with or without bytecode."""
    source = Path(barnabas.__file__).parent
    shutil.copytree(source, f"{folder}/barnabas", ignore=shutil.ignore_patterns("__pycache__"))
    if with_bytecode:
        compileall.compile_dir(folder, quiet=2)
    return folder


def _environment(path: str) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**others, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def one_start(path: str) -> tuple[float, float, float]:
    """Start the daemon once. Gives: seconds of wall time and of CPU, and MB of memory."""
    directory = tempfile.mkdtemp(prefix="barnabas-bench-")
    ready = f"{directory}/ready"
    began = time.perf_counter()
    daemon = subprocess.Popen(
        [sys.executable, "-P", "-m", "barnabas", "start", "--port", "0",
         "--data-dir", f"{directory}/data", "--ready-file", ready],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment(path),
    )  # fmt: skip
    try:
        while not os.path.exists(ready):
            time.sleep(0.001)
        metadata_answer(int(Path(ready).read_text().rpartition(":")[2]))
        wall = time.perf_counter() - began
        return wall, threads_cpu_seconds(daemon.pid), rss_mb(daemon.pid)
    finally:
        daemon.kill()
        daemon.wait()
        shutil.rmtree(directory, ignore_errors=True)


def one_local_broker(path: str) -> tuple[float, float]:
    """Use a fresh LocalBroker once, in a new Python process. Gives: seconds of wall time and of
    CPU.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", FRESH, FRAME.hex()],
        capture_output=True, text=True, check=True, env=_environment(path),
    )  # fmt: skip
    wall, cpu = map(float, done.stdout.split())
    return wall, cpu


def in_an_empty_directory() -> list[Row]:
    """Alternate between measuring starts and measuring LocalBrokers, so that other load slows
    both.
    """
    rows = []
    for with_bytecode in (True, False):
        folder = tempfile.mkdtemp(prefix="barnabas-bench-")
        try:
            path = _fresh_copy(folder, with_bytecode=with_bytecode)
            starts, brokers = [], []
            for _ in range(ROUNDS):
                starts.append(one_start(path))
                brokers.append(one_local_broker(path))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        wall, cpu, memory = map(statistics.median, zip(*starts, strict=True))
        local_wall, local_cpu = map(statistics.median, zip(*brokers, strict=True))
        how = "bytecode" if with_bytecode else "no bytecode"
        rows += [
            Row(
                f"start to first Metadata answer, {how}",
                f"{cpu:.3f} s, {memory:.0f} MB",
                f"{wall:.3f} s (median of {ROUNDS})",
                "2.2-3.1 s wall, 3.5-4.3 s CPU, 366 MB" if with_bytecode else "-",
                "47-51 MB" if with_bytecode else "-",
            ),
            Row(
                f"fresh LocalBroker to the same, {how}",
                f"{local_cpu:.3f} s, {local_cpu / cpu:.2f} times",
                f"{local_wall:.3f} s, {local_wall / wall:.2f} times",
                "-",
                "-",
            ),
        ]
    return rows


def run(scale: float = 1.0) -> list[Row]:
    """Measure starts in an empty directory, and with 1,000 partitions after a clean stop."""
    return [*in_an_empty_directory(), with_partitions(1000)]


def with_partitions(partitions: int) -> Row:
    """Measure starts in a directory with `partitions` partitions, after a clean stop."""
    directory = tempfile.mkdtemp(prefix="barnabas-bench-")
    try:
        broker = LocalBroker(directory)
        with broker:
            create_topic(broker, "many", partitions)
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            broker.start()
            metadata_answer(broker.port)
            taken.append(time.perf_counter() - began)
            cpu, memory = cpu_seconds(broker.pid), rss_mb(broker.pid)
            broker.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return Row(
        f"start to first Metadata answer, {partitions} partitions",
        f"{cpu:.2f} s, {memory:.0f} MB",
        f"{sorted(taken)[2]:.2f} s (of 5: {min(taken):.2f}-{max(taken):.2f})",
        "-",
        "-",
    )
