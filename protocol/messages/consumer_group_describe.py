"""ConsumerGroupDescribe, API key 69: versions 0 to 1, flexible from 0.

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
_INT8 = struct.Struct(">b")


class ConsumerGroupDescribeRequest(Message):
    """The request.

    group_ids: The groups.
    include_authorized_operations: Whether the answer shall say what the client may do with
        them.
    """

    __slots__ = ("group_ids", "include_authorized_operations")
    API_KEY: ClassVar[int] = 69
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"group_ids": "groups"}

    def __init__(
        self, group_ids: list[str] | None = None, include_authorized_operations: bool = False
    ) -> None:
        self.group_ids: list[str] = [] if group_ids is None else group_ids
        self.include_authorized_operations = include_authorized_operations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ConsumerGroupDescribeRequest, int]:
        group_ids, at = read_strings(data, at, True)
        (include_authorized_operations,) = _BOOL.unpack_from(data, at)
        at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_ids, include_authorized_operations), at

    def write(self, out: bytearray, version: int) -> None:
        write_strings(out, self.group_ids, True)
        out += _BOOL.pack(self.include_authorized_operations)
        out.append(0)

    def error_response(self, version: int, code: Code) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(
            groups=[DescribedGroup(group_id=row, error_code=code) for row in self.group_ids]
        )


class TopicPartitions(Message):
    """The partitions, topic by topic.

    topic_id: The topic.
    topic_name: Its name.
    partitions: Its partitions.
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
    """What it has.

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


class Member(Message):
    """Its members.

    member_id: The member.
    instance_id: The name of a static member.
    rack_id: Its rack.
    member_epoch: Its epoch.
    client_id: The id of its client.
    client_host: The address of its client.
    subscribed_topic_names: The topics that it wants by name.
    subscribed_topic_regex: The pattern of the topics that it wants.
    assignment: What it has.
    target_assignment: What it is to have.
    member_type (version 1): 0 a classic member, 1 one of the consumer protocol, -1 not known.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "member_epoch",
        "member_id",
        "member_type",
        "rack_id",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "target_assignment",
    )

    def __init__(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        rack_id: str | None = None,
        member_epoch: int = 0,
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] | None = None,
        subscribed_topic_regex: str | None = None,
        assignment: Assignment | None = None,
        target_assignment: Assignment | None = None,
        member_type: int = -1,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.member_epoch = member_epoch
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names: list[str] = (
            [] if subscribed_topic_names is None else subscribed_topic_names
        )
        self.subscribed_topic_regex = subscribed_topic_regex
        self.assignment: Assignment = Assignment() if assignment is None else assignment
        self.target_assignment: Assignment = (
            Assignment() if target_assignment is None else target_assignment
        )
        self.member_type = member_type

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Member, int]:
        member_id, at = read_string(data, at, True)
        instance_id, at = read_nullable_string(data, at, True)
        rack_id, at = read_nullable_string(data, at, True)
        (member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        client_id, at = read_string(data, at, True)
        client_host, at = read_string(data, at, True)
        subscribed_topic_names, at = read_strings(data, at, True)
        subscribed_topic_regex, at = read_nullable_string(data, at, True)
        assignment, at = Assignment.read(data, at, version)
        target_assignment, at = Assignment.read(data, at, version)
        member_type = -1
        if version >= 1:
            (member_type,) = _INT8.unpack_from(data, at)
            at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            member_id,
            instance_id,
            rack_id,
            member_epoch,
            client_id,
            client_host,
            subscribed_topic_names,
            subscribed_topic_regex,
            assignment,
            target_assignment,
            member_type,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.member_id, True)
        write_nullable_string(out, self.instance_id, True)
        write_nullable_string(out, self.rack_id, True)
        out += _INT32.pack(self.member_epoch)
        write_string(out, self.client_id, True)
        write_string(out, self.client_host, True)
        write_strings(out, self.subscribed_topic_names, True)
        write_nullable_string(out, self.subscribed_topic_regex, True)
        self.assignment.write(out, version)
        self.target_assignment.write(out, version)
        if version >= 1:
            out += _INT8.pack(self.member_type)
        out.append(0)


class DescribedGroup(Message):
    """The groups.

    error_code: The error, or 0.
    error_message: What is wrong, in words.
    group_id: The group.
    group_state: Its state, or empty.
    group_epoch: Its epoch.
    assignment_epoch: The epoch of its target assignment.
    assignor_name: The assignor that it uses.
    members: Its members.
    authorized_operations: What the client may do with the group, one bit an operation.
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


class ConsumerGroupDescribeResponse(Message):
    """The response.

    throttle_time_ms: How long the request was held back for a quota.
    groups: The groups.
    """

    __slots__ = ("groups", "throttle_time_ms")
    API_KEY: ClassVar[int] = 69
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self, throttle_time_ms: int = 0, groups: list[DescribedGroup] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribedGroup] = [] if groups is None else groups

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ConsumerGroupDescribeResponse, int]:
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        groups, at = read_structs(data, at, True, DescribedGroup.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, groups), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.groups, True, version)
        out.append(0)
