"""The steps of a hand-over, in an order in which a kill leaves the directory ours or Kafka's.

    step                                              after a kill before the next one
    torn files are removed, all partitions get a      ours
      directory, and all files are flushed
    Kafka's earlier metadata are removed              ours: they are obsolete
    server.properties is written                      ours
    the mark is written, with the checksum of the     ours: bootstrap.checkpoint is missing
      next file
    bootstrap.checkpoint gets its name                Kafka's

So the rename to `bootstrap.checkpoint` is what hands the directory over. In the same way the rename
of `__cluster_metadata-0` brings it back (bring_back.py).

A copy is made and handed over under another name beside its final path, and renamed at the end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from barnabas.graduation.hand_over import HandOver
from barnabas.storage.directory.bootstrap_checkpoint import mark_of
from barnabas.storage.directory.graduated import (
    BOOTSTRAP_NAME,
    KAFKA_METADATA_NAME,
    MARK_NAME,
)
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import PARTITION_METADATA_NAME, encode_partition_metadata
from barnabas.storage.files.segment_files import LOG_SUFFIX, offset_name

PROPERTIES_NAME = "server.properties"
UNFINISHED_SUFFIX = ".unfinished"


def hand_over(
    disk: Disk, data_dir: str, plan: HandOver, bootstrap: bytes, sync: Callable[[str], None]
) -> None:
    """Hand the directory over to Kafka. When the call returns, the directory is Kafka's.

    Takes:  sync, a function that makes all files of a directory and their names durable.
    Raises: OSError.
    """
    for name in plan.survey.torn:
        disk.unlink(f"{data_dir}/{name}")
    for name, topic_id in plan.survey.without_files.items():
        _make_directory(disk, f"{data_dir}/{name}", topic_id)
    sync(data_dir)
    discard_kafka_metadata(disk, data_dir)
    disk.unlink(f"{data_dir}/{BOOTSTRAP_NAME}")
    disk.fsync_dir(data_dir)
    disk.write_atomic(f"{data_dir}/{PROPERTIES_NAME}", plan.properties.encode())
    disk.write_atomic(f"{data_dir}/{MARK_NAME}", mark_of(bootstrap))
    # The last step: the directory is ours until this file exists, and Kafka's from then on.
    disk.write_atomic(f"{data_dir}/{BOOTSTRAP_NAME}", bootstrap)


def _make_directory(disk: Disk, directory: str, topic_id: uuid.UUID) -> None:
    """Create the directory of a partition without records; Kafka creates the rest of its files."""
    if not disk.is_dir(directory):
        disk.mkdir(directory)
    path = f"{directory}/{PARTITION_METADATA_NAME}"
    disk.write_atomic(path, encode_partition_metadata(topic_id), sync=False)
    disk.open(f"{directory}/{offset_name(0)}{LOG_SUFFIX}", create=True).close()


def discard_kafka_metadata(disk: Disk, data_dir: str) -> None:
    """Rename the directory of Kafka's metadata to a name that marks it as being deleted. The next
    start removes it.
    """
    path = f"{data_dir}/{KAFKA_METADATA_NAME}"
    if not disk.is_dir(path):
        return
    number = 0
    while disk.exists(gone := f"{path}.{uuid.uuid5(uuid.NAMESPACE_OID, str(number)).hex}-delete"):
        number += 1
    disk.rename(path, gone)
    disk.fsync_dir(data_dir)
