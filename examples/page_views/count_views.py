"""Counts page views per category in windows of 5 s, from topic to topic, each exactly once.

    revisions         a count when it changes in a micro-batch, into a compacted topic (Spark's
                      update mode)
    final             a count once, when its window is closed (append mode)
    per-record        a count for every record, with a stream time per task, as in Kafka Streams
                      (transformWithState)
    per-record-final  like per-record, but only final counts: Kafka Streams' suppress

Each form is a separate query with its own checkpoint and topic. The script may be stopped in any
way, even with kill -9, and started again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from page_views import as_records, counted, views_in
from per_record import counted_per_record
from pyspark.sql import functions as F
from view_topics import COMPACTED, INPUT, make_topic

from barnabas.spark_connector.session import MissingRequirementError
from pyspark_barnabas import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

STARTS, SLOW_START = 5, "worker failed to connect back"
FORMS = ("revisions", "final", "per-record", "per-record-final")
SETTINGS = {
    # State is kept in RocksDB, outside the heap. With changelog checkpointing a micro-batch stores
    # only its changes, as Kafka Streams writes them to its changelog topic. Snapshots of the whole
    # state are made in the background.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The number of partitions of the state. Later runs of a query use the value of its first run,
    # which is in the checkpoint.
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True)
class Job:
    """The settings that the queries share.

    output, checkpoint: prefixes of names, to which each form adds its suffix.
    """

    servers: str
    input: str
    output: str
    checkpoint: Path
    tasks: int = 1
    max_events: int | None = None
    until_now: bool = False
    interval: str = "200 milliseconds"

    def topic(self, form: str) -> str:
        return f"{self.output}-{form}"

    def late_topic(self, form: str) -> str:
        return f"{self.topic(form)}-late"


def new_session(name: str = "page views") -> SparkSession:
    """Start a Spark session with two cores. Raises: MissingRequirementError."""
    return local_session(name, cores=2, settings=SETTINGS)


def start(spark: SparkSession, form: str, job: Job) -> StreamingQuery:
    """Start the query of one form. It continues from its checkpoint.

    Raises: SystemExit if a package is missing.
    """
    views = views_in(read(spark, job))
    if form == "revisions":
        make_topic(job.servers, job.topic(form), config=COMPACTED)
        return start_revisions(as_records(counted(views)), job)
    make_topic(job.servers, job.topic(form))
    if form == "final":
        # In append mode, the watermark holds a count back until its window is closed.
        return start_appending(as_records(counted(views)), form, job)
    make_topic(job.servers, job.late_topic(form))
    revisions = counted_per_record(views, tasks=job.tasks, only_final=form == "per-record-final")
    too_late = F.col("count").isNull()
    topic = F.when(too_late, job.late_topic(form)).otherwise(job.topic(form))
    return start_appending(as_records(revisions.withColumn("topic", topic)), form, job)


def start_all(spark: SparkSession, forms: Sequence[str], job: Job) -> list[StreamingQuery]:
    """Start several queries, each one when the previous one is running.

    Spark gives the Python process of a source ten seconds to start, which is not enough on a busy
    machine. In this case the start is repeated. No record is lost, since a query continues from its
    checkpoint.
    """
    return [start_until_up(spark, form, job) for form in forms]


def start_until_up(spark: SparkSession, form: str, job: Job) -> StreamingQuery:
    """Start the query of a form. Repeat the start if it failed only because Spark was too slow."""
    for attempt in range(STARTS):
        query = start(spark, form, job)
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.1)
        failure = query.exception()
        if failure is None or SLOW_START not in str(failure):
            break
        print(
            f"the query {form} was slow to start (attempt {attempt + 1} of {STARTS})",
            file=sys.stderr,
        )
    return query


def read(spark: SparkSession, job: Job) -> DataFrame:
    """Read the input as a stream, from its beginning. By default the source reads only committed
    events.
    """
    reader = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", job.servers)
        .option("subscribe", job.input)
    )
    reader = reader.option(
        "startingOffsets", "earliest"
    )  # only the first run uses this; later runs take the offsets from the checkpoint
    if job.max_events is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(job.max_events))
    return reader.load()


def start_appending(records: DataFrame, form: str, job: Job) -> StreamingQuery:
    """Start a query in append mode.

    Each micro-batch is a transaction with the batch's number, so that a micro-batch that Spark
    repeats after a crash is not written again.
    """
    writer = (
        records.writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", job.servers)
        .queryName(form)
    )
    if "topic" not in records.columns:
        writer = writer.option("topic", job.topic(form))
    writer = writer.outputMode("append").option("checkpointLocation", str(job.checkpoint / form))
    return (
        writer.trigger(availableNow=True)
        if job.until_now
        else writer.trigger(processingTime=job.interval)
    ).start()


def start_revisions(records: DataFrame, job: Job) -> StreamingQuery:
    """Start a query in update mode.

    Spark does not allow this mode for sinks in Python, but allows it with foreachBatch. The
    function must then pass the query's id, its checkpoint and the batch's number to the sink.
    """
    checkpoint = str(job.checkpoint / "revisions")

    def write(batch: DataFrame, batch_id: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        writer = (
            batch.write.format("barnabas")
            .option("kafka.bootstrap.servers", job.servers)
            .option("topic", job.topic("revisions"))
            .option("checkpointLocation", checkpoint)
        )
        writer.option("writeId", query_id).option("batchId", str(batch_id)).mode("append").save()

    writer = records.writeStream.foreachBatch(write).queryName("revisions")
    writer = writer.outputMode("update").option("checkpointLocation", checkpoint)
    return (
        writer.trigger(availableNow=True)
        if job.until_now
        else writer.trigger(processingTime=job.interval)
    ).start()


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--form", nargs="+", choices=FORMS, default=["revisions"], help="one or more (revisions)"
    )
    parser.add_argument(
        "--bootstrap-servers", default="127.0.0.1:9092", help="the broker (127.0.0.1:9092)"
    )
    parser.add_argument("--input", default=INPUT, help=f"topic of the events ({INPUT})")
    parser.add_argument(
        "--output",
        default="views-by-category",
        help="topics of the counts: this name and the form (views-by-category)",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        default=Path("checkpoints"),
        help="directory of the queries' state (./checkpoints)",
    )
    parser.add_argument(
        "--tasks",
        type=int,
        default=1,
        help="of the forms per record: among how many stream times categories are divided (1)",
    )
    parser.add_argument(
        "--max-events", type=int, default=None, help="at most so many in a micro-batch"
    )
    parser.add_argument("--until-now", action="store_true", help="count what is there, then end")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Count until stopped. Gives: the exit code."""
    options = options_of(arguments)
    job = Job(
        options.bootstrap_servers,
        options.input,
        options.output,
        options.checkpoint.resolve(),
        options.tasks,
        options.max_events,
        options.until_now,
    )
    try:
        spark = new_session()
    except MissingRequirementError as error:
        print(f"Spark cannot run here: {error}", file=sys.stderr)
        return 1
    try:
        queries = start_all(spark, options.form, job)
        while any(query.isActive for query in queries):
            spark.streams.awaitAnyTermination()  # raises the error of any query that has failed
            spark.streams.resetTerminated()
        for query in queries:
            query.awaitTermination()
    except KeyboardInterrupt:
        print("stopped; the next start goes on from here")
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
