"""The checks of torture/publisher.py find planted faults: a loss, a duplicate, a torn batch, a mix
of two attempts, and a wrong order.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("pyarrow")

from torture.publisher import Row, judge, row_count

LOG = list(range(6))


def output() -> list[Row]:
    """The rows of all batches in the log, in a single partition."""
    numbered = [(batch, number) for batch in LOG for number in range(row_count(batch))]
    return [
        Row("t", 0, offset, batch, number, f"attempt-{batch}")
        for offset, (batch, number) in enumerate(numbered)
    ]


def of_batch(rows: list[Row], batch: int) -> list[Row]:
    return [row for row in rows if row.batch == batch]


def lose_a_batch(rows: list[Row]) -> None:
    rows[:] = [row for row in rows if row.batch != 3]


def show_an_attempt_beside_another(rows: list[Row]) -> None:
    rows += [
        row._replace(offset=1000 + row.offset, attempt="other") for row in of_batch(rows, LOG[-1])
    ]


def tear_a_batch(rows: list[Row]) -> None:
    rows.remove(of_batch(rows, 3)[0])


def double_a_row(rows: list[Row]) -> None:
    rows.append(of_batch(rows, LOG[-1])[0]._replace(offset=1000))


def bring_a_batch_late(rows: list[Row]) -> None:
    rows[:] = [row._replace(offset=1000 + row.offset) if row.batch == 3 else row for row in rows]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert all(row_count(batch) > 1 for batch in (3, LOG[-1]))
    assert not list(judge(output(), LOG, set()))
    assert not list(judge([row for row in output() if row.batch != 3], LOG, {3}))


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (lose_a_batch, "batch 3 is lost"),
        (show_an_attempt_beside_another, "batch 5 is there with rows of several attempts"),
        (tear_a_batch, "batch 3 is torn"),
        (double_a_row, "batch 5 has rows twice"),
        (bring_a_batch_late, "lies behind batch 5"),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[list[Row]], None], says: str) -> None:
    rows = output()
    plant(rows)
    findings = list(judge(rows, LOG, set()))
    assert findings and any(says in finding for finding in findings)
    assert len(findings) == 1 or says.startswith("lies behind")


def test_a_hole_in_the_commit_log_is_found() -> None:
    assert any("holes" in finding for finding in judge(output(), [0, 1, 3, 4, 5], set()))
