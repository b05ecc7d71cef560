"""How the last run of a broker in a data directory ended, and what a start has to do about it.

The first of these that applies:

    CLEAN        `.kafka_cleanshutdown` exists, ours or Apache Kafka's
    KILLED       `barnabas-boot-id` has this run of the machine and this mount, and no log lacks
                 data that it is known to have had; or no broker has run here yet
    POWER_LOST   `barnabas-boot-id` has another run or mount: the machine was down, the disk
                 failed, or this is a copy of the disk that was made during a run
    FOREIGN      `barnabas-boot-id` does not exist: Apache Kafka was killed here, or the file was
                 lost

What follows, as in `TRUST` below; `recovery` and its parts use that table:

                 is trusted                         is redone             is cut
    CLEAN        the whole manifest, and that all   what a log lacks of   nothing: a torn end is
                 of it is durable                   the flush journals    a later change
    KILLED       everything that was written        nothing: the page     a torn end, above the
                                                    cache has it          recovery point
    POWER_LOST   everything below the recovery      what a log lacks of   the same, and the part
                 point                              the flush journals    behind a hole or a gap
    FOREIGN      the same                           the same              the same, but a gap in
                                                                          a compacted log is right
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum, auto
from typing import NamedTuple

from barnabas.storage.disk import Disk, log_lack_of_space
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    META_PROPERTIES_NAME,
    RECOVERY_POINT_NAME,
)

BOOT_ID_NAME = "barnabas-boot-id"
_NAMES_OF_A_RUN = (META_PROPERTIES_NAME, RECOVERY_POINT_NAME)


class LastRun(Enum):
    """How the last run in a data directory ended; see the module's tables."""

    CLEAN = auto()
    KILLED = auto()
    POWER_LOST = auto()
    FOREIGN = auto()


class Trust(NamedTuple):
    """How far a start trusts the files after the last run.

    all_written: whether all written data exist. A manifest or snapshot is then trusted with any end
    offset, otherwise only up to the recovery point. all_flushed: whether all data are durable. The
    log's end is then its recovery point, and names and epochs need no check. redoes: whether a log
    may lack data of the flush journals, which are then written again. gaps_are_lost: whether
    missing offsets above the recovery point were lost in a power loss; otherwise they may have been
    compacted.
    """

    all_written: bool
    all_flushed: bool
    redoes: bool
    gaps_are_lost: bool


TRUST = {
    LastRun.CLEAN: Trust(all_written=True, all_flushed=True, redoes=True, gaps_are_lost=False),
    LastRun.KILLED: Trust(all_written=True, all_flushed=False, redoes=False, gaps_are_lost=True),
    LastRun.POWER_LOST: Trust(
        all_written=False, all_flushed=False, redoes=True, gaps_are_lost=True
    ),
    LastRun.FOREIGN: Trust(all_written=False, all_flushed=False, redoes=True, gaps_are_lost=False),
}


class RunNote:
    """The file `barnabas-boot-id`, with the boot id of the machine and the mount id that the last
    broker found.

    The file is written when the work after a power loss is done and durable, and invalidated when
    the disk fails. is_due: whether it could not be written for lack of space. Until it is written,
    a kill counts as a power loss.
    """

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._path = f"{data_dir}/{BOOT_ID_NAME}"
        self.is_due = False

    def last_run(self) -> LastRun:
        """How the last run ended, according to the files in the directory."""
        disk, data_dir = self._disk, self._data_dir
        if disk.exists(f"{data_dir}/{CLEAN_SHUTDOWN_NAME}"):
            return LastRun.CLEAN
        is_used = any(disk.exists(f"{data_dir}/{name}") for name in _NAMES_OF_A_RUN)
        if self.is_same_run() or not is_used:
            return LastRun.KILLED
        return LastRun.POWER_LOST if disk.exists(self._path) else LastRun.FOREIGN

    def is_same_run(self) -> bool:
        """Whether the machine was not restarted, and the file system was not mounted again, since
        the file was written.
        """
        try:
            note = self._disk.read(self._path).decode().split()
        except (FileNotFoundError, UnicodeDecodeError):
            return False
        return note == [self._disk.boot_id(), self._disk.mount_id(self._data_dir)]

    def write(self) -> None:
        """Write the file for this run. After a kill, the next start then knows that unflushed data
        are in the page cache.
        """
        self.is_due = False
        boot_id = self._disk.boot_id()
        if boot_id is not None and not self.is_same_run():
            mount_id = self._disk.mount_id(self._data_dir)
            try:
                self._disk.write_atomic(self._path, f"{boot_id} {mount_id}".encode())
            except OSError as error:
                log_lack_of_space(self._path, error)
                self.is_due = True

    def write_failure(self) -> None:
        """Record that the disk failed, so that the next start treats it as a power loss.

        If the disk has no space for a new file, the existing file is emptied, which needs no space.
        """
        try:
            self._disk.write_atomic(
                self._path, f"{self._disk.boot_id()} failed".encode(), sync=False
            )
        except OSError:
            with suppress(OSError):
                self._disk.open(self._path).truncate(0)
