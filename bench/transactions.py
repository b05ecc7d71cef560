"""How many transactions a second, and what does one cost the broker?"""

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
from barnabas.protocol.records import NewRecord, encode_batch
from bench.common import Row, create_topic, metered

CASES = (
    # producers, partitions, records each, transactions each, what Kafka does
    (1, 1, 1, 2000, "104/s, 0.7 / 4 ms, 6.2 ms CPU"),
    (1, 10, 1, 1000, "49/s, 0.7 / 5.6 ms, 17.6 ms CPU"),
    (8, 1, 1, 400, "538/s, 1.3 / 5.8 ms, 2.3 ms CPU"),
    (8, 10, 10, 200, "241/s, 1.5 / 8.9 ms, 5.4 ms CPU"),
)


def transact(
    bootstrap_servers: str, name: str, partitions: int, records: int, count: int
) -> list[float]:
    """Run `count` transactions; the seconds that each commit took."""
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


def transact_plainly(port: int, count: int) -> list[float]:
    """Run `count` transactions of one record with the bare requests, one after the other; the
    seconds that each took.

    librdkafka waits a millisecond before it registers a transaction's first partition; this client
    does not, so it shows what the broker can.
    """
    producer_id, producer_epoch, taken = -1, -1, []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = sock.makefile("rb")

        def call(request: Message, version: int) -> bytes:
            sock.sendall(encode_request(request, version, 1, "bench"))
            (size,) = struct.unpack(">i", stream.read(4))
            return stream.read(size)

        call(FindCoordinatorRequest(key="plain", key_type=1), 2)
        answer = call(
            InitProducerIdRequest(transactional_id="plain", transaction_timeout_ms=60_000), 0
        )
        producer_id, producer_epoch = struct.unpack(">qh", answer[-10:])
        for sequence in range(count):
            began = time.perf_counter()
            added = AddPartitionsToTxnTopic("bench", [0])
            call(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id="plain",
                    v3_and_below_producer_id=producer_id,
                    v3_and_below_producer_epoch=producer_epoch,
                    v3_and_below_topics=[added],
                ),
                0,
            )
            batch = encode_batch(
                [NewRecord(None, b"x" * 100, 1_700_000_000_000)],
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
            data = TopicProduceData("bench", partition_data=[PartitionProduceData(0, batch)])
            call(
                ProduceRequest(
                    transactional_id="plain", acks=-1, timeout_ms=1000, topic_data=[data]
                ),
                7,
            )
            answer = call(
                EndTxnRequest(
                    transactional_id="plain",
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    committed=True,
                ),
                1,
            )
            assert answer[-2:] == b"\0\0", f"the commit was answered with {answer!r}"
            taken.append(time.perf_counter() - began)
        stream.close()
    return taken


def run(scale: float = 1.0) -> list[Row]:
    """One flush, then commit, with confluent-kafka; each producer is a process of its own. Then the
    bare requests.
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
    count = max(20, int(2000 * scale))
    with LocalBroker(in_memory=False) as broker:
        create_topic(broker, "bench", 1)
        with metered(broker) as meter:
            taken = sorted(transact_plainly(broker.port, count))
    rows.append(
        Row(
            "1 producer x 1 partition, bare requests",
            f"{meter.cpu_s / count * 1e3:.2f} ms a transaction",
            f"{count / sum(taken):,.0f}/s, whole p50 {taken[count // 2] * 1e3:.1f} / p99 "
            f"{taken[int(count * 0.99)] * 1e3:.1f} ms",
            "-",
            "-",
        )
    )
    return rows


if __name__ == "__main__":
    servers, name, *numbers = sys.argv[1:]
    transact(servers, name + "-warm", *(int(n) for n in numbers[:2]), 5)
    start = time.perf_counter()
    taken = transact(servers, name, *(int(n) for n in numbers))
    print(time.perf_counter() - start, *taken)
