"""The auditors: each adds up all accounts, by a reader of its own. None of them knows of tellers.

    client         a stock Python client (confluent-kafka): the read_committed ends of all
                   partitions in one request, then the records up to them
    client past    the same with the ends at a time in the past
    command        barnabas consume
    command past   barnabas consume --as-of
    batch          a batch read by Spark
    batch past     the same with asOf
    stream         a streaming query of Spark: the sum of all micro-batches so far, after each one

The past is that of the recorded cuts, which the broker keeps of topics with whole transactions.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from accounts import CLIENT, TIMEOUT_S, TOPICS, Place, all_places, total_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


CUT_AT_OR_BEFORE = 8_000_000_000_000_000_000  # plus a time in ms: a recorded cut


class Audit(NamedTuple):
    """What an auditor found, and when: seconds since the beginning of the run."""

    auditor: str
    at_s: float
    total: int


def by_client(servers: str, time_ms: int | None = None) -> int:
    """Read up to the ends that one ListOffsets gives, and add up.

    Takes:  time_ms, for ends of the past: those of the last cut that the broker recorded until
            then. It is passed where a client passes the time of a record.
    """
    from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient({"bootstrap.servers": servers, **CLIENT})
    places = [TopicPartition(*place) for place in all_places()]
    answers = admin.list_offsets(
        dict.fromkeys(
            places,
            OffsetSpec.latest()
            if time_ms is None
            else OffsetSpec.for_timestamp(CUT_AT_OR_BEFORE + time_ms),
        ),
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=TIMEOUT_S,
    )
    ends = {
        Place(each.topic, each.partition): answer.result(TIMEOUT_S).offset
        for each, answer in answers.items()
    }
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **CLIENT,
        }
    )
    values = []
    unfinished = {place for place, end in ends.items() if end > 0}
    try:
        consumer.assign([TopicPartition(*place, 0) for place in unfinished])
        deadline = time.monotonic() + TIMEOUT_S
        while unfinished:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the ends of {unfinished} were not reached")
            for message in consumer.consume(500, 0.1):
                place = Place(message.topic(), message.partition())
                error = message.error()
                if error is None and message.offset() < ends[place]:
                    values.append(message.value())
                elif error is None or error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(place)  # everything before the end has been read
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
    return total_of(values)


def by_command(servers: str, *more: str) -> int:
    """Let the command line read all three topics up to their ends, and add up what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "consume", *TOPICS, "-b", servers, *more],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return total_of(done.stdout.split())


def spark_options(servers: str, *, whole: bool) -> dict[str, str]:
    """The options of the source."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": ",".join(TOPICS)}
    return options | ({"wholeTransactions": "true"} if whole else {})


def by_batch(spark: SparkSession, options: dict[str, str]) -> int:
    """Let Spark add up all records of a batch read."""
    rows = spark.read.format("barnabas").schema("value binary").options(**options).load()
    return sum_in(rows)


def sum_in(rows: DataFrame) -> int:
    """The sum of the amounts in rows."""
    return rows.selectExpr("sum(CAST(CAST(value AS STRING) AS INT))").first()[0] or 0


class StreamAuditor:
    """A streaming query that calls `found` with the sum of all amounts so far after each batch."""

    def __init__(
        self,
        spark: SparkSession,
        options: dict[str, str],
        checkpoint: str,
        found: Callable[[int], None],
    ) -> None:
        self._found = found
        self._sum = 0
        rows = (
            spark.readStream.format("barnabas")
            .schema("value binary")
            .options(**options)
            .option("startingOffsets", "earliest")
            .load()
        )
        self.query: Any = (
            rows.writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        self._sum += sum_in(rows)
        self._found(self._sum)


class Notebook:
    """Collects audits from several threads, with their times."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self.audits: list[Audit] = []
        self.missed: list[str] = []

    def add(self, auditor: str, total: int) -> None:
        """Write down what an auditor found."""
        with self._lock:
            self.audits.append(Audit(auditor, time.monotonic() - self._began, total))

    def audit(self, auditor: str, count: Callable[[], int]) -> None:
        """Let an auditor count. If that fails, for example while the broker is down, say so."""
        try:
            total = count()
        except Exception as error:
            with self._lock:
                self.missed.append(f"{auditor}: {error}")
            return
        self.add(auditor, total)
