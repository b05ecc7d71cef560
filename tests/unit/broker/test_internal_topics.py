"""Every API with which a request can name __transaction_state or __consumer_offsets, compared with
Apache Kafka's rule.

The table has a row for each request that changes something, with the code for each of the two
topics in each version. Where Kafka's code differs, the row also has Kafka's code and the reason.
The codes of Kafka come from KafkaApis, ControllerApis and ReplicaManager of Apache Kafka 3.9 and
4.3, and from responses recorded from both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from helpers.admin_host import creatable
from helpers.disk_broker import DiskBroker, Producer

from barnabas.coordinator.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.protocol.api_table import APIS
from barnabas.protocol.errors import Code
from barnabas.protocol.generator.schema import load
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

OFFSETS_OF_THEIR_OWN = "a committed offset may be of any topic; nothing is written to it"
READS = "reads"
WITHOUT_ROW = {
    "AlterPartitionReassignments": "one broker: nothing moves",
    "AlterReplicaLogDirs": "one log directory: nothing moves",
    "ElectLeaders": "one broker: nothing moves",
    "DescribeLogDirs": READS,
    "DescribeProducers": READS,
    "DescribeQuorum": READS,
    "DescribeTopicPartitions": READS,
    "Fetch": READS,
    "ListOffsets": READS,
    "ListPartitionReassignments": READS,
    "Metadata": READS,
    "OffsetFetch": READS,
    "OffsetForLeaderEpoch": READS,
    "OffsetCommit": OFFSETS_OF_THEIR_OWN,
    "OffsetDelete": OFFSETS_OF_THEIR_OWN,
    "TxnOffsetCommit": OFFSETS_OF_THEIR_OWN,
    "AlterShareGroupOffsets": OFFSETS_OF_THEIR_OWN,
    "DeleteShareGroupOffsets": OFFSETS_OF_THEIR_OWN,
    "DescribeShareGroupOffsets": READS,
    "ShareAcknowledge": OFFSETS_OF_THEIR_OWN,
    "ShareFetch": READS,
    **dict.fromkeys(
        (
            "InitializeShareGroupState",
            "ReadShareGroupState",
            "WriteShareGroupState",
            "DeleteShareGroupState",
            "ReadShareGroupStateSummary",
        ),
        OFFSETS_OF_THEIR_OWN,
    ),
}
AUTHORIZATION, INVALID = Code.TOPIC_AUTHORIZATION_FAILED, Code.INVALID_TOPIC_EXCEPTION
Ask = Callable[[DiskBroker, Producer, str, int], int]


class Row(NamedTuple):
    """A row of the table. `codes` are the codes for __transaction_state and for __consumer_offsets.
    `kafka` has Kafka's codes if they differ, and `why` the reason.
    """

    api: str
    versions: range
    ask: Ask
    codes: tuple[Code, Code]
    kafka: tuple[Code, Code] | None = None
    why: str = ""


def add(b: DiskBroker, p: Producer, name: str, version: int) -> int:
    """Add partition 0 of the topic to the producer's transaction. Gives the error code."""
    topics = [AddPartitionsToTxnTopic(name, [0])]
    if version < 4:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=p.txn,
            v3_and_below_producer_id=p.pid,
            v3_and_below_producer_epoch=p.epoch,
            v3_and_below_topics=topics,
        )
        rows = b.call(request, version, p.connection).results_by_topic_v3_and_below
    else:
        one = AddPartitionsToTxnTransaction(p.txn, p.pid, p.epoch, False, topics)
        answer = b.call(AddPartitionsToTxnRequest([one]), version, p.connection)
        rows = answer.results_by_transaction[0].topic_results
    code: int = rows[0].results_by_partition[0].partition_error_code
    return code


def produce_by_name_or_id(b: DiskBroker, p: Producer, name: str, version: int) -> int:
    request = b.produce_request(name, (b"x",), pid=p.pid, epoch=p.epoch, sequence=0, txn=p.txn)
    topic = b.broker.metadata.topic(name)
    assert topic is not None
    request.topic_data[0].topic_id = topic.topic_id
    return _produced(b.call(request, version, p.connection))


def _produced(answer: Any) -> int:
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def write_markers(b: DiskBroker, p: Producer, name: str, version: int) -> int:
    """Write an abort marker of the producer to partition 0, as a coordinator does. Gives the error
    code.
    """
    topics = [WritableTxnMarkerTopic(name, [0])]
    request = WriteTxnMarkersRequest([WritableTxnMarker(p.pid, p.epoch, False, topics)])
    code: int = b.call(request, version).markers[0].topics[0].partitions[0].error_code
    return code


def delete(b: DiskBroker, _: Producer, name: str, version: int) -> int:
    if version < 6:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
    else:
        request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=1000)
    code: int = b.call(request, version).responses[0].error_code
    return code


def grow(b: DiskBroker, _: Producer, name: str, version: int) -> int:
    """Request that the topic get nine partitions. Gives: the error code."""
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, 9)], timeout_ms=1000)
    code: int = b.call(request, version).results[0].error_code
    return code


def create(b: DiskBroker, _: Producer, name: str, version: int) -> int:
    request = CreateTopicsRequest(topics=[creatable(name, 1)], timeout_ms=1000)
    code: int = b.call(request, version).topics[0].error_code
    return code


def delete_records(b: DiskBroker, _: Producer, name: str, version: int) -> int:
    topics = [DeleteRecordsTopic(name, [DeleteRecordsPartition(0, -1)])]
    answer = b.call(DeleteRecordsRequest(topics, timeout_ms=1000), version)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def set_one(b: DiskBroker, _: Producer, name: str, version: int) -> int:
    """Change one setting of the topic. Gives the error code."""
    resource = AlterConfigsResource(2, name, [AlterableConfig("segment.bytes", 0, "1048576")])
    code: int = b.call(IncrementalAlterConfigsRequest([resource]), version).responses[0].error_code
    return code


OF_COORDINATORS = "the coordinators keep the topic's state in memory, too"
ROWS = [
    Row("AddPartitionsToTxn", range(4), add, (AUTHORIZATION, AUTHORIZATION)),
    Row(
        "AddPartitionsToTxn", range(4, 6), add, (AUTHORIZATION, Code.NONE), (Code.NONE, Code.NONE),
        "versions of brokers, which add no partition of __transaction_state; a client could",
    ),
    Row("Produce", range(3, 14), produce_by_name_or_id, (INVALID, INVALID)),
    Row(
        "WriteTxnMarkers", range(3), write_markers, (INVALID, Code.NONE), (Code.NONE, Code.NONE),
        "Kafka appends it, and cannot load the partition again",
    ),
    Row("DeleteRecords", range(3), delete_records, (INVALID, INVALID)),
    Row("DeleteTopics", range(1, 7), delete, (INVALID, INVALID), (Code.NONE, Code.NONE),
        OF_COORDINATORS),
    Row("CreatePartitions", range(4), grow, (INVALID, INVALID), (Code.NONE, Code.NONE),
        OF_COORDINATORS),
    Row("CreateTopics", range(2, 8), create, (Code.TOPIC_ALREADY_EXISTS,) * 2),
]  # fmt: skip
CASES = [
    pytest.param(row, version, name, code, id=f"{row.api}-{version}-{name}")
    for row in ROWS
    for version in row.versions
    for name, code in zip((TRANSACTIONS_TOPIC, OFFSETS_TOPIC), row.codes, strict=True)
]


@pytest.fixture
def b() -> Iterator[DiskBroker]:
    b = DiskBroker(barnabas_features="transaction.version=2")
    yield b
    b.stop()


def begun(b: DiskBroker) -> Producer:
    """Return a producer whose transaction has a partition and a group, so that both internal topics
    exist.
    """
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    p.send_offset("g", "t", 1)
    return p


def named_topics(api: str) -> bool:
    """Whether a request contains a topic's name or id, according to Kafka's schemas."""
    text = json.dumps(load(f"{api}Request"))
    return re.search(r'"topicName"|"TopicId"', text) is not None


def test_every_request_that_can_name_a_topic_is_in_the_table() -> None:
    # AlterConfigs and DescribeConfigs name resources instead. A heartbeat's subscription names no
    # partitions, and its topology is checked in handlers/test_streams_groups.py.
    apis = {api.name for api in APIS if named_topics(api.name)} - {
        "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat",
    }  # fmt: skip
    assert apis == {row.api for row in ROWS} | WITHOUT_ROW.keys()


def test_the_table_has_every_version() -> None:
    """Some versions are left out: Produce before version 3 has messages instead of batches, and the
    first versions of two other APIs have other fields.
    """
    for api in APIS:
        versions = {version for row in ROWS if row.api == api.name for version in row.versions}
        first = {"Produce": 3, "CreateTopics": 2, "DeleteTopics": 1}.get(api.name, api.min_version)
        if versions:
            assert versions == set(range(first, api.max_version + 1)), api.name
    assert all((row.kafka is None) == (not row.why) for row in ROWS)


@pytest.mark.parametrize(("row", "version", "name", "code"), CASES)
def test_a_request_for_an_internal_topic_gets_the_error_code_of_the_table(
    b: DiskBroker, row: Row, version: int, name: str, code: Code
) -> None:
    p = begun(b)
    assert row.ask(b, p, name, version) == code
    found = b.broker.transactions.metadata("txn")
    assert found is not None
    assert TRANSACTIONS_TOPIC not in {pair.topic for pair in found.partitions}
    assert p.end(True) == Code.NONE
    for index in range(len(b.broker.topics.partitions_of(TRANSACTIONS_TOPIC))):
        assert b.markers(TRANSACTIONS_TOPIC, index) == []
    assert b.group_offset("g", "t") == (Code.NONE, 1), (
        "the offsets are committed with the transaction"
    )
    assert b.read("t", committed=True) == [b"a"]


@pytest.mark.parametrize("name", INTERNAL_TOPICS)
def test_settings_of_internal_topics_can_be_changed_as_in_kafka(b: DiskBroker, name: str) -> None:
    p = begun(b)
    b.broker.topics.ensure_internal_topic(name, b.now_ms)
    assert set_one(b, p, name, 1) == Code.NONE


def test_partitions_in_a_request_with_an_internal_topic_are_not_added(b: DiskBroker) -> None:
    p = begun(b)
    b.topic("u")
    request = p.add_request({"u": (0, 7), TRANSACTIONS_TOPIC: (0, 1)})
    rows = b.call(request, 3).results_by_topic_v3_and_below
    assert {
        (row.name, one.partition_index): one.partition_error_code
        for row in rows
        for one in row.results_by_partition
    } == {
        ("u", 0): Code.OPERATION_NOT_ATTEMPTED,
        ("u", 7): Code.UNKNOWN_TOPIC_OR_PARTITION,
        (TRANSACTIONS_TOPIC, 0): AUTHORIZATION,
        (TRANSACTIONS_TOPIC, 1): AUTHORIZATION,
    }
