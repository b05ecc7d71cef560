"""DescribeCluster, API key 60: versions 0 to 2, flexible from 0.

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
_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")
_INT8 = struct.Struct(">b")


class DescribeClusterRequest(Message):
    """The request.

    include_cluster_authorized_operations: Whether to include cluster authorized operations.
    endpoint_type (from version 1): The endpoint type to describe. 1=brokers, 2=controllers.
    include_fenced_brokers (version 2): Whether to include fenced brokers when listing brokers.
    """

    __slots__ = ("endpoint_type", "include_cluster_authorized_operations", "include_fenced_brokers")
    API_KEY: ClassVar[int] = 60
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        include_cluster_authorized_operations: bool = False,
        endpoint_type: int = 1,
        include_fenced_brokers: bool = False,
    ) -> None:
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.endpoint_type = endpoint_type
        self.include_fenced_brokers = include_fenced_brokers

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeClusterRequest, int]:
        (include_cluster_authorized_operations,) = _BOOL.unpack_from(data, at)
        at += 1
        endpoint_type = 1
        if version >= 1:
            (endpoint_type,) = _INT8.unpack_from(data, at)
            at += 1
        include_fenced_brokers = False
        if version >= 2:
            (include_fenced_brokers,) = _BOOL.unpack_from(data, at)
            at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(include_cluster_authorized_operations, endpoint_type, include_fenced_brokers), at

    def write(self, out: bytearray, version: int) -> None:
        out += _BOOL.pack(self.include_cluster_authorized_operations)
        if version >= 1:
            out += _INT8.pack(self.endpoint_type)
        elif self.endpoint_type != 1:
            refuse_value("endpoint_type", version)
        if version >= 2:
            out += _BOOL.pack(self.include_fenced_brokers)
        elif self.include_fenced_brokers:
            refuse_value("include_fenced_brokers", version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeClusterResponse:
        return DescribeClusterResponse(error_code=code)


class DescribeClusterBroker(Message):
    """Each broker in the response.

    broker_id: The broker ID.
    host: The broker hostname.
    port: The broker port.
    rack: The rack of the broker, or null if it has not been assigned to a rack.
    is_fenced (version 2): Whether the broker is fenced
    """

    __slots__ = ("broker_id", "host", "is_fenced", "port", "rack")

    def __init__(
        self,
        broker_id: int = 0,
        host: str = "",
        port: int = 0,
        rack: str | None = None,
        is_fenced: bool = False,
    ) -> None:
        self.broker_id = broker_id
        self.host = host
        self.port = port
        self.rack = rack
        self.is_fenced = is_fenced

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeClusterBroker, int]:
        (broker_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_string(data, at, True)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        rack, at = read_nullable_string(data, at, True)
        is_fenced = False
        if version >= 2:
            (is_fenced,) = _BOOL.unpack_from(data, at)
            at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(broker_id, host, port, rack, is_fenced), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.broker_id)
        write_string(out, self.host, True)
        out += _INT32.pack(self.port)
        write_nullable_string(out, self.rack, True)
        if version >= 2:
            out += _BOOL.pack(self.is_fenced)
        elif self.is_fenced:
            refuse_value("is_fenced", version)
        out.append(0)


class DescribeClusterResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code: The top-level error code, or 0 if there was no error.
    error_message: The top-level error message, or null if there was no error.
    endpoint_type (from version 1): The endpoint type that was described. 1=brokers,
        2=controllers.
    cluster_id: The cluster ID that responding broker belongs to.
    controller_id: The ID of the controller. When handled by a controller, returns the current
        voter leader ID. When handled by a broker, returns a random alive broker ID as a
        fallback.
    brokers: Each broker in the response.
    cluster_authorized_operations: 32-bit bitfield to represent authorized operations for this
        cluster.
    """

    __slots__ = (
        "brokers",
        "cluster_authorized_operations",
        "cluster_id",
        "controller_id",
        "endpoint_type",
        "error_code",
        "error_message",
        "throttle_time_ms",
    )
    API_KEY: ClassVar[int] = 60
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        endpoint_type: int = 1,
        cluster_id: str = "",
        controller_id: int = -1,
        brokers: list[DescribeClusterBroker] | None = None,
        cluster_authorized_operations: int = -2147483648,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.endpoint_type = endpoint_type
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.brokers: list[DescribeClusterBroker] = [] if brokers is None else brokers
        self.cluster_authorized_operations = cluster_authorized_operations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeClusterResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        endpoint_type = 1
        if version >= 1:
            (endpoint_type,) = _INT8.unpack_from(data, at)
            at += 1
        cluster_id, at = read_string(data, at, True)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        brokers, at = read_structs(data, at, True, DescribeClusterBroker.read, version)
        (cluster_authorized_operations,) = _INT32.unpack_from(data, at)
        at += 4
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            throttle_time_ms,
            error_code,
            error_message,
            endpoint_type,
            cluster_id,
            controller_id,
            brokers,
            cluster_authorized_operations,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, True)
        if version >= 1:
            out += _INT8.pack(self.endpoint_type)
        elif self.endpoint_type != 1:
            refuse_value("endpoint_type", version)
        write_string(out, self.cluster_id, True)
        out += _INT32.pack(self.controller_id)
        write_structs(out, self.brokers, True, version)
        out += _INT32.pack(self.cluster_authorized_operations)
        out.append(0)
