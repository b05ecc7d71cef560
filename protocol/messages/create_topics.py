"""CreateTopics, API key 19: versions 0 to 7, flexible from 5.

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
    read_tags,
    read_uuid,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_nullable_structs,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)

_BOOL = struct.Struct(">?")
_BOOL_INT8_BOOL = struct.Struct(">?b?")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")


class CreatableReplicaAssignment(Message):
    """The manual partition assignment, or the empty array if we are using automatic assignment.

    partition_index: The partition index.
    broker_ids: The brokers to place the partition on.
    """

    __slots__ = ("broker_ids", "partition_index")

    def __init__(self, partition_index: int = 0, broker_ids: list[int] | None = None) -> None:
        self.partition_index = partition_index
        self.broker_ids: list[int] = [] if broker_ids is None else broker_ids

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreatableReplicaAssignment, int]:
        compact = version >= 5
        (partition_index,) = _INT32.unpack_from(data, at)
        at += 4
        broker_ids, at = read_numbers(data, at, compact, "i")
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, broker_ids), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 5
        out += _INT32.pack(self.partition_index)
        write_numbers(out, self.broker_ids, compact, "i")
        if compact:
            out.append(0)


class CreatableTopicConfig(Message):
    """The custom topic configurations to set.

    name: The configuration name.
    value: The configuration value.
    """

    __slots__ = ("name", "value")

    def __init__(self, name: str = "", value: str | None = "") -> None:
        self.name = name
        self.value = value

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreatableTopicConfig, int]:
        compact = version >= 5
        name, at = read_string(data, at, compact)
        value, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, value), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 5
        write_string(out, self.name, compact)
        write_nullable_string(out, self.value, compact)
        if compact:
            out.append(0)


class CreatableTopic(Message):
    """The topics to create.

    name: The topic name.
    num_partitions: The number of partitions to create in the topic, or -1 if we are either
        specifying a manual partition assignment or using the default partitions.
    replication_factor: The number of replicas to create for each partition in the topic, or -1
        if we are either specifying a manual partition assignment or using the default
        replication factor.
    assignments: The manual partition assignment, or the empty array if we are using automatic
        assignment.
    configs: The custom topic configurations to set.
    """

    __slots__ = ("assignments", "configs", "name", "num_partitions", "replication_factor")

    def __init__(
        self,
        name: str = "",
        num_partitions: int = 0,
        replication_factor: int = 0,
        assignments: list[CreatableReplicaAssignment] | None = None,
        configs: list[CreatableTopicConfig] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.assignments: list[CreatableReplicaAssignment] = (
            [] if assignments is None else assignments
        )
        self.configs: list[CreatableTopicConfig] = [] if configs is None else configs

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreatableTopic, int]:
        compact = version >= 5
        name, at = read_string(data, at, compact)
        num_partitions, replication_factor = _INT32_INT16.unpack_from(data, at)
        at += 6
        assignments, at = read_structs(data, at, compact, CreatableReplicaAssignment.read, version)
        configs, at = read_structs(data, at, compact, CreatableTopicConfig.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, num_partitions, replication_factor, assignments, configs), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 5
        write_string(out, self.name, compact)
        out += _INT32_INT16.pack(self.num_partitions, self.replication_factor)
        write_structs(out, self.assignments, compact, version)
        write_structs(out, self.configs, compact, version)
        if compact:
            out.append(0)


class CreateTopicsRequest(Message):
    """The request.

    topics: The topics to create.
    timeout_ms: How long to wait in milliseconds before timing out the request.
    validate_only (from version 1): If true, check that the topics can be created as specified,
        but don't create anything.
    """

    __slots__ = ("timeout_ms", "topics", "validate_only")
    API_KEY: ClassVar[int] = 19
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 7
    FLEXIBLE_FROM: ClassVar[int] = 5
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics"}

    def __init__(
        self,
        topics: list[CreatableTopic] | None = None,
        timeout_ms: int = 60000,
        validate_only: bool = False,
    ) -> None:
        self.topics: list[CreatableTopic] = [] if topics is None else topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreateTopicsRequest, int]:
        compact = version >= 5
        topics, at = read_structs(data, at, compact, CreatableTopic.read, version)
        (timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        validate_only = False
        if version >= 1:
            (validate_only,) = _BOOL.unpack_from(data, at)
            at += 1
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topics, timeout_ms, validate_only), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 5
        write_structs(out, self.topics, compact, version)
        out += _INT32.pack(self.timeout_ms)
        if version >= 1:
            out += _BOOL.pack(self.validate_only)
        elif self.validate_only:
            refuse_value("validate_only", version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> CreateTopicsResponse:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=row.name, error_code=code, error_message=None)
                for row in self.topics
            ]
        )


class CreatableTopicConfigs(Message):
    """Configuration of the topic.

    name (from version 5): The configuration name.
    value (from version 5): The configuration value.
    read_only (from version 5): True if the configuration is read-only.
    config_source (from version 5): The configuration source.
    is_sensitive (from version 5): True if this configuration is sensitive.
    """

    __slots__ = ("config_source", "is_sensitive", "name", "read_only", "value")

    def __init__(
        self,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_sensitive: bool = False,
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_sensitive = is_sensitive

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreatableTopicConfigs, int]:
        compact = version >= 5
        name = ""
        value: str | None = ""
        read_only = False
        config_source = -1
        is_sensitive = False
        if version >= 5:
            name, at = read_string(data, at, compact)
            value, at = read_nullable_string(data, at, compact)
            read_only, config_source, is_sensitive = _BOOL_INT8_BOOL.unpack_from(data, at)
            at += 3
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, value, read_only, config_source, is_sensitive), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 5
        if version >= 5:
            write_string(out, self.name, compact)
            write_nullable_string(out, self.value, compact)
            out += _BOOL_INT8_BOOL.pack(self.read_only, self.config_source, self.is_sensitive)
        elif self.name != "":
            refuse_value("name", version)
        elif self.value != "":
            refuse_value("value", version)
        elif self.read_only:
            refuse_value("read_only", version)
        elif self.is_sensitive:
            refuse_value("is_sensitive", version)
        if compact:
            out.append(0)


class CreatableTopicResult(Message):
    """Results for each topic we tried to create.

    name: The topic name.
    topic_id (version 7): The unique topic ID.
    error_code: The error code, or 0 if there was no error.
    error_message (from version 1): The error message, or null if there was no error.
    topic_config_error_code (from version 5): Optional topic config error returned if configs
        are not returned in the response.
    num_partitions (from version 5): Number of partitions of the topic.
    replication_factor (from version 5): Replication factor of the topic.
    configs (from version 5): Configuration of the topic.
    """

    __slots__ = (
        "configs",
        "error_code",
        "error_message",
        "name",
        "num_partitions",
        "replication_factor",
        "topic_config_error_code",
        "topic_id",
    )

    def __init__(
        self,
        name: str = "",
        topic_id: uuid.UUID | None = None,
        error_code: int = 0,
        error_message: str | None = "",
        topic_config_error_code: int = 0,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: list[CreatableTopicConfigs] | None = NOTHING,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message
        self.topic_config_error_code = topic_config_error_code
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.configs: list[CreatableTopicConfigs] | None = [] if configs is NOTHING else configs

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreatableTopicResult, int]:
        compact = version >= 5
        name, at = read_string(data, at, compact)
        topic_id: uuid.UUID | None = None
        if version >= 7:
            topic_id, at = read_uuid(data, at)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message: str | None = ""
        if version >= 1:
            error_message, at = read_nullable_string(data, at, compact)
        num_partitions = -1
        replication_factor = -1
        configs: list[CreatableTopicConfigs] | None = []
        if version >= 5:
            num_partitions, replication_factor = _INT32_INT16.unpack_from(data, at)
            at += 6
            configs, at = read_nullable_structs(
                data, at, compact, CreatableTopicConfigs.read, version
            )
        topic_config_error_code = 0
        if compact:
            tags, at = read_tags(data, at)
            if 0 in tags:
                (topic_config_error_code,) = struct.unpack(">h", tags[0])
        return cls(
            name,
            topic_id,
            error_code,
            error_message,
            topic_config_error_code,
            num_partitions,
            replication_factor,
            configs,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 5
        write_string(out, self.name, compact)
        if version >= 7:
            write_uuid(out, self.topic_id)
        out += _INT16.pack(self.error_code)
        if version >= 1:
            write_nullable_string(out, self.error_message, compact)
        if version >= 5:
            out += _INT32_INT16.pack(self.num_partitions, self.replication_factor)
            write_nullable_structs(out, self.configs, compact, version)
        if compact:
            tags: dict[int, bytearray] = {}
            if self.topic_config_error_code != 0:
                tags[0] = bytearray(struct.pack(">h", self.topic_config_error_code))
            write_tags(out, tags)


class CreateTopicsResponse(Message):
    """The response.

    throttle_time_ms (from version 2): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    topics: Results for each topic we tried to create.
    """

    __slots__ = ("throttle_time_ms", "topics")
    API_KEY: ClassVar[int] = 19
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 7
    FLEXIBLE_FROM: ClassVar[int] = 5

    def __init__(
        self, throttle_time_ms: int = 0, topics: list[CreatableTopicResult] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[CreatableTopicResult] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[CreateTopicsResponse, int]:
        compact = version >= 5
        throttle_time_ms = 0
        if version >= 2:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        topics, at = read_structs(data, at, compact, CreatableTopicResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 5
        if version >= 2:
            out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)
