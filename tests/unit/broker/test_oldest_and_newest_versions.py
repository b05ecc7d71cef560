"""Versions of requests that only Apache Kafka 3.9 or only Apache Kafka 4.3 supports."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from helpers.core_host import CoreHost, produce

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

BY_ID = 13  # the first version of Produce with topic ids


@pytest.fixture
def host(tmp_path: Path) -> CoreHost:
    host = CoreHost(tmp_path)
    host.connect(1)
    return host


def by_id(topic_id: uuid.UUID | None) -> ProduceRequest:
    request: ProduceRequest = produce("")
    request.topic_data[0].topic_id = topic_id
    return request


def test_a_produce_by_the_id_of_the_topic(host: CoreHost) -> None:
    """KIP-516: the name and the id of a topic lead to the same log. An unknown id has a separate
    error.
    """
    (log,) = host.create("t")
    topic = host.broker.metadata.topic("t")
    assert topic is not None
    ids = topic.topic_id, uuid.UUID(int=77), None
    (written,), (unknown,), (none,) = (
        host.call(1, by_id(topic_id), BY_ID).responses for topic_id in ids
    )
    assert written.topic_id == topic.topic_id
    (row,) = written.partition_responses
    assert (row.error_code, row.base_offset, log.log_end_offset) == (Code.NONE, 0, 1)
    assert unknown.topic_id == uuid.UUID(int=77)
    for topic_answer in (unknown, none):
        assert topic_answer.partition_responses[0].error_code == Code.UNKNOWN_TOPIC_ID
    assert host.call(1, produce("t"), 12).responses[0].partition_responses[0].base_offset == 1


def test_a_missing_partition_of_a_known_topic_id_is_an_unknown_partition(host: CoreHost) -> None:
    host.create("t")
    topic = host.broker.metadata.topic("t")
    assert topic is not None
    request = by_id(topic.topic_id)
    request.topic_data[0].partition_data[0].index = 5
    (answer,) = host.call(1, request, BY_ID).responses
    assert answer.partition_responses[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_version_0_of_offset_requests_is_refused(host: CoreHost) -> None:
    """Version 0 refers to offsets in ZooKeeper. Version 1 commits to the broker, without a
    member.
    """
    partition = OffsetCommitRequestPartition(0, 5, committed_metadata="")
    commit = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", None, [partition])])
    fetch = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])])
    host.create("t")
    for version, code in ((0, Code.UNSUPPORTED_VERSION), (1, Code.NONE)):
        committed = host.call(1, commit, version).topics[0].partitions[0]
        assert committed.error_code == code
        fetched = host.call(1, fetch, version).topics[0].partitions[0]
        assert (fetched.error_code, fetched.committed_offset) == (code, 5 if version else -1)


def test_topics_are_made_and_deleted_in_version_0(host: CoreHost) -> None:
    topic = CreatableTopic("t", num_partitions=2, replication_factor=1)
    made = host.call(1, CreateTopicsRequest([topic], 1000), 0)
    assert [(row.name, row.error_code) for row in made.topics] == [("t", Code.NONE)]
    assert len(host.broker.topics.partitions_of("t")) == 2
    gone = host.call(1, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 0)
    assert [(row.name, row.error_code) for row in gone.responses] == [("t", Code.NONE)]


def test_markers_without_anything_in_version_0(host: CoreHost) -> None:
    assert host.call(1, WriteTxnMarkersRequest(), 0).markers == []
