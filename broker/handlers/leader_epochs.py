"""OffsetForLeaderEpoch (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.protocol.request_context import RequestContext

if TYPE_CHECKING:
    from barnabas.broker.brokers.cluster import Cluster


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
