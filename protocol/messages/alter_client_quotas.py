"""AlterClientQuotas, API key 49: versions 0 to 1, flexible from 1.

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
_FLOAT64_BOOL = struct.Struct(">d?")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class EntityData(Message):
    """The quota entity to alter.

    entity_type: The entity type.
    entity_name: The name of the entity, or null if the default.
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


class OpData(Message):
    """An individual quota configuration entry to alter.

    key: The quota configuration key.
    value: The value to set, otherwise ignored if the value is to be removed.
    remove: Whether the quota configuration value should be removed, otherwise set.
    """

    __slots__ = ("key", "remove", "value")

    def __init__(self, key: str = "", value: float = 0.0, remove: bool = False) -> None:
        self.key = key
        self.value = value
        self.remove = remove

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OpData, int]:
        compact = version >= 1
        key, at = read_string(data, at, compact)
        value, remove = _FLOAT64_BOOL.unpack_from(data, at)
        at += 9
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(key, value, remove), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_string(out, self.key, compact)
        out += _FLOAT64_BOOL.pack(self.value, self.remove)
        if compact:
            out.append(0)


class EntryData(Message):
    """The quota configuration entries to alter.

    entity: The quota entity to alter.
    ops: An individual quota configuration entry to alter.
    """

    __slots__ = ("entity", "ops")

    def __init__(
        self, entity: list[EntityData] | None = None, ops: list[OpData] | None = None
    ) -> None:
        self.entity: list[EntityData] = [] if entity is None else entity
        self.ops: list[OpData] = [] if ops is None else ops

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[EntryData, int]:
        compact = version >= 1
        entity, at = read_structs(data, at, compact, EntityData.read, version)
        ops, at = read_structs(data, at, compact, OpData.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(entity, ops), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_structs(out, self.entity, compact, version)
        write_structs(out, self.ops, compact, version)
        if compact:
            out.append(0)


class AlterClientQuotasRequest(Message):
    """The request.

    entries: The quota configuration entries to alter.
    validate_only: Whether the alteration should be validated, but not performed.
    """

    __slots__ = ("entries", "validate_only")
    API_KEY: ClassVar[int] = 49
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1
    ROWS: ClassVar[dict[str, str]] = {"entries": "entries"}

    def __init__(self, entries: list[EntryData] | None = None, validate_only: bool = False) -> None:
        self.entries: list[EntryData] = [] if entries is None else entries
        self.validate_only = validate_only

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterClientQuotasRequest, int]:
        compact = version >= 1
        entries, at = read_structs(data, at, compact, EntryData.read, version)
        (validate_only,) = _BOOL.unpack_from(data, at)
        at += 1
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(entries, validate_only), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_structs(out, self.entries, compact, version)
        out += _BOOL.pack(self.validate_only)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> AlterClientQuotasResponse:
        return AlterClientQuotasResponse(
            entries=[
                AlterClientQuotasResponseEntryData(code, None, row.entity) for row in self.entries
            ]
        )


class AlterClientQuotasResponseEntryData(Message):
    """The quota configuration entries to alter.

    error_code: The error code, or `0` if the quota alteration succeeded.
    error_message: The error message, or `null` if the quota alteration succeeded.
    entity: The quota entity to alter.
    """

    __slots__ = ("entity", "error_code", "error_message")

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        entity: list[EntityData] | None = None,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.entity: list[EntityData] = [] if entity is None else entity

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[AlterClientQuotasResponseEntryData, int]:
        compact = version >= 1
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, compact)
        entity, at = read_structs(data, at, compact, EntityData.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(error_code, error_message, entity), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, compact)
        write_structs(out, self.entity, compact, version)
        if compact:
            out.append(0)


class AlterClientQuotasResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    entries: The quota configuration entries to alter.
    """

    __slots__ = ("entries", "throttle_time_ms")
    API_KEY: ClassVar[int] = 49
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    def __init__(
        self,
        throttle_time_ms: int = 0,
        entries: list[AlterClientQuotasResponseEntryData] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.entries: list[AlterClientQuotasResponseEntryData] = [] if entries is None else entries

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AlterClientQuotasResponse, int]:
        compact = version >= 1
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        entries, at = read_structs(
            data, at, compact, AlterClientQuotasResponseEntryData.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, entries), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.entries, compact, version)
        if compact:
            out.append(0)
