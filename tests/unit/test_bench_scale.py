"""bench/scale.py does what it says: of every case brokers of all sizes do the same work, and the
table compares them with the smallest.
"""

from __future__ import annotations

import pytest

from bench import scale


@pytest.mark.parametrize("case", scale.CASES)
def test_every_case_has_figures_for_each_size(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "RECORDS", 2)
    monkeypatch.setattr(scale, "TRANSACTIONS", 1)
    monkeypatch.setattr(scale, "ROUNDS", 2)
    monkeypatch.setattr(scale, "OFFSETS_A_GROUP", 2)
    results = scale.measured(case, (1, 3))
    assert [result.size for result in results] == [1, 3]
    assert all(min(result.best) > 0 and result.longest_ms > 0 for result in results)


def test_the_table_compares_with_the_smallest_size_of_the_case() -> None:
    results = [
        scale.Result("partitions", 1, [scale.Work(10, 20, 30), scale.Work(12, 18, 40)], 0.5),
        scale.Result("partitions", 9, [scale.Work(11, 9, 30)], 0.75),
    ]
    *_, smaller, larger = scale.table(results).splitlines()
    assert smaller == "| partitions | 1 | 10 (+0 %) | 18 (+0 %) | 30 (+0 %) | 0.5 |"
    assert larger == "| partitions | 9 | 11 (+10 %) | 9 (-50 %) | 30 (+0 %) | 0.8 |"
