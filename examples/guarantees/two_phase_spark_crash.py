"""Writes micro-batches of Spark into PostgreSQL and into a topic, while the driver, the broker and
PostgreSQL are killed with SIGKILL at each step of a micro-batch.

At the end every order has to be in the table and in the topic once, and no transaction may be left
open.

    python examples/guarantees/two_phase_spark_crash.py

Each driver starts its own Spark, which takes some seconds. Needs Java 17 or later.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import guarantee_tools
import psycopg
from guarantee_tools import (
    SteppedProcess,
    Steps,
    an_order,
    make_topic,
    orders_in,
    publish,
    read_committed,
)
from postgres_process import PostgresProcess
from two_phase_crash import Servers
from two_phase_spark import STEPS, MicroBatchSink, Record

from barnabas import LocalBroker

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

PER_BATCH = 6
SETTINGS = {
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
}


# --- the driver, a process of its own


class Query(NamedTuple):
    """A query that copies orders from one topic to another, and into the table."""

    servers: str
    dsn: str
    source: str
    target: str
    checkpoint: str

    def run(self, spark: SparkSession, sink: MicroBatchSink) -> None:
        """Process all records that are in the source topic now. Raises: StreamingQueryException."""
        orders = (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", PER_BATCH)
            .load()
        )
        writer = orders.writeStream.foreachBatch(sink).option("checkpointLocation", self.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    def sink(self, reached: Callable[[str], None]) -> MicroBatchSink:
        """Make the sink, which writes the values to the topic and the order numbers to the
        table.
        """
        return MicroBatchSink(
            self.servers,
            self.dsn,
            self.target,
            insert="INSERT INTO stored_orders VALUES (%s)",
            rows_of=number_of,
            records_of=lambda row: [Record(self.target, bytes(row.value), bytes(row.key))],
            reached=reached,
        )


def number_of(row: Row) -> Iterator[tuple[int]]:
    yield (json.loads(row.value)["order"],)


def drive(query: Query, steps: Steps) -> None:
    """Run until all orders are stored. If a query ended because a server was killed, start it
    again.
    """
    from pyspark.errors import StreamingQueryException

    from pyspark_barnabas import local_session

    spark = local_session("two-phase", cores=1, settings=SETTINGS)
    with query.sink(steps.reach) as sink:
        while True:
            try:
                query.run(spark, sink)
                break
            except StreamingQueryException as failure:
                print(f"the query ended: {str(failure)[:300]}", file=sys.stderr)
    spark.stop()


# --- who kills


class Outcome(NamedTuple):
    """What is stored at the end.

    hanging: the number of transactions that are left open, on both sides.
    """

    orders: int
    in_table: Counter[int]
    in_topic: Counter[int]
    hanging: int

    @property
    def is_as_promised(self) -> bool:
        once = Counter(range(self.orders))
        return self.in_table == once and self.in_topic == once and not self.hanging

    def __str__(self) -> str:
        return (
            f"{self.orders} orders, {self.in_table.total()} in the table, {self.in_topic.total()} "
            f"in the topic, {self.hanging} hang{'' if self.is_as_promised else ': WRONG'}"
        )


def outcome_of(servers: Servers, query: Query, orders: int) -> Outcome:
    """What the table and the topic contain, and how many transactions are still open on either
    side.
    """
    with psycopg.connect(servers.dsn) as connection:
        rows = connection.execute("SELECT number FROM stored_orders").fetchall()
        prepared = connection.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone()
    assert prepared is not None, "count gives a row"
    opened = servers.broker.open_transactions()
    return Outcome(
        orders,
        Counter(row[0] for row in rows),
        orders_in(read_committed(query.servers, query.target)),
        sum(each.transactional_id == query.target for each in opened) + prepared[0],
    )


def crash(servers: Servers, query: Query, steps: Sequence[str] = STEPS) -> Outcome:
    """Run drivers that are killed at each step of their second micro-batch. Then run one driver to
    the end, while the broker and PostgreSQL are killed at each step.
    """
    orders = PER_BATCH * (3 * len(steps) + 4)
    make_topic(query.servers, query.source, 1)
    make_topic(query.servers, query.target, 1)
    with psycopg.connect(servers.dsn) as connection:
        connection.execute("CREATE TABLE stored_orders (number int NOT NULL)")
    publish(query.servers, query.source, map(an_order, range(orders)))
    for step in steps:
        with SteppedProcess("two_phase_spark_crash.py", ["--driver", *query]) as driver:
            driver.run_until(step, 2)
        print(f"driver killed: {step}", flush=True)
    kills = [
        (kill, step) for step in steps for kill in (servers.kill_broker, servers.kill_postgres)
    ]
    with SteppedProcess("two_phase_spark_crash.py", ["--driver", *query]) as driver:
        while (reached := driver.next_step()) is not None:
            if kills and kills[0][1] == reached:
                kill, step = kills.pop(0)
                kill()
                print(f"{kill.__name__}: {step}", flush=True)
        if driver.process.wait(guarantee_tools.TIMEOUT_S) or kills:
            raise RuntimeError("".join(driver.output[-40:]))
    return outcome_of(servers, query, orders)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the test.

    Gives:  1 if an order is missing or duplicated, or a transaction is left open.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--driver", nargs=len(Query._fields), help=argparse.SUPPRESS)
    parser.add_argument("--step-by-step", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.driver:
        drive(Query(*options.driver), Steps(one_by_one=options.step_by_step))
        return 0
    guarantee_tools.TIMEOUT_S = 150.0  # long enough for a driver to start Spark
    with (
        LocalBroker(settings={"transaction.two.phase.commit.enable": "true"}) as broker,
        PostgresProcess({"fsync": "off"}) as postgres,
        tempfile.TemporaryDirectory() as scratch,
    ):
        query = Query(
            broker.bootstrap_servers,
            postgres.dsn,
            "orders",
            "stored-orders",
            str(Path(scratch) / "checkpoint"),
        )
        outcome = crash(Servers(broker, postgres, postgres.dsn), query)
    print(outcome)
    return 0 if outcome.is_as_promised else 1


if __name__ == "__main__":
    sys.exit(main())
