"""Requests about groups of all kinds: classic, consumer (KIP-848), share (KIP-932) and streams
(KIP-1071).

DescribeGroups describes classic groups only. It reports a group of another kind as Dead or not
found; such a group is described by the request for its kind.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.topics import by_topic
from barnabas.cli.errors import RefusedError
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.errors import Code
from barnabas.protocol.topic_partition import TopicPartition

CONSUMER, SHARE, STREAMS = "consumer", "share", "streams"
UNKNOWN_OFFSET = -1
EMPTY_STATES = ("Empty", "Dead")


class ListedGroup(NamedTuple):
    """A group as ListGroups returns it. state, type: None if the broker is too old to return
    them.
    """

    group: str
    protocol: str
    state: str | None
    type: str | None


class Member(NamedTuple):
    """A member of a group, with the partitions that are assigned to it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


class Group(NamedTuple):
    """A group. protocol: the protocol type of a classic or consumer group; SHARE or STREAMS for
    groups of these kinds.
    """

    group: str
    state: str
    protocol: str
    assignor: str
    members: tuple[Member, ...] = ()


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    metadata: str


def list_groups(client: ClusterClient) -> list[ListedGroup]:
    """The groups of all brokers, by name."""
    from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

    kind = RequestKind(ListGroupsRequest, ListGroupsResponse, 0, 5)
    found = []
    for node_id in list(client.brokers):

        def ask(node_id: int = node_id) -> ListGroupsResponse:
            answer = client.node(node_id, kind, ListGroupsRequest())
            if answer.error_code:
                raise RefusedError(answer.error_code)
            return answer

        found += [
            ListedGroup(
                row.group_id, row.protocol_type, row.group_state or None, row.group_type or None
            )
            for row in client.trying(ask).groups
        ]
    return sorted(found, key=lambda row: row.group)


# --- descriptions -------------------------------------------------------------------------------


def describe_group(client: ClusterClient, name: str) -> Group:
    """A group of any kind; the state of an unknown group is Dead. Raises: RefusedError."""
    from barnabas.protocol.messages.describe_groups import (
        DescribeGroupsRequest,
        DescribeGroupsResponse,
    )

    kind = RequestKind(DescribeGroupsRequest, DescribeGroupsResponse, 0, 6)
    answer = client.coordinator(
        name, kind, DescribeGroupsRequest([name]), lambda row: row.groups[0].error_code
    )
    (found,) = answer.groups
    is_unknown = found.error_code == Code.GROUP_ID_NOT_FOUND
    if found.error_code and not is_unknown:
        raise RefusedError(found.error_code, found.error_message, name)
    # The broker also answers this for a group that is not classic, so try the other kinds of
    # groups.
    if is_unknown or found.group_state == "Dead":
        for describe in (_consumer_group, _share_group, _streams_group):
            group = describe(client, name)
            if group is not None:
                return group
        return Group(name, "Dead", "", "")
    members = tuple(
        Member(
            row.member_id, row.group_instance_id, row.client_id, row.client_host,
            assigned(row.member_assignment) if found.protocol_type == CONSUMER else (),
        )
        for row in found.members
    )  # fmt: skip
    return Group(name, found.group_state, found.protocol_type, found.protocol_data, members)


def assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a classic consumer's assignment; empty if it cannot be parsed.

    The format is: int16 version | int32 count of topics, for each of them: string topic, int32
    count of partitions, int32 partitions | user data. Source: ConsumerProtocolAssignment.json of
    Apache Kafka.
    """
    partitions = []
    try:
        # after the version and the count of topics
        at = 6
        for _ in range(struct.unpack_from(">i", data, 2)[0]):
            (size,) = struct.unpack_from(">h", data, at)
            topic = bytes(data[at + 2 : at + 2 + size]).decode()
            at += 2 + size
            (count,) = struct.unpack_from(">i", data, at)
            numbers = struct.unpack_from(f">{count}i", data, at + 4)
            at += 4 + 4 * count
            partitions += [TopicPartition(topic, number) for number in numbers]
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(partitions))


def _described(client: ClusterClient, name: str, kind: RequestKind[Any, Any]) -> Any:
    """The group as the describe request of one kind returns it; None for a group of another
    kind.
    """
    if not client.speaks(kind):
        return None
    request = kind.request_class([name])
    answer = client.coordinator(name, kind, request, lambda row: row.groups[0].error_code)
    return None if answer.groups[0].error_code else answer.groups[0]


def _consumer_group(client: ClusterClient, name: str) -> Group | None:
    """A consumer group (KIP-848); None for a group of another kind."""
    from barnabas.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )

    kind = RequestKind(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, 0, 1)
    found = _described(client, name, kind)
    return None if found is None else _group(found, CONSUMER)


def _share_group(client: ClusterClient, name: str) -> Group | None:
    """A share group; None for a group of another kind."""
    from barnabas.protocol.messages.share_group_describe import (
        ShareGroupDescribeRequest,
        ShareGroupDescribeResponse,
    )

    kind = RequestKind(ShareGroupDescribeRequest, ShareGroupDescribeResponse, 1, 1)
    found = _described(client, name, kind)
    return None if found is None else _group(found, SHARE)


def _group(found: Any, protocol: str) -> Group:
    """A consumer or share group from its description."""
    members = tuple(
        Member(
            row.member_id, getattr(row, "instance_id", None), row.client_id, row.client_host,
            tuple(sorted(
                TopicPartition(topic.topic_name, number)
                for topic in row.assignment.topic_partitions
                for number in topic.partitions
            )),
        )
        for row in found.members
    )  # fmt: skip
    return Group(found.group_id, found.group_state, protocol, found.assignor_name, members)


def _streams_group(client: ClusterClient, name: str) -> Group | None:
    """A streams group, whose members have the partitions of all topics that their tasks read; None
    for a group of another kind.
    """
    from barnabas.protocol.messages.streams_group_describe import (
        StreamsGroupDescribeRequest,
        StreamsGroupDescribeResponse,
    )

    kind = RequestKind(StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, 0, 0)
    found = _described(client, name, kind)
    if found is None:
        return None
    subtopologies = None if found.topology is None else found.topology.subtopologies
    topics = {
        one.subtopology_id: [
            *one.source_topics,
            *(topic.name for topic in one.repartition_source_topics),
        ]
        for one in subtopologies or ()
    }
    members = tuple(
        Member(
            row.member_id, row.instance_id, row.client_id, row.client_host,
            tuple(sorted(
                TopicPartition(topic, number)
                for task in row.assignment.active_tasks
                for topic in topics.get(task.subtopology_id, ())
                for number in task.partitions
            )),
        )
        for row in found.members
    )  # fmt: skip
    return Group(name, found.group_state, STREAMS, "", members)


# --- committed offsets --------------------------------------------------------------------------


def committed(client: ClusterClient, name: str) -> dict[TopicPartition, Committed]:
    """The committed offsets of a group, by partition. Raises: RefusedError."""
    from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

    kind = RequestKind(OffsetFetchRequest, OffsetFetchResponse, 2, 7)
    request = OffsetFetchRequest(group_id=name, topics=None)
    answer = client.coordinator(name, kind, request, lambda row: row.error_code)
    if answer.error_code:
        raise RefusedError(answer.error_code, "", name)
    found = {}
    for topic in answer.topics:
        for row in topic.partitions:
            if row.error_code:
                raise RefusedError(row.error_code, "", topic.name)
            if row.committed_offset >= 0:
                partition = TopicPartition(topic.name, row.partition_index)
                found[partition] = Committed(row.committed_offset, row.metadata or "")
    return dict(sorted(found.items()))


def commit(
    client: ClusterClient, name: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Commit offsets for a group without members. Gives: the code of each partition."""
    from barnabas.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetCommitResponse,
    )

    kind = RequestKind(OffsetCommitRequest, OffsetCommitResponse, 2, 9)
    rows = by_topic(
        offsets,
        lambda row: OffsetCommitRequestPartition(
            partition_index=row.partition, committed_offset=offsets[row], committed_metadata=""
        ),
    )
    request = OffsetCommitRequest(
        group_id=name,
        topics=[
            OffsetCommitRequestTopic(name=topic, partitions=part) for topic, part in rows.items()
        ],
    )
    answer = client.coordinator(name, kind, request, _first_code)
    return {
        TopicPartition(topic.name, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }


def _first_code(answer: Any) -> int:
    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    return next((code for code in codes if code), 0)


def delete_offsets(
    client: ClusterClient, name: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Delete committed offsets of a group (KIP-496). Gives: the code of each partition.

    Raises: RefusedError if the request for the whole group is refused.
    """
    from barnabas.protocol.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponse,
    )

    kind = RequestKind(OffsetDeleteRequest, OffsetDeleteResponse, 0, 0)
    rows = by_topic(partitions, lambda row: OffsetDeleteRequestPartition(row.partition))
    request = OffsetDeleteRequest(
        name, [OffsetDeleteRequestTopic(topic, part) for topic, part in rows.items()]
    )
    answer = client.coordinator(name, kind, request, lambda row: row.error_code)
    if answer.error_code:
        raise RefusedError(answer.error_code, "", name)
    return {
        TopicPartition(topic.name, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }


def delete_groups(client: ClusterClient, names: Sequence[str]) -> dict[str, int]:
    """Delete groups. Gives: the code of each."""
    from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

    kind = RequestKind(DeleteGroupsRequest, DeleteGroupsResponse, 0, 2)
    codes = {}
    for name in names:
        request = DeleteGroupsRequest([name])
        answer = client.coordinator(name, kind, request, lambda row: row.results[0].error_code)
        codes[name] = answer.results[0].error_code
    return codes


# --- share groups -------------------------------------------------------------------------------


class ShareStart(NamedTuple):
    """The start offset of a share group in a partition, and the number of records that are not yet
    finished. -1 means unknown.
    """

    offset: int
    lag: int


def share_offsets(client: ClusterClient, name: str) -> dict[TopicPartition, ShareStart]:
    """The start offsets of a share group, by partition. Raises: RefusedError."""
    from barnabas.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsResponse,
    )

    kind = RequestKind(DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse, 0, 1)
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(name, None)])
    answer = client.coordinator(name, kind, request, lambda row: row.groups[0].error_code)
    (found,) = answer.groups
    if found.error_code:
        raise RefusedError(found.error_code, found.error_message, name)
    return {
        TopicPartition(topic.topic_name, row.partition_index): ShareStart(
            row.start_offset, UNKNOWN_OFFSET if row.lag is None else row.lag
        )
        for topic in found.topics
        for row in topic.partitions
        if not row.error_code
    }


def alter_share_offsets(
    client: ClusterClient, name: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Set the start offsets of a share group without members. Gives: the code of each partition."""
    from barnabas.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestPartition,
        AlterShareGroupOffsetsRequestTopic,
        AlterShareGroupOffsetsResponse,
    )

    kind = RequestKind(AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, 0, 0)
    rows = by_topic(
        offsets,
        lambda row: AlterShareGroupOffsetsRequestPartition(row.partition, offsets[row]),
    )
    request = AlterShareGroupOffsetsRequest(
        name, [AlterShareGroupOffsetsRequestTopic(topic, part) for topic, part in rows.items()]
    )
    answer = client.coordinator(name, kind, request, lambda row: row.error_code)
    if answer.error_code:
        raise RefusedError(answer.error_code, answer.error_message, name)
    return {
        TopicPartition(topic.topic_name, row.partition_index): row.error_code
        for topic in answer.responses
        for row in topic.partitions
    }


def delete_share_offsets(client: ClusterClient, name: str, topics: Iterable[str]) -> dict[str, int]:
    """Delete a share group's start offsets in topics. The group must have no members.

    Gives: the code of each topic.
    """
    from barnabas.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequestTopic,
        DeleteShareGroupOffsetsResponse,
    )

    kind = RequestKind(DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse, 0, 0)
    rows = [DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics]
    request = DeleteShareGroupOffsetsRequest(name, rows)
    answer = client.coordinator(name, kind, request, lambda row: row.error_code)
    if answer.error_code:
        raise RefusedError(answer.error_code, answer.error_message, name)
    return {topic.topic_name: topic.error_code for topic in answer.responses}
