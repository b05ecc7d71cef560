"""A real Broker that a test drives in place of the rim: several connections, a clock, and flushes
that end when the test calls for it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from barnabas.broker.outbox import FlushJob, Work
from barnabas.broker.parts import Parts
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.slices import run_through
from barnabas.broker.topic_changes.topic_deletion import TopicDeletion
from barnabas.daemon.opening import open_broker
from barnabas.protocol.framing import GIVEN_AWAY_BYTES
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.disk import Slice
from helpers.admin_host import HOST, NOW_MS, PORT, CountedIds
from helpers.kept_deadline import pass_frame
from helpers.our_messages import read_answer, request_frame
from helpers.repeating import repeat_until

SETTINGS = {
    "node.id": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class CoreHost:
    """A broker without sockets, and the work that it has requested.

    `answers` has the decoded responses of each connection, in order, with None for a request that
    gets no response. `flushes` has the requested flushes that are not done yet.
    """

    def __init__(
        self, directory: Path, users: dict[str, str] | None = None, **settings: str
    ) -> None:
        properties = {**SETTINGS, "log.dirs": str(directory / "data")} | {
            name.replace("_", "."): value for name, value in settings.items()
        }
        self.now_ms, self.wall_ahead_ms = NOW_MS, 0
        config = BrokerConfig.from_properties(properties)
        config.users = users or {}
        self.broker = open_broker(config, CountedIds(), now_ms=NOW_MS)
        self.answers: dict[int, list[Any]] = {}
        self.closed: dict[int, str] = {}
        self.flushes: list[FlushJob] = []
        self.work: list[Work] = []
        self._asked: dict[int, tuple[type[Message], int, int]] = {}
        self._correlation_id = 0

    @property
    def parts(self) -> Parts:
        """The broker's objects, which a test may inspect."""
        return self.broker.routes.parts

    def event_ms(self) -> int:
        """Return the monotonic time of the next event, and set the broker's wall clock."""
        self.broker.wall.feed(self.now_ms, self.now_ms + self.wall_ahead_ms)
        return self.now_ms

    def connect(self, connection: int, node_id: int | None = None) -> int:
        """Open a connection with this number."""
        self.broker.on_connected(connection, "192.0.2.9", HOST, PORT, node_id)
        self.answers[connection] = []
        return connection

    def ask(self, connection: int, request: Message, version: int) -> None:
        """Send a request. Its response is added to `answers`, immediately or later."""
        self._correlation_id += 1
        frame = bytearray(request_frame(request, version, self._correlation_id))
        self._asked[connection] = (type(request), version, self._correlation_id)
        pass_frame(self.broker, connection, memoryview(frame), self.event_ms())
        # Overwrite the frame as the rim does, which reuses the memory of small frames. The broker
        # must not keep a view of it.
        if len(frame) <= GIVEN_AWAY_BYTES:
            frame[:] = bytes(len(frame))
        self.carry_out()

    def call(self, connection: int, request: Message, version: int) -> Any:
        """Send a request and return its response. It must arrive immediately, or as soon as the
        worker has loaded the modules that the handler needs.
        """
        before = len(self.answers[connection])
        self.ask(connection, request, version)
        while self.work and len(self.answers[connection]) == before:
            self.finish_work()
        assert len(self.answers[connection]) == before + 1, "it is parked"
        return self.answers[connection][-1]

    def carry_out(self) -> None:
        """Take what the broker has put into its outbox: responses, closed connections, flushes and
        work.
        """
        outbox = self.broker.outbox
        sends, outbox.sends = outbox.sends, []
        for connection, pieces in sends:
            self.answers[connection].append(
                self._decoded(connection, b"".join(_content(piece) for piece in pieces))
            )
        closes, outbox.closes = outbox.closes, []
        for connection, reason in closes:
            self.closed[connection] = str(reason)
            self.broker.on_closed(connection)
        flushes, outbox.flushes = outbox.flushes, []
        self.flushes += [job for job in flushes if job.then is None]
        for job in flushes:
            # Flushes between two steps of a file change are done at once.
            if job.then is not None:
                for file in job.files:
                    file.fsync()
                self.broker.on_flushed(job, self.now_ms)
        self.work += outbox.work
        outbox.work = []
        if outbox.deferred:
            self.broker.on_sent(self.now_ms)
            self.carry_out()
        elif outbox.sends or outbox.flushes:
            self.carry_out()

    def _decoded(self, connection: int, answer: bytes) -> Any:
        """Decode the response. It is None if it is empty, as after a Produce request with
        acks=0.
        """
        request, version, correlation_id = self._asked.pop(connection)
        if not answer:
            return None
        assert struct.unpack_from(">ii", answer) == (len(answer) - 4, correlation_id)
        return read_answer(memoryview(answer)[4:], request, version)

    def finish_work(self) -> Work:
        """Finish the oldest job of the worker."""
        work = self.work.pop(0)
        self.broker.on_worked(work, work.run(), None, self.now_ms)
        self.carry_out()
        return work

    def flush(self) -> FlushJob:
        """Finish the oldest requested flush."""
        job = self.flushes.pop(0)
        self.broker.on_flushed(job, self.event_ms())
        self.carry_out()
        return job

    def tick(self, ms: int) -> None:
        """Advance the clock, and call the broker's `on_tick`."""
        self.now_ms += ms
        self.broker.on_tick(self.event_ms())
        self.carry_out()

    def await_answer(self, connection: int, *, ms: int = 0) -> Any:
        """Return the response to a waiting request. Until it arrives, the clock advances, so that
        requests of other connections are handled in between.
        """
        before = len(self.answers[connection])

        def step() -> None:
            if self.work:
                self.finish_work()
            else:
                assert self.broker.next_deadline_ms() == 0, "it waits for something else"
                self.tick(ms)

        repeat_until(lambda: len(self.answers[connection]) > before, step)
        return self.answers[connection][-1]

    def close(self) -> None:
        self.broker.close_logs(self.now_ms)

    # --- requests that most tests need -----------------------------------------------------------

    def create(self, name: str, partitions: int = 1, **configs: str) -> list[Any]:
        """Create a topic without a request, and return the logs of its partitions."""
        self.broker.topics.create_topic(
            name,
            partitions,
            {key.replace("_", "."): value for key, value in configs.items()},
            now_ms=self.now_ms,
        )
        return self.broker.topics.partitions_of(name)


def _content(piece: Any) -> bytes:
    return piece.file.pread(piece.size, piece.position) if type(piece) is Slice else bytes(piece)


def produce(
    topic: str,
    value: bytes = b"v",
    *,
    acks: int = -1,
    partition: int = 0,
    transactional_id: str | None = None,
    identity: tuple[int, int] | None = None,
    sequence: int = 0,
) -> Any:
    """A Produce request with one record."""
    records = [NewRecord(None, value, NOW_MS)]
    batch = encode_batch(records)
    if identity is not None:
        transactional = transactional_id is not None
        batch = encode_batch(
            records,
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
            transactional=transactional,
        )
    data = [
        TopicProduceData(
            name=topic,
            partition_data=[PartitionProduceData(index=partition, records=bytes(batch))],
        )
    ]
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=data
    )


def fetch(
    topics: dict[str, dict[int, int]],
    *,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
    session: tuple[int, int] = (0, -1),
    isolation: int = 0,
    forget: dict[str, list[int]] | None = None,
) -> Any:
    """A Fetch request that reads each partition from the given offset."""
    rows = [
        FetchTopic(
            topic=name,
            partitions=[
                FetchPartition(
                    partition=index,
                    current_leader_epoch=-1,
                    fetch_offset=offset,
                    log_start_offset=-1,
                    partition_max_bytes=1 << 20,
                )
                for index, offset in partitions.items()
            ],
        )
        for name, partitions in topics.items()
    ]
    forgotten = [
        ForgottenTopic(topic=name, partitions=indexes) for name, indexes in (forget or {}).items()
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=rows,
        forgotten_topics_data=forgotten,
        rack_id="",
    )


def error_of(answer: Any) -> int:
    """The error code of the only partition in a Produce response."""
    (topic,) = answer.responses
    (partition,) = topic.partition_responses
    code: int = partition.error_code
    return code


def delete_topic(deletion: TopicDeletion, name: str, now_ms: int) -> None:
    """Delete a topic, with all steps of the deletion."""
    run_through(deletion.delete_topics([name], now_ms), now_ms)
