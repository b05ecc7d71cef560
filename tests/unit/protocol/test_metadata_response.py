"""The hand-written response to Metadata. The generated class decodes it."""

from __future__ import annotations

import uuid

import pytest

from barnabas.protocol.hot_responses import Endpoint
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.metadata_response import LedPartition, MetadataTopic, encode_metadata


@pytest.mark.parametrize("version", [1, 8, 9, 12])
def test_a_cluster_of_one(version: int) -> None:
    topic = MetadataTopic(0, "t", uuid.UUID(int=5), False, (0, 3, 0), frozenset({1}))
    frame = encode_metadata(
        7,
        version,
        controller_id=1,
        brokers=[Endpoint(1, "localhost", 9092)],
        cluster_id="c",
        topics=[topic],
    )
    answer, end = MetadataResponse.read(frame, 9 if version >= 9 else 8, version)
    assert (end, int.from_bytes(frame[:4], "big")) == (len(frame), len(frame) - 4)
    assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [(1, "localhost", 9092)]
    (described,) = answer.topics
    assert (described.name, len(described.partitions)) == ("t", 3)
    assert [row.leader_id for row in described.partitions] == [1, -1, 1]


@pytest.mark.parametrize("version", [1, 5, 8, 9, 12, 13])
def test_a_cluster_of_three(version: int) -> None:
    led = (LedPartition(2, (2, 3), (2,), (3,)), LedPartition(-1, (3,), (3,), (3,)))
    topic = MetadataTopic(0, "t", uuid.UUID(int=5), False, (4, 7), led=led)
    frame = encode_metadata(
        7,
        version,
        controller_id=2,
        brokers=[Endpoint(1, "a", 9092, "r"), Endpoint(2, "b", 9093)],
        cluster_id="c",
        topics=[topic],
    )
    answer, end = MetadataResponse.read(frame, 9 if version >= 9 else 8, version)
    assert end == len(frame)
    assert [(one.node_id, one.host, one.port, one.rack) for one in answer.brokers] == [
        (1, "a", 9092, "r"),
        (2, "b", 9093, None),
    ]
    assert answer.controller_id == 2
    rows = [
        (row.error_code, row.leader_id, row.replica_nodes, row.isr_nodes)
        for row in answer.topics[0].partitions
    ]
    assert rows == [(0, 2, [2, 3], [2]), (5, -1, [3], [3])]
    if version >= 5:
        assert [row.offline_replicas for row in answer.topics[0].partitions] == [[3], [3]]
    if version >= 7:
        assert [row.leader_epoch for row in answer.topics[0].partitions] == [4, 7]
