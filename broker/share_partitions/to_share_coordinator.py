"""Handlers of requests that the share coordinator answers."""

from __future__ import annotations

from barnabas.broker.outbox import PARKED, Answer
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.routes import Decide, Handler, Request
from barnabas.broker.share_partitions.share_runtime import ShareRuntime
from barnabas.protocol.request_context import RequestContext


def to_share_coordinator(
    decide: Decide[Request], runtime: ShareRuntime, requests: Requests
) -> Handler[Request]:
    """Make the handler of a request that the share coordinator answers."""

    def handle(request: Request, context: RequestContext) -> Answer:
        requests.park(context)
        runtime.run(decide(request, context, context.now_ms), context.now_ms)
        return PARKED

    return handle
