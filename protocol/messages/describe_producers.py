"""DescribeProducers, API key 61: version 0, flexible from 0.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_string,
    read_numbers,
    read_string,
    read_structs,
    skip_tags,
    write_nullable_string,
    write_numbers,
    write_string,
    write_structs,
)

_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")
_INT64_INT32_2_TIMES_INT64_INT32_INT64 = struct.Struct(">qiiqiq")


class TopicRequest(Message):
    """The topics to list producers for.

    name: The topic name.
    partition_indexes: The indexes of the partitions to list producers for.
    """

    __slots__ = ("name", "partition_indexes")

    def __init__(self, name: str = "", partition_indexes: list[int] | None = None) -> None:
        self.name = name
        self.partition_indexes: list[int] = [] if partition_indexes is None else partition_indexes

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicRequest, int]:
        name, at = read_string(data, at, True)
        partition_indexes, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partition_indexes), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, True)
        write_numbers(out, self.partition_indexes, True, "i")
        out.append(0)


class DescribeProducersRequest(Message):
    """The request.

    topics: The topics to list producers for.
    """

    __slots__ = ("topics",)
    API_KEY: ClassVar[int] = 61
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics"}

    def __init__(self, topics: list[TopicRequest] | None = None) -> None:
        self.topics: list[TopicRequest] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeProducersRequest, int]:
        topics, at = read_structs(data, at, True, TopicRequest.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    row.name, [PartitionResponse(part, code) for part in row.partition_indexes]
                )
                for row in self.topics
            ]
        )


class ProducerState(Message):
    """The active producers for the partition.

    producer_id: The producer id.
    producer_epoch: The producer epoch.
    last_sequence: The last sequence number sent by the producer.
    last_timestamp: The last timestamp sent by the producer.
    coordinator_epoch: The current epoch of the producer group.
    current_txn_start_offset: The current transaction start offset of the producer.
    """

    __slots__ = (
        "coordinator_epoch",
        "current_txn_start_offset",
        "last_sequence",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int = 0,
        producer_epoch: int = 0,
        last_sequence: int = -1,
        last_timestamp: int = -1,
        coordinator_epoch: int = 0,
        current_txn_start_offset: int = -1,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.last_sequence = last_sequence
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_start_offset = current_txn_start_offset

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ProducerState, int]:
        (
            producer_id,
            producer_epoch,
            last_sequence,
            last_timestamp,
            coordinator_epoch,
            current_txn_start_offset,
        ) = _INT64_INT32_2_TIMES_INT64_INT32_INT64.unpack_from(data, at)
        at += 36
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            producer_id,
            producer_epoch,
            last_sequence,
            last_timestamp,
            coordinator_epoch,
            current_txn_start_offset,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT64_INT32_2_TIMES_INT64_INT32_INT64.pack(
            self.producer_id,
            self.producer_epoch,
            self.last_sequence,
            self.last_timestamp,
            self.coordinator_epoch,
            self.current_txn_start_offset,
        )
        out.append(0)


class PartitionResponse(Message):
    """Each partition in the response.

    partition_index: The partition index.
    error_code: The partition error code, or 0 if there was no error.
    error_message: The partition error message, which may be null if no additional details are
        available.
    active_producers: The active producers for the partition.
    """

    __slots__ = ("active_producers", "error_code", "error_message", "partition_index")

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        active_producers: list[ProducerState] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.active_producers: list[ProducerState] = (
            [] if active_producers is None else active_producers
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionResponse, int]:
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        active_producers, at = read_structs(data, at, True, ProducerState.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, error_code, error_message, active_producers), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.partition_index, self.error_code)
        write_nullable_string(out, self.error_message, True)
        write_structs(out, self.active_producers, True, version)
        out.append(0)


class TopicResponse(Message):
    """Each topic in the response.

    name: The topic name.
    partitions: Each partition in the response.
    """

    __slots__ = ("name", "partitions")

    def __init__(self, name: str = "", partitions: list[PartitionResponse] | None = None) -> None:
        self.name = name
        self.partitions: list[PartitionResponse] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicResponse, int]:
        name, at = read_string(data, at, True)
        partitions, at = read_structs(data, at, True, PartitionResponse.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, True)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class DescribeProducersResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    topics: Each topic in the response.
    """

    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int] = 61
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self, throttle_time_ms: int = 0, topics: list[TopicResponse] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[TopicResponse] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeProducersResponse, int]:
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        topics, at = read_structs(data, at, True, TopicResponse.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, topics), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.topics, True, version)
        out.append(0)
