"""Brings a copy of a data directory up to date while the directory is written to.

The leader visits the entries (files and directories) of its directory one after the other. It
compares the files of the copy piece by piece, by checksums, and sends what is missing. The broker
changes its files meanwhile. Each such operation is either sent at its place in the stream, or
omitted because a later visit includes its effect:

    the operation concerns          it is
    an entry not visited yet        omitted
    a file that is being compared   omitted if APPEND; otherwise sent, and taken into account
    anything else                   sent

When nothing is left the copy equals the directory, and from then on each operation keeps it equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas.protocol.checksum import crc32c
from barnabas.replication.operations import (
    Kind,
    Operation,
    is_local,
    is_stray,
    is_unfinished,
)
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import NOT_SENT_NAME

PIECE_BYTES = 1 << 20
PIECES_AT_ONCE = 16  # the number of a file's pieces that are compared between two messages


class Held(NamedTuple):
    """A file of the copy. checksums: the CRC-32C of each piece of PIECE_BYTES, and of the shorter
    last piece.
    """

    size: int
    checksums: tuple[int, ...]


Inventory = Mapping[str, Held]


def take_inventory(disk: Disk, data_dir: str) -> Iterator[tuple[str, Held]]:
    """Yields the files of a copy by their relative paths, and its directories with a slash at the
    end.

    A large file is yielded in parts, each with PIECES_AT_ONCE of its checksums. `add_to_inventory`
    joins them.
    """
    for name in disk.list(data_dir):
        if disk.is_dir(f"{data_dir}/{name}") and not is_stray(name):
            yield f"{name}/", Held(0, ())
    for name in _files_below(disk, data_dir, ""):
        file = disk.open(f"{data_dir}/{name}")
        part_bytes = PIECES_AT_ONCE * PIECE_BYTES
        for start in range(0, max(file.size, 1), part_bytes):
            pieces = range(start, min(start + part_bytes, file.size), PIECE_BYTES)
            checksums = tuple(crc32c(file.pread(PIECE_BYTES, position)) for position in pieces)
            yield name, Held(file.size, checksums)
        file.close()


def add_to_inventory(inventory: dict[str, Held], path: str, part: Held) -> None:
    """Add a result of `take_inventory`. If it is a further part of a file, it is joined to the
    parts before it.
    """
    earlier = inventory.get(path)
    checksums = part.checksums if earlier is None else earlier.checksums + part.checksums
    inventory[path] = Held(part.size, checksums)


def _files_below(disk: Disk, data_dir: str, entry: str) -> Iterator[str]:
    """The files in a directory of the data directory and in its subdirectories, without local
    files.
    """
    prefix = f"{entry}/" if entry else ""
    for name in disk.list(f"{data_dir}/{entry}" if entry else data_dir):
        path = prefix + name
        if disk.is_dir(f"{data_dir}/{path}"):
            yield from _files_below(disk, data_dir, path)
        elif not is_local(path):
            yield path


class _Pending:
    """A file that is being compared.

    position: the end of the part that was compared. The pieces of `held` after it are still to be
    compared.
    """

    __slots__ = ("held", "position", "size")

    def __init__(self, held: Held | None) -> None:
        self.position = 0
        self.size = 0 if held is None else held.size  # the size of the copy's file
        self.held = held

    def checksum(self) -> tuple[int, int] | None:
        """The length and the checksum of the copy's next piece; None if its checksum is unknown."""
        held, position = self.held, self.position
        if held is None or position >= self.size or position % PIECE_BYTES:
            return None
        index = position // PIECE_BYTES
        if index >= len(held.checksums):  # the copy has sent no checksum for this piece
            return None
        return min(PIECE_BYTES, self.size - position), held.checksums[index]

    def cut(self, size: int) -> None:
        """Record that the copy's file was cut. The part that was not compared yet is sent without a
        comparison.
        """
        self.size, self.held = size, None
        self.position = min(self.position, size)


class CatchUp:
    """The process that brings one copy up to date.

    not_sent: the directories that no standby had before.
    """

    def __init__(self, disk: Disk, data_dir: str, inventory: Inventory) -> None:
        self._disk, self._data_dir = disk, data_dir
        self._held: dict[str, dict[str, Held]] = {}
        for path, held in inventory.items():
            self._held.setdefault(_entry(path), {})[path] = held
        self._unvisited = dict.fromkeys(name for name in disk.list(data_dir) if not is_local(name))
        self._pending: dict[str, _Pending] = {}
        self.not_sent: list[str] = []

    @property
    def is_done(self) -> bool:
        """Whether the copy equals the directory."""
        return not (self._unvisited or self._pending or self._held)

    def next_operations(self) -> Sequence[Operation]:
        """The operations of the next step, which compares one file or visits one entry. The step
        may need no operation.
        """
        if self._pending:
            return self._compare(next(iter(self._pending)))
        if self._unvisited:
            return self._visit(next(iter(self._unvisited)))
        if self._held:  # entries that are no longer in the directory
            name = next(iter(self._held))
            return self._remove(name, self._held.pop(name))
        return ()

    def on_operation(self, operation: Operation) -> Sequence[Operation]:
        """The operations to send because of an operation on the directory."""
        kind, path, new_path = operation.kind, operation.path, operation.new_path
        entry = _entry(path)
        if entry in self._unvisited:
            if kind is Kind.RENAME and path == entry:
                del self._unvisited[entry]
                self._unvisited[new_path] = None
            elif path == entry and kind in (Kind.REMOVE, Kind.REMOVE_TREE):
                del self._unvisited[entry]
            return ()
        if kind is Kind.APPEND and path in self._pending:
            return ()
        before = self._make_way(entry if kind is not Kind.RENAME else _entry(new_path))
        if kind is Kind.TRUNCATE and path in self._pending:
            return (*before, *self._cut(path, operation.position))
        if kind in (Kind.REMOVE, Kind.REPLACE):
            self._pending.pop(path, None)
        elif kind in (Kind.RENAME, Kind.REMOVE_TREE):
            self._move(path, new_path if kind is Kind.RENAME else None)
        return (*before, operation)

    def _make_way(self, entry: str) -> Sequence[Operation]:
        """Remove an older entry of the copy that has the name of a new entry."""
        if entry in self._unvisited or entry not in self._held:
            return ()
        return self._remove(entry, self._held.pop(entry))

    def _cut(self, path: str, size: int) -> Sequence[Operation]:
        """The operation that cuts the copy of a file that is being compared; none if the copy is
        shorter.
        """
        pending = self._pending[path]
        if pending.size <= size:
            return ()
        pending.cut(size)
        return (Operation(Kind.TRUNCATE, path, size),)

    def _move(self, path: str, new_path: str | None) -> None:
        """Rename the files that are being compared, after a rename of a file or directory; drop
        them if new_path is None.
        """
        if new_path not in (None, path):
            self._pending.pop(new_path, None)  # the rename has replaced the file that had this name
        inside = path + "/"
        for known in [one for one in self._pending if one == path or one.startswith(inside)]:
            pending = self._pending.pop(known)
            if new_path is not None:
                self._pending[new_path + known[len(path) :]] = pending

    def _visit(self, entry: str) -> Sequence[Operation]:
        """Begin to compare an entry: remove surplus files, and create missing ones."""
        del self._unvisited[entry]
        held = self._held.pop(entry, {})
        path = f"{self._data_dir}/{entry}"
        if not self._disk.exists(path):
            return self._remove(entry, held)
        operations: list[Operation] = []
        names = [entry]
        if self._disk.is_dir(path):
            if self._disk.exists(f"{path}/{NOT_SENT_NAME}"):
                self.not_sent.append(entry)
            if entry in held:
                operations.append(Operation(Kind.REMOVE, entry))
                held = {}
            operations += (Operation(Kind.MAKE_DIRECTORY, one) for one in self._directories(entry))
            names = list(_files_below(self._disk, self._data_dir, entry))
        elif held and entry not in held:
            operations.append(Operation(Kind.REMOVE_TREE, entry))
            held = {}
        names = [name for name in names if not is_unfinished(name)]
        known = set(names)
        operations += (
            Operation(Kind.REMOVE, name)
            for name in held
            if name not in known and not name.endswith("/")
        )
        operations += (Operation(Kind.CREATE, name) for name in names if name not in held)
        self._pending.update((name, _Pending(held.get(name))) for name in names)
        return operations

    def _directories(self, entry: str) -> Iterator[str]:
        """A directory and all directories below it, parents first."""
        yield entry
        for name in self._disk.list(f"{self._data_dir}/{entry}"):
            if self._disk.is_dir(f"{self._data_dir}/{entry}/{name}"):
                yield from self._directories(f"{entry}/{name}")

    def _remove(self, entry: str, held: Iterable[str]) -> Sequence[Operation]:
        kind = Kind.REMOVE if entry in set(held) else Kind.REMOVE_TREE
        return (Operation(kind, entry),)

    def _compare(self, path: str) -> Sequence[Operation]:
        """Compare or send the next piece of a file."""
        pending = self._pending[path]
        file = self._disk.open(f"{self._data_dir}/{path}")
        position = pending.position
        if position >= file.size:
            del self._pending[path]
            if pending.size > file.size:
                return (Operation(Kind.TRUNCATE, path, file.size),)
            return ()
        known = pending.checksum()
        if known is not None and position + known[0] <= file.size:
            length, checksum = known
            if crc32c(file.pread(length, position)) == checksum:
                pending.position += length
                return ()
        operations = []
        if pending.size > position:
            pending.cut(position)
            operations.append(Operation(Kind.TRUNCATE, path, position))
        data = file.pread(PIECE_BYTES, position)
        operations.append(Operation(Kind.APPEND, path, position, data))
        pending.position = pending.size = position + len(data)
        return operations


def _entry(path: str) -> str:
    """The entry of the data directory that contains a path."""
    return path.partition("/")[0]
