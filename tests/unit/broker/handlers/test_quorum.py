"""DescribeQuorum describes a quorum of one voter (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.admin_host import HOST, NODE_ID, PORT, AdminHost, creatable

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponsePartitionData,
    PartitionData,
    TopicData,
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AdminHost]:
    host = AdminHost(tmp_path)
    yield host
    host.close()


def quorum(host: AdminHost, version: int) -> DescribeQuorumResponsePartitionData:
    request = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
    answer = host.call(request, version)
    assert answer.error_code == Code.NONE
    listeners = [(node.node_id, row.host, row.port) for node in answer.nodes
                 for row in node.listeners]  # fmt: skip
    assert listeners == ([(NODE_ID, HOST, PORT)] if version >= 2 else [])
    (topic,) = answer.topics
    (partition,) = topic.partitions
    result: DescribeQuorumResponsePartitionData = partition
    return result


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_broker_is_leader_and_only_voter(host: AdminHost, version: int) -> None:
    partition = quorum(host, version)
    assert (partition.error_code, partition.leader_id, partition.observers) == (0, NODE_ID, [])
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (NODE_ID, partition.high_watermark)
    assert (voter.replica_directory_id is not None) == (version >= 2)


def test_the_quorums_high_watermark_rises_with_changes_and_its_epoch_with_starts(
    host: AdminHost,
) -> None:
    before = quorum(host, 2)
    host.create(creatable("t"))
    after = quorum(host, 2)
    assert after.high_watermark > before.high_watermark
    host.restart()
    assert quorum(host, 2).leader_epoch > before.leader_epoch


@pytest.mark.parametrize(
    "topics",
    [
        [TopicData("t", [PartitionData(0)])],
        [TopicData("__cluster_metadata", [PartitionData(1)])],
        [TopicData("__cluster_metadata", [PartitionData(0), PartitionData(1)])],
    ],
)
def test_no_other_partition_is_of_the_quorum(host: AdminHost, topics: list[TopicData]) -> None:
    answer = host.call(DescribeQuorumRequest(topics), 2)
    codes = {row.error_code for topic in answer.topics for row in topic.partitions}
    assert (answer.error_code, codes) == (Code.NONE, {Code.UNKNOWN_TOPIC_OR_PARTITION})
