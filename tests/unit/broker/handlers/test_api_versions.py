"""ApiVersions (KIP-511)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.handlers.api_versions import on_api_versions, unsupported_version_response
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.features import FinalizedFeatures
from barnabas.protocol.api_table import APIS
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.request_context import RequestContext

CONFIG = BrokerConfig.from_properties({})
LISTENER = CONFIG.listeners[0]
FEATURES = FinalizedFeatures({"transaction.version": 2}, 7)


def ask(
    name: str, version: str, *, api_version: int = 3, wants_metrics: bool = True
) -> tuple[ApiVersionsResponse, str]:
    """Handle an ApiVersions request. Gives: the response, and the name of the client software that
    is then recorded for the connection.
    """
    connection = ConnectionState(1, "/10.0.0.1", "10.0.0.2", 9092, 1, LISTENER)
    context = RequestContext(1, api_version, "", "/10.0.0.1", connection_id=1)
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    metadata = SimpleNamespace(client_metrics={"one": {}} if wants_metrics else {})
    features = SimpleNamespace(finalized=FEATURES)
    answer = on_api_versions(
        {1: connection}, CONFIG, cast(Any, metadata), cast(Any, features), request, context
    )
    return answer, connection.client_software


def test_the_response_lists_every_api_with_its_versions() -> None:
    answer, software = ask("librdkafka", "2.6.0")
    assert answer.error_code == Code.NONE
    assert {(row.api_key, row.max_version) for row in answer.api_keys} == {
        (api.key, api.max_version) for api in APIS
    }
    assert software == "librdkafka 2.6.0"


def test_telemetry_apis_are_listed_only_if_a_metrics_subscription_exists() -> None:
    """71 and 72 are GetTelemetrySubscriptions and PushTelemetry. A client sends metrics if the
    broker lists them.
    """
    every = {row.api_key for row in ask("x", "1")[0].api_keys}
    assert every - {row.api_key for row in ask("x", "1", wants_metrics=False)[0].api_keys} == {
        71,
        72,
    }


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("a", "-1"), ("ä", "1")])
def test_software_names_and_versions_that_kip_511_forbids_are_refused(
    name: str, version: str
) -> None:
    answer, software = ask(name, version)
    assert (answer.error_code, answer.api_keys, software) == (Code.INVALID_REQUEST, [], "")
    assert ask(name, version, api_version=2)[0].error_code == Code.NONE


def test_the_response_to_an_unsupported_version_lists_only_api_versions() -> None:
    answer = unsupported_version_response()
    assert answer.error_code == Code.UNSUPPORTED_VERSION
    assert [row.api_key for row in answer.api_keys] == [18]


@pytest.mark.parametrize(
    ("api_version", "supported"), [(3, []), (4, [("transaction.version", 0, 2)])]
)
def test_features_are_reported_as_in_apache_kafka_4_3(
    api_version: int, supported: list[tuple[str, int, int]]
) -> None:
    """The supported range of transaction.version begins at level 0. Clients that use ApiVersions
    before version 4 cannot read this (KIP-584), so they do not get the range.
    """
    answer, _ = ask("apache-kafka-java", "4.3.2", api_version=api_version)
    finalized = [
        (row.name, row.min_version_level, row.max_version_level)
        for row in answer.finalized_features
    ]
    assert finalized == [("transaction.version", 2, 2)]
    assert answer.finalized_features_epoch == 7
    reported = [(row.name, row.min_version, row.max_version) for row in answer.supported_features]
    assert [row for row in reported if row[0] == "transaction.version"] == supported


def test_responses_before_version_3_have_no_features() -> None:
    answer, _ = ask("", "", api_version=2)
    assert (answer.supported_features, answer.finalized_features) == ([], [])
    assert answer.finalized_features_epoch == -1
