"""Decides whether a data directory was handed over to Apache Kafka. Three files show this:

barnabas-graduated      the mark: the CRC-32C of the bootstrap.checkpoint that belongs to it
bootstrap.checkpoint    the records with which Kafka begins its metadata, at its first start
__cluster_metadata-0    Kafka's metadata, from its first start on

mark    bootstrap.checkpoint    __cluster_metadata-0    the directory is
no      none, or Kafka's own    any                     ours, or Kafka's from the start
no      of a hand-over          none                    ours
no      of a hand-over          exists                  Kafka's: the mark was lost
yes     another, or none        none                    ours: a hand-over was interrupted
yes     the mark's              none                    Kafka's, which has not started yet
yes     any                     exists                  Kafka's
"""

from __future__ import annotations

from barnabas.storage.directory.bootstrap_checkpoint import is_what_kafka_was_given
from barnabas.storage.disk import Disk
from barnabas.storage.log.log_directory import LogDirectoryError

MARK_NAME = "barnabas-graduated"
BOOTSTRAP_NAME = "bootstrap.checkpoint"
# The name of bootstrap.checkpoint while the directory is brought back.
GIVEN_NAME = "barnabas-graduated.bootstrap"
KAFKA_METADATA_NAME = "__cluster_metadata-0"


def is_graduated(disk: Disk, data_dir: str) -> bool:
    """Whether the directory is Kafka's, according to the module's table. Raises: OSError."""
    is_marked = disk.exists(f"{data_dir}/{MARK_NAME}")
    has_metadata = disk.is_dir(f"{data_dir}/{KAFKA_METADATA_NAME}")
    if is_marked == has_metadata:
        return is_marked
    try:
        bootstrap = disk.read(f"{data_dir}/{BOOTSTRAP_NAME}")
    except FileNotFoundError:
        return False
    return is_what_kafka_was_given(disk, f"{data_dir}/{MARK_NAME}", bootstrap)


def check_is_ours(disk: Disk, data_dir: str) -> None:
    """Raise an error if the directory is Kafka's. Remove a mark that has no effect.

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
