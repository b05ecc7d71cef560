"""The three indexes of one segment: in memory, in their files, and whether the files are trusted.

Guarantees to readers, which hold for any content of the files:

- A look-up by the offset index checks the entry: the batch at its position must match it. If it
  does not, the whole index is rebuilt from the log.
- For all other purposes the three indexes are trusted only if this process wrote them or the
  manifest has their checksum (see checkpoints). Otherwise they are rebuilt once, from the batches'
  headers, when they are needed.

Indexes of closed segments are loaded on demand. If their total size exceeds a limit, the least
recently used indexes are removed from memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.errors import detached
from barnabas.storage.disk import is_out_of_descriptors, is_out_of_resources
from barnabas.storage.exception_guard import contain
from barnabas.storage.files import offset_index, time_index
from barnabas.storage.files.checkpoints import Manifest, SegmentNote
from barnabas.storage.files.offset_index import OffsetIndex
from barnabas.storage.files.segment_files import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TIME_SUFFIX,
    TXN_SUFFIX,
    CorruptLog,
    offset_name,
)
from barnabas.storage.files.time_index import TimeIndex
from barnabas.storage.files.txn_index import AbortedEntry, TxnIndex, encode_entry
from barnabas.storage.segments.batch_file import BatchFile, in_slices
from barnabas.storage.segments.index_cache import BuildDeferred, IndexCache
from barnabas.storage.segments.index_files import NO_FILE, IndexFiles

BUILT_AT_ONCE_BYTES = 1 << 20  # the indexes of a larger segment are built in slices

logger = logging.getLogger(__name__)


class SegmentIndexes:
    """The indexes of one segment, and the timestamps of its batches.

    loaded_offsets, loaded_times, loaded_aborted: the indexes in memory; None if not loaded.
    written_entries, written_times: the number of entries of the offset and time index that are in
    their files; -1 if the file has to be rewritten. lacks_aborted: whether the file of the aborted
    index lacks entries, for which there was no disk space; `write` then writes the whole file.
    max_timestamp, max_timestamp_offset: the highest timestamp of all batches, and its offset (-1
    while unknown, in a segment that was closed before this process began: see `load_times`).
    first_timestamp: the timestamp of the first batch, for rolling by time (None if it was not read
    yet). is_closed: whether appends have ended. is_forgotten: whether the segment is no longer
    used. build_error: the error of a postponed build, for the reader that waited for it.
    """

    __slots__ = (
        "base_offset",
        "batches",
        "build_error",
        "bytes_since_entry",
        "cache",
        "files",
        "first_timestamp",
        "has_times",
        "index_interval_bytes",
        "index_trusted",
        "is_closed",
        "is_forgotten",
        "lacks_aborted",
        "loaded_aborted",
        "loaded_offsets",
        "loaded_times",
        "manifest",
        "max_timestamp",
        "max_timestamp_offset",
        "rebuilt",
        "txn_trusted",
        "written_entries",
        "written_times",
    )

    def __init__(
        self,
        batches: BatchFile,
        *,
        cache: IndexCache,
        index_interval_bytes: int,
        manifest: Manifest | None = None,
    ) -> None:
        self.batches = batches
        self.files = IndexFiles(batches)
        self.base_offset = batches.base_offset
        self.cache = cache
        self.index_interval_bytes = index_interval_bytes
        self.manifest = manifest
        self.is_closed = True
        self.is_forgotten = False
        self.build_error: CorruptLog | OSError | None = None
        self.first_timestamp: int | None = None
        self.max_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        self.has_times = False
        self.txn_trusted = False
        self.index_trusted = False
        self.rebuilt = False
        self.bytes_since_entry = 0
        self.written_entries = self.written_times = 0
        self.lacks_aborted = False
        self.loaded_offsets: OffsetIndex | None = None
        self.loaded_times: TimeIndex | None = None
        self.loaded_aborted: TxnIndex | None = None

    def start_empty(self) -> None:
        """Begin with empty, trusted indexes, which stay in memory while the segment is open."""
        self.loaded_offsets, self.loaded_times, self.loaded_aborted = (
            OffsetIndex(),
            TimeIndex(),
            TxnIndex(),
        )
        self.is_closed = False
        self.has_times = self.txn_trusted = self.index_trusted = self.rebuilt = True
        self.max_timestamp, self.max_timestamp_offset, self.first_timestamp = (
            -1,
            self.base_offset,
            None,
        )
        self.bytes_since_entry = 0
        self.written_entries = self.written_times = 0
        self.lacks_aborted = False
        self.files.sums = {}

    # --- appending -------------------------------------------------------------------------------

    def index_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Add the next batch to the offset and time indexes.

        Takes: max_timestamp, its highest timestamp, -1 for a batch without records.
        """
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if not position:
            self.first_timestamp = max_timestamp
        if self.bytes_since_entry > self.index_interval_bytes:
            self.add_entries(position, last_offset)
        self.bytes_since_entry += size

    def add_entries(self, position: int, last_offset: int) -> None:
        """Add an entry for the batch at `position` to the offset and time indexes."""
        assert self.loaded_offsets is not None and self.loaded_times is not None
        self.loaded_offsets.append(last_offset - self.base_offset, position)
        self.loaded_times.maybe_append(
            self.max_timestamp, self.max_timestamp_offset - self.base_offset
        )
        self.bytes_since_entry = 0

    def append_aborted(self, entry: AbortedEntry) -> None:
        """Add an aborted transaction whose marker is in this segment to the index and its file.

        The marker is already in the log, so a lack of disk space is no error. In that case,
        the next `write` writes the entry to the file.
        """
        self.txn_index().append(entry)
        if self.lacks_aborted:
            return
        try:
            self.files.append(TXN_SUFFIX, encode_entry(entry))
        except OSError as error:
            self._wait_for_space(error)
            self.lacks_aborted = True

    # --- reopening the files of another process --------------------------------------------------

    def reopen(self, note: SegmentNote) -> bool:
        """Open for appends. The indexes of the segment's first `note.size` bytes are loaded and
        checked against the manifest.

        Gives:  False if the files do not match the manifest.
        After:  the size is `note.size`; bytes beyond it have to be checked and passed to
                `index_batch`.
        """
        parts: list[bytes] = []
        sizes: list[int] = []
        sums: dict[str, tuple[int, int]] = {}
        for suffix in INDEX_SUFFIXES:
            data = self.files.read(suffix)
            sizes.append(len(data or b""))
            name = offset_name(self.base_offset) + suffix
            part = self.manifest.prefix(name, data) if self.manifest else None
            if part is None or self.manifest is None:
                return False
            parts.append(part)
            if suffix == TXN_SUFFIX and self.manifest.files[name][0] != (
                NO_FILE if data is None else len(data)
            ):
                continue
            sums[suffix] = self.manifest.files[name]
        try:
            txn_index = TxnIndex.decode(parts[2])
        except ValueError:
            return False
        self.start_empty()
        self.files.sums = sums
        self.loaded_offsets, self.loaded_times = (
            OffsetIndex.decode(parts[0], note.size),
            TimeIndex.decode(parts[1]),
        )
        self.loaded_aborted = txn_index
        self.written_entries = (
            len(self.loaded_offsets) if 8 * len(self.loaded_offsets) == len(parts[0]) else -1
        )
        self.written_times = (
            len(self.loaded_times) if 12 * len(self.loaded_times) == len(parts[1]) else -1
        )
        for suffix, size, part in zip(INDEX_SUFFIXES[:2], sizes, parts, strict=False):
            if size > len(part):  # later entries are restored from the log
                self.files.cut(suffix, len(part))
        self.max_timestamp, self.max_timestamp_offset = (
            note.max_timestamp,
            note.max_timestamp_offset,
        )
        positions = self.loaded_offsets.positions
        self.bytes_since_entry = note.size - (positions[-1] if positions else 0)
        self.batches.size = note.size
        if sizes[2] != len(parts[2]):  # later entries are restored from the log
            self.files.replace(TXN_SUFFIX, parts[2])
        return True

    # --- the files -------------------------------------------------------------------------------

    def _wait_for_space(self, error: OSError) -> None:
        """Log that a file cannot be written before there is space. Raises: the error, if it has
        another cause.
        """
        if not is_out_of_resources(error):
            raise error
        logger.warning("an index of %s waits for space: %s", self.batches.path(LOG_SUFFIX), error)

    def write(self) -> None:
        """Write the entries that are in memory but not in the index files."""
        if self.lacks_aborted and self.loaded_aborted is not None:
            data = self.loaded_aborted.encode()
            self.files.replace(TXN_SUFFIX, data)
            self.files.sums[TXN_SUFFIX] = len(data), crc32c(data)
            self.lacks_aborted = False
        if self.loaded_offsets is not None and self.written_entries != len(self.loaded_offsets):
            written = self.written_entries
            data = self.loaded_offsets.encode(max(written, 0))
            self.files.write(INDEX_SUFFIX, data, written * offset_index.ENTRY_SIZE)
            self.written_entries = len(self.loaded_offsets)
        if self.loaded_times is not None and self.written_times != len(self.loaded_times):
            written = self.written_times
            data = self.loaded_times.encode(max(written, 0))
            self.files.write(TIME_SUFFIX, data, written * time_index.ENTRY_SIZE)
            self.written_times = len(self.loaded_times)

    def add_last_time(self) -> None:
        """Add the last entry of a closed segment's time index, which has the highest timestamp."""
        if self.loaded_times is not None:
            self.loaded_times.maybe_append(
                self.max_timestamp, self.max_timestamp_offset - self.base_offset
            )

    def complete(self) -> None:
        """Write the index files of a closed segment. Batches may still be appended afterwards."""
        self.add_last_time()
        self.write()

    def seal(self) -> None:
        """Record that no further batch is appended."""
        self.is_closed = True
        assert self.loaded_offsets is not None
        self.cache.hold(self, 8 * len(self.loaded_offsets) + 1024)

    def drop(self) -> None:
        """Remove the indexes from memory. The next look-up reads them from the files.

        If there is no disk space to write them first, the files are not trusted, and the indexes
        are built again.
        """
        if self.is_closed:
            try:
                self.write()
            except OSError as error:
                self._wait_for_space(error)
                self.rebuilt = self.index_trusted = self.has_times = self.txn_trusted = False
                self.lacks_aborted = False
                self.manifest = None
            self.loaded_offsets = self.loaded_times = self.loaded_aborted = None

    # --- loading the indexes of a closed segment -------------------------------------------------

    def offset_index(self) -> OffsetIndex:
        """The offset index, which is rebuilt if its file is missing."""
        index = self.loaded_offsets
        if index is None:
            data = self.files.read(INDEX_SUFFIX)
            if data is None:
                self.rebuild("is missing")
                assert self.loaded_offsets is not None
                return self.loaded_offsets
            index = self.loaded_offsets = OffsetIndex.decode(data, self.batches.size)
            self.written_entries = len(index) if len(index) * 8 == len(data) else -1
            self.index_trusted = self.rebuilt or self._is_vouched_for(INDEX_SUFFIX, data)
            self.cache.hold(self, 8 * len(index) + 1024)
        elif self.is_closed:
            self.cache.touch(self)
        return index

    def trusted_offset_index(self) -> OffsetIndex:
        """The offset index, which is rebuilt if the file is not trusted.

        This is for uses that cannot check an entry against its batch.
        """
        index = self.offset_index()
        if not self.index_trusted:
            self.rebuild(None)
            assert self.loaded_offsets is not None
            return self.loaded_offsets
        return index

    def upper_bound_offset(self, position: int) -> int | None:
        """An upper bound of the offsets before `position`, from the index.

        Gives:  None if the index has no entry at or after the position.
        """
        entry = self.trusted_offset_index().first_at_or_after(position)
        return None if entry is None else self.base_offset + entry.relative_offset

    def time_index(self) -> TimeIndex:
        """The time index, which is rebuilt if the file is not trusted."""
        index = self.loaded_times
        if index is None:
            data = self.files.read(TIME_SUFFIX)
            if data is None or not (self.rebuilt or self._is_vouched_for(TIME_SUFFIX, data)):
                self.rebuild("is missing" if data is None else None)
                assert self.loaded_times is not None
                return self.loaded_times
            index = self.loaded_times = TimeIndex.decode(data)
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

    def first_batch_timestamp(self) -> int:
        """The highest timestamp of the first batch; -1 if there is no batch."""
        first = self.first_timestamp
        if first is None:
            if not self.batches.size:
                return -1
            try:
                first = next(self.batches.headers())[1].max_timestamp
            except CorruptLog as error:  # readers get the error, but appends continue
                logger.error("the time of the first batch is unknown: %s", error)
                first = -1
            self.first_timestamp = first
        return first

    def txn_index(self) -> TxnIndex:
        """The aborted index, which has to be in memory.

        `Log` loads it, since a rebuild needs the producers' state.
        """
        assert self.loaded_aborted is not None, (
            f"the aborted index of {self.batches.path(TXN_SUFFIX)} is used before it is loaded"
        )
        return self.loaded_aborted

    @property
    def lacks_entries(self) -> bool:
        """Whether a file lacks entries that are in memory, and has to be written as a whole."""
        return self.lacks_aborted or self.written_entries < 0 or self.written_times < 0

    def has_txn_index(self) -> bool:
        return self.loaded_aborted is not None

    def try_load_txn_index(self) -> bool:
        """Load the aborted index if its file is trusted.

        Gives:  False if the index has to be rebuilt.
        """
        data = self.files.read(TXN_SUFFIX)
        if not self.txn_trusted and not self._is_vouched_for(TXN_SUFFIX, data):
            return False
        try:
            self.loaded_aborted = TxnIndex.decode(data or b"")
        except ValueError as error:
            logger.warning(
                "%s is wrong (%s): it is rebuilt from the log", self.batches.path(TXN_SUFFIX), error
            )
            self.txn_trusted = False
            return False
        self.txn_trusted = True
        self.cache.hold(self, 1024 + 8 * len(self.loaded_offsets or ()))
        return True

    def set_txn_index(self, index: TxnIndex) -> None:
        """Use a rebuilt index, and write its file."""
        data = index.encode()
        if (self.files.read(TXN_SUFFIX) or b"") != data:
            logger.warning(
                "%s differed from the log: it was rebuilt (%d aborted)",
                self.batches.path(TXN_SUFFIX),
                len(index),
            )
            # The damage may also have affected the other two files.
            self.manifest = None
            self.has_times = self.rebuilt or self.loaded_times is not None
            self.files.sums.pop(TXN_SUFFIX, None)
            self.lacks_aborted = False
            if data:
                try:
                    self.files.replace(TXN_SUFFIX, data)
                except OSError as error:
                    self._wait_for_space(error)
                    self.lacks_aborted = True
            else:
                self.files.remove(TXN_SUFFIX)
        self.loaded_aborted = index
        self.txn_trusted = True

    def _is_vouched_for(self, suffix: str, data: bytes | None) -> bool:
        """Whether the file has the content that the manifest describes. Takes: data, the content,
        None for a missing file.
        """
        return self.manifest is not None and self.manifest.knows(
            offset_name(self.base_offset) + suffix, data
        )

    # --- rebuilding ------------------------------------------------------------------------------

    def rebuild(self, why: str | None) -> None:
        """Build the offset and time indexes again from the headers in the log file, and write them.

        Raises: BuildDeferred, only if `IndexCache.defers_builds` is set; CorruptLog.
        """
        self.check_builds_now(lambda: self._rebuilding(why))
        for _ in self._rebuilding(why):
            pass

    def check_builds_now(
        self, build: Callable[[], Iterator[None]], *, is_for_aborted: bool = False
    ) -> None:
        """Raise BuildDeferred if an index has to be built later, by `build`.

        Raises: CorruptLog, or OSError for lack of descriptors, if such a build has failed. The
                error is raised once.
        """
        if self.cache.defers_builds and self.is_closed and self.batches.size > BUILT_AT_ONCE_BYTES:
            if self.build_error is not None:
                raise self._take_build_error()  # not from a variable, see `detached`
            raise BuildDeferred(
                self,
                lambda: self._noting_error(build(), is_for_aborted=is_for_aborted),
                is_for_aborted=is_for_aborted,
            )

    def _take_build_error(self) -> CorruptLog | OSError:
        """The error of the last build, which is forgotten."""
        error, self.build_error = self.build_error, None
        assert error is not None
        return error

    def _noting_error(self, build: Iterator[None], *, is_for_aborted: bool) -> Iterator[None]:
        """Store the error of a build for its reader, which will request the index again.

        An OSError is only stored if it is a lack of descriptors.
        """
        try:
            yield from build
        except Exception as error:
            self.build_error = detached(self._error_of_build(error))
            if not is_for_aborted:
                self.loaded_offsets = self.loaded_times = None

    def _error_of_build(self, error: Exception) -> CorruptLog | OSError:
        """The error that the reader of an index gets if its build fails. Raises: the error if it
        ends the process.
        """
        if isinstance(error, CorruptLog):
            return error
        if isinstance(error, OSError) and is_out_of_descriptors(error):
            return error
        path = self.batches.path(LOG_SUFFIX)
        contain(error, path)
        return CorruptLog(
            path, 0, f"its indexes cannot be built: {error!r}", "Restore the file from a copy"
        )

    def _rebuilding(self, why: str | None) -> Iterator[None]:
        """Build the indexes again, one slice in each step, and use them when they are complete.

        If a batch is damaged, the build ends, and the offset index covers the batches before it.
        """
        if why:
            logger.warning(
                "an index of %s %s: they are rebuilt from the log",
                self.batches.path(LOG_SUFFIX),
                why,
            )
        built = SegmentIndexes(
            self.batches, cache=self.cache, index_interval_bytes=self.index_interval_bytes
        )
        built.loaded_offsets, built.loaded_times = OffsetIndex(), TimeIndex()
        try:
            for position, header in in_slices(self.batches, 0, self.base_offset):
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
                if self.is_closed:
                    # Its last times are unknown: a look-up by time could skip the records after the
                    # damage, and retention could delete them too early.
                    self.loaded_times, self.has_times = None, False
            raise
        if self.is_forgotten:
            return
        self._take_indexes(built)
        self.has_times = self.index_trusted = self.rebuilt = True
        self.written_entries = self.written_times = -1
        if self.is_closed:
            self.add_last_time()
            try:
                self.write()
            except OSError as error:
                self._wait_for_space(error)
            self.cache.hold(self, 8 * len(built.loaded_offsets) + 1024)

    def _take_indexes(self, built: SegmentIndexes) -> None:
        """Use the indexes of a rebuild."""
        self.manifest = None
        self.loaded_offsets, self.loaded_times = built.loaded_offsets, built.loaded_times
        self.max_timestamp, self.max_timestamp_offset = (
            built.max_timestamp,
            built.max_timestamp_offset,
        )
        self.first_timestamp, self.bytes_since_entry = (
            built.first_timestamp,
            built.bytes_since_entry,
        )
