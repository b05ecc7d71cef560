"""DescribeAcls, API key 29: versions 0 to 3, flexible from 2.

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

_INT32_INT16 = struct.Struct(">ih")
_INT8 = struct.Struct(">b")
_INT8_2_TIMES = struct.Struct(">bb")


class DescribeAclsRequest(Message):
    """The request.

    resource_type_filter: The resource type.
    resource_name_filter: The resource name, or null to match any resource name.
    pattern_type_filter (from version 1): The resource pattern to match.
    principal_filter: The principal to match, or null to match any principal.
    host_filter: The host to match, or null to match any host.
    operation: The operation to match.
    permission_type: The permission type to match.
    """

    __slots__ = (
        "host_filter",
        "operation",
        "pattern_type_filter",
        "permission_type",
        "principal_filter",
        "resource_name_filter",
        "resource_type_filter",
    )
    API_KEY: ClassVar[int] = 29
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self,
        resource_type_filter: int = 0,
        resource_name_filter: str | None = "",
        pattern_type_filter: int = 3,
        principal_filter: str | None = "",
        host_filter: str | None = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.resource_type_filter = resource_type_filter
        self.resource_name_filter = resource_name_filter
        self.pattern_type_filter = pattern_type_filter
        self.principal_filter = principal_filter
        self.host_filter = host_filter
        self.operation = operation
        self.permission_type = permission_type

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeAclsRequest, int]:
        compact = version >= 2
        (resource_type_filter,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name_filter, at = read_nullable_string(data, at, compact)
        pattern_type_filter = 3
        if version >= 1:
            (pattern_type_filter,) = _INT8.unpack_from(data, at)
            at += 1
        principal_filter, at = read_nullable_string(data, at, compact)
        host_filter, at = read_nullable_string(data, at, compact)
        operation, permission_type = _INT8_2_TIMES.unpack_from(data, at)
        at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            resource_type_filter,
            resource_name_filter,
            pattern_type_filter,
            principal_filter,
            host_filter,
            operation,
            permission_type,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT8.pack(self.resource_type_filter)
        write_nullable_string(out, self.resource_name_filter, compact)
        if version >= 1:
            out += _INT8.pack(self.pattern_type_filter)
        elif self.pattern_type_filter != 3:
            refuse_value("pattern_type_filter", version)
        write_nullable_string(out, self.principal_filter, compact)
        write_nullable_string(out, self.host_filter, compact)
        out += _INT8_2_TIMES.pack(self.operation, self.permission_type)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeAclsResponse:
        return DescribeAclsResponse(error_code=code, error_message=None)


class AclDescription(Message):
    """The ACLs.

    principal: The ACL principal.
    host: The ACL host.
    operation: The ACL operation.
    permission_type: The ACL permission type.
    """

    __slots__ = ("host", "operation", "permission_type", "principal")

    def __init__(
        self, principal: str = "", host: str = "", operation: int = 0, permission_type: int = 0
    ) -> None:
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AclDescription, int]:
        compact = version >= 2
        principal, at = read_string(data, at, compact)
        host, at = read_string(data, at, compact)
        operation, permission_type = _INT8_2_TIMES.unpack_from(data, at)
        at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(principal, host, operation, permission_type), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.principal, compact)
        write_string(out, self.host, compact)
        out += _INT8_2_TIMES.pack(self.operation, self.permission_type)
        if compact:
            out.append(0)


class DescribeAclsResource(Message):
    """Each Resource that is referenced in an ACL.

    resource_type: The resource type.
    resource_name: The resource name.
    pattern_type (from version 1): The resource pattern type.
    acls: The ACLs.
    """

    __slots__ = ("acls", "pattern_type", "resource_name", "resource_type")

    def __init__(
        self,
        resource_type: int = 0,
        resource_name: str = "",
        pattern_type: int = 3,
        acls: list[AclDescription] | None = None,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.pattern_type = pattern_type
        self.acls: list[AclDescription] = [] if acls is None else acls

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeAclsResource, int]:
        compact = version >= 2
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, compact)
        pattern_type = 3
        if version >= 1:
            (pattern_type,) = _INT8.unpack_from(data, at)
            at += 1
        acls, at = read_structs(data, at, compact, AclDescription.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(resource_type, resource_name, pattern_type, acls), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT8.pack(self.resource_type)
        write_string(out, self.resource_name, compact)
        if version >= 1:
            out += _INT8.pack(self.pattern_type)
        elif self.pattern_type != 3:
            refuse_value("pattern_type", version)
        write_structs(out, self.acls, compact, version)
        if compact:
            out.append(0)


class DescribeAclsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code: The error code, or 0 if there was no error.
    error_message: The error message, or null if there was no error.
    resources: Each Resource that is referenced in an ACL.
    """

    __slots__ = ("error_code", "error_message", "resources", "throttle_time_ms")
    API_KEY: ClassVar[int] = 29
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        resources: list[DescribeAclsResource] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.resources: list[DescribeAclsResource] = [] if resources is None else resources

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeAclsResponse, int]:
        compact = version >= 2
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, compact)
        resources, at = read_structs(data, at, compact, DescribeAclsResource.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, error_message, resources), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, compact)
        write_structs(out, self.resources, compact, version)
        if compact:
            out.append(0)
