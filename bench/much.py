"""The cost of a large amount of one kind of data (`python -m bench.much [--scale X] [CASE …]`)

No sockets are used, as in scale.py. `offsets` is a start after a kill with a million committed
offsets in 20,000 groups. `behind` compares a reader that is ten million records behind the log's
end with a reader at the end. Both read the same amount, in whole megabytes, which are never in
Python's memory. `partitions` is a start after a kill with 20,000 partitions with records, or with
as many as the limit of open files allows. `bytes` is a partition of 100 GB in 1,000 segments,
compared with one of 1 GB; only the first and last bytes of each batch are stored on the disk.

`transactions` is a start after a kill and 200,000 transactions of eight transactional ids, whose
records are compacted early. It alternates with a broker that compacts such records only when their
segments are full.
"""

from __future__ import annotations

import argparse
import functools
import gc
import logging
import os
import resource
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas.broker.core import Broker
from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.disk import OsDisk
from barnabas.storage.log.log import Log
from bench.many_partitions import NOW_MS, Ids
from bench.scale import CASES, OFFSETS_A_GROUP, TOPIC, Core

GROUPS = 20_000
RECORDS, BATCH, STEP = 10_000_000, 1000, 10
ROUNDS, FETCHES = 5, 200
PARTITIONS, OTHER_FILES = 20_000, 100
SEGMENTS, BATCHES_A_SEGMENT = 1000, 100
# the size of the record in each batch, and the number of bytes that are written at each end of a
# batch
SPARSE_BATCH, ENDS = 1_000_000, 128
TRANSACTIONS, PRODUCERS, STARTS = 200_000, 8, 3
# The number of transactions of each id in a quarter of a minute, if all eight together commit 130
# per second.
A_QUARTER_OF_A_MINUTE = 250
EARLY = "barnabas.internal.topics.dirty.bytes"
SPARSE = {"log.segment.bytes": str(1 << 30), "message.max.bytes": str(2 << 20)}


def offsets(directory: str, scale: float) -> None:
    """Commit offsets, simulate a kill, and start the broker again."""
    count = int(GROUPS * scale) * OFFSETS_A_GROUP
    core = Core(directory)
    CASES["committed offsets"](core, count)
    # Release the directory's lock, since otherwise the next broker of this process could not open
    # it.
    lock = core.broker.logs._lock
    assert lock is not None
    lock.release()  # as after a kill: no file is closed
    gc.collect()
    gc.freeze()
    gc.disable()  # as the daemon does after its start
    settings = {"log.dirs": directory, "barnabas.transaction.durability": "os"}
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    broker = open_broker(BrokerConfig.from_properties(settings), Ids(), now_ms=NOW_MS)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    gc.enable()
    log = broker.topics.partitions_of("__consumer_offsets")
    size = sum(each.segments.size_bytes for each in log if each is not None)
    print(
        f"start after a kill, {count:,} offsets in {count // OFFSETS_A_GROUP:,} groups "
        f"({size >> 20} MB): {cpu_s:.1f} s of CPU, {wall_s:.1f} s",
        flush=True,
    )


def behind(directory: str, scale: float) -> None:
    """Read one megabyte at a time: at the log's start, in the middle, and at its end."""
    core = Core(directory, {"log.segment.bytes": str(256 << 20)})
    batch = encode_batch([NewRecord(None, b"x" * 100, NOW_MS)] * BATCH)
    count = int(RECORDS * scale)
    for _ in range(count // BATCH // STEP):
        for _ in range(STEP):
            data = TopicProduceData(
                TOPIC, partition_data=[PartitionProduceData(0, bytearray(batch))]
            )
            core.call(ProduceRequest(None, -1, 1000, [data]), 7)
            core.answer()
    (log,) = core.broker.topics.partitions_of(TOPIC)
    assert log is not None and log.log_end_offset == count // BATCH // STEP * STEP * BATCH
    last = log.log_end_offset - FETCHES * BATCH
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for where, first in (("the end", last), ("the midst", last // 2), ("the start", 0)):
            took_ns = 0
            for number in range(FETCHES):
                # core.fetch() reads the record before this offset
                core.offset = first + number * BATCH + 1
                took_ns += core.fetch()
                assert len(core.broker.outbox.sends[0][1]) > 1, "the record is not in the answer"
                core.answer()
            best[where] = min(best.get(where, 1e9), took_ns / FETCHES / 1000)
    print(
        f"a Fetch of up to 1 MB of {log.log_end_offset:,} records in {len(log.segments)} segments: "
        + ", ".join(f"at {where} {us:.0f} us" for where, us in best.items()),
        flush=True,
    )


def partitions(directory: str, scale: float) -> None:
    """Write to each partition in a child process that exits without closing files, then start a
    broker.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    count = min(int(PARTITIONS * scale), limit - OTHER_FILES)
    batch = encode_batch([NewRecord(None, b"x" * 100, NOW_MS)])

    def write() -> None:
        broker = _opened(directory)
        broker.topics.create_topic(TOPIC, count, {}, now_ms=NOW_MS)
        for log in broker.topics.partitions_of(TOPIC):
            assert log is not None
            log.append(bytearray(batch), now_ms=NOW_MS)

    assert _in_a_process_of_its_own(write), "the process that writes failed"
    gc.disable()  # as the daemon does after its start
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    broker = _opened(directory)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    gc.enable()
    assert len(broker.logs.logs) == count
    print(
        f"start after a kill, {count:,} partitions that were written to: {cpu_s:.1f} s of CPU, "
        f"{wall_s:.1f} s",
        flush=True,
    )


def sparse_bytes(directory: str, scale: float) -> None:
    """Measure the same requests at the end, in the middle and at the start of a small and a large
    log.
    """
    logging.disable(logging.WARNING)  # suppresses a warning about each missing index file
    cores = [
        _sparse(f"{directory}/{segments}", segments)
        for segments in (SEGMENTS // 100, int(SEGMENTS * scale))
    ]
    logging.disable(logging.NOTSET)
    best: list[dict[str, float]] = [{} for _ in cores]
    for _ in range(ROUNDS):
        for (_, core), its in zip(cores, best, strict=True):
            (log,) = core.broker.topics.partitions_of(TOPIC)
            assert log is not None
            for what, took_us in _worked(core, log).items():
                its[what] = min(its.get(what, 1e9), took_us)
    for (segments, _), its in zip(cores, best, strict=True):
        print(
            f"a log of {segments * BATCHES_A_SEGMENT * SPARSE_BATCH / 1e9:.0f} GB in "
            f"{segments:,} segments: "
            + ", ".join(f"{what} {us:.0f} us" for what, us in its.items()),
            flush=True,
        )


def transactions(directory: str, scale: float) -> None:
    """Commit the transactions in a child process, with a compaction every 15 s. The process exits
    without closing files. Then start a broker.
    """
    cases = {"compacted early": {}, "in full segments": {EARLY: str(1 << 60)}}
    paths = {name: f"{directory}/{number}" for number, name in enumerate(cases)}
    count = int(TRANSACTIONS * scale) // PRODUCERS
    for name, settings in cases.items():
        commit = functools.partial(_commit_many, paths[name], settings, count)
        assert _in_a_process_of_its_own(commit), "the process that commits failed"
    for name in list(cases) * STARTS:
        start = functools.partial(_start_after_transactions, name, paths[name])
        assert _in_a_process_of_its_own(start), "the start failed"


def _commit_many(directory: str, settings: dict[str, str], count: int) -> None:
    """Commit `count` transactions of each producer. After every A_QUARTER_OF_A_MINUTE of
    them the clock advances by 15 s, so that compaction runs in between.
    """
    core = Core(directory, {"log.cleaner.backoff.ms": "15000", **settings})
    broker = core.broker
    ids = {name: core.begin(name) for name in (f"p{number}" for number in range(PRODUCERS))}
    cpu_s, now_ms = time.process_time(), NOW_MS
    for number in range(count):
        for name, producer_id in ids.items():
            core.add(name, producer_id)
            core.call(EndTxnRequest(name, producer_id, 0, True), 1)
            assert core.answer()[-2:] == b"\0\0"
        if number % A_QUARTER_OF_A_MINUTE == 0:
            now_ms += 15_000
            broker.on_tick(now_ms)
            _do_what_it_asks(broker, now_ms)
    print(
        f"{count * PRODUCERS:,} transactions: {time.process_time() - cpu_s:.1f} s of CPU with "
        f"{', '.join(settings) or 'compaction'}",
        flush=True,
    )


def _do_what_it_asks(broker: Broker, now_ms: int) -> None:
    """Do the flushes and compactions in the broker's outbox, until it has no more of them."""
    outbox = broker.outbox
    while outbox.flushes or outbox.cleanings:
        for flush in (flushes := outbox.flushes[:]):
            for file in flush.files:
                file.fsync()
        del outbox.flushes[:]
        for flush in flushes:
            broker.on_flushed(flush, now_ms)
        cleanings, outbox.cleanings[:] = outbox.cleanings[:], []
        for job in cleanings:
            broker.on_cleaned(job, clean(OsDisk(), job), "", now_ms)
        broker.on_tick(now_ms)


def _start_after_transactions(name: str, directory: str) -> None:
    """Start on a directory with many transactions, and print the cost."""
    gc.disable()  # as the daemon does after its start
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    broker = _opened(directory)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    logs = broker.topics.partitions_of("__transaction_state")
    size = sum(log.segments.size_bytes for log in logs if log is not None)
    print(
        f"start after a kill, transactional ids {name} ({size / 1e6:.1f} MB): {cpu_s:.2f} s of "
        f"CPU, {wall_s:.2f} s",
        flush=True,
    )


def _worked(core: Core, log: Log) -> dict[str, float]:
    """The time of each kind of request, in us."""
    end = log.log_end_offset
    took_us = {"Produce": sum(core.produce() for _ in range(FETCHES)) / FETCHES / 1000}
    for where, first in (("end", end - 1), ("midst", end // 2), ("start", 0)):
        took_ns = 0
        for number in range(FETCHES):
            core.offset = first + number + 1  # core.fetch() reads the record before this offset
            took_ns += core.fetch()
            core.answer()
        took_us[f"Fetch at the {where}"] = took_ns / FETCHES / 1000
    began_ns = time.thread_time_ns()
    log.try_roll(NOW_MS)
    took_us["a roll"] = (time.thread_time_ns() - began_ns) / 1000
    core.offset = log.log_end_offset
    return took_us


def _sparse(directory: str, segments: int) -> tuple[int, Core]:
    """Make a log whose batches consist of zeros. Only the two ends of each batch are written; the
    zeros between them take no space on the disk.
    """

    def begin() -> None:
        Core(directory, SPARSE).produce()

    assert _in_a_process_of_its_own(begin), "the process that begins it failed"
    batch = bytearray(encode_batch([NewRecord(None, bytes(SPARSE_BATCH), NOW_MS)]))
    for segment in range(segments):
        base = 1 + segment * BATCHES_A_SEGMENT
        path = f"{directory}/{TOPIC}-0/{base:020}.log"
        with open(path, "wb") as file:
            for number in range(BATCHES_A_SEGMENT):
                struct.pack_into(">q", batch, 0, base + number)
                file.seek(number * len(batch))
                file.write(batch[:ENDS])
                file.seek((number + 1) * len(batch) - ENDS)
                file.write(batch[-ENDS:])
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    core = Core(directory, SPARSE, is_new=False)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    print(
        f"{segments:,} segments without index files or a checkpoint: read whole at the start in "
        f"{wall_s:.1f} s, {cpu_s:.1f} s of CPU",
        flush=True,
    )
    core.offset = 1 + segments * BATCHES_A_SEGMENT
    return segments, core


def _opened(directory: str) -> Broker:
    settings = {"log.dirs": directory, "barnabas.transaction.durability": "os"}
    return open_broker(BrokerConfig.from_properties(settings), Ids(), now_ms=NOW_MS)


EACH: dict[str, Callable[[str, float], None]] = {
    "offsets": offsets,
    "behind": behind,
    "partitions": partitions,
    "bytes": sparse_bytes,
    "transactions": transactions,
}


def _in_a_process_of_its_own(work: Callable[[], None]) -> bool:
    """Run a function in a child process that exits without closing its files, as after a kill.

    Gives: whether the function succeeded.
    """
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        work()
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m bench.much", description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(EACH), help=f"of {', '.join(EACH)}")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the sizes")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for case in options.cases:
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
            work = functools.partial(EACH[case], directory, options.scale)
            if not _in_a_process_of_its_own(work):
                sys.exit(f"{case}: failed, see above")


if __name__ == "__main__":
    main()
