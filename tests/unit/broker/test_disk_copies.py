"""A start on a copy of the disk that was made while the broker was running. The machine was not
restarted, but the copy lacks unflushed bytes.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path

import pytest
from helpers.core_host import delete_topic
from helpers.disk_broker import DiskBroker, Producer
from helpers.storage_logs import batch, kill, new_log, open_manager
from sim.disk import Refusal

from barnabas.protocol.errors import Code
from barnabas.storage.disk import OsDisk
from barnabas.storage.opening.last_run import BOOT_ID_NAME

NOW_MS = 1_700_000_100_000


def committed(**settings: str) -> tuple[DiskBroker, Producer]:
    """Create a broker and a producer with two committed transactions. The data and the decision of
    the second one are durable only in a flush journal.
    """
    b = DiskBroker(**settings)
    b.topic("t", 2)
    p = Producer(b, "txn")
    for value in (b"a", b"b"):
        p.send("t", 0, value)
        p.send("t", 1, value)
        assert p.end(True) == 0
        if value == b"a":
            b.tick(1000)
    return b, p


@pytest.mark.parametrize("is_new_mount", [True, False])
def test_a_copy_made_without_a_reboot_has_all_committed_transactions(
    is_new_mount: bool, caplog: pytest.LogCaptureFixture
) -> None:
    b, _ = committed()
    with caplog.at_level(logging.WARNING):
        b.copy_disk(is_new_mount=is_new_mount)
    assert [b.read("t", index, committed=True) for index in (0, 1)] == [[b"a", b"b"]] * 2
    assert b.broker.logs.lost_power
    assert ("copy of the disk" in caplog.text) is not is_new_mount, (
        "a new mount shows that it is a copy; otherwise the files show it, with a warning"
    )
    b.kill()
    assert not b.broker.logs.lost_power
    b.lose_power()
    assert [b.read("t", index, committed=True) for index in (0, 1)] == [[b"a", b"b"]] * 2


@pytest.mark.parametrize("is_new_mount", [True, False])
def test_a_transaction_whose_records_the_copy_lacks_cannot_be_committed(
    is_new_mount: bool,
) -> None:
    b, p = committed()
    p.send("t", 0, b"c")
    p.send("t", 1, b"c")
    b.sync("t-1")
    b.sync("__transaction_state")
    b.copy_disk(is_new_mount=is_new_mount)
    p.connection = b.connect()
    assert p.end(True) in (Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED)
    assert [b.read("t", index, committed=True) for index in (0, 1)] == [[b"a", b"b"]] * 2


def test_a_log_that_ends_before_its_recovery_point_counts_as_a_power_loss(tmp_path: Path) -> None:
    """A kill keeps the page cache, so it cannot shorten a file below a flushed offset."""
    manager, log = new_log(tmp_path)
    log.append(batch([b"a"]), now_ms=NOW_MS)
    log.append(batch([b"b"]), now_ms=NOW_MS)
    log.flush()
    manager.on_tick(NOW_MS + 10**6)
    path = Path(log.segments.active.batches.path(".log"))
    path.write_bytes(path.read_bytes()[: log.segments.size_bytes // 2])
    kill(manager, machine=False)
    again = open_manager(tmp_path)
    assert again.lost_power and again.logs["t", 0].log_end_offset == 1


@pytest.mark.parametrize("away", ["retention", "deletion", "another life"])
def test_a_start_after_a_kill_does_not_count_as_one_on_a_copy(away: str) -> None:
    """The journals contain records that are no longer in the logs. The start must not mistake this
    for a loss of records.
    """
    b = DiskBroker(log_retention_check_interval_ms="1000", log_initial_task_delay_ms="0")
    b.topic("t", 2, segment_bytes="400", file_delete_delay_ms="0")
    p = Producer(b, "txn")
    for _ in range(6):
        for index in (0, 1):
            p.send("t", index, b"x" * 60)
        assert p.end(True) == 0
    assert any(path.endswith(".journal") for path, _ in b.disk.files())
    if away == "retention":
        for index in (0, 1):
            log = b.broker.topics.partition("t", index)
            assert log is not None
            log.delete_records_before(log.log_end_offset)
        b.tick(2000)
        assert log.segments[0].base_offset > 0
    else:
        delete_topic(b.parts.deletion, "t", b.now_ms)
    if away == "another life":
        b.topic_after_flushes("t", 2)
        assert b.produce("t", (b"new",))[0] == 0
    b.kill()
    assert not b.broker.logs.lost_power


def test_a_start_tells_a_copied_directory_from_the_original(tmp_path: Path) -> None:
    """A copy made with cp has other inodes, even if the kernel reports the same mount id."""
    disk = OsDisk()
    assert disk.mount_id(str(tmp_path)) == disk.mount_id(str(tmp_path))
    manager, log = new_log(tmp_path / "data")
    log.append(batch([b"a"]), now_ms=NOW_MS)
    kill(manager, machine=False)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert open_manager(tmp_path / "copy").lost_power
    assert not open_manager(tmp_path / "data").lost_power


def test_after_a_disk_failure_the_next_start_trusts_no_unflushed_bytes(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    log.append(batch([b"a"]), now_ms=NOW_MS)
    manager.note_failure()
    kill(manager, machine=False)
    again = open_manager(tmp_path)
    assert again.lost_power
    # record that the start has succeeded
    again.note_boot()
    kill(again, machine=False)
    assert not open_manager(tmp_path).lost_power


def test_a_boot_file_in_the_first_version_s_format_does_not_prove_a_kill(tmp_path: Path) -> None:
    """The first version of the file contained only the boot id, which does not distinguish a copy
    of the disk from the original.
    """
    manager, _ = new_log(tmp_path)
    (tmp_path / BOOT_ID_NAME).write_text(OsDisk().boot_id() or "")
    kill(manager, machine=False)
    assert open_manager(tmp_path).lost_power


@pytest.mark.parametrize(
    ("operation", "code", "is_noted"),
    [("fsync", errno.EIO, True), ("fsync", errno.EDQUOT, True), ("open", errno.EMFILE, False)],
)
@pytest.mark.parametrize("when", ["kill", "stop"])
def test_a_start_or_stop_that_fails_with_a_disk_error_counts_as_a_power_loss(
    when: str, operation: str, code: int, is_noted: bool
) -> None:
    """If a stop, or a start after a kill, ends with a disk error, the bytes that it could not flush
    may be lost.
    """
    b = DiskBroker()
    b.topic("t")
    assert b.produce("t", (b"a",))[0] == 0
    b.disk.refuse(Refusal(frozenset({operation}), code, after=1))
    with pytest.raises(OSError, match=os.strerror(code)):
        getattr(b, when)()
    b.disk.refuse(None)
    b.kill()
    assert b.broker.logs.lost_power is is_noted
    b.kill()
    assert not b.broker.logs.lost_power
