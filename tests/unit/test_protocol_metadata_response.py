"""The answer to Metadata by hand; what is expected is what the generated class reads."""

from __future__ import annotations

import uuid

import pytest

from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.metadata_response import MetadataTopic, encode_metadata


@pytest.mark.parametrize("version", [1, 8, 9, 12])
def test_a_cluster_of_one(version: int) -> None:
    topic = MetadataTopic(0, "t", uuid.UUID(int=5), False, (0, 3, 0), frozenset({1}))
    frame = encode_metadata(
        7,
        version,
        node_id=1,
        host="localhost",
        port=9092,
        rack=None,
        cluster_id="c",
        topics=[topic],
    )
    answer, end = MetadataResponse.read(frame, 9 if version >= 9 else 8, version)
    assert (end, int.from_bytes(frame[:4], "big")) == (len(frame), len(frame) - 4)
    assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [(1, "localhost", 9092)]
    (described,) = answer.topics
    assert (described.name, len(described.partitions)) == ("t", 3)
    assert [row.leader_id for row in described.partitions] == [1, -1, 1]
