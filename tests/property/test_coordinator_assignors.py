"""Server-side assignors. Each partition that any member wants is assigned to one member that wants
it. `uniform` has the best possible balance and moves few partitions, and `range` gives contiguous
ranges.
"""

from __future__ import annotations

import itertools
import uuid

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.groups.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    MemberToAssign,
    assign_range,
    assign_uniform,
)

TOPICS = [uuid.UUID(int=number) for number in range(1, 4)]


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, MemberToAssign], dict[uuid.UUID, int]]:
    """Up to four members, of which some still have a part of an earlier assignment, and topics that
    may have changed since that assignment.
    """
    counts = {
        topic: draw(st.integers(0, 4)) for topic in TOPICS[: draw(st.integers(1, len(TOPICS)))]
    }
    names = [f"m{number}" for number in range(draw(st.integers(1, 4)))]
    alike = draw(st.booleans())
    common = draw(st.frozensets(st.sampled_from(TOPICS)))
    members = {}
    had: dict[str, dict[uuid.UUID, set[int]]] = {name: {} for name in names}
    for topic, count in counts.items():
        for partition in range(count + 1):
            owner = draw(st.sampled_from([None, *names]))
            if owner is not None:
                had[owner].setdefault(topic, set()).add(partition)
    for name in names:
        wanted = common if alike else draw(st.frozensets(st.sampled_from(TOPICS)))
        assignment: Assignment = {topic: tuple(sorted(row)) for topic, row in had[name].items()}
        instance = draw(st.sampled_from([None, f"i{name}"]))
        members[name] = MemberToAssign(instance, wanted, assignment)
    return members, counts


def owners(given_out: dict[str, Assignment]) -> dict[tuple[uuid.UUID, int], str]:
    """The member that has each partition. Fails if a partition has two owners."""
    found: dict[tuple[uuid.UUID, int], str] = {}
    for name, assignment in given_out.items():
        for topic, partitions in assignment.items():
            assert partitions and list(partitions) == sorted(set(partitions))
            for partition in partitions:
                assert (topic, partition) not in found, "a partition has two owners"
                found[topic, partition] = name
    return found


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_each_partition_that_is_wanted_has_one_owner_that_wants_it(
    group: tuple[dict[str, MemberToAssign], dict[uuid.UUID, int]], assignor: str
) -> None:
    members, counts = group
    given_out = ASSIGNORS[assignor](members, counts)
    assert given_out.keys() == members.keys()
    found = owners(given_out)
    assert set(found) == {
        (topic, partition)
        for topic, count in counts.items()
        for partition in range(count)
        if any(topic in member.topics for member in members.values())
    }
    assert all(topic in members[name].topics for (topic, _), name in found.items())


@given(groups())
def test_uniform_has_the_best_possible_balance(
    group: tuple[dict[str, MemberToAssign], dict[uuid.UUID, int]],
) -> None:
    members, counts = group
    found = owners(assign_uniform(members, counts))
    takers = [
        [name for name, member in members.items() if topic in member.topics] for topic, _ in found
    ]
    if len(found) > 6:  # too many partitions to try all assignments, so compare pairs of members
        loads = {name: list(found.values()).count(name) for name in members}
        for (topic, _), name in found.items():
            for other in members:
                assert topic not in members[other].topics or loads[name] - loads[other] < 2
        return
    best = min(sum(way.count(name) ** 2 for name in members) for way in itertools.product(*takers))
    assert sum(list(found.values()).count(name) ** 2 for name in members) == best


@given(groups())
def test_uniform_keeps_a_balanced_assignment(
    group: tuple[dict[str, MemberToAssign], dict[uuid.UUID, int]],
) -> None:
    members, counts = group
    first = assign_uniform(members, counts)
    settled = {name: member._replace(assignment=first[name]) for name, member in members.items()}
    again = assign_uniform(settled, counts)
    assert again == first
    assert all(again[name] is settled[name].assignment for name in settled if again[name])


@given(st.integers(1, 8), st.integers(0, 30))
def test_a_new_member_takes_only_its_share_and_no_other_partition_moves(
    members: int, partitions: int
) -> None:
    topic = TOPICS[0]
    before = assign_uniform(
        {f"m{n}": MemberToAssign(None, frozenset({topic}), {}) for n in range(members)},
        {topic: partitions},
    )
    group = {name: MemberToAssign(None, frozenset({topic}), row) for name, row in before.items()}
    group["new"] = MemberToAssign(None, frozenset({topic}), {})
    after = owners(assign_uniform(group, {topic: partitions}))
    moved = [key for key, name in owners(before).items() if after[key] != name]
    assert len(moved) == partitions // (members + 1)
    assert all(after[key] == "new" for key in moved)


@given(groups())
def test_range_gives_runs_whose_sizes_differ_by_one(
    group: tuple[dict[str, MemberToAssign], dict[uuid.UUID, int]],
) -> None:
    members, counts = group
    given_out = assign_range(members, counts)
    for topic, count in counts.items():
        runs = [
            given_out[name].get(topic, ())
            for name, member in members.items()
            if topic in member.topics
        ]
        assert all(list(run) == list(range(run[0], run[-1] + 1)) for run in runs if run)
        sizes = [len(run) for run in runs]
        assert not sizes or (max(sizes) - min(sizes) <= 1 and sum(sizes) == count)
