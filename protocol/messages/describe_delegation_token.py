"""DescribeDelegationToken, API key 41: versions 0 to 3, flexible from 2.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import NOTHING, Message
from barnabas.protocol.primitives import (
    Buffer,
    read_bytes,
    read_nullable_structs,
    read_string,
    read_structs,
    refuse_value,
    skip_tags,
    write_bytes,
    write_nullable_structs,
    write_string,
    write_structs,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64_3_TIMES = struct.Struct(">qqq")


class DescribeDelegationTokenOwner(Message):
    """The owners whose tokens are asked for; null: everybody's.

    principal_type: The kind of principal that owns tokens.
    principal_name: The name of the principal that owns tokens.
    """

    __slots__ = ("principal_name", "principal_type")

    def __init__(self, principal_type: str = "", principal_name: str = "") -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeDelegationTokenOwner, int]:
        compact = version >= 2
        principal_type, at = read_string(data, at, compact)
        principal_name, at = read_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(principal_type, principal_name), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.principal_type, compact)
        write_string(out, self.principal_name, compact)
        if compact:
            out.append(0)


class DescribeDelegationTokenRequest(Message):
    """The request.

    owners: The owners whose tokens are asked for; null: everybody's.
    """

    __slots__ = ("owners",)
    API_KEY: ClassVar[int] = 41
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(self, owners: list[DescribeDelegationTokenOwner] | None = NOTHING) -> None:
        self.owners: list[DescribeDelegationTokenOwner] | None = [] if owners is NOTHING else owners

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeDelegationTokenRequest, int]:
        compact = version >= 2
        owners, at = read_nullable_structs(
            data, at, compact, DescribeDelegationTokenOwner.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(owners), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_nullable_structs(out, self.owners, compact, version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeDelegationTokenResponse:
        return DescribeDelegationTokenResponse(error_code=code)


class DescribedDelegationTokenRenewer(Message):
    """Those who may renew the token.

    principal_type: The kind of principal who may renew it.
    principal_name: The name of the principal who may renew it.
    """

    __slots__ = ("principal_name", "principal_type")

    def __init__(self, principal_type: str = "", principal_name: str = "") -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribedDelegationTokenRenewer, int]:
        compact = version >= 2
        principal_type, at = read_string(data, at, compact)
        principal_name, at = read_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(principal_type, principal_name), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.principal_type, compact)
        write_string(out, self.principal_name, compact)
        if compact:
            out.append(0)


class DescribedDelegationToken(Message):
    """The tokens.

    principal_type: The kind of principal that the token is for.
    principal_name: The name of the principal that the token is for.
    token_requester_principal_type (version 3): The kind of principal who asked for the token.
    token_requester_principal_name (version 3): The name of the principal who asked for the
        token.
    issue_timestamp: When the token was issued.
    expiry_timestamp: When the token expires.
    max_timestamp: Until when the token can be renewed.
    token_id: The id of the token.
    hmac: The token's HMAC.
    renewers: Those who may renew the token.
    """

    __slots__ = (
        "expiry_timestamp",
        "hmac",
        "issue_timestamp",
        "max_timestamp",
        "principal_name",
        "principal_type",
        "renewers",
        "token_id",
        "token_requester_principal_name",
        "token_requester_principal_type",
    )

    def __init__(
        self,
        principal_type: str = "",
        principal_name: str = "",
        token_requester_principal_type: str = "",
        token_requester_principal_name: str = "",
        issue_timestamp: int = 0,
        expiry_timestamp: int = 0,
        max_timestamp: int = 0,
        token_id: str = "",
        hmac: bytes = b"",
        renewers: list[DescribedDelegationTokenRenewer] | None = None,
    ) -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name
        self.token_requester_principal_type = token_requester_principal_type
        self.token_requester_principal_name = token_requester_principal_name
        self.issue_timestamp = issue_timestamp
        self.expiry_timestamp = expiry_timestamp
        self.max_timestamp = max_timestamp
        self.token_id = token_id
        self.hmac = hmac
        self.renewers: list[DescribedDelegationTokenRenewer] = [] if renewers is None else renewers

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribedDelegationToken, int]:
        compact = version >= 2
        principal_type, at = read_string(data, at, compact)
        principal_name, at = read_string(data, at, compact)
        token_requester_principal_type = ""
        token_requester_principal_name = ""
        if version >= 3:
            token_requester_principal_type, at = read_string(data, at, compact)
            token_requester_principal_name, at = read_string(data, at, compact)
        issue_timestamp, expiry_timestamp, max_timestamp = _INT64_3_TIMES.unpack_from(data, at)
        at += 24
        token_id, at = read_string(data, at, compact)
        hmac, at = read_bytes(data, at, compact)
        renewers, at = read_structs(
            data, at, compact, DescribedDelegationTokenRenewer.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            principal_type,
            principal_name,
            token_requester_principal_type,
            token_requester_principal_name,
            issue_timestamp,
            expiry_timestamp,
            max_timestamp,
            token_id,
            hmac,
            renewers,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.principal_type, compact)
        write_string(out, self.principal_name, compact)
        if version >= 3:
            write_string(out, self.token_requester_principal_type, compact)
            write_string(out, self.token_requester_principal_name, compact)
        elif self.token_requester_principal_type != "":
            refuse_value("token_requester_principal_type", version)
        elif self.token_requester_principal_name != "":
            refuse_value("token_requester_principal_name", version)
        out += _INT64_3_TIMES.pack(self.issue_timestamp, self.expiry_timestamp, self.max_timestamp)
        write_string(out, self.token_id, compact)
        write_bytes(out, self.hmac, compact)
        write_structs(out, self.renewers, compact, version)
        if compact:
            out.append(0)


class DescribeDelegationTokenResponse(Message):
    """The response.

    error_code: The error, or 0.
    tokens: The tokens.
    throttle_time_ms: How long the client is to wait, in milliseconds.
    """

    __slots__ = ("error_code", "throttle_time_ms", "tokens")
    API_KEY: ClassVar[int] = 41
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self,
        error_code: int = 0,
        tokens: list[DescribedDelegationToken] | None = None,
        throttle_time_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.tokens: list[DescribedDelegationToken] = [] if tokens is None else tokens
        self.throttle_time_ms = throttle_time_ms

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeDelegationTokenResponse, int]:
        compact = version >= 2
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        tokens, at = read_structs(data, at, compact, DescribedDelegationToken.read, version)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(error_code, tokens, throttle_time_ms), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT16.pack(self.error_code)
        write_structs(out, self.tokens, compact, version)
        out += _INT32.pack(self.throttle_time_ms)
        if compact:
            out.append(0)
