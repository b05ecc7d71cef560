"""The hand-written readers of Produce and Fetch requests. Property tests compare them with the
generated readers.
"""

from __future__ import annotations

import struct
import uuid

import pytest

from barnabas.protocol import hot_requests
from barnabas.protocol.hot_requests import MOST_PRODUCE_ELEMENTS, produce_reader
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.primitives import MalformedMessageError, write_uvarint

read_produce = produce_reader(None)


def encoded(topics: list[TopicProduceData], version: int) -> bytearray:
    out = bytearray()
    ProduceRequest(acks=-1, timeout_ms=5, topic_data=topics).write(out, version)
    return out


@pytest.mark.parametrize("version", [3, 8, 9, 11])
@pytest.mark.parametrize("name", ["t", "n" * 126, "n" * 127, "n" * 249])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 70_000])
def test_compact_lengths_of_one_two_and_three_bytes_are_read(
    version: int, name: str, size: int
) -> None:
    records = b"r" * size
    data = encoded([TopicProduceData(name, None, [PartitionProduceData(4, records)])], version)
    request, end = read_produce(memoryview(data), 0, version)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index, end) == (name, 4, len(data))
    assert partition.records is not None
    assert bytes(partition.records) == records


@pytest.mark.parametrize("count", [0, 1, 125, 126, 127, 128])
def test_array_lengths_of_one_and_two_bytes_are_read(count: int) -> None:
    rows = [PartitionProduceData(index, None) for index in range(count)]
    topics = [TopicProduceData("t", None, rows if number < 3 else []) for number in range(count)]
    request, _ = read_produce(memoryview(encoded(topics, 9)), 0, 9)
    assert len(request.topic_data) == count
    assert all(len(topic.partition_data) == count for topic in request.topic_data[:3])


@pytest.mark.parametrize("version", [3, 9])
def test_a_request_cut_off_anywhere_is_refused(version: int) -> None:
    data = encoded([TopicProduceData("t", None, [PartitionProduceData(0, b"r" * 9)])], version)
    for end in range(len(data)):
        with pytest.raises((MalformedMessageError, IndexError, struct.error)):
            read_produce(memoryview(data)[:end], 0, version)


MOST = MOST_PRODUCE_ELEMENTS


@pytest.mark.parametrize("version", [0, 3, 9, 13])
@pytest.mark.parametrize(
    ("topics", "partitions"),
    [(1, MOST - 1), (1, MOST), (MOST, 0), (MOST + 1, 0), (MOST // 2, 1), (MOST // 2 + 1, 1)],
)
def test_no_more_elements_are_read_than_a_request_may_have(
    topics: int, partitions: int, version: int
) -> None:
    rows = [PartitionProduceData(0, None)] * partitions
    topic = TopicProduceData("", None, rows)
    data = memoryview(encoded([topic] * topics, version))
    if topics * (1 + partitions) > MOST:
        with pytest.raises(MalformedMessageError, match="fewer partitions"):
            read_produce(data, 0, version)
    else:
        assert len(read_produce(data, 0, version)[0].topic_data) == topics


@pytest.mark.parametrize("place", ["partition", "topic", "request"])
@pytest.mark.parametrize(("count", "size"), [(1, 0), (1, 500), (3, 1), (1, 2000), (MOST, 0)])
def test_tagged_fields_are_skipped_and_count_for_the_limits(
    place: str, count: int, size: int
) -> None:
    tags = bytearray()
    write_uvarint(tags, count)
    for _ in range(count):
        write_uvarint(tags, 7)
        write_uvarint(tags, size)
        tags += bytes(size)
    end = {"partition": (tags, b"\0", b"\0"), "topic": (b"\0", tags, b"\0")}.get(
        place, (b"\0", b"\0", tags)
    )
    data = b"\0" + bytes(6) + b"\2\2t\2" + bytes(4) + b"\3rr" + b"".join(map(bytes, end))
    if count == MOST or size > 1000:
        with pytest.raises(MalformedMessageError):
            produce_reader(1000)(memoryview(data), 0, 9)
    else:
        request, at = produce_reader(1000)(memoryview(data), 0, 9)
        assert at == len(data)
        assert bytes(request.topic_data[0].partition_data[0].records or b"") == b"rr"
    with pytest.raises((MalformedMessageError, IndexError)):
        produce_reader(1000)(memoryview(data[:-1]), 0, 9)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_bytes_other_than_records_have_their_own_limit(version: int) -> None:
    topics = [
        TopicProduceData(
            "" if version > 12 else "n" * 200, None, [PartitionProduceData(0, b"r" * 5000)]
        )
        for _ in range(10)
    ]
    data = memoryview(encoded(topics, version))
    others = len(data) - 10 * 5000
    assert produce_reader(others)(data, 0, version)[1] == len(data)
    with pytest.raises(MalformedMessageError, match=r"are not records|too long"):
        produce_reader(others - 20)(data, 0, version)


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 20_000, 70_000])
def test_fields_that_are_remembered_are_followed_by_the_records_of_their_request(
    version: int, size: int
) -> None:
    """The bytes before the records were read in an earlier request; null records too."""
    topic_id = uuid.UUID(int=5) if version > 12 else None
    name = "" if topic_id else "remembered"
    for records in (b"first", b"r" * size, None, b"last"):
        rows = [PartitionProduceData(7, records)]
        data = encoded([TopicProduceData(name, topic_id, rows)], version)
        request, end = read_produce(memoryview(data), 0, version)
        (topic,) = request.topic_data
        assert (topic.name, topic.topic_id, request.acks, end) == (name, topic_id, -1, len(data))
        assert topic.partition_data == rows
        for cut in range(max(0, len(data) - 4), len(data)):
            with pytest.raises((MalformedMessageError, IndexError, struct.error)):
                read_produce(memoryview(data)[:cut], 0, version)


def test_a_topic_without_partitions_is_read_whatever_its_bytes_look_like() -> None:
    """Where the length of a name stands in for a count of partitions, nothing is remembered."""
    request = ProduceRequest("", -1, 100, [TopicProduceData("t", partition_data=[])])
    assert read_produce(memoryview(request.encode(11)), 0, 11)[0] == request


def test_different_requests_are_remembered_only_up_to_a_number() -> None:
    for number in range(3000):
        topics = [TopicProduceData(f"t{number}", None, [PartitionProduceData(0, b"r")])]
        read_produce(memoryview(encoded(topics, 9)), 0, 9)
    assert len(hot_requests._HEADS_BY_NAME) <= hot_requests._MOST_HEADS


@pytest.mark.parametrize("place", ["transactional id", "topic"])
def test_a_text_that_is_too_long_is_not_decoded(place: str) -> None:
    text = bytearray()
    write_uvarint(text, 5001)
    text += b"n" * 5000
    if place == "topic":
        data = b"\0" + bytes(6) + b"\2" + text + b"\1\0\0"
    else:
        data = bytes(text) + bytes(6) + b"\1\0"
    assert produce_reader(6000)(memoryview(data), 0, 9)[1] == len(data)
    with pytest.raises(MalformedMessageError, match="text is too long"):
        produce_reader(4000)(memoryview(data), 0, 9)
