"""Reads orders and writes invoices, with one of three guarantees. They differ in when offsets are
committed.

    at-most-once    commit, then work          a crash in between loses the batch
    at-least-once   work, then commit          a crash in between repeats the batch
    exactly-once    both in one transaction    a crash undoes both

The first two are written by hand. For the third, barnabas.exactly_once does the work.

Without options the script starts its own broker; with --bootstrap-servers it uses yours.
crash_demo.py kills this script at every step and counts the invoices.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from guarantee_tools import (
    CLIENT,
    FENCED,
    Batches,
    Steps,
    an_order,
    broker_at,
    is_replaced,
    make_topic,
    new_consumer,
    next_offsets,
    orders_in,
    publish,
    read_committed,
    send,
    total_cents,
)

from barnabas.exactly_once import Commit, FencedError, Hooks, Out, Pipeline, Record, Step

STEPS = {
    "at-most-once": ("committed", "half produced", "produced"),
    "at-least-once": ("half produced", "produced", "committed"),
    "exactly-once": ("half produced", "produced", "offsets sent", "committed"),
}
NO_LONGER_OURS = (
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
)


def invoice_of(value: bytes | None) -> tuple[bytes, bytes]:
    """The key and the value of the invoice for an order."""
    order = json.loads(value or b"")
    invoice = {"order": order["order"], "total_cents": total_cents(order)}
    return str(order["order"]).encode(), json.dumps(invoice).encode()


# --- exactly once


def exactly_once(servers: str, options: argparse.Namespace, hooks: Hooks) -> Pipeline:
    """Invoices and offsets are one transaction: both become visible, or neither."""
    pipeline = Pipeline(
        servers,
        options.group,
        reads=options.input,
        instance=None if options.dynamic else options.member,
        commit=Commit(seconds=2, records=options.batch_size),
        # If a worker is lost, its open transaction blocks the readers of its output for up to this
        # time.
        transaction_timeout_s=15,
        client=CLIENT,
        consumer={
            "session.timeout.ms": options.session_timeout_ms,
            "max.poll.interval.ms": options.max_poll_interval_ms,
        },
        hooks=hooks,
    )

    @pipeline.each
    def invoice(record: Record, out: Out) -> None:
        key, value = invoice_of(record.value)
        out.send(options.output, value, key=key)

    return pipeline


class SteppedHooks(Hooks):
    """Counts, and reports the steps at which crash_demo.py kills the worker."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._steps = Steps(one_by_one=options.step_by_step)
        self._half = max(1, options.batch_size // 2)
        self._written = 0
        self.count = self.aborted = 0

    def on_step(self, step: Step) -> None:
        if step is Step.AFTER_PRODUCE:
            self._written += 1
            if self._written == self._half:
                self._steps.reach("half produced")
        elif step is Step.BEFORE_OFFSETS:
            if self._written < self._half:
                self._steps.reach("half produced")
            self._written = 0
            self._steps.reach("produced")
        elif step is Step.AFTER_OFFSETS:
            self._steps.reach("offsets sent")
        elif step is Step.AFTER_COMMIT:
            self._steps.reach("committed")

    def on_commit(self, records: int, outputs: int, seconds: float) -> None:
        self.count += records

    def on_abort(self, kind: str, reason: str) -> None:
        self.aborted += 1
        self._written = 0


# --- the weaker guarantees, by hand


class Worker:
    """A consumer and a producer, with at-most-once or at-least-once."""

    def __init__(self, options: argparse.Namespace, servers: str) -> None:
        self.options = options
        self.steps = Steps(one_by_one=options.step_by_step)
        self.count = self.aborted = 0
        self.producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 2, "enable.idempotence": True, **CLIENT}
        )
        self.consumer: Consumer = new_consumer(
            servers,
            options.group,
            None if options.dynamic else options.member,
            **{
                "session.timeout.ms": options.session_timeout_ms,
                "max.poll.interval.ms": options.max_poll_interval_ms,
            },
        )
        self.batches = Batches(self.consumer, options.batch_size, forever=options.forever)

    def run(self) -> None:
        """Work until all orders are done.

        Raises: KafkaException. If another worker has taken this worker's place, `is_replaced`
                returns True for the exception.
        """
        process = {"at-most-once": self.at_most_once, "at-least-once": self.at_least_once}
        self.consumer.subscribe([self.options.input])
        try:
            while (batch := self.batches.next()) is not None:
                process[self.options.guarantee](batch)
        finally:
            self.consumer.close()

    def at_most_once(self, batch: Sequence[Message]) -> None:
        """Commit the offsets before the work. These orders are then never read again, even after a
        crash.
        """
        if not self.commit(batch):
            return
        self.steps.reach("committed")
        self.produce(batch)
        self.count += len(batch)

    def at_least_once(self, batch: Sequence[Message]) -> None:
        """Produce first, and wait until the broker has acknowledged each invoice. A committed
        offset therefore means that the invoices are stored.
        """
        self.produce(batch)
        if not self.commit(batch):
            return
        self.steps.reach("committed")
        self.count += len(batch)

    def commit(self, batch: Sequence[Message]) -> bool:
        """Commit the offsets.

        Gives:  False if the group has assigned the partitions to another member since. That member
                then reads the batch again.
        """
        try:
            self.consumer.commit(offsets=next_offsets(batch), asynchronous=False)
        except KafkaException as failure:
            if failure.args[0].code() not in NO_LONGER_OURS:
                raise
            return False
        return True

    def produce(self, batch: Sequence[Message]) -> None:
        """Produce in two halves, so that a crash can leave half a batch."""
        invoices = [invoice_of(message.value()) for message in batch]
        half = len(invoices) // 2
        send(self.producer, self.options.output, invoices[:half])
        self.steps.reach("half produced")
        send(self.producer, self.options.output, invoices[half:])
        self.steps.reach("produced")


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--guarantee", choices=STEPS, default="exactly-once")
    parser.add_argument(
        "--bootstrap-servers", help="host:port; without it a broker is started for the run"
    )
    parser.add_argument("--input", default="orders", help="topic that is read (orders)")
    parser.add_argument("--output", default="invoices", help="topic that is written (invoices)")
    parser.add_argument(
        "--orders",
        type=int,
        help="publish so many orders first (100 with a broker of its own, else 0)",
    )
    parser.add_argument("--group", default="invoicing", help="consumer group (invoicing)")
    parser.add_argument(
        "--member",
        default="worker-1",
        help="this worker's name, the same after a restart (worker-1)",
    )
    parser.add_argument(
        "--dynamic", action="store_true", help="be a dynamic member of the group, not a static one"
    )
    parser.add_argument(
        "--session-timeout-ms",
        type=int,
        default=10_000,
        help="when a silent worker is thought dead (10000)",
    )
    parser.add_argument(
        "--max-poll-interval-ms",
        type=int,
        default=300_000,
        help="how long one batch may take (300000)",
    )
    parser.add_argument("--batch-size", type=int, default=20, help="orders in one batch (20)")
    parser.add_argument("--forever", action="store_true", help="go on at the end of the input")
    parser.add_argument(
        "--step-by-step", action="store_true", help="wait for a line on stdin at every step"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one worker. Gives: the exit code."""
    options = options_of(arguments)
    with broker_at(options.bootstrap_servers) as servers:
        make_topic(servers, options.input)
        make_topic(servers, options.output)
        orders = (
            options.orders
            if options.orders is not None
            else 0
            if options.bootstrap_servers
            else 100
        )
        publish(servers, options.input, map(an_order, range(orders)))
        worker: Worker | SteppedHooks
        try:
            if options.guarantee == "exactly-once":
                worker = SteppedHooks(options)
                pipeline = exactly_once(servers, options, worker)
                pipeline.run(until_end=not options.forever)
            else:
                worker = Worker(options, servers)
                worker.run()
        except FencedError as failure:
            print(
                f"another process has taken the place of {options.member}, so this one ends "
                f"({failure})",
                file=sys.stderr,
            )
            return FENCED
        except KafkaException as failure:
            if is_replaced(failure, options.member):
                return FENCED
            raise
        print(
            f"{options.guarantee}: {worker.count} orders done, {worker.aborted} transactions "
            "aborted and done again"
        )
        if not options.bootstrap_servers:
            found = orders_in(read_committed(servers, options.output))
            print(
                f"{options.output} has {found.total()} invoices of {len(found)} orders; {orders} "
                "orders were published"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
