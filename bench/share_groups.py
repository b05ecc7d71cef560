"""The cost of share groups (KIP-932) in the broker's core.

    python -m bench.share_groups [--records N]

One member, then eight members, acquire and acknowledge a million records of 100 bytes. Then a fetch
and its acknowledgement are measured with few and with many locked records. They are also measured
in sessions of few and of many share partitions, of which one or all have records. No sockets are
used: the benchmark passes frames to `Broker.on_frame` and takes responses from the outbox. Figures
are CPU seconds of the thread; flushes are fsynced.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages import initialize_share_group_state as initialize
from barnabas.protocol.messages import share_acknowledge as acknowledge
from barnabas.protocol.messages import share_fetch as fetch
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from bench.common import Row

NOW_MS = 1_700_000_000_000
GROUP = "bench"
RECORD_BYTES, RECORDS_IN_BATCH = 100, 500
ACCEPT, RELEASE = 1, 2
FEW, MANY, MANY_WITH_RECORDS = 10, 10_000, 1000
ROUNDS = 300
SETTINGS = {
    "group.share.partition.max.record.locks": "10000",
    "group.share.max.partition.max.record.locks": "10000",
    "share.coordinator.state.topic.num.partitions": "4",
}


class _Ids:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=next(self._numbers), version=4)

    def random31(self) -> int:
        return next(self._numbers)


class Core:
    """A broker with a topic, and a share group that has read nothing yet.

    cpu_s: the CPU time of the requests so far.
    """

    def __init__(self, directory: str, partitions: int) -> None:
        settings = SETTINGS | {"log.dirs": directory}
        self.broker = open_broker(BrokerConfig.from_properties(settings), _Ids(), now_ms=NOW_MS)
        self.partitions = partitions
        self.cpu_s = 0.0
        self.connect(0)
        topic = self.broker.topics.create_topic("t", partitions, {}, now_ms=NOW_MS)
        self.topic_id = topic.topic_id
        for log in self.broker.topics.logs_of("t"):
            log.files.make()
        rows = [initialize.PartitionData(index, 0, 0) for index in range(partitions)]
        for first in range(0, partitions, 1000):
            data = initialize.InitializeStateData(self.topic_id, rows[first : first + 1000])
            self.ask(0, initialize.InitializeShareGroupStateRequest(GROUP, [data]), 0)

    def connect(self, connection: int) -> None:
        self.broker.on_connected(connection, "127.0.0.1", "127.0.0.1", 9092)

    def produce(self, index: int, records: int, in_batch: int = RECORDS_IN_BATCH) -> None:
        """Write records to a partition."""
        record = NewRecord(None, bytes(RECORD_BYTES), NOW_MS)
        batch = bytes(encode_batch([record] * in_batch))
        for _ in range(math.ceil(records / in_batch)):
            rows = [PartitionProduceData(index, batch)]
            request = ProduceRequest(
                transactional_id=None,
                acks=-1,
                timeout_ms=1000,
                topic_data=[TopicProduceData(name="t", partition_data=rows)],
            )
            self.ask(0, request, 9)

    def ask(self, connection: int, request: Message, version: int) -> Any:
        """Handle a request. Gives: the parts of its response."""
        frame = memoryview(bytearray(encode_request(request, version, 1, "bench")))[4:]
        broker = self.broker
        begin = time.thread_time()
        broker.on_frame(connection, frame, NOW_MS)
        while not (sends := broker.outbox.sends):
            if broker.outbox.flushes:
                job = broker.outbox.flushes.pop(0)
                for file in job.files:
                    file.fsync()
                broker.on_flushed(job, NOW_MS)
            else:
                broker.on_tick(NOW_MS)
        self.cpu_s += time.thread_time() - begin
        ((_, pieces),) = sends
        sends.clear()
        return pieces


class Member:
    """A member of the share group, whose share session has all partitions."""

    def __init__(self, core: Core, number: int) -> None:
        self.core, self.name, self.connection = core, f"m{number}", 10 + number
        self.epoch = 0
        core.connect(self.connection)

    def fetch(self, most: int, mode: int = 0, partitions: int | None = None) -> list[Any]:
        """The partition rows in the response to a ShareFetch."""
        core, topics = self.core, []
        # only the first fetch names partitions; the session remembers them
        if self.epoch == 0:
            count = core.partitions if partitions is None else partitions
            rows = [fetch.FetchPartition(index, []) for index in range(count)]
            topics = [fetch.FetchTopic(core.topic_id, rows)]
        request = fetch.ShareFetchRequest(
            GROUP, self.name, self.epoch, 0, 1, 50 << 20, most, most, mode, False, topics, []
        )
        data = b"".join(
            bytes(piece)
            if isinstance(piece, bytes | bytearray)
            else piece.file.pread(piece.size, piece.position)
            for piece in core.ask(self.connection, request, 2)
        )
        self.epoch += 1
        answer, _ = fetch.ShareFetchResponse.read(data, 9, 2)
        assert answer.error_code == 0
        return [row for topic in answer.responses for row in topic.partitions]

    def acknowledge(self, rows: list[Any], kind: int = ACCEPT) -> int:
        """Acknowledge all acquired records in some partition rows. Gives: the number of records."""
        parts = [
            acknowledge.AcknowledgePartition(
                row.partition_index,
                [
                    acknowledge.AcknowledgementBatch(one.first_offset, one.last_offset, [kind])
                    for one in row.acquired_records
                ],
            )
            for row in rows
        ]
        topics = [acknowledge.AcknowledgeTopic(self.core.topic_id, parts)]
        request = acknowledge.ShareAcknowledgeRequest(GROUP, self.name, self.epoch, False, topics)
        self.core.ask(self.connection, request, 2)
        self.epoch += 1
        return sum(
            one.last_offset - one.first_offset + 1 for row in rows for one in row.acquired_records
        )


def _consume(members: int, records: int) -> float:
    """CPU seconds for acquiring and acknowledging all records."""
    with tempfile.TemporaryDirectory() as directory:
        core = Core(directory, 4)
        for index in range(4):
            core.produce(index, records // 4)
        group = [Member(core, number) for number in range(members)]
        core.cpu_s, left = 0.0, records
        while left > 0:
            for member in group:
                left -= member.acknowledge(member.fetch(RECORDS_IN_BATCH))
        return core.cpu_s


def _beside_locks(locked: int) -> float:
    """CPU seconds for acquiring and acknowledging ten records, while `locked` other records are
    locked in batches of ten.
    """
    partitions = max(1, locked // 5000)
    with tempfile.TemporaryDirectory() as directory:
        core = Core(directory, partitions)
        for index in range(partitions):
            core.produce(index, min(locked, 5000) + 10 * (ROUNDS // partitions + 2), 10)
        holder, member = Member(core, 0), Member(core, 1)
        for _ in range(locked // 10):
            holder.fetch(10)
        core.cpu_s = 0.0
        for _ in range(ROUNDS):
            assert member.acknowledge(member.fetch(10)) == 10
        return core.cpu_s / ROUNDS


def _beside_partitions(partitions: int) -> float:
    """CPU seconds for acquiring and acknowledging ten records in a session of `partitions` share
    partitions, of which one has records.
    """
    with tempfile.TemporaryDirectory() as directory:
        core = Core(directory, partitions)
        member = Member(core, 0)
        member.fetch(10)
        core.produce(3, 10 * ROUNDS, 10)
        core.cpu_s = 0.0
        for _ in range(ROUNDS):
            assert member.acknowledge(member.fetch(10)) == 10
        return core.cpu_s / ROUNDS


def _among_partitions(partitions: int) -> float:
    """CPU seconds for acquiring and acknowledging 500 records in a session of `partitions` share
    partitions, which all have the same number of records.
    """
    with tempfile.TemporaryDirectory() as directory:
        core = Core(directory, partitions)
        for index in range(partitions):
            core.produce(index, RECORDS_IN_BATCH * math.ceil((ROUNDS + 1) / partitions))
        member = Member(core, 0)
        member.acknowledge(member.fetch(RECORDS_IN_BATCH))
        core.cpu_s = 0.0
        for _ in range(ROUNDS):
            assert member.acknowledge(member.fetch(RECORDS_IN_BATCH)) == RECORDS_IN_BATCH
        return core.cpu_s / ROUNDS


def run(scale: float = 1.0) -> list[Row]:
    """Measure all cases. A smaller scale uses fewer records."""
    records = max(10_000, int(1_000_000 * scale))
    figures = [
        (f"{records:,} x 100 B to {members} member(s) of a share group", _consume(members, records))
        for members in (1, 8)
    ]
    rounds = [
        (f"10 records acquired and acknowledged beside {locked:,} locked", _beside_locks(locked))
        for locked in (100, 100_000)
    ]
    rounds += [
        (f"the same, in a session of {count:,} share partitions", _beside_partitions(count))
        for count in (FEW, MANY)
    ]
    rounds += [
        (f"500 records of a session of {count:,} partitions with records", _among_partitions(count))
        for count in (FEW, MANY_WITH_RECORDS)
    ]
    return [Row(work, f"{seconds:.2f} s", "-", "-", "-") for work, seconds in figures] + [
        Row(work, f"{1e6 * seconds:.0f} µs", "-", "-", "-") for work, seconds in rounds
    ]


def main() -> None:
    """Print the costs, with the number of records from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    options = parser.parse_args()
    for row in run(options.records / 1_000_000):
        print(f"{row.work:75} {row.measured}", flush=True)


if __name__ == "__main__":
    main()
