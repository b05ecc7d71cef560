"""Functions and classes that the examples share.

They start a broker for a script that is not given one, create topics and orders, read records in
batches, and define the steps at which a process can be killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas import LocalBroker

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 30.0
FENCED = 3  # the exit code of a process that another process has replaced
TAKEN = (
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._FATAL,
)  # error codes by which a commit, or a read that cannot continue, reports a replaced member

CLIENT: dict[str, Any] = {
    # hides log lines about lost connections, since the examples kill the broker on purpose
    "log_level": 2,
    "reconnect.backoff.max.ms": 200,
    # There is only one broker. While it restarts, a client that searches for another one may lose
    # its connections permanently.
    "metadata.recovery.strategy": "none",
}


# --- brokers, topics, orders


@contextlib.contextmanager
def broker_at(servers: str | None) -> Iterator[str]:
    """Use the given broker, or run a broker until the end of the block."""
    if servers:
        yield servers
        return
    with LocalBroker(settings={"group.min.session.timeout.ms": "500"}) as broker:
        yield broker.bootstrap_servers


def make_topic(servers: str, name: str, partitions: int = 3) -> None:
    """Create the topic unless it exists."""
    admin = AdminClient({"bootstrap.servers": servers, **CLIENT})
    try:
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def publish(
    servers: str,
    topic: str,
    records: Iterable[tuple[bytes, bytes]],
    *,
    transactional_id: str | None = None,
    commit: bool = True,
) -> None:
    """Send each key and value once. If there is a transactional id, all are sent in one
    transaction.

    Raises: KafkaException.
    """
    settings = (
        {"transactional.id": transactional_id} if transactional_id else {"enable.idempotence": True}
    )
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 2, **CLIENT, **settings})
    if transactional_id:
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
    send(producer, topic, records)
    if transactional_id:
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)


def send(producer: Producer, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
    """Produce records, and wait until the broker has acknowledged all of them.

    Raises: KafkaException with the first error.
    """
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for key, value in records:
        producer.produce(topic, value, key, on_delivery=on_delivery)
        producer.poll(0)
    try:
        left = producer.flush(TIMEOUT_S)
    except (
        SystemError
    ) as error:  # after a fatal error the client runs the callback before it raises the error
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise
    if left:
        raise KafkaException(
            KafkaError(KafkaError._TIMED_OUT, "records were not delivered in time")
        )
    if failures:
        raise KafkaException(failures[0])


def an_order(number: int, version: int = 1) -> tuple[bytes, bytes]:
    """The key and the value of an order."""
    order = {
        "order": number,
        "version": version,
        "pieces": number % 7 + 1,
        "price_cents": 100 + number,
    }
    return str(number).encode(), json.dumps(order).encode()


def total_cents(order: dict[str, Any]) -> int:
    """Transform an order: compute its total."""
    return int(order["pieces"]) * int(order["price_cents"])


def read_committed(servers: str, topic: str) -> list[bytes]:
    """Return the values of all committed records up to the end of the topic, or an empty list if
    the topic is unknown.
    """
    consumer = new_consumer(servers, "reader-of-" + topic)
    try:
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        if not partitions:
            return []
        consumer.assign(
            [
                TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)
                for partition in partitions
            ]
        )
        batches = Batches(consumer, 1000)
        found: list[bytes] = []
        while (batch := batches.next()) is not None:
            found += [message.value() or b"" for message in batch]
        return found
    finally:
        consumer.close()


def orders_in(values: Iterable[bytes]) -> Counter[int]:
    """Return the number of records of each order."""
    return Counter(json.loads(value)["order"] for value in values)


# --- reading in batches


def new_consumer(servers: str, group: str, member: str | None = None, **settings: Any) -> Consumer:
    """Make a consumer that reads only committed records and does not commit offsets by itself.

    Takes:  member, a name that stays the same over restarts (static membership). With it, a
            restarted member gets its former partitions at once. A new member would have to wait
            until the session of the dead one has expired.
    """
    base = {
        "bootstrap.servers": servers,
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 100,
        **({"group.instance.id": member} if member else {}),
    }
    return Consumer({**base, **CLIENT, **settings})


class Batches:
    """Reads one batch after the other, until every partition is at its end.

    Takes:  forever, whether to continue when all partitions are at their ends.
    """

    def __init__(self, consumer: Consumer, size: int, *, forever: bool = False) -> None:
        self._consumer = consumer
        self._size = size
        self._forever = forever
        self._ended: set[tuple[str, int]] = set()

    def next(self) -> list[Message] | None:
        """Return the next records, at most `size`, or None when all records have been read.

        Raises: KafkaException if the consumer cannot continue.
        """
        while True:
            batch = [
                message
                for message in self._consumer.consume(self._size, 0.1)
                if self._is_record(message)
            ]
            if batch:
                return batch
            assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
            if assigned and assigned <= self._ended and not self._forever:
                return None

    def _is_record(self, message: Message) -> bool:
        """Whether the message is a record. If it reports the end of a partition, this is recorded;
        other events are skipped. Raises: KafkaException if the consumer cannot continue.
        """
        error = message.error()
        place = (message.topic(), message.partition())
        if error is None:
            self._ended.discard(place)
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            self._ended.add(place)
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
            # the group has revoked the partitions; the next read makes this consumer join again
            self._ended.clear()
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
        return False


def is_replaced(failure: KafkaException, member: str) -> bool:
    """Whether the error means that another process has replaced the member. If so, print a line
    that says this.
    """
    error = failure.args[0]
    if not error.fatal() and error.code() not in TAKEN:
        return False
    print(
        f"another process has taken the place of {member}, so this one ends ({error.name()})",
        file=sys.stderr,
    )
    return True


def next_offsets(batch: Sequence[Message]) -> list[TopicPartition]:
    """For each partition, return the offset after its last record in the batch."""
    ends: dict[tuple[str, int], int] = {}
    for message in batch:
        ends[message.topic(), message.partition()] = message.offset() + 1
    return [
        TopicPartition(topic, partition, offset)
        for (topic, partition), offset in sorted(ends.items())
    ]


# --- steps


class Steps:
    """Reports the steps of a process. With --step-by-step the process waits at each step, so that
    it can be killed exactly there.
    """

    def __init__(self, *, one_by_one: bool) -> None:
        self._one_by_one = one_by_one

    def reach(self, name: str) -> None:
        """Report the step. If the process runs step by step, wait for a line from the parent."""
        if not self._one_by_one:
            return
        print(f"step {name}", flush=True)
        if not sys.stdin.readline():
            raise SystemExit("the process that started this one has ended")


class SteppedProcess:
    """One of these scripts as a child process that is controlled step by step.

    Raises: RuntimeError with the child's output, if the child ends early or does not report a step
            in time.
    """

    def __init__(self, script: str, arguments: Sequence[str]) -> None:
        command = [sys.executable, str(HERE / script), *arguments, "--step-by-step"]
        root = str(HERE.parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.output: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._waits = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Queue the child's output line by line, then None. It is read in a thread, so that
        `next_step` can have a timeout.
        """
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            self._lines.put(line)
        self._lines.put(None)

    def next_step(self) -> str | None:
        """Let the child continue.

        Gives:  the next step at which the child waits, or None if it has ended.
        """
        self.go()
        while True:
            try:
                line = self._lines.get(timeout=2 * TIMEOUT_S)
            except queue.Empty:
                self.kill()
                raise RuntimeError(
                    "the child does not go on:\n" + "".join(self.output[-20:])
                ) from None
            if line is None:
                return None
            if line.startswith("step "):
                self._waits = True
                return line.removeprefix("step ").strip()

    def go(self) -> None:
        """Let the child continue, if it waits at a step."""
        assert self.process.stdin is not None
        if not self._waits:
            return
        self._waits = False
        # A broken pipe means that the child has ended, which the next call reports.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()

    def run_until(self, step: str, times: int = 1) -> None:
        """Run the child until it reaches the step for the given number of times, and leave it
        waiting there.
        """
        while True:
            reached = self.next_step()
            if reached is None:
                raise RuntimeError(
                    f"the child ended before it was at '{step}':\n" + "".join(self.output[-20:])
                )
            times -= reached == step
            if not times:
                return

    def finish(self) -> int:
        """Run the child to its end. Gives: the exit code."""
        while self.next_step() is not None:
            pass
        return self._end()

    def kill(self) -> None:
        """Send SIGKILL to the child."""
        self.process.kill()
        self._end()

    def _end(self) -> int:
        """Wait for the child's end, and close its pipes. Gives: its exit code."""
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        return code

    def __enter__(self) -> SteppedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
