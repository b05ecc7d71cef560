"""Paths whose deletion from the disk is delayed."""

from __future__ import annotations

import random

from barnabas.storage.log.trash import Trash


def filled() -> Trash:
    trash = Trash()
    for due_ms, path in ((30, "/d/c"), (10, "/d/a"), (20, "/e/b"), (10, "/d/b")):
        trash.add(due_ms, path)
    return trash


def test_the_first_time_is_known_with_each_path_that_comes() -> None:
    trash = Trash()
    assert trash.next_due_ms is None
    for due_ms, first_ms in ((30, 30), (10, 10), (20, 10)):
        trash.add(due_ms, "/d/a")
        assert trash.next_due_ms == first_ms


def test_paths_go_in_the_order_of_their_time() -> None:
    trash = filled()
    assert trash.next_due_ms == 10
    assert trash.take_due(9, 10) == []
    assert trash.take_due(10, 10) == ["/d/a", "/d/b"]
    assert trash.take_due(30, 10) == ["/e/b", "/d/c"] and trash.next_due_ms is None


def test_no_more_are_taken_at_once_than_may_be() -> None:
    trash = filled()
    assert trash.take_due(100, 3) == ["/d/a", "/d/b", "/e/b"] and len(trash) == 1


def test_what_goes_with_its_directory_is_taken_out() -> None:
    trash = filled()
    trash.remove_in({"/d"})
    assert len(trash) == 1 and trash.take_due(100, 10) == ["/e/b"]


def test_what_stays_goes_in_the_order_of_its_time_and_the_first_is_known() -> None:
    """The removed paths may be anywhere among the others."""
    rng = random.Random(5)
    for _ in range(50):
        trash = Trash()
        added = [(rng.randrange(100), f"/{rng.choice('de')}/{number}") for number in range(12)]
        for due_ms, path in added:
            trash.add(due_ms, path)
        trash.remove_in({"/d"})
        left = sorted(one for one in added if one[1].startswith("/e/"))
        assert trash.next_due_ms == (left[0][0] if left else None)
        assert trash.take_due(100, 12) == [path for _, path in left]
