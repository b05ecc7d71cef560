"""JoinGroup, API key 11: versions 0 to 9, flexible from 6.

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
    refuse_null,
    refuse_value,
    skip_tags,
    write_bytes,
    write_nullable_string,
    write_string,
    write_structs,
)

_BOOL = struct.Struct(">?")
_INT16_INT32 = struct.Struct(">hi")
_INT32 = struct.Struct(">i")


class JoinGroupRequestProtocol(Message):
    """The list of protocols that the member supports.

    name: The protocol name.
    metadata: The protocol metadata.
    """

    __slots__ = ("metadata", "name")

    def __init__(self, name: str = "", metadata: bytes = b"") -> None:
        self.name = name
        self.metadata = metadata

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[JoinGroupRequestProtocol, int]:
        compact = version >= 6
        name, at = read_string(data, at, compact)
        metadata, at = read_bytes(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, metadata), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        write_string(out, self.name, compact)
        write_bytes(out, self.metadata, compact)
        if compact:
            out.append(0)


class JoinGroupRequest(Message):
    """The request.

    group_id: The group identifier.
    session_timeout_ms: The coordinator considers the consumer dead if it receives no heartbeat
        after this timeout in milliseconds.
    rebalance_timeout_ms (from version 1): The maximum time in milliseconds that the coordinator
        will wait for each member to rejoin when rebalancing the group.
    member_id: The member id assigned by the group coordinator.
    group_instance_id (from version 5): The unique identifier of the consumer instance provided
        by end user.
    protocol_type: The unique name the for class of protocols implemented by the group we want
        to join.
    protocols: The list of protocols that the member supports.
    reason (from version 8): The reason why the member (re-)joins the group.
    """

    __slots__ = (
        "group_id",
        "group_instance_id",
        "member_id",
        "protocol_type",
        "protocols",
        "reason",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )
    API_KEY: ClassVar[int] = 11
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 9
    FLEXIBLE_FROM: ClassVar[int] = 6

    def __init__(
        self,
        group_id: str = "",
        session_timeout_ms: int = 0,
        rebalance_timeout_ms: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str = "",
        protocols: list[JoinGroupRequestProtocol] | None = None,
        reason: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.protocol_type = protocol_type
        self.protocols: list[JoinGroupRequestProtocol] = [] if protocols is None else protocols
        self.reason = reason

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[JoinGroupRequest, int]:
        compact = version >= 6
        group_id, at = read_string(data, at, compact)
        (session_timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        rebalance_timeout_ms = -1
        if version >= 1:
            (rebalance_timeout_ms,) = _INT32.unpack_from(data, at)
            at += 4
        member_id, at = read_string(data, at, compact)
        group_instance_id: str | None = None
        if version >= 5:
            group_instance_id, at = read_nullable_string(data, at, compact)
        protocol_type, at = read_string(data, at, compact)
        protocols, at = read_structs(data, at, compact, JoinGroupRequestProtocol.read, version)
        reason: str | None = None
        if version >= 8:
            reason, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            group_id,
            session_timeout_ms,
            rebalance_timeout_ms,
            member_id,
            group_instance_id,
            protocol_type,
            protocols,
            reason,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        write_string(out, self.group_id, compact)
        out += _INT32.pack(self.session_timeout_ms)
        if version >= 1:
            out += _INT32.pack(self.rebalance_timeout_ms)
        write_string(out, self.member_id, compact)
        if version >= 5:
            write_nullable_string(out, self.group_instance_id, compact)
        elif self.group_instance_id is not None:
            refuse_value("group_instance_id", version)
        write_string(out, self.protocol_type, compact)
        write_structs(out, self.protocols, compact, version)
        if version >= 8:
            write_nullable_string(out, self.reason, compact)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> JoinGroupResponse:
        if version <= 6:
            return JoinGroupResponse(error_code=code)
        return JoinGroupResponse(error_code=code, protocol_name=None)


class JoinGroupResponseMember(Message):
    """The group members.

    member_id: The group member ID.
    group_instance_id (from version 5): The unique identifier of the consumer instance provided
        by end user.
    metadata: The group member metadata.
    """

    __slots__ = ("group_instance_id", "member_id", "metadata")

    def __init__(
        self, member_id: str = "", group_instance_id: str | None = None, metadata: bytes = b""
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.metadata = metadata

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[JoinGroupResponseMember, int]:
        compact = version >= 6
        member_id, at = read_string(data, at, compact)
        group_instance_id: str | None = None
        if version >= 5:
            group_instance_id, at = read_nullable_string(data, at, compact)
        metadata, at = read_bytes(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(member_id, group_instance_id, metadata), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        write_string(out, self.member_id, compact)
        if version >= 5:
            write_nullable_string(out, self.group_instance_id, compact)
        write_bytes(out, self.metadata, compact)
        if compact:
            out.append(0)


class JoinGroupResponse(Message):
    """The response.

    throttle_time_ms (from version 2): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    error_code: The error code, or 0 if there was no error.
    generation_id: The generation ID of the group.
    protocol_type (from version 7): The group protocol name.
    protocol_name: The group protocol selected by the coordinator.
    leader: The leader of the group.
    skip_assignment (version 9): True if the leader must skip running the assignment.
    member_id: The member ID assigned by the group coordinator.
    members: The group members.
    """

    __slots__ = (
        "error_code",
        "generation_id",
        "leader",
        "member_id",
        "members",
        "protocol_name",
        "protocol_type",
        "skip_assignment",
        "throttle_time_ms",
    )
    API_KEY: ClassVar[int] = 11
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 9
    FLEXIBLE_FROM: ClassVar[int] = 6

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        generation_id: int = -1,
        protocol_type: str | None = None,
        protocol_name: str | None = "",
        leader: str = "",
        skip_assignment: bool = False,
        member_id: str = "",
        members: list[JoinGroupResponseMember] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader = leader
        self.skip_assignment = skip_assignment
        self.member_id = member_id
        self.members: list[JoinGroupResponseMember] = [] if members is None else members

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[JoinGroupResponse, int]:
        compact = version >= 6
        throttle_time_ms = 0
        if version >= 2:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        error_code, generation_id = _INT16_INT32.unpack_from(data, at)
        at += 6
        protocol_type: str | None = None
        if version >= 7:
            protocol_type, at = read_nullable_string(data, at, compact)
        protocol_name, at = read_nullable_string(data, at, compact)
        if protocol_name is None and not (version >= 7):
            refuse_null("protocol_name", version)
        leader, at = read_string(data, at, compact)
        skip_assignment = False
        if version >= 9:
            (skip_assignment,) = _BOOL.unpack_from(data, at)
            at += 1
        member_id, at = read_string(data, at, compact)
        members, at = read_structs(data, at, compact, JoinGroupResponseMember.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            throttle_time_ms,
            error_code,
            generation_id,
            protocol_type,
            protocol_name,
            leader,
            skip_assignment,
            member_id,
            members,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if version >= 2:
            out += _INT32.pack(self.throttle_time_ms)
        out += _INT16_INT32.pack(self.error_code, self.generation_id)
        if version >= 7:
            write_nullable_string(out, self.protocol_type, compact)
        if self.protocol_name is None and not (version >= 7):
            refuse_value("protocol_name", version)
        write_nullable_string(out, self.protocol_name, compact)
        write_string(out, self.leader, compact)
        if version >= 9:
            out += _BOOL.pack(self.skip_assignment)
        elif self.skip_assignment:
            refuse_value("skip_assignment", version)
        write_string(out, self.member_id, compact)
        write_structs(out, self.members, compact, version)
        if compact:
            out.append(0)
