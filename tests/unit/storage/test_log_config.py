"""The settings of a log. Their defaults are those of Apache Kafka 3.9's topic configuration."""

from __future__ import annotations

from barnabas.storage.log_config import DAY_MS, NEVER_MS, LogConfig


def test_defaults_are_kafkas() -> None:
    config = LogConfig()
    assert (config.segment_bytes, config.segment_ms) == (1073741824, 604800000)
    assert (config.segment_index_bytes, config.index_interval_bytes) == (10485760, 4096)
    assert (config.max_message_bytes, config.retention_ms) == (1048588, 604800000)
    assert (config.delete_retention_ms, config.min_cleanable_dirty_ratio) == (86400000, 0.5)
    assert (config.file_delete_delay_ms, config.flush_messages) == (60000, 9223372036854775807)
    assert config.max_compaction_lag_ms == NEVER_MS == 9223372036854775807
    assert config.is_deleted and not config.is_compacted


def test_a_compacted_log_rolls_before_its_records_may_stay_uncompacted() -> None:
    """For compacted logs only, max.compaction.lag.ms limits segment.ms (KIP-354)."""
    lag = {"max_compaction_lag_ms": DAY_MS}
    assert LogConfig(**lag).roll_ms == 7 * DAY_MS  # type: ignore[arg-type]
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}), **lag)  # type: ignore[arg-type]
    assert compacted.roll_ms == DAY_MS
    both = LogConfig(cleanup_policy=frozenset({"compact", "delete"}))
    assert both.is_compacted and both.is_deleted and both.roll_ms == 7 * DAY_MS


def test_a_log_with_both_cleanup_policies_rolls_like_a_compacted_one() -> None:
    config = LogConfig(
        cleanup_policy=frozenset({"compact", "delete"}), max_compaction_lag_ms=DAY_MS
    )
    assert config.roll_ms == DAY_MS
