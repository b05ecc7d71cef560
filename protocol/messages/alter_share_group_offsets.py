"""AlterShareGroupOffsets, API key 91: version 0, flexible from 0.

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
    read_nullable_string,
    read_string,
    read_structs,
    read_uuid,
    skip_tags,
    write_nullable_string,
    write_string,
    write_structs,
    write_uuid,
)

_INT32_INT16 = struct.Struct(">ih")
_INT32_INT64 = struct.Struct(">iq")


class AlterShareGroupOffsetsRequestPartition(Message):
    """A part of it.

    partition_index
    start_offset
    """

    __slots__ = ("partition_index", "start_offset")

    def __init__(self, partition_index: int = 0, start_offset: int = 0) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[AlterShareGroupOffsetsRequestPartition, int]:
        partition_index, start_offset = _INT32_INT64.unpack_from(data, at)
        at += 12
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, start_offset), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT64.pack(self.partition_index, self.start_offset)
        out.append(0)


class AlterShareGroupOffsetsRequestTopic(Message):
    """A part of it.

    topic_name
    partitions
    """

    __slots__ = ("partitions", "topic_name")

    def __init__(
        self,
        topic_name: str = "",
        partitions: list[AlterShareGroupOffsetsRequestPartition] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[AlterShareGroupOffsetsRequestPartition] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[AlterShareGroupOffsetsRequestTopic, int]:
        topic_name, at = read_string(data, at, True)
        partitions, at = read_structs(
            data, at, True, AlterShareGroupOffsetsRequestPartition.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.topic_name, True)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class AlterShareGroupOffsetsRequest(Message):
    """The request.

    group_id
    topics
    """

    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int] = 91
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"topics": "responses"}

    def __init__(
        self, group_id: str = "", topics: list[AlterShareGroupOffsetsRequestTopic] | None = None
    ) -> None:
        self.group_id = group_id
        self.topics: list[AlterShareGroupOffsetsRequestTopic] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterShareGroupOffsetsRequest, int]:
        group_id, at = read_string(data, at, True)
        topics, at = read_structs(data, at, True, AlterShareGroupOffsetsRequestTopic.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> AlterShareGroupOffsetsResponse:
        return AlterShareGroupOffsetsResponse(error_code=code)


class AlterShareGroupOffsetsResponsePartition(Message):
    """A part of it.

    partition_index
    error_code
    error_message
    """

    __slots__ = ("error_code", "error_message", "partition_index")

    def __init__(
        self, partition_index: int = 0, error_code: int = 0, error_message: str | None = None
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[AlterShareGroupOffsetsResponsePartition, int]:
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.partition_index, self.error_code)
        write_nullable_string(out, self.error_message, True)
        out.append(0)


class AlterShareGroupOffsetsResponseTopic(Message):
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
        partitions: list[AlterShareGroupOffsetsResponsePartition] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.partitions: list[AlterShareGroupOffsetsResponsePartition] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[AlterShareGroupOffsetsResponseTopic, int]:
        topic_name, at = read_string(data, at, True)
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(
            data, at, True, AlterShareGroupOffsetsResponsePartition.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_name, topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.topic_name, True)
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class AlterShareGroupOffsetsResponse(Message):
    """The response.

    throttle_time_ms
    error_code
    error_message
    responses
    """

    __slots__ = ("error_code", "error_message", "responses", "throttle_time_ms")
    API_KEY: ClassVar[int] = 91
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        responses: list[AlterShareGroupOffsetsResponseTopic] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.responses: list[AlterShareGroupOffsetsResponseTopic] = (
            [] if responses is None else responses
        )

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[AlterShareGroupOffsetsResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        responses, at = read_structs(
            data, at, True, AlterShareGroupOffsetsResponseTopic.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, error_message, responses), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, True)
        write_structs(out, self.responses, True, version)
        out.append(0)
