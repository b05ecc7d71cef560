"""Requests about topics, partitions and offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from barnabas.cli.client.cluster_client import PASSING, ClusterClient
from barnabas.cli.errors import RefusedError
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataResponseTopic
from barnabas.protocol.topic_partition import TopicPartition

Row = TypeVar("Row")

LIST_OFFSETS = RequestKind(ListOffsetsRequest, ListOffsetsResponse, 2, 6)
LATEST, EARLIEST = -1, -2  # special timestamps
CLIENT = -1  # the replica_id of clients
NO_LEADER = -1


def describe_topics(
    client: ClusterClient, names: Iterable[str] | None = None
) -> list[MetadataResponseTopic]:
    """The named topics (None for all), each with its error code."""
    wanted = None if names is None else list(names)

    def ask() -> list[MetadataResponseTopic]:
        found = client.refresh(wanted)
        for topic in found:
            if topic.error_code == Code.LEADER_NOT_AVAILABLE and not topic.partitions:
                raise RefusedError(topic.error_code, "", str(topic.name))
        return found

    return client.trying(ask)


def name_of(topic: MetadataResponseTopic) -> str:
    """The topic's name. It is null only in responses to requests by topic id."""
    return topic.name or ""


def by_topic(
    partitions: Iterable[TopicPartition], make: Callable[[TopicPartition], Row]
) -> dict[str, list[Row]]:
    """Rows made from partitions, grouped by topic."""
    topics: dict[str, list[Row]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(make(partition))
    return topics


def leaders(
    client: ClusterClient, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """The partitions of each leader. Raises: RefusedError if a partition has no leader."""
    wanted = sorted(set(partitions))
    unknown = sorted({row.topic for row in wanted if row not in client.leaders})
    for topic in describe_topics(client, unknown) if unknown else ():
        if topic.error_code:
            raise RefusedError(topic.error_code, "", name_of(topic))
    found: dict[int, list[TopicPartition]] = {}
    for partition in wanted:
        leader = client.leaders.get(partition)
        if leader is None:
            raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, "", str(partition))
        if leader == NO_LEADER:
            raise RefusedError(Code.LEADER_NOT_AVAILABLE, "", str(partition))
        found.setdefault(leader, []).append(partition)
    return found


def offsets_by_time(
    client: ClusterClient, times: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """The first offset whose record is at or after a time in ms; -1 if there is no such record.

    The times LATEST and EARLIEST mean the end and the start of a log. With read_committed, the end
    is the last stable offset.
    """
    found = found_by_time(client, times, read_committed=read_committed)
    return {partition: offset for partition, (_, offset) in found.items()}


def found_by_time(
    client: ClusterClient, times: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, tuple[int, int]]:
    """As `offsets_by_time`, with the timestamp in the answer before the offset."""

    def ask() -> dict[TopicPartition, tuple[int, int]]:
        found: dict[TopicPartition, tuple[int, int]] = {}
        for node_id, partitions in leaders(client, times).items():
            found |= _of_leader(client, node_id, partitions, times, read_committed)
        return found

    return client.trying(ask) if times else {}


def _of_leader(
    client: ClusterClient,
    node_id: int,
    partitions: list[TopicPartition],
    times: Mapping[TopicPartition, int],
    read_committed: bool,
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the timestamps and offsets at these times of partitions that the node leads. The first
    partition with an error raises RefusedError.
    """
    rows = by_topic(
        partitions,
        lambda row: ListOffsetsPartition(partition_index=row.partition, timestamp=times[row]),
    )
    request = ListOffsetsRequest(
        replica_id=CLIENT,
        isolation_level=int(read_committed),
        topics=[
            ListOffsetsTopic(name=name, partitions=of_topic) for name, of_topic in rows.items()
        ],
    )
    offsets = {}
    for topic in client.node(node_id, LIST_OFFSETS, request).topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                subject = str(partition) if row.error_code in PASSING else topic.name
                raise RefusedError(row.error_code, "", subject)
            offsets[partition] = row.timestamp, row.offset
    return offsets
