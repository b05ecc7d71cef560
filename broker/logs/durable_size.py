"""Records the durable size of a journal, so that a start can compare it with the journal's actual
size.

A journal that was cut between two of its frames looks like one that never had the later frames. The
file beside it, `<journal>.size`, says the size of the journal after each of its flushes. The file
consists of records, each appended after the flush that it describes:

    at  size  field
     0   4    epoch: how often the journal was rewritten
     4   8    size of the journal in bytes
    12   4    CRC-32C of the above

The highest record counts; incomplete and damaged records are ignored. The file is not flushed with
each change, which would need one more fsync, so the recorded size is a lower bound. After a kill,
and after a change of the journal by another program, it is exact. A power loss may remove the
records of the last half minute, for which the kernel keeps written data in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from barnabas.protocol.checksum import crc32c
from barnabas.storage.disk import Disk, File, is_out_of_resources

SIZE_SUFFIX = ".size"
MOST_RECORDS = 256  # a file with more records is replaced by one with a single record
_RECORD = struct.Struct(">IQ")
_CRC = struct.Struct(">I")
RECORD_BYTES = _RECORD.size + _CRC.size


def encode_record(epoch: int, size: int) -> bytes:
    """One record."""
    body = _RECORD.pack(epoch, size)
    return body + _CRC.pack(crc32c(body))


def records_in(data: bytes) -> Iterator[tuple[int, int] | None]:
    """Yields the (epoch, size) of each complete record in a file's content; None for a damaged
    record.
    """
    for at in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        body = data[at : at + _RECORD.size]
        is_right = _CRC.unpack_from(data, at + _RECORD.size)[0] == crc32c(body)
        yield _RECORD.unpack(body) if is_right else None


def highest_record(data: bytes) -> tuple[int, int] | None:
    """The highest (epoch, size) in a file's content; None if no record is valid."""
    return max((record for record in records_in(data) if record is not None), default=None)


class DurableSize:
    """The file that records the durable size of one journal. noted: the (epoch, size) of its last
    record, or None.
    """

    def __init__(self, disk: Disk, journal_path: str) -> None:
        self.path = journal_path + SIZE_SUFFIX
        self._disk = disk
        self._file: File | None = None
        try:
            self.noted = highest_record(disk.read(self.path))
        except FileNotFoundError:
            self.noted = None

    def note(self, epoch: int, size: int) -> None:
        """Record the size of the journal, all of which is durable.

        If there is no disk space, the previous record remains. It is also a lower bound.
        """
        if self.noted == (epoch, size):
            return
        record = encode_record(epoch, size)
        try:
            if self._file is None:
                self._file = self._disk.open(self.path, create=True)
            if self._file.size % RECORD_BYTES or self._file.size >= MOST_RECORDS * RECORD_BYTES:
                self._begin_again(record)
            else:
                self._file.append(record)
        except OSError as error:
            if not is_out_of_resources(error):
                raise
            return
        self.noted = epoch, size

    def _begin_again(self, record: bytes) -> None:
        """Replace the file by one that contains only the given record."""
        self.forget(removes=False)
        self._disk.write_atomic(self.path, record, sync=False)

    def forget(self, *, removes: bool = True) -> None:
        """Close the file. removes: whether the file is also removed, because its journal was
        removed.
        """
        if self._file is not None:
            self._file.close()
            self._file = None
        if removes:
            self._disk.unlink(self.path)
            self.noted = None

    def close(self) -> None:
        """Flush and close the file."""
        if self._file is not None:
            self._file.fsync()
        self.forget(removes=False)
