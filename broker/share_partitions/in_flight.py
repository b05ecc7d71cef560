"""The records of a share partition that are in flight: batches, and runs of offsets in them.

A batch contains the records that one member acquired together. While all its records have the same
state, it has a single run. Once their states differ it is `tracked`, and each run contains adjacent
records in the same state. So memory and work depend on the number of state changes between adjacent
offsets, and not on the number of records.

A batch that is a `gap` contains records that are missing in the stored state of the share
partition: they were acquired before the last start of the broker, and not acknowledged.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
NO_MEMBER = ""
NEVER = sys.maxsize
_END = sys.maxsize


class Run(NamedTuple):
    """Adjacent records in the same state. last_offset is inclusive.

    member_id, deadline_ms: for acquired records, the member that holds them, and the time at which
    its lock ends.
    """

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int
    member_id: str = NO_MEMBER
    deadline_ms: int = NEVER

    @property
    def is_complete(self) -> bool:
        """Whether the records are in a final state, so that they are not delivered again."""
        return self.state >= ACKNOWLEDGED

    def part(self, first_offset: int, last_offset: int) -> Run:
        """The part of the run between two offsets, both inclusive."""
        if self.first_offset >= first_offset and self.last_offset <= last_offset:
            return self
        return self._replace(
            first_offset=max(self.first_offset, first_offset),
            last_offset=min(self.last_offset, last_offset),
        )


class InFlightBatch:
    """A batch in flight. size: the number of its records when it was acquired. available_from: no
    record before this offset is available.
    """

    __slots__ = ("available_from", "is_gap", "is_tracked", "runs", "size")

    def __init__(self, runs: list[Run], *, is_tracked: bool = False, is_gap: bool = False) -> None:
        self.runs, self.is_tracked, self.is_gap = runs, is_tracked, is_gap
        self.size = runs[-1].last_offset - runs[0].first_offset + 1
        self.available_from = runs[0].first_offset

    @property
    def first_offset(self) -> int:
        return self.runs[0].first_offset

    @property
    def last_offset(self) -> int:
        return self.runs[-1].last_offset

    def first_available(self) -> Run | None:
        """The first run of available records; None if no record is available."""
        runs = self.runs
        for index in range(position(runs, self.available_from), len(runs)):
            run = runs[index]
            if run.state == AVAILABLE:
                self.available_from = run.first_offset
                return run
        self.available_from = _END
        return None

    def between(self, first_offset: int, last_offset: int) -> Iterator[Run]:
        """The runs that contain records between two offsets, cut at these offsets."""
        runs = self.runs
        for index in range(position(runs, first_offset), len(runs)):
            run = runs[index]
            if run.first_offset > last_offset:
                return
            if run.last_offset >= first_offset:
                yield run.part(first_offset, last_offset)


def position(runs: list[Run], offset: int) -> int:
    """The index of the run that contains the offset; 0 if the offset is before the first run."""
    return max(bisect_right(runs, (offset, _END)) - 1, 0)


def replaced(runs: list[Run], made: list[Run]) -> list[Run]:
    """Replace the runs of a range of offsets by other runs. Gives: the new list.

    Takes: made, the new runs, which are adjacent.
    """
    if not made:
        return runs
    first_offset, last_offset = made[0].first_offset, made[-1].last_offset
    begin, end = position(runs, first_offset), position(runs, last_offset)
    before, after = runs[begin], runs[end]
    middle: list[Run] = []
    if begin:
        begin -= 1
        middle.append(runs[begin])
    if before.first_offset < first_offset:
        _append(middle, before.part(before.first_offset, first_offset - 1))
    for run in made:
        _append(middle, run)
    if after.last_offset > last_offset:
        _append(middle, after.part(last_offset + 1, after.last_offset))
    if end + 1 < len(runs):
        end += 1
        _append(middle, runs[end])
    return [*runs[:begin], *middle, *runs[end + 1 :]]


def _append(runs: list[Run], run: Run) -> None:
    """Append a run, or join it to the last run if both are adjacent and have the same state."""
    if runs and runs[-1][2:] == run[2:] and runs[-1].last_offset + 1 == run.first_offset:
        runs[-1] = runs[-1]._replace(last_offset=run.last_offset)
    else:
        runs.append(run)
