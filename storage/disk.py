"""The interface between the storage engine and the machine.

All access to a file system uses `Disk` and `File`. `OsDisk` is the real one. A simulated disk
implements the same two protocols, so that the whole engine runs in a seeded simulation. Paths are
plain strings with `/`. A file is written only at its end, read anywhere, and cut; nothing is
overwritten in place.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import resource
import shutil
import struct
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import cache
from typing import NamedTuple, Protocol

logger = logging.getLogger(__name__)

Data = bytes | bytearray | memoryview
BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
_AT_FDCWD, _STATX_MNT_ID_UNIQUE, _STATX_BYTES, _MOUNT_AT = -100, 0x4000, 256, 144  # linux/stat.h
_READ_BYTES = 64 << 10
# The mode of all files, since records are confidential as well. A less strict mode for the other
# files would not help another user to make a copy: the copy would be useless without the metadata
# journal, which has the salted passwords and must stay secret.
OWNERS_ALONE, OTHERS = 0o600, 0o077
TEMPORARY_SUFFIX = ".tmp"  # of the file that replaces another one
_OUT_OF_RESOURCES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE})


def is_out_of_resources(error: OSError) -> bool:
    """Whether a retry may succeed later.

    It may if space, inodes, a quota, a file's maximum size or the file descriptors are exhausted.
    Other errors mean that the disk fails.
    """
    return error.errno in _OUT_OF_RESOURCES


def is_out_of_descriptors(error: OSError) -> bool:
    """Whether the process or the system has no file descriptor left. This is not a failure of the
    disk.
    """
    return error.errno in (errno.EMFILE, errno.ENFILE)


def is_out_of_space(error: OSError) -> bool:
    """Whether a write failed for lack of space, inodes or quota."""
    return (
        is_out_of_resources(error)
        and not is_out_of_descriptors(error)
        and not isinstance(error, FailedFsync)
    )


class FailedFsync(OSError):
    """An fsync failed, for whatever reason. The kernel may have dropped the written pages."""


class NotWrittenError(OSError):
    """There was no disk space for a write. No part of it is in the file, since a partial write was
    cut off.

    The code that raises this error has changed no state that depends on the write. The caller
    rejects the request that needs the write, or repeats the write later
    (`broker/logs/unwritten_work.py`).
    """


def not_written(error: OSError) -> OSError:
    """The error to raise for a write that left no bytes: NotWrittenError if a retry may succeed,
    otherwise `error` itself.
    """
    if not is_out_of_resources(error) or isinstance(error, FailedFsync | NotWrittenError):
        return error
    return NotWrittenError(error.errno, error.strerror, error.filename)


def log_lack_of_space(what: str, error: OSError) -> None:
    """Log that a write is postponed for lack of space. Raises: the error, if it has another
    cause.
    """
    if not isinstance(not_written(error), NotWrittenError):
        raise error
    logger.warning("%s waits for space: %s", what, error)


def cut_back(truncate: Callable[[int], None], size: int) -> None:
    """Cut off the bytes that a failed append may have written. Raises: OSError.

    If even the cut fails for lack of a file descriptor, the next append overwrites the bytes, since
    it begins at the same position.
    """
    try:
        truncate(size)
    except OSError as error:
        if not is_out_of_resources(error):
            raise


def may_have_lost_pages(error: OSError) -> bool:
    """Whether written pages may be lost after this error, as after a failed fsync.

    They are not lost if the cause is a lack of space, descriptors or permissions for new data.
    """
    return isinstance(error, FailedFsync) or not (
        is_out_of_resources(error) or error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM)
    )


def _sync(sync: Callable[[int], None], fd: int, path: str) -> None:
    """Fsync a descriptor. Raises: FailedFsync. The file must not be used after that, since another
    fsync would succeed without the lost data.
    """
    try:
        sync(fd)
    except OSError as error:
        raise FailedFsync(error.errno, error.strerror, path) from error


class Syncable(Protocol):
    """A file or directory that a flush makes durable."""

    def fsync(self) -> None: ...


REPLACING_SUFFIX = ".new"
"""The suffix of a file that will replace another one once it is durable."""

SyncSteps = Generator[Sequence[Syncable], None, None]
"""A change of files in steps: each step yields the files that have to be fsynced before the next
one, perhaps by another thread. After a step without files the next step is done later.
"""


def run_at_once(steps: SyncSteps) -> None:
    """Carry out a change of files, including its fsyncs, in this call."""
    for files in steps:
        for file in files:
            file.fsync()


class File(Protocol):
    """One open file. Each append and truncate updates `size`."""

    path: str
    size: int

    def append(self, data: Data) -> int:
        """Write all of `data` at the end. Gives: the position of its first byte.

        After an error that `is_out_of_resources`, a caller may reject the request; any other
        OSError is fatal. In both cases, a part of the data may be in the file: see `cut_back`.
        """

    def pread(self, size: int, position: int) -> bytes:
        """Read `size` bytes from `position`, or fewer at the end of the file."""

    def fsync(self) -> None:
        """Make all appended data durable. This is the only method that another thread may call."""

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...

    def readinto(self, buffer: memoryview, position: int) -> int:
        """Read from `position` into the buffer. Gives: the number of bytes, which is smaller than
        the buffer only at the end of the file.
        """

    def sendfile(self, socket: int, position: int, size: int) -> int:
        """Send up to `size` bytes from `position` to a socket's descriptor.

        Gives:  the number of bytes; 0 if the file ends before `position`.
        """


def append_whole(file: File, data: Data) -> int:
    """Append all of `data`, or nothing. Gives: the position of its first byte.

    Raises: NotWrittenError if there is no space; OSError.
    """
    size = file.size
    try:
        return file.append(data)
    except OSError as error:
        cut_back(file.truncate, size)
        raise not_written(error) from error


class Slice(NamedTuple):
    """A part of one segment's file, which is sent to a client unchanged."""

    file: File
    position: int
    size: int


class Lock(Protocol):
    """A lock of this process. After `release`, another process can take it."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system. For missing files, methods raise FileNotFoundError."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def mkdir(self, path: str) -> None:
        """Make a directory and its parents, unless they exist."""

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, path: str) -> None:
        """Remove a file, if it exists."""

    def rmtree(self, path: str) -> None:
        """Remove a directory with its content, if it exists. If it is a symbolic link to a
        directory on another disk, remove the link, and the content of that directory.
        """

    def read(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        """Replace the whole file, or leave it unchanged.

        Without `sync`, a power loss may damage the new file. It then needs a checksum.
        """

    def fsync_dir(self, path: str) -> None: ...

    def fsync_file(self, path: str) -> None:
        """Make durable a file that is not open. Another thread may call this method."""

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...

    def most_open_files(self) -> int:
        """The maximum number of file descriptors of the process."""
        ...

    def reserve_descriptors(self, count: int) -> None:
        """Set the number of descriptors that connections need. Only a disk that can close files
        uses this.
        """

    def lock(self, path: str) -> Lock:
        """Lock the file against other processes. Raises: BlockingIOError if another process has the
        lock.
        """

    def boot_id(self) -> str | None:
        """An id that changes with each start of the machine; None if the system has no such id."""

    def mount_id(self, path: str) -> str:
        """An identifier that differs between the directory and its copies, where the operating
        system allows this. It changes when the directory's file system is mounted again.
        """


class DirectorySync:
    """A directory as a part of a flush. New files are durable only when their names in it are.

    Instances for the same directory are equal.
    """

    __slots__ = ("directory", "disk")

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory

    def fsync(self) -> None:
        with suppress(FileNotFoundError):  # a topic was deleted since the flush began
            self.disk.fsync_dir(self.directory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DirectorySync) and other.directory == self.directory

    def __hash__(self) -> int:
        return hash(self.directory)


class FileSync:
    """One file as a part of a flush. It is given by its path, and opened when it is fsynced.

    Instances for the same file are equal.
    """

    __slots__ = ("disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path

    def fsync(self) -> None:
        with suppress(FileNotFoundError):  # the file was deleted since the flush began
            self.disk.fsync_file(self.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileSync) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)


class OsFile:
    """A file with a descriptor, which is closed with the last reference to the object.

    A deleted file can therefore be read while a slice of it is sent.
    """

    __slots__ = ("_fd", "path", "size")

    def __init__(self, path: str, *, create: bool = False) -> None:
        self._fd = -1  # __del__ needs this attribute even if the open fails
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._fd = os.open(path, flags, OWNERS_ALONE)
        status = os.fstat(self._fd)
        self.size = status.st_size
        if create and status.st_mode & OTHERS:
            self._take_from_others()

    def _take_from_others(self) -> None:
        """Restrict the mode of an existing file. It may contain secrets, and an earlier version may
        have created it with another mode.
        """
        with suppress(PermissionError):  # another user owns it
            os.fchmod(self._fd, OWNERS_ALONE)

    def append(self, data: Data) -> int:
        """Write all of the data at the end. Gives: the position before it."""
        position = self.size
        size = len(data)
        written = os.pwrite(self._fd, data, position)
        while written < size:
            done = os.pwrite(self._fd, memoryview(data)[written:], position + written)
            if done == 0:
                raise OSError(errno.ENOSPC, "no more bytes can be written", self.path)
            written += done
        self.size = position + size
        return position

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def fsync(self) -> None:
        _sync(os.fdatasync, self._fd, self.path)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def readinto(self, buffer: memoryview, position: int) -> int:
        return os.preadv(self._fd, [buffer], position)

    def sendfile(self, socket: int, position: int, size: int) -> int:
        return os.sendfile(socket, self._fd, position, size)

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        self.close()


class OsLock:
    """A lock on one file, held until it is released or the process ends.

    It consists of two locks. flock also excludes other locks of this process. fcntl's lock is the
    one that Java uses, so Apache Kafka and this broker exclude each other.
    """

    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        """Take both locks on the file. Raises: BlockingIOError if another process has one of
        them.
        """
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNERS_ALONE)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(error.errno, error.strerror, path) from error
            raise

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsDisk:
    """The machine's own file system."""

    def open(self, path: str, *, create: bool = False) -> File:
        return OsFile(path, create=create)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def mkdir(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def rmtree(self, path: str) -> None:
        try:
            if os.path.islink(path):
                with suppress(FileNotFoundError, NotADirectoryError):
                    _remove_content(path)
                os.unlink(path)
            else:
                shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except NotADirectoryError:
            os.unlink(path)

    def read(self, path: str) -> bytes:
        # A Python file object would make three more system calls for each file that a start reads.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(fd, _READ_BYTES):
                parts.append(part)
        finally:
            os.close(fd)
        return b"".join(parts)

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        """Replace the file. After a kill it has either the old or the new content. Takes: sync,
        whether to make the new content durable.
        """
        temporary = path + TEMPORARY_SUFFIX
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(temporary, flags, OWNERS_ALONE)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if sync:
                _sync(os.fdatasync, fd, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)  # otherwise the partial file would use up space that is needed
            raise
        finally:
            os.close(fd)
        os.replace(temporary, path)
        if sync:
            self.fsync_dir(os.path.dirname(path) or ".")

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync(os.fsync, fd, path)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize

    def fsync_file(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _sync(os.fdatasync, fd, path)
        finally:
            os.close(fd)

    def most_open_files(self) -> int:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return sys.maxsize if limit == resource.RLIM_INFINITY else limit

    def reserve_descriptors(self, count: int) -> None:
        pass

    def lock(self, path: str) -> Lock:
        return OsLock(path)

    def boot_id(self) -> str | None:
        try:
            return self.read(BOOT_ID_PATH).decode().strip() or None
        except OSError:
            return None

    def mount_id(self, path: str) -> str:
        """The kernel's number of the mount, and the directory's device and inode. The number is
        never used again by another mount (since Linux 6.8; before, it is 0).
        """
        status = os.stat(path)
        return f"{_unique_mount(path)}-{status.st_dev}-{status.st_ino}"


def _remove_content(directory: str) -> None:
    """Remove everything in a directory. Links in it are removed, not what they lead to."""
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


@cache
def _libc() -> ctypes.CDLL:
    """The C library. Each CDLL would make a class of its own."""
    return ctypes.CDLL(None, use_errno=True)


def _unique_mount(path: str) -> int:
    """The STATX_MNT_ID_UNIQUE of statx(2), for which Python has no function; 0 if it is not
    supported.
    """
    statx = getattr(_libc(), "statx", None)
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if statx is None or statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_MNT_ID_UNIQUE, buffer):
        return 0
    (mask,) = struct.unpack_from("=I", buffer)
    (mount,) = struct.unpack_from("=Q", buffer, _MOUNT_AT)
    return int(mount) if mask & _STATX_MNT_ID_UNIQUE else 0


def sync_file_system(path: str) -> None:
    """Make all files of the path's file system durable. Raises: OSError.

    For a directory with 10,000 partitions, one call replaces 60,000 fsyncs.
    """
    syncfs = getattr(_libc(), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if syncfs(descriptor):
            raise FailedFsync(ctypes.get_errno(), "the file system cannot be synced", path)
    finally:
        os.close(descriptor)
