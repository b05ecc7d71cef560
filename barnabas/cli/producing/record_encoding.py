"""Encodes the records of the input: keys and values by schemas, or unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.cli.errors import CommandError
from barnabas.cli.records import InputRecord, InputValue, from_json, parsed
from barnabas.schemas.errors import SerdeError


class RecordEncoding:
    """Encodes records. columns: the types of fields in the schemas of key and value.

    Takes: encoders, by the part of the record (key, value), for the parts that have a schema.
    """

    def __init__(self, encoders: Mapping[str, Any]) -> None:
        self._encoders = encoders
        self.columns = {name: encoder.columns for name, encoder in encoders.items()}

    def record(self, item: InputValue) -> InputRecord:
        """The record to send. Raises: CommandError, which names the place."""
        key = self._encoded("key", item.key, item.place)
        value = self._encoded("value", item.value, item.place)
        headers = tuple(
            (name, _bytes(one, f"{item.place}: the header {name!r}")) for name, one in item.headers
        )
        return InputRecord(key, value, headers, item.partition, item.timestamp_ms)

    def _encoded(self, part: str, value: Any, place: str) -> bytes | None:
        """A key or value as bytes. Null stays null, with or without a schema."""
        encoder = self._encoders.get(part)
        if encoder is None:
            return _bytes(value, f"{place}: the {part}")
        if isinstance(value, bytes):
            value = parsed(value, f"{place}: the {part}")
        if value is None:
            return None
        try:
            encoded: bytes = encoder.encode(value)
        except SerdeError as error:
            raise CommandError(f"{place}: the {part} cannot be encoded: {error}") from error
        return encoded


def _bytes(value: Any, place: str) -> bytes | None:
    """A JSON value as bytes; bytes and None are unchanged. Raises: CommandError."""
    if value is None or isinstance(value, bytes):
        return value
    try:
        return from_json(value)
    except CommandError as error:
        raise CommandError(f"{place}: {error}") from error
