"""The hand-written responses to Produce and Fetch. The generated classes decode them."""

from __future__ import annotations

import pytest

from barnabas.protocol.hot_responses import (
    FetchedPartition,
    ProducedPartition,
    encode_fetch,
    encode_produce,
)
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.produce import ProduceResponse


@pytest.mark.parametrize("version", [3, 8, 9, 11])
@pytest.mark.parametrize("name", ["t", "n" * 126, "n" * 127])
@pytest.mark.parametrize("count", [0, 1, 2, 127])
def test_produce(version: int, name: str, count: int) -> None:
    rows = [ProducedPartition(index, 0, 10 + index, -1, 3) for index in range(count)]
    frame = encode_produce(7, version, [(name, rows)])
    header = 9 if version >= 9 else 8
    answer, end = ProduceResponse.read(frame, header, version)
    assert (end, int.from_bytes(frame[:4], "big")) == (len(frame), len(frame) - 4)
    (topic,) = answer.responses
    assert topic.name == name
    assert [(row.index, row.base_offset) for row in topic.partition_responses] == [
        (index, 10 + index) for index in range(count)
    ]


@pytest.mark.parametrize("aborted", [[(5, 6)], [], None])
@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_fetch(version: int, aborted: list[tuple[int, int]] | None) -> None:
    row = FetchedPartition(2, 0, 9, 8, 1, aborted, b"records")
    frame = b"".join([bytes(piece) for piece in encode_fetch(7, version, [("t", [row])])])
    answer, end = FetchResponse.read(frame, 9 if version >= 12 else 8, version)
    assert end == len(frame)
    (partition,) = answer.responses[0].partitions
    assert (partition.partition_index, partition.high_watermark) == (2, 9)
    assert [
        (one.producer_id, one.first_offset) for one in partition.aborted_transactions or ()
    ] == (aborted or [])
    assert (partition.aborted_transactions is None) is (aborted is None)
    assert bytes(partition.records or b"") == b"records"
