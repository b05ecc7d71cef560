"""GetTelemetrySubscriptions and PushTelemetry (KIP-714), see `broker/requests/telemetry.py`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial

from barnabas.broker.admission.guard_steps import rule
from barnabas.broker.api_row import ApiRow
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.outbox import Ids
from barnabas.broker.parts import Parts
from barnabas.broker.requests.telemetry import CODECS, MOST_BYTES, NO_ID, Telemetry
from barnabas.protocol.api import FEW, Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.protocol.request_context import RequestContext


def on_get_telemetry_subscriptions(
    ids: Ids,
    telemetry: Telemetry,
    connections: Mapping[int, ConnectionState],
    request: GetTelemetrySubscriptionsRequest,
    context: RequestContext,
) -> GetTelemetrySubscriptionsResponse:
    """The metrics that the client is to push, and how often. A client without an id gets one.

    Errors: THROTTLING_QUOTA_EXCEEDED if the client repeats the request too early.
    """
    client_id = request.client_instance_id or ids.uuid()
    properties = _properties(connections, context, client_id)
    try:
        wanted = telemetry.on_get_subscriptions(client_id, properties, context.now_ms)
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=[int(codec) for codec in CODECS],
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=MOST_BYTES,
        delta_temporality=True,
        requested_metrics=list(wanted.metrics),
    )


def on_push_telemetry(
    telemetry: Telemetry,
    connections: Mapping[int, ConnectionState],
    request: PushTelemetryRequest,
    context: RequestContext,
) -> PushTelemetryResponse:
    """Count the metrics that the client pushes. Errors: see `Telemetry.on_push`."""
    try:
        telemetry.on_push(
            request.client_instance_id or NO_ID,
            request.subscription_id,
            _properties(connections, context, request.client_instance_id),
            codec=request.compression_type,
            size_bytes=len(request.metrics),
            is_last=request.terminating,
            now_ms=context.now_ms,
        )
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse(error_code=Code.NONE)


def _properties(
    connections: Mapping[int, ConnectionState],
    context: RequestContext,
    client_instance_id: uuid.UUID | None,
) -> dict[str, str]:
    """The properties of a client that a subscription's `match` can name."""
    name, _, version = connections[context.connection_id].client_software.rpartition(" ")
    return {
        "client_id": context.client_id,
        "client_instance_id": str(client_instance_id),
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": context.client_host.lstrip("/"),
    }


# --- the APIs of this family ----------------------------------------------------------------------


def _telemetry(parts: Parts) -> Telemetry:
    return parts.of_family(
        Telemetry, lambda: Telemetry(parts.metadata.client_metrics, parts.counters)
    )


ROWS = (
    ApiRow(
        Api(71, "GetTelemetrySubscriptions", 0, 0, flexible_from=0, most_elements=FEW),
        right=rule(),
        handler=lambda parts: partial(
            on_get_telemetry_subscriptions, parts.ids, _telemetry(parts), parts.connections
        ),
    ),
    ApiRow(
        Api(72, "PushTelemetry", 0, 0, flexible_from=0, most_elements=FEW),
        right=rule(),
        handler=lambda parts: partial(on_push_telemetry, _telemetry(parts), parts.connections),
    ),
)
