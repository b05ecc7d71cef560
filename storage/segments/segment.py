"""One segment of a log: a file of batches (`batch_file`) and three indexes (`segment_indexes`).

This module contains the operations that need both: appends, look-ups, the decision to roll, and the
creation of the files.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.records import HEADER_SIZE
from barnabas.storage.disk import Disk, cut_back, not_written
from barnabas.storage.files.checkpoints import Manifest, SegmentNote
from barnabas.storage.files.offset_index import NO_ENTRY
from barnabas.storage.files.segment_files import (
    HIGHEST_RELATIVE_OFFSET,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_SUFFIX,
    CorruptLog,
)
from barnabas.storage.segments.batch_file import BatchFile, BatchPosition, IndexHole
from barnabas.storage.segments.index_cache import IndexCache
from barnabas.storage.segments.segment_indexes import SegmentIndexes

_RECENT_BATCHES = 128
_NO_BATCHES: dict[int, int] = {}


class RollLimits(NamedTuple):
    """The limits of an active segment: its size, its age, and the size of its indexes."""

    segment_bytes: int
    age_ms: int
    index_bytes: int


class Room(NamedTuple):
    """What fits in an active segment for certain: batches up to a size of the file, an offset and a
    timestamp, as long as the limits are these.
    """

    size_bytes: int
    last_offset: int
    timestamp: int
    limits: RollLimits | None


NO_ROOM = Room(-1, -1, -1, None)


class Segment:
    """One segment of a log.

    _recent, _older: the positions of the latest batches by base offset. With them, readers at the
    end of the log need no index. When `_recent` is full, it becomes `_older`, whose entries are
    discarded. room: what fits in the segment for certain, so that most appends need not ask
    `should_roll`.
    """

    __slots__ = (
        "_older", "_recent", "base_offset", "batches", "created_ms", "indexes", "room",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        size: int,
        created_ms: int,
        cache: IndexCache,
        index_interval_bytes: int,
        manifest: Manifest | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.batches = BatchFile(disk, directory, base_offset, size)
        self.indexes = SegmentIndexes(
            self.batches,
            cache=cache,
            index_interval_bytes=index_interval_bytes,
            manifest=manifest,
        )
        self._recent = self._older = _NO_BATCHES
        self.room = NO_ROOM

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        cache: IndexCache,
        index_interval_bytes: int,
    ) -> Segment:
        """Create a new, empty segment, open for appends.

        If it raises an OSError, none of the files exists.
        """
        segment = cls.without_files(
            disk,
            directory,
            base_offset,
            now_ms=now_ms,
            cache=cache,
            index_interval_bytes=index_interval_bytes,
        )
        segment.make_files()
        return segment

    @classmethod
    def without_files(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        cache: IndexCache,
        index_interval_bytes: int,
    ) -> Segment:
        """A new, empty segment. Batches can be appended once its files are made."""
        segment = cls(
            disk,
            directory,
            base_offset,
            size=0,
            created_ms=now_ms,
            cache=cache,
            index_interval_bytes=index_interval_bytes,
        )
        segment.start_empty()
        segment.indexes.files.set_new()
        return segment

    def make_files(self) -> None:
        """Make the files of a new segment. The log file stays open.

        Raises: OSError if a file cannot be made, in which case none of them exists.
        """
        batches = self.batches
        try:
            batches.open_file = batches.disk.open(batches.path(LOG_SUFFIX), create=True)
            for suffix in (INDEX_SUFFIX, TIME_SUFFIX):
                batches.disk.open(batches.path(suffix), create=True).close()
        except OSError:
            self.remove_files()
            raise

    def remove_files(self) -> None:
        """Remove the files of a new segment that is not used after all.

        If they stayed, the previous segment could grow beyond their base offset.
        """
        batches = self.batches
        batches.open_file = None
        for suffix in SEGMENT_SUFFIXES:
            batches.disk.unlink(batches.path(suffix))

    def start_empty(self) -> None:
        """Begin with empty, trusted indexes, after which batches may be appended."""
        self.indexes.start_empty()
        self._recent = {}
        self.room = NO_ROOM

    def append(
        self,
        data: bytes | bytearray | memoryview,
        size: int,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
    ) -> None:
        """Write one batch at the end.

        After an OSError, a partial write is cut off, since the next batch would follow it.

        Raises: NotWrittenError if there is no space; OSError.
        """
        batches = self.batches
        try:
            position = (batches.open_file or batches.file).append(data)
        except OSError as error:
            cut_back(batches.truncate, batches.size)
            raise not_written(error) from error
        indexes = self.indexes
        # The code of `index_batch` is repeated here to save a call, since it runs for every batch.
        # Few batches need an entry.
        if max_timestamp > indexes.max_timestamp:
            indexes.max_timestamp, indexes.max_timestamp_offset = max_timestamp, last_offset
        if not position:
            indexes.first_timestamp = max_timestamp
        if indexes.bytes_since_entry > indexes.index_interval_bytes:
            indexes.add_entries(position, last_offset)
        indexes.bytes_since_entry += size
        batches.size = position + size
        recent = self._recent
        recent[first_offset] = position
        if len(recent) >= _RECENT_BATCHES:
            self._older, self._recent = recent, {}

    def recent_position(self, offset: int) -> int:
        """The position of one of the latest batches, by base offset; -1 for other batches."""
        position = self._recent.get(offset, -1)
        return position if position >= 0 else self._older.get(offset, -1)

    def should_roll(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int, limits: RollLimits
    ) -> bool:
        """Whether a batch belongs to a new segment, because this one is full or old.

        The age is the difference between the timestamps of the segment's first batch and of this
        batch. If there are no timestamps, the age is measured by the broker's clock. One entry of
        the time index is reserved for the time when the segment is closed.

        After:  unless the batch needs a new segment, `room` says what fits in this one.
        """
        segment_bytes = self.batches.size
        if not segment_bytes:
            return False
        indexes = self.indexes
        assert indexes.loaded_offsets is not None and indexes.loaded_times is not None
        first = indexes.first_timestamp
        if first is None:
            first = indexes.first_batch_timestamp()
        entries_left = min(
            limits.index_bytes // 8 - len(indexes.loaded_offsets.offsets),
            limits.index_bytes // 12 - 1 - len(indexes.loaded_times.timestamps),
        )
        if (
            segment_bytes > limits.segment_bytes - size
            or last_offset - self.base_offset > HIGHEST_RELATIVE_OFFSET
            or (max_timestamp - first if first >= 0 else now_ms - self.created_ms) > limits.age_ms
            or entries_left <= 0
        ):
            return True
        if first >= 0:
            # An entry of an index needs a batch, and no batch is smaller than its header. The entry
            # of this batch is added after it is written.
            end = segment_bytes + (entries_left - 1) * HEADER_SIZE
            self.room = Room(
                min(end, limits.segment_bytes),
                self.base_offset + HIGHEST_RELATIVE_OFFSET,
                first + limits.age_ms,
                limits,
            )
        return False

    def reopen(self, note: SegmentNote) -> bool:
        """Open the segment for appends. The indexes of its first `note.size` bytes are loaded and
        checked against the manifest.

        Gives:  False if the files do not match the manifest.
        After:  the size is `note.size`; bytes beyond it have to be checked and passed to
                `SegmentIndexes.index_batch`.
        """
        if not self.indexes.reopen(note):
            return False
        self._recent = {}
        self.room = NO_ROOM
        self.batches.size = note.size
        return True

    def close_for_appends(self) -> None:
        """Complete and write the indexes, since no further batch is appended.

        They may be removed from memory afterwards.
        """
        self.indexes.complete()
        self.seal()

    def seal(self) -> None:
        """Close the segment after `SegmentIndexes.complete`. No further batch is appended."""
        self._recent = self._older = _NO_BATCHES
        self.indexes.seal()

    def close(self) -> None:
        self.batches.close()
        self.indexes.cache.forget(self.indexes)

    def find(self, offset: int) -> BatchPosition | None:
        """The first batch whose last offset is not below `offset`; None if there is none."""
        indexes = self.indexes
        relative = offset - self.base_offset
        entry = indexes.offset_index().lookup(relative)
        try:
            return self.batches.scan(
                entry.position, entry.relative_offset, offset, is_complete=indexes.rebuilt
            )
        except IndexHole:
            why = "has a hole"
        except CorruptLog:
            if indexes.rebuilt or entry is NO_ENTRY:
                raise
            why = "does not fit the log"
        indexes.rebuild(why)
        entry = indexes.offset_index().lookup(relative)
        return self.batches.scan(entry.position, entry.relative_offset, offset, is_complete=True)
