"""TxnOffsetCommit, WriteTxnMarkers and DescribeProducers. The expected codes are those of Apache
Kafka 3.9.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost
from helpers.disk_broker import DiskBroker, Producer

from barnabas.broker.handlers import transactions
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.storage.disk import NotWrittenError


def test_unknown_partitions_are_refused_first_and_then_an_empty_group_id(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    host.connect(1)
    host.create("t")

    def codes(group: str) -> list[int]:
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = TxnOffsetCommitRequest(
            transactional_id="absent",
            group_id=group,
            producer_id=4711,
            producer_epoch=0,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=[row]) for name in ("t", "u")
            ],
        )
        answer = host.call(1, request, 3)
        return [partition.error_code for topic in answer.topics for partition in topic.partitions]

    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert codes("") == [Code.INVALID_GROUP_ID, unknown]
    assert host.broker.metadata.topic("__consumer_offsets") is None, (
        "the refused request does not create the topic"
    )
    assert codes("g") == [Code.INVALID_PRODUCER_ID_MAPPING, unknown]
    host.close()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_of_unknown_topics_leave_the_transaction_as_it_is(version: int) -> None:
    """Apache Kafka looks for the partitions before it asks the coordinators: the code is the same
    whatever the transaction's state and the producer's epoch are, and version 5 does not begin a
    transaction.
    """
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert p.commit_offset("g", "absent", 5, version=version) == unknown
    assert p.commit_offset("", "absent", 5, version=version) == unknown
    assert b.state("txn")[0] == "Empty"
    p.epoch += 1
    assert p.commit_offset("g", "absent", 5, version=version) == unknown


@pytest.mark.parametrize(("level", "code"), [(1, Code.NONE), (2, Code.INVALID_PRODUCER_EPOCH)])
def test_a_higher_epoch_may_commit_offsets_below_transaction_version_2(
    level: int, code: int
) -> None:
    """Apache Kafka 3.9 accepts an epoch that is later than that of the transaction; Apache Kafka
    4.3 refuses it.
    """
    b = DiskBroker(barnabas_features=f"transaction.version={level}")
    b.topic("t")
    p = Producer(b, "txn")
    assert p.add_offsets("g") == Code.NONE and p.commit_offset("g", "t", 5) == Code.NONE
    p.epoch += 1
    assert p.commit_offset("g", "t", 6) == code


@pytest.mark.parametrize("level", [1, 2])
def test_offsets_without_an_open_transaction_of_the_group_are_refused(level: int) -> None:
    """An earlier transaction of the producer with the group makes no difference."""
    b = DiskBroker(barnabas_features=f"transaction.version={level}")
    b.topic("t")
    p = Producer(b, "txn")
    p.send_offset("g", "t", 5)
    assert p.end(True) == Code.NONE
    assert p.commit_offset("g", "t", 6) == Code.INVALID_TXN_STATE
    assert b.group_offset("g", "t") == (Code.NONE, 5)


# --- TxnOffsetCommit 5, which adds the group to the transaction (KIP-890) ------------------------


def deciding() -> tuple[DiskBroker, Producer]:
    """A broker, and a producer with a commit whose decision is not yet durable."""
    b = DiskBroker()
    b.topic("t", 2)
    p = Producer(b, "txn")
    p.send_offset("g", "t", 3)
    p.send("t", 1, b"x")
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and p.ended() is None, "the data are on the disk"
    return b, p


def test_offsets_sent_before_a_decision_is_durable_belong_to_the_next_transaction() -> None:
    b, p = deciding()
    connection = b.connect()
    b.send(connection, p.offset_request("g", "t", 9), 5)
    assert b.answer(connection) is None, "the request waits for the decision"
    b.now_ms += 700
    decided_ms = b.now_ms
    b.release_flushes()
    b.flush()
    answer = b.answer(connection)
    assert answer.topics[0].partitions[0].error_code == Code.NONE
    assert b.group_offset("g", "t", stable=False) == (Code.NONE, 3), (
        "the offset of the decided transaction is committed"
    )
    described = b.call(DescribeTransactionsRequest(transactional_ids=["txn"]), 0)
    (row,) = described.transaction_states
    assert (row.transaction_state, row.transaction_start_time_ms) == ("Ongoing", decided_ms)
    assert p.end(True) == Code.NONE
    assert b.group_offset("g", "t") == (Code.NONE, 9)


def test_offsets_held_back_by_a_decision_are_answered_once() -> None:
    """A second request on the same connection gets its own response, not that of the first."""
    b, p = deciding()
    connection = b.connect()
    b.send(connection, p.offset_request("g", "t", 9), 5)
    b.release_flushes()
    b.flush()
    assert b.answer(connection).topics[0].partitions[0].error_code == Code.NONE
    b.send(connection, p.offset_request("", "t", 9), 5)
    assert b.answer(connection).topics[0].partitions[0].error_code == Code.INVALID_GROUP_ID


def test_offsets_held_back_by_a_decision_and_then_refused_are_answered() -> None:
    b, p = deciding()
    connection = b.connect()
    request = p.offset_request("g", "t", 9)
    request.producer_epoch = 7
    b.send(connection, request, 5)
    b.release_flushes()
    b.flush()
    code = b.answer(connection).topics[0].partitions[0].error_code
    assert code == Code.INVALID_PRODUCER_EPOCH


# --- WriteTxnMarkers -----------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_in_the_offsets_topic_ends_the_groups_pending_offsets(commit: bool) -> None:
    b = DiskBroker(offsets_topic_num_partitions="1")
    b.topic("t")
    p = Producer(b, "txn")
    p.send_offset("g", "t", 3)
    assert b.group_offset("g", "t") == (Code.UNSTABLE_OFFSET_COMMIT, -1)
    assert b.write_marker(p.pid, p.epoch, "__consumer_offsets", commit=commit) == Code.NONE
    assert b.group_offset("g", "t") == (Code.NONE, 3 if commit else -1)


def test_a_marker_in_another_topic_leaves_pending_offsets() -> None:
    b = DiskBroker(offsets_topic_num_partitions="1")
    b.topic("t")
    p = Producer(b, "txn")
    p.send_offset("g", "t", 3)
    p.send("t", 0, b"x")
    assert b.write_marker(p.pid, p.epoch, "t", commit=True) == Code.NONE
    assert b.group_offset("g", "t") == (Code.UNSTABLE_OFFSET_COMMIT, -1)


def test_a_marker_for_a_topic_that_is_not_there_is_refused() -> None:
    b = DiskBroker()
    assert b.write_marker(7, 0, "t", commit=True) == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_waiting_read_committed_fetch_is_answered_after_write_txn_markers() -> None:
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"x")
    reader = b.connect()
    b.send_fetch(reader, "t", 0, committed=True, max_wait_ms=10_000)
    assert b.fetched(reader) is None
    assert b.write_marker(p.pid, p.epoch, "t", commit=True) == Code.NONE
    found = b.fetched(reader)
    assert found is not None and [value for _, value in found.rows()] == [b"x"]


def test_with_flush_messages_1_records_are_read_when_an_operators_marker_is_durable() -> None:
    """No coordinator decided on this marker, so no start would write it again after a power
    loss.
    """
    b = DiskBroker()
    b.topic("t", flush_messages="1")
    p = Producer(b, "txn")
    p.send("t", 0, b"x")
    b.hold_flushes()
    assert b.write_marker(p.pid, p.epoch, "t", commit=True) == Code.NONE
    assert b.read("t", committed=True) == []
    b.release_flushes()
    assert b.read("t", committed=True) == [b"x"]


@pytest.mark.parametrize(("pid", "epoch"), [(-1, 0), (7, -1), (-1, -1)])
def test_a_marker_without_a_producer_id_or_epoch_is_refused(pid: int, epoch: int) -> None:
    b = DiskBroker()
    b.topic("t")
    assert b.write_marker(pid, epoch, "t", commit=True) == Code.UNKNOWN_SERVER_ERROR
    assert b.markers("t") == []


@pytest.mark.parametrize("has_files", [True, False])
def test_a_full_disk_refuses_a_marker_and_another_disk_error_is_raised(
    has_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any other error it is unknown which bytes were written, so the broker ends."""
    b = DiskBroker()
    b.topic("t")
    if has_files:
        b.make_files("t")
    error: OSError = NotWrittenError(errno.ENOSPC, "no space")

    def is_full(log: Any, **_: Any) -> None:
        raise error

    monkeypatch.setattr(transactions, "append_marker", is_full)
    assert b.write_marker(7, 0, "t", commit=True) == Code.KAFKA_STORAGE_ERROR
    error = OSError(errno.EIO, "an error of the disk")
    with pytest.raises(OSError, match="an error of the disk"):
        b.write_marker(7, 0, "t", commit=True)


# --- DescribeProducers ---------------------------------------------------------------------------


def test_describe_producers_returns_the_producers_of_a_partition() -> None:
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"x", b"y")
    topics = [TopicRequest(name=name, partition_indexes=[0]) for name in ("t", "u")]
    known, unknown = b.call(DescribeProducersRequest(topics=topics), 0).topics
    (row,) = known.partitions
    assert row.error_code == Code.NONE
    (producer,) = row.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (p.pid, p.epoch)
    assert (producer.last_sequence, producer.current_txn_start_offset) == (1, 0)
    (row,) = unknown.partitions
    assert (row.error_code, row.active_producers) == (Code.UNKNOWN_TOPIC_OR_PARTITION, [])
