"""The flush journal, which makes the ends of many logs, and decisions on transactions, durable with
one fsync.

A transaction over a thousand partitions writes a few hundred bytes to each of a thousand files, and
a commit has to wait until all these bytes are on the disk. Instead of flushing each file, the
broker writes the bytes that are not durable a second time, one log after the other, to a flush
journal, and flushes that file. The logs' own files are flushed later, many commits at a time, in
the background. Then the journal is deleted.

    barnabas-flush-<10 digits>.journal    in the data directory, numbered upwards; appended to
                                          only, in frames:

    | bytes | field                                                                 |
    |-------|-----------------------------------------------------------------------|
    | 4     | F5 42 4A 32                                                           |
    | 4     | CRC-32C of all that follows, uint32                                   |
    | 8     | position of the frame in the file, uint64                             |
    | 8     | size of the durable part of the file at the time of the write, uint64 |
    | 4     | length of the payload, uint32                                         |
    | n     | msgpack: a list of entries and decisions, in any order                |

Earlier versions wrote only the length, the CRC-32C of the payload and the payload. Such frames can
be read; their length is less than F5000000.

    an entry        [topic, partition, topic id (16 bytes), base offset of the segment, position
                    in its file, bytes]
    a decision      [key, value, ends]: a record of __transaction_state with the commit of a
                    transaction, which is not appended yet; and the ends of its partitions, below
                    which all its data are: a list of [topic, partition, topic id (16 bytes),
                    offset]; 2^63 - 1 if the partition was offline

Entries are used after a power loss. If a log is torn or short at or above its recovery point, the
journal's bytes from that position on are written again. A kill keeps the page cache, so no log
should lack bytes of the journals after it. If one does, the directory is a copy of the disk that
was made during a run, and the entries are also used (`Redo.lacking`). A partial frame at the end of
a journal was never acknowledged as durable.

A decision is written to the journal before it is in its log, together with the last data of its
transaction, or after them. A frame is valid as a whole or not at all, so one fsync is enough for
both. The decision is appended to its log when the frame is durable. A start appends the decisions
that the log lacks; after a power loss it also writes the markers that partitions lack. An older
journal is therefore kept until the log of each decision and the partitions with its markers were
flushed in their own files.

Why this is safe: the journal has only ends of active segments, and the first flush of a log after
its segment was closed flushes the files themselves. All durable bytes above a recovery point are
therefore in one segment, and in the journals. A position in a file means the same bytes as long as
the segment is not cleaned, and a segment is cleaned only below a stored recovery point.
"""

from __future__ import annotations

import logging
import re
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgpack

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.records import base_offset_of
from barnabas.storage.disk import DirectorySync, Disk, File, Syncable, cut_back, not_written
from barnabas.storage.files.checkpoints import (
    PARTITION_METADATA_NAME,
    CorruptCheckpoint,
    decode_partition_metadata,
)
from barnabas.storage.files.segment_files import LOG_SUFFIX, CorruptLog, offset_name

FLUSH_JOURNAL_NAME = re.compile(r"barnabas-flush-(\d{10})\.journal")
_OLD_FRAME = struct.Struct(">II")
_MAGIC = b"\xf5BJ2"
_FRAME = struct.Struct(">4sIQQI")
_START, _HEAD = struct.Struct(">4sI"), struct.Struct(">QQI")  # the parts of _FRAME
_CHECKED_FROM = _START.size

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class JournalEntry:
    """The bytes of one segment's log file from `position` on."""

    topic: str
    partition: int
    topic_id: uuid.UUID
    base_offset: int
    position: int
    data: bytes


JournalRow = tuple[str, int, bytes, int, int, bytes]
"""An entry as it is written: the fields of a JournalEntry, with the bytes of the topic id."""

OFFLINE_END = (1 << 63) - 1


class PartitionEnd(NamedTuple):
    """The end of a partition when a decision was made.

    All records of the transaction are below the end, and all later records at or above it. offset:
    OFFLINE_END if the partition was offline, since its end is then unknown.
    """

    topic: str
    partition: int
    topic_id: bytes
    offset: int


class JournalDecision(NamedTuple):
    """A record of __transaction_state that was written to the journal before it was appended to its
    log.

    ends: the ends of the transaction's partitions.
    """

    key: bytes
    value: bytes
    ends: tuple[PartitionEnd, ...]


JournalRecord = tuple[object, ...]
"""A record that is added to a frame, in the form of a JournalDecision."""


class _Run(NamedTuple):
    """Contiguous bytes of a file. `pieces` are the bytes in the order of their positions."""

    position: int
    pieces: list[bytes]

    @property
    def end(self) -> int:
        return self.position + sum(map(len, self.pieces))


class Redo:
    """The content of the journals that a start writes again: the bytes for each segment, and the
    decisions, in the order of writing.
    """

    def __init__(self) -> None:
        self.decisions: list[JournalDecision] = []
        self._runs: dict[tuple[str, int, uuid.UUID, int], list[_Run]] = {}
        self._ends: dict[tuple[str, int, uuid.UUID, int], int] = {}

    def add(self, entry: JournalEntry) -> None:
        """Add an entry. If it overlaps an earlier entry, its bytes replace those of the earlier
        one.

        Entries must be added in the order of writing.
        """
        key = entry.topic, entry.partition, entry.topic_id, entry.base_offset
        runs = self._runs.setdefault(key, [])
        if runs and self._ends[key] == entry.position:
            runs[-1].pieces.append(entry.data)
        else:
            runs.append(_Run(entry.position, [entry.data]))
        self._ends[key] = entry.position + len(entry.data)

    def lacking(self, disk: Disk, data_dir: str, points: Mapping[tuple[str, int], int]) -> str:
        """The path of a log file that lacks bytes that the journals have; empty if there is no such
        file.

        A kill loses no data, so the directory of such a file is a copy of the disk, or another
        directory. Some data are not compared: topics that were deleted or created again, segments
        that retention deleted, and bytes below the recovery points, which may have been cleaned.
        """
        for (topic, partition, topic_id, base_offset), runs in self._runs.items():
            directory = f"{data_dir}/{topic}-{partition}"
            path = f"{directory}/{offset_name(base_offset)}{LOG_SUFFIX}"
            if not _is_of(disk, directory, topic_id) or not _is_kept(disk, directory, base_offset):
                continue
            file = disk.open(path) if disk.exists(path) else None
            point = points.get((topic, partition), 0)
            overwritten_from = 1 << 63
            for run in reversed(runs):
                position = run.position
                for piece in run.pieces:
                    expected = piece[: max(overwritten_from - position, 0)]
                    # The bytes begin with a batch, whose first field is its base offset.
                    is_above = base_offset_of(piece) >= point
                    if is_above and (
                        file is None or file.pread(len(expected), position) != expected
                    ):
                        return path
                    position += len(piece)
                overwritten_from = min(overwritten_from, run.position)
        return ""

    def tail(
        self, topic: str, partition: int, topic_id: uuid.UUID, base_offset: int, position: int
    ) -> bytes:
        """The bytes of a segment's file from `position` on; empty if no journal has them.

        The bytes end where the latest contiguous entries that contain the position end.
        """
        for run in reversed(self._runs.get((topic, partition, topic_id, base_offset), ())):
            if run.position <= position < run.end:
                return b"".join(run.pieces)[position - run.position :]
        return b""


class _Frame(NamedTuple):
    """A complete frame of a journal.

    end: the position after the frame. durable_bytes: the size of the journal's durable part when
    the frame was written.
    """

    end: int
    durable_bytes: int
    payload: bytes


class FlushJournal:
    """The flush journals of one data directory: the current journal, and older ones for logs whose
    own files are not flushed yet.

    Order of effects: an entry is written -> the journal is flushed -> its content is durable ->
    `begin_next` -> the logs' own files are flushed -> `forget_older`. At a start, the journals of
    the last run count as older ones. They are deleted when all logs were flushed.

    size_bytes: the size of the current journal. has_older: whether there are older journals.
    """

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._earlier = sorted(
            int(match[1])
            for name in disk.list(data_dir)
            if (match := FLUSH_JOURNAL_NAME.fullmatch(name))
        )
        self._older = list(self._earlier)
        self._number = self._earlier[-1] if self._earlier else 0
        self._file: File | None = None
        self._packer = msgpack.Packer()
        self._durable_bytes = self.size_bytes = 0
        self._has_changed_names = False
        self.has_older = bool(self._older)

    def append(
        self, entries: Iterable[JournalRow], records: Iterable[JournalRecord] = ()
    ) -> list[Syncable]:
        """Write one frame. Gives: the file to fsync. The frame is durable after the fsync.

        Takes:  records, the records to store in the frame; `read` returns them as decisions.
        Raises: NotWrittenError without disk space, in which case no frame is written; OSError.
        """
        payload = self._packer.pack([*entries, *records])
        file = self._file
        if file is None:
            try:
                file = self._disk.open(self._path(self._number + 1), create=True)
            except OSError as error:
                raise not_written(error) from error
            self._file = file
            self._number += 1
            self._durable_bytes, self._has_changed_names = 0, True
        size = file.size
        checked = _HEAD.pack(size, self._durable_bytes, len(payload)) + payload
        frame = _START.pack(_MAGIC, crc32c(checked)) + checked
        try:
            file.append(frame)
        except OSError as error:
            cut_back(file.truncate, size)
            raise not_written(error) from error
        self.size_bytes = size + len(frame)
        if not self._has_changed_names:
            return [file]
        self._has_changed_names = False
        return [file, DirectorySync(self._disk, self._data_dir)]

    def note_flushed(self) -> None:
        """Record that everything that was appended so far is on the disk."""
        self._durable_bytes = self.size_bytes

    def begin_next(self) -> None:
        """Make the next append begin a new journal.

        The whole current journal has to be durable before any part of the next journal is.
        """
        if self._file is not None:
            # the file is closed with its last reference, which a running flush may have
            self._file = None
            self._older.append(self._number)
            self.size_bytes = 0
            self.has_older = True

    def forget_older(self, *, keep_earlier: bool = False) -> bool:
        """Delete the older journals, once all their bytes are durable in the logs' own files.

        Takes:  keep_earlier, whether to keep the journals of the last run, for logs that are
                offline.
        Gives:  whether a journal was deleted. The deletion becomes durable with the next frame. If
                a power loss restores a deleted journal, it is read as if it had not been deleted.
        """
        removed = [
            number for number in self._older if not (keep_earlier and number in self._earlier)
        ]
        for number in removed:
            self._disk.unlink(self._path(number))
        self._has_changed_names = self._has_changed_names or bool(removed)
        self._older = []
        self.has_older = False
        return bool(removed)

    def read(self) -> Redo:
        """Read the older journals. Raises: CorruptLog if one is damaged; OSError.

        The journals are made durable first. After a kill, a frame may be only in the page cache,
        and a later power loss must not remove data that were used.
        """
        redo = Redo()
        unfinished: tuple[str, int] | None = None
        for number in self._older:
            path = self._path(number)
            file = self._disk.open(path)
            file.fsync()
            data = self._disk.read(path)
            if (
                unfinished is not None
                and _frame_at(data, 0) is not None
                and data.startswith(_MAGIC)
            ):
                raise _damaged(
                    *unfinished, f"{path} was begun when the former journal was on the disk"
                )
            position = 0
            while position < len(data):
                frame = _frame_at(data, position)
                if frame is None:
                    behind = later_frame(data, position)
                    if behind >= 0:
                        raise _damaged(
                            path, position, f"the one at byte {behind} says that it was on the disk"
                        )
                    logger.info(
                        "%s ends at byte %d, in the middle of a flush that was never completed",
                        path,
                        position,
                    )
                    if data.startswith(_MAGIC):
                        unfinished = path, position
                    break
                _take(frame.payload, redo)
                position = frame.end
        if unfinished is not None:
            file = self._disk.open(unfinished[0])
            file.truncate(unfinished[1])
            file.fsync()
        return redo

    def _path(self, number: int) -> str:
        return f"{self._data_dir}/barnabas-flush-{number:010}.journal"


class JournalFrame(NamedTuple):
    """A decoded frame: its position in the file, and its content."""

    position: int
    end: int
    durable_bytes: int
    entries: list[JournalEntry]
    decisions: list[JournalDecision]


def frames_in(data: bytes) -> Iterator[JournalFrame]:
    """The complete frames at the beginning of a journal, for tools. The file is not changed."""
    position = 0
    while (frame := _frame_at(data, position)) is not None:
        opened = JournalFrame(position, frame.end, frame.durable_bytes, [], [])
        for item in _items_of(frame.payload):
            if isinstance(item, JournalEntry):
                opened.entries.append(item)
            else:
                opened.decisions.append(item)
        yield opened
        position = frame.end


def _is_of(disk: Disk, directory: str, topic_id: uuid.UUID) -> bool:
    """Whether the directory belongs to the topic with this id."""
    try:
        return (
            decode_partition_metadata(disk.read(f"{directory}/{PARTITION_METADATA_NAME}"))
            == topic_id
        )
    except (FileNotFoundError, CorruptCheckpoint):
        return False


def _is_kept(disk: Disk, directory: str, base_offset: int) -> bool:
    """Whether the log still has the segment, which is the case unless its first segment is a later
    one.
    """
    bases = [
        int(name[:20])
        for name in disk.list(directory)
        if name.endswith(LOG_SUFFIX) and name[:20].isdigit()
    ]
    return not bases or min(bases) <= base_offset


def _take(payload: bytes, redo: Redo) -> None:
    """Add the content of a frame to `redo`."""
    for item in _items_of(payload):
        if isinstance(item, JournalDecision):
            redo.decisions.append(item)
        else:
            redo.add(item)


def _items_of(payload: bytes) -> Iterator[JournalEntry | JournalDecision]:
    """The entries and decisions in a frame."""
    for item in msgpack.unpackb(payload):
        if len(item) == len(JournalDecision._fields):
            key, value, ends = item
            yield JournalDecision(key, value, tuple(PartitionEnd(*end) for end in ends))
        else:
            topic, partition, topic_id, base_offset, at, content = item
            yield JournalEntry(
                topic, partition, uuid.UUID(bytes=topic_id), base_offset, at, content
            )


def _damaged(path: str, position: int, evidence: str) -> CorruptLog:
    """The error for a damaged frame whose content was once durable. Takes: evidence, the
    observation that shows this.
    """
    return CorruptLog(
        path,
        position,
        f"a frame of the flush journal is damaged, and {evidence}",
        "It may have the only copy of acknowledged commits. Restore the file from a copy; or, to "
        "give them up, remove it",
    )


def _frame_at(data: bytes, position: int) -> _Frame | None:
    """The complete frame at this position, or None."""
    if not data.startswith(_MAGIC, position):
        return _old_frame_at(data, position)
    start = position + _FRAME.size
    if start > len(data):
        return None
    _, crc, at, durable_bytes, length = _FRAME.unpack_from(data, position)
    end = start + length
    if (
        at != position
        or end > len(data)
        or crc32c(memoryview(data)[position + _CHECKED_FROM : end]) != crc
    ):
        return None
    return _Frame(end, durable_bytes, data[start:end])


def _old_frame_at(data: bytes, position: int) -> _Frame | None:
    """The complete frame of an earlier release at this position, or None. The header of such a
    frame has no magic and no position.
    """
    start = position + _OLD_FRAME.size
    if start > len(data):
        return None
    length, crc = _OLD_FRAME.unpack_from(data, position)
    payload = data[start : start + length]
    return (
        _Frame(start + length, 0, payload)
        if len(payload) == length > 0 and crc32c(payload) == crc
        else None
    )


def later_frame(data: bytes, position: int) -> int:
    """The position of a later frame that was written when the frame at `position` was already
    durable.

    Gives:  the position, or -1 if there is no such frame.
    """
    at = data.find(_MAGIC, position + 1)
    while at >= 0:
        frame = _frame_at(data, at)
        if frame is not None and frame.durable_bytes > position:
            return at
        at = data.find(_MAGIC, at + 1)
    start = position + _OLD_FRAME.size
    # The damaged frame may be one of an earlier version. If its length field is valid, the next
    # frame follows it.
    if start <= len(data) and not data.startswith(_MAGIC):
        length: int = _OLD_FRAME.unpack_from(data, position)[0]
        following = start + length
        if length and _old_frame_at(data, following) is not None:
            return following
    return -1
