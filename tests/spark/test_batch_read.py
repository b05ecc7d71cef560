"""`spark.read.format("barnabas")` on a local Spark: automatic registration, schema, isolation
levels, ranges and errors.
"""

from __future__ import annotations

import datetime
import itertools
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.fake_broker import FakeBroker, FakeLog
from helpers.spark_reading import publish

from barnabas import LocalBroker
from barnabas.protocol.compression import Codec
from barnabas.protocol.records import NewRecord, encode_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = itertools.count()
PATIENT = {"transaction.timeout.ms": 600_000, "log_level": 2}  # long, since Spark is slow to start


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


def frame(
    spark: SparkSession,
    broker: LocalBroker | FakeBroker,
    topic: str,
    schema: str | None = None,
    **options: str,
) -> DataFrame:
    reader = spark.read.format("barnabas").option(
        "kafka.bootstrap.servers", broker.bootstrap_servers
    )
    if "assign" not in options and "subscribePattern" not in options:
        reader = reader.option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return (reader.schema(schema) if schema else reader).load()


def values(rows: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows.select("value").collect())


def test_schema_of_sparks_own_source(spark: SparkSession, broker: LocalBroker, topic: str) -> None:
    plain = frame(spark, broker, topic).schema.simpleString()
    assert plain == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    with_headers = frame(spark, broker, topic, includeHeaders="true").schema.simpleString()
    assert with_headers == plain[:-1] + ",headers:array<struct<key:string,value:binary>>>"


def test_every_column(spark: SparkSession, broker: LocalBroker, topic: str) -> None:
    records = [
        (1, b"k", b"v", 1_700_000_000_123, [("a", b"1"), ("b", None), ("a", b"")]),
        (1, None, b"", 1_700_000_000_124, None),
        (1, b"", None, 1_700_000_000_125, [("ä", b"\0")]),
    ]
    publish(broker, topic, [("plain", records)])
    rows = frame(spark, broker, topic, includeHeaders="true").orderBy("offset").collect()
    second = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    assert [
        row.asDict(recursive=True) | {"timestamp": row.timestamp.astimezone(datetime.UTC)}
        for row in rows
    ] == [
        {
            "key": key,
            "value": value,
            "topic": topic,
            "partition": 1,
            "offset": offset,
            "timestamp": second + datetime.timedelta(milliseconds=123 + offset),
            "timestampType": 0,
            "headers": headers and [{"key": name, "value": content} for name, content in headers],
        }
        for offset, (_, key, value, _, headers) in enumerate(records)
    ]


def test_java_talks_to_python_over_sockets_of_our_daemon(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    publish(broker, topic, [("plain", [(0, None, b"p")])])
    assert values(frame(spark, broker, topic)) == ["p"]
    configuration = spark.sparkContext.getConf()
    directory = Path(configuration.get("spark.python.unix.domain.socket.dir") or "")
    assert [each for each in directory.iterdir() if each.is_socket()], "the daemon listens there"
    (main,) = (
        spark.sparkContext.parallelize([0], 1)
        .map(lambda _: sys.modules["__main__"].__spec__.name)
        .collect()
    )
    assert main == "barnabas.spark_connector.python_daemon"


def test_read_committed_is_the_default(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    transactions = [("commit", [(number % 2, None, b"c%d" % number)]) for number in range(3)]
    transactions += [
        ("abort", [(number % 2, None, b"a%d" % number) for number in range(10)]),
        ("plain", [(0, None, b"p")]),
    ]
    transactions += [("abort", [(1, None, b"last")])]
    publish(broker, topic, transactions)
    assert values(frame(spark, broker, topic)) == ["c0", "c1", "c2", "p"]
    uncommitted = frame(spark, broker, topic, kafka__isolation__level="read_uncommitted")
    assert uncommitted.count() == 15
    # This range of a partition contains only aborted records and markers.
    only_aborted = json.dumps({topic: {"0": 4, "1": 3}})
    assert (
        frame(
            spark,
            broker,
            topic,
            startingOffsets=only_aborted,
            endingOffsets=json.dumps({topic: {"0": 6, "1": -1}}),
        ).count()
        == 0
    )


def test_an_open_transaction_ends_the_range(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    from confluent_kafka import Producer

    publish(broker, topic, [("plain", [(0, None, b"before")])])
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": topic + "-open",
            **PATIENT,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    publish(broker, topic, [("plain", [(0, None, b"after")])])
    assert values(frame(spark, broker, topic)) == ["before"]
    producer.commit_transaction(30)
    assert values(frame(spark, broker, topic)) == ["after", "before", "open"]


def test_given_offsets_beyond_an_open_transaction_wait_or_end(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    from confluent_kafka import Producer
    from pyspark.errors import PySparkException

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": topic + "-open",
            **PATIENT,
        }
    )
    producer.init_transactions(30)
    publish(broker, topic, [("plain", [(0, None, b"before")])])
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    publish(broker, topic, [("plain", [(0, None, b"after")])])
    beyond = {"endingOffsets": json.dumps({topic: {"0": 3, "1": -1}})}
    assert values(frame(spark, broker, topic, **beyond, onOpenTransaction="end")) == ["before"]
    with pytest.raises(PySparkException) as caught:
        frame(spark, broker, topic, **beyond, openTransactionTimeout="100ms").count()
    said = str(caught.value)
    assert (
        f"{topic}-0 is to be read up to offset 3, and from 1 on a transaction is open. No record "
        "was deleted" in said
    )
    assert "data loss" not in said.lower() and "failOnDataLoss" not in said
    committing = threading.Timer(2, producer.commit_transaction)
    committing.start()
    assert values(frame(spark, broker, topic, **beyond)) == ["after", "before", "open"]
    committing.join()


@pytest.mark.parametrize(
    ("condition", "tasks"),
    [
        ("partition = 1", 1),
        ("partition in (0, 1) and offset >= 3", 2),
        ("offset < 2 or offset > 3", 2),
        ("timestamp >= timestamp_millis(1008)", 1),
        (
            "timestamp > timestamp_millis(1003) and timestamp < timestamp_millis(1006) and value "
            "is not null",
            2,
        ),
        ("topic = 'another'", 1),
        ("partition = 0 and offset between 1 and 2 and key = 'even'", 1),
    ],
)
def test_filters_are_pushed_down(
    spark: SparkSession, broker: LocalBroker, everything: DataFrame, condition: str, tasks: int
) -> None:
    pushed = frame(spark, broker, "filtered", pushDownFilters="true").where(condition)
    assert values(pushed) == values(everything.where(condition))
    assert pushed.rdd.getNumPartitions() == tasks


@pytest.fixture(scope="module")
def everything(spark: SparkSession, broker: LocalBroker) -> Iterator[DataFrame]:
    """Rows that are read once, without filters. Their offsets and timestamps increase with the
    values, except that the last record is older than all the others.
    """
    records: list[tuple[Any, ...]] = [
        (n % 2, b"odd" if n % 2 else b"even", b"%d" % n, 1000 + n) for n in range(9)
    ]
    publish(broker, "filtered", [("plain", [*records, (1, None, b"old", 999)])])
    rows = frame(spark, broker, "filtered").cache()
    yield rows
    rows.unpersist()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"minPartitions": "7"},
        {"maxRecordsPerPartition": "9"},
        {"kafka__max__partition__fetch__bytes": "200"},
        pytest.param(
            {"decoder": "numba"},
            marks=pytest.mark.skipif(not find_spec("numba"), reason="numba is not installed"),
        ),
    ],
)
def test_every_record_once_however_it_is_divided(
    spark: SparkSession, broker: LocalBroker, topic: str, options: dict[str, str]
) -> None:
    transactions: list[tuple[str, list[tuple[Any, ...]]]] = []
    for number in range(12):
        records = [(place % 2, b"%d" % number, b"%d-%d" % (number, place)) for place in range(8)]
        transactions.append(("abort" if number % 3 == 1 else "commit", records))
    publish(broker, topic, transactions)
    rows = frame(spark, broker, topic, **options)
    if {"minPartitions", "maxRecordsPerPartition"} & set(options):
        assert rows.rdd.getNumPartitions() >= 7
    seen = Counter(values(rows))
    assert seen == Counter(
        f"{number}-{place}" for number in range(12) if number % 3 != 1 for place in range(8)
    )


def test_offsets_timestamps_and_assignment(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    publish(
        broker,
        topic,
        [("plain", [(number % 2, None, b"%d" % number, 1000 + number)]) for number in range(10)],
    )
    assert values(
        frame(spark, broker, topic, startingTimestamp="1003", endingTimestamp="1007")
    ) == ["3", "4", "5", "6"]
    by_partition = json.dumps({topic: {"0": 1008, "1": 1009}})
    assert values(frame(spark, broker, topic, startingOffsetsByTimestamp=by_partition)) == [
        "8",
        "9",
    ]
    assert values(frame(spark, broker, topic, assign=json.dumps({topic: [1]}))) == [
        "1",
        "3",
        "5",
        "7",
        "9",
    ]
    start = json.dumps({topic: {"0": 4, "1": -2}})
    assert values(frame(spark, broker, topic, startingOffsets=start)) == [
        "1",
        "3",
        "5",
        "7",
        "8",
        "9",
    ]
    assert values(frame(spark, broker, topic, subscribePattern=topic + "x?")) == [
        str(number) for number in range(10)
    ]


def test_a_schema_of_ones_own_chooses_columns(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    publish(broker, topic, [("plain", [(0, b"k", b"v", 5)])])
    rows = frame(spark, broker, topic, "offset long, value binary")
    assert rows.columns == ["offset", "value"]
    assert [(row.offset, bytes(row.value)) for row in rows.collect()] == [(0, b"v")]


def test_log_append_time_and_codecs_of_a_canned_log(spark: SparkSession) -> None:
    batches = [
        bytes(
            encode_batch(
                [NewRecord(None, codec.name.encode(), 5)],
                base_offset=codec * 3,
                codec=codec,
                log_append_time=codec == 2,
            )
        )
        for codec in Codec
    ]
    with FakeBroker({("t", 0): FakeLog(batches)}) as fake:
        rows = (
            frame(spark, fake, "t")
            .selectExpr("CAST(value AS STRING)", "timestampType", "offset")
            .orderBy("offset")
            .collect()
        )
    assert [tuple(row) for row in rows] == [
        (codec.name, int(codec == 2), codec * 3) for codec in Codec
    ]


def test_an_empty_topic_and_an_empty_pattern(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    publish(broker, topic, [("abort", [(0, None, b"x")])])
    assert frame(spark, broker, topic).count() == 0
    assert frame(spark, broker, topic, subscribePattern="there-is-none.*").count() == 0


@pytest.mark.parametrize(
    ("options", "schema", "says"),
    [
        ({"subscribe": "there-is-none"}, None, "topic 'there-is-none' does not exist"),
        (
            {"subscribee": "x"},
            None,
            "option subscribee is unknown to the source: did you mean subscribe?",
        ),
        ({"startingOffsets": "{}x"}, None, "option startingOffsets='{}x': give JSON like"),
        ({"includeHeaders": "1"}, None, "option includeHeaders='1': give true or false"),
        ({}, "value string", "column value is binary, not string"),
        (
            {},
            "headers array<struct<key:string,value:binary>>",
            "the column headers needs the option includeHeaders=true",
        ),
        ({}, "nothing int", "column nothing is not one of the source's"),
        (
            {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "100"},
            None,
            "check that one is running",
        ),
    ],
)
def test_errors(
    spark: SparkSession,
    broker: LocalBroker,
    topic: str,
    options: dict[str, str],
    schema: str | None,
    says: str,
) -> None:
    from pyspark.errors import PySparkException

    reader = spark.read.format("barnabas").options(
        **{"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic} | options
    )
    with pytest.raises(PySparkException) as caught:
        (reader.schema(schema) if schema else reader).load().count()
    assert says in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_damaged_records(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    damaged = bytearray(encode_batch([NewRecord(None, b"value", 1)]))
    damaged[-2] ^= 1
    with (
        FakeBroker({("t", 0): FakeLog([bytes(damaged)])}) as fake,
        pytest.raises(PySparkException) as caught,
    ):
        frame(spark, fake, "t").count()
    assert (
        "t-0 cannot be read, for the range [0, 1): the checksum of the batch at offset 0 is wrong"
        in str(caught.value)
    )
    assert "Traceback" not in str(caught.value)


def test_deleted_records(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    log = FakeLog(
        [bytes(encode_batch([NewRecord(None, b"%d" % place, 1) for place in range(5)]))],
        start_offset=3,
    )
    start = '{"t": {"0": 0}}'
    with FakeBroker({("t", 0): log}) as fake:
        with pytest.raises(PySparkException, match="failOnDataLoss"):
            frame(spark, fake, "t", startingOffsets=start).count()
        assert values(frame(spark, fake, "t", startingOffsets=start, failOnDataLoss="false")) == [
            "3",
            "4",
        ]


def test_the_read_goes_on_where_the_broker_came_back(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    """The read is planned before the broker is killed, and runs after its restart."""
    with LocalBroker() as own:
        publish(own, topic, [("commit", [(0, None, b"1"), (0, None, b"2")])])
        rows = frame(spark, own, topic)
        assert values(rows) == ["1", "2"]
        own.kill()
        own.restart()
        assert values(rows) == ["1", "2"]
