"""The producer of `barnabas produce`, and the reader of `barnabas consume`, on answers of brokers
that are made up: what is sent again, and with which numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.cli.client.cluster_client import ClusterClient, NoBrokerError
from barnabas.cli.client.records import records_in
from barnabas.cli.consuming.record_reader import RecordReader
from barnabas.cli.errors import CommandError, RefusedError
from barnabas.cli.producing import record_producer
from barnabas.cli.producing.record_producer import RecordProducer
from barnabas.cli.waiting import TimeoutOver, Waiting
from barnabas.client.errors import ConnectionLostError
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.records import (
    NewRecord,
    encode_batch,
    encode_marker,
    read_header,
    records_of,
)
from barnabas.protocol.topic_partition import TopicPartition

PARTITIONS = 3
Outcome = int | Exception


class Cluster(ClusterClient):
    """A client whose brokers are values: partition n is led by broker n % 2.

    outcomes: the outcomes of the next requests: an error code for all partitions, or an error to
    raise; after them requests succeed. sent: (partition, batch) of each Produce.
    """

    def __init__(self, *outcomes: Outcome, timeout_s: float = 5) -> None:
        super().__init__([("none", 1)], {}, Waiting("none:1", timeout_s), lambda: "")
        self.outcomes: Iterator[Outcome] = iter(outcomes)
        self.sent: list[tuple[int, bytes]] = []
        self.fetches: list[Any] = []
        self.logs: dict[int, PartitionData] = {}

    def refresh(
        self, topics: list[str] | None, *, create: bool = False
    ) -> list[MetadataResponseTopic]:
        for partition in range(PARTITIONS):
            self.leaders["t", partition] = partition % 2
        rows = [
            MetadataResponsePartition(partition_index=row, leader_id=row % 2)
            for row in range(PARTITIONS)
        ]
        return [MetadataResponseTopic(name="t", partitions=rows) for _ in topics or ()]

    def any(self, kind: Any, request: Any) -> Any:
        assert kind.response_class is InitProducerIdResponse
        return InitProducerIdResponse(producer_id=7, producer_epoch=0)

    def once(self, node_id: int, kind: Any, request: Any, what: str) -> Any:
        outcome = next(self.outcomes, Code.NONE)
        if kind.response_class is FetchResponse:
            return self._fetched(request, outcome)
        rows = []
        for row in request.topic_data[0].partition_data:
            assert row.index % 2 == node_id
            self.sent.append((row.index, bytes(row.records)))
            if not isinstance(outcome, Exception):
                rows.append(
                    PartitionProduceResponse(
                        index=row.index, error_code=outcome, base_offset=-1 if outcome else 40
                    )
                )
        if isinstance(outcome, Exception):
            raise outcome
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)])

    def _fetched(self, request: Any, outcome: Outcome) -> FetchResponse:
        self.fetches.append(request)
        if isinstance(outcome, Exception):
            raise outcome
        rows = [self.logs[row.partition] for row in request.topics[0].partitions]
        for row in rows:
            row.error_code = outcome
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=rows)])


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.cli.client.cluster_client.RETRY_S", 0)
    monkeypatch.setattr(record_producer, "LINGER_S", 60)


def _numbers(cluster: Cluster) -> list[tuple[int, int, int]]:
    """The partition, the first sequence number and the number of records of each sent batch."""
    return [
        (partition, read_header(data).base_sequence, read_header(data).record_count)
        for partition, data in cluster.sent
    ]


def test_batches_have_consecutive_sequence_numbers_and_the_producer_id() -> None:
    cluster = Cluster()
    producer = RecordProducer(cluster, "t")
    for partition in (0, 0, 1):
        producer.add(NewRecord(b"k", b"v", 5), partition)
    assert (producer.pending, cluster.sent) == (3, [])
    producer.flush()
    producer.add(NewRecord(b"k", b"v", 5), 0)
    producer.flush()
    assert _numbers(cluster) == [(0, 0, 2), (1, 0, 1), (0, 2, 1)]
    assert {read_header(data).producer_id for _, data in cluster.sent} == {7}
    assert (producer.count, producer.pending, producer.last) == (4, 0, {0: 41, 1: 40})


@pytest.mark.parametrize(
    "failure",
    [
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.KAFKA_STORAGE_ERROR,
        ConnectionLostError("it is closed"),
        NoBrokerError("it restarts"),
    ],
)
def test_a_batch_is_sent_again_with_the_same_numbers_until_it_is_acknowledged(
    failure: Outcome,
) -> None:
    cluster = Cluster(failure, Code.DUPLICATE_SEQUENCE_NUMBER)
    producer = RecordProducer(cluster, "t")
    producer.add(NewRecord(None, b"v", 5), 2)
    producer.flush()
    assert _numbers(cluster) == [(2, 0, 1), (2, 0, 1)]
    assert cluster.sent[0] == cluster.sent[1]
    assert (producer.count, producer.pending, producer.last) == (1, 0, {2: -1})


def test_only_the_batches_that_failed_are_sent_again() -> None:
    cluster = Cluster(Code.NONE, Code.NOT_LEADER_OR_FOLLOWER)
    producer = RecordProducer(cluster, "t")
    for partition in (0, 1):
        producer.add(NewRecord(None, b"v", 5), partition)
    producer.flush()
    assert [partition for partition, _ in cluster.sent] == [0, 1, 1]


def test_a_refusal_for_good_is_raised_and_not_sent_again() -> None:
    cluster = Cluster(Code.MESSAGE_TOO_LARGE)
    producer = RecordProducer(cluster, "t")
    producer.add(NewRecord(None, b"v", 5), 0)
    with pytest.raises(RefusedError) as caught:
        producer.flush()
    assert caught.value.code == Code.MESSAGE_TOO_LARGE
    assert (len(cluster.sent), producer.count) == (1, 0)


def test_a_failure_that_lasts_ends_at_the_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    failures = [Code.KAFKA_STORAGE_ERROR] * 1_000_000
    producer = RecordProducer(Cluster(*failures, timeout_s=0.05), "t")
    producer.add(NewRecord(None, b"v", 5), 0)
    with pytest.raises(TimeoutOver, match="its acknowledgement of 1 record"):
        producer.flush()


def test_large_records_end_a_batch_before_it_grows_too_large() -> None:
    cluster = Cluster()
    producer = RecordProducer(cluster, "t")
    size = record_producer.BATCH_BYTES // 2
    for _ in range(3):
        producer.add(NewRecord(None, bytes(size), 5), 0)
    producer.flush()
    assert all(len(data) <= record_producer.BATCH_BYTES + 1000 for _, data in cluster.sent)
    assert [count for _, _, count in _numbers(cluster)] == [1, 1, 1]


def test_records_with_the_same_key_go_to_one_partition_and_keyless_ones_to_one_per_batch() -> None:
    cluster = Cluster()
    producer = RecordProducer(cluster, "t")
    for key in (b"a", b"b", b"a", None, None):
        producer.add(NewRecord(key, b"v", 5), None)
    producer.flush()
    places: dict[bytes | None, set[int]] = {}
    for partition, data in cluster.sent:
        for record in records_of(data):
            places.setdefault(record.key, set()).add(partition)
    assert [len(row) for row in places.values()] == [1, 1, 1]


# --- reading --------------------------------------------------------------------------------------


def _row(partition: int, *batches: bytes | bytearray, aborted: Any = ()) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        records=b"".join(bytes(batch) for batch in batches),
        aborted_transactions=[AbortedTransaction(*row) for row in aborted],
    )


def _batch(offset: int, *values: bytes, producer_id: int = -1) -> bytearray:
    return encode_batch(
        [NewRecord(None, value, 5) for value in values],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
    )


def _marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    marker = encode_marker(
        commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=5
    )
    return offset.to_bytes(8) + marker[8:]  # the offset is not part of the checksum


ROW = TopicPartition("t", 0)


def test_aborted_records_and_markers_are_left_out_and_passed() -> None:
    row = _row(
        0,
        _batch(0, b"aborted", producer_id=7),
        _batch(1, b"plain"),
        _marker(2, 7, commit=False),
        _batch(3, b"committed", producer_id=7),
        _marker(4, 7, commit=True),
        aborted=[(7, 0)],
    )
    records, position = records_in(row, ROW, 0)
    assert [record.value for record in records] == [b"plain", b"committed"]
    assert position == 5


def test_half_a_batch_is_left_for_the_next_fetch() -> None:
    whole, half = _batch(0, b"a"), _batch(1, b"b" * 100)[:-5]
    records, position = records_in(_row(0, whole, half), ROW, 0)
    assert ([record.value for record in records], position) == ([b"a"], 1)


def _damage(batch: bytearray) -> bytearray:
    batch[-2] ^= 1
    return batch


def _old(batch: bytearray) -> bytearray:
    batch[16] = 1
    return batch


@pytest.mark.parametrize(("change", "says"), [(_damage, "CRC is wrong"), (_old, "before 0.11")])
def test_a_batch_that_cannot_be_read_is_named(
    change: Callable[[bytearray], bytearray], says: str
) -> None:
    with pytest.raises(CommandError, match=says):
        records_in(_row(0, change(_batch(4, b"a"))), ROW, 4)


def test_a_reader_outlives_a_lost_connection_and_starts_inside_a_batch() -> None:
    cluster = Cluster(ConnectionLostError("it is closed"), Code.NOT_LEADER_OR_FOLLOWER)
    cluster.logs = {0: _row(0, _batch(0, b"a", b"b", b"c"))}
    reader = RecordReader(cluster, read_committed=True)
    reader.assign({ROW: 1})
    (records,) = reader.poll(0).values()
    assert [(one.offset, one.value) for one in records] == [(1, b"b"), (2, b"c")]
    assert (reader.positions, len(cluster.fetches)) == ({ROW: 3}, 3)


def test_a_reader_goes_on_at_the_start_of_the_log_if_retention_has_passed_it() -> None:
    cluster = Cluster(Code.OFFSET_OUT_OF_RANGE)
    cluster.logs = {0: _row(0, _batch(9, b"a"))}
    cluster.logs[0].log_start_offset = 9
    reader = RecordReader(cluster, read_committed=True)
    reader.assign({ROW: 1})
    assert reader.poll(0) == {}
    assert reader.positions == {ROW: 9}
    (records,) = reader.poll(0).values()
    assert [one.offset for one in records] == [9]


def test_each_partition_has_its_turn_to_be_first() -> None:
    cluster = Cluster()
    cluster.logs = {0: _row(0, _batch(0, b"a")), 2: _row(2)}
    reader = RecordReader(cluster, read_committed=True)
    reader.assign({ROW: 0, TopicPartition("t", 2): 0})
    reader.poll(0)
    reader.poll(0)
    first = [request.topics[0].partitions[0].partition for request in cluster.fetches]
    assert first == [0, 2]
