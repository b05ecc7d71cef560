"""The CPU time of commands of the command line, each in a process of its own, in turns.

Each command is also run from another checkout if `BESIDE` names one, so that two versions are
measured under the same load: `BESIDE=../before python -m bench commands`.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import barnabas
from barnabas import LocalBroker
from bench.common import Row

ROUNDS = 9
TOPIC, GROUP = "lines", "readers"
COMMANDS = (
    ("--help",),
    ("topics", "list"),
    ("topics", "describe", TOPIC),
    ("txn", "list"),
    ("user", "list"),
    ("produce", TOPIC),
    ("consume", TOPIC),
    ("consume", TOPIC, "--last", "3", "--json"),
    ("consume", TOPIC, "--group", GROUP),
    ("groups", "list"),
    ("groups", "describe", GROUP),
    ("config", "describe", "topic", TOPIC),
    ("produce", TOPIC, "--transactional-id", "load"),
    ("check",),
)


def run(scale: float) -> list[Row]:
    """Measure each command. Takes: scale, which has no effect: a command does nothing else."""
    here = str(Path(barnabas.__file__).parents[1])
    checkouts = [here, *filter(None, [os.environ.get("BESIDE")])]
    rows = []
    with LocalBroker(topics=[TOPIC]) as broker:
        for path in checkouts:  # also makes the group, and the bytecode
            for command in COMMANDS:
                _cpu_seconds(path, command, broker.bootstrap_servers)
        for command in COMMANDS:
            seconds: dict[str, list[float]] = {path: [] for path in checkouts}
            for _ in range(ROUNDS):
                for path, rounds in seconds.items():
                    rounds.append(_cpu_seconds(path, command, broker.bootstrap_servers))
            medians = [statistics.median(rounds) for rounds in seconds.values()]
            measured = "; beside: ".join(f"{median:.3f} s" for median in medians)
            rows.append(Row(f"barnabas {' '.join(command)}", measured, "-", "-", "-"))
    return rows


def _cpu_seconds(path: str, command: tuple[str, ...], address: str) -> float:
    """The CPU seconds of one command, which must not fail."""
    where = () if command == ("--help",) else ("-b", address)
    source = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from barnabas.daemon.main import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-P", "-c", source, path, *command, *where],
        input=b"one\ntwo\n",
        capture_output=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
