"""ShareGroupHeartbeat, DescribeShareGroupOffsets, and the refusal if share groups are off."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from barnabas.broker.outbox import PARKED, Answer
from barnabas.broker.slices import ROWS_READ_AT_ONCE, Slices
from barnabas.coordinator.share.share_records import UNKNOWN_COUNT, SharePartitionKey
from barnabas.coordinator.share.share_state import UNINITIALIZED_OFFSET
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.broker.groups.group_runtime import GroupRuntime
    from barnabas.broker.lazy import Lazy
    from barnabas.broker.logs.topics import TopicRegistry
    from barnabas.broker.requests.pending_requests import Requests
    from barnabas.broker.settings.current_features import CurrentFeatures
    from barnabas.broker.share.shares import Shares
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
    from barnabas.protocol.messages.message import Message
    from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
    from barnabas.protocol.request_context import RequestContext

UNKNOWN_LAG = -1


def without_share_groups(request: Message, context: RequestContext) -> Message:
    """The response if share groups are off: UNSUPPORTED_VERSION, as in Kafka."""
    return request.error_response(context.api_version, Code.UNSUPPORTED_VERSION)


def on_share_group_heartbeat(
    requests: Requests,
    features: CurrentFeatures,
    groups: GroupCoordinator,
    group_runtime: GroupRuntime,
    request: ShareGroupHeartbeatRequest,
    context: RequestContext,
) -> Answer:
    """Join a share group, stay in it, or leave it.

    Errors: UNSUPPORTED_VERSION if share groups are off; the errors of the coordinator.
    """
    if not features.speaks_share_groups:
        return without_share_groups(request, context)
    requests.park(context)
    decide = groups.share_requests.on_heartbeat
    group_runtime.run_heartbeat(lambda: decide(request, context, context.now_ms), request, context)
    return PARKED


def on_describe_share_group_offsets(
    requests: Requests,
    features: CurrentFeatures,
    topics: TopicRegistry,
    groups: GroupCoordinator,
    shares: Lazy[Shares],
    request: DescribeShareGroupOffsetsRequest,
    context: RequestContext,
) -> Answer:
    """The start offsets and lags of share partitions, in slices. If the request names no topics of
    a group, all of its share partitions that have a state are described. Unknown values are -1.
    """
    if not features.speaks_share_groups:
        return without_share_groups(request, context)
    return requests.read_in_slices(context, _described(topics, groups, shares.get(), request))


def _described(
    topics: TopicRegistry,
    groups: GroupCoordinator,
    shares: Shares,
    request: DescribeShareGroupOffsetsRequest,
) -> Slices:
    """The slices of `on_describe_share_group_offsets`."""
    yield
    described = []
    rows = 0
    for group in request.groups:
        of_group: list[DescribeShareGroupOffsetsResponseTopic] = []
        for name, partitions in _wanted(groups, group):
            topic = topics.metadata.topic(name)
            topic_id = None if topic is None else topic.topic_id
            answered = DescribeShareGroupOffsetsResponseTopic(name, topic_id)
            for index in partitions:
                if rows and rows % ROWS_READ_AT_ONCE == 0:
                    yield
                rows += 1
                answered.partitions.append(
                    _of_partition(topics, shares, group.group_id, name, topic_id, index)
                )
            of_group.append(answered)
        described.append(DescribeShareGroupOffsetsResponseGroup(group.group_id, of_group))
    return DescribeShareGroupOffsetsResponse(groups=described)


def _wanted(
    groups: GroupCoordinator, group: DescribeShareGroupOffsetsRequestGroup
) -> Iterator[tuple[str, Sequence[int]]]:
    """The topics and partitions of a group that the request asks for; without named topics, all
    that have a state.
    """
    if group.topics is None:
        yield from groups.share_requests.initialized_partitions(group.group_id).items()
        return
    for topic in group.topics:
        yield topic.topic_name, topic.partitions


def start_and_lag(
    topics: TopicRegistry, shares: Shares, group_id: str, name: str, index: int
) -> tuple[int, int]:
    """The start offset and the lag of a share partition, or UNINITIALIZED_OFFSET and
    UNKNOWN_LAG.
    """
    topic = topics.metadata.topic(name)
    if topic is None:
        return UNINITIALIZED_OFFSET, UNKNOWN_LAG
    row = _of_partition(topics, shares, group_id, name, topic.topic_id, index)
    return row.start_offset, row.lag


def _of_partition(
    topics: TopicRegistry,
    shares: Shares,
    group_id: str,
    name: str,
    topic_id: uuid.UUID | None,
    index: int,
) -> DescribeShareGroupOffsetsResponsePartition:
    """The response's entry for one partition. Its start is unknown if the partition has no state or
    no log.
    """
    row = DescribeShareGroupOffsetsResponsePartition(
        index, UNINITIALIZED_OFFSET, 0, UNKNOWN_LAG, Code.NONE, None
    )
    if topic_id is None:
        return row
    summary = shares.coordinator.summary(SharePartitionKey(group_id, topic_id.bytes, index))
    row.start_offset, row.leader_epoch = summary.start_offset, summary.leader_epoch
    count = summary.delivery_complete_count
    if summary.start_offset == UNINITIALIZED_OFFSET or count == UNKNOWN_COUNT:
        return row
    log = topics.partition(name, index)
    if log is None:
        row.start_offset, row.leader_epoch = 0, 0
        row.error_code = Code.KAFKA_STORAGE_ERROR
    else:
        row.lag = log.high_watermark - summary.start_offset - count
    return row
