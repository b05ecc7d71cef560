"""DescribeClientQuotas, API key 48: versions 0 to 1, flexible from 1.

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
    read_nullable_structs,
    read_string,
    read_structs,
    skip_tags,
    write_nullable_string,
    write_nullable_structs,
    write_string,
    write_structs,
)

_BOOL = struct.Struct(">?")
_FLOAT64 = struct.Struct(">d")
_INT32_INT16 = struct.Struct(">ih")
_INT8 = struct.Struct(">b")


class ComponentData(Message):
    """Filter components to apply to quota entities.

    entity_type: The entity type that the filter component applies to.
    match_type: How to match the entity {0 = exact name, 1 = default name, 2 = any specified
        name}.
    match: The string to match against, or null if unused for the match type.
    """

    __slots__ = ("entity_type", "match", "match_type")

    def __init__(self, entity_type: str = "", match_type: int = 0, match: str | None = "") -> None:
        self.entity_type = entity_type
        self.match_type = match_type
        self.match = match

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ComponentData, int]:
        compact = version >= 1
        entity_type, at = read_string(data, at, compact)
        (match_type,) = _INT8.unpack_from(data, at)
        at += 1
        match, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(entity_type, match_type, match), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_string(out, self.entity_type, compact)
        out += _INT8.pack(self.match_type)
        write_nullable_string(out, self.match, compact)
        if compact:
            out.append(0)


class DescribeClientQuotasRequest(Message):
    """The request.

    components: Filter components to apply to quota entities.
    strict: Whether the match is strict, i.e. should exclude entities with unspecified entity
        types.
    """

    __slots__ = ("components", "strict")
    API_KEY: ClassVar[int] = 48
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    def __init__(self, components: list[ComponentData] | None = None, strict: bool = False) -> None:
        self.components: list[ComponentData] = [] if components is None else components
        self.strict = strict

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeClientQuotasRequest, int]:
        compact = version >= 1
        components, at = read_structs(data, at, compact, ComponentData.read, version)
        (strict,) = _BOOL.unpack_from(data, at)
        at += 1
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(components, strict), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_structs(out, self.components, compact, version)
        out += _BOOL.pack(self.strict)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeClientQuotasResponse:
        return DescribeClientQuotasResponse(error_code=code, error_message=None)


class EntityData(Message):
    """The quota entity description.

    entity_type: The entity type.
    entity_name: The entity name, or null if the default.
    """

    __slots__ = ("entity_name", "entity_type")

    def __init__(self, entity_type: str = "", entity_name: str | None = "") -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[EntityData, int]:
        compact = version >= 1
        entity_type, at = read_string(data, at, compact)
        entity_name, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(entity_type, entity_name), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_string(out, self.entity_type, compact)
        write_nullable_string(out, self.entity_name, compact)
        if compact:
            out.append(0)


class ValueData(Message):
    """The quota values for the entity.

    key: The quota configuration key.
    value: The quota configuration value.
    """

    __slots__ = ("key", "value")

    def __init__(self, key: str = "", value: float = 0.0) -> None:
        self.key = key
        self.value = value

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ValueData, int]:
        compact = version >= 1
        key, at = read_string(data, at, compact)
        (value,) = _FLOAT64.unpack_from(data, at)
        at += 8
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(key, value), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_string(out, self.key, compact)
        out += _FLOAT64.pack(self.value)
        if compact:
            out.append(0)


class EntryData(Message):
    """A result entry.

    entity: The quota entity description.
    values: The quota values for the entity.
    """

    __slots__ = ("entity", "values")

    def __init__(
        self, entity: list[EntityData] | None = None, values: list[ValueData] | None = None
    ) -> None:
        self.entity: list[EntityData] = [] if entity is None else entity
        self.values: list[ValueData] = [] if values is None else values

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[EntryData, int]:
        compact = version >= 1
        entity, at = read_structs(data, at, compact, EntityData.read, version)
        values, at = read_structs(data, at, compact, ValueData.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(entity, values), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_structs(out, self.entity, compact, version)
        write_structs(out, self.values, compact, version)
        if compact:
            out.append(0)


class DescribeClientQuotasResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code: The error code, or `0` if the quota description succeeded.
    error_message: The error message, or `null` if the quota description succeeded.
    entries: A result entry.
    """

    __slots__ = ("entries", "error_code", "error_message", "throttle_time_ms")
    API_KEY: ClassVar[int] = 48
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        entries: list[EntryData] | None = NOTHING,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.entries: list[EntryData] | None = [] if entries is NOTHING else entries

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeClientQuotasResponse, int]:
        compact = version >= 1
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, compact)
        entries, at = read_nullable_structs(data, at, compact, EntryData.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, error_message, entries), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, compact)
        write_nullable_structs(out, self.entries, compact, version)
        if compact:
            out.append(0)
