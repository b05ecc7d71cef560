"""The memory of a broker by the number of its topics, groups and so on (`python -m bench.memory`).

BYTES is the formula of docs/SCALE.md. Each kind is first measured separately, as the slope between
two sizes, each in its own process. Then all kinds are measured together in one broker, and compared
with the sum. No sockets are used, since the kernel's memory of a connection is not part of the
process.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.common import rss_mb
from bench.many_partitions import NOW_MS
from bench.scale import CASES, RECORD, Core, encode_batch

WITHIN = 0.2


def _written(core: Core, count: int) -> None:
    """Fill a broker with partitions that have one record each."""
    core.broker.topics.create_topic("written", count, {}, now_ms=NOW_MS)
    batch = encode_batch([RECORD])
    for log in core.broker.topics.partitions_of("written"):
        log.append(bytearray(batch), now_ms=NOW_MS)


FILLS: dict[str, Callable[[Core, int], None]] = {
    "partitions, written to": _written,
    **{("partitions, new" if case == "partitions" else case): CASES[case] for case in CASES},
}
BYTES = {
    "partitions, new": 4_800,
    "partitions, written to": 6_400,
    "connections": 260,
    "transactional ids": 650,
    "open transactions": 1_750,
    "producer ids": 610,
    "committed offsets": 410,
    "idle polls": 2_100,
}
"""The memory of the process for one object of each kind. An open transaction includes its
transactional id, an idle poll its connection; committed offsets are in groups of fifty.
"""
SIZES = {
    "partitions, new": (2_000, 10_000),
    "partitions, written to": (1_000, 4_000),
    "connections": (5_000, 40_000),
    "transactional ids": (5_000, 30_000),
    "open transactions": (2_000, 12_000),
    "producer ids": (5_000, 30_000),
    "committed offsets": (20_000, 200_000),
    "idle polls": (5_000, 20_000),
}
TOGETHER = {  # each waiting poll has its own connection
    "partitions, new": 5_000,
    "partitions, written to": 2_000,
    "transactional ids": 10_000,
    "open transactions": 5_000,
    "producer ids": 20_000,
    "committed offsets": 50_000,
    "idle polls": 5_000,
}


def filled_kb(kinds: dict[str, int]) -> int:
    """The growth of a broker's memory in KB when it is filled. This runs in a separate process."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        core = Core(directory)
        gc.collect()
        before = rss_mb(os.getpid())
        for kind, count in kinds.items():
            FILLS[kind](core, count)
            core.broker.outbox.sends = []
        gc.collect()
        return round((rss_mb(os.getpid()) - before) * 1024)


def measured_kb(kinds: dict[str, int]) -> int:
    """The result of `filled_kb` in a separate process."""
    pairs = [f"{kind}={count}" for kind, count in kinds.items()]
    command = [sys.executable, "-m", "bench.memory", "--fill", *pairs]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _line(kind: str, formula: float, measured: float, unit: str) -> bool:
    """Print a line of the table. Gives: whether the formula is within the allowed difference."""
    difference = measured / formula - 1
    print(f"| {kind} | {formula:,.0f} {unit} | {measured:,.0f} {unit} | {difference:+.0%} |")
    sys.stdout.flush()
    return abs(difference) <= WITHIN


def main() -> None:
    """Print the formula next to the measured values; fail if they differ by 20 %."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--fill", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        pairs = [pair.split("=") for pair in options.fill]
        print(filled_kb({kind: int(count) for kind, count in pairs}))
        return
    print("| held | formula | measured | |\n| --- | ---: | ---: | ---: |")
    holds = True
    for kind, (few, many) in SIZES.items():
        grown_kb = measured_kb({kind: many}) - measured_kb({kind: few})
        holds &= _line(kind, BYTES[kind], grown_kb * 1024 / (many - few), "B")
    total_mb = sum(BYTES[kind] * count for kind, count in TOGETHER.items()) / (1 << 20)
    holds &= _line("all together", total_mb, measured_kb(TOGETHER) / 1024, "MB")
    sys.exit(not holds)


if __name__ == "__main__":
    main()
