"""Writes readings through Spark into PostgreSQL, each once, although an at-least-once producer sent
some of them twice. There are three ways to detect a duplicate:

    watermark   by key: Spark remembers the keys of the last minutes
                state: keys within the delay; later rows are dropped
    sequence    by sequence number: higher than the last of its device
                state: one number a device; needs order within a device
    anti-join   by the table itself: existing rows are not added
                state: none; needs an index on the key

Each form is correct only together with a matching way to store rows. Spark marks a micro-batch as
done in its checkpoint only after the micro-batch was stored. A crash between the two makes Spark
repeat the micro-batch. The demo lets each form crash exactly there, and starts it again.

Without options it starts its own broker and its own PostgreSQL; with --bootstrap-servers and
--postgres it uses yours. Needs Java 17 or later.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from guarantee_tools import broker_at, make_topic, publish
from postgres_process import postgres_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
FIELDS = "device STRING, sequence BIGINT, celsius DOUBLE, measured TIMESTAMP"
DELAY = "10 minutes"
PER_BATCH = 250
ATTEMPTS = 3
KEY = ["device", "sequence"]

# The table readings has no unique key, which would refuse a second row. A reading that is stored
# twice is therefore visible.
TABLES = """
    CREATE TABLE readings (
        device text NOT NULL, sequence bigint NOT NULL, celsius double precision NOT NULL
    );
    CREATE INDEX ON readings (device, sequence);
    CREATE TABLE stored_batches (query_id text, batch_id bigint, PRIMARY KEY (query_id, batch_id));
    CREATE TABLE last_sequences (device text PRIMARY KEY, sequence bigint NOT NULL);
"""
INSERT = "INSERT INTO readings VALUES (%s, %s, %s)"


class FencedError(Exception):
    """Another driver has stored readings of the device since, so the micro-batch has to be
    repeated.
    """


class CrashedError(Exception):
    """A crash that the demo causes on purpose."""


# --- the producer


class Reading(NamedTuple):
    """A value that a device measured. The sequence numbers of a device begin at 0 and have no
    gaps.
    """

    device: str
    sequence: int
    celsius: float
    measured: datetime


def readings(devices: int, each: int) -> list[Reading]:
    """The readings of several devices, one per second, in order."""
    return [
        Reading(
            f"device-{device}",
            sequence,
            20 + sequence % 10 / 2,
            BEGIN + timedelta(seconds=sequence),
        )
        for sequence in range(each)
        for device in range(devices)
    ]


def sent_at_least_once(whole: Sequence[Reading], seed: int, batch: int = 40) -> Iterator[Reading]:
    """Return the readings in the order in which a producer with crashes sends them.

    The producer stores its position after each batch, and continues from there after a crash.
    """
    chance = random.Random(seed)
    for start in range(0, len(whole), batch):
        for _ in range(chance.randint(0, 2)):
            yield from whole[start : start + chance.randint(1, batch)]
        yield from whole[start : start + batch]


def record(reading: Reading) -> tuple[bytes, bytes]:
    """Make the record of a reading. Its key is the device, so that the readings of one device stay
    in order in one partition.
    """
    value = reading._asdict() | {"measured": reading.measured.isoformat()}
    return reading.device.encode(), json.dumps(value).encode()


# --- the three forms: what becomes of a micro-batch


@dataclass
class Store:
    """The database.

    crash_after: the micro-batch after which the demo crashes; None if it does not crash.
    """

    dsn: str
    crash_after: int | None = None

    def stored(self, batch_id: int) -> None:
        """Crash if this is the micro-batch at which the demo is to crash.

        At this moment the database has committed the micro-batch, but Spark has not yet marked it
        as done.
        """
        if batch_id == self.crash_after:
            raise CrashedError(f"micro-batch {batch_id} is stored, and Spark does not know")


def by_watermark(stream: DataFrame) -> DataFrame:
    """Drop duplicates by a watermark.

    Spark keeps each key until the watermark is later than the key's time plus the delay. Rows that
    are older than the watermark are dropped.

    The time is that of the device's measurement. The record's timestamp does not work, because a
    record that is sent again has a new timestamp.
    """
    return stream.withWatermark("measured", DELAY).dropDuplicatesWithinWatermark(KEY)


def unchanged(stream: DataFrame) -> DataFrame:
    """Keep all rows. In this form, duplicates are detected when a micro-batch is stored."""
    return stream


def store_batch_once(store: Store, batch: DataFrame, batch_id: int) -> None:
    """Store the rows and the number of their micro-batch in one transaction.

    Spark's state ensures that a repeated micro-batch has the same number and the same rows. If the
    number is already stored, so are the rows. The query's id is a part of the key, since a query
    with a new checkpoint counts from 0 again.
    """
    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query_id, "Spark has not said which query this is"
    rows = [(row.device, row.sequence, row.celsius) for row in batch.collect()]
    with psycopg.connect(store.dsn) as connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO stored_batches VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (query_id, batch_id),
        )
        if cursor.rowcount:
            cursor.executemany(INSERT, rows)
    store.stored(batch_id)


def store_by_sequence(store: Store, batch: DataFrame, batch_id: int) -> None:
    """Store the readings above the last sequence number of their device, and advance that number in
    the same transaction.

    A repeated micro-batch has no higher numbers, so the number of the micro-batch need not be
    stored.

    Raises: FencedError if another driver has advanced the number.
    """
    with psycopg.connect(store.dsn) as connection, connection.cursor() as cursor:
        last: dict[str, int] = dict(
            cursor.execute("SELECT device, sequence FROM last_sequences").fetchall()
        )
        known = batch.sparkSession.createDataFrame(list(last.items()), "device STRING, last BIGINT")
        new = (
            batch.join(known, "device", "left")
            .where("sequence > coalesce(last, -1)")
            .dropDuplicates(KEY)
            .collect()
        )
        cursor.executemany(INSERT, [(row.device, row.sequence, row.celsius) for row in new])
        for device in sorted({row.device for row in new}):
            highest = max(row.sequence for row in new if row.device == device)
            cursor.execute(
                "INSERT INTO last_sequences AS known VALUES (%s, %s)"
                " ON CONFLICT (device) DO UPDATE SET sequence = excluded.sequence WHERE "
                "known.sequence = %s",
                (device, highest, last.get(device)),
            )
            if cursor.rowcount != 1:
                raise FencedError(f"{device} is not at {last.get(device)} any more")
    store.stored(batch_id)


def store_by_anti_join(store: Store, batch: DataFrame, batch_id: int) -> None:
    """Copy the micro-batch to a temporary table of the connection. Then add those of its rows that
    are not in the table readings.
    """
    rows = batch.dropDuplicates(KEY).collect()
    with psycopg.connect(store.dsn) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE staged (LIKE readings) ON COMMIT DROP")
        with cursor.copy("COPY staged FROM STDIN") as copy:
            for row in rows:
                copy.write_row((row.device, row.sequence, row.celsius))
        # There may be another driver of the same query, which was believed dead. The lock prevents
        # it from checking or adding rows between this check and the insert.
        cursor.execute("LOCK TABLE readings IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute(
            "INSERT INTO readings SELECT * FROM staged"
            " WHERE NOT EXISTS (SELECT FROM readings r WHERE (r.device, r.sequence) = "
            "(staged.device, staged.sequence))"
        )
    store.stored(batch_id)


class Form(NamedTuple):
    """One form of deduplication.

    plan: its step in Spark's plan. store: its step when a micro-batch is stored.
    """

    plan: Callable[[DataFrame], DataFrame]
    store: Callable[[Store, DataFrame, int], None]


FORMS = {
    "watermark": Form(by_watermark, store_batch_once),
    "sequence": Form(unchanged, store_by_sequence),
    "anti-join": Form(unchanged, store_by_anti_join),
}


# --- running them


def deduplicate(
    spark: SparkSession,
    servers: str,
    topic: str,
    form: Form,
    store: Store,
    checkpoint: Path,
    per_batch: int = PER_BATCH,
) -> None:
    """Process all records that are in the topic now.

    A query that fails (because a worker did not start in time, or another driver was faster) is
    started again, which is safe in each form.

    Raises: CrashedError at the demo's crash; StreamingQueryException if the query fails repeatedly.
    """
    from pyspark.errors import StreamingQueryException
    from pyspark.sql.functions import from_json

    source = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
    )
    stream = source.select(from_json(source.value.cast("string"), FIELDS).alias("reading")).select(
        "reading.*"
    )
    writer = (
        form.plan(stream)
        .writeStream.foreachBatch(lambda batch, batch_id: form.store(store, batch, batch_id))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    for attempt in range(1, ATTEMPTS + 1):
        try:
            writer.start().awaitTermination()
            return
        except StreamingQueryException as failure:
            if CrashedError.__name__ in str(failure):
                raise CrashedError(f"the query ended in micro-batch {store.crash_after}") from None
            if attempt == ATTEMPTS:
                raise


def deduplicate_with_crash(
    spark: SparkSession,
    servers: str,
    topic: str,
    form: Form,
    dsn: str,
    checkpoint: Path,
    per_batch: int = PER_BATCH,
) -> int:
    """Crash after the second micro-batch is stored, and start again.

    Gives:  the number of rows at the time of the crash.
    """
    try:
        deduplicate(spark, servers, topic, form, Store(dsn, crash_after=1), checkpoint, per_batch)
    except CrashedError:
        at_crash = rows_in(dsn).total()
        deduplicate(spark, servers, topic, form, Store(dsn), checkpoint, per_batch)
        return at_crash
    raise RuntimeError(
        "the topic has not enough for a second micro-batch: there was no crash, which proves "
        "nothing"
    )


def make_tables(dsn: str) -> None:
    """Create the tables, and drop those of an earlier run."""
    with psycopg.connect(dsn) as connection:
        connection.execute("DROP TABLE IF EXISTS readings, stored_batches, last_sequences")
        connection.execute(TABLES)


def rows_in(dsn: str) -> Counter[tuple[str, int]]:
    """The number of rows in the table for each reading."""
    with psycopg.connect(dsn) as connection:
        return Counter(connection.execute("SELECT device, sequence FROM readings").fetchall())


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--form",
        choices=FORMS,
        action="append",
        help="only this one (all three, one after the other)",
    )
    parser.add_argument(
        "--bootstrap-servers", help="host:port; without it a broker is started for the run"
    )
    parser.add_argument(
        "--postgres",
        metavar="DSN",
        help=(
            "of a database, whose tables are made again; without it a server is started for the run"
        ),
    )
    parser.add_argument(
        "--topic", default="readings", help="topic that gets the readings and is read (readings)"
    )
    parser.add_argument(
        "--readings", type=int, default=100, help="how many each of five devices measures (100)"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the forms. Gives: the exit code, 0 if each form stored each reading once."""
    options = options_of(arguments)
    from pyspark_barnabas import local_session

    whole = readings(5, options.readings)
    sent = list(sent_at_least_once(whole, seed=1))
    expected = Counter((reading.device, reading.sequence) for reading in whole)
    lines = [
        "| | records | readings | rows at the crash | rows in the end | lost | duplicated |",
        "|---|---|---|---|---|---|---|",
    ]
    wrong = 0
    with (
        broker_at(options.bootstrap_servers) as servers,
        postgres_at(options.postgres) as dsn,
        tempfile.TemporaryDirectory() as scratch,
    ):
        make_topic(servers, options.topic, 2)
        publish(servers, options.topic, map(record, sent))
        spark = local_session(
            "deduplication",
            cores=2,
            settings={"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"},
        )
        for name in options.form or FORMS:
            make_tables(dsn)
            at_crash = deduplicate_with_crash(
                spark, servers, options.topic, FORMS[name], dsn, Path(scratch) / name
            )
            found = rows_in(dsn)
            lost, duplicated = (expected - found).total(), (found - expected).total()
            wrong += lost + duplicated
            lines.append(
                f"| {name} | {len(sent)} | {len(whole)} | {at_crash} | {found.total()} | {lost} | "
                f"{duplicated} |"
            )
            print(
                f"{name}: crashed after its second micro-batch was stored, started again",
                flush=True,
            )
        spark.stop()
    print("\n" + "\n".join(lines))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
