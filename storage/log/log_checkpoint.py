"""A checkpoint of one log: the files that a start reads instead of the log.

    part                            content                 if it is missing, a start
    <offset>.snapshot               the producers           replays batches from an older snapshot
    .index .timeindex .txnindex     the active segment      reads the segment's headers
    segments.manifest               sizes, times, and the   trusts none of the others
                                    checksums of indexes

All three together are a checkpoint; the manifest is written last. The files are not flushed. They
remain after a kill. After a power loss they are checked, and trusted only up to the recovery point.
"""

from __future__ import annotations

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.storage.disk import DirectorySync, Disk, FileSync, Syncable
from barnabas.storage.files.checkpoints import (
    LEADER_EPOCH_NAME,
    MANIFEST_NAME,
    Manifest,
    SegmentNote,
    encode_epochs,
)
from barnabas.storage.files.leader_epochs import LeaderEpochs
from barnabas.storage.files.segment_files import INDEX_SUFFIXES, offset_name
from barnabas.storage.producers.producer_snapshots import ProducerSnapshots
from barnabas.storage.producers.producer_state import ProducerStateManager
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segment_list import SegmentList


class LogCheckpoint:
    """The checkpoint files of one log.

    producers_expired: whether producers were removed since the last snapshot. It then has to be
    written again even if the log has not grown. _as_closed: (log start, log end, number of
    segments) at the last clean stop; None if there was none, or if the log has changed since.
    """

    __slots__ = (
        "_as_closed",
        "_directory",
        "_disk",
        "_epochs",
        "_producer_state",
        "_segments",
        "_snapshots",
        "partition",
        "producers_expired",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        partition: TopicIdPartition,
        segments: SegmentList,
        producer_state: ProducerStateManager,
        epochs: LeaderEpochs,
        snapshots: ProducerSnapshots,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.partition = partition
        self._segments = segments
        self._producer_state = producer_state
        self._epochs = epochs
        self._snapshots = snapshots
        self.producers_expired = False
        self._as_closed: tuple[int, int, int] | None = None

    def write(self, log_start_offset: int) -> None:
        """Update index files, snapshot and manifest."""
        self._segments.active.indexes.write()
        self._bring_snapshot_up()
        self.write_manifest(log_start_offset)

    def write_snapshot(self) -> None:
        """Write the producers' state at the end of the log."""
        self._snapshots.write(self._producer_state, self._segments.base_offsets)
        self.producers_expired = False

    def _bring_snapshot_up(self) -> None:
        """Write a snapshot of the producers, unless the last one was written at the log's end."""
        offsets = self._snapshots.offsets
        is_latest = bool(offsets) and offsets[-1] == self._segments.end_offset
        if not is_latest or self.producers_expired:
            self.write_snapshot()

    # --- clean stop ------------------------------------------------------------------------------

    def is_as_closed(self, log_start_offset: int) -> bool:
        """Whether the log is unchanged since the last clean stop."""
        return self._as_closed == self._state(log_start_offset)

    def set_as_closed(self, log_start_offset: int) -> None:
        """Record that the log was opened unchanged since a clean stop."""
        self._as_closed = self._state(log_start_offset)

    def _state(self, log_start_offset: int) -> tuple[int, int, int]:
        return log_start_offset, self._segments.end_offset, len(self._segments)

    def write_closing(self, log_start_offset: int) -> list[Syncable]:
        """Write the files of a clean stop. Gives: the files to fsync."""
        self._segments.active.indexes.add_last_time()
        self.write(log_start_offset)
        return [
            FileSync(self._disk, f"{self._directory}/{MANIFEST_NAME}"),
            DirectorySync(self._disk, self._directory),
        ]

    # --- manifest --------------------------------------------------------------------------------

    def write_manifest(self, log_start_offset: int) -> None:
        """Write a manifest of the current files. The active segment may grow after that."""
        manifest = Manifest(self.partition.topic_id, log_start_offset, self._segments.end_offset)
        # The manifest has the checksum of this file, since the format of the file has none.
        epochs = encode_epochs(self._epochs.written)
        manifest.files[LEADER_EPOCH_NAME] = (len(epochs), crc32c(epochs))
        parts = [
            part
            for segment in self._segments
            if (part := self._note_segment(segment, manifest)) is not None
        ]
        self._disk.write_atomic(
            f"{self._directory}/{MANIFEST_NAME}", manifest.encode(parts), sync=False
        )

    def _note_segment(self, segment: Segment, manifest: Manifest) -> Manifest | None:
        """Describe a segment in the manifest.

        Gives:  for a closed segment, a part of the manifest, which is encoded only once; None if
                the segment was added to `manifest` itself.
        """
        indexes = segment.indexes
        base_offset, earlier = segment.base_offset, indexes.manifest
        is_active = segment is self._segments.active
        if earlier is not None and earlier.parted:
            return earlier
        names = [f"{offset_name(base_offset)}{suffix}" for suffix in INDEX_SUFFIXES]
        if earlier is not None and not is_active and all(name in earlier.files for name in names):
            indexes.manifest = earlier.part(base_offset, names)
            return indexes.manifest
        end_offset = self._segments.end_of(segment)
        # If this process has neither written a file nor compared it with a checksum, the manifest
        # has no checksum of it.
        is_right = indexes.rebuilt and indexes.has_times and indexes.txn_trusted
        if not is_right or indexes.lacks_entries:
            manifest.segments[base_offset] = SegmentNote(
                base_offset, segment.batches.size, -1, base_offset, end_offset
            )
            return None
        manifest.segments[base_offset] = SegmentNote(
            base_offset,
            segment.batches.size,
            indexes.max_timestamp,
            indexes.max_timestamp_offset,
            end_offset,
        )
        manifest.files.update({name: (size, crc) for name, size, crc in indexes.files.checksums()})
        if not is_active:
            indexes.manifest = manifest.part(base_offset, names)
        return None
