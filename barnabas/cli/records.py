"""Records as lines: text for people and pipes, JSON with keys, headers and times.

One record as JSON:

    {"topic", "partition", "offset", "timestamp_ms", "key", "value", "headers": [[name, value], …]}

Bytes are a string if they are UTF-8, and otherwise {"base64": "…"}. A missing key or value is null.
Data that were decoded by a schema are a JSON value. `produce` reads the same form, in which every
field is optional. A JSON value that has none of these forms is sent as JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from barnabas.cli.errors import CommandError
from barnabas.json_text import (
    JsonText,
    bytes_from_json,
    bytes_to_json,
    compact_json,
    json_text,
    parse_json,
)
from barnabas.protocol.records import header_name_bytes


class Decoded(NamedTuple):
    """A key or value that a schema decoded: its JSON text, and its bytes in the record."""

    text: JsonText
    raw: bytes


class ConsumedRecord(NamedTuple):
    """A record of a partition. key, value: as the partition has them, or decoded by a schema."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | Decoded | None
    value: bytes | Decoded | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class InputRecord(NamedTuple):
    """A record to send. partition, timestamp_ms: None if the client chooses."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class InputValue(NamedTuple):
    """A record of the input, before it is encoded.

    place: where the record is in the input, such as "orders.csv line 3". key, value: the bytes to
    send, or a JSON value.
    """

    place: str
    key: Any = None
    value: Any = None
    headers: tuple[tuple[str, Any], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def shown_bytes(data: bytes | Decoded | None) -> bytes | None:
    """The printed form of a key or value: its bytes, or its JSON if a schema decoded it."""
    if isinstance(data, Decoded):
        return json_text(data.text).encode()
    return data


def to_json(data: bytes | Decoded | None) -> Any:
    """A key or value as a JSON value, or as its JSON text if a schema decoded it."""
    if data is None:
        return None
    if isinstance(data, Decoded):
        return data.text
    return bytes_to_json(data)


def from_json(value: Any) -> bytes | None:
    """A JSON value as bytes. Raises: CommandError for malformed base64."""
    if value is None:
        return None
    try:
        data = bytes_from_json(value)
        return data if isinstance(data, bytes) else compact_json(value).encode()
    except (ValueError, RecursionError) as error:
        raise CommandError(str(error)) from error


def json_record(record: Any) -> dict[str, Any]:
    """A consumer's record in the JSON form."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": to_json(record.key),
        "value": to_json(record.value),
        "headers": json_headers(record.headers or ()),
    }


def json_headers(headers: Iterable[tuple[str, bytes | None]]) -> list[list[Any]]:
    """The headers of a record in the JSON form."""
    return [[to_json(header_name_bytes(name)), to_json(value)] for name, value in headers]


def parsed(text: bytes | str, place: str) -> Any:
    """The value of a JSON text. Raises: CommandError, which names the place and the column."""
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{place} is not JSON: {error}") from error


def parse_json_line(line: bytes, place: str) -> InputValue:
    """The record in a line of JSON. Raises: CommandError, which names the place."""
    fields = parsed(line, place)
    if not isinstance(fields, dict):
        raise CommandError(f'{place} is not a JSON object: write {{"value": …}}')
    unknown = set(fields) - {
        *("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")
    }
    if unknown:
        raise CommandError(
            f"{place} has the unknown field {min(unknown)!r}: use key, value, headers, "
            "partition and timestamp_ms; `--input jsonl` takes the whole object as the value"
        )
    if not {"key", "value"} & set(fields):
        raise CommandError(f'{place} has neither key nor value: write {{"value": null}} for null')
    headers = fields.get("headers") or []
    if isinstance(headers, dict):
        headers = list(headers.items())
    try:
        pairs = tuple((_header_name(name, place), value) for name, value in headers)
    except (TypeError, ValueError) as error:
        raise CommandError(f"{place}: headers must be [[name, value], …]") from error
    return InputValue(
        place,
        fields.get("key"),
        fields.get("value"),
        pairs,
        _whole_number(fields, "partition", place),
        _whole_number(fields, "timestamp_ms", place),
    )


def _header_name(name: Any, place: str) -> str:
    """The name of a header. Raises: CommandError."""
    if isinstance(name, dict):
        try:
            return (from_json(name) or b"").decode(errors="surrogateescape")
        except CommandError as error:
            raise CommandError(f"{place}: the name of a header: {error}") from error
    return str(name)


def _whole_number(fields: dict[str, Any], name: str, place: str) -> int | None:
    """A field of a record's JSON that has to be a whole number or missing. Raises: CommandError."""
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise CommandError(f"{place}: {name} must be a whole number")
    return value
