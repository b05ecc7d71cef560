"""Section 5 of the paper: the inputs in wrong order, and what each operator emits."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "examples" / "page_views"))

from amendments import (
    LEFT,
    RIGHT,
    STREAMS,
    TABLES,
    Change,
    Event,
    Operator,
    StreamJoin,
    Suppression,
    TableJoin,
    Total,
    WindowCount,
    at,
    retracted_and_added,
)


def text_of(change: Change) -> str:
    old = "" if change.old is None else f"{change.old} -> "
    return f"{change.key}: {old}{change.new}"


def emitted(operator: Operator, events: Iterable[Event]) -> list[list[str]]:
    """What an operator emits after each event."""
    return [[text_of(change) for change in operator.on(event)] for event in events]


PAIRS = [
    [],
    [],
    ["ada: view2+click2"],
    ["ada: view1+click0"],
    [],
    [],
    ["bob: view3+null"],
    [],
]


def test_a_stream_stream_join_holds_null_results_until_the_grace_ends() -> None:
    # contract: paper/stream-stream-join
    assert emitted(StreamJoin(), STREAMS) == PAIRS


COUNTED = ["15: 1", "10: 1", "20: 1"]


def counted(grace_ms: int, events: Iterable[Event]) -> list[str]:
    """Count the results of the join in windows, with a grace for the counts."""
    join, counts = StreamJoin(), WindowCount()
    counts.grace_ms = grace_ms
    return [
        text_of(change)
        for event in events
        for pair in join.on(event)
        for change in counts.on(Event(LEFT, pair.key, pair.new, pair.time_ms))
    ]


def test_each_operator_has_a_grace_of_its_own() -> None:
    """The null result of view3 comes 15 s after the view. Counts with the grace of the join alone
    refuse it, if they have counted a later pair before.
    """
    # contract: paper/grace-per-operator
    pair_of_38 = (*STREAMS[:6], at(RIGHT, 37, "click4"), STREAMS[7])
    assert emitted(StreamJoin(), pair_of_38)[-2] == ["ada: view4+click4", "bob: view3+null"]
    assert "20: 1" in counted(20_000, pair_of_38)
    assert "20: 1" not in counted(10_000, pair_of_38)
    assert counted(20_000, STREAMS) == COUNTED


@pytest.mark.parametrize("seed", range(20))
def test_within_the_grace_the_order_of_the_streams_does_not_matter(seed: int) -> None:
    """No pair is missing, no null result is taken back, and no view has none or two results."""
    draw = random.Random(seed)
    events = [
        Event(draw.choice((LEFT, RIGHT)), draw.choice("ab"), f"v{n}", 1000 * n) for n in range(30)
    ]
    end = Event(RIGHT, "z", "end", 1_000_000)
    expected = Counter(change for event in [*events, end] for change in [*_joined(events, event)])
    for _ in range(5):
        late = sorted(events, key=lambda event: event.time_ms + draw.randrange(9_000))
        join = StreamJoin()
        found = Counter(change.new for event in [*late, end] for change in join.on(event))
        assert found == expected


def _joined(events: list[Event], event: Event) -> Iterable[str]:
    """The results of a view, by definition."""
    if event.side == LEFT:
        partners = [
            other.value
            for other in events
            if other.side == RIGHT
            and other.key == event.key
            and abs(other.time_ms - event.time_ms) <= StreamJoin.within_ms
        ]
        yield from (f"{event.value}+{partner}" for partner in partners or ["null"])


AMENDMENTS = [
    ["ada: news+null"],
    ["ada: news+null -> news+de"],
    ["bob: news+null"],
    ["ada: news+de -> news+at"],
    ["bob: news+null -> news+at"],
    ["ada: news+at -> None"],
    [],
    ["cy: news+fr"],
]
TOTALS = [
    ["news+null: 1"],
    ["news+null: 1 -> 0", "news+de: 1"],
    ["news+null: 1"],
    ["news+de: 1 -> 0", "news+at: 1"],
    ["news+null: 1 -> 0", "news+at: 1 -> 2"],
    ["news+at: 2 -> 1"],
    [],
    ["news+fr: 1"],
]
# after the last event; the key whose first revision is the oldest comes first
SUPPRESSED = ["news+de: 0", "news+null: 0", "news+at: 1"]


def test_a_table_table_join_amends_its_results() -> None:
    # contract: paper/table-table-join
    assert emitted(TableJoin(), TABLES) == AMENDMENTS


def test_an_aggregation_retracts_the_old_value_and_accumulates_the_new() -> None:
    # contract: paper/retraction
    join, total = TableJoin(), Total()
    found = [
        [text for (text,) in emitted(total, retracted_and_added(join.on(event)))]
        for event in TABLES
    ]
    assert found == TOTALS


def test_suppression_by_time_emits_the_last_revision_of_each_key() -> None:
    # contract: paper/suppress-time
    join, total, suppression = TableJoin(), Total(), Suppression()
    found = [
        f"{change.key}: {change.new}"
        for event in TABLES
        for amendment in retracted_and_added(join.on(event))
        for revision in total.on(amendment)
        for change in suppression.on(Event(LEFT, revision.key, revision.new, revision.time_ms))
    ]
    assert found == SUPPRESSED


def test_an_operator_continues_from_its_stored_state() -> None:
    for operator, events in ((StreamJoin, TABLES), (TableJoin, TABLES), (Suppression, TABLES)):
        whole, parts, state = emitted(operator(), events), [], None
        for event in events:
            part = operator(json.loads(state) if state else None)
            parts += emitted(part, [event])
            state = json.dumps(part.state)
        assert parts == whole
