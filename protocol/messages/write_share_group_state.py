"""WriteShareGroupState, API key 85: versions 0 to 1, flexible from 0.

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
    skip_tags,
    write_nullable_string,
    write_string,
    write_structs,
    write_uuid,
)

_INT32 = struct.Struct(">i")
_INT32_3_TIMES_INT64 = struct.Struct(">iiiq")
_INT32_INT16 = struct.Struct(">ih")
_INT64_2_TIMES_INT8_INT16 = struct.Struct(">qqbh")


class StateBatch(Message):
    """A part of it.

    first_offset
    last_offset
    delivery_state
    delivery_count
    """

    __slots__ = ("delivery_count", "delivery_state", "first_offset", "last_offset")

    def __init__(
        self,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[StateBatch, int]:
        first_offset, last_offset, delivery_state, delivery_count = (
            _INT64_2_TIMES_INT8_INT16.unpack_from(data, at)
        )
        at += 19
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(first_offset, last_offset, delivery_state, delivery_count), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT64_2_TIMES_INT8_INT16.pack(
            self.first_offset, self.last_offset, self.delivery_state, self.delivery_count
        )
        out.append(0)


class PartitionData(Message):
    """A part of it.

    partition
    state_epoch
    leader_epoch
    start_offset
    delivery_complete_count (version 1)
    state_batches
    """

    __slots__ = (
        "delivery_complete_count",
        "leader_epoch",
        "partition",
        "start_offset",
        "state_batches",
        "state_epoch",
    )

    def __init__(
        self,
        partition: int = 0,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        state_batches: list[StateBatch] | None = None,
    ) -> None:
        self.partition = partition
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count
        self.state_batches: list[StateBatch] = [] if state_batches is None else state_batches

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionData, int]:
        partition, state_epoch, leader_epoch, start_offset = _INT32_3_TIMES_INT64.unpack_from(
            data, at
        )
        at += 20
        delivery_complete_count = -1
        if version >= 1:
            (delivery_complete_count,) = _INT32.unpack_from(data, at)
            at += 4
        state_batches, at = read_structs(data, at, True, StateBatch.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            partition,
            state_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
            state_batches,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_3_TIMES_INT64.pack(
            self.partition, self.state_epoch, self.leader_epoch, self.start_offset
        )
        if version >= 1:
            out += _INT32.pack(self.delivery_complete_count)
        write_structs(out, self.state_batches, True, version)
        out.append(0)


class WriteStateData(Message):
    """A part of it.

    topic_id
    partitions
    """

    __slots__ = ("partitions", "topic_id")

    def __init__(
        self, topic_id: uuid.UUID | None = None, partitions: list[PartitionData] | None = None
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[WriteStateData, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, PartitionData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class WriteShareGroupStateRequest(Message):
    """The request.

    group_id
    topics
    """

    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int] = 85
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"topics": "results"}

    def __init__(self, group_id: str = "", topics: list[WriteStateData] | None = None) -> None:
        self.group_id = group_id
        self.topics: list[WriteStateData] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[WriteShareGroupStateRequest, int]:
        group_id, at = read_string(data, at, True)
        topics, at = read_structs(data, at, True, WriteStateData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> WriteShareGroupStateResponse:
        return WriteShareGroupStateResponse(
            results=[
                WriteStateResult(
                    row.topic_id, [PartitionResult(part.partition, code) for part in row.partitions]
                )
                for row in self.topics
            ]
        )


class PartitionResult(Message):
    """A part of it.

    partition
    error_code
    error_message
    """

    __slots__ = ("error_code", "error_message", "partition")

    def __init__(
        self, partition: int = 0, error_code: int = 0, error_message: str | None = None
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionResult, int]:
        partition, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.partition, self.error_code)
        write_nullable_string(out, self.error_message, True)
        out.append(0)


class WriteStateResult(Message):
    """A part of it.

    topic_id
    partitions
    """

    __slots__ = ("partitions", "topic_id")

    def __init__(
        self, topic_id: uuid.UUID | None = None, partitions: list[PartitionResult] | None = None
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionResult] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[WriteStateResult, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, PartitionResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class WriteShareGroupStateResponse(Message):
    """The response.

    results
    """

    __slots__ = ("results",)
    API_KEY: ClassVar[int] = 85
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(self, results: list[WriteStateResult] | None = None) -> None:
        self.results: list[WriteStateResult] = [] if results is None else results

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[WriteShareGroupStateResponse, int]:
        results, at = read_structs(data, at, True, WriteStateResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(results), at

    def write(self, out: bytearray, version: int) -> None:
        write_structs(out, self.results, True, version)
        out.append(0)
