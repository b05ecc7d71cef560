"""ElectLeaders, API key 43: versions 0 to 2, flexible from 2.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import NOTHING, Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_string,
    read_nullable_structs,
    read_numbers,
    read_string,
    read_structs,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_nullable_structs,
    write_numbers,
    write_string,
    write_structs,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")
_INT8 = struct.Struct(">b")


class TopicPartitions(Message):
    """The topic partitions to elect leaders.

    topic: The name of a topic.
    partitions: The partitions of this topic whose leader should be elected.
    """

    __slots__ = ("partitions", "topic")

    def __init__(self, topic: str = "", partitions: list[int] | None = None) -> None:
        self.topic = topic
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicPartitions, int]:
        compact = version >= 2
        topic, at = read_string(data, at, compact)
        partitions, at = read_numbers(data, at, compact, "i")
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.topic, compact)
        write_numbers(out, self.partitions, compact, "i")
        if compact:
            out.append(0)


class ElectLeadersRequest(Message):
    """The request.

    election_type (from version 1): Type of elections to conduct for the partition. A value of
        '0' elects the preferred replica. A value of '1' elects the first live replica if there
        are no in-sync replica.
    topic_partitions: The topic partitions to elect leaders.
    timeout_ms: The time in ms to wait for the election to complete.
    """

    __slots__ = ("election_type", "timeout_ms", "topic_partitions")
    API_KEY: ClassVar[int] = 43
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2
    ROWS: ClassVar[dict[str, str]] = {"topic_partitions": "replica_election_results"}

    def __init__(
        self,
        election_type: int = 0,
        topic_partitions: list[TopicPartitions] | None = NOTHING,
        timeout_ms: int = 60000,
    ) -> None:
        self.election_type = election_type
        self.topic_partitions: list[TopicPartitions] | None = (
            [] if topic_partitions is NOTHING else topic_partitions
        )
        self.timeout_ms = timeout_ms

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ElectLeadersRequest, int]:
        compact = version >= 2
        election_type = 0
        if version >= 1:
            (election_type,) = _INT8.unpack_from(data, at)
            at += 1
        topic_partitions, at = read_nullable_structs(
            data, at, compact, TopicPartitions.read, version
        )
        (timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(election_type, topic_partitions, timeout_ms), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        if version >= 1:
            out += _INT8.pack(self.election_type)
        elif self.election_type != 0:
            refuse_value("election_type", version)
        write_nullable_structs(out, self.topic_partitions, compact, version)
        out += _INT32.pack(self.timeout_ms)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> ElectLeadersResponse:
        if version <= 0:
            return ElectLeadersResponse(
                replica_election_results=[
                    ReplicaElectionResult(
                        row.topic, [PartitionResult(part, code, None) for part in row.partitions]
                    )
                    for row in self.topic_partitions or ()
                ]
            )
        return ElectLeadersResponse(
            error_code=code,
            replica_election_results=[
                ReplicaElectionResult(
                    row.topic, [PartitionResult(part, code, None) for part in row.partitions]
                )
                for row in self.topic_partitions or ()
            ],
        )


class PartitionResult(Message):
    """The results for each partition.

    partition_id: The partition id.
    error_code: The result error, or zero if there was no error.
    error_message: The result message, or null if there was no error.
    """

    __slots__ = ("error_code", "error_message", "partition_id")

    def __init__(
        self, partition_id: int = 0, error_code: int = 0, error_message: str | None = ""
    ) -> None:
        self.partition_id = partition_id
        self.error_code = error_code
        self.error_message = error_message

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionResult, int]:
        compact = version >= 2
        partition_id, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_id, error_code, error_message), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32_INT16.pack(self.partition_id, self.error_code)
        write_nullable_string(out, self.error_message, compact)
        if compact:
            out.append(0)


class ReplicaElectionResult(Message):
    """The election results, or an empty array if the requester did not have permission and the
    request asks for all partitions.

    topic: The topic name.
    partition_result: The results for each partition.
    """

    __slots__ = ("partition_result", "topic")

    def __init__(
        self, topic: str = "", partition_result: list[PartitionResult] | None = None
    ) -> None:
        self.topic = topic
        self.partition_result: list[PartitionResult] = (
            [] if partition_result is None else partition_result
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReplicaElectionResult, int]:
        compact = version >= 2
        topic, at = read_string(data, at, compact)
        partition_result, at = read_structs(data, at, compact, PartitionResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic, partition_result), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_string(out, self.topic, compact)
        write_structs(out, self.partition_result, compact, version)
        if compact:
            out.append(0)


class ElectLeadersResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code (from version 1): The top level response error code.
    replica_election_results: The election results, or an empty array if the requester did not
        have permission and the request asks for all partitions.
    """

    __slots__ = ("error_code", "replica_election_results", "throttle_time_ms")
    API_KEY: ClassVar[int] = 43
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        replica_election_results: list[ReplicaElectionResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.replica_election_results: list[ReplicaElectionResult] = (
            [] if replica_election_results is None else replica_election_results
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ElectLeadersResponse, int]:
        compact = version >= 2
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        error_code = 0
        if version >= 1:
            (error_code,) = _INT16.unpack_from(data, at)
            at += 2
        replica_election_results, at = read_structs(
            data, at, compact, ReplicaElectionResult.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, replica_election_results), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32.pack(self.throttle_time_ms)
        if version >= 1:
            out += _INT16.pack(self.error_code)
        elif self.error_code != 0:
            refuse_value("error_code", version)
        write_structs(out, self.replica_election_results, compact, version)
        if compact:
            out.append(0)
