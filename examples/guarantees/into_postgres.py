"""Writes orders into PostgreSQL, each exactly once: rows and offsets are stored in one transaction
of the database, and the broker stores no offsets. barnabas.exactly_once.DatabaseSink does the work.

The table of invoices has no unique key, which would refuse a second row. Instead the table
consumer_offsets prevents duplicates. A writer may store a batch only if the stored offset is the
beginning of the batch. The transaction that adds the rows checks this and advances the offset.

Without options it starts its own broker and its own PostgreSQL; with --bootstrap-servers and
--postgres it uses yours.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence

import psycopg
from guarantee_tools import CLIENT, FENCED, Steps, an_order, publish, total_cents
from postgres_worker import make_tables, place_for

from barnabas.exactly_once import DatabaseSink, FencedError, Hooks, Record, Step

STEPS = ("rows inserted", "offsets moved", "stored")

TABLES = """
    CREATE TABLE IF NOT EXISTS invoices (order_number bigint NOT NULL, total_cents bigint NOT NULL);
"""


class SteppedHooks(Hooks):
    """Counts, and reports the steps at which crash_demo.py kills the writer."""

    def __init__(self, *, one_by_one: bool) -> None:
        self._steps = Steps(one_by_one=one_by_one)
        self.stored = self.refused = self.failures = 0

    def on_step(self, step: Step) -> None:
        names = {
            Step.BEFORE_OFFSETS: "rows inserted",
            Step.AFTER_OFFSETS: "offsets moved",
            Step.AFTER_COMMIT: "stored",
        }
        if step in names:
            self._steps.reach(names[step])

    def on_commit(self, records: int, outputs: int, seconds: float) -> None:
        self.stored += records

    def on_abort(self, kind: str, reason: str) -> None:
        if kind == "rebalance":
            self.refused += 1
        else:
            self.failures += 1


def sink_of(servers: str, dsn: str, options: argparse.Namespace, hooks: Hooks) -> DatabaseSink:
    """The sink, with the function that stores a batch."""
    sink = DatabaseSink(
        servers,
        options.group,
        reads=options.input,
        connect=lambda: psycopg.connect(dsn),
        positions="invoices",  # also of a writer in another group
        batch=options.batch_size,
        instance=options.member,
        client=CLIENT,
        hooks=hooks,
    )

    @sink.each_batch
    def store(cursor: psycopg.Cursor, records: Sequence[Record]) -> None:
        orders = [json.loads(record.value or b"") for record in records]
        cursor.executemany(
            "INSERT INTO invoices VALUES (%s, %s)",
            [(order["order"], total_cents(order)) for order in orders],
        )

    return sink


def invoices_in(dsn: str) -> Counter[int]:
    """For each order, the number of its rows in the table."""
    with psycopg.connect(dsn) as connection:
        return Counter(
            dict(
                connection.execute(
                    "SELECT order_number, count(*) FROM invoices GROUP BY 1"
                ).fetchall()
            )
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example. Gives: the exit code."""
    with place_for(arguments, __doc__, group="into-postgres", alone=100) as (
        options,
        servers,
        dsn,
        orders,
    ):
        if orders:
            publish(servers, options.input, map(an_order, range(orders)), transactional_id="shop")
            publish(
                servers,
                options.input,
                map(an_order, range(orders, orders + 10)),
                transactional_id="shop",
                commit=False,
            )
            print(f"{orders} orders published, 10 more in a transaction that was aborted")
        with psycopg.connect(dsn, autocommit=True) as connection:
            make_tables(connection, TABLES)
        writer = SteppedHooks(one_by_one=options.step_by_step)
        try:
            sink_of(servers, dsn, options, writer).run(until_end=not options.forever)
        except FencedError as failure:
            print(
                f"another process has taken the place of {options.member}, so this one ends "
                f"({failure})",
                file=sys.stderr,
            )
            return FENCED
        print(
            f"{writer.stored} orders stored, {writer.refused} batches refused, {writer.failures} "
            "failures of the database"
        )
        found = invoices_in(dsn)
        print(f"the table has {found.total()} invoices of {len(found)} orders")
    return 0


if __name__ == "__main__":
    sys.exit(main())
