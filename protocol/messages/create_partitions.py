"""CreatePartitions, API key 37: versions 0 to 3, flexible from 2.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import NOTHING, Message
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

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_BOOL = struct.Struct(">i?")


class CreatePartitionsAssignment(Message):
    """The new partition assignments.

    broker_ids: The assigned broker IDs.
    """

    __slots__ = ("broker_ids",)

    def __init__(self, broker_ids: list[int] | None = None) -> None:
        self.broker_ids: list[int] = [] if broker_ids is None else broker_ids

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreatePartitionsAssignment, int]:
        compact = version >= 2
        broker_ids, at = read_numbers(data, at, compact, "i")
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(broker_ids), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_numbers(out, self.broker_ids, compact, "i")
        if compact:
            out.append(0)


class CreatePartitionsTopic(Message):
    """Each topic that we want to create new partitions inside.

    name: The topic name.
    count: The new partition count.
    assignments: The new partition assignments.
    """

    __slots__ = ("assignments", "count", "name")

    def __init__(
        self,
        name: str = "",
        count: int = 0,
        assignments: list[CreatePartitionsAssignment] | None = NOTHING,
    ) -> None:
        self.name = name
        self.count = count
        self.assignments: list[CreatePartitionsAssignment] | None = (
            [] if assignments is NOTHING else assignments
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreatePartitionsTopic, int]:
        compact = version >= 2
        name, at = read_string(data, at, compact)
        (count,) = _INT32.unpack_from(data, at)
        at += 4
        assignments, at = read_nullable_structs(
            data, at, compact, CreatePartitionsAssignment.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, count, assignments), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.name, compact)
        out += _INT32.pack(self.count)
        write_nullable_structs(out, self.assignments, compact, version)
        if compact:
            out.append(0)


class CreatePartitionsRequest(Message):
    """The request.

    topics: Each topic that we want to create new partitions inside.
    timeout_ms: The time in ms to wait for the partitions to be created.
    validate_only: If true, then validate the request, but don't actually increase the number of
        partitions.
    """

    __slots__ = ("timeout_ms", "topics", "validate_only")
    API_KEY: ClassVar[int] = 37
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2
    ROWS: ClassVar[dict[str, str]] = {"topics": "results"}

    def __init__(
        self,
        topics: list[CreatePartitionsTopic] | None = None,
        timeout_ms: int = 0,
        validate_only: bool = False,
    ) -> None:
        self.topics: list[CreatePartitionsTopic] = [] if topics is None else topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreatePartitionsRequest, int]:
        compact = version >= 2
        topics, at = read_structs(data, at, compact, CreatePartitionsTopic.read, version)
        timeout_ms, validate_only = _INT32_BOOL.unpack_from(data, at)
        at += 5
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topics, timeout_ms, validate_only), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_structs(out, self.topics, compact, version)
        out += _INT32_BOOL.pack(self.timeout_ms, self.validate_only)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            results=[CreatePartitionsTopicResult(row.name, code) for row in self.topics]
        )


class CreatePartitionsTopicResult(Message):
    """The partition creation results for each topic.

    name: The topic name.
    error_code: The result error, or zero if there was no error.
    error_message: The result message, or null if there was no error.
    """

    __slots__ = ("error_code", "error_message", "name")

    def __init__(
        self, name: str = "", error_code: int = 0, error_message: str | None = None
    ) -> None:
        self.name = name
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreatePartitionsTopicResult, int]:
        compact = version >= 2
        name, at = read_string(data, at, compact)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.name, compact)
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, compact)
        if compact:
            out.append(0)


class CreatePartitionsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    results: The partition creation results for each topic.
    """

    __slots__ = ("results", "throttle_time_ms")
    API_KEY: ClassVar[int] = 37
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self, throttle_time_ms: int = 0, results: list[CreatePartitionsTopicResult] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[CreatePartitionsTopicResult] = [] if results is None else results

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreatePartitionsResponse, int]:
        compact = version >= 2
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        results, at = read_structs(data, at, compact, CreatePartitionsTopicResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, results), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.results, compact, version)
        if compact:
            out.append(0)
