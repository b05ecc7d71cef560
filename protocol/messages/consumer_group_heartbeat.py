"""ConsumerGroupHeartbeat, API key 68: versions 0 to 1, flexible from 0.

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
    read_nullable_structs,
    read_numbers,
    read_string,
    read_structs,
    read_uuid,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_nullable_strings,
    write_nullable_struct,
    write_nullable_structs,
    write_numbers,
    write_string,
    write_structs,
    write_uuid,
)

_INT32 = struct.Struct(">i")
_INT32_2_TIMES = struct.Struct(">ii")
_INT32_INT16 = struct.Struct(">ih")


class TopicPartitions(Message):
    """The partitions that the member owns; null: as before.

    topic_id: The topic.
    partitions: Its partitions.
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


class ConsumerGroupHeartbeatRequest(Message):
    """The request.

    group_id: The group.
    member_id: The member; its client makes the id (in version 0 it may be empty, and the answer
        has one).
    member_epoch: The epoch that the member last got; 0 joins, -1 leaves, -2 leaves for a while
        (static members).
    instance_id: The name of a static member.
    rack_id: The member's rack; null: as before.
    rebalance_timeout_ms: How long the member may take to give up partitions; -1: as before.
    subscribed_topic_names: The topics that the member wants; null: as before.
    subscribed_topic_regex (version 1): The pattern of the topics that the member wants, in
        RE2's syntax; null: as before, empty: none.
    server_assignor: The assignor that the member prefers; null: as before.
    topic_partitions: The partitions that the member owns; null: as before.
    """

    __slots__ = (
        "group_id",
        "instance_id",
        "member_epoch",
        "member_id",
        "rack_id",
        "rebalance_timeout_ms",
        "server_assignor",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "topic_partitions",
    )
    API_KEY: ClassVar[int] = 68
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        subscribed_topic_names: list[str] | None = None,
        subscribed_topic_regex: str | None = None,
        server_assignor: str | None = None,
        topic_partitions: list[TopicPartitions] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.subscribed_topic_names = subscribed_topic_names
        self.subscribed_topic_regex = subscribed_topic_regex
        self.server_assignor = server_assignor
        self.topic_partitions = topic_partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ConsumerGroupHeartbeatRequest, int]:
        group_id, at = read_string(data, at, True)
        member_id, at = read_string(data, at, True)
        (member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        instance_id, at = read_nullable_string(data, at, True)
        rack_id, at = read_nullable_string(data, at, True)
        (rebalance_timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        subscribed_topic_names, at = read_nullable_strings(data, at, True)
        subscribed_topic_regex: str | None = None
        if version >= 1:
            subscribed_topic_regex, at = read_nullable_string(data, at, True)
        server_assignor, at = read_nullable_string(data, at, True)
        topic_partitions, at = read_nullable_structs(data, at, True, TopicPartitions.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            group_id,
            member_id,
            member_epoch,
            instance_id,
            rack_id,
            rebalance_timeout_ms,
            subscribed_topic_names,
            subscribed_topic_regex,
            server_assignor,
            topic_partitions,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_string(out, self.member_id, True)
        out += _INT32.pack(self.member_epoch)
        write_nullable_string(out, self.instance_id, True)
        write_nullable_string(out, self.rack_id, True)
        out += _INT32.pack(self.rebalance_timeout_ms)
        write_nullable_strings(out, self.subscribed_topic_names, True)
        if version >= 1:
            write_nullable_string(out, self.subscribed_topic_regex, True)
        elif self.subscribed_topic_regex is not None:
            refuse_value("subscribed_topic_regex", version)
        write_nullable_string(out, self.server_assignor, True)
        write_nullable_structs(out, self.topic_partitions, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error_code=code)


class Assignment(Message):
    """The partitions that the member shall own; null: as before.

    topic_partitions: The partitions, topic by topic.
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


class ConsumerGroupHeartbeatResponse(Message):
    """The response.

    throttle_time_ms: How long the request was held back for a quota.
    error_code: The error, or 0.
    error_message: What is wrong, in words.
    member_id: The member.
    member_epoch: The member's epoch from now on.
    heartbeat_interval_ms: When the next heartbeat is due.
    assignment: The partitions that the member shall own; null: as before.
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
    API_KEY: ClassVar[int] = 68
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

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
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[ConsumerGroupHeartbeatResponse, int]:
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
