"""DeleteRecords, API key 21: versions 0 to 2, flexible from 2.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_string,
    read_structs,
    skip_tags,
    write_string,
    write_structs,
)

_INT32 = struct.Struct(">i")
_INT32_INT64 = struct.Struct(">iq")
_INT32_INT64_INT16 = struct.Struct(">iqh")


class DeleteRecordsPartition(Message):
    """Each partition that we want to delete records from.

    partition_index: The partition index.
    offset: The deletion offset. -1 means that records should be truncated to the high
        watermark.
    """

    __slots__ = ("offset", "partition_index")

    def __init__(self, partition_index: int = 0, offset: int = 0) -> None:
        self.partition_index = partition_index
        self.offset = offset

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteRecordsPartition, int]:
        compact = version >= 2
        partition_index, offset = _INT32_INT64.unpack_from(data, at)
        at += 12
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, offset), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32_INT64.pack(self.partition_index, self.offset)
        if compact:
            out.append(0)


class DeleteRecordsTopic(Message):
    """Each topic that we want to delete records from.

    name: The topic name.
    partitions: Each partition that we want to delete records from.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[DeleteRecordsPartition] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[DeleteRecordsPartition] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteRecordsTopic, int]:
        compact = version >= 2
        name, at = read_string(data, at, compact)
        partitions, at = read_structs(data, at, compact, DeleteRecordsPartition.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.name, compact)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class DeleteRecordsRequest(Message):
    """The request.

    topics: Each topic that we want to delete records from.
    timeout_ms: How long to wait for the deletion to complete, in milliseconds.
    """

    __slots__ = ("timeout_ms", "topics")
    API_KEY: ClassVar[int] = 21
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics"}

    def __init__(self, topics: list[DeleteRecordsTopic] | None = None, timeout_ms: int = 0) -> None:
        self.topics: list[DeleteRecordsTopic] = [] if topics is None else topics
        self.timeout_ms = timeout_ms

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteRecordsRequest, int]:
        compact = version >= 2
        topics, at = read_structs(data, at, compact, DeleteRecordsTopic.read, version)
        (timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topics, timeout_ms), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_structs(out, self.topics, compact, version)
        out += _INT32.pack(self.timeout_ms)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    row.name,
                    [
                        DeleteRecordsPartitionResult(part.partition_index, -1, code)
                        for part in row.partitions
                    ],
                )
                for row in self.topics
            ]
        )


class DeleteRecordsPartitionResult(Message):
    """Each partition that we wanted to delete records from.

    partition_index: The partition index.
    low_watermark: The partition low water mark.
    error_code: The deletion error code, or 0 if the deletion succeeded.
    """

    __slots__ = ("error_code", "low_watermark", "partition_index")

    def __init__(
        self, partition_index: int = 0, low_watermark: int = 0, error_code: int = 0
    ) -> None:
        self.partition_index = partition_index
        self.low_watermark = low_watermark
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteRecordsPartitionResult, int]:
        compact = version >= 2
        partition_index, low_watermark, error_code = _INT32_INT64_INT16.unpack_from(data, at)
        at += 14
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, low_watermark, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32_INT64_INT16.pack(self.partition_index, self.low_watermark, self.error_code)
        if compact:
            out.append(0)


class DeleteRecordsTopicResult(Message):
    """Each topic that we wanted to delete records from.

    name: The topic name.
    partitions: Each partition that we wanted to delete records from.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[DeleteRecordsPartitionResult] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[DeleteRecordsPartitionResult] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteRecordsTopicResult, int]:
        compact = version >= 2
        name, at = read_string(data, at, compact)
        partitions, at = read_structs(data, at, compact, DeleteRecordsPartitionResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.name, compact)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class DeleteRecordsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    topics: Each topic that we wanted to delete records from.
    """

    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int] = 21
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self, throttle_time_ms: int = 0, topics: list[DeleteRecordsTopicResult] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[DeleteRecordsTopicResult] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteRecordsResponse, int]:
        compact = version >= 2
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        topics, at = read_structs(data, at, compact, DeleteRecordsTopicResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)
