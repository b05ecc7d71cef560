"""The curve of figure 5b for Spark: throughput and latency over the interval of the trigger, which
is the query's interval of commits, exactly once and at least once.

    python -m bench.spark_trigger [--intervals-ms 10 100 1000 10000] [--turns 1] [--publish docs]

A query copies records of 100 bytes from topic to topic. Exactly once it writes each micro-batch in
a transaction with the batch's number (`format("barnabas")`). At least once it does the same work by
the same code, without the transaction and the number (bench/spark_at_least_once.py).

    throughput   the input is written in advance. A micro-batch takes what would arrive in one
                 interval at 50,000 records/s, and the next one begins at once. The figure is
                 the records of the batches after the first, over the time of these batches
    latency      records arrive at a steady rate, and the trigger has the interval; the time from a
                 record's creation until a reader of committed records has it. A batch that takes
                 longer than the interval is followed at once by the next

All of it is in one Spark session. A turn measures both modes at each interval one after the other;
the next turn begins with the other mode.

Source: Wang et al., "Consistency and Completeness: Rethinking Distributed Stream Processing in
        Apache Kafka", SIGMOD 2021, figure 5b.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas import LocalBroker
from bench.common import create_topic, say_how_long, threads_cpu_seconds
from bench.eos import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    INPUT_PARTITIONS,
    MODES,
    STYLES,
    Client,
    clients,
    measured_note,
    shown_interval,
    shown_ms,
    with_table,
)
from bench.spark_at_least_once import FORMAT, AtLeastOnceSource
from pyspark_barnabas import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BEGIN_TABLE = "<!-- measured by bench/spark_trigger.py -->"
INTERVALS_MS = (10, 100, 1000, 10_000)
FORMATS = {AT_LEAST_ONCE: FORMAT, EXACTLY_ONCE: "barnabas"}
ARRIVING_A_SECOND = 50_000  # what a batch of one interval has while the throughput is measured
WARM_UP_BATCHES, MEASURED_BATCHES = 1, 2
WARM_UP_S = 3.0  # what is read before the latency is measured, at its rate
QUERY_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Effort:
    """The length of a measurement."""

    turns: int = 1
    seconds: float = 6.0  # of each measurement, at least
    rate: int = 2000  # records a second, while the latency is measured


@dataclass(frozen=True)
class Result:
    """What one mode gave at one interval in one turn.

    batch_ms, batch_records: the medians of the measured batches. cpu_us: the broker's CPU for a
    record, while the throughput is measured.
    """

    interval_ms: int
    mode: str
    records_a_second: float
    batch_ms: float
    batch_records: float
    broker_cpu_us: float
    p50_ms: float
    p99_ms: float


class Session:
    """The Spark session and the broker of all measurements."""

    def __init__(self, spark: SparkSession, broker: LocalBroker) -> None:
        self.spark, self.broker = spark, broker

    @contextmanager
    def query(
        self, source: str, target: str, mode: str, trigger: dict[str, Any], **options: str
    ) -> Iterator[StreamingQuery]:
        """A running query that copies from topic to topic."""
        servers = self.broker.bootstrap_servers
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
            records = (
                self.spark.readStream.format("barnabas")
                .schema("key binary, value binary")
                .option("kafka.bootstrap.servers", servers)
                .option("subscribe", source)
                .option("startingOffsets", "earliest")
                .options(**options)
                .load()
            )
            query = (
                records.writeStream.format(FORMATS[mode])
                .option("kafka.bootstrap.servers", servers)
                .option("topic", target)
                .option("checkpointLocation", str(Path(folder, "checkpoint")))
                .trigger(**trigger)
                .start()
            )
            try:
                yield query
            finally:
                query.stop()


def wait_until(query: StreamingQuery, is_done: Callable[[], bool]) -> None:
    """Wait for a state of a query. Raises: the query's error; TimeoutError."""
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while not is_done():
        if (error := query.exception()) is not None:
            raise error
        if time.monotonic() > deadline:
            raise TimeoutError(f"the query has not come so far in {QUERY_TIMEOUT_S:.0f} s")
        time.sleep(0.02)


def measure_throughput(
    session: Session, interval_ms: int, mode: str, effort: Effort, *, name: str, records: int
) -> dict[str, float]:
    """Copy a prepared input in batches of one interval, one after the other.

    Takes:  records, how many the input has.
    """
    create_topic(session.broker, name, INPUT_PARTITIONS)
    batch = ARRIVING_A_SECOND * interval_ms // 1000
    most = min(records // batch - 1, 10_000)

    def done() -> list[Any]:
        """The batches since the warm-up whose size is that of one interval."""
        return [
            each
            for each in query.recentProgress
            if each["batchId"] >= WARM_UP_BATCHES and each["numInputRows"] > 0.9 * batch
        ]

    with session.query(
        "input",
        name,
        mode,
        {"processingTime": "0 seconds"},
        maxOffsetsPerTrigger=str(batch),
        joinRangesUpTo="0",
    ) as query:
        wait_until(query, lambda: len(query.recentProgress) >= WARM_UP_BATCHES)
        cpu, began = threads_cpu_seconds(session.broker.pid), time.monotonic()
        before = sum(each["numInputRows"] for each in query.recentProgress)
        wait_until(
            query,
            lambda: (
                len(done()) >= MEASURED_BATCHES
                and (
                    time.monotonic() - began >= effort.seconds
                    or query.recentProgress[-1]["batchId"] >= most
                )
            ),
        )
        rows = done()
        cpu = threads_cpu_seconds(session.broker.pid) - cpu
        # Spark keeps the last 100 progress reports, so older batches are counted by their number.
        total = (query.recentProgress[-1]["batchId"] + 1) * batch - before
    times = [each["durationMs"]["triggerExecution"] for each in rows]
    counts = [each["numInputRows"] for each in rows]
    return {
        "records_a_second": 1000 * sum(counts) / sum(times),
        "batch_ms": statistics.median(times),
        "batch_records": statistics.median(counts),
        "broker_cpu_us": 1e6 * cpu / total,
    }


def measure_latency(
    session: Session, interval_ms: int, mode: str, effort: Effort, *, name: str
) -> dict[str, float]:
    """Copy records that arrive at a steady rate, for some seconds and at least two intervals."""
    servers, rate = session.broker.bootstrap_servers, effort.rate
    count = int(rate * max(effort.seconds, 2 * interval_ms / 1000))
    for topic in (f"{name}-in", name):
        create_topic(session.broker, topic, INPUT_PARTITIONS)
    with clients() as started:
        # a backlog that is not measured: the first batches of a query take longer
        feeder = Client(
            "feed",
            servers=servers,
            topic=f"{name}-in",
            partitions=INPUT_PARTITIONS,
            rate=rate,
            count=count,
            first=int(rate * WARM_UP_S),
        )
        started.append(feeder)
        feeder.answer()
        with session.query(
            f"{name}-in", name, mode, {"processingTime": f"{interval_ms} milliseconds"}
        ) as query:
            reader = Client(
                "read",
                servers=servers,
                topic=name,
                partitions=INPUT_PARTITIONS,
                count=count,
                timeout_s=2 * count / rate + 120,
            )
            started.append(reader)
            reader.answer()
            wait_until(query, lambda: bool(query.recentProgress))
            feeder.go()
            feeder.answer()
            ages = reader.answer()
    return {"p50_ms": ages["p50_ms"], "p99_ms": ages["p99_ms"]}


def fill_input(broker: LocalBroker, records: int) -> None:
    """Write the input of the throughput."""
    create_topic(broker, "input", INPUT_PARTITIONS)
    with clients() as started:
        filler = Client(
            "fill",
            servers=broker.bootstrap_servers,
            topic="input",
            partitions=INPUT_PARTITIONS,
            count=records,
        )
        started.append(filler)
        filler.end(patiently=True)


def run(
    intervals_ms: Iterable[int], effort: Effort, keep: Callable[[list[Result]], None]
) -> list[Result]:
    """Measure both modes at all intervals. After each measurement `keep` gets the results so far,
    since the whole takes minutes.
    """
    intervals_ms = list(intervals_ms)
    largest = ARRIVING_A_SECOND * max(intervals_ms) // 1000
    records = max((WARM_UP_BATCHES + MEASURED_BATCHES + 1) * largest, 4 * ARRIVING_A_SECOND)
    spark = local_session("trigger intervals", cores=2, settings={"spark.log.level": "ERROR"})
    spark.dataSource.register(AtLeastOnceSource)
    results: list[Result] = []
    began = time.monotonic()
    try:
        with LocalBroker(in_memory=False) as broker:
            session = Session(spark, broker)
            fill_input(broker, records)
            for turn in range(effort.turns):
                for interval_ms in intervals_ms:
                    for mode in MODES if turn % 2 == 0 else MODES[::-1]:
                        name = f"turn-{turn}-{interval_ms}-{mode.replace(' ', '-')}"
                        result = Result(
                            interval_ms,
                            mode,
                            **measure_throughput(
                                session, interval_ms, mode, effort, name=name, records=records
                            ),
                            **measure_latency(
                                session, interval_ms, mode, effort, name=f"{name}-steady"
                            ),
                        )
                        results.append(result)
                        keep(results)
                        print(
                            f"{time.monotonic() - began:4.0f} s  {shown_interval(interval_ms)}, "
                            f"{mode}: {result.records_a_second:,.0f}/s, "
                            f"p50 {shown_ms(result.p50_ms)} ms",
                            file=sys.stderr,
                            flush=True,
                        )
    finally:
        spark.stop()
    return results


# --- results ------------------------------------------------------------------------------------


def medians(results: Iterable[Result]) -> dict[int, dict[str, Result]]:
    """For each interval and mode, the medians over the turns."""
    groups: dict[tuple[int, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.interval_ms, result.mode), []).append(result)
    table: dict[int, dict[str, Result]] = {}
    for (interval_ms, mode), group in sorted(groups.items()):
        figures = {
            name: statistics.median(getattr(result, name) for result in group)
            for name in asdict(group[0])
            if name not in ("interval_ms", "mode")
        }
        table.setdefault(interval_ms, {})[mode] = Result(interval_ms, mode, **figures)
    return table


def table(results: Iterable[Result]) -> str:
    """The report, in Markdown."""
    rows = [
        [
            "interval",
            "records a batch",
            "at least once",
            "exactly once",
            "a batch, ms",
            "broker CPU us a record",
            "latency p50 / p99 at least once, ms",
            "exactly once, ms",
        ],
        ["---"] * 8,
    ]
    for interval_ms, by_mode in medians(results).items():
        pair = [by_mode[mode] for mode in MODES]
        rows.append(
            [
                shown_interval(interval_ms),
                f"{pair[0].batch_records:,.0f}",
                *(f"{each.records_a_second:,.0f}/s" for each in pair),
                ", ".join(f"{each.batch_ms:,.0f}" for each in pair),
                ", ".join(f"{each.broker_cpu_us:.1f}" for each in pair),
                *(f"{shown_ms(each.p50_ms)} / {shown_ms(each.p99_ms)}" for each in pair),
            ]
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def plot(results: Iterable[Result], path: Path) -> None:
    """Plot throughput and latency over the interval, as bench/eos.py does."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    found = medians(results)
    places = list(found)
    figure, (speed, age) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for mode in MODES:
        rows = [found[interval_ms][mode] for interval_ms in places]
        style: dict[str, Any] = {"linewidth": 1.8, "markersize": 7, "label": mode, **STYLES[mode]}
        thin = {**style, "label": f"{mode}, p99", "linewidth": 0.9, "markersize": 4, "alpha": 0.75}
        speed.plot(places, [row.records_a_second / 1000 for row in rows], **style)
        age.plot(places, [row.p50_ms for row in rows], **style)
        age.plot(places, [row.p99_ms for row in rows], **thin)
    age.plot(places, places, color="grey", linewidth=0.8, linestyle=":", label="the interval")
    speed.set_ylim(bottom=0)
    speed.set_ylabel("throughput, 1,000 records/s")
    speed.set_title("Throughput, batches of one interval back to back", fontsize=11)
    age.set_yscale("log")
    age.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    age.set_ylabel("creation to committed read, ms")
    age.set_title("End-to-end latency, p50 (thin: p99)", fontsize=11)
    for panel in (speed, age):
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(FixedLocator(places))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown_interval(int(value))))
        panel.margins(x=0.08)
        panel.set_xlabel("interval of Spark's trigger")
        panel.grid(visible=True, which="major", alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    speed.legend(loc="lower right", frameon=False)
    age.legend(loc="upper left", frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def publish(results: list[Result], conditions: str, folder: Path) -> None:
    """Write the plots and the raw figures, and replace the table in EXACTLY_ONCE_COST.md."""
    for suffix in ("svg", "png"):
        plot(results, folder / f"eos_trigger.{suffix}")
    write_json(results, conditions, folder / "eos_trigger.json")
    document = folder / "EXACTLY_ONCE_COST.md"
    text = f"{table(results)}\n\n{conditions}"
    document.write_text(with_table(document.read_text(), text, BEGIN_TABLE))


def minutes_of(intervals_ms: Iterable[int], effort: Effort) -> float:
    """How long the measurement takes on an idle machine, at most: Spark's start and the input, then
    throughput and latency in both modes at each interval.
    """
    steady = (max(effort.seconds, 2 * ms / 1000) + ms / 1000 for ms in intervals_ms)
    seconds = sum(2 * (effort.seconds + each + 6) for each in steady)
    return 0.7 + effort.turns * seconds / 60


def write_json(results: Iterable[Result], conditions: str, path: Path) -> None:
    """Write the raw figures, and when they were measured."""
    rows = ",\n".join(json.dumps(asdict(row)) for row in results)
    path.write_text(f'{{"measured": {json.dumps(conditions)}, "results": [\n{rows}\n]}}\n')


def read_json(path: Path) -> tuple[list[Result], str]:
    """The raw figures, and when they were measured."""
    found = json.loads(path.read_text())
    return [Result(**row) for row in found["results"]], found["measured"]


def main() -> None:
    """Measure, print the table, and publish it with --publish."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark_trigger",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--intervals-ms", type=int, nargs="+", default=INTERVALS_MS)
    parser.add_argument("--turns", type=int, default=Effort.turns)
    parser.add_argument("--seconds", type=float, default=Effort.seconds, help="at least, of each")
    parser.add_argument("--rate", type=int, default=Effort.rate, help="records a second")
    parser.add_argument("--json", type=Path, help="write the raw figures there")
    parser.add_argument(
        "--publish", type=Path, metavar="FOLDER", help="write plot, raw figures and table"
    )
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="JSON", help="take raw figures of before"
    )
    options = parser.parse_args()
    if options.source is not None:
        results, conditions = read_json(options.source)
    else:
        effort = Effort(options.turns, options.seconds, options.rate)
        conditions = measured_note()
        kept = options.json
        say_how_long(minutes_of(options.intervals_ms, effort))
        results = run(
            options.intervals_ms,
            effort,
            lambda rows: None if kept is None else write_json(rows, conditions, kept),
        )
    print(f"{table(results)}\n\n{conditions}")
    if options.publish is not None:
        publish(results, conditions, options.publish)


if __name__ == "__main__":
    main()
