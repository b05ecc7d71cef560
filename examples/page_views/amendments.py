"""Operators whose inputs come in any order and whose results are amended, as section 5 of the paper
has them. They are plain classes; at the end Spark runs them.

    StreamJoin     a left join of two streams. A pair is emitted at once; that there is no partner
                   is emitted when the grace is over, since it could not be taken back
    WindowCount    counts in windows, with a grace of its own
    TableJoin      a left join of two tables. A result is emitted at once and amended later, since
                   in a table a new value replaces the old one
    Total          an aggregation behind a table: an amendment retracts the old value and
                   accumulates the new one
    Suppression    holds revisions back for a time, and emits the last one of each key

Each operator has a stream time and a grace of its own: the latest time that it has seen. (Spark has
one watermark for the whole query.)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from per_record import in_order, require_protobuf
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StatefulProcessorHandle

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as in per_record.py

LEFT, RIGHT = "left", "right"
ROWS = (
    "key string, old string, new string, side string, partition int, offset long, time_ms long, "
    "part int"
)


class Event(NamedTuple):
    """A record of an input: of a stream, or a new value of a table (None: the row is deleted)."""

    side: str
    key: str
    value: str | None
    time_ms: int


class Change(NamedTuple):
    """A result of an operator. old: what it replaces; None if it is the first of its key."""

    key: str
    old: str | None
    new: str | None
    time_ms: int


class Operator:
    """A function from events to results, with a state that can be stored as JSON."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self.state: dict[str, Any] = state or self.empty()

    def empty(self) -> dict[str, Any]:
        """The state before the first event."""
        return {}

    def on(self, event: Event) -> list[Change]:
        """Process an event. Gives: the results that it has."""
        raise NotImplementedError

    def advance(self, time_ms: int) -> int:
        """Advance the stream time. Gives: the stream time."""
        self.state["time_ms"] = max(time_ms, self.state.get("time_ms", time_ms))
        return int(self.state["time_ms"])


class StreamJoin(Operator):
    """A left join of two streams by key, of events at most `within_ms` apart.

    An event of the left stream has a null result if no partner has come when stream time is beyond
    its time, `within_ms` and the grace. An event that comes later than that is dropped.
    """

    within_ms, grace_ms = 5_000, 10_000

    def empty(self) -> dict[str, Any]:
        """By side, the events that may still find a partner: key, value, time, whether it has."""
        return {LEFT: [], RIGHT: []}

    def on(self, event: Event) -> list[Change]:
        """Join the event with all that have come, then give up what is over."""
        now = self.advance(event.time_ms)
        results = []
        if event.time_ms + self.within_ms + self.grace_ms > now:
            own: list[Any] = [event.key, event.value, event.time_ms, False]
            self.state[event.side].append(own)
            for other in self.state[RIGHT if event.side == LEFT else LEFT]:
                if other[0] == event.key and abs(other[2] - event.time_ms) <= self.within_ms:
                    left, right = (own, other) if event.side == LEFT else (other, own)
                    left[3] = True
                    results.append(Change(event.key, None, f"{left[1]}+{right[1]}", left[2]))
        return results + self._over(now)

    def _over(self, now: int) -> list[Change]:
        """Remove events that cannot find a partner any more. Gives: the null results."""
        over: list[Change] = []
        for side in (LEFT, RIGHT):
            kept = []
            for key, value, time_ms, is_matched in self.state[side]:
                if time_ms + self.within_ms + self.grace_ms > now:
                    kept.append([key, value, time_ms, is_matched])
                elif side == LEFT and not is_matched:
                    over.append(Change(key, None, f"{value}+null", time_ms))
            self.state[side] = kept
        return sorted(over, key=lambda change: (change.time_ms, change.key))


class WindowCount(Operator):
    """Counts events in windows, as page_views.py does, with a grace that need not be the one of the
    operator before it.

    The null results of a join come late by its window and its grace. So the counts behind it need
    more.
    """

    window_ms, grace_ms = 5_000, 20_000

    def on(self, event: Event) -> list[Change]:
        """Count an event. Gives: the window's revision, or nothing if the event is too late."""
        now = self.advance(event.time_ms)
        start = event.time_ms - event.time_ms % self.window_ms
        if start + self.window_ms + self.grace_ms <= now:
            return []
        counts = self.state.setdefault("counts", {})
        window = str(start // 1000)
        old = counts.get(window)
        counts[window] = (old or 0) + 1
        was = None if old is None else str(old)
        return [Change(window, was, str(counts[window]), event.time_ms)]


class TableJoin(Operator):
    """A left join of two tables by key. Each change of either table amends its key's result."""

    def empty(self) -> dict[str, Any]:
        """By side, the values by key."""
        return {LEFT: {}, RIGHT: {}}

    def on(self, event: Event) -> list[Change]:
        """Store the new value. Gives: the amendment, unless the result is the same."""
        old = self._joined(event.key)
        table = self.state[event.side]
        if event.value is None:
            table.pop(event.key, None)
        else:
            table[event.key] = event.value
        new = self._joined(event.key)
        return [] if new == old else [Change(event.key, old, new, event.time_ms)]

    def _joined(self, key: str) -> str | None:
        """The present result of a key; None if the left table does not have it."""
        left = self.state[LEFT].get(key)
        return None if left is None else f"{left}+{self.state[RIGHT].get(key, 'null')}"


class Total(Operator):
    """How many rows of a table have each value. Its events are amendments by value: on the left a
    row that has it now (to be added), on the right one that had it (to be retracted).
    """

    def on(self, event: Event) -> list[Change]:
        """Add or retract one row. Gives: the new count of its value."""
        counts = self.state.setdefault("counts", {})
        old = counts.get(event.key, 0)
        counts[event.key] = old + (1 if event.side == LEFT else -1)
        was = str(old) if old else None
        return [Change(event.key, was, str(counts[event.key]), event.time_ms)]


class Suppression(Operator):
    """Holds the revisions of each key back for `hold_ms` of stream time, and emits the last one."""

    hold_ms = 10_000

    def on(self, event: Event) -> list[Change]:
        """Hold a revision, and emit those whose time is over."""
        now = self.advance(event.time_ms)
        held = self.state.setdefault("held", {})
        since = held.get(event.key, [event.time_ms])[0]
        held[event.key] = [since, event.value]
        due = sorted(
            (since, key) for key, (since, _) in held.items() if since + self.hold_ms <= now
        )
        return [Change(key, None, held.pop(key)[1], since) for since, key in due]


def retracted_and_added(changes: Iterable[Change]) -> Iterator[Event]:
    """The events of an aggregation behind a table, re-keyed by the table's values."""
    for change in changes:
        if change.old is not None:
            yield Event(RIGHT, change.old, None, change.time_ms)
        if change.new is not None:
            yield Event(LEFT, change.new, None, change.time_ms)


# --- inputs in wrong order


def at(side: str, second: int, value: str | None, key: str = "ada") -> Event:
    """An event at a second of event time."""
    return Event(side, key, value, 1000 * second)


# the left stream has views, the right one clicks; the seconds are event times
STREAMS = (
    at(LEFT, 12, "view1"),
    at(LEFT, 16, "view2"),
    at(RIGHT, 20, "click2"),  # a partner of view2 alone, which is at most 5 s away
    at(RIGHT, 9, "click0"),  # late, and within the grace: a partner of view1
    at(LEFT, 21, "view3", key="bob"),
    at(LEFT, 35, "view4"),  # view3 waits until 21 + 5 + 10
    at(LEFT, 36, "view5"),  # now
    at(RIGHT, 21, "click3", key="bob"),  # a partner of view3, too late
)

# the left table has each user's last page, the right one the user's country
TABLES = (
    at(LEFT, 12, "news"),  # the country is not known yet
    at(RIGHT, 10, "de"),  # it comes late: amended
    at(LEFT, 16, "news", key="bob"),
    at(RIGHT, 17, "at"),
    at(RIGHT, 17, "at", key="bob"),
    at(LEFT, 18, None),  # ada's row is deleted
    at(RIGHT, 40, "fr", key="cy"),  # a row of the right table alone has no result
    at(LEFT, 41, "news", key="cy"),
)


# --- on Spark


class OnSpark(StatefulProcessor):  # type: ignore[misc]
    """Runs an operator on the rows of a task. Its state is one value of Spark's state."""

    def __init__(self, operator: type[Operator]) -> None:
        self._operator = operator

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getValueState("state", "json string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Process the rows of a micro-batch in the order of the input."""
        stored = self._state.get()
        operator = self._operator(json.loads(stored[0]) if stored else None)
        results = [
            Row(
                key=change.key,
                old=change.old,
                new=change.new,
                side=LEFT,
                partition=row.partition,
                offset=row.offset,
                time_ms=change.time_ms,
                part=part,
            )
            for row in in_order(sorted(rows, key=lambda row: row.part))
            for part, change in enumerate(
                operator.on(Event(row.side, row.key, row.new, row.time_ms)), 10 * row.part
            )
        ]
        self._state.update((json.dumps(operator.state),))
        return iter(results)

    def close(self) -> None:
        """Do nothing, since this class holds no resources."""


def applied(rows: DataFrame, operator: type[Operator]) -> DataFrame:
    """Run an operator in one task: one stream time for all keys.

    Takes:  rows, with the columns of `ROWS`. Gives: its results, with the same columns.
    """
    require_protobuf()
    return (
        rows.withColumn("task", F.lit(0))
        .groupBy("task")
        .transformWithState(OnSpark(operator), ROWS, "Append", "None")
    )


def events_in(records: DataFrame) -> DataFrame:
    """Read events from the values of records."""
    event = F.from_json(
        F.col("value").cast("string"), "side string, key string, value string, time_ms long"
    )
    return records.select(event.alias("event"), "partition", "offset").selectExpr(
        "event.key",
        "CAST(NULL AS STRING) AS old",
        "event.value AS new",
        "event.side",
        "partition",
        "offset",
        "event.time_ms",
        "0 AS part",
    )


def amended(changes: DataFrame) -> DataFrame:
    """`retracted_and_added` for a DataFrame: a row for the old value and one for the new one."""
    both = F.array(
        F.struct(F.col("old").alias("key"), F.lit(RIGHT).alias("side"), F.lit(0).alias("one")),
        F.struct(F.col("new").alias("key"), F.lit(LEFT).alias("side"), F.lit(1).alias("one")),
    )
    return (
        changes.withColumn("each", F.explode(both))
        .where("each.key IS NOT NULL")
        .selectExpr(
            "each.key AS key",
            "CAST(NULL AS STRING) AS old",
            "CAST(NULL AS STRING) AS new",
            "each.side AS side",
            "partition",
            "offset",
            "time_ms",
            "2 * part + each.one AS part",
        )
    )


def counted_pairs(events: DataFrame) -> DataFrame:
    """The pairs of two streams, counted in windows: two operators with different grace."""
    return applied(applied(events, StreamJoin), WindowCount)


def suppressed_totals(events: DataFrame) -> DataFrame:
    """The rows of two joined tables, counted by value; the counts held back for a time."""
    return applied(applied(amended(applied(events, TableJoin)), Total), Suppression)
