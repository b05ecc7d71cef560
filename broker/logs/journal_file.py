"""The file of a journal: frames, each appended by one write and flushed before it takes effect.

    at  size  field
     0   4    length of the body
     4   4    CRC-32C of the body
     8   n    body: a msgpack map with a `kind`

metadata.py lists the kinds, and says when a journal is rewritten.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgpack

from barnabas.protocol.checksum import crc32c
from barnabas.storage.disk import (
    DirectorySync,
    Disk,
    File,
    SyncSteps,
    append_whole,
    is_out_of_resources,
)
from barnabas.storage.log.log_directory import LogDirectoryError

VERSION = 1
ENCODED_AT_ONCE = 1000  # the number of frames encoded in one slice, which takes 5 ms
FRAME = struct.Struct(">II")


class JournalError(LogDirectoryError):
    """The journal is damaged; the text names the place of the damage and a remedy."""


def encode_frame(body: dict[str, Any]) -> bytes:
    """The bytes of one frame."""
    data: bytes = msgpack.packb(body)
    return FRAME.pack(len(data), crc32c(data)) + data


HEADER = encode_frame({"kind": "header", "version": VERSION})


def header(epoch: int, size: int) -> bytes:
    """The first frame of a rewritten journal. It has the same length whatever the size."""
    first = {"kind": "header", "version": VERSION, "epoch": epoch, "size": size.to_bytes(8)}
    return encode_frame(first)


def decode_frame(data: bytes, position: int) -> dict[str, Any] | None:
    """The frame's body, or None if it is incomplete or wrong."""
    if position + FRAME.size > len(data):
        return None
    length, crc = FRAME.unpack_from(data, position)
    start = position + FRAME.size
    if length == 0 or start + length > len(data):
        return None
    body = data[start : start + length]
    if crc32c(body) != crc:
        return None
    try:
        decoded = msgpack.unpackb(body)
    except (ValueError, msgpack.exceptions.ExtraData):
        return None
    return decoded if isinstance(decoded, dict) else None


def is_torn_header(data: bytes) -> bool:
    """Whether a kill or a power loss can have left these bytes of a new file: the beginning of the
    header, with zeros for bytes that did not reach the disk.
    """
    return len(data) <= len(HEADER) and all(
        actual in (0, meant) for actual, meant in zip(data, HEADER, strict=False)
    )


def check_torn(path: str, data: bytes, position: int) -> None:
    """Check that an unreadable frame is the last one, torn by a kill.

    The file is damaged if a valid frame follows, or if the unreadable frame is the first one and
    more bytes follow.

    Takes:  path, for the text of the error.
    Raises: JournalError if the file is damaged.
    """
    if position == 0 and not is_torn_header(data):
        raise JournalError(
            f"{path} is damaged at byte 0, or is not a journal: restore the file from a copy; "
            "or move it away, and the topics are taken over from their directories, without "
            "their settings"
        )
    for later in range(position + 1, len(data) - FRAME.size):
        body = decode_frame(data, later)
        if isinstance(body, dict) and "kind" in body:
            raise JournalError(
                f"{path} is damaged at byte {position}, and good changes follow at byte "
                f"{later}: restore the file from a copy; "
                "or move it away, and the topics are taken over from their directories, "
                "without their settings"
            )


class JournalFile:
    """The file of a journal, which is created if it does not exist.

    _is_name_durable: whether the rename of this file is durable. Before that, a power loss may
    bring back the file that it replaced.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk, self._path = disk, path
        self._directory = path.rsplit("/", 1)[0] or "/"
        self._file = disk.open(path, create=True)
        self._is_name_durable = False

    def content(self) -> bytes:
        """The content of the file."""
        return self._file.pread(self._file.size, 0)

    def truncate(self, size: int) -> None:
        """Cut the file to the given size, and make this durable."""
        self._file.truncate(size)
        self._file.fsync()

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self._file.size

    def append(self, data: bytes) -> None:
        """Append and flush. Raises: NotWrittenError if there is no space, in which case nothing is
        written; OSError.
        """
        if data:
            append_whole(self._file, data)
        self._file.fsync()
        self._make_name_durable()

    def _make_name_durable(self) -> None:
        """Flush the directory, if the file's name may not be durable yet."""
        if not self._is_name_durable:
            self._disk.fsync_dir(self._directory)
            self._is_name_durable = True

    def replace_by(self, path: str) -> SyncSteps:
        """Replace the file by another one, in steps. The content of the other file is durable. From
        the first step on, appends are written to it.
        """
        self._disk.rename(path, self._path)
        self._is_name_durable = False
        self._file.close()
        self._file = self._disk.open(self._path)
        yield [DirectorySync(self._disk, self._directory)]
        self._is_name_durable = True

    def close(self) -> None:
        """Close the file."""
        self._make_name_durable()
        self._file.close()


class Rewriting:
    """A journal that is being rewritten.

    epoch: the epoch of the new journal. frame_count: the number of its frames so far. is_encoded:
    whether all frames of the state are encoded. file: the new file, to which changes are written
    and flushed; None as long as changes are added to the content in memory.
    """

    def __init__(self, living: Iterator[dict[str, Any]], epoch: int) -> None:
        self._living, self.epoch = living, epoch
        self._encoded = bytearray()
        self._changes: list[bytes] = []
        self.frame_count = 1
        self.is_encoded = False
        self.file: File | None = None

    def encode_some(self) -> bool:
        """Encode some more frames of the state. Gives: whether all frames are now encoded."""
        for count, body in enumerate(islice(self._living, ENCODED_AT_ONCE), 1):
            self._encoded += encode_frame(body)
            self.frame_count += 1
            if count == ENCODED_AT_ONCE:
                return False
        self.is_encoded = True
        return True

    def try_add(self, frame: bytes, count: int) -> bool:
        """Add a change that was made after the rewriting began. Gives: False if there is no disk
        space for it.
        """
        self.frame_count += count
        if self.file is None:
            self._changes.append(frame)
            return True
        try:
            self.file.append(frame)
            self.file.fsync()
        except OSError as error:
            if not is_out_of_resources(error):
                raise
            return False
        return True

    def write(self, disk: Disk, path: str) -> SyncSteps:
        """Write the new file, in steps. At the end it contains all changes, and they are
        durable.
        """
        content = self._take_content()
        size = len(header(self.epoch, 0)) + len(content)
        disk.write_atomic(path, header(self.epoch, size) + content, sync=False)
        file = disk.open(path)
        yield [file]
        changes = self._take_content()
        if changes:  # from now on each change is written to both files, and is durable in both
            file.append(changes)
            self.file = file
            yield [file]
        file.close()

    def _take_content(self) -> bytes:
        """The encoded content that is not written to the new file yet."""
        content = b"".join([self._encoded, *self._changes])
        self._encoded, self._changes = bytearray(), []
        return content
