"""The simulator finds planted mistakes: each within MOST_SEEDS, on one that the broker passes.

Side by side each of them is a piece of its own (tests/conftest.py). One that is not found costs
about half a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from checkers import kinds_of

from sim import two_phase_defects  # enters its own into the list
from sim.defects import DEFECTS, Defect
from sim.world import run_seed

MOST_SEEDS = 300


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_there_are_enough() -> None:
    assert two_phase_defects.with_power in {defect.tweak for defect in DEFECTS}
    assert len(DEFECTS) >= 60
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)


def test_every_one_can_be_planted() -> None:
    """What it changes is still there under its name."""
    for defect in DEFECTS:
        with defect.plant():
            pass


@pytest.mark.parametrize("defect", DEFECTS, ids=[defect.name for defect in DEFECTS])
def test_a_planted_defect_is_found(defect: Defect) -> None:
    for seed in range(MOST_SEEDS):
        with defect.plant():
            found = kinds_of(run_seed(seed, tweak=defect.tweak).findings)
        if defect.kinds.intersection(found) and not run_seed(seed, tweak=defect.tweak).findings:
            return
    pytest.fail(f"{defect.says}: not found in {MOST_SEEDS} seeds")
