"""OffsetForLeaderEpoch (KIP-320)."""

from __future__ import annotations

from functools import partial

from barnabas.broker.admission.guard_steps import each, enough_on_cluster, rule
from barnabas.broker.admission.rights import CLUSTER_ACTION, DESCRIBE, TOPIC
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.requests.wide_requests import Level, Shape, of_partitions
from barnabas.protocol.api import Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.protocol.request_context import RequestContext


def on_offset_for_leader_epoch(
    cluster: Cluster,
    request: OffsetForLeaderEpochRequest,
    context: RequestContext,
) -> OffsetForLeaderEpochResponse:
    """The end offsets of the requested leader epochs. Errors: UNKNOWN_TOPIC_OR_PARTITION,
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
    """
    topics = cluster.topics_here(context)
    results = []
    for topic in request.topics:
        rows = []
        for partition in topic.partitions:
            code, leader_epoch, end_offset = Code.NONE, -1, -1
            try:
                log = topics.fenced_partition(
                    topic.topic, partition.partition, partition.current_leader_epoch
                )
                leader_epoch, end_offset = log.end_offset_for_epoch(partition.leader_epoch)
            except KafkaError as error:
                code = error.code
            rows.append(EpochEndOffset(code, partition.partition, leader_epoch, end_offset))
        results.append(OffsetForLeaderTopicResult(topic.topic, rows))
    return OffsetForLeaderEpochResponse(topics=results)


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(23, "OffsetForLeaderEpoch", 0, 4, flexible_from=4),
        right=rule(
            enough_on_cluster(CLUSTER_ACTION, is_audited=False),
            each(DESCRIBE, TOPIC, "topics.topic", "or on each topic"),
        ),
        shapes=(
            Shape(
                of_partitions(
                    Level("topics", "topics", ("topic",)), "partitions", "partitions", "partition"
                )
            ),
        ),
        handler=lambda parts: partial(on_offset_for_leader_epoch, parts.cluster),
    ),
)
