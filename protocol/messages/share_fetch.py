"""ShareFetch, API key 78: versions 1 to 2, flexible from 1.

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
    read_nullable_records,
    read_nullable_string,
    read_numbers,
    read_string,
    read_structs,
    read_uuid,
    refuse_value,
    skip_tags,
    write_nullable_bytes,
    write_nullable_string,
    write_numbers,
    write_string,
    write_structs,
    write_uuid,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_2_TIMES = struct.Struct(">ii")
_INT32_6_TIMES = struct.Struct(">iiiiii")
_INT32_INT16 = struct.Struct(">ih")
_INT64_2_TIMES = struct.Struct(">qq")
_INT64_2_TIMES_INT16 = struct.Struct(">qqh")
_INT8_BOOL = struct.Struct(">b?")


class AcknowledgementBatch(Message):
    """A part of it.

    first_offset
    last_offset
    acknowledge_types
    """

    __slots__ = ("acknowledge_types", "first_offset", "last_offset")

    def __init__(
        self,
        first_offset: int = 0,
        last_offset: int = 0,
        acknowledge_types: list[int] | None = None,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.acknowledge_types: list[int] = [] if acknowledge_types is None else acknowledge_types

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AcknowledgementBatch, int]:
        first_offset, last_offset = _INT64_2_TIMES.unpack_from(data, at)
        at += 16
        acknowledge_types, at = read_numbers(data, at, True, "b")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(first_offset, last_offset, acknowledge_types), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT64_2_TIMES.pack(self.first_offset, self.last_offset)
        write_numbers(out, self.acknowledge_types, True, "b")
        out.append(0)


class FetchPartition(Message):
    """A part of it.

    partition_index
    acknowledgement_batches
    """

    __slots__ = ("acknowledgement_batches", "partition_index")

    def __init__(
        self,
        partition_index: int = 0,
        acknowledgement_batches: list[AcknowledgementBatch] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.acknowledgement_batches: list[AcknowledgementBatch] = (
            [] if acknowledgement_batches is None else acknowledgement_batches
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[FetchPartition, int]:
        (partition_index,) = _INT32.unpack_from(data, at)
        at += 4
        acknowledgement_batches, at = read_structs(
            data, at, True, AcknowledgementBatch.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, acknowledgement_batches), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.partition_index)
        write_structs(out, self.acknowledgement_batches, True, version)
        out.append(0)


class FetchTopic(Message):
    """A part of it.

    topic_id
    partitions
    """

    __slots__ = ("partitions", "topic_id")

    def __init__(
        self, topic_id: uuid.UUID | None = None, partitions: list[FetchPartition] | None = None
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[FetchPartition] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[FetchTopic, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, FetchPartition.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class ForgottenTopic(Message):
    """A part of it.

    topic_id
    partitions
    """

    __slots__ = ("partitions", "topic_id")

    def __init__(
        self, topic_id: uuid.UUID | None = None, partitions: list[int] | None = None
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ForgottenTopic, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_numbers(out, self.partitions, True, "i")
        out.append(0)


class ShareFetchRequest(Message):
    """The request.

    group_id
    member_id
    share_session_epoch
    max_wait_ms
    min_bytes
    max_bytes
    max_records
    batch_size
    share_acquire_mode (version 2)
    is_renew_ack (version 2)
    topics
    forgotten_topics_data
    """

    __slots__ = (
        "batch_size",
        "forgotten_topics_data",
        "group_id",
        "is_renew_ack",
        "max_bytes",
        "max_records",
        "max_wait_ms",
        "member_id",
        "min_bytes",
        "share_acquire_mode",
        "share_session_epoch",
        "topics",
    )
    API_KEY: ClassVar[int] = 78
    FIRST_VERSION: ClassVar[int] = 1
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 1
    ROWS: ClassVar[dict[str, str]] = {"topics": "responses"}

    def __init__(
        self,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        max_records: int = 0,
        batch_size: int = 0,
        share_acquire_mode: int = 0,
        is_renew_ack: bool = False,
        topics: list[FetchTopic] | None = None,
        forgotten_topics_data: list[ForgottenTopic] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.share_session_epoch = share_session_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.batch_size = batch_size
        self.share_acquire_mode = share_acquire_mode
        self.is_renew_ack = is_renew_ack
        self.topics: list[FetchTopic] = [] if topics is None else topics
        self.forgotten_topics_data: list[ForgottenTopic] = (
            [] if forgotten_topics_data is None else forgotten_topics_data
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ShareFetchRequest, int]:
        group_id, at = read_nullable_string(data, at, True)
        member_id, at = read_nullable_string(data, at, True)
        share_session_epoch, max_wait_ms, min_bytes, max_bytes, max_records, batch_size = (
            _INT32_6_TIMES.unpack_from(data, at)
        )
        at += 24
        share_acquire_mode = 0
        is_renew_ack = False
        if version >= 2:
            share_acquire_mode, is_renew_ack = _INT8_BOOL.unpack_from(data, at)
            at += 2
        topics, at = read_structs(data, at, True, FetchTopic.read, version)
        forgotten_topics_data, at = read_structs(data, at, True, ForgottenTopic.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            group_id,
            member_id,
            share_session_epoch,
            max_wait_ms,
            min_bytes,
            max_bytes,
            max_records,
            batch_size,
            share_acquire_mode,
            is_renew_ack,
            topics,
            forgotten_topics_data,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        write_nullable_string(out, self.group_id, True)
        write_nullable_string(out, self.member_id, True)
        out += _INT32_6_TIMES.pack(
            self.share_session_epoch,
            self.max_wait_ms,
            self.min_bytes,
            self.max_bytes,
            self.max_records,
            self.batch_size,
        )
        if version >= 2:
            out += _INT8_BOOL.pack(self.share_acquire_mode, self.is_renew_ack)
        elif self.is_renew_ack:
            refuse_value("is_renew_ack", version)
        write_structs(out, self.topics, True, version)
        write_structs(out, self.forgotten_topics_data, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> ShareFetchResponse:
        return ShareFetchResponse(error_code=code)


class LeaderIdAndEpoch(Message):
    """A part of it.

    leader_id
    leader_epoch
    """

    __slots__ = ("leader_epoch", "leader_id")

    def __init__(self, leader_id: int = 0, leader_epoch: int = 0) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[LeaderIdAndEpoch, int]:
        leader_id, leader_epoch = _INT32_2_TIMES.unpack_from(data, at)
        at += 8
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(leader_id, leader_epoch), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_2_TIMES.pack(self.leader_id, self.leader_epoch)
        out.append(0)


class AcquiredRecords(Message):
    """A part of it.

    first_offset
    last_offset
    delivery_count
    """

    __slots__ = ("delivery_count", "first_offset", "last_offset")

    def __init__(
        self, first_offset: int = 0, last_offset: int = 0, delivery_count: int = 0
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_count = delivery_count

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AcquiredRecords, int]:
        first_offset, last_offset, delivery_count = _INT64_2_TIMES_INT16.unpack_from(data, at)
        at += 18
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(first_offset, last_offset, delivery_count), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT64_2_TIMES_INT16.pack(self.first_offset, self.last_offset, self.delivery_count)
        out.append(0)


class PartitionData(Message):
    """A part of it.

    partition_index
    error_code
    error_message
    acknowledge_error_code
    acknowledge_error_message
    current_leader
    records
    acquired_records
    """

    __slots__ = (
        "acknowledge_error_code",
        "acknowledge_error_message",
        "acquired_records",
        "current_leader",
        "error_code",
        "error_message",
        "partition_index",
        "records",
    )

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acknowledge_error_code: int = 0,
        acknowledge_error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        records: Buffer | None = None,
        acquired_records: list[AcquiredRecords] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.acknowledge_error_code = acknowledge_error_code
        self.acknowledge_error_message = acknowledge_error_message
        self.current_leader: LeaderIdAndEpoch = (
            LeaderIdAndEpoch() if current_leader is None else current_leader
        )
        self.records = records
        self.acquired_records: list[AcquiredRecords] = (
            [] if acquired_records is None else acquired_records
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionData, int]:
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        (acknowledge_error_code,) = _INT16.unpack_from(data, at)
        at += 2
        acknowledge_error_message, at = read_nullable_string(data, at, True)
        current_leader, at = LeaderIdAndEpoch.read(data, at, version)
        records, at = read_nullable_records(data, at, True)
        acquired_records, at = read_structs(data, at, True, AcquiredRecords.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            partition_index,
            error_code,
            error_message,
            acknowledge_error_code,
            acknowledge_error_message,
            current_leader,
            records,
            acquired_records,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.partition_index, self.error_code)
        write_nullable_string(out, self.error_message, True)
        out += _INT16.pack(self.acknowledge_error_code)
        write_nullable_string(out, self.acknowledge_error_message, True)
        self.current_leader.write(out, version)
        write_nullable_bytes(out, self.records, True)
        write_structs(out, self.acquired_records, True, version)
        out.append(0)


class ShareFetchableTopicResponse(Message):
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ShareFetchableTopicResponse, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, PartitionData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class NodeEndpoint(Message):
    """A part of it.

    node_id
    host
    port
    rack
    """

    __slots__ = ("host", "node_id", "port", "rack")

    def __init__(
        self, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[NodeEndpoint, int]:
        (node_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_string(data, at, True)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        rack, at = read_nullable_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(node_id, host, port, rack), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.node_id)
        write_string(out, self.host, True)
        out += _INT32.pack(self.port)
        write_nullable_string(out, self.rack, True)
        out.append(0)


class ShareFetchResponse(Message):
    """The response.

    throttle_time_ms
    error_code
    error_message
    acquisition_lock_timeout_ms
    responses
    node_endpoints
    """

    __slots__ = (
        "acquisition_lock_timeout_ms",
        "error_code",
        "error_message",
        "node_endpoints",
        "responses",
        "throttle_time_ms",
    )
    API_KEY: ClassVar[int] = 78
    FIRST_VERSION: ClassVar[int] = 1
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 1

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acquisition_lock_timeout_ms: int = 0,
        responses: list[ShareFetchableTopicResponse] | None = None,
        node_endpoints: list[NodeEndpoint] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.acquisition_lock_timeout_ms = acquisition_lock_timeout_ms
        self.responses: list[ShareFetchableTopicResponse] = [] if responses is None else responses
        self.node_endpoints: list[NodeEndpoint] = [] if node_endpoints is None else node_endpoints

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ShareFetchResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        (acquisition_lock_timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        responses, at = read_structs(data, at, True, ShareFetchableTopicResponse.read, version)
        node_endpoints, at = read_structs(data, at, True, NodeEndpoint.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            throttle_time_ms,
            error_code,
            error_message,
            acquisition_lock_timeout_ms,
            responses,
            node_endpoints,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, True)
        out += _INT32.pack(self.acquisition_lock_timeout_ms)
        write_structs(out, self.responses, True, version)
        write_structs(out, self.node_endpoints, True, version)
        out.append(0)
