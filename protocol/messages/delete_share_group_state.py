"""DeleteShareGroupState, API key 86: version 0, flexible from 0.

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
_INT32_INT16 = struct.Struct(">ih")


class PartitionData(Message):
    """A part of it.

    partition
    """

    __slots__ = ("partition",)

    def __init__(self, partition: int = 0) -> None:
        self.partition = partition

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionData, int]:
        (partition,) = _INT32.unpack_from(data, at)
        at += 4
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.partition)
        out.append(0)


class DeleteStateData(Message):
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteStateData, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, PartitionData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class DeleteShareGroupStateRequest(Message):
    """The request.

    group_id
    topics
    """

    __slots__ = ("group_id", "topics")
    API_KEY: ClassVar[int] = 86
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"topics": "results"}

    def __init__(self, group_id: str = "", topics: list[DeleteStateData] | None = None) -> None:
        self.group_id = group_id
        self.topics: list[DeleteStateData] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteShareGroupStateRequest, int]:
        group_id, at = read_string(data, at, True)
        topics, at = read_structs(data, at, True, DeleteStateData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> DeleteShareGroupStateResponse:
        return DeleteShareGroupStateResponse(
            results=[
                DeleteStateResult(
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


class DeleteStateResult(Message):
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteStateResult, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, PartitionResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class DeleteShareGroupStateResponse(Message):
    """The response.

    results
    """

    __slots__ = ("results",)
    API_KEY: ClassVar[int] = 86
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(self, results: list[DeleteStateResult] | None = None) -> None:
        self.results: list[DeleteStateResult] = [] if results is None else results

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DeleteShareGroupStateResponse, int]:
        results, at = read_structs(data, at, True, DeleteStateResult.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(results), at

    def write(self, out: bytearray, version: int) -> None:
        write_structs(out, self.results, True, version)
        out.append(0)
