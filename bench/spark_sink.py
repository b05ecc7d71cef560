"""What a large write costs, by who writes it: the driver in one transaction, or the tasks
themselves; beside a write that goes nowhere.

    python -m bench.spark_sink [--rows 1000000] [--turns 5] [--modes driver tasks noop]

Rows of 100 bytes and a key, local[2], to a topic of two partitions on a broker that takes part in
two-phase commit. The modes run in turns, in one session; the first turn, in which Spark compiles,
is not counted. Medians of wall time, and of the CPU of the JVM, of Python and of the broker apart;
and the most memory that one of the Python processes had, of tasks and of the driver's commits.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from barnabas import LocalBroker
from bench.common import create_topic, rss_mb
from bench.spark_idle import Cpu, cpu_of, descendants

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SIZE = 100
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}


class Turn(NamedTuple):
    """One write. most_mb: of one of Spark's Python processes."""

    wall_s: float
    cpu: Cpu
    most_mb: float


class Watch:
    """The most memory that one of the JVM's Python processes has, in MB."""

    def __init__(self, jvm: int) -> None:
        self._jvm, self.most_mb = jvm, 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            for pid in descendants(self._jvm):
                with suppress(OSError):
                    self.most_mb = max(self.most_mb, rss_mb(pid))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()


def write(frame: DataFrame, broker: LocalBroker, mode: str, name: str) -> None:
    """Write the rows. Takes: mode, a sinkMode, or noop; name, of the write."""
    if mode == "noop":
        frame.write.format("noop").mode("overwrite").save()
        return
    (
        frame.write.format("barnabas")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers})
        .options(topic="written", sinkMode=mode, writeId=name)
        .mode("append")
        .save()
    )


def measure(frame: DataFrame, broker: LocalBroker, modes: list[str], turns: int) -> None:
    """Print the medians of each mode."""
    jvm = frame.sparkSession.sparkContext._gateway.proc.pid
    rows = frame.count()
    taken: dict[str, list[Turn]] = {mode: [] for mode in modes}
    for turn in range(turns + 1):
        for mode in modes:
            before, start = cpu_of(jvm, broker.pid), time.perf_counter()
            with Watch(jvm) as watch:
                write(frame, broker, mode, f"{mode}-{turn}")
            wall_s = time.perf_counter() - start
            cpu = cpu_of(jvm, broker.pid).since(before, 1)
            if turn:
                taken[mode].append(Turn(wall_s, cpu, watch.most_mb))
    for mode, several in taken.items():
        wall_s = statistics.median(each.wall_s for each in several)
        jvm_ms, python_ms, broker_ms = (
            statistics.median(each.cpu[part] for each in several) for part in range(3)
        )
        shortest, longest = min(several).wall_s, max(several).wall_s
        print(
            f"{mode:7} {rows:,} rows: {wall_s:.2f} s ({shortest:.2f} to {longest:.2f}), "
            f"{rows / wall_s / 1000:,.0f} k rows/s; "
            f"CPU: JVM {jvm_ms / 1000:.2f} s, Python {python_ms / 1000:.2f} s, "
            f"broker {broker_ms / 1000:.2f} s; a Python process had at most "
            f"{max(each.most_mb for each in several):.0f} MB",
            flush=True,
        )


def main() -> None:
    """Measure in one session."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--modes", nargs="+", default=["driver", "tasks", "noop"])
    options = parser.parse_args()
    from barnabas.spark import local_session

    spark = local_session("sink", cores=2, settings={"spark.log.level": "ERROR"})
    with LocalBroker(in_memory=False, settings=TWO_PHASE) as broker:
        create_topic(broker, "written", 2)
        frame = spark.range(options.rows).selectExpr(
            "CAST(id AS STRING) AS key", f"rpad(CAST(id AS STRING), {SIZE}, 'x') AS value"
        )
        measure(frame, broker, options.modes, options.turns)
    spark.stop()


if __name__ == "__main__":
    main()
