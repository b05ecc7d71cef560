"""The maximum number of transactions per second, and the broker's cost of a transaction."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time

from barnabas import LocalBroker
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.records import NewRecord, encode_batch
from bench.common import Row, create_topic, metered

CASES = (
    # producers, partitions, records per partition, transactions per producer, Kafka's figures
    (1, 1, 1, 2000, "104/s, 0.7 / 4 ms, 6.2 ms CPU"),
    (1, 10, 1, 1000, "49/s, 0.7 / 5.6 ms, 17.6 ms CPU"),
    (8, 1, 1, 400, "538/s, 1.3 / 5.8 ms, 2.3 ms CPU"),
    (8, 10, 10, 200, "241/s, 1.5 / 8.9 ms, 5.4 ms CPU"),
    # contract: paper/many-producers
    (32, 100, 100, 20, "-"),
)


def transact(
    bootstrap_servers: str, name: str, partitions: int, records: int, count: int
) -> list[float]:
    """Run `count` transactions. Gives: the seconds of each commit."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": name, "linger.ms": 0}
    )
    producer.init_transactions(30)
    value, commits = b"x" * 100, []
    for _ in range(count):
        producer.begin_transaction()
        for number in range(max(records, partitions)):
            producer.produce("bench", value, partition=number % partitions)
        producer.flush()
        began = time.perf_counter()
        producer.commit_transaction(30)
        commits.append(time.perf_counter() - began)
    return commits


class PlainProducer:
    """A transactional producer that sends bare requests, one after the other, in either version of
    the transaction protocol.

    librdkafka waits a millisecond before it registers a transaction's first partition. This
    producer does not, so it shows the broker's limit. requests: the number of sent requests.
    """

    def __init__(
        self,
        port: int,
        name: str,
        partitions: int,
        *,
        is_version_2: bool,
        user: tuple[str, str] | None = None,
        topic: str = "bench",
    ) -> None:
        """Takes: user, a name and a password, if the listener requires them (SASL/PLAIN)."""
        self.name, self.partitions, self.is_version_2 = name, partitions, is_version_2
        self.topic = topic
        self.requests = self.sequence = 0
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        if user is not None:
            self._call(SaslHandshakeRequest("PLAIN"), 1)
            self._call(SaslAuthenticateRequest("\0{}\0{}".format(*user).encode()), 0)
        self._call(FindCoordinatorRequest(key=name, key_type=1), 2)
        answer = self._call(InitProducerIdRequest(name, 60_000), 0)
        self.producer_id, self.epoch = struct.unpack(">qh", answer[-10:])

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def _call(self, request: Message, version: int) -> bytes:
        return self.exchange(encode_request(request, version, 1, "bench"))

    def exchange(self, frame: bytes) -> bytes:
        """Send a request. Gives: the response, without the size field."""
        self._send(frame)
        return self._receive()

    def _send(self, frame: bytes) -> None:
        self.requests += 1
        self._socket.sendall(frame)

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._stream.read(4))
        return self._stream.read(size)

    def transact(self) -> None:
        """Run a transaction with a record in each partition. One Produce contains all records."""
        self.open()
        self.send_end()
        self.receive_end()

    def open(self) -> None:
        """Begin a transaction, with a record in each partition."""
        if not self.is_version_2:
            added = AddPartitionsToTxnTopic(self.topic, list(range(self.partitions)))
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[added],
            )
            self._call(request, 0)
        batch = encode_batch(
            [NewRecord(None, b"x" * 100, 1_700_000_000_000)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        rows = [PartitionProduceData(index, batch) for index in range(self.partitions)]
        data = TopicProduceData(self.topic, partition_data=rows)
        self._call(ProduceRequest(self.name, -1, 1000, [data]), 12 if self.is_version_2 else 7)

    def send_end(self) -> None:
        """Send the EndTxn that commits."""
        end = EndTxnRequest(self.name, self.producer_id, self.epoch, True)
        self._send(encode_request(end, 5 if self.is_version_2 else 1, 1, "bench"))

    def receive_end(self) -> None:
        """Receive the response to the EndTxn."""
        answer = self._receive()
        if not self.is_version_2:
            assert answer[-2:] == b"\0\0", f"the commit was answered with {answer!r}"
            self.sequence += 1
            return
        # The fields are: correlation id, tags, throttle time, code, producer id, epoch, tags.
        code, self.producer_id, self.epoch = struct.unpack_from(">hqh", answer, 9)
        assert code == 0, f"the commit was answered with {answer!r}"


def compare_versions(partitions: int, count: int) -> list[Row]:
    """Measure both versions of the transaction protocol on one broker, a tenth of the transactions
    at a time, by turns.
    """
    taken: dict[bool, list[float]] = {False: [], True: []}
    cpu_s = dict.fromkeys(taken, 0.0)
    with LocalBroker(in_memory=False) as broker:
        create_topic(broker, "bench", partitions)
        producers = {
            is_2: PlainProducer(broker.port, f"plain-{is_2}", partitions, is_version_2=is_2)
            for is_2 in taken
        }
        for _ in range(10):
            for is_2, producer in producers.items():
                with metered(broker) as meter:
                    for _ in range(count // 10):
                        began = time.perf_counter()
                        producer.transact()
                        taken[is_2].append(time.perf_counter() - began)
                cpu_s[is_2] += meter.cpu_s
        for producer in producers.values():
            producer.close()
    rows = []
    for is_2, seconds in taken.items():
        seconds.sort()
        # FindCoordinator and InitProducerId are not part of a transaction
        requests = (producers[is_2].requests - 2) / len(seconds)
        rows.append(
            Row(
                f"bare requests, version {1 + is_2}, {partitions} partition(s)",
                f"{cpu_s[is_2] / len(seconds) * 1e3:.2f} ms, {requests:.0f} requests",
                f"{len(seconds) / sum(seconds):,.0f}/s, whole p50 "
                f"{seconds[len(seconds) // 2] * 1e3:.1f} / p99 "
                f"{seconds[int(len(seconds) * 0.99)] * 1e3:.1f} ms",
                "-",
                "-",
            )
        )
    return rows


def run(scale: float = 1.0) -> list[Row]:
    """Measure confluent-kafka. Each producer is in a separate process that flushes and then
    commits. Then measure bare requests, in both versions of the protocol.
    """
    rows = []
    for producers, partitions, records, count, kafka in CASES:
        count = max(20, int(count * scale))
        with LocalBroker(in_memory=False) as broker:
            create_topic(broker, "bench", partitions)
            transact(broker.bootstrap_servers, "warm-up", partitions, records, 20)
            command = [sys.executable, "-m", "bench.transactions", broker.bootstrap_servers]
            with metered(broker) as meter:
                workers = [
                    subprocess.Popen(
                        [*command, f"txn-{n}", *map(str, (partitions, records, count))],
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                    for n in range(producers)
                ]
                outputs = [worker.communicate()[0] for worker in workers]
            assert all(worker.returncode == 0 for worker in workers), "a producer failed"
        commits = sorted(float(line) for output in outputs for line in output.split()[1:])
        seconds = max(float(output.split()[0]) for output in outputs)
        total = producers * count
        rows.append(
            Row(
                f"{producers} producer(s) x {partitions} partition(s), {records} record(s) each",
                f"{meter.cpu_s / total * 1e3:.2f} ms a transaction",
                f"{total / seconds:,.0f}/s, commit p50 {commits[len(commits) // 2] * 1e3:.1f} "
                f"/ p99 {commits[int(len(commits) * 0.99)] * 1e3:.1f} ms",
                kafka,
                "-",
            )
        )
    for partitions in (1, 10):
        rows += compare_versions(partitions, max(20, int(2000 * scale)))
    return rows


if __name__ == "__main__":
    servers, name, *numbers = sys.argv[1:]
    transact(servers, name + "-warm", *(int(n) for n in numbers[:2]), 5)
    start = time.perf_counter()
    taken = transact(servers, name, *(int(n) for n in numbers))
    print(time.perf_counter() - start, *taken)
