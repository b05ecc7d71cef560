"""The names and versions that a client may give for its software (KIP-511)."""

from __future__ import annotations

import pytest

from barnabas.protocol.client_software import names_software
from barnabas.protocol.messages.api_versions import ApiVersionsRequest


@pytest.mark.parametrize(
    ("name", "version", "is_named"),
    [
        ("apache-kafka-java", "4.3.0", True),
        ("x", "1", True),
        ("", "1", False),
        ("librdkafka", "", False),
        ("-librdkafka", "2.1", False),
        ("librdkafka.", "2.1", False),
        ("a b", "2.1", False),
    ],
)
def test_valid_names_and_versions_of_client_software(
    name: str, version: str, is_named: bool
) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert names_software(request, 3) is is_named


def test_before_version_3_there_is_none_to_give() -> None:
    assert names_software(ApiVersionsRequest(), 2)
