"""The table of what requests ask: no request is forgotten, and each can be refused."""

from __future__ import annotations

import pytest

from barnabas.broker.security.authorization import OPEN, RULES
from barnabas.broker.security.unauthorized import can_tell_unauthorized
from barnabas.protocol.api_table import APIS, Api

FOR_EVERYBODY = {
    "ApiVersions", "SaslHandshake", "SaslAuthenticate", "GetTelemetrySubscriptions",
    "PushTelemetry", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken",
    "DescribeDelegationToken",
}  # fmt: skip


def test_each_request_has_a_row_and_no_row_is_of_nothing() -> None:
    assert sorted(RULES) == sorted(api.name for api in APIS)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_each_request_asks_for_something_or_is_for_everybody(api: Api) -> None:
    rule = RULES[api.name]
    assert (rule is OPEN) == (api.name in FOR_EVERYBODY)
    if rule is not OPEN:
        assert rule.asks
        assert can_tell_unauthorized(api.name) or api.name in ("DescribeCluster",)
