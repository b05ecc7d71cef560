"""One segment of a log: its `.log` file of batches, and the three indexes beside it.

    <20 digits of the base offset>.log         batches, one after the other
                                  .index       see offset_index
                                  .timeindex   see time_index
                                  .txnindex    see txn_index

Guarantees to readers, whatever the files contain:

- A look-up by the offset index checks the entry: the batch at its position must match it. If it
  does not, the whole index is rebuilt from the log.
- For all other purposes the three indexes are trusted only if this process wrote them or the
  manifest has their checksum (see checkpoints). Otherwise they are rebuilt once, from the batches'
  headers, when needed.
- Scanned batches must have rising offsets within the segment: the CRC does not cover the base
offset.

Indexes of closed segments are loaded on demand. Beyond a bound on their bytes the least recently
used are dropped from memory.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.records import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    base_offset_of,
    place_of,
    read_header,
)
from barnabas.storage.disk import Disk, File, FileSync, Syncable, is_out_of_descriptors
from barnabas.storage.files.offset_index import NO_ENTRY, OffsetIndex
from barnabas.storage.files.time_index import TimeIndex
from barnabas.storage.files.txn_index import AbortedEntry, TxnIndex, encode_entry

if TYPE_CHECKING:
    from barnabas.storage.files.checkpoints import Manifest, SegmentNote

LOG_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX, TXN_SUFFIX, SNAPSHOT_SUFFIX = (
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
)
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_SUFFIX, TXN_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)
HIGHEST_RELATIVE_OFFSET = 2**31 - 1
BUILT_AT_ONCE_BYTES = 1 << 20  # the size of a segment above which its indexes are built in slices
SLICE_COST, READ_COST_BYTES = 2000, 2048  # see `index_builds`
_CHUNK_BYTES = 64 * 1024
_LOOKUP_BYTES = 4096
_RECENT_BATCHES = 128
_NO_BATCHES: dict[int, int] = {}
# A look-up that reads more than both has found an index with a hole.
_SPARSE_BATCHES, _SPARSE_BYTES = (1024, 1 << 20)

logger = logging.getLogger(__name__)


class CorruptLog(Exception):
    """A damaged file of a partition, whose rest must not be dropped without a command.

    The text names the file, the position, and what can be done.
    """

    def __init__(self, path: str, position: int, why: str, advice: str) -> None:
        super().__init__(f"{path}, byte {position}: {why}. {advice}")
        self.path = path


class ForeignLog(CorruptLog):
    """A partition's directory has another topic's id.

    Its records are not served, and it is not deleted with the topic.
    """


def offset_name(offset: int) -> str:
    """An offset as in file names."""
    return f"{offset:020d}"


class BuildPutOff(Exception):
    """A large index has to be built, which would block other clients.

    build: builds it, a slice at each step. is_for_aborted: whether it is the aborted index.
    """

    def __init__(
        self, segment: Segment, build: Callable[[], Iterator[None]], *, is_for_aborted: bool = False
    ) -> None:
        super().__init__()
        self.segment, self.build, self.is_for_aborted = segment, build, is_for_aborted


class RollLimits(NamedTuple):
    """The limits of an active segment: its size, its age, and the size of its indexes."""

    segment_bytes: int
    age_ms: int
    index_bytes: int


class Place(NamedTuple):
    """The position of a batch in a segment."""

    position: int
    base_offset: int
    last_offset: int
    size: int


class IndexCache:
    """The closed segments with indexes in memory, up to a bound on their bytes.

    Beyond `max_bytes` the indexes of the least recently used segments are dropped.

    puts_off: while it is set, the index of a large segment is not built at once (`index_builds`).
    """

    __slots__ = ("_entries", "bytes", "max_bytes", "puts_off")

    def __init__(self, max_bytes: int = 8 << 20) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self.puts_off = False
        self._entries: OrderedDict[int, tuple[Segment, int]] = OrderedDict()

    @contextmanager
    def putting_off(self) -> Iterator[None]:
        """A context in which builds of large indexes are deferred."""
        self.puts_off = True
        try:
            yield
        finally:
            self.puts_off = False

    def touch(self, segment: Segment) -> None:
        key = id(segment)  # the reference keeps the id from being reused
        if key in self._entries:
            self._entries.move_to_end(key)

    def hold(self, segment: Segment, size: int) -> None:
        old = self._entries.pop(id(segment), None)
        self.bytes += size - (old[1] if old else 0)
        self._entries[id(segment)] = (segment, size)
        while self.bytes > self.max_bytes and len(self._entries) > 1:
            _, (victim, freed) = self._entries.popitem(last=False)
            self.bytes -= freed
            victim.drop_indexes()

    def forget(self, segment: Segment) -> None:
        """Forget a segment that is out of use, or at a stop: nothing is built for it any more."""
        segment.is_forgotten = True
        entry = self._entries.pop(id(segment), None)
        if entry:
            self.bytes -= entry[1]


class Segment:
    """One segment; `size` is that of its log file.

    max_timestamp and max_timestamp_offset: of all batches (-1 while unknown, in a segment that was
    closed before this process began: see `load_times`). first_timestamp: of the first batch, for
    rolling by time (None: not read yet). written_entries, written_times: the number of entries of
    each index in the files; -1: the file has to be rewritten. _sums: size (-1: no file) and CRC-32C
    of the index files that this process wrote, by suffix. _recent, _older: positions of the latest
    batches by their base offset, so that readers at the end of the log need no index; when one is
    full, the other is dropped. is_forgotten: whether it is out of use. build_error: why a deferred
    build failed, for the reader that waited for it.
    """

    __slots__ = (
        "_file",
        "_offset_index",
        "_older",
        "_recent",
        "_sums",
        "_time_index",
        "_txn_index",
        "base_offset",
        "build_error",
        "bytes_since_entry",
        "cache",
        "created_ms",
        "directory",
        "disk",
        "first_timestamp",
        "has_times",
        "index_interval_bytes",
        "index_trusted",
        "is_closed",
        "is_forgotten",
        "manifest",
        "max_timestamp",
        "max_timestamp_offset",
        "rebuilt",
        "size",
        "txn_trusted",
        "written_entries",
        "written_times",
    )

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
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.cache = cache
        self.index_interval_bytes = index_interval_bytes
        self.manifest = manifest
        self.is_closed = True
        self.is_forgotten = False
        self.build_error: CorruptLog | OSError | None = None
        self.first_timestamp: int | None = None
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.has_times = False
        self.txn_trusted = False
        self.index_trusted = False
        self.rebuilt = False
        self.bytes_since_entry = 0
        self.written_entries = self.written_times = 0
        self._file: File | None = None
        self._sums: dict[str, tuple[int, int]] = {}
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None
        self._recent = self._older = _NO_BATCHES

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
        """A new, empty segment, open for appends.

        After an OSError none of its files exists.
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
        """A new, empty segment, which accepts appends once its files are made."""
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
        segment._sums = {INDEX_SUFFIX: (0, 0), TIME_SUFFIX: (0, 0), TXN_SUFFIX: (-1, 0)}
        return segment

    def make_files(self) -> None:
        """Make the files of a new segment; it keeps a descriptor open.

        Raises: OSError where one of them cannot be made; none of them is there then.
        """
        try:
            self._file = self.disk.open(self.path(LOG_SUFFIX), create=True)
            for suffix in (INDEX_SUFFIX, TIME_SUFFIX):
                self.disk.open(self.path(suffix), create=True).close()
        except OSError:
            self.remove_files()
            raise

    def remove_files(self) -> None:
        """Remove the files of a segment that is not used after all.

        They would be within the offsets of the segment before it when that grows.
        """
        self._file = None
        for suffix in SEGMENT_SUFFIXES:
            self.disk.unlink(self.path(suffix))

    def start_empty(self) -> None:
        """Begin with empty, trusted indexes. For an open segment they stay in memory."""
        self._offset_index, self._time_index, self._txn_index = (
            OffsetIndex(),
            TimeIndex(),
            TxnIndex(),
        )
        self.is_closed = False
        self._recent = {}
        self.has_times = self.txn_trusted = self.index_trusted = self.rebuilt = True
        self.max_timestamp, self.max_timestamp_offset, self.first_timestamp = (
            -1,
            self.base_offset,
            None,
        )
        self.bytes_since_entry = 0
        self.written_entries = self.written_times = 0
        self._sums = {}

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{suffix}"

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self.disk.open(self.path(LOG_SUFFIX))
        return file

    def to_sync(self) -> Syncable:
        """The log file as a part of a flush: where it is not open, the flush opens it."""
        return self._file or FileSync(self.disk, self.path(LOG_SUFFIX))

    # --- appending -------------------------------------------------------------------------------

    def append(
        self,
        data: bytes | bytearray | memoryview,
        size: int,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
    ) -> None:
        """Write one batch at the end.

        A partial write is cut off after an OSError: it would precede the next batch.
        """
        try:
            position = (self._file or self.file).append(data)
        except OSError:
            self.file.truncate(self.size)
            raise
        self.index_batch(position, size, last_offset, max_timestamp)
        self.size = position + size
        recent = self._recent
        recent[first_offset] = position
        if len(recent) >= _RECENT_BATCHES:
            self._older, self._recent = recent, {}

    def recent_position(self, offset: int) -> int:
        """The position of one of the latest batches, by its base offset; -1 if it is not among
        them."""
        position = self._recent.get(offset, -1)
        return position if position >= 0 else self._older.get(offset, -1)

    def index_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Add the next batch to the offset and time indexes.

        Takes: max_timestamp, -1 for a batch without records.
        """
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if not position:
            self.first_timestamp = max_timestamp
        if self.bytes_since_entry > self.index_interval_bytes:
            assert self._offset_index is not None and self._time_index is not None
            self._offset_index.append(last_offset - self.base_offset, position)
            self._time_index.maybe_append(
                self.max_timestamp, self.max_timestamp_offset - self.base_offset
            )
            self.bytes_since_entry = 0
        self.bytes_since_entry += size

    def append_aborted(self, entry: AbortedEntry) -> None:
        """Add an aborted transaction with its marker in this segment, also to the file."""
        self.txn_index().append(entry)
        file = self.disk.open(self.path(TXN_SUFFIX), create=True)
        try:
            self._append_to(file, TXN_SUFFIX, encode_entry(entry))
        finally:
            file.close()

    def should_roll(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int, limits: RollLimits
    ) -> bool:
        """Whether a batch belongs to a new segment, because this one is full or old.

        Its age is the difference between the timestamps of its first batch and of this one; without
        timestamps, by the broker's clock. One entry of the time index is reserved for the closing.
        """
        if not self.size:
            return False
        assert self._offset_index is not None and self._time_index is not None
        first = self.first_timestamp
        if first is None:
            first = self.first_batch_timestamp()
        return (
            self.size > limits.segment_bytes - size
            or last_offset - self.base_offset > HIGHEST_RELATIVE_OFFSET
            or (max_timestamp - first if first >= 0 else now_ms - self.created_ms) > limits.age_ms
            or len(self._offset_index.offsets) >= limits.index_bytes // 8
            or len(self._time_index.timestamps) >= limits.index_bytes // 12 - 1
        )

    # --- opening again what another process left -------------------------------------------------

    def reopen(self, note: SegmentNote) -> bool:
        """Open for appends with the indexes of the manifest, those of the first `note.size` bytes.

        Gives: False where the files do not match the manifest.
        After: size is the noted one; bytes beyond it have to be checked and passed to
               `index_batch`.
        """
        parts: list[bytes] = []
        sizes: list[int] = []
        sums: dict[str, tuple[int, int]] = {}
        for suffix in INDEX_SUFFIXES:
            data = self._read_or_none(suffix)
            sizes.append(len(data or b""))
            name = offset_name(self.base_offset) + suffix
            part = self.manifest.prefix(name, data) if self.manifest else None
            if part is None or self.manifest is None:
                return False
            parts.append(part)
            if suffix == TXN_SUFFIX and self.manifest.files[name][0] != (
                -1 if data is None else len(data)
            ):
                continue
            sums[suffix] = self.manifest.files[name]
        try:
            txn_index = TxnIndex.decode(parts[2])
        except ValueError:
            return False
        self.start_empty()
        self._sums = sums
        self._offset_index, self._time_index = (
            OffsetIndex.decode(parts[0], note.size),
            TimeIndex.decode(parts[1]),
        )
        self._txn_index = txn_index
        self.written_entries = (
            len(self._offset_index) if 8 * len(self._offset_index) == len(parts[0]) else -1
        )
        self.written_times = (
            len(self._time_index) if 12 * len(self._time_index) == len(parts[1]) else -1
        )
        for suffix, size, part in zip(INDEX_SUFFIXES[:2], sizes, parts, strict=False):
            if size > len(part):  # later entries come again from the log
                self._cut(suffix, len(part))
        self.max_timestamp, self.max_timestamp_offset = (
            note.max_timestamp,
            note.max_timestamp_offset,
        )
        positions = self._offset_index.positions
        self.bytes_since_entry = note.size - (positions[-1] if positions else 0)
        self.size = note.size
        if sizes[2] != len(parts[2]):  # later entries come again from the log
            self.disk.write_atomic(self.path(TXN_SUFFIX), parts[2], sync=False)
        return True

    def truncate(self, size: int) -> None:
        """Cut the log file. The caller corrects the indexes."""
        self.file.truncate(size)
        self.size = size

    # --- the index files -------------------------------------------------------------------------

    def write_indexes(self) -> None:
        """Bring the index files up to date with memory."""
        if self._offset_index is not None and self.written_entries != len(self._offset_index):
            self._write(
                INDEX_SUFFIX,
                self._offset_index.encode(max(self.written_entries, 0)),
                self.written_entries,
            )
            self.written_entries = len(self._offset_index)
        if self._time_index is not None and self.written_times != len(self._time_index):
            self._write(
                TIME_SUFFIX, self._time_index.encode(max(self.written_times, 0)), self.written_times
            )
            self.written_times = len(self._time_index)

    def _write(self, suffix: str, data: bytes, written: int) -> None:
        if written < 0:
            self.disk.write_atomic(self.path(suffix), data, sync=False)
            self._sums[suffix] = len(data), crc32c(data)
            return
        file = self.disk.open(self.path(suffix), create=True)
        try:
            width = 8 if suffix == INDEX_SUFFIX else 12
            if file.size != written * width:
                file.truncate(min(file.size, written * width))
            self._append_to(file, suffix, data)
        finally:
            file.close()

    def _cut(self, suffix: str, size: int) -> None:
        file = self.disk.open(self.path(suffix))
        try:
            file.truncate(size)
        finally:
            file.close()

    def _append_to(self, file: File, suffix: str, data: bytes) -> None:
        """Append to an index file, and extend its checksum where that is known."""
        size, crc = self._sums.pop(suffix, (-1, 0))
        goes_on = max(size, 0) == file.size
        file.append(data)
        if goes_on:
            self._sums[suffix] = file.size, crc32c(data, crc)

    def add_last_time(self) -> None:
        """Add the last entry of a closed segment's time index: the highest timestamp."""
        if self._time_index is not None:
            self._time_index.maybe_append(
                self.max_timestamp, self.max_timestamp_offset - self.base_offset
            )

    def close_for_appends(self) -> None:
        """Complete and write the indexes: no further batch is appended.

        They may be dropped from memory then.
        """
        self.complete_indexes()
        self.seal()

    def complete_indexes(self) -> None:
        """Write the index files of a closed segment; batches may still be appended after it."""
        self.add_last_time()
        self.write_indexes()

    def seal(self) -> None:
        """Close the segment after `complete_indexes`: no further batch is appended."""
        self.is_closed = True
        self._recent = self._older = _NO_BATCHES
        assert self._offset_index is not None
        self.cache.hold(self, 8 * len(self._offset_index) + 1024)

    def drop_indexes(self) -> None:
        """Drop the in-memory indexes; the next look-up reads them from the files."""
        if self.is_closed:
            self.write_indexes()
            self._offset_index = self._time_index = self._txn_index = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self.cache.forget(self)

    # --- loading what is needed of a closed segment ----------------------------------------------

    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            data = self._read_or_none(INDEX_SUFFIX)
            if data is None:
                self.rebuild_indexes("is missing")
                assert self._offset_index is not None
                return self._offset_index
            index = self._offset_index = OffsetIndex.decode(data, self.size)
            self.written_entries = len(index) if len(index) * 8 == len(data) else -1
            self.index_trusted = self.rebuilt or self._is_vouched_for(INDEX_SUFFIX, data)
            self.cache.hold(self, 8 * len(index) + 1024)
        elif self.is_closed:
            self.cache.touch(self)
        return index

    def _check_follows(self, position: int, last_offset: int) -> None:
        """Raises: CorruptLog where the batch at `position` does not come after that offset."""
        start = self.file.pread(LENGTH_END, position)
        if len(start) < LENGTH_END:
            raise self.corrupt(position, "a batch is cut off")
        base_offset = base_offset_of(start)
        if base_offset <= last_offset:
            raise self.corrupt(
                position, f"a batch of offset {base_offset} comes after offset {last_offset}"
            )

    def trusted_offset_index(self) -> OffsetIndex:
        """The offset index, rebuilt where the file is not trusted.

        For uses that cannot check an entry by its batch.
        """
        index = self.offset_index()
        if not self.index_trusted:
            self.rebuild_indexes(None)
            assert self._offset_index is not None
            return self._offset_index
        return index

    def time_index(self) -> TimeIndex:
        """The time index, rebuilt where the file is not trusted."""
        index = self._time_index
        if index is None:
            data = self._read_or_none(TIME_SUFFIX)
            if data is None or not (self.rebuilt or self._is_vouched_for(TIME_SUFFIX, data)):
                self.rebuild_indexes("is missing" if data is None else None)
                assert self._time_index is not None
                return self._time_index
            index = self._time_index = TimeIndex.decode(data)
            self.written_times = len(index) if len(index) * 12 == len(data) else -1
            last = index.last()
            if last is not None:
                self.max_timestamp, self.max_timestamp_offset = (
                    last.timestamp,
                    self.base_offset + last.relative_offset,
                )
            self.has_times = True
        return index

    def load_times(self) -> None:
        """Determine max_timestamp and max_timestamp_offset."""
        if not self.has_times:
            self.time_index()

    def txn_index(self) -> TxnIndex:
        """The aborted index, which is in memory.

        `Log` loads it (a rebuild needs the producers' state).
        """
        assert self._txn_index is not None, (
            f"the aborted index of {self.path(TXN_SUFFIX)} is used before it is loaded"
        )
        return self._txn_index

    def has_txn_index(self) -> bool:
        return self._txn_index is not None

    def try_load_txn_index(self) -> bool:
        """Load the aborted index if its file is trusted.

        Gives: False where it has to be rebuilt.
        """
        data = self._read_or_none(TXN_SUFFIX)
        if not self.txn_trusted and not self._is_vouched_for(TXN_SUFFIX, data):
            return False
        try:
            self._txn_index = TxnIndex.decode(data or b"")
        except ValueError as error:
            logger.warning(
                "%s is wrong (%s): it is rebuilt from the log", self.path(TXN_SUFFIX), error
            )
            self.txn_trusted = False
            return False
        self.txn_trusted = True
        self.cache.hold(self, 1024 + 8 * len(self._offset_index or ()))
        return True

    def set_txn_index(self, index: TxnIndex) -> None:
        """Use a rebuilt index, and write its file."""
        data = index.encode()
        if (self._read_or_none(TXN_SUFFIX) or b"") != data:
            logger.warning(
                "%s differed from the log: it was rebuilt (%d aborted)",
                self.path(TXN_SUFFIX),
                len(index),
            )
            self.manifest = None
            self._sums.pop(TXN_SUFFIX, None)
            if data:
                self.disk.write_atomic(self.path(TXN_SUFFIX), data, sync=False)
            else:
                self.disk.unlink(self.path(TXN_SUFFIX))
        self._txn_index = index
        self.txn_trusted = True

    def _is_vouched_for(self, suffix: str, data: bytes | None) -> bool:
        """Whether the manifest has a file with exactly this content; None: no file."""
        return self.manifest is not None and self.manifest.knows(
            offset_name(self.base_offset) + suffix, data
        )

    def _read_or_none(self, suffix: str) -> bytes | None:
        try:
            return self.disk.read(self.path(suffix))
        except FileNotFoundError:
            return None

    def rebuild_indexes(self, why: str | None) -> None:
        """Build the offset and time indexes again from the log file's headers, and write them.

        Raises: BuildPutOff, only where `IndexCache.puts_off`; CorruptLog.
        """
        self.check_builds_now(lambda: self._rebuilding(why))
        for _ in self._rebuilding(why):
            pass

    def check_builds_now(
        self, build: Callable[[], Iterator[None]], *, is_for_aborted: bool = False
    ) -> None:
        """Raise BuildPutOff where an index has to be built later, by `build`.

        Raises: CorruptLog, or OSError for lack of descriptors, once, where such a build failed.
        """
        if self.cache.puts_off and self.is_closed and self.size > BUILT_AT_ONCE_BYTES:
            error, self.build_error = self.build_error, None
            if error is not None:
                raise error
            put_off = BuildPutOff(
                self,
                lambda: self._noting_error(build(), is_for_aborted=is_for_aborted),
                is_for_aborted=is_for_aborted,
            )
            raise put_off

    def _noting_error(self, build: Iterator[None], *, is_for_aborted: bool) -> Iterator[None]:
        """Store the error of a build for its reader, which will need the index again.

        A lack of descriptors is an error of this reader only.
        """
        try:
            yield from build
        except (CorruptLog, OSError) as error:
            if isinstance(error, OSError) and not is_out_of_descriptors(error):
                raise
            self.build_error = error
            if not is_for_aborted:
                self._offset_index = self._time_index = None

    def _rebuilding(self, why: str | None) -> Iterator[None]:
        """Build the indexes again, a slice at each step, and use them when all are built.

        Damage ends the build; the indexes then cover the batches before it.
        """
        if why:
            logger.warning(
                "an index of %s %s: they are rebuilt from the log", self.path(LOG_SUFFIX), why
            )
        built = Segment(
            self.disk,
            self.directory,
            self.base_offset,
            size=self.size,
            created_ms=self.created_ms,
            cache=self.cache,
            index_interval_bytes=self.index_interval_bytes,
        )
        built._offset_index, built._time_index = OffsetIndex(), TimeIndex()
        try:
            for position, header in in_slices(self, 0, self.base_offset):
                if header is None:
                    yield
                    if self.is_forgotten:
                        return
                    continue
                built.index_batch(
                    position,
                    header.size_bytes,
                    header.last_offset,
                    header.max_timestamp if header.record_count else -1,
                )
        except CorruptLog:
            if not self.is_forgotten:
                self._take_indexes(built)
            raise
        if self.is_forgotten:
            return
        self._take_indexes(built)
        self.has_times = self.index_trusted = self.rebuilt = True
        self.written_entries = self.written_times = -1
        if self.is_closed:
            self.add_last_time()
            self.write_indexes()
            self.cache.hold(self, 8 * len(built._offset_index) + 1024)

    def _take_indexes(self, built: Segment) -> None:
        self.manifest = None
        self._offset_index, self._time_index = built._offset_index, built._time_index
        self.max_timestamp, self.max_timestamp_offset = (
            built.max_timestamp,
            built.max_timestamp_offset,
        )
        self.first_timestamp, self.bytes_since_entry = (
            built.first_timestamp,
            built.bytes_since_entry,
        )

    # --- reading ---------------------------------------------------------------------------------

    def headers(
        self, position: int = 0, end: int | None = None, least_offset: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from `position` (of a batch) to `end`.

        Takes: least_offset, the lowest offset of the first one; default: the segment's base offset.
        Raises: CorruptLog where there is no batch.
        """
        file = self.file
        end = self.size if end is None else end
        least_offset = self.base_offset if least_offset is None else least_offset
        most_offset = self.base_offset + HIGHEST_RELATIVE_OFFSET
        chunk, chunk_at = b"", 0
        while position < end:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_at, at = (
                    file.pread(min(_CHUNK_BYTES, end - position), position),
                    position,
                    0,
                )
                if len(chunk) < HEADER_SIZE:
                    raise self.corrupt(position, "a batch is cut off")
            header = read_header(chunk, at)
            if (
                header.magic != MAGIC
                or header.batch_length < HEADER_SIZE - LENGTH_END
                or position + header.size_bytes > end
            ):
                raise self.corrupt(position, "no batch begins there")
            if not least_offset <= header.base_offset <= header.last_offset <= most_offset:
                raise self.corrupt(
                    position, f"a batch of the offsets {header.base_offset} to {header.last_offset}"
                )
            yield position, header
            least_offset = header.last_offset + 1
            position += header.size_bytes

    def corrupt(self, position: int, why: str) -> CorruptLog:
        return CorruptLog(
            self.path(LOG_SUFFIX),
            position,
            why,
            "Restore the file from a copy; or, to give up what it holds from there on, cut it "
            f"with `truncate -s {position}`",
        )

    def find(self, offset: int) -> Place | None:
        """The first batch whose last offset is not below `offset`; None where there is none."""
        index = self.offset_index()
        relative = offset - self.base_offset
        entry = index.lookup(relative)
        try:
            return self._scan(entry.position, entry.relative_offset, offset)
        except CorruptLog:
            if self.rebuilt or entry is NO_ENTRY:
                raise
        self.rebuild_indexes("does not fit the log")
        entry = self.offset_index().lookup(relative)
        return self._scan(entry.position, entry.relative_offset, offset)

    def _scan(self, position: int, entry_offset: int, offset: int) -> Place | None:
        """The first batch from `position` on whose last offset is not below `offset`.

        One long loop, since it runs for each batch that a look-up skips.

        Takes: entry_offset, of the index entry with that position.
        """
        file = self.file
        end = self.size
        start = position
        passed = 0
        least_offset = self.base_offset
        chunk, chunk_at = b"", position
        while position < end:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_at, at = (
                    file.pread(min(_LOOKUP_BYTES, end - position), position),
                    position,
                    0,
                )
                if len(chunk) < HEADER_SIZE:
                    raise self.corrupt(position, "a batch is cut off")
            base_offset, size, magic, last_offset = place_of(chunk, at)
            if (
                magic != MAGIC
                or size < HEADER_SIZE
                or position + size > end
                or base_offset < self.base_offset
            ):
                raise self.corrupt(position, "no batch begins there")
            if entry_offset >= 0:
                if base_offset - self.base_offset > entry_offset:
                    raise self.corrupt(position, "the index leads to a later batch")
                entry_offset = -1
            if (
                not least_offset
                <= base_offset
                <= last_offset
                <= self.base_offset + HIGHEST_RELATIVE_OFFSET
            ):
                raise self.corrupt(
                    position, f"a batch of the offsets {base_offset} to {last_offset}"
                )
            if last_offset >= offset:
                # A gap of compaction, or a wrong offset.
                if base_offset > offset and position + size < end:
                    self._check_follows(position + size, last_offset)
                return Place(position, base_offset, last_offset, size)
            least_offset = last_offset + 1
            position += size
            passed += 1
            if passed == _SPARSE_BATCHES and position - start > _SPARSE_BYTES and not self.rebuilt:
                self.rebuild_indexes("has a hole")
                return self.find(offset)
        return None

    def upper_bound_offset(self, position: int) -> int | None:
        """An upper bound of the offsets before `position`, from the index.

        None where the index has none.
        """
        entry = self.trusted_offset_index().first_at_or_after(position)
        return None if entry is None else self.base_offset + entry.relative_offset

    def first_batch_timestamp(self) -> int:
        """The highest timestamp of the first batch; -1 while there is none."""
        first = self.first_timestamp
        if first is None:
            if not self.size:
                return -1
            try:
                first = next(self.headers())[1].max_timestamp
            except CorruptLog as error:  # readers get the error; it is no reason to stop writing
                logger.error("the time of the first batch is not known: %s", error)
                first = -1
            self.first_timestamp = first
        return first

    def last_modified_ms(self) -> int:
        return self.disk.modified_ms(self.path(LOG_SUFFIX))

    def checksums(self) -> list[tuple[str, int, int]]:
        """(name, size, CRC-32C) of each index file, as this process wrote it, or as it is on disk.

        The size of a missing file is -1.
        """
        rows = []
        for suffix in INDEX_SUFFIXES:
            checksum = self._sums.get(suffix)
            if checksum is None:
                data = self._read_or_none(suffix)
                checksum = self._sums[suffix] = (
                    -1 if data is None else len(data),
                    crc32c(data or b""),
                )
            rows.append((offset_name(self.base_offset) + suffix, *checksum))
        return rows


def in_slices(
    segment: Segment, position: int, least_offset: int
) -> Iterator[tuple[int, BatchHeader | None]]:
    """Position and header of each batch from `position` on; None as the header between slices.

    The segment's file may be closed and opened again between two slices.

    Takes:  least_offset, the lowest offset of the first one.
    Raises: CorruptLog where there is no batch.
    """
    while position < segment.size:
        cost = 0
        for at, header in segment.headers(position, least_offset=least_offset):
            yield at, header
            position, least_offset = at + header.size_bytes, header.last_offset + 1
            cost += 1 + min(header.size_bytes, _CHUNK_BYTES) // READ_COST_BYTES
            if cost >= SLICE_COST:
                break
        if position < segment.size:
            yield position, None
