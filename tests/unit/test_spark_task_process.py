"""What a task's process does once for all its tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from barnabas.spark_connector.task_process import exempt_modules_from_collection


@pytest.fixture(autouse=True)
def collections_as_before() -> Iterator[None]:
    exempt_modules_from_collection.cache_clear()
    yield
    gc.unfreeze()
    exempt_modules_from_collection.cache_clear()


def test_modules_are_exempt_and_what_comes_later_is_not() -> None:
    before = gc.get_freeze_count()
    exempt_modules_from_collection()
    count = gc.get_freeze_count()
    assert count - before > 1000
    later: list[object] = []
    later.append(later)
    del later
    assert gc.collect() >= 1


def test_it_is_done_once() -> None:
    exempt_modules_from_collection()
    kept = [[] for _ in range(5000)]  # a second time would exempt these, too
    count = gc.get_freeze_count()
    exempt_modules_from_collection()
    assert gc.get_freeze_count() <= count
    assert len(kept) == 5000
