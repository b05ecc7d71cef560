"""Two daemons that share a lease in a real etcd: the leader is killed, or stopped past its lease,
and clients with transactions go on by themselves.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from helpers.e2e_clients import PATIENCE_S, eventually
from helpers.processes import ROOT, environment

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed"),
]
TOPIC = "t"
TAKE_OVER_S = 5.0
ON_A_LOADED_MACHINE = 4


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in socks]


@contextmanager
def etcd(data_dir: Path) -> Iterator[str]:
    """HOST:PORT of an etcd of the test's own."""
    port, peer_port = free_ports(2)
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    process = subprocess.Popen(
        ["etcd", "--data-dir", str(data_dir), "--unsafe-no-fsync", "--listen-client-urls", client,
         "--advertise-client-urls", client, "--listen-peer-urls", peer,
         "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


class PairNode:
    """One daemon of the pair, on the same ports however often it starts."""

    def __init__(self, node_id: int, directory: Path, engine: str) -> None:
        self.port, replication_port = free_ports(2)
        self.ready_file, self.log = directory / f"ready{node_id}", directory / f"log{node_id}"
        settings = {
            "node.id": node_id,
            "barnabas.lease.url": f"etcd://{engine}/pair",
            "barnabas.replication.port": replication_port,
            "barnabas.replication.mode": "sync",
        }
        self._command = [
            sys.executable, "-m", "barnabas.broker.main", "start", "--port", str(self.port),
            "--data-dir", str(directory / f"data{node_id}"), "--ready-file", str(self.ready_file),
            *(part for one in settings.items() for part in ("--set", f"{one[0]}={one[1]}")),
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start the daemon."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, cwd=ROOT, env=environment()
            )

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    def answers(self) -> bool:
        """Whether it says anything to a request within a moment."""
        request = bytes.fromhex("0000000a0012000000000001ffff")  # ApiVersions 0
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as sock:
                sock.sendall(request)
                return bool(sock.recv(4))
        except OSError:
            return False


class Load:
    """A transactional producer in a thread; what a commit was answered for is in `committed`."""

    def __init__(self, servers: str) -> None:
        self.committed: list[bytes] = []
        self._ends, self._number = threading.Event(), 0
        self._servers = servers
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
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
        """Wait for two more commits. Gives how many seconds that took."""
        began_s, before = time.monotonic(), len(self.committed)
        eventually(lambda: self.failure is not None or len(self.committed) >= before + 6, what=what)
        assert self.failure is None, self.failure
        return time.monotonic() - began_s

    def end(self) -> None:
        """Stop after the transaction under way."""
        self._ends.set()
        self._thread.join(PATIENCE_S)
        assert self.failure is None, self.failure


def read_all(servers: str, count: int) -> list[bytes]:
    """What a read_committed consumer gets, up to so many values and whatever follows at once."""
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
    with etcd(tmp_path / "etcd") as engine:
        nodes = [PairNode(node_id, tmp_path, engine) for node_id in (1, 2)]
        try:
            take_over_twice(nodes)
        finally:
            for node in nodes:
                node.process.send_signal(signal.SIGCONT)
                node.process.kill()
                node.process.wait()


def take_over_twice(nodes: list[PairNode]) -> None:
    eventually(lambda: any(node.ready_file.exists() for node in nodes), what="a leader")
    leader, standby = sorted(nodes, key=lambda node: not node.ready_file.exists())
    eventually(lambda: leader.says("has caught up, and follows"), what="a standby that follows")
    servers = f"127.0.0.1:{leader.port},127.0.0.1:{standby.port}"
    load = Load(servers)
    load.goes_on("commits")

    leader.process.kill()
    leader.process.wait()
    leader.ready_file.unlink()
    began_s = time.monotonic()
    eventually(standby.answers, what="the standby's first answer")
    took_s = time.monotonic() - began_s
    clients_s = load.goes_on("commits after the kill")
    print(f"taken over {took_s:.2f} s after SIGKILL, commits again after {clients_s:.2f} s more")
    assert took_s < TAKE_OVER_S * ON_A_LOADED_MACHINE

    leader.start()
    eventually(lambda: standby.says("has caught up, and follows"), what="the old leader follows")
    load.goes_on("commits beside the old leader")
    os.kill(standby.process.pid, signal.SIGSTOP)
    eventually(leader.answers, what="the other's first answer")
    os.kill(standby.process.pid, signal.SIGCONT)
    assert not standby.answers()
    load.goes_on("commits after the stop")
    eventually(lambda: leader.log.read_text().count("has caught up, and follows") == 2,
               what="the stopped leader follows")  # fmt: skip
    load.end()
    values = read_all(servers, len(load.committed))
    assert sorted(values) == sorted(set(values)), "doubled"
    assert set(load.committed) <= set(values), "missing"
