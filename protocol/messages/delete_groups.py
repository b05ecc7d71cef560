"""DeleteGroups, API key 42: versions 0 to 2, flexible from 2.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_string,
    read_strings,
    read_structs,
    skip_tags,
    write_string,
    write_strings,
    write_structs,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class DeleteGroupsRequest(Message):
    """The request.

    groups_names: The group names to delete.
    """

    __slots__ = ("groups_names",)
    API_KEY: ClassVar[int] = 42
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2
    ROWS: ClassVar[dict[str, str]] = {"groups_names": "results"}

    def __init__(self, groups_names: list[str] | None = None) -> None:
        self.groups_names: list[str] = [] if groups_names is None else groups_names

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteGroupsRequest, int]:
        compact = version >= 2
        groups_names, at = read_strings(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(groups_names), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_strings(out, self.groups_names, compact)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(row, code) for row in self.groups_names]
        )


class DeletableGroupResult(Message):
    """The deletion results.

    group_id: The group id.
    error_code: The deletion error, or 0 if the deletion succeeded.
    """

    __slots__ = ("error_code", "group_id")

    def __init__(self, group_id: str = "", error_code: int = 0) -> None:
        self.group_id = group_id
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeletableGroupResult, int]:
        compact = version >= 2
        group_id, at = read_string(data, at, compact)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.group_id, compact)
        out += _INT16.pack(self.error_code)
        if compact:
            out.append(0)


class DeleteGroupsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    results: The deletion results.
    """

    __slots__ = ("results", "throttle_time_ms")
    API_KEY: ClassVar[int] = 42
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self, throttle_time_ms: int = 0, results: list[DeletableGroupResult] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[DeletableGroupResult] = [] if results is None else results

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteGroupsResponse, int]:
        compact = version >= 2
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        results, at = read_structs(data, at, compact, DeletableGroupResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, results), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.results, compact, version)
        if compact:
            out.append(0)
