"""DescribeLogDirs: how large the partitions are on the disk."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.protocol.request_context import RequestContext

if TYPE_CHECKING:
    from barnabas.broker.topics import TopicRegistry


def on_describe_log_dirs(
    registry: TopicRegistry, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """The one log directory, with those of the partitions asked for that it holds (null: all)."""
    if request.topics is None:
        wanted = {name: registry.partitions_of(name) for name in registry.metadata.topics}
    else:
        wanted = {
            topic.topic: [
                registry.partition(topic.topic, index) for index in dict.fromkeys(topic.partitions)
            ]
            for topic in request.topics
        }
    topics = []
    for name, logs in wanted.items():
        partitions = [
            DescribeLogDirsPartition(log.partition, log.segments.size_bytes)
            for log in logs
            if log is not None
        ]
        if partitions:
            topics.append(DescribeLogDirsTopic(name, partitions))
    directory = DescribeLogDirsResult(
        error_code=Code.NONE,
        log_dir=posixpath.abspath(registry.logs.data_dir),
        topics=topics,
        total_bytes=registry.logs.disk.total_bytes(registry.logs.data_dir),
        usable_bytes=registry.logs.disk.free_bytes(registry.logs.data_dir),
    )
    return DescribeLogDirsResponse(error_code=Code.NONE, results=[directory])
