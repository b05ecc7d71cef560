"""A disk whose open files share a limited number of descriptors.

A log has a `File` for each used segment, and there may be more segments than the process may have
descriptors. A `PooledFile` is therefore open only while it is among the most recently used ones.
When another file is opened, the least recently used one is closed. On its next use, it is opened
again by its path.

    subject             rule
    share of files      `files_share` of the process's limit, minus the descriptors that are
                        reserved for connections
    no descriptor left  after EMFILE or ENFILE of any operation, a part of the files is closed, and
                        the operation repeated; the caller gets the error if it fails with as few
                        open files as connections always leave
    a closed file's     a rename of the file, or of its directory, is recorded: the file is found
    name                under its new name, and never another one under its old name
    a removed name      before `unlink`, `rmtree` and a replacement the file is opened (at most a
                        quarter of the share are) and stays open, as a reader's slice has to be
                        sent to its end; otherwise reading it raises FileNotFoundError
    a directory in the  is set aside: it is renamed, which is logged, and the operation is repeated
    place of a file     as if there were nothing at its path

Threads: a flush calls `fsync` in a separate thread, and another thread makes files in directories
that are not in use yet. The loop does everything else. A file in use keeps its descriptor, since
the caller has a reference to the open file; closing it drops only the pool's reference. The number
of a descriptor is used only within a call of the open file.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar
from weakref import ReferenceType, ref

from barnabas.storage.disk import TEMPORARY_SUFFIX, Data, Disk, File, is_out_of_descriptors
from barnabas.storage.files.segment_files import STRAY_SUFFIX

# One eighth of the descriptors, and at least 64, are kept from connections.
_KEPT_SHARE, _FEWEST_KEPT = 8, 64
_CLIENTS_SHARE = 4
_FEWEST_BESIDE = 4
_CLOSED_TOGETHER = 8  # one eighth of the open files is closed at once
_REMOVED_SHARE = 4

T = TypeVar("T")

logger = logging.getLogger(__name__)


def kept_from_connections(limit: int) -> int:
    """The number of descriptors that connections may not take. They are for files and other
    uses.
    """
    return min(max(limit // _KEPT_SHARE, _FEWEST_KEPT), limit // 2)


def most_beside_clients(limit: int, part: int, most: int) -> int:
    """The maximum number of connections of a port that is not for clients, at most `most`.

    These connections use a part of the descriptors that clients cannot take. The part is small
    enough to leave descriptors for the other uses.
    """
    return min(most, max(kept_from_connections(limit) // part, _FEWEST_BESIDE))


def files_share(limit: int, reserved: int) -> int:
    """The number of descriptors that files may keep while `reserved` are for connections.

    A quarter is left for further connections. When these arrive, files are closed, until files have
    half of the number that connections may not take. The other half is for everything else.
    """
    kept = kept_from_connections(limit)
    most = min(limit - limit // _CLIENTS_SHARE, limit - kept - reserved)
    return max(most, kept // 2, 1)


class PooledFile:
    """A file that is opened when it is used; see the table in the module's docstring.

    `append` and `pread` run for each small request. To save a call, their common code is repeated.

    size: the size after the last change by this object, also while the file is closed.
    """

    __slots__ = ("__weakref__", "_disk", "_file", "_key", "_touch", "is_removed", "path", "size")

    def __init__(self, disk: PooledDisk, key: int, file: File, path: str) -> None:
        self._disk, self._key, self._touch = disk, key, disk.order.move_to_end
        self._file: File | None = file
        self.path, self.size = path, file.size
        self.is_removed = False

    @property
    def is_open(self) -> bool:
        """Whether the file has a descriptor now."""
        return self._file is not None

    def append(self, data: Data) -> int:
        """Write all of the data at the end, as `File` does."""
        file = self._file
        if file is None:
            file = self._disk.open_again(self)
        else:
            try:
                self._touch(self._key)
            except KeyError:  # another thread is closing the file, or the file's name was removed
                pass
        position = file.append(data)
        self.size = file.size
        return position

    def _used(self) -> File:
        """The open file, which becomes the most recently used one. If it was closed, it is opened
        again.
        """
        file = self._file
        if file is None:
            return self._disk.open_again(self)
        try:
            self._touch(self._key)
        except KeyError:
            pass
        return file

    def pread(self, size: int, position: int) -> bytes:
        """Read bytes, as `File` does."""
        file = self._file
        if file is None:
            file = self._disk.open_again(self)
        else:
            try:
                self._touch(self._key)
            except KeyError:
                pass
        return file.pread(size, position)

    def readinto(self, buffer: memoryview, position: int) -> int:
        """Read into memory, as `File` does."""
        return self._used().readinto(buffer, position)

    def sendfile(self, socket: int, position: int, size: int) -> int:
        """Send bytes, as `File` does."""
        return self._used().sendfile(socket, position, size)

    def truncate(self, size: int) -> None:
        """Cut the file, as `File` does."""
        self._used().truncate(size)
        self.size = size

    def fsync(self) -> None:
        """Make the file durable, as `File` does; any descriptor of the file is sufficient."""
        file = self._file
        if file is not None:
            file.fsync()
        else:
            self._disk.fsync_closed(self)

    def close(self) -> None:
        """Close the file permanently."""
        self._disk.forget(self)
        self.is_removed = True
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __del__(self) -> None:
        self._disk.order.pop(self._key, None)

    # --- for the pool ----------------------------------------------------------------------------

    @property
    def key(self) -> int:
        """The file's key in the pool's order."""
        return self._key

    def set_open(self, file: File) -> None:
        """Use an open file, and set its size to the size of this object."""
        # A failed append may have left further bytes that could not be cut off.
        if file.size != self.size:
            file.size = self.size
        self._file = file

    def give_back(self) -> None:
        """Drop the open file, which is closed after its last use."""
        self._file = None


_Ref = ReferenceType[PooledFile]


class PooledDisk:
    """The disk of a broker: `Disk` with few descriptors.

    below: the disk that opens the files. order: the open files by their keys, the least recently
    used first. Files with a removed name are open, but not in `order`.
    """

    def __init__(self, disk: Disk) -> None:
        self.below = self._disk = disk
        self.order: OrderedDict[int, _Ref] = OrderedDict()
        self._files: dict[str, dict[str, tuple[_Ref, ...]]] = {}  # by directory and path
        self._moving: dict[str, str] = {}  # paths that are being changed
        self._removed: list[_Ref] = []
        self._keys, self._reserved = count(1), 0
        self.exists, self.is_dir, self.size = disk.exists, disk.is_dir, disk.size
        self.modified_ms, self.mkdir = disk.modified_ms, disk.mkdir
        self.most_open_files = disk.most_open_files
        self.boot_id, self.mount_id = disk.boot_id, disk.mount_id

    # --- descriptors -----------------------------------------------------------------------------

    def reserve_descriptors(self, count: int) -> None:
        """Reserve descriptors for connections, and close the files that exceed the remaining
        share.
        """
        self._reserved = count
        self._close_above_share()

    def _share(self) -> int:
        return files_share(self._disk.most_open_files(), self._reserved)

    def _close_above_share(self) -> None:
        share = self._share()
        while len(self.order) > share and self._close_one():
            pass

    def _close_one(self) -> bool:
        """Close the least recently used file. Gives: False if there was none."""
        try:
            _, reference = self.order.popitem(last=False)
        except KeyError:
            return False
        file = reference()
        if file is not None:
            file.give_back()
        return True

    def _with_room(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function that takes a descriptor. If none is left, close files and call it again.

        If the number of open files is at its minimum, one file is closed so that the call gets its
        descriptor.
        """
        has_replaced = False
        while True:
            try:
                return call(*arguments, **options)
            except OSError as error:
                if has_replaced or not is_out_of_descriptors(error) or not self._close_one():
                    raise
            limit = self._disk.most_open_files()
            above = len(self.order) - files_share(limit, limit)
            has_replaced = above < 0
            for _ in range(above // _CLOSED_TOGETHER):
                self._close_one()

    def _at_file(self, path: str, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function that needs a file, or nothing, at a path, and may write a temporary file
        beside it. A directory there is set aside.
        """
        while True:
            try:
                return self._with_room(call, *arguments, **options)
            except IsADirectoryError:
                there = [one for one in (path, path + TEMPORARY_SUFFIX) if self._disk.is_dir(one)]
                if not there:
                    raise
                for one in there:
                    self._set_aside(one)

    def _set_aside(self, path: str) -> None:
        """Rename a directory that has the name of a file."""
        number = 0
        while self._disk.exists(aside := f"{path}.{number}{STRAY_SUFFIX}"):
            number += 1
        self._disk.rename(path, aside)
        logger.warning(
            "%s is a directory, and the broker expects a file with this name: it was renamed to "
            "%s, and is not used; move it out of the data directory",
            path,
            aside.rpartition("/")[2],
        )

    # --- files -----------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file. Its descriptor is closed when other files are used more."""
        opened = self._at_file(path, self._disk.open, path, create=create)
        file = PooledFile(self, next(self._keys), opened, path)
        reference = ref(file)
        paths = self._files.setdefault(path.rpartition("/")[0], {})
        paths[path] = (*_alive(paths.get(path, ())), reference)
        self.order[file.key] = reference
        self._close_above_share()
        return file

    def open_again(self, file: PooledFile) -> File:
        """Open a file again that the pool had closed. Raises: OSError."""
        if file.is_removed:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file.path)
        opened = self._with_room(self._disk.open, file.path)
        file.set_open(opened)
        self.order[file.key] = ref(file)
        self._close_above_share()
        return opened

    def fsync_closed(self, file: PooledFile) -> None:
        """Make a closed file durable. Another thread may call this.

        A file with a removed name need not be durable.
        """
        path = file.path
        while not file.is_removed:
            try:
                self.fsync_file(path)
                return
            except FileNotFoundError:
                # The loop is renaming the file or its directory, or has done so.
                moved = self._moving.get(path) or self._moved_with_directory(path) or file.path
                if moved == path and not file.is_removed:
                    raise
                path = moved

    def _moved_with_directory(self, path: str) -> str:
        directory, slash, name = path.rpartition("/")
        moved = self._moving.get(directory, "")
        return moved and moved + slash + name

    def forget(self, file: PooledFile) -> None:
        """Remove a permanently closed file from the pool."""
        self.order.pop(file.key, None)
        paths = self._files.get(file.path.rpartition("/")[0], {})
        left = [other for other in _alive(paths.get(file.path, ())) if other() is not file]
        if left:
            paths[file.path] = tuple(left)
        else:
            paths.pop(file.path, None)

    # --- names -----------------------------------------------------------------------------------

    def rename(self, old: str, new: str) -> None:
        """Rename as `Disk` does. Closed files are then found by the new name."""
        self._detach(new)
        self._moving[old] = new
        try:
            self._at_file(new, self._disk.rename, old, new)
            self._note_moved(old, new)
        finally:
            del self._moving[old]

    def _note_moved(self, old: str, new: str) -> None:
        """Change the paths of open files in a renamed directory, or of a renamed file."""
        inside = self._files.pop(old, None)
        if inside is not None:
            self._files[new] = {
                new + path[len(old) :]: references for path, references in inside.items()
            }
            for path, references in self._files[new].items():
                _set_path(references, path)
        references = self._files.get(old.rpartition("/")[0], {}).pop(old, ())
        if references:
            self._files.setdefault(new.rpartition("/")[0], {})[new] = references
            _set_path(references, new)

    def _detach(self, path: str) -> None:
        """Prevent a pooled file from being opened again by a path that is removed or replaced."""
        for reference in self._files.get(path.rpartition("/")[0], {}).pop(path, ()):
            file = reference()
            if file is not None:
                self._keep_open(file)

    def _keep_open(self, file: PooledFile) -> None:
        """Keep a file with a removed name open, since it cannot be opened again. If too many such
        files are already open, close this one.
        """
        self._removed = [*_alive(self._removed), ref(file)]
        if len(self._removed) > self._share() // _REMOVED_SHARE:
            self._removed.pop()
            file.give_back()
        elif not file.is_open:
            try:
                self.open_again(file)
            except OSError:
                pass  # reading it then raises FileNotFoundError
        file.is_removed = True
        self.order.pop(file.key, None)

    def unlink(self, path: str) -> None:
        """Remove a file, as `Disk` does."""
        self._detach(path)
        self._at_file(path, self._disk.unlink, path)

    def rmtree(self, path: str) -> None:
        """Remove a directory, as `Disk` does."""
        for inside in list(self._files.get(path, ())):
            self._detach(inside)
        self._files.pop(path, None)
        self._with_room(self._disk.rmtree, path)

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        """Replace a file, as `Disk` does."""
        self._detach(path)
        self._at_file(path, self._disk.write_atomic, path, data, sync=sync)

    def free_bytes(self, path: str) -> int:
        """The number of free bytes, as `Disk` returns it."""
        return self._disk.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        """The total number of bytes, as `Disk` returns it."""
        return self._disk.total_bytes(path)

    # --- calls that need a descriptor ------------------------------------------------------------

    def list(self, path: str) -> list[str]:
        """The names in a directory, as `Disk` returns them."""
        return self._with_room(self._disk.list, path)

    def read(self, path: str) -> bytes:
        """The content of a file, as `Disk` returns it."""
        return self._at_file(path, self._disk.read, path)

    def fsync_dir(self, path: str) -> None:
        """Make a directory's names durable, as `Disk` does."""
        self._with_room(self._disk.fsync_dir, path)

    def fsync_file(self, path: str) -> None:
        """Make a file durable, as `Disk` does."""
        self._with_room(self._disk.fsync_file, path)

    def lock(self, path: str) -> Any:
        """Lock a file, as `Disk` does."""
        return self._at_file(path, self._disk.lock, path)


def disk_below(disk: Disk) -> Disk:
    """The disk below the pool, or the disk itself if it is not a pool."""
    return disk.below if isinstance(disk, PooledDisk) else disk


def _alive(references: Any) -> list[_Ref]:
    return [reference for reference in references if reference() is not None]


def _set_path(references: tuple[_Ref, ...], path: str) -> None:
    """Set the path of the files that still exist."""
    for reference in references:
        file = reference()
        if file is not None:
            file.path = path
