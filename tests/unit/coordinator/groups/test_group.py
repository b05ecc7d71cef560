"""Group: when the retention of its offsets starts, and what is removed together with its last
offset.
"""

from __future__ import annotations

from helpers.group_host import subscription

from barnabas.coordinator.groups.classic.classic_answers import JoinRequest
from barnabas.coordinator.groups.classic.classic_group import ClassicGroup
from barnabas.coordinator.groups.classic.rebalance import State
from barnabas.coordinator.groups.group import Group, PartitionCodes
from barnabas.coordinator.groups.group_offsets import CommittedOffset
from barnabas.coordinator.groups.group_records import (
    GroupMetadataValue,
    MemberMetadata,
    group_tombstone,
    offset_tombstone,
)
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.result import Result
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import WallClock

SETTINGS = GroupSettings(offsets_retention_ms=10_000, offsets_retention_check_interval_ms=100)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def new_group(value: GroupMetadataValue | None = None, now_ms: int = 50_000) -> Group:
    """A group. If `value` is given, the group is loaded at `now_ms` from this record value."""
    timers, wall = Timers[tuple[str, str, str]](), WallClock()
    classic = ClassicGroup("g", SETTINGS, timers, str, wall)
    if value is not None:
        classic.load(value, now_ms)
    return Group("g", 3, classic)


def commit(group: Group, partition: TopicPartition, since_ms: int) -> None:
    group.offsets.replay_commit(partition, CommittedOffset(1, 0, "", since_ms, since_ms=since_ms))


def value_of(kind: str, *subscriptions: bytes, since_ms: int = -1) -> GroupMetadataValue:
    """The value of a group record. `kind` is the protocol type, `subscriptions` has the metadata of
    each member, and `since_ms` is the time of the last state change.
    """
    members = tuple(
        MemberMetadata(f"m{number}", None, "c", "h", 60_000, 60_000, metadata, b"")
        for number, metadata in enumerate(subscriptions)
    )
    leader_id = members[0].member_id if members else None
    return GroupMetadataValue(kind, 4, "range" if members else None, leader_id, since_ms, members)


def expired(group: Group, now_ms: int) -> list[TopicPartition] | None:
    expiry = group.expiry(SETTINGS, now_ms)
    return None if expiry is None else expiry.expired


def test_in_a_group_that_never_had_members_retention_starts_with_the_commit() -> None:
    group = new_group()
    commit(group, T0, 1_000)
    commit(group, T1, 2_000)
    assert expired(group, 10_999) == []
    assert expired(group, 11_000) == [T0]


def test_a_record_without_a_protocol_type_is_of_a_group_that_never_had_members() -> None:
    """Apache Kafka writes such a record for a group that only commits offsets."""
    group = new_group(value_of("", since_ms=30_000))
    assert group.classic.rebalance.protocol_type is None
    commit(group, T0, 1_000)
    assert expired(group, 11_000) == [T0]


def test_in_an_empty_group_retention_starts_when_it_became_empty() -> None:
    group = new_group(value_of("consumer", since_ms=30_000))
    assert group.classic.state is State.EMPTY
    commit(group, T0, 1_000)
    assert expired(group, 39_999) == []
    assert expired(group, 40_000) == [T0]


def test_without_a_time_of_the_state_retention_starts_with_the_commit() -> None:
    """Versions 0 and 1 of the record do not contain the time of the state. It is then read as
    -1.
    """
    group = new_group(value_of("consumer", since_ms=-1))
    commit(group, T0, 1_000)
    assert expired(group, 11_000) == [T0]


def test_a_state_time_of_0_is_a_valid_start_of_the_retention() -> None:
    group = new_group(value_of("consumer", since_ms=0))
    commit(group, T0, 5_000)
    assert expired(group, 9_999) == []
    assert expired(group, 10_000) == [T0]


def test_offsets_of_topics_to_which_members_are_subscribed_do_not_expire() -> None:
    group = new_group(value_of("consumer", subscription("t"), subscription()))
    commit(group, T0, 1_000)
    commit(group, U0, 1_000)
    assert expired(group, 60_000) == [U0]


def test_no_offset_expires_while_members_topics_are_unknown() -> None:
    for value in (
        value_of("consumer", b"no subscription"),
        value_of("connect", subscription("t")),
    ):
        group = new_group(value)
        commit(group, U0, 1_000)
        assert expired(group, 60_000) is None


def test_no_offset_expires_during_a_rebalance() -> None:
    group = new_group(value_of("consumer", subscription("t")))
    commit(group, U0, 1_000)
    leader = group.classic.members["m0"]
    group.classic.on_join(
        JoinRequest(1, 9, "m0", None, "c", "h", 60_000, 60_000, "consumer", dict(leader.protocols)),
        Result(),
        60_000,
    )
    assert group.classic.state is State.COMPLETING_REBALANCE
    assert expired(group, 60_000) is None


def test_the_next_retention_check_is_at_the_next_expiry_or_after_the_interval() -> None:
    group = new_group()
    assert group.next_retention_check_ms(SETTINGS, 1_000) == 1_100
    commit(group, T0, 2_000)
    commit(group, T1, 3_000)
    assert group.next_retention_check_ms(SETTINGS, 2_000) == 12_000
    assert group.next_retention_check_ms(SETTINGS, 11_950) == 12_050
    assert group.next_retention_check_ms(SETTINGS, 12_000) == 12_100, "one is to be removed"


def test_a_group_with_members_is_checked_at_every_interval() -> None:
    group = new_group(value_of("consumer", subscription("t")))
    commit(group, U0, 49_000)
    assert group.next_retention_check_ms(SETTINGS, 50_000) == 50_100


def deleted(group: Group, *partitions: TopicPartition) -> tuple[Result, PartitionCodes]:
    """Delete the offsets of the partitions. Gives the result, and the error codes."""
    codes: PartitionCodes = {topic: {} for topic, _ in partitions}
    result = Result()
    group.delete_offsets(partitions, codes, result)
    return result, codes


def test_a_group_is_not_removed_with_its_last_offset() -> None:
    """It remains until its retention check, so that tools can delete it next."""
    group = new_group()
    commit(group, T0, 0)
    commit(group, T1, 0)
    assert deleted(group, T0)[0].records == [offset_tombstone("g", *T0)]
    assert deleted(group, T0, U0, T1)[0].records == [
        offset_tombstone("g", *T0),
        offset_tombstone("g", *T1),
    ], "there is nothing to delete of u"


def test_a_group_with_pending_offsets_or_members_is_not_removed_with_its_last_offset() -> None:
    pending, joining, member = (
        new_group(),
        new_group(),
        new_group(value_of("consumer", subscription("t"))),
    )
    pending.offsets.replay_pending(7, T1, CommittedOffset(1, 0, "", 0))
    joining.classic.pending_ids["id"] = None
    for group in (pending, joining, member):
        commit(group, U0, 0)
        assert deleted(group, U0)[0].records == [offset_tombstone("g", *U0)]
    assert not joining.state.is_unused and not member.state.is_unused


def test_pending_offsets_are_deleted_too() -> None:
    group = new_group()
    group.offsets.replay_pending(7, T1, CommittedOffset(1, 0, "", 0))
    assert deleted(group, T1, T1)[0].records == [offset_tombstone("g", *T1)]
    result = Result(records=[group_tombstone("another")])
    group.delete_offsets([T1], {"t": {}}, result)
    assert result.records == [group_tombstone("another"), offset_tombstone("g", *T1)]


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    group = new_group(value_of("consumer", subscription("t")))
    commit(group, T0, 0)
    result, codes = deleted(group, T0, T1)
    assert not result.records
    assert codes == {"t": dict.fromkeys(range(2), Code.GROUP_SUBSCRIBED_TO_TOPIC)}


def test_a_group_has_hard_state_by_its_record_or_its_offsets() -> None:
    group = new_group()
    assert not group.has_hard_state
    group.metadata_value = b"record"
    assert group.has_hard_state
    group.metadata_value = None
    commit(group, T0, 0)
    assert group.has_hard_state
