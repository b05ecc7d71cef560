"""The PySpark classes of the source: the data source `barnabas`, its schema, and its readers.

PySpark's classes have no types for mypy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
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

from barnabas.client.cluster_reader import ClientError, ClusterReader
from barnabas.spark_connector.arrow.encoding import EncodingError
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read.filters import Condition, Narrowing, narrow
from barnabas.spark_connector.read.offsets import (
    CUT_MARK,
    OffsetRange,
    Offsets,
    join,
    offsets_as_json,
    offsets_of_json,
    topic_ids_of_json,
)
from barnabas.spark_connector.read.open_transactions import OpenTransactionError
from barnabas.spark_connector.read.options import (
    SourceOptions,
    includes_headers,
    parse_source_options,
)
from barnabas.spark_connector.read.planning import plan
from barnabas.spark_connector.read.reading import DamageError, DataLossError, read_range
from barnabas.spark_connector.read.stream_planning import StreamPlanner
from barnabas.spark_connector.read.whole_stream_planning import WholeStreamPlanner
from barnabas.spark_connector.task_process import exempt_modules_from_collection, task_client
from barnabas.spark_connector.user_messages import errors_of_a_stream, without_traceback
from barnabas.spark_connector.write.sink import BatchWriter, StreamWriter
from barnabas.spark_connector.write.sink_options import parse_sink_options

# Errors that users can correct.
USER_ERRORS = (OptionError, ClientError, DataLossError, DamageError, OpenTransactionError)

HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)

# The schema of Spark's own Kafka source.
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
    """The data source `format("barnabas")` for read, readStream, write and writeStream."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        with without_traceback(OptionError):
            return SCHEMA_WITH_HEADERS if includes_headers(self.options) else SCHEMA

    def reader(self, schema: StructType) -> BatchReader:
        """The reader of a batch query. Raises: OptionError."""
        with without_traceback(OptionError):
            options = parse_source_options(self.options)
            return (
                FilteringBatchReader(options, schema)
                if options.push_down_filters
                else BatchReader(options, schema)
            )

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:
        """The reader of a streaming query. If the options are wrong, the result is a RefusedStream,
        which raises the error later, where Spark shows it.
        """
        try:
            return StreamReader(parse_source_options(self.options, streaming=True), schema)
        except OptionError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """The writer of a batch query. Raises: OptionError, EncodingError."""
        exempt_modules_from_collection()
        with without_traceback(OptionError, EncodingError):
            if overwrite:
                raise OptionError(
                    'mode("overwrite") is not supported: a topic only grows; use '
                    'mode("append"), or delete the topic first'
                )
            return BatchWriter(parse_sink_options(self.options, streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        exempt_modules_from_collection()
        with without_traceback(OptionError, EncodingError):
            return StreamWriter(parse_sink_options(self.options, streaming=True), schema)


class TaskPartition(InputPartition):  # type: ignore[misc]
    """The offset ranges of one task, as a partition of PySpark.

    topic_ids: the ids that the topics had when the ranges were planned, if known.
    """

    def __init__(
        self,
        offset_ranges: Sequence[OffsetRange],
        topic_ids: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Takes: offset_ranges, the offset ranges that the task reads; topic_ids, the ids of all
        topics. Only the ids of the topics in the ranges are kept.
        """
        super().__init__(tuple(offset_ranges))
        self.offset_ranges = tuple(offset_ranges)
        topics = {each.topic for each in offset_ranges}
        self.topic_ids = {topic: topic_ids[topic] for topic in topics if topic in topic_ids}


def task_partitions(
    tasks: Iterable[Sequence[OffsetRange]], topic_ids: Mapping[str, str]
) -> list[InputPartition]:
    """One partition for each task. If there are no tasks, a single partition without ranges.

    Spark turns an empty list into one task without a partition. Since every task then has a
    partition, `read` needs no special case.
    """
    return [TaskPartition(ranges, topic_ids) for ranges in tasks] or [TaskPartition(())]


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """The reader of a batch read, which plans in the driver and reads in tasks.

    Spark pickles the options and each task's offset range to send them to the task. If the user
    gives a schema (`.schema("value binary")`), only the columns of the schema are decoded.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.columns = checked_columns(schema, options.include_headers)
        self.narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        """The ranges of offsets, one for each task."""
        with without_traceback(*USER_ERRORS), ClusterReader(self.options.client) as client:
            ranges = plan(client, self.options, self.narrowing)
            topic_ids = dict(client.topic_ids)
        return task_partitions(([each] for each in ranges), topic_ids)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self.options, self.columns)


class FilteringBatchReader(BatchReader):
    """The reader of a batch read that accepts filters on topic, partition, offset and timestamp.

    It is a separate class, since Spark rejects every reader with `pushFilters` while
    spark.sql.python.filterPushdown.enabled is false.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the filters that narrow the ranges. Gives: the filters that Spark still has to
        apply.
        """
        for each in filters:
            self.narrowing, exact = narrow(self.narrowing, condition_of(each))
            if not exact:
                yield each


OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    In: "in",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    IsNotNull: "is not null",
}


def condition_of(each: Filter) -> Condition:
    """Convert the filter to a Condition, which needs no PySpark. The condition of a filter that
    cannot narrow the ranges has an empty column.
    """
    if type(each) not in OPERATORS or len(each.attribute) != 1:
        return Condition("", "", None)
    return Condition(each.attribute[0], OPERATORS[type(each)], getattr(each, "value", None))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The reader of a streaming query.

    One object, in a process of the driver, plans the batches. Its copies in the tasks only read.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.columns = checked_columns(schema, options.include_headers)
        self._planner = (
            StreamPlanner(options) if options.cuts is None else WholeStreamPlanner(options)
        )

    def _as_json(self, offsets: Offsets) -> dict[str, Any]:
        is_cut = self.options.cuts is not None
        return offsets_as_json(offsets, self._planner.topic_ids, is_cut=is_cut)

    def initialOffset(self) -> dict[str, Any]:
        with errors_of_a_stream(*USER_ERRORS):
            return self._as_json(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of a micro-batch that the options set, as Spark's ReadLimit."""
        trigger = self.options.trigger
        if trigger.max_offsets is not None:
            return ReadMaxRows(trigger.max_offsets)
        return (
            ReadAllAvailable() if trigger.min_offsets is None else ReadMinRows(trigger.min_offsets)
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch.

        Spark has no limit that is both a minimum and a maximum. The argument `limit` therefore only
        shows whether limits apply, and the limits are read from the options.
        """
        trigger = self.options.trigger
        limited = not isinstance(limit, ReadAllAvailable)
        begin = offsets_of_json(start)
        if isinstance(self._planner, WholeStreamPlanner) and CUT_MARK not in start:
            self._planner.warn_of_halves()
        with errors_of_a_stream(*USER_ERRORS):
            end = self._planner.latest(
                begin,
                topic_ids=topic_ids_of_json(start),
                max_offsets=trigger.max_offsets if limited else None,
                min_offsets=trigger.min_offsets if limited else None,
            )
        # Spark compares the offsets as text. If there are no new data, the text must therefore be
        # identical, with the ids or without them as before.
        return start if end == begin else self._as_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        newest = self._planner.newest
        return None if newest is None else offsets_as_json(newest)

    def prepareForTriggerAvailableNow(self) -> None:
        with errors_of_a_stream(*USER_ERRORS):
            self._planner.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a micro-batch, each with one or several ranges of offsets."""
        topic_ids = topic_ids_of_json(end)
        with errors_of_a_stream(*USER_ERRORS):
            ranges = self._planner.ranges(
                offsets_of_json(start), offsets_of_json(end), topic_ids=topic_ids
            )
        tasks = join(
            ranges,
            most_offsets=min(
                self.options.join_ranges_up_to,
                self.options.max_records_per_partition or self.options.join_ranges_up_to,
            ),
            least_tasks=self.options.min_partitions or 0,
        )
        return task_partitions(tasks, topic_ids)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self.options, self.columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing, since only the checkpoint stores a query's offsets."""

    def stop(self) -> None:
        self._planner.close()


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The reader of a query whose options are wrong, which raises the error on first use.

    If an error is raised while a reader is created, PySpark replaces its message by a long
    traceback.
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def _refuse(self, *_: object) -> Any:
        with errors_of_a_stream(OptionError):
            raise self._error

    initialOffset = getDefaultReadLimit = latestOffset = reportLatestOffset = (
        prepareForTriggerAvailableNow
    ) = _refuse
    partitions = read = _refuse

    def stop(self) -> None:
        """Nothing to stop."""


def read_partition(
    partition: InputPartition, options: SourceOptions, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The rows of one task's partition."""
    assert isinstance(partition, TaskPartition), f"not one of our partitions: {partition!r}"
    exempt_modules_from_collection()
    with without_traceback(*USER_ERRORS), task_client(options.client) as client:
        for offset_range in partition.offset_ranges:
            yield from read_range(
                client,
                offset_range,
                columns,
                read_committed=options.read_committed,
                fail_on_data_loss=options.fail_on_data_loss,
                open_transactions=options.open_transactions,
                decoder=options.decoder,
                topic_id=partition.topic_ids.get(offset_range.topic, ""),
            )


def checked_columns(schema: StructType, include_headers: bool) -> tuple[str, ...]:
    """The names of the schema's columns.

    Raises: OptionError for a column that the source does not have.
    """
    types = {field.name: field.dataType for field in SCHEMA_WITH_HEADERS.fields}
    for field in schema.fields:
        if field.name not in types:
            raise OptionError(f"column {field.name} is not one of the source's: {', '.join(types)}")
        if field.dataType != types[field.name]:
            raise OptionError(
                f"column {field.name} is {types[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}"
            )
        if field.name == "headers" and not include_headers:
            raise OptionError("the column headers needs the option includeHeaders=true")
    return tuple(field.name for field in schema.fields)
