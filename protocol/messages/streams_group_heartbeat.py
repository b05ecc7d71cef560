"""StreamsGroupHeartbeat, API key 88: version 0, flexible from 0.

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
    read_nullable_struct,
    read_nullable_structs,
    read_numbers,
    read_string,
    read_strings,
    read_structs,
    skip_tags,
    write_nullable_string,
    write_nullable_struct,
    write_nullable_structs,
    write_numbers,
    write_string,
    write_strings,
    write_structs,
)

_BOOL = struct.Struct(">?")
_INT32 = struct.Struct(">i")
_INT32_2_TIMES = struct.Struct(">ii")
_INT32_4_TIMES = struct.Struct(">iiii")
_INT32_INT16 = struct.Struct(">ih")
_INT32_INT64 = struct.Struct(">iq")
_INT8 = struct.Struct(">b")
_UINT16 = struct.Struct(">H")


class KeyValue(Message):
    """A part of it.

    key
    value
    """

    __slots__ = ("key", "value")

    def __init__(self, key: str = "", value: str = "") -> None:
        self.key = key
        self.value = value

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[KeyValue, int]:
        key, at = read_string(data, at, True)
        value, at = read_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(key, value), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.key, True)
        write_string(out, self.value, True)
        out.append(0)


class TopicInfo(Message):
    """A part of it.

    name
    partitions
    replication_factor
    topic_configs
    """

    __slots__ = ("name", "partitions", "replication_factor", "topic_configs")

    def __init__(
        self,
        name: str = "",
        partitions: int = 0,
        replication_factor: int = 0,
        topic_configs: list[KeyValue] | None = None,
    ) -> None:
        self.name = name
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.topic_configs: list[KeyValue] = [] if topic_configs is None else topic_configs

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicInfo, int]:
        name, at = read_string(data, at, True)
        partitions, replication_factor = _INT32_INT16.unpack_from(data, at)
        at += 6
        topic_configs, at = read_structs(data, at, True, KeyValue.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions, replication_factor, topic_configs), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.name, True)
        out += _INT32_INT16.pack(self.partitions, self.replication_factor)
        write_structs(out, self.topic_configs, True, version)
        out.append(0)


class CopartitionGroup(Message):
    """A part of it.

    source_topics
    source_topic_regex
    repartition_source_topics
    """

    __slots__ = ("repartition_source_topics", "source_topic_regex", "source_topics")

    def __init__(
        self,
        source_topics: list[int] | None = None,
        source_topic_regex: list[int] | None = None,
        repartition_source_topics: list[int] | None = None,
    ) -> None:
        self.source_topics: list[int] = [] if source_topics is None else source_topics
        self.source_topic_regex: list[int] = (
            [] if source_topic_regex is None else source_topic_regex
        )
        self.repartition_source_topics: list[int] = (
            [] if repartition_source_topics is None else repartition_source_topics
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CopartitionGroup, int]:
        source_topics, at = read_numbers(data, at, True, "h")
        source_topic_regex, at = read_numbers(data, at, True, "h")
        repartition_source_topics, at = read_numbers(data, at, True, "h")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(source_topics, source_topic_regex, repartition_source_topics), at

    def write(self, out: bytearray, version: int) -> None:
        write_numbers(out, self.source_topics, True, "h")
        write_numbers(out, self.source_topic_regex, True, "h")
        write_numbers(out, self.repartition_source_topics, True, "h")
        out.append(0)


class Subtopology(Message):
    """A part of it.

    subtopology_id
    source_topics
    source_topic_regex
    state_changelog_topics
    repartition_sink_topics
    repartition_source_topics
    copartition_groups
    """

    __slots__ = (
        "copartition_groups",
        "repartition_sink_topics",
        "repartition_source_topics",
        "source_topic_regex",
        "source_topics",
        "state_changelog_topics",
        "subtopology_id",
    )

    def __init__(
        self,
        subtopology_id: str = "",
        source_topics: list[str] | None = None,
        source_topic_regex: list[str] | None = None,
        state_changelog_topics: list[TopicInfo] | None = None,
        repartition_sink_topics: list[str] | None = None,
        repartition_source_topics: list[TopicInfo] | None = None,
        copartition_groups: list[CopartitionGroup] | None = None,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.source_topics: list[str] = [] if source_topics is None else source_topics
        self.source_topic_regex: list[str] = (
            [] if source_topic_regex is None else source_topic_regex
        )
        self.state_changelog_topics: list[TopicInfo] = (
            [] if state_changelog_topics is None else state_changelog_topics
        )
        self.repartition_sink_topics: list[str] = (
            [] if repartition_sink_topics is None else repartition_sink_topics
        )
        self.repartition_source_topics: list[TopicInfo] = (
            [] if repartition_source_topics is None else repartition_source_topics
        )
        self.copartition_groups: list[CopartitionGroup] = (
            [] if copartition_groups is None else copartition_groups
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Subtopology, int]:
        subtopology_id, at = read_string(data, at, True)
        source_topics, at = read_strings(data, at, True)
        source_topic_regex, at = read_strings(data, at, True)
        state_changelog_topics, at = read_structs(data, at, True, TopicInfo.read, version)
        repartition_sink_topics, at = read_strings(data, at, True)
        repartition_source_topics, at = read_structs(data, at, True, TopicInfo.read, version)
        copartition_groups, at = read_structs(data, at, True, CopartitionGroup.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            subtopology_id,
            source_topics,
            source_topic_regex,
            state_changelog_topics,
            repartition_sink_topics,
            repartition_source_topics,
            copartition_groups,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.subtopology_id, True)
        write_strings(out, self.source_topics, True)
        write_strings(out, self.source_topic_regex, True)
        write_structs(out, self.state_changelog_topics, True, version)
        write_strings(out, self.repartition_sink_topics, True)
        write_structs(out, self.repartition_source_topics, True, version)
        write_structs(out, self.copartition_groups, True, version)
        out.append(0)


class Topology(Message):
    """A part of it.

    epoch
    subtopologies
    """

    __slots__ = ("epoch", "subtopologies")

    def __init__(self, epoch: int = 0, subtopologies: list[Subtopology] | None = None) -> None:
        self.epoch = epoch
        self.subtopologies: list[Subtopology] = [] if subtopologies is None else subtopologies

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Topology, int]:
        (epoch,) = _INT32.unpack_from(data, at)
        at += 4
        subtopologies, at = read_structs(data, at, True, Subtopology.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(epoch, subtopologies), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.epoch)
        write_structs(out, self.subtopologies, True, version)
        out.append(0)


class TaskIds(Message):
    """A part of it.

    subtopology_id
    partitions
    """

    __slots__ = ("partitions", "subtopology_id")

    def __init__(self, subtopology_id: str = "", partitions: list[int] | None = None) -> None:
        self.subtopology_id = subtopology_id
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TaskIds, int]:
        subtopology_id, at = read_string(data, at, True)
        partitions, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(subtopology_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.subtopology_id, True)
        write_numbers(out, self.partitions, True, "i")
        out.append(0)


class Endpoint(Message):
    """A part of it.

    host
    port
    """

    __slots__ = ("host", "port")

    def __init__(self, host: str = "", port: int = 0) -> None:
        self.host = host
        self.port = port

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Endpoint, int]:
        host, at = read_string(data, at, True)
        (port,) = _UINT16.unpack_from(data, at)
        at += 2
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(host, port), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.host, True)
        out += _UINT16.pack(self.port)
        out.append(0)


class TaskOffset(Message):
    """A part of it.

    subtopology_id
    partition
    offset
    """

    __slots__ = ("offset", "partition", "subtopology_id")

    def __init__(self, subtopology_id: str = "", partition: int = 0, offset: int = 0) -> None:
        self.subtopology_id = subtopology_id
        self.partition = partition
        self.offset = offset

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TaskOffset, int]:
        subtopology_id, at = read_string(data, at, True)
        partition, offset = _INT32_INT64.unpack_from(data, at)
        at += 12
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(subtopology_id, partition, offset), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.subtopology_id, True)
        out += _INT32_INT64.pack(self.partition, self.offset)
        out.append(0)


class StreamsGroupHeartbeatRequest(Message):
    """The request.

    group_id
    member_id
    member_epoch
    endpoint_information_epoch
    instance_id
    rack_id
    rebalance_timeout_ms
    topology
    active_tasks
    standby_tasks
    warmup_tasks
    process_id
    user_endpoint
    client_tags
    task_offsets
    task_end_offsets
    shutdown_application
    """

    __slots__ = (
        "active_tasks",
        "client_tags",
        "endpoint_information_epoch",
        "group_id",
        "instance_id",
        "member_epoch",
        "member_id",
        "process_id",
        "rack_id",
        "rebalance_timeout_ms",
        "shutdown_application",
        "standby_tasks",
        "task_end_offsets",
        "task_offsets",
        "topology",
        "user_endpoint",
        "warmup_tasks",
    )
    API_KEY: ClassVar[int] = 88
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        endpoint_information_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        topology: Topology | None = None,
        active_tasks: list[TaskIds] | None = None,
        standby_tasks: list[TaskIds] | None = None,
        warmup_tasks: list[TaskIds] | None = None,
        process_id: str | None = None,
        user_endpoint: Endpoint | None = None,
        client_tags: list[KeyValue] | None = None,
        task_offsets: list[TaskOffset] | None = None,
        task_end_offsets: list[TaskOffset] | None = None,
        shutdown_application: bool = False,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.endpoint_information_epoch = endpoint_information_epoch
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.topology = topology
        self.active_tasks = active_tasks
        self.standby_tasks = standby_tasks
        self.warmup_tasks = warmup_tasks
        self.process_id = process_id
        self.user_endpoint = user_endpoint
        self.client_tags = client_tags
        self.task_offsets = task_offsets
        self.task_end_offsets = task_end_offsets
        self.shutdown_application = shutdown_application

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[StreamsGroupHeartbeatRequest, int]:
        group_id, at = read_string(data, at, True)
        member_id, at = read_string(data, at, True)
        member_epoch, endpoint_information_epoch = _INT32_2_TIMES.unpack_from(data, at)
        at += 8
        instance_id, at = read_nullable_string(data, at, True)
        rack_id, at = read_nullable_string(data, at, True)
        (rebalance_timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        topology, at = read_nullable_struct(data, at, Topology.read, version)
        active_tasks, at = read_nullable_structs(data, at, True, TaskIds.read, version)
        standby_tasks, at = read_nullable_structs(data, at, True, TaskIds.read, version)
        warmup_tasks, at = read_nullable_structs(data, at, True, TaskIds.read, version)
        process_id, at = read_nullable_string(data, at, True)
        user_endpoint, at = read_nullable_struct(data, at, Endpoint.read, version)
        client_tags, at = read_nullable_structs(data, at, True, KeyValue.read, version)
        task_offsets, at = read_nullable_structs(data, at, True, TaskOffset.read, version)
        task_end_offsets, at = read_nullable_structs(data, at, True, TaskOffset.read, version)
        (shutdown_application,) = _BOOL.unpack_from(data, at)
        at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            group_id,
            member_id,
            member_epoch,
            endpoint_information_epoch,
            instance_id,
            rack_id,
            rebalance_timeout_ms,
            topology,
            active_tasks,
            standby_tasks,
            warmup_tasks,
            process_id,
            user_endpoint,
            client_tags,
            task_offsets,
            task_end_offsets,
            shutdown_application,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.group_id, True)
        write_string(out, self.member_id, True)
        out += _INT32_2_TIMES.pack(self.member_epoch, self.endpoint_information_epoch)
        write_nullable_string(out, self.instance_id, True)
        write_nullable_string(out, self.rack_id, True)
        out += _INT32.pack(self.rebalance_timeout_ms)
        write_nullable_struct(out, self.topology, version)
        write_nullable_structs(out, self.active_tasks, True, version)
        write_nullable_structs(out, self.standby_tasks, True, version)
        write_nullable_structs(out, self.warmup_tasks, True, version)
        write_nullable_string(out, self.process_id, True)
        write_nullable_struct(out, self.user_endpoint, version)
        write_nullable_structs(out, self.client_tags, True, version)
        write_nullable_structs(out, self.task_offsets, True, version)
        write_nullable_structs(out, self.task_end_offsets, True, version)
        out += _BOOL.pack(self.shutdown_application)
        out.append(0)

    def error_response(self, version: int, code: Code) -> StreamsGroupHeartbeatResponse:
        return StreamsGroupHeartbeatResponse(error_code=code)


class Status(Message):
    """A part of it.

    status_code
    status_detail
    """

    __slots__ = ("status_code", "status_detail")

    def __init__(self, status_code: int = 0, status_detail: str = "") -> None:
        self.status_code = status_code
        self.status_detail = status_detail

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Status, int]:
        (status_code,) = _INT8.unpack_from(data, at)
        at += 1
        status_detail, at = read_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(status_code, status_detail), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT8.pack(self.status_code)
        write_string(out, self.status_detail, True)
        out.append(0)


class TopicPartition(Message):
    """A part of it.

    topic
    partitions
    """

    __slots__ = ("partitions", "topic")

    def __init__(self, topic: str = "", partitions: list[int] | None = None) -> None:
        self.topic = topic
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicPartition, int]:
        topic, at = read_string(data, at, True)
        partitions, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.topic, True)
        write_numbers(out, self.partitions, True, "i")
        out.append(0)


class EndpointToPartitions(Message):
    """A part of it.

    user_endpoint
    active_partitions
    standby_partitions
    """

    __slots__ = ("active_partitions", "standby_partitions", "user_endpoint")

    def __init__(
        self,
        user_endpoint: Endpoint | None = None,
        active_partitions: list[TopicPartition] | None = None,
        standby_partitions: list[TopicPartition] | None = None,
    ) -> None:
        self.user_endpoint: Endpoint = Endpoint() if user_endpoint is None else user_endpoint
        self.active_partitions: list[TopicPartition] = (
            [] if active_partitions is None else active_partitions
        )
        self.standby_partitions: list[TopicPartition] = (
            [] if standby_partitions is None else standby_partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[EndpointToPartitions, int]:
        user_endpoint, at = Endpoint.read(data, at, version)
        active_partitions, at = read_structs(data, at, True, TopicPartition.read, version)
        standby_partitions, at = read_structs(data, at, True, TopicPartition.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(user_endpoint, active_partitions, standby_partitions), at

    def write(self, out: bytearray, version: int) -> None:
        self.user_endpoint.write(out, version)
        write_structs(out, self.active_partitions, True, version)
        write_structs(out, self.standby_partitions, True, version)
        out.append(0)


class StreamsGroupHeartbeatResponse(Message):
    """The response.

    throttle_time_ms
    error_code
    error_message
    member_id
    member_epoch
    heartbeat_interval_ms
    acceptable_recovery_lag
    task_offset_interval_ms
    status
    active_tasks
    standby_tasks
    warmup_tasks
    endpoint_information_epoch
    partitions_by_user_endpoint
    """

    __slots__ = (
        "acceptable_recovery_lag",
        "active_tasks",
        "endpoint_information_epoch",
        "error_code",
        "error_message",
        "heartbeat_interval_ms",
        "member_epoch",
        "member_id",
        "partitions_by_user_endpoint",
        "standby_tasks",
        "status",
        "task_offset_interval_ms",
        "throttle_time_ms",
        "warmup_tasks",
    )
    API_KEY: ClassVar[int] = 88
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str = "",
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        acceptable_recovery_lag: int = 0,
        task_offset_interval_ms: int = 0,
        status: list[Status] | None = NOTHING,
        active_tasks: list[TaskIds] | None = None,
        standby_tasks: list[TaskIds] | None = None,
        warmup_tasks: list[TaskIds] | None = None,
        endpoint_information_epoch: int = 0,
        partitions_by_user_endpoint: list[EndpointToPartitions] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.acceptable_recovery_lag = acceptable_recovery_lag
        self.task_offset_interval_ms = task_offset_interval_ms
        self.status: list[Status] | None = [] if status is NOTHING else status
        self.active_tasks = active_tasks
        self.standby_tasks = standby_tasks
        self.warmup_tasks = warmup_tasks
        self.endpoint_information_epoch = endpoint_information_epoch
        self.partitions_by_user_endpoint = partitions_by_user_endpoint

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[StreamsGroupHeartbeatResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, True)
        member_id, at = read_string(data, at, True)
        member_epoch, heartbeat_interval_ms, acceptable_recovery_lag, task_offset_interval_ms = (
            _INT32_4_TIMES.unpack_from(data, at)
        )
        at += 16
        status, at = read_nullable_structs(data, at, True, Status.read, version)
        active_tasks, at = read_nullable_structs(data, at, True, TaskIds.read, version)
        standby_tasks, at = read_nullable_structs(data, at, True, TaskIds.read, version)
        warmup_tasks, at = read_nullable_structs(data, at, True, TaskIds.read, version)
        (endpoint_information_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        partitions_by_user_endpoint, at = read_nullable_structs(
            data, at, True, EndpointToPartitions.read, version
        )
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            throttle_time_ms,
            error_code,
            error_message,
            member_id,
            member_epoch,
            heartbeat_interval_ms,
            acceptable_recovery_lag,
            task_offset_interval_ms,
            status,
            active_tasks,
            standby_tasks,
            warmup_tasks,
            endpoint_information_epoch,
            partitions_by_user_endpoint,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message, True)
        write_string(out, self.member_id, True)
        out += _INT32_4_TIMES.pack(
            self.member_epoch,
            self.heartbeat_interval_ms,
            self.acceptable_recovery_lag,
            self.task_offset_interval_ms,
        )
        write_nullable_structs(out, self.status, True, version)
        write_nullable_structs(out, self.active_tasks, True, version)
        write_nullable_structs(out, self.standby_tasks, True, version)
        write_nullable_structs(out, self.warmup_tasks, True, version)
        out += _INT32.pack(self.endpoint_information_epoch)
        write_nullable_structs(out, self.partitions_by_user_endpoint, True, version)
        out.append(0)
