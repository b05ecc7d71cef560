"""Records in responses to Fetch; and reads and writes of a few records of a partition, for
`barnabas check` and `txn why-stuck`.

`consume` and `produce` read and write many records of many partitions, in
`consuming/record_reader.py` and `producing/record_producer.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.topics import CLIENT, leaders
from barnabas.cli.client.transactions import add_partitions, end_transaction, init_producer
from barnabas.cli.errors import CommandError, RefusedError
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.message_sets import is_message_set
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.records import (
    NewRecord,
    Record,
    batches_in,
    decode_marker,
    encode_batch,
    has_right_crc,
    records_of,
)
from barnabas.protocol.topic_partition import TopicPartition

FETCH = RequestKind(FetchRequest, FetchResponse, 4, 11)
FETCH_BYTES = 1 << 20
WAIT_MS = 500
ALL = -1  # value of acks


def read_records(
    client: ClusterClient, partition: TopicPartition, start: int, end: int, *, read_committed: bool
) -> Iterator[Record]:
    """The records of a partition between two offsets; committed ones only, if requested."""
    position = start
    while position < end:
        fetched = _fetch(client, partition, position, read_committed)
        begun = position
        records, position = records_in(fetched, partition, position)
        for record in records:
            if begun <= record.offset < end:
                yield record
        if position == begun:
            return  # compaction has removed the records up to the end


def records_in(
    fetched: PartitionData, partition: TopicPartition, position: int
) -> tuple[list[Record], int]:
    """The records in a response to Fetch, and the next offset to fetch.

    The next offset is also past markers and aborted records, which are left out. A batch may begin
    before `position`, with records that the caller does not want. A batch of which the response has
    only a part is left for the next Fetch.

    Raises: CommandError for a batch that is damaged, or older than Apache Kafka 0.11.
    """
    data = bytes(fetched.records or b"")
    if is_message_set(data):
        raise CommandError(
            f"{partition} offset {position}: the records have the format of Apache Kafka before "
            "0.11, which is not read here"
        )
    # the first offsets of aborted transactions by producer, in descending order
    aborted: dict[int, list[int]] = {}
    for row in sorted(fetched.aborted_transactions or (), key=lambda row: -row.first_offset):
        aborted.setdefault(row.producer_id, []).append(row.first_offset)
    records: list[Record] = []
    for at, header in batches_in(data):
        batch = data[at : at + header.size_bytes]
        if not has_right_crc(batch, header):
            raise CommandError(
                f"{partition} offset {header.base_offset}: the batch is damaged, its CRC is wrong; "
                "`barnabas log verify` checks a data directory"
            )
        position = max(position, header.next_offset)
        first_offsets = aborted.get(header.producer_id, [])
        is_aborted = bool(first_offsets) and first_offsets[-1] <= header.base_offset
        if header.is_control:
            if is_aborted and not decode_marker(batch).commit:
                first_offsets.pop()
        elif not (is_aborted and header.is_transactional):
            records += records_of(batch)
    return records, position


def _fetch(
    client: ClusterClient, partition: TopicPartition, offset: int, read_committed: bool
) -> PartitionData:
    row = FetchPartition(
        partition=partition.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    request = FetchRequest(
        replica_id=CLIENT,
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=partition.topic, partitions=[row])],
    )

    def ask() -> PartitionData:
        ((node_id, _),) = leaders(client, [partition]).items()
        answer = client.node(node_id, FETCH, request)
        ((found,),) = (topic.partitions for topic in answer.responses)
        code = answer.error_code or found.error_code
        if code:
            raise RefusedError(code, "", partition.topic)
        return found

    return client.trying(ask)


class Transactions:
    """A producer that writes each record to one partition in a transaction of its own.

    Takes:  name, the transactional id.
    Raises: RefusedError, from all methods.
    """

    def __init__(self, client: ClusterClient, name: str, partition: TopicPartition) -> None:
        self._client, self._name, self._partition = client, name, partition
        timeout_ms = round(client.waiting.timeout_s * 1000)
        self._producer_id, self._epoch = init_producer(client, name, timeout_ms)
        self._sequence = 0

    def write(self, value: bytes, *, commit: bool, timestamp: int) -> None:
        """Write a record in a transaction, and end the transaction."""
        producer = (self._name, self._producer_id, self._epoch)
        add_partitions(self._client, *producer, [self._partition])
        self._produce(value, timestamp)
        end_transaction(self._client, *producer, commit=commit)

    def _produce(self, value: bytes, timestamp: int) -> None:
        from barnabas.protocol.messages.produce import (
            PartitionProduceData,
            ProduceRequest,
            ProduceResponse,
            TopicProduceData,
        )

        kind = RequestKind(ProduceRequest, ProduceResponse, 3, 11)
        batch = encode_batch(
            [NewRecord(None, value, timestamp)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            transactional=True,
        )
        data = PartitionProduceData(self._partition.partition, bytes(batch))
        request = ProduceRequest(
            transactional_id=self._name,
            acks=ALL,
            timeout_ms=round(self._client.waiting.timeout_s * 1000),
            topic_data=[TopicProduceData(name=self._partition.topic, partition_data=[data])],
        )

        def ask() -> None:
            ((node_id, _),) = leaders(self._client, [self._partition]).items()
            answer = self._client.node(node_id, kind, request)
            ((row,),) = (topic.partition_responses for topic in answer.responses)
            self._check(row.error_code, self._partition.topic)

        self._client.trying(ask)
        self._sequence += 1

    def _check(self, code: int, resource: str) -> None:
        if code:
            raise RefusedError(code, "", resource)
