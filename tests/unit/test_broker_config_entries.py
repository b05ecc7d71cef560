"""Settings as requests show them: value, source and synonyms (KIP-226)."""

from __future__ import annotations

from barnabas.broker.config import BrokerConfig
from barnabas.broker.config_entries import (
    ConfigEntry,
    Source,
    broker_default_entries,
    broker_entries,
    logger_entries,
    topic_entries,
)


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
