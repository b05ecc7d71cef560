"""The settings of consumer groups (KIP-848)."""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupSettings(NamedTuple):
    """The broker's settings of consumer groups; Kafka's names are in the comments."""

    session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # group.consumer.assignment.interval.ms
    max_size: int = 2**31 - 1  # group.consumer.max.size
    assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors
    migration_policy: str = "bidirectional"  # group.consumer.migration.policy
    regex_refresh_interval_ms: int = 600_000  # group.consumer.regex.refresh.interval.ms

    @property
    def may_upgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "downgrade")
