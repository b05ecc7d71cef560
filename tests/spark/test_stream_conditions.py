"""Streams of topics as they occur in production: compacted topics, micro-batches with a minimum
size and a maximum delay, and a start by timestamp with each strategy.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.e2e_clients import create_topic, eventually
from helpers.kafka_proxy import LIST_OFFSETS, broker_behind_proxy
from helpers.spark_reading import Query, publish

from barnabas import LocalBroker

pytestmark = pytest.mark.deep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 5
QUICK_CLEANER = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "100",
}
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "4000",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "500",
}
_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    return f"condition-{next(_numbers)}"


# --- compacted topics


def update_all(broker: LocalBroker, topic: str, turns: range) -> list[str]:
    """Run one transaction for each turn, which writes the value `turn.key` for each key. Every
    third transaction is aborted.

    Gives: the committed values of the last turn.
    """
    transactions, values = [], []
    for turn in turns:
        ends = "abort" if turn % 3 == 1 else "commit"
        records = [(key % 2, b"k%d" % key, b"%03d.%d" % (turn, key)) for key in range(KEYS)]
        transactions.append((ends, records))
        values = values if ends == "abort" else [value.decode() for _, _, value in records]
    publish(broker, topic, transactions)
    return values


def last_of_each_key(values: list[str]) -> list[str]:
    table: dict[str, str] = {}
    for value in sorted(values):
        table[value.split(".")[1]] = value
    return sorted(table.values())


def compactions(broker: LocalBroker, topic: str) -> int:
    return sum(f"{topic}-" in line and "compacted up to" in line for line in broker.output)


def test_a_compacted_topic_gives_the_last_value_of_each_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Ranges may begin, end or lie within gaps left by compaction. When Spark runs a batch again,
    compaction may have removed older values in the meantime, but never the last value of a key.
    """
    with LocalBroker(tmp_path / "data", settings=QUICK_CLEANER) as own:
        topic = create_topic(own.bootstrap_servers, "table", 2, **COMPACTED)
        last = update_all(own, topic, range(60))
        eventually(lambda: compactions(own, topic) > 1, what="a compaction")
        query = Query(
            spark,
            own,
            tmp_path / "checkpoint",
            subscribe=topic,
            maxOffsetsPerTrigger="90",
            minPartitions="4",
        )
        query.run()
        assert last_of_each_key(query.values) == last
        assert len(set(query.values)) == len(query.values) < 60 * KEYS // 3, "gaps were read"
        assert not [value for value in query.values if int(value.split(".")[0]) % 3 == 1]

        replayed = max(query.batches)
        query.forget(replayed)
        before = compactions(own, topic)
        last = update_all(own, topic, range(60, 120))
        eventually(lambda: compactions(own, topic) > before + 1, what="another compaction")
        query.run()
        first, again = query.batches[replayed]
        assert set(again) <= set(first), "a batch that is run again has no other rows"
        assert last_of_each_key(query.values) == last

        publish(own, topic, [("commit", [(0, b"k0", None)])])
        rows = (
            spark.read.format("barnabas")
            .options(**{"kafka.bootstrap.servers": own.bootstrap_servers, "subscribe": topic})
            .option("maxRecordsPerPartition", "50")
            .load()
            .select("value")
            .collect()
        )
        values = [bytes(row.value).decode() for row in rows if row.value is not None]
        assert len(values) == len(rows) - 1, "the tombstone comes as a null value"
        assert last_of_each_key(values) == last


# --- the least size of a micro-batch


def numbers(first: int, end: int) -> list[tuple[str, list[tuple[Any, ...]]]]:
    return [("plain", [(number % 2, None, b"%03d" % number) for number in range(first, end)])]


def test_a_batch_waits_for_enough_offsets_from_the_first_one_on(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    with broker_behind_proxy({"num.partitions": "2"}) as (own, proxy):
        query = Query(
            spark,
            own,
            tmp_path,
            subscribe=create_topic(own.bootstrap_servers, topic, 2),
            startingOffsets="latest",
            minOffsetsPerTrigger="10",
            maxOffsetsPerTrigger="12",
            maxTriggerDelay="1h",
        )
        topic = query.options["subscribe"]
        running = query.begin()
        try:
            publish(own, topic, numbers(0, 4))
            triggers = proxy.requests.count(LIST_OFFSETS)
            eventually(lambda: proxy.requests.count(LIST_OFFSETS) >= triggers + 2, what="a trigger")
            publish(own, topic, numbers(4, 12))
            query.wait_for("000", "011", timeout_s=120)
        finally:
            running.stop()
    assert query.batches == {0: [[]], 1: [[f"{number:03}" for number in range(12)]]}


def test_a_batch_waits_no_longer_than_the_delay(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    """If there are too few records for a batch, they are delivered once the last batch is old
    enough. This also holds after a restart, and with a trigger that takes everything available.
    """
    publish(broker, topic, numbers(0, 4))
    query = Query(
        spark,
        broker,
        tmp_path,
        subscribe=topic,
        minOffsetsPerTrigger="1000000",
        maxTriggerDelay="500ms",
    )
    running = query.begin()
    try:
        publish(broker, topic, numbers(4, 6))
        query.wait_for("004", "005")
    finally:
        running.stop()
    publish(broker, topic, numbers(6, 8))
    query.run(maxTriggerDelay="1h")
    # (Spark may run the last batch of a stopped query again.)
    assert sorted(set(query.values)) == [f"{number:03}" for number in range(8)]


# --- a start by timestamp

OLD, SOME, LATE, NEVER = 1_000, 2_000, 3_000, 9_000


def stamped(*records: tuple[int, str, int]) -> list[tuple[str, list[tuple[Any, ...]]]]:
    return [("plain", [(partition, None, value.encode(), at) for partition, value, at in records])]


def by_timestamp(topic: str, *timestamps: int) -> str:
    return json.dumps({topic: {str(number): at for number, at in enumerate(timestamps)}})


ROWS = stamped((0, "a", OLD), (0, "b", SOME), (0, "c", LATE), (1, "d", OLD), (1, "e", SOME))


@pytest.mark.parametrize(
    "option", ["startingOffsetsByTimestamp", "startingTimestamp"], ids=["by partition", "for all"]
)
def test_a_partition_without_so_late_a_record_is_an_error_or_begins_at_its_end(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path, option: str
) -> None:
    """By default it is an error, as in Spark's own source (SPARK-35611). Later records of the
    partition are read, whatever their timestamps are, and a first batch that is run again has the
    same rows.
    """
    from pyspark.errors import StreamingQueryException

    publish(broker, topic, ROWS)
    start = by_timestamp(topic, LATE, LATE) if option.endswith("ByTimestamp") else str(LATE)
    query = Query(spark, broker, tmp_path, subscribe=topic, **{option: start})
    for strategy in ({}, {"startingOffsetsByTimestampStrategy": "error"}):
        with pytest.raises(StreamingQueryException) as caught:
            query.run(**strategy)
        assert f"option {option}: no record has this time or a later one in {topic}-1" in str(
            caught.value
        )
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    query.run(**latest)
    assert query.batches == {0: [["c"]]}
    query.forget(0)
    publish(broker, topic, stamped((1, "f", OLD), (1, "g", NEVER), (0, "h", OLD)))
    query.run(**latest)
    assert query.batches == {0: [["c"], ["c"]], 1: [["f", "g", "h"]]}


def test_batch_reads_between_timestamps(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    publish(broker, topic, ROWS)

    def read(**options: str) -> list[str]:
        reader = spark.read.format("barnabas").options(
            **{"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}, **options
        )
        return sorted(bytes(row.value).decode() for row in reader.load().collect())

    late = by_timestamp(topic, LATE, SOME)
    assert read(startingOffsetsByTimestamp=late) == ["c", "e"]
    assert read(endingOffsetsByTimestamp=late) == ["a", "b", "d"]
    never = by_timestamp(topic, SOME, NEVER)
    assert read(endingOffsetsByTimestamp=never) == ["a", "d", "e"], (
        "a partition without a record at that time is read to its end"
    )
    assert read(startingOffsetsByTimestamp=never, startingOffsetsByTimestampStrategy="latest") == [
        "b",
        "c",
    ]
    assert (
        read(
            startingOffsetsByTimestamp=by_timestamp(topic, NEVER, NEVER),
            startingOffsetsByTimestampStrategy="latest",
        )
        == []
    )
