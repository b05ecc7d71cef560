"""One transactional id on a fake cluster that checks the protocol strictly: epochs, partitions, and
offsets of the group. Failures are tested in test_publishing.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow")

from helpers.fake_broker import FakeCluster

from barnabas.client.options import ClientOptions
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write.deduplication import CommitNote, CommittedBatch, GroupState
from barnabas.spark_connector.write.produce_request import PublishError
from barnabas.spark_connector.write.transactional_producer import (
    FencedError,
    PublishSettings,
    TransactionalProducer,
)

NOTE = CommitNote("batch 4", "t")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({"t": 3}) as running:
        yield running


def producer_for(cluster: FakeCluster) -> TransactionalProducer:
    options = ClientOptions((("127.0.0.1", cluster.port),), retry_backoff_ms=1)
    return TransactionalProducer(options, PublishSettings(), "query", "query")


def encoded(partition: int, *values: bytes) -> EncodedRecordBatch:
    records = [NewRecord(None, value, 1) for value in values]
    return EncodedRecordBatch(
        "t", partition, len(values), encode_batch(records, transactional=True)
    )


def test_a_transaction_commits_records_with_the_groups_offset(cluster: FakeCluster) -> None:
    producer = producer_for(cluster)
    producer.begin()
    assert not producer.is_open and producer.group_state() == GroupState()
    producer.send(encoded(0, b"a", b"b"))
    producer.send(encoded(1, b"c"))
    producer.send(encoded(0, b"d"))
    assert producer.record_count == 4
    producer.commit(["t"], 5, NOTE.to_text())
    assert not producer.is_open
    assert cluster.values("t", 0) == [b"a", b"b", b"d"] and cluster.values("t", 1) == [b"c"]
    producer.begin()
    assert producer.group_state().committed["t"] == CommittedBatch(5, NOTE)
    producer.forget_connections()


def test_an_aborted_transaction_leaves_nothing(cluster: FakeCluster) -> None:
    producer = producer_for(cluster)
    producer.begin()
    producer.send(encoded(0, b"a"))
    assert not producer.is_open, "nothing was sent yet"
    producer.abort()
    assert cluster.asked(EndTxnRequest) == 0, "there is nothing to end"
    producer.begin()
    producer.send(encoded(0, b"a"))
    # the first request is sent with the second batch of a partition
    producer.send(encoded(0, b"b"))
    assert producer.is_open and cluster.asked(AddPartitionsToTxnRequest) == 1
    producer.abort()
    assert not producer.is_open and cluster.aborted == 1 and not cluster.committed
    producer.forget_connections()


def test_a_second_producer_with_the_same_id_fences_the_first(cluster: FakeCluster) -> None:
    first, second = producer_for(cluster), producer_for(cluster)
    first.begin()
    first.send(encoded(0, b"a"))
    second.begin()
    with pytest.raises(FencedError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        first.commit(["t"], 1, "")
    assert cluster.asked(InitProducerIdRequest) == 2 and not cluster.committed
    for producer in (first, second):
        producer.forget_connections()


def test_the_error_for_a_missing_partition(cluster: FakeCluster) -> None:
    producer = producer_for(cluster)
    producer.begin()
    with pytest.raises(
        PublishError, match=r"partition t-7 does not exist: topic 't' has 3 part"
    ) as e:
        producer.send(encoded(7, b"a"))
    assert e.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION
    producer.forget_connections()


def test_a_partition_without_a_leader_is_counted() -> None:
    """Keys are distributed over all partitions (Java's partitioner does so, too). If a partition
    without a leader were left out, the same key would have another partition for a while.
    """

    class WithoutALeader(FakeCluster):
        def _metadata(self, node: int, request: MetadataRequest, code: int) -> MetadataResponse:
            answer = super()._metadata(node, request, code)
            for topic in answer.topics:
                topic.partitions[1].leader_id = -1
            return answer

    with WithoutALeader({"t": 3}) as cluster:
        producer = producer_for(cluster)
        assert producer.partition_count("t") == 3
        producer.forget_connections()
