"""GetTelemetrySubscriptions, API key 71: version 0, flexible from 0.

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
    read_numbers,
    read_strings,
    read_uuid,
    skip_tags,
    write_numbers,
    write_strings,
    write_uuid,
)

_INT32 = struct.Struct(">i")
_INT32_2_TIMES_BOOL = struct.Struct(">ii?")
_INT32_INT16 = struct.Struct(">ih")


class GetTelemetrySubscriptionsRequest(Message):
    """The request.

    client_instance_id: The client's id, which the broker gives it; zero: none yet.
    """

    __slots__ = ("client_instance_id",)
    API_KEY: ClassVar[int] = 71
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(self, client_instance_id: uuid.UUID | None = None) -> None:
        self.client_instance_id = client_instance_id

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[GetTelemetrySubscriptionsRequest, int]:
        client_instance_id, at = read_uuid(data, at)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(client_instance_id), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.client_instance_id)
        out.append(0)

    def error_response(self, version: int, code: Code) -> GetTelemetrySubscriptionsResponse:
        return GetTelemetrySubscriptionsResponse(error_code=code)


class GetTelemetrySubscriptionsResponse(Message):
    """The response.

    throttle_time_ms: How long the client is to wait, in milliseconds.
    error_code: The error, or 0.
    client_instance_id: The client's id, which the broker gives it; zero: none yet.
    subscription_id: Changes when what is asked for does.
    accepted_compression_types: The codecs that the broker reads, the best first.
    push_interval_ms: How often metrics are to be sent, in milliseconds.
    telemetry_max_bytes: How large what is sent may be.
    delta_temporality: Whether counters are to be sent as differences.
    requested_metrics: Prefixes of the metrics that are wanted; one empty: all; none at all:
        nothing is to be sent.
    """

    __slots__ = (
        "accepted_compression_types",
        "client_instance_id",
        "delta_temporality",
        "error_code",
        "push_interval_ms",
        "requested_metrics",
        "subscription_id",
        "telemetry_max_bytes",
        "throttle_time_ms",
    )
    API_KEY: ClassVar[int] = 71
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        client_instance_id: uuid.UUID | None = None,
        subscription_id: int = 0,
        accepted_compression_types: list[int] | None = None,
        push_interval_ms: int = 0,
        telemetry_max_bytes: int = 0,
        delta_temporality: bool = False,
        requested_metrics: list[str] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.accepted_compression_types: list[int] = (
            [] if accepted_compression_types is None else accepted_compression_types
        )
        self.push_interval_ms = push_interval_ms
        self.telemetry_max_bytes = telemetry_max_bytes
        self.delta_temporality = delta_temporality
        self.requested_metrics: list[str] = [] if requested_metrics is None else requested_metrics

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[GetTelemetrySubscriptionsResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        client_instance_id, at = read_uuid(data, at)
        (subscription_id,) = _INT32.unpack_from(data, at)
        at += 4
        accepted_compression_types, at = read_numbers(data, at, True, "b")
        push_interval_ms, telemetry_max_bytes, delta_temporality = _INT32_2_TIMES_BOOL.unpack_from(
            data, at
        )
        at += 9
        requested_metrics, at = read_strings(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            throttle_time_ms,
            error_code,
            client_instance_id,
            subscription_id,
            accepted_compression_types,
            push_interval_ms,
            telemetry_max_bytes,
            delta_temporality,
            requested_metrics,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_uuid(out, self.client_instance_id)
        out += _INT32.pack(self.subscription_id)
        write_numbers(out, self.accepted_compression_types, True, "b")
        out += _INT32_2_TIMES_BOOL.pack(
            self.push_interval_ms, self.telemetry_max_bytes, self.delta_temporality
        )
        write_strings(out, self.requested_metrics, True)
        out.append(0)
