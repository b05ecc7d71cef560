"""Existing share consumers (librdkafka's, Java's or Go's) on one topic. The consumers and the
broker are killed at random.

    PYTHONPATH=tests/tools:tests:. python -m torture.sharing --seconds 60 --seed 7 [--member CMD]

Each member is a process. It writes each acknowledgement (accept or reject) to its diary before
sending it, and the response before it continues, so nothing that a killed member knew is lost. At
the end, every record must have been delivered and acknowledged, with nothing left for the group. No
acknowledgement that got a response may be lost: its record is not acknowledged again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from helpers.processes import ROOT, environment

from barnabas import LocalBroker

GROUP, TOPIC = "couriers", "deliveries"
PARTITIONS, MEMBERS = 4, 3
LOCK_MS = 1000
SETTINGS = {
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.assignment.interval.ms": "0",
    "group.share.delivery.count.limit": "10",
    "group.share.max.delivery.count.limit": "10",
}
ATTEMPT, DONE, RENEWED = "attempt", "done", "renewed"


class Report(NamedTuple):
    """The result of a run. `finished` is the number of records whose acknowledgement got a
    response, and `renewed` the number of these records whose renewal got one. `missing` has the
    values that no member has tried to acknowledge, and `twice` the values of which two deliveries
    were acknowledged with a response. `left` is the number of records that the group has not
    finished.
    """

    records: int
    finished: int
    renewed: int
    kills: int
    broker_kills: int
    missing: list[str]
    twice: list[str]
    left: int


def work(servers: str, path: str, seed: int) -> None:
    """The main function of a member that uses librdkafka; it runs until it is killed."""
    from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

    rng = random.Random(seed)
    member = ShareConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    member.subscribe([TOPIC])
    with open(path, "a", buffering=1, encoding="utf-8") as diary:
        while True:
            try:
                records = [one for one in member.poll(timeout=0.5) if not one.error()]
                accepted = []
                for record in records:
                    kind = AcknowledgeType.RELEASE if rng.random() < 0.1 else AcknowledgeType.ACCEPT
                    if kind == AcknowledgeType.ACCEPT:
                        accepted.append([record.partition(), record.value().decode()])
                    member.acknowledge(record, kind)
                diary.write(json.dumps([ATTEMPT, accepted]) + "\n")
                answers = member.commit_sync(10)
                stored = {at.partition for at, error in answers.items() if error is None}
                done = [value for partition, value in accepted if partition in stored]
                diary.write(json.dumps([DONE, done]) + "\n")
            except KafkaException as error:
                diary.write(json.dumps(["failed", str(error)]) + "\n")


class Run:
    """The members and the broker of a run, which are killed at random. For `member`, see `run`."""

    def __init__(
        self, broker: LocalBroker, directory: str, seed: int, member: Sequence[str]
    ) -> None:
        self.broker, self.directory, self.random = broker, Path(directory), random.Random(seed)
        self.member = member
        self.members: list[subprocess.Popen[bytes]] = []
        self.started = self.kills = self.broker_kills = 0

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start a member."""
        self.started += 1
        servers, seed = self.broker.bootstrap_servers, str(self.random.random())
        diary = str(self.directory / f"{self.started}.diary")
        if self.member:
            return subprocess.Popen([*self.member, servers, GROUP, TOPIC, diary, seed])
        command = [sys.executable, "-m", "torture.sharing", "--worker", servers, diary]
        return subprocess.Popen([*command, "--seed", seed], cwd=ROOT, env=environment())

    def produce(self, first: int, count: int) -> None:
        """Write numbered records."""
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "log_level": 0,
            }
        )
        for number in range(first, first + count):
            producer.produce(TOPIC, f"{number}".encode())
        assert producer.flush(60) == 0

    def torture(self, seconds: float) -> int:
        """Kill members and the broker at random. Gives: the number of records written."""
        records, end = 0, time.monotonic() + seconds
        self.members = [self.spawn() for _ in range(MEMBERS)]
        while time.monotonic() < end:
            self.produce(records, 200)
            records += 200
            time.sleep(self.random.uniform(0.5, 2))
            if self.random.random() < 0.3:
                self.broker.kill()
                self.broker.start()
                self.broker_kills += 1
            else:
                rank = self.random.randrange(MEMBERS)
                self.members[rank].kill()
                self.members[rank].wait()
                self.members[rank] = self.spawn()
                self.kills += 1
        return records

    def rows(self, kind: str) -> Iterator[Any]:
        """Yield the entries of one kind in the diaries of all members."""
        for path in self.directory.glob("*.diary"):
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # a kill truncated this line
                if row[0] == kind:
                    yield from row[1]

    def missing(self, records: int) -> list[str]:
        tried = {value for _, value in self.rows(ATTEMPT)}
        return sorted({str(number) for number in range(records)} - tried, key=int)

    def left(self) -> int:
        """The number of records that the group has not finished. A partition for which this number
        is unknown counts as one record.
        """
        command = [
            sys.executable, "-m", "barnabas", "groups", "describe", GROUP, "--json",
            "--bootstrap-server", self.broker.bootstrap_servers,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, check=True)
        (row,) = json.loads(done.stdout)
        lags = [one["lag"] for one in row["partitions"]]
        return sum(1 if lag is None else lag for lag in lags) + PARTITIONS - len(lags)

    def heal(self, records: int, patience_s: float) -> Report:
        """Wait until all records are finished, or the time is up."""
        end = time.monotonic() + patience_s
        while (missing := self.missing(records)) or (left := self.left()):
            if time.monotonic() > end:
                left = self.left()
                break
            time.sleep(0.5)
        done = Counter(self.rows(DONE))
        twice = sorted((value for value, count in done.items() if count > 1), key=int)
        renewed = len(set(self.rows(RENEWED)))
        return Report(
            records, len(done), renewed, self.kills, self.broker_kills, missing, twice, left
        )

    def end(self) -> None:
        for member in self.members:
            member.kill()
            member.wait()


def java(class_path: str) -> list[str]:
    """The command that starts a Java member."""
    limits = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *limits, "-cp", class_path, "ShareWorker"]


def run(seconds: float, seed: int, patience_s: float = 90, member: Sequence[str] = ()) -> Report:
    """Start a broker, and run members on it.

    Takes: member, the command of a member (tests/clients), which gets the arguments server, group,
    topic, diary and seed; by default members use librdkafka.
    """
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalBroker(settings=SETTINGS, topics={TOPIC: PARTITIONS}) as broker,
    ):
        command = [
            sys.executable, "-m", "barnabas", "config", "set", "group", GROUP,
            "share.auto.offset.reset=earliest", "--bootstrap-server", broker.bootstrap_servers,
        ]  # fmt: skip
        subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, check=True)
        one = Run(broker, directory, seed, member)
        try:
            return one.heal(one.torture(seconds), patience_s)
        finally:
            one.end()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torture.sharing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", default=str(os.getpid()))
    parser.add_argument("--member", default="", help="the command of a member; see `run`")
    parser.add_argument("--worker", nargs=2)
    options = parser.parse_args()
    if options.worker:
        work(*options.worker, seed=hash(options.seed))
    report = run(options.seconds, int(options.seed), member=shlex.split(options.member))
    print(report)
    return 1 if report.missing or report.twice or report.left else 0


if __name__ == "__main__":
    sys.exit(main())
