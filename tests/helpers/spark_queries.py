"""Starts, kills and stops queries that run as separate programs, and checks their output.

source, sink = topics_with_input(servers, records=900)
with Proof(servers, source, sink) as proof:  # reads the sink all the time, committed records only
    with Driver(query) as driver:
        ...
    assert not proof.findings()
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import checkers
import confluent_kafka

from helpers.e2e_clients import PATIENCE_S, QUIET, consumer, create_topic, read_all
from helpers.processes import environment
from helpers.spark_driver import MARK, Query

PARTITIONS = 3


def spark_environment() -> dict[str, str]:
    """The environment variables of a process that imports this checkout and runs Spark."""
    return {
        **environment(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def processes_of(session: int) -> list[int]:
    """All processes in the session of a process that was started with start_new_session. PySpark's
    workers leave the process group, but not the session.
    """
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            state, *numbers = (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(numbers[2]) == session and state != "Z":
            found.append(int(directory.name))
    return sorted(found)


def signal_all(session: int, number: signal.Signals) -> None:
    """Send the signal to all processes of the session."""
    for process in processes_of(session):
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to a process that was started with start_new_session, and to all its
    descendants. All of them are stopped first, so that none can start another process.
    """
    deadline = time.monotonic() + PATIENCE_S
    signal_all(process.pid, signal.SIGSTOP)
    while processes_of(process.pid):
        signal_all(process.pid, signal.SIGKILL)
        assert time.monotonic() < deadline, "processes cannot be killed"
        time.sleep(0.01)
    process.wait(PATIENCE_S)


class Driver:
    """The driver of a query, with its Python processes and its JVM. At the end of the context,
    processes that are still running are killed.
    """

    def __init__(self, query: Query) -> None:
        self.query = query
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the context)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Driver:
        command = [sys.executable, "-m", "helpers.spark_driver", self.query.to_json()]
        self._process = subprocess.Popen(
            command,
            env=spark_environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._output.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Send SIGKILL to all processes at once, so that none can react to the end of another."""
        assert self._process is not None
        kill_session(self._process)

    def freeze(self) -> None:
        """Stop all processes of the driver, as if its machine hung."""
        signal_all(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        signal_all(self.pid, signal.SIGCONT)

    def wait(self, timeout_s: float = 600) -> int:
        """Wait until the driver ends, and return its exit code, which is -9 if it was killed."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the driver did not end within {timeout_s:.0f} s; it said:\n{self.said()}"
            ) from None

    def said(self) -> str:
        """The output of the driver and its JVM so far."""
        self._output.flush()
        return os.pread(self._output.fileno(), 1 << 22, 0).decode(errors="replace")


class Input(NamedTuple):
    """A record of the source. The sink must have it in the same partition, since both topics are
    partitioned by key, like those of the Java client.
    """

    key: bytes
    value: bytes
    partition: int


def topics_with_input(
    servers: str, *, records: int, keys: int = 23
) -> tuple[str, str, list[Input]]:
    """Create a source topic with records and an empty sink topic. Return the two names and the
    source's records.
    """
    source, sink = (
        create_topic(servers, "source", PARTITIONS),
        create_topic(servers, "sink", PARTITIONS),
    )
    client = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "partitioner": "murmur2_random",
            "batch.num.messages": 20,
            **QUIET,
        }
    )
    written: list[Input] = []

    def on_delivery(error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        written.append(Input(message.key(), message.value(), message.partition()))

    for number in range(records):
        client.produce(source, b"v%d" % number, b"k%d" % (number % keys), on_delivery=on_delivery)
    assert client.flush(PATIENCE_S) == 0
    assert len(written) == records
    return source, sink, written


class Proof:
    """Reads the sink while the query runs, and at the end compares all records with the input.

    With `ordered`, the plan preserves the order of each key's records.
    """

    def __init__(
        self, servers: str, sink: str, written: Iterable[Input], *, ordered: bool = True
    ) -> None:
        """Start the thread that reads the sink. With `ordered`, the records of a key must keep
        their order.
        """
        self._servers, self._sink = servers, sink
        self.history = checkers.History()
        self._positions = dict.fromkeys(range(PARTITIONS), 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._problem: BaseException | None = None
        for record in written:
            value = record.value + MARK
            session = record.key if ordered else value
            self.history.write(
                value, (sink, record.partition), session=session.decode(), durable=True
            ).ok(-1)

    def __enter__(self) -> Proof:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)

    def _read(self) -> None:
        """Read the sink as a read_committed consumer until the end, and add all records to the
        history.
        """
        reader = consumer(self._servers, isolation_level="read_committed")
        try:
            reader.assign(
                [
                    confluent_kafka.TopicPartition(self._sink, index, 0)
                    for index in range(PARTITIONS)
                ]
            )
            while not self._over.is_set():
                for message in reader.consume(500, 0.2):
                    if message.error() is None:
                        partition = (self._sink, message.partition())
                        self.history.read(
                            "watcher",
                            partition,
                            message.offset(),
                            message.value(),
                            committed_only=True,
                        )
                        self._positions[message.partition()] = message.offset() + 1
        except BaseException as problem:
            self._problem = problem
        finally:
            reader.close()

    def seen(self) -> int:
        """The number of records that the concurrent reader has got so far."""
        return len(self.history.reads)

    def findings(self) -> list[checkers.Finding]:
        """Return all errors in the sink after the end of the query. No record may be missing,
        duplicated, reordered, lost after it was read, or never read.
        """
        self.history.final = final_logs(self._servers, self._sink)
        committed = sum(len(log.committed) for log in self.history.final.values())
        deadline = time.monotonic() + PATIENCE_S
        while self.seen() < committed and time.monotonic() < deadline:
            time.sleep(0.05)
        self._over.set()
        self._thread.join(PATIENCE_S)
        assert self._problem is None, self._problem
        for index in range(PARTITIONS):
            span = checkers.Span("watcher", (self._sink, index), True, 0, self._positions[index], 0)
            self.history.spans.append(span)
        return checkers.check(self.history)

    def aborted(self) -> int:
        """The number of aborted records that killed drivers have left in the sink's log."""
        return len(read_all(self._servers, self._sink, committed=False)) - len(
            read_all(self._servers, self._sink)
        )


def final_logs(servers: str, topic: str) -> dict[checkers.Partition, checkers.FinalLog]:
    """The records that read_committed consumers find. Aborted attempts have the same values as the
    committed one, so only committed records are compared.
    """
    logs: dict[checkers.Partition, checkers.FinalLog] = {}
    rows: dict[int, list[tuple[int, bytes]]] = {index: [] for index in range(PARTITIONS)}
    for seen in read_all(servers, topic):
        rows[seen.partition].append((seen.offset, seen.value or b""))
    for index, found in rows.items():
        end = found[-1][0] + 1 if found else 0
        logs[topic, index] = checkers.FinalLog(0, end, end, found, found)
    return logs
