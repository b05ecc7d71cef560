"""A Spark sink that writes at least once, to compare the exactly-once sink with.

`format("at-least-once")` reads options, encodes rows in the tasks and passes them to the driver as
`format("barnabas")` does. The driver writes them with plain Produce requests (acks=all), outside of
any transaction and without the batch's number, and then Spark notes the end of the batch. A crash
between the two repeats the records of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from barnabas.client.options import ClientOptions
from barnabas.protocol.checksum import crc32c
from barnabas.protocol.records import CRC_START, HEADER, HEADER_SIZE, TRANSACTIONAL
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.source import BarnabasSource
from barnabas.spark_connector.write.produce_request import StampedRecordBatch, checked_header
from barnabas.spark_connector.write.sink import StreamWriter, TaskMessage, record_batches_of
from barnabas.spark_connector.write.sink_options import parse_sink_options
from barnabas.spark_connector.write.task_transactions import BY_DRIVER
from barnabas.spark_connector.write.transactional_producer import (
    PublishSettings,
    TransactionalProducer,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

FORMAT = "at-least-once"


class PlainProducer(TransactionalProducer):
    """Sends record batches as the transactional producer does, without a transaction."""

    def __init__(self, options: ClientOptions) -> None:
        super().__init__(options, PublishSettings(), "", "")

    def write(self, record_batches: Iterable[EncodedRecordBatch]) -> None:
        """Write all record batches, and wait until they are acknowledged. Raises: ClientError."""
        self._forget_transaction()
        self._connections.close_stale()
        for record_batch in record_batches:
            self.send(record_batch)
        self._send_all_out()
        self._receive_all()

    def _stamped(self, record_batch: EncodedRecordBatch) -> StampedRecordBatch:
        """The record batch with a header that is not transactional, and a new checksum."""
        header = checked_header(record_batch)
        header = header._replace(attributes=header.attributes & ~TRANSACTIONAL)
        records = memoryview(record_batch.data)[HEADER_SIZE:]
        crc = crc32c(records, crc32c(HEADER.pack(*header)[CRC_START:]))
        name = TopicPartition(record_batch.topic, record_batch.partition)
        return StampedRecordBatch(name, HEADER.pack(*header._replace(crc=crc)), records)

    def _add_partitions(self, names: Iterable[TopicPartition]) -> None:
        """Do nothing, since there is no transaction."""


@lru_cache(1)
def _producer(options: ClientOptions) -> PlainProducer:
    """The producer of this process, whose connections stay open from batch to batch."""
    return PlainProducer(options)


class AtLeastOnceWriter(StreamWriter):
    """The writer of a streaming query, without transactions."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Write the records of a micro-batch, also if an earlier attempt has written them."""
        if any(isinstance(message, TaskMessage) and message.topics for message in messages):
            _producer(self.options.client).write(record_batches_of(messages))
            self.clean_up(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the files of a micro-batch whose tasks or commit failed."""
        self.delete_files(messages)


class AtLeastOnceSource(BarnabasSource):
    """The data source of the sink; register it with `spark.dataSource.register`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> AtLeastOnceWriter:
        options = parse_sink_options(self.options, streaming=True)
        return AtLeastOnceWriter(replace(options, sink_mode=BY_DRIVER), schema)
