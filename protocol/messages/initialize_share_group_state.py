"""InitializeShareGroupState, API key 83: version 0, flexible from 0.

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

_INT32_2_TIMES_INT64 = struct.Struct(">iiq")
_INT32_INT16 = struct.Struct(">ih")


class PartitionData(Message):
    """A part of it.

    partition
    state_epoch
    start_offset
    """

    __slots__ = ("partition", "start_offset", "state_epoch")

    def __init__(self, partition: int = 0, state_epoch: int = 0, start_offset: int = 0) -> None:
        self.partition = partition
        self.state_epoch = state_epoch
        self.start_offset = start_offset

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionData, int]:
        partition, state_epoch, start_offset = _INT32_2_TIMES_INT64.unpack_from(data, at)
        at += 16
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition, state_epoch, start_offset), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_2_TIMES_INT64.pack(self.partition, self.state_epoch, self.start_offset)
        out.append(0)


class InitializeStateData(Message):
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[InitializeStateData, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, PartitionData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class InitializeShareGroupStateRequest(Message):
    """The request.

    group_id
    topics
    """

    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int] = 83
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"topics": "results"}

    def __init__(self, group_id: str = "", topics: list[InitializeStateData] | None = None) -> None:
        self.group_id = group_id
        self.topics: list[InitializeStateData] = [] if topics is None else topics

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[InitializeShareGroupStateRequest, int]:
        group_id, at = read_string(data, at, True)
        topics, at = read_structs(data, at, True, InitializeStateData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> InitializeShareGroupStateResponse:
        return InitializeShareGroupStateResponse(
            results=[
                InitializeStateResult(
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


class InitializeStateResult(Message):
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[InitializeStateResult, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, PartitionResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class InitializeShareGroupStateResponse(Message):
    """The response.

    results
    """

    __slots__ = ("results",)
    API_KEY: ClassVar[int] = 83
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(self, results: list[InitializeStateResult] | None = None) -> None:
        self.results: list[InitializeStateResult] = [] if results is None else results

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[InitializeShareGroupStateResponse, int]:
        results, at = read_structs(data, at, True, InitializeStateResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(results), at

    def write(self, out: bytearray, version: int) -> None:
        write_structs(out, self.results, True, version)
        out.append(0)
