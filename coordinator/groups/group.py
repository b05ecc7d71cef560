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
(offsets/group_offsets.py), except in the last kind of group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from barnabas.coordinator.groups.classic.classic_group import ClassicGroup
from barnabas.coordinator.groups.classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from barnabas.coordinator.groups.classic.rebalance import State
from barnabas.coordinator.groups.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.groups.group_offsets import CommittedOffset, Expiry, GroupOffsets
from barnabas.coordinator.groups.group_records import group_tombstone, offset_tombstone
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_state import TypedGroup
from barnabas.coordinator.groups.group_types import CLASSIC_TYPE, CONSUMER_TYPE
from barnabas.coordinator.result import CoordinatorRecord, Counted, Result
from barnabas.protocol.errors import Code
from barnabas.protocol.topic_partition import TopicPartition

PartitionCodes = dict[str, dict[int, Code]]


class Group:
    """One group. `classic`, `consumer` or `typed` contains its members, and `offsets` its offsets.

    partition: the group's partition of the internal topic. consumer: for a group of another type,
    None or a consumer group without an epoch. typed: the share group or streams group; for a group
    of another type, None or a typed group that does not exist. metadata_value: the value of the
    last group record, or None; it stays encoded, since only a restart reads it.
    """

    __slots__ = (
        "classic", "consumer", "group_id", "metadata_value", "offsets", "partition", "typed",
    )  # fmt: skip

    def __init__(self, group_id: str, partition: int, classic: ClassicGroup) -> None:
        self.group_id, self.partition, self.classic = group_id, partition, classic
        self.offsets = GroupOffsets()
        self.consumer: ConsumerGroup | None = None
        self.typed: TypedGroup | None = None
        self.metadata_value: bytes | None = None

    @property
    def has_hard_state(self) -> bool:
        """Whether the log has a record of the group."""
        return (
            self.metadata_value is not None
            or bool(self.offsets)
            or self.is_consumer
            or self.is_typed
        )

    @property
    def is_consumer(self) -> bool:
        """Whether the group uses the consumer protocol."""
        return self.consumer is not None and self.consumer.epoch > 0

    @property
    def has_member_epochs(self) -> bool:
        """Whether the members have epochs. The members of a classic group have none."""
        return self.is_consumer or self.is_typed

    def require_consumer(self) -> ConsumerGroup:
        """The state of the consumer group, which exists or is being created."""
        assert self.consumer is not None, f"group {self.group_id} is a classic one"
        return self.consumer

    @property
    def is_typed(self) -> bool:
        """Whether this is a share group or a streams group."""
        return self.typed is not None and self.typed.exists

    def require_typed(self) -> TypedGroup:
        """The state of the share group or streams group."""
        assert self.typed is not None, f"group {self.group_id} has no type of its own"
        return self.typed

    @property
    def kind(self) -> str:
        """The type of the group, as in ListGroups."""
        if self.is_typed:
            return self.require_typed().kind
        return CONSUMER_TYPE if self.is_consumer else CLASSIC_TYPE

    @property
    def state_name(self) -> str:
        """The name of the group's state, by the type of the group."""
        if self.is_typed:
            return self.require_typed().state
        return self.require_consumer().state if self.is_consumer else self.classic.state.value

    @property
    def protocol_type(self) -> str:
        """The type of the members' protocol; empty if the group never had members."""
        if self.is_typed:
            return self.require_typed().protocol_type
        return (
            CONSUMER_PROTOCOL_TYPE
            if self.is_consumer
            else self.classic.rebalance.protocol_type or ""
        )

    @property
    def has_members(self) -> bool:
        """Whether the group has members, whatever its type."""
        if self.is_typed:
            return bool(self.require_typed().member_ids)
        if self.is_consumer:
            return bool(self.require_consumer().members)
        return self.classic.state is not State.EMPTY

    @property
    def member_ids(self) -> Collection[str]:
        """The ids of the members."""
        if self.is_typed:
            return self.require_typed().member_ids
        if self.is_consumer:
            return self.require_consumer().members.keys()
        return self.classic.members.keys()

    @property
    def reads_on(self) -> bool:
        """Whether members of this kind of group continue from their own positions after a
        restart.
        """
        return self.require_typed().reads_on if self.is_typed else self.is_consumer

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member of the group reads the topic."""
        if self.is_typed:
            return topic in self.require_typed().subscribed_topics
        if self.is_consumer:
            return topic in self.require_consumer().subscribed_topics
        return self.classic.is_subscribed_to(topic)

    def check_offset_delete(self) -> Code:
        """NONE if offsets may be deleted, otherwise the error code."""
        if self.is_typed:
            return self.require_typed().check_offset_delete()
        return Code.NONE if self.is_consumer else self.classic.check_offset_delete()

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        """The records that remove the group, but not its offsets."""
        if self.is_typed:
            yield from self.require_typed().tombstones(self.group_id)
        elif self.is_consumer:
            yield from self.require_consumer().tombstones(self.group_id)
        else:
            yield group_tombstone(self.group_id)

    @property
    def is_unused(self) -> bool:
        """Whether the group has neither members nor pending member ids."""
        if self.is_typed:
            return self.require_typed().is_unused
        if self.is_consumer:
            return not self.has_members
        return self.classic.state is State.EMPTY and not self.classic.pending_ids

    def expiry(
        self, settings: GroupSettings, now_ms: int, *, max_count: int | None = None
    ) -> Expiry | None:
        """The offsets whose retention is over; None if the group's state retains all offsets."""
        rebalance = self.classic.rebalance
        since_ms: int | None = None
        if self.kind == CLASSIC_TYPE and rebalance.protocol_type is not None:
            if rebalance.state is State.EMPTY:
                since_ms = rebalance.state_since_ms
            elif rebalance.state is not State.STABLE or rebalance.subscribed_topics is None:
                return None

        def retained_since_ms(committed: CommittedOffset) -> int:
            return committed.since_ms if since_ms is None else since_ms

        return self.offsets.expiry(
            now_ms,
            settings.offsets_retention_ms,
            retained_since_ms,
            self.is_subscribed_to,
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
        deleted: dict[TopicPartition, None] = {}
        for partition in partitions:
            if self.is_subscribed_to(partition.topic):
                codes[partition.topic][partition.partition] = Code.GROUP_SUBSCRIBED_TO_TOPIC
            elif self.offsets.has_any(partition):
                deleted[partition] = None
        result.records += [offset_tombstone(self.group_id, *partition) for partition in deleted]
        if deleted:
            result.count(Counted.OFFSET_DELETION, len(deleted))
