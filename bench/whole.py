"""What `barnabas.transactions.whole` costs a commit and a read, in instructions
(`python -m bench.whole [--times 40] [--turns 3]`, with valgrind).

The core runs in a process of its own without sockets, threads and timers, with a clock that the
work advances. So nothing but the work is counted, and two counts of the same work differ by less
than 0.1 %, on a busy machine, too. Each row is counted for topics without the setting and with it,
in turns. A transaction of this client is all that the broker does for it: one record in each
partition; in version 1 AddPartitionsToTxn, Produce and EndTxn, in version 2 Produce and EndTxn.

The record of a cut is no part of a commit: there is one in a second, however many commits there
are. It has a row of its own.
"""

from __future__ import annotations

import argparse
import gc
import re
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from barnabas.broker.core import Broker
from barnabas.broker.rim.system_ids import SystemIds
from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from bench.instructions import SETTINGS, TIMESTAMP_MS, InCallgrind
from bench.transactions import PlainProducer

WITHOUT, WITH = "plain", "whole"
WARM_UP, CUTS = 40, 3
CUT_INTERVAL_MS = 1000
ROWS = (
    *(f"transaction {version} {count}" for version in (1, 2) for count in (1, 10)),
    "fetch",
    "ends",
    "cut",
    "behind 2 10",  # the last, since from then on a transaction is open
)
SAYS = {
    "transaction": "a transaction of version {} in {} partition(s)",
    "behind": "the same of version {} in {}, behind an open transaction",
    "fetch": "a read_committed Fetch of a record",
    "ends": "the read_committed ends of 10 partitions",
    "cut": "the record of a cut of 10 partitions, once in a second",
}
_DONE = re.compile(r"^(?:done|ready)$")


class Recorder(PlainProducer):
    """A producer that keeps its requests. It gets the answers that a broker gives."""

    def __init__(self, core: Core, name: str, topic: str, partitions: int, version: int) -> None:
        self.name, self.topic, self.partitions = name, topic, partitions
        self.is_version_2 = version == 2
        self.requests = self.sequence = 0
        self.frames: list[bytes] = []
        answer = core.call(_frame(InitProducerIdRequest(name, 60_000), 0))
        self.producer_id, self.epoch = struct.unpack(">qh", answer[-10:])

    def _send(self, frame: bytes) -> None:
        self.frames.append(bytes(frame[4:]))

    def _receive(self) -> bytes:
        if self.is_version_2:
            return struct.pack(">9xhqh", 0, self.producer_id, self.epoch + 1)
        return b"\0\0"

    def record(self, count: int) -> list[bytes]:
        """The requests of the next transactions."""
        self.frames = []
        for _ in range(count):
            self.transact()
        return self.frames


class Core:
    """A broker in this process, which the rim's work is done for at once."""

    def __init__(self, directory: str) -> None:
        properties = SETTINGS | {
            "log.dirs": directory,
            "transaction.state.log.num.partitions": "1",
            "barnabas.transactions.whole.cut.interval.ms": str(CUT_INTERVAL_MS),
        }
        self.now_ms = 1_000_000
        self.broker: Broker = open_broker(
            BrokerConfig.from_properties(properties), SystemIds(), now_ms=self.now_ms
        )
        self.broker.on_connected(1, "127.0.0.1", "127.0.0.1", 9092)
        configs = [CreatableTopicConfig("barnabas.transactions.whole", "true")]
        topics = [CreatableTopic(WITHOUT, 11, 1), CreatableTopic(WITH, 11, 1, configs=configs)]
        self.call(_frame(CreateTopicsRequest(topics, 10_000), 4))
        for topic in (WITHOUT, WITH):  # no two partitions have the same offsets
            rows = [
                PartitionProduceData(
                    index, encode_batch([NewRecord(None, b"x", TIMESTAMP_MS)] * (index + 1))
                )
                for index in range(10)
            ]
            request = ProduceRequest(None, -1, 1000, [TopicProduceData(topic, partition_data=rows)])
            self.call(_frame(request, 7))
        self.producers: dict[str, Recorder] = {}

    def call(self, frame: bytes) -> bytes:
        """Handle a request, with all its flushes. Gives: the answer, but not parts of files."""
        broker, outbox = self.broker, self.broker.outbox
        broker.on_frame(1, memoryview(bytearray(frame)), self.now_ms)
        answer = b""
        while outbox.sends or outbox.flushes or outbox.work or outbox.deferred:
            sends, outbox.sends = outbox.sends, []
            for _, pieces in sends:
                answer = b"".join(one for one in pieces if not isinstance(one, tuple))
            if outbox.deferred:
                broker.on_sent(self.now_ms)
            works, outbox.work = outbox.work, []
            for work in works:
                broker.on_worked(work, work.run(), None, self.now_ms)
            jobs, outbox.flushes = outbox.flushes, []
            for job in jobs:
                for file in job.files:
                    file.fsync()
                broker.on_flushed(job, self.now_ms)
        return answer

    def prepare(self, row: str, topic: str, count: int) -> Callable[[], None]:
        """A function that does the work of a row."""
        kind, *numbers = row.split()
        if kind == "cut":
            return self._record_cut
        if kind == "fetch":
            rows = [FetchPartition(0, partition_max_bytes=60)]
            request: Message = FetchRequest(
                max_wait_ms=1, min_bytes=1, max_bytes=1 << 20, isolation_level=1,
                topics=[FetchTopic(topic, partitions=rows)],
            )  # fmt: skip
            frames = [_frame(request, 11)] * count
        elif kind == "ends":
            ends = [ListOffsetsPartition(index, timestamp=-1) for index in range(10)]
            request = ListOffsetsRequest(-1, 1, [ListOffsetsTopic(topic, ends)])
            frames = [_frame(request, 2)] * count
        else:
            if kind == "behind":
                self._leave_open(topic)
            frames = self._producer(row, topic, *map(int, numbers)).record(count)

        def work() -> None:
            for frame in frames:
                self.now_ms += 1
                self.call(frame)

        return work

    def _producer(self, row: str, topic: str, version: int, partitions: int) -> Recorder:
        name = f"{row}-{topic}"
        if name not in self.producers:
            self.producers[name] = Recorder(self, name, topic, partitions, version)
        return self.producers[name]

    def _leave_open(self, topic: str) -> None:
        """Leave a transaction open in the first partition."""
        hanging = self._producer("hanging", topic, 1, 1)
        if not hanging.frames:
            hanging.open()
            for frame in hanging.frames:
                self.call(frame)

    def end_offset(self, topic: str) -> int:
        log = self.broker.topics.partition(topic, 0)
        assert log is not None
        return log.log_end_offset

    def _record_cut(self) -> None:
        """Record a cut, if there was a commit."""
        self.now_ms += CUT_INTERVAL_MS
        self.broker.coordinators.get().cuts.on_tick(self.now_ms)


def _frame(request: Message, version: int) -> bytes:
    return bytes(encode_request(request, version, 1, "bench"))[4:]


def in_child(directory: str) -> None:
    """Do what the lines of the standard input say: prepare a row, or run it."""
    core, work = Core(directory), None
    topic, row, count, before = WITHOUT, "", 0, 0
    gc.disable()
    for line in sys.stdin:
        command, _, rest = line.strip().partition(" ")
        if command == "prepare":
            topic, number, row = rest.split(" ", 2)
            count = int(number)
            work, before = core.prepare(row, topic, count), core.end_offset(topic)
            print("ready")
        else:
            assert work is not None
            work()
            if row.startswith(("transaction", "behind")):
                assert core.end_offset(topic) == before + 2 * count, "not all are committed"
            print("done")


class Measured(InCallgrind):
    """The process with the core."""

    def __init__(self, directory: str, profiles: Path | None = None) -> None:
        super().__init__(directory, ["-m", "bench.whole", "--child", f"{directory}/data"], profiles)

    def say(self, line: str) -> None:
        """Give the process a command, and wait until it is carried out."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        self.wait_for_line(_DONE)

    def run(self, row: str, topic: str, count: int) -> float:
        """The instructions of one piece of work, in thousands."""
        if row == "cut":  # one for each count, after a commit
            return sum(self._cut(topic) for _ in range(CUTS)) / CUTS / 1000
        self.say(f"prepare {topic} {count} {row}")
        return self.count(f"{row} {topic}", lambda: self.say("run")) / count / 1000

    def _cut(self, topic: str) -> int:
        self.warm_up("transaction 2 10", topic, 1)
        self.say(f"prepare {topic} 1 cut")
        return self.count(f"cut {topic}", lambda: self.say("run"))

    def warm_up(self, row: str, topic: str, count: int) -> None:
        self.say(f"prepare {topic} {count} {row}")
        self.say("run")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(prog="python -m bench.whole", description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of the names of rows (default: all)")
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--functions", type=Path, help="the directory for profiles")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        in_child(options.child)
        return
    if options.functions is not None:
        options.functions.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        core = Measured(directory, options.functions)
        print("| thousand instructions | without | with the setting | | spread of the turns |")
        print("|---|---:|---:|---:|---:|")
        for row in ROWS:
            if options.names and not row.startswith(tuple(options.names)):
                continue
            counts: dict[str, list[float]] = {WITHOUT: [], WITH: []}
            for topic in counts:
                core.warm_up(row, topic, WARM_UP)
            for turn in range(options.turns):
                for topic in counts if turn % 2 == 0 else reversed(counts):
                    counts[topic].append(core.run(row, topic, options.times))
            print(_line(row, counts), flush=True)
        core.stop()


def _line(row: str, counts: dict[str, list[float]]) -> str:
    kind, *numbers = row.split()
    before, after = (sum(one) / len(one) for one in counts.values())
    spread = max((max(one) - min(one)) / min(one) for one in counts.values())
    name = SAYS[kind].format(*numbers)
    more = "-" if kind == "cut" else f"{after / before - 1:+.1%}"
    return f"| {name} | {before:,.1f} | {after:,.1f} | {more} | {spread:.2%} |"


if __name__ == "__main__":
    main()
