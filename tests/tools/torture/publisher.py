"""The publisher that makes the Spark sink exactly-once, without Spark and under random faults.

    PYTHONPATH=tests/tools:tests:. python -m torture.publisher --minutes N --seed S

The drivers of one query publish batch after batch with the sink's own publisher and spool files,
and keep a commit log as Spark does: a file for each batch, which only one of them can create. Their
plans are not deterministic: each attempt at a batch has different rows in a different order, in
random partitions and topics, and sometimes no rows. Drivers are killed, or stopped, replaced and
woken as zombies. The broker is killed and stopped. At any request, connections end, and responses
are lost or delayed. The timeouts are so short that requests do time out. A run publishes hundreds
of batches a minute, where Spark publishes about twelve (`torture.spark_pipeline`).

At the end, each batch in the log must be in the topics with all rows of exactly one attempt, or
without rows if a driver learned that its attempt had none.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from helpers.processes import ROOT, environment

from barnabas import LocalBroker
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write.publishing import Publisher, PublishSettings
from barnabas.spark_connector.write.spool import (
    SpoolError,
    SpoolWriter,
    delete_micro_batches,
    read_spool,
)
from torture.clients import Diary

PARTITIONS, TOPICS = 3, 2
ROUND_S = 60.0
MAX_ROWS, BATCH_ROWS = 40, 7
LAST_BATCHES = 10
CLIENT_ID = "torture-publisher"
# The names of constants in kafka_proxy. A fault at the last of these requests does the most harm.
KINDS = (
    "INIT_PRODUCER_ID",
    "OFFSET_FETCH",
    "ADD_PARTITIONS_TO_TXN",
    "PRODUCE",
    "ADD_OFFSETS_TO_TXN",
    "TXN_OFFSET_COMMIT",
    *["END_TXN"] * 2,
)


class Row(NamedTuple):
    """A record of the output, with its position: row `number` of an attempt at a batch."""

    topic: str
    partition: int
    offset: int
    batch: int
    number: int
    attempt: str


def row_count(batch: int) -> int:
    """Return the number of rows of a batch. It is the same for all attempts, except those without
    rows.
    """
    return random.Random(batch).randrange(MAX_ROWS)


def value_of(batch: int, index: int, attempt: str) -> bytes:
    return f"{batch}|{index}|{attempt}".encode()


# --- a driver -----------------------------------------------------------------------------------


class Driver:
    """Publishes the batches that the commit log lacks, until another driver commits one of them
    first.
    """

    def __init__(self, servers: str, topics: str, directory: str, session: str) -> None:
        self.topics = topics.split(",")
        self.directory, self.session = Path(directory), session
        self.random = random.Random(session)
        self.diary = Diary(str(self.directory / f"diary-{session}"))
        host, _, port = servers.rpartition(":")
        self.options = ClientOptions(
            ((host, int(port)),),
            CLIENT_ID,
            request_timeout_ms=self.random.choice((700, 4000)),
            retry_backoff_ms=20,
        )
        self.settings = PublishSettings(
            transaction_timeout_ms=self.random.choice((800, 3000)),
            delivery_timeout_ms=20_000,
            max_request_bytes=self.random.choice((1024, 4096, 1 << 20)),
            in_flight=self.random.choice((1, 2, 5)),
        )

    def run(self) -> None:
        parent = os.getppid()
        publisher = Publisher(self.options, self.settings)
        while os.getppid() == parent:
            batch = next_batch(self.directory)
            try:
                self._publish(publisher, batch)
            except (ClientError, SpoolError) as error:
                self.diary("failed", batch=batch, text=str(error))
                continue
            try:
                os.close(
                    os.open(
                        self.directory / "commits" / str(batch),
                        os.O_CREAT | os.O_EXCL | os.O_WRONLY,
                    )
                )
            except FileExistsError:
                self.diary("concurrent", batch=batch)
                return
            # The connections are closed after this batch, since Spark's sink opens new ones for
            # each batch.
            if self.random.random() < 0.3:
                publisher.close()

    def _publish(self, publisher: Publisher, batch: int) -> None:
        """Publish one attempt at a batch, from memory or from spool files."""
        attempt = f"{self.session}.{os.urandom(3).hex()}"
        record_batches = list(self._batches(batch, attempt))
        spool = str(self.directory / "spool")
        read: Callable[[], Iterable[EncodedRecordBatch]] = lambda: record_batches  # noqa: E731
        if record_batches and self.random.random() < 0.5:
            with SpoolWriter(f"{spool}/{batch}", attempt) as writer:
                for each in record_batches:
                    writer.append(each)
            read = partial(read_spool, writer.uri)
        name = self.topics[0]
        done = publisher.commit_once(
            transactional_id=name,
            group_id=name,
            batch_id=batch,
            metadata=attempt,
            record_batches=lambda: self._slowly(read()),
        )
        self.diary(
            "published",
            batch=batch,
            attempt=attempt,
            was_committed=done.was_committed,
            records=done.record_count,
        )
        delete_micro_batches(spool, done.last_committed(batch))

    def _slowly(self, record_batches: Iterable[EncodedRecordBatch]) -> Iterator[EncodedRecordBatch]:
        """Yield the batches with pauses, so that a kill may come between them."""
        for batch in record_batches:
            time.sleep(self.random.uniform(0, 0.004))
            yield batch

    def _batches(self, batch: int, attempt: str) -> Iterator[EncodedRecordBatch]:
        """Yield the rows of a batch in random order, over random partitions. Rarely there are
        none.
        """
        order = list(range(row_count(batch))) if self.random.random() > 0.05 else []
        self.random.shuffle(order)
        now_ms = time.time_ns() // 1_000_000
        for start in range(0, len(order), BATCH_ROWS):
            records = [
                NewRecord(None, value_of(batch, index, attempt), now_ms)
                for index in order[start : start + BATCH_ROWS]
            ]
            where = self.random.choice(self.topics), self.random.randrange(PARTITIONS)
            yield EncodedRecordBatch(
                *where, len(records), encode_batch(records, transactional=True)
            )


def commit_log(directory: Path) -> list[int]:
    return sorted(int(name) for name in os.listdir(directory / "commits"))


def next_batch(directory: Path) -> int:
    return max(commit_log(directory), default=-1) + 1


# --- judgement ----------------------------------------------------------------------------------


def judge(rows: Iterable[Row], log: list[int], empty: set[int]) -> Iterator[str]:
    """Yield all errors in the output. `empty` has the batches for which a driver learned that its
    attempt had no rows.
    """
    if log != list(range(len(log))):
        yield f"the commit log has holes: {log}"
    attempts: dict[int, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    last: dict[tuple[str, int], int] = {}
    for row in sorted(rows):
        attempts[row.batch][row.attempt][row.number] += 1
        if row.batch < last.get((row.topic, row.partition), 0):
            yield f"{row} lies behind batch {last[row.topic, row.partition]}"
        last[row.topic, row.partition] = row.batch
    for batch, found in sorted(attempts.items()):
        if len(found) > 1:
            yield f"batch {batch} is there with rows of several attempts: {sorted(found)}"
        for attempt, indexes in found.items():
            if set(indexes) != set(range(row_count(batch))):
                yield (
                    f"batch {batch} is torn: {len(indexes)} of {row_count(batch)} rows of {attempt}"
                )
            if doubled := [index for index, count in indexes.items() if count > 1]:
                yield f"batch {batch} has rows twice: {doubled}"
    for batch in log:
        if batch not in attempts and batch not in empty and row_count(batch):
            yield f"batch {batch} is lost"


# --- chaos --------------------------------------------------------------------------------------


@dataclass
class Report:
    """What was done in a round, and its findings."""

    seed: int
    findings: list[str] = field(default_factory=list)
    deeds: Counter[str] = field(default_factory=Counter)
    schedule: list[str] = field(default_factory=list)
    batches: int = 0
    rows: int = 0
    already: int = 0
    failures: int = 0
    sessions: int = 0

    def __str__(self) -> str:
        deeds = ", ".join(f"{count} {deed}" for deed, count in sorted(self.deeds.items()))
        return (
            f"seed {self.seed}: {self.batches} batches, {self.rows} rows, {self.sessions} drivers, "
            f"{self.already} batches found committed, "
            f"{self.failures} attempts failed for good; {deeds}; {len(self.findings)} findings"
        )


@dataclass
class Zombie:
    """A replaced driver. It is paused until it is due to wake, and is killed some time later."""

    process: subprocess.Popen[bytes]
    due: float
    is_awake: bool = False


class Round:
    """A round: one query with its own topics runs while its drivers are disturbed, and then its
    output is checked.
    """

    def __init__(self, broker: LocalBroker, proxy: Any, seed: int, directory: Path) -> None:
        self.broker, self.proxy, self.directory = broker, proxy, directory
        self.random = random.Random(seed)
        self.report = Report(seed)
        self.topics: list[str] = []
        self.zombies: list[Zombie] = []
        self._began = time.monotonic()
        for name in ("commits", "spool"):
            (directory / name).mkdir(parents=True)

    def run(self, seconds: float) -> Report:
        from helpers.e2e_clients import create_named_topic

        self.topics = [f"published-{self.report.seed}-{index}" for index in range(TOPICS)]
        for topic in self.topics:
            create_named_topic(self.broker.bootstrap_servers, topic, PARTITIONS)
        self._began = time.monotonic()
        self.driver = self._start()
        try:
            while time.monotonic() < self._began + seconds:
                time.sleep(self.random.uniform(0.02, 0.8))
                if self.driver.poll() is not None:
                    self._note("driver ended by itself")
                    self.driver = self._start()
                self._see_to_zombies()
                self._disturb()
            self._heal()
        finally:
            self.proxy.clear()
            for process in [self.driver, *(zombie.process for zombie in self.zombies)]:
                process.kill()
                process.wait()
        self._judge()
        return self.report

    def _note(self, deed: str, more: str = "") -> None:
        """Record an action in the report and its schedule."""
        self.report.deeds[deed] += 1
        self.report.schedule.append(
            f"{time.monotonic() - self._began:8.2f} {deed} {more} (batch "
            f"{next_batch(self.directory)})"
        )

    def _start(self) -> subprocess.Popen[bytes]:
        """Start a driver."""
        self.report.sessions += 1
        command = [
            sys.executable,
            "-m",
            "torture.publisher",
            "--driver",
            self.proxy.bootstrap_servers,
            ",".join(self.topics),
        ]
        return subprocess.Popen(
            [*command, str(self.directory), f"driver-{self.report.sessions}"],
            cwd=ROOT,
            env=environment(),
        )

    def _see_to_zombies(self) -> None:
        """Wake paused drivers when their time has come, and later kill them."""
        for zombie in list(self.zombies):
            if zombie.due > time.monotonic():
                continue
            if zombie.is_awake:
                zombie.process.kill()
                zombie.process.wait()
                self.zombies.remove(zombie)
                continue
            zombie.process.send_signal(signal.SIGCONT)
            zombie.due, zombie.is_awake = time.monotonic() + self.random.uniform(0.5, 6), True
            self._note("zombie wakes")

    def _disturb(self) -> None:
        """Do one random thing to the driver, the broker or the connections."""
        deeds = (
            ["driver killed"] * 3
            + ["driver replaced"] * 3
            + ["driver paused", "broker killed", "broker paused", "connections cut"]
        )
        deed = self.random.choice([*deeds, *["frame"] * 8])
        if deed == "frame":
            self._arm(self.driver)
            return
        self._note(deed)
        if deed == "driver killed":
            self.driver.kill()
            self.driver.wait()
            self.driver = self._start()
        elif deed == "driver replaced":
            self.driver.send_signal(signal.SIGSTOP)
            self.zombies.append(Zombie(self.driver, time.monotonic() + self.random.uniform(0.3, 5)))
            self.driver = self._start()
        elif deed == "driver paused":
            self._pause(self.driver, self.random.choice((0.5, 1.5, 4.0)))
        elif deed == "broker killed":
            self.broker.kill()
            self.broker.restart()
        elif deed == "broker paused":
            assert self.broker.process is not None
            self._pause(self.broker.process, self.random.choice((0.2, 1.0, 3.0)))
        else:
            self.proxy.cut_all()

    def _pause(self, process: subprocess.Popen[Any], seconds: float) -> None:
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def _arm(self, driver: subprocess.Popen[bytes]) -> None:
        """Set a fault at a random frame, which may be sent immediately, later, or never."""
        from helpers import kafka_proxy as wire

        kind, harm = (
            self.random.choice(KINDS),
            self.random.choice(("cut", "pass then cut", "swallow", "late", "stop")),
        )
        side, after = self.random.choice(("request", "answer")), self.random.choice((0, 0, 1, 2))
        seconds = self.random.uniform(0.1, 4)

        def act(_: Any) -> Any:
            self._note(f"frame: {harm}", f"{side} {after} of {kind}")
            if harm == "late":
                time.sleep(seconds)
            elif harm == "stop":
                driver.send_signal(signal.SIGSTOP)
                threading.Timer(seconds, driver.send_signal, (signal.SIGCONT,)).start()
            return {
                "cut": wire.CUT,
                "pass then cut": wire.PASS_THEN_CUT,
                "swallow": wire.SWALLOW,
            }.get(harm, wire.PASS)

        self.proxy.clear()
        on = self.proxy.on_request if side == "request" else self.proxy.on_response
        on(getattr(wire, kind), wire.once(act, after=after))

    def _heal(self) -> None:
        """Leave only one driver, which must make progress. The transactions of the other drivers
        are ended by this driver, or time out.
        """
        self.proxy.clear()
        for process in [self.driver, *(zombie.process for zombie in self.zombies)]:
            process.kill()
            process.wait()
        self.zombies.clear()
        self.driver = self._start()
        aim, end = next_batch(self.directory) + LAST_BATCHES, time.monotonic() + 120
        while next_batch(self.directory) < aim:
            if time.monotonic() > end or self.driver.poll() is not None:
                self.report.findings.append(
                    "the last driver does not get on, and nothing is in its way"
                )
                return
            time.sleep(0.05)

    def _judge(self) -> None:
        report, empty = self.report, set()
        for path in self.directory.glob("diary-*"):
            for line in path.read_text().splitlines():
                reported = json.loads(line)
                report.failures += reported["is"] == "failed"
                if reported["is"] == "published":
                    report.already += reported["was_committed"]
                    if not reported["was_committed"] and not reported["records"]:
                        empty.add(reported["batch"])
        rows = self._rows()
        log = commit_log(self.directory)
        # A batch may be published but missing in the log, if a driver was killed after its
        # transaction had ended and before it created the log entry.
        report.batches, report.rows = len(log), len(rows)
        report.findings += judge(rows, log, empty)
        self._judge_spool(max(log, default=-1))

    def _judge_spool(self, last: int) -> None:
        """Check that spool files remain only for the batch in progress, and for the last batch if
        it had no rows.
        """
        for name in os.listdir(self.directory / "spool"):
            if int(name) < last:
                self.report.findings.append(
                    f"spool files of batch {name} are left, and {last} is committed"
                )

    def _rows(self) -> list[Row]:
        """Read the output once all transactions have ended, since read_committed readers receive
        nothing beyond an open transaction.
        """
        from helpers.e2e_clients import read_all

        self.driver.kill()
        self.driver.wait()
        # Another attempt at the first batch takes over the transactional id, which ends the open
        # transaction. It must find that the batch is already committed.
        row = EncodedRecordBatch(
            self.topics[0],
            0,
            1,
            encode_batch([NewRecord(None, value_of(0, 0, "again"), 0)], transactional=True),
        )
        options = ClientOptions((("127.0.0.1", self.broker.port),), CLIENT_ID)
        name = self.topics[0]
        with Publisher(options) as publisher:
            publisher.commit_once(
                transactional_id=name,
                group_id=name,
                batch_id=0,
                metadata="again",
                record_batches=lambda: [row],
            )
        rows = []
        for topic in self.topics:
            for seen in read_all(self.broker.bootstrap_servers, topic, timeout_s=120):
                batch, index, attempt = (seen.value or b"").decode().split("|")
                rows.append(
                    Row(topic, seen.partition, seen.offset, int(batch), int(index), attempt)
                )
        return rows


def torture(
    seconds: float, *, seed: int, directory: Path, round_s: float = ROUND_S
) -> Iterator[Report]:
    """Run rounds until the time is up, all on one broker."""
    from helpers.kafka_proxy import KafkaProxy

    end = time.monotonic() + seconds
    with KafkaProxy() as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with LocalBroker(directory / "data", settings=settings) as broker:
            proxy.broker_port = broker.port
            while (left := end - time.monotonic()) > 0:
                yield Round(broker, proxy, seed, directory / f"seed-{seed}").run(min(left, round_s))
                seed += 1


def main() -> int:
    """0: no findings."""
    parser = argparse.ArgumentParser(
        prog="python -m torture.publisher",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="in rounds of a minute")
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="of what is done when; how the processes meet it is not repeatable",
    )
    parser.add_argument("--driver", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.driver:
        Driver(*options.driver).run()
        return 0
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-publish-torture-"))
    found = False
    for report in torture(options.minutes * 60, seed=seed, directory=directory):
        print(report, flush=True)
        if report.findings:
            found = True
            print("   what was done, by seconds:", *report.schedule, sep="\n      ")
            print(
                *(f"   FOUND {finding}" for finding in report.findings[:40]),
                f"   all is kept in {directory}",
                sep="\n",
                flush=True,
            )
    if not found:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
