"""Calls the sink's function directly, as Spark's `foreachBatch` does. Spark repeats a micro-batch
after each crash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from guarantee_tools import make_topic, read_committed
from two_phase_spark import STEPS, MicroBatchSink, Record, ReplacedError

from barnabas import LocalBroker
from barnabas.client.errors import ClientError


class Batch:
    """A DataFrame with only the method that the sink uses."""

    def __init__(self, *rows: str) -> None:
        self._rows = rows

    def toLocalIterator(self, prefetchPartitions: bool) -> Iterator[str]:
        return iter(self._rows)


class CrashError(Exception):
    """A crash of the driver."""


@pytest.fixture
def table(dsn: str) -> str:
    """The connection string of a schema with the table of words."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE words (word text NOT NULL)")
    return dsn


def sink(broker: LocalBroker, dsn: str, name: str, crash: str = "", **more: Any) -> MicroBatchSink:
    """A sink that writes each word to the table and to the topic, and fails at the step `crash`."""

    def reached(step: str) -> None:
        if step == crash:
            raise CrashError

    return MicroBatchSink(
        broker.bootstrap_servers,
        dsn,
        name,
        insert="INSERT INTO words VALUES (%s)",
        rows_of=lambda row: [(row,)],
        records_of=lambda row: [Record(name, row.encode(), b"key")],
        reached=reached,
        **more,
    )


def found(broker: LocalBroker, dsn: str, name: str) -> tuple[Counter[str], Counter[str]]:
    """The counts of the words in the table and in the topic."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT word FROM words").fetchall()
    records = read_committed(broker.bootstrap_servers, name)
    return Counter(row[0] for row in rows), Counter(value.decode() for value in records)


def test_a_micro_batch_is_stored_once_in_both_whichever_step_its_driver_fails_at(
    broker: LocalBroker, table: str, name: str
) -> None:
    make_topic(broker.bootstrap_servers, name)
    words: list[str] = []
    for batch_id, step in enumerate(STEPS):
        batch = Batch(f"{batch_id}-a", f"{batch_id}-b")
        words += [f"{batch_id}-a", f"{batch_id}-b"]
        with sink(broker, table, name, step) as first, pytest.raises(CrashError):
            first(batch, batch_id)
        with sink(broker, table, name) as second:
            second(batch, batch_id)  # called again, because Spark would repeat the batch
            second(batch, batch_id)
    once = Counter(words)
    assert found(broker, table, name) == (once, once)
    assert name not in [row.transactional_id for row in broker.open_transactions()]


def test_a_driver_continues_after_its_own_failure_and_after_empty_batches(
    broker: LocalBroker, table: str, name: str
) -> None:
    make_topic(broker.bootstrap_servers, name)

    def fail(row: str) -> list[Record]:
        if row == "bad":
            raise ValueError(row)
        return [Record(name, row.encode())]

    with sink(broker, table, name) as driver:
        driver._records_of = fail
        driver(Batch("a"), 0)
        driver(Batch(), 1)
        with pytest.raises(ValueError, match="bad"):
            driver(Batch("x", "bad"), 2)
        driver(Batch("b"), 2)
    assert found(broker, table, name) == (Counter("ab"), Counter("ab"))


def test_a_driver_that_was_replaced_stores_nothing(
    broker: LocalBroker, table: str, name: str
) -> None:
    make_topic(broker.bootstrap_servers, name)
    with sink(broker, table, name) as first, sink(broker, table, name) as second:
        first(Batch("a"), 0)
        second(Batch("b"), 1)
        with pytest.raises((ReplacedError, ClientError)):
            first(Batch("b"), 1)
    assert found(broker, table, name) == (Counter("ab"), Counter("ab"))
