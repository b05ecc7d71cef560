"""Delegation tokens (KIP-48): all requests are refused, as by Apache Kafka without
`delegation.token.secret.key`.

| client | error |
|---|---|
| not authenticated | DELEGATION_TOKEN_REQUEST_NOT_ALLOWED |
| authenticated | DELEGATION_TOKEN_AUTH_DISABLED |

Before that, as in Apache Kafka, CreateDelegationToken for another owner, without CREATE_TOKENS on
that user, is DELEGATION_TOKEN_AUTHORIZATION_FAILED (KIP-373), and with a renewer that is no User
INVALID_PRINCIPAL_TYPE.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from barnabas.broker.admission.guard_steps import Ask, in_handler, rule
from barnabas.broker.admission.rights import CREATE_TOKENS
from barnabas.broker.admission.rights import USER as USER_RESOURCE
from barnabas.broker.api_row import ApiRow
from barnabas.broker.audit import ANONYMOUS
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.protocol.api import FEW, Api
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from barnabas.protocol.request_context import RequestContext

NEVER_MS = -1
KNOWS_REQUESTER = 3
USER = "User"


def on_create_delegation_token(
    connections: Mapping[int, ConnectionState],
    access: ClientAccess,
    request: CreateDelegationTokenRequest,
    context: RequestContext,
) -> CreateDelegationTokenResponse:
    """The refusal, with the owner and the requester that the token would have had."""
    principal = connections[context.connection_id].principal
    kind, _, name = principal.partition(":")
    has_requester = context.api_version >= KNOWS_REQUESTER
    code = _refusal(connections, context)
    if code is Code.DELEGATION_TOKEN_AUTH_DISABLED:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
        if request.owner_principal_name and not _may_own(access, context, principal, owner):
            code = Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        elif any(renewer.principal_type != USER for renewer in request.renewers):
            code = Code.INVALID_PRINCIPAL_TYPE
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=request.owner_principal_type or kind,
        principal_name=request.owner_principal_name or name,
        token_requester_principal_type=kind if has_requester else "",
        token_requester_principal_name=name if has_requester else "",
        issue_timestamp_ms=NEVER_MS,
        expiry_timestamp_ms=NEVER_MS,
        max_timestamp_ms=NEVER_MS,
    )


def on_renew_delegation_token(
    connections: Mapping[int, ConnectionState],
    request: RenewDelegationTokenRequest,
    context: RequestContext,
) -> RenewDelegationTokenResponse:
    """The refusal: there are no tokens."""
    return RenewDelegationTokenResponse(_refusal(connections, context), NEVER_MS)


def on_expire_delegation_token(
    connections: Mapping[int, ConnectionState],
    request: ExpireDelegationTokenRequest,
    context: RequestContext,
) -> ExpireDelegationTokenResponse:
    """The refusal: there are no tokens."""
    return ExpireDelegationTokenResponse(_refusal(connections, context), NEVER_MS)


def on_describe_delegation_token(
    connections: Mapping[int, ConnectionState],
    request: DescribeDelegationTokenRequest,
    context: RequestContext,
) -> DescribeDelegationTokenResponse:
    """The refusal: there are no tokens."""
    return DescribeDelegationTokenResponse(_refusal(connections, context))


def _may_own(access: ClientAccess, context: RequestContext, principal: str, owner: str) -> bool:
    """Whether the client may create tokens of the owner."""
    of_client = access.of(context)
    if owner == principal or of_client is None:
        return True

    return of_client.may(Operation.CREATE_TOKENS, ResourceType.USER, owner)


def _refusal(connections: Mapping[int, ConnectionState], context: RequestContext) -> Code:
    """The code for a client without authentication, or the code for a broker without a secret
    key.
    """
    if connections[context.connection_id].principal == ANONYMOUS:
        return Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return Code.DELEGATION_TOKEN_AUTH_DISABLED


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(38, "CreateDelegationToken", 0, 3, flexible_from=2, most_elements=FEW),
        right=rule(in_handler(Ask(CREATE_TOKENS, USER_RESOURCE, "for a token of another user"))),
        handler=lambda parts: partial(on_create_delegation_token, parts.connections, parts.access),
    ),
    ApiRow(
        Api(39, "RenewDelegationToken", 0, 2, flexible_from=2, most_elements=FEW),
        right=rule(),
        handler=lambda parts: partial(on_renew_delegation_token, parts.connections),
    ),
    ApiRow(
        Api(40, "ExpireDelegationToken", 0, 2, flexible_from=2, most_elements=FEW),
        right=rule(),
        handler=lambda parts: partial(on_expire_delegation_token, parts.connections),
    ),
    ApiRow(
        Api(41, "DescribeDelegationToken", 0, 3, flexible_from=2, most_elements=FEW),
        right=rule(),
        handler=lambda parts: partial(on_describe_delegation_token, parts.connections),
    ),
)
