"""The seeds that last found each planted mistake, which are tried first.

A seed is only a hint: if the simulator's schedules have changed, the search continues from 0, and
costs as much as without the table. `python -m sim.defect_seeds` searches for the mistakes that
their seeds no longer find, and writes `defect_seeds.json`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from checkers import kinds_of

# imported since they add their mistakes to the list
from sim import quota_defects, share_defects, two_phase_defects, whole_defects
from sim.defects import DEFECTS, Defect
from sim.world import run_seed

MOST_SEEDS = 300
ONE_IN = 3  # `make test` searches for one in three mistakes, `make test-long` for the others
PATH = Path(__file__).with_suffix(".json")
SEEDS: dict[str, int] = json.loads(PATH.read_text()) if PATH.exists() else {}


def one_in_some(defects: Sequence[Any]) -> list[Any]:
    """The parameters of a test that searches for planted mistakes; most of them are long tests."""
    return [
        pytest.param(defect, id=defect.name, marks=pytest.mark.long if number % ONE_IN else ())
        for number, defect in enumerate(defects)
    ]


def seeds_for(defect: Defect) -> Iterator[int]:
    """The seeds to try for a mistake, in order."""
    last = SEEDS.get(defect.name)
    if last is not None:
        yield last
    yield from (seed for seed in range(MOST_SEEDS) if seed != last)


def finding_seed(defect: Defect) -> int | None:
    """A seed that has findings with the mistake, and none without it; None if there is no such
    seed.
    """
    for seed in seeds_for(defect):
        with defect.plant():
            found = kinds_of(run_seed(seed, tweak=defect.tweak).findings)
        if defect.kinds.intersection(found) and not run_seed(seed, tweak=defect.tweak).findings:
            return seed
    return None


def main() -> None:
    """Search for all mistakes, and write the table after each one found."""
    assert two_phase_defects.with_power in {defect.tweak for defect in DEFECTS}
    assert quota_defects.focuses.with_quotas in {defect.tweak for defect in DEFECTS}
    assert share_defects.with_power in {defect.tweak for defect in DEFECTS}
    assert whole_defects.with_whole_transactions in {defect.tweak for defect in DEFECTS}
    logging.disable(logging.CRITICAL)
    seeds = dict(SEEDS)
    for defect in DEFECTS:
        seed = finding_seed(defect)
        print(f"{defect.name}: {'not found' if seed is None else f'seed {seed}'}", flush=True)
        if seed is not None:
            seeds[defect.name] = seed
        names = [one.name for one in DEFECTS if one.name in seeds]
        PATH.write_text(json.dumps({name: seeds[name] for name in names}, indent=1) + "\n")


if __name__ == "__main__":
    main()
