"""At which offset each leader epoch of a log began (KIP-101), kept in `leader-epoch-checkpoint`.

There is one replica, so an epoch never ends by another's truncation: the cache answers OffsetForLeaderEpoch (KIP-320) and is kept for
the tools, and for logs that Apache Kafka began.
"""

from __future__ import annotations

from itertools import pairwise

from storage.checkpoints import LEADER_EPOCH_NAME, decode_epochs, encode_epochs
from storage.disk import Disk

UNDEFINED = (-1, -1)


class LeaderEpochs:
    """(epoch, start offset) pairs, both rising."""

    __slots__ = ("directory", "disk", "entries")

    def __init__(self, disk: Disk, directory: str, entries: list[tuple[int, int]]) -> None:
        self.disk = disk
        self.directory = directory
        self.entries = entries

    @classmethod
    def load(cls, disk: Disk, directory: str) -> LeaderEpochs:
        """Raises FileNotFoundError, CorruptCheckpoint."""
        return cls(disk, directory, decode_epochs(disk.read(f"{directory}/{LEADER_EPOCH_NAME}")))

    @property
    def latest(self) -> int:
        """The latest epoch, -1 where none began."""
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """An epoch begins. Gives whether it is news."""
        if epoch <= self.latest:
            return False
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()  # nothing was written in it
        self.entries.append((epoch, start_offset))
        self.write()
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch not above the one asked for, the offset after its last), UNDEFINED where that cannot be said.

        Source: KIP-320; an epoch before all known ones ends where the first known begins.
        """
        if epoch == -1 or not self.entries or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        floor, end = epoch, self.entries[0][1]
        for (earlier, _), (_, later_start) in pairwise(self.entries):
            if earlier <= epoch:
                floor, end = earlier, later_start
        return floor, end

    def truncate_from_start(self, log_start_offset: int) -> None:
        """Offsets below are gone: epochs that ended there are dropped, the one it lies in begins there."""
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
        self.disk.write_atomic(f"{self.directory}/{LEADER_EPOCH_NAME}", encode_epochs(self.entries), sync=False)
