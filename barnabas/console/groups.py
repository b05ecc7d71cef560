"""How far a group has come, in one word."""

from __future__ import annotations

from typing import Literal

from barnabas.broker.observe import CommittedOffsetState, GroupState
from barnabas.console.history import Trend

Progress = Literal["bookkeeping", "up to date", "grows", "no members", "moves", "rests", "unknown"]


def progress_of(group: GroupState, trend: Trend) -> Progress:
    """A group's progress as one word, the first of these that applies.

    bookkeeping: its offsets are numbers of the Spark sink's micro-batches. up to date: it has no
    lag. grows: its lag grows. no members: it has lag but no members. unknown: there is no earlier
    sample. moves: it has committed offsets since the last sample. rests: it has committed none
    since then.
    """
    if group.is_bookkeeping:
        return "bookkeeping"
    if not group.lag:
        return "up to date"
    if trend.grows:
        return "grows"
    if not group.member_count:
        return "no members"
    if trend.moves is None:
        return "unknown"
    return "moves" if trend.moves else "rests"


def partition_progress(
    group: GroupState, row: CommittedOffsetState, *, has_moved: bool
) -> Progress:
    """The progress of a group in one partition."""
    if row.is_batch_number:
        return "bookkeeping"
    if not row.lag:
        return "up to date"
    if not group.member_count:
        return "no members"
    return "moves" if has_moved else "rests"
