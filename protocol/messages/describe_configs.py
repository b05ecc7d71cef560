"""DescribeConfigs, API key 32: versions 0 to 4, flexible from 4.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import NOTHING, Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_string,
    read_nullable_strings,
    read_string,
    read_structs,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_nullable_strings,
    write_string,
    write_structs,
)

_BOOL = struct.Struct(">?")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT8 = struct.Struct(">b")


class DescribeConfigsResource(Message):
    """The resources whose configurations we want to describe.

    resource_type: The resource type.
    resource_name: The resource name.
    configuration_keys: The configuration keys to list, or null to list all configuration keys.
    """

    __slots__ = ("configuration_keys", "resource_name", "resource_type")

    def __init__(
        self,
        resource_type: int = 0,
        resource_name: str = "",
        configuration_keys: list[str] | None = NOTHING,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configuration_keys: list[str] | None = (
            [] if configuration_keys is NOTHING else configuration_keys
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeConfigsResource, int]:
        compact = version >= 4
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, compact)
        configuration_keys, at = read_nullable_strings(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(resource_type, resource_name, configuration_keys), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        out += _INT8.pack(self.resource_type)
        write_string(out, self.resource_name, compact)
        write_nullable_strings(out, self.configuration_keys, compact)
        if compact:
            out.append(0)


class DescribeConfigsRequest(Message):
    """The request.

    resources: The resources whose configurations we want to describe.
    include_synonyms (from version 1): True if we should include all synonyms.
    include_documentation (from version 3): True if we should include configuration
        documentation.
    """

    __slots__ = ("include_documentation", "include_synonyms", "resources")
    API_KEY: ClassVar[int] = 32
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4
    ROWS: ClassVar[dict[str, str]] = {"resources": "results"}

    def __init__(
        self,
        resources: list[DescribeConfigsResource] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> None:
        self.resources: list[DescribeConfigsResource] = [] if resources is None else resources
        self.include_synonyms = include_synonyms
        self.include_documentation = include_documentation

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeConfigsRequest, int]:
        compact = version >= 4
        resources, at = read_structs(data, at, compact, DescribeConfigsResource.read, version)
        include_synonyms = False
        if version >= 1:
            (include_synonyms,) = _BOOL.unpack_from(data, at)
            at += 1
        include_documentation = False
        if version >= 3:
            (include_documentation,) = _BOOL.unpack_from(data, at)
            at += 1
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(resources, include_synonyms, include_documentation), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        write_structs(out, self.resources, compact, version)
        if version >= 1:
            out += _BOOL.pack(self.include_synonyms)
        elif self.include_synonyms:
            refuse_value("include_synonyms", version)
        if version >= 3:
            out += _BOOL.pack(self.include_documentation)
        elif self.include_documentation:
            refuse_value("include_documentation", version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(code, None, row.resource_type, row.resource_name)
                for row in self.resources
            ]
        )


class DescribeConfigsSynonym(Message):
    """The synonyms for this configuration key.

    name (from version 1): The synonym name.
    value (from version 1): The synonym value.
    source (from version 1): The synonym source.
    """

    __slots__ = ("name", "source", "value")

    def __init__(self, name: str = "", value: str | None = "", source: int = 0) -> None:
        self.name = name
        self.value = value
        self.source = source

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeConfigsSynonym, int]:
        compact = version >= 4
        name = ""
        value: str | None = ""
        source = 0
        if version >= 1:
            name, at = read_string(data, at, compact)
            value, at = read_nullable_string(data, at, compact)
            (source,) = _INT8.unpack_from(data, at)
            at += 1
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, value, source), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if version >= 1:
            write_string(out, self.name, compact)
            write_nullable_string(out, self.value, compact)
            out += _INT8.pack(self.source)
        elif self.name != "":
            refuse_value("name", version)
        elif self.value != "":
            refuse_value("value", version)
        elif self.source != 0:
            refuse_value("source", version)
        if compact:
            out.append(0)


class DescribeConfigsResourceResult(Message):
    """Each listed configuration.

    name: The configuration name.
    value: The configuration value.
    read_only: True if the configuration is read-only.
    config_source (from version 1): The configuration source.
    is_default (version 0): True if the configuration is not set.
    is_sensitive: True if this configuration is sensitive.
    synonyms (from version 1): The synonyms for this configuration key.
    config_type (from version 3): The configuration data type. Type can be one of the following
        values - BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD.
    documentation (from version 3): The configuration documentation.
    """

    __slots__ = (
        "config_source",
        "config_type",
        "documentation",
        "is_default",
        "is_sensitive",
        "name",
        "read_only",
        "synonyms",
        "value",
    )

    def __init__(
        self,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_default: bool = False,
        is_sensitive: bool = False,
        synonyms: list[DescribeConfigsSynonym] | None = None,
        config_type: int = 0,
        documentation: str | None = "",
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_default = is_default
        self.is_sensitive = is_sensitive
        self.synonyms: list[DescribeConfigsSynonym] = [] if synonyms is None else synonyms
        self.config_type = config_type
        self.documentation = documentation

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeConfigsResourceResult, int]:
        compact = version >= 4
        name, at = read_string(data, at, compact)
        value, at = read_nullable_string(data, at, compact)
        (read_only,) = _BOOL.unpack_from(data, at)
        at += 1
        config_source = -1
        if version >= 1:
            (config_source,) = _INT8.unpack_from(data, at)
            at += 1
        is_default = False
        if version <= 0:
            (is_default,) = _BOOL.unpack_from(data, at)
            at += 1
        (is_sensitive,) = _BOOL.unpack_from(data, at)
        at += 1
        synonyms: list[DescribeConfigsSynonym] = []
        if version >= 1:
            synonyms, at = read_structs(data, at, compact, DescribeConfigsSynonym.read, version)
        config_type = 0
        documentation: str | None = ""
        if version >= 3:
            (config_type,) = _INT8.unpack_from(data, at)
            at += 1
            documentation, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            name,
            value,
            read_only,
            config_source,
            is_default,
            is_sensitive,
            synonyms,
            config_type,
            documentation,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        write_string(out, self.name, compact)
        write_nullable_string(out, self.value, compact)
        out += _BOOL.pack(self.read_only)
        if version >= 1:
            out += _INT8.pack(self.config_source)
        if version <= 0:
            out += _BOOL.pack(self.is_default)
        elif self.is_default:
            refuse_value("is_default", version)
        out += _BOOL.pack(self.is_sensitive)
        if version >= 1:
            write_structs(out, self.synonyms, compact, version)
        if version >= 3:
            out += _INT8.pack(self.config_type)
            write_nullable_string(out, self.documentation, compact)
        if compact:
            out.append(0)


class DescribeConfigsResult(Message):
    """The results for each resource.

    error_code: The error code, or 0 if we were able to successfully describe the
        configurations.
    error_message: The error message, or null if we were able to successfully describe the
        configurations.
    resource_type: The resource type.
    resource_name: The resource name.
    configs: Each listed configuration.
    """

    __slots__ = ("configs", "error_code", "error_message", "resource_name", "resource_type")

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[DescribeConfigsResourceResult] | None = None,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs: list[DescribeConfigsResourceResult] = [] if configs is None else configs

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeConfigsResult, int]:
        compact = version >= 4
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, compact)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, compact)
        configs, at = read_structs(data, at, compact, DescribeConfigsResourceResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(error_code, error_message, resource_type, resource_name, configs), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, compact)
        out += _INT8.pack(self.resource_type)
        write_string(out, self.resource_name, compact)
        write_structs(out, self.configs, compact, version)
        if compact:
            out.append(0)


class DescribeConfigsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    results: The results for each resource.
    """

    __slots__ = ("results", "throttle_time_ms")
    API_KEY: ClassVar[int] = 32
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    def __init__(
        self, throttle_time_ms: int = 0, results: list[DescribeConfigsResult] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[DescribeConfigsResult] = [] if results is None else results

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeConfigsResponse, int]:
        compact = version >= 4
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        results, at = read_structs(data, at, compact, DescribeConfigsResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, results), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.results, compact, version)
        if compact:
            out.append(0)
