"""The assignor of streams groups balances the load, keeps tasks where they are, and places standby
tasks on other processes.
"""

from __future__ import annotations

import random
import time

import pytest
from helpers.slowness import at_desk_s

from barnabas.coordinator.groups.streams.sticky_assignor import (
    MemberToAssign,
    SubtopologyToAssign,
    sticky_in_slices,
)
from barnabas.coordinator.groups.streams.tasks import (
    TaskSet,
    contains_all,
    contains_any,
    each,
    tasks_of,
)

NEW: dict[str, tuple[int, ...]] = {}


def assign_sticky(
    members: dict[str, MemberToAssign],
    subtopologies: dict[str, SubtopologyToAssign],
    standby_count: int,
) -> dict[str, TaskSet]:
    """The target assignment of each member, computed without pauses."""
    work = sticky_in_slices(members, subtopologies, standby_count)
    while True:
        try:
            next(work)
        except StopIteration as end:
            return dict(end.value)


def members(*names: str) -> dict[str, MemberToAssign]:
    """New members by name. Members whose names start with the same letter belong to the same
    process.
    """
    return {name: MemberToAssign(name[0], NEW, NEW) for name in names}


def following(
    former: dict[str, MemberToAssign], targets: dict[str, TaskSet]
) -> dict[str, MemberToAssign]:
    """The former members that have a target, with this target as their current assignment."""
    return {
        name: MemberToAssign(member.process_id, targets[name].active, targets[name].standby)
        for name, member in former.items()
        if name in targets
    }


def topology(**counts: int) -> dict[str, SubtopologyToAssign]:
    """Subtopologies with these numbers of tasks. Those whose names start with "s" have state."""
    return {
        name: SubtopologyToAssign(count, name.startswith("s")) for name, count in counts.items()
    }


def active(targets: dict[str, TaskSet]) -> dict[str, int]:
    return {name: len(list(each(target.active))) for name, target in targets.items()}


def standby(targets: dict[str, TaskSet]) -> dict[str, int]:
    return {name: len(list(each(target.standby))) for name, target in targets.items()}


def test_one_member_gets_all() -> None:
    targets = assign_sticky(members("a"), topology(x=3, s=2), 1)
    assert targets == {"a": TaskSet({"s": (0, 1), "x": (0, 1, 2)}, {}, {})}


def test_without_members_or_tasks_there_is_nothing_to_assign() -> None:
    assert assign_sticky({}, topology(x=3), 0) == {}
    assert assign_sticky(members("a"), {}, 2) == {"a": TaskSet({}, {}, {})}


def test_new_tasks_go_to_the_processes_with_the_least_load() -> None:
    targets = assign_sticky(members("a", "b"), topology(x=4), 0)
    assert [target.active for target in targets.values()] == [{"x": (0, 2)}, {"x": (1, 3)}]
    wide = assign_sticky(members("a1", "a2", "a3", "b"), topology(x=8), 0)
    assert active(wide) == {"a1": 2, "a2": 2, "a3": 2, "b": 2}


def test_a_member_keeps_its_tasks_when_another_joins() -> None:
    alone = assign_sticky(members("a"), topology(x=5), 0)
    both = assign_sticky({**following(members("a"), alone), **members("b")}, topology(x=5), 0)
    assert active(both) == {"a": 3, "b": 2}
    assert both["a"].active == {"x": (0, 1, 2)}
    again = assign_sticky(following(members("a", "b"), both), topology(x=5), 0)
    assert again == both


def test_tasks_of_a_member_that_left_are_spread() -> None:
    three = assign_sticky(members("a", "b", "c"), topology(x=6), 0)
    two = assign_sticky(following(members("a", "b"), three), topology(x=6), 0)
    assert active(two) == {"a": 3, "b": 3}
    for name in ("a", "b"):
        assert set(each(three[name].active)) < set(each(two[name].active))


def test_standby_tasks_exist_for_stateful_subtopologies_on_another_process() -> None:
    targets = assign_sticky(members("a", "b", "c"), topology(s=3, x=3), 1)
    assert active(targets) == {"a": 2, "b": 2, "c": 2}
    assert standby(targets) == {"a": 1, "b": 1, "c": 1}
    for target in targets.values():
        assert not set(each(target.active)) & set(each(target.standby))
        assert set(target.standby) == {"s"}


def test_standby_replicas_are_limited_by_the_number_of_processes() -> None:
    targets = assign_sticky(members("a1", "a2", "b"), topology(s=4), 2)
    assert sum(standby(targets).values()) == 4
    held = [
        {task for name in names for tasks in targets[name][:2] for task in each(tasks)}
        for names in (("a1", "a2"), ("b",))
    ]
    assert held == [{("s", partition) for partition in range(4)}] * 2


def test_a_standby_takes_over_from_a_member_that_left() -> None:
    first = assign_sticky(members("a", "b", "c"), topology(s=3), 1)
    rest = {name: target for name, target in first.items() if name != "a"}
    second = assign_sticky(following(members("b", "c"), rest), topology(s=3), 1)
    (lost,) = each(first["a"].active)
    (heir,) = (name for name in rest if lost in set(each(rest[name].standby)))
    assert lost in set(each(second[heir].active))


def test_a_former_active_member_becomes_the_standby() -> None:
    former = {
        "a": MemberToAssign("a", {"s": (0, 1)}, NEW),
        "b": MemberToAssign("b", NEW, NEW),
    }
    targets = assign_sticky(former, topology(s=2), 1)
    assert (targets["a"].active, targets["b"].active) == ({"s": (0,)}, {"s": (1,)})
    assert (targets["a"].standby, targets["b"].standby) == ({"s": (1,)}, {"s": (0,)})


def test_tasks_that_the_topology_has_no_more_are_dropped() -> None:
    former = {"a": MemberToAssign("a", {"x": (0, 9), "gone": (1,)}, {"gone": (0,)})}
    assert assign_sticky(former, topology(x=1), 1) == {"a": TaskSet({"x": (0,)}, {}, {})}


@pytest.mark.parametrize("seed", range(40))
def test_random_assignments_are_complete_even_and_stable(seed: int) -> None:
    rng = random.Random(seed)
    subtopologies = topology(x=rng.randrange(9), s1=rng.randrange(9), s2=rng.randrange(12))
    replicas = rng.randrange(3)
    names = [f"{rng.choice('abcd')}{number}" for number in range(rng.randrange(1, 7))]
    all_tasks = {
        (name, partition)
        for name, one in subtopologies.items()
        for partition in range(one.task_count)
    }
    group, targets = members(*names), dict[str, TaskSet]()
    for step in range(4):
        targets = assign_sticky(group, subtopologies, replicas)
        counts = active(targets).values()
        given = [task for target in targets.values() for task in each(target.active)]
        assert len(given) == len(all_tasks) and set(given) == all_tasks
        processes = {member.process_id for member in group.values()}
        if len(processes) == len(group):
            assert max(counts) - min(counts) <= 1
        for process in processes:
            of_process = [
                task
                for name, member in group.items()
                if member.process_id == process
                for tasks in targets[name][:2]
                for task in each(tasks)
            ]
            assert len(of_process) == len(set(of_process)), "a process has a task twice"
        stateful = sum(one.task_count for one in subtopologies.values() if one.is_stateful)
        copies = min(replicas, len(processes) - 1)
        assert sum(standby(targets).values()) == stateful * copies
        group = following(group, targets)
        again = assign_sticky(group, subtopologies, replicas)
        assert [one.active for one in again.values()] == [one.active for one in targets.values()]
        if len(group) > 1 and rng.random() < 0.5:
            del group[rng.choice(list(group))]
        else:
            group = {**group, **members(f"{rng.choice('abcde')}x{step}")}


def test_ten_thousand_tasks_take_a_fraction_of_a_second() -> None:
    group = members(*(f"{chr(97 + number % 20)}{number}" for number in range(100)))
    begin = time.thread_time()
    first = assign_sticky(group, topology(s=10_000), 1)
    spent = at_desk_s(time.thread_time() - begin)
    assert max(active(first).values()) - min(active(first).values()) <= 1
    assert spent < 5, f"{spent:.2f} s of CPU"


def test_tasks_have_one_form() -> None:
    assert tasks_of([("b", [2, 1]), ("a", []), ("b", [1, 3])]) == {"b": (1, 2, 3)}


def test_a_replica_stays_beside_another_one_that_stays() -> None:
    """Both former owners of a standby task keep it, the second as well as the first."""
    group = {
        "b": MemberToAssign("b", {"s": (1,)}, {"s": (0,)}),
        "c": MemberToAssign("c", {"s": (2,)}, {"s": (0, 1)}),
        "d": MemberToAssign("d", NEW, {"s": (1, 2)}),
        "new": MemberToAssign("new", NEW, NEW),
    }
    targets = assign_sticky(group, topology(s=3), 2)
    assert targets["d"] == TaskSet({"s": (0,)}, {"s": (1, 2)}, {})


@pytest.mark.parametrize("seed", range(50))
def test_tasks_are_compared_as_sets_are(seed: int) -> None:
    rng = random.Random(seed)
    some, others = (
        {(rng.choice("xyz"), rng.randrange(3)) for _ in range(rng.randrange(5))} for _ in range(2)
    )
    tasks, compared = (tasks_of((name, (at,)) for name, at in one) for one in (some, others))
    assert (set(each(tasks)), list(tasks)) == (some, sorted(tasks))
    assert contains_any(tasks, compared) == bool(some & others)
    assert contains_all(tasks, compared) == (others <= some)
