"""DeleteTopics, API key 20: versions 0 to 6, flexible from 4.

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
    read_strings,
    read_structs,
    read_uuid,
    refuse_null,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_strings,
    write_structs,
    write_uuid,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class DeleteTopicState(Message):
    """The name or topic ID of the topic.

    name (version 6): The topic name.
    topic_id (version 6): The unique topic ID.
    """

    __slots__ = ("name", "topic_id")

    def __init__(self, name: str | None = None, topic_id: uuid.UUID | None = None) -> None:
        self.name = name
        self.topic_id = topic_id

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteTopicState, int]:
        compact = version >= 4
        name: str | None = None
        topic_id: uuid.UUID | None = None
        if version >= 6:
            name, at = read_nullable_string(data, at, compact)
            topic_id, at = read_uuid(data, at)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, topic_id), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if version >= 6:
            write_nullable_string(out, self.name, compact)
            write_uuid(out, self.topic_id)
        elif self.name is not None:
            refuse_value("name", version)
        elif self.topic_id is not None:
            refuse_value("topic_id", version)
        if compact:
            out.append(0)


class DeleteTopicsRequest(Message):
    """The request.

    topics (version 6): The name or topic ID of the topic.
    topic_names (versions 0 to 5): The names of the topics to delete.
    timeout_ms: The length of time in milliseconds to wait for the deletions to complete.
    """

    __slots__ = ("timeout_ms", "topic_names", "topics")
    API_KEY: ClassVar[int] = 20
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 4
    ROWS: ClassVar[dict[str, str]] = {"topic_names": "responses", "topics": "responses"}

    def __init__(
        self,
        topics: list[DeleteTopicState] | None = None,
        topic_names: list[str] | None = None,
        timeout_ms: int = 0,
    ) -> None:
        self.topics: list[DeleteTopicState] = [] if topics is None else topics
        self.topic_names: list[str] = [] if topic_names is None else topic_names
        self.timeout_ms = timeout_ms

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteTopicsRequest, int]:
        compact = version >= 4
        topics: list[DeleteTopicState] = []
        if version >= 6:
            topics, at = read_structs(data, at, compact, DeleteTopicState.read, version)
        topic_names: list[str] = []
        if version <= 5:
            topic_names, at = read_strings(data, at, compact)
        (timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topics, topic_names, timeout_ms), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if version >= 6:
            write_structs(out, self.topics, compact, version)
        elif self.topics != []:
            refuse_value("topics", version)
        if version <= 5:
            write_strings(out, self.topic_names, compact)
        out += _INT32.pack(self.timeout_ms)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> DeleteTopicsResponse:
        if version <= 5:
            return DeleteTopicsResponse(
                responses=[
                    DeletableTopicResult(name=row, error_code=code) for row in self.topic_names
                ]
            )
        return DeleteTopicsResponse(
            responses=[DeletableTopicResult(row.name, row.topic_id, code) for row in self.topics]
        )


class DeletableTopicResult(Message):
    """The results for each topic we tried to delete.

    name: The topic name.
    topic_id (version 6): The unique topic ID.
    error_code: The deletion error, or 0 if the deletion succeeded.
    error_message (from version 5): The error message, or null if there was no error.
    """

    __slots__ = ("error_code", "error_message", "name", "topic_id")

    def __init__(
        self,
        name: str | None = "",
        topic_id: uuid.UUID | None = None,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeletableTopicResult, int]:
        compact = version >= 4
        name, at = read_nullable_string(data, at, compact)
        if name is None and not (version >= 6):
            refuse_null("name", version)
        topic_id: uuid.UUID | None = None
        if version >= 6:
            topic_id, at = read_uuid(data, at)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message: str | None = None
        if version >= 5:
            error_message, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, topic_id, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if self.name is None and not (version >= 6):
            refuse_value("name", version)
        write_nullable_string(out, self.name, compact)
        if version >= 6:
            write_uuid(out, self.topic_id)
        out += _INT16.pack(self.error_code)
        if version >= 5:
            write_nullable_string(out, self.error_message, compact)
        if compact:
            out.append(0)


class DeleteTopicsResponse(Message):
    """The response.

    throttle_time_ms (from version 1): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    responses: The results for each topic we tried to delete.
    """

    __slots__ = ("responses", "throttle_time_ms")
    API_KEY: ClassVar[int] = 20
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 4

    def __init__(
        self, throttle_time_ms: int = 0, responses: list[DeletableTopicResult] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses: list[DeletableTopicResult] = [] if responses is None else responses

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteTopicsResponse, int]:
        compact = version >= 4
        throttle_time_ms = 0
        if version >= 1:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        responses, at = read_structs(data, at, compact, DeletableTopicResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, responses), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if version >= 1:
            out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.responses, compact, version)
        if compact:
            out.append(0)
