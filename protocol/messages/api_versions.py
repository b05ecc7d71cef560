"""ApiVersions, API key 18: versions 0 to 4, flexible from 3.

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
    read_structs,
    read_tags,
    refuse_value,
    skip_tags,
    write_string,
    write_structs,
    write_tags,
)

_INT16 = struct.Struct(">h")
_INT16_2_TIMES = struct.Struct(">hh")
_INT16_3_TIMES = struct.Struct(">hhh")
_INT32 = struct.Struct(">i")


class ApiVersionsRequest(Message):
    """The request.

    client_software_name (from version 3): The name of the client.
    client_software_version (from version 3): The version of the client.
    """

    __slots__ = ("client_software_name", "client_software_version")
    API_KEY: ClassVar[int] = 18
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    def __init__(self, client_software_name: str = "", client_software_version: str = "") -> None:
        self.client_software_name = client_software_name
        self.client_software_version = client_software_version

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ApiVersionsRequest, int]:
        compact = version >= 3
        client_software_name = ""
        client_software_version = ""
        if version >= 3:
            client_software_name, at = read_string(data, at, compact)
            client_software_version, at = read_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(client_software_name, client_software_version), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        if version >= 3:
            write_string(out, self.client_software_name, compact)
            write_string(out, self.client_software_version, compact)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> ApiVersionsResponse:
        return ApiVersionsResponse(error_code=code)


class ApiVersion(Message):
    """The APIs supported by the broker.

    api_key: The API index.
    min_version: The minimum supported version, inclusive.
    max_version: The maximum supported version, inclusive.
    """

    __slots__ = ("api_key", "max_version", "min_version")

    def __init__(self, api_key: int = 0, min_version: int = 0, max_version: int = 0) -> None:
        self.api_key = api_key
        self.min_version = min_version
        self.max_version = max_version

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ApiVersion, int]:
        compact = version >= 3
        api_key, min_version, max_version = _INT16_3_TIMES.unpack_from(data, at)
        at += 6
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(api_key, min_version, max_version), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        out += _INT16_3_TIMES.pack(self.api_key, self.min_version, self.max_version)
        if compact:
            out.append(0)


class SupportedFeatureKey(Message):
    """Features supported by the broker. Note: in v0-v3, features with MinSupportedVersion = 0 are
    omitted.

    name (from version 3): The name of the feature.
    min_version (from version 3): The minimum supported version for the feature.
    max_version (from version 3): The maximum supported version for the feature.
    """

    __slots__ = ("max_version", "min_version", "name")

    def __init__(self, name: str = "", min_version: int = 0, max_version: int = 0) -> None:
        self.name = name
        self.min_version = min_version
        self.max_version = max_version

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[SupportedFeatureKey, int]:
        compact = version >= 3
        name = ""
        min_version = 0
        max_version = 0
        if version >= 3:
            name, at = read_string(data, at, compact)
            min_version, max_version = _INT16_2_TIMES.unpack_from(data, at)
            at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, min_version, max_version), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        if version >= 3:
            write_string(out, self.name, compact)
            out += _INT16_2_TIMES.pack(self.min_version, self.max_version)
        elif self.name != "":
            refuse_value("name", version)
        elif self.min_version != 0:
            refuse_value("min_version", version)
        elif self.max_version != 0:
            refuse_value("max_version", version)
        if compact:
            out.append(0)


class FinalizedFeatureKey(Message):
    """List of cluster-wide finalized features. The information is valid only if
    FinalizedFeaturesEpoch >= 0.

    name (from version 3): The name of the feature.
    max_version_level (from version 3): The cluster-wide finalized max version level for the
        feature.
    min_version_level (from version 3): The cluster-wide finalized min version level for the
        feature.
    """

    __slots__ = ("max_version_level", "min_version_level", "name")

    def __init__(
        self, name: str = "", max_version_level: int = 0, min_version_level: int = 0
    ) -> None:
        self.name = name
        self.max_version_level = max_version_level
        self.min_version_level = min_version_level

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[FinalizedFeatureKey, int]:
        compact = version >= 3
        name = ""
        max_version_level = 0
        min_version_level = 0
        if version >= 3:
            name, at = read_string(data, at, compact)
            max_version_level, min_version_level = _INT16_2_TIMES.unpack_from(data, at)
            at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, max_version_level, min_version_level), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        if version >= 3:
            write_string(out, self.name, compact)
            out += _INT16_2_TIMES.pack(self.max_version_level, self.min_version_level)
        elif self.name != "":
            refuse_value("name", version)
        elif self.max_version_level != 0:
            refuse_value("max_version_level", version)
        elif self.min_version_level != 0:
            refuse_value("min_version_level", version)
        if compact:
            out.append(0)


class ApiVersionsResponse(Message):
    """The response.

    error_code: The top-level error code.
    api_keys: The APIs supported by the broker.
    throttle_time_ms (from version 1): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    supported_features (from version 3): Features supported by the broker. Note: in v0-v3,
        features with MinSupportedVersion = 0 are omitted.
    finalized_features_epoch (from version 3): The monotonically increasing epoch for the
        finalized features information. Valid values are >= 0. A value of -1 is special and
        represents unknown epoch.
    finalized_features (from version 3): List of cluster-wide finalized features. The
        information is valid only if FinalizedFeaturesEpoch >= 0.
    zk_migration_ready (from version 3): Set by a KRaft controller if the required
        configurations for ZK migration are present.
    """

    __slots__ = (
        "api_keys",
        "error_code",
        "finalized_features",
        "finalized_features_epoch",
        "supported_features",
        "throttle_time_ms",
        "zk_migration_ready",
    )
    API_KEY: ClassVar[int] = 18
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    def __init__(
        self,
        error_code: int = 0,
        api_keys: list[ApiVersion] | None = None,
        throttle_time_ms: int = 0,
        supported_features: list[SupportedFeatureKey] | None = None,
        finalized_features_epoch: int = -1,
        finalized_features: list[FinalizedFeatureKey] | None = None,
        zk_migration_ready: bool = False,
    ) -> None:
        self.error_code = error_code
        self.api_keys: list[ApiVersion] = [] if api_keys is None else api_keys
        self.throttle_time_ms = throttle_time_ms
        self.supported_features: list[SupportedFeatureKey] = (
            [] if supported_features is None else supported_features
        )
        self.finalized_features_epoch = finalized_features_epoch
        self.finalized_features: list[FinalizedFeatureKey] = (
            [] if finalized_features is None else finalized_features
        )
        self.zk_migration_ready = zk_migration_ready

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ApiVersionsResponse, int]:
        compact = version >= 3
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        api_keys, at = read_structs(data, at, compact, ApiVersion.read, version)
        throttle_time_ms = 0
        if version >= 1:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        supported_features: list[SupportedFeatureKey] = []
        finalized_features_epoch = -1
        finalized_features: list[FinalizedFeatureKey] = []
        zk_migration_ready = False
        if compact:
            tags, at = read_tags(data, at)
            if 0 in tags:
                supported_features, _ = read_structs(
                    tags[0], 0, True, SupportedFeatureKey.read, version
                )
            if 1 in tags:
                (finalized_features_epoch,) = struct.unpack(">q", tags[1])
            if 2 in tags:
                finalized_features, _ = read_structs(
                    tags[2], 0, True, FinalizedFeatureKey.read, version
                )
            if 3 in tags:
                (zk_migration_ready,) = struct.unpack(">?", tags[3])
        return cls(
            error_code,
            api_keys,
            throttle_time_ms,
            supported_features,
            finalized_features_epoch,
            finalized_features,
            zk_migration_ready,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        out += _INT16.pack(self.error_code)
        write_structs(out, self.api_keys, compact, version)
        if version >= 1:
            out += _INT32.pack(self.throttle_time_ms)
        if compact:
            tags: dict[int, bytearray] = {}
            if self.supported_features != []:
                tags[0] = bytearray()
                write_structs(tags[0], self.supported_features, True, version)
            if self.finalized_features_epoch != -1:
                tags[1] = bytearray(struct.pack(">q", self.finalized_features_epoch))
            if self.finalized_features != []:
                tags[2] = bytearray()
                write_structs(tags[2], self.finalized_features, True, version)
            if self.zk_migration_ready:
                tags[3] = bytearray(struct.pack(">?", self.zk_migration_ready))
            write_tags(out, tags)
