"""The memory of a large streaming query, and a check that each of its rows is written once.

    python -m bench.spark_scale [--rows 10000000] [--partitions 8] [--per-trigger 5000000]
        [--directory DIRECTORY] [--unjudged]

A stream on local[2] copies a topic to another one (Trigger.AvailableNow). Each written row has the
partition and offset from which it was read. At the end the partitions and offsets are counted and
summed. The resident memory of all processes is sampled each second. The report has a line for each
tenth of the time, which shows whether the memory grows. With --directory the query continues where
the last run ended, with --rows additional rows.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas import LocalBroker
from barnabas.client.cluster_reader import ClusterReader
from barnabas.protocol.compression import Codec
from barnabas.protocol.framing import decode_response, encode_request
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector.read.options import parse_source_options
from barnabas.spark_connector.read.planning import plan
from bench.common import metered, rss_mb

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

RECORDS_A_BATCH = 5_000
PRODUCE_VERSION = 7
SETTINGS = {"log.retention.ms": "-1"}
SOURCE, SINK = "large", "copied"


def fill(broker: LocalBroker, rows: int, partitions: int, size: int) -> None:
    """Produce the same encoded batch repeatedly, to one partition after the other."""
    host, port = broker.bootstrap_servers.split(":")
    whole, rest = divmod(rows // partitions, RECORDS_A_BATCH)
    with socket.create_connection((host, int(port))) as connection:
        for count, times in ((RECORDS_A_BATCH, whole), (rest, 1 if rest else 0)):
            batch = encode_batch(
                [NewRecord(None, os.urandom(size), int(time.time() * 1000))] * count,
                codec=Codec.LZ4,
            )
            for _ in range(times):
                for first in range(0, partitions, 50):
                    some = range(first, min(first + 50, partitions))
                    _produce(connection, [PartitionProduceData(at, batch) for at in some])


def _produce(connection: socket.socket, data: list[PartitionProduceData]) -> None:
    """Send a Produce, and check that every partition accepted its batch."""
    request = ProduceRequest(None, -1, 30_000, [TopicProduceData(SOURCE, partition_data=data)])
    connection.sendall(encode_request(request, PRODUCE_VERSION, 1, "bench"))
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    answer = decode_response(ProduceResponse, _exactly(connection, size), PRODUCE_VERSION)[1]
    codes = {part.error_code for topic in answer.responses for part in topic.partition_responses}
    assert codes == {0}, codes


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Receive exactly that many bytes."""
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        assert part, "the broker hung up"
        received += part
    return bytes(received)


class Memory:
    """The resident MB of this process's descendants, by kind of process, sampled each second."""

    def __init__(self) -> None:
        self.looks: list[dict[str, float]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(1.0):
            self.looks.append(look())

    def report(self) -> None:
        """Print the highest sample of each tenth of the time, and of the whole time."""
        names = sorted({name for each in self.looks for name in each})
        print("  ".join(["", *(f"{name:>12}" for name in names)]))
        width = -(-len(self.looks) // 10)
        tenths = [self.looks[at : at + width] for at in range(0, len(self.looks), width)]
        for looks in (*tenths, self.looks):
            highest = (max(each.get(name, 0.0) for each in looks) for name in names)
            print("  ".join(["", *(f"{value:>9.0f} MB" for value in highest)]))


def look() -> dict[str, float]:
    """For each kind of process, the resident MB of its largest process."""
    parents: dict[int, int] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            parents[int(directory.name)] = int(fields[1])
        except OSError:  # the process has just ended
            continue
    ours = {os.getpid()}
    for pid in sorted(parents):
        if parents[pid] in ours:
            ours.add(pid)
    largest: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for pid in ours - {os.getpid()}:
        try:
            name, used = kind_of(pid), rss_mb(pid)
        except OSError:
            continue
        counts[name] += 1
        largest[name] = max(largest.get(name, 0.0), used)
    return largest


def kind_of(pid: int) -> str:
    """The kind of a process, by its command line."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    if "barnabas" in command:
        return "broker"
    if command[0].endswith("java"):
        return "driver's JVM"
    module = command[command.index("-m") + 1] if "-m" in command else "other"
    return "tasks" if module == "pyspark.daemon" else module.rpartition(".")[2][:12]


def copy(spark: SparkSession, broker: LocalBroker, per_trigger: int, scratch: str) -> int:
    """Copy the source topic to the sink topic. Gives: the number of micro-batches."""
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    rows = (
        spark.readStream.format("barnabas")
        .options(**servers, subscribe=SOURCE, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", str(per_trigger))
        .load()
    )
    query = (
        rows.selectExpr("concat(partition, ':', offset) AS value")
        .writeStream.format("barnabas")
        .options(**servers, topic=SINK, checkpointLocation=f"{scratch}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None and progress["sink"]["numOutputRows"]
    return int(progress["batchId"]) + 1


def judge(spark: SparkSession, broker: LocalBroker) -> int:
    """Check that the sink has each offset of each partition once. Gives: the number of rows.

    For each partition it compares the number of offsets, the lowest and highest offset, the sum,
    and the sum of squares.
    """
    ends = ends_of(broker)
    found = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", SINK)
        .load()
        .selectExpr("split(CAST(value AS STRING), ':') AS place")
        .selectExpr("place[0] AS source", "CAST(place[1] AS BIGINT) AS offset")
        .groupBy("source")
        .agg(*map(functions_of_offset, ("count", "min", "max", "sum", "squares")))
        .collect()
    )
    assert {int(row["source"]): row["count"] for row in found} == ends, f"{found}, not {ends}"
    for row in found:
        last = row["count"] - 1
        assert (row["min"], row["max"]) == (0, last), row
        assert row["sum"] == last * (last + 1) // 2, row
        assert int(row["squares"]) == last * (last + 1) * (2 * last + 1) // 6, row
    return sum(ends.values())


def ends_of(broker: LocalBroker) -> dict[int, int]:
    """The number of records of each partition of the source."""
    options = parse_source_options(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": SOURCE}
    )
    with ClusterReader(options.client) as client:
        return {part.name.partition: part.end_offset for part in plan(client, options)}


def functions_of_offset(name: str) -> Column:
    """An aggregate of the offsets as a column: `squares` is the sum of squares, and another name is
    a function of SQL.
    """
    from pyspark.sql.functions import expr

    # DECIMAL, since the sum of squares does not fit into 64 bits.
    square = "CAST(offset * offset AS DECIMAL(28, 0))"
    return expr(f"sum({square})" if name == "squares" else f"{name}(offset)").alias(name)


def main() -> None:
    """Read the arguments, fill, copy and judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--per-trigger", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=20, help="bytes of a value")
    parser.add_argument("--directory", help="of the broker and the checkpoint, kept")
    parser.add_argument("--unjudged", action="store_true", help="count nothing in the end")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark-scale-") as temporary:
        run(options, options.directory or temporary)


def run(options: argparse.Namespace, directory: str) -> None:
    """Produce, copy and judge."""
    from barnabas.spark_connector.session import local_session

    rows = options.rows - options.rows % options.partitions
    with LocalBroker(f"{directory}/data", settings=SETTINGS) as broker:
        if not Path(directory, "checkpoint").exists():
            broker.create_topic(SOURCE, options.partitions)
            broker.create_topic(SINK, 8)
        with metered(broker) as filling:
            fill(broker, rows, options.partitions, options.size)
        print(f"filled with {rows:,} rows in {filling.wall_s:.0f} s", flush=True)
        spark = local_session("scale", cores=2, settings={"spark.log.level": "ERROR"})
        with metered(broker) as meter, Memory() as memory:
            batches = copy(spark, broker, options.per_trigger, directory)
        print(
            f"copied in {meter.wall_s:.0f} s, {rows / meter.wall_s / 1000:,.0f} k rows/s, "
            f"{batches} batches by now, broker CPU {meter.cpu_s:.0f} s"
        )
        memory.report()
        if not options.unjudged:
            print(f"each of {judge(spark, broker):,} rows is there once")
        spark.stop()


if __name__ == "__main__":
    main()
