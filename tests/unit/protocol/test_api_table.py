"""The list of supported APIs. The expected ranges of versions are those of Kafka 3.9 and 4.0."""

from __future__ import annotations

import pytest
from helpers.api_rows import ROWS

from barnabas.protocol.api import Api
from barnabas.protocol.api_table import APIS, BY_KEY
from barnabas.protocol.generator.api_rows import apis
from barnabas.protocol.message_classes import message_class


def test_the_table_has_the_rows_of_all_families() -> None:
    """`make protocol` writes the table from the rows."""
    assert [row.api for row in ROWS.values()] == [api._replace(family="") for api in APIS]
    assert list(APIS) == apis(), "run `make protocol`"
    assert list(BY_KEY) == [api.key for api in APIS]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_row_is_as_the_schemas_have_it(api: Api) -> None:
    for kind in ("Request", "Response"):
        message = message_class(api, kind)
        assert api.key == message.API_KEY
        assert message.FIRST_VERSION <= api.min_version <= api.max_version <= message.LAST_VERSION
    assert api.flexible_from == message_class(api, "Request").FLEXIBLE_FROM


def test_versions_are_ranges() -> None:
    for api in APIS:
        assert 0 <= api.min_version <= api.max_version


def test_rows_of_the_protocol_guide() -> None:
    produce, fetch, versions = BY_KEY[0], BY_KEY[1], BY_KEY[18]
    assert (produce.name, produce.flexible_from) == ("Produce", 9)
    assert (fetch.name, fetch.flexible_from) == ("Fetch", 12)
    assert (versions.name, versions.min_version, versions.flexible_from) == ("ApiVersions", 0, 3)
