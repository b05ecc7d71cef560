"""Produce, API key 0: versions 0 to 13, flexible from 9.

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
    read_string,
    read_structs,
    read_tags,
    read_uuid,
    refuse_value,
    skip_tags,
    write_nullable_bytes,
    write_nullable_string,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)

_INT16_INT32 = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_INT32_2_TIMES = struct.Struct(">ii")
_INT32_INT16_INT64 = struct.Struct(">ihq")
_INT64 = struct.Struct(">q")


class PartitionProduceData(Message):
    """Each partition to produce to.

    index: The partition index.
    records: The record data to be produced.
    """

    __slots__ = ("index", "records")

    def __init__(self, index: int = 0, records: Buffer | None = None) -> None:
        self.index = index
        self.records = records

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionProduceData, int]:
        compact = version >= 9
        (index,) = _INT32.unpack_from(data, at)
        at += 4
        records, at = read_nullable_records(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(index, records), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        out += _INT32.pack(self.index)
        write_nullable_bytes(out, self.records, compact)
        if compact:
            out.append(0)


class TopicProduceData(Message):
    """Each topic to produce to.

    name (versions 0 to 12): The topic name.
    topic_id (version 13): The unique topic ID
    partition_data: Each partition to produce to.
    """

    __slots__ = ("name", "partition_data", "topic_id")

    def __init__(
        self,
        name: str = "",
        topic_id: uuid.UUID | None = None,
        partition_data: list[PartitionProduceData] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_data: list[PartitionProduceData] = (
            [] if partition_data is None else partition_data
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicProduceData, int]:
        compact = version >= 9
        name = ""
        if version <= 12:
            name, at = read_string(data, at, compact)
        topic_id: uuid.UUID | None = None
        if version >= 13:
            topic_id, at = read_uuid(data, at)
        partition_data, at = read_structs(data, at, compact, PartitionProduceData.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, topic_id, partition_data), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        if version <= 12:
            write_string(out, self.name, compact)
        if version >= 13:
            write_uuid(out, self.topic_id)
        write_structs(out, self.partition_data, compact, version)
        if compact:
            out.append(0)


class ProduceRequest(Message):
    """The request.

    transactional_id (from version 3): The transactional ID, or null if the producer is not
        transactional.
    acks: The number of acknowledgments the producer requires the leader to have received before
        considering a request complete. Allowed values: 0 for no acknowledgments, 1 for only the
        leader and -1 for the full ISR.
    timeout_ms: The timeout to await a response in milliseconds.
    topic_data: Each topic to produce to.
    """

    __slots__ = ("acks", "timeout_ms", "topic_data", "transactional_id")
    API_KEY: ClassVar[int] = 0
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9
    ROWS: ClassVar[dict[str, str]] = {"topic_data": "responses"}

    def __init__(
        self,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic_data: list[TopicProduceData] | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic_data: list[TopicProduceData] = [] if topic_data is None else topic_data

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ProduceRequest, int]:
        compact = version >= 9
        transactional_id: str | None = None
        if version >= 3:
            transactional_id, at = read_nullable_string(data, at, compact)
        acks, timeout_ms = _INT16_INT32.unpack_from(data, at)
        at += 6
        topic_data, at = read_structs(data, at, compact, TopicProduceData.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(transactional_id, acks, timeout_ms, topic_data), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        if version >= 3:
            write_nullable_string(out, self.transactional_id, compact)
        elif self.transactional_id is not None:
            refuse_value("transactional_id", version)
        out += _INT16_INT32.pack(self.acks, self.timeout_ms)
        write_structs(out, self.topic_data, compact, version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    row.name,
                    row.topic_id,
                    [PartitionProduceResponse(part.index, code, -1) for part in row.partition_data],
                )
                for row in self.topic_data
            ]
        )


class BatchIndexAndErrorMessage(Message):
    """The batch indices of records that caused the batch to be dropped.

    batch_index (from version 8): The batch index of the record that caused the batch to be
        dropped.
    batch_index_error_message (from version 8): The error message of the record that caused the
        batch to be dropped.
    """

    __slots__ = ("batch_index", "batch_index_error_message")

    def __init__(self, batch_index: int = 0, batch_index_error_message: str | None = None) -> None:
        self.batch_index = batch_index
        self.batch_index_error_message = batch_index_error_message

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[BatchIndexAndErrorMessage, int]:
        compact = version >= 9
        batch_index = 0
        batch_index_error_message: str | None = None
        if version >= 8:
            (batch_index,) = _INT32.unpack_from(data, at)
            at += 4
            batch_index_error_message, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(batch_index, batch_index_error_message), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        if version >= 8:
            out += _INT32.pack(self.batch_index)
            write_nullable_string(out, self.batch_index_error_message, compact)
        elif self.batch_index != 0:
            refuse_value("batch_index", version)
        elif self.batch_index_error_message is not None:
            refuse_value("batch_index_error_message", version)
        if compact:
            out.append(0)


class LeaderIdAndEpoch(Message):
    """The leader broker that the producer should use for future requests.

    leader_id (from version 10): The ID of the current leader or -1 if the leader is unknown.
    leader_epoch (from version 10): The latest known leader epoch.
    """

    __slots__ = ("leader_epoch", "leader_id")

    def __init__(self, leader_id: int = -1, leader_epoch: int = -1) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[LeaderIdAndEpoch, int]:
        compact = version >= 9
        leader_id = -1
        leader_epoch = -1
        if version >= 10:
            leader_id, leader_epoch = _INT32_2_TIMES.unpack_from(data, at)
            at += 8
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(leader_id, leader_epoch), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        if version >= 10:
            out += _INT32_2_TIMES.pack(self.leader_id, self.leader_epoch)
        elif self.leader_id != -1:
            refuse_value("leader_id", version)
        elif self.leader_epoch != -1:
            refuse_value("leader_epoch", version)
        if compact:
            out.append(0)


class PartitionProduceResponse(Message):
    """Each partition that we produced to within the topic.

    index: The partition index.
    error_code: The error code, or 0 if there was no error.
    base_offset: The base offset.
    log_append_time_ms (from version 2): The timestamp returned by broker after appending the
        messages. If CreateTime is used for the topic, the timestamp will be -1.  If
        LogAppendTime is used for the topic, the timestamp will be the broker local time when
        the messages are appended.
    log_start_offset (from version 5): The log start offset.
    record_errors (from version 8): The batch indices of records that caused the batch to be
        dropped.
    error_message (from version 8): The global error message summarizing the common root cause
        of the records that caused the batch to be dropped.
    current_leader (from version 10): The leader broker that the producer should use for future
        requests.
    """

    __slots__ = (
        "base_offset",
        "current_leader",
        "error_code",
        "error_message",
        "index",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        index: int = 0,
        error_code: int = 0,
        base_offset: int = 0,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: list[BatchIndexAndErrorMessage] | None = None,
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors: list[BatchIndexAndErrorMessage] = (
            [] if record_errors is None else record_errors
        )
        self.error_message = error_message
        self.current_leader: LeaderIdAndEpoch = (
            LeaderIdAndEpoch() if current_leader is None else current_leader
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionProduceResponse, int]:
        compact = version >= 9
        index, error_code, base_offset = _INT32_INT16_INT64.unpack_from(data, at)
        at += 14
        log_append_time_ms = -1
        if version >= 2:
            (log_append_time_ms,) = _INT64.unpack_from(data, at)
            at += 8
        log_start_offset = -1
        if version >= 5:
            (log_start_offset,) = _INT64.unpack_from(data, at)
            at += 8
        record_errors: list[BatchIndexAndErrorMessage] = []
        error_message: str | None = None
        if version >= 8:
            record_errors, at = read_structs(
                data, at, compact, BatchIndexAndErrorMessage.read, version
            )
            error_message, at = read_nullable_string(data, at, compact)
        current_leader = LeaderIdAndEpoch()
        if compact:
            tags, at = read_tags(data, at)
            if 0 in tags and version >= 10:
                current_leader, _ = LeaderIdAndEpoch.read(tags[0], 0, version)
        return cls(
            index,
            error_code,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            record_errors,
            error_message,
            current_leader,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        out += _INT32_INT16_INT64.pack(self.index, self.error_code, self.base_offset)
        if version >= 2:
            out += _INT64.pack(self.log_append_time_ms)
        if version >= 5:
            out += _INT64.pack(self.log_start_offset)
        if version >= 8:
            write_structs(out, self.record_errors, compact, version)
            write_nullable_string(out, self.error_message, compact)
        if compact:
            tags: dict[int, bytearray] = {}
            if self.current_leader != LeaderIdAndEpoch() and version >= 10:
                tags[0] = bytearray()
                self.current_leader.write(tags[0], version)
            write_tags(out, tags)
        elif self.current_leader != LeaderIdAndEpoch():
            refuse_value("current_leader", version)


class TopicProduceResponse(Message):
    """Each produce response.

    name (versions 0 to 12): The topic name.
    topic_id (version 13): The unique topic ID
    partition_responses: Each partition that we produced to within the topic.
    """

    __slots__ = ("name", "partition_responses", "topic_id")

    def __init__(
        self,
        name: str = "",
        topic_id: uuid.UUID | None = None,
        partition_responses: list[PartitionProduceResponse] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_responses: list[PartitionProduceResponse] = (
            [] if partition_responses is None else partition_responses
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicProduceResponse, int]:
        compact = version >= 9
        name = ""
        if version <= 12:
            name, at = read_string(data, at, compact)
        topic_id: uuid.UUID | None = None
        if version >= 13:
            topic_id, at = read_uuid(data, at)
        partition_responses, at = read_structs(
            data, at, compact, PartitionProduceResponse.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, topic_id, partition_responses), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        if version <= 12:
            write_string(out, self.name, compact)
        if version >= 13:
            write_uuid(out, self.topic_id)
        write_structs(out, self.partition_responses, compact, version)
        if compact:
            out.append(0)


class NodeEndpoint(Message):
    """Endpoints for all current-leaders enumerated in PartitionProduceResponses, with errors
    NOT_LEADER_OR_FOLLOWER.

    node_id (from version 10): The ID of the associated node.
    host (from version 10): The node's hostname.
    port (from version 10): The node's port.
    rack (from version 10): The rack of the node, or null if it has not been assigned to a rack.
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
        compact = version >= 9
        node_id = 0
        host = ""
        port = 0
        rack: str | None = None
        if version >= 10:
            (node_id,) = _INT32.unpack_from(data, at)
            at += 4
            host, at = read_string(data, at, compact)
            (port,) = _INT32.unpack_from(data, at)
            at += 4
            rack, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(node_id, host, port, rack), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        if version >= 10:
            out += _INT32.pack(self.node_id)
            write_string(out, self.host, compact)
            out += _INT32.pack(self.port)
            write_nullable_string(out, self.rack, compact)
        elif self.node_id != 0:
            refuse_value("node_id", version)
        elif self.host != "":
            refuse_value("host", version)
        elif self.port != 0:
            refuse_value("port", version)
        elif self.rack is not None:
            refuse_value("rack", version)
        if compact:
            out.append(0)


class ProduceResponse(Message):
    """The response.

    responses: Each produce response.
    throttle_time_ms (from version 1): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    node_endpoints (from version 10): Endpoints for all current-leaders enumerated in
        PartitionProduceResponses, with errors NOT_LEADER_OR_FOLLOWER.
    """

    __slots__ = ("node_endpoints", "responses", "throttle_time_ms")
    API_KEY: ClassVar[int] = 0
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9

    def __init__(
        self,
        responses: list[TopicProduceResponse] | None = None,
        throttle_time_ms: int = 0,
        node_endpoints: list[NodeEndpoint] | None = None,
    ) -> None:
        self.responses: list[TopicProduceResponse] = [] if responses is None else responses
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints: list[NodeEndpoint] = [] if node_endpoints is None else node_endpoints

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ProduceResponse, int]:
        compact = version >= 9
        responses, at = read_structs(data, at, compact, TopicProduceResponse.read, version)
        throttle_time_ms = 0
        if version >= 1:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        node_endpoints: list[NodeEndpoint] = []
        if compact:
            tags, at = read_tags(data, at)
            if 0 in tags and version >= 10:
                node_endpoints, _ = read_structs(tags[0], 0, True, NodeEndpoint.read, version)
        return cls(responses, throttle_time_ms, node_endpoints), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        write_structs(out, self.responses, compact, version)
        if version >= 1:
            out += _INT32.pack(self.throttle_time_ms)
        if compact:
            tags: dict[int, bytearray] = {}
            if self.node_endpoints != [] and version >= 10:
                tags[0] = bytearray()
                write_structs(tags[0], self.node_endpoints, True, version)
            write_tags(out, tags)
        elif self.node_endpoints != []:
            refuse_value("node_endpoints", version)
