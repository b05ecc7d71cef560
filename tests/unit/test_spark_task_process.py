"""What a task's process does once for all its tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise

import pytest

from barnabas.spark_connector import task_process
from barnabas.spark_connector.task_process import FREEZES, exempt_modules_from_collection


@pytest.fixture(autouse=True)
def collections_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process whose first task begins."""
    monkeypatch.setattr(task_process, "_process", task_process._Process())
    yield
    gc.unfreeze()


def test_modules_are_exempt_and_what_comes_later_is_not() -> None:
    before = gc.get_freeze_count()
    exempt_modules_from_collection()
    count = gc.get_freeze_count()
    assert count - before > 1000
    later: list[object] = []
    later.append(later)
    del later
    assert gc.collect() >= 1


def test_it_is_done_by_the_first_tasks_alone() -> None:
    """What the first ones imported is exempt with the later of them."""
    counts = []
    kept: list[list[list[object]]] = []
    for _ in range(FREEZES + 2):
        exempt_modules_from_collection()
        counts.append(gc.get_freeze_count())
        kept.append([[] for _ in range(5000)])
    growth = [later - earlier for earlier, later in pairwise(counts)]
    assert all(each >= 5000 for each in growth[: FREEZES - 1])
    assert all(each <= 0 for each in growth[FREEZES - 1 :])
    assert len(kept) == FREEZES + 2
