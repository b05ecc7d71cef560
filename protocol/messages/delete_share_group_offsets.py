"""DeleteShareGroupOffsets, API key 92: version 0, flexible from 0.

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

_INT16 = struct.Struct(">h")
_INT32_INT16 = struct.Struct(">ih")


class DeleteShareGroupOffsetsRequestTopic(Message):
    """A part of it.

    topic_name
    """

    __slots__ = ("topic_name",)

    def __init__(self, topic_name: str = "") -> None:
        self.topic_name = topic_name

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DeleteShareGroupOffsetsRequestTopic, int]:
        topic_name, at = read_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_name), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.topic_name, True)
        out.append(0)


class DeleteShareGroupOffsetsRequest(Message):
    """The request.

    group_id
    topics
    """

    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int] = 92
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"topics": "responses"}

    def __init__(
        self, group_id: str = "", topics: list[DeleteShareGroupOffsetsRequestTopic] | None = None
    ) -> None:
        self.group_id = group_id
        self.topics: list[DeleteShareGroupOffsetsRequestTopic] = [] if topics is None else topics

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DeleteShareGroupOffsetsRequest, int]:
        group_id, at = read_string(data, at, True)
        topics, at = read_structs(data, at, True, DeleteShareGroupOffsetsRequestTopic.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> DeleteShareGroupOffsetsResponse:
        return DeleteShareGroupOffsetsResponse(error_code=code)


class DeleteShareGroupOffsetsResponseTopic(Message):
    """A part of it.

    topic_name
    topic_id
    error_code
    error_message
    """

    __slots__ = ("error_code", "error_message", "topic_id", "topic_name")

    def __init__(
        self,
        topic_name: str = "",
        topic_id: uuid.UUID | None = None,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DeleteShareGroupOffsetsResponseTopic, int]:
        topic_name, at = read_string(data, at, True)
        topic_id, at = read_uuid(data, at)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_name, topic_id, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.topic_name, True)
        write_uuid(out, self.topic_id)
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, True)
        out.append(0)


class DeleteShareGroupOffsetsResponse(Message):
    """The response.

    throttle_time_ms
    error_code
    error_message
    responses
    """

    __slots__ = ("error_code", "error_message", "responses", "throttle_time_ms")
    API_KEY: ClassVar[int] = 92
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        responses: list[DeleteShareGroupOffsetsResponseTopic] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.responses: list[DeleteShareGroupOffsetsResponseTopic] = (
            [] if responses is None else responses
        )

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DeleteShareGroupOffsetsResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        responses, at = read_structs(
            data, at, True, DeleteShareGroupOffsetsResponseTopic.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, error_message, responses), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, True)
        write_structs(out, self.responses, True, version)
        out.append(0)
