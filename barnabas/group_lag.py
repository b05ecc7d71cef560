"""What a group waits for, how far it is behind, and why: the one place that decides it.

The command line asks a cluster for a group's places by Kafka's protocol; the console and the
metrics read their own broker. Each of them fills a `GroupPosition` for each partition, and
shows what the functions here return. The functions do no I/O.

A partition belongs to a group if the group has committed an offset for it, or if it is assigned to
one of its members.

    situation         when                                                           lag
    batch number      the offset is the number of a Spark sink's micro-batch         none
    unknown           no such partition, no leader, or no count of a share group     none
    not started       a share group has had no record of the partition yet           none
    never committed   no offset is committed                                         start to end
    before the start  records from the offset on were deleted                        start to end
    beyond the end    the offset is higher than the high watermark                   0
    up to date        only markers and aborted records follow, or nothing            0
    waits             the same up to the last stable offset, where a transaction     what is held
                      is open; not for a group that has committed an offset beyond
    behind            any other offset                                               offset to end

A broker does not know the position of a consumer that has committed nothing. It may have read all
records (`auto.offset.reset=latest`) or none of them, so the lag is the largest that is possible,
and the text says so. A group that is stuck at its first record must not look up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from barnabas.texts import count_text

TAIL_OFFSETS, TAIL_BYTES = 64, 4096
"""Before its last stable offset, a partition is searched for records only if so few offsets remain.
Each transaction leaves a marker; markers of 52 transactions have 4,096 bytes.
"""
NO_LAG = "batch numbers of a Spark sink: no lag"
NEVER_USED = "no members, no committed offsets"
NONE_WAITS = "nothing committed, none waits"
UP_TO_DATE = "up to date"
AT_REST = (UP_TO_DATE, NO_LAG, NEVER_USED, NONE_WAITS)
"""The statuses of groups that no record waits for."""
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


class Situation(StrEnum):
    """What is true of a group in one partition. See the table of this module."""

    BATCH_NUMBER = "batch number"
    UNKNOWN = "unknown"
    NOT_STARTED = "not started"
    NEVER_COMMITTED = "never committed"
    BEFORE_START = "before the start"
    BEYOND_END = "beyond the end"
    UP_TO_DATE = "up to date"
    WAITS = "waits"
    BEHIND = "behind"


class Bounds(NamedTuple):
    """The offsets of a partition."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int


class GroupPosition(NamedTuple):
    """A group in one partition.

    committed: None without a committed offset. bounds: None if the partition is unknown or has no
    leader. has_unread: whether there is a record for readers of committed data between the group's
    position and the last stable offset; True if it was not looked for.
    """

    committed: int | None
    bounds: Bounds | None
    is_batch_number: bool = False
    has_unread: bool = True


class PartitionLag(NamedTuple):
    """How far a group is behind in one partition. held: the part of the lag that an open
    transaction holds back. is_assigned: whether a member reads the partition.
    """

    situation: Situation
    lag: int | None
    held: int = 0
    is_assigned: bool = False


# --- one partition ------------------------------------------------------------------------------


def position(committed: int | None, bounds: Bounds) -> int:
    """The offset at which a group continues: the committed one, or the start of the log."""
    return max(bounds.log_start_offset, -1 if committed is None else committed)


def is_tail(committed: int | None, bounds: Bounds) -> bool:
    """Whether so few offsets remain before the last stable offset that they may all be markers."""
    return 0 < bounds.last_stable_offset - position(committed, bounds) <= TAIL_OFFSETS


def has_unread(data: bytes, aborted: Iterable[tuple[int, int]], start: int, end: int) -> bool:
    """Whether there is a record between two offsets for a reader of committed data.

    Takes: data, the batches from `start` on, as a Fetch of at most TAIL_BYTES returns them;
           aborted, the producer id and first offset of each aborted transaction in them.
    Gives: also True if the data end before `end`: a batch that is longer than a marker follows.
    """
    first_offsets: dict[int, list[int]] = {}
    for producer_id, offset in sorted(aborted, key=lambda row: -row[1]):
        first_offsets.setdefault(producer_id, []).append(offset)
    from barnabas.protocol.records import batches_in  # with the codecs, which few answers need

    for _, header in batches_in(data):
        if start >= end:
            break
        of_producer = first_offsets.get(header.producer_id, [])
        is_aborted = bool(of_producer) and of_producer[-1] <= header.base_offset
        if header.is_control:
            if is_aborted:  # the marker that ends the aborted transaction
                of_producer.pop()
        elif header.next_offset > start and not (is_aborted and header.is_transactional):
            return True
        start = max(start, header.next_offset)
    return start < end


def partition_lag(place: GroupPosition, *, is_assigned: bool) -> PartitionLag:
    """The situation of a group in a partition, by the table of this module."""
    if place.is_batch_number:
        return PartitionLag(Situation.BATCH_NUMBER, None, 0, is_assigned)
    if place.bounds is None:
        return PartitionLag(Situation.UNKNOWN, None, 0, is_assigned)
    start, stable, end = place.bounds
    committed = place.committed
    at = position(committed, place.bounds)
    # a group beyond the last stable offset reads uncommitted records: nothing is held back from it
    held = end - stable if at <= stable else 0
    has_read_all = at >= end or at == stable or (at < stable and not place.has_unread)
    if committed is not None and committed > end:
        return PartitionLag(Situation.BEYOND_END, 0, 0, is_assigned)
    if held and has_read_all:
        return PartitionLag(Situation.WAITS, held, held, is_assigned)
    lag = 0 if has_read_all else end - at
    if committed is None:
        return PartitionLag(Situation.NEVER_COMMITTED, lag, held, is_assigned)
    if committed < start:
        return PartitionLag(Situation.BEFORE_START, lag, held, is_assigned)
    situation = Situation.BEHIND if lag else Situation.UP_TO_DATE
    return PartitionLag(situation, lag, held, is_assigned)


def share_lag(start: int | None, lag: int | None, *, is_assigned: bool) -> PartitionLag:
    """The situation of a share group in a partition. Takes: start, its start offset; lag, the
    number of its unfinished records; None if they are unknown.
    """
    if start is None:
        return PartitionLag(Situation.NOT_STARTED, None, 0, is_assigned)
    if lag is None:
        return PartitionLag(Situation.UNKNOWN, None, 0, is_assigned)
    situation = Situation.BEHIND if lag > 0 else Situation.UP_TO_DATE
    return PartitionLag(situation, max(0, lag), 0, is_assigned)


# --- a group ------------------------------------------------------------------------------------


def total_lag(rows: Iterable[PartitionLag]) -> int:
    """How far a group is behind, over all its partitions."""
    return sum(row.lag or 0 for row in rows)


def status(state: str, member_count: int, is_simple: bool, rows: Sequence[PartitionLag]) -> str:
    """A phrase that says what a group waits for, how far it is behind, and why.

    Takes: is_simple, whether the group never had members: its consumers assign partitions to
           themselves and only commit.
    """
    if not rows:
        if not member_count:
            return NEVER_USED
        return f"no committed offsets yet, {_without_partitions(state)}"
    rows = [row for row in rows if row.situation != Situation.BATCH_NUMBER]
    if not rows:
        return NO_LAG
    lag = total_lag(rows)
    parts = [_head(rows, lag), *_reasons(rows, lag)]
    if lag and not member_count and not is_simple:
        parts.append("and no member continues")
    elif lag and member_count:
        unread = total_lag(row for row in rows if not row.is_assigned)
        if not any(row.is_assigned for row in rows):
            parts.append(f"and {_without_partitions(state)}")
        elif unread:
            parts.append(f"{unread:,} of them in partitions that no member reads")
    return ", ".join(part for part in parts if part) or UP_TO_DATE


def _without_partitions(state: str) -> str:
    if state in REBALANCING:
        return "its members are rebalancing"
    return "its members have no partitions"


def _head(rows: Sequence[PartitionLag], lag: int) -> str:
    """How far a group is behind; empty if other parts of the phrase say more."""
    if all(row.situation == Situation.NEVER_COMMITTED for row in rows):
        return f"nothing committed: up to {lag:,} wait" if lag else NONE_WAITS
    return f"{lag:,} behind" if lag else ""


def _reasons(rows: Sequence[PartitionLag], lag: int) -> list[str]:
    """Why a group is behind, or what is wrong with its offsets."""
    held = sum(row.held for row in rows)
    reasons = []
    if held:
        part = "" if held == lag else f"{held:,} of them "
        reasons.append(f"{part}held back by an open transaction")
    for situation, text in (
        (Situation.NEVER_COMMITTED, "nothing committed in {}"),
        (Situation.BEYOND_END, "its offset is beyond the end of {}"),
        (Situation.BEFORE_START, "records that it had not read were deleted in {}"),
        (Situation.NOT_STARTED, "no record of {} delivered yet"),
        (Situation.UNKNOWN, "no lag is known in {}"),
    ):
        count = sum(row.situation == situation for row in rows)
        if count and not (situation == Situation.NEVER_COMMITTED and count == len(rows)):
            reasons.append(text.format(count_text(count, "partition")))
    return reasons
