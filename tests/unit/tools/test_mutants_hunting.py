"""The tests of a mutant's own module run first, then the quick ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mutants.hunting import Coverage, _tests_of
from mutants.mutations import Mutant

QUICK = "tests/unit/broker/test_core.py::test_a"
OWN = "tests/unit/storage/log/test_log.py::test_b"
OTHER = "tests/unit/barnabas/storage/log/test_log.py::test_c"


def test_the_tests_of_the_own_module_are_first() -> None:
    mutant = Mutant("storage/log/log.py", "Log.read", 5, 1, "", "", "", "")
    module: Any = SimpleNamespace(lines_of=lambda mutant: range(5, 6))
    coverage = Coverage(
        {mutant.module: {5: (OTHER, OWN, QUICK)}}, {OTHER: 0.2, OWN: 0.5, QUICK: 0.1}
    )
    assert _tests_of(mutant, module, coverage, None, 60) == (OWN, QUICK, OTHER)
    assert _tests_of(mutant, module, coverage, OTHER, 60) == (OTHER, OWN, QUICK)
    assert _tests_of(mutant, module, coverage, None, 0.65) == (OWN, QUICK)
