"""DescribeLogDirs: how large the partitions are on the disk."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from barnabas.broker.outbox import Context
from barnabas.protocol import messages
from barnabas.protocol.errors import Code

if TYPE_CHECKING:
    from barnabas.broker.core import Broker
    from barnabas.storage.log import Log


def on_describe_log_dirs(broker: Broker, request: Any, context: Context) -> Any:
    """The one log directory, with those of the partitions asked for that it holds (null: all)."""
    response_class = messages.message_class("admin", "DescribeLogDirsResponse")
    result_class = response_class.DescribeLogDirsResult
    topic_class = result_class.DescribeLogDirsTopic
    if request.topics is None:
        wanted = {name: broker.partitions_of(name) for name in broker.metadata.topics}
    else:
        wanted = {
            asked.topic: [broker.partition(asked.topic, index) for index in dict.fromkeys(asked.partitions)] for asked in request.topics
        }
    topics = []
    for name, logs in wanted.items():
        partitions = [_row(topic_class.DescribeLogDirsPartition, log) for log in logs if log is not None]
        if partitions:
            topics.append(topic_class(name=name, partitions=partitions))
    directory = result_class(
        error_code=int(Code.NONE),
        log_dir=posixpath.abspath(broker.logs.data_dir),
        topics=topics,
        total_bytes=broker.logs.disk.total_bytes(broker.logs.data_dir),
        usable_bytes=broker.logs.disk.free_bytes(broker.logs.data_dir),
        is_cordoned=False,
    )
    return response_class(throttle_time_ms=0, error_code=int(Code.NONE), results=[directory])


def _row(row_class: Any, log: Log) -> Any:
    return row_class(partition_index=log.partition, partition_size=log.size_bytes, offset_lag=0, is_future_key=False)
