"""Cleaned segments take the places of the old ones, so that a kill at any moment leaves a log that is whole.

Steps, in this order; the names in a directory change in the order in which they are asked to:

    1  `.cleaned` becomes `.swap`, group after group, the indexes of each before its `.log`
    2  snapshots of producers within what was cleaned go (they may have transactions open whose markers are gone); the manifest goes
    3  the directory is made durable
    4  group after group: the old files become `.deleted`, then `.swap` becomes the final name, again `.log` last
    5  a new manifest

At a start `.cleaned` files are dropped, and each `<base>.log.swap` is completed: the segments that begin within its offsets go, it takes its
name, and its indexes are built anew. So some of the groups may be cleaned and later ones not, never the other way round: an older value of a
key is always gone before the tombstone that removed it. The names are Apache Kafka's, which completes them in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from protocol.records import HEADER_SIZE, read_header
from storage.checkpoints import MANIFEST_NAME
from storage.cleaner import CleanedSegment, CleanResult, cleaned_path, discard
from storage.segment import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    Segment,
    offset_name,
)

if TYPE_CHECKING:
    from storage.disk import Disk
    from storage.log import Log

logger = logging.getLogger(__name__)


def swap_in(log: Log, result: CleanResult, now_ms: int) -> bool:
    """Put the new segments in the places of the old.

    Takes:  result, of a job of this very log. Segments may have been rolled or let go since.
    Gives:  whether all of it was taken: only then is the log clean up to the result's next_dirty_offset. A group that lost segments in the
            meantime is dropped, and with it all later ones; one that is gone altogether is not missed.
    Raises: OSError, which is fatal.
    """
    present = {segment.base_offset: segment for segment in log.segments[:-1]}
    taken: list[CleanedSegment] = []
    complete = True
    for cleaned in result.segments:
        left = sum(base_offset in present for base_offset in cleaned.replaces)
        complete = complete and left in (0, len(cleaned.replaces)) and (left > 0 or not taken)
        if complete and left:
            taken.append(cleaned)
        else:
            discard(log.disk, log.directory, cleaned.base_offset)
    if taken:
        _rename_all(log, taken)
        log.drop_snapshots_below(_end_of(log, taken[-1]))
        log.disk.unlink(f"{log.directory}/{MANIFEST_NAME}")
        log.disk.fsync_dir(log.directory)
        for cleaned in taken:
            _replace(log, cleaned, [present[base_offset] for base_offset in cleaned.replaces], now_ms)
        log.write_manifest()
    return complete


def discard_result(log: Log, result: CleanResult) -> None:
    """Drop what a job made: its log is gone, or is no longer to be compacted."""
    if log.disk.is_dir(log.directory):
        for cleaned in result.segments:
            discard(log.disk, log.directory, cleaned.base_offset)


def _end_of(log: Log, cleaned: CleanedSegment) -> int:
    return next(segment.base_offset for segment in log.segments if segment.base_offset > cleaned.replaces[-1])


def _rename_all(log: Log, taken: Sequence[CleanedSegment]) -> None:
    for cleaned in taken:
        for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
            path = cleaned_path(log.directory, cleaned.base_offset, suffix)
            swap = f"{log.directory}/{offset_name(cleaned.base_offset)}{suffix}{SWAP_SUFFIX}"
            if suffix != INDEX_SUFFIXES[2] or log.disk.exists(path):  # there is an aborted index only where something was aborted
                log.disk.rename(path, swap)


def _replace(log: Log, cleaned: CleanedSegment, old: list[Segment], now_ms: int) -> None:
    log.discard_files(old, now_ms)
    for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
        path = f"{log.directory}/{offset_name(cleaned.base_offset)}{suffix}"
        if suffix != INDEX_SUFFIXES[2] or log.disk.exists(path + SWAP_SUFFIX):
            log.disk.rename(path + SWAP_SUFFIX, path)
    new = Segment(
        log.disk,
        log.directory,
        cleaned.base_offset,
        size=cleaned.size,
        created_ms=old[0].created_ms,
        cache=log.cache,
        index_interval_bytes=log.config.index_interval_bytes,
    )
    new.max_timestamp, new.max_timestamp_offset = cleaned.max_timestamp, cleaned.max_timestamp_offset
    new.times_known = new.txn_trusted = new.index_trusted = new.rebuilt = True  # the index files are ours and new
    log.replace_segments(old, new)


def complete_swaps(disk: Disk, directory: str) -> None:
    """At a start, before anything else is read: finish what step 4 left, and undo what was not so far."""
    names = disk.list(directory)
    bases = sorted(int(name[:20]) for name in names if name[20:] == LOG_SUFFIX + SWAP_SUFFIX and name[:20].isdigit())
    for base_offset in bases:
        _complete(disk, directory, base_offset)
    for name in names:
        if name.endswith(SWAP_SUFFIX):
            disk.unlink(f"{directory}/{name}")  # indexes; and what a swap that was completed has left
    if bases:
        disk.fsync_dir(directory)


def _complete(disk: Disk, directory: str, base_offset: int) -> None:
    swap = f"{directory}/{offset_name(base_offset)}{LOG_SUFFIX}{SWAP_SUFFIX}"
    end_offset = max(_next_offset(disk, swap), base_offset + 1)
    logger.info("%s: the compaction that a stop interrupted is completed", swap)
    disk.unlink(f"{directory}/{MANIFEST_NAME}")
    names = disk.list(directory)
    later = [int(name[:20]) for name in names if name[20:] == LOG_SUFFIX and name[:20].isdigit() and int(name[:20]) >= end_offset]
    for name in names:
        if name[:20].isdigit() and name[20:] == SNAPSHOT_SUFFIX and int(name[:20]) < min(later, default=end_offset):
            disk.unlink(f"{directory}/{name}")
    for name in names:
        if name[:20].isdigit() and name[20:] in SEGMENT_SUFFIXES and base_offset <= int(name[:20]) < end_offset:
            disk.unlink(f"{directory}/{name}")
    disk.rename(swap, f"{directory}/{offset_name(base_offset)}{LOG_SUFFIX}")


def _next_offset(disk: Disk, path: str) -> int:
    """The offset after the last batch of a segment; -1 where there is none."""
    file = disk.open(path)
    try:
        position, found = 0, -1
        while position + HEADER_SIZE <= file.size:
            header = read_header(file.pread(HEADER_SIZE, position))
            found = header.next_offset
            position += header.size_bytes
        return found
    finally:
        file.close()
