"""Requests for delegation tokens are refused with the codes that Apache Kafka 3.9 returns if it has
no secret key.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.core_host import CoreHost

from barnabas.broker.handlers.delegation_tokens import on_create_delegation_token
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.request_context import RequestContext


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "request_",
    [
        CreateDelegationTokenRequest(max_lifetime_ms=-1),
        RenewDelegationTokenRequest(b"x", 1),
        ExpireDelegationTokenRequest(b"x", 1),
        DescribeDelegationTokenRequest(owners=None),
    ],
    ids=lambda request: type(request).__name__,
)
def test_an_unauthenticated_client_may_send_no_delegation_token_request(
    request_: Message, version: int, tmp_path: Path
) -> None:
    host = CoreHost(tmp_path)
    answer = host.call(host.connect(1), request_, version)
    assert answer.error_code == Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize(("version", "requester"), [(2, ""), (3, "ANONYMOUS")])
def test_a_refused_token_names_its_owner_and_from_version_3_its_requester(
    version: int, requester: str, tmp_path: Path
) -> None:
    host = CoreHost(tmp_path)
    answer = host.call(host.connect(1), CreateDelegationTokenRequest(), version)
    assert (answer.principal_type, answer.principal_name) == ("User", "ANONYMOUS")
    assert answer.token_requester_principal_name == requester
    assert (answer.expiry_timestamp_ms, answer.hmac) == (-1, b"")


def test_an_authenticated_user_gets_delegation_token_auth_disabled(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    host.broker.connections[host.connect(1)].principal = "User:alice"
    context = RequestContext(1, 3, "", "/192.0.2.9", connection_id=1)
    answer = on_create_delegation_token(
        host.broker.connections, host.parts.access, CreateDelegationTokenRequest(), context
    )
    assert answer.error_code == Code.DELEGATION_TOKEN_AUTH_DISABLED
    assert answer.principal_name == "alice"
