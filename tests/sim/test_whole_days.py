"""Short schedules for whole transactions: nothing is found in the broker, and planted mistakes are.

`python -m sim --whole --seeds 10000` runs more of them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest
from checkers import kinds_of

from sim import whole_defects
from sim.defects import DEFECTS, Defect
from sim.whole_days import THINGS, run_day

SEEDS, SEEDS_FOR_ALL_THINGS, MOST_SEEDS = 12, 120, 60
DEFECTS_OF_WHOLE = [one for one in DEFECTS if one.plant.__module__ == whole_defects.__name__]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("seed", "lesson"),
    [
        (57, "the indexes of a segment that a start removes stayed in memory"),
        (340, "after a kill a start showed a result without its cause"),
        (6976, "a request that was not noted left a row for its connection"),
        (2209, "the simulator's rim ended where a file of an answer was removed"),
        (75, "a standby did not get the cuts that were recorded after their file was replaced"),
    ],
)
def test_what_was_learnt(seed: int, lesson: str) -> None:
    report = run_day(seed)
    assert not report.findings, f"{lesson}: {report.findings}"


def test_short_schedules_show_no_transaction_by_half() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        report = run_day(seed)
        assert not report.findings, (seed, report.findings)
        seen.update(report.seen)
    assert seen["held back"] > SEEDS // 2
    assert seen["a cut was recorded"] > SEEDS // 2


@pytest.mark.deep
def test_short_schedules_have_everything_that_they_are_for() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS_FOR_ALL_THINGS):
        seen.update(run_day(seed).seen)
    assert {thing for thing in THINGS if not seen[thing]} == set()


@pytest.mark.deep
@pytest.mark.parametrize("defect", [pytest.param(one, id=one.name) for one in DEFECTS_OF_WHOLE])
def test_a_planted_mistake_is_found(defect: Defect) -> None:
    for seed in range(MOST_SEEDS):
        with defect.plant():
            found = kinds_of(run_day(seed).findings)
        if defect.kinds.intersection(found):
            return
    raise LookupError(f"{defect.says}: not found in {MOST_SEEDS} seeds")


def test_there_are_planted_mistakes() -> None:
    assert len(DEFECTS_OF_WHOLE) > 10
