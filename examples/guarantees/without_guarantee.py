"""Reads orders and writes invoices as most programs do, without a guarantee.

    fire-and-forget   no answer is awaited     a crash loses what the client still has in memory
    auto-commit       committed by the clock   a crash loses or repeats, depending on the clock

consume_transform_produce.py does the same work with three guarantees. crash_demo.py kills both at
every step and counts the invoices. Without options the script starts its own broker.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Message, Producer
from guarantee_tools import (
    CLIENT,
    TIMEOUT_S,
    Batches,
    Steps,
    an_order,
    broker_at,
    make_topic,
    new_consumer,
    next_offsets,
    orders_in,
    publish,
    read_committed,
    send,
    total_cents,
)

STEPS: dict[str, tuple[str, ...]] = {
    "fire-and-forget": ("half produced", "produced", "committed"),
    "auto-commit": ("received", "half produced", "produced"),
}
ORDERS = 100


def invoices_for(batch: Sequence[Message]) -> list[tuple[bytes, bytes]]:
    """The key and the value of the invoice for each order."""
    orders = [json.loads(message.value() or b"") for message in batch]
    return [
        (
            str(order["order"]).encode(),
            json.dumps({"order": order["order"], "total_cents": total_cents(order)}).encode(),
        )
        for order in orders
    ]


class Worker:
    """A consumer and a producer."""

    def __init__(self, options: argparse.Namespace, servers: str) -> None:
        self.options = options
        self.steps = Steps(one_by_one=options.step_by_step)
        settings: dict[str, Any] = {"bootstrap.servers": servers, "linger.ms": 2, **CLIENT}
        if options.way == "fire-and-forget":
            # as many records as possible go out together, and none is waited for
            settings |= {"acks": 0, "linger.ms": 30_000}
        self.producer = Producer(settings)
        self.consumer = new_consumer(
            servers,
            options.group,
            "worker-1",
            **{
                "enable.auto.commit": options.way == "auto-commit",
                "auto.commit.interval.ms": options.auto_commit_interval_ms,
            },
        )

    def run(self) -> int:
        """Work until all orders are done. Gives: how many there were."""
        process = {"fire-and-forget": self.fire_and_forget, "auto-commit": self.auto_commit}
        batches = Batches(self.consumer, self.options.batch_size)
        count = 0
        self.consumer.subscribe([self.options.input])
        try:
            while (batch := batches.next()) is not None:
                process[self.options.way](batch)
                count += len(batch)
            self.producer.flush(TIMEOUT_S)
        finally:
            self.consumer.close()
        return count

    def fire_and_forget(self, batch: Sequence[Message]) -> None:
        """Hand the invoices to the client, and commit without waiting for the broker. The client
        has them in memory until it sends them, and does not learn whether they arrived.
        """
        invoices = invoices_for(batch)
        half = len(invoices) // 2
        for step, part in (("half produced", invoices[:half]), ("produced", invoices[half:])):
            for key, value in part:
                self.producer.produce(self.options.output, value, key)
            self.steps.reach(step)
        self.consumer.commit(offsets=next_offsets(batch), asynchronous=False)
        self.steps.reach("committed")

    def auto_commit(self, batch: Sequence[Message]) -> None:
        """Let the client commit. It commits at intervals what the application has received, whether
        that is done or not.
        """
        if self.options.slow:
            self.wait_for_the_commit(batch)
        self.steps.reach("received")
        invoices = invoices_for(batch)
        half = len(invoices) // 2
        send(self.producer, self.options.output, invoices[:half])
        self.steps.reach("half produced")
        send(self.producer, self.options.output, invoices[half:])
        self.steps.reach("produced")

    def wait_for_the_commit(self, batch: Sequence[Message]) -> None:
        """Wait until the client has committed the batch by itself, as it does during slow work."""
        ends = {(each.topic, each.partition): each.offset for each in next_offsets(batch)}
        deadline = time.monotonic() + TIMEOUT_S
        while any(
            each.offset < ends[each.topic, each.partition]
            for each in self.consumer.committed(next_offsets(batch), TIMEOUT_S)
        ):
            if time.monotonic() > deadline:
                raise TimeoutError("the client has not committed what it gave out")
            time.sleep(0.01)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one worker. Gives: the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--way", choices=STEPS, default="fire-and-forget")
    parser.add_argument(
        "--bootstrap-servers", help="host:port; without it a broker is started for the run"
    )
    parser.add_argument("--input", default="orders", help="topic that is read (orders)")
    parser.add_argument("--output", default="invoices", help="topic that is written (invoices)")
    parser.add_argument("--group", default="invoicing", help="consumer group (invoicing)")
    parser.add_argument(
        "--auto-commit-interval-ms", type=int, default=100, help="auto-commit: how often (100)"
    )
    parser.add_argument(
        "--slow", action="store_true", help="auto-commit: work for longer than the interval"
    )
    parser.add_argument("--batch-size", type=int, default=20, help="orders in one batch (20)")
    parser.add_argument("--step-by-step", action="store_true", help="wait for a line at each step")
    options = parser.parse_args(arguments)
    with broker_at(options.bootstrap_servers) as servers:
        make_topic(servers, options.input)
        make_topic(servers, options.output)
        if not options.bootstrap_servers:
            publish(servers, options.input, map(an_order, range(ORDERS)))
        print(f"{options.way}: {Worker(options, servers).run()} orders done")
        if not options.bootstrap_servers:
            found = orders_in(read_committed(servers, options.output))
            print(f"{options.output} has {found.total()} invoices of {len(found)} orders")
    return 0


if __name__ == "__main__":
    sys.exit(main())
