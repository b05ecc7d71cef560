"""Compare a broker with golden transcripts: requests, and what Apache Kafka answered.

    PYTHONPATH=tests:. python -m oracle FOLDER [FAMILY_OR_SCENARIO …]

FOLDER has the transcripts and their runner, `oracle.py`, which takes a broker's address.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def main(arguments: list[str]) -> int:
    """The runner's exit code; 0 where there is no such folder, since nothing may need it."""
    folder = Path(arguments[0])
    if not (folder / "oracle.py").exists():
        print(
            f"there is no oracle at {folder}: nothing compared. Name its folder with `make oracle "
            "ORACLE=FOLDER`"
        )
        return 0
    wanted = arguments[1:] or list(FAMILIES)
    with LocalBroker(settings=SETTINGS) as broker:
        runner = [
            sys.executable,
            "-B",
            str(folder / "oracle.py"),
            broker.bootstrap_servers,
            *wanted,
        ]
        return subprocess.run(runner, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
