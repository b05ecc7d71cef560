"""Mistakes in keeping transactions whole across partitions, see defects.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from barnabas.broker.transactions import whole_transactions
from barnabas.broker.transactions.cut_history import CutHistory, Track
from barnabas.broker.transactions.cuts import Cuts
from barnabas.broker.transactions.whole_transactions import Committed, WholeTransactions
from barnabas.coordinator.transactions.transaction_state import Decision
from barnabas.storage.log.log import Log
from sim.defects import defect
from sim.focuses import (
    with_lost_cuts,
    with_thinned_cuts,
    with_toggled_topics,
    with_whole_transactions,
)


@contextlib.contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, make(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


@defect(
    "a commit holds nothing back in the partitions that are free",
    "half",
    tweak=with_whole_transactions,
)
def each_partition_on_its_own() -> Iterator[None]:
    with _replaced(WholeTransactions, "_add", lambda before: lambda self, row: None):
        yield


@defect(
    "a start does not find what was held back",
    "half",
    "watermark",
    tweak=with_whole_transactions,
)
def a_start_forgets_what_was_held_back() -> Iterator[None]:
    def header(self: WholeTransactions, *_: Any, **__: Any) -> tuple[None, bytes]:
        return None, b""

    with _replaced(WholeTransactions, "header", lambda before: header):
        yield


@defect(
    "a transaction is readable up to its first record, where others overlap it",
    "half",
    tweak=with_whole_transactions,
)
def the_first_record_counts_as_the_end() -> Iterator[None]:
    def replacing(before: Any) -> Any:
        def begin(
            self: WholeTransactions, decision: Decision, logs: Iterable[Log | None], now_ms: int
        ) -> None:
            before(self, decision, logs, now_ms)
            extents = self._begun[0]
            for log, (first_offset, _) in extents.items():
                extents[log] = first_offset, first_offset + 1

        return begin

    with _replaced(WholeTransactions, "begin", replacing):
        yield


@defect(
    "a transaction with some of its markers is not held back",
    "half",
    tweak=with_whole_transactions,
)
def markers_in_parts_show_a_part() -> Iterator[None]:
    def replacing(before: Any) -> Any:
        def end(self: WholeTransactions, decision: Decision, *, is_complete: bool) -> None:
            if not is_complete:
                self._begun[0].clear()
            before(self, decision, is_complete=is_complete)

        return end

    with _replaced(WholeTransactions, "end", replacing):
        yield


@defect("a result is readable before its cause", "half", tweak=with_whole_transactions)
def a_result_without_its_cause() -> Iterator[None]:
    with _replaced(Committed, "set_last", lambda before: lambda self, place: None):
        yield


@defect(
    "what waits for one partition is readable when that partition is free",
    "half",
    tweak=with_whole_transactions,
)
def one_reason_is_taken_for_all() -> Iterator[None]:
    def blocked_at(self: Committed) -> Log | None:
        for log, (_, end_offset) in list(self.extents.items())[:1]:
            if log.own_stable_offset() < end_offset:
                return log
        return None

    with _replaced(Committed, "blocked_at", lambda before: blocked_at):
        yield


@defect(
    "a start reads the logs from where its own markers say",
    "half",
    "watermark",
    tweak=with_whole_transactions,
)
def a_start_trusts_its_own_markers() -> Iterator[None]:
    def last_stable_offset(log: Log) -> int | None:
        return log.own_stable_offset()

    with _replaced(whole_transactions, "_last_stable_offset", lambda before: last_stable_offset):
        yield


# --- recorded cuts --------------------------------------------------------------------------------


@defect("a recorded cut has what is held back", "cut", "half", tweak=with_whole_transactions)
def a_cut_of_high_watermarks() -> Iterator[None]:
    def offsets(self: Cuts, logs: list[Log]) -> list[int]:
        return [log.high_watermark for log in logs]

    with _replaced(Cuts, "_stable_offsets", lambda before: offsets):
        yield


@defect("a recorded cut has only the partitions that are new in it", "cut", "half",
        tweak=with_whole_transactions)  # fmt: skip
def a_cut_of_new_partitions() -> Iterator[None]:
    def replacing(before: Any) -> Any:
        def changes(self: Cuts, *arguments: Any) -> Any:
            new, rows = before(self, *arguments)
            return new, rows[: max(1, len(rows) // 2)]

        return changes

    with _replaced(Cuts, "_changes", replacing):
        yield


@defect("recorded cuts do not outlast the process", "cut", tweak=with_whole_transactions)
def cuts_are_not_read_at_a_start() -> Iterator[None]:
    def load(self: Cuts) -> Iterator[None]:
        self._history = CutHistory()
        yield from ()

    with _replaced(Cuts, "_load", lambda before: load):
        yield


@defect(
    "a cut above records that a power loss has removed is kept",
    "cut",
    "half",
    tweak=with_lost_cuts,
)
def lost_cuts_are_kept() -> Iterator[None]:
    with _replaced(Cuts, "_drop_lost", lambda before: lambda self, history: iter(())):
        yield


@defect("thinning out drops rows that later cuts need", "cut", "half", tweak=with_thinned_cuts)
def thinning_drops_needed_rows() -> Iterator[None]:
    def replacing(before: Any) -> Any:
        def keep(self: Track, kept: Any, up_to: int) -> None:
            before(self, kept, up_to)
            numbers = set(kept)
            rows = [
                (number, offset)
                for number, offset in zip(self.numbers, self.offsets, strict=True)
                if number in numbers or number > up_to
            ]
            self.numbers = self.numbers[:0]
            self.offsets = self.offsets[:0]
            for number, offset in rows:
                self.numbers.append(number)
                self.offsets.append(offset)

        return keep

    with _replaced(Track, "keep", replacing):
        yield


@defect(
    "a topic that has lost the setting stays in the cuts with its last offset",
    "cut",
    "half",
    tweak=with_toggled_topics,
)
def topics_stay_in_cuts() -> Iterator[None]:
    with _replaced(Cuts, "_ended_rows", lambda before: lambda self, logs: []):
        yield
