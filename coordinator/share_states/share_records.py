"""The records of share partitions in `__share_group_state`, as Apache Kafka 4.3 writes them.

Keys: int16 version, then group_id (int16 length and UTF-8), topic_id (uuid), partition int32:

    0      a snapshot: the whole state of the share partition
    1      an update: the changes since the last record

Values: int16 version (0), then, in compact forms and with tagged fields at the end of each struct:

    0      snapshot_epoch, state_epoch, leader_epoch int32, start_offset int64, create_timestamp,
           write_timestamp int64, state_batches; tag 0: delivery_complete_count int32 (not written
           if it is -1)
    1      snapshot_epoch, leader_epoch int32, start_offset int64 (-1: unchanged), state_batches;
           tag 0: delivery_complete_count int32

    state_batches: array of (first_offset, last_offset int64, delivery_state int8 (0 available,
    2 acknowledged, 4 archived), delivery_count int16)

A snapshot without a value is a tombstone. A leader epoch of -1 in an update means that it is
unchanged.

Source: Apache Kafka's schemas ShareSnapshotKey and -Value, ShareUpdateKey and -Value; KIP-932,
        KIP-1226.
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.coordinator.result import CoordinatorRecord
from barnabas.coordinator.share_states.state_batches import StateBatch
from barnabas.protocol.primitives import (
    Buffer,
    read_string,
    read_tags,
    read_uvarint,
    skip_tags,
    write_string,
    write_uvarint,
)

SNAPSHOT_VERSION, UPDATE_VERSION = 0, 1
VALUE_VERSION = 0
UNCHANGED = -1
UNKNOWN_COUNT = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_KEY_END = struct.Struct(">16si")
_SNAPSHOT = struct.Struct(">hiiiqqq")
_UPDATE = struct.Struct(">hiiq")
_BATCH = struct.Struct(">qqbh")
_WITHOUT_TAGS = struct.Struct(">qqbhx")
_COUNT_TAG = b"\x01\x00\x04"  # one tagged field, which has the number 0 and a length of four bytes


class SharePartitionKey(NamedTuple):
    """A partition that one share group reads.

    topic_id: the 16 bytes of the id, which are faster to hash than the UUID object.
    """

    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{self.group_id}:{uuid.UUID(bytes=self.topic_id)}:{self.partition}"


NO_TOPIC_ID = bytes(16)


def coordinator_key(key: SharePartitionKey) -> str:
    """Return the text whose hash determines the partition of __share_group_state. Source: Apache
    Kafka.
    """
    topic_id = base64.urlsafe_b64encode(key.topic_id).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


class Snapshot(NamedTuple):
    """The value of a snapshot.

    delivery_complete_count: the number of offsets, from the start offset on, that are acknowledged
    or archived; -1 if unknown.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp: int
    write_timestamp: int
    state_batches: Sequence[StateBatch]


class Update(NamedTuple):
    """The value of an update."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: Sequence[StateBatch]


def decode_key(key: bytes) -> tuple[int, SharePartitionKey] | None:
    """Decode a key into its version and share partition.

    Gives:  (version, share partition); None for an unknown version.
    Raises: ValueError, struct.error, IndexError if the key is damaged.
    """
    (version,) = _INT16.unpack_from(key)
    if version not in (SNAPSHOT_VERSION, UPDATE_VERSION):
        return None
    group_id, at = read_string(key, _INT16.size, False)
    topic_id, partition = _KEY_END.unpack_from(key, at)
    return version, SharePartitionKey(group_id, topic_id, partition)


def decode_snapshot(value: bytes) -> Snapshot:
    """Decode the value of a snapshot. Raises: as `decode_key`."""
    _check_version(value)
    _, snapshot_epoch, state_epoch, leader_epoch, start_offset, created, written = (
        _SNAPSHOT.unpack_from(value)
    )
    batches, at = _read_batches(value, _SNAPSHOT.size)
    return Snapshot(
        snapshot_epoch,
        state_epoch,
        leader_epoch,
        start_offset,
        _read_count(value, at),
        created,
        written,
        batches,
    )


def decode_update(value: bytes) -> Update:
    """Decode the value of an update. Raises: as `decode_key`."""
    _check_version(value)
    _, snapshot_epoch, leader_epoch, start_offset = _UPDATE.unpack_from(value)
    batches, at = _read_batches(value, _UPDATE.size)
    return Update(snapshot_epoch, leader_epoch, start_offset, _read_count(value, at), batches)


def snapshot_record(key: SharePartitionKey, one: Snapshot) -> CoordinatorRecord:
    """Encode a snapshot, which is the whole state, as a record."""
    out = bytearray(
        _SNAPSHOT.pack(
            VALUE_VERSION,
            one.snapshot_epoch,
            one.state_epoch,
            one.leader_epoch,
            one.start_offset,
            one.create_timestamp,
            one.write_timestamp,
        )
    )
    _write_batches(out, one.state_batches, one.delivery_complete_count)
    return CoordinatorRecord(_encode_key(SNAPSHOT_VERSION, key), bytes(out))


def update_record(key: SharePartitionKey, one: Update) -> CoordinatorRecord:
    """The record of an update."""
    out = bytearray(
        _UPDATE.pack(VALUE_VERSION, one.snapshot_epoch, one.leader_epoch, one.start_offset)
    )
    _write_batches(out, one.state_batches, one.delivery_complete_count)
    return CoordinatorRecord(_encode_key(UPDATE_VERSION, key), bytes(out))


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    """The tombstone that deletes a state."""
    return CoordinatorRecord(_encode_key(SNAPSHOT_VERSION, key), None)


def _encode_key(version: int, key: SharePartitionKey) -> bytes:
    out = bytearray(_INT16.pack(version))
    write_string(out, key.group_id, False)
    return bytes(out + _KEY_END.pack(key.topic_id, key.partition))


def _check_version(value: bytes) -> None:
    (version,) = _INT16.unpack_from(value)
    if version != VALUE_VERSION:
        raise ValueError(f"a record of a share partition has the unknown version {version}")


def _write_batches(out: bytearray, batches: Iterable[StateBatch], complete_count: int) -> None:
    """Append the batches of records, then the number of complete deliveries, as a tagged field, if
    it is known.
    """
    packed = [_WITHOUT_TAGS.pack(*run) for run in batches]
    write_uvarint(out, len(packed) + 1)
    out += b"".join(packed)
    if complete_count == UNKNOWN_COUNT:
        out.append(0)
    else:
        out += _COUNT_TAG + _INT32.pack(complete_count)


def _read_batches(value: bytes, at: int) -> tuple[list[StateBatch], int]:
    """The batches of records, and the position after them."""
    size, at = read_uvarint(value, at)
    batches = []
    for _ in range(size - 1):
        batches.append(StateBatch(*_BATCH.unpack_from(value, at)))
        at = skip_tags(value, at + _BATCH.size)
    return batches, at


def _read_count(value: Buffer, at: int) -> int:
    """The number of complete deliveries in the tagged fields; UNKNOWN_COUNT without that field."""
    tags, _ = read_tags(value, at)
    if 0 not in tags:
        return UNKNOWN_COUNT
    (count,) = _INT32.unpack(tags[0])
    return int(count)
