"""OffsetForLeaderEpoch, API key 23: versions 0 to 4, flexible from 4.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_string,
    read_structs,
    skip_tags,
    write_string,
    write_structs,
)

_INT16_INT32 = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class OffsetForLeaderPartition(Message):
    """Each partition to get offsets for.

    partition: The partition index.
    current_leader_epoch (from version 2): An epoch used to fence consumers/replicas with old
        metadata. If the epoch provided by the client is larger than the current epoch known to
        the broker, then the UNKNOWN_LEADER_EPOCH error code will be returned. If the provided
        epoch is smaller, then the FENCED_LEADER_EPOCH error code will be returned.
    leader_epoch: The epoch to look up an offset for.
    """

    __slots__ = ("current_leader_epoch", "leader_epoch", "partition")

    def __init__(
        self, partition: int = 0, current_leader_epoch: int = -1, leader_epoch: int = 0
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.leader_epoch = leader_epoch

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetForLeaderPartition, int]:
        compact = version >= 4
        (partition,) = _INT32.unpack_from(data, at)
        at += 4
        current_leader_epoch = -1
        if version >= 2:
            (current_leader_epoch,) = _INT32.unpack_from(data, at)
            at += 4
        (leader_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition, current_leader_epoch, leader_epoch), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        out += _INT32.pack(self.partition)
        if version >= 2:
            out += _INT32.pack(self.current_leader_epoch)
        out += _INT32.pack(self.leader_epoch)
        if compact:
            out.append(0)


class OffsetForLeaderTopic(Message):
    """Each topic to get offsets for.

    topic: The topic name.
    partitions: Each partition to get offsets for.
    """

    __slots__ = ("partitions", "topic")

    def __init__(
        self, topic: str = "", partitions: list[OffsetForLeaderPartition] | None = None
    ) -> None:
        self.topic = topic
        self.partitions: list[OffsetForLeaderPartition] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetForLeaderTopic, int]:
        compact = version >= 4
        topic, at = read_string(data, at, compact)
        partitions, at = read_structs(data, at, compact, OffsetForLeaderPartition.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        write_string(out, self.topic, compact)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class OffsetForLeaderEpochRequest(Message):
    """The request.

    replica_id (from version 3): The broker ID of the follower, of -1 if this request is from a
        consumer.
    topics: Each topic to get offsets for.
    """

    __slots__ = ("replica_id", "topics")
    API_KEY: ClassVar[int] = 23
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics"}

    def __init__(
        self, replica_id: int = -2, topics: list[OffsetForLeaderTopic] | None = None
    ) -> None:
        self.replica_id = replica_id
        self.topics: list[OffsetForLeaderTopic] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetForLeaderEpochRequest, int]:
        compact = version >= 4
        replica_id = -2
        if version >= 3:
            (replica_id,) = _INT32.unpack_from(data, at)
            at += 4
        topics, at = read_structs(data, at, compact, OffsetForLeaderTopic.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(replica_id, topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if version >= 3:
            out += _INT32.pack(self.replica_id)
        write_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    row.topic, [EpochEndOffset(code, part.partition) for part in row.partitions]
                )
                for row in self.topics
            ]
        )


class EpochEndOffset(Message):
    """Each partition in the topic we fetched offsets for.

    error_code: The error code 0, or if there was no error.
    partition: The partition index.
    leader_epoch (from version 1): The leader epoch of the partition.
    end_offset: The end offset of the epoch.
    """

    __slots__ = ("end_offset", "error_code", "leader_epoch", "partition")

    def __init__(
        self, error_code: int = 0, partition: int = 0, leader_epoch: int = -1, end_offset: int = -1
    ) -> None:
        self.error_code = error_code
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[EpochEndOffset, int]:
        compact = version >= 4
        error_code, partition = _INT16_INT32.unpack_from(data, at)
        at += 6
        leader_epoch = -1
        if version >= 1:
            (leader_epoch,) = _INT32.unpack_from(data, at)
            at += 4
        (end_offset,) = _INT64.unpack_from(data, at)
        at += 8
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(error_code, partition, leader_epoch, end_offset), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        out += _INT16_INT32.pack(self.error_code, self.partition)
        if version >= 1:
            out += _INT32.pack(self.leader_epoch)
        out += _INT64.pack(self.end_offset)
        if compact:
            out.append(0)


class OffsetForLeaderTopicResult(Message):
    """Each topic we fetched offsets for.

    topic: The topic name.
    partitions: Each partition in the topic we fetched offsets for.
    """

    __slots__ = ("partitions", "topic")

    def __init__(self, topic: str = "", partitions: list[EpochEndOffset] | None = None) -> None:
        self.topic = topic
        self.partitions: list[EpochEndOffset] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetForLeaderTopicResult, int]:
        compact = version >= 4
        topic, at = read_string(data, at, compact)
        partitions, at = read_structs(data, at, compact, EpochEndOffset.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        write_string(out, self.topic, compact)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class OffsetForLeaderEpochResponse(Message):
    """The response.

    throttle_time_ms (from version 2): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    topics: Each topic we fetched offsets for.
    """

    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int] = 23
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    def __init__(
        self, throttle_time_ms: int = 0, topics: list[OffsetForLeaderTopicResult] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetForLeaderTopicResult] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetForLeaderEpochResponse, int]:
        compact = version >= 4
        throttle_time_ms = 0
        if version >= 2:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        topics, at = read_structs(data, at, compact, OffsetForLeaderTopicResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 4
        if version >= 2:
            out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)
