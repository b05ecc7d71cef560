"""Members of the consumer protocol (KIP-848). The expected responses are those of Apache Kafka 4.3
(the transcripts `consumer_groups` and `consumer_groups_4`), or follow from the KIP.

After each event, the host replays the log into a new coordinator, which must reach the same state.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from helpers.group_host import GroupHost
from helpers.repeating import repeat_until

from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.consumer.consumer_groups import LONGEST_NAME_BYTES
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.request_context import RequestContext

AT_ONCE = ConsumerGroupSettings(assignment_interval_ms=0)
SESSION_MS, INTERVAL_MS, REBALANCE_MS = 45_000, 5_000, 10_000
LEAVE, LEAVE_FOR_A_WHILE = -1, -2


def new_host(**more: Any) -> GroupHost:
    return GroupHost(
        topics={"t": 4, "u": 2, "orders.a": 1, "orders.b": 2}, consumer_settings=AT_ONCE, **more
    )


class Consumer:
    """A member as its client sees it. `take` makes the client own the assigned partitions."""

    def __init__(self, host: GroupHost, name: str, *topics: str, **more: Any) -> None:
        """A client of the consumer protocol. `given` has the assigned partitions, and `owned` those
        that the client reports.
        """
        self.host, self.name, self.more = host, name, more
        self.topics = list(topics) or ["t"]
        self.epoch = 0
        self.given: dict[str, list[int]] = {}
        self.owned: dict[str, list[int]] = {}

    def beat(self, **more: Any) -> Any:
        """Send a heartbeat, and take the epoch and the assignment from the response. The first
        heartbeat includes the subscription.
        """
        if self.epoch == 0:
            more = {"subscribed_topic_names": self.topics, **self.more, **more}
        elif "instance_id" in self.more:
            more = {"instance_id": self.more["instance_id"], **more}
        answer = self.host.consumer_heartbeat(self.name, self.epoch, **more)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            given = self.host.assigned(answer)
            self.given = self.given if given is None else given
        return answer

    def take(self, **more: Any) -> Any:
        self.owned = dict(self.given)
        return self.beat(owned=self.owned, **more)

    def leave(self, epoch: int = LEAVE) -> Any:
        more = {key: value for key, value in self.more.items() if key == "instance_id"}
        return self.host.consumer_heartbeat(self.name, epoch, **more)

    def count(self) -> int:
        return sum(map(len, self.given.values()))


def settle(*members: Consumer) -> None:
    """Send heartbeats of these members until nothing changes."""
    before = None
    for _ in range(20):
        for member in members:
            member.beat()
            member.take()
        now = [(member.epoch, member.given) for member in members]
        if now == before:
            return
        before = now
    raise AssertionError("the group does not come to rest")


def state(host: GroupHost) -> tuple[str, int, int]:
    described = host.describe_consumer_group()
    return described.group_state, described.group_epoch, described.assignment_epoch


# --- joining and leaving ------------------------------------------------------------------------


def test_a_member_joins_alone() -> None:
    host = new_host()
    answer = host.consumer_heartbeat("m")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m", 2)
    assert answer.heartbeat_interval_ms == INTERVAL_MS
    assert host.assigned(answer) == {"t": [0, 1, 2, 3]}
    assert state(host) == ("Stable", 2, 2)
    assert host.consumer_heartbeat("m", 2).assignment is None
    again = host.consumer_heartbeat("m", 0)
    assert (again.member_epoch, host.assigned(again)) == (2, {"t": [0, 1, 2, 3]})


def test_a_heartbeat_with_all_fields_gets_the_assignment() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    answer = host.consumer_heartbeat(
        "m", 2, rebalance_timeout_ms=1, subscribed_topic_names=["t"], owned={"t": [0, 1, 2, 3]}
    )
    assert host.assigned(answer) == {"t": [0, 1, 2, 3]}


def test_a_member_that_reports_other_partitions_gets_its_assignment_again() -> None:
    """After a timeout, librdkafka sends its list of partitions again, but not the other fields."""
    host = new_host()
    one, two = Consumer(host, "one"), Consumer(host, "two")
    one.beat()
    all_four = {"t": [0, 1, 2, 3]}
    assert one.take().assignment is None
    two.beat()
    lost = host.consumer_heartbeat("one", one.epoch, owned=all_four)
    again = host.consumer_heartbeat("one", one.epoch, owned=all_four)
    assert len(host.assigned(again)["t"]) == 2
    assert host.assigned(again) == host.assigned(lost)
    assert host.consumer_heartbeat("one", one.epoch).assignment is None
    kept = host.assigned(again)
    acknowledged = host.consumer_heartbeat("one", one.epoch, owned=kept)
    assert acknowledged.assignment is None
    two.beat()  # The response assigns two more partitions, and is lost.
    assert two.count() == 2
    again = host.consumer_heartbeat("two", two.epoch, owned={})
    assert host.assigned(again) == two.given
    assert host.consumer_heartbeat("two", two.epoch, owned=two.given).assignment is None


def test_a_first_member_without_topics_gets_epoch_1() -> None:
    host = new_host()
    answer = host.consumer_heartbeat("m", subscribed_topic_names=[])
    assert (answer.error_code, answer.member_epoch, host.assigned(answer)) == (0, 1, {})


def test_version_0_assigns_a_member_id_and_version_1_requires_one() -> None:
    host = new_host()
    assert host.consumer_heartbeat("", version=0).member_id.startswith("member-")
    assert host.consumer_heartbeat("").error_code == Code.INVALID_REQUEST


REFUSED = pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (0, {"group": ""}, Code.INVALID_REQUEST),
        (0, {"instance_id": ""}, Code.INVALID_REQUEST),
        (0, {"rack_id": ""}, Code.INVALID_REQUEST),
        (0, {"rebalance_timeout_ms": -1}, Code.INVALID_REQUEST),
        (0, {"subscribed_topic_names": None}, Code.INVALID_REQUEST),
        (0, {"topic_partitions": None}, Code.INVALID_REQUEST),
        (0, {"owned": {"t": [0]}}, Code.INVALID_REQUEST),
        (0, {"group": "g" * 40_000}, Code.INVALID_REQUEST),
        (0, {"subscribed_topic_regex": "a" * 40_000}, Code.INVALID_REQUEST),
        (0, {"server_assignor": "best"}, Code.UNSUPPORTED_ASSIGNOR),
        (0, {"server_assignor": ""}, Code.UNSUPPORTED_ASSIGNOR),
        (0, {"subscribed_topic_regex": "a["}, Code.INVALID_REGULAR_EXPRESSION),
        (-3, {}, Code.INVALID_REQUEST),
        (-2, {}, Code.INVALID_REQUEST),
        (1, {"group": "unknown"}, Code.GROUP_ID_NOT_FOUND),
        (-1, {"group": "unknown"}, Code.GROUP_ID_NOT_FOUND),
        (1, {}, Code.UNKNOWN_MEMBER_ID),
        (-1, {}, Code.UNKNOWN_MEMBER_ID),
    ],
)


@REFUSED
def test_a_heartbeat_that_is_refused_makes_no_group(
    epoch: int, fields: dict[str, Any], code: Code
) -> None:
    host = new_host()
    assert host.consumer_heartbeat("m", epoch, **fields).error_code != Code.NONE
    assert (host.list_groups(), host.log) == ({}, [])


@REFUSED
def test_invalid_heartbeats_are_refused_and_write_nothing(
    epoch: int, fields: dict[str, Any], code: Code
) -> None:
    host = new_host()
    host.consumer_heartbeat("other")
    before = len(host.log)
    answer = host.consumer_heartbeat("m", epoch, **fields)
    assert (answer.error_code, answer.member_epoch, answer.member_id) == (code, 0, None)
    assert answer.error_message
    assert len(host.log) == before


def test_a_group_is_empty_when_its_last_member_leaves() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    answer = host.consumer_heartbeat("m", LEAVE)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, -1, 0)
    assert state(host) == ("Empty", 3, 3)
    assert host.consumer_heartbeat("m", 2).error_code == Code.UNKNOWN_MEMBER_ID
    assert host.consumer_heartbeat("m").member_epoch == 4


def test_emulating_a_release_leaves_the_last_assignment_epoch_of_an_emptied_group() -> None:
    """Apache Kafka writes it since April 2026 only (KAFKA-20442)."""
    host = GroupHost(consumer_settings=ConsumerGroupSettings(assigns_emptied=False))
    host.consumer_heartbeat("m")
    host.consumer_heartbeat("m", LEAVE)
    assert state(host) == ("Empty", 3, 2)


def test_a_full_group_refuses_a_new_member_but_not_a_known_one() -> None:
    host = GroupHost(consumer_settings=ConsumerGroupSettings(max_size=1))
    assert host.consumer_heartbeat("m").error_code == 0
    assert host.consumer_heartbeat("n").error_code == Code.GROUP_MAX_SIZE_REACHED
    assert host.consumer_heartbeat("m").error_code == 0


@pytest.mark.parametrize("letter", ["a", "\u00e4"])
def test_member_ids_are_limited_to_the_length_that_a_record_key_can_have(letter: str) -> None:
    """The record stores the length in 16 bits, and counts bytes."""
    host = new_host()
    longest = letter * (LONGEST_NAME_BYTES // len(letter.encode()))
    assert host.consumer_heartbeat(longest).error_code == 0
    assert host.consumer_heartbeat(longest + letter).error_code == Code.INVALID_REQUEST


def test_version_0_assigns_a_member_id_only_to_a_join() -> None:
    host = new_host()
    host.consumer_heartbeat("", version=0)
    assert host.consumer_heartbeat("", 1, version=0).error_code == Code.INVALID_REQUEST


def test_in_the_preview_of_3_9_a_join_must_name_a_topic() -> None:
    """The preview does not support patterns yet."""
    for is_preview, code in ((True, Code.INVALID_REQUEST), (False, Code.NONE)):
        host = GroupHost(consumer_settings=AT_ONCE._replace(is_preview=is_preview))
        assert host.consumer_heartbeat(subscribed_topic_names=[]).error_code == code


def test_fields_that_a_heartbeat_omits_remain_unchanged() -> None:
    """A heartbeat contains only what has changed since the previous one."""
    host = new_host()
    host.consumer_heartbeat(
        instance_id="i",
        rack_id="r",
        subscribed_topic_regex="u",
        server_assignor="range",
        rebalance_timeout_ms=REBALANCE_MS,
    )
    before = host.coordinator.group("g").modern.members["m"]
    assert (before.instance_id, before.rack_id, before.server_assignor) == ("i", "r", "range")
    assert before.rebalance_timeout_ms == REBALANCE_MS
    records = len(host.log)
    assert host.consumer_heartbeat("m", 2).error_code == 0
    assert len(host.log) == records
    assert host.consumer_heartbeat("m", 2, server_assignor="uniform").error_code == 0
    after = host.coordinator.group("g").modern.members["m"]
    assert after == before._replace(server_assignor="uniform")
    assert host.describe_consumer_group().members[0].rack_id == "r"


def test_a_heartbeat_with_a_pattern_and_partitions_gets_the_assignment() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    answer = host.consumer_heartbeat(
        "m", 2, rebalance_timeout_ms=1, subscribed_topic_regex="", owned={"t": [0, 1, 2, 3]}
    )
    assert host.assigned(answer) == {"t": [0, 1, 2, 3]}
    answer = host.consumer_heartbeat("m", 2, rebalance_timeout_ms=1, owned={"t": [0, 1, 2, 3]})
    assert answer.assignment is None


def test_one_tick_removes_silent_members_of_two_groups() -> None:
    """The records of both groups are in the same internal partition."""
    host = new_host(partition_count=1)
    for group in ("g", "h"):
        host.consumer_heartbeat(group=group)
    host.pass_time(SESSION_MS)
    states = {group: host.describe_consumer_group(group).group_state for group in ("g", "h")}
    assert states == {"g": "Empty", "h": "Empty"}


def test_the_tombstones_of_a_member_that_leaves_have_kafkas_order() -> None:
    host = new_host()
    m = Consumer(host, "m", "t", subscribed_topic_regex="u")
    m.beat()
    host.pass_time(0)
    m.beat()
    before = len(host.log)
    m.leave()
    assert [row[1][:2] for row in host.log[before:] if row[1] is not None] == [
        # The records are the current assignment, target assignment, member, pattern, group, and the
        # epoch of the target assignment (KAFKA-20442).
        bytes((0, version))
        for version in (8, 7, 5, 16, 3, 6)
    ]


# --- reconciliation (KIP-848, "Rebalance Process") ----------------------------------------------


def test_partitions_are_assigned_to_another_member_after_their_revocation() -> None:
    host = new_host()
    one, two = Consumer(host, "one"), Consumer(host, "two")
    one.beat()
    one.take()
    assert (two.beat().member_epoch, two.count()) == (3, 0)
    assert state(host) == ("Reconciling", 3, 3)
    assert (one.beat().member_epoch, one.count()) == (2, 2)
    assert (one.beat().assignment, two.beat().assignment) == (None, None)
    assert one.take().member_epoch == 3
    two.beat()
    assert sorted(one.given["t"] + two.given["t"]) == [0, 1, 2, 3]
    two.take()
    assert state(host) == ("Stable", 3, 3)


def test_a_member_that_does_not_revoke_within_its_rebalance_timeout_is_removed() -> None:
    host = new_host()
    one, two = Consumer(host, "one", rebalance_timeout_ms=REBALANCE_MS), Consumer(host, "two")
    one.beat()
    two.beat()
    one.beat()
    host.pass_time(REBALANCE_MS - 1)
    assert one.beat().error_code == 0
    host.pass_time(1)
    assert one.beat().error_code == Code.UNKNOWN_MEMBER_ID
    two.beat()
    assert two.count() == 4


def test_a_change_that_could_not_be_written_does_not_end_the_time_for_revoking_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = new_host()
    one, two = Consumer(host, "one", rebalance_timeout_ms=REBALANCE_MS), Consumer(host, "two")
    one.beat()
    two.beat()
    one.beat()
    with monkeypatch.context() as patch:
        patch.setattr(host, "handle", lambda result: None)  # as without disk space
        with pytest.raises(KeyError):
            one.take()
    assert one.beat().error_code == 0
    host.pass_time(REBALANCE_MS - 1)
    assert one.beat().error_code == 0
    host.pass_time(1)
    assert one.beat().error_code == Code.UNKNOWN_MEMBER_ID


def test_a_member_that_revoked_in_time_is_not_removed() -> None:
    host = new_host()
    one, two = Consumer(host, "one", rebalance_timeout_ms=REBALANCE_MS), Consumer(host, "two")
    one.beat()
    two.beat()
    one.beat()
    one.take()
    host.pass_time(REBALANCE_MS)
    assert one.beat().error_code == 0


def test_a_silent_member_is_removed_after_its_session() -> None:
    host = new_host()
    one, two = Consumer(host, "one"), Consumer(host, "two")
    one.beat()
    host.pass_time(SESSION_MS - 1)
    two.beat()
    host.pass_time(1)
    assert one.beat().error_code == Code.UNKNOWN_MEMBER_ID
    two.beat()
    assert two.count() == 4


def test_two_members_that_time_out_together_raise_the_epoch_once() -> None:
    host = new_host()
    one, two, three = (Consumer(host, name) for name in ("one", "two", "three"))
    one.beat()
    two.beat()
    epoch = state(host)[1]
    host.pass_time(SESSION_MS)
    assert state(host) == ("Empty", epoch + 1, epoch + 1)
    three.beat()
    assert three.count() == 4


def test_session_and_rebalance_timeouts_start_again_after_a_restart() -> None:
    host = new_host()
    one, two = Consumer(host, "one", rebalance_timeout_ms=REBALANCE_MS), Consumer(host, "two")
    one.beat()
    two.beat()
    one.beat()
    host.pass_time(REBALANCE_MS - 1)
    host.restart()
    host.pass_time(REBALANCE_MS - 1)
    assert one.beat().error_code == 0
    host.pass_time(1)
    assert one.beat().error_code == Code.UNKNOWN_MEMBER_ID
    host.pass_time(SESSION_MS)
    assert two.beat().error_code == Code.UNKNOWN_MEMBER_ID


def test_after_a_power_loss_all_join_again() -> None:
    host = new_host()
    Consumer(host, "one").beat()
    host.lose_power({})
    assert host.consumer_heartbeat("one", 2).error_code == Code.UNKNOWN_MEMBER_ID
    assert state(host)[0] == "Empty"


# --- epochs (KIP-848, "Heartbeat Handling") -----------------------------------------------------


def test_a_heartbeat_may_have_the_current_or_with_the_same_partitions_the_last_epoch() -> None:
    """A member whose last response was lost sends its former epoch. This is accepted only if the
    partitions that it reports are those of its assignment or fewer.
    """
    host = new_host()
    one, two = Consumer(host, "one"), Consumer(host, "two")
    one.beat()
    two.beat()
    settle(one, two)
    epoch = one.epoch
    beat = host.consumer_heartbeat
    assert beat("one", epoch + 1).error_code == Code.FENCED_MEMBER_EPOCH
    assert beat("one", epoch - 1).error_code == Code.FENCED_MEMBER_EPOCH
    assert beat("one", epoch - 1, owned={"t": [0, 1, 2, 3]}).error_code == Code.FENCED_MEMBER_EPOCH
    assert beat("one", epoch - 1, owned=one.owned).member_epoch == epoch
    assert beat("one", epoch - 1, owned={}).member_epoch == epoch
    assert beat("one", epoch).error_code == 0


# --- subscriptions ------------------------------------------------------------------------------


def test_the_assignment_follows_the_subscription() -> None:
    host = new_host()
    m = Consumer(host, "m", "t")
    m.beat()
    m.take()
    m.beat(subscribed_topic_names=["u", "t"])
    assert (m.epoch, m.given) == (3, {"t": [0, 1, 2, 3], "u": [0, 1]})
    m.take()
    assert m.beat(subscribed_topic_names=["t", "u"]).assignment is None
    m.beat(subscribed_topic_names=["u"])
    assert (m.epoch, m.given) == (3, {"u": [0, 1]})
    m.take()
    assert m.epoch == 4
    m.beat(subscribed_topic_names=["missing"])
    m.take()
    assert (m.epoch, m.given) == (5, {})


def test_the_assignment_follows_the_growth_deletion_and_creation_of_a_topic() -> None:
    host = new_host()
    m = Consumer(host, "m", "u")
    m.beat()
    m.take()
    host.topics["u"] = 3
    m.beat()
    assert (m.epoch, m.given) == (3, {"u": [0, 1, 2]})
    m.take()
    del host.topics["u"]
    m.beat()
    m.take()
    assert (m.epoch, m.given) == (4, {})
    host.topics["u"] = 1
    m.beat()
    assert (m.epoch, m.given) == (5, {"u": [0]})
    host.topics["other"] = 1
    assert m.beat().member_epoch == 5


def test_the_assignor_that_most_members_want_is_used() -> None:
    host = new_host()
    for name, assignor in (("a", "range"), ("b", "range"), ("c", "uniform")):
        host.consumer_heartbeat(name, server_assignor=assignor)
    described = host.describe_consumer_group()
    assert described.assignor_name == "range"
    targets = [
        row.partitions
        for member in described.members
        for row in member.target_assignment.topic_partitions
    ]
    assert targets == [[0, 1], [2], [3]]


def test_the_assignment_is_computed_once_in_an_interval() -> None:
    """KIP-1263."""
    host = GroupHost(topics={"t": 4})
    one, two, three = (Consumer(host, name) for name in ("one", "two", "three"))
    one.beat()
    assert (one.epoch, one.count()) == (2, 4)
    two.beat()
    three.beat()
    assert (two.epoch, two.count()) == (2, 0)
    assert state(host) == ("Assigning", 4, 2)
    host.pass_time(999)
    assert two.beat().member_epoch == 2
    host.pass_time(1)
    assert two.beat().member_epoch == 4
    settle(one, two, three)
    assert sorted(member.count() for member in (one, two, three)) == [1, 1, 2]


def test_a_heartbeat_whose_records_were_dropped_is_decided_again_immediately() -> None:
    """The coordinator looks the topics up again. The next assignment is not delayed by the one that
    was not written.
    """
    host = GroupHost(topics={"t": 4})
    m = Consumer(host, "m")
    m.beat()
    m.take()
    host.pass_time(1_000)
    host.topics["t"] = 6
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=m.epoch)
    context = RequestContext(9, 1, "client", "/192.0.2.7")
    dropped = host.coordinator.membership.on_consumer_group_heartbeat(request, context, host.now_ms)
    assert dropped.records
    host.coordinator.on_records_dropped("g")
    m.beat()
    assert (m.epoch, m.count()) == (3, 6)


def test_unsubscribed_topics_are_revoked_before_the_next_assignment() -> None:
    host = GroupHost(topics={"t": 2, "u": 1})
    m = Consumer(host, "m", "t")
    m.beat()
    m.take()
    m.beat(subscribed_topic_names=["u"])
    assert (m.epoch, m.given) == (2, {})
    m.take()
    assert (m.beat().assignment, m.epoch) == (None, 2)
    host.pass_time(1_000)
    m.beat()
    assert (m.epoch, m.given) == (3, {"u": [0]})


# --- patterns (KIP-848, "Regular Expressions") --------------------------------------------------


def test_topics_that_match_a_pattern_are_assigned() -> None:
    host = new_host()
    m = Consumer(host, "m", more=None)
    m.more = {"subscribed_topic_names": None, "subscribed_topic_regex": r"orders\..*"}
    m.beat()
    assert (m.epoch, m.given) == (1, {})
    host.pass_time(0)
    m.beat()
    assert m.given == {"orders.a": [0], "orders.b": [0, 1]}
    member = host.describe_consumer_group().members[0]
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([], r"orders\..*")
    host.topics["orders.c"] = 1
    m.beat()
    host.pass_time(1_000)
    m.beat()
    assert sorted(m.given) == ["orders.a", "orders.b", "orders.c"]
    m.take()
    m.beat(subscribed_topic_regex="")
    m.take()
    assert m.given == {}
    assert not any(key[:2] == b"\0\x10" for key in living_keys(host))


def test_topics_by_name_and_by_pattern_are_both_assigned() -> None:
    host = new_host()
    m = Consumer(host, "m", "u", subscribed_topic_regex="orders.a|u")
    m.beat()
    host.pass_time(0)
    m.beat()
    assert m.given == {"orders.a": [0], "u": [0, 1]}


def test_the_topics_of_each_members_own_pattern_are_assigned() -> None:
    host = new_host()
    members = [
        Consumer(host, name, subscribed_topic_names=[], subscribed_topic_regex=f"orders.{name}")
        for name in "ab"
    ]
    for _ in range(3):
        for m in members:
            m.beat()
        host.pass_time(0)
    assert [m.given for m in members] == [{"orders.a": [0]}, {"orders.b": [0, 1]}]


def test_a_pattern_that_another_member_uses_applies_immediately() -> None:
    host = new_host()
    one = Consumer(host, "one", "u", subscribed_topic_regex="orders.b")
    one.beat()
    host.pass_time(0)
    settle(one)
    two = Consumer(host, "two", "u", subscribed_topic_regex="orders.b")
    epoch = one.epoch
    assert two.beat().member_epoch == epoch + 1
    two.leave()
    assert any(key[:2] == b"\0\x10" for key in living_keys(host))


def test_an_invalid_pattern_is_refused_and_changes_nothing() -> None:
    host = new_host()
    m = Consumer(host, "m", "u")
    m.beat()
    answer = m.beat(subscribed_topic_regex="a(?=b)")
    assert answer.error_code == Code.INVALID_REGULAR_EXPRESSION
    assert "RE2" in answer.error_message
    assert m.beat().error_code == 0


def test_patterns_are_resolved_after_a_restart() -> None:
    host = new_host()
    m = Consumer(host, "m", "u", subscribed_topic_regex="orders.b")
    m.beat()
    host.restart()
    m.beat()
    host.pass_time(0)
    m.beat()
    assert m.given == {"orders.b": [0, 1], "u": [0, 1]}


def test_one_tick_resolves_the_patterns_of_two_groups() -> None:
    """The records of both groups are in the same internal partition."""
    host = new_host(partition_count=1)
    for group in ("g", "h"):
        host.consumer_heartbeat(
            group=group, subscribed_topic_names=None, subscribed_topic_regex="orders.a"
        )
    host.pass_time(0)
    for group in ("g", "h"):
        answer = host.consumer_heartbeat(epoch=1, group=group)
        assert host.assigned(answer) == {"orders.a": [0]}, group


def test_without_a_preference_the_first_assignor_of_the_settings_is_used() -> None:
    for assignors in (("uniform", "range"), ("range", "uniform")):
        settings = ConsumerGroupSettings(assignment_interval_ms=0, assignors=assignors)
        host = GroupHost(topics={"t": 4}, consumer_settings=settings)
        host.consumer_heartbeat()
        assert host.describe_consumer_group().assignor_name == assignors[0]


def test_patterns_match_only_topics_that_the_requesting_member_may_describe() -> None:
    """As in Apache Kafka 4.3, one member's heartbeat triggers the look-up of topics, and its result
    applies to the whole group.
    """
    host = new_host()
    host.directory.hidden_from = {"other": {"orders.b"}}
    hidden = Consumer(host, "m", more=None)
    hidden.more = {"subscribed_topic_names": None, "subscribed_topic_regex": r"orders\..*"}
    hidden.beat(client_id="other")
    host.pass_time(0)
    hidden.beat(client_id="other")
    assert hidden.given == {"orders.a": [0]}
    member = host.describe_consumer_group().members[0]
    assert [row.topic_name for row in member.target_assignment.topic_partitions] == ["orders.a"]
    host.restart()
    host.pass_time(60)
    hidden.beat(client_id="other")
    host.pass_time(60)
    hidden.beat(client_id="other")
    assert hidden.given == {"orders.a": [0]}
    hidden.leave()
    seeing = Consumer(host, "n", more=None)
    seeing.more = hidden.more
    seeing.beat()
    host.pass_time(2_000)
    seeing.beat()
    assert seeing.given == {"orders.a": [0], "orders.b": [0, 1]}


def test_patterns_are_resolved_in_slices() -> None:
    """Each tick does only a part of a look-up. A pattern that arrives meanwhile is looked up
    afterwards.
    """
    host = new_host()
    heavy = "([a-z.]?[a-z._]?){500}" * 4
    m = Consumer(host, "m", "u", subscribed_topic_regex=heavy)
    m.beat()
    host.pass_time(0)
    other = Consumer(host, "other", "u", subscribed_topic_regex="orders.b")
    other.beat()
    assert host.coordinator.group("g").modern.patterns == {}
    host.pass_time(500)
    assert set(host.coordinator.group("g").modern.patterns) == {heavy}
    host.pass_time(2_000)
    patterns = host.coordinator.group("g").modern.patterns
    assert patterns[heavy].topics == ("orders.a", "orders.b", "t", "u")
    assert patterns["orders.b"].topics == ("orders.b",)


def looks(host: GroupHost) -> list[int]:
    """A list to which the current time is added whenever patterns are looked up after this call."""
    times: list[int] = []
    names = host.directory.names

    def counted() -> list[str]:
        times.append(host.now_ms)
        return names()

    host.directory.names = counted  # type: ignore[method-assign]
    return times


def test_a_group_without_patterns_does_not_list_the_topics() -> None:
    host = new_host()
    times = looks(host)
    one, two, three = (Consumer(host, name) for name in ("one", "two", "three"))
    for member in (one, two, three):
        member.beat()
    host.pass_time(SESSION_MS - 1)
    three.beat()
    host.pass_time(2_000)
    assert list(host.coordinator.group("g").modern.members) == ["three"]
    host.topics["later"] = 1
    three.beat()
    host.pass_time(2_000)
    assert times == []


def test_patterns_are_resolved_after_topic_changes_and_after_the_refresh_interval() -> None:
    """Patterns are looked up at most once a second, no matter how often topics change."""
    settings = AT_ONCE._replace(regex_refresh_interval_ms=10_000)
    host = GroupHost(topics={"t": 1}, consumer_settings=settings)
    m = Consumer(host, "m", "t", subscribed_topic_regex="t.*")
    times = looks(host)
    start_ms = host.now_ms
    m.beat()
    host.pass_time(100)
    host.topics["ta"] = 1
    m.beat()
    host.pass_time(200)
    host.topics["tb"] = 1
    m.beat()
    host.pass_time(3_000)
    m.beat()
    host.pass_time(0)
    assert [ms - start_ms for ms in times] == [0, 1_000]
    assert set(m.given) == {"t", "ta", "tb"}
    m.take()
    records = len(host.log)
    host.pass_time(11_000 - 1 - (host.now_ms - start_ms))
    m.beat()
    host.pass_time(0)
    assert len(times) == 2
    host.pass_time(1)
    m.beat()
    host.pass_time(0)
    assert [ms - start_ms for ms in times] == [0, 1_000, 11_000]
    assert len(host.log) == records, "nothing new was found, and nothing is written"


def test_a_pattern_without_matches_is_recorded_and_does_not_raise_the_epoch() -> None:
    host = new_host()
    host.wall_ahead_ms = 7_000
    m = Consumer(host, "m", "t", subscribed_topic_regex="nothing")
    n = Consumer(host, "n", "t")
    m.beat()
    n.beat()
    epoch = state(host)[1]
    host.pass_time(0)
    patterns = host.coordinator.group("g").modern.patterns
    assert {regex: row.topics for regex, row in patterns.items()} == {"nothing": ()}
    assert patterns["nothing"].timestamp_ms == host.now_ms + 7_000, "by the wall clock"
    assert state(host)[1] == epoch


def test_a_pattern_with_matches_raises_the_epoch() -> None:
    """The same look-up includes a second pattern, which matches no topic."""
    host = new_host()
    one = Consumer(host, "one", "t", subscribed_topic_regex="orders.a")
    two = Consumer(host, "two", "t", subscribed_topic_regex="nothing")
    one.beat()
    two.beat()
    epoch = state(host)[1]
    host.pass_time(0)
    assert state(host)[1] == epoch + 1
    settle(one, two)
    assert one.given["orders.a"] == [0]


def test_a_pattern_that_arrives_during_a_lookup_does_not_delay_the_others() -> None:
    host = new_host()
    heavy = "([a-z.]?[a-z._]?){500}" * 4
    one = Consumer(host, "one", "u", subscribed_topic_regex=heavy)
    two = Consumer(host, "two", "u", subscribed_topic_regex="orders.a")
    one.beat()
    two.beat()
    host.pass_time(0)
    one.beat(subscribed_topic_regex="orders.b")
    consumer = host.coordinator.group("g").modern
    assert consumer.patterns == {} and consumer.lookup is not None
    repeat_until(lambda: consumer.lookup is None, lambda: host.pass_time(1))
    assert set(consumer.patterns) == {"orders.a"}
    host.pass_time(1_000)
    assert set(consumer.patterns) == {"orders.a", "orders.b"}


@pytest.mark.parametrize("ticks", [1, 3])
def test_a_topic_created_during_a_lookup_of_patterns_is_found_soon(ticks: int) -> None:
    """A look-up uses the topics that existed at its start. The topic may be created during any
    slice of the look-up.
    """
    host = new_host()
    heavy = "([a-z.]?[a-z._]?){500}" * 4
    m = Consumer(host, "m", "u", subscribed_topic_regex=heavy)
    m.beat()
    consumer = host.coordinator.group("g").modern
    for _ in range(ticks):
        host.pass_time(2)
    assert consumer.lookup is not None, "the lookup is under way"
    host.topics["later"] = 1
    for _ in range(4):
        host.pass_time(1_000)
        m.beat()
    assert "later" in consumer.patterns[heavy].topics
    assert m.given["later"] == [0]


def test_patterns_are_resolved_in_a_tick_that_removes_a_silent_member() -> None:
    """One tick has two things to do: to remove a silent member and to resolve a pattern."""
    host = new_host()
    silent = Consumer(host, "silent")
    silent.beat()
    host.pass_time(SESSION_MS - 1)
    host.now_ms += 1
    m = Consumer(host, "m", "u", subscribed_topic_regex="orders.a")
    m.beat()
    host.pass_time(1)
    assert list(host.coordinator.group("g").modern.members) == ["m"]
    m.beat()
    assert m.given["orders.a"] == [0]


def living_keys(host: GroupHost) -> set[bytes]:
    """The keys that would remain after compaction of the log."""
    values = {key: value for _, key, value, _ in host.log if key is not None}
    return {key for key, value in values.items() if value is not None}


# --- static members (KIP-848, "Static Membership") ----------------------------------------------


def test_a_static_member_can_leave_temporarily_and_return() -> None:
    host = new_host()
    first = Consumer(host, "first", instance_id="i")
    second = Consumer(host, "second", instance_id="i")
    first.beat()
    first.take()
    assert second.beat().error_code == Code.UNRELEASED_INSTANCE_ID
    assert first.leave(LEAVE_FOR_A_WHILE).member_epoch == -2
    assert state(host) == ("Reconciling", 2, 2)
    assert first.beat().error_code == Code.FENCED_MEMBER_EPOCH
    second.beat()
    assert (second.epoch, second.given, state(host)) == (2, first.given, ("Stable", 2, 2))
    assert first.beat().error_code == Code.FENCED_INSTANCE_ID
    assert first.leave().error_code == Code.FENCED_INSTANCE_ID
    stranger = host.consumer_heartbeat("second", 2, instance_id="j")
    assert stranger.error_code == Code.UNKNOWN_MEMBER_ID
    assert second.leave().member_epoch == -1
    assert state(host) == ("Empty", 3, 3)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_static_member_that_left_during_a_revocation_keeps_its_session(
    restarts: bool,
) -> None:
    """The partitions that the member had to revoke are free at once, even if the coordinator
    restarts.
    """
    host = new_host()
    one = Consumer(host, "one", "t", instance_id="i", rebalance_timeout_ms=REBALANCE_MS)
    one.beat()
    one.take()
    other = Consumer(host, "other", "t")
    other.beat()
    one.beat()
    assert one.count() == 2
    one.leave(LEAVE_FOR_A_WHILE)
    if restarts:
        host.restart()
    host.pass_time(REBALANCE_MS + 1)
    other.beat()
    back = Consumer(host, "back", "t", instance_id="i")
    assert back.beat().error_code == 0
    assert back.count() == 2
    other.take()
    assert other.count() == 2


def test_a_static_member_that_does_not_return_is_removed_after_its_session() -> None:
    host = new_host()
    first, other = Consumer(host, "first", instance_id="i"), Consumer(host, "other")
    first.beat()
    first.leave(LEAVE_FOR_A_WHILE)
    host.pass_time(SESSION_MS - 1)
    other.beat()
    assert other.count() == 0
    host.pass_time(1)
    other.beat()
    assert other.count() == 4


def test_owned_partitions_count_although_a_heartbeat_names_their_topic_twice() -> None:
    """If the second entry of the topic were ignored, the partition in it would get two owners."""
    host = new_host()
    first, second = Consumer(host, "a"), Consumer(host, "b")
    first.beat()
    first.take()
    second.beat()
    first.beat()
    assert first.given == {"t": [0, 1]}, "it is to give the others up"
    topic_id = host.directory.topic("t")[0]  # type: ignore[index]
    for named in ([[2, 3], [0, 1]], [[0, 1], [2, 3]], [[3], [0, 1]]):
        rows = [TopicPartitions(topic_id, numbers) for numbers in named]
        first.beat(topic_partitions=rows)
        assert second.beat().error_code == 0
        assert second.count() < 2, named
    first.take()
    second.beat()
    assert second.given == {"t": [2, 3]}


def test_a_static_member_can_join_again_with_its_own_member_id() -> None:
    """The client may have lost the response, or all of its state."""
    host = new_host()
    first = Consumer(host, "first", instance_id="i")
    first.beat()
    epoch = first.epoch
    first.epoch = 0
    assert first.beat().error_code == 0
    assert (first.epoch, first.count()) == (epoch, 4)


def test_a_member_may_add_its_instance_id_later() -> None:
    """A member that adds an instance id remains the same member, so the limit on the group's size
    counts it only once.
    """
    host = GroupHost(topics={"t": 4}, consumer_settings=AT_ONCE._replace(max_size=1))
    host.consumer_heartbeat("m")
    assert host.consumer_heartbeat("m", 0, instance_id="i").error_code == 0
    consumer = host.coordinator.group("g").modern
    assert (list(consumer.members), consumer.static_members) == (["m"], {"i": "m"})


# --- settings of a group ------------------------------------------------------------------------


def test_a_group_has_settings_of_its_own() -> None:
    host = new_host()
    host.overrides["g"] = {
        "consumer.heartbeat.interval.ms": 6_000,
        "consumer.session.timeout.ms": 1_000,
        "consumer.assignment.interval.ms": 500,
    }
    one, two = Consumer(host, "one"), Consumer(host, "two")
    assert one.beat().heartbeat_interval_ms == 6_000
    host.overrides["g"]["consumer.heartbeat.interval.ms"] = 7_000
    assert one.beat().heartbeat_interval_ms == 7_000
    assert two.beat().member_epoch == 2
    host.pass_time(500)
    assert two.beat().member_epoch == 3
    host.pass_time(500)
    assert one.beat().error_code == Code.UNKNOWN_MEMBER_ID


def test_an_assignor_that_the_settings_no_longer_have_is_not_used_after_a_restart() -> None:
    """A member may still prefer the assignor, since its record says so."""
    host = new_host()
    Consumer(host, "m", server_assignor="range").beat()
    assert host.describe_consumer_group().assignor_name == "range"
    host.consumer_settings = AT_ONCE._replace(assignors=("uniform",))
    host.restart()
    assert host.describe_consumer_group().assignor_name == "uniform"


# --- offsets ------------------------------------------------------------------------------------


def commit(host: GroupHost, epoch: int, member: str, partition: int = 0, version: int = 9) -> Code:
    """Commit an offset with the member's epoch. Gives the error code."""
    answer = host.commit(
        "g", {"t": {partition: 5}}, generation=epoch, member=member, version=version
    )
    return Code(answer["t", partition])


def test_commits_are_checked_by_member_epoch() -> None:
    host = new_host()
    one, two = Consumer(host, "one"), Consumer(host, "two")
    one.beat()
    one.take()
    two.beat()
    settle(one, two)
    mine, theirs = one.given["t"][0], two.given["t"][0]
    assert commit(host, 3, "one", mine) == Code.NONE
    # For the current epoch, the coordinator does not check who owns the partition.
    assert commit(host, 3, "one", theirs) == Code.NONE
    # KIP-1251
    assert commit(host, 2, "one", mine) == Code.NONE
    assert commit(host, 2, "one", theirs) == Code.STALE_MEMBER_EPOCH
    assert commit(host, 1, "one", mine) == Code.STALE_MEMBER_EPOCH
    assert commit(host, 2, "two", theirs) == Code.STALE_MEMBER_EPOCH
    assert commit(host, 4, "one", mine) == Code.STALE_MEMBER_EPOCH
    assert commit(host, 3, "one", mine, version=8) == Code.UNSUPPORTED_VERSION
    assert commit(host, 3, "absent") == Code.UNKNOWN_MEMBER_ID
    assert commit(host, -1, "") == Code.UNKNOWN_MEMBER_ID
    one.leave()
    two.leave()
    assert commit(host, -1, "") == Code.NONE


def test_in_the_preview_of_3_9_commits_need_the_current_member_epoch() -> None:
    """In the preview, only the member's epoch is checked, not the owner of the partition."""
    host = GroupHost(
        topics={"t": 1},
        consumer_settings=ConsumerGroupSettings(assignment_interval_ms=0, is_preview=True),
    )
    assert host.consumer_heartbeat("m", version=0).member_epoch == 1
    assert commit(host, 1, "m") == Code.NONE
    assert commit(host, 2, "m") == Code.STALE_MEMBER_EPOCH
    assert commit(host, 1, "absent") == Code.UNKNOWN_MEMBER_ID


def test_the_preview_of_3_9_refuses_earlier_epochs_and_transactions_without_a_member() -> None:
    host = GroupHost(
        topics={"t": 4},
        consumer_settings=ConsumerGroupSettings(assignment_interval_ms=0, is_preview=True),
    )
    one, two = (Consumer(host, name, version=0) for name in ("one", "two"))
    one.beat()
    one.take(version=0)
    two.beat()
    settle(one, two)
    mine = one.given["t"][0]
    assert commit(host, one.epoch, "one", mine) == Code.NONE
    assert commit(host, one.epoch - 1, "one", mine) == Code.STALE_MEMBER_EPOCH, "not by KIP-1251"
    answer = host.txn_commit("g", {"t": {0: 5}})
    assert answer == {("t", 0): Code.UNKNOWN_MEMBER_ID}


def test_with_an_earlier_epoch_a_member_may_commit_only_its_own_partitions() -> None:
    """The rule is that of KIP-1251. A member owns no partitions of a deleted topic."""
    host = new_host()
    one, two = Consumer(host, "one"), Consumer(host, "two")
    one.beat()
    one.take()
    two.beat()
    settle(one, two)
    mine, theirs = one.given["t"][0], two.given["t"][0]
    answer = host.commit("g", {"t": {mine: 11, theirs: 12}}, generation=2, member="one")
    assert answer == {("t", mine): Code.NONE, ("t", theirs): Code.STALE_MEMBER_EPOCH}
    assert host.fetch("g") == {("t", mine): (11, "")}


@pytest.mark.parametrize(
    ("no_member", "code"),
    [
        ({}, Code.NONE),
        ({"generation": 0}, Code.UNKNOWN_MEMBER_ID),
        ({"member": "somebody"}, Code.UNKNOWN_MEMBER_ID),
        ({"instance": "somebody"}, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_txn_offset_commit_without_a_member_may_have_no_epoch_or_instance(
    no_member: dict[str, Any], code: Code
) -> None:
    host = new_host()
    Consumer(host, "one").beat()
    assert host.txn_commit("g", {"t": {0: 5}}, **no_member) == {("t", 0): code}


def test_a_partition_may_be_committed_until_it_is_revoked() -> None:
    host = new_host()
    one, two = Consumer(host, "one"), Consumer(host, "two")
    one.beat()
    one.take()
    two.beat()
    one.beat()
    given_up = next(number for number in range(4) if number not in one.given["t"])
    assert commit(host, 2, "one", given_up) == Code.NONE
    one.take()
    assert commit(host, 2, "one", given_up) == Code.STALE_MEMBER_EPOCH


def test_txn_offset_commits_are_checked_by_member_epoch() -> None:
    host = new_host()
    Consumer(host, "one").beat()

    def in_txn(epoch: int, member: str) -> Code:
        answer = host.txn_commit("g", {"t": {0: 5}}, generation=epoch, member=member)
        return Code(answer["t", 0])

    assert in_txn(2, "one") == Code.NONE
    assert in_txn(1, "one") == Code.ILLEGAL_GENERATION
    assert in_txn(3, "one") == Code.ILLEGAL_GENERATION
    assert in_txn(2, "absent") == Code.UNKNOWN_MEMBER_ID
    assert in_txn(-1, "") == Code.NONE


def test_offsets_are_fetched_in_the_members_epoch() -> None:
    host = new_host()
    Consumer(host, "one").beat()
    commit(host, 2, "one")

    def fetch(member: str | None, epoch: int) -> tuple[Code, int]:
        group = OffsetFetchRequestGroup("g", member, epoch, None)
        answer = host.call("OffsetFetch", 9, groups=[group]).groups[0]
        return Code(answer.error_code), len(answer.topics)

    assert fetch("one", 2) == (Code.NONE, 1)
    assert fetch(None, -1) == (Code.NONE, 1)
    assert fetch("one", 1) == (Code.STALE_MEMBER_EPOCH, 0)
    assert fetch("one", 3) == (Code.STALE_MEMBER_EPOCH, 0)
    assert fetch("absent", 2) == (Code.UNKNOWN_MEMBER_ID, 0)


def test_offsets_are_committed_and_fetched_by_topic_id() -> None:
    host = new_host()
    t, u, unknown = host.directory.topic("t"), host.directory.topic("u"), uuid.UUID(int=99)
    assert t is not None and u is not None

    def commit_ids(offsets: dict[uuid.UUID | None, dict[int, int]]) -> list[Any]:
        topics = [
            OffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=[OffsetCommitRequestPartition(*row) for row in rows.items()],
            )
            for topic_id, rows in offsets.items()
        ]
        answer = host.call("OffsetCommit", 10, group_id="g", topics=topics)
        return [
            (topic.topic_id, row.partition_index, row.error_code)
            for topic in answer.topics
            for row in topic.partitions
        ]

    assert commit_ids({t[0]: {0: 5, 9: 1}, unknown: {0: 1}, None: {0: 1}, u[0]: {1: 7}}) == [
        (t[0], 0, Code.NONE),
        (t[0], 9, Code.UNKNOWN_TOPIC_OR_PARTITION),
        (u[0], 1, Code.NONE),
        (unknown, 0, Code.UNKNOWN_TOPIC_ID),
        (None, 0, Code.UNKNOWN_TOPIC_ID),
    ]
    assert host.fetch("g") == {("t", 0): (5, ""), ("u", 1): (7, "")}

    def fetch_ids(wanted: list[Any] | None) -> list[Any]:
        topics = None
        if wanted is not None:
            topics = [OffsetFetchRequestTopics("", one, [0]) for one in wanted]
        group = OffsetFetchRequestGroup("g", topics=topics)
        answer = host.call("OffsetFetch", 10, groups=[group]).groups[0]
        return [
            (topic.topic_id, row.partition_index, row.committed_offset, row.error_code)
            for topic in answer.topics
            for row in topic.partitions
        ]

    assert fetch_ids([t[0], unknown]) == [
        (t[0], 0, 5, Code.NONE),
        (unknown, 0, -1, Code.UNKNOWN_TOPIC_ID),
    ]
    assert fetch_ids(None) == [(t[0], 0, 5, Code.NONE), (u[0], 1, 7, Code.NONE)]
    answer = host.call(
        "OffsetFetch", 10, groups=[OffsetFetchRequestGroup("g", topics=[unknown_topic(unknown)])]
    )
    assert answer.groups[0].topics[0].partitions[0].committed_leader_epoch == -1
    del host.topics["t"]  # the topic's offsets remain for a while
    assert fetch_ids(None) == [(u[0], 1, 7, Code.NONE)], "a topic without an id has no name here"


def unknown_topic(topic_id: uuid.UUID) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics("", topic_id, [0])


def test_deleting_an_empty_group_removes_its_offsets_and_records() -> None:
    host = new_host()
    m = Consumer(host, "m", "t", subscribed_topic_regex="u")
    m.beat()
    host.pass_time(0)
    commit(host, m.epoch, "m")
    assert host.delete_groups("g") == [("g", Code.NON_EMPTY_GROUP)]
    m.leave()
    assert host.delete_groups("g") == [("g", Code.NONE)]
    assert living_keys(host) == set()
    assert host.describe_consumer_group().error_code == Code.GROUP_ID_NOT_FOUND


def test_an_empty_group_without_offsets_is_removed_automatically() -> None:
    host = new_host()
    m = Consumer(host, "m")
    m.beat()
    m.leave()
    host.pass_time(2 * host.settings.offsets_retention_check_interval_ms)
    assert living_keys(host) == set()


# --- descriptions -------------------------------------------------------------------------------


def test_a_group_is_listed_by_its_type() -> None:
    host = new_host()
    Consumer(host, "m").beat()
    listed = host.call("ListGroups", 5, states_filter=[], types_filter=["Consumer"]).groups
    assert [
        (row.group_id, row.protocol_type, row.group_state, row.group_type) for row in listed
    ] == [("g", "consumer", "Stable", "consumer")]
    assert host.call("ListGroups", 5, types_filter=["classic"]).groups == []


def test_describe_groups_does_not_find_a_consumer_group() -> None:
    host = new_host()
    Consumer(host, "m").beat()
    older = host.call("DescribeGroups", 5, groups=["g"]).groups[0]
    assert (older.error_code, older.group_state) == (0, "Dead")
    later = host.call("DescribeGroups", 6, groups=["g"]).groups[0]
    assert (later.error_code, later.group_state) == (Code.GROUP_ID_NOT_FOUND, "Dead")


def test_a_description_has_member_types_from_version_1_on() -> None:
    host = new_host()
    Consumer(host, "m").beat()
    assert host.describe_consumer_group(version=1).members[0].member_type == 1
    assert host.describe_consumer_group(version=0).members[0].member_type == -1


def test_a_heartbeat_with_a_null_topic_id_is_accepted() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    assert (
        host.consumer_heartbeat("m", 2, topic_partitions=[TopicPartitions(None, [1])]).error_code
        == 0
    )


# --- offsets and retention ----------------------------------------------------------------------


def test_offsets_of_topics_that_no_member_wants_may_be_deleted() -> None:
    host = new_host()
    m = Consumer(host, "m", "t")
    m.beat()
    for topic in ("t", "u"):
        codes = host.commit("g", {topic: {0: 5}}, generation=m.epoch, member="m")
        assert codes == {(topic, 0): Code.NONE}
    assert host.delete_offsets("g", {"t": [0], "u": [0]}) == {
        ("t", 0): Code.GROUP_SUBSCRIBED_TO_TOPIC,
        ("u", 0): Code.NONE,
    }


def test_a_group_with_members_but_without_offsets_is_not_removed() -> None:
    host = new_host()
    m = Consumer(host, "m")
    m.beat()
    waits_ms = 2 * host.settings.offsets_retention_check_interval_ms
    while waits_ms > 0:
        host.pass_time(SESSION_MS - 1)
        waits_ms -= SESSION_MS - 1
        assert m.beat().error_code == Code.NONE
    assert state(host)[0] == "Stable"
