"""The cost of exactly-once compared with at-least-once, for read-process-write as in figure 5 of
the paper on Kafka's exactly-once.

One confluent-kafka process reads 100 B records, changes them and writes them to N partitions. At
each interval, in the mode at-least-once it flushes and then commits its offsets; in the mode
exactly-once it commits one transaction with both. A reader (read_committed) reads at the same time.

Each turn has a new broker. Both modes are measured on it one after the other, first the throughput
of both, then the latency of both. The next turn begins with the other mode.

    throughput   the input is written in advance; the process works for 4 s (at least one
                 interval) and until its next commit
    latency      records arrive at a steady rate; the time from a record's creation (before it is
                 written to the input) until the reader has it

Source: Wang et al., "Consistency and Completeness: Rethinking Distributed Stream Processing in
        Apache Kafka", SIGMOD 2021, figure 5.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas import LocalBroker
from barnabas.protocol.records import batches_in
from bench.common import create_topic

ROOT = Path(__file__).resolve().parent.parent
AT_LEAST_ONCE, EXACTLY_ONCE = "at least once", "exactly once"
MODES = (AT_LEAST_ONCE, EXACTLY_ONCE)
INPUT_PARTITIONS = 4
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
# the number of prepared input records per second, so high that the input does not run out
MOST_RECORDS_A_SECOND = 500_000
BEGIN_TABLE, END_TABLE = "<!-- measured by bench/eos.py -->", "<!-- end -->"


class Point(NamedTuple):
    """The parameters of a measurement that are varied."""

    partitions: int
    interval_ms: int


POINTS = tuple(Point(partitions, 100) for partitions in (1, 10, 100, 1000)) + tuple(
    Point(10, ms) for ms in (10, 1000, 10_000)
)
QUICK_POINTS = (Point(1, 100), Point(10, 100))

# Records/s of Apache Kafka 3.9 (KRaft, one node, Java 17) in the modes at-least-once and
# exactly-once, measured once on a machine with 2 cores. Its latencies are left out, since they
# began when the process read a record, not when the record was created.
KAFKA = {
    Point(1, 100): (124_000, 122_000),
    Point(10, 100): (119_000, 119_000),
    Point(100, 100): (115_000, 81_000),
    Point(1000, 100): (8_100, 12_600),
    Point(10, 10): (112_000, 110_000),
    Point(10, 1000): (117_000, 121_000),
}


@dataclass(frozen=True)
class Effort:
    """Durations, repetitions and rates of a measurement."""

    turns: int = 7
    seconds: float = 4.0
    rate: int = 10_000
    consumer: tuple[
        tuple[str, str], ...
    ] = ()  # the process's consumer settings that differ from the client's defaults

    def seconds_of(self, point: Point) -> float:
        """The duration of a measurement, which is at least one whole interval."""
        return max(self.seconds, point.interval_ms / 1000)


@dataclass(frozen=True)
class Turn:
    """The result of one mode at one point, in one turn."""

    point: Point
    mode: str
    throughput: dict[str, Any]
    latency: dict[str, Any]

    @property
    def records_a_second(self) -> float:
        return float(self.throughput["records"] / self.throughput["seconds"])

    @property
    def broker_cpu_s_a_million(self) -> float:
        return float(self.throughput["broker_cpu_s"] / self.throughput["records"] * 1e6)


@dataclass(frozen=True)
class Summary:
    """The medians over the turns of one point, by mode.

    Overheads are fractions (0.06 is 6 %), and negative if exactly-once was faster. overhead: the
    median of the turns' overheads. A turn runs both modes at about the same time, so its overhead
    depends little on the speed of the machine, which changes between turns.
    """

    point: Point
    records_a_second: dict[str, float]
    broker_cpu_s_a_million: dict[str, float]
    p50_ms: dict[str, float]
    p99_ms: dict[str, float]
    commit_ms: dict[str, float]
    records_a_batch: dict[str, float]
    overhead: float
    overheads_of_turns: list[float]


# --- measuring ----------------------------------------------------------------------------------


class Client:
    """A child process of bench/eos_clients.py, or of another module that has such roles."""

    def __init__(self, role: str, *, module: str = "bench.eos_clients", **arguments: Any) -> None:
        self.role = role
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, role, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def answer(self) -> Any:
        """The next line that the client prints.

        Raises: RuntimeError if the client ended without a line. Its standard error has the reason.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the {self.role} process ended before its time")
        return line.strip() if line.startswith("ready") else json.loads(line)

    def go(self) -> None:
        """Send the line for which the client waits."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def end(self, *, patiently: bool) -> None:
        """Wait for the client to exit, or kill it."""
        if patiently:
            assert self._process.wait(60) == 0, f"the {self.role} process failed"
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@contextmanager
def clients() -> Iterator[list[Client]]:
    """A list of clients, which are stopped at the end of the block."""
    started: list[Client] = []
    try:
        yield started
    finally:
        for client in started:
            client.end(patiently=False)


def measure_throughput(
    broker: LocalBroker, point: Point, mode: str, effort: Effort, *, name: str
) -> dict[str, Any]:
    """Let the process work as fast as possible while a reader reads its output."""
    servers = broker.bootstrap_servers
    create_topic(broker, name, point.partitions)
    work = {
        "source": "input",
        "target": name,
        "target_partitions": point.partitions,
        "mode": mode,
        "name": name,
    }
    work["consumer"] = dict(effort.consumer)
    with clients() as started:
        reader = Client("read_along", servers=servers, topic=name, partitions=point.partitions)
        started.append(reader)
        process = Client(
            "process",
            servers=servers,
            interval_s=point.interval_ms / 1000,
            seconds=effort.seconds_of(point),
            broker_pid=broker.pid,
            **work,
        )
        started.append(process)
        for client in (process, reader):
            client.answer()
        os.sync()  # flushes the dirty pages of earlier turns, so that they do not slow this one
        process.go()
        result: dict[str, Any] = process.answer()
        process.end(patiently=True)
        return {
            **result,
            "records_a_batch": records_a_batch(broker.data_dir, name, point.partitions),
        }


def records_a_batch(data_dir: str, topic: str, partitions: int) -> float:
    """The average number of records in a batch that the producer wrote. Markers do not count."""
    batches = records = 0
    for partition in range(partitions):
        for path in Path(data_dir, f"{topic}-{partition}").glob("*.log"):
            for _, header in batches_in(path.read_bytes()):
                if not header.is_control:
                    batches += 1
                    records += header.record_count
    return records / batches


def measure_latency(
    broker: LocalBroker, point: Point, mode: str, effort: Effort, *, name: str
) -> dict[str, Any]:
    """Measure the latency of records that are produced at a steady rate. If the interval is long,
    they are produced only during the first one.
    """
    servers = broker.bootstrap_servers
    create_topic(broker, f"{name}-in", INPUT_PARTITIONS)
    create_topic(broker, name, point.partitions)
    seconds = effort.seconds_of(point)
    count = int(effort.rate * seconds * 0.99)
    work = {
        "source": f"{name}-in",
        "target": name,
        "target_partitions": point.partitions,
        "mode": mode,
        "name": name,
    }
    work["consumer"] = dict(effort.consumer)
    with clients() as started:
        reader = Client(
            "read",
            servers=servers,
            topic=name,
            partitions=point.partitions,
            count=count,
            timeout_s=2 * seconds + 60,
        )
        process = Client(
            "process_until_line", servers=servers, interval_s=point.interval_ms / 1000, **work
        )
        fed = {
            "topic": f"{name}-in",
            "partitions": INPUT_PARTITIONS,
            "rate": effort.rate,
            "count": count,
            "first": point.partitions,
        }
        feeder = Client("feed", servers=servers, **fed)
        started += [reader, process, feeder]
        for client in (feeder, process, reader):
            client.answer()
        os.sync()
        feeder.go()
        written = feeder.answer()
        result: dict[str, Any] = reader.answer()
        process.go()
        process.answer()
        for client in started:
            client.end(patiently=True)
        return {**result, "fed_a_second": written["count"] / written["seconds"]}


def measure(point: Point, effort: Effort, number: int, settings: dict[str, str]) -> list[Turn]:
    """Measure both modes on a new broker. The mode that is measured first alternates between
    turns.
    """
    order = MODES if number % 2 == 0 else MODES[::-1]
    with LocalBroker(in_memory=False, settings=SETTINGS | settings) as broker:
        create_topic(broker, "input", INPUT_PARTITIONS)
        with clients() as started:
            count = int(MOST_RECORDS_A_SECOND * effort.seconds_of(point))
            filler = Client(
                "fill",
                servers=broker.bootstrap_servers,
                topic="input",
                partitions=INPUT_PARTITIONS,
                count=count,
            )
            started.append(filler)
            filler.end(patiently=True)
        throughputs = {
            mode: measure_throughput(broker, point, mode, effort, name=f"fast-{at}")
            for at, mode in enumerate(order)
        }
        if any(result["records"] > 0.95 * count for result in throughputs.values()):
            raise RuntimeError(
                "the process came to the end of its input: raise MOST_RECORDS_A_SECOND"
            )
        latencies = {
            mode: measure_latency(broker, point, mode, effort, name=f"steady-{at}")
            for at, mode in enumerate(order)
        }
    return [Turn(point, mode, throughputs[mode], latencies[mode]) for mode in MODES]


# --- results ------------------------------------------------------------------------------------


def summarised(turns: Iterable[Turn]) -> list[Summary]:
    """One summary for each point, in the order of the points."""
    by_point: dict[Point, dict[str, list[Turn]]] = {}
    for turn in turns:
        by_point.setdefault(turn.point, {mode: [] for mode in MODES})[turn.mode].append(turn)
    return [_summary(point, by_point[point]) for point in sorted(by_point)]


def _summary(point: Point, by_mode: dict[str, list[Turn]]) -> Summary:
    """The medians of a point's turns, and the overhead of exactly-once in each turn."""

    def medians(figure: Any) -> dict[str, float]:
        return {mode: statistics.median(figure(turn) for turn in by_mode[mode]) for mode in MODES}

    speed = medians(lambda turn: turn.records_a_second)
    pairs = zip(by_mode[AT_LEAST_ONCE], by_mode[EXACTLY_ONCE], strict=True)
    overheads = [1 - once.records_a_second / least.records_a_second for least, once in pairs]
    return Summary(
        point,
        records_a_second=speed,
        broker_cpu_s_a_million=medians(lambda turn: turn.broker_cpu_s_a_million),
        p50_ms=medians(lambda turn: turn.latency["p50_ms"]),
        p99_ms=medians(lambda turn: turn.latency["p99_ms"]),
        commit_ms=medians(lambda turn: sum(turn.throughput["parts_ms"].values())),
        records_a_batch=medians(lambda turn: turn.throughput["records_a_batch"]),
        overhead=statistics.median(overheads),
        overheads_of_turns=overheads,
    )


def shown_interval(interval_ms: int) -> str:
    return f"{interval_ms} ms" if interval_ms < 1000 else f"{interval_ms // 1000} s"


def shown_ms(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def table(
    summaries: Iterable[Summary], kafka: Mapping[Point, tuple[int, int]] | None = None
) -> str:
    """The report, in Markdown.

    Takes:  kafka, Apache Kafka's records/s at least once and exactly once, for a further column.
    """
    header = [
        "partitions, interval",
        "at least once",
        "exactly once",
        "overhead (of the turns)",
        "broker CPU s a million",
        "commit, ms",
        "records a batch",
        "latency p50 / p99 at least once, ms",
        "exactly once, ms",
    ]
    if kafka is not None:
        header.append("Apache Kafka 3.9: at least, exactly once")
    rows = [header, ["---"] * len(header)]
    for summary in summaries:
        cells = [f"{summary.point.partitions:,}, {shown_interval(summary.point.interval_ms)}"]
        cells += [f"{summary.records_a_second[mode]:,.0f}/s" for mode in MODES]
        of_turns = summary.overheads_of_turns
        cells.append(f"{summary.overhead:.1%} ({min(of_turns):.1%} to {max(of_turns):.1%})")
        cells.append(", ".join(f"{summary.broker_cpu_s_a_million[mode]:.2f}" for mode in MODES))
        cells.append(", ".join(shown_ms(summary.commit_ms[mode]) for mode in MODES))
        cells.append(", ".join(f"{summary.records_a_batch[mode]:,.0f}" for mode in MODES))
        cells += [
            f"{shown_ms(summary.p50_ms[mode])} / {shown_ms(summary.p99_ms[mode])}" for mode in MODES
        ]
        if kafka is not None:
            pair = kafka.get(summary.point)
            cells.append(
                "-"
                if pair is None
                else f"{pair[0]:,}/s, {pair[1]:,}/s: {1 - pair[1] / pair[0]:.0%}"
            )
        rows.append(cells)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


# --- publishing ---------------------------------------------------------------------------------

STYLES = {
    AT_LEAST_ONCE: {
        "color": "#1f6fb4",
        "marker": "o",
        "linestyle": "--",
        "markerfacecolor": "white",
    },
    EXACTLY_ONCE: {"color": "#c4501b", "marker": "s", "linestyle": "-"},
}


AXES = {
    "partitions": "output partitions (commit interval 100 ms)",
    "interval_ms": "commit interval (10 output partitions)",
}


def plot(summaries: list[Summary], axis: str, path: Path, name: str = "") -> None:
    """Plot throughput and latency against `axis`, one of AXES.

    Takes:  name, of the axis, if it differs from that in AXES.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    places = [getattr(summary.point, axis) for summary in summaries]
    figure, (speed, age) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for mode in MODES:
        style: dict[str, Any] = {"linewidth": 1.8, "markersize": 7, "label": mode, **STYLES[mode]}
        speed.plot(
            places, [summary.records_a_second[mode] / 1000 for summary in summaries], **style
        )
        age.plot(places, [summary.p50_ms[mode] for summary in summaries], **style)
        age.plot(
            places, [summary.p99_ms[mode] for summary in summaries],
            **{**style, "label": f"{mode}, p99", "linewidth": 0.9, "markersize": 4, "alpha": 0.75},
        )  # fmt: skip
    for place, summary in zip(places, summaries, strict=True):
        upper = max(summary.records_a_second.values()) / 1000
        speed.annotate(
            f"{summary.overhead:.1%}",
            (place, upper),
            textcoords="offset points",
            xytext=(0, 9),
            ha="center",
            fontsize=9,
        )
    speed.set_ylim(
        0, 1.15 * max(max(summary.records_a_second.values()) for summary in summaries) / 1000
    )
    speed.set_ylabel("throughput, 1,000 records/s")
    speed.set_title("Throughput; the numbers are the overhead", fontsize=11)
    age.set_yscale("log")
    age.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    age.set_ylabel("creation to committed read, ms")
    age.set_title("End-to-end latency, p50 (thin: p99)", fontsize=11)
    for panel in (speed, age):
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(FixedLocator(places))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(
            FuncFormatter(
                lambda value, _: (
                    f"{value:,.0f}" if axis == "partitions" else shown_interval(int(value))
                )
            )
        )
        panel.margins(x=0.08)
        panel.set_xlabel(name or AXES[axis])
        panel.grid(visible=True, which="major", alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    speed.legend(loc="lower left", frameon=False)
    age.legend(loc="best", frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def publish(turns: list[Turn], folder: Path) -> None:
    """Write the plots and the raw figures, and replace the table between its marks in
    EXACTLY_ONCE_COST.md.
    """
    summaries = summarised(turns)
    for axis, name, fixed in (
        ("partitions", "eos_partitions", "interval_ms"),
        ("interval_ms", "eos_interval", "partitions"),
    ):
        at = {"interval_ms": 100, "partitions": 10}[fixed]
        chosen = [summary for summary in summaries if getattr(summary.point, fixed) == at]
        for suffix in ("svg", "png"):
            plot(chosen, axis, folder / f"{name}.{suffix}")
    write_json(turns, folder / "eos.json")
    document = folder / "EXACTLY_ONCE_COST.md"
    document.write_text(with_table(document.read_text(), table(summaries, KAFKA)))


def with_table(text: str, new: str, begin_table: str = BEGIN_TABLE) -> str:
    """The document with a new table between the marks.

    Raises: ValueError if the document does not have the marks.
    """
    before, begin, rest = text.partition(begin_table)
    _, end, after = rest.partition(END_TABLE)
    if not (begin and end):
        raise ValueError(
            f"the document has no {begin_table} followed by {END_TABLE}: put them where the table "
            "belongs"
        )
    return f"{before}{begin}\n\n{new}\n\n{end}{after}"


def measured_note() -> str:
    """A sentence that says when and at which commit figures were taken, and how busy the machine
    was.
    """
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    cores, load = os.cpu_count() or 1, os.getloadavg()[2]
    text = (
        f"(Measured on {time.strftime('%Y-%m-%d', time.gmtime())} at commit "
        f"`{commit.stdout.strip()}` on {cores} cores; the load average of 15 minutes, with the "
        f"measurement's own, was {load:.1f}."
    )
    if load > 2 * cores:
        text += " The machine was busy with other work, so these figures only show that it runs."
    return textwrap.fill(f"{text})", 100)


def write_json(turns: list[Turn], path: Path) -> None:
    rows = [{**asdict(turn), "point": turn.point._asdict()} for turn in turns]
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def read_json(path: Path) -> list[Turn]:
    return [Turn(**{**row, "point": Point(**row["point"])}) for row in json.loads(path.read_text())]


# --- the command --------------------------------------------------------------------------------


def run(
    points: Iterable[Point], effort: Effort, settings: dict[str, str], kept: Path | None
) -> list[Turn]:
    """Measure all points in each turn, one turn after the other, so that noise spreads over all
    points.

    After each measurement the results so far are written to the file `kept`.
    """
    points = list(points)
    turns: list[Turn] = []
    began = time.monotonic()
    for number in range(effort.turns):
        for point in points:
            pair = measure(point, effort, number, settings)
            turns += pair
            if kept is not None:
                write_json(turns, kept)
            least, once = (turn.records_a_second for turn in pair)
            print(
                f"{time.monotonic() - began:4.0f} s  turn {number + 1}, {point.partitions} "
                f"partitions, {shown_interval(point.interval_ms)}: "
                f"{least:,.0f}/s at least once, {once:,.0f}/s exactly once, {1 - once / least:.1%}",
                file=sys.stderr,
                flush=True,
            )
    return turns


def _point(text: str) -> Point:
    partitions, _, interval_ms = text.partition("x")
    return Point(int(partitions), int(interval_ms))


def main() -> None:
    """Measure, print the table, and publish it with --publish."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.eos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "points",
        nargs="*",
        type=_point,
        help="PARTITIONSxMILLISECONDS, such as 100x100; all of the figure by default",
    )
    parser.add_argument(
        "--quick", action="store_true", help="two points, half a second each: does it work?"
    )
    parser.add_argument("--turns", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=None, help="of each measurement, at least")
    parser.add_argument(
        "--rate", type=int, default=None, help="records a second while the latency is measured"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker"
    )
    parser.add_argument(
        "--consumer",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the process's consumer",
    )
    parser.add_argument("--json", type=Path, help="write the raw figures there, after each turn")
    parser.add_argument(
        "--publish",
        type=Path,
        metavar="FOLDER",
        help="write plots, raw figures and the table of EXACTLY_ONCE_COST.md",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="JSON",
        help="take raw figures of before instead of measuring",
    )
    options = parser.parse_args()
    base = Effort(turns=1, seconds=0.5, rate=2000) if options.quick else Effort()
    given = {
        key: value
        for key in ("turns", "seconds", "rate")
        if (value := getattr(options, key)) is not None
    }
    given["consumer"] = tuple(tuple(pair.split("=", 1)) for pair in options.consumer)
    settings = dict(pair.split("=", 1) for pair in options.set)
    if options.source is not None:
        turns = read_json(options.source)
    else:
        points = options.points or (QUICK_POINTS if options.quick else POINTS)
        turns = run(points, Effort(**{**asdict(base), **given}), settings, options.json)
    print(table(summarised(turns), KAFKA))
    if options.publish is not None:
        publish(turns, options.publish)


if __name__ == "__main__":
    main()
