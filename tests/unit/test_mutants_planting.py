"""A mutant can be planted into loaded functions, no matter which generation of the garbage
collector contains them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from mutants.mutations import Mutant
from mutants.planting import Functions

from barnabas.storage.log import retention

ROOT = Path(__file__).parents[2]
MODULE, FUNCTION = "storage/log/retention.py", "_beyond_size"


@pytest.fixture
def planted_again() -> Iterator[None]:
    """Restore the function's code and the collector's frozen state after the test."""
    code = retention._beyond_size.__code__
    yield
    retention._beyond_size.__code__ = code
    gc.freeze()


@pytest.mark.usefixtures("planted_again")
def test_a_function_that_was_frozen_gets_the_changed_code() -> None:
    gc.freeze()
    mutant = Mutant(MODULE, FUNCTION, 1, 1, "", "", "", "")
    source = (ROOT / MODULE).read_text(encoding="utf-8")
    kept = "    if retention_bytes < 0:\n        return 0\n"
    assert source.count(kept) == 1
    changed = source.replace(kept, kept.replace("return 0", "return 7"))
    Functions(ROOT, [MODULE]).plant(mutant, changed)
    assert retention._beyond_size([], -1, 1) == 7  # type: ignore[arg-type]
