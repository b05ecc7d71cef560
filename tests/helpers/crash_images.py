"""The possible contents of a disk after a crash of the process or the machine. An image is taken
before each change of the disk while a broker continues to run, so that one run yields the images of
all possible crashes.

kind      names (create, rename, unlink)     bytes
kill      all                                all
torn      all                                all, but only half of the last append
power     those made durable                 those made durable
names     all                                those made durable
data      those made durable                 all
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from sim.disk import Directory, Inode, SimDisk

from helpers.admin_host import CountedIds
from helpers.disk_broker import DiskBroker, Worst

Files = tuple[tuple[str, bytes | None], ...]
"""Paths, sorted, and what each file holds; None for a directory."""
POWER_KINDS = ("power", "names", "data")


class Image(NamedTuple):
    """The contents of the disk after a crash. `done` counts the actions that were completed before
    the crash. `is_same_run` says whether the machine kept running.
    """

    kind: str
    done: int
    files: Files

    @property
    def is_same_run(self) -> bool:
        return self.kind not in POWER_KINDS


class ImagedDisk(SimDisk):
    """A simulated disk that takes images. The caller sets `done`, the number of completed
    actions.
    """

    def __init__(self, now_ms: Any) -> None:
        super().__init__(Worst(), now_ms)
        self.is_taking, self.done = False, 0
        self._images: dict[tuple[str, Files], int] = {}
        self._last_kill: Files = ()

    def begin(self) -> None:
        """Take images from now on."""
        self.is_taking = True

    def counts_down(self) -> bool:
        self.take()
        return super().counts_down()

    def take(self) -> None:
        """Take an image of each kind now. Of equal images only the first is kept."""
        if not self.is_taking:
            return
        kill = tuple(_walk("", self.root, "kill"))
        self._note("kill", kill)
        torn = _torn(dict(self._last_kill), kill)
        if torn is not None:
            self._note("torn", torn)
        self._last_kill = kill
        for kind in POWER_KINDS:
            self._note(kind, tuple(_walk("", self.root, kind)))

    def _note(self, kind: str, files: Files) -> None:
        self._images.setdefault((kind, files), self.done)

    def images(self) -> list[Image]:
        """All images, without duplicates."""
        return [Image(kind, done, files) for (kind, files), done in self._images.items()]


def files_on(disk: SimDisk, kind: str) -> Files:
    """The files that a crash of that kind would leave now."""
    return tuple(_walk("", disk.root, kind))


def _walk(path: str, directory: Directory, kind: str) -> Iterator[tuple[str, bytes | None]]:
    """The path and the content of everything that this kind of crash leaves. The content is None
    for a directory. The kind determines whether the names are the durable or the current ones, and
    likewise whether the contents are.
    """
    entries = directory.durable if kind in ("power", "data") else directory.entries
    for name in sorted(entries):
        node, where = entries[name], f"{path}/{name}"
        if isinstance(node, Directory):
            yield where, None
            yield from _walk(where, node, kind)
        elif kind in ("power", "names"):
            yield where, node.before_cut or bytes(node.data[: node.synced])
        else:
            yield where, bytes(node.data)


def _torn(before: Mapping[str, bytes | None], now: Files) -> Files | None:
    """The current files, with only half of the bytes that were newly appended to each file. The
    result is None if nothing was appended.
    """
    rows, is_torn = [], False
    for path, data in now:
        former = before.get(path)
        if data and former is not None and len(former) + 1 < len(data) and data.startswith(former):
            data, is_torn = data[: (len(former) + len(data)) // 2], True
        rows.append((path, data))
    return tuple(rows) if is_torn else None


def disk_of(image: Image, like: SimDisk) -> SimDisk:
    """A simulated disk with the contents of an image, all durable."""
    disk = SimDisk(Worst(), like.now_ms)
    for path, data in image.files:
        if data is None:
            disk.mkdir(path)
        else:
            inode = Inode(like.now_ms())
            inode.data = bytearray(data)
            directory: Any = disk._find(path.rpartition("/")[0])
            directory.change((path.rpartition("/")[2], inode))
    disk.sync_all()
    disk.machine = like.machine
    disk.boots = like.boots + (not image.is_same_run)
    disk.mounts = like.mounts
    return disk


def started_on(
    image: Image, b: DiskBroker, opened: Callable[[Any], None] | None = None
) -> DiskBroker:
    """Start another broker with the same settings on the image.

    Takes: opened, a function that starts the broker. By default, it starts as the first one did.
    """
    other = copy.copy(b)
    # Remove wrappers that a test may have set around these methods.
    for name in ("send", "tick", "flush_one"):
        other.__dict__.pop(name, None)
    other.disk = disk_of(image, b.disk)
    other._ids = CountedIds()
    other._asked, other._answers, other.answer_frames, other.closed = {}, {}, {}, {}
    other.holds_flushes = other.holds_work = False
    if opened is None:
        other.open()
    else:
        opened(other)
    return other
