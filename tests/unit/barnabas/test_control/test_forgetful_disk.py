"""The content of files after a power loss: the bytes that were flushed, or that existed before the
run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from barnabas.test_control.forgetful_disk import ForgetfulDisk


@pytest.fixture
def disk(tmp_path: Path) -> ForgetfulDisk:
    return ForgetfulDisk(str(tmp_path))


def test_bytes_that_were_not_flushed_are_lost(disk: ForgetfulDisk, tmp_path: Path) -> None:
    flushed, never = (disk.open(str(tmp_path / name), create=True) for name in ("a", "b"))
    flushed.append(b"kept")
    flushed.fsync()
    flushed.append(b" lost")
    never.append(b"lost")
    disk.lose_power()
    assert (tmp_path / "a").read_bytes() == b"kept"
    assert (tmp_path / "b").read_bytes() == b""


@pytest.mark.parametrize("by_path", [False, True])
def test_bytes_written_while_a_flush_runs_are_not_durable(
    disk: ForgetfulDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_path: bool
) -> None:
    """Flushes run in other threads, so an append may occur between the sync and the record that the
    sync has succeeded.
    """
    path = str(tmp_path / "a")
    file = disk.open(path, create=True)
    file.append(b"kept")
    sync = os.fdatasync

    def sync_and_append(descriptor: int) -> None:
        sync(descriptor)
        file.append(b" lost")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", sync_and_append)
        if by_path:
            disk.fsync_file(path)
        else:
            file.fsync()
    disk.lose_power()
    assert (tmp_path / "a").read_bytes() == b"kept"


@pytest.mark.parametrize("seed", range(20))
def test_a_file_has_its_durable_bytes_whatever_was_done_to_it(
    disk: ForgetfulDisk, tmp_path: Path, seed: int
) -> None:
    """The files are compared with a model: the bytes of each file, and how many of them are
    durable.
    """
    drawn, names = random.Random(seed), ("a", "b")
    model: dict[str, tuple[bytes, int]] = {}
    for number in range(30):
        name, other = drawn.sample(names, 2)
        path = str(tmp_path / name)
        content, durable = model.get(name, (b"", 0))
        kind = drawn.choice(("append", "append", "flush", "cut", "rename", "unlink", "replace"))
        if kind == "append":
            data = b"%d;" % number * drawn.randint(1, 3)
            disk.open(path, create=True).append(data)
            model[name] = content + data, durable
        elif kind == "replace":
            disk.write_atomic(path, b"whole %d" % number)
            model[name] = (whole := b"whole %d" % number), len(whole)
        elif name not in model:
            continue
        elif kind == "flush":
            disk.open(path).fsync()
            model[name] = content, len(content)
        elif kind == "cut":
            size = drawn.randint(0, len(content))
            disk.open(path).truncate(size)
            model[name] = content[:size], min(durable, size)
        elif kind == "rename":
            disk.rename(path, str(tmp_path / other))
            model[other] = model.pop(name)
        else:
            disk.unlink(path)
            del model[name]
    disk.lose_power()
    left = {name: (tmp_path / name).read_bytes() for name in names if (tmp_path / name).exists()}
    assert left == {name: content[:durable] for name, (content, durable) in model.items()}


def test_a_flush_that_ends_late_does_not_lower_the_durable_size(
    disk: ForgetfulDisk, tmp_path: Path
) -> None:
    path = str(tmp_path / "a")
    disk.open(path, create=True).append(b"kept and kept")
    disk.note(path, 13)
    disk.note(path, 4)  # reported late, by a flush that began before the previous one
    disk.lose_power()
    assert (tmp_path / "a").read_bytes() == b"kept and kept"


def test_a_new_file_does_not_inherit_the_durable_size_of_a_deleted_file(
    disk: ForgetfulDisk, tmp_path: Path
) -> None:
    directory = str(tmp_path / "t-0")
    for name in ("unlinked", "removed"):
        disk.mkdir(directory)
        file = disk.open(f"{directory}/{name}", create=True)
        file.append(b"kept")
        file.fsync()
        if name == "removed":
            disk.rmtree(directory)
        else:
            disk.unlink(f"{directory}/{name}")
    disk.mkdir(directory)
    for name in ("unlinked", "removed"):
        disk.open(f"{directory}/{name}", create=True).append(b"lost")
    disk.lose_power()
    for name in ("unlinked", "removed"):
        assert (tmp_path / "t-0" / name).read_bytes() == b"", name


def test_the_content_from_before_the_run_is_kept(disk: ForgetfulDisk, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    disk.open(str(tmp_path / "a")).append(b" and after")
    disk.lose_power()
    assert (tmp_path / "a").read_bytes() == b"before"


def test_opening_a_file_again_does_not_make_it_durable(disk: ForgetfulDisk, tmp_path: Path) -> None:
    disk.open(str(tmp_path / "a"), create=True).append(b"lost")
    disk.open(str(tmp_path / "a"))
    disk.lose_power()
    assert (tmp_path / "a").read_bytes() == b""


def test_the_durable_size_follows_a_renamed_directory(disk: ForgetfulDisk, tmp_path: Path) -> None:
    disk.mkdir(str(tmp_path / "t-0"))
    file = disk.open(str(tmp_path / "t-0" / "log"), create=True)
    file.append(b"kept")
    file.fsync()
    disk.open(str(tmp_path / "t-0" / "index"), create=True).append(b"lost")
    disk.rename(str(tmp_path / "t-0"), str(tmp_path / "t-1"))
    disk.lose_power()
    assert (tmp_path / "t-1" / "log").read_bytes() == b"kept"
    assert (tmp_path / "t-1" / "index").read_bytes() == b""


def test_a_renamed_file_keeps_its_own_durable_size_under_the_new_name(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"kept of old")
    disk = ForgetfulDisk(str(tmp_path))
    disk.open(str(tmp_path / "new"), create=True).append(b"lost")
    disk.rename(str(tmp_path / "old"), str(tmp_path / "new"))
    disk.open(str(tmp_path / "new")).append(b" lost")
    disk.lose_power()
    assert (tmp_path / "new").read_bytes() == b"kept of old"


def test_bytes_appended_after_a_truncation_are_not_durable(
    disk: ForgetfulDisk, tmp_path: Path
) -> None:
    file = disk.open(str(tmp_path / "a"), create=True)
    file.append(b"kept and cut")
    file.fsync()
    file.truncate(4)
    file.append(b" lost")
    disk.lose_power()
    assert (tmp_path / "a").read_bytes() == b"kept"


def test_a_file_that_was_replaced_atomically_is_durable(
    disk: ForgetfulDisk, tmp_path: Path
) -> None:
    disk.open(str(tmp_path / "a"), create=True).append(b"lost")
    disk.write_atomic(str(tmp_path / "a"), b"all of it")
    disk.lose_power()
    assert (tmp_path / "a").read_bytes() == b"all of it"


def test_lose_power_ignores_files_that_were_deleted(disk: ForgetfulDisk, tmp_path: Path) -> None:
    for name in ("a", "b"):
        disk.open(str(tmp_path / name), create=True).append(b"x")
    disk.unlink(str(tmp_path / "a"))
    (tmp_path / "b").unlink()
    disk.lose_power()


def test_each_power_loss_gives_a_new_boot_id(disk: ForgetfulDisk, tmp_path: Path) -> None:
    before = disk.boot_id()
    assert ForgetfulDisk(str(tmp_path)).boot_id() == before
    disk.lose_power()
    assert ForgetfulDisk(str(tmp_path)).boot_id() != before
