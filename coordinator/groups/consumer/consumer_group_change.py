"""The change of a consumer group by one event, computed before its records are written.

The steps follow the order of Apache Kafka's records: members and patterns; the group's epoch, if
the subscriptions have changed; the target assignment of that epoch; the current assignment of the
member that sent the request. Each step uses the results of the earlier ones. The group itself does
not change until `records` are replayed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from barnabas.coordinator.groups.consumer import consumer_group_records as records
from barnabas.coordinator.groups.consumer.assignors import ASSIGNORS, Assignment, MemberToAssign
from barnabas.coordinator.groups.consumer.consumer_group import (
    ConsumerGroup,
    topics_of,
    wanted_topics,
)
from barnabas.coordinator.groups.consumer.consumer_group_records import (
    CurrentValue,
    MemberValue,
    PatternValue,
)
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.consumer.reconciliation import NOTHING, Owned, reconcile
from barnabas.coordinator.groups.topic_directory import TopicDirectory, hash_of_topics
from barnabas.coordinator.result import CoordinatorRecord, Counted, Result

FIRST_EPOCH = 1  # the lowest epoch of an existing group


class GroupChange:
    """The change of one group by one event.

    records: the records to write, in order. members, patterns, epoch, target_epoch: the values
    after the change.
    """

    def __init__(self, group_id: str, group: ConsumerGroup, topics: TopicDirectory) -> None:
        self.group_id, self.records = group_id, list[CoordinatorRecord]()
        self.members, self.patterns = group.members, group.patterns
        self.epoch, self.target_epoch = group.epoch, group.target_epoch
        self._group, self._topics = group, topics
        self._targets = group.targets
        self._currents: dict[str, CurrentValue | None] = {}

    def add_to(self, result: Result) -> None:
        """Add the records to a Result, which counts a rebalance if the group's epoch rises."""
        result.records += self.records
        if self.epoch > self._group.epoch:
            result.count(Counted.CONSUMER_REBALANCE)

    # --- members ---------------------------------------------------------------------------------

    def current(self, member_id: str) -> CurrentValue:
        if member_id in self._currents:
            return self._currents[member_id] or NOTHING
        return self._group.current(member_id)

    def target(self, member_id: str) -> Assignment:
        return self._targets.get(member_id, {})

    def set_member(self, member_id: str, value: MemberValue) -> None:
        """Set the value of a member. If it is the same as before, no record is written."""
        if self.members.get(member_id) != value:
            self._own_members()[member_id] = value
            self.records.append(records.member_record(self.group_id, member_id, value))

    def remove_member(self, member_id: str) -> None:
        """Remove a member, with the tombstones of its records."""
        del self._own_members()[member_id]
        self._own_targets().pop(member_id, None)
        self._currents[member_id] = None
        for version in (
            records.CURRENT_VERSION, records.MEMBER_TARGET_VERSION, records.MEMBER_VERSION
        ):  # fmt: skip
            self.records.append(records.tombstone(version, self.group_id, member_id))

    def replace_member(self, former_id: str, member_id: str) -> None:
        """Move the current and the target assignment of a static member to the member's new id."""
        value, target = self.members[former_id], self.target(former_id)
        current = self.current(former_id)._replace(member_epoch=0, previous_member_epoch=0)
        self.remove_member(former_id)
        self.set_member(member_id, value)
        self._set_target(member_id, target)
        self.set_current(member_id, current)

    def set_current(self, member_id: str, current: CurrentValue) -> None:
        if self.current(member_id) != current:
            self._currents[member_id] = current
            self.records.append(records.current_record(self.group_id, member_id, current))

    def _set_target(self, member_id: str, assignment: Assignment) -> None:
        self._own_targets()[member_id] = assignment
        self.records.append(records.member_target_record(self.group_id, member_id, assignment))

    def _own_members(self) -> dict[str, MemberValue]:
        """A copy of the members that may be changed. The group keeps its own members until the
        records are replayed.
        """
        if self.members is self._group.members:
            self.members = dict(self.members)
        return self.members

    def _own_targets(self) -> dict[str, Assignment]:
        """A copy of the targets that may be changed. The group keeps its own targets until the
        records are replayed.
        """
        if self._targets is self._group.targets:
            self._targets = dict(self._targets)
        return self._targets

    # --- patterns --------------------------------------------------------------------------------

    def set_pattern(self, regex: str, pattern: PatternValue) -> None:
        self.patterns = {**self.patterns, regex: pattern}
        self.records.append(records.pattern_record(self.group_id, regex, pattern))

    def drop_unused_patterns(self) -> None:
        """Remove the patterns that no member uses any more."""
        used = {member.subscribed_topic_regex for member in self.members.values()}
        for regex in [regex for regex in self.patterns if regex not in used]:
            self.patterns = {name: row for name, row in self.patterns.items() if name != regex}
            self.records.append(records.tombstone(records.PATTERN_VERSION, self.group_id, regex))

    # --- epochs ----------------------------------------------------------------------------------

    def raise_epoch_if(self, has_changed: bool, first_epoch: int = FIRST_EPOCH) -> None:
        """Raise the group's epoch if subscriptions or topics have changed.

        Takes:  first_epoch, the epoch of a new group before its first change.
        After:  the group exists, if it is new.
        """
        group = self._group
        is_new = group.epoch == 0
        topics_hash = group.metadata_hash
        if has_changed or is_new or group.topics_version != self._topics.version:
            topics_hash = hash_of_topics(
                wanted_topics(self.members.values(), self.patterns), self._topics
            )
            has_changed = has_changed or topics_hash != group.metadata_hash
            group.topics_version = self._topics.version
        self.epoch = max(FIRST_EPOCH, (group.epoch or first_epoch) + has_changed)
        if is_new or has_changed:
            self.records.append(records.group_epoch_record(self.group_id, self.epoch, topics_hash))

    def end_emptied(self) -> None:
        """Let the target assignment of a group without members be that of the group's epoch, since
        no member's heartbeat computes it. Source: KAFKA-20442.
        """
        if not self.members and self.target_epoch < self.epoch:
            self.target_epoch = self.epoch
            self.records.append(records.target_epoch_record(self.group_id, self.epoch))

    def assign_if_due(self, settings: ConsumerGroupSettings, interval_ms: int, now_ms: int) -> None:
        """Compute the target assignment of the group's epoch, unless the last one is too recent.

        Source: KIP-1263 for the interval.
        """
        group = self._group
        if self.epoch == self.target_epoch or not group.may_be_assigned(interval_ms, now_ms):
            return
        group.assigned_ms = now_ms
        members, counts = self._members_to_assign()
        assignments = ASSIGNORS[self.assignor(settings)](members, counts)
        for member_id, assignment in assignments.items():
            is_kept = assignment is members[member_id].assignment and member_id in self._targets
            if not is_kept and self._targets.get(member_id) != assignment:
                self._set_target(member_id, assignment)
        self.target_epoch = self.epoch
        self.records.append(records.target_epoch_record(self.group_id, self.epoch))

    def _members_to_assign(self) -> tuple[dict[str, MemberToAssign], dict[uuid.UUID, int]]:
        """The input of an assignor: the members, and the partition counts of their topics."""
        counts: dict[uuid.UUID, int] = {}
        ids: dict[tuple[tuple[str, ...], str], frozenset[uuid.UUID]] = {}
        members = {}
        for member_id, value in self.members.items():
            wanted = (value.subscribed_topic_names, value.subscribed_topic_regex)
            topic_ids = ids.get(wanted)
            if topic_ids is None:
                there = [
                    topic
                    for name in sorted(topics_of(value, self.patterns))
                    if (topic := self._topics.topic(name)) is not None
                ]
                counts.update(there)
                topic_ids = ids[wanted] = frozenset(topic_id for topic_id, _ in there)
            members[member_id] = MemberToAssign(
                value.instance_id, topic_ids, self._targets.get(member_id, {})
            )
        return members, counts

    def assignor(self, settings: ConsumerGroupSettings) -> str:
        """The assignor that most members prefer. If no member prefers one, the first assignor in
        the settings.
        """
        return preferred_assignor(self.members.values(), settings)

    # --- the member of the request ---------------------------------------------------------------

    def reconcile(self, member_id: str, owned: Owned | None) -> CurrentValue:
        """Move the member towards its target. Gives: the member's current assignment afterwards.

        While the target belongs to an earlier epoch of the group, topics that the member no longer
        wants are removed from the target.
        """
        target = self.target(member_id)
        if self.target_epoch < self.epoch and target:
            wanted = {
                topic[0]
                for name in topics_of(self.members[member_id], self.patterns)
                if (topic := self._topics.topic(name)) is not None
            }
            if not target.keys() <= wanted:
                target = {topic_id: row for topic_id, row in target.items() if topic_id in wanted}
        current = reconcile(
            self.current(member_id),
            target,
            self.target_epoch,
            owned,
            lambda topic_id, partition: self._is_free(member_id, topic_id, partition),
        )
        self.set_current(member_id, current)
        return current

    def _is_free(self, member_id: str, topic_id: uuid.UUID, partition: int) -> bool:
        """Whether no other member has the partition, after the changes so far."""
        owner = self._group.owners.get(topic_id, {}).get(partition, member_id)
        return owner == member_id or (
            owner in self._currents and partition not in self._held_after(owner, topic_id)
        )

    def _held_after(self, member_id: str, topic_id: uuid.UUID) -> Iterable[int]:
        """The partitions of a topic that a changed member has after the changes so far."""
        current = self._currents[member_id]
        if current is None:
            return ()
        assigned, pending = current.assigned, current.pending_revocation
        return {**assigned.get(topic_id, {}), **pending.get(topic_id, {})}


def preferred_assignor(members: Iterable[MemberValue], settings: ConsumerGroupSettings) -> str:
    """The assignor that most members prefer, or the first one of the settings if they prefer
    none.
    """
    votes: dict[str, int] = {}
    for member in members:
        if member.server_assignor in settings.assignors:
            votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
    return max(votes, key=votes.__getitem__) if votes else settings.assignors[0]
