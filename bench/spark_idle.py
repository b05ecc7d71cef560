"""The cost of an almost empty micro-batch, topic to topic on local[2]: its time, and the CPU time
of the JVM, of Python and of the broker.

    python -m bench.spark_idle [--partitions 1 8] [--batches 60] [--rounds 4] [--warm-up 300]
                               [--variant NAME[:SETTING=VALUE,...] ...]

Each micro-batch has one record of each partition. Each variant has its own Spark and broker. The
variants run by turns, so that other load of the machine slows them equally. A SETTING is a setting
of Spark, an option of the source, or `checkout`: a directory with another version of this project.
Batches of the warm-up are not counted, since for hundreds of batches the JVM spends most time on
compilation. The CPU time of short-lived processes that the JVM starts (`chmod`, `ls`) counts as the
JVM's. The time of its compilers is a separate figure.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

sys.path.insert(0, os.environ.get("BENCH_CHECKOUT", str(Path(__file__).resolve().parent.parent)))

from barnabas import LocalBroker
from bench.common import TICKS, cpu_seconds, create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

# The parts of a micro-batch in the order in which they run, by Spark's names for their durations.
PARTS = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
# The number of batches at the start of each round that are not counted, since the query starts its
# processes during them.
SKIPPED = 5
COMPILERS = re.compile(r"(C1|C2) CompilerThre")


class Cpu(NamedTuple):
    """CPU seconds of each kind of process so far."""

    jvm: float
    python: float
    broker: float

    def since(self, before: Cpu, batches: int) -> Cpu:
        """The CPU time used since an earlier value, in milliseconds per batch."""
        spent = (now - then for now, then in zip(self, before, strict=True))
        return Cpu(*(1000 * each / batches for each in spent))


def cpu_of(jvm: int, broker: int) -> Cpu:
    """The CPU time of the JVM with its ended children, of all Python processes below it, and of the
    broker.
    """
    fields = Path(f"/proc/{jvm}/stat").read_text().rsplit(")", 1)[1].split()
    return Cpu(
        # utime, stime, cutime and cstime of proc(5)
        sum(int(fields[index]) for index in (11, 12, 13, 14)) / TICKS,
        sum(map(_with_children, descendants(jvm))),
        cpu_seconds(broker),
    )


def compilers_cpu_seconds(jvm: int) -> float:
    """The CPU time so far of the compiler threads that the JVM has now."""
    spent = 0
    for task in Path(f"/proc/{jvm}/task").iterdir():
        with suppress(OSError):  # a thread may end meanwhile
            if COMPILERS.match((task / "comm").read_text()):
                spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


def descendants(pid: int) -> list[int]:
    """All descendants of a process."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def _with_children(pid: int) -> float:
    """The CPU seconds of a process and of its ended children; 0 if it has just ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(int(fields[index]) for index in (11, 12, 13, 14)) / TICKS


class Pipeline:
    """A query from one topic to another, which runs a given number of batches at a time."""

    def __init__(
        self, spark: SparkSession, broker: LocalBroker, partitions: int, options: dict[str, str]
    ) -> None:
        self._spark, self._broker, self._partitions = spark, broker, partitions
        self._options = options
        self._where = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        self._source, self._sink = f"few-{partitions}", f"few-copied-{partitions}"
        self._jvm = spark.sparkContext._gateway.proc.pid
        self._checkpoint = tempfile.TemporaryDirectory()
        self._next_batch = 0
        create_topic(broker, self._source, partitions)
        create_topic(broker, self._sink, partitions)

    def run(self, batches: int) -> dict[str, list[float]]:
        """Run `batches` batches.

        Gives:  the milliseconds of each batch and of its parts, and the mean CPU time of a batch by
                kind of process.
        """
        (
            self._spark.range((batches + SKIPPED + 10) * self._partitions)
            .selectExpr(
                "CAST(id AS STRING) AS value", f"CAST(id % {self._partitions} AS INT) AS partition"
            )
            .coalesce(1)
            .write.format("barnabas")
            .options(**self._where, topic=self._source)
            .mode("append")
            .save()
        )
        query = (
            self._spark.readStream.format("barnabas")
            .options(**self._where, subscribe=self._source, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", str(self._partitions))
            .options(**self._options)
            .load()
            .select("key", "value")
            .writeStream.format("barnabas")
            .options(**self._where, topic=self._sink, checkpointLocation=self._checkpoint.name)
            .trigger(availableNow=True)
            .start()
        )
        first = await_batch(query, self._next_batch + SKIPPED)
        before, compiled = cpu_of(self._jvm, self._broker.pid), compilers_cpu_seconds(self._jvm)
        # Measured before the query ends, since the CPU time of processes that have ended would be
        # lost.
        last = await_batch(query, self._next_batch + SKIPPED + batches)
        after = cpu_of(self._jvm, self._broker.pid)
        compiled = compilers_cpu_seconds(self._jvm) - compiled
        query.awaitTermination()
        progress = [each for each in query.recentProgress if first < each.batchId <= last]
        self._next_batch = query.recentProgress[-1].batchId + 1
        return {
            "wall": [each.durationMs["triggerExecution"] for each in progress],
            "cpu": [*after.since(before, last - first), 1000 * compiled / (last - first)],
            **{part: [each.durationMs.get(part, 0) for each in progress] for part in PARTS},
        }


def await_batch(query: StreamingQuery, number: int) -> int:
    """Wait until a batch is completed. Gives: the number of the last completed batch.

    The wait polls rarely, and requests only the report on the last batch, since reports on all
    batches would also cost CPU time of the JVM.
    """
    while True:
        progress = query.lastProgress
        last = -1 if progress is None else int(progress["batchId"])
        if last >= number:
            return last
        assert query.isActive, query.exception()
        time.sleep(0.2)


class Variant:
    """A child process with its own Spark, which runs batches on demand."""

    def __init__(self, text: str) -> None:
        self.name, _, settings = text.partition(":")
        self.settings = dict(each.split("=", 1) for each in settings.split(",") if each)
        checkout = self.settings.pop("checkout", None)
        # a directory for the start scripts of the variant's Spark session
        self._temporary = tempfile.TemporaryDirectory()
        self._errors = Path(self._temporary.name, "stderr")
        environment = {**os.environ, "TMPDIR": self._temporary.name}
        if checkout:
            environment |= {"BENCH_CHECKOUT": checkout, "PYTHONPATH": checkout}
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, "--serve", json.dumps(self.settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                cwd=checkout,
            )

    def run(self, partitions: int, batches: int) -> dict[str, list[float]]:
        """Let the variant's process run that many batches. Gives: the result of `Pipeline.run`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{partitions} {batches}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise RuntimeError(f"variant {self.name} ended: {self._errors.read_text()[-3000:]}")

    def close(self) -> None:
        """End the variant's process, and remove its files."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._temporary.cleanup()


def serve(settings: dict[str, str], orders: TextIO) -> None:
    """Run batches when the parent process requests it, and print their cost."""
    from barnabas.spark import local_session

    of_spark = {key: value for key, value in settings.items() if key.startswith("spark.")}
    options = {key: value for key, value in settings.items() if key not in of_spark}
    pipelines: dict[int, Pipeline] = {}
    with LocalBroker() as broker:
        spark = local_session(
            "idle",
            cores=2,
            settings={
                "spark.log.level": "OFF",
                # On a busy machine the Python workers start slowly.
                "spark.python.authenticate.socketTimeout": "120s",
                "spark.sql.streaming.numRecentProgressUpdates": "1000",
                **of_spark,
            },
        )
        for line in orders:
            partitions, batches = map(int, line.split())
            if partitions not in pipelines:
                pipelines[partitions] = Pipeline(spark, broker, partitions, options)
            print(json.dumps(pipelines[partitions].run(batches)), flush=True)
        spark.stop()


def report(name: str, partitions: int, rounds: list[dict[str, list[float]]]) -> None:
    """Print the medians of the times of all batches and of the rounds' CPU time, and the mean times
    of the parts of a batch.
    """
    times = [each for one in rounds for each in one["wall"]]
    jvm, python, broker, compiled = (
        statistics.median(one["cpu"][part] for one in rounds) for part in range(4)
    )
    print(
        f"{name:12} {partitions} partitions, {len(times)} batches: median "
        f"{statistics.median(times):.0f} ms (a tenth below "
        f"{statistics.quantiles(times, n=10)[0]:.0f}); CPU a batch {jvm + python + broker:.0f} ms: "
        f"JVM {jvm - compiled:.0f} and its compilers {compiled:.0f}, Python {python:.1f}, broker "
        f"{broker:.1f}",
        flush=True,
    )
    means = {part: statistics.mean(each for one in rounds for each in one[part]) for part in PARTS}
    print(
        f"{'':12} means of its parts: "
        + ", ".join(f"{part} {means[part]:.1f}" for part in PARTS)
        + " ms",
        flush=True,
    )


def main() -> None:
    """Measure the variants by turns, for each number of partitions. The last lines summarise all
    rounds.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--batches", type=int, default=60, help="of each round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--warm-up", type=int, default=300, help="batches of each variant and number of partitions"
    )
    parser.add_argument("--variant", action="append", default=[])
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(json.loads(options.serve), sys.stdin)
        return
    variants = [Variant(text) for text in options.variant or ["now"]]
    for partitions in options.partitions:
        for variant in variants:
            variant.run(partitions, options.warm_up)
        taken: list[list[dict[str, list[float]]]] = [[] for _ in variants]
        for _ in range(options.rounds):
            for variant, rounds in zip(variants, taken, strict=True):
                rounds.append(variant.run(partitions, options.batches))
                # printed after each round, so that an aborted run has a report, too
                report(variant.name, partitions, rounds)
    for variant in variants:
        variant.close()


if __name__ == "__main__":
    main()
