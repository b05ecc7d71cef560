"""Three services in a row, each exactly once: how old is a record when it has passed them all?

    python -m bench.services [--rate 1000] [--seconds 10] [--interval-ms 100] [--services 3]
                             [--suppress-ms 0 1500] [--publish docs]

Each service reads committed records of the topic before it and writes to the next one, in
transactions with its offsets, which it commits at an interval. So a record waits for a commit in
each service. The age is measured by the last reader (read_committed), from the record's creation.

With suppression the services are pipelines of `barnabas.exactly_once`: all but the last count the
records of each key, with state, and write each count; the last one holds the revisions of a key
back for that time, and then writes the last of them, as Kafka Streams' suppress (untilTimeLimit)
does. It has its revisions in state, too, so that a kill loses none. As there, time is that of the
records: a revision is written when a later record has come. The age of a result is that of the
oldest record in it.

Source: Wang et al., "Consistency and Completeness: Rethinking Distributed Stream Processing in
        Apache Kafka", SIGMOD 2021, section 6: services in a row with commits of 100 ms are below a
        second from end to end; suppression.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import threading
from pathlib import Path
from typing import Any

from barnabas import LocalBroker
from barnabas.exactly_once import Commit, Hooks, Out, Record, State
from bench.common import create_topic, end_with_parent, say_how_long
from bench.eos import (
    INPUT_PARTITIONS,
    MODES,
    SETTINGS,
    Client,
    clients,
    measured_note,
    with_table,
)
from bench.eos_clients import CREATED, CREATED_AND_COUNT, PAYLOAD, say
from bench.pipelines import pipeline_of, stop_at_a_line

KEYS = 100
BEGIN_TABLE = "<!-- measured by bench/services.py -->"
REST = PAYLOAD[CREATED_AND_COUNT.size :]


# --- the services of a suppressed row -----------------------------------------------------------


class Ready(Hooks):
    """Says when the first transaction is committed."""

    def __init__(self) -> None:
        self._is_ready = False

    def on_commit(self, records: int, outputs: int, seconds: float) -> None:
        if not self._is_ready:
            self._is_ready = True
            say("ready")


def service(
    servers: str, source: str, target: str, mode: str, interval_ms: int, hold_ms: int
) -> None:
    """Run a service until a line comes: one that counts or, if hold_ms is not 0, that suppresses.

    Records from before the measurement, which have no creation time, are handled as all others.
    """
    commit = Commit(seconds=interval_ms / 1000)
    pipeline = pipeline_of(
        mode, servers, f"to-{target}", reads=source, commit=commit, hooks=Ready()
    )
    state: State[Any, Any] = (
        pipeline.state("held") if hold_ms else pipeline.state("counts", default=int)
    )
    now_ms: dict[int, int] = {}

    def count(record: Record, out: Out) -> None:
        """Write how many records of the key there are, with the record's creation time."""
        assert record.value is not None
        state[record.key] = number = state[record.key] + 1
        created = CREATED.unpack_from(record.value)[0]
        send(out, record.key, created, number, record)

    def suppress(record: Record, out: Out) -> None:
        """Hold the key's revision, and write those whose time is over."""
        assert record.value is not None and record.key is not None
        created = CREATED.unpack_from(record.value)[0]
        since, first, merged = state.get(record.key, (record.timestamp_ms, 0, 0))
        state[record.key] = [since, first or created, merged + (created != 0)]
        now = now_ms[record.partition] = max(
            record.timestamp_ms, now_ms.get(record.partition, record.timestamp_ms)
        )
        for key, (since, first, merged) in list(state.items()):
            if since + hold_ms <= now:
                del state[key]
                send(out, key, first, merged, record)

    def send(out: Out, key: Any, created: int, number: int, record: Record) -> None:
        value = CREATED_AND_COUNT.pack(created, number) + REST
        more = {"partition": record.partition, "timestamp_ms": record.timestamp_ms}
        out.send(target, value, key=key, **more)

    pipeline.each(suppress if hold_ms else count)
    threading.Thread(target=stop_at_a_line, args=(pipeline.stop,), daemon=True).start()
    pipeline.run()


# --- measuring ----------------------------------------------------------------------------------


def measure(
    services: int,
    mode: str,
    *,
    interval_ms: int,
    rate: int,
    seconds: float,
    suppress_ms: int = 0,
) -> dict[str, Any]:
    """Feed records at a steady rate through a row of services.

    Gives:  count, of records; read, how many results there are of them; and the ages at the end in
            milliseconds: p50_ms, p95_ms, p99_ms, max_ms.
    """
    count = int(rate * seconds)
    with LocalBroker(in_memory=False, settings=SETTINGS) as broker, clients() as started:
        servers = broker.bootstrap_servers
        topics = [f"topic-{number}" for number in range(services + 1)]
        for topic in topics:
            create_topic(broker, topic, INPUT_PARTITIONS)

        def start(role: str, **arguments: Any) -> Client:
            started.append(Client(role, servers=servers, **arguments))
            return started[-1]

        shape = {"partitions": INPUT_PARTITIONS, "count": count}
        feeding = {"topic": topics[0], "rate": rate, "first": INPUT_PARTITIONS}
        steps = list(itertools.pairwise(topics))
        if suppress_ms:
            # The records that follow move the time on, until the last revisions are written.
            feeding |= {"keys": KEYS, "last": int(rate * (suppress_ms / 1000 + 1))}
            row = [
                start(
                    "service",
                    module="bench.services",
                    source=source,
                    target=target,
                    mode=mode,
                    interval_ms=interval_ms,
                    hold_ms=suppress_ms if target == topics[-1] else 0,
                )
                for source, target in steps
            ]
        else:
            row = [
                start(
                    "process_until_line",
                    source=source,
                    target=target,
                    target_partitions=INPUT_PARTITIONS,
                    mode=mode,
                    interval_s=interval_ms / 1000,
                    name=f"to-{target}",
                    # reads the commits of the service before it, and has nothing of its own to
                    # wait for
                    consumer={"isolation.level": "read_committed", "fetch.wait.max.ms": "100"},
                )
                for source, target in steps
            ]
        feeder = start("feed", **feeding, **shape)
        timeout_s = 2 * seconds + 60
        reader = start(
            *("read",), topic=topics[-1], timeout_s=timeout_s, counts_within=suppress_ms > 0,
            **shape,
        )  # fmt: skip
        for client in (feeder, *row):
            client.answer()
        if not suppress_ms:
            reader.answer()
        feeder.go()
        feeder.answer()
        if suppress_ms:
            reader.answer()  # it is ready at the first result, which comes late
        result: dict[str, Any] = reader.answer()
        for one in row:
            one.go()
            if not suppress_ms:
                one.answer()
        for client in started:
            client.end(patiently=True)
        return result


def main() -> None:
    """Measure both modes, and print a table."""
    if sys.argv[1:2] == ["service"]:
        end_with_parent()
        service(**json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(
        prog="python -m bench.services",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rate", type=int, default=1000, help="records a second (1000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="(10)")
    parser.add_argument("--interval-ms", type=int, default=100, help="of the commits (100)")
    parser.add_argument("--services", type=int, default=3, help="in a row (3)")
    parser.add_argument(
        "--suppress-ms",
        type=int,
        nargs="+",
        default=[0, 1500],
        help="of the last service; 0 for none (0 and 1500, one after the other)",
    )
    parser.add_argument(
        "--publish", type=Path, metavar="FOLDER", help="write the table of EXACTLY_ONCE_COST.md"
    )
    options = parser.parse_args()
    # beside the feeding: starting all clients, and the records that push a suppression on
    seconds = (options.seconds + ms / 1000 + 8 for ms in options.suppress_ms)
    say_how_long(len(MODES) * sum(seconds) / 60)
    rows = [
        "| services, interval | suppression | mode | results of records | p50 | p99 | highest |",
        "|---|---|---|---|---|---|---|",
    ]
    for suppress_ms, mode in itertools.product(options.suppress_ms, MODES):
        found = measure(
            options.services,
            mode,
            interval_ms=options.interval_ms,
            rate=options.rate,
            seconds=options.seconds,
            suppress_ms=suppress_ms,
        )
        ages = " | ".join(f"{found[name]:,.0f} ms" for name in ("p50_ms", "p99_ms", "max_ms"))
        rows.append(
            f"| {options.services}, {options.interval_ms} ms | "
            f"{f'{suppress_ms:,} ms' if suppress_ms else 'none'} | {mode} | "
            f"{found['read']:,} of {found['count']:,} | {ages} |"
        )
        print(rows[-1], file=sys.stderr, flush=True)
    report = "\n".join(rows)
    print(report)
    if options.publish is not None:
        document = options.publish / "EXACTLY_ONCE_COST.md"
        report = f"{report}\n\n{measured_note()}"
        document.write_text(with_table(document.read_text(), report, BEGIN_TABLE))


if __name__ == "__main__":
    main()
