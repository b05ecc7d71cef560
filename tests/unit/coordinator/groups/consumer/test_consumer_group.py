"""A consumer group that is loaded from its records, and how it answers queries."""

from __future__ import annotations

import uuid

import pytest
from helpers.hard_state import hard_state

from barnabas.coordinator.groups.consumer import consumer_group_records as records
from barnabas.coordinator.groups.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.groups.consumer.consumer_group_records import (
    ClassicMember,
    CurrentValue,
    MemberState,
    MemberValue,
    PatternValue,
)
from barnabas.coordinator.groups.consumer.reconciliation import NOTHING
from barnabas.coordinator.groups.group_state import CommitCheck, CommitSender
from barnabas.coordinator.groups.streams import streams_group_records
from barnabas.coordinator.groups.streams.streams_group import StreamsGroup
from barnabas.coordinator.groups.streams.tasks import NONE_HELD, HeldTasks
from barnabas.coordinator.groups.streams.topology import Subtopology, Topology
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.errors import Code

T, U = uuid.UUID(int=1), uuid.UUID(int=2)
CLASSIC = ClassicMember(10_000, (("range", b""),))


def member(
    *topics: str, regex: str = "", instance: str | None = None, classic: ClassicMember | None = None
) -> MemberValue:
    return MemberValue(instance, None, "client", "/host", topics, regex, 10_000, None, classic)


def having(epoch: int, *partitions: int, topic: uuid.UUID = T) -> CurrentValue:
    assigned = {topic: dict.fromkeys(partitions, epoch)} if partitions else {}
    return CurrentValue(epoch, epoch - 1, MemberState.STABLE, assigned, {})


def feed(group: ConsumerGroup, *rows: CoordinatorRecord) -> ConsumerGroup:
    """Replay records into a group. Gives the same group."""
    for row in rows:
        key = records.decode_consumer_key(row.key)
        assert key is not None
        group.replay(key, row.value)
    return group


def group_of(**members: MemberValue) -> ConsumerGroup:
    """A group in epoch 1 with these members."""
    rows = [records.member_record("g", *row) for row in members.items()]
    return feed(ConsumerGroup(), *rows, records.group_epoch_record("g", 1, 7))


def versions(rows: list[CoordinatorRecord]) -> list[int]:
    keys = [records.decode_consumer_key(row.key) for row in rows]
    return [key.version for key in keys if key is not None]


# --- the state after records --------------------------------------------------------------------


def test_a_group_exists_from_its_first_epoch_record_to_its_tombstone() -> None:
    group = ConsumerGroup()
    assert hard_state(group) is None
    feed(group, records.group_epoch_record("g", 1, 7), records.target_epoch_record("g", 1))
    state = hard_state(group)
    assert state is not None and state["epochs"] == (1, 7, 1)
    feed(group, records.tombstone(records.TARGET_VERSION, "g"))
    assert group.target_epoch == 0
    feed(group, records.tombstone(records.GROUP_VERSION, "g"))
    assert hard_state(group) is None


@pytest.mark.parametrize("has_topics", [False, True])
def test_a_groups_tombstones_remove_all_of_its_state(has_topics: bool) -> None:
    """Apache Kafka 4.0 writes a record of the group's topics. If the record exists, it needs a
    tombstone as well.
    """
    group = feed(
        group_of(m=member("t", regex="r")),
        records.member_target_record("g", "m", {T: (0,)}),
        records.current_record("g", "m", having(1, 0)),
        records.pattern_record("g", "r", PatternValue(("t",), 1, 1)),
        records.target_epoch_record("g", 1),
        *[CoordinatorRecord(records.tombstone(records.TOPICS_VERSION, "g").key, b"")] * has_topics,
    )
    assert set(group.patterns) == {"r"}
    tombstones = list(group.tombstones("g"))
    assert versions(tombstones) == [8, 7, 6, 5, 16, *[4] * has_topics, 3]
    feed(group, *tombstones)
    assert hard_state(group) is None
    assert (group.members, group.currents, group.targets, group.patterns) == ({}, {}, {}, {})
    assert (group.owners, group.target_epoch, group.had_topics_record) == ({}, 0, False)


def test_members_keep_their_order_when_they_change() -> None:
    """Assignors use the members' order, so a coordinator must have the same order after a
    restart.
    """
    group = group_of(one=member("t"), two=member("t"))
    feed(group, records.member_record("g", "one", member("u")))
    assert list(group.members) == ["one", "two"]


def test_subscribed_topics_follow_members_and_resolved_patterns() -> None:
    group = group_of(one=member("t", regex="u.*"))
    assert group.subscribed_topics == {"t"}
    feed(group, records.pattern_record("g", "u.*", PatternValue(("u",), 1, 1)))
    assert group.subscribed_topics == {"t", "u"}
    feed(group, records.member_record("g", "two", member("v")))
    assert group.subscribed_topics == {"t", "u", "v"}
    feed(group, records.tombstone(records.MEMBER_VERSION, "g", "one"))
    assert group.subscribed_topics == {"v"}


def test_an_instance_id_belongs_to_the_member_of_its_latest_record() -> None:
    group = group_of(one=member("t", instance="i"))
    assert group.static_members == {"i": "one"}
    feed(group, records.member_record("g", "two", member("t", instance="i")))
    feed(group, records.tombstone(records.MEMBER_VERSION, "g", "one"))
    assert group.static_members == {"i": "two"}
    feed(group, records.member_record("g", "two", member("t", instance="j")))
    assert group.static_members == {"j": "two"}
    feed(group, records.tombstone(records.MEMBER_VERSION, "g", "two"))
    assert group.static_members == {}


def test_a_partition_is_owned_by_the_member_of_its_latest_record() -> None:
    group = group_of(one=member("t"), two=member("t"))
    feed(group, records.current_record("g", "one", having(1, 0, 1)))
    feed(group, records.current_record("g", "two", having(2, 1)))
    assert group.owners == {T: {0: "one", 1: "two"}}
    feed(group, records.tombstone(records.CURRENT_VERSION, "g", "one"))
    assert group.owners == {T: {1: "two"}}
    assert group.is_free("one", T, 0) and not group.is_free("one", T, 1)
    feed(group, records.current_record("g", "two", having(3, 0, topic=U)))
    assert group.owners == {U: {0: "two"}}
    assert group.current("one") == NOTHING


def test_states() -> None:
    group = group_of()
    assert group.state_name == "Empty"
    feed(group, *(records.member_record("g", name, member("t")) for name in ("one", "two")))
    assert group.state_name == "Assigning"
    feed(group, records.target_epoch_record("g", 1))
    feed(group, records.current_record("g", "one", having(1, 0)))
    assert group.state_name == "Reconciling"
    feed(group, records.current_record("g", "two", having(1, 1)))
    assert group.state_name == "Stable"


# --- commits and fetches of offsets -------------------------------------------------------------


def test_commits_without_an_epoch_are_accepted_only_by_an_empty_group() -> None:
    empty, group = group_of(), group_of(m=member("t"))
    assert empty.check_commit(CommitSender("", -1, 9, False)) == CommitCheck(Code.NONE)
    for epoch in (0, 1):
        unknown = empty.check_commit(CommitSender("m", epoch, 9, False))
        assert unknown == CommitCheck(Code.UNKNOWN_MEMBER_ID)
    unknown = group.check_commit(CommitSender("", -1, 9, False))
    assert unknown == CommitCheck(Code.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize(
    ("classic", "code"),
    [(None, Code.STALE_MEMBER_EPOCH), (CLASSIC, Code.ILLEGAL_GENERATION)],
)
def test_commits_of_an_earlier_epoch_are_checked_for_each_partition(
    classic: ClassicMember | None, code: Code
) -> None:
    """Earlier epochs follow the rule of KIP-1251. A later epoch, or a commit without an epoch, is
    refused at once.
    """
    group = group_of(m=member("t", classic=classic))
    feed(group, records.current_record("g", "m", having(5, 0)))
    assert group.check_commit(CommitSender("m", 5, 9, False)) == CommitCheck(Code.NONE)
    for epoch in (0, 4):
        earlier = group.check_commit(CommitSender("m", epoch, 9, False))
        assert earlier == CommitCheck(Code.NONE, code, "m", epoch)
        assert not group.has_had(earlier, "t", T, 0)
    for epoch in (-1, 6):
        assert group.check_commit(CommitSender("m", epoch, 9, False)) == CommitCheck(code)


# (epoch in which the member got the partition, or None; epoch of its commit; whether it may commit)
SINCE_AND_EPOCH = ((2, 1, False), (2, 2, True), (2, 4, True), (5, 4, False), (None, 4, False))


@pytest.mark.parametrize(("since", "epoch", "is_taken"), SINCE_AND_EPOCH)
@pytest.mark.parametrize("gives_up", [False, True])
def test_a_member_may_commit_partitions_that_it_owns_or_is_revoking(
    gives_up: bool, since: int | None, epoch: int, is_taken: bool
) -> None:
    """The commit has an earlier epoch, since the member may send it before it receives the response
    to its last heartbeat.
    """
    held = {} if since is None else {T: {0: since}}
    sides = ({}, held) if gives_up else (held, {})
    group = group_of(m=member("t"))
    current = CurrentValue(5, 4, MemberState.UNREVOKED_PARTITIONS, *sides)
    feed(group, records.current_record("g", "m", current))
    check = group.check_commit(CommitSender("m", epoch, 9, False))
    assert group.has_had(check, "t", T, 0) is is_taken
    assert not group.has_had(check, "t", T, 1) and not group.has_had(check, "t", None, 0)


@pytest.mark.parametrize(("since", "epoch", "is_taken"), SINCE_AND_EPOCH)
@pytest.mark.parametrize("gives_up", [False, True])
def test_a_streams_member_may_commit_tasks_that_it_owns_or_is_revoking(
    gives_up: bool, since: int | None, epoch: int, is_taken: bool
) -> None:
    """A member may commit a task's offsets if its epoch is not below the epoch in which it got the
    task (`since`), whether it keeps the task or gives it up.
    """
    made = streams_group_records
    held = HeldTasks({} if since is None else {"0": {0: since}}, {}, {})
    sides = (NONE_HELD, held) if gives_up else (held, NONE_HELD)
    current = made.CurrentValue(5, 4, made.MemberState.UNREVOKED_TASKS, *sides)
    value = made.MemberValue(None, None, "", "", 1, 0, "p", None, ())
    topology = Topology(0, (Subtopology("0", ("t",), (), (), (), (), ()),))
    group = StreamsGroup()
    for row in (
        made.topology_record("g", topology),
        made.member_record("g", "m", value),
        made.current_record("g", "m", current),
    ):
        key = made.decode_streams_key(row.key)
        assert key is not None
        group.replay(key, row.value)
    check = group.check_commit(CommitSender("m", epoch, 9, False))
    assert group.has_had(check, "t", None, 0) is is_taken
    assert not group.has_had(check, "t", None, 1) and not group.has_had(check, "u", None, 0)


def test_commit_versions_before_9_are_accepted_only_from_classic_members() -> None:
    group = group_of(old=member("t", classic=CLASSIC), new=member("t"))
    for name in ("old", "new"):
        feed(group, records.current_record("g", name, having(1)))
    assert group.check_commit(CommitSender("old", 1, 8, False)) == CommitCheck(Code.NONE)
    refused = group.check_commit(CommitSender("new", 1, 8, False))
    assert refused == CommitCheck(Code.UNSUPPORTED_VERSION)
    assert group.check_commit(CommitSender("new", 1, 8, True)) == CommitCheck(Code.NONE)


def test_an_offset_fetch_names_both_a_member_and_its_epoch_or_neither() -> None:
    group = group_of(old=member("t", classic=CLASSIC), new=member("t"))
    for name in ("old", "new"):
        feed(group, records.current_record("g", name, having(3)))
    assert group.check_fetch(None, -1) is Code.NONE
    assert group.check_fetch(None, 0) is Code.UNKNOWN_MEMBER_ID
    assert group.check_fetch("other", -1) is Code.UNKNOWN_MEMBER_ID
    for name, code in (("old", Code.ILLEGAL_GENERATION), ("new", Code.STALE_MEMBER_EPOCH)):
        assert group.check_fetch(name, 3) is Code.NONE
        for epoch in (-1, 2, 4):
            assert group.check_fetch(name, epoch) is code
