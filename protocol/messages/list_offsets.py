"""ListOffsets, API key 2: versions 0 to 11, flexible from 6.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_numbers,
    read_string,
    read_structs,
    refuse_value,
    skip_tags,
    write_numbers,
    write_string,
    write_structs,
)

_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")
_INT64 = struct.Struct(">q")
_INT64_2_TIMES = struct.Struct(">qq")
_INT8 = struct.Struct(">b")


class ListOffsetsPartition(Message):
    """Each partition in the request.

    partition_index: The partition index.
    current_leader_epoch (from version 4): The current leader epoch.
    timestamp: The current timestamp.
    max_num_offsets (version 0): The maximum number of offsets to report.
    """

    __slots__ = ("current_leader_epoch", "max_num_offsets", "partition_index", "timestamp")

    def __init__(
        self,
        partition_index: int = 0,
        current_leader_epoch: int = -1,
        timestamp: int = 0,
        max_num_offsets: int = 1,
    ) -> None:
        self.partition_index = partition_index
        self.current_leader_epoch = current_leader_epoch
        self.timestamp = timestamp
        self.max_num_offsets = max_num_offsets

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListOffsetsPartition, int]:
        compact = version >= 6
        (partition_index,) = _INT32.unpack_from(data, at)
        at += 4
        current_leader_epoch = -1
        if version >= 4:
            (current_leader_epoch,) = _INT32.unpack_from(data, at)
            at += 4
        (timestamp,) = _INT64.unpack_from(data, at)
        at += 8
        max_num_offsets = 1
        if version <= 0:
            (max_num_offsets,) = _INT32.unpack_from(data, at)
            at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, current_leader_epoch, timestamp, max_num_offsets), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        out += _INT32.pack(self.partition_index)
        if version >= 4:
            out += _INT32.pack(self.current_leader_epoch)
        out += _INT64.pack(self.timestamp)
        if version <= 0:
            out += _INT32.pack(self.max_num_offsets)
        elif self.max_num_offsets != 1:
            refuse_value("max_num_offsets", version)
        if compact:
            out.append(0)


class ListOffsetsTopic(Message):
    """Each topic in the request.

    name: The topic name.
    partitions: Each partition in the request.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[ListOffsetsPartition] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[ListOffsetsPartition] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListOffsetsTopic, int]:
        compact = version >= 6
        name, at = read_string(data, at, compact)
        partitions, at = read_structs(data, at, compact, ListOffsetsPartition.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        write_string(out, self.name, compact)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class ListOffsetsRequest(Message):
    """The request.

    replica_id: The broker ID of the requester, or -1 if this request is being made by a normal
        consumer.
    isolation_level (from version 2): This setting controls the visibility of transactional
        records. Using READ_UNCOMMITTED (isolation_level = 0) makes all records visible. With
        READ_COMMITTED (isolation_level = 1), non-transactional and COMMITTED transactional
        records are visible. To be more concrete, READ_COMMITTED returns all data from offsets
        smaller than the current LSO (last stable offset), and enables the inclusion of the list
        of aborted transactions in the result, which allows consumers to discard ABORTED
        transactional records.
    topics: Each topic in the request.
    timeout_ms (from version 10): The timeout to await a response in milliseconds for requests
        that require reading from remote storage for topics enabled with tiered storage.
    """

    __slots__ = ("isolation_level", "replica_id", "timeout_ms", "topics")
    API_KEY: ClassVar[int] = 2
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 11
    FLEXIBLE_FROM: ClassVar[int] = 6
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics"}

    def __init__(
        self,
        replica_id: int = 0,
        isolation_level: int = 0,
        topics: list[ListOffsetsTopic] | None = None,
        timeout_ms: int = 0,
    ) -> None:
        self.replica_id = replica_id
        self.isolation_level = isolation_level
        self.topics: list[ListOffsetsTopic] = [] if topics is None else topics
        self.timeout_ms = timeout_ms

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListOffsetsRequest, int]:
        compact = version >= 6
        (replica_id,) = _INT32.unpack_from(data, at)
        at += 4
        isolation_level = 0
        if version >= 2:
            (isolation_level,) = _INT8.unpack_from(data, at)
            at += 1
        topics, at = read_structs(data, at, compact, ListOffsetsTopic.read, version)
        timeout_ms = 0
        if version >= 10:
            (timeout_ms,) = _INT32.unpack_from(data, at)
            at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(replica_id, isolation_level, topics, timeout_ms), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        out += _INT32.pack(self.replica_id)
        if version >= 2:
            out += _INT8.pack(self.isolation_level)
        elif self.isolation_level != 0:
            refuse_value("isolation_level", version)
        write_structs(out, self.topics, compact, version)
        if version >= 10:
            out += _INT32.pack(self.timeout_ms)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    row.name,
                    [
                        ListOffsetsPartitionResponse(part.partition_index, code)
                        for part in row.partitions
                    ],
                )
                for row in self.topics
            ]
        )


class ListOffsetsPartitionResponse(Message):
    """Each partition in the response.

    partition_index: The partition index.
    error_code: The partition error code, or 0 if there was no error.
    old_style_offsets (version 0): The result offsets.
    timestamp (from version 1): The timestamp associated with the returned offset.
    offset (from version 1): The returned offset.
    leader_epoch (from version 4): The leader epoch associated with the returned offset.
    """

    __slots__ = (
        "error_code",
        "leader_epoch",
        "offset",
        "old_style_offsets",
        "partition_index",
        "timestamp",
    )

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        old_style_offsets: list[int] | None = None,
        timestamp: int = -1,
        offset: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.old_style_offsets: list[int] = [] if old_style_offsets is None else old_style_offsets
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListOffsetsPartitionResponse, int]:
        compact = version >= 6
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        old_style_offsets: list[int] = []
        if version <= 0:
            old_style_offsets, at = read_numbers(data, at, compact, "q")
        timestamp = -1
        offset = -1
        if version >= 1:
            timestamp, offset = _INT64_2_TIMES.unpack_from(data, at)
            at += 16
        leader_epoch = -1
        if version >= 4:
            (leader_epoch,) = _INT32.unpack_from(data, at)
            at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            partition_index, error_code, old_style_offsets, timestamp, offset, leader_epoch
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        out += _INT32_INT16.pack(self.partition_index, self.error_code)
        if version <= 0:
            write_numbers(out, self.old_style_offsets, compact, "q")
        elif self.old_style_offsets != []:
            refuse_value("old_style_offsets", version)
        if version >= 1:
            out += _INT64_2_TIMES.pack(self.timestamp, self.offset)
        elif self.timestamp != -1:
            refuse_value("timestamp", version)
        elif self.offset != -1:
            refuse_value("offset", version)
        if version >= 4:
            out += _INT32.pack(self.leader_epoch)
        elif self.leader_epoch != -1:
            refuse_value("leader_epoch", version)
        if compact:
            out.append(0)


class ListOffsetsTopicResponse(Message):
    """Each topic in the response.

    name: The topic name.
    partitions: Each partition in the response.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[ListOffsetsPartitionResponse] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[ListOffsetsPartitionResponse] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListOffsetsTopicResponse, int]:
        compact = version >= 6
        name, at = read_string(data, at, compact)
        partitions, at = read_structs(data, at, compact, ListOffsetsPartitionResponse.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        write_string(out, self.name, compact)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class ListOffsetsResponse(Message):
    """The response.

    throttle_time_ms (from version 2): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    topics: Each topic in the response.
    """

    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int] = 2
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 11
    FLEXIBLE_FROM: ClassVar[int] = 6

    def __init__(
        self, throttle_time_ms: int = 0, topics: list[ListOffsetsTopicResponse] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[ListOffsetsTopicResponse] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListOffsetsResponse, int]:
        compact = version >= 6
        throttle_time_ms = 0
        if version >= 2:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        topics, at = read_structs(data, at, compact, ListOffsetsTopicResponse.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if version >= 2:
            out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)
