"""OffsetCommit, API key 8: versions 0 to 10, flexible from 8.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
import uuid
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_string,
    read_string,
    read_structs,
    read_uuid,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_string,
    write_structs,
    write_uuid,
)

_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")
_INT32_INT64 = struct.Struct(">iq")
_INT64 = struct.Struct(">q")


class OffsetCommitRequestPartition(Message):
    """Each partition to commit offsets for.

    partition_index: The partition index.
    committed_offset: The message offset to be committed.
    committed_leader_epoch (from version 6): The leader epoch of this partition.
    commit_timestamp (version 1): The timestamp of the commit.
    committed_metadata: Any associated metadata the client wants to keep.
    """

    __slots__ = (
        "commit_timestamp",
        "committed_leader_epoch",
        "committed_metadata",
        "committed_offset",
        "partition_index",
    )

    def __init__(
        self,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        commit_timestamp: int = -1,
        committed_metadata: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.commit_timestamp = commit_timestamp
        self.committed_metadata = committed_metadata

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetCommitRequestPartition, int]:
        compact = version >= 8
        partition_index, committed_offset = _INT32_INT64.unpack_from(data, at)
        at += 12
        committed_leader_epoch = -1
        if version >= 6:
            (committed_leader_epoch,) = _INT32.unpack_from(data, at)
            at += 4
        commit_timestamp = -1
        if version == 1:
            (commit_timestamp,) = _INT64.unpack_from(data, at)
            at += 8
        committed_metadata, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            partition_index,
            committed_offset,
            committed_leader_epoch,
            commit_timestamp,
            committed_metadata,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 8
        out += _INT32_INT64.pack(self.partition_index, self.committed_offset)
        if version >= 6:
            out += _INT32.pack(self.committed_leader_epoch)
        if version == 1:
            out += _INT64.pack(self.commit_timestamp)
        elif self.commit_timestamp != -1:
            refuse_value("commit_timestamp", version)
        write_nullable_string(out, self.committed_metadata, compact)
        if compact:
            out.append(0)


class OffsetCommitRequestTopic(Message):
    """The topics to commit offsets for.

    name (versions 0 to 9): The topic name.
    topic_id (version 10): The topic ID.
    partitions: Each partition to commit offsets for.
    """

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(
        self,
        name: str = "",
        topic_id: uuid.UUID | None = None,
        partitions: list[OffsetCommitRequestPartition] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[OffsetCommitRequestPartition] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetCommitRequestTopic, int]:
        compact = version >= 8
        name = ""
        if version <= 9:
            name, at = read_string(data, at, compact)
        topic_id: uuid.UUID | None = None
        if version >= 10:
            topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, compact, OffsetCommitRequestPartition.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 8
        if version <= 9:
            write_string(out, self.name, compact)
        if version >= 10:
            write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class OffsetCommitRequest(Message):
    """The request.

    group_id: The unique group identifier.
    generation_id_or_member_epoch (from version 1): The generation of the group if using the
        classic group protocol or the member epoch if using the consumer protocol.
    member_id (from version 1): The member ID assigned by the group coordinator.
    group_instance_id (from version 7): The unique identifier of the consumer instance provided
        by end user.
    retention_time_ms (versions 2 to 4): The time period in ms to retain the offset.
    topics: The topics to commit offsets for.
    """

    __slots__ = (
        "generation_id_or_member_epoch",
        "group_id",
        "group_instance_id",
        "member_id",
        "retention_time_ms",
        "topics",
    )
    API_KEY: ClassVar[int] = 8
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 8
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics"}

    def __init__(
        self,
        group_id: str = "",
        generation_id_or_member_epoch: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        retention_time_ms: int = -1,
        topics: list[OffsetCommitRequestTopic] | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation_id_or_member_epoch = generation_id_or_member_epoch
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.retention_time_ms = retention_time_ms
        self.topics: list[OffsetCommitRequestTopic] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetCommitRequest, int]:
        compact = version >= 8
        group_id, at = read_string(data, at, compact)
        generation_id_or_member_epoch = -1
        member_id = ""
        if version >= 1:
            (generation_id_or_member_epoch,) = _INT32.unpack_from(data, at)
            at += 4
            member_id, at = read_string(data, at, compact)
        group_instance_id: str | None = None
        if version >= 7:
            group_instance_id, at = read_nullable_string(data, at, compact)
        retention_time_ms = -1
        if 2 <= version <= 4:
            (retention_time_ms,) = _INT64.unpack_from(data, at)
            at += 8
        topics, at = read_structs(data, at, compact, OffsetCommitRequestTopic.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            group_id,
            generation_id_or_member_epoch,
            member_id,
            group_instance_id,
            retention_time_ms,
            topics,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 8
        write_string(out, self.group_id, compact)
        if version >= 1:
            out += _INT32.pack(self.generation_id_or_member_epoch)
            write_string(out, self.member_id, compact)
        if version >= 7:
            write_nullable_string(out, self.group_instance_id, compact)
        elif self.group_instance_id is not None:
            refuse_value("group_instance_id", version)
        if 2 <= version <= 4:
            out += _INT64.pack(self.retention_time_ms)
        write_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    row.name,
                    row.topic_id,
                    [
                        OffsetCommitResponsePartition(part.partition_index, code)
                        for part in row.partitions
                    ],
                )
                for row in self.topics
            ]
        )


class OffsetCommitResponsePartition(Message):
    """The responses for each partition in the topic.

    partition_index: The partition index.
    error_code: The error code, or 0 if there was no error.
    """

    __slots__ = ("error_code", "partition_index")

    def __init__(self, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetCommitResponsePartition, int]:
        compact = version >= 8
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 8
        out += _INT32_INT16.pack(self.partition_index, self.error_code)
        if compact:
            out.append(0)


class OffsetCommitResponseTopic(Message):
    """The responses for each topic.

    name (versions 0 to 9): The topic name.
    topic_id (version 10): The topic ID.
    partitions: The responses for each partition in the topic.
    """

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(
        self,
        name: str = "",
        topic_id: uuid.UUID | None = None,
        partitions: list[OffsetCommitResponsePartition] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[OffsetCommitResponsePartition] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetCommitResponseTopic, int]:
        compact = version >= 8
        name = ""
        if version <= 9:
            name, at = read_string(data, at, compact)
        topic_id: uuid.UUID | None = None
        if version >= 10:
            topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(
            data, at, compact, OffsetCommitResponsePartition.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 8
        if version <= 9:
            write_string(out, self.name, compact)
        if version >= 10:
            write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class OffsetCommitResponse(Message):
    """The response.

    throttle_time_ms (from version 3): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    topics: The responses for each topic.
    """

    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int] = 8
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 8

    def __init__(
        self, throttle_time_ms: int = 0, topics: list[OffsetCommitResponseTopic] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetCommitResponseTopic] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetCommitResponse, int]:
        compact = version >= 8
        throttle_time_ms = 0
        if version >= 3:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        topics, at = read_structs(data, at, compact, OffsetCommitResponseTopic.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 8
        if version >= 3:
            out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)
