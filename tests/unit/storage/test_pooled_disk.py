"""Files that share a limited number of descriptors. Reads, writes, sends and flushes use the right
file, even if files were closed, renamed, replaced or removed in the meantime.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from barnabas.storage.disk import Data, File, OsDisk
from barnabas.storage.pooled_disk import (
    PooledDisk,
    PooledFile,
    disk_below,
    files_share,
    kept_from_connections,
    most_beside_clients,
)


class SmallDisk(OsDisk):
    """A disk with `most` descriptors. It refuses the next `refused` attempts to open a file."""

    def __init__(self, most: int) -> None:
        self.most, self.refused, self.opened = most, 0, 0

    def most_open_files(self) -> int:
        return self.most

    def _allow(self) -> None:
        """Count an attempt to open a file, or refuse it as if the process had no descriptor
        left.
        """
        if self.refused:
            self.refused -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.opened += 1

    def open(self, path: str, *, create: bool = False) -> File:
        self._allow()
        return super().open(path, create=create)

    def read(self, path: str) -> bytes:
        self._allow()
        return super().read(path)

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        self._allow()
        super().write_atomic(path, data, sync=sync)

    def fsync_file(self, path: str) -> None:
        self._allow()
        super().fsync_file(path)


LIMIT = 12  # six are for files. Connections can never take three of these.


@pytest.fixture
def below() -> SmallDisk:
    return SmallDisk(LIMIT)


@pytest.fixture
def disk(below: SmallDisk) -> PooledDisk:
    return PooledDisk(below)


def new_files(disk: PooledDisk, path: Path, count: int) -> list[Any]:
    files = []
    for number in range(count):
        file = disk.open(f"{path}/{number}", create=True)
        file.append(b"file %d" % number)
        files.append(file)
    return files


def is_open(files: list[PooledFile]) -> list[bool]:
    return [file.is_open for file in files]


# --- shares ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "reserved", "share"),
    [
        (20_000, 0, 15_000),
        (20_000, 2_500, 15_000),
        (20_000, 10_000, 7_500),
        (20_000, 17_500, 1_250),
        (20_000, 30_000, 1_250),
        (1024, 0, 768),
        (1024, 896, 64),
        (100, 0, 50),
        (64, 0, 32),
        (2, 0, 1),
        (1, 0, 1),
    ],
)
def test_files_get_three_quarters_of_the_descriptors_less_those_of_connections(
    limit: int, reserved: int, share: int
) -> None:
    assert files_share(limit, reserved) == share


@pytest.mark.parametrize("limit", [3, 16, 64, 100, 256, 1024, 20_000, 1 << 20])
def test_files_and_all_allowed_connections_leave_descriptors_for_the_rest(limit: int) -> None:
    most_connections = limit - kept_from_connections(limit)
    for connections in range(0, most_connections + 1, max(1, most_connections // 50)):
        left = limit - connections - files_share(limit, connections)
        assert left >= kept_from_connections(limit) // 2 - 1


@pytest.mark.parametrize("limit", [256, 1024, 4096, 20_000, 1 << 20])
def test_other_ports_leave_a_sixteenth_of_the_descriptors_kept_from_clients(
    limit: int,
) -> None:
    """Three of the other ports belong to HTTP servers, and one to the standby."""
    kept = kept_from_connections(limit)
    servers, standby = most_beside_clients(limit, 16, 64), most_beside_clients(limit, 8, 128)
    assert 4 <= servers <= 64 and servers <= standby <= 128
    assert 3 * servers + standby <= kept // 2 - kept // 16
    assert limit < 8192 or (servers, standby) == (64, 128)


def test_the_share_follows_the_limit_of_the_process(
    tmp_path: Path, disk: PooledDisk, below: SmallDisk
) -> None:
    files = new_files(disk, tmp_path, 20)
    assert is_open(files) == [False] * (20 - 6) + [True] * 6
    below.most = 40
    for file in files:
        file.pread(1, 0)
    assert is_open(files) == [True] * 20


# --- the order ------------------------------------------------------------------------------------


def test_the_least_recently_used_is_closed_and_opened_again_when_it_is_used(
    tmp_path: Path, disk: PooledDisk
) -> None:
    a, b, c, d, e, f, g = new_files(disk, tmp_path, 7)
    assert is_open([a, b, c, d, e, f, g]) == [False, *[True] * 6]
    b.pread(1, 0)
    c.append(b"!")
    buffer = memoryview(bytearray(6))
    assert d.readinto(buffer, 0) == 6 and bytes(buffer) == b"file 3"
    assert a.pread(10, 0) == b"file 0"
    assert is_open([a, b, c, d, e, f, g]) == [True, True, True, True, False, True, True]
    e.truncate(4)
    assert e.size == 4 and e.pread(10, 0) == b"file"
    assert is_open([a, b, c, d, e, f, g]) == [True, True, True, True, True, False, True]


def test_the_descriptors_of_the_process_are_bounded(tmp_path: Path, disk: PooledDisk) -> None:
    def open_here() -> int:
        return sum(
            os.path.realpath(f"/proc/self/fd/{name}").startswith(str(tmp_path))
            for name in os.listdir("/proc/self/fd")
        )

    files = new_files(disk, tmp_path, 50)
    assert open_here() == 6
    for number, file in enumerate(files):
        assert file.pread(20, 0) == b"file %d" % number
        assert open_here() == 6
    disk.reserve_descriptors(LIMIT)
    assert open_here() == 3
    del file, files
    assert open_here() == 0


def test_a_dropped_or_closed_file_does_not_use_a_descriptor(
    tmp_path: Path, disk: PooledDisk
) -> None:
    files = new_files(disk, tmp_path, 6)
    files.pop()
    files[0].close()
    files += [disk.open(f"{tmp_path}/{name}", create=True) for name in "ab"]
    assert is_open(files) == [False, *[True] * 6]
    with pytest.raises(FileNotFoundError):
        files[0].pread(1, 0)


def test_a_reopened_file_overwrites_the_remains_of_a_failed_append(
    tmp_path: Path, disk: PooledDisk
) -> None:
    (file,) = new_files(disk, tmp_path, 1)
    with open(tmp_path / "0", "ab") as half:
        half.write(b"ha")
    others = [disk.open(f"{tmp_path}/{name}", create=True) for name in "abcdef"]
    assert not file.is_open and all(is_open(others))  # type: ignore[arg-type]
    assert file.append(b"right") == 6
    assert (tmp_path / "0").read_bytes() == b"file 0right"


# --- names that change ----------------------------------------------------------------------------


def closed(disk: PooledDisk, tmp_path: Path, path: str) -> Any:
    """A file whose content is its path, and whose descriptor the pool has closed."""
    file: Any = disk.open(path, create=True)
    file.append(path.encode())
    close_all(disk, tmp_path)
    assert not file.is_open
    return file


def close_all(disk: PooledDisk, tmp_path: Path) -> None:
    """Open so many other files that the pool closes all earlier files."""
    for name in "uvwxyz":
        disk.open(f"{tmp_path}/{name}", create=True)
    others = [disk.open(f"{tmp_path}/{name}") for name in "uvwxyz"]
    del others


def test_a_closed_file_is_reopened_under_its_new_name(tmp_path: Path, disk: PooledDisk) -> None:
    path = f"{tmp_path}/segment.log"
    file = closed(disk, tmp_path, path)
    disk.rename(path, path + ".deleted")
    disk.write_atomic(path, b"another one")
    assert file.path == path + ".deleted"
    assert file.pread(100, 0) == path.encode()


def test_a_closed_file_is_reopened_in_its_renamed_directory(
    tmp_path: Path, disk: PooledDisk
) -> None:
    disk.mkdir(f"{tmp_path}/t-0")
    path = f"{tmp_path}/t-0/segment.log"
    file = closed(disk, tmp_path, path)
    disk.rename(f"{tmp_path}/t-0", f"{tmp_path}/t-0.gone-delete")
    disk.mkdir(f"{tmp_path}/t-0")
    disk.write_atomic(path, b"another one")
    assert file.path == f"{tmp_path}/t-0.gone-delete/segment.log"
    assert file.pread(100, 0) == path.encode()
    close_all(disk, tmp_path)
    disk.rename(f"{tmp_path}/t-0.gone-delete/segment.log", f"{tmp_path}/elsewhere")
    assert file.pread(100, 0) == path.encode() and file.path == f"{tmp_path}/elsewhere"


def test_a_failed_rename_keeps_the_files_name(tmp_path: Path, disk: PooledDisk) -> None:
    path = f"{tmp_path}/segment.log"
    file = closed(disk, tmp_path, path)
    with pytest.raises(FileNotFoundError):
        disk.rename(path, f"{tmp_path}/nowhere/segment.log")
    assert file.pread(100, 0) == path.encode()


@pytest.mark.parametrize("change", ["unlink", "rmtree", "replace", "write_atomic"])
def test_a_file_that_loses_its_name_stays_open_and_readable(
    tmp_path: Path, disk: PooledDisk, change: str
) -> None:
    disk.mkdir(f"{tmp_path}/t-0")
    path = f"{tmp_path}/t-0/segment.log"
    file = closed(disk, tmp_path, path)
    if change == "unlink":
        disk.unlink(path)
    elif change == "rmtree":
        disk.rmtree(f"{tmp_path}/t-0")
    elif change == "write_atomic":
        disk.write_atomic(path, b"another one")
    else:
        disk.write_atomic(path + ".swap", b"another one")
        disk.rename(path + ".swap", path)
    for _ in range(2):
        assert file.is_open
        assert file.pread(100, 0) == path.encode()
        close_all(disk, tmp_path)
    file.fsync()


def test_at_most_a_quarter_of_the_descriptors_is_for_files_without_a_name(
    tmp_path: Path, below: SmallDisk
) -> None:
    below.most = 40
    disk = PooledDisk(below)
    files = new_files(disk, tmp_path, 20)
    for file in files:
        disk.unlink(file.path)
    assert is_open(files) == [True] * 5 + [False] * 15
    with pytest.raises(FileNotFoundError):
        files[5].pread(1, 0)
    files[5].fsync()
    del files[0]
    (other,) = new_files(disk, tmp_path, 1)
    disk.unlink(other.path)
    assert other.is_open, "a file that is no longer used makes room"


# --- where no descriptor is left ------------------------------------------------------------------


def test_the_pool_closes_files_until_an_open_succeeds(
    tmp_path: Path, disk: PooledDisk, below: SmallDisk
) -> None:
    files = new_files(disk, tmp_path, 6)
    below.refused = 2
    assert disk.read(f"{tmp_path}/0") == b"file 0"
    assert is_open(files) == [False, False, *[True] * 4]
    for call in (
        lambda: disk.write_atomic(f"{tmp_path}/new", b"x"),
        lambda: disk.open(f"{tmp_path}/other", create=True),
        lambda: disk.fsync_file(f"{tmp_path}/0"),
        lambda: files[0].append(b"!"),
    ):
        below.refused = 1
        call()
        assert not below.refused


def test_an_open_fails_if_others_take_the_descriptors_that_the_pool_frees(
    tmp_path: Path, disk: PooledDisk, below: SmallDisk
) -> None:
    """Three descriptors are always reserved for files. Each attempt closes one of these files to
    open the requested one, but another part of the process takes the descriptor.
    """
    files = new_files(disk, tmp_path, 6)
    for left in (2, 1, 0, 0):
        below.refused = 10
        with pytest.raises(OSError, match="Too many open files"):
            disk.read(f"{tmp_path}/0")
        assert is_open(files) == [False] * (6 - left) + [True] * left
    below.refused = 0
    assert files[3].pread(10, 0) == b"file 3"


def test_another_error_closes_nothing(tmp_path: Path, disk: PooledDisk) -> None:
    files = new_files(disk, tmp_path, 6)
    with pytest.raises(FileNotFoundError):
        disk.read(f"{tmp_path}/nothing")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/nothing")
    assert is_open(files) == [True] * 6


# --- threads --------------------------------------------------------------------------------------


def test_a_closed_file_is_flushed_with_a_temporary_descriptor(
    tmp_path: Path, disk: PooledDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    file = closed(disk, tmp_path, f"{tmp_path}/a")
    inode = os.stat(tmp_path / "a").st_ino
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.fstat(fd).st_ino))
    file.fsync()
    assert not file.is_open and synced == [inode]
    file.pread(1, 0)
    file.fsync()
    assert synced == [inode] * 2


@pytest.mark.parametrize("of_directory", [False, True])
def test_a_flush_in_a_thread_follows_a_rename_before_it_opens_the_file(
    tmp_path: Path, disk: PooledDisk, monkeypatch: pytest.MonkeyPatch, of_directory: bool
) -> None:
    """The name of the file or of its directory changes after the look-up and before the file is
    opened.
    """
    directory = f"{tmp_path}/t-0"
    disk.mkdir(directory)
    file = closed(disk, tmp_path, f"{directory}/a")
    old = directory if of_directory else file.path
    inode = os.stat(file.path).st_ino
    synced: list[int] = []
    fsync_file = OsDisk.fsync_file

    def renamed_first(self: OsDisk, path: str) -> None:
        if os.path.exists(old):
            disk.rename(old, f"{old}-delete")
        fsync_file(self, path)

    monkeypatch.setattr(OsDisk, "fsync_file", renamed_first)
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.fstat(fd).st_ino))
    file.fsync()
    assert synced == [inode]


def test_a_flush_in_a_thread_succeeds_during_a_rename(tmp_path: Path, disk: PooledDisk) -> None:
    """The file system already has the new name, but the file object has the old one."""
    disk.mkdir(f"{tmp_path}/t-0")
    file = closed(disk, tmp_path, f"{tmp_path}/t-0/a")
    errors: list[BaseException] = []

    def flush() -> None:
        try:
            file.fsync()
        except BaseException as error:
            errors.append(error)

    rename = disk.below.rename

    def rename_and_flush(old: str, new: str) -> None:
        rename(old, new)
        thread = threading.Thread(target=flush)
        thread.start()
        thread.join()

    disk.below.rename = rename_and_flush  # type: ignore[method-assign]
    disk.rename(f"{tmp_path}/t-0", f"{tmp_path}/t-0-delete")
    disk.rename(f"{tmp_path}/t-0-delete/a", f"{tmp_path}/t-0-delete/b")
    assert not errors and file.path == f"{tmp_path}/t-0-delete/b"


def test_a_flush_of_a_file_that_another_program_removed_is_an_error(
    tmp_path: Path, disk: PooledDisk
) -> None:
    file = closed(disk, tmp_path, f"{tmp_path}/a")
    os.unlink(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        file.fsync()


def test_a_file_that_is_being_used_keeps_its_descriptor(tmp_path: Path, disk: PooledDisk) -> None:
    """While a thread flushes the file, the event loop closes the file to open another one. The
    other file may get the same descriptor number.
    """
    file: Any = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"a")
    used = file._file
    close_all(disk, tmp_path)
    assert not file.is_open
    assert used.pread(1, 0) == b"a"


def test_sendfile_of_a_reopened_file_sends_that_files_bytes(
    tmp_path: Path, disk: PooledDisk
) -> None:
    """Descriptor numbers of closed files are used again, so a wrong number would send another
    file's bytes.
    """
    files = new_files(disk, tmp_path, 3)
    disk.reserve_descriptors(LIMIT)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for number in (0, 2, 1, 0):
            close_all(disk, tmp_path)
            assert not files[number].is_open
            assert files[number].sendfile(ours.fileno(), 0, 6) == 6
            assert theirs.recv(100) == b"file %d" % number


def test_the_disk_below_is_that_of_the_pool(disk: PooledDisk, below: SmallDisk) -> None:
    assert disk_below(disk) is below and disk_below(below) is below
