"""Three services in a row, each exactly once: how old is a record when it has passed them all?

    python -m bench.services [--rate 1000] [--seconds 10] [--interval-ms 100] [--services 3]

Each service reads committed records of the topic before it and writes to the next one, in
transactions with its offsets, which it commits at an interval. So a record waits for a commit in
each service. The age is measured by the last reader (read_committed), from the record's creation.

Source: Wang et al., "Consistency and Completeness: Rethinking Distributed Stream Processing in
        Apache Kafka", SIGMOD 2021, section 6: services in a row with commits of 100 ms are below a
        second from end to end.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from barnabas import LocalBroker
from bench.common import create_topic
from bench.eos import INPUT_PARTITIONS, MODES, SETTINGS, Client, clients


def measure(
    services: int, mode: str, *, interval_ms: int, rate: int, seconds: float
) -> dict[str, Any]:
    """Feed records at a steady rate through a row of services.

    Gives:  count, and the ages at the end in milliseconds: p50_ms, p95_ms, p99_ms, max_ms.
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
        feeder = start("feed", topic=topics[0], rate=rate, first=INPUT_PARTITIONS, **shape)
        row = [
            start(
                "process_until_line",
                source=source,
                target=target,
                target_partitions=INPUT_PARTITIONS,
                mode=mode,
                interval_s=interval_ms / 1000,
                name=f"to-{target}",
                # reads the commits of the service before it, and has nothing of its own to wait for
                consumer={"isolation.level": "read_committed", "fetch.wait.max.ms": "100"},
            )
            for source, target in itertools.pairwise(topics)
        ]
        reader = start("read", topic=topics[-1], timeout_s=2 * seconds + 60, **shape)
        for client in (feeder, *row, reader):
            client.answer()
        feeder.go()
        feeder.answer()
        result: dict[str, Any] = reader.answer()
        for service in row:
            service.go()
            service.answer()
        for client in started:
            client.end(patiently=True)
        return result


def main() -> None:
    """Measure both modes, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.services", description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="records a second (1000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="(10)")
    parser.add_argument("--interval-ms", type=int, default=100, help="of the commits (100)")
    parser.add_argument("--services", type=int, default=3, help="in a row (3)")
    options = parser.parse_args()
    print("| services, interval | mode | p50 | p99 | highest |\n|---|---|---|---|---|")
    for mode in MODES:
        found = measure(
            options.services,
            mode,
            interval_ms=options.interval_ms,
            rate=options.rate,
            seconds=options.seconds,
        )
        ages = " | ".join(f"{found[name]:,.0f} ms" for name in ("p50_ms", "p99_ms", "max_ms"))
        print(f"| {options.services}, {options.interval_ms} ms | {mode} | {ages} |", flush=True)


if __name__ == "__main__":
    main()
