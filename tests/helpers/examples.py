"""How many examples a property test draws."""

from __future__ import annotations

import os

ON_CI = 3


def drawn(number: int) -> int:
    """The number of examples to draw: `number`, or on CI a third of it.

    CI draws the same examples in each run (tests/conftest.py), so most runs repeat earlier ones;
    a developer's machine and the weekly run draw new examples, and the full number.
    """
    return -(-number // ON_CI) if os.environ.get("CI") else number
