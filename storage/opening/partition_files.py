"""The content of a partition's directory at a start, before the log is read.

Its files are the table OF_PARTITION of `files/data_files`. An interrupted swap of cleaned segments
(`*.swap`) is completed here. Files of another interrupted change (`*.deleted`, `*.cleaned`,
`*.tmp`) are removed, and so are files of a segment without its log.
"""

from __future__ import annotations

import logging
import uuid

from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.storage.disk import log_lack_of_space
from barnabas.storage.files.checkpoints import (
    MANIFEST_NAME,
    NO_TOPIC_ID,
    PARTITION_METADATA_NAME,
    CorruptCheckpoint,
    Manifest,
    decode_partition_metadata,
    encode_partition_metadata,
)
from barnabas.storage.files.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    CorruptLog,
    offset_name,
)
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producers.producer_snapshots import ProducerSnapshots
from barnabas.storage.segments.segment import Segment

SET_ASIDE_SUFFIX = ".log.set-aside"
_LEFT_OVER = (DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")

logger = logging.getLogger(__name__)


class PartitionFiles:
    """The files of one partition, sorted by kind.

    bases: the base offsets of its segments. manifest: None if it is missing or damaged. segments:
    empty until `open_segments`. has_files: whether there is a segment.
    """

    def __init__(self, log_dir: LogDirectory, topic: str, partition: int) -> None:
        self.log_dir = log_dir
        self.disk = log_dir.disk
        self.directory = log_dir.partition_path(topic, partition)
        self.bases: list[int] = []
        self.segments: list[Segment] = []
        self.snapshots = ProducerSnapshots(self.disk, self.directory, [])
        names = self._names = set(self._whole_names())
        self.has_files = True
        self._sort_names(names)
        self.manifest = self._read_manifest() if MANIFEST_NAME in names else None
        self.partition = TopicIdPartition(topic, partition, self._read_topic_id())

    def _whole_names(self) -> list[str]:
        """Complete a compaction that a stop interrupted. Gives: the names in the directory."""
        names = self.disk.list(self.directory)
        if not any(name.endswith(SWAP_SUFFIX) for name in names):
            return names
        # imported here, since few starts need it
        from barnabas.storage.cleaning.segment_swap import complete_swaps

        return complete_swaps(self.disk, self.directory)

    @property
    def manifest_path(self) -> str:
        """The path of the manifest."""
        return f"{self.directory}/{MANIFEST_NAME}"

    @property
    def topic_id_path(self) -> str:
        """The path of the file that contains the topic id."""
        return f"{self.directory}/{PARTITION_METADATA_NAME}"

    def log_path(self, base_offset: int) -> str:
        """The path of a segment's log file."""
        return f"{self.directory}/{offset_name(base_offset)}{LOG_SUFFIX}"

    def remove_manifest(self) -> None:
        """Remove the manifest's file, since the log has changed and must not seem to match it."""
        self.disk.unlink(self.manifest_path)

    def _sort_names(self, names: set[str]) -> None:
        """Sort the names by kind. Remove files of an interrupted change, and files of a segment
        without its log.
        """
        for name in sorted(names):
            stem, suffix = name[:20], name[20:]
            if name.endswith(_LEFT_OVER):
                self.disk.unlink(f"{self.directory}/{name}")
            elif stem.isdigit():
                if suffix == LOG_SUFFIX:
                    self.bases.append(int(stem))
                elif suffix == SNAPSHOT_SUFFIX:
                    self.snapshots.offsets.append(int(stem))
        for name in sorted(names):
            if name[20:] in SEGMENT_SUFFIXES and name[:20] + LOG_SUFFIX not in names:
                self.disk.unlink(f"{self.directory}/{name}")

    def _read_manifest(self) -> Manifest | None:
        """The manifest, or None if it is damaged."""
        try:
            return Manifest.decode(self.disk.read(self.manifest_path))
        except (CorruptCheckpoint, FileNotFoundError) as error:
            logger.warning(
                "%s cannot be used (%s): the log is read instead", self.manifest_path, error
            )
            return None

    def _read_topic_id(self) -> uuid.UUID:
        """The topic id from its file. If the file cannot be read, the id from the manifest;
        NO_TOPIC_ID if neither has one.
        """
        path, manifest = self.topic_id_path, self.manifest
        try:
            return decode_partition_metadata(self.disk.read(path))
        except (FileNotFoundError, CorruptCheckpoint) as error:
            if manifest is None or manifest.topic_id == NO_TOPIC_ID:
                logger.warning(
                    "%s cannot be read (%s): the topic id is taken from another file", path, error
                )
                return NO_TOPIC_ID
            logger.warning(
                "%s cannot be read (%s): it is rewritten with the manifest's id",
                path,
                error,
            )
            self.disk.write_atomic(path, encode_partition_metadata(manifest.topic_id))
            return manifest.topic_id

    def drop_manifest_of_lost_segments(self, recovery_point: int) -> None:
        """Remove the manifest if a power loss has removed segments that it lists.

        These segments were not durable, so they must not be considered missing, either now or at
        the next start, which may follow a kill.
        """
        if self.manifest is None:
            return
        lost = [
            base
            for base, note in self.manifest.segments.items()
            if note.size and base not in self.bases and base >= recovery_point
        ]
        if lost:
            logger.error(
                "%s: a power loss removed the segments at %s; no record in them was durable",
                self.directory,
                lost,
            )
            self.remove_manifest()
            self.manifest = None

    def open_segments(self, config: LogConfig, log_start_offset: int, now_ms: int) -> None:
        """Open the segments, in order. If there are none, make one at `log_start_offset`.

        Raises: CorruptLog if a segment in the manifest is missing, unless it is one of the oldest.
        """
        self._check_none_missing()
        if self.bases:
            self.segments = [self._segment(base, config, now_ms) for base in self.bases]
            return
        base = self.manifest.log_end_offset if self.manifest is not None else log_start_offset
        segment = Segment.without_files(
            self.disk,
            self.directory,
            base,
            now_ms=now_ms,
            cache=self.log_dir.cache,
            index_interval_bytes=config.index_interval_bytes,
        )
        try:
            segment.make_files()
        except OSError as error:
            if not self._is_dispensable():
                raise
            log_lack_of_space(f"a file of {self.directory}", error)
            self.has_files = False
        self.segments = [segment]

    def _is_dispensable(self) -> bool:
        """Whether nothing in the directory is needed.

        If so, the log makes all its files again with its first batch, as a new log does.
        """
        return self.manifest is None and not any(SET_ASIDE_SUFFIX in name for name in self._names)

    def _check_none_missing(self) -> None:
        """Raise CorruptLog if a segment with records is missing. The oldest segments may be
        missing, since retention may have deleted them.
        """
        if self.manifest is None:
            return
        for note in self.manifest.segments.values():
            is_oldest = bool(self.bases) and note.base_offset <= self.bases[0]
            if note.size and note.base_offset not in self.bases and not is_oldest:
                raise CorruptLog(
                    self.log_path(note.base_offset),
                    0,
                    f"the file is missing; it held {note.size} bytes",
                    "Restore it from a copy; or, to give up its records, remove "
                    f"{self.manifest_path}",
                )

    def _segment(self, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        """Open a segment, with the manifest's description of its indexes."""
        segment = Segment(
            self.disk,
            self.directory,
            base_offset,
            size=self.disk.size(self.log_path(base_offset)),
            created_ms=now_ms,
            cache=self.log_dir.cache,
            index_interval_bytes=config.index_interval_bytes,
        )
        note = self.manifest.segments.get(base_offset) if self.manifest is not None else None
        if note is not None:
            indexes = segment.indexes
            indexes.manifest = self.manifest
            if note.max_timestamp >= 0 and note.size == segment.batches.size:
                indexes.max_timestamp = note.max_timestamp
                indexes.max_timestamp_offset = note.max_timestamp_offset
                indexes.has_times = True
        return segment

    def sizes(self) -> dict[int, int]:
        """The size of each segment's log file, by base offset."""
        return {segment.base_offset: segment.batches.size for segment in self.segments}

    def is_as_noted(self) -> bool:
        """Whether the segments have the sizes in the manifest. Nothing was written since in that
        case.
        """
        return self.manifest is not None and self.sizes() == {
            note.base_offset: note.size for note in self.manifest.segments.values()
        }

    def report_shrunk(self, sizes: dict[int, int]) -> None:
        """Log which segments have lost bytes since a clean stop, by their sizes before any cut.

        Only segments before the last one are reported. Without this check, a segment that was
        shortened but ends with a complete batch would not be noticed.
        """
        if self.manifest is None:
            return
        for base_offset, note in sorted(self.manifest.segments.items())[:-1]:
            size = sizes.get(base_offset, 0)
            if size < note.size:
                logger.error(
                    "%s has %d bytes, and had %d at the last stop: restore it from a copy; "
                    "missing records are not read",
                    self.log_path(base_offset),
                    size,
                    note.size,
                )
