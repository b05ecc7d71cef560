"""If the reader of the log stops reading, a caller that logs a line is not blocked."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from pathlib import Path

import pytest

from barnabas.process.log_output import LogOutput


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


def test_lines_are_written_where_a_handler_has_to_have_a_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From Python 3.13 on, `Handler.handle` enters the handler's lock, which may not be None."""

    def handle(self: logging.Handler, record: logging.LogRecord) -> bool:
        with self.lock:  # type: ignore[union-attr]
            self.emit(record)
        return True

    monkeypatch.setattr(logging.Handler, "handle", handle)
    reading, writing = os.pipe()
    output = LogOutput(writing)
    output.handle(logging.LogRecord("barnabas", logging.INFO, "", 0, "a line", (), None))
    assert output.finish()
    os.close(writing)
    with open(reading, "rb") as lines:
        assert lines.read() == b"a line\n"


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


def test_a_renamed_file_is_left_between_two_lines(tmp_path: Path) -> None:
    """logrotate renames the file, and asks for a new one."""
    path, renamed = tmp_path / "broker.log", tmp_path / "broker.log.1"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    output = LogOutput(descriptor)
    said(output, "before")
    path.rename(renamed)
    said(output, "renamed")
    output.reopen()
    said(output, "after")
    assert output.finish()
    os.close(descriptor)
    assert renamed.read_text() == "before\nrenamed\n"
    assert path.read_text() == "after\n"
    assert path.stat().st_mode & 0o777 == 0o640 & ~_umask()


def test_a_file_that_cannot_be_opened_again_stays_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    descriptor = os.open(directory / "broker.log", os.O_RDWR | os.O_APPEND | os.O_CREAT)
    output = LogOutput(descriptor)
    (directory / "broker.log").unlink()
    directory.rmdir()
    output.reopen()
    said(output, "after")
    assert output.finish()
    assert "cannot be opened again: No such file or directory" in caplog.text
    assert os.pread(descriptor, 100, 0) == b"after\n"
    os.close(descriptor)


def test_a_pipe_is_not_opened_again() -> None:
    reading, writing = os.pipe()
    output = LogOutput(writing)
    output.reopen()
    said(output, "a line")
    assert output.finish()
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert pipe.read() == b"a line\n"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
