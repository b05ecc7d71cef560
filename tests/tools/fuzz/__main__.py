"""Send N mutated requests, or N frames of a client without a password; then print the findings.

PYTHONPATH=tests/tools:tests:. python -m fuzz [--count N] [--seed S] [--intruder]
"""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import tempfile
import time
from pathlib import Path

from helpers.scratch import IN_MEMORY

from fuzz.intruder import Intruder, blocks
from fuzz.storm import Storm

ROUNDS = 10


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def main() -> int:
    """Return the exit code, which is 0 if nothing was found."""
    options = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    options.add_argument(
        "--count", type=int, default=100_000, help="mutated requests (default %(default)s)"
    )
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--intruder", action="store_true", help="before and amid authentication")
    arguments = options.parse_args()
    logging.disable(logging.CRITICAL)
    if arguments.intruder:
        return intrude(arguments.count, arguments.seed)
    with tempfile.TemporaryDirectory(prefix="barnabas-fuzz-", dir=IN_MEMORY) as scratch:
        storm = Storm(Path(scratch, "data"), arguments.seed)
        began = time.perf_counter()
        spent = 0.0
        for turn in range(1, ROUNDS + 1):
            storm.run(arguments.count // ROUNDS)
            storm.calm()
            spent = time.perf_counter() - began
            print(
                f"{turn * 100 // ROUNDS:3d} %  {spent:6.1f} s  {resident_mb():6.1f} MB resident  "
                f"{storm.counts}  {len(storm.findings)} findings",
                flush=True,
            )
        for key, finding in storm.findings.items():
            print(f"\n--- {key}\n{finding}", flush=True)
        storm.check_restarts(Path(scratch, "copy"))
        storm.broker.close_logs(storm.now_ms)
    print(
        f"\n{arguments.count} mutated requests in {spent:.0f} s "
        f"({arguments.count / spent:.0f}/s), {len(storm.findings)} findings"
    )
    return bool(storm.findings)


def intrude(count: int, seed: int) -> int:
    """Return the exit code. It is 0 if no client was authenticated, no check failed, and memory did
    not grow.
    """
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="barnabas-fuzz-", dir=IN_MEMORY) as scratch:
        intruder = Intruder(Path(scratch), seed)
        for turn in range(1, ROUNDS + 1):
            intruder.run(count // ROUNDS)
            intruder.check_state()
            print(
                f"{turn * 100 // ROUNDS:3d} %  {time.perf_counter() - began:6.1f} s  "
                f"{resident_mb():6.1f} MB resident  {blocks()} blocks  {intruder.served} answers  "
                f"{intruder.hung_up} hung up on  {len(intruder.findings)} findings",
                flush=True,
            )
        for key, finding in intruder.findings.items():
            print(f"\n--- {key}\n{finding}", flush=True)
        intruder.close()
    return bool(intruder.findings)


if __name__ == "__main__":
    sys.exit(main())
