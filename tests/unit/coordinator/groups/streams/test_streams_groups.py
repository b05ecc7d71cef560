"""Members of streams groups (KIP-1071). The expected responses are those of Apache Kafka 4.3.2 to
the same requests.

After each event, the host replays the log into a new coordinator, which must reach the same state.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.group_host import GroupHost, topology_of_topics

from barnabas.coordinator.groups.streams import (
    sticky_assignor,
    streams_group,
    streams_group_change,
    streams_groups,
)
from barnabas.coordinator.groups.streams.streams_group_settings import StreamsGroupSettings
from barnabas.coordinator.groups.streams.streams_groups import LONGEST_NAME_BYTES
from barnabas.coordinator.groups.streams.topic_plan import Status
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from barnabas.protocol.request_context import RequestContext

SESSION_MS, INTERVAL_MS, REBALANCE_MS = 45_000, 5_000, 10_000
LEAVE, LEAVE_FOR_A_WHILE = -1, -2


def new_host(**more: Any) -> GroupHost:
    return GroupHost(topics={"t": 3, "u": 2, "s": 4}, **more)


def counting(repartition: int = 0) -> Topology:
    """The topology of a word count, which reads the topic "s", repartitions the words, and stores
    counts.
    """
    return Topology(
        0,
        [
            Subtopology("0", ["s"], [], [], ["rep"], [], []),
            Subtopology(
                "1", [], [], [TopicInfo("log", 0, 0, [KeyValue("cleanup.policy", "compact")])], [],
                [TopicInfo("rep", repartition, 0, [])], [],
            ),
        ],
    )  # fmt: skip


def stateful() -> Topology:
    return Topology(0, [Subtopology("0", ["u"], [], [TopicInfo("log", 0, 0, [])], [], [], [])])


def rows(tasks: Any) -> dict[str, list[int]] | None:
    return None if tasks is None else {row.subtopology_id: row.partitions for row in tasks}


def given(answer: Any) -> Any:
    """The (error code, epoch, active tasks) of a response."""
    return answer.error_code, answer.member_epoch, rows(answer.active_tasks)


def statuses(answer: Any) -> list[int]:
    return [status.status_code for status in answer.status]


def state(host: GroupHost, group: str = "g") -> tuple[str, int, int]:
    described = host.describe_streams_group(group)
    return described.group_state, described.group_epoch, described.assignment_epoch


def two_members(host: GroupHost) -> None:
    """Make a group of two members. "m" has the tasks of partitions 0 and 1, and "n" has the task of
    partition 2.
    """
    host.streams_heartbeat("m")
    host.streams_heartbeat("n")
    host.streams_heartbeat("m", 2)
    host.streams_heartbeat("m", 2, owned={"0": [0, 1]})
    assert given(host.streams_heartbeat("n", 3)) == (0, 3, {"0": [2]})


# --- joining and leaving ------------------------------------------------------------------------


def test_a_member_joins_alone() -> None:
    host = new_host()
    answer = host.streams_heartbeat("m")
    assert given(answer) == (0, 2, {"0": [0, 1, 2]})
    assert (answer.standby_tasks, answer.warmup_tasks, answer.status) == ([], [], [])
    assert (answer.member_id, answer.heartbeat_interval_ms) == ("m", INTERVAL_MS)
    assert (answer.acceptable_recovery_lag, answer.task_offset_interval_ms) == (0, 0)
    assert state(host) == ("Stable", 2, 2)
    assert host.list_groups() == {"g": ("streams", "Stable")}
    assert host.list_groups(types_filter=["Streams"]) == {"g": ("streams", "Stable")}
    assert host.list_groups(types_filter=["classic"]) == {}
    assert given(host.streams_heartbeat("m", 2)) == (0, 2, None)
    assert given(host.streams_heartbeat("m", 0)) == (0, 2, {"0": [0, 1, 2]})


def test_tasks_move_to_a_member_that_joins_once_they_are_given_up() -> None:
    host = new_host()
    host.streams_heartbeat("m")
    assert given(host.streams_heartbeat("n")) == (0, 3, {})
    assert state(host) == ("Reconciling", 3, 3)
    assert given(host.streams_heartbeat("m", 2)) == (0, 2, {"0": [0, 1]})
    assert given(host.streams_heartbeat("m", 2)) == (0, 2, None)
    assert given(host.streams_heartbeat("n", 3)) == (0, 3, None)
    assert given(host.streams_heartbeat("m", 2, owned={"0": [0, 1]})) == (0, 3, None)
    assert given(host.streams_heartbeat("n", 3)) == (0, 3, {"0": [2]})
    assert given(host.streams_heartbeat("n", 3)) == (0, 3, None)
    assert state(host) == ("Stable", 3, 3)


def test_a_member_that_leaves_releases_its_tasks() -> None:
    host = new_host()
    two_members(host)
    answer = host.streams_heartbeat("n", LEAVE)
    assert (given(answer), answer.member_id, answer.status) == ((0, LEAVE, None), "n", [])
    assert host.streams_heartbeat("n", LEAVE).error_code == Code.UNKNOWN_MEMBER_ID
    assert state(host) == ("Assigning", 4, 3)
    assert given(host.streams_heartbeat("m", 3)) == (0, 4, {"0": [0, 1, 2]})


def test_an_empty_group_keeps_its_topology_until_it_is_deleted() -> None:
    host = new_host()
    host.streams_heartbeat("m")
    assert host.delete_groups("g") == [("g", Code.NON_EMPTY_GROUP)]
    host.streams_heartbeat("m", LEAVE)
    assert host.list_groups() == {"g": ("streams", "Empty")}
    for other in (topology_of_topics("u"), topology_of_topics("u", epoch=1)):
        assert host.streams_heartbeat("m", topology=other).error_code == Code.INVALID_REQUEST
    assert given(host.streams_heartbeat("m")) == (0, 4, {"0": [0, 1, 2]})
    host.streams_heartbeat("m", LEAVE)
    assert host.delete_groups("g") == [("g", Code.NONE)]
    assert host.list_groups() == {}
    assert given(host.streams_heartbeat("m", topology=topology_of_topics("u")))[2] == {"0": [0, 1]}


def test_a_full_group_refuses_new_members() -> None:
    host = new_host(streams_settings=StreamsGroupSettings(max_size=1))
    host.streams_heartbeat("m")
    assert host.streams_heartbeat("n").error_code == Code.GROUP_MAX_SIZE_REACHED
    assert host.streams_heartbeat("m", 2).error_code == Code.NONE


@pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (0, {"group": ""}, Code.INVALID_REQUEST),
        (0, {"group": "g" * 40_000}, Code.INVALID_REQUEST),
        (0, {"instance_id": "i"}, Code.INVALID_REQUEST),
        (0, {"rack_id": ""}, Code.INVALID_REQUEST),
        (0, {"rebalance_timeout_ms": -1}, Code.INVALID_REQUEST),
        (0, {"owned": {"0": [0]}}, Code.INVALID_REQUEST),
        (0, {"active_tasks": None}, Code.INVALID_REQUEST),
        (0, {"warmup_tasks": [TaskIds("0", [0])]}, Code.INVALID_REQUEST),
        (0, {"task_offsets": [TaskOffset("0", 0, 0)]}, Code.INVALID_REQUEST),
        (0, {"task_end_offsets": []}, Code.INVALID_REQUEST),
        (1, {"group": "unknown"}, Code.GROUP_ID_NOT_FOUND),
        (-1, {"group": "unknown"}, Code.GROUP_ID_NOT_FOUND),
        (1, {}, Code.UNKNOWN_MEMBER_ID),
        (-1, {}, Code.UNKNOWN_MEMBER_ID),
        (-2, {}, Code.INVALID_REQUEST),
        (-3, {}, Code.INVALID_REQUEST),
        (2, {"topology": topology_of_topics("t")}, Code.INVALID_REQUEST),
        (2, {"active_tasks": []}, Code.INVALID_REQUEST),
    ],
)
def test_invalid_heartbeats_are_refused_and_write_nothing(
    epoch: int, fields: dict[str, Any], code: Code
) -> None:
    host = new_host()
    host.streams_heartbeat("m")
    before = len(host.log)
    answer = host.streams_heartbeat("n", epoch, **fields)
    assert (answer.error_code, answer.status) == (code, [])
    assert answer.error_message
    assert len(host.log) == before
    assert LONGEST_NAME_BYTES == (1 << 15) - 1


def test_a_member_without_an_id_or_a_topology_is_refused() -> None:
    host = new_host()
    assert host.streams_heartbeat("").error_code == Code.INVALID_REQUEST
    fields = {"rebalance_timeout_ms": 1, "active_tasks": [], "standby_tasks": []}
    answer = host.call(
        "StreamsGroupHeartbeat", 0, group_id="g", member_id="m", warmup_tasks=[], **fields
    )
    assert answer.error_code == Code.INVALID_REQUEST
    assert host.list_groups() == {}


@pytest.mark.parametrize(
    "topology",
    [
        topology_of_topics("t", epoch=-2),
        topology_of_topics(),
        Topology(0, [Subtopology("0", ["t"]), Subtopology("0", ["u"])]),
        Topology(0, [Subtopology("0", ["t"], state_changelog_topics=[TopicInfo("log", 3)])]),
        Topology(0, [Subtopology("0", ["t"], repartition_source_topics=[TopicInfo("rep")])]),
        Topology(0, [Subtopology("0", ["t"], repartition_source_topics=[TopicInfo("rep", -1)])]),
        Topology(0, [Subtopology("0", ["t"], copartition_groups=[CopartitionGroup([5])])]),
    ],
)
def test_a_topology_that_is_refused_makes_no_group(topology: Topology) -> None:
    host = new_host()
    answer = host.streams_heartbeat("m", topology=topology)
    assert answer.error_code == Code.STREAMS_INVALID_TOPOLOGY
    assert (host.log, host.list_groups(), host.coordinator.next_deadline_ms()) == ([], {}, None)


def test_patterns_of_source_topics_are_not_supported() -> None:
    topology = Topology(0, [Subtopology("0", ["t"], source_topic_regex=["x.*"])])
    assert new_host().streams_heartbeat(topology=topology).error_code == Code.INVALID_REQUEST


def test_epochs_are_checked() -> None:
    host = new_host()
    two_members(host)
    for epoch in (1, 9):
        answer = host.streams_heartbeat("n", epoch)
        assert answer.error_code == Code.FENCED_MEMBER_EPOCH
    # m may have missed the response with epoch 3. It reports only tasks that are in its assignment.
    assert given(host.streams_heartbeat("m", 2, owned={"0": [0]}))[:2] == (0, 3)
    refused = host.streams_heartbeat("m", 2, owned={"0": [0, 2]})
    assert refused.error_code == Code.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("owned", "standby", "code"),
    [
        ({"0": [0, 1]}, {}, Code.NONE),
        ({"0": [0]}, {}, Code.NONE),
        ({"0": [0, 2]}, {}, Code.FENCED_MEMBER_EPOCH),
        ({"0": [0, 1]}, {"0": [2]}, Code.FENCED_MEMBER_EPOCH),
    ],
)
def test_a_member_in_its_previous_epoch_has_no_other_tasks_than_its_own(
    owned: dict[str, list[int]], standby: dict[str, list[int]], code: Code
) -> None:
    host = new_host()
    two_members(host)
    answer = host.streams_heartbeat("m", 2, owned=owned, standby=standby)
    assert answer.error_code == code


def test_a_member_whose_answer_was_lost_gets_its_tasks_again() -> None:
    host = new_host()
    host.streams_heartbeat("m")
    host.streams_heartbeat("n")
    host.streams_heartbeat("m", 2)  # this response, which revokes a task, is lost
    assert given(host.streams_heartbeat("m", 2, owned={"0": [0, 1, 2]})) == (0, 2, {"0": [0, 1]})
    assert given(host.streams_heartbeat("m", 2, owned={"0": [0, 1]})) == (0, 3, None)
    host.streams_heartbeat("n", 3)  # this response, which assigns a task, is lost
    assert given(host.streams_heartbeat("n", 3, owned={})) == (0, 3, {"0": [2]})
    assert given(host.streams_heartbeat("n", 3, owned={"0": [2]})) == (0, 3, None)


def test_tasks_that_the_topology_lacks_are_refused() -> None:
    host = new_host()
    host.streams_heartbeat("m")
    for owned in ({"7": [0]}, {"0": [3]}, {"0": [-1]}):
        answer = host.streams_heartbeat("m", 2, owned=owned)
        assert answer.error_code == Code.INVALID_REQUEST


def test_a_member_with_an_older_topology_gets_its_status() -> None:
    host = new_host()
    host.streams_heartbeat("m", topology=topology_of_topics("t", epoch=3))
    older = host.streams_heartbeat("n", topology=topology_of_topics("t", epoch=1))
    assert (older.error_code, statuses(older)) == (0, [Status.STALE_TOPOLOGY])
    assert statuses(host.streams_heartbeat("n", 3)) == [Status.STALE_TOPOLOGY]
    later = host.streams_heartbeat("o", topology=topology_of_topics("t", epoch=4))
    assert later.error_code == Code.INVALID_REQUEST


# --- topics -------------------------------------------------------------------------------------


def test_tasks_are_assigned_once_the_internal_topics_are_created() -> None:
    host = new_host()
    answer = host.streams_heartbeat("m", topology=counting())
    assert (given(answer), statuses(answer)) == ((0, 2, {}), [Status.MISSING_INTERNAL_TOPICS])
    assert state(host) == ("NotReady", 2, 2)
    assert [(one.name, one.partition_count, one.configs) for one in host.missing_topics] == [
        ("log", 4, (("cleanup.policy", "compact"),)), ("rep", 4, ()),
    ]  # fmt: skip
    assert statuses(host.streams_heartbeat("m", 2)) == [Status.MISSING_INTERNAL_TOPICS]
    host.make_missing_topics()
    everything = {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    assert given(host.streams_heartbeat("m", 2)) == (0, 3, everything)
    assert (state(host), host.missing_topics) == (("Stable", 3, 3), [])
    topology = host.describe_streams_group().topology
    changelog, repartition = (
        topology.subtopologies[1].state_changelog_topics,
        topology.subtopologies[1].repartition_source_topics,
    )
    assert [(topic.name, topic.partitions) for topic in (*changelog, *repartition)] == [
        ("log", 4), ("rep", 4),
    ]  # fmt: skip


def test_tasks_are_assigned_and_revoked_when_a_source_topic_is_created_and_deleted() -> None:
    host = new_host()
    answer = host.streams_heartbeat("m", topology=topology_of_topics("later"))
    assert (given(answer), statuses(answer)) == ((0, 2, {}), [Status.MISSING_SOURCE_TOPICS])
    assert given(host.streams_heartbeat("m", 2)) == (0, 2, None)
    host.topics["later"] = 2
    assert given(host.streams_heartbeat("m", 2)) == (0, 3, {"0": [0, 1]})
    host.delete_topics("later")
    gone = host.streams_heartbeat("m", 3)
    assert (given(gone), statuses(gone)) == ((0, 3, {}), [Status.MISSING_SOURCE_TOPICS])
    assert given(host.streams_heartbeat("m", 3, owned={})) == (0, 4, None)
    assert state(host) == ("NotReady", 4, 4)


def test_a_topic_that_grows_brings_tasks() -> None:
    host = new_host()
    host.streams_heartbeat("m", topology=topology_of_topics("u"))
    host.topics["u"] = 4
    assert given(host.streams_heartbeat("m", 2)) == (0, 3, {"0": [0, 1, 2, 3]})


def test_a_topic_that_the_group_does_not_use_changes_nothing() -> None:
    host = new_host()
    host.streams_heartbeat("m")
    host.topics["other"] = 1
    before = len(host.log)
    assert given(host.streams_heartbeat("m", 2)) == (0, 2, None)
    assert len(host.log) == before


def test_copartitioned_topics_of_different_size_give_a_status() -> None:
    topology = Topology(
        0, [Subtopology("0", ["s", "u"], copartition_groups=[CopartitionGroup([0, 1])])]
    )
    host = new_host()
    answer = host.streams_heartbeat("m", topology=topology)
    assert (given(answer), statuses(answer)) == (
        (0, 2, {}), [Status.INCORRECTLY_PARTITIONED_TOPICS],
    )  # fmt: skip
    assert host.missing_topics == []


# --- when assignments are computed --------------------------------------------------------------


def test_a_new_group_waits_for_its_first_members() -> None:
    host = new_host()
    host.overrides["g"] = {"streams.initial.rebalance.delay.ms": 3_000}
    first = host.streams_heartbeat("m")
    assert (given(first), statuses(first)) == ((0, 1, {}), [Status.ASSIGNMENT_DELAYED])
    assert given(host.streams_heartbeat("n")) == (0, 1, {})
    assert state(host) == ("Assigning", 3, 1)
    host.pass_time(2_999)
    assert given(host.streams_heartbeat("m", 1)) == (0, 1, None)
    host.pass_time(1)
    assert state(host) == ("Reconciling", 3, 3)
    assert given(host.streams_heartbeat("m", 1)) == (0, 3, {"0": [0, 2]})
    assert given(host.streams_heartbeat("n", 1)) == (0, 3, {"0": [1]})


def test_the_initial_delay_of_a_group_that_became_empty_assigns_nothing() -> None:
    host = new_host()
    host.overrides["g"] = {"streams.initial.rebalance.delay.ms": 3_000}
    host.streams_heartbeat("m")
    host.streams_heartbeat("m", LEAVE)
    host.pass_time(3_000)
    assert state(host) == ("Empty", 3, 3)
    assert given(host.streams_heartbeat("m")) == (0, 3, {})
    host.restart()  # a restart of the broker ends the delay
    assert given(host.streams_heartbeat("m", 3)) == (0, 4, {"0": [0, 1, 2]})


def test_assignments_are_an_interval_apart() -> None:
    host = new_host()
    host.overrides["g"] = {"streams.assignment.interval.ms": 1_000}
    host.streams_heartbeat("m")
    late = host.streams_heartbeat("n")
    assert (given(late), statuses(late)) == ((0, 2, {}), [Status.ASSIGNMENT_DELAYED])
    assert state(host) == ("Assigning", 3, 2)
    host.pass_time(999)
    assert statuses(host.streams_heartbeat("m", 2)) == [Status.ASSIGNMENT_DELAYED]
    host.pass_time(1)
    assert given(host.streams_heartbeat("m", 2)) == (0, 2, {"0": [0, 1]})


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split assignments into the smallest slices: each slice computes one task, or writes the
    target of one member.
    """
    monkeypatch.setattr(streams_group_change, "TASKS_ASSIGNED_AT_ONCE", 0)
    monkeypatch.setattr(sticky_assignor, "TASKS_AT_ONCE", 1)
    monkeypatch.setattr(streams_group, "ROWS_WRITTEN_AT_ONCE", 1)


def tick(host: GroupHost) -> bool:
    """Run a tick if one is due now. Gives whether one was due."""
    deadline_ms = host.coordinator.next_deadline_ms()
    if deadline_ms is None or deadline_ms > host.now_ms:
        return False
    host.handle(host.coordinator.on_tick(host.event_ms()))
    return True


@pytest.mark.usefixtures("small_slices")
def test_an_assignment_of_many_tasks_is_made_in_slices() -> None:
    host = new_host()
    first = host.streams_heartbeat("m")
    assert (given(first), statuses(first)) == ((0, 1, {}), [Status.ASSIGNMENT_DELAYED])
    assert statuses(host.streams_heartbeat("m", 1)) == [Status.ASSIGNMENT_DELAYED]
    ticks = 0
    while tick(host):
        ticks += 1
        assert ticks == 1 or state(host)[1:] in ((2, 1), (2, 2))
    assert ticks > 6, "three tasks, in three passes"
    after = host.streams_heartbeat("m", 1)
    assert (given(after), after.status) == ((0, 2, {"0": [0, 1, 2]}), [])
    assert state(host) == ("Stable", 2, 2)


@pytest.mark.parametrize("in_slices", [False, True])
def test_the_first_assignment_needs_no_heartbeat_after_the_delay(
    in_slices: bool, request: pytest.FixtureRequest
) -> None:
    if in_slices:
        request.getfixturevalue("small_slices")
    host = new_host()
    host.overrides["g"] = {"streams.initial.rebalance.delay.ms": 3_000}
    host.streams_heartbeat("m")
    host.pass_time(2_999)
    assert state(host)[1:] == (2, 1)
    host.pass_time(1)
    assert state(host)[1:] == (2, 2)


@pytest.mark.usefixtures("small_slices")
def test_members_may_join_and_leave_while_an_assignment_is_computed() -> None:
    host = new_host()
    for member in ("m", "n"):
        host.streams_heartbeat(member)
    tick(host)
    host.streams_heartbeat("m", LEAVE)
    host.streams_heartbeat("o")
    host.pass_time(0)
    assert state(host) == ("Assigning", 5, 2), (
        "the assignment is that of the epoch in which its computation began"
    )
    for _ in range(3):
        for member in ("n", "o"):
            host.streams_heartbeat(member, 0)
        host.pass_time(0)
    assert state(host)[0] == "Stable"
    assigned = [rows(host.streams_heartbeat(member, 0).active_tasks) for member in ("n", "o")]
    assert sorted(at for one in assigned if one for at in one["0"]) == [0, 1, 2]


@pytest.mark.usefixtures("small_slices")
def test_groups_take_turns_with_the_slices_of_their_assignments() -> None:
    host = new_host(partition_count=1)
    for group in ("g", "h"):
        host.streams_heartbeat("m", group=group)
    ends: dict[str, int] = {}
    for number in range(100):
        for group in ("g", "h"):
            if state(host, group)[2] == 2:
                ends.setdefault(group, number)
        if not tick(host):
            break
    assert ends["h"] - ends["g"] == 1 and ends["g"] > 6


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("ticks", range(12))
def test_an_assignment_is_computed_again_after_a_restart(ticks: int) -> None:
    host = new_host()
    for member in ("m", "n"):
        host.streams_heartbeat(member)
    for _ in range(ticks):
        tick(host)
    host.restart()
    for _ in range(4):
        for member in ("m", "n"):
            host.streams_heartbeat(member, 0)
        host.pass_time(0)
    assert state(host)[0] == "Stable"
    assigned = [rows(host.streams_heartbeat(member, 0).active_tasks) for member in ("m", "n")]
    assert sorted(at for one in assigned if one for at in one["0"]) == [0, 1, 2]


@pytest.mark.usefixtures("small_slices")
def test_a_group_may_be_deleted_while_its_assignment_is_computed() -> None:
    host = new_host()
    host.streams_heartbeat("m")
    tick(host)
    host.streams_heartbeat("m", LEAVE)
    host.delete_groups("g")
    host.pass_time(0)
    assert host.list_groups() == {}


def test_standby_tasks_follow_the_setting() -> None:
    host = new_host()
    host.topics["log"] = 2
    for member in ("m", "n"):
        host.streams_heartbeat(member, topology=stateful())
    for _ in range(3):
        for member, epoch, mine in (("m", 2, [0]), ("m", 3, [0]), ("n", 3, [1])):
            host.streams_heartbeat(member, epoch, owned={"0": mine})
    assert state(host)[0] == "Stable"
    host.overrides["g"] = {"streams.num.standby.replicas": 1}
    answer = host.streams_heartbeat("m", 3)
    assert (given(answer), rows(answer.standby_tasks)) == ((0, 4, {"0": [0]}), {"0": [1]})
    answer = host.streams_heartbeat("n", 3)
    assert (given(answer), rows(answer.standby_tasks)) == ((0, 4, {"0": [1]}), {"0": [0]})


def test_a_member_becomes_active_for_its_standby_task() -> None:
    host = new_host()
    host.topics["log"] = 2
    host.overrides["g"] = {"streams.num.standby.replicas": 1}
    host.streams_heartbeat("m", topology=stateful())
    host.streams_heartbeat("n", topology=stateful())
    host.streams_heartbeat("m", 2)
    host.streams_heartbeat("m", 2, owned={"0": [0]})
    assert rows(host.streams_heartbeat("n", 3).active_tasks) == {"0": [1]}
    assert rows(host.streams_heartbeat("m", 3).standby_tasks) == {"0": [1]}
    host.streams_heartbeat("n", LEAVE)
    answer = host.streams_heartbeat("m", 3)
    assert (given(answer), answer.standby_tasks) == ((0, 3, {"0": [0]}), [])
    assert given(host.streams_heartbeat("m", 3, owned={"0": [0]})) == (0, 4, None)
    assert given(host.streams_heartbeat("m", 4)) == (0, 4, {"0": [0, 1]})


# --- sessions -----------------------------------------------------------------------------------


def test_a_silent_member_is_removed() -> None:
    host = new_host()
    two_members(host)
    host.pass_time(SESSION_MS - 1)
    host.streams_heartbeat("m", 3)
    host.pass_time(1)
    assert [member.member_id for member in host.describe_streams_group().members] == ["m"]
    assert host.streams_heartbeat("n", 3).error_code == Code.UNKNOWN_MEMBER_ID
    assert given(host.streams_heartbeat("m", 3)) == (0, 4, {"0": [0, 1, 2]})


def test_a_group_has_its_own_session_and_interval() -> None:
    host = new_host()
    host.overrides["g"] = {
        "streams.session.timeout.ms": 50_000, "streams.heartbeat.interval.ms": 7_000,
    }  # fmt: skip
    assert host.streams_heartbeat("m").heartbeat_interval_ms == 7_000
    host.pass_time(49_999)
    assert host.list_groups() == {"g": ("streams", "Stable")}
    host.pass_time(1)
    assert host.list_groups() == {"g": ("streams", "Empty")}


def test_a_member_that_does_not_revoke_tasks_in_time_is_removed() -> None:
    host = new_host()
    host.streams_heartbeat("m")
    host.streams_heartbeat("n")
    host.streams_heartbeat("m", 2)
    host.pass_time(REBALANCE_MS - 1)
    assert host.streams_heartbeat("m", 2).error_code == Code.NONE
    host.pass_time(1)
    assert host.streams_heartbeat("m", 2).error_code == Code.UNKNOWN_MEMBER_ID
    assert given(host.streams_heartbeat("n", 3)) == (0, 4, {"0": [0, 1, 2]})


def test_a_change_that_could_not_be_written_does_not_end_the_time_for_revoking_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = new_host()
    host.streams_heartbeat("m")
    host.streams_heartbeat("n")
    host.streams_heartbeat("m", 2)
    with monkeypatch.context() as patch:
        patch.setattr(host, "handle", lambda result: None)  # as without disk space
        with pytest.raises(KeyError):
            host.streams_heartbeat("m", 2, owned={"0": [0]})
    assert host.streams_heartbeat("m", 2).error_code == Code.NONE
    host.pass_time(REBALANCE_MS - 1)
    assert host.streams_heartbeat("m", 2).error_code == Code.NONE
    host.pass_time(1)
    assert host.streams_heartbeat("m", 2).error_code == Code.UNKNOWN_MEMBER_ID


def test_a_restart_begins_session_and_rebalance_timeouts_again() -> None:
    host = new_host()
    host.streams_heartbeat("m")
    host.streams_heartbeat("n")
    host.streams_heartbeat("m", 2)
    host.restart()
    host.pass_time(REBALANCE_MS)
    assert [member.member_id for member in host.describe_streams_group().members] == ["n"]
    host.pass_time(SESSION_MS - REBALANCE_MS)
    assert state(host)[0] == "Empty"


def test_a_power_loss_lets_all_members_join_again() -> None:
    host = new_host()
    two_members(host)
    host.lose_power({})
    assert state(host)[0] == "Empty"
    assert host.streams_heartbeat("m", 3).error_code == Code.UNKNOWN_MEMBER_ID


def test_all_members_get_the_status_of_an_application_shutdown() -> None:
    host = new_host()
    two_members(host)
    requested = host.streams_heartbeat("m", 3, shutdown_application=True)
    assert statuses(requested) == [Status.SHUTDOWN_APPLICATION]
    assert statuses(host.streams_heartbeat("n", 3)) == [Status.SHUTDOWN_APPLICATION]
    host.streams_heartbeat("m", LEAVE)
    assert statuses(host.streams_heartbeat("n", 3)) == [Status.SHUTDOWN_APPLICATION]
    host.streams_heartbeat("n", LEAVE)
    assert statuses(host.streams_heartbeat("m")) == []


def test_members_see_each_others_endpoints() -> None:
    host = new_host()

    def endpoints(answer: Any) -> Any:
        rows = answer.partitions_by_user_endpoint
        return answer.endpoint_information_epoch, rows and {
            (row.user_endpoint.host, row.user_endpoint.port): {
                topic.topic: topic.partitions for topic in row.active_partitions
            }
            for row in rows
        }

    joined = host.streams_heartbeat(
        "m", user_endpoint=Endpoint("h", 1), endpoint_information_epoch=-1
    )
    assert endpoints(joined) == (0, {("h", 1): {"t": [0, 1, 2]}})
    assert endpoints(host.streams_heartbeat("m", 2, endpoint_information_epoch=0)) == (0, None)
    other = host.streams_heartbeat(
        "n", user_endpoint=Endpoint("i", 2), endpoint_information_epoch=-1
    )
    assert endpoints(other) == (1, {("h", 1): {"t": [0, 1, 2]}, ("i", 2): {}})
    answer = host.streams_heartbeat("m", 2, endpoint_information_epoch=0)
    assert endpoints(answer) == (2, {("i", 2): {}, ("h", 1): {"t": [0, 1]}})


def test_a_task_reads_a_topic_only_where_the_topic_has_its_partition() -> None:
    """A subtopology has as many tasks as the largest of its topics has partitions."""
    host = new_host()
    answer = host.streams_heartbeat(
        "m",
        topology=topology_of_topics("u", "s"),
        user_endpoint=Endpoint("h", 1),
        endpoint_information_epoch=-1,
    )
    assert given(answer) == (0, 2, {"0": [0, 1, 2, 3]})
    (served,) = answer.partitions_by_user_endpoint
    read = {"u": [0, 1], "s": [0, 1, 2, 3]}
    assert {row.topic: row.partitions for row in served.active_partitions} == read
    group = host.coordinator.group("g")
    assert group is not None
    found = host.coordinator.streams_requests.assigned_partitions(group)["m"]
    assert sorted(found) == sorted((name, at) for name, row in read.items() for at in row)


def test_a_member_that_joins_again_may_have_moved_to_another_process() -> None:
    """The coordinator must then count the member's standby task for the new process, and no longer
    for the former one.
    """
    host = new_host()
    host.topics["log"] = 2
    host.overrides["g"] = {"streams.num.standby.replicas": 1}
    for member in ("m", "n"):
        host.streams_heartbeat(member, topology=stateful())
    host.streams_heartbeat("m", 2)
    host.streams_heartbeat("m", 2, owned={"0": [0]})
    host.streams_heartbeat("n", 3)
    assert rows(host.streams_heartbeat("m", 3).standby_tasks) == {"0": [1]}
    host.streams_heartbeat("m", topology=stateful(), process_id="other")
    streams = host.coordinator.group("g").modern  # type: ignore[union-attr]
    assert streams.standby_processes[("0", 1)] == {"other"}  # type: ignore[union-attr]


# --- groups of other kinds ----------------------------------------------------------------------


def test_groups_of_other_kinds_are_not_mixed() -> None:
    host = new_host()
    host.streams_heartbeat("m")
    assert host.join("g").error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert host.consumer_heartbeat("c").error_code == Code.GROUP_ID_NOT_FOUND
    assert host.heartbeat("g", 2, "m") == Code.UNKNOWN_MEMBER_ID
    assert host.sync("g", 2, "m").error_code == Code.UNKNOWN_MEMBER_ID
    assert host.describe("g", version=6).error_code == Code.GROUP_ID_NOT_FOUND
    host.consumer_heartbeat("c", group="c")
    assert host.streams_heartbeat("m", group="c").error_code == Code.GROUP_ID_NOT_FOUND
    host.consumer_heartbeat("c", LEAVE, group="c")
    assert host.streams_heartbeat("m", group="c").error_code == Code.GROUP_ID_NOT_FOUND
    assert host.describe_streams_group("c").error_code == Code.GROUP_ID_NOT_FOUND
    assert host.describe_streams_group("").error_code == Code.INVALID_GROUP_ID


def test_a_classic_member_keeps_the_id_with_which_it_replaces_an_empty_streams_group() -> None:
    """The first JoinGroup only gets an id (KIP-394), and its result removes the streams group."""
    host = new_host()
    assert host.streams_heartbeat("m").error_code == Code.NONE
    assert host.streams_heartbeat("m", LEAVE).error_code == Code.NONE
    first = host.join("g", protocols={"range": b""})
    assert first.error_code == Code.MEMBER_ID_REQUIRED
    second = host.join("g", first.member_id, protocols={"range": b""})
    assert second.error_code == Code.NONE
    assert host.coordinator.group("g").kind == "classic"  # type: ignore[union-attr]


def test_an_empty_classic_group_becomes_a_streams_group_and_back() -> None:
    host = new_host()
    member = host.join("g", protocols={"range": b""}).member_id
    joined = host.join("g", member)
    assert host.streams_heartbeat("m").error_code == Code.GROUP_ID_NOT_FOUND
    host.sync("g", joined.generation_id, member, {member: b""})
    host.commit("g", {"t": {0: 5}}, generation=joined.generation_id, member=member)
    host.leave("g", (member, None))
    assert given(host.streams_heartbeat("m")) == (0, 2, {"0": [0, 1, 2]})
    assert host.fetch("g", {"t": [0]}) == {("t", 0): (5, "")}
    host.restart()
    assert host.list_groups() == {"g": ("streams", "Stable")}
    host.streams_heartbeat("m", LEAVE)
    assert host.join("g", protocols={"range": b""}).error_code == Code.MEMBER_ID_REQUIRED
    assert host.list_groups()["g"][0] != "streams"
    assert host.fetch("g", {"t": [0]}) == {("t", 0): (5, "")}


# --- offsets ------------------------------------------------------------------------------------


def test_commits_are_checked_by_member_epoch_and_task() -> None:
    host = new_host()
    two_members(host)

    def commit(member: str, epoch: int, topic: str = "t", number: int = 0, version: int = 9) -> int:
        codes = host.commit(
            "g", {topic: {number: 1}}, generation=epoch, member=member, version=version
        )
        return codes[(topic, number)]

    assert commit("m", 3) == Code.NONE
    assert commit("m", 2) == Code.NONE, "it has had the task since epoch 2"
    assert commit("m", 1) == Code.STALE_MEMBER_EPOCH
    assert commit("m", 9) == Code.STALE_MEMBER_EPOCH
    assert commit("n", 2, number=2) == Code.STALE_MEMBER_EPOCH, "it got the task in epoch 3"
    assert commit("m", 2, topic="u") == Code.STALE_MEMBER_EPOCH, "no task reads the topic"
    assert commit("z", 3) == Code.UNKNOWN_MEMBER_ID
    assert commit("", -1) == Code.UNKNOWN_MEMBER_ID
    assert commit("m", 3, version=8) == Code.UNSUPPORTED_VERSION
    host.streams_heartbeat("m", LEAVE)
    host.streams_heartbeat("n", LEAVE)
    assert commit("", -1) == Code.NONE


def test_commits_in_transactions_are_fenced_by_the_member_epoch() -> None:
    host = new_host()
    two_members(host)

    def commit(member: str, epoch: int, number: int = 0) -> int:
        return host.txn_commit("g", {"t": {number: 1}}, generation=epoch, member=member)[
            ("t", number)
        ]

    assert commit("m", 3) == Code.NONE
    assert commit("m", 2) == Code.NONE
    assert commit("m", 1) == Code.ILLEGAL_GENERATION
    assert commit("n", 2, number=2) == Code.ILLEGAL_GENERATION
    assert commit("m", 4) == Code.ILLEGAL_GENERATION
    assert commit("z", 3) == Code.UNKNOWN_MEMBER_ID
    assert commit("", -1) == Code.NONE, "a request may name no member"


def test_offsets_are_fetched_in_the_members_epoch() -> None:
    host = new_host()
    two_members(host)

    def fetch(member: str | None, epoch: int) -> int:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        group = OffsetFetchRequestGroup(
            group_id="g", member_id=member, member_epoch=epoch, topics=topics
        )
        code = host.call("OffsetFetch", 9, groups=[group], require_stable=True).groups[0]
        return int(code.error_code)

    assert fetch("m", 3) == Code.NONE
    assert fetch("m", 2) == Code.STALE_MEMBER_EPOCH
    assert fetch(None, -1) == Code.NONE
    assert fetch("z", 3) == Code.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_are_read_are_not_deleted() -> None:
    host = new_host()
    host.streams_heartbeat("m")
    host.commit("g", {"t": {0: 1}, "u": {0: 1}}, generation=2, member="m")
    assert host.delete_offsets("g", {"t": [0], "u": [0]}) == {
        ("t", 0): Code.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): Code.NONE,
    }  # fmt: skip
    host.streams_heartbeat("m", LEAVE)
    assert host.delete_offsets("g", {"t": [0]}) == {("t", 0): Code.NONE}
    assert host.list_groups() == {"g": ("streams", "Empty")}, "until its retention check"
    host.pass_time(2 * host.settings.offsets_retention_check_interval_ms)
    assert host.list_groups() == {}


def test_a_description_has_the_members_and_their_tasks() -> None:
    host = new_host()
    host.streams_heartbeat(
        "m", user_endpoint=Endpoint("h", 1), client_tags=[KeyValue("zone", "a")], rack_id="r"
    )
    (member,) = host.describe_streams_group().members
    assert (member.member_id, member.member_epoch, member.topology_epoch) == ("m", 2, 0)
    assert (member.process_id, member.rack_id, member.client_id) == ("of-m", "r", "client")
    assert (member.user_endpoint.host, member.user_endpoint.port) == ("h", 1)
    assert [(tag.key, tag.value) for tag in member.client_tags] == [("zone", "a")]
    for assignment in (member.assignment, member.target_assignment):
        assert rows(assignment.active_tasks) == {"0": [0, 1, 2]}
        assert (assignment.standby_tasks, assignment.warmup_tasks) == ([], [])
    assert host.coordinator.streams_requests.assigned_partitions(host.coordinator.group("g")) == {
        "m": [("t", 0), ("t", 1), ("t", 2)]
    }


def drop_heartbeat(host: GroupHost) -> None:
    """Send a heartbeat of member m in epoch 2. Drop the records that it causes, as happens when the
    disk is full.
    """
    request = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=2)
    result = host.coordinator.streams_requests.on_heartbeat(
        request, RequestContext(0, 0, "client", "/192.0.2.7"), host.now_ms
    )
    assert result.records
    host.coordinator.on_records_dropped("g")


def test_a_decision_whose_records_were_not_written_is_made_again() -> None:
    host = new_host()
    host.streams_heartbeat("m")
    host.topics["t"] = 5
    drop_heartbeat(host)
    assert given(host.streams_heartbeat("m", 2)) == (0, 3, {"0": [0, 1, 2, 3, 4]})


@pytest.mark.usefixtures("small_slices")
def test_an_assignment_is_dropped_if_the_records_of_its_epoch_were_not_written() -> None:
    """The group uses the epoch of the dropped assignment again, after its topics have changed once
    more.
    """
    host = new_host()
    host.streams_heartbeat("m")
    host.pass_time(0)
    host.streams_heartbeat("m", 1)
    host.topics["t"] = 5
    drop_heartbeat(host)
    host.topics["t"] = 7
    host.streams_heartbeat("m", 2)
    host.pass_time(0)
    assert given(host.streams_heartbeat("m", 2)) == (0, 3, {"0": list(range(7))})


# --- bounds ---------------------------------------------------------------------------------------


def test_a_topology_with_too_many_tasks_or_subtopologies_is_refused_and_leaves_nothing() -> None:
    host = GroupHost(topics={"t": 1_000})
    for count, fault in ((21, "21000 tasks"), (1_001, "1001 subtopologies")):
        many = Topology(0, [Subtopology(str(at), ["t"], [], [], [], [], []) for at in range(count)])
        answer = host.streams_heartbeat("m", topology=many)
        assert answer.error_code == Code.STREAMS_INVALID_TOPOLOGY
        assert fault in answer.error_message and ": " in answer.error_message
    assert host.list_groups() == {}


def test_all_groups_together_have_a_bounded_number_of_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A group counts as long as it has members. The bound holds after a start, too."""
    monkeypatch.setattr(streams_groups, "MOST_TASKS_OF_ALL", 8)
    host = new_host()
    for group in ("g", "h"):
        assert host.streams_heartbeat("m", group=group).error_code == 0
    refused = host.streams_heartbeat("m", group="i")
    assert refused.error_code == Code.GROUP_MAX_SIZE_REACHED
    assert (
        "3 tasks, and the other streams groups 6: together they may have 8" in refused.error_message
    )
    assert host.streams_heartbeat("n", group="h").error_code == 0, "it needs no more than before"
    assert host.streams_heartbeat("m", LEAVE, group="g").error_code == 0
    assert host.streams_heartbeat("m", group="i").error_code == 0
    host.restart()
    assert host.streams_heartbeat("m", group="g").error_code == Code.GROUP_MAX_SIZE_REACHED


def test_a_topology_names_a_bounded_number_of_topics() -> None:
    """Each name costs work in each plan, and a copartition group names topics by their indexes."""
    host = new_host()
    names = [f"x{at}" for at in range(4_999)]
    for subtopology, is_taken in (
        (Subtopology("0", ["t", *names], [], [], [], [], []), True),
        (Subtopology("0", ["t"], [], [], ["y", *names], [], []), False),
        (Subtopology("0", ["t"], copartition_groups=[CopartitionGroup([0] * 5_000)]), False),
    ):
        answer = host.streams_heartbeat(
            "m", group=f"g{is_taken}", topology=Topology(0, [subtopology])
        )
        assert (answer.error_code == 0) is is_taken
        assert is_taken or "5001 topics, and may name 5000" in answer.error_message
