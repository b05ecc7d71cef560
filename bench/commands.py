"""The CPU time of commands of the command line, each in a process of its own, in turns.

Each command is also run from another checkout if `BESIDE` names one, so that two versions are
measured under the same load: `BESIDE=../before python -m bench commands`. The command that takes
most is the first row.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import barnabas
from barnabas import LocalBroker
from bench.common import Row

ROUNDS = 5
TOPIC, GROUP, BUNDLE = "lines", "readers", "BUNDLE"
LOCAL = (  # commands that ask no broker
    ("--help",),
    ("--version",),
    ("consume", "--help"),
    ("completion", "bash"),
    ("profile", "list"),
    ("settings", "log.retention"),
    ("graduate", "--help"),
)
COMMANDS = (
    *LOCAL,
    ("topics", "list"),
    ("topics", "describe", TOPIC),
    ("topics", "offsets", TOPIC),
    ("topics", "create", TOPIC, "--if-not-exists"),
    ("topics", "alter", TOPIC, "--config", "retention.ms=600000"),
    ("records", "delete", TOPIC, "--before", "earliest", "--yes"),
    ("produce", TOPIC),
    ("produce", TOPIC, "--transactional-id", "load"),
    ("consume", TOPIC),
    ("consume", TOPIC, "--last", "3", "--json"),
    ("consume", TOPIC, "--group", GROUP),
    ("groups", "list"),
    ("groups", "describe", GROUP),
    ("groups", "export-offsets", GROUP),
    ("groups", "reset-offsets", GROUP, "-t", TOPIC, "--to", "earliest", "--yes"),
    ("share", "consume", TOPIC, "--group", "shared", "--idle", "0"),
    ("txn", "list"),
    ("txn", "describe", "load"),
    ("txn", "why-stuck", f"{TOPIC}-0"),
    ("config", "describe", "topic", TOPIC),
    ("config", "set", "topic", TOPIC, "retention.ms=600000"),
    ("config", "unset", "topic", TOPIC, "retention.ms"),
    ("user", "list"),
    ("quota", "list"),
    ("quota", "set", "--user", "alice", "producer_byte_rate=5000"),
    ("check",),
    ("support-bundle", "--output-file", BUNDLE),
)


def run(scale: float) -> list[Row]:
    """Measure each command. Takes: scale, which has no effect: a command does nothing else."""
    here = str(Path(barnabas.__file__).parents[1])
    checkouts = [here, *filter(None, [os.environ.get("BESIDE")])]
    measured: list[tuple[tuple[str, ...], list[float]]] = []
    with (
        TemporaryDirectory(prefix="barnabas-commands-") as directory,
        LocalBroker(topics=[TOPIC]) as broker,
    ):
        commands = Commands(broker.bootstrap_servers, Path(directory))
        for path in checkouts:  # also makes the group, and the bytecode
            for command in COMMANDS:
                commands.cpu_seconds(path, command)
        for command in COMMANDS:
            seconds: dict[str, list[float]] = {path: [] for path in checkouts}
            for _ in range(ROUNDS):
                for path, rounds in seconds.items():
                    rounds.append(commands.cpu_seconds(path, command))
            measured.append((command, [statistics.median(rounds) for rounds in seconds.values()]))
    rows = []
    for command, medians in sorted(measured, key=lambda one: one[1][0], reverse=True):
        text = "; beside: ".join(f"{median:.3f} s" for median in medians)
        rows.append(Row(f"barnabas {' '.join(command)}", text, "-", "-", "-"))
    return rows


class Commands:
    """Runs commands, each in a process of its own, which uses compiled modules as an installed
    package has them.

    Takes:  address, a broker's; directory, for the bytecode and for files that commands write.
    """

    def __init__(self, address: str, directory: Path) -> None:
        self._address, self._directory = address, directory
        self._environment = os.environ | {
            "PYTHONPYCACHEPREFIX": str(directory / "bytecode"),
            "XDG_CONFIG_HOME": str(directory),  # no profile of the user
        }
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._bundles = 0

    def cpu_seconds(self, path: str, command: tuple[str, ...]) -> float:
        """The CPU seconds of one command of a checkout, which must not fail."""
        where = () if command in LOCAL else ("-b", self._address)
        source = (
            "import sys; sys.path.insert(0, sys.argv.pop(1)); from barnabas.daemon.main import "
            "main; sys.exit(main(sys.argv[1:]))"
        )
        self._bundles += 1
        bundle = str(self._directory / f"{self._bundles}.zip")
        arguments = [bundle if word == BUNDLE else word for word in command]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-P", "-c", source, path, *arguments, *where],
            input=b"one\ntwo\n",
            capture_output=True,
            check=True,
            env=self._environment,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
