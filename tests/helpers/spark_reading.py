"""Helpers for tests of the Spark source. They write to topics, run a query, and record the rows of
each batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas import LocalBroker
from helpers.spark_driver import through_slow_starts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def publish(
    broker: LocalBroker, topic: str, transactions: list[tuple[str, list[tuple[Any, ...]]]]
) -> None:
    """Write groups of records. Each group is given as (end, records), where the end is "commit",
    "abort" or "plain". A record is (partition, key, value[, timestamp[, headers]]).
    """
    from confluent_kafka import Producer

    config = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 2}
    plain = Producer(config)
    transactional = None
    if any(end != "plain" for end, _ in transactions):
        transactional = Producer(config | {"transactional.id": topic})
        transactional.init_transactions(30)
    for end, records in transactions:
        producer = transactional if end != "plain" else plain
        assert producer is not None
        if end != "plain":
            producer.begin_transaction()
        for partition, key, value, *rest in records:
            timestamp, headers = (rest + [0, None][len(rest) :])[:2]
            producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
        producer.flush()
        if end == "commit":
            producer.commit_transaction(30)
        elif end == "abort":
            producer.abort_transaction(30)


class Query:
    """A streaming query with one checkpoint, which a test may start several times. `batches` has,
    by batch id, the rows of each run of the batch.
    """

    def __init__(
        self, spark: SparkSession, broker: LocalBroker, checkpoint: Path, **options: str
    ) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "startingOffsets": "earliest",
        } | options
        self.batches: dict[int, list[list[str]]] = {}
        self.on_batch: Callable[[int], None] = lambda batch_id: None

    def run(self, **options: str) -> StreamingQuery:
        """Run the query once, until it has read all available records. If the query fails, its
        error is raised.
        """
        return through_slow_starts(
            lambda: self._finished(self._start({"availableNow": True}, options))
        )

    def begin(self, **options: str) -> StreamingQuery:
        """Start the query in continuous micro-batches, and return after the first one."""
        return through_slow_starts(
            lambda: self._begun(self._start({"processingTime": "0 seconds"}, options))
        )

    def _start(self, trigger: dict[str, Any], options: dict[str, str]) -> StreamingQuery:
        """Start the query with this trigger."""
        rows = self.spark.readStream.format("barnabas").options(**self.options | options).load()
        writer = (
            rows.select("value")
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self.checkpoint))
        )
        return writer.trigger(**trigger).start()

    def _finished(self, query: StreamingQuery) -> StreamingQuery:
        assert query.awaitTermination(600), "the query does not end"
        return query

    def _begun(self, query: StreamingQuery) -> StreamingQuery:
        """Wait for the first batch. If the query fails, its error is raised."""
        while not self.batches:
            if not query.isActive:
                query.awaitTermination()  # raises the query's error
            time.sleep(0.05)
        return query

    def wait_for(self, *values: str, timeout_s: float = 600) -> None:
        """Wait until a running query has read all these values."""
        deadline = time.monotonic() + timeout_s
        while not set(values) <= set(self.values):
            assert time.monotonic() < deadline, (
                f"{sorted(set(values) - set(self.values))} did not come"
            )
            time.sleep(0.05)

    @property
    def values(self) -> list[str]:
        return sorted(value for runs in self.batches.values() for rows in runs for value in rows)

    def forget(self, batch_id: int) -> None:
        """Delete the batch from the commit log, as if the driver had been killed before it wrote
        the entry.
        """
        for name in (f"commits/{batch_id}", f"commits/.{batch_id}.crc"):
            (self.checkpoint / name).unlink()

    def _take(self, rows: DataFrame, batch_id: int) -> None:
        """Store the values of a batch. A batch that is repeated has several entries."""
        values = sorted(bytes(row.value).decode() for row in rows.collect())
        self.batches.setdefault(batch_id, []).append(values)
        self.on_batch(batch_id)
