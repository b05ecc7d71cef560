"""Files into a topic and out of it, each line once, through kills at every step.

    send       sends the lines of a file to a topic. If it is killed half-way and started again, it
               sends the file from its beginning:
        --way plain          the lines of the first half are there twice
        --way transaction    the file and a note of its name are one transaction: the half that was
                             sent is aborted, and a file that is noted is not sent again
    total      adds up the orders of a topic into a file, total.json
        --way apart          replaces the file, then commits the offsets of its group
        --way together       writes totals and offsets into a new file, which replaces the old one
                             in one step (rename); a restart continues at the offsets in the file

Without options the script starts its own broker, sends a file, and adds it up.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Message, Producer, TopicPartition
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
    read_committed,
    send,
    total_cents,
)

SENDING = ("half sent", "sent")
TOTALLING = ("half written", "written", "replaced")
PARTITIONS = 3


# --- a file into a topic


def send_file(servers: str, path: Path, topic: str, way: str, steps: Steps) -> bool:
    """Send each line of a file as a record. Gives: whether the file was sent by this call."""
    notes = f"{topic}-files"
    records = [
        (str(json.loads(line)["order"]).encode(), line) for line in path.read_bytes().splitlines()
    ]
    settings: dict[str, Any] = {"enable.idempotence": True}
    if way == "transaction":
        # The file's name is the transactional id: a process that sends the same file is fenced.
        settings = {"transactional.id": f"file-{path.name}"}
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 2, **CLIENT, **settings})
    if way == "transaction":
        # aborts what a predecessor left open, so that what is read next is final
        producer.init_transactions(TIMEOUT_S)
        if path.name.encode() in read_committed(servers, notes):
            return False
        producer.begin_transaction()
        send(producer, notes, [(b"", path.name.encode())])
    half = len(records) // 2
    send(producer, topic, records[:half])
    steps.reach("half sent")
    send(producer, topic, records[half:])
    steps.reach("sent")
    if way == "transaction":
        producer.commit_transaction(TIMEOUT_S)
    return True


# --- a topic into a file


class Totals:
    """The total of all orders, and where the next order is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        stored = json.loads(path.read_bytes()) if path.exists() else {}
        self.orders: int = stored.get("orders", 0)
        self.cents: int = stored.get("cents", 0)
        self.offsets: dict[str, int] = stored.get("offsets", {})

    def add(self, batch: Sequence[Message]) -> None:
        """Add the orders of a batch."""
        for message in batch:
            self.orders += 1
            self.cents += total_cents(json.loads(message.value() or b""))
        for each in next_offsets(batch):
            self.offsets[str(each.partition)] = each.offset

    def write(self, steps: Steps) -> None:
        """Write a file beside the old one, then replace that in one step.

        The new file is on the disk before it gets the name, and its name before this returns: a
        kill or a power loss leaves the old content or the new one.
        """
        text = json.dumps(vars(self) | {"path": self.path.name})
        beside = self.path.with_suffix(".new")
        with beside.open("w") as file:
            file.write(text[: len(text) // 2])
            steps.reach("half written")
            file.write(text[len(text) // 2 :])
            file.flush()
            os.fsync(file.fileno())
        steps.reach("written")
        beside.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        steps.reach("replaced")


def total(
    servers: str, topic: str, group: str, path: Path, way: str, batch_size: int, steps: Steps
) -> Totals:
    """Add up all committed orders of a topic into a file. Gives: the totals."""
    totals = Totals(path)
    consumer = new_consumer(servers, group)
    try:
        places = [
            TopicPartition(topic, partition, totals.offsets.get(str(partition), OFFSET_BEGINNING))
            for partition in range(PARTITIONS)
        ]
        if way == "apart":
            places = [
                TopicPartition(topic, each.partition, max(each.offset, 0))
                for each in consumer.committed(places, TIMEOUT_S)
            ]
        consumer.assign(places)
        batches = Batches(consumer, batch_size)
        while (batch := batches.next()) is not None:
            totals.add(batch)
            totals.write(steps)
            if way == "apart":
                consumer.commit(offsets=next_offsets(batch), asynchronous=False)
    finally:
        consumer.close()
    return totals


# --- the command


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", nargs="?", choices=["send", "total", "both"], default="both")
    parser.add_argument("--bootstrap-servers", help="host:port; without it a broker is started")
    parser.add_argument("--topic", default="orders-of-files", help="(orders-of-files)")
    parser.add_argument(
        "--group", default="totals", help="group whose offsets are committed apart (totals)"
    )
    parser.add_argument("--file", type=Path, help="file with an order in each line")
    parser.add_argument("--total", type=Path, help="file of the totals")
    parser.add_argument("--way", choices=["plain", "transaction", "apart", "together"])
    parser.add_argument("--batch-size", type=int, default=20, help="orders in one batch (20)")
    parser.add_argument("--step-by-step", action="store_true", help="wait for a line at each step")
    return parser.parse_args(arguments)


def write_orders(path: Path, orders: int) -> None:
    """Write a file with an order in each line."""
    path.write_bytes(b"".join(an_order(number)[1] + b"\n" for number in range(orders)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb, or both. Gives: the exit code."""
    options = options_of(arguments)
    steps = Steps(one_by_one=options.step_by_step)
    with broker_at(options.bootstrap_servers) as servers, tempfile.TemporaryDirectory() as folder:
        path, goal = options.file, options.total or Path(folder, "total.json")
        if path is None:
            path = Path(folder, "orders.jsonl")
            write_orders(path, 100)
        make_topic(servers, options.topic, PARTITIONS)
        make_topic(servers, f"{options.topic}-files", 1)
        if options.verb != "total":
            way = options.way if options.verb == "send" and options.way else "transaction"
            was_sent = send_file(servers, path, options.topic, way, steps)
            print(f"{path.name}: {'sent' if was_sent else 'was sent before'}")
        if options.verb != "send":
            way = options.way if options.verb == "total" and options.way else "together"
            totals = total(
                servers, options.topic, options.group, goal, way, options.batch_size, steps
            )
            print(f"{totals.orders} orders of {totals.cents} cents")
    return 0


if __name__ == "__main__":
    sys.exit(main())
