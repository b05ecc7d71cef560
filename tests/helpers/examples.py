"""How many examples a property test draws."""

from __future__ import annotations

import os

ON_CI = 3


def drawn(number: int) -> int:
    """Gives: `number`, and a third of it where `CI` is in the environment.

    CI draws the same examples at each run (tests/conftest.py), so most of them tell nothing new;
    others come on a developer's machine and in the weekly run, which draw all.
    """
    return -(-number // ON_CI) if os.environ.get("CI") else number
