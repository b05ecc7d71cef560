"""Ranges of offsets with the same delivery state, as the records of share partitions contain them.

A list of these batches is sorted by offset, and no two batches overlap. When a batch is added, it
replaces the overlapping parts of others if its delivery count is higher. If the counts are equal,
it replaces them if its state is higher. The reason is that delivery counts only rise, and that the
states are ordered from available to archived.

Source: KIP-932, "Share group state".
"""

from __future__ import annotations

import heapq
import sys
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
"""The numbers of delivery states. The state of an acquired record is not stored: after a start the
record is available again."""

_END = sys.maxsize
MOST_ONE_BY_ONE = 16  # more batches than this are added in one pass
MOST_COUNTED = (1 << 31) - 1


class StateBatch(NamedTuple):
    """A range of offsets with the same delivery state. last_offset is inclusive."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def combine(batches: list[StateBatch], added: Iterable[StateBatch], start_offset: int) -> None:
    """Add batches to a list, in place, and remove those before the start offset (none if it is -1).

    The cost depends on the number of batches that are added and removed. It does not depend on the
    length of the list, except for moving the list's memory. Many batches, of which each may overlap
    the whole list, are added in one pass.
    """
    added = list(added)
    if len(added) > MOST_ONE_BY_ONE:
        batches[:] = _highest([*batches, *added])
        added = []
    for run in added:
        if run.first_offset > run.last_offset or run.last_offset < start_offset:
            continue
        _add(batches, run if run.first_offset >= start_offset else _from(run, start_offset))
    if batches and batches[0].first_offset < start_offset:
        _prune(batches, start_offset)


def complete_count(batches: Iterable[StateBatch]) -> int:
    """The number of offsets in acknowledged or archived runs, limited to what a record can
    contain.
    """
    count = sum(run.last_offset - run.first_offset + 1 for run in batches if run.delivery_state > 1)
    return min(count, MOST_COUNTED)


def _from(run: StateBatch, first_offset: int) -> StateBatch:
    return run._replace(first_offset=first_offset)


def _highest(runs: list[StateBatch]) -> list[StateBatch]:
    """For each offset, the run with the highest count and state that contains it. Since a run
    replaces another only if it ranks higher, the order in which they are added makes no difference.
    """
    runs = sorted(run for run in runs if run.first_offset <= run.last_offset)
    found: list[StateBatch] = []
    if all(one.last_offset < following.first_offset for one, following in pairwise(runs)):
        for run in runs:
            _append(found, run)
        return found
    # the runs that contain the offset `at`, and some that ended before it; the highest is first
    open_runs: list[tuple[int, int, StateBatch]] = []
    at, index = 0, 0
    while index < len(runs) or open_runs:
        while open_runs and open_runs[0][2].last_offset < at:
            heapq.heappop(open_runs)
        if not open_runs:
            if index == len(runs):
                break
            at = max(at, runs[index].first_offset)
        while index < len(runs) and runs[index].first_offset <= at:
            run = runs[index]
            index += 1
            if run.last_offset >= at:
                heapq.heappush(open_runs, (-run.delivery_count, -run.delivery_state, run))
        if not open_runs:
            continue
        run = open_runs[0][2]
        last_offset = run.last_offset
        # a later run takes over where it begins, if it ranks higher
        while index < len(runs) and runs[index].first_offset <= last_offset:
            other = runs[index]
            if _rank(other) > _rank(run):
                last_offset = other.first_offset - 1
                break
            index += 1
            heapq.heappush(open_runs, (-other.delivery_count, -other.delivery_state, other))
        if last_offset >= at:
            _append(found, run._replace(first_offset=at, last_offset=last_offset))
            at = last_offset + 1
    return found


def _add(batches: list[StateBatch], run: StateBatch) -> None:
    """Put a later run into the list, which stays in order: it replaces what it overlaps, and is
    joined with equal neighbours.
    """
    if not batches or batches[-1].last_offset < run.first_offset:
        _append(batches, run)  # the usual case, since records are mostly acknowledged in order
        return
    begin = bisect_right(batches, (run.first_offset, _END))
    # up to two batches: one that begins at the same offset, and the one that ends just before it
    while begin and batches[begin - 1].last_offset >= run.first_offset - 1:
        begin -= 1
    end = begin
    while end < len(batches) and batches[end].first_offset <= run.last_offset + 1:
        end += 1
    batches[begin:end] = _overlaid(batches[begin:end], run)


def _overlaid(earlier: list[StateBatch], run: StateBatch) -> list[StateBatch]:
    """Overlay part of a list with `run`, which overlaps or touches each batch in that part.

    Gives:  the batches that replace this part of the list.
    """
    made: list[StateBatch] = []
    at = run.first_offset  # the part of `run` before this offset is already in `made`
    for one in earlier:
        if one.first_offset < at:
            before = one._replace(last_offset=min(one.last_offset, at - 1))
            _append(made, before)
        if one.first_offset > at:
            _append(made, run._replace(first_offset=at, last_offset=one.first_offset - 1))
            at = one.first_offset
        last_offset = min(one.last_offset, run.last_offset)
        if at <= last_offset:
            winner = one if _rank(one) > _rank(run) else run
            _append(made, winner._replace(first_offset=at, last_offset=last_offset))
            at = last_offset + 1
        if one.last_offset > run.last_offset:
            first_offset = max(one.first_offset, run.last_offset + 1)
            _append(made, one._replace(first_offset=first_offset))
    if at <= run.last_offset:
        _append(made, run._replace(first_offset=at))
    return made


def _rank(run: StateBatch) -> tuple[int, int]:
    return run.delivery_count, run.delivery_state


def _append(made: list[StateBatch], run: StateBatch) -> None:
    """Append a batch, or join it to the last batch if it follows directly with the same state and
    count.
    """
    if made and made[-1][2:] == run[2:] and made[-1].last_offset + 1 == run.first_offset:
        made[-1] = made[-1]._replace(last_offset=run.last_offset)
    else:
        made.append(run)


def _prune(batches: list[StateBatch], start_offset: int) -> None:
    """Remove the offsets before the start offset."""
    end = bisect_right(batches, (start_offset, _END))
    if end and batches[end - 1].last_offset >= start_offset:
        end -= 1
        batches[end] = batches[end]._replace(
            first_offset=max(batches[end].first_offset, start_offset)
        )
    del batches[:end]
