"""The snapshot files of a log's producers, and the replay, which computes the same state from the
log.

A snapshot `<offset>.snapshot` is the producers' state before the batch at that offset; its layout
is the table in `producer_state`. The snapshots at the base offsets of segments are kept, so that
the state at a segment's start needs no replay. The two latest snapshots are kept as well, since one
of them may be damaged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import pairwise

from barnabas.protocol.records import CONTROL, BatchHeader, decode_marker, has_right_crc
from barnabas.storage.disk import Disk
from barnabas.storage.files.segment_files import SNAPSHOT_SUFFIX, offset_name
from barnabas.storage.files.txn_index import AbortedEntry
from barnabas.storage.producers.producer_state import (
    CompletedTxn,
    CorruptSnapshot,
    ProducerStateManager,
)
from barnabas.storage.segments.batch_file import in_slices
from barnabas.storage.segments.segment import Segment

KEPT_SNAPSHOTS = 2

logger = logging.getLogger(__name__)


class ProducerSnapshots:
    """The snapshots of one log.

    offsets: the offsets of existing snapshots, rising. sound_offset: the highest offset of a
    snapshot that was written or read since the start; -1 if there is none. The files of other
    snapshots may be damaged.
    """

    __slots__ = ("_directory", "_disk", "offsets", "sound_offset")

    def __init__(self, disk: Disk, directory: str, offsets: list[int]) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = offsets
        self.sound_offset = -1

    def path(self, offset: int) -> str:
        """The path of the snapshot at an offset."""
        return f"{self._directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}"

    def write(self, state: ProducerStateManager, base_offsets: Collection[int]) -> None:
        """Write the state, at its end offset, and remove snapshots that are no longer needed.

        Takes:  base_offsets, the base offsets of the log's segments.
        """
        offset = state.end_offset
        self._disk.write_atomic(self.path(offset), state.encode_snapshot(), sync=False)
        self.sound_offset = offset
        if not self.offsets or self.offsets[-1] != offset:
            self.offsets.append(offset)
        needed = {*base_offsets, *self.offsets[-KEPT_SNAPSHOTS:]}
        self._remove([old for old in self.offsets if old not in needed])

    def read(self, offset: int, now_ms: int) -> ProducerStateManager | None:
        """Read the state before `offset`. Gives: None if the snapshot is missing or damaged.

        A damaged snapshot is removed.
        """
        path = self.path(offset)
        try:
            state = ProducerStateManager.decode_snapshot(self._disk.read(path), offset, now_ms)
        except FileNotFoundError:
            return None
        except CorruptSnapshot as error:
            logger.warning(
                "%s cannot be used (%s): an older snapshot, or the log, is read instead",
                path,
                error,
            )
            self._remove([offset])
            return None
        self.sound_offset = max(self.sound_offset, offset)
        return state

    def latest(self, offset: int, first_offset: int, now_ms: int) -> ProducerStateManager:
        """The state in the latest valid snapshot at or below `offset`. If there is none, an empty
        state.

        Takes:  first_offset, the base offset of the log's first segment, at which a replay without
                a snapshot begins.
        """
        for at in sorted(self.offsets, reverse=True):
            state = self.read(at, now_ms) if at <= offset else None
            if state is not None:
                return state
        return ProducerStateManager(first_offset)

    def state_at_segment(
        self, segments: Sequence[Segment], number: int, now_ms: int
    ) -> ProducerStateManager:
        """The producers' state before the first batch of a segment, while a log is being opened.

        Raises: CorruptLog.
        """
        base_offset = segments[number].base_offset
        state = self.latest(base_offset, segments[0].base_offset, now_ms)
        for segment, following in pairwise(segments[: number + 1]):
            if following.base_offset > state.end_offset:
                replay_segment(state, segment, state.end_offset, base_offset, now_ms)
        state.end_offset = base_offset
        return state

    def drop_below(self, offset: int) -> None:
        """Remove the snapshots below `offset`. They may have open transactions whose markers
        compaction removes.
        """
        self._remove([below for below in self.offsets if below < offset])

    def drop_above(self, offset: int) -> None:
        """Remove the snapshots above `offset`. With them, a lost batch that the client sends again
        would seem to be a duplicate.
        """
        self._remove([above for above in self.offsets if above > offset])

    def take_deleted(self, log_start_offset: int) -> list[str]:
        """Remove the snapshots below the log's first segment from `offsets`, except the latest
        ones.

        Gives:  the paths of the removed snapshots.
        """
        older, latest = self.offsets[:-KEPT_SNAPSHOTS], self.offsets[-KEPT_SNAPSHOTS:]
        self.offsets = [offset for offset in older if offset >= log_start_offset] + latest
        return [self.path(offset) for offset in older if offset < log_start_offset]

    def _remove(self, offsets: list[int]) -> None:
        """Remove the snapshots at these offsets."""
        for offset in offsets:
            self._disk.unlink(self.path(offset))
        gone = set(offsets)
        self.offsets = [offset for offset in self.offsets if offset not in gone]
        if self.sound_offset in gone:
            self.sound_offset = -1


def aborted_entry(completed: CompletedTxn) -> AbortedEntry:
    """The entry of the aborted index for an aborted transaction."""
    return AbortedEntry(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        completed.last_stable_offset,
    )


def replay_segment(
    state: ProducerStateManager, segment: Segment, from_offset: int, to_offset: int, now_ms: int
) -> list[CompletedTxn]:
    """Replay the batches of a segment from `from_offset` up to `to_offset` into the state.

    Gives:  the transactions that ended in this range.
    Raises: CorruptLog.
    """
    completed: list[CompletedTxn] = []
    for _ in replaying(state, segment, from_offset, to_offset, now_ms, completed):
        pass
    return completed


def replaying(
    state: ProducerStateManager,
    segment: Segment,
    from_offset: int,
    to_offset: int,
    now_ms: int,
    completed: list[CompletedTxn],
) -> Iterator[None]:
    """Do the same as `replay_segment`, one slice in each step.

    Takes:  completed, a list to which the ended transactions are added.
    Raises: CorruptLog.
    """
    place = segment.find(from_offset) if segment.batches.size else None
    if place is None:
        return
    for position, header in in_slices(segment.batches, place.position, segment.base_offset):
        if header is None:
            yield
            if segment.indexes.is_forgotten:
                return
            continue
        if header.base_offset >= to_offset:
            return
        if header.producer_id >= 0:
            ended = replay_batch(
                state, header, partial(_read_marker, segment, position, header), now_ms
            )
            if ended is not None:
                completed.append(ended)
        state.end_offset = header.next_offset


def _read_marker(segment: Segment, position: int, header: BatchHeader) -> bytes:
    """Read a marker. Raises: CorruptLog if its checksum is wrong: an abort could seem a commit."""
    batch = segment.batches.file.pread(header.size_bytes, position)
    if not has_right_crc(batch, header):
        raise segment.batches.corrupt(position, "the CRC of a transaction's marker is wrong")
    return batch


def replay_batch(
    state: ProducerStateManager,
    header: BatchHeader,
    read_batch: Callable[[], bytes | memoryview],
    now_ms: int,
) -> CompletedTxn | None:
    """Replay one batch of a producer into the state.

    Takes:  read_batch, a function that returns the bytes of the batch, and is only called for a
    marker.
    Gives:  the transaction that the batch ended, if it is a marker and a transaction was open.
    """
    if header.attributes & CONTROL:
        if not header.record_count:
            # Apache Kafka's cleaner has emptied the marker, after it had removed the records of its
            # transaction.
            return None
        marker = decode_marker(read_batch())
        return state.on_marker(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            marker.commit,
            header.base_offset,
            header.max_timestamp,
            now_ms,
        )
    state.on_batch(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.is_transactional,
        now_ms,
    )
    return None
