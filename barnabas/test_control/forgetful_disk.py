"""A disk that can lose unflushed data, like a machine whose power fails.

It uses the machine's own disk. For each file that this process opened it records how many bytes are
durable, and `lose_power` cuts every file to that length. The content that a file has when it is
opened counts as durable. File names are durable as well: a new file remains, and is empty if no
part of it was flushed.

    barnabas-test-power-losses    in the data directory: the number of losses, as text; the next
                                  start treats it as a restart of the machine
"""

from __future__ import annotations

import os
import threading

from barnabas.storage.disk import Data, File, OsDisk, OsFile

LOSSES_NAME = "barnabas-test-power-losses"


class ForgetfulFile(OsFile):
    """A file that records how much of it is durable."""

    __slots__ = ("_disk",)

    def __init__(self, disk: ForgetfulDisk, path: str, *, create: bool) -> None:
        super().__init__(path, create=create)
        self._disk = disk
        disk.note(path, self.size, is_new=True)

    def fsync(self) -> None:
        # read before the fsync: what is appended meanwhile is not durable
        size = self.size
        super().fsync()
        self._disk.note(self.path, size)

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._disk.note_cut(self.path, size)


class ForgetfulDisk(OsDisk):
    """The machine's file system below one data directory, with a record of the durable sizes of its
    files.
    """

    def __init__(self, data_dir: str) -> None:
        self._losses_path = os.path.join(data_dir, LOSSES_NAME)
        self._lock = threading.Lock()  # needed, since flushes end in other threads
        self._durable: dict[str, int] = {}

    def note(self, path: str, size: int, *, is_new: bool = False) -> None:
        """Record that the first `size` bytes of a file are durable.

        Takes: is_new, whether the file was just opened. In that case an existing record is kept.
        """
        with self._lock:
            if is_new:
                self._durable.setdefault(path, size)
            else:
                self._durable[path] = max(size, self._durable.get(path, 0))

    def note_cut(self, path: str, size: int) -> None:
        """Record that a file was truncated, so that at most its new length is durable."""
        with self._lock:
            self._durable[path] = min(size, self._durable.get(path, 0))

    def lose_power(self) -> None:
        """Cut every file to its durable length. The process must then end without writing."""
        with self._lock:
            durable = dict(self._durable)
        for path, size in durable.items():
            try:
                if os.path.getsize(path) > size:
                    os.truncate(path, size)
            except FileNotFoundError:
                continue
        count = self._losses() + 1
        with open(self._losses_path, "w", encoding="ascii") as file:
            file.write(str(count))

    def _losses(self) -> int:
        """The number of power losses, from the file in the data directory."""
        try:
            with open(self._losses_path, encoding="ascii") as file:
                return int(file.read())
        except FileNotFoundError:
            return 0

    # --- the disk --------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        return ForgetfulFile(self, path, create=create)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        with self._lock:
            self._durable.pop(new, None)  # the record of the file that this one replaces
            inside = old + "/"
            for path in [p for p in self._durable if p == old or p.startswith(inside)]:
                self._durable[new + path[len(old) :]] = self._durable.pop(path)

    def unlink(self, path: str) -> None:
        """Delete a file, and the record of its durable length."""
        super().unlink(path)
        with self._lock:
            self._durable.pop(path, None)

    def rmtree(self, path: str) -> None:
        super().rmtree(path)
        with self._lock:
            inside = path + "/"
            for gone in [p for p in self._durable if p.startswith(inside)]:
                del self._durable[gone]

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        """Replace a file. After a power loss the new file is complete, so it has no record of a
        durable length.
        """
        super().write_atomic(path, data, sync=sync)
        with self._lock:
            self._durable.pop(path, None)  # the path now belongs to another file

    def fsync_file(self, path: str) -> None:
        size = self.size(path)
        super().fsync_file(path)
        self.note(path, size)

    def boot_id(self) -> str | None:
        return f"{super().boot_id()}/{self._losses()}"
