"""ShareAcknowledge, API key 79: versions 1 to 2, flexible from 1.

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
    read_numbers,
    read_string,
    read_structs,
    read_uuid,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_numbers,
    write_string,
    write_structs,
    write_uuid,
)

_BOOL = struct.Struct(">?")
_INT32 = struct.Struct(">i")
_INT32_2_TIMES = struct.Struct(">ii")
_INT32_INT16 = struct.Struct(">ih")
_INT64_2_TIMES = struct.Struct(">qq")


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


class AcknowledgePartition(Message):
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AcknowledgePartition, int]:
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


class AcknowledgeTopic(Message):
    """A part of it.

    topic_id
    partitions
    """

    __slots__ = ("partitions", "topic_id")

    def __init__(
        self,
        topic_id: uuid.UUID | None = None,
        partitions: list[AcknowledgePartition] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[AcknowledgePartition] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AcknowledgeTopic, int]:
        topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, True, AcknowledgePartition.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class ShareAcknowledgeRequest(Message):
    """The request.

    group_id
    member_id
    share_session_epoch
    is_renew_ack (version 2)
    topics
    """

    __slots__ = ("group_id", "is_renew_ack", "member_id", "share_session_epoch", "topics")
    API_KEY: ClassVar[int] = 79
    FIRST_VERSION: ClassVar[int] = 1
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 1
    ROWS: ClassVar[dict[str, str]] = {"topics": "responses"}

    def __init__(
        self,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        is_renew_ack: bool = False,
        topics: list[AcknowledgeTopic] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.share_session_epoch = share_session_epoch
        self.is_renew_ack = is_renew_ack
        self.topics: list[AcknowledgeTopic] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ShareAcknowledgeRequest, int]:
        group_id, at = read_nullable_string(data, at, True)
        member_id, at = read_nullable_string(data, at, True)
        (share_session_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        is_renew_ack = False
        if version >= 2:
            (is_renew_ack,) = _BOOL.unpack_from(data, at)
            at += 1
        topics, at = read_structs(data, at, True, AcknowledgeTopic.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, member_id, share_session_epoch, is_renew_ack, topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_nullable_string(out, self.group_id, True)
        write_nullable_string(out, self.member_id, True)
        out += _INT32.pack(self.share_session_epoch)
        if version >= 2:
            out += _BOOL.pack(self.is_renew_ack)
        elif self.is_renew_ack:
            refuse_value("is_renew_ack", version)
        write_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> ShareAcknowledgeResponse:
        return ShareAcknowledgeResponse(error_code=code)


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


class PartitionData(Message):
    """A part of it.

    partition_index
    error_code
    error_message
    current_leader
    """

    __slots__ = ("current_leader", "error_code", "error_message", "partition_index")

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.current_leader: LeaderIdAndEpoch = (
            LeaderIdAndEpoch() if current_leader is None else current_leader
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionData, int]:
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        current_leader, at = LeaderIdAndEpoch.read(data, at, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, error_code, error_message, current_leader), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.partition_index, self.error_code)
        write_nullable_string(out, self.error_message, True)
        self.current_leader.write(out, version)
        out.append(0)


class ShareAcknowledgeTopicResponse(Message):
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ShareAcknowledgeTopicResponse, int]:
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


class ShareAcknowledgeResponse(Message):
    """The response.

    throttle_time_ms
    error_code
    error_message
    acquisition_lock_timeout_ms (version 2)
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
    API_KEY: ClassVar[int] = 79
    FIRST_VERSION: ClassVar[int] = 1
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 1

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acquisition_lock_timeout_ms: int = 0,
        responses: list[ShareAcknowledgeTopicResponse] | None = None,
        node_endpoints: list[NodeEndpoint] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.acquisition_lock_timeout_ms = acquisition_lock_timeout_ms
        self.responses: list[ShareAcknowledgeTopicResponse] = [] if responses is None else responses
        self.node_endpoints: list[NodeEndpoint] = [] if node_endpoints is None else node_endpoints

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ShareAcknowledgeResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        acquisition_lock_timeout_ms = 0
        if version >= 2:
            (acquisition_lock_timeout_ms,) = _INT32.unpack_from(data, at)
            at += 4
        responses, at = read_structs(data, at, True, ShareAcknowledgeTopicResponse.read, version)
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
        if version >= 2:
            out += _INT32.pack(self.acquisition_lock_timeout_ms)
        write_structs(out, self.responses, True, version)
        write_structs(out, self.node_endpoints, True, version)
        out.append(0)
