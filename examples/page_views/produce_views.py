"""Sends page views, as JSON keyed by user: a user views a page of a category for some time.

Events are nearly in the order of their times. With --out-of-order, some events are late, by at most
the given number of seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from view_topics import CLIENT, INPUT, TIMEOUT_S, make_topic

CATEGORIES = ("news", "sports", "weather", "recipes")
Event = dict[str, Any]


def an_event(
    time_s: float,
    category: str = "news",
    *,
    user: str = "ada",
    page: str | None = None,
    dwell_ms: int = 4000,
) -> Event:
    """One page view."""
    return {
        "user": user,
        "page": page or f"/{category}/1",
        "category": category,
        "time_ms": round(time_s * 1000),
        "dwell_ms": dwell_ms,
    }


def random_events(
    count: int, *, seed: int, start_s: float, per_second: float = 10.0, out_of_order_s: float = 0.0
) -> Iterator[Event]:
    """Return page views of a few users. The same seed gives the same views.

    One view in ten is shorter than a second. If late events are allowed, one in five is late.
    """
    draw = random.Random(seed)
    for number in range(count):
        late_s = draw.uniform(0, out_of_order_s) if draw.random() < 0.2 else 0.0
        category = draw.choice(CATEGORIES)
        yield an_event(
            max(0.0, start_s + number / per_second - late_s),
            category,
            user=f"user-{draw.randrange(20)}",
            page=f"/{category}/{draw.randrange(50)}",
            dwell_ms=draw.randrange(50, 1000)
            if draw.random() < 0.1
            else draw.randrange(1000, 120_000),
        )


def send(servers: str, topic: str, events: Iterable[Event]) -> int:
    """Send the events in their order, each once.

    Gives:  the number of events.
    Raises: KafkaException with the error of the first delivery that failed.
    """
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    # An idempotent producer's retries neither repeat events nor change their order.
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 50, **CLIENT}
    )
    count = 0
    for event in events:
        producer.produce(
            topic,
            json.dumps(event),
            event["user"],
            timestamp=event["time_ms"],
            on_delivery=on_delivery,
        )
        producer.poll(0)
        count += 1
    if producer.flush(TIMEOUT_S):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "events were not delivered in time"))
    if failures:
        raise KafkaException(failures[0])
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    """Send random page views. Gives: the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--bootstrap-servers", default="127.0.0.1:9092", help="the broker (127.0.0.1:9092)"
    )
    parser.add_argument(
        "--topic",
        default=INPUT,
        help=f"where to ({INPUT}); made with --partitions if it is not there",
    )
    parser.add_argument("--partitions", type=int, default=3, help="of a topic that is made (3)")
    parser.add_argument("--count", type=int, default=1000, help="how many events (1000)")
    parser.add_argument(
        "--per-second",
        type=float,
        default=10.0,
        help="how many of them in a second of event time (10)",
    )
    parser.add_argument(
        "--out-of-order",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how late an event may be (0)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="the same seed, the same users, pages and delays (1)"
    )
    given = parser.parse_args(arguments)
    make_topic(given.bootstrap_servers, given.topic, partitions=given.partitions)
    start_s = float(int(time.time()))
    events = random_events(
        given.count,
        seed=given.seed,
        start_s=start_s,
        per_second=given.per_second,
        out_of_order_s=given.out_of_order,
    )
    print(f"{send(given.bootstrap_servers, given.topic, events)} events sent to {given.topic}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
