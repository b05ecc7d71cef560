"""The records of share partitions in `__share_group_state`, as Apache Kafka 4.3 writes them.

A snapshot is the whole state of a share partition; an update has the changes since the last record.
Their bytes are Kafka's (protocol/generator/schemas/records/share_state.json). A snapshot without a
value is a tombstone. In an update, a start offset or a leader epoch of -1 is unchanged.

Source: KIP-932, KIP-1226.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.coordinator.result import CoordinatorRecord
from barnabas.coordinator.share_states.state_batches import StateBatch
from barnabas.protocol.internal_records.share_state import (
    READ_KEY,
    encode_share_snapshot_key,
    encode_share_snapshot_value,
    encode_share_update_key,
    encode_share_update_value,
    read_share_snapshot_value,
    read_share_update_value,
)

SNAPSHOT_VERSION, UPDATE_VERSION = 0, 1
UNCHANGED = -1
UNKNOWN_COUNT = -1


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
    version = key[0] << 8 | key[1]
    if version not in (SNAPSHOT_VERSION, UPDATE_VERSION):
        return None
    return version, SharePartitionKey(*READ_KEY[version](key)[:-1])


def decode_snapshot(value: bytes) -> Snapshot:
    """Decode the value of a snapshot. Raises: as `decode_key`."""
    _check_version(value)
    snapshot_epoch, state_epoch, leader_epoch, start_offset, created, written, batches, count, _ = (
        read_share_snapshot_value(value)
    )
    return Snapshot(
        snapshot_epoch,
        state_epoch,
        leader_epoch,
        start_offset,
        count,
        created,
        written,
        list(map(StateBatch._make, batches)),
    )


def decode_update(value: bytes) -> Update:
    """Decode the value of an update. Raises: as `decode_key`."""
    _check_version(value)
    snapshot_epoch, leader_epoch, start_offset, batches, count, _ = read_share_update_value(value)
    return Update(
        snapshot_epoch, leader_epoch, start_offset, count, list(map(StateBatch._make, batches))
    )


def snapshot_record(key: SharePartitionKey, one: Snapshot) -> CoordinatorRecord:
    """Encode a snapshot, which is the whole state, as a record."""
    return CoordinatorRecord(
        encode_share_snapshot_key(*key),
        encode_share_snapshot_value(
            one.snapshot_epoch,
            one.state_epoch,
            one.leader_epoch,
            one.start_offset,
            one.create_timestamp,
            one.write_timestamp,
            one.state_batches,
            one.delivery_complete_count,
        ),
    )


def update_record(key: SharePartitionKey, one: Update) -> CoordinatorRecord:
    """The record of an update."""
    return CoordinatorRecord(
        encode_share_update_key(*key),
        encode_share_update_value(
            one.snapshot_epoch,
            one.leader_epoch,
            one.start_offset,
            one.state_batches,
            one.delivery_complete_count,
        ),
    )


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    """The tombstone that deletes a state."""
    return CoordinatorRecord(encode_share_snapshot_key(*key), None)


def _check_version(value: bytes) -> None:
    if value[0] or value[1]:
        version = int.from_bytes(value[:2], "big", signed=True)
        raise ValueError(f"a record of a share partition has the unknown version {version}")
