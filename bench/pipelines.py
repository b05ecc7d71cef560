"""The cost of exactly-once in barnabas.exactly_once: a pipeline, compared with the same pipeline
whose outputs are flushed before its offsets are committed, without transactions.

    python -m bench.pipelines [--turns 7] [--publish docs]

The method is that of bench/eos.py: 100 B records from 4 partitions, changed and written to N
partitions, a commit each 100 ms, a reader (read_committed) of the output beside it. Each turn has a
new broker, both modes run on it one after the other, and the next turn begins with the other mode.
A process measures from its first commit to the last one within its time. The overhead of a turn is
1 - exactly once / at least once; the median of the turns counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from barnabas import LocalBroker
from barnabas.exactly_once import Commit, Hooks, Out, Output, Pipeline, Place, Record
from bench.common import create_topic, end_with_parent, say_how_long, turns_within
from bench.eos import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    INPUT_PARTITIONS,
    MODES,
    SETTINGS,
    Client,
    measured_note,
    with_table,
)
from bench.eos import clients as stopped_clients
from bench.eos_clients import say, transformed

BEGIN_TABLE = "<!-- measured by bench/pipelines.py -->"
RECORDS_A_SECOND = 150_000  # of prepared input, more than a pipeline handles


class Measure(Hooks):
    """Counts what is committed between the first commit and the end."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = 0.0
        self.records = self.commits = 0
        self.taken = self.committing = 0.0
        self.pipeline: Pipeline

    def on_commit(self, records: int, outputs: int, seconds: float) -> None:
        now = time.monotonic()
        if not self._began:
            self._began = now
            return
        self.records += records
        self.commits += 1
        self.committing += seconds
        self.taken = now - self._began
        if self.taken >= self._seconds:
            self.pipeline.stop()


class FlushThenCommit:
    """In place of transactions: flush the outputs, then commit the offsets."""

    def __init__(self, settings: Mapping[str, Any], pipeline: Pipeline) -> None:
        from confluent_kafka import Producer

        without = ("transactional.id", "transaction.timeout.ms", "enable.idempotence")
        self._producer = Producer(
            {name: value for name, value in settings.items() if name not in without}
        )
        self._pipeline = pipeline
        self._ends: Mapping[Place, int] = {}
        self.is_open = False

    def init(self) -> None:
        """There is nothing to end."""

    def begin(self) -> None:
        self.is_open = True

    def produce(self, output: Output, on_delivery: Any = None) -> None:
        while True:
            try:
                self._producer.produce(
                    output.topic,
                    output.value,
                    output.key,
                    output.partition,
                    timestamp=output.timestamp_ms,
                    headers=list(output.headers) or None,
                    **({} if on_delivery is None else {"on_delivery": on_delivery}),
                )
                return
            except BufferError:
                self._producer.poll(0.05)

    def poll(self) -> None:
        self._producer.poll(0)

    def send_offsets(self, ends: Mapping[Place, int], membership: Any) -> None:
        self._ends = ends

    def commit(self) -> None:
        from confluent_kafka import TopicPartition

        assert self._producer.flush(60) == 0, "not all of the output was written"
        consumer = self._pipeline._reader._consumer
        consumer.commit(
            offsets=[TopicPartition(*place, offset) for place, offset in self._ends.items()],
            asynchronous=False,
        )
        self.is_open = False

    def abort(self, patience_s: float = 0) -> None:
        self.is_open = False

    def close(self) -> None:
        self._producer.flush(10)


class AtLeastOncePipeline(Pipeline):
    """The same loop without transactions."""

    def _new_transaction(self) -> Any:
        return FlushThenCommit(self._clients.producer(), self)


def pipeline_of(mode: str, *arguments: Any, **more: Any) -> Pipeline:
    """A pipeline of one of the modes."""
    kind = Pipeline if mode == EXACTLY_ONCE else AtLeastOncePipeline
    return kind(*arguments, **more)


def stop_at_a_line(stop: Callable[[], None]) -> None:
    """Stop a pipeline when a line comes from the parent process. For a thread."""
    sys.stdin.readline()
    stop()


def work(servers: str, mode: str, target: str, partitions: int, seconds: float) -> None:
    """Run a pipeline for so long, and print the result."""
    measure = Measure(seconds)
    commit = Commit(seconds=0.1)
    pipeline = pipeline_of(mode, servers, target, reads="input", commit=commit, hooks=measure)
    measure.pipeline = pipeline
    following = 0

    @pipeline.each
    def change(record: Record, out: Out) -> None:
        nonlocal following
        out.send(target, transformed(record.value or b""), partition=following)
        following = following + 1 if following + 1 < partitions else 0

    pipeline.run()
    result = {
        "records": measure.records,
        "seconds": measure.taken,
        "commit_ms": 1e3 * measure.committing / measure.commits,
        "cpu_s": time.process_time(),
    }
    say(result)


def turn(number: int, partitions: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Both modes on a new broker."""
    results = {}
    with LocalBroker(in_memory=False, settings=SETTINGS) as broker, stopped_clients() as started:
        servers = broker.bootstrap_servers
        create_topic(broker, "input", INPUT_PARTITIONS)
        filler = Client(
            "fill",
            servers=servers,
            topic="input",
            partitions=INPUT_PARTITIONS,
            count=int(RECORDS_A_SECOND * (seconds + 2)),
        )
        started.append(filler)
        filler.end(patiently=True)
        for mode in MODES if number % 2 == 0 else MODES[::-1]:
            target = mode.replace(" ", "-")
            create_topic(broker, target, partitions)
            reader = Client("read_along", servers=servers, topic=target, partitions=partitions)
            started.append(reader)
            worker = Client(
                *("work",), module="bench.pipelines",
                servers=servers, mode=mode, target=target, partitions=partitions, seconds=seconds,
            )  # fmt: skip
            started.append(worker)
            results[mode] = worker.answer()
            worker.end(patiently=True)
            reader.end(patiently=False)
    return results


def main() -> None:
    """Measure, and print a table."""
    if sys.argv[1:2] == ["work"]:
        end_with_parent()
        work(**json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipelines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=3.0, help="no turn ends later (3)")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument(
        "--publish", type=Path, metavar="FOLDER", help="write the table of EXACTLY_ONCE_PYTHON.md"
    )
    options = parser.parse_args()
    say_how_long(options.minutes)
    overheads = []
    rows = [
        "| turn | at least once | exactly once | overhead | commit, ms |",
        "|---|---|---|---|---|",
    ]
    for number in turns_within(options.turns, options.minutes):
        results = turn(number, options.partitions, options.seconds)
        rates = {mode: each["records"] / each["seconds"] for mode, each in results.items()}
        overheads.append(1 - rates[EXACTLY_ONCE] / rates[AT_LEAST_ONCE])
        rows.append(
            f"| {number + 1} | {rates[AT_LEAST_ONCE]:,.0f}/s | {rates[EXACTLY_ONCE]:,.0f}/s | "
            f"{overheads[-1]:.1%} | {results[AT_LEAST_ONCE]['commit_ms']:.1f}, "
            f"{results[EXACTLY_ONCE]['commit_ms']:.1f} |"
        )
        print(rows[-1], file=sys.stderr, flush=True)
    rows += ["", f"Median overhead of exactly once: {statistics.median(overheads):.1%}."]
    report = "\n".join(rows)
    print(report)
    if options.publish is not None:
        document = options.publish / "EXACTLY_ONCE_PYTHON.md"
        report = f"{report}\n{measured_note()}"
        document.write_text(with_table(document.read_text(), report, BEGIN_TABLE))


if __name__ == "__main__":
    main()
