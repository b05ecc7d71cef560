"""`df.write.format("barnabas")` and `df.writeStream.format("barnabas")` on a local Spark and a real
broker; other clients read what they wrote.
"""

from __future__ import annotations

import datetime
import re
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka
import pytest

pytest.importorskip("pyspark")

from helpers.e2e_clients import (
    PATIENCE_S,
    QUIET,
    consumer,
    create_topic,
    eventually,
    read_all,
    send_all,
    unique,
    values_of,
)
from helpers.spark_driver import through_slow_starts

from barnabas import LocalBroker
from barnabas.client.cluster_reader import ClusterReader
from barnabas.client.options import ClientOptions
from barnabas.protocol.compression import Codec
from barnabas.protocol.records import read_header
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.write.sink import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ALL = (
    "topic string, partition int, key binary, value binary, headers "
    "array<struct<key:string,value:binary>>, timestamp timestamp"
)


class Record(NamedTuple):
    """A record as a read_committed reader receives it, without its offset."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None = None
    timestamp_ms: int | None = None


@pytest.fixture
def topic(broker: LocalBroker) -> str:
    return create_topic(broker.bootstrap_servers, "sink", 3)


def write(
    frame: DataFrame, servers: str, topic: str | None = None, mode: str = "append", **options: str
) -> None:
    """Write the frame as a batch. In the names of options, __ means a dot."""
    writer = frame.write.format("barnabas").mode(mode).option("kafka.bootstrap.servers", servers)
    for name, value in ({"topic": topic} if topic else {}).items() | options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def stream(
    spark: SparkSession,
    broker: LocalBroker,
    source: str,
    topic: str,
    checkpoint: Path,
    **options: str,
) -> StreamingQuery:
    """Write the whole source topic in batches of ten records, and wait for the end. In the names of
    options, __ means a dot.
    """
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    reader = spark.readStream.format("barnabas").options(
        **servers, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="10"
    )
    writer = (
        reader.load()
        .select("key", "value")
        .writeStream.format("barnabas")
        .options(**servers, topic=topic)
    )
    writer = writer.options(**{name.replace("__", "."): value for name, value in options.items()})
    writer = (
        writer.queryName("copy")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )

    def run() -> StreamingQuery:
        query = writer.start()
        assert query.awaitTermination(600), "the query does not end"
        return query

    return through_slow_starts(run)


def records(broker: LocalBroker, topic: str) -> list[Record]:
    """The records of each partition, in the order of its log."""
    reader = consumer(
        broker.bootstrap_servers, isolation_level="read_committed", enable_partition_eof=True
    )
    try:
        open_partitions = set(reader.list_topics(topic, PATIENCE_S).topics[topic].partitions)
        reader.assign(
            [confluent_kafka.TopicPartition(topic, index, 0) for index in open_partitions]
        )
        found = []
        while open_partitions:
            (message,) = reader.consume(1, PATIENCE_S) or [None]
            assert message is not None, f"no end of {open_partitions}"
            if message.error() is not None:
                open_partitions.discard(message.partition())
                continue
            found.append(
                Record(
                    message.partition(),
                    message.key(),
                    message.value(),
                    message.headers(),
                    message.timestamp()[1],
                )
            )
        return sorted(found, key=lambda record: record.partition)
    finally:
        reader.close()


# --- columns


def test_every_column(spark: SparkSession, broker: LocalBroker, topic: str) -> None:
    other = create_topic(broker.bootstrap_servers, "other", 2)
    time = datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=datetime.UTC)
    milliseconds = 1_700_000_000_123
    headers = [("a", b"1"), ("b", None), ("a", b"")]
    rows: list[tuple[Any, ...]] = [
        (topic, 2, b"k", b"v", headers, time),
        (topic, 2, None, b"no key", None, time),
        (topic, 1, b"k", None, [], time),
        (other, 0, b"", b"", [("ä", b"\0")], time),
    ]
    write(spark.createDataFrame(rows, ALL).coalesce(1), broker.bootstrap_servers)
    assert records(broker, topic) == [
        Record(1, b"k", None, None, milliseconds),
        Record(2, b"k", b"v", headers, milliseconds),
        Record(2, None, b"no key", None, milliseconds),
    ]
    assert records(broker, other) == [Record(0, b"", b"", [("ä", b"\0")], milliseconds)]


def test_a_key_goes_where_the_java_client_sends_it(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    keys = [f"kéy-{number}" for number in range(100)] + ["", "x" * 1000]
    java = create_topic(broker.bootstrap_servers, "java", 3)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random", **QUIET}
    )
    for key in keys:
        producer.produce(java, b"", key.encode())
    producer.flush(PATIENCE_S)
    write(
        spark.createDataFrame([(key, "v") for key in keys], "key string, value string"),
        broker.bootstrap_servers,
        topic,
    )
    expected = {seen.key: seen.partition for seen in read_all(broker.bootstrap_servers, java)}
    assert {
        seen.key: seen.partition for seen in read_all(broker.bootstrap_servers, topic)
    } == expected
    assert set(expected.values()) == {0, 1, 2}


def test_every_codec(spark: SparkSession, broker: LocalBroker) -> None:
    frame = spark.createDataFrame([("x" * 50,)] * 100, "value string").coalesce(1)
    for codec in Codec:
        topic = create_topic(broker.bootstrap_servers, "codec", 1)
        write(frame, broker.bootstrap_servers, topic, kafka__compression__type=codec.name.lower())
        assert values_of(broker.bootstrap_servers, topic) == [b"x" * 50] * 100
        with ClusterReader(ClientOptions((("127.0.0.1", broker.port),))) as client:
            fetched = client.start_fetch(
                TopicPartition(topic, 0), 0, read_committed=True, max_bytes=1 << 20
            )()
            header = read_header(bytes(fetched.records))
        assert header.codec == codec
        assert header.is_transactional


# --- streams


def test_a_stream_with_spool_files_and_one_without(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    source = create_topic(broker.bootstrap_servers, "source", 2)
    expected = [b"%d" % number for number in range(30)]
    for partition in range(2):
        send_all(broker.bootstrap_servers, source, expected[partition::2], partition=partition)
    spools = {}
    for name, inline_bytes in (("spooled", "0"), ("inline", "100000")):
        checkpoint = tmp_path / name
        query = stream(spark, broker, source, topic, checkpoint, inlineBytes=inline_bytes)
        spools[name] = [
            path.relative_to(checkpoint / "barnabas-spool")
            for path in (checkpoint / "barnabas-spool").rglob("*")
        ]
        query_id = query.id
        assert sorted(values_of(broker.bootstrap_servers, topic)) == sorted(expected * len(spools))
    assert not spools["inline"]
    # The query's directory remains, which shows that there were spool files; the files are deleted.
    assert [len(path.parts) for path in spools["spooled"]] == [1]
    # Spark runs this batch again, since its commit log lacks the batch.
    commits = tmp_path / "inline" / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink()
    assert stream(spark, broker, source, topic, tmp_path / "inline").id == query_id
    assert (commits / str(last)).exists()
    assert len(values_of(broker.bootstrap_servers, topic)) == 2 * len(expected)


def test_a_stream_that_cannot_publish_says_what_to_do(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    """Afterwards, the query continues from the batch that failed."""
    from pyspark.errors import StreamingQueryException

    source = create_topic(broker.bootstrap_servers, "source")
    narrow = create_topic(broker.bootstrap_servers, "narrow", max_message_bytes="300")
    send_all(broker.bootstrap_servers, source, [b"x" * 50] * 5 + [b"y" * 500] * 5)
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, broker, source, narrow, tmp_path / "checkpoint", kafka__batch__size="1024")
    text = str(caught.value)
    assert "batch 0 of query copy (" in text
    assert "MESSAGE_TOO_LARGE" in text
    assert "raise max.message.bytes of the topic, or write smaller rows or batches" in text
    assert not values_of(broker.bootstrap_servers, narrow)
    wide = create_topic(broker.bootstrap_servers, "wide")
    stream(spark, broker, source, wide, tmp_path / "checkpoint")
    assert len(values_of(broker.bootstrap_servers, wide)) == 10


# --- batch writes


def test_a_write_whose_task_fails_leaves_nothing(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    from pyspark.errors import PySparkException

    rows = spark.range(0, 1000, 1, 2).selectExpr(
        "IF(id = 999, raise_error('failed on purpose'), CAST(id AS STRING)) AS value"
    )
    with pytest.raises(PySparkException, match="failed on purpose"):
        write(rows, broker.bootstrap_servers, topic, inlineBytes="0")
    assert not read_all(broker.bootstrap_servers, topic, committed=False)


def test_a_write_that_is_refused_half_way_leaves_nothing(
    spark: SparkSession, broker: LocalBroker
) -> None:
    from pyspark.errors import PySparkException

    narrow = create_topic(broker.bootstrap_servers, "narrow", max_message_bytes="300")
    rows = [("small",)] * 100 + [("x" * 500,)]
    with pytest.raises(PySparkException) as caught:
        write(
            spark.createDataFrame(rows, "value string").coalesce(1),
            broker.bootstrap_servers,
            narrow,
            kafka__batch__size="1024",
            kafka__max__request__size="1024",
        )
    assert "was not published: " in str(caught.value)
    assert f"partition {narrow}-0: MESSAGE_TOO_LARGE" in str(caught.value)
    assert not values_of(broker.bootstrap_servers, narrow)


def test_a_write_with_an_id_is_done_once(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    frame = spark.createDataFrame([("a",), ("b",)], "value string")
    name = unique("load")
    for _ in range(2):
        write(frame, broker.bootstrap_servers, topic, writeId=name)
    assert sorted(values_of(broker.bootstrap_servers, topic)) == [b"a", b"b"]
    write(frame, broker.bootstrap_servers, topic, writeId=name + "-2")
    assert len(values_of(broker.bootstrap_servers, topic)) == 4
    write(frame.limit(0), broker.bootstrap_servers, topic)
    assert len(values_of(broker.bootstrap_servers, topic)) == 4


def test_threads_of_a_program_write_once_the_session_is_active_in_them(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    """As docs/TROUBLESHOOTING.md describes."""
    frames = [spark.createDataFrame([(name,)], "value string") for name in ("a", "b")]

    def write_one(frame: DataFrame) -> None:
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            write(frame, broker.bootstrap_servers, topic)
        spark.createDataFrame([], "a int")
        write(frame, broker.bootstrap_servers, topic)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write_one, frames))
    assert sorted(values_of(broker.bootstrap_servers, topic)) == [b"a", b"b"]


def test_writes_without_an_id_leave_no_group_and_no_file(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    """The test writes from a program and from foreachBatch; large writes use a private file."""
    from helpers.e2e_clients import admin

    from barnabas.spark_connector.write.spool_directory import private_directory

    def groups() -> set[str]:
        listed = admin(broker.bootstrap_servers).list_consumer_groups().result(PATIENCE_S)
        return {group.group_id for group in listed.valid}

    before = groups()
    directory = Path(private_directory())
    spooled = set(directory.rglob("*.batches*"))  # of concurrent tests
    frame = spark.createDataFrame([("a",), ("b",)], "value string")
    for inline_bytes in ("0", "100000"):
        write(frame, broker.bootstrap_servers, topic, inlineBytes=inline_bytes)
    assert sorted(values_of(broker.bootstrap_servers, topic)) == [b"a", b"a", b"b", b"b"]
    assert groups() == before
    assert directory.stat().st_mode & 0o777 == 0o700
    eventually(
        lambda: not set(directory.rglob("*.batches*")) - spooled, what="its spool files are gone"
    )


# --- refusals


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        ("value string", {}, "set the option 'topic', or add a column 'topic'"),
        ("value string", {"topic": "a b"}, "option topic='a b' is not a topic's name"),
        (
            "value string",
            {"topic": "t", "topik": "t"},
            "option topik is unknown to the sink: did you mean topic?",
        ),
        ("value string", {"topic": "t", "kafka.acks": "1"}, "a transaction needs acks=all"),
        (
            "value string",
            {"topic": "t", "kafka.transactional.id": "x"},
            "use transactionalIdPrefix",
        ),
        ("value string", {"topic": "t", "writeId": ""}, "option writeId='': give a unique name"),
        (
            "value string",
            {"topic": "t", "asyncProgressTrackingEnabled": "true"},
            "cannot keep exactly-once in this mode",
        ),
        (
            "value int",
            {"topic": "t"},
            "Column 'value' has the type int, but has to be string or binary: cast it.",
        ),
        ("key string", {"topic": "t"}, "There is no column 'value'"),
        ("value string, id int", {"topic": "t"}, "Column 'id' has no place in a record"),
    ],
)
def test_wrong_options_and_columns(schema: str, options: dict[str, str], says: str) -> None:
    """Spark checks the options and columns when it plans a write. A later test checks that the user
    sees the message.
    """
    from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

    from barnabas.spark_connector.source import BarnabasSource

    types = {"string": StringType(), "int": IntegerType(), "binary": BinaryType()}
    columns = StructType(
        [
            StructField(name, types[kind])
            for name, kind in (column.split() for column in schema.split(", "))
        ]
    )
    with pytest.raises(ValueError, match=re.escape(says)):
        BarnabasSource({"kafka.bootstrap.servers": "127.0.0.1:1"} | options).writer(columns, False)


def test_a_misspelled_option_and_overwrite(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    from pyspark.errors import PySparkException

    frame = spark.createDataFrame([("a",)], "value string")
    with pytest.raises(
        PySparkException, match="option topik is unknown to the sink: did you mean topic"
    ):
        write(frame, broker.bootstrap_servers, topik=topic)
    with pytest.raises(PySparkException, match="a topic only grows"):
        write(frame, broker.bootstrap_servers, topic, mode="overwrite")


def test_rows_that_cannot_be_records(spark: SparkSession, broker: LocalBroker, topic: str) -> None:
    from pyspark.errors import PySparkException

    for rows, schema, says in [
        (
            [("v", 3)],
            "value string, partition int",
            f"Column 'partition' has 3 in a row for topic '{topic}', whose partitions are 0 to 2",
        ),
        ([("v", topic), ("v", None)], "value string, topic string", "Column 'topic'"),
    ]:
        with pytest.raises(PySparkException) as caught:
            write(
                spark.createDataFrame(rows, schema),
                broker.bootstrap_servers,
                None if "topic" in schema else topic,
            )
        assert says in str(caught.value)
    assert not read_all(broker.bootstrap_servers, topic, committed=False)


def test_trigger_continuous_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test calls commit directly, since with this trigger Spark sends no rows to a Python sink,
    and only logs what commit raises.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    from barnabas.spark_connector.source import BarnabasSource

    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")  # restored at the end, since the error sets it
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    writer = BarnabasSource(options).streamWriter(
        StructType([StructField("value", StringType())]), False
    )
    with pytest.raises(SinkError, match=r"cannot guarantee exactly-once with Trigger\.Continuous"):
        writer.commit([None, None], 0)


@pytest.mark.parametrize(
    ("trigger", "options", "says"),
    [
        # Spark refuses the first two before it calls the sink.
        ({"realTime": "5 minutes"}, {}, "OPERATOR_OR_SINK_NOT_IN_ALLOWLIST"),
        (
            {"processingTime": "1 second"},
            {"asyncProgressTrackingEnabled": "true"},
            "Sink barnabas does not support async progress tracking",
        ),
        ({"availableNow": True}, {"writeId": "x"}, "option writeId is for batch writes"),
    ],
)
def test_modes_that_cannot_keep_the_promise(
    spark: SparkSession,
    broker: LocalBroker,
    topic: str,
    tmp_path: Path,
    trigger: dict[str, Any],
    options: dict[str, str],
    says: str,
) -> None:
    """Spark or the sink refuses the modes in which the sink cannot write each row exactly once."""
    from pyspark.errors import PySparkException

    rows = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", "100")
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
    )
    writer = (
        rows.writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", topic)
    )
    writer = (
        writer.option("checkpointLocation", str(tmp_path)).options(**options).trigger(**trigger)
    )

    def run() -> None:
        query = writer.start()
        try:
            assert query.awaitTermination(600), "the query runs without an error"
        finally:
            query.stop()

    with pytest.raises(PySparkException) as caught:
        run()
    assert says in str(caught.value)
    assert not read_all(broker.bootstrap_servers, topic, committed=False)


def test_a_missing_topic_and_a_broker_that_does_not_answer_are_explained(
    spark: SparkSession,
) -> None:
    from pyspark.errors import PySparkException

    frame = spark.createDataFrame([("v",)], "value string").coalesce(1)
    with LocalBroker(settings={"auto.create.topics.enable": "false"}) as own:
        name = f"missing-{uuid.uuid4().hex[:6]}"
        with pytest.raises(PySparkException, match=f"topic '{name}' does not exist"):
            write(frame, own.bootstrap_servers, name)
        create_topic(own.bootstrap_servers, "there")
        servers = own.bootstrap_servers
    with pytest.raises(PySparkException) as caught:
        write(
            frame,
            servers,
            "t",
            kafka__default__api__timeout__ms="100",
            kafka__delivery__timeout__ms="100",
        )
    assert f"no broker of {servers} answers" in str(
        caught.value
    ) or "check that one is running" in str(caught.value)


def test_spool_files_need_an_absolute_directory_that_can_be_created(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    (tmp_path / "file").write_text("")
    frame = spark.createDataFrame([("v",)], "value string").coalesce(1)
    for place, says in (
        (str(tmp_path / "file"), "cannot be created"),
        ("relative", "is relative: give an absolute path"),
    ):
        with pytest.raises(PySparkException) as caught:
            write(frame, broker.bootstrap_servers, topic, inlineBytes="0", spoolDirectory=place)
        assert says in str(caught.value)
    spool = tmp_path / "spool"
    write(
        frame,
        broker.bootstrap_servers,
        topic,
        inlineBytes="0",
        spoolDirectory=str(spool),
        writeId="named",
    )
    assert (spool / f"named@{topic}").is_dir()
    assert not list(spool.rglob("*.batches"))
    shutil.rmtree(spool)
