"""Reads, in one pass, the part of a log that is not trusted, when the log is opened.

The pass begins

    at the manifest's end        if the files match it, and all written data are trusted or the
                                 manifest ends at or below the recovery point; the producers'
                                 state is the snapshot there
    at a segment's start         otherwise: of the segment with the recovery point, or of the
                                 first one that is shorter than in the manifest; its indexes are
                                 rebuilt, and the producers come from an older snapshot and replay

From there each batch is checked, including its checksum, and added to the indexes and the
producers' state. The bytes of a torn end (`torn_tail`) that the flush journals have are written
again; the rest is cut off. Valid batches behind a hole are set aside in files with the segment's
name and `.log.set-aside` instead of `.log`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import HEADER_SIZE, BatchHeader, has_right_crc, read_header
from barnabas.storage.disk import log_lack_of_space
from barnabas.storage.files.flush_journal import Redo
from barnabas.storage.files.segment_files import LOG_SUFFIX, SEGMENT_SUFFIXES, TXN_SUFFIX
from barnabas.storage.log.log import UNREAD_BATCH_BYTES
from barnabas.storage.log_config import LogConfig
from barnabas.storage.opening.last_run import TRUST, LastRun
from barnabas.storage.opening.partition_files import SET_ASIDE_SUFFIX, PartitionFiles
from barnabas.storage.opening.torn_tail import (
    fault_of,
    good_batch_after,
    is_hole,
    is_whole,
    lacks_start,
)
from barnabas.storage.producers.producer_snapshots import aborted_entry, replay_batch
from barnabas.storage.producers.producer_state import ProducerStateManager
from barnabas.storage.segments.segment import Segment

_READ_BYTES = 1 << 20
_END_OF_TIME = 1 << 63

logger = logging.getLogger(__name__)


class Opening(NamedTuple):
    """The parameters that are common to all logs that one start opens.

    redo: the content of the flush journals; None if there are none. on_read: a function that is
    called repeatedly with the number of bytes that were read from a log.
    """

    last_run: LastRun
    now_ms: int
    redo: Redo | None = None
    on_read: Callable[[int], None] | None = None


class LogLoader:
    """The pass over one log. It changes the segments and snapshots in `files`, and the files
    themselves.

    trusted_point: the offset below which everything is trusted. was_closed: whether the last stop
    was clean, and all files exist. read_bytes: the amount that was read because it was not in a
    checkpoint, as in `Log.unread_bytes`. has_kept_gap: whether there are gaps before segments at or
    above the recovery point, which compaction has left, or `continue_at`.
    """

    def __init__(
        self,
        files: PartitionFiles,
        opening: Opening,
        recovery_point: int,
        *,
        is_compacted: bool,
        gaps_are_lost: bool,
    ) -> None:
        trust = TRUST[opening.last_run]
        self.files = files
        self.disk = files.disk
        self.segments = files.segments
        self.manifest = files.manifest
        self.recovery_point = recovery_point
        self.is_compacted = is_compacted
        self.gaps_are_lost = gaps_are_lost
        self.trusted_point = _END_OF_TIME if trust.all_written else recovery_point
        self.redo = opening.redo if trust.redoes else None
        self.was_closed = trust.all_flushed
        self.now_ms = opening.now_ms
        self.on_read = opening.on_read
        self.read_bytes = 0
        self.has_kept_gap = False

    def load(self) -> ProducerStateManager:
        """Check and index the untrusted part. Gives: the producers' state at the end of the log.

        After:  the last segment is open for appends.
        Raises: CorruptLog.
        """
        begin = self._begin_at_manifest()
        if begin is None:
            self._forget_grown()
            number = self._first_suspect()
            begin = number, 0, self._state_at(number)
        number, position, state = begin
        end_before: dict[int, int] = {}
        while number < len(self.segments):
            segment = self.segments[number]
            number += 1
            end_before[segment.base_offset] = state.end_offset
            if position == 0 and segment.base_offset < state.end_offset:
                raise segment.batches.corrupt(
                    0, f"the segment before it reaches to offset {state.end_offset}"
                )
            if position == 0 and segment.base_offset > state.end_offset:
                # The snapshots above the previous segment's end are removed, since they may contain
                # the producers' state at the missing offsets.
                self.files.snapshots.drop_above(state.end_offset)
                if self._is_torn_before(number - 1, state.end_offset):
                    self._end_with(self.segments[number - 2], state.end_offset)
                    break
                self.has_kept_gap |= state.end_offset >= self.recovery_point
            self._check(segment, position, state)
            position = 0
        self._remove_emptied(state, end_before)
        self._report_missing(state.end_offset)
        return state

    def _state_at(self, number: int) -> ProducerStateManager:
        return self.files.snapshots.state_at_segment(self.segments, number, self.now_ms)

    # --- the beginning ---------------------------------------------------------------------------

    def _begin_at_manifest(self) -> tuple[int, int, ProducerStateManager] | None:
        """The number of the segment, the position, and the producers' state at the manifest's end;
        None if the files do not match the manifest.
        """
        manifest = self.manifest
        if manifest is None or self.trusted_point < manifest.log_end_offset:
            return None
        numbers = {segment.base_offset: number for number, segment in enumerate(self.segments)}
        last = max(manifest.segments, default=-1)
        if last not in numbers or min(numbers) < min(manifest.segments):
            return None
        for base_offset, note in manifest.segments.items():
            number = numbers.get(base_offset)
            if number is not None:  # otherwise retention has deleted the segment
                size = self.segments[number].batches.size
                if size < note.size or (size != note.size and base_offset != last):
                    return None
        number = numbers[last]
        segment = self.segments[number]
        note = manifest.segments[last]
        state = self.files.snapshots.read(manifest.log_end_offset, self.now_ms)
        size = segment.batches.size
        if state is None or not segment.reopen(note):
            return None
        segment.batches.size = size
        if size > note.size:
            logger.info(
                "%s: %d bytes were written after the last checkpoint",
                segment.batches.path(LOG_SUFFIX),
                size - note.size,
            )
        return number, note.size, state

    def _note_size(self, segment: Segment) -> int:
        """The segment's size in the manifest; -1 if the manifest does not list it."""
        note = None if self.manifest is None else self.manifest.segments.get(segment.base_offset)
        return -1 if note is None else note.size

    def _forget_grown(self) -> None:
        """Mark the indexes of segments that have grown since the manifest as untrusted.

        Such an index may lack its last entries.
        """
        for segment in self.segments:
            if self._note_size(segment) not in (-1, segment.batches.size):
                segment.indexes.manifest = None

    def _first_suspect(self) -> int:
        """The number of the first segment that has to be checked."""
        suspect = 0
        for number, segment in enumerate(self.segments):
            if segment.base_offset > self.trusted_point:
                break
            suspect = number
            if segment.batches.size < self._note_size(segment):
                break
        return suspect

    # --- the batches of a segment ----------------------------------------------------------------

    def _check(self, segment: Segment, position: int, state: ProducerStateManager) -> None:
        """Check each batch of a segment from `position` on. Restore a torn end, or cut it off."""
        if position == 0:
            segment.start_empty()
            segment.indexes.manifest = None
            segment.indexes.written_entries = segment.indexes.written_times = -1
            self.disk.unlink(segment.batches.path(TXN_SUFFIX))
            state.end_offset = max(state.end_offset, segment.base_offset)
        position, why = self._check_batches(segment, position, state)
        while self._write_again(segment, position, state.end_offset):
            before = position
            position, why = self._check_batches(segment, position, state)
            if position == before:
                break
        if position < segment.batches.size:
            self._cut(segment, position, why, state.end_offset)
        self._remove_left_over(segment, state.end_offset)
        if segment is not self.segments[-1]:
            segment.close_for_appends()
        elif self.was_closed:
            self._write_indexes(segment)
        # After any other stop, the next checkpoint writes the index files of the last segment. They
        # are not trusted until then.

    def _write_indexes(self, segment: Segment) -> None:
        """Write the index files. If the log does not change, it can then be closed without a
        write.
        """
        try:
            segment.indexes.write()
        except OSError as error:
            log_lack_of_space(f"an index of {self.files.directory}", error)
            self.was_closed = False

    def _check_batches(
        self, segment: Segment, position: int, state: ProducerStateManager
    ) -> tuple[int, str]:
        """Add the valid batches from `position` on.

        Gives:  the position at which they end. If that is not the end of the file, also the reason.
        Raises: CorruptLog if an offset is wrong, since no CRC covers it.
        """
        end = segment.batches.size
        chunk, chunk_at = b"", position
        why = ""
        while position < end:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_at, at = self._read(segment, _READ_BYTES, position), position, 0
            if len(chunk) - at < HEADER_SIZE:
                why = "a batch is cut off"
                break
            header = read_header(chunk, at)
            size = header.size_bytes
            why = fault_of(header, state.end_offset, segment.base_offset, end - position)
            if why:
                is_torn = lacks_start(segment, position, state.end_offset)
                if is_whole(header, segment, position) and not is_torn:
                    raise segment.batches.corrupt(position, why)
                break
            if at + size > len(chunk):
                chunk, chunk_at = self._read(segment, max(size, _READ_BYTES), position), position
                at = 0
            batch = memoryview(chunk)[at : at + size]
            if not has_right_crc(batch, header):
                why = "the CRC of a batch is wrong"
                break
            if header.base_offset != state.end_offset and not self._may_have_gaps(segment):
                raise segment.batches.corrupt(
                    position, f"the offset {header.base_offset} follows {state.end_offset - 1}"
                )
            self.read_bytes += size + UNREAD_BATCH_BYTES
            try:
                self._take(segment, position, header, batch, state)
            except KafkaError as error:
                why = f"a control batch cannot be read: {error}"
                break
            position += size
        return position, why

    def _read(self, segment: Segment, size: int, position: int) -> bytes:
        """Read bytes of the segment, and report the progress."""
        data = segment.batches.file.pread(size, position)
        if self.on_read is not None:
            self.on_read(len(data))
        return data

    def _may_have_gaps(self, segment: Segment) -> bool:
        """Whether compaction may have left gaps in the segment's offsets.

        It never leaves gaps in the last segment. A gap there means that an offset is wrong.
        """
        return self.is_compacted or segment is not self.segments[-1]

    def _take(
        self,
        segment: Segment,
        position: int,
        header: BatchHeader,
        batch: memoryview,
        state: ProducerStateManager,
    ) -> None:
        """Add one valid batch to the segment's indexes and the producers' state."""
        if header.producer_id >= 0:
            ended = replay_batch(state, header, lambda: batch, self.now_ms)
            if ended is not None and ended.aborted:
                segment.indexes.append_aborted(aborted_entry(ended))
        segment.indexes.index_batch(
            position,
            header.size_bytes,
            header.last_offset,
            header.max_timestamp if header.record_count else -1,
        )
        state.end_offset = header.next_offset

    def continue_at(
        self, start_offset: int, state: ProducerStateManager, config: LogConfig
    ) -> None:
        """Continue a log that ends before its start with a new segment at its start.

        DeleteRecords may raise the start above the durable end, and a power loss then removes the
        records in between. Their offsets are not given again: readers were told that the log begins
        after them. The segments before the new one are deleted like any others before the start.
        Source: Apache Kafka, which then drops all segments and begins at the start.

        Raises: OSError, after which the next start does the same.
        """
        last = self.segments[-1]
        logger.warning(
            "%s: the log ends at offset %d, before its start %d: the records between, which were "
            "deleted before, are lost; the log continues at its start",
            self.files.directory,
            state.end_offset,
            start_offset,
        )
        self.files.remove_manifest()
        segment = Segment.create(
            self.disk,
            self.files.directory,
            start_offset,
            now_ms=self.now_ms,
            cache=self.files.log_dir.cache,
            index_interval_bytes=config.index_interval_bytes,
        )
        if last.batches.size:
            last.close_for_appends()
        else:
            self._remove(last)
            last.remove_files()
        self.segments.append(segment)
        self.files.has_files = True
        state.end_offset = start_offset
        self.has_kept_gap = True
        self.was_closed = False

    # --- restored data ---------------------------------------------------------------------------

    def _write_again(self, segment: Segment, position: int, end_offset: int) -> bool:
        """Write the missing bytes from `position` on, if a flush journal has them.

        Bytes of the file beyond these are kept. They were written later and not flushed, but may be
        valid.
        """
        if self.redo is None or end_offset < self.recovery_point:
            return False
        data = self.redo.tail(*self.files.partition, segment.base_offset, position)
        if len(data) < HEADER_SIZE:
            return False
        header = read_header(data, 0)
        fault = fault_of(header, end_offset, segment.base_offset, len(data))
        if fault or header.base_offset != end_offset:
            return False
        beyond = segment.batches.file.pread(segment.batches.size, position + len(data))
        logger.warning(
            "%s: %d bytes from byte %d on, lost in a power failure, are written again from the "
            "flush journal",
            segment.batches.path(LOG_SUFFIX),
            len(data),
            position,
        )
        segment.batches.truncate(position)
        segment.batches.file.append(data + beyond)
        segment.batches.size = segment.batches.file.size
        segment.batches.file.fsync()
        return True

    # --- cut data --------------------------------------------------------------------------------

    def _cut(self, segment: Segment, position: int, why: str, end_offset: int) -> None:
        """Cut off a torn end. Raises: CorruptLog if the fault is not just a torn end."""
        if end_offset < self.recovery_point:
            raise segment.batches.corrupt(
                position, f"{why}, although all below offset {self.recovery_point} was durable"
            )
        behind = good_batch_after(segment, position)
        if behind >= 0 and not is_hole(segment, position, end_offset):
            raise segment.batches.corrupt(
                position, f"{why}, but a good batch follows at byte {behind}"
            )
        self.files.remove_manifest()
        self.files.snapshots.drop_above(end_offset)
        if behind >= 0:
            _report_set_aside(self._set_tail_aside(segment, position), why, segment, position)
        self._set_later_aside(segment, position, why)
        logger.warning(
            "%s: %s at byte %d: the torn end of %d bytes is cut off; the log ends at offset %d",
            segment.batches.path(LOG_SUFFIX),
            why,
            position,
            segment.batches.size - position,
            end_offset,
        )
        segment.batches.truncate(position)
        # Otherwise a power loss could restore the bytes that were cut, below later durable data.
        segment.batches.file.fsync()
        self.disk.fsync_dir(self.files.directory)

    def _is_torn_before(self, number: int, end_offset: int) -> bool:
        """Whether the offsets that are missing before a segment were lost in a power loss.

        Data at or above the recovery point may be lost. Compaction also leaves gaps between
        segments, but only below the recovery point; Apache Kafka's compaction leaves them anywhere
        before the active segment.
        """
        if end_offset < self.recovery_point:
            return False
        return (
            not self.is_compacted
            or self.gaps_are_lost
            or all(segment.batches.size == 0 for segment in self.segments[number:])
        )

    def _end_with(self, segment: Segment, end_offset: int) -> None:
        """End the log after a complete segment, since the next segment does not begin where it
        ends.
        """
        following = self.segments[self.segments.index(segment) + 1]
        why = f"the segment after it begins at offset {following.base_offset}"
        self._set_later_aside(segment, segment.batches.size, why)
        logger.warning(
            "%s: %s, and all between was lost: the log ends at offset %d",
            segment.batches.path(LOG_SUFFIX),
            why,
            end_offset,
        )
        self.disk.fsync_dir(self.files.directory)
        self._check(segment, 0, self._state_at(self.segments.index(segment)))

    def _remove_emptied(self, state: ProducerStateManager, end_before: dict[int, int]) -> None:
        """Remove empty segments at the end of the log, if the offsets before them are also
        missing.
        """
        while len(self.segments) > 1 and self.segments[-1].batches.size == 0:
            base_offset = self.segments[-1].base_offset
            end_offset = end_before.get(base_offset, base_offset)
            if end_offset == base_offset or end_offset < self.recovery_point:
                break
            self._end_with(self.segments[-2], end_offset)
            state.end_offset = end_offset

    def _remove_left_over(self, segment: Segment, end_offset: int) -> None:
        """Remove empty files within this segment's offsets. A roll on a full disk may have left
        them.
        """
        later = self.segments[self.segments.index(segment) + 1 :]
        if any(following.batches.size for following in later):
            return
        for following in later:
            if following.base_offset < end_offset:
                logger.info(
                    "%s is removed: its segment is empty, since the disk was full",
                    following.batches.path(LOG_SUFFIX),
                )
                following.remove_files()
                self._remove(following)

    def _remove(self, segment: Segment) -> None:
        """Remove a segment, and its indexes from the memory."""
        self.segments.remove(segment)
        segment.indexes.cache.forget(segment.indexes)

    def _set_later_aside(self, segment: Segment, position: int, why: str) -> None:
        """Set aside the segments after the one with which the log ends."""
        for following in self.segments[self.segments.index(segment) + 1 :]:
            if following.batches.size:
                _report_set_aside(following.batches.path(SET_ASIDE_SUFFIX), why, segment, position)
                self.disk.rename(
                    following.batches.path(LOG_SUFFIX), following.batches.path(SET_ASIDE_SUFFIX)
                )
            for suffix in SEGMENT_SUFFIXES:
                self.disk.unlink(following.batches.path(suffix))
            self._remove(following)

    def _set_tail_aside(self, segment: Segment, position: int) -> str:
        """Copy the end that will be cut off, if it has valid batches. Gives: the path of the
        copy.
        """
        path = f"{segment.batches.path(SET_ASIDE_SUFFIX)}-{position}"
        self.disk.unlink(path)
        copy = self.disk.open(path, create=True)
        try:
            while chunk := segment.batches.file.pread(_READ_BYTES, position):
                copy.append(chunk)
                position += len(chunk)
            copy.fsync()
        finally:
            copy.close()
        return path

    def _report_missing(self, end_offset: int) -> None:
        """Log an error if the log is shorter than it once was."""
        noted_end = self.manifest.log_end_offset if self.manifest is not None else 0
        once = max(self.recovery_point, noted_end)
        if end_offset < once:
            logger.error(
                "%s: the log ends at offset %d, but it once reached to %d: the offsets between "
                "are missing in the files",
                self.files.directory,
                end_offset,
                once,
            )


def _report_set_aside(path: str, why: str, segment: Segment, position: int) -> None:
    """Log that bytes after a fault were set aside."""
    logger.error(
        "%s: %s at byte %d, as after a power failure; the later bytes, which were not durable, "
        "are set aside in %s",
        segment.batches.path(LOG_SUFFIX),
        why,
        position,
        path,
    )
