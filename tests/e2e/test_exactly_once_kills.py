"""An application with state, two instances, and SIGKILL at every step of a transaction and of a
rebalance: each order is counted once.

The instances are processes of tests/helpers/exactly_once_app.py. One of them is killed at a step,
and started again; the other one runs all the time. A stock consumer (read_committed) reads the
output while this happens. At the end the simulator's checkers judge the history: what the instances
note in their journals, what the reader saw, the logs, and the group's offsets.

`make test` kills at three steps. `-m long` kills at all of them, in each way of WAYS. The same on
another broker, such as an Apache Kafka with the settings of QUICK (and
group.initial.rebalance.delay.ms=0, and 1 for the replication factors of its internal topics):

    BARNABAS_TEST_KAFKA=host:port pytest -n 0 -m long -k other tests/e2e/test_exactly_once_kills.py
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from checkers import Ending, FinalLog, History, Source, Span, Transaction, check
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas import LocalBroker
from barnabas.exactly_once import Step

pytestmark = [pytest.mark.e2e, pytest.mark.deep]


class Way(NamedTuple):
    """A group protocol, an assignor, and whether the instances have names (static membership)."""

    protocol: str
    strategy: str
    has_names: bool = True

    def __str__(self) -> str:
        return f"{self.protocol}-{self.strategy}-{'static' if self.has_names else 'dynamic'}"


APP = Path(__file__).resolve().parent.parent / "helpers" / "exactly_once_app.py"
PARTITIONS = 4
KEYS = 12
A_STEP = 48  # orders for each kill
TIMEOUT_S = 120.0
IN_ORDER = [
    Step.BEFORE_BEGIN,
    Step.AFTER_BEGIN,
    Step.BEFORE_PRODUCE,
    Step.AFTER_PRODUCE,
    Step.BEFORE_CHANGELOG,
    Step.AFTER_CHANGELOG,
    Step.BEFORE_OFFSETS,
    Step.AFTER_OFFSETS,
    Step.BEFORE_COMMIT,
    Step.AFTER_COMMIT,
    Step.BEFORE_ABORT,
    Step.AFTER_ABORT,
    Step.BEFORE_RESTORE,
    Step.AFTER_RESTORE,
]
FEW = [Step.AFTER_CHANGELOG, Step.AFTER_OFFSETS, Step.AFTER_COMMIT]
IN_A_REBALANCE = [Step.BEFORE_REVOKE, Step.AFTER_REVOKE]
OTHER_BROKER = os.environ.get("BARNABAS_TEST_KAFKA")
WAYS = [
    Way("classic", "range"),
    Way("consumer", "uniform"),
    Way("classic", "range", has_names=False),
    Way("classic", "cooperative-sticky", has_names=False),  # refused with names
    Way("consumer", "uniform", has_names=False),
]
# Groups of the new protocol miss a killed member soon.
QUICK = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def quick_broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings=QUICK) as running:
        yield running


@pytest.fixture(params=["barnabas", "other"])
def address(request: pytest.FixtureRequest) -> str:
    """Of the shared broker, and of the broker that the environment names."""
    if request.param == "barnabas":
        broker: LocalBroker = request.getfixturevalue("quick_broker")
        return broker.bootstrap_servers
    if not OTHER_BROKER:
        pytest.skip("BARNABAS_TEST_KAFKA=host:port has the address of an Apache Kafka")
    return OTHER_BROKER


class Row(NamedTuple):
    """A record of a topic."""

    partition: int
    offset: int
    key: bytes
    value: bytes


class Reader(threading.Thread):
    """A stock consumer of the output (read_committed), in a thread."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"reader-{topic}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._topic = topic
        self._over = threading.Event()
        self.rows: list[tuple[Row, int]] = []  # with the times of the reads

    def run(self) -> None:
        self._consumer.assign(
            [TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )
        while not self._over.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self.rows.append((row_of(message), now_ms()))
        self._consumer.close()

    def wait_for(self, count: int, unless: subprocess.Popen[bytes] | None = None) -> None:
        """Wait until so many records are read, or the process has ended."""
        deadline = time.monotonic() + TIMEOUT_S
        while len(self.rows) < count and (unless is None or unless.poll() is None):
            assert time.monotonic() < deadline, f"{len(self.rows)} of {count} records are there"
            time.sleep(0.02)

    def end(self) -> None:
        self._over.set()
        self.join()


class Course:
    """The instances of the application, its orders, and what has to be in its output."""

    def __init__(self, servers: str, way: Way, directory: Path) -> None:
        self.name = f"kills-{uuid.uuid4().hex[:8]}"
        self._servers, self._way, self._directory = servers, way, directory
        self._orders = 0
        self.kills = 0
        self.forgets = False  # whether the instances have a planted mistake
        self._counts: Counter[str] = Counter()
        self._running: list[subprocess.Popen[bytes]] = []
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
        admin = AdminClient({"bootstrap.servers": servers})
        topics = [NewTopic(topic, PARTITIONS, 1) for topic in (self.input, self.output)]
        for future in admin.create_topics(topics).values():
            future.result(30)
        self.reader = Reader(servers, self.output)
        self.reader.start()

    @property
    def input(self) -> str:
        return f"{self.name}-in"

    @property
    def output(self) -> str:
        return f"{self.name}-out"

    def order(self, count: int = A_STEP) -> None:
        """Publish orders, for all partitions."""
        for number in range(self._orders, self._orders + count):
            key = number % KEYS
            self._counts[f"key{key}"] += 1
            self._producer.produce(self.input, str(number), f"key{key}", partition=key % PARTITIONS)
        assert self._producer.flush(30) == 0
        self._orders += count

    def start(
        self, instance: str, kill_at: Step | None = None, times: int = 1
    ) -> subprocess.Popen[bytes]:
        """Start an instance, which kills itself at the step."""
        options = {
            "servers": self._servers,
            "application": self.name,
            "instance": instance if self._way.has_names else None,
            "protocol": self._way.protocol,
            "strategy": self._way.strategy,
            "input": self.input,
            "output": self.output,
            "state_dir": str(self._directory / instance),
            "journal": str(self._directory / f"{len(self._running)}.journal"),
            "kill_at": None if kill_at is None else kill_at.value,
            "times": times,
            "forgets": self.forgets,
        }
        log = (self._directory / f"{instance}.log").open("ab")
        with log:
            process = subprocess.Popen(
                [sys.executable, str(APP), json.dumps(options)], stderr=log, stdout=log
            )
        self._running.append(process)
        return process

    def logs(self) -> str:
        return "\n".join(path.read_text()[-6000:] for path in self._directory.glob("*.log"))

    def wait_for_kill(self, process: subprocess.Popen[bytes], step: Step) -> None:
        """Publish orders until the process has reached its step."""
        deadline = time.monotonic() + TIMEOUT_S
        while process.poll() is None:
            assert time.monotonic() < deadline, f"{step} was not reached:\n{self.logs()}"
            self.order(PARTITIONS)
            time.sleep(0.1)
        assert process.returncode == -signal.SIGKILL, self.logs()
        self.kills += 1

    def wait(self, unless: subprocess.Popen[bytes] | None = None) -> None:
        """Wait until all orders are counted, or the process has ended."""
        self.reader.wait_for(self._orders, unless)

    def end_all(self) -> None:
        """End all instances by SIGTERM, as a supervisor does."""
        for process in self._running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running:
            assert process.wait(TIMEOUT_S) in (0, -signal.SIGKILL), self.logs()

    def finish(self) -> None:
        """Wait until all orders are counted, end all instances, and check everything."""
        self.wait()
        self.end_all()
        self.reader.end()
        history = self._history()
        findings = check(history)
        assert not findings, findings[:10]
        rows = read_all(self._servers, self.output)
        assert sorted(row for row, _ in self.reader.rows) == sorted(rows), "each is read once"
        assert sorted(row.value.decode().rpartition(" ")[0] for row in rows) == sorted(
            f"{key} {count}" for key, total in self._counts.items() for count in range(1, total + 1)
        )
        changelog = {
            row.key.decode(): int(row.value)
            for row in read_all(self._servers, f"{self.name}-counts-changelog")
        }
        assert changelog == self._counts
        print(f"{self._way}: {self.kills} kills, {self._orders} orders, each counted once")

    def _history(self) -> History:
        """What the instances did, what the reader saw, and what is there at the end."""
        history = History()
        for row in read_all(self._servers, self.input):
            write = history.write(row.value, (self.input, row.partition), session="orders")
            write.ok(row.offset)
        for journal in sorted(self._directory.glob("*.journal")):
            self._add_journal(history, journal)
        for row, read_ms in self.reader.rows:
            place = (self.output, row.partition)
            history.read(
                "reader", place, row.offset, row.value, committed_only=True, now_ms=read_ms
            )
        for topic in (self.input, self.output):
            committed, everything = (
                by_partition(read_all(self._servers, topic, level))
                for level in ("read_committed", "read_uncommitted")
            )
            for partition in range(PARTITIONS):
                every = everything[partition]
                end = every[-1][0] + 1
                history.final[topic, partition] = FinalLog(0, end, end, committed[partition], every)
                if topic == self.output:
                    history.spans.append(Span("reader", (topic, partition), True, 0, end, 0))
        for partition, offset in self._offsets().items():
            history.final_offsets[self.name, (self.input, partition)] = offset
        return history

    def _add_journal(self, history: History, journal: Path) -> None:
        """Add the transactions of a process."""
        transactions: dict[str, Transaction] = {}
        lines = journal.read_text().splitlines()
        for event, attempt, *more in map(json.loads, lines):
            if event == "begin":
                transactions[attempt] = history.begin(attempt, session=journal.stem, now_ms=more[0])
                continue
            transaction = transactions[attempt]
            if event == "write":
                value, partition, offset = more
                write = history.write(
                    value.encode(),
                    (self.output, partition),
                    session=journal.stem,
                    transaction=transaction,
                    source=Source(self.name, (self.input, partition), offset),
                )
                write.ok(-1)  # a commit promises it
            elif event == "ask":
                transaction.commit_asked_ms, transaction.ending = more[0], Ending.UNKNOWN
            else:
                transaction.end(Ending(event), more[0])

    def _offsets(self) -> dict[int, int]:
        """The group's offsets, by partition of the input."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": self.name})
        places = [TopicPartition(self.input, partition) for partition in range(PARTITIONS)]
        found = {place.partition: place.offset for place in consumer.committed(places, TIMEOUT_S)}
        consumer.close()
        return found

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.reader.end()


def now_ms() -> int:
    """The time by the clock of the journals."""
    return time.monotonic_ns() // 1_000_000


def row_of(message: Any) -> Row:
    return Row(message.partition(), message.offset(), message.key(), message.value())


def by_partition(rows: list[Row]) -> dict[int, list[tuple[int, bytes]]]:
    found = defaultdict(list)
    for row in rows:
        found[row.partition].append((row.offset, row.value))
    return found


def read_all(servers: str, topic: str, level: str = "read_committed") -> list[Row]:
    """All records."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"checking-{topic}",
            "isolation.level": level,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found, ended = [], set()
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    deadline = time.monotonic() + TIMEOUT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} has no end"
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                found.append(row_of(message))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found


@pytest.fixture
def course(request: pytest.FixtureRequest, address: str, tmp_path: Path) -> Iterator[Course]:
    """A course in one of the ways."""
    running = Course(address, request.param, tmp_path)
    try:
        yield running
    finally:
        running.close()


def kill_at_each(course: Course, steps: list[Step]) -> None:
    """Kill one of two instances at each step, and start it again each time."""
    course.start("b")
    for step in steps:
        course.order()
        times = 1 if "restore" in step.value or "abort" in step.value else 2
        course.wait_for_kill(course.start("a", step, times), step)
    course.order()
    course.start("a")
    course.finish()


@pytest.mark.parametrize("course", [WAYS[0]], indirect=True, ids=str)
def test_each_order_is_counted_once_though_an_instance_is_killed(course: Course) -> None:
    kill_at_each(course, FEW)


@pytest.mark.long
@pytest.mark.parametrize("course", [WAYS[0]], indirect=True, ids=str)
def test_transactions_without_their_offsets_are_found(course: Course) -> None:
    """The checkers can fail: a third of the transactions do not contain the offsets."""
    course.forgets = True
    with pytest.raises(AssertionError, match="kind='offsets'"):
        kill_at_each(course, [Step.AFTER_COMMIT])


@pytest.mark.long
@pytest.mark.parametrize("course", WAYS, indirect=True, ids=str)
def test_each_order_is_counted_once_with_a_kill_at_every_step(course: Course) -> None:
    kill_at_each(course, IN_ORDER)


@pytest.mark.long
@pytest.mark.parametrize("course", WAYS, indirect=True, ids=str)
def test_each_order_is_counted_once_with_kills_in_a_rebalance(course: Course) -> None:
    """A second instance joins, and the first one is killed while it gives partitions away."""
    for step in IN_A_REBALANCE:
        first = course.start("a", step)
        course.order()
        # Then it has all partitions, or is killed already, since a former instance has expired.
        course.wait(unless=first)
        course.start(f"joins {step.value}".replace(" ", "-"))
        course.wait_for_kill(first, step)
        course.start("a")
        course.order()
        course.wait()
        course.end_all()
    course.start("a")
    course.order()
    course.finish()


@pytest.mark.long
@pytest.mark.parametrize("course", WAYS, indirect=True, ids=str)
@pytest.mark.parametrize("step", [Step.AFTER_CHANGELOG, Step.AFTER_OFFSETS], ids=str)
def test_another_instance_continues_for_one_that_is_not_started_again(
    course: Course, step: Step
) -> None:
    """Its session and its transaction end by their timeouts."""
    course.start("b")
    course.order()
    course.wait_for_kill(course.start("a", step, 2), step)
    course.order()
    course.finish()
