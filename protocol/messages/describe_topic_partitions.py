"""DescribeTopicPartitions, API key 75: version 0, flexible from 0.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
import uuid
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_numbers,
    read_nullable_string,
    read_nullable_struct,
    read_numbers,
    read_string,
    read_structs,
    read_uuid,
    skip_tags,
    write_nullable_numbers,
    write_nullable_string,
    write_nullable_struct,
    write_numbers,
    write_string,
    write_structs,
    write_uuid,
)

_BOOL = struct.Struct(">?")
_INT16 = struct.Struct(">h")
_INT16_INT32_3_TIMES = struct.Struct(">hiii")
_INT32 = struct.Struct(">i")


class TopicRequest(Message):
    """The topics to fetch details for.

    name: The topic name.
    """

    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name = name

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicRequest, int]:
        name, at = read_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, True)
        out.append(0)


class Cursor(Message):
    """The first topic and partition index to fetch details for.

    topic_name: The name for the first topic to process.
    partition_index: The partition index to start with.
    """

    __slots__ = ("partition_index", "topic_name")

    def __init__(self, topic_name: str = "", partition_index: int = 0) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Cursor, int]:
        topic_name, at = read_string(data, at, True)
        (partition_index,) = _INT32.unpack_from(data, at)
        at += 4
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_name, partition_index), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.topic_name, True)
        out += _INT32.pack(self.partition_index)
        out.append(0)


class DescribeTopicPartitionsRequest(Message):
    """The request.

    topics: The topics to fetch details for.
    response_partition_limit: The maximum number of partitions included in the response.
    cursor: The first topic and partition index to fetch details for.
    """

    __slots__ = ("cursor", "response_partition_limit", "topics")
    API_KEY: ClassVar[int] = 75
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics"}

    def __init__(
        self,
        topics: list[TopicRequest] | None = None,
        response_partition_limit: int = 2000,
        cursor: Cursor | None = None,
    ) -> None:
        self.topics: list[TopicRequest] = [] if topics is None else topics
        self.response_partition_limit = response_partition_limit
        self.cursor = cursor

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeTopicPartitionsRequest, int]:
        topics, at = read_structs(data, at, True, TopicRequest.read, version)
        (response_partition_limit,) = _INT32.unpack_from(data, at)
        at += 4
        cursor, at = read_nullable_struct(data, at, Cursor.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topics, response_partition_limit, cursor), at

    def write(self, out: bytearray, version: int) -> None:
        write_structs(out, self.topics, True, version)
        out += _INT32.pack(self.response_partition_limit)
        write_nullable_struct(out, self.cursor, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeTopicPartitionsResponse:
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(code, row.name) for row in self.topics]
        )


class DescribeTopicPartitionsResponsePartition(Message):
    """Each partition in the topic.

    error_code: The partition error, or 0 if there was no error.
    partition_index: The partition index.
    leader_id: The ID of the leader broker.
    leader_epoch: The leader epoch of this partition.
    replica_nodes: The set of all nodes that host this partition.
    isr_nodes: The set of nodes that are in sync with the leader for this partition.
    eligible_leader_replicas: The new eligible leader replicas otherwise.
    last_known_elr: The last known ELR.
    offline_replicas: The set of offline replicas of this partition.
    """

    __slots__ = (
        "eligible_leader_replicas",
        "error_code",
        "isr_nodes",
        "last_known_elr",
        "leader_epoch",
        "leader_id",
        "offline_replicas",
        "partition_index",
        "replica_nodes",
    )

    def __init__(
        self,
        error_code: int = 0,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = -1,
        replica_nodes: list[int] | None = None,
        isr_nodes: list[int] | None = None,
        eligible_leader_replicas: list[int] | None = None,
        last_known_elr: list[int] | None = None,
        offline_replicas: list[int] | None = None,
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.replica_nodes: list[int] = [] if replica_nodes is None else replica_nodes
        self.isr_nodes: list[int] = [] if isr_nodes is None else isr_nodes
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr
        self.offline_replicas: list[int] = [] if offline_replicas is None else offline_replicas

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeTopicPartitionsResponsePartition, int]:
        error_code, partition_index, leader_id, leader_epoch = _INT16_INT32_3_TIMES.unpack_from(
            data, at
        )
        at += 14
        replica_nodes, at = read_numbers(data, at, True, "i")
        isr_nodes, at = read_numbers(data, at, True, "i")
        eligible_leader_replicas, at = read_nullable_numbers(data, at, True, "i")
        last_known_elr, at = read_nullable_numbers(data, at, True, "i")
        offline_replicas, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            error_code,
            partition_index,
            leader_id,
            leader_epoch,
            replica_nodes,
            isr_nodes,
            eligible_leader_replicas,
            last_known_elr,
            offline_replicas,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT16_INT32_3_TIMES.pack(
            self.error_code, self.partition_index, self.leader_id, self.leader_epoch
        )
        write_numbers(out, self.replica_nodes, True, "i")
        write_numbers(out, self.isr_nodes, True, "i")
        write_nullable_numbers(out, self.eligible_leader_replicas, True, "i")
        write_nullable_numbers(out, self.last_known_elr, True, "i")
        write_numbers(out, self.offline_replicas, True, "i")
        out.append(0)


class DescribeTopicPartitionsResponseTopic(Message):
    """Each topic in the response.

    error_code: The topic error, or 0 if there was no error.
    name: The topic name.
    topic_id: The topic id.
    is_internal: True if the topic is internal.
    partitions: Each partition in the topic.
    topic_authorized_operations: 32-bit bitfield to represent authorized operations for this
        topic.
    """

    __slots__ = (
        "error_code",
        "is_internal",
        "name",
        "partitions",
        "topic_authorized_operations",
        "topic_id",
    )

    def __init__(
        self,
        error_code: int = 0,
        name: str | None = "",
        topic_id: uuid.UUID | None = None,
        is_internal: bool = False,
        partitions: list[DescribeTopicPartitionsResponsePartition] | None = None,
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions: list[DescribeTopicPartitionsResponsePartition] = (
            [] if partitions is None else partitions
        )
        self.topic_authorized_operations = topic_authorized_operations

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeTopicPartitionsResponseTopic, int]:
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        name, at = read_nullable_string(data, at, True)
        topic_id, at = read_uuid(data, at)
        (is_internal,) = _BOOL.unpack_from(data, at)
        at += 1
        partitions, at = read_structs(
            data, at, True, DescribeTopicPartitionsResponsePartition.read, version
        )
        (topic_authorized_operations,) = _INT32.unpack_from(data, at)
        at += 4
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            error_code, name, topic_id, is_internal, partitions, topic_authorized_operations
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.name, True)
        write_uuid(out, self.topic_id)
        out += _BOOL.pack(self.is_internal)
        write_structs(out, self.partitions, True, version)
        out += _INT32.pack(self.topic_authorized_operations)
        out.append(0)


class DescribeTopicPartitionsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    topics: Each topic in the response.
    next_cursor: The next topic and partition index to fetch details for.
    """

    __slots__ = ("next_cursor", "throttle_time_ms", "topics")
    API_KEY: ClassVar[int] = 75
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[DescribeTopicPartitionsResponseTopic] | None = None,
        next_cursor: Cursor | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[DescribeTopicPartitionsResponseTopic] = [] if topics is None else topics
        self.next_cursor = next_cursor

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeTopicPartitionsResponse, int]:
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        topics, at = read_structs(
            data, at, True, DescribeTopicPartitionsResponseTopic.read, version
        )
        next_cursor, at = read_nullable_struct(data, at, Cursor.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, topics, next_cursor), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.topics, True, version)
        write_nullable_struct(out, self.next_cursor, version)
        out.append(0)
