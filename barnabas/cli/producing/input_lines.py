"""The lines of files and of standard input."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.cli.errors import CommandError
from barnabas.cli.waiting import LOOK_EVERY_S

READ_BYTES = 1 << 16
STANDARD_INPUT = "-"


class InputFile(NamedTuple):
    """A file, or standard input. name: the file's name in errors; empty for standard input."""

    name: str
    lines: Iterator[bytes]

    def place(self, number: int) -> str:
        """The place of a line, as error messages name it."""
        return f"{self.name} line {number}" if self.name else f"line {number}"


def open_input(path: str, look: Callable[[], None]) -> InputFile:
    """The lines of a file or of standard input, without their line ends.

    Takes: look, a callback that runs while no line of standard input is available.
    """
    if path == STANDARD_INPUT:
        return InputFile("", _standard_input(look))
    return InputFile(path, _file(path))


def _file(path: str) -> Iterator[bytes]:
    """The lines of a file. Raises: CommandError."""
    try:
        with open(path, "rb") as file:
            for line in file:
                yield line.removesuffix(b"\n")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror or error}") from error


def _standard_input(look: Callable[[], None]) -> Iterator[bytes]:
    """The lines of standard input. `look` runs while no line is available.

    The descriptor is read without Python's buffer, since select does not report buffered data.
    """
    try:
        descriptor = sys.stdin.fileno()
    except OSError:  # standard input is not a file, since a program has replaced the stream
        for line in sys.stdin.buffer:
            yield line.removesuffix(b"\n")
        return
    rest: list[bytes] = []
    while True:
        while not select.select([descriptor], [], [], LOOK_EVERY_S)[0]:
            look()
        data = os.read(descriptor, READ_BYTES)
        if not data:
            break
        first, *others = data.split(b"\n")
        rest.append(first)
        for line in others:
            yield b"".join(rest)
            rest = [line]
    if any(rest):
        yield b"".join(rest)
