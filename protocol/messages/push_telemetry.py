"""PushTelemetry, API key 72: version 0, flexible from 0.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
import uuid
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_bytes,
    read_uuid,
    skip_tags,
    write_bytes,
    write_uuid,
)

_INT32_BOOL_INT8 = struct.Struct(">i?b")
_INT32_INT16 = struct.Struct(">ih")


class PushTelemetryRequest(Message):
    """The request.

    client_instance_id: The client's id, which the broker gives it; zero: none yet.
    subscription_id: As in the broker's subscription.
    terminating: Whether the client is about to end.
    compression_type: The codec of the metrics.
    metrics: Metrics in OpenTelemetry's protobuf form, MetricsData.
    """

    __slots__ = (
        "client_instance_id",
        "compression_type",
        "metrics",
        "subscription_id",
        "terminating",
    )
    API_KEY: ClassVar[int] = 72
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        client_instance_id: uuid.UUID | None = None,
        subscription_id: int = 0,
        terminating: bool = False,
        compression_type: int = 0,
        metrics: bytes = b"",
    ) -> None:
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.terminating = terminating
        self.compression_type = compression_type
        self.metrics = metrics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PushTelemetryRequest, int]:
        client_instance_id, at = read_uuid(data, at)
        subscription_id, terminating, compression_type = _INT32_BOOL_INT8.unpack_from(data, at)
        at += 6
        metrics, at = read_bytes(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(client_instance_id, subscription_id, terminating, compression_type, metrics), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.client_instance_id)
        out += _INT32_BOOL_INT8.pack(self.subscription_id, self.terminating, self.compression_type)
        write_bytes(out, self.metrics, True)
        out.append(0)

    def error_response(self, version: int, code: Code) -> PushTelemetryResponse:
        return PushTelemetryResponse(error_code=code)


class PushTelemetryResponse(Message):
    """The response.

    throttle_time_ms: How long the client is to wait, in milliseconds.
    error_code: The error, or 0.
    """

    __slots__ = ("error_code", "throttle_time_ms")
    API_KEY: ClassVar[int] = 72
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(self, throttle_time_ms: int = 0, error_code: int = 0) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PushTelemetryResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        out.append(0)
