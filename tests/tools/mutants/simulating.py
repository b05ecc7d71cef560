"""Runs the simulator against mutants. Each mutant gets a number of seeds, and stops at the first
seed with findings.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from checkers import kinds_of
from sim.world import run_seed

from mutants.children import Job, Outcome, limit_next_step, run_all
from mutants.hunting import UNFIT, Verdict
from mutants.mutations import Mutant, MutatedModule
from mutants.planting import Functions, UnfitMutant

SECONDS_A_SEED = 0.5  # a limit for the average seed; the unchanged broker takes an eighth of it
LEAST_LIMIT_S = 60.0
LONGEST_SEED_S = 15.0


def verdicts(
    root: Path,
    mutants: Iterable[Mutant],
    modules: dict[str, MutatedModule],
    seeds: int,
    processes: int,
    tried_first: Mapping[str, Sequence[int]] = {},
) -> Iterator[Verdict]:
    """The verdict on each mutant, from the seeds 0 to `seeds` - 1.

    The `test` of a verdict names the seed and the kinds of its findings. `tried_first` has, by the
    key of a mutant, seeds that found it before.
    """
    run_seed(0)  # load the lazily imported modules
    gc.collect()
    functions = Functions(root, modules)
    gc.freeze()
    by_key: dict[str, Mutant] = {}

    def job(mutant: Mutant) -> Job:
        by_key[mutant.key] = mutant

        def run(directory: Path) -> str:
            logging.disable(logging.CRITICAL)
            try:
                functions.plant(
                    mutant.module, mutant.function, modules[mutant.module].source_of(mutant)
                )
            except UnfitMutant:
                return UNFIT
            first = [seed for seed in tried_first.get(mutant.key, ()) if seed < seeds]
            for seed in (*first, *(seed for seed in range(seeds) if seed not in first)):
                limit_next_step(LONGEST_SEED_S)
                findings = run_seed(seed).findings
                if findings:
                    return f"seed {seed}: {', '.join(sorted(kinds_of(findings)))}"
            return ""

        return Job(mutant.key, run, LEAST_LIMIT_S + SECONDS_A_SEED * seeds)

    for outcome in run_all(map(job, mutants), processes):
        yield _verdict(by_key[outcome.name], seeds, outcome)


def _verdict(mutant: Mutant, seeds: int, outcome: Outcome) -> Verdict:
    """The verdict on a mutant, from the outcome of the process that ran the seeds."""
    if outcome.value == UNFIT:
        return Verdict(mutant, None, seeds, UNFIT, outcome.took_s)
    if outcome.value is None:
        return Verdict(
            mutant,
            None,
            seeds,
            "out of time" if outcome.is_out_of_time else "crash",
            outcome.took_s,
        )
    return Verdict(
        mutant, outcome.value or None, seeds, "findings" if outcome.value else "", outcome.took_s
    )
