"""Several brokers from the view of clients: which broker responds, which brokers refuse, and the
effects of a change of leaders.

The error codes and hints follow KIP-101, KIP-320, KIP-951, and the protocol guide on
NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR and NOT_ENOUGH_REPLICAS.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost, error_of, fetch, produce

from barnabas.broker.groups.group_topics import short_text
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import initialize_share_group_state as state
from barnabas.protocol.messages import read_share_group_state_summary as summary
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
)
from barnabas.protocol.messages.describe_topic_partitions import (
    TopicRequest as DescribedTopic,
)
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PORTS = {1: 9092, 2: 9193, 3: 9294}


class Cluster(CoreHost):
    """Three brokers. Connection N is to broker N. The replicas of the two partitions of `t` are
    (1, 2) and (2, 3).
    """

    def __init__(self, directory: Path, **settings: str) -> None:
        """Start three brokers, each with a connection whose number is its node id. Partition t-0
        has the replicas 1 and 2, and t-1 has 2 and 3.
        """
        super().__init__(
            directory,
            barnabas_brokers="3",
            **{
                "offsets_topic_num_partitions": "3",
                "transaction_state_log_num_partitions": "3",
                **settings,
            },
        )
        for node_id, port in PORTS.items():
            self.broker.on_listening(node_id, self.broker.config.listeners[0], port)
            self.connect(node_id, node_id)
        self.create("t", 2)
        self.broker.metadata.set_topic_replicas("t", ((1, 2), (2, 3)))
        self.broker.cluster._leaderships.clear()

    def metadata(self, connection: int = 1) -> Any:
        return self.call(connection, MetadataRequest(topics=None), 12)

    def rows(self, topic: str = "t") -> list[tuple[int, list[int], list[int], list[int]]]:
        """The leader, replicas, in-sync and off-line replicas of each partition in a Metadata
        response.
        """
        (found,) = (one for one in self.metadata(3).topics if one.name == topic)
        return [
            (row.leader_id, row.replica_nodes, row.isr_nodes, row.offline_replicas)
            for row in found.partitions
        ]

    def coordinator(self, kind: int, key: str) -> int:
        """The node id of the coordinator of a group (kind 0), transactional id (1) or share
        partition (2).
        """
        answer = self.call(3, FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 6)
        (row,) = answer.coordinators
        assert row.error_code == 0
        assert row.port == PORTS[row.node_id]
        node_id: int = row.node_id
        return node_id

    def call_flushed(self, connection: int, request: Any, version: int) -> Any:
        """Send a request that waits for a flush, or for the files of a new partition. Gives: its
        response.
        """
        before = len(self.answers[connection])
        self.ask(connection, request, version)
        while self.flushes or self.work:
            if self.work:
                self.finish_work()
            else:
                self.flush()
        assert len(self.answers[connection]) == before + 1, "it is parked"
        return self.answers[connection][-1]

    def other_than(self, node_id: int) -> int:
        return next(one for one in PORTS if one != node_id)

    def begin(self, transactional_id: str = "shop") -> tuple[int, int, int]:
        """Begin a transaction on t-0. Gives its coordinator, producer id and epoch."""
        node_id = self.coordinator(1, transactional_id)
        init = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        answer = self.call_flushed(node_id, init, 4)
        assert answer.error_code == 0
        added = self.call(node_id, add(transactional_id, answer), 3)
        (topic,) = added.results_by_topic_v3_and_below
        assert [row.partition_error_code for row in topic.results_by_partition] == [0]
        return node_id, answer.producer_id, answer.producer_epoch


def add(transactional_id: str, producer: Any) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


# --- what is shown------------------------------------------------------------------------------


def test_metadata_has_all_brokers_and_their_leaders(cluster: Cluster) -> None:
    answer = cluster.metadata()
    assert [(one.node_id, one.port) for one in answer.brokers] == list(PORTS.items())
    assert cluster.rows() == [(1, [1, 2], [1, 2], []), (2, [2, 3], [2, 3], [])]
    described = cluster.call(2, DescribeClusterRequest(endpoint_type=1), 1)
    assert [(one.broker_id, one.port) for one in described.brokers] == list(PORTS.items())
    assert described.controller_id == answer.controller_id == 1


def test_the_brokers_advertised_ports_have_the_distances_of_their_ports(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, advertised_listeners="PLAINTEXT://example.org:19092")
    assert [(one.host, one.port) for one in cluster.metadata(2).brokers] == [
        ("example.org", 19092),
        ("example.org", 19193),
        ("example.org", 19294),
    ]
    cluster.close()


def test_each_listener_has_ports_of_its_own(tmp_path: Path) -> None:
    """The ports in each response are those of the listener that the client is connected to."""
    cluster = Cluster(
        tmp_path,
        listeners="PLAINTEXT://:9092,OTHER://:1000",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        advertised_listeners="OTHER://example.org:2000",
    )
    other = cluster.broker.config.listeners[1]
    for node_id in PORTS:
        cluster.broker.on_listening(node_id, other, 1000 + node_id)
    cluster.broker.on_connected(9, "192.0.2.9", "127.0.0.1", 1002, 2, other)
    cluster.answers[9] = []
    ports = {1: 2000, 2: 2001, 3: 2002}
    assert {one.node_id: (one.host, one.port) for one in cluster.metadata(9).brokers} == {
        node_id: ("example.org", port) for node_id, port in ports.items()
    }
    described = cluster.call(9, DescribeClusterRequest(endpoint_type=1), 1)
    assert {one.broker_id: one.port for one in described.brokers} == ports
    found = FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b", "c"])
    for row in cluster.call(9, found, 4).coordinators:
        assert row.port == ports[row.node_id]
    assert {one.node_id: one.port for one in cluster.metadata(2).brokers} == PORTS
    cluster.close()


def test_describe_topic_partitions_shows_a_stopped_broker_as_off_line(cluster: Cluster) -> None:
    cluster.broker.failover.take_away(1, cluster.now_ms)
    request = DescribeTopicPartitionsRequest(topics=[DescribedTopic(name="t")])
    (topic,) = cluster.call(2, request, 0).topics
    assert [
        (row.leader_id, row.replica_nodes, row.isr_nodes, row.offline_replicas)
        for row in topic.partitions
    ] == [(2, [1, 2], [2], [1]), (2, [2, 3], [2, 3], [])]


def test_a_broker_describes_only_its_own_replicas_and_settings(cluster: Cluster) -> None:
    for node_id, expected in ((1, [0]), (2, [0, 1]), (3, [1])):
        (directory,) = cluster.call(node_id, DescribeLogDirsRequest(topics=None), 4).results
        (topic,) = (one for one in directory.topics if one.name == "t")
        assert [row.partition_index for row in topic.partitions] == expected

    def ask(connection: int, name: str) -> Any:
        resource = DescribeConfigsResource(
            resource_type=4, resource_name=name, configuration_keys=["node.id"]
        )
        (result,) = cluster.call(
            connection, DescribeConfigsRequest(resources=[resource]), 4
        ).results
        return result

    assert [row.value for row in ask(2, "2").configs] == ["2"]
    assert ask(2, "1").error_code == Code.INVALID_REQUEST
    assert ask(2, "7").error_code == Code.INVALID_REQUEST


# --- who leads ----------------------------------------------------------------------------------


def test_only_the_leader_takes_records(cluster: Cluster) -> None:
    assert error_of(cluster.call(1, produce("t"), 8)) == 0
    for follower in (2, 3):
        assert error_of(cluster.call(follower, produce("t"), 8)) == Code.NOT_LEADER_OR_FOLLOWER
    assert error_of(cluster.call(2, produce("t", partition=7), 8)) == 3
    assert cluster.broker.topics.partitions_of("t")[0].log_end_offset == 1  # type: ignore[union-attr]


def test_a_produce_without_records_is_refused_by_a_follower(
    cluster: Cluster,
) -> None:
    request = produce("t")
    request.topic_data[0].partition_data[0].records = None
    assert error_of(cluster.call(2, request, 9)) == Code.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_refuses_a_batch_whose_predecessor_was_refused(cluster: Cluster) -> None:
    """A log accepts any sequence number in the first batch of an unknown producer. If the new
    leader appended batch 1, it would refuse every retry of batch 0, which the former leader has
    refused, as out of order.
    """

    def send(node_id: int, sequence: int) -> int:
        return error_of(cluster.call(node_id, produce("t", identity=(5, 0), sequence=sequence), 8))

    assert send(2, 0) == Code.NOT_LEADER_OR_FOLLOWER
    assert send(1, 1) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send(1, sequence) for sequence in (0, 1)] == [0, 0]


def test_a_refusal_names_the_current_leader_and_its_epoch(cluster: Cluster) -> None:
    cluster.broker.failover.move_leader("t", 0, 2, cluster.now_ms)
    epoch = cluster.broker.topics.leader_epoch("t", 0)
    answer = cluster.call(1, produce("t"), 10)
    assert error_of(answer) == Code.NOT_LEADER_OR_FOLLOWER
    (row,) = answer.responses[0].partition_responses
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, epoch)
    assert [(one.node_id, one.port) for one in answer.node_endpoints] == [(2, PORTS[2])]
    old = cluster.call(1, produce("t"), 9)
    assert error_of(old) == Code.NOT_LEADER_OR_FOLLOWER
    topic_id = cluster.broker.metadata.topics["t"].topic_id
    request = fetch({"t": {0: 0}})
    request.topics[0].topic_id = topic_id
    answer = cluster.call(1, request, 16)
    (row,) = answer.responses[0].partitions
    assert row.error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, epoch)
    assert [(one.node_id, one.port) for one in answer.node_endpoints] == [(2, PORTS[2])]
    request.topics[0].partitions[0].current_leader_epoch = epoch - 1
    answer = cluster.call(2, request, 16)
    (row,) = answer.responses[0].partitions
    assert row.error_code == Code.FENCED_LEADER_EPOCH
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, epoch)


def partition_errors(cluster: Cluster, connection: int) -> dict[str, int]:
    """The error code of t-0 for each kind of request."""
    offsets = ListOffsetsRequest(
        topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])]
    )
    epochs = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])]
    )
    deletion = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 0)])]
    )
    producers = DescribeProducersRequest(topics=[TopicRequest("t", [0])])
    return {
        "Fetch": cluster.call(connection, fetch({"t": {0: 0}}), 11)
        .responses[0]
        .partitions[0]
        .error_code,
        "ListOffsets": cluster.call(connection, offsets, 6).topics[0].partitions[0].error_code,
        "OffsetForLeaderEpoch": cluster.call(connection, epochs, 4)
        .topics[0]
        .partitions[0]
        .error_code,
        "DeleteRecords": cluster.call(connection, deletion, 2).topics[0].partitions[0].error_code,
        "DescribeProducers": cluster.call(connection, producers, 0)
        .topics[0]
        .partitions[0]
        .error_code,
    }


def test_only_the_leader_answers_about_a_partition(cluster: Cluster) -> None:
    assert set(partition_errors(cluster, 1).values()) == {0}
    for follower in (2, 3):
        assert set(partition_errors(cluster, follower).values()) == {Code.NOT_LEADER_OR_FOLLOWER}
    cluster.broker.failover.take_away(1, cluster.now_ms)
    cluster.broker.failover.take_away(2, cluster.now_ms)
    assert set(partition_errors(cluster, 3).values()) == {Code.NOT_LEADER_OR_FOLLOWER}
    assert cluster.rows() == [(-1, [1, 2], [2], [1, 2]), (3, [2, 3], [3], [2])]


def test_a_leader_move_raises_the_epoch_and_a_restart_raises_it_further(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    before = cluster.broker.topics.leader_epochs("t")
    cluster.broker.failover.move_leader("t", 0, 2, cluster.now_ms)
    after = cluster.broker.topics.leader_epochs("t")
    assert after[0] > before[0]
    assert after[1] == before[1]
    assert error_of(cluster.call(2, produce("t"), 8)) == 0
    # this has no effect, since broker 2 is already the leader
    cluster.broker.failover.move_leader("t", 0, 2, cluster.now_ms)
    assert cluster.broker.topics.leader_epochs("t") == after
    cluster.broker.failover.move_leader("t", 0, 1, cluster.now_ms)
    latest = cluster.broker.topics.leader_epochs("t")
    # the files are copied while the broker runs, so the copy is in the state that a kill would
    # leave
    copy = tmp_path / "copy"
    copy.mkdir()
    import shutil

    shutil.copytree(tmp_path / "data", copy / "data", ignore=shutil.ignore_patterns(".lock"))
    again = CoreHost(copy, barnabas_brokers="3")
    assert min(again.broker.topics.leader_epochs("t")) > max(latest)
    again.close()
    cluster.close()


def test_a_waiting_fetch_is_refused_when_the_leader_of_its_partition_moves(
    cluster: Cluster,
) -> None:
    cluster.ask(1, fetch({"t": {0: 0}}, max_wait_ms=5000), 11)
    cluster.ask(2, fetch({"t": {1: 0}}, max_wait_ms=5000), 11)
    assert cluster.answers[1] == cluster.answers[2] == []
    cluster.broker.failover.move_leader("t", 0, 2, cluster.now_ms)
    cluster.carry_out()
    (answer,) = cluster.answers[1]
    assert answer.responses[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert cluster.answers[2] == []
    assert error_of(cluster.call(3, produce("t", partition=1), 8)) == Code.NOT_LEADER_OR_FOLLOWER
    cluster.connect(20, 2)
    assert error_of(cluster.call(20, produce("t", partition=1), 8)) == 0
    assert len(cluster.answers[2]) == 1


def test_a_fetch_session_is_known_only_to_its_broker(cluster: Cluster) -> None:
    first = cluster.call(1, fetch({"t": {0: 0}}, session=(0, 0)), 11)
    assert first.session_id != 0
    elsewhere = cluster.call(2, fetch({}, session=(first.session_id, 1)), 11)
    assert elsewhere.error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert cluster.call(1, fetch({}, session=(first.session_id, 1)), 11).error_code == 0
    cluster.broker.failover.take_away(1, cluster.now_ms)
    cluster.broker.failover.give_back(1, cluster.now_ms)
    after_its_restart = cluster.call(1, fetch({}, session=(first.session_id, 2)), 11)
    assert after_its_restart.error_code == Code.FETCH_SESSION_ID_NOT_FOUND


# --- acks=all -----------------------------------------------------------------------------------


def test_acks_all_requires_min_insync_replicas(cluster: Cluster) -> None:
    cluster.broker.topics.set_topic_configs("t", {"min.insync.replicas": "2"})
    assert error_of(cluster.call(1, produce("t"), 8)) == 0
    cluster.broker.failover.take_away(2, cluster.now_ms)
    assert error_of(cluster.call(1, produce("t"), 8)) == Code.NOT_ENOUGH_REPLICAS
    assert error_of(cluster.call(1, produce("t", acks=1), 8)) == 0
    assert cluster.broker.topics.partitions_of("t")[0].log_end_offset == 2  # type: ignore[union-attr]
    cluster.broker.failover.give_back(2, cluster.now_ms)
    assert error_of(cluster.call(1, produce("t"), 8)) == 0


def test_coordinators_refuse_to_write_with_too_few_replicas_in_sync(tmp_path: Path) -> None:
    cluster = Cluster(
        tmp_path,
        offsets_topic_replication_factor="3",
        transaction_state_log_replication_factor="3",
        transaction_state_log_min_isr="3",
        min_insync_replicas="3",
    )
    groups, (node_id, producer_id, epoch) = cluster.coordinator(0, "g"), cluster.begin()
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
            )
        ],
    )
    end = EndTxnRequest("shop", producer_id, epoch, committed=True)

    def commit_code() -> int:
        (topic,) = cluster.call(groups, commit, 7).topics
        return int(topic.partitions[0].error_code)

    other = next(one for one in PORTS if one not in (groups, node_id))
    cluster.broker.failover.take_away(other, cluster.now_ms)
    assert commit_code() == Code.COORDINATOR_NOT_AVAILABLE
    assert cluster.call(node_id, end, 3).error_code == Code.COORDINATOR_NOT_AVAILABLE

    def code_of_partition(*, verify_only: bool) -> int:
        """Return the error code for a request by which another broker adds or verifies the
        partition.
        """
        transaction = AddPartitionsToTxnTransaction(
            "shop", producer_id, epoch, verify_only, [AddPartitionsToTxnTopic("t", [0])]
        )
        answer = cluster.call(node_id, AddPartitionsToTxnRequest([transaction]), 4)
        (row,) = answer.results_by_transaction[0].topic_results[0].results_by_partition
        return int(row.partition_error_code)

    assert code_of_partition(verify_only=False) == Code.COORDINATOR_NOT_AVAILABLE
    assert code_of_partition(verify_only=True) == 0, "it writes nothing"
    cluster.broker.failover.give_back(other, cluster.now_ms)
    assert code_of_partition(verify_only=False) == 0
    assert commit_code() == 0
    assert cluster.call_flushed(node_id, end, 3).error_code == 0
    cluster.close()


def test_group_requests_that_write_are_refused_with_too_few_replicas_in_sync(
    tmp_path: Path,
) -> None:
    """These requests write records only in some cases: the assignment from a group's leader,
    members that join or leave, and the deletion of groups.
    """
    cluster = Cluster(
        tmp_path, offsets_topic_replication_factor="3", offsets_topic_num_partitions="1",
        min_insync_replicas="3", group_initial_rebalance_delay_ms="0",
    )  # fmt: skip
    node_id = cluster.coordinator(0, "g")
    join = JoinGroupRequest(
        "g", 10_000, 10_000, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )  # fmt: skip
    joined = cluster.call(node_id, join, 3)
    sync = SyncGroupRequest(
        "g", joined.generation_id, joined.member_id,
        assignments=[SyncGroupRequestAssignment(joined.member_id, b"all")],
    )  # fmt: skip
    heartbeat = ConsumerGroupHeartbeatRequest(
        "modern", "member", 0, rebalance_timeout_ms=10_000, subscribed_topic_names=["t"],
        topic_partitions=[],
    )  # fmt: skip
    first = cluster.call(node_id, heartbeat, 1)
    assert first.error_code == 0
    epoch = first.member_epoch
    stays = ConsumerGroupHeartbeatRequest("modern", "member", epoch)
    wants_more = ConsumerGroupHeartbeatRequest(
        "modern", "member", epoch, subscribed_topic_names=["t", "u"]
    )
    deletion = DeleteGroupsRequest(groups_names=["g", "empty"])

    other = cluster.other_than(node_id)
    cluster.broker.failover.take_away(other, cluster.now_ms)
    log = cluster.broker.topics.logs_of(OFFSETS_TOPIC)[0]
    end_offset = log.log_end_offset
    unavailable = Code.COORDINATOR_NOT_AVAILABLE
    assert cluster.call(node_id, sync, 3).error_code == unavailable
    assert cluster.call(node_id, wants_more, 1).error_code == unavailable
    heartbeat.member_id = "late"
    assert cluster.call(node_id, heartbeat, 1).error_code == unavailable
    assert cluster.call(node_id, stays, 1).error_code == 0, "it writes nothing"
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", 3, None)], timeout_ms=1000)
    assert cluster.call(node_id, more, 3).results[0].error_code == 0
    assert cluster.call(node_id, stays, 1).error_code == unavailable
    rows = cluster.call(node_id, deletion, 2).results
    assert [row.error_code for row in rows] == [unavailable, unavailable]
    assert log.log_end_offset == end_offset

    cluster.broker.failover.give_back(other, cluster.now_ms)
    answer = cluster.call(node_id, sync, 3)
    assert (answer.error_code, answer.assignment) == (0, b"all")
    answer = cluster.call(node_id, stays, 1)
    assert (answer.error_code, answer.member_epoch) == (0, epoch + 1), (
        "the refused change comes again"
    )
    rows = cluster.call(node_id, deletion, 2).results
    assert [row.error_code for row in rows] == [Code.NON_EMPTY_GROUP, Code.GROUP_ID_NOT_FOUND]
    cluster.close()


def test_share_group_heartbeats_need_their_coordinator_and_enough_replicas(
    tmp_path: Path,
) -> None:
    cluster = Cluster(
        tmp_path, offsets_topic_replication_factor="3", offsets_topic_num_partitions="1",
        min_insync_replicas="3", group_share_assignment_interval_ms="0",
    )  # fmt: skip
    node_id = cluster.coordinator(0, "shared")
    joins = ShareGroupHeartbeatRequest("shared", "member", 0, None, ["t"])
    other = cluster.other_than(node_id)
    assert cluster.call(other, joins, 1).error_code == Code.NOT_COORDINATOR
    first = cluster.call_flushed(node_id, joins, 1)
    assert first.error_code == 0
    cluster.tick(1)
    second = cluster.call(node_id, ShareGroupHeartbeatRequest("shared", "member", 2), 1)
    stays = ShareGroupHeartbeatRequest("shared", "member", second.member_epoch)
    assert cluster.call(node_id, stays, 1).error_code == 0

    cluster.broker.failover.take_away(other, cluster.now_ms)
    log = cluster.broker.topics.logs_of(OFFSETS_TOPIC)[0]
    end_offset = log.log_end_offset
    unavailable = Code.COORDINATOR_NOT_AVAILABLE
    assert cluster.call(node_id, stays, 1).error_code == 0, "it writes nothing"
    wants_more = ShareGroupHeartbeatRequest(
        "shared", "member", second.member_epoch, None, ["t", "u"]
    )
    assert cluster.call(node_id, wants_more, 1).error_code == unavailable
    joins.member_id = "late"
    assert cluster.call(node_id, joins, 1).error_code == unavailable
    alters = AlterShareGroupOffsetsRequest("shared", [])
    assert cluster.call(node_id, alters, 0).error_code == unavailable
    deletes = DeleteShareGroupOffsetsRequest("shared", [])
    assert cluster.call(node_id, deletes, 0).error_code == unavailable
    assert log.log_end_offset == end_offset
    describes = ShareGroupDescribeRequest(["shared"])
    assert cluster.call(node_id, describes, 1).groups[0].error_code == 0
    cluster.close()


def test_only_the_coordinator_of_a_share_partition_reads_and_writes_its_state(
    tmp_path: Path,
) -> None:
    cluster = Cluster(
        tmp_path, share_coordinator_state_topic_num_partitions="3",
        share_coordinator_state_topic_replication_factor="3", min_insync_replicas="3",
    )  # fmt: skip
    topic = cluster.broker.metadata.topic("t")
    assert topic is not None

    def key(index: int) -> str:
        return f"g:{short_text(topic.topic_id)}:{index}"

    owners = [cluster.coordinator(2, key(index)) for index in range(topic.partition_count)]
    assert len(set(owners)) > 1, "the partitions have different coordinators"

    def codes(answer: Any) -> list[int]:
        (of_topic,) = answer.results
        assert of_topic.topic_id == topic.topic_id
        return [
            row.error_code for row in sorted(of_topic.partitions, key=lambda row: row.partition)
        ]

    rows = [state.PartitionData(index, 0, 0) for index in range(topic.partition_count)]
    for node_id in PORTS:
        data = [state.InitializeStateData(topic.topic_id, rows)]
        answer = cluster.call_flushed(node_id, state.InitializeShareGroupStateRequest("g", data), 0)
        expected = [0 if owner == node_id else Code.NOT_COORDINATOR for owner in owners]
        assert codes(answer) == expected
    asked = summary.ReadShareGroupStateSummaryRequest(
        "g",
        [
            summary.ReadStateSummaryData(
                topic.topic_id,
                [summary.PartitionData(index, 0) for index in range(topic.partition_count)],
            )
        ],
    )
    node_id = owners[0]
    expected = [0 if owner == node_id else Code.NOT_COORDINATOR for owner in owners]
    assert codes(cluster.call(node_id, asked, 0)) == expected
    cluster.broker.failover.take_away(cluster.other_than(node_id), cluster.now_ms)
    owners = [cluster.coordinator(2, key(index)) for index in range(topic.partition_count)]
    expected = [0 if owner == node_id else Code.NOT_COORDINATOR for owner in owners]
    assert codes(cluster.call(node_id, asked, 0)) == expected, "a summary writes nothing"
    data = [state.InitializeStateData(topic.topic_id, rows)]
    answer = cluster.call(node_id, state.InitializeShareGroupStateRequest("g", data), 0)
    assert codes(answer) == [code or Code.COORDINATOR_NOT_AVAILABLE for code in expected]
    cluster.close()


def test_streams_group_heartbeats_need_their_coordinator_and_enough_replicas(
    tmp_path: Path,
) -> None:
    cluster = Cluster(
        tmp_path, offsets_topic_replication_factor="3", offsets_topic_num_partitions="1",
        min_insync_replicas="3", group_streams_initial_rebalance_delay_ms="0",
        group_streams_assignment_interval_ms="0",
    )  # fmt: skip
    node_id = cluster.coordinator(0, "counts")
    joins = StreamsGroupHeartbeatRequest(
        "counts", "member", 0, rebalance_timeout_ms=10_000, process_id="p",
        topology=Topology(0, [Subtopology("0", ["t"])]),
        active_tasks=[], standby_tasks=[], warmup_tasks=[],
    )  # fmt: skip
    other = cluster.other_than(node_id)
    assert cluster.call(other, joins, 0).error_code == Code.NOT_COORDINATOR
    first = cluster.call(node_id, joins, 0)
    assert (first.error_code, first.member_epoch) == (0, 2)
    stays = StreamsGroupHeartbeatRequest("counts", "member", 2)
    assert cluster.call(node_id, stays, 0).error_code == 0

    cluster.broker.failover.take_away(other, cluster.now_ms)
    log = cluster.broker.topics.logs_of(OFFSETS_TOPIC)[0]
    end_offset = log.log_end_offset
    assert cluster.call(node_id, stays, 0).error_code == 0, "it writes nothing"
    joins.member_id = "late"
    assert cluster.call(node_id, joins, 0).error_code == Code.COORDINATOR_NOT_AVAILABLE
    leaves = StreamsGroupHeartbeatRequest("counts", "member", -1)
    assert cluster.call(node_id, leaves, 0).error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert log.log_end_offset == end_offset
    describes = StreamsGroupDescribeRequest(["counts"])
    (described,) = cluster.call(node_id, describes, 0).groups
    assert [member.member_id for member in described.members] == ["member"]
    cluster.close()


def test_a_batch_that_adds_its_partition_needs_enough_replicas_of_the_transaction_log(
    tmp_path: Path,
) -> None:
    """A Produce of version 12 also writes the record that adds the partition to its transaction
    (KIP-890).
    """
    cluster = Cluster(
        tmp_path, transaction_state_log_replication_factor="3",
        transaction_state_log_min_isr="3",
    )  # fmt: skip
    node_id = cluster.coordinator(1, "shop")
    init = InitProducerIdRequest(transactional_id="shop", transaction_timeout_ms=60_000)
    answer = cluster.call_flushed(node_id, init, 4)
    identity = answer.producer_id, answer.producer_epoch
    cluster.broker.failover.take_away(3, cluster.now_ms)
    log = cluster.broker.topics.partitions_of("t")[0]
    assert log is not None
    request = produce("t", transactional_id="shop", identity=identity)
    assert error_of(cluster.call(1, request, 12)) == Code.NOT_ENOUGH_REPLICAS
    assert log.log_end_offset == 0
    cluster.broker.failover.give_back(3, cluster.now_ms)
    request = produce("t", transactional_id="shop", identity=identity)
    assert error_of(cluster.call(1, request, 12)) == 0
    assert log.log_end_offset == 1
    cluster.close()


def test_a_partition_in_the_transaction_is_written_although_another_cannot_be_added(
    tmp_path: Path,
) -> None:
    cluster = Cluster(
        tmp_path, transaction_state_log_replication_factor="3",
        transaction_state_log_min_isr="3",
    )  # fmt: skip
    cluster.create("u", 2)
    cluster.broker.metadata.set_topic_replicas("u", ((1, 2), (1, 2)))
    cluster.broker.cluster._leaderships.clear()
    init = InitProducerIdRequest(transactional_id="shop", transaction_timeout_ms=60_000)
    answer = cluster.call_flushed(cluster.coordinator(1, "shop"), init, 4)
    identity = answer.producer_id, answer.producer_epoch

    def request(partition: int, sequence: int = 0) -> ProduceRequest:
        return produce(  # type: ignore[no-any-return]
            "u", partition=partition, sequence=sequence, transactional_id="shop", identity=identity
        )

    assert error_of(cluster.call(1, request(0), 12)) == 0
    cluster.broker.failover.take_away(3, cluster.now_ms)
    both = request(0, 1)
    both.topic_data[0].partition_data += request(1).topic_data[0].partition_data
    (topic,) = cluster.call(1, both, 12).responses
    codes = [row.error_code for row in topic.partition_responses]
    assert codes == [Code.NONE, Code.NOT_ENOUGH_REPLICAS]
    cluster.close()


def test_a_single_broker_ignores_min_insync_replicas(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    host.connect(1)
    host.create("t", min_insync_replicas="2")
    assert error_of(host.call(1, produce("t"), 8)) == 0
    host.close()


# --- brokers that go and come -------------------------------------------------------------------


def test_the_connections_of_a_broker_are_closed_when_it_is_stopped(cluster: Cluster) -> None:
    cluster.connect(21, 2)
    cluster.broker.failover.take_away(2, cluster.now_ms)
    cluster.carry_out()
    assert set(cluster.closed) == {2, 21}
    assert [one.node_id for one in cluster.metadata().brokers] == [1, 3]
    # no effect, since broker 2 was already taken away
    cluster.broker.failover.take_away(2, cluster.now_ms)
    cluster.broker.failover.give_back(2, cluster.now_ms)
    assert [one.node_id for one in cluster.metadata().brokers] == [1, 2, 3]


def test_a_single_broker_cannot_be_taken_away(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    with pytest.raises(ValueError, match="start several with --brokers N"):
        host.broker.failover.take_away(1, host.now_ms)
    host.close()


def test_any_broker_accepts_requests_for_the_controller_which_can_be_changed(
    cluster: Cluster,
) -> None:
    cluster.broker.failover.set_controller(3)
    assert cluster.metadata().controller_id == 3
    answer = cluster.call(2, CreateTopicsRequest(topics=[CreatableTopic("new", 1, 2)]), 5)
    assert [(row.error_code, row.replication_factor) for row in answer.topics] == [(0, 2)]
    cluster.broker.failover.take_away(2, cluster.now_ms)
    with pytest.raises(ValueError, match="give it back first"):
        cluster.broker.failover.set_controller(2)


# --- topics -------------------------------------------------------------------------------------


def create(cluster: Cluster, topic: CreatableTopic) -> int:
    (row,) = cluster.call(1, CreateTopicsRequest(topics=[topic]), 5).topics
    code: int = row.error_code
    return code


def test_topics_get_the_requested_replication_factor(cluster: Cluster) -> None:
    assert create(cluster, CreatableTopic("three", 3, 3)) == 0
    assert create(cluster, CreatableTopic("two", 3, 2)) == 0
    assert create(cluster, CreatableTopic("default", 1, -1)) == 0
    assert create(cluster, CreatableTopic("four", 1, 4)) == Code.INVALID_REPLICATION_FACTOR
    for topic, factor in (("three", 3), ("two", 2), ("default", 3)):
        for leader, replicas, in_sync, _ in cluster.rows(topic):
            assert (leader, len(replicas), in_sync) == (replicas[0], factor, replicas)
    assert sorted(row[0] for row in cluster.rows("three")) == [1, 2, 3]


@pytest.mark.parametrize(
    ("assigned", "code"),
    [
        ([[3, 1], [1, 2]], 0),
        ([[3, 3]], Code.INVALID_REPLICA_ASSIGNMENT),
        ([[4]], Code.INVALID_REPLICA_ASSIGNMENT),
        ([[]], Code.INVALID_REPLICA_ASSIGNMENT),
        ([[1, 2], [3]], Code.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_is_created_with_a_valid_replica_assignment_only(
    cluster: Cluster, assigned: list[list[int]], code: int
) -> None:
    rows = [CreatableReplicaAssignment(index, ids) for index, ids in enumerate(assigned)]
    assert create(cluster, CreatableTopic("by-hand", -1, -1, rows)) == code
    if not code:
        assert [row[1] for row in cluster.rows("by-hand")] == assigned


def test_a_replica_assignment_applies_to_the_partition_that_it_names(cluster: Cluster) -> None:
    """The rows of a CreateTopics request may be in any order."""
    rows = [CreatableReplicaAssignment(index, [node]) for index, node in ((2, 1), (0, 3), (1, 2))]
    assert create(cluster, CreatableTopic("by-hand", -1, -1, rows)) == 0
    assert [row[1] for row in cluster.rows("by-hand")] == [[3], [2], [1]]


def test_new_partitions_get_the_replicas_that_the_request_assigns(cluster: Cluster) -> None:
    added = [CreatePartitionsAssignment(broker_ids=ids) for ids in ([3, 1], [1, 3])]
    before = [row[1] for row in cluster.rows()]
    for validate_only in (True, False):
        assert [row[1] for row in cluster.rows()] == before
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic("t", 4, added)], validate_only=validate_only
        )
        assert [row.error_code for row in cluster.call(1, request, 3).results] == [0]
        replicas = cluster.broker.metadata.topics["t"].replicas
        assert len(replicas) in ((0, 2) if validate_only else (4,))
    assert [row[1] for row in cluster.rows()] == [[1, 2], [2, 3], [3, 1], [1, 3]]
    assert [row[0] for row in cluster.rows()] == [1, 2, 3, 1]


def elect(cluster: Cluster, kind: int, partitions: list[int] | None) -> dict[int, int]:
    """Elect the preferred leaders (kind 0) or unclean ones (kind 1). Gives the error code of each
    partition.
    """
    wanted = None if partitions is None else [TopicPartitions("t", partitions)]
    answer = cluster.call(3, ElectLeadersRequest(election_type=kind, topic_partitions=wanted), 2)
    return {
        row.partition_id: row.error_code
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }


def test_preferred_and_unclean_elections_choose_the_leader(cluster: Cluster) -> None:
    assert elect(cluster, 0, [0]) == {0: Code.ELECTION_NOT_NEEDED}
    cluster.broker.failover.take_away(1, cluster.now_ms)
    assert elect(cluster, 0, [0]) == {0: Code.PREFERRED_LEADER_NOT_AVAILABLE}
    cluster.broker.failover.give_back(1, cluster.now_ms)
    assert cluster.rows()[0][0] == 2
    assert elect(cluster, 0, None) == {0: 0}
    assert cluster.rows()[0][0] == 1
    cluster.broker.failover.take_away(1, cluster.now_ms)
    cluster.broker.failover.take_away(2, cluster.now_ms)
    # both replicas of t-0 are off line, so there is no leader to choose
    assert elect(cluster, 1, [0]) == {0: Code.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    cluster.broker.failover.give_back(1, cluster.now_ms)
    assert cluster.rows()[0] == (-1, [1, 2], [2], [2])
    assert elect(cluster, 1, [0, 1]) == {0: 0, 1: Code.ELECTION_NOT_NEEDED}
    assert cluster.rows()[0] == (1, [1, 2], [1], [2])
    assert elect(cluster, 0, [9]) == {9: Code.UNKNOWN_TOPIC_OR_PARTITION}


def test_partitions_are_reassigned_at_once(cluster: Cluster) -> None:
    def move(index: int, replicas: list[int] | None) -> int:
        rows = [ReassignablePartition(index, replicas)]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", rows)])
        code: int = cluster.call(1, request, 0).responses[0].partitions[0].error_code
        return code

    assert move(0, [3, 2]) == 0
    assert cluster.rows()[0] == (3, [3, 2], [3, 2], [])
    assert move(1, [1, 2, 3]) == 0
    assert cluster.rows()[1] == (2, [1, 2, 3], [1, 2, 3], [])
    assert move(0, [3, 3]) == Code.INVALID_REPLICA_ASSIGNMENT
    assert move(0, None) == Code.NO_REASSIGNMENT_IN_PROGRESS
    assert list(cluster.broker.metadata.topics["t"].replicas) == [(3, 2), (1, 2, 3)]


# --- coordinators -------------------------------------------------------------------------------


def test_coordinators_are_spread_and_move(cluster: Cluster) -> None:
    found = {key: cluster.coordinator(0, key) for key in map(str, range(20))}
    assert set(found.values()) == {1, 2, 3}
    for kind, name in ((0, "group"), (1, "transaction")):
        before = cluster.coordinator(kind, "it")
        other = cluster.other_than(before)
        cluster.broker.failover.move_coordinator(name, "it", other, cluster.now_ms)
        assert cluster.coordinator(kind, "it") == other
    with pytest.raises(ValueError, match="'queue' has no coordinator"):
        cluster.broker.failover.move_coordinator("queue", "it", 1, cluster.now_ms)


def test_find_coordinator_fails_when_all_replicas_of_its_partition_are_off_line(
    cluster: Cluster,
) -> None:
    cluster.coordinator(0, "g")
    for node_id in (1, 2):
        cluster.broker.failover.take_away(node_id, cluster.now_ms)
    assert cluster.coordinator(0, "g") == 3
    partition = cluster.broker.cluster.coordinator_partition(OFFSETS_TOPIC, "g")
    cluster.broker.failover.reassign(partition, (1, 2), cluster.now_ms)
    answer = cluster.call(3, FindCoordinatorRequest(key="g", key_type=0), 3)
    assert (answer.error_code, answer.node_id) == (Code.COORDINATOR_NOT_AVAILABLE, -1)


def test_a_broker_that_is_not_the_coordinator_refuses_requests(cluster: Cluster) -> None:
    group = cluster.other_than(cluster.coordinator(0, "g"))
    answer = cluster.call(group, HeartbeatRequest(group_id="g", member_id="m"), 4)
    assert answer.error_code == Code.NOT_COORDINATOR
    node_id, producer_id, epoch = cluster.begin()
    other = cluster.other_than(node_id)
    init = InitProducerIdRequest(transactional_id="shop", transaction_timeout_ms=60_000)
    assert cluster.call(other, init, 4).error_code == Code.NOT_COORDINATOR
    end = EndTxnRequest("shop", producer_id, epoch, committed=True)
    assert cluster.call(other, end, 3).error_code == Code.NOT_COORDINATOR
    assert cluster.call(other, InitProducerIdRequest(transactional_id=None), 4).error_code == 0


def test_in_a_request_for_several_groups_those_of_other_coordinators_are_refused(
    cluster: Cluster,
) -> None:
    groups = [str(number) for number in range(6)]
    owners = {group: cluster.coordinator(0, group) for group in groups}
    answer = cluster.call(2, DescribeGroupsRequest(groups=groups), 5)
    assert {row.group_id: row.error_code for row in answer.groups} == {
        group: 0 if owners[group] == 2 else Code.NOT_COORDINATOR for group in groups
    }
    foreign = [group for group in groups if owners[group] != 2]
    answer = cluster.call(2, DescribeGroupsRequest(groups=foreign), 5)
    assert {row.error_code for row in answer.groups} == {Code.NOT_COORDINATOR}
    node_id, _, _ = cluster.begin()
    other = cluster.other_than(node_id)
    request = DescribeTransactionsRequest(transactional_ids=["shop"])
    (row,) = cluster.call(other, request, 0).transaction_states
    assert row.error_code == Code.NOT_COORDINATOR


def test_a_broker_lists_only_the_groups_and_transactions_that_it_coordinates(
    cluster: Cluster,
) -> None:
    node_id, _, _ = cluster.begin()
    for one in PORTS:
        answer = cluster.call(one, ListTransactionsRequest(), 0)
        listed = [row.transactional_id for row in answer.transaction_states]
        assert listed == (["shop"] if one == node_id else [])
    owner = join(cluster, "g")
    for one in PORTS:
        cluster.connect(40 + one, one)
        listed = [row.group_id for row in cluster.call(40 + one, ListGroupsRequest(), 4).groups]
        assert listed == (["g"] if one == owner else [])


def join(cluster: Cluster, group: str) -> int:
    """Let two members join a group over two connections to the coordinator. The first gets a
    response, and the second waits until the first joins again. Gives: the coordinator's node id,
    which is also the number of the second connection.
    """
    node_id = cluster.coordinator(0, group)
    cluster.connect(30, node_id)
    assert cluster.call(30, joining(group), 3).error_code == 0
    cluster.ask(node_id, joining(group), 3)
    assert cluster.broker.connections[node_id].in_flight
    return node_id


def joining(group: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_a_waiting_join_is_refused_when_the_coordinator_moves(cluster: Cluster) -> None:
    owner = join(cluster, "g")
    cluster.broker.failover.move_coordinator(
        "group", "g", cluster.other_than(owner), cluster.now_ms
    )
    cluster.carry_out()
    assert cluster.answers[owner][-1].error_code == Code.NOT_COORDINATOR


def test_an_open_transaction_continues_at_its_new_coordinator(cluster: Cluster) -> None:
    node_id, producer_id, epoch = cluster.begin()
    record = produce("t", transactional_id="shop", identity=(producer_id, epoch))
    assert error_of(cluster.call(1, record, 8)) == 0
    other = cluster.other_than(node_id)
    cluster.broker.failover.move_coordinator("transaction", "shop", other, cluster.now_ms)
    end = EndTxnRequest("shop", producer_id, epoch, committed=True)
    assert cluster.call(node_id, end, 3).error_code == Code.NOT_COORDINATOR
    assert cluster.call_flushed(other, end, 3).error_code == 0
    log = cluster.broker.topics.partitions_of("t")[0]
    assert log is not None
    assert log.last_stable_offset == log.log_end_offset == 2
    # the marker has the leader epoch of the transaction's new coordinator
    owner = cluster.broker.cluster.coordinator_partition("__transaction_state", "shop")
    assert log.producer_state.coordinator_epoch_of(
        producer_id
    ) == cluster.broker.topics.leader_epoch(*owner)


def test_a_waiting_end_txn_is_refused_when_the_coordinator_moves_and_can_be_repeated(
    cluster: Cluster,
) -> None:
    node_id, producer_id, epoch = cluster.begin()
    record = produce("t", transactional_id="shop", identity=(producer_id, epoch))
    assert error_of(cluster.call(1, record, 8)) == 0
    end = EndTxnRequest("shop", producer_id, epoch, committed=True)
    before = len(cluster.answers[node_id])
    cluster.ask(node_id, end, 3)
    assert len(cluster.answers[node_id]) == before, "it waits for its data"
    other = cluster.other_than(node_id)
    cluster.broker.failover.move_coordinator("transaction", "shop", other, cluster.now_ms)
    cluster.carry_out()
    assert cluster.answers[node_id][-1].error_code == Code.NOT_COORDINATOR
    assert cluster.call_flushed(other, end, 3).error_code == 0
    log = cluster.broker.topics.partitions_of("t")[0]
    assert log is not None
    assert log.last_stable_offset == log.log_end_offset == 2
