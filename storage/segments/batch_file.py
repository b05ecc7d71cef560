"""The `.log` file of one segment: batches, one after the other.

The offsets of batches must rise and be within the segment. Since the CRC does not cover the base
offset, this is checked when the batches are scanned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.protocol.records import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    base_offset_of,
    place_of,
    read_header,
)
from barnabas.storage.disk import Disk, File, FileSync, Syncable
from barnabas.storage.files.segment_files import (
    HIGHEST_RELATIVE_OFFSET,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    CorruptLog,
)

# The size of a slice, and the number of bytes that count as one batch (see `index_builds`).
SLICE_COST, READ_COST_BYTES = 2000, 2048
_CHUNK_BYTES = 64 * 1024
_LOOKUP_BYTES = 4096
# If a look-up exceeds both limits, the index lacks entries.
_SPARSE_BATCHES, _SPARSE_BYTES = (1024, 1 << 20)


class BatchPosition(NamedTuple):
    """A batch in a segment: its position, offsets and size."""

    position: int
    base_offset: int
    last_offset: int
    size: int


class IndexHole(Exception):
    """A look-up had to read so far beyond the index entry's position that entries must be
    missing.
    """


class BatchFile:
    """The batches of one segment; `size` is the size of the file.

    open_file: None until the file is needed, and after it was closed; `file` opens it.
    with_swap_name: the suffixes of the segment's files that still have the name of a swap file,
    since there was no space to rename them.
    """

    __slots__ = ("base_offset", "directory", "disk", "open_file", "size", "with_swap_name")

    def __init__(self, disk: Disk, directory: str, base_offset: int, size: int) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.open_file: File | None = None
        self.with_swap_name: tuple[str, ...] = ()

    def path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        path = f"{self.directory}/{self.base_offset:020d}{suffix}"
        return path + SWAP_SUFFIX if suffix in self.with_swap_name else path

    @property
    def file(self) -> File:
        """The open file. It is opened on first use. Raises: CorruptLog if it is gone."""
        file = self.open_file
        if file is None:
            path = self.path(LOG_SUFFIX)
            try:
                file = self.open_file = self.disk.open(path)
            except (FileNotFoundError, IsADirectoryError) as error:
                why = f"the file is gone: {error.strerror or error}"
                raise CorruptLog(path, 0, why, "Restore it from a copy") from error
        return file

    def to_sync(self) -> Syncable:
        """The log file as a part of a flush, which opens the file if necessary."""
        return self.open_file or FileSync(self.disk, self.path(LOG_SUFFIX))

    def truncate(self, size: int) -> None:
        """Cut the file."""
        self.file.truncate(size)
        self.size = size

    def close(self) -> None:
        if self.open_file is not None:
            self.open_file.close()
            self.open_file = None

    def last_modified_ms(self) -> int:
        return self.disk.modified_ms(self.path(LOG_SUFFIX))

    def headers(
        self, position: int = 0, end: int | None = None, least_offset: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Iterate over the positions and headers of the batches from `position` to `end`.

        Takes:  position, the position of a batch; least_offset, the lowest offset that the first
                batch may have, by default the segment's base offset.
        Raises: CorruptLog if there is no valid batch at a position.
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

    def scan(
        self, position: int, entry_offset: int, offset: int, *, is_complete: bool
    ) -> BatchPosition | None:
        """Find the first batch from `position` on whose last offset is not below `offset`.

        The function is one long loop, since it runs for each batch that a look-up skips.

        Takes:  entry_offset, the offset of the index entry for `position`; is_complete, whether the
                index was built from the whole file.
        Raises: CorruptLog if there is no valid batch at a position; IndexHole, only if is_complete
                is false.
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
                # The batch begins above the offset. Either compaction left a gap before it, or its
                # offset is wrong.
                if base_offset > offset and position + size < end:
                    self._check_follows(position + size, last_offset)
                return BatchPosition(position, base_offset, last_offset, size)
            least_offset = last_offset + 1
            position += size
            passed += 1
            if passed == _SPARSE_BATCHES and position - start > _SPARSE_BYTES and not is_complete:
                raise IndexHole
        return None

    def _check_follows(self, position: int, last_offset: int) -> None:
        """Check that the batch at `position` begins after `last_offset`. Raises: CorruptLog."""
        start = self.file.pread(LENGTH_END, position)
        if len(start) < LENGTH_END:
            raise self.corrupt(position, "a batch is cut off")
        base_offset = base_offset_of(start)
        if base_offset <= last_offset:
            raise self.corrupt(
                position, f"a batch of offset {base_offset} comes after offset {last_offset}"
            )

    def corrupt(self, position: int, why: str) -> CorruptLog:
        """The error for invalid bytes at this position."""
        return CorruptLog(
            self.path(LOG_SUFFIX),
            position,
            why,
            "Restore the file from a copy; or, to give up its records from there on, cut it "
            f"with `truncate -s {position}`",
        )


def in_slices(
    batches: BatchFile, position: int, least_offset: int
) -> Iterator[tuple[int, BatchHeader | None]]:
    """Iterate over the positions and headers of the batches from `position` on, in slices.

    Between two slices, the header is None. The segment's file may be closed and opened again then.

    Takes:  least_offset, the lowest offset that the first batch may have.
    Raises: CorruptLog if there is no valid batch at a position.
    """
    while position < batches.size:
        cost = 0
        for at, header in batches.headers(position, least_offset=least_offset):
            yield at, header
            position, least_offset = at + header.size_bytes, header.last_offset + 1
            cost += 1 + min(header.size_bytes, _CHUNK_BYTES) // READ_COST_BYTES
            if cost >= SLICE_COST:
                break
        if position < batches.size:
            yield position, None
