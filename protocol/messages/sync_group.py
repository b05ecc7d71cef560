"""SyncGroup, API key 14: versions 0 to 5, flexible from 4.

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
    read_structs,
    refuse_value,
    skip_tags,
    write_bytes,
    write_nullable_string,
    write_string,
    write_structs,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class SyncGroupRequestAssignment(Message):
    """Each assignment.

    member_id: The ID of the member to assign.
    assignment: The member assignment.
    """

    __slots__ = ("assignment", "member_id")

    def __init__(self, member_id: str = "", assignment: bytes = b"") -> None:
        self.member_id = member_id
        self.assignment = assignment

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[SyncGroupRequestAssignment, int]:
        compact = version >= 4
        member_id, at = read_string(data, at, compact)
        assignment, at = read_bytes(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(member_id, assignment), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        write_string(out, self.member_id, compact)
        write_bytes(out, self.assignment, compact)
        if compact:
            out.append(0)


class SyncGroupRequest(Message):
    """The request.

    group_id: The unique group identifier.
    generation_id: The generation of the group.
    member_id: The member ID assigned by the group.
    group_instance_id (from version 3): The unique identifier of the consumer instance provided
        by end user.
    protocol_type (version 5): The group protocol type.
    protocol_name (version 5): The group protocol name.
    assignments: Each assignment.
    """

    __slots__ = (
        "assignments",
        "generation_id",
        "group_id",
        "group_instance_id",
        "member_id",
        "protocol_name",
        "protocol_type",
    )
    API_KEY: ClassVar[int] = 14
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4

    def __init__(
        self,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignments: list[SyncGroupRequestAssignment] | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignments: list[SyncGroupRequestAssignment] = (
            [] if assignments is None else assignments
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[SyncGroupRequest, int]:
        compact = version >= 4
        group_id, at = read_string(data, at, compact)
        (generation_id,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_string(data, at, compact)
        group_instance_id: str | None = None
        if version >= 3:
            group_instance_id, at = read_nullable_string(data, at, compact)
        protocol_type: str | None = None
        protocol_name: str | None = None
        if version >= 5:
            protocol_type, at = read_nullable_string(data, at, compact)
            protocol_name, at = read_nullable_string(data, at, compact)
        assignments, at = read_structs(data, at, compact, SyncGroupRequestAssignment.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            group_id,
            generation_id,
            member_id,
            group_instance_id,
            protocol_type,
            protocol_name,
            assignments,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        write_string(out, self.group_id, compact)
        out += _INT32.pack(self.generation_id)
        write_string(out, self.member_id, compact)
        if version >= 3:
            write_nullable_string(out, self.group_instance_id, compact)
        elif self.group_instance_id is not None:
            refuse_value("group_instance_id", version)
        if version >= 5:
            write_nullable_string(out, self.protocol_type, compact)
            write_nullable_string(out, self.protocol_name, compact)
        write_structs(out, self.assignments, compact, version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> SyncGroupResponse:
        return SyncGroupResponse(error_code=code)


class SyncGroupResponse(Message):
    """The response.

    throttle_time_ms (from version 1): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    error_code: The error code, or 0 if there was no error.
    protocol_type (version 5): The group protocol type.
    protocol_name (version 5): The group protocol name.
    assignment: The member assignment.
    """

    __slots__ = ("assignment", "error_code", "protocol_name", "protocol_type", "throttle_time_ms")
    API_KEY: ClassVar[int] = 14
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignment: bytes = b"",
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignment = assignment

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[SyncGroupResponse, int]:
        compact = version >= 4
        throttle_time_ms = 0
        if version >= 1:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        protocol_type: str | None = None
        protocol_name: str | None = None
        if version >= 5:
            protocol_type, at = read_nullable_string(data, at, compact)
            protocol_name, at = read_nullable_string(data, at, compact)
        assignment, at = read_bytes(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, protocol_type, protocol_name, assignment), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if version >= 1:
            out += _INT32.pack(self.throttle_time_ms)
        out += _INT16.pack(self.error_code)
        if version >= 5:
            write_nullable_string(out, self.protocol_type, compact)
            write_nullable_string(out, self.protocol_name, compact)
        write_bytes(out, self.assignment, compact)
        if compact:
            out.append(0)
