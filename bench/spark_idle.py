"""What an almost empty micro-batch costs, topic to topic on local[2]: its time, and the CPU of the
JVM, of Python and of the broker apart.

    python -m bench.spark_idle [--partitions 2 8] [--batches 60] [--setting NAME=VALUE ...]

Each micro-batch has one record of each partition. The first ten are not counted, in which Spark
compiles and starts its processes. The CPU of processes that the JVM starts and that end (`chmod`,
`ls`) is the JVM's. --setting is Spark's, as for a comparison with what `local_session` sets.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas import LocalBroker
from bench.common import TICKS, cpu_seconds, create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

WARM_UP = 10


class Cpu(NamedTuple):
    """CPU seconds so far."""

    jvm: float
    python: float
    broker: float

    def since(self, before: Cpu, batches: int) -> Cpu:
        """Milliseconds for each batch."""
        spent = (now - then for now, then in zip(self, before, strict=True))
        return Cpu(*(1000 * each / batches for each in spent))


def cpu_of(jvm: int, broker: int) -> Cpu:
    """Of the JVM and what it has waited for; of its Python processes; of the broker."""
    fields = Path(f"/proc/{jvm}/stat").read_text().rsplit(")", 1)[1].split()
    return Cpu(
        sum(int(fields[index]) for index in (11, 12, 13, 14)) / TICKS,
        sum(map(_with_children, descendants(jvm))),
        cpu_seconds(broker),
    )


def descendants(pid: int) -> list[int]:
    """All processes that come from one."""
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
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(int(fields[index]) for index in (11, 12, 13, 14)) / TICKS


def measure(spark: SparkSession, broker: LocalBroker, partitions: int, batches: int) -> str:
    """Run a query of so many micro-batches after the first ones."""
    where = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    source, sink = f"few-{partitions}", f"few-copied-{partitions}"
    create_topic(broker, source, partitions)
    create_topic(broker, sink, partitions)
    count = (batches + WARM_UP + 10) * partitions
    spark.range(count).selectExpr(
        "CAST(id AS STRING) AS value", f"CAST(id % {partitions} AS INT) AS partition"
    ).write.format("barnabas").options(**where, topic=source).mode("append").save()
    jvm = spark.sparkContext._gateway.proc.pid
    with tempfile.TemporaryDirectory() as scratch:
        query = (
            spark.readStream.format("barnabas")
            .options(**where, subscribe=source, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", str(partitions))
            .load()
            .select("key", "value")
            .writeStream.format("barnabas")
            .options(**where, topic=sink, checkpointLocation=scratch)
            .trigger(availableNow=True)
            .start()
        )
        first, before = await_batches(query, WARM_UP), cpu_of(jvm, broker.pid)
        # Before the query ends, and with it processes whose CPU would be lost.
        last, after = await_batches(query, WARM_UP + batches), cpu_of(jvm, broker.pid)
        progress, spent = query.recentProgress[first:last], after.since(before, last - first)
        query.awaitTermination()
    times = [each.durationMs["triggerExecution"] for each in progress]
    return (
        f"{partitions} partitions, {len(times)} batches: median {statistics.median(times):.0f} ms; "
        f"CPU a batch: JVM {spent.jvm:.0f} ms, Python {spent.python:.0f} ms, "
        f"broker {spent.broker:.1f} ms"
    )


def await_batches(query: StreamingQuery, count: int) -> int:
    """Wait for so many batches. Gives: how many there are."""
    while (found := len(query.recentProgress)) < count:
        assert query.isActive, query.exception()
        time.sleep(0.005)
    return found


def main() -> None:
    """Measure each number of partitions in one session."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--setting", action="append", default=[])
    options = parser.parse_args()
    from barnabas.spark import local_session

    settings = dict(each.split("=", 1) for each in options.setting)
    with LocalBroker() as broker:
        spark = local_session("idle", cores=2, settings={"spark.log.level": "OFF", **settings})
        for partitions in options.partitions:
            print(measure(spark, broker, partitions, options.batches), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
