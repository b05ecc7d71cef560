"""The table of handwritten mutants names existing code and tests.

`make mutants-by-hand` plants each mutant and runs its tests, which takes a few seconds.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mutants import by_hand
from mutants.by_hand import HandMade

ROOT = Path(__file__).parents[2]
MUTANTS = by_hand.load()


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.says for mutant in MUTANTS])
def test_a_mutant_can_be_planted_and_its_tests_exist(mutant: HandMade) -> None:
    ast.parse(mutant.mutated())
    assert mutant.old != mutant.new
    assert mutant.found_by
    for test in mutant.found_by:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or f"def {name.partition('[')[0]}(" in text, f"{test} is not there"


def test_no_two_are_the_same() -> None:
    assert len({(mutant.file, mutant.mutated()) for mutant in MUTANTS}) == len(MUTANTS)
