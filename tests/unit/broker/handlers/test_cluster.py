"""A cluster of one node, or of a pair: its description, leaders and replicas, its log directory,
and its topics page by page.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import HOST, NODE_ID, NOW_MS, PORT, AdminHost, creatable
from helpers.our_messages import NO_OPERATIONS, operations_in

from barnabas.broker.brokers.cluster import Standby
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.records import NewRecord, encode_batch

TOPIC_OPERATIONS_BITS = 3576  # the value in a response of Apache Kafka 3.9


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AdminHost]:
    host = AdminHost(tmp_path, broker_rack="here")
    host.create(creatable("t", 3), creatable("u", 2))
    yield host
    host.close()


# --- DescribeCluster ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_the_cluster_is_this_broker(host: AdminHost, version: int) -> None:
    answer = host.call(
        DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1),
        version,
    )
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (
        Code.NONE,
        host.broker.logs.cluster_id,
        NODE_ID,
    )
    assert [(row.broker_id, row.host, row.port, row.rack) for row in answer.brokers] == [
        (NODE_ID, HOST, PORT, "here")
    ]
    assert answer.cluster_authorized_operations == NO_OPERATIONS
    with_operations = host.call(
        DescribeClusterRequest(include_cluster_authorized_operations=True), version
    )
    allowed = operations_in(with_operations.cluster_authorized_operations)
    assert allowed == {5, 7, 8, 9, 10, 11, 12}


@pytest.mark.parametrize(
    ("kind", "code"), [(2, Code.MISMATCHED_ENDPOINT_TYPE), (3, Code.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_describe_cluster_refuses_controller_and_unknown_endpoint_types(
    host: AdminHost, kind: int, code: Code
) -> None:
    answer = host.call(
        DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=kind),
        1,
    )
    assert (answer.error_code, answer.brokers, answer.controller_id) == (code, [], -1)


def test_responses_have_the_advertised_address(tmp_path: Path) -> None:
    host = AdminHost(tmp_path, advertised_listeners="PLAINTEXT://broker.example:1234")
    answer = host.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
    assert [(row.host, row.port) for row in answer.brokers] == [("broker.example", 1234)]
    answer = host.call(MetadataRequest(topics=[]), 12)
    assert [(row.host, row.port) for row in answer.brokers] == [("broker.example", 1234)]
    host.close()


# --- a pair -------------------------------------------------------------------------------------

OTHER = 9


@pytest.mark.parametrize(("is_there", "is_in_sync"), [(1, 1), (1, 0), (0, 0)])
def test_descriptions_list_both_nodes_of_a_pair(
    host: AdminHost, is_there: bool, is_in_sync: bool
) -> None:
    """A node that is catching up is listed as available, but not as in sync."""
    addresses = {"PLAINTEXT": ("other.example", 1234), "INNER": ("elsewhere", 1)}
    standby = Standby(OTHER, addresses, is_there=is_there, is_in_sync=is_in_sync)
    host.broker.cluster.standby = standby
    here, both = (NODE_ID, HOST, PORT), [NODE_ID, OTHER]
    in_sync, away = both if is_in_sync else [NODE_ID], [] if is_there else [OTHER]
    described = host.call(DescribeClusterRequest(), 0)
    wanted = [here, (OTHER, "other.example", 1234)]
    assert [(row.broker_id, row.host, row.port) for row in described.brokers] == wanted
    answer = host.call(MetadataRequest(topics=[]), 0)
    assert [(row.node_id, row.host, row.port) for row in answer.brokers] == wanted
    row = answer.topics[0].partitions[0]
    assert (row.leader_id, row.replica_nodes, row.isr_nodes) == (NODE_ID, both, in_sync)
    pages = host.call(DescribeTopicPartitionsRequest(topics=[TopicRequest("t")], cursor=None), 0)
    row = pages.topics[0].partitions[0]
    assert (row.leader_id, row.replica_nodes, row.isr_nodes) == (NODE_ID, both, in_sync)
    assert row.offline_replicas == away


def test_a_partition_of_a_pair_lies_on_both_nodes(host: AdminHost) -> None:
    host.broker.cluster.standby = Standby(OTHER, {}, is_there=True, is_in_sync=True)
    two, three = host.create(creatable("two", 1, 2), creatable("three", 1, 3))
    assert (two.error_code, two.replication_factor) == (Code.NONE, 2)
    assert three.error_code == Code.INVALID_REPLICATION_FACTOR
    for replicas, code in (
        ([OTHER, NODE_ID], Code.NONE),
        ([NODE_ID], Code.INVALID_REPLICA_ASSIGNMENT),
    ):
        move = ReassignableTopic("t", [ReassignablePartition(0, replicas)])
        answer = host.call(AlterPartitionReassignmentsRequest(topics=[move]), 0)
        assert answer.responses[0].partitions[0].error_code == code
    # The standby has no address for this listener, so Metadata does not list it.
    answer = host.call(MetadataRequest(topics=[]), 0)
    assert [row.node_id for row in answer.brokers] == [NODE_ID]


# --- leaders and replicas -----------------------------------------------------------------------


def elect(
    host: AdminHost, kind: int, partitions: dict[str, list[int]] | None, version: int = 2
) -> Any:
    rows = (
        None
        if partitions is None
        else [
            TopicPartitions(topic=topic, partitions=indexes)
            for topic, indexes in partitions.items()
        ]
    )
    return host.call(
        ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=1000),
        version,
    )


@pytest.mark.parametrize(("kind", "version"), [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)])
def test_no_election_is_needed_on_the_only_broker(host: AdminHost, kind: int, version: int) -> None:
    answer = elect(host, kind, {"t": [0, 5, -1], "missing": [0]}, version)
    assert version < 1 or answer.error_code == Code.NONE
    found = {
        (row.topic, cell.partition_id): cell.error_code
        for row in answer.replica_election_results
        for cell in row.partition_result
    }
    assert found == {
        ("t", 0): Code.ELECTION_NOT_NEEDED,
        ("t", 5): Code.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", -1): Code.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_of_all_partitions_none_needs_an_election(host: AdminHost) -> None:
    answer = elect(host, 0, None)
    assert (answer.error_code, answer.replica_election_results) == (Code.NONE, [])


def test_an_unknown_kind_of_election_is_refused(host: AdminHost) -> None:
    answer = elect(host, 9, {"t": [0]})
    assert answer.error_code == Code.INVALID_REQUEST
    assert answer.replica_election_results[0].partition_result[0].error_code == Code.INVALID_REQUEST


def test_a_partition_can_only_be_reassigned_to_its_present_replica(host: AdminHost) -> None:

    def move(topic: str, index: int, replicas: list[int] | None) -> int:
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=1000, topics=[ReassignableTopic(name=topic, partitions=[partition])]
        )
        answer = host.call(request, 0)
        ((row,),) = [topic.partitions for topic in answer.responses]
        assert answer.error_code == Code.NONE and row.partition_index == index
        assert (row.error_message is None) == (row.error_code == Code.NONE)
        code: int = row.error_code
        return code

    assert move("t", 0, [NODE_ID]) == 0
    assert move("t", 0, [NODE_ID + 1]) == Code.INVALID_REPLICA_ASSIGNMENT
    assert move("t", 0, [NODE_ID, NODE_ID]) == Code.INVALID_REPLICA_ASSIGNMENT
    assert move("t", 0, []) == Code.INVALID_REPLICA_ASSIGNMENT
    assert move("t", 0, None) == Code.NO_REASSIGNMENT_IN_PROGRESS
    assert move("t", 3, [NODE_ID]) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert move("missing", 0, None) == Code.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("everything", [True, False])
def test_no_partition_is_being_moved(host: AdminHost, everything: bool) -> None:
    topics = (
        None if everything else [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])]
    )
    answer = host.call(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=topics), 0)
    assert (answer.error_code, answer.topics) == (Code.NONE, [])


# --- DescribeTopicPartitions --------------------------------------------------------------------


def page(
    host: AdminHost, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    at = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    topics = [TopicRequest(name=name) for name in names]
    return host.call(
        DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=at), 0
    )


def shape(answer: Any) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    """Return the topics of a response with their error codes and partitions, and the cursor of the
    response.
    """
    topics = [
        (topic.name, topic.error_code, [row.partition_index for row in topic.partitions])
        for topic in answer.topics
    ]
    cursor = answer.next_cursor
    return topics, None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_topics_are_described_in_order_with_all_details_of_their_partitions(
    host: AdminHost,
) -> None:
    answer = page(host, "u", "t")
    assert shape(answer) == ([("t", 0, [0, 1, 2]), ("u", 0, [0, 1])], None)
    topic = answer.topics[0]
    assert (topic.is_internal, topic.topic_authorized_operations) == (False, TOPIC_OPERATIONS_BITS)
    assert topic.topic_id == host.broker.metadata.topics["t"].topic_id
    row = topic.partitions[1]
    assert (row.error_code, row.leader_id, row.leader_epoch) == (Code.NONE, NODE_ID, 0)
    assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ([NODE_ID], [NODE_ID], [])
    assert (row.eligible_leader_replicas, row.last_known_elr) == ([], [])
    assert shape(page(host)) == shape(answer)  # a request without names returns all topics


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("names", [(), ("t", "u")])
def test_following_the_cursor_gives_every_partition_once(
    host: AdminHost, limit: int, names: tuple[str, ...]
) -> None:
    found: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(10):
        topics, cursor = shape(page(host, *names, limit=limit, cursor=cursor))
        new = [(name, index) for name, _, indexes in topics for index in indexes]
        assert 0 < len(new) <= max(1, limit)
        found += new
        if cursor is None:
            break
    assert found == [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("u", 1)]


def test_a_full_page_at_a_topics_end_points_at_the_next_topic(host: AdminHost) -> None:
    assert shape(page(host, limit=3)) == ([("t", 0, [0, 1, 2])], ("u", 0))
    assert shape(page(host, limit=5)) == ([("t", 0, [0, 1, 2]), ("u", 0, [0, 1])], None)


def test_missing_topics_and_bad_names_have_errors_and_do_not_count_for_the_limit(
    host: AdminHost,
) -> None:
    topics, cursor = shape(page(host, "missing", "a/b", "u", limit=2))
    assert topics == [
        ("a/b", Code.INVALID_TOPIC_EXCEPTION, []),
        ("missing", Code.UNKNOWN_TOPIC_OR_PARTITION, []),
        ("u", 0, [0, 1]),
    ]
    assert cursor is None


@pytest.mark.parametrize("cursor", [("u", 0), ("t", -1)])
def test_a_cursor_at_a_topic_that_was_not_requested_is_refused(
    host: AdminHost, cursor: tuple[str, int]
) -> None:
    assert shape(page(host, "t", cursor=cursor)) == ([("t", Code.INVALID_REQUEST, [])], None)


def test_a_cursor_of_a_topic_that_is_gone_goes_on_behind_it(host: AdminHost) -> None:
    assert shape(page(host, cursor=("tt", 1))) == ([("u", 0, [0, 1])], None)
    assert shape(page(host, cursor=("u", 9))) == ([("u", 0, [])], None)


# --- DescribeLogDirs ----------------------------------------------------------------------------


def log_dirs(host: AdminHost, wanted: dict[str, list[int]] | None, version: int = 4) -> Any:
    topics = (
        None
        if wanted is None
        else [
            DescribableLogDirTopic(topic=topic, partitions=indexes)
            for topic, indexes in wanted.items()
        ]
    )
    answer = host.call(DescribeLogDirsRequest(topics=topics), version)
    (directory,) = answer.results
    assert directory.error_code == Code.NONE
    return directory


@pytest.mark.parametrize("version", range(1, 5))
def test_partitions_have_the_size_of_their_batches(
    host: AdminHost, tmp_path: Path, version: int
) -> None:
    log = host.broker.topics.partition("t", 1)
    assert log is not None
    batch = encode_batch([NewRecord(None, b"x" * 100, NOW_MS)])
    log.append(batch, now_ms=NOW_MS)
    directory = log_dirs(host, {"t": [1, 0, 1, 9], "missing": [0]}, version)
    assert directory.log_dir == str(tmp_path / "data")
    ((name, rows),) = [(topic.name, topic.partitions) for topic in directory.topics]
    assert name == "t"
    assert [
        (row.partition_index, row.partition_size, row.offset_lag, row.is_future_key) for row in rows
    ] == [
        (1, len(batch), 0, False),
        (0, 0, 0, False),
    ]
    assert (
        version < 4
        or 0 < directory.usable_bytes <= directory.total_bytes == shutil.disk_usage(tmp_path).total
    )


def test_describe_log_dirs_with_null_topics_returns_all_partitions(host: AdminHost) -> None:
    directory = log_dirs(host, None)
    assert {topic.name: len(topic.partitions) for topic in directory.topics} == {"t": 3, "u": 2}
    assert log_dirs(host, {}).topics == []


# --- a partition that is off line ---------------------------------------------------------------


def test_a_partition_without_its_log_is_leaderless_and_others_are_described(
    host: AdminHost,
) -> None:
    host.broker.topics.partitions_of("t")[1] = None
    described = page(host, "t").topics[0]
    found = host.metadata("t")[0]
    for topic in (described, found):
        assert topic.error_code == Code.NONE
        assert [
            (row.error_code, row.leader_id, row.offline_replicas) for row in topic.partitions
        ] == [
            (0, NODE_ID, []),
            (Code.LEADER_NOT_AVAILABLE, -1, [NODE_ID]),
            (0, NODE_ID, []),
        ]
    assert [
        row.partition_index for row in log_dirs(host, {"t": [0, 1, 2]}).topics[0].partitions
    ] == [0, 2]
