"""The files of a new log, and the name of their directory before it becomes the log's directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from uuid import UUID

import pytest
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, open_manager

from barnabas.storage.disk import File, OsDisk
from barnabas.storage.log.new_files import NewFiles, is_of_new_files, new_suffix
from barnabas.storage.log_config import LogConfig


def test_their_names_are_those_of_no_other_directory() -> None:
    unique = "0123456789ab5def8123456789abcdef"  # the id of a deletion: a UUID of version 5
    name = f"/data/t{new_suffix(7, unique)}"
    assert name == "/data/t-7.0123456789ab8def8123456789abcdef-delete"
    assert is_of_new_files(name) and is_of_new_files(f"{name}/partition.metadata")
    for other in (f"/data/t-7.{unique}-delete", f"/data/t-7.{unique}-delete/x", "/data/t-7"):
        assert not is_of_new_files(other)


def test_they_are_what_a_log_makes_itself(tmp_path: Path) -> None:
    """Files that were made in advance are the same as those that a log makes itself."""
    manager = open_manager(tmp_path)
    made = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS, leader_epoch=3)
    made.files.make()
    taken = manager.create("t", 1, TOPIC_ID, LogConfig(), NOW_MS, leader_epoch=3)
    files = manager.begin_files(taken)
    assert taken.files.new_files is files and not files.is_made
    files.make()
    files.make()
    assert files.is_made and not taken.files.are_made
    manager.take_files(taken, files, NOW_MS)
    assert taken.files.are_made and taken.files.new_files is None and files.is_taken
    contents = [
        {path.name: path.read_bytes() for path in Path(log.directory).iterdir()}
        for log in (made, taken)
    ]
    assert contents[0] == contents[1] and contents[0]
    assert taken.durability.names_changed and taken.epochs.written == [(3, 0)]
    manager.take_files(taken, files, NOW_MS)
    assert os.path.isdir(taken.directory)


def test_a_log_that_takes_the_files_with_its_first_batch_keeps_nothing_of_them(
    tmp_path: Path,
) -> None:
    """The batch may come after the thread has made the files, and before the loop takes them."""
    manager = open_manager(tmp_path)
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    files = manager.begin_files(log)
    files.make()
    log.append(batch([b"v"]), now_ms=NOW_MS)
    assert log.files.are_made and log.files.new_files is None and files.is_taken
    manager.take_files(log, files, NOW_MS)
    assert log.files.are_made and log.files.new_files is None


def test_files_whose_name_finds_no_space_are_given_up_once(tmp_path: Path) -> None:
    """Several requests may wait for the files. The directory has already been deleted when the
    second request continues, and the log makes new files.
    """

    class Refusing(OsDisk):
        is_full = True

        def rename(self, old: str, new: str) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), new)
            super().rename(old, new)

    disk = Refusing()
    manager = open_manager(tmp_path, disk=disk)
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    files = manager.begin_files(log)
    files.make()
    manager.take_files(log, files, NOW_MS)
    manager.on_tick(NOW_MS)
    assert not os.path.exists(files.directory)
    disk.is_full = False
    manager.take_files(log, files, NOW_MS)
    assert not log.files.are_made and not files.is_taken
    log.files.make()
    assert log.files.are_made


@pytest.mark.parametrize("name", [".log", ".index", ".timeindex"])
def test_of_files_that_cannot_be_made_nothing_is_left(tmp_path: Path, name: str) -> None:
    class Refusing(OsDisk):
        def open(self, path: str, *, create: bool = False) -> File:
            if path.endswith(name):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return super().open(path, create=create)

    files = NewFiles(Refusing(), f"{tmp_path}/t{new_suffix(0, 'a' * 32)}", UUID(int=1), [(0, 0)])
    files.make()
    assert not files.is_made and isinstance(files.error, OSError)
    assert files.error.errno == errno.ENOSPC and not os.listdir(tmp_path)
    files._disk = OsDisk()
    files.make()
    assert not files.is_made, (
        "after a failure only the log tries again, when a request needs the files"
    )


@pytest.mark.parametrize("error", [MemoryError(), ValueError("a defect"), RuntimeError("a defect")])
def test_no_failure_of_the_thread_goes_beyond_the_files(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected error in the thread is logged, and affects only these files."""

    class Failing(OsDisk):
        def open(self, path: str, *, create: bool = False) -> File:
            raise error

        def rmtree(self, path: str) -> None:
            super().rmtree(path)
            raise error

    files = NewFiles(Failing(), f"{tmp_path}/t{new_suffix(0, 'a' * 32)}", UUID(int=1), [(0, 0)])
    files.make()
    assert not files.is_made and files.error is error and not os.listdir(tmp_path)
    (line,) = caplog.records
    assert line.exc_info is not None and line.exc_info[1] is error, "the log line has the traceback"
