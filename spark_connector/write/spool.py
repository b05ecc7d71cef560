"""The spool, which transports encoded record batches from tasks to the driver. Small batches are in
the commit message, larger ones in one file for each task.

A message: uint32 header size, header (msgpack), then the bytes of all batches.

    header = [version, [topic, ...], [topic index, partition, record count, size in bytes, topic
    index, ...]]

A spool file, big-endian. Lengths, checksums and the trailer show truncation and damage.

    magic     8   b"BNBSPL" and the version, uint16
    per batch:
        kind          1   1
        topic_size    2
        partition     4
        record_count  4
        data_size     4
        crc           4   CRC-32C of the 15 bytes before, the topic and the data
        topic, data
    trailer:
        kind          1   2
        batch_count   8
        total_bytes   8   of everything before the trailer
        crc           4   CRC-32C of the 17 bytes before

If the file system can rename atomically, a file gets its final name when it is complete. Otherwise
(object stores) the file appears when it is closed. The random part of its name and the trailer then
prevent another or an incomplete file from being read in its place. Files are not fsynced: if a
machine fails and loses a file, the driver notices the loss before it publishes, and Spark runs the
batch again.
"""

from __future__ import annotations

import os
import posixpath
import struct
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import msgpack
import pyarrow as pa
import pyarrow.fs as arrow_fs

from barnabas.protocol.checksum import crc32c
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch

VERSION = 1
SUFFIX = ".batches"
PARTIAL_SUFFIX = ".partial"
BUFFER_BYTES = 1 << 20

MAGIC = b"BNBSPL" + VERSION.to_bytes(2, "big")
RECORD_BATCH, TRAILER = 1, 2
_RECORD_BATCH = struct.Struct(">BHiII")
_TRAILER = struct.Struct(">BQQ")
_CRC = struct.Struct(">I")
RECORD_BATCH_HEADER_SIZE = _RECORD_BATCH.size + _CRC.size
TRAILER_SIZE = _TRAILER.size + _CRC.size

_MESSAGE = struct.Struct(">I")
# The file systems that rename atomically. Others make a file visible only when it is closed, and
# rename by copying.
RENAMING = frozenset({"local", "hdfs"})
# Hadoop's names of file systems that have another name in Arrow.
SCHEMES = {"s3a": "s3", "s3n": "s3"}


class SpoolError(ValueError):
    """A task's batches cannot be stored or read. The message names the file and says what to do."""


# --- in messages


def to_message(record_batches: Iterable[EncodedRecordBatch]) -> bytes:
    """Join the record batches to one string of bytes, which `from_message` splits."""
    topics: dict[str, int] = {}
    numbers: list[int] = []
    parts: list[bytes | bytearray | memoryview] = []
    for record_batch in record_batches:
        numbers += (
            topics.setdefault(record_batch.topic, len(topics)),
            record_batch.partition,
            record_batch.record_count,
            len(record_batch.data),
        )
        parts.append(record_batch.data)
    header = msgpack.packb([VERSION, list(topics), numbers])
    return b"".join((_MESSAGE.pack(len(header)), header, *parts))


def from_message(message: bytes) -> list[EncodedRecordBatch]:
    """Split a message into its record batches, whose data are views of the message.

    Raises: SpoolError if the message is invalid or cut off.
    """
    view = memoryview(message)
    topics, numbers, position = _message_header(view)
    record_batches = []
    for index, partition, record_count, size in zip(
        *(numbers[field::4] for field in range(4)), strict=True
    ):
        record_batches.append(
            EncodedRecordBatch(
                topics[index], partition, record_count, view[position : position + size]
            )
        )
        position += size
    if position != len(view):
        raise SpoolError(
            "A task's message to the driver is damaged: its batches are not as long as it says. "
            "Run the query again."
        )
    return record_batches


def _message_header(view: memoryview) -> tuple[list[str], list[int], int]:
    """The topics and numbers in a message's header, and the position of the first record batch."""
    try:
        (size,) = _MESSAGE.unpack_from(view)
        position = _MESSAGE.size + size
        version, topics, numbers = msgpack.unpackb(view[_MESSAGE.size : position])
    except (struct.error, ValueError, TypeError, msgpack.UnpackException) as error:
        raise SpoolError(
            "A task's message to the driver is damaged: it has no valid header. Run the query "
            "again."
        ) from error
    if version != VERSION:
        raise SpoolError(
            f"A task's message has version {version}, this driver reads {VERSION}: install the "
            "same release on all machines."
        )
    return topics, numbers, position


# --- locations


def join_uri(uri: str, *names: str) -> str:
    """Append names to a location, which is a URI or a plain path.

    Raises: SpoolError if a name is not allowed.
    """
    for name in names:
        if not name or "/" in name or name in (".", ".."):
            raise SpoolError(f"{name!r} cannot be the name of a spool file or directory.")
    if not urlsplit(uri).scheme:
        return posixpath.join(uri, *names)
    # The URI of an object store may end in settings, for example s3://bucket/path?region=...
    base, mark, settings = uri.partition("?")
    return "/".join((base.rstrip("/"), *map(quote, names))) + mark + settings


def open_file_system(uri: str) -> tuple[Any, str]:
    """The file system of a URI, and the path in that file system."""
    scheme = urlsplit(uri).scheme
    if not scheme and not os.path.isabs(uri):
        raise SpoolError(
            f"The directory {uri!r} is relative: give an absolute path, or a URI such as "
            "hdfs://host/path or s3://bucket/path."
        )
    arrow_scheme = SCHEMES.get(scheme)
    try:
        file_system, path = arrow_fs.FileSystem.from_uri(
            arrow_scheme + uri[len(scheme) :] if arrow_scheme and not os.path.isabs(uri) else uri
        )
    except pa.ArrowInvalid as error:
        raise SpoolError(
            f"{uri!r} is on a file system unknown to Arrow: {_first_line(error)}"
        ) from error
    except OSError as error:
        raise SpoolError(
            f"The file system of {uri!r} cannot be reached: {_first_line(error)}"
        ) from error
    return file_system, path


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def delete_directory(uri: str) -> None:
    """Remove a directory with its content, if it exists.

    Raises: OSError, SpoolError.
    """
    file_system, path = open_file_system(uri)
    if file_system.get_file_info(path).type == arrow_fs.FileType.NotFound:
        return
    try:
        file_system.delete_dir(path)
    except FileNotFoundError:  # another process has removed it meanwhile
        pass


def delete_micro_batches(directory_uri: str, last: int) -> None:
    """Remove the directories of a write's batches up to and including the number `last`.

    Raises: OSError, SpoolError.
    """
    file_system, path = open_file_system(directory_uri)
    for info in file_system.get_file_info(arrow_fs.FileSelector(path, allow_not_found=True)):
        if info.base_name.isdigit() and int(info.base_name) <= last:
            delete_directory(join_uri(directory_uri, info.base_name))


def is_local(uri: str) -> bool:
    """Whether a location is on this machine, so that a look-up takes little time."""
    return os.path.isabs(uri) or urlsplit(uri).scheme == "file"


def delete_spool(uri: str) -> None:
    """Remove one file, if it exists. Raises: OSError, SpoolError."""
    file_system, path = open_file_system(uri)
    _delete(file_system, path)


def _delete(file_system: Any, path: str) -> None:
    """Delete a file, if it exists."""
    try:
        file_system.delete_file(path)
    except FileNotFoundError:
        pass


# --- files


class SpoolWriter:
    """The writer of one new spool file, which is valid only after `close`.

    At the end of a `with` block it is closed, or discarded after an exception.
    """

    def __init__(self, directory_uri: str, name: str) -> None:
        """Create the directory and the file.

        Takes:  name, a name that no other writer uses, not even another attempt of the task. The
                suffix `.batches` is added.
        Raises: SpoolError if the directory or the file cannot be created.
        """
        self.uri = join_uri(directory_uri, name + SUFFIX)
        self.record_batch_count = 0
        self.byte_count = 0
        self._file_system, self._path = open_file_system(self.uri)
        renames = self._file_system.type_name in RENAMING
        self._written_path = self._path + PARTIAL_SUFFIX if renames else self._path
        try:
            self._file_system.create_dir(posixpath.dirname(self._path), recursive=True)
            self._stream = self._file_system.open_output_stream(
                self._written_path, compression=None, buffer_size=BUFFER_BYTES
            )
        except OSError as error:
            raise SpoolError(
                f"The spool file {self.uri} cannot be created: {_first_line(error)}"
            ) from error
        self._write(MAGIC)

    def append(self, record_batch: EncodedRecordBatch) -> None:
        """Write one record batch. Raises: SpoolError if the file system returns an error."""
        topic = record_batch.topic.encode()
        header = _RECORD_BATCH.pack(
            RECORD_BATCH,
            len(topic),
            record_batch.partition,
            record_batch.record_count,
            len(record_batch.data),
        )
        self._write(
            header + _CRC.pack(crc32c(record_batch.data, crc32c(topic, crc32c(header)))) + topic
        )
        self._write(record_batch.data)
        self.record_batch_count += 1

    def close(self) -> str:
        """Write the trailer, and rename the file to its final name. Gives: the URI of the file, for
        `read_spool`.
        """
        trailer = _TRAILER.pack(TRAILER, self.record_batch_count, self.byte_count)
        self._write(trailer + _CRC.pack(crc32c(trailer)))
        try:
            self._stream.close()
            if self._written_path != self._path:
                self._file_system.move(self._written_path, self._path)
        except OSError as error:
            raise SpoolError(
                f"The spool file {self.uri} cannot be closed: {_first_line(error)}"
            ) from error
        return self.uri

    def discard(self) -> None:
        """Remove the file, which is unfinished."""
        try:
            self._stream.close()
            _delete(self._file_system, self._written_path)
        except OSError:
            # The remaining file does no harm: it has no trailer, no message names it, and it is
            # removed with its directory.
            pass

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes to the file, and count them. Raises: SpoolError."""
        try:
            self._stream.write(data)
        except OSError as error:
            raise SpoolError(
                f"The spool file {self.uri} cannot be written: {_first_line(error)}"
            ) from error
        self.byte_count += len(data)

    def __enter__(self) -> SpoolWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file; after an error, discard it."""
        if kind is None:
            self.close()
        else:
            self.discard()


def read_spool(uri: str) -> Iterator[EncodedRecordBatch]:
    """Iterate over the record batches of a file. The data of each are in a separate bytearray.

    Before the first batch is returned, the file is checked for completeness.

    Raises: SpoolError if the file is missing, cut off or damaged.
    """
    file_system, path = open_file_system(uri)
    try:
        record_batch_count, end = _trailer_of(file_system, path, uri)
        with file_system.open_input_stream(
            path, compression=None, buffer_size=BUFFER_BYTES
        ) as stream:
            yield from _batches_of(stream, record_batch_count, end, uri)
    except FileNotFoundError as error:
        raise SpoolError(
            f"The spool file {uri} is missing: the spool directory has to be visible to the "
            "driver and all executors: on HDFS, in an object store or on a shared disk."
        ) from error
    except OSError as error:
        raise SpoolError(f"The spool file {uri} cannot be read: {_first_line(error)}") from error


def _trailer_of(file_system: Any, path: str, uri: str) -> tuple[int, int]:
    """The number of record batches in a file, and the position at which they end."""
    with file_system.open_input_file(path) as file:
        size = file.size()
        start = size - TRAILER_SIZE
        if start < len(MAGIC):
            raise _damaged(uri, "it is cut off")
        trailer = file.read_at(TRAILER_SIZE, start)
    kind, record_batch_count, end = _TRAILER.unpack_from(trailer)
    if (
        _CRC.unpack_from(trailer, _TRAILER.size) != (crc32c(trailer[: _TRAILER.size]),)
        or kind != TRAILER
    ):
        raise _damaged(uri, "it is cut off or its end is damaged")
    if end != start:
        raise _damaged(uri, "it is not as long as its end says")
    return record_batch_count, end


def _batches_of(
    stream: Any, record_batch_count: int, end: int, uri: str
) -> Iterator[EncodedRecordBatch]:
    """The record batches of an open file. Each is returned after its checksum was verified. Raises:
    SpoolError.
    """
    if bytes(_exactly(stream, len(MAGIC), uri)) != MAGIC:
        raise _damaged(uri, "it has no header of this release's spool files")
    position = len(MAGIC)
    for _ in range(record_batch_count):
        header = _exactly(stream, RECORD_BATCH_HEADER_SIZE, uri)
        kind, topic_size, partition, record_count, data_size = _RECORD_BATCH.unpack_from(header)
        position += RECORD_BATCH_HEADER_SIZE + topic_size + data_size
        if kind != RECORD_BATCH or position > end:
            raise _damaged(uri, "a batch does not begin where it should, or is too long")
        topic = _exactly(stream, topic_size, uri)
        data = _exactly(stream, data_size, uri)
        if _CRC.unpack_from(header, _RECORD_BATCH.size) != (
            crc32c(data, crc32c(topic, crc32c(header[: _RECORD_BATCH.size]))),
        ):
            raise _damaged(uri, "a batch's checksum is wrong")
        yield EncodedRecordBatch(topic.decode(), partition, record_count, data)
    if position != end:
        raise _damaged(uri, "it has bytes after its last batch")


def _exactly(stream: Any, size: int, uri: str) -> bytearray:
    """The next `size` bytes of the file. Raises: SpoolError if there are fewer."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = stream.readinto(view)
        if not count:
            raise _damaged(uri, "it is cut off")
        view = view[count:]
    return data


def _damaged(uri: str, why: str) -> SpoolError:
    """The error for a damaged file."""
    return SpoolError(
        f"The spool file {uri} is damaged: {why}. Run the query again, which computes the batch "
        "again."
    )
