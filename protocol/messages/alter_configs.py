"""AlterConfigs, API key 33: versions 0 to 2, flexible from 2.

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
    skip_tags,
    write_nullable_string,
    write_string,
    write_structs,
)

_BOOL = struct.Struct(">?")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT8 = struct.Struct(">b")


class AlterableConfig(Message):
    """The configurations.

    name: The configuration key name.
    value: The value to set for the configuration key.
    """

    __slots__ = ("name", "value")

    def __init__(self, name: str = "", value: str | None = "") -> None:
        self.name = name
        self.value = value

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterableConfig, int]:
        compact = version >= 2
        name, at = read_string(data, at, compact)
        value, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, value), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.name, compact)
        write_nullable_string(out, self.value, compact)
        if compact:
            out.append(0)


class AlterConfigsResource(Message):
    """The updates for each resource.

    resource_type: The resource type.
    resource_name: The resource name.
    configs: The configurations.
    """

    __slots__ = ("configs", "resource_name", "resource_type")

    def __init__(
        self,
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[AlterableConfig] | None = None,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs: list[AlterableConfig] = [] if configs is None else configs

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterConfigsResource, int]:
        compact = version >= 2
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, compact)
        configs, at = read_structs(data, at, compact, AlterableConfig.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(resource_type, resource_name, configs), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT8.pack(self.resource_type)
        write_string(out, self.resource_name, compact)
        write_structs(out, self.configs, compact, version)
        if compact:
            out.append(0)


class AlterConfigsRequest(Message):
    """The request.

    resources: The updates for each resource.
    validate_only: True if we should validate the request, but not change the configurations.
    """

    __slots__ = ("resources", "validate_only")
    API_KEY: ClassVar[int] = 33
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2
    ROWS: ClassVar[dict[str, str]] = {"resources": "responses"}

    def __init__(
        self, resources: list[AlterConfigsResource] | None = None, validate_only: bool = False
    ) -> None:
        self.resources: list[AlterConfigsResource] = [] if resources is None else resources
        self.validate_only = validate_only

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterConfigsRequest, int]:
        compact = version >= 2
        resources, at = read_structs(data, at, compact, AlterConfigsResource.read, version)
        (validate_only,) = _BOOL.unpack_from(data, at)
        at += 1
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(resources, validate_only), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_structs(out, self.resources, compact, version)
        out += _BOOL.pack(self.validate_only)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> AlterConfigsResponse:
        return AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(code, None, row.resource_type, row.resource_name)
                for row in self.resources
            ]
        )


class AlterConfigsResourceResponse(Message):
    """The responses for each resource.

    error_code: The resource error code.
    error_message: The resource error message, or null if there was no error.
    resource_type: The resource type.
    resource_name: The resource name.
    """

    __slots__ = ("error_code", "error_message", "resource_name", "resource_type")

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterConfigsResourceResponse, int]:
        compact = version >= 2
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, compact)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(error_code, error_message, resource_type, resource_name), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, compact)
        out += _INT8.pack(self.resource_type)
        write_string(out, self.resource_name, compact)
        if compact:
            out.append(0)


class AlterConfigsResponse(Message):
    """The response.

    throttle_time_ms: Duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    responses: The responses for each resource.
    """

    __slots__ = ("responses", "throttle_time_ms")
    API_KEY: ClassVar[int] = 33
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self, throttle_time_ms: int = 0, responses: list[AlterConfigsResourceResponse] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses: list[AlterConfigsResourceResponse] = [] if responses is None else responses

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterConfigsResponse, int]:
        compact = version >= 2
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        responses, at = read_structs(data, at, compact, AlterConfigsResourceResponse.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, responses), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.responses, compact, version)
        if compact:
            out.append(0)
