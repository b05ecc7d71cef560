"""Compares a broker with golden transcripts, which are requests and Apache Kafka's responses.

    PYTHONPATH=tests/tools:tests:. python -m oracle FOLDER [FAMILY_OR_SCENARIO …]

FOLDER has the transcripts and their runner, `oracle.py`, which takes a broker's address. Each entry
of RUNS is a broker with the settings that its transcripts assume. If names are given, entries
without any of these are skipped. DIFFERENCES has the scenarios that differ intentionally, each with
the reason. An entry for a missing scenario, or for one that no longer differs, is an error.
"""

from __future__ import annotations

import itertools
import re
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
    """A broker, and the transcripts with which it is compared.

    `emulate` is the release to emulate. `folder` is the transcripts' folder below FOLDER. `golden`
    names the version whose responses are expected. `settings` are used in addition to SETTINGS.
    """

    title: str
    families: tuple[str, ...]
    emulate: str = ""
    settings: Mapping[str, str] = {}
    folder: str = ""
    golden: str = "golden"


NEW = "golden-4.3"
SMALL_SEGMENTS = "retention"  # the family whose settings Apache Kafka 4.3 rejects
PREVIEW = {  # enables the consumer group protocol in 3.9
    "group.coordinator.new.enable": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}
AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
SHARED = {
    **AT_ONCE,
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "4",
}
IN_4_3 = tuple(family for family in FAMILIES if family != SMALL_SEGMENTS)
RUNS = (
    Run("Apache Kafka 3.9", FAMILIES, "3.9"),
    Run("Apache Kafka 3.9, consumer groups", ("consumer_groups",), "3.9", PREVIEW),
    Run("Apache Kafka 3.9, who clients are", ("authentication",), "3.9", SASL, "more"),
    Run("Apache Kafka 3.9, quotas", ("quotas",), "3.9", SASL, "more"),
    Run("Apache Kafka 3.9, who may what", ("authorization",), "3.9", {**SASL, **ACLS}, "more"),
    Run("Apache Kafka 4.3", IN_4_3, "4.3", golden=NEW),
    Run("Apache Kafka 4.3, what is new", ("transactions_v2",), "4.3", folder="more"),
    Run("Apache Kafka 4.3, consumer groups", ("consumer_groups",), "4.3", golden=NEW),
    Run("Apache Kafka 4.3, what is new in groups", ("consumer_groups_4",), "4.3", AT_ONCE, "more"),
    Run("Apache Kafka 4.3, share groups", ("share_groups",), "4.3", SHARED, "more"),
    Run("by default", FAMILIES, golden=NEW),
    Run("by default, what is new", ("transactions_v2",), folder="more"),
    Run("by default, consumer groups", ("consumer_groups",), golden=NEW),
    Run("by default, what is new in groups", ("consumer_groups_4",), "", AT_ONCE, "more"),
    Run("by default, share groups", ("share_groups",), "", SHARED, "more"),
    Run("by default, who clients are", ("authentication",), "", SASL, "more"),
    Run("by default, quotas", ("quotas",), "", SASL, "more"),
    Run("by default, who may what", ("authorization",), "", {**SASL, **ACLS}, "more"),
)

_OLD_VERSIONS = "versions that Apache Kafka 4 gave up are still spoken"
_SEGMENTS = "segments of less than 1 MiB are taken, as by Apache Kafka 3.9"
_NOT_KEPT = (
    "min.insync.replicas has its default: the cluster keeps none, since it has no eligible leader "
    "replicas (KIP-966)"
)
_WRONG_PROOFS = {
    "scram_final_messages": "a last message of SCRAM that is wrong is refused (RFC 5802), also "
    "where Apache Kafka takes it, or hangs up",
    "credentials_refused": "an empty password is refused with a code of its own, where Apache "
    "Kafka answers with an exception's",
}
_STUMBLES = {
    "share_sessions": "Apache Kafka answers UNKNOWN_SERVER_ERROR to a group without a name, to a "
    "group that does not exist, and to an unknown topic id, which ends its session",
    "offsets_of_share_groups_are_set": "a member reads from the offset that was set; in Apache "
    "Kafka, while the connection of the last session is open, from where the share partition in "
    "memory is, and the offset that was set is lost with the next acknowledgement",
}
# The lines that may differ depending on timing, and why, by scenario.
OF_TIMING: Mapping[str, tuple[set[str], str]] = {
    "joining_a_share_group": (
        {'-  "answer": 0,', '+  "answer": 110,'},
        "a member that joins when its partitions have states gets them with its first epoch, "
        "before which it had none; when they come later, it gets them with its second",
    ),
}
_EMPTIED = (
    "the assignment epoch of a group that has become empty is the group's, as in Apache Kafka "
    "since KAFKA-20442"
)
# The scenarios that differ intentionally, and why, by run.
DIFFERENCES: Mapping[str, Mapping[str, str]] = {
    "Apache Kafka 3.9, who clients are": _WRONG_PROOFS,
    "by default, who clients are": _WRONG_PROOFS,
    "Apache Kafka 4.3, share groups": _STUMBLES,
    "by default, share groups": _STUMBLES,
    "by default, consumer groups": {
        "joining_as_a_consumer": _EMPTIED,
        "looking_at_consumer_groups": _EMPTIED,
        "static_consumers": _EMPTIED,
    },
    "by default": {
        "what_is_supported": _OLD_VERSIONS,
        "ends_of_leader_epochs": _OLD_VERSIONS,
        "looking_at_configs": _OLD_VERSIONS,
        "changing_configs": _SEGMENTS,
        "replacing_configs": _SEGMENTS,
        "creating": _NOT_KEPT,
        "creating_by_version": _NOT_KEPT,
        "creating_with_configs": _NOT_KEPT,
        "creating_with_assignments": _NOT_KEPT,
    },
}


def main(arguments: list[str]) -> int:
    """Run the comparisons. Return 1 if the responses of a run differ, and otherwise 0, even if the
    folder does not exist, since it is optional.
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
        if len(arguments) > 1 and not known.intersection(arguments[1:]):
            continue
        print(f"== {run.title}", flush=True)
        codes.append(_compare(folder, run, wanted))
    if not codes:
        print(f"there is no family or scenario {', '.join(arguments[1:])}", file=sys.stderr)
        return 2
    return max(codes)


def _scenarios(folder: Path, families: tuple[str, ...]) -> set[str]:
    """The names of families, and of the scenarios in them."""
    names = set(families)
    for family in families:
        lines = (folder / "scenarios" / f"{family}.py").read_text().splitlines()
        for mark, line in itertools.pairwise(lines):
            if mark.startswith("@scenario") and line.startswith("def "):
                names.add(line[4:].partition("(")[0])
    return names


def _compare(folder: Path, run: Run, wanted: list[str]) -> int:
    """Run the scenarios against a broker, judge the differences, and return the exit code."""
    settings = {**SETTINGS, **run.settings}
    with LocalBroker(settings=settings, emulate=run.emulate) as broker:
        command = [sys.executable, "-B", str(folder / "oracle.py")]
        if run.folder:
            command += ["--root", str(folder / run.folder)]
        if run.golden != "golden":
            command += ["--golden", run.golden]
        command += [broker.bootstrap_servers, *wanted]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return _judge(folder, run, wanted, done.stdout)


def _judge(folder: Path, run: Run, wanted: list[str], output: str) -> int:
    """Print unexpected differences. Return 1 if there are any, or if an expected difference no
    longer exists.
    """
    *failures, summary = re.split(r"^(?=FAILED |[0-9]+ passed)", output, flags=re.MULTILINE)
    reasons = DIFFERENCES.get(run.title, {})
    code, differing, timed = 0, set(), 0
    for failure in failures:
        name = failure.removeprefix("FAILED ").partition(":")[0]
        if name in reasons:
            differing.add(name)
            print(f"differs by intention: {name}: {reasons[name]}")
        elif name in OF_TIMING and _changed_lines(failure) == OF_TIMING[name][0]:
            timed += 1
            print(f"differs with the time: {name}: {OF_TIMING[name][1]}")
        elif failure.strip():
            print(failure, end="")
            code = 1
    for name in reasons.keys() - differing:
        if name in wanted or any(
            name in _scenarios(folder / run.folder, (family,))
            for family in run.families
            if family in wanted
        ):
            print(f"{name} differs no more: take it out of DIFFERENCES")
            code = 1
    counts = re.match(r"([0-9]+) passed, ([0-9]+) failed", summary)
    if counts is None:
        return 1
    passed, failed = map(int, counts.groups())
    print(
        f"{passed} passed, {len(differing)} differ by intention, {timed} with the time, "
        f"{failed - len(differing) - timed} failed"
    )
    sys.stdout.flush()
    return code


def _changed_lines(failure: str) -> set[str]:
    """The lines of a diff that only one side has, without the first line, which names the
    scenario.
    """
    _, *lines = failure.splitlines()
    return {line for line in lines if line.startswith(("-", "+"))}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
