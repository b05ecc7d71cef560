"""RenewDelegationToken, API key 39: versions 0 to 2, flexible from 2.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer, read_bytes, skip_tags, write_bytes

_INT16_INT64_INT32 = struct.Struct(">hqi")
_INT64 = struct.Struct(">q")


class RenewDelegationTokenRequest(Message):
    """The request.

    hmac: The token's HMAC.
    renew_period_ms: For how long it is renewed, in milliseconds.
    """

    __slots__ = ("hmac", "renew_period_ms")
    API_KEY: ClassVar[int] = 39
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(self, hmac: bytes = b"", renew_period_ms: int = 0) -> None:
        self.hmac = hmac
        self.renew_period_ms = renew_period_ms

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[RenewDelegationTokenRequest, int]:
        compact = version >= 2
        hmac, at = read_bytes(data, at, compact)
        (renew_period_ms,) = _INT64.unpack_from(data, at)
        at += 8
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(hmac, renew_period_ms), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_bytes(out, self.hmac, compact)
        out += _INT64.pack(self.renew_period_ms)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> RenewDelegationTokenResponse:
        return RenewDelegationTokenResponse(error_code=code)


class RenewDelegationTokenResponse(Message):
    """The response.

    error_code: The error, or 0.
    expiry_timestamp_ms: When the token expires.
    throttle_time_ms: How long the client is to wait, in milliseconds.
    """

    __slots__ = ("error_code", "expiry_timestamp_ms", "throttle_time_ms")
    API_KEY: ClassVar[int] = 39
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self, error_code: int = 0, expiry_timestamp_ms: int = 0, throttle_time_ms: int = 0
    ) -> None:
        self.error_code = error_code
        self.expiry_timestamp_ms = expiry_timestamp_ms
        self.throttle_time_ms = throttle_time_ms

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[RenewDelegationTokenResponse, int]:
        compact = version >= 2
        error_code, expiry_timestamp_ms, throttle_time_ms = _INT16_INT64_INT32.unpack_from(data, at)
        at += 14
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(error_code, expiry_timestamp_ms, throttle_time_ms), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT16_INT64_INT32.pack(
            self.error_code, self.expiry_timestamp_ms, self.throttle_time_ms
        )
        if compact:
            out.append(0)
