"""Replaces old segments by cleaned ones in steps, so that a kill at any moment leaves a whole log.

The steps are in this order (a file system keeps the order of renames in a directory):

    1  `.cleaned` becomes `.swap`, group after group, the indexes of each before its `.log`
    2  snapshots of producers within the cleaned part are removed (they may have open transactions
       whose markers were removed)
    3  the manifest for the state after step 4 is written, and made durable with the directory
    4  group after group: the old files become `.deleted`, then `.swap` becomes the final name,
       again `.log` last. If there is no space for a name, the files keep the suffix `.swap`, and
       are read under that name until `try_rename_rest` or a start renames them

A start removes `.cleaned` files and completes each `<base>.log.swap`: the segments that it replaces
are removed, and the file gets its final name. After step 3 the manifest has the offset at which the
replaced segments end, which is necessary since an emptied segment has no offsets. Before step 3 the
replaced segments are those that begin within the offsets of the `.swap`, as in Apache Kafka, from
which the suffixes are taken. Groups are therefore replaced from the oldest on, and never a later
group first: an older value of a key is always removed before the tombstone that deleted it. The
cleaner's checkpoint is written only after step 4.

A kill never leaves a `.swap` that is empty or cut off. If there is one, it replaces no segment. It
and all later ones are discarded if the old segments exist; otherwise the log is taken offline.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.records import HEADER_SIZE, batches_in, has_right_crc, read_header
from barnabas.storage.cleaning.clean_job import CleanedSegment, cleaned_path, discard
from barnabas.storage.disk import Disk, NotWrittenError, is_out_of_resources, not_written
from barnabas.storage.files.checkpoints import (
    MANIFEST_NAME,
    CorruptCheckpoint,
    Manifest,
    SegmentNote,
)
from barnabas.storage.files.segment_files import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_SUFFIX,
    TXN_SUFFIX,
    CorruptLog,
    offset_name,
)
from barnabas.storage.files.time_index import TimeIndex
from barnabas.storage.log.log import Log
from barnabas.storage.segments.segment import Segment

_LOG_LAST = (*INDEX_SUFFIXES, LOG_SUFFIX)

logger = logging.getLogger(__name__)


def swap_in(log: Log, segments: Sequence[CleanedSegment], now_ms: int) -> bool:
    """Replace the old segments by the new ones.

    Takes:  segments, all segments of a job of this log, or the next few of them. Segments of the
            log may have been rolled or deleted since the job was made.
    Gives:  whether all new segments were used. Otherwise the rest of the job has to be discarded. A
            group that has lost some of its segments meanwhile is discarded, and so are all later
            groups. A group that was deleted as a whole is skipped.
    Raises: NotWrittenError if there is no disk space for steps 1 to 3, in which case no segment is
            used, and the files are removed. OSError, which is fatal.
    """
    present = {segment.base_offset: segment for segment in log.segments[:-1]}
    taken: list[CleanedSegment] = []
    complete = True
    for cleaned in segments:
        left = sum(base_offset in present for base_offset in cleaned.replaces)
        complete = complete and left in (0, len(cleaned.replaces))
        if complete and left:
            taken.append(cleaned)
        else:
            discard(log.disk, log.directory, cleaned.base_offset)
    if taken:
        try:
            _rename_all(log, taken)
            log.snapshots.drop_below(_end_of(log, taken[-1]))
            log.checkpoint()
            manifest = _manifest_after(log, taken)
        except OSError as error:
            if not isinstance(not_written(error), NotWrittenError):
                raise
            _undo(log, taken)
            raise not_written(error) from error
        for cleaned in taken:
            _replace(
                log,
                cleaned,
                [present[base_offset] for base_offset in cleaned.replaces],
                manifest,
                now_ms,
            )
    return complete


def discard_result(log: Log, segments: Sequence[CleanedSegment]) -> None:
    """Remove the files of a job whose log was deleted, or is no longer compacted."""
    if log.disk.is_dir(log.directory):
        for cleaned in segments:
            discard(log.disk, log.directory, cleaned.base_offset)


def _end_of(log: Log, cleaned: CleanedSegment) -> int:
    """The offset at which the replaced segments end."""
    return next(
        segment.base_offset
        for segment in log.segments
        if segment.base_offset > cleaned.replaces[-1]
    )


def _swap_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{offset_name(base_offset)}{suffix}{SWAP_SUFFIX}"


def _rename_all(log: Log, taken: Sequence[CleanedSegment]) -> None:
    """Step 1: give the new files their swap names, the log file of each segment last."""
    for cleaned in taken:
        for suffix in _LOG_LAST:
            log.disk.rename(
                cleaned_path(log.directory, cleaned.base_offset, suffix),
                _swap_path(log.directory, cleaned.base_offset, suffix),
            )


def _undo(log: Log, taken: Sequence[CleanedSegment]) -> None:
    """Undo step 1. A kill during this may only leave a state that step 1 itself may leave.

    For that, the last group is removed first, and each `.log.swap` before its indexes.
    """
    for cleaned in reversed(taken):
        for suffix in reversed(_LOG_LAST):
            log.disk.unlink(_swap_path(log.directory, cleaned.base_offset, suffix))
        discard(log.disk, log.directory, cleaned.base_offset)


def _manifest_after(log: Log, taken: Sequence[CleanedSegment]) -> Manifest:
    """Step 3: write the manifest that describes the log after the replacement."""
    path = f"{log.directory}/{MANIFEST_NAME}"
    manifest = Manifest.decode(log.disk.read(path))
    for cleaned in taken:
        _note(log.disk, log.directory, manifest, cleaned.base_offset, _end_of(log, cleaned))
    log.disk.write_atomic(path, manifest.encode())
    return manifest


def _replace(
    log: Log, cleaned: CleanedSegment, old: list[Segment], manifest: Manifest, now_ms: int
) -> None:
    """Step 4: replace the old segments of one group by the new one. Without disk space, the new
    files keep their swap names for now.
    """
    log.log_dir.discard_segments(old, now_ms + log.config.file_delete_delay_ms)
    new = Segment(
        log.disk,
        log.directory,
        cleaned.base_offset,
        size=cleaned.size,
        created_ms=old[0].created_ms,
        cache=log.log_dir.cache,
        index_interval_bytes=log.config.index_interval_bytes,
        manifest=manifest,
    )
    try:
        _rename_to_final(log.disk, log.directory, cleaned.base_offset)
    except OSError as error:
        if not is_out_of_resources(error):
            raise
        new.batches.with_swap_name = tuple(
            suffix
            for suffix in _LOG_LAST
            if log.disk.exists(_swap_path(log.directory, cleaned.base_offset, suffix))
        )
        logger.warning(
            "%s serves readers under this name until there is space to rename it: %s",
            new.batches.path(LOG_SUFFIX),
            error,
        )
    indexes = new.indexes
    indexes.max_timestamp, indexes.max_timestamp_offset = (
        cleaned.max_timestamp,
        cleaned.max_timestamp_offset,
    )
    indexes.has_times = indexes.txn_trusted = indexes.index_trusted = indexes.rebuilt = (
        True  # trusted, since this process has written the index files
    )
    log.turnover.replace(old, new)


def has_swap_names(log: Log) -> bool:
    """Whether some files of the log still have their swap names, for lack of disk space."""
    return any(segment.batches.with_swap_name for segment in log.segments)


def try_rename_rest(log: Log) -> bool:
    """Rename the files that kept their swap names for lack of space. Gives: whether all files have
    their final names now.
    """
    for segment in log.segments:
        batches = segment.batches
        while batches.with_swap_name:
            suffix, *rest = batches.with_swap_name
            swap = batches.path(suffix)
            try:
                log.disk.rename(swap, swap.removesuffix(SWAP_SUFFIX))
            except OSError as error:
                if not is_out_of_resources(error):
                    raise
                return False
            batches.with_swap_name = tuple(rest)
            if not rest:
                _remove_if_empty(log.disk, batches.path(TXN_SUFFIX))
    return True


def _rename_to_final(disk: Disk, directory: str, base_offset: int) -> None:
    """Rename the files that do not have their final names yet."""
    for suffix in _LOG_LAST:
        swap = _swap_path(directory, base_offset, suffix)
        if disk.exists(swap):
            disk.rename(swap, swap.removesuffix(SWAP_SUFFIX))
    _remove_if_empty(disk, f"{directory}/{offset_name(base_offset)}{TXN_SUFFIX}")


def _remove_if_empty(disk: Disk, aborted: str) -> None:
    """Remove an aborted index that is empty, since the file exists only if a transaction was
    aborted.
    """
    if disk.exists(aborted) and not disk.size(aborted):
        disk.unlink(aborted)


def _note(
    disk: Disk, directory: str, manifest: Manifest, base_offset: int, end_offset: int
) -> None:
    """Change the manifest so that it describes the log after a swap file has replaced all segments
    up to `end_offset`.
    """
    for replaced in [base for base in manifest.segments if base_offset <= base < end_offset]:
        del manifest.segments[replaced]
        for suffix in INDEX_SUFFIXES:
            manifest.files.pop(offset_name(replaced) + suffix, None)
    times = TimeIndex()
    for suffix in INDEX_SUFFIXES:
        swap = _swap_path(directory, base_offset, suffix)
        data = disk.read(swap if disk.exists(swap) else swap.removesuffix(SWAP_SUFFIX))
        size = -1 if suffix == TXN_SUFFIX and not data else len(data)
        manifest.files[offset_name(base_offset) + suffix] = size, crc32c(data)
        if suffix == TIME_SUFFIX:
            times = TimeIndex.decode(data)
    latest = times.last()
    timestamp, offset = (
        (latest.timestamp, base_offset + latest.relative_offset) if latest else (-1, base_offset)
    )
    size = disk.size(_swap_path(directory, base_offset, LOG_SUFFIX))
    manifest.segments[base_offset] = SegmentNote(base_offset, size, timestamp, offset, end_offset)
    manifest.segments = dict(sorted(manifest.segments.items()))


# --- at a start ---------------------------------------------------------------------------------


def complete_swaps(disk: Disk, directory: str) -> list[str]:
    """Finish step 4 if step 1 was complete, and remove the files of a partial step 1.

    This is called at a start, before any other file is read. Gives: the names in the directory
    afterwards.
    """
    names = disk.list(directory)
    bases = [
        int(name[:20])
        for name in names
        if name[20:] == LOG_SUFFIX + SWAP_SUFFIX
        and name[:20].isdigit()
        and not disk.is_dir(f"{directory}/{name}")
    ]
    for base_offset in bases:
        if _is_cut_off(disk, directory, base_offset):
            _check_old_is_there(disk, directory, base_offset)
            break
        logger.info(
            "%s: the compaction that a stop interrupted is completed",
            _swap_path(directory, base_offset, LOG_SUFFIX),
        )
        _complete(disk, directory, base_offset)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    for name in swaps:
        disk.unlink(f"{directory}/{name}")
    if bases:
        disk.fsync_dir(directory)
    return disk.list(directory) if swaps else names


def _is_cut_off(disk: Disk, directory: str, base_offset: int) -> bool:
    """Whether a `.log.swap` is shorter than the file that the cleaning wrote.

    If the cleaning has written an empty file, the manifest lists it before the old segments are
    removed.
    """
    swap = _swap_path(directory, base_offset, LOG_SUFFIX)
    manifest = _read_manifest(disk, directory)
    noted = manifest.segments.get(base_offset) if manifest is not None else None
    data = disk.read(swap)
    if not data:
        old = f"{directory}/{offset_name(base_offset)}{LOG_SUFFIX}"
        old_size = disk.size(old) if disk.exists(old) else 0
        return old_size > 0 if noted is None else noted.size > 0
    end = 0
    for position, header in batches_in(data):
        end = position + header.size_bytes
        if not has_right_crc(memoryview(data)[position:end], header):
            return True
    return end < len(data)


def _check_old_is_there(disk: Disk, directory: str, base_offset: int) -> None:
    """Check that the first old segment exists. Since it is removed first, the others then exist
    too.
    Raises: CorruptLog.
    """
    swap = _swap_path(directory, base_offset, LOG_SUFFIX)
    old = f"{directory}/{offset_name(base_offset)}{LOG_SUFFIX}"
    if not disk.exists(old):
        raise CorruptLog(
            swap,
            0,
            "the compacted segment is empty or cut off, and the segments before it are gone",
            "Restore the partition's directory from a copy; the old segments may still be there as "
            ".deleted files",
        )
    disk.unlink(f"{directory}/{MANIFEST_NAME}")  # the manifest may describe the new segments
    logger.warning(
        "%s is empty or cut off: the compaction that a stop interrupted is discarded and repeated",
        swap,
    )


def _read_manifest(disk: Disk, directory: str) -> Manifest | None:
    """The manifest, or None if it cannot be read. In that case only the log is trusted."""
    try:
        return Manifest.decode(disk.read(f"{directory}/{MANIFEST_NAME}"))
    except (FileNotFoundError, CorruptCheckpoint):
        return None


def _complete(disk: Disk, directory: str, base_offset: int) -> None:
    """Step 4 at a start, for one new segment: remove the old files, and rename the new ones."""
    path = f"{directory}/{MANIFEST_NAME}"
    manifest = _read_manifest(disk, directory)
    if manifest is not None and not _has_indexes(disk, directory, base_offset):
        disk.unlink(path)
        manifest = None
    swap = _swap_path(directory, base_offset, LOG_SUFFIX)
    end_offset = max(_next_offset(disk, swap), base_offset + 1)
    noted = manifest.segments.get(base_offset) if manifest is not None else None
    if noted is not None and noted.size == disk.size(swap):
        end_offset = max(end_offset, noted.end_offset)
    names = [name for name in disk.list(directory) if name[:20].isdigit()]
    following = min(
        (
            int(name[:20])
            for name in names
            if name[20:] == LOG_SUFFIX and int(name[:20]) >= end_offset
        ),
        default=end_offset,
    )
    for name in names:
        if name[20:] == SNAPSHOT_SUFFIX and int(name[:20]) < following:
            disk.unlink(f"{directory}/{name}")
    if manifest is not None:
        _note(disk, directory, manifest, base_offset, end_offset)
        disk.write_atomic(path, manifest.encode())
    new_names = {
        offset_name(base_offset) + suffix for suffix in INDEX_SUFFIXES
    }  # some of the files may have got their final names before the stop
    for name in names:
        if (
            name[20:] in SEGMENT_SUFFIXES
            and base_offset <= int(name[:20]) < end_offset
            and name not in new_names
        ):
            disk.unlink(f"{directory}/{name}")
    _rename_to_final(disk, directory, base_offset)


def _has_indexes(disk: Disk, directory: str, base_offset: int) -> bool:
    """Whether each index of the new segment exists. A cleaning makes all of them, even if they are
    empty.
    """
    return all(
        disk.exists(_swap_path(directory, base_offset, suffix))
        or disk.exists(f"{directory}/{offset_name(base_offset)}{suffix}")
        for suffix in INDEX_SUFFIXES
    )


def _next_offset(disk: Disk, path: str) -> int:
    """The offset after the last batch of a segment; -1 if it has no batch."""
    file = disk.open(path)
    try:
        position, end_offset = 0, -1
        while position + HEADER_SIZE <= file.size:
            header = read_header(file.pread(HEADER_SIZE, position))
            end_offset = header.next_offset
            position += header.size_bytes
        return end_offset
    finally:
        file.close()
