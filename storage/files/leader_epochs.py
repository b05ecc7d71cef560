"""At which offset each leader epoch of a log began (KIP-101), kept in `leader-epoch-checkpoint`.

An epoch begins with each start of the broker, at the end of the log. Clients ask
OffsetForLeaderEpoch (KIP-320) for the end of the epoch that they read in: so they learn what a
power loss cut off.

`barnabas-leader-epoch` has the highest epoch that clients may have been told of in any partition:

    <number> <CRC-32C of the number, 8 hex digits>

`begin` writes nothing: ten thousand partitions begin an epoch at a start. The file has the epoch
before the log has a batch of it; an epoch without a batch is forgotten, and nobody has its offsets.
Apache Kafka forgets it too, when the next one begins at the same offset.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from itertools import pairwise

from barnabas.protocol.checksum import crc32c
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import LEADER_EPOCH_NAME, decode_epochs, encode_epochs

UNDEFINED = (-1, -1)
HIGHEST_EPOCH_NAME = "barnabas-leader-epoch"

logger = logging.getLogger(__name__)


class LeaderEpochs:
    """(epoch, start offset) pairs, both rising. written: those that the file has."""

    __slots__ = ("directory", "disk", "entries", "written")

    def __init__(self, disk: Disk, directory: str, entries: list[tuple[int, int]]) -> None:
        self.disk = disk
        self.directory = directory
        self.entries = entries
        self.written: list[tuple[int, int]] = []

    @classmethod
    def load(cls, disk: Disk, directory: str) -> LeaderEpochs:
        """The epochs of the file. Raises FileNotFoundError, CorruptCheckpoint."""
        epochs = cls(disk, directory, decode_epochs(disk.read(f"{directory}/{LEADER_EPOCH_NAME}")))
        epochs.written = list(epochs.entries)
        return epochs

    @property
    def latest(self) -> int:
        """The latest epoch, -1 where none began."""
        return self.entries[-1][0] if self.entries else -1

    def begin(self, epoch: int, start_offset: int) -> None:
        """An epoch above all others begins; the file learns of it with `write`."""
        assert epoch > self.latest, f"{self.directory}: the epoch {epoch} comes after {self.latest}"
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()  # nothing was written in it
        self.entries.append((epoch, start_offset))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """An epoch begins, and the file has it. Gives whether it is news."""
        if epoch <= self.latest:
            return False
        self.begin(epoch, start_offset)
        self.write()
        return True

    def epoch_of(self, offset: int) -> int:
        """The epoch that an offset lies in; -1 where that is not known."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[at - 1][0] if at else -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch not above that one, the offset after its last); UNDEFINED: not known.

        Source: KIP-320; an epoch before all known ones ends where the first known begins.
        """
        if epoch == -1 or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        floor, end = epoch, self.entries[0][1]
        for (earlier, _), (_, later_start) in pairwise(self.entries):
            if earlier <= epoch:
                floor, end = earlier, later_start
        return floor, end

    def truncate_from_start(self, log_start_offset: int) -> None:
        """Forget epochs that ended below the log's start; the one it lies in begins there."""
        kept = [entry for entry in self.entries if entry[1] > log_start_offset]
        below = [entry for entry in self.entries if entry[1] <= log_start_offset]
        if below and (len(below) > 1 or below[-1][1] != log_start_offset):
            self.entries = [(below[-1][0], log_start_offset), *kept]
            self.write()

    def truncate_from_end(self, log_end_offset: int) -> None:
        """Offsets from there on are gone: epochs that began after it are dropped."""
        kept = [entry for entry in self.entries if entry[1] <= log_end_offset]
        if len(kept) != len(self.entries):
            self.entries = kept
            self.write()

    def write(self) -> None:
        self.disk.write_atomic(
            f"{self.directory}/{LEADER_EPOCH_NAME}", encode_epochs(self.entries), sync=False
        )
        self.written = list(self.entries)


class HighestEpoch:
    """The file of a data directory with the highest leader epoch that clients were told of."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{HIGHEST_EPOCH_NAME}"

    def read(self) -> int:
        """The epoch; -1 where there is no file, or it is damaged."""
        try:
            number, _, crc = self._disk.read(self._path).rstrip(b"\n").partition(b" ")
        except FileNotFoundError:
            return -1
        if crc != b"%08x" % crc32c(number):
            logger.warning(
                "%s cannot be used (its checksum is wrong): the highest leader epoch is that of "
                "the logs",
                self._path,
            )
            return -1
        return int(number)

    def write(self, epoch: int) -> None:
        """Write the epoch; it is durable then."""
        number = b"%d" % epoch
        self._disk.write_atomic(self._path, b"%s %08x\n" % (number, crc32c(number)))
