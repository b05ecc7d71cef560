"""The command line's message about a request that ACLs refused names the operation that was
denied.
"""

from __future__ import annotations

import pytest
from helpers.api_rows import RULES

from barnabas.broker.security.acls import ResourceType
from barnabas.cli.denied import OF_REQUEST

KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


@pytest.mark.parametrize("request_name", OF_REQUEST)
def test_the_operation_named_for_a_request_is_one_that_the_broker_checks(request_name: str) -> None:
    for kind, operation in OF_REQUEST[request_name].items():
        asked = {
            ask.operation.name.lower().replace("_", "-")
            for ask in RULES[request_name].asks
            if ask.resource_type == KINDS[kind]
        }
        assert operation in asked, kind


def test_each_kind_of_resource_that_a_request_needs_has_an_operation() -> None:
    """The table omits rights that only other brokers need, and rights whose absence only removes
    entries from a response.
    """
    passed_over = {
        ("Fetch", "cluster"), ("Metadata", "cluster"), ("FindCoordinator", "cluster"),
        ("AddPartitionsToTxn", "cluster"), ("ListGroups", "group"), ("DeleteTopics", "cluster"),
        ("DescribeTransactions", "topic"), ("InitProducerId", "topic"),
    }  # fmt: skip
    missing = {
        (name, kind)
        for name, operations in OF_REQUEST.items()
        for kind, resource_type in KINDS.items()
        if kind not in operations
        and any(ask.resource_type == resource_type for ask in RULES[name].asks)
    }
    assert missing == passed_over
