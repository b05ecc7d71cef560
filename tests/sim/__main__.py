"""Run seeds and print the findings: `python -m sim --seeds 1000`, `python -m sim --seed 17
--trace`. Every eighth seed also has a schedule with two machines; `--pair` runs only these.
`--whole` runs each seed's short schedule for whole transactions (`whole_days.py`) instead.
Every sixteenth is also run without caches, and has to send the same bytes.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable

from checkers import kinds_of

from sim import whole_days
from sim.caches import run_without_caches
from sim.pair_world import run_pair
from sim.world import Report, run_seed

PAIR_EVERY = 8
WITHOUT_CACHES_EVERY, WITHOUT_CACHES_AT = 16, 5
TOLD_EVERY = 500  # progress is printed after this many seeds


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="sim",
        description="Run the whole broker under a virtual clock, a simulated disk and network.",
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many schedules (default 300)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="only this seed")
    parser.add_argument(
        "--pair", action="store_true", help="only each seed's schedule with two machines"
    )
    parser.add_argument(
        "--whole", action="store_true", help="only each seed's short schedule, with what they had"
    )
    parser.add_argument("--trace", action="store_true", help="print every event of the schedules")
    parser.add_argument("--digests", action="store_true", help="print each seed's digest")
    parser.add_argument("--quiet", action="store_true", help="no last line with the figures")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seeds = (
        [options.seed]
        if options.seed is not None
        else range(options.first, options.first + options.seeds)
    )
    began, cpu_began = time.perf_counter(), time.process_time()
    gc.disable()
    bad: list[str] = []
    counts: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    schedules = operations = restarts = 0
    for done, seed in enumerate(seeds):
        if seed % 50 == 0:
            gc.collect()
        if done and done % TOLD_EVERY == 0 and not options.quiet:
            print(f"{done} of {len(seeds)} seeds, {len(bad)} with findings", flush=True)
        for run, name in _kinds_of_schedule(seed, options):
            report = run(seed, tracing=print if options.trace else None)
            schedules += 1
            operations += report.operations
            restarts += report.restarts
            seen.update(report.seen)
            if options.digests:
                print(f"{name}{seed}", report.digest)
            if report.findings:
                bad.append(f"{name}{seed}")
                counts.update(kinds_of(report.findings))
                _show(report, name)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    if options.quiet:
        return 1 if bad else 0
    if options.whole:
        print(whole_days.coverage(seen, schedules))
    print(
        f"{schedules} schedules, {operations} operations, {restarts} restarts in {took_s:.1f} s "
        f"({schedules / took_s:.0f} schedules/s, {schedules / cpu_s:.1f} per CPU second, "
        f"{operations / schedules:.0f} operations each): "
        + (f"{len(bad)} with findings {dict(counts)}: {bad[:20]}" if bad else "nothing found")
    )
    return 1 if bad else 0


def _kinds_of_schedule(
    seed: int, options: argparse.Namespace
) -> list[tuple[Callable[..., Report], str]]:
    """The schedules to run for a seed, each with the text to print before the seed's number."""
    pair = (run_pair, "pair ")
    if options.pair:
        return [pair]
    if options.whole:
        return [(whole_days.run_day, "whole ")]
    runs: list[tuple[Callable[..., Report], str]] = [(run_seed, "")]
    if options.seed is None and seed % PAIR_EVERY == 0:
        runs.append(pair)
    if options.seed is None and seed % WITHOUT_CACHES_EVERY == WITHOUT_CACHES_AT:
        runs.append((run_without_caches, "without caches "))
    return runs


def _show(report: Report, name: str) -> None:
    print(f"{name or 'seed '}{report.seed}: {len(report.findings)} findings")
    for finding in report.findings[:6]:
        print(f"    {finding.kind}: {finding.text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
