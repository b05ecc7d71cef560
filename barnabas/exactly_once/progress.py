"""The records of the open transaction: where they begin and end, and when it is due."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.exactly_once.records import Place, Record
from barnabas.exactly_once.settings import Commit


class Progress:
    """What the open transaction contains. It has no clock: times are arguments.

    begins: the offset of the first record of each partition, where an abort has to return to.
    ends: the offset after the last one, which the transaction commits.
    """

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self.begins: dict[Place, int] = {}
        self.ends: dict[Place, int] = {}
        self.records = self.outputs = self.bytes = 0
        self._since = 0.0

    def begin(self, now: float) -> None:
        """The transaction's first record comes now."""
        self.clear()
        self._since = now

    def add(self, record: Record, outputs: int, output_bytes: int) -> None:
        """A record was handled, and its outputs are in the transaction."""
        place = record.place
        self.begins.setdefault(place, record.offset)
        self.ends[place] = record.offset + 1
        self.records += 1
        self.outputs += outputs
        self.bytes += output_bytes + len(record.value or b"") + len(record.key or b"")

    def touch(self, record: Record) -> None:
        """A record is being handled: an abort returns to it, a commit does not contain it."""
        self.begins.setdefault(record.place, record.offset)

    def is_due(self, now: float) -> bool:
        """Whether the transaction reached a bound of `Commit`."""
        bounds = self._commit
        return (
            self.records >= bounds.records
            or self.bytes >= bounds.bytes
            or now - self._since >= bounds.seconds
        )

    def due_in_s(self, now: float) -> float:
        """The seconds until the interval ends, at least 0."""
        return max(0.0, self._since + self._commit.seconds - now)

    def without(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where the partitions begin that are not among these."""
        gone = set(places)
        return {place: offset for place, offset in self.begins.items() if place not in gone}

    def clear(self) -> None:
        """The transaction has ended."""
        self.begins = {}
        self.ends = {}
        self.records = self.outputs = self.bytes = 0
