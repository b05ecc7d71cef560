"""The settings of consumer groups (KIP-848).

Apache Kafka 3.9 has a preview of consumer groups, whose responses differ from those of later
releases. With `is_preview` the broker responds as the preview does:

| event | with `is_preview` | without |
|---|---|---|
| the epoch of a new group | 0, and the first member gets 1 | 1 |
| a member joins with an empty list of topics | INVALID_REQUEST | accepted, without partitions |
| LeaveGroup of a member of the consumer protocol | UNKNOWN_MEMBER_ID | the member leaves |
| a classic member joins, `group.consumer.migration.policy=disabled` | accepted | rejected |
| a commit in an earlier epoch | STALE_MEMBER_EPOCH | accepted for former partitions (KIP-1251) |
| TxnOffsetCommit without a member, to a group with members | UNKNOWN_MEMBER_ID | accepted |
| OffsetCommit 9 in a generation of a missing group | ILLEGAL_GENERATION | GROUP_ID_NOT_FOUND |
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupSettings(NamedTuple):
    """The broker's settings of consumer groups, each with Kafka's name in its comment."""

    session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # group.consumer.assignment.interval.ms
    max_size: int = 2**31 - 1  # group.consumer.max.size
    assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors
    migration_policy: str = "bidirectional"  # group.consumer.migration.policy
    regex_refresh_interval_ms: int = 600_000  # group.consumer.regex.refresh.interval.ms
    is_preview: bool = False  # set by barnabas.emulate=3.9
    assigns_emptied: bool = True  # not while a release is emulated (KAFKA-20442)

    @property
    def first_epoch(self) -> int:
        """The epoch of a new group, before the first member has joined."""
        return 0 if self.is_preview else 1

    @property
    def takes_classic_members(self) -> bool:
        """Whether a consumer group accepts members of the classic protocol."""
        return self.is_preview or self.migration_policy != "disabled"

    @property
    def may_upgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "downgrade")
