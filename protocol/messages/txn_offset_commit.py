"""TxnOffsetCommit, API key 28: versions 0 to 5, flexible from 3.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_string,
    read_string,
    read_structs,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_string,
    write_structs,
)

_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")
_INT32_INT64 = struct.Struct(">iq")
_INT64_INT16 = struct.Struct(">qh")


class TxnOffsetCommitRequestPartition(Message):
    """The partitions inside the topic that we want to commit offsets for.

    partition_index: The index of the partition within the topic.
    committed_offset: The message offset to be committed.
    committed_leader_epoch (from version 2): The leader epoch of the last consumed record.
    committed_metadata: Any associated metadata the client wants to keep.
    """

    __slots__ = (
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
        committed_metadata: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.committed_metadata = committed_metadata

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[TxnOffsetCommitRequestPartition, int]:
        compact = version >= 3
        partition_index, committed_offset = _INT32_INT64.unpack_from(data, at)
        at += 12
        committed_leader_epoch = -1
        if version >= 2:
            (committed_leader_epoch,) = _INT32.unpack_from(data, at)
            at += 4
        committed_metadata, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            partition_index, committed_offset, committed_leader_epoch, committed_metadata
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        out += _INT32_INT64.pack(self.partition_index, self.committed_offset)
        if version >= 2:
            out += _INT32.pack(self.committed_leader_epoch)
        write_nullable_string(out, self.committed_metadata, compact)
        if compact:
            out.append(0)


class TxnOffsetCommitRequestTopic(Message):
    """Each topic that we want to commit offsets for.

    name: The topic name.
    partitions: The partitions inside the topic that we want to commit offsets for.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[TxnOffsetCommitRequestPartition] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[TxnOffsetCommitRequestPartition] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TxnOffsetCommitRequestTopic, int]:
        compact = version >= 3
        name, at = read_string(data, at, compact)
        partitions, at = read_structs(
            data, at, compact, TxnOffsetCommitRequestPartition.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        write_string(out, self.name, compact)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class TxnOffsetCommitRequest(Message):
    """The request.

    transactional_id: The ID of the transaction.
    group_id: The ID of the group.
    producer_id: The current producer ID in use by the transactional ID.
    producer_epoch: The current epoch associated with the producer ID.
    generation_id (from version 3): The generation of the consumer.
    member_id (from version 3): The member ID assigned by the group coordinator.
    group_instance_id (from version 3): The unique identifier of the consumer instance provided
        by end user.
    topics: Each topic that we want to commit offsets for.
    """

    __slots__ = (
        "generation_id",
        "group_id",
        "group_instance_id",
        "member_id",
        "producer_epoch",
        "producer_id",
        "topics",
        "transactional_id",
    )
    API_KEY: ClassVar[int] = 28
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics"}

    def __init__(
        self,
        transactional_id: str = "",
        group_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        generation_id: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        topics: list[TxnOffsetCommitRequestTopic] | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.group_id = group_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.topics: list[TxnOffsetCommitRequestTopic] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TxnOffsetCommitRequest, int]:
        compact = version >= 3
        transactional_id, at = read_string(data, at, compact)
        group_id, at = read_string(data, at, compact)
        producer_id, producer_epoch = _INT64_INT16.unpack_from(data, at)
        at += 10
        generation_id = -1
        member_id = ""
        group_instance_id: str | None = None
        if version >= 3:
            (generation_id,) = _INT32.unpack_from(data, at)
            at += 4
            member_id, at = read_string(data, at, compact)
            group_instance_id, at = read_nullable_string(data, at, compact)
        topics, at = read_structs(data, at, compact, TxnOffsetCommitRequestTopic.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            transactional_id,
            group_id,
            producer_id,
            producer_epoch,
            generation_id,
            member_id,
            group_instance_id,
            topics,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        write_string(out, self.transactional_id, compact)
        write_string(out, self.group_id, compact)
        out += _INT64_INT16.pack(self.producer_id, self.producer_epoch)
        if version >= 3:
            out += _INT32.pack(self.generation_id)
            write_string(out, self.member_id, compact)
            write_nullable_string(out, self.group_instance_id, compact)
        elif self.generation_id != -1:
            refuse_value("generation_id", version)
        elif self.member_id != "":
            refuse_value("member_id", version)
        elif self.group_instance_id is not None:
            refuse_value("group_instance_id", version)
        write_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    row.name,
                    [
                        TxnOffsetCommitResponsePartition(part.partition_index, code)
                        for part in row.partitions
                    ],
                )
                for row in self.topics
            ]
        )


class TxnOffsetCommitResponsePartition(Message):
    """The responses for each partition in the topic.

    partition_index: The partition index.
    error_code: The error code, or 0 if there was no error.
    """

    __slots__ = ("error_code", "partition_index")

    def __init__(self, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[TxnOffsetCommitResponsePartition, int]:
        compact = version >= 3
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        out += _INT32_INT16.pack(self.partition_index, self.error_code)
        if compact:
            out.append(0)


class TxnOffsetCommitResponseTopic(Message):
    """The responses for each topic.

    name: The topic name.
    partitions: The responses for each partition in the topic.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[TxnOffsetCommitResponsePartition] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[TxnOffsetCommitResponsePartition] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TxnOffsetCommitResponseTopic, int]:
        compact = version >= 3
        name, at = read_string(data, at, compact)
        partitions, at = read_structs(
            data, at, compact, TxnOffsetCommitResponsePartition.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        write_string(out, self.name, compact)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class TxnOffsetCommitResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    topics: The responses for each topic.
    """

    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int] = 28
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    def __init__(
        self, throttle_time_ms: int = 0, topics: list[TxnOffsetCommitResponseTopic] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[TxnOffsetCommitResponseTopic] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TxnOffsetCommitResponse, int]:
        compact = version >= 3
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        topics, at = read_structs(data, at, compact, TxnOffsetCommitResponseTopic.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)
