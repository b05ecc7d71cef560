"""Server-side assignors (KIP-848, "Server Side Assignors").

tests/property/test_coordinator_assignors.py compares `uniform` with the best possible balance.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from barnabas.coordinator.groups.consumer.assignors import (
    Assignment,
    MemberToAssign,
    assign_range,
    assign_uniform,
)

T, U, V, W = (uuid.UUID(int=number) for number in (1, 2, 3, 4))


def members(
    wanted: Mapping[str, tuple[uuid.UUID, ...]],
    had: Mapping[str, Assignment] | None = None,
    instances: Mapping[str, str] | None = None,
) -> dict[str, MemberToAssign]:
    """The members of a group. `wanted` has the topics of each member, `had` the current
    assignments, and `instances` the instance ids of static members.
    """
    return {
        name: MemberToAssign(
            (instances or {}).get(name), frozenset(topics), (had or {}).get(name, {})
        )
        for name, topics in wanted.items()
    }


def test_uniform_shares_out_evenly() -> None:
    given = assign_uniform(members({"a": (T,), "b": (T,)}), {T: 5})
    assert given == {"a": {T: (0, 1, 4)}, "b": {T: (2, 3)}}


def test_uniform_moves_only_the_partitions_that_a_new_member_needs() -> None:
    had = {"a": {T: (0, 1, 2)}, "b": {T: (3, 4, 5)}}
    given = assign_uniform(members({"a": (T,), "b": (T,), "c": (T,)}, had), {T: 6})
    assert given == {"a": {T: (0, 1)}, "b": {T: (3, 4)}, "c": {T: (2, 5)}}


def test_uniform_gives_the_partitions_of_a_removed_member_to_the_others() -> None:
    had = {"a": {T: (0, 3)}, "c": {T: (2,)}}
    given = assign_uniform(members({"a": (T,), "c": (T,)}, had), {T: 4})
    assert given == {"a": {T: (0, 3)}, "c": {T: (1, 2)}}


def test_an_assignment_that_stays_is_the_very_same_object() -> None:
    had = {"a": {T: (0,)}, "b": {T: (1,)}}
    given = assign_uniform(members({"a": (T,), "b": (T,), "c": (T,)}, had), {T: 2})
    assert given["a"] is had["a"] and given["b"] is had["b"] and given["c"] == {}


def test_uniform_removes_missing_partitions_and_those_that_two_members_have() -> None:
    had = {"a": {T: (0, 1, 9), V: (0,)}, "b": {T: (1,)}}
    given = assign_uniform(members({"a": (T,), "b": (T,)}, had), {T: 2})
    assert given == {"a": {T: (0,)}, "b": {T: (1,)}}


def test_uniform_with_subscriptions_of_their_own() -> None:
    given = assign_uniform(members({"a": (T, U), "b": (U,)}), {T: 3, U: 3})
    assert given == {"a": {T: (0, 1, 2)}, "b": {U: (0, 1, 2)}}


def test_uniform_balances_members_without_a_common_topic_through_a_third() -> None:
    """Member a has two partitions and c has none. They share no topic, but b shares one topic with
    a and another one with c.
    """
    had = {"a": {T: (0, 1)}, "b": {U: (0,)}}
    given = assign_uniform(members({"a": (T,), "b": (T, U), "c": (U,)}, had), {T: 2, U: 1})
    assert sorted(sum(map(len, one.values())) for one in given.values()) == [1, 1, 1]
    assert given == {"a": {T: (0,)}, "b": {T: (1,)}, "c": {U: (0,)}}


def test_topics_without_subscribers_and_members_without_topics_get_no_assignment() -> None:
    assert assign_uniform({}, {T: 1}) == {}
    assert assign_uniform(members({"a": ()}), {T: 1}) == {"a": {}}
    assert assign_uniform(members({"a": (), "b": (U,)}), {T: 1, U: 1}) == {"a": {}, "b": {U: (0,)}}
    assert assign_range(members({"a": ()}), {T: 1}) == {"a": {}}


def test_range_gives_consecutive_partitions_and_the_same_ones_of_equal_topics() -> None:
    given = assign_range(members({"b": (T, U), "a": (T, U), "c": (T,)}), {T: 7, U: 7})
    assert given == {
        "a": {T: (0, 1, 2), U: (0, 1, 2, 3)},
        "b": {T: (3, 4), U: (4, 5, 6)},
        "c": {T: (5, 6)},
    }
    alike = assign_range(members({"b": (T, U), "a": (T, U)}), {T: 5, U: 5})
    assert all(given[T] == given[U] for given in alike.values())


def test_range_keeps_the_partitions_of_a_static_member_with_a_new_member_id() -> None:
    wanted = {"x": (T,), "y": (T,), "z": (T,)}
    first = assign_range(members(wanted, instances={"x": "1", "y": "2"}), {T: 3})
    wanted = {"a": (T,), "y": (T,), "z": (T,)}
    second = assign_range(members(wanted, instances={"a": "1", "y": "2"}), {T: 3})
    assert first["x"] == second["a"] and first["y"] == second["y"] and first["z"] == second["z"]


def test_range_gives_nothing_to_members_that_are_too_many() -> None:
    assert assign_range(members({"a": (T,), "b": (T,)}), {T: 1}) == {"a": {T: (0,)}, "b": {}}


def test_range_begins_with_static_members_in_the_order_of_their_instance_ids() -> None:
    instances = {"y": "2", "z": "1"}
    given = assign_range(members({"a": (T,), "y": (T,), "z": (T,)}, instances=instances), {T: 3})
    assert given == {"z": {T: (0,)}, "y": {T: (1,)}, "a": {T: (2,)}}


def test_range_shares_out_the_topics_behind_one_that_nobody_wants() -> None:
    assert assign_range(members({"a": (U,)}), {T: 1, U: 1}) == {"a": {U: (0,)}}


def test_uniform_leaves_a_member_the_partitions_of_topics_that_it_still_wants() -> None:
    had: dict[str, Assignment] = {"a": {U: (0,), T: (0,)}, "b": {T: (1,)}}
    given = assign_uniform(members({"new": (T,), "a": (T,), "b": (T,)}, had), {T: 3})
    assert given == {"new": {T: (2,)}, "a": {T: (0,)}, "b": {T: (1,)}}


def test_uniform_gives_spare_partitions_to_members_at_their_share() -> None:
    had: dict[str, Assignment] = {"a": {T: (0, 1)}}
    given = assign_uniform(members({"a": (T,), "b": (T,), "c": (T,)}, had), {T: 5})
    assert sorted(sum(map(len, one.values())) for one in given.values()) == [1, 2, 2]
    assert given["a"] == had["a"]


def test_uniform_with_different_subscriptions_omits_topics_without_a_partition() -> None:
    """Member a gives its partition of T to b, and keeps U, to which only a is subscribed."""
    had: dict[str, Assignment] = {"a": {T: (0,), U: (0,)}}
    given = assign_uniform(members({"a": (T, U), "b": (T,)}, had), {T: 1, U: 1})
    assert given == {"a": {U: (0,)}, "b": {T: (0,)}}


# --- different subscriptions: paths from member to member ----------------------------------------


def loads(given: Mapping[str, Assignment]) -> dict[str, int]:
    return {name: sum(map(len, one.values())) for name, one in given.items()}


def test_a_member_passes_partitions_on_while_another_has_two_fewer() -> None:
    had: dict[str, Assignment] = {"a": {T: (0, 1, 2, 3, 4, 5)}}
    given = assign_uniform(members({"a": (T,), "b": (T, U), "c": (U,)}, had), {T: 6, U: 1})
    assert loads(given) == {"a": 3, "b": 3, "c": 1}
    assert given["a"] == {T: (0, 1, 2)}


def test_a_member_passes_on_partitions_of_another_topic_when_the_first_is_used_up() -> None:
    had: dict[str, Assignment] = {"a": {T: (0,), U: (0, 1, 2)}}
    wanted = {"a": (T, U), "b": (T, U), "c": (V,)}
    given = assign_uniform(members(wanted, had), {T: 1, U: 3, V: 1})
    assert loads(given) == {"a": 2, "b": 2, "c": 1}


def test_the_member_with_the_fewest_partitions_gets_one_of_those_reachable() -> None:
    had: dict[str, Assignment] = {"a": {T: (0, 1, 2)}, "b": {U: (0, 1)}}
    given = assign_uniform(members({"a": (T,), "b": (T, U), "c": (T,)}, had), {T: 3, U: 2})
    assert loads(given) == {"a": 2, "b": 2, "c": 1}
    assert given["b"] == had["b"]


def test_a_partition_can_be_passed_on_through_a_member_with_another_topic() -> None:
    """To balance a and c, a gives a partition to b, and b gives one to c, so that b keeps its
    number of partitions.
    """
    had: dict[str, Assignment] = {
        "a": {T: (0, 1, 2)},
        "b": {T: (3,), U: (0,)},
        "c": {V: (0,)},
    }
    wanted = {"a": (T,), "b": (T, U), "c": (U, V)}
    given = assign_uniform(members(wanted, had), {T: 4, U: 1, V: 1})
    assert loads(given) == {"a": 2, "b": 2, "c": 2}


def test_a_member_that_receives_a_partition_later_is_balanced_again() -> None:
    """First x, y and w get 2, 2 and 1 partitions of W. Then g gives its only partition of T to x,
    so x must give away one of its partitions of W.
    """
    had: dict[str, Assignment] = {"x": {W: (0, 1, 2, 3, 4)}, "g": {T: (0,), U: (0, 1, 2)}}
    wanted = {"x": (T, W), "y": (W,), "w": (W,), "g": (T, U)}
    given = assign_uniform(members(wanted, had), {T: 1, U: 3, W: 5})
    assert loads(given) == {"x": 2, "y": 2, "w": 2, "g": 3}
