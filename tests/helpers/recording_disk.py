"""A real disk that records, in order, which files and directories are made durable or deleted."""

from __future__ import annotations

import os
from typing import Any

from barnabas.storage.disk import Data, File, OsDisk


class RecordingDisk(OsDisk):
    """A disk that records its steps. Each of the `steps` is an operation and the name of the file
    or directory, without its path.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, str]] = []

    def note(self, operation: str, path: str) -> None:
        self.steps.append((operation, os.path.basename(path)))

    def take_steps(self) -> list[tuple[str, str]]:
        """The steps that were recorded since the last call."""
        taken, self.steps = self.steps, []
        return taken

    def open(self, path: str, *, create: bool = False) -> File:
        return _RecordingFile(self, path, super().open(path, create=create))  # type: ignore[return-value]

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.note("rename to", new)

    def unlink(self, path: str) -> None:
        if self.exists(path):
            self.note("unlink", path)
        super().unlink(path)

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        super().write_atomic(path, data, sync=sync)
        self.note("write and sync" if sync else "write", path)

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        self.note("fsync_dir", path)

    def fsync_file(self, path: str) -> None:
        super().fsync_file(path)
        self.note("fsync", path)


class _RecordingFile:
    def __init__(self, disk: RecordingDisk, path: str, file: File) -> None:
        self._disk, self._path, self._file = disk, path, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def fsync(self) -> None:
        self._file.fsync()
        self._disk.note("fsync", self._path)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._disk.note("truncate", self._path)
