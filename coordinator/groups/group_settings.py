"""The broker's settings for groups and for their offsets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's settings for groups, each with Kafka's name in its comment."""

    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 0  # group.initial.rebalance.delay.ms
    max_size: int = 2**31 - 1  # group.max.size
    # not configurable: how long the JoinGroup of a new member may be parked
    new_member_join_timeout_ms: int = 300_000
    offset_metadata_max_size: int = 4_096  # offset.metadata.max.bytes
    # message.max.bytes of __consumer_offsets
    max_record_bytes: int = 1_048_588
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    # not configurable: bits of the AclOperations READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS,
    # ALTER_CONFIGS
    group_operations: int = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
