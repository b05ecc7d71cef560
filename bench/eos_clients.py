"""The client processes of bench/eos.py: a feeder, a process that reads and writes, and a reader.

`python -m bench.eos_clients ROLE JSON`: the JSON object has the role's arguments. Each client
prints `ready` when it has its partitions and has done its work once (so that no cold start is
measured). Then it waits for a line on standard input before it continues, and prints one JSON
object at its end.

A record is 100 bytes. The first 8 bytes are its creation time in nanoseconds, by a clock that all
processes of the machine share, or 0 if the record is not to be measured. The rest are letters. The
process copies the first 8 bytes, so that the last reader can compute the age of a record. A record
that a suppression has made (bench/services.py) has the number of the records that it stands for in
the next 8 bytes.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.common import cpu_seconds, end_with_parent

RECORD_BYTES = 100
CREATED = struct.Struct(">q")
CREATED_AND_COUNT = struct.Struct(">qq")
PAYLOAD = b"abcdefghij" * (RECORD_BYTES // 10)
# The maximum number of records in one read. They take about 4 ms of work, which is short enough for
# an interval of 10 ms.
BATCH = 500
FEED_TICK_S = 0.002


def record_created_at(nanoseconds: int) -> bytes:
    """A record of RECORD_BYTES with this creation time."""
    return CREATED.pack(nanoseconds) + PAYLOAD[CREATED.size :]


def transformed(value: bytes) -> bytes:
    """The output record for an input record, with the same creation time and other letters."""
    return value[: CREATED.size] + value[CREATED.size :].upper()


def say(what: Any) -> None:
    """Print one line for the parent process."""
    print(what if isinstance(what, str) else json.dumps(what), flush=True)


def wait_for_go() -> None:
    """Wait for a line from the parent process; exit if the parent ends."""
    if not sys.stdin.readline():
        raise SystemExit(1)


def percentile(ordered: list[float], part: float) -> float:
    """The smallest value that is at or above the fraction `part` of all values (nearest rank).
    `ordered` is sorted and not empty.
    """
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def produce(
    producer: Any, topic: str, value: bytes, partition: int, key: bytes | None = None
) -> None:
    """Put a record into the client's queue. If the queue is full, wait for space."""
    while True:
        try:
            producer.produce(topic, value, key, partition)
            return
        except BufferError:
            producer.poll(0.01)


# --- the feeder ---------------------------------------------------------------------------------


def key_of(number: int, keys: int) -> bytes | None:
    """The key of a record, one of so many; None for 0 keys. If the number of keys is a multiple of
    that of the partitions, records with one key are in one partition.
    """
    return b"%d" % (number % keys) if keys else None


def fill(servers: str, topic: str, partitions: int, count: int, keys: int = 0) -> None:
    """Write `count` records as fast as possible, evenly over the partitions."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 50, "batch.num.messages": 10_000}
    )
    value = record_created_at(time.monotonic_ns())
    for number in range(count):
        produce(producer, topic, value, number % partitions, key_of(number, keys))
    assert producer.flush(60) == 0, "not all of the input was written"


def feed(
    servers: str,
    topic: str,
    partitions: int,
    rate: int,
    count: int,
    first: int,
    keys: int = 0,
    last: int = 0,
) -> None:
    """Write `first` records that are not measured, and wait for a line. Then write `count` records
    at a steady rate, and `last` ones that are not measured.
    """
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
    for number in range(first):
        produce(producer, topic, record_created_at(0), number % partitions, key_of(number, keys))
    assert producer.flush(30) == 0, "the first records were not written"
    say("ready")
    wait_for_go()
    began = time.monotonic()
    done = 0
    while done < count + last:
        due = min(count + last, int((time.monotonic() - began) * rate))
        for number in range(done, due):
            created = time.monotonic_ns() if number < count else 0
            produce(
                producer,
                topic,
                record_created_at(created),
                number % partitions,
                key_of(number, keys),
            )
        done = max(done, due)
        producer.poll(0)
        time.sleep(FEED_TICK_S)
    assert producer.flush(30) == 0, "not all of the input was written"
    say({"count": count + last, "seconds": time.monotonic() - began})


# --- the process --------------------------------------------------------------------------------


class AtLeastOnce:
    """Commits the input offsets after the output is written."""

    def __init__(self, servers: str, name: str, consumer: Any) -> None:
        from confluent_kafka import Producer

        self._consumer = consumer
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "on_delivery": _must_arrive,
                "delivery.report.only.error": True,
            }
        )
        self.parts_s: dict[str, list[float]] = {"flush": [], "offsets": []}

    def begin(self) -> None:
        """Do nothing, since this mode has no transactions."""

    def commit(self) -> None:
        """Flush the produced records, then commit the offsets."""
        began = time.perf_counter()
        assert self.producer.flush(60) == 0, "not all of the output was written"
        flushed = time.perf_counter()
        self._consumer.commit(
            offsets=self._consumer.position(self._consumer.assignment()), asynchronous=False
        )
        self.parts_s["flush"].append(flushed - began)
        self.parts_s["offsets"].append(time.perf_counter() - flushed)


class ExactlyOnce:
    """Commits input offsets and output in one transaction."""

    def __init__(self, servers: str, name: str, consumer: Any) -> None:
        from confluent_kafka import Producer

        self._consumer = consumer
        self.producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
        self.producer.init_transactions(30)
        self.parts_s: dict[str, list[float]] = {"offsets": [], "commit": []}

    def begin(self) -> None:
        """Begin a transaction."""
        self.producer.begin_transaction()

    def commit(self) -> None:
        """Add the offsets to the transaction while the last records are sent, then commit it."""
        began = time.perf_counter()
        positions = self._consumer.position(self._consumer.assignment())
        self.producer.send_offsets_to_transaction(
            positions, self._consumer.consumer_group_metadata(), 60
        )
        sent = time.perf_counter()
        self.producer.commit_transaction(60)
        self.parts_s["offsets"].append(sent - began)
        self.parts_s["commit"].append(time.perf_counter() - sent)


def _must_arrive(error: Any, _message: Any) -> None:
    if error is not None:
        raise RuntimeError(f"a record was not written: {error}")


class Process:
    """Reads, transforms and writes records. It commits when the interval has passed since it read
    the oldest record that is not committed.
    """

    def __init__(
        self,
        servers: str,
        source: str,
        target: str,
        target_partitions: int,
        mode: str,
        interval_s: float,
        name: str,
        is_over: Callable[[], bool],
        consumer: dict[str, str],
    ) -> None:
        from confluent_kafka import Consumer

        given = {
            "bootstrap.servers": servers,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self._consumer = Consumer({**given, **consumer})
        self._consumer.subscribe([source])
        kind = ExactlyOnce if mode == "exactly once" else AtLeastOnce
        self.way: AtLeastOnce | ExactlyOnce = kind(servers, name, self._consumer)
        self._target, self._target_partitions, self._interval_s = (
            target,
            target_partitions,
            interval_s,
        )
        self._next_partition = 0
        self.is_over = is_over

    def warm_up(self) -> None:
        """Write to every partition and commit, once. Afterwards the client has joined the group,
        internal topics and files exist, and all connections are open.
        """
        self.way.begin()
        worked = 0
        while worked < self._target_partitions:
            worked += self._step(timeout_s=1.0)
        self.way.commit()
        for parts in self.way.parts_s.values():
            parts.clear()

    def run(self) -> tuple[int, int]:
        """Process records until the end.

        Gives: the numbers of records and of commits.
        """
        count = commits = 0
        due: float | None = None
        self.way.begin()
        while True:
            worked = self._step(
                timeout_s=0.005 if due is None else max(0.0005, min(0.005, due - time.monotonic()))
            )
            count += worked
            now = time.monotonic()
            if due is None and worked:
                due = now + self._interval_s
            over = self.is_over()
            if due is not None and (now >= due or over):
                self.way.commit()
                self.way.begin()
                commits += 1
                due = None
            if over:
                return count, commits

    def _step(self, timeout_s: float) -> int:
        """Process the records that are available, or that arrive within the timeout."""
        consumer, producer, target, partitions = (
            self._consumer,
            self.way.producer,
            self._target,
            self._target_partitions,
        )
        messages = consumer.consume(BATCH, 0)
        if not messages:
            message = consumer.poll(timeout_s)
            if message is None:
                return 0
            messages = [message]
        partition = self._next_partition
        for message in messages:
            if message.error():
                raise RuntimeError(f"the input cannot be read: {message.error()}")
            produce(producer, target, transformed(message.value()), partition)
            partition = partition + 1 if partition + 1 < partitions else 0
        self._next_partition = partition
        producer.poll(0)
        return len(messages)

    def close(self) -> None:
        """Close the clients. An empty transaction need not be ended, since it has sent nothing to
        the broker.
        """
        self._consumer.close()


def process(
    servers: str,
    source: str,
    target: str,
    target_partitions: int,
    mode: str,
    interval_s: float,
    name: str,
    seconds: float,
    broker_pid: int,
    consumer: dict[str, str],
) -> None:
    """Process an input that is already filled, for the given time and until the next commit."""
    ends_at = math.inf
    work = Process(
        servers,
        source,
        target,
        target_partitions,
        mode,
        interval_s,
        name,
        lambda: time.monotonic() >= ends_at,
        consumer,
    )
    work.warm_up()
    say("ready")
    wait_for_go()
    cpu, own, began = cpu_seconds(broker_pid), time.process_time(), time.monotonic()
    ends_at = began + seconds
    count, commits = work.run()
    taken = time.monotonic() - began
    say(
        {
            "records": count,
            "commits": commits,
            "seconds": taken,
            "broker_cpu_s": cpu_seconds(broker_pid) - cpu,
            "process_cpu_s": time.process_time() - own,
            "parts_ms": {
                part: 1e3 * percentile(sorted(times), 0.5)
                for part, times in work.way.parts_s.items()
                if times
            },
        }
    )
    work.close()


def process_until_line(
    servers: str,
    source: str,
    target: str,
    target_partitions: int,
    mode: str,
    interval_s: float,
    name: str,
    consumer: dict[str, str],
) -> None:
    """Process the input until a line arrives on standard input."""
    import threading

    is_over = threading.Event()
    work = Process(
        servers, source, target, target_partitions, mode, interval_s, name, is_over.is_set, consumer
    )
    work.warm_up()
    say("ready")

    def listen() -> None:
        sys.stdin.readline()
        is_over.set()

    threading.Thread(target=listen, daemon=True).start()
    count, commits = work.run()
    say({"records": count, "commits": commits})
    work.close()


# --- the reader ---------------------------------------------------------------------------------


def read(
    servers: str,
    topic: str,
    partitions: int,
    count: int,
    timeout_s: float,
    counts_within: bool = False,
) -> None:
    """Read committed records until `count` of them have a creation time. Print percentiles of the
    ages that these had when they were read.

    Takes:  counts_within, whether a record says for how many it stands.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    ages_ms: list[float] = []
    seen = measured = 0
    deadline = time.monotonic() + timeout_s
    while not seen or measured < count:
        messages = consumer.consume(2000, 0)
        if not messages:
            message = consumer.poll(0.1)
            messages = [] if message is None else [message]
        now = time.monotonic_ns()
        for message in messages:
            if message.error():
                raise RuntimeError(f"the output cannot be read: {message.error()}")
            created, within = CREATED_AND_COUNT.unpack_from(message.value())
            if created:
                ages_ms.append((now - created) / 1e6)
                measured += within if counts_within else 1
        if messages and not seen:
            say("ready")
        seen += len(messages)
        if time.monotonic() > deadline:
            raise RuntimeError(f"of {count} records {measured} were read within {timeout_s:.0f} s")
    ages_ms.sort()
    say(
        {
            "count": measured,
            "read": len(ages_ms),
            **{f"p{part}_ms": percentile(ages_ms, part / 100) for part in (50, 95, 99)},
            "max_ms": ages_ms[-1],
        }
    )
    consumer.close()


def read_along(servers: str, topic: str, partitions: int) -> None:
    """Read committed records and discard them, until the process is stopped."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    is_ready = False
    while True:
        if consumer.consume(10_000, 0.1) and not is_ready:
            is_ready = True
            say("ready")


ROLES: dict[str, Callable[..., None]] = {
    "feed": feed,
    "fill": fill,
    "process": process,
    "process_until_line": process_until_line,
    "read": read,
    "read_along": read_along,
}

if __name__ == "__main__":
    end_with_parent()
    ROLES[sys.argv[1]](**json.loads(sys.argv[2]))
