"""One group: its members, its offsets, its record, and the retention of its offsets.

A group is a consumer group (KIP-848), a share group (KIP-932) or a streams group (KIP-1071) while
it has a record of that kind. Otherwise it is a classic group, even without members.

When the retention of an offset begins (KIP-211):

    group                                          retained since
    never had members                              the commit of the offset
    Empty                                          the group became Empty
    Stable consumers whose topics are known        the commit, for topics that no member reads
    consumer groups (KIP-848)                      the commit, for topics that no member reads
    any other group with members                   without limit

An offset whose commit specified a retention time is retained for that time after its commit
(group_offsets.py), except in the last kind of group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from barnabas.coordinator.groups.classic.classic_group import ClassicGroup
from barnabas.coordinator.groups.group_offsets import CommittedOffset, Expiry, GroupOffsets
from barnabas.coordinator.groups.group_records import offset_tombstone
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_state import GroupState, ModernGroup
from barnabas.coordinator.result import Counted, Result
from barnabas.protocol.errors import Code
from barnabas.protocol.topic_partition import TopicPartition

PartitionCodes = dict[str, dict[int, Code]]


class Group:
    """One group: its state by the protocol of its members, and its offsets.

    partition: the group's partition of the internal topic. classic: the group as a classic one, in
    which members may join before a record of the group exists. modern: the consumer, share or
    streams group; None, or one that does not exist, if the group is a classic one. metadata_value:
    the value of the last group record, or None; it stays encoded, since only a restart reads it.
    """

    __slots__ = ("classic", "group_id", "metadata_value", "modern", "offsets", "partition")

    def __init__(self, group_id: str, partition: int, classic: ClassicGroup) -> None:
        self.group_id, self.partition, self.classic = group_id, partition, classic
        self.offsets = GroupOffsets()
        self.modern: ModernGroup | None = None
        self.metadata_value: bytes | None = None

    @property
    def state(self) -> GroupState:
        """The state of the group by the protocol that its members use."""
        modern = self.modern
        return self.classic if modern is None or not modern.exists else modern

    @property
    def kind(self) -> str:
        """The type of the group, as in ListGroups."""
        return self.state.kind

    @property
    def has_members(self) -> bool:
        return self.state.has_members

    @property
    def member_ids(self) -> Collection[str]:
        return self.state.member_ids

    @property
    def has_hard_state(self) -> bool:
        """Whether the log has a record of the group."""
        return (
            self.metadata_value is not None
            or bool(self.offsets)
            or (self.modern is not None and self.modern.exists)
        )

    def expiry(
        self, settings: GroupSettings, now_ms: int, *, max_count: int | None = None
    ) -> Expiry | None:
        """The offsets whose retention is over; None if the group's state retains all offsets."""
        state = self.state
        if state.retains_offsets:
            return None
        since_ms = state.emptied_ms

        def retained_since_ms(committed: CommittedOffset) -> int:
            return committed.since_ms if since_ms is None else since_ms

        return self.offsets.expiry(
            now_ms,
            settings.offsets_retention_ms,
            retained_since_ms,
            state.is_subscribed_to,
            max_count,
        )

    def next_retention_check_ms(self, settings: GroupSettings, now_ms: int) -> int:
        """The time of the next retention check.

        A group without members is checked when its next offset expires. A group with members is
        checked at regular intervals, since members may change their subscriptions at any time.
        """
        next_check_ms = now_ms + settings.offsets_retention_check_interval_ms
        if self.has_members:
            return next_check_ms
        expiry = self.expiry(settings, now_ms)
        if expiry is None or expiry.next_ms is None or expiry.expired:
            return next_check_ms
        return max(next_check_ms, expiry.next_ms)

    def delete_offsets(
        self, partitions: Iterable[TopicPartition], codes: PartitionCodes, result: Result
    ) -> None:
        """Add the records that delete the offsets.

        After:  `codes` has GROUP_SUBSCRIBED_TO_TOPIC for each partition that a member reads.
        """
        state, deleted = self.state, dict[TopicPartition, None]()
        for partition in partitions:
            if state.is_subscribed_to(partition.topic):
                codes[partition.topic][partition.partition] = Code.GROUP_SUBSCRIBED_TO_TOPIC
            elif self.offsets.has_any(partition):
                deleted[partition] = None
        result.records += [offset_tombstone(self.group_id, *partition) for partition in deleted]
        if deleted:
            result.count(Counted.OFFSET_DELETION, len(deleted))
