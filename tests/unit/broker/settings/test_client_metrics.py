"""The configuration that a subscription of client metrics accepts (KIP-714)."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.client_metrics import check_client_metrics
from barnabas.protocol.errors import Code, KafkaError


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"interval.ms": "100", "metrics": "*"},
        {"match": "client_id=a.*, client_software_name=librdkafka"},
    ],
)
def test_subscriptions_that_may_be(configs: dict[str, str]) -> None:
    check_client_metrics(configs)


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"interval": "100"}, Code.INVALID_REQUEST),
        ({"interval.ms": "99"}, Code.INVALID_REQUEST),
        ({"interval.ms": "3600001"}, Code.INVALID_REQUEST),
        ({"match": "client_id"}, Code.INVALID_CONFIG),
        ({"match": "client_id="}, Code.INVALID_CONFIG),
        ({"match": "colour=red"}, Code.INVALID_CONFIG),
    ],
)
def test_invalid_client_metrics_subscriptions_are_refused(
    configs: dict[str, str], code: Code
) -> None:
    with pytest.raises(KafkaError) as refused:
        check_client_metrics(configs)
    assert refused.value.code is code
