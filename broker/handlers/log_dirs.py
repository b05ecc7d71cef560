"""DescribeLogDirs and AlterReplicaLogDirs: where the partitions are on the disk, and how large."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from functools import partial

from barnabas.broker.admission.guard_steps import on_cluster, rule
from barnabas.broker.admission.rights import ALTER, DESCRIBE
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.outbox import Answer
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.slices import ROWS_READ_AT_ONCE, Slices
from barnabas.protocol.api import Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.log.log import Log


def on_describe_log_dirs(
    requests: Requests,
    topics: TopicRegistry,
    cluster: Cluster,
    request: DescribeLogDirsRequest,
    context: RequestContext,
) -> Answer:
    """The one log directory, with the requested partitions that it contains, or with all partitions
    if the request's list is null.

    With several brokers, a broker lists the partitions of which it has a replica.
    """
    return requests.read_in_slices(context, _describe(topics, cluster, request, context))


def _describe(
    registry: TopicRegistry,
    cluster: Cluster,
    request: DescribeLogDirsRequest,
    context: RequestContext,
) -> Slices:
    """The slices of `on_describe_log_dirs`."""
    yield
    if request.topics is None:
        wanted: dict[str, Iterable[int] | None] = dict.fromkeys(registry.metadata.topics)
    else:
        named: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            named.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
        wanted = dict(named)
    topics = []
    left = ROWS_READ_AT_ONCE
    for name, indexes in wanted.items():
        partitions: list[DescribeLogDirsPartition] = []
        for index in range(len(registry.partitions_of(name))) if indexes is None else indexes:
            log = registry.partition(name, index)  # the topic may be deleted between two slices
            if log is not None and _is_replica(cluster, log, context):
                size_bytes = log.segments.size_bytes
                partitions.append(DescribeLogDirsPartition(log.partition, size_bytes))
            left -= 1
            if not left:
                left = ROWS_READ_AT_ONCE
                yield
        if partitions:
            topics.append(DescribeLogDirsTopic(name, partitions))
    directory = DescribeLogDirsResult(
        error_code=Code.NONE,
        log_dir=posixpath.abspath(registry.logs.data_dir),
        topics=topics,
        total_bytes=registry.logs.disk.total_bytes(registry.logs.data_dir),
        usable_bytes=registry.disk_space.usable_bytes(),
    )
    return DescribeLogDirsResponse(error_code=Code.NONE, results=[directory])


def _is_replica(cluster: Cluster, log: Log, context: RequestContext) -> bool:
    """Whether the broker of the request has a replica of the log; a single broker has all."""
    if cluster.is_one:
        return True
    leadership = cluster.leadership(log.topic, log.partition)
    return leadership is not None and context.node_id in leadership.replicas


def on_alter_replica_log_dirs(
    topics: TopicRegistry, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Accept a move of a partition to the one log directory, where it already is (KIP-113).

    Errors, by partition: LOG_DIR_NOT_FOUND for another directory, UNKNOWN_TOPIC_OR_PARTITION,
    KAFKA_STORAGE_ERROR if the partition is offline.
    """
    rows: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    own = posixpath.abspath(topics.logs.data_dir)
    for directory in request.dirs:
        for topic in directory.topics:
            rows.setdefault(topic.name, []).extend(
                AlterReplicaLogDirPartitionResult(
                    index,
                    Code.LOG_DIR_NOT_FOUND
                    if directory.path != own
                    else _why_immovable(topics, topic.name, index),
                )
                for index in topic.partitions
            )
    results = [AlterReplicaLogDirTopicResult(name, partitions) for name, partitions in rows.items()]
    return AlterReplicaLogDirsResponse(results=results)


def _why_immovable(registry: TopicRegistry, topic: str, index: int) -> Code:
    """The error code for a partition that does not exist or is offline; otherwise NONE."""
    try:
        registry.require_partition(topic, index)
    except KafkaError as error:
        return error.code
    return Code.NONE


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(34, "AlterReplicaLogDirs", 0, 2, flexible_from=2, most_elements=10_000),
        right=rule(on_cluster(ALTER)),
        handler=lambda parts: partial(on_alter_replica_log_dirs, parts.topics),
    ),
    ApiRow(
        Api(35, "DescribeLogDirs", 0, 5, flexible_from=2, most_elements=30_000),
        right=rule(on_cluster(DESCRIBE)),
        handler=lambda parts: partial(
            on_describe_log_dirs, parts.requests, parts.topics, parts.cluster
        ),
    ),
)
