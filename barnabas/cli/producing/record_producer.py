"""Batches of records, their requests to the partitions' leaders, and transactions, for `produce`.

A batch is sent once its records are many enough or old enough, and a call returns when all of its
brokers have answered. So at most one Produce to a broker is unanswered, which keeps the order of
each partition without a rule of its own. A batch that was sent twice is written once: each has a
producer id and a sequence number (KIP-98), unless --acks is 0 or 1.
"""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from barnabas.cli.client.cluster_client import PASSING, ClusterClient
from barnabas.cli.client.topics import by_topic, leaders
from barnabas.cli.client.transactions import add_partitions, end_transaction, init_producer
from barnabas.cli.errors import RefusedError
from barnabas.client.murmur2 import partition_of
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, add_sequence, encode_batch
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import count_text

PRODUCE = RequestKind(ProduceRequest, ProduceResponse, 3, 11)
BATCH_BYTES = 256 * 1024
PENDING_BYTES = 1 << 20  # of all batches together
LINGER_S = 0.05  # how old a record may become before its batch is sent
RECORD_BYTES = 70  # at least as much as a record has besides key, value and headers
# The default of the broker's limit for a request (socket.request.max.bytes). A topic may have
# another limit for a batch, which the broker checks.
REQUEST_BYTES = 100 * 1024 * 1024
TRANSACTION_TIMEOUT_MS = 60_000
# How long a broker may take to create a topic, until it is taken for one that it does not create.
CREATION_S = 3.0
ALL, NONE = -1, 0  # values of acks
RETRIED = PASSING | {
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.REQUEST_TIMED_OUT,
    Code.NETWORK_EXCEPTION,
    Code.NOT_ENOUGH_REPLICAS,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code.KAFKA_STORAGE_ERROR,
}


class _Batch(NamedTuple):
    """A batch that is sent until it is acknowledged."""

    data: bytes
    record_count: int


class RecordProducer:
    """Writes records to one topic.

    topic: its name. partition_count: the number of its partitions. pending: the number of records
    that are not acknowledged. count: the number of acknowledged ones. last: the last offset of each
    partition.

    Takes:  acks, 0, 1 or -1 for all; transactional_id, None without transactions.
    Raises: RefusedError if the topic does not exist and is not created; CommandError.
    """

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        *,
        acks: int = ALL,
        codec: int = 0,
        transactional_id: str | None = None,
    ) -> None:
        self.waiting = client.waiting
        self.pending = 0
        self.count = 0
        self.last: dict[int, int] = {}
        self._client, self.topic = client, topic
        self._acks, self._codec, self._transactional_id = acks, codec, transactional_id
        self._records: dict[int, list[NewRecord]] = {}
        self._sizes: dict[int, int] = {}
        self._oldest_s = 0.0
        self._sequences: dict[int, int] = {}
        self._in_transaction: set[int] = set()
        self.partition_count = self._create()
        self._keyless = random.randrange(self.partition_count)
        self._producer_id, self._producer_epoch = -1, -1
        if acks == ALL:
            self._producer_id, self._producer_epoch = client.persist(
                lambda: init_producer(client, transactional_id, TRANSACTION_TIMEOUT_MS),
                "a producer id",
            )

    def _create(self) -> int:
        """The number of partitions of the topic, which is created if the broker allows that."""
        began = time.monotonic()
        silence = self.waiting.silence()
        while True:
            (found,) = self._client.refresh([self.topic], create=True)
            if not found.error_code and found.partitions:
                return len(found.partitions)
            passes = found.error_code in PASSING or (
                found.error_code in (Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION)
                and time.monotonic() - began < CREATION_S
            )
            if not passes:
                error = RefusedError(found.error_code, "", self.topic)
                # The right to write to a topic includes the right to describe it, which Metadata
                # needs. An error about ACLs shall name the former.
                error.request = "Produce"
                raise error
            silence.look("the partitions of the topic")
            time.sleep(LINGER_S)

    # --- records

    def add(self, record: NewRecord, partition: int | None) -> None:
        """Add a record to the batch of its partition, and send all batches if it is time.

        Takes:  partition, None to choose it by the key. Records without a key go to a random
                partition, until the batches are sent.
        Raises: RefusedError, TimeoutOver.
        """
        if partition is None:
            partition = (
                self._keyless
                if record.key is None
                else partition_of(record.key, self.partition_count)
            )
        size = _size_of(record)
        if size > REQUEST_BYTES:
            raise RefusedError(Code.MESSAGE_TOO_LARGE, "", self.topic)
        if self._sizes.get(partition, 0) + size > BATCH_BYTES and partition in self._records:
            self.flush()
        if not self.pending:
            self._oldest_s = time.monotonic()
        self._records.setdefault(partition, []).append(record)
        self._sizes[partition] = self._sizes.get(partition, 0) + size
        self.pending += 1
        if sum(self._sizes.values()) >= PENDING_BYTES:
            self.flush()
        self.flush_if_old()

    def flush_if_old(self) -> None:
        """Send all batches if one of their records is older than LINGER_S."""
        if self.pending and time.monotonic() - self._oldest_s >= LINGER_S:
            self.flush()

    def flush(self) -> None:
        """Send all batches, and wait until they are acknowledged. Raises: RefusedError,
        TimeoutOver.
        """
        if not self._records:
            return
        batches = {partition: self._encoded(partition) for partition in self._records}
        self._records, self._sizes = {}, {}
        new = sorted(batches.keys() - self._in_transaction)
        if self._transactional_id is not None and new:
            partitions = [TopicPartition(self.topic, partition) for partition in new]
            self._client.persist(
                lambda: add_partitions(
                    self._client, self._transactional_id or "", self._producer_id,
                    self._producer_epoch, partitions,
                ),
                "a partition in the transaction",
            )  # fmt: skip
            self._in_transaction.update(new)
        what = f"its acknowledgement of {count_text(self.pending, 'record')}"
        self._client.persist(lambda: self._send(batches, what), what, RETRIED)
        self._keyless = random.randrange(self.partition_count)

    def _encoded(self, partition: int) -> _Batch:
        """The batch of a partition, with the next sequence numbers."""
        records = self._records[partition]
        sequence = self._sequences.get(partition, 0)
        if self._acks == ALL:
            self._sequences[partition] = add_sequence(sequence, len(records))
        data = encode_batch(
            records,
            codec=self._codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence if self._acks == ALL else -1,
            transactional=self._transactional_id is not None,
        )
        return _Batch(bytes(data), len(records))

    def _send(self, batches: dict[int, _Batch], what: str) -> None:
        """Send each batch to its leader. Acknowledged batches are removed from `batches`.

        Raises: RefusedError for the first batch that is refused for good, or else for the first
                one that has to be sent again.
        """
        names = [TopicPartition(self.topic, partition) for partition in batches]
        refused: list[RefusedError] = []
        for node_id, partitions in leaders(self._client, names).items():
            rows = by_topic(
                partitions,
                lambda row: PartitionProduceData(row.partition, batches[row.partition].data),
            )
            request = ProduceRequest(
                transactional_id=self._transactional_id,
                acks=self._acks,
                timeout_ms=round(self.waiting.timeout_s * 1000),
                topic_data=[
                    TopicProduceData(name=topic, partition_data=part)
                    for topic, part in rows.items()
                ],
            )
            if self._acks == NONE:
                self._client.post(node_id, PRODUCE, request)
                for row in partitions:
                    self._acknowledge(batches, row.partition, -1)
                continue
            answer = self._client.once(node_id, PRODUCE, request, what)
            refused += [
                error
                for topic in answer.responses
                for row in topic.partition_responses
                if (error := self._take(batches, row)) is not None
            ]
        refused.sort(key=lambda error: error.code in RETRIED)
        if refused:
            raise refused[0]

    def _take(
        self, batches: dict[int, _Batch], row: PartitionProduceResponse
    ) -> RefusedError | None:
        """Handle the response for one batch. Gives: the error, if it is refused."""
        if row.error_code not in (Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER):
            return RefusedError(row.error_code, row.error_message, self.topic)
        self._acknowledge(batches, row.index, row.base_offset)
        return None

    def _acknowledge(self, batches: dict[int, _Batch], partition: int, base_offset: int) -> None:
        record_count = batches.pop(partition).record_count
        self.count += record_count
        self.pending -= record_count
        last = base_offset + record_count - 1 if base_offset >= 0 else -1
        self.last[partition] = max(last, self.last.get(partition, -1))

    # --- transactions

    def commit(self) -> None:
        """Wait until all records are acknowledged, and commit the transaction."""
        self.flush()
        self._end(commit=True)

    def abort(self) -> None:
        """Abort the open transaction. Records that were not sent are dropped."""
        self._records, self._sizes = {}, {}
        self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        if not self._in_transaction:
            return
        self._in_transaction.clear()
        self._client.persist(
            lambda: end_transaction(
                self._client, self._transactional_id or "", self._producer_id,
                self._producer_epoch, commit=commit,
            ),
            "the end of the transaction",
        )  # fmt: skip


def _size_of(record: NewRecord) -> int:
    """At least the size of an encoded record."""
    size = RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += 10 + 4 * len(name) + len(value or b"")
    return size
