"""One share group (KIP-932): its members, their assignments, and the states of its partitions.

The group is hard state: it consists of its records (share_group_records.py) and of values that are
computed from them. Only `replay` changes it. A share group has no committed offsets: its progress
is the state of each share partition, which the share coordinator stores
(coordinator/share_states/). The group stores which partitions have a state, since a partition is
assigned only once its state is initialised.

    state of the group    when
    Empty                 it has no members
    Stable                it has members

The only soft state is the times of the last assignment and of the initialisations of states, which
limit how often these are repeated.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.group_state import CommitCheck, CommitSender, ModernGroup
from barnabas.coordinator.groups.group_types import SHARE_TYPE
from barnabas.coordinator.groups.share import share_group_records as records
from barnabas.coordinator.groups.share.share_group_records import (
    NO_STATES,
    CurrentValue,
    MemberValue,
    ShareGroupKey,
    StatesValue,
)
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.errors import Code

FIRST_EPOCH = 1  # the epoch of a new group and of its target assignment, before its first record
NO_HASH = 0
NO_TOPICS_VERSION = -1
EMPTY, STABLE = "Empty", "Stable"
NOTHING = CurrentValue(0, -1, {})
"""The current assignment of a new member."""


class ShareGroup(ModernGroup):
    """The members of one share group.

    states: the states of the group's partitions. assigned_ms: when the target assignment was
    computed. topics_version: `TopicDirectory.version` when the topics of the group were last read.
    initializing_since_ms: when the initialisation of states began, by topic id.
    """

    kind = SHARE_TYPE
    protocol_type = SHARE_TYPE
    reads_on = accepts_join_group = is_unused = False  # only DeleteGroups removes the group

    def __init__(self) -> None:
        self.epoch, self.metadata_hash, self.target_epoch = FIRST_EPOCH, NO_HASH, FIRST_EPOCH
        self.members: dict[str, MemberValue] = {}
        self.currents: dict[str, CurrentValue] = {}
        self.targets: dict[str, Assignment] = {}
        self.states: StatesValue = NO_STATES
        self.assigned_ms: int | None = None
        self.topics_version = NO_TOPICS_VERSION
        self.initializing_since_ms: dict[uuid.UUID, int] = {}
        self._exists = False
        self._subscribed: frozenset[str] | None = None
        self._assigned: dict[uuid.UUID, frozenset[int]] | None = None

    # --- hard state ------------------------------------------------------------------------------

    def replay(self, key: ShareGroupKey, value: bytes | None) -> None:
        """Apply one record. The tombstone of the group's epoch removes the group."""
        self._exists = self._exists or value is not None
        version, _, member_id = key
        if version == records.CURRENT_VERSION:
            if value is None:
                self.currents.pop(member_id, None)
            else:
                self.currents[member_id] = records.decode_current(value)
        elif version == records.MEMBER_TARGET_VERSION:
            self._assigned = None
            if value is None:
                self.targets.pop(member_id, None)
            else:
                self.targets[member_id] = records.decode_member_target(value)
        elif version == records.MEMBER_VERSION:
            self._subscribed = None
            if value is None:
                self.members.pop(member_id, None)
            else:
                self.members[member_id] = records.decode_member(value)
        elif version == records.GROUP_VERSION:
            if value is None:
                self._exists = False
            else:
                self.epoch, self.metadata_hash = records.decode_epoch(value)
        elif version == records.TARGET_VERSION:
            self.target_epoch = FIRST_EPOCH if value is None else records.decode_target_epoch(value)
        else:
            self.states = NO_STATES if value is None else records.decode_states(value)
            self._forget_times()

    def _forget_times(self) -> None:
        """Forget when the initialisation of states began, for topics for which it is no longer in
        progress.
        """
        initializing = self.states.initializing
        for topic_id in [one for one in self.initializing_since_ms if one not in initializing]:
            del self.initializing_since_ms[topic_id]

    def tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """The records that remove the group. The last one is the tombstone of the group's own
        record.
        """
        for member_id in list(self.currents):
            yield records.tombstone(records.CURRENT_VERSION, group_id, member_id)
        for member_id in list(self.targets):
            yield records.tombstone(records.MEMBER_TARGET_VERSION, group_id, member_id)
        yield records.tombstone(records.TARGET_VERSION, group_id)
        for member_id in list(self.members):
            yield records.tombstone(records.MEMBER_VERSION, group_id, member_id)
        yield records.tombstone(records.STATES_VERSION, group_id)
        yield records.tombstone(records.GROUP_VERSION, group_id)

    def without_topics(
        self, group_id: str, topic_ids: Collection[uuid.UUID]
    ) -> Iterator[CoordinatorRecord]:
        """The record that removes deleted topics from the group's list of states. The share
        coordinator deletes the states themselves.
        """
        states = self.states
        kept = StatesValue(
            {one: row for one, row in states.initializing.items() if one not in topic_ids},
            {one: row for one, row in states.initialized.items() if one not in topic_ids},
            {one: name for one, name in states.deleting.items() if one not in topic_ids},
        )
        if kept != states:
            yield records.states_record(group_id, kept)

    # --- for readers -----------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether the log has a record of the group."""
        return self._exists

    @property
    def member_ids(self) -> Collection[str]:
        return self.members.keys()

    @property
    def state_name(self) -> str:
        """The name of the group's state."""
        return STABLE if self.members else EMPTY

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The names of the topics that at least one member wants."""
        if self._subscribed is None:
            self._subscribed = wanted_topics(self.members.values())
        return self._subscribed

    def current(self, member_id: str) -> CurrentValue:
        return self.currents.get(member_id, NOTHING)

    def may_be_assigned(self, interval_ms: int, now_ms: int) -> bool:
        """Whether enough time has passed since the last target assignment. Source: KIP-1263."""
        return self.assigned_ms is None or now_ms - self.assigned_ms >= interval_ms

    def decide_again(self) -> None:
        """Make the next heartbeat read the topics and assign again, after records of an assignment
        were dropped.
        """
        self.assigned_ms, self.topics_version = None, NO_TOPICS_VERSION
        self.initializing_since_ms.clear()

    def lacks_assignment(self, topics: TopicDirectory) -> bool:
        """Whether the assigned partitions of any wanted topic differ from the partitions whose
        states are initialised.
        """
        if self._assigned is None:
            assigned: dict[uuid.UUID, set[int]] = {}
            for target in self.targets.values():
                for topic_id, partitions in target.items():
                    assigned.setdefault(topic_id, set()).update(partitions)
            self._assigned = {one: frozenset(row) for one, row in assigned.items()}
        initialized = self.states.initialized
        for topic_id, (_, partitions) in initialized.items():
            of_topic = self._assigned.get(topic_id)
            if of_topic is None or len(of_topic) != len(partitions):
                name = topics.name(topic_id)
                if name is not None and name in self.subscribed_topics and partitions:
                    return True
        return False

    # --- offsets, which a share group does not have ----------------------------------------------

    def check_commit(self, sender: CommitSender) -> CommitCheck:
        """Refuse each commit with GROUP_ID_NOT_FOUND, since a share group has no
        committed offsets.
        """
        return CommitCheck(Code.GROUP_ID_NOT_FOUND)

    def has_had(
        self, check: CommitCheck, topic: str, topic_id: uuid.UUID | None, partition: int
    ) -> bool:
        """Whether a commit may be accepted. This is never so, since a share group has no committed
        offsets.
        """
        return False

    def check_fetch(self, member_id: str | None, epoch: int) -> Code:
        """Return NONE, so that the response has no offsets, as for a group that does not exist."""
        return Code.NONE

    def check_offset_delete(self) -> Code:
        return Code.GROUP_ID_NOT_FOUND


class ShareKind:
    """Reads the records of share groups."""

    def decode_key(self, key: bytes) -> ShareGroupKey | None:
        """The key of a record; None if its version is unknown."""
        return records.decode_share_key(key)

    def is_group_key(self, key: Any) -> bool:
        """Whether a tombstone with this key removes the group."""
        return bool(key.version == records.GROUP_VERSION)

    def new_group(self) -> ShareGroup:
        """A group that has no records yet."""
        return ShareGroup()


def wanted_topics(members: Iterable[MemberValue]) -> frozenset[str]:
    """The topics that at least one of the members wants."""
    distinct = dict.fromkeys(member.subscribed_topic_names for member in members)
    return frozenset().union(*distinct)


def assignable(
    states: StatesValue, wanted: Collection[str], topics: TopicDirectory
) -> Mapping[uuid.UUID, tuple[int, ...]]:
    """The partitions that may be assigned: partitions of wanted topics whose states are
    initialised.
    """
    return {
        topic_id: partitions
        for topic_id, (_, partitions) in states.initialized.items()
        if (name := topics.name(topic_id)) is not None and name in wanted
    }
