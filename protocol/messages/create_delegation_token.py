"""CreateDelegationToken, API key 38: versions 0 to 3, flexible from 2.

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
    read_string,
    read_structs,
    refuse_value,
    skip_tags,
    write_bytes,
    write_nullable_string,
    write_string,
    write_structs,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_INT64_3_TIMES = struct.Struct(">qqq")


class CreatableRenewers(Message):
    """Those who may renew the token.

    principal_type: The kind of principal who may renew it.
    principal_name: The name of the principal who may renew it.
    """

    __slots__ = ("principal_name", "principal_type")

    def __init__(self, principal_type: str = "", principal_name: str = "") -> None:
        self.principal_type = principal_type
        self.principal_name = principal_name

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreatableRenewers, int]:
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


class CreateDelegationTokenRequest(Message):
    """The request.

    owner_principal_type (version 3): The kind of principal that the token is for; null: the
        requesting one.
    owner_principal_name (version 3): The name of the principal that the token is for; null: the
        requesting one.
    renewers: Those who may renew the token.
    max_lifetime_ms: How long the token may live at most, in milliseconds; -1: as the broker has
        it.
    """

    __slots__ = ("max_lifetime_ms", "owner_principal_name", "owner_principal_type", "renewers")
    API_KEY: ClassVar[int] = 38
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self,
        owner_principal_type: str | None = None,
        owner_principal_name: str | None = None,
        renewers: list[CreatableRenewers] | None = None,
        max_lifetime_ms: int = 0,
    ) -> None:
        self.owner_principal_type = owner_principal_type
        self.owner_principal_name = owner_principal_name
        self.renewers: list[CreatableRenewers] = [] if renewers is None else renewers
        self.max_lifetime_ms = max_lifetime_ms

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreateDelegationTokenRequest, int]:
        compact = version >= 2
        owner_principal_type: str | None = None
        owner_principal_name: str | None = None
        if version >= 3:
            owner_principal_type, at = read_nullable_string(data, at, compact)
            owner_principal_name, at = read_nullable_string(data, at, compact)
        renewers, at = read_structs(data, at, compact, CreatableRenewers.read, version)
        (max_lifetime_ms,) = _INT64.unpack_from(data, at)
        at += 8
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(owner_principal_type, owner_principal_name, renewers, max_lifetime_ms), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        if version >= 3:
            write_nullable_string(out, self.owner_principal_type, compact)
            write_nullable_string(out, self.owner_principal_name, compact)
        elif self.owner_principal_type is not None:
            refuse_value("owner_principal_type", version)
        elif self.owner_principal_name is not None:
            refuse_value("owner_principal_name", version)
        write_structs(out, self.renewers, compact, version)
        out += _INT64.pack(self.max_lifetime_ms)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> CreateDelegationTokenResponse:
        return CreateDelegationTokenResponse(error_code=code)


class CreateDelegationTokenResponse(Message):
    """The response.

    error_code: The error, or 0.
    principal_type: The kind of principal that the token is for.
    principal_name: The name of the principal that the token is for.
    token_requester_principal_type (version 3): The kind of principal who asked for the token.
    token_requester_principal_name (version 3): The name of the principal who asked for the
        token.
    issue_timestamp_ms: When the token was issued.
    expiry_timestamp_ms: When the token expires.
    max_timestamp_ms: Until when the token can be renewed.
    token_id: The id of the token.
    hmac: The token's HMAC.
    throttle_time_ms: How long the client is to wait, in milliseconds.
    """

    __slots__ = (
        "error_code",
        "expiry_timestamp_ms",
        "hmac",
        "issue_timestamp_ms",
        "max_timestamp_ms",
        "principal_name",
        "principal_type",
        "throttle_time_ms",
        "token_id",
        "token_requester_principal_name",
        "token_requester_principal_type",
    )
    API_KEY: ClassVar[int] = 38
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self,
        error_code: int = 0,
        principal_type: str = "",
        principal_name: str = "",
        token_requester_principal_type: str = "",
        token_requester_principal_name: str = "",
        issue_timestamp_ms: int = 0,
        expiry_timestamp_ms: int = 0,
        max_timestamp_ms: int = 0,
        token_id: str = "",
        hmac: bytes = b"",
        throttle_time_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.principal_type = principal_type
        self.principal_name = principal_name
        self.token_requester_principal_type = token_requester_principal_type
        self.token_requester_principal_name = token_requester_principal_name
        self.issue_timestamp_ms = issue_timestamp_ms
        self.expiry_timestamp_ms = expiry_timestamp_ms
        self.max_timestamp_ms = max_timestamp_ms
        self.token_id = token_id
        self.hmac = hmac
        self.throttle_time_ms = throttle_time_ms

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreateDelegationTokenResponse, int]:
        compact = version >= 2
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        principal_type, at = read_string(data, at, compact)
        principal_name, at = read_string(data, at, compact)
        token_requester_principal_type = ""
        token_requester_principal_name = ""
        if version >= 3:
            token_requester_principal_type, at = read_string(data, at, compact)
            token_requester_principal_name, at = read_string(data, at, compact)
        issue_timestamp_ms, expiry_timestamp_ms, max_timestamp_ms = _INT64_3_TIMES.unpack_from(
            data, at
        )
        at += 24
        token_id, at = read_string(data, at, compact)
        hmac, at = read_bytes(data, at, compact)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            error_code,
            principal_type,
            principal_name,
            token_requester_principal_type,
            token_requester_principal_name,
            issue_timestamp_ms,
            expiry_timestamp_ms,
            max_timestamp_ms,
            token_id,
            hmac,
            throttle_time_ms,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT16.pack(self.error_code)
        write_string(out, self.principal_type, compact)
        write_string(out, self.principal_name, compact)
        if version >= 3:
            write_string(out, self.token_requester_principal_type, compact)
            write_string(out, self.token_requester_principal_name, compact)
        elif self.token_requester_principal_type != "":
            refuse_value("token_requester_principal_type", version)
        elif self.token_requester_principal_name != "":
            refuse_value("token_requester_principal_name", version)
        out += _INT64_3_TIMES.pack(
            self.issue_timestamp_ms, self.expiry_timestamp_ms, self.max_timestamp_ms
        )
        write_string(out, self.token_id, compact)
        write_bytes(out, self.hmac, compact)
        out += _INT32.pack(self.throttle_time_ms)
        if compact:
            out.append(0)
