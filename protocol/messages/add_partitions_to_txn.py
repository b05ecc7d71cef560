"""AddPartitionsToTxn, API key 24: versions 0 to 5, flexible from 3.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_numbers,
    read_string,
    read_structs,
    refuse_value,
    skip_tags,
    write_numbers,
    write_string,
    write_structs,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")
_INT64_INT16 = struct.Struct(">qh")
_INT64_INT16_BOOL = struct.Struct(">qh?")


class AddPartitionsToTxnTopic(Message):
    """The partitions to add to the transaction.

    name: The name of the topic.
    partitions: The partition indexes to add to the transaction.
    """

    __slots__ = ("name", "partitions")

    def __init__(self, name: str = "", partitions: list[int] | None = None) -> None:
        self.name = name
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AddPartitionsToTxnTopic, int]:
        compact = version >= 3
        name, at = read_string(data, at, compact)
        partitions, at = read_numbers(data, at, compact, "i")
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        write_string(out, self.name, compact)
        write_numbers(out, self.partitions, compact, "i")
        if compact:
            out.append(0)


class AddPartitionsToTxnTransaction(Message):
    """List of transactions to add partitions to.

    transactional_id (from version 4): The transactional id corresponding to the transaction.
    producer_id (from version 4): Current producer id in use by the transactional id.
    producer_epoch (from version 4): Current epoch associated with the producer id.
    verify_only (from version 4): Boolean to signify if we want to check if the partition is in
        the transaction rather than add it.
    topics (from version 4): The partitions to add to the transaction.
    """

    __slots__ = ("producer_epoch", "producer_id", "topics", "transactional_id", "verify_only")

    def __init__(
        self,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        verify_only: bool = False,
        topics: list[AddPartitionsToTxnTopic] | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.verify_only = verify_only
        self.topics: list[AddPartitionsToTxnTopic] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AddPartitionsToTxnTransaction, int]:
        compact = version >= 3
        transactional_id = ""
        producer_id = 0
        producer_epoch = 0
        verify_only = False
        topics: list[AddPartitionsToTxnTopic] = []
        if version >= 4:
            transactional_id, at = read_string(data, at, compact)
            producer_id, producer_epoch, verify_only = _INT64_INT16_BOOL.unpack_from(data, at)
            at += 11
            topics, at = read_structs(data, at, compact, AddPartitionsToTxnTopic.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(transactional_id, producer_id, producer_epoch, verify_only, topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        if version >= 4:
            write_string(out, self.transactional_id, compact)
            out += _INT64_INT16_BOOL.pack(self.producer_id, self.producer_epoch, self.verify_only)
            write_structs(out, self.topics, compact, version)
        elif self.transactional_id != "":
            refuse_value("transactional_id", version)
        elif self.producer_id != 0:
            refuse_value("producer_id", version)
        elif self.producer_epoch != 0:
            refuse_value("producer_epoch", version)
        elif self.verify_only:
            refuse_value("verify_only", version)
        elif self.topics != []:
            refuse_value("topics", version)
        if compact:
            out.append(0)


class AddPartitionsToTxnRequest(Message):
    """The request.

    transactions (from version 4): List of transactions to add partitions to.
    v3_and_below_transactional_id (versions 0 to 3): The transactional id corresponding to the
        transaction.
    v3_and_below_producer_id (versions 0 to 3): Current producer id in use by the transactional
        id.
    v3_and_below_producer_epoch (versions 0 to 3): Current epoch associated with the producer
        id.
    v3_and_below_topics (versions 0 to 3): The partitions to add to the transaction.
    """

    __slots__ = (
        "transactions",
        "v3_and_below_producer_epoch",
        "v3_and_below_producer_id",
        "v3_and_below_topics",
        "v3_and_below_transactional_id",
    )
    API_KEY: ClassVar[int] = 24
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3
    ROWS: ClassVar[dict[str, str]] = {
        "v3_and_below_topics": "results_by_topic_v3_and_below",
        "transactions": "results_by_transaction",
    }

    def __init__(
        self,
        transactions: list[AddPartitionsToTxnTransaction] | None = None,
        v3_and_below_transactional_id: str = "",
        v3_and_below_producer_id: int = 0,
        v3_and_below_producer_epoch: int = 0,
        v3_and_below_topics: list[AddPartitionsToTxnTopic] | None = None,
    ) -> None:
        self.transactions: list[AddPartitionsToTxnTransaction] = (
            [] if transactions is None else transactions
        )
        self.v3_and_below_transactional_id = v3_and_below_transactional_id
        self.v3_and_below_producer_id = v3_and_below_producer_id
        self.v3_and_below_producer_epoch = v3_and_below_producer_epoch
        self.v3_and_below_topics: list[AddPartitionsToTxnTopic] = (
            [] if v3_and_below_topics is None else v3_and_below_topics
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AddPartitionsToTxnRequest, int]:
        compact = version >= 3
        transactions: list[AddPartitionsToTxnTransaction] = []
        if version >= 4:
            transactions, at = read_structs(
                data, at, compact, AddPartitionsToTxnTransaction.read, version
            )
        v3_and_below_transactional_id = ""
        v3_and_below_producer_id = 0
        v3_and_below_producer_epoch = 0
        v3_and_below_topics: list[AddPartitionsToTxnTopic] = []
        if version <= 3:
            v3_and_below_transactional_id, at = read_string(data, at, compact)
            v3_and_below_producer_id, v3_and_below_producer_epoch = _INT64_INT16.unpack_from(
                data, at
            )
            at += 10
            v3_and_below_topics, at = read_structs(
                data, at, compact, AddPartitionsToTxnTopic.read, version
            )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            transactions,
            v3_and_below_transactional_id,
            v3_and_below_producer_id,
            v3_and_below_producer_epoch,
            v3_and_below_topics,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        if version >= 4:
            write_structs(out, self.transactions, compact, version)
        elif self.transactions != []:
            refuse_value("transactions", version)
        if version <= 3:
            write_string(out, self.v3_and_below_transactional_id, compact)
            out += _INT64_INT16.pack(
                self.v3_and_below_producer_id, self.v3_and_below_producer_epoch
            )
            write_structs(out, self.v3_and_below_topics, compact, version)
        elif self.v3_and_below_transactional_id != "":
            refuse_value("v3_and_below_transactional_id", version)
        elif self.v3_and_below_producer_id != 0:
            refuse_value("v3_and_below_producer_id", version)
        elif self.v3_and_below_producer_epoch != 0:
            refuse_value("v3_and_below_producer_epoch", version)
        elif self.v3_and_below_topics != []:
            refuse_value("v3_and_below_topics", version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> AddPartitionsToTxnResponse:
        if version <= 3:
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    AddPartitionsToTxnTopicResult(
                        row.name,
                        [AddPartitionsToTxnPartitionResult(part, code) for part in row.partitions],
                    )
                    for row in self.v3_and_below_topics
                ]
            )
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    row.transactional_id,
                    [
                        AddPartitionsToTxnTopicResult(
                            part.name,
                            [
                                AddPartitionsToTxnPartitionResult(item, code)
                                for item in part.partitions
                            ],
                        )
                        for part in row.topics
                    ],
                )
                for row in self.transactions
            ]
        )


class AddPartitionsToTxnPartitionResult(Message):
    """The results for each partition.

    partition_index: The partition indexes.
    partition_error_code: The response error code.
    """

    __slots__ = ("partition_error_code", "partition_index")

    def __init__(self, partition_index: int = 0, partition_error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.partition_error_code = partition_error_code

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[AddPartitionsToTxnPartitionResult, int]:
        compact = version >= 3
        partition_index, partition_error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, partition_error_code), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        out += _INT32_INT16.pack(self.partition_index, self.partition_error_code)
        if compact:
            out.append(0)


class AddPartitionsToTxnTopicResult(Message):
    """The results for each topic.

    name: The topic name.
    results_by_partition: The results for each partition.
    """

    __slots__ = ("name", "results_by_partition")

    def __init__(
        self,
        name: str = "",
        results_by_partition: list[AddPartitionsToTxnPartitionResult] | None = None,
    ) -> None:
        self.name = name
        self.results_by_partition: list[AddPartitionsToTxnPartitionResult] = (
            [] if results_by_partition is None else results_by_partition
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AddPartitionsToTxnTopicResult, int]:
        compact = version >= 3
        name, at = read_string(data, at, compact)
        results_by_partition, at = read_structs(
            data, at, compact, AddPartitionsToTxnPartitionResult.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, results_by_partition), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        write_string(out, self.name, compact)
        write_structs(out, self.results_by_partition, compact, version)
        if compact:
            out.append(0)


class AddPartitionsToTxnResult(Message):
    """Results categorized by transactional ID.

    transactional_id (from version 4): The transactional id corresponding to the transaction.
    topic_results (from version 4): The results for each topic.
    """

    __slots__ = ("topic_results", "transactional_id")

    def __init__(
        self,
        transactional_id: str = "",
        topic_results: list[AddPartitionsToTxnTopicResult] | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.topic_results: list[AddPartitionsToTxnTopicResult] = (
            [] if topic_results is None else topic_results
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AddPartitionsToTxnResult, int]:
        compact = version >= 3
        transactional_id = ""
        topic_results: list[AddPartitionsToTxnTopicResult] = []
        if version >= 4:
            transactional_id, at = read_string(data, at, compact)
            topic_results, at = read_structs(
                data, at, compact, AddPartitionsToTxnTopicResult.read, version
            )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(transactional_id, topic_results), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        if version >= 4:
            write_string(out, self.transactional_id, compact)
            write_structs(out, self.topic_results, compact, version)
        elif self.transactional_id != "":
            refuse_value("transactional_id", version)
        elif self.topic_results != []:
            refuse_value("topic_results", version)
        if compact:
            out.append(0)


class AddPartitionsToTxnResponse(Message):
    """The response.

    throttle_time_ms: Duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code (from version 4): The response top level error code.
    results_by_transaction (from version 4): Results categorized by transactional ID.
    results_by_topic_v3_and_below (versions 0 to 3): The results for each topic.
    """

    __slots__ = (
        "error_code",
        "results_by_topic_v3_and_below",
        "results_by_transaction",
        "throttle_time_ms",
    )
    API_KEY: ClassVar[int] = 24
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results_by_transaction: list[AddPartitionsToTxnResult] | None = None,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.results_by_transaction: list[AddPartitionsToTxnResult] = (
            [] if results_by_transaction is None else results_by_transaction
        )
        self.results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = (
            [] if results_by_topic_v3_and_below is None else results_by_topic_v3_and_below
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AddPartitionsToTxnResponse, int]:
        compact = version >= 3
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        error_code = 0
        results_by_transaction: list[AddPartitionsToTxnResult] = []
        if version >= 4:
            (error_code,) = _INT16.unpack_from(data, at)
            at += 2
            results_by_transaction, at = read_structs(
                data, at, compact, AddPartitionsToTxnResult.read, version
            )
        results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = []
        if version <= 3:
            results_by_topic_v3_and_below, at = read_structs(
                data, at, compact, AddPartitionsToTxnTopicResult.read, version
            )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            throttle_time_ms, error_code, results_by_transaction, results_by_topic_v3_and_below
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        out += _INT32.pack(self.throttle_time_ms)
        if version >= 4:
            out += _INT16.pack(self.error_code)
            write_structs(out, self.results_by_transaction, compact, version)
        elif self.results_by_transaction != []:
            refuse_value("results_by_transaction", version)
        if version <= 3:
            write_structs(out, self.results_by_topic_v3_and_below, compact, version)
        elif self.results_by_topic_v3_and_below != []:
            refuse_value("results_by_topic_v3_and_below", version)
        if compact:
            out.append(0)
