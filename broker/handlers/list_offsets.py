"""ListOffsets: the ends of a log, and the offset at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.outbox import Context
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.storage.log import NO_LEADER_EPOCH, Isolation

if TYPE_CHECKING:
    from barnabas.broker.core import Broker
    from barnabas.storage.log import Log

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
KNOWN_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
NOT_FOUND = (-1, -1, -1)
ISOLATION_SINCE, LEADER_EPOCH_SINCE = 2, 4


def on_list_offsets(broker: Broker, request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    """One offset per partition asked for.

    Timestamps: -1 latest (the last stable offset for isolation level 1), -2 earliest, -3 that of the highest timestamp (7+), -4 earliest
    local (8+), -5 latest tiered (9+), else the first record at or after the time, in ms. Errors: UNKNOWN_TOPIC_OR_PARTITION,
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNSUPPORTED_VERSION for kinds the version does not know,
    INVALID_REQUEST for a partition named twice, UNKNOWN_SERVER_ERROR, as Apache Kafka has it, for an
    isolation level that does not exist.
    """
    counts: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            counts[key] = counts.get(key, 0) + 1
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            code, found = Code.NONE, NOT_FOUND
            try:
                if counts[topic.name, asked.partition_index] > 1:
                    raise KafkaError(Code.INVALID_REQUEST)
                if asked.timestamp < 0 and context.api_version < KNOWN_SINCE.get(asked.timestamp, 1 << 15):
                    raise KafkaError(Code.UNSUPPORTED_VERSION)
                committed = _is_committed(request, context.api_version)
                log = broker.partition(topic.name, asked.partition_index)
                if log is None:
                    raise KafkaError(broker.missing_code(topic.name, asked.partition_index))
                log.check_leader_epoch(asked.current_leader_epoch)
                found = _look_up(log, asked.timestamp, committed=committed)
            except KafkaError as error:
                code = error.code
            timestamp, offset, leader_epoch = found
            if context.api_version < LEADER_EPOCH_SINCE:
                leader_epoch = NO_LEADER_EPOCH
            rows.append(ListOffsetsPartitionResponse(asked.partition_index, code, timestamp, offset, leader_epoch))
        topics.append(ListOffsetsTopicResponse(topic.name, rows))
    return ListOffsetsResponse(topics=topics)


def _is_committed(request: ListOffsetsRequest, version: int) -> bool:
    """Whether the last stable offset bounds what is told."""
    level = request.isolation_level if version >= ISOLATION_SINCE else Isolation.READ_UNCOMMITTED
    if level not in tuple(Isolation):
        raise KafkaError(Code.UNKNOWN_SERVER_ERROR, f"there is no isolation level {level}")
    return level == Isolation.READ_COMMITTED


def _look_up(log: Log, timestamp: int, *, committed: bool) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch)."""
    upper_bound = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST:
        return -1, upper_bound, log.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.epochs.epoch_of(log.log_start_offset)
    if timestamp == LATEST_TIERED:
        return NOT_FOUND
    at_highest = timestamp == MAX_TIMESTAMP
    found = log.offset_of_max_timestamp() if at_highest else log.offset_for_timestamp(timestamp, upper_bound_offset=upper_bound)
    return NOT_FOUND if found is None else (found[0], found[1], found[2])
