"""Finds the partitions whose directory a leader has lost while a standby's copy still has it.

During a catch-up the leader sends removals of directories that it does not have. The removal of a
partition with records waits until the copy has everything else, including the metadata journal. If
the journal has the partition, with the same topic id, the partition was not deleted: the leader has
lost the directory, and the copy's directory may be the last one. The exception is a directory with
the mark of `replicated_disk`. The node that is now the standby made this directory while it was the
leader, and no standby received it. So the present leader never had it.

After a power loss of this node, a directory of which nothing was flushed may have survived on this
disk alone, for one of two reasons. The mark becomes durable only with the first flush of a
directory's files, so the power loss may have kept the directory and lost the mark. Or the directory
was received from the leader, and the leader lost power, too, before a flush had made its own
directory durable. Such a directory does not prevent the node from following again. It is not
removed either, but renamed, with the suffix `.<32 hex digits>-stray`.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Mapping

from barnabas.broker.logs.metadata import Topic, topics_in
from barnabas.replication.operations import Kind, Operation
from barnabas.storage.directory.partition_directories import free_stray_path
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import (
    METADATA_JOURNAL_NAME,
    NOT_SENT_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    CorruptCheckpoint,
    Offsets,
    decode_offsets,
    decode_partition_metadata,
)
from barnabas.storage.files.segment_files import LOG_SUFFIX
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.opening.last_run import LastRun, RunNote

logger = logging.getLogger("barnabas.replication")

_PARTITION = re.compile(r"([a-zA-Z0-9._-]+)-([0-9]+)")
_SHOWN = 10


class LostPartitions:
    """The directories of the copy whose removal waits for the end of the catch-up."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk, self._data_dir = disk, data_dir
        self._has_lost_power = RunNote(disk, data_dir).last_run() is LastRun.POWER_LOST
        self._flushed = _recovery_points(disk, data_dir) if self._has_lost_power else {}
        self._waiting: dict[str, None] = {}

    def holds_back(self, operation: Operation) -> bool:
        """Whether the operation has to wait.

        If another directory takes the name of a waiting one, the waiting directory is removed at
        once, since the leader has created the directory again.
        """
        name = operation.path
        if operation.kind is Kind.REMOVE_TREE and self._has_records(name):
            self._waiting[name] = None
            return True
        for path in (name.partition("/")[0], operation.new_path.partition("/")[0]):
            if path in self._waiting:
                del self._waiting[path]
                self._disk.rmtree(f"{self._data_dir}/{path}")
        return False

    def on_caught_up(self) -> None:
        """Remove the waiting directories. Raises: LogDirectoryError if the leader has lost one of
        them.
        """
        if self._waiting:
            self._remove_waiting()
        # from now on every directory is equal to the leader's, so no mark is needed
        for name in self._disk.list(self._data_dir):
            mark = f"{self._data_dir}/{name}/{NOT_SENT_NAME}"
            if _PARTITION.fullmatch(name) and self._disk.exists(mark):
                self._disk.unlink(mark)

    def _remove_waiting(self) -> None:
        """Remove the waiting directories that the leader has deleted. A directory that it has lost
        is an error, or is set aside if a power loss explains it.
        """
        topics = topics_in(self._disk.read(f"{self._data_dir}/{METADATA_JOURNAL_NAME}"))
        lost = [name for name in self._waiting if self._is_lost(name, topics)]
        for name in [name for name in lost if self._may_be_of_power_loss(name)]:
            lost.remove(name)
            del self._waiting[name]
            self._set_aside(name)
        if lost:
            more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
            raise LogDirectoryError(
                f"the leader has lost the directories {', '.join(lost[:_SHOWN])}{more}, which "
                f"{self._data_dir} has with records: stop the leader and copy them to it; or, "
                "to continue without these records, remove them here"
            )
        for name in self._waiting:
            self._disk.rmtree(f"{self._data_dir}/{name}")
        self._waiting.clear()

    def _has_records(self, name: str) -> bool:
        """Whether the path is a partition's directory with a log file that is not empty."""
        directory = f"{self._data_dir}/{name}"
        return (
            _PARTITION.fullmatch(name) is not None
            and self._disk.is_dir(directory)
            and any(
                self._disk.size(f"{directory}/{file}")
                for file in self._disk.list(directory)
                if file.endswith(LOG_SUFFIX)
            )
        )

    def _is_lost(self, name: str, topics: Mapping[str, Topic]) -> bool:
        """Whether the leader has lost a directory, not deleted it: the partition still exists in
        the topic.
        """
        topic_name, _, number = name.rpartition("-")
        topic = topics.get(topic_name)
        return (
            topic is not None
            and not self._disk.exists(f"{self._data_dir}/{name}/{NOT_SENT_NAME}")
            and int(number) < topic.partition_count
            and self._topic_id(name) in (topic.topic_id, None)
        )

    def _may_be_of_power_loss(self, name: str) -> bool:
        """Whether a power loss may have removed the mark or the leader's directory, because nothing
        in the directory had been flushed.
        """
        topic_name, _, number = name.rpartition("-")
        return self._has_lost_power and not self._flushed.get((topic_name, int(number)))

    def _set_aside(self, name: str) -> None:
        """Rename a directory to a name that a broker ignores, and log that."""
        aside = free_stray_path(self._disk, self._data_dir, name)
        self._disk.rename(f"{self._data_dir}/{name}", aside)
        logger.warning(
            "the leader does not have %s, of which nothing was flushed before the power loss: the "
            "leader never had it, or lost it with its own power; the directory is set aside as %s",
            name,
            aside,
        )

    def _topic_id(self, name: str) -> uuid.UUID | None:
        """The topic's id in a partition's directory; None if it is missing or torn."""
        path = f"{self._data_dir}/{name}/{PARTITION_METADATA_NAME}"
        try:
            return decode_partition_metadata(self._disk.read(path))
        except (FileNotFoundError, CorruptCheckpoint):
            return None


def _recovery_points(disk: Disk, data_dir: str) -> Offsets:
    """The offsets up to which logs were flushed in their own files, by topic and partition."""
    try:
        return decode_offsets(disk.read(f"{data_dir}/{RECOVERY_POINT_NAME}"))
    except (FileNotFoundError, CorruptCheckpoint):
        return {}
