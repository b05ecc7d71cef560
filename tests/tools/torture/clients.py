"""The real daemon and real clients are killed and paused at random, and then everything that the
clients saw is checked.

    PYTHONPATH=tests/tools:tests:. python -m torture.clients --minutes N

Each client is a process with one of these roles. Feeders write into a source topic, either with
idempotence only, or in transactions, some of which they abort on purpose. Transformers consume this
topic as one group, and write each record to a target topic in the transaction that commits its
offset. Meanwhile the broker and the clients are killed (SIGKILL) and paused (SIGSTOP) at random,
some of them for so long that they are replaced and wake up as zombies. Readers of both isolation
levels follow all partitions all the time.

A client writes each step and each response to its diary before it continues, so nothing that a
killed client knew is lost. At the end of each round the faults stop and the transformers must
finish. Then tests/checkers.py checks the history: no record is lost or duplicated, no partial or
aborted transaction is visible, each partition is in order, and the offsets are consistent with the
outputs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers import loop_watchdog
from helpers.processes import ROOT, environment

from barnabas import LocalBroker

PARTITIONS = 4
ROUND_S = 60.0
HEAL_S = 90.0
HUNG_S = 25
HUNG_EXIT_CODE = 3
SESSION_TIMEOUT_MS = 3000
TRANSACTION_TIMEOUT_MS = 6000
ROLES = {"plain": 2, "transactional": 2, "transformer": 3}
BROKER_SETTINGS = {"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0"}
BROKER_DEEDS = ("broker killed", "broker killed", "broker paused")
CLIENT_DEEDS = ("client killed", "client killed", "client paused", "client replaced")
FENCED = {"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}
# If librdkafka finds all brokers down, it starts again from its bootstrap servers and drops the
# broker to which its coordinator requests were assigned, so these requests wait for ever (its
# issues 5456 and 5511, seen here after every few kills). The first setting prevents this.
RECONNECTING = {
    "metadata.recovery.strategy": "none",
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "log_level": 0,
}
# without a timeout, only the broker can make a record fail
PATIENT = {"message.timeout.ms": 0}


def now_ms() -> int:
    """The time of the monotonic clock, which all processes of the machine share."""
    return time.monotonic_ns() // 1_000_000


# --- what the worker processes do ---------------------------------------------------------------


class Diary:
    """A file of JSON lines. Each line is written to the operating system before the next step, so
    SIGKILL loses none.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, what: str, **more: Any) -> None:
        os.write(self._file, (json.dumps({"is": what, "ms": now_ms(), **more}) + "\n").encode())


class Worker:
    """The base of all roles. It has the names of a session, its diary, and a flag that ends it."""

    def __init__(self, servers: str, topic: str, slot: str, session: str, path: str) -> None:
        self.servers, self.topic, self.slot, self.session = servers, topic, slot, session
        self.diary = Diary(path)
        self.random = random.Random(session)
        self.ending = False
        self.sent = self.undelivered = self.transactions = self.steps = 0
        signal.signal(signal.SIGTERM, self._end)
        self.quiet = logging.getLogger("torture.quiet")
        self.quiet.addHandler(logging.NullHandler())
        self.quiet.propagate = False
        threading.Thread(target=self._watch, daemon=True).start()

    def _end(self, *_: Any) -> None:
        self.ending = True

    def _watch(self) -> None:
        """End this process if its client hangs.

        RECONNECTING describes why a client may hang. A broker that does not respond does not count
        as a hang, since each request has a timeout whose error counts as a step. The time is
        counted in iterations of this loop, so the time after a SIGSTOP does not count.
        """
        idle_s, seen, parent = 0, -1, os.getppid()
        while True:
            time.sleep(1)
            if os.getppid() != parent:
                os._exit(1)  # nothing else would end this process after its parent has ended
            idle_s, seen = (idle_s + 1 if self.steps == seen else 0), self.steps
            if idle_s > HUNG_S:
                self.diary("hung")
                os._exit(HUNG_EXIT_CODE)

    def producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        base = {
            "bootstrap.servers": self.servers,
            "linger.ms": 2,
            "enable.idempotence": True,
            "socket.timeout.ms": 5_000,
        }
        return Producer({**base, **RECONNECTING, **settings}, logger=self.quiet)

    def transactional(self) -> Any:
        """A producer that opens a new session of the slot's transactional id."""
        client = self.producer(
            **{
                "transactional.id": f"{self.topic}-{self.slot}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            }
        )
        while not self._tried(lambda: client.init_transactions(10)):
            pass
        return client

    def _tried(self, step: Any) -> bool:
        """Whether the step succeeded; if not, it may be repeated."""
        from confluent_kafka import KafkaException

        try:
            step()
        except KafkaException as failure:
            self.steps += 1
            error = failure.args[0]
            self.diary("error", code=error.name(), text=str(error))
            if not error.retriable() or error.fatal() or error.txn_requires_abort():
                raise
            return False
        return True

    def send(
        self,
        client: Any,
        topic: str,
        partition: int,
        *,
        transaction: str | None = None,
        source: tuple[int, int] | None = None,
    ) -> None:
        self.sent += 1
        self.steps += 1
        value = f"{self.session}.{self.sent}"
        self.diary(
            "send",
            value=value,
            topic=topic,
            partition=partition,
            transaction=transaction,
            source=source,
        )

        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                self.diary("ok", value=value, offset=message.offset())
            else:
                self.undelivered += 1
                self.diary("unknown", value=value, code=error.name())

        client.produce(topic, value.encode(), partition=partition, on_delivery=on_delivery)
        client.poll(0)

    def commit(self, client: Any, name: str) -> None:
        self.diary("commit?", transaction=name)
        while not self._tried(lambda: client.commit_transaction(10)):
            pass
        self.diary("committed", transaction=name)

    def abort(self, client: Any, name: str) -> None:
        while not self._tried(lambda: client.abort_transaction(10)):
            pass
        self.diary("aborted", transaction=name)

    def begin(self, client: Any) -> str:
        self.transactions += 1
        self.steps += 1
        name = f"{self.session}/{self.transactions}"
        self.undelivered = 0
        self.diary("begin", transaction=name)
        client.begin_transaction()
        return name

    # --- the roles ---

    def plain(self) -> None:
        client = self.producer(**PATIENT)
        while not self.ending:
            for _ in range(self.random.randrange(1, 8)):
                self.send(client, self.topic, self.random.randrange(PARTITIONS))
            client.poll(0.01)
        self._drain(client, HEAL_S)

    def _drain(self, client: Any, seconds: float) -> None:
        """Wait for deliveries. `flush` cannot be used, since it raises SystemError if a callback
        gets an error.
        """
        end = time.monotonic() + seconds
        while len(client) and time.monotonic() < end:
            client.poll(0.05)
            self.steps += 1

    def transact(self) -> None:
        from confluent_kafka import KafkaException

        while not self.ending:
            client = self.transactional()
            try:
                while not self.ending:
                    name = self.begin(client)
                    for _ in range(self.random.randrange(1, 20)):
                        self.send(
                            client, self.topic, self.random.randrange(PARTITIONS), transaction=name
                        )
                        if self.random.random() < 0.1:
                            client.poll(0.01)
                    self._end_transaction(client, name, abort=self.random.random() < 0.25)
                    client.poll(0.01)
            except KafkaException as failure:
                self.diary(
                    "session-end", code=failure.args[0].name(), fatal=failure.args[0].fatal()
                )

    def _end_transaction(self, client: Any, name: str, *, abort: bool) -> None:
        """Commit if all records were delivered, otherwise abort.

        If a record timed out while no broker was up, it is not delivered, so there may be nothing
        to commit. If a client aborts a transaction that the broker does not know, librdkafka fails
        fatally (INVALID_TXN_STATE), and the client cannot know this in advance: see
        docs/TRANSACTIONS.md. A feeder therefore requests the commit, and records that request, only
        after all records are delivered. A transformer requests it immediately, and
        `commit_transaction` waits for the records: the broker knows the transaction, since the
        group's offsets were added to it.
        """
        from confluent_kafka import KafkaException

        try:
            if not abort:
                self._drain(client, HEAL_S)
            elif self.random.random() < 0.5:
                self._drain(client, 10)
            if not abort and not self.undelivered:
                self.commit(client, name)
                return
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
        self.abort(client, name)

    def transform(self) -> None:
        from confluent_kafka import KafkaException

        while not self.ending:
            client = self.transactional()
            reader = self._group_reader()
            try:
                while not self.ending:
                    self._transform_some(client, reader)
            except KafkaException as failure:
                self.diary(
                    "session-end", code=failure.args[0].name(), fatal=failure.args[0].fatal()
                )
            finally:
                with contextlib.suppress(RuntimeError):
                    reader.close()

    def _group_reader(self) -> Any:
        from confluent_kafka import Consumer

        reader = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": f"{self.topic}-group",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 50,
                # half of the groups rebalance cooperatively, the other half eagerly
                "partition.assignment.strategy": "cooperative-sticky"
                if self.topic.endswith(("1", "3", "5", "7", "9"))
                else "range",
                **RECONNECTING,
            },
            logger=self.quiet,
        )
        reader.subscribe([self.topic])
        return reader

    def _transform_some(self, client: Any, reader: Any) -> None:
        """Read some records, and write them and the group's offsets in one transaction, which is
        committed in nine of ten cases. After an abort the reader returns to the first of these
        records.
        """
        from confluent_kafka import KafkaException, TopicPartition

        self.steps += 1
        messages = [
            message
            for message in reader.consume(self.random.choice((1, 10, 200)), 0.1)
            if message.error() is None
        ]
        if not messages:
            return
        name = self.begin(client)
        try:
            positions: dict[int, int] = {}
            for message in messages:
                positions[message.partition()] = message.offset() + 1
                source = (message.partition(), message.offset())
                self.send(
                    client,
                    f"{self.topic}-out",
                    message.partition(),
                    transaction=name,
                    source=source,
                )
            offsets = [
                TopicPartition(self.topic, partition, offset)
                for partition, offset in positions.items()
            ]
            group = reader.consumer_group_metadata()
            while not self._tried(lambda: client.send_offsets_to_transaction(offsets, group, 10)):
                pass
            if self.random.random() < 0.9:
                self.commit(client, name)
                return
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
        self.abort(client, name)
        self._rewind(reader, messages)

    def _rewind(self, reader: Any, messages: list[Any]) -> None:
        """Seek back to the start of the aborted batch, in each of its partitions that is still
        assigned.
        """
        from confluent_kafka import KafkaException, TopicPartition

        first: dict[int, int] = {}
        for message in messages:
            first.setdefault(message.partition(), message.offset())
        for partition, offset in first.items():
            try:
                reader.seek(TopicPartition(self.topic, partition, offset))
            except KafkaException as failure:
                self.diary(
                    "error",
                    code=failure.args[0].name(),
                    text="seek: the partition went to another member",
                )


def work(role: str, *arguments: str) -> None:
    """The main function of a worker process."""
    worker = Worker(*arguments)
    try:
        {"plain": worker.plain, "transactional": worker.transact, "transformer": worker.transform}[
            role
        ]()
    except Exception as error:
        worker.diary("died", text=repr(error))
        raise


# --- readers, in this process -------------------------------------------------------------------


class Follower:
    """Reads all partitions of one topic from their start, in spite of all kills, and keeps the
    records.
    """

    def __init__(self, servers: str, topic: str, *, committed: bool) -> None:
        self.topic, self.committed = topic, committed
        self.name = f"follower of {topic} ({'committed' if committed else 'all'})"
        self.rows: list[tuple[int, int, bytes, int]] = []
        self.errors: list[str] = []
        self.positions = [0] * PARTITIONS
        self._servers = servers
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name)
        self._thread.start()

    def _run(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        reader = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "torture-follower",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if self.committed else "read_uncommitted",
                "fetch.wait.max.ms": 100,
                **RECONNECTING,
            }
        )
        reader.assign([TopicPartition(self.topic, index, 0) for index in range(PARTITIONS)])
        while not self._ending.is_set():
            for message in reader.consume(500, 0.1):
                error = message.error()
                if error is None:
                    self.rows.append(
                        (message.partition(), message.offset(), message.value(), now_ms())
                    )
                    self.positions[message.partition()] = message.offset() + 1
                elif error.name() == "_AUTO_OFFSET_RESET":
                    self.errors.append(str(error))
        reader.close()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()


# --- one round ----------------------------------------------------------------------------------


@dataclass
class Report:
    """What was done in a round, and its findings."""

    seed: int
    topic: str
    findings: list[Any] = field(default_factory=list)
    deeds: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    records: int = 0
    reads: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    diaries: str = ""
    healing_s: float = 0.0
    judging_s: float = 0.0

    def __str__(self) -> str:
        deeds = ", ".join(f"{count} {deed}" for deed, count in sorted(self.deeds.items()))
        endings = ", ".join(f"{count} {ending}" for ending, count in sorted(self.endings.items()))
        return (
            f"{self.topic} (seed {self.seed}): {self.records} records, transactions: {endings}; "
            f"{self.reads} reads; {deeds}; "
            f"healed in {self.healing_s:.0f} s, judged in {self.judging_s:.0f} s; "
            f"{len(self.findings)} findings"
        )


class Round:
    """A round: clients run, faults occur and then stop, and the history is checked. The broker may
    still have the data of earlier rounds.
    """

    def __init__(self, broker: LocalBroker, number: int, seed: int, directory: str) -> None:
        self.broker, self.random, self.directory = broker, random.Random(seed), directory
        self.topic = f"torture-{seed}-{number}"
        self.report = Report(seed, self.topic, diaries=directory)
        self.workers: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        self.zombies: list[subprocess.Popen[bytes]] = []
        self.incidents: list[tuple[str, str]] = []
        self._paused: list[tuple[int, subprocess.Popen[bytes]]] = []
        self._incarnations: Counter[str] = Counter()
        self._last_source_offsets: dict[int, int] = {}
        self.history: Any = None

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def run(self, seconds: float) -> Report:
        from helpers.e2e_clients import create_named_topic

        for topic in (self.topic, f"{self.topic}-out"):
            create_named_topic(self.servers, topic, PARTITIONS)
        followers = [
            Follower(self.servers, topic, committed=kind)
            for topic in (self.topic, f"{self.topic}-out")
            for kind in (True, False)
        ]
        try:
            for role, count in ROLES.items():
                for index in range(count):
                    self.spawn(f"{role}-{index}")
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                self.wait(self.random.uniform(0.2, 1.5))
                self.do_something()
            began = time.monotonic()
            self.heal()
            self.report.healing_s = time.monotonic() - began
        finally:
            self.end_all()
            for follower in followers:
                follower.stop()
        began = time.monotonic()
        self.judge(followers)
        self.report.judging_s = time.monotonic() - began
        return self.report

    def spawn(self, slot: str) -> None:
        self._incarnations[slot] += 1
        session = f"{self.topic}:{slot}:{self._incarnations[slot]}"
        path = os.path.join(self.directory, session.replace(":", "_"))
        command = [
            sys.executable,
            "-m",
            "torture.clients",
            "--worker",
            slot.rpartition("-")[0],
            self.servers,
            self.topic,
            slot,
            session,
            path,
        ]
        self.workers[slot] = session, subprocess.Popen(command, cwd=ROOT, env=environment())

    # --- chaos ---

    def wait(self, seconds: float) -> None:
        """Wait for some time; meanwhile resume paused processes when they are due, and replace
        those that ended by themselves.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
            for entry in [entry for entry in self._paused if entry[0] <= now_ms()]:
                self._paused.remove(entry)
                _signal(entry[1], signal.SIGCONT)
            for slot, (session, process) in list(self.workers.items()):
                if process.poll() == HUNG_EXIT_CODE:
                    self.report.deeds["client hung by itself"] += 1
                    self.spawn(slot)
                elif process.poll() is not None:
                    self.incidents.append(
                        ("refused", f"{session} ended by itself with {process.returncode}")
                    )
                    self.spawn(slot)
        self._see_that_broker_lives()

    def _see_that_broker_lives(self) -> None:
        process = self.broker.process
        if process is None or process.poll() is not None:
            self.incidents.append(
                ("crashed", "the broker died:\n" + "".join(self.broker.output[-20:]))
            )
            self.broker.kill()
            self.broker.restart()

    def do_something(self) -> None:
        self.harm(self.random.choice((*BROKER_DEEDS, *CLIENT_DEEDS)))

    def harm(self, deed: str) -> None:
        """Kill or pause the broker or a client. For any other deed, a client is stopped and
        replaced by a new one with the same role; the stopped process continues later as a zombie.
        """
        slot = self.random.choice(sorted(self.workers))
        process = self.workers[slot][1]
        if deed == "broker killed":
            self.broker.kill()
            if self.random.random() < 0.3:
                time.sleep(self.random.uniform(0, 1.0))
            self.broker.restart()
        elif deed == "broker paused":
            os.kill(self.broker.pid, signal.SIGSTOP)
            time.sleep(self.random.choice((0.05, 0.5, 2.0)))
            os.kill(self.broker.pid, signal.SIGCONT)
        elif deed == "client killed":
            process.kill()
            process.wait()
            self.spawn(slot)
        elif deed == "client paused":
            _signal(process, signal.SIGSTOP)
            self._paused.append(
                (now_ms() + self.random.choice((200, 1000, SESSION_TIMEOUT_MS + 1500)), process)
            )
        else:
            _signal(process, signal.SIGSTOP)
            self._paused.append(
                (now_ms() + self.random.choice((500, 2000, SESSION_TIMEOUT_MS + 500)), process)
            )
            self.zombies.append(process)
            self.spawn(slot)
            if len(self.zombies) > 2:
                oldest = self.zombies.pop(0)
                oldest.kill()
                oldest.wait()
        self.report.deeds[deed] += 1

    # --- healing ---

    def heal(self) -> None:
        """End all faults. The feeders finish, the transformers must reach the end of the source
        topic, and no transaction may stay open.
        """
        for zombie in self.zombies:
            zombie.kill()
            zombie.wait()
        self.zombies.clear()
        for _, process in self._paused:
            _signal(process, signal.SIGCONT)
        self._paused.clear()
        self._end_workers("plain", "transactional")
        self._until(self._is_done, "the transformers do not come to the end of the source")
        self._end_workers("transformer")
        # If the last session of a transactional id was killed and not replaced, its open
        # transaction must time out.
        self._until(
            lambda: all(low == high for low, high in self._stable_and_end()),
            "a transaction stays open for good",
        )
        self.broker.kill()
        self.broker.restart()

    def _end_workers(self, *roles: str) -> None:
        ending = {
            slot: entry for slot, entry in self.workers.items() if slot.rpartition("-")[0] in roles
        }
        for slot, (_, process) in ending.items():
            del self.workers[slot]
            process.terminate()
        for session, process in ending.values():
            try:
                process.wait(HEAL_S)
            except subprocess.TimeoutExpired:
                self.incidents.append(("stuck", f"{session} does not end"))
                process.kill()
                process.wait()

    def _until(self, probe: Any, complaint: str) -> None:
        end = time.monotonic() + HEAL_S
        while not probe():
            if time.monotonic() > end:
                self.incidents.append(
                    (
                        "stuck",
                        f"{complaint}: {self._stable_and_end()}, offsets {self._group_offsets()}",
                    )
                )
                return
            self.wait(0.2)

    def _stable_and_end(self) -> list[tuple[int, int]]:
        return [
            (log.last_stable_offset, log.high_watermark)
            for topic in (self.topic, f"{self.topic}-out")
            for log in self._fetched(topic)
        ]

    def _fetched(self, topic: str) -> list[Any]:
        """Return the rows of all partitions from one Fetch response, for their offsets."""
        from helpers.e2e_wire import Wire
        from sim import wire

        with Wire(self.broker.port) as connection:
            targets = [(topic, index, 0) for index in range(PARTITIONS)]
            answer = connection.call(
                wire.fetch(
                    targets, committed=True, max_wait_ms=0, max_bytes=1, partition_max_bytes=1
                )
            )
        return sorted(answer.partitions, key=lambda found: found.partition)

    def _group_offsets(self) -> dict[int, int]:
        from confluent_kafka import TopicPartition
        from helpers.e2e_clients import consumer

        client = consumer(self.servers, f"{self.topic}-group")
        try:
            found = client.committed(
                [TopicPartition(self.topic, index) for index in range(PARTITIONS)], 20
            )
        finally:
            client.close()
        return {
            partition.partition: partition.offset for partition in found if partition.offset >= 0
        }

    def _is_done(self) -> bool:
        """Whether no transaction is open and the group has committed all offsets of the input
        topic.
        """
        from helpers.e2e_clients import read_all

        if not all(low == high for low, high in self._stable_and_end()[:PARTITIONS]):
            return False
        if not self._last_source_offsets:
            for seen in read_all(self.servers, self.topic, timeout_s=60):
                self._last_source_offsets[seen.partition] = max(
                    seen.offset, self._last_source_offsets.get(seen.partition, 0)
                )
        offsets = self._group_offsets()
        return all(
            offsets.get(partition, 0) > last
            for partition, last in self._last_source_offsets.items()
        )

    def end_all(self) -> None:
        for process in [process for _, process in self.workers.values()] + self.zombies:
            process.kill()
            process.wait()
        self.workers.clear()
        self.zombies.clear()

    # --- judgement ---

    def judge(self, followers: list[Follower]) -> None:
        """Collect what all clients saw as a history, and check it."""
        import checkers

        history = self.history = checkers.History()
        for path in sorted(Path(self.directory).glob(f"{self.topic}_*")):
            self._read_diary(history, path)
        for follower in followers:
            for partition, offset, value, read_ms in follower.rows:
                history.read(
                    follower.name,
                    (follower.topic, partition),
                    offset,
                    value,
                    committed_only=follower.committed,
                    now_ms=read_ms,
                )
            for partition, end_offset in enumerate(follower.positions):
                history.spans.append(
                    checkers.Span(
                        follower.name,
                        (follower.topic, partition),
                        follower.committed,
                        0,
                        end_offset,
                        0,
                    )
                )
            for text in follower.errors:
                history.incident("refused", f"{follower.name}: {text}")
        self._read_final(history)
        for kind, text in self.incidents:
            history.incident(kind, text)
        for line in self.broker.output:
            if "Traceback" in line or " CRITICAL " in line or " ERROR " in line:
                history.incident("crashed", line.strip())
        self.report.findings = checkers.check(history)
        self.report.records, self.report.reads = len(history.writes), len(history.reads)
        self.report.endings = Counter(
            transaction.ending.value for transaction in history.transactions
        )

    def _read_diary(self, history: Any, path: Path) -> None:
        """Add the writes, transactions and errors in one client's diary to the history."""
        from checkers import Ending, Source

        session = path.name
        writes: dict[str, Any] = {}
        transactions: dict[str, Any] = {}
        for row in _rows(path):
            what, at_ms, name = row["is"], row["ms"], row.get("transaction")
            if what == "begin":
                transactions[name] = history.begin(name, session=session, now_ms=at_ms)
            elif what == "send":
                source = row["source"] and Source(
                    f"{self.topic}-group", (self.topic, row["source"][0]), row["source"][1]
                )
                writes[row["value"]] = history.write(
                    row["value"].encode(),
                    (row["topic"], row["partition"]),
                    session=session,
                    transaction=transactions.get(name),
                    source=source,
                )
            elif what == "ok":
                writes[row["value"]].ok(row["offset"], at_ms)
            elif what == "unknown":
                if writes[row["value"]].transaction is None:
                    history.incident(
                        "refused",
                        f"{row['value']} of a producer that never gives up a record: {row['code']}",
                    )
                self.report.errors[f"delivery: {row['code']}"] += 1
            elif what == "commit?":
                transactions[name].commit_asked_ms = at_ms
            elif what in ("committed", "aborted"):
                transactions[name].end(
                    Ending.COMMITTED if what == "committed" else Ending.ABORTED, at_ms
                )
            elif what == "session-end":
                self.report.errors[f"session: {row['code']}"] += 1
                if (
                    row["fatal"]
                    and row["code"] not in FENCED
                    and not (
                        row["code"] == "INVALID_TXN_STATE" and self._was_aborting(transactions)
                    )
                ):
                    history.incident("refused", f"{session} was refused for good: {row['code']}")
            elif what == "error":
                self.report.errors[row["code"]] += 1
            elif what == "died":
                history.incident("refused", f"{session} died: {row['text']}")
        for transaction in transactions.values():
            if transaction.ending is Ending.OPEN and transaction.commit_asked_ms is not None:
                transaction.ending = Ending.UNKNOWN

    @staticmethod
    def _was_aborting(transactions: dict[str, Any]) -> bool:
        """Whether the last transaction was being aborted. An abort may be refused if a kill lost
        the request that began the transaction: the broker then knows only the previous transaction,
        which is complete. Apache Kafka refuses the abort, too.
        """
        return next(reversed(transactions.values())).commit_asked_ms is None

    def _read_final(self, history: Any) -> None:
        import checkers
        from helpers.e2e_clients import read_all

        for topic in (self.topic, f"{self.topic}-out"):
            rows: dict[bool, dict[int, list[tuple[int, bytes]]]] = {}
            for committed in (True, False):
                rows[committed] = {index: [] for index in range(PARTITIONS)}
                for seen in read_all(self.servers, topic, committed=committed, timeout_s=120):
                    rows[committed][seen.partition].append((seen.offset, seen.value or b""))
            for log in self._fetched(topic):
                history.final[topic, log.partition] = checkers.FinalLog(
                    log.log_start_offset,
                    log.last_stable_offset,
                    log.high_watermark,
                    rows[True][log.partition],
                    rows[False][log.partition],
                )
        for partition, offset in self._group_offsets().items():
            history.final_offsets[f"{self.topic}-group", (self.topic, partition)] = offset


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(number)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a diary, without the last line if a kill truncated it."""
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(line)


def torture(
    seconds: float, *, seed: int, directory: str | None = None, round_s: float = ROUND_S
) -> Iterator[Report]:
    """Run rounds until the time is up. All rounds use one broker, so its logs and state grow from
    round to round.
    """
    directory = directory or tempfile.mkdtemp(prefix="barnabas-torture-")
    diaries = os.path.join(directory, "diaries")
    os.makedirs(diaries, exist_ok=True)
    end = time.monotonic() + seconds
    number = 0
    from checkers import Finding  # imported only here, since the worker processes do not need it

    loop_watchdog.start_watching()
    with LocalBroker(os.path.join(directory, "data"), settings=BROKER_SETTINGS) as broker:
        while (left := end - time.monotonic()) > 0:
            number += 1
            report = Round(broker, number, seed + number - 1, diaries).run(min(left, round_s))
            report.findings += [Finding("loop", fault) for fault in loop_watchdog.take_faults()]
            broker.output.clear()
            yield report
            if not report.findings:
                for path in Path(diaries).glob(f"{report.topic}_*"):
                    path.unlink()


def main() -> int:
    """0: no findings."""
    parser = argparse.ArgumentParser(
        prog="python -m torture.clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=1.0,
        help="how long harm is done; healing and checking come on top",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="of what is done when; how the processes meet it is not repeatable",
    )
    parser.add_argument(
        "--directory",
        help="where data and diaries are kept (default: a new one in the temporary directory)",
    )
    parser.add_argument("--worker", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*options.worker)
        return 0
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    failed = False
    for report in torture(options.minutes * 60, seed=seed, directory=options.directory):
        print(report, flush=True)
        print("   errors that clients met:", dict(report.errors.most_common()), flush=True)
        for finding in report.findings[:20]:
            print("   ", *finding, flush=True)
        if report.findings:
            failed = True
            print(f"    diaries: {report.diaries}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
