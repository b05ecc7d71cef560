"""The cost of exactly-once for a stateful reduce, over the number of partitions: figure 5a of the
paper on Kafka's exactly-once, with `barnabas.exactly_once`.

    python -m bench.stateful [PARTITIONS …] [--turns 3] [--seconds 2] [--publish docs]

A pipeline counts the records of each of 10,000 keys. For each record it writes the new count to the
output; at each commit (100 ms) it writes the counts that have changed to its changelog. Input,
output and changelog have the same number of partitions. Exactly once, the records of all of them
and the offsets are one transaction; at least once, they are flushed before the offsets are
committed, without transactions. A reader (read_committed) reads the output meanwhile.

The turns, and what throughput and latency are, are those of bench/eos.py. Records arrive at 1,000 a
second while the latency is measured.

Source: Wang et al., "Consistency and Completeness: Rethinking Distributed Stream Processing in
        Apache Kafka", SIGMOD 2021, figure 5a.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

from barnabas import LocalBroker
from barnabas.exactly_once import Commit, Hooks, Out, Record
from bench.common import cpu_seconds, create_topic, end_with_parent, say_how_long, turns_within
from bench.eos import (
    MODES,
    SETTINGS,
    Client,
    Point,
    Turn,
    clients,
    measured_note,
    plot,
    read_json,
    records_a_batch,
    summarised,
    table,
    with_table,
    write_json,
)
from bench.eos_clients import CREATED, PAYLOAD, say
from bench.pipelines import pipeline_of, stop_at_a_line

MODULE = "bench.stateful"
PARTITIONS = (1, 10, 100, 1000)
KEYS = 10_000  # a multiple of the partitions, so that a key has one
INTERVAL_MS = 100
RECORDS_A_SECOND = 80_000  # of prepared input, more than the pipeline handles
WARM_UP_S = 1.5
RATE = 1_000
BEGIN_TABLE = "<!-- measured by bench/stateful.py -->"
AXIS = "partitions of input, changelog and output (commit interval 100 ms)"
NAME = "eos_stateful"


# --- the pipeline -------------------------------------------------------------------------------


class Working(Hooks):
    """Reports when the pipeline works, and measures what it commits from then on.

    Takes:  warm_up_s, the time from the first commit to the measurement; seconds, of the
            measurement, after which the pipeline is stopped; None to measure nothing.
    """

    def __init__(self, broker_pid: int, warm_up_s: float = 0, seconds: float | None = None) -> None:
        self._broker_pid, self._warm_up_s, self._seconds = broker_pid, warm_up_s, seconds
        self._first = self._began = self._cpu = 0.0
        self._committing: list[float] = []
        self.stop: Any = None
        self.records = 0

    def on_commit(self, records: int, outputs: int, seconds: float) -> None:
        now = time.monotonic()
        if not self._first:
            self._first = now
            say("ready")
        if self._seconds is None or now < self._first + self._warm_up_s:
            return
        if not self._began:
            self._began, self._cpu = now, cpu_seconds(self._broker_pid)
            return
        self.records += records
        self._committing.append(seconds)
        if now >= self._began + self._seconds:
            self._seconds = None
            say(
                {
                    "records": self.records,
                    "commits": len(self._committing),
                    "seconds": now - self._began,
                    "broker_cpu_s": cpu_seconds(self._broker_pid) - self._cpu,
                    "parts_ms": {"commit": 1e3 * statistics.median(self._committing)},
                }
            )
            self.stop()


def reduce(
    servers: str, mode: str, source: str, target: str, broker_pid: int, seconds: float | None
) -> None:
    """Count keys, and measure for so long; or, with None, until a line comes."""
    hooks = Working(broker_pid, WARM_UP_S, seconds)
    commit = Commit(seconds=INTERVAL_MS / 1000)
    pipeline = pipeline_of(mode, servers, target, reads=source, commit=commit, hooks=hooks)
    hooks.stop = pipeline.stop
    counts = pipeline.state("counts", default=int)
    rest = PAYLOAD[CREATED.size :]

    @pipeline.each
    def count(record: Record, out: Out) -> None:
        assert record.value is not None
        counts[record.key] = number = counts[record.key] + 1
        text = b"%d" % number
        value = record.value[: CREATED.size] + text + rest[len(text) :]
        out.send(target, value, key=record.key, partition=record.partition)

    if seconds is None:
        threading.Thread(target=stop_at_a_line, args=(pipeline.stop,), daemon=True).start()
    pipeline.run()


# --- measuring ----------------------------------------------------------------------------------


def measure_throughput(
    broker: LocalBroker, partitions: int, mode: str, seconds: float, *, name: str
) -> dict[str, Any]:
    """Let the pipeline work as fast as it can while a reader reads its output."""
    create_topic(broker, name, partitions)
    servers = broker.bootstrap_servers
    with clients() as started:
        started.append(Client("read_along", servers=servers, topic=name, partitions=partitions))
        os.sync()
        work = {"source": "input", "target": name, "seconds": seconds, "broker_pid": broker.pid}
        process = Client("reduce", module=MODULE, servers=servers, mode=mode, **work)
        started.append(process)
        process.answer()
        result: dict[str, Any] = process.answer()
        process.end(patiently=True)
    return {**result, "records_a_batch": records_a_batch(broker.data_dir, name, partitions)}


def measure_latency(
    broker: LocalBroker, partitions: int, mode: str, seconds: float, *, name: str
) -> dict[str, Any]:
    """The ages of records that arrive at a steady rate."""
    servers = broker.bootstrap_servers
    for topic in (f"{name}-in", name):
        create_topic(broker, topic, partitions)
    shape = {"partitions": partitions, "count": int(RATE * seconds)}
    with clients() as started:

        def start(role: str, **arguments: Any) -> Client:
            started.append(Client(role, servers=servers, **arguments))
            return started[-1]

        reader = start("read", topic=name, timeout_s=2 * seconds + 300, **shape)
        process = start(
            *("reduce",),
            module=MODULE, mode=mode, source=f"{name}-in", target=name, seconds=None,
            broker_pid=broker.pid,
        )  # fmt: skip
        feeder = start("feed", topic=f"{name}-in", rate=RATE, first=partitions, keys=KEYS, **shape)
        for client in (feeder, process, reader):
            client.answer()
        os.sync()
        feeder.go()
        feeder.answer()
        result: dict[str, Any] = reader.answer()
        process.go()
        for client in started:
            client.end(patiently=True)
    return result


def measure(partitions: int, seconds: float, number: int) -> list[Turn]:
    """Both modes on a new broker. The mode that is measured first alternates between turns."""
    order = MODES if number % 2 == 0 else MODES[::-1]
    count = int(RECORDS_A_SECOND * (seconds + WARM_UP_S + 1))
    with LocalBroker(in_memory=False, settings=SETTINGS) as broker:
        create_topic(broker, "input", partitions)
        with clients() as started:
            shape = {"partitions": partitions, "count": count, "keys": KEYS}
            filler = Client("fill", servers=broker.bootstrap_servers, topic="input", **shape)
            started.append(filler)
            filler.end(patiently=True)
        throughputs = {
            mode: measure_throughput(broker, partitions, mode, seconds, name=f"fast-{at}")
            for at, mode in enumerate(order)
        }
        latencies = {
            mode: measure_latency(broker, partitions, mode, seconds, name=f"steady-{at}")
            for at, mode in enumerate(order)
        }
    point = Point(partitions, INTERVAL_MS)
    return [Turn(point, mode, throughputs[mode], latencies[mode]) for mode in MODES]


def publish(turns: list[Turn], folder: Path) -> None:
    """Write the plot and the raw figures, and replace the table of EXACTLY_ONCE_COST.md."""
    summaries = summarised(turns)
    for suffix in ("svg", "png"):
        plot(summaries, "partitions", folder / f"{NAME}.{suffix}", AXIS)
    write_json(turns, folder / f"{NAME}.json")
    document = folder / "EXACTLY_ONCE_COST.md"
    report = f"{table(summaries)}\n\n{measured_note()}"
    document.write_text(with_table(document.read_text(), report, BEGIN_TABLE))


def main() -> None:
    """Measure, print the table, and publish it with --publish."""
    if sys.argv[1:2] == ["reduce"]:
        end_with_parent()
        reduce(**json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(
        prog=f"python -m {MODULE}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("partitions", nargs="*", type=int, default=list(PARTITIONS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (2)")
    parser.add_argument("--minutes", type=float, default=5.0, help="no turn ends later (5)")
    parser.add_argument(
        "--publish",
        type=Path,
        metavar="FOLDER",
        help="write plot, raw figures and the table of EXACTLY_ONCE_COST.md",
    )
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="JSON", help="take figures of before"
    )
    options = parser.parse_args()
    if any(KEYS % partitions for partitions in options.partitions):
        parser.error(f"the numbers of partitions have to divide {KEYS:,}")
    turns = [] if options.source is None else read_json(options.source)
    began = time.monotonic()
    if options.source is None:
        say_how_long(options.minutes)
    for number in turns_within(options.turns if options.source is None else 0, options.minutes):
        for partitions in options.partitions:
            pair = measure(partitions, options.seconds, number)
            turns += pair
            least, once = (turn.records_a_second for turn in pair)
            print(
                f"{time.monotonic() - began:4.0f} s  turn {number + 1}, {partitions} partitions: "
                f"{least:,.0f}/s at least once, {once:,.0f}/s exactly once, {1 - once / least:.1%}",
                file=sys.stderr,
                flush=True,
            )
    print(table(summarised(turns)))
    if options.publish is not None:
        publish(turns, options.publish)


if __name__ == "__main__":
    main()
