"""The cost of a large write with each writer (the driver in one transaction, or the tasks
themselves), compared with a write that is discarded.

    python -m bench.spark_sink [--rows 1000000] [--turns 5] [--modes driver tasks discard noop]
                               [--workers N] [--setting NAME=VALUE ...]

Rows of 100 bytes with a key are written from local[2] to a topic of two partitions on a broker with
two-phase commit. The modes run by turns, in one session. The first turn, in which Spark compiles,
is not counted. `discard` passes all rows to a sink in Python that ignores them, so its time is
Spark's. With --workers the tasks run on a stand-alone cluster on this machine, with N workers of
one core each.

The figures are medians of wall time and of the CPU time of the JVM (with a cluster, also of the
executors' JVMs), of Python and of the broker. Other figures are the maximum memory of the driver's
JVM, and of a single Python process, which runs tasks or the driver's commits.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import pyspark

from barnabas import LocalBroker
from bench.common import cpu_seconds, create_topic, rss_mb
from bench.spark_idle import Cpu, cpu_of, descendants

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SIZE = 100
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}


class Turn(NamedTuple):
    """The cost of one write.

    most_mb: the maximum memory of one of Spark's Python processes. jvm_mb: the maximum memory of
    the driver's JVM.
    """

    wall_s: float
    cpu: Cpu
    most_mb: float
    jvm_mb: float


class Watch:
    """Records the maximum memory in MB of the driver's JVM, and of any one of Spark's Python
    processes.
    """

    def __init__(self, jvm: int) -> None:
        self._jvm, self.most_mb, self.jvm_mb = jvm, 0.0, 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        """Sample the memory of the JVM, and of the largest Python process below it, in a thread."""
        while not self._is_over.wait(0.2):
            self.jvm_mb = max(self.jvm_mb, rss_mb(self._jvm))
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
    """Write the rows.

    Takes: mode, a sinkMode, noop or discard; name, the id of the write.
    """
    if mode in ("noop", "discard"):
        frame.write.format(mode).mode("overwrite" if mode == "noop" else "append").save()
        return
    (
        frame.write.format("barnabas")
        .options(**{"kafka.bootstrap.servers": broker.bootstrap_servers})
        .options(topic="written", sinkMode=mode, writeId=name)
        .mode("append")
        .save()
    )


def discarding() -> type:
    """A sink that accepts Arrow batches and ignores them."""
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    class Writer(DataSourceArrowWriter):  # type: ignore[misc]
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Discarding(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "discard"

        def writer(self, schema: StructType, overwrite: bool) -> Writer:
            return Writer()

    return Discarding


def measure(frame: DataFrame, meter: Meter, modes: list[str], turns: int) -> None:
    """Run all modes by turns, and print the medians of each mode."""
    rows = frame.count()
    taken: dict[str, list[Turn]] = {mode: [] for mode in modes}
    for turn in range(turns + 1):
        for mode in modes:
            before, start = meter.cpu(), time.perf_counter()
            with Watch(meter.jvm) as watch:
                write(frame, meter.broker, mode, f"{mode}-{turn}")
            wall_s = time.perf_counter() - start
            cpu = meter.cpu().since(before, 1)
            if turn:
                taken[mode].append(Turn(wall_s, cpu, watch.most_mb, watch.jvm_mb))
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
            f"broker {broker_ms / 1000:.2f} s; the driver's JVM had at most "
            f"{max(each.jvm_mb for each in several):.0f} MB, a Python process "
            f"{max(each.most_mb for each in several):.0f} MB",
            flush=True,
        )


class Meter:
    """Measures the CPU time of a driver, of the workers of a cluster and of the broker."""

    def __init__(self, spark: SparkSession, broker: LocalBroker, workers: list[int]) -> None:
        self.jvm: int = spark.sparkContext._gateway.proc.pid
        self.broker, self._workers = broker, workers

    def cpu(self) -> Cpu:
        """The CPU seconds so far. The descendants of a worker include the JVMs of its executors."""
        total = cpu_of(self.jvm, self.broker.pid)
        for worker in self._workers:
            for pid in descendants(worker):
                spent = cpu_seconds(pid)
                total = (
                    total._replace(jvm=total.jvm + spent)
                    if is_java(pid)
                    else total._replace(python=total.python + spent)
                )
        return total


def is_java(pid: int) -> bool:
    """Whether a process is a JVM."""
    return Path(f"/proc/{pid}/exe").resolve().name == "java"


@contextmanager
def cluster(workers: int) -> Iterator[tuple[str, list[int]]]:
    """A stand-alone cluster on this machine. Gives: its URL, the process ids of its workers."""
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    processes: list[subprocess.Popen[bytes]] = []

    def start(kind: str, host: str, *arguments: str) -> None:
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        command += ["--host", host, "--webui-port", "0", *arguments]
        environment = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": host}
        processes.append(
            subprocess.Popen(
                command,
                env={**os.environ, **environment, "SPARK_DAEMON_MEMORY": "256m"},
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        try:
            start("master.Master", "127.0.0.1", "--port", str(port))
            for number in range(1, workers + 1):
                limits = ["--cores", "1", "--memory", "1g", "--work-dir", f"{scratch}/{number}"]
                start("worker.Worker", f"127.0.0.{number}", *limits, url)
            yield url, [process.pid for process in processes[1:]]
        finally:
            for process in processes:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def session_on(url: str, settings: dict[str, str]) -> SparkSession:
    """A session on a cluster."""
    from pyspark.sql import SparkSession

    from barnabas.spark_connector.session import prepare

    prepare()
    builder = SparkSession.builder.master(url).appName("sink")
    for name, value in {"spark.driver.host": "127.0.0.1", **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    """Read the arguments, and measure in one session."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--modes", nargs="+", default=["driver", "tasks", "discard", "noop"])
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--setting", action="append", default=[], help="of Spark, NAME=VALUE")
    options = parser.parse_args()
    from barnabas.spark import local_session

    settings = {"spark.log.level": "ERROR", "spark.ui.enabled": "false"}
    settings |= dict(each.split("=", 1) for each in options.setting)
    with ExitStack() as stack:
        broker = stack.enter_context(LocalBroker(in_memory=False, settings=TWO_PHASE))
        create_topic(broker, "written", 2)
        workers: list[int] = []
        if options.workers:
            url, workers = stack.enter_context(cluster(options.workers))
            executors = {"spark.executor.memory": "700m", "spark.executor.cores": "1"}
            spark = session_on(url, {**executors, **settings})
        else:
            spark = local_session("sink", cores=2, settings=settings)
        stack.callback(spark.stop)
        spark.dataSource.register(discarding())
        frame = spark.range(0, options.rows, 1, 2).selectExpr(
            "CAST(id AS STRING) AS key", f"rpad(CAST(id AS STRING), {SIZE}, 'x') AS value"
        )
        measure(frame, Meter(spark, broker, workers), options.modes, options.turns)


if __name__ == "__main__":
    main()
