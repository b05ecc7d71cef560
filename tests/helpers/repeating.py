"""Repeat a step until a condition holds. The number of steps is limited, so that a test of a broken
product fails instead of running for ever.
"""

from __future__ import annotations

from collections.abc import Callable

MOST_STEPS = 10_000


def repeat_until(
    is_so: Callable[[], object], step: Callable[[], object], most: int = MOST_STEPS
) -> int:
    """Take steps until the condition holds.

    Gives:  the number of steps.
    Raises: AssertionError if the condition does not hold after `most` steps.
    """
    for count in range(most):
        if is_so():
            return count
        step()
    assert is_so(), f"the condition does not hold after {most} steps"
    return most
