"""Two daemons share a lease in a real etcd: the leader is killed, or is stopped for longer than its
lease, and clients with transactions continue without help.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from helpers.e2e_clients import PATIENCE_S, eventually
from helpers.pair import FOLLOWS, MAY_TAKE_OVER, PairNode, etcd, pair
from helpers.scrapes import port_in, scrape_at

from barnabas.metrics.rim.table import OF_REPLICATION

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed"),
]
TOPIC = "t"
TAKE_OVER_S = 5.0
ON_A_LOADED_MACHINE = 4


class Load:
    """A transactional producer in a thread; `committed` has the values of acknowledged commits."""

    def __init__(self, servers: str) -> None:
        self.committed: list[bytes] = []
        self._ends, self._number = threading.Event(), 0
        self._servers = servers
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Commit transactions until the end. An error is stored for the test."""
        try:
            producer = Producer(
                {"bootstrap.servers": self._servers, "transactional.id": "x",
                 "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.interval.ms": 500}
            )  # fmt: skip
            producer.init_transactions(PATIENCE_S)
            while not self._ends.is_set():
                self._commit(producer)
        except BaseException as error:
            self.failure = error

    def _commit(self, producer: Producer) -> None:
        """Commit a transaction of three records; if it has to be aborted, its values are not
        expected.
        """
        values = [b"%d-%d" % (self._number, at) for at in range(3)]
        self._number += 1
        producer.begin_transaction()
        for value in values:
            producer.produce(TOPIC, value)
        while True:
            try:
                producer.commit_transaction(PATIENCE_S)
                break
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    producer.abort_transaction(PATIENCE_S)
                    return
                if not error.args[0].retriable():
                    raise
        self.committed += values

    def goes_on(self, what: str) -> float:
        """Wait for two more commits. Gives: the seconds that they took."""
        began_s, before = time.monotonic(), len(self.committed)
        eventually(lambda: self.failure is not None or len(self.committed) >= before + 6, what=what)
        assert self.failure is None, self.failure
        return time.monotonic() - began_s

    def end(self) -> None:
        """Stop the producer after the current transaction."""
        self._ends.set()
        self._thread.join(PATIENCE_S)
        assert self.failure is None, self.failure


def read_all(servers: str, count: int) -> list[bytes]:
    """The values that a read_committed consumer gets: `count` values, and any that follow
    immediately.
    """
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest",
         "isolation.level": "read_committed", "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe([TOPIC])
    values: list[bytes] = []
    ends_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_s:
        message = consumer.poll(1.0)
        if message is None and len(values) >= count:
            break
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


def test_clients_go_on_when_a_leader_is_killed_or_stopped(tmp_path: Path) -> None:
    with etcd(tmp_path / "etcd") as (engine, _), pair(tmp_path, engine) as (leader, standby):
        take_over_twice(leader, standby)


def take_over_twice(leader: PairNode, standby: PairNode) -> None:
    """Kill the leader, start it again as the standby, then stop the new leader's process for longer
    than its lease. Clients continue each time, and no committed record is lost or doubled.
    """
    servers = f"{leader.servers},{standby.servers}"
    load = Load(servers)
    load.goes_on("commits")

    leader.kill()
    began_s = time.monotonic()
    eventually(standby.answers, what="the standby's first answer")
    took_s = time.monotonic() - began_s
    clients_s = load.goes_on("commits after the kill")
    print(f"taken over {took_s:.2f} s after SIGKILL, commits again after {clients_s:.2f} s more")
    assert took_s < TAKE_OVER_S * ON_A_LOADED_MACHINE

    leader.start()
    eventually(lambda: standby.says(FOLLOWS), what="the old leader follows")
    eventually(lambda: standby.says(MAY_TAKE_OVER), what="the old leader may take over")
    load.goes_on("commits beside the old leader")
    os.kill(standby.process.pid, signal.SIGSTOP)
    eventually(leader.answers, what="the other's first answer")
    os.kill(standby.process.pid, signal.SIGCONT)
    assert not standby.answers()
    load.goes_on("commits after the stop")
    eventually(lambda: leader.says(FOLLOWS, 2), what="the stopped leader follows")
    load.end()
    values = read_all(servers, len(load.committed))
    assert sorted(values) == sorted(set(values)), "doubled"
    assert set(load.committed) <= set(values), "missing"


def test_the_leaders_metrics_show_whether_a_standby_follows(tmp_path: Path) -> None:
    settings = {"barnabas.metrics.port": 0}
    with etcd(tmp_path / "etcd") as (engine, _), pair(tmp_path, engine, settings) as (one, other):
        seen = scrape_at(port_in(one.log.read_text()) or 0)
        shown = {name: kind for name, kind in seen.kinds.items() if "_replication_" in name}
        assert shown == {metric.name: metric.kind.value for metric in OF_REPLICATION}
        assert seen.of("barnabas_replication_info", role="leader", mode="sync") == 1
        assert seen.of("barnabas_replication_standby_follows") == 1
        assert seen.of("barnabas_replication_standby_in_sync") == 1
        epoch = seen.of("barnabas_replication_leader_epoch")
        one.kill()
        eventually(other.answers, what="the standby's first answer")
        port = eventually(lambda: port_in(other.log.read_text()), what="the port of its metrics")
        alone = scrape_at(port)
        assert alone.of("barnabas_replication_leader_epoch") > epoch
        assert alone.of("barnabas_replication_standby_follows") == 0
        assert alone.of("barnabas_replication_standby_in_sync") == 0
