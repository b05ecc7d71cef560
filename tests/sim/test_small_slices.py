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


def test_nothing_is_found_in_schedules_of_small_slices() -> None:
    with small_slices() as bounds:
        assert len(bounds) > 40, "they have other names now"
        found = {seed: run_seed(seed).findings for seed in range(40, 44)}
    assert {seed: findings[:2] for seed, findings in found.items() if findings} == {}
