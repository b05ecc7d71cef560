"""The seam to the machine: files, names and errors as POSIX and Linux have them."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from barnabas.storage.disk import DirectorySync, OsDisk, is_out_of_resources, may_have_lost_pages


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_what_is_used_up_may_be_there_later(code: int) -> None:
    assert is_out_of_resources(OSError(code, ""))
    assert not is_out_of_resources(OSError(errno.EIO, ""))


def test_an_error_of_the_device_may_have_taken_pages() -> None:
    assert may_have_lost_pages(OSError(errno.EIO, ""))
    assert not may_have_lost_pages(OSError(errno.EACCES, ""))


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
