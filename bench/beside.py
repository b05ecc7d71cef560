"""The same work on any broker: `python -m bench beside HOST:PORT [--pid PID]`.

The rows run on a Barnabas that this command starts and on the other broker, such as an Apache
Kafka, in turns. Of the broker's own process the CPU (user + system seconds) is measured, of its
children too; without --pid only wall time is known of the other broker. The first round is called
cold: a JVM still interprets most of its code. The later rounds are called warm, and the median of
each figure is given. Start the other broker just before, if the cold round is to say something.

Both brokers have topics of their own with new names, which are deleted at the end.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import sysconfig
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from barnabas import LocalBroker
from bench.common import TICKS, rss_mb

ROUNDS = 3
PATIENCE_S = 120
QUIET = {"log_level": 0}
PARTITIONS = 4


class Target(NamedTuple):
    """A broker. pid: its process, None if it is not known."""

    name: str
    address: str
    pid: int | None


class Spent(NamedTuple):
    """The CPU of the broker, None if its process is not known, and the wall time, in seconds."""

    cpu_s: float | None
    wall_s: float


def cpu_seconds(pid: int) -> float:
    """The CPU seconds of a process and its children so far: a start script may be the parent."""
    total, left = 0, [pid]
    while left:
        process = left.pop()
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
            for children in Path(f"/proc/{process}/task").glob("*/children"):
                left += [int(child) for child in children.read_text().split()]
        except OSError:
            if process == pid:
                raise
    return total / TICKS


def _new_topic(target: Target, partitions: int) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"beside-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": target.address, **QUIET})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while name not in admin.list_topics(timeout=PATIENCE_S).topics:
        assert time.monotonic() < deadline, f"{target.name} does not have the topic {name}"
        time.sleep(0.1)
    return name


def _delete(target: Target, names: list[str]) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": target.address, **QUIET})
    for deletion in admin.delete_topics(names).values():
        deletion.result(PATIENCE_S)


def produce(address: str, topic: str, count: int, size: int, batch: int, **more: Any) -> None:
    """Produce records of one size to the first four partitions, idempotent."""
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": address,
        "linger.ms": 5,
        "batch.size": batch,
        "enable.idempotence": True,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 500_000,
        **QUIET,
        **more,
    }
    producer = Producer(settings)
    failed: list[Any] = []

    def note(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    value = b"x" * size
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=note)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1024 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0, "some records were not sent in time"
    assert not failed, failed[0]


def consume(address: str, topic: str, count: int) -> None:
    """Read the records of four partitions from the beginning."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": 50_000_000,
            "max.partition.fetch.bytes": 1_000_000,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    left, deadline = count, time.monotonic() + PATIENCE_S
    while left > 0:
        assert time.monotonic() < deadline, f"{left} records were not received in time"
        left -= len(consumer.consume(10_000, timeout=1))
    consumer.close()


def transactions(address: str, topic: str, producers: int, each: int, partitions: int) -> None:
    """Run transactions of producers at the same time, with one record in each partition."""
    from confluent_kafka import Producer

    errors: list[BaseException] = []

    def work(number: int) -> None:
        name = f"{topic}-{uuid.uuid4().hex[:6]}-{number}"
        settings = {"bootstrap.servers": address, "transactional.id": name, "linger.ms": 0, **QUIET}
        try:
            producer = Producer(settings)
            producer.init_transactions(PATIENCE_S)
            for _ in range(each):
                producer.begin_transaction()
                for index in range(partitions):
                    producer.produce(topic, b"x" * 100, partition=index)
                producer.commit_transaction(PATIENCE_S)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Work(NamedTuple):
    """A row. each: the number of pieces whose share is shown in ms; 0 for the whole, in seconds."""

    name: str
    each: int
    run: Callable[[str, str, str], None]  # the address, a topic for new records, one with a million


def rows(scale: float) -> list[Work]:
    """The work, in the order in which it is done."""

    def of(count: int) -> int:
        return max(10, int(count * scale))

    def single(address: str, topic: str, _: str) -> None:
        produce(address, topic, of(10_000), 100, 1_000_000, **ONE_BY_ONE)

    def transaction(producers: int, each: int, partitions: int) -> Work:
        return Work(
            f"transaction, {producers} producer(s) x {partitions} partition(s)",
            producers * each,
            lambda address, topic, _: transactions(address, topic, producers, each, partitions),
        )

    return [
        Work(
            f"produce {of(400_000):,} x 1 KB",
            0,
            lambda address, topic, _: produce(address, topic, of(400_000), 1000, 1_000_000),
        ),
        Work(
            f"produce {of(1_000_000):,} x 100 B",
            0,
            lambda address, topic, _: produce(address, topic, of(1_000_000), 100, 200_000),
        ),
        Work(
            "the same, lz4",
            0,
            lambda address, topic, _: produce(
                address, topic, of(1_000_000), 100, 200_000, **{"compression.type": "lz4"}
            ),
        ),
        Work(
            f"consume {of(1_000_000):,} x 100 B",
            0,
            lambda address, _, full: consume(address, full, of(1_000_000)),
        ),
        Work(f"{of(10_000):,} requests of one record", 0, single),
        transaction(1, of(300), 1),
        transaction(1, of(300), 10),
        transaction(8, of(150), 1),
    ]


ONE_BY_ONE = {"linger.ms": 0, "batch.num.messages": 1}


def _measured(work: Work, target: Target, topic: str, full: str) -> Spent:
    before = None if target.pid is None else cpu_seconds(target.pid)
    start = time.perf_counter()
    work.run(target.address, topic, full)
    wall_s = time.perf_counter() - start
    if before is None or target.pid is None:
        return Spent(None, wall_s)
    return Spent(cpu_seconds(target.pid) - before, wall_s)


def _text(work: Work, spent: list[Spent]) -> str:
    """The medians of some rounds, for a cell of the table."""
    per, unit = (1000 / work.each, "ms") if work.each else (1, "s")
    wall = statistics.median(one.wall_s for one in spent) * per
    cpu_s = [one.cpu_s for one in spent if one.cpu_s is not None]
    cpu = f"{statistics.median(cpu_s) * per:.2f}" if cpu_s else "?"
    return f"{cpu} {unit}, wall {wall:.2f}"


def _ratio(ours: list[Spent], others: list[Spent]) -> str:
    """How many times the CPU of the other broker is of ours."""
    other = [one.cpu_s for one in others if one.cpu_s is not None]
    own = [one.cpu_s for one in ours if one.cpu_s is not None]
    if not other or not statistics.median(own):
        return "?"
    return f"{statistics.median(other) / statistics.median(own):.1f} x"


def interpreter() -> str:
    """The Python that runs the broker, and whether it was built with optimisations: without them
    (as pyenv builds it by default) it takes half as much CPU again. The packages of Debian and
    Ubuntu have them, but their configuration does not name them.
    """
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    if "--enable-optimizations" in arguments:
        built = "built with --enable-optimizations"
    elif sys.base_prefix == "/usr":
        built = "from the system's packages"
    else:
        built = "built without --enable-optimizations"
    return f"{platform.python_implementation()} {platform.python_version()}, {built}"


def compare(other: Target, rounds: int, scale: float) -> None:
    """Run all rows on both brokers in turns, and print the table."""
    works = rows(scale)
    print(f"{os.cpu_count()} CPUs, {platform.machine()}; {interpreter()}", flush=True)
    with LocalBroker(in_memory=False) as broker:
        targets = (Target("Barnabas", broker.bootstrap_servers, broker.pid), other)
        topics = {
            target.name: (_new_topic(target, 10), _new_topic(target, PARTITIONS))
            for target in targets
        }
        spent: dict[tuple[str, str], list[Spent]] = {}
        try:
            for number in range(rounds + 1):
                for work in works:
                    for target in targets:
                        topic, full = topics[target.name]
                        if number == 0 and work.name.startswith("consume"):
                            count = max(10, int(1_000_000 * scale))
                            produce(target.address, full, count, 100, 200_000)
                        figure = _measured(work, target, topic, full)
                        spent.setdefault((work.name, target.name), []).append(figure)
                print(f"… round {number} of {rounds}", flush=True)
            memory = [
                "?" if target.pid is None else f"{rss_mb(target.pid):.0f} MB" for target in targets
            ]
        finally:
            for target in targets:
                _delete(target, list(topics[target.name]))
    ours, theirs = targets
    print(f"| broker's CPU | {ours.name}, cold | warm | {theirs.name}, cold | warm | cold | warm |")
    print("|---|---|---|---|---|---|---|")
    for work in works:
        mine, other_ones = spent[work.name, ours.name], spent[work.name, theirs.name]
        cells = (
            _text(work, mine[:1]),
            _text(work, mine[1:]),
            _text(work, other_ones[:1]),
            _text(work, other_ones[1:]),
            _ratio(mine[:1], other_ones[:1]),
            _ratio(mine[1:], other_ones[1:]),
        )
        print("| " + " | ".join((work.name, *cells)) + " |")
    print(f"| memory after it | | {memory[0]} | | {memory[1]} | | |")


def main(arguments: list[str]) -> None:
    """Take the arguments after `beside`."""
    parser = argparse.ArgumentParser(
        prog="python -m bench beside",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("address", metavar="HOST:PORT", help="the other broker")
    parser.add_argument("--pid", type=int, help="its process, for its CPU and memory")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="warm rounds (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the work")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    if options.pid is not None and not Path(f"/proc/{options.pid}").exists():
        parser.error(f"--pid {options.pid}: there is no such process on this machine")
    compare(Target(options.address, options.address, options.pid), options.rounds, options.scale)
