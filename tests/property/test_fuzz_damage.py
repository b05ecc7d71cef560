"""One damaged byte ends no event of the broker, no start, and no other partition. Any number of
seeds: `PYTHONPATH=tests/tools:tests:. python -m fuzz.damage`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest
from fuzz.damage import run

from barnabas.storage import exception_guard

pytestmark = pytest.mark.deep

QUICK, LONG = 40, 800


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_damage_is_the_error_of_one_partition() -> None:
    counts: Counter[str] = Counter()
    for seed in range(QUICK):
        assert run(seed, counts) == []
    assert counts["off line"], "some damage is noticed at the start"


@pytest.mark.long
def test_damage_is_the_error_of_one_partition_with_many_seeds() -> None:
    for seed in range(QUICK, LONG):
        assert run(seed) == []


def test_the_fuzzer_finds_a_broker_that_ends_with_the_first_damaged_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exception_guard, "ends_process", lambda error: True)
    monkeypatch.setattr(
        "barnabas.storage.segments.segment_indexes.SegmentIndexes._noting_error",
        lambda self, build, *, is_for_aborted: build,
    )
    assert any(run(seed) for seed in range(QUICK))
