"""The options of `produce` for its input."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from barnabas.cli.options import SettingType
from barnabas.cli.producing import input_values
from barnabas.cli.producing.csv_rows import TYPES, CsvOptions
from barnabas.cli.producing.input_lines import STANDARD_INPUT, open_input
from barnabas.cli.producing.input_values import CSV, JSONL, KINDS, LINES, RECORDS, TSV, FieldOptions
from barnabas.cli.records import InputValue

Command = TypeVar("Command", bound=Callable[..., Any])
_OF_SUFFIX = {".csv": CSV, ".tsv": TSV, ".jsonl": JSONL, ".ndjson": JSONL}
_DELIMITERS = {"\\t": "\t", "tab": "\t"}


class InputOptions(NamedTuple):
    """The input options of `produce`. kind: the input format; None if it depends on each file's
    name.
    """

    files: Sequence[str]
    kind: str | None
    fields: FieldOptions
    csv: CsvOptions

    def kind_of(self, file: str, as_json: bool) -> str:
        """The format in which a file is read. as_json: whether --json is given."""
        by_name = _OF_SUFFIX.get(os.path.splitext(file)[1].lower())
        if self.kind is not None:
            return self.kind
        if by_name in (CSV, TSV):
            return by_name
        return RECORDS if as_json else by_name or LINES

    def check(self, as_json: bool, key: str | None, key_separator: str | None) -> None:
        """Raise click.UsageError for options that have no effect on this input."""
        kinds = {self.kind_of(file, as_json) for file in self.files}
        if self.fields.is_used() and kinds & {LINES, RECORDS}:
            raise click.UsageError(
                "--key-field and other fields need --input jsonl, csv or tsv, and the input is "
                f"{', '.join(sorted(kinds))}"
            )
        if self.csv != CsvOptions() and not kinds & {CSV, TSV}:
            raise click.UsageError("--csv-… are for --input csv or tsv")
        if key_separator is not None and kinds - {LINES}:
            raise click.UsageError("--key-separator is for --input lines")
        if key is not None and self.fields.key is not None:
            raise click.UsageError("--key and --key-field both give the key: leave one out")
        if self.fields.value is not None and self.fields.omitted:
            raise click.UsageError(
                "--value-field is the whole value: leave out --omit-field or --value-field"
            )

    def values(
        self,
        as_json: bool,
        key: Any,
        key_separator: str | None,
        columns: Mapping[str, Mapping[str, str]],
        look: Callable[[], None],
    ) -> Iterator[InputValue]:
        """The records of all input files, in order. Takes: key, the key for records without a
        key.
        """
        for path in self.files:
            file = open_input(path, look)
            kind = self.kind_of(path, as_json)
            if kind == LINES:
                yield from input_values.of_lines(file, key, key_separator)
            elif kind == RECORDS:
                yield from input_values.of_records(file, key)
            elif kind == JSONL:
                yield from input_values.of_json(file, key, self.fields)
            else:
                csv = self.csv
                if kind == TSV and csv.delimiter == CsvOptions().delimiter:
                    csv = csv._replace(delimiter="\t")
                yield from input_values.of_csv(file, key, self.fields, csv, columns)


class _TypeOfColumn(SettingType):
    """COLUMN=TYPE."""

    name = "COLUMN=TYPE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        name, kind = super().convert(value, param, ctx)
        if kind not in TYPES:
            self.fail(f"{kind!r} is not a type: use {', '.join(TYPES)}", param, ctx)
        return name, kind


def _header_field(text: str) -> tuple[str, str]:
    """The name of a header and the field for it. The text is NAME=FIELD, or a field whose name is
    also the header's name.
    """
    name, equals, field = text.partition("=")
    return (name, field) if equals else (text, text)


def _delimiter(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """The delimiter of --csv-delimiter, given as a character or by a name such as tab."""
    found = _DELIMITERS.get(value or ",", value or ",")
    if len(found) != 1 or found in '\r\n"':
        raise click.BadParameter("it is one letter, such as ; or tab", ctx, param)
    return found


def input_options(command: Command) -> Command:
    """Add the input options to a command. The command gets InputOptions."""

    @functools.wraps(command)
    def with_input(
        *args: Any,
        files: Sequence[str],
        input_kind: str | None,
        key_field: str | None,
        header_fields: Sequence[str],
        partition_field: str | None,
        time_field: str | None,
        value_field: str | None,
        omitted: Sequence[str],
        csv_delimiter: str,
        csv_columns: str | None,
        csv_types: Sequence[tuple[str, str]],
        csv_null: str | None,
        **kwargs: Any,
    ) -> Any:
        """The parameters of this function are the command's options."""
        found = InputOptions(
            files or (STANDARD_INPUT,),
            input_kind,
            FieldOptions(
                key_field,
                tuple(map(_header_field, header_fields)),
                partition_field,
                time_field,
                value_field,
                tuple(omitted),
            ),
            CsvOptions(
                csv_delimiter,
                None if csv_columns is None else csv_columns.split(","),
                dict(csv_types),
                csv_null,
            ),
        )
        return command(*args, source=found, **kwargs)

    decorated: Any = with_input
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return] # click's decorators keep no types


_OPTIONS: Sequence[Callable[[Any], Any]] = (
    click.argument(
        "files",
        metavar="[FILE]...",
        nargs=-1,
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    ),
    click.option(
        "-i",
        "--input",
        "input_kind",
        type=click.Choice(KINDS),
        help=(
            "The kind of the input, see below. [default: by the file's name; otherwise lines, "
            "or records with --json]"
        ),
    ),
    click.option("--key-field", metavar="FIELD", help="The field that is the key."),
    click.option(
        "--header-field",
        "header_fields",
        metavar="[NAME=]FIELD",
        multiple=True,
        help="A field that is a header; may be given many times; a null is left out.",
    ),
    click.option("--partition-field", metavar="FIELD", help="The field that is the partition."),
    click.option(
        "--time-field",
        metavar="FIELD",
        help="The field that is the time: milliseconds since 1970, or ISO 8601.",
    ),
    click.option("--value-field", metavar="FIELD", help="The field that is the whole value."),
    click.option(
        "--omit-field",
        "omitted",
        metavar="FIELD",
        multiple=True,
        help="A field to leave out of the value; may be given many times.",
    ),
    click.option(
        "--csv-delimiter",
        metavar="LETTER",
        callback=_delimiter,
        help="The separator of cells: one character, or tab. [default: , and of tsv tab]",
    ),
    click.option(
        "--csv-columns",
        metavar="A,B,C",
        help="The columns' names, if the first row is data.",
    ),
    click.option(
        "--csv-type",
        "csv_types",
        type=_TypeOfColumn(),
        multiple=True,
        help=(
            f"The type of a column; may be given many times: {', '.join(TYPES)}. [default: "
            "that of the schema, or string]"
        ),
    ),
    click.option("--csv-null", metavar="TEXT", help="The text of cells that are null."),
)
