"""Writes a micro-batch of Spark into PostgreSQL and into topics: each batch once into both, or into
neither.

    sink = MicroBatchSink(
        "127.0.0.1:9092", "dbname=shop", "loud-orders", insert=..., rows_of=..., records_of=...
    )
    query = orders.writeStream.foreachBatch(sink).option("checkpointLocation", ...).start()

It uses two-phase commit (KIP-939), in which the database's own commit is the decision. The
database's transaction contains the rows, the number of the micro-batch, and the state of the
broker's transaction. After a crash Spark repeats a micro-batch under the same number, and the
number in the table shows whether it is already stored. The rows pass through the driver, as with
the connector's own sink, so the driver's memory limits the size of a micro-batch
(maxOffsetsPerTrigger).

Needs a broker with transaction.two.phase.commit.enable=true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import psycopg
from postgres_worker import make_tables

from barnabas import TwoPhaseProducer

ROWS_AT_ONCE = 1000
TABLE = """
    CREATE TABLE IF NOT EXISTS micro_batches (
        query text PRIMARY KEY,
        session bigint NOT NULL,   -- raised by each driver: the one before it is refused
        batch_id bigint NOT NULL,  -- the last one that is stored
        state text NOT NULL        -- of the broker's transaction that belongs to it
    );
"""
STEPS = ("sent", "prepared", "rows inserted", "decided", "completed")


class ReplacedError(Exception):
    """Another driver is running the query now."""


class Record(NamedTuple):
    """A record to write to a topic."""

    topic: str
    value: bytes | None
    key: bytes | None = None


class MicroBatchSink:
    """The function to give to `foreachBatch`. One object serves one query, until the query ends.

    Takes:  query, a unique name of the query that stays the same over restarts, which is used as
            the transactional id; insert, the statement for one row of `rows_of`; rows_of, a
            function that returns the database's rows for a row of the micro-batch; records_of, a
            function that returns the records for that row; reached, a function that is called after
            each step.
    """

    def __init__(
        self,
        servers: str,
        dsn: str,
        query: str,
        *,
        insert: str,
        rows_of: Callable[[Any], Iterable[Sequence[Any]]],
        records_of: Callable[[Any], Iterable[Record]],
        settings: Mapping[str, str] | None = None,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._dsn, self._query, self._insert = dsn, query, insert
        self._rows_of, self._records_of, self._reached = rows_of, records_of, reached
        self._producer = TwoPhaseProducer(servers, query, settings=settings)
        self._connection: psycopg.Connection | None = None
        self._session = self._stored = -1

    def __call__(self, batch: Any, batch_id: int) -> None:
        """Store a micro-batch, unless it is already stored.

        Takes:  batch, a DataFrame.
        Raises: ReplacedError, ClientError, psycopg.Error. Spark then ends the query. The next call,
        of
                this object or of another one, finds out whether this micro-batch was stored.
        """
        connection = self._connection or self._recover()
        if batch_id <= self._stored:
            return
        try:
            self._store(connection, batch, batch_id)
        except BaseException:
            self._forget()
            raise

    def _store(self, connection: psycopg.Connection, batch: Any, batch_id: int) -> None:
        """Store a micro-batch: prepare the broker's transaction, commit the database's, which is
        the decision, then complete the broker's.
        """
        producer = self._producer
        producer.begin()
        with connection.transaction(), connection.cursor() as cursor:
            waiting: list[Sequence[Any]] = []
            for row in batch.toLocalIterator(True):
                for record in self._records_of(row):
                    producer.send(record.topic, record.value, record.key)
                waiting.extend(self._rows_of(row))
                if len(waiting) >= ROWS_AT_ONCE:
                    cursor.executemany(self._insert, waiting)
                    waiting.clear()
            self._reached("sent")
            state = producer.prepare()
            self._reached("prepared")
            if waiting:
                cursor.executemany(self._insert, waiting)
            cursor.execute(
                "UPDATE micro_batches SET batch_id = %s, state = %s WHERE query = %s AND session = "
                "%s",
                (batch_id, state, self._query, self._session),
            )
            if cursor.rowcount != 1:
                raise ReplacedError(self._query)
            self._reached("rows inserted")
        self._reached("decided")
        producer.complete(state)
        self._stored = batch_id
        self._reached("completed")

    def _recover(self) -> psycopg.Connection:
        """Fence the previous driver on both sides, and end its open transactions."""
        self._producer.recover()  # this comes first, since it fences the earlier driver's producer
        connection = psycopg.connect(self._dsn)
        try:
            make_tables(connection, TABLE)
            with connection.transaction():
                found = connection.execute(
                    "INSERT INTO micro_batches VALUES (%s, 1, -1, '') "
                    "ON CONFLICT (query) DO UPDATE "
                    "SET session = micro_batches.session + 1 RETURNING session, batch_id, state",
                    (self._query,),
                ).fetchone()
            assert found is not None, "a row was inserted or changed"
            self._session, self._stored, state = found
            self._producer.complete(state)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _forget(self) -> None:
        """Close the connection; the next micro-batch begins with a recovery."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connections. Transactions that are still open are ended by the next process."""
        self._forget()
        self._producer.close()

    def __enter__(self) -> MicroBatchSink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
