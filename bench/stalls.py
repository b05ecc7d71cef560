"""How long calls with much work block the event loop (`python -m bench.stalls`).

No sockets are used, as in scale.py. Each call into the core is measured, since it blocks the loop.
Between any two calls of the work a client sends an ApiVersions and produces a record. A figure is
CPU time of the thread. The column "by the clock" is the wall time of the longest call, which
includes the disk and other load on the machine.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas.daemon.garbage import GC_THRESHOLDS
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.message import Message
from bench.many_partitions import NOW_MS
from bench.scale import RECORD, TOPIC, WORKER, Core, encode_batch

ADMIN = 2  # the connection of the client that sends requests between two calls
BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 1000)
ROLL_MS, SMALL_SEGMENT_BYTES = 600_000, 200
DAY_MS = 86_400_000


class Watched(Core):
    """A core that measures each call. calls: the CPU time and the wall time of each call, in ns."""

    def __init__(self, directory: str, settings: dict[str, str]) -> None:
        self.calls: list[tuple[int, int]] = []
        self.now_ms = NOW_MS
        super().__init__(directory, settings)
        self.connect(ADMIN)

    def timed(self, function: Callable[..., object], *arguments: object) -> None:
        """Make one call as the rim would, and record its time."""
        wall_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        function(*arguments)
        self.calls.append((time.thread_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns))

    def call(self, request: Message, version: int, connection: int = WORKER) -> int:
        """Handle a request and its deferred work; each call of the core is recorded by itself,
        since each blocks the loop by itself.
        """
        frame = memoryview(encode_request(request, version, 1, "bench"))[4:]
        self.timed(self.broker.on_frame, connection, frame, self.now_ms)
        while self.broker.outbox.deferred:
            self.timed(self.broker.on_sent, self.now_ms)
        return self.calls[-1][0]

    def settle(self, *, is_done: Callable[[], bool] = lambda: True) -> None:
        """Make calls until no work is due. Between any two calls a client produces a record."""
        outbox = self.broker.outbox
        while True:
            flushes, outbox.flushes = outbox.flushes, []
            for job in flushes:
                for file in job.files:
                    file.fsync()
                self.timed(self.broker.on_flushed, job, self.now_ms)
            deadline_ms = self.broker.next_deadline_ms()
            is_due = deadline_ms is not None and deadline_ms <= self.now_ms
            if is_due:
                self.timed(self.broker.on_tick, self.now_ms)
            outbox.sends = [send for send in outbox.sends if send[0] != ADMIN]
            self.produce()
            if not (is_due or outbox.flushes) and is_done():
                return


def _create(core: Watched, count: int) -> None:
    """Create a topic with that many partitions."""
    topic = CreatableTopic("wide", count, replication_factor=1)
    core.call(CreateTopicsRequest([topic], timeout_ms=60_000), 5, ADMIN)
    core.settle()
    assert len(core.broker.topics.partitions_of("wide")) == count


def _write(core: Watched, count: int) -> None:
    """Write a first batch to each partition."""
    batch = encode_batch([RECORD])
    for log in core.broker.topics.partitions_of("wide")[:count]:
        core.timed(partial(log.append, bytearray(batch), now_ms=core.now_ms))


def _delete(core: Watched, _: int) -> None:
    core.call(DeleteTopicsRequest(topic_names=["wide"], timeout_ms=60_000), 3, ADMIN)
    core.settle()


def _producers(core: Watched, count: int) -> None:
    for number in range(count):
        core.produce(1_000_000 + number, 0)


def _roll(core: Watched, _: int) -> None:
    """Roll the segment, which writes a snapshot of the producers."""
    core.now_ms += ROLL_MS + 1
    batch = encode_batch([RECORD._replace(timestamp=core.now_ms)])
    log = core.broker.topics.partitions_of(TOPIC)[0]
    segments = len(log.segments)
    core.timed(partial(log.append, batch, now_ms=core.now_ms))
    assert len(log.segments) == segments + 1
    core.offset += 1


def _checkpoint(core: Watched, _: int) -> None:
    """Wait until a changed log is checkpointed, which writes its manifest and its snapshot."""
    core.now_ms += 61_000
    core.settle()


def _segments(core: Watched, count: int) -> None:
    """Write batches, each of which rolls the segment."""
    for _ in range(count):
        core.produce()
    log = core.broker.topics.partitions_of(TOPIC)[0]
    assert len(log.segments) >= count


def _retain(core: Watched, _: int) -> None:
    """Advance the clock so far that all segments exceed their retention time at once."""
    core.now_ms += 8 * DAY_MS
    core.broker.wall.feed(core.now_ms, core.now_ms)
    core.settle()
    core.now_ms += 120_000
    core.settle()


CASES: dict[str, tuple[tuple[str, Callable[[Watched, int], None], int], ...]] = {
    "partitions": (
        ("creating a topic of 10,000 partitions", _create, 10_000),
        ("a first batch for 4,000 of them", _write, 4_000),
        ("deleting it", _delete, 0),
    ),
    "producers": (
        ("batches of 100,000 producers", _producers, 100_000),
        ("a roll of their segment", _roll, 0),
        ("a checkpoint, a minute later", _checkpoint, 0),
    ),
    "segments": (
        ("rolling 5,000 segments", _segments, 5_000),
        ("retention takes them all", _retain, 0),
    ),
}


def line(what: str, calls: list[tuple[int, int]]) -> str:
    """One line of the table: the number of calls, and a histogram of their durations."""
    cpu_ms = sorted(cpu / 1e6 for cpu, _ in calls)
    buckets = Counter(next((b for b in BOUNDS_MS if ms <= b), 10**6) for ms in cpu_ms)
    shown = ", ".join(f"<= {bound}: {buckets[bound]:,}" for bound in sorted(buckets))
    high_ms = cpu_ms[min(len(cpu_ms) - 1, int(len(cpu_ms) * 0.999))]
    wall_ms = max(wall for _, wall in calls) / 1e6
    return (
        f"| {what} | {len(calls):,} | {high_ms:.1f} | {cpu_ms[-1]:.1f} | {wall_ms:.1f} | {shown} |"
    )


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(prog="python -m bench.stalls", description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the sizes")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(
        "| while | calls | 99.9 %, ms | longest, ms | by the clock, ms | how many, by ms |\n"
        "| --- | ---: | ---: | ---: | ---: | --- |"
    )
    for case in options.cases:
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
            settings = {"log.retention.check.interval.ms": "60000", "log.roll.ms": str(ROLL_MS)}
            if case == "segments":
                settings["log.segment.bytes"] = str(SMALL_SEGMENT_BYTES)
            core = Watched(directory, settings)
            gc.freeze()  # as the daemon does
            gc.set_threshold(*GC_THRESHOLDS)
            for what, do, count in CASES[case]:
                core.calls.clear()
                do(core, int(count * options.scale))
                print(line(what, core.calls), flush=True)


if __name__ == "__main__":
    main()
