"""How many examples a property test draws."""

from __future__ import annotations

import os

ON_CI = 3


def drawn(number: int) -> int:
    """Gives: `number`, or a third of it where `CI` is in the environment.

    CI draws the same examples at each run (tests/conftest.py), so most of them repeat earlier runs;
    a developer's machine and the weekly run draw new examples, and the full number.
    """
    return -(-number // ON_CI) if os.environ.get("CI") else number
