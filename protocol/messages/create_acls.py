"""CreateAcls, API key 30: versions 0 to 3, flexible from 2.

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
_INT8 = struct.Struct(">b")
_INT8_2_TIMES = struct.Struct(">bb")


class AclCreation(Message):
    """The ACLs that we want to create.

    resource_type: The type of the resource.
    resource_name: The resource name for the ACL.
    resource_pattern_type (from version 1): The pattern type for the ACL.
    principal: The principal for the ACL.
    host: The host for the ACL.
    operation: The operation type for the ACL (read, write, etc.).
    permission_type: The permission type for the ACL (allow, deny, etc.).
    """

    __slots__ = (
        "host",
        "operation",
        "permission_type",
        "principal",
        "resource_name",
        "resource_pattern_type",
        "resource_type",
    )

    def __init__(
        self,
        resource_type: int = 0,
        resource_name: str = "",
        resource_pattern_type: int = 3,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.resource_pattern_type = resource_pattern_type
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AclCreation, int]:
        compact = version >= 2
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, compact)
        resource_pattern_type = 3
        if version >= 1:
            (resource_pattern_type,) = _INT8.unpack_from(data, at)
            at += 1
        principal, at = read_string(data, at, compact)
        host, at = read_string(data, at, compact)
        operation, permission_type = _INT8_2_TIMES.unpack_from(data, at)
        at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            resource_type,
            resource_name,
            resource_pattern_type,
            principal,
            host,
            operation,
            permission_type,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT8.pack(self.resource_type)
        write_string(out, self.resource_name, compact)
        if version >= 1:
            out += _INT8.pack(self.resource_pattern_type)
        elif self.resource_pattern_type != 3:
            refuse_value("resource_pattern_type", version)
        write_string(out, self.principal, compact)
        write_string(out, self.host, compact)
        out += _INT8_2_TIMES.pack(self.operation, self.permission_type)
        if compact:
            out.append(0)


class CreateAclsRequest(Message):
    """The request.

    creations: The ACLs that we want to create.
    """

    __slots__ = ("creations",)
    API_KEY: ClassVar[int] = 30
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2
    ROWS: ClassVar[dict[str, str]] = {"creations": "results"}

    def __init__(self, creations: list[AclCreation] | None = None) -> None:
        self.creations: list[AclCreation] = [] if creations is None else creations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreateAclsRequest, int]:
        compact = version >= 2
        creations, at = read_structs(data, at, compact, AclCreation.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(creations), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_structs(out, self.creations, compact, version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> CreateAclsResponse:
        return CreateAclsResponse(results=[AclCreationResult(code, None) for _ in self.creations])


class AclCreationResult(Message):
    """The results for each ACL creation.

    error_code: The result error, or zero if there was no error.
    error_message: The result message, or null if there was no error.
    """

    __slots__ = ("error_code", "error_message")

    def __init__(self, error_code: int = 0, error_message: str | None = "") -> None:
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AclCreationResult, int]:
        compact = version >= 2
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, compact)
        if compact:
            out.append(0)


class CreateAclsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    results: The results for each ACL creation.
    """

    __slots__ = ("results", "throttle_time_ms")
    API_KEY: ClassVar[int] = 30
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self, throttle_time_ms: int = 0, results: list[AclCreationResult] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[AclCreationResult] = [] if results is None else results

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreateAclsResponse, int]:
        compact = version >= 2
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        results, at = read_structs(data, at, compact, AclCreationResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, results), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.results, compact, version)
        if compact:
            out.append(0)
