"""The CPU cost in the broker's core of a client with a thousand partitions, per batch.

    python -m bench.many_partitions [--partitions N] [--rounds N]

No sockets are used. The benchmark passes frames to `Broker.on_frame` and takes responses from the
outbox, so only the core is measured. The frames are those of librdkafka (each Produce has one
partition, each Fetch names all partitions) and of Apache Kafka's own client (a Produce has many
partitions, a Fetch in a session names only the changed ones). A batch has five records of 100
bytes. Figures are CPU seconds of the thread, the best of several rounds.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.protocol.framing import Response, decode_response, encode_request
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.disk import Slice

NOW_MS = 1_700_000_000_000
TOPIC = "bench"
RECORDS = 5
VALUE = b"x" * 100
PRODUCER, READER, SESSION_READER = 1, 2, 3  # connections
PARTITIONS_A_REQUEST = 250
FETCH_VERSION = 16
NO_SESSION = (0, -1)
NEW_SESSION = (0, 0)
MAX_BYTES = 50 << 20
TRANSACTIONAL_ID = "bench"

PRODUCE_ONE = "Produce, a request for each batch"
PRODUCE_MANY = f"Produce, {PARTITIONS_A_REQUEST} batches a request"
PRODUCE_IN_TRANSACTION = "Produce in a transaction, a request for each batch"
ADD = "AddPartitionsToTxn, all in one request"
COMMIT = "EndTxn and its markers"
FETCH = "Fetch of all, each has a batch"
FETCH_IDLE = "Fetch of all, nothing is new: it waits"
SESSION_FETCH = "Fetch in a session, each has a batch"
SESSION_IDLE = "Fetch in a session, nothing is new: it waits"

# Microseconds per partition on a machine with 2 cores, measured before responses, record lengths
# and reader positions had fast paths.
BEFORE: dict[str, float] = {
    PRODUCE_ONE: 54.8,
    PRODUCE_MANY: 30.9,
    ADD: 4.3,
    PRODUCE_IN_TRANSACTION: 59.4,
    COMMIT: 14.8,
    FETCH: 11.7,
    FETCH_IDLE: 4.9,
    SESSION_FETCH: 12.2,
    SESSION_IDLE: 1.7,
}


class Ids:
    """Sequential ids."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=next(self._numbers), version=4)

    def random31(self) -> int:
        return next(self._numbers)


class Bench:
    """A broker with one topic, its producers and readers, and the best time of each kind of
    work."""

    def __init__(self, directory: str, partitions: int) -> None:
        settings = {
            "log.dirs": directory,
            "barnabas.transaction.durability": "os",
            "transaction.state.log.num.partitions": "1",
        }
        self.broker = open_broker(BrokerConfig.from_properties(settings), Ids(), now_ms=NOW_MS)
        for connection in (PRODUCER, READER, SESSION_READER):
            self.broker.on_connected(connection, "127.0.0.1", "127.0.0.1", 9092)
        self.partitions = partitions
        self.best_us: dict[str, float] = {}
        self._sequences: dict[int, int] = {}
        self._offset = 0
        self._session = NEW_SESSION
        self._topic_id = self.broker.topics.create_topic(
            TOPIC, partitions, {}, now_ms=NOW_MS
        ).topic_id
        for log in self.broker.topics.logs_of(TOPIC):
            # makes the files here, since no other thread does it in this benchmark
            log.files.make()
        answer = self._answer_to(InitProducerIdResponse, init_producer_id(), 0, PRODUCER)
        self._transactional_producer_id = answer.producer_id

    def run(self, rounds: int) -> None:
        """Do every kind of work `rounds` times."""
        gc.collect()
        gc.freeze()
        for _ in range(rounds):
            self._produce(PRODUCE_ONE, 1)
            self._produce(PRODUCE_MANY, PARTITIONS_A_REQUEST)
            self._transact()
            self._fetch()
            self._fetch_in_session()
        gc.unfreeze()

    def _produce(self, work: str, batches: int) -> None:
        """Measure Produce requests without a transaction, each with that many batches."""
        # another idempotent producer for each kind of work
        producer_id = 1000 + batches
        sequence = self._next_sequence(producer_id)
        frames = [
            framed(
                produce(
                    range(first, min(first + batches, self.partitions)), producer_id, sequence, None
                ),
                10,
            )
            for first in range(0, self.partitions, batches)
        ]
        self._time(work, frames, PRODUCER)
        self._has_grown(RECORDS)

    def _transact(self) -> None:
        """Measure the requests of one transaction on all partitions: adding them, a Produce for
        each, and the commit.
        """
        producer_id = self._transactional_producer_id
        self._time(ADD, [framed(add_partitions(producer_id, range(self.partitions)), 0)], PRODUCER)
        sequence = self._next_sequence(producer_id)
        frames = [
            framed(produce([index], producer_id, sequence, TRANSACTIONAL_ID), 10)
            for index in range(self.partitions)
        ]
        self._time(PRODUCE_IN_TRANSACTION, frames, PRODUCER)
        self._time(COMMIT, [framed(end_transaction(producer_id), 1)], PRODUCER)
        # the commit adds a marker to each partition
        self._has_grown(RECORDS + 1)

    def _fetch(self) -> None:
        """Fetch with a reader that is one batch behind, then with a reader at the end."""
        before = self._offset - RECORDS - 1
        ((_, pieces),) = self._time(
            FETCH,
            [framed(self._asking(self.partitions, before, NO_SESSION), FETCH_VERSION)],
            READER,
        )
        assert sum(type(piece) is Slice for piece in pieces) == self.partitions, (
            "a partition has no batch"
        )
        self._time(
            FETCH_IDLE,
            [framed(self._asking(self.partitions, self._offset, NO_SESSION), FETCH_VERSION)],
            READER,
        )
        self._time_out(READER)

    def _fetch_in_session(self) -> None:
        """Measure a Fetch in a session when all partitions have a batch, and then one when none
        has.
        """
        answer = self._answer_to(
            FetchResponse,
            self._asking(self.partitions, self._offset, NEW_SESSION, max_wait_ms=0),
            FETCH_VERSION,
            SESSION_READER,
        )
        session_id = answer.session_id
        before = self._offset - RECORDS - 1
        self._time(
            SESSION_FETCH,
            [framed(self._asking(self.partitions, before, (session_id, 1)), FETCH_VERSION)],
            SESSION_READER,
        )
        self._answer_to(
            FetchResponse,
            self._asking(self.partitions, self._offset, (session_id, 2), max_wait_ms=0),
            FETCH_VERSION,
            SESSION_READER,
        )
        self._time(
            SESSION_IDLE,
            [framed(self._asking(0, 0, (session_id, 3)), FETCH_VERSION)],
            SESSION_READER,
        )
        self._time_out(SESSION_READER)

    def _asking(
        self, partitions: int, offset: int, session: tuple[int, int], *, max_wait_ms: int = 500
    ) -> FetchRequest:
        """A Fetch of the first partitions from an offset on."""
        return fetch(self._topic_id, partitions, offset, session, max_wait_ms)

    def _next_sequence(self, producer_id: int) -> int:
        """The sequence number of a producer's next batch in each partition."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + RECORDS
        return sequence

    def _has_grown(self, count: int) -> None:
        """Check that every partition has `count` new records, which shows that no batch was
        refused.
        """
        self._offset += count
        ends = {
            log.log_end_offset for log in self.broker.topics.partitions_of(TOPIC) if log is not None
        }
        assert ends == {self._offset}, f"logs end at {ends} instead of {self._offset}"

    def _time(self, work: str, frames: list[memoryview], connection: int) -> list[Any]:
        """Measure the time that the broker takes for some frames, per partition.

        Gives: the bytes to send.
        """
        broker = self.broker
        began = time.thread_time()
        for frame in frames:
            broker.on_frame(connection, frame, NOW_MS)
        taken_us = (time.thread_time() - began) * 1e6 / self.partitions
        self.best_us[work] = min(taken_us, self.best_us.get(work, taken_us))
        sends, broker.outbox.sends = broker.outbox.sends, []
        return sends

    def _time_out(self, connection: int) -> None:
        """Let the waiting fetch time out, so that the connection can send its next request."""
        self.broker.on_tick(NOW_MS + 500)
        self.broker.outbox.sends.clear()
        assert not self.broker.connections[connection].in_flight, "a fetch still waits"

    def _answer_to(
        self, response_class: type[Response], request: Message, version: int, connection: int
    ) -> Response:
        """Handle a request whose time is not measured. Gives: its decoded answer."""
        self.broker.on_frame(connection, framed(request, version), NOW_MS)
        ((_, pieces),), self.broker.outbox.sends = self.broker.outbox.sends, []
        answer = b"".join(
            piece.file.pread(piece.size, piece.position) if type(piece) is Slice else piece
            for piece in pieces
        )
        return decode_response(response_class, answer[4:], version)[1]

    def close(self) -> None:
        self.broker.close_logs(NOW_MS)


# --- requests -----------------------------------------------------------------------------------


def framed(request: Message, version: int) -> memoryview:
    """A request as a frame for `Broker.on_frame`."""
    return memoryview(encode_request(request, version, 1, "rdkafka"))[4:]


def produce(
    indexes: Iterable[int], producer_id: int, sequence: int, transactional_id: str | None
) -> ProduceRequest:
    """A Produce with one batch for each partition."""
    batch = encode_batch(
        [NewRecord(None, VALUE, NOW_MS + number) for number in range(RECORDS)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional_id is not None,
    )
    data = [
        TopicProduceData(
            TOPIC, partition_data=[PartitionProduceData(index, batch) for index in indexes]
        )
    ]
    return ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=data
    )


def fetch(
    topic_id: uuid.UUID, partitions: int, offset: int, session: tuple[int, int], max_wait_ms: int
) -> FetchRequest:
    """A read_committed Fetch of the first `partitions` partitions, from `offset`."""
    rows = [
        FetchPartition(index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    topics = [FetchTopic(topic_id=topic_id, partitions=rows)] if rows else []
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=MAX_BYTES,
        isolation_level=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        forgotten_topics_data=[],
        rack_id="",
    )


def init_producer_id() -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000)


def add_partitions(producer_id: int, indexes: Iterable[int]) -> AddPartitionsToTxnRequest:
    """The request that adds partitions to the transaction."""
    topic = AddPartitionsToTxnTopic(TOPIC, list(indexes))
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTIONAL_ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )


def end_transaction(producer_id: int) -> EndTxnRequest:
    """The request that commits the transaction."""
    return EndTxnRequest(
        transactional_id=TRANSACTIONAL_ID, producer_id=producer_id, producer_epoch=0, committed=True
    )


# --- the command --------------------------------------------------------------------------------


def measured(partitions: int, rounds: int) -> dict[str, float]:
    """Microseconds per partition, for each kind of work."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        bench = Bench(directory, partitions)
        bench.run(rounds)
        bench.close()
    return bench.best_us


def table(figures: dict[str, float]) -> str:
    """The figures as a Markdown table, next to those of an earlier version."""
    rows = [("work", "us a partition", "before"), ("---", "---", "---")]
    rows += [
        (work, f"{figure:.1f}", f"{BEFORE[work]:.1f}" if work in BEFORE else "-")
        for work, figure in figures.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.many_partitions", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    print(table(measured(options.partitions, options.rounds)))


if __name__ == "__main__":
    main()
