"""Tracks the durable part of one log, the files to flush, and the part that readers may see.

    attribute             meaning                                         moved by
    recovery_point        all below is durable in the log's own files     a flush in place
    durable_offset        all below is durable there or in a journal      any flush
    _durable_position     durable_offset as a position in the active      any flush; 0 by a roll
                          segment; -1: it is in an earlier segment
    _unflushed            segments with batches above recovery_point,     a roll; a flush in place
                          always including the active one
    _name_changes,        how often names in the directory changed; how   a roll, new files;
    _durable_names,       many of these changes are durable; new files    a flush in place, once it
    _new_paths            besides segments that are not durable           has ended
    waits_for_disk        flush.messages=1: the high watermark is         the log's settings
                          durable_offset, otherwise the log's end
    pending_markers       markers whose transaction is not stable before  `Log.write`; the
                          the high watermark has passed them              high watermark

recovery_point <= durable_offset <= the log's end. A flush has two steps, since another thread does
the fsync: `begin_flush` returns a token, `try_begin_journal` the end of what is in the journal. It
is passed to `Log.finish_flush` when all its files, or the journal with its entry, are on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.storage.disk import DirectorySync, Disk, FileSync, Syncable
from barnabas.storage.files.flush_journal import JournalRow
from barnabas.storage.files.segment_files import LOG_SUFFIX
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segment_list import SegmentList

LogEnd = tuple[int, int, int]
"""The end of a log at some time: the offset, the base offset of the active segment, and that
segment's size. (A plain tuple, since each flush makes two for each log.)
"""


@final
@dataclass(slots=True)
class FlushToken:
    """A running flush of a log's own files. After all of them are fsynced, everything below `end`
    is durable. name_changes: the number of changes of names that are durable then.
    """

    files: tuple[Syncable, ...]
    end: LogEnd
    name_changes: int = 0


class Durability:
    """The durable part of one log; see the table in the module's docstring.

    names: the topic, the partition and the bytes of the topic id, as the flush journal has them.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_durable_names",
        "_durable_position",
        "_name_changes",
        "_new_paths",
        "_partition",
        "_segments",
        "_unflushed",
        "durable_offset",
        "names",
        "pending_markers",
        "recovery_point",
        "waits_for_disk",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        partition: TopicIdPartition,
        segments: SegmentList,
        recovery_point: int,
        *,
        names_are_durable: bool,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.partition = partition
        self._segments = segments
        self.recovery_point = self.durable_offset = recovery_point
        is_all_durable = recovery_point == segments.end_offset
        self._durable_position = segments.active.batches.size if is_all_durable else -1
        self._unflushed = [
            segment
            for segment in segments
            if segment is segments.active or segments.end_of(segment) > recovery_point
        ]
        self._name_changes, self._durable_names = int(not names_are_durable), 0
        self._new_paths: list[str] = []
        self.pending_markers: list[tuple[int, int]] = []
        self.waits_for_disk = False

    # --- reading ---------------------------------------------------------------------------------

    @property
    def partition(self) -> TopicIdPartition:
        """The partition whose log this is."""
        return self._partition

    @partition.setter
    def partition(self, partition: TopicIdPartition) -> None:
        self._partition = partition
        self.names = partition.topic, partition.partition, partition.topic_id.bytes

    @property
    def end(self) -> LogEnd:
        """The log's current end."""
        segments, active = self._segments, self._segments.active
        return segments.end_offset, active.base_offset, active.batches.size

    @property
    def names_changed(self) -> bool:
        """Whether changes of names in the directory are not durable yet."""
        return self._name_changes > self._durable_names

    def stable_below(self, offset: int, high_watermark: int) -> int:
        """The lower of `offset` and the first offset of a transaction whose marker is not
        flushed. Need not be asked without pending markers.
        """
        self.pending_markers = [
            pending for pending in self.pending_markers if pending[1] >= high_watermark
        ]
        return min([offset, *(first for first, _ in self.pending_markers)])

    # --- change ----------------------------------------------------------------------------------

    def add_names(self, *paths: str) -> None:
        """Make the next flush of the log's own files include the directory's names, and these new
        files.
        """
        self._name_changes += 1
        self._new_paths += paths

    def add_segment(self, segment: Segment) -> None:
        """Add a new active segment, whose name also has to become durable."""
        self._unflushed.append(segment)
        self._durable_position = 0
        self._name_changes += 1

    def remove_segments(self, segments: list[Segment]) -> None:
        """Remove segments that were deleted or replaced, since they need no flush."""
        self._unflushed = [segment for segment in self._unflushed if segment not in segments]

    def add_pending_marker(self, first_offset: int, marker_offset: int) -> None:
        """Keep a transaction unstable as long as its marker is not below the high watermark."""
        self.pending_markers.append((first_offset, marker_offset))

    # --- flush -----------------------------------------------------------------------------------

    def begin_flush(self) -> FlushToken | None:
        """Begin a flush of the log's own files. Gives: None if everything in them is durable."""
        end = self.end
        has_new_names = self._name_changes > self._durable_names
        if self.recovery_point >= end[0] and not has_new_names:
            return None
        files: list[Syncable] = [segment.batches.to_sync() for segment in self._unflushed]
        if has_new_names:
            files += [FileSync(self._disk, path) for path in self._new_paths]
            files.append(DirectorySync(self._disk, self._directory))
            files.append(DirectorySync(self._disk, self._directory.rpartition("/")[0]))
        return FlushToken(tuple(files), end, self._name_changes)

    def try_begin_journal(
        self, most_bytes: int, end: LogEnd | None = None
    ) -> tuple[JournalRow, LogEnd] | None:
        """Make an entry for the flush journal with the bytes that are not durable.

        Gives:  None if the log has to be flushed in place. That is the case if the bytes are more
                than `most_bytes`, or if a segment before the active one is not durable in its own
                file. The journals therefore have only the end of one segment.
        Takes:  end, the log's end up to which bytes are written; None for all.
        """
        if end is None:
            end = self.end
        segment, position = self._segments.active, self._durable_position
        batches = segment.batches
        _, base_offset, end_position = end
        size = end_position - position
        if (
            position < 0
            or size > most_bytes
            or self._name_changes > self._durable_names
            or len(self._unflushed) > 1
        ):
            return None
        assert base_offset == segment.base_offset, (
            f"{self.partition} is not durable up to {end}, which is in an earlier segment"
        )
        data = (batches.open_file or batches.file).pread(size, position)
        assert len(data) == size, f"{batches.path(LOG_SUFFIX)} is shorter than {end_position} bytes"
        topic, index, topic_id = self.names
        return (topic, index, topic_id, base_offset, position, data), end

    def finish_flush(self, token: FlushToken | LogEnd) -> None:
        """Record that the token's files are on the disk, or the journal up to this end."""
        end_offset, base_offset, end_position = token.end if type(token) is FlushToken else token
        active = self._segments.active
        if end_offset >= self.durable_offset:
            self.durable_offset = end_offset
            if base_offset == active.base_offset:
                self._durable_position = end_position
        if type(token) is not FlushToken:
            return
        if token.name_changes > self._durable_names:
            self._durable_names = token.name_changes
            if not self.names_changed:
                self._new_paths = []
        if end_offset >= self.recovery_point:
            self.recovery_point = end_offset
            self._unflushed = [
                segment
                for segment in self._unflushed
                if segment is active or self._segments.end_of(segment) > end_offset
            ]
