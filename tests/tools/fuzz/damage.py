"""Damages one place of one file of a stopped broker's directory, starts the broker, and lets
clients ask for everything that reads or writes the files.

    PYTHONPATH=tests/tools:tests:. python -m fuzz.damage [--seeds N] [--first S]

A seed chooses how the broker ended, the file and the damage, which of the files that vouch for
others are gone, too, and whether all indexes are built in slices of a few batches. Findings:

- an event of the core raises an exception, or contains one that is no CorruptLog;
- a request has no answer, and its connection is closed, or still open in the end;
- a start is refused because of a file of one of the topics, which only concerns its partition;
- a partition whose directory was not touched does not take and give records.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

from helpers.admin_host import NOW_MS
from helpers.disk_broker import DATA_DIR, DiskBroker, Producer
from helpers.raised_faults import raised_faults
from helpers.share_member import ACCEPT, SHARED, ShareMember, begin_group, configure

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.segments import batch_file, segment_indexes

TOPICS = ("t", "kv", "u", "big")
ROUNDS = 10
BIG_BATCH_BYTES = 130_000  # nine of them are more than an index is built from at once
PARTS = ("flip", "flip", "flip", "truncate", "delete", "zero", "double", "insert")
TIMES = (-3, -1, 1, NOW_MS + 1, NOW_MS + 4000, NOW_MS + 9000, 10**15)
Files = dict[str, bytes]


# --- the directory --------------------------------------------------------------------------------


def _broker() -> DiskBroker:
    return DiskBroker(
        seed=1,
        log_cleaner_backoff_ms="1",
        log_retention_check_interval_ms="1000",
        log_initial_task_delay_ms="0",
        group_streams_initial_rebalance_delay_ms="0",
        **SHARED,
    )


@cache
def directory(*, is_stopped: bool) -> Files:
    """The files of a broker with four topics, transactions, and groups of each kind, which was
    stopped or killed.
    """
    b = _broker()
    b.topic("t", segment_bytes="500")
    compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
    b.topic("kv", segment_bytes="400", **compacted)
    b.topic("u", segment_bytes="300", retention_ms="100000000")
    b.topic("big", segment_bytes=str(10 * BIG_BATCH_BYTES))
    ending, opened = Producer(b, "x"), Producer(b, "y")
    _, pid, epoch = b.init(None)
    for number in range(ROUNDS):
        ending.send("t", 0, b"v%d" % number * 5)
        _send_keyed(b, ending, b"k%d" % (number % 3), b"w%d" % number)
        ending.send_offset("g", "t", number)
        ending.end(number % 3 != 0)
        b.produce("t", (b"plain%d" % number,), pid=pid, epoch=epoch, sequence=number)
        b.produce("u", (b"u%d" % number,) * 3)
        b.produce("big", (random.Random(number).randbytes(BIG_BATCH_BYTES),))
        b.now_ms += 1000
    opened.send("t", 0, b"open")
    b.commit("g2", "t", 3)
    begin_group(b, "sg", "t", "kv", "big")
    member = ShareMember(b, "sg", "m")
    member.take("t")
    member.acknowledge("t", (0, 0, ACCEPT))
    b.call(_join_streams("m"), 0)
    if is_stopped:
        b.broker.close_logs(b.now_ms)
    return {path: data for path, data in b.saved().items() if not path.endswith(".lock")}


def _send_keyed(b: DiskBroker, producer: Producer, key: bytes, value: bytes) -> None:
    """Produce a record with a key to "kv" in the producer's transaction."""
    assert producer.add("kv", 0) == Code.NONE
    sequence = producer.sequences.get(("kv", 0), 0)
    data = encode_batch(
        [NewRecord(key, value, b.now_ms)],
        producer_id=producer.pid,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    rows = [PartitionProduceData(index=0, records=bytes(data))]
    topics = [TopicProduceData(name="kv", partition_data=rows)]
    request = ProduceRequest(producer.txn, -1, 1000, topics)
    answer = b.call(request, 9, producer.connection)
    assert answer.responses[0].partition_responses[0].error_code == Code.NONE
    producer.sequences["kv", 0] = sequence + 1


def _join_streams(member: str) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        "streams", member, 0, rebalance_timeout_ms=60_000, process_id="p",
        topology=Topology(0, [Subtopology("0", ["t", "u"])]),
        active_tasks=[], standby_tasks=[], warmup_tasks=[],
    )  # fmt: skip


def damaged(files: Files, rng: random.Random) -> tuple[Files, str, str]:
    """The files after the damage, the damaged path, and what was done."""
    files = dict(files)
    paths = [path for path, data in files.items() if data]
    if rng.random() < 0.6:
        paths = [path for path in paths if path.endswith(".log")]
    path = rng.choice(paths)
    data, kind = bytearray(files[path]), rng.choice(PARTS)
    at = rng.randrange(len(data))
    if kind == "flip":
        data[at] ^= rng.choice((1, 2, 4, 8, 16, 32, 64, 128, 255))
    elif kind == "truncate":
        del data[at:]
    elif kind == "zero":
        count = len(data[at : at + rng.randint(1, 80)])
        data[at : at + count] = bytes(count)
    elif kind == "double":
        data += data[at:]
    elif kind == "insert":
        data[at:at] = bytes([rng.randrange(256)])
    if kind == "delete":
        del files[path]
    else:
        files[path] = bytes(data)
    missing = rng.choice(("segments.manifest", "segments.manifest", "index", "-", "-"))
    for name in [name for name in files if name.endswith(missing)]:
        del files[name]
    return files, path, f"{kind} at {at} of {path}, without *{missing}"


# --- what clients ask for -------------------------------------------------------------------------


class Asking:
    """The clients of one start on a damaged directory. findings: what went wrong."""

    def __init__(self, b: DiskBroker, says: str) -> None:
        self.b, self._says = b, says
        self.findings: list[str] = []

    def run(self, what: str, step: Callable[[], Any]) -> Any:
        """Do a step. Gives: its result; None if it raised an exception, which is a finding."""
        try:
            return step()
        except Exception:
            self.findings.append(f"{what}: {self._says}\n{traceback.format_exc()}")
            return None

    def ask(self, request: Message, version: int) -> Any:
        """Send a request on a connection of its own. Gives: the answer, for which some ticks may be
        necessary.
        """
        b, connection, name = self.b, self.b.connect(), type(request).__name__
        self.run(name, lambda: b.send(connection, request, version))
        for _ in range(400):
            if b.answer(connection) is not None or connection in b.closed:
                break
            self.run(f"a tick after {name}", lambda: b.tick(1))
        answer = b.answer(connection)
        if answer is None:
            why = b.closed.get(connection, "not closed")
            self.findings.append(f"{name} has no answer ({why}): {self._says}")
        return answer

    def ticks(self, count: int, elapsed_ms: int = 0) -> None:
        for _ in range(count):
            self.run("a tick", lambda: self.b.tick(elapsed_ms))

    def everything(self, touched: str) -> None:
        """Let clients ask for everything, then let time pass. Takes: touched, the damaged topic."""
        for topic in TOPICS:
            self._read(topic)
            self._look_up(topic)
        self._share()
        self._write()
        self.ask(_join_streams("n"), 0)
        self._clean()
        self.b.now_ms += 200_000_000
        self.ticks(6, 2000)
        for topic in TOPICS:
            if topic != touched:
                self.run(f"{topic} is not damaged", lambda topic=topic: self._use(topic))
        self.run("the stop", lambda: self.b.broker.close_logs(self.b.now_ms))

    def _read(self, topic: str) -> None:
        b = self.b
        log = b.broker.topics.partition(topic, 0)
        end = 5 if log is None else log.log_end_offset
        for offset in sorted({0, 1, end // 3, end // 2, 2 * end // 3, max(end - 1, 0)}):
            for is_committed in (True, False):
                connection = b.connect()
                how = {"committed": is_committed, "max_wait_ms": 5, "min_bytes": 1 << 20}
                self.run(
                    "Fetch",
                    lambda at=(connection, offset), how=how: b.send_fetch(
                        at[0], topic, at[1], **how
                    ),
                )
                for _ in range(400):
                    if b.answer(connection) is not None:
                        break
                    self.run("a tick after Fetch", lambda: b.tick(1))
                else:
                    why = b.closed.get(connection, "not closed")
                    self.findings.append(f"Fetch has no answer ({why}): {self._says}")

    def _look_up(self, topic: str) -> None:
        self.ask(_older_fetch(topic), 3)
        for time in TIMES:
            for level in (0, 1):
                self.ask(_offsets_of(topic, time, level), 7)
        self.ask(_offsets_of(topic, NOW_MS + 4000, 0, 5), 0)
        self.ask(DescribeProducersRequest([TopicRequest(topic, [0])]), 0)
        for epoch in (0, 1, 2):
            rows = [OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, -1, epoch)])]
            self.ask(OffsetForLeaderEpochRequest(-1, rows), 4)

    def _share(self) -> None:
        b = self.b
        for number, min_bytes in enumerate((1, 100_000)):
            member = ShareMember(b, "sg", f"n{number}")
            places = [(topic, 0) for topic in ("t", "kv", "big")]
            self.run("a share session", lambda: None)
            self.ask(member.fetch_request(*places, max_wait_ms=5, min_bytes=min_bytes), 2)
        self.run("settings", lambda: configure(b, "sd", share_auto_offset_reset="by_duration:PT1S"))
        self.run("a group by time", lambda: begin_group(b, "sd", "t", "u", "big", start=-1))
        member = ShareMember(b, "sd", "n")
        places = [(topic, 0) for topic in ("t", "u", "big")]
        self.ask(member.fetch_request(*places, max_wait_ms=5), 2)

    def _write(self) -> None:
        b = self.b
        for is_commit, name in ((True, "x"), (False, "y")):

            def transact(is_commit: bool = is_commit, name: str = name) -> None:
                producer = Producer(b, name)
                for topic in TOPICS:
                    if producer.add(topic, 0) == Code.NONE:
                        producer.produce(topic, 0, b"new")
                producer.end(is_commit)

            self.run("a transaction", transact)
        self.run("repeated batches", self._repeat)
        rows = [DeleteRecordsTopic("u", [DeleteRecordsPartition(0, 9)])]
        self.ask(DeleteRecordsRequest(rows, 1000), 2)
        self.ask(DescribeLogDirsRequest(None), 4)

    def _repeat(self) -> None:
        """Send batches of idempotent producers again, which may have to be read from the log."""
        b = self.b
        log = b.broker.topics.partition("t", 0)
        for pid, one in () if log is None else list(log.producer_state.producers.items())[:4]:
            for batch in list(one.batches):
                b.produce(
                    "t", (b"z",), pid=pid, epoch=one.producer_epoch, sequence=batch.first_sequence
                )

    def _clean(self) -> None:
        """Let compacted logs be cleaned."""
        b = self.b
        for _ in range(4):
            self.ticks(1, 2000)
            while b.cleanings:
                job, result, why = b.cleanings.pop(0), None, ""
                try:
                    result = clean(b.disk, job)
                except (CorruptLog, FileNotFoundError) as error:
                    why = str(error)
                arguments = (job, result, why, b.now_ms)
                self.run("a cleaning", lambda of=arguments: b.broker.on_cleaned(*of))
                self.ticks(2)

    def _use(self, topic: str) -> None:
        """Write to a partition that is not damaged, and read the record."""
        b = self.b
        offset = b.put(topic, b"key", b"last")
        self.ticks(2)
        fetched = b.fetch(topic, offset, b.connect())
        assert (fetched.code, fetched.rows()) == (Code.NONE, [(offset, b"last")])


def _older_fetch(topic: str) -> FetchRequest:
    """A Fetch whose batches are converted to older messages."""
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[row])],
    )  # fmt: skip


def _offsets_of(topic: str, time: int, level: int, most: int = 1) -> ListOffsetsRequest:
    """A ListOffsets request for one partition. Takes: most, for version 0."""
    row = ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=time, max_num_offsets=most
    )
    topics = [ListOffsetsTopic(name=topic, partitions=[row])]
    return ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics)


# --- seeds ----------------------------------------------------------------------------------------


@contextmanager
def _in_slices(is_sliced: bool) -> Iterator[None]:
    """Whether each index is built in slices of a few batches."""
    if not is_sliced:
        yield
        return
    with (
        mock.patch.object(segment_indexes, "BUILT_AT_ONCE_BYTES", 1),
        mock.patch.object(batch_file, "SLICE_COST", 2),
    ):
        yield


def topic_of(path: str) -> str:
    """The topic to whose partition a file belongs; "" for other files."""
    name = path.removeprefix(f"{DATA_DIR}/").partition("/")[0].rpartition("-")[0]
    return name if name in TOPICS else ""


def run(seed: int, counts: Counter[str] | None = None) -> list[str]:
    """Damage a directory, start a broker, ask for everything. Gives: the findings."""
    rng = random.Random(seed)
    is_stopped = rng.random() < 0.6
    files, path, says = damaged(directory(is_stopped=is_stopped), rng)
    says = f"seed {seed}, {'stopped' if is_stopped else 'killed'}, {says}"
    b = _broker()
    b.load(files)
    b.now_ms = NOW_MS + 20_000
    if not is_stopped and rng.random() < 0.3:
        b.disk.boots += 1  # the machine was restarted
    counts = Counter() if counts is None else counts
    with raised_faults(), _in_slices(rng.random() < 0.5):
        try:
            b.open()
        except LogDirectoryError as error:
            counts["refused starts"] += 1
            is_of_topic = topic_of(path)
            return [f"the start is refused: {says}\n{error}"] if is_of_topic else []
        except Exception:
            return [f"the start: {says}\n{traceback.format_exc()}"]
        counts["off line"] += len(b.broker.logs.offline)
        asking = Asking(b, says)
        asking.everything(topic_of(path))
    return asking.findings


def main() -> int:
    """Return the exit code, which is 0 if nothing was found."""
    options = argparse.ArgumentParser(prog="python -m fuzz.damage", description=__doc__)
    options.add_argument("--seeds", type=int, default=500, help="(default %(default)s)")
    options.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = options.parse_args()
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    found = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        findings = run(seed, counts)
        found += len(findings)
        for finding in findings[:2]:
            print(f"--- {finding}\n", flush=True)
    print(f"{arguments.seeds} damaged directories: {dict(counts)}, {found} findings")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
