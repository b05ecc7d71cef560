"""The cost of a restart with more partitions than descriptors.

    python -m bench.restarts [--partitions N] [--limit N]

The real daemon runs under a limit of descriptors. Its partitions are created and written to, and
the daemon is stopped and killed by turns. A second client repeats ApiVersions without pause. Its
longest wait shows whether the event loop is blocked. Figures are the daemon's CPU time, wall time,
memory, and maximum number of descriptors.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas import LocalBroker
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from bench.common import cpu_seconds, rss_mb
from bench.sockets import Client

PARTITIONS, LIMIT = 100_000, 20_000
A_TOPIC, A_REQUEST = 10_000, 500  # partitions
LONGEST_START_S = 1800.0
ASKED_EVERY_S, LOOKED_AT_EVERY_S = 0.02, 0.5
VALUE = b"x" * 100


class Watcher:
    """Watches a daemon during an operation. It records the maximum number of descriptors, and the
    longest wait for a response.
    """

    def __init__(self, broker: LocalBroker) -> None:
        self.most_descriptors, self.longest_s = 0, 0.0
        self._broker, self._is_over = broker, threading.Event()
        self._threads = [threading.Thread(target=self._look), threading.Thread(target=self._ask)]
        for thread in self._threads:
            thread.start()

    def _look(self) -> None:
        """Watch the number of the broker's descriptors, in a thread."""
        while True:
            self.most_descriptors = max(self.most_descriptors, descriptors(self._broker.pid))
            if self._is_over.wait(LOOKED_AT_EVERY_S):
                return

    def _ask(self) -> None:
        """Repeat a request of another client, in a thread, and record the longest response time."""
        client = Client(self._broker.port)
        while not self._is_over.wait(ASKED_EVERY_S):
            began = time.perf_counter()
            client.call(ApiVersionsRequest(), 0)
            self.longest_s = max(self.longest_s, time.perf_counter() - began)
        client.close()

    def end(self) -> None:
        """Stop watching."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def descriptors(pid: int) -> int:
    """How many descriptors a process has open; 0 if it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


@contextmanager
def measured(what: str, broker: LocalBroker) -> Iterator[None]:
    """A context that prints the cost of an operation on a running broker."""
    watcher = Watcher(broker)
    cpu_s, wall_s = cpu_seconds(broker.pid), time.perf_counter()
    try:
        yield
    finally:
        wall_s, cpu_s = time.perf_counter() - wall_s, cpu_seconds(broker.pid) - cpu_s
        watcher.end()
    _print(
        what, cpu_s, wall_s, rss_mb(broker.pid), watcher.most_descriptors,
        f"; the longest answer to another client {watcher.longest_s * 1000:.0f} ms",
    )  # fmt: skip


def _print(
    what: str, cpu_s: float, wall_s: float, memory_mb: float, most: int, rest: str = ""
) -> None:
    """Print a line with the cost of one step."""
    print(
        f"{what}: {cpu_s:.1f} s of CPU, {wall_s:.1f} s, {memory_mb:.0f} MB, at most {most:,} "
        f"descriptors{rest}",
        flush=True,
    )


def started(what: str, broker: LocalBroker) -> None:
    """Start the daemon, and print the cost up to the time when it listens."""
    most, is_over = 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not is_over.wait(0.1):
            if broker.process is not None:
                most = max(most, descriptors(broker.process.pid))

    looking = threading.Thread(target=look)
    looking.start()
    began = time.perf_counter()
    broker.start(LONGEST_START_S)
    wall_s = time.perf_counter() - began
    cpu_s, memory_mb = cpu_seconds(broker.pid), rss_mb(broker.pid)
    is_over.set()
    looking.join()
    _print(what, cpu_s, wall_s, memory_mb, most)


def stopped(broker: LocalBroker) -> None:
    """Stop the daemon cleanly, and print the cost. There is no time limit."""
    process, most = broker.process, 0
    assert process is not None
    before_s, began = cpu_seconds(process.pid), time.perf_counter()
    cpu_s, memory_mb = before_s, 0.0
    process.send_signal(signal.SIGTERM)
    while process.poll() is None:
        try:
            cpu_s, memory_mb = cpu_seconds(process.pid), rss_mb(process.pid) or memory_mb
        except OSError:
            break
        most = max(most, descriptors(process.pid))
        time.sleep(0.05)
    code = process.wait()
    assert code == 0, f"the daemon ended with {code}:\n" + broker.log_tail(20)
    _print("a clean stop", cpu_s - before_s, time.perf_counter() - began, memory_mb, most)
    broker.stop()  # The process has already ended, so this only closes its pipes.


def create(broker: LocalBroker, topics: dict[str, int]) -> None:
    """Create all topics."""
    client = Client(broker.port)
    for name, partitions in topics.items():
        topic = CreatableTopic(name, partitions, replication_factor=1)
        client.call(CreateTopicsRequest([topic], timeout_ms=60_000), 5)
    client.close()


def write(broker: LocalBroker, topics: dict[str, int]) -> None:
    """Write one batch to each partition, and check that the broker accepts all of them."""
    client = Client(broker.port)
    batch = encode_batch([NewRecord(None, VALUE, time.time_ns() // 1_000_000)])
    for name, partitions in topics.items():
        for first in range(0, partitions, A_REQUEST):
            rows = [
                PartitionProduceData(index, batch)
                for index in range(first, min(first + A_REQUEST, partitions))
            ]
            data = [TopicProduceData(name, partition_data=rows)]
            request = ProduceRequest(None, -1, 60_000, data)
            answer = ProduceResponse.read(client.call(request, 7), 4, 7)[0]
            for row in answer.responses[0].partition_responses:
                assert row.error_code == 0, f"{name}-{row.index}: error {row.error_code}"
    client.close()


def run(partitions: int, directory: str) -> None:
    """Run the whole benchmark on a directory."""
    count = -(-partitions // A_TOPIC)
    topics = {f"t{number}": min(A_TOPIC, partitions - number * A_TOPIC) for number in range(count)}
    broker = LocalBroker(directory)
    started("a start on an empty directory", broker)
    with measured(f"{partitions:,} partitions are created", broker):
        create(broker, topics)
    with measured("the first batch for each", broker):
        write(broker, topics)
    with measured("the next batch for each", broker):
        write(broker, topics)
    stopped(broker)
    started("a start after a clean stop", broker)
    with measured("a batch for each", broker):
        write(broker, topics)
    broker.kill()
    started("a start after a kill", broker)
    with measured("a batch for each", broker):
        write(broker, topics)
    broker.kill()
    started("a start after a second kill", broker)
    stopped(broker)
    started("a start after a clean stop", broker)
    stopped(broker)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.restarts", description=__doc__)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--limit", type=int, default=LIMIT, help="RLIMIT_NOFILE of the daemon")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (options.limit, options.limit))
    directory = tempfile.mkdtemp(prefix="barnabas-bench-", dir=os.environ.get("BENCH_DIR"))
    try:
        run(options.partitions, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
