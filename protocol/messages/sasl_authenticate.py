"""SaslAuthenticate, API key 36: versions 0 to 2, flexible from 2.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_bytes,
    read_nullable_string,
    skip_tags,
    write_bytes,
    write_nullable_string,
)

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")


class SaslAuthenticateRequest(Message):
    """The request.

    auth_bytes: The SASL authentication bytes from the client, as defined by the SASL mechanism.
    """

    __slots__ = ("auth_bytes",)
    API_KEY: ClassVar[int] = 36
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(self, auth_bytes: bytes = b"") -> None:
        self.auth_bytes = auth_bytes

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[SaslAuthenticateRequest, int]:
        compact = version >= 2
        auth_bytes, at = read_bytes(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(auth_bytes), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_bytes(out, self.auth_bytes, compact)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(error_code=code, error_message=None)


class SaslAuthenticateResponse(Message):
    """The response.

    error_code: The error code, or 0 if there was no error.
    error_message: The error message, or null if there was no error.
    auth_bytes: The SASL authentication bytes from the server, as defined by the SASL mechanism.
    session_lifetime_ms (from version 1): Number of milliseconds after which only re-
        authentication over the existing connection to create a new session can occur.
    """

    __slots__ = ("auth_bytes", "error_code", "error_message", "session_lifetime_ms")
    API_KEY: ClassVar[int] = 36
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        auth_bytes: bytes = b"",
        session_lifetime_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.auth_bytes = auth_bytes
        self.session_lifetime_ms = session_lifetime_ms

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[SaslAuthenticateResponse, int]:
        compact = version >= 2
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, compact)
        auth_bytes, at = read_bytes(data, at, compact)
        session_lifetime_ms = 0
        if version >= 1:
            (session_lifetime_ms,) = _INT64.unpack_from(data, at)
            at += 8
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(error_code, error_message, auth_bytes, session_lifetime_ms), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, compact)
        write_bytes(out, self.auth_bytes, compact)
        if version >= 1:
            out += _INT64.pack(self.session_lifetime_ms)
        if compact:
            out.append(0)
