"""Settings as requests show them: value, source and synonyms (KIP-226)."""

from __future__ import annotations

import pytest

from barnabas.broker.config import BrokerConfig, ConfigError, Kind
from barnabas.broker.config_entries import (
    ConfigEntry,
    Source,
    broker_default_entries,
    broker_entries,
    logger_entries,
    topic_entries,
)
from barnabas.broker.exposure import without_password


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    (one,) = [one for one in entries if one.setting.name == name]
    return one


def test_a_topics_setting_is_shown_with_every_layer_below_it() -> None:
    config = BrokerConfig.from_properties({"log.segment.bytes": "3000"})
    config.set_dynamic({"log.segment.bytes": "4000"})
    config.set_dynamic_defaults({"log.segment.bytes": "5000"})
    shown = entry(topic_entries(config, {"segment.bytes": "2000"}), "segment.bytes")
    assert (shown.value, shown.source) == ("2000", Source.TOPIC)
    assert [(synonym.value, synonym.source) for synonym in shown.synonyms] == [
        ("2000", Source.TOPIC),
        ("4000", Source.DYNAMIC_BROKER),
        ("5000", Source.DYNAMIC_DEFAULT_BROKER),
        ("3000", Source.STATIC_BROKER),
        ("1073741824", Source.DEFAULT),
    ]


def test_a_broker_setting_comes_from_the_first_layer_that_has_it() -> None:
    config = BrokerConfig.from_properties({"node.id": "3"})
    assert entry(broker_entries(config), "node.id").source is Source.STATIC_BROKER
    assert entry(broker_entries(config), "num.partitions").source is Source.DEFAULT
    assert broker_default_entries(config) == []
    config.set_dynamic_defaults({"log.segment.bytes": "5000"})
    assert [one.value for one in broker_default_entries(config)] == ["5000"]


def test_loggers_are_shown_as_settings() -> None:
    (root,) = logger_entries({"root": "INFO"})
    assert (root.setting.name, root.value) == ("root", "INFO")
    assert root.source is Source.DYNAMIC_BROKER_LOGGER


JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ann:her-password@example.org/keys", "https://[hidden]@example.org/keys"),
        ("https://ann:her@password@example.org", "https://[hidden]@example.org"),
        ("https://ann:her/password@example.org", "https://[hidden]@example.org"),
        ("https://her-password@example.org:80/a@b", "https://[hidden]@example.org:80/a@b"),
        ("https://example.org:8080/a@b", "https://example.org:8080/a@b"),
        ("https://example.org/a@b", "https://example.org/a@b"),
        ("file:///keys.json", "file:///keys.json"),
    ],
)
def test_a_password_in_an_address_is_hidden(text: str, shown: str) -> None:
    assert without_password(text) == shown
    config = BrokerConfig.from_properties({JWKS_URL: text})
    one = entry(broker_entries(config), JWKS_URL)
    assert one.value == shown
    assert [synonym.value for synonym in one.synonyms] == [shown]


def test_no_setting_shows_a_password_wherever_it_is_set() -> None:
    """Of each setting that takes any text, in every layer."""
    text = "https://ann:her-password@example.org/keys"
    for setting in broker_entries(BrokerConfig.from_properties({})):
        row = setting.setting
        if row.kind not in (Kind.STRING, Kind.PASSWORD) or row.choices:
            continue
        try:
            config = BrokerConfig.from_properties({row.name: text})
        except ConfigError:
            continue
        config.set_dynamic_defaults({row.name: text})
        rows = [*broker_entries(config), *broker_default_entries(config)]
        seen = [one.value for one in rows] + [s.value for one in rows for s in one.synonyms]
        assert not any("her-password" in (value or "") for value in seen), row.name
