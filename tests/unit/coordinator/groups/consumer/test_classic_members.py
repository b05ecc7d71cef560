"""Classic members in consumer groups, and groups that change their protocol (KIP-848, "Supporting
Online Consumer Group Upgrade"). The expected responses are those of Apache Kafka 4.3
(`a_group_changes_its_protocol`, `a_classic_member_among_consumers`).
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.group_host import GroupHost, GroupMember, subscription

from barnabas.coordinator.groups.classic.consumer_protocol import read_assignment, write_assignment
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.group_records import decode_group
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.protocol.errors import Code

SESSION_MS, REBALANCE_MS = 10_000, 3_000
LEAVE = -1
CONSUMER, CLASSIC = "consumer", "classic"


def new_host(
    policy: str = "bidirectional", classic: GroupSettings | None = None, **more: Any
) -> GroupHost:
    consumer_settings = ConsumerGroupSettings(
        assignment_interval_ms=0, migration_policy=policy, **more
    )
    return GroupHost(topics={"t": 4, "u": 2}, settings=classic, consumer_settings=consumer_settings)


def new_member(host: GroupHost, **join: Any) -> GroupMember:
    """A classic member that has joined but not synced."""
    member = GroupMember(host, topics=["t"], **join)
    if member.generation < 0:
        member.join()
    return member


def classic_group(host: GroupHost, *partitions: int, **join: Any) -> GroupMember:
    """Make a stable classic group with one member, which owns these partitions."""
    member = new_member(host, **join)
    assignment = write_assignment(0, {"t": list(partitions)} if partitions else {})
    assert member.sync({member.id: assignment}).error_code == Code.NONE
    return member


def parts(member: GroupMember) -> list[int]:
    """The partitions of t in the response to the member's SyncGroup."""
    answer = member.sync()
    assert answer.error_code == Code.NONE
    given = read_assignment(answer.assignment)
    assert given is not None
    return given.get("t", [])


def kind_and_state(host: GroupHost) -> tuple[str, str]:
    (row,) = host.call("ListGroups", 5).groups
    return row.group_type, row.group_state


# --- a classic member among consumers -----------------------------------------------------------


def test_a_classic_member_joins_a_consumer_group_gets_partitions_and_leaves() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    old = GroupMember(host, topics=["t"])
    answer = old.join()
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 3, "range")
    assert (answer.leader, answer.members, answer.protocol_type) == ("", [], "consumer")
    assert (old.heartbeat(), parts(old)) == (Code.NONE, [])
    reported = host.consumer_heartbeat("m", 2)
    kept = host.assigned(reported)
    assert kept is not None and len(kept["t"]) == 2
    assert old.heartbeat() == Code.NONE  # no partition is free yet
    assert host.consumer_heartbeat("m", 2, owned=kept).member_epoch == 3
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    assert old.join().generation_id == 3
    assert sorted(parts(old) + kept["t"]) == [0, 1, 2, 3]
    assert old.heartbeat() == Code.NONE
    types = {row.member_id: row.member_type for row in host.describe_consumer_group().members}
    assert types == {"m": 1, old.id: 0}
    assert old.leave().members[0].error_code == Code.NONE
    assert kind_and_state(host)[0] == CONSUMER
    assert host.assigned(host.consumer_heartbeat("m", 3)) == {"t": [0, 1, 2, 3]}


@pytest.mark.parametrize(
    ("join", "code"),
    [
        ({}, Code.MEMBER_ID_REQUIRED),
        ({"kind": "connect"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {}}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"range": b"x"}}, Code.MEMBER_ID_REQUIRED),
        ({"member": "known", "protocols": {"range": b"x"}}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"member": "x", "instance": "i"}, Code.UNKNOWN_MEMBER_ID),
        ({"session_ms": 1}, Code.INVALID_SESSION_TIMEOUT),
    ],
)
def test_invalid_joins_of_classic_members_are_refused(join: dict[str, Any], code: Code) -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    answer = host.join("g", **{"protocols": {"range": subscription("t")}, **join})
    assert answer.error_code == code


def test_classic_members_must_have_a_protocol_in_common() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    new_member(host)
    other = {"roundrobin": subscription("t")}
    assert host.join("g", "x", protocols=other).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    both = {**other, "range": subscription("t")}
    answer = host.join("g", "x", protocols=both)
    assert (answer.error_code, answer.protocol_name) == (Code.NONE, "roundrobin")


def test_a_classic_join_is_refused_by_a_full_group_or_the_policy() -> None:
    host = new_host(max_size=1)
    host.consumer_heartbeat("m")
    full = host.join("g", "x", protocols={"range": subscription("t")})
    assert full.error_code == Code.GROUP_MAX_SIZE_REACHED
    host = new_host("disabled")
    host.consumer_heartbeat("m")
    refused = host.join("g", "x", protocols={"range": subscription("t")})
    assert refused.error_code == Code.INCONSISTENT_GROUP_PROTOCOL


def test_classic_requests_of_a_consumer_are_refused_except_its_leave() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    assert host.heartbeat("g", 2, "m") == Code.UNKNOWN_MEMBER_ID
    assert host.sync("g", 2, "m").error_code == Code.UNKNOWN_MEMBER_ID
    assert host.leave("g", ("m", None), ("m", None)).members[1].error_code == 25
    assert host.consumer_heartbeat("m", 2).error_code == Code.UNKNOWN_MEMBER_ID


def test_generations_protocols_and_instances_are_checked() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    old = new_member(host, instance="i")
    assert old.heartbeat(old.generation + 1) == Code.ILLEGAL_GENERATION
    assert host.heartbeat("g", old.generation, "x", "i") == Code.FENCED_INSTANCE_ID
    assert host.heartbeat("g", old.generation, "x", "j") == Code.UNKNOWN_MEMBER_ID
    assert old.sync(kind="connect").error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert old.sync(protocol="sticky").error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    old.generation += 1
    assert old.sync().error_code == Code.ILLEGAL_GENERATION
    assert host.leave("g", ("", "i")).members[0].error_code == Code.NONE


def test_a_classic_member_that_sends_no_heartbeat_sync_or_join_in_time_is_removed() -> None:
    host = new_host()
    host.consumer_heartbeat("m", subscribed_topic_names=[])
    old = new_member(host)
    host.pass_time(REBALANCE_MS - 1)
    assert old.heartbeat() == Code.NONE
    host.pass_time(1)
    assert old.heartbeat() == Code.UNKNOWN_MEMBER_ID  # removed because it has not synced

    old = new_member(host)
    parts(old)
    host.pass_time(SESSION_MS - 1)
    assert old.heartbeat() == Code.NONE
    host.consumer_heartbeat("n")  # changes the assignment
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    host.pass_time(REBALANCE_MS - 1)
    assert old.sync().error_code == Code.REBALANCE_IN_PROGRESS
    host.pass_time(1)
    assert old.heartbeat() == Code.UNKNOWN_MEMBER_ID

    old = new_member(host)
    parts(old)
    host.pass_time(SESSION_MS)
    assert old.heartbeat() == Code.UNKNOWN_MEMBER_ID


def test_commits_of_a_classic_member_are_checked_by_its_generation() -> None:
    host = new_host()
    host.consumer_heartbeat("m", subscribed_topic_names=[])
    old = new_member(host)
    parts(old)
    assert old.commit({"t": {0: 1}}) == {("t", 0): Code.NONE}
    assert old.commit({"t": {0: 1}}, old.generation - 1) == {("t", 0): Code.ILLEGAL_GENERATION}


# --- a classic group becomes a consumer group ---------------------------------------------------


def test_a_consumer_joins_a_classic_group() -> None:
    host = new_host()
    old = classic_group(host, 0, 1, 2, 3)
    host.commit("g", {"t": {0: 5}}, generation=old.generation, member=old.id)
    answer = host.consumer_heartbeat("m")
    assert (answer.error_code, answer.member_epoch, host.assigned(answer)) == (0, 2, {})
    assert kind_and_state(host) == (CONSUMER, "Reconciling")
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    joined = old.join()
    assert (joined.generation_id, joined.protocol_name) == (2, "range")
    mine = parts(old)
    given = host.assigned(host.consumer_heartbeat("m", 2))
    assert given is not None and len(mine) == 2
    assert sorted(mine + given["t"]) == [0, 1, 2, 3]
    assert host.fetch("g") == {("t", 0): (5, "")}


def test_waiting_joins_are_answered_when_the_group_becomes_one_of_consumers() -> None:
    host = new_host()
    old = classic_group(host, 0)
    waiting = host.join_later("g", "", protocols={"range": subscription("t")}, version=3)
    assert waiting in host.waiting()
    assert host.consumer_heartbeat("m").error_code == Code.NONE
    assert host.answers[waiting].error_code == Code.REBALANCE_IN_PROGRESS
    host.pass_time(SESSION_MS)
    assert old.heartbeat() == Code.UNKNOWN_MEMBER_ID  # its session has timed out
    assert host.waiting() == []


def test_a_group_becomes_one_of_consumers_in_its_first_rebalance() -> None:
    """The generation is 0 until the first rebalance ends. As an epoch, 0 would mean that the member
    joins, so the host checks that no member has it.
    """
    host = new_host(classic=GroupSettings(initial_rebalance_delay_ms=3_000))
    waiting = host.join_later("g", "", protocols={"range": subscription("t")}, version=3)
    answer = host.consumer_heartbeat("m")
    assert (answer.error_code, answer.member_epoch) == (Code.NONE, 2)
    assert host.answers[waiting].error_code == Code.REBALANCE_IN_PROGRESS
    assert kind_and_state(host)[0] == CONSUMER


@pytest.mark.parametrize(
    ("settings", "join"),
    [
        ({"policy": "disabled"}, {}),
        ({"policy": "downgrade"}, {}),
        ({"max_size": 0}, {}),
        ({}, {"kind": "connect"}),
        ({}, {"protocols": {"range": b"x"}}),
    ],
)
def test_some_classic_groups_cannot_become_groups_of_consumers(
    settings: dict[str, Any], join: dict[str, Any]
) -> None:
    host = new_host(**settings)
    classic_group(host, 0, **join)
    before = len(host.log)
    assert host.consumer_heartbeat("m").error_code == Code.GROUP_ID_NOT_FOUND
    assert (len(host.log), kind_and_state(host)) == (before, (CLASSIC, "Stable"))


def test_assignments_that_cannot_be_read_keep_a_group_classic() -> None:
    host = new_host()
    member = new_member(host)
    member.sync({member.id: b"mine"})
    assert host.consumer_heartbeat("m").error_code == Code.GROUP_ID_NOT_FOUND


def test_an_empty_group_is_replaced_by_either_kind_whatever_the_policy() -> None:
    host = new_host("disabled")
    old = classic_group(host, 0)
    old.leave()
    assert host.consumer_heartbeat("m").member_epoch == 2
    assert kind_and_state(host) == (CONSUMER, "Stable")
    host.consumer_heartbeat("m", LEAVE)
    classic_group(host, 0)
    assert kind_and_state(host) == (CLASSIC, "Stable")


def test_a_static_member_that_changes_protocol_with_its_id_need_not_join_again() -> None:
    host = new_host()
    host.consumer_heartbeat("n")
    old = new_member(host, instance="i")
    parts(old)
    host.consumer_heartbeat("n", 2, owned={})
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    epoch = host.consumer_heartbeat(old.id, instance_id="i").member_epoch
    host.pass_time(REBALANCE_MS + 1)
    assert host.consumer_heartbeat(old.id, epoch, instance_id="i").error_code == Code.NONE


# --- and back -----------------------------------------------------------------------------------


def test_a_group_becomes_classic_when_its_last_consumer_leaves() -> None:
    host = new_host()
    old = classic_group(host, 0, 1, 2, 3)
    host.consumer_heartbeat("m")
    old.join()
    mine = parts(old)
    assert len(mine) == 2
    assert host.consumer_heartbeat("m", LEAVE).member_epoch == -1
    assert kind_and_state(host) == (CLASSIC, "PreparingRebalance")
    assert host.describe_consumer_group().error_code == Code.GROUP_ID_NOT_FOUND
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    member = host.describe("g").members[0]
    assert read_assignment(member.member_assignment) == {"t": mine}
    answer = old.join()
    assert (answer.error_code, answer.leader, answer.generation_id) == (0, old.id, 3)
    assert old.sync({old.id: b"x"}).error_code == Code.NONE


def test_a_group_becomes_classic_when_its_last_consumer_times_out() -> None:
    host = new_host()
    old = classic_group(host, 0)
    host.consumer_heartbeat("m")
    for _ in range(9):
        old.join()
        parts(old)
        host.pass_time(5_000)
    assert kind_and_state(host) == (CLASSIC, "PreparingRebalance")
    host.restart()
    assert kind_and_state(host) == (CLASSIC, "PreparingRebalance")
    assert old.join().error_code == Code.NONE
    old.sync({old.id: b"x"})
    host.restart()
    assert kind_and_state(host) == (CLASSIC, "Stable")


def test_a_consumer_that_returns_immediately_gets_no_partition_that_is_still_owned() -> None:
    """If the classic assignment became the target assignment, `n` would get partitions that `old`
    still owns.
    """
    host = new_host()
    old = classic_group(host, 0, 1, 2, 3)
    host.consumer_heartbeat("m")
    host.consumer_heartbeat("m", LEAVE)
    assert host.assigned(host.consumer_heartbeat("n")) == {}
    assert old.heartbeat() == Code.ILLEGAL_GENERATION  # the group has a later generation


@pytest.mark.parametrize("policy", ["upgrade", "too many"])
def test_a_group_with_another_policy_or_too_many_members_does_not_become_classic(
    policy: str,
) -> None:
    if policy == "upgrade":
        host = new_host("upgrade")
        members = [classic_group(host, 0)]
    else:
        host = new_host(classic=GroupSettings(max_size=1))
        host.consumer_heartbeat("m")
        members = [new_member(host), new_member(host)]
    host.consumer_heartbeat("m")
    members[0].join()
    host.consumer_heartbeat("m", LEAVE)
    assert kind_and_state(host)[0] == CONSUMER


def test_classic_members_get_the_partitions_of_the_last_consumer() -> None:
    """The group has no consumer left whose heartbeat would compute an assignment. After the
    assignment interval, the heartbeats of classic members make them join again.
    """
    host = GroupHost(
        topics={"t": 4},
        consumer_settings=ConsumerGroupSettings(
            assignment_interval_ms=1000, migration_policy="upgrade"
        ),
    )
    old = classic_group(host, 0, 1, 2, 3)
    host.consumer_heartbeat("m")  # computes an assignment
    old.join()
    assert len(parts(old)) == 2
    host.consumer_heartbeat("m", LEAVE)
    host.pass_time(999)
    assert old.heartbeat() == Code.NONE
    host.pass_time(1)
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    old.join()
    assert parts(old) == [0, 1, 2, 3]
    assert old.heartbeat() == Code.NONE


@pytest.mark.parametrize(
    ("change", "assigned"),
    [({"t": 3}, {"t": [0, 1, 2]}), ({"u": 1}, {"t": [0, 1], "u": [0]}), ({"t": 0}, {})],
    ids=["grows", "is created", "is deleted"],
)
def test_classic_members_without_consumers_join_again_when_their_topics_change(
    change: dict[str, int], assigned: dict[str, list[int]]
) -> None:
    """In a classic group, the leader would notice the change, but this group has no leader. All
    heartbeats get REBALANCE_IN_PROGRESS until a member has joined again. A change of other topics
    has no effect.
    """
    host = GroupHost(
        topics={"t": 2, "v": 1},
        consumer_settings=ConsumerGroupSettings(
            assignment_interval_ms=1000, migration_policy="upgrade"
        ),
    )
    host.consumer_heartbeat("m")
    members = [GroupMember(host, topics=["t", "u"]) for _ in range(2)]
    for member in members:
        member.join()
    host.consumer_heartbeat("m", LEAVE)
    host.pass_time(1000)
    for member in members:
        member.join()
        member.sync()
    host.pass_time(1000)
    host.topics["v"] = 4
    assert [member.heartbeat() for member in members] == [Code.NONE, Code.NONE]
    for name, count in change.items():
        host.topics[name] = count
        if not count:
            del host.topics[name]
    both = [Code.REBALANCE_IN_PROGRESS] * 2
    assert [member.heartbeat() for member in members] == both
    assert [member.heartbeat() for member in members] == both
    given: dict[str, list[int]] = {}
    for _ in range(2):
        for member in members:
            member.join()
    for member in members:
        read = read_assignment(member.sync().assignment)
        assert read is not None
        for name, numbers in read.items():
            given[name] = sorted([*given.get(name, []), *numbers])
    assert given == assigned
    assert [member.heartbeat() for member in members] == [Code.NONE, Code.NONE]


def test_only_the_heartbeat_of_a_consumer_notices_changed_topics() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    old = new_member(host)
    kept = host.assigned(host.consumer_heartbeat("m", 2))
    host.consumer_heartbeat("m", 2, owned=kept)
    old.join()
    assert len(parts(old)) == 2
    host.topics["t"] = 6
    assert old.heartbeat() == Code.NONE
    host.consumer_heartbeat("m", 3)
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    old.join()
    assert len(parts(old)) == 3


def test_a_static_member_can_change_to_the_classic_protocol() -> None:
    """The static member may join even while its predecessor is in the group. The predecessor must
    leave first only if both use the consumer protocol, as in Apache Kafka 4.3.
    """
    host = new_host()
    host.consumer_heartbeat("m", instance_id="i")
    host.consumer_heartbeat("n")
    answer = host.join("g", instance="i", protocols={"range": subscription("t")})
    assert (answer.error_code, answer.generation_id) == (Code.NONE, 3)
    assert kind_and_state(host)[0] == CONSUMER
    assert host.consumer_heartbeat("m", 2, instance_id="i").error_code == Code.FENCED_INSTANCE_ID


def test_a_group_becomes_classic_when_its_last_static_consumer_joins_as_classic() -> None:
    host = new_host()
    host.consumer_heartbeat("m", instance_id="i")
    old = new_member(host)
    parts(old)
    later = host.join_later("g", instance="i", protocols={"range": subscription("t")})
    assert kind_and_state(host) == (CLASSIC, "PreparingRebalance")
    assert later in host.waiting(), "for the other to join again"
    old.join_later()
    assert host.answers[later].error_code == Code.NONE


def test_a_static_member_can_change_to_the_consumer_protocol() -> None:
    host = new_host()
    host.consumer_heartbeat("n", subscribed_topic_names=[])
    old = new_member(host, instance="i")
    parts(old)
    answer = host.consumer_heartbeat("m", instance_id="i")
    assert (answer.error_code, host.assigned(answer)) == (Code.NONE, {"t": [0, 1, 2, 3]})
    assert old.heartbeat() == Code.FENCED_INSTANCE_ID


@pytest.mark.parametrize("has_to_join", [False, True])
def test_a_member_that_changes_to_the_consumer_protocol_need_not_sync_or_join_again(
    has_to_join: bool,
) -> None:
    """A classic member has timers for its next SyncGroup or JoinGroup. When it sends a heartbeat of
    the consumer protocol instead, these timers must not remove it.
    """
    host = new_host()
    host.consumer_heartbeat("n")
    old = new_member(host)
    if has_to_join:
        parts(old)
        host.consumer_heartbeat("n", 2, owned={})
        assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    epoch = host.consumer_heartbeat(old.id).member_epoch
    host.pass_time(REBALANCE_MS + 1)
    assert host.consumer_heartbeat(old.id, epoch).error_code == Code.NONE


def test_a_group_that_became_classic_waits_for_its_members_rebalance_timeout() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    first, second = new_member(host), new_member(host)
    host.consumer_heartbeat("m", LEAVE)
    assert kind_and_state(host) == (CLASSIC, "PreparingRebalance")
    assert {row.member_id for row in host.describe("g").members} == {first.id, second.id}
    ticket = first.join_later()
    host.pass_time(REBALANCE_MS - 1)
    assert ticket in host.waiting()
    host.pass_time(1)
    answer = host.answers[ticket]
    assert (answer.error_code, [row.member_id for row in answer.members]) == (0, [first.id])


def test_a_deleted_consumer_group_leaves_no_state() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    host.consumer_heartbeat("m", LEAVE)
    assert kind_and_state(host) == (CONSUMER, "Empty")
    answer = host.call("DeleteGroups", 2, groups_names=["g"])
    assert [row.error_code for row in answer.results] == [Code.NONE]
    assert host.call("ListGroups", 5).groups == []
    assert host.coordinator._groups == {}, "names that are used once would pile up"


def test_after_a_restart_a_classic_member_has_time_to_learn_of_its_revocation() -> None:
    """The response to the member's next heartbeat requests the revocation. The rebalance timeout
    starts at that point.
    """
    host = new_host()
    host.consumer_heartbeat("m")
    host.consumer_heartbeat("m", LEAVE)
    old = classic_group(host, 0, 1, 2, 3)
    host.consumer_heartbeat("m")
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    host.restart()
    host.pass_time(REBALANCE_MS + 1)
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS


def test_timers_of_a_member_that_left_do_not_affect_a_later_member_with_its_id() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    assert host.join("g", "x", protocols={"range": subscription("t")}).error_code == Code.NONE
    assert host.leave("g", ("x", None)).members[0].error_code == Code.NONE
    epoch = host.consumer_heartbeat("x").member_epoch
    host.pass_time(2 * REBALANCE_MS)
    assert host.consumer_heartbeat("x", epoch).error_code == Code.NONE


# --- the rules of a classic member among consumers -----------------------------------------------


def test_an_id_is_required_from_version_4_on() -> None:
    for version, code in ((3, Code.NONE), (4, Code.MEMBER_ID_REQUIRED)):
        host = new_host()
        host.consumer_heartbeat("m")
        answer = host.join("g", protocols={"range": subscription("t")}, version=version)
        assert answer.error_code == code


def test_a_repeated_join_without_changes_writes_nothing() -> None:
    host = new_host(max_size=2)
    host.consumer_heartbeat("m")
    old = new_member(host)
    parts(old)
    before, generation = len(host.log), old.generation
    answer = old.join()
    assert (answer.error_code, answer.generation_id) == (Code.NONE, generation)
    assert len(host.log) == before


def test_a_member_may_join_again_with_other_protocols() -> None:
    """The group has no other classic member, so the member needs no protocol in common with one."""
    host = new_host()
    host.consumer_heartbeat("m")
    old = new_member(host)
    assert old.join(protocols={"roundrobin": subscription("t")}).error_code == Code.NONE


def test_a_static_member_can_change_to_the_classic_protocol_with_any_policy() -> None:
    host = new_host("disabled")
    host.consumer_heartbeat("m", instance_id="i")
    host.consumer_heartbeat("n")
    join = {"protocols": {"range": subscription("t")}}
    assert host.join("g", instance="i", **join).error_code == Code.NONE
    assert host.join("g", "x", **join).error_code == Code.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("join", [{"instance": "i"}, {"version": 3}])
def test_a_join_with_an_unreadable_subscription_is_refused(join: dict[str, Any]) -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    answer = host.join("g", **join, protocols={"range": b"x"})
    assert answer.error_code == Code.INCONSISTENT_GROUP_PROTOCOL


def test_a_session_begins_with_the_join_and_is_extended_by_the_sync() -> None:
    host = new_host()
    host.consumer_heartbeat("m", subscribed_topic_names=[])
    old = new_member(host, rebalance_ms=60_000)
    host.pass_time(SESSION_MS)
    assert old.heartbeat() == Code.UNKNOWN_MEMBER_ID
    old = new_member(host)
    host.pass_time(REBALANCE_MS - 1)
    parts(old)
    host.pass_time(SESSION_MS - 1)
    assert old.heartbeat() == Code.NONE


def test_a_member_that_joined_again_in_time_is_not_removed() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    old = new_member(host)
    parts(old)
    host.consumer_heartbeat("m", 2, owned={})
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    old.join()
    parts(old)
    host.pass_time(REBALANCE_MS + 1)
    assert old.heartbeat() == Code.NONE


def test_a_sync_with_rebalance_in_progress_starts_the_rebalance_timeout() -> None:
    host = new_host()
    host.consumer_heartbeat("m", subscribed_topic_names=[])
    old = new_member(host)
    parts(old)
    host.consumer_heartbeat("n")
    assert old.sync().error_code == Code.REBALANCE_IN_PROGRESS
    host.pass_time(REBALANCE_MS)
    assert old.heartbeat() == Code.UNKNOWN_MEMBER_ID


def later_subscription(*topics: str) -> bytes:
    """A subscription of version 1, in which the owned partitions are the last field."""
    return b"\0\1" + subscription(*topics)[2:] + bytes(4)


def test_an_assignment_has_the_version_of_the_members_subscription() -> None:
    """Old versions of SyncGroup do not name a protocol. A group that becomes classic keeps the
    version of the subscription.
    """
    host = new_host()
    host.consumer_heartbeat("m")
    answer = host.join("g", "x", protocols={"range": later_subscription("t")})
    synced = host.sync("g", answer.generation_id, "x", kind=None, protocol=None, version=3)
    assert (synced.error_code, synced.assignment[:2]) == (Code.NONE, b"\0\1")
    host.consumer_heartbeat("m", LEAVE)
    assert kind_and_state(host)[0] == CLASSIC
    assert host.describe("g").members[0].member_assignment[:2] == b"\0\1"


def cooperative(*owned: int) -> bytes:
    """A subscription to "t" in version 1, from a member that owns these partitions."""
    return b"\0\1" + subscription("t")[2:] + write_assignment(0, {"t": list(owned)})[2:-4]


def test_a_cooperative_member_gives_partitions_up_after_it_has_its_smaller_assignment() -> None:
    """The member joins with all its partitions, and learns from the assignment which of them it
    loses.
    """
    host = new_host()
    old = classic_group(host, 0, 1, 2, 3)
    host.consumer_heartbeat("m")
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    old.join(protocols={"range": cooperative(0, 1, 2, 3)})
    kept = parts(old)
    assert len(kept) == 2
    assert host.assigned(host.consumer_heartbeat("m", 2)) is None, "these are still owned"
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS
    old.join(protocols={"range": cooperative(*kept)})
    assert (parts(old), old.heartbeat()) == (kept, Code.NONE)
    given = host.assigned(host.consumer_heartbeat("m", 2))
    assert given is not None and sorted(given["t"] + kept) == [0, 1, 2, 3]


def test_a_full_group_takes_back_its_static_members_and_takes_no_others() -> None:
    host = new_host(max_size=2)
    host.consumer_heartbeat("m")
    former = new_member(host, instance="i")
    again = host.join("g", instance="i", protocols={"range": subscription("t")})
    assert again.error_code == Code.NONE and again.member_id != former.id
    other = host.join("g", instance="j", protocols={"range": subscription("t")})
    assert other.error_code == Code.GROUP_MAX_SIZE_REACHED


def test_leave_checks_member_id_and_instance_id() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    old = new_member(host, instance="i")
    epoch = host.describe_consumer_group().group_epoch
    codes = [row.error_code for row in host.leave("g", ("x", "i"), ("x", None), ("", "j")).members]
    assert codes == [Code.FENCED_INSTANCE_ID, Code.UNKNOWN_MEMBER_ID, Code.UNKNOWN_MEMBER_ID]
    assert host.describe_consumer_group().group_epoch == epoch
    assert host.leave("g", (old.id, "i")).members[0].error_code == Code.NONE


def test_in_the_preview_of_3_9_consumers_cannot_use_leave_group() -> None:
    host = new_host(is_preview=True)
    host.consumer_heartbeat("m")
    old = new_member(host)
    codes = [row.error_code for row in host.leave("g", ("m", None), (old.id, None)).members]
    assert codes == [Code.UNKNOWN_MEMBER_ID, Code.NONE]


# --- the records of a conversion ---------------------------------------------------------------


def test_a_conversion_writes_the_records_of_a_consumer_group_and_a_tombstone() -> None:
    """The conversion removes the record of the classic group. The assignment omits topics of which
    the member has no partition.
    """
    host = new_host()
    old = new_member(host)
    old.sync({old.id: write_assignment(0, {"t": [0, 1], "u": []})})
    before = len(host.log)
    host.consumer_heartbeat("m")
    written = [(row[1][1], row[2] is None) for row in host.log[before:] if row[1] is not None]
    # For each record: the type in its key, and whether it is a tombstone.
    assert written[:6] == [(2, True), (5, False), (3, False), (7, False), (6, False), (8, False)]
    group = host.coordinator.group("g")
    assert group.classic.members == {}
    assert [sorted(row) for row in group.modern.currents[old.id].assigned.values()] == [[0, 1]]


def test_the_session_of_a_classic_member_continues_over_a_conversion() -> None:
    host = new_host()
    old = classic_group(host, 0)
    host.consumer_heartbeat("m")
    host.pass_time(SESSION_MS - 1)
    assert old.heartbeat() == Code.REBALANCE_IN_PROGRESS


def test_a_full_classic_group_refuses_a_consumer_and_stays_classic() -> None:
    host = new_host(max_size=1)
    classic_group(host, 0)
    assert host.consumer_heartbeat("m").error_code == Code.GROUP_MAX_SIZE_REACHED
    assert kind_and_state(host) == (CLASSIC, "Stable")


def test_a_group_becomes_classic_with_the_maximum_number_of_members() -> None:
    host = new_host(classic=GroupSettings(max_size=2))
    host.consumer_heartbeat("m")
    new_member(host), new_member(host)
    host.consumer_heartbeat("m", LEAVE)
    assert kind_and_state(host)[0] == CLASSIC


def test_a_group_stays_one_of_consumers_while_it_has_a_consumer() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    host.consumer_heartbeat("n")
    new_member(host)
    host.consumer_heartbeat("m", LEAVE)
    assert kind_and_state(host)[0] == CONSUMER


def test_a_group_that_becomes_classic_has_the_protocols_of_its_members() -> None:
    """The group selects the first protocol that all members support. A new member may support any
    of the common protocols.
    """
    host = new_host()
    host.consumer_heartbeat("m")
    row = subscription("t")
    both = {"range": row, "roundrobin": row, "sticky": row}
    assert host.join("g", "x", protocols=both).error_code == Code.NONE
    some = {"sticky": row, "roundrobin": row}
    assert host.join("g", "y", protocols=some).error_code == Code.NONE
    host.consumer_heartbeat("m", LEAVE)
    classic = host.coordinator.group("g").classic
    assert classic.rebalance.protocol_name == "roundrobin"
    refused = host.join("g", "", protocols={"range": row}, version=3)
    assert refused.error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    ticket = host.join_later("g", "", protocols={"sticky": row}, version=3)
    assert ticket in host.waiting()


@pytest.mark.parametrize("then", ["becomes classic", "is replaced"])
def test_patterns_are_not_resolved_for_a_group_that_became_classic(
    then: str,
) -> None:
    """A member with a topic pattern leaves before the pattern is resolved, and the group becomes
    classic. The timer for the pattern must then do nothing.
    """
    host = new_host()
    host.consumer_heartbeat("m", subscribed_topic_regex="t")
    if then == "becomes classic":
        new_member(host)
    host.consumer_heartbeat("m", LEAVE)
    if then == "is replaced":
        new_member(host)
    assert kind_and_state(host)[0] == CLASSIC
    host.pass_time(1)
    assert kind_and_state(host)[0] == CLASSIC


def test_timers_of_members_end_with_the_consumer_group() -> None:
    """A member that has joined but not synced has a timer. The timer must end when the group
    becomes classic, since it would remove the member.
    """
    host = new_host()
    host.consumer_heartbeat("m")
    old = new_member(host, session_ms=60_000)
    host.consumer_heartbeat("m", LEAVE)
    old.join()
    old.sync({old.id: b"x"})
    host.pass_time(2 * REBALANCE_MS)
    assert old.heartbeat() == Code.NONE


def test_a_conversion_to_classic_is_recorded_with_the_wall_clock_time() -> None:
    """Tools show this time, and Apache Kafka uses it to compute the retention of offsets."""
    host = new_host()
    host.wall_ahead_ms = 5_000
    host.consumer_heartbeat("m")
    new_member(host)
    host.consumer_heartbeat("m", LEAVE)
    value = host.coordinator.group("g").metadata_value
    assert value is not None
    assert decode_group(value).state_timestamp_ms == host.now_ms + 5_000


def test_a_waiting_sync_is_answered_when_the_group_becomes_one_of_consumers() -> None:
    host = new_host()
    leader = classic_group(host, 0)
    follower = GroupMember(host, topics=["t"])
    ticket = follower.join_later()
    leader.join()
    follower.took(host.answers[ticket])
    waiting = follower.sync_later()
    assert waiting in host.waiting()
    assert host.consumer_heartbeat("m").error_code == Code.NONE
    assert host.answers[waiting].error_code == Code.REBALANCE_IN_PROGRESS


def test_a_converted_member_has_the_subscription_of_the_groups_protocol() -> None:
    host = new_host()
    both = {"range": subscription("t"), "roundrobin": subscription("u")}
    first = GroupMember(host, topics=["t"], protocols=both)
    first.join()
    second = host.join_later("g", "", protocols={"roundrobin": subscription("u")}, version=3)
    first.join()
    assert host.answers[second].protocol_name == "roundrobin"
    assert host.consumer_heartbeat("m").error_code == Code.NONE
    members = host.coordinator.group("g").modern.members
    assert members[first.id].subscribed_topic_names == ("u",)
