"""PySpark's view of the reader: the data source `barnabas`, its schema, and the batch reader. (PySpark's classes are untyped for mypy.)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_connector.client import Client
from spark_connector.offsets import OffsetRange
from spark_connector.options import OptionError, SourceOptions, includes_headers, parse_source_options
from spark_connector.planning import plan
from spark_connector.reading import read_range

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS = StructField("headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])))

# As of Spark's own Kafka source.
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
SCHEMA_WITH_HEADERS = StructType([*SCHEMA.fields, HEADERS])


class BarnabasSource(DataSource):  # type: ignore[misc]
    """`spark.read.format("barnabas")`."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        return SCHEMA_WITH_HEADERS if includes_headers(self.options) else SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(parse_source_options(self.options), schema)


class RangePartition(InputPartition):  # type: ignore[misc]
    """One task's work."""

    def __init__(self, wanted: OffsetRange | None) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Plans in the driver, reads in tasks; what travels between them is the options and one offset range per task.

    A schema that the user gave (`.schema("value binary")`) chooses columns: what is not in it is not decoded.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.columns = checked_columns(schema, options.include_headers)

    def partitions(self) -> list[InputPartition]:
        with Client(self.options.client) as client:
            ranges = plan(client, self.options)
        # Spark turns an empty list into one task without work; saying so ourselves keeps that out of `read`'s guesses.
        return [RangePartition(each) for each in ranges] or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition), f"not one of our partitions: {partition!r}"
        if partition.wanted is None:
            return
        with Client(self.options.client) as client:
            yield from read_range(
                client,
                partition.wanted,
                self.columns,
                read_committed=self.options.read_committed,
                fail_on_data_loss=self.options.fail_on_data_loss,
            )


def checked_columns(schema: StructType, include_headers: bool) -> tuple[str, ...]:
    """The names of the schema's columns. Raises OptionError where one is not of the source's."""
    types = {field.name: field.dataType for field in SCHEMA_WITH_HEADERS.fields}
    for field in schema.fields:
        if field.name not in types:
            raise OptionError(f"column {field.name} is not one of the source's: {', '.join(types)}")
        if field.dataType != types[field.name]:
            raise OptionError(f"column {field.name} is {types[field.name].simpleString()}, not {field.dataType.simpleString()}")
        if field.name == "headers" and not include_headers:
            raise OptionError("the column headers needs the option includeHeaders=true")
    return tuple(field.name for field in schema.fields)
