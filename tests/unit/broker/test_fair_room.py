"""A bounded room of which each owner may keep an equal share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.fair_room import FairRoom

LIMIT = 12


def room_of(**held: int) -> FairRoom:
    room = FairRoom(LIMIT)
    for owner, count in held.items():
        room.change(owner, count)
    return room


def test_an_owner_may_use_all_the_room_while_no_other_needs_it() -> None:
    room = room_of(ada=LIMIT - 1)
    assert room.has_room(1) and not room.has_room(2)
    assert room.who_yields("ada", 2) is None, "no other owner holds anything"


def test_the_owner_that_holds_most_yields_to_one_within_its_share() -> None:
    room = room_of(ada=9, bob=3)
    assert room.who_yields("eve", 4) == "ada", "a third of 12 is 4"
    assert room.who_yields("eve", 5) is None
    assert room.who_yields("bob", 3) == "ada" and room.who_yields("bob", 4) is None
    assert room.who_yields("ada", 1) is None


def test_what_is_given_back_counts_no_more() -> None:
    room = room_of(ada=9, bob=3)
    room.change("ada", -9)
    assert (room.total, room.held_by("ada")) == (3, 0)
    assert room.who_yields("eve", 7) is None, "two owners: a half each"
    room.clear()
    assert (room.total, room.held_by("bob")) == (0, 0)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10), max_size=6),
    st.sampled_from("abcdefg"),
    st.integers(1, 40),
)
def test_an_owner_within_its_share_always_gets_its_room(
    held: dict[str, int], owner: str, more: int
) -> None:
    """It gets room by taking from owners that hold more than theirs, and from no others."""
    room = FairRoom(40)
    for one, count in held.items():
        if room.has_room(count):
            room.change(one, count)
    is_within = room.held_by(owner) + more <= 40 // len({*room._held, owner})
    while not room.has_room(more):
        largest = room.who_yields(owner, more)
        if largest is None:
            assert not is_within
            return
        assert largest != owner
        assert room.held_by(largest) > 40 // len({*room._held, owner})
        room.change(largest, -1)
    room.change(owner, more)
    assert room.total <= 40
