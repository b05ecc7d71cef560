"""An application of `barnabas.exactly_once` for tests: it counts words by key, with state, writes a
journal of what it does, and can kill itself at a step.

`python exactly_once_app.py JSON`: servers, application, instance (or null), protocol, strategy,
input, output, state_dir, journal, kill_at (the value of a Step, or null), times (at which
occurrence), forgets (whether a third of the transactions lack their offsets: a planted mistake).

For each record it writes `KEY COUNT ATTEMPT` to the same partition of the output, where ATTEMPT is
unique to the transaction. In each process, the first record whose number is divisible by 17 fails
at first, so that transactions are aborted.

The journal has a line of JSON for each event, which a kill does not lose:

    ["begin", ATTEMPT, MS]
    ["write", ATTEMPT, VALUE, PARTITION, OFFSET]    of the input record; before it is sent
    ["ask", ATTEMPT, MS]                            before the commit is asked for
    ["committed" or "aborted", ATTEMPT, MS]

Milliseconds are of the clock that all processes of the machine share.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Mapping
from typing import Any

from barnabas.exactly_once import Commit, Hooks, Out, Pipeline, Place, Record, Retry, Step
from barnabas.exactly_once.transaction import Transaction

_EVENTS = {
    Step.AFTER_BEGIN: "begin",
    Step.BEFORE_COMMIT: "ask",
    Step.AFTER_COMMIT: "committed",
    Step.AFTER_ABORT: "aborted",
}


class Journal(Hooks):
    """Notes what happens, and kills the process when it reaches a step for the given time."""

    def __init__(self, path: str, kill_at: str | None, times: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._step = None if kill_at is None else Step(kill_at)
        self._times = times
        self._process, self._transactions = uuid.uuid4().hex[:8], 0

    @property
    def attempt(self) -> str:
        """The name of the open transaction, or of the last one."""
        return f"{self._process}-{self._transactions}"

    def note(self, event: str, *more: Any) -> None:
        os.write(self._file, json.dumps([event, self.attempt, *more]).encode() + b"\n")

    def on_step(self, step: Step) -> None:
        if step is Step.AFTER_BEGIN:
            self._transactions += 1
        if step in _EVENTS:
            self.note(_EVENTS[step], time.monotonic_ns() // 1_000_000)
        if step is self._step:
            self._times -= 1
            if not self._times:
                os.kill(os.getpid(), signal.SIGKILL)


class Forgetful(Transaction):
    """Leaves the offsets of each third transaction out."""

    _count = 0

    def send_offsets(self, ends: Mapping[Place, int], membership: Any) -> None:
        self._count += 1
        if self._count % 3:
            super().send_offsets(ends, membership)


class ForgetfulPipeline(Pipeline):
    """A pipeline with a planted mistake."""

    def _new_transaction(self) -> Transaction:
        return Forgetful(self._clients.producer(), self._patience_s)


def make(options: dict[str, Any]) -> Pipeline:
    """The pipeline, with its handler."""
    journal = Journal(options["journal"], options["kill_at"], options["times"])
    consumer: dict[str, Any] = {"log_level": 2}
    if options["protocol"] == "classic":
        consumer["partition.assignment.strategy"] = options["strategy"]
        consumer["session.timeout.ms"] = 6000
    kind = ForgetfulPipeline if options["forgets"] else Pipeline
    pipeline = kind(
        options["servers"],
        options["application"],
        reads=options["input"],
        instance=options["instance"],
        group_protocol=options["protocol"],
        commit=Commit(seconds=0.1, records=7),
        retry=Retry(attempts=3, backoff_s=0.01),
        state_dir=options["state_dir"],
        transaction_timeout_s=6,
        consumer=consumer,
        client={"log_level": 2},
        hooks=journal,
    )
    counts = pipeline.state("counts", default=int)
    failed: set[int] = set()

    @pipeline.each
    def count(record: Record, out: Out) -> None:
        number = int(record.value or b"")
        key = (record.key or b"").decode()
        counts[key] += 1
        value = f"{key} {counts[key]} {journal.attempt}"
        journal.note("write", value, record.partition, record.offset)
        out.send(options["output"], value, key=record.key, partition=record.partition)
        if not failed and number % 17 == 0:
            failed.add(number)
            raise RuntimeError(f"order {number} fails at first")

    return pipeline


def main() -> None:
    options = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format=f"{options['instance']}: %(message)s")
    make(options).run()


if __name__ == "__main__":
    main()
