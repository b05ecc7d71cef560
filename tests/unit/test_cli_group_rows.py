"""The text that describes a group's lag."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.group_rows import status


def _row(
    *partitions: dict[str, Any], state: str = "Stable", change: int | None = None
) -> dict[str, Any]:
    """A group as the console describes it, with the given partitions."""
    return {
        "state": state,
        "members": [{}] if state == "Stable" else [],
        "lag": sum(part["lag"] or 0 for part in partitions),
        "lag_change": change,
        "partitions": [{"held_back": 0, "micro_batch": False, **part} for part in partitions],
    }


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (_row({"lag": 0}), "up to date"),
        (_row({"lag": 6331}), "6,331 behind"),
        (_row({"lag": 6331}, state="Empty"), "6,331 behind, and no member continues"),
        (_row({"lag": 5, "held_back": 5}), "5 behind, held back by an open transaction"),
        (
            _row({"lag": 5, "held_back": 9}, {"lag": 7}),
            "12 behind, 5 of them held back by an open transaction",
        ),
        (_row({"lag": None, "micro_batch": True}), "batch numbers of a Spark sink: no lag"),
        (_row({"lag": None, "micro_batch": True}, {"lag": 3}), "3 behind"),
        (_row({"lag": 9}, change=4), "9 behind, and grew by 4 in 5 s"),
        (_row({"lag": 9}, change=-2000), "9 behind, and shrank by 2,000 in 5 s"),
        (_row({"lag": 9}, change=0), "9 behind, unchanged for 5 s"),
        (_row({"lag": 0}, change=-4), "up to date"),
        (_row(), "no committed offsets yet"),
        (_row(state="Empty"), "no members, no committed offsets"),
    ],
)
def test_what_is_true_of_a_groups_lag(row: dict[str, Any], said: str) -> None:
    assert status(row, 5.0) == said
