"""`wholeTransactions` on a local Spark and a real broker: batch reads, micro-batches with a limit,
reads as of a time, repeated batches, and what is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from helpers.spark_reading import Query

from barnabas import LocalBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE = {"barnabas.transactions.whole": "true"}


@pytest.fixture(scope="module")
def whole_broker() -> Iterator[LocalBroker]:
    """A broker that records a cut after each transaction of `Pairs`."""
    topics = {"a": {"partitions": 1, **WHOLE}, "b": {"partitions": 1, **WHOLE}, "plain": 1}
    settings = {"barnabas.transactions.whole.cut.interval.ms": "10"}
    with LocalBroker(topics=topics, settings=settings) as running:
        yield running


class Pairs:
    """Writes pairs: a record in one topic and a record in the other, in one transaction."""

    def __init__(self, broker: LocalBroker) -> None:
        self._config = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 2}
        self._producer = self.begin("pairs")
        self._producer.abort_transaction(30)

    def begin(self, name: str) -> Producer:
        """Begin a transaction of another producer."""
        config = self._config | {"transactional.id": name, "transaction.timeout.ms": 900_000}
        producer = Producer(config)
        producer.init_transactions(30)
        producer.begin_transaction()
        return producer

    def write(self, number: int) -> None:
        """Write `number` to both topics."""
        self._producer.begin_transaction()
        for topic in ("a", "b"):
            self._producer.produce(topic, f"{topic}{number}".encode(), partition=0)
        self._producer.commit_transaction(30)
        time.sleep(0.05)  # beyond the interval of recorded cuts


def both(first: int, end: int) -> list[str]:
    return sorted(f"{topic}{number}" for topic in ("a", "b") for number in range(first, end))


def test_no_read_has_half_of_a_transaction(
    spark: SparkSession, whole_broker: LocalBroker, tmp_path: Path
) -> None:
    options = {
        "kafka.bootstrap.servers": whole_broker.bootstrap_servers,
        "subscribe": "a,b",
        "wholeTransactions": "true",
    }

    def batch(**more: str) -> list[str]:
        rows = spark.read.format("barnabas").options(**options | more).load().select("value")
        return sorted(bytes(row.value).decode() for row in rows.collect())

    pairs = Pairs(whole_broker)
    for number in range(3):
        pairs.write(number)
    between_ms = int(time.time() * 1000)
    time.sleep(0.05)
    older = pairs.begin("older")
    older.produce("a", b"open", partition=0)
    older.flush(30)
    pairs.write(3)
    assert batch() == both(0, 3), "of pair 3 one half is behind the open transaction"
    older.abort_transaction(30)
    for number in range(4, 6):
        pairs.write(number)

    assert batch() == both(0, 6)
    assert batch(asOf=str(between_ms)) == both(0, 3)
    assert batch(startingCut=str(between_ms)) == both(3, 6)

    query = Query(
        spark,
        whole_broker,
        tmp_path,
        subscribe="a,b",
        wholeTransactions="true",
        maxOffsetsPerTrigger="9",  # two pairs and their markers are 8 offsets
    )
    query.run()
    assert query.batches[0] == [both(0, 2)]
    assert all(rows == both_of(rows) for [rows] in query.batches.values())
    assert query.values == both(0, 6)

    last = max(query.batches)
    [rows] = query.batches[last]
    query.forget(last)
    pairs.write(6)
    query.run()
    assert query.batches[last] == [rows, rows], "a repeated batch has the same rows"
    assert query.batches[last + 1] == [both(6, 7)]

    with pytest.raises(Exception, match=r"barnabas.transactions.whole is not true for 'plain'"):
        batch(subscribe="a,plain")


def both_of(values: list[str]) -> list[str]:
    """The values with their other halves."""
    return sorted({f"{topic}{value[1:]}" for value in values for topic in ("a", "b")})
