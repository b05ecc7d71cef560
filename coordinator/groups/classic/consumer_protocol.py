"""The subscriptions and assignments that classic consumers exchange by JoinGroup and SyncGroup.

In a classic group, the broker reads only the topics of the subscriptions; the other bytes are for
the consumers. In a consumer group with classic members, the broker reads their whole subscriptions,
and writes their assignments. Each version begins with the fields of the versions before it. Numbers
are big-endian. A string is its size as int16, followed by its bytes in UTF-8:

    subscription   version int16, topics (int32 count, each a string),
                   user_data (int32 size, -1 for null, bytes)
              1+   owned_partitions (int32 count, each: topic string, partitions: int32 count, each
                   int32)
              2+   generation_id int32
              3+   rack_id (string, size -1 for null; an empty one, as librdkafka sends it, is none)
    assignment     version int16, partitions (as owned_partitions), user_data

Source: Apache Kafka's schemas ConsumerProtocolSubscription and ConsumerProtocolAssignment.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

CONSUMER_PROTOCOL_TYPE = "consumer"
LAST_VERSION = 3

_HEAD = struct.Struct(">hi")  # version, count of topics
_INT16 = struct.Struct(">h")
_TOPIC_SIZE = _INT16
_INT32 = struct.Struct(">i")
_USER_DATA_SIZE = _INT32

PartitionsByTopic = dict[str, list[int]]


class Subscription(NamedTuple):
    """The topics that a classic consumer reads, and the partitions that it owns."""

    version: int
    topics: tuple[str, ...]
    owned: PartitionsByTopic
    rack_id: str | None


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics of a consumer's subscription; None if the bytes cannot be read."""
    head = _read_head(metadata)
    return None if head is None else head[1]


def read_subscription(metadata: bytes) -> Subscription | None:
    """A consumer's subscription; None if the bytes cannot be read."""
    head = _read_head(metadata)
    if head is None:
        return None
    version, topics, at = head
    owned: PartitionsByTopic = {}
    rack_id = None
    try:
        if version >= 1:
            owned, at = _read_partitions(metadata, at)
        if version >= 2:
            at += _INT32.size  # the generation
        if version >= 3:
            rack_id, at = _read_nullable_string(metadata, at)
    except (struct.error, ValueError):
        return None
    return Subscription(version, tuple(topics), owned, rack_id or None)


def read_assignment(assignment: bytes) -> PartitionsByTopic | None:
    """The partitions of a leader's assignment; None if the bytes cannot be read."""
    if not assignment:
        return {}
    try:
        (version,) = _INT16.unpack_from(assignment)
        return None if version < 0 else _read_partitions(assignment, _INT16.size)[0]
    except (struct.error, ValueError):
        return None


def write_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """The bytes of an assignment without user data."""
    parts = [_HEAD.pack(max(0, min(version, LAST_VERSION)), len(partitions))]
    for topic, numbers in partitions.items():
        encoded = topic.encode()
        parts.append(_INT16.pack(len(encoded)) + encoded)
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    parts.append(_USER_DATA_SIZE.pack(-1))
    return b"".join(parts)


def _read_head(metadata: bytes) -> tuple[int, list[str], int] | None:
    """Read the beginning of a subscription. Gives: (version, topics, position after the user data);
    None if the bytes cannot be read.
    """
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count < 0:
            return None
        topics, position = [], _HEAD.size
        for _ in range(count):
            (size,) = _TOPIC_SIZE.unpack_from(metadata, position)
            position += _TOPIC_SIZE.size + size
            if size < 0:
                return None
            topics.append(metadata[position - size : position].decode())
        (size,) = _USER_DATA_SIZE.unpack_from(metadata, position)
    except (struct.error, UnicodeDecodeError):
        return None
    end = position + _USER_DATA_SIZE.size
    if end + size > len(metadata):
        return None
    return version, topics, end + max(size, 0)


def _read_partitions(data: bytes, at: int) -> tuple[PartitionsByTopic, int]:
    """Read a list of partitions by topic. Gives: the partitions, and the position after them.
    Raises: ValueError, struct.error.
    """
    partitions: PartitionsByTopic = {}
    (topic_count,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    for _ in range(topic_count):
        topic, at = _read_nullable_string(data, at)
        (count,) = _INT32.unpack_from(data, at)
        at += _INT32.size
        if topic is None or count < 0 or at + count * _INT32.size > len(data):
            raise ValueError("a list of partitions is wrong")
        partitions.setdefault(topic, []).extend(struct.unpack_from(f">{count}i", data, at))
        at += count * _INT32.size
    return partitions, at


def _read_nullable_string(data: bytes, at: int) -> tuple[str | None, int]:
    """A string, or None, and the position after it. Raises: ValueError, struct.error."""
    (size,) = _INT16.unpack_from(data, at)
    at += _INT16.size
    if size < 0:
        return None, at
    if at + size > len(data):
        raise ValueError("a string is longer than the rest")
    return data[at : at + size].decode(), at + size
