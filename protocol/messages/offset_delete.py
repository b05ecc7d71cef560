"""OffsetDelete, API key 47: version 0.

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
    write_string,
    write_structs,
)

_INT16_INT32 = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")


class OffsetDeleteRequestPartition(Message):
    """Each partition to delete offsets for.

    partition_index: The partition index.
    """

    __slots__ = ("partition_index",)

    def __init__(self, partition_index: int = 0) -> None:
        self.partition_index = partition_index

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetDeleteRequestPartition, int]:
        (partition_index,) = _INT32.unpack_from(data, at)
        at += 4
        return cls(partition_index), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.partition_index)


class OffsetDeleteRequestTopic(Message):
    """The topics to delete offsets for.

    name: The topic name.
    partitions: Each partition to delete offsets for.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[OffsetDeleteRequestPartition] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[OffsetDeleteRequestPartition] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetDeleteRequestTopic, int]:
        name, at = read_string(data, at, False)
        partitions, at = read_structs(data, at, False, OffsetDeleteRequestPartition.read, version)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, False)
        write_structs(out, self.partitions, False, version)


class OffsetDeleteRequest(Message):
    """The request.

    group_id: The unique group identifier.
    topics: The topics to delete offsets for.
    """

    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int] = 47
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32768
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics"}

    def __init__(
        self, group_id: str = "", topics: list[OffsetDeleteRequestTopic] | None = None
    ) -> None:
        self.group_id = group_id
        self.topics: list[OffsetDeleteRequestTopic] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetDeleteRequest, int]:
        group_id, at = read_string(data, at, False)
        topics, at = read_structs(data, at, False, OffsetDeleteRequestTopic.read, version)
        return cls(group_id, topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, False)
        write_structs(out, self.topics, False, version)

    def error_response(self, version: int, code: Code) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error_code=code)


class OffsetDeleteResponsePartition(Message):
    """The responses for each partition in the topic.

    partition_index: The partition index.
    error_code: The error code, or 0 if there was no error.
    """

    __slots__ = ("error_code", "partition_index")

    def __init__(self, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetDeleteResponsePartition, int]:
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        return cls(partition_index, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.partition_index, self.error_code)


class OffsetDeleteResponseTopic(Message):
    """The responses for each topic.

    name: The topic name.
    partitions: The responses for each partition in the topic.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[OffsetDeleteResponsePartition] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[OffsetDeleteResponsePartition] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetDeleteResponseTopic, int]:
        name, at = read_string(data, at, False)
        partitions, at = read_structs(data, at, False, OffsetDeleteResponsePartition.read, version)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, False)
        write_structs(out, self.partitions, False, version)


class OffsetDeleteResponse(Message):
    """The response.

    error_code: The top-level error code, or 0 if there was no error.
    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    topics: The responses for each topic.
    """

    __slots__ = ("error_code", "throttle_time_ms", "topics")
    API_KEY: ClassVar[int] = 47
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32768

    def __init__(
        self,
        error_code: int = 0,
        throttle_time_ms: int = 0,
        topics: list[OffsetDeleteResponseTopic] | None = None,
    ) -> None:
        self.error_code = error_code
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetDeleteResponseTopic] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetDeleteResponse, int]:
        error_code, throttle_time_ms = _INT16_INT32.unpack_from(data, at)
        at += 6
        topics, at = read_structs(data, at, False, OffsetDeleteResponseTopic.read, version)
        return cls(error_code, throttle_time_ms, topics), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT16_INT32.pack(self.error_code, self.throttle_time_ms)
        write_structs(out, self.topics, False, version)
