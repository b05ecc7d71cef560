"""The settings of one log: Apache Kafka's topic settings, with types, and with the unit in each
name.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.protocol.compression import DEFAULT_LEVELS, Levels

NEVER_MS = 2**63 - 1
DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one log.

    When a setting changes, a new LogConfig is made. It applies to all later operations on the log.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1048588
    max_decompressed_bytes: int = 128 << 20
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    compression_levels: Levels = DEFAULT_LEVELS
    timestamp_type_log_append: bool = False
    timestamp_before_max_ms: int = NEVER_MS
    timestamp_after_max_ms: int = NEVER_MS
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = 2**63 - 1
    flush_ms: int = NEVER_MS
    preallocate: bool = False
    producer_id_expiration_ms: int = DAY_MS
    whole_transactions: bool = False

    @property
    def roll_ms(self) -> int:
        """The maximum time for which a segment may be the active one.

        The active segment is never compacted, so this must not exceed the time that a record may
        remain uncompacted.
        """
        return (
            min(self.segment_ms, self.max_compaction_lag_ms)
            if self.is_compacted
            else self.segment_ms
        )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.cleanup_policy


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """Intervals, by the names of Apache Kafka's broker settings, and ids for a new directory.

    producer_snapshot_interval_ms: how long a log may differ from its last checkpoint (producers,
    indexes, manifest). most_unread_bytes: the limit of the sum of `Log.unread_bytes` of all logs,
    which is about the amount that a start after a kill reads. lowest_leader_epoch: if two nodes
    share a lease, the epoch that this node claimed, otherwise 0. It is above all earlier claims,
    and a start begins no lower epoch. may_lack_acknowledged: whether the directory is a copy that
    may lack acknowledged writes.
    """

    node_id: int = 1
    cluster_id: str | None = None
    directory_id: str | None = None
    recovery_checkpoint_interval_ms: int = 60_000
    retention_check_interval_ms: int = 300_000
    producer_expiration_check_interval_ms: int = 600_000
    initial_task_delay_ms: int = 30_000
    producer_snapshot_interval_ms: int = 30_000
    most_unread_bytes: int = 1 << 30
    index_cache_bytes: int = 8 << 20
    lowest_leader_epoch: int = 0
    may_lack_acknowledged: bool = False
