"""The lists of groups and open transactions: rows, order, and the part that is shown."""

from __future__ import annotations

import math
from typing import Any

import pytest

from barnabas.broker.observe import (
    CommittedOffsetState,
    GroupState,
    OpenTransaction,
    PartitionState,
    TransactionalIdState,
)
from barnabas.console import lists, views
from barnabas.console.lists import (
    GROUP_COLUMNS,
    PLACE_COLUMNS,
    TRANSACTION_COLUMNS,
    PlaceRow,
    group_rows,
    in_order,
    part_of,
    place_rows,
    transaction_rows,
)

NOW_MS = 1_800_000_000_000
HELD = PartitionState(
    "orders", 1, 0, 40, 100, 100, 100, 1, 2,
    (OpenTransaction(7, 0, 40, NOW_MS - 20_000), OpenTransaction(8, 0, 60, NOW_MS - 5_000)),
)  # fmt: skip
FREE = PartitionState("clicks", 0, 0, 9, 9, 9, 100, 1, 1, ())


def identity(
    name: str, producer_id: int, age_ms: int, timeout_ms: int, *places: tuple[str, int]
) -> TransactionalIdState:
    return TransactionalIdState(name, producer_id, 0, "Ongoing", age_ms, timeout_ms, places)


IDS = (
    identity("pay", 7, 20_000, 60_000, ("orders", 1), ("clicks", 0)),
    identity("ship", 8, 5_000, 10_000, ("orders", 1)),
    identity("new", 9, 100, 60_000),
)


def group(name: str, members: int, *lags: int, topic: str = "clicks") -> GroupState:
    rows = tuple(CommittedOffsetState(topic, 0 if topic == "clicks" else 1, 9, lag) for lag in lags)
    return GroupState(name, "Stable" if members else "Empty", members, rows, 0)


GROUPS = (
    group("archive", 1, 3, 4),
    group("waits", 0, 1, topic="orders"),
    group("slow", 2, 900),
    group("fresh", 3),
)
BROKER = views.Broker(views.Observed((HELD, FREE), IDS, GROUPS, {}, NOW_MS))


@pytest.mark.parametrize(
    ("column", "descending", "names"),
    [
        ("attention", False, "waits slow archive fresh"),
        ("attention", True, "fresh archive slow waits"),
        ("name", False, "archive fresh slow waits"),
        ("state", False, "waits slow archive fresh"),
        ("members", True, "fresh slow archive waits"),
        ("partitions", True, "archive waits slow fresh"),
        ("lag", True, "slow archive waits fresh"),
        ("lag", False, "fresh waits archive slow"),
    ],
)
def test_groups_in_an_order(column: str, descending: bool, names: str) -> None:
    rows = in_order(group_rows(BROKER), GROUP_COLUMNS[column], descending=descending)
    assert [row.name for row in rows] == names.split()


def test_rows_of_transactions() -> None:
    rows = transaction_rows(BROKER)
    assert [row[:7] for row in rows] == [
        (0, "pay", "Ongoing", 20_000, 40_000, 2, 60),
        (1, "ship", "Ongoing", 5_000, 5_000, 1, 0),
        (2, "new", "Ongoing", 100, 59_900, 0, 0),
    ]


def test_a_young_transaction_that_holds_readers_back_is_listed_before_older_ones() -> None:
    old = tuple(identity(f"till-{number}", 100 + number, 90_000, 600_000) for number in range(20))
    broker = views.Broker(views.Observed((HELD, FREE), (*old, *IDS), (), {}, NOW_MS))
    rows = transaction_rows(broker)
    assert [row.name for row in rows[:2]] == ["till-0", "till-1"]
    assert [row.name for row in lists.holding_first(rows)[:2]] == ["pay", "till-0"]


def test_a_transaction_that_no_coordinator_knows_has_no_end() -> None:
    """A hanging transaction has no timeout, so its remaining time is infinite."""
    broker = views.Broker(views.Observed((HELD,), (), (), {}, NOW_MS))
    (first, _) = transaction_rows(broker)
    assert (first.name, first.state, first.ends_in_ms) == ("producer 7", "", math.inf)
    assert [row.name for row in in_order(
        transaction_rows(broker), TRANSACTION_COLUMNS["ends_in_ms"], descending=True
    )] == ["producer 7", "producer 8"]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "descending", "names"),
    [
        ("age_ms", True, "pay ship new"),
        ("ends_in_ms", False, "ship pay new"),
        ("name", False, "new pay ship"),
        ("state", False, "pay ship new"),
        ("partitions", True, "pay ship new"),
        ("held", True, "pay ship new"),
    ],
)
def test_transactions_in_an_order(column: str, descending: bool, names: str) -> None:
    rows = in_order(transaction_rows(BROKER), TRANSACTION_COLUMNS[column], descending=descending)
    assert [row.name for row in rows] == names.split()


def test_the_partitions_of_a_transaction() -> None:
    rows = place_rows(BROKER, transaction_rows(BROKER)[0].transaction)
    assert rows == [PlaceRow("orders", 1, 40, 60, False), PlaceRow("clicks", 0, None, 0, False)]
    for column, first in (("name", "clicks"), ("first_offset", "clicks"), ("attention", "orders")):
        ordered = in_order(rows, PLACE_COLUMNS[column], descending=False)
        assert ordered[0].topic == first


@pytest.mark.parametrize("columns", [
    value for name, value in vars(lists).items() if name.endswith("_COLUMNS")
])  # fmt: skip
def test_each_list_begins_with_its_own_order(columns: Any) -> None:
    assert next(iter(columns)) == "attention"


@pytest.mark.parametrize(
    ("first", "count", "rows", "begins"),
    [(0, 2, [0, 1], 0), (3, 9, [3, 4], 3), (9, 9, [4], 4), (-1, 1, [0], 0)],
)
def test_a_part_of_a_list(first: int, count: int, rows: list[int], begins: int) -> None:
    part = part_of(range(5), first, count)
    assert (list(part.rows), part.first, part.total) == (rows, begins, 5)


def test_a_part_is_bounded_and_may_be_empty() -> None:
    assert len(part_of(range(10_000), 17, 10_000).rows) == lists.MOST_ROWS
    assert part_of([], 7, 9) == lists.Part([], 0, 0)


def test_of_ten_thousand_groups_the_stuck_one_is_the_first() -> None:
    many = tuple(group(f"group-{number:05}", 1, number) for number in range(10_000))
    broker = views.Broker(views.Observed((HELD, FREE), IDS, (*many, GROUPS[1]), {}, NOW_MS))
    rows = group_rows(broker)
    assert [row.name for row in rows[:2]] == ["waits", "group-09999"]
    last = in_order(rows, GROUP_COLUMNS["name"], descending=True)
    assert part_of(last, 9_999, 50).rows[-1].name == "group-00000"
