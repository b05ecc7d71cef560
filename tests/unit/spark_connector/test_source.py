"""PySpark's classes of the source, without a session: schemas, filters, invalid options."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    In,
    IsNotNull,
    StringContains,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read.filters import Condition
from barnabas.spark_connector.read.offsets import OffsetRange
from barnabas.spark_connector.source import (
    SCHEMA,
    SCHEMA_WITH_HEADERS,
    BarnabasSource,
    FilteringBatchReader,
    RefusedStream,
    StreamReader,
    TaskPartition,
    checked_columns,
    condition_of,
    read_partition,
)

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    """Source: Spark's "Structured Streaming + Kafka Integration Guide"."""
    assert SCHEMA.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    assert BarnabasSource(OPTIONS).schema() == SCHEMA
    assert BarnabasSource({**OPTIONS, "includeHeaders": "true"}).schema() == SCHEMA_WITH_HEADERS
    assert SCHEMA_WITH_HEADERS["headers"].dataType.simpleString() == (
        "array<struct<key:string,value:binary>>"
    )


def test_a_given_schema_selects_columns() -> None:
    given = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
    assert checked_columns(given, include_headers=False) == ("offset", "value")
    assert BarnabasSource(OPTIONS).reader(given).columns == ("offset", "value")


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (StructField("values", BinaryType()), "column values is not one of the source's: key, "),
        (StructField("offset", IntegerType()), "column offset is bigint, not int"),
        (SCHEMA_WITH_HEADERS["headers"], "headers needs the option includeHeaders=true"),
    ],
)
def test_columns_that_the_source_does_not_have(field: StructField, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        checked_columns(StructType([field]), include_headers=False)


def test_sparks_filters_become_conditions() -> None:
    assert condition_of(EqualTo(("topic",), "t")) == Condition("topic", "=", "t")
    assert condition_of(GreaterThan(("offset",), 5)) == Condition("offset", ">", 5)
    assert condition_of(In(("partition",), (1, 2))) == Condition("partition", "in", (1, 2))
    assert condition_of(IsNotNull(("offset",))) == Condition("offset", "is not null", None)
    nothing = Condition("", "", None)
    assert condition_of(StringContains(("topic",), "t")) == nothing
    assert condition_of(EqualTo(("headers", "key"), "k")) == nothing


def test_only_a_reader_with_the_option_push_down_filters_accepts_filters() -> None:
    """If a reader has `pushFilters` while Spark does not push filters, Spark raises an error."""
    plain = type(BarnabasSource(OPTIONS).reader(SCHEMA))
    assert plain.pushFilters is DataSourceReader.pushFilters, "it has none of its own"
    reader = BarnabasSource({**OPTIONS, "pushDownFilters": "true"}).reader(SCHEMA)
    assert isinstance(reader, FilteringBatchReader)
    left = [GreaterThan(("timestampType",), 0)]
    assert list(reader.pushFilters([EqualTo(("topic",), "u"), *left])) == left
    assert reader.narrowing.topics == frozenset({"u"})


def test_invalid_options_of_a_stream_are_raised_by_its_first_method() -> None:
    stream = BarnabasSource({**OPTIONS, "startingOffset": "earliest"}).streamReader(SCHEMA)
    assert isinstance(stream, RefusedStream)
    stream.stop()
    for question in (stream.initialOffset, stream.getDefaultReadLimit):
        with pytest.raises(OptionError, match="did you mean startingOffsets"):
            question()
    assert isinstance(BarnabasSource(OPTIONS).streamReader(SCHEMA), StreamReader)


def test_a_partition_without_a_range_has_no_rows() -> None:
    reader = BarnabasSource(OPTIONS).reader(SCHEMA)
    assert list(read_partition(TaskPartition(()), reader.options, reader.columns)) == []


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(OptionError, match=r'mode\("overwrite"\) is not supported'):
        BarnabasSource(OPTIONS).writer(SCHEMA, overwrite=True)


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, [[0, 1, 2], [3]]),
        ({"joinRangesUpTo": "0"}, [[0], [1], [2], [3]]),
        ({"minPartitions": "4"}, [[0], [1], [2], [3]]),
        ({"maxRecordsPerPartition": "2"}, [[0, 1], [2], [3]]),
    ],
)
def test_small_ranges_of_a_stream_are_read_by_one_task(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], tasks: list[list[int]]
) -> None:
    stream = BarnabasSource({**OPTIONS, **options}).streamReader(SCHEMA)
    assert isinstance(stream, StreamReader)
    sizes = [1, 1, 1, 5000]
    ranges = [OffsetRange("t", number, 0, size) for number, size in enumerate(sizes)]
    monkeypatch.setattr(stream._planner, "ranges", lambda *_, **__: ranges)
    found = stream.partitions({}, {"t": {"0": 1}, "t#an-id": {}})
    assert [[each.partition for each in task.offset_ranges] for task in found] == tasks
    assert all(task.topic_ids == {"t": "an-id"} for task in found)
