"""bench/many_partitions.py works: every kind of request succeeds, and the table has a figure for
it.
"""

from __future__ import annotations

from bench.many_partitions import BEFORE, measured, table


def test_every_kind_of_work_has_a_figure() -> None:
    """`BEFORE` has the earlier figure of each kind of work, measured before the fast paths existed.
    A run must measure the same kinds, so that the two can be compared.
    """
    figures = measured(partitions=3, rounds=2)
    assert all(figure > 0 for figure in figures.values())
    assert figures.keys() == BEFORE.keys()


def test_each_table_row_shows_the_new_figure_and_the_earlier_one() -> None:
    (work, before), *_ = BEFORE.items()
    rows = table({work: 12.34, "something new": 5.0}).splitlines()
    assert [cell.strip() for cell in rows[2].strip("|").split("|")] == [
        work,
        "12.3",
        f"{before:.1f}",
    ]
    assert [cell.strip() for cell in rows[3].strip("|").split("|")] == ["something new", "5.0", "-"]
