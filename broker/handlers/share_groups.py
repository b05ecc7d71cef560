"""ShareGroupHeartbeat, DescribeShareGroupOffsets, and the refusal if share groups are off."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from functools import partial

from barnabas.broker import coordinators  # noqa: F401 - loaded with the family
from barnabas.broker.admission import guards, share_guards
from barnabas.broker.admission.coordination import Coordination, Heartbeats, One, Several
from barnabas.broker.admission.guard_steps import (
    Ask,
    by_hand,
    each,
    every,
    in_answer,
    operations_of,
    rule,
    whole,
)
from barnabas.broker.admission.rights import DELETE, DESCRIBE, GROUP, READ, TOPIC
from barnabas.broker.api_row import ApiRow
from barnabas.broker.groups.group_runtime import GroupRuntime
from barnabas.broker.groups.to_groups import ToGroups, without_share_groups
from barnabas.broker.lazy import Lazy
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.outbox import PARKED, Answer
from barnabas.broker.parts import Parts
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.wide_requests import Level, Repeats, Shape, of_partitions, of_rows
from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.broker.share_partitions.shares import Shares
from barnabas.broker.slices import ROWS_READ_AT_ONCE, Slices
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.coordinator.share_states.share_records import UNKNOWN_COUNT, SharePartitionKey
from barnabas.coordinator.share_states.share_state import UNINITIALIZED_OFFSET
from barnabas.protocol.api import Api
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.request_context import RequestContext

UNKNOWN_LAG = -1


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


# --- the APIs of this family ----------------------------------------------------------------------


def _to_groups(parts: Parts) -> ToGroups:
    return ToGroups(parts.groups, parts.group_runtime, parts.requests, parts.features)


ROWS = (
    ApiRow(
        Api(76, "ShareGroupHeartbeat", 1, 1, flexible_from=1, most_elements=20_000),
        right=rule(
            whole(READ, GROUP, "group_id"),
            every(DESCRIBE, TOPIC, "subscribed_topic_names", "for each that is subscribed"),
        ),
        coordination=Coordination(
            one=One(OFFSETS_TOPIC, "group_id"),
            heartbeats=Heartbeats(
                lambda groups: groups.share_requests.on_heartbeat,
                lambda features: features.speaks_share_groups,
            ),
        ),
        handler=lambda parts: partial(
            on_share_group_heartbeat,
            parts.requests,
            parts.features,
            parts.groups,
            parts.group_runtime,
        ),
    ),
    ApiRow(
        Api(77, "ShareGroupDescribe", 1, 1, flexible_from=1),
        right=rule(
            each(DESCRIBE, GROUP, "group_ids"),
            in_answer(
                guards.hide_groups_of_hidden_topics, Ask(DESCRIBE, TOPIC, "for all that it reads")
            ),
            operations_of("groups", GROUP, "group_id", "authorized_operations"),
        ),
        shapes=(Shape(of_rows("group_ids", "groups"), at_once=10),),
        coordination=Coordination(several=Several(OFFSETS_TOPIC, "group_ids", "groups")),
        handler=lambda parts: _to_groups(parts).reading_share_groups(
            parts.groups.share_requests.describe_groups
        ),
    ),
    ApiRow(
        Api(90, "DescribeShareGroupOffsets", 0, 1, flexible_from=0),
        right=rule(
            by_hand(
                share_guards.describe_offsets,
                Ask(DESCRIBE, TOPIC, "others are left out where all are asked for"),
            ),
            each(DESCRIBE, GROUP, "groups.group_id"),
        ),
        shapes=(
            Shape(
                (
                    Level("groups", "groups", ("group_id",)),
                    Level("topics", "topics", ("topic_name",)),
                    Level("partitions", "partitions"),
                )
            ),
        ),
        coordination=Coordination(several=Several(OFFSETS_TOPIC, "groups", "groups", "group_id")),
        handler=lambda parts: partial(
            on_describe_share_group_offsets,
            parts.requests,
            parts.features,
            parts.topics,
            parts.groups,
            parts.shares,
        ),
    ),
    ApiRow(
        Api(91, "AlterShareGroupOffsets", 0, 0, flexible_from=0),
        right=rule(
            whole(READ, GROUP, "group_id"), by_hand(share_guards.alter_offsets, Ask(READ, TOPIC))
        ),
        shapes=(
            Shape(
                of_partitions(
                    Level("topics", "responses", ("topic_name",)),
                    "partitions",
                    "partitions",
                    "partition_index",
                ),
                Repeats.LATEST,
            ),
        ),
        coordination=Coordination(one=One(OFFSETS_TOPIC, "group_id"), writes=True),
        handler=lambda parts: _to_groups(parts).writing_share_groups(
            parts.groups.share_offsets.on_alter
        ),
    ),
    ApiRow(
        Api(92, "DeleteShareGroupOffsets", 0, 0, flexible_from=0),
        right=rule(
            whole(DELETE, GROUP, "group_id"), by_hand(share_guards.delete_offsets, Ask(READ, TOPIC))
        ),
        shapes=(Shape(of_rows("topics", "responses", "topic_name"), at_once=10),),
        coordination=Coordination(one=One(OFFSETS_TOPIC, "group_id"), writes=True),
        handler=lambda parts: _to_groups(parts).writing_share_groups(
            parts.groups.share_offsets.on_delete
        ),
    ),
)
