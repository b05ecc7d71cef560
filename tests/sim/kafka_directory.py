"""Converts a log directory of ours to one like that of an Apache Kafka that was restarted often.

These changes are made in the files of the simulated disk, once the broker has stopped:

| what | becomes |
|---|---|
| the leader epoch of each batch, and `leader-epoch-checkpoint` | higher, by partition |
| the coordinator epoch in markers and snapshots | higher, as that of `__transaction_state` |
| topics, their settings, reserved producer ids | records of `__cluster_metadata-0` |
| files that are not Kafka's (`storage/files/data_files.py`) | removed |
| after a kill of Kafka: the mark of a clean stop, snapshots, recovery points | removed |

Sizes and offsets do not change, so indexes stay valid. Everything is durable at the end.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from crc32c import crc32c

from barnabas.coordinator.internal_topics import TRANSACTIONS_TOPIC
from barnabas.graduation.kafka_directory.kafka_metadata import (
    CONFIG,
    DIRECTORY,
    OF_TOPIC,
    PRODUCER_IDS,
    TOPIC,
)
from barnabas.protocol.records import CRC_START, NewRecord, batches_in, encode_batch
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    LEADER_EPOCH_NAME,
    RECOVERY_POINT_NAME,
    decode_epochs,
    encode_epochs,
)
from barnabas.storage.files.data_files import kind_of
from sim.disk import Inode, SimDisk

LEADER_EPOCH, CRC = (12, ">i"), (17, ">I")
# from the end of a marker's batch: the epoch has four bytes, followed by the count of headers
COORDINATOR_EPOCH_FROM_END = 5
SNAPSHOT_HEAD, PRODUCER_BYTES, COORDINATOR_EPOCH_AT = 10, 46, 34


class KafkaTopic(NamedTuple):
    """A topic's entry in Kafka's metadata log."""

    name: str
    topic_id: uuid.UUID
    configs: Mapping[str, str]


def leave_as_kafka(
    disk: SimDisk,
    data_dir: str,
    topics: list[KafkaTopic],
    *,
    rng: random.Random,
    epochs: int,
    next_producer_id: int,
    is_clean: bool,
) -> None:
    """Convert the directory of a stopped broker to one of Kafka's.

    Takes: epochs, the increase of the leader epochs of __transaction_state, and the highest
    increase of those of other topics. is_clean: whether Kafka was stopped rather than killed.
    """
    rises: dict[str, int] = {}
    for path, inode in list(disk.files()):
        directory, _, name = path.removeprefix(data_dir + "/").rpartition("/")
        rise = rises.setdefault(
            directory,
            epochs if directory.startswith(TRANSACTIONS_TOPIC) else rng.randint(0, epochs),
        )
        kind = kind_of(path.removeprefix(data_dir + "/"))
        if (kind is not None and not kind.is_kafkas) or (
            not is_clean
            and (
                name in (CLEAN_SHUTDOWN_NAME, RECOVERY_POINT_NAME)
                or (name.endswith(".snapshot") and rng.random() < 0.5)
            )
        ):
            disk.unlink(path)
        elif name.endswith(".log"):
            _raise_batches(inode, rise, epochs)
        elif name.endswith(".snapshot"):
            _raise_snapshot(inode, epochs)
        elif name == LEADER_EPOCH_NAME:
            entries = decode_epochs(bytes(inode.data))
            inode.data[:] = encode_epochs((epoch + rise, start) for epoch, start in entries)
    _write_metadata(disk, data_dir, topics, next_producer_id)
    _sync_all(disk, data_dir)


def _raise_batches(inode: Inode, rise: int, coordinator_rise: int) -> None:
    """Raise the leader epochs of a log's batches, and the coordinator epochs of its markers."""
    for at, header in batches_in(bytes(inode.data)):
        _add(inode.data, at + LEADER_EPOCH[0], LEADER_EPOCH[1], rise)
        if header.is_control:
            end = at + header.size_bytes
            _add(inode.data, end - COORDINATOR_EPOCH_FROM_END, ">i", coordinator_rise)
            checksum = crc32c(memoryview(inode.data)[at + CRC_START : end])
            struct.pack_into(CRC[1], inode.data, at + CRC[0], checksum)


def _raise_snapshot(inode: Inode, rise: int) -> None:
    """Raise the coordinator epochs of a producer snapshot."""
    data = inode.data
    for at in range(SNAPSHOT_HEAD, len(data), PRODUCER_BYTES):
        (epoch,) = struct.unpack_from(">i", data, at + COORDINATOR_EPOCH_AT)
        if epoch >= 0:  # -1 unless the partition has a marker of that producer
            struct.pack_into(">i", data, at + COORDINATOR_EPOCH_AT, epoch + rise)
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[6:]))


def _add(data: bytearray, at: int, form: str, amount: int) -> None:
    struct.pack_into(form, data, at, struct.unpack_from(form, data, at)[0] + amount)


def _write_metadata(
    disk: SimDisk, data_dir: str, topics: list[KafkaTopic], next_producer_id: int
) -> None:
    """Write the log of Kafka's metadata, with the topics, their settings and the next producer
    ID.
    """
    values = []
    for topic in topics:
        values.append(_record(TOPIC, _string(topic.name) + topic.topic_id.bytes))
        for name, value in topic.configs.items():
            resource = bytes([OF_TOPIC]) + _string(topic.name)
            values.append(_record(CONFIG, resource + _string(name) + _string(value)))
    values.append(_record(PRODUCER_IDS, struct.pack(">iqq", 1, 1, next_producer_id)))
    directory = f"{data_dir}/{DIRECTORY}"
    disk.mkdir(directory)
    file = disk.open(f"{directory}/{0:020d}.log", create=True)
    file.append(encode_batch([NewRecord(None, value, 0) for value in values], leader_epoch=1))


def _record(api_key: int, fields: bytes) -> bytes:
    """A record of version 0, in frame version 1, without tagged fields."""
    return bytes([1, api_key, 0]) + fields + b"\0"


def _string(text: str) -> bytes:
    size = len(text) + 1
    assert size < 1 << 7, "a length of one byte"
    return bytes([size]) + text.encode()


def _sync_all(disk: SimDisk, directory: str) -> None:
    """Make all files and names durable."""
    for _, inode in disk.files():
        inode.sync()
    paths = {path.rpartition("/")[0] for path, _ in disk.files()} | {directory, "/"}
    for path in sorted(paths):
        disk.fsync_dir(path)
