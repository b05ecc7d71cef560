"""A line of the log for people is one line, whatever a client says in it."""

from __future__ import annotations

import logging
import sys

import pytest

from barnabas.broker.log_lines import LONGEST_MESSAGE, LineFormatter


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
def test_what_cannot_be_printed_is_escaped(said: str, shown: str) -> None:
    assert written("there is no user '%s'", said).endswith(
        f" INFO barnabas.x: there is no user '{shown}'"
    )


def test_an_exception_has_its_lines() -> None:
    try:
        raise ValueError("out of order")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "it failed", None, sys.exc_info())
    lines = LineFormatter().format(record).splitlines()
    assert lines[0].endswith("it failed")
    assert lines[-1] == "ValueError: out of order"


@pytest.mark.parametrize("length", [LONGEST_MESSAGE, LONGEST_MESSAGE + 1, 100_000])
def test_of_what_is_very_long_the_beginning_is_written(length: int) -> None:
    line = written("%s", "\n" * length)
    shown = line.removeprefix(line[: line.index("\\n")])
    more = length - LONGEST_MESSAGE
    assert shown == "\\n" * LONGEST_MESSAGE + (f"... and {more} letters more" if more else "")
