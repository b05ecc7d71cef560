"""What does a broker for each test cost: a thousand tests on two cores (`python -m
bench.fresh_brokers [TESTS]`)?

Each test starts a broker with one topic, produces ten records in a transaction, reads them back
with read_committed, and ends the broker. Two processes share the tests, as under `pytest -n 2`.

    broker's part    CPU of the daemons, of the fork servers (with their spares), and of the calls
                     of LocalBroker in the test process, divided by the two cores
    client's part    CPU of the test processes outside LocalBroker, and the wall time between the
                     start and the end of a broker, most of which librdkafka waits by its own
                     timers: until it looks up a coordinator again, for example
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas import LocalBroker
from barnabas.forked_daemon import FORKING
from bench.common import end_with_parent
from bench.start import metadata_answer

PROCESSES = 2
ROUNDS = 100
TOPIC = "orders"


def one_test(broker: LocalBroker) -> None:
    """Ten records in a transaction, there and back."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer = Producer({**servers, "transactional.id": "bench"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(10):
        producer.produce(TOPIC, str(number).encode())
    producer.commit_transaction(30)
    settings = {"group.id": "bench", "isolation.level": "read_committed"}
    consumer = Consumer({**servers, **settings})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    count = 0
    while count < 10:
        count += len(consumer.consume(10 - count, 30))
    consumer.close()


def make_ready() -> None:
    """Start brokers until the next one is forked."""
    while not FORKING.wait_until_ready():
        with LocalBroker():
            pass


def run_tests(count: int) -> dict[str, float]:
    """Run tests in this process. Gives: seconds of CPU and of wall time by part."""
    assert FORKING.pid is not None
    server = psutil.Process(FORKING.pid)
    seconds = dict.fromkeys(("calls", "call_wall", "client", "client_wall", "servers"), 0.0)
    before = _cpu_seconds(server)
    for _ in range(count):
        began = (time.process_time(), time.perf_counter())
        broker = LocalBroker(topics=[TOPIC]).__enter__()
        started = (time.process_time(), time.perf_counter())
        try:
            one_test(broker)
        finally:
            done = (time.process_time(), time.perf_counter())
            broker.__exit__(None, None, None)
        ended = (time.process_time(), time.perf_counter())
        for at, suffix in enumerate(("", "_wall")):
            calls = "calls" if at == 0 else "call_wall"
            seconds[calls] += started[at] - began[at] + ended[at] - done[at]
            seconds[f"client{suffix}"] += done[at] - started[at]
    seconds["servers"] = _cpu_seconds(server) - before
    return seconds


def _cpu_seconds(server: psutil.Process) -> float:
    """CPU of a fork server and of all its children. The system adds the time of one that has ended
    to that of the server.
    """
    total = sum(server.cpu_times()[:4])
    for child in server.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(child.cpu_times()[:2])
    return total


def latencies_ms(topics: dict[str, int]) -> list[float]:
    """The times from asking for a broker to its first answer, with a pause after each."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        with LocalBroker(topics=topics) as broker:
            metadata_answer(broker.port)
            times.append((time.perf_counter() - began) * 1000)
        time.sleep(0.03)  # a test's client takes longer, and the next spare is forked meanwhile
    return times


def _show_latencies() -> None:
    for what, topics in (("an empty broker", {}), ("a topic of 3 partitions", {TOPIC: 3})):
        times = sorted(latencies_ms(topics))
        print(
            f"asking to first answer, {what}: median {statistics.median(times):.1f} ms, "
            f"of 10 the slowest {times[len(times) * 9 // 10]:.1f} ms",
            flush=True,
        )


def main(count: int) -> None:
    """Measure, and print the figures."""
    make_ready()
    _show_latencies()
    command = [sys.executable, __file__, "--worker", str(count // PROCESSES)]
    began = time.perf_counter()
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    parts: list[dict[str, float]] = []
    for worker in workers:
        assert worker.stdin is not None
        assert worker.stdout is not None
        parts.append(json.loads(worker.stdout.read()))
        worker.wait()
        worker.stdin.close()
    wall = time.perf_counter() - began
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    brokers = (total["servers"] + total["calls"]) / PROCESSES
    print(
        f"{count} tests: {wall:.1f} s\n"
        f"  broker's part on {PROCESSES} cores: {brokers:.1f} s "
        f"(per test {total['servers'] / count * 1000:.1f} ms of CPU for the daemon and its fork, "
        f"{total['calls'] / count * 1000:.1f} ms for LocalBroker; "
        f"{total['call_wall'] / count * 1000:.1f} ms of wall time)\n"
        f"  client's part: {total['client'] / count * 1000:.1f} ms of CPU per test, "
        f"{total['client_wall'] / count * 1000:.1f} ms of wall time"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        end_with_parent()
        make_ready()
        print(json.dumps(run_tests(int(sys.argv[2]))))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 1000)
