"""A row of `by_hand.toml` is planted in the function that it names, and its tests are those that
its ids stand for.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants.by_hand import HandMade, names_of, outermost

TEXT = """\
class Ledger:
    @property
    def total(self):
        return self.sum  # of all rows

    @total.setter
    def total(self, value):
        def doubled(number):
            return number * 2

        self.sum = doubled(
            value,
        )


def total():
    return self.sum
"""


def mutant(function: str, old: str, new: str) -> HandMade:
    return HandMade("ledger.py", "", (), function, old=old, new=new)


def test_only_the_named_function_changes(tmp_path: Path) -> None:
    (tmp_path / "ledger.py").write_text(TEXT, encoding="utf-8")
    changed = mutant("total", "return self.sum", "return 0").mutated(tmp_path)
    assert changed == TEXT.removesuffix("self.sum\n") + "0\n"


def test_comments_and_the_layout_of_lines_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "ledger.py").write_text(TEXT, encoding="utf-8")
    changed = mutant("Ledger.total", "self.sum = doubled(value,)", "self.sum = 1")
    assert "        self.sum = 1\n" in changed.mutated(tmp_path)


def test_code_that_is_there_twice_or_not_at_all_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ledger.py").write_text(TEXT, encoding="utf-8")
    with pytest.raises(ValueError, match="2 times"):
        mutant("", "return self.sum", "return 0").mutated(tmp_path)
    with pytest.raises(ValueError, match=r"there is no Ledger\.count"):
        mutant("Ledger.count", "return", "pass").mutated(tmp_path)


def test_a_function_inside_a_function_changes_with_the_outer_one() -> None:
    assert outermost(TEXT, "Ledger.total.doubled") == "Ledger.total"
    assert outermost(TEXT, "Ledger.total") == "Ledger.total"
    assert outermost(TEXT, "") == ""


def test_an_id_stands_for_a_test_with_all_its_parameters_and_a_file_for_all_its_tests() -> None:
    collected = ["a.py::test_x[1]", "a.py::test_x[2]", "a.py::test_xy", "b.py::test_x"]
    assert list(names_of(["a.py::test_x"], collected)) == collected[:2]
    assert list(names_of(["a.py::test_x[2]", "b.py"], collected)) == [collected[1], collected[3]]
