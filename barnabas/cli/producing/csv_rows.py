"""Rows of CSV as JSON objects: RFC 4180, with the columns' names in the first row.

    type     a cell
    -------  ---------------------------------------------------------------------------------
    string   its text
    int      a whole number
    float    a number
    bool     true or false in any case, or 1 or 0
    json     JSON, such as [1, 2]

A cell without text is null, except in columns of type string. The type of a column is set by an
option, or else by the field of that name in the values' schema; otherwise it is string.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from barnabas.cli.errors import CommandError
from barnabas.cli.producing.input_lines import InputFile
from barnabas.json_text import Digits, parse_json

TYPES = ("string", "int", "float", "bool", "json")
CELL_LETTERS_MOST = 100 * 1024 * 1024
_INT = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")  # of JSON
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


class CsvOptions(NamedTuple):
    """How to read CSV. columns: None if the first row names them."""

    delimiter: str = ","
    columns: Sequence[str] | None = None
    types: Mapping[str, str] = {}
    null: str | None = None


class Row(NamedTuple):
    """A row of CSV. cells: the text of each column, or None for null."""

    place: str
    cells: Mapping[str, str | None]


def rows(file: InputFile, options: CsvOptions) -> Iterator[Row]:
    """The rows of a file. Raises: CommandError, which names the line."""
    csv.field_size_limit(CELL_LETTERS_MOST)
    reader = csv.reader(_texts(file), delimiter=options.delimiter, strict=True)
    columns = options.columns
    at = 1
    while True:
        place = file.place(at)
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise CommandError(
                f"{place} is no CSV: {error}; a cell with {options.delimiter!r}, a quote or a line "
                'end is written in quotes, and a quote within it twice: "a ""b"", c"'
            ) from error
        if cells is None:
            return
        at = reader.line_num + 1
        if columns is None:
            columns = _checked_columns(place, cells, options)
        elif cells:
            if len(cells) != len(columns):
                raise CommandError(
                    f"{place} has {len(cells)} cells, and there are {len(columns)} columns: "
                    f"{', '.join(columns)}; is {options.delimiter!r} the delimiter "
                    "(--csv-delimiter)?"
                )
            pairs = zip(columns, cells, strict=True)
            yield Row(place, {name: None if text == options.null else text for name, text in pairs})


def typed(name: str, text: str | None, kind: str, place: str) -> Any:
    """A cell as a JSON value. Raises: CommandError, which names the line and the column."""
    if text is None or (not text and kind != "string"):
        return None
    if kind == "string":
        return text
    stripped = text.strip()
    value: Any = None
    if kind == "int" and _INT.fullmatch(stripped):
        value = int(stripped)
    elif kind == "bool":
        value = _BOOLS.get(stripped.lower())
    elif kind in ("float", "json"):
        try:
            value = _number(stripped) if kind == "float" else parse_json(stripped)
        except (ValueError, RecursionError):
            pass
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        if kind == "json" and stripped == "null":
            return None
    if value is None:
        raise CommandError(
            f"{place}, column {name!r}: {text!r} is no {kind}; see --csv-type {name}=TYPE and "
            "--csv-null"
        )
    return value


def _number(text: str) -> float:
    """A number, with the digits of the cell if a float has others. Raises: ValueError."""
    number = float(text)
    is_exact = not math.isfinite(number) or Decimal(text) == Decimal(repr(number))
    return number if is_exact or not _NUMBER.fullmatch(text) else Digits(text)


def _texts(file: InputFile) -> Iterator[str]:
    """The lines as text. They keep their line ends, since a cell may contain line ends."""
    for number, line in enumerate(file.lines, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8") + "\n"
        except UnicodeDecodeError as error:
            raise CommandError(
                f"{file.place(number)} is not UTF-8: byte {line[error.start]:#04x} at position "
                f"{error.start + 1}; `iconv -f latin1 -t utf-8` converts a file"
            ) from error


def _checked_columns(place: str, names: Sequence[str], options: CsvOptions) -> Sequence[str]:
    """The column names from the first row, after checks. Raises: CommandError."""
    if not any(names):
        raise CommandError(f"{place} has no column names: add them, or pass --csv-columns")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CommandError(f"{place} has the column {twice!r} twice")
    for name in options.types:
        if name not in names:
            raise CommandError(
                f"--csv-type {name}: {place} has no such column: use one of {', '.join(names)}"
            )
    return names
