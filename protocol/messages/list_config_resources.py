"""ListConfigResources, API key 74: versions 0 to 1, flexible from 0.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_numbers,
    read_string,
    read_structs,
    refuse_value,
    skip_tags,
    write_numbers,
    write_string,
    write_structs,
)

_INT32_INT16 = struct.Struct(">ih")
_INT8 = struct.Struct(">b")


class ListConfigResourcesRequest(Message):
    """The request.

    resource_types (version 1): The list of resource type. If the list is empty, it uses default
        supported config resource types.
    """

    __slots__ = ("resource_types",)
    API_KEY: ClassVar[int] = 74
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(self, resource_types: list[int] | None = None) -> None:
        self.resource_types: list[int] = [] if resource_types is None else resource_types

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListConfigResourcesRequest, int]:
        resource_types: list[int] = []
        if version >= 1:
            resource_types, at = read_numbers(data, at, True, "b")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(resource_types), at

    def write(self, out: bytearray, version: int) -> None:
        if version >= 1:
            write_numbers(out, self.resource_types, True, "b")
        elif self.resource_types != []:
            refuse_value("resource_types", version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> ListConfigResourcesResponse:
        return ListConfigResourcesResponse(error_code=code)


class ConfigResource(Message):
    """Each config resource in the response.

    resource_name: The resource name.
    resource_type (version 1): The resource type.
    """

    __slots__ = ("resource_name", "resource_type")

    def __init__(self, resource_name: str = "", resource_type: int = 16) -> None:
        self.resource_name = resource_name
        self.resource_type = resource_type

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ConfigResource, int]:
        resource_name, at = read_string(data, at, True)
        resource_type = 16
        if version >= 1:
            (resource_type,) = _INT8.unpack_from(data, at)
            at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(resource_name, resource_type), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.resource_name, True)
        if version >= 1:
            out += _INT8.pack(self.resource_type)
        out.append(0)


class ListConfigResourcesResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code: The error code, or 0 if there was no error.
    config_resources: Each config resource in the response.
    """

    __slots__ = ("config_resources", "error_code", "throttle_time_ms")
    API_KEY: ClassVar[int] = 74
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        config_resources: list[ConfigResource] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.config_resources: list[ConfigResource] = (
            [] if config_resources is None else config_resources
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListConfigResourcesResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        config_resources, at = read_structs(data, at, True, ConfigResource.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, config_resources), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_structs(out, self.config_resources, True, version)
        out.append(0)
