"""SaslHandshake, API key 17: versions 0 to 1.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_string,
    read_strings,
    write_string,
    write_strings,
)

_INT16 = struct.Struct(">h")


class SaslHandshakeRequest(Message):
    """The request.

    mechanism: The SASL mechanism chosen by the client.
    """

    __slots__ = ("mechanism",)
    API_KEY: ClassVar[int] = 17
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 32768

    def __init__(self, mechanism: str = "") -> None:
        self.mechanism = mechanism

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[SaslHandshakeRequest, int]:
        mechanism, at = read_string(data, at, False)
        return cls(mechanism), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.mechanism, False)

    def error_response(self, version: int, code: Code) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=code)


class SaslHandshakeResponse(Message):
    """The response.

    error_code: The error code, or 0 if there was no error.
    mechanisms: The mechanisms enabled in the server.
    """

    __slots__ = ("error_code", "mechanisms")
    API_KEY: ClassVar[int] = 17
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 32768

    def __init__(self, error_code: int = 0, mechanisms: list[str] | None = None) -> None:
        self.error_code = error_code
        self.mechanisms: list[str] = [] if mechanisms is None else mechanisms

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[SaslHandshakeResponse, int]:
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        mechanisms, at = read_strings(data, at, False)
        return cls(error_code, mechanisms), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT16.pack(self.error_code)
        write_strings(out, self.mechanisms, False)
