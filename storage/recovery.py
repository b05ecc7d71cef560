"""Loading a log from its directory, after a clean stop or a kill.

What was last known to be right is in the manifest: sizes, indexes, and a snapshot of the producers
at its log_end_offset. Loading begins there, if the files still fit it, and takes in what the log
holds beyond, batch by batch with its checksum; after a clean stop that is nothing. Where they do
not fit, or there is no manifest (Apache Kafka wrote the directory), loading begins at the start of
the segment that holds the recovery point: its indexes are built anew, and the producers come from
the latest good snapshot and the batches after it.

What is no whole batch with a right checksum, above the recovery point and with nothing good behind
it, is a torn write: it is cut off, and that is logged. Where something good is behind it, a power
failure may have kept later sectors or segments and lost this one (there are zeros, or the file
ends): then the log ends there, and what follows, none of which was durable, is set aside in files
named as the segment with `.log.set-aside` for `.log`. Anything else is damage: CorruptLog names the
file, the position, and what to do.

Before anything is cut, the flush journals are asked: what they hold was durable, and is written to
the log again.
"""

from __future__ import annotations

import logging
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    base_offset_of,
    batch_size_of,
    has_right_crc,
    leader_epoch_of,
    read_header,
)
from barnabas.storage.checkpoints import (
    LEADER_EPOCH_NAME,
    MANIFEST_NAME,
    NO_TOPIC_ID,
    PARTITION_METADATA_NAME,
    CorruptCheckpoint,
    Manifest,
    decode_partition_metadata,
    encode_epochs,
    encode_partition_metadata,
)
from barnabas.storage.disk import Disk
from barnabas.storage.flush_journal import Redo
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log import UNREAD_BATCH_BYTES, Log, LogContents
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_directory import LogDirectory, TopicIdPartition
from barnabas.storage.producer_snapshots import ProducerSnapshots, aborted_entry, replay_batch
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    HIGHEST_RELATIVE_OFFSET,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    CorruptLog,
    IndexCache,
    Segment,
    offset_name,
)
from barnabas.storage.segment_list import SegmentList
from barnabas.storage.segment_swap import complete_swaps

_READ_BYTES = 1 << 20
_SEARCH_BYTES = 64 << 20  # how far behind a bad batch a good one is looked for
_SECTOR_BYTES = 512
_END_OF_TIME = 1 << 63
SET_ASIDE_SUFFIX = ".log.set-aside"
_LEFT_OVER = (DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")

logger = logging.getLogger(__name__)


class Files(NamedTuple):
    """What a partition's directory holds, by kind."""

    bases: list[int]
    snapshots: list[int]
    names: set[str]


def load_log(
    log_dir: LogDirectory,
    topic: str,
    partition: int,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start_offset: int | None,
    clean: bool = False,
    intact: bool = False,
    redo: Redo | None = None,
    knows_recovery_point: bool = False,
    now_ms: int,
    on_read: Callable[[int], None] | None = None,
) -> Log:
    """Open the log in `directory`.

    Takes:  recovery_point and log_start_offset as the checkpoints of the log directory tell (0 and
            None where they do not); the manifest, which has a checksum, goes before them where it
            is up to date. clean: whether the last stop was. intact: whether the machine has not
            been down since, so that all that was ever written is there, and only what the last
            checkpoint does not know is read. redo: what the flush journals hold, where the log's
            own files may lack it. knows_recovery_point: whether the recovery point is ours, so that
            nothing above it was cleaned, which leaves gaps. on_read: told of the bytes of the log
            that were read, piece by piece.
    Raises: CorruptLog, naming the file and what to do. OSError.
    """
    disk, cache = log_dir.disk, log_dir.cache
    directory = log_dir.partition_path(topic, partition)
    files = _tidy(disk, directory)
    manifest = _load_manifest(disk, directory)
    topic_id = _load_topic_id(disk, directory, manifest)
    if (
        manifest is not None
        and not clean
        and not intact
        and _lost_names(manifest, directory, files.bases, recovery_point)
    ):
        disk.unlink(
            f"{directory}/{MANIFEST_NAME}"
        )  # else the next start, after a kill, misses what it names
        manifest = None
    segments = _segments(
        disk, directory, files, manifest, config, now_ms, cache, log_start_offset or 0
    )
    log_start = max(log_start_offset or 0, segments[0].base_offset)
    if manifest is not None and (
        not clean or _is_exact(manifest, segments)
    ):  # else Apache Kafka was here since, and knows better
        noted = (
            log_start if not clean and not intact else 0
        )  # an older manifest may be back, and the checkpoint was flushed
        log_start = max(manifest.log_start_offset, noted, segments[0].base_offset)
        if clean:
            recovery_point = manifest.log_end_offset
    snapshots = ProducerSnapshots(disk, directory, files.snapshots)
    loader = _Loader(
        disk,
        directory,
        segments,
        snapshots,
        manifest,
        recovery_point,
        config.is_compacted,
        now_ms,
        on_read,
        intact=intact,
    )
    loader.knows_recovery_point = knows_recovery_point
    if redo is not None:
        loader.journaled = partial(redo.tail, topic, partition, topic_id)
    sizes = {segment.base_offset: segment.size for segment in segments}
    state = loader.load()
    if clean and manifest is not None:
        _say_what_shrank(directory, manifest, sizes)
    end_offset = state.end_offset
    if manifest is not None and end_offset < manifest.log_end_offset:
        disk.unlink(
            f"{directory}/{MANIFEST_NAME}"
        )  # else it may seem to fit when the log has grown again, to something else
    snapshots.drop_above(end_offset)
    epochs = _load_epochs(disk, directory, segments, end_offset, manifest, clean=clean)
    contents = LogContents(
        segments=SegmentList(segments, end_offset),
        log_start_offset=min(log_start, end_offset),
        recovery_point=min(recovery_point, end_offset),
        producer_state=state,
        epochs=epochs,
        snapshots=snapshots,
        names_are_durable=clean,
    )
    log = Log(log_dir, TopicIdPartition(topic, partition, topic_id), config, contents)
    if not clean and topic_id != NO_TOPIC_ID:
        log.durability.add_names(
            f"{directory}/{PARTITION_METADATA_NAME}"
        )  # by which a flush journal's entries are told to be of this log
    if manifest is not None and log.log_start_offset > manifest.log_start_offset:
        # A power loss took the later manifest, and the next start after a kill believes this one.
        log_dir.changed_starts.add((topic, partition))
    as_closed = (
        clean
        and manifest is not None
        and manifest.log_end_offset == end_offset
        and _is_exact(manifest, segments)
    )
    log.set_opened(loader.read_bytes, now_ms, as_closed=as_closed)
    return log


# --- what the directory holds -------------------------------------------------------------------


def _tidy(disk: Disk, directory: str) -> Files:
    """Sort the names; remove what an interrupted change left over, and indexes without a log."""
    complete_swaps(disk, directory)
    bases: list[int] = []
    snapshots: list[int] = []
    names = set(disk.list(directory))
    for name in sorted(names):
        stem, suffix = name[:20], name[20:]
        if name.endswith(_LEFT_OVER):
            disk.unlink(f"{directory}/{name}")
            names.discard(name)
        elif stem.isdigit() and len(stem) == 20:
            if suffix == LOG_SUFFIX:
                bases.append(int(stem))
            elif suffix == SNAPSHOT_SUFFIX:
                snapshots.append(int(stem))
    for name in sorted(names):
        if name[20:] in INDEX_SUFFIXES and name[:20] + LOG_SUFFIX not in names:
            disk.unlink(f"{directory}/{name}")
    return Files(bases, snapshots, names)


def _load_manifest(disk: Disk, directory: str) -> Manifest | None:
    path = f"{directory}/{MANIFEST_NAME}"
    try:
        return Manifest.decode(disk.read(path))
    except FileNotFoundError:
        return None
    except CorruptCheckpoint as error:
        logger.warning("%s cannot be used (%s): the log is read instead", path, error)
        return None


def _lost_names(manifest: Manifest, directory: str, bases: list[int], recovery_point: int) -> bool:
    """Whether a power loss kept the manifest and lost segments that it names, of which nothing was
    durable: they are not to be missed.
    """
    lost = [
        base
        for base, note in manifest.segments.items()
        if note.size and base not in bases and base >= recovery_point
    ]
    if lost:
        logger.error(
            "%s: the segments at %s went with the power; nothing in them was durable",
            directory,
            lost,
        )
    return bool(lost)


def _load_topic_id(disk: Disk, directory: str, manifest: Manifest | None) -> uuid.UUID:
    path = f"{directory}/{PARTITION_METADATA_NAME}"
    try:
        return decode_partition_metadata(disk.read(path))
    except (FileNotFoundError, CorruptCheckpoint) as error:
        if manifest is None or manifest.topic_id == NO_TOPIC_ID:
            logger.warning(
                "%s cannot be read (%s): the topic id has to come from elsewhere", path, error
            )
            return NO_TOPIC_ID
        logger.warning(
            "%s cannot be read (%s): it is written anew with the id that the manifest has",
            path,
            error,
        )
        disk.write_atomic(path, encode_partition_metadata(manifest.topic_id))
        return manifest.topic_id


def _segments(
    disk: Disk,
    directory: str,
    files: Files,
    manifest: Manifest | None,
    config: LogConfig,
    now_ms: int,
    cache: IndexCache,
    log_start_offset: int,
) -> list[Segment]:
    """The segments in order; a new one where there is none."""
    bases = files.bases
    interval = config.index_interval_bytes
    if manifest is not None:
        for note in manifest.segments.values():
            if (
                note.size
                and note.base_offset not in bases
                and (not bases or note.base_offset > bases[0])
            ):
                path = f"{directory}/{offset_name(note.base_offset)}{LOG_SUFFIX}"
                raise CorruptLog(
                    path,
                    0,
                    f"the file is missing; it held {note.size} bytes",
                    "Restore it from a copy; or, to give up its records, remove "
                    f"{directory}/{MANIFEST_NAME}",
                )
    if not bases:
        base = manifest.log_end_offset if manifest is not None else log_start_offset
        return [
            Segment.create(
                disk, directory, base, now_ms=now_ms, cache=cache, index_interval_bytes=interval
            )
        ]
    segments = []
    for base in bases:
        segment = Segment(
            disk,
            directory,
            base,
            size=disk.size(f"{directory}/{offset_name(base)}{LOG_SUFFIX}"),
            created_ms=now_ms,
            cache=cache,
            index_interval_bytes=interval,
        )
        known = manifest.segments.get(base) if manifest is not None else None
        if known is not None:
            segment.manifest = manifest
            if known.max_timestamp >= 0 and known.size == segment.size:
                segment.max_timestamp, segment.max_timestamp_offset = (
                    known.max_timestamp,
                    known.max_timestamp_offset,
                )
                segment.times_known = True
        segments.append(segment)
    return segments


def _say_what_shrank(directory: str, manifest: Manifest, sizes: dict[int, int]) -> None:
    """Of segments before the last, which may be short and end at a whole batch: nothing else would
    tell.
    """
    last = max(manifest.segments, default=-1)
    for base_offset, note in manifest.segments.items():
        size = sizes.get(base_offset, 0)
        if size < note.size and base_offset != last:
            path = f"{directory}/{offset_name(base_offset)}{LOG_SUFFIX}"
            logger.error(
                "%s has %d bytes, and had %d at the last stop: restore it from a copy, what is "
                "missing is not read",
                path,
                size,
                note.size,
            )


def _is_exact(manifest: Manifest, segments: list[Segment]) -> bool:
    """Whether the segments are as long as the manifest has them, so nothing was written since."""
    return {segment.base_offset: segment.size for segment in segments} == {
        note.base_offset: note.size for note in manifest.segments.values()
    }


def _load_epochs(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    end_offset: int,
    manifest: Manifest | None,
    *,
    clean: bool,
) -> LeaderEpochs:
    """The leader epochs as their file has them, or as the batches have them where the file does not
    fit the log.

    The file is not flushed, so a power loss may bring an older one back: then it lacks the epoch of
    the last batch.
    """
    try:
        epochs = LeaderEpochs.load(disk, directory)
        noted = _noted_count(epochs, manifest)
        epochs.truncate_from_end(end_offset)
        for _, start_offset in epochs.entries[noted:]:  # they began after the manifest was written
            place = _batch_at(segments, start_offset)
            if place is not None and _base_offset_at(*place) != start_offset:
                raise CorruptCheckpoint(f"no batch begins at offset {start_offset}")
        last = None if clean else _batch_at(segments, end_offset - 1)
        if last is not None and _epoch_at(*last) > epochs.latest:
            raise CorruptCheckpoint(f"the log has batches of the epoch {_epoch_at(*last)}")
        return epochs
    except CorruptLog as error:
        logger.error(
            "%s: the leader epochs are as the file has them, since the log cannot be read: %s",
            directory,
            error,
        )
        return epochs
    except (FileNotFoundError, CorruptCheckpoint) as error:
        logger.warning(
            "the leader epochs of %s cannot be used (%s): they are built anew from the log",
            directory,
            error,
        )
    epochs = LeaderEpochs(disk, directory, [])
    for epoch, start_offset in _epochs_of_batches(segments, end_offset):
        epochs.assign(epoch, start_offset)
    return epochs


def _noted_count(epochs: LeaderEpochs, manifest: Manifest | None) -> int:
    """How many of the entries are as the manifest noted them, which came before the others. Raises
    CorruptCheckpoint.
    """
    entries = epochs.entries
    if manifest is None or LEADER_EPOCH_NAME not in manifest.files:
        return len(entries)
    for count in range(len(entries), -1, -1):
        if manifest.knows(LEADER_EPOCH_NAME, encode_epochs(entries[:count])):
            return count
    raise CorruptCheckpoint("they are not as they were noted")


def _epochs_of_batches(segments: list[Segment], end_offset: int) -> Iterator[tuple[int, int]]:
    """(epoch, offset of its first batch). Epochs rise with the offsets, so a few batches of a long
    log tell.
    """
    place = _batch_at(segments, segments[0].base_offset)
    while place is not None:
        epoch, start_offset = _epoch_at(*place), _base_offset_at(*place)
        yield max(epoch, 0), start_offset
        low, high = start_offset + 1, end_offset
        while low < high:
            middle = (low + high) // 2
            at = _batch_at(segments, middle)
            if at is not None and _epoch_at(*at) <= epoch:
                low = middle + 1
            else:
                high = middle
        place = _batch_at(segments, low) if low < end_offset else None
        if place is not None and _epoch_at(*place) <= epoch:
            return


def _batch_at(segments: list[Segment], offset: int) -> tuple[Segment, int] | None:
    """Segment and position of the first batch whose last offset is not below that; None where there
    is none. Raises CorruptLog.
    """
    if offset < 0:
        return None
    at = max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)
    for segment in segments[at:]:
        place = segment.find(offset) if segment.size else None
        if place is not None:
            return segment, place.position
    return None


def _base_offset_at(segment: Segment, position: int) -> int:
    return base_offset_of(segment.file.pread(LENGTH_END, position))


def _epoch_at(segment: Segment, position: int) -> int:
    return leader_epoch_of(segment.file.pread(HEADER_SIZE, position))


# --- what the log holds -------------------------------------------------------------------------


class _Loader:
    """One pass over the part of a log that is not known to be right."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: list[Segment],
        snapshots: ProducerSnapshots,
        manifest: Manifest | None,
        recovery_point: int,
        is_compacted: bool,
        now_ms: int,
        on_read: Callable[[int], None] | None,
        *,
        intact: bool,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.segments = segments
        self.snapshots = snapshots
        self.manifest = manifest
        self.recovery_point = recovery_point
        self.knows_recovery_point = False
        self.trusted_point = _END_OF_TIME if intact else recovery_point
        self.is_compacted = is_compacted
        self.now_ms = now_ms
        self.on_read = on_read
        self.read_bytes = 0
        self.journaled: Callable[[int, int], bytes] | None = (
            None  # (base offset, position) -> what the file had from there on
        )

    def load(self) -> ProducerStateManager:
        """Check and index what has to be; gives the producers' state at the end of the log. The
        last segment is open for appends.
        """
        begun = self._begin_at_manifest()
        if begun is None:
            self._forget_grown()
            at = self._first_suspect()
            state = self._state_at(at)
            position = 0
        else:
            at, position, state = begun
        end_before: dict[int, int] = {}
        while at < len(self.segments):
            segment = self.segments[at]
            at += 1
            end_before[segment.base_offset] = state.end_offset
            if position == 0 and segment.base_offset < state.end_offset:
                raise segment.corrupt(
                    0, f"the segment before it reaches to offset {state.end_offset}"
                )
            if position == 0 and segment.base_offset > state.end_offset:
                self.snapshots.drop_above(
                    state.end_offset
                )  # what is missing before it may be in them
                if at > 1 and self._is_torn_before(at - 1, state.end_offset):
                    self._end_with(self.segments[at - 2], state.end_offset)
                    break
            self._check(segment, position, state)
            position = 0
        while (
            len(self.segments) > 1 and self.segments[-1].size == 0
        ):  # all that was in it was cut, and perhaps what is before it is gone
            end_offset = end_before.get(
                self.segments[-1].base_offset, self.segments[-1].base_offset
            )
            if end_offset == self.segments[-1].base_offset or end_offset < self.recovery_point:
                break
            self._end_with(self.segments[-2], end_offset)
            state.end_offset = end_offset
        self._say_what_is_missing(state.end_offset)
        return state

    def _begin_at_manifest(self) -> tuple[int, int, ProducerStateManager] | None:
        """Segment number, position, and state where the manifest's knowledge ends; None where the
        files do not fit it.
        """
        manifest = self.manifest
        if manifest is None or self.trusted_point < manifest.log_end_offset:
            return None
        by_base = {segment.base_offset: number for number, segment in enumerate(self.segments)}
        last = max(manifest.segments, default=-1)
        if last not in by_base or min(by_base) < min(manifest.segments):
            return None
        for base, note in manifest.segments.items():
            number = by_base.get(base)
            if number is not None:  # else retention let it go
                size = self.segments[number].size
                if size < note.size or (size != note.size and base != last):
                    return None
        number = by_base[last]
        segment = self.segments[number]
        note = manifest.segments[last]
        state = self.snapshots.read(manifest.log_end_offset, self.now_ms)
        held = segment.size
        if state is None or not segment.reopen(note):
            segment.size = held
            return None
        segment.size = held
        if held > note.size:
            logger.info(
                "%s: %d bytes were written after the last checkpoint",
                segment.path(LOG_SUFFIX),
                held - note.size,
            )
        return number, note.size, state

    def _forget_grown(self) -> None:
        """Of a segment that was written to since, the manifest does not tell what its indexes hold:
        as it has them, they may lack the end.
        """
        for segment in self.segments:
            note = (
                self.manifest.segments.get(segment.base_offset)
                if self.manifest is not None
                else None
            )
            if note is not None and note.size != segment.size:
                segment.manifest = None

    def _first_suspect(self) -> int:
        """The number of the segment up to whose start all is trusted, or of an earlier one that
        lost bytes since the manifest.
        """
        suspect = 0
        for number, segment in enumerate(self.segments):
            note = (
                self.manifest.segments.get(segment.base_offset)
                if self.manifest is not None
                else None
            )
            if note is not None and segment.size < note.size:
                return number
            if segment.base_offset <= self.trusted_point:
                suspect = number
        return suspect

    def _state_at(self, number: int) -> ProducerStateManager:
        return self.snapshots.state_at_segment(self.segments, number, self.now_ms)

    def _check(self, segment: Segment, position: int, state: ProducerStateManager) -> None:
        """Check each batch from `position` on, and note it in the segment's indexes and the
        producers' state.

        A torn or missing end is written again from the flush journals as far as they have it; what
        is torn beyond that is cut.
        """
        if position == 0:
            segment.start_empty()
            segment.manifest = None
            segment.written_entries = segment.written_times = -1
            self.disk.unlink(segment.path(INDEX_SUFFIXES[2]))
            state.end_offset = max(state.end_offset, segment.base_offset)
        position, why = self._check_batches(segment, position, state)
        while self._write_again(segment, position, state.end_offset):
            begun_at = position
            position, why = self._check_batches(segment, position, state)
            if position == begun_at:
                break
        if position < segment.size:
            self._cut(segment, position, why, state.end_offset)
        self._remove_left_over(segment, state.end_offset)
        if segment is not self.segments[-1]:
            segment.close_for_appends()
        else:
            segment.write_indexes()

    def _remove_left_over(self, segment: Segment, end_offset: int) -> None:
        """Empty files that lie within the offsets of this segment are of a new one that came not to
        be, for want of room.
        """
        later = self.segments[self.segments.index(segment) + 1 :]
        if any(following.size for following in later):
            return
        for following in later:
            if following.base_offset < end_offset:
                logger.info(
                    "%s is empty, of a segment that found no room: it is removed",
                    following.path(LOG_SUFFIX),
                )
                following.remove_files()
                self.segments.remove(following)

    def _check_batches(
        self, segment: Segment, position: int, state: ProducerStateManager
    ) -> tuple[int, str]:
        """Take in the good batches from `position` on; gives where they end, and why they do if it
        is not the end of the file.
        """
        end = segment.size
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
            why = _what_is_wrong(header, state.end_offset, segment.base_offset, end - position)
            if why:
                if _is_whole(header, segment, position) and not _lacks_start(
                    segment, position, state.end_offset
                ):
                    raise segment.corrupt(
                        position, why
                    )  # it was never torn: an offset was changed, which no CRC covers
                break
            if at + size > len(chunk):
                chunk, chunk_at, at = (
                    self._read(segment, max(size, _READ_BYTES), position),
                    position,
                    0,
                )
            whole = memoryview(chunk)[at : at + size]
            if not has_right_crc(whole, header):
                why = "the CRC of a batch is wrong"
                break
            if header.base_offset != state.end_offset and not self._may_have_gaps(segment):
                raise segment.corrupt(
                    position, f"the offset {header.base_offset} follows {state.end_offset - 1}"
                )
            self.read_bytes += size + UNREAD_BATCH_BYTES
            try:
                self._take(segment, position, header, whole, state)
            except KafkaError as error:
                why = f"a control batch cannot be read: {error}"
                break
            position += size
        return position, why

    def _write_again(self, segment: Segment, position: int, end_offset: int) -> bool:
        """Where a flush journal has the batches that the file lacks from `position` on, write them
        there; False where none has.

        What the file has beyond them stays, for it may be good: it was written later, and is not
        durable.
        """
        if self.journaled is None or end_offset < self.recovery_point:
            return False
        data = self.journaled(segment.base_offset, position)
        if len(data) < HEADER_SIZE:
            return False
        header = read_header(data, 0)
        if (
            _what_is_wrong(header, end_offset, segment.base_offset, len(data))
            or header.base_offset != end_offset
        ):
            return False
        beyond = segment.file.pread(segment.size, position + len(data))
        logger.warning(
            "%s: %d bytes from byte %d on, which a power failure took, are written again from the "
            "flush journal",
            segment.path(LOG_SUFFIX),
            len(data),
            position,
        )
        segment.truncate(position)
        segment.file.append(data + beyond)
        segment.size = segment.file.size
        segment.file.fsync()
        return True

    def _read(self, segment: Segment, size: int, position: int) -> bytes:
        data = segment.file.pread(size, position)
        if self.on_read is not None:
            self.on_read(len(data))
        return data

    def _may_have_gaps(self, segment: Segment) -> bool:
        """Compaction leaves gaps in the offsets, though never in the last segment; there one is a
        wrong offset, which no CRC covers.
        """
        return self.is_compacted or segment is not self.segments[-1]

    def _take(
        self,
        segment: Segment,
        position: int,
        header: BatchHeader,
        whole: memoryview,
        state: ProducerStateManager,
    ) -> None:
        if header.producer_id >= 0:
            ended = replay_batch(state, header, lambda: whole, self.now_ms)
            if ended is not None and ended.aborted:
                segment.append_aborted(aborted_entry(ended))
        segment.index_batch(
            position,
            header.size_bytes,
            header.last_offset,
            header.max_timestamp if header.record_count else -1,
        )
        state.end_offset = header.next_offset

    def _cut(self, segment: Segment, position: int, why: str, end_offset: int) -> None:
        """Cut a torn end. Raises CorruptLog where it is more than that."""
        if end_offset < self.recovery_point:
            raise segment.corrupt(
                position, f"{why}, although all below offset {self.recovery_point} was durable"
            )
        behind = _good_batch_behind(segment, position)
        if behind >= 0 and not _is_hole(segment, position, end_offset):
            raise segment.corrupt(position, f"{why}, but a good batch follows at byte {behind}")
        self.disk.unlink(f"{self.directory}/{MANIFEST_NAME}")
        self.snapshots.drop_above(end_offset)
        if behind >= 0:
            self._say_set_aside(self._set_tail_aside(segment, position), why, segment, position)
        self._set_later_aside(segment, position, why)
        logger.warning(
            "%s: %s at byte %d: the torn end of %d bytes is cut off; the log ends at offset %d",
            segment.path(LOG_SUFFIX),
            why,
            position,
            segment.size - position,
            end_offset,
        )
        segment.truncate(position)
        # else a power failure may bring it back, below what will be durable by then
        segment.file.fsync()
        self.disk.fsync_dir(self.directory)

    def _is_torn_before(self, number: int, end_offset: int) -> bool:
        """Whether the offsets missing before a segment were lost with the power: nothing at or
        above the recovery point was promised.

        Compaction leaves gaps between segments too, but below the recovery point, and Apache
        Kafka's anywhere before the active one.
        """
        if end_offset < self.recovery_point:
            return False
        return (
            not self.is_compacted
            or self.knows_recovery_point
            or all(segment.size == 0 for segment in self.segments[number:])
        )

    def _end_with(self, segment: Segment, end_offset: int) -> None:
        """Let the log end where a whole segment ends, because the one after it begins later."""
        following = self.segments[self.segments.index(segment) + 1]
        why = f"the segment after it begins at offset {following.base_offset}"
        self._set_later_aside(segment, segment.size, why)
        logger.warning(
            "%s: %s, and all between was lost: the log ends at offset %d",
            segment.path(LOG_SUFFIX),
            why,
            end_offset,
        )
        self.disk.fsync_dir(self.directory)
        self._check(segment, 0, self._state_at(self.segments.index(segment)))

    def _set_later_aside(self, segment: Segment, position: int, why: str) -> None:
        """What lies in later segments than the one with which the log ends is kept beside it."""
        for following in self.segments[self.segments.index(segment) + 1 :]:
            if following.size:
                self._say_set_aside(following.path(SET_ASIDE_SUFFIX), why, segment, position)
                self.disk.rename(following.path(LOG_SUFFIX), following.path(SET_ASIDE_SUFFIX))
            for suffix in SEGMENT_SUFFIXES:
                self.disk.unlink(following.path(suffix))
            self.segments.remove(following)

    def _set_tail_aside(self, segment: Segment, position: int) -> str:
        """Copy what is about to be cut and holds good batches; gives the copy's path."""
        path = f"{segment.path(SET_ASIDE_SUFFIX)}-{position}"
        self.disk.unlink(path)
        copy = self.disk.open(path, create=True)
        try:
            while chunk := segment.file.pread(_READ_BYTES, position):
                copy.append(chunk)
                position += len(chunk)
            copy.fsync()
        finally:
            copy.close()
        return path

    def _say_set_aside(self, path: str, why: str, segment: Segment, position: int) -> None:
        logger.error(
            "%s: %s at byte %d, as a power failure leaves it; what was written after it, and was "
            "not durable, is set aside in %s",
            segment.path(LOG_SUFFIX),
            why,
            position,
            path,
        )

    def _say_what_is_missing(self, end_offset: int) -> None:
        known = max(
            self.recovery_point, self.manifest.log_end_offset if self.manifest is not None else 0
        )
        if end_offset < known:
            logger.error(
                "%s: the log ends at offset %d, but it once reached to %d: what was between is not "
                "in the files any more",
                self.directory,
                end_offset,
                known,
            )


def _what_is_wrong(header: BatchHeader, next_offset: int, base_offset: int, left: int) -> str:
    """Why these 61 bytes begin no batch that can come next; empty where they may."""
    if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LENGTH_END:
        return "no batch begins there"
    if header.size_bytes > left:
        return "a batch is cut off"
    last_offset = header.last_offset
    if (
        not next_offset
        <= header.base_offset
        <= last_offset
        <= base_offset + HIGHEST_RELATIVE_OFFSET
    ):
        return f"a batch of offset {header.base_offset} comes after offset {next_offset - 1}"
    return ""


def _is_whole(header: BatchHeader, segment: Segment, position: int) -> bool:
    """Whether a batch with a right checksum lies there, whatever its offset."""
    if header.magic != MAGIC or not HEADER_SIZE <= header.size_bytes <= segment.size - position:
        return False
    return has_right_crc(segment.file.pread(header.size_bytes, position), header)


def _is_hole(segment: Segment, position: int, next_offset: int) -> bool:
    """Whether a sector of the bad batch is missing (zeros), as where a power failure kept later
    sectors and not this one.

    No flush ended after such a batch was written, so nothing behind it was durable.
    """
    size = batch_size_of(segment.file.pread(LENGTH_END, position).ljust(LENGTH_END, b"\0"))
    end = min(position + max(size, HEADER_SIZE), segment.size)
    if _lacks_start(segment, position, next_offset):
        return True
    boundary = position - position % _SECTOR_BYTES + _SECTOR_BYTES
    while boundary < end:
        if not any(segment.file.pread(_SECTOR_BYTES, boundary)):
            return True
        boundary += _SECTOR_BYTES
    return False


def _lacks_start(segment: Segment, position: int, next_offset: int) -> bool:
    """Whether the sector in which the batch begins is missing from there on. That may be a few
    bytes of its offset, and no CRC tells.
    """
    first = segment.file.pread(_SECTOR_BYTES - position % _SECTOR_BYTES, position)
    return not any(first) and (len(first) > 16 or any(next_offset.to_bytes(8)[: len(first)]))


def _good_batch_behind(segment: Segment, position: int) -> int:
    """Where a whole batch with a right checksum begins after `position`; -1 if nowhere."""
    data = segment.file.pread(min(_SEARCH_BYTES, segment.size - position), position)
    view = memoryview(data)
    at = data.find(MAGIC, 1 + MAGIC_AT)
    while at >= 0:
        start = at - MAGIC_AT
        if start + HEADER_SIZE > len(data):
            break
        header = read_header(data, start)
        if not _what_is_wrong(
            header, segment.base_offset, segment.base_offset, len(data) - start
        ) and has_right_crc(view[start : start + header.size_bytes], header):
            return position + start
        at = data.find(MAGIC, at + 1)
    return -1
