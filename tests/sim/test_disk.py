"""The simulated disk preserves durable data, and may lose other data."""

from __future__ import annotations

import random

import pytest

from sim.disk import Crash, SimDisk


def new_disk(seed: int = 1) -> SimDisk:
    disk = SimDisk(random.Random(seed), lambda: 1000)
    disk.mkdir("/d")
    disk.fsync_dir("/")
    return disk


def durable_file(disk: SimDisk, data: bytes) -> None:
    file = disk.open("/d/f", create=True)
    file.append(data)
    file.fsync()
    disk.fsync_dir("/d")


def test_a_kill_keeps_all_that_was_written() -> None:
    disk = new_disk()
    disk.open("/d/f", create=True).append(b"abc")
    disk.kill()
    assert disk.read("/d/f") == b"abc"
    assert disk.list("/d") == ["f"]


def test_a_kill_lets_go_of_locks() -> None:
    disk = new_disk()
    disk.lock("/d/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/d/.lock")
    disk.kill()
    disk.lock("/d/.lock").release()


def test_files_of_a_process_that_is_gone_cannot_be_written() -> None:
    disk = new_disk()
    file = disk.open("/d/f", create=True)
    disk.kill()
    with pytest.raises(AssertionError, match="is gone"):
        file.append(b"x")


def test_a_power_loss_keeps_what_was_fsynced() -> None:
    for seed in range(50):
        disk = new_disk(seed)
        durable_file(disk, b"abc")
        disk.open("/d/f").append(b"defghi" * 300)
        disk.lose_power()
        assert disk.read("/d/f")[:3] == b"abc"


def test_a_power_loss_may_do_anything_to_what_was_not() -> None:
    lengths, with_holes = set(), 0
    for seed in range(200):
        disk = new_disk(seed)
        durable_file(disk, b"")
        disk.open("/d/f").append(b"x" * 3000)
        disk.lose_power()
        data = disk.read("/d/f")
        lengths.add("none" if not data else "all" if len(data) == 3000 else "part")
        with_holes += b"\0" in data and data.rstrip(b"\0").endswith(b"x")
    assert lengths == {"none", "all", "part"}
    assert with_holes > 10


def test_a_name_is_durable_after_fsync_dir_alone() -> None:
    kept = []
    for seed in range(60):
        disk = new_disk(seed)
        file = disk.open("/d/new", create=True)
        file.append(b"abc")
        file.fsync()
        disk.lose_power()
        kept.append(disk.exists("/d/new"))
    assert True in kept and False in kept
    disk = new_disk()
    durable_file(disk, b"abc")
    disk.lose_power()
    assert disk.read("/d/f") == b"abc"


def test_changes_of_a_directory_are_kept_in_their_order() -> None:
    for seed in range(60):
        disk = new_disk(seed)
        for name in "abc":
            disk.open(f"/d/{name}", create=True)
        disk.rename("/d/a", "/d/z")
        disk.lose_power()
        names = disk.list("/d")
        assert names in ([], ["a"], ["a", "b"], ["a", "b", "c"], ["b", "c", "z"])


def test_a_rename_is_all_or_nothing_and_write_atomic_durable() -> None:
    for seed in range(60):
        disk = new_disk(seed)
        disk.write_atomic("/d/f", b"old")
        disk.write_atomic("/d/f", b"newer", sync=False)
        disk.lose_power()
        assert b"newer".startswith(disk.read("/d/f").rstrip(b"\0")) or disk.read("/d/f") == b"old"
        disk.write_atomic("/d/f", b"newest")
        disk.lose_power()
        assert disk.read("/d/f") == b"newest"


def test_a_cut_that_was_not_fsynced_may_be_undone() -> None:
    seen = set()
    for seed in range(60):
        disk = new_disk(seed)
        durable_file(disk, b"abcdef")
        disk.open("/d/f").truncate(2)
        disk.lose_power()
        seen.add(disk.read("/d/f"))
    assert seen == {b"ab", b"abcdef"}


def test_a_crash_comes_in_the_midst_of_an_append() -> None:
    lengths = set()
    for seed in range(40):
        disk = new_disk(seed)
        file = disk.open("/d/f", create=True)
        disk.crash_in(1)
        file.append(b"one")
        with pytest.raises(Crash):
            file.append(b"two")
        disk.kill()
        data = disk.read("/d/f")
        assert b"onetwo".startswith(data)
        lengths.add(len(data))
        disk.open("/d/f").append(b"!")
    assert lengths == {3, 4, 5, 6}


def test_a_full_disk_writes_in_part_and_stays_full() -> None:
    disk = new_disk()
    file = disk.open("/d/f", create=True)
    disk.crash_in(0, is_full=True)
    for _ in range(3):
        with pytest.raises(OSError, match="full"):
            file.append(b"abc")
    with pytest.raises(OSError, match="full"):
        disk.open("/d/g", create=True)
    disk.kill()
    disk.open("/d/g", create=True).append(b"abc")
    assert disk.read("/d/g") == b"abc"
