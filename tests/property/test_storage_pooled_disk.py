"""Compares a pool of file descriptors with a model: files that are never closed, and a list of them
in the order of their last use.

Each operation is done in two directories. In one, the operating system's disk keeps every file
open, as in a broker with enough descriptors; in the other, a pool closes and reopens files. Reads
give the same bytes, even after renames, and the files that were used last are open.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from helpers.examples import drawn
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.storage.disk import File, OsDisk
from barnabas.storage.pooled_disk import PooledDisk, files_share

DIRECTORIES, NAMES = "abc", "012345"
PATHS = st.builds(lambda directory, name: f"{directory}/{name}", st.sampled_from(DIRECTORIES),
                  st.sampled_from(NAMES))  # fmt: skip


class SmallDisk(OsDisk):
    """A disk that allows `most` open files, and refuses the next `refused` attempts to open one."""

    def __init__(self) -> None:
        self.most, self.refused = 8, 0

    def most_open_files(self) -> int:
        return self.most

    def open(self, path: str, *, create: bool = False) -> File:
        """Refuse as many opens as `refused` says, as a process without free descriptors does."""
        if self.refused:
            self.refused -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().open(path, create=create)


class Handle:
    """One file, opened on both disks. number: its place in the order of opening."""

    def __init__(self, number: int, pooled: Any, kept: Any) -> None:
        self.number, self.pooled, self.kept = number, pooled, kept


class PooledFiles(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        for side in ("pooled", "kept"):
            for directory in DIRECTORIES:
                (self.root / side / directory).mkdir(parents=True)
        self.below = SmallDisk()
        self.disk, self.plain = PooledDisk(self.below), OsDisk()
        self.handles: list[Handle] = []
        self.recent: list[Handle] = []  # in the order of last use, the most recently used file last
        self.count = self.reserved = 0

    def teardown(self) -> None:
        for handle in self.handles:
            handle.kept.close()
        shutil.rmtree(self.root)

    # --- the model -------------------------------------------------------------------------------

    def pooled(self, path: str) -> str:
        return str(self.root / "pooled" / path)

    def kept(self, path: str) -> str:
        return str(self.root / "kept" / path)

    def exists(self, path: str) -> bool:
        return os.path.isfile(self.kept(path))

    def used(self, handle: Handle) -> None:
        """Record that a file was used: it becomes the last in the order of use, unless its path was
        removed or replaced.
        """
        if handle in self.recent:
            self.recent.remove(handle)
        if not handle.pooled.is_removed:
            self.recent.append(handle)
        self.close_above_share()

    def close_above_share(self) -> None:
        """Close the least recently used files of the model's pool until it is within its share."""
        share = files_share(self.below.most, self.reserved)
        del self.recent[: max(0, len(self.recent) - share)]

    def files_whose_name_goes(self, path: str) -> list[Handle]:
        """The open files whose path is about to be removed or replaced. They leave the order of use
        when the pool has opened them.
        """
        going = [h for h in self.handles if h.pooled.path == self.pooled(path)]
        return [handle for handle in going if not handle.pooled.is_removed]

    def gone(self, handles: list[Handle]) -> None:
        """Remove these files from the order of use, since their paths were removed or replaced."""
        # to open these files, the pool has closed others
        open_now = set(self.disk.order)
        self.recent = [
            h for h in self.recent if h not in handles and h.pooled.key in open_now
        ]  # fmt: skip

    # --- files -----------------------------------------------------------------------------------

    @rule(path=PATHS)
    def open(self, path: str) -> None:
        if len(self.handles) > 25:
            return
        self.count += 1
        pair = (
            self.disk.open(self.pooled(path), create=True),
            self.plain.open(self.kept(path), create=True),
        )
        handle = Handle(self.count, *pair)
        self.handles.append(handle)
        self.used(handle)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), text=st.binary(min_size=1, max_size=20))
    def append(self, data: st.DataObject, text: bytes) -> None:
        handle = data.draw(st.sampled_from(self.handles), label="handle")
        if handle.pooled.is_removed and not handle.pooled.is_open:
            return
        assert handle.pooled.append(text) == handle.kept.append(text)
        self.used(handle)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), way=st.sampled_from(["pread", "readinto", "truncate", "fsync"]))
    def use(self, data: st.DataObject, way: str) -> None:
        """Use a file in one way. If its path was removed or replaced, and the pool has closed it,
        it cannot be opened again.
        """
        handle = data.draw(st.sampled_from(self.handles), label="handle")
        if handle.pooled.is_removed and not handle.pooled.is_open:
            try:
                handle.pooled.pread(1, 0)
                raise AssertionError("a file whose name is gone was opened again")
            except FileNotFoundError:
                return
        if way == "fsync":
            handle.pooled.fsync()
            return
        if way == "truncate":
            size = data.draw(st.integers(0, handle.kept.size), label="size")
            handle.pooled.truncate(size)
            handle.kept.truncate(size)
        elif way == "readinto":
            buffers = [memoryview(bytearray(30)) for _ in range(2)]
            counts = [
                file.readinto(buffer, 3)
                for file, buffer in zip((handle.pooled, handle.kept), buffers, strict=True)
            ]
            assert counts[0] == counts[1] and buffers[0] == buffers[1]
        else:
            assert handle.pooled.pread(1000, 0) == handle.kept.pread(1000, 0)
        self.used(handle)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(self.handles), label="handle")
        self.handles.remove(handle)
        if handle in self.recent:
            self.recent.remove(handle)
        handle.kept.close()
        handle.pooled.close()

    # --- names -----------------------------------------------------------------------------------

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        """Rename a file, which may replace another one."""
        if not self.exists(old) or old == new:
            return
        going = self.files_whose_name_goes(new)
        self.disk.rename(self.pooled(old), self.pooled(new))
        self.plain.rename(self.kept(old), self.kept(new))
        self.gone(going)

    @rule(directory=st.sampled_from(DIRECTORIES))
    def replace_directory(self, directory: str) -> None:
        """Replace a directory, as when a topic is deleted and created again: its open files remain
        usable under another name.
        """
        self.count += 1
        for disk, path in ((self.disk, self.pooled), (self.plain, self.kept)):
            disk.rename(path(directory), path(f"gone-{self.count}"))  # type: ignore[attr-defined]
            disk.mkdir(path(directory))  # type: ignore[attr-defined]

    @rule(path=PATHS, way=st.sampled_from(["unlink", "write_atomic"]))
    def remove(self, path: str, way: str) -> None:
        """Unlink a file, or replace it by another one."""
        going = self.files_whose_name_goes(path)
        for disk, full in ((self.disk, self.pooled(path)), (self.plain, self.kept(path))):
            if way == "unlink":
                disk.unlink(full)  # type: ignore[attr-defined]
            else:
                disk.write_atomic(full, b"another file", sync=False)  # type: ignore[attr-defined]
        self.gone(going)

    @rule(data=st.data())
    def remove_directory(self, data: st.DataObject) -> None:
        directories = sorted(os.listdir(self.root / "kept"))
        directory = data.draw(st.sampled_from(directories), label="directory")
        going = [
            handle
            for handle in self.handles
            if os.path.dirname(handle.pooled.path) == self.pooled(directory)
        ]
        for disk, path in ((self.disk, self.pooled), (self.plain, self.kept)):
            disk.rmtree(path(directory))  # type: ignore[attr-defined]
            if directory in DIRECTORIES:
                disk.mkdir(path(directory))  # type: ignore[attr-defined]
        self.gone(going)

    # --- descriptors -----------------------------------------------------------------------------

    @rule(most=st.integers(1, 40), reserved=st.integers(0, 40))
    def share(self, most: int, reserved: int) -> None:
        """Change the number of files that the pool may keep open."""
        self.below.most, self.reserved = most, reserved
        self.disk.reserve_descriptors(reserved)
        self.close_above_share()

    @rule(path=PATHS, refused=st.integers(1, 12))
    def others_take_all_descriptors(self, path: str, refused: int) -> None:
        """The system has no descriptor left for some attempts to open a file; the pool closes the
        least recently used files until an attempt succeeds.
        """
        before = list(self.recent)
        self.below.refused = refused
        try:
            self.disk.open(self.pooled(path), create=True).close()
            self.plain.open(self.kept(path), create=True).close()
        except OSError as error:
            assert error.errno == errno.EMFILE
        self.below.refused = 0
        left = [handle for handle in before if handle.pooled.is_open]
        assert left == before[len(before) - len(left) :], "others were closed than the oldest"
        assert len(left) < len(before) or not before
        self.recent = left

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def those_are_open_that_were_used_last(self) -> None:
        kept_open = [handle for handle in self.handles if handle.pooled.is_open]
        in_order = [handle for handle in kept_open if not handle.pooled.is_removed]
        assert {h.number for h in in_order} == {h.number for h in self.recent}
        assert [reference() for reference in self.disk.order.values()] == [
            handle.pooled for handle in self.recent
        ]
        assert len(in_order) <= files_share(self.below.most, self.reserved)

    @invariant()
    def files_lie_where_the_model_has_them(self) -> None:
        for handle in self.handles:
            if not handle.pooled.is_removed:
                assert os.path.isfile(handle.pooled.path)
            assert handle.pooled.size == handle.kept.size


PooledFiles.TestCase.settings = settings(max_examples=drawn(60), stateful_step_count=40)
TestPooledFiles = PooledFiles.TestCase
