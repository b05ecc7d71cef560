"""Reads a few bytes from an offset in each of many partitions, for the lag of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.records import FETCH
from barnabas.cli.client.topics import CLIENT, NO_LEADER, by_topic
from barnabas.client.errors import PassingError
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.topic_partition import TopicPartition

PARTITIONS_AT_ONCE = 500
READ_COMMITTED = 1


class Tail(NamedTuple):
    """Batches up to the last stable offset, and the producer id and first offset of each aborted
    transaction in them.
    """

    data: bytes
    aborted: list[tuple[int, int]]


def read_tails(
    client: ClusterClient, offsets: Mapping[TopicPartition, int], max_bytes: int
) -> dict[TopicPartition, Tail]:
    """The first `max_bytes` from an offset in each partition.

    Partitions that cannot be read are left out: the client may describe a topic that it may not
    read.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in sorted(offsets):
        leader = client.leaders.get(partition, NO_LEADER)
        if leader != NO_LEADER:
            by_leader.setdefault(leader, []).append(partition)
    found: dict[TopicPartition, Tail] = {}
    for node_id, partitions in by_leader.items():
        for at in range(0, len(partitions), PARTITIONS_AT_ONCE):
            part = partitions[at : at + PARTITIONS_AT_ONCE]
            try:
                answer = client.node(node_id, FETCH, _request(part, offsets, max_bytes))
            except PassingError:
                continue
            for topic in answer.responses:
                for row in topic.partitions:
                    if not row.error_code:
                        key = TopicPartition(topic.topic, row.partition_index)
                        found[key] = _tail(row)
    return found


def _request(
    partitions: list[TopicPartition], offsets: Mapping[TopicPartition, int], max_bytes: int
) -> FetchRequest:
    rows = by_topic(
        partitions,
        lambda row: FetchPartition(
            partition=row.partition, fetch_offset=offsets[row], partition_max_bytes=max_bytes
        ),
    )
    return FetchRequest(
        replica_id=CLIENT,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes * len(partitions),
        isolation_level=READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=part) for topic, part in rows.items()],
    )


def _tail(row: PartitionData) -> Tail:
    aborted = [(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()]
    return Tail(bytes(row.records or b""), aborted)
