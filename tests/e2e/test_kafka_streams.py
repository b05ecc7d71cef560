"""Kafka Streams with exactly_once_v2 and each group protocol, while the broker and the
application's instances are killed.

A word count with a repartition topic (tests/clients/WordCount.java) runs in two instances of two
threads each, which join, leave and are killed. The broker is also killed. Each input line must be
counted once: for every word the committed counts are 1, 2, 3 … without a gap or a repetition.

The jars are in `.clients/streams`, which `make clients` fills if it can.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from helpers.e2e_clients import create_named_topic, producer, unique, wait_until_ready

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ROOT / ".clients" / "streams"
PROGRAM = ROOT / "tests" / "clients" / "WordCount.java"
PATIENCE_S = 180
PARTITIONS = 3
WORDS_OF_A_LINE = 3
SETTINGS = {
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "500",
}


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program."""
    if shutil.which("javac") is None or not any(LIBRARIES.glob("kafka-streams-*.jar")):
        pytest.skip("Kafka Streams is not on this machine (`make clients` fetches what it can)")
    folder = tmp_path_factory.mktemp("classes")
    subprocess.run(
        ["javac", "-d", str(folder), "-cp", f"{LIBRARIES}/*", str(PROGRAM)],
        check=True, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip
    return folder


class Instance:
    """An instance of the application, in a separate process."""

    def __init__(self, classes: Path, *arguments: str) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            ["java", "-Xmx160m", "-cp", f"{classes}:{LIBRARIES}/*", "WordCount", *arguments],
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


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_a_word_count_stays_exact_under_kills(
    own: LocalBroker, classes: Path, tmp_path: Path, protocol: str
) -> None:
    # contract: kip-129/streams
    servers, application = own.bootstrap_servers, unique("words")
    create_named_topic(servers, f"{application}-lines", PARTITIONS)
    create_named_topic(servers, f"{application}-counts", PARTITIONS)
    running: list[Instance] = []

    def start(name: str) -> Instance:
        instance = Instance(classes, servers, protocol, application, str(tmp_path / name))
        running.append(instance)
        return instance

    def kill_broker() -> None:
        own.kill()
        own.restart()
        wait_until_ready(servers)

    feed = Feed(servers, f"{application}-lines")
    counts = Counts(servers, f"{application}-counts")
    try:
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
        lines = feed.stop()
        counts.await_total(lines * WORDS_OF_A_LINE, fourth)
        # If a record was counted twice, the second count would arrive now.
        counts.read(2)
        fourth.stop()
        counts.read(1)
        assert counts.total == lines * WORDS_OF_A_LINE
        assert len(counts.by_word["all"]) == lines
    finally:
        feed.stop()
        counts.close()
        for instance in running:
            instance.kill()
