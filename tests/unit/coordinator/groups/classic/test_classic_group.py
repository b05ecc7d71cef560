"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, with the responses of Apache Kafka 3.9 at each
step.
"""

from typing import Any

import pytest
from helpers.group_host import PARKED, GroupHost, GroupMember, alone, pair, subscription
from helpers.our_messages import NO_OPERATIONS

from barnabas.coordinator.groups.classic.classic_group import ClassicGroup
from barnabas.coordinator.groups.group_records import (
    GroupMetadataValue,
    MemberMetadata,
    decode_group,
    encode_group_key,
    group_record,
)
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_timers import JOIN, SYNC, TimerKey
from barnabas.coordinator.result import Result
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code
from barnabas.protocol.wall_clock import WallClock

SUB = {"range": b"sub"}


def joined(answer: Any) -> tuple[Any, ...]:
    """The fields of a successful JoinGroup response: (generation, protocol, leader, member id,
    [(member id, instance, metadata)]).
    """
    assert (
        answer is not PARKED
        and answer.error_code == Code.NONE
        and answer.protocol_type == "consumer"
    )
    members = [(one.member_id, one.group_instance_id, one.metadata) for one in answer.members]
    return answer.generation_id, answer.protocol_name, answer.leader, answer.member_id, members


def refused(answer: Any) -> tuple[int, str]:
    """The (code, member id) of a refused JoinGroup response, whose other fields must be empty."""
    assert (answer.generation_id, answer.leader, answer.members, answer.protocol_name) == (
        -1,
        "",
        [],
        None,
    )
    assert answer.protocol_type is None
    return answer.error_code, answer.member_id


def synced(answer: Any) -> Any:
    """The assignment in a SyncGroup response. If the request was refused, the error code; all other
    fields must then be empty.
    """
    if answer is PARKED:
        return PARKED
    if answer.error_code == Code.NONE:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
        return answer.assignment
    assert (answer.protocol_type, answer.protocol_name, answer.assignment) == (None, None, b"")
    return answer.error_code


def left(answer: Any) -> Any:
    """The (code, [(member id, instance, code)]) of a LeaveGroup response."""
    return answer.error_code, [
        (one.member_id, one.group_instance_id, one.error_code) for one in answer.members
    ]


def described(host: GroupHost, group: str = "g") -> Any:
    """The (state, protocol, {member id: (instance, metadata, assignment)}) of a group."""
    answer = host.describe(group)
    assert (answer.error_code, answer.authorized_operations) == (Code.NONE, NO_OPERATIONS)
    assert all(
        (one.client_id, one.client_host) == ("client", "/192.0.2.7") for one in answer.members
    )
    members = {
        one.member_id: (one.group_instance_id, one.member_metadata, one.member_assignment)
        for one in answer.members
    }
    return answer.group_state, answer.protocol_data, members


def test_joining_alone():
    host = GroupHost()
    assert refused(host.join()) == (Code.MEMBER_ID_REQUIRED, "client-1")
    first = (1, "range", "client-1", "client-1", [("client-1", None, b"sub")])
    assert joined(host.join("g", "client-1")) == first
    assert joined(host.join("g", "client-1")) == first, "unchanged, before the assignment"
    assert synced(host.sync("g", 1, "client-1", {"client-1": b"all"})) == b"all"
    assert synced(host.sync("g", 1, "client-1", {"client-1": b"other"})) == b"all"
    assert described(host) == ("Stable", "range", {"client-1": (None, b"sub", b"all")})
    assert joined(host.join("g", "client-1"))[0] == 2, "the leader begins a rebalance"
    assert described(host) == ("CompletingRebalance", "", {"client-1": (None, b"", b"all")})
    changed = host.join("g", "client-1", protocols={"range": subscription()})
    assert joined(changed) == (
        3,
        "range",
        "client-1",
        "client-1",
        [("client-1", None, subscription())],
    )
    assert synced(host.sync("g", 2, "client-1")) == Code.ILLEGAL_GENERATION
    assert synced(host.sync("g", 3, "client-1")) == b""


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_join_without_an_id_is_accepted(version):
    answer = GroupHost().join(version=version)
    members = [(one.member_id, one.metadata) for one in answer.members]
    assert (answer.error_code, answer.generation_id, answer.leader, answer.protocol_name) == (
        Code.NONE,
        1,
        "client-1",
        "range",
    )
    assert (answer.member_id, members) == ("client-1", [("client-1", b"sub")])


@pytest.mark.parametrize("version", range(4, 10))
def test_from_version_4_on_an_id_is_given_first(version):
    """KIP-394."""
    host = GroupHost()
    answer = host.join(version=version)
    assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (
        Code.MEMBER_ID_REQUIRED,
        -1,
        "",
        [],
    )
    assert answer.member_id == "client-1"
    assert answer.protocol_name == (None if version >= 7 else "")
    assert host.state("g") == "Empty"


@pytest.mark.parametrize(("version", "waits_ms"), [(0, 6_000), (1, 1_000)])
def test_before_version_1_the_session_timeout_is_also_the_rebalance_timeout(version, waits_ms):
    host = GroupHost()
    slow = host.join(version=version, session_ms=6_000, rebalance_ms=1_000).member_id
    host.sync("g", 1, slow, {}, version=0)
    host.pass_time(10)
    assert host.heartbeat("g", 1, slow) == Code.NONE
    ticket = host.join_later(version=version, session_ms=6_000, rebalance_ms=1_000)
    host.pass_time(waits_ms - 1)
    assert ticket in host.waiting()
    host.pass_time(1)
    assert ticket in host.answers


def test_joins_that_are_refused():
    host = GroupHost()
    assert refused(host.join(session_ms=1)) == (Code.INVALID_SESSION_TIMEOUT, "")
    assert refused(host.join(session_ms=3_600_000)) == (Code.INVALID_SESSION_TIMEOUT, "")
    assert refused(host.join("")) == (Code.INVALID_GROUP_ID, "")
    assert refused(host.join("g", "absent")) == (Code.UNKNOWN_MEMBER_ID, "absent")
    assert refused(host.join(protocols={})) == (Code.INCONSISTENT_GROUP_PROTOCOL, "")
    assert refused(host.join(kind="")) == (Code.INCONSISTENT_GROUP_PROTOCOL, "")
    assert host.state("g") == "Dead", "the refused requests created no group"
    member = alone(host)
    assert refused(host.join("g", "absent")) == (Code.UNKNOWN_MEMBER_ID, "absent")
    assert refused(host.join(kind="connect")) == (Code.INCONSISTENT_GROUP_PROTOCOL, "")
    assert refused(host.join(protocols={"roundrobin": b"sub"})) == (
        Code.INCONSISTENT_GROUP_PROTOCOL,
        "",
    )
    assert refused(host.join(protocols={})) == (Code.INCONSISTENT_GROUP_PROTOCOL, "")
    old = host.join(kind="connect", version=3)
    assert (old.error_code, old.member_id, old.protocol_name) == (
        Code.INCONSISTENT_GROUP_PROTOCOL,
        "",
        "",
    )
    assert refused(member.join(protocols={"roundrobin": b"sub"})) == (
        Code.INCONSISTENT_GROUP_PROTOCOL,
        member.id,
    )


@pytest.mark.parametrize(
    ("session_ms", "code"), [(5_999, 26), (6_000, 79), (1_800_000, 79), (1_800_001, 26)]
)
def test_session_timeouts_have_bounds(session_ms, code):
    assert GroupHost().join(session_ms=session_ms).error_code == code


def test_two_members():
    """When a second member joins, a rebalance begins, and both members sync. Later, members join
    again with unchanged and with changed metadata, and the test checks which of them begins a
    rebalance.
    """
    host = GroupHost()
    leader = alone(host, data=b"leader")
    follower = GroupMember(host, data=b"follower")
    assert leader.heartbeat() == Code.NONE, "the id alone begins nothing"
    ticket = follower.join_later()
    assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS
    preparing = {leader.id: (None, b"", b"all"), follower.id: (None, b"", b"")}
    assert described(host) == ("PreparingRebalance", "", preparing)
    assert leader.commit({"t": {0: 1}}) == {("t", 0): Code.NONE}
    assert synced(leader.sync()) == Code.REBALANCE_IN_PROGRESS
    everyone = [
        (leader.id, None, subscription(data=b"leader")),
        (follower.id, None, subscription(data=b"follower")),
    ]
    assert joined(leader.join()) == (2, "range", leader.id, leader.id, everyone)
    assert joined(follower.took(host.answers[ticket])) == (2, "range", leader.id, follower.id, [])
    assert described(host) == ("CompletingRebalance", "", preparing)
    assert (follower.heartbeat(), leader.heartbeat()) == (Code.NONE, Code.NONE)
    ticket = follower.sync_later()
    assert ticket in host.waiting()
    assert synced(leader.sync({leader.id: b"leader's", follower.id: b"follower's"})) == b"leader's"
    assert synced(host.answers[ticket]) == b"follower's"
    assert (follower.heartbeat(), leader.heartbeat()) == (Code.NONE, Code.NONE)
    stable = {
        leader.id: (None, subscription(data=b"leader"), b"leader's"),
        follower.id: (None, subscription(data=b"follower"), b"follower's"),
    }
    assert described(host) == ("Stable", "range", stable)
    assert joined(follower.join()) == (2, "range", leader.id, follower.id, []), (
        "unchanged: nothing happens"
    )
    assert synced(follower.sync()) == b"follower's"
    ticket = follower.join_later(protocols={"range": subscription(data=b"changed")})
    assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS
    everyone[1] = (follower.id, None, subscription(data=b"changed"))
    assert joined(leader.join()) == (3, "range", leader.id, leader.id, everyone)
    assert joined(follower.took(host.answers[ticket])) == (3, "range", leader.id, follower.id, [])
    assert joined(leader.join()) == (3, "range", leader.id, leader.id, everyone), (
        "unchanged, before the assignment"
    )
    ticket = follower.join_later()
    assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS, "changed, before the assignment"
    everyone[1] = (follower.id, None, subscription(data=b"follower"))
    assert joined(leader.join()) == (4, "range", leader.id, leader.id, everyone)
    assert joined(host.answers[ticket]) == (4, "range", leader.id, follower.id, [])


def test_the_leader_joins_again():
    host = GroupHost()
    leader, follower = pair(host)
    ticket = leader.join_later()
    assert follower.heartbeat() == Code.REBALANCE_IN_PROGRESS, (
        "the leader's join begins a rebalance although its subscription is unchanged"
    )
    assert joined(follower.join())[0] == 3
    assert joined(leader.took(host.answers[ticket]))[0] == 3
    assert synced(follower.sync({follower.id: b"mine"})) is PARKED, (
        "an assignment in a follower's SyncGroup is ignored"
    )
    leader.sync({follower.id: b"the leader's"})
    assert synced(follower.sync()) == b"the leader's"


def test_missing_assignments_are_empty():
    host = GroupHost()
    leader, follower = GroupMember(host), GroupMember(host)
    leader.join()
    ticket = follower.join_later()
    leader.join()
    follower.took(host.answers[ticket])
    assert synced(leader.sync({leader.id: b"all", "stranger": b"x"})) == b"all"
    assert synced(follower.sync()) == b""
    assert set(described(host)[2]) == {leader.id, follower.id}


def test_syncs_that_are_refused():
    host = GroupHost()
    assert synced(host.sync("g", 1, "absent")) == Code.UNKNOWN_MEMBER_ID
    assert synced(host.sync("", 1, "absent")) == Code.INVALID_GROUP_ID
    for version, code in ((4, Code.UNKNOWN_MEMBER_ID), (5, Code.INCONSISTENT_GROUP_PROTOCOL)):
        answer = host.sync("g", 1, "absent", kind=None, protocol=None, version=version)
        assert synced(answer) == code, "from version 5 on a request has a protocol"
    member = GroupMember(host)
    assert synced(host.sync("g", 0, member.id)) == Code.UNKNOWN_MEMBER_ID, (
        "the member has an id but has not joined"
    )
    member.join()
    assert synced(host.sync("g", 0, member.id)) == Code.ILLEGAL_GENERATION
    assert synced(host.sync("g", 2, member.id)) == Code.ILLEGAL_GENERATION
    assert synced(host.sync("g", 1, "absent")) == Code.UNKNOWN_MEMBER_ID
    assert synced(member.sync(kind="connect")) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert synced(member.sync(protocol="roundrobin")) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert (
        synced(member.sync({member.id: b"all"}, kind=None, protocol=None))
        == Code.INCONSISTENT_GROUP_PROTOCOL
    )
    assert host.state("g") == "CompletingRebalance"
    old = member.sync(version=3)
    assert (old.error_code, old.assignment) == (Code.NONE, b""), (
        "before version 5 there is no protocol in the request"
    )
    assert synced(host.sync("g", 1, member.id, instance="absent")) == Code.UNKNOWN_MEMBER_ID


def test_heartbeats():
    host = GroupHost()
    assert host.heartbeat("g", 1, "absent") == Code.UNKNOWN_MEMBER_ID
    assert host.heartbeat("", 1, "absent") == Code.INVALID_GROUP_ID
    member = GroupMember(host)
    assert host.heartbeat("g", 0, member.id) == Code.UNKNOWN_MEMBER_ID, (
        "the member has an id but has not joined"
    )
    member.join()
    assert member.heartbeat() == Code.NONE
    member.sync({member.id: b"all"})
    assert member.heartbeat() == Code.NONE
    assert member.heartbeat(0) == member.heartbeat(2) == Code.ILLEGAL_GENERATION
    assert (
        host.heartbeat("g", 1, "absent")
        == host.heartbeat("g", 0, "absent")
        == Code.UNKNOWN_MEMBER_ID
    )
    assert host.heartbeat("g", 1, member.id, "absent") == Code.UNKNOWN_MEMBER_ID
    assert [host.heartbeat("g", 1, member.id, version=version) for version in range(4)] == [
        Code.NONE
    ] * 4
    member.leave()
    assert member.heartbeat() == Code.UNKNOWN_MEMBER_ID


def test_leaving():
    host = GroupHost()
    assert left(host.leave("g", ("absent", None))) == (
        Code.NONE,
        [("absent", None, Code.UNKNOWN_MEMBER_ID)],
    )
    assert (
        host.call("LeaveGroup", 2, group_id="g", member_id="absent").error_code
        == Code.UNKNOWN_MEMBER_ID
    )
    assert left(host.leave("", ("absent", None))) == (Code.INVALID_GROUP_ID, [])
    assert host.call("LeaveGroup", 2, group_id="", member_id="absent").error_code == (
        Code.INVALID_GROUP_ID
    )
    leader, follower = pair(host)
    assert left(host.leave("g")) == (Code.NONE, [])
    assert leader.heartbeat() == Code.NONE
    both = left(host.leave("g", ("stranger", None), (follower.id, None)))
    assert both == (
        Code.NONE,
        [("stranger", None, Code.UNKNOWN_MEMBER_ID), (follower.id, None, Code.NONE)],
    )
    assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS
    assert described(host) == ("PreparingRebalance", "", {leader.id: (None, b"", b"leader's")})
    assert joined(leader.join())[0] == 3
    old = [
        host.call("LeaveGroup", 2, group_id="g", member_id=leader.id).error_code for _ in range(2)
    ]
    assert old == [Code.NONE, Code.UNKNOWN_MEMBER_ID]
    assert described(host) == ("Empty", "", {})
    with_an_id_alone = GroupMember(host)
    assert left(with_an_id_alone.leave()) == (Code.NONE, [(with_an_id_alone.id, None, Code.NONE)])
    assert refused(with_an_id_alone.join()) == (Code.UNKNOWN_MEMBER_ID, with_an_id_alone.id)


def test_the_leader_leaves():
    host = GroupHost()
    leader, follower = pair(host)
    leader.leave()
    assert follower.heartbeat() == Code.REBALANCE_IN_PROGRESS
    everyone = [(follower.id, None, subscription(data=b"follower"))]
    assert joined(follower.join()) == (3, "range", follower.id, follower.id, everyone)
    assert leader.heartbeat() == Code.UNKNOWN_MEMBER_ID


def test_a_pending_member_id_that_leaves_begins_no_rebalance():
    host = GroupHost()
    member = alone(host)
    GroupMember(host).leave()
    assert host.state("g") == "Stable"
    assert member.heartbeat() == Code.NONE


def test_members_that_stay_silent():
    host = GroupHost()
    member = alone(host, "silent", session_ms=6_000)
    leader, follower = pair(host, "kept", session_ms=6_000, rebalance_ms=30_000)
    only_an_id = GroupMember(host, "pending", session_ms=6_000)
    for _ in range(2):
        host.pass_time(2_999)
        assert leader.heartbeat() == Code.NONE
    assert host.state("silent") == "Stable"
    host.pass_time(2)
    assert described(host, "silent") == ("Empty", "", {})
    assert member.heartbeat() == Code.UNKNOWN_MEMBER_ID
    assert member.commit({"t": {0: 1}}) == {("t", 0): Code.UNKNOWN_MEMBER_ID}
    assert refused(member.join()) == (Code.UNKNOWN_MEMBER_ID, member.id)
    assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS
    assert joined(leader.join()) == (
        3,
        "range",
        leader.id,
        leader.id,
        [(leader.id, None, subscription(data=b"leader"))],
    )
    assert follower.heartbeat() == Code.UNKNOWN_MEMBER_ID
    assert refused(only_an_id.join()) == (Code.UNKNOWN_MEMBER_ID, only_an_id.id)


def test_members_that_do_not_join_again():
    host = GroupHost()
    slow = alone(host, rebalance_ms=1_000)
    quick = GroupMember(host, data=b"quick", rebalance_ms=1_000)
    ticket = quick.join_later()
    host.pass_time(999)
    assert ticket in host.waiting()
    host.pass_time(1)
    assert joined(host.answers[ticket]) == (
        2,
        "range",
        quick.id,
        quick.id,
        [(quick.id, None, subscription(data=b"quick"))],
    )
    assert slow.heartbeat() == Code.UNKNOWN_MEMBER_ID
    assert refused(slow.join()) == (Code.UNKNOWN_MEMBER_ID, slow.id)


def test_a_leader_that_does_not_assign_is_removed():
    host = GroupHost()
    member = GroupMember(host, rebalance_ms=1_000)
    member.join()
    host.pass_time(999)
    assert host.state("g") == "CompletingRebalance"
    host.pass_time(1)
    assert described(host) == ("Empty", "", {})
    assert synced(member.sync({member.id: b"all"})) == Code.UNKNOWN_MEMBER_ID


def test_a_follower_joins_again_if_the_leader_does_not_assign():
    host = GroupHost()
    leader, follower = pair(host, rebalance_ms=1_000)
    ticket = follower.join_later(protocols={"range": b"changed"})
    leader.join()
    follower.took(host.answers[ticket])
    ticket = follower.sync_later()
    host.pass_time(1_000)
    assert synced(host.answers[ticket]) == Code.REBALANCE_IN_PROGRESS
    assert set(described(host)[2]) == {follower.id}
    assert joined(follower.join())[:3] == (4, "range", follower.id)


def test_a_member_that_never_syncs_is_removed():
    host = GroupHost()
    leader, follower = pair(host, rebalance_ms=1_000)
    ticket = follower.join_later(protocols={"range": b"changed"})
    leader.join()
    follower.took(host.answers[ticket])
    leader.sync({leader.id: b"all"})
    assert host.state("g") == "Stable"
    host.pass_time(1_000)
    assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS
    assert follower.heartbeat() == Code.UNKNOWN_MEMBER_ID


def test_static_members():
    """KIP-345."""
    host = GroupHost()
    instance = "instance-1"

    def join(member="", **more):
        return host.join("g", member, instance=instance, **{"version": 7, **more})

    sub = [(f"{instance}-1", instance, b"sub")]
    assert joined(join()) == (1, "range", f"{instance}-1", f"{instance}-1", sub)
    first = f"{instance}-1"
    host.sync("g", 1, first, {first: b"all"}, instance=instance)
    assert described(host) == ("Stable", "range", {first: (instance, b"sub", b"all")})
    again = f"{instance}-2"
    assert joined(join()) == (1, "range", first, again, []), (
        "comes back: its former self is named as the leader"
    )
    assert synced(host.sync("g", 1, again, instance=instance)) == b"all"
    assert host.heartbeat("g", 1, first, instance) == Code.FENCED_INSTANCE_ID
    assert refused(join(first)) == (Code.FENCED_INSTANCE_ID, first)
    assert synced(host.sync("g", 1, first, instance=instance)) == Code.FENCED_INSTANCE_ID
    fenced = host.commit("g", {"t": {0: 1}}, generation=1, member=first, instance=instance)
    assert fenced == {("t", 0): Code.FENCED_INSTANCE_ID}
    assert left(host.leave("g", (first, instance))) == (
        Code.NONE,
        [(first, instance, Code.FENCED_INSTANCE_ID)],
    )
    assert host.heartbeat("g", 1, first) == Code.UNKNOWN_MEMBER_ID
    assert host.heartbeat("g", 1, again) == host.heartbeat("g", 1, again, instance) == Code.NONE
    answer = join(version=9)
    third = f"{instance}-3"
    assert (
        joined(answer) == (1, "range", third, third, [(third, instance, b"sub")])
        and answer.skip_assignment
    )
    assert host.join("g", version=4).error_code == Code.MEMBER_ID_REQUIRED, (
        "that version has no instances"
    )
    fourth = f"{instance}-5"
    assert joined(join(protocols={"range": b"changed"})) == (1, "range", third, fourth, [])
    assert described(host) == ("Stable", "range", {fourth: (instance, b"changed", b"all")})
    assert left(host.leave("g", ("", instance))) == (Code.NONE, [("", instance, Code.NONE)])
    assert left(host.leave("g", ("", instance))) == (
        Code.NONE,
        [("", instance, Code.UNKNOWN_MEMBER_ID)],
    )
    assert described(host) == ("Empty", "", {})


def static_pair(host: GroupHost) -> tuple[str, str]:
    """Make a stable group in generation 2 with a static leader and a static follower. Gives their
    member ids.
    """
    leader = host.join(instance="leader", protocols={"range": b"l"}).member_id
    host.sync("g", 1, leader, {leader: b"all"}, instance="leader")
    ticket = host.join_later(instance="follower", protocols={"range": b"f"})
    host.join("g", leader, instance="leader", protocols={"range": b"l"})
    follower = host.answers[ticket].member_id
    host.sync("g", 2, leader, {leader: b"leader's", follower: b"follower's"}, instance="leader")
    host.sync("g", 2, follower, instance="follower")
    return leader, follower


def test_a_static_leader_and_follower():
    host = GroupHost()
    leader, _ = static_pair(host)
    answer = host.join(instance="follower", protocols={"range": b"f"})
    follower = "follower-3"
    assert joined(answer) == (2, "range", leader, follower, []) and not answer.skip_assignment
    assert synced(host.sync("g", 2, follower, instance="follower")) == b"follower's"
    assert host.heartbeat("g", 2, leader, "leader") == Code.NONE, (
        "the leader has no rebalance when the follower returns"
    )
    answer = host.join(instance="leader", protocols={"range": b"l"})
    leader = "leader-4"
    assert joined(answer) == (
        2,
        "range",
        leader,
        leader,
        [(leader, "leader", b"l"), (follower, "follower", b"f")],
    )
    assert answer.skip_assignment
    assert synced(host.sync("g", 2, leader, instance="leader")) == b"leader's"
    members = {leader: ("leader", b"l", b"leader's"), follower: ("follower", b"f", b"follower's")}
    assert described(host) == ("Stable", "range", members)
    assert left(host.leave("g", ("", "follower"), (leader, "leader"), ("", "third"))) == (
        Code.NONE,
        [
            ("", "follower", Code.NONE),
            (leader, "leader", Code.NONE),
            ("", "third", Code.UNKNOWN_MEMBER_ID),
        ],
    )
    assert described(host) == ("Empty", "", {})


def test_a_static_member_that_comes_back_wanting_another_protocol_begins_a_rebalance():
    host = GroupHost()
    both = {"range": b"r", "sticky": b"s"}
    first = host.join(instance="one", protocols=both).member_id
    host.sync("g", 1, first, {first: b"all"}, instance="one")
    answer = host.join(instance="one", protocols={"sticky": b"s", "range": b"r"})
    assert answer.error_code == Code.NONE
    assert (answer.generation_id, answer.protocol_name) == (2, "sticky")


def test_a_static_member_that_comes_back_before_the_assignment_begins_a_rebalance():
    """Without a rebalance, the leader would assign partitions to a member id that no longer
    exists.
    """
    host = GroupHost()
    leader, follower = static_pair(host)
    ticket = host.join_later("g", leader, instance="leader", protocols={"range": b"l"})
    host.join("g", follower, instance="follower", protocols={"range": b"f"})
    assert host.answers[ticket].generation_id == 3
    waits = host.sync_later("g", 3, follower, instance="follower")
    again = host.join_later(instance="follower", protocols={"range": b"f"})
    assert synced(host.answers[waits]) == Code.FENCED_INSTANCE_ID
    assert host.heartbeat("g", 3, leader, "leader") == Code.REBALANCE_IN_PROGRESS
    assert host.join("g", leader, instance="leader", protocols={"range": b"l"}).generation_id == 4
    assert host.answers[again].generation_id == 4


def test_a_static_member_that_returns_fences_its_waiting_earlier_join():
    host = GroupHost()
    leader, _ = static_pair(host)
    waits = host.join_later("g", leader, instance="leader", protocols={"range": b"l"})
    again = host.join_later(instance="leader", protocols={"range": b"l"})
    assert refused(host.answers[waits]) == (Code.FENCED_INSTANCE_ID, leader)
    assert again in host.waiting()
    host.pass_time(3_000)
    assert host.answers[again].generation_id == 3
    assert [one.group_instance_id for one in host.answers[again].members] == [
        "leader",
        "follower",
    ], "static members stay"


def test_a_group_is_empty_when_the_sessions_of_all_static_members_are_over():
    host = GroupHost()
    _, follower = static_pair(host)
    host.leave("g", ("", "leader"))
    assert host.heartbeat("g", 2, follower, "follower") == Code.REBALANCE_IN_PROGRESS
    host.pass_time(9_999)
    assert host.state("g") == "PreparingRebalance"
    host.pass_time(1)
    assert host.state("g") == "Empty"
    wall_ms = host.now_ms + host.wall_ahead_ms
    assert last_record_of(host).state_timestamp_ms == wall_ms, "empty since then"


def test_choosing_a_protocol():
    host = GroupHost()

    def names(*names):
        return {name: name.encode() for name in names}

    one = GroupMember(host)
    alone_first = one.join(protocols=names("sticky", "range", "roundrobin"))
    assert joined(alone_first) == (1, "sticky", one.id, one.id, [(one.id, None, b"sticky")])
    two = GroupMember(host)
    assert refused(two.join(protocols=names("cooperative"))) == (
        Code.INCONSISTENT_GROUP_PROTOCOL,
        two.id,
    )
    ticket = two.join_later(protocols=names("roundrobin", "range"))
    answer = one.join(protocols=names("range", "sticky", "roundrobin"))
    assert answer.protocol_name == host.answers[ticket].protocol_name == "range", (
        "with two members, the protocol that the leader prefers"
    )
    assert [one.metadata for one in answer.members] == [b"range", b"range"]
    three = GroupMember(host)
    tickets = [
        two.join_later(protocols=names("roundrobin", "range", "unshared")),
        three.join_later(protocols=names("roundrobin", "range")),
    ]
    assert one.join(protocols=names("range", "roundrobin")).protocol_name == "roundrobin", (
        "two of three members prefer it"
    )
    assert [host.answers[ticket].protocol_name for ticket in tickets] == ["roundrobin"] * 2


def test_the_first_rebalance_waits_for_more_members_as_configured():
    """KIP-134: each new member prolongs the delay, up to the rebalance timeout."""
    host = GroupHost(settings=GroupSettings(initial_rebalance_delay_ms=1_000))
    one, two = GroupMember(host, rebalance_ms=2_500), GroupMember(host, rebalance_ms=2_500)
    first = one.join_later()
    host.pass_time(900)
    second = two.join_later()
    host.pass_time(1_099)
    assert {first, second} <= set(host.waiting())
    host.pass_time(1)
    assert joined(host.answers[first])[0] == joined(host.answers[second])[0] == 1
    assert [member.member_id for member in host.answers[first].members] == [one.id, two.id]


def test_newcomers_cannot_put_off_the_first_rebalance_for_ever():
    host = GroupHost(settings=GroupSettings(initial_rebalance_delay_ms=1_000))
    first = GroupMember(host, rebalance_ms=2_500).join_later()
    for _ in range(8):
        host.pass_time(300)
        GroupMember(host, rebalance_ms=2_500).join_later()
    assert first in host.waiting()
    host.pass_time(100)
    assert len(host.answers[first].members) == 9


def test_a_full_group_refuses_new_members():
    """KIP-389."""
    host = GroupHost(settings=GroupSettings(max_size=2))
    leader, _ = pair(host)
    assert refused(host.join()) == (Code.GROUP_MAX_SIZE_REACHED, "")
    assert leader.heartbeat() == Code.NONE
    third = GroupMember(host, "other")
    fourth, fifth = GroupMember(host, "other"), GroupMember(host, "other")
    third.join()
    ticket = fourth.join_later()
    assert third.heartbeat() == Code.REBALANCE_IN_PROGRESS
    third.join()
    assert refused(fifth.join()) == (Code.GROUP_MAX_SIZE_REACHED, "")
    assert refused(fifth.join()) == (Code.GROUP_MAX_SIZE_REACHED, ""), "its id is forgotten"
    assert len(host.answers[ticket].members) == 0 and host.answers[ticket].generation_id == 2


def test_a_rebalance_waits_for_member_ids_that_have_not_joined():
    host = GroupHost()
    leader = alone(host, session_ms=6_000, rebalance_ms=60_000)
    GroupMember(host, session_ms=6_000)
    ticket = leader.join_later()
    assert ticket in host.waiting()
    host.pass_time(6_000)
    assert joined(host.answers[ticket])[0] == 2


def test_a_new_member_whose_client_is_gone_is_removed_after_five_minutes():
    host = GroupHost()
    leader = alone(host, rebalance_ms=600_000)
    ticket = GroupMember(host).join_later()
    for _ in range(59):
        host.pass_time(5_000)
        assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS
    host.pass_time(4_999)
    assert ticket in host.waiting()
    host.pass_time(1)
    assert refused(host.answers[ticket]) == (Code.UNKNOWN_MEMBER_ID, "")


def test_a_repeated_request_replaces_the_waiting_one_which_gets_an_error():
    host = GroupHost()
    leader, follower = pair(host)
    first = follower.join_later(protocols={"range": b"changed"})
    second = follower.join_later(protocols={"range": b"changed"})
    assert refused(host.answers[first]) == (Code.REBALANCE_IN_PROGRESS, follower.id)
    leader.join()
    follower.took(host.answers[second])
    first, second = follower.sync_later(), follower.sync_later()
    assert synced(host.answers[first]) == Code.REBALANCE_IN_PROGRESS
    leader.sync({follower.id: b"mine"})
    assert synced(host.answers[second]) == b"mine"


def test_the_waiting_request_of_a_member_that_leaves_is_answered():
    host = GroupHost()
    leader, follower = pair(host)
    ticket = follower.join_later(protocols={"range": b"changed"})
    follower.leave()
    assert refused(host.answers[ticket]) == (Code.UNKNOWN_MEMBER_ID, "")
    assert joined(leader.join())[0] == 3
    newcomer = GroupMember(host)
    ticket = newcomer.join_later()
    leader.join()
    newcomer.took(host.answers[ticket])
    ticket = newcomer.sync_later()
    newcomer.leave()
    assert synced(host.answers[ticket]) == Code.UNKNOWN_MEMBER_ID


def test_a_rebalance_that_begins_late_waits_its_time_all_the_same():
    """A session times out while the process is suspended. The rebalance that follows still lasts as
    long as the rebalance timeout allows.
    """
    host = GroupHost()
    leader, _ = pair(host, session_ms=6_000, rebalance_ms=30_000)
    host.now_ms += 60_000
    assert host.heartbeat("g", leader.generation, leader.id) == 0
    host.handle(host.coordinator.on_tick(host.event_ms()))
    assert host.state("g") == "PreparingRebalance"
    assert host.heartbeat("g", leader.generation, leader.id) == Code.REBALANCE_IN_PROGRESS


def test_a_member_that_waits_does_not_expire_and_its_session_begins_again_with_the_answer():
    host = GroupHost()
    leader, follower = pair(host, session_ms=6_000, rebalance_ms=60_000)
    ticket = follower.join_later(protocols={"range": b"changed"})
    for _ in range(5):
        host.pass_time(5_000)
        assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS
    leader.join()
    assert host.answers[ticket].generation_id == 3
    host.pass_time(5_999)
    assert host.heartbeat("g", 3, follower.id) == Code.NONE


def test_commits_keep_a_member_alive():
    host = GroupHost()
    member = alone(host, session_ms=6_000)
    for _ in range(4):
        host.pass_time(5_000)
        assert member.commit({"t": {0: 1}}) == {("t", 0): Code.NONE}
    host.pass_time(6_000)
    assert host.state("g") == "Empty"


def test_asking_for_the_assignment_again_keeps_a_member_alive():
    """A follower of a stable group loses its connection, then joins and syncs again. This restarts
    its session timeout.
    """
    host = GroupHost()
    leader, follower = pair(host, session_ms=6_000)
    host.pass_time(4_000)
    leader.heartbeat()
    follower.sync()
    host.pass_time(4_000)
    assert leader.heartbeat() == Code.NONE
    assert follower.heartbeat() == Code.NONE


def test_members_come_back_after_a_restart_and_must_beat_within_their_session():
    host = GroupHost()
    leader, follower = pair(host, session_ms=6_000)
    host.restart()
    assert described(host) == (
        "Stable",
        "range",
        {
            leader.id: (None, subscription(data=b"leader"), b"leader's"),
            follower.id: (None, subscription(data=b"follower"), b"follower's"),
        },
    )
    host.pass_time(5_000)
    assert leader.heartbeat() == Code.NONE
    assert synced(follower.host.sync("g", 2, leader.id)) == b"leader's"
    host.pass_time(1_000)
    assert follower.heartbeat() == Code.UNKNOWN_MEMBER_ID
    assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS
    assert joined(leader.join())[:3] == (3, "range", leader.id)


def test_a_static_member_comes_back_after_a_restart_under_its_latest_id():
    host = GroupHost()
    _, follower = static_pair(host)
    again = host.join(instance="follower", protocols={"range": b"f"}).member_id
    host.restart()
    assert host.heartbeat("g", 2, follower, "follower") == Code.FENCED_INSTANCE_ID
    assert host.heartbeat("g", 2, again, "follower") == Code.NONE
    assert synced(host.sync("g", 2, again, instance="follower")) == b"follower's"


def test_a_generation_without_an_assignment_is_lost_in_a_restart():
    host = GroupHost()
    member = alone(host)
    assert joined(member.join())[0] == 2
    host.restart()
    assert host.state("g") == "Stable"
    assert member.heartbeat() == Code.ILLEGAL_GENERATION
    assert joined(member.join())[0] == 2


def test_after_a_power_loss_members_join_again():
    """Members may have read records that the power loss removed. When they join again, they fetch
    the group's committed offsets.
    """
    host = GroupHost()
    leader, follower = pair(host)
    host.lose_power({})
    assert described(host) == ("Empty", "", {})
    assert leader.heartbeat() == follower.heartbeat() == Code.UNKNOWN_MEMBER_ID
    assert leader.commit({"t": {0: 15}}) == {("t", 0): Code.UNKNOWN_MEMBER_ID}
    assert synced(leader.sync({leader.id: b"all"})) == Code.UNKNOWN_MEMBER_ID
    assert refused(leader.join()) == (Code.UNKNOWN_MEMBER_ID, leader.id)
    again = GroupMember(host)
    assert joined(again.join())[0] == 4, "the generation after the one without members"


def test_after_a_power_loss_a_static_member_joins_again():
    host = GroupHost()
    leader, follower = static_pair(host)
    host.lose_power({})
    assert host.heartbeat("g", 2, follower, "follower") == Code.UNKNOWN_MEMBER_ID
    assert host.heartbeat("g", 2, leader, "leader") == Code.UNKNOWN_MEMBER_ID
    assert host.join(instance="leader").error_code == Code.NONE


def test_a_group_that_became_empty_counts_on_after_a_restart():
    host = GroupHost()
    member = alone(host)
    member.leave()
    host.restart()
    assert described(host) == ("Empty", "", {}) and host.describe("g").protocol_type == "consumer"
    assert joined(GroupMember(host).join())[0] == 3, "1 was its life, 2 its end"


def test_a_group_above_a_lowered_maximum_size_shrinks_after_a_restart():
    host = GroupHost()
    leader, follower = pair(host)
    host.settings = GroupSettings(max_size=1)
    host.restart()
    assert leader.heartbeat() == follower.heartbeat() == Code.REBALANCE_IN_PROGRESS
    ticket = leader.join_later()
    assert refused(follower.join()) == (Code.GROUP_MAX_SIZE_REACHED, "")
    assert joined(host.answers[ticket])[0] == 3


def test_the_coordinator_copies_metadata_out_of_requests():
    """The host zeroes the buffer of each request after the call, so the metadata must have been
    copied.
    """
    host = GroupHost()
    member = GroupMember(host, data=b"precious")
    assert member.join().members[0].metadata == subscription(data=b"precious")
    assert member.sync({member.id: b"assignment"}).assignment == b"assignment"
    assert described(host)[2] == {member.id: (None, subscription(data=b"precious"), b"assignment")}


def test_a_member_whose_metadata_no_group_record_can_hold_is_refused():
    host = GroupHost(settings=GroupSettings(max_record_bytes=100))
    for protocols in (
        {"range": bytes(101)},
        {"range": bytes(60), "sticky": bytes(60)},
        {f"p{n}": b"" for n in range(1001)},
    ):
        assert refused(host.join(protocols=protocols)) == (Code.UNKNOWN_SERVER_ERROR, "")
    assert refused(host.join(protocols={"range": bytes(100)}))[0] == Code.MEMBER_ID_REQUIRED
    assert host.join(protocols={f"p{n}": b"" for n in range(1000)}).error_code == (
        Code.MEMBER_ID_REQUIRED
    )


def test_assignments_that_no_group_record_can_hold_are_refused():
    """The limit applies to the whole record, which also contains the members' subscriptions and
    names.
    """
    host = GroupHost(settings=GroupSettings(max_record_bytes=400))
    assert refused(host.join(protocols={"range": bytes(100)})) == (
        Code.MEMBER_ID_REQUIRED,
        "client-1",
    )
    assert joined(host.join("g", "client-1", protocols={"range": bytes(100)}))[0] == 1
    assert (
        synced(host.sync("g", 1, "client-1", {"client-1": bytes(200)})) == Code.UNKNOWN_SERVER_ERROR
    )
    assert described(host)[0] == "PreparingRebalance"
    assert joined(host.join("g", "client-1", protocols={"range": bytes(100)}))[0] == 2
    assert synced(
        host.sync("g", 2, "client-1", {"client-1": bytes(100), "gone": bytes(300)})
    ) == bytes(100)
    assert joined(host.join("g", "client-1", protocols={"range": bytes(100)}))[0] == 3
    assert synced(host.sync("g", 3, "client-1", {"client-1": bytes(100)})) == bytes(100), (
        "the former assignments go"
    )


def test_a_static_member_that_comes_back_with_too_much_is_refused_and_changes_nothing():
    host = GroupHost(settings=GroupSettings(max_record_bytes=400))
    member = GroupMember(host, instance="i", protocols={"range": bytes(100)})
    assert joined(member.join())[0] == 1
    assert synced(member.sync({member.id: b"all"})) == b"all"
    before = described(host)
    again = GroupMember(host, instance="i", protocols={"range": bytes(300)})
    assert refused(again.join())[0] == Code.UNKNOWN_SERVER_ERROR
    assert described(host) == before
    assert member.heartbeat() == Code.NONE


def test_a_member_votes_for_a_protocol_that_all_have():
    host = GroupHost()
    one, two = GroupMember(host), GroupMember(host)
    one.join(protocols={"range": b"r"})
    ticket = two.join_later(protocols={"sticky": b"s", "range": b"r"})
    one.join(protocols={"cooperative": b"c", "range": b"r"})
    assert host.answers[ticket].protocol_name == "range", "each prefers one that the other lacks"


def test_a_group_of_the_maximum_size_is_stable_after_a_restart():
    host = GroupHost()
    leader, _ = pair(host)
    host.settings = GroupSettings(max_size=2)
    host.restart()
    assert (host.state("g"), leader.heartbeat()) == ("Stable", Code.NONE)


def test_a_leader_that_was_elected_leads_after_a_restart():
    """The elected leader stays the leader, even if a static member that was away precedes it in the
    group.
    """
    host = GroupHost()
    leader, follower = static_pair(host)
    ticket = host.join_later(
        "g", follower, instance="follower", protocols={"range": b"changed"}, rebalance_ms=1_000
    )
    host.pass_time(3_000)
    assert host.answers[ticket].leader == follower, "the leader is away"
    host.sync("g", 3, follower, {leader: b"l", follower: b"f"}, instance="follower")
    host.sync("g", 3, leader, instance="leader")
    host.restart()
    again = host.join("g", leader, instance="leader", protocols={"range": b"l"})
    assert (again.generation_id, again.leader) == (3, follower), "a follower disturbs nobody"
    assert host.join("g", follower, instance="follower", protocols={"range": b"f"}) is PARKED


def test_a_record_whose_leader_is_no_member_lets_the_first_one_lead():
    members = tuple(
        MemberMetadata(name, None, "client", "/h", 60_000, 60_000, b"s", name.encode())
        for name in ("one", "two")
    )
    host = GroupHost(partition_count=1)
    value = GroupMetadataValue("consumer", 5, "range", "gone", 0, members)
    host.handle(Result(partition=0, records=[group_record("g", value)]))
    host.restart()
    two = host.join("g", "two", protocols={"range": b"s"})
    assert (two.generation_id, two.leader) == (5, "one")


def test_a_group_loaded_from_a_record_without_a_leader_rebalances():
    """The group was a consumer group until its last consumer left (group_conversion.py)."""
    member = MemberMetadata("one", None, "client", "/h", 60_000, 60_000, b"s", b"")
    host = GroupHost(partition_count=1)
    value = GroupMetadataValue("consumer", 5, "range", None, 0, (member,))
    host.handle(Result(partition=0, records=[group_record("g", value)]))
    host.restart()
    assert host.heartbeat("g", 5, "one") == Code.REBALANCE_IN_PROGRESS
    assert host.join("g", "one", protocols={"range": b"s"}).generation_id == 6


def test_a_transactional_commit_is_checked_by_each_field_that_it_has():
    """A client from before KIP-447 sends no member id, instance id or generation."""
    host = GroupHost()
    alone(host)
    unknown = {("t", 0): Code.UNKNOWN_MEMBER_ID}
    assert host.txn_commit("g", {"t": {0: 1}}, generation=0) == unknown
    assert host.txn_commit("g", {"t": {0: 1}}, member="absent") == unknown
    assert host.txn_commit("g", {"t": {0: 1}}, instance="absent") == unknown
    assert host.txn_commit("g", {"t": {0: 1}}) == {("t", 0): Code.NONE}


def last_record_of(host: GroupHost, group: str = "g") -> GroupMetadataValue:
    """The last GroupMetadata record that was written for the group."""
    values = [value for _, key, value, _ in host.log if key == encode_group_key(group)]
    assert values[-1] is not None
    return decode_group(values[-1])


def test_the_group_record_has_the_time_of_the_last_state_change():
    """The time is that of the wall clock, not of the steady clock. Version 2 of the record
    introduced the field.
    """
    host = GroupHost()
    host.wall_ahead_ms = 500_000
    member = GroupMember(host)
    member.join()
    host.pass_time(100)
    member.sync({member.id: b"all"})
    assert last_record_of(host).state_timestamp_ms == 1_000_500_100
    host.pass_time(7_000)
    member.leave()
    assert last_record_of(host) == GroupMetadataValue("consumer", 2, None, None, 1_000_507_100, ())


def test_an_unknown_state_timestamp_stays_unknown():
    members = (MemberMetadata("m", "i", "client", "/h", 60_000, 60_000, b"sub", b"all"),)
    host = GroupHost(partition_count=1)
    value = GroupMetadataValue("consumer", 5, "range", "m", -1, members)
    host.handle(Result(partition=0, records=[group_record("g", value)]))
    host.restart()
    again = host.join(instance="i").member_id
    assert last_record_of(host).state_timestamp_ms == -1
    assert last_record_of(host).leader_id == again


def test_a_member_that_is_silent_after_its_join_is_removed_with_its_session():
    """A new member has up to five minutes, but only until it gets the response to its JoinGroup."""
    host = GroupHost()
    member = GroupMember(host, session_ms=6_000, rebalance_ms=60_000)
    member.join()
    host.pass_time(5_999)
    assert host.state("g") == "CompletingRebalance"
    host.pass_time(1)
    assert host.state("g") == "Empty"


def test_a_dynamic_member_id_is_refused_with_an_instance_id():
    """The member id was given to a dynamic member, so a static member cannot join with it."""
    host = GroupHost()
    member = GroupMember(host)
    assert refused(member.join(instance="i")) == (Code.UNKNOWN_MEMBER_ID, member.id)
    assert joined(member.join())[0] == 1, "its id is good for itself"


def test_a_protocol_that_its_only_member_dropped_is_refused_to_new_members():
    host = GroupHost()
    member = GroupMember(host, protocols={"range": b"r", "sticky": b"s"})
    member.join()
    assert member.join(protocols={"sticky": b"s"}).protocol_name == "sticky"
    assert refused(host.join(protocols={"range": b"r"})) == (Code.INCONSISTENT_GROUP_PROTOCOL, "")
    assert host.join(protocols={"sticky": b"s"}).error_code == Code.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("session_ms", [6_000, 60_000])
def test_a_static_member_that_comes_back_and_stays_silent_is_removed(session_ms):
    """As in Kafka, the returning member has the session timeout of the previous one until its first
    heartbeat.
    """
    host = GroupHost()
    first = host.join(instance="i", session_ms=6_000).member_id
    host.sync("g", 1, first, {first: b"all"}, instance="i")
    host.pass_time(3_000)
    again = host.join(instance="i", session_ms=session_ms).member_id
    host.pass_time(5_999)
    assert host.state("g") == "Stable"
    host.pass_time(1)
    assert host.state("g") == "Empty"
    assert host.heartbeat("g", 1, again, "i") == Code.UNKNOWN_MEMBER_ID


def test_a_static_member_that_comes_back_without_its_assignment_begins_no_rebalance():
    """The SyncGroup timeout does not remove the returning member either, although the member that
    it replaces had not sent SyncGroup.
    """
    host = GroupHost()
    leader, follower = static_pair(host)
    ticket = host.join_later(
        "g", follower, instance="follower", protocols={"range": b"changed"}, rebalance_ms=60_000
    )
    host.join("g", leader, instance="leader", protocols={"range": b"l"})
    assert host.answers[ticket].generation_id == 3
    host.sync("g", 3, leader, {leader: b"l", follower: b"f"}, instance="leader")
    again = host.join(instance="follower", protocols={"range": b"changed"}).member_id
    for _ in range(8):
        host.pass_time(9_000)
        assert host.heartbeat("g", 3, leader, "leader") == Code.NONE
        assert host.heartbeat("g", 3, again, "follower") == Code.NONE
    assert synced(host.sync("g", 3, again, instance="follower")) == b"f"


def test_a_static_member_that_comes_back_while_it_waits_to_join_waits_on():
    host = GroupHost()
    leader = alone(host, rebalance_ms=60_000)
    host.join(instance="i", session_ms=6_000)
    ticket = host.join_later(instance="i", session_ms=6_000)
    for _ in range(3):
        host.pass_time(5_000)
        assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS
    leader.join()
    assert host.answers[ticket].generation_id == 2


def test_members_of_a_full_group_join_again():
    host = GroupHost(settings=GroupSettings(max_size=2))
    leader, follower = pair(host)
    ticket = leader.join_later()
    assert joined(follower.join())[0] == 3
    assert joined(host.answers[ticket])[0] == 3


def test_a_join_without_protocols_is_refused_by_an_empty_group_too():
    host = GroupHost()
    alone(host).leave()
    assert refused(host.join(protocols={})) == (Code.INCONSISTENT_GROUP_PROTOCOL, "")
    assert refused(host.join(kind="")) == (Code.INCONSISTENT_GROUP_PROTOCOL, "")
    assert refused(host.join(kind="", protocols={})) == (Code.INCONSISTENT_GROUP_PROTOCOL, "")
    assert host.join(kind="connect").error_code == Code.MEMBER_ID_REQUIRED, "of another type now"


@pytest.mark.parametrize(
    ("delay_ms", "rebalance_ms", "newcomer", "waits_ms"),
    [
        (1, 3_000, False, 1),
        (1_000, 3_000, False, 1_000),
        (1_000, 3_000, True, 2_000),
        (1_000, 1_001, True, 1_001),
        (1_000, 1_000, True, 1_000),
        (1_000, 400, True, 1_000),
    ],
)
def test_how_long_the_first_rebalance_waits(delay_ms, rebalance_ms, newcomer, waits_ms):
    """KIP-134: the rebalance waits for the delay, and once more if a member joined in the meantime,
    but at most for the rebalance timeout.
    """
    host = GroupHost(settings=GroupSettings(initial_rebalance_delay_ms=delay_ms))
    one = GroupMember(host, rebalance_ms=rebalance_ms)
    two = GroupMember(host, rebalance_ms=rebalance_ms)
    ticket = one.join_later()
    if newcomer:
        two.join_later()
    host.pass_time(waits_ms - 1)
    assert ticket in host.waiting()
    host.pass_time(1)
    assert ticket in host.answers


def test_a_later_rebalance_is_not_put_off_by_newcomers():
    host = GroupHost(settings=GroupSettings(initial_rebalance_delay_ms=1_000))
    one = GroupMember(host, session_ms=60_000, rebalance_ms=3_000)
    ticket = one.join_later()
    host.pass_time(1_000)
    one.took(host.answers[ticket])
    one.sync({one.id: b"all"})
    ticket = GroupMember(host, session_ms=60_000, rebalance_ms=3_000).join_later()
    host.pass_time(2_999)
    assert ticket in host.waiting()
    host.pass_time(1)
    assert host.answers[ticket].generation_id == 2, "the first member did not join again"


def test_a_static_member_that_returns_to_a_group_without_active_members_is_answered():
    """A rebalance begins, and no member joins in time. The members are static, so they are kept.
    The first one that returns gets the next generation when the rebalance timer expires again.
    """
    host = GroupHost()

    def join_later(instance, member=""):
        return host.join_later(member=member, instance=instance, session_ms=60_000)

    leader = host.answers[join_later("leader")].member_id
    host.sync("g", 1, leader, {leader: b"all"}, instance="leader")
    ticket = join_later("follower")
    assert join_later("leader", leader) in host.answers
    follower = host.answers[ticket].member_id
    host.sync("g", 2, leader, {}, instance="leader")
    host.sync("g", 2, follower, instance="follower")
    newcomer = join_later("third")
    host.leave("g", ("", "third"))
    assert newcomer in host.answers
    assert host.state("g") == "PreparingRebalance"
    host.pass_time(4_000)
    ticket = join_later("leader")
    host.pass_time(1_999)
    assert ticket in host.waiting()
    host.pass_time(1)
    assert host.answers[ticket].generation_id == 3


def test_an_elected_leader_stays_leader_when_the_former_leader_joins_again():
    host = GroupHost()
    leader, follower = static_pair(host)
    ticket = host.join_later(
        "g", follower, instance="follower", protocols={"range": b"changed"}, rebalance_ms=1_000
    )
    host.pass_time(3_000)
    assert host.answers[ticket].leader == follower
    ticket = host.join_later("g", leader, instance="leader", protocols={"range": b"l2"})
    host.join("g", follower, instance="follower", protocols={"range": b"f"})
    assert (host.answers[ticket].generation_id, host.answers[ticket].leader) == (4, follower)


def test_a_group_record_may_be_as_large_as_its_topic_allows():
    """The limit includes the batch header, and the fields of a record other than its key and
    value.
    """
    value = GroupMetadataValue(
        "consumer", 1, "range", "client-1", 0,
        (MemberMetadata("client-1", None, "client", "/192.0.2.7", 3_000, 10_000, b"s", b"all"),),
    )  # fmt: skip
    record = group_record("g", value)
    assert record.value is not None
    # 61 bytes for the batch header, and 32 for the other fields of the record
    largest = 61 + 32 + len(record.key) + len(record.value)
    for max_record_bytes, expected in (
        (largest, b"all"),
        (largest - 1, Code.UNKNOWN_SERVER_ERROR),
    ):
        host = GroupHost(settings=GroupSettings(max_record_bytes=max_record_bytes))
        host.join(protocols={"range": b"s"})
        host.join("g", "client-1", protocols={"range": b"s"})
        assert synced(host.sync("g", 1, "client-1", {"client-1": b"all"})) == expected


def test_a_members_session_begins_again_when_it_gets_its_assignment():
    """A follower waits in SyncGroup for longer than its session timeout. The response counts as its
    last contact, so that it is removed only a session timeout later.
    """
    host = GroupHost()
    leader, follower = pair(host, session_ms=6_000, rebalance_ms=60_000)
    ticket = follower.join_later(protocols={"range": b"changed"})
    leader.join()
    follower.took(host.answers[ticket])
    follower.sync_later()
    for _ in range(2):
        host.pass_time(4_000)
        assert leader.heartbeat() == Code.NONE
    leader.sync({follower.id: b"mine"})
    host.pass_time(4_000)
    assert leader.heartbeat() == Code.NONE
    host.pass_time(1_999)
    assert leader.heartbeat() == Code.NONE, "the follower is still there"
    host.pass_time(1)
    assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS
    assert follower.heartbeat() == Code.UNKNOWN_MEMBER_ID


def test_assignments_of_an_earlier_generation_are_not_described_during_a_rebalance():
    host = GroupHost()
    leader, follower = pair(host)
    ticket = follower.join_later(protocols={"range": b"changed"})
    leader.join()
    follower.took(host.answers[ticket])
    assert described(host)[2][leader.id] == (None, b"", b"leader's")
    follower.join_later(protocols={"range": b"once more"})
    assert described(host) == (
        "PreparingRebalance",
        "",
        dict.fromkeys([leader.id, follower.id], (None, b"", b"")),
    )


def test_a_leave_group_with_a_wrong_instance_id_removes_no_member():
    host = GroupHost()
    member = alone(host)
    assert left(host.leave("g", (member.id, "absent"))) == (
        Code.NONE,
        [(member.id, "absent", Code.UNKNOWN_MEMBER_ID)],
    )
    assert member.heartbeat() == Code.NONE


def test_a_member_that_leaves_with_an_id_that_never_joined_begins_a_rebalance():
    host = GroupHost()
    leader, follower = pair(host)
    pending = GroupMember(host)
    host.leave("g", (follower.id, None), (pending.id, None))
    assert leader.heartbeat() == Code.REBALANCE_IN_PROGRESS


def test_the_sync_timeout_ignores_a_member_that_has_left():
    host = GroupHost()
    leader, follower = pair(host, session_ms=60_000)
    ticket = follower.join_later(protocols={"range": b"changed"})
    leader.join()
    follower.took(host.answers[ticket])
    follower.leave()
    leader.join()
    leader.sync({leader.id: b"all"})
    host.pass_time(3_000)
    assert leader.heartbeat() == Code.NONE


def test_a_returning_static_member_whose_group_record_would_be_too_large_is_refused():
    """The size includes the member's names, and the largest of its metadata, since the protocol is
    not selected yet.
    """
    for changed in (
        {"client_id": "c" * 300},
        {"protocols": {"range": bytes(100), "sticky": bytes(300)}},
        {"protocols": {"sticky": bytes(300), "range": bytes(100)}},
    ):
        host = GroupHost(settings=GroupSettings(max_record_bytes=500))
        member = GroupMember(host, instance="i", protocols={"range": bytes(100)})
        member.join()
        member.sync({member.id: b"all"})
        again = host.join(**{"instance": "i", "protocols": {"range": bytes(100)}, **changed})
        assert refused(again)[0] == Code.UNKNOWN_SERVER_ERROR
        assert member.heartbeat() == Code.NONE
        assert host.join(instance="i", protocols={"range": bytes(100)}).error_code == Code.NONE


def test_an_elected_leader_stays_leader_when_another_member_leaves():
    """A leader is elected during a rebalance. A further member joins and leaves, and in the next
    generation the elected member must still be the leader.
    """
    host = GroupHost()
    leader, follower = static_pair(host)
    ticket = host.join_later(
        "g", follower, instance="follower", protocols={"range": b"changed"}, rebalance_ms=1_000
    )
    host.pass_time(3_000)
    assert host.answers[ticket].leader == follower
    third = GroupMember(host)
    ticket = third.join_later()
    third.leave()
    ticket = host.join_later("g", leader, instance="leader", protocols={"range": b"l"})
    host.join("g", follower, instance="follower", protocols={"range": b"f"})
    assert host.answers[ticket].leader == follower


@pytest.mark.parametrize("version", [3, 5])
def test_leave_group_with_an_empty_group_id_is_refused(version):
    answer = GroupHost().leave("", ("m", None), version=version)
    assert answer.error_code == Code.INVALID_GROUP_ID
    assert not getattr(answer, "members", None)


def test_a_dissolved_group_leaves_no_timers() -> None:
    """A consumer group replaces the classic group. A timer that remained would remove a member of
    the consumer group.
    """
    timers: Timers[TimerKey] = Timers()
    rows = tuple(
        MemberMetadata(name, None, "client", "/host", 60_000, 10_000, b"", b"") for name in "ab"
    )
    value = GroupMetadataValue("consumer", 3, "range", "a", -1, rows)
    group = ClassicGroup("g", GroupSettings(), timers, lambda: "suffix", WallClock())
    group.load(value, 1_000)
    assert len(timers) == 2
    for kind in (JOIN, SYNC):
        timers.schedule((kind, "g", ""), 2_000)
    group.dissolve(Result())
    assert len(timers) == 0
