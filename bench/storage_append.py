"""The cost of the storage engine: appends of three kinds, reads at the next position, and loading
many logs after a clean stop.

    python bench/storage_append.py [directory]

Each append is compared with a lower bound: the CRC of the same bytes and one pwrite of them.
Figures are the best of several rounds.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from crc32c import crc32c

from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import OsDisk
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig, LogManagerConfig

NOW_MS = 1_700_000_000_000


def new_log(directory: str, name: str) -> tuple[LogManager, Log]:
    """A new log in an empty directory."""
    path = os.path.join(directory, name)
    shutil.rmtree(path, ignore_errors=True)
    manager = LogManager(OsDisk(), path, config=LogManagerConfig(), now_ms=NOW_MS)
    manager.load(lambda topic: LogConfig(), NOW_MS)
    return manager, manager.create("topic", 0, uuid.uuid4(), LogConfig(), NOW_MS)


def floor_us(directory: str, data: bytearray, rounds: int) -> float:
    """The lower bound: CRC and pwrite of the same bytes, at the end of a growing file."""
    fd = os.open(os.path.join(directory, "floor"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    view = memoryview(data)
    best, position = 1e9, 0
    for _ in range(rounds):
        began = time.perf_counter()
        crc32c(view[21:])
        os.pwrite(fd, view, position)
        best = min(best, time.perf_counter() - began)
        position += len(data)
    os.close(fd)
    return best * 1e6


def bench_append(
    directory: str, label: str, count: int, size: int, rounds: int, spread: int = 0
) -> None:
    """Print the cost of appending the same records again and again, next to the lower bound. Takes:
    spread, by how many bytes values may differ in size.
    """
    rng = random.Random(1)
    values = [rng.randbytes(size + (rng.randrange(spread) if spread else 0)) for _ in range(count)]
    pristine = encode_batch(
        [NewRecord(None, value, NOW_MS) for value in values],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )
    floor = floor_us(directory, pristine, rounds)
    _, log = new_log(directory, "append")
    best = 1e9
    for turn in range(rounds):
        batch = bytearray(pristine)
        sequence = turn * count
        # the next base sequence, and the CRC that includes it: otherwise the batch would be a
        # duplicate
        batch[53:57] = sequence.to_bytes(4, "big")
        batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
        view = memoryview(batch)
        began = time.perf_counter()
        log.append(view, now_ms=NOW_MS)
        best = min(best, time.perf_counter() - began)
    cost = best * 1e6
    over = cost - floor
    print(
        f"append {label:34} {len(pristine):8} bytes {count:5} records: {cost:8.1f} us, crc+pwrite "
        f"{floor:7.1f}, "
        f"over {over:6.1f} us = {over / count:.3f} us a record"
    )


def bench_read(directory: str) -> None:
    """Print the cost of reads at the next position, at the end and at the start of a log."""
    for label, count, size in (
        ("1 MB batches", 1000, 1024),
        ("200 KB batches", 1800, 100),
        ("one record", 1, 100),
    ):
        _, log = new_log(directory, "read")
        data = encode_batch([NewRecord(None, bytes(size), NOW_MS)] * count)
        batches = min(2000, (256 << 20) // len(data))
        for _ in range(batches):
            log.append(memoryview(bytearray(data)), now_ms=NOW_MS)
        for where, first in (("tail", batches - 100), ("head", 0)):
            best, total = 1e9, 0.0
            for number in range(first, first + 100):
                began = time.perf_counter()
                log.read(number * count, max_bytes=1 << 20, min_one_batch=True)
                spent = time.perf_counter() - began
                best, total = min(best, spent), total + spent
            print(
                f"read next position, {label:15} {where}: best {best * 1e6:5.1f} us, mean "
                f"{total / 100 * 1e6:5.1f} us"
            )


def bench_load(directory: str, partitions: int = 1000) -> None:
    """Print the time of loading many logs after a clean stop."""
    manager, _ = new_log(directory, "load")
    data = encode_batch(
        [NewRecord(None, bytes(100), NOW_MS)] * 10, producer_id=1, producer_epoch=0, base_sequence=0
    )
    for partition in range(partitions):
        log = manager.create("many", partition, uuid.uuid4(), LogConfig(), NOW_MS)
        log.append(memoryview(bytearray(data)), now_ms=NOW_MS)
    manager.close(NOW_MS)
    began = time.perf_counter()
    again = LogManager(OsDisk(), manager.data_dir, config=LogManagerConfig(), now_ms=NOW_MS)
    again.load(lambda topic: LogConfig(), NOW_MS)
    print(f"load of {partitions} clean partitions: {time.perf_counter() - began:.3f} s")


def main() -> None:
    """Run all cases, in a temporary directory below the one that the command line names."""
    directory = tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None)
    try:
        bench_append(directory, "1 KB records", 1000, 1024, 60)
        bench_append(directory, "100 B records", 1800, 100, 200)
        bench_append(directory, "80-120 B records (no two alike)", 1800, 80, 200, spread=40)
        bench_append(directory, "one record of 100 B", 1, 100, 5000)
        bench_read(directory)
        bench_load(directory)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
