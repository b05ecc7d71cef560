"""Writes a topic's committed records into a Delta table, or into Parquet files, each record once.

    python examples/lakehouse/into_lakehouse.py --topic orders --form delta --table lake/orders
    python examples/lakehouse/into_lakehouse.py --topic orders --form parquet --table lake/orders

It processes all records that exist now in micro-batches, and ends; it may be stopped, killed and
started again. With --follow it continues. The checkpoint is next to the table unless --checkpoint
is given.

    delta      foreachBatch, with the library deltalake: each commit in the table's log has the rows
               of a batch and a transaction identifier, the query's id and the batch's number. If
               Spark repeats a batch, its number is already in the log, and it is not written again
    parquet    Spark's own sink of files, whose log `_spark_metadata` names the files that count:
               read the directory by Spark, since other readers do not know that log
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from barnabas.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

INSTALL = "pip install deltalake"


def records(spark: SparkSession, servers: str, topic: str, per_batch: int) -> DataFrame:
    """Read the committed records of a topic, from its beginning on."""
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(per_batch))
        .load()
        .selectExpr(
            "CAST(key AS STRING) AS key",
            "CAST(value AS STRING) AS value",
            "partition",
            "offset",
            "timestamp",
        )
    )


def append_once(table: str, batch: DataFrame, batch_id: int) -> None:
    """Append a micro-batch to a Delta table, unless the table already contains it.

    If two drivers append the same batch at the same moment, only one of them succeeds. Delta Lake
    refuses a commit if another commit has changed its transaction identifier since it was read.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if DeltaTable.is_deltatable(table):
        last = DeltaTable(table).transaction_version(query_id)
        if last is not None and last >= batch_id:
            return
    write_deltalake(
        table,
        batch.toArrow(),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(query_id, batch_id)]),
    )


def start(
    rows: DataFrame, form: str, table: str, checkpoint: str, *, follow: bool
) -> StreamingQuery:
    """Start the query in one of the two forms."""
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    if not follow:
        writer = writer.trigger(availableNow=True)
    if form == "parquet":
        return writer.format("parquet").option("path", table).start()
    return writer.foreachBatch(lambda batch, number: append_once(table, batch, number)).start()


def main() -> None:
    """Run the query until it ends."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--form", choices=["delta", "parquet"], default="delta")
    parser.add_argument("--table", required=True)
    parser.add_argument("--checkpoint", help="TABLE-checkpoint where it is not given")
    parser.add_argument("--per-batch", type=int, default=100_000)
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()
    if options.form == "delta":
        try:
            import deltalake  # noqa: F401
        except ImportError:
            sys.exit(f"a Delta table needs the library deltalake: {INSTALL}")
    spark = local_session("lakehouse")
    rows = records(spark, options.servers, options.topic, options.per_batch)
    checkpoint = options.checkpoint or f"{options.table.rstrip('/')}-checkpoint"
    start(rows, options.form, options.table, checkpoint, follow=options.follow).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
