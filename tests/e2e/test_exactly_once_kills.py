"""An application with state, two instances, and SIGKILL at every step of a transaction: each order
is counted once.

The instances are processes of tests/helpers/exactly_once_app.py. One of them is killed at a step,
and started again; the other one runs all the time. A stock consumer (read_committed) reads the
output while this happens. The short run kills at a few steps; `make test-long` at all of them, with
both group protocols. BARNABAS_TEST_KAFKA=host:port runs the same against another broker, such as
Apache Kafka.
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
from typing import Any

import pytest
from checkers import FinalLog, History, check
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas import LocalBroker
from barnabas.exactly_once import Step

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

APP = Path(__file__).resolve().parent.parent / "helpers" / "exactly_once_app.py"
PARTITIONS = 4
KEYS = 12
A_STEP = 48  # orders for each kill
TIMEOUT_S = 90.0
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
FEW = [Step.AFTER_PRODUCE, Step.AFTER_CHANGELOG, Step.AFTER_OFFSETS, Step.AFTER_COMMIT]
IN_A_REBALANCE = [Step.BEFORE_REVOKE, Step.AFTER_REVOKE]
OTHER_BROKER = os.environ.get("BARNABAS_TEST_KAFKA")
PROTOCOLS = [("classic", "range"), ("classic", "cooperative-sticky"), ("consumer", "-")]


@pytest.fixture(scope="module")
def quick_broker() -> Iterator[LocalBroker]:
    """A broker whose groups of the new protocol miss a killed member soon."""
    settings = {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "3000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "500",
    }
    with LocalBroker(settings=settings) as running:
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
        self.values: list[tuple[int, int, bytes]] = []

    def run(self) -> None:
        self._consumer.assign(
            [TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )
        while not self._over.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self.values.append((message.partition(), message.offset(), message.value()))
        self._consumer.close()

    def wait_for(self, count: int, unless: subprocess.Popen[bytes] | None = None) -> None:
        """Wait until so many records are read, or the process has ended."""
        deadline = time.monotonic() + TIMEOUT_S
        while len(self.values) < count and (unless is None or unless.poll() is None):
            assert time.monotonic() < deadline, f"{len(self.values)} of {count} records are there"
            time.sleep(0.02)

    def end(self) -> None:
        self._over.set()
        self.join()


class Course:
    """The instances of the application, its orders, and what has to be in its output."""

    def __init__(self, servers: str, protocol: tuple[str, str], directory: Path) -> None:
        self.name = f"kills-{uuid.uuid4().hex[:8]}"
        self._servers, self._directory = servers, directory
        self._protocol, self._strategy = protocol
        self._orders = 0
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
            "instance": instance,
            "protocol": self._protocol,
            "strategy": self._strategy,
            "input": self.input,
            "output": self.output,
            "state_dir": str(self._directory / instance),
            "kill_at": None if kill_at is None else kill_at.value,
            "times": times,
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
        log = read_committed(self._servers, self.output)
        found = sorted(value.decode() for _, _, value, _ in log)
        expected = sorted(
            f"{key} {count}" for key, total in self._counts.items() for count in range(1, total + 1)
        )
        assert found == expected
        self._check_history(log)
        changelog: dict[bytes, bytes] = {}
        for _, _, value, key in read_committed(self._servers, f"{self.name}-counts-changelog"):
            changelog[key] = value
        assert {key.decode(): int(value) for key, value in changelog.items()} == self._counts

    def _check_history(self, log: list[tuple[int, int, bytes, bytes]]) -> None:
        """Judge what the reader saw while instances were killed, and what is there at the end."""
        history = History()
        records: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for partition, offset, value, _ in log:
            history.write(value, (self.output, partition), session=value.split()[0].decode()).ok(
                offset
            )
            records[partition].append((offset, value))
        for partition, offset, value in self.reader.values:
            history.read(
                "reader", (self.output, partition), offset, value, committed_only=True, now_ms=0
            )
        for partition, rows in records.items():
            end = rows[-1][0] + 1
            history.final[self.output, partition] = FinalLog(0, end, end, rows, rows)
        assert not check(history)
        assert len(self.reader.values) == len(log), "the reader saw each record once"

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.reader.end()


def read_committed(servers: str, topic: str) -> list[tuple[int, int, bytes, bytes]]:
    """All committed records: partition, offset, value and key."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"checking-{topic}",
            "isolation.level": "read_committed",
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
                found.append(
                    (message.partition(), message.offset(), message.value(), message.key())
                )
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found


@pytest.fixture
def course(request: pytest.FixtureRequest, address: str, tmp_path: Path) -> Iterator[Course]:
    """A course with a group protocol."""
    running = Course(address, getattr(request, "param", PROTOCOLS[0]), tmp_path)
    try:
        yield running
    finally:
        running.close()


def kill_at_each(course: Course, steps: list[Step], **more: Any) -> None:
    """Kill one of two instances at each step, and start it again each time."""
    course.start("b")
    for step in steps:
        course.order()
        times = 1 if "restore" in step.value or "abort" in step.value else 2
        course.wait_for_kill(course.start("a", step, times), step)
    course.order()
    course.start("a")
    course.finish()


@pytest.mark.parametrize("course", [PROTOCOLS[1]], indirect=True)
def test_each_order_is_counted_once_though_an_instance_is_killed(course: Course) -> None:
    kill_at_each(course, FEW)


@pytest.mark.long
@pytest.mark.parametrize("course", PROTOCOLS, indirect=True)
def test_each_order_is_counted_once_with_a_kill_at_every_step(course: Course) -> None:
    kill_at_each(course, IN_ORDER)


@pytest.mark.long
@pytest.mark.parametrize("course", PROTOCOLS, indirect=True)
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
@pytest.mark.parametrize("course", PROTOCOLS, indirect=True)
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
