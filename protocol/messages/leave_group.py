"""LeaveGroup, API key 13: versions 0 to 5, flexible from 4.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_string,
    read_string,
    read_structs,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_string,
    write_structs,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class MemberIdentity(Message):
    """List of leaving member identities.

    member_id (from version 3): The member ID to remove from the group.
    group_instance_id (from version 3): The group instance ID to remove from the group.
    reason (version 5): The reason why the member left the group.
    """

    __slots__ = ("group_instance_id", "member_id", "reason")

    def __init__(
        self, member_id: str = "", group_instance_id: str | None = None, reason: str | None = None
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.reason = reason

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[MemberIdentity, int]:
        compact = version >= 4
        member_id = ""
        group_instance_id: str | None = None
        if version >= 3:
            member_id, at = read_string(data, at, compact)
            group_instance_id, at = read_nullable_string(data, at, compact)
        reason: str | None = None
        if version >= 5:
            reason, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(member_id, group_instance_id, reason), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if version >= 3:
            write_string(out, self.member_id, compact)
            write_nullable_string(out, self.group_instance_id, compact)
        elif self.member_id != "":
            refuse_value("member_id", version)
        elif self.group_instance_id is not None:
            refuse_value("group_instance_id", version)
        if version >= 5:
            write_nullable_string(out, self.reason, compact)
        if compact:
            out.append(0)


class LeaveGroupRequest(Message):
    """The request.

    group_id: The ID of the group to leave.
    member_id (versions 0 to 2): The member ID to remove from the group.
    members (from version 3): List of leaving member identities.
    """

    __slots__ = ("group_id", "member_id", "members")
    API_KEY: ClassVar[int] = 13
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4
    ROWS: ClassVar[dict[str, str]] = {"members": "members"}

    def __init__(
        self, group_id: str = "", member_id: str = "", members: list[MemberIdentity] | None = None
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.members: list[MemberIdentity] = [] if members is None else members

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[LeaveGroupRequest, int]:
        compact = version >= 4
        group_id, at = read_string(data, at, compact)
        member_id = ""
        if version <= 2:
            member_id, at = read_string(data, at, compact)
        members: list[MemberIdentity] = []
        if version >= 3:
            members, at = read_structs(data, at, compact, MemberIdentity.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, member_id, members), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        write_string(out, self.group_id, compact)
        if version <= 2:
            write_string(out, self.member_id, compact)
        elif self.member_id != "":
            refuse_value("member_id", version)
        if version >= 3:
            write_structs(out, self.members, compact, version)
        elif self.members != []:
            refuse_value("members", version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=code)


class MemberResponse(Message):
    """List of leaving member responses.

    member_id (from version 3): The member ID to remove from the group.
    group_instance_id (from version 3): The group instance ID to remove from the group.
    error_code (from version 3): The error code, or 0 if there was no error.
    """

    __slots__ = ("error_code", "group_instance_id", "member_id")

    def __init__(
        self, member_id: str = "", group_instance_id: str | None = "", error_code: int = 0
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[MemberResponse, int]:
        compact = version >= 4
        member_id = ""
        group_instance_id: str | None = ""
        error_code = 0
        if version >= 3:
            member_id, at = read_string(data, at, compact)
            group_instance_id, at = read_nullable_string(data, at, compact)
            (error_code,) = _INT16.unpack_from(data, at)
            at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(member_id, group_instance_id, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if version >= 3:
            write_string(out, self.member_id, compact)
            write_nullable_string(out, self.group_instance_id, compact)
            out += _INT16.pack(self.error_code)
        elif self.member_id != "":
            refuse_value("member_id", version)
        elif self.group_instance_id != "":
            refuse_value("group_instance_id", version)
        elif self.error_code != 0:
            refuse_value("error_code", version)
        if compact:
            out.append(0)


class LeaveGroupResponse(Message):
    """The response.

    throttle_time_ms (from version 1): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    error_code: The error code, or 0 if there was no error.
    members (from version 3): List of leaving member responses.
    """

    __slots__ = ("error_code", "members", "throttle_time_ms")
    API_KEY: ClassVar[int] = 13
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        members: list[MemberResponse] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.members: list[MemberResponse] = [] if members is None else members

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[LeaveGroupResponse, int]:
        compact = version >= 4
        throttle_time_ms = 0
        if version >= 1:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        members: list[MemberResponse] = []
        if version >= 3:
            members, at = read_structs(data, at, compact, MemberResponse.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, members), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if version >= 1:
            out += _INT32.pack(self.throttle_time_ms)
        out += _INT16.pack(self.error_code)
        if version >= 3:
            write_structs(out, self.members, compact, version)
        elif self.members != []:
            refuse_value("members", version)
        if compact:
            out.append(0)
