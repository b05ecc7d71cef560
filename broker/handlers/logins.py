"""SaslHandshake and SaslAuthenticate on a listener without SASL."""

from __future__ import annotations

from barnabas.broker.admission.guard_steps import rule
from barnabas.broker.api_row import ApiRow
from barnabas.protocol.api import FEW, NEVER, Api
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.request_context import RequestContext


def on_sasl_handshake(
    request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    """Refuse the request with ILLEGAL_SASL_STATE, as on every listener without SASL."""
    return SaslHandshakeResponse(Code.ILLEGAL_SASL_STATE)


def on_sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Refuse the request with ILLEGAL_SASL_STATE, as on every listener without SASL."""
    return SaslAuthenticateResponse(
        Code.ILLEGAL_SASL_STATE,
        "This listener does not authenticate clients: connect without SASL.",
    )


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(17, "SaslHandshake", 0, 1, flexible_from=NEVER, most_elements=FEW),
        right=rule(),
        handler=lambda parts: on_sasl_handshake,
    ),
    ApiRow(
        Api(36, "SaslAuthenticate", 0, 2, flexible_from=2, most_elements=FEW),
        right=rule(),
        handler=lambda parts: on_sasl_authenticate,
    ),
)
