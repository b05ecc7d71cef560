"""ReadShareGroupStateSummary, API key 87: versions 0 to 1, flexible from 0.

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
_INT32_2_TIMES = struct.Struct(">ii")
_INT32_2_TIMES_INT64 = struct.Struct(">iiq")
_INT32_INT16 = struct.Struct(">ih")


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


class ReadStateSummaryData(Message):
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReadStateSummaryData, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, PartitionData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class ReadShareGroupStateSummaryRequest(Message):
    """The request.

    group_id
    topics
    """

    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int] = 87
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"topics": "results"}

    def __init__(
        self, group_id: str = "", topics: list[ReadStateSummaryData] | None = None
    ) -> None:
        self.group_id = group_id
        self.topics: list[ReadStateSummaryData] = [] if topics is None else topics

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[ReadShareGroupStateSummaryRequest, int]:
        group_id, at = read_string(data, at, True)
        topics, at = read_structs(data, at, True, ReadStateSummaryData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> ReadShareGroupStateSummaryResponse:
        return ReadShareGroupStateSummaryResponse(
            results=[
                ReadStateSummaryResult(
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
    state_epoch
    leader_epoch
    start_offset
    delivery_complete_count (version 1)
    """

    __slots__ = (
        "delivery_complete_count",
        "error_code",
        "error_message",
        "leader_epoch",
        "partition",
        "start_offset",
        "state_epoch",
    )

    def __init__(
        self,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionResult, int]:
        partition, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        state_epoch, leader_epoch, start_offset = _INT32_2_TIMES_INT64.unpack_from(data, at)
        at += 16
        delivery_complete_count = -1
        if version >= 1:
            (delivery_complete_count,) = _INT32.unpack_from(data, at)
            at += 4
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            partition,
            error_code,
            error_message,
            state_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.partition, self.error_code)
        write_nullable_string(out, self.error_message, True)
        out += _INT32_2_TIMES_INT64.pack(self.state_epoch, self.leader_epoch, self.start_offset)
        if version >= 1:
            out += _INT32.pack(self.delivery_complete_count)
        out.append(0)


class ReadStateSummaryResult(Message):
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReadStateSummaryResult, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, PartitionResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class ReadShareGroupStateSummaryResponse(Message):
    """The response.

    results
    """

    __slots__ = ("results",)
    API_KEY: ClassVar[int] = 87
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(self, results: list[ReadStateSummaryResult] | None = None) -> None:
        self.results: list[ReadStateSummaryResult] = [] if results is None else results

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[ReadShareGroupStateSummaryResponse, int]:
        results, at = read_structs(data, at, True, ReadStateSummaryResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(results), at

    def write(self, out: bytearray, version: int) -> None:
        write_structs(out, self.results, True, version)
        out.append(0)
