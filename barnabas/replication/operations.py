"""The operations of a broker on its data directory, as an ordered stream of values, and their
replay on a copy.

A broker appends to files, cuts them, and replaces small ones as a whole (`storage.disk`). So its
directory is the result of its operations. A copy that applies them in the same order has, after
each operation, the state that a kill at that moment would have left:

    kind             path       position          data    new_path
    CREATE           file                                            nothing if it exists
    APPEND           file       where it begins   bytes
    TRUNCATE         file       the size
    REPLACE          file                         bytes              the whole file, or nothing
    RENAME           any                                  any
    REMOVE           file                                            nothing if it is missing
    MAKE_DIRECTORY   directory                                       nothing if it exists
    REMOVE_TREE      directory                                       nothing if it is missing

Paths are relative to the data directory. Files of one process or machine are not replicated
(`is_local` in `storage.files.data_files`).
"""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum
from typing import NamedTuple

from barnabas.storage.disk import REPLACING_SUFFIX, TEMPORARY_SUFFIX, Disk, File
from barnabas.storage.files.data_files import OF_DIRECTORY, OF_PARTITION, names_of
from barnabas.storage.files.segment_files import CLEANED_SUFFIX, STRAY_SUFFIX
from barnabas.storage.log.new_files import is_of_new_files

LOCAL = names_of(kind for kind in OF_DIRECTORY if kind.is_local)
_LEFT_HERE = (
    TEMPORARY_SUFFIX,
    REPLACING_SUFFIX,
    *(f"/{name}" for name in sorted(names_of(kind for kind in OF_PARTITION if kind.is_local))),
)
MOST_OPEN_FILES = 256


class Kind(IntEnum):
    """The kind of an operation; see the module's table."""

    CREATE = 1
    APPEND = 2
    TRUNCATE = 3
    REPLACE = 4
    RENAME = 5
    REMOVE = 6
    MAKE_DIRECTORY = 7
    REMOVE_TREE = 8


class FilePiece(NamedTuple):
    """A part of a file that no longer changes. Its bytes are read when they are sent."""

    file: File
    position: int
    size: int

    def read(self) -> bytes:
        return self.file.pread(self.size, self.position)


class Operation(NamedTuple):
    """One operation on a data directory."""

    kind: Kind
    path: str
    position: int = 0
    data: bytes | FilePiece = b""
    new_path: str = ""

    @property
    def content(self) -> bytes:
        """The bytes of the operation."""
        return self.data if isinstance(self.data, bytes) else self.data.read()


class DivergedError(Exception):
    """The copy is not in the state that the operation expects. It has to be compared with the
    leader's directory again.
    """


def is_local(path: str) -> bool:
    """Whether a file of the data directory is only for this process or machine, so that it is not
    replicated.
    """
    is_left_here = path.endswith(_LEFT_HERE)
    return path in LOCAL or is_left_here or is_stray(path) or is_of_new_files(path)


def is_stray(path: str) -> bool:
    """Whether a directory was set aside on this machine, or a file is in such a directory."""
    return path.partition("/")[0].endswith(STRAY_SUFFIX)


def is_unfinished(path: str) -> bool:
    """Whether the cleaner's process is writing the file. Such a file is published when it is
    renamed.
    """
    return path.endswith(CLEANED_SUFFIX)


class Replica:
    """A copy of a data directory, to which operations are applied.

    The most recently written files are kept open.
    """

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk, self._data_dir = disk, data_dir
        self._files: OrderedDict[str, File] = OrderedDict()

    def apply(self, operation: Operation) -> None:
        """Apply an operation to the copy. Raises: DivergedError, OSError."""
        kind, name, position, _, new_name = operation
        disk, path = self._disk, self._path(name)
        if kind is Kind.APPEND:
            file = self._open(name)
            if file.size != position:
                raise DivergedError(
                    f"{name} has {file.size} bytes, and the next write is at {position}"
                )
            file.append(operation.content)
        elif kind is Kind.CREATE:
            self._open(name)
        elif kind is Kind.TRUNCATE:
            file = self._open(name)
            if file.size < position:
                raise DivergedError(f"{name} has {file.size} bytes, and is cut to {position}")
            file.truncate(position)
        elif kind is Kind.REPLACE:
            self._close(name)  # the open handle refers to the file that is replaced
            disk.write_atomic(path, operation.content, sync=False)
        elif kind is Kind.RENAME:
            self._close_below(name)
            self._close_below(new_name)
            try:
                disk.rename(path, self._path(new_name))
            except FileNotFoundError as error:
                raise DivergedError(
                    f"{name} does not exist, and cannot be renamed to {new_name}"
                ) from error
        elif kind is Kind.REMOVE:
            self._close(name)
            disk.unlink(path)
        elif kind is Kind.MAKE_DIRECTORY:
            disk.mkdir(path)
        else:
            self._close_below(name)
            disk.rmtree(path)

    def close(self) -> None:
        """Close all files."""
        while self._files:
            self._files.popitem()[1].close()

    def _path(self, name: str) -> str:
        """The path of a file in the copy. Raises: DivergedError if it is not below the data
        directory.
        """
        parts = name.split("/")
        if not name or any(part in ("", ".", "..") for part in parts) or "\0" in name:
            raise DivergedError(f"{name!r} is not a path below the data directory")
        return f"{self._data_dir}/{name}"

    def _open(self, name: str) -> File:
        """The open handle of a file, which is created if it is missing. If too many files are open,
        the least recently used one is closed.
        """
        file = self._files.get(name)
        if file is not None:
            self._files.move_to_end(name)
            return file
        path = self._path(name)
        try:
            file = self._files[name] = self._disk.open(path, create=True)
        except FileNotFoundError as error:
            raise DivergedError(f"the directory of {name} does not exist") from error
        if len(self._files) > MOST_OPEN_FILES:
            self._files.popitem(last=False)[1].close()
        return file

    def _close(self, name: str) -> None:
        """Close a file, if it is open."""
        file = self._files.pop(name, None)
        if file is not None:
            file.close()

    def _close_below(self, name: str) -> None:
        """Close a file, or all files in a directory."""
        inside = name + "/"
        for known in [one for one in self._files if one == name or one.startswith(inside)]:
            self._close(known)
