"""Decides whether a log is dirty enough to be compacted, and which part of it is cleaned.

The clean part of a log is the result of an earlier cleaning, up to the offset in
`cleaner-offset-checkpoint`. The rest is the dirty part. Three parts are never cleaned: the active
segment; segments that are not entirely below the last stable offset, since their transactions have
not ended; and everything from the first segment on that is younger than min.compaction.lag.ms. A
log is cleaned when the share of dirty bytes exceeds min.cleanable.dirty.ratio, or when a dirty
record is older than max.compaction.lag.ms. If a start replays the whole log, its active segment can
be closed early, which allows it to be cleaned too (`dirty_bytes_if_rolled`).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from barnabas.protocol.records import HEADER_SIZE
from barnabas.storage.cleaning.clean_job import CleanJob
from barnabas.storage.files.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from barnabas.storage.files.segment_files import HIGHEST_RELATIVE_OFFSET
from barnabas.storage.files.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from barnabas.storage.files.txn_index import AbortedEntry
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import NEVER_MS
from barnabas.storage.segments.segment import Segment


class Dirt(NamedTuple):
    """The part of a log that could be cleaned.

    end_offset: the start of the first segment that is not cleaned.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)


def assess(log: Log, cleaned_to: int | None, wall_ms: int) -> Dirt | None:
    """The dirty part of a log, or None if nothing can be cleaned.

    Takes:  cleaned_to, the offset in the checkpoint. An offset outside the log is ignored, since it
            belongs to another log.
    Raises: CorruptLog, OSError, when a time index has to be rebuilt.
    """
    if not log.config.is_compacted:
        return None
    segments, stable = log.segments, log.last_stable_offset
    first_dirty, begin = _first_dirty(log, cleaned_to)
    dirty: list[Segment] = []
    end = first_dirty
    youngest_ms = wall_ms - log.config.min_compaction_lag_ms
    for number in range(begin, len(segments) - 1):
        segment = segments[number]
        following = segments[number + 1].base_offset
        if following > stable:
            break
        if log.config.min_compaction_lag_ms > 0:
            segment.indexes.load_times()
            if segment.indexes.max_timestamp > youngest_ms:
                break
        dirty.append(segment)
        end = following
    dirty_bytes = sum(segment.batches.size for segment in dirty)
    if not dirty_bytes:
        return None
    clean_bytes = sum(segment.batches.size for segment in segments[:begin])
    return Dirt(first_dirty, end, clean_bytes, dirty_bytes, _is_overdue(log, dirty, wall_ms))


def dirty_bytes_if_rolled(log: Log, cleaned_to: int | None) -> int:
    """The bytes of a log that could be cleaned if its active segment were closed now.

    The result is 0 if the log would not be cleaned even then, because it is not dirty enough, or
    because transactions are open or a minimum lag is set.

    Takes:  cleaned_to, as in `assess`.
    """
    segments = log.segments
    waits = log.last_stable_offset < segments.active.base_offset
    if waits or not segments.active.batches.size or log.config.min_compaction_lag_ms > 0:
        return 0
    _, begin = _first_dirty(log, cleaned_to)
    dirty_bytes = sum(segment.batches.size for segment in segments[begin:])
    all_bytes = sum(segment.batches.size for segment in segments[:begin]) + dirty_bytes
    is_enough = dirty_bytes / all_bytes > log.config.min_cleanable_dirty_ratio
    return dirty_bytes if is_enough else 0


def _first_dirty(log: Log, cleaned_to: int | None) -> tuple[int, int]:
    """The first offset of the dirty part, and the index of the segment that contains it."""
    first_dirty = log.log_start_offset
    if cleaned_to is not None and first_dirty < cleaned_to <= log.log_end_offset:
        first_dirty = cleaned_to
    index = bisect_right(log.segments, first_dirty, key=lambda segment: segment.base_offset) - 1
    return first_dirty, max(index, 0)


def _is_overdue(log: Log, dirty: list[Segment], wall_ms: int) -> bool:
    """Whether a dirty segment has records older than max.compaction.lag.ms."""
    if log.config.max_compaction_lag_ms >= NEVER_MS:
        return False
    times = [time for segment in dirty if (time := segment.indexes.first_batch_timestamp()) > 0]
    return bool(times) and min(times) < wall_ms - log.config.max_compaction_lag_ms


def is_due(log: Log, dirt: Dirt) -> bool:
    return dirt.is_overdue or dirt.ratio > log.config.min_cleanable_dirty_ratio


def plan(log: Log, dirt: Dirt, *, job_id: int, map_bytes: int, wall_ms: int) -> CleanJob:
    """Make the job for a cleaning.

    Raises: CorruptLog, OSError, when an aborted index has to be rebuilt.
    """
    sources = [segment for segment in log.segments[:-1] if segment.base_offset < dirt.end_offset]
    return CleanJob(
        job_id=job_id,
        directory=log.directory,
        groups=tuple(
            tuple((segment.base_offset, segment.batches.size) for segment in group)
            for group in _groups(log, sources, dirt.end_offset)
        ),
        first_dirty_offset=dirt.first_dirty_offset,
        end_offset=dirt.end_offset,
        aborted=tuple(_aborted(log, dirt.end_offset)),
        last_batches={
            producer.producer_id: (last_offset, producer.producer_epoch)
            for producer in log.producer_state.producers.values()
            if (last_offset := producer.last_offset) < dirt.end_offset
        },
        wall_ms=wall_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        index_interval_bytes=log.config.index_interval_bytes,
        map_bytes=map_bytes,
        levels=log.config.compression_levels,
        max_decompressed_bytes=log.config.max_decompressed_bytes,
    )


def _groups(log: Log, sources: list[Segment], end_offset: int) -> list[list[Segment]]:
    """Divide adjacent segments into groups. The bytes, indexes and offsets of each group fit into
    one segment.
    """
    most_bytes = log.config.segment_bytes
    entry_bytes = max(log.config.index_interval_bytes, HEADER_SIZE) * log.config.segment_index_bytes
    # Two index entries are at least one interval (or one batch header) apart. A group of this size
    # therefore has no more entries than fit into an index.
    most_bytes = min(most_bytes, entry_bytes // max(INDEX_ENTRY_SIZE, TIME_ENTRY_SIZE))
    groups: list[list[Segment]] = []
    group_bytes = 0
    ends = [segment.base_offset for segment in sources[1:]] + [end_offset]
    for segment, end in zip(sources, ends, strict=True):
        if (
            groups
            and group_bytes + segment.batches.size <= most_bytes
            and end - 1 - groups[-1][0].base_offset <= HIGHEST_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
            group_bytes += segment.batches.size
        else:
            groups.append([segment])
            group_bytes = segment.batches.size
    return groups


def _aborted(log: Log, end_offset: int) -> list[AbortedEntry]:
    """The aborted transactions that begin below `end_offset`, in the order of their abort
    markers.
    """
    return [
        entry
        for segment in log.segments
        for entry in log.reader.txn_index(segment).entries
        if entry.first_offset < end_offset
    ]
