"""The speed of the connector's reads, with numpy and with numba: decoding only, reading over a
socket, and a whole Spark job on local[2].

    python -m bench.spark_read [--rows 2000000] [--size 100] [--headers] [--no-spark]
                               [--setting NAME=VALUE ...]

Decoding needs no broker, since record batches are built in memory. The other two measurements first
publish the rows to a broker. Seconds are CPU time of the reader for work in a single thread, and
otherwise wall time. numba's loops are loaded before the measurement, and the time for that is
printed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa

from barnabas import LocalBroker
from barnabas.client.cluster_reader import ClusterReader
from barnabas.protocol.compression import Codec
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector.arrow.decoding import decode
from barnabas.spark_connector.arrow.numba_loops import (
    CompiledLoops,
    UnavailableError,
    compile_loops,
    load,
)
from barnabas.spark_connector.arrow.record_batches import select_record_batches
from barnabas.spark_connector.read.options import parse_source_options
from barnabas.spark_connector.read.planning import plan
from barnabas.spark_connector.read.reading import COLUMNS, read_range
from bench.common import create_topic, metered
from bench.spark_idle import Cpu, cpu_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TOPIC = "spark-read"
COLUMNS_WITHOUT_HEADERS = [name for name in COLUMNS if name != "headers"]


def fetch_of(
    rows: int,
    per_batch: int,
    size: int,
    *,
    vary: bool = False,
    codec: Codec = Codec.NONE,
    headers: bool = False,
) -> bytes:
    """The response to a fetch, with rows of JSON-like text in batches of `per_batch`."""
    chance = random.Random(1)
    text = b'{"origin":"JFK","month":7,"note":"' + bytes(
        chance.choices(b"abcdefghijklmnopqrstuvwxyz ", k=2 * size)
    )
    out = bytearray()
    for start in range(0, rows, per_batch):
        records = [
            NewRecord(
                b"%08d" % (row % 100_000_000),
                text[: chance.randint(size // 2, size * 3 // 2) if vary else size],
                1_700_000_000_000 + row,
                (("trace", b"%d" % row),) if headers else (),
            )
            for row in range(start, min(start + per_batch, rows))
        ]
        out += encode_batch(records, base_offset=start, codec=codec)
    return bytes(out)


def decoders() -> dict[str, CompiledLoops | None]:
    """The available decoders, by the value of the option `decoder`. Prints how long they take to
    load.
    """
    found: dict[str, CompiledLoops | None] = {"numpy": None}
    try:
        start = time.process_time()
        found["numba"] = load()
        imported = time.process_time() - start
    except UnavailableError as error:
        print(f"no numba: {error}")
        return found
    start = time.process_time()
    compile_loops(cache=False)
    print(
        f"numba: imported and loaded (or compiled, the first time) in {imported:.1f} s; compiled "
        f"in {time.process_time() - start:.1f} s"
    )
    return found


def decoding(rows: int, size: int, ways: dict[str, CompiledLoops | None]) -> None:
    """Print how many rows are decoded per second of one thread's CPU time. Each fetch has at most
    16 MB, and checksums are verified.
    """
    print(
        f"decoding, {size} B, one thread, rows/s:{'':<5}", "".join(f"{name:>14}" for name in ways)
    )
    cases: list[tuple[str, dict[str, object]]] = [
        ("1,000 a batch", {"per_batch": 1000}),
        ("9,000 a batch", {"per_batch": 9000}),
        ("140 a batch", {"per_batch": 140}),
        ("10 a batch", {"per_batch": 10}),
        ("variable size", {"per_batch": 1000, "vary": True}),
        ("with headers", {"per_batch": 1000, "headers": True}),
        *((codec.name.lower(), {"per_batch": 1000, "codec": codec}) for codec in Codec if codec),
    ]
    rows = min(rows, 16_000_000 // (size + 30))
    for name, shape in cases:
        buffer = fetch_of(rows, size=size, **shape)  # type: ignore[arg-type]
        best = [
            min(_decode_once(buffer, rows, loops, headers="headers" in shape) for _ in range(5))
            for loops in ways.values()
        ]
        print(f"  {name:<36}", "".join(f"{rows / seconds:>14,.0f}" for seconds in best))


def _decode_once(buffer: bytes, rows: int, loops: CompiledLoops | None, *, headers: bool) -> float:
    """The CPU seconds of decoding the answer to a fetch once."""
    start = time.process_time()
    selection = select_record_batches(buffer, None, start_offset=0, end_offset=rows)
    parts = decode(
        buffer,
        selection.record_batches,
        start_offset=0,
        end_offset=rows,
        headers=headers,
        loops=loops,
    )
    assert sum(len(part.offset) for part in parts) == rows
    return time.process_time() - start


def publish(broker: LocalBroker, rows: int, size: int, *, headers: bool = False) -> None:
    """Publish rows with librdkafka, in batches of its default size."""
    from confluent_kafka import Producer

    create_topic(broker, TOPIC, 2)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 2,
        }
    )
    value = bytes(random.Random(1).choices(b"abcdefghijklmnopqrstuvwxyz ", k=size))
    for row in range(rows):
        while True:
            try:
                more = {"headers": [("trace", b"%d" % row)]} if headers else {}
                producer.produce(TOPIC, value, b"%08d" % row, partition=row & 1, **more)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def over_a_socket(broker: LocalBroker, rows: int, decoder: str, *, headers: bool) -> None:
    """Fetch and decode all rows in one process."""
    options = parse_source_options(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": TOPIC}
    )
    columns = list(COLUMNS) if headers else COLUMNS_WITHOUT_HEADERS
    cpu_s = time.process_time()
    with metered(broker) as meter, ClusterReader(options.client) as client:
        count = 0
        for wanted in plan(client, options):
            for batch in read_range(
                client,
                wanted,
                columns,
                read_committed=True,
                fail_on_data_loss=True,
                decoder=decoder,
            ):
                count += batch.num_rows
    cpu_s = time.process_time() - cpu_s
    assert count == rows, f"{count} rows came instead of {rows}"
    print(
        f"one reader, fetch included, {decoder}: {rows / meter.wall_s:,.0f} rows/s, "
        f"{rows / cpu_s:,.0f} per s of its CPU (broker CPU {meter.cpu_s:.2f} s)"
    )


class Turn(NamedTuple):
    """The cost of one job: wall seconds, and CPU seconds of JVM, Python and broker."""

    wall_s: float
    cpu: Cpu


def in_spark(
    broker: LocalBroker,
    rows: int,
    ways: list[str],
    settings: dict[str, str],
    *,
    turns: int,
    headers: bool,
) -> None:
    """Run jobs of two tasks by turns, so that other load slows them equally.

    The jobs are compared with a source that repeats one ready-made Arrow batch. The time of that
    source is what Spark itself needs for such rows.
    """
    from barnabas.spark_connector.session import local_session

    spark = local_session("bench", cores=2, settings={"spark.log.level": "ERROR", **settings})
    jvm = spark.sparkContext._gateway.proc.pid
    reader = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", TOPIC)
    )
    frames = {
        way: reader.option("includeHeaders", str(headers)).option("decoder", way).load()
        for way in ways
    }
    for way in ways[-1:]:
        for schema in ("key binary, value binary", "partition int"):
            name = f"{way}, {schema.replace(' binary', '').replace(' int', '')}"
            frames[name] = reader.schema(schema).option("decoder", way).load()
    spark.dataSource.register(ready_made())
    frames["ready-made"] = spark.read.format("ready-made").option("rows", str(rows)).load()
    actions = {
        "noop": lambda frame: frame.write.format("noop").mode("overwrite").save(),
        "count()": lambda frame: frame.count(),
    }
    for frame in frames.values():
        assert frame.count() == rows
    taken: dict[tuple[str, str], list[Turn]] = {}
    print("Spark local[2]: rows/s of the best turn; CPU seconds for a million rows, medians")
    for action_name, action in actions.items():
        for _ in range(turns):
            for name, frame in frames.items():
                before, start = cpu_of(jvm, broker.pid), time.perf_counter()
                action(frame)
                wall_s = time.perf_counter() - start
                cpu = Cpu(*(b - a for a, b in zip(before, cpu_of(jvm, broker.pid), strict=True)))
                taken.setdefault((action_name, name), []).append(Turn(wall_s, cpu))
        for name in frames:
            several = taken[action_name, name]
            jvm_s, python_s, broker_s = (
                statistics.median(turn.cpu[part] for turn in several) * 1e6 / rows
                for part in range(3)
            )
            print(
                f"  {action_name:<8} {name:<20} {rows / min(several).wall_s:>11,.0f}   "
                f"{jvm_s + python_s + broker_s:.2f}: JVM {jvm_s:.2f}, Python {python_s:.2f}, "
                f"broker {broker_s:.2f}",
                flush=True,
            )
    spark.stop()


def ready_made() -> type:
    """The baseline: a source with the connector's columns and two partitions, which sends the same
    prepared RecordBatch again and again, so that Python does almost nothing.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from barnabas.spark_connector.source import SCHEMA

    schema = pa.schema([(name, COLUMNS[name]) for name in COLUMNS_WITHOUT_HEADERS])

    class Reader(DataSourceReader):  # type: ignore[misc]
        def __init__(self, rows: int) -> None:
            self.rows = rows

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(0), InputPartition(1)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            count = 3500
            row = {
                "key": b"12345678",
                "value": b"x" * 100,
                "topic": "spark-read",
                "partition": 1,
                "offset": 5,
                "timestamp": 1_700_000_000_000_000,
                "timestampType": 0,
            }
            batch = pa.RecordBatch.from_pylist([row] * count, schema)
            for left in range(self.rows // 2, 0, -count):
                yield batch.slice(0, min(left, count))

    class ReadyMade(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "ready-made"

        def schema(self) -> StructType:
            return SCHEMA

        def reader(self, schema: StructType) -> Reader:
            return Reader(int(self.options["rows"]))

    return ReadyMade


def main() -> None:
    """Read the arguments and run the three measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument(
        "--headers", action="store_true", help="rows have a header, and the column is read"
    )
    parser.add_argument("--turns", type=int, default=4, help="of each job of Spark")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--setting", action="append", default=[], help="of Spark, NAME=VALUE")
    options = parser.parse_args()
    ways = decoders()
    decoding(options.rows, options.size, ways)
    with LocalBroker(in_memory=False) as broker:
        publish(broker, options.rows, options.size, headers=options.headers)
        for _ in range(2):
            for way in ways:
                over_a_socket(broker, options.rows, way, headers=options.headers)
        if not options.no_spark:
            settings = dict(each.split("=", 1) for each in options.setting)
            in_spark(
                broker,
                options.rows,
                list(ways),
                settings,
                turns=options.turns,
                headers=options.headers,
            )


if __name__ == "__main__":
    main()
