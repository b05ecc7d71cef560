"""Run seeds and say what was found: `python -m sim --seeds 1000`, `python -m sim --seed 17
--trace`.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections import Counter

from checkers import kinds_of

from sim.world import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="sim",
        description="Run the whole broker under a virtual clock, a simulated disk and network.",
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many schedules (default 300)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="print every event of it")
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
    bad: list[int] = []
    counts: Counter[str] = Counter()
    operations = restarts = 0
    for seed in seeds:
        if seed % 50 == 0:
            gc.collect()
        report = run_seed(seed, tracing=print if options.trace else None)
        operations += report.operations
        restarts += report.restarts
        if options.digests:
            print(seed, report.digest)
        if report.findings:
            bad.append(seed)
            counts.update(kinds_of(report.findings))
            print(f"seed {seed}: {len(report.findings)} findings")
            for finding in report.findings[:6]:
                print(f"    {finding.kind}: {finding.text}")
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    if options.quiet:
        return 1 if bad else 0
    print(
        f"{len(seeds)} schedules, {operations} operations, {restarts} restarts in {took_s:.1f} s "
        f"({len(seeds) / took_s:.0f} schedules/s, {len(seeds) / cpu_s:.1f} per CPU second, "
        f"{operations / len(seeds):.0f} operations each): "
        + (f"{len(bad)} with findings {dict(counts)}: {bad[:20]}" if bad else "nothing found")
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
