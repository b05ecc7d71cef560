"""The start offset of each leader epoch of a log (KIP-101), stored in `leader-epoch-checkpoint`.

An epoch begins with each start of the broker, at the end of the log. Clients request the end of
the epoch in which they read with OffsetForLeaderEpoch (KIP-320), and so detect records that a power
loss removed.

`barnabas-leader-epoch` has the highest epoch that clients may have seen in any partition:

    <number> <CRC-32C of the number, 8 hex digits>
    1000 dots, of which the last one is cut off for each epoch above the number

The file is shortened if the disk has no space to write another one. Otherwise an epoch that clients
have seen would be used again after a restart.

`begin` writes nothing, since at a start an epoch begins in each of ten thousand partitions. The
epoch is written to the file before the log gets a batch of that epoch. An epoch without a batch is
removed, since no client has offsets of it. Apache Kafka also removes it when the next epoch begins
at the same offset.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from itertools import pairwise

from barnabas.protocol.checksum import crc32c
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import (
    LEADER_EPOCH_NAME,
    CorruptCheckpoint,
    decode_epochs,
    encode_epochs,
)

UNDEFINED = (-1, -1)
HIGHEST_EPOCH_NAME = "barnabas-leader-epoch"
DOTS = 1000

logger = logging.getLogger(__name__)


class LeaderEpochs:
    """The (epoch, start offset) pairs of a log, both of which rise.

    written: the pairs in the file.
    """

    __slots__ = ("directory", "disk", "entries", "written")

    def __init__(self, disk: Disk, directory: str, entries: list[tuple[int, int]]) -> None:
        self.disk = disk
        self.directory = directory
        self.entries = entries
        self.written: list[tuple[int, int]] = []

    @classmethod
    def load(cls, disk: Disk, directory: str) -> LeaderEpochs:
        """Load the epochs in the file. Raises: FileNotFoundError, CorruptCheckpoint."""
        epochs = cls(disk, directory, decode_epochs(disk.read(f"{directory}/{LEADER_EPOCH_NAME}")))
        epochs.written = list(epochs.entries)
        return epochs

    @property
    def latest(self) -> int:
        """The latest epoch; -1 if there is none."""
        return self.entries[-1][0] if self.entries else -1

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch above all others. The caller has to store it with `write`."""
        assert epoch > self.latest, f"{self.directory}: the epoch {epoch} comes after {self.latest}"
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()  # no batch has this epoch
        self.entries.append((epoch, start_offset))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Begin an epoch and store it. Gives: whether the epoch was new."""
        if epoch <= self.latest:
            return False
        self.begin(epoch, start_offset)
        self.write()
        return True

    def epoch_of(self, offset: int) -> int:
        """The epoch of an offset; -1 if it is unknown."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[at - 1][0] if at else -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and its end offset; UNDEFINED if no epoch is known.

        An epoch before all known ones ends where the first known epoch begins. Source: KIP-320.
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
        """Remove epochs that ended below the log's start. The epoch of the start then begins
        there.
        """
        kept = [entry for entry in self.entries if entry[1] > log_start_offset]
        below = [entry for entry in self.entries if entry[1] <= log_start_offset]
        if below and (len(below) > 1 or below[-1][1] != log_start_offset):
            self.entries = [(below[-1][0], log_start_offset), *kept]
            self.write()

    def truncate_from_end(self, log_end_offset: int) -> None:
        """Remove epochs that began after the new end of the log."""
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
    """The file that stores the highest leader epoch that clients have seen in a data directory."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{HIGHEST_EPOCH_NAME}"

    def read(self) -> int:
        """The stored epoch; -1 if the file is missing or damaged."""
        return _epoch_of(*self._read())

    def _read(self) -> tuple[int, int]:
        """The number and the count of dots; (-1, 0) if the file is missing or damaged."""
        try:
            return _decode_highest(self._disk.read(self._path))
        except FileNotFoundError:
            return -1, 0
        except CorruptCheckpoint as error:
            logger.warning(
                "%s cannot be used (%s): the highest leader epoch is taken from the logs",
                self._path, error,
            )  # fmt: skip
            return -1, 0

    def write(self, epoch: int) -> None:
        """Write the epoch durably."""
        number = b"%d" % epoch
        self._disk.write_atomic(self._path, b"%s %08x\n" % (number, crc32c(number)) + b"." * DOTS)

    def raise_without_space(self, epoch: int) -> bool:
        """Store an epoch durably, by shortening the file. Gives: whether it is stored."""
        number, dots = self._read()
        left = DOTS - (epoch - number)
        if not 0 < left <= dots:
            return False
        file = self._disk.open(self._path)
        try:
            file.truncate(file.size - dots + left)
            file.fsync()
        finally:
            file.close()
        return True


def highest_epoch_in(data: bytes) -> int:
    """The epoch in the content of `barnabas-leader-epoch`. Raises: CorruptCheckpoint."""
    return _epoch_of(*_decode_highest(data))


def _decode_highest(data: bytes) -> tuple[int, int]:
    """The number and the count of dots. Raises: CorruptCheckpoint."""
    line, _, dots = data.partition(b"\n")
    number, _, crc = line.partition(b" ")
    if crc != b"%08x" % crc32c(number):
        raise CorruptCheckpoint("its checksum is wrong")
    return int(number), len(dots)


def _epoch_of(number: int, dots: int) -> int:
    """The epoch that a number and the dots after it mean."""
    return number + DOTS - dots if 0 < dots < DOTS else number
