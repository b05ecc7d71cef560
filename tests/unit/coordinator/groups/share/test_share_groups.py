"""Members of share groups (KIP-932). The expected responses are those of Apache Kafka 4.3 (the
transcript `share_groups`), or follow from the KIP.

After each event, the host replays the log into a new coordinator, which must reach the same state.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.group_host import GroupHost, alone

from barnabas.coordinator.groups.share.share_group_settings import ShareGroupSettings
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.request_context import RequestContext

SESSION_MS, INTERVAL_MS = 45_000, 5_000
LEAVE = -1


def new_host(**more: Any) -> GroupHost:
    return GroupHost(topics={"t": 4, "u": 2}, **more)


class Member:
    """A member as its client sees it."""

    def __init__(self, host: GroupHost, name: str, *topics: str, group: str = "g") -> None:
        """A client of a share group. `given` has the assigned partitions."""
        self.host, self.name, self.group = host, name, group
        self.topics = list(topics) or ["t"]
        self.epoch = 0
        self.given: dict[str, list[int]] = {}

    def beat(self, topics: list[str] | None = None) -> Any:
        """Send a heartbeat, and take the epoch and the assignment from the response. The first
        heartbeat includes the subscription.
        """
        if self.epoch == 0:
            topics = self.topics
        answer = self.host.share_heartbeat(self.name, self.epoch, group=self.group, topics=topics)
        if answer.error_code == Code.NONE:
            self.epoch = answer.member_epoch
            given = self.host.assigned(answer)
            self.given = self.given if given is None else given
        return answer

    def leave(self) -> Any:
        return self.host.share_heartbeat(self.name, LEAVE, group=self.group)

    def count(self) -> int:
        return sum(map(len, self.given.values()))


def settle(*members: Member) -> None:
    """Send heartbeats of these members until nothing changes."""
    before = None
    for _ in range(20):
        for member in members:
            member.beat()
        now = [(member.epoch, member.given) for member in members]
        if now == before:
            return
        before = now
    raise AssertionError("the group does not come to rest")


def state(host: GroupHost) -> tuple[str, int, int]:
    described = host.describe_share_group()
    return described.group_state, described.group_epoch, described.assignment_epoch


# --- joining and leaving ------------------------------------------------------------------------


def test_a_member_joins_and_gets_partitions_when_their_states_are_initialised() -> None:
    host = new_host()
    answer = host.share_heartbeat("m")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m", 2)
    assert (answer.heartbeat_interval_ms, host.assigned(answer)) == (INTERVAL_MS, {})
    assert len(host.share_states.offsets) == 4
    answer = host.share_heartbeat("m", 2)
    assert (answer.member_epoch, host.assigned(answer)) == (3, {"t": [0, 1, 2, 3]})
    assert state(host) == ("Stable", 3, 3)
    assert host.share_heartbeat("m", 3).assignment is None


def test_a_full_request_and_one_that_joins_again_get_the_whole_assignment() -> None:
    host = new_host()
    m = Member(host, "m")
    settle(m)
    for epoch, topics in ((m.epoch, ["t"]), (0, ["t"])):
        answer = host.share_heartbeat("m", epoch, topics=topics)
        assert (answer.member_epoch, host.assigned(answer)) == (m.epoch, {"t": [0, 1, 2, 3]})


@pytest.mark.parametrize(
    "fields",
    [
        {"member": ""},
        {"member": "m" * 37},
        {"topics": []},
        {"epoch": -2},
        {"group": ""},
        {"group": "g" * 40_000},
        {"rack": ""},
    ],
)
def test_invalid_share_group_heartbeats_are_refused(fields: dict[str, Any]) -> None:
    host = new_host()
    answer = host.share_heartbeat(**{"member": "m", **fields})
    assert (answer.error_code, bool(answer.error_message)) == (Code.INVALID_REQUEST, True)
    assert host.log == [] and host.coordinator.all_groups() == []


def test_a_join_without_topics_is_refused() -> None:
    host = new_host()
    ticket = host.send("ShareGroupHeartbeat", 1, group_id="g", member_id="m", member_epoch=0)
    assert host.answers[ticket].error_code == Code.INVALID_REQUEST


def test_an_epoch_of_an_unknown_group_or_member_is_refused() -> None:
    host = new_host()
    assert host.share_heartbeat("m", 1).error_code == Code.GROUP_ID_NOT_FOUND
    assert host.share_heartbeat("m", LEAVE).error_code == Code.GROUP_ID_NOT_FOUND
    assert host.coordinator.all_groups() == []
    host.share_heartbeat("m")
    assert host.share_heartbeat("n", 1).error_code == Code.UNKNOWN_MEMBER_ID
    assert host.share_heartbeat("n", LEAVE).error_code == Code.UNKNOWN_MEMBER_ID


def test_only_the_current_and_the_previous_epoch_are_accepted() -> None:
    """The response with the current epoch may be lost. In this case the member sends the previous
    epoch.
    """
    host = new_host()
    m = Member(host, "m")
    m.beat()
    m.beat()
    assert m.epoch == 3
    assert host.share_heartbeat("m", 2).member_epoch == 3
    for epoch in (1, 4, 8):
        assert host.share_heartbeat("m", epoch).error_code == Code.FENCED_MEMBER_EPOCH


def test_a_share_group_remains_after_its_last_member_left() -> None:
    host = new_host()
    m = Member(host, "m")
    settle(m)
    answer = m.leave()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m", LEAVE)
    assert (answer.heartbeat_interval_ms, answer.assignment) == (0, None)
    assert m.leave().error_code == Code.UNKNOWN_MEMBER_ID
    assert state(host)[:2] == ("Empty", 4)
    host.pass_time(30 * 24 * 3_600_000)
    assert host.list_groups() == {"g": ("share", "Empty")}


def test_a_silent_member_is_removed_and_its_partitions_are_assigned_to_others() -> None:
    host = new_host()
    m, n = Member(host, "m"), Member(host, "n")
    settle(m, n)
    host.pass_time(SESSION_MS - 1)
    m.beat()
    host.pass_time(1)
    assert [member.member_id for member in host.describe_share_group().members] == ["m"]
    settle(m)
    assert m.given == {"t": [0, 1, 2, 3]}
    assert n.beat().error_code == Code.UNKNOWN_MEMBER_ID


def test_session_timeouts_of_share_members_start_again_after_a_restart() -> None:
    host = new_host()
    m = Member(host, "m")
    settle(m)
    host.pass_time(SESSION_MS - 1)
    host.restart()
    host.pass_time(SESSION_MS - 1)
    assert m.beat().error_code == Code.NONE
    host.restart()
    host.pass_time(SESSION_MS)
    assert state(host)[0] == "Empty"


def test_share_members_remain_after_a_power_loss() -> None:
    """Members of share groups have no position that the power loss could make invalid."""
    host = new_host()
    m = Member(host, "m")
    settle(m)
    host.lose_power({("t", 0): 0})
    assert m.beat().error_code == Code.NONE


def test_a_group_is_full_at_its_maximum() -> None:
    host = new_host(share_settings=ShareGroupSettings(max_size=1))
    m, n = Member(host, "m"), Member(host, "n")
    m.beat()
    assert n.beat().error_code == Code.GROUP_MAX_SIZE_REACHED
    assert host.share_heartbeat("n", 7).error_code == Code.GROUP_MAX_SIZE_REACHED
    assert m.beat().error_code == Code.NONE
    m.leave()
    assert n.beat().error_code == Code.NONE


# --- assignments --------------------------------------------------------------------------------


def test_several_members_share_partitions() -> None:
    host = new_host()
    members = [Member(host, name) for name in "abcde"]
    first, second, *others = members
    settle(first)
    assert first.count() == 4
    settle(first, second)
    assert [first.count(), second.count()] == [2, 2]
    settle(*members)
    assert sorted(member.count() for member in members) == [1, 1, 2, 2, 2]
    assert {index for member in members for index in member.given["t"]} == {0, 1, 2, 3}
    for member in others:
        member.leave()
    settle(first, second)
    assert [first.count(), second.count()] == [2, 2]
    second.beat(topics=[])
    settle(first, second)
    assert [first.count(), second.count()] == [4, 0]


def test_a_topic_that_grows_is_initialised_and_assigned() -> None:
    host = new_host()
    m = Member(host, "m")
    settle(m)
    host.topics["t"] = 6
    settle(m)
    assert m.given == {"t": [0, 1, 2, 3, 4, 5]}
    assert len(host.share_states.offsets) == 6


def test_topics_are_assigned_when_created_and_removed_when_deleted() -> None:
    host = new_host()
    m = Member(host, "m", "t", "later")
    settle(m)
    assert m.given == {"t": [0, 1, 2, 3]}
    host.topics["later"] = 1
    settle(m)
    assert m.given == {"t": [0, 1, 2, 3], "later": [0]}
    host.delete_topics("t")
    settle(m)
    assert m.given == {"later": [0]}
    assert [key[2] for key in host.share_states.offsets] == [0]
    host.topics["t"] = 2  # a new topic with the name of the deleted one
    settle(m)
    assert m.given == {"later": [0], "t": [0, 1]}


def test_a_member_can_change_its_topics() -> None:
    host = new_host()
    m = Member(host, "m")
    settle(m)
    answer = m.beat(topics=["u"])
    assert (m.given, answer.error_code) == ({}, 0)
    settle(m)
    assert m.given == {"u": [0, 1]}
    assert host.describe_share_group().members[0].subscribed_topic_names == ["u"]


def test_the_assignment_is_computed_once_in_its_interval() -> None:
    host = new_host()
    host.overrides["g"] = {"share.assignment.interval.ms": 1_000}
    m = Member(host, "m")
    m.beat()
    m.beat()
    assert (m.epoch, m.given, state(host)) == (2, {}, ("Stable", 3, 2))
    host.pass_time(1_000)
    m.beat()
    assert (m.epoch, m.given) == (3, {"t": [0, 1, 2, 3]})


def test_the_settings_of_a_group_apply_to_its_members() -> None:
    host = new_host()
    host.overrides["g"] = {"share.heartbeat.interval.ms": 700, "share.session.timeout.ms": 2_000}
    assert host.share_heartbeat("m").heartbeat_interval_ms == 700
    host.pass_time(2_000)
    assert state(host)[0] == "Empty"


def test_a_member_is_described_with_its_latest_client() -> None:
    host = new_host()
    settle(Member(host, "m"))
    host.share_heartbeat("m", 0, rack="r", client_id="other")
    described = host.describe_share_group()
    (member,) = described.members
    assert (member.client_id, member.rack_id, member.client_host) == ("other", "r", "/192.0.2.7")
    assert (described.assignor_name, member.member_epoch) == ("simple", 3)
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("t", [0, 1, 2, 3])


# --- the states of partitions -------------------------------------------------------------------


def test_a_lost_initialisation_of_states_is_repeated_after_30_seconds() -> None:
    host = new_host()
    host.share_states.at_once = False
    m = Member(host, "m")
    m.beat()
    m.beat()
    (change,) = host.share_states.pending
    assert [row.partition for row in change.rows] == [0, 1, 2, 3]
    assert (change.group_id, change.state_epoch, change.is_deletion) == ("g", 2, False)
    assert {row.start_offset for row in change.rows} == {-1}
    host.share_states.pending.clear()  # the requests to the share coordinator are lost
    host.pass_time(29_999)
    m.beat()
    assert not host.share_states.pending
    host.pass_time(1)
    m.beat()
    assert len(host.share_states.pending) == 1
    host.change_states()
    settle(m)
    assert m.given == {"t": [0, 1, 2, 3]}


def test_a_lost_initialisation_of_states_is_repeated_after_a_restart() -> None:
    host = new_host()
    host.share_states.at_once = False
    m = Member(host, "m")
    m.beat()
    host.share_states.pending.clear()
    host.restart()
    m.beat()
    host.change_states()
    settle(m)
    assert m.given == {"t": [0, 1, 2, 3]}


def test_a_failed_initialisation_of_states_is_repeated_at_the_next_heartbeat() -> None:
    host = new_host()
    host.share_states.failing = Code.COORDINATOR_NOT_AVAILABLE
    m = Member(host, "m")
    settle(m)
    assert m.given == {}
    host.share_states.failing = Code.NONE
    settle(m)
    assert m.given == {"t": [0, 1, 2, 3]}


def test_a_topic_deleted_during_the_initialisation_has_no_states() -> None:
    host = new_host()
    host.share_states.at_once = False
    m = Member(host, "m", "u")
    m.beat()
    host.delete_topics("u")
    host.change_states()
    settle(m)
    assert (m.given, host.share_states.offsets) == ({}, {})


def test_a_share_heartbeat_whose_records_were_dropped_is_decided_again() -> None:
    """A heartbeat initialises the states of a new partition, but its records cannot be written and
    are dropped. The next heartbeat must initialise the states again.
    """
    host = new_host()
    m = Member(host, "m")
    settle(m)
    host.topics["t"] = 5
    request = ShareGroupHeartbeatRequest("g", "m", m.epoch)
    context = RequestContext(9, 1, "client", "/192.0.2.7")
    dropped = host.coordinator.share_requests.on_heartbeat(request, context, host.now_ms)
    assert dropped.records and dropped.state_changes
    host.coordinator.on_records_dropped("g")
    settle(m)
    assert m.given == {"t": [0, 1, 2, 3, 4]}


# --- groups of other kinds ----------------------------------------------------------------------


def test_a_share_group_refuses_members_and_offsets_of_other_group_types() -> None:
    host = new_host()
    m = Member(host, "m")
    settle(m)
    for _ in ("with a member", "empty"):
        joined = host.join("g")
        assert (joined.error_code, joined.member_id) == (Code.INCONSISTENT_GROUP_PROTOCOL, "")
        assert host.sync("g", 1, "x").error_code == Code.UNKNOWN_MEMBER_ID
        assert host.heartbeat("g", 1, "x") == Code.UNKNOWN_MEMBER_ID
        assert host.leave("g", ("x", None)).members[0].error_code == Code.UNKNOWN_MEMBER_ID
        assert host.consumer_heartbeat("x").error_code == Code.GROUP_ID_NOT_FOUND
        assert host.commit("g", {"t": {0: 1}}) == {("t", 0): Code.GROUP_ID_NOT_FOUND}
        assert host.txn_commit("g", {"t": {0: 1}}) == {("t", 0): Code.GROUP_ID_NOT_FOUND}
        assert host.fetch("g", {"t": [0]}) == {("t", 0): (-1, "")}
        assert host.delete_offsets("g", {"t": [0]}) == Code.GROUP_ID_NOT_FOUND
        assert host.describe("g", 6).error_code == Code.GROUP_ID_NOT_FOUND
        assert host.state("g") == "Dead"
        assert host.describe_consumer_group().error_code == Code.GROUP_ID_NOT_FOUND
        m.leave()


def test_groups_of_other_types_refuse_share_members() -> None:
    host = new_host()
    alone(host, "classic")
    host.commit("offsets", {"t": {0: 1}})
    host.consumer_heartbeat("x", group="consumer")
    for group in ("classic", "offsets", "consumer"):
        for epoch in (0, 1, LEAVE):
            answer = host.share_heartbeat("m", epoch, group=group)
            assert answer.error_code == Code.GROUP_ID_NOT_FOUND
        assert host.describe_share_group(group).error_code == Code.GROUP_ID_NOT_FOUND
    assert host.describe_share_group("").error_code == Code.INVALID_GROUP_ID


def test_share_groups_are_listed_by_their_type() -> None:
    host = new_host()
    host.share_heartbeat("m")
    host.commit("other", {"t": {0: 1}})
    assert host.list_groups(types_filter=["Share"]) == {"g": ("share", "Stable")}
    assert host.list_groups(types_filter=["classic"]) == {"other": ("", "Empty")}


def test_a_share_group_is_deleted_with_its_states() -> None:
    host = new_host()
    m = Member(host, "m")
    settle(m)
    assert host.delete_groups("g") == [("g", Code.NON_EMPTY_GROUP)]
    assert len(host.share_states.offsets) == 4
    m.leave()
    assert host.delete_groups("g", "none") == [
        ("g", Code.NONE),
        ("none", Code.GROUP_ID_NOT_FOUND),
    ]
    assert host.share_states.offsets == {} and host.coordinator.all_groups() == []
    assert host.describe_share_group().error_code == Code.GROUP_ID_NOT_FOUND
    assert alone(host, "g")  # a classic group may use the name now
