"""Metrics that clients push (KIP-714). The expected codes are those that Apache Kafka 3.9
returned.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from helpers.core_host import CoreHost

from barnabas.broker.observation.counters import Counters
from barnabas.broker.requests.telemetry import MOST_BYTES, MOST_INSTANCES, Telemetry
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest

ID, NO_ID = uuid.UUID(int=7), uuid.UUID(int=0)
SUBSCRIPTIONS = {
    "all": {"metrics": "b.,a.", "interval.ms": "2000"},
    "some": {"metrics": "a.,c.", "interval.ms": "1000", "match": "client_id=shop-.*"},
    "others": {"metrics": "*", "interval.ms": "100", "match": "client_id=(?=x)x"},
}
SHOP = {"client_id": "shop-1"}
PUSHES = "barnabas_client_metrics_pushes_total"


def code_of_push(telemetry: Telemetry, client: uuid.UUID = ID, **given: int) -> Code:
    """Push metrics. Gives: the error code."""
    values = {"subscription_id": 0, "codec": 0, "size_bytes": 10, "is_last": False, "now_ms": 0}
    values |= given
    try:
        telemetry.on_push(client, values.pop("subscription_id"), SHOP, **values)  # type: ignore[arg-type]
    except KafkaError as error:
        return error.code
    return Code.NONE


def test_a_client_gets_the_metrics_of_all_matching_subscriptions() -> None:
    telemetry = Telemetry(SUBSCRIPTIONS, Counters())
    shop = telemetry.on_get_subscriptions(ID, SHOP, 0)
    assert (shop.metrics, shop.interval_ms) == (("a.", "b.", "c."), 1000)
    other = telemetry.on_get_subscriptions(uuid.UUID(int=8), {"client_id": "bank"}, 0)
    assert (other.metrics, other.interval_ms) == (("a.", "b."), 2000)
    assert other.subscription_id != shop.subscription_id


def test_nobody_is_asked_without_a_subscription() -> None:
    wanted = Telemetry({}, Counters()).on_get_subscriptions(ID, SHOP, 0)
    assert (wanted.metrics, wanted.interval_ms) == ((), 300_000)


def test_pushes_are_counted_and_early_ones_are_refused() -> None:
    counters = Counters()
    telemetry = Telemetry(SUBSCRIPTIONS, counters)
    number = telemetry.on_get_subscriptions(ID, SHOP, 0).subscription_id
    assert code_of_push(telemetry, subscription_id=number) == Code.NONE
    early = code_of_push(telemetry, subscription_id=number, now_ms=999)
    assert early == Code.THROTTLING_QUOTA_EXCEEDED
    assert code_of_push(telemetry, subscription_id=number, now_ms=1000) == Code.NONE
    with pytest.raises(KafkaError, match="THROTTLING_QUOTA_EXCEEDED"):
        telemetry.on_get_subscriptions(ID, SHOP, 1500)
    assert counters.rows(PUSHES) == {("taken",): 2, ("refused",): 1}
    assert counters.of("barnabas_client_metrics_bytes_total") == 20


def test_invalid_pushes_are_refused() -> None:
    telemetry = Telemetry(SUBSCRIPTIONS, Counters())
    number = telemetry.on_get_subscriptions(ID, SHOP, 0).subscription_id
    assert code_of_push(telemetry, NO_ID, subscription_id=number) == Code.INVALID_REQUEST
    stranger = uuid.UUID(int=9)
    assert code_of_push(telemetry, stranger) == Code.UNKNOWN_SUBSCRIPTION_ID
    refused = (
        ({"subscription_id": number, "codec": 9}, Code.UNSUPPORTED_COMPRESSION_TYPE),
        ({"subscription_id": number, "size_bytes": MOST_BYTES + 1}, Code.TELEMETRY_TOO_LARGE),
        ({"subscription_id": number + 1}, Code.UNKNOWN_SUBSCRIPTION_ID),
    )
    for at, (given, code) in enumerate(refused, 1):
        assert code_of_push(telemetry, now_ms=1000 * at, **given) == code
    telemetry.on_get_subscriptions(ID, SHOP, 3001)  # a refused client need not wait


def test_a_terminating_push_may_be_early_and_no_push_may_follow() -> None:
    telemetry = Telemetry(SUBSCRIPTIONS, Counters())
    number = telemetry.on_get_subscriptions(ID, SHOP, 0).subscription_id
    assert code_of_push(telemetry, subscription_id=number) == Code.NONE
    assert code_of_push(telemetry, subscription_id=number, is_last=True, now_ms=1) == Code.NONE
    after = code_of_push(telemetry, subscription_id=number, now_ms=5000)
    assert after == Code.INVALID_REQUEST


def test_after_a_change_of_subscriptions_a_client_must_request_them_again() -> None:
    subscriptions = dict(SUBSCRIPTIONS)
    telemetry = Telemetry(subscriptions, Counters())
    number = telemetry.on_get_subscriptions(ID, SHOP, 0).subscription_id
    subscriptions["all"] = {"metrics": "*"}
    assert code_of_push(telemetry, subscription_id=number) == Code.UNKNOWN_SUBSCRIPTION_ID
    assert telemetry.on_get_subscriptions(ID, SHOP, 1).metrics == ("*",)


def test_the_number_of_remembered_clients_is_bounded() -> None:
    telemetry = Telemetry(SUBSCRIPTIONS, Counters())
    for number in range(1, MOST_INSTANCES + 2):
        telemetry.on_get_subscriptions(uuid.UUID(int=number), {}, 0)
    # The client with id 1 was dropped, so this counts as its first request.
    telemetry.on_get_subscriptions(uuid.UUID(int=1), {}, 0)
    with pytest.raises(KafkaError):
        telemetry.on_get_subscriptions(uuid.UUID(int=MOST_INSTANCES + 1), {}, 0)


def test_the_client_that_asked_longest_ago_is_forgotten_first() -> None:
    """A client whose request was refused because it came too early is also kept."""
    telemetry = Telemetry(SUBSCRIPTIONS, Counters())
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    for client in (first, second):
        telemetry.on_get_subscriptions(client, {}, 0)
    with pytest.raises(KafkaError):
        telemetry.on_get_subscriptions(first, {}, 1)
    for number in range(3, MOST_INSTANCES + 2):
        telemetry.on_get_subscriptions(uuid.UUID(int=number), {}, 1)
    assert code_of_push(telemetry, second) == Code.UNKNOWN_SUBSCRIPTION_ID
    with pytest.raises(KafkaError):
        telemetry.on_get_subscriptions(first, {}, 2)


# The properties of a client, by the names that a subscription's `match` can use.
PROPERTIES = {
    "client_id": "tests",
    "client_software_name": "a",
    "client_software_version": "1",
    "client_source_address": "192.0.2.9",
}


@pytest.mark.parametrize("name", [*PROPERTIES, "client_instance_id"])
def test_a_client_matches_by_each_of_its_properties_when_it_asks_and_when_it_pushes(
    name: str, tmp_path: Path
) -> None:
    """A client without an id is matched by the id that it gets."""
    host = CoreHost(tmp_path)
    connection = host.connect(1)
    named = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    assert host.call(connection, named, 3).error_code == Code.NONE
    pattern = PROPERTIES.get(name, "[0-9a-f]{8}-.*")
    host.broker.metadata.set_client_metrics("one", {"metrics": "m.", "match": f"{name}={pattern}"})
    host.broker.metadata.set_client_metrics("other", {"metrics": "*", "match": f"{name}=another"})
    asked = host.call(connection, GetTelemetrySubscriptionsRequest(NO_ID), 0)
    assert asked.requested_metrics == ["m."]
    push = PushTelemetryRequest(asked.client_instance_id, asked.subscription_id, False, 0, b"m")
    assert host.call(connection, push, 0).error_code == Code.NONE


def test_telemetry_requests_are_advertised_only_while_a_subscription_exists(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    connection = host.connect(1)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")

    def reported() -> set[int]:
        return {71, 72} & {row.api_key for row in host.call(connection, request, 3).api_keys}

    assert reported() == set()
    host.broker.metadata.set_client_metrics("all", {"metrics": "*"})
    assert reported() == {71, 72}
    asked = host.call(connection, GetTelemetrySubscriptionsRequest(NO_ID), 0)
    assert (asked.error_code, asked.requested_metrics) == (Code.NONE, ["*"])
    assert asked.client_instance_id not in (None, NO_ID)
    push = PushTelemetryRequest(asked.client_instance_id, asked.subscription_id, False, 0, b"m")
    assert host.call(connection, push, 0).error_code == Code.NONE
    assert host.call(connection, push, 0).error_code == Code.THROTTLING_QUOTA_EXCEEDED
    again = host.call(connection, GetTelemetrySubscriptionsRequest(asked.client_instance_id), 0)
    assert again.error_code == Code.THROTTLING_QUOTA_EXCEEDED
    assert list(host.parts.own) == [Telemetry], "both handlers use the same"
    assert host.broker.counters.of(PUSHES, "taken") == 1


@pytest.mark.parametrize(("length", "is_asked"), [(1000, True), (1001, False)])
def test_a_client_with_a_very_long_attribute_matches_no_subscription(
    length: int, is_asked: bool
) -> None:
    telemetry = Telemetry({"some": {"metrics": "a.", "match": "client_id=x.*"}}, Counters())
    wanted = telemetry.on_get_subscriptions(uuid.UUID(int=7), {"client_id": "x" * length}, 0)
    assert bool(wanted.metrics) is is_asked
