"""Reads orders and writes invoices, with one of three guarantees. They differ in when offsets are
committed.

    at-most-once    commit, then work          a crash in between loses the batch
    at-least-once   work, then commit          a crash in between repeats the batch
    exactly-once    both in one transaction    a crash undoes both

Without options the script starts its own broker; with --bootstrap-servers it uses yours.
crash_demo.py kills this script at every step and counts the invoices.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from guarantee_tools import (
    CLIENT,
    FENCED,
    TIMEOUT_S,
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
    rewind,
    send,
    total_cents,
)

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


def invoices_for(batch: Sequence[Message]) -> list[tuple[bytes, bytes]]:
    """Transform a batch: make one invoice for each order."""
    orders = [json.loads(message.value() or b"") for message in batch]
    return [
        (
            str(order["order"]).encode(),
            json.dumps({"order": order["order"], "total_cents": total_cents(order)}).encode(),
        )
        for order in orders
    ]


class Worker:
    """A consumer and a producer that work with one of the guarantees."""

    def __init__(self, options: argparse.Namespace, servers: str) -> None:
        self.options = options
        self.steps = Steps(one_by_one=options.step_by_step)
        self.count = 0
        self.aborted = 0
        settings = {
            "bootstrap.servers": servers,
            "linger.ms": 2,
            "enable.idempotence": True,
            **CLIENT,
        }
        if options.guarantee == "exactly-once":
            settings["transactional.id"] = (
                f"{options.group}-{options.transactional_id or options.member}"
            )
            # If a worker is lost, its open transaction blocks the readers of its output for up to
            # this time.
            settings["transaction.timeout.ms"] = 15_000
        self.producer = Producer(settings)
        if options.guarantee == "exactly-once":
            # This call must precede the first read. It fences the worker's predecessor and aborts
            # the predecessor's open transaction, so that the offsets read next are final.
            self.producer.init_transactions(TIMEOUT_S)
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
        process = {
            "at-most-once": self.at_most_once,
            "at-least-once": self.at_least_once,
            "exactly-once": self.exactly_once,
        }
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

    def exactly_once(self, batch: Sequence[Message]) -> None:
        """Write invoices and offsets in one transaction: both become visible, or neither."""
        # This is read together with the batch, not later, since the metadata contains the
        # generation of the group in which the batch was assigned to this worker. If the group has
        # since rebalanced without this worker, the broker refuses the offsets, and with them the
        # transaction (KIP-447).
        membership = self.consumer.consumer_group_metadata()
        try:
            self.producer.begin_transaction()
            self.produce(batch)
            until_decided(
                lambda: self.producer.send_offsets_to_transaction(
                    next_offsets(batch), membership, TIMEOUT_S
                )
            )
            self.steps.reach("offsets sent")
            until_decided(lambda: self.producer.commit_transaction(TIMEOUT_S))
        except KafkaException as failure:
            if failure.args[0].fatal():
                raise
            until_decided(lambda: self.producer.abort_transaction(TIMEOUT_S))
            rewind(self.consumer, self.batches)
            self.aborted += 1
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
        invoices = invoices_for(batch)
        half = len(invoices) // 2
        send(self.producer, self.options.output, invoices[:half])
        self.steps.reach("half produced")
        send(self.producer, self.options.output, invoices[half:])
        self.steps.reach("produced")


def until_decided(call: Callable[[], None], attempts: int = 5) -> None:
    """Repeat a call about a transaction as long as the client says that its error is retriable.

    Such an error may mean that a response was lost, so that the outcome is unknown.
    """
    for attempt in range(1, attempts + 1):
        try:
            return call()
        except KafkaException as failure:
            if not failure.args[0].retriable() or attempt == attempts:
                raise


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
    parser.add_argument("--transactional-id", help="ends the transactional id (the member's name)")
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
        worker = Worker(options, servers)
        try:
            worker.run()
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
