"""Heartbeat, API key 12: versions 0 to 4, flexible from 4.

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
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_string,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class HeartbeatRequest(Message):
    """The request.

    group_id: The group id.
    generation_id: The generation of the group.
    member_id: The member ID.
    group_instance_id (from version 3): The unique identifier of the consumer instance provided
        by end user.
    """

    __slots__ = ("generation_id", "group_id", "group_instance_id", "member_id")
    API_KEY: ClassVar[int] = 12
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    def __init__(
        self,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[HeartbeatRequest, int]:
        compact = version >= 4
        group_id, at = read_string(data, at, compact)
        (generation_id,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_string(data, at, compact)
        group_instance_id: str | None = None
        if version >= 3:
            group_instance_id, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, generation_id, member_id, group_instance_id), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        write_string(out, self.group_id, compact)
        out += _INT32.pack(self.generation_id)
        write_string(out, self.member_id, compact)
        if version >= 3:
            write_nullable_string(out, self.group_instance_id, compact)
        elif self.group_instance_id is not None:
            refuse_value("group_instance_id", version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=code)


class HeartbeatResponse(Message):
    """The response.

    throttle_time_ms (from version 1): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    error_code: The error code, or 0 if there was no error.
    """

    __slots__ = ("error_code", "throttle_time_ms")
    API_KEY: ClassVar[int] = 12
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    def __init__(self, throttle_time_ms: int = 0, error_code: int = 0) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[HeartbeatResponse, int]:
        compact = version >= 4
        throttle_time_ms = 0
        if version >= 1:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if version >= 1:
            out += _INT32.pack(self.throttle_time_ms)
        out += _INT16.pack(self.error_code)
        if compact:
            out.append(0)
