"""Changes of the segments of one log: a roll, a deletion, the replacement by a cleaned one.

Each of them changes the list of segments, the pending flushes, and the files, in a fixed order.
"""

from __future__ import annotations

import logging
from zlib import crc32

from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.storage.disk import is_out_of_resources
from barnabas.storage.log.durability import Durability
from barnabas.storage.log.log_checkpoint import LogCheckpoint
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producers.producer_snapshots import ProducerSnapshots
from barnabas.storage.segments.segment import RollLimits, Segment
from barnabas.storage.segments.segment_list import SegmentList

# All modules log messages about one log with this logger.
logger = logging.getLogger("barnabas.storage.log.log")


class SegmentTurnover:
    """Begins, deletes and replaces the segments of one log. `set_config` has to be called first.

    limits: the limits at which the active segment is rolled.
    """

    __slots__ = (
        "_checkpoint",
        "_config",
        "_directory",
        "_durability",
        "_log_dir",
        "_partition",
        "_segments",
        "_snapshots",
        "limits",
    )

    def __init__(
        self,
        log_dir: LogDirectory,
        directory: str,
        partition: TopicIdPartition,
        segments: SegmentList,
        durability: Durability,
        snapshots: ProducerSnapshots,
        checkpoint: LogCheckpoint,
    ) -> None:
        self._log_dir = log_dir
        self._partition = partition
        self._directory = directory
        self._segments = segments
        self._durability = durability
        self._snapshots = snapshots
        self._checkpoint = checkpoint

    def set_config(self, config: LogConfig) -> None:
        """Apply the topic's settings."""
        self._config = config
        self._set_limits()

    def _set_limits(self) -> None:
        """Compute the limits at which the active segment is rolled.

        A part of segment.jitter.ms, which is constant for each segment, spreads the rolls of many
        partitions over time.
        """
        config = self._config
        jitter = min(config.segment_jitter_ms, config.roll_ms)
        if jitter > 0:
            partition = self._partition
            name = f"{partition.topic} {partition.partition} {self._segments.active.base_offset}"
            jitter = crc32(name.encode()) % jitter
        self.limits = RollLimits(
            config.segment_bytes, config.roll_ms - jitter, config.segment_index_bytes
        )

    def roll(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> bool:
        """Close the active segment and begin another at the end of the log, with a checkpoint.

        Files whose creation can fail are made first, then the state is changed. If there is no disk
        space for the manifest, it may be written later, since the previous one is still correct.

        Gives:  whether the checkpoint is complete; otherwise its manifest has to be written later.
        Raises: OSError. The log is then unchanged and may be rolled later.
        """
        closed = self._segments.active
        self._checkpoint.write_snapshot()
        closed.indexes.complete()
        segment = Segment.create(
            self._log_dir.disk,
            self._directory,
            log_end_offset,
            now_ms=now_ms,
            cache=self._log_dir.cache,
            index_interval_bytes=self._config.index_interval_bytes,
        )
        closed.indexes.manifest = None  # the file has grown since the checkpoint
        self._segments.add(segment)
        self._durability.add_segment(segment)
        closed.seal()
        self._set_limits()
        try:
            self._checkpoint.write_manifest(log_start_offset)
        except OSError as error:
            if not is_out_of_resources(error):
                raise
            logger.warning("%s: its checkpoint waits for space: %s", self._partition, error)
            return False
        return True

    def snapshot_producers_of_oldest(self, count: int) -> bool:
        """Write a snapshot of the producers before the oldest segments are removed, unless there is
        one that cannot be damaged.

        A power loss may have damaged the snapshot that the roll wrote.

        Gives:  False if the disk has no space for the snapshot.
        """
        if self._snapshots.sound_offset >= self._segments[count].base_offset:
            return True
        try:
            self._checkpoint.write_snapshot()
        except OSError as error:
            if not is_out_of_resources(error):
                raise
            logger.warning("%s: deletion waits for space: %s", self._partition, error)
            return False
        return True

    def remove_oldest(self, count: int) -> list[Segment]:
        """Remove some of the oldest segments from the log. Gives: the segments, for `discard`."""
        deleted = self._segments.remove_oldest(count)
        self._durability.remove_segments(deleted)
        return deleted

    def discard(self, deleted: list[Segment], now_ms: int) -> None:
        """Rename the files of deleted segments, to be removed later. The caller has raised the
        log's start.
        """
        due_ms = now_ms + self._config.file_delete_delay_ms
        self._log_dir.discard_segments(deleted, due_ms)
        for segment in deleted:
            logger.info(
                "%s: deleted the segment at offset %d", self._partition, segment.base_offset
            )
        first_offset = self._segments[0].base_offset
        for path in self._snapshots.take_deleted(first_offset):
            self._log_dir.discard(path, due_ms)

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Replace adjacent segments by a cleaned segment. The caller has removed the old files, and
        put the new ones in place.
        """
        self._segments.replace(old, new)
        self._durability.remove_segments(old)
