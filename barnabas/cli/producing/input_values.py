"""The records of the input: lines, JSON lines, CSV, with keys and headers from fields.

--input   a record
--------  --------------------------------------------------------------------------------------
lines     a line; the key before a separator
jsonl     a line of JSON, which is the value
records   a line of JSON with key, value, headers …, as `consume --json` prints it
csv, tsv  a row; the value is an object with a field for each column
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.cli.errors import CommandError
from barnabas.cli.producing import csv_rows
from barnabas.cli.producing.input_lines import InputFile
from barnabas.cli.records import InputValue, parse_json_line, parsed

LINES, JSONL, RECORDS, CSV, TSV = KINDS = ("lines", "jsonl", "records", "csv", "tsv")
_MISSING: Any = object()


class FieldOptions(NamedTuple):
    """The fields of a value that become a record's key, headers and so on. headers: pairs of a
    header's name and a field.
    """

    key: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    partition: str | None = None
    time: str | None = None
    value: str | None = None
    omitted: Sequence[str] = ()

    def is_used(self) -> bool:
        """Whether an option names a field."""
        return self != FieldOptions()


def of_lines(file: InputFile, key: Any, key_separator: str | None) -> Iterator[InputValue]:
    """A record for each line.

    Takes: key, the key for lines without a separator.
    """
    separator = None if key_separator is None else key_separator.encode()
    for number, line in enumerate(file.lines, 1):
        line = line.removesuffix(b"\r")
        place = file.place(number)
        if separator is None:
            yield InputValue(place, key, line)
            continue
        own_key, found, value = line.partition(separator)
        if not found:
            raise CommandError(f"{place} has no {key_separator!r} (--key-separator)")
        yield InputValue(place, own_key, value)


def of_records(file: InputFile, key: Any) -> Iterator[InputValue]:
    """A record for each line of JSON, which has the record's key, value and so on.

    Takes: key, the key for records without a key.
    """
    for number, line in enumerate(file.lines, 1):
        if line.strip():
            found = parse_json_line(line, file.place(number))
            yield found if found.key is not None else found._replace(key=key)


def of_json(file: InputFile, key: Any, fields: FieldOptions) -> Iterator[InputValue]:
    """A record for each line, whose value is the JSON of the line.

    Takes: key, the key if no field is used as the key.
    """
    for number, line in enumerate(file.lines, 1):
        if not line.strip():
            continue
        place = file.place(number)
        value = parsed(line, place)
        yield _record(place, value, key, fields)


def of_csv(
    file: InputFile,
    key: Any,
    fields: FieldOptions,
    options: csv_rows.CsvOptions,
    columns: Mapping[str, Mapping[str, str]],
) -> Iterator[InputValue]:
    """A record for each row.

    Takes: columns, the types of fields in the schemas of key and value. If such a schema is not an
           object, its type has the column name "".
    """
    of_key, of_value = columns.get("key", {}), columns.get("value", {})
    for row in csv_rows.rows(file, options):
        place, cells = row
        types = {name: options.types.get(name) or of_value.get(name, "string") for name in cells}
        if fields.value is not None:
            types[fields.value] = options.types.get(fields.value) or of_value.get("", "string")
        kept = {
            name: text
            for name, text in cells.items()
            if name not in fields.omitted and fields.value in (None, name)
        }
        value = {
            name: csv_rows.typed(name, text, types[name], place) for name, text in kept.items()
        }
        found = _record(place, {**cells, **value}, key, fields)
        if fields.key is not None:
            kind = options.types.get(fields.key) if of_key else "string"
            kind = kind or of_key.get("", "string")
            found = found._replace(key=csv_rows.typed(fields.key, cells[fields.key], kind, place))
        if fields.headers:
            found = found._replace(headers=_headers(place, cells, fields))
        yield found


def _record(place: str, value: Any, key: Any, fields: FieldOptions) -> InputValue:
    """The record for a value whose fields become the key, headers and so on."""
    if not fields.is_used():
        return InputValue(place, key, value)
    if not isinstance(value, dict):
        raise CommandError(f"{place} is not a JSON object, which --key-field and other fields need")
    found = InputValue(
        place,
        key if fields.key is None else _field(place, value, fields.key, "--key-field"),
        headers=_headers(place, value, fields),
        partition=_partition(place, value, fields.partition),
        timestamp_ms=_time_ms(place, value, fields.time),
    )
    if fields.value is not None:
        return found._replace(value=_field(place, value, fields.value, "--value-field"))
    for name in fields.omitted:
        _field(place, value, name, "--omit-field")
    return found._replace(value=_without(value, fields.omitted))


def _headers(
    place: str, value: Mapping[str, Any], fields: FieldOptions
) -> tuple[tuple[str, Any], ...]:
    """The headers made from fields of the value. Null fields are left out."""
    pairs = [
        (name, _field(place, value, field, "--header-field")) for name, field in fields.headers
    ]
    return tuple((name, one) for name, one in pairs if one is not None)


def _field(place: str, value: Mapping[str, Any], path: str, option: str) -> Any:
    """A field of a value, found by its name, or by a path such as customer.id.

    Raises: CommandError if there is no such field.
    """
    if path in value:
        return value[path]
    found: Any = value
    for name in path.split("."):
        found = found.get(name, _MISSING) if isinstance(found, dict) else _MISSING
    if found is _MISSING:
        known = ", ".join(map(str, value)) or "none"
        raise CommandError(f"{place} has no field {path!r} ({option}): there are {known}")
    return found


def _without(value: dict[str, Any], omitted: Sequence[str]) -> dict[str, Any]:
    """A copy of a value without some fields."""
    kept = dict(value)
    for path in omitted:
        if path in kept:
            del kept[path]
            continue
        name, _, rest = path.partition(".")
        kept[name] = _without(kept[name], [rest])
    return kept


def _partition(place: str, value: Mapping[str, Any], field: str | None) -> int | None:
    """The partition in a field; None without a field, or if the field is empty. Raises:
    CommandError.
    """
    if field is None:
        return None
    found = _field(place, value, field, "--partition-field")
    if isinstance(found, str) and found.strip().isdigit():
        return int(found)
    if found is None or found == "":
        return None
    if type(found) is not int or found < 0:
        raise CommandError(
            f"{place}, field {field!r} (--partition-field): {json.dumps(found)} is not a partition"
        )
    return found


def _time_ms(place: str, value: Mapping[str, Any], field: str | None) -> int | None:
    """The time in a field: milliseconds since 1970, or ISO 8601, which is local time without a
    zone.
    """
    if field is None:
        return None
    found = _field(place, value, field, "--time-field")
    if found is None or found == "":
        return None
    if isinstance(found, str):
        text = found.strip()
        if text.isdigit():
            return int(text)
        try:
            return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)
        except (ValueError, OverflowError):
            pass
    elif type(found) is int and found >= 0:
        return found
    raise CommandError(
        f"{place}, field {field!r} (--time-field): {json.dumps(found, ensure_ascii=False)} is "
        "not a time: write milliseconds since 1970, or 2026-11-22T14:00:00+01:00"
    )
