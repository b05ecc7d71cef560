"""If the reader of the log stops reading, a caller that logs a line is not blocked."""

from __future__ import annotations

import contextlib
import logging
import os
import re

import pytest

from barnabas.broker.rim.log_output import LogOutput


def said(output: LogOutput, text: str) -> None:
    output.emit(logging.LogRecord("barnabas", logging.INFO, "", 0, text, None, None))


def test_finish_writes_all_lines_in_order() -> None:
    reading, writing = os.pipe()
    output = LogOutput(writing)
    for number in range(100):
        said(output, f"line {number}")
    assert output.finish()
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        assert pipe.read().splitlines() == [f"line {number}" for number in range(100)]


def test_a_full_pipe_does_not_block_callers_and_dropped_lines_are_counted() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filling = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filling += os.write(writing, b"x" * 512)
    os.set_blocking(writing, True)
    output = LogOutput(writing, most_waiting=10)
    for number in range(100):
        said(output, f"line {number}")
    with open(reading, "rb") as pipe:
        pipe.read(filling)
        first = [pipe.readline() for _ in range(10)]  # one or two more lines are in the pipe
        # the number of dropped lines is reported once, with the first of these lines
        for number in range(3):
            said(output, f"later {number}")
        assert output.finish(30)
        os.close(writing)
        rest = pipe.read().splitlines(keepends=True)
    assert first == [b"line %d\n" % number for number in range(10)]
    assert rest[-3:] == [b"later %d\n" % number for number in range(3)]
    said_of_dropped = re.compile(
        rb"(\d+) lines of the log were dropped here, since standard error was not read\n"
    )
    counts = [int(match[1]) for line in rest if (match := said_of_dropped.fullmatch(line))]
    taken = [line for line in rest if not said_of_dropped.fullmatch(line)]
    assert counts and len(first) + len(taken[:-3]) + sum(counts) == 100


@pytest.mark.parametrize("closed", [True, False])
def test_a_closed_pipe_or_a_full_disk_does_not_stop_the_log_output(closed: bool) -> None:
    if closed:
        reading, writing = os.pipe()
        os.close(reading)
    else:
        writing = os.open("/dev/full", os.O_WRONLY)
    output = LogOutput(writing)
    said(output, "nobody hears it")
    assert output.finish(30)
    os.close(writing)
