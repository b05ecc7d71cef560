"""DescribeClientQuotas and AlterClientQuotas. The expected codes are those of Apache Kafka 3.9."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import AdminHost

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)

PRODUCE, FETCH, REQUESTS = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
CONNECTIONS = "connection_creation_rate"
EXACT, DEFAULT, ANY = 0, 1, 2
Entity = tuple[tuple[str, str | None], ...]
U, C, UC = (("user", "u"),), (("client-id", "c"),), (("client-id", "c"), ("user", "u"))
USERS, IP = (("user", None),), (("ip", "192.0.2.1"),)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AdminHost]:
    host = AdminHost(tmp_path)
    yield host
    host.close()


def quota(entity: Entity, *operations: tuple[str, float | None]) -> EntryData:
    return EntryData(
        [EntityData(*pair) for pair in entity],
        [OpData(key, value or 0.0, value is None) for key, value in operations],
    )


def alter(host: AdminHost, *entries: EntryData, validate_only: bool = False) -> list[Any]:
    request = AlterClientQuotasRequest(list(entries), validate_only)
    answer = host.call(request, 1)
    return [
        (tuple((one.entity_type, one.entity_name) for one in row.entity), row.error_code)
        for row in answer.entries
    ]


def described(
    host: AdminHost,
    *components: tuple[str, int, str | None],
    strict: bool = False,
    version: int = 1,
) -> Any:
    request = DescribeClientQuotasRequest([ComponentData(*one) for one in components], strict)
    answer = host.call(request, version)
    if answer.error_code:
        assert answer.entries is None and answer.error_message
        return Code(answer.error_code)
    return {
        tuple((one.entity_type, one.entity_name) for one in row.entity): {
            value.key: value.value for value in row.values
        }
        for row in answer.entries
    }


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_found_changed_and_removed(host: AdminHost, version: int) -> None:
    assert alter(
        host, quota(U, (PRODUCE, 1000.0), (FETCH, 5.0)), quota(UC, (REQUESTS, 0.5)),
        quota(USERS, (PRODUCE, 7.0)), quota(IP, (CONNECTIONS, 3.0)),
    ) == [(U, 0), (UC, 0), (USERS, 0), (IP, 0)]  # fmt: skip
    held = {
        U: {PRODUCE: 1000.0, FETCH: 5.0},
        UC: {REQUESTS: 0.5},
        USERS: {PRODUCE: 7.0},
        IP: {CONNECTIONS: 3.0},
    }
    assert described(host, version=version) == held
    alter(host, quota(U, (PRODUCE, 1.0), (FETCH, None)), quota(USERS, (PRODUCE, None)))
    del held[USERS]
    held[U] = {PRODUCE: 1.0}
    assert described(host, version=version) == held
    host.restart()
    assert described(host, version=version) == held
    assert host.broker.quotas.clients is not None


def test_a_filter_finds_entities_by_exact_default_or_any_name(host: AdminHost) -> None:
    for entity in (U, C, UC, USERS):
        alter(host, quota(entity, (PRODUCE, 1.0)))
    found = lambda *components, **more: set(described(host, *components, **more))  # noqa: E731
    assert found(strict=True) == set()
    assert found(("user", EXACT, "u")) == {U, UC}
    assert found(("user", EXACT, "u"), strict=True) == {U}
    assert found(("user", DEFAULT, None)) == {USERS}
    assert found(("user", ANY, None)) == {U, UC, USERS}
    assert found(("user", ANY, None), ("client-id", EXACT, "c")) == {UC}
    assert found(("user", EXACT, "<default>")) == set()
    assert found(("user", EXACT, "")) == set()


@pytest.mark.parametrize(
    ("code", "components"),
    [
        (Code.UNSUPPORTED_VERSION, [("group", EXACT, "x")]),
        (Code.INVALID_REQUEST, [("", EXACT, "x")]),
        (Code.INVALID_REQUEST, [("user", EXACT, "x"), ("user", ANY, None)]),
        (Code.INVALID_REQUEST, [("user", EXACT, None)]),
        (Code.INVALID_REQUEST, [("user", DEFAULT, "x")]),
        (Code.INVALID_REQUEST, [("user", ANY, "x")]),
        (Code.INVALID_REQUEST, [("user", 7, None)]),
        (Code.INVALID_REQUEST, [("ip", ANY, None), ("user", ANY, None)]),
    ],
)
def test_invalid_filters_are_refused(
    host: AdminHost, code: Code, components: list[tuple[str, int, str | None]]
) -> None:
    assert described(host, *components) is code


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        *((C, PRODUCE, value) for value in (0.0, -1.0, 0.5, 1e19, math.inf)),
        *((C, REQUESTS, value) for value in (0.0, -1.0)),
        *((IP, CONNECTIONS, value) for value in (0.0, 0.1, 1e12)),
        (C, "no_such_rate", 1.0),
        (C, CONNECTIONS, 1.0),
        (IP, PRODUCE, 1.0),
        ((), PRODUCE, 1.0),
        ((("group", "g"),), PRODUCE, 1.0),
        ((("", "g"),), PRODUCE, 1.0),
        ((("client-id", ""),), PRODUCE, 1.0),
        ((*IP, *U), CONNECTIONS, 1.0),
        ((("ip", "no.such.host.invalid"),), CONNECTIONS, 1.0),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_invalid_quotas_are_refused_and_change_nothing(
    host: AdminHost, entity: Entity, key: str, value: float, *, validate_only: bool
) -> None:
    entry = quota(entity, (key, value))
    ((_, code),) = alter(host, entry, validate_only=validate_only)
    assert code == Code.INVALID_REQUEST
    assert described(host) == {}


def test_valid_quotas_are_accepted(host: AdminHost) -> None:
    for value in (1.0000001, 1e15, math.nan):
        assert alter(host, quota(C, (PRODUCE, value))) == [(C, Code.NONE)]
    for value in (1e-9, 1e9, math.nan):
        assert alter(host, quota(C, (REQUESTS, value))) == [(C, Code.NONE)]
    assert alter(host, quota(C, ("no_such_rate", None))) == [(C, Code.NONE)]
    assert alter(host, quota(C)) == [(C, Code.NONE)]
    assert alter(host, quota((("ip", "2001:db8::1"),), (CONNECTIONS, 1.0)))[0][1] == Code.NONE


def test_an_invalid_quota_refuses_only_its_own_entity(host: AdminHost) -> None:
    bad = quota(C, (FETCH, 1.0), (PRODUCE, -1.0))
    assert alter(host, bad, quota(U, (PRODUCE, 1.0))) == [(C, Code.INVALID_REQUEST), (U, 0)]
    assert alter(host, quota(C, (FETCH, 1.0), (FETCH, None))) == [(C, Code.INVALID_REQUEST)]
    assert described(host) == {U: {PRODUCE: 1.0}}


def test_when_an_entity_is_named_twice_the_first_entry_applies(host: AdminHost) -> None:
    twice = quota(C, (PRODUCE, 3.0)), quota(C, (FETCH, 4.0))
    assert alter(host, *twice) == [(C, Code.INVALID_REQUEST)]
    assert described(host) == {C: {PRODUCE: 3.0}}


def test_validate_only_changes_nothing(host: AdminHost) -> None:
    assert alter(host, quota(U, (PRODUCE, 1.0)), validate_only=True) == [(U, Code.NONE)]
    assert described(host) == {}
    assert host.broker.quotas.clients is None


# --- their order ----------------------------------------------------------------------------------

LETTERS = {
    "p": "producer_byte_rate",
    "c": "consumer_byte_rate",
    "r": "request_percentage",
    "m": "controller_mutation_rate",
}
# Each row has the types that requests set or, after "-", remove, and the order in which Apache
# Kafka then lists them. The orders were computed by Kafka's ClientQuotaDelta with Java's HashMap.
ORDERS = [
    ("p", "p"), ("c", "c"), ("r", "r"), ("m", "m"), ("pc", "cp"), ("pr", "rp"), ("cr", "cr"),
    ("pcr", "crp"), ("pm", "mp"), ("cm", "cm"), ("pcm", "cmp"), ("rm", "mr"), ("prm", "mrp"),
    ("crm", "cmr"), ("pcrm", "pcmr"),
    ("p r", "pr"), ("r p", "rp"), ("pc r-c p-c", "pr"), ("pr pcr p-c", "rp"), ("p cr", "cpr"),
    ("pcrm -cm", "pr"), ("c r-c pm-c", "mrp"),
]  # fmt: skip


@pytest.mark.parametrize(("requests", "listed"), ORDERS)
def test_quotas_are_listed_in_kafkas_order(host: AdminHost, requests: str, listed: str) -> None:
    """A request is written as the letters of the quotas that it sets, a hyphen, and the letters of
    those that it removes. Kafka's order is that of a hash table, and depends on the history.
    """
    for request in requests.split():
        wanted, _, removed = request.partition("-")
        operations = [(LETTERS[one], 5.0) for one in wanted]
        alter(host, quota(U, *operations, *((LETTERS[one], None) for one in removed)))
    for _ in range(2):
        assert list(described(host)[U]) == [LETTERS[one] for one in listed]
        host.restart()
