"""DescribeShareGroupOffsets, API key 90: versions 0 to 1, flexible from 0.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
import uuid
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
    read_uuid,
    skip_tags,
    write_nullable_string,
    write_nullable_structs,
    write_numbers,
    write_string,
    write_structs,
    write_uuid,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_INT64_INT32 = struct.Struct(">iqi")
_INT64 = struct.Struct(">q")


class DescribeShareGroupOffsetsRequestTopic(Message):
    """A part of it.

    topic_name
    partitions
    """

    __slots__ = ("partitions", "topic_name")

    def __init__(self, topic_name: str = "", partitions: list[int] | None = None) -> None:
        self.topic_name = topic_name
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeShareGroupOffsetsRequestTopic, int]:
        topic_name, at = read_string(data, at, True)
        partitions, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.topic_name, True)
        write_numbers(out, self.partitions, True, "i")
        out.append(0)


class DescribeShareGroupOffsetsRequestGroup(Message):
    """A part of it.

    group_id
    topics
    """

    __slots__ = ("group_id", "topics")

    def __init__(
        self,
        group_id: str = "",
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = NOTHING,
    ) -> None:
        self.group_id = group_id
        self.topics: list[DescribeShareGroupOffsetsRequestTopic] | None = (
            [] if topics is NOTHING else topics
        )

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeShareGroupOffsetsRequestGroup, int]:
        group_id, at = read_string(data, at, True)
        topics, at = read_nullable_structs(
            data, at, True, DescribeShareGroupOffsetsRequestTopic.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_nullable_structs(out, self.topics, True, version)
        out.append(0)


class DescribeShareGroupOffsetsRequest(Message):
    """The request.

    groups
    """

    __slots__ = ("groups",)
    API_KEY: ClassVar[int] = 90
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"groups": "groups"}

    def __init__(self, groups: list[DescribeShareGroupOffsetsRequestGroup] | None = None) -> None:
        self.groups: list[DescribeShareGroupOffsetsRequestGroup] = [] if groups is None else groups

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeShareGroupOffsetsRequest, int]:
        groups, at = read_structs(
            data, at, True, DescribeShareGroupOffsetsRequestGroup.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(groups), at

    def write(self, out: bytearray, version: int) -> None:
        write_structs(out, self.groups, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeShareGroupOffsetsResponse:
        return DescribeShareGroupOffsetsResponse(
            groups=[
                DescribeShareGroupOffsetsResponseGroup(group_id=row.group_id, error_code=code)
                for row in self.groups
            ]
        )


class DescribeShareGroupOffsetsResponsePartition(Message):
    """A part of it.

    partition_index
    start_offset
    leader_epoch
    lag (version 1)
    error_code
    error_message
    """

    __slots__ = (
        "error_code",
        "error_message",
        "lag",
        "leader_epoch",
        "partition_index",
        "start_offset",
    )

    def __init__(
        self,
        partition_index: int = 0,
        start_offset: int = 0,
        leader_epoch: int = 0,
        lag: int = -1,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset
        self.leader_epoch = leader_epoch
        self.lag = lag
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeShareGroupOffsetsResponsePartition, int]:
        partition_index, start_offset, leader_epoch = _INT32_INT64_INT32.unpack_from(data, at)
        at += 16
        lag = -1
        if version >= 1:
            (lag,) = _INT64.unpack_from(data, at)
            at += 8
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, start_offset, leader_epoch, lag, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT64_INT32.pack(self.partition_index, self.start_offset, self.leader_epoch)
        if version >= 1:
            out += _INT64.pack(self.lag)
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, True)
        out.append(0)


class DescribeShareGroupOffsetsResponseTopic(Message):
    """A part of it.

    topic_name
    topic_id
    partitions
    """

    __slots__ = ("partitions", "topic_id", "topic_name")

    def __init__(
        self,
        topic_name: str = "",
        topic_id: uuid.UUID | None = None,
        partitions: list[DescribeShareGroupOffsetsResponsePartition] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.partitions: list[DescribeShareGroupOffsetsResponsePartition] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeShareGroupOffsetsResponseTopic, int]:
        topic_name, at = read_string(data, at, True)
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(
            data, at, True, DescribeShareGroupOffsetsResponsePartition.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_name, topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.topic_name, True)
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class DescribeShareGroupOffsetsResponseGroup(Message):
    """A part of it.

    group_id
    topics
    error_code
    error_message
    """

    __slots__ = ("error_code", "error_message", "group_id", "topics")

    def __init__(
        self,
        group_id: str = "",
        topics: list[DescribeShareGroupOffsetsResponseTopic] | None = None,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics: list[DescribeShareGroupOffsetsResponseTopic] = [] if topics is None else topics
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeShareGroupOffsetsResponseGroup, int]:
        group_id, at = read_string(data, at, True)
        topics, at = read_structs(
            data, at, True, DescribeShareGroupOffsetsResponseTopic.read, version
        )
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, topics, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_structs(out, self.topics, True, version)
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, True)
        out.append(0)


class DescribeShareGroupOffsetsResponse(Message):
    """The response.

    throttle_time_ms
    groups
    """

    __slots__ = ("groups", "throttle_time_ms")
    API_KEY: ClassVar[int] = 90
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        groups: list[DescribeShareGroupOffsetsResponseGroup] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribeShareGroupOffsetsResponseGroup] = [] if groups is None else groups

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeShareGroupOffsetsResponse, int]:
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        groups, at = read_structs(
            data, at, True, DescribeShareGroupOffsetsResponseGroup.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, groups), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.groups, True, version)
        out.append(0)
