"""OffsetFetch, API key 9: versions 0 to 10, flexible from 6.

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
_INT32 = struct.Struct(">i")
_INT32_INT64 = struct.Struct(">iq")
_INT32_INT64_INT32 = struct.Struct(">iqi")


class OffsetFetchRequestTopic(Message):
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics.

    name (versions 0 to 7): The topic name.
    partition_indexes (versions 0 to 7): The partition indexes we would like to fetch offsets
        for.
    """

    __slots__ = ("name", "partition_indexes")

    def __init__(self, name: str = "", partition_indexes: list[int] | None = None) -> None:
        self.name = name
        self.partition_indexes: list[int] = [] if partition_indexes is None else partition_indexes

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetFetchRequestTopic, int]:
        compact = version >= 6
        name = ""
        partition_indexes: list[int] = []
        if version <= 7:
            name, at = read_string(data, at, compact)
            partition_indexes, at = read_numbers(data, at, compact, "i")
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partition_indexes), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if version <= 7:
            write_string(out, self.name, compact)
            write_numbers(out, self.partition_indexes, compact, "i")
        elif self.name != "":
            refuse_value("name", version)
        elif self.partition_indexes != []:
            refuse_value("partition_indexes", version)
        if compact:
            out.append(0)


class OffsetFetchRequestTopics(Message):
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics.

    name (versions 8 to 9): The topic name.
    topic_id (version 10): The topic ID.
    partition_indexes (from version 8): The partition indexes we would like to fetch offsets
        for.
    """

    __slots__ = ("name", "partition_indexes", "topic_id")

    def __init__(
        self,
        name: str = "",
        topic_id: uuid.UUID | None = None,
        partition_indexes: list[int] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_indexes: list[int] = [] if partition_indexes is None else partition_indexes

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetFetchRequestTopics, int]:
        compact = version >= 6
        name = ""
        if 8 <= version <= 9:
            name, at = read_string(data, at, compact)
        topic_id: uuid.UUID | None = None
        if version >= 10:
            topic_id, at = read_uuid(data, at)
        partition_indexes: list[int] = []
        if version >= 8:
            partition_indexes, at = read_numbers(data, at, compact, "i")
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, topic_id, partition_indexes), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if 8 <= version <= 9:
            write_string(out, self.name, compact)
        if version >= 10:
            write_uuid(out, self.topic_id)
        if version >= 8:
            write_numbers(out, self.partition_indexes, compact, "i")
        elif self.partition_indexes != []:
            refuse_value("partition_indexes", version)
        if compact:
            out.append(0)


class OffsetFetchRequestGroup(Message):
    """Each group we would like to fetch offsets for.

    group_id (from version 8): The group ID.
    member_id (from version 9): The member id.
    member_epoch (from version 9): The member epoch if using the new consumer protocol
        (KIP-848).
    topics (from version 8): Each topic we would like to fetch offsets for, or null to fetch
        offsets for all topics.
    """

    __slots__ = ("group_id", "member_epoch", "member_id", "topics")

    def __init__(
        self,
        group_id: str = "",
        member_id: str | None = None,
        member_epoch: int = -1,
        topics: list[OffsetFetchRequestTopics] | None = NOTHING,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.topics: list[OffsetFetchRequestTopics] | None = [] if topics is NOTHING else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetFetchRequestGroup, int]:
        compact = version >= 6
        group_id = ""
        if version >= 8:
            group_id, at = read_string(data, at, compact)
        member_id: str | None = None
        member_epoch = -1
        if version >= 9:
            member_id, at = read_nullable_string(data, at, compact)
            (member_epoch,) = _INT32.unpack_from(data, at)
            at += 4
        topics: list[OffsetFetchRequestTopics] | None = []
        if version >= 8:
            topics, at = read_nullable_structs(
                data, at, compact, OffsetFetchRequestTopics.read, version
            )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, member_id, member_epoch, topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if version >= 8:
            write_string(out, self.group_id, compact)
        elif self.group_id != "":
            refuse_value("group_id", version)
        if version >= 9:
            write_nullable_string(out, self.member_id, compact)
            out += _INT32.pack(self.member_epoch)
        if version >= 8:
            write_nullable_structs(out, self.topics, compact, version)
        elif self.topics != []:
            refuse_value("topics", version)
        if compact:
            out.append(0)


class OffsetFetchRequest(Message):
    """The request.

    group_id (versions 0 to 7): The group to fetch offsets for.
    topics (versions 0 to 7): Each topic we would like to fetch offsets for, or null to fetch
        offsets for all topics.
    groups (from version 8): Each group we would like to fetch offsets for.
    require_stable (from version 7): Whether broker should hold on returning unstable offsets
        but set a retriable error code for the partitions.
    """

    __slots__ = ("group_id", "groups", "require_stable", "topics")
    API_KEY: ClassVar[int] = 9
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 6
    ROWS: ClassVar[dict[str, str]] = {"topics": "topics", "groups": "groups"}

    def __init__(
        self,
        group_id: str = "",
        topics: list[OffsetFetchRequestTopic] | None = NOTHING,
        groups: list[OffsetFetchRequestGroup] | None = None,
        require_stable: bool = False,
    ) -> None:
        self.group_id = group_id
        self.topics: list[OffsetFetchRequestTopic] | None = [] if topics is NOTHING else topics
        self.groups: list[OffsetFetchRequestGroup] = [] if groups is None else groups
        self.require_stable = require_stable

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetFetchRequest, int]:
        compact = version >= 6
        group_id = ""
        topics: list[OffsetFetchRequestTopic] | None = []
        if version <= 7:
            group_id, at = read_string(data, at, compact)
            topics, at = read_nullable_structs(
                data, at, compact, OffsetFetchRequestTopic.read, version
            )
            if topics is None and not (2 <= version <= 7):
                refuse_null("topics", version)
        groups: list[OffsetFetchRequestGroup] = []
        if version >= 8:
            groups, at = read_structs(data, at, compact, OffsetFetchRequestGroup.read, version)
        require_stable = False
        if version >= 7:
            (require_stable,) = _BOOL.unpack_from(data, at)
            at += 1
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, topics, groups, require_stable), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if version <= 7:
            write_string(out, self.group_id, compact)
            if self.topics is None and not (2 <= version <= 7):
                refuse_value("topics", version)
            write_nullable_structs(out, self.topics, compact, version)
        elif self.group_id != "":
            refuse_value("group_id", version)
        elif self.topics != []:
            refuse_value("topics", version)
        if version >= 8:
            write_structs(out, self.groups, compact, version)
        elif self.groups != []:
            refuse_value("groups", version)
        if version >= 7:
            out += _BOOL.pack(self.require_stable)
        elif self.require_stable:
            refuse_value("require_stable", version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> OffsetFetchResponse:
        if version <= 1:
            return OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        row.name,
                        [
                            OffsetFetchResponsePartition(
                                partition_index=part, error_code=code, committed_offset=-1
                            )
                            for part in row.partition_indexes
                        ],
                    )
                    for row in self.topics or ()
                ]
            )
        if version <= 7:
            return OffsetFetchResponse(error_code=code)
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=row.group_id, error_code=code)
                for row in self.groups
            ]
        )


class OffsetFetchResponsePartition(Message):
    """The responses per partition.

    partition_index (versions 0 to 7): The partition index.
    committed_offset (versions 0 to 7): The committed message offset.
    committed_leader_epoch (versions 5 to 7): The leader epoch.
    metadata (versions 0 to 7): The partition metadata.
    error_code (versions 0 to 7): The error code, or 0 if there was no error.
    """

    __slots__ = (
        "committed_leader_epoch",
        "committed_offset",
        "error_code",
        "metadata",
        "partition_index",
    )

    def __init__(
        self,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetFetchResponsePartition, int]:
        compact = version >= 6
        partition_index = 0
        committed_offset = 0
        if version <= 7:
            partition_index, committed_offset = _INT32_INT64.unpack_from(data, at)
            at += 12
        committed_leader_epoch = -1
        if 5 <= version <= 7:
            (committed_leader_epoch,) = _INT32.unpack_from(data, at)
            at += 4
        metadata: str | None = ""
        error_code = 0
        if version <= 7:
            metadata, at = read_nullable_string(data, at, compact)
            (error_code,) = _INT16.unpack_from(data, at)
            at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            partition_index, committed_offset, committed_leader_epoch, metadata, error_code
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if version <= 7:
            out += _INT32_INT64.pack(self.partition_index, self.committed_offset)
        elif self.partition_index != 0:
            refuse_value("partition_index", version)
        elif self.committed_offset != 0:
            refuse_value("committed_offset", version)
        if 5 <= version <= 7:
            out += _INT32.pack(self.committed_leader_epoch)
        if version <= 7:
            write_nullable_string(out, self.metadata, compact)
            out += _INT16.pack(self.error_code)
        elif self.metadata != "":
            refuse_value("metadata", version)
        elif self.error_code != 0:
            refuse_value("error_code", version)
        if compact:
            out.append(0)


class OffsetFetchResponseTopic(Message):
    """The responses per topic.

    name (versions 0 to 7): The topic name.
    partitions (versions 0 to 7): The responses per partition.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[OffsetFetchResponsePartition] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[OffsetFetchResponsePartition] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetFetchResponseTopic, int]:
        compact = version >= 6
        name = ""
        partitions: list[OffsetFetchResponsePartition] = []
        if version <= 7:
            name, at = read_string(data, at, compact)
            partitions, at = read_structs(
                data, at, compact, OffsetFetchResponsePartition.read, version
            )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if version <= 7:
            write_string(out, self.name, compact)
            write_structs(out, self.partitions, compact, version)
        elif self.name != "":
            refuse_value("name", version)
        elif self.partitions != []:
            refuse_value("partitions", version)
        if compact:
            out.append(0)


class OffsetFetchResponsePartitions(Message):
    """The responses per partition.

    partition_index (from version 8): The partition index.
    committed_offset (from version 8): The committed message offset.
    committed_leader_epoch (from version 8): The leader epoch.
    metadata (from version 8): The partition metadata.
    error_code (from version 8): The partition-level error code, or 0 if there was no error.
    """

    __slots__ = (
        "committed_leader_epoch",
        "committed_offset",
        "error_code",
        "metadata",
        "partition_index",
    )

    def __init__(
        self,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetFetchResponsePartitions, int]:
        compact = version >= 6
        partition_index = 0
        committed_offset = 0
        committed_leader_epoch = -1
        metadata: str | None = ""
        error_code = 0
        if version >= 8:
            partition_index, committed_offset, committed_leader_epoch = (
                _INT32_INT64_INT32.unpack_from(data, at)
            )
            at += 16
            metadata, at = read_nullable_string(data, at, compact)
            (error_code,) = _INT16.unpack_from(data, at)
            at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            partition_index, committed_offset, committed_leader_epoch, metadata, error_code
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if version >= 8:
            out += _INT32_INT64_INT32.pack(
                self.partition_index, self.committed_offset, self.committed_leader_epoch
            )
            write_nullable_string(out, self.metadata, compact)
            out += _INT16.pack(self.error_code)
        elif self.partition_index != 0:
            refuse_value("partition_index", version)
        elif self.committed_offset != 0:
            refuse_value("committed_offset", version)
        elif self.metadata != "":
            refuse_value("metadata", version)
        elif self.error_code != 0:
            refuse_value("error_code", version)
        if compact:
            out.append(0)


class OffsetFetchResponseTopics(Message):
    """The responses per topic.

    name (versions 8 to 9): The topic name.
    topic_id (version 10): The topic ID.
    partitions (from version 8): The responses per partition.
    """

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(
        self,
        name: str = "",
        topic_id: uuid.UUID | None = None,
        partitions: list[OffsetFetchResponsePartitions] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[OffsetFetchResponsePartitions] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetFetchResponseTopics, int]:
        compact = version >= 6
        name = ""
        if 8 <= version <= 9:
            name, at = read_string(data, at, compact)
        topic_id: uuid.UUID | None = None
        if version >= 10:
            topic_id, at = read_uuid(data, at)
        partitions: list[OffsetFetchResponsePartitions] = []
        if version >= 8:
            partitions, at = read_structs(
                data, at, compact, OffsetFetchResponsePartitions.read, version
            )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if 8 <= version <= 9:
            write_string(out, self.name, compact)
        if version >= 10:
            write_uuid(out, self.topic_id)
        if version >= 8:
            write_structs(out, self.partitions, compact, version)
        elif self.partitions != []:
            refuse_value("partitions", version)
        if compact:
            out.append(0)


class OffsetFetchResponseGroup(Message):
    """The responses per group id.

    group_id (from version 8): The group ID.
    topics (from version 8): The responses per topic.
    error_code (from version 8): The group-level error code, or 0 if there was no error.
    """

    __slots__ = ("error_code", "group_id", "topics")

    def __init__(
        self,
        group_id: str = "",
        topics: list[OffsetFetchResponseTopics] | None = None,
        error_code: int = 0,
    ) -> None:
        self.group_id = group_id
        self.topics: list[OffsetFetchResponseTopics] = [] if topics is None else topics
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetFetchResponseGroup, int]:
        compact = version >= 6
        group_id = ""
        topics: list[OffsetFetchResponseTopics] = []
        error_code = 0
        if version >= 8:
            group_id, at = read_string(data, at, compact)
            topics, at = read_structs(data, at, compact, OffsetFetchResponseTopics.read, version)
            (error_code,) = _INT16.unpack_from(data, at)
            at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(group_id, topics, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if version >= 8:
            write_string(out, self.group_id, compact)
            write_structs(out, self.topics, compact, version)
            out += _INT16.pack(self.error_code)
        elif self.group_id != "":
            refuse_value("group_id", version)
        elif self.topics != []:
            refuse_value("topics", version)
        elif self.error_code != 0:
            refuse_value("error_code", version)
        if compact:
            out.append(0)


class OffsetFetchResponse(Message):
    """The response.

    throttle_time_ms (from version 3): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    topics (versions 0 to 7): The responses per topic.
    error_code (versions 2 to 7): The top-level error code, or 0 if there was no error.
    groups (from version 8): The responses per group id.
    """

    __slots__ = ("error_code", "groups", "throttle_time_ms", "topics")
    API_KEY: ClassVar[int] = 9
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 6

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[OffsetFetchResponseTopic] | None = None,
        error_code: int = 0,
        groups: list[OffsetFetchResponseGroup] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetFetchResponseTopic] = [] if topics is None else topics
        self.error_code = error_code
        self.groups: list[OffsetFetchResponseGroup] = [] if groups is None else groups

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[OffsetFetchResponse, int]:
        compact = version >= 6
        throttle_time_ms = 0
        if version >= 3:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        topics: list[OffsetFetchResponseTopic] = []
        if version <= 7:
            topics, at = read_structs(data, at, compact, OffsetFetchResponseTopic.read, version)
        error_code = 0
        if 2 <= version <= 7:
            (error_code,) = _INT16.unpack_from(data, at)
            at += 2
        groups: list[OffsetFetchResponseGroup] = []
        if version >= 8:
            groups, at = read_structs(data, at, compact, OffsetFetchResponseGroup.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, topics, error_code, groups), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 6
        if version >= 3:
            out += _INT32.pack(self.throttle_time_ms)
        if version <= 7:
            write_structs(out, self.topics, compact, version)
        elif self.topics != []:
            refuse_value("topics", version)
        if 2 <= version <= 7:
            out += _INT16.pack(self.error_code)
        if version >= 8:
            write_structs(out, self.groups, compact, version)
        elif self.groups != []:
            refuse_value("groups", version)
        if compact:
            out.append(0)
