"""DescribeLogDirs, API key 35: versions 0 to 5, flexible from 2.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import NOTHING, Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_structs,
    read_numbers,
    read_string,
    read_structs,
    skip_tags,
    write_nullable_structs,
    write_numbers,
    write_string,
    write_structs,
)

_BOOL = struct.Struct(">?")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_INT64_2_TIMES_BOOL = struct.Struct(">iqq?")
_INT64_2_TIMES = struct.Struct(">qq")


class DescribableLogDirTopic(Message):
    """Each topic that we want to describe log directories for, or null for all topics.

    topic: The topic name.
    partitions: The partition indexes.
    """

    __slots__ = ("partitions", "topic")

    def __init__(self, topic: str = "", partitions: list[int] | None = None) -> None:
        self.topic = topic
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribableLogDirTopic, int]:
        compact = version >= 2
        topic, at = read_string(data, at, compact)
        partitions, at = read_numbers(data, at, compact, "i")
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.topic, compact)
        write_numbers(out, self.partitions, compact, "i")
        if compact:
            out.append(0)


class DescribeLogDirsRequest(Message):
    """The request.

    topics: Each topic that we want to describe log directories for, or null for all topics.
    """

    __slots__ = ("topics",)
    API_KEY: ClassVar[int] = 35
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(self, topics: list[DescribableLogDirTopic] | None = NOTHING) -> None:
        self.topics: list[DescribableLogDirTopic] | None = [] if topics is NOTHING else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeLogDirsRequest, int]:
        compact = version >= 2
        topics, at = read_nullable_structs(data, at, compact, DescribableLogDirTopic.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_nullable_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeLogDirsResponse:
        if version <= 2:
            return DescribeLogDirsResponse()
        return DescribeLogDirsResponse(error_code=code)


class DescribeLogDirsPartition(Message):
    """The partitions.

    partition_index: The partition index.
    partition_size: The size of the log segments in this partition in bytes.
    offset_lag: The lag of the log's LEO w.r.t. partition's HW (if it is the current log for the
        partition) or current replica's LEO (if it is the future log for the partition).
    is_future_key: True if this log is created by AlterReplicaLogDirsRequest and will replace
        the current log of the replica in the future.
    """

    __slots__ = ("is_future_key", "offset_lag", "partition_index", "partition_size")

    def __init__(
        self,
        partition_index: int = 0,
        partition_size: int = 0,
        offset_lag: int = 0,
        is_future_key: bool = False,
    ) -> None:
        self.partition_index = partition_index
        self.partition_size = partition_size
        self.offset_lag = offset_lag
        self.is_future_key = is_future_key

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeLogDirsPartition, int]:
        compact = version >= 2
        partition_index, partition_size, offset_lag, is_future_key = (
            _INT32_INT64_2_TIMES_BOOL.unpack_from(data, at)
        )
        at += 21
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, partition_size, offset_lag, is_future_key), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32_INT64_2_TIMES_BOOL.pack(
            self.partition_index, self.partition_size, self.offset_lag, self.is_future_key
        )
        if compact:
            out.append(0)


class DescribeLogDirsTopic(Message):
    """The topics.

    name: The topic name.
    partitions: The partitions.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[DescribeLogDirsPartition] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[DescribeLogDirsPartition] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeLogDirsTopic, int]:
        compact = version >= 2
        name, at = read_string(data, at, compact)
        partitions, at = read_structs(data, at, compact, DescribeLogDirsPartition.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.name, compact)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class DescribeLogDirsResult(Message):
    """The log directories.

    error_code: The error code, or 0 if there was no error.
    log_dir: The absolute log directory path.
    topics: The topics.
    total_bytes (from version 4): The total size in bytes of the volume the log directory is in.
        This value does not include the size of data stored in remote storage.
    usable_bytes (from version 4): The usable size in bytes of the volume the log directory is
        in. This value does not include the size of data stored in remote storage.
    is_cordoned (version 5): True if this log directory is cordoned.
    """

    __slots__ = ("error_code", "is_cordoned", "log_dir", "topics", "total_bytes", "usable_bytes")

    def __init__(
        self,
        error_code: int = 0,
        log_dir: str = "",
        topics: list[DescribeLogDirsTopic] | None = None,
        total_bytes: int = -1,
        usable_bytes: int = -1,
        is_cordoned: bool = False,
    ) -> None:
        self.error_code = error_code
        self.log_dir = log_dir
        self.topics: list[DescribeLogDirsTopic] = [] if topics is None else topics
        self.total_bytes = total_bytes
        self.usable_bytes = usable_bytes
        self.is_cordoned = is_cordoned

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeLogDirsResult, int]:
        compact = version >= 2
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        log_dir, at = read_string(data, at, compact)
        topics, at = read_structs(data, at, compact, DescribeLogDirsTopic.read, version)
        total_bytes = -1
        usable_bytes = -1
        if version >= 4:
            total_bytes, usable_bytes = _INT64_2_TIMES.unpack_from(data, at)
            at += 16
        is_cordoned = False
        if version >= 5:
            (is_cordoned,) = _BOOL.unpack_from(data, at)
            at += 1
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(error_code, log_dir, topics, total_bytes, usable_bytes, is_cordoned), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT16.pack(self.error_code)
        write_string(out, self.log_dir, compact)
        write_structs(out, self.topics, compact, version)
        if version >= 4:
            out += _INT64_2_TIMES.pack(self.total_bytes, self.usable_bytes)
        if version >= 5:
            out += _BOOL.pack(self.is_cordoned)
        if compact:
            out.append(0)


class DescribeLogDirsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code (from version 3): The error code, or 0 if there was no error.
    results: The log directories.
    """

    __slots__ = ("error_code", "results", "throttle_time_ms")
    API_KEY: ClassVar[int] = 35
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results: list[DescribeLogDirsResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.results: list[DescribeLogDirsResult] = [] if results is None else results

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeLogDirsResponse, int]:
        compact = version >= 2
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        error_code = 0
        if version >= 3:
            (error_code,) = _INT16.unpack_from(data, at)
            at += 2
        results, at = read_structs(data, at, compact, DescribeLogDirsResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, results), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32.pack(self.throttle_time_ms)
        if version >= 3:
            out += _INT16.pack(self.error_code)
        write_structs(out, self.results, compact, version)
        if compact:
            out.append(0)
