"""ShareGroupDescribe, API key 77: version 1, flexible from 1.

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
    read_numbers,
    read_string,
    read_strings,
    read_structs,
    read_uuid,
    skip_tags,
    write_nullable_string,
    write_numbers,
    write_string,
    write_strings,
    write_structs,
    write_uuid,
)

_BOOL = struct.Struct(">?")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_2_TIMES = struct.Struct(">ii")


class ShareGroupDescribeRequest(Message):
    """The request.

    group_ids
    include_authorized_operations
    """

    __slots__ = ("group_ids", "include_authorized_operations")
    API_KEY: ClassVar[int] = 77
    FIRST_VERSION: ClassVar[int] = 1
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1
    ROWS: ClassVar[dict[str, str]] = {"group_ids": "groups"}

    def __init__(
        self, group_ids: list[str] | None = None, include_authorized_operations: bool = False
    ) -> None:
        self.group_ids: list[str] = [] if group_ids is None else group_ids
        self.include_authorized_operations = include_authorized_operations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ShareGroupDescribeRequest, int]:
        group_ids, at = read_strings(data, at, True)
        (include_authorized_operations,) = _BOOL.unpack_from(data, at)
        at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_ids, include_authorized_operations), at

    def write(self, out: bytearray, version: int) -> None:
        write_strings(out, self.group_ids, True)
        out += _BOOL.pack(self.include_authorized_operations)
        out.append(0)

    def error_response(self, version: int, code: Code) -> ShareGroupDescribeResponse:
        return ShareGroupDescribeResponse(
            groups=[DescribedGroup(group_id=row, error_code=code) for row in self.group_ids]
        )


class TopicPartitions(Message):
    """A part of it.

    topic_id
    topic_name
    partitions
    """

    __slots__ = ("partitions", "topic_id", "topic_name")

    def __init__(
        self,
        topic_id: uuid.UUID | None = None,
        topic_name: str = "",
        partitions: list[int] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicPartitions, int]:
        topic_id, at = read_uuid(data, at)
        topic_name, at = read_string(data, at, True)
        partitions, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, topic_name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_string(out, self.topic_name, True)
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


class Member(Message):
    """A part of it.

    member_id
    rack_id
    member_epoch
    client_id
    client_host
    subscribed_topic_names
    assignment
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "member_epoch",
        "member_id",
        "rack_id",
        "subscribed_topic_names",
    )

    def __init__(
        self,
        member_id: str = "",
        rack_id: str | None = None,
        member_epoch: int = 0,
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] | None = None,
        assignment: Assignment | None = None,
    ) -> None:
        self.member_id = member_id
        self.rack_id = rack_id
        self.member_epoch = member_epoch
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names: list[str] = (
            [] if subscribed_topic_names is None else subscribed_topic_names
        )
        self.assignment: Assignment = Assignment() if assignment is None else assignment

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Member, int]:
        member_id, at = read_string(data, at, True)
        rack_id, at = read_nullable_string(data, at, True)
        (member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        client_id, at = read_string(data, at, True)
        client_host, at = read_string(data, at, True)
        subscribed_topic_names, at = read_strings(data, at, True)
        assignment, at = Assignment.read(data, at, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            member_id,
            rack_id,
            member_epoch,
            client_id,
            client_host,
            subscribed_topic_names,
            assignment,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.member_id, True)
        write_nullable_string(out, self.rack_id, True)
        out += _INT32.pack(self.member_epoch)
        write_string(out, self.client_id, True)
        write_string(out, self.client_host, True)
        write_strings(out, self.subscribed_topic_names, True)
        self.assignment.write(out, version)
        out.append(0)


class DescribedGroup(Message):
    """A part of it.

    error_code
    error_message
    group_id
    group_state
    group_epoch
    assignment_epoch
    assignor_name
    members
    authorized_operations
    """

    __slots__ = (
        "assignment_epoch",
        "assignor_name",
        "authorized_operations",
        "error_code",
        "error_message",
        "group_epoch",
        "group_id",
        "group_state",
        "members",
    )

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        group_epoch: int = 0,
        assignment_epoch: int = 0,
        assignor_name: str = "",
        members: list[Member] | None = None,
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.group_epoch = group_epoch
        self.assignment_epoch = assignment_epoch
        self.assignor_name = assignor_name
        self.members: list[Member] = [] if members is None else members
        self.authorized_operations = authorized_operations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribedGroup, int]:
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, True)
        group_id, at = read_string(data, at, True)
        group_state, at = read_string(data, at, True)
        group_epoch, assignment_epoch = _INT32_2_TIMES.unpack_from(data, at)
        at += 8
        assignor_name, at = read_string(data, at, True)
        members, at = read_structs(data, at, True, Member.read, version)
        (authorized_operations,) = _INT32.unpack_from(data, at)
        at += 4
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            error_code,
            error_message,
            group_id,
            group_state,
            group_epoch,
            assignment_epoch,
            assignor_name,
            members,
            authorized_operations,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, True)
        write_string(out, self.group_id, True)
        write_string(out, self.group_state, True)
        out += _INT32_2_TIMES.pack(self.group_epoch, self.assignment_epoch)
        write_string(out, self.assignor_name, True)
        write_structs(out, self.members, True, version)
        out += _INT32.pack(self.authorized_operations)
        out.append(0)


class ShareGroupDescribeResponse(Message):
    """The response.

    throttle_time_ms
    groups
    """

    __slots__ = ("groups", "throttle_time_ms")
    API_KEY: ClassVar[int] = 77
    FIRST_VERSION: ClassVar[int] = 1
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    def __init__(
        self, throttle_time_ms: int = 0, groups: list[DescribedGroup] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribedGroup] = [] if groups is None else groups

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ShareGroupDescribeResponse, int]:
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        groups, at = read_structs(data, at, True, DescribedGroup.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, groups), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.groups, True, version)
        out.append(0)
