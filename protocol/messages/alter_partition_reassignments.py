"""AlterPartitionReassignments, API key 45: versions 0 to 1, flexible from 0.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_numbers,
    read_nullable_string,
    read_string,
    read_structs,
    refuse_value,
    skip_tags,
    write_nullable_numbers,
    write_nullable_string,
    write_string,
    write_structs,
)

_BOOL = struct.Struct(">?")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")


class ReassignablePartition(Message):
    """The partitions to reassign.

    partition_index: The partition index.
    replicas: The replicas to place the partitions on, or null to cancel a pending reassignment
        for this partition.
    """

    __slots__ = ("partition_index", "replicas")

    def __init__(self, partition_index: int = 0, replicas: list[int] | None = None) -> None:
        self.partition_index = partition_index
        self.replicas = replicas

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReassignablePartition, int]:
        (partition_index,) = _INT32.unpack_from(data, at)
        at += 4
        replicas, at = read_nullable_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, replicas), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.partition_index)
        write_nullable_numbers(out, self.replicas, True, "i")
        out.append(0)


class ReassignableTopic(Message):
    """The topics to reassign.

    name: The topic name.
    partitions: The partitions to reassign.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[ReassignablePartition] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[ReassignablePartition] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReassignableTopic, int]:
        name, at = read_string(data, at, True)
        partitions, at = read_structs(data, at, True, ReassignablePartition.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, True)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class AlterPartitionReassignmentsRequest(Message):
    """The request.

    timeout_ms: The time in ms to wait for the request to complete.
    allow_replication_factor_change (version 1): The option indicating whether changing the
        replication factor of any given partition as part of this request is a valid move.
    topics: The topics to reassign.
    """

    __slots__ = ("allow_replication_factor_change", "timeout_ms", "topics")
    API_KEY: ClassVar[int] = 45
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"topics": "responses"}

    def __init__(
        self,
        timeout_ms: int = 60000,
        allow_replication_factor_change: bool = True,
        topics: list[ReassignableTopic] | None = None,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.allow_replication_factor_change = allow_replication_factor_change
        self.topics: list[ReassignableTopic] = [] if topics is None else topics

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[AlterPartitionReassignmentsRequest, int]:
        (timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        allow_replication_factor_change = True
        if version >= 1:
            (allow_replication_factor_change,) = _BOOL.unpack_from(data, at)
            at += 1
        topics, at = read_structs(data, at, True, ReassignableTopic.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(timeout_ms, allow_replication_factor_change, topics), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.timeout_ms)
        if version >= 1:
            out += _BOOL.pack(self.allow_replication_factor_change)
        elif not self.allow_replication_factor_change:
            refuse_value("allow_replication_factor_change", version)
        write_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> AlterPartitionReassignmentsResponse:
        return AlterPartitionReassignmentsResponse(
            error_code=code,
            responses=[
                ReassignableTopicResponse(
                    row.name,
                    [
                        ReassignablePartitionResponse(part.partition_index, code, None)
                        for part in row.partitions
                    ],
                )
                for row in self.topics
            ],
            error_message=None,
        )


class ReassignablePartitionResponse(Message):
    """The responses to partitions to reassign.

    partition_index: The partition index.
    error_code: The error code for this partition, or 0 if there was no error.
    error_message: The error message for this partition, or null if there was no error.
    """

    __slots__ = ("error_code", "error_message", "partition_index")

    def __init__(
        self, partition_index: int = 0, error_code: int = 0, error_message: str | None = ""
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReassignablePartitionResponse, int]:
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.partition_index, self.error_code)
        write_nullable_string(out, self.error_message, True)
        out.append(0)


class ReassignableTopicResponse(Message):
    """The responses to topics to reassign.

    name: The topic name.
    partitions: The responses to partitions to reassign.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[ReassignablePartitionResponse] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[ReassignablePartitionResponse] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReassignableTopicResponse, int]:
        name, at = read_string(data, at, True)
        partitions, at = read_structs(data, at, True, ReassignablePartitionResponse.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, True)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class AlterPartitionReassignmentsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    allow_replication_factor_change (version 1): The option indicating whether changing the
        replication factor of any given partition as part of the request was allowed.
    error_code: The top-level error code, or 0 if there was no error.
    error_message: The top-level error message, or null if there was no error.
    responses: The responses to topics to reassign.
    """

    __slots__ = (
        "allow_replication_factor_change",
        "error_code",
        "error_message",
        "responses",
        "throttle_time_ms",
    )
    API_KEY: ClassVar[int] = 45
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        allow_replication_factor_change: bool = True,
        error_code: int = 0,
        error_message: str | None = "",
        responses: list[ReassignableTopicResponse] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.allow_replication_factor_change = allow_replication_factor_change
        self.error_code = error_code
        self.error_message = error_message
        self.responses: list[ReassignableTopicResponse] = [] if responses is None else responses

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[AlterPartitionReassignmentsResponse, int]:
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        allow_replication_factor_change = True
        if version >= 1:
            (allow_replication_factor_change,) = _BOOL.unpack_from(data, at)
            at += 1
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, True)
        responses, at = read_structs(data, at, True, ReassignableTopicResponse.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            throttle_time_ms, allow_replication_factor_change, error_code, error_message, responses
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.throttle_time_ms)
        if version >= 1:
            out += _BOOL.pack(self.allow_replication_factor_change)
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, True)
        write_structs(out, self.responses, True, version)
        out.append(0)
