"""AlterReplicaLogDirs, API key 34: versions 0 to 2, flexible from 2.

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
    skip_tags,
    write_numbers,
    write_string,
    write_structs,
)

_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")


class AlterReplicaLogDirTopic(Message):
    """The topics to add to the directory.

    name: The topic name.
    partitions: The partition indexes.
    """

    __slots__ = ("name", "partitions")

    def __init__(self, name: str = "", partitions: list[int] | None = None) -> None:
        self.name = name
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterReplicaLogDirTopic, int]:
        compact = version >= 2
        name, at = read_string(data, at, compact)
        partitions, at = read_numbers(data, at, compact, "i")
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.name, compact)
        write_numbers(out, self.partitions, compact, "i")
        if compact:
            out.append(0)


class AlterReplicaLogDir(Message):
    """The alterations to make for each directory.

    path: The absolute directory path.
    topics: The topics to add to the directory.
    """

    __slots__ = ("path", "topics")

    def __init__(self, path: str = "", topics: list[AlterReplicaLogDirTopic] | None = None) -> None:
        self.path = path
        self.topics: list[AlterReplicaLogDirTopic] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterReplicaLogDir, int]:
        compact = version >= 2
        path, at = read_string(data, at, compact)
        topics, at = read_structs(data, at, compact, AlterReplicaLogDirTopic.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(path, topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.path, compact)
        write_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)


class AlterReplicaLogDirsRequest(Message):
    """The request.

    dirs: The alterations to make for each directory.
    """

    __slots__ = ("dirs",)
    API_KEY: ClassVar[int] = 34
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(self, dirs: list[AlterReplicaLogDir] | None = None) -> None:
        self.dirs: list[AlterReplicaLogDir] = [] if dirs is None else dirs

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterReplicaLogDirsRequest, int]:
        compact = version >= 2
        dirs, at = read_structs(data, at, compact, AlterReplicaLogDir.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(dirs), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_structs(out, self.dirs, compact, version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> AlterReplicaLogDirsResponse:
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(
                    row.name,
                    [AlterReplicaLogDirPartitionResult(part, code) for part in row.partitions],
                )
                for outer in self.dirs
                for row in outer.topics
            ]
        )


class AlterReplicaLogDirPartitionResult(Message):
    """The results for each partition.

    partition_index: The partition index.
    error_code: The error code, or 0 if there was no error.
    """

    __slots__ = ("error_code", "partition_index")

    def __init__(self, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[AlterReplicaLogDirPartitionResult, int]:
        compact = version >= 2
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32_INT16.pack(self.partition_index, self.error_code)
        if compact:
            out.append(0)


class AlterReplicaLogDirTopicResult(Message):
    """The results for each topic.

    topic_name: The name of the topic.
    partitions: The results for each partition.
    """

    __slots__ = ("partitions", "topic_name")

    def __init__(
        self,
        topic_name: str = "",
        partitions: list[AlterReplicaLogDirPartitionResult] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[AlterReplicaLogDirPartitionResult] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterReplicaLogDirTopicResult, int]:
        compact = version >= 2
        topic_name, at = read_string(data, at, compact)
        partitions, at = read_structs(
            data, at, compact, AlterReplicaLogDirPartitionResult.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.topic_name, compact)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class AlterReplicaLogDirsResponse(Message):
    """The response.

    throttle_time_ms: Duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    results: The results for each topic.
    """

    __slots__ = ("results", "throttle_time_ms")
    API_KEY: ClassVar[int] = 34
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self, throttle_time_ms: int = 0, results: list[AlterReplicaLogDirTopicResult] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[AlterReplicaLogDirTopicResult] = [] if results is None else results

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterReplicaLogDirsResponse, int]:
        compact = version >= 2
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        results, at = read_structs(data, at, compact, AlterReplicaLogDirTopicResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, results), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.results, compact, version)
        if compact:
            out.append(0)
