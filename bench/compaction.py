"""The speed of compaction, and its effect on concurrent fetches.

    python bench/compaction.py [MEGABYTES]
    python bench/compaction.py --beside MEGABYTES

The first figure is how many MB of log are cleaned in a second, by record size and codec. Each key
occurs five times. The second figure is the latency of fetches from a broker while its cleaner
process works, compared with an idle broker, and the number of rounds of the broker's event loop
that lasted 5 ms or longer. --beside measures only the second figure, with a log of MEGABYTES.
"""

from __future__ import annotations

import random
import re
import socket
import struct
import sys
import tempfile
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from barnabas import LocalBroker
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.cleaning.clean_job import CleanJob
from barnabas.storage.cleaning.clean_plan import assess, plan
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import OsDisk
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig, LogManagerConfig

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=64 << 20)
NOW_MS = 1_700_000_000_000
TIMES_A_KEY = 5


def filled(folder: str, megabytes: int, value_bytes: int, codec: int) -> tuple[LogManager, Log]:
    """A log of `megabytes` MB (before compression), in batches of 16 KB."""
    manager = LogManager(OsDisk(), folder, config=LogManagerConfig(), now_ms=NOW_MS)
    manager.load(lambda topic: CONFIG, NOW_MS)
    log = manager.create("t", 0, uuid.uuid4(), CONFIG, NOW_MS)
    rng = random.Random(1)
    a_batch = max(16_000 // (value_bytes + 20), 1)
    count = megabytes * 1_000_000 // (value_bytes + 20)
    key_count = max(count // TIMES_A_KEY, 1)
    for _ in range(count // a_batch):
        values = [rng.randbytes(value_bytes // 2).ljust(value_bytes, b".") for _ in range(a_batch)]
        records = [
            NewRecord(b"key-%08d" % rng.randrange(key_count), value, NOW_MS) for value in values
        ]
        log.append(encode_batch(records, codec=codec), now_ms=NOW_MS)
    # The active segment is never cleaned, so begin a new one: all records above can then be
    # cleaned.
    log.append(encode_batch([NewRecord(b"last", b"", NOW_MS)]), now_ms=NOW_MS)
    log.try_roll(NOW_MS)
    log.flush()
    return manager, log


def job_of(log: Log) -> CleanJob:
    """The cleaning job for the whole log but its active segment."""
    dirt = assess(log, None, NOW_MS)
    assert dirt is not None
    return plan(log, dirt, job_id=1, map_bytes=1 << 30, wall_ms=NOW_MS)


def measure(megabytes: int) -> None:
    """Print the speed of `clean`, run in this process without a broker."""
    for value_bytes, codec, name in (
        (100, 0, "none"),
        (1000, 0, "none"),
        (10_000, 0, "none"),
        (100, 3, "lz4"),
        (1000, 4, "zstd"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            _, log = filled(folder, megabytes, value_bytes, codec)
            job = job_of(log)
            began = time.perf_counter()
            result = clean(OsDisk(), job)
            took_s = time.perf_counter() - began
            print(
                f"values of {value_bytes:6} B, {name:5}: "
                f"{log.segments.size_bytes / 1e6 / took_s:6.1f} MB/s "
                "of log, "
                f"{result.read_bytes / 1e6:.0f} MB became {result.written_bytes / 1e6:.0f} MB in "
                f"{took_s:.2f} s"
            )


def fetch_latency(megabytes: int) -> None:
    """Measure the latency of fetches of 64 KB from another topic, one after the other, first while
    the broker is idle and then during a cleaning.
    """
    settings = {
        "log.cleaner.backoff.ms": "100",
        "barnabas.metrics.port": "0",
        "log.cleaner.dedupe.buffer.size": str(2 << 30),
    }
    with LocalBroker(in_memory=False, settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        compacted = {
            "cleanup.policy": "compact",
            "segment.bytes": str(32 << 20),
            "min.compaction.lag.ms": str(10**12),
        }
        created = admin.create_topics(
            [NewTopic("read", 1, 1), NewTopic("cleaned", 1, 1, config=compacted)]
        )
        for future in created.values():
            future.result()
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for _ in range(20_000):
            producer.produce("read", b"x" * 500)
        rng = random.Random(1)
        for number in range(megabytes * 1_000_000 // 1000):
            producer.produce(
                "cleaned", key=b"%d" % rng.randrange(megabytes * 200), value=b"y" * 980
            )
            if number % 10_000 == 0:
                producer.flush()
        producer.flush()
        with socket.create_connection(("127.0.0.1", broker.port)) as sock:
            _show("at rest", _latencies(sock, lambda: False, 2.0))
            before = _stalls(broker)
            resource = ConfigResource(
                ConfigResource.Type.TOPIC,
                "cleaned",
                set_config=compacted | {"min.compaction.lag.ms": "0"},
            )
            for future in admin.alter_configs([resource]).values():
                future.result()
            began = time.perf_counter()
            found = _latencies(
                sock, lambda: any("compacted up to" in line for line in broker.output), 600.0
            )
            _show(
                f"while {megabytes} MB were cleaned in {time.perf_counter() - began:.2f} s", found
            )
            stalls = _stalls(broker) - before
            shown = ", ".join(f"<= {le} s: {count}" for le, count in sorted(stalls.items()))
            print(f"rounds of its loop of 5 ms and longer meanwhile: {shown or 'none'}")


def _latencies(sock: socket.socket, is_over: Callable[[], bool], most_s: float) -> list[float]:
    """Fetch 64 KB from random offsets, one after the other, until `is_over` returns true or most_s
    have passed. Gives: the sorted times in s.
    """
    found: list[float] = []
    end = time.perf_counter() + most_s
    while time.perf_counter() < end and not is_over():
        began = time.perf_counter()
        topic = b"read"
        # a Fetch of version 4 by hand: encoding a message would take part of the measured time
        body = struct.pack(">hhih", 1, 4, 7, -1) + struct.pack(">iiiibi", -1, 100, 1, 1 << 20, 0, 1)
        body += struct.pack(">h4siiqi", len(topic), topic, 1, 0, random.randrange(19_000), 1 << 16)
        sock.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
        assert len(sock.recv(size, socket.MSG_WAITALL)) == size > 1 << 15
        found.append(time.perf_counter() - began)
    return sorted(found)


def _stalls(broker: LocalBroker) -> Counter[float]:
    """The number of rounds of the event loop by their duration. The keys are the upper bounds of
    the histogram's buckets, in seconds.
    """
    match = re.search(r"metrics on (http://\S+)", "".join(broker.output))
    assert match is not None
    text = urllib.request.urlopen(match[1]).read().decode()
    rows = re.findall(r'^barnabas_loop_stall_seconds_bucket{le="([^"]+)"} (\S+)', text, re.M)
    counts, below = Counter[float](), 0.0
    for bound, count in rows:
        counts[float(bound)] = int(float(count) - below)
        below = float(count)
    return counts


def _show(when: str, found: list[float]) -> None:
    """Print the median, the 99th percentile and the maximum of sorted times."""
    middle, late = found[len(found) // 2] * 1e3, found[len(found) * 99 // 100] * 1e3
    print(
        f"fetch {when}: median {middle:.2f} ms, 99% {late:.2f} ms, most {found[-1] * 1e3:.2f} ms, "
        f"of {len(found)}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--beside"]:
        fetch_latency(int(sys.argv[2]))
    else:
        size = int(sys.argv[1]) if len(sys.argv) > 1 else 60
        measure(size)
        fetch_latency(size * 3)
