"""A disk that publishes each change of the data directory after the change is made.

Files that another process writes (the cleaner's new segments) are published when they are renamed:
first their bytes, then their names. The files of a new log, which a thread makes, are published
once the log uses them.

When this node makes the directory of a partition, it adds the file `barnabas-not-sent`, called the
mark. The mark is removed when a standby has the directory (`leading`). So after a take-over the
node can distinguish directories that the new leader never had from those that it lost
(`lost_partitions`). The sync that makes the names in the directory durable includes the mark.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.replication.operations import (
    FilePiece,
    Kind,
    Operation,
    is_local,
    is_unfinished,
)
from barnabas.storage.disk import REPLACING_SUFFIX, Data, Disk, File
from barnabas.storage.files.checkpoints import NOT_SENT_NAME
from barnabas.storage.log.new_files import is_of_new_files

PIECE_BYTES = 1 << 20
Publish = Callable[[Operation], None]


class ReplicatedFile:
    """A file whose changes are published."""

    __slots__ = (
        "_disk",
        "_file",
        "_name",
        "close",
        "fsync",
        "path",
        "pread",
        "readinto",
        "sendfile",
    )

    def __init__(self, disk: ReplicatedDisk, file: File, name: str) -> None:
        self._disk, self._file, self._name = disk, file, name
        self.path, self.close, self.fsync = file.path, file.close, file.fsync
        self.pread, self.readinto, self.sendfile = file.pread, file.readinto, file.sendfile

    @property
    def size(self) -> int:
        """The size of the file after the last change by this handle."""
        return self._file.size

    @size.setter
    def size(self, size: int) -> None:
        self._file.size = size

    def append(self, data: Data) -> int:
        """Append the data. Gives: the position where they begin. Raises: OSError."""
        file, disk = self._file, self._disk
        position = file.append(data)
        if disk.publish is not None:
            disk.publish(Operation(Kind.APPEND, self._name, position, bytes(data)))
        return position

    def truncate(self, size: int) -> None:
        """Cut the file to a size. Raises: OSError."""
        self._file.truncate(size)
        self._disk.tell(Operation(Kind.TRUNCATE, self._name, size))


class ReplicatedDisk:
    """The disk of a leader. publish: the function that gets the operations; None while no standby
    follows.

    Takes: disk, the disk that the data directory is on.
    """

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._inside = data_dir.rstrip("/") + "/"
        self.publish: Publish | None = None
        self.exists, self.is_dir, self.list = disk.exists, disk.is_dir, disk.list
        self.size, self.modified_ms, self.read = disk.size, disk.modified_ms, disk.read
        self.fsync_dir, self.fsync_file, self.lock = disk.fsync_dir, disk.fsync_file, disk.lock
        self.most_open_files = disk.most_open_files
        self.reserve_descriptors = disk.reserve_descriptors
        self.free_bytes, self.total_bytes = disk.free_bytes, disk.total_bytes
        self.boot_id, self.mount_id = disk.boot_id, disk.mount_id

    def tell(self, operation: Operation) -> None:
        """Publish an operation, if a standby follows."""
        if self.publish is not None:
            self.publish(operation)

    def open(self, path: str, *, create: bool = False) -> File:
        """A file whose changes are published if it is below the data directory."""
        name = self._name(path)
        is_new = create and name is not None and not self._disk.exists(path)
        file = self._disk.open(path, create=create)
        if name is None:
            return file
        if is_new:
            self.tell(Operation(Kind.CREATE, name))
        return ReplicatedFile(self, file, name)

    def mkdir(self, path: str) -> None:
        """Make a directory, as `Disk` does. A new directory of a partition gets a mark
        (NOT_SENT_NAME), which stays until the standby has the directory.
        Another thread makes the directories of new logs.
        """
        is_inside = path.startswith(self._inside)
        is_partitions = is_inside and "/" not in path[len(self._inside) :].lstrip("/")
        is_marked = is_partitions and not self._disk.is_dir(path)
        self._disk.mkdir(path)
        if is_marked:
            self._disk.open(f"{path}/{NOT_SENT_NAME}", create=True).close()
        self._tell_of(Kind.MAKE_DIRECTORY, path)

    def rename(self, old: str, new: str) -> None:
        """Rename as `Disk` does. The bytes of a file that the cleaner's process has written are
        published first, since that process does not publish them.
        """
        name, new_name = self._name(old), self._name(new)
        if name is not None and is_unfinished(old) and self.publish is not None:
            self._tell_content(old, name)
        self._disk.rename(old, new)
        if name is not None and new_name is not None:
            self.tell(Operation(Kind.RENAME, name, new_path=new_name))
        # The old name is local, so the standby has no file that it could rename. The content is
        # sent instead.
        elif new_name is not None and is_of_new_files(old):
            self._tell_new_directory(new, new_name)
        elif new_name is not None and old.endswith(REPLACING_SUFFIX) and self.publish is not None:
            self.tell(Operation(Kind.REPLACE, new_name, data=self.read(new)))

    def unlink(self, path: str) -> None:
        """Remove a file, as `Disk` does."""
        self._disk.unlink(path)
        self._tell_of(Kind.REMOVE, path)

    def rmtree(self, path: str) -> None:
        """Remove a directory, as `Disk` does."""
        self._disk.rmtree(path)
        self._tell_of(Kind.REMOVE_TREE, path)

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        """Replace a file, as `Disk` does."""
        self._disk.write_atomic(path, data, sync=sync)
        name = self._name(path)
        if name is not None:
            self.tell(Operation(Kind.REPLACE, name, data=bytes(data)))

    def _name(self, path: str) -> str | None:
        """The path relative to the data directory; None for a path outside of it, or a local
        file.
        """
        if not path.startswith(self._inside):
            return None
        # there are two slashes if data_dir ends with one
        name = path[len(self._inside) :].lstrip("/")
        return None if is_local(name) else name

    def _tell_of(self, kind: Kind, path: str) -> None:
        """Publish an operation on a path, unless the path is not replicated."""
        name = self._name(path)
        if name is not None:
            self.tell(Operation(kind, name))

    def _tell_new_directory(self, path: str, name: str) -> None:
        """Publish a new log's directory, since the thread that made it has not published it."""
        self.tell(Operation(Kind.MAKE_DIRECTORY, name))
        if self.publish is not None:
            for file in self.list(path):
                if is_local(f"{name}/{file}"):
                    continue
                content = self.read(f"{path}/{file}")
                self.tell(Operation(Kind.REPLACE, f"{name}/{file}", data=content))

    def _tell_content(self, path: str, name: str) -> None:
        """Publish a file with all its content: its creation, then its bytes in pieces."""
        # the file is read when it is sent, and closed with its last piece
        file = self._disk.open(path)
        self.tell(Operation(Kind.CREATE, name))
        for position in range(0, file.size, PIECE_BYTES):
            piece = FilePiece(file, position, min(PIECE_BYTES, file.size - position))
            self.tell(Operation(Kind.APPEND, name, position, piece))
