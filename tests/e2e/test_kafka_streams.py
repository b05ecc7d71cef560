"""Kafka Streams with exactly_once_v2 and each group protocol, while the broker and the
application's instances are killed.

A word count with a repartition topic (tests/clients/WordCount.java) runs in two instances of two
threads each, which join, leave and are killed. The broker is also killed. Each input line must be
counted once: for every word the committed counts are 1, 2, 3 … without a gap or a repetition.

The same program on Kafka Streams 3 goes from a producer for each task to one for each thread.

The jars are in `.clients/streams` and `.clients/streams-3`, which `make clients` fills if it can.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from helpers.e2e_clients import create_named_topic, eventually, producer, unique, wait_until_ready

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
CURRENT = ROOT / ".clients" / "streams"
BEFORE_4 = ROOT / ".clients" / "streams-3"  # the last ones that know `exactly_once`
PROGRAM = ROOT / "tests" / "clients" / "WordCount.java"
PATIENCE_S = 180
PARTITIONS = 3
WORDS_OF_A_LINE = 3
TASK_PRODUCERS, THREAD_PRODUCERS = "exactly_once", "exactly_once_v2"
SETTINGS = {
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "500",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the program."""
    return compiled(CURRENT, tmp_path_factory.mktemp("classes"))


def compiled(libraries: Path, folder: Path) -> str:
    """Compile the program. Gives: its class path."""
    if shutil.which("javac") is None or not any(libraries.glob("kafka-streams-*.jar")):
        pytest.skip(f"no {libraries.name} on this machine (`make clients` fetches what it can)")
    path = f"{folder}:{libraries}/*"
    subprocess.run(
        ["javac", "-d", str(folder), "-cp", path, str(PROGRAM)],
        check=True, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip
    return path


class Instance:
    """An instance of the application, in a separate process."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            ["java", "-Xmx160m", "-cp", program, "WordCount", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(self._process.stdout)

    def await_line(self, text: str) -> None:
        """Wait for a log line. Fail if the instance ends before it prints the line."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not any(text in line for line in self.lines):
            assert time.monotonic() < deadline_s, (text, self.lines)
            assert self._process.poll() is None, self.lines
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the instance cleanly, so that it leaves the group, and wait until it ends."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._reader.join()
        assert any("closed" in line for line in self.lines), self.lines

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()


class Feed:
    """A producer that continuously writes lines, each once, whatever happens to the broker."""

    def __init__(self, servers: str, topic: str) -> None:
        self.count = 0
        self._topic, self._stopped = topic, threading.Event()
        self._producer = producer(servers, enable_idempotence=True, message_timeout_ms=0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Write lines of three words until stopped."""
        while not self._stopped.wait(0.02):
            line = f"all w{self.count % 7} v{self.count % 5}"
            self._producer.produce(self._topic, line, str(self.count % 11))
            self._producer.poll(0)
            self.count += 1

    def stop(self) -> int:
        """Stop writing. Gives: the number of written lines."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0
        return self.count


class Counts:
    """The committed counts in the output topic, by word."""

    def __init__(self, servers: str, topic: str) -> None:
        self.by_word: dict[str, list[int]] = {}
        self.total = 0
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": unique("counts"),
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign(
            [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        )

    def read(self, seconds: float) -> None:
        """Read for `seconds`, and check the counts."""
        for message in self._consumer.consume(500, seconds):
            if message.error():
                continue
            counts = self.by_word.setdefault(message.key().decode(), [])
            counts.append(int(message.value()))
            self.total += 1
            # Exactly once: the nth count that was committed for a word is n.
            assert counts[-1] == len(counts), f"{message.key()!r}: {counts[-5:]}"

    def await_more(self, count: int, *instances: Instance) -> None:
        """Wait for `count` more committed counts."""
        self.await_total(self.total + count, *instances)

    def await_total(self, total: int, *instances: Instance) -> None:
        """Read until the number of counts is at least `total`."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.total < total:
            said = [instance.lines[-8:] for instance in instances]
            assert time.monotonic() < deadline_s, (self.total, total, said)
            self.read(0.2)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker for one test. At the end, its output must contain no traceback and no critical
    message.
    """
    with LocalBroker(tmp_path / "data", settings=SETTINGS) as broker:
        yield broker
        assert not [
            line for line in broker.output if "Traceback" in line or " CRITICAL " in line
        ], "".join(broker.output[-60:])


class Application:
    """The word count: its topics, its input, its counts, and the instances that run."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.servers, self._folder, self._id = servers, folder, unique("words")
        create_named_topic(servers, f"{self._id}-lines", PARTITIONS)
        create_named_topic(servers, f"{self._id}-counts", PARTITIONS)
        self.feed = Feed(servers, f"{self._id}-lines")
        self.counts = Counts(servers, f"{self._id}-counts")
        self._started: list[Instance] = []

    def start(
        self, program: str, name: str, protocol: str = "classic", guarantee: str = THREAD_PRODUCERS
    ) -> Instance:
        state = str(self._folder / name)
        instance = Instance(program, self.servers, protocol, self._id, state, guarantee)
        self._started.append(instance)
        return instance

    def end(self, last: Instance) -> None:
        """Stop the input, and the last instance when all is counted. Check that all is counted
        once.
        """
        lines = self.feed.stop()
        self.counts.await_total(lines * WORDS_OF_A_LINE, last)
        # If a record was counted twice, the second count would arrive now.
        self.counts.read(2)
        last.stop()
        self.counts.read(1)
        assert self.counts.total == lines * WORDS_OF_A_LINE
        assert len(self.counts.by_word["all"]) == lines

    def close(self) -> None:
        self.feed.stop()
        self.counts.close()
        for instance in self._started:
            instance.kill()


@pytest.fixture
def application(own: LocalBroker, tmp_path: Path) -> Iterator[Application]:
    running = Application(own.bootstrap_servers, tmp_path)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_a_word_count_stays_exact_under_kills(
    own: LocalBroker, application: Application, program: str, protocol: str
) -> None:
    # contract: kip-129/streams
    counts = application.counts

    def start(name: str) -> Instance:
        return application.start(program, name, protocol)

    def kill_broker() -> None:
        own.kill()
        own.restart()
        wait_until_ready(own.bootstrap_servers)

    first = start("first")
    counts.await_more(200, first)
    second = start("second")
    second.await_line("-> RUNNING")
    counts.await_more(200, first, second)
    kill_broker()
    counts.await_more(200, first, second)
    second.kill()
    counts.await_more(200, first)
    third = start("third")
    third.await_line("-> REBALANCING")
    kill_broker()
    third.await_line("-> RUNNING")
    counts.await_more(200, first, third)
    first.stop()
    counts.await_more(200, third)
    kill_broker()
    fourth = start("fourth")
    third.kill()
    counts.await_more(200, fourth)
    application.end(fourth)


def test_a_bounce_leads_from_task_producers_to_thread_producers(
    own: LocalBroker, application: Application, tmp_path: Path
) -> None:
    """Two instances of `exactly_once` are stopped one after the other, and come back with their
    state and `exactly_once_v2`. One more is killed on the way.
    """
    # contract: kip-447/two-bounces
    program = compiled(BEFORE_4, tmp_path)
    counts = application.counts
    first = application.start(program, "first", guarantee=TASK_PRODUCERS)
    second = application.start(program, "second", guarantee=TASK_PRODUCERS)
    second.await_line("-> RUNNING")
    counts.await_more(200, first, second)
    eventually(lambda: any(map(is_of_task, ids_of_open(own))), what="a task has a transaction")
    first.stop()
    first = application.start(program, "first")
    first.await_line("-> RUNNING")
    counts.await_more(200, first, second)
    second.kill()
    counts.await_more(200, first)
    second = application.start(program, "second")
    second.await_line("-> RUNNING")
    counts.await_more(200, first, second)
    eventually(
        lambda: (ids := ids_of_open(own)) and not any(map(is_of_task, ids)),
        what="a thread has a transaction",
    )
    first.stop()
    counts.await_more(200, second)
    application.end(second)


def ids_of_open(broker: LocalBroker) -> list[str]:
    return [transaction.transactional_id for transaction in broker.open_transactions()]


def is_of_task(transactional_id: str) -> bool:
    """Whether it ends with the number of a task, as in words-0_1."""
    return re.search(r"-\d+_\d+$", transactional_id) is not None
