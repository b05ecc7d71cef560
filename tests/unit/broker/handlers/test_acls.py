"""Creation, lookup and removal of ACLs (KIP-140, KIP-290). The expected codes are those of Apache
Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost, fetch, produce

from barnabas.broker.handlers import acls
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, CLUSTER = 2, 4
READ, WRITE, ALLOW = 3, 4, 3
WITH_ACLS = {
    "authorizer_class_name": "StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = CoreHost(tmp_path, **WITH_ACLS)
    host.connect(1)
    yield host
    host.broker.close_logs(host.now_ms)


def creation(name: str = "t", **changes: Any) -> AclCreation:
    one = AclCreation(TOPIC, name, LITERAL, "User:ann", "*", READ, ALLOW)
    for field, value in changes.items():
        setattr(one, field, value)
    return one


def create(host: CoreHost, *creations: AclCreation) -> list[int]:
    answer = host.call(1, CreateAclsRequest(list(creations)), 3)
    return [row.error_code for row in answer.results]


def found(host: CoreHost, name: str | None = None, pattern: int = ANY) -> list[str]:
    request = DescribeAclsRequest(ANY, name, pattern, None, None, ANY, ANY)
    return sorted(row.resource_name for row in host.call(1, request, 3).resources for _ in row.acls)


def test_acls_are_created_found_and_removed_by_pattern(host: CoreHost) -> None:
    prefixed = creation("t", resource_pattern_type=PREFIXED)
    assert create(host, creation(), creation("u"), prefixed, creation()) == [0, 0, 0, 0]
    assert found(host) == ["t", "t", "u"], "one that is there is not kept twice"
    assert found(host, "tx", MATCH) == ["t"]
    answer = host.call(
        1, DeleteAclsRequest([DeleteAclsFilter(TOPIC, "t", MATCH, None, None, ANY, ANY)]), 3
    )
    (result,) = answer.filter_results
    assert sorted(acl.pattern_type for acl in result.matching_acls) == [LITERAL, PREFIXED]
    assert found(host) == ["u"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"resource_type": 99}, Code.INVALID_REQUEST),
        ({"operation": 99}, Code.INVALID_REQUEST),
        ({"resource_name": ""}, Code.INVALID_REQUEST),
        ({"resource_type": CLUSTER}, Code.INVALID_REQUEST),
        ({"operation": ANY}, Code.UNKNOWN_SERVER_ERROR),
        ({"resource_pattern_type": MATCH}, Code.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_is_no_acl_is_refused(host: CoreHost, changes: dict[str, Any], code: Code) -> None:
    assert create(host, creation(**changes)) == [code]
    assert found(host) == []


def test_a_zero_ends_the_connection(host: CoreHost) -> None:
    host.ask(1, CreateAclsRequest([creation(operation=0)]), 3)
    assert "number 0" in host.closed[1]


def test_a_fetch_that_waits_reads_nothing_once_its_right_is_gone(host: CoreHost) -> None:
    host.create("t")
    create(host, creation())
    host.connect(2)
    host.broker.connections[2].principal = "User:ann"
    host.ask(2, fetch({"t": {0: 0}}, max_wait_ms=60_000), 11)
    assert host.answers[2] == []
    removal = DeleteAclsRequest([DeleteAclsFilter(TOPIC, "t", ANY, None, None, ANY, ANY)])
    assert host.call(1, removal, 3).filter_results[0].error_code == Code.NONE
    host.call(1, produce("t"), 9)
    (row,) = host.answers[2].pop().responses[0].partitions
    assert row.error_code == Code.TOPIC_AUTHORIZATION_FAILED and not row.records


@pytest.mark.parametrize("name", [None, "t"])
@pytest.mark.parametrize(
    "numbers", [(99, ANY, ANY, ANY), (TOPIC, 99, ANY, ANY), (TOPIC, ANY, 99, ANY),
                (TOPIC, ANY, ANY, 99)]
)  # fmt: skip
def test_an_unknown_number_in_a_filter_removes_nothing(
    host: CoreHost, numbers: tuple[int, int, int, int], name: str | None
) -> None:
    create(host, creation())
    kind, pattern, operation, permission = numbers
    asked = DeleteAclsFilter(kind, name, pattern, None, None, operation, permission)
    request = DeleteAclsRequest([asked])
    assert [row.error_code for row in host.call(1, request, 3).filter_results] == [
        Code.INVALID_REQUEST
    ]
    assert found(host) == ["t"]


def test_version_0_finds_and_removes_only_literal_acls(host: CoreHost) -> None:
    """Version 0 has no pattern type, so it finds and removes only ACLs that it can express."""
    create(host, creation("u"), creation("t", resource_pattern_type=PREFIXED))
    request = DescribeAclsRequest(ANY, None, LITERAL, None, None, ANY, ANY)
    assert [row.resource_name for row in host.call(1, request, 0).resources] == ["u"]
    every = DeleteAclsRequest([DeleteAclsFilter(ANY, None, LITERAL, None, None, ANY, ANY)])
    (result,) = host.call(1, every, 0).filter_results
    assert [acl.resource_name for acl in result.matching_acls] == ["u"]
    assert found(host) == ["t"]


def test_without_an_authorizer_acl_requests_are_refused(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    host.connect(1)
    request = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    assert host.call(1, request, 3).error_code == Code.SECURITY_DISABLED
    assert create(host, creation()) == [Code.SECURITY_DISABLED]
    removed = host.call(
        1, DeleteAclsRequest([DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)]), 3
    )
    assert [row.error_code for row in removed.filter_results] == [Code.SECURITY_DISABLED]
    host.broker.close_logs(host.now_ms)


def test_thousands_of_acls_are_found_and_removed_in_slices(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the slices other clients are served, and may create ACLs."""
    monkeypatch.setattr(acls, "ACLS_AT_ONCE", 10)
    assert set(create(host, *(creation(f"t{at}") for at in range(95)))) == {0}
    host.connect(2)
    host.ask(2, DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY), 3)
    assert not host.answers[2]
    assert create(host, creation("meanwhile")) == [0]
    assert len(host.await_answer(2).resources) == 95
    filters = [DeleteAclsFilter(TOPIC, f"t{at}", LITERAL, None, None, ANY, ANY) for at in (3, 94)]
    host.ask(2, DeleteAclsRequest(filters), 3)
    assert len(host.answers[2]) == 1, "it continues in the next slices"
    assert create(host, creation("and more")) == [0]
    results = host.await_answer(2).filter_results
    assert [[row.resource_name for row in one.matching_acls] for one in results] == [
        ["t3"],
        ["t94"],
    ]
    monkeypatch.setattr(acls, "ACLS_AT_ONCE", 4_000)
    assert len(found(host)) == 95 and not {"t3", "t94"} & set(found(host))
