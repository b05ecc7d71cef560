"""Whether a data directory was handed over to Apache Kafka, by three names in it.

    barnabas-graduated      the mark: the CRC-32C of the bootstrap.checkpoint that belongs to it
    bootstrap.checkpoint    what Kafka begins its metadata with, at its first start
    __cluster_metadata-0    Kafka's metadata, from its first start on

    mark    bootstrap.checkpoint    __cluster_metadata-0    the directory is
    no      any                     any                     ours, or Kafka's own, as ever
    yes     another, or none        none                    ours: a hand-over was cut short
    yes     the mark's              none                    Kafka's, which has not started yet
    yes     any                     there                   Kafka's

So the rename that gives `bootstrap.checkpoint` its name hands the directory over, and the one that
takes `__cluster_metadata-0` away brings it back.
"""

from __future__ import annotations

from barnabas.protocol.checksum import crc32c
from barnabas.storage.disk import Disk
from barnabas.storage.log_directory import LogDirectoryError

MARK_NAME = "barnabas-graduated"
BOOTSTRAP_NAME = "bootstrap.checkpoint"
GIVEN_NAME = "barnabas-graduated.bootstrap"  # the same, while the directory is brought back
KAFKA_METADATA_NAME = "__cluster_metadata-0"


def mark_of(bootstrap: bytes) -> bytes:
    """The contents of the mark that belongs to that `bootstrap.checkpoint`."""
    return b"%08x\n" % crc32c(bootstrap)


def is_graduated(disk: Disk, data_dir: str) -> bool:
    """Whether the directory is Kafka's, by the module's table. Raises: OSError."""
    if not disk.exists(f"{data_dir}/{MARK_NAME}"):
        return False
    if disk.is_dir(f"{data_dir}/{KAFKA_METADATA_NAME}"):
        return True
    try:
        bootstrap = disk.read(f"{data_dir}/{BOOTSTRAP_NAME}")
    except FileNotFoundError:
        return False
    return disk.read(f"{data_dir}/{MARK_NAME}") == mark_of(bootstrap)


def check_is_ours(disk: Disk, data_dir: str) -> None:
    """Refuse a directory that is Kafka's; take away a mark that says nothing.

    Raises: LogDirectoryError, OSError.
    """
    if not disk.exists(f"{data_dir}/{MARK_NAME}"):
        return
    if is_graduated(disk, data_dir):
        raise LogDirectoryError(
            f"{data_dir} was handed over to Apache Kafka (barnabas graduate): start Kafka there, "
            f"or stop it and bring the directory back with `barnabas take-over {data_dir}`"
        )
    disk.unlink(f"{data_dir}/{GIVEN_NAME}")
    disk.unlink(f"{data_dir}/{MARK_NAME}")
