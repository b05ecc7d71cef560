"""The session that a node of a pair stores for its next process: when it is valid. Also, the early
sync of a copy.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.replication.operations import is_local
from barnabas.replication.rim.early_sync import EarlySync
from barnabas.replication.rim.standby import Standby
from barnabas.replication.session_note import read_session, write_session
from barnabas.storage.disk import OsDisk, sync_file_system
from barnabas.storage.files.checkpoints import LEASE_SESSION_NAME
from barnabas.storage.opening.last_run import BOOT_ID_NAME, RunNote


@pytest.fixture
def led(tmp_path: Path) -> Path:
    """The data directory of a leader that was killed."""
    directory = tmp_path / "data"
    directory.mkdir()
    RunNote(OsDisk(), str(directory)).write()
    write_session(OsDisk(), str(directory), "s1")
    return directory


def test_the_session_of_a_killed_process_is_known_to_the_next(led: Path) -> None:
    assert read_session(OsDisk(), str(led)) == "s1"


def test_it_is_not_believed_once_the_machine_was_down(led: Path) -> None:
    note = led / BOOT_ID_NAME
    note.write_text("another " + note.read_text().partition(" ")[2])
    assert read_session(OsDisk(), str(led)) == ""


def test_a_copy_of_the_directory_does_not_believe_it(led: Path) -> None:
    """The process of that session may still be running as the leader, with the original
    directory.
    """
    copy = led.with_name("copy")
    shutil.copytree(led, copy, copy_function=shutil.copy2)
    assert read_session(OsDisk(), str(copy)) == ""
    led.rename(led.with_name("elsewhere"))
    copy.rename(led)
    assert read_session(OsDisk(), str(led)) == ""


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_a_note_that_says_nothing_is_none(led: Path, content: bytes | None) -> None:
    note = led / LEASE_SESSION_NAME
    note.unlink() if content is None else note.write_bytes(content)
    assert read_session(OsDisk(), str(led)) == ""


def test_it_is_the_nodes_own_and_no_sign_of_a_brokers_directory(tmp_path: Path) -> None:
    assert is_local(LEASE_SESSION_NAME)
    write_session(OsDisk(), str(tmp_path), "s1")
    from barnabas.broker.settings.config import BrokerConfig

    config = BrokerConfig.from_properties({"log.dirs": str(tmp_path)})
    Standby(config, ("127.0.0.1", 1))._lock.release()  # the directory still counts as empty


class CountedSync:
    """A sync of the disk that waits for `may_end`. `count` is the number of syncs that have
    ended.
    """

    def __init__(self) -> None:
        self.count, self.may_end = 0, threading.Event()
        self.has_begun = threading.Event()

    def __call__(self) -> None:
        self.has_begun.set()
        assert self.may_end.wait(60)
        self.count += 1


def test_what_was_synced_early_is_not_waited_for() -> None:
    disk = CountedSync()
    disk.may_end.set()
    early = EarlySync(disk)
    early.finish()  # files written before this run may not be durable
    assert disk.count == 1
    early.begin()
    early.finish()
    assert disk.count == 1


def test_what_is_written_meanwhile_is_synced_at_the_end() -> None:
    disk = CountedSync()
    early = EarlySync(disk)
    early.begin()
    assert disk.has_begun.wait(60)
    early.begin()  # no effect while a sync runs
    early.on_written()
    disk.may_end.set()
    early.finish()
    assert disk.count == 2


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_written_after_an_early_sync_is_synced_early_too(fails: bool) -> None:
    """A new sync starts even if the previous one failed. Only one sync runs at a time."""
    begun: list[Callable[[], None]] = []
    synced: list[str] = []

    def sync() -> None:
        synced.append("synced")
        if len(synced) == 1:
            early.on_written()  # during the sync
        if fails:
            raise OSError(5, "Input/output error")

    def run_beside(call: Callable[[], None]) -> Callable[[], None]:
        begun.append(call)
        return lambda: None

    early = EarlySync(sync, run_beside)
    early.begin()
    early.begin()
    assert len(begun) == 1
    begun[0]()
    early.begin()
    assert len(begun) == 2
    begun[1]()
    early.begin()
    assert len(begun) == (3 if fails else 2)
    assert synced == ["synced", "synced"]


def test_an_early_sync_that_fails_is_told_at_the_end() -> None:
    def fail() -> None:
        raise OSError(5, "Input/output error")

    early = EarlySync(fail)
    early.begin()
    with pytest.raises(OSError, match="Input/output"):
        early.finish()


def test_a_file_system_is_synced_by_a_path_on_it(tmp_path: Path) -> None:
    sync_file_system(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        sync_file_system(str(tmp_path / "none"))
