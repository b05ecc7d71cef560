"""An application of `barnabas.exactly_once` for tests: it counts words by key, with state, and can
kill itself at a step.

`python exactly_once_app.py JSON`: servers, application, instance (or null), protocol, strategy,
input, output, state_dir, kill_at (the value of a Step, or null), times (at which occurrence).

For each record it writes `KEY COUNT` to the output. In each process, the first record whose number
is divisible by 17 fails at first, so that transactions are aborted.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from typing import Any

from barnabas.exactly_once import Commit, Hooks, Out, Pipeline, Record, Retry, Step


class Killing(Hooks):
    """Kills the process when it reaches a step for the given time."""

    def __init__(self, kill_at: str | None, times: int) -> None:
        self._step = None if kill_at is None else Step(kill_at)
        self._times = times

    def on_step(self, step: Step) -> None:
        if step is self._step:
            self._times -= 1
            if not self._times:
                os.kill(os.getpid(), signal.SIGKILL)


def make(options: dict[str, Any]) -> Pipeline:
    """The pipeline, with its handler."""
    consumer: dict[str, Any] = {"log_level": 2}
    if options["protocol"] == "classic":
        consumer["partition.assignment.strategy"] = options["strategy"]
        consumer["session.timeout.ms"] = 6000
    pipeline = Pipeline(
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
        hooks=Killing(options["kill_at"], options["times"]),
    )
    counts = pipeline.state("counts", default=int)
    failed: set[int] = set()

    @pipeline.each
    def count(record: Record, out: Out) -> None:
        number = int(record.value or b"")
        key = (record.key or b"").decode()
        counts[key] += 1
        out.send(options["output"], f"{key} {counts[key]}", key=record.key)
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
