"""DescribeQuorum, API key 55: versions 0 to 2, flexible from 0.

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
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_string,
    write_structs,
    write_uuid,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_2_TIMES_INT64 = struct.Struct(">iiq")
_INT32_INT16 = struct.Struct(">ih")
_INT64 = struct.Struct(">q")
_INT64_2_TIMES = struct.Struct(">qq")
_UINT16 = struct.Struct(">H")


class PartitionData(Message):
    """The partitions to describe.

    partition_index: The partition index.
    """

    __slots__ = ("partition_index",)

    def __init__(self, partition_index: int = 0) -> None:
        self.partition_index = partition_index

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionData, int]:
        (partition_index,) = _INT32.unpack_from(data, at)
        at += 4
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.partition_index)
        out.append(0)


class TopicData(Message):
    """The topics to describe.

    topic_name: The topic name.
    partitions: The partitions to describe.
    """

    __slots__ = ("partitions", "topic_name")

    def __init__(self, topic_name: str = "", partitions: list[PartitionData] | None = None) -> None:
        self.topic_name = topic_name
        self.partitions: list[PartitionData] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicData, int]:
        topic_name, at = read_string(data, at, True)
        partitions, at = read_structs(data, at, True, PartitionData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.topic_name, True)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class DescribeQuorumRequest(Message):
    """The request.

    topics: The topics to describe.
    """

    __slots__ = ("topics",)
    API_KEY: ClassVar[int] = 55
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics"}

    def __init__(self, topics: list[TopicData] | None = None) -> None:
        self.topics: list[TopicData] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeQuorumRequest, int]:
        topics, at = read_structs(data, at, True, TopicData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_structs(out, self.topics, True, version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeQuorumResponse:
        return DescribeQuorumResponse(error_code=code, error_message=None)


class ReplicaState(Message):
    """The current voters of the partition.

    replica_id: The ID of the replica.
    replica_directory_id (version 2): The replica directory ID of the replica.
    log_end_offset: The last known log end offset of the follower or -1 if it is unknown.
    last_fetch_timestamp (from version 1): The last known leader wall clock time time when a
        follower fetched from the leader. This is reported as -1 both for the current leader or
        if it is unknown for a voter.
    last_caught_up_timestamp (from version 1): The leader wall clock append time of the offset
        for which the follower made the most recent fetch request. This is reported as the
        current time for the leader and -1 if unknown for a voter.
    """

    __slots__ = (
        "last_caught_up_timestamp",
        "last_fetch_timestamp",
        "log_end_offset",
        "replica_directory_id",
        "replica_id",
    )

    def __init__(
        self,
        replica_id: int = 0,
        replica_directory_id: uuid.UUID | None = None,
        log_end_offset: int = 0,
        last_fetch_timestamp: int = -1,
        last_caught_up_timestamp: int = -1,
    ) -> None:
        self.replica_id = replica_id
        self.replica_directory_id = replica_directory_id
        self.log_end_offset = log_end_offset
        self.last_fetch_timestamp = last_fetch_timestamp
        self.last_caught_up_timestamp = last_caught_up_timestamp

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReplicaState, int]:
        (replica_id,) = _INT32.unpack_from(data, at)
        at += 4
        replica_directory_id: uuid.UUID | None = None
        if version >= 2:
            replica_directory_id, at = read_uuid(data, at)
        (log_end_offset,) = _INT64.unpack_from(data, at)
        at += 8
        last_fetch_timestamp = -1
        last_caught_up_timestamp = -1
        if version >= 1:
            last_fetch_timestamp, last_caught_up_timestamp = _INT64_2_TIMES.unpack_from(data, at)
            at += 16
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            replica_id,
            replica_directory_id,
            log_end_offset,
            last_fetch_timestamp,
            last_caught_up_timestamp,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.replica_id)
        if version >= 2:
            write_uuid(out, self.replica_directory_id)
        elif self.replica_directory_id is not None:
            refuse_value("replica_directory_id", version)
        out += _INT64.pack(self.log_end_offset)
        if version >= 1:
            out += _INT64_2_TIMES.pack(self.last_fetch_timestamp, self.last_caught_up_timestamp)
        out.append(0)


class DescribeQuorumResponsePartitionData(Message):
    """The partition data.

    partition_index: The partition index.
    error_code: The partition error code.
    error_message (version 2): The error message, or null if there was no error.
    leader_id: The ID of the current leader or -1 if the leader is unknown.
    leader_epoch: The latest known leader epoch.
    high_watermark: The high water mark.
    current_voters: The current voters of the partition.
    observers: The observers of the partition.
    """

    __slots__ = (
        "current_voters",
        "error_code",
        "error_message",
        "high_watermark",
        "leader_epoch",
        "leader_id",
        "observers",
        "partition_index",
    )

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        leader_id: int = 0,
        leader_epoch: int = 0,
        high_watermark: int = 0,
        current_voters: list[ReplicaState] | None = None,
        observers: list[ReplicaState] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.current_voters: list[ReplicaState] = [] if current_voters is None else current_voters
        self.observers: list[ReplicaState] = [] if observers is None else observers

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeQuorumResponsePartitionData, int]:
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message: str | None = ""
        if version >= 2:
            error_message, at = read_nullable_string(data, at, True)
        leader_id, leader_epoch, high_watermark = _INT32_2_TIMES_INT64.unpack_from(data, at)
        at += 16
        current_voters, at = read_structs(data, at, True, ReplicaState.read, version)
        observers, at = read_structs(data, at, True, ReplicaState.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            partition_index,
            error_code,
            error_message,
            leader_id,
            leader_epoch,
            high_watermark,
            current_voters,
            observers,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.partition_index, self.error_code)
        if version >= 2:
            write_nullable_string(out, self.error_message, True)
        out += _INT32_2_TIMES_INT64.pack(self.leader_id, self.leader_epoch, self.high_watermark)
        write_structs(out, self.current_voters, True, version)
        write_structs(out, self.observers, True, version)
        out.append(0)


class DescribeQuorumResponseTopicData(Message):
    """The response from the describe quorum API.

    topic_name: The topic name.
    partitions: The partition data.
    """

    __slots__ = ("partitions", "topic_name")

    def __init__(
        self,
        topic_name: str = "",
        partitions: list[DescribeQuorumResponsePartitionData] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[DescribeQuorumResponsePartitionData] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeQuorumResponseTopicData, int]:
        topic_name, at = read_string(data, at, True)
        partitions, at = read_structs(
            data, at, True, DescribeQuorumResponsePartitionData.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.topic_name, True)
        write_structs(out, self.partitions, True, version)
        out.append(0)


class Listener(Message):
    """The listeners of this controller.

    name (version 2): The name of the endpoint.
    host (version 2): The hostname.
    port (version 2): The port.
    """

    __slots__ = ("host", "name", "port")

    def __init__(self, name: str = "", host: str = "", port: int = 0) -> None:
        self.name = name
        self.host = host
        self.port = port

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Listener, int]:
        name = ""
        host = ""
        port = 0
        if version >= 2:
            name, at = read_string(data, at, True)
            host, at = read_string(data, at, True)
            (port,) = _UINT16.unpack_from(data, at)
            at += 2
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, host, port), at

    def write(self, out: bytearray, version: int) -> None:
        if version >= 2:
            write_string(out, self.name, True)
            write_string(out, self.host, True)
            out += _UINT16.pack(self.port)
        elif self.name != "":
            refuse_value("name", version)
        elif self.host != "":
            refuse_value("host", version)
        elif self.port != 0:
            refuse_value("port", version)
        out.append(0)


class Node(Message):
    """The nodes in the quorum.

    node_id (version 2): The ID of the associated node.
    listeners (version 2): The listeners of this controller.
    """

    __slots__ = ("listeners", "node_id")

    def __init__(self, node_id: int = 0, listeners: list[Listener] | None = None) -> None:
        self.node_id = node_id
        self.listeners: list[Listener] = [] if listeners is None else listeners

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Node, int]:
        node_id = 0
        listeners: list[Listener] = []
        if version >= 2:
            (node_id,) = _INT32.unpack_from(data, at)
            at += 4
            listeners, at = read_structs(data, at, True, Listener.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(node_id, listeners), at

    def write(self, out: bytearray, version: int) -> None:
        if version >= 2:
            out += _INT32.pack(self.node_id)
            write_structs(out, self.listeners, True, version)
        elif self.node_id != 0:
            refuse_value("node_id", version)
        elif self.listeners != []:
            refuse_value("listeners", version)
        out.append(0)


class DescribeQuorumResponse(Message):
    """The response.

    error_code: The top level error code.
    error_message (version 2): The error message, or null if there was no error.
    topics: The response from the describe quorum API.
    nodes (version 2): The nodes in the quorum.
    """

    __slots__ = ("error_code", "error_message", "nodes", "topics")
    API_KEY: ClassVar[int] = 55
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        topics: list[DescribeQuorumResponseTopicData] | None = None,
        nodes: list[Node] | None = None,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.topics: list[DescribeQuorumResponseTopicData] = [] if topics is None else topics
        self.nodes: list[Node] = [] if nodes is None else nodes

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeQuorumResponse, int]:
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message: str | None = ""
        if version >= 2:
            error_message, at = read_nullable_string(data, at, True)
        topics, at = read_structs(data, at, True, DescribeQuorumResponseTopicData.read, version)
        nodes: list[Node] = []
        if version >= 2:
            nodes, at = read_structs(data, at, True, Node.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(error_code, error_message, topics, nodes), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT16.pack(self.error_code)
        if version >= 2:
            write_nullable_string(out, self.error_message, True)
        write_structs(out, self.topics, True, version)
        if version >= 2:
            write_structs(out, self.nodes, True, version)
        elif self.nodes != []:
            refuse_value("nodes", version)
        out.append(0)
