"""How many transactions a second, and what does one cost the broker?"""

from __future__ import annotations

import subprocess
import sys
import time

from barnabas import BrokerProcess
from bench.common import Row, create_topic, metered

CASES = (
    # producers, partitions, records each, transactions each, what Kafka does
    (1, 1, 1, 2000, "104/s, 0.7 / 4 ms, 6.2 ms CPU"),
    (1, 10, 1, 1000, "49/s, 0.7 / 5.6 ms, 17.6 ms CPU"),
    (8, 1, 1, 400, "538/s, 1.3 / 5.8 ms, 2.3 ms CPU"),
    (8, 10, 10, 200, "241/s, 1.5 / 8.9 ms, 5.4 ms CPU"),
)


def transact(bootstrap_servers: str, name: str, partitions: int, records: int, count: int) -> list[float]:
    """Run `count` transactions; the seconds that each commit took."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": name, "linger.ms": 0})
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


def run(scale: float = 1.0) -> list[Row]:
    """One flush, then commit, with confluent-kafka; each producer is a process of its own."""
    rows = []
    for producers, partitions, records, count, kafka in CASES:
        count = max(20, int(count * scale))
        with BrokerProcess() as broker:
            create_topic(broker, "bench", partitions)
            transact(broker.bootstrap_servers, "warm-up", partitions, records, 20)
            command = [sys.executable, "-m", "bench.transactions", broker.bootstrap_servers]
            with metered(broker) as meter:
                workers = [
                    subprocess.Popen([*command, f"txn-{n}", *map(str, (partitions, records, count))], stdout=subprocess.PIPE, text=True)
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
    return rows


if __name__ == "__main__":
    servers, name, *numbers = sys.argv[1:]
    transact(servers, name + "-warm", *(int(n) for n in numbers[:2]), 5)
    start = time.perf_counter()
    taken = transact(servers, name, *(int(n) for n in numbers))
    print(time.perf_counter() - start, *taken)
