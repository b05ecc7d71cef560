"""Runs schedules in which all work is done in slices of one element. Work that continues at the
next tick must be completed although other events occur between any two slices.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from helpers.small_slices import small_slices

from sim.world import run_seed


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "seed", [40, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (41, 42, 43))]
)
def test_nothing_is_found_in_schedules_of_small_slices(seed: int) -> None:
    with small_slices() as bounds:
        assert len(bounds) > 40, "they have other names now"
        assert run_seed(seed).findings[:2] == []
