"""StreamsGroupDescribe, API key 89: version 0, flexible from 0.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
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
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_2_TIMES = struct.Struct(">ii")
_INT32_INT16 = struct.Struct(">ih")
_INT32_INT64 = struct.Struct(">iq")
_UINT16 = struct.Struct(">H")


class StreamsGroupDescribeRequest(Message):
    """The request.

    group_ids
    include_authorized_operations
    """

    __slots__ = ("group_ids", "include_authorized_operations")
    API_KEY: ClassVar[int] = 89
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"group_ids": "groups"}

    def __init__(
        self, group_ids: list[str] | None = None, include_authorized_operations: bool = False
    ) -> None:
        self.group_ids: list[str] = [] if group_ids is None else group_ids
        self.include_authorized_operations = include_authorized_operations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[StreamsGroupDescribeRequest, int]:
        group_ids, at = read_strings(data, at, True)
        (include_authorized_operations,) = _BOOL.unpack_from(data, at)
        at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_ids, include_authorized_operations), at

    def write(self, out: bytearray, version: int) -> None:
        write_strings(out, self.group_ids, True)
        out += _BOOL.pack(self.include_authorized_operations)
        out.append(0)

    def error_response(self, version: int, code: Code) -> StreamsGroupDescribeResponse:
        return StreamsGroupDescribeResponse(
            groups=[DescribedGroup(group_id=row, error_code=code) for row in self.group_ids]
        )


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


class Subtopology(Message):
    """A part of it.

    subtopology_id
    source_topics
    repartition_sink_topics
    state_changelog_topics
    repartition_source_topics
    """

    __slots__ = (
        "repartition_sink_topics",
        "repartition_source_topics",
        "source_topics",
        "state_changelog_topics",
        "subtopology_id",
    )

    def __init__(
        self,
        subtopology_id: str = "",
        source_topics: list[str] | None = None,
        repartition_sink_topics: list[str] | None = None,
        state_changelog_topics: list[TopicInfo] | None = None,
        repartition_source_topics: list[TopicInfo] | None = None,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.source_topics: list[str] = [] if source_topics is None else source_topics
        self.repartition_sink_topics: list[str] = (
            [] if repartition_sink_topics is None else repartition_sink_topics
        )
        self.state_changelog_topics: list[TopicInfo] = (
            [] if state_changelog_topics is None else state_changelog_topics
        )
        self.repartition_source_topics: list[TopicInfo] = (
            [] if repartition_source_topics is None else repartition_source_topics
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Subtopology, int]:
        subtopology_id, at = read_string(data, at, True)
        source_topics, at = read_strings(data, at, True)
        repartition_sink_topics, at = read_strings(data, at, True)
        state_changelog_topics, at = read_structs(data, at, True, TopicInfo.read, version)
        repartition_source_topics, at = read_structs(data, at, True, TopicInfo.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            subtopology_id,
            source_topics,
            repartition_sink_topics,
            state_changelog_topics,
            repartition_source_topics,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.subtopology_id, True)
        write_strings(out, self.source_topics, True)
        write_strings(out, self.repartition_sink_topics, True)
        write_structs(out, self.state_changelog_topics, True, version)
        write_structs(out, self.repartition_source_topics, True, version)
        out.append(0)


class Topology(Message):
    """A part of it.

    epoch
    subtopologies
    """

    __slots__ = ("epoch", "subtopologies")

    def __init__(self, epoch: int = 0, subtopologies: list[Subtopology] | None = None) -> None:
        self.epoch = epoch
        self.subtopologies = subtopologies

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Topology, int]:
        (epoch,) = _INT32.unpack_from(data, at)
        at += 4
        subtopologies, at = read_nullable_structs(data, at, True, Subtopology.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(epoch, subtopologies), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.epoch)
        write_nullable_structs(out, self.subtopologies, True, version)
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


class Assignment(Message):
    """A part of it.

    active_tasks
    standby_tasks
    warmup_tasks
    """

    __slots__ = ("active_tasks", "standby_tasks", "warmup_tasks")

    def __init__(
        self,
        active_tasks: list[TaskIds] | None = None,
        standby_tasks: list[TaskIds] | None = None,
        warmup_tasks: list[TaskIds] | None = None,
    ) -> None:
        self.active_tasks: list[TaskIds] = [] if active_tasks is None else active_tasks
        self.standby_tasks: list[TaskIds] = [] if standby_tasks is None else standby_tasks
        self.warmup_tasks: list[TaskIds] = [] if warmup_tasks is None else warmup_tasks

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Assignment, int]:
        active_tasks, at = read_structs(data, at, True, TaskIds.read, version)
        standby_tasks, at = read_structs(data, at, True, TaskIds.read, version)
        warmup_tasks, at = read_structs(data, at, True, TaskIds.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(active_tasks, standby_tasks, warmup_tasks), at

    def write(self, out: bytearray, version: int) -> None:
        write_structs(out, self.active_tasks, True, version)
        write_structs(out, self.standby_tasks, True, version)
        write_structs(out, self.warmup_tasks, True, version)
        out.append(0)


class Member(Message):
    """A part of it.

    member_id
    member_epoch
    instance_id
    rack_id
    client_id
    client_host
    topology_epoch
    process_id
    user_endpoint
    client_tags
    task_offsets
    task_end_offsets
    assignment
    target_assignment
    is_classic
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "client_tags",
        "instance_id",
        "is_classic",
        "member_epoch",
        "member_id",
        "process_id",
        "rack_id",
        "target_assignment",
        "task_end_offsets",
        "task_offsets",
        "topology_epoch",
        "user_endpoint",
    )

    def __init__(
        self,
        member_id: str = "",
        member_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        topology_epoch: int = 0,
        process_id: str = "",
        user_endpoint: Endpoint | None = None,
        client_tags: list[KeyValue] | None = None,
        task_offsets: list[TaskOffset] | None = None,
        task_end_offsets: list[TaskOffset] | None = None,
        assignment: Assignment | None = None,
        target_assignment: Assignment | None = None,
        is_classic: bool = False,
    ) -> None:
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.topology_epoch = topology_epoch
        self.process_id = process_id
        self.user_endpoint = user_endpoint
        self.client_tags: list[KeyValue] = [] if client_tags is None else client_tags
        self.task_offsets: list[TaskOffset] = [] if task_offsets is None else task_offsets
        self.task_end_offsets: list[TaskOffset] = (
            [] if task_end_offsets is None else task_end_offsets
        )
        self.assignment: Assignment = Assignment() if assignment is None else assignment
        self.target_assignment: Assignment = (
            Assignment() if target_assignment is None else target_assignment
        )
        self.is_classic = is_classic

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Member, int]:
        member_id, at = read_string(data, at, True)
        (member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        instance_id, at = read_nullable_string(data, at, True)
        rack_id, at = read_nullable_string(data, at, True)
        client_id, at = read_string(data, at, True)
        client_host, at = read_string(data, at, True)
        (topology_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        process_id, at = read_string(data, at, True)
        user_endpoint, at = read_nullable_struct(data, at, Endpoint.read, version)
        client_tags, at = read_structs(data, at, True, KeyValue.read, version)
        task_offsets, at = read_structs(data, at, True, TaskOffset.read, version)
        task_end_offsets, at = read_structs(data, at, True, TaskOffset.read, version)
        assignment, at = Assignment.read(data, at, version)
        target_assignment, at = Assignment.read(data, at, version)
        (is_classic,) = _BOOL.unpack_from(data, at)
        at += 1
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            member_id,
            member_epoch,
            instance_id,
            rack_id,
            client_id,
            client_host,
            topology_epoch,
            process_id,
            user_endpoint,
            client_tags,
            task_offsets,
            task_end_offsets,
            assignment,
            target_assignment,
            is_classic,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.member_id, True)
        out += _INT32.pack(self.member_epoch)
        write_nullable_string(out, self.instance_id, True)
        write_nullable_string(out, self.rack_id, True)
        write_string(out, self.client_id, True)
        write_string(out, self.client_host, True)
        out += _INT32.pack(self.topology_epoch)
        write_string(out, self.process_id, True)
        write_nullable_struct(out, self.user_endpoint, version)
        write_structs(out, self.client_tags, True, version)
        write_structs(out, self.task_offsets, True, version)
        write_structs(out, self.task_end_offsets, True, version)
        self.assignment.write(out, version)
        self.target_assignment.write(out, version)
        out += _BOOL.pack(self.is_classic)
        out.append(0)


class DescribedGroup(Message):
    """A part of it.

    error_code
    error_message
    group_id
    group_state
    group_epoch
    assignment_epoch
    topology
    members
    authorized_operations
    """

    __slots__ = (
        "assignment_epoch",
        "authorized_operations",
        "error_code",
        "error_message",
        "group_epoch",
        "group_id",
        "group_state",
        "members",
        "topology",
    )

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        group_epoch: int = 0,
        assignment_epoch: int = 0,
        topology: Topology | None = None,
        members: list[Member] | None = None,
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.group_epoch = group_epoch
        self.assignment_epoch = assignment_epoch
        self.topology = topology
        self.members: list[Member] = [] if members is None else members
        self.authorized_operations = authorized_operations

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribedGroup, int]:
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, True)
        group_id, at = read_string(data, at, True)
        group_state, at = read_string(data, at, True)
        group_epoch, assignment_epoch = _INT32_2_TIMES.unpack_from(data, at)
        at += 8
        topology, at = read_nullable_struct(data, at, Topology.read, version)
        members, at = read_structs(data, at, True, Member.read, version)
        (authorized_operations,) = _INT32.unpack_from(data, at)
        at += 4
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            error_code,
            error_message,
            group_id,
            group_state,
            group_epoch,
            assignment_epoch,
            topology,
            members,
            authorized_operations,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT16.pack(self.error_code)
        write_nullable_string(out, self.error_message, True)
        write_string(out, self.group_id, True)
        write_string(out, self.group_state, True)
        out += _INT32_2_TIMES.pack(self.group_epoch, self.assignment_epoch)
        write_nullable_struct(out, self.topology, version)
        write_structs(out, self.members, True, version)
        out += _INT32.pack(self.authorized_operations)
        out.append(0)


class StreamsGroupDescribeResponse(Message):
    """The response.

    throttle_time_ms
    groups
    """

    __slots__ = ("groups", "throttle_time_ms")
    API_KEY: ClassVar[int] = 89
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self, throttle_time_ms: int = 0, groups: list[DescribedGroup] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribedGroup] = [] if groups is None else groups

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[StreamsGroupDescribeResponse, int]:
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        groups, at = read_structs(data, at, True, DescribedGroup.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, groups), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.groups, True, version)
        out.append(0)
