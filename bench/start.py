"""How long does a start take, and how much memory?"""

from __future__ import annotations

import shutil
import socket
import struct
import tempfile
import time

from barnabas import LocalBroker
from bench.common import Row, cpu_seconds, create_topic, rss_mb

METADATA_V1 = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", -1)


def metadata_answer(port: int) -> bytes:
    """Ask for all topics and wait for the answer."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(struct.pack(">i", len(METADATA_V1)) + METADATA_V1)
        stream = sock.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        return stream.read(size)


def run(scale: float = 1.0) -> list[Row]:
    """Measure from the start of the process to the first Metadata answer.

    On an empty directory, and with 1,000 partitions after a clean stop.
    """
    rows = []
    for partitions in (0, 1000):
        directory = tempfile.mkdtemp(prefix="barnabas-bench-")
        try:
            broker = LocalBroker(directory)
            if partitions:
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
            rows.append(
                Row(
                    f"start to first Metadata answer, {partitions} partitions",
                    f"{cpu:.2f} s, {memory:.0f} MB",
                    f"{sorted(taken)[2]:.2f} s (of 5: {min(taken):.2f}-{max(taken):.2f})",
                    "2.2-3.1 s wall, 3.5-4.3 s CPU, 366 MB" if not partitions else "-",
                    "47-51 MB" if not partitions else "-",
                )
            )
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return rows
