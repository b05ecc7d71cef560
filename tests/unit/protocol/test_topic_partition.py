"""A topic partition equals the plain tuple of its fields, so both find the same entry of a dict."""

from __future__ import annotations

from barnabas.protocol.topic_partition import TopicPartition


def test_it_is_its_tuple_with_names() -> None:
    partition = TopicPartition("orders", 3)
    assert (partition.topic, partition.partition) == ("orders", 3)
    assert partition == ("orders", 3)
    assert {partition: 1}["orders", 3] == 1  # type: ignore[index]
    assert str(partition) == "orders-3"
