"""One group of the consumer protocol (KIP-848): its members, and their current and target
assignments.

The group is hard state: it consists of its records (consumer_group_records.py) and of values that
are computed from them. Only `replay` changes it. A group exists from its epoch 1 on. The only soft
state is a running lookup of patterns, and the times of the last assignment and of the last lookup,
which limit how often these are done.

    state of the group    when
    Empty                 it has no members
    Assigning             its epoch is above that of its target assignment
    Reconciling           a member does not have its target assignment
    Stable                all members have their target assignments
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping

from barnabas.coordinator.groups.classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from barnabas.coordinator.groups.consumer import consumer_group_records as records
from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.consumer.consumer_group_records import (
    NO_HASH,
    ConsumerGroupKey,
    CurrentValue,
    MemberValue,
    PatternValue,
)
from barnabas.coordinator.groups.consumer.reconciliation import NOTHING, is_reconciled
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_state import CommitCheck, CommitSender, ModernGroup
from barnabas.coordinator.groups.group_types import CONSUMER_TYPE
from barnabas.coordinator.groups.topic_directory import (
    IsVisible,
    TopicDirectory,
    hash_of_topics,
)
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.errors import Code, KafkaError

NO_TOPICS_VERSION = -1
# the first version of OffsetCommit that members of the consumer protocol may use
FIRST_COMMIT_VERSION = 9
EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"


class ConsumerGroup(ModernGroup):
    """The members of one group of the consumer protocol.

    epoch: 0 for a group that does not exist. owners: the member that has each partition, even if it
    has to give the partition up. assigned_ms: when the target assignment was computed. patterns_ms:
    when patterns were last looked up. topics_version: `TopicDirectory.version` when the topics of
    the group were last read. lookup: a running lookup of patterns. looked_up_for: whether the
    member that caused the lookup may describe a topic.
    """

    kind = CONSUMER_TYPE
    protocol_type = CONSUMER_PROTOCOL_TYPE
    reads_on = accepts_join_group = True

    def __init__(self) -> None:
        self.epoch, self.metadata_hash, self.target_epoch = 0, NO_HASH, 0
        self.members: dict[str, MemberValue] = {}
        self.currents: dict[str, CurrentValue] = {}
        self.targets: dict[str, Assignment] = {}
        self.patterns: dict[str, PatternValue] = {}
        self.owners: dict[uuid.UUID, dict[int, str]] = {}
        self.static_members: dict[str, str] = {}
        self.had_topics_record = False
        self.assigned_ms: int | None = None
        self.patterns_ms: int | None = None
        self.patterns_version = NO_TOPICS_VERSION
        self.looked_up_for: IsVisible | None = None
        self.lookup: Generator[None, None, dict[str, tuple[str, ...]]] | None = None
        self.topics_version = NO_TOPICS_VERSION
        self._subscribed: frozenset[str] | None = None

    def decide_again(self) -> None:
        """Make the next heartbeat read the topics and assign again, after records of an assignment
        were dropped.
        """
        self.assigned_ms, self.topics_version = None, NO_TOPICS_VERSION

    # --- hard state ------------------------------------------------------------------------------

    def replay(self, key: ConsumerGroupKey, value: bytes | None) -> None:
        """Apply one record. The tombstone of the group's epoch removes the group."""
        version, _, name = key
        if version == records.CURRENT_VERSION:
            self._replay_current(name, value)
        elif version == records.MEMBER_TARGET_VERSION:
            if value is None:
                self.targets.pop(name, None)
            else:
                self.targets[name] = records.decode_member_target(value)
        elif version == records.MEMBER_VERSION:
            self._replay_member(name, value)
        elif version == records.GROUP_VERSION:
            if value is None:
                self.epoch, self.metadata_hash = 0, NO_HASH
            else:
                self.epoch, self.metadata_hash = records.decode_group_epoch(value)
        elif version == records.TARGET_VERSION:
            self.target_epoch = 0 if value is None else records.decode_target_epoch(value)
        elif version == records.PATTERN_VERSION:
            self._subscribed = None
            if value is None:
                self.patterns.pop(name, None)
            else:
                self.patterns[name] = records.decode_pattern(value)
        else:
            self.had_topics_record = value is not None

    def _replay_member(self, member_id: str, value: bytes | None) -> None:
        """Apply the record of a member; None removes the member. The index of static members is
        updated.
        """
        self._subscribed = None
        former = self.members.pop(member_id, None) if value is None else self.members.get(member_id)
        if (
            former is not None
            and former.instance_id is not None
            and self.static_members.get(former.instance_id) == member_id
        ):
            del self.static_members[former.instance_id]
        if value is not None:
            member = self.members[member_id] = records.decode_member(value)
            if member.instance_id is not None:
                self.static_members[member.instance_id] = member_id

    def _replay_current(self, member_id: str, value: bytes | None) -> None:
        """Apply the record of a member's current assignment; the index of the partitions' owners is
        updated.
        """
        for topic_id, partition in held(self.currents.pop(member_id, NOTHING)):
            of_topic = self.owners.get(topic_id, {})
            if of_topic.get(partition) == member_id:
                del of_topic[partition]
                if not of_topic:
                    del self.owners[topic_id]
        if value is not None:
            current = self.currents[member_id] = records.decode_current(value)
            for topic_id, partition in held(current):
                self.owners.setdefault(topic_id, {})[partition] = member_id

    def tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """The records that remove the group; the last is the tombstone of the group's own
        record.
        """
        for member_id in list(self.currents):
            yield records.tombstone(records.CURRENT_VERSION, group_id, member_id)
        for member_id in list(self.targets):
            yield records.tombstone(records.MEMBER_TARGET_VERSION, group_id, member_id)
        yield records.tombstone(records.TARGET_VERSION, group_id)
        for member_id in list(self.members):
            yield records.tombstone(records.MEMBER_VERSION, group_id, member_id)
        for regex in list(self.patterns):
            yield records.tombstone(records.PATTERN_VERSION, group_id, regex)
        if self.had_topics_record:
            yield records.tombstone(records.TOPICS_VERSION, group_id)
        yield records.tombstone(records.GROUP_VERSION, group_id)

    # --- for readers -----------------------------------------------------------------------------

    def current(self, member_id: str) -> CurrentValue:
        return self.currents.get(member_id, NOTHING)

    def is_free(self, member_id: str, topic_id: uuid.UUID, partition: int) -> bool:
        """Whether no other member has the partition."""
        return self.owners.get(topic_id, {}).get(partition, member_id) == member_id

    def may_be_assigned(self, interval_ms: int, now_ms: int) -> bool:
        """Whether enough time has passed since the last target assignment. Source: KIP-1263."""
        return self.assigned_ms is None or now_ms - self.assigned_ms >= interval_ms

    def notices_topics(self, topics: TopicDirectory) -> bool:
        """Whether a topic of the group was created, grew or was deleted since the group's epoch was
        raised.

        After:  if no topic has changed, topics_version is current, so that the topics of the same
                version are not read again.
        """
        if self.topics_version == topics.version:
            return False
        has_changed = hash_of_topics(self.subscribed_topics, topics) != self.metadata_hash
        if not has_changed:
            self.topics_version = topics.version
        return has_changed

    def waits_for_others(self, member_id: str) -> bool:
        """Whether other members still have partitions that are in the member's target."""
        assigned = self.current(member_id).assigned
        return any(
            partition not in assigned.get(topic_id, {})
            and not self.is_free(member_id, topic_id, partition)
            for topic_id, partitions in self.targets.get(member_id, {}).items()
            for partition in partitions
        )

    @property
    def exists(self) -> bool:
        return self.epoch > 0

    @property
    def member_ids(self) -> Collection[str]:
        return self.members.keys()

    @property
    def is_unused(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        """The name of the group's state. Finding it takes time in proportion to the number of
        members.
        """
        if not self.members:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        if all(is_reconciled(self.current(member_id), self.epoch) for member_id in self.members):
            return STABLE
        return RECONCILING

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The names of all topics that at least one member wants."""
        if self._subscribed is None:
            self._subscribed = wanted_topics(self.members.values(), self.patterns)
        return self._subscribed

    def check_commit(self, sender: CommitSender) -> CommitCheck:
        """Whether the member may commit offsets in the given epoch.

        Source: KIP-848, "OffsetCommit"; KIP-1251 for commits in an earlier epoch.
        """
        member_id, epoch, api_version, transactional, instance_id, is_preview = sender
        names_no_member = epoch < 0 and not member_id and instance_id is None
        if (epoch < 0 and not self.members) or (
            transactional and names_no_member and not is_preview
        ):
            return CommitCheck(Code.NONE)
        member = self.members.get(member_id)
        if member is None:
            return CommitCheck(Code.UNKNOWN_MEMBER_ID)
        if not transactional and member.classic is None and api_version < FIRST_COMMIT_VERSION:
            return CommitCheck(Code.UNSUPPORTED_VERSION)
        is_classic = member.classic is not None or transactional
        code = Code.ILLEGAL_GENERATION if is_classic else Code.STALE_MEMBER_EPOCH
        known_epoch = self.current(member_id).member_epoch
        if epoch == known_epoch:
            return CommitCheck(Code.NONE)
        if not 0 <= epoch < known_epoch:
            return CommitCheck(code)
        return CommitCheck(code) if is_preview else CommitCheck(Code.NONE, code, member_id, epoch)

    def has_had(
        self, check: CommitCheck, topic: str, topic_id: uuid.UUID | None, partition: int
    ) -> bool:
        """Whether the member got the partition in the epoch of the commit or earlier, and still has
        it.
        """
        if topic_id is None:
            return False
        current = self.current(check.member_id)
        for partitions in (current.assigned, current.pending_revocation):
            since = partitions.get(topic_id, {}).get(partition)
            if since is not None:
                return since <= check.since_epoch
        return False

    def check_fetch(self, member_id: str | None, epoch: int) -> Code:
        """NONE if offsets may be fetched, otherwise the error code.

        A request that names no member is accepted.
        """
        if member_id is None and epoch < 0:
            return Code.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return Code.UNKNOWN_MEMBER_ID
        if epoch == self.current(member_id or "").member_epoch:
            return Code.NONE
        return Code.STALE_MEMBER_EPOCH if member.classic is None else Code.ILLEGAL_GENERATION

    def check_offset_delete(self) -> Code:
        """Return NONE: the offsets of topics that no member reads may always be deleted."""
        return Code.NONE


def consumer_group(group: Group) -> ConsumerGroup:
    """The state of a consumer group, which exists or is being created."""
    consumer = group.modern
    assert isinstance(consumer, ConsumerGroup), f"group {group.group_id} is a {group.kind} one"
    return consumer


class ConsumerKind:
    """Reads the records of consumer groups."""

    def decode_key(self, key: bytes) -> ConsumerGroupKey | None:
        """The key of a record; None if its version is unknown."""
        return records.decode_consumer_key(key)

    def is_group_key(self, key: ConsumerGroupKey) -> bool:
        """Whether a tombstone with this key removes the group."""
        return key.version == records.GROUP_VERSION

    def new_group(self) -> ConsumerGroup:
        """A group that has no records yet."""
        return ConsumerGroup()


def static_member_id(consumer: ConsumerGroup, instance_id: str, member_id: str) -> str:
    """The current member id of an instance, which must be the one in the request.

    Raises: KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    known_id = consumer.static_members.get(instance_id)
    if known_id is None:
        raise KafkaError(
            Code.UNKNOWN_MEMBER_ID, f"the group has no instance '{instance_id}': join it."
        )
    if known_id != member_id:
        raise KafkaError(
            Code.FENCED_INSTANCE_ID,
            f"the instance '{instance_id}' belongs to another member now, '{known_id}'.",
        )
    return known_id


def held(current: CurrentValue) -> Iterator[tuple[uuid.UUID, int]]:
    """Each partition that a member has, including those that it has to give up."""
    for partitions in (current.assigned, current.pending_revocation):
        for topic_id, epochs in partitions.items():
            for partition in epochs:
                yield topic_id, partition


def topics_of(member: MemberValue, patterns: Mapping[str, PatternValue]) -> frozenset[str]:
    """The topics that a member wants, by name and by pattern. The topics need not exist."""
    pattern = patterns.get(member.subscribed_topic_regex)
    if pattern is None:
        return frozenset(member.subscribed_topic_names)
    return frozenset((*member.subscribed_topic_names, *pattern.topics))


def wanted_topics(
    members: Iterable[MemberValue], patterns: Mapping[str, PatternValue]
) -> frozenset[str]:
    """The topics that at least one of the members wants."""
    distinct = {
        (member.subscribed_topic_names, member.subscribed_topic_regex): member for member in members
    }
    return frozenset().union(*(topics_of(member, patterns) for member in distinct.values()))
