"""ShareGroupHeartbeat, API key 76: version 1, flexible from 1.

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
    read_nullable_strings,
    read_nullable_struct,
    read_numbers,
    read_string,
    read_structs,
    read_uuid,
    skip_tags,
    write_nullable_string,
    write_nullable_strings,
    write_nullable_struct,
    write_numbers,
    write_string,
    write_structs,
    write_uuid,
)

_INT32 = struct.Struct(">i")
_INT32_2_TIMES = struct.Struct(">ii")
_INT32_INT16 = struct.Struct(">ih")


class ShareGroupHeartbeatRequest(Message):
    """The request.

    group_id
    member_id
    member_epoch
    rack_id
    subscribed_topic_names
    """

    __slots__ = ("group_id", "member_epoch", "member_id", "rack_id", "subscribed_topic_names")
    API_KEY: ClassVar[int] = 76
    FIRST_VERSION: ClassVar[int] = 1
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    def __init__(
        self,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        rack_id: str | None = None,
        subscribed_topic_names: list[str] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.rack_id = rack_id
        self.subscribed_topic_names = subscribed_topic_names

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ShareGroupHeartbeatRequest, int]:
        group_id, at = read_string(data, at, True)
        member_id, at = read_string(data, at, True)
        (member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        rack_id, at = read_nullable_string(data, at, True)
        subscribed_topic_names, at = read_nullable_strings(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, member_id, member_epoch, rack_id, subscribed_topic_names), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_string(out, self.member_id, True)
        out += _INT32.pack(self.member_epoch)
        write_nullable_string(out, self.rack_id, True)
        write_nullable_strings(out, self.subscribed_topic_names, True)
        out.append(0)

    def error_response(self, version: int, code: Code) -> ShareGroupHeartbeatResponse:
        return ShareGroupHeartbeatResponse(error_code=code)


class TopicPartitions(Message):
    """A part of it.

    topic_id
    partitions
    """

    __slots__ = ("partitions", "topic_id")

    def __init__(
        self, topic_id: uuid.UUID | None = None, partitions: list[int] | None = None
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicPartitions, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_numbers(out, self.partitions, True, "i")
        out.append(0)


class Assignment(Message):
    """A part of it.

    topic_partitions
    """

    __slots__ = ("topic_partitions",)

    def __init__(self, topic_partitions: list[TopicPartitions] | None = None) -> None:
        self.topic_partitions: list[TopicPartitions] = (
            [] if topic_partitions is None else topic_partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Assignment, int]:
        topic_partitions, at = read_structs(data, at, True, TopicPartitions.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_structs(out, self.topic_partitions, True, version)
        out.append(0)


class ShareGroupHeartbeatResponse(Message):
    """The response.

    throttle_time_ms
    error_code
    error_message
    member_id
    member_epoch
    heartbeat_interval_ms
    assignment
    """

    __slots__ = (
        "assignment",
        "error_code",
        "error_message",
        "heartbeat_interval_ms",
        "member_epoch",
        "member_id",
        "throttle_time_ms",
    )
    API_KEY: ClassVar[int] = 76
    FIRST_VERSION: ClassVar[int] = 1
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str | None = None,
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        assignment: Assignment | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.assignment = assignment

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ShareGroupHeartbeatResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        member_id, at = read_nullable_string(data, at, True)
        member_epoch, heartbeat_interval_ms = _INT32_2_TIMES.unpack_from(data, at)
        at += 8
        assignment, at = read_nullable_struct(data, at, Assignment.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            throttle_time_ms,
            error_code,
            error_message,
            member_id,
            member_epoch,
            heartbeat_interval_ms,
            assignment,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, True)
        write_nullable_string(out, self.member_id, True)
        out += _INT32_2_TIMES.pack(self.member_epoch, self.heartbeat_interval_ms)
        write_nullable_struct(out, self.assignment, version)
        out.append(0)
