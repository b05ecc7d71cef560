"""Whether a data directory was handed over to Apache Kafka, judged by three names in it.

    barnabas-graduated      the mark: the CRC-32C of the bootstrap.checkpoint that belongs to it
    bootstrap.checkpoint    the records with which Kafka begins its metadata, at its first start
    __cluster_metadata-0    Kafka's metadata, from its first start on

    mark    bootstrap.checkpoint    __cluster_metadata-0    the directory is
    no      any but ours            any                     ours, or Kafka's own, as before
    no      ours                    none                    ours
    no      ours                    exists                  Kafka's: the mark was lost
    yes     another, or none        none                    ours: a hand-over was interrupted
    yes     the mark's              none                    Kafka's, which has not started yet
    yes     any                     exists                  Kafka's

A bootstrap.checkpoint with topics is ours: Kafka's own has only features and users.

So the rename to `bootstrap.checkpoint` hands the directory over, and the rename of
`__cluster_metadata-0` brings it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import batches_in, has_right_crc, records_of
from barnabas.storage.directory.log_directory import LogDirectoryError

if TYPE_CHECKING:
    from barnabas.storage.disk import Disk

MARK_NAME = "barnabas-graduated"
BOOTSTRAP_NAME = "bootstrap.checkpoint"
GIVEN_NAME = "barnabas-graduated.bootstrap"  # the file's name while the directory is brought back
KAFKA_METADATA_NAME = "__cluster_metadata-0"
_TOPIC_RECORD = b"\x01\x02"  # the first bytes of the record's value: frame version, API key


def mark_of(bootstrap: bytes) -> bytes:
    """The content of the mark that belongs to this content of `bootstrap.checkpoint`."""
    return b"%08x\n" % crc32c(bootstrap)


def is_graduated(disk: Disk, data_dir: str) -> bool:
    """Whether the directory is Kafka's, by the module's table. Raises: OSError."""
    is_marked = disk.exists(f"{data_dir}/{MARK_NAME}")
    has_metadata = disk.is_dir(f"{data_dir}/{KAFKA_METADATA_NAME}")
    if is_marked == has_metadata:
        return is_marked
    try:
        bootstrap = disk.read(f"{data_dir}/{BOOTSTRAP_NAME}")
    except FileNotFoundError:
        return False
    return is_what_kafka_was_given(disk, data_dir, bootstrap)


def is_what_kafka_was_given(disk: Disk, data_dir: str, bootstrap: bytes) -> bool:
    """Whether this content of `bootstrap.checkpoint` was written by the hand-over to Apache Kafka.

    It was if it matches the mark, or, after the loss of the mark, if it has topics.
    """
    try:
        return disk.read(f"{data_dir}/{MARK_NAME}") == mark_of(bootstrap)
    except FileNotFoundError:
        return _holds_topics(bootstrap)


def _holds_topics(bootstrap: bytes) -> bool:
    try:
        for position, header in batches_in(bootstrap):
            batch = memoryview(bootstrap)[position : position + header.size_bytes]
            if not has_right_crc(batch, header):
                return False
            if not header.is_control and any(
                record.value is not None and bytes(record.value[:2]) == _TOPIC_RECORD
                for record in records_of(batch)
            ):
                return True
    except KafkaError:
        return False
    return False


def check_is_ours(disk: Disk, data_dir: str) -> None:
    """Refuse a directory that is Kafka's; remove a mark without effect.

    Raises: LogDirectoryError, OSError.
    """
    if is_graduated(disk, data_dir):
        raise LogDirectoryError(
            f"{data_dir} was handed over to Apache Kafka (barnabas graduate): start Kafka there, "
            f"or stop it and bring the directory back with `barnabas take-over {data_dir}`"
        )
    if not disk.exists(f"{data_dir}/{MARK_NAME}"):
        return
    disk.unlink(f"{data_dir}/{GIVEN_NAME}")
    disk.unlink(f"{data_dir}/{MARK_NAME}")
