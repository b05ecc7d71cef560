"""The curve of figure 5b for Spark: latency and work over the interval of the trigger, which is its
interval of commits. Each micro-batch is a transaction.

    python -m bench.spark_trigger [--intervals-ms 10 100 1000 10000] [--rate 1000] [--seconds 10]

Records arrive at a steady rate, and a query copies them from topic to topic, exactly once. The age
of a record is measured by the last reader (read_committed), from the record's creation. A trigger
that is shorter than a micro-batch takes means that the next one begins at once.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas import LocalBroker
from bench.common import cpu_seconds, create_topic
from bench.eos import INPUT_PARTITIONS, Client, clients
from pyspark_barnabas import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM_UP_S = 5.0


class Result(NamedTuple):
    """What was measured at one interval."""

    interval_ms: int
    batches: int  # of the last 100 micro-batches, those with records
    broker_cpu_s: float
    p50_ms: float
    p99_ms: float


def measure(
    spark: SparkSession, broker: LocalBroker, interval_ms: int, *, rate: int, seconds: float
) -> Result:
    """Copy records that arrive at a steady rate, for some seconds and at least three intervals."""
    servers, name = broker.bootstrap_servers, f"every-{interval_ms}"
    count = int(rate * max(seconds, 3 * interval_ms / 1000))
    for topic in (f"{name}-in", name):
        create_topic(broker, topic, INPUT_PARTITIONS)
    with tempfile.TemporaryDirectory() as folder, clients() as started:
        feed = {"topic": f"{name}-in", "partitions": INPUT_PARTITIONS, "rate": rate}
        first = int(rate * WARM_UP_S)  # a backlog that is not measured, for the JVM to warm up with
        feeder = Client("feed", servers=servers, count=count, first=first, **feed)
        started.append(feeder)
        feeder.answer()
        records = (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", f"{name}-in")
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            records.selectExpr("key", "value")
            .writeStream.format("barnabas")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", name)
            .option("checkpointLocation", str(Path(folder, "checkpoint")))
            .trigger(processingTime=f"{interval_ms} milliseconds")
            .start()
        )
        try:
            reader = Client(
                "read",
                servers=servers,
                topic=name,
                partitions=INPUT_PARTITIONS,
                count=count,
                timeout_s=2 * count / rate + 120,
            )
            started.append(reader)
            reader.answer()
            cpu = cpu_seconds(broker.pid)
            feeder.go()
            feeder.answer()
            ages = reader.answer()
            return Result(
                interval_ms,
                sum(each["numInputRows"] > 0 for each in query.recentProgress),
                cpu_seconds(broker.pid) - cpu,
                ages["p50_ms"],
                ages["p99_ms"],
            )
        finally:
            query.stop()


def main() -> None:
    """Measure each interval, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_trigger", description=__doc__)
    parser.add_argument("--intervals-ms", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--rate", type=int, default=1000, help="records a second (1000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="(10)")
    options = parser.parse_args()
    spark = local_session("trigger intervals", cores=2, settings={"spark.log.level": "ERROR"})
    print("| trigger | micro-batches | broker CPU | p50 | p99 |\n|---|---|---|---|---|")
    with LocalBroker(in_memory=False) as broker:
        for interval_ms in options.intervals_ms:
            found = measure(spark, broker, interval_ms, rate=options.rate, seconds=options.seconds)
            print(
                f"| {interval_ms:,} ms | {found.batches} | {found.broker_cpu_s:.2f} s "
                f"| {found.p50_ms:,.0f} ms | {found.p99_ms:,.0f} ms |",
                flush=True,
            )
    spark.stop()


if __name__ == "__main__":
    main()
