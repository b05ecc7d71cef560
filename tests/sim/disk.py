"""A disk in memory that loses data as real disks do: `storage.disk.Disk` for simulations.

After a kill of the process, everything that was written remains, since the operating system has it.
A kill may occur in the middle of a call that changes the disk: an append is then partly written.

A power loss affects each file separately: the data of its last fsync remain, and of later appends
nothing, everything, a part truncated anywhere, or a part with missing sectors (zeros). It affects
each directory separately: the entries of its last fsync_dir remain, and of later changes (create,
rename, unlink) the first few, in their order. A file's own fsync does not make its new name
durable: some file systems do more, but POSIX does not require it.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from barnabas.storage.disk import FailedFsync

SECTOR_BYTES = 512
FREE_BYTES = 1 << 40
MOST_OPEN_FILES = 1 << 20

Data = bytes | bytearray | memoryview


class Crash(BaseException):
    """The process ends in the middle of an operation. This is not an Exception, so that no error
    handler catches it.
    """


class Refusal(NamedTuple):
    """The operations that a disk refuses for a time, and the error.

    operations: some of "inode" (a new file), "entry" (a new directory), "rename", "write", "open"
    (any descriptor) and "fsync". after: how many of these operations succeed first.
    """

    operations: frozenset[str]
    code: int
    after: int = 0


class Inode:
    """The bytes of a file. synced: the number of durable bytes at its start; before_cut: the bytes
    that are durable until a truncation becomes durable.
    """

    __slots__ = ("before_cut", "data", "modified_ms", "synced")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.synced = 0
        self.before_cut: bytes | None = None
        self.modified_ms = modified_ms

    def cut(self, size: int) -> None:
        """Truncate or extend the file. The cut becomes durable with the next sync."""
        if size < self.synced:
            if self.before_cut is None:
                self.before_cut = bytes(self.data[: self.synced])
            self.synced = size
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def sync(self) -> None:
        self.synced = len(self.data)
        self.before_cut = None

    def lose_power(self, rng: random.Random) -> None:
        """Undo the cut, or lose none, some or all of the unsynced bytes; some of their sectors may
        read as zeros.
        """
        if self.before_cut is not None and rng.random() < 0.5:
            self.data = bytearray(self.before_cut)
            self.sync()
            return
        unsynced = len(self.data) - self.synced
        if unsynced:
            match rng.randrange(4):
                case 0:
                    del self.data[self.synced :]
                case 1:
                    pass
                case 2:
                    del self.data[self.synced + rng.randrange(unsynced) :]
                case _:
                    del self.data[self.synced + 1 + rng.randrange(unsynced) :]
                    self._lose_sectors(rng)
        self.sync()

    def _lose_sectors(self, rng: random.Random) -> None:
        start = self.synced
        while start < len(self.data):
            end = min(len(self.data), (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if rng.random() < 0.3:
                self.data[start:end] = bytes(end - start)
            start = end


class Directory:
    """A directory: its current entries, its entries at the last fsync_dir, and the changes since,
    each of which is durable entirely or not at all.
    """

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[tuple[tuple[str, Node | None], ...]] = []

    def change(self, *rows: tuple[str, Node | None]) -> None:
        self._apply(self.entries, rows)
        self.pending.append(rows)

    @staticmethod
    def _apply(entries: dict[str, Node], rows: tuple[tuple[str, Node | None], ...]) -> None:
        for name, node in rows:
            if node is None:
                entries.pop(name, None)
            else:
                entries[name] = node

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def lose_power(self, rng: random.Random, keep: Callable[[int], int]) -> None:
        """Return to the durable entries and the first few changes after them; `keep` says how
        many.
        """
        entries = self.durable
        for rows in self.pending[: keep(len(self.pending))]:
            self._apply(entries, rows)
        self.entries = entries
        self.sync()
        for name in sorted(entries):
            node = entries[name]
            if isinstance(node, Directory):
                node.lose_power(rng, keep)
            else:
                node.lose_power(rng)


Node = Inode | Directory


class SimFile:
    """An open file. `size` counts only this handle's appends: after a failed append, the next
    append begins at the same position.
    """

    __slots__ = ("_disk", "_generation", "inode", "path", "size")

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self._disk, self.path, self.inode = disk, path, inode
        self._generation = disk.generation
        self.size = len(inode.data)

    def append(self, data: Data) -> int:
        self._check()
        position, content = self.size, self.inode.data
        is_crash = self._disk.counts_down()
        if is_crash or self._disk.refuses("write"):
            part = data[: self._disk.rng.randrange(len(data) + 1)]
            content[position : position + len(part)] = part
            raise self._disk.crash() if is_crash else self._disk.failure()
        content[position : position + len(data)] = data
        self.size = position + len(data)
        self.inode.modified_ms = self._disk.now_ms()
        return position

    def pread(self, size: int, position: int) -> bytes:
        return bytes(self.inode.data[position : position + size])

    def fsync(self) -> None:
        self._check()
        if not self._disk.is_full:  # an fsync needs no space, so it succeeds on a full disk
            self._disk.step()
        if self._disk.refuses("fsync"):
            self.inode.lose_power(
                self._disk.rng
            )  # after a failed fsync the kernel drops the pages that it could not write
            failure = self._disk.failure()
            assert isinstance(failure, OSError)
            raise FailedFsync(failure.errno, failure.strerror)
        self.inode.sync()

    def truncate(self, size: int) -> None:
        self._check()
        if not self._disk.is_without_room or size > len(self.inode.data):
            self._disk.step()
        self.inode.cut(size)
        self.size = size

    def close(self) -> None:
        pass

    def readinto(self, buffer: memoryview, position: int) -> int:
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def sendfile(self, socket: int, position: int, size: int) -> int:
        raise AssertionError("a simulated socket has no descriptor")

    def _check(self) -> None:
        """Fail if the process that opened the file has ended."""
        assert self._generation == self._disk.generation, (
            f"{self.path}: written by a process that is gone"
        )


class SimLock:
    __slots__ = ("_disk", "_generation", "_path")

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk, self._path, self._generation = disk, path, disk.generation

    def release(self) -> None:
        if self._generation == self._disk.generation:
            self._disk.locks.pop(self._path, None)


class SimDisk:
    """A file system. generation: the number of processes that have used it; files that an ended
    process opened must not be used.
    """

    def __init__(self, rng: random.Random, now_ms: Callable[[], int]) -> None:
        self.rng = rng
        self.now_ms = now_ms
        self.root = Directory()
        self.generation = 0
        self.locks: dict[str, None] = {}
        self.steps_until_crash, self.is_full = -1, False
        self._aim: tuple[str, int] | None = None
        self.refusal: Refusal | None = None
        self._until_refusal = 0
        self.boots = self.mounts = self.losses = 0
        self.descriptors = MOST_OPEN_FILES
        self.machine = ""

    # --- faults ----------------------------------------------------------------------------------

    def crash_in(self, steps: int, *, is_full: bool = False) -> None:
        """Kill the process in the middle of a change of the disk, after `steps` other changes; -1:
        never.

        is_full: instead of a kill, that change and all later ones fail because the disk is full.
        """
        self.steps_until_crash, self.is_full = steps, is_full

    def crash_after_rename(self, suffix: str, steps: int) -> None:
        """Plan a crash like `crash_in`, with changes counted from the next rename to a name with
        this suffix.
        """
        self._aim = suffix, steps

    def crash_never(self) -> None:
        """Cancel every planned crash."""
        self._aim = None
        self.crash_in(-1)

    def counts_down(self) -> bool:
        """Count one change. Gives: whether the process crashes in it, or the disk is full."""
        if self.steps_until_crash < 0:
            return False
        if self.steps_until_crash == 0 and self.is_full:
            return True
        self.steps_until_crash -= 1
        return self.steps_until_crash < 0

    def refuse(self, refusal: Refusal | None) -> None:
        """Refuse some operations from now on; None ends this."""
        self.refusal = refusal
        self._until_refusal = 0 if refusal is None else refusal.after

    def refuses(self, operation: str) -> bool:
        """Count an operation of this kind. Gives: whether the disk refuses it."""
        if self.refusal is None or operation not in self.refusal.operations:
            return False
        self._until_refusal -= self._until_refusal > -1
        return self._until_refusal < 0

    def allow(self, operation: str) -> None:
        """Count an operation of this kind. Raises: OSError if the disk refuses it."""
        if self.refuses(operation):
            raise self.failure()

    @property
    def is_without_room(self) -> bool:
        """Whether the disk is full now; operations that free space still succeed."""
        return self.is_full and self.steps_until_crash == 0

    def failure(self) -> BaseException:
        """The error of a refused change."""
        assert self.refusal is not None
        return OSError(self.refusal.code, os.strerror(self.refusal.code))

    def crash(self) -> BaseException:
        """The exception that a crash raises in the change that it interrupts."""
        return OSError(errno.ENOSPC, "the simulated disk is full") if self.is_full else Crash()

    def step(self) -> None:
        """Count a change that is all or nothing: a crash may occur before it, or before the next
        one.
        """
        if self.counts_down():
            raise self.crash()

    def kill(self) -> None:
        """End the process; everything that it wrote remains."""
        self.generation += 1
        self.locks.clear()
        self.steps_until_crash, self._aim = -1, None

    def lose_power(self) -> None:
        """End the machine, and lose some of the data that were not durable. Every third time the
        machine stays up instead, and the broker is started on a copy of the disk that was made at
        that moment.
        """
        self.losses += 1
        if self.losses % 3:
            self.boots += 1
            self._forget()
        else:
            self.copy()

    def copy(self, *, is_new_mount: bool = True) -> None:
        """Replace the disk by a copy made now, without the page cache, in the same run of the
        machine. is_new_mount: whether the copy is on another mount, as far as the system shows.
        """
        self.mounts += is_new_mount
        self._forget()

    def replace(self, root: Directory, *, is_new_mount: bool = True) -> None:
        """Replace the contents by another file system, all of it durable. No process may use the
        disk meanwhile.
        """
        self.mounts += is_new_mount
        self.root = root
        self._sync_below(root)

    def copied(self) -> SimDisk:
        """Another disk with everything that the process has written, as after a kill at this
        moment. It has no faults, and changes to it do not affect this disk.
        """
        other = SimDisk(random.Random(0), self.now_ms)
        other.root = _copy_of(self.root)
        other.boots, other.mounts, other.machine = self.boots, self.mounts, self.machine
        other._sync_below(other.root)
        return other

    def sync_all(self) -> None:
        """Make everything that was written durable, as sync(2) does."""
        self.step()
        self._sync_below(self.root)

    def _sync_below(self, directory: Directory) -> None:
        directory.sync()
        for node in directory.entries.values():
            if isinstance(node, Directory):
                self._sync_below(node)
            else:
                node.sync()

    def _forget(self) -> None:
        """End the process and lose what was not durable: nothing of the directories' changes, all
        of them, or for each directory a random number.
        """
        self.kill()
        rng = self.rng
        kindness = rng.choice((0.0, 1.0, -1.0))

        def keep(count: int) -> int:
            return rng.randint(0, count) if kindness < 0 else int(count * kindness)

        self.root.lose_power(rng, keep)

    def boot_id(self) -> str:
        """The id of the machine's current run, which changes with each power loss."""
        return f"boot-{self.machine}{self.boots}"

    def mount_id(self, path: str) -> str:
        return f"mount-{self.mounts}"

    # --- Disk ------------------------------------------------------------------------------------

    def _find(self, path: str) -> Node | None:
        node: Node = self.root
        for name in path.split("/"):
            if name:
                if not isinstance(node, Directory):
                    return None
                found = node.entries.get(name)
                if found is None:
                    return None
                node = found
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        directory, _, name = path.rpartition("/")
        node = self._find(directory)
        if not isinstance(node, Directory):
            raise FileNotFoundError(directory)
        return node, name

    def _file(self, path: str) -> Inode:
        node = self._find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(path)
        return node

    def open(self, path: str, *, create: bool = False) -> Any:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is not None or create:
            self.allow("open")
        if node is None:
            if not create:
                raise FileNotFoundError(path)
            self.allow("inode")
            self.step()
            node = Inode(self.now_ms())
            parent.change((name, node))
        if not isinstance(node, Inode):
            raise IsADirectoryError(path)
        return SimFile(self, path, node)

    def is_durable(self, path: str) -> bool:
        """Whether a power loss would preserve the file's name, given that it preserves its
        directory's name.
        """
        parent, name = self._parent(path)
        return parent.durable.get(name) is parent.entries.get(name) and not parent.pending

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), Directory)

    def list(self, path: str) -> list[str]:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(path)
        return sorted(node.entries)

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(path)
        return node.modified_ms if isinstance(node, Inode) else self.now_ms()

    def mkdir(self, path: str) -> None:
        node = self.root
        for name in path.split("/"):
            if name:
                found = node.entries.get(name)
                if found is None:
                    self.allow("entry")
                    self.step()
                    found = Directory()
                    node.change((name, found))
                if not isinstance(found, Directory):
                    raise FileExistsError(path)
                node = found

    def rename(self, old: str, new: str) -> None:
        parent, name = self._parent(old)
        node = parent.entries.get(name)
        if node is None:
            raise FileNotFoundError(old)
        new_parent, new_name = self._parent(new)
        taken = new_parent.entries.get(new_name)
        if isinstance(taken, Directory) and taken.entries and taken is not node:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        if self._aim is not None and new_name.endswith(self._aim[0]):
            (_, steps), self._aim = self._aim, None
            self.crash_in(steps)
        self.allow("rename")
        self.step()
        if new_parent is parent:
            parent.change((name, None), (new_name, node))
        else:
            new_parent.change((new_name, node))
            parent.change((name, None))

    def unlink(self, path: str) -> None:
        parent, name = self._parent(path)
        if name in parent.entries:
            if not self.is_without_room:
                self.step()
            parent.change((name, None))

    def rmtree(self, path: str) -> None:
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, Directory):
            for name in sorted(node.entries):
                self.rmtree(f"{path}/{name}")
        self.unlink(path)

    def read(self, path: str) -> bytes:
        file = self._file(path)
        self.allow("open")
        return bytes(file.data)

    def contents(self, path: str) -> bytes:
        """A file's contents, for the simulator's own use; this is never refused."""
        return bytes(self._file(path).data)

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append(data)
            if sync:
                file.fsync()
        except OSError:
            with suppress(OSError):
                self.unlink(temporary)
            raise
        self.rename(temporary, path)
        if sync:
            self.fsync_dir(path.rpartition("/")[0])

    def fsync_dir(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(path)
        self.allow("open")
        if not self.is_full:
            self.step()
        node.sync()

    def free_bytes(self, path: str) -> int:
        return FREE_BYTES

    def total_bytes(self, path: str) -> int:
        return 2 * FREE_BYTES

    def fsync_file(self, path: str) -> None:
        self.open(path).fsync()

    def most_open_files(self) -> int:
        return self.descriptors

    def reserve_descriptors(self, count: int) -> None:
        pass

    def lock(self, path: str) -> SimLock:
        if path in self.locks:
            raise BlockingIOError(path)
        self.open(path, create=True)
        self.locks[path] = None
        return SimLock(self, path)

    # --- looking on ------------------------------------------------------------------------------

    def files(self) -> Iterator[tuple[str, Inode]]:
        """Every file, with its path."""
        yield from self._walk("", self.root)

    def _walk(self, path: str, directory: Directory) -> Iterator[tuple[str, Inode]]:
        """Each file below the directory, with its path."""
        for name in sorted(directory.entries):
            node = directory.entries[name]
            if isinstance(node, Directory):
                yield from self._walk(f"{path}/{name}", node)
            else:
                yield f"{path}/{name}", node


def _copy_of(directory: Directory) -> Directory:
    copy = Directory()
    for name, node in directory.entries.items():
        if isinstance(node, Directory):
            copy.entries[name] = _copy_of(node)
        else:
            inode = copy.entries[name] = Inode(node.modified_ms)
            inode.data = bytearray(node.data)
    return copy


def implements_the_protocol(disk: SimDisk) -> Any:
    """A check for mypy that a SimDisk is a Disk."""
    from barnabas.storage.disk import Disk

    checked: Disk = disk
    return checked
