"""A log's leader epochs at a start: from their file, or from the log if the file does not match.

    check of the file                                         reason
    the manifest, which has a checksum of its first rows      its own format has none
    later rows: a batch begins at each start offset           they are newer than the manifest
    the epoch of the log's last batch                         the file is not flushed, so a power
                                                              loss may restore an older one

A rebuild reads only a few batches. Since epochs rise with the offsets, the first batch of each
epoch is found by binary search.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.protocol.records import HEADER_SIZE, LENGTH_END, base_offset_of, leader_epoch_of
from barnabas.storage.disk import log_lack_of_space
from barnabas.storage.files.checkpoints import (
    LEADER_EPOCH_NAME,
    CorruptCheckpoint,
    Manifest,
    encode_epochs,
)
from barnabas.storage.files.leader_epochs import LeaderEpochs
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.opening.partition_files import PartitionFiles
from barnabas.storage.segments.segment import Segment

logger = logging.getLogger(__name__)


def load_epochs(files: PartitionFiles, end_offset: int, *, all_flushed: bool) -> LeaderEpochs:
    """The leader epochs from their file, or rebuilt if the file does not match the log.

    Takes:  end_offset, the log's end; all_flushed, whether the file cannot be older than the log.
    """
    try:
        epochs = LeaderEpochs.load(files.disk, files.directory)
        noted_count = _noted_count(epochs, files.manifest)
        epochs.truncate_from_end(end_offset)
        for _, start_offset in epochs.entries[noted_count:]:
            batch = _batch_at(files.segments, start_offset)
            if batch is not None and batch.base_offset() != start_offset:
                raise CorruptCheckpoint(f"no batch begins at offset {start_offset}")
        last = None if all_flushed else _batch_at(files.segments, end_offset - 1)
        if last is not None and last.leader_epoch() > epochs.latest:
            raise CorruptCheckpoint(f"the log has batches of the epoch {last.leader_epoch()}")
        return epochs
    except CorruptLog as error:
        logger.error(
            "%s: the leader epochs are taken from the file, since the log cannot be read: %s",
            files.directory,
            error,
        )
        return epochs
    except (FileNotFoundError, CorruptCheckpoint) as error:
        logger.warning(
            "the leader epochs of %s cannot be used (%s): they are rebuilt from the log",
            files.directory,
            error,
        )
    epochs = LeaderEpochs(files.disk, files.directory, [])
    for epoch, start_offset in _epochs_of_batches(files.segments, end_offset):
        if epoch > epochs.latest:
            epochs.begin(epoch, start_offset)
    try:
        # written even if there are no epochs, since otherwise a damaged file would remain
        epochs.write()
    except OSError as error:
        log_lack_of_space(f"the leader epochs of {files.directory}", error)
    return epochs


class _BatchPlace(NamedTuple):
    """The place of a batch. Two fields of the batch's header are read on demand."""

    segment: Segment
    position: int

    def base_offset(self) -> int:
        return base_offset_of(self.segment.batches.file.pread(LENGTH_END, self.position))

    def leader_epoch(self) -> int:
        return leader_epoch_of(self.segment.batches.file.pread(HEADER_SIZE, self.position))


def _noted_count(epochs: LeaderEpochs, manifest: Manifest | None) -> int:
    """The number of rows of the file that match the manifest. If the manifest does not list the
    file, all rows count.

    Raises: CorruptCheckpoint if not even the first rows match.
    """
    entries = epochs.entries
    if manifest is None or LEADER_EPOCH_NAME not in manifest.files:
        return len(entries)
    for count in range(len(entries), -1, -1):
        if manifest.knows(LEADER_EPOCH_NAME, encode_epochs(entries[:count])):
            return count
    raise CorruptCheckpoint("they differ from the manifest")


def _epochs_of_batches(segments: list[Segment], end_offset: int) -> Iterator[tuple[int, int]]:
    """Yield each epoch that has a batch in the log, with the offset of its first batch."""
    batch = _batch_at(segments, segments[0].base_offset)
    while batch is not None:
        epoch, start_offset = batch.leader_epoch(), batch.base_offset()
        yield max(epoch, 0), start_offset
        low, high = start_offset + 1, end_offset
        while low < high:
            middle = (low + high) // 2
            at = _batch_at(segments, middle)
            if at is not None and at.leader_epoch() <= epoch:
                low = middle + 1
            else:
                high = middle
        batch = _batch_at(segments, low)


def _batch_at(segments: list[Segment], offset: int) -> _BatchPlace | None:
    """The first batch whose last offset is not below `offset`; None if there is none.

    Raises: CorruptLog.
    """
    at = max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)
    for segment in segments[at:]:
        place = segment.find(offset) if segment.batches.size else None
        if place is not None:
            return _BatchPlace(segment, place.position)
    return None
