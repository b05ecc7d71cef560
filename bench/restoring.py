"""What does restoring the state of a pipeline cost?

    python -m bench.restoring [--keys 100000] [--turns 3] [--publish docs]

A pipeline of `barnabas.exactly_once` writes a state with so many keys of one partition, each value
100 bytes of JSON, in transactions of 1,000 records. Then another pipeline begins anew, once without
a checkpoint, which reads the whole changelog, and once with a checkpoint that lacks the last tenth
of the changelog, which reads the tail. Both read committed records, through the markers of the
transactions. The time is what `Hooks.on_restored` reports: from the assignment until the state can
be used, with the checkpoint's file and the question for the changelog's end.

    MB    keys and values of the changelog records that were read
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

from barnabas import LocalBroker
from barnabas.exactly_once import Commit, Hooks, Out, Pipeline, Record
from bench.common import create_topic, say_how_long
from bench.eos import SETTINGS, measured_note, with_table

BEGIN_TABLE = "<!-- measured by bench/restoring.py -->"
APPLICATION = "restoring"
VALUE = "x" * 98  # with its quotes 100 bytes
A_TRANSACTION = 1000
FROM_CHANGELOG, FROM_CHECKPOINT = "the whole changelog", "a checkpoint, and the last tenth"


class Restored(NamedTuple):
    """What a pipeline read before it could begin."""

    entries: int
    records: int
    seconds: float


class Noting(Hooks):
    """Notes what was restored."""

    def __init__(self) -> None:
        self.found: list[tuple[int, float]] = []

    def on_restored(self, state: str, partition: int, records: int, seconds: float) -> None:
        self.found.append((records, seconds))


def run_pipeline(servers: str, state_dir: Path | None = None) -> Restored:
    """Store all waiting records in the state, and end. Gives: what was restored before."""
    noting = Noting()
    pipeline = Pipeline(
        servers,
        APPLICATION,
        reads="input",
        commit=Commit(seconds=1, records=A_TRANSACTION),
        state_dir=state_dir,
        client={"log_level": 0},
        hooks=noting,
    )
    state = pipeline.state("values")
    entries = 0

    @pipeline.each
    def store(record: Record, out: Out) -> None:
        nonlocal entries
        entries = len(state)
        state[record.key] = VALUE

    pipeline.run(until_end=True)
    ((records, seconds),) = noting.found
    return Restored(entries, records, seconds)


def produce(servers: str, keys: range) -> None:
    """Write a record for each key to the input."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    for key in keys:
        while True:
            try:
                producer.produce("input", b"", f"user-{key:011d}")
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(60) == 0, "not all of the input was written"


def measure(keys: int, turns: int) -> dict[str, list[Restored]]:
    """Restore a state both ways, so many times."""
    results: dict[str, list[Restored]] = {FROM_CHANGELOG: [], FROM_CHECKPOINT: []}
    with (
        LocalBroker(in_memory=False, settings=SETTINGS) as broker,
        tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder,
    ):
        servers = broker.bootstrap_servers
        create_topic(broker, "input", 1)
        kept = Path(folder, "kept")
        produce(servers, range(keys * 9 // 10))
        run_pipeline(servers, kept)
        produce(servers, range(keys * 9 // 10, keys))
        run_pipeline(servers)
        for number in range(turns):
            copy = Path(folder, f"turn-{number}")
            shutil.copytree(kept, copy)
            for way, state_dir in ((FROM_CHANGELOG, None), (FROM_CHECKPOINT, copy)):
                produce(servers, range(1))  # which shows how many entries there are
                restored = run_pipeline(servers, state_dir)
                assert restored.entries == keys, f"{restored.entries} of {keys} keys were restored"
                results[way].append(restored)
    return results


def table(results: dict[str, list[Restored]]) -> str:
    """The report, in Markdown."""
    rows = [
        "| restored from | entries | records read | seconds | records/s | MB/s |",
        "|---|---|---|---|---|---|",
    ]
    size = len(VALUE) + 2 + len(f"user-{0:011d}")
    for way, turns in results.items():
        records = statistics.median(turn.records for turn in turns)
        seconds = statistics.median(turn.seconds for turn in turns)
        rows.append(
            f"| {way} | {turns[0].entries:,} | {records:,.0f} | {seconds:.2f} | "
            f"{records / seconds:,.0f} | {records * size / seconds / 1e6:.1f} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.restoring",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--publish", type=Path, metavar="FOLDER", help="write the table of EXACTLY_ONCE_PYTHON.md"
    )
    options = parser.parse_args()
    say_how_long(1)
    report = table(measure(options.keys, options.turns))
    print(report)
    if options.publish is not None:
        document = options.publish / "EXACTLY_ONCE_PYTHON.md"
        report = f"{report}\n\n{measured_note()}"
        document.write_text(with_table(document.read_text(), report, BEGIN_TABLE))


if __name__ == "__main__":
    main()
