"""UnregisterBroker, API key 64: version 0, flexible from 0.

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
    skip_tags,
    write_nullable_string,
)

_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")


class UnregisterBrokerRequest(Message):
    """The request.

    broker_id: The broker that is to be forgotten.
    """

    __slots__ = ("broker_id",)
    API_KEY: ClassVar[int] = 64
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(self, broker_id: int = 0) -> None:
        self.broker_id = broker_id

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[UnregisterBrokerRequest, int]:
        (broker_id,) = _INT32.unpack_from(data, at)
        at += 4
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(broker_id), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.broker_id)
        out.append(0)

    def error_response(self, version: int, code: Code) -> UnregisterBrokerResponse:
        return UnregisterBrokerResponse(error_code=code)


class UnregisterBrokerResponse(Message):
    """The response.

    throttle_time_ms: How long the client is to wait, in milliseconds.
    error_code: The error, or 0.
    error_message: The error in words, or null.
    """

    __slots__ = ("error_code", "error_message", "throttle_time_ms")
    API_KEY: ClassVar[int] = 64
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self, throttle_time_ms: int = 0, error_code: int = 0, error_message: str | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[UnregisterBrokerResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, True)
        out.append(0)
