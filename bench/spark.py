"""Spark on two cores: topic to rows, rows to topic, topic to topic, compared with Spark's own Kafka
connector (in the JVM, with Apache Kafka).

    python -m bench spark [--scale X]

The figures of Spark's connector were measured on a machine with 2 cores, with its default options
and with tuned ones. `bench/spark_read.py` and `bench/spark_write.py` measure the parts: decoding,
encoding, a reader without Spark.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas import LocalBroker
from bench.common import Meter, Row, create_topic, metered
from bench.spark_read import TOPIC, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 3_000_000
SIZE = 100
TURNS = 3
IDLE_BATCHES = 30


def best(broker: LocalBroker, action: Callable[[], None]) -> Meter:
    """The shortest of several runs. The first run is not counted, since Spark compiles during
    it.
    """
    meters = []
    for turn in range(TURNS + 1):
        with metered(broker) as meter:
            action()
        if turn:
            meters.append(meter)
    return min(meters, key=lambda meter: meter.wall_s)


def row(work: str, rows: int, meter: Meter, kafka: str) -> Row:
    """A row of the report about a run of Spark."""
    return Row(
        work,
        f"{meter.cpu_s:.2f} s",
        f"{meter.wall_s:.1f} s, {rows / meter.wall_s / 1000:,.0f} k rows/s",
        kafka,
        "-",
    )


def reading(spark: SparkSession, broker: LocalBroker, rows: int) -> Row:
    """Measure a read of the whole topic into a sink that drops the rows."""
    frame = topic(spark, broker, TOPIC)
    assert frame.count() == rows
    meter = best(broker, lambda: frame.write.format("noop").mode("overwrite").save())
    return row(f"Spark reads {rows:,} x {SIZE} B", rows, meter, "684-804 k rows/s, tuned 1,666 k")


def writing(spark: SparkSession, broker: LocalBroker, rows: int) -> Row:
    """Measure a write of new rows to a topic, in one transaction."""
    frame = spark.range(rows).selectExpr(
        "CAST(id AS STRING) AS key", f"rpad(CAST(id AS STRING), {SIZE}, 'x') AS value"
    )
    create_topic(broker, "written", 2)
    meter = best(
        broker,
        lambda: (
            frame.write.format("barnabas")
            .options(**where(broker), topic="written")
            .mode("append")
            .save()
        ),
    )
    count = topic(spark, broker, "written").count()
    assert count == rows * (TURNS + 1), f"{count} rows are there"
    return row(
        f"Spark writes {rows:,} x {SIZE} B, a transaction",
        rows,
        meter,
        "569 k rows/s, tuned 814 k; at least once",
    )


def copying(spark: SparkSession, broker: LocalBroker, rows: int, scratch: Path) -> Row:
    """Measure a streaming query that copies the topic to a new one."""

    def copy() -> None:
        name = f"copy-{time.monotonic_ns()}"
        create_topic(broker, name, 2)
        stream = (
            spark.readStream.format("barnabas")
            .options(**where(broker), subscribe=TOPIC, startingOffsets="earliest")
            .load()
        )
        query = (
            stream.select("key", "value")
            .writeStream.format("barnabas")
            .options(**where(broker), topic=name, checkpointLocation=str(scratch / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert topic(spark, broker, name).count() == rows

    return row(
        f"topic to topic, {rows:,} x {SIZE} B, a stream",
        rows,
        best(broker, copy),
        "275-311 k rows/s; at least once",
    )


def idling(spark: SparkSession, broker: LocalBroker, scratch: Path) -> Row:
    """Measure the fixed cost of a micro-batch, with micro-batches that have only a few rows."""
    create_topic(broker, "few", 2)
    frame = spark.range(IDLE_BATCHES * 2).selectExpr(
        "CAST(id AS STRING) AS value", "CAST(id % 2 AS INT) AS partition"
    )
    frame.write.format("barnabas").options(**where(broker), topic="few").mode("append").save()
    create_topic(broker, "few-copied", 2)
    stream = spark.readStream.format("barnabas").options(
        **where(broker), subscribe="few", startingOffsets="earliest", maxOffsetsPerTrigger="2"
    )
    query = (
        stream.load()
        .select("key", "value")
        .writeStream.format("barnabas")
        .options(**where(broker), topic="few-copied", checkpointLocation=str(scratch / "few"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    times = sorted(progress.durationMs["triggerExecution"] for progress in query.recentProgress)
    median = times[len(times) // 2]
    return Row(
        "a micro-batch of 2 rows, topic to topic",
        "-",
        f"{median} ms (of {len(times)})",
        "94-130 ms into noop",
        "-",
    )


def where(broker: LocalBroker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


def topic(spark: SparkSession, broker: LocalBroker, name: str) -> DataFrame:
    return spark.read.format("barnabas").options(**where(broker), subscribe=name).load()


def run(scale: float) -> list[Row]:
    """Measure all cases. If Spark is missing, print a message and give no rows."""
    from barnabas.spark_connector.session import MissingRequirementError, local_session

    try:
        spark = local_session(
            "bench",
            cores=2,
            settings={"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"},
        )
    except MissingRequirementError as error:
        print(f"  left out: {error}")
        return []
    rows = int(ROWS * scale)
    try:
        with LocalBroker(in_memory=False) as broker, tempfile.TemporaryDirectory() as scratch:
            publish(broker, rows, SIZE)
            return [
                reading(spark, broker, rows),
                writing(spark, broker, rows // 3),
                copying(spark, broker, rows // 3 * 3, Path(scratch)),
                idling(spark, broker, Path(scratch)),
            ]
    finally:
        spark.stop()
