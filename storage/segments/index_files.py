"""The index files of one segment. This module writes them, and keeps their checksums as far as
known.
"""

from __future__ import annotations

from barnabas.protocol.checksum import crc32c
from barnabas.storage.disk import File
from barnabas.storage.files.segment_files import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    TIME_SUFFIX,
    TXN_SUFFIX,
    offset_name,
)
from barnabas.storage.segments.batch_file import BatchFile

NO_FILE = -1  # the recorded size of a missing file


class IndexFiles:
    """The three index files of a segment, which are never flushed.

    sums: by suffix, the size and CRC-32C of each file that this process wrote or has read. An
    append removes the file's entry first, so a failed append leaves no wrong entry.
    """

    __slots__ = ("_batches", "sums")

    def __init__(self, batches: BatchFile) -> None:
        self._batches = batches
        self.sums: dict[str, tuple[int, int]] = {}

    def set_new(self) -> None:
        """Set `sums` for a new segment, which has two empty files and no aborted index."""
        self.sums = {INDEX_SUFFIX: (0, 0), TIME_SUFFIX: (0, 0), TXN_SUFFIX: (NO_FILE, 0)}

    def read(self, suffix: str) -> bytes | None:
        """The content of a file; None if it is missing."""
        try:
            return self._batches.disk.read(self._batches.path(suffix))
        except FileNotFoundError:
            return None

    def write(self, suffix: str, data: bytes, written_bytes: int) -> None:
        """Append to a file whose first `written_bytes` are correct. If the number is negative,
        write the whole file.
        """
        if written_bytes < 0:
            self.replace(suffix, data)
            self.sums[suffix] = len(data), crc32c(data)
            return
        file = self._batches.disk.open(self._batches.path(suffix), create=True)
        try:
            if file.size != written_bytes:
                file.truncate(min(file.size, written_bytes))
            self._append_to(file, suffix, data)
        finally:
            file.close()

    def append(self, suffix: str, data: bytes) -> None:
        """Append to a file."""
        file = self._batches.disk.open(self._batches.path(suffix), create=True)
        try:
            self._append_to(file, suffix, data)
        finally:
            file.close()

    def replace(self, suffix: str, data: bytes) -> None:
        """Replace the whole file. `sums` is not changed."""
        self._batches.disk.write_atomic(self._batches.path(suffix), data, sync=False)

    def remove(self, suffix: str) -> None:
        self._batches.disk.unlink(self._batches.path(suffix))

    def cut(self, suffix: str, size: int) -> None:
        """Cut a file. `sums` is not changed."""
        file = self._batches.disk.open(self._batches.path(suffix))
        try:
            file.truncate(size)
        finally:
            file.close()

    def checksums(self) -> list[tuple[str, int, int]]:
        """The (name, size, CRC-32C) of each index file, as this process wrote it, or as it is on
        the disk.

        The size of a missing file is -1.
        """
        rows = []
        for suffix in INDEX_SUFFIXES:
            checksum = self.sums.get(suffix)
            if checksum is None:
                data = self.read(suffix)
                checksum = self.sums[suffix] = (
                    NO_FILE if data is None else len(data),
                    crc32c(data or b""),
                )
            rows.append((offset_name(self._batches.base_offset) + suffix, *checksum))
        return rows

    def _append_to(self, file: File, suffix: str, data: bytes) -> None:
        """Append to an open file, and update its checksum if it is known."""
        size, crc = self.sums.pop(suffix, (NO_FILE, 0))
        is_whole = max(size, 0) == file.size
        file.append(data)
        if is_whole:
            self.sums[suffix] = file.size, crc32c(data, crc)
