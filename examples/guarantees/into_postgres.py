"""Writes orders into PostgreSQL, each exactly once: rows and offsets are stored in one transaction
of the database, and the broker stores no offsets.

The table of invoices has no unique key, which would refuse a second row. Instead the table
consumer_offsets prevents duplicates. A writer may store a batch only if the stored offset is the
beginning of the batch. The transaction that adds the rows checks this and advances the offset.

Without options it starts its own broker and its own PostgreSQL; with --bootstrap-servers and
--postgres it uses yours.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

import psycopg
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from guarantee_tools import (
    FENCED,
    TIMEOUT_S,
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

STEPS = ("rows inserted", "offsets moved", "stored")

TABLES = """
    CREATE TABLE IF NOT EXISTS invoices (order_number bigint NOT NULL, total_cents bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS consumer_offsets (
        topic text, partition int, next_offset bigint NOT NULL, PRIMARY KEY (topic, partition)
    );
"""


class FencedError(Exception):
    """Another writer has advanced the offset: it has stored the batch, or will store it."""


class Store:
    """The offsets and rows in the database, which are changed in the same transaction.

    `reconnect` replaces a lost connection.
    """

    def __init__(self, dsn: str, reached: Callable[[str], None]) -> None:
        self._dsn = dsn
        self._reached = reached
        self._connection = psycopg.connect(dsn)
        make_tables(self._connection, TABLES)

    def position(self, topic: str, partition: int) -> int:
        """Return the offset after the stored rows of the partition; 0 for an unknown partition."""
        with self._connection.transaction():
            self._connection.execute(
                "INSERT INTO consumer_offsets VALUES (%s, %s, 0) ON CONFLICT DO NOTHING",
                (topic, partition),
            )
            found = self._connection.execute(
                "SELECT next_offset FROM consumer_offsets WHERE topic = %s AND partition = %s",
                (topic, partition),
            ).fetchone()
        assert found is not None, "the row was inserted before"
        return int(found[0])

    def store(self, batch: Sequence[Message], began: dict[tuple[str, int], int]) -> None:
        """Store the rows and offsets of a batch in one transaction.

        Takes:  began, the offset that the database should have now for each partition of the batch.
        Raises: FencedError if the stored offset differs; psycopg.OperationalError if the outcome is
                unknown, in which case `position` shows whether the batch is stored.
        """
        orders = [json.loads(message.value() or b"") for message in batch]
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO invoices VALUES (%s, %s)",
                [(order["order"], total_cents(order)) for order in orders],
            )
            self._reached("rows inserted")
            for end in next_offsets(batch):
                cursor.execute(
                    "UPDATE consumer_offsets SET next_offset = %s WHERE topic = %s AND partition = "
                    "%s AND next_offset = %s",
                    (end.offset, end.topic, end.partition, began[end.topic, end.partition]),
                )
                if cursor.rowcount != 1:
                    raise FencedError(
                        f"{end.topic}-{end.partition} is not at {began[end.topic, end.partition]} "
                        "any more"
                    )
            self._reached("offsets moved")
        self._reached("stored")

    def reconnect(self) -> None:
        """Open a new connection. The server rolls back the transaction of the former one.

        Raises: psycopg.OperationalError if no server answers in time.
        """
        self._connection.close()
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self._connection = psycopg.connect(self._dsn)
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def close(self) -> None:
        self._connection.close()


class Writer:
    """Reads batches and stores them. After any failure it reads the positions from the database."""

    def __init__(self, consumer: Consumer, batches: Batches, store: Store) -> None:
        self._consumer = consumer
        self._batches = batches
        self._store = store
        self._positions: dict[tuple[str, int], int] = {}
        self.stored = 0
        self.refused = 0
        self.failures = 0

    def run(self, topic: str) -> None:
        """Store all orders.

        Raises: confluent_kafka.KafkaException or psycopg.Error if the writer cannot continue.
        """
        self._consumer.subscribe([topic], on_assign=self._on_assign)
        while (read := self._batches.next()) is not None:
            batch = [message for message in read if self._is_wanted(message)]
            if not batch:
                continue
            try:
                self._store.store(batch, self._positions)
            except FencedError:
                self.refused += 1
                self._rewind()
            except psycopg.OperationalError:
                self.failures += 1
                self._rewind()
            else:
                self._positions.update(
                    {(end.topic, end.partition): end.offset for end in next_offsets(batch)}
                )
                self.stored += len(batch)

    def _is_wanted(self, message: Message) -> bool:
        """Whether the record belongs to an assigned partition and is not yet stored.

        A batch may contain records that were read before an assignment. Another writer may own
        their partition now.
        """
        position = self._positions.get((message.topic() or "", message.partition() or 0))
        return position is not None and (message.offset() or 0) >= position

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Set the positions to the offsets in the database. The group is used only to assign
        partitions.
        """
        consumer.assign(self._stored_positions(partitions))
        self._batches.rewound()

    def _rewind(self) -> None:
        """Return to the positions in the database, after a batch that was not stored."""
        for place in self._stored_positions(self._consumer.assignment()):
            self._consumer.seek(place)
        self._batches.rewound()

    def _stored_positions(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The stored position of each partition that is assigned. Without a connection to the
        database, a new one is opened first.
        """
        while True:
            try:
                self._positions = {
                    (each.topic, each.partition): self._store.position(each.topic, each.partition)
                    for each in partitions
                }
                return [
                    TopicPartition(topic, partition, offset)
                    for (topic, partition), offset in self._positions.items()
                ]
            except psycopg.OperationalError:
                self._store.reconnect()


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
        store = Store(dsn, Steps(one_by_one=options.step_by_step).reach)
        # With this eager strategy, each assignment contains all partitions, so all positions are
        # set from the database.
        strategy = {"partition.assignment.strategy": "range"}
        consumer = new_consumer(servers, options.group, options.member, **strategy)
        writer = Writer(
            consumer, Batches(consumer, options.batch_size, forever=options.forever), store
        )
        try:
            writer.run(options.input)
        except KafkaException as failure:
            if is_replaced(failure, options.member):
                return FENCED
            raise
        finally:
            consumer.close()
            store.close()
        print(
            f"{writer.stored} orders stored, {writer.refused} batches refused, {writer.failures} "
            "failures of the database"
        )
        found = invoices_in(dsn)
        print(f"the table has {found.total()} invoices of {len(found)} orders")
    return 0


if __name__ == "__main__":
    sys.exit(main())
