"""Whole transactions: the last stable offsets of the topics with `barnabas.transactions.whole`.

The last stable offset of one log stays below that log's open transactions. So a transaction that
is committed may be readable in one log and held back in another, behind another producer's open
transaction. Here the last stable offsets of all logs with the setting are kept on a *cut*: of a
transaction that was committed in these logs, all records are below the last stable offsets, or
none.

A cut also has no transaction without its causes. A cause is a transaction that was committed before
the last record of the other one arrived: what a producer committed earlier, and what it could have
read. Transactions that overlap in time have no order. (If the cut were a prefix of the order of
commits, a reader would wait for chains of overlapping transactions, which have no end where many
producers write to the same partitions.)

The rule is one sentence: a committed transaction is *held back*

- if in any log its end is above the log's own stable offset,
- or if in any log its end is above the first offset of a transaction that is held back,
- or if its last record arrived when a transaction that is held back was already committed,
- or if it does not have all its markers yet (markers in parts),

and a log's last stable offset is at or below the first offsets of what is held back in it. `held`
computes that. It gives the greatest cut, and cuts never go back: at its commit a transaction was
open, so no last stable offset was above its first offsets, and what is later written is above them.

Between two computations the result stays the same until the reason of a transaction ends. So each
transaction that is held back by an offset waits at one log (`Log.awaited_offset`), and those that
only depend on others wait for these. A commit while nothing is held back costs a comparison for
each of its logs, one behind a hanging transaction a few more.

Memory: beyond MOST_EXTENTS a transaction joins the newest one that is held back. Both become
readable together, which may be later, and is never half.

After a restart the same cut is computed from the logs. Each commit marker in such a log has a
header (records of control batches may have headers, which readers skip):

    key "barnabas.whole"    >iqqqqq
     0   4   run: the leader epoch of the broker's start
     4   8   commit_ms: the broker's steady clock at the commit
    12   8   number: that of the commit in this run, for commits in the same millisecond
    20   8   last_ms: the same clock at the arrival of the last record, in any of the logs that get
             a marker now, or at least in this one; -1 if it is unknown
    28   8   decided_ms: with the producer id it identifies the transaction, also where a producer
             uses one epoch for many transactions
    36   8   last_stable_offset: that of the log before the commit; -1 if a start has written the
             marker. Everything that is held back in the log now begins at it or later, so a start
             reads no further back.

A power loss may remove a marker that readers relied on. The start that writes it again does not
know when the last record arrived, so that transaction may become readable before a cause of it; it
is whole nevertheless.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from barnabas.broker.transactions.cuts import Cuts
from barnabas.coordinator.transactions.transaction_state import Decision
from barnabas.protocol.records import records_of
from barnabas.storage.exception_guard import contain
from barnabas.storage.log.append_info import MarkerHeader
from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.transactions")

HEADER_KEY = "barnabas.whole"
_NOTE, _OFFSET = struct.Struct(">iqqqqq"), struct.Struct(">q")
UNKNOWN = -1
_LAST_NUMBER = (1 << 64) - 1
# One extent is one transaction's records in one log. They take about 2 MB, and one computation with
# all of them about 10 ms.
MOST_EXTENTS = 8192
# the first step back in a log in search of a marker, in offsets; each further one is 4 times as far
_FIRST_STEP = 256

Extent = tuple[int, int]
"""The first offset of a transaction in a log, and the offset after its last record there."""

_NOTHING_BEGUN: tuple[dict[Log, Extent], int, int] = ({}, UNKNOWN, UNKNOWN)


class Note(NamedTuple):
    """The header of a marker, see above."""

    run: int
    commit_ms: int
    number: int
    last_ms: int
    decided_ms: int
    last_stable_offset: int


def note_of(marker: bytes) -> Note | None:
    """The note in a marker's batch; None if it has none."""
    for key, value in records_of(marker)[0].headers:
        if key == HEADER_KEY and value is not None and len(value) == _NOTE.size:
            return Note(*_NOTE.unpack(value))
    return None


class Committed:
    """A committed transaction, or several that become readable together.

    extents: its records in each log. committed_at: the place of its commit in the order of all
    events; with markers in parts, that of the first part. last_at: the place of the arrival of its
    last record, which is before that. is_complete: whether it has all its markers. witness: a log
    whose own stable offset holds the transaction back; None if others do. is_held: whether it is
    held back. _unchecked: the logs that may hold it back by their own stable offsets, which do not
    go back; None if all have to be checked.
    """

    __slots__ = (
        "_unchecked",
        "committed_at",
        "extents",
        "is_complete",
        "is_held",
        "last_at",
        "transactional_id",
        "witness",
    )

    def __init__(self, transactional_id: str, committed_at: int, *, is_complete: bool) -> None:
        self.transactional_id, self.committed_at = transactional_id, committed_at
        self.extents: dict[Log, Extent] = {}
        self.last_at = UNKNOWN
        self.is_complete = is_complete
        self.witness: Log | None = None
        self.is_held = True
        self._unchecked: list[Log] | None = None

    def add_extents(self, extents: dict[Log, Extent]) -> None:
        """Add or widen extents."""
        self.extents |= extents
        self._unchecked = None

    def set_last(self, place: int) -> None:
        """Take the arrival of another record into account.

        In the millisecond of the commit the record may have come after other commits of the same
        millisecond, but not after its own.
        """
        self.last_at = max(self.last_at, min(place, self.committed_at - 1))

    def blocked_at(self) -> Log | None:
        """A log in which the transaction's end is above the log's own stable offset."""
        if self._unchecked is None:
            self._unchecked = list(self.extents)
        while self._unchecked:
            log = self._unchecked[-1]
            extent = self.extents.get(log)
            # the last stable offset, which costs no call, is at or below the log's own
            if extent is not None and log.last_stable_offset < extent[1] > log.own_stable_offset():
                return log
            self._unchecked.pop()
        return None


def held(transactions: Iterable[Committed]) -> dict[Log, int]:
    """Decide which of the transactions are held back, and set `is_held` and `witness`.

    Gives:  for each log in which some are held back, the lowest of their first offsets.

    Each transaction enters the result at most once, and each extent is compared at most twice.
    """
    by_end: dict[Log, list[tuple[int, int]]] = {}
    by_last: list[tuple[int, int]] = []
    rows = list(transactions)
    reached: list[int] = []
    for index, row in enumerate(rows):
        row.is_held, row.witness = False, row.blocked_at()
        if row.witness is not None or not row.is_complete:
            reached.append(index)
        by_last.append((row.last_at, index))
        for log, (_, end_offset) in row.extents.items():
            by_end.setdefault(log, []).append((end_offset, index))
    by_last.sort()
    for ends in by_end.values():
        ends.sort()
    bounds: dict[Log, int] = {}
    earliest: int | None = None
    while reached:
        row = rows[reached.pop()]
        if row.is_held:
            continue
        row.is_held = True
        if earliest is None or row.committed_at < earliest:
            earliest = row.committed_at
            while by_last and by_last[-1][0] >= earliest:
                reached.append(by_last.pop()[1])
        for log, (first_offset, _) in row.extents.items():
            if first_offset < bounds.get(log, first_offset + 1):
                bounds[log] = first_offset
                ends = by_end[log]
                while ends and ends[-1][0] > first_offset:
                    reached.append(ends.pop()[1])
    return bounds


class WholeTransactions:
    """Keeps the last stable offsets of the logs with the setting on a cut.

    run: the leader epoch of the broker's start. on_risen: called with logs whose last stable
    offsets have risen; never while a transaction gets its markers. defer: calls a function at the
    end of the event, so that an event in which many logs end or leave computes the cut once. cuts:
    learns of each commit. is_live: False while a start writes markers, after which `recover` reads
    them. held_back: the transactions that are held back, in the order of their commits. in_parts:
    the transactions that do not have all their markers yet, by producer id and time of the
    decision.
    """

    def __init__(
        self,
        run: int,
        on_risen: Callable[[list[Log]], None],
        defer: Callable[[Callable[[int], None]], None],
        cuts: Cuts,
        *,
        is_live: bool,
    ) -> None:
        self._run, self._on_risen, self._defer, self.is_live = run, on_risen, defer, is_live
        self._cuts = cuts
        self._number = 0
        # of the commit that `begin` has begun: its header; its extents, the time of its last
        # record there, and its own time
        self._header: MarkerHeader | None = None
        self._begun = _NOTHING_BEGUN
        self.held_back: dict[Committed, None] = {}
        self._extent_count = 0
        self._bounds: dict[Log, int] = {}
        self._earliest: Committed | None = None
        self._newest: Committed | None = None
        self._waiting: dict[Log, list[tuple[int, int, Committed]]] = {}
        self._waiting_count = 0
        self.in_parts: dict[tuple[int, int], Committed] = {}
        self._is_marking = self._is_to_compute = False
        self._left: dict[Log, None] = {}
        self._reached: list[Log] = []
        self._risen: list[Log] = []

    # --- commits ---------------------------------------------------------------------------------

    def header(
        self, log: Log, producer_id: int, decided_ms: int, now_ms: int, *, is_live: bool = True
    ) -> tuple[MarkerHeader, bytes]:
        """The header of a commit marker that is now written to a log with the setting.

        Takes:  is_live, whether the time of the last record is known.
        Gives:  the header, which is the same for all logs of a commit; and the last bytes of the
                marker, which replace theirs in this log.
        """
        header = self._header
        if header is None or not is_live:
            extent = log.producer_state.extent_of_transaction(producer_id)
            last_ms = UNKNOWN if extent is None or not is_live else extent[2]
            header = self._header_of(now_ms, last_ms, decided_ms)
        return header, _OFFSET.pack(log.last_stable_offset if self.is_live else UNKNOWN)

    def _header_of(self, now_ms: int, last_ms: int, decided_ms: int) -> MarkerHeader:
        note = _NOTE.pack(self._run, now_ms, self._number, last_ms, decided_ms, UNKNOWN)
        return HEADER_KEY, note

    def begin(self, decision: Decision, logs: Iterable[Log | None], now_ms: int) -> None:
        """Record the extents of a transaction that gets its commit markers in these logs now.

        `end` has to follow. Until then no last stable offset rises for other transactions.
        """
        self._number += 1
        if not self.is_live:
            return
        self._is_marking = True
        if self._cuts.record_ms is None:
            self._cuts.on_changed(now_ms)
        producer_id = decision.producer_id
        extents: dict[Log, Extent] = {}
        last_ms = UNKNOWN
        for log in logs:
            if log is None or not log.is_whole:
                continue
            extent = log.producer_state.extent_of_transaction(producer_id)
            if extent is not None:
                first_offset, end_offset, seen_ms = extent
                extents[log] = first_offset, end_offset
                last_ms = max(last_ms, seen_ms)
        self._begun = extents, last_ms, now_ms
        self._header = self._header_of(now_ms, last_ms, decision.decided_ms)

    def end(self, decision: Decision, *, is_complete: bool) -> None:
        """The markers of `begin` are written.

        Takes:  is_complete, whether the transaction has all its markers now.
        """
        if not self.is_live:
            return
        self._header, extents = None, self._begun[0]
        if self.held_back or self.in_parts or not is_complete or not _are_readable(extents):
            self._end(decision, extents, is_complete=is_complete)
        self._begun = _NOTHING_BEGUN
        self._is_marking = False
        if self._reached:
            reached, self._reached = self._reached, []
            for log in reached:
                self.on_reached(log)
        if self._risen:
            self._tell()

    def _end(self, decision: Decision, extents: dict[Log, Extent], *, is_complete: bool) -> None:
        """Decide whether a transaction is held back."""
        key = decision.producer_id, decision.decided_ms
        _, last_ms, now_ms = self._begun
        row = self.in_parts.get(key)
        if row is None:
            if not extents:
                return
            place = _place(self._run, now_ms, self._number)
            row = Committed(decision.transactional_id, place, is_complete=False)
            self.in_parts[key] = row
        if extents:
            row.add_extents(extents)
            row.set_last(_place(self._run, last_ms, _LAST_NUMBER))
        if is_complete:
            del self.in_parts[key]
            row.is_complete = True
        if row.extents:
            self._add(row)

    def _add(self, row: Committed) -> None:
        if row in self.held_back:  # markers in parts
            if row.is_complete:
                self._compute()
            else:
                self._hold(row)
            return
        witness = row.blocked_at()
        if witness is None and row.is_complete and not self._depends(row):
            return
        if row.is_complete:
            if self._newest is not None and self._extent_count + len(row.extents) > MOST_EXTENTS:
                self._join(row)
                return
            self._newest = row
        row.witness = witness
        self.held_back[row] = None
        self._extent_count += len(row.extents)
        self._hold(row)
        self._await(row)

    def _depends(self, row: Committed) -> bool:
        """Whether a transaction is held back by those that are held back now."""
        earliest = self._earliest
        if earliest is not None and row.last_at >= earliest.committed_at:
            return True
        bounds = self._bounds
        return bool(bounds) and any(
            end_offset > bounds.get(log, end_offset) for log, (_, end_offset) in row.extents.items()
        )

    def _hold(self, row: Committed) -> None:
        """Keep the last stable offsets at or below the first offsets of a transaction."""
        row.is_held = True
        if self._earliest is None or row.committed_at < self._earliest.committed_at:
            self._earliest = row
        for log, (first_offset, _) in row.extents.items():
            if first_offset < self._bounds.get(log, first_offset + 1):
                self._bounds[log] = first_offset
                self._set_bound(log, first_offset)

    def _join(self, row: Committed) -> None:
        """Let a transaction become readable together with the newest one that is held back."""
        newest = self._newest
        assert newest is not None, "so much is held back only by committed transactions"
        before, wider = len(newest.extents), {}
        for log, (first_offset, end_offset) in row.extents.items():
            first, end = newest.extents.get(log, (first_offset, end_offset))
            wider[log] = min(first, first_offset), max(end, end_offset)
        newest.add_extents(wider)
        newest.last_at = max(newest.last_at, row.last_at)
        self._extent_count += len(newest.extents) - before
        self._hold(newest)
        if newest.witness is None:
            newest.witness = newest.blocked_at()
            self._await(newest)

    # --- reasons that end ------------------------------------------------------------------------

    def _await(self, row: Committed) -> None:
        """Wait for the log that holds a transaction back."""
        log = row.witness
        if log is not None:
            self._waiting_count += 1
            waiting = self._waiting.setdefault(log, [])
            heappush(waiting, (row.extents[log][1], self._waiting_count, row))
            self._watch(log)
            log.awaited_offset = waiting[0][0]

    def on_reached(self, log: Log) -> None:
        """The log's own stable offset has reached the end of a transaction that waits for it."""
        if self._is_marking:
            self._reached.append(log)
            return
        own, waiting, has_ended = log.own_stable_offset(), self._waiting.get(log, []), False
        while waiting and waiting[0][0] <= own:
            row = heappop(waiting)[2]
            if not row.is_held or row.witness is not log:
                continue
            row.witness = row.blocked_at()
            if row.witness is not None:
                self._await(row)
            elif not self._is_caused(row):
                has_ended = True
        if waiting:
            log.awaited_offset = waiting[0][0]
        else:
            self._waiting.pop(log, None)
        if has_ended:
            self._compute_later()

    def _is_caused(self, row: Committed) -> bool:
        """Whether the earliest transaction is held back by an offset, and holds this one back."""
        earliest = self._earliest
        return (
            earliest is not None
            and earliest is not row
            and earliest.witness is not None
            and row.last_at >= earliest.committed_at
        )

    def on_left(self, log: Log) -> None:
        """A log was deleted, or its topic has lost the setting: it holds nothing back."""
        self._left[log] = None
        self._waiting.pop(log, None)
        self._bounds.pop(log, None)
        before = log.last_stable_offset
        log.observe(None)
        if log.last_stable_offset > before:
            self._risen.append(log)
        self._compute_later()

    def _compute_later(self) -> None:
        """Let the cut be computed at the end of this event. Until then nothing rises."""
        if not self._is_to_compute:
            self._is_to_compute = True
            self._defer(self._compute_now)

    def _compute_now(self, _now_ms: int) -> None:
        self._is_to_compute = False
        left, self._left = self._left, {}
        if left:
            for row in (*self.held_back, *self.in_parts.values()):
                if not left.keys().isdisjoint(row.extents):
                    for log in left:
                        row.extents.pop(log, None)
            for log in left:
                log.observe(None)  # a commit of this event may have set it again
        self._compute()
        self._tell()

    def _compute(self) -> None:
        """Decide again which transactions are held back."""
        bounds = held(self.held_back)
        rows = [row for row in self.held_back if row.is_held and row.extents]
        self.held_back = dict.fromkeys(rows)
        self._extent_count = sum(len(row.extents) for row in rows)
        self._earliest = min(rows, key=_committed_at, default=None)
        self._newest = next((row for row in reversed(rows) if row.is_complete), None)
        self._waiting = {}
        logs = dict.fromkeys((*self._bounds, *bounds))
        self._bounds = bounds
        for log in logs:
            log.awaited_offset = None
        for row in rows:
            self._await(row)
        for log in logs:
            bound = bounds.get(log)
            if bound is not None or log.held_from is not None:
                self._set_bound(log, bound)
            if bound is None and log not in self._waiting:
                log.observe(None)

    def _watch(self, log: Log) -> None:
        if log.observer is None:
            log.observe(self)

    def _set_bound(self, log: Log, bound: int | None) -> None:
        self._watch(log)
        if log.hold_from(bound):
            self._risen.append(log)

    def _tell(self) -> None:
        if self._risen and not self._is_marking:
            risen, self._risen = self._risen, []
            self._on_risen(risen)

    # --- a start ---------------------------------------------------------------------------------

    def recover(self, logs: Iterable[Log], now_ms: int) -> None:
        """Compute the cut from the logs, at the end of a start.

        If no log with the setting ends with an open transaction, everything committed is readable,
        and nothing is read. A log that cannot be read is left out.
        """
        self.is_live = True
        whole = [log for log in logs if log.is_whole]
        if whole:  # commits of the last run may not be in a recorded cut yet
            self._cuts.on_changed(now_ms)
        if all(log.own_stable_offset() == log.log_end_offset for log in whole):
            return
        rows: dict[tuple[int, int], Committed] = {}
        for log in whole:
            try:
                _read_commits(log, rows)
            except Exception as error:
                contain(error, f"the committed transactions of {log!r}")
        self.held_back = dict.fromkeys(sorted(rows.values(), key=_committed_at))
        self._compute()
        self._risen = []


def _are_readable(extents: dict[Log, Extent]) -> bool:
    """Whether the last stable offset of each log is above a transaction."""
    for log, (_, end_offset) in extents.items():  # noqa: SIM110 - a generator would cost more
        if log.last_stable_offset < end_offset:
            return False
    return True


def _committed_at(row: Committed) -> int:
    return row.committed_at


def _place(run: int, time_ms: int, number: int) -> int:
    """The place of an event in the order of all events."""
    return (run << 128) + (time_ms << 64) + number


def _read_commits(log: Log, rows: dict[tuple[int, int], Committed]) -> None:
    """Add the transactions that were committed in a log, from the last stable offset on that its
    last marker has.
    """
    start = _last_stable_offset(log)
    if start is None:
        return
    first: dict[int, int] = {}
    end: dict[int, int] = {}
    for header, marker in log.reader.transactional(max(start, log.log_start_offset)):
        producer_id = header.producer_id
        if marker is None:
            first.setdefault(producer_id, header.base_offset)
            end[producer_id] = header.last_offset + 1
            continue
        first_offset = first.pop(producer_id, None)
        note = note_of(marker)
        if first_offset is None or note is None:
            continue
        place = _place(note.run, note.commit_ms, note.number)
        key = producer_id, note.decided_ms
        row = rows.get(key)
        if row is None:
            row = rows[key] = Committed("", place, is_complete=True)
        row.extents[log] = first_offset, end[producer_id]
        row.committed_at = min(row.committed_at, place)
        if note.last_ms != UNKNOWN:
            row.set_last(_place(note.run, note.last_ms, _LAST_NUMBER))
        row.last_at = min(row.last_at, row.committed_at - 1)


def _last_stable_offset(log: Log) -> int | None:
    """A last stable offset that readers of the log have got, of the latest marker that has one.

    Gives: the start of the log if markers have a note, but none has the offset; None if no marker
           has a note.
    """
    step = _FIRST_STEP
    while True:
        start = max(log.log_end_offset - step, log.log_start_offset)
        notes = [
            note
            for _, marker in log.reader.transactional(start)
            if marker is not None and (note := note_of(marker)) is not None
        ]
        for note in reversed(notes):
            if note.last_stable_offset != UNKNOWN:
                return note.last_stable_offset
        if start == log.log_start_offset:
            return start if notes else None
        step *= 4
