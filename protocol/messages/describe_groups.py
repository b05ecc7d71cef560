"""DescribeGroups, API key 15: versions 0 to 6, flexible from 5.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_bytes,
    read_nullable_string,
    read_string,
    read_strings,
    read_structs,
    refuse_value,
    skip_tags,
    write_bytes,
    write_nullable_string,
    write_string,
    write_strings,
    write_structs,
)

_BOOL = struct.Struct(">?")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class DescribeGroupsRequest(Message):
    """The request.

    groups: The names of the groups to describe.
    include_authorized_operations (from version 3): Whether to include authorized operations.
    """

    __slots__ = ("groups", "include_authorized_operations")
    API_KEY: ClassVar[int] = 15
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 5
    ROWS: ClassVar[dict[str, str]] = {"groups": "groups"}

    def __init__(
        self, groups: list[str] | None = None, include_authorized_operations: bool = False
    ) -> None:
        self.groups: list[str] = [] if groups is None else groups
        self.include_authorized_operations = include_authorized_operations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeGroupsRequest, int]:
        compact = version >= 5
        groups, at = read_strings(data, at, compact)
        include_authorized_operations = False
        if version >= 3:
            (include_authorized_operations,) = _BOOL.unpack_from(data, at)
            at += 1
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(groups, include_authorized_operations), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 5
        write_strings(out, self.groups, compact)
        if version >= 3:
            out += _BOOL.pack(self.include_authorized_operations)
        elif self.include_authorized_operations:
            refuse_value("include_authorized_operations", version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=row, error_code=code) for row in self.groups]
        )


class DescribedGroupMember(Message):
    """The group members.

    member_id: The member id.
    group_instance_id (from version 4): The unique identifier of the consumer instance provided
        by end user.
    client_id: The client ID used in the member's latest join group request.
    client_host: The client host.
    member_metadata: The metadata corresponding to the current group protocol in use.
    member_assignment: The current assignment provided by the group leader.
    """

    __slots__ = (
        "client_host",
        "client_id",
        "group_instance_id",
        "member_assignment",
        "member_id",
        "member_metadata",
    )

    def __init__(
        self,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        member_metadata: bytes = b"",
        member_assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.member_metadata = member_metadata
        self.member_assignment = member_assignment

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribedGroupMember, int]:
        compact = version >= 5
        member_id, at = read_string(data, at, compact)
        group_instance_id: str | None = None
        if version >= 4:
            group_instance_id, at = read_nullable_string(data, at, compact)
        client_id, at = read_string(data, at, compact)
        client_host, at = read_string(data, at, compact)
        member_metadata, at = read_bytes(data, at, compact)
        member_assignment, at = read_bytes(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            member_id, group_instance_id, client_id, client_host, member_metadata, member_assignment
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 5
        write_string(out, self.member_id, compact)
        if version >= 4:
            write_nullable_string(out, self.group_instance_id, compact)
        write_string(out, self.client_id, compact)
        write_string(out, self.client_host, compact)
        write_bytes(out, self.member_metadata, compact)
        write_bytes(out, self.member_assignment, compact)
        if compact:
            out.append(0)


class DescribedGroup(Message):
    """Each described group.

    error_code: The describe error, or 0 if there was no error.
    error_message (version 6): The describe error message, or null if there was no error.
    group_id: The group ID string.
    group_state: The group state string, or the empty string.
    protocol_type: The group protocol type, or the empty string.
    protocol_data: The group protocol data, or the empty string.
    members: The group members.
    authorized_operations (from version 3): 32-bit bitfield to represent authorized operations
        for this group.
    """

    __slots__ = (
        "authorized_operations",
        "error_code",
        "error_message",
        "group_id",
        "group_state",
        "members",
        "protocol_data",
        "protocol_type",
    )

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        protocol_type: str = "",
        protocol_data: str = "",
        members: list[DescribedGroupMember] | None = None,
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.protocol_type = protocol_type
        self.protocol_data = protocol_data
        self.members: list[DescribedGroupMember] = [] if members is None else members
        self.authorized_operations = authorized_operations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribedGroup, int]:
        compact = version >= 5
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message: str | None = None
        if version >= 6:
            error_message, at = read_nullable_string(data, at, compact)
        group_id, at = read_string(data, at, compact)
        group_state, at = read_string(data, at, compact)
        protocol_type, at = read_string(data, at, compact)
        protocol_data, at = read_string(data, at, compact)
        members, at = read_structs(data, at, compact, DescribedGroupMember.read, version)
        authorized_operations = -2147483648
        if version >= 3:
            (authorized_operations,) = _INT32.unpack_from(data, at)
            at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            error_code,
            error_message,
            group_id,
            group_state,
            protocol_type,
            protocol_data,
            members,
            authorized_operations,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 5
        out += _INT16.pack(self.error_code)
        if version >= 6:
            write_nullable_string(out, self.error_message, compact)
        elif self.error_message is not None:
            refuse_value("error_message", version)
        write_string(out, self.group_id, compact)
        write_string(out, self.group_state, compact)
        write_string(out, self.protocol_type, compact)
        write_string(out, self.protocol_data, compact)
        write_structs(out, self.members, compact, version)
        if version >= 3:
            out += _INT32.pack(self.authorized_operations)
        elif self.authorized_operations != -2147483648:
            refuse_value("authorized_operations", version)
        if compact:
            out.append(0)


class DescribeGroupsResponse(Message):
    """The response.

    throttle_time_ms (from version 1): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    groups: Each described group.
    """

    __slots__ = ("groups", "throttle_time_ms")
    API_KEY: ClassVar[int] = 15
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 5

    def __init__(
        self, throttle_time_ms: int = 0, groups: list[DescribedGroup] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribedGroup] = [] if groups is None else groups

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeGroupsResponse, int]:
        compact = version >= 5
        throttle_time_ms = 0
        if version >= 1:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        groups, at = read_structs(data, at, compact, DescribedGroup.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, groups), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 5
        if version >= 1:
            out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.groups, compact, version)
        if compact:
            out.append(0)
