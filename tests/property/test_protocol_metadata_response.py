"""The hand-written response to Metadata has the same bytes as kafka-python's."""

from __future__ import annotations

import struct
import uuid
from typing import Any

from helpers import kafka_messages as messages
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import Code
from barnabas.protocol.hot_responses import Endpoint
from barnabas.protocol.metadata_response import OPERATIONS_NOT_ASKED, MetadataTopic, encode_metadata

int32 = st.integers(0, 2**31 - 1)
names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=200)
topics = st.builds(
    MetadataTopic,
    st.integers(-1, 200),
    names,
    st.uuids(),
    st.booleans(),
    st.lists(st.integers(0, 3), max_size=200).map(tuple)
    | st.builds(lambda epoch, count: (epoch,) * count, int32, st.integers(0, 200)),
    st.frozensets(st.integers(0, 200), max_size=3),
    led=st.none(),
    operations=st.none() | st.integers(0, 2**31 - 1),
)
unnamed = topics.map(lambda topic: topic._replace(name=None))
operations = st.none() | st.frozensets(st.integers(0, 30), min_size=1)


def bits(asked: frozenset[int] | None) -> int:
    return OPERATIONS_NOT_ASKED if asked is None else sum(1 << operation for operation in asked)


def numbers(bits: int) -> frozenset[int]:
    return frozenset(number for number in range(31) if bits >> number & 1)


def row(topic_class: Any, topic: MetadataTopic, node_id: int, asked: frozenset[int] | None) -> Any:
    """A topic in the form of kafka-python's response."""
    partitions = []
    for index, leader_epoch in enumerate(topic.leader_epochs):
        lost = index in topic.offline
        partitions.append(
            topic_class.MetadataResponsePartition(
                error_code=int(Code.LEADER_NOT_AVAILABLE if lost else Code.NONE),
                partition_index=index,
                leader_id=-1 if lost else node_id,
                leader_epoch=leader_epoch,
                replica_nodes=[node_id],
                isr_nodes=[node_id],
                offline_replicas=[node_id] if lost else [],
            )
        )
    return topic_class(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        authorized_operations=asked if topic.operations is None else numbers(topic.operations),
    )


@given(
    st.data(),
    st.integers(0, 12),
    int32,
    int32,
    names,
    int32,
    st.none() | names,
    st.none() | names,
    operations,
    operations,
)
def test_metadata(
    data: Any,
    version: int,
    correlation_id: int,
    node_id: int,
    host: str,
    port: int,
    rack: str | None,
    cluster_id: str | None,
    of_topics: frozenset[int] | None,
    of_cluster: frozenset[int] | None,
) -> None:
    found = data.draw(st.lists(topics | unnamed if version == 12 else topics, max_size=4))
    response_class = messages.MetadataResponse
    response = response_class(
        throttle_time_ms=0,
        brokers=[
            response_class.MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
        ],
        cluster_id=cluster_id,
        controller_id=node_id,
        topics=[
            row(response_class.MetadataResponseTopic, topic, node_id, of_topics) for topic in found
        ],
        authorized_operations=of_cluster,
    )
    body = bytes(response.encode(version=version))
    tags = b"\0" if version >= 9 else b""
    expected = struct.pack(">ii", 4 + len(tags) + len(body), correlation_id) + tags + body
    encoded = encode_metadata(
        correlation_id,
        version,
        controller_id=node_id,
        brokers=[Endpoint(node_id, host, port, rack)],
        cluster_id=cluster_id,
        topics=found,
        topic_operations=bits(of_topics),
        cluster_operations=bits(of_cluster),
    )
    assert encoded == expected


def test_many_partitions_need_a_longer_count() -> None:
    """The count of a compact array takes two bytes from 127 elements on, and three from 16,383
    on.
    """
    for count in (126, 127, 128, 16_382, 16_383, 16_384):
        topic = MetadataTopic(0, "t", uuid.UUID(int=5), False, (0,) * count)
        frame = encode_metadata(
            1,
            12,
            controller_id=1,
            brokers=[Endpoint(1, "h", 1)],
            cluster_id="c",
            topics=[topic],
        )
        response, end = messages.decoder(messages.MetadataResponse, 12)(memoryview(frame), 9)
        assert end == len(frame) and len(response.topics[0].partitions) == count
