"""The cost of the same work, by the number of connections.

    python -m bench.sockets [--scale X] [CASE …]

The benchmark runs whole daemons with real sockets. Each case has daemons of several sizes, which do
the same work by turns: they produce and fetch records in batches of a hundred, and run transactions
of one record. A figure is the CPU time of the daemon's loop thread (Linux's schedstat), the lowest
of several rounds, since other load can only add to it. RLIMIT_NOFILE limits the number of
connections; a daemon keeps an eighth of its descriptors for logs.
"""

from __future__ import annotations

import argparse
import resource
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from barnabas import LocalBroker
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from bench.common import create_topic, rss_mb
from bench.transactions import PlainProducer

PING = struct.pack(">ihhih", 10, 18, 0, 1, -1)
TOPIC, BATCH = "bench", 100
REQUESTS, TRANSACTIONS, ROUNDS = 50, 50, 25
DELIVERIES = 2000
IDLE_MS = 3_600_000


class Client:
    """One connection with one request at a time. offset: the offset of its next fetch."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.offset = 0

    def send(self, frame: bytes | bytearray) -> None:
        self._socket.sendall(frame)

    def answer(self) -> bytes:
        """The answer's frame."""
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def call(self, request: Message, version: int) -> bytes:
        self.send(encode_request(request, version, 1, "bench"))
        return self.answer()

    def poll(self, topic: str, max_wait_ms: int = 0) -> None:
        """Send a Fetch at `offset`. The broker may wait up to `max_wait_ms` for data."""
        rows = [FetchPartition(0, -1, self.offset, -1, -1, 1 << 20)]
        topics = [FetchTopic(topic, None, rows)]
        request = FetchRequest(None, -1, None, max_wait_ms, 1, 1 << 20, 0, 0, -1, topics)
        self.send(encode_request(request, 11, 1, "bench"))

    def _receive(self, size: int) -> bytes:
        """Receive exactly that many bytes."""
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            assert part, "the broker has hung up"
            parts += part
        return bytes(parts)

    def close(self) -> None:
        self._socket.close()


class Daemon:
    """The daemon for one size of one case, with its working and its idle clients.

    rounds: the CPU time of the loop in microseconds, first for a batch that is produced and read,
    then for a transaction.
    """

    def __init__(self, broker: LocalBroker, size: int) -> None:
        self.broker, self.size = broker, size
        for topic in (TOPIC, "quiet", "spread"):
            create_topic(broker, topic, 1)
        self.worker = Client(broker.port)
        self.producer = PlainProducer(broker.port, "bench", 1, is_version_2=False)
        batch = encode_batch([NewRecord(None, b"x" * 100, 1_700_000_000_000)] * BATCH)
        data = TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, batch)])
        self.batch = ProduceRequest(None, -1, 1000, [data])
        self.others: list[Client] = []
        self.memory_mb = 0.0
        self.rounds: list[tuple[float, ...]] = []

    def cpu_ns(self) -> int:
        """The CPU time of the loop's thread so far."""
        pid = self.broker.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])

    def connect(self, count: int) -> None:
        """Connect idle clients. memory_mb is then the memory that these connections take."""
        before = rss_mb(self.broker.pid)
        for _ in range(count):
            client = Client(self.broker.port)
            client.send(PING)
            client.answer()
            self.others.append(client)
        self.memory_mb = rss_mb(self.broker.pid) - before

    def work(self) -> None:
        """Do the measured work once."""
        began_ns = self.cpu_ns()
        for _ in range(REQUESTS):
            self.worker.call(self.batch, 7)
            self.worker.poll(TOPIC)
            assert len(self.worker.answer()) > BATCH * 100
            self.worker.offset += BATCH
        batches_ns = self.cpu_ns()
        for _ in range(TRANSACTIONS):
            self.producer.transact()
        ended_ns = self.cpu_ns()
        self.worker.offset += 2 * TRANSACTIONS  # each transaction adds a record and a marker
        self.rounds.append(
            (
                (batches_ns - began_ns) / REQUESTS / 1000,
                (ended_ns - batches_ns) / TRANSACTIONS / 1000,
            )
        )

    def spread(self) -> None:
        """Produce batches that end the waiting fetches of all readers, until the broker has sent
        `DELIVERIES` responses.
        """
        data = TopicProduceData("spread", partition_data=self.batch.topic_data[0].partition_data)
        request = ProduceRequest(None, -1, 1000, [data])
        turns = max(1, DELIVERIES // self.size)
        began_ns = self.cpu_ns()
        for _ in range(turns):
            for client in self.others:
                client.poll("spread", IDLE_MS)
            self.worker.call(request, 7)
            for client in self.others:
                client.answer()
                client.offset += BATCH
        self.rounds.append(((self.cpu_ns() - began_ns) / turns / self.size / 1000,))

    def close(self) -> None:
        for client in (self.worker, self.producer, *self.others):
            client.close()


def _connections(daemon: Daemon) -> None:
    daemon.connect(daemon.size)


def _idle_polls(daemon: Daemon) -> None:
    """Connect clients, each with a Fetch that waits for data."""
    daemon.connect(daemon.size)
    for client in daemon.others:
        client.poll("quiet", IDLE_MS)


CASES: dict[str, tuple[tuple[int, ...], Callable[[Daemon], None], Callable[[Daemon], None]]] = {
    "connections": ((10, 1000, 16_000), _connections, Daemon.work),
    "idle polls": ((10, 500, 5000), _idle_polls, Daemon.work),
    "readers of one partition": ((1, 20, 500), _connections, Daemon.spread),
}


def measured(case: str, scale: float) -> list[str]:
    """Measure one case, with daemons of all sizes by turns. Gives: the lines of its table."""
    sizes, prepare, work = CASES[case]
    lines: list[str] = []
    with ExitStack() as stack:
        daemons = []
        for size in sizes:
            # A commit has to be flushed, so the directory is on a disk, not in memory.
            broker = stack.enter_context(LocalBroker(in_memory=False))
            daemon = Daemon(broker, max(1, int(size * scale)))
            stack.callback(daemon.close)
            prepare(daemon)
            daemons.append(daemon)
        for _ in range(ROUNDS):
            for daemon in daemons:
                work(daemon)
        first: tuple[float, ...] = ()
        for daemon in daemons:
            best = tuple(min(column) for column in zip(*daemon.rounds[1:], strict=True))
            first = first or best
            cells = " | ".join(
                f"{now:.0f} ({(now / then - 1) * 100:+.0f} %)"
                for now, then in zip(best, first, strict=True)
            )
            memory_kb = daemon.memory_mb * 1024 / daemon.size
            lines.append(f"| {case} | {daemon.size:,} | {cells} | {memory_kb:.1f} |")
    return lines


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(prog="python -m bench.sockets", description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the sizes")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("| there are | how many | work, us of CPU | KB each |\n| --- | ---: | ---: | ---: |")
    for case in options.cases:
        print("\n".join(measured(case, options.scale)), flush=True)


if __name__ == "__main__":
    main()
