"""Decides which directories of a data directory are partitions, by their names and those of other
directories.

    name                               meaning
    <topic>-<partition>                a log
    <…>.<32 hex digits>-delete         a log that is being deleted
    <…>.<32 hex digits>-stray          not a log, though it had a log's name: never touched again
    __cluster_metadata-0               Apache Kafka's own log of its metadata; left alone

A directory with a log's name that cannot be a log, usually a manual copy, is renamed to `-stray`.
If the journal is missing or torn at its end, a directory with a high partition number and a topic's
id may be a copy or a partition. That is reported as an error. These directories are strays:

    with an invalid topic name, or a number with leading zeros
    of an unknown topic, if most directories with its name have the id of another topic
    (`t-0-20241122` is a copy of `t-0`)
    with a number that its topic does not have, far above the partition below it: all partitions in
    between would have to be made
    of another topic than that of its name, when the latter is deleted (until then it is offline)
"""

from __future__ import annotations

import logging
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import (
    PARTITION_METADATA_NAME,
    CorruptCheckpoint,
    decode_partition_metadata,
)
from barnabas.storage.files.segment_files import STRAY_SUFFIX
from barnabas.storage.log.log_directory import LogDirectory, LogDirectoryError

_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)")
_DELETED = re.compile(r".+\.[0-9a-f]{32}-delete")
_NOT_OURS = "__cluster_metadata"
_LONGEST_NAME = 255
_LONGEST_TOPIC = 249
# The largest gap in a topic's partition numbers. Another broker may have the partitions in between.
_WIDEST_GAP = 10_000

logger = logging.getLogger(__name__)


class Topic(Protocol):
    """A topic of the metadata journal."""

    name: str
    partition_count: int


class Topics(Protocol):
    """The part of the metadata journal that identifies directories."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name."""

    @property
    def is_torn(self) -> bool:
        """Whether the journal ends in a partial change."""

    def topic(self, name: str) -> Topic | None:
        """The topic with this name, or None."""

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic with this id, or None."""


def deleted_name(topic: str, suffix: str) -> str:
    """The name for a directory that is deleted or set aside. A long topic name is cut, but not the
    suffix.
    """
    return topic[: _LONGEST_NAME - len(suffix)] + suffix


def free_stray_path(disk: Disk, data_dir: str, name: str) -> str:
    """An unused path for a directory that is set aside."""
    number = 0
    while True:
        unique = uuid.uuid5(uuid.UUID(int=number), name).hex
        path = f"{data_dir}/{deleted_name(name, f'.{unique}{STRAY_SUFFIX}')}"
        if not disk.exists(path):
            return path
        number += 1


def most_frequent(ids: Iterable[uuid.UUID]) -> uuid.UUID:
    """The most frequent id in a topic's directories. If several are equally frequent, it is the
    first of them.
    """
    ((topic_id, _),) = Counter(ids).most_common(1)
    return topic_id


def _may_be_either(path: str, of_journal: str, why: str) -> str:
    """The error text for a directory that may be a partition or a copy."""
    return (
        f"{path} may be a partition, or a copy of one: the metadata journal {of_journal}, and "
        f"{why}. Restore the journal from a copy; or, to start without that directory, move it "
        "away"
    )


def _may_lack_topics(topics: Topics | None) -> str:
    """The reason why the journal may lack topics that exist; empty if it lacks none."""
    if topics is None:
        return ""
    if topics.is_torn:
        return "ends in an incomplete change"
    return "" if topics.topics else "has no topics"


class PartitionDirectories:
    """The partition directories in a data directory. `find` sets aside directories that cannot be
    logs.

    deleted: the paths of directories that are being deleted.
    """

    def __init__(self, log_dir: LogDirectory) -> None:
        self._log_dir = log_dir
        self._disk = log_dir.disk
        self.deleted: list[str] = []

    def find(self, topics: Topics | None) -> list[TopicPartition]:
        """The partitions that have a log, sorted.

        Takes:  topics, the known topics, by which strays are recognised; None if no topics are
        known.
        Raises: LogDirectoryError if the journal is lost or torn, and a directory may be either a
                copy or a partition.
        """
        indexes: dict[str, list[int]] = {}
        for topic, partition in self._named_as_partitions():
            indexes.setdefault(topic, []).append(partition)
        topics_by_id: dict[uuid.UUID, str] = {}
        partitions: list[TopicPartition] = []
        # If two unknown topics have the same id, the one with the shorter name is the original.
        for topic in sorted(indexes, key=len):
            last = -1
            its = topics.topic(topic) if topics is not None else None
            partition_count = 0 if its is None else its.partition_count
            ids = self._ids_of_unknown(topic, indexes[topic], topics)
            for partition in sorted(indexes[topic]):
                name = f"{topic}-{partition}"
                why = self._stray_by_id(partition, topic, ids, topics, topics_by_id)
                is_expected = partition < partition_count
                if not why and not is_expected and partition - last - 1 > _WIDEST_GAP:
                    why = (
                        f"the highest number of a partition of {topic} below it is {last}"
                        if last >= 0
                        else f"{topic} has no partition with a lower number"
                    )
                    of_journal = _may_lack_topics(topics)
                    if of_journal and self._topic_id(name):
                        path = self._log_dir.path(name)
                        raise LogDirectoryError(_may_be_either(path, of_journal, why))
                if why:
                    self.set_aside(name, why)
                else:
                    partitions.append(TopicPartition(topic, partition))
                    last = partition
        return sorted(partitions)

    def _named_as_partitions(self) -> list[TopicPartition]:
        """The partitions after which directories are named. Directories that are being deleted are
        added to `deleted`; those with invalid names are set aside.
        """
        partitions = []
        for name in self._disk.list(self._log_dir.data_dir):
            path = self._log_dir.path(name)
            match = _PARTITION.fullmatch(name)
            if _DELETED.fullmatch(name):
                self.deleted.append(path)
            elif match and match["topic"] != _NOT_OURS and self._disk.is_dir(path):
                topic, number = match["topic"], match["partition"]
                if topic in (".", "..") or len(topic) > _LONGEST_TOPIC:
                    self.set_aside(name, "the topic name is not valid")
                elif len(number) > 1 and number.startswith("0"):
                    self.set_aside(name, f"{number} is not a partition number")
                else:
                    partitions.append(TopicPartition(topic, int(number)))
        return partitions

    def _ids_of_unknown(
        self, topic: str, partitions: Iterable[int], topics: Topics | None
    ) -> dict[int, uuid.UUID]:
        """For an unknown topic, the topic id in each of its directories that has one."""
        if topics is None or topics.topic(topic) is not None:
            return {}
        ids = {
            partition: self._topic_id(f"{topic}-{partition}") for partition in sorted(partitions)
        }
        return {partition: topic_id for partition, topic_id in ids.items() if topic_id is not None}

    def _stray_by_id(
        self,
        partition: int,
        topic: str,
        ids: Mapping[int, uuid.UUID],
        topics: Topics | None,
        topics_by_id: dict[uuid.UUID, str],
    ) -> str:
        """The reason why the id in a directory shows that it belongs to another topic; empty if it
        does not.

        A directory whose id differs from that of most of its topic's directories still belongs to
        that topic: it is taken offline when its log is opened.

        Takes:  topics_by_id, the unknown topics with shorter names, to which this topic is added.
        Raises: LogDirectoryError if the journal may lack topics, and either name may be right.
        """
        topic_id = ids.get(partition)
        if topics is None or topic_id is None:
            return ""
        namesake = topics.topic_by_id(topic_id)
        if namesake is not None:
            other = namesake.name
        elif topic_id != most_frequent(ids.values()):
            return ""
        else:
            other = topics_by_id.setdefault(topic_id, topic)
        if other == topic:
            return ""
        why = f"its {PARTITION_METADATA_NAME} names the topic {other}"
        of_journal = _may_lack_topics(topics)
        if namesake is None and of_journal and len(other) == len(topic):
            path = self._log_dir.path(f"{topic}-{partition}")
            raise LogDirectoryError(_may_be_either(path, of_journal, why))
        return why

    def _topic_id(self, name: str) -> uuid.UUID | None:
        """The topic id in a directory; None if it cannot be read."""
        path = self._log_dir.path(f"{name}/{PARTITION_METADATA_NAME}")
        try:
            return decode_partition_metadata(self._disk.read(path))
        except (FileNotFoundError, CorruptCheckpoint):
            return None

    def set_aside(self, name: str, why: str) -> None:
        """Rename a directory, so that it is neither used nor deleted."""
        path = free_stray_path(self._disk, self._log_dir.data_dir, name)
        self._disk.rename(self._log_dir.path(name), path)
        self._disk.fsync_dir(self._log_dir.data_dir)
        logger.warning(
            "%s is not used, and was renamed to %s: %s; move it out of the data directory, or, if "
            "its records are missing, rename it to its topic and partition",
            self._log_dir.path(name),
            path.rpartition("/")[2],
            why,
        )
