"""The records of `__consumer_offsets`: classic groups and committed offsets, as Kafka writes them.

Integers are big-endian. A string is an int16 length, -1 for null, and UTF-8; bytes are an int32
length and the content. Keys (after an int16 version):

    0, 1   an offset         group string, topic string, partition int32
    2      a group           group string
    others belong to groups of other types (KIP-848) and are skipped

The value of an offset (after an int16 version) is written as version 3, or as version 1 if the
request specified a retention time:

    0      offset int64, metadata string, commit_timestamp int64
    1      offset int64, metadata string, commit_timestamp int64, expire_timestamp int64
    2      offset int64, metadata string, commit_timestamp int64
    3      offset int64, leader_epoch int32, metadata string, commit_timestamp int64
    4      as 3 with a compact string and tagged fields (read only: newer brokers write it)

The value of a group (after an int16 version) is written as version 3:

    0+     protocol_type string, generation int32, protocol nullable string, leader nullable string
    2+     current_state_timestamp int64
    0+     members: int32 count, then each
             0+  member_id string
             3+  group_instance_id nullable string
             0+  client_id string, client_host string
             1+  rebalance_timeout int32
             0+  session_timeout int32, subscription bytes, assignment bytes
    4      as 3 with compact strings, bytes and arrays, and tagged fields (read only)

A value of None is a tombstone. Source: Apache Kafka's schemas OffsetCommitKey/Value and
GroupMetadataKey/Value; KIP-211, KIP-345, KIP-915.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.coordinator.groups.group_offsets import NO_TIMESTAMP, CommittedOffset
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import WallClock

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
HIGHEST_READ_VERSION = 4
FLEXIBLE_VERSION = 4

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_KEY_START = struct.Struct(">hh")  # version, size of the group id
# the start of a value of version 3: version, offset, leader_epoch
_OFFSET_START = struct.Struct(">hqi")
_OFFSET_HEAD = struct.Struct(">hqih")  # the same fields, followed by the size of the metadata
_VERSIONS_OF_OFFSET_KEYS = frozenset((b"\0\0", b"\0\1"))


class OffsetKey(NamedTuple):
    """The key of an offset's record."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a group's record."""

    group_id: str


class MemberMetadata(NamedTuple):
    """A member in the value of its group's record.

    subscription: the member's metadata for the group's protocol. Its metadata for other protocols
    are not stored.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(NamedTuple):
    """The value of a classic group's record.

    A group without members is loaded as Empty, and any other group as Stable.
    """

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


class _Reader:
    """A reader of the fields of one value. flexible: whether lengths are compact, and fields may be
    tagged.
    """

    __slots__ = ("data", "flexible", "position")

    def __init__(self, data: bytes, position: int = 0, *, flexible: bool = False) -> None:
        self.data, self.position, self.flexible = data, position, flexible

    def number(self, form: struct.Struct) -> int:
        return int(form.unpack(self.take(form.size))[0])

    def take(self, size: int) -> bytes:
        """The next bytes of the record. Raises: ValueError if there are fewer."""
        if size < 0 or self.position + size > len(self.data):
            raise ValueError("a field is longer than its record")
        self.position += size
        return self.data[self.position - size : self.position]

    def varint(self) -> int:
        """The next unsigned number with seven bits in each byte, the lowest bits first."""
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def nullable_string(self) -> str | None:
        size = self.varint() - 1 if self.flexible else self.number(_INT16)
        return None if size < 0 else self.take(size).decode()

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError("a field that may not be null is null")
        return text

    def bytes_field(self) -> bytes:
        return self.take(self.count())

    def count(self) -> int:
        return self.varint() - 1 if self.flexible else self.number(_INT32)

    def tags(self) -> None:
        """Skip the tagged fields, none of which is used here."""
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self.take(self.varint())


def _string(text: str | None) -> bytes:
    """A string with its length, or null (-1), in the format of records."""
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _bytes_field(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def decode_key(key: bytes) -> OffsetKey | GroupKey | None:
    """The key of a record; None if the record belongs to a group of another type."""
    version, size = _KEY_START.unpack_from(key)
    if not 0 <= version <= GROUP_KEY_VERSION:
        return None
    if version == GROUP_KEY_VERSION:
        return GroupKey(key[_KEY_START.size : _KEY_START.size + size].decode())
    group_id, rest = split_offset_key(key)
    return OffsetKey(group_id, *decode_topic_partition(rest))


def is_offset_key(key: bytes) -> bool:
    """Whether this is the key of an offset's record."""
    return key[:2] in _VERSIONS_OF_OFFSET_KEYS


def split_offset_key(key: bytes) -> tuple[str, bytes]:
    """Split an offset's key into the group and the rest, which does not depend on the group.

    A start reads the keys of all offsets, and decodes the rest only once for each partition.
    """
    end = _KEY_START.size + (key[2] << 8 | key[3])
    return key[_KEY_START.size : end].decode(), key[end:]


def decode_topic_partition(rest: bytes) -> TopicPartition:
    """Decode the rest of a key that `split_offset_key` returns."""
    (size,) = _INT16.unpack_from(rest)
    end = _INT16.size + size
    (partition,) = _INT32.unpack_from(rest, end)
    return TopicPartition(rest[_INT16.size : end].decode(), partition)


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return (
        _INT16.pack(OFFSET_KEY_VERSION)
        + _string(group_id)
        + _string(topic)
        + _INT32.pack(partition)
    )


def encode_group_key(group_id: str) -> bytes:
    return _INT16.pack(GROUP_KEY_VERSION) + _string(group_id)


def offset_record(
    group_id: str, topic: str, partition: int, committed: CommittedOffset
) -> CoordinatorRecord:
    """The record of one committed offset."""
    key = encode_offset_key(group_id, topic, partition)
    metadata, timestamp = _string(committed.metadata), _INT64.pack(committed.commit_timestamp_ms)
    if committed.expire_timestamp_ms == NO_TIMESTAMP:
        start = _OFFSET_START.pack(OFFSET_VALUE_VERSION, committed.offset, committed.leader_epoch)
        return CoordinatorRecord(key, start + metadata + timestamp)
    start = _INT16.pack(OFFSET_VALUE_VERSION_WITH_EXPIRY) + _INT64.pack(committed.offset)
    return CoordinatorRecord(
        key, start + metadata + timestamp + _INT64.pack(committed.expire_timestamp_ms)
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(encode_offset_key(group_id, topic, partition), None)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(encode_group_key(group_id), None)


def decode_offset(
    value: bytes, record_offset: int, wall: WallClock | None = None
) -> CommittedOffset:
    """Decode the value of an offset's record.

    Takes:  record_offset, the offset of the record; wall, which converts the wall-clock time of the
            commit to the steady time `since_ms`; None if that time is not needed.
    Raises: ValueError if the version is unknown.
    """
    version = _version(value)
    if version == OFFSET_VALUE_VERSION:
        # Nearly all values are of this version, and a restart reads all of them. The general reader
        # below would be slower.
        _, offset, leader_epoch, size = _OFFSET_HEAD.unpack_from(value)
        end = _OFFSET_HEAD.size + size
        (commit_timestamp_ms,) = _INT64.unpack_from(value, end)
        metadata = value[_OFFSET_HEAD.size : end].decode()
        since_ms = NO_TIMESTAMP if wall is None else wall.since_ms(commit_timestamp_ms)
        return CommittedOffset(
            offset,
            leader_epoch,
            metadata,
            commit_timestamp_ms,
            NO_TIMESTAMP,
            record_offset,
            since_ms,
        )
    reader = _Reader(value, _INT16.size, flexible=version >= FLEXIBLE_VERSION)
    offset = reader.number(_INT64)
    leader_epoch = reader.number(_INT32) if reader.flexible else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.number(_INT64)
    expire_timestamp_ms = (
        reader.number(_INT64) if version == OFFSET_VALUE_VERSION_WITH_EXPIRY else NO_TIMESTAMP
    )
    since_ms = NO_TIMESTAMP if wall is None else wall.since_ms(commit_timestamp_ms)
    return CommittedOffset(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        expire_timestamp_ms,
        record_offset,
        since_ms,
    )


def group_record(group_id: str, group: GroupMetadataValue) -> CoordinatorRecord:
    """The record of a group's members and assignments."""
    parts = [
        _INT16.pack(GROUP_VALUE_VERSION),
        _string(group.protocol_type),
        _INT32.pack(group.generation),
        _string(group.protocol_name),
        _string(group.leader_id),
        _INT64.pack(group.state_timestamp_ms),
        _INT32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            _string(member.member_id),
            _string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _bytes_field(member.subscription),
            _bytes_field(member.assignment),
        )
    return CoordinatorRecord(encode_group_key(group_id), b"".join(parts))


def decode_group(value: bytes) -> GroupMetadataValue:
    """Decode the value of a group's record.

    Raises: ValueError if the version is unknown.
    """
    version = _version(value)
    reader = _Reader(value, _INT16.size, flexible=version >= FLEXIBLE_VERSION)
    protocol_type, generation = reader.string(), reader.number(_INT32)
    protocol_name, leader_id = reader.nullable_string(), reader.nullable_string()
    state_timestamp_ms = reader.number(_INT64) if version >= 2 else NO_TIMESTAMP
    members = tuple(_decode_member(reader, version) for _ in range(reader.count()))
    return GroupMetadataValue(
        protocol_type, generation, protocol_name, leader_id, state_timestamp_ms, members
    )


def _decode_member(reader: _Reader, version: int) -> MemberMetadata:
    """One member in the record of a group, with the fields of the version."""
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.number(_INT32) if version >= 1 else -1
    session_timeout_ms = reader.number(_INT32)
    subscription, assignment = reader.bytes_field(), reader.bytes_field()
    reader.tags()
    # Before version 1 the session timeout was also used as the rebalance timeout.
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = session_timeout_ms
    return MemberMetadata(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def _version(value: bytes) -> int:
    """The version of a value. Raises: ValueError if it is unknown."""
    (version,) = _INT16.unpack_from(value)
    if not 0 <= version <= HIGHEST_READ_VERSION:
        raise ValueError(f"a record of a group has the unknown version {version}")
    return int(version)
