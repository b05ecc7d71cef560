"""The assignor `simple` of share groups: how many partitions each member gets, and which
assignments are kept.

Source: KIP-932, "The SimpleAssignor", and the transcript `a_share_group_divides_partitions` of
Apache Kafka 4.3.
"""

from __future__ import annotations

import uuid

import pytest

from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.share.simple_assignor import MemberToAssign, assign_simple

T, U, V = (uuid.UUID(int=number) for number in (1, 2, 3))


def assign(
    partitions: dict[uuid.UUID, int], **members: tuple[tuple[uuid.UUID, ...], Assignment]
) -> dict[str, Assignment]:
    return assign_simple(
        {name: MemberToAssign(*member) for name, member in members.items()},
        {topic_id: range(count) for topic_id, count in partitions.items()},
    )


def counts(assigned: dict[str, Assignment]) -> list[int]:
    return [sum(map(len, of_member.values())) for of_member in assigned.values()]


@pytest.mark.parametrize(
    ("partitions", "members", "expected"),
    [
        (4, 1, [4]),
        (4, 2, [2, 2]),
        (4, 3, [1, 1, 2]),
        (4, 5, [1, 1, 2, 2, 2]),  # each partition is assigned to two members
        (1, 3, [1, 1, 1]),
        (3, 9, [1] * 9),
        (2, 3, [1, 1, 2]),
    ],
)
def test_each_member_has_its_share(partitions: int, members: int, expected: list[int]) -> None:
    wanting = {f"m{number}": ((T,), {}) for number in range(members)}
    assigned = assign({T: partitions}, **wanting)
    assert counts(assigned) == expected
    sharing = -(-members // partitions)
    for index in range(partitions):
        assert sum(index in of_member[T] for of_member in assigned.values()) == sharing


def test_members_keep_what_they_have() -> None:
    had = {T: (0, 3)}
    assigned = assign({T: 4}, m=((T,), {}), n=((T,), had))
    assert assigned == {"m": {T: (1, 2)}, "n": had}


def test_the_member_with_one_more_keeps_it() -> None:
    had = {T: (1, 2)}
    assert assign({T: 3}, m=((T,), {}), n=((T,), had)) == {"m": {T: (0,)}, "n": had}


def test_a_new_member_takes_what_others_have_above_their_share() -> None:
    assigned = assign({T: 4}, m=((T,), {T: (0, 1, 2, 3)}), n=((T,), {}))
    assert counts(assigned) == [2, 2]
    assert {*assigned["m"][T], *assigned["n"][T]} == {0, 1, 2, 3}


def test_when_members_leave_each_partition_has_fewer() -> None:
    everything = {T: (0, 1)}
    assigned = assign({T: 2}, m=((T,), everything), n=((T,), everything))
    assert sorted(map(tuple, (assigned["m"][T], assigned["n"][T]))) == [(0,), (1,)]


def test_a_topic_goes_to_those_that_want_it_alone() -> None:
    assigned = assign({T: 2, U: 2, V: 1}, m=((T, U), {V: (0,)}), n=((U,), {}), o=((), {T: (0,)}))
    assert assigned == {"m": {T: (0, 1), U: (0,)}, "n": {U: (1,)}, "o": {}}


def test_the_least_loaded_member_gets_the_additional_partition() -> None:
    assigned = assign({T: 1, U: 1}, m=((T, U), {}), n=((U, V), {}), o=((T,), {}))
    assert all(counts(assigned))
    assert assign({T: 3, U: 3}, m=((T, U), {}), n=((U,), {})) == {
        "m": {T: (0, 1, 2), U: (0,)},
        "n": {U: (1, 2)},
    }


def test_without_partitions_members_have_nothing() -> None:
    assert assign({T: 0}, m=((T, U), {T: (0,)})) == {"m": {}}
    assert assign({}) == {}
