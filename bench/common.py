"""Helpers of all benchmarks: a broker, its CPU seconds, and a table with figures of Apache Kafka.

The figures of Apache Kafka 3.9 (KRaft, one node, Java 17) and of a throw-away prototype of this
broker (no transactions, no validation: a lower bound) were measured once on a similar machine with
2 cores. Broker CPU (user + system) is the stable figure; wall time varies by a factor of two on
shared machines.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas import LocalBroker

TICKS = os.sysconf("SC_CLK_TCK")


class Row(NamedTuple):
    """One line of the report."""

    work: str
    measured: str
    wall: str
    kafka: str
    probe: str


@dataclass
class Meter:
    """CPU and wall seconds of some work, and the broker's memory after it."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    rss_mb: float = 0.0
    _start: tuple[float, float] = field(default=(0.0, 0.0), repr=False)


def end_with_parent() -> None:
    """End this process as soon as its standard input, a pipe, has no writer any more: a client must
    not outlive the benchmark that started it, which may be killed. What is written to the pipe is
    left to others.
    """

    def wait() -> None:
        poll = select.poll()
        poll.register(0, 0)  # no event but the end, which `poll` always reports
        poll.poll()
        os._exit(1)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()


def turns_within(turns: int, minutes: float) -> Iterator[int]:
    """The numbers of the turns, from 0, for as long as another one would probably end in time. The
    first one is always run.
    """
    began = last = time.monotonic()
    longest = 0.0
    for number in range(turns):
        if number and last + longest > began + 60 * minutes:
            print(
                f"{number} turns of {turns}: one more would take {longest:.0f} s, and end after "
                f"{minutes:g} minutes (--minutes)",
                file=sys.stderr,
                flush=True,
            )
            return
        yield number
        now = time.monotonic()
        longest, last = max(longest, now - last), now


def say_how_long(minutes: float) -> None:
    """Print how long a benchmark takes, at its start."""
    print(f"takes up to {minutes:.1f} minutes on an idle machine", file=sys.stderr, flush=True)


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def threads_cpu_seconds(pid: int) -> float:
    """CPU seconds of a process's current threads. They are exact to the microsecond, for short
    work.
    """
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def rss_mb(pid: int) -> float:
    """Resident memory of the process, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


@contextmanager
def metered(broker: LocalBroker) -> Iterator[Meter]:
    """Measure the broker's CPU and wall time during the body."""
    meter = Meter()
    cpu, wall = cpu_seconds(broker.pid), time.perf_counter()
    yield meter
    meter.cpu_s = cpu_seconds(broker.pid) - cpu
    meter.wall_s = time.perf_counter() - wall
    meter.rss_mb = rss_mb(broker.pid)


def create_topic(broker: LocalBroker, name: str, partitions: int, **configs: str) -> None:
    """Create a topic and wait until it exists. Takes: configs, with underscores for the dots."""
    from confluent_kafka.admin import AdminClient, NewTopic

    # Suppress the log line "purging unserved events" when the client is closed.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 5})
    config = {key.replace("_", "."): value for key, value in configs.items()}
    for future in admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
        future.result()


def print_table(rows: list[Row]) -> None:
    """Print the report, as Markdown that is also readable in a terminal."""
    header = Row(
        "work", "broker CPU here", "wall here", "Kafka 3.9: broker CPU", "probe: broker CPU"
    )
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, Row(*("-" * width for width in widths)), *rows]:
        print(
            "| "
            + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            + " |",
            flush=True,
        )
