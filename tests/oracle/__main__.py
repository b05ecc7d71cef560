"""Compare a broker with golden transcripts: requests, and what Apache Kafka answered.

    PYTHONPATH=tests:. python -m oracle FOLDER [FAMILY_OR_SCENARIO …]

FOLDER has the transcripts and their runner, `oracle.py`, which takes a broker's address. Each row
of RUNS is a broker with the settings that its transcripts assume; names given leave out the rows
that have none of them.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas import LocalBroker

FAMILIES = ("idempotence", "transactions", "groups", "reading", "topics", "framing", "retention")
SETTINGS = {
    "node.id": "1",
    "num.partitions": "1",
    "log.segment.bytes": "1073741824",
    "log.retention.hours": "168",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "100",
}
PLAIN_LOGIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" '
    'password="admin-secret" user_admin="admin-secret" user_alice="alice-secret" '
    'user_bob="bob-secret" user_nobody="nobody-secret";'
)
SASL = {
    "listeners": "SASL://127.0.0.1:0",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
    "listener.name.sasl.plain.sasl.jaas.config": PLAIN_LOGIN,
    "listener.name.sasl.scram-sha-512.connections.max.reauth.ms": "3000",
}

ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "barnabas.emulate": "3.9",
}


class Run(NamedTuple):
    """One broker, and what it is compared with.

    folder: of the transcripts, below the one that is named. golden: which version's answers.
    settings: beside SETTINGS. differing: scenarios that are left out, each with the reason why this
    broker answers otherwise.
    """

    title: str
    families: tuple[str, ...]
    settings: Mapping[str, str] = {}
    folder: str = ""
    golden: str = "golden"
    differing: Mapping[str, str] = {}


RUNS = (
    Run("Apache Kafka 3.9", FAMILIES, {"barnabas.features": "transaction.version=0"}),
    Run("Apache Kafka 4.3", FAMILIES, golden="golden-4.3"),
    Run("Apache Kafka 4.3, what is new", ("transactions_v2",), folder="more"),
    Run("Apache Kafka 4.3, consumer groups", ("consumer_groups",), golden="golden-4.3"),
    Run(
        "Apache Kafka 4.3, what is new in groups",
        ("consumer_groups_4",),
        {"group.consumer.assignment.interval.ms": "0"},
        folder="more",
    ),
    Run("Apache Kafka 3.9, who clients are", ("authentication",), SASL, folder="more"),
    Run("Apache Kafka 3.9, quotas", ("quotas",), SASL, folder="more"),
    Run(
        "Apache Kafka 3.9, who may what",
        ("authorization",),
        {**SASL, **ACLS},
        folder="more",
        differing={
            "configs_of_others": "its last step sets a broker's no.such.key: unknown settings are "
            "refused here, with or without leave; all steps before it are answered alike",
        },
    ),
)


def main(arguments: list[str]) -> int:
    """1 where a run's answers differ; 0 also where there is no such folder, since nothing may need
    it.
    """
    folder = Path(arguments[0])
    if not (folder / "oracle.py").exists():
        print(
            f"there is no oracle at {folder}: nothing compared. Name its folder with `make oracle "
            "ORACLE=FOLDER`"
        )
        return 0
    codes = []
    for run in RUNS:
        known = _scenarios(folder / run.folder, run.families)
        wanted = [name for name in arguments[1:] if name in known] or list(run.families)
        if run.differing and set(wanted) & set(run.families):
            wanted = sorted(known - set(run.families) - run.differing.keys())
        if len(arguments) > 1 and not known.intersection(arguments[1:]):
            continue
        print(f"== {run.title}", flush=True)
        for name, reason in run.differing.items():
            print(f"left out: {name}: {reason}", flush=True)
        codes.append(_compare(folder, run, wanted))
    if not codes:
        print(f"there is no family or scenario {', '.join(arguments[1:])}", file=sys.stderr)
        return 2
    return max(codes)


def _scenarios(folder: Path, families: tuple[str, ...]) -> set[str]:
    """The names of families and of the scenarios in them."""
    names = set(families)
    for family in families:
        lines = (folder / "scenarios" / f"{family}.py").read_text().splitlines()
        for mark, line in itertools.pairwise(lines):
            if mark.startswith("@scenario") and line.startswith("def "):
                names.add(line[4:].partition("(")[0])
    return names


def _compare(folder: Path, run: Run, wanted: list[str]) -> int:
    with LocalBroker(settings={**SETTINGS, **run.settings}) as broker:
        command = [sys.executable, "-B", str(folder / "oracle.py")]
        if run.folder:
            command += ["--root", str(folder / run.folder)]
        if run.golden != "golden":
            command += ["--golden", run.golden]
        return subprocess.run([*command, broker.bootstrap_servers, *wanted], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
