"""Stores the newest version of each order in PostgreSQL, even if records arrive twice, late or out
of order.

Delivery is at-least-once: rows are stored first, then the offset. A row is replaced only by a newer
version of the same order, so that a repeated record, or an old one after a new one, changes
nothing. A deletion also has a version, and remains as a row that is marked as deleted. Otherwise an
old version that arrives late would restore the order.

Without options it starts its own broker and its own PostgreSQL; with --bootstrap-servers and
--postgres it uses yours.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import psycopg
from confluent_kafka import KafkaException, Message
from guarantee_tools import (
    FENCED,
    Batches,
    Steps,
    an_order,
    is_replaced,
    new_consumer,
    next_offsets,
    publish,
    total_cents,
)
from postgres_worker import make_tables, place_for

STEPS = ("stored", "committed")

TABLE = """
    CREATE TABLE IF NOT EXISTS current_orders (
        order_number bigint PRIMARY KEY, version bigint NOT NULL, total_cents bigint,
        deleted boolean NOT NULL
    )
"""
UPSERT = """
    INSERT INTO current_orders AS stored
    VALUES (%(order)s, %(version)s, %(total_cents)s, %(deleted)s)
    ON CONFLICT (order_number) DO UPDATE
    SET version = excluded.version, total_cents = excluded.total_cents, deleted = excluded.deleted
    WHERE excluded.version > stored.version
"""


class Applied(NamedTuple):
    """The numbers of records that changed a row, and of those that were ignored."""

    changed: int
    ignored: int


def row_of(value: bytes) -> dict[str, object]:
    """Make the row that a record's value describes."""
    order = json.loads(value)
    deleted = bool(order.get("deleted"))
    return {
        "order": order["order"],
        "version": order["version"],
        "total_cents": None if deleted else total_cents(order),
        "deleted": deleted,
    }


def a_deletion(number: int, version: int) -> tuple[bytes, bytes]:
    """Make the record of a deletion. It has a version, which shows whether the deletion arrives
    late.
    """
    return str(number).encode(), json.dumps(
        {"order": number, "version": version, "deleted": True}
    ).encode()


def apply(connection: psycopg.Connection, batch: Sequence[Message]) -> Applied:
    """Apply the records in one transaction.

    Each record has its own statement, since a single statement may not contain two versions of the
    same key.
    """
    changed = 0
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(UPSERT, [row_of(message.value() or b"") for message in batch])
        changed = cursor.rowcount
    return Applied(changed, len(batch) - changed)


def disordered(records: Iterable[tuple[bytes, bytes]], seed: int) -> list[tuple[bytes, bytes]]:
    """Return the records in random order, each one to three times."""
    chance = random.Random(seed)
    copies = [record for record in records for _ in range(chance.randint(1, 3))]
    chance.shuffle(copies)
    return copies


def run(servers: str, connection: psycopg.Connection, options: argparse.Namespace) -> Applied:
    """Apply all records up to the end of the topic, and commit the offset after them."""
    steps = Steps(one_by_one=options.step_by_step)
    consumer = new_consumer(servers, options.group, options.member)
    batches = Batches(consumer, options.batch_size, forever=options.forever)
    consumer.subscribe([options.input])
    total = Applied(0, 0)
    try:
        while (batch := batches.next()) is not None:
            applied = apply(connection, batch)
            steps.reach("stored")
            consumer.commit(offsets=next_offsets(batch), asynchronous=False)
            steps.reach("committed")
            total = Applied(total.changed + applied.changed, total.ignored + applied.ignored)
    finally:
        consumer.close()
    return total


def rows_in(dsn: str) -> dict[int, tuple[int, int | None]]:
    """The version and the total of each order that is not deleted."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "SELECT order_number, version, total_cents FROM current_orders WHERE NOT deleted"
        ).fetchall()
    return {number: (version, total) for number, version, total in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example. Gives: the exit code."""
    with place_for(
        arguments, __doc__, group="upsert", alone=20, of="orders, five versions of each,"
    ) as (options, servers, dsn, orders):
        versions = disordered(
            (an_order(number, version) for number in range(orders) for version in range(1, 6)),
            seed=1,
        )
        publish(servers, options.input, versions)
        with psycopg.connect(dsn, autocommit=True) as connection:
            make_tables(connection, TABLE)
            try:
                applied = run(servers, connection, options)
            except KafkaException as failure:
                if is_replaced(failure, options.member):
                    return FENCED
                raise
        print(
            f"{applied.changed} records changed the table, {applied.ignored} were repeated or too "
            "old"
        )
        rows = rows_in(dsn)
        print(
            f"the table has {len(rows)} orders, of versions "
            f"{sorted({version for version, _ in rows.values()})}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
