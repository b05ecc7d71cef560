"""The seam to the machine: files, names and errors as POSIX and Linux have them."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.storage.disk import (
    DirectorySync,
    FailedFsync,
    OsDisk,
    is_out_of_resources,
    may_have_lost_pages,
)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_what_is_used_up_may_be_there_later(code: int) -> None:
    assert is_out_of_resources(OSError(code, ""))
    assert not is_out_of_resources(OSError(errno.EIO, ""))


def test_an_error_of_the_device_may_have_taken_pages() -> None:
    assert may_have_lost_pages(OSError(errno.EIO, ""))
    assert not may_have_lost_pages(OSError(errno.EACCES, ""))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_takes_pages_where_an_fsync_finds_it_full_alone(code: int) -> None:
    """Pages that were written before are there when a new file, or more of one, is refused."""
    assert not may_have_lost_pages(OSError(code, ""))
    assert may_have_lost_pages(FailedFsync(code, ""))


@pytest.mark.parametrize("name", ["fsync", "fdatasync"])
def test_a_failed_fsync_says_that_it_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    disk, path = OsDisk(), f"{tmp_path}/f"
    file = disk.open(path, create=True)
    monkeypatch.setattr(os, name, fail)
    calls: list[Callable[[], None]] = [lambda: disk.write_atomic(path, b"x")]
    calls.append(file.fsync if name == "fdatasync" else lambda: disk.fsync_dir(str(tmp_path)))
    for call in calls:
        with pytest.raises(FailedFsync, match="full") as raised:
            call()
        assert raised.value.errno == errno.ENOSPC


def test_a_file_grows_at_its_end_and_is_cut_there(tmp_path: Path) -> None:
    file = OsDisk().open(f"{tmp_path}/f", create=True)
    assert (file.append(b"abc"), file.append(memoryview(b"de")), file.size) == (0, 3, 5)
    assert file.pread(10, 2) == b"cde" and file.pread(1, 9) == b""
    file.truncate(1)
    assert file.size == 1 and (tmp_path / "f").read_bytes() == b"a"


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pwrite(2) may write less than it was given."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, bytes(data)[:2], at))
    OsDisk().open(f"{tmp_path}/f", create=True).append(b"abcde")
    assert (tmp_path / "f").read_bytes() == b"abcde"
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="nothing more") as error:
        OsDisk().open(f"{tmp_path}/f").append(b"a")
    assert error.value.errno == errno.ENOSPC


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    disk = OsDisk()
    disk.write_atomic(f"{tmp_path}/f", b"one")
    disk.write_atomic(f"{tmp_path}/f", b"two", sync=False)
    assert disk.read(f"{tmp_path}/f") == b"two" and disk.list(str(tmp_path)) == ["f"]


def test_what_is_to_last_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def note(name: str) -> None:
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args: (calls.append(name), call(*args))[1])

    for name in ("fdatasync", "replace", "fsync"):
        note(name)
    disk, path = OsDisk(), f"{tmp_path}/f"
    disk.write_atomic(path, b"one")
    assert calls == ["fdatasync", "replace", "fsync"]
    calls.clear()
    disk.write_atomic(path, b"two", sync=False)
    assert calls == ["replace"]
    calls.clear()
    disk.open(path).fsync()
    assert calls == ["fdatasync"]
    calls.clear()
    DirectorySync(disk, str(tmp_path)).fsync()
    assert calls == ["fsync"]


def test_what_finds_no_space_is_not_left_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    disk = OsDisk()
    disk.write_atomic(f"{tmp_path}/f", b"one")
    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(OSError, match="no space"):
        disk.write_atomic(f"{tmp_path}/f", b"two")
    assert disk.list(str(tmp_path)) == ["f"] and disk.read(f"{tmp_path}/f") == b"one"


def test_a_second_process_finds_the_lock_taken(tmp_path: Path) -> None:
    disk = OsDisk()
    lock = disk.lock(f"{tmp_path}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{tmp_path}/.lock")
    lock.release()
    disk.lock(f"{tmp_path}/.lock").release()


def test_what_is_not_there_need_not_be_removed(tmp_path: Path) -> None:
    disk = OsDisk()
    disk.unlink(f"{tmp_path}/nothing")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"")
    disk.rmtree(f"{tmp_path}/d")
    assert not disk.exists(f"{tmp_path}/d")


def test_two_flushes_of_one_directory_are_the_same(tmp_path: Path) -> None:
    disk = OsDisk()
    one, two = DirectorySync(disk, str(tmp_path)), DirectorySync(disk, str(tmp_path))
    assert one == two and len({one, two}) == 1
    one.fsync()


def test_a_copy_of_a_directory_has_another_mount_id(tmp_path: Path) -> None:
    disk = OsDisk()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert disk.mount_id(f"{tmp_path}/a") == disk.mount_id(f"{tmp_path}/a")
    assert disk.mount_id(f"{tmp_path}/a") != disk.mount_id(f"{tmp_path}/b")


def test_a_file_that_cannot_be_opened_closes_no_descriptor_of_others(tmp_path: Path) -> None:
    before = [os.fstat(descriptor).st_ino for descriptor in range(3)]
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            OsDisk().open(f"{tmp_path}/none")
    gc.collect()
    assert [os.fstat(descriptor).st_ino for descriptor in range(3)] == before


@pytest.mark.parametrize("is_relative", [False, True])
def test_the_directory_that_is_made_durable_is_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_relative: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    synced: list[str] = []
    monkeypatch.setattr(OsDisk, "fsync_dir", lambda _disk, path: synced.append(path))
    OsDisk().write_atomic("f" if is_relative else f"{tmp_path}/f", b"one")
    assert [os.path.realpath(path) for path in synced] == [str(tmp_path)]
    OsDisk().mkdir(f"{tmp_path}/a")
    (tmp_path / "d").mkdir()
    OsDisk().write_atomic(f"{tmp_path}/d/f", b"one")
    assert os.path.realpath(synced[1]) == str(tmp_path / "d")


def test_a_directory_may_be_there_already(tmp_path: Path) -> None:
    for _ in range(2):
        OsDisk().mkdir(f"{tmp_path}/a/b")
    assert (tmp_path / "a" / "b").is_dir()


def modes_of(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}


def test_files_and_directories_are_their_owners_alone(tmp_path: Path) -> None:
    """Some hold what passwords can be tried against, and all of them records."""
    disk, before = OsDisk(), os.umask(0)
    try:
        disk.open(f"{tmp_path}/file", create=True)
        disk.write_atomic(f"{tmp_path}/atomic", b"x")
        disk.lock(f"{tmp_path}/lock").release()
        disk.mkdir(f"{tmp_path}/directory")
    finally:
        os.umask(before)
    assert modes_of(tmp_path) == {"file": 0o600, "atomic": 0o600, "lock": 0o600, "directory": 0o700}


def test_a_file_that_others_could_read_is_taken_from_them_when_it_is_written_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"x")
    path.chmod(0o644)
    OsDisk().open(str(path))
    assert modes_of(tmp_path) == {"journal": 0o644}, "who reads it alone changes nothing"
    assert OsDisk().open(str(path), create=True).size == 1
    assert modes_of(tmp_path) == {"journal": 0o600}


def test_another_users_file_that_one_may_write_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, mode: int) -> None:
        raise PermissionError(errno.EPERM, "not the owner")

    path = tmp_path / "journal"
    path.touch()
    path.chmod(0o666)
    monkeypatch.setattr(os, "fchmod", refuse)
    assert OsDisk().open(str(path), create=True).append(b"x") == 0
