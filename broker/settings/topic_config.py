"""The settings of a topic: its own values, or else the broker's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.features import TODAY, Release
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS, TopicRows
from barnabas.broker.settings.setting import (
    HOUR_MS,
    LONG_MAX,
    MINUTE_MS,
    ConfigError,
    Setting,
    nearest,
)
from barnabas.protocol.compression import Levels
from barnabas.storage.log_config import LogConfig

_UNIT_MS = {"hours": HOUR_MS, "minutes": MINUTE_MS}


def check_segment_bytes(name: str, value: Any, release: Release) -> None:
    """Check the segment size against the minimum of an emulated release. Raises: ConfigError if it
    is smaller.
    """
    if name in ("segment.bytes", "log.segment.bytes") and value < release.fewest_segment_bytes:
        raise ConfigError(
            f"{name}={value}: Apache Kafka {release.name} requires at least "
            f"{release.fewest_segment_bytes} (barnabas.emulate)"
        )


def validate_topic_configs(configs: Mapping[str, str | None], release: Release = TODAY) -> None:
    """Check the settings of a topic.

    Raises: ConfigError for an unknown name, a null, a value that is not allowed, or contradictory
            values.
    """
    values = {}
    for name, text in configs.items():
        if name in release.absent:
            raise ConfigError(f"Apache Kafka {release.name} has no {name} (barnabas.emulate)")
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise ConfigError(f"unknown topic setting {name}{nearest(name, TOPIC_SETTINGS)}")
        if text is None:
            raise ConfigError(f"{name} has no value: give one")
        values[name] = setting.parse(text)
        check_segment_bytes(name, values[name], release)
    shortest, longest = (
        values.get("min.compaction.lag.ms", 0),
        values.get("max.compaction.lag.ms", LONG_MAX),
    )
    if shortest > longest:
        raise ConfigError(
            f"min.compaction.lag.ms={shortest}: it must not be more than max.compaction.lag.ms, "
            f"which is {longest}"
        )


def broker_default(config: BrokerConfig, setting: Setting[Any]) -> tuple[Any, str | None]:
    """The default of a topic's setting, typed and in the unit of the topic's setting.

    Gives:  the value, and the name of the broker's setting that provides it; None as the name if
            the value is the default of the table or of the emulated release.
    """
    for name in setting.synonyms:
        if config.source_of(name) != "default":
            unit_ms = _UNIT_MS.get(name.rsplit(".", 1)[1])
            if unit_ms is None:
                return config[name], name
            is_bounded = config[name] > 0  # a negative number means unlimited in every unit
            return config[name] * unit_ms if is_bounded else config[name], name
    if setting.synonyms and setting.synonyms[0] in config.release.defaults:
        return config.untouched(setting.synonyms[0]), None
    return setting.default, None


def topic_setting_value(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> Any:
    """The typed value of a topic's setting: the topic's own value, or else the broker's default."""
    setting = TOPIC_SETTINGS[name]
    return (
        setting.parse(overrides[name]) if name in overrides else broker_default(config, setting)[0]
    )


class TopicConfig(TopicRows):
    """The settings of one topic as typed attributes. Each value is looked up when it is read."""

    def __init__(self, config: BrokerConfig, overrides: Mapping[str, str]) -> None:
        self._values: dict[str, Any] = _TopicValues(config, overrides)


class _TopicValues(dict[str, Any]):
    def __init__(self, config: BrokerConfig, overrides: Mapping[str, str]) -> None:
        self._config, self._overrides = config, overrides

    def __missing__(self, name: str) -> Any:
        return topic_setting_value(self._config, self._overrides, name)


def topic_log_config(
    config: BrokerConfig, overrides: Mapping[str, str], *, is_internal: bool = False
) -> LogConfig:
    """The settings of a topic that its logs use.

    Takes: is_internal, for a topic of the broker's own, which coordinators read to its end.
    """
    topic = TopicConfig(config, overrides)
    return LogConfig(
        segment_bytes=topic.segment_bytes,
        segment_ms=topic.segment_ms,
        segment_jitter_ms=topic.segment_jitter_ms,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        max_message_bytes=topic.max_message_bytes,
        max_decompressed_bytes=config.barnabas_decompressed_max_bytes,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        cleanup_policy=frozenset(topic.cleanup_policy),
        compression_type=topic.compression_type,
        compression_levels=Levels(
            topic.compression_gzip_level,
            topic.compression_lz4_level,
            topic.compression_zstd_level,
        ),
        timestamp_type_log_append=topic.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=min(
            topic.message_timestamp_before_max_ms, topic.message_timestamp_difference_max_ms
        ),
        timestamp_after_max_ms=min(
            topic.message_timestamp_after_max_ms, topic.message_timestamp_difference_max_ms
        ),
        delete_retention_ms=topic.delete_retention_ms,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        flush_messages=topic.flush_messages,
        flush_ms=topic.flush_ms,
        preallocate=topic.preallocate,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        whole_transactions=topic.barnabas_transactions_whole and not is_internal,
    )
