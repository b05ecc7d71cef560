"""How the last run of a broker in a data directory ended, and what a start makes of that.

How it is told, the first that fits:

    CLEAN        `.kafka_cleanshutdown` is there, ours or Apache Kafka's
    KILLED       `barnabas-boot-id` has this run of the machine and this mount, and no log lacks
                 what it is known to have held; or no broker has run here yet
    POWER_LOST   there is such a note, of another run or mount: the machine was down, the disk
                 failed, or this is a copy of the disk from mid-run
    FOREIGN      there is none: Apache Kafka was killed here, or the note was lost

What follows from it, as `TRUST` below has it; `recovery` and its parts run on that table:

                 is believed                        is redone             is cut
    CLEAN        all that the manifest says, and    what a log lacks of   nothing: what is torn
                 that all of it is durable          the flush journals    was changed since
    KILLED       all that was ever written          nothing: the page     a torn end, above the
                                                    cache has it          recovery point
    POWER_LOST   what is below the recovery point   what a log lacks of   the same; with it what
                                                    the flush journals    follows a hole or a gap
    FOREIGN      the same                           the same              the same, but a gap in
                                                                          a compacted log is right
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum, auto
from typing import NamedTuple

from barnabas.storage.disk import Disk
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
    """What a start makes of the last run.

    all_written: whether all that was ever written is there, so that a manifest or snapshot is
    believed wherever it ends; else up to the recovery point alone.
    all_flushed: whether all of that is durable, so that the log's end is its recovery point, and no
    name and no epoch has to be looked at again.
    redoes: whether a log may lack what the flush journals have, which is then written again.
    gaps_are_lost: whether offsets that are missing above the recovery point went with the power;
    else they may have been compacted.
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
    """The note `barnabas-boot-id`: the run of the machine and the mount that a broker last saw.

    A broker that runs keeps it true: it is written when all that follows from a power loss is done
    and durable, and made untrue when the disk fails.
    """

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._path = f"{data_dir}/{BOOT_ID_NAME}"

    def last_run(self) -> LastRun:
        """How the last run ended, by the names in the directory and the note."""
        disk, data_dir = self._disk, self._data_dir
        if disk.exists(f"{data_dir}/{CLEAN_SHUTDOWN_NAME}"):
            return LastRun.CLEAN
        is_used = any(disk.exists(f"{data_dir}/{name}") for name in _NAMES_OF_A_RUN)
        if self.is_same_run() or not is_used:
            return LastRun.KILLED
        return LastRun.POWER_LOST if disk.exists(self._path) else LastRun.FOREIGN

    def is_same_run(self) -> bool:
        """Whether the machine has not been down since, and the file system is mounted as it was."""
        try:
            note = self._disk.read(self._path).decode().split()
        except (FileNotFoundError, UnicodeDecodeError):
            return False
        return note == [self._disk.boot_id(), self._disk.mount_id(self._data_dir)]

    def write(self) -> None:
        """Note this run: what was written and not flushed is there at a start after a kill."""
        boot_id = self._disk.boot_id()
        if boot_id is not None and not self.is_same_run():
            mount_id = self._disk.mount_id(self._data_dir)
            self._disk.write_atomic(self._path, f"{boot_id} {mount_id}".encode())

    def write_failure(self) -> None:
        """Note that the disk failed: the next start takes it for a power loss.

        Where the disk takes no new file, the note that is there is emptied, which needs no space.
        """
        try:
            self._disk.write_atomic(
                self._path, f"{self._disk.boot_id()} failed".encode(), sync=False
            )
        except OSError:
            with suppress(OSError):
                self._disk.open(self._path).truncate(0)
