"""DescribeUserScramCredentials, API key 50: version 0, flexible from 0.

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

_INT16 = struct.Struct(">h")
_INT32_INT16 = struct.Struct(">ih")
_INT8_INT32 = struct.Struct(">bi")


class UserName(Message):
    """The users to describe, or null/empty to describe all users.

    name: The user name.
    """

    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name = name

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[UserName, int]:
        name, at = read_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, True)
        out.append(0)


class DescribeUserScramCredentialsRequest(Message):
    """The request.

    users: The users to describe, or null/empty to describe all users.
    """

    __slots__ = ("users",)
    API_KEY: ClassVar[int] = 50
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"users": "results"}

    def __init__(self, users: list[UserName] | None = NOTHING) -> None:
        self.users: list[UserName] | None = [] if users is NOTHING else users

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeUserScramCredentialsRequest, int]:
        users, at = read_nullable_structs(data, at, True, UserName.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(users), at

    def write(self, out: bytearray, version: int) -> None:
        write_nullable_structs(out, self.users, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeUserScramCredentialsResponse:
        return DescribeUserScramCredentialsResponse(
            error_code=code,
            results=[
                DescribeUserScramCredentialsResult(error_code=code, error_message=None)
                for _ in self.users or ()
            ],
            error_message=None,
        )


class CredentialInfo(Message):
    """The mechanism and related information associated with the user's SCRAM credentials.

    mechanism: The SCRAM mechanism.
    iterations: The number of iterations used in the SCRAM credential.
    """

    __slots__ = ("iterations", "mechanism")

    def __init__(self, mechanism: int = 0, iterations: int = 0) -> None:
        self.mechanism = mechanism
        self.iterations = iterations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CredentialInfo, int]:
        mechanism, iterations = _INT8_INT32.unpack_from(data, at)
        at += 5
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(mechanism, iterations), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT8_INT32.pack(self.mechanism, self.iterations)
        out.append(0)


class DescribeUserScramCredentialsResult(Message):
    """The results for descriptions, one per user.

    user: The user name.
    error_code: The user-level error code.
    error_message: The user-level error message, if any.
    credential_infos: The mechanism and related information associated with the user's SCRAM
        credentials.
    """

    __slots__ = ("credential_infos", "error_code", "error_message", "user")

    def __init__(
        self,
        user: str = "",
        error_code: int = 0,
        error_message: str | None = "",
        credential_infos: list[CredentialInfo] | None = None,
    ) -> None:
        self.user = user
        self.error_code = error_code
        self.error_message = error_message
        self.credential_infos: list[CredentialInfo] = (
            [] if credential_infos is None else credential_infos
        )

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeUserScramCredentialsResult, int]:
        user, at = read_string(data, at, True)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, True)
        credential_infos, at = read_structs(data, at, True, CredentialInfo.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(user, error_code, error_message, credential_infos), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.user, True)
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, True)
        write_structs(out, self.credential_infos, True, version)
        out.append(0)


class DescribeUserScramCredentialsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code: The message-level error code, 0 except for user authorization or infrastructure
        issues.
    error_message: The message-level error message, if any.
    results: The results for descriptions, one per user.
    """

    __slots__ = ("error_code", "error_message", "results", "throttle_time_ms")
    API_KEY: ClassVar[int] = 50
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        results: list[DescribeUserScramCredentialsResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.results: list[DescribeUserScramCredentialsResult] = [] if results is None else results

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeUserScramCredentialsResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        results, at = read_structs(data, at, True, DescribeUserScramCredentialsResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, error_message, results), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, True)
        write_structs(out, self.results, True, version)
        out.append(0)
