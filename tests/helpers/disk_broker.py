"""A real Broker on a simulated disk, and clients that only send requests.

Nothing happens unless a test calls for it. The clock advances only in `tick`. Flushes are carried
out immediately, or, after `hold_flushes`, one at a time with `flush_one`; fsyncs between the steps
of a file change are never held. The worker's jobs also run immediately, unless `holds_work` is set.
`answer` returns the response to a connection's request once there is one. Kills and power losses
are those of `sim.disk`, but a power loss here is always the worst case, in which everything that
was not fsynced is lost.

    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    assert p.end(True) == 0
    assert b.read("t", committed=True) == [b"a"]
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sim.disk import Directory, SimDisk

from barnabas.broker.core import Broker
from barnabas.broker.outbox import FlushJob
from barnabas.broker.parts import Parts
from barnabas.broker.settings.config import BrokerConfig
from barnabas.coordinator.result import Result, partition_for
from barnabas.coordinator.transactions.transaction_records import record_of
from barnabas.daemon.opening import open_broker
from barnabas.protocol.errors import Code
from barnabas.protocol.framing import GIVEN_AWAY_BYTES
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.records import NewRecord, batches_in, decode_marker, encode_batch, records_of
from barnabas.storage.cleaning.clean_job import CleanJob
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.disk import Slice
from helpers.admin_host import NOW_MS, CountedIds, creatable
from helpers.kept_deadline import pass_frame
from helpers.our_messages import read_answer, request_frame

DATA_DIR = "/data"
READER = 90  # the connection on which the helper sends its own requests
LONG_AGO = {"retention.ms": "-1"}


class Worst(random.Random):
    """A random generator that always makes the worst choice."""

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0

    def randint(self, a: int, b: int) -> int:
        return a

    def random(self) -> float:
        return 0.0


class Fetched(NamedTuple):
    """The part of a Fetch response about one partition. `aborted` has the producer id and the first
    offset of each aborted transaction. It is None for read_uncommitted.
    """

    code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    data: bytes

    def rows(self) -> list[tuple[int, bytes]]:
        """The offset and the value of each record that a client delivers from this response. A
        read_committed client skips aborted records.
        """
        waiting = sorted(self.aborted or [], key=lambda row: row[1])
        aborting: set[int] = set()
        found = []
        for position, header in batches_in(self.data):
            if position + header.size_bytes > len(self.data):
                break
            batch = self.data[position : position + header.size_bytes]
            while waiting and waiting[0][1] <= header.last_offset:
                aborting.add(waiting.pop(0)[0])
            if header.is_control:
                if not decode_marker(batch).commit:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                found += [(record.offset, record.value or b"") for record in records_of(batch)]
        return found

    def next_offset(self, offset: int) -> int:
        """The offset of the client's next fetch."""
        for position, header in batches_in(self.data):
            if position + header.size_bytes <= len(self.data):
                offset = max(offset, header.next_offset)
        return offset


def creation_of(
    name: str, partitions: int, configs: Mapping[str, str | None]
) -> CreateTopicsRequest:
    """A CreateTopics request with one topic."""
    topics = [creatable(name, partitions, configs=dict(configs))]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=False)


class DiskBroker:
    """A broker on a simulated disk.

    `broker` is the running broker, which `kill`, `lose_power` and `stop` replace. `disk` is the
    disk that all these brokers use. `closed` has the connections that the broker closed, each with
    the reason.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        new_disk: Callable[[Callable[[], int]], SimDisk] | None = None,
        **settings: str,
    ) -> None:
        self.now_ms = NOW_MS
        rng = Worst() if seed is None else random.Random(seed)
        now_ms = lambda: self.now_ms  # noqa: E731
        self.disk = SimDisk(rng, now_ms) if new_disk is None else new_disk(now_ms)
        self.clock_ns: Callable[[], int] = lambda: 0
        self.disk.mkdir(DATA_DIR)
        # Make DATA_DIR durable from the start, since the broker syncs no directory above it.
        self.disk.fsync_dir("/")
        self._properties = {
            "log.dirs": DATA_DIR,
            "transaction.state.log.num.partitions": "2",
            "offsets.topic.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
        } | {name.replace("_", "."): value for name, value in settings.items()}
        self._ids = CountedIds()
        self.holds_flushes = self.holds_work = False
        self.cleanings: list[CleanJob] = []
        self._next_connection = 1
        self._asked: dict[int, tuple[type[Message], int, int]] = {}
        self._answers: dict[int, Any] = {}
        # the last response of each connection, without the size field
        self.answer_frames: dict[int, bytes] = {}
        self.closed: dict[int, str] = {}
        self._correlation = 0
        self.broker: Broker
        self.open()

    # --- the process -----------------------------------------------------------------------------

    @property
    def parts(self) -> Parts:
        """The broker's objects, which a test may inspect."""
        return self.broker.routes.parts

    def open(self) -> None:
        """Start the broker on the disk. It has no connections of an earlier broker."""
        self._asked.clear()
        self._answers.clear()
        config = BrokerConfig.from_properties(dict(self._properties))
        self.broker = open_broker(
            config, self._ids, disk=self.disk, now_ms=self.now_ms, clock_ns=self.clock_ns
        )
        self.broker.on_connected(READER, "192.0.2.9", "192.0.2.1", 9092)
        self._carry_out()

    def set_property(self, name: str, value: str) -> None:
        """Change a setting. It takes effect at the next start."""
        self._properties[name] = value

    def kill(self) -> None:
        """Kill the process, and start the broker again."""
        self.disk.kill()
        self.holds_flushes = False
        self.open()

    def copy_disk(self, *, is_new_mount: bool) -> None:
        """Kill the broker, and start it on a copy of the disk that was taken before all data had
        been written back (see `SimDisk.copy`).
        """
        self.disk.copy(is_new_mount=is_new_mount)
        self.holds_flushes = False
        self.open()

    def lose_power(self) -> None:
        """Simulate a power loss: discard everything that is not on the disk, and start the broker
        again.
        """
        self.disk.lose_power()
        self.holds_flushes = False
        self.open()

    def stop(self) -> None:
        """Stop the broker cleanly, and start it again."""
        self.broker.close_logs(self.now_ms)
        self.disk.kill()
        self.open()

    def sync(self, part: str) -> None:
        """Make the files whose paths contain `part` durable, with their names, as an operating
        system may do at any time.
        """
        for path, inode in self.disk.files():
            if part in path:
                inode.sync()
                directory = path.rpartition("/")[0]
                self.disk.fsync_dir(directory)
                self.disk.fsync_dir(directory.rpartition("/")[0] or directory)

    def saved(self) -> dict[str, bytes]:
        """Return the contents of all files, for `load`."""
        return {path: bytes(inode.data) for path, inode in self.disk.files()}

    def load(self, saved: Mapping[str, bytes]) -> None:
        """Restore saved files, as if the process had been killed when they were saved. The broker
        is not started.
        """
        self.disk.kill()
        self.disk.root = Directory()
        for path, data in saved.items():
            self.disk.mkdir(path.rpartition("/")[0])
            self.disk.open(path, create=True).append(data)

    # --- time and flushes ------------------------------------------------------------------------

    def tick(self, elapsed_ms: int = 0) -> None:
        """Advance the clock, and call the broker's `on_tick`."""
        self.now_ms += elapsed_ms
        self.broker.on_tick(self.now_ms)
        self._carry_out()

    def hold_flushes(self) -> None:
        self.holds_flushes = True

    def flush_one(self) -> bool:
        """Carry out the oldest requested flush. Return False if there is none."""
        jobs = self.broker.outbox.flushes
        if not jobs:
            return False
        self._end_flush(jobs.pop(0))
        return True

    def _end_flush(self, job: FlushJob) -> None:
        """Sync the job's files, report to the broker that the flush has ended, and take the
        responses that it releases.
        """
        for file in job.files:
            file.fsync()
        self.broker.on_flushed(job, self.now_ms)
        self._take_answers()
        while self.broker.outbox.deferred:
            self.broker.on_sent(self.now_ms)
            self._take_answers()

    def flush(self) -> None:
        """Carry out flushes until none is left."""
        while self.flush_one():
            pass

    def release_flushes(self) -> None:
        self.holds_flushes = False
        self.flush()

    def _carry_out(self) -> None:
        """Take responses, then carry out work and flushes unless the test holds them. Flushes
        between two steps of a file change are never held.
        """
        self._take_answers()
        if not self.holds_work:
            self._do_work()
        while self.broker.outbox.deferred:  # a deferred call may defer others
            self.broker.on_sent(self.now_ms)
            self._take_answers()
        if not self.holds_flushes:
            self.flush()
        while steps := [job for job in self.broker.outbox.flushes if job.then is not None]:
            self.broker.outbox.flushes.remove(steps[0])
            self._end_flush(steps[0])

    def do_work(self) -> None:
        """Run the worker's jobs."""
        self._do_work()
        self._carry_out()

    def _do_work(self) -> None:
        """Run the worker's jobs, and take the responses."""
        while self.broker.outbox.work:
            work = self.broker.outbox.work.pop(0)
            self.broker.on_worked(work, work.run(), None, self.now_ms)
            self._take_answers()

    def _take_answers(self) -> None:
        """Take the cleaner's jobs, closed connections and responses from the outbox."""
        outbox = self.broker.outbox
        self.cleanings, outbox.cleanings = outbox.cleanings or self.cleanings, []
        for connection, reason in outbox.closes:
            self.closed[connection] = str(reason)
            self._asked.pop(connection, None)
            self.broker.on_closed(connection)
        outbox.closes.clear()
        sends, outbox.sends = outbox.sends, []
        for connection, pieces in sends:
            request, version, correlation = self._asked.pop(connection)
            data = b"".join(_bytes_of(piece) for piece in pieces)
            if not data:
                continue  # a Produce request with acks=0 has no response
            size, got = struct.unpack_from(">ii", data)
            assert (size, got) == (len(data) - 4, correlation)
            self.answer_frames[connection] = data[4:]
            self._answers[connection] = read_answer(memoryview(data)[4:], request, version)

    # --- requests --------------------------------------------------------------------------------

    def connect(self) -> int:
        """Open a connection, and return its number."""
        connection = self._next_connection
        self._next_connection += 1
        self.broker.on_connected(connection, "192.0.2.9", "192.0.2.1", 9092)
        return connection

    def send(self, connection: int, request: Message, version: int) -> None:
        """Send a request. `answer` returns the response once there is one."""
        self._correlation += 1
        frame = bytearray(request_frame(request, version, self._correlation))
        self._answers.pop(connection, None)
        self._asked[connection] = type(request), version, self._correlation
        pass_frame(self.broker, connection, memoryview(frame), self.now_ms)
        if len(frame) <= GIVEN_AWAY_BYTES:  # the rim reuses this memory for the next frame
            frame[:] = bytes(len(frame))
        self._carry_out()

    def answer(self, connection: int) -> Any:
        """The response to the connection's last request; None while the request waits."""
        return self._answers.get(connection)

    def call(self, request: Message, version: int, connection: int = READER) -> Any:
        """Send a request and return the response, which must arrive without advancing the clock."""
        self.send(connection, request, version)
        while self.answer(connection) is None and self.broker.requests.work.is_ready:
            self.tick()
        answer = self.answer(connection)
        assert answer is not None, (
            f"{type(request).__name__} is not answered: {self.closed.get(connection, 'not yet')}"
        )
        return answer

    def is_hung_up_on(self, connection: int, request: Message, version: int) -> bool:
        """Send a request, and return whether the broker closes the connection without a
        response.
        """
        self.send(connection, request, version)
        assert (self.answer(connection) is None) == (connection in self.closed)
        return connection in self.closed

    def topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic without time retention, so that records with any timestamp are kept."""
        settings: dict[str, str | None] = {
            **LONG_AGO,
            **{key.replace("_", "."): value for key, value in configs.items()},
        }
        assert self.call(creation_of(name, partitions, settings), 7).topics[0].error_code == 0

    def topic_after_flushes(self, name: str, partitions: int = 1) -> None:
        """Create a topic while flushes are held. Carry out the flushes one at a time, and check
        that the topic does not exist before its creation is complete.
        """
        connection = self.connect()
        self.send(connection, creation_of(name, partitions, LONG_AGO), 7)
        while self.answer(connection) is None:
            assert name not in self.broker.topics
            assert self.broker.requests.work.is_ready or self.broker.outbox.flushes, (
                "it waits for nothing"
            )
            if self.broker.requests.work.is_ready:
                self.tick()
            else:
                self.flush_one()
        assert self.answer(connection).topics[0].error_code == Code.NONE

    def make_files(self, topic: str) -> None:
        """Create each partition's directory, which otherwise happens at the partition's first
        batch.
        """
        for log in self.broker.topics.logs_of(topic):
            log.files.make()

    def send_fetch(
        self,
        connection: int,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        committed: bool = False,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
    ) -> None:
        """Send a Fetch request for one partition, without a fetch session. `fetched` returns the
        response once there is one.
        """
        wanted = FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            log_start_offset=-1,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
            forgotten_topics_data=[],
            rack_id="",
        )
        self.send(connection, request, 11)

    def fetched(self, connection: int = READER) -> Fetched | None:
        """The response to the connection's fetch; None while the fetch waits."""
        answer = self.answer(connection)
        if answer is None:
            return None
        assert answer.error_code == Code.NONE
        row = answer.responses[0].partitions[0]
        aborted = (
            None
            if row.aborted_transactions is None
            else [(a.producer_id, a.first_offset) for a in row.aborted_transactions]
        )
        ends = (row.high_watermark, row.last_stable_offset, row.log_start_offset)
        return Fetched(row.error_code, *ends, aborted, bytes(row.records or b""))

    def fetch(self, topic: str, offset: int = 0, connection: int = READER, **how: Any) -> Fetched:
        """Fetch, and return the response, which must not be delayed."""
        self.send_fetch(connection, topic, offset, **how)
        found = self.fetched(connection)
        assert found is not None and found.code == 0, found
        return found

    def rows(
        self,
        topic: str,
        offset: int = 0,
        *,
        partition: int = 0,
        committed: bool = False,
        max_bytes: int = 1 << 20,
    ) -> list[Any]:
        """The offset and the value of each record that a client gets when it fetches from `offset`
        to the end of the log. Fails if a fetch makes no progress.
        """
        found: list[Any] = []
        while True:
            one = self.fetch(
                topic, offset, partition=partition, committed=committed, max_bytes=max_bytes
            )
            end = one.last_stable_offset if committed else one.high_watermark
            if offset >= end:
                assert one.data == b""
                return found
            found += [row for row in one.rows() if row[0] >= offset]
            assert one.next_offset(offset) > offset, (
                f"a reader at {offset} gets no further, and the end is {end}"
            )
            offset = one.next_offset(offset)

    def read(self, topic: str, partition: int = 0, *, committed: bool = False) -> list[bytes]:
        """The values of all records in a partition."""
        return [value for _, value in self.rows(topic, partition=partition, committed=committed)]

    def end_offset(self, topic: str, partition: int = 0, *, committed: bool = False) -> int:
        """The log end offset from ListOffsets or, with `committed`, the last stable offset."""
        wanted = ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=-1, timestamp=-1
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
        )
        row = self.call(request, 5).topics[0].partitions[0]
        assert row.error_code == Code.NONE
        offset: int = row.offset
        return offset

    def produce(
        self,
        topic: str,
        values: tuple[bytes, ...],
        *,
        partition: int = 0,
        pid: int = -1,
        epoch: int = -1,
        sequence: int = -1,
        txn: str | None = None,
        connection: int = READER,
        version: int = 9,
    ) -> tuple[int, int]:
        """Produce one batch, and return the error code and the base offset."""
        request = self.produce_request(
            topic, values, partition=partition, pid=pid, epoch=epoch, sequence=sequence, txn=txn
        )
        row = self.call(request, version, connection).responses[0].partition_responses[0]
        return row.error_code, row.base_offset

    def produce_request(
        self,
        topic: str,
        values: tuple[bytes, ...],
        *,
        partition: int = 0,
        pid: int = -1,
        epoch: int = -1,
        sequence: int = -1,
        txn: str | None = None,
    ) -> ProduceRequest:
        """A Produce request with one batch, which is transactional if `txn` is given."""
        data = encode_batch(
            [NewRecord(None, value, self.now_ms) for value in values],
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=txn is not None,
        )
        rows = [PartitionProduceData(index=partition, records=bytes(data))]
        return ProduceRequest(
            transactional_id=txn,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=rows)],
        )

    def put(self, topic: str, key: bytes, value: bytes | None) -> int:
        """Produce one record with a key, in a batch of its own, and return its offset."""
        data = encode_batch([NewRecord(key, value, self.now_ms)])
        rows = [PartitionProduceData(index=0, records=bytes(data))]
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=rows)],
        )
        row = self.call(request, 9).responses[0].partition_responses[0]
        assert row.error_code == Code.NONE
        return int(row.base_offset)

    def compact(self) -> None:
        """Advance the clock until no log is dirty enough to be cleaned."""
        for _ in range(3):
            self.tick(self.broker.config.log_cleaner_backoff_ms)
            while self.cleanings:
                job = self.cleanings.pop(0)
                self.broker.on_cleaned(job, clean(self.disk, job), "", self.now_ms)
                self._carry_out()
                self.tick()

    def init(
        self,
        txn: str | None,
        *,
        pid: int = -1,
        epoch: int = -1,
        timeout_ms: int = 60_000,
        version: int = 4,
    ) -> tuple[int, int, int]:
        """Send InitProducerId, and return the error code, the producer id and the epoch."""
        return init_row(self.call(init_request(txn, pid, epoch, timeout_ms), version))

    def state(self, txn: str) -> tuple[str, int, int]:
        """The state, the producer id and the epoch of a transactional id, from
        DescribeTransactions.
        """
        row = self.call(DescribeTransactionsRequest(transactional_ids=[txn]), 0).transaction_states[
            0
        ]
        assert row.error_code == Code.NONE
        return row.transaction_state, row.producer_id, row.producer_epoch

    def set_epoch(self, txn: str, epoch: int) -> None:
        """Raise the epoch of an idle transactional id by writing one record, where a client would
        need thousands of InitProducerId requests.
        """
        found = self.broker.transactions.metadata(txn)
        assert found is not None and not found.partitions
        moved = found._replace(producer_epoch=epoch)
        partition = partition_for(txn, len(self.broker.topics.partitions_of("__transaction_state")))
        self.parts.transaction_ends.run(
            Result(partition=partition, records=[record_of(moved)], transactions=[moved]),
            self.now_ms,
        )

    def commit(
        self, group: str, topic: str, offset: int, *, leader_epoch: int = -1, metadata: str = ""
    ) -> int:
        """Commit an offset of partition 0 for a group without members, and return the error
        code.
        """
        row = OffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )
        topics = [OffsetCommitRequestTopic(name=topic, partitions=[row])]
        asked = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=topics,
        )
        code: int = self.call(asked, 8).topics[0].partitions[0].error_code
        return code

    def group_offset(
        self, group: str, topic: str, partition: int = 0, *, stable: bool = True
    ) -> tuple[int, int]:
        """(code, committed offset)."""
        topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
        row = (
            self.call(OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable), 7)
            .topics[0]
            .partitions[0]
        )
        return row.error_code, row.committed_offset

    def write_marker(
        self, pid: int, epoch: int, topic: str, *, commit: bool, coordinator_epoch: int = 0
    ) -> int:
        """Send WriteTxnMarkers for partition 0, and return the error code."""
        marker = WritableTxnMarker(
            producer_id=pid,
            producer_epoch=epoch,
            transaction_result=commit,
            coordinator_epoch=coordinator_epoch,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        )
        code: int = (
            self.call(WriteTxnMarkersRequest(markers=[marker]), 1)
            .markers[0]
            .topics[0]
            .partitions[0]
            .error_code
        )
        return code

    def markers(self, topic: str, partition: int = 0) -> list[tuple[int, int, bool]]:
        """The producer id and the epoch of each marker in a log, and whether the marker commits."""
        log = self.broker.topics.partition(topic, partition)
        assert log is not None
        return [
            (h.producer_id, h.producer_epoch, decode_marker(batch).commit)
            for h, batch in log.read_batches()
            if h.is_control
        ]


class Producer:
    """A transactional producer, which sends requests over its current connection. Its methods
    return the error codes of the responses.
    """

    def __init__(self, b: DiskBroker, txn: str, *, timeout_ms: int = 60_000) -> None:
        self.b, self.txn, self.timeout_ms = b, txn, timeout_ms
        self.connection = b.connect()
        self.sequences: dict[tuple[str, int], int] = {}
        self.pid, self.epoch = -1, -1
        self.begin_session()

    def begin_session(self) -> None:
        """Send InitProducerId. The sequence numbers start at 0 again."""
        code, self.pid, self.epoch = self.b.init(self.txn, timeout_ms=self.timeout_ms)
        assert code == Code.NONE, code
        self.sequences.clear()

    def reconnect(self) -> int:
        """Open a new connection. Return the number of the old one, on which requests in flight may
        still arrive.
        """
        old, self.connection = self.connection, self.b.connect()
        return old

    def add(self, topic: str, *partitions: int, version: int = 3) -> int:
        """Add partitions to the transaction, and return the error code."""
        return code_of_adding(
            self.b.call(self.add_request({topic: partitions}), version, self.connection)
        )

    def add_request(self, topics: Mapping[str, tuple[int, ...]]) -> Any:
        """An AddPartitionsToTxn request of these partitions."""
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.txn,
            v3_and_below_producer_id=self.pid,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=n, partitions=list(p)) for n, p in topics.items()
            ],
        )

    def produce(
        self,
        topic: str,
        partition: int,
        *values: bytes,
        sequence: int | None = None,
        connection: int | None = None,
    ) -> int:
        """Produce without adding the partition. If `sequence` is given, the producer's own sequence
        number does not advance.
        """
        at = self.sequences.get((topic, partition), 0)
        code, _ = self.b.produce(
            topic,
            values,
            partition=partition,
            pid=self.pid,
            epoch=self.epoch,
            sequence=at if sequence is None else sequence,
            txn=self.txn,
            connection=self.connection if connection is None else connection,
        )
        if code == Code.NONE and sequence is None:
            self.sequences[topic, partition] = at + len(values)
        return code

    def is_late(self, topic: str, *values: bytes, sequence: int, connection: int) -> bool:
        """Whether the broker ignores a batch that arrives over an abandoned connection, and closes
        the connection.
        """
        request = self.b.produce_request(
            topic, values, pid=self.pid, epoch=self.epoch, sequence=sequence, txn=self.txn
        )
        return self.b.is_hung_up_on(connection, request, 9)

    def send(self, topic: str, partition: int, *values: bytes) -> None:
        """Add the partition to the transaction and write to it, as a client does."""
        assert self.add(topic, partition) == 0
        assert self.produce(topic, partition, *values) == 0

    def end_request(self, commit: bool) -> Any:
        """An EndTxn request of this producer."""
        return EndTxnRequest(
            transactional_id=self.txn,
            producer_id=self.pid,
            producer_epoch=self.epoch,
            committed=commit,
        )

    def end(self, commit: bool, *, connection: int | None = None, version: int = 3) -> int:
        """Send EndTxn, and return the error code."""
        code: int = self.b.call(
            self.end_request(commit), version, self.connection if connection is None else connection
        ).error_code
        return code

    def is_end_processed_over(self, commit: bool, connection: int) -> bool:
        """Whether an EndTxn request that arrives late over an abandoned connection is processed. If
        it is not, the broker closes the connection.
        """
        return not self.b.is_hung_up_on(connection, self.end_request(commit), 3)

    def start_end(self, commit: bool) -> None:
        """Send EndTxn. `ended` returns the error code once there is a response."""
        self.b.send(self.connection, self.end_request(commit), 3)

    def ended(self) -> int | None:
        answer = self.b.answer(self.connection)
        return None if answer is None else answer.error_code

    def add_offsets_request(self, group: str) -> Any:
        """An AddOffsetsToTxn request of this producer."""
        return AddOffsetsToTxnRequest(
            transactional_id=self.txn,
            producer_id=self.pid,
            producer_epoch=self.epoch,
            group_id=group,
        )

    def add_offsets(self, group: str, version: int = 3) -> int:
        """Add the group's offsets to the transaction, and return the error code."""
        code: int = self.b.call(
            self.add_offsets_request(group), version, self.connection
        ).error_code
        return code

    def offset_request(self, group: str, topic: str, offset: int, partition: int = 0) -> Any:
        """A TxnOffsetCommit request for an offset that need not be in the log. The metadata of the
        offset makes that clear to the broker, so that a power loss does not reset the offset.
        """
        row = TxnOffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="a number",
        )
        return TxnOffsetCommitRequest(
            transactional_id=self.txn,
            group_id=group,
            producer_id=self.pid,
            producer_epoch=self.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
        )

    def commit_offset(self, group: str, topic: str, offset: int, *, version: int = 3) -> int:
        """Commit a group's offset in the transaction, and return the error code."""
        code: int = (
            self.b.call(self.offset_request(group, topic, offset), version, self.connection)
            .topics[0]
            .partitions[0]
            .error_code
        )
        return code

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        assert self.add_offsets(group) == 0
        assert self.commit_offset(group, topic, offset) == 0


def _bytes_of(piece: Any) -> bytes:
    return piece.file.pread(piece.size, piece.position) if type(piece) is Slice else bytes(piece)


def init_request(txn: str | None, pid: int = -1, epoch: int = -1, timeout_ms: int = 60_000) -> Any:
    """An InitProducerId request."""
    return InitProducerIdRequest(
        transactional_id=txn,
        transaction_timeout_ms=timeout_ms,
        producer_id=pid,
        producer_epoch=epoch,
    )


def init_row(answer: Any) -> tuple[int, int, int]:
    return answer.error_code, answer.producer_id, answer.producer_epoch


def code_of_adding(answer: Any) -> int:
    """The error code of an AddPartitionsToTxn response. It must be the same for all partitions."""
    (code,) = {
        row.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }
    return int(code)
