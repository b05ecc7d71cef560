"""Invariants of a streams group with random members, with lost responses, restarts, power losses,
and topics that are created, grow and are deleted.

These hold after every step. A new coordinator that replays the log has the same hard state (which
the host checks). No task is active on two members. No process has a task twice. A member's epoch
does not decrease while the member stays. A commit for a task is accepted only while the group
assigns the task to that member. At the end, after undisturbed heartbeats, each task has one active
member, and as many standby members as configured.

The tests also find planted defects.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
from helpers.examples import drawn
from helpers.group_host import GroupHost
from helpers.strays import wrong_deadlines
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.groups.streams import (
    sticky_assignor,
    streams_group,
    streams_group_change,
    streams_groups,
    task_reconciliation,
)
from barnabas.coordinator.groups.streams.streams_group_change import StreamsGroupChange
from barnabas.coordinator.groups.streams.streams_groups import StreamsGroups, streams_group_of
from barnabas.coordinator.groups.streams.task_reconciliation import FreeTasks
from barnabas.coordinator.groups.streams.tasks import each
from barnabas.coordinator.result import Result
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Subtopology,
    TopicInfo,
    Topology,
)

NAMES = ("a", "b", "c", "d", "e")
PROCESSES = {"a": "p", "b": "p", "c": "q", "d": "q", "e": "r"}
PAUSES_MS = (1, 500, 1_000, 4_000, 11_000, 46_000)
REBALANCE_MS = 4_000
INTERVAL_MS = 500
GROUP = "g"
Task = tuple[str, int]


class Step(NamedTuple):
    kind: str
    who: int
    what: int


KINDS = {
    "beat": 12, "round": 8, "lose answer": 4, "leave": 2, "die": 1, "pause": 4, "make": 3,
    "grow": 1, "delete": 1, "create": 1, "drop internal": 1, "standby": 1, "restart": 1,
    "power": 1, "commit": 4, "move": 1,
}  # fmt: skip
STEPS = st.builds(
    Step,
    st.sampled_from([kind for kind, weight in KINDS.items() for _ in range(weight)]),
    st.integers(0, len(NAMES) - 1),
    st.integers(0, 5),
)


def topology() -> Topology:
    """A topology that reads "t" and "u", repartitions "t", and keeps counts of both."""
    reading = Subtopology("0", ["t"], [], [], ["rep"], [], [])
    joining = Subtopology(
        "1", ["u"], [], [TopicInfo("log", 0, 0, [])], [], [TopicInfo("rep", 0, 0, [])],
        [CopartitionGroup([0], [], [0])],
    )  # fmt: skip
    return Topology(0, [reading, joining])


class Member:
    """A member that acts on the last response it received."""

    def __init__(self, host: GroupHost, name: str) -> None:
        self.host, self.name, self.incarnation = host, name, 0
        self.process = PROCESSES[name]
        self.begin()

    def begin(self) -> None:
        """Start again as a new process with the same name."""
        self.incarnation += 1
        self.id, self.epoch = f"{self.name}{self.incarnation}", 0
        self.forget()

    def forget(self) -> None:
        """Drop all tasks, as a member does when the group has removed it."""
        self.active: set[Task] = set()
        self.standby: set[Task] = set()
        self.has_missed = False
        self.sent: Any = None

    def beat(self, *, hears: bool = True) -> None:
        """Send a heartbeat, and do what the response requires. If `hears` is false, the response is
        lost.
        """
        fields: dict[str, Any] = {}
        if self.epoch == 0:
            self.forget()
            fields = {
                "topology": topology(), "process_id": f"{self.process}{self.incarnation // 8}",
                "rebalance_timeout_ms": REBALANCE_MS,
            }  # fmt: skip
        mine = (by_subtopology(self.active), by_subtopology(self.standby))
        if self.epoch == 0 or self.has_missed or mine != self.sent:
            fields |= {"owned": mine[0], "standby": mine[1]}
        self.sent = mine
        answer = self.host.streams_heartbeat(self.id, self.epoch, **fields)
        self.has_missed = not hears
        if not hears:
            return
        if answer.error_code in (
            Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.GROUP_ID_NOT_FOUND,
        ):  # fmt: skip
            self.epoch = 0
            self.forget()
        elif answer.error_code == Code.INVALID_REQUEST:  # the topic has fewer partitions now
            self.begin()
        else:
            assert answer.error_code == Code.NONE, answer
            assert answer.member_epoch >= self.epoch, "an epoch goes back"
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.active, self.standby = (
                    {(row.subtopology_id, number) for row in rows for number in row.partitions}
                    for rows in (answer.active_tasks, answer.standby_tasks)
                )
                assert answer.warmup_tasks == []

    def leave(self) -> None:
        self.host.streams_heartbeat(self.id, -1)
        self.begin()


def by_subtopology(tasks: set[Task]) -> dict[str, list[int]]:
    """The task numbers, by subtopology."""
    found: dict[str, list[int]] = {}
    for name, number in sorted(tasks):
        found.setdefault(name, []).append(number)
    return found


class World:
    """The coordinator's host and the members."""

    def __init__(self, interval_ms: int, delay_ms: int) -> None:
        self.host = GroupHost(topics={"t": 4, "u": 2}, partition_count=1)
        self.settings = {
            "streams.assignment.interval.ms": interval_ms,
            "streams.initial.rebalance.delay.ms": delay_ms,
        }
        self.host.overrides[GROUP] = self.settings
        self.members = [Member(self.host, name) for name in NAMES]
        self.is_active = dict.fromkeys(NAMES, False)

    def take(self, step: Step) -> None:
        """Make one step: an action of a member, or a change of its environment."""
        member, what = self.members[step.who], step.what
        match step.kind:
            case "beat":
                self.is_active[member.name] = True
                member.beat()
            case "round":
                for other in self.members:
                    if self.is_active[other.name] and other is not member:
                        other.beat()
            case "lose answer":
                member.beat(hears=False)
            case "leave":
                self.is_active[member.name] = False
                member.leave()
            case "die":
                self.is_active[member.name] = False
                member.begin()
            case "commit":
                self.commit(member, what)
            case "move":
                member.process = "pqr"[what % 3]
                if what < 3:
                    member.begin()
                else:
                    member.epoch = 0  # the member joins again with the same id
            case _:
                self.change(step)

    def change(self, step: Step) -> None:
        """Make a step that is not an action of a member: change the topics, the time or the
        coordinator.
        """
        host, what = self.host, step.what
        match step.kind:
            case "pause":
                host.pass_time(PAUSES_MS[what])
            case "make":
                host.make_missing_topics()
            case "grow":
                if "t" in host.topics:
                    host.topics["t"] += what % 2
            case "delete":
                if "t" in host.topics:
                    host.delete_topics("t")
            case "create":
                host.topics.setdefault("t", 2 + what % 4)
            case "drop internal":
                for name in ("rep", "log"):
                    if name in host.topics:
                        host.delete_topics(name)
            case "standby":
                self.settings["streams.num.standby.replicas"] = what % 3
            case "restart":
                host.restart()
            case _:
                host.lose_power({})

    def commit(self, member: Member, what: int) -> None:
        """Commit an offset for a task that the member believes it owns."""
        of_t = sorted(number for name, number in member.active if name == "0")
        if not of_t or member.epoch == 0 or "t" not in self.host.topics:
            return
        number = of_t[what % len(of_t)]
        if number >= self.host.topics["t"]:
            return
        codes = self.host.txn_commit(
            GROUP, {"t": {number: what}}, generation=member.epoch, member=member.id,
            producer_id=member.incarnation,
        )  # fmt: skip
        self.host.end_transaction(member.incarnation, True, group=GROUP)
        if codes[("t", number)] == Code.NONE and self.agrees(member, number) is False:
            raise AssertionError(f"{member.name} commits for a task that is not its own")

    def agrees(self, member: Member, number: int) -> bool | None:
        """Whether the group assigns the task to the member, or None if the group has no members."""
        group = self.host.coordinator.group(GROUP)
        if group is None or group.kind != "streams" or not group.has_members:
            return None
        current = streams_group_of(group).current(member.id)
        return any(
            ("0", number) in set(each(held.active))
            for held in (current.assigned, current.pending_revocation)
        )

    def check(self) -> None:
        """Compare the state of each member with that of the group."""
        assert wrong_deadlines(self.host.coordinator) == []
        described = self.host.describe_streams_group(GROUP)
        if not described.members:
            assert described.group_epoch == described.assignment_epoch, "KAFKA-20442"
        ids = {row.member_id for row in described.members}
        owners: dict[Task, str] = {}
        for member in self.members:
            if member.id not in ids or member.epoch == 0:
                continue
            for task in member.active:
                assert task not in owners, f"{owners[task]} and {member.name} both have {task}"
                owners[task] = member.name
        group = self.host.coordinator.group(GROUP)
        if group is not None and group.kind == "streams":
            self.check_processes(group)

    def check_processes(self, group: Any) -> None:
        """Check that no process has a task twice, neither as an active nor as a standby task. Tasks
        that are being revoked count as well.
        """
        streams = streams_group_of(group)
        held: dict[tuple[str, Task], str] = {}
        for member_id, value in streams.members.items():
            current = streams.current(member_id)
            for part in (current.assigned, current.pending_revocation):
                for tasks in part:
                    for task in each(tasks):
                        key = (value.process_id, task)
                        other = held.setdefault(key, member_id)
                        assert other == member_id, f"{key} is at {other} and {member_id}"

    def settle(self) -> None:
        """Send undisturbed heartbeats, with all topics present, until the group is stable."""
        host = self.host
        host.topics.setdefault("t", 4)
        for name in ("rep", "log"):
            if host.topics.get(name, 2) != 2:
                host.delete_topics(name)
        for member in self.members:
            self.is_active[member.name] = True
        # With checks, each event replays the whole log. A single check at the end is enough.
        host.checks = False
        for rank in range(40):
            for member in self.members:
                member.beat()
            host.make_missing_topics()
            if rank % 8 == 0:
                self.check()
            host.pass_time(1_500)
        host.checks = True
        host.handle(Result())
        described = host.describe_streams_group(GROUP)
        assert {row.member_id for row in described.members} == {one.id for one in self.members}
        assert described.group_state == "Stable"
        tasks = {("0", number) for number in range(host.topics["t"])}
        tasks |= {("1", number) for number in range(2)}
        active = [task for member in self.members for task in member.active]
        assert len(active) == len(tasks) and set(active) == tasks
        processes = len({row.process_id for row in described.members})
        replicas = min(self.settings.get("streams.num.standby.replicas", 0), processes - 1)
        standby = [task for member in self.members for task in member.standby]
        assert sorted(standby) == sorted([("1", 0), ("1", 1)] * replicas)


def run(steps: list[Step], interval_ms: int, delay_ms: int) -> None:
    """Make the steps, check after each, and let the group become stable."""
    world = World(interval_ms, delay_ms)
    for step in steps:
        world.take(step)
        world.check()
    world.settle()


DEFECTS = {
    "a task is given out while another member has it": (
        StreamsGroupChange, "_free_tasks",
        lambda change, process_id: FreeTasks(lambda *_: True, lambda *_: True),
    ),
    "a member is believed to have given up what it was only to give up": (
        task_reconciliation, "owns_any", lambda owned, tasks: False,
    ),
    "a silent member is not removed": (
        StreamsGroups, "on_timers", lambda groups, group, due, result, now_ms: None,
    ),
    "a member whose answer was lost does not get its tasks again": (
        streams_groups, "_differ", lambda owned, assigned: False,
    ),
}  # fmt: skip


FIRST_SEEDS = {  # start at these seeds for defects that the first seeds do not find
    "a member is believed to have given up what it was only to give up": 20,
}


@pytest.mark.parametrize("defect", sorted(DEFECTS))
def test_a_planted_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least one of 150 random histories must fail with the defect in the code."""
    owner, name, broken = DEFECTS[defect]
    monkeypatch.setattr(owner, name, broken)
    kinds = [kind for kind, weight in KINDS.items() for _ in range(weight)]
    kinds += ["lose answer"] * 12
    first = FIRST_SEEDS.get(defect, 0)
    for seed in range(first, first + 150):
        rng = random.Random(seed)
        steps = [
            Step(rng.choice(kinds), rng.randrange(len(NAMES)), rng.randrange(6)) for _ in range(40)
        ]
        try:
            run(steps, 0, 0)
        except AssertionError:
            return
    raise LookupError(f"nothing found of it: {defect}")


@settings(max_examples=drawn(20))
@given(st.lists(STEPS, min_size=10, max_size=60))
def test_groups_that_assign_at_each_change(steps: list[Step]) -> None:
    run(steps, 0, 0)


@settings(max_examples=drawn(20))
@given(st.lists(STEPS, min_size=10, max_size=60))
def test_groups_that_assign_now_and_then(steps: list[Step]) -> None:
    run(steps, INTERVAL_MS, 1_000)


@settings(max_examples=drawn(20))
@given(st.lists(STEPS, min_size=10, max_size=60), st.sampled_from([0, 1_000]))
def test_the_invariants_hold_if_assignments_are_made_in_slices(
    steps: list[Step], delay_ms: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streams_group_change, "TASKS_ASSIGNED_AT_ONCE", 0)
        patched.setattr(sticky_assignor, "TASKS_AT_ONCE", 2)
        patched.setattr(streams_group, "ROWS_WRITTEN_AT_ONCE", 1)
        run(steps, 0, delay_ms)
