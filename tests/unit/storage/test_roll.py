"""A roll may fail at any of its changes to the disk. It then leaves the log unchanged, and is
retried when the disk has space again.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.disk_broker import DiskBroker
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, new_log, open_manager, reopened, values_of

from barnabas.protocol.errors import Code
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import Data, File, OsDisk
from barnabas.storage.files.segment_files import LOG_SUFFIX
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig

CONFIG = LogConfig(
    segment_bytes=300, index_interval_bytes=0, retention_bytes=100_000, retention_ms=-1
)
BIG, SMALL = b"x" * 150, b"s"


class RefusingDisk(OsDisk):
    """A disk that allows `left` more files to be created or written atomically, and refuses all
    later ones. -1 means no limit.
    """

    left, code = -1, errno.ENOSPC

    def _count(self, path: str) -> None:
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code), path)
        self.left -= self.left > 0

    def open(self, path: str, *, create: bool = False) -> File:
        if create and not self.exists(path):
            self._count(path)
        return super().open(path, create=create)

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        self._count(path)
        super().write_atomic(path, data, sync=sync)


def log_on(path: Path, disk: RefusingDisk) -> tuple[LogManager, Log]:
    manager = open_manager(path, CONFIG, disk=disk)
    return manager, manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)


def state_of(log: Log) -> tuple[Any, ...]:
    return (
        [segment.base_offset for segment in log.segments],
        log.segments.size_bytes,
        list(log.snapshots.offsets),
        log.segments.active.indexes.is_closed,
        log.log_end_offset,
        [segment.base_offset for segment in log.durability._unflushed],
    )


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("left", range(4))
def test_a_roll_that_fails_changes_nothing(tmp_path: Path, left: int, code: int) -> None:
    """The disk refuses the snapshot, or the log file, offset index or time index of the new
    segment.
    """
    disk = RefusingDisk()
    manager, log = log_on(tmp_path, disk)
    for _ in range(3):
        log.append(batch([BIG]), now_ms=NOW_MS)
    before, names = (
        state_of(log),
        {name for name in os.listdir(log.directory) if name.endswith(LOG_SUFFIX)},
    )
    for _ in range(30):
        disk.left, disk.code = left, code
        with pytest.raises(OSError, match=os.strerror(code)):
            log.append(batch([BIG]), now_ms=NOW_MS)
        assert (*state_of(log)[:2], *state_of(log)[3:]) == (*before[:2], *before[3:])
        assert {name for name in os.listdir(log.directory) if name.endswith(LOG_SUFFIX)} == names
    disk.left = -1
    assert log.append(batch([SMALL]), now_ms=NOW_MS).first_offset == 3, (
        "there is room for it in the old segment"
    )
    assert log.append(batch([BIG]), now_ms=NOW_MS).first_offset == 4
    assert log.delete_old_segments(NOW_MS) == 0
    log.segments.check_sizes()
    wanted = {0: BIG, 1: BIG, 2: BIG, 3: SMALL, 4: BIG}
    assert values_of(log) == wanted
    assert values_of(reopened(manager, CONFIG, clean=False)[1]) == wanted


def test_the_manifest_of_a_roll_waits_for_room(tmp_path: Path) -> None:
    disk = RefusingDisk()
    manager, log = log_on(tmp_path, disk)
    log.append(batch([BIG]), now_ms=NOW_MS)
    disk.left = 4
    log.append(batch([BIG]), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [
        0,
        1,
    ] and log in manager.log_dir.changed_logs
    manager.on_tick(NOW_MS + 40_000)
    assert log in manager.log_dir.changed_logs, "the checkpoint also waits for space"
    disk.left = -1
    manager.on_tick(NOW_MS + 80_000)
    assert log not in manager.log_dir.changed_logs
    assert values_of(reopened(manager, CONFIG, clean=False)[1]) == {0: BIG, 1: BIG}


def test_what_a_failed_append_left_is_not_in_the_way(tmp_path: Path) -> None:
    """The file contains a part of a batch. The segment is closed, and the next segment is valid."""

    class HalfFile:
        def __init__(self, file: File) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def append(self, data: Data) -> int:
            os.pwrite(self._file.fileno(), data[: len(data) // 2], self._file.size)
            raise OSError(errno.ENOSPC, "full")

    manager, log = log_on(tmp_path, RefusingDisk())
    log.append(batch([BIG]), now_ms=NOW_MS)
    whole = log.segments.active.batches.open_file
    assert whole is not None
    log.segments.active.batches.open_file = HalfFile(whole)  # type: ignore[assignment]
    with pytest.raises(OSError, match="full"):
        log.append(batch([SMALL]), now_ms=NOW_MS)
    log.segments.active.batches.open_file = whole
    log.append(batch([BIG]), now_ms=NOW_MS)
    assert len(log.segments) == 2
    assert values_of(reopened(manager, CONFIG, clean=False)[1]) == {0: BIG, 1: BIG}


def test_an_empty_segment_that_came_not_to_be_is_removed_by_a_start(tmp_path: Path) -> None:
    """A power loss may restore the empty segment after its removal. In the meantime, the previous
    segment has grown beyond its offset.
    """
    manager, log = log_on(tmp_path, RefusingDisk())
    log.append(batch([SMALL]), now_ms=NOW_MS)
    left_over = Path(log.directory, f"{1:020d}{LOG_SUFFIX}")
    log.append(batch([SMALL]), now_ms=NOW_MS)
    left_over.touch()
    manager, log = reopened(manager, CONFIG, clean=False)
    assert values_of(log) == {0: SMALL, 1: SMALL} and not left_over.exists()
    assert log.append(batch([SMALL]), now_ms=NOW_MS).first_offset == 2
    assert values_of(reopened(manager, CONFIG, clean=False)[1]) == {0: SMALL, 1: SMALL, 2: SMALL}


def test_retention_lets_go_of_what_it_can_where_there_is_no_room_for_a_new_segment(
    tmp_path: Path,
) -> None:
    disk = RefusingDisk()
    _, log = log_on(tmp_path, disk)
    for _ in range(3):
        log.append(batch([BIG]), now_ms=NOW_MS)
    log.config = LogConfig(retention_bytes=0)
    disk.left = 0
    assert log.delete_old_segments(NOW_MS) == 2
    assert values_of(log) == {2: BIG}
    disk.left = -1
    assert log.delete_old_segments(NOW_MS) == 1
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_nothing_is_deleted_for_a_size_that_the_files_do_not_have(tmp_path: Path) -> None:
    """If the size of the files differs from the size that the log has counted, retention by size
    deletes nothing. A wrong count is a failed assertion.
    """
    manager, log = log_on(tmp_path, RefusingDisk())
    for _ in range(3):
        log.append(batch([BIG]), now_ms=NOW_MS)
    log.config = LogConfig(retention_bytes=300)
    os.truncate(log.segments[1].batches.path(LOG_SUFFIX), 10)
    manager.on_tick(NOW_MS + 400_000)
    assert len(log.segments) == 3
    log.segments._closed_bytes += 1
    os.truncate(log.segments[1].batches.path(LOG_SUFFIX), log.segments[1].batches.size)
    with pytest.raises(AssertionError, match="hold"):
        log.delete_old_segments(NOW_MS)


def test_refused_produces_do_not_make_retention_delete() -> None:
    """A roll fails repeatedly for lack of inodes, until inodes are free again."""
    b = DiskBroker(log_initial_task_delay_ms="0", log_retention_check_interval_ms="1000")
    b.topic("t", segment_bytes="300", retention_bytes="10000")
    for _ in range(3):
        assert b.produce("t", (BIG,))[0] == 0
    opens = b.disk.open

    def refuses(path: str, *, create: bool = False) -> Any:
        if create and not b.disk.exists(path):
            raise OSError(errno.ENOSPC, "no inode is left", path)
        return opens(path, create=create)

    b.disk.open = refuses  # type: ignore[method-assign]
    for _ in range(100):
        assert b.produce("t", (BIG,))[0] == Code.KAFKA_STORAGE_ERROR
    del b.disk.open
    b.tick(2000)
    assert b.produce("t", (BIG,))[0] == 0
    assert b.read("t") == [BIG] * 4


def test_the_segments_before_the_active_one_may_leave_their_indexes_to_the_files(
    tmp_path: Path,
) -> None:
    _, log = new_log(tmp_path, segment_bytes=2 * len(batch()))
    for _ in range(5):
        log.append(batch(), now_ms=NOW_MS)
    assert [segment.indexes.is_closed for segment in log.segments] == [True, True, False]
