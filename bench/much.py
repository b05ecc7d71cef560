"""What does much of one thing cost? (`python -m bench.much [--scale X] [CASE …]`)

Without sockets, as in scale.py. `offsets`: a start after a kill with a million committed offsets in
20,000 groups. `behind`: a reader that is ten million records behind the log's end, against one that
reads the same amount at the end; both get whole megabytes, of which no byte is in Python's memory.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas.broker.config import BrokerConfig
from barnabas.broker.opening import open_broker
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from bench.many_partitions import NOW_MS, Ids
from bench.scale import CASES, OFFSETS_A_GROUP, TOPIC, Core

GROUPS = 20_000
RECORDS, BATCH, STEP = 10_000_000, 1000, 10
ROUNDS, FETCHES = 5, 200


def offsets(directory: str, scale: float) -> None:
    """Commit, be killed, and start."""
    count = int(GROUPS * scale) * OFFSETS_A_GROUP
    core = Core(directory)
    CASES["committed offsets"](core, count)
    lock = core.broker.logs._lock
    assert lock is not None
    lock.release()  # all that a kill leaves
    gc.collect()
    gc.freeze()
    gc.disable()  # as the daemon does at its start
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
    """The log is read in pieces of a megabyte from its start on, in its midst, and at its end."""
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
                core.offset = first + number * BATCH + 1  # it asks for the record before that
                took_ns += core.fetch()
                assert len(core.broker.outbox.sends[0][1]) > 1, "the record is not in the answer"
                core.answer()
            best[where] = min(best.get(where, 1e9), took_ns / FETCHES / 1000)
    print(
        f"a Fetch of up to 1 MB of {log.log_end_offset:,} records in {len(log.segments)} segments: "
        + ", ".join(f"at {where} {us:.0f} us" for where, us in best.items()),
        flush=True,
    )


EACH: dict[str, Callable[[str, float], None]] = {"offsets": offsets, "behind": behind}


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
            EACH[case](directory, options.scale)


if __name__ == "__main__":
    main()
