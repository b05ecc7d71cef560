"""DeleteAcls, API key 31: versions 0 to 3, flexible from 2.

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


class DeleteAclsFilter(Message):
    """The filters to use when deleting ACLs.

    resource_type_filter: The resource type.
    resource_name_filter: The resource name, or null to match any resource name.
    pattern_type_filter (from version 1): The pattern type.
    principal_filter: The principal filter, or null to accept all principals.
    host_filter: The host filter, or null to accept all hosts.
    operation: The ACL operation.
    permission_type: The permission type.
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteAclsFilter, int]:
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


class DeleteAclsRequest(Message):
    """The request.

    filters: The filters to use when deleting ACLs.
    """

    __slots__ = ("filters",)
    API_KEY: ClassVar[int] = 31
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2
    ROWS: ClassVar[dict[str, str]] = {"filters": "filter_results"}

    def __init__(self, filters: list[DeleteAclsFilter] | None = None) -> None:
        self.filters: list[DeleteAclsFilter] = [] if filters is None else filters

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteAclsRequest, int]:
        compact = version >= 2
        filters, at = read_structs(data, at, compact, DeleteAclsFilter.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(filters), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_structs(out, self.filters, compact, version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> DeleteAclsResponse:
        return DeleteAclsResponse(
            filter_results=[DeleteAclsFilterResult(code, None) for _ in self.filters]
        )


class DeleteAclsMatchingAcl(Message):
    """The ACLs which matched this filter.

    error_code: The deletion error code, or 0 if the deletion succeeded.
    error_message: The deletion error message, or null if the deletion succeeded.
    resource_type: The ACL resource type.
    resource_name: The ACL resource name.
    pattern_type (from version 1): The ACL resource pattern type.
    principal: The ACL principal.
    host: The ACL host.
    operation: The ACL operation.
    permission_type: The ACL permission type.
    """

    __slots__ = (
        "error_code",
        "error_message",
        "host",
        "operation",
        "pattern_type",
        "permission_type",
        "principal",
        "resource_name",
        "resource_type",
    )

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
        pattern_type: int = 3,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.pattern_type = pattern_type
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteAclsMatchingAcl, int]:
        compact = version >= 2
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, compact)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, compact)
        pattern_type = 3
        if version >= 1:
            (pattern_type,) = _INT8.unpack_from(data, at)
            at += 1
        principal, at = read_string(data, at, compact)
        host, at = read_string(data, at, compact)
        operation, permission_type = _INT8_2_TIMES.unpack_from(data, at)
        at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            error_code,
            error_message,
            resource_type,
            resource_name,
            pattern_type,
            principal,
            host,
            operation,
            permission_type,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, compact)
        out += _INT8.pack(self.resource_type)
        write_string(out, self.resource_name, compact)
        if version >= 1:
            out += _INT8.pack(self.pattern_type)
        elif self.pattern_type != 3:
            refuse_value("pattern_type", version)
        write_string(out, self.principal, compact)
        write_string(out, self.host, compact)
        out += _INT8_2_TIMES.pack(self.operation, self.permission_type)
        if compact:
            out.append(0)


class DeleteAclsFilterResult(Message):
    """The results for each filter.

    error_code: The error code, or 0 if the filter succeeded.
    error_message: The error message, or null if the filter succeeded.
    matching_acls: The ACLs which matched this filter.
    """

    __slots__ = ("error_code", "error_message", "matching_acls")

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        matching_acls: list[DeleteAclsMatchingAcl] | None = None,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.matching_acls: list[DeleteAclsMatchingAcl] = (
            [] if matching_acls is None else matching_acls
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteAclsFilterResult, int]:
        compact = version >= 2
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, compact)
        matching_acls, at = read_structs(data, at, compact, DeleteAclsMatchingAcl.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(error_code, error_message, matching_acls), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, compact)
        write_structs(out, self.matching_acls, compact, version)
        if compact:
            out.append(0)


class DeleteAclsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    filter_results: The results for each filter.
    """

    __slots__ = ("filter_results", "throttle_time_ms")
    API_KEY: ClassVar[int] = 31
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self, throttle_time_ms: int = 0, filter_results: list[DeleteAclsFilterResult] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.filter_results: list[DeleteAclsFilterResult] = (
            [] if filter_results is None else filter_results
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteAclsResponse, int]:
        compact = version >= 2
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        filter_results, at = read_structs(data, at, compact, DeleteAclsFilterResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, filter_results), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.filter_results, compact, version)
        if compact:
            out.append(0)
