"""The files of a new log, which another thread makes under a temporary name.

To make a directory and five files takes a quarter of a millisecond, and ten times that during a
commit of the file system. The files are therefore made in a directory with the name
`<topic>-<partition>.<32 hex digits>-delete`. A start (also one of Apache Kafka) removes it like any
directory that is being deleted. The log takes the files with one rename, between two of its other
steps. The 13th digit is 8 (a UUID of version 8; names of deletions have 4 or 5).

    thread      make        mkdir, partition.metadata, leader-epoch-checkpoint, .log, two indexes
    the loop    take        rename to <topic>-<partition>     nothing is durable yet: see
                                                              `LogFiles.make`
    the loop    discard     the log was deleted, or has made its files itself meanwhile

A standby gets the directory when it has its final name (`replicated_disk`).
"""

from __future__ import annotations

import hashlib  # noqa: F401 # for uuid.uuid5 in LogManager.begin_files, on the loop
import logging
import re
import uuid
from contextlib import suppress

from barnabas.protocol.errors import detached
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import (
    LEADER_EPOCH_NAME,
    PARTITION_METADATA_NAME,
    encode_epochs,
    encode_partition_metadata,
)
from barnabas.storage.files.segment_files import INDEX_SUFFIX, LOG_SUFFIX, TIME_SUFFIX, offset_name

logger = logging.getLogger(__name__)

_VERSION_AT = 12
_NEW = re.compile(r"\.[0-9a-f]{12}8[0-9a-f]{19}-delete(/|$)")


def new_suffix(partition: int, unique: str) -> str:
    """The suffix in the name of a new log's directory. Takes: unique, 32 hex digits."""
    return f"-{partition}.{unique[:_VERSION_AT]}8{unique[_VERSION_AT + 1 :]}-delete"


def is_of_new_files(path: str) -> bool:
    """Whether a path is a directory of new files, or a file in such a directory."""
    return _NEW.search(path) is not None


class NewFiles:
    """The files of one new log, from the request until the log has them.

    epochs: the leader epochs to write to their file. is_made: whether all files exist. error: the
    reason why the files could not be made. is_taken: whether the log uses the files.
    """

    __slots__ = ("_disk", "_topic_id", "directory", "epochs", "error", "is_made", "is_taken")

    def __init__(
        self, disk: Disk, directory: str, topic_id: uuid.UUID, epochs: list[tuple[int, int]]
    ) -> None:
        self._disk, self._topic_id = disk, topic_id
        self.directory = directory
        self.epochs = list(epochs)
        self.is_made = self.is_taken = False
        self.error: Exception | None = None

    def make(self) -> None:
        """Make the files, once. Only the thread calls this, one call at a time.

        It never raises an error, since the end of a transaction may wait for the call. A failure is
        stored in `error`.
        """
        if self.is_made or self.error is not None:
            return
        disk, directory = self._disk, self.directory
        try:
            disk.mkdir(directory)
            disk.write_atomic(
                f"{directory}/{PARTITION_METADATA_NAME}",
                encode_partition_metadata(self._topic_id),
                sync=False,
            )
            disk.write_atomic(
                f"{directory}/{LEADER_EPOCH_NAME}", encode_epochs(self.epochs), sync=False
            )
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX):
                disk.open(f"{directory}/{offset_name(0)}{suffix}", create=True).close()
        except Exception as error:
            self.error = detached(error)
            if not isinstance(error, OSError):
                logger.exception("the files of %s could not be created in advance", directory)
            with suppress(Exception):
                disk.rmtree(directory)
        else:
            self.is_made = True
