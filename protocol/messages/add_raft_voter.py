"""AddRaftVoter, API key 80: versions 0 to 1, flexible from 0.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
import uuid
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_string,
    read_string,
    read_structs,
    read_uuid,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_string,
    write_structs,
    write_uuid,
)

_BOOL = struct.Struct(">?")
_INT32_2_TIMES = struct.Struct(">ii")
_INT32_INT16 = struct.Struct(">ih")
_UINT16 = struct.Struct(">H")


class Listener(Message):
    """Where the voter can be reached.

    name: The listener's name.
    host: Its host.
    port: Its port.
    """

    __slots__ = ("host", "name", "port")

    def __init__(self, name: str = "", host: str = "", port: int = 0) -> None:
        self.name = name
        self.host = host
        self.port = port

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Listener, int]:
        name, at = read_string(data, at, True)
        host, at = read_string(data, at, True)
        (port,) = _UINT16.unpack_from(data, at)
        at += 2
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, host, port), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, True)
        write_string(out, self.host, True)
        out += _UINT16.pack(self.port)
        out.append(0)


class AddRaftVoterRequest(Message):
    """The request.

    cluster_id: The cluster; null: this one.
    timeout_ms: How long to wait, in milliseconds.
    voter_id: The voter.
    voter_directory_id: The directory of the voter's log.
    listeners: Where the voter can be reached.
    ack_when_committed (version 1): Whether to answer when the change is committed, or when it
        is written.
    """

    __slots__ = (
        "ack_when_committed",
        "cluster_id",
        "listeners",
        "timeout_ms",
        "voter_directory_id",
        "voter_id",
    )
    API_KEY: ClassVar[int] = 80
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        cluster_id: str | None = "",
        timeout_ms: int = 0,
        voter_id: int = 0,
        voter_directory_id: uuid.UUID | None = None,
        listeners: list[Listener] | None = None,
        ack_when_committed: bool = True,
    ) -> None:
        self.cluster_id = cluster_id
        self.timeout_ms = timeout_ms
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.listeners: list[Listener] = [] if listeners is None else listeners
        self.ack_when_committed = ack_when_committed

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AddRaftVoterRequest, int]:
        cluster_id, at = read_nullable_string(data, at, True)
        timeout_ms, voter_id = _INT32_2_TIMES.unpack_from(data, at)
        at += 8
        voter_directory_id, at = read_uuid(data, at)
        listeners, at = read_structs(data, at, True, Listener.read, version)
        ack_when_committed = True
        if version >= 1:
            (ack_when_committed,) = _BOOL.unpack_from(data, at)
            at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            cluster_id, timeout_ms, voter_id, voter_directory_id, listeners, ack_when_committed
        ), at

    def write(self, out: bytearray, version: int) -> None:
        write_nullable_string(out, self.cluster_id, True)
        out += _INT32_2_TIMES.pack(self.timeout_ms, self.voter_id)
        write_uuid(out, self.voter_directory_id)
        write_structs(out, self.listeners, True, version)
        if version >= 1:
            out += _BOOL.pack(self.ack_when_committed)
        elif not self.ack_when_committed:
            refuse_value("ack_when_committed", version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> AddRaftVoterResponse:
        return AddRaftVoterResponse(error_code=code)


class AddRaftVoterResponse(Message):
    """The response.

    throttle_time_ms: How long the client is to wait, in milliseconds.
    error_code: The error, or 0.
    error_message: The error in words, or null.
    """

    __slots__ = ("error_code", "error_message", "throttle_time_ms")
    API_KEY: ClassVar[int] = 80
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self, throttle_time_ms: int = 0, error_code: int = 0, error_message: str | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AddRaftVoterResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, True)
        out.append(0)
