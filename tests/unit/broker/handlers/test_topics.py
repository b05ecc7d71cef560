"""Requests that create, find, enlarge and delete topics. The expected codes are those of Apache
Kafka 3.9 unless a test says otherwise.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import HOST, NODE_ID, PORT, AdminHost, creatable
from helpers.our_messages import NO_OPERATIONS, operations_in

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

NO_ID = uuid.UUID(int=0)  # decoded as None
OFFSETS = "__consumer_offsets"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AdminHost]:
    host = AdminHost(tmp_path)
    yield host
    host.close()


def codes(rows: list[Any]) -> dict[str, int]:
    return {row.name: row.error_code for row in rows}


def make_offsets_topic(host: AdminHost) -> None:
    host.call(FindCoordinatorRequest(key="group", key_type=0), 3)


# --- creating -----------------------------------------------------------------------------------


def test_a_created_topic_has_logs_and_an_id_and_survives_a_restart(host: AdminHost) -> None:
    (row,) = host.create(creatable("t", 3, configs={"retention.ms": " 1000 "}))
    assert (row.error_code, row.error_message, row.num_partitions, row.replication_factor) == (
        Code.NONE,
        None,
        3,
        1,
    )
    assert row.topic_id is not None
    shown = {config.name: (config.value, config.config_source) for config in row.configs}
    assert shown["retention.ms"] == (" 1000 ", 1)  # unchanged, as sent by the client
    assert shown["cleanup.policy"] == ("delete", 5)
    host.restart()
    (found,) = host.metadata("t")
    assert found.topic_id == row.topic_id and len(found.partitions) == 3
    assert all(host.broker.topics.partition("t", index) is not None for index in range(3))
    log = host.broker.topics.partition("t", 2)
    assert log is not None and log.config.retention_ms == 1000


def test_settings_that_a_new_topic_does_not_set_come_from_the_broker(tmp_path: Path) -> None:
    host = AdminHost(tmp_path, log_retention_hours="2", num_partitions="4")
    (row,) = host.create(creatable("t", -1, -1))
    shown = {config.name: (config.value, config.config_source) for config in row.configs}
    assert shown["retention.ms"] == ("7200000", 4)
    assert row.num_partitions == 4
    host.close()


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (creatable("p0", 0), Code.INVALID_PARTITIONS),
        (creatable("p-2", -2), Code.INVALID_PARTITIONS),
        (creatable("p-many", 10_001), Code.POLICY_VIOLATION),
        (creatable("r0", 1, 0), Code.INVALID_REPLICATION_FACTOR),
        (creatable("r-2", 1, -2), Code.INVALID_REPLICATION_FACTOR),
        (creatable("r3", 1, 3), Code.INVALID_REPLICATION_FACTOR),
        (creatable("c1", configs={"no.such.key": "1"}), Code.INVALID_CONFIG),
        (creatable("c2", configs={"retention.ms": None}), Code.INVALID_CONFIG),
        (creatable("c3", configs={"segment.bytes": "1"}), Code.INVALID_CONFIG),
        (
            creatable("c4", 0, configs={"segment.bytes": "1"}),
            Code.INVALID_CONFIG,
        ),  # configs are checked first
        (creatable("a1", 1, 1, assignments={0: [NODE_ID]}), Code.INVALID_REQUEST),
        (
            creatable("a2", -1, -1, assignments={0: [NODE_ID], 2: [NODE_ID]}),
            Code.INVALID_REPLICA_ASSIGNMENT,
        ),
        (creatable("a3", -1, -1, assignments={1: [NODE_ID]}), Code.INVALID_REPLICA_ASSIGNMENT),
        (creatable("a4", -1, -1, assignments={0: [NODE_ID + 1]}), Code.INVALID_REPLICA_ASSIGNMENT),
        (
            creatable("a5", -1, -1, assignments={0: [NODE_ID, NODE_ID]}),
            Code.INVALID_REPLICA_ASSIGNMENT,
        ),
        (creatable("a6", -1, -1, assignments={0: []}), Code.INVALID_REPLICA_ASSIGNMENT),
        (creatable(""), Code.INVALID_TOPIC_EXCEPTION),
        (creatable("."), Code.INVALID_TOPIC_EXCEPTION),
        (creatable(".."), Code.INVALID_TOPIC_EXCEPTION),
        (creatable("a/b"), Code.INVALID_TOPIC_EXCEPTION),
        (creatable("a b"), Code.INVALID_TOPIC_EXCEPTION),
        (creatable("line\n"), Code.INVALID_TOPIC_EXCEPTION),
        (creatable("ä"), Code.INVALID_TOPIC_EXCEPTION),
        (creatable("x" * 250), Code.INVALID_TOPIC_EXCEPTION),
        (creatable("__cluster_metadata"), Code.TOPIC_AUTHORIZATION_FAILED),
        (
            creatable(OFFSETS),
            Code.INVALID_TOPIC_EXCEPTION,
        ),  # unlike in Apache Kafka, since the coordinator relies on this topic's partitions
    ],
    ids=lambda value: value.name if isinstance(value, Code) else repr(value.name[:20]),
)
def test_an_invalid_topic_is_refused_with_a_message_and_does_not_affect_another(
    host: AdminHost, asked: Any, code: Code
) -> None:
    good_counts = code is not Code.POLICY_VIOLATION  # POLICY_VIOLATION applies to the whole request
    rows = host.create(creatable("good"), asked)
    assert codes(rows) == {"good": 0 if good_counts else int(code), asked.name: int(code)}
    refused = rows[1]
    assert refused.error_message.count(" ") > 2
    assert (
        refused.topic_id,
        refused.num_partitions,
        refused.replication_factor,
        refused.configs,
    ) == (None, -1, -1, [])
    assert list(host.broker.metadata.topics) == (["good"] if good_counts else [])


def test_the_longest_name_and_all_letters_that_may_be(host: AdminHost) -> None:
    rows = host.create(creatable("x" * 249), creatable("aZ0._-"))
    assert [row.error_code for row in rows] == [0, 0]


def test_replicas_assigned_by_hand(host: AdminHost) -> None:
    (row,) = host.create(creatable("t", -1, -1, assignments={1: [NODE_ID], 0: [NODE_ID]}))
    assert (row.error_code, row.num_partitions) == (Code.NONE, 2)


@pytest.mark.parametrize("counts", list(itertools.product([1, 2, 3], repeat=3)))
def test_each_partition_is_assigned_to_the_same_number_of_brokers(
    tmp_path: Path, counts: tuple[int, ...]
) -> None:
    host = AdminHost(tmp_path, barnabas_brokers="3")
    brokers = list(range(NODE_ID, NODE_ID + 3))
    assignments = {index: brokers[:count] for index, count in enumerate(counts)}
    (row,) = host.create(creatable("t", -1, -1, assignments=assignments))
    assert row.error_code == (
        Code.NONE if len(set(counts)) == 1 else Code.INVALID_REPLICA_ASSIGNMENT
    )
    host.close()


def test_validate_only_creates_no_topic(host: AdminHost) -> None:
    (row,) = host.create(creatable("t", 3), validate_only=True)
    assert (row.error_code, row.num_partitions) == (Code.NONE, 3)
    assert host.metadata("t")[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    host.create(creatable("t"))
    assert (
        host.create(creatable("t"), validate_only=True)[0].error_code == Code.TOPIC_ALREADY_EXISTS
    )


def test_a_topic_named_twice_in_a_request_is_not_created(host: AdminHost) -> None:
    rows = host.create(creatable("twice"), creatable("other"), creatable("twice"))
    assert codes(rows) == {"twice": Code.INVALID_REQUEST, "other": 0} and len(rows) == 2
    assert host.broker.metadata.topic("twice") is None


def test_names_that_differ_by_dot_and_underscore_alone_collide(host: AdminHost) -> None:
    assert codes(host.create(creatable("a.b_c"), creatable("a_b.c"))) == {
        "a.b_c": 0,
        "a_b.c": Code.INVALID_TOPIC_EXCEPTION,
    }
    assert host.create(creatable("a_b_c"))[0].error_code == Code.INVALID_TOPIC_EXCEPTION
    assert host.metadata("a_b_c", auto=True)[0].error_code == Code.INVALID_TOPIC_EXCEPTION
    assert host.create(creatable("a-b-c"))[0].error_code == Code.NONE
    delete(host, "a.b_c")
    assert host.create(creatable("a_b_c"))[0].error_code == Code.NONE


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_of_create_topics_is_answered(host: AdminHost, version: int) -> None:
    (row,) = host.create(creatable("t", 2), version=version)
    assert (row.name, row.error_code) == ("t", Code.NONE)
    assert version < 5 or row.num_partitions == 2


# --- finding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(13))
def test_every_version_of_metadata_has_this_broker_and_the_partitions(
    host: AdminHost, version: int
) -> None:
    (made,) = host.create(creatable("t", 2))
    answer = host.call(
        MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=NO_ID)]),
        version,
    )
    (node,) = answer.brokers
    assert (node.node_id, node.host, node.port) == (NODE_ID, HOST, PORT)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (Code.NONE, "t")
    assert [row.partition_index for row in topic.partitions] == [0, 1]
    for row in topic.partitions:
        assert (row.error_code, row.leader_id, row.replica_nodes, row.isr_nodes) == (
            Code.NONE,
            NODE_ID,
            [NODE_ID],
            [NODE_ID],
        )
        assert version < 7 or row.leader_epoch == 0
    assert version < 1 or answer.controller_id == NODE_ID
    assert version < 2 or answer.cluster_id == host.broker.logs.cluster_id
    assert version < 8 or topic.topic_authorized_operations == NO_OPERATIONS
    assert version < 10 or topic.topic_id == made.topic_id


def test_null_means_all_topics_and_in_version_0_so_does_an_empty_list(host: AdminHost) -> None:
    host.create(creatable("t"), creatable("u", 3))
    sizes = {"t": 1, "u": 3}
    for version, topics in ((0, []), (1, None), (12, None)):
        rows = host.call(MetadataRequest(topics=topics), version).topics
        assert {row.name: len(row.partitions) for row in rows} == sizes, version
    for version in (1, 12):
        assert host.call(MetadataRequest(topics=[]), version).topics == []


def test_topics_are_found_by_id_and_returned_once(host: AdminHost) -> None:
    (made,) = host.create(creatable("t"))
    unknown = uuid.UUID(int=99, version=4)
    wanted = [
        MetadataRequestTopic(name=None, topic_id=made.topic_id),
        MetadataRequestTopic(name="t", topic_id=made.topic_id),
        MetadataRequestTopic(name=None, topic_id=unknown),
    ]
    rows = host.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 12).topics
    assert [(row.error_code, row.name, row.topic_id, len(row.partitions)) for row in rows] == [
        (0, "t", made.topic_id, 1),
        (Code.UNKNOWN_TOPIC_ID, None, unknown, 0),
    ]
    for version in (10, 11):
        rows = host.call(MetadataRequest(topics=wanted[:1]), version).topics
        assert [(row.error_code, row.name) for row in rows] == [(Code.INVALID_REQUEST, "")]
    assert len(host.metadata("t", "t")) == 1


def test_authorized_operations_are_returned_on_request(host: AdminHost) -> None:
    host.create(creatable("t"))
    of_topics = {3, 4, 5, 6, 7, 8, 10, 11}
    request = MetadataRequest(
        topics=None,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = host.call(request, 8)
    assert operations_in(answer.topics[0].topic_authorized_operations) == of_topics
    assert operations_in(answer.cluster_authorized_operations) == {5, 7, 8, 9, 10, 11, 12}
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    (topic,) = host.call(request, 12).topics
    assert operations_in(topic.topic_authorized_operations) == of_topics


def test_a_metadata_request_creates_a_missing_topic_and_the_next_one_finds_it(
    tmp_path: Path,
) -> None:
    host = AdminHost(tmp_path, num_partitions="2")
    assert host.metadata("t", auto=False)[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert host.broker.metadata.topic("t") is None
    assert host.metadata("t", auto=True)[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    (row,) = host.metadata("t", auto=False)
    assert (row.error_code, len(row.partitions)) == (Code.NONE, 2)
    host.metadata("old", version=3)  # up to version 3, allow_auto_topic_creation is always true
    assert host.metadata("old")[0].error_code == Code.NONE
    assert host.metadata("a/b", auto=True)[0].error_code == Code.INVALID_TOPIC_EXCEPTION
    host.close()


def test_an_automatically_created_internal_topic_has_the_coordinators_settings(
    tmp_path: Path,
) -> None:
    host = AdminHost(tmp_path, offsets_topic_num_partitions="5")
    host.metadata(OFFSETS, auto=True)
    (row,) = host.metadata(OFFSETS)
    assert (row.error_code, row.is_internal, len(row.partitions)) == (Code.NONE, True, 5)
    log = host.broker.topics.partition(OFFSETS, 0)
    assert log is not None and log.config.cleanup_policy == {"compact"}
    host.close()


def test_without_auto_create_a_metadata_request_creates_no_topic(tmp_path: Path) -> None:
    host = AdminHost(tmp_path, auto_create_topics_enable="false")
    host.metadata("t", auto=True)
    host.metadata("t", version=3)
    assert host.broker.metadata.topic("t") is None
    host.close()


# --- deleting -----------------------------------------------------------------------------------


def delete(host: AdminHost, *names: str, version: int = 5) -> list[Any]:
    rows: list[Any] = host.call(
        DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000), version
    ).responses
    return rows


def delete_states(host: AdminHost, *states: tuple[str | None, uuid.UUID]) -> list[Any]:
    topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    rows: list[Any] = host.call(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6).responses
    return rows


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(host: AdminHost, version: int) -> None:
    host.create(creatable("t"), creatable("kept"))
    assert codes(delete(host, "t", "missing", version=version)) == {
        "t": 0,
        "missing": Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (
        host.broker.topics.partition("t", 0) is None
        and host.broker.topics.partition("kept", 0) is not None
    )
    host.restart()
    assert list(host.broker.metadata.topics) == ["kept"]


def test_topics_are_deleted_by_id_and_returned_with_name_and_id(host: AdminHost) -> None:
    one, two = host.create(creatable("one"), creatable("two"))
    rows = delete_states(host, (None, one.topic_id), ("two", NO_ID))
    assert [(row.error_code, row.name, row.topic_id) for row in rows] == [
        (0, "one", one.topic_id),
        (0, "two", two.topic_id),
    ]
    (row,) = delete_states(host, (None, one.topic_id))
    assert (row.error_code, row.name, row.topic_id) == (Code.UNKNOWN_TOPIC_ID, None, one.topic_id)
    (again,) = host.create(creatable("one"))
    assert again.topic_id != one.topic_id


def test_a_topic_named_twice_or_by_both_name_and_id_or_by_neither_is_not_deleted(
    host: AdminHost,
) -> None:
    (made,) = host.create(creatable("t"))
    assert codes(delete(host, "t", "t")) == {"t": Code.INVALID_REQUEST}
    assert [row.error_code for row in delete_states(host, ("t", made.topic_id))] == [
        Code.INVALID_REQUEST
    ]
    assert [row.error_code for row in delete_states(host, (None, NO_ID), (None, NO_ID))] == [
        Code.INVALID_REQUEST
    ] * 2
    assert [row.error_code for row in delete_states(host, ("t", NO_ID), (None, made.topic_id))] == [
        Code.INVALID_REQUEST
    ]
    assert host.metadata("t")[0].error_code == Code.NONE


def test_the_brokers_own_topics_are_neither_deleted_nor_grown(host: AdminHost) -> None:
    make_offsets_topic(host)
    assert delete(host, OFFSETS)[0].error_code == Code.INVALID_TOPIC_EXCEPTION
    assert grow(host, OFFSETS, 100) == Code.INVALID_TOPIC_EXCEPTION
    assert host.create(creatable(OFFSETS))[0].error_code == Code.TOPIC_ALREADY_EXISTS
    assert len(host.metadata(OFFSETS)[0].partitions) == 50


def test_without_delete_topic_enable_topics_are_not_deleted(tmp_path: Path) -> None:
    host = AdminHost(tmp_path, delete_topic_enable="false")
    host.create(creatable("t"))
    assert delete(host, "t")[0].error_code == Code.TOPIC_DELETION_DISABLED
    assert delete(host, "t", version=2)[0].error_code == Code.INVALID_REQUEST
    assert host.metadata("t")[0].error_code == Code.NONE
    host.close()


# --- growing ------------------------------------------------------------------------------------


def grow(
    host: AdminHost,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    validate_only: bool = False,
    version: int = 3,
) -> int:
    rows = (
        None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    )
    topic = CreatePartitionsTopic(name=name, count=count, assignments=rows)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=validate_only)
    (row,) = host.call(request, version).results
    assert row.name == name and (row.error_message is None) == (row.error_code == Code.NONE)
    code: int = row.error_code
    return code


def test_a_topic_grows_and_never_shrinks(host: AdminHost) -> None:
    host.create(creatable("t", 2))
    for count in (-1, 0, 1, 2):
        assert grow(host, "t", count) == Code.INVALID_PARTITIONS
    assert grow(host, "t", 5, validate_only=True) == 0
    assert host.broker.topics.partition("t", 2) is None
    for version, count in enumerate((3, 4, 5, 6)):
        assert grow(host, "t", count, version=version) == 0
    assert grow(host, "t", 20_000) == Code.POLICY_VIOLATION
    assert grow(host, "missing", 3) == Code.UNKNOWN_TOPIC_OR_PARTITION
    host.restart()
    assert [row.partition_index for row in host.metadata("t")[0].partitions] == [0, 1, 2, 3, 4, 5]
    assert host.broker.topics.partition("t", 5) is not None


def test_new_partitions_can_only_be_assigned_to_this_broker(host: AdminHost) -> None:
    host.create(creatable("t", 1))
    for assignments in (
        [],
        [[NODE_ID]],
        [[NODE_ID], [NODE_ID + 1]],
        [[NODE_ID], []],
        [[NODE_ID], [NODE_ID, NODE_ID]],
    ):
        assert grow(host, "t", 3, assignments) == Code.INVALID_REPLICA_ASSIGNMENT, assignments
    assert grow(host, "t", 3, [[NODE_ID], [NODE_ID]]) == 0


def test_a_topic_named_twice_does_not_grow(host: AdminHost) -> None:
    host.create(creatable("t", 1))
    topics = [CreatePartitionsTopic(name="t", count=count, assignments=None) for count in (2, 3)]
    rows = host.call(
        CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=False), 3
    ).results
    assert codes(rows) == {"t": Code.INVALID_REQUEST} and len(rows) == 1
    assert len(host.metadata("t")[0].partitions) == 1
