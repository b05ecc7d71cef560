"""The interface to the operating system: files, names and errors of POSIX and Linux."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from sim.disk import Refusal, SimDisk

from barnabas.storage import disk as disk_module
from barnabas.storage.disk import (
    DirectorySync,
    FailedFsync,
    NotWrittenError,
    OsDisk,
    append_whole,
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
    """If the system refuses a new file or the extension of a file, earlier pages are kept. Only a
    failed fsync may lose pages.
    """
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
    """pwrite(2) may write fewer bytes than requested."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, bytes(data)[:2], at))
    OsDisk().open(f"{tmp_path}/f", create=True).append(b"abcde")
    assert (tmp_path / "f").read_bytes() == b"abcde"
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="no more bytes") as error:
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
    """`write_atomic` flushes the new content, renames the file over the old one, and flushes the
    directory, in this order. Without `sync` it only renames.
    """
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


def test_names_come_in_their_order(tmp_path: Path) -> None:
    """Interrupted swaps of segments must be completed from the oldest segment on."""
    for number in random.Random(7).sample(range(40), 40):
        (tmp_path / f"{number:020d}.log").touch()
    assert OsDisk().list(str(tmp_path)) == [f"{number:020d}.log" for number in range(40)]


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


def test_of_an_append_that_finds_no_space_nothing_is_left() -> None:
    """A part that remained would look like the beginning of a change that a kill interrupted."""
    for seed in range(8):
        disk = SimDisk(random.Random(seed), lambda: 0)
        disk.mkdir("/data")
        file = disk.open("/data/f", create=True)
        assert append_whole(file, b"whole") == 0
        disk.refuse(Refusal(frozenset({"write"}), errno.ENOSPC))
        with pytest.raises(NotWrittenError):
            append_whole(file, b"of this a part may be written")
        disk.refuse(None)
        assert disk.read("/data/f") == b"whole"
        assert append_whole(file, b".") == 5


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
    assert one != DirectorySync(disk, f"{tmp_path}/d") and one != str(tmp_path)
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
    assert os.path.isdir(synced[0]), "an empty path cannot be opened"
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
    """Some files contain verifiers of passwords, and others contain records."""
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


def test_who_has_his_file_for_himself_has_its_mode_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, mode: int) -> None:
        raise AssertionError("the mode is changed")

    monkeypatch.setattr(os, "fchmod", refuse)
    for _ in range(2):
        OsDisk().open(f"{tmp_path}/f", create=True)


def test_a_file_that_could_not_be_cut_has_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "broken")

    file = OsDisk().open(f"{tmp_path}/f", create=True)
    file.append(b"abc")
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(OSError, match="broken"):
        file.truncate(1)
    assert file.size == 3


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_a_file_is_closed_when_it_is_told_or_when_nobody_has_it_any_more(tmp_path: Path) -> None:
    disk = OsDisk()
    file = disk.open(f"{tmp_path}/f", create=True)
    descriptor = file.fileno()
    file.close()
    assert not is_open(descriptor)
    file.close()
    file = disk.open(f"{tmp_path}/f")
    descriptor = file.fileno()
    assert is_open(descriptor)
    del file
    gc.collect()
    assert not is_open(descriptor)


def test_nothing_stays_open_but_files_and_locks(tmp_path: Path) -> None:
    disk, path = OsDisk(), f"{tmp_path}/f"
    lock = disk.lock(f"{tmp_path}/.lock")
    gc.collect()
    before = sorted(os.listdir("/dev/fd"))
    disk.write_atomic(path, b"one")
    disk.write_atomic(path, b"two", sync=False)
    disk.read(path)
    disk.fsync_dir(str(tmp_path))
    with pytest.raises(BlockingIOError):
        disk.lock(f"{tmp_path}/.lock")
    assert sorted(os.listdir("/dev/fd")) == before
    lock.release()


@pytest.mark.parametrize(
    ("code", "is_taken"), [(errno.EACCES, True), (errno.EAGAIN, True), (errno.ENOLCK, False)]
)
def test_a_lock_of_java_is_one_too_and_another_error_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_taken: bool
) -> None:
    """fcntl(2) may return either code if another process has the lock."""

    def refuse(fd: int, operation: int) -> None:
        raise OSError(code, "refused")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(OSError, match="refused") as raised:
        OsDisk().lock(f"{tmp_path}/.lock")
    assert isinstance(raised.value, BlockingIOError) is is_taken
    assert raised.value.errno == code
    assert raised.value.filename == (f"{tmp_path}/.lock" if is_taken else None)


def test_a_lock_is_released_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When release is called again, the descriptor number may already belong to another file."""
    lock = OsDisk().lock(f"{tmp_path}/.lock")
    closed: list[int] = []
    close = os.close
    monkeypatch.setattr(os, "close", lambda fd: (closed.append(fd), close(fd))[1])
    lock.release()
    lock.release()
    assert len(closed) == 1


def test_the_time_of_a_file_is_in_whole_milliseconds(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    os.utime(tmp_path / "f", ns=(0, 1_700_000_000_123_999_999))
    modified_ms = OsDisk().modified_ms(f"{tmp_path}/f")
    assert modified_ms == 1_700_000_000_123


def test_what_an_earlier_attempt_left_is_no_part_of_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "f.tmp").write_bytes(b"a longer text")
    OsDisk().write_atomic(f"{tmp_path}/f", b"two")
    assert (tmp_path / "f").read_bytes() == b"two"


def test_a_file_is_no_directory_to_make_durable(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        OsDisk().fsync_dir(f"{tmp_path}/f")


@pytest.mark.parametrize(("text", "boot_id"), [("a-b\n", "a-b"), ("\n", None), (None, None)])
def test_a_system_may_not_tell_its_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, boot_id: str | None
) -> None:
    path = tmp_path / "boot_id"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(disk_module, "BOOT_ID_PATH", str(path))
    assert OsDisk().boot_id() == boot_id


# --- statx(2): struct statx begins with stx_mask, and has stx_mnt_id at byte 144 ------------------

AT_FDCWD, STATX_BASIC_STATS, STATX_MNT_ID_UNIQUE = -100, 0x7FF, 0x4000


@pytest.mark.parametrize(
    ("mask", "failure", "mount"),
    [
        (STATX_BASIC_STATS | STATX_MNT_ID_UNIQUE, 0, "77"),
        (STATX_BASIC_STATS, 0, "0"),  # a kernel before 6.8
        (STATX_BASIC_STATS | STATX_MNT_ID_UNIQUE, -1, "0"),
        (None, 0, "0"),  # no such function
    ],
)
def test_the_mount_is_told_by_the_number_that_is_never_given_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mask: int | None,
    failure: int,
    mount: str,
) -> None:
    """The mount's number comes from statx if the kernel has unique numbers. Otherwise it is 0."""
    asked = []

    def statx(
        directory: int, path: bytes, flags: int, wanted: int, buffer: ctypes.Array[ctypes.c_char]
    ) -> int:
        asked.append((directory, path, flags, wanted))
        struct.pack_into("=I", buffer, 0, mask or 0)
        struct.pack_into("=Q", buffer, 144, 77)
        return failure

    library = SimpleNamespace() if mask is None else SimpleNamespace(statx=statx)
    monkeypatch.setattr("barnabas.storage.disk._libc", lambda: library)
    status = tmp_path.stat()
    assert OsDisk().mount_id(str(tmp_path)) == f"{mount}-{status.st_dev}-{status.st_ino}"
    wanted = [(AT_FDCWD, os.fsencode(tmp_path), 0, STATX_MNT_ID_UNIQUE)]
    assert asked == ([] if mask is None else wanted)
