"""The simulator finds each planted mistake within MOST_SEEDS seeds, on a seed that has no findings
for the unchanged broker.

The seed that last found a mistake is tried first (`defect_seeds.py`); otherwise these tests would
take two minutes. With `-n` each test is distributed separately (tests/conftest.py). A mistake
that is not found costs about half a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

# These modules are imported because they add their mistakes to the list.
from sim import quota_defects, share_defects, two_phase_defects, whole_defects
from sim.defect_seeds import MOST_SEEDS, finding_seed, one_in_some
from sim.defects import DEFECTS, Defect

pytestmark = pytest.mark.deep


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_there_are_enough() -> None:
    assert two_phase_defects.with_power in {defect.tweak for defect in DEFECTS}
    assert quota_defects.focuses.with_quotas in {defect.tweak for defect in DEFECTS}
    assert share_defects.with_power in {defect.tweak for defect in DEFECTS}
    assert whole_defects.with_whole_transactions in {defect.tweak for defect in DEFECTS}
    assert len(DEFECTS) >= 60
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)


def test_every_one_can_be_planted() -> None:
    """Planting a defect fails if the attribute that it changes no longer exists."""
    for defect in DEFECTS:
        with defect.plant():
            pass


@pytest.mark.parametrize("defect", one_in_some(DEFECTS))
def test_a_planted_defect_is_found(defect: Defect) -> None:
    assert finding_seed(defect) is not None, f"{defect.says}: not found in {MOST_SEEDS} seeds"
