"""Metadata, API key 3: versions 0 to 13, flexible from 9.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
import uuid
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
    read_uuid,
    refuse_null,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_nullable_structs,
    write_numbers,
    write_string,
    write_structs,
    write_uuid,
)

_BOOL = struct.Struct(">?")
_INT16 = struct.Struct(">h")
_INT16_INT32_2_TIMES = struct.Struct(">hii")
_INT32 = struct.Struct(">i")


class MetadataRequestTopic(Message):
    """The topics to fetch metadata for.

    topic_id (from version 10): The topic id.
    name: The topic name.
    """

    __slots__ = ("name", "topic_id")

    def __init__(self, topic_id: uuid.UUID | None = None, name: str | None = "") -> None:
        self.topic_id = topic_id
        self.name = name

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[MetadataRequestTopic, int]:
        compact = version >= 9
        topic_id: uuid.UUID | None = None
        if version >= 10:
            topic_id, at = read_uuid(data, at)
        name, at = read_nullable_string(data, at, compact)
        if name is None and not (version >= 10):
            refuse_null("name", version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic_id, name), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        if version >= 10:
            write_uuid(out, self.topic_id)
        if self.name is None and not (version >= 10):
            refuse_value("name", version)
        write_nullable_string(out, self.name, compact)
        if compact:
            out.append(0)


class MetadataRequest(Message):
    """The request.

    topics: The topics to fetch metadata for.
    allow_auto_topic_creation (from version 4): If this is true, the broker may auto-create
        topics that we requested which do not already exist, if it is configured to do so.
    include_cluster_authorized_operations (versions 8 to 10): Whether to include cluster
        authorized operations.
    include_topic_authorized_operations (from version 8): Whether to include topic authorized
        operations.
    """

    __slots__ = (
        "allow_auto_topic_creation",
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
        "topics",
    )
    API_KEY: ClassVar[int] = 3
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics"}

    def __init__(
        self,
        topics: list[MetadataRequestTopic] | None = NOTHING,
        allow_auto_topic_creation: bool = True,
        include_cluster_authorized_operations: bool = False,
        include_topic_authorized_operations: bool = False,
    ) -> None:
        self.topics: list[MetadataRequestTopic] | None = [] if topics is NOTHING else topics
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.include_topic_authorized_operations = include_topic_authorized_operations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[MetadataRequest, int]:
        compact = version >= 9
        topics, at = read_nullable_structs(data, at, compact, MetadataRequestTopic.read, version)
        if topics is None and not (version >= 1):
            refuse_null("topics", version)
        allow_auto_topic_creation = True
        if version >= 4:
            (allow_auto_topic_creation,) = _BOOL.unpack_from(data, at)
            at += 1
        include_cluster_authorized_operations = False
        if 8 <= version <= 10:
            (include_cluster_authorized_operations,) = _BOOL.unpack_from(data, at)
            at += 1
        include_topic_authorized_operations = False
        if version >= 8:
            (include_topic_authorized_operations,) = _BOOL.unpack_from(data, at)
            at += 1
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            topics,
            allow_auto_topic_creation,
            include_cluster_authorized_operations,
            include_topic_authorized_operations,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        if self.topics is None and not (version >= 1):
            refuse_value("topics", version)
        write_nullable_structs(out, self.topics, compact, version)
        if version >= 4:
            out += _BOOL.pack(self.allow_auto_topic_creation)
        elif not self.allow_auto_topic_creation:
            refuse_value("allow_auto_topic_creation", version)
        if 8 <= version <= 10:
            out += _BOOL.pack(self.include_cluster_authorized_operations)
        elif self.include_cluster_authorized_operations:
            refuse_value("include_cluster_authorized_operations", version)
        if version >= 8:
            out += _BOOL.pack(self.include_topic_authorized_operations)
        elif self.include_topic_authorized_operations:
            refuse_value("include_topic_authorized_operations", version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> MetadataResponse:
        if version <= 11:
            return MetadataResponse(
                topics=[
                    MetadataResponseTopic(code, row.name or "", row.topic_id)
                    for row in self.topics or ()
                ]
            )
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(code, row.name, row.topic_id) for row in self.topics or ()
            ]
        )


class MetadataResponseBroker(Message):
    """A list of brokers present in the cluster.

    node_id: The broker ID.
    host: The broker hostname.
    port: The broker port.
    rack (from version 1): The rack of the broker, or null if it has not been assigned to a
        rack.
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
    def read(cls, data: Buffer, at: int, version: int) -> tuple[MetadataResponseBroker, int]:
        compact = version >= 9
        (node_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_string(data, at, compact)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        rack: str | None = None
        if version >= 1:
            rack, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(node_id, host, port, rack), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        out += _INT32.pack(self.node_id)
        write_string(out, self.host, compact)
        out += _INT32.pack(self.port)
        if version >= 1:
            write_nullable_string(out, self.rack, compact)
        if compact:
            out.append(0)


class MetadataResponsePartition(Message):
    """Each partition in the topic.

    error_code: The partition error, or 0 if there was no error.
    partition_index: The partition index.
    leader_id: The ID of the leader broker.
    leader_epoch (from version 7): The leader epoch of this partition.
    replica_nodes: The set of all nodes that host this partition.
    isr_nodes: The set of nodes that are in sync with the leader for this partition.
    offline_replicas (from version 5): The set of offline replicas of this partition.
    """

    __slots__ = (
        "error_code",
        "isr_nodes",
        "leader_epoch",
        "leader_id",
        "offline_replicas",
        "partition_index",
        "replica_nodes",
    )

    def __init__(
        self,
        error_code: int = 0,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = -1,
        replica_nodes: list[int] | None = None,
        isr_nodes: list[int] | None = None,
        offline_replicas: list[int] | None = None,
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.replica_nodes: list[int] = [] if replica_nodes is None else replica_nodes
        self.isr_nodes: list[int] = [] if isr_nodes is None else isr_nodes
        self.offline_replicas: list[int] = [] if offline_replicas is None else offline_replicas

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[MetadataResponsePartition, int]:
        compact = version >= 9
        error_code, partition_index, leader_id = _INT16_INT32_2_TIMES.unpack_from(data, at)
        at += 10
        leader_epoch = -1
        if version >= 7:
            (leader_epoch,) = _INT32.unpack_from(data, at)
            at += 4
        replica_nodes, at = read_numbers(data, at, compact, "i")
        isr_nodes, at = read_numbers(data, at, compact, "i")
        offline_replicas: list[int] = []
        if version >= 5:
            offline_replicas, at = read_numbers(data, at, compact, "i")
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            error_code,
            partition_index,
            leader_id,
            leader_epoch,
            replica_nodes,
            isr_nodes,
            offline_replicas,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        out += _INT16_INT32_2_TIMES.pack(self.error_code, self.partition_index, self.leader_id)
        if version >= 7:
            out += _INT32.pack(self.leader_epoch)
        write_numbers(out, self.replica_nodes, compact, "i")
        write_numbers(out, self.isr_nodes, compact, "i")
        if version >= 5:
            write_numbers(out, self.offline_replicas, compact, "i")
        if compact:
            out.append(0)


class MetadataResponseTopic(Message):
    """Each topic in the response.

    error_code: The topic error, or 0 if there was no error.
    name: The topic name. Null for non-existing topics queried by ID. This is never null when
        ErrorCode is zero. One of Name and TopicId is always populated.
    topic_id (from version 10): The topic id. Zero for non-existing topics queried by name. This
        is never zero when ErrorCode is zero. One of Name and TopicId is always populated.
    is_internal (from version 1): True if the topic is internal.
    partitions: Each partition in the topic.
    topic_authorized_operations (from version 8): 32-bit bitfield to represent authorized
        operations for this topic.
    """

    __slots__ = (
        "error_code",
        "is_internal",
        "name",
        "partitions",
        "topic_authorized_operations",
        "topic_id",
    )

    def __init__(
        self,
        error_code: int = 0,
        name: str | None = "",
        topic_id: uuid.UUID | None = None,
        is_internal: bool = False,
        partitions: list[MetadataResponsePartition] | None = None,
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions: list[MetadataResponsePartition] = [] if partitions is None else partitions
        self.topic_authorized_operations = topic_authorized_operations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[MetadataResponseTopic, int]:
        compact = version >= 9
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        name, at = read_nullable_string(data, at, compact)
        if name is None and not (version >= 12):
            refuse_null("name", version)
        topic_id: uuid.UUID | None = None
        if version >= 10:
            topic_id, at = read_uuid(data, at)
        is_internal = False
        if version >= 1:
            (is_internal,) = _BOOL.unpack_from(data, at)
            at += 1
        partitions, at = read_structs(data, at, compact, MetadataResponsePartition.read, version)
        topic_authorized_operations = -2147483648
        if version >= 8:
            (topic_authorized_operations,) = _INT32.unpack_from(data, at)
            at += 4
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            error_code, name, topic_id, is_internal, partitions, topic_authorized_operations
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        out += _INT16.pack(self.error_code)
        if self.name is None and not (version >= 12):
            refuse_value("name", version)
        write_nullable_string(out, self.name, compact)
        if version >= 10:
            write_uuid(out, self.topic_id)
        if version >= 1:
            out += _BOOL.pack(self.is_internal)
        write_structs(out, self.partitions, compact, version)
        if version >= 8:
            out += _INT32.pack(self.topic_authorized_operations)
        elif self.topic_authorized_operations != -2147483648:
            refuse_value("topic_authorized_operations", version)
        if compact:
            out.append(0)


class MetadataResponse(Message):
    """The response.

    throttle_time_ms (from version 3): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    brokers: A list of brokers present in the cluster.
    cluster_id (from version 2): The cluster ID that responding broker belongs to.
    controller_id (from version 1): The ID of the controller broker.
    topics: Each topic in the response.
    cluster_authorized_operations (versions 8 to 10): 32-bit bitfield to represent authorized
        operations for this cluster.
    error_code (version 13): The top-level error code, or 0 if there was no error.
    """

    __slots__ = (
        "brokers",
        "cluster_authorized_operations",
        "cluster_id",
        "controller_id",
        "error_code",
        "throttle_time_ms",
        "topics",
    )
    API_KEY: ClassVar[int] = 3
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9

    def __init__(
        self,
        throttle_time_ms: int = 0,
        brokers: list[MetadataResponseBroker] | None = None,
        cluster_id: str | None = None,
        controller_id: int = -1,
        topics: list[MetadataResponseTopic] | None = None,
        cluster_authorized_operations: int = -2147483648,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.brokers: list[MetadataResponseBroker] = [] if brokers is None else brokers
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.topics: list[MetadataResponseTopic] = [] if topics is None else topics
        self.cluster_authorized_operations = cluster_authorized_operations
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[MetadataResponse, int]:
        compact = version >= 9
        throttle_time_ms = 0
        if version >= 3:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        brokers, at = read_structs(data, at, compact, MetadataResponseBroker.read, version)
        cluster_id: str | None = None
        if version >= 2:
            cluster_id, at = read_nullable_string(data, at, compact)
        controller_id = -1
        if version >= 1:
            (controller_id,) = _INT32.unpack_from(data, at)
            at += 4
        topics, at = read_structs(data, at, compact, MetadataResponseTopic.read, version)
        cluster_authorized_operations = -2147483648
        if 8 <= version <= 10:
            (cluster_authorized_operations,) = _INT32.unpack_from(data, at)
            at += 4
        error_code = 0
        if version >= 13:
            (error_code,) = _INT16.unpack_from(data, at)
            at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            throttle_time_ms,
            brokers,
            cluster_id,
            controller_id,
            topics,
            cluster_authorized_operations,
            error_code,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 9
        if version >= 3:
            out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.brokers, compact, version)
        if version >= 2:
            write_nullable_string(out, self.cluster_id, compact)
        if version >= 1:
            out += _INT32.pack(self.controller_id)
        write_structs(out, self.topics, compact, version)
        if 8 <= version <= 10:
            out += _INT32.pack(self.cluster_authorized_operations)
        elif self.cluster_authorized_operations != -2147483648:
            refuse_value("cluster_authorized_operations", version)
        if version >= 13:
            out += _INT16.pack(self.error_code)
        if compact:
            out.append(0)
