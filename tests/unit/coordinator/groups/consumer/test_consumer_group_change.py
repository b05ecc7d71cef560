"""The changes that one event makes to a consumer group. Each step sees the results of the steps
before it, the group itself is unchanged, and a value that did not change is not written.

Source: KIP-848, "Rebalance Process". The order of the records is that of Apache Kafka.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping

import pytest
from helpers.group_host import Directory
from helpers.hard_state import hard_state

from barnabas.coordinator.groups.consumer import consumer_group_records as records
from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.groups.consumer.consumer_group_change import GroupChange
from barnabas.coordinator.groups.consumer.consumer_group_records import (
    CurrentValue,
    MemberState,
    MemberValue,
    PatternValue,
)
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.consumer.reconciliation import NOTHING
from barnabas.coordinator.groups.topic_directory import hash_of_topics

SETTINGS = ConsumerGroupSettings(assignment_interval_ms=0)
NOW_MS = 1_000


class Topics(Directory):
    """A registry of topics that counts look-ups."""

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.looks = 0

    def topic(self, name: str) -> tuple[uuid.UUID, int] | None:
        self.looks += 1
        return super().topic(name)

    def id_of(self, name: str) -> uuid.UUID:
        """The id of a topic that exists."""
        topic = self.topic(name)
        assert topic is not None
        return topic[0]


def member(*topics: str, regex: str = "", instance: str | None = None) -> MemberValue:
    return MemberValue(instance, None, "client", "/host", topics, regex, 10_000, None, None)


def stable(epoch: int, assignment: Assignment) -> CurrentValue:
    assigned = {topic_id: dict.fromkeys(row, epoch) for topic_id, row in assignment.items()}
    return CurrentValue(epoch, epoch - 1, MemberState.STABLE, assigned, {})


class Group:
    """A group that replays the records of its own changes."""

    def __init__(self, **topics: int) -> None:
        """An empty group, and topics with these numbers of partitions."""
        self.table = dict(topics)
        self.topics = Topics(self.table)
        self.group = ConsumerGroup()

    def change(self) -> GroupChange:
        return GroupChange("g", self.group, self.topics)

    def replay(self, change: GroupChange) -> list[int]:
        """Replay the records of the change. Gives the versions of their keys."""
        versions = []
        for record in change.records:
            key = records.decode_consumer_key(record.key)
            assert key is not None
            versions.append(key.version)
            self.group.replay(key, record.value)
        return versions

    def join(self, **members: MemberValue) -> None:
        """Let these members join, compute an assignment, and replay the records."""
        change = self.change()
        for name, value in members.items():
            change.set_member(name, value)
        change.raise_epoch_if(True)
        change.assign_if_due(SETTINGS, 0, NOW_MS)
        for name in members:
            change.reconcile(name, {})
        self.replay(change)


def partitions(assignment: Mapping[uuid.UUID, tuple[int, ...]]) -> list[tuple[int, ...]]:
    return list(assignment.values())


def test_each_step_of_a_change_sees_the_steps_before_it_and_leaves_the_group_unchanged() -> None:
    group = Group(t=2)
    group.join(one=member("t"), two=member("t"))
    before = copy.deepcopy(hard_state(group.group))
    change = group.change()
    change.remove_member("one")
    assert (change.current("one"), change.target("one")) == (NOTHING, {})
    assert list(change.members) == ["two"]
    change.set_member("two", member("t", "u"))
    change.set_pattern("u.*", PatternValue(("u",), 1, NOW_MS))
    change.set_current("two", stable(9, {}))
    assert change.current("two") == stable(9, {})
    assert change.patterns["u.*"].topics == ("u",)
    change.raise_epoch_if(True)
    change.assign_if_due(SETTINGS, 0, NOW_MS)
    assert partitions(change.target("two")) == [(0, 1)]
    assert hard_state(group.group) == before
    assert "one" in group.group.members and group.group.targets["two"] != change.target("two")


def test_values_that_do_not_change_are_not_written() -> None:
    group = Group(t=2)
    group.join(one=member("t"))
    current, value = group.group.current("one"), group.group.members["one"]
    change = group.change()
    change.set_member("one", value._replace())
    change.set_current("one", current._replace())
    assert change.reconcile("one", None) is current
    change.raise_epoch_if(False)
    change.assign_if_due(SETTINGS, 0, NOW_MS)
    assert change.records == []
    moved = stable(9, {})
    change.set_current("one", moved)
    change.set_current("one", moved._replace())
    assert group.replay(change) == [records.CURRENT_VERSION]


def test_unchanged_topics_are_looked_up_only_once() -> None:
    """Otherwise the cost of each heartbeat would grow with the number of the group's topics."""
    group = Group(t=2, u=1)
    group.join(one=member("t", "u"))
    for _ in range(2):
        change = group.change()
        change.raise_epoch_if(False)
        group.replay(change)
    looks = group.topics.looks
    change = group.change()
    change.raise_epoch_if(False)
    change.assign_if_due(SETTINGS, 0, NOW_MS)
    assert group.topics.looks == looks


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_unchanged_targets_are_not_written_again_but_a_first_empty_one_is(assignor: str) -> None:
    settings = ConsumerGroupSettings(assignment_interval_ms=0, assignors=(assignor,))
    group = Group(t=1)
    change = group.change()
    for name in ("one", "two"):
        change.set_member(name, member("t"))
    change.raise_epoch_if(True)
    change.assign_if_due(settings, 0, NOW_MS)
    group.replay(change)
    assert {name: partitions(row) for name, row in group.group.targets.items()} == {
        "one": [(0,)],
        "two": [],
    }
    change = group.change()
    change.raise_epoch_if(True)
    change.assign_if_due(settings, 0, NOW_MS)
    assert group.replay(change) == [records.GROUP_VERSION, records.TARGET_VERSION]
    assert group.group.target_epoch == group.group.epoch


def test_a_static_member_that_returns_takes_over_all_but_the_epoch() -> None:
    """The returning member starts with epoch 0. The next step sets its epoch to that of the
    group.
    """
    group = Group(t=2)
    group.join(one=member("t", instance="i"))
    group.join(one=member("t", instance="i"))
    had, target = group.group.current("one"), group.group.targets["one"]
    assert had.member_epoch > had.previous_member_epoch > 0
    change = group.change()
    change.replace_member("one", "other")
    assert group.replay(change) == [
        records.CURRENT_VERSION,
        records.MEMBER_TARGET_VERSION,
        records.MEMBER_VERSION,
        records.MEMBER_VERSION,
        records.MEMBER_TARGET_VERSION,
        records.CURRENT_VERSION,
    ]
    assert group.group.static_members == {"i": "other"}
    assert group.group.targets == {"other": target}
    assert group.group.currents == {"other": had._replace(member_epoch=0, previous_member_epoch=0)}
    assert set(group.group.owners[group.topics.id_of("t")].values()) == {"other"}


def test_patterns_without_a_member_are_removed_and_others_remain() -> None:
    group = Group(t=1)
    group.join(one=member("t", regex="b"))
    change = group.change()
    for regex in ("a", "b", "c"):
        change.set_pattern(regex, PatternValue((), 1, NOW_MS))
    group.replay(change)
    change = group.change()
    change.drop_unused_patterns()
    assert set(change.patterns) == {"b"}
    assert group.replay(change) == [records.PATTERN_VERSION] * 2
    assert set(group.group.patterns) == {"b"}


# --- the group's epoch --------------------------------------------------------------------------


def test_the_group_epoch_record_has_the_hash_of_the_subscribed_topics() -> None:
    group = Group(t=1, u=1)
    group.join(one=member("t"))
    assert group.group.metadata_hash == hash_of_topics(["t"], group.topics)
    change = group.change()
    change.set_member("one", member("u"))
    change.raise_epoch_if(True)
    group.replay(change)
    assert group.group.metadata_hash == hash_of_topics(["u"], group.topics)
    epoch = group.group.epoch
    group.table["other"] = 1
    change = group.change()
    change.raise_epoch_if(False)
    assert (change.records, change.epoch) == ([], epoch)
    group.table["u"] = 2
    change = group.change()
    change.raise_epoch_if(False)
    assert change.epoch == epoch + 1


def test_the_first_record_of_a_new_group_has_the_hash_of_its_topics() -> None:
    group = Group(t=1)
    # left over from an earlier group of that name
    group.group.topics_version = group.topics.version
    change = group.change()
    change.set_member("one", member("t"))
    change.raise_epoch_if(False)
    group.replay(change)
    assert group.group.metadata_hash == hash_of_topics(["t"], group.topics)


# --- a member's assignment ---------------------------------------------------------------------


def test_an_outdated_target_is_reduced_to_the_topics_that_the_member_still_wants() -> None:
    group = Group(t=1, u=1)
    group.join(one=member("t", "u"))
    t, u = group.topics.id_of("t"), group.topics.id_of("u")
    change = group.change()
    change.set_member("one", member("u", "missing"))
    change.raise_epoch_if(True)
    assert change.target_epoch < change.epoch
    current = change.reconcile("one", None)
    assert (set(current.assigned), set(current.pending_revocation)) == ({u}, {t})


def test_a_current_target_is_followed_even_for_topics_without_subscription() -> None:
    """If a group was classic before, its members may have partitions of topics to which they are
    not subscribed.
    """
    group = Group(t=1, u=1)
    group.join(one=member("t"))
    t = group.topics.id_of("t")
    change = group.change()
    change.set_member("one", member("u"))
    assert change.target_epoch == change.epoch
    assert set(change.reconcile("one", None).assigned) == {t}


def test_partitions_revoked_in_the_same_event_can_be_assigned() -> None:
    group = Group(t=2)
    group.join(one=member("t"))
    t = group.topics.id_of("t")
    change = group.change()
    change.set_member("two", member("t"))
    change.raise_epoch_if(True)
    change.assign_if_due(SETTINGS, 0, NOW_MS)
    assert change.reconcile("two", {}).state is MemberState.UNRELEASED_PARTITIONS
    assert change.reconcile("one", None).state is MemberState.UNREVOKED_PARTITIONS
    assert change.reconcile("two", None).assigned == {}, "it is not given up yet"
    assert change.reconcile("one", {}).state is MemberState.STABLE
    (row,) = change.reconcile("two", None).assigned.values()
    assert len(row) == 1 and t in change.current("one").assigned


def test_partitions_of_a_removed_member_can_be_assigned() -> None:
    group = Group(t=2)
    group.join(one=member("t"))
    t = group.topics.id_of("t")
    change = group.change()
    change.remove_member("one")
    change.set_member("two", member("t"))
    change.raise_epoch_if(True)
    change.assign_if_due(SETTINGS, 0, NOW_MS)
    assert set(change.reconcile("two", {}).assigned[t]) == {0, 1}


def test_a_hash_tells_apart_whatever_may_happen_to_the_topics_of_a_group() -> None:
    """The hash of topics that do not exist is 0. Topics outside the subscription do not change
    it.
    """
    there = {"t": 2, "u": 1, "other": 1}
    topics = Directory(there)
    names = ["t", "u", "missing"]
    hashes = [hash_of_topics(names, topics)]
    changes: list[dict[str, int]] = [
        {"t": 3}, {"t": 3, "missing": 1}, {"u": 0}, {"t": 0}, {"t": 2}, {"u": 1},
    ]  # fmt: skip
    for change in changes:
        there |= change
        for name in [name for name, count in there.items() if count == 0]:
            del there[name]
        topics.notice()
        hashes.append(hash_of_topics(names, topics))
    del there["missing"]
    topics.notice()
    hashes.append(hash_of_topics(names, topics))
    assert len(set(hashes)) == len(hashes), "at the end there are as many partitions as at first"
    there["other"] = 7
    assert hash_of_topics(reversed(names), topics) == hashes[-1]
    assert hash_of_topics(["missing"], topics) == 0
