"""How a group's lag has changed, after the status that `barnabas.group_lag` gives."""

from __future__ import annotations

import pytest

from barnabas.cli.group_rows import with_trend


@pytest.mark.parametrize(
    ("text", "change", "said"),
    [
        ("9 behind", None, "9 behind"),
        ("9 behind", 4, "9 behind, and grew by 4 in 5 s"),
        ("9 behind", -2000, "9 behind, and shrank by 2,000 in 5 s"),
        ("9 behind", 0, "9 behind, unchanged for 5 s"),
        (
            "nothing committed: up to 9 wait",
            0,
            "nothing committed: up to 9 wait, unchanged for 5 s",
        ),
        ("up to date", -4, "up to date"),
        ("batch numbers of a Spark sink: no lag", 0, "batch numbers of a Spark sink: no lag"),
    ],
)
def test_a_trend_is_told_of_a_group_that_is_behind(
    text: str, change: int | None, said: str
) -> None:
    assert with_trend(text, change, 5.0) == said
