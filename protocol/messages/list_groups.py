"""ListGroups, API key 16: versions 0 to 5, flexible from 3.

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
    refuse_value,
    skip_tags,
    write_string,
    write_strings,
    write_structs,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class ListGroupsRequest(Message):
    """The request.

    states_filter (from version 4): The states of the groups we want to list. If empty, all
        groups are returned with their state.
    types_filter (version 5): The types of the groups we want to list. If empty, all groups are
        returned with their type.
    """

    __slots__ = ("states_filter", "types_filter")
    API_KEY: ClassVar[int] = 16
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    def __init__(
        self, states_filter: list[str] | None = None, types_filter: list[str] | None = None
    ) -> None:
        self.states_filter: list[str] = [] if states_filter is None else states_filter
        self.types_filter: list[str] = [] if types_filter is None else types_filter

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListGroupsRequest, int]:
        compact = version >= 3
        states_filter: list[str] = []
        if version >= 4:
            states_filter, at = read_strings(data, at, compact)
        types_filter: list[str] = []
        if version >= 5:
            types_filter, at = read_strings(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(states_filter, types_filter), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        if version >= 4:
            write_strings(out, self.states_filter, compact)
        elif self.states_filter != []:
            refuse_value("states_filter", version)
        if version >= 5:
            write_strings(out, self.types_filter, compact)
        elif self.types_filter != []:
            refuse_value("types_filter", version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> ListGroupsResponse:
        return ListGroupsResponse(error_code=code)


class ListedGroup(Message):
    """Each group in the response.

    group_id: The group ID.
    protocol_type: The group protocol type.
    group_state (from version 4): The group state name.
    group_type (version 5): The group type name.
    """

    __slots__ = ("group_id", "group_state", "group_type", "protocol_type")

    def __init__(
        self,
        group_id: str = "",
        protocol_type: str = "",
        group_state: str = "",
        group_type: str = "",
    ) -> None:
        self.group_id = group_id
        self.protocol_type = protocol_type
        self.group_state = group_state
        self.group_type = group_type

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListedGroup, int]:
        compact = version >= 3
        group_id, at = read_string(data, at, compact)
        protocol_type, at = read_string(data, at, compact)
        group_state = ""
        if version >= 4:
            group_state, at = read_string(data, at, compact)
        group_type = ""
        if version >= 5:
            group_type, at = read_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, protocol_type, group_state, group_type), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        write_string(out, self.group_id, compact)
        write_string(out, self.protocol_type, compact)
        if version >= 4:
            write_string(out, self.group_state, compact)
        if version >= 5:
            write_string(out, self.group_type, compact)
        if compact:
            out.append(0)


class ListGroupsResponse(Message):
    """The response.

    throttle_time_ms (from version 1): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    error_code: The error code, or 0 if there was no error.
    groups: Each group in the response.
    """

    __slots__ = ("error_code", "groups", "throttle_time_ms")
    API_KEY: ClassVar[int] = 16
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        groups: list[ListedGroup] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.groups: list[ListedGroup] = [] if groups is None else groups

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListGroupsResponse, int]:
        compact = version >= 3
        throttle_time_ms = 0
        if version >= 1:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        groups, at = read_structs(data, at, compact, ListedGroup.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, groups), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        if version >= 1:
            out += _INT32.pack(self.throttle_time_ms)
        out += _INT16.pack(self.error_code)
        write_structs(out, self.groups, compact, version)
        if compact:
            out.append(0)
