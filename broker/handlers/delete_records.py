"""DeleteRecords (KIP-107): raise the start of logs."""

from __future__ import annotations

from functools import partial

from barnabas.broker.admission.guard_steps import each, rule
from barnabas.broker.admission.rights import DELETE, TOPIC
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.cluster import Cluster, NodeTopics
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.requests.wide_requests import Level, Repeats, Shape, of_partitions
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.api import Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import NotWrittenError
from barnabas.storage.log.log import Log

HIGH_WATERMARK = -1


def on_delete_records(
    cluster: Cluster,
    logs: LogManager,
    progress: LogProgress,
    request: DeleteRecordsRequest,
    context: RequestContext,
) -> DeleteRecordsResponse:
    """Raise each log's start to the requested offset (-1: the log's end); an offset below the start
    changes nothing.

    Errors: UNKNOWN_TOPIC_OR_PARTITION; INVALID_TOPIC_EXCEPTION for internal topics;
    POLICY_VIOLATION if cleanup.policy has no delete; OFFSET_OUT_OF_RANGE beyond the end or below
    -1; NOT_LEADER_OR_FOLLOWER with several brokers; KAFKA_STORAGE_ERROR if the disk has no space
    for the new starts.
    """
    partitions = cluster.topics_here(context)
    topics: list[DeleteRecordsTopicResult] = []
    raised: dict[Log, int] = {}
    for topic in request.topics:
        rows = []
        for partition in topic.partitions:
            code, low_watermark = Code.NONE, -1
            try:
                # the topic may have been created while an earlier part of the request waited
                if partitions.is_later(topic.name, context):
                    raise KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION)
                log = _log_of(partitions, topic.name, partition.partition_index)
                low_watermark = _start_after(log, partition.offset)
                raised[log] = max(low_watermark, raised.get(log, 0))
            except KafkaError as error:
                code = error.code
            rows.append(
                DeleteRecordsPartitionResult(partition.partition_index, low_watermark, code)
            )
        topics.append(DeleteRecordsTopicResult(topic.name, rows))
    # The new starts are stored before any other request is handled: deleted records must not be
    # visible again after a crash.
    try:
        logs.raise_starts(raised)
    except NotWrittenError:
        for answered in topics:
            for row in answered.partitions:
                if row.error_code == Code.NONE:
                    row.low_watermark, row.error_code = -1, int(Code.KAFKA_STORAGE_ERROR)
        return DeleteRecordsResponse(topics=topics)
    progress.on_appended(list(raised), context.now_ms)
    return DeleteRecordsResponse(topics=topics)


def _start_after(log: Log, offset: int) -> int:
    """The log's start after the deletion. Raises: KafkaError OFFSET_OUT_OF_RANGE."""
    if offset == HIGH_WATERMARK:
        return log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(Code.OFFSET_OUT_OF_RANGE)
    return max(offset, log.log_start_offset)


def _log_of(topics: TopicRegistry | NodeTopics, name: str, index: int) -> Log:
    """The log of a partition whose records may be deleted. Raises: KafkaError."""
    if name in INTERNAL_TOPICS:
        raise KafkaError(Code.INVALID_TOPIC_EXCEPTION)
    log = topics.require_partition(name, index)
    if "delete" not in log.config.cleanup_policy:
        raise KafkaError(Code.POLICY_VIOLATION)
    return log


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(21, "DeleteRecords", 0, 2, flexible_from=2),
        right=rule(each(DELETE, TOPIC, "topics.name")),
        shapes=(
            Shape(
                of_partitions(
                    Level("topics", "topics", ("name",)),
                    "partitions",
                    "partitions",
                    "partition_index",
                ),
                Repeats.LATEST,
                10,
            ),
        ),
        handler=lambda parts: partial(on_delete_records, parts.cluster, parts.logs, parts.progress),
    ),
)
