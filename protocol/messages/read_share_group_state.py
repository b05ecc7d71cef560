"""ReadShareGroupState, API key 84: version 0, flexible from 0.

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

_INT32_2_TIMES = struct.Struct(">ii")
_INT32_INT16 = struct.Struct(">ih")
_INT32_INT64 = struct.Struct(">iq")
_INT64_2_TIMES_INT8_INT16 = struct.Struct(">qqbh")


class PartitionData(Message):
    """A part of it.

    partition
    leader_epoch
    """

    __slots__ = ("leader_epoch", "partition")

    def __init__(self, partition: int = 0, leader_epoch: int = 0) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionData, int]:
        partition, leader_epoch = _INT32_2_TIMES.unpack_from(data, at)
        at += 8
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition, leader_epoch), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_2_TIMES.pack(self.partition, self.leader_epoch)
        out.append(0)


class ReadStateData(Message):
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReadStateData, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, PartitionData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class ReadShareGroupStateRequest(Message):
    """The request.

    group_id
    topics
    """

    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int] = 84
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"topics": "results"}

    def __init__(self, group_id: str = "", topics: list[ReadStateData] | None = None) -> None:
        self.group_id = group_id
        self.topics: list[ReadStateData] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReadShareGroupStateRequest, int]:
        group_id, at = read_string(data, at, True)
        topics, at = read_structs(data, at, True, ReadStateData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> ReadShareGroupStateResponse:
        return ReadShareGroupStateResponse(
            results=[
                ReadStateResult(
                    row.topic_id, [PartitionResult(part.partition, code) for part in row.partitions]
                )
                for row in self.topics
            ]
        )


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


class PartitionResult(Message):
    """A part of it.

    partition
    error_code
    error_message
    state_epoch
    start_offset
    state_batches
    """

    __slots__ = (
        "error_code",
        "error_message",
        "partition",
        "start_offset",
        "state_batches",
        "state_epoch",
    )

    def __init__(
        self,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        start_offset: int = 0,
        state_batches: list[StateBatch] | None = None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.start_offset = start_offset
        self.state_batches: list[StateBatch] = [] if state_batches is None else state_batches

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionResult, int]:
        partition, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        state_epoch, start_offset = _INT32_INT64.unpack_from(data, at)
        at += 12
        state_batches, at = read_structs(data, at, True, StateBatch.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            partition, error_code, error_message, state_epoch, start_offset, state_batches
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.partition, self.error_code)
        write_nullable_string(out, self.error_message, True)
        out += _INT32_INT64.pack(self.state_epoch, self.start_offset)
        write_structs(out, self.state_batches, True, version)
        out.append(0)


class ReadStateResult(Message):
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReadStateResult, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, PartitionResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class ReadShareGroupStateResponse(Message):
    """The response.

    results
    """

    __slots__ = ("results",)
    API_KEY: ClassVar[int] = 84
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(self, results: list[ReadStateResult] | None = None) -> None:
        self.results: list[ReadStateResult] = [] if results is None else results

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReadShareGroupStateResponse, int]:
        results, at = read_structs(data, at, True, ReadStateResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(results), at

    def write(self, out: bytearray, version: int) -> None:
        write_structs(out, self.results, True, version)
        out.append(0)
