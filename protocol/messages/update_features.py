"""UpdateFeatures, API key 57: versions 0 to 2, flexible from 0.

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
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_string,
    write_structs,
)

_BOOL = struct.Struct(">?")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")
_INT8 = struct.Struct(">b")


class FeatureUpdateKey(Message):
    """The list of updates to finalized features.

    feature: The name of the finalized feature to be updated.
    max_version_level: The new maximum version level for the finalized feature. A value >= 1 is
        valid. A value < 1, is special, and can be used to request the deletion of the finalized
        feature.
    allow_downgrade (version 0): DEPRECATED in version 1 (see DowngradeType). When set to true,
        the finalized feature version level is allowed to be downgraded/deleted. The downgrade
        request will fail if the new maximum version level is a value that's not lower than the
        existing maximum finalized version level.
    upgrade_type (from version 1): Determine which type of upgrade will be performed: 1 will
        perform an upgrade only (default), 2 is safe downgrades only (lossless), 3 is unsafe
        downgrades (lossy).
    """

    __slots__ = ("allow_downgrade", "feature", "max_version_level", "upgrade_type")

    def __init__(
        self,
        feature: str = "",
        max_version_level: int = 0,
        allow_downgrade: bool = False,
        upgrade_type: int = 1,
    ) -> None:
        self.feature = feature
        self.max_version_level = max_version_level
        self.allow_downgrade = allow_downgrade
        self.upgrade_type = upgrade_type

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[FeatureUpdateKey, int]:
        feature, at = read_string(data, at, True)
        (max_version_level,) = _INT16.unpack_from(data, at)
        at += 2
        allow_downgrade = False
        if version <= 0:
            (allow_downgrade,) = _BOOL.unpack_from(data, at)
            at += 1
        upgrade_type = 1
        if version >= 1:
            (upgrade_type,) = _INT8.unpack_from(data, at)
            at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(feature, max_version_level, allow_downgrade, upgrade_type), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.feature, True)
        out += _INT16.pack(self.max_version_level)
        if version <= 0:
            out += _BOOL.pack(self.allow_downgrade)
        elif self.allow_downgrade:
            refuse_value("allow_downgrade", version)
        if version >= 1:
            out += _INT8.pack(self.upgrade_type)
        elif self.upgrade_type != 1:
            refuse_value("upgrade_type", version)
        out.append(0)


class UpdateFeaturesRequest(Message):
    """The request.

    timeout_ms: How long to wait in milliseconds before timing out the request.
    feature_updates: The list of updates to finalized features.
    validate_only (from version 1): True if we should validate the request, but not perform the
        upgrade or downgrade.
    """

    __slots__ = ("feature_updates", "timeout_ms", "validate_only")
    API_KEY: ClassVar[int] = 57
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"feature_updates": "results"}

    def __init__(
        self,
        timeout_ms: int = 60000,
        feature_updates: list[FeatureUpdateKey] | None = None,
        validate_only: bool = False,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.feature_updates: list[FeatureUpdateKey] = (
            [] if feature_updates is None else feature_updates
        )
        self.validate_only = validate_only

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[UpdateFeaturesRequest, int]:
        (timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        feature_updates, at = read_structs(data, at, True, FeatureUpdateKey.read, version)
        validate_only = False
        if version >= 1:
            (validate_only,) = _BOOL.unpack_from(data, at)
            at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(timeout_ms, feature_updates, validate_only), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.timeout_ms)
        write_structs(out, self.feature_updates, True, version)
        if version >= 1:
            out += _BOOL.pack(self.validate_only)
        elif self.validate_only:
            refuse_value("validate_only", version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> UpdateFeaturesResponse:
        return UpdateFeaturesResponse(error_code=code, error_message=None)


class UpdatableFeatureResult(Message):
    """Results for each feature update.

    feature: The name of the finalized feature.
    error_code: The feature update error code or `0` if the feature update succeeded.
    error_message: The feature update error, or `null` if the feature update succeeded.
    """

    __slots__ = ("error_code", "error_message", "feature")

    def __init__(
        self, feature: str = "", error_code: int = 0, error_message: str | None = ""
    ) -> None:
        self.feature = feature
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[UpdatableFeatureResult, int]:
        feature, at = read_string(data, at, True)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(feature, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.feature, True)
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, True)
        out.append(0)


class UpdateFeaturesResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code: The top-level error code, or `0` if there was no top-level error.
    error_message: The top-level error message, or `null` if there was no top-level error.
    results (versions 0 to 1): Results for each feature update.
    """

    __slots__ = ("error_code", "error_message", "results", "throttle_time_ms")
    API_KEY: ClassVar[int] = 57
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        results: list[UpdatableFeatureResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.results: list[UpdatableFeatureResult] = [] if results is None else results

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[UpdateFeaturesResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        results: list[UpdatableFeatureResult] = []
        if version <= 1:
            results, at = read_structs(data, at, True, UpdatableFeatureResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, error_message, results), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, True)
        if version <= 1:
            write_structs(out, self.results, True, version)
        out.append(0)
