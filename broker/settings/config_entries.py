"""Settings as responses show them: the value as text, and where it comes from (Kafka's
ConfigSource).

A topic's setting is first looked up in the topic's own configs. If it is not set there, the names
that it has as a broker's setting are looked up in the dynamic configs of the broker, in those of
every broker, in the settings with which the broker was started, and in the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from barnabas.broker.settings.client_metrics import CLIENT_METRICS_SETTINGS
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.exposure import without_password
from barnabas.broker.settings.group_configs import (
    GROUP_SETTINGS,
    broker_setting,
    default_value,
)
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.rows_without_effect import ALL_BROKER_SETTINGS
from barnabas.broker.settings.setting import Kind, Setting
from barnabas.broker.settings.topic_config import topic_setting_value

# Settings that Apache Kafka can change at run time and this broker cannot. Kafka, too, refuses some
# changes: listeners cannot be added or removed, and security settings can only be changed for each
# listener separately.
DYNAMIC_IN_KAFKA = frozenset(
    (
        "listener.security.protocol.map", "listeners",
        "sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol",
        "ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols", "ssl.key.password",
        "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
        "ssl.keystore.password", "ssl.keystore.type", "ssl.protocol",
        "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password",
        "ssl.truststore.type",
    )
)  # fmt: skip


class Source(IntEnum):
    """The source of a setting's value, with the numbers that are used in responses."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """A name of a setting. It provides the value if none of the names listed before it is
    set.
    """

    name: str
    value: str | None
    source: Source


class ConfigEntry(NamedTuple):
    """One setting. `value` is None if it is unset or secret."""

    setting: Setting[Any]
    value: str | None
    source: Source
    synonyms: list[Synonym]

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is hidden in responses."""
        return self.setting.kind is Kind.PASSWORD


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a topic, given the topic's own configs. Those that Apache Kafka does not have
    are listed only where they are set.
    """
    entries = [
        _topic_entry(config, overrides, setting)
        for name, setting in TOPIC_SETTINGS.items()
        if name not in config.release.absent
    ]
    return [
        entry
        for entry in entries
        if entry.source is not Source.DEFAULT or not entry.setting.name.startswith("barnabas.")
    ]


def is_read_only(setting: Setting[Any]) -> bool:
    """Whether clients see a broker's setting as read-only, since only a restart can change it."""
    return not setting.dynamic and setting.name not in DYNAMIC_IN_KAFKA


def broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """All settings of the broker."""
    entries = []
    for name, setting in ALL_BROKER_SETTINGS.items():
        if name in config.release.absent:
            continue
        synonyms = _broker_level(config, (setting.name,))
        source = synonyms[0].source if synonyms else Source.DEFAULT
        entries.append(ConfigEntry(setting, shown(setting, config[setting.name]), source, synonyms))
    return entries + _unknown_entries(config.dynamic, Source.DYNAMIC_BROKER)


def _unknown_entries(configs: Mapping[str, str], source: Source) -> list[ConfigEntry]:
    """Dynamic settings that are not known here. As in Apache Kafka their values are not shown,
    since they may be secrets.
    """
    return [
        ConfigEntry(
            Setting(Kind.PASSWORD, None, "Unknown; it has no effect.", name=name, dynamic=True),
            None,
            source,
            [Synonym(name, None, source)],
        )
        for name in configs
        if name not in ALL_BROKER_SETTINGS
    ]


def broker_default_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """The settings that were set for every broker at run time."""
    source = Source.DYNAMIC_DEFAULT_BROKER
    return [
        ConfigEntry(setting, seen, source, [Synonym(name, seen, source)])
        for name, text in config.shown_dynamic_defaults.items()
        if (setting := ALL_BROKER_SETTINGS.get(name)) is not None
        for seen in [shown_text(setting, text)]
    ] + _unknown_entries(config.dynamic_defaults, source)


def client_metrics_entries(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a subscription of clients' metrics, given those that are set on it."""
    source = Source.CLIENT_METRICS
    return [
        ConfigEntry(setting, configs[name], source, [Synonym(name, configs[name], source)])
        if name in configs
        else ConfigEntry(setting, shown(setting, setting.default), Source.DEFAULT, [])
        for name, setting in CLIENT_METRICS_SETTINGS.items()
    ]


def group_entries(config: BrokerConfig, configs: Mapping[str, str]) -> list[ConfigEntry]:
    """All settings of a group, given the group's own configs."""
    entries = []
    for name, setting in GROUP_SETTINGS.items():
        broker_name = broker_setting(name)
        value = shown(setting, default_value(config, name))
        synonyms = (
            [Synonym(name, value, Source.DEFAULT)]
            if broker_name is None
            else _broker_level(config, (broker_name,))
        )
        if name in configs:
            value = configs[name]
            synonyms.insert(0, Synonym(name, value, Source.GROUP))
        entries.append(ConfigEntry(setting, value, synonyms[0].source, synonyms))
    return entries


def logger_entries(levels: Mapping[str, str]) -> list[ConfigEntry]:
    """Each logger with its level, in the form of a setting."""
    doc = "The level of this logger."
    return [
        ConfigEntry(
            Setting(Kind.STRING, None, doc, name=name, dynamic=True),
            level,
            Source.DYNAMIC_BROKER_LOGGER,
            [],
        )
        for name, level in levels.items()
    ]


def shown(setting: Setting[Any], value: Any) -> str | None:
    """A typed value as text."""
    text = None if value is None else setting.render(value)
    return None if text is None else shown_text(setting, text)


def shown_text(setting: Setting[Any], text: str) -> str | None:
    """A value's text as responses may show it: without passwords, including those in addresses."""
    return None if setting.kind is Kind.PASSWORD else without_password(text)


def _topic_entry(
    config: BrokerConfig, overrides: Mapping[str, str], setting: Setting[Any]
) -> ConfigEntry:
    """A setting of a topic: its value, its source, and its synonyms in the order of precedence."""
    value = shown(setting, topic_setting_value(config, overrides, setting.name))
    synonyms = _broker_level(config, setting.synonyms)
    if setting.name in overrides:
        synonyms.insert(0, Synonym(setting.name, value, Source.TOPIC))
    source = synonyms[0].source if synonyms else Source.DEFAULT
    # Kafka lists broker-level names only from the setting's main name on. If only
    # log.retention.hours is set, for example, it is not listed.
    own = [synonym for synonym in synonyms if synonym.source is Source.TOPIC]
    rest = synonyms[len(own) :]
    while rest and rest[0].name != setting.synonyms[0]:
        rest.pop(0)
    return ConfigEntry(setting, value, source, own + rest)


def _broker_level(config: BrokerConfig, names: tuple[str, ...]) -> list[Synonym]:
    """The synonyms for which the broker has settings, in the order of precedence."""
    synonyms = []
    layers = (
        (Source.DYNAMIC_BROKER, config.dynamic),
        (Source.DYNAMIC_DEFAULT_BROKER, config.shown_dynamic_defaults),
        (Source.STATIC_BROKER, config.explicit),
    )
    for source, values in layers:
        for name in names:
            if name in values:
                synonyms.append(
                    Synonym(
                        name,
                        shown_text(ALL_BROKER_SETTINGS[name], values[name]),
                        source,
                    )
                )
    for name in names:
        default = shown(ALL_BROKER_SETTINGS[name], config.untouched(name))
        if default is not None:
            synonyms.append(Synonym(name, default, Source.DEFAULT))
    return synonyms
