"""How many examples a property test draws."""

from __future__ import annotations

import os

ON_CI = 3


def drawn(number: int) -> int:
    """The number of examples to draw: `number`, or a third of it on CI.

    CI draws the same examples in each run (see tests/conftest.py), so most of its runs only repeat
    earlier examples. A developer's machine and the weekly run draw new examples, and the full
    number.
    """
    return -(-number // ON_CI) if os.environ.get("CI") else number
