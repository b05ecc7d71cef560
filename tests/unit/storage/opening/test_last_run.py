"""How the last run ended, according to the names of files in the data directory, and the table of
the consequences for the next start.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from helpers.recording_disk import RecordingDisk
from helpers.storage_kafka_log import KAFKA

from barnabas.storage.disk import OsDisk
from barnabas.storage.opening.last_run import BOOT_ID_NAME, TRUST, LastRun, RunNote


@pytest.fixture
def note(tmp_path: Path) -> RunNote:
    (tmp_path / "meta.properties").write_bytes((KAFKA / "meta.properties").read_bytes())
    return RunNote(OsDisk(), str(tmp_path))


def test_a_directory_without_a_run_lost_nothing(tmp_path: Path) -> None:
    assert RunNote(OsDisk(), str(tmp_path)).last_run() is LastRun.KILLED


def test_a_directory_of_kafka_counts_as_clean_only_with_its_mark(
    note: RunNote, tmp_path: Path
) -> None:
    assert note.last_run() is LastRun.FOREIGN
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    assert note.last_run() is LastRun.CLEAN


def test_the_boot_id_distinguishes_a_kill_from_a_power_loss(note: RunNote, tmp_path: Path) -> None:
    note.write()
    assert note.last_run() is LastRun.KILLED
    (tmp_path / BOOT_ID_NAME).write_text("another run of the machine")
    assert note.last_run() is LastRun.POWER_LOST


def test_another_mount_is_a_copy(note: RunNote, tmp_path: Path) -> None:
    (tmp_path / BOOT_ID_NAME).write_text(f"{OsDisk().boot_id()} 1-2-3")
    assert note.last_run() is LastRun.POWER_LOST


def test_a_disk_failure_counts_as_a_power_loss_until_the_next_run_is_noted(note: RunNote) -> None:
    note.write()
    note.write_failure()
    assert note.last_run() is LastRun.POWER_LOST
    note.write()
    assert note.last_run() is LastRun.KILLED


def test_a_disk_failure_is_noted_even_without_space_for_a_new_file(
    note: RunNote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next start would trust data that a failed fsync has lost."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    note.write()
    with monkeypatch.context() as patch:
        patch.setattr(OsDisk, "write_atomic", refuse)
        note.write_failure()
    assert (tmp_path / BOOT_ID_NAME).read_bytes() == b""
    assert note.last_run() is LastRun.POWER_LOST
    note.write()
    assert note.last_run() is LastRun.KILLED


def test_without_ids_but_with_checkpoints_it_is_another_brokers(tmp_path: Path) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert RunNote(OsDisk(), str(tmp_path)).last_run() is LastRun.FOREIGN


def test_the_table_has_each_run_and_only_a_clean_one_is_durable() -> None:
    assert set(TRUST) == set(LastRun)
    assert [run for run in LastRun if TRUST[run].all_flushed] == [LastRun.CLEAN]
    assert [run for run in LastRun if not TRUST[run].all_written] == [
        LastRun.POWER_LOST,
        LastRun.FOREIGN,
    ]


def test_the_note_of_a_run_is_written_once(tmp_path: Path) -> None:
    disk = RecordingDisk()
    note = RunNote(disk, str(tmp_path))
    note.write()
    assert ("write and sync", BOOT_ID_NAME) in disk.take_steps()
    note.write()
    assert disk.take_steps() == []


def test_without_a_boot_id_no_run_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a boot id, each kill must count as a power loss."""
    monkeypatch.setattr(OsDisk, "boot_id", lambda _disk: None)
    RunNote(OsDisk(), str(tmp_path)).write()
    assert list(tmp_path.iterdir()) == []


def test_the_note_of_a_disk_failure_is_written_without_fsync(tmp_path: Path) -> None:
    disk = RecordingDisk()
    RunNote(disk, str(tmp_path)).write_failure()
    assert disk.take_steps() == [("write", BOOT_ID_NAME)]
