"""The input and the result of a cleaning, which are sent to the cleaning process and back.

`clean_plan` makes a job, `cleaner` does it, and `segment_swap` uses its result. The broker itself
needs only the classes of this module, so that it can start without importing the cleaner.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.compression import Levels
from barnabas.storage.disk import Disk
from barnabas.storage.files.segment_files import CLEANED_SUFFIX, SEGMENT_SUFFIXES, offset_name
from barnabas.storage.files.txn_index import AbortedEntry


class CleanJob(NamedTuple):
    """The input of a cleaning, taken from a log at one moment.

    groups: for each group the (base offset, size) of its segments, from the log's first segment on
    without a gap. The segments of a group become a single segment. first_dirty_offset: the offset
    below which each key occurs once. end_offset: the end of the last group, exclusive. aborted: all
    entries that overlap [0, end_offset), by their markers' offsets. last_batches: producer id ->
    (offset of its last data, -1 if it has none; its epoch), for the known producers whose last data
    are not above the groups. levels: the compression levels of the codecs, for rewritten batches.
    max_decompressed_bytes: the limit above which a decompressed batch is not read, but kept
    unchanged.
    """

    job_id: int
    directory: str
    groups: tuple[tuple[tuple[int, int], ...], ...]
    first_dirty_offset: int
    end_offset: int
    aborted: tuple[AbortedEntry, ...]
    last_batches: dict[int, tuple[int, int]]
    wall_ms: int
    delete_retention_ms: int
    index_interval_bytes: int
    map_bytes: int
    levels: Levels
    max_decompressed_bytes: int


class CleanedSegment(NamedTuple):
    """A new segment in `.cleaned` files. replaces: the base offsets of the old segments."""

    base_offset: int
    replaces: tuple[int, ...]
    size: int
    max_timestamp: int
    max_timestamp_offset: int


class CleanResult(NamedTuple):
    """The result of a job.

    segments: the new segments, in order; unchanged segments are left out. next_dirty_offset: the
    end of the clean part. unreadable: the base offsets of batches whose records are unreadable
    although the checksum is correct. A client wrote them in this form, and they are kept.
    """

    segments: tuple[CleanedSegment, ...]
    next_dirty_offset: int
    read_bytes: int
    written_bytes: int
    unreadable: tuple[int, ...] = ()


def cleaned_path(directory: str, base_offset: int, suffix: str) -> str:
    """The path that a file of a new segment has before the swap."""
    return f"{directory}/{offset_name(base_offset)}{suffix}{CLEANED_SUFFIX}"


def discard(disk: Disk, directory: str, base_offset: int) -> None:
    """Remove the files of a new segment."""
    for suffix in SEGMENT_SUFFIXES:
        disk.unlink(cleaned_path(directory, base_offset, suffix))
