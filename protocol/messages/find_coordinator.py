"""FindCoordinator, API key 10: versions 0 to 6, flexible from 3.

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
    read_strings,
    read_structs,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_string,
    write_strings,
    write_structs,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")
_INT8 = struct.Struct(">b")


class FindCoordinatorRequest(Message):
    """The request.

    key (versions 0 to 3): The coordinator key.
    key_type (from version 1): The coordinator key type. (group, transaction, share).
    coordinator_keys (from version 4): The coordinator keys.
    """

    __slots__ = ("coordinator_keys", "key", "key_type")
    API_KEY: ClassVar[int] = 10
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 3
    ROWS: ClassVar[dict[str, str]] = {"coordinator_keys": "coordinators"}

    def __init__(
        self, key: str = "", key_type: int = 0, coordinator_keys: list[str] | None = None
    ) -> None:
        self.key = key
        self.key_type = key_type
        self.coordinator_keys: list[str] = [] if coordinator_keys is None else coordinator_keys

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[FindCoordinatorRequest, int]:
        compact = version >= 3
        key = ""
        if version <= 3:
            key, at = read_string(data, at, compact)
        key_type = 0
        if version >= 1:
            (key_type,) = _INT8.unpack_from(data, at)
            at += 1
        coordinator_keys: list[str] = []
        if version >= 4:
            coordinator_keys, at = read_strings(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(key, key_type, coordinator_keys), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        if version <= 3:
            write_string(out, self.key, compact)
        elif self.key != "":
            refuse_value("key", version)
        if version >= 1:
            out += _INT8.pack(self.key_type)
        elif self.key_type != 0:
            refuse_value("key_type", version)
        if version >= 4:
            write_strings(out, self.coordinator_keys, compact)
        elif self.coordinator_keys != []:
            refuse_value("coordinator_keys", version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> FindCoordinatorResponse:
        if version <= 3:
            return FindCoordinatorResponse(error_code=code, error_message=None, node_id=-1, port=-1)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=row, error_code=code, node_id=-1, port=-1, error_message=None)
                for row in self.coordinator_keys
            ],
            error_message=None,
        )


class Coordinator(Message):
    """Each coordinator result in the response.

    key (from version 4): The coordinator key.
    node_id (from version 4): The node id.
    host (from version 4): The host name.
    port (from version 4): The port.
    error_code (from version 4): The error code, or 0 if there was no error.
    error_message (from version 4): The error message, or null if there was no error.
    """

    __slots__ = ("error_code", "error_message", "host", "key", "node_id", "port")

    def __init__(
        self,
        key: str = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.key = key
        self.node_id = node_id
        self.host = host
        self.port = port
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Coordinator, int]:
        compact = version >= 3
        key = ""
        node_id = 0
        host = ""
        port = 0
        error_code = 0
        error_message: str | None = ""
        if version >= 4:
            key, at = read_string(data, at, compact)
            (node_id,) = _INT32.unpack_from(data, at)
            at += 4
            host, at = read_string(data, at, compact)
            port, error_code = _INT32_INT16.unpack_from(data, at)
            at += 6
            error_message, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(key, node_id, host, port, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        if version >= 4:
            write_string(out, self.key, compact)
            out += _INT32.pack(self.node_id)
            write_string(out, self.host, compact)
            out += _INT32_INT16.pack(self.port, self.error_code)
            write_nullable_string(out, self.error_message, compact)
        elif self.key != "":
            refuse_value("key", version)
        elif self.node_id != 0:
            refuse_value("node_id", version)
        elif self.host != "":
            refuse_value("host", version)
        elif self.port != 0:
            refuse_value("port", version)
        elif self.error_code != 0:
            refuse_value("error_code", version)
        if compact:
            out.append(0)


class FindCoordinatorResponse(Message):
    """The response.

    throttle_time_ms (from version 1): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    error_code (versions 0 to 3): The error code, or 0 if there was no error.
    error_message (versions 1 to 3): The error message, or null if there was no error.
    node_id (versions 0 to 3): The node id.
    host (versions 0 to 3): The host name.
    port (versions 0 to 3): The port.
    coordinators (from version 4): Each coordinator result in the response.
    """

    __slots__ = (
        "coordinators",
        "error_code",
        "error_message",
        "host",
        "node_id",
        "port",
        "throttle_time_ms",
    )
    API_KEY: ClassVar[int] = 10
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 3

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        coordinators: list[Coordinator] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.node_id = node_id
        self.host = host
        self.port = port
        self.coordinators: list[Coordinator] = [] if coordinators is None else coordinators

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[FindCoordinatorResponse, int]:
        compact = version >= 3
        throttle_time_ms = 0
        if version >= 1:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        error_code = 0
        if version <= 3:
            (error_code,) = _INT16.unpack_from(data, at)
            at += 2
        error_message: str | None = ""
        if 1 <= version <= 3:
            error_message, at = read_nullable_string(data, at, compact)
        node_id = 0
        host = ""
        port = 0
        if version <= 3:
            (node_id,) = _INT32.unpack_from(data, at)
            at += 4
            host, at = read_string(data, at, compact)
            (port,) = _INT32.unpack_from(data, at)
            at += 4
        coordinators: list[Coordinator] = []
        if version >= 4:
            coordinators, at = read_structs(data, at, compact, Coordinator.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            throttle_time_ms, error_code, error_message, node_id, host, port, coordinators
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        if version >= 1:
            out += _INT32.pack(self.throttle_time_ms)
        if version <= 3:
            out += _INT16.pack(self.error_code)
        elif self.error_code != 0:
            refuse_value("error_code", version)
        if 1 <= version <= 3:
            write_nullable_string(out, self.error_message, compact)
        if version <= 3:
            out += _INT32.pack(self.node_id)
            write_string(out, self.host, compact)
            out += _INT32.pack(self.port)
        elif self.node_id != 0:
            refuse_value("node_id", version)
        elif self.host != "":
            refuse_value("host", version)
        elif self.port != 0:
            refuse_value("port", version)
        if version >= 4:
            write_structs(out, self.coordinators, compact, version)
        elif self.coordinators != []:
            refuse_value("coordinators", version)
        if compact:
            out.append(0)
