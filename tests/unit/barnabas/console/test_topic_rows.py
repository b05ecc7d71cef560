"""The list of all topics: its rows, and their order."""

from __future__ import annotations

import math

import pytest

from barnabas.broker.observe import OpenTransaction, PartitionState
from barnabas.console import views
from barnabas.console.history import Rates
from barnabas.console.topic_rows import TopicRow, in_order, known, topic_rows


def partition(topic: str, index: int, *, start: int, stable: int, end: int) -> PartitionState:
    open_ones = (OpenTransaction(7, 0, stable, 1),) if stable < end else ()
    return PartitionState(topic, index, start, stable, end, end, 100, 1, 1, open_ones)


def test_a_row_sums_up_its_partitions() -> None:
    rows = (
        partition("orders", 0, start=10, stable=20, end=25),
        partition("a", 0, start=0, stable=7, end=7),
        partition("orders", 1, start=0, stable=5, end=5),
    )
    broker = views.Broker(views.Observed(rows, (), (), {}, 100_000))
    assert topic_rows(broker) == {
        "orders": TopicRow(0, "orders", 2, 20, 200, 5, 1),
        "a": TopicRow(1, "a", 1, 7, 100, 0, 0),
    }


ROWS = [
    TopicRow(0, "b", 1, 5, 10, 0, 0),
    TopicRow(1, "a", 9, 5, 30, 2, 0),
    TopicRow(2, "c", 4, 7, 20, 0, 1),
]
RATES = {"a": Rates(1.0, 50.0), "b": Rates(math.nan, math.nan), "c": Rates(3.0, 0.0)}


@pytest.mark.parametrize(
    ("column", "descending", "names"),
    [
        ("attention", False, "bac"),
        ("name", False, "abc"),
        ("name", True, "cba"),
        ("partitions", True, "acb"),
        ("records", True, "cab"),
        ("records", False, "abc"),
        ("size_bytes", True, "acb"),
        ("held", True, "abc"),
        ("stuck", True, "cab"),
        ("records_rate", True, "cab"),
        ("bytes_rate", True, "acb"),
        ("bytes_rate", False, "bca"),
    ],
)
def test_the_order_of_the_list(column: str, descending: bool, names: str) -> None:
    rows = in_order(ROWS, column, RATES, descending=descending)
    assert "".join(row.name for row in rows) == names


def test_json_has_no_nan() -> None:
    assert (known(math.nan), known(1.23456)) == (None, 1.235)
