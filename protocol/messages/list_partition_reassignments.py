"""ListPartitionReassignments, API key 46: version 0, flexible from 0.

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
    read_nullable_structs,
    read_numbers,
    read_string,
    read_structs,
    skip_tags,
    write_nullable_string,
    write_nullable_structs,
    write_numbers,
    write_string,
    write_structs,
)

_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")


class ListPartitionReassignmentsTopics(Message):
    """The topics to list partition reassignments for, or null to list everything.

    name: The topic name.
    partition_indexes: The partitions to list partition reassignments for.
    """

    __slots__ = ("name", "partition_indexes")

    def __init__(self, name: str = "", partition_indexes: list[int] | None = None) -> None:
        self.name = name
        self.partition_indexes: list[int] = [] if partition_indexes is None else partition_indexes

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[ListPartitionReassignmentsTopics, int]:
        name, at = read_string(data, at, True)
        partition_indexes, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partition_indexes), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, True)
        write_numbers(out, self.partition_indexes, True, "i")
        out.append(0)


class ListPartitionReassignmentsRequest(Message):
    """The request.

    timeout_ms: The time in ms to wait for the request to complete.
    topics: The topics to list partition reassignments for, or null to list everything.
    """

    __slots__ = ("timeout_ms", "topics")
    API_KEY: ClassVar[int] = 46
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self, timeout_ms: int = 60000, topics: list[ListPartitionReassignmentsTopics] | None = None
    ) -> None:
        self.timeout_ms = timeout_ms
        self.topics = topics

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[ListPartitionReassignmentsRequest, int]:
        (timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        topics, at = read_nullable_structs(
            data, at, True, ListPartitionReassignmentsTopics.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(timeout_ms, topics), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.timeout_ms)
        write_nullable_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> ListPartitionReassignmentsResponse:
        return ListPartitionReassignmentsResponse(error_code=code, error_message=None)


class OngoingPartitionReassignment(Message):
    """The ongoing reassignments for each partition.

    partition_index: The index of the partition.
    replicas: The current replica set.
    adding_replicas: The set of replicas we are currently adding.
    removing_replicas: The set of replicas we are currently removing.
    """

    __slots__ = ("adding_replicas", "partition_index", "removing_replicas", "replicas")

    def __init__(
        self,
        partition_index: int = 0,
        replicas: list[int] | None = None,
        adding_replicas: list[int] | None = None,
        removing_replicas: list[int] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.replicas: list[int] = [] if replicas is None else replicas
        self.adding_replicas: list[int] = [] if adding_replicas is None else adding_replicas
        self.removing_replicas: list[int] = [] if removing_replicas is None else removing_replicas

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OngoingPartitionReassignment, int]:
        (partition_index,) = _INT32.unpack_from(data, at)
        at += 4
        replicas, at = read_numbers(data, at, True, "i")
        adding_replicas, at = read_numbers(data, at, True, "i")
        removing_replicas, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, replicas, adding_replicas, removing_replicas), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.partition_index)
        write_numbers(out, self.replicas, True, "i")
        write_numbers(out, self.adding_replicas, True, "i")
        write_numbers(out, self.removing_replicas, True, "i")
        out.append(0)


class OngoingTopicReassignment(Message):
    """The ongoing reassignments for each topic.

    name: The topic name.
    partitions: The ongoing reassignments for each partition.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[OngoingPartitionReassignment] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[OngoingPartitionReassignment] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OngoingTopicReassignment, int]:
        name, at = read_string(data, at, True)
        partitions, at = read_structs(data, at, True, OngoingPartitionReassignment.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, True)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class ListPartitionReassignmentsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code: The top-level error code, or 0 if there was no error.
    error_message: The top-level error message, or null if there was no error.
    topics: The ongoing reassignments for each topic.
    """

    __slots__ = ("error_code", "error_message", "throttle_time_ms", "topics")
    API_KEY: ClassVar[int] = 46
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        topics: list[OngoingTopicReassignment] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.topics: list[OngoingTopicReassignment] = [] if topics is None else topics

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[ListPartitionReassignmentsResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        topics, at = read_structs(data, at, True, OngoingTopicReassignment.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, error_message, topics), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, True)
        write_structs(out, self.topics, True, version)
        out.append(0)
