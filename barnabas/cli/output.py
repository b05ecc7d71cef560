"""The output of commands: tables for people, with colours on a terminal only; JSON for programs.

On a terminal, control characters in texts from outside are shown as escapes (`terminal.py`).
A command prints one JSON document (`consume` prints one per line). Fields have Kafka's names. Times
are milliseconds since 1970, and their names end in `_ms`.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from barnabas.terminal import raw_stream, visible_text
from barnabas.texts import time_text

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 100_000  # so large that lines in a pipe are never wrapped
STYLES = {"good": "green", "bad": "bold red", "warning": "yellow", "name": "cyan", "dim": "dim"}


class Column(NamedTuple):
    """A column of a table: its field, its title, and its style."""

    key: str
    title: str
    style: str = ""


class Output:
    """The output of a command. as_json: whether to print JSON for a program."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """Standard output."""
        if self._console is None:
            self._console = _console(sys.stdout)
        return self._console

    def data(self, value: Any) -> None:
        """Print one JSON document."""
        from barnabas.json_text import json_text

        indent = 2 if sys.stdout.isatty() else None
        sys.stdout.write(json_text(value, indent) + "\n")

    def table(
        self, rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], empty: str = ""
    ) -> None:
        """Print rows as a table; if there are none, print the line `empty` on standard error."""
        rows = list(rows)
        if not rows:
            if empty:
                note(empty)
            return
        if _is_plain(sys.stdout):
            sys.stdout.write("".join(f"{line}\n" for line in plain_table(rows, columns)))
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for column in columns:
            is_number = _has_numbers(rows, column)
            table.add_column(
                column.title,
                justify="right" if is_number else "left",
                style=STYLES.get(column.style, column.style),
                no_wrap=is_number,
                overflow="fold",
            )
        for row in rows:
            texts = (cell(row.get(column.key), column.key) for column in columns)
            table.add_row(*(Text(visible_text(text, is_line=True)) for text in texts))
        self.console.print(table)

    def heading(self, text: str) -> None:
        """Print a heading."""
        if _is_plain(sys.stdout):
            sys.stdout.write(f"{text}\n")
            return
        from rich.text import Text

        self.console.print(Text(visible_text(text), style="bold"))

    def line(self, text: str, style: str = "") -> None:
        """Print a line."""
        if _is_plain(sys.stdout):
            sys.stdout.write(f"{text}\n")
            return
        from rich.text import Text

        text = visible_text(text)
        self.console.print(Text(text, style=STYLES.get(style, style)), soft_wrap=True)

    def fields(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Print names and values, one pair per line."""
        pairs = [(name, cell(value, name)) for name, value in pairs]
        if not _is_plain(sys.stdout):
            pairs = [(name, visible_text(value, is_line=True)) for name, value in pairs]
        width = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            self.line(f"  {name:<{width}}  {value}")


def _is_plain(stream: TextIO) -> bool:
    """Whether to print plain text to a stream, which avoids the slow import of rich."""
    return not stream.isatty() and "FORCE_COLOR" not in os.environ


def _has_numbers(rows: Sequence[Mapping[str, Any]], column: Column) -> bool:
    """Whether a column has numbers and nothing else, so that it is aligned to the right."""
    values = [row.get(column.key) for row in rows]
    return all(isinstance(value, int) or value is None for value in values) and any(
        type(value) is int for value in values
    )


def plain_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> list[str]:
    """The lines of a table as rich draws it in a pipe."""
    drawn = []
    for column in columns:
        texts = [column.title, *(cell(row.get(column.key), column.key) for row in rows)]
        width = max(map(_width, texts))
        padding = [" " * (width - _width(text)) for text in texts]
        if _has_numbers(rows, column):
            drawn.append([space + text for space, text in zip(padding, texts, strict=True)])
        else:
            drawn.append([text + space for space, text in zip(padding, texts, strict=True)])
    return ["  ".join(parts).rstrip() for parts in zip(*drawn, strict=True)]


def _width(text: str) -> int:
    """The number of terminal columns that a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )


def _console(stream: TextIO) -> Console:
    """rich's console for a stream, without colours and line breaks in a pipe. What it prints has
    passed `visible_text`, since rich writes escape sequences of its own.
    """
    from rich.console import Console

    is_pipe = not stream.isatty()
    return Console(
        file=raw_stream(stream),
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=is_pipe,
        width=PIPE_WIDTH if is_pipe else None,
    )


def note(text: str, style: str = "dim") -> None:
    """Print a line on standard error, so that it is separate from the command's result."""
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
        return
    from rich.text import Text

    text = visible_text(text)
    _console(sys.stderr).print(Text(text, style=STYLES.get(style, style)), soft_wrap=True)


def cell(value: Any, key: str = "") -> str:
    """A value as text for people."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith(("_time_ms", "timestamp_ms")):
        return time_text(value)
    if isinstance(value, list | tuple | set):
        return ", ".join(cell(part) for part in value) or "-"
    return str(value)


class Progress:
    """A progress bar on standard error. It is shown only if standard error is a terminal."""

    def __init__(self, advance: Any = None) -> None:
        self._advance = advance

    def advance(self, count: int = 1) -> None:
        """Advance the bar."""
        if self._advance is not None:
            self._advance(count)


@contextmanager
def progress(label: str, total: int | None, *, hidden: bool = False) -> Iterator[Progress]:
    """A progress bar while the block runs; it is removed at the end.

    Takes: total, None if it is unknown; hidden, whether not to show the bar, as when the output
           goes to the same terminal.
    """
    if hidden or not sys.stderr.isatty():
        yield Progress()
        return
    from rich import progress as bars

    shown = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn() if total is not None else bars.TimeElapsedColumn(),
        console=_console(sys.stderr),
        transient=True,
    )
    with shown:
        task = shown.add_task(label, total=total)
        yield Progress(lambda count: shown.advance(task, count))
