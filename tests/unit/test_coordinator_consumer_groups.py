"""Members of the consumer protocol (KIP-848), by what Apache Kafka 4.3 answered (its transcripts
`consumer_groups` and `consumer_groups_4`) and the KIP's sections.

The host feeds a fresh coordinator with the log after each event: it must come to the same state.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from helpers.group_host import GroupHost

from barnabas.coordinator.consumer_group_settings import ConsumerGroupSettings
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.consumer_group_heartbeat import TopicPartitions
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

AT_ONCE = ConsumerGroupSettings(assignment_interval_ms=0)
SESSION_MS, INTERVAL_MS, REBALANCE_MS = 45_000, 5_000, 10_000
LEAVE, LEAVE_FOR_A_WHILE = -1, -2


def new_host(**more: Any) -> GroupHost:
    return GroupHost(
        topics={"t": 4, "u": 2, "orders.a": 1, "orders.b": 2}, consumer_settings=AT_ONCE, **more
    )


class Consumer:
    """A member as a client keeps it: it owns what it was given when `take` is called."""

    def __init__(self, host: GroupHost, name: str, *topics: str, **more: Any) -> None:
        self.host, self.name, self.more = host, name, more
        self.topics = list(topics) or ["t"]
        self.epoch = 0
        self.given: dict[str, list[int]] = {}
        self.owned: dict[str, list[int]] = {}

    def beat(self, **more: Any) -> Any:
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
    """Heartbeats until nothing changes."""
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


def test_a_full_request_is_told_all() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    answer = host.consumer_heartbeat(
        "m", 2, rebalance_timeout_ms=1, subscribed_topic_names=["t"], owned={"t": [0, 1, 2, 3]}
    )
    assert host.assigned(answer) == {"t": [0, 1, 2, 3]}


def test_the_first_member_that_wants_nothing_is_in_the_first_epoch() -> None:
    host = new_host()
    answer = host.consumer_heartbeat("m", subscribed_topic_names=[])
    assert (answer.error_code, answer.member_epoch, host.assigned(answer)) == (0, 1, {})


def test_version_0_gives_an_id_and_version_1_wants_one() -> None:
    host = new_host()
    assert host.consumer_heartbeat("", version=0).member_id.startswith("member-")
    assert host.consumer_heartbeat("").error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize(
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
def test_heartbeats_that_are_refused(epoch: int, fields: dict[str, Any], code: Code) -> None:
    host = new_host()
    host.consumer_heartbeat("other")
    before = len(host.log)
    answer = host.consumer_heartbeat("m", epoch, **fields)
    assert (answer.error_code, answer.member_epoch, answer.member_id) == (code, 0, None)
    assert answer.error_message
    assert len(host.log) == before


def test_the_last_to_leave_leaves_an_empty_group() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    answer = host.consumer_heartbeat("m", LEAVE)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, -1, 0)
    assert state(host) == ("Empty", 3, 2)
    assert host.consumer_heartbeat("m", 2).error_code == Code.UNKNOWN_MEMBER_ID
    assert host.consumer_heartbeat("m").member_epoch == 4


def test_a_group_has_a_size() -> None:
    host = GroupHost(consumer_settings=ConsumerGroupSettings(max_size=1))
    assert host.consumer_heartbeat("m").error_code == 0
    assert host.consumer_heartbeat("n").error_code == Code.GROUP_MAX_SIZE_REACHED
    assert host.consumer_heartbeat("m").error_code == 0


# --- reconciliation (KIP-848, "Rebalance Process") ----------------------------------------------


def test_partitions_go_from_one_to_the_other_when_they_are_given_up() -> None:
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


def test_a_member_that_does_not_give_up_in_time_is_removed() -> None:
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


def test_one_that_has_given_up_is_not() -> None:
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


def test_two_that_fall_silent_at_once_are_removed_at_once() -> None:
    host = new_host()
    one, two, three = (Consumer(host, name) for name in ("one", "two", "three"))
    one.beat()
    two.beat()
    epoch = state(host)[1]
    host.pass_time(SESSION_MS)
    assert state(host) == ("Empty", epoch + 1, epoch)
    three.beat()
    assert three.count() == 4


def test_sessions_and_revocations_begin_anew_after_a_restart() -> None:
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


def test_epochs_that_are_taken() -> None:
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


# --- what members want --------------------------------------------------------------------------


def test_the_subscription_changes() -> None:
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


def test_a_topic_grows_and_goes_and_comes_again() -> None:
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


def test_most_members_wish_chooses_the_assignor() -> None:
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


def test_what_a_member_ceases_to_want_goes_before_there_is_a_new_assignment() -> None:
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


def test_topics_by_a_pattern() -> None:
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


def test_names_and_a_pattern_count_both() -> None:
    host = new_host()
    m = Consumer(host, "m", "u", subscribed_topic_regex="orders.a|u")
    m.beat()
    host.pass_time(0)
    m.beat()
    assert m.given == {"orders.a": [0], "u": [0, 1]}


def test_a_pattern_that_another_member_has_counts_at_once() -> None:
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


def test_a_pattern_that_cannot_be_read_changes_nothing() -> None:
    host = new_host()
    m = Consumer(host, "m", "u")
    m.beat()
    answer = m.beat(subscribed_topic_regex="a(?=b)")
    assert answer.error_code == Code.INVALID_REGULAR_EXPRESSION
    assert "RE2" in answer.error_message
    assert m.beat().error_code == 0


def test_patterns_are_looked_up_after_a_restart() -> None:
    host = new_host()
    m = Consumer(host, "m", "u", subscribed_topic_regex="orders.b")
    m.beat()
    host.restart()
    host.pass_time(0)
    m.beat()
    assert m.given == {"orders.b": [0, 1], "u": [0, 1]}


def test_patterns_are_looked_up_bit_by_bit() -> None:
    """A tick does a part of it, and a pattern that comes meanwhile has its turn after it."""
    host = new_host()
    heavy = "([a-z.]?[a-z._]?){500}" * 4
    m = Consumer(host, "m", "u", subscribed_topic_regex=heavy)
    m.beat()
    host.pass_time(0)
    other = Consumer(host, "other", "u", subscribed_topic_regex="orders.b")
    other.beat()
    assert host.coordinator.group("g").consumer.patterns == {}
    host.pass_time(500)
    assert set(host.coordinator.group("g").consumer.patterns) == {heavy}
    host.pass_time(2_000)
    patterns = host.coordinator.group("g").consumer.patterns
    assert patterns[heavy].topics == ("orders.a", "orders.b", "t", "u")
    assert patterns["orders.b"].topics == ("orders.b",)


def living_keys(host: GroupHost) -> set[bytes]:
    """The keys that compaction would keep."""
    values = {key: value for _, key, value, _ in host.log if key is not None}
    return {key for key, value in values.items() if value is not None}


# --- static members (KIP-848, "Static Membership") ----------------------------------------------


def test_a_static_member_goes_for_a_while_and_comes_back() -> None:
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
    assert state(host) == ("Empty", 3, 2)


def test_a_static_member_that_went_while_it_gave_partitions_up_keeps_its_session() -> None:
    """Through a restart, too: what it was to give up is free, and nobody waits for it."""
    host = new_host()
    one = Consumer(host, "one", "t", instance_id="i")
    one.beat()
    one.take()
    other = Consumer(host, "other", "t")
    other.beat()
    one.beat()
    assert one.count() == 2
    one.leave(LEAVE_FOR_A_WHILE)
    host.restart()
    host.pass_time(REBALANCE_MS + 1)
    other.beat()
    back = Consumer(host, "back", "t", instance_id="i")
    assert back.beat().error_code == 0
    assert back.count() == 2
    other.take()
    assert other.count() == 2


def test_a_static_member_that_does_not_come_back_is_removed_after_its_session() -> None:
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


# --- offsets ------------------------------------------------------------------------------------


def commit(host: GroupHost, epoch: int, member: str, partition: int = 0, version: int = 9) -> Code:
    answer = host.commit(
        "g", {"t": {partition: 5}}, generation=epoch, member=member, version=version
    )
    return Code(answer["t", partition])


def test_commits_by_epoch() -> None:
    host = new_host()
    one, two = Consumer(host, "one"), Consumer(host, "two")
    one.beat()
    one.take()
    two.beat()
    settle(one, two)
    mine, theirs = one.given["t"][0], two.given["t"][0]
    assert commit(host, 3, "one", mine) == Code.NONE
    assert commit(host, 3, "one", theirs) == Code.NONE  # its epoch is all that is asked
    # KIP-1251
    assert commit(host, 2, "one", mine) == Code.NONE
    assert commit(host, 2, "one", theirs) == Code.STALE_MEMBER_EPOCH
    assert commit(host, 1, "one", mine) == Code.STALE_MEMBER_EPOCH
    assert commit(host, 2, "two", theirs) == Code.STALE_MEMBER_EPOCH
    assert commit(host, 4, "one", mine) == Code.STALE_MEMBER_EPOCH
    assert commit(host, 3, "one", mine, version=8) == Code.UNSUPPORTED_VERSION
    assert commit(host, 3, "nobody") == Code.UNKNOWN_MEMBER_ID
    assert commit(host, -1, "") == Code.UNKNOWN_MEMBER_ID
    one.leave()
    two.leave()
    assert commit(host, -1, "") == Code.NONE


def test_commits_by_epoch_in_the_preview_of_3_9() -> None:
    """It knows the member's epoch alone, and no partition that is another's by now."""
    host = GroupHost(
        topics={"t": 1},
        consumer_settings=ConsumerGroupSettings(assignment_interval_ms=0, is_preview=True),
    )
    assert host.consumer_heartbeat("m", version=0).member_epoch == 1
    assert commit(host, 1, "m") == Code.NONE
    assert commit(host, 2, "m") == Code.STALE_MEMBER_EPOCH
    assert commit(host, 1, "nobody") == Code.UNKNOWN_MEMBER_ID


def test_a_partition_that_is_to_be_given_up_may_be_committed_until_then() -> None:
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


def test_commits_in_a_transaction() -> None:
    host = new_host()
    Consumer(host, "one").beat()

    def in_txn(epoch: int, member: str) -> Code:
        answer = host.txn_commit("g", {"t": {0: 5}}, generation=epoch, member=member)
        return Code(answer["t", 0])

    assert in_txn(2, "one") == Code.NONE
    assert in_txn(1, "one") == Code.ILLEGAL_GENERATION
    assert in_txn(3, "one") == Code.ILLEGAL_GENERATION
    assert in_txn(2, "nobody") == Code.UNKNOWN_MEMBER_ID
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
    assert fetch("nobody", 2) == (Code.UNKNOWN_MEMBER_ID, 0)


def test_offsets_by_topic_id() -> None:
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


def test_a_group_without_members_goes_with_its_offsets_and_records() -> None:
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


def test_an_empty_group_without_offsets_goes_by_itself() -> None:
    host = new_host()
    m = Consumer(host, "m")
    m.beat()
    m.leave()
    host.pass_time(2 * host.settings.offsets_retention_check_interval_ms)
    assert living_keys(host) == set()


# --- looking in ---------------------------------------------------------------------------------


def test_a_group_is_listed_by_its_type() -> None:
    host = new_host()
    Consumer(host, "m").beat()
    listed = host.call("ListGroups", 5, states_filter=[], types_filter=["Consumer"]).groups
    assert [
        (row.group_id, row.protocol_type, row.group_state, row.group_type) for row in listed
    ] == [("g", "consumer", "Stable", "consumer")]
    assert host.call("ListGroups", 5, types_filter=["classic"]).groups == []


def test_a_consumer_group_is_no_classic_one() -> None:
    host = new_host()
    Consumer(host, "m").beat()
    older = host.call("DescribeGroups", 5, groups=["g"]).groups[0]
    assert (older.error_code, older.group_state) == (0, "Dead")
    later = host.call("DescribeGroups", 6, groups=["g"]).groups[0]
    assert (later.error_code, later.group_state) == (Code.GROUP_ID_NOT_FOUND, "Dead")


def test_types_of_members_are_told_from_version_1_on() -> None:
    host = new_host()
    Consumer(host, "m").beat()
    assert host.describe_consumer_group(version=1).members[0].member_type == 1
    assert host.describe_consumer_group(version=0).members[0].member_type == -1


def test_a_heartbeat_with_the_id_of_no_topic_is_taken() -> None:
    host = new_host()
    host.consumer_heartbeat("m")
    assert (
        host.consumer_heartbeat("m", 2, topic_partitions=[TopicPartitions(None, [1])]).error_code
        == 0
    )
