"""The speed of the connector's encoder, with numpy and with numba, compared with a loop over
records in Python.

    python -m bench.spark_write [--rows 1000000]

It encodes rows with 8-byte keys for ten partitions, in one thread and with checksums. The rows are
in Arrow batches of 10,000 rows, the size that Spark uses. No broker is needed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa

from barnabas.client.murmur2 import murmur2_of
from barnabas.protocol.compression import Codec
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector.arrow.encoding import RECORD_BATCH_BYTES, Compression, Encoder
from barnabas.spark_connector.arrow.numba_loops import (
    EncodingLoops,
    UnavailableError,
    load_encoding,
)

PARTITIONS = 10
ARROW_ROWS = 10_000
NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def arrow_batches(
    rows: int, size: int, *, vary: bool = False, headers: bool = False
) -> list[pa.RecordBatch]:
    """Rows of JSON-like text, in Arrow batches."""
    chance = random.Random(1)
    text = b'{"origin":"JFK","month":7,"note":"' + bytes(
        chance.choices(b"abcdefghijklmnopqrstuvwxyz ", k=3 * size)
    )
    record_batches = []
    for start in range(0, rows, ARROW_ROWS):
        numbers = range(start, min(start + ARROW_ROWS, rows))
        places = [chance.randint(0, size) for _ in numbers]
        columns = {
            "key": pa.array(
                [b"%d" % (number * 7919) if vary else b"%08d" % number for number in numbers],
                pa.binary(),
            ),
            "value": pa.array(
                [
                    text[
                        place : place + (chance.randint(size // 2, size * 3 // 2) if vary else size)
                    ]
                    for place in places
                ],
                pa.binary(),
            ),
            "timestamp": pa.array(
                [(NOW_MS + number) * 1000 for number in numbers], pa.timestamp("us", "UTC")
            ),
        }
        if headers:
            columns["headers"] = pa.array(
                [[{"key": "trace", "value": b"%d" % number}] for number in numbers], HEADERS
            )
        record_batches.append(pa.RecordBatch.from_pydict(columns))
    return record_batches


def vectorised(
    record_batches: list[pa.RecordBatch],
    codec: Codec,
    partitions: int,
    loops: EncodingLoops | None = None,
) -> int:
    """Encode all rows with the connector's encoder. Gives: the number of bytes."""
    encoder = Encoder(
        topic="bench",
        partition_counts=lambda _topic: partitions,
        compression=Compression(codec),
        now_ms=lambda: NOW_MS,
        loops_for=lambda _rows: loops,
    )
    byte_count = 0
    for batch in record_batches:
        byte_count += sum(len(encoded.data) for encoded in encoder.add(batch))
    return byte_count + sum(len(encoded.data) for encoded in encoder.finish())


def in_a_loop(record_batches: list[pa.RecordBatch], codec: Codec) -> int:
    """Encode all rows, record by record in Python. Gives: the number of bytes."""
    pending: list[list[NewRecord]] = [[] for _ in range(PARTITIONS)]
    sizes = [0] * PARTITIONS
    byte_count = 0
    for batch in record_batches:
        keys, values, timestamps = (batch.column(name) for name in ("key", "value", "timestamp"))
        milliseconds = (timestamps.cast(pa.int64()).to_numpy() // 1000).tolist()
        for key, value, timestamp in zip(
            keys.to_pylist(), values.to_pylist(), milliseconds, strict=True
        ):
            partition = (murmur2_of(key) & 0x7FFFFFFF) % PARTITIONS
            pending[partition].append(NewRecord(key, value, timestamp))
            sizes[partition] += len(key) + len(value) + 12
            if sizes[partition] >= RECORD_BATCH_BYTES:
                byte_count += len(encode_batch(pending[partition], codec=codec, transactional=True))
                pending[partition], sizes[partition] = [], 0
    return byte_count + sum(
        len(encode_batch(records, codec=codec, transactional=True))
        for records in pending
        if records
    )


def best_of(
    times: int,
    record_batches: list[pa.RecordBatch],
    codec: Codec,
    partitions: int,
    ways: list[EncodingLoops | None],
) -> list[float]:
    """The shortest of several runs of each function, in seconds of this thread's CPU time. The
    functions run by turns.
    """
    best = [float("inf")] * len(ways)
    for _ in range(times):
        for way, loops in enumerate(ways):
            start = time.thread_time()
            vectorised(record_batches, codec, partitions, loops)
            best[way] = min(best[way], time.thread_time() - start)
    return best


def ways_of_encoding() -> list[EncodingLoops | None]:
    """The loops of the encoders: None for numpy and, if it is installed, numba's."""
    try:
        return [None, load_encoding()]
    except UnavailableError as error:
        print(f"no numba: {error}")
        return [None]


def encoding(rows: int, size: int, ways: list[EncodingLoops | None]) -> None:
    """Print the rows per second of the encoders by codec and shape of the rows, and of the Python
    loop.
    """
    rows = min(rows, 200_000_000 // size)
    names = ", ".join(["numpy", "numba"][: len(ways)])
    print(f"encoding, {size} B, {PARTITIONS} partitions, one thread, with {names}:")
    plain = arrow_batches(rows, size)
    shapes: list[tuple[str, list[pa.RecordBatch], Codec, int]] = [
        (codec.name.lower(), plain, codec, PARTITIONS) for codec in Codec
    ]
    shapes += [
        ("none, 1,000 partitions", plain, Codec.NONE, 1000),
        ("none, variable sizes", arrow_batches(rows, size, vary=True), Codec.NONE, PARTITIONS),
        ("none, a header", arrow_batches(rows, size, headers=True), Codec.NONE, PARTITIONS),
    ]
    for name, record_batches, codec, partitions in shapes:
        slow = codec == Codec.GZIP
        used = record_batches[: max(1, len(record_batches) // 5)] if slow else record_batches
        count = sum(batch.num_rows for batch in used)
        best = best_of(1 if slow else 3, used, codec, partitions, ways)
        figures = "   ".join(
            f"{count / seconds:>12,.0f} rows/s {count * size / seconds / 1e6:>8,.0f} MB/s"
            for seconds in best
        )
        print(f"  {name:<24} {figures}", flush=True)
    few = plain[: max(1, len(plain) // 20)]
    for codec in (Codec.NONE, Codec.LZ4):
        start = time.thread_time()
        in_a_loop(few, codec)
        count = sum(batch.num_rows for batch in few)
        print(
            f"  {'a loop, ' + codec.name.lower():<24} "
            f"{count / (time.thread_time() - start):>12,.0f} rows/s",
            flush=True,
        )


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    ways = ways_of_encoding()
    for size in (100, 1000):
        encoding(options.rows, size, ways)


if __name__ == "__main__":
    main()
