"""A log entry in the readable format is a single line, no matter what text a client sends."""

from __future__ import annotations

import logging
import sys

import pytest

from barnabas.broker.observation.log_lines import (
    INTERVAL_MS,
    LONGEST_MESSAGE,
    OTHERS,
    BoundedLines,
    LineFormatter,
)


def written(text: str, *arguments: object) -> str:
    record = logging.LogRecord("barnabas.x", logging.INFO, "", 0, text, arguments, None)
    return LineFormatter().format(record)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("alice", "alice"),
        ("Zoë, 雪", "Zoë, 雪"),
        ("al\n2026-01-01 INFO x: forged", r"al\n2026-01-01 INFO x: forged"),
        ("al\r\x1b[2Jx", r"al\r\x1b[2Jx"),
        ("a\u2028b\u202ec", r"a\u2028b\u202ec"),
        ("\ud800", r"\ud800"),
    ],
)
def test_unprintable_characters_are_escaped(said: str, shown: str) -> None:
    assert written("there is no user '%s'", said).endswith(
        f" INFO barnabas.x: there is no user '{shown}'"
    )


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("out of order")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "it failed", None, sys.exc_info())
    lines = LineFormatter().format(record).splitlines()
    assert lines[0].endswith("it failed")
    assert lines[-1] == "ValueError: out of order"


@pytest.mark.parametrize("length", [LONGEST_MESSAGE, LONGEST_MESSAGE + 1, 100_000])
def test_only_the_beginning_of_a_very_long_message_is_written(length: int) -> None:
    line = written("%s", "\n" * length)
    shown = line.removeprefix(line[: line.index("\\n")])
    more = length - LONGEST_MESSAGE
    assert shown == "\\n" * LONGEST_MESSAGE + (f"... and {more} more characters" if more else "")


# --- how many lines -----------------------------------------------------------------------------


def test_lines_in_a_minute_are_bounded_for_each_kind_and_peer() -> None:
    lines = BoundedLines(2)
    assert lines.deadline_ms is None
    written = [lines.may_write("login", "a", now_ms) for now_ms in range(5)]
    assert written == [True, True, False, False, False]
    assert lines.may_write("login", "b", 10) and lines.may_write("broken", "a", 20)
    assert lines.deadline_ms == INTERVAL_MS
    assert lines.left_out(INTERVAL_MS - 1) == []
    assert not lines.may_write("login", "a", INTERVAL_MS), (
        "the number of omitted lines must be reported first"
    )
    assert lines.left_out(INTERVAL_MS) == [("login", "a", 4)]
    assert lines.left_out(INTERVAL_MS) == []
    assert lines.deadline_ms == INTERVAL_MS + 10
    assert lines.left_out(INTERVAL_MS + 20) == [], "no line of these two was omitted"
    assert lines.deadline_ms is None
    assert lines.may_write("login", "a", INTERVAL_MS + 30)


def test_after_a_minute_without_omitted_lines_counting_begins_again() -> None:
    lines = BoundedLines(1)
    assert [lines.may_write("login", "a", 0), lines.may_write("login", "a", INTERVAL_MS)] == [
        True, True,
    ]  # fmt: skip
    assert not lines.may_write("login", "a", INTERVAL_MS + 1)
    assert lines.deadline_ms == 2 * INTERVAL_MS


def test_lines_and_memory_are_bounded_for_any_number_of_peers() -> None:
    """Ten peers are counted separately. All others share one count, which allows three lines."""
    lines = BoundedLines(3, most_peers=10)
    written = [lines.may_write("login", str(number), 0) for number in range(1000)]
    assert sum(written) == 13
    assert lines.left_out(INTERVAL_MS) == [("login", OTHERS, 987)]
