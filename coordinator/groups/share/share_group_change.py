"""The change of a share group by one event, computed before its records are written.

The steps follow the order of Apache Kafka's records: the member; the group's epoch, if the
subscriptions or the initialised states have changed; the target assignment of that epoch; the
current assignment of the member that sent the request; the initialisation of states. Each step uses
the results of the earlier ones. The group itself does not change until `records` are replayed.
"""

from __future__ import annotations

import uuid

from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.share import partition_states
from barnabas.coordinator.groups.share import share_group_records as records
from barnabas.coordinator.groups.share.share_group import (
    ShareGroup,
    assignable,
    wanted_topics,
)
from barnabas.coordinator.groups.share.share_group_records import CurrentValue, MemberValue
from barnabas.coordinator.groups.share.simple_assignor import MemberToAssign, assign_simple
from barnabas.coordinator.groups.topic_directory import TopicDirectory, hash_of_topics
from barnabas.coordinator.result import CoordinatorRecord, Counted, Result, StateRow


class ShareGroupChange:
    """The change of one group by one event.

    records: the records to write, in order. members, epoch, target_epoch: the values after the
    change.
    """

    def __init__(self, group_id: str, group: ShareGroup, topics: TopicDirectory) -> None:
        self.group_id, self.records = group_id, list[CoordinatorRecord]()
        self.members = group.members
        self.epoch, self.target_epoch = group.epoch, group.target_epoch
        self._group, self._topics = group, topics
        self._targets = group.targets
        self._wanted: frozenset[str] | None = None

    @property
    def wanted(self) -> frozenset[str]:
        """The names of the topics that at least one member wants."""
        if self.members is self._group.members:
            return self._group.subscribed_topics
        if self._wanted is None:
            self._wanted = wanted_topics(self.members.values())
        return self._wanted

    def add_to(self, result: Result) -> None:
        """Add the records to a Result, which counts a rebalance if the group's epoch rises."""
        result.records += self.records
        if self.epoch > self._group.epoch:
            result.count(Counted.SHARE_REBALANCE)

    # --- members ---------------------------------------------------------------------------------

    def set_member(self, member_id: str, value: MemberValue) -> bool:
        """Set the value of a member. Gives: whether its subscription has changed."""
        former = self.members.get(member_id)
        if value == former:
            return False
        self.members, self._wanted = {**self.members, member_id: value}, None
        self.records.append(records.member_record(self.group_id, member_id, value))
        return former is None or former.subscribed_topic_names != value.subscribed_topic_names

    def remove_member(self, member_id: str) -> None:
        """Remove a member, with the tombstones of its records."""
        self.members = {one: value for one, value in self.members.items() if one != member_id}
        self._wanted = None
        for version in (
            records.CURRENT_VERSION, records.MEMBER_TARGET_VERSION, records.MEMBER_VERSION
        ):  # fmt: skip
            self.records.append(records.tombstone(version, self.group_id, member_id))

    # --- epochs ----------------------------------------------------------------------------------

    def raise_epoch_if(self, has_changed: bool) -> bool:
        """Raise the group's epoch if subscriptions or topics have changed, or a partition's state
        was initialised since the last assignment.

        Gives:  whether the epoch was raised.
        """
        group = self._group
        if not has_changed and group.target_epoch >= group.epoch:
            has_changed = group.lacks_assignment(self._topics)
        if not has_changed and group.topics_version == self._topics.version:
            return False
        topics_hash = hash_of_topics(self.wanted, self._topics)
        group.topics_version = self._topics.version
        if has_changed or topics_hash != group.metadata_hash:
            self.epoch = group.epoch + 1
            self.records.append(records.epoch_record(self.group_id, self.epoch, topics_hash))
            return True
        return False

    def end_emptied(self, wall_ms: int) -> None:
        """Let the target assignment of a group without members be that of the group's epoch, since
        no member's heartbeat computes it. Source: KAFKA-20442.
        """
        if not self.members and self.target_epoch < self.epoch:
            self.target_epoch = self.epoch
            self.records.append(records.target_epoch_record(self.group_id, self.epoch, wall_ms))

    def assign_if_due(self, interval_ms: int, now_ms: int, wall_ms: int) -> None:
        """Compute the target assignment of the group's epoch, unless the last one is too recent.

        Source: KIP-1263 for the interval.
        """
        group = self._group
        if self.target_epoch >= self.epoch or not group.may_be_assigned(interval_ms, now_ms):
            return
        group.assigned_ms = now_ms
        ids: dict[tuple[str, ...], tuple[uuid.UUID, ...]] = {}
        members = {}
        for member_id, value in self.members.items():
            names = value.subscribed_topic_names
            if names not in ids:
                ids[names] = tuple(
                    topic[0] for name in names if (topic := self._topics.topic(name)) is not None
                )
            members[member_id] = MemberToAssign(ids[names], self._targets.get(member_id, {}))
        partitions = assignable(group.states, self.wanted, self._topics)
        targets = dict(self._targets)
        for member_id, assignment in assign_simple(members, partitions).items():
            if self._targets.get(member_id) != assignment:
                targets[member_id] = assignment
                self.records.append(
                    records.member_target_record(self.group_id, member_id, assignment)
                )
        self._targets = targets
        self.target_epoch = self.epoch
        self.records.append(records.target_epoch_record(self.group_id, self.epoch, wall_ms))

    # --- the member of the request ---------------------------------------------------------------

    def reconcile(self, member_id: str, is_changed: bool) -> CurrentValue:
        """Give the member its target. Gives: the member's current assignment afterwards.

        While the target belongs to an earlier epoch of the group, topics that the member no longer
        wants are removed from the target.

        Takes:  is_changed, whether this event raises the group's epoch.
        """
        current = self._group.current(member_id)
        epoch = self.target_epoch
        if not is_changed and epoch == current.member_epoch:
            return current
        names = self.members[member_id].subscribed_topic_names
        assigned: Assignment = {
            topic_id: partitions
            for topic_id, partitions in self._targets.get(member_id, {}).items()
            if self._topics.name(topic_id) in names
        }
        previous = current.previous_member_epoch
        if epoch != current.member_epoch:
            previous = current.member_epoch
        following = CurrentValue(epoch, previous, assigned)
        if following != current:
            self.records.append(records.current_record(self.group_id, member_id, following))
        return following

    # --- the states of partitions ----------------------------------------------------------------

    def begin_states(self, retry_interval_ms: int, now_ms: int) -> tuple[StateRow, ...]:
        """Begin to initialise the states of those partitions of wanted topics that have no state.

        An initialisation that takes longer than the retry interval is begun again.
        """
        group, states = self._group, self._group.states
        names: dict[uuid.UUID, str] = {}
        rows: list[StateRow] = []
        for name in sorted(self.wanted):
            topic = self._topics.topic(name)
            if topic is None:
                continue
            topic_id, count = topic
            has = states.initialized.get(topic_id)
            pending = states.initializing.get(topic_id)
            if pending is not None:
                since_ms = group.initializing_since_ms.get(topic_id)
                if since_ms is None or now_ms - since_ms >= retry_interval_ms:
                    pending = None
            if sum(len(one.partitions) for one in (has, pending) if one is not None) >= count:
                continue
            had = {index for one in (has, pending) if one is not None for index in one.partitions}
            missing = [StateRow(topic_id, index) for index in range(count) if index not in had]
            if missing:
                names[topic_id] = name
                group.initializing_since_ms[topic_id] = now_ms
                rows += missing
        if rows:
            self.records.append(
                records.states_record(self.group_id, partition_states.begun(states, rows, names))
            )
        return tuple(rows)
