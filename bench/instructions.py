"""The work that a request makes in the broker, in instructions of its process.

Instructions are the same on a busy and on an idle machine, so a change of one percent can be seen.
The daemon runs in valgrind (callgrind), which counts what the process itself executes, in all its
threads: the interpreter, the broker and the libraries, but not the kernel. Requests come from this
process, on one connection, one at a time unless the row says otherwise. Without valgrind the rows
are left out.

`python -m bench.instructions [--functions DIR] [NAME …]` counts some rows, and keeps callgrind's
profile of each in a directory, for callgrind_annotate.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from barnabas.protocol.compression import Codec
from barnabas.protocol.cut_times import AT_OR_BEFORE, CUT_TIMES_END
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.records import NewRecord, encode_batch
from bench.common import Row
from bench.transactions import PlainProducer

WARM_UP = 30
TOPIC, WHOLE_TOPIC = "bench", "whole"
NEWEST_CUT = AT_OR_BEFORE + CUT_TIMES_END - 1
FETCH_VERSION, PRODUCE_VERSION, COMMIT_VERSION, HEARTBEAT_VERSION = 11, 9, 8, 4
TIMESTAMP_MS = 1_700_000_000_000
WAIT_MS = 2
MANY = 270  # records of 100 bytes, as many as a client gathers in a few milliseconds
_LATER = str(1 << 30)  # in ms: no checkpoint falls into a count
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "barnabas.producer.snapshot.interval.ms": _LATER,
    "log.flush.offset.checkpoint.interval.ms": _LATER,
    "log.cleaner.enable": "false",
}
_READY = re.compile(r"listens on \S+:(\d+) \(")
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


class InCallgrind:
    """A Python process in callgrind, which ends when its standard input ends.

    After: `count` gives the instructions of some work.
    """

    def __init__(self, directory: str, arguments: list[str], profiles: Path | None = None) -> None:
        """Takes: arguments, those of Python; profiles, the directory for the profile of each
        count.
        """
        self._directory, self._profiles = Path(directory), profiles
        self._dumps = 0
        command = [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=no"),
            f"--callgrind-out-file={directory}/out", f"--vgdb-prefix={directory}/vgdb",
            *(sys.executable, "-P", *arguments),
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"},
        )

    def wait_for_line(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Read the output up to a line, and give the match."""
        assert self._process.stdout is not None
        output = []
        for line in self._process.stdout:
            output.append(line)
            if match := pattern.search(line):
                return match
        raise RuntimeError("the process has ended in valgrind:\n" + "".join(output))

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, *words: str) -> None:
        """Give callgrind a command."""
        prefix = f"--vgdb-prefix={self._directory}/vgdb"
        command = ["vgdb", prefix, f"--pid={self._process.pid}", *words]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def count(self, name: str, work: Callable[[], None]) -> int:
        """The instructions of the process while the work runs."""
        self._tell("instrumentation", "on")
        self._tell("zero")
        work()
        self._tell("dump", name)
        self._tell("instrumentation", "off")
        self._dumps += 1
        profile = self._directory / f"out.{self._dumps}"
        match = _TOTAL.search(profile.read_text())
        assert match is not None, f"{profile} has no sum"
        if self._profiles is not None:
            shutil.copy(profile, self._profiles / name.replace(" ", "_").replace(",", ""))
        return int(match.group(1))


class Counted(InCallgrind):
    """A daemon in callgrind."""

    def __init__(self, directory: str, profiles: Path | None = None) -> None:
        arguments = ["-m", "barnabas", "start", "--port", "0"]
        arguments += ["--data-dir", f"{directory}/data", "--stop-at-end-of-input"]
        for name, value in SETTINGS.items():
            arguments += ["--set", f"{name}={value}"]
        super().__init__(directory, arguments, profiles)
        self.port = int(self.wait_for_line(_READY).group(1))
        assert self._process.stdout is not None
        threading.Thread(target=self._process.stdout.read, daemon=True).start()


class Client:
    """One connection for bare requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def call(self, request: Message, version: int) -> bytes:
        return self.exchange(bytes(encode_request(request, version, 1, "bench")))

    def exchange(self, frames: bytes, answers: int = 1) -> bytes:
        """Send whole requests at once. Gives: the last answer, without its size."""
        self._socket.sendall(frames)
        answer = b""
        for _ in range(answers):
            (size,) = struct.unpack(">i", self._stream.read(4))
            answer = self._stream.read(size)
        return answer


class Case(NamedTuple):
    """A row: `work` makes `each` requests or transactions at once; it is called `times` times."""

    name: str
    times: int
    work: Callable[[], object]
    each: int = 1


def _produce(records: int, codec: int = 0) -> bytes:
    # letters that repeat, but not from one record to the next: lz4 makes half of them
    values = [
        b"".join(b"%08x-" % (at * 2654435761 % (1 << 32)) for at in range(first, first + 12))[:100]
        for first in range(records)
    ]
    new = [NewRecord(None, value, TIMESTAMP_MS) for value in values]
    row = PartitionProduceData(0, encode_batch(new, codec=codec))
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(TOPIC, partition_data=[row])]
    )
    return bytes(encode_request(request, PRODUCE_VERSION, 1, "bench"))


def _fetch(offset: int, min_bytes: int) -> bytes:
    row = FetchPartition(0, fetch_offset=offset, partition_max_bytes=60)
    request = FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        topics=[FetchTopic(TOPIC, partitions=[row])],
    )
    return bytes(encode_request(request, FETCH_VERSION, 1, "bench"))


def _member(client: Client, group: str) -> tuple[str, int]:
    """Join a group as its only member. Gives: the member's id and generation."""
    protocols = [JoinGroupRequestProtocol("range", b"")]
    join = JoinGroupRequest(group, 600_000, 600_000, "", None, "consumer", protocols)
    answer = JoinGroupResponse.decode(client.call(join, 2)[4:], 2)
    assert answer.error_code == 0, answer
    assignment = [SyncGroupRequestAssignment(answer.member_id, b"")]
    sync = SyncGroupRequest(group, answer.generation_id, answer.member_id, assignments=assignment)
    client.call(sync, 2)
    return answer.member_id, answer.generation_id


def _cases(port: int) -> Iterator[Case]:
    client = Client(port)
    whole = [CreatableTopicConfig("barnabas.transactions.whole", "true")]
    topics = [CreatableTopic(TOPIC, 10, 1), CreatableTopic(WHOLE_TOPIC, 10, 1, configs=whole)]
    client.call(CreateTopicsRequest(topics, 10_000), 4)
    one = _produce(1)
    yield Case("Produce of one record", 200, lambda: client.exchange(one))
    yield Case("Produce of one record, 5 at once", 40, lambda: client.exchange(one * 5, 5), 5)
    for codec, name in ((Codec.NONE, "plain"), (Codec.LZ4, "lz4")):
        many = _produce(MANY, codec)
        yield Case(
            f"Produce of {MANY} records, {name}",
            200,
            lambda many=many: client.exchange(many),  # type: ignore[misc]
        )
    found = _fetch(0, 1)
    end = struct.unpack(">q", client.call(_list_offsets(), 1)[-8:])[0]
    waits = _fetch(end, 1)
    yield Case("Fetch that returns a record", 200, lambda: client.exchange(found))
    yield Case(f"Fetch that waits for {WAIT_MS} ms", 100, lambda: client.exchange(waits))
    for topic_name, what in ((TOPIC, ""), (WHOLE_TOPIC, ", whole transactions")):
        for is_2 in (False, True):
            for partitions in (1, 10):
                producer = PlainProducer(
                    port,
                    f"{topic_name}-{is_2}-{partitions}",
                    partitions,
                    is_version_2=is_2,
                    topic=topic_name,
                )
                name = f"transaction of version {1 + is_2}, {partitions} partition(s){what}"
                yield Case(name, 60, producer.transact)
                producer.close()
        ends = bytes(encode_request(_list_offsets(topic_name, 10), 2, 1, "bench"))
        yield Case(f"the ends of 10 partitions{what}", 200, lambda: client.exchange(ends))  # noqa: B023
    at_cut = bytes(encode_request(_list_offsets(WHOLE_TOPIC, 10, NEWEST_CUT), 2, 1, "bench"))
    yield Case("a recorded cut of 10 partitions", 200, lambda: client.exchange(at_cut))
    member_id, generation = _member(client, "group")
    beat = bytes(
        encode_request(
            HeartbeatRequest("group", generation, member_id), HEARTBEAT_VERSION, 1, "bench"
        )
    )
    yield Case("heartbeat of a classic group", 200, lambda: client.exchange(beat))
    rows = [OffsetCommitRequestPartition(0, 5)]
    commit = OffsetCommitRequest(
        "group", generation, member_id, topics=[OffsetCommitRequestTopic(TOPIC, partitions=rows)]
    )
    frame = bytes(encode_request(commit, COMMIT_VERSION, 1, "bench"))
    yield Case("commit of one offset", 200, lambda: client.exchange(frame))
    client.close()


def _list_offsets(topic: str = TOPIC, partitions: int = 1, timestamp: int = -1) -> Message:
    from barnabas.protocol.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    rows = [ListOffsetsPartition(index, timestamp=timestamp) for index in range(partitions)]
    return ListOffsetsRequest(-1, 1 if partitions > 1 else 0, [ListOffsetsTopic(topic, rows)])


def counts(
    scale: float = 1.0, names: list[str] | None = None, profiles: Path | None = None
) -> Iterator[tuple[str, float]]:
    """The thousands of instructions that each piece of work takes, by name."""
    with tempfile.TemporaryDirectory() as directory:
        broker = Counted(directory, profiles)
        try:
            for case in _cases(broker.port):
                if names and not any(name in case.name for name in names):
                    case.work()
                    continue
                for _ in range(WARM_UP):
                    case.work()
                count = max(10, int(case.times * scale))

                def work(case: Case = case, count: int = count) -> None:
                    for _ in range(count):
                        case.work()

                yield case.name, broker.count(case.name, work) / count / case.each / 1000
        finally:
            broker.stop()


def run(scale: float = 1.0) -> list[Row]:
    """Count the instructions of each row, if valgrind is there."""
    if shutil.which("valgrind") is None:
        print("  (no valgrind: instructions are not counted)", flush=True)
        return []
    return [
        Row(name, f"{thousands:,.1f} thousand instructions", "-", "-", "-")
        for name, thousands in counts(scale)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of rows (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the requests")
    parser.add_argument("--functions", type=Path, help="the directory for profiles")
    options = parser.parse_args()
    if options.functions is not None:
        options.functions.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(BrokenPipeError):
        for name, thousands in counts(options.scale, options.names, options.functions):
            print(f"{thousands:10,.1f}  {name}", flush=True)


if __name__ == "__main__":
    main()
