"""Produce and Fetch read by hand; the property tests hold them to the generated readers."""

from __future__ import annotations

import struct

import pytest

from barnabas.protocol.hot_requests import read_produce
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.primitives import MalformedMessageError


def encoded(topics: list[TopicProduceData], version: int) -> bytearray:
    out = bytearray()
    ProduceRequest(acks=-1, timeout_ms=5, topic_data=topics).write(out, version)
    return out


@pytest.mark.parametrize("version", [3, 8, 9, 11])
@pytest.mark.parametrize("name", ["t", "n" * 126, "n" * 127, "n" * 249])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 70_000])
def test_lengths_on_both_sides_of_one_byte(version: int, name: str, size: int) -> None:
    records = b"r" * size
    data = encoded([TopicProduceData(name, None, [PartitionProduceData(4, records)])], version)
    request, end = read_produce(memoryview(data), 0, version)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index, end) == (name, 4, len(data))
    assert partition.records is not None
    assert bytes(partition.records) == records


@pytest.mark.parametrize("count", [0, 1, 125, 126, 127, 128])
def test_numbers_of_topics_and_partitions_on_both_sides_of_one_byte(count: int) -> None:
    rows = [PartitionProduceData(index, None) for index in range(count)]
    topics = [TopicProduceData("t", None, rows) for _ in range(count)]
    request, _ = read_produce(memoryview(encoded(topics, 9)), 0, 9)
    assert len(request.topic_data) == count
    assert all(len(topic.partition_data) == count for topic in request.topic_data)


@pytest.mark.parametrize("version", [3, 9])
def test_a_request_cut_off_anywhere_is_refused(version: int) -> None:
    data = encoded([TopicProduceData("t", None, [PartitionProduceData(0, b"r" * 9)])], version)
    for end in range(len(data)):
        with pytest.raises((MalformedMessageError, IndexError, struct.error)):
            read_produce(memoryview(data)[:end], 0, version)
