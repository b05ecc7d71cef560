"""A mutant can be planted into loaded functions, no matter which generation of the garbage
collector contains them.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator

import pytest
from helpers.places import ROOT
from mutants.planting import Functions

from barnabas.storage.log import retention

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
    source = (ROOT / MODULE).read_text(encoding="utf-8")
    changed = re.sub(r"\breturn 0\b", "return 7", source)
    assert changed != source
    Functions(ROOT, [MODULE]).plant(MODULE, FUNCTION, changed)
    assert retention._beyond_size([], -1, 1) == 7  # type: ignore[arg-type]


def test_functions_of_annexes_are_found() -> None:
    """Annexes are in barnabas/, the broker's folders beside it."""
    module, function = "barnabas/replication/leading.py", "Leading.on_closed"
    source = (ROOT / module).read_text(encoding="utf-8")
    functions = Functions(ROOT, [module])
    gc.freeze()
    functions.plant(module, function, source)
